"""Modules on real XLA: jaxlib's CPU backend in a process of its own, which may say no, die or hang.

XLA aborts its process on some modules and waits forever on others (a collective that not every device reaches), so the
worker (`xla_worker.py`) answers text after text, and where it is lost, another one goes on with the next text.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np

from hlo_cp2ag.engines.xla_files import load_arrays, save_arrays
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.module import HloModule
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.text.parser import parse

Level = Literal["source", "scheduled"]
"""Where in XLA's pipeline a text enters: "source" at its start, "scheduled" just before scheduling."""

Status = Literal["ran", "refused", "aborted", "hung", "unsupported", "missing"]
"""refused: XLA said no. aborted: it took its process down. hung: no answer in time. unsupported: the worker knows no way
to ask XLA this. missing: jax or jaxlib is not installed, or too old."""

START_SECONDS = 120.0
"""What loading jax may take at most; it is not counted as the text's time."""


@dataclass(frozen=True)
class XlaRun:
    """What came of one text."""

    status: Status
    outputs: tuple[Array, ...] = ()
    """One array `[devices, *dimensions]` a result leaf, in order, without tokens, with element types as
    `hlo_cp2ag.run`'s; nothing unless it ran."""
    reason: str = ""
    """In one line; empty if it ran."""
    seconds: float = 0.0
    """Parsing, compiling and running, without the start of the process."""


