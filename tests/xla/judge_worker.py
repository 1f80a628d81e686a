"""The process in which XLA judges: it answers one request at a time over a pipe, and may be killed at any moment.

`judge.py` starts it by path and talks to it in frames (`send`, `receive` below, shared by both sides). Nothing here
imports jax until `main` runs, so that the test process can import the frame format cheaply and never holds XLA itself.

A frame is eight bytes of length, a JSON object of that length, and then the raw bytes of every array the object
announces under "arrays" (element type by name, dimensions, bytes in row-major order). Element types that numpy lacks
are found in ml_dtypes.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import queue
import re
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

HEADER_BYTES = 8

# --------------------------------------------------------------------------------------------------------------------
# Frames


def element_type(name: str) -> np.dtype[Any]:
    """The numpy element type of that name, ml_dtypes' own included."""
    extra = getattr(ml_dtypes, name, None)
    return np.dtype(extra if extra is not None else name)


def send(write: Callable[[bytes], Any], message: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
    """Write one frame."""
    blobs = [np.ascontiguousarray(array).tobytes() for array in arrays]
    announced = [
        {"type": array.dtype.name, "shape": list(array.shape), "bytes": len(blob)}
        for array, blob in zip(arrays, blobs, strict=True)
    ]
    head = json.dumps({**message, "arrays": announced}).encode()
    write(b"".join([len(head).to_bytes(HEADER_BYTES, "little"), head, *blobs]))


def receive(read: Callable[[int], bytes]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read one frame; `read(n)` returns exactly n bytes or raises EOFError."""
    head = json.loads(read(int.from_bytes(read(HEADER_BYTES), "little")))
    arrays = []
    for announced in head.pop("arrays"):
        raw = read(announced["bytes"])
        arrays.append(np.frombuffer(bytearray(raw), dtype=element_type(announced["type"])).reshape(announced["shape"]))
    return head, arrays


# --------------------------------------------------------------------------------------------------------------------
# A program of P partitions as the same program of P replicas

GROUPS = re.compile(
    r"replica_groups=(?:"
    r"(?P<list>\{(?:\{[\d,]*\},?)*\})"
    r"|\[(?P<dims>[\d,]+)\]<=\[(?P<iota>[\d,]+)\](?:T\((?P<perm>[\d,]+)\))?"
    r"|mesh\[(?P<mesh>[^\]]*)\](?:, device_ids=\((?P<ids>[^()]*(?:\([^()]*\))?)\))? \{(?P<axes>[^}]*)\}"
    r")"
)
PAIRS = re.compile(r"source_target_pairs=\{(?:\{-?\d+,-?\d+\},?)*\}")
SHARDING = re.compile(r", sharding=\{(?:[^{}]|\{[^{}]*\})*\}")
CHANNEL = re.compile(r", channel_id=\d+")
COLLECTIVE = re.compile(
    r" (?:all-gather|all-reduce|reduce-scatter|all-to-all|ragged-all-to-all|collective-broadcast|collective-permute)"
    r"(?:-start)?\("
)
VARIADIC_PERMUTE = re.compile(r" collective-permute\(%[^%()]*%")
JOINS_BOTH_AXES = re.compile(r" (?:all-gather|all-reduce|reduce-scatter)(?:-start)?\(")


def partitions_as_replicas(canonical: str, partitions: int) -> str:
    """XLA's print of a program for 1 replica x P partitions, turned into the equal one for P replicas x 1 partition.

    XLA's CPU pipeline insists on running its partitioner when there is more than one partition, and these programs are
    already partitioned. With one replica the two axes can trade places: who asked for its partition asks for its
    replica, and the groups of each collective name the same devices on the other axis. `canonical` must come from XLA's
    printer, one instruction a line.

    One thing is lost: channel ids. Where devices part ways and each side comes to a collective of its own, the sides
    may find each other here, and would wait for each other forever under different channels.
    """
    lines = canonical.split("\n")
    for number, line in enumerate(lines):
        line = SHARDING.sub("", line)
        if COLLECTIVE.search(line):
            line = _collective_over_replicas(line, partitions)
        line = line.replace(" replica-id()", " constant(0)").replace(" partition-id()", " replica-id()")
        lines[number] = line
    lines[0] = re.sub(r", (?:num_partitions|replica_count)=\d+", "", lines[0]) + f", replica_count={partitions}"
    return "\n".join(lines)


def _collective_over_replicas(line: str, partitions: int) -> str:
    has_channel = CHANNEL.search(line) is not None
    flattened = "use_global_device_ids=true" in line
    line = CHANNEL.sub("", line).replace(", use_global_device_ids=true", "")
    if not has_channel:  # cross-replica, so each partition is alone with the one replica there is
        alone = ",".join(f"{{{i}}}" for i in range(partitions))
        kept = ",".join(f"{{{i},{i}}}" for i in range(partitions))
        line = PAIRS.sub(lambda m: f"source_target_pairs={{{kept if '{0,0}' in m.group() else ''}}}", line)
        return GROUPS.sub(f"replica_groups={{{alone}}}", line)
    if JOINS_BOTH_AXES.search(line) and not flattened:  # groups name replicas, and all partitions join
        return GROUPS.sub("replica_groups={}", line)
    return GROUPS.sub(lambda m: "replica_groups=" + _as_list(m), line)


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def _iota(dims: list[int], perm: str | None) -> np.ndarray:
    ids = np.arange(math.prod(dims)).reshape(dims)
    return ids.transpose(_numbers(perm)) if perm else ids


def _as_list(match: re.Match[str]) -> str:
    """Any of the three forms of device groups, written as a list of lists."""
    if match["list"] is not None:
        return match["list"]
    if match["dims"] is not None:
        groups = _iota(_numbers(match["iota"]), match["perm"]).reshape(_numbers(match["dims"]))
    else:
        sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", match["mesh"])}
        ids = _mesh_ids(match["ids"], math.prod(sizes.values()))
        groups = _mesh_groups(ids, sizes, match["axes"])
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups.tolist()) + "}"


def _mesh_ids(text: str | None, total: int) -> np.ndarray:
    if text is None:
        return np.arange(total)
    iota = re.fullmatch(r"(?:\[[\d,]+\]<=)?\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if iota:
        return _iota(_numbers(iota[1]), iota[2]).reshape(-1)
    return np.array(_numbers(text.strip("[]{}")))


def _mesh_groups(ids: np.ndarray, sizes: dict[str, int], axes: str) -> np.ndarray:
    """Rows of device ids that differ only along `axes`, such as 'a','b':(2)4 (the factor 4 that follows a factor 2)."""
    named = re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", axes)
    wanted = [(name, int(before or 1), int(size or sizes[name])) for name, before, size in named]
    dims: list[int] = []
    place: dict[tuple[str, int], int] = {}
    for name, whole in sizes.items():
        cuts = {1, whole}
        for axis, before, size in wanted:
            if axis == name:
                cuts |= {before, before * size}
        ordered = sorted(cuts)
        for low, high in itertools.pairwise(ordered):
            place[name, low] = len(dims)
            dims.append(high // low)
        if whole == 1:
            place[name, 1] = len(dims)
            dims.append(1)
    inner = [place[name, before] for name, before, _ in wanted]
    outer = [i for i in range(len(dims)) if i not in inner]
    return ids.reshape(dims).transpose(outer + inner).reshape(-1, math.prod(dims[i] for i in inner))


# --------------------------------------------------------------------------------------------------------------------
# XLA


NARROW = {"s2": 2, "u2": 2, "s4": 4, "u4": 4, "f4e2m1fn": 4}


class BadRequest(Exception):  # noqa: N818
    """The caller asked for something that cannot be done; the message says what."""


class Xla:
    """What jaxlib offers, behind the few questions a judge is asked. One instance a process."""

    def __init__(self) -> None:
        import jax
        import jaxlib._hlo as hlo
        import jaxlib._jax as runtime
        from jaxlib import lapack

        lapack._lapack.initialize()  # else a call of one of its routines crashes
        from jax.extend import xla as hooks

        jax.config.update("jax_enable_x64", True)
        self.jax, self.hlo, self.runtime, self.hooks = jax, hlo, runtime, hooks
        self.compiled = lru_cache(maxsize=64)(self._compiled)

    def parse(self, text: str) -> Any:
        return self.hlo.hlo_module_from_text(text)

    def canonical(self, text: str, *, metadata: bool = True) -> str:
        options = self.hlo.HloPrintOptions()
        options.print_large_constants = True
        options.print_metadata = metadata
        return self.parse(text).to_string(options)

    def signature(self, text: str) -> tuple[list[Any], list[Any], bool]:
        """Shapes of the ENTRY parameters, shapes of the results, and whether these are in a tuple."""
        program = self.hlo.XlaComputation(self.parse(text).as_serialized_hlo_module_proto()).program_shape()
        result = program.result_shape()
        results = list(result.tuple_shapes()) if result.is_tuple() else [result]
        return program.parameter_shapes(), results, result.is_tuple()

    def run(self, text: str, replicas: int, partitions: int, args: list[np.ndarray], how: str) -> list[np.ndarray]:
        if how == "auto":
            optimized = " fusion(" in text or "is_scheduled=true" in text
            variadic = VARIADIC_PERMUTE.search(self.canonical(text, metadata=False))  # StableHLO has no such thing
            how = "inject" if optimized or variadic or min(replicas, partitions) > 1 else "recompile"
        self._check(text, replicas * partitions, args)
        executable, devices = self.compiled(text, replicas, partitions, how)
        if how == "inject":
            args = [self._in_memory_order(a, s) for a, s in zip(args, self.signature(text)[0], strict=True)]
        return self._execute(executable, devices, args)

    def _check(self, text: str, devices: int, args: list[np.ndarray]) -> None:
        parameters, results, _ = self.signature(text)
        for shape in [*parameters, *results]:
            if not shape.is_array():
                raise BadRequest(f"a parameter or result of shape {shape}: only arrays can be passed in and out")
        if len(args) != len(parameters):
            raise BadRequest(f"{len(args)} arguments for {len(parameters)} ENTRY parameters")
        for i, (arg, shape) in enumerate(zip(args, parameters, strict=True)):
            want = (devices, *shape.dimensions())
            if arg.shape != want or arg.dtype != shape.numpy_dtype():
                got, needs = f"{arg.dtype}{list(arg.shape)}", f"{shape.numpy_dtype()}{list(want)}"
                raise BadRequest(f"argument {i} is {got}, the parameter needs {needs}")

    def _compiled(self, text: str, replicas: int, partitions: int, how: str) -> tuple[Any, list[Any]]:
        available = len(self.jax.local_devices())
        if not 1 <= replicas * partitions <= available:
            raise BadRequest(f"{replicas} x {partitions} devices asked for, this judge has {available}")
        if how == "recompile":
            if partitions > 1:
                if replicas > 1:
                    raise BadRequest("recompile needs replicas == 1 or partitions == 1; use inject")
                text = partitions_as_replicas(self.canonical(text, metadata=False), partitions)
            return self._compile(text, replicas * partitions, 1)
        if how != "inject":
            raise BadRequest(f"how={how!r}: expected auto, recompile or inject")
        parameters, results, _ = self.signature(text)
        for shape in [*parameters, *results]:
            bits = NARROW.get(str(shape).split("[")[0])
            if bits and shape.layout().element_size_in_bits() != bits:
                raise BadRequest(f"inject: {shape} must say that it is packed, as XLA's optimized text does: E({bits})")
        payload = self.parse(text).as_serialized_hlo_module_proto()
        where = {"stage": self.hooks.PipelineStage.PRE_SCHEDULER, "platforms": "cpu"}
        self.hooks.register_hlo_module_transformation(lambda _: payload, name="judge", **where)
        try:
            return self._compile(self._stand_in(text), replicas, partitions)
        finally:
            self.hooks.clear_hlo_module_transformation("judge", **where)

    def _stand_in(self, text: str) -> str:
        """A module with the signature of `text` and no content: what XLA compiles until `text` takes its place."""
        parameters, results, is_tuple = self.signature(text)
        lines = [f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(parameters)]
        for i, shape in enumerate(map(str, results)):
            element = shape.split("[")[0]
            blank = {"pred": "false", "c64": "(0, 0)", "c128": "(0, 0)", "f8e8m0fnu": "1"}.get(element, "0")
            root = "" if is_tuple else "ROOT "
            lines.append(f"  blank{i} = {element}[] constant({blank})")
            lines.append(f"  {root}o{i} = {shape} broadcast(blank{i}), dimensions={{}}")
        if is_tuple:
            names = ", ".join(f"o{i}" for i in range(len(results)))
            lines.append(f"  ROOT all = ({', '.join(map(str, results))}) tuple({names})")
        return "\n".join(["HloModule stand_in", "", "ENTRY main {", *lines, "}", ""])

    def _compile(self, text: str, replicas: int, partitions: int) -> tuple[Any, list[Any]]:
        bytecode = self.runtime.mlir.hlo_to_stablehlo(self.parse(text).as_serialized_hlo_module_proto())
        devices = self.jax.local_devices()[: replicas * partitions]
        options = self.runtime.CompileOptions()
        build = options.executable_build_options
        options.num_replicas = build.num_replicas = replicas
        options.num_partitions = build.num_partitions = partitions
        build.use_spmd_partitioning = partitions > 1
        grid = np.array([device.id for device in devices]).reshape(replicas, partitions)
        options.device_assignment = self.runtime.DeviceAssignment.create(grid)
        return devices[0].client.compile_and_load(bytecode, self.runtime.DeviceList(tuple(devices)), options), devices

    @staticmethod
    def _in_memory_order(arg: np.ndarray, shape: Any) -> np.ndarray:
        """The same values, in the order in which an injected module with this parameter layout reads the buffer.

        The runtime hands row-major buffers to the executable and does not look at the layouts of a module put in later.
        It does look at the result's layout, so results need no such care.
        """
        if arg.ndim < 3:
            return arg
        major_to_minor = [d + 1 for d in reversed(shape.layout().minor_to_major())]
        return np.ascontiguousarray(arg.transpose([0, *major_to_minor])).reshape(arg.shape)

    def _execute(self, executable: Any, devices: list[Any], args: list[np.ndarray]) -> list[np.ndarray]:
        jax = self.jax
        mesh = jax.sharding.Mesh(np.array(devices), ("device",))
        split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("device"))
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        buffers = []
        for arg in args:
            shards = [jax.device_put(arg[i], device) for i, device in enumerate(devices)]
            local = arg.shape[1:]
            shape, sharding = ((local[0] * len(devices), *local[1:]), split) if local else ((), whole)
            buffers.append(jax.make_array_from_single_device_arrays(shape, sharding, shards))
        outputs = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [np.stack([np.asarray(shard) for shard in output]) for output in outputs]


# --------------------------------------------------------------------------------------------------------------------
# The loop


def answer(xla: Xla, request: dict[str, Any], args: list[np.ndarray]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The reply to one request."""
    text = request["text"]
    if request["ask"] == "parse":
        xla.parse(text)
        return {}, []
    if request["ask"] == "canonical":
        return {"text": xla.canonical(text)}, []
    if request["ask"] == "verify":
        xla.compiled(text, request["replicas"], request["partitions"], "inject")
        return {}, []
    if request["ask"] == "parameters":
        shapes = xla.signature(text)[0]
        if not all(shape.is_array() for shape in shapes):
            raise BadRequest("a parameter that is not an array")
        return {"parameters": [[shape.numpy_dtype().name, list(shape.dimensions())] for shape in shapes]}, []
    if request["ask"] == "run":
        return {}, xla.run(text, request["replicas"], request["partitions"], args, request["how"])
    raise BadRequest(f"unknown request {request['ask']!r}")


def _forbid_core_files() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Serve requests from stdin until it closes."""
    _forbid_core_files()
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever XLA prints must not end up among the frames
    requests: queue.Queue[tuple[dict[str, Any], list[np.ndarray]]] = queue.Queue()

    def read(n: int) -> bytes:
        data = sys.stdin.buffer.read(n)
        if len(data) < n:
            raise EOFError
        return data

    def listen() -> None:
        try:
            while True:
                requests.put(receive(read))
        except EOFError:
            os._exit(0)  # the test process is gone; do not wait for devices that may never meet

    threading.Thread(target=listen, daemon=True).start()
    xla = Xla()

    def reply(message: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
        def write(data: bytes) -> None:
            view = memoryview(data)
            while view:
                view = view[replies.write(view) or 0 :]

        send(write, message, arrays)

    reply({"ready": len(xla.jax.local_devices())})
    while True:
        request, args = requests.get()
        try:
            message, arrays = answer(xla, request, args)
        except BadRequest as error:
            message, arrays = {"bad": str(error)}, []
        except xla.jax.errors.JaxRuntimeError as error:
            message, arrays = {"refused": str(error)}, []
        except Exception:
            message, arrays = {"bug": traceback.format_exc()}, []
        reply(message, arrays)


if __name__ == "__main__":
    main()
