"""An estimate of the memory that a run takes, made before any of it is taken.

Plans are walked with flags in place of arrays: whether a value may differ between devices, so that its lane axis
has full length. Live values are added up at each step, with room for what an op needs besides its result; the answer
is the peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

from hlo_cp2ag.executor.groups import group_table
from hlo_cp2ag.executor.interpreter import Execution
from hlo_cp2ag.executor.ops.collectives import permute_map
from hlo_cp2ag.executor.plan import Plan, Step
from hlo_cp2ag.executor.values import Token, Value, array_shape_of
from hlo_cp2ag.executor.working_room import shared_room, working_room
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import Shape, TupleShape

Flags: TypeAlias = Union[bool, "tuple[Flags, ...]"]
"""Whether each leaf of a value may differ between devices."""

_VIEWS = frozenset(
    (
        *("tuple", "get-tuple-element", "copy", "opt-barrier", "transpose", "broadcast", "slice", "reverse"),
        *(
            "all-gather-done",
            "all-reduce-done",
            "collective-permute-done",
            "async-done",
            "async-update",
            "add-dependency",
        ),
    )
)
"""Ops that show memory they were given, and take none."""


@dataclass(frozen=True)
class _Answer:
    flags: Flags
    peak: int
    """Bytes beyond the arguments, at most."""
    place: Instruction | None = None
    """What needs the most, if it is not the instruction itself that was asked about."""


@dataclass(frozen=True)
class Estimate:
    """The most bytes that values take at any time in a run, arguments included."""

    size: int
    place: Instruction | None
    """The instruction that needs the most besides what it is given; a parameter if the arguments outweigh all else."""


def flags_of_value(value: Value) -> Flags:
    """Which leaves of an argument differ between devices."""
    if isinstance(value, tuple):
        return tuple(map(flags_of_value, value))
    return not isinstance(value, Token) and value.shape[0] > 1


def estimate(execution: Execution, arguments: Sequence[Flags]) -> Estimate:
    """How much a run on arguments takes that differ between devices or not. Takes no memory for values itself."""
    entry = execution.index.module.entry
    parameters = execution.index.parameters(entry)
    sizes = [size_of(p.shape, f, execution.lanes) for p, f in zip(parameters, arguments, strict=True)]
    walk = _Estimate(execution)
    answer = walk.plan(execution.plan(entry), tuple(arguments))
    candidates = [(answer.peak, answer.place), *zip(sizes, parameters, strict=True)]
    candidates += [(size, constant) for constant, size in walk.constants.items()]
    place = max(candidates, key=lambda c: c[0])[1]
    return Estimate(sum(sizes) + sum(walk.constants.values()) + answer.peak, place)


def size_of(shape: Shape, flags: Flags, lanes: int) -> int:
    """Bytes of a value."""
    if isinstance(shape, TupleShape):
        parts = flags if isinstance(flags, tuple) else (flags,) * len(shape.elements)
        return sum(size_of(element, part, lanes) for element, part in zip(shape.elements, parts, strict=True))
    array = array_shape_of(shape)
    if not array.is_data:
        return 0
    return array.element_count * dtype_of(array.element_type).itemsize * (lanes if any_of(flags) else 1)


def _line(iota: Instruction) -> int:
    """How many numbers an iota makes: it shows one line of them many times."""
    shape, along = array_shape_of(iota.shape), iota.attribute("iota_dimension")
    assert isinstance(along, int)
    return shape.dimensions[along] if shape.element_count else 0


def any_of(flags: Flags) -> bool:
    """Whether some leaf differs."""
    return any(map(any_of, flags)) if isinstance(flags, tuple) else flags


def fill(shape: Shape, flag: bool) -> Flags:
    """The same flag for every leaf of a shape."""
    return tuple(fill(element, flag) for element in shape.elements) if isinstance(shape, TupleShape) else flag


def either(a: Flags, b: Flags) -> Flags:
    """Leaf by leaf: whether it differs in one of two values."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(map(either, a, b))
    return any_of(a) or any_of(b)


class _Ledger:
    """Who holds which memory: values that show parts of others keep those alive."""

    def __init__(self) -> None:
        self.live = 0
        self._owners: dict[int, frozenset[int]] = {}
        self._sizes: dict[int, int] = {}
        self._holders: dict[int, int] = {}

    def take(self, slot: int, size: int) -> None:
        """A value has memory of its own."""
        self._owners[slot] = frozenset((slot,))
        self._sizes[slot], self._holders[slot] = size, 1
        self.live += size

    def share(self, slot: int, operands: tuple[int, ...]) -> None:
        """A value shows the memory of others."""
        owners = frozenset().union(*(self._owners.get(operand, frozenset()) for operand in operands))
        self._owners[slot] = owners
        for owner in owners:
            self._holders[owner] += 1

    def drop(self, slot: int) -> None:
        """A value is not needed any more."""
        for owner in self._owners.pop(slot, frozenset()):
            self._holders[owner] -= 1
            if not self._holders[owner]:
                self.live -= self._sizes[owner]


