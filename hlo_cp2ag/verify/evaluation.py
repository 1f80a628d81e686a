"""Evaluates instructions in the symbolic domain: what depends on device ids and constants alone is computed by the
executor, what a site is given is traced, and all else is unknown.
"""

from __future__ import annotations

from typing import TypeAlias, Union, cast

import numpy as np

from hlo_cp2ag.executor.interpreter import Execution
from hlo_cp2ag.executor.ops.movement import read_literal
from hlo_cp2ag.executor.plan import ModuleIndex, Node, function_of
from hlo_cp2ag.executor.registry import find_op, integer
from hlo_cp2ag.executor.validate import check_instruction
from hlo_cp2ag.executor.values import Array, Token, array_shape_of
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Computation, HloModule, Instruction
from hlo_cp2ag.ir.shape import ArrayShape, BufferShape, Shape, TupleShape, is_integer, leaves
from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.verify import collective_movement, symbols
from hlo_cp2ag.verify.bits import array_of_symbols, codes_of_bits
from hlo_cp2ag.verify.control_movement import mover_of
from hlo_cp2ag.verify.effects import Effects
from hlo_cp2ag.verify.movement import MOVERS, Moved, Traced, unknown_of
from hlo_cp2ag.verify.symbols import Symbols, TooLarge

_MOST_STEPS = 1 << 18
"""So many instructions are followed for one value, in computations that are called as often as they are."""
_IDS = ("partition-id", "replica-id")
_COMPUTED_FLOATS = frozenset(
    (
        *("constant", "broadcast", "reshape", "transpose", "reverse", "bitcast", "bitcast-convert", "copy"),
        *("concatenate", "slice", "pad", "dynamic-slice", "dynamic-update-slice", "gather", "select", "convert"),
        *("all-gather", "collective-permute", "collective-broadcast", "all-to-all", "tuple", "get-tuple-element"),
    )
)
"""Ops whose result the executor computes bit for bit in every element type; the others only for integers and pred."""
_NOT_COMPUTED = frozenset(
    (
        *("parameter", "while", "conditional", "call", "fusion", "async-start", "rng", "rng-bit-generator"),
        *("rng-get-and-update-state", "custom-call", "infeed", "outfeed", "send", "recv", "send-done", "recv-done"),
    )
)
_TUPLE_OPS = ("tuple", "opt-barrier", "get-tuple-element")
"""Ops that hand each element on as it is: a computed one stays so beside traced ones."""
Parts: TypeAlias = Union[bool, "tuple[Parts, ...]"]
_COLLECTIVES = ("all-", "collective-", "reduce-scatter", "ragged-all-to-all")


class LeafTable:
    """The values that sites are given, each with codes of its own; one table for both modules."""

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._known: dict[tuple[object, ...], tuple[int, int]] = {}
        self._order: list[tuple[int, int, tuple[object, ...]]] = []
        self._next = 1

    def symbols(self, key: tuple[object, ...], shape: ArrayShape) -> Symbols:
        """The elements of a leaf. Raises TooLarge if there are more than can be counted."""
        found = self._known.get(key)
        if found is None:
            size = shape.element_count * self._devices
            if self._next + size > 1 << 62:
                raise TooLarge(size)
            found = self._known[key] = (self._next, shape.element_count)
            self._order.append((self._next, shape.element_count, key))
            self._next += max(1, size)
        return symbols.leaf_symbols(found[0], shape.dimensions, self._devices)

    def find(self, code: int) -> tuple[tuple[object, ...], int, int]:
        """The leaf, device and row-major index of a code of Data."""
        import bisect

        place = bisect.bisect_right(self._order, (code, 1 << 63, ())) - 1
        base, count, key = self._order[place]
        device, index = divmod(code - base, count)
        return key, device, index


class Blocked(Exception):  # noqa: N818
    """What is asked about hangs on an instruction that has no counterpart yet."""

    def __init__(self, by: Instruction) -> None:
        super().__init__(by.name)
        self.by = by


