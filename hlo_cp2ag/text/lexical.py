"""Strings, comments and raw JSON blanked out, so that what is left is structure.

The masked text has the same length, character for character: what stands between quotes and inside a raw
`backend_config={...}` becomes underscores, comments become blanks, and only real line ends stay newlines. A bracket, a
comma or an `=` that is left in it is one that the grammar sees.
"""

from __future__ import annotations

import re

from hlo_cp2ag.ir.source import SourceText

_SPECIAL = re.compile(r"[\"'\r]|//|/\*|(?:backend_config|frontend_attributes)=[ \t\r\n]*\{")
_STRING = {
    '"': re.compile(r'"[^"\\]*(?:\\[\s\S][^"\\]*)*"'),
    "'": re.compile(r"'[^'\\]*(?:\\[\s\S][^'\\]*)*'"),
}
_LINE_COMMENT = re.compile(r"//[^\r\n]*")
_RAW_PIECE = re.compile(r'[^{}"]*([{}"])')
_FRONTEND_KEY = re.compile(r"[ \t\r\n]*[A-Za-z_][\w.\-]*=[ \t\r\n]*")
_FRONTEND_NEXT = re.compile(r"[ \t\r\n]*,")


def needs_mask(text: str) -> bool:
    """Whether masking would change the text."""
    return '"' in text or "/" in text or "'" in text or "\r" in text or "_config=" in text or "end_attributes=" in text


def mask(text: str, source: SourceText | None = None, base: int = 0) -> str:
    """The masked text; `text` is the part of `source` that begins at `base`.

    Raises HloSyntaxError for a string, a comment or a raw dictionary that is not closed.
    """
    pieces: list[str] = []
    done = position = 0

    def fail(offset: int, message: str) -> Exception:
        where = source if source is not None else SourceText(text)
        return where.error(offset + (base if source is not None else 0), message)

    while True:
        match = _SPECIAL.search(text, position)
        if match is None:
            break
        start = match.start()
        kind = match.group()
        if kind in _STRING:
            end = _string_end(text, start)
            if end < 0:
                raise fail(start, "this string is not closed")
            replacement = kind + "_" * (end - start - 2) + kind
        elif kind == "//":
            comment = _LINE_COMMENT.match(text, start)
            end = comment.end() if comment else start
            replacement = " " * (end - start)
        elif kind == "/*":
            end = text.find("*/", start + 2) + 2
            if end < 2:
                raise fail(start, "this comment is not closed")
            replacement = " " * (end - start)
        elif kind == "\r":
            end = start + 1
            replacement = " " if text.startswith("\n", end) else "\n"
        elif kind[0] == "b":
            end = _raw_end(text, match.end() - 1)
            if end < 0:
                raise fail(match.end() - 1, "this { is not closed")
            replacement = kind + "_" * (end - match.end() - 1) + "}"
        else:
            replacement, end = _frontend(text, match)
        pieces.append(text[done:start])
        pieces.append(replacement)
        done = position = end
    if not pieces:
        return text
    pieces.append(text[done:])
    return "".join(pieces)


def _string_end(text: str, start: int) -> int:
    match = _STRING[text[start]].match(text, start)
    return match.end() if match else -1


def _raw_end(text: str, start: int) -> int:
    """The end of a raw dictionary whose `{` is at `start`: only quotes and braces count; -1 if it never ends."""
    depth, position = 0, start
    while True:
        match = _RAW_PIECE.match(text, position)
        if match is None:
            return -1
        position = match.end()
        found = match.group(1)
        if found == '"':
            position = _string_end(text, position - 1)
            if position < 0:
                return -1
        else:
            depth += 1 if found == "{" else -1
            if depth == 0:
                return position


def _frontend(text: str, match: re.Match[str]) -> tuple[str, int]:
    """`frontend_attributes={key="text", other={raw}}`: the raw values are masked, strings are left to the main loop."""
    position = match.end()
    pieces = [match.group()]
    while (key := _FRONTEND_KEY.match(text, position)) is not None:
        start = key.end()
        first = text[start : start + 1]
        end = _raw_end(text, start) if first == "{" else _string_end(text, start) if first in _STRING else -1
        if end < 0:
            break
        close = "}" if first == "{" else first
        pieces.append(_blank_line_ends(text[position:start]) + first + "_" * (end - start - 2) + close)
        position = end
        comma = _FRONTEND_NEXT.match(text, position)
        if comma is None:
            break
        pieces.append(_blank_line_ends(comma.group()))
        position = comma.end()
    return "".join(pieces), position


def _blank_line_ends(text: str) -> str:
    return text.replace("\r", " ")


_OPENERS = {"(": ")", "[": "]", "{": "}"}
_BRACKET = re.compile(r"[()\[\]{}]")


def bracket_end(masked: str, start: int, end: int | None = None) -> int:
    """The offset behind the bracket that closes the one at `start`; -1 if nothing closes it or another kind does."""
    stack: list[str] = []
    for match in _BRACKET.finditer(masked, start, len(masked) if end is None else end):
        found = match.group()
        closer = _OPENERS.get(found)
        if closer is not None:
            stack.append(closer)
        elif not stack or stack.pop() != found:
            return -1
        elif not stack:
            return match.end()
    return -1
