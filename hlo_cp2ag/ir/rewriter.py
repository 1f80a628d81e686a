"""Every edit of a module goes through a `Rewriter`: the module stays as it is, the edits become a new text.

Edits are collected first and written at the end, so that they may refer to each other: a new instruction can use the
result of another permute that is replaced in the same run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hlo_cp2ag.ir.module import Computation, HloModule, Instruction, PlainLine
from hlo_cp2ag.ir.shape import Shape
from hlo_cp2ag.ir.source import Span
from hlo_cp2ag.ir.template import OPERAND, ChainTemplate, name_hole

_HEADER_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_CHANNEL_ID = re.compile(r"channel_id=[ \t\r\n]*(\d{1,19})(?!\d)")
_STEM = re.compile(r"[A-Za-z_]+(?:-[A-Za-z_]+)*")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


class Edit(NamedTuple):
    """Replace the characters of `span` by `text`."""

    span: Span
    text: str


@dataclass(eq=False, slots=True)
class NewInstruction:
    """An instruction to be written; its operands are instructions of the module or other new ones."""

    opcode: str
    shape: Shape
    operands: tuple[Value, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    """Names and value texts of the opcode's own attributes, in the order in which XLA prints them."""
    literal: str = ""
    """What stands between a constant's parentheses."""
    tail: tuple[tuple[str, str], ...] = ()
    """`sharding`, `frontend_attributes`, `origin`, `metadata`: value texts, written behind the rest."""
    control_predecessors: tuple[Value | str, ...] = ()
    name: str = ""
    """Without `%`; given by the rewriter when it is empty."""


class Filled(NamedTuple):
    """What is written into a template's holes, except for the operand's name, which other edits may change."""

    template: ChainTemplate
    names: tuple[str, ...]
    channel_id: int


Value = Instruction | NewInstruction
"""What an operand may be."""


class InstructionPrinter(Protocol):
    """Writes one new instruction in the style of an old one; implemented in `hlo_cp2ag.text.printer`."""

    def instruction(self, new: NewInstruction, like: Instruction, name_of: NameOf) -> str:
        """The text from the name to the last attribute."""

    def separator(self, like: Instruction) -> str:
        """What stands between two instructions: a line end and the indentation."""


class NameOf(Protocol):
    """Says under which name a value is known in the new text."""

    def __call__(self, value: Value | str) -> str:
        """The name, without `%`."""


