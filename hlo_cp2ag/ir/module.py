"""The lossless module: computations and instructions as places in a text, read further only when somebody asks.

Nothing here knows the syntax. Whoever makes a module (`hlo_cp2ag.text.parser`) hands over a `ModuleReader`, which cuts
computations into instructions and instructions into operands and attributes on demand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from hlo_cp2ag.ir.shape import Shape, parse_shape
from hlo_cp2ag.ir.source import SourceText, Span


class AttributeText(NamedTuple):
    """One attribute as it stands: `channel_id=1`. Spans are offsets in the module's text."""

    name: str
    value_text: str
    """The value's own characters, comments included."""
    span: Span
    value_span: Span


class Operand(NamedTuple):
    """One operand as it stands: a name, `shape name`, a shape alone, or a whole nested instruction."""

    name: str | None
    """The instruction it names, without `%`; None for a nested instruction or a shape without a name."""
    span: Span
    name_span: Span | None = None
    """The name's own characters, `%` not included."""
    shape: Shape | None = None
    nested: InstructionBody | None = None


class InstructionBody(NamedTuple):
    """What stands behind an instruction's `=`, cut into its parts."""

    opcode: str
    opcode_span: Span
    shape: Shape | None
    """The result shape, None where the text leaves it out."""
    shape_span: Span
    operands: tuple[Operand, ...]
    operands_span: Span
    """What stands between the opcode's parentheses; the literal of a constant, the number of a parameter."""
    attributes: tuple[AttributeText, ...]
    end: int


class LineForm(NamedTuple):
    """What decides all about a line in XLA's own writing but its names, its metadata and its place."""

    shape: str
    opcode: str
    operand_count: int
    """-1 where a number stands in the operands' place."""
    attributes: str
    """All that stands behind the operands, metadata and names emptied."""


class PlainLine(NamedTuple):
    """A line in XLA's own writing, `%name = shape opcode(%a, %b), attributes`, cut without reading it.

    What it says counts only where a line of its form has been read in full before (`ModuleReader.is_known`).
    """

    form: LineForm
    name: str
    name_start: int
    start: int
    """Where ROOT or the name's `%` stands."""
    opcode_start: int
    operands: str
    """What stands between the opcode's parentheses."""
    operands_start: int
    attributes: str
    """All that stands behind the operands, as it is."""
    end: int

    @property
    def is_root(self) -> bool:
        """Whether it is marked ROOT."""
        return self.start + 1 < self.name_start

    @property
    def operand_names(self) -> list[str]:
        """The names of its operands in order, without `%`."""
        return _OPERAND_NAME.findall(self.operands)


_OPERAND_NAME = re.compile(r"%([^,]+)")


class ModuleReader(Protocol):
    """Cuts text on demand; implemented in `hlo_cp2ag.text`."""

    def index_computations(self, module: HloModule) -> ComputationIndex:
        """The means to find a module's computations."""

    def cut_computation(self, computation: Computation) -> InstructionTable:
        """The instructions of a computation. Raises HloSyntaxError."""

    def read_body(self, instruction: Instruction) -> InstructionBody:
        """An instruction's parts. Raises HloSyntaxError."""

    def line_at(self, computation: Computation, offset: int) -> PlainLine | None:
        """The line that holds a place in a computation, if it is a plain one."""

    def is_known(self, line: PlainLine) -> bool:
        """Whether an instruction of the same form was read, and is what its line says."""

    def read_value(self, instruction: Instruction, attribute: AttributeText) -> object:
        """An attribute's typed value (`hlo_cp2ag.text.values`). Raises HloSyntaxError."""

    def infer_shape(self, instruction: Instruction) -> Shape:
        """The shape of an instruction whose text leaves it out. Raises HloSyntaxError."""

    def check(self, module: HloModule) -> None:
        """Reads every body and resolves every name. Raises HloSyntaxError."""


class ComputationIndex(Protocol):
    """Finds computations without making those that nobody asks for."""

    def find(self, name: str) -> Computation | None:
        """The computation of a name, if there is one; those written out inside an instruction have none."""

    def at(self, offset: int) -> Computation | None:
        """The innermost computation whose body holds a place of the text."""

    def entry(self) -> Computation:
        """The computation marked ENTRY, else the last one."""

    def inline(self) -> list[Computation]:
        """The computations that are written out inside an instruction, inner ones first."""

    def parameter_texts(self) -> list[str]:
        """What the headers say of parameters and results."""

    def is_printed(self) -> bool:
        """Whether the text is certain to be in XLA's own writing, `%` on every name."""


class InstructionTable(Protocol):
    """A computation's instructions by number, each made when asked for."""

    def __len__(self) -> int: ...

    def instruction(self, index: int) -> Instruction:
        """The instruction at a place in text order."""

    def find(self, name: str) -> Instruction | None:
        """The instruction of a name (without `%`), if there is one."""

    def find_before(self, name: str, offset: int) -> Instruction | None:
        """The same, if it begins before an offset of the module's text."""

    def names(self) -> list[str]:
        """All names in text order."""

    def at(self, offset: int) -> Instruction | None:
        """The instruction that holds an offset of the module's text, if there is one."""

    def index_of(self, instruction: Instruction) -> int:
        """The place of one of these instructions in text order."""


