"""Arguments of a run: seeded random ones, what users hand over, and arrays in npz files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlo_cp2ag.executor.arithmetic import from_bits, to_bits
from hlo_cp2ag.executor.dynamic import filled
from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.executor.values import TOKEN, Array, Bounded, Token, Value, array_shape_of, collapse, leaves, sizes_of
from hlo_cp2ag.ir.element_types import NUMPY_NAMES, dtype_of, integer_range
from hlo_cp2ag.ir.module import HloModule
from hlo_cp2ag.ir.shape import ArrayShape, BufferShape, Shape, TupleShape, element_bits, is_complex, is_integer
from hlo_cp2ag.ir.shape import leaves as shape_leaves

# ---- random values ---------------------------------------------------------------------------------------------------


def random_array(shape: ArrayShape, lanes: int, generator: np.random.Generator) -> Array:
    """Random elements `[lanes, *dimensions]`: floats standard normal, integers from -9 to 9, preds coin flips.

    f8e8m0fnu, which has neither sign nor zero, gets powers of two from 1/16 to 16.
    """
    flat = np.empty(lanes * shape.element_count, dtype_of(shape.element_type))
    for start in range(
        0, flat.size, _BLOCK
    ):  # numpy draws in 64 bits: a block at a time takes little besides the array
        block = flat[start : start + _BLOCK]
        block[...] = _random_elements(shape.element_type, block.size, generator)
    return flat.reshape(lanes, *shape.dimensions)


_BLOCK = 1 << 18


def _random_elements(element_type: str, size: int, generator: np.random.Generator) -> Array:
    dtype = dtype_of(element_type)
    if element_type == "pred":
        return generator.integers(0, 2, size).astype(dtype)
    if is_integer(element_type):
        low, high = integer_range(element_type)
        return generator.integers(max(low, -9), min(high, 9), size, endpoint=True).astype(dtype)
    if is_complex(element_type):
        return (generator.standard_normal(size) + 1j * generator.standard_normal(size)).astype(dtype)
    if element_type == "f8e8m0fnu":
        return np.exp2(generator.integers(-4, 5, size).astype(np.float32)).astype(dtype)
    normal = generator.standard_normal(size)
    return normal.astype(dtype) if element_type == "f64" else normal.astype(np.float32).astype(dtype)


def random_value(shape: Shape, lanes: int, generator: np.random.Generator) -> Value:
    """A random value of any shape."""
    if isinstance(shape, TupleShape):
        return tuple(random_value(element, lanes, generator) for element in shape.elements)
    array = array_shape_of(shape)
    return random_array(array, lanes, generator) if array.is_data else TOKEN


def random_inputs(module: HloModule, devices: int, seed: int = 0) -> list[Array]:
    """Seeded arguments for a module's ENTRY: one array `[devices, *dimensions]` per parameter (per leaf of a tuple)."""
    generator = np.random.default_rng(seed)
    return [random_array(leaf, devices, generator) for leaf in input_shapes(module)]


def input_shapes(module: HloModule, index: ModuleIndex | None = None) -> list[ArrayShape]:
    """The shapes of the arrays that ENTRY takes: its parameters' leaves in order, without tokens."""
    index = index or ModuleIndex(module)
    return [
        shape for parameter in index.parameters(module.entry) for shape in map(_plain, shape_leaves(parameter.shape))
        if shape.is_data
    ]  # fmt: skip


def output_shapes(module: HloModule) -> list[ArrayShape]:
    """The shapes of the arrays that ENTRY returns: its root's leaves in order, without tokens."""
    return [shape for shape in map(_plain, shape_leaves(module.entry.root.shape)) if shape.is_data]


def _plain(shape: ArrayShape | BufferShape) -> ArrayShape:
    return shape.array if isinstance(shape, BufferShape) else shape


# ---- what users hand over --------------------------------------------------------------------------------------------


def arguments_of(
    module: HloModule, index: ModuleIndex, inputs: Sequence[Any] | Mapping[str, Any], devices: int
) -> list[Value]:
    """The entry's arguments of arrays `[devices, ...]` or `[...]`, in order or by the names p0, p1, ...

    Arrays of unsigned integers of the same width stand for element types that numpy lacks. Arrays that are equal on all
    devices are kept once. Raises ExecutionError for too few, too many, or an array of another shape or type.
    """
    shapes = input_shapes(module, index)
    given = _in_order(inputs, len(shapes))
    pairs = zip(given, shapes, strict=True)
    arrays = [as_input(array, shape, devices, f"p{i}") for i, (array, shape) in enumerate(pairs)]
    remaining = iter(arrays)

    def build(shape: Shape) -> Value:
        if isinstance(shape, TupleShape):
            return tuple(map(build, shape.elements))
        return next(remaining) if array_shape_of(shape).is_data else TOKEN

    return [build(parameter.shape) for parameter in index.parameters(module.entry)]


