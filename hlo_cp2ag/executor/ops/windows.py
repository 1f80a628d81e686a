"""reduce-window, select-and-scatter, and arrays seen through windows (convolution looks through them as well)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift, lower
from hlo_cp2ag.executor.ops.comparison import fill_rank
from hlo_cp2ag.executor.ops.elementwise import BINARY
from hlo_cp2ag.executor.ops.gather_scatter import Combiner, combine_in_lanes
from hlo_cp2ag.executor.ops.movement import keep_type
from hlo_cp2ag.executor.ops.reduction import IDENTITIES, UFUNCS, as_result, in_types, results_of, types_of
from hlo_cp2ag.executor.registry import Context, array_shape, op
from hlo_cp2ag.executor.values import Array, Value, align, array_shape_of
from hlo_cp2ag.ir.attributes import Window, WindowDimension
from hlo_cp2ag.ir.element_types import integer_range
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import is_complex, is_floating, is_integer

_LONG = 16
"""A window of so many elements along one dimension, one step apart, is put together from powers of two."""


# ---- padding, dilation, places ---------------------------------------------------------------------------------------


def window_of(instruction: Instruction, rank: int) -> tuple[WindowDimension, ...]:
    """The `window` attribute; one of size 1 everywhere where it is left out."""
    return cast(Window, instruction.attribute("window", Window((WindowDimension(1),) * rank))).dimensions


def spread_out(x: Array, filling: Any, window: Sequence[WindowDimension], first: int) -> Array:
    """The array as a window sees it: dilated by `lhs_dilate`, then padded or, where negative, cut.

    The window's dimensions are those of the array from `first` on.
    """
    if all(d.lhs_dilate == 1 and d.padding_low == 0 and d.padding_high == 0 for d in window):
        return x
    shape, to, origin = list(x.shape[:first]), [slice(None)] * first, [slice(None)] * first
    for d, size in zip(window, x.shape[first:], strict=True):
        whole = (size - 1) * d.lhs_dilate + 1 if size else 0
        total = max(0, d.padding_low + whole + d.padding_high)
        begin = max(0, -(d.padding_low // d.lhs_dilate))  # the first element at or after the edge
        end = max(begin, min(size, (total - 1 - d.padding_low) // d.lhs_dilate + 1))
        at = d.padding_low + begin * d.lhs_dilate
        shape.append(total)
        to.append(slice(at, at + (end - begin - 1) * d.lhs_dilate + 1, d.lhs_dilate) if end > begin else slice(0, 0))
        origin.append(slice(begin, end))
    result = np.empty(shape, x.dtype)
    result[...] = filling
    result[tuple(to)] = x[tuple(origin)]
    return result


def offsets(window: Sequence[WindowDimension]) -> Iterator[tuple[int, ...]]:
    """The places in a window in row-major order, as distances from its first one."""
    return product(*(range(0, d.size * d.rhs_dilate, d.rhs_dilate) for d in window))


def seen_at(x: Array, offset: Sequence[int], window: Sequence[WindowDimension], counts: Sequence[int]) -> Array:
    """A view of what every window has at one place: `[lanes, *counts]` of the array `spread_out` has made."""
    slices = [
        slice(o, o + (count - 1) * d.stride + 1 if count else o, d.stride)
        for o, d, count in zip(offset, window, counts, strict=True)
    ]
    view: Array = x[(slice(None), *slices)]
    return view


def is_inside(
    sizes: Sequence[int], offset: Sequence[int], window: Sequence[WindowDimension], counts: Sequence[int]
) -> Array | None:
    """Which windows have an element of the operand at one place, bool `[1, *counts]`; None if all have."""
    mask: Array | None = None
    for axis, (size, o, d, count) in enumerate(zip(sizes, offset, window, counts, strict=True)):
        place = np.arange(count) * d.stride + o - d.padding_low
        fits = (place >= 0) & (place % d.lhs_dilate == 0) & (place < (size - 1) * d.lhs_dilate + 1) & (size > 0)
        if not fits.all():
            line = fits.reshape([-1 if a == axis + 1 else 1 for a in range(len(sizes) + 1)])
            mask = line if mask is None else mask & line
    return mask


# ---- reduce-window ---------------------------------------------------------------------------------------------------


@op("reduce-window")
def reduce_window(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, ReduceWindow: `to_apply` folds what each window shows into the start values.

    Operands are n arrays of one shape and n start values. Padding and the gaps of `lhs_dilate` are passed over. The
    elements of a window are folded in row-major order; sums of f32 and f64 over long windows, one step apart, are put
    together from sums over powers of two, as they are exact to a few units either way.
    """
    half = len(operands) // 2
    computation = context.computation(instruction, "to_apply")
    types = types_of(computation.root.shape)
    arrays = in_types(align(*operands[:half]), types)
    rank = arrays[0].ndim - 1
    starts = [fill_rank(s, rank) for s in in_types(operands[half:], types)]
    window = window_of(instruction, rank)
    shape = instruction.shape
    counts = array_shape_of(shape.elements[0] if isinstance(operands, tuple) and half > 1 else _one(instruction)).dimensions if half > 1 else _one(instruction).dimensions  # fmt: skip
    lanes = max(x.shape[0] for x in (*arrays, *starts))
    totals = tuple(np.broadcast_to(s, (lanes, *counts)) for s in starts)
    if 0 in counts or 0 in arrays[0].shape:
        return as_result(instruction, totals)
    kind = context.simple_reducer(computation)
    if half == 1 and kind is not None and (identity := identity_of(kind, types[0])) is not None:
        lifted = lift(spread_out(arrays[0], identity, window, 1), types[0])
        return as_result(instruction, [_simple(kind, types[0], starts[0], lifted, window, counts)])
    sizes = arrays[0].shape[1:]
    seen = [spread_out(x, np.zeros((), x.dtype), window, 1) for x in arrays]
    for offset in offsets(window):
        rows = [seen_at(x, offset, window, counts) for x in seen]
        mask = is_inside(sizes, offset, window, counts)
        if mask is not None and not mask.any():
            continue
        folded = results_of(context.apply(computation, *totals, *rows))
        totals = folded if mask is None else tuple(np.where(mask, f, t) for f, t in zip(folded, totals, strict=True))
    return as_result(instruction, totals)
