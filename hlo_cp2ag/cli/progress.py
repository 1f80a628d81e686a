"""A moving bar on stderr while modules run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_BAR_AFTER = 1.0
"""Seconds that a run takes before a bar is shown."""


class Steps:
    """How many instructions have been run so far."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, count: int) -> None:
        """Takes note of them."""
        self.count = count


@contextlib.contextmanager
def bar(steps: Steps, wanted: bool) -> Iterator[None]:
    """A moving bar on stderr once the run has taken a while; how long it will take nobody knows."""
    if not wanted:
        yield
        return
    lock = threading.Lock()
    stops: list[Callable[[], None]] = []
    over = False

    def start() -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
        from rich.text import Text

        class Count(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(f"{steps.count:,} instructions")

        columns = ("running", BarColumn(), Count(), TimeElapsedColumn())
        with lock:
            if not over:
                progress = Progress(*columns, console=Console(stderr=True), transient=True)
                progress.add_task("", total=None)
                progress.start()
                stops.append(progress.stop)

    timer = threading.Timer(_BAR_AFTER, start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            over = True
        for stop in stops:
            stop()
