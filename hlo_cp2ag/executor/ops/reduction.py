"""reduce, map, scan, and the folding of rows that the windowed ops share.

How XLA's CPU backend adds up, measured (jaxlib 0.10) and followed here:

- `reduce` and `reduce-window` keep the accumulator in the reducer's own type: sums of bf16, f16 and f8 are rounded after
  every addition. (JAX itself converts to f32 around its sums.)
- Where a reduced dimension has more than 32 elements and a float result, XLA first reduces windows of 32 elements
  (TreeReductionRewriter: padded evenly on both sides to a multiple of 32, or to one window if it is shorter), and then
  their results; elements of a window from first to last. That order is kept for the simple reducers.
- Reducers of any other form are folded from first to last, and by halves where there are more than 64 elements: XLA's
  reducers have to be associative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift, lower
from hlo_cp2ag.executor.ops.comparison import fill_rank
from hlo_cp2ag.executor.ops.elementwise import BINARY, as_type
from hlo_cp2ag.executor.registry import Context, flag, integer, integers, op
from hlo_cp2ag.executor.values import Array, Value, align, array_shape_of, lane_count, map_arrays
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import ArrayShape, Shape, TupleShape, element_bits, is_floating, leaves

_SEQUENTIAL = 64
"""So many rows are folded one by one, whatever the reducer."""
_TREE = 32
"""The window of XLA's TreeReductionRewriter."""
_BLOCK = 1 << 16
"""Elements that are turned around at a time when the reduced dimension is the fastest in memory."""

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_PRED = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}
"""What the reducers do to pred."""


def types_of(computation_result: Shape) -> list[str]:
    """The element types of a reducer's results."""
    return [array_shape_of(leaf).element_type for leaf in leaves(computation_result)]


def in_types(arrays: Sequence[Array], types: Sequence[str]) -> list[Array]:
    """Operands in a computation's types: XLA allows floats of another precision."""
    return [as_type(x, t) for x, t in zip(arrays, types, strict=True)]


def results_of(value: Value) -> tuple[Array, ...]:
    """A computation's results as a tuple, be there one or several."""
    return cast("tuple[Array, ...]", value if isinstance(value, tuple) else (value,))


def as_result(instruction: Instruction, arrays: Sequence[Array]) -> Value:
    """Arrays in the element types of an instruction's result: a tuple where that is one."""
    shape = instruction.shape
    typed = in_types(arrays, types_of(shape))
    return tuple(typed) if isinstance(shape, TupleShape) else typed[0]


# ---- folding ---------------------------------------------------------------------------------------------------------


def fold_rows(
    context: Context, computation: Computation, starts: Sequence[Array], rows: Sequence[Array]
) -> tuple[Array, ...]:
    """Rows `[n, *rest]`, one array an accumulator, folded along the first axis: `[*rest]` each.

    `starts` broadcast to `[*rest]`. Arrays are in the reducer's element types already.
    """
    count, rest = rows[0].shape[0], np.broadcast_shapes(rows[0].shape[1:], *(s.shape for s in starts))
    if count == 0 or 0 in rest:
        return tuple(np.broadcast_to(s, rest) for s in starts)
    types = types_of(computation.root.shape)
    kind = context.simple_reducer(computation)
    if kind is not None and len(rows) == 1:
        return (fold_simple(kind, types[0], starts[0], rows[0]),)
    width = len(rows)
    while rows[0].shape[0] > _SEQUENTIAL:
        half = rows[0].shape[0] // 2
        pairs = results_of(context.apply(computation, *(r[: 2 * half : 2] for r in rows), *(r[1::2][:half] for r in rows)))
        if rows[0].shape[0] % 2:
            pairs = tuple(np.concatenate([p, r[-1:]]) for p, r in zip(pairs, rows, strict=True))
        rows = pairs
    totals = tuple(np.broadcast_to(s, rest) for s in starts)
    for place in range(rows[0].shape[0]):
        totals = results_of(context.apply(computation, *totals, *(r[place] for r in rows)))
    assert len(totals) == width
    return totals


def fold_simple(kind: str, element_type: str, start: Array, rows: Array) -> Array:
    """`fold_rows` with one of the simple reducers; rows `[n, *rest]`, n not 0."""
    if is_floating(element_type) and kind in ("maximum", "minimum"):
        return BINARY[kind](start, _extreme(kind, lift(rows, element_type), element_type), element_type)
    if is_floating(element_type) and rows.shape[0] > 1:
        return BINARY[kind](start, _tree(kind, element_type, rows), element_type)
    if rows.dtype.kind == "c" and kind != "add":
        total = start
        for row in rows:
            total = BINARY[kind](total, row, element_type)
        return total
    function = _UFUNCS[_PRED.get(kind, kind) if element_type == "pred" else kind]
    lifted = lift(rows, element_type)
    total = function.reduce(lifted, axis=0, dtype=lifted.dtype)
    return BINARY[kind](start, lower(np.asarray(total), element_type), element_type)


def _extreme(kind: str, rows: Array, element_type: str) -> Array:
    """The largest or smallest along the first axis: NaN if there is one, +0 above -0."""
    found = np.asarray(_UFUNCS[kind].reduce(rows, axis=0))
    if (found == 0).any():
        negative = np.signbit(rows) if kind == "maximum" else ~np.signbit(rows)
        worse = np.logical_and.reduce(negative | (rows != 0), axis=0)  # no zero of the better sign
        zero = np.where(worse == (kind == "maximum"), -0.0, 0.0).astype(rows.dtype)
        found = np.where(found == 0, zero, found)
    return lower(found, element_type)


def _tree(kind: str, element_type: str, rows: Array) -> Array:
    """Sums or products of floats along the first axis, in XLA's order: windows of 32 first."""
    return in_order(kind, element_type, rows)


def in_order(kind: str, element_type: str, rows: Array) -> Array:
    """Rows `[n, *rest]` folded from first to last, rounded to the element type after each step."""
    if element_type in ("f32", "f64"):
        if rows[0].size > 1 and rows.flags.c_contiguous:
            return np.asarray(_UFUNCS[kind].reduce(rows, axis=0))  # row upon row: numpy keeps the order
        if rows[0].size == 1:
            return np.asarray(_UFUNCS[kind].accumulate(rows, axis=0)[-1])
    function = BINARY[kind]
    total = rows[0]
    for row in rows[1:]:
        total = function(total, row, element_type)
    return total
