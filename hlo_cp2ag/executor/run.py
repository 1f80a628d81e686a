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
from hlo_cp2ag.executor.memory import estimate
from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.executor.validate import validate
from hlo_cp2ag.executor.values import Array, Value
from hlo_cp2ag.ir.module import HloModule, Instruction
from hlo_cp2ag.topology.process_grid import ProcessGrid

DEFAULT_MAX_MEMORY = 4 << 30
"""Bytes that a run may take, unless the caller says otherwise."""

TraceRequest = tuple[str, Callable[[Instruction, Value], None]]
"""A regular expression, searched for in instruction names and opcodes, and who is told the values."""


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
) -> list[Array]:
    """What the module computes: one array `[devices, *dimensions]` per leaf of the result, in order.

    `inputs` has one array `[devices, ...]`, or `[...]` for the same on all devices, per parameter (per leaf of a
    tuple), in order or by the names p0, p1, ...; without it they are random (`seed`). Device = replica *
    num_partitions + partition. Element types that numpy lacks are ml_dtypes', or unsigned integers of the same width.
    Where all devices agree, a result is a read-only view of one of them.

    `profile="neuron"`: replica-id is the flat rank, permute pairs name flat ranks, and a device that no pair targets
    keeps its operand. `fill_elided="random"` gives constants that were printed `{...}` seeded values; else they are an
    error. `max_memory` bounds an estimate in bytes made before the run, `max_steps` the number of instructions run,
    loop iterations included. `trace` is a regular expression and a function that gets each matching instruction with
    its value; `progress` is told the number of instructions run. `checked` holds every value against its stated shape.

    Raises HloSyntaxError for a module that cannot run (an unsupported opcode, shapes that contradict each other, a
    missing computation or parameter), before anything runs; ExecutionError for inputs that do not fit, for what is too
    large or takes too long, and for a collective that only a part of a group reaches.
    """
    if replica_count < 1 or num_partitions < 1:
        raise ExecutionError(f"a grid of {replica_count} x {num_partitions} has no devices")
    if profile not in ("xla", "neuron"):
        raise ExecutionError(f"unknown profile {profile!r}: xla or neuron")
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
    )
    depth = validate(execution, index, module.entry)
    if inputs is None:
        inputs = random_inputs(module, grid.device_count, seed)
    arguments = arguments_of(module, index, inputs, grid.device_count)
    del inputs
    with _room_for(depth):
        if max_memory is not None:
            needed = estimate(execution, arguments)
            if needed > max_memory:
                raise ExecutionError(
                    f"the run would take about {needed:,} bytes of memory, more than the {max_memory:,} allowed "
                    "(--max-memory)"
                )
        plan = execution.plan(module.entry)
        return unpack_value(execution.run_plan(plan, arguments), grid.device_count)


@contextlib.contextmanager
def _room_for(depth: int) -> Iterator[None]:
    """Lets Python call as deep as computations do: each of them takes a few calls."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 500 + 12 * depth))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
