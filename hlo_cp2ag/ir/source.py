"""The text of a module, places in it, and what the user is told about them."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]

_EXCERPT_WIDTH = 160
"""The most characters of a source line that a message shows; a line of 50 MB is cut around its caret."""

_LONGEST_MESSAGE = 400
"""A name or a shape in a message may be as long as the text itself."""


class Span(NamedTuple):
    """A half-open range `[start, end)` of character offsets."""

    start: int
    end: int


class Position(NamedTuple):
    """A place as people count it: both from 1, columns in characters."""

    line: int
    column: int


class SourceText:
    """A module's text with its name; knows lines and columns."""

    __slots__ = ("_anchor", "_has_returns", "_starts", "data", "filename", "first_line", "text")

    def __init__(self, text: str, filename: str = "<string>", first_line: int = 1, data: bytes | None = None) -> None:
        """`first_line` is the number of the text's first line, for a part of a split file.

        `data` is the same text as bytes, where somebody has it; only pure ASCII is kept.
        """
        self.text = text
        self.data = data if data is not None and len(data) == len(text) and text.isascii() else None
        self.filename = filename
        self.first_line = first_line
        # Lines are counted from the last place that was asked for: reports ask in text order.
        self._anchor = (0, 0)
        self._has_returns: bool | None = None
        self._starts: list[int] | None = None

    def position(self, offset: int) -> Position:
        """The line and column of a character offset. Lines end with LF, CR LF or CR."""
        if self._has_returns is None:
            self._has_returns = "\r" in self.text
        if self._has_returns:
            starts = self._starts_with_returns()
            line = bisect.bisect_right(starts, offset) - 1
            return Position(line + self.first_line, offset - starts[line] + 1)
        known, line = self._anchor if self._anchor[0] <= offset else (0, 0)
        line += self.text.count("\n", known, offset)
        self._anchor = (offset, line)
        return Position(line + self.first_line, offset - self.text.rfind("\n", 0, offset))

    def _starts_with_returns(self) -> list[int]:
        if self._starts is None:
            self._starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", self.text))]
        return self._starts

    def line_span(self, offset: int) -> Span:
        """The span of the line that holds `offset`, without its line end."""
        text = self.text
        line_feed = text.rfind("\n", 0, offset)
        start = max(line_feed, text.rfind("\r", line_feed + 1, offset)) + 1
        end = text.find("\n", offset)
        end = len(text) if end < 0 else end
        carriage_return = text.find("\r", offset, end)
        return Span(start, end if carriage_return < 0 else carriage_return)

    def diagnostic(self, offset: int, message: str, *, hint: str = "", severity: Severity = "error") -> Diagnostic:
        """A diagnostic that points at a character offset; offsets past the end point at the end."""
        offset = max(0, min(offset, len(self.text)))
        if len(message) > _LONGEST_MESSAGE:
            message = message[:_LONGEST_MESSAGE] + "..."
        line, column = self.position(offset)
        span = self.line_span(offset)
        source_line, caret = _excerpt(self.text, span, min(offset, span.end))
        return Diagnostic(severity, message, self.filename, line, column, source_line, caret, hint)

    def error(self, offset: int, message: str, *, hint: str = "") -> HloSyntaxError:
        """The exception for a diagnostic at `offset`, to be raised by the caller."""
        return HloSyntaxError(self.diagnostic(offset, message, hint=hint))


def _excerpt(text: str, span: Span, offset: int) -> tuple[str, int]:
    """The part of a line that is shown, and the caret's place in it."""
    start, end = span
    before = after = ""
    if end - start > _EXCERPT_WIDTH:
        half = _EXCERPT_WIDTH // 2
        cut_start = max(start, min(offset - half, end - _EXCERPT_WIDTH))
        cut_end = min(end, cut_start + _EXCERPT_WIDTH)
        before = "..." if cut_start > start else ""
        after = "..." if cut_end < end else ""
        start, end = cut_start, cut_end
    shown = "".join(c if c.isprintable() else " " for c in text[start:end])
    return before + shown.rstrip() + after, len(before) + offset - start


@dataclass(frozen=True)
class Diagnostic:
    """One message about one place, as compilers print it."""

    severity: Severity
    message: str
    filename: str
    line: int
    column: int
    source_line: str = ""
    caret: int = 0
    hint: str = ""

    def header(self) -> str:
        """`file:line:column: error: what`, the one line that tools read."""
        return f"{self.filename}:{self.line}:{self.column}: {self.severity}: {self.message}"

    def render(self) -> str:
        """The header, the source line, a caret, and the hint if there is one."""
        lines = [self.header()]
        if self.source_line.strip():
            lines += ["  " + self.source_line, "  " + " " * self.caret + "^"]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class HloError(ValueError):
    """What is wrong with a module, its configuration or a request, in words for its user.

    `diagnostics` holds one or more messages; `str()` is their full text.
    """

    def __init__(self, *diagnostics: Diagnostic | str) -> None:
        self.diagnostics: tuple[Diagnostic | str, ...] = diagnostics
        super().__init__("\n".join(d if isinstance(d, str) else d.render() for d in diagnostics))


class HloSyntaxError(HloError):
    """Text that is no HLO module, or one that names what is not there.

    Attributes: `filename`, `line`, `column` (both from 1), `message`, `hint`; they describe the first diagnostic.
    """

    def __init__(self, diagnostic: Diagnostic, *more: Diagnostic) -> None:
        super().__init__(diagnostic, *more)
        self.filename = diagnostic.filename
        self.line = diagnostic.line
        self.column = diagnostic.column
        self.message = diagnostic.message
        self.hint = diagnostic.hint
