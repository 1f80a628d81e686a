"""HLO text to an `HloModule`: the outline first, everything else when it is asked for.

An instruction's body is cut by compiled regular expressions where it is written as XLA prints it, and by the Lark
grammar, that instruction alone, where it is not.
"""

from __future__ import annotations

from hlo_cp2ag.ir.module import (
    AttributeText,
    Computation,
    ComputationIndex,
    HloModule,
    Instruction,
    InstructionBody,
    LineForm,
    PlainLine,
)
from hlo_cp2ag.ir.shape import Shape
from hlo_cp2ag.ir.source import HloSyntaxError, SourceText, Span
from hlo_cp2ag.text.body import body_of_tree, cut_body, parse_rule
from hlo_cp2ag.text.computations import LazyComputations, LazyIndex, ListIndex, computation_of
from hlo_cp2ag.text.instruction_table import InstructionTable
from hlo_cp2ag.text.lexical import mask, needs_mask
from hlo_cp2ag.text.outline import CertainComputations, outline
from hlo_cp2ag.text.plain_line import is_cut_alike, plain_line

_MOST_FORMS = 10_000


def parse(text: str, filename: str = "<string>") -> HloModule:
    """Parses HLO text into a module.

    The module's structure is diagnosed at once: brackets, strings and comments that are not closed, what stands between
    computations, names defined twice in one computation. Bodies are read when they are asked for; `module.check()`
    reads them all.

    Raises HloSyntaxError (a ValueError with `filename`, `line`, `column`, `message`, `hint`).
    """
    return parse_source(SourceText(text, filename))


def parse_source(source: SourceText) -> HloModule:
    """Like `parse`, of a text that already has its name."""
    found = outline(source)
    module = HloModule(source, Reader(found.masked), found.name, found.header_span)
    text = source.text
    module.header_attributes = tuple(
        AttributeText(name, text[value.start : value.end], span, value) for name, span, value in found.header_attributes
    )
    if found.is_lone_instruction:
        whole = Span(0, len(text))
        inline = [computation_of(module, i, c) for i, c in enumerate(found.computations)]
        module.computations = [*inline, Computation(module, len(inline), "entry", Span(0, 0), False, whole, whole)]
    elif isinstance(found.computations, CertainComputations):
        module.computations = LazyComputations(module, found.computations)
    else:
        module.computations = [computation_of(module, i, c) for i, c in enumerate(found.computations)]
    module.instruction_names = _names_of(module) if found.names is None else found.names
    _refuse_repeated_computations(module)
    return module


def _names_of(module: HloModule) -> set[str]:
    """All instructions' names; refuses one that is defined twice in its computation."""
    names: set[str] = set()
    for computation in module.computations:
        own = computation.table.names()
        if len(set(own)) != len(own):
            _refuse_repeated_name(computation, own)
        names.update(own)
    return names


def _refuse_repeated_name(computation: Computation, names: list[str]) -> None:
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if name in seen:
            source = computation.module.source
            first = source.position(computation.table.instruction(seen[name]).name_span.start).line
            raise source.error(
                computation.table.instruction(i).name_span.start,
                f"instruction {name!r} is defined twice in computation {computation.name!r}",
                hint=f"the first one is on line {first}",
            )
        seen[name] = i


def _refuse_repeated_computations(module: HloModule) -> None:
    if isinstance(module.computations, LazyComputations) and module.computations.are_distinct():
        return
    seen: dict[str, Computation] = {}
    entry: Computation | None = None
    for computation in module.computations:
        if computation.is_inline:
            continue
        first = seen.setdefault(computation.name, computation)
        if first is not computation:
            line = module.source.position(first.name_span.start).line
            raise module.source.error(
                computation.name_span.start,
                f"computation {computation.name!r} is defined twice",
                hint=f"the first one is on line {line}",
            )
        if computation.is_entry_marked:
            if entry is not None:
                raise module.source.error(computation.span.start, "a second ENTRY: a module has one entry computation")
            entry = computation


class Reader:
    """Cuts computations and bodies for an `HloModule`; keeps the masked text where the outline made one."""

    def __init__(self, masked: str | None) -> None:
        self._masked = masked
        self._known_forms: set[LineForm] = set()

    def masked(self, source: SourceText, span: Span) -> str:
        """A part of the text, masked."""
        if self._masked is not None:
            return self._masked[span.start : span.end]
        text = source.text[span.start : span.end]
        return mask(text, source, span.start) if needs_mask(text) else text

    def index_computations(self, module: HloModule) -> ComputationIndex:
        """The means to find a module's computations."""
        found = module.computations
        return LazyIndex(found) if isinstance(found, LazyComputations) else ListIndex(module, list(found))

    def cut_computation(self, computation: Computation) -> InstructionTable:
        """The table of a computation's instructions. Raises HloSyntaxError."""
        source = computation.module.source
        if computation.certain_lines:
            # Each line is masked when its instruction is asked for; line ends need no mask here.
            return InstructionTable(computation, None)
        return InstructionTable(computation, self.masked(source, computation.body_span))

    def read_body(self, instruction: Instruction) -> InstructionBody:
        """An instruction's parts. Raises HloSyntaxError."""
        source = instruction.module.source
        base = instruction.span.start
        masked = self.masked(source, instruction.span)
        body = cut_body(source, masked, base)
        if body is None:
            rule = "instruction" if instruction.name else "lone_instruction"
            body = body_of_tree(source, parse_rule(source, masked, base, rule), base)
        line = instruction.line
        if line is not None and is_cut_alike(line, body) and len(self._known_forms) < _MOST_FORMS:
            self._known_forms.add(line.form)
        return body

    def line_at(self, computation: Computation, offset: int) -> PlainLine | None:
        """The line that holds a place in a computation, if it is a plain one."""
        if not computation.certain_lines:
            return None
        text = computation.module.text
        return plain_line(text, text.rfind("\n", 0, offset) + 1)

    def is_known(self, line: PlainLine) -> bool:
        """Whether an instruction of the same form was read, and is what its line says."""
        return line.form in self._known_forms

    def read_value(self, instruction: Instruction, attribute: AttributeText) -> object:
        """An attribute's typed value. Raises HloSyntaxError."""
        return read_value(instruction.module.source, attribute, instruction.opcode)

    def infer_shape(self, instruction: Instruction) -> Shape:
        """The shape that the text leaves out. Raises HloSyntaxError."""
        from hlo_cp2ag.text.resolve import infer_shape

        return infer_shape(instruction)

    def check(self, module: HloModule) -> None:
        """Reads and resolves everything. Raises HloSyntaxError."""
        from hlo_cp2ag.text.checker import check_module

        check_module(module)


def read_value(source: SourceText, attribute: AttributeText, opcode: str = "") -> object:
    """The typed value of an instruction's or a header's attribute. Raises HloSyntaxError that points into it."""
    from hlo_cp2ag.text.values import ValueTextError, parse_attribute_value

    text = attribute.value_text
    if "/" in text and text[0] not in "\"'":
        text = blank_comments(f"{attribute.name}={text}")[len(attribute.name) + 1 :]
    try:
        return parse_attribute_value(attribute.name, text, opcode)
    except ValueTextError as error:
        raise source.error(attribute.value_span.start + error.offset, error.message) from None


def blank_comments(text: str) -> str:
    """The text with blanks for comments, and nothing else changed; strings and raw dictionaries are left alone."""
    if "/*" not in text and "//" not in text:
        return text
    try:
        masked = mask(text)
    except HloSyntaxError:
        return text
    return "".join(" " if m == " " else c for c, m in zip(text, masked, strict=True))
