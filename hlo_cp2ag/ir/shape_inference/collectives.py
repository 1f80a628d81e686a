"""Collectives. What follows from how many devices a group has needs the groups, or `group_size` from the caller."""

from __future__ import annotations

from collections.abc import Callable

from hlo_cp2ag.ir.attributes import IotaReplicaGroups, MeshReplicaGroups, ReplicaGroupList
from hlo_cp2ag.ir.shape import UNBOUNDED, ArrayShape, Shape, TupleShape, is_integer

from .arrays import flags, text, with_dynamic
from .query import Query


def group_size(query: Query) -> int | None:
    """How many devices exchange data, if the caller or the text says it.

    The text does not where `replica_groups={}` means the whole grid, nor where groups of replicas stand for all their
    partitions: all-gather, all-reduce and reduce-scatter with a channel and without `use_global_device_ids`.
    """
    if query.group_size is not None:
        return query.group_size
    joins_partitions = query.opcode not in ("all-to-all", "collective-broadcast", "ragged-all-to-all")
    if joins_partitions and "channel_id" in query.attributes and not query.attributes.get("use_global_device_ids"):
        return None
    groups = query.attributes.get("replica_groups")
    if isinstance(groups, IotaReplicaGroups):
        return groups.shape[1]
    if isinstance(groups, (ReplicaGroupList, MeshReplicaGroups)):
        lists = groups.to_groups()
        return len(lists[0]) if lists else None
    return None


def known_group_size(query: Query) -> int:
    """The same where a result depends on it."""
    size = group_size(query)
    if size is None:
        query.refuse("no shape follows without the number of devices in a group")
    if size < 1:
        query.refuse("a group has no devices")
    return size


def one_or_tuple(shapes: list[Shape]) -> Shape:
    """The shape itself if it is the only one, else a tuple."""
    return shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))


def _each(query: Query, change: Callable[[ArrayShape], ArrayShape]) -> Shape:
    if not query.operands:
        query.refuse("needs an operand")
    return one_or_tuple([change(shape) for shape in query.arrays()])


def all_reduce(query: Query) -> Shape:
    """The operands' shapes."""
    return _each(query, lambda shape: shape)


def all_gather(query: Query) -> Shape:
    """The operands with the gathered dimension as many times as large as a group has devices."""
    size = known_group_size(query)
    return _each(query, lambda shape: _resize(query, shape, lambda n: n * size))


def all_gather_start(query: Query) -> Shape:
    """(operands, results)."""
    return TupleShape((one_or_tuple(list(query.operands)), all_gather(query)))


def reduce_scatter(query: Query) -> Shape:
    """The operands with the scattered dimension divided by the number of devices in a group."""
    size = known_group_size(query)

    def divided(n: int) -> int:
        if n % size:
            query.refuse(f"a dimension of size {n} does not fall into {size} parts")
        return n // size

    return _each(query, lambda shape: _resize(query, shape, divided))


def _resize(query: Query, shape: ArrayShape, new_size: Callable[[int], int]) -> ArrayShape:
    dimension = query.dimension_in(query.one_dimension(), shape)
    sizes = list(shape.dimensions)
    if sizes[dimension] != UNBOUNDED:
        sizes[dimension] = new_size(sizes[dimension])
    return with_dynamic(shape.with_dimensions(tuple(sizes)), flags(shape))


def all_to_all(query: Query) -> Shape:
    """With `dimensions` the operand's shape, which falls into parts; else a tuple of equal operands."""
    size = group_size(query)
    if "dimensions" in query.attributes:
        operand = query.array(0)
        dimension = query.dimension_in(query.one_dimension(), operand)
        if len(query.operands) != 1:
            query.refuse(f"takes one operand to split, it has {len(query.operands)}")
        if any(flag and extent != UNBOUNDED for flag, extent in zip(flags(operand), operand.dimensions, strict=True)):
            query.refuse(f"does not split an operand with a dynamic dimension, {text(operand)}")
        extent = operand.dimensions[dimension]
        if size is not None and extent != UNBOUNDED and (size < 1 or extent % size):
            query.refuse(f"dimension {dimension} of {text(operand)} does not fall into {size} parts")
        return operand
    shapes = query.arrays()
    if not shapes:
        query.refuse("needs an operand")
    for shape in shapes[1:]:
        if (shape.element_type, shape.dimensions) != (shapes[0].element_type, shapes[0].dimensions):
            query.refuse(f"the operands differ: {text(shapes[0])} and {text(shape)}")
    if size is not None and len(shapes) != size:
        query.refuse(f"has {len(shapes)} operands for a group of {size} devices")
    return TupleShape(query.operands)


def collective_broadcast(query: Query) -> Shape:
    """The operand's shape."""
    if not query.operands:
        query.refuse("needs an operand")
    return query.array(0)


def collective_permute(query: Query) -> Shape:
    """The operands' shapes; with `slice_sizes` (operand, target, and where in each) the target's."""
    if "slice_sizes" in query.attributes:
        return _in_place_operands(query)[1]
    return _each(query, lambda shape: shape)


def collective_permute_start(query: Query) -> Shape:
    """(operands, results); what follows them in a text, context of no fixed kind, is not inferred."""
    if "slice_sizes" in query.attributes:
        return TupleShape(_in_place_operands(query))
    operands = _each(query, lambda shape: shape)
    return TupleShape((operands, operands))


def _in_place_operands(query: Query) -> tuple[Shape, Shape]:
    if len(query.operands) != 4:
        query.refuse(f"takes four operands with slice_sizes, it has {len(query.operands)}")
    return query.operands[0], query.operands[1]


def ragged_all_to_all(query: Query) -> Shape:
    """The shape of operand 1, the output; four equal vectors of offsets and sizes follow."""
    if len(query.operands) != 6:
        query.refuse(f"takes six operands, it has {len(query.operands)}")
    shapes = query.arrays()
    for shape in shapes[2:]:
        if not is_integer(shape.element_type) or shape.dimensions != shapes[2].dimensions:
            query.refuse(f"offsets and sizes have to be equal vectors of integers: {', '.join(map(text, shapes[2:]))}")
    return shapes[1]
