"""Who talks to whom in a collective: its groups as flattened device ids, and whether all of a group are there.

Source: XLA's collective_ops_utils (GetCollectiveOpGroupMode, GetParticipatingDevicesGroups), with the members of a
cross-replica-and-partition group in replica-major order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hlo_cp2ag.executor.registry import Context, execution_error
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.topology.replica_groups import Groups, group_list

Mode = Literal["cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_id"]

_GLOBAL_IDS = ("all-gather", "all-reduce", "reduce-scatter")
"""The collectives that take use_global_device_ids."""


@dataclass(frozen=True)
class GroupTable:
    """A collective's groups."""

    groups: Groups
    """Flattened device ids `[group][member]`."""
    same_size: Array | None
    """The same as `[groups, members]`, None where groups differ in size."""
    group_of: Array
    """By device: its group, -1 if it is in none."""
    place_of: Array
    """By device: its place in its group."""
    covers: bool
    """Whether every device is in a group."""


def group_mode(instruction: Instruction) -> Mode:
    """What the ids of a collective's groups or pairs mean. Raises HloSyntaxError for global ids without a channel."""
    has_channel = instruction.attribute_text("channel_id") is not None
    if not instruction.opcode.startswith(_GLOBAL_IDS):
        return "cross_partition" if has_channel else "cross_replica"
    is_global = instruction.attribute("use_global_device_ids", False)
    if not has_channel:
        if is_global:
            raise instruction.error("use_global_device_ids needs a channel_id")
        return "cross_replica"
    return "flattened_id" if is_global else "cross_replica_and_partition"


def flattened_groups(ids: Groups, mode: Mode, grid: ProcessGrid) -> Groups:
    """Groups of replicas, partitions or devices as groups of devices; no groups are one of all ids of the axis."""
    replicas, partitions = grid.replica_count, grid.num_partitions
    if not ids:
        count = {"cross_partition": partitions, "flattened_id": grid.device_count}.get(mode, replicas)
        ids = (tuple(range(count)),)
    if mode == "cross_replica":
        return tuple(tuple(r * partitions + p for r in group) for group in ids for p in range(partitions))
    if mode == "cross_partition":
        return tuple(tuple(r * partitions + p for p in group) for r in range(replicas) for group in ids)
    if mode == "cross_replica_and_partition":
        return tuple(tuple(r * partitions + p for r in group for p in range(partitions)) for group in ids)
    return ids


def make_table(groups: Groups, devices: int) -> GroupTable:
    """A table of groups of device ids."""
    group_of, place_of = np.full(devices, -1), np.zeros(devices, np.int64)
    for number, group in enumerate(groups):
        members = np.asarray(group, np.int64)
        group_of[members] = number
        place_of[members] = np.arange(len(group))
    sizes = {len(group) for group in groups}
    same_size = np.asarray(groups, np.int64) if len(sizes) == 1 else None
    return GroupTable(groups, same_size, group_of, place_of, bool((group_of >= 0).all()))


def group_table(context: Context, instruction: Instruction) -> GroupTable:
    """The groups of a collective that has `replica_groups`, made once. Raises HloSyntaxError if no run can use them."""

    def make() -> GroupTable:
        mode = group_mode(instruction)
        try:
            ids = group_list(instruction)
        except ValueError as error:
            raise instruction.error(str(error)) from None
        grid = context.grid
        if mode == "flattened_id" and not ids:
            raise instruction.error("replica_groups must not be empty with use_global_device_ids=true")
        size = {"cross_partition": grid.num_partitions, "flattened_id": grid.device_count}.get(mode, grid.replica_count)
        seen: set[int] = set()
        for group in ids:
            if not group:
                raise instruction.error("replica_groups has an empty group")
            for member in group:
                if not 0 <= member < size:
                    raise instruction.error(f"group id {member} is not among the {size} of the grid {grid} ({mode})")
                if member in seen:
                    raise instruction.error(f"group id {member} stands twice in replica_groups")
                seen.add(member)
        return make_table(flattened_groups(ids, mode, grid), grid.device_count)

    return context.memo(instruction, "groups", make)


def axis_groups(context: Context, instruction: Instruction) -> Groups:
    """For a permute: all ids of the axis that its pairs name, on each line of the grid."""
    if context.profile == "neuron":
        return (tuple(range(context.grid.device_count)),)
    return flattened_groups((), group_mode(instruction), context.grid)


def meet(context: Context, instruction: Instruction, groups: Groups) -> None:
    """Raise ExecutionError if some device of a group is in this collective while another one is not."""
    if context.in_apply:
        raise execution_error(instruction, f"{instruction.opcode} in a computation that is applied to elements")
    if context.active is None:
        return
    for group in groups:
        here = context.active[np.asarray(group, np.int64)]
        if here.any() and not here.all():
            present = [d for d, is_here in zip(group, here, strict=True) if is_here]
            absent = [d for d, is_here in zip(group, here, strict=True) if not is_here]
            raise execution_error(
                instruction,
                f"only a part of a group reaches this {instruction.opcode}: "
                f"devices {_some(present)} do, {_some(absent)} do not",
                hint="a predicate above it differs between these devices; on hardware this hangs",
            )


def _some(devices: list[int]) -> str:
    text = ", ".join(map(str, devices[:8]))
    return text + (", ..." if len(devices) > 8 else "")