def _in_order(inputs: Sequence[Any] | Mapping[str, Any], count: int) -> list[Any]:
    if isinstance(inputs, Mapping):
        missing = [f"p{i}" for i in range(count) if f"p{i}" not in inputs]
        unknown = sorted(set(inputs) - {f"p{i}" for i in range(count)})
        if missing:
            raise ExecutionError(f"no input {missing[0]}: the entry takes {_count(count)}, {_names(count)}")
        if unknown:
            raise ExecutionError(f"an input {unknown[0]} that no parameter takes: the entry takes {_count(count)}")
        return [inputs[f"p{i}"] for i in range(count)]
    if len(inputs) != count:
        raise ExecutionError(f"the entry takes {_count(count)}, {len(inputs)} are given")
    return list(inputs)


def _names(count: int) -> str:
    return "p0" if count == 1 else f"p0 to p{count - 1}"


def _count(count: int) -> str:
    return f"{count or 'no'} input{'' if count == 1 else 's'}"


def as_input(array: Any, shape: ArrayShape, devices: int, name: str) -> Array:
    """One input as a value of a shape. Raises ExecutionError if it is none."""
    array = np.asarray(array)
    dimensions = array.shape
    if dimensions == (devices, *shape.dimensions) and array.strides[0] == 0:
        array = array[:1]  # before `unpack`, which may copy
    array = unpack(array, shape.element_type, name)
    if dimensions == (devices, *shape.dimensions):
        return collapse(array)
    if array.shape == shape.dimensions:
        result: Array = array[np.newaxis]
        return result
    raise ExecutionError(
        f"input {name} has the dimensions {list(array.shape)}; it takes {list(shape.dimensions)} for "
        f"{shape.to_text(False)}, or {[devices, *shape.dimensions]} for one on each of {devices} devices"
    )


# ---- npz -------------------------------------------------------------------------------------------------------------


def pack(array: Array, element_type: str) -> Array:
    """An array as npz files hold it: types that numpy lacks as unsigned integers of the same width (s4 in u8)."""
    return array if element_type in NUMPY_NAMES else to_bits(array, element_type)


def unpack(array: Array, element_type: str, name: str = "array") -> Array:
    """The inverse of `pack`; arrays that have the element type already stay. Raises ExecutionError for another type."""
    dtype = dtype_of(element_type)
    if array.dtype == dtype:
        return array
    if array.dtype == np.dtype(f"u{dtype.itemsize}") and element_type not in NUMPY_NAMES:
        _refuse_more_than(array, (1 << min(64, element_bits(element_type))) - 1, element_type, name)
        return from_bits(array, element_type)
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:  # what np.save makes of ml_dtypes
        return from_bits(array.view(f"u{dtype.itemsize}"), element_type)
    if element_type == "pred" and array.dtype == np.uint8:
        _refuse_more_than(array, 1, element_type, name)
        result: Array = array != 0
        return result
    raise ExecutionError(f"input {name} has elements of {array.dtype}, its parameter takes {element_type}")


def _refuse_more_than(bits: Array, most: int, element_type: str, name: str) -> None:
    """Raise ExecutionError if a byte holds more than an element's own bits: what was meant by them nobody knows."""
    largest = int(bits.max(initial=0))
    if largest > most:
        raise ExecutionError(f"input {name} has the value {largest}, the bits of {element_type} are at most {most}")


def unpack_value(value: Value, devices: int) -> list[Array]:
    """The arrays of a result in order, `[devices, ...]` each: read-only views where devices agree.

    Dynamic dimensions have their bound's size, and zeros behind the elements.
    """
    plain = [filled(a, sizes_of(a), 0) if isinstance(a, Bounded) else a
             for a in leaves(value) if not isinstance(a, Token)]  # fmt: skip
    return [np.broadcast_to(a, (devices, *a.shape[1:])) if a.shape[0] != devices else a for a in plain]
