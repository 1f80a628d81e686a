"""The text of a literal: which texts XLA's parser takes for a shape, and the elements' words in order.

What XLA's printer or a person writes, `{ {1, 2}, {3, 4} }`, is cut at C speed: braces and commas must be those that the
shape demands, and the words between them are checked all at once. Everything else goes through a walk over the tokens
that follows XLA's parser step by step, with its leniency (commas too many or too few, one element for a whole array).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, NoReturn

from hlo_cp2ag.ir.element_types import COMPLEX_LIMITS, FLOAT_FORMATS, complex_part, integer_range
from hlo_cp2ag.ir.shape import ArrayShape, BufferShape, Shape, TupleShape, is_complex, is_integer


class LiteralTextError(ValueError):
    """A literal's text that XLA refuses for its shape; `offset` is where in the text."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class ArrayWords(NamedTuple):
    """An array's elements as words, row-major; a complex number is two. None at all if the text says `{...}`.

    There are fewer words than elements where the text has one word for a whole array: XLA sets the first element.
    """

    words: Sequence[str]
    elided: bool = False
    numbers: Sequence[float] | None = None
    """The words' values, if they had to be read to judge them; integers as `int`."""


def _fail(message: str, offset: int) -> NoReturn:
    raise LiteralTextError(message, offset)


# ---- the fast way ----------------------------------------------------------------------------------------------------

_CLASSES = bytes(c if c in b"{}()," else ord(" ") if c in b" \t\r\n" else ord("v") for c in range(256))
"""A character's part in a literal: a mark, a blank, or of a word."""
_INTEGER_CHARACTERS = b"0123456789-"
_FLOAT_CHARACTERS = b"0123456789-+.eE"
_FLOAT = r"(?:-?(?:\d+(?:\.\d*)?(?:[eE][+\-]?\d+)?|inf|nan)|-\.\d+(?:[eE][+\-]?\d+)?)"
_FLOATS = re.compile(rf"{_FLOAT}(?:,{_FLOAT})*", re.ASCII)
_HUGE_INTEGER = re.compile(r"(?<![^,])-?\d{19,}(?![^,])", re.ASCII)
_INFINITY = float("inf")


def _skeleton(dimensions: tuple[int, ...], element: bytes) -> bytes:
    """The marks of a literal with a comma between any two elements: `{{,},{,}}`."""
    text = element
    for size in reversed(dimensions):
        text = b"{" + b",".join([text] * size) + b"}"
    return text


def _cut(text: str, shape: ArrayShape) -> ArrayWords | None:
    """The words of a literal in the usual form; None if it is in another form, or wrong."""
    element_type, count = shape.element_type, shape.element_count
    if count > len(text) or min(shape.dimensions, default=0) < 0 or not text.isascii() or not _layout_holds(shape):
        return None
    raw = text.encode("ascii")
    classes = raw.translate(_CLASSES)
    while b"  " in classes:
        classes = classes.replace(b"  ", b" ")
    marks = classes.translate(None, b" ")
    if b"v v" in classes or any(wrong in marks for wrong in (b"v{", b"}v", b"v(", b")v")):
        return None
    flat = raw.translate(None, b" \t\r\n{}()")
    if flat == b"..." and marks == b"{vvv}" and shape.rank:
        return ArrayWords((), count > 0)
    complex_ = is_complex(element_type)
    if marks.translate(None, b"v") != _skeleton(shape.dimensions, b"(,)" if complex_ else b""):
        return None
    if not count:
        return ArrayWords((), False, ()) if not flat.strip(b",") else None
    return _checked(flat, element_type)


def _checked(flat: bytes, element_type: str) -> ArrayWords | None:
    """The words of a list whose every word is one that the type takes; None if some is not, or hard to tell."""
    words = flat.decode("ascii").split(",")
    if element_type == "pred":
        return ArrayWords(words) if {"0", "1", "true", "false"}.issuperset(words) else None
    try:
        if is_integer(element_type):
            if flat.translate(None, _INTEGER_CHARACTERS + b","):
                return None
            integers = list(map(int, words))
            low, high = integer_range(element_type)
            return ArrayWords(words, False, integers) if min(integers) >= low and max(integers) <= high else None
        return _checked_floats(flat, words, element_type)
    except ValueError:
        return None


