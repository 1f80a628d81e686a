"""gather makes a new row-major shape; scatter returns the operands' shapes."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_cp2ag.ir.shape import UNBOUNDED, ArrayShape, Shape, TupleShape, is_integer

from .arrays import array, flags, sizes_agree, text
from .query import Query
from .reductions import check_reducer


def gather(query: Query) -> Shape:
    """Slices of the operand in `offset_dims`, one for each index vector in the other dimensions.

    A dynamic size comes from the indices, or from an operand dimension that is taken whole.
    """
    operand, indices = query.array(0), query.array(1, "the start indices")
    index_sizes, index_flags, vector_dim = _index_dimensions(query, indices)
    offset_dims = query.integers("offset_dims")
    collapsed = query.integers("collapsed_slice_dims")
    batching = query.integers("operand_batching_dims", ())
    sizes = query.integers("slice_sizes")
    _check_set(query, "offset_dims", offset_dims, len(offset_dims) + len(index_sizes) - 1)
    _check_index_map(query, "start_index_map", operand, index_sizes[vector_dim])
    _check_set(query, "collapsed_slice_dims", collapsed, operand.rank)
    _check_batching(query, "operand_batching_dims", "start_indices_batching_dims", operand, len(index_sizes))
    if len(sizes) != operand.rank:
        query.refuse(f"slice_sizes has {len(sizes)} sizes, the operand is {text(operand)}")
    if len(sizes) != len(offset_dims) + len(collapsed) + len(batching):
        query.refuse("each operand dimension has to be an offset, collapsed or batching dimension")
    for i, (taken, size) in enumerate(zip(sizes, operand.dimensions, strict=True)):
        if taken < 0 or (size != UNBOUNDED and taken > size):
            query.refuse(f"the slice size {taken} of dimension {i} does not fit the operand {text(operand)}")
    for i in (*collapsed, *batching):
        if sizes[i] > 1:
            query.refuse(f"the slice size of dimension {i}, which is dropped, is {sizes[i]}, not 1 or 0")

    kept = iter([i for i in range(operand.rank) if i not in collapsed + batching])
    outer = iter([i for i in range(len(index_sizes)) if i != vector_dim])
    dimensions: list[int] = []
    dynamic: list[bool] = []
    for place in range(len(offset_dims) + len(index_sizes) - 1):
        if place in offset_dims:
            i = next(kept)
            dimensions.append(sizes[i])
            dynamic.append(flags(operand)[i] and sizes[i] == operand.dimensions[i])
        else:
            i = next(outer)
            dimensions.append(index_sizes[i])
            dynamic.append(index_flags[i])
    return array(operand.element_type, dimensions, dynamic)


def scatter(query: Query) -> Shape:
    """The operands' shapes, as a tuple if there are several."""
    count = len(query.operands) // 2
    if len(query.operands) % 2 == 0:
        query.refuse(f"takes operands, indices and as many updates, it has {len(query.operands)} in all")
    if not count:
        query.refuse("needs an operand and an update")
    indices = query.array(count, "the scatter indices")
    index_sizes, _, vector_dim = _index_dimensions(query, indices)
    window_dims = query.integers("update_window_dims")
    inserted = query.integers("inserted_window_dims")
    batching = query.integers("input_batching_dims", ())
    operands = [query.array(i) for i in range(count)]
    updates = [query.array(count + 1 + i, f"update {i}") for i in range(count)]
    for operand, update in zip(operands, updates, strict=True):
        rank = len(index_sizes) - 1 + len(window_dims)
        if update.rank != rank:
            query.refuse(f"the update {text(update)} has to have {rank} dimensions")
        _check_set(query, "update_window_dims", window_dims, update.rank)
        _check_set(query, "inserted_window_dims", inserted, operand.rank)
        if len(window_dims) + len(inserted) + len(batching) != operand.rank:
            query.refuse(f"the window's dimensions are not those of the operand {text(operand)}")
        _check_index_map(query, "scatter_dims_to_operand_dims", operand, index_sizes[vector_dim])
        _check_batching(query, "input_batching_dims", "scatter_indices_batching_dims", operand, len(index_sizes))
        kept = [size for i, size in enumerate(operand.dimensions) if i not in inserted + batching]
        for place, size in zip(window_dims, kept, strict=False):
            if update.dimensions[place] > size:
                query.refuse(f"the update {text(update)} is larger than the operand {text(operand)}")
        outer = [size for i, size in enumerate(index_sizes) if i != vector_dim]
        scattered = [size for i, size in enumerate(update.dimensions) if i not in window_dims]
        if not all(map(sizes_agree, scattered, outer)):
            query.refuse(f"the update {text(update)} does not fit the indices {text(indices)}")
    starts = [array(operand.element_type, ()) for operand in operands]
    check_reducer(query, query.program("to_apply"), starts, [update.element_type for update in updates])
    return operands[0] if count == 1 else TupleShape(tuple(operands))


