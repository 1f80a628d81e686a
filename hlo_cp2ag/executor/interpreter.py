"""Runs plans: one step after the other, all lanes at once, values freed after their last use."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from hlo_cp2ag.executor.dynamic import MAKE_SIZES, run_with_sizes
from hlo_cp2ag.executor.plan import ModuleIndex, Plan
from hlo_cp2ag.executor.registry import BoundError, TooManySteps, execution_error
from hlo_cp2ag.executor.values import Array, Bounded, Value, check_value, map_arrays, zeros
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import Shape
from hlo_cp2ag.topology.process_grid import ProcessGrid

T = TypeVar("T")

SIMPLE_REDUCERS = frozenset(("add", "multiply", "maximum", "minimum", "and", "or", "xor"))
"""The opcodes that `simple_reducer` recognises."""


@dataclass(frozen=True)
class Trace:
    """Who wants to see what instructions compute."""

    pattern: re.Pattern[str]
    """Searched for in instruction names and opcodes."""
    callback: Callable[[Instruction, Value, Array | None], None]
    """Called with each value as it is computed, `[1 or lanes, ...]`, and a bool array `[lanes]` that says which lanes
    compute it, None for all; loop iterations each call it again."""

    def wants(self, instruction: Instruction) -> bool:
        """Whether an instruction's values are to be shown."""
        return bool(self.pattern.search(instruction.name) or self.pattern.search(instruction.opcode))


