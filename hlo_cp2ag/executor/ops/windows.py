"""reduce-window, select-and-scatter, and arrays seen through windows (convolution looks through them as well)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, cast

import ml_dtypes
import numpy as np

from hlo_cp2ag.executor.arithmetic import lift, lower
from hlo_cp2ag.executor.ops.comparison import fill_rank
from hlo_cp2ag.executor.ops.elementwise import BINARY
from hlo_cp2ag.executor.ops.gather_scatter import Combiner, combine_in_lanes
from hlo_cp2ag.executor.ops.reduction import IDENTITIES, as_result, in_types, results_of, types_of
from hlo_cp2ag.executor.registry import Context, array_shape, op
from hlo_cp2ag.executor.values import Array, Value, align, array_shape_of
from hlo_cp2ag.ir.attributes import Window, WindowDimension
from hlo_cp2ag.ir.element_types import dtype_of, integer_range
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import is_floating, is_integer, leaves

_LONG = 128
"""Windows of more elements are folded along one dimension after the other, long ones by powers of two."""


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
    whole: list[slice] = [slice(None), *slices]
    view: Array = x[tuple(whole)]
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
    elements of a window are folded in row-major order; where that is exact or nearly so (not for bf16, f16 and f8),
    windows of more than 128 elements one dimension after the other, and by powers of two.
    """
    half = len(operands) // 2
    computation = context.computation(instruction, "to_apply")
    types = types_of(computation.root.shape)
    arrays = in_types(align(*operands[:half]), types)
    rank = arrays[0].ndim - 1
    starts = [fill_rank(s, rank) for s in in_types(operands[half:], types)]
    window = window_of(instruction, rank)
    counts = array_shape_of(next(leaves(instruction.shape))).dimensions
    lanes = max(x.shape[0] for x in (*arrays, *starts))
    totals = tuple(np.broadcast_to(s, (lanes, *counts)) for s in starts)
    if 0 in counts or 0 in arrays[0].shape:
        return as_result(instruction, totals)
    kind = context.simple_reducer(computation)
    if half == 1 and kind is not None and (identity := identity_of(kind, types[0])) is not None:
        x = spread_out(lift(arrays[0], types[0]), identity, window, 1)
        return as_result(instruction, [_fold_simple(kind, types[0], starts[0], x, window, counts)])
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


def identity_of(kind: str, element_type: str) -> Any:
    """What changes nothing under a simple reducer, in the lifted dtype; None where no such number is at hand."""
    if element_type == "pred":
        return kind in ("multiply", "and", "minimum")
    if is_floating(element_type):
        return None if element_type == "f8e8m0fnu" else _float_identity(kind, element_type)
    if not is_integer(element_type):
        return None
    least, most = integer_range(element_type)
    ones = -1 if element_type[0] == "s" else most
    return {"add": 0, "multiply": 1, "maximum": least, "minimum": most, "and": ones, "or": 0, "xor": 0}[kind]


def _float_identity(kind: str, element_type: str) -> float:
    if kind in ("maximum", "minimum"):
        with np.errstate(all="ignore"):
            infinite = np.isinf(lift(np.asarray(IDENTITIES[kind]).astype(dtype_of(element_type)), element_type))
        if not infinite:  # a type without infinities: its least or largest number
            limits: Any = cast(Any, ml_dtypes.finfo)(dtype_of(element_type))
            return float(limits.min if kind == "maximum" else limits.max)
    return IDENTITIES[kind]


def _fold_simple(
    kind: str, element_type: str, start: Array, x: Array, window: Sequence[WindowDimension], counts: Sequence[int]
) -> Array:
    """What a simple reducer makes of each window of a lifted array: `[lanes, *counts]` in the element type."""
    sums = is_floating(element_type) and kind in ("add", "multiply")
    rounds = sums and element_type not in ("f32", "f64")
    if not rounds and math.prod(d.size for d in window) > _LONG:
        for axis, d in enumerate(window):
            x = _fold_axis(kind, element_type, x, axis + 1, d, counts[axis])
        return BINARY[kind](start, lower(x, element_type), element_type)
    # The largest and the smallest need no rounding on the way.
    wide = "f32" if x.dtype == np.float32 and not sums else element_type
    total = lift(start, element_type) if wide == "f32" else start
    for offset in offsets(window):
        total = BINARY[kind](total, lower(seen_at(x, offset, window, counts), wide), wide)
    return np.broadcast_to(lower(total, element_type), (total.shape[0], *counts))


