"""The batch path of `check`: the instructions that are written as XLA prints them, a computation at a time.

It never says what is wrong. A line is either shown to be right, by lookups of pieces of text that were shown to be
right before (shapes, opcodes with their attributes, names defined further up), or handed to checker.py, which looks at
that instruction by itself. So both ways give the same verdict, and the second one the messages.

What makes it fast: one `findall` for a computation cuts all its lines; what recurs is remembered by its text; metadata,
which recurs least, is found valid by its regular expression and blanked out before anything is looked up.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from hlo_cp2ag.ir.literal import LiteralTextError, check_literal
from hlo_cp2ag.ir.shape import ArrayShape, Shape, ShapeTextError, TupleShape, compatible, layout_fault, parse_shape
from hlo_cp2ag.text.check_rules import CHANNELS, RESHAPED
from hlo_cp2ag.text.check_state import RESERVED
from hlo_cp2ag.text.instruction_table import is_cut_by_lines
from hlo_cp2ag.text.opcodes import PRIMITIVE_TYPES, opcode_spec
from hlo_cp2ag.text.plain_line import METADATA, NO_METADATA

if TYPE_CHECKING:
    from hlo_cp2ag.ir.module import Computation, Instruction
    from hlo_cp2ag.text.check_state import Scope, State

_LINE = re.compile(
    r"\n +(ROOT )?(%?[A-Za-z_][A-Za-z0-9_.\-]*) = "
    r"(?:([a-z][a-z0-9]*\[[^\[\]\n]*\](?:\{[^{}\n]*\})?|\([^\n]*?\)(?= [a-z][a-z0-9\-]*\())"
    r" ([a-z][a-z0-9\-]*)\(([^()\n]*)\)([^\n]*)|[^\n]*)"
)
"""ROOT, name, shape, opcode, operands and attributes of a line; no shape for a line in another form."""

_LINE_START = re.compile(r"\n *[^ \n]")
_PIECE = 200_000
_UNSURE = re.compile(r"[\r\t]|//|/\*(?!index=\d+\*/)")
_INDEX = re.compile(r"/\*index=\d+\*/")
_WITH_SHAPE = re.compile(r"([a-z][a-z0-9]*\[[^\[\]\n]*\](?:\{[^{}\n]*\})?) (%?[A-Za-z_][A-Za-z0-9_.\-]*)(?:, |$)")

_VARYING = re.compile(
    r", (?:(index|channel_id|iota_dimension)=[0-9]{1,18}"
    r"|(to_apply|calls|body|condition|select|scatter|true_computation|false_computation)=%?([A-Za-z_][A-Za-z0-9_.\-]*)"
    r"|(slice=)\{(?:\[[0-9]{1,18}:[0-9]{1,18}(?::[0-9]{1,18})?\](?:, (?=\[))?)+\})(?=, [a-z]|$)"
)
"""Attributes whose values hardly ever recur, and are right whatever their number, and wherever their name is known.

Where this finds something inside of a string or a raw dictionary it does no harm: nothing in there can be wrong.
"""
_HEADER_SHAPE = r"[a-z][a-z0-9]*\[[0-9,]*\]"
_HEADER = re.compile(
    rf"\((?:[A-Za-z_][A-Za-z0-9_.\-]*: {_HEADER_SHAPE}(?:, (?=[A-Za-z_])|(?=\))))*\) -> ({_HEADER_SHAPE})"
)
_SHAPE_IN_HEADER = re.compile(rf"(?<= ){_HEADER_SHAPE}")

_SINGLY = RESHAPED | {
    "async-done", "async-start", "async-update", "conditional", "dynamic-reshape", "partition-id", "replica-id", "scan",
    "triangular-solve",
}  # fmt: skip
"""Opcodes that are always looked at by themselves: they make other shapes than the text says, or ask much."""

_COMPARED = {"compare", "reshape"}
"""Opcodes that ask something of their operands' shapes; others are not among them by chance."""

_BY_RANK = {"dynamic-slice": 1, "dynamic-update-slice": 2}
_ANY, _EVEN, _ODD, _ELEMENTS, _SOME, _PAIR = -1, -2, -3, -4, -5, -6
_FREE = {
    "reduce": _EVEN, "reduce-window": _EVEN, "scatter": _ODD, "tuple": _ELEMENTS, "rng-bit-generator": _SOME,
    "dot": _PAIR,
}  # fmt: skip
_LEADING = -10
"""`_LEADING - n`: n operands, then indices, as many as the first operand has dimensions, or one of rank 1."""
_BAD_NAMES = RESERVED | {"%" + name for name in PRIMITIVE_TYPES}
_LONGEST_REMEMBERED = 200


