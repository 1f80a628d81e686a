"""Whether two symbolic values are equal on all devices, and where they first are not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hlo_cp2ag.executor.values import Array, Token, array_shape_of
from hlo_cp2ag.ir.shape import Shape, TupleShape
from hlo_cp2ag.verify import symbols
from hlo_cp2ag.verify.bits import codes_of_bits
from hlo_cp2ag.verify.movement import Moved
from hlo_cp2ag.verify.symbols import UNKNOWN, Symbols


@dataclass(frozen=True)
class Disagreement:
    """Where two values are not shown to be equal."""

    refuted: bool
    """Whether they differ for certain: two different pieces of data, or of bits."""
    why: str = ""
    """Why nothing is known, if it is so."""
    element: tuple[int, ...] = ()
    """The leaf of a tuple."""
    device: int = 0
    index: tuple[int, ...] = ()
    expected: int = 0
    """The code in the first value."""
    got: int = 0
    devices: tuple[int, ...] = ()
    """All devices that differ (in this leaf)."""


def as_symbols(value: Moved, shape: Shape) -> Symbols:
    """A value that is no tuple as Symbols."""
    if isinstance(value, Symbols):
        return value
    assert isinstance(value, np.ndarray)
    return codes_of_bits(value, array_shape_of(shape).element_type)


def disagreement(a: Moved, b: Moved, shape: Shape, lanes: Array | None = None) -> Disagreement | None:
    """None if two values of a shape are equal on all devices, or those of `lanes`, for all data. Raises TooLarge."""
    if isinstance(shape, TupleShape):
        assert isinstance(a, tuple) and isinstance(b, tuple)
        for number, element in enumerate(shape.elements):
            found = disagreement(a[number], b[number], element, lanes)
            if found is not None:
                return Disagreement(
                    found.refuted, found.why, (number, *found.element), found.device, found.index, found.expected,
                    found.got, found.devices,
                )  # fmt: skip
        return None
    if isinstance(a, Token) or isinstance(b, Token):
        return None
    x, y = as_symbols(a, shape), as_symbols(b, shape)
    if x.is_empty:
        return None
    if not symbols.same_conversions([x, y]):
        return Disagreement(False, "the elements are converted to another type")
    (p, q), dims = symbols.unify([x, y])
    unknown = (p == UNKNOWN) | (q == UNKNOWN)
    differ = (p != q) | unknown
    if lanes is not None and differ.shape[0] > 1:
        differ = differ & lanes.reshape(-1, *[1] * (differ.ndim - 1))
    if not differ.any():
        return None
    refuted = differ & ~unknown
    where = refuted if refuted.any() else differ
    devices = np.flatnonzero(where.reshape(where.shape[0], -1).any(axis=1))
    lane = int(devices[0])
    first = np.unravel_index(int(np.flatnonzero(where[lane].reshape(-1))[0]), where.shape[1:]) if where.ndim > 1 else ()
    coordinates = [int(c) for c in first]
    at = (lane, *coordinates)
    p, q = (np.broadcast_to(c, where.shape) for c in (p, q))
    why = "" if refuted.any() else (x.why or y.why or "the elements are not traced")
    which = tuple(devices.tolist()) if where.shape[0] > 1 else ()
    index = _index(coordinates, dims)
    return Disagreement(bool(refuted.any()), why, (), lane, index, int(p[at]), int(q[at]), which)


def _index(coordinates: list[int], dims: tuple[symbols.Dimension, ...]) -> tuple[int, ...]:
    result: list[int] = []
    at = 0
    for dim in dims:
        place = 0
        for axis in dim:
            place = place * axis.size + coordinates[at]
            at += 1
        result.append(place)
    return tuple(result)


def fingerprint(value: Moved, shape: Shape, devices: int, lanes: Array | None = None) -> bytes | None:
    """Bytes that are equal for values equal on all devices, or those of `lanes`; None for a value that equals none."""
    if isinstance(shape, TupleShape):
        assert isinstance(value, tuple)
        parts = [fingerprint(v, s, devices, lanes) for v, s in zip(value, shape.elements, strict=True)]
        return None if None in parts else b"|".join(part for part in parts if part is not None)
    if isinstance(value, Token):  # it says what was done before, which no value does
        return None
    if isinstance(value, np.ndarray):
        if value.size == 0:
            return b"empty"
        pieces = []
        for share in _SHARES:
            where = [slice(None), *(slice(p, p + 1) for p in _place(value.shape[1:], share))]
            one = value[tuple(where)]
            codes = as_symbols(one, shape).codes.reshape(-1)
            pieces.append(_of_lanes(codes, devices, lanes).tobytes())
        return repr(()).encode() + b"".join(pieces)
    assert isinstance(value, Symbols)
    x = value
    if x.is_empty:
        return b"empty"
    pieces = []
    for share in _SHARES:
        codes = _of_lanes(element(x, _place(x.dimensions, share)), devices, lanes)
        if (codes == UNKNOWN).any():
            return None
        pieces.append(codes.tobytes())
    return repr(x.conversions if x.has_data else ()).encode() + b"".join(pieces)


def _of_lanes(codes: Array, devices: int, lanes: Array | None) -> Array:
    every: Array = np.broadcast_to(codes, (devices,))
    return every if lanes is None else every[lanes]


_SHARES = (0.0, 1.0, 0.37)


def _place(dimensions: tuple[int, ...], share: float) -> list[int]:
    return [round(share * (n - 1)) for n in dimensions]


def element(x: Symbols, index: list[int]) -> Array:
    """The codes `[1 or devices]` of one element."""
    codes = x.codes
    for dim, place in zip(x.dims, index, strict=True):
        for number, axis in enumerate(dim):
            inner = math.prod(a.size for a in dim[number + 1 :])
            own = place // inner % axis.size
            if axis.stride is None:
                codes = codes[:, own]
            else:
                codes = symbols.shift(codes[:, 0], own * axis.stride)
    return codes
