"""The device groups of a collective, as explicit lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import cast

from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.source import Span
from hlo_cp2ag.topology.collective_ops import is_collective

Groups = tuple[tuple[int, ...], ...]

MOST_IDS = 1 << 24
"""Lists that expand to more ids than any machine has devices are refused."""


def get_replica_groups(instruction: Instruction) -> list[list[int]]:
    """The groups of any collective as `[group][rank]`; iota and mesh forms are expanded, ids are never changed.

    What the ids name depends on the mode (`topology.group_modes`). Empty groups, which stand for all ids of the mode's
    axis, and a permute, which has none, give `[]`. Source: xla::GetReplicaGroups.

    Raises HloSyntaxError for an instruction that is no collective, and for groups that no list can hold.
    """
    if not is_collective(instruction):
        raise instruction.error(f"{instruction.opcode} is no collective")
    return [list(group) for group in group_list(instruction)]


def has_matching_replica_groups(instruction: Instruction, groups: Sequence[Sequence[int]]) -> bool:
    """Whether a collective's groups are `groups` as explicit lists, order included; only then may two be combined.

    Raises HloSyntaxError as `get_replica_groups` does.
    """
    return get_replica_groups(instruction) == [list(group) for group in groups]


def num_replicas(groups: Sequence[Sequence[int]], world_size: int | None = None) -> int:
    """How many ranks take part in one exchange of an op: the size of its first group.

    No groups stand for one of all ranks. Raises ValueError for them if `world_size` does not say how many there are.
    """
    if groups:
        return len(groups[0])
    if world_size is None:
        raise ValueError("no groups: all ranks are in one, and only the world size says how many there are")
    return world_size


def group_list(instruction: Instruction) -> Groups:
    """`replica_groups` of any collective as `[group][member]`; iota and mesh forms are expanded, ids are never changed.

    Empty groups (all ids of the axis) and a missing attribute give `()`.

    Raises HloSyntaxError for a value that is none, or one that names more than 16 million devices.
    """
    from hlo_cp2ag.ir.device_groups import DeviceGroups

    value = cast("DeviceGroups | None", instruction.attribute("replica_groups"))
    if value is None:
        return ()
    if _device_count(value) > MOST_IDS:
        raise bad_groups(instruction, "replica_groups name more devices than there are")
    try:
        return value.to_groups()
    except ValueError as error:
        raise bad_groups(instruction, str(error)) from None


def covered_ids(instruction: Instruction) -> int:
    """n if the groups of a collective hold the ids 0 to n - 1, each once; else 0.

    Raises HloSyntaxError for a value that is none.
    """
    from hlo_cp2ag.ir.device_groups import DeviceGroups, IotaReplicaGroups, ReplicaGroupList

    value = cast("DeviceGroups | None", instruction.attribute("replica_groups"))
    if value is None:
        return 0
    if isinstance(value, ReplicaGroupList):
        ids = sorted(member for group in value.to_groups() for member in group)
        return len(ids) if ids == list(range(len(ids))) else 0
    if isinstance(value, IotaReplicaGroups) and prod(value.shape) != _device_count(value):
        return 0
    return _device_count(value)


def _device_count(value: object) -> int:
    """How many devices groups speak of, without writing them out."""
    from hlo_cp2ag.ir.device_groups import IotaReplicaGroups, MeshReplicaGroups

    if isinstance(value, IotaReplicaGroups):
        return prod(value.reshape_dims)
    return value.mesh.device_count if isinstance(value, MeshReplicaGroups) else 0


def bad_groups(instruction: Instruction, message: str, number: int | None = None) -> Exception:
    """The exception for something wrong with the groups.

    It points at them, or at the id of a number, counted through all groups, where the groups are written out.
    """
    found = instruction.attribute_text("replica_groups")
    if found is None:
        return instruction.error(message)
    text, (start, end) = found.value_text, found.value_span
    if number is not None and text.startswith("{") and "/" not in text:
        ids = list(re.finditer(r"-?\d+", text))
        start, end = (start + place for place in ids[number].span())
    return instruction.error(message, Span(start, end))