def _fold_axis(kind: str, element_type: str, x: Array, axis: int, d: WindowDimension, count: int) -> Array:
    """A lifted array folded in the windows along one axis, which then has one element a window."""

    def function(a: Array, b: Array) -> Array:
        return lift(BINARY[kind](lower(a, element_type), lower(b, element_type), element_type), element_type)

    def part(a: Array, start: int, length: int, step: int = 1) -> Array:
        return a[(slice(None),) * axis + (slice(start, start + (length - 1) * step + 1, step),)]

    total: Array | None = None
    if d.stride > 1 or d.rhs_dilate > 1:
        for place in range(d.size):
            row = part(x, place * d.rhs_dilate, count, d.stride)
            total = row if total is None else function(total, row)
    else:
        power, at = 1, 0  # x has the folds of `power` elements that begin at each place
        while True:
            if d.size & power:
                row = part(x, at, count)
                total = row if total is None else function(total, row)
                at += power
            if at == d.size:
                break
            x = function(part(x, 0, x.shape[axis] - power), part(x, power, x.shape[axis] - power))
            power *= 2
    assert total is not None
    return total


# ---- select-and-scatter ----------------------------------------------------------------------------------------------


@op("select-and-scatter")
def select_and_scatter(context: Context, instruction: Instruction, x: Array, source: Array, start: Array) -> Array:
    """Semantics: XLA operation semantics, SelectAndScatter: each window's value of `source` goes where `select` points.

    `select(a, b)` is asked from first to last whether the element found so far stays; padding is passed over. `scatter`
    combines the values, beginning with the start value.
    """
    rank = x.ndim - 1
    window, counts, sizes = window_of(instruction, rank), source.shape[1:], x.shape[1:]
    select, scatter = context.computation(instruction, "select"), context.computation(instruction, "scatter")
    types = types_of(scatter.root.shape)
    (start, source) = in_types((start, source), types * 2)
    shape = array_shape(instruction)
    if 0 in source.shape or 0 in x.shape:
        blank = np.broadcast_to(fill_rank(start, rank), (start.shape[0], *shape.dimensions))
        return cast(Array, as_result(instruction, [blank]))
    place = _selected(context, select, x, window, counts)
    values = np.broadcast_to(start[:, np.newaxis], (start.shape[0], math.prod(sizes)))
    combiner = Combiner(context, scatter, tuple(types))
    flat = [a.reshape(a.shape[0], -1) for a in (place, source)]
    (result,) = combine_in_lanes(combiner, [values], flat[0], [flat[1]])
    return cast(Array, as_result(instruction, [result.reshape(-1, *sizes)]))


def _selected(
    context: Context, select: Computation, x: Array, window: Sequence[WindowDimension], counts: Sequence[int]
) -> Array:
    """The flat place in the operand of the element that each window selects, or -1: `[lanes, *counts]`."""
    sizes = x.shape[1:]
    seen = spread_out(x, np.zeros((), x.dtype), window, 1)
    best = np.zeros((x.shape[0], *counts), x.dtype)
    place = np.full((x.shape[0], *counts), -1, np.int64)
    for offset in offsets(window):
        here = np.zeros([1] * x.ndim, np.int64)
        for axis, (size, o, d, count) in enumerate(zip(sizes, offset, window, counts, strict=True)):
            line = (np.arange(count) * d.stride + o - d.padding_low) // d.lhs_dilate
            here = here * size + line.reshape([-1 if a == axis + 1 else 1 for a in range(x.ndim)])
        mask = is_inside(sizes, offset, window, counts)
        candidate = seen_at(seen, offset, window, counts)
        change = (place < 0) | ~cast(Array, context.apply(select, best, candidate))
        if mask is not None:
            change &= mask
        best, place = np.where(change, candidate, best), np.where(change, here, place)
    return place