class Rewriter:
    """Collects edits of one module. `edits()` gives them in text order; nothing is written twice."""

    def __init__(
        self,
        module: HloModule,
        printer: InstructionPrinter,
        check: Callable[[Instruction], None] | None = None,
        is_in_order: Callable[[PlainLine], bool] = lambda line: False,
    ) -> None:
        """`check` is called with every instruction that uses a renamed one; it raises HloSyntaxError for a bad one.

        `is_in_order` says of a line that the check would find nothing in it; it is not called for such a line.
        """
        self.module = module
        self._check = check
        self._is_in_order = is_in_order
        self._printer = printer
        self._before: dict[Instruction, list[NewInstruction]] = {}
        self._replaced: dict[Instruction, NewInstruction | Filled] = {}
        self._renamed: dict[int, dict[str, str]] = {}
        self._erased: dict[Instruction, None] = {}
        self._plain: list[Edit] = []
        self._headers: str | None = None
        self._free_names: dict[str, Iterator[str]] = {}
        self._next_channel: int | None = None

    # ---- what is free --------------------------------------------------------------------------------------------

    def fresh_name(self, opcode: str) -> str:
        """A name as XLA's uniquer gives it: `opcode`, else `opcode.N` with the smallest free N >= 1."""
        return self.fresh_names([opcode])[0]

    def fresh_names(self, opcodes: Sequence[str]) -> list[str]:
        """A fresh name for each of these in order.

        XLA's uniquer takes `add.0` for `add` and `add.01` for `add.1`, so such names count as well.
        """
        names: list[str] = []
        for opcode in opcodes:
            free = self._free_names.get(opcode)
            if free is None:
                free = self._free_names[opcode] = self._names_from(opcode)
            names.append(next(free))
        return names

    def _names_from(self, opcode: str) -> Iterator[str]:
        """All free names of an opcode in order."""
        taken, in_headers = self.module.instruction_names, self._header_names(opcode)
        zero, two_zeros = f"{opcode}.0", f"{opcode}.00"
        if not (opcode in taken or opcode in in_headers or zero in taken or two_zeros in taken):
            yield opcode
        for number in map(str, itertools.count(1)):
            name = f"{opcode}.{number}"
            if not (name in taken or zero + number in taken or two_zeros + number in taken or name in in_headers):
                yield name

    def _header_names(self, opcode: str) -> set[str]:
        """Names that begin with an opcode and stand in computations' headers; XLA's uniquer counts them too."""
        if self._headers is None:
            self._headers = "\n".join(self.module.header_parameter_texts())
        found: set[str] = set()
        if opcode not in self._headers:  # many times faster than the search below
            return found
        for match in re.finditer(rf"{re.escape(opcode)}[\w.\-]*", self._headers):
            if self._headers[match.start() - 1] not in _NAME_CHARACTERS:
                found.add(match.group())
        return found

    def next_channel_id(self) -> int:
        """1 + the largest channel id of the module, rising with each call."""
        if self._next_channel is None:
            self._next_channel = largest_channel_id(self.module) + 1
        self._next_channel += 1
        return self._next_channel - 1

    # ---- edits ---------------------------------------------------------------------------------------------------

    def insert_before(self, instruction: Instruction, new: Sequence[NewInstruction]) -> None:
        """Writes new instructions before one of the module, each on a line of its own."""
        for each in new:
            each.name = each.name or self.fresh_name(each.opcode)
        self._before.setdefault(instruction, []).extend(new)

    def replace(self, instruction: Instruction, new: Sequence[NewInstruction], keep_name: bool = False) -> None:
        """Writes new instructions in the place of one of the module.

        The last one takes its place: its ROOT mark, its users, those who wait on it through control predecessors, and
        with `keep_name` also its name.
        """
        *before, last = new
        self.insert_before(instruction, before)
        if keep_name:
            last.name = instruction.name
        else:
            last.name = last.name or self.fresh_name(last.opcode)
            self.rename_uses(instruction, last.name)
        self._replaced[instruction] = last

    def replace_by_template(self, instruction: Instruction, template: ChainTemplate, keep_name: bool = False) -> Filled:
        """Like `replace`, with a chain that was emitted and printed before for an instruction of the same form.

        The instruction has one operand. The chain's one channel id is the next free one.
        """
        names = self.fresh_names(template.opcodes[:-1] if keep_name else template.opcodes)
        if keep_name:
            names.append(instruction.name)
        else:
            self.rename_uses(instruction, names[-1])
        filled = self._replaced[instruction] = Filled(template, tuple(names), self.next_channel_id())
        return filled

    def template_of(self, instruction: Instruction, new: Sequence[NewInstruction]) -> ChainTemplate:
        """The template of new instructions that could stand for `instruction`, in its style."""
        for index, each in enumerate(new):
            each.name = name_hole(index)

        def name_of(value: Value | str) -> str:
            return value.name if isinstance(value, NewInstruction) else OPERAND

        separator = self._printer.separator(instruction)
        *before, last = (self._printer.instruction(each, instruction, name_of) for each in new)
        return ChainTemplate.of([n.opcode for n in new], "".join(text + separator for text in before), last)

    def rename_uses(self, instruction: Instruction, name: str) -> None:
        """Edits every use of an instruction in its computation, operands and control predecessors, to another name."""
        self._renamed.setdefault(id(instruction.computation), {})[instruction.name] = name

    def erase(self, instruction: Instruction) -> None:
        """Takes an instruction out, with its line if it stands on one alone. Its uses must have been renamed."""
        self._erased[instruction] = None

    def replace_by_operand(self, instruction: Instruction, operand: Instruction) -> None:
        """Takes an instruction out; whoever used it uses one that stands before it, under the name that this one has now.

        It is not its computation's result, and no control predecessor names it.
        """
        renamed = self._renamed.get(id(instruction.computation), {})
        self.rename_uses(instruction, renamed.get(operand.name, operand.name))
        self.erase(instruction)

    def erase_computation(self, computation: Computation) -> None:
        """Takes a computation out that nothing calls any more, with the blank line behind it."""
        text = self.module.text
        start, end = computation.span
        for _ in range(2):
            line_end = text.find("\n", end)
            if line_end < 0 or text[end:line_end].strip():
                break
            end = line_end + 1
        self._plain.append(Edit(Span(start, end), ""))

    def replace_text(self, span: Span, text: str) -> None:
        """Replaces characters of the module's text, a header's count for example."""
        self._plain.append(Edit(span, text))

    # ---- the result ----------------------------------------------------------------------------------------------

    def edits(self) -> list[Edit]:
        """All edits in text order, none overlapping another."""
        edits = list(self._plain)
        computations: dict[int, Computation] = {}
        for instruction in [*self._before, *self._replaced, *self._erased]:
            computations[id(instruction.computation)] = instruction.computation
        gone = {instruction.span.start for instruction in (*self._replaced, *self._erased)}
        for key, names in self._renamed.items():
            edits.extend(self._use_edits(computations[key], names, gone))
        for instruction in dict.fromkeys([*self._before, *self._replaced]):
            edits.append(self._written(instruction))
        edits.extend(_erasure(instruction) for instruction in self._erased)
        return sorted(edits, key=lambda edit: edit.span)

    def apply(self) -> str:
        """The new text."""
        return apply_edits(self.module.text, self.edits())

    def _name_of(self, instruction: Instruction) -> NameOf:
        renamed = self._renamed.get(id(instruction.computation), {})

        def name_of(value: Value | str) -> str:
            if isinstance(value, NewInstruction):
                return value.name
            name = value if isinstance(value, str) else value.name
            return renamed.get(name, name)

        return name_of

    def _written(self, instruction: Instruction) -> Edit:
        name_of = self._name_of(instruction)
        start = instruction.span.start
        last = self._replaced.get(instruction)
        root = self.module.text[start : instruction.name_span.start].rstrip("%") if instruction.is_root else ""
        if isinstance(last, Filled):
            operand, channel = name_of(instruction.operands[0]), str(last.channel_id)
            before = last.template.before.fill(last.names, operand, channel)
            return Edit(instruction.span, before + root + last.template.last.fill(last.names, operand, channel))
        separator = self._printer.separator(instruction)
        text = "".join(
            self._printer.instruction(new, instruction, name_of) + separator
            for new in self._before.get(instruction, ())
        )
        if last is None:
            return Edit(Span(start, start), text)
        return Edit(instruction.span, text + root + self._printer.instruction(last, instruction, name_of))

    def _use_edits(self, computation: Computation, names: dict[str, str], gone: set[int]) -> Iterable[Edit]:
        """The edits of every use of the renamed instructions in one computation.

        `gone` is where those instructions begin that are replaced or erased as a whole.
        """
        table, line_at = computation.table, self.module.reader.line_at
        seen: set[Instruction] = set()
        line: PlainLine | None = None
        line_end, is_in_order = -1, False
        for offset, name in mentions(self.module.text, computation.body_span, names):
            if offset >= line_end:
                line = line_at(computation, offset)
                # Decided once a line: the check of this very line may bring its form in order.
                is_in_order = line is not None and self._is_in_order(line)
                line_end = line.end if line is not None else -1
            if line is not None and line.start in gone:
                continue
            if line is not None and is_in_order:
                if 0 <= offset - line.operands_start < len(line.operands):
                    yield Edit(Span(offset, offset + len(name)), names[name])
                continue
            user = table.at(offset)
            if user is None or user in seen:
                continue
            seen.add(user)
            if user.span.start in gone:
                continue
            if self._check is not None:
                self._check(user)
            for operand in user.body.operands:
                yield from _operand_edits(operand, names)
            predecessors = user.attribute_text("control-predecessors")
            if predecessors is not None:
                for span, name in names_in_braces(predecessors.value_text, predecessors.value_span.start):
                    if name in names:
                        yield Edit(span, names[name])
            user.forget()


