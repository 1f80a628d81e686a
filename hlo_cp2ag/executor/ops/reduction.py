"""reduce, map, scan, and the folding of rows that the windowed ops share.

How XLA's CPU backend adds up, measured (jaxlib 0.10) and followed here:

- `reduce` and `reduce-window` keep the accumulator in the type of the reducer: sums of bf16, f16 and f8 are rounded
  after every addition. (JAX itself converts to f32 around its sums.)
- Where a reduced dimension has more than 32 elements and a float result, XLA first reduces windows of 32 elements
  (TreeReductionRewriter: padded evenly on both sides to a multiple of 32, or to one window if it is shorter), and then
  their results; elements of a window from first to last. That order is kept for the simple reducers.
- Reducers of any other form are folded from first to last, and by halves where there are more than 64 elements: XLA's
  reducers have to be associative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift, lower
from hlo_cp2ag.executor.ops.comparison import fill_rank
from hlo_cp2ag.executor.ops.elementwise import BINARY, as_type
from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.executor.registry import Context, flag, integer, integers, op
from hlo_cp2ag.executor.values import Array, Value, align, array_shape_of
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import Shape, TupleShape, is_floating, leaves

_SEQUENTIAL = 64
"""So many rows are folded one by one, whatever the reducer."""
_WINDOW = 32
"""The window of XLA's TreeReductionRewriter."""