class _Piece:
    """Some lines of a computation, each with one instruction."""

    def __init__(self, computation: Computation, start: int, end: int) -> None:
        """The text from the line end at `start` on."""
        self._computation = computation
        self._start, self._end = start, end

    @cached_property
    def _places(self) -> list[int]:
        """Where each line's first character stands."""
        text = self._computation.module.source.text
        return [match.end() - 1 for match in _LINE_START.finditer(text, self._start, self._end)]

    def __len__(self) -> int:
        return len(self._places)

    def instruction(self, index: int) -> Instruction:
        """The instruction on a line."""
        found = self._computation.table.at(self._places[index])
        assert found is not None
        return found


class Batch:
    """Remembers for one module what was shown to be right."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.shapes: dict[str, Shape] = {}
        self.header_shapes: dict[str, Shape] = {}
        self.counts: dict[str, int] = {}
        """By opcode and attributes: how many operands go with them."""
        self.constants: set[tuple[str, str]] = set()
        self.strange_names = "__" in state.source.text

    def check(self, scope: Scope) -> bool:
        """Checks a computation and fills its scope; False if it is not written line by line.

        Raises HloSyntaxError for the first thing that is wrong.
        """
        computation = scope.computation
        text, (start, end) = self.state.source.text, computation.body_span
        if not computation.certain_lines:
            if _UNSURE.search(text, start, end) or not is_cut_by_lines(computation.table):
                return False
            return self._check_piece(scope, start, end)
        while start < end:
            # A piece at a time: what is cut takes many times the room of the text.
            stop = text.find("\n", start + _PIECE, end)
            stop = end if stop < 0 else stop
            if not self._check_piece(scope, start, stop):
                self._check_each(scope, _Piece(computation, start, stop))
            start = stop
        return True

    def _check_each(self, scope: Scope, piece: _Piece) -> None:
        from hlo_cp2ag.text.checker import check_instruction

        for index in range(len(piece)):
            check_instruction(self.state, scope, piece.instruction(index))

    def _check_piece(self, scope: Scope, start: int, end: int) -> bool:
        """Checks the lines of a part of the text that begins with a line end; False if they are no such lines.

        Raises HloSyntaxError for the first thing that is wrong.
        """
        text = self.state.source.text[start:end].rstrip(" ")
        if "metadata={" in text:
            text = METADATA.sub(NO_METADATA, text)
        if "/*" in text:
            text = _INDEX.sub("", text)
        lines = _LINE.findall(text)
        if len(lines) != text.count("\n") - text.endswith("\n") or self._has_bad_names(lines):
            return False
        self._check_lines(scope, lines, _Piece(scope.computation, start, end))
        return True

    def header_result(self, header: str) -> Shape | None:
        """The result shape of a header whose parameters and result are arrays known from before; else None."""
        match = _HEADER.fullmatch(header)
        if match is None:
            return None
        known = self.header_shapes
        for text in _SHAPE_IN_HEADER.findall(header):
            if text not in known:
                try:
                    known[text] = parse_shape(text)
                except ShapeTextError:
                    return None
        return known[match.group(1)]

    def _has_bad_names(self, lines: list[tuple[str, ...]]) -> bool:
        heads = [line[1] for line in lines]
        if not _BAD_NAMES.isdisjoint(heads):
            return True
        return self.strange_names and any(head.startswith(("__", "%__")) for head in heads)

    def _check_lines(self, scope: Scope, lines: list[tuple[str, ...]], piece: _Piece) -> None:
        from hlo_cp2ag.text.checker import check_instruction

        written = scope.shapes.written
        shapes, counts, constants = self.shapes, self.counts, self.constants
        state = self.state
        name = opcode = ""
        for index, (root, name, shape_text, opcode, operands, attributes) in enumerate(lines):
            count = counts.get(opcode + attributes)
            shape = shapes.get(shape_text) or self._new_shape(shape_text)
            if count is None and attributes:
                count = self._canonical_count(opcode, attributes)
            if count is None or shape is None or (root and scope.root is not None):
                self._singly(scope, piece.instruction(index), shape_text, opcode, attributes, check_instruction)
                continue
            if opcode in CHANNELS:
                scope.channel_texts[name.lstrip("%")] = attributes
            if opcode == "constant":
                if (shape_text, operands) not in constants and not self._is_literal(shape, shape_text, operands):
                    check_instruction(state, scope, piece.instruction(index))
                    continue
            elif opcode == "parameter":
                if not operands.isdecimal() or len(operands) > 9 or int(operands) in scope.parameters:
                    check_instruction(state, scope, piece.instruction(index))
                    continue
                scope.parameters[int(operands)] = shape
            else:
                try:
                    found = [written[operand] for operand in operands.split(", ")] if operands else []
                except KeyError:
                    with_shapes = self._with_shapes(written, operands)
                    if with_shapes is None:
                        check_instruction(state, scope, piece.instruction(index))
                        continue
                    found = with_shapes
                if (len(found) != count and not _fits(count, found, shape)) or (
                    opcode in _COMPARED and not _is_array(found[0], shape, opcode)
                ):
                    check_instruction(state, scope, piece.instruction(index))
                    continue
            written[name] = shape
            if root:
                scope.root, scope.root_opcode = name.lstrip("%"), opcode
        if lines and scope.last != name.lstrip("%"):
            scope.last, scope.last_opcode = name.lstrip("%"), opcode

    def _singly(
        self,
        scope: Scope,
        instruction: Instruction,
        shape_text: str,
        opcode: str,
        attributes: str,
        check_instruction: object,
    ) -> None:
        """Checks an instruction by itself, and remembers what that shows. Raises HloSyntaxError."""
        check_instruction(self.state, scope, instruction)  # type: ignore[operator]
        key = opcode + attributes
        if shape_text and key not in self.counts and opcode not in _SINGLY and "control-predecessors" not in attributes:
            count = self._count(opcode, attributes)
            if count is not None:
                self.counts[key] = self.counts[opcode + _VARYING.sub(_without_value, attributes)] = count

    def _new_shape(self, text: str) -> Shape | None:
        """The shape of a text that is new here; None for a line without one, or a text that is none."""
        if not text:
            return None
        try:
            shape = self.shapes[text] = parse_shape(text)
        except ShapeTextError:
            return None
        return shape

    def _canonical_count(self, opcode: str, attributes: str) -> int | None:
        """The count that goes with attributes that differ from known ones only in numbers and computations' names."""
        if ", " not in attributes or opcode in _SINGLY:
            return None
        count = self.counts.get(opcode + _VARYING.sub(_without_value, attributes))
        if count is not None:
            programs = self.state.programs
            for _, reference, name, _ in _VARYING.findall(attributes):
                if reference and (name not in programs or (name in RESERVED and f"={name}" in attributes)):
                    return None
        return count

    def _count(self, opcode: str, attributes: str) -> int | None:
        """How many operands an opcode takes, for `_fits`; None if that depends on more than can be remembered."""
        spec = opcode_spec(opcode)
        if spec is None or spec.wrapped is not None or "parameter_replication" in attributes:
            return None
        if opcode == "custom-call" and "operand_layout_constraints" in attributes:
            return None
        if opcode == "broadcast" and "dimensions=" not in attributes:
            return None
        if spec.operand_counts is not None:
            return min(spec.operand_counts)
        if opcode.startswith("collective-permute") and "slice_sizes=" in attributes:
            return None
        if opcode in _BY_RANK:
            return _LEADING - _BY_RANK[opcode]
        return _FREE.get(opcode, _ANY)

    def _is_literal(self, shape: Shape, shape_text: str, literal: str) -> bool:
        if not isinstance(shape, ArrayShape) or (shape.layout is not None and layout_fault(shape)):
            return False
        try:
            check_literal(literal, shape)
        except LiteralTextError:
            return False
        if len(literal) <= _LONGEST_REMEMBERED:
            self.constants.add((shape_text, literal))
        return True

    def _with_shapes(self, written: dict[str, Shape], operands: str) -> list[Shape] | None:
        """The shapes of operands that are written with theirs; None if some operand is not to be had so."""
        found: list[Shape] = []
        length = 0
        for match in _WITH_SHAPE.finditer(operands):
            if match.start() != length:
                return None
            length = match.end()
            known = written.get(match.group(2))
            stated = self.shapes.get(match.group(1))
            if known is None or stated is None or (stated is not known and not compatible(known, stated)):
                return None
            found.append(known)
        return found if length == len(operands) and not operands.endswith(", ") else None


