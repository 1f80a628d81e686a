"""Literals: the values of constants, from text to numpy arrays and back.

`check_literal` only judges; it builds no array and needs no numpy. `parse_literal` reads what XLA's parser reads, but
for two slips of XLA's that its printer does not share: `-0` in a floating-point literal is -0.0, and the imaginary part
of `(nan, 1)` is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hlo_cp2ag.ir.element_types import FLOAT_FORMATS, complex_part, dtype_of
from hlo_cp2ag.ir.literal_text import ArrayWords, LiteralTextError, Words, read_words
from hlo_cp2ag.ir.shape import ArrayShape, BufferShape, Shape, TupleShape, is_complex

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Literal", "LiteralTextError", "check_literal", "parse_literal"]


def check_literal(text: str, shape: Shape) -> None:
    """Raise LiteralTextError, whose offset points into `text`, unless XLA's parser reads it as a literal of `shape`."""
    read_words(text, shape)


def parse_literal(text: str, shape: Shape) -> Literal:
    """The literal that stands between the parentheses of `constant(...)`, comments blanked.

    Raises LiteralTextError for what XLA's parser refuses.
    """
    return _build(read_words(text, shape), shape)


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant's value: an array, or a literal for each element of a tuple.

    `array` is None for tuples and for elided literals. Two literals are equal if their shapes (layouts aside) and all
    their bits are; an elided literal equals none, itself included.
    """

    shape: Shape
    array: np.ndarray[Any, Any] | None = None
    elements: tuple[Literal, ...] = ()
    elided: bool = False
    """Whether the text says `{...}`, here or in some element: there are no values then."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        if self.elided or other.elided or self.shape.to_text(layout=False) != other.shape.to_text(layout=False):
            return False
        if self.array is None or other.array is None:
            return self.elements == other.elements
        return self.array.tobytes() == other.array.tobytes()

    def __hash__(self) -> int:
        return hash((self.shape.to_text(layout=False), self.elements))

    def to_text(self) -> str:
        """The literal as XLA prints it with large constants, without its shape."""
        if isinstance(self.shape, TupleShape):
            return "( " + ", ".join(element.to_text() for element in self.elements) + " )"
        if self.array is None:
            return "{...}"
        array = self.shape.array if isinstance(self.shape, BufferShape) else self.shape
        words = element_words(self.array, array.element_type)
        if not array.rank:
            return words[0] if array.element_type != "pred" else ("false", "true")[int(words[0])]
        return _nested(words, array.dimensions)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _build(words: Words, shape: Shape) -> Literal:
    if isinstance(shape, TupleShape):
        assert isinstance(words, list)
        if len(words) != len(shape.elements):  # `()` for a tuple with elements: XLA has no values there either
            return Literal(shape, elided=True)
        elements = tuple(map(_build, words, shape.elements))
        return Literal(shape, elements=elements, elided=any(element.elided for element in elements))
    assert isinstance(words, ArrayWords)
    if words.elided:
        return Literal(shape, elided=True)
    array = shape.array if isinstance(shape, BufferShape) else shape
    return Literal(shape, _array(words, array))


def _array(words: ArrayWords, shape: ArrayShape) -> np.ndarray[Any, Any]:
    import numpy as np

    element_type = shape.element_type
    flat = _values(words, element_type)
    missing = max(0, shape.element_count - flat.size)
    if missing:
        flat = np.concatenate([flat, np.zeros(missing, flat.dtype)])
    return flat.reshape(shape.dimensions)


def _values(words: ArrayWords, element_type: str) -> np.ndarray[Any, Any]:
    import numpy as np

    dtype = dtype_of(element_type)
    if element_type == "pred":
        truth = {"true": True, "1": True, "false": False, "0": False}
        return np.array([truth[word] if word in truth else int(word) != 0 for word in words.words], dtype)
    if element_type[0] in "su":
        numbers = words.numbers if words.numbers is not None else list(map(int, words.words))
        return np.array(numbers, np.uint64 if element_type == "u64" else np.int64).astype(dtype)
    if is_complex(element_type):
        return _floats(words, complex_part(element_type)).view(dtype)
    return _floats(words, element_type)