class ModuleEvaluation:
    """Evaluates the instructions of one module on all devices of a grid."""

    def __init__(
        self, module: HloModule, index: ModuleIndex, grid: ProcessGrid, profile: str, table: LeafTable,
        same_constants: bool = False,
    ) -> None:  # fmt: skip
        """`same_constants` says that an elided constant of a name is the one of that name in the other module."""
        self.module = module
        self.same_constants = same_constants
        self.index = index
        self.context = Execution(index, grid, profile)
        self.effects = Effects(index)
        self.table = table
        self.steps = 0
        """How many instructions have been followed since somebody set it to 0."""
        self._checked: set[int] = set()
        self._computed: dict[int, bool] = {}
        self._parts: dict[int, Parts] = {}
        """Of instructions that make tuples: which elements depend on device ids and constants alone."""

    def elided_key(self, constant: Instruction) -> tuple[object, ...]:
        """What stands for an elided constant: nothing equals it, unless the one module is known to be made of the other."""
        if self.same_constants:
            return ("elided", constant.computation.name, constant.name)
        return ("elided", id(constant.module), constant.span.start)

    # ---- what movers ask

    def traced(self, value: Moved, instruction: Instruction, number: int) -> Symbols:
        """An operand as Symbols."""
        if isinstance(value, Symbols):
            return value
        shape = self.context.operand_shapes(instruction)[number]
        return codes_of_bits(cast(Array, value), array_shape_of(shape).element_type)

    def computed(self, value: Moved, instruction: Instruction, what: str) -> Array:
        """An operand that has to be computed. Raises Traced."""
        if isinstance(value, Symbols):
            because = f" ({value.why})" if value.why else ""
            raise Traced(f"data reaches the {what} of {instruction.opcode} {instruction.name}{because}")
        return cast(Array, value)

    def call(self, computation: Computation, operands: tuple[Moved, ...]) -> Moved:
        """What a computation returns of operands; unknown if it does anything besides."""
        if self.steps > _MOST_STEPS:
            return unknown_of(computation.root.shape, f"it takes more than {_MOST_STEPS:,} steps to follow")
        effect = self.effects.within(computation)
        if effect is not None:
            why = f"{effect.opcode} {effect.name} does more than to compute its result"
            return unknown_of(computation.root.shape, why)
        values: dict[int, Moved] = {}
        parameters = self.index.parameters(computation)
        for parameter, operand in zip(parameters, operands, strict=True):
            values[id(parameter)] = operand
        for node in self._needed(computation):
            if id(node.instruction) not in values:
                values[id(node.instruction)] = self.apply(node, [values[id(o)] for o in node.operands])
        return values[id(computation.root)]

    def _needed(self, computation: Computation) -> list[Node]:
        nodes = self.index.nodes(computation)
        needed = {id(computation.root)}
        for node in reversed(nodes):
            if id(node.instruction) in needed:
                needed.update(id(o) for o in node.operands)
        return [node for node in nodes if id(node.instruction) in needed]

    # ---- one instruction

    def apply(self, node: Node, operands: list[Moved]) -> Moved:
        """What an instruction makes of its operands' values.

        Raises HloSyntaxError for what no run could do, TooLarge, ExecutionError for a collective that not all of a group
        reach.
        """
        instruction = node.instruction
        self.steps += 1
        if self.steps > _MOST_STEPS:
            return unknown_of(instruction.shape, f"it takes more than {_MOST_STEPS:,} steps to follow")
        if instruction.opcode == "constant" and read_literal(instruction).elided:
            return unknown_of(instruction.shape, f"constant {instruction.name} is elided: dump with large constants")
        name = mover_of(instruction.opcode)
        if name is None and find_op(instruction.opcode) is None:
            return unknown_of(instruction.shape, f"{instruction.opcode} {instruction.name} computes with data")
        self.check(node)
        if self._is_computed(instruction, operands):
            self._require_room(instruction)
            with np.errstate(all="ignore"):
                return cast(Moved, function_of(instruction)(self.context, instruction, *operands))
        if name is None:
            return unknown_of(instruction.shape, f"{instruction.opcode} {instruction.name} computes with data")
        try:
            value = MOVERS[name](self, instruction, *operands)
        except Traced as reason:
            return unknown_of(instruction.shape, str(reason))
        if isinstance(value, Symbols) and isinstance(instruction.shape, ArrayShape):
            collective_movement.check_shape(instruction, value)
            bits = array_of_symbols(value, instruction.shape.element_type)
            return value if bits is None else bits
        return value

    def _is_computed(self, instruction: Instruction, operands: list[Moved]) -> bool:
        opcode = instruction.opcode
        if opcode in _NOT_COMPUTED or opcode.endswith(("-start", "-done", "-update")) or find_op(opcode) is None:
            return False
        if not all(isinstance(leaf, (np.ndarray, Token)) for operand in operands for leaf in _leaves(operand)):
            return False
        if opcode in _COMPUTED_FLOATS:
            return True
        shapes = [instruction.shape, *self.index.operand_shapes(instruction)]
        return all(map(_is_exact, shapes))

    def _require_room(self, instruction: Instruction) -> None:
        if instruction.opcode in ("broadcast", "constant", "iota", "reshape", "transpose", "slice", "tuple"):
            return
        for leaf in leaves(instruction.shape):
            array = leaf.array if isinstance(leaf, BufferShape) else leaf
            if array.is_data:
                width = dtype_of(array.element_type).itemsize
                symbols.require_room(array.element_count * width * self.context.lanes // 16)

    def check(self, node: Node) -> None:
        """Raise HloSyntaxError for an instruction that no module may have; others than the executor's are not known."""
        instruction = node.instruction
        if id(instruction) not in self._checked and find_op(instruction.opcode) is not None:
            check_instruction(self.context, self.index, node)
            self._checked.add(id(instruction))

    def leaf(self, key: tuple[object, ...], shape: Shape) -> Moved:
        """A value that the site is given."""
        if isinstance(shape, TupleShape):
            return tuple(self.leaf((*key, i), element) for i, element in enumerate(shape.elements))
        array = array_shape_of(shape)
        return self.table.symbols(key, array) if array.is_data else Token()

    def is_computable(self, instruction: Instruction, operands: tuple[Instruction, ...]) -> bool:
        """Whether an instruction depends on device ids and constants alone; its operands were asked before it."""
        known = self._computed.get(id(instruction))
        if known is None:
            known = self._find_computable(instruction, operands)
            self._computed[id(instruction)] = known
        return known

    def has_computable_part(self, instruction: Instruction) -> bool:
        """Whether an instruction, asked about before, makes a tuple of which some element is computable."""
        return id(instruction) in self._parts and _any_of(self._parts[id(instruction)])

    def _find_computable(self, instruction: Instruction, operands: tuple[Instruction, ...]) -> bool:
        opcode = instruction.opcode
        if opcode in _TUPLE_OPS and operands:
            parts = [self._parts.get(id(o), self._computed.get(id(o), False)) for o in operands]
            found: Parts = tuple(parts) if opcode == "tuple" or len(parts) > 1 else parts[0]
            if opcode == "get-tuple-element" and isinstance(found, tuple):
                number = integer(instruction, "index")
                found = number in range(len(found)) and found[number]
            if isinstance(found, tuple):
                self._parts[id(instruction)] = found
            return _all_of(found)
        if opcode in _IDS or opcode == "iota":
            return True
        if opcode == "constant":
            return "..." not in instruction.text or not read_literal(instruction).elided
        if not operands or opcode in _NOT_COMPUTED or opcode.endswith(("-start", "-done", "-update")):
            return False
        if opcode not in _COMPUTED_FLOATS and not _is_exact(instruction.shape):
            return False
        return find_op(opcode) is not None and all(self._computed.get(id(o), False) for o in operands)


def _any_of(parts: Parts) -> bool:
    return any(map(_any_of, parts)) if isinstance(parts, tuple) else parts


def _all_of(parts: Parts) -> bool:
    return all(map(_all_of, parts)) if isinstance(parts, tuple) else parts


def _leaves(value: Moved) -> list[object]:
    return [leaf for element in value for leaf in _leaves(element)] if isinstance(value, tuple) else [value]


def _is_exact(shape: Shape) -> bool:
    return all(
        not array.is_data or is_integer(array.element_type) or array.element_type == "pred"
        for array in (leaf.array if isinstance(leaf, BufferShape) else leaf for leaf in leaves(shape))
    )


def is_collective(opcode: str) -> bool:
    """Whether devices meet in an opcode."""
    return opcode.startswith(_COLLECTIVES) and not opcode.endswith("-done")
