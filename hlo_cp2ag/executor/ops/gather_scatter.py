"""gather and scatter, and the engine that combines updates at computed places in their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift, lower
from hlo_cp2ag.executor.ops.elementwise import BINARY
from hlo_cp2ag.executor.ops.movement import keep_type
from hlo_cp2ag.executor.ops.reduction import UFUNCS, as_result, in_types, results_of, types_of
from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.executor.registry import Context, array_shape, integer, integers, op
from hlo_cp2ag.executor.values import Array, Value, array_shape_of, expand
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import is_complex, is_floating, is_integer

_ROW = 8
"""So many elements that windows have in common are combined in one piece."""

# ---- index vectors ---------------------------------------------------------------------------------------------------


def index_columns(context: Context, instruction: Instruction, indices: Array) -> list[Array]:
    """The components of the index vectors, s64 `[lanes, *batch]` each; `index_vector_dim` may lie past the end."""
    element_type = array_shape_of(context.operand_shapes(instruction)[1]).element_type
    wide = lift(indices, element_type)
    if wide.dtype == np.uint64:
        wide = np.minimum(wide, np.uint64(2**63 - 1))
    wide = wide.astype(np.int64, copy=False)
    vector_dim = integer(instruction, "index_vector_dim") + 1
    if vector_dim == wide.ndim:
        return [wide]
    return [wide.take(i, axis=vector_dim) for i in range(wide.shape[vector_dim])]


def batch_place(dimension: int, vector_dim: int) -> int:
    """The place of a dimension of the indices among those that are left without `index_vector_dim`."""
    return dimension - (dimension > vector_dim)


def along(size: int, axis: int, rank: int) -> Array:
    """0, 1, ... size - 1 along one axis of an array of a rank, the other sizes being 1."""
    return np.arange(size).reshape([size if a == axis else 1 for a in range(rank)])


# ---- gather ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GatherPlaces:
    """Where a gather finds its elements."""

    part: list[int]
    """Operand dimensions of which not everything is taken, in order."""
    whole: list[int]
    """The others."""
    flat: Array
    """`[1 or lanes, *batch, *offsets]`: row-major places in the operand's `part` dimensions."""
    order: list[int]
    """Dimension i of the result is dimension `order[i]` of `[*batch, *offsets, *whole]`."""


def gather_places(
    context: Context, instruction: Instruction, dimensions: Sequence[int], indices: Array
) -> GatherPlaces:
    """The places for an operand of the given sizes; the result has elements."""
    shape = array_shape(instruction)
    sizes = integers(instruction, "slice_sizes")
    mapped = integers(instruction, "start_index_map")
    batching = integers(instruction, "operand_batching_dims")
    index_batching = integers(instruction, "start_indices_batching_dims")
    dropped = (*integers(instruction, "collapsed_slice_dims"), *batching)
    vector_dim = integer(instruction, "index_vector_dim")
    columns = index_columns(context, instruction, indices)
    batch = _batch_shape(columns, indices, vector_dim)
    limits = [total - size for total, size in zip(dimensions, sizes, strict=True)]
    part = [d for d in range(len(sizes)) if limits[d] or d in dropped]  # where not everything is taken
    whole = [d for d in range(len(sizes)) if d not in part]
    offsets = [d for d in part if d not in dropped]
    rank = 1 + len(batch) + len(offsets)
    flat = np.zeros([1] * rank, np.int64)
    for d in part:
        place = np.zeros([1] * rank, np.int64)
        if d in mapped:
            start = np.clip(columns[mapped.index(d)], 0, limits[d])
            place = start.reshape(*start.shape, *[1] * len(offsets))
        if d in batching:
            axis = batch_place(index_batching[batching.index(d)], vector_dim)
            place = along(batch[axis], 1 + axis, rank)
        if d in offsets:
            place = place + along(sizes[d], 1 + len(batch) + offsets.index(d), rank)
        flat = flat * dimensions[d] + place
    flat = np.broadcast_to(flat, (flat.shape[0], *batch, *(sizes[d] for d in offsets)))
    order = [0] * shape.rank
    offset_dims = integers(instruction, "offset_dims")
    kept = dict(zip((d for d in range(len(sizes)) if d not in dropped), offset_dims, strict=True))
    batch_dims = [d for d in range(shape.rank) if d not in offset_dims]
    for axis, target in enumerate([*batch_dims, *(kept[d] for d in (*offsets, *whole))]):
        order[target] = axis
    return GatherPlaces(part, whole, flat, order)


