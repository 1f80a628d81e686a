"""convolution: windows laid out as rows of a matrix, multiplied by the kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift
from hlo_cp2ag.executor.ops.linalg import finished, multiply_wide, product_dtype
from hlo_cp2ag.executor.ops.windows import offsets, seen_at, spread_out, window_of
from hlo_cp2ag.executor.registry import Context, array_shape, integer, op
from hlo_cp2ag.executor.values import Array, array_shape_of
from hlo_cp2ag.executor.working_room import CONVOLUTION_ROOM, row_bytes
from hlo_cp2ag.ir.attributes import ConvolutionDimensionNumbers, WindowDimension
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction

_MANY, _THIN = 8, 8
"""More groups than the one, with fewer weights a tap than the other, are no work for a matrix product."""


@op("convolution")
def convolution(context: Context, instruction: Instruction, lhs: Array, rhs: Array, *metadata: Array) -> Array:
    """Semantics: XLA operation semantics, Conv (ConvGeneralDilated), every attribute; element types as for `dot`.

    Feature groups split input and output features, batch groups the input's batch and the output features.
    """
    shape = array_shape(instruction)
    left, right = (array_shape_of(s).element_type for s in context.operand_shapes(instruction)[:2])
    numbers = cast(ConvolutionDimensionNumbers, instruction.attribute("dim_labels"))
    feature_groups = integer(instruction, "feature_group_count", 1)
    batch_groups = integer(instruction, "batch_group_count", 1)
    groups = feature_groups * batch_groups  # one of them is 1
    window = window_of(instruction, len(numbers.input_spatial))
    if 0 in shape.dimensions or 0 in lhs.shape or 0 in rhs.shape:
        return np.zeros((1, *shape.dimensions), dtype_of(shape.element_type))
    image = _in_order(lhs, numbers.input_batch, numbers.input_feature, numbers.input_spatial)
    kernel = _in_order(rhs, numbers.kernel_output_feature, numbers.kernel_input_feature, numbers.kernel_spatial)
    turned = tuple(axis + 3 for axis, d in enumerate(window) if d.rhs_reversal)
    kernel = np.flip(kernel, turned) if turned else kernel

    # [lanes, groups, batch, features, *spatial] and [lanes, groups, output features, features, *spatial]
    lanes, batch, features, *spatial = image.shape
    image = image.reshape(
        lanes, batch_groups, batch // batch_groups, feature_groups, features // feature_groups, *spatial
    )
    image = image.swapaxes(2, 3).reshape(lanes, groups, batch // batch_groups, features // feature_groups, *spatial)
    kernel = kernel.reshape(kernel.shape[0], groups, kernel.shape[1] // groups, *kernel.shape[2:])
    counts = [shape.dimensions[d] for d in numbers.output_spatial]
    product = _products(image, kernel, window, counts, (left, right), shape.element_type)
    # [lanes, groups, batch, *counts, output features in the group] -> [lanes, batch, output features, *counts]
    product = np.moveaxis(np.moveaxis(product, 1, -2).reshape(product.shape[0], product.shape[2], *counts, -1), -1, 2)
    order = [0] * (shape.rank + 1)
    for axis, target in enumerate((numbers.output_batch, numbers.output_feature, *numbers.output_spatial)):
        order[target + 1] = axis + 1
    result: Array = product.transpose(order)
    return result


def _in_order(x: Array, first: int, second: int, spatial: Sequence[int]) -> Array:
    turned: Array = x.transpose(0, first + 1, second + 1, *(d + 1 for d in spatial))
    return turned


def _products(
    image: Array,
    kernel: Array,
    window: Sequence[WindowDimension],
    counts: Sequence[int],
    types: tuple[str, str],
    result: str,
) -> Array:
    """Sums over features and windows: `[lanes, groups, batch, *counts, output features]` in the type `result`.

    The image is `[lanes, groups, batch, features, *spatial]`, the kernel `[lanes, groups, outputs, features, *taps]`.
    """
    lanes, groups, batch, features = image.shape[:4]
    taps = math.prod(d.size for d in window)
    wide = product_dtype(types, result, batch * math.prod(counts), features * taps, kernel.shape[2])
    x = lift(image, types[0]).astype(wide, copy=False)
    seen = spread_out(x, x.dtype.type(0), window, 4)
    weights = lift(kernel, types[1]).astype(wide, copy=False).reshape(*kernel.shape[:4], taps).transpose(0, 1, 4, 3, 2)
    if groups > _MANY and features * kernel.shape[2] <= _THIN:
        return finished(_one_by_one(seen, weights, window, counts), result)
    matrix = weights.reshape(*kernel.shape[:2], taps * features, kernel.shape[2])
    row = groups * taps * features * row_bytes(wide)  # what the windows of one place take
    total = np.empty((max(lanes, matrix.shape[0]), groups, batch, *counts, kernel.shape[2]), dtype_of(result))
    # The blocks are the same however many lanes there are.
    step = max(1, min(batch, CONVOLUTION_ROOM // max(1, row * math.prod(counts))))
    for begin in range(0, batch, step):
        part = slice(begin, begin + step)
        for block in _blocks(counts, max(1, CONVOLUTION_ROOM // max(1, row * step))):
            places = [b.stop - b.start for b in block]
            at_once = max(1, CONVOLUTION_ROOM // max(1, row * step * math.prod(places)))
            for lane in range(0, total.shape[0], at_once):
                here = slice(lane, lane + at_once)
                place = (here, slice(None), part, *block)
                total[place] = _as_matrices(
                    seen[here if lanes > 1 else slice(None), :, part],
                    matrix[here if matrix.shape[0] > 1 else slice(None)],
                    window,
                    block,
                    result,
                )
    return total


def _blocks(counts: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Blocks of at most so many places, as near to whole rows as that allows; the whole if it is no more."""
    if not counts:
        yield ()
        return
    inner = math.prod(counts[1:])
    step = max(1, min(counts[0], most // max(1, inner)))
    for begin in range(0, counts[0], step):
        for rest in _blocks(counts[1:], max(1, most // step)):
            yield (slice(begin, min(counts[0], begin + step)), *rest)


def _as_matrices(
    seen: Array, matrix: Array, window: Sequence[WindowDimension], block: Sequence[slice], result: str
) -> Array:
    """The windows of a block laid out as rows `[lanes, groups, batch * places, taps * features]`, times the matrix."""
    lanes, groups, batch = seen.shape[:3]
    counts = [b.stop - b.start for b in block]
    reach = tuple((d.size - 1) * d.rhs_dilate + 1 for d in window)
    shown = np.lib.stride_tricks.sliding_window_view(seen, reach, tuple(range(4, seen.ndim)))
    places = tuple(
        slice(b.start * d.stride, (b.stop - 1) * d.stride + 1, d.stride) for b, d in zip(block, window, strict=True)
    )
    steps = tuple(slice(None, None, d.rhs_dilate) for d in window)
    columns = np.moveaxis(shown[(slice(None),) * 4 + places + steps], 3, -1)
    product = multiply_wide(columns.reshape(lanes, groups, -1, matrix.shape[2]), matrix, result)
    return product.reshape(product.shape[0], groups, batch, *counts, matrix.shape[3])


def _one_by_one(seen: Array, weights: Array, window: Sequence[WindowDimension], counts: Sequence[int]) -> Array:
    """The same sums, tap by tap and feature by feature: `[lanes, groups, batch, *counts, output features]`.

    `seen` is `[lanes, groups, batch, features, *padded]`, weights are `[lanes, groups, taps, features, outputs]`.
    """
    lanes, groups, batch, features = seen.shape[:4]
    flat = seen.reshape(-1, *seen.shape[4:])
    total = np.zeros((max(lanes, weights.shape[0]), groups, batch, *counts, weights.shape[-1]), seen.dtype)
    for tap, offset in enumerate(offsets(window)):
        shown = seen_at(flat, offset, window, counts).reshape(lanes, groups, batch, features, *counts)
        for feature in range(features):
            factor = weights[:, :, tap, feature].reshape(-1, groups, *[1] * (1 + len(counts)), weights.shape[-1])
            total += shown[:, :, :, feature, ..., np.newaxis] * factor
    return total
