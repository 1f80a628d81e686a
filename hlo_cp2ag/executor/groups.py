"""Who talks to whom in a collective: its groups as tables of device ids, and whether all of a group are there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlo_cp2ag.executor.registry import Context, execution_error
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.topology.group_modes import device_groups, flattened_groups, group_mode
from hlo_cp2ag.topology.replica_groups import Groups


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
        return make_table(device_groups(instruction, context.grid), context.grid.device_count)

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
