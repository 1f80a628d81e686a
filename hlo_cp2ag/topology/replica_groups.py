"""The device groups of a collective, as explicit lists."""

from __future__ import annotations

from math import prod
from typing import cast

from hlo_cp2ag.ir.module import Instruction

Groups = tuple[tuple[int, ...], ...]

_MOST_IDS = 1 << 24
"""Lists that expand to more ids than any machine has devices are refused."""


def group_list(instruction: Instruction) -> Groups:
    """`replica_groups` of any collective as `[group][member]`; iota and mesh forms are expanded, ids are never changed.

    Empty groups (all ids of the axis) and a missing attribute give `()`.

    Raises HloSyntaxError for a value that is none, or one that names more than 16 million devices.
    """
    from hlo_cp2ag.ir.device_groups import DeviceGroups

    value = cast("DeviceGroups | None", instruction.attribute("replica_groups"))
    if value is None:
        return ()
    if _device_count(value) > _MOST_IDS:
        raise _bad_groups(instruction, "replica_groups name more devices than there are")
    try:
        return value.to_groups()
    except ValueError as error:
        raise _bad_groups(instruction, str(error)) from None


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


def _bad_groups(instruction: Instruction, message: str) -> Exception:
    attribute = instruction.attribute_text("replica_groups")
    return instruction.error(message, attribute.value_span if attribute is not None else None)
