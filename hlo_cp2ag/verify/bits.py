"""Constants in the symbolic domain: bit patterns as codes, and back.

Patterns of up to 32 bits are their own codes, negated; wider ones are numbered as they are met.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import from_bits, to_bits
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.verify.symbols import Axis, Symbols, empty, require_room

_FIRST_WIDE = 1 << 40
_numbers: dict[int, int] = {}
_patterns: list[int] = []


def codes_of_bits(array: Array, element_type: str, expanded: bool = False) -> Symbols:
    """An executor's array `[1 or devices, *dimensions]` as codes; axes that it only shows many times are affine."""
    if array.size == 0:
        return empty(array.shape[1:])
    base = array
    dims: list[tuple[Axis, ...]] = []
    for dim, size in enumerate(array.shape[1:]):
        if size == 1:
            dims.append(())
        elif array.strides[dim + 1] == 0 and not expanded:
            dims.append((Axis(size, 0),))
            base = base[(slice(None),) * (dim + 1) + (slice(0, 1),)]
        else:
            dims.append((Axis(size),))
    require_room(base.size)
    codes = _codes(to_bits(base, element_type), element_type == "c128")
    shape = [base.shape[0], *(1 if a.stride is not None else a.size for dim in dims for a in dim)]
    return Symbols(codes.reshape(shape), tuple(dims))


def _codes(bits: Array, pairs: bool) -> Array:
    if not pairs and bits.dtype.itemsize <= 4:
        result: Array = -bits.astype(np.int64)
        return result
    if not pairs and not bits.any():
        return np.zeros(bits.shape, np.int64)
    wide = bits
    if pairs:
        wide = bits.astype(object)
        wide = wide[..., 0] + (wide[..., 1] << 64)
    patterns, back = np.unique(wide.reshape(-1), return_inverse=True)
    numbers = np.array([_number(int(pattern)) for pattern in patterns], np.int64)
    found: Array = numbers[back.reshape(-1)].reshape(wide.shape)
    return found


def _number(pattern: int) -> int:
    if pattern < _FIRST_WIDE:
        return -pattern
    if pattern not in _numbers:
        _numbers[pattern] = -_FIRST_WIDE - len(_patterns)
        _patterns.append(pattern)
    return _numbers[pattern]


def pattern_of(code: int) -> int:
    """The bits that a code of Bits stands for."""
    return -code if -code < _FIRST_WIDE else _patterns[-code - _FIRST_WIDE]


def bits_of_codes(codes: Array) -> Array:
    """The patterns of codes of Bits, as Python integers in an object array."""
    flat = [pattern_of(int(code)) for code in codes.reshape(-1)]
    result: Array = np.array(flat, object).reshape(codes.shape)
    return result


def array_of_bits(patterns: Array, element_type: str) -> Array:
    """Elements of a type with the given bits."""
    from hlo_cp2ag.ir.element_types import dtype_of

    width = dtype_of(element_type).itemsize
    if element_type == "c128":
        pairs = [[int(p) & ((1 << 64) - 1), int(p) >> 64] for p in patterns.reshape(-1)]
        return from_bits(np.array(pairs, np.uint64).reshape(*patterns.shape, 2), element_type)
    flat = np.array([int(p) for p in patterns.reshape(-1)], np.uint64).astype(f"u{width}")
    return from_bits(flat.reshape(patterns.shape), element_type)


def array_of_symbols(x: Symbols, element_type: str) -> Array | None:
    """A traced array whose elements all are Bits, as the executor's array; None if there is anything else, or a lot."""
    if x.is_empty or math.prod(x.codes.shape) > 1 << 16 or (x.codes > 0).any() or x.has_unknown or x.conversions:
        return None
    base = array_of_bits(bits_of_codes(x.codes), element_type)
    shape = [base.shape[0], *(a.size for a in x.axes)]
    return cast(Array, np.broadcast_to(base, shape).reshape(base.shape[0], *x.dimensions))
