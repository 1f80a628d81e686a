"""What is said on stderr, and how a result is shown on a terminal.

stdout carries results only. Rich is loaded only where a terminal shows colours or tables; everywhere else the messages
are plain lines.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hlo_cp2ag.cli import files
from hlo_cp2ag.ir.source import Diagnostic, HloError

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def is_terminal(stream: object = None) -> bool:
    """Whether a stream (stderr) is a terminal."""
    stream = sys.stderr if stream is None else stream
    try:
        return stream is not None and bool(stream.isatty())  # type: ignore[union-attr]
    except ValueError:
        return False


def wants_colour(stream: object = None) -> bool:
    """Whether a stream shows colours: a terminal, no NO_COLOR, not dumb."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _rich(stream: object) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, soft_wrap=True, markup=False)  # type: ignore[arg-type]


def say(text: str, severity: str = "note") -> None:
    """One message on stderr; on a terminal its severity word is coloured."""
    if sys.stderr is None:
        return
    try:
        if wants_colour():
            from rich.text import Text

            styled = Text(text)
            styled.highlight_words([f"{severity}:"], _COLOURS.get(severity, ""))
            _rich(sys.stderr).print(styled)
        else:
            sys.stderr.write(text + "\n")
    except OSError:
        files.discard(sys.stderr)  # nobody reads it any more; the result does not suffer from that


def error(problem: HloError) -> None:
    """Every diagnostic of an exception."""
    for diagnostic in problem.diagnostics:
        say(diagnostic if isinstance(diagnostic, str) else diagnostic.render(), "error")


def warning(message: Diagnostic) -> None:
    """A warning as one line, `file:line:column: warning: what`."""
    say(message.header(), "warning")


def summary(text: str) -> None:
    """The closing line of a command, on a terminal only."""
    if is_terminal():
        if wants_colour():
            from rich.text import Text

            _rich(sys.stderr).print(Text(text, style="green"))
        else:
            sys.stderr.write(text + "\n")


def write_diff(diff: str) -> None:
    """A unified diff on stdout, coloured on a terminal."""
    if sys.stdout is None or not wants_colour(sys.stdout):
        files.write_bytes("-", diff.encode())
        return
    from rich.text import Text

    console = _rich(sys.stdout)
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in diff.splitlines():
        style = "bold" if line.startswith(("---", "+++")) else styles.get(line[:1], "")
        console.print(Text(line, style=style))


def table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], styles: dict[str, str]) -> None:
    """A table on stdout, which is a terminal; a cell that begins with a key of `styles` has its style."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(title), title_justify="left", show_edge=False, pad_edge=False)
    for column in columns:
        fixed = column in ("line", "verdict", "time")
        made.add_column(
            column, overflow="fold", justify="right" if column in ("line", "time") else "left", no_wrap=fixed
        )
    for row in rows:
        cells = []
        for cell in row:
            style = next((styles[word] for word in styles if cell.startswith(word)), "")
            cells.append(Text(cell, style=style if wants_colour(sys.stdout) else ""))
        made.add_row(*cells)
    from rich.console import Console

    Console(file=sys.stdout, highlight=False, markup=False, no_color=not wants_colour(sys.stdout)).print(made)
