"""Ops that move elements: broadcast, concatenate, pad, transpose, reverse, slices, and the dynamic sizes.

New shapes are row-major; `transpose` permutes the operand's layout with the dimensions (so that it moves no bytes),
`reverse`, `dynamic-update-slice` and `set-dimension-size` keep the operand's.
"""

from __future__ import annotations

from dataclasses import replace

from hlo_cp2ag.ir.attributes import PaddingConfig, SliceRanges
from hlo_cp2ag.ir.shape import UNBOUNDED, ArrayShape, BufferShape, Shape, compatible, is_integer

from .arrays import array, flags, is_scalar, is_unbounded, sizes_agree, text, with_dynamic
from .element_types import same_but_for_precision
from .elementwise import common_type
from .query import Query

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1


def broadcast(query: Query) -> Shape:
    """`dimensions` read as sizes to put before the operand's: what XLA's parser does where the shape is left out.

    The same attribute says something else where the shape is stated: where each operand dimension goes.
    """
    operand = query.array(0)
    sizes = query.integers("dimensions", () if operand.rank == 0 else None)
    if is_unbounded(operand):
        query.refuse(f"no shape follows from the unbounded operand {text(operand)}")
    for size in sizes:
        if size < 0:
            query.refuse(f"the size {size} is negative")
    dynamic = (False,) * len(sizes) + flags(operand)
    return array(operand.element_type, sizes + operand.dimensions, dynamic)


def concatenate(query: Query) -> Shape:
    """The sizes along `dimensions` added up; where one is `?` so is the sum, elsewhere a known size wins over `?`.

    Of mixed floating-point types XLA takes the higher of the first and the last operand's.
    """
    if not query.operands:
        query.refuse("needs an operand")
    along = query.one_dimension()
    shapes = query.arrays()
    first = shapes[0]
    query.dimension_in(along, first)
    dimensions = [0 if i == along else size for i, size in enumerate(first.dimensions)]
    dynamic = [False] * first.rank
    for shape in shapes:
        if shape.rank != first.rank:
            query.refuse(f"the operands' ranks differ: {text(first)} and {text(shape)}")
        if not same_but_for_precision(first.element_type, shape.element_type):
            query.refuse(f"the operands' element types differ: {text(first)} and {text(shape)}")
        for i, size in enumerate(shape.dimensions):
            if i != along and not sizes_agree(dimensions[i], size):
                query.refuse(f"the operands differ in dimension {i}: {text(first)} and {text(shape)}")
            if i == along:
                dimensions[i] = UNBOUNDED if UNBOUNDED in (dimensions[i], size) else dimensions[i] + size
            elif size != UNBOUNDED:
                dimensions[i] = size
            dynamic[i] |= flags(shape)[i] and size != UNBOUNDED
    element_type = common_type(query, first, shapes[-1])
    return array(element_type, dimensions, [f or d == UNBOUNDED for f, d in zip(dynamic, dimensions, strict=True)])


def pad(query: Query) -> Shape:
    """Every dimension grows by the padding before and after, and by the one between elements once for each gap."""
    operand, value = query.array(0), query.operands[1]
    padding = query.value("padding", PaddingConfig).dimensions
    if not is_scalar(value):
        query.refuse(f"the padding value has to be a scalar, it is {text(value)}")
    assert isinstance(value, ArrayShape)
    if operand.rank != len(padding):
        query.refuse(f"padding has {len(padding)} dimensions, the operand is {text(operand)}")
    if not same_but_for_precision(operand.element_type, value.element_type):
        query.refuse(f"the padding value {text(value)} is not of the operand's type {text(operand)}")
    dimensions = []
    for i, (size, (low, high, between)) in enumerate(zip(operand.dimensions, padding, strict=True)):
        if between < 0:
            query.refuse(f"the padding between elements of dimension {i} is negative")
        padded = UNBOUNDED if size == UNBOUNDED else size + low + high + max(size - 1, 0) * between
        if padded < 0 and size != UNBOUNDED:
            query.refuse(f"the padding makes the size of dimension {i} negative: {padded}")
        if padded > _INT64_MAX:
            query.refuse(f"the padding makes the size of dimension {i} too large")
        dimensions.append(padded)
    return array(common_type(query, operand, value), dimensions, flags(operand))


def transpose(query: Query) -> Shape:
    """Dimension i of the result is dimension `dimensions[i]` of the operand, in the order of memory it had there."""
    operand = query.array(0)
    order = query.integers("dimensions")
    if sorted(order) != list(range(operand.rank)):
        query.refuse(f"dimensions={{{','.join(map(str, order))}}} is no permutation of those of {text(operand)}")
    layout = operand.layout
    if layout is not None:
        place = {old: new for new, old in enumerate(order)}
        layout = replace(layout, minor_to_major=tuple(place[old] for old in layout.minor_to_major))
    dynamic = [flags(operand)[old] for old in order]
    moved = operand.with_dimensions(tuple(operand.dimensions[old] for old in order))
    return with_dynamic(replace(moved, layout=layout), dynamic)


def reverse(query: Query) -> Shape:
    """The operand's shape."""
    operand = query.array(0)
    dimensions = query.integers("dimensions")
    if len(set(dimensions)) != len(dimensions):
        query.refuse("a dimension stands twice in dimensions")
    for dimension in dimensions:
        query.dimension_in(dimension, operand)
    return operand


