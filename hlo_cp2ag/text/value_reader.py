"""The tokens inside an attribute's value, cut as XLA's lexer cuts them, and a reader that walks them.

Values that occur by the thousand (`{0,1}`, `%x`, `3`) never come here: values.py takes them by regular expression. What
comes here is read once and remembered by its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn, TypeVar

from hlo_cp2ag.text.opcodes import KEYWORDS, PRIMITIVE_TYPES

T = TypeVar("T")


class ValueTextError(ValueError):
    """A value's text that XLA refuses; `offset` is where in the text."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


_LABELS = r"[0-9bf?]{2,}_[0-9io?]{2,}->[0-9bf?]{2,}"
_TOKEN = (
    r"[ \t\r\n]*(?:"
    r"(?P<punctuation>->|<=|\.\.\.|[,=:*#+~\[\]{}()])"
    r"|(?P<number>(?=[0-9\-?])(?:"
    r"(?P<decimal>-?(?:\d+\.\d*|\d*\.\d+|\d+)[eE][+\-]?\d+|-?(?:\d+\.\d*|\d*\.\d+))"
    rf"|(?P<labels>{_LABELS})"
    r"|(?P<dxd>[0-9]+(?:x[0-9]+)+)"
    r"|(?P<pad>-?[0-9]+_-?[0-9]+(?:_[0-9]+)?(?:x-?[0-9]+_-?[0-9]+(?:_[0-9]+)?)*)"
    r"|(?P<int>-?\d+)|(?P<minus_inf>-inf)|(?P<minus_nan>-nan(?:\(0x[0-9a-fA-F]+\)|(?!\()))|(?P<question>\?)))"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_.\-]*)(?P<after>[:=]?)"
    r"|%(?P<name>[A-Za-z_][A-Za-z0-9_.\-]*)"
    r"|(?P<string>\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*')"
    r"|(?P<end>\Z)"
    r")"
)


@lru_cache(maxsize=1)
def _token() -> Callable[[str, int], re.Match[str] | None]:
    return re.compile(_TOKEN, re.ASCII).match


_NUMBER_KINDS = ("decimal", "labels", "dxd", "pad", "int", "minus_inf", "minus_nan", "question")
_LABELS_HERE = re.compile(_LABELS)
_NAN_PAYLOAD = re.compile(r"\(0x([0-9a-fA-F]+)\)")
_JSON_PIECE = re.compile(r"[^{}\"]+|\"[^\"\\]*(?:\\.[^\"\\]*)*\"|[{}]")
_BLANKS = re.compile(r"[ \t\r\n]*")


def wrap_int64(digits: str, offset: int = 0) -> int:
    """The 64-bit integer that XLA's lexer makes of `digits`: above 2^63 - 1 it wraps, above 2^64 - 1 it is refused."""
    if len(digits) > 40:
        digits = re.sub(r"^(-?)0+(?=\d)", r"\1", digits)
    value = int(digits) if len(digits) <= 40 else 1 << 64
    if value >= 1 << 63:
        if value >= 1 << 64:
            raise ValueTextError("an integer past 64 bits", offset)
        return value - (1 << 64)
    if value < -1 << 63:
        raise ValueTextError("an integer past 64 bits", offset)
    return value


def split_int64s(text: str, separator: str, offset: int) -> tuple[int, ...]:
    """Integers between separators, none of which may pass the signed 64-bit range."""
    values = []
    for part in text.split(separator):
        digits = re.sub(r"^(-?)0+(?=\d)", r"\1", part)
        if len(digits) > 20 or not -1 << 63 <= int(digits) < 1 << 63:
            raise ValueTextError("an integer past 64 bits", offset)
        values.append(int(digits))
    return tuple(values)