def run_on_xla(
    texts: Sequence[str],
    inputs: Sequence[Array],
    replica_count: int = 1,
    num_partitions: int = 1,
    *,
    time_limit: float = 120.0,
    level: Literal["default", "source", "scheduled"] = "default",
    stop: bool = False,
) -> list[XlaRun]:
    """Runs per-device HLO texts of one signature on XLA's CPU backend with the same inputs; one answer a text, in order.

    `inputs` has one array `[devices, *dimensions]` per parameter (per leaf of a tuple), ml_dtypes' types for those that
    numpy lacks; device = replica * num_partitions + partition. The counts are compile options: what a text's header
    says of them does not matter. `time_limit` is in seconds, for each text. With `stop`, the first text that does not
    run is the last that is tried.

    level="source": through XLA's whole CPU pipeline, on any grid, but without its fusion pass, after which modules that
    do the same need not round the same. For text from before optimization. level="scheduled": the text takes the place
    of a stand-in just before scheduling, so that XLA runs precisely it. For text from that point on: earlier text lacks
    passes that it needs and would compute something else. "default" is "scheduled" for all texts if one of them has a
    schedule, fusions, bitcasts, or permutes of several operands, else "source".

    Raises HloError for a grid without devices and for inputs that are not for all of them; what goes wrong in XLA is in
    the answers.
    """
    if replica_count < 1 or num_partitions < 1:
        raise HloError(f"a grid of {replica_count} x {num_partitions} has no devices")
    devices = replica_count * num_partitions
    arrays = list(map(np.asarray, inputs))
    for i, array in enumerate(arrays):
        if array.shape[:1] != (devices,):
            raise HloError(f"input p{i} has the dimensions {list(array.shape)}; the first one has to be {devices}")
    chosen: Level = level if level != "default" else _level(texts)
    answers: list[XlaRun] = []
    with tempfile.TemporaryDirectory(prefix="cp2ag-xla-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # All devices' rows in one are written once.
        save_arrays(folder / "inputs.npz", [a[:1] if a.strides[0] == 0 else a for a in arrays])
        request = {
            "replica_count": replica_count,
            "num_partitions": num_partitions,
            "level": chosen,
            "count": len(texts),
        }
        (folder / "request.json").write_text(json.dumps(request))
        for i, text in enumerate(texts):
            (folder / f"{i}.hlo").write_bytes(text.encode("utf-8", "surrogateescape"))
        while len(answers) < len(texts):
            with _Worker(folder, len(answers), devices, time_limit) as worker:
                for answer in worker.answers(len(texts)):
                    answers.append(answer)
                    if stop and answer.status != "ran":
                        return answers
    return answers


# ---- which way -------------------------------------------------------------------------------------------------------


def _level(texts: Sequence[str]) -> Level:
    """One way for all texts: the two round sums of products otherwise."""
    return "scheduled" if any(map(_is_optimized, texts)) else "source"


def _is_optimized(text: str) -> bool:
    try:
        return _needs_schedule(parse(text))
    except HloError:  # XLA will say what is wrong with it
        return False


def _needs_schedule(module: HloModule) -> bool:
    """Whether it holds what StableHLO, through which the whole pipeline is reached, cannot say."""
    scheduled = module.header_attribute("is_scheduled")
    if scheduled is not None and scheduled.value_text.strip() == "true":
        return True
    for instruction in module.instructions():
        if instruction.opcode in ("fusion", "bitcast"):
            return True
        is_permute = instruction.opcode in ("collective-permute", "collective-permute-start")
        if is_permute and len(instruction.body.operands) > 1:
            return True
    return False


# ---- the process -----------------------------------------------------------------------------------------------------


class _Worker:
    """One process, from text `first` on."""

    def __init__(self, folder: Path, first: int, devices: int, time_limit: float) -> None:
        self._folder = folder
        self._next = first
        self._limit = time_limit
        self._devices = devices

    def __enter__(self) -> _Worker:
        self._log: IO[bytes] = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "hlo_cp2ag.engines.xla_worker", str(self._folder), str(self._next)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # its end tells the worker that nobody waits for it any more
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=_environment(self._devices, self._limit),
            )
        except BaseException:
            self._log.close()
            raise
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()

    def answers(self, count: int) -> Iterator[XlaRun]:
        """Answers to the texts from the first on; the last one says so if the process was lost with it."""
        start = time.monotonic()
        line = self._line(start + START_SECONDS)
        if line != "ready":
            failed = self._failed_to_start(line, time.monotonic() - start)
            # Texts have nothing to do with it, and another process would not start either.
            yield from [failed] * (count - self._next)
            return
        while self._next < count:
            start = time.monotonic()
            line = self._line(start + self._limit)
            seconds = time.monotonic() - start
            number, self._next = self._next, self._next + 1
            if line == str(number):
                yield self._answer(number, seconds)
                continue
            yield self._hung(seconds) if line == _TIMED_OUT else self._died(seconds)
            return

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.decode(errors="replace").strip())
        self._lines.put(None)

    def _line(self, deadline: float) -> str | None:
        """The next line from the worker; None if it has ended."""
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return _TIMED_OUT

    def _answer(self, number: int, seconds: float) -> XlaRun:
        answer = json.loads((self._folder / f"{number}.json").read_text())
        if answer["status"] != "ran":
            return XlaRun(answer["status"], reason=one_line(answer["reason"]), seconds=seconds)
        path = self._folder / f"{number}.npz"
        outputs = tuple(load_arrays(path))
        path.unlink()
        return XlaRun("ran", outputs, seconds=seconds)

    def _failed_to_start(self, line: str | None, seconds: float) -> XlaRun:
        if line == "missing":
            reason = json.loads((self._folder / "missing.json").read_text())
            return XlaRun("missing", reason=one_line(reason), seconds=seconds)
        if line == _TIMED_OUT:
            return XlaRun("hung", reason=f"jax was not loaded within {START_SECONDS:g} s", seconds=seconds)
        return self._died(seconds, " while it loaded jax")

    def _hung(self, seconds: float) -> XlaRun:
        reason = f"no answer from XLA within {self._limit:g} s"
        stuck = [line for line in self._said() if "may be stuck" in line or "arrived" in line]
        if stuck:
            reason += f": {_message(stuck[-1])}"
        return XlaRun("hung", reason=one_line(reason), seconds=seconds)

    def _died(self, seconds: float, when: str = "") -> XlaRun:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # it has closed its end and lives on
            self._process.kill()
            code = self._process.wait()
        reason = f"XLA's process ended with {_ending(code)}{when}"
        said = self._said()
        fatal = [line for line in said if re.match(r"F\d{4} ", line)] or [line for line in said if line.strip()]
        if fatal:
            reason += f": {_message(fatal[-1])}"
        return XlaRun("aborted", reason=one_line(reason), seconds=seconds)

    def _said(self) -> list[str]:
        """What the process wrote on stderr, the end of it."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _READ_OF_LOG))
        return self._log.read().decode(errors="replace").splitlines()


_TIMED_OUT = "timed out"
_READ_OF_LOG = 1 << 16
_LONGEST_REASON = 400


def _environment(devices: int, time_limit: float) -> dict[str, str]:
    """The child's environment: the caller's, and what XLA reads once at its start."""
    warn = max(1, int(time_limit // 2))
    flags = [
        os.environ.get("XLA_FLAGS", ""),  # of a flag that stands twice, the last counts
        # A product and a sum in one kernel are rounded once. Which are in one kernel depends on all of the module, and
        # two modules that do the same would differ in the last place. (Lists of passes that stand twice add up.)
        "--xla_disable_hlo_passes=fusion",
        f"--xla_force_host_platform_device_count={devices}",
        # Else XLA aborts a hang by itself, and it would be taken for a crash.
        "--xla_cpu_collective_call_terminate_timeout_seconds=86400",
        f"--xla_cpu_collective_call_warn_stuck_timeout_seconds={warn}",
    ]
    package = str(Path(__file__).resolve().parents[2])
    return {
        **os.environ,
        "XLA_FLAGS": " ".join(flags).strip(),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",  # errors, where it says who is stuck
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), package])),
        "PYTHONSAFEPATH": "1",  # a file jax.py in the caller's directory is not jax
    }


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


def _message(line: str) -> str:
    """A line of XLA's log without its date, thread and file."""
    return re.sub(r"^[IWEF]\d{4} [^\]]*\] ", "", line)


def one_line(text: str) -> str:
    """The first line with words in it, cut where it is very long."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 3] + "..."
