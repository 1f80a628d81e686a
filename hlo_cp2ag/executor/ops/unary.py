"""Elementwise ops of one operand that are not transcendental: signs, rounding, bits, parts of complex numbers."""

from __future__ import annotations

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift, lower, to_bits
from hlo_cp2ag.executor.ops.elementwise import UNARY, make_complex, unary, widen
from hlo_cp2ag.executor.registry import Context, array_shape, op
from hlo_cp2ag.executor.values import Array, Value, array_shape_of
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import element_bits, is_complex


def operand_type(context: Context, instruction: Instruction, number: int = 0) -> str:
    """The element type of an operand."""
    return array_shape_of(context.operand_shapes(instruction)[number]).element_type


@unary("negate")
def negate(x: Array) -> Array:
    """Semantics: XLA operation semantics, Neg; integers wrap."""
    return x if x.dtype == np.bool_ else np.negative(x)


@op("abs")
def abs_(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, Abs: of a complex number its length, of the least integer itself."""
    element_type = operand_type(context, instruction)
    if is_complex(element_type):
        wide = widen(x)
        result: Array = np.hypot(wide.real, wide.imag).astype(dtype_of(array_shape(instruction).element_type))
        return result
    return lower(np.abs(lift(x, element_type)), array_shape(instruction).element_type)


UNARY["abs"] = lambda x, element_type: lower(np.abs(lift(x, element_type)), element_type)


@unary("sign")
def sign(x: Array) -> Array:
    """Semantics: XLA operation semantics, Sign: keeps zeros and NaNs; of a complex number x / |x|."""
    if x.dtype.kind == "c":
        wide = widen(x)
        length = np.hypot(wide.real, wide.imag)
        divisor = np.where(length == 0, 1, length)
        unit = make_complex(wide.real / divisor, wide.imag / divisor, wide.dtype)
        return np.where(length == 0, wide, unit)
    if x.dtype.kind == "f":
        return np.where((x == 0) | np.isnan(x), x, np.copysign(x.dtype.type(1), x))
    return np.sign(x)


@unary("floor")
def floor(x: Array) -> Array:
    """Semantics: XLA operation semantics, Floor."""
    return np.floor(x)


@unary("ceil")
def ceil(x: Array) -> Array:
    """Semantics: XLA operation semantics, Ceil."""
    return np.ceil(x)


@unary("round-nearest-afz")
def round_nearest_afz(x: Array) -> Array:
    """Semantics: XLA operation semantics, Round: halves go away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


@unary("round-nearest-even")
def round_nearest_even(x: Array) -> Array:
    """Semantics: XLA operation semantics, RoundNearestEven."""
    return np.rint(x)


@unary("not")
def not_(x: Array) -> Array:
    """Semantics: XLA operation semantics, Not: of pred the logical one, of integers every bit."""
    return ~x


@op("popcnt")
def popcnt(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, PopulationCount: how many bits are set."""
    element_type = array_shape(instruction).element_type
    bits = to_bits(x, element_type)
    if hasattr(np, "bitwise_count"):
        return lower(np.bitwise_count(bits).astype(np.int32), element_type)
    count = np.zeros(bits.shape, np.int32)
    for place in range(element_bits(element_type)):
        count += ((bits >> bits.dtype.type(place)) & bits.dtype.type(1)).astype(np.int32)
    return lower(count, element_type)


@op("count-leading-zeros")
def count_leading_zeros(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, Clz: zeros above the highest bit that is set, the width for 0."""
    element_type = array_shape(instruction).element_type
    bits = to_bits(x, element_type).astype(np.uint64)
    length = np.zeros(bits.shape, np.int32)
    for step in (32, 16, 8, 4, 2, 1):
        high = (bits >> np.uint64(step)) != 0
        length += np.where(high, step, 0).astype(np.int32)
        bits = np.where(high, bits >> np.uint64(step), bits)
    length += (bits != 0).astype(np.int32)
    return lower(element_bits(element_type) - length, element_type)


@op("is-finite")
def is_finite(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, IsFinite: neither infinite nor NaN."""
    return np.isfinite(lift(x, operand_type(context, instruction)))


@op("real")
def real(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, Real: the real part; of a real number itself."""
    return np.ascontiguousarray(x.real).reshape(x.shape) if x.dtype.kind == "c" else x


@op("imag")
def imag(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, Imag: the imaginary part; of a real number 0."""
    return np.ascontiguousarray(x.imag).reshape(x.shape) if x.dtype.kind == "c" else np.zeros_like(x)


@op("copy", "opt-barrier", "domain")
def copy(context: Context, instruction: Instruction, operand: Value) -> Value:
    """Semantics: XLA operation semantics, Copy and OptimizationBarrier: the operand, since values never change."""
    return operand
