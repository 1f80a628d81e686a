"""get-dimension-size, set-dimension-size, dynamic-reshape; what other ops do with sizes is in `executor/dynamic.py`."""

from __future__ import annotations

import numpy as np

from hlo_cp2ag.executor.dynamic import reshaped
from hlo_cp2ag.executor.registry import Context, array_shape, execution_error, integers, op
from hlo_cp2ag.executor.values import Array, bounded, sizes_of
from hlo_cp2ag.ir.module import Instruction


def _dimension(instruction: Instruction) -> int:
    value = instruction.attribute("dimensions")
    return value if isinstance(value, int) else integers(instruction, "dimensions")[0]


@op("get-dimension-size")
def get_dimension_size(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, GetDimensionSize: s32, how many elements are there along a dimension."""
    dimension = _dimension(instruction)
    return sizes_of(x).get(dimension, np.full(1, x.shape[dimension + 1])).astype(np.int32)


@op("set-dimension-size")
def set_dimension_size(context: Context, instruction: Instruction, x: Array, size: Array) -> Array:
    """Semantics: XLA operation semantics, SetDimensionSize: elements behind `size` (s32) do not count any more."""
    dimension = _dimension(instruction)
    number = size.astype(np.int64)
    room = x.shape[dimension + 1]
    if ((number < 0) | (number > room)).any():
        raise execution_error(instruction, f"a size of {int(number.max() if number.max() > room else number.min())} "
                              f"for a dimension with room for {room}")  # fmt: skip
    sizes = {**sizes_of(x), dimension: number}
    return bounded(x, {d: n for d, n in sizes.items() if (n != x.shape[d + 1]).any()})


@op("dynamic-reshape")
def dynamic_reshape(context: Context, instruction: Instruction, x: Array, *sizes: Array) -> Array:
    """Semantics: XLA operation semantics, DynamicReshape: the elements in row-major order, with sizes (s32) of values."""
    bounds = array_shape(instruction).dimensions
    result = reshaped(x, bounds, sizes)
    if result is None:
        raise execution_error(instruction, f"the sizes are not those of {x[:1].size} elements within {list(bounds)}")
    return result