def _operand_edits(operand: object, names: dict[str, str]) -> Iterable[Edit]:
    pending = [operand]
    while pending:
        current = pending.pop()
        name, span = getattr(current, "name", None), getattr(current, "name_span", None)
        if name in names and span is not None:
            yield Edit(span, names[name])
        nested = getattr(current, "nested", None)
        if nested is not None:
            pending.extend(nested.operands)


def mentions(text: str, span: Span, names: Collection[str]) -> list[tuple[int, str]]:
    """The offsets in `span` at which one of these names stands, in whatever role, and which.

    Names that begin alike are found in one pass over the text: where there are thousands of them, their stems are few.
    """
    stems: set[str] = set()
    for name in names:
        match = _STEM.match(name)
        stems.add(match.group() if match else name)
    found: list[tuple[int, str]] = []
    for stem in sorted(stems):
        for match in re.compile(rf"{re.escape(stem)}[\w.\-]*:?").finditer(text, span.start, span.end):
            start, name = match.start(), match.group()
            if name not in names:
                name = name.rstrip(":")
            if name in names and text[start - 1] not in _NAME_CHARACTERS:
                found.append((start, name))
    # A stem may begin another one, which then finds the same names again.
    return sorted(set(found)) if len(stems) > 1 else found


def names_in_braces(value_text: str, offset: int) -> list[tuple[Span, str]]:
    """The names in `{%a, b}` and where they are, `%` not included; comments are no names."""
    text = re.sub(r"/\*.*?\*/|//[^\r\n]*", lambda m: " " * len(m.group()), value_text, flags=re.DOTALL)
    return [(Span(offset + m.start(), offset + m.end()), m.group()) for m in _HEADER_NAME.finditer(text)]