def _checked_floats(flat: bytes, words: list[str], element_type: str) -> ArrayWords | None:
    if flat.translate(None, _FLOAT_CHARACTERS + b","):  # infinities, NaNs, or worse
        if not _FLOATS.fullmatch(flat.decode("ascii")):
            return None
        numbers = list(map(float, words))
        finite = [number for number, word in zip(numbers, words, strict=True) if word[-1] not in "fn"] or [1.0]
    else:
        if flat[:1] in b"+." or b",+" in flat or b",." in flat:  # no number for XLA, though one for Python
            return None
        finite = numbers = list(map(float, words))
    low, high = min(finite), max(finite)
    limit = COMPLEX_LIMITS.get(element_type) or FLOAT_FORMATS[element_type].limit
    if not (-limit < low and high < limit) or (element_type == "f8e8m0fnu" and low <= 0):
        return None
    if (high >= 1 << 62 or low <= -1 << 62) and _HUGE_INTEGER.search(flat.decode("ascii")):
        return None
    return ArrayWords(words, False, numbers)


# ---- the slow way ----------------------------------------------------------------------------------------------------

_TOKEN = (
    r"[ \t\r\n]*(?:(?P<mark>[{}(),]|\.\.\.)"
    r"|(?P<number>(?=[0-9\-])(?:"
    r"(?P<decimal>-?(?:\d+\.\d*|\d*\.\d+|\d+)[eE][+\-]?\d+|-?(?:\d+\.\d*|\d*\.\d+))"
    r"|(?P<bad>[0-9bf?]{2,}_[0-9io?]{2,}->[0-9bf?]{2,}|[0-9]+(?:x[0-9]+)+|-?[0-9]+_-?[0-9]+)"
    r"|(?P<int>-?\d+)|(?P<minus_inf>-inf)|(?P<minus_nan>-nan(?:\(0x[0-9a-fA-F]+\)|(?!\()))))"
    r"|(?P<word>(?:nan(?![A-Za-z0-9_.\-=:(])|nan\(0x[0-9a-fA-F]+\)|(?:true|false|inf)(?![A-Za-z0-9_.\-=:]))))"
)


@lru_cache(maxsize=1)
def _token() -> Callable[[str, int], re.Match[str] | None]:
    return re.compile(_TOKEN, re.ASCII).match


_ALL_BLANKS = re.compile(r"[ \t\r\n]*")


class _Walker:
    """Follows XLA's parser through a literal, token by token."""

    __slots__ = ("end", "kind", "start", "text", "value")

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.advance()

    def advance(self) -> None:
        match = _token()(self.text, self.end)
        if match is None:
            blanks = _ALL_BLANKS.match(self.text, self.end)
            self.start = blanks.end() if blanks else self.end
            self.kind, self.value = ("end" if self.start == len(self.text) else "bad"), ""
            return
        kind = match.lastgroup or ""
        if kind == "number":
            kind = next(k for k in ("decimal", "bad", "int", "minus_inf", "minus_nan") if match[k])
        self.value, self.start, self.end = match[kind], match.start(kind), match.end()
        if kind == "mark":
            kind = self.value
        elif kind == "int":
            if not -1 << 63 <= _int(self.value) < 1 << 64:
                kind = "bad"
        elif kind == "minus_nan" or (kind == "word" and self.value[0] == "n"):
            kind = "decimal" if 0 < _payload(self.value) < 1 << 52 else "bad"
        elif kind == "minus_inf" or (kind == "word" and self.value == "inf"):
            kind = "inf"
        elif kind == "word":
            kind = "bool"
        self.kind = kind

    def number(self) -> str:
        """A floating-point number's word, whose value fits a double."""
        word, kind = self.value, self.kind
        if kind == "int":
            value = _int(word)
            word = word if value < 1 << 63 else str(value - (1 << 64))
        elif kind not in ("decimal", "inf"):
            _fail("expects a number", self.start)
        elif kind == "decimal" and word.lstrip("-")[0] != "n" and abs(float(word)) == _INFINITY:
            _fail("a number past 64 bits", self.start)
        self.advance()
        return word


