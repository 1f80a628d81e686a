"""Logical NeuronCores: which rank a physical core is, and what Neuron's simulator asks about ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from hlo_cp2ag.ir.source import HloError

CORES_PER_LNC = {"trn2": 2}
"""Physical cores that make one rank, by platform; 1 on every other."""


def cores_per_lnc(platform: str) -> int:
    """Physical cores a rank on a platform, by its name or an instance's: `trn2`, `Trn2`, `trn2.48xlarge` are 2."""
    name = platform.lower()
    return next((cores for known, cores in CORES_PER_LNC.items() if name.startswith(known)), 1)


def get_rank_id_for_core(core: int, cores_per_lnc: int = 1) -> int:
    """The rank of a physical core: core // cores_per_lnc. Source: Neuron's NeuronCoresManager::getRankIdforCore.

    Raises ValueError for a core below 0 or less than one core a rank, TypeError for what is no integer.
    """
    for what, value in (("core", core), ("cores_per_lnc", cores_per_lnc)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{what} must be an integer, not {value!r}")
    if core < 0:
        raise ValueError(f"a core is at least 0, not {core}")
    if cores_per_lnc < 1:
        raise ValueError(f"a rank has at least 1 core, not {cores_per_lnc}")
    return core // cores_per_lnc


def is_in_replica_group(rank: int, groups: Sequence[Sequence[int]]) -> bool:
    """Whether a rank takes part: always where there are no groups, else if it stands in one. Source: isInReplicaGroup."""
    return not groups or rank in chain.from_iterable(groups)


def simulator_groups(replica_groups: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """The groups `[group][rank]` of an envelope `[topology][group][rank]`, as the simulator takes them: one topology.

    No topology gives `[]`. Raises HloError for more than one.
    """
    if len(replica_groups) > 1:
        raise HloError("Multiple LNCs are not supported yet")
    return [list(group) for topology in replica_groups for group in topology]


def place_of(rank: int, groups: Sequence[Sequence[int]]) -> tuple[int, int] | None:
    """`(group, position)` of a rank, None if it is in no group."""
    for number, group in enumerate(groups):
        if rank in group:
            return number, list(group).index(rank)
    return None