def _index_dimensions(query: Query, indices: ArrayShape) -> tuple[tuple[int, ...], tuple[bool, ...], int]:
    """The indices' sizes and flags, with a size of 1 appended if index vectors are scalars; the vectors' dimension."""
    if not is_integer(indices.element_type):
        query.refuse(f"the indices have to be integers, they are {text(indices)}")
    vector_dim = query.integer("index_vector_dim")
    if not 0 <= vector_dim <= indices.rank:
        query.refuse(f"index_vector_dim={vector_dim} is out of bounds for {text(indices)}")
    if vector_dim == indices.rank:
        return (*indices.dimensions, 1), (*flags(indices), False), vector_dim
    return indices.dimensions, flags(indices), vector_dim


def _check_set(query: Query, name: str, dimensions: Sequence[int], rank: int) -> None:
    for dimension in dimensions:
        if not 0 <= dimension < rank:
            query.refuse(f"the dimension {dimension} in {name} is out of bounds")
    if list(dimensions) != sorted(set(dimensions)):
        query.refuse(f"{name} has to ascend")


def _check_index_map(query: Query, name: str, operand: ArrayShape, length: int) -> None:
    dimensions = query.integers(name)
    if not sizes_agree(len(dimensions), length):
        query.refuse(f"{name} has {len(dimensions)} dimensions, an index vector {length}")
    for dimension in dimensions:
        query.dimension_in(dimension, operand, f"the dimension in {name}")
    if len(set(dimensions)) != len(dimensions):
        query.refuse(f"a dimension stands twice in {name}")


def _check_batching(query: Query, ours: str, theirs: str, operand: ArrayShape, index_rank: int) -> None:
    dimensions, of_indices = query.integers(ours, ()), query.integers(theirs, ())
    if len(dimensions) != len(of_indices):
        query.refuse(f"{ours} and {theirs} have different lengths")
    _check_set(query, ours, dimensions, operand.rank)
    for dimension in of_indices:
        if not 0 <= dimension < index_rank:
            query.refuse(f"the dimension {dimension} in {theirs} is out of bounds")
    if len(set(of_indices)) != len(of_indices):
        query.refuse(f"a dimension stands twice in {theirs}")


def check_batches(query: Query) -> None:
    """What StableHLO asks of a gather's or scatter's dimension numbers and XLA's shape inference passes over.

    A batching dimension goes with one of the indices' of the same size that is not the index vectors', and is neither
    collapsed nor indexed. A dimension that is dropped from the result has the one element that is taken.
    """
    if query.opcode == "gather":
        operand, indices = query.array(0), query.array(1)
        names = ("operand_batching_dims", "start_indices_batching_dims", "start_index_map", "collapsed_slice_dims")
        sizes = query.integers("slice_sizes")
        for i in (*query.integers(names[3]), *query.integers(names[0], ())):
            if sizes[i] == 0:
                query.refuse(f"the slice size of dimension {i}, which is dropped, is 0: there is no element to take")
    else:
        operand, indices = query.array(0), query.array(len(query.operands) // 2)
        names = (
            *("input_batching_dims", "scatter_indices_batching_dims", "scatter_dims_to_operand_dims"),
            "inserted_window_dims",
        )
    ours, theirs, indexed, dropped = names
    batching, of_indices = query.integers(ours, ()), query.integers(theirs, ())
    vector_dim = query.integer("index_vector_dim")
    for other in (indexed, dropped):
        for dimension in query.integers(other):
            if dimension in batching:
                query.refuse(f"the dimension {dimension} stands in both {ours} and {other}")
    for dimension, of_index in zip(batching, of_indices, strict=True):
        if of_index == vector_dim:
            query.refuse(f"the dimension {of_index} in {theirs} is index_vector_dim")
        if not sizes_agree(operand.dimensions[dimension], indices.dimensions[of_index]):
            query.refuse(
                f"the batching dimensions {dimension} of {text(operand)} and {of_index} of {text(indices)} "
                "have different sizes"
            )
