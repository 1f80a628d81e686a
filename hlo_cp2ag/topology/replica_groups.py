"""The device groups of a collective, as explicit lists."""

from __future__ import annotations

from typing import Protocol, cast

from hlo_cp2ag.ir.module import Instruction

Groups = tuple[tuple[int, ...], ...]


class _HasGroups(Protocol):
    def to_groups(self) -> Groups: ...


def group_list(instruction: Instruction) -> Groups:
    """`replica_groups` of any collective as `[group][member]`; iota and mesh forms are expanded, ids are never changed.

    Empty groups (all ids of the axis) and a missing attribute give `()`.

    Raises HloSyntaxError for a value that is none.
    """
    value = instruction.attribute("replica_groups")
    if value is None:
        return ()
    return cast(_HasGroups, value).to_groups()
