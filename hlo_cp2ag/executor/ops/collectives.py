"""Collectives: the only ops that look across the lane axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift, lower
from hlo_cp2ag.executor.groups import GroupTable, axis_groups, group_table, meet
from hlo_cp2ag.executor.ops.conversion import convert_array
from hlo_cp2ag.executor.ops.elementwise import BINARY
from hlo_cp2ag.executor.registry import Context, execution_error, integers, op, precheck
from hlo_cp2ag.executor.values import Array, Value, align, array_shape_of, expand
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import TupleShape, is_floating, is_integer
from hlo_cp2ag.topology.group_modes import Profile, device_pairs

_UNIFORM = ("all-gather", "all-gather-start", "reduce-scatter", "all-to-all")
"""Collectives whose result's size says how many devices a group has."""


@precheck("all-gather", "all-gather-start", "all-reduce", "all-reduce-start", "reduce-scatter", "all-to-all")
@precheck("collective-broadcast")
def groups_fit(context: Context, instruction: Instruction) -> None:
    """Raise HloSyntaxError for groups that name devices outside the grid or twice, or leave some out."""
    table = group_table(context, instruction)
    if instruction.opcode == "collective-broadcast":
        return
    if not table.covers:
        left = int(np.flatnonzero(table.group_of < 0)[0])
        raise instruction.error(f"device {left} is in none of the replica_groups")
    if table.same_size is None and instruction.opcode in _UNIFORM:
        raise instruction.error(f"the groups of {instruction.opcode} have different sizes")


def each_operand(
    instruction: Instruction, operands: tuple[Array, ...], function: Callable[[Array, int], Array]
) -> Value:
    """`function` on each operand with its number: a tuple where there are several, else the one result."""
    results = tuple(function(x, number) for number, x in enumerate(operands))
    return results[0] if len(results) == 1 and not _is_tuple(instruction) else results


def _is_tuple(instruction: Instruction) -> bool:
    return not instruction.opcode.endswith("-start") and isinstance(instruction.shape, TupleShape)


def same_groups(context: Context, instruction: Instruction) -> tuple[GroupTable, Array]:
    """The table of a collective whose groups have one size, and its members `[groups, members]`; checks who is here."""
    table = group_table(context, instruction)
    meet(context, instruction, table.groups)
    assert table.same_size is not None
    return table, table.same_size


def spread(per_group: Array, table: GroupTable) -> Array:
    """Values `[groups, ...]` on the devices of each group, `[1 or devices, ...]`."""
    return per_group if per_group.shape[0] == 1 and table.covers else per_group[table.group_of]


