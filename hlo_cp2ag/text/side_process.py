"""A second process for a part of the work on very large text: Python runs on one core, machines have more.

Only the command uses it (`allowed`): a library must not fork the process of its user.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

allowed = False
"""Set by the command when it is a process of its own, without threads."""

WORTH_IT = 8_000_000
"""From this many characters on, the work that is saved is worth a process."""


class SideProcess:
    """Computes bytes in a copy of this process; the text is there already, so that nothing is sent to it."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        """Raises OSError if there can be no second process."""
        self._work = work
        self._pipe, write_end = os.pipe()
        try:
            self._child = os.fork()
        except OSError:
            os.close(self._pipe)
            os.close(write_end)
            raise
        if self._child == 0:
            self._be_the_child(write_end)
        os.close(write_end)

    def _be_the_child(self, write_end: int) -> None:
        code = 1
        try:
            with open(write_end, "wb") as out:
                out.write(self._work())
            code = 0
        finally:
            os._exit(code)

    def result(self) -> bytes:
        """What the work gave; it is done again here if the other process came to grief."""
        with open(self._pipe, "rb") as answers:
            answer = answers.read()
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(self._child, 0)
            if status == 0:
                return answer
        return self._work()


def start(work: Callable[[], bytes], size: int) -> Callable[[], bytes]:
    """Starts work beside this process if that is allowed and worth it, else does it; the function gives its result."""
    if allowed and size >= WORTH_IT and hasattr(os, "fork") and (os.cpu_count() or 1) > 1:
        with contextlib.suppress(OSError):
            return SideProcess(work).result
    # At once: what the work needs is free again before its caller goes on.
    done = work()
    return lambda: done
