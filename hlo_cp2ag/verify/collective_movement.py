"""The collectives that move data, in the symbolic domain."""

from __future__ import annotations

import numpy as np

from hlo_cp2ag.executor.groups import GroupTable, axis_groups, meet
from hlo_cp2ag.executor.ops.collectives import permute_map, same_groups
from hlo_cp2ag.executor.registry import array_shape, integers
from hlo_cp2ag.executor.values import Array, array_shape_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import TupleShape
from hlo_cp2ag.verify import symbols
from hlo_cp2ag.verify.movement import Evaluation, Moved, disjoint, moves, reduces_beside_zero, unknown_of
from hlo_cp2ag.verify.symbols import Axis, Symbols


def _all_lanes(codes: Array, devices: int) -> Array:
    """The codes with a lane for every device, as a view."""
    return codes if codes.shape[0] == devices else np.broadcast_to(codes, (devices, *codes.shape[1:]))


def _spread(per_group: Array, table: GroupTable) -> Array:
    """Codes `[groups, ...]` on the devices of each group."""
    if per_group.shape[0] == 1:
        return per_group
    symbols.require_room(table.group_of.size * per_group[0].size)
    result: Array = per_group[table.group_of]
    return result


def _each(instruction: Instruction, results: list[Moved]) -> Moved:
    """One result, or a tuple where there are several or the shape says so."""
    if len(results) == 1 and (instruction.opcode.endswith("-start") or not isinstance(instruction.shape, TupleShape)):
        return results[0]
    return tuple(results)


