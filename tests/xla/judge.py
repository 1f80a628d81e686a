"""XLA's CPU backend as the judge: does it read this text, how does it print it, what does it compute on R x P devices?

XLA aborts the whole process on some inputs (a channel id of 0, a permute inside a fusion) and waits forever on others
(a gather or a permute that not every device reaches), so it lives in a worker process with a time limit. The worker is
kept, since importing jax takes longer than most questions; after a death or a timeout the next question starts another.

    with Judge() as judge:
        judge.parse(text)                                    # raises XlaRefused
        args = judge.random_inputs(text, devices=4, seed=0)
        out = judge.run(text, replicas=4, partitions=1, args=args)
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

import ml_dtypes
import numpy as np

from .judge_worker import element_type, receive, send

How = Literal["auto", "recompile", "inject"]
Shapes = Sequence[tuple[str, Sequence[int]]]

WORKER = Path(__file__).with_name("judge_worker.py")
OLDEST = (0, 10, 2)
START_SECONDS = 120.0


class XlaError(Exception):
    """XLA did not give an answer."""


class XlaRefused(XlaError):  # noqa: N818 (it is a verdict)
    """XLA said no: its parser, its verifier or its compiler. The message is XLA's."""


class XlaDied(XlaError):  # noqa: N818
    """XLA took the process down. The message has the signal and the last thing it said."""


class XlaTimedOut(XlaError):  # noqa: N818
    """No answer within the time limit; the process was killed."""


