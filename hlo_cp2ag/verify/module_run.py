"""Two modules run with the same inputs, their outputs compared: in the executor, on real XLA, or in both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hlo_cp2ag.engines.xla import Status, run_on_xla
from hlo_cp2ag.executor.inputs import arguments_of, input_shapes, output_shapes, random_inputs, unpack_value
from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.executor.registry import BoundError, ExecutionError
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import HloModule, Instruction
from hlo_cp2ag.ir.shape import ArrayShape, BufferShape, Shape, leaves
from hlo_cp2ag.ir.source import Diagnostic, HloError
from hlo_cp2ag.verify.difference import Difference, find_difference

__all__ = ["DEFAULT_MAX_MEMORY", "DEFAULT_MAX_STEPS", "Difference", "EngineRun", "run_both"]

Engine = Literal["executor", "xla"]
Verdict = Literal["shown", "not shown", "failed"]

DEFAULT_MAX_MEMORY = 2 << 30
"""Bytes that a run may take, unless the caller says otherwise."""
DEFAULT_MAX_STEPS = 1 << 20
"""Instructions that a run nobody asked for may take: a loop that does not end must not keep the proof from its end."""


@dataclass(frozen=True)
class EngineRun:
    """What running both modules in one engine has shown."""

    engine: Engine
    verdict: Verdict
    """shown: the outputs are equal. not shown: there is nothing to compare. failed: they differ, or only the first
    module runs."""
    reason: str = ""
    """Why nothing was compared, or what differs, in one line; empty when shown."""
    difference: Difference | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class _Request:
    """What both engines are asked."""

    before: HloModule
    after: HloModule
    inputs: list[Array]
    """`[devices, *dimensions]` each; where all devices agree, views of one."""
    shapes: list[ArrayShape]
    """Of the outputs."""
    replica_count: int
    num_partitions: int
    profile: Literal["xla", "neuron"]
    seed: int
    tolerance: float | None
    max_memory: int | None
    max_steps: int | None
    time_limit: float
    fill_elided: Literal["random"] | None
    progress: Callable[[int], None] | None

    @property
    def devices(self) -> int:
        """The size of the grid."""
        return self.replica_count * self.num_partitions


def run_both(
    before: HloModule,
    after: HloModule,
    replica_count: int = 1,
    num_partitions: int = 1,
    *,
    profile: Literal["xla", "neuron"] = "xla",
    engine: Literal["executor", "xla", "both"] = "executor",
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    max_memory: int | None = DEFAULT_MAX_MEMORY,
    max_steps: int | None = None,
    time_limit: float = 120.0,
    fill_elided: Literal["random"] | None = None,
    forced: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[EngineRun]:
    """Runs two modules of one signature on all devices with the same inputs; one answer for each engine.

    `inputs`, `seed`, `max_memory`, `max_steps`, `fill_elided` and `progress` are `hlo_cp2ag.run`'s; random inputs are
    made once, for `before`'s parameters. Elided constants that are filled get the same values in both modules if they
    stand in the same order. `tolerance` is `find_difference`'s. `time_limit` is in seconds, for each module on XLA.
    `forced` says that the caller asked for the run: it has no bound on its steps but `max_steps`, which is
    DEFAULT_MAX_STEPS otherwise.

    What cannot be run makes a verdict and no exception: "not shown" where it is `before`, or where it says nothing
    against `after` (an opcode that the executor lacks, an elided constant, a bound, no jaxlib); "failed" where it is
    `after` alone (a collective that only a part of a group reaches, a module that XLA refuses or hangs on).

    Raises HloError for modules of different signatures, inputs that do not fit, a grid without devices, and a tolerance
    that is no number from 0 on.
    """
    if replica_count < 1 or num_partitions < 1:
        raise ExecutionError(f"a grid of {replica_count} x {num_partitions} has no devices")
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise HloError(f"the tolerance is {tolerance}; it has to be a number from 0 on")
    _refuse_other_signature(before, after)
    devices = replica_count * num_partitions
    engines: tuple[Engine, ...] = ("executor", "xla") if engine == "both" else (engine,)
    arguments = _given(before, inputs, devices) if inputs is not None else _random(before, devices, seed, max_memory)
    if isinstance(arguments, str):
        return [EngineRun(one, "not shown", arguments) for one in engines]
    request = _Request(
        before,
        after,
        arguments,
        output_shapes(before),
        replica_count,
        num_partitions,
        profile,
        seed,
        tolerance,
        max_memory,
        max_steps if max_steps is not None or forced else DEFAULT_MAX_STEPS,
        time_limit,
        fill_elided,
        progress,
    )
    ways: dict[Engine, Callable[[_Request], EngineRun]] = {"executor": _in_executor, "xla": _on_xla}
    return [_timed(ways[one], request) for one in engines]


def _timed(way: Callable[[_Request], EngineRun], request: _Request) -> EngineRun:
    start = time.monotonic()
    found = way(request)
    return EngineRun(found.engine, found.verdict, found.reason, found.difference, time.monotonic() - start)


# ---- what goes in ----------------------------------------------------------------------------------------------------


def _refuse_other_signature(before: HloModule, after: HloModule) -> None:
    for what, shapes_of in (("takes", _parameters), ("returns", lambda module: [module.entry.root.shape])):
        old, new = (", ".join(s.to_text(False) for s in shapes_of(m)) or "nothing" for m in (before, after))
        if old != new:
            message = f"the entry {what} {new}, and {old} before: the modules have different signatures"
            raise HloError(after.source.diagnostic(after.entry.name_span.start, message))


def _parameters(module: HloModule) -> list[Shape]:
    return [parameter.shape for parameter in ModuleIndex(module).parameters(module.entry)]


def _given(module: HloModule, inputs: Sequence[Any] | Mapping[str, Any], devices: int) -> list[Array]:
    """The caller's inputs as arrays `[devices, ...]`. Raises ExecutionError."""
    return unpack_value(tuple(arguments_of(module, ModuleIndex(module), inputs, devices)), devices)