def _int(digits: str) -> int:
    if len(digits) > 40:
        digits = re.sub(r"^(-?)0+(?=\d)", r"\1", digits)
    return int(digits) if len(digits) <= 40 else 1 << 65


def _payload(word: str) -> int:
    """The payload that `nan(0x7f)` names; that of a quiet NaN if it names none."""
    digits = word.partition("(0x")[2].rstrip(")").lstrip("0")
    if "(" not in word:
        return 1 << 51
    return int(digits, 16) if 0 < len(digits) <= 16 else (1 << 60 if digits else 0)


def check_number(word: str, element_type: str, offset: int) -> None:
    """Refuse a number or NaN payload that the type does not take."""
    form = FLOAT_FORMATS[element_type]
    if "nan" in word:
        payload = _payload(word)
        if payload != 1 << 51 and payload >= 1 << form.payload_bits:
            _fail(f"the NaN payload {payload:#x} does not fit {element_type}", offset)
        return
    if "inf" in word:
        return
    value = float(word)
    if not -form.limit < value < form.limit or (element_type == "f8e8m0fnu" and not value > 0):
        _fail(f"{word} is out of range for {element_type}", offset)


def _element(walker: _Walker, element_type: str) -> tuple[str, ...]:
    """One element, whose token is a number or a word."""
    word, start, kind = walker.value, walker.start, walker.kind
    if kind == "bool":
        if element_type != "pred":
            _fail(f"{word} is no {element_type}", start)
        walker.advance()
        return (word,)
    if element_type == "pred" or is_integer(element_type):
        if kind != "int":
            _fail(f"expects an integer for {element_type}", start)
        value = _int(word)
        value = value if value < 1 << 63 else value - (1 << 64)
        if element_type == "u64":
            value %= 1 << 64
        elif element_type != "pred":
            low, high = integer_range(element_type)
            if not low <= value <= high:
                _fail(f"{word} is out of range for {element_type}: [{low}, {high}]", start)
        walker.advance()
        return (str(value),)
    if is_complex(element_type):
        _fail(f"expects (real, imaginary) for {element_type}", start)
    word = walker.number()
    check_number(word, element_type, start)
    return (word,)


def _complex(walker: _Walker, element_type: str) -> tuple[str, str]:
    start = walker.start
    if not is_complex(element_type):
        _fail(f"a parenthesis in a literal of {element_type}", start)
    walker.advance()
    real = walker.number()
    if walker.kind != ",":
        _fail("expects a comma after the real part", walker.start)
    walker.advance()
    imaginary = walker.number()
    if walker.kind != ")":
        _fail("expects ) after the imaginary part", walker.start)
    limit = COMPLEX_LIMITS[element_type]
    for part in (real, imaginary):
        if "n" not in part and not -limit < float(part) < limit:
            _fail(f"{part} is out of range for {element_type}", start)
    if "nan" in real:
        check_number(real, complex_part(element_type), start)
    walker.advance()
    return real, imaginary


def _walk_array(walker: _Walker, shape: ArrayShape) -> ArrayWords:
    if not shape.is_data:
        _fail(f"{shape.element_type} has no literals", walker.start)
    if not _layout_holds(shape):
        _fail("the shape's layout holds no array", walker.start)
    rank, dimensions, element_type = shape.rank, shape.dimensions, shape.element_type
    count = shape.element_count
    words: list[str] = []
    seen = [0] * rank
    loose = [False] * rank  # whether numbers stand where rows should
    index = level = 0
    elided = False
    while True:
        kind, start = walker.kind, walker.start
        if kind == "{":
            level += 1
            if level > rank:
                _fail(f"braces nested deeper than the {rank} dimensions", start)
            if level > 1:
                seen[level - 2] += 1
                if seen[level - 2] > dimensions[level - 2]:
                    _fail(f"expects {dimensions[level - 2]} rows in dimension {level - 2}, but sees more", start)
            walker.advance()
        elif kind == "}":
            if level == 0:
                _fail("unexpected }", start)
            level -= 1
            if seen[level] != dimensions[level]:
                if loose[level]:
                    _fail(f"expects {dimensions[level]} rows in dimension {level}, but sees numbers instead", start)
                what = "elements" if level == rank - 1 else "rows"
                _fail(f"expects {dimensions[level]} {what} in dimension {level}, but sees {seen[level]}", start)
            seen[level], loose[level] = 0, False
            walker.advance()
        elif kind == "...":
            if level != 1:
                _fail("... stands in the outermost braces only", start)
            seen[0] = dimensions[0]
            elided = True
            walker.advance()
        elif kind == ",":
            walker.advance()
        elif kind == "(" or kind in ("bool", "int", "decimal", "inf"):
            if level == rank and rank:
                seen[rank - 1] += 1
            elif level:
                loose[level - 1] = True
            if kind == "(" and rank and (level != rank or seen[rank - 1] > dimensions[rank - 1]):
                _fail("a complex number that is not at its place", start)
            element = _complex(walker, element_type) if kind == "(" else _element(walker, element_type)
            if index >= max(count, 0):
                _fail(f"more elements than the {count} of the shape", start)
            index += 1
            words += element
        else:
            _fail("unexpected text in a literal", start)
        if level == 0:
            return ArrayWords((), count != 0) if elided else ArrayWords(words)