class Instruction:
    """One instruction of a computation: a name and an opcode at a place in the text."""

    __slots__ = (
        *("_body", "_operands", "_shape"),
        *("computation", "is_root", "line", "name", "name_span", "opcode", "span"),
    )

    def __init__(
        self,
        computation: Computation,
        name: str,
        name_span: Span,
        opcode: str,
        is_root: bool,
        span: Span,
        line: PlainLine | None = None,
    ) -> None:
        self.computation = computation
        self.name = name
        """Without `%`."""
        self.name_span = name_span
        """The name's own characters, `%` not included."""
        self.opcode = opcode
        self.is_root = is_root
        """Whether the text marks it ROOT."""
        self.span = span
        """From ROOT or the name to the end of the last attribute."""
        self.line = line
        """Its line, where it is a plain one."""
        self._body: InstructionBody | None = None
        self._operands: tuple[Instruction, ...] | None = None
        self._shape: Shape | None = None

    def __repr__(self) -> str:
        return f"<{self.opcode} {self.name} in {self.computation.name}>"

    @property
    def index(self) -> int:
        """Its place among its computation's instructions, in text order from 0."""
        return self.computation.table.index_of(self)

    def is_before(self, other: Instruction) -> bool:
        """Whether it stands before another instruction of its computation."""
        return self.span.start < other.span.start

    @property
    def module(self) -> HloModule:
        """The module it belongs to."""
        return self.computation.module

    @property
    def body(self) -> InstructionBody:
        """Its parts. Raises HloSyntaxError if the text is no instruction."""
        if self._body is None:
            self._body = self.module.reader.read_body(self)
        return self._body

    @property
    def known_line(self) -> PlainLine | None:
        """Its line, if reading its parts would tell nothing that is not known of another line of this form."""
        line = self.line
        return line if line is not None and self.module.reader.is_known(line) else None

    def forget(self) -> None:
        """Lets go of its parts; they are read again when somebody asks. Its shape is kept."""
        self._body = self._operands = None

    @property
    def text(self) -> str:
        """Its own text, from ROOT or the name to the last attribute."""
        return self.module.source.text[self.span.start : self.span.end]

    @property
    def shape(self) -> Shape:
        """The result shape: the text's, or inferred where the text leaves it out. Raises HloSyntaxError."""
        if self._shape is None:
            line = self.known_line
            stated = parse_shape(line.form.shape) if line is not None else self.body.shape
            self._shape = stated if stated is not None else self.module.reader.infer_shape(self)
        return self._shape

    @property
    def operand_names(self) -> tuple[str, ...]:
        """The names of its operands in order; nested instructions' own operands are not among them."""
        return tuple(o.name for o in self.body.operands if o.name is not None)

    @property
    def operands(self) -> tuple[Instruction, ...]:
        """The instructions its operands name. Raises HloSyntaxError for a name that is not there."""
        if self._operands is None:
            self._operands = self._operands_of_line()
        if self._operands is None:
            for operand in self.body.operands:
                if operand.name is None:
                    raise self.error(
                        "an operand that is written out in place has no instruction of its own", operand.span
                    )
            self._operands = tuple(self.operand_instruction(operand) for operand in self.body.operands)
        return self._operands

    def _operands_of_line(self) -> tuple[Instruction, ...] | None:
        """The same from a known line; None if there is none, or a name is not there."""
        line = self.known_line
        if line is None:
            return None
        found: list[Instruction] = []
        for name in line.operand_names:
            target = self.computation.table.find_before(name, self.span.start)
            if target is None:
                return None
            found.append(target)
        return tuple(found)

    def operand_instruction(self, operand: Operand) -> Instruction:
        """The instruction that one operand names. Raises HloSyntaxError if it is not defined before."""
        target = self.computation.find(operand.name) if operand.name is not None else None
        if target is None or not target.is_before(self):
            where = operand.name_span or operand.span
            hint = "it is defined further down" if target is not None else ""
            raise self.module.source.error(where.start, f"undefined operand {operand.name!r}", hint=hint)
        return target

    def attribute_text(self, name: str) -> AttributeText | None:
        """An attribute as it stands, or None."""
        for attribute in self.body.attributes:
            if attribute.name == name:
                return attribute
        return None

    def attribute(self, name: str, default: object = None) -> object:
        """An attribute's typed value, or `default` where there is none. Raises HloSyntaxError for a bad value."""
        attribute = self.attribute_text(name)
        return default if attribute is None else self.module.reader.read_value(self, attribute)

    @property
    def attributes(self) -> Mapping[str, object]:
        """All attributes, typed. Raises HloSyntaxError for a bad value."""
        return {a.name: self.module.reader.read_value(self, a) for a in self.body.attributes}

    def error(self, message: str, span: Span | None = None, hint: str = "") -> Exception:
        """The exception for something wrong with this instruction, to be raised by the caller."""
        return self.module.source.error((span or self.name_span).start, message, hint=hint)