def _random(module: HloModule, devices: int, seed: int, max_memory: int | None) -> list[Array] | str:
    """Seeded inputs `[devices, ...]`, or why there are none."""
    size = _bytes(input_shapes(module), devices)
    if max_memory is not None and size > max_memory:
        return f"the random inputs of all devices take {size:,} bytes of memory, {_allowed(max_memory)}"
    try:
        return random_inputs(module, devices, seed)
    except MemoryError:
        return f"no memory is left for the random inputs, {size:,} bytes"


def _bytes(shapes: Sequence[ArrayShape], devices: int) -> int:
    return devices * sum(shape.element_count * dtype_of(shape.element_type).itemsize for shape in shapes)


def _allowed(max_memory: int) -> str:
    return f"more than the {max_memory:,} allowed (--max-memory)"


# ---- the executor ----------------------------------------------------------------------------------------------------


def _in_executor(request: _Request) -> EngineRun:
    try:
        before = _run(request, request.before, request.max_memory)
    except (HloError, MemoryError) as error:
        return EngineRun("executor", "not shown", f"before cannot be run: {_in_one_line(error)}")
    held = sum(a[:1].nbytes if a.strides[0] == 0 else a.nbytes for a in before)
    try:
        after = _run(request, request.after, None if request.max_memory is None else request.max_memory - held)
    except (HloError, MemoryError) as error:
        why = _in_one_line(error)
        if isinstance(error, BoundError) and request.max_memory is not None and "--max-memory" in why:
            why += f"; before's outputs take {held:,} of the {request.max_memory:,}" if held else ""
        if _is_limit(error):
            return EngineRun("executor", "not shown", f"after cannot be run: {why}")
        return EngineRun("executor", "failed", f"after cannot be run, and before can: {why}")
    return _compared("executor", request, before, after)


def _run(request: _Request, module: HloModule, max_memory: int | None) -> list[Array]:
    return run(
        module,
        request.inputs,
        request.replica_count,
        request.num_partitions,
        request.profile,
        seed=request.seed,
        fill_elided=request.fill_elided,
        max_memory=max_memory,
        max_steps=request.max_steps,
        progress=request.progress,
    )


def _is_limit(error: HloError | MemoryError) -> bool:
    """Whether the executor cannot run the module, rather than that nobody could."""
    if isinstance(error, (BoundError, MemoryError)):
        return True
    message = _message(error)
    return message.startswith(_LIMITS) or "calls back into the Python program" in message


_LIMITS = (
    *("the executor does not support", "the executor does not know", "an elided constant"),
    *("no array is left in the infeed", "nothing has been sent on channel"),
    *("send: a transfer to or from the host", "recv: a transfer to or from the host"),
)
"""How messages begin that say nothing against a module: another engine may run it."""


def _message(error: HloError) -> str:
    first = error.diagnostics[0]
    return first.message if isinstance(first, Diagnostic) else first


