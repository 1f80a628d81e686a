"""`run`: a per-device HLO module on replicas x partitions simulated devices."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hlo_cp2ag.executor.inputs import arguments_of, random_inputs, unpack_value
from hlo_cp2ag.executor.interpreter import Execution, Trace
from hlo_cp2ag.executor.memory import Flags, estimate, fill, flags_of_value, size_of
from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.executor.registry import BoundError, ExecutionError
from hlo_cp2ag.executor.validate import validate
from hlo_cp2ag.executor.values import Array, Value
from hlo_cp2ag.ir.module import HloModule, Instruction
from hlo_cp2ag.topology.process_grid import ProcessGrid

DEFAULT_MAX_MEMORY = 4 << 30
"""Bytes that a run may take, unless the caller says otherwise."""

TraceRequest = tuple[str, Callable[[Instruction, Value, "Array | None"], None]]
"""A regular expression, searched for in instruction names and opcodes, and who is told the values, and which devices
compute them: None for all."""


def run(
    module: HloModule,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    replica_count: int = 1,
    num_partitions: int = 1,
    profile: Literal["xla", "neuron"] = "xla",
    *,
    seed: int = 0,
    fill_elided: Literal["random"] | None = None,
    max_memory: int | None = DEFAULT_MAX_MEMORY,
    max_steps: int | None = None,
    trace: TraceRequest | None = None,
    progress: Callable[[int], None] | None = None,
    checked: bool = False,
    custom_calls: Mapping[str, Callable[..., Any]] | None = None,
    infeed: Sequence[Any] = (),
    outfeed: list[Array] | None = None,
) -> list[Array]:
    """What the module computes: one array `[devices, *dimensions]` per leaf of the result, in order.

    `inputs` has one array `[devices, ...]`, or `[...]` for the same on all devices, per parameter (per leaf of a
    tuple), in order or by the names p0, p1, ...; without it they are random (`seed`). Device = replica *
    num_partitions + partition. Element types that numpy lacks are ml_dtypes', or unsigned integers of the same width.
    Where all devices agree, a result is a read-only view of one of them.

    `profile="neuron"`: replica-id is the flat rank, permute pairs name flat ranks, and a device that no pair targets
    keeps its operand. `fill_elided="random"` gives constants that were printed `{...}` seeded values; else they are an
    error. `max_memory` bounds an estimate in bytes made before memory is taken, arguments included, `max_steps` the
    number of instructions run, loop iterations included. `trace` is a regular expression and a function that gets each
    matching instruction, its value `[1 or devices, ...]`, and a bool array `[devices]` that says which devices compute
    it, None for all. `progress` is told the number of instructions run. `checked` holds every value against its stated
    shape. `custom_calls` has a function for custom-calls that are not known here, by target: it gets a numpy array
    `[*dimensions]` an operand leaf and returns the result's array, or a tuple of arrays, once for each device.
    `infeed` has what infeeds take, an array `[devices, ...]` or `[...]` a leaf, in the order in which they run;
    `outfeed` is a list to which outfeeds add an array `[devices, ...]` a leaf.

    Raises HloSyntaxError for a module that `check` refuses or that cannot run (an unsupported opcode, shapes that
    contradict each other, a missing computation or parameter), before anything runs; ExecutionError for inputs that do
    not fit, for what is too large or takes too long (BoundError), and for a collective that only a part of a group
    reaches.
    """
    if replica_count < 1 or num_partitions < 1:
        raise ExecutionError(f"a grid of {replica_count} x {num_partitions} has no devices")
    if profile not in ("xla", "neuron"):
        raise ExecutionError(f"unknown profile {profile!r}: xla or neuron")
    module.check()
    grid = ProcessGrid(replica_count, num_partitions)
    index = ModuleIndex(module)
    execution = Execution(
        index,
        grid,
        profile,
        max_steps=max_steps,
        fill_elided=np.random.default_rng((seed, 1)) if fill_elided == "random" else None,
        trace=None if trace is None else Trace(re.compile(trace[0]), trace[1]),
        progress=progress,
        checked=checked,
        seed=seed,
        custom_calls=custom_calls,
        infeed=infeed,
        max_memory=max_memory,
    )
    if outfeed is not None:
        execution.outfeed = outfeed
    devices = grid.device_count
    budget = _Budget(module, index, max_memory)
    budget.bound_ids(devices)
    depth = validate(execution, index, module.entry)
    budget.bound_inputs(devices, inputs is None)
    with _room_for(depth):
        if inputs is None:
            flags = [fill(parameter.shape, devices > 1) for parameter in index.parameters(module.entry)]
            budget.bound_run(execution, flags)
            inputs = random_inputs(module, devices, seed)
            arguments = arguments_of(module, index, inputs, devices)
        else:
            arguments = arguments_of(module, index, inputs, devices)
            budget.bound_run(execution, list(map(flags_of_value, arguments)))
        del inputs
        return unpack_value(execution.run_entry(arguments), devices)


class _Budget:
    """Raises ExecutionError for what does not fit into the memory allowed, before it is taken."""

    def __init__(self, module: HloModule, index: ModuleIndex, most: int | None) -> None:
        self._module = module
        self._index = index
        self._most = most

    def bound_ids(self, devices: int) -> None:
        """Tables of devices, which collectives make before anything else; those of usual grids do not count."""
        if 8 * devices > _SMALL:
            tables = sum(map(_has_table, self._module.instructions())) if self._most is not None else 0
            self._bound((8 + _TABLE * tables) * devices, f"the ids of {_devices(devices)} take", None)

    def bound_inputs(self, devices: int, random: bool) -> None:
        """The arguments alone: random ones on every device, given ones at least once."""
        parameters = self._index.parameters(self._module.entry)
        sizes = [size_of(parameter.shape, random, devices) for parameter in parameters]
        what = f"the random arguments of {_devices(devices)} take" if random else "the arguments take at least"
        largest = max(zip(sizes, parameters, strict=True), key=lambda pair: pair[0], default=(0, None))[1]
        self._bound(sum(sizes), what, largest)

    def bound_run(self, execution: Execution, flags: Sequence[Flags]) -> None:
        """All values that are there at one time, arguments included."""
        if self._most is not None:
            found = estimate(execution, flags)
            self._bound(found.size, "the run would take about", found.place)

    def _bound(self, size: int, what: str, place: Instruction | None) -> None:
        if self._most is None or size <= self._most:
            return
        message = f"{what} {size:,} bytes of memory"
        if place is not None:
            message += f", the most at {place.opcode} {place.name!r}"
        message += f", more than the {self._most:,} allowed (--max-memory)"
        where = (place or self._module.entry).name_span.start
        raise BoundError(self._module.source.diagnostic(where, message, hint="a larger --max-memory lets it run"))


_SMALL = 1 << 20
"""Bytes of ids that are no matter."""
_TABLE = 96
"""Bytes for each device in a collective's table of groups."""


def _has_table(instruction: Instruction) -> bool:
    return instruction.opcode.startswith(("all-", "reduce-scatter", "collective-"))


def _devices(count: int) -> str:
    return "one device" if count == 1 else f"{count:,} devices"


@contextlib.contextmanager
def _room_for(depth: int) -> Iterator[None]:
    """Lets Python call as deep as computations do: each of them takes a few calls."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 500 + 12 * depth))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
