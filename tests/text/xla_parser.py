"""XLA's text parser, asked about many small modules at once.

It lives in a process of its own, since it ends its process on some inputs (a failed check, a read past the end); then
the answer is "crash", which for cp2ag is a refusal like any other, and the next question starts a new process.
Unlike tests/xla/judge.py this loads the parser alone, so that a restart takes a tenth of a second.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

MEASURED = "0.10.2"
"""The jaxlib whose parser cp2ag follows; others accept other texts."""

_WORKER = """
import json, os, resource, sys
import jaxlib._hlo as hlo
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
options = hlo.HloPrintOptions()
options.print_large_constants = True
for line in sys.stdin:
    try:
        answer = ["accept", hlo.hlo_module_from_text(json.loads(line)).to_string(options)]
    except Exception as error:
        answer = ["refuse", str(error)]
    answers.write(json.dumps(answer) + "\\n")
"""


class XlaParser:
    """Asks XLA's parser; skips the test if it is not there, or another one."""

    def __init__(self) -> None:
        pytest.importorskip("jaxlib")
        version = importlib.metadata.version("jaxlib")
        if version != MEASURED:
            pytest.skip(f"jaxlib is {version}; the parser that cp2ag follows is {MEASURED}'s")
        self._process: subprocess.Popen[str] | None = None

    def ask(self, text: str) -> tuple[str, str]:
        """`("accept", canonical text)`, `("refuse", message)` or `("crash", "")`."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"},
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(text) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            return "crash", ""
        verdict, detail = json.loads(line)
        return verdict, detail

    def ask_all(self, texts: Iterable[str]) -> list[tuple[str, str]]:
        """The answers to many questions."""
        return [self.ask(text) for text in texts]

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def constant(text: str, shape: str) -> str:
    """A module that holds one constant."""
    return f"HloModule m\nENTRY e {{\n  ROOT c = {shape} constant({text})\n}}\n"


def constant_of(canonical: str) -> str:
    """The constant's literal in XLA's print of such a module."""
    start = canonical.index("constant(") + len("constant(")
    return canonical[start : canonical.rindex("\n}")].rstrip().removesuffix(")")