def largest_channel_id(module: HloModule) -> int:
    """The largest `channel_id` of any instruction; 0 where there is none. What is past 64 bits is left to the checker."""
    text = module.text
    found = [
        (int(match.group(1)), match.start())
        for match in _CHANNEL_ID.finditer(text)
        if text[match.start() - 1] not in _NAME_CHARACTERS
    ]
    return next((value for value, offset in sorted(found, reverse=True) if not _inside_string(module, offset)), 0)


def _inside_string(module: HloModule, offset: int) -> bool:
    """Whether a place is inside a string, a comment or a raw dictionary, by the instruction it stands in."""
    text = module.text
    line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    before = text[line_start:offset]
    if '"' not in before and "'" not in before and "/" not in before and "{" not in before:
        return False
    computation = module.computation_at(offset)
    instruction = computation.table.at(offset) if computation is not None else None
    return instruction is None or all(attribute.span.start != offset for attribute in instruction.body.attributes)


def _erasure(instruction: Instruction) -> Edit:
    text = instruction.module.text
    start, end = instruction.span
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end + 1
    alone = not text[line_start:start].strip() and not text[end:line_end].strip()
    return Edit(Span(line_start, line_end) if alone else instruction.span, "")


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text with edits applied; they must be sorted and must not overlap."""
    pieces: list[str] = []
    position = 0
    for edit in edits:
        assert edit.span.start >= position, "overlapping edits"
        pieces.append(text[position : edit.span.start])
        pieces.append(edit.text)
        position = edit.span.end
    pieces.append(text[position:])
    return "".join(pieces)