def _floats(words: ArrayWords, element_type: str) -> np.ndarray[Any, Any]:
    import numpy as np

    dtype = dtype_of(element_type)
    numbers = words.numbers
    if numbers is None:  # float knows no nan(0x7f)
        numbers = [float(word.partition("(")[0]) for word in words.words]
    doubles = np.array(numbers, np.float64)
    result: np.ndarray[Any, Any]
    with np.errstate(all="ignore"):
        if element_type == "f64":
            result = doubles.copy()
        elif element_type in ("f32", "f16", "bf16"):
            result = doubles.astype(np.float32).astype(dtype)
        else:
            result = _rounded_to_odd(doubles).astype(dtype)
    bits = FLOAT_FORMATS[element_type].payload_bits
    nans = np.flatnonzero(np.isnan(doubles)).tolist() if bits else []
    raw = result.view(f"u{dtype.itemsize}")
    for i in nans:
        raw[i] = _nan_bits(words.words[i], bits, 8 * dtype.itemsize)
    return result


def _nan_bits(word: str, payload_bits: int, width: int) -> int:
    """The pattern of a NaN; a payload that does not fit, which XLA lets pass in imaginary parts, is dropped."""
    payload = quiet = 1 << (payload_bits - 1)
    if "(" in word:
        payload = int(word.partition("(")[2].rstrip(")"), 16)
        payload = payload if payload < 1 << payload_bits else quiet
    sign = 1 << (width - 1) if word[0] == "-" else 0
    return sign | ((1 << (width - 1)) - (1 << payload_bits)) | payload


def _rounded_to_odd(doubles: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The f32 numbers from which rounding to fewer bits gives what rounding the doubles gives."""
    import numpy as np

    singles = doubles.astype(np.float32)
    raw = singles.view(np.uint32)
    back = singles.astype(np.float64)
    inexact = np.isfinite(doubles) & (back != doubles)
    # The neighbour towards zero with its last bit set lies strictly between the same two narrow numbers.
    inward = inexact & (np.abs(back) > np.abs(doubles))
    raw -= inward.astype(np.uint32)
    raw |= inexact.astype(np.uint32)
    return singles


# ---- printing --------------------------------------------------------------------------------------------------------


def element_words(array: np.ndarray[Any, Any], element_type: str) -> list[str]:
    """The array's elements as XLA prints them, row-major; predicates as 0 and 1."""
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1)
    if element_type == "pred" or element_type[0] in "su":
        return list(map(str, flat.astype(np.uint64 if element_type == "u64" else np.int64).tolist()))
    if is_complex(element_type):
        words = _float_words(flat.view(flat.real.dtype), complex_part(element_type))
        return [f"({real}, {imaginary})" for real, imaginary in zip(words[::2], words[1::2], strict=True)]
    return _float_words(flat, element_type)


def _float_words(flat: np.ndarray[Any, Any], element_type: str) -> list[str]:
    import numpy as np

    form = FLOAT_FORMATS[element_type]
    with np.errstate(all="ignore"):
        doubles = flat.astype(np.float64)
    numbers = cast("list[float]", doubles.tolist())
    if element_type in ("f32", "f64"):
        short = [f"{number:.{6 if element_type == 'f32' else 15}g}" for number in numbers]
        with np.errstate(all="ignore"):
            again = np.array(list(map(float, short)), np.float64).astype(flat.dtype)
        for i in np.flatnonzero(~(again == flat)).tolist():
            short[i] = f"{numbers[i]:.{form.digits}g}"
        words = short
    else:
        words = [f"{number:.{form.digits}g}" for number in numbers]
    for i in np.flatnonzero(np.isnan(doubles)).tolist():
        raw = int(flat[i : i + 1].view(f"u{flat.dtype.itemsize}")[0])
        sign = "-" if raw >> (8 * flat.dtype.itemsize - 1) and element_type != "f8e8m0fnu" else ""
        payload = raw & ((1 << form.payload_bits) - 1)
        quiet = not form.payload_bits or payload == 1 << (form.payload_bits - 1)
        words[i] = f"{sign}nan" if quiet else f"{sign}nan({payload:#x})"
    return words


def _nested(words: list[str], dimensions: tuple[int, ...]) -> str:
    rank = len(dimensions)
    if rank == 1:
        return "{" + ", ".join(words) + "}"
    last = dimensions[-1]
    blank = " " if last > 1 else ""
    count = 1
    for size in dimensions[:-1]:
        count *= size
    rows = ["{" + blank + ", ".join(words[i * last : (i + 1) * last]) + blank + "}" for i in range(count)]
    for level in range(rank - 2, -1, -1):
        size = dimensions[level]
        count = 1
        for outer in dimensions[:level]:
            count *= outer
        # From rank 4 on, each opening brace inside says which index it is.
        labelled = rank > 3 and level > 0
        inner = " " if size or not labelled else ""
        rows = [
            "{"
            + (f" /*i{level - 1}={i % dimensions[level - 1]}*/" if labelled else "")
            + inner
            + ", ".join(rows[i * size : (i + 1) * size])
            + " }"
            for i in range(count)
        ]
    return rows[0]