@dataclass(eq=False)
class Computation:
    """One computation: its header, and a table of instructions that is cut on first use."""

    module: HloModule
    index: int
    name: str
    """Without `%`."""
    name_span: Span
    is_entry_marked: bool
    """Whether the text says ENTRY."""
    span: Span
    """From ENTRY or the name to the closing brace."""
    body_span: Span
    """What stands between the braces."""
    parameters_span: Span | None = None
    """The header's `(...) -> shape`, where there is one."""
    attributes_span: Span | None = None
    """What follows the closing brace: `, execution_thread="x"`."""
    is_inline: bool = False
    """Whether it is written out inside an instruction of another computation, `to_apply={ ... }`; it has no name."""
    certain_lines: bool = field(default=False, repr=False)
    """Whether the outline has shown that each line of the body holds one whole instruction."""

    @property
    def is_lone(self) -> bool:
        """Whether the text is one bare instruction; then this computation is made up around it."""
        return self.span == self.body_span

    @cached_property
    def table(self) -> InstructionTable:
        """The instructions, cut on first use. Raises HloSyntaxError."""
        return self.module.reader.cut_computation(self)

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Instruction]:
        table = self.table
        return (table.instruction(i) for i in range(len(table)))

    @cached_property
    def instructions(self) -> list[Instruction]:
        """All instructions in text order."""
        return list(self)

    def find(self, name: str) -> Instruction | None:
        """The instruction of a name (without `%`), if there is one."""
        return self.table.find(name)

    @cached_property
    def root(self) -> Instruction:
        """The instruction marked ROOT, else the last one."""
        # Where it stands last, as in nearly all text, nothing else is cut.
        last = self.table.at(self._last_character())
        if last is not None and last.is_root:
            return last
        marked = [i for i in self.instructions if i.is_root]
        return marked[0] if marked else self.instructions[-1]

    def _last_character(self) -> int:
        """The offset of the body's last character that is no blank."""
        start, end = self.body_span
        return start + len(self.module.source.text[start:end].rstrip()) - 1

    @cached_property
    def _users(self) -> dict[str, list[Instruction]]:
        users: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for name in dict.fromkeys(instruction.operand_names):
                users.setdefault(name, []).append(instruction)
        return users

    def users(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that have `instruction` as an operand, in text order."""
        return self._users.get(instruction.name, [])

    @property
    def text(self) -> str:
        """Its own text, from ENTRY or the name to the closing brace."""
        return self.module.source.text[self.span.start : self.span.end]


@dataclass(eq=False)
class HloModule:
    """A parsed module. It is never changed: edits make a new module (`hlo_cp2ag.ir.rewriter`)."""

    source: SourceText
    reader: ModuleReader
    name: str = ""
    header_span: Span | None = None
    """`HloModule name, attributes`; None where the text has no header."""
    header_attributes: tuple[AttributeText, ...] = ()
    computations: Sequence[Computation] = field(default_factory=list)
    """In text order; a computation written out inside an instruction stands before the one that holds it."""
    instruction_names: frozenset[str] | set[str] = frozenset()
    """Every instruction's name, and every name that stands only in a computation's header."""

    @property
    def text(self) -> str:
        """The whole text."""
        return self.source.text

    @cached_property
    def entry(self) -> Computation:
        """The computation marked ENTRY, else the last one."""
        return self._index.entry()

    @cached_property
    def _index(self) -> ComputationIndex:
        return self.reader.index_computations(self)

    def computation(self, name: str) -> Computation | None:
        """The computation of a name (without `%`), if there is one."""
        return self._index.find(name.lstrip("%"))

    def computation_at(self, offset: int) -> Computation | None:
        """The innermost computation whose body holds a place of the text."""
        return self._index.at(offset)

    @property
    def inline_computations(self) -> list[Computation]:
        """The computations that are written out inside an instruction, inner ones first."""
        return self._index.inline()

    def is_printed(self) -> bool:
        """Whether the text is certain to be in XLA's own writing: an instruction a line, `%` on every name."""
        return self._index.is_printed()

    def header_parameter_texts(self) -> list[str]:
        """What the computations' headers say of parameters and results."""
        return self._index.parameter_texts()

    def header_attribute(self, name: str) -> AttributeText | None:
        """A header attribute as it stands, or None."""
        for attribute in self.header_attributes:
            if attribute.name == name:
                return attribute
        return None

    def header_error(self, message: str, hint: str = "") -> Exception:
        """The exception for something wrong with the module as a whole, to be raised by the caller."""
        return self.source.error(self.header_span.start if self.header_span is not None else 0, message, hint=hint)

    def instructions(self) -> Iterator[Instruction]:
        """All instructions of all computations in text order."""
        for computation in self.computations:
            yield from computation

    def check(self) -> None:
        """Reads every body and resolves every name; what XLA's parser refuses is refused.

        Raises HloSyntaxError for the first thing that is wrong.
        """
        self.reader.check(self)