@op("gather")
def gather(context: Context, instruction: Instruction, x: Array, indices: Array) -> Array:
    """Semantics: XLA operation semantics, Gather: one slice of `slice_sizes` for each index vector.

    Starts are clamped so that slices lie inside. Operand dimensions that are neither collapsed nor batching become
    `offset_dims` of the result; dimensions that are taken whole are copied in one piece.
    """
    shape, x = array_shape(instruction), keep_type(context, instruction, x)
    if 0 in shape.dimensions:
        return np.zeros((1, *shape.dimensions), x.dtype)
    places = gather_places(context, instruction, x.shape[1:], indices)
    part, whole, flat = places.part, places.whole, places.flat
    source = x.transpose(0, *(d + 1 for d in part), *(d + 1 for d in whole))
    source = source.reshape(x.shape[0], -1, *(x.shape[d + 1] for d in whole))
    if flat.shape[0] == 1:
        taken = source.take(flat[0], axis=1)
    elif source.shape[0] == 1:
        taken = source[0].take(flat, axis=0)
    else:
        taken = source[along(flat.shape[0], 0, flat.ndim), flat]
    result: Array = taken.transpose([0, *(axis + 1 for axis in places.order)])
    return result


def _batch_shape(columns: Sequence[Array], indices: Array, vector_dim: int) -> tuple[int, ...]:
    sizes = list(indices.shape[1:])
    if vector_dim < len(sizes):
        del sizes[vector_dim]
    return tuple(sizes)


# ---- combining at places ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Combiner:
    """How a scatter puts an update where there is a value already."""

    context: Context
    computation: Computation
    types: tuple[str, ...]

    def replaces(self) -> bool:
        """Whether the result is just the update."""
        index = getattr(self.context, "index", None)
        if not isinstance(index, ModuleIndex) or len(self.types) != 1:
            return False
        return self.computation.root is index.parameters(self.computation)[1]

    def __call__(self, values: Sequence[Array], updates: Sequence[Array]) -> tuple[Array, ...]:
        """Arrays of one shape, combined element by element."""
        kind = self.context.simple_reducer(self.computation)
        if kind is not None and len(self.types) == 1:
            return (BINARY[kind](values[0], updates[0], self.types[0]),)
        return results_of(self.context.apply(self.computation, *values, *updates))


def combine_at(
    combiner: Combiner, values: Sequence[Array], places: Array, updates: Sequence[Array]
) -> tuple[Array, ...]:
    """Values `[size, *row]` with the updates `[m, *row]` at the places `[m]` put in, in order; places < 0 are left out."""
    results = [np.array(v) for v in values]
    inside = places >= 0
    if not inside.all():
        places, updates = places[inside], [u[inside] for u in updates]
    if not places.size:
        return tuple(results)
    if combiner.replaces():
        results[0][places] = updates[0]  # of several at one place numpy keeps the last
        return tuple(results)
    if results[0].ndim == 1 and _at(combiner, results, places, updates):
        return tuple(results)
    for chosen in _passes(places):
        here = places[chosen]
        combined = combiner([r[here] for r in results], [u[chosen] for u in updates])
        for result, new in zip(results, combined, strict=True):
            result[here] = new
    return tuple(results)


def _at(combiner: Combiner, results: list[Array], places: Array, updates: Sequence[Array]) -> bool:
    """Numpy's own `ufunc.at`, one update after the other, where it computes as XLA does."""
    kind, element_type = combiner.context.simple_reducer(combiner.computation), combiner.types[0]
    if kind is None or len(results) != 1:
        return False
    if is_floating(element_type) and kind in ("maximum", "minimum"):
        return False
    if is_complex(element_type) and kind != "add":
        return False
    if element_type == "pred":
        kind = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}.get(kind, kind)
    if is_integer(element_type):
        total = lift(results[0], element_type)
        total = total.copy() if total is results[0] else total
        UFUNCS[kind].at(total, places, lift(updates[0], element_type))
        results[0] = lower(total, element_type)
    else:
        UFUNCS[kind].at(results[0], places, updates[0])
    return True