def slice_(query: Query) -> Shape:
    """The number of steps from start to limit; a dynamic dimension sliced to one element is static."""
    operand = query.array(0)
    ranges = query.value("slice", SliceRanges).ranges
    if len(ranges) != operand.rank:
        query.refuse(f"slice has {len(ranges)} ranges, the operand is {text(operand)}")
    dimensions = []
    for i, (size, (start, limit, stride)) in enumerate(zip(operand.dimensions, ranges, strict=True)):
        if start < 0 or start > limit or (size != UNBOUNDED and limit > size):
            query.refuse(f"the range [{start}:{limit}] is not within dimension {i} of {text(operand)}")
        if stride <= 0:
            query.refuse(f"the stride {stride} of dimension {i} is not positive")
        dimensions.append((limit - start + stride - 1) // stride)
    bounded = zip(dimensions, operand.dimensions, flags(operand), strict=True)
    return array(operand.element_type, dimensions, [f and new != 1 and old != UNBOUNDED for new, old, f in bounded])


def dynamic_slice(query: Query) -> Shape:
    """`dynamic_slice_sizes`; a dynamic dimension that is taken whole stays dynamic."""
    operand = query.array(0)
    _check_start_indices(query, operand, query.operands[1:])
    sizes = query.integers("dynamic_slice_sizes")
    if len(sizes) != operand.rank:
        query.refuse(f"dynamic_slice_sizes has {len(sizes)} sizes, the operand is {text(operand)}")
    for i, (taken, size) in enumerate(zip(sizes, operand.dimensions, strict=True)):
        if taken < 0 or (size != UNBOUNDED and taken > size):
            query.refuse(f"the slice size {taken} of dimension {i} does not fit the operand {text(operand)}")
    whole = zip(sizes, operand.dimensions, flags(operand), strict=True)
    return array(operand.element_type, sizes, [f and taken == size and taken > 1 for taken, size, f in whole])


def dynamic_update_slice(query: Query) -> Shape:
    """The operand's shape (an array's or a buffer's), dynamic also where the update replaces a whole dimension."""
    if len(query.operands) < 2:
        query.refuse("needs an operand and an update")
    whole = query.operands[0]
    operand = whole.array if isinstance(whole, BufferShape) else query.array(0)
    update = query.array(1, "the update")
    _check_start_indices(query, operand, query.operands[2:])
    if update.rank != operand.rank:
        query.refuse(f"the update {text(update)} has not the rank of the operand {text(operand)}")
    if not same_but_for_precision(operand.element_type, update.element_type):
        query.refuse(f"the update {text(update)} is not of the operand's type {text(operand)}")
    for new, size in zip(update.dimensions, operand.dimensions, strict=True):
        if size != UNBOUNDED and new > size:
            query.refuse(f"the update {text(update)} is larger than the operand {text(operand)}")
    if isinstance(whole, BufferShape):
        return whole
    pairs = zip(operand.dimensions, update.dimensions, flags(operand), flags(update), strict=True)
    return with_dynamic(operand, [f or (g and new == size) for size, new, f, g in pairs])


def _check_start_indices(query: Query, operand: ArrayShape, indices: tuple[Shape, ...]) -> None:
    """One integer scalar for each dimension, all of one type; or, the old form, one vector of them."""
    if indices and isinstance(indices[0], ArrayShape) and indices[0].rank == 1:
        vector = indices[0]
        if len(indices) != 1 or not is_integer(vector.element_type) or vector.dimensions[0] != operand.rank:
            query.refuse(f"the start indices {text(vector)} have to be {operand.rank} integers for {text(operand)}")
        return
    if len(indices) != operand.rank:
        query.refuse(f"has {len(indices)} start indices, the operand is {text(operand)}")
    for index in indices:
        if not is_scalar(index) or not isinstance(index, ArrayShape) or not is_integer(index.element_type):
            query.refuse(f"a start index has to be an integer scalar, not {text(index)}")
        if not compatible(index, indices[0]):
            query.refuse(f"the start indices' types differ: {text(indices[0])} and {text(index)}")


def get_dimension_size(query: Query) -> Shape:
    """`s32[]`."""
    _sized_dimension(query)
    return array("s32", ())


def set_dimension_size(query: Query) -> Shape:
    """The operand's shape with the dimension dynamic."""
    operand, dimension = _sized_dimension(query)
    if not is_scalar(query.operands[1], "s32"):
        query.refuse(f"the size has to be s32[], it is {text(query.operands[1])}")
    dynamic = [flag or i == dimension for i, flag in enumerate(flags(operand))]
    return with_dynamic(operand, dynamic)


def _sized_dimension(query: Query) -> tuple[ArrayShape, int]:
    operand = query.array(0)
    dimensions = query.integers("dimensions")
    if not dimensions:
        query.refuse("needs a dimension")
    dimension = query.dimension_in(dimensions[0], operand)
    if operand.dimensions[dimension] > _INT32_MAX:
        query.refuse(f"dimension {dimension} of {text(operand)} does not fit s32")
    return operand, dimension
