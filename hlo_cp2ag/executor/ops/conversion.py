"""From one element type to another: convert, reduce-precision, bitcast-convert, bitcast."""

from __future__ import annotations

import numpy as np

from hlo_cp2ag.executor.arithmetic import from_bits, lift, round_to, to_bits, wrap
from hlo_cp2ag.executor.layouts import major_to_minor, memory_places, tiles_of
from hlo_cp2ag.executor.ops.elementwise import as_type
from hlo_cp2ag.executor.ops.unary import operand_type
from hlo_cp2ag.executor.registry import Context, array_shape, integer, op
from hlo_cp2ag.executor.values import Array, Value, array_shape_of
from hlo_cp2ag.ir.element_types import complex_part, dtype_of, integer_range
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import ArrayShape, element_bits, is_complex, is_floating, is_integer

# ---- convert ---------------------------------------------------------------------------------------------------------


@op("convert")
def convert(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, ConvertElementType.

    Floats become integers by truncation, what is too large becomes the largest (the least) integer, NaN 0. Integers
    wrap, and become floats by rounding to nearest even. Anything but 0 is true. Complex numbers lose their imaginary
    part.
    """
    return convert_array(x, operand_type(context, instruction), array_shape(instruction).element_type)


def convert_array(x: Array, source: str, target: str) -> Array:
    """The array's elements, of the type `source`, as `target`."""
    if source == target:
        return x
    if is_complex(source) and not is_complex(target):
        return convert_array(np.ascontiguousarray(x.real).reshape(x.shape), complex_part(source), target)
    if target == "pred":
        return np.asarray(lift(x, source) != 0)
    if is_integer(target):
        if is_floating(source):
            return float_to_integer(lift(x, source), target)
        return wrap(lift(x, source).astype(np.int64) if source == "pred" else lift(x, source), target)
    if is_complex(target):
        part = complex_part(target)
        with np.errstate(all="ignore"):
            return (x if is_complex(source) else convert_array(x, source, part)).astype(dtype_of(target))
    x = lift(x, source)
    if not is_floating(source):
        x = x.astype(np.float64 if target == "f64" else np.float32)
    return round_to(x, target)


def float_to_integer(x: Array, target: str) -> Array:
    """Truncated, cut to the type's range, NaN as 0. `x` is f32 or f64."""
    low, high = integer_range(target)
    wide = np.dtype(np.uint64 if target == "u64" else np.int64)
    x = x.astype(np.float64)
    nan = np.isnan(x)
    below, above = x <= float(low), x >= float(high)  # float(2^63 - 1) is 2^63: everything from there on is too large
    inside = np.where(nan | below | above, 0.0, x).astype(wide)
    result = np.where(below, wide.type(low), np.where(above, wide.type(high), inside))
    return wrap(np.where(nan, wide.type(0), result), target)


# ---- reduce-precision ------------------------------------------------------------------------------------------------

_MANTISSA_BITS = {
    "f64": 52, "f32": 23, "f16": 10, "bf16": 7, "f8e5m2": 2, "f8e4m3": 3, "f8e4m3fn": 3, "f8e3m4": 4,
    "f8e4m3b11fnuz": 3, "f8e4m3fnuz": 3, "f8e5m2fnuz": 2, "f4e2m1fn": 1,
}  # fmt: skip


@op("reduce-precision")
def reduce_precision(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, ReducePrecision: rounded to nearest even to a format with fewer bits.

    What the format's exponents cannot hold becomes infinite or zero (there are no denormals); NaN stays as it is.
    """
    exponent_bits, mantissa_bits = integer(instruction, "exponent_bits"), integer(instruction, "mantissa_bits")
    element_type = array_shape_of(context.operand_shapes(instruction)[0]).element_type
    width, own_mantissa = element_bits(element_type), _MANTISSA_BITS[element_type]
    own_exponent = width - 1 - own_mantissa
    bits = to_bits(x, element_type)
    one = bits.dtype.type(1)
    rounded = bits
    if mantissa_bits < own_mantissa:
        dropped = bits.dtype.type(own_mantissa - mantissa_bits)
        last = (bits >> dropped) & one
        half = (one << (dropped - one)) - one
        rounded = (bits + half + last) & ~((one << dropped) - one)
    if exponent_bits < own_exponent:
        sign = bits & (one << bits.dtype.type(width - 1))
        field = bits.dtype.type(((1 << own_exponent) - 1) << own_mantissa)
        exponent = rounded & field
        bias, small_bias = (1 << (own_exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        too_large = exponent > bits.dtype.type((bias + small_bias) << own_mantissa)
        too_small = exponent <= bits.dtype.type((bias - small_bias) << own_mantissa)
        rounded = np.where(too_large, sign | field, np.where(too_small, sign, rounded))
    result = from_bits(rounded.astype(bits.dtype), element_type)
    nan = np.isnan(lift(x, element_type))
    return as_type(np.where(nan, x, result) if nan.any() else result, array_shape(instruction).element_type)


# ---- bits ------------------------------------------------------------------------------------------------------------


@op("bitcast-convert")
def bitcast_convert(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, BitcastConvertType: the same bits, the lowest first.

    A narrower type gets a new last dimension, a wider one swallows the last dimension.
    """
    operand = array_shape_of(context.operand_shapes(instruction)[0])
    return reinterpret(x, operand.element_type, array_shape(instruction))


def reinterpret(x: Array, source: str, result: ArrayShape) -> Array:
    """The bits of `x` in row-major order as elements of another type and dimensions; lanes stay apart."""
    target = result.element_type
    if source == target:
        found: Array = x.reshape(x.shape[0], *result.dimensions)
        return found
    shape = (x.shape[0], *result.dimensions)
    old, new = element_bits(source), element_bits(target)
    if old == new and old < 8:
        return from_bits(to_bits(x, source), target).reshape(shape)
    if old >= 8 and new >= 8:
        packed = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
        elements = packed != 0 if target == "pred" else packed.view(dtype_of(target))
        return elements.reshape(shape)
    return from_bits(_pack(_unpack(to_bits(x, source).reshape(-1), old), new), target).reshape(shape)


def _unpack(bits: Array, width: int) -> Array:
    """Single bits, the lowest first, of unsigned integers of `width` bits."""
    if width >= 8:
        return np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), bitorder="little")
    return np.unpackbits(bits.reshape(-1, 1), axis=1, count=width, bitorder="little").reshape(-1)


