"""What instructions compute: arrays with a leading lane axis, tuples, tokens.

An array value has the shape `[lanes, *dimensions]`. The lane axis has length 1 while all devices agree and the number
of lanes once they differ. Values are immutable by convention: several names may share one array's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, Union

import numpy as np

from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.shape import ArrayShape, BufferShape, Shape, TupleShape

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""A numpy array `[lanes, *dimensions]` with `lanes` 1 or n."""


class Bounded(np.ndarray[Any, Any]):
    """An array whose dimensions may hold fewer elements than they have room for; what is behind them does not count.

    Most numpy functions give plain arrays of it; `bounded` makes one.
    """

    sizes: dict[int, Array]
    """By dimension: how many of its elements are there, s64 `[lanes]`, for those that may have fewer."""

    def __array_finalize__(self, other: object) -> None:
        """A view of it says nothing of sizes by itself."""
        self.sizes = {}


def bounded(array: Array, sizes: dict[int, Array]) -> Array:
    """The array with sizes, a plain one if there are none."""
    plain = array.view(np.ndarray)
    if not sizes:
        return plain
    made = plain.view(Bounded)
    made.sizes = dict(sizes)
    return made


def sizes_of(value: object) -> dict[int, Array]:
    """The sizes of a value's dimensions that may hold fewer elements than they have room for."""
    return value.sizes if isinstance(value, Bounded) else {}


class Token:
    """The value of a `token[]`; there is one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "TOKEN"


TOKEN = Token()

Value: TypeAlias = Union[Array, Token, "tuple[Value, ...]"]


def leaves(value: Value) -> Iterator[Array | Token]:
    """A value's arrays and tokens in order."""
    if isinstance(value, tuple):
        for element in value:
            yield from leaves(element)
    else:
        yield value


def map_arrays(function: Callable[..., Array], value: Value, *others: Value) -> Value:
    """`function` applied to every array of one or more values of the same structure."""
    if isinstance(value, tuple):
        return tuple(
            map_arrays(function, element, *(other[i] for other in others if isinstance(other, tuple)))
            for i, element in enumerate(value)
        )
    return value if isinstance(value, Token) else function(value, *others)


def lane_count(*values: Value) -> int:
    """The longest lane axis among the values; 1 if they have no arrays."""
    return max((leaf.shape[0] for value in values for leaf in leaves(value) if not isinstance(leaf, Token)), default=1)


def expand(array: Array, lanes: int) -> Array:
    """The array with a lane axis of `lanes`, a read-only view if it had one of length 1."""
    return array if array.shape[0] == lanes else np.broadcast_to(array, (lanes, *array.shape[1:]))


def align(*arrays: Array) -> tuple[Array, ...]:
    """The arrays with lane axes of one length, the longest among them; views where they had length 1."""
    lanes = max(array.shape[0] for array in arrays)
    return tuple(expand(array, lanes) for array in arrays)


def bits_of(array: Array) -> Array:
    """The elements as unsigned integers, of complex numbers bytes in a further dimension; maybe a view."""
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.kind == "c":
        special: Array = contiguous[..., np.newaxis].view(np.uint8)
        return special
    result: Array = contiguous.view(f"u{array.dtype.itemsize}")
    return result


def collapse(array: Array) -> Array:
    """The array with a lane axis of length 1 if all lanes have the same bits, else the array itself.

    It takes no more memory than one lane, or a small block of them.
    """
    if array.shape[0] <= 1:
        return array
    first = array[:1]
    if array.strides[0] == 0:  # one lane, shown many times
        return first
    bits = bits_of(first)
    # Most arrays that differ do so in the second lane already; later blocks hold many lanes if lanes are small.
    start, count = 1, 1
    while start < array.shape[0]:
        block = bits_of(array[start : start + count])
        if not (block == bits).all():
            return array
        start, count = start + count, max(1, _BLOCK // max(1, first.nbytes))
    return first


_BLOCK = 1 << 20
"""Bytes that `collapse` compares at once, where a lane is no larger."""


def choose(mask: Array, chosen: Value, other: Value) -> Value:
    """Lane by lane `chosen` where the bool array `mask` `[lanes]` is true, else `other`, of the same structure."""

    def pick(a: Array, b: Array) -> Array:
        if a is b:
            return a
        sizes = {
            d: np.where(mask, *(sizes_of(x).get(d, np.full(1, x.shape[d + 1])) for x in (a, b)))
            for d in sorted({*sizes_of(a), *sizes_of(b)})
        }
        a, b = (expand(x.view(np.ndarray), mask.shape[0]) for x in (a, b))
        found = np.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b)
        return bounded(found, sizes)

    return map_arrays(pick, chosen, other)


def zeros(shape: Shape) -> Value:
    """A value of a shape with all bits 0, the same on all lanes."""
    if isinstance(shape, TupleShape):
        return tuple(zeros(element) for element in shape.elements)
    array = shape.array if isinstance(shape, BufferShape) else shape
    if not array.is_data:
        return TOKEN
    raw = np.zeros((1, *array.dimensions, dtype_of(array.element_type).itemsize), np.uint8)
    return raw.view(dtype_of(array.element_type)).reshape(1, *array.dimensions)


def array_shape_of(shape: Shape) -> ArrayShape:
    """The shape, which has to be an array's or a buffer's."""
    if isinstance(shape, BufferShape):
        return shape.array
    assert isinstance(shape, ArrayShape), f"{shape.to_text()} is no array"
    return shape


def check_value(value: Value, shape: Shape, lanes: Sequence[int]) -> str | None:
    """None if a value fits its shape and its lane axes have one of the given lengths, else what is wrong."""
    if isinstance(shape, TupleShape):
        if not isinstance(value, tuple) or len(value) != len(shape.elements):
            return f"no tuple of {len(shape.elements)}"
        for element, element_shape in zip(value, shape.elements, strict=True):
            wrong = check_value(element, element_shape, lanes)
            if wrong:
                return wrong
        return None
    array = array_shape_of(shape)
    if not array.is_data:
        return None if isinstance(value, Token) else "no token"
    if not isinstance(value, np.ndarray):
        return "no array"
    if value.ndim != array.rank + 1 or value.shape[1:] != array.dimensions or value.shape[0] not in lanes:
        return f"an array {list(value.shape)} for {array.to_text(False)}"
    if value.dtype != dtype_of(array.element_type):
        return f"elements of {value.dtype} for {array.to_text(False)}"
    return None
