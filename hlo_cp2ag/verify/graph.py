"""What an instruction is, apart from its name and its place: the key under which equal ones of two modules meet."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from hlo_cp2ag.executor.ops.movement import read_literal
from hlo_cp2ag.executor.plan import CALLING_ATTRIBUTES, ModuleIndex, Node, parameter_number
from hlo_cp2ag.ir.literal import Literal
from hlo_cp2ag.ir.module import AttributeText, Computation, Instruction
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.topology.replica_groups import group_list

Key = tuple[object, ...]

ANNOTATIONS = ("metadata", "origin", "statistics")
"""Attributes that say nothing about what is computed. They are compared, but not to find an instruction's counterpart."""
ORDER = "control-predecessors"
_BLANKS = re.compile(r"\s+")
_LONG = 4_000


class Keys:
    """Keys of one module's instructions; attribute texts that repeat are read once for both modules."""

    _values: dict[tuple[str, str, str], object]

    def __init__(
        self, index: ModuleIndex, values: dict[tuple[str, str, str], object], elided: Callable[..., Key]
    ) -> None:
        self._index = index
        self._values = values
        self._elided = elided

    def key(self, node: Node, operands: tuple[int, ...], computation_class: Callable[[Computation], int]) -> Key:
        """Opcode, shape, attributes and called computations, over the classes of the operands.

        Layouts count, metadata does not. Raises HloSyntaxError for an attribute that is none.
        """
        instruction = node.instruction
        own: tuple[object, ...] = ()
        if instruction.opcode == "constant":
            own = self._constant(instruction)
        elif instruction.opcode == "parameter":
            own = (parameter_number(instruction),)
        attributes: list[object] = []
        for attribute in instruction.body.attributes:
            if attribute.name in ANNOTATIONS or attribute.name == ORDER:
                continue
            if attribute.name in CALLING_ATTRIBUTES:
                called = self._index.called(instruction, attribute.name)
                attributes.append((attribute.name, *(computation_class(c) for c in called)))
            else:
                attributes.append((attribute.name, self.value(instruction, attribute)))
        attributes.sort(key=repr)
        return (instruction.opcode, instruction.shape.to_text(), own, tuple(attributes), operands)

    def value(self, instruction: Instruction, attribute: AttributeText) -> object:
        """An attribute's value, in a form that is equal for equal values."""
        known = (instruction.opcode, attribute.name, attribute.value_text)
        if known not in self._values:
            self._values[known] = self._read(instruction, attribute)
        return self._values[known]

    def _read(self, instruction: Instruction, attribute: AttributeText) -> object:
        try:
            if attribute.name == "replica_groups":
                return group_list(instruction) or attribute.value_text
            value = instruction.attribute(attribute.name)
        except HloError:
            return _BLANKS.sub("", attribute.value_text)
        if isinstance(value, dict):
            return repr(sorted(value.items()))
        return repr(value)

    def _constant(self, instruction: Instruction) -> Key:
        span = instruction.body.operands_span
        text = instruction.module.text[span.start : span.end].strip()
        known = ("constant", instruction.shape.to_text(layout=False), text if len(text) < _LONG else _digest(text))
        if known not in self._values:
            literal = read_literal(instruction)
            if literal.elided:
                return self._elided(instruction)
            self._values[known] = _bits_of(literal)
        return (self._values[known],)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _bits_of(literal: Literal) -> object:
    if literal.array is None:
        return tuple(map(_bits_of, literal.elements))
    raw = literal.array.tobytes()
    return raw if len(raw) < _LONG else hashlib.sha256(raw).digest()