def _pack(single: Array, width: int) -> Array:
    """The inverse of `_unpack`."""
    if width >= 8:
        return np.packbits(single, bitorder="little").view(f"u{width // 8}" if width <= 64 else np.uint64)
    return np.packbits(single.reshape(-1, width), axis=1, bitorder="little").reshape(-1)


@op("bitcast")
def bitcast(context: Context, instruction: Instruction, x: Value) -> Value:
    """Semantics: XLA operation semantics, Bitcast: the same memory, read in the result's layout and element type.

    Where both layouts have the same plain order of elements no tile matters; else places of memory that hold padding in
    the operand and elements in the result read as 0. Between element types of different widths tiles are left aside.
    """
    operand, result = context.operand_shapes(instruction)[0], instruction.shape
    if not isinstance(operand, ArrayShape) or not isinstance(result, ArrayShape) or not isinstance(x, np.ndarray):
        return x
    if element_bits(operand.element_type) == element_bits(result.element_type) and _tiles_matter(operand, result):
        return _through_memory(context, instruction, x, operand, result)
    memory = x.transpose(0, *(d + 1 for d in major_to_minor(operand)))
    order = major_to_minor(result)
    physical = ArrayShape(result.element_type, tuple(result.dimensions[d] for d in order))
    elements = reinterpret(memory, operand.element_type, physical)
    places = {dimension: place for place, dimension in enumerate(order)}
    found: Array = elements.transpose(0, *(places[d] + 1 for d in range(result.rank)))
    return found


def _tiles_matter(operand: ArrayShape, result: ArrayShape) -> bool:
    if not tiles_of(operand) and not tiles_of(result):
        return False
    same_order = operand.dimensions == result.dimensions and major_to_minor(operand) == major_to_minor(result)
    return not (same_order and tiles_of(operand) == tiles_of(result))


def _through_memory(
    context: Context, instruction: Instruction, x: Array, operand: ArrayShape, result: ArrayShape
) -> Array:
    """Elements by way of the places in memory that both layouts give them."""

    def make() -> tuple[Array, Array]:
        held, wanted = memory_places(operand), memory_places(result)
        source = np.full(result.element_count, -1)
        count = min(held.size, wanted.size)
        is_element = wanted[:count] >= 0
        source[wanted[:count][is_element]] = held[:count][is_element]
        return source, source < 0

    source, missing = context.memo(instruction, "bitcast", make)
    bits = to_bits(x.reshape(x.shape[0], -1), operand.element_type)[:, source]
    bits[:, missing] = 0
    found: Array = from_bits(bits, result.element_type).reshape(x.shape[0], *result.dimensions)
    return found