def available() -> str | None:
    """None if XLA can be asked, else the reason why not."""
    for package in ("jax", "jaxlib"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return f"{package} is not installed (pip install 'hlo-cp2ag[xla]')"
        if tuple(int(n) for n in re.findall(r"\d+", version)[:3]) < OLDEST:
            return f"{package} {version} is too old, {'.'.join(map(str, OLDEST))} is needed"
    return None


class Judge:
    """One worker process that answers questions about HLO text. Not for use from several threads at once."""

    def __init__(self, devices: int = 8) -> None:
        self.devices = devices
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- questions

    def parse(self, text: str, timeout: float = 60) -> None:
        """Return if XLA's parser accepts `text`; else raise XlaRefused with its message.

        The parser checks syntax and names, not meaning; that is `verify`.
        """
        self._ask({"ask": "parse", "text": text}, (), timeout)

    def canonical(self, text: str, timeout: float = 60) -> str:
        """The text that XLA prints for `text`, large constants in full."""
        return self._ask({"ask": "canonical", "text": text}, (), timeout)[0]["text"]

    def verify(self, text: str, replicas: int, partitions: int, timeout: float = 60) -> None:
        """Return if XLA's verifier accepts `text` on that grid; else raise XlaRefused.

        The verifier runs when the text is injected into a compilation (see `run`), so this compiles, and a refusal may
        also come from the code generator, which does not know every op. Nothing is run.
        """
        self._ask({"ask": "verify", "text": text, "replicas": replicas, "partitions": partitions}, (), timeout)

    def parameters(self, text: str, timeout: float = 60) -> list[tuple[str, tuple[int, ...]]]:
        """Element type (numpy's or ml_dtypes' name) and dimensions of each ENTRY parameter, as XLA's parser sees it."""
        found = self._ask({"ask": "parameters", "text": text}, (), timeout)[0]["parameters"]
        return [(name, tuple(dimensions)) for name, dimensions in found]

    def random_inputs(self, text_or_shapes: str | Shapes, devices: int, seed: int) -> list[np.ndarray]:
        """Seeded arguments, [devices, ...] each, for a text's ENTRY parameters or (element type, dimensions) pairs."""
        shapes = self.parameters(text_or_shapes) if isinstance(text_or_shapes, str) else text_or_shapes
        return random_arrays(shapes, devices, seed)

    def run(
        self,
        text: str,
        replicas: int,
        partitions: int,
        args: Sequence[np.ndarray],
        how: How = "auto",
        timeout: float = 60,
    ) -> list[np.ndarray]:
        """What XLA computes: one array [replicas * partitions, ...] per result.

        `args` has one array [replicas * partitions, ...] per ENTRY parameter; a device's number is
        replica * partitions + partition.

        how = "recompile": through XLA's whole CPU pipeline. For text from before optimization. Not for optimized text,
        where XLA may abort, nor for replicas > 1 together with partitions > 1. (Partitions alone are first rewritten as
        replicas, or XLA would partition again.)
        how = "inject": the text takes the place of a stand-in just before scheduling, so that XLA runs precisely this
        text, on any grid. For text from that point or later; earlier text misses passes that it needs (layouts, copies
        in loops), and then runs wrong or hangs.
        how = "auto": inject for text with a schedule, fusions or permutes of several operands and on two-dimensional
        grids, else recompile.
        """
        question = {"ask": "run", "text": text, "replicas": replicas, "partitions": partitions, "how": how}
        return self._ask(question, args, timeout)[1]

    # ---- the process

    def close(self) -> None:
        """End the worker. The next question starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.kill()
            process.wait()
            process.stdout.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _ask(
        self, question: dict[str, Any], args: Sequence[np.ndarray], timeout: float
    ) -> tuple[dict[str, Any], list[np.ndarray]]:
        process = self._worker()
        deadline = time.monotonic() + timeout
        assert process.stdin is not None
        try:
            send(process.stdin.write, question, [np.asarray(arg) for arg in args])
            process.stdin.flush()
        except OSError:
            raise self._died() from None
        reply, arrays = self._reply(deadline, timeout)
        if "refused" in reply:
            raise XlaRefused(reply["refused"])
        if "bad" in reply:
            raise ValueError(reply["bad"])
        if "bug" in reply:
            raise RuntimeError("in the judge's worker:\n" + reply["bug"])
        return reply, arrays

    def _worker(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        flags = [
            f"--xla_force_host_platform_device_count={self.devices}",
            # Else XLA aborts a hang after 60 s, before a longer limit of ours.
            "--xla_cpu_collective_call_terminate_timeout_seconds=86400",
        ]
        environment = {**os.environ, "XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        command = [sys.executable, str(WORKER)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment
        )
        self._reply(time.monotonic() + START_SECONDS, START_SECONDS)
        return self._process

    def _reply(self, deadline: float, timeout: float) -> tuple[dict[str, Any], list[np.ndarray]]:
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout.fileno()

        def read(n: int) -> bytes:
            pieces = []
            while n:
                ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise TimeoutError
                piece = os.read(pipe, min(n, 1 << 20))
                if not piece:
                    raise EOFError
                pieces.append(piece)
                n -= len(piece)
            return b"".join(pieces)

        try:
            return receive(read)
        except EOFError:
            raise self._died() from None
        except TimeoutError:
            self.close()
            raise XlaTimedOut(f"no answer from XLA within {timeout:g} s") from None
        except BaseException:  # an interrupt: the next question must not get this answer
            self.close()
            raise

    def _died(self) -> XlaDied:
        assert self._process is not None and self._log is not None
        code = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace")
        self.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        lines = said.strip().splitlines()
        fatal = [line for line in lines if re.match(r"F\d{4} |\[?F", line)]
        return XlaDied(f"XLA's process ended with {how}: " + "\n".join(fatal or lines[-5:]))


# --------------------------------------------------------------------------------------------------------------------
# Arrays


def bit_equal(a: np.ndarray, b: np.ndarray) -> bool:
    """The same element type, dimensions and bits: NaN payloads count, and -0.0 is not 0.0."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(_bits(a), _bits(b)))


def _bits(a: np.ndarray) -> np.ndarray:
    """The bytes of every element; of an element narrower than a byte, only the bits that it has."""
    raw = np.frombuffer(a.tobytes(), np.uint8)
    narrow = re.fullmatch(r"u?int([24])|float([46])_\w+", a.dtype.name)
    return raw & ((1 << int(narrow[1] or narrow[2])) - 1) if narrow else raw


def random_arrays(shapes: Shapes, devices: int, seed: int) -> list[np.ndarray]:
    """Seeded arrays [devices, ...]: floats standard normal, integers small, preds coin flips."""
    rng = np.random.default_rng(seed)
    return [_random_array(rng, element_type(name), (devices, *dimensions)) for name, dimensions in shapes]


def _random_array(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype.kind in "iu" or dtype.name in ("int2", "uint2", "int4", "uint4"):
        info = ml_dtypes.iinfo(dtype)
        return rng.integers(max(-9, int(info.min)), min(9, int(info.max)), shape, endpoint=True).astype(dtype)
    if dtype.name == "float8_e8m0fnu":  # powers of two, no sign and no zero
        return np.exp2(rng.integers(-4, 5, shape).astype(np.float32)).astype(dtype)
    return rng.standard_normal(shape).astype(np.float32 if dtype.itemsize < 4 else dtype).astype(dtype)
