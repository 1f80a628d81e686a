"""The process in which XLA runs modules: `python -m hlo_cp2ag.engines.xla_worker FOLDER FIRST`, started by `xla.py`.

FOLDER holds `request.json`, `inputs.npz` and the texts `0.hlo`, `1.hlo`, ... Of each text from FIRST on the worker
writes `N.json` (status and reason) and `N.npz` (outputs), then the line N on stdout; before the first, the line "ready".
It ends with its stdin, so that a run that hangs does not outlive who asked for it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hlo_cp2ag.engines.xla_files import load_arrays, save_arrays
from hlo_cp2ag.executor.values import Array

OLDEST = (0, 10, 2)
"""The jax and jaxlib of the `[xla]` extra."""

_MODULES = ("jax", "jaxlib._hlo", "jaxlib._jax", "jax.extend.xla")
"""Loaded by name: a type checker may run where there is no jax."""
_NARROW = {"s2": 2, "u2": 2, "s4": 4, "u4": 4, "f4e2m1fn": 4}
_SHARDING = re.compile(r", sharding=\{(?:[^{}]|\{[^{}]*\})*\}")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?[^\s=]+ = ")


class Missing(Exception):  # noqa: N818
    """jax or jaxlib is not there, or not as it has to be."""


class Unsupported(Exception):  # noqa: N818
    """There is no way to ask XLA this; the message says what."""


class Xla:
    """jaxlib's CPU backend for one grid."""

    def __init__(self, replica_count: int, num_partitions: int) -> None:
        """Loads jax. Raises Missing."""
        for package in ("jax", "jaxlib"):
            _require(package)
        try:
            jax, hlo, runtime, hooks = map(importlib.import_module, _MODULES)
        except ImportError as error:
            raise Missing(f"jax cannot be loaded: {error}") from None
        jax.config.update("jax_enable_x64", True)
        self._jax, self._hlo, self._runtime, self._hooks = jax, hlo, runtime, hooks
        self._replica_count = replica_count
        self._num_partitions = num_partitions
        self._devices: list[Any] = jax.local_devices()[: replica_count * num_partitions]

    def run(self, text: str, inputs: list[Array], level: str) -> list[Array]:
        """The result's leaves `[devices, ...]`; inputs are `[devices, ...]` or `[1, ...]`. Raises Unsupported, and
        whatever XLA raises."""
        if "lapack_" in text:
            load_lapack()
        module = self._hlo.hlo_module_from_text(text)
        if level == "scheduled":
            executable = self._compile_scheduled(module)
            parameters = self._program(module).parameter_shapes()
            inputs = [_in_memory_order(a, s) for a, s in zip(inputs, parameters, strict=True)]
        else:
            executable = self._compile(self._as_manual(module) if self._num_partitions > 1 else module)
        results = list(_leaves(self._program(module).result_shape()))
        return self._execute(executable, inputs, [shape.is_array() for shape in results])

    def _program(self, module: Any) -> Any:
        return self._hlo.XlaComputation(module.as_serialized_hlo_module_proto()).program_shape()

    # ---- compiling

    def _compile(self, module: Any) -> Any:
        """Through the whole pipeline. The counts are options, whatever the header says."""
        bytecode = self._runtime.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
        options = self._runtime.CompileOptions()
        build = options.executable_build_options
        options.num_replicas = build.num_replicas = self._replica_count
        options.num_partitions = build.num_partitions = self._num_partitions
        build.use_spmd_partitioning = self._num_partitions > 1
        grid = np.array([device.id for device in self._devices]).reshape(self._replica_count, self._num_partitions)
        options.device_assignment = self._runtime.DeviceAssignment.create(grid)
        devices = self._runtime.DeviceList(tuple(self._devices))
        return self._devices[0].client.compile_and_load(bytecode, devices, options)

    def _as_manual(self, module: Any) -> Any:
        """The module with every instruction marked as partitioned by hand.

        XLA's CPU pipeline always partitions where there is more than one partition; what is marked so it leaves alone,
        collectives and ids too, and the module is a per-device one already. Loops get the mark from their operands: where
        XLA takes an element that never changes out of a loop's tuple, it would leave it in the loop's mark and refuse that.
        """
        options = self._hlo.HloPrintOptions()
        options.print_large_constants = True
        options.print_metadata = False
        lines: list[str] = module.to_string(options).split("\n")
        for i, line in enumerate(lines):
            if _INSTRUCTION.match(line):
                lines[i] = _SHARDING.sub("", line) + ("" if " while(" in line else ", sharding={manual}")
        return self._hlo.hlo_module_from_text("\n".join(lines))

    def _compile_scheduled(self, module: Any) -> Any:
        """A stand-in of the same signature is compiled, and the module put in its place just before scheduling."""
        program = self._program(module)
        result = program.result_shape()
        results = list(result.tuple_shapes()) if result.is_tuple() else [result]
        for shape in [*program.parameter_shapes(), *results]:
            if not shape.is_array():
                raise Unsupported(f"in scheduled text, XLA takes and returns arrays only here, not {shape}")
            bits = _NARROW.get(str(shape).split("[")[0])
            if bits and shape.layout().element_size_in_bits() != bits:
                raise Unsupported(f"scheduled text has to say that {shape} is packed: E({bits})")
        payload = module.as_serialized_hlo_module_proto()
        where = {"stage": self._hooks.PipelineStage.PRE_SCHEDULER, "platforms": "cpu"}
        self._hooks.register_hlo_module_transformation(lambda _: payload, name="cp2ag", **where)
        try:
            return self._compile(self._hlo.hlo_module_from_text(_stand_in(program.parameter_shapes(), result, results)))
        finally:
            self._hooks.clear_hlo_module_transformation("cp2ag", **where)

    # ---- running

    def _execute(self, executable: Any, inputs: list[Array], is_array: list[bool]) -> list[Array]:
        sharding = self._jax.sharding
        mesh = sharding.Mesh(np.array(self._devices), ("device",))
        split = sharding.NamedSharding(mesh, sharding.PartitionSpec("device"))
        whole = sharding.NamedSharding(mesh, sharding.PartitionSpec())
        buffers = []
        for array in inputs:
            shards = [
                self._jax.device_put(array[i if array.shape[0] > 1 else 0], device)
                for i, device in enumerate(self._devices)
            ]
            local = array.shape[1:]
            # jax wants a whole to which the devices' arrays are parts; the executable sees the parts alone.
            shape, placed = ((local[0] * len(shards), *local[1:]), split) if local else ((), whole)
            buffers.append(self._jax.make_array_from_single_device_arrays(shape, placed, shards))
        outputs = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [
            np.stack([np.asarray(shard) for shard in output])
            for output, wanted in zip(outputs, is_array, strict=True)
            if wanted
        ]