_NO_TILE = re.compile(r"[(,](?:-|0+[,)])")
_NO_DENSE_ARRAY = re.compile(r"[#*]\([a-z]|E\(-")


def _layout_holds(shape: ArrayShape) -> bool:
    """Whether a literal can be laid out so; where not, XLA ends its process."""
    layout = shape.layout
    if layout is None:
        return True
    if sorted(layout.minor_to_major) != list(range(shape.rank)):
        return False
    text = layout.annotations
    return not text or not (_NO_DENSE_ARRAY.search(text) or _NO_TILE.search(layout.tiles))


def _walk(walker: _Walker, shape: Shape) -> Words:
    if isinstance(shape, BufferShape):
        shape = shape.array
    if isinstance(shape, ArrayShape):
        return _walk_array(walker, shape)
    if walker.kind != "(":
        _fail("expects ( before a tuple's elements", walker.start)
    walker.advance()
    elements: list[Words] = []
    if walker.kind != ")":
        for number, element in enumerate(shape.elements):
            if number and walker.kind == ",":
                walker.advance()
            elements.append(_walk(walker, element))
    if walker.kind != ")":
        _fail(f"expects ) after {len(shape.elements)} elements", walker.start)
    walker.advance()
    return elements


Words = ArrayWords | list["Words"]
"""An array's words, or those of a tuple's elements; an empty list for a tuple written `()`."""


def read_words(text: str, shape: Shape) -> Words:
    """The words of a literal. Raises LiteralTextError for what XLA's parser refuses."""
    array = shape.array if isinstance(shape, BufferShape) else shape
    if isinstance(array, ArrayShape) and array.is_data:
        words = _cut(text, array)
        if words is not None:
            return words
    walker = _Walker(text)
    if isinstance(shape, TupleShape) and shape.elements:
        fast = _cut_tuple(text, shape)
        if fast is not None:
            return fast
    try:
        result = _walk(walker, shape)
    except RecursionError:  # XLA goes deeper, some thousand levels
        _fail("nested too deeply", walker.start)
    if walker.kind != "end":
        _fail("unexpected text after the literal", walker.start)
    return result


def _cut_tuple(text: str, shape: TupleShape) -> list[Words] | None:
    """The words of a flat tuple in the usual form, so that large arrays in it are cut fast."""
    if not all(isinstance(element, ArrayShape) and element.is_data for element in shape.elements):
        return None
    stripped = text.strip(" \t\r\n")
    if not stripped.startswith("(") or not stripped.endswith(")") or len(text) < 1 << 12:
        return None
    parts = []
    depth = start = 0
    inner = stripped[1:-1]
    for match in re.finditer(r"[{}(),]", inner):
        mark = match[0]
        if mark in "{(":
            depth += 1
        elif mark in "})":
            depth -= 1
        elif depth == 0:
            parts.append(inner[start : match.start()])
            start = match.end()
    parts.append(inner[start:])
    if len(parts) != len(shape.elements):
        return None
    words: list[Words] = []
    for part, element in zip(parts, shape.elements, strict=True):
        assert isinstance(element, ArrayShape)
        cut = _cut(part, element)
        if cut is None:
            return None
        words.append(cut)
    return words