class _Estimate:
    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._known: dict[tuple[int, tuple[Flags, ...]], _Answer] = {}
        self.constants: dict[Instruction, int] = {}
        """What constants take; once made they stay to the end."""

    def plan(self, plan: Plan, arguments: tuple[Flags, ...]) -> _Answer:
        key = (id(plan), arguments)
        if key not in self._known:
            self._known[key] = self._walk(plan, arguments)
        return self._known[key]

    def _walk(self, plan: Plan, arguments: tuple[Flags, ...]) -> _Answer:
        lanes = self._execution.lanes
        flags: dict[int, Flags] = {slot: f for slot, f in zip(plan.parameters, arguments, strict=True) if slot >= 0}
        ledger = _Ledger()
        peak, place = 0, None
        for step in plan.steps:
            answer = self._step(step, tuple(flags[slot] for slot in step.operands))
            flags[step.slot] = answer.flags
            if step.instruction.opcode == "constant":
                self.constants[step.instruction] = size_of(step.instruction.shape, False, lanes)
                ledger.share(step.slot, ())
            elif step.instruction.opcode in _VIEWS:
                ledger.share(step.slot, step.operands)
            elif step.instruction.opcode == "iota":
                ledger.take(step.slot, 8 * _line(step.instruction))  # in the widest type
            else:
                ledger.take(step.slot, size_of(step.instruction.shape, answer.flags, lanes))
            if ledger.live + answer.peak > peak:
                peak, place = ledger.live + answer.peak, answer.place or step.instruction
            for slot in step.frees:
                ledger.drop(slot)
        return _Answer(flags[plan.root], peak, place)

    def _step(self, step: Step, operands: tuple[Flags, ...]) -> _Answer:
        instruction, opcode = step.instruction, step.instruction.opcode
        execution = self._execution
        if opcode == "tuple":
            return _Answer(operands, 0)
        if opcode == "get-tuple-element":
            (operand,) = operands
            index = instruction.attribute("index")
            assert isinstance(operand, tuple) and isinstance(index, int)
            return _Answer(operand[index], 0)
        if opcode in ("call", "fusion", "async-start"):
            attribute = "to_apply" if opcode == "call" else "calls"
            answer = self.plan(execution.plan(execution.computation(instruction, attribute)), operands)
            if opcode == "async-start":
                return _Answer(
                    fill(instruction.shape, any_of(answer.flags) or any_of(operands)), answer.peak, answer.place
                )
            return answer
        if opcode == "while":
            return self._while(instruction, operands[0])
        if opcode == "conditional":
            return self._conditional(instruction, operands)
        differs = any_of(operands)
        extra = 0
        if opcode in ("partition-id", "replica-id", "rng", "infeed", "recv", "recv-done") or opcode == "send":
            differs = execution.lanes > 1
        elif opcode in ("collective-permute", "collective-permute-start"):
            differs = differs or bool((permute_map(execution, instruction) < 0).any())
        elif opcode in ("all-gather", "all-reduce", "all-gather-start", "all-reduce-start"):
            differs = differs and len(group_table(execution, instruction).groups) > 1
        elif opcode in ("reduce-scatter", "all-to-all", "collective-broadcast", "ragged-all-to-all"):
            differs = True
        if opcode == "iota":
            extra = 16 * _line(instruction)
        elif opcode not in _VIEWS and opcode != "constant":
            shapes = execution.operand_shapes(instruction)
            room = working_room(instruction, tuple(shapes), size_of(instruction.shape, False, 1))
            lanes = execution.lanes if differs else 1
            extra = room * lanes + shared_room(instruction, tuple(shapes), lanes)
        return _Answer(fill(instruction.shape, differs), extra)

    def _while(self, instruction: Instruction, state: Flags) -> _Answer:
        execution = self._execution
        body = execution.plan(execution.computation(instruction, "body"))
        condition = execution.plan(execution.computation(instruction, "condition"))
        while True:
            test, after = self.plan(condition, (state,)), self.plan(body, (state,))
            following = either(state, after.flags)
            if any_of(test.flags):
                following = fill(instruction.shape, True)
            if following == state:
                return _Answer(state, *max((test.peak, test.place), (after.peak, after.place), key=lambda x: x[0]))
            state = following

    def _conditional(self, instruction: Instruction, operands: tuple[Flags, ...]) -> _Answer:
        execution = self._execution
        called = list(execution.index.all_called(instruction).values())
        if instruction.attribute_text("branch_computations") is None:
            called = [execution.computation(instruction, f"{word}_computation") for word in ("true", "false")]
        flags: Flags = fill(instruction.shape, any_of(operands[0]))
        peak, place = 0, None
        for computation, argument in zip(called, operands[1:], strict=True):
            answer = self.plan(execution.plan(computation), (argument,))
            flags = either(flags, answer.flags)
            if answer.peak > peak:
                peak, place = answer.peak, answer.place
        return _Answer(flags, 2 * peak if any_of(operands[0]) else peak, place)