def _in_one_line(error: HloError | MemoryError) -> str:
    """What is wrong, and where."""
    if isinstance(error, MemoryError):
        return f"no memory is left: {error}"
    first = error.diagnostics[0]
    place = f"{first.filename}:{first.line}:{first.column}: " if isinstance(first, Diagnostic) else ""
    return place + _message(error).partition("\n")[0]


# ---- XLA -------------------------------------------------------------------------------------------------------------

_WORDS: dict[Status, str] = {
    "refused": "XLA refuses",
    "aborted": "XLA dies of",
    "hung": "XLA hangs on",
    "unsupported": "XLA cannot be asked about",
    "missing": "XLA is not there for",
}


def _on_xla(request: _Request) -> EngineRun:
    why = _no_xla(request)
    if why:
        return EngineRun("xla", "not shown", why)
    runs = run_on_xla(
        [request.before.text, request.after.text],
        request.inputs,
        request.replica_count,
        request.num_partitions,
        time_limit=request.time_limit,
        stop=True,
    )
    last = runs[-1]
    if last.status == "missing":
        return EngineRun("xla", "not shown", f"there is no XLA to run on: {last.reason}")
    if last.status != "ran":
        is_after = len(runs) == 2
        verdict: Verdict = "failed" if is_after and last.status != "unsupported" else "not shown"
        which = "after, and runs before" if is_after and verdict == "failed" else "after" if is_after else "before"
        return EngineRun("xla", verdict, f"{_WORDS[last.status]} {which}: {last.reason}")
    return _compared("xla", request, runs[0].outputs, runs[1].outputs)


def _no_xla(request: _Request) -> str:
    """Why XLA is not even asked, or nothing."""
    if request.profile == "neuron":
        return "XLA has not the semantics of --profile neuron"
    if request.fill_elided is None:
        for module in (request.before, request.after):
            constant = _elided_constant(module)
            if constant is not None:
                return f"{_place(constant)}: an elided constant has no value"
    most = request.max_memory
    size = _bytes([*input_shapes(request.before), *request.shapes, *request.shapes], request.devices)
    if most is not None and size > most:
        return f"the inputs and outputs of all devices take {size:,} bytes of memory, {_allowed(most)}"
    return ""


def _elided_constant(module: HloModule) -> Instruction | None:
    """The first constant printed as {...}."""
    if "..." not in module.text:
        return None
    for instruction in module.instructions():
        if instruction.opcode == "constant":
            start, end = instruction.body.operands_span
            if "..." in module.text[start:end]:
                return instruction
    return None


# ---- what comes out --------------------------------------------------------------------------------------------------


def _compared(engine: Engine, request: _Request, before: Sequence[Array], after: Sequence[Array]) -> EngineRun:
    difference = find_difference(before, after, request.shapes, request.tolerance)
    if difference is None:
        return EngineRun(engine, "shown")
    return EngineRun(engine, "failed", _described(difference, request), difference)


def _described(difference: Difference, request: _Request) -> str:
    shape = request.shapes[difference.output]
    maker = _maker(request.after.entry.root, difference.output)
    name = f"output {difference.output}" if len(request.shapes) > 1 else "the output"
    index = f" at [{', '.join(map(str, difference.index))}]" if difference.index else ""
    where = f" on device {difference.device}" if request.devices > 1 else ""
    text = f"{name} ({_place(maker)}: %{maker.name}) differs{where}{index}: {difference.before} before, "
    text += f"{difference.after} after"
    total = shape.element_count * request.devices
    if total > 1:
        text += f"; {difference.count:,} of {total:,} elements differ"
    others = len(difference.outputs) - 1
    if others:
        text += f", and {others} more output{'s' if others > 1 else ''}"
    return text


def _maker(instruction: Instruction, number: int) -> Instruction:
    """The instruction that makes a leaf of a result, as far as tuples tell."""
    while instruction.opcode == "tuple" and all(o.name is not None for o in instruction.body.operands):
        for operand in instruction.operands:
            count = _data_leaves(operand.shape)
            if number < count:
                instruction = operand
                break
            number -= count
        else:
            break
    return instruction


def _data_leaves(shape: Shape) -> int:
    return sum((leaf.array if isinstance(leaf, BufferShape) else leaf).is_data for leaf in leaves(shape))


def _place(instruction: Instruction) -> str:
    """`file:line:column` of an instruction's name."""
    found = instruction.module.source.diagnostic(instruction.name_span.start, "")
    return f"{found.filename}:{found.line}:{found.column}"
