"""Where the outputs of two modules differ: bit for bit, or by more than a tolerance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_cp2ag.executor.arithmetic import to_bits
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.literal import element_words
from hlo_cp2ag.ir.shape import ArrayShape, is_complex, is_floating

_BLOCK = 1 << 18
"""Elements that are compared at once."""


@dataclass(frozen=True)
class Difference:
    """The smallest counterexample: the first device that has one, there the first output, in that the first element."""

    device: int
    output: int
    """The number of the result's leaf, tokens not counted."""
    index: tuple[int, ...]
    """The first element that differs, row-major; empty for a scalar."""
    before: str
    after: str
    """The two elements as XLA prints them, with their bits where both print alike."""
    count: int
    """How many elements of this output differ, over all devices."""
    outputs: tuple[int, ...]
    """Every output that differs somewhere."""


def find_difference(
    before: Sequence[Array], after: Sequence[Array], shapes: Sequence[ArrayShape], tolerance: float | None = None
) -> Difference | None:
    """The smallest difference between outputs `[devices, *dimensions]` of the given shapes; None if there is none.

    Without a tolerance elements are equal if all their bits are: -0.0 differs from 0.0, and NaNs with other payloads
    differ. A tolerance t, for floating-point and complex types alone, lets |a - b| <= t * max(1, |a|) pass, where a is
    `before`'s, and equal numbers, and any two NaNs; an infinity equals only itself.
    """
    found: list[tuple[int, int, int, int]] = []  # device, output, place, count
    for output, (a, b, shape) in enumerate(zip(before, after, shapes, strict=True)):
        first = None
        count = 0
        for device, weight in _devices(a, b):
            for start, differs in _blocks(a[device], b[device], shape.element_type, tolerance):
                here = int(np.count_nonzero(differs))
                if here and first is None:
                    first = (device, start + int(differs.argmax()))
                count += here * weight
        if first is not None:
            found.append((first[0], output, first[1], count))
    if not found:
        return None
    device, output, place, count = min(found)
    shape = shapes[output]
    index = tuple(map(int, np.unravel_index(place, shape.dimensions))) if shape.dimensions else ()
    old, new = _words(before[output][device][index], after[output][device][index], shape.element_type)
    return Difference(device, output, index, old, new, count, tuple(one[1] for one in found))


def _devices(a: Array, b: Array) -> Iterator[tuple[int, int]]:
    """The devices to compare, and how many each of them stands for."""
    if a.shape[0] > 1 and a.strides[0] == 0 and b.strides[0] == 0:  # one device's array, shown many times
        yield 0, a.shape[0]
    else:
        yield from ((device, 1) for device in range(a.shape[0]))


def _blocks(a: Array, b: Array, element_type: str, tolerance: float | None) -> Iterator[tuple[int, Array]]:
    """Which elements of two arrays differ, row-major, a block at a time: where it starts, and a flat bool array."""
    a, b = a.reshape(-1), b.reshape(-1)
    differ = _beyond if tolerance is not None and (is_floating(element_type) or is_complex(element_type)) else _bitwise
    for start in range(0, a.size, _BLOCK):
        yield start, differ(a[start : start + _BLOCK], b[start : start + _BLOCK], element_type, tolerance or 0.0)


def _bitwise(a: Array, b: Array, element_type: str, _: float) -> Array:
    differs: Array = to_bits(a, element_type) != to_bits(b, element_type)
    if differs.ndim > 1:  # c128 has two words
        differs = np.any(differs, axis=-1)
    return differs


def _beyond(a: Array, b: Array, element_type: str, tolerance: float) -> Array:
    wide = np.complex128 if is_complex(element_type) else np.float64
    with np.errstate(all="ignore"):
        a, b = a.astype(wide), b.astype(wide)
        finite = np.isfinite(a) & np.isfinite(b)
        near = finite & (np.abs(a - b) <= tolerance * np.maximum(1.0, np.abs(a)))
    result: Array = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
    return result


def _words(before: object, after: object, element_type: str) -> tuple[str, str]:
    arrays = [np.asarray(element).reshape(1) for element in (before, after)]
    words = [element_words(array, element_type)[0] for array in arrays]
    if element_type == "pred":
        words = [("false", "true")[int(word)] for word in words]
    if words[0] == words[1]:
        words = [f"{word} (bits {_hex(array, element_type)})" for word, array in zip(words, arrays, strict=True)]
    return words[0], words[1]


def _hex(array: Array, element_type: str) -> str:
    """The element's bits; of a complex number the real part's, then the imaginary part's."""
    part = array
    if is_complex(element_type):
        part = array.view(np.float32 if element_type == "c64" else np.float64)
        bits = part.view(f"u{part.dtype.itemsize}")
    else:
        bits = to_bits(part, element_type)
    width = 2 * part.dtype.itemsize
    return ", ".join(f"{number:#0{width + 2}x}" for number in bits.reshape(-1).tolist())