@op("all-gather")
def all_gather(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, AllGather: the group's operands, concatenated in the order of its members."""
    table, members = same_groups(context, instruction)
    (along,) = integers(instruction, "dimensions")
    lanes = context.grid.device_count

    def gather(x: Array, number: int) -> Array:
        size = members.shape[1]
        if x.shape[0] == 1:
            return np.concatenate([x] * size, axis=along + 1) if size > 1 else x
        parts = expand(x, lanes)[members]  # [groups, members, *dimensions]
        parts = np.moveaxis(parts, 1, along + 1)
        shape = list(x.shape[1:])
        shape[along] *= size
        return spread(parts.reshape(members.shape[0], *shape), table)

    return each_operand(instruction, operands, gather)


def kept_in(element_type: str) -> str:
    """The type in which a reduction over devices is kept.

    bf16 and f8 are kept in f32 and rounded once at the end, as XLA's AllReducePromotion does on CPU; f16 is not.
    """
    narrow = is_floating(element_type) and element_type not in ("f64", "f32", "f16")
    return "f32" if narrow else element_type


def fold(context: Context, computation: Computation, element_type: str, rows: Iterable[Array]) -> Array:
    """Rows of one shape reduced from first to last."""
    kind = context.simple_reducer(computation)
    remaining = iter(rows)
    if kind is None:
        total = next(remaining)
        for row in remaining:
            total = cast(Array, context.apply(computation, total, row))
        return total
    wide, function = kept_in(element_type), BINARY[kind]
    total = convert_array(next(remaining), element_type, wide)
    for row in remaining:
        total = function(total, convert_array(row, element_type, wide), wide)
    return convert_array(total, wide, element_type)


def fold_equal(context: Context, computation: Computation, element_type: str, x: Array, count: int) -> Array:
    """The same array, reduced with itself `count` times: bit for bit what `fold` makes of `count` copies."""
    kind = context.simple_reducer(computation)
    if kind in ("maximum", "minimum", "and", "or") or count == 1:
        return x
    if kind == "add" and is_integer(element_type):
        lifted = lift(x, element_type)
        return lower(lifted * np.array(count, np.int64).astype(lifted.dtype), element_type)
    wide = kept_in(element_type)
    if kind in ("add", "multiply") and wide in ("f32", "f64"):
        one = np.ascontiguousarray(convert_array(x, element_type, wide)).reshape(-1)
        total, step = one.copy(), np.add if kind == "add" else np.multiply
        for start in range(0, one.size, _BLOCK):  # a block at a time stays in the fastest cache
            part, copy = total[start : start + _BLOCK], one[start : start + _BLOCK]
            for _ in range(count - 1):
                step(part, copy, out=part)
        return convert_array(total.reshape(x.shape), wide, element_type)
    return fold(context, computation, element_type, repeat(x, count))


_BLOCK = 1 << 15


def reduced(context: Context, instruction: Instruction, x: Array, number: int, table: GroupTable) -> Array:
    """An operand reduced over each group: `[1, ...]` or `[groups, ...]`."""
    computation = context.computation(instruction, "to_apply")
    element_type = array_shape_of(context.operand_shapes(instruction)[number]).element_type
    sizes = {len(group) for group in table.groups}
    if x.shape[0] == 1 and len(sizes) == 1:
        return fold_equal(context, computation, element_type, x, sizes.pop())
    x = expand(x, context.grid.device_count)
    if table.same_size is not None:
        members = table.same_size
        rows = (x[members[:, place]] for place in range(members.shape[1]))
        return fold(context, computation, element_type, rows)
    parts = [fold(context, computation, element_type, [x[[d]] for d in group]) for group in table.groups]
    return np.concatenate(parts)


@op("all-reduce")
def all_reduce(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, AllReduce: the group's operands reduced in the order of its members."""
    table = group_table(context, instruction)
    meet(context, instruction, table.groups)

    def reduce(x: Array, number: int) -> Array:
        per_group = reduced(context, instruction, x, number, table)
        return spread(per_group, table) if x.shape[0] != 1 or table.same_size is None else per_group

    return each_operand(instruction, operands, reduce)


@op("reduce-scatter")
def reduce_scatter(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, ReduceScatter: reduced, then split along a dimension among the members."""
    table, members = same_groups(context, instruction)
    (along,) = integers(instruction, "dimensions")
    size = members.shape[1]

    def scatter(x: Array, number: int) -> Array:
        total = reduced(context, instruction, x, number, table)
        shape = list(total.shape)
        shape[along + 1 : along + 2] = [size, shape[along + 1] // size]
        pieces = np.moveaxis(total.reshape(shape), along + 1, 1)  # [1 or groups, members, *dimensions]
        if size == 1:
            return spread(pieces[:, 0], table) if total.shape[0] > 1 else pieces[:, 0]
        groups = table.group_of if total.shape[0] > 1 else np.zeros_like(table.group_of)
        return pieces[groups, table.place_of]

    return each_operand(instruction, operands, scatter)


@op("all-to-all")
def all_to_all(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, AllToAll: member i gets piece i of each member, in their order.

    With `dimensions` the pieces are parts of the one operand along it, else they are the operands.
    """
    table, members = same_groups(context, instruction)
    size = members.shape[1]
    agree = all(x.shape[0] == 1 for x in operands)
    sources = np.zeros_like(members[table.group_of]) if agree else members[table.group_of]  # [devices, members]
    if instruction.attribute_text("dimensions") is not None and len(operands) == 1:
        (along,) = integers(instruction, "dimensions")
        (x,) = operands
        if size == 1:
            return (x,) if isinstance(instruction.shape, TupleShape) else x
        shape = list(x.shape)
        shape[along + 1 : along + 2] = [size, shape[along + 1] // size]
        # [devices, pieces, *dimensions], and then [devices, members, *dimensions]
        pieces = np.moveaxis(x.reshape(shape), along + 1, 1)
        taken = pieces[sources, table.place_of[:, np.newaxis]]
        result = np.moveaxis(taken, 1, along + 1).reshape(-1, *x.shape[1:])
        return (result,) if isinstance(instruction.shape, TupleShape) else result
    if size == 1 or (agree and len({id(x) for x in operands}) == 1):
        return operands
    stacked = np.stack(align(*operands), axis=1)  # [devices, pieces, *dimensions]
    taken = stacked[sources, table.place_of[:, np.newaxis]]
    return tuple(taken[:, place] for place in range(size))


@op("collective-broadcast")
def collective_broadcast(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA, CollectiveBroadcast: the first member's operand on all of its group, zeros on other devices."""
    table = group_table(context, instruction)
    meet(context, instruction, table.groups)

    def send(x: Array, number: int) -> Array:
        if x.shape[0] == 1 and table.covers:
            return x
        lanes = context.grid.device_count
        first = np.asarray([group[0] for group in table.groups if group] or [0], np.int64)
        values = expand(x, lanes)[first]
        if table.covers:
            return spread(values, table)
        return _or_zeros(values[table.group_of], table.group_of >= 0)

    return each_operand(instruction, operands, send)


def _or_zeros(x: Array, kept: Array) -> Array:
    """The lanes of `x` where `kept` is true, zeros (all bits 0) elsewhere."""
    result = np.array(x)
    result.view(np.uint8 if x.dtype.itemsize == 1 else x.dtype)[~kept] = 0
    return result


# ---- permutes --------------------------------------------------------------------------------------------------------


@precheck("collective-permute", "collective-permute-start")
def pairs_fit(context: Context, instruction: Instruction) -> None:
    """Raise HloSyntaxError for pairs that name ids outside their axis, or one source or target twice."""
    permute_map(context, instruction)


def permute_map(context: Context, instruction: Instruction) -> Array:
    """By device: the device whose operand it receives, -1 for none. Made once."""

    def make() -> Array:
        if len(context.operand_shapes(instruction)) == 4 and instruction.attribute_text("slice_sizes") is not None:
            raise instruction.error("the executor does not support in-place permutes (slice_sizes)")
        received = np.full(context.grid.device_count, -1)
        for source, target in device_pairs(instruction, context.grid, cast(Profile, context.profile)):
            received[target] = source
        return received

    return context.memo(instruction, "permute", make)


@op("collective-permute")
def collective_permute(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, CollectivePermute: zeros where no pair sends.

    Under the profile "neuron" pairs name flat ranks, and a device that no pair targets keeps its operand.
    """
    received = permute_map(context, instruction)
    meet(context, instruction, axis_groups(context, instruction))
    is_target = received >= 0

    def permute(x: Array, number: int) -> Array:
        if context.profile == "neuron":
            return x if x.shape[0] == 1 else x[np.where(is_target, received, np.arange(received.size))]
        if is_target.all():
            return x if x.shape[0] == 1 else x[received]
        if not is_target.any():
            return _or_zeros(x[:1], is_target[:1])
        return _or_zeros(expand(x, received.size)[received], is_target)

    return each_operand(instruction, operands, permute)


# ---- who am I --------------------------------------------------------------------------------------------------------


@op("replica-id")
def replica_id(context: Context, instruction: Instruction) -> Array:
    """Semantics: XLA operation semantics, ReplicaId; under the profile "neuron" the flat rank."""
    grid = context.grid
    flat = np.arange(grid.device_count, dtype=np.uint32)
    return _ids(context, instruction, flat if context.profile == "neuron" else flat // np.uint32(grid.num_partitions))


@op("partition-id")
def partition_id(context: Context, instruction: Instruction) -> Array:
    """Semantics: XLA, PartitionId."""
    grid = context.grid
    return _ids(context, instruction, np.arange(grid.device_count, dtype=np.uint32) % np.uint32(grid.num_partitions))


def _ids(context: Context, instruction: Instruction, ids: Array) -> Array:
    if context.in_apply:
        raise execution_error(instruction, f"{instruction.opcode} in a computation that is applied to elements")
    return ids if (ids != ids[0]).any() else ids[:1]