def _passes(places: Array) -> list[Array]:
    """Numbers of updates in groups: the first at each place, the second at each place, ..."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    if first.all():
        return [order]
    begins = np.flatnonzero(first)
    ranks = np.arange(places.size) - np.repeat(begins, np.diff(np.r_[begins, places.size]))
    by_rank = order[np.argsort(ranks, kind="stable")]
    return list(np.split(by_rank, np.cumsum(np.bincount(ranks))[:-1]))


def combine_in_lanes(
    combiner: Combiner, values: Sequence[Array], places: Array, updates: Sequence[Array]
) -> list[Array]:
    """`combine_at` for values `[lanes, size, *row]`, places `[lanes, m]` and updates, with lane axes of 1 or n."""
    lanes = max(a.shape[0] for a in (*values, places, *updates))
    size, row = values[0].shape[1], values[0].shape[2:]
    if lanes > 1:
        places = np.where(places < 0, -1, places + np.arange(lanes)[:, np.newaxis] * size)
    flat = [expand(v, lanes).reshape(-1, *row) for v in values]
    changed = combine_at(combiner, flat, places.reshape(-1), [expand(u, lanes).reshape(-1, *row) for u in updates])
    return [c.reshape(lanes, size, *row) for c in changed]


# ---- scatter ---------------------------------------------------------------------------------------------------------


@op("scatter")
def scatter(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, Scatter: windows of the updates put in at the index vectors, in order.

    Operands are n arrays, the indices, n updates. `to_apply` takes the values that are there and the updates. A window
    that does not lie wholly inside is dropped, as XLA's backends do it.
    """
    count = len(operands) // 2
    computation = context.computation(instruction, "to_apply")
    types = types_of(computation.root.shape)
    values, indices = in_types(operands[:count], types), operands[count]
    updates = in_types(operands[count + 1 :], types)
    if 0 in updates[0].shape or 0 in values[0].shape:
        return as_result(instruction, values)
    window_dims = integers(instruction, "update_window_dims")
    dropped = (*integers(instruction, "inserted_window_dims"), *integers(instruction, "input_batching_dims"))
    kept = [d for d in range(values[0].ndim - 1) if d not in dropped]
    sizes = {d: updates[0].shape[axis + 1] for d, axis in zip(kept, window_dims, strict=True)}
    # Dimensions that windows have the whole of go last, as rows that are combined in one piece.
    whole = [d for d in kept if sizes[d] == values[0].shape[d + 1]]
    if math.prod(sizes[d] for d in whole) < _ROW:
        whole = []
    axis_of = dict(zip(kept, window_dims, strict=True))
    batch = [d for d in range(updates[0].ndim - 1) if d not in window_dims]
    order = [0, *(d + 1 for d in (*batch, *(axis_of[d] for d in kept if d not in whole), *(axis_of[d] for d in whole)))]
    part = [d for d in range(values[0].ndim - 1) if d not in whole]
    turn = [0, *(d + 1 for d in (*part, *whole))]
    row = [sizes[d] for d in whole]
    places = _window_places(context, instruction, values[0].shape[1:], indices, sizes, whole)
    fields = tuple(updates[0].shape[axis] for axis in order[1 : len(order) - len(whole)])
    changed = combine_in_lanes(
        Combiner(context, computation, tuple(types)),
        [v.transpose(turn).reshape(v.shape[0], -1, *row) for v in values],
        np.broadcast_to(places, (places.shape[0], *fields)).reshape(places.shape[0], -1),
        [u.transpose(order).reshape(u.shape[0], -1, *row) for u in updates],
    )
    turned = [values[0].shape[axis] for axis in turn[1:]]
    return as_result(instruction, [c.reshape(-1, *turned).transpose(np.argsort(turn)) for c in changed])


def _window_places(
    context: Context,
    instruction: Instruction,
    totals: Sequence[int],
    indices: Array,
    sizes: dict[int, int],
    whole: Sequence[int],
) -> Array:
    """The flat place of each update in the operand without the dimensions `whole`; -1 in windows that stick out.

    s64 `[lanes, *batch, *window]` without the window's whole dimensions, sizes being 1 where the place is the same.
    `totals` are the operand's sizes, `sizes` those of the window by operand dimension.
    """
    mapped = integers(instruction, "scatter_dims_to_operand_dims")
    batching = integers(instruction, "input_batching_dims")
    index_batching = integers(instruction, "scatter_indices_batching_dims")
    vector_dim = integer(instruction, "index_vector_dim")
    columns = index_columns(context, instruction, indices)
    batch = _batch_shape(columns, indices, vector_dim)
    kept = [d for d in sizes if d not in whole]
    rank = 1 + len(batch) + len(kept)
    flat, inside = np.zeros([1] * rank, np.int64), np.ones([1] * rank, np.bool_)
    for d, total in enumerate(totals):
        size = sizes.get(d, 1)
        place = np.zeros([1] * rank, np.int64)
        if d in mapped:
            start = columns[mapped.index(d)]
            start = start.reshape(*start.shape, *[1] * len(kept))
            inside = inside & (start >= 0) & (start <= total - size)
            place = start
        if d in batching:
            axis = batch_place(index_batching[batching.index(d)], vector_dim)
            place = along(batch[axis], 1 + axis, rank)
        if d in kept:
            place = place + along(size, 1 + len(batch) + kept.index(d), rank)
        if d not in whole:
            flat = flat * total + place
    return np.where(inside, flat, -1)
