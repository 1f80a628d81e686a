"""Runs the command line inside the test's own process: the same `main`, other streams."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hlo_cp2ag.cli.main import main

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()


class _Bytes(io.BytesIO):
    """Keeps what was written, whoever closes the text stream on top of it."""

    def close(self) -> None:
        pass


def cp2ag(
    *argv: str | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """What `cp2ag *argv` answers: exit code, stdout, stderr (neither is a terminal)."""
    out, err = _Bytes(), _Bytes()
    with _streams(stdin, out, err), _directory(cwd), _environment(env or {}):
        sys.argv = ["cp2ag", *map(str, argv)]
        try:
            main()
            code = 0
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        finally:
            gc.enable()
            sys.stdout.flush()
            sys.stderr.flush()
    return Outcome(code, out.getvalue(), err.getvalue().decode())


@contextmanager
def _streams(stdin: bytes, out: io.BytesIO, err: io.BytesIO) -> Iterator[None]:
    old = sys.stdin, sys.stdout, sys.stderr, sys.argv
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8")
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8")
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr, sys.argv = old


@contextmanager
def _directory(path: Path | None) -> Iterator[None]:
    old = Path.cwd()
    os.chdir(path or old)
    try:
        yield
    finally:
        os.chdir(old)


@contextmanager
def _environment(extra: Mapping[str, str]) -> Iterator[None]:
    old = dict(os.environ)
    for name in list(os.environ):
        if name.startswith("CP2AG_"):
            del os.environ[name]
    os.environ.update(extra)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(old)