@moves("all-gather")
def all_gather(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """Semantics: XLA, AllGather: a new slowest axis in the gathered dimension, one place for each member."""
    table, members = same_groups(site.context, instruction)
    (dim,) = integers(instruction, "dimensions")
    devices, size = site.context.grid.device_count, members.shape[1]

    def gather(x: Symbols) -> Moved:
        if x.is_empty or size == 1:
            return x
        place = 1 + x.first_axis(dim)
        axis = Axis(size)
        if x.codes.shape[0] == 1:
            codes = np.expand_dims(x.codes, place)
            codes = np.broadcast_to(codes, (*codes.shape[:place], size, *codes.shape[place + 1 :]))
        else:
            symbols.require_room(members.size * x.codes[0].size)
            codes = _spread(np.moveaxis(_all_lanes(x.codes, devices)[members], 1, place), table)
        return x.with_codes(codes, (*x.dims[:dim], (axis, *x.dims[dim]), *x.dims[dim + 1 :]))

    return _each(instruction, [gather(site.traced(x, instruction, i)) for i, x in enumerate(operands)])


@moves("collective-permute")
def collective_permute(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """Semantics: XLA, CollectivePermute: zeros where no pair sends; under the profile "neuron" the operand."""
    if instruction.attribute_text("slice_sizes") is not None:
        return unknown_of(instruction.shape, f"{instruction.name} permutes in place")
    received = permute_map(site.context, instruction)
    meet(site.context, instruction, axis_groups(site.context, instruction))
    devices = received.size

    def permute(x: Symbols) -> Moved:
        if x.is_empty:
            return x
        own = _all_lanes(x.codes, devices)
        sent = own[np.where(received >= 0, received, np.arange(devices))]
        if site.context.profile != "neuron":
            sent[received < 0] = 0
        return x.with_codes(sent)

    return _each(instruction, [permute(site.traced(x, instruction, i)) for i, x in enumerate(operands)])


@moves("collective-broadcast")
def collective_broadcast(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """Semantics: XLA, CollectiveBroadcast: the first member's operand, zeros on devices of no group."""
    from hlo_cp2ag.executor.groups import group_table

    table = group_table(site.context, instruction)
    meet(site.context, instruction, table.groups)
    devices = table.group_of.size
    first = np.full(devices, -1)
    for group in table.groups:
        first[np.asarray(group, np.int64)] = group[0]

    def spread(x: Symbols) -> Moved:
        if x.is_empty:
            return x
        sent = _all_lanes(x.codes, devices)[np.maximum(first, 0)]
        sent[first < 0] = 0
        return x.with_codes(sent)

    return _each(instruction, [spread(site.traced(x, instruction, i)) for i, x in enumerate(operands)])


@moves("all-to-all")
def all_to_all(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """Semantics: XLA, AllToAll: member i gets piece i of each member, in their order."""
    table, members = same_groups(site.context, instruction)
    size, devices = members.shape[1], site.context.grid.device_count
    sources = members[table.group_of]  # [devices, members]
    traced = [site.traced(x, instruction, i) for i, x in enumerate(operands)]
    if traced[0].is_empty or size == 1:
        return _each(instruction, list(traced))
    if instruction.attribute_text("dimensions") is not None and len(traced) == 1:
        (dim,) = integers(instruction, "dimensions")
        x = symbols.flatten(symbols.split_dim(traced[0], dim, size), dim)
        place = 1 + x.first_axis(dim)
        symbols.require_room(devices * x.codes[0].size)
        pieces = np.moveaxis(_all_lanes(x.codes, devices), place, 1)  # [devices, pieces, ...]
        taken = pieces[sources, table.place_of[:, np.newaxis]]
        return symbols.merge_dims(x.with_codes(np.moveaxis(taken, 1, place)), dim)
    codes, dims = symbols.unify(traced)
    shape = np.broadcast_shapes(*(c.shape for c in codes))
    symbols.require_room(2 * size * devices * int(np.prod(shape[1:], dtype=np.int64)))
    stacked = np.stack([np.broadcast_to(c, (devices, *shape[1:])) for c in codes], axis=1)
    return tuple(symbols.combined(traced, stacked[sources[:, j], table.place_of], dims) for j in range(len(traced)))


def _summed(site: Evaluation, instruction: Instruction, x: Moved, number: int, table: GroupTable) -> Symbols:
    """An operand reduced over each group, where at most one member has anything but zero; else unknown."""
    element_type = array_shape_of(site.context.operand_shapes(instruction)[number]).element_type
    moved = site.traced(x, instruction, number)
    why = f"{instruction.opcode} {instruction.name} computes with data"
    if not reduces_beside_zero(site, instruction, element_type):
        return symbols.unknown(moved.dimensions, why)
    devices = site.context.grid.device_count
    symbols.require_room(devices * moved.codes[0].size)
    codes = _all_lanes(moved.codes, devices)
    if table.same_size is not None:
        per_group = disjoint(codes[table.same_size], 1)
    else:
        per_group = np.stack([disjoint(codes[np.asarray(group, np.int64)], 0) for group in table.groups])
    result = moved.with_codes(_spread(per_group, table))
    return result if result.why or not result.has_unknown else Symbols(
        result.codes, result.dims, result.conversions, result.lost_payload, why
    )  # fmt: skip


@moves("all-reduce")
def all_reduce(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """Semantics: XLA, AllReduce, of data that only one member has."""
    from hlo_cp2ag.executor.groups import group_table

    table = group_table(site.context, instruction)
    meet(site.context, instruction, table.groups)
    return _each(instruction, [_summed(site, instruction, x, i, table) for i, x in enumerate(operands)])


@moves("reduce-scatter")
def reduce_scatter(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """Semantics: XLA, ReduceScatter, of data that only one member has."""
    table, members = same_groups(site.context, instruction)
    (dim,) = integers(instruction, "dimensions")

    def scatter(x: Moved, number: int) -> Moved:
        total = _summed(site, instruction, x, number, table)
        size = total.dimensions[dim] // members.shape[1]
        return symbols.take(total, dim, table.place_of * size, size)

    return _each(instruction, [scatter(x, i) for i, x in enumerate(operands)])


def check_shape(instruction: Instruction, value: Moved) -> None:
    """Raise HloSyntaxError if a traced array has other sizes than its instruction says."""
    if isinstance(value, Symbols) and value.dimensions != array_shape(instruction).dimensions:
        raise instruction.error(
            f"{instruction.opcode} makes {list(value.dimensions)}, not {instruction.shape.to_text()}"
        )