def _without_value(match: re.Match[str]) -> str:
    return f", {match.group(match.lastindex - (match.lastindex == 3))}*"  # type: ignore[operator]


def _is_array(operand: Shape, result: Shape, opcode: str) -> bool:
    """Whether a reshape or compare is one of arrays, and a reshape of as many elements as it makes."""
    if not isinstance(operand, ArrayShape) or not operand.is_data:
        return False
    if opcode == "compare":
        return True
    return isinstance(result, ArrayShape) and result.is_data and result.element_count == operand.element_count


def _fits(count: int, operands: list[Shape], shape: Shape) -> bool:
    """Whether the number of operands is one that goes with a count."""
    found = len(operands)
    if count >= 0:
        return found == count
    if count == _ANY:
        return True
    if count == _EVEN:
        return found % 2 == 0
    if count == _ODD:
        return found % 2 == 1
    if count in (_SOME, _PAIR):
        return found >= (1 if count == _SOME else 2)
    if count == _ELEMENTS:
        return isinstance(shape, TupleShape) and len(shape.elements) == found
    leading = _LEADING - count
    first = operands[0] if operands else None
    if not isinstance(first, ArrayShape) or found < leading:
        return False
    if found == leading + first.rank:
        # One index of rank 1 goes too, which is asked only where the counts do not fit.
        return all(isinstance(operand, ArrayShape) for operand in operands)
    last = operands[-1]
    return found == leading + 1 and isinstance(last, ArrayShape) and last.rank == 1
