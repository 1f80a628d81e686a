"""XLA's text parser, asked in a process of its own: it aborts on some texts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO

_WORKER = r"""
import json, os, sys
replies = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except ImportError:
    pass
from jaxlib._hlo import hlo_module_from_text
for line in sys.stdin:
    try:
        hlo_module_from_text(json.loads(line))
        reply = ["accept", ""]
    except Exception as error:
        reply = ["reject", str(error)[:2000]]
    replies.write(json.dumps(reply) + "\n")
"""


def is_available() -> bool:
    """Whether jaxlib is installed."""
    return importlib.util.find_spec("jaxlib") is not None


class XlaVerdicts:
    """Answers `accept`, `reject` or `crash`; starts a new process after each crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115

    def __enter__(self) -> XlaVerdicts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def verdict(self, text: str) -> str:
        """What XLA's parser says of a text."""
        return self.ask(text)[0]

    def ask(self, text: str) -> tuple[str, str]:
        """The verdict and the parser's message."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(text) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            verdict, message = json.loads(line)
            return verdict, message
        self._process.wait()
        self._process = None
        return "crash", ""