def load_lapack() -> None:
    """Gives jaxlib's LAPACK kernels the routines, which it takes out of scipy; without them, calls crash."""
    importlib.import_module("jaxlib.lapack")._lapack.initialize()


def _require(package: str) -> None:
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise Missing(f"{package} is not installed (pip install 'hlo-cp2ag[xla]')") from None
    if tuple(int(number) for number in re.findall(r"\d+", version)[:3]) < OLDEST:
        raise Missing(f"{package} {version} is too old, {'.'.join(map(str, OLDEST))} is needed")


def _leaves(shape: Any) -> Iterator[Any]:
    if shape.is_tuple():
        for element in shape.tuple_shapes():
            yield from _leaves(element)
    else:
        yield shape


def _stand_in(parameters: list[Any], result: Any, results: list[Any]) -> str:
    """A module that takes and returns arrays of the same shapes."""
    lines = [f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(parameters)]
    for i, shape in enumerate(map(str, results)):
        element = shape.split("[")[0]
        blank = {"pred": "false", "c64": "(0, 0)", "c128": "(0, 0)", "f8e8m0fnu": "1"}.get(element, "0")
        root = "" if result.is_tuple() else "ROOT "
        lines.append(f"  blank{i} = {element}[] constant({blank})")
        lines.append(f"  {root}o{i} = {shape} broadcast(blank{i}), dimensions={{}}")
    if result.is_tuple():
        names = ", ".join(f"o{i}" for i in range(len(results)))
        lines.append(f"  ROOT all = ({', '.join(map(str, results))}) tuple({names})")
    return "\n".join(["HloModule stand_in", "", "ENTRY main {", *lines, "}", ""])


def _in_memory_order(array: Array, shape: Any) -> Array:
    """The same values in the order in which a module with this parameter layout reads the buffer.

    The runtime hands row-major buffers to the executable and does not look at the layouts of a module that was put in
    later. It does look at the result's layout.
    """
    if array.ndim < 3:
        return array
    major_to_minor = [d + 1 for d in reversed(shape.layout().minor_to_major())]
    result: Array = np.ascontiguousarray(array.transpose([0, *major_to_minor])).reshape(array.shape)
    return result


def _answer(xla: Xla, folder: Path, number: int, level: str) -> dict[str, str]:
    text = (folder / f"{number}.hlo").read_text(encoding="utf-8", errors="surrogateescape")
    try:
        # Anew for each text: where a module may alias its inputs, XLA writes into them.
        outputs = xla.run(text, load_arrays(folder / "inputs.npz"), level)
        save_arrays(folder / f"{number}.npz", outputs)
    except Unsupported as error:
        return {"status": "unsupported", "reason": str(error)}
    except (RuntimeError, ValueError, NotImplementedError, UnicodeError) as error:  # jaxlib's are RuntimeErrors
        return {"status": "refused", "reason": _without_noise(str(error)) or type(error).__name__}
    except Exception as error:
        return {"status": "unsupported", "reason": f"the worker failed: {type(error).__name__}: {error}"}
    return {"status": "ran", "reason": ""}


def _without_noise(message: str) -> str:
    """XLA's message with what is wrong in its first line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        return f"{lines[0]} {lines[1]}"
    return lines[0] if lines else ""


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)  # not by way of threads that may never meet


def main(arguments: list[str]) -> int:
    """Answer the texts from FIRST on."""
    folder, first = Path(arguments[0]), int(arguments[1])
    _forbid_core_files()
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever XLA prints must not end up among the answers
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    say: Callable[[object], None] = lambda line: print(line, file=lines, flush=True)  # noqa: E731
    request = json.loads((folder / "request.json").read_text())
    try:
        xla = Xla(request["replica_count"], request["num_partitions"])
    except Missing as error:
        (folder / "missing.json").write_text(json.dumps(str(error)))
        say("missing")
        return 0
    say("ready")
    for number in range(first, request["count"]):
        answer = _answer(xla, folder, number, request["level"])
        (folder / f"{number}.json").write_text(json.dumps(answer))
        say(number)
    lines.flush()
    os._exit(0)  # XLA's threads are not waited for


def _forbid_core_files() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
