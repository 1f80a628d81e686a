"""Computing in XLA's element types with numpy: wide enough inside, rounded or wrapped after every op.

Floats narrower than f32 are computed in f32 and rounded to nearest even: f32 has at least 2p + 2 bits for their p, so
that rounding twice gives what rounding once does for + - * / and sqrt. Integers narrower than a byte are computed in
s32 or u32 and wrapped.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.shape import element_bits, is_floating, is_integer


@lru_cache(maxsize=64)
def compute_dtype(element_type: str) -> np.dtype[np.generic]:
    """The dtype that an element type is computed in."""
    if is_floating(element_type) and element_type not in ("f32", "f64"):
        return np.dtype(np.float32)
    if is_integer(element_type) and element_bits(element_type) < 8:
        return np.dtype(np.int32 if element_type[0] == "s" else np.uint32)
    return dtype_of(element_type)


def lift(array: Array, element_type: str) -> Array:
    """The array in the dtype that `element_type` is computed in; the array itself where it is there already."""
    return array.astype(compute_dtype(element_type), copy=False)


def lower(array: Array, element_type: str) -> Array:
    """An array computed in the lifted dtype (or a wider one of its kind) as `element_type`: rounded, or wrapped."""
    target = dtype_of(element_type)
    if array.dtype == target:
        return array
    if is_integer(element_type):
        return wrap(array, element_type)
    if is_floating(element_type):
        return round_to(array, element_type)
    with np.errstate(all="ignore"):
        return array.astype(target)


def round_to(array: Array, element_type: str) -> Array:
    """f32 or f64 numbers rounded to nearest even in a floating-point type.

    f64 becomes f16 and bf16 by way of f32, as in XLA, and everything narrower directly. f4 types have no NaN: XLA's
    conversion makes it -0.
    """
    target = dtype_of(element_type)
    with np.errstate(all="ignore"):
        if array.dtype == np.float64 and element_bits(element_type) < 32:
            array = array.astype(np.float32) if element_bits(element_type) == 16 else _round_to_odd(array)
        result = array.astype(target)
        if element_bits(element_type) < 8:
            nan = np.isnan(array)
            if nan.any():
                result = np.where(nan, target.type(-0.0), result)
    return result


def _round_to_odd(array: Array) -> Array:
    """f64 numbers as f32 ones from which rounding to fewer bits gives what rounding the f64 numbers gives."""
    single = array.astype(np.float32)
    back = single.astype(np.float64)
    inexact = np.isfinite(single) & np.isfinite(array) & (back != array)
    bits = single.view(np.uint32)
    # The last bit of the neighbour towards zero is set: it lies strictly between the same two narrow numbers.
    inward = inexact & (np.abs(back) > np.abs(array))
    return np.asarray((bits - inward.astype(np.uint32)) | inexact.astype(np.uint32)).view(np.float32)


def wrap(array: Array, element_type: str) -> Array:
    """Integers cut to the bits of an integer type: modulo 2^bits."""
    bits = element_bits(element_type)
    target = dtype_of(element_type)
    if bits >= 8:
        return array.astype(target)
    if element_type[0] == "u":
        found: Array = (array & array.dtype.type((1 << bits) - 1)).astype(np.uint8).astype(target)
        return found
    low = array.astype(np.int8)  # two's complement: the low eight bits
    shift = np.int8(8 - bits)
    result: Array = ((low << shift) >> shift).astype(target)
    return result


def to_bits(array: Array, element_type: str) -> Array:
    """The elements' own bits as unsigned integers (s4: 0..15 in u8); c64 and c128 as u64 and as pairs of u64."""
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    if element_type == "c128":
        pairs: Array = contiguous[..., np.newaxis].view(np.uint64)
        return pairs
    raw = contiguous.view(f"u{array.dtype.itemsize}")
    bits = element_bits(element_type)
    result: Array = raw & np.uint8((1 << bits) - 1) if bits < 8 else raw
    return result


def from_bits(bits: Array, element_type: str) -> Array:
    """The inverse of `to_bits`."""
    target = dtype_of(element_type)
    if element_type == "c128":
        return np.ascontiguousarray(bits).view(target)[..., 0]
    if element_type == "pred":
        return np.asarray(bits != 0)
    if is_integer(element_type) and element_bits(element_type) < 8:
        return wrap(bits, element_type)
    result: Array = np.ascontiguousarray(bits).reshape(bits.shape).view(target)
    return result