class Execution:
    """One run of one module: the `Context` that its ops see."""

    def __init__(
        self,
        index: ModuleIndex,
        grid: ProcessGrid,
        profile: str = "xla",
        max_steps: int | None = None,
        fill_elided: np.random.Generator | None = None,
        trace: Trace | None = None,
        progress: Callable[[int], None] | None = None,
        checked: bool = False,
        seed: int = 0,
        custom_calls: Mapping[str, Callable[..., Any]] | None = None,
        infeed: Sequence[Array] = (),
        max_memory: int | None = None,
    ) -> None:
        """`progress` is called now and then with the number of instructions run; `checked` holds every value against
        its instruction's shape."""
        self.index = index
        self.grid = grid
        self.profile = profile
        self.lanes = grid.device_count
        self.in_apply = False
        self.active: Array | None = None
        self.fill_elided = fill_elided
        self.steps = 0
        self.custom_calls = custom_calls or {}
        self.channels: dict[int, deque[Value]] = {}
        self.outfeed: list[Array] = []
        self._infeed = infeed
        self._fed = 0
        self._held = 0
        self._max_memory = max_memory
        self._seed = seed
        self._drawn = 0
        self._max_steps = max_steps
        self._trace = trace
        self._progress = progress
        self._checked = checked
        self._plans: dict[int, Plan] = {}
        self._has_sizes = any(i.opcode in MAKE_SIZES for i in index.module.instructions())
        self._memo: dict[tuple[int, str], object] = {}
        self._simple: dict[int, str | None] = {}

    # ---- what ops ask

    def operand_shapes(self, instruction: Instruction) -> tuple[Shape, ...]:
        """The operands' shapes, with the layouts that the text states."""
        return self.index.operand_shapes(instruction)

    def computation(self, instruction: Instruction, attribute: str) -> Computation:
        """The computation that an attribute names or holds."""
        found = self.index.called(instruction, attribute)
        if len(found) != 1:
            raise instruction.error(f"needs one computation {attribute}=")
        return found[0]

    def computations(self, instruction: Instruction, attribute: str) -> tuple[Computation, ...]:
        """The computations of an attribute that is a list."""
        return self.index.called(instruction, attribute)

    def memo(self, instruction: Instruction, what: str, make: Callable[[], T]) -> T:
        """What `make` returns, made once in a run."""
        key = (id(instruction), what)
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]  # type: ignore[return-value]

    def random(self) -> np.random.Generator:
        """The generator of the next random numbers: the n-th one asked for in a run is always the same."""
        self._drawn += 1
        return np.random.default_rng((self._seed, 2, self._drawn))

    def hold(self, instruction: Instruction, size: int) -> None:
        """Count bytes that feeds and channels hold. Raises BoundError for more than the memory allowed."""
        self._held += size
        if self._max_memory is not None and self._held > self._max_memory:
            message = f"feeds and channels hold more than the {self._max_memory:,} bytes allowed (--max-memory)"
            raise BoundError(*execution_error(instruction, message).diagnostics)

    def next_infeed(self) -> tuple[int, Array | None]:
        """The number of the infeed's next array and that array; None if there is none."""
        number = self._fed
        if number >= len(self._infeed):
            return number, None
        self._fed += 1
        return number, self._infeed[number]

    def wrapped(self, instruction: Instruction) -> Instruction:
        """The instruction that a sugared async start is about."""
        return self.index.wrapped(instruction)

    def simple_reducer(self, computation: Computation) -> str | None:
        """The opcode if the computation is one binary op of its two parameters as they come, else None."""
        known = id(computation)
        if known not in self._simple:
            self._simple[known] = self._find_simple(computation)
        return self._simple[known]

    def _find_simple(self, computation: Computation) -> str | None:
        root = computation.root
        if root.opcode not in SIMPLE_REDUCERS:
            return None
        for node in self.index.nodes(computation):
            if node.instruction is root:
                shapes = {o.shape.to_text(False) for o in node.operands} | {root.shape.to_text(False)}
                parameters = self.index.parameters(computation)
                as_they_come = node.operands in (parameters, parameters[::-1]) and len(parameters) == 2
                return root.opcode if as_they_come and len(shapes) == 1 else None
        return None

    def call(self, computation: Computation, args: Sequence[Value], mask: Array | None = None) -> Value:
        """What a computation returns on the same lanes; with a mask, only those lanes are in it."""
        if mask is None:
            return self.run_plan(self.plan(computation), args)
        saved, self.active = self.active, mask
        try:
            return self.run_plan(self.plan(computation), args)
        finally:
            self.active = saved

    def apply(self, computation: Computation, *arrays: Array) -> Value:
        """A computation of scalars on each element of its arguments, all elements at once."""
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        count = int(np.prod(shape, dtype=np.int64))
        args = [
            array.reshape(1) if array.size == 1 else np.broadcast_to(array, shape).reshape(count) for array in arrays
        ]
        saved = (self.lanes, self.in_apply, self.active)
        self.lanes, self.in_apply, self.active = count, True, None
        try:
            result = self.run_plan(self.plan(computation), args) if count else self._empty(computation)
        finally:
            self.lanes, self.in_apply, self.active = saved
        return map_arrays(lambda a: np.broadcast_to(a, (count,)).reshape(shape), result)

    def _empty(self, computation: Computation) -> Value:
        return map_arrays(lambda a: a[:0], zeros(computation.root.shape))

    # ---- running

    def plan(self, computation: Computation) -> Plan:
        """A computation's plan, made once."""
        plan = self._plans.get(id(computation))
        if plan is None:
            plan = self._plans[id(computation)] = self.index.plan(computation, self._keeps)
        return plan

    def _keeps(self, instruction: Instruction) -> bool:
        """Whether an instruction is run though the root does not need it."""
        return self.index.has_effect(instruction) or (self._trace is not None and self._trace.wants(instruction))

    def run_entry(self, args: Sequence[Value]) -> Value:
        """What the module returns. Raises ExecutionError."""
        try:
            return self.run_plan(self.plan(self.index.module.entry), args)
        except TooManySteps as limit:
            self._too_many(limit)

    def _too_many(self, limit: TooManySteps) -> NoReturn:
        message = f"more than {self._max_steps} instructions were run (--max-steps)"
        loop, computation = limit.loop, limit.computation
        if loop is not None:
            message += f", at iteration {limit.iteration:,} of while {loop.name!r}"
            hint = "a loop may not end; a larger --max-steps lets it run on"
            raise BoundError(*execution_error(loop, message, hint).diagnostics) from None
        if limit.applied_by is not None:
            place = limit.applied_by
            message += f", at {place.opcode} {place.name!r}, which applies a computation to elements"
            raise BoundError(
                *execution_error(place, message, "a larger --max-steps lets it run on").diagnostics
            ) from None
        named = "" if computation.is_inline or computation.is_lone else f", at computation {computation.name!r}"
        diagnostic = computation.module.source.diagnostic(
            computation.name_span.start, message + named, hint="a larger --max-steps lets it run on"
        )
        raise BoundError(diagnostic) from None

    def run_plan(self, plan: Plan, args: Sequence[Value]) -> Value:
        """The root's value. Raises ExecutionError, and TooManySteps for `run_entry`."""
        values: list[Value | None] = [None] * plan.slots
        for slot, parameter, argument in zip(plan.parameters, plan.parameter_instructions, args, strict=True):
            if slot >= 0:
                values[slot] = argument
            self._show(parameter, argument)
        del args
        if self._max_steps is not None and self.steps + len(plan.steps) > self._max_steps:
            raise TooManySteps(plan.computation, self.in_apply)
        self.steps += len(plan.steps)
        if self._progress is not None:
            self._progress(self.steps)
        with np.errstate(all="ignore"):
            step = None
            try:
                for step in plan.steps:
                    operands: list[Any] = [values[slot] for slot in step.operands]
                    if self._has_sizes and any(isinstance(operand, Bounded) for operand in operands):
                        result = run_with_sizes(self, step.instruction, step.function, operands)
                    else:
                        result = step.function(self, step.instruction, *operands)
                    values[step.slot] = result
                    if self._checked:
                        self._check(step.instruction, result)
                    self._show(step.instruction, result)
                    for slot in step.frees:
                        values[slot] = None
            except TooManySteps as limit:
                if limit.in_apply and not self.in_apply and limit.applied_by is None and step is not None:
                    limit.applied_by = step.instruction
                raise
            except MemoryError as error:  # an inner plan has made an ExecutionError of its own
                if step is None:
                    raise
                message = f"no memory is left for {step.instruction.opcode}: {error}"
                raise BoundError(*execution_error(step.instruction, message).diagnostics) from None
        root = values[plan.root]
        assert root is not None
        return root

    def _show(self, instruction: Instruction, value: Value) -> None:
        if self._trace is not None and not self.in_apply and self._trace.wants(instruction):
            self._trace.callback(instruction, value, self.active)

    def _check(self, instruction: Instruction, value: Value) -> None:
        wrong = check_value(value, instruction.shape, (1, self.lanes))
        if wrong:
            raise execution_error(instruction, f"{instruction.opcode} has computed {wrong}: a fault of the executor")