class Reader:
    """Walks the tokens of one value; `kind` and `value` describe the current one.

    Kinds: the punctuation itself; `int`, `decimal`, `-inf`, `labels`, `dxd`, `pad`, `?`; `string`; `name` (after % or
    before a colon), `attribute` (before =), `ident`, `type`; a keyword itself; `end`; `error`.
    """

    __slots__ = ("end", "kind", "start", "text", "value")

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = 0
        self.kind = ""
        self.value = ""
        self.advance()

    def advance(self) -> None:
        """Go to the next token."""
        match = _token()(self.text, self.end)
        if match is None:
            blanks = _BLANKS.match(self.text, self.end)
            self.start = blanks.end() if blanks else self.end
            self.kind, self.value = "error", self.text[self.start : self.start + 1]
            return
        kind = match.lastgroup or ""
        if kind == "after":
            kind = "word"
        elif kind == "number":
            kind = next(kind for kind in _NUMBER_KINDS if match[kind])
        self.start, self.end = match.start(kind), match.end()
        value = match[kind]
        if kind == "punctuation":
            kind = value
        elif kind == "word":
            kind = self._word(value, match["after"])
            if kind in ("labels", "decimal"):
                value = self.text[self.start : self.end]
        elif kind == "int":
            try:
                wrap_int64(value, self.start)
            except ValueTextError:
                kind = "error"
        elif kind == "minus_inf":
            kind = "-inf"
        elif kind == "minus_nan":
            kind = "decimal" if _payload_fits(value) else "error"
        elif kind == "question":
            kind = "?"
        elif kind == "string":
            try:
                value = unquote(value)
            except ValueTextError:
                kind = "error"
        elif kind == "name":
            self.start -= 1
        self.kind, self.value = kind, value

    def _word(self, word: str, after: str) -> str:
        if after == ":":
            return "name"
        if after == "=":
            return "attribute"
        if word in PRIMITIVE_TYPES:
            return "type"
        if word == "nan":
            if self.text.startswith("(", self.end):
                payload = _NAN_PAYLOAD.match(self.text, self.end)
                if payload is None or not _payload_fits(payload[0]):
                    return "error"
                self.end = payload.end()
            return "decimal"
        if word in KEYWORDS:
            return word
        labels = _LABELS_HERE.match(self.text, self.start)
        if labels:
            self.end = labels.end()
            return "labels"
        return "ident"

    def fail(self, message: str, offset: int | None = None) -> NoReturn:
        """Raise a ValueTextError at the current token."""
        raise ValueTextError(message, self.start if offset is None else offset)

    def eat(self, kind: str) -> bool:
        """Go on if the current token is of that kind; say whether it was."""
        if self.kind != kind:
            return False
        self.advance()
        return True

    def expect(self, kind: str, message: str) -> str:
        """Go past a token that must be of that kind; return its value."""
        if self.kind != kind:
            self.fail(message)
        value = self.value
        self.advance()
        return value

    def finish(self) -> None:
        """Make sure that nothing follows."""
        if self.kind != "end":
            self.fail("unexpected text after the value")

    def integer(self) -> int:
        """A 64-bit integer."""
        start = self.start
        return wrap_int64(self.expect("int", "expects an integer"), start)

    def integer32(self) -> int:
        """A 32-bit integer."""
        start, value = self.start, self.integer()
        if not -1 << 31 <= value < 1 << 31:
            self.fail("an integer past 32 bits", start)
        return value

    def number(self) -> float:
        """A floating-point number."""
        start, kind, text = self.start, self.kind, self.value
        if kind == "int":
            return float(self.integer())
        if kind in ("inf", "-inf"):
            self.advance()
            return float(kind)
        if kind != "decimal":
            self.fail("expects a number")
        self.advance()
        if text.lstrip("-").startswith("nan"):
            return float(text.partition("(")[0])
        value = float(text)
        if value in (float("inf"), float("-inf")):
            self.fail("a number past 64 bits", start)
        return value

    def boolean(self) -> bool:
        """`true` or `false`."""
        if self.kind not in ("true", "false"):
            self.fail("expects true or false")
        value = self.kind == "true"
        self.advance()
        return value

    def string(self) -> str:
        """A quoted string, without its quotes and escapes."""
        return self.expect("string", "expects a string")

    def name(self) -> str:
        """A name, with or without %."""
        if self.kind not in ("name", "ident"):
            self.fail("expects a name")
        value = self.value
        self.advance()
        return value

    def attribute(self) -> str:
        """A field's name, which its = touches."""
        return self.expect("attribute", "expects a name and = without a blank between them")

    def word(self, what: str) -> str:
        """An identifier that is no keyword."""
        return self.expect("ident", f"expects {what}")

    def json(self) -> str:
        """A text in balanced braces, as it stands; only double-quoted strings hide braces."""
        if self.kind != "{":
            self.fail("expects a string or {")
        start = position = self.start
        depth = 0
        while True:
            match = _JSON_PIECE.match(self.text, position)
            if match is None:
                self.fail("the braces do not close", start)
            position = match.end()
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if depth == 0:
                break
        self.end = position
        self.advance()
        return self.text[start:position]

    def items(self, opening: str, closing: str, item: Callable[[], T], separator: str = ",") -> list[T]:
        """`{item, item}` or `{}`; no comma too many."""
        self.expect(opening, f"expects {opening}")
        result: list[T] = []
        if self.kind != closing:
            result.append(item())
            while self.eat(separator):
                result.append(item())
        self.expect(closing, f"expects {separator} or {closing}")
        return result

    def integers(self, opening: str = "{", closing: str = "}", separator: str = ",") -> tuple[int, ...]:
        """`{1,2,3}`."""
        return tuple(self.items(opening, closing, self.integer, separator))

    def index(self) -> tuple[int, ...]:
        """A shape index `{0,1}`; here a comma at the end is allowed."""
        self.expect("{", "expects {")
        result = []
        while self.kind != "}":
            result.append(self.integer())
            if not self.eat(","):
                break
        self.expect("}", "expects , or }")
        return tuple(result)


def _payload_fits(text: str) -> bool:
    """Whether the payload of `-nan(0x7f)` fits a double's; no payload fits."""
    match = _NAN_PAYLOAD.search(text)
    return match is None or (len(match[1]) <= 16 and 0 < int(match[1], 16) < 1 << 52)


# ---- strings ---------------------------------------------------------------------------------------------------------

_QUOTED = re.compile(r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*'")
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\?'\"])|)")
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def unquote(text: str) -> str:
    """The string that a quoted text stands for: quotes off, C escapes resolved.

    Bytes that are no UTF-8 come as surrogate escapes. Raises ValueTextError for what absl's CUnescape refuses.
    """
    stripped = text.strip(" \t\r\n")
    if not _QUOTED.fullmatch(stripped):
        raise ValueTextError("expects a string", 0)
    inner = stripped[1:-1]
    if "\\" not in inner:
        return inner
    raw = inner.encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(_unescape, raw).decode("utf-8", "surrogateescape")


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, letter = match.groups()
    if letter:
        return _LETTERS.get(letter, letter)
    code = -1
    if octal:
        code = int(octal, 8)
    elif hexadecimal:
        digits = hexadecimal.lstrip(b"0") or b"0"
        code = int(digits, 16) if len(digits) <= 2 else -1
    if octal or hexadecimal:
        if not 0 <= code <= 255:
            raise ValueTextError("an escape past one byte", match.start())
        return bytes([code])
    if short or long:
        code = int(short or long, 16)
        if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
            return chr(code).encode("utf-8")
    raise ValueTextError("an escape that is none", match.start())