UFUNCS: dict[str, np.ufunc] = {
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
IDENTITIES = {"add": -0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}
"""The floats that change nothing."""


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


def fold(
    context: Context, computation: Computation, starts: Sequence[Array], arrays: Sequence[Array], axes: Sequence[int]
) -> tuple[Array, ...]:
    """Arrays of one shape, one an accumulator, folded along axes (ascending): `[*rest]` each.

    `starts` broadcast to `[*rest]`. Arrays are in the reducer's element types already.
    """
    shape = arrays[0].shape
    rest = np.broadcast_shapes(tuple(n for a, n in enumerate(shape) if a not in axes), *(s.shape for s in starts))
    if 0 in shape or 0 in rest:
        return tuple(np.broadcast_to(s, rest) for s in starts)
    types = types_of(computation.root.shape)
    kind = context.simple_reducer(computation)
    if kind is not None and len(arrays) == 1 and (arrays[0].dtype.kind != "c" or kind == "add"):
        return (fold_simple(kind, types[0], starts[0], arrays[0], tuple(axes)),)
    rows = [rows_of(x, axes) for x in arrays]
    while rows[0].shape[0] > _SEQUENTIAL:
        whole = rows[0].shape[0] // 2 * 2
        pairs = results_of(context.apply(computation, *(r[:whole:2] for r in rows), *(r[1:whole:2] for r in rows)))
        odd = rows[0].shape[0] > whole
        rows = [np.concatenate([p, r[whole:]]) if odd else p for p, r in zip(pairs, rows, strict=True)]
    totals = tuple(np.broadcast_to(s, rest) for s in starts)
    for place in range(rows[0].shape[0]):
        totals = results_of(context.apply(computation, *totals, *(r[place] for r in rows)))
    return totals


def rows_of(x: Array, axes: Sequence[int]) -> Array:
    """The elements along the axes, in row-major order, as a first axis; the other axes follow."""
    front = np.moveaxis(x, axes, range(len(axes)))
    result: Array = front.reshape(-1, *front.shape[len(axes) :])
    return result


def fold_simple(kind: str, element_type: str, start: Array, x: Array, axes: tuple[int, ...]) -> Array:
    """`fold` of one array, not empty, with one of the simple reducers."""
    if is_floating(element_type):
        if kind in ("maximum", "minimum"):
            return BINARY[kind](start, _extreme(kind, lift(x, element_type), element_type, axes), element_type)
        return BINARY[kind](start, _tree(kind, x, axes), element_type)
    function = UFUNCS[_PRED.get(kind, kind) if element_type == "pred" else kind]
    lifted = lift(x, element_type)
    total = function.reduce(lifted, axis=axes, dtype=lifted.dtype)
    return BINARY[kind](start, lower(np.asarray(total), element_type), element_type)


def _extreme(kind: str, x: Array, element_type: str, axes: tuple[int, ...]) -> Array:
    """The largest or smallest along the axes: NaN if there is one, +0 above -0."""
    found = np.asarray(UFUNCS[kind].reduce(x, axis=axes))
    if (found == 0).any():
        better = ~np.signbit(x) if kind == "maximum" else np.signbit(x)
        there = np.logical_or.reduce(better & (x == 0), axis=axes)
        zero = np.where(there == (kind == "maximum"), x.dtype.type(0.0), x.dtype.type(-0.0))
        found = np.where(found == 0, zero, found)
    return lower(found, element_type)


def _tree(kind: str, x: Array, axes: tuple[int, ...]) -> Array:
    """Sums or products of floats along the axes, in XLA's order: windows of 32 while an axis is longer than that."""
    while any(x.shape[axis] > _WINDOW for axis in axes):
        shape: list[int] = []
        padding, inside = [(0, 0)] * x.ndim, []
        for axis, size in enumerate(x.shape):
            if axis not in axes:
                shape.append(size)
                continue
            window = min(size, _WINDOW)
            count = -(-size // window)
            missing = count * window - size
            padding[axis] = (missing // 2, missing - missing // 2)
            inside.append(len(shape) + 1)
            shape += [count, window]
        if any(low or high for low, high in padding):
            x = padded(x, x.dtype.type(IDENTITIES[kind]), padding)
        x = in_order(kind, rows_of(x.reshape(shape), inside))
    return in_order(kind, rows_of(x, axes))


def padded(x: Array, filling: Any, padding: Sequence[tuple[int, int]]) -> Array:
    """The array with elements put around it; no size is negative."""
    shape = [low + size + high for (low, high), size in zip(padding, x.shape, strict=True)]
    result = np.empty(shape, x.dtype)
    result[...] = filling
    result[tuple(slice(low, low + size) for (low, _), size in zip(padding, x.shape, strict=True))] = x
    return result


def in_order(kind: str, rows: Array) -> Array:
    """Rows `[n, *rest]` of a float type folded from first to last, each step rounded to the type."""
    if rows.shape[0] == 1:
        return np.asarray(rows[0])
    function = UFUNCS[kind]
    flat = np.ascontiguousarray(rows.reshape(rows.shape[0], -1))
    if flat.shape[1] == 1:  # numpy would add up a lone column in an order of its own
        total = np.asarray(function.accumulate(flat[:, 0], dtype=rows.dtype)[-1])
    else:
        total = np.asarray(function.reduce(flat, axis=0, dtype=rows.dtype))
    return np.reshape(total, rows.shape[1:])


# ---- the ops ---------------------------------------------------------------------------------------------------------


@op("reduce")
def reduce(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, Reduce: `to_apply` folds elements along `dimensions` into the start values.

    Operands are n arrays of one shape and n start values, of any element types; the result is an array or, where
    `to_apply` returns a tuple, a tuple.
    """
    half = len(operands) // 2
    computation = context.computation(instruction, "to_apply")
    types = types_of(computation.root.shape)
    arrays = in_types(align(*operands[:half]), types)
    starts = in_types(operands[half:], types)
    axes = sorted(d + 1 for d in integers(instruction, "dimensions"))
    rank = arrays[0].ndim - 1 - len(axes)
    starts = [fill_rank(s, rank) for s in starts]
    return as_result(instruction, fold(context, computation, starts, arrays, axes))


@op("map")
def map_(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, Map: `to_apply` on the elements of arrays of one shape, one by one."""
    computation = context.computation(instruction, "to_apply")
    rank = max(x.ndim for x in operands) - 1
    types = [array_shape_of(p).element_type for p in parameter_shapes(context, computation)]
    typed = in_types([fill_rank(x, rank) for x in operands], types)
    return as_result(instruction, results_of(context.apply(computation, *typed)))


def parameter_shapes(context: Context, computation: Computation) -> tuple[Shape, ...]:
    """The shapes of a computation's parameters by number."""
    index = cast(ModuleIndex, getattr(context, "index", None))
    return tuple(p.shape for p in index.parameters(computation))


@op("scan")
def scan(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA, HloScanInstruction: `to_apply` on one slice of each input after the other, and on the carries.

    The last `num_carries` operands are the first carries; `to_apply` takes slices (without the scanned dimension) and
    carries, and returns outputs and carries. Outputs are stacked along the dimension; `is_reverse` begins at the end.
    """
    computation = context.computation(instruction, "to_apply")
    (along,) = integers(instruction, "dimensions")
    carried = integer(instruction, "num_carries")
    inputs, carries = operands[: len(operands) - carried], operands[len(operands) - carried :]
    size = inputs[0].shape[along + 1]
    places = range(size - 1, -1, -1) if flag(instruction, "is_reverse") else range(size)
    outputs: list[tuple[Array, ...]] = []
    for place in places:
        slices = [x.take(place, axis=along + 1) for x in inputs]
        result = results_of(context.call(computation, [*slices, *carries]))
        outputs.append(result[: len(result) - carried])
        carries = result[len(result) - carried :]
    if flag(instruction, "is_reverse"):
        outputs.reverse()
    shapes = [array_shape_of(leaf) for leaf in leaves(instruction.shape)]
    stacked = [
        np.stack(align(*(o[i] for o in outputs)), axis=along + 1)
        if outputs
        else np.zeros((1, *shape.dimensions), dtype_of(shape.element_type))
        for i, shape in enumerate(shapes[: len(shapes) - carried])
    ]
    return as_result(instruction, [*stacked, *carries])
