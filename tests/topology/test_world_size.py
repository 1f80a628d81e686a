"""World size, ranks of cores, and what the simulator asks."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.topology import (
    WorldSizeError,
    cores_per_lnc,
    get_cc_rank_world_size,
    get_rank_id_for_core,
    is_in_replica_group,
    num_replicas,
    simulator_groups,
    write_cc_info,
)
from hlo_cp2ag.topology.lnc import place_of

from .support import module, reduce

STRIDED = [[0, 4], [1, 5], [2, 6], [3, 7]]


def size(**keys: Any) -> int:
    return get_cc_rank_world_size(
        {"CCInfo": {key.replace("rank_world_size", "#rank_world_size"): v for key, v in keys.items()}}
    )


def test_the_worked_case_digit_for_digit() -> None:
    """Groups {0,4},{1,5},{2,6},{3,7}, LNC 2, physical core 9."""
    envelope = write_cc_info(module(reduce("replica_groups=[4,2]<=[2,4]T(1,0)")))
    topologies = envelope["CCInfo"]["replica_groups"]
    groups = simulator_groups(topologies)
    rank = get_rank_id_for_core(9, 2)
    assert rank == 4
    assert place_of(rank, groups) == (0, 1)
    assert groups[0] == [0, 4]
    assert is_in_replica_group(rank, groups)
    assert num_replicas(groups) == 2
    assert get_cc_rank_world_size(envelope) == 2
    assert topologies[0][1][0] == 1


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"replica_groups": [STRIDED]}, 2),
        ({"replica_groups": [[[0, 1, 2], [3]]]}, 3),  # the largest group
        ({"replica_groups": [STRIDED, [[0, 1]]]}, 2),  # several topologies that agree
        ({"replica_groups": [[[0, 1], [2]], [[3], [4, 5]]]}, 2),
        ({"replica_groups": []}, 1),
        ({"src_target_pairs": []}, 1),
        ({"src_target_pairs": [[0, 1], [1, 0]]}, 2),
        ({"src_target_pairs": [[0, 1], [1, 7]]}, 8),
        ({"src_target_pairs": [[[0, 1]], [[5, 2], [1, 0]]]}, 6),
        ({"src_target_pairs": [[]]}, 1),
        ({"src_target_pairs": [[0, 0]]}, 1),
        ({"rank_world_size": 8}, 8),
        ({"rank_world_size": 0}, 1),
        ({"replica_groups": [STRIDED], "src_target_pairs": [[[0, 1], [1, 0]]], "rank_world_size": 8}, 8),
        ({"replica_groups": [[[0, 1, 2, 3]]], "src_target_pairs": [[0, 2]], "rank_world_size": 2}, 4),
        ({"replica_groups": [[[0, 1]]], "src_target_pairs": [[0, 2]], "rank_world_size": 2}, 3),
    ],
)
def test_the_largest_of_four(keys: dict[str, Any], expected: int) -> None:
    assert size(**keys) == expected


@pytest.mark.parametrize(
    ("topologies", "sentence"),
    [
        ([[]], "Empty topology found at index 0, possible MPMD neff file; use --stopAfter=compile"),
        ([STRIDED, [], []], "Empty topology found at index 1, possible MPMD neff file; use --stopAfter=compile"),
        ([[[]]], "Empty topology found at index 0, possible MPMD neff file; use --stopAfter=compile"),
        (
            [STRIDED, [[0, 1, 2, 3], [4, 5, 6, 7]]],
            "Inconsistent worker count across topologies: 2 vs 4. Possible MPMD neff file; use --stopAfter=compile",
        ),
        (
            [[[0, 1, 2, 3]], [[0, 1, 2, 3]], STRIDED, []],
            "Inconsistent worker count across topologies: 4 vs 2. Possible MPMD neff file; use --stopAfter=compile",
        ),
    ],
)
def test_refusals(topologies: list[Any], sentence: str) -> None:
    """Also where #rank_world_size would settle it."""
    with pytest.raises(WorldSizeError) as caught:
        size(replica_groups=topologies, rank_world_size=8)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("core", "per_rank", "rank"), [(0, 2, 0), (1, 2, 0), (2, 2, 1), (9, 2, 4), (9, 1, 9), (11, 4, 2)]
)
def test_rank_of_a_core(core: int, per_rank: int, rank: int) -> None:
    assert get_rank_id_for_core(core, per_rank) == rank


def test_one_core_a_rank_is_the_default() -> None:
    assert get_rank_id_for_core(9) == 9


@pytest.mark.parametrize(
    ("core", "per_rank", "error", "message"),
    [
        (-1, 2, ValueError, "a core is at least 0, not -1"),
        (1, 0, ValueError, "a rank has at least 1 core, not 0"),
        (1.0, 2, TypeError, "core must be an integer, not 1.0"),
        (True, 2, TypeError, "core must be an integer, not True"),
        ("9", 2, TypeError, "core must be an integer, not '9'"),
        (9, 2.0, TypeError, "cores_per_lnc must be an integer, not 2.0"),
    ],
)
def test_what_is_no_core(core: Any, per_rank: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        get_rank_id_for_core(core, per_rank)
    assert str(caught.value) == message


def test_platforms() -> None:
    names = ("trn2", "Trn2", "trn2.48xlarge", "trn1", "inf2", "trn3", "")
    assert [cores_per_lnc(name) for name in names] == [2, 2, 2, 1, 1, 1, 1]


def test_who_is_in_a_group() -> None:
    assert is_in_replica_group(5, [])
    assert is_in_replica_group(5, STRIDED)
    assert not is_in_replica_group(8, STRIDED)
    assert place_of(8, STRIDED) is None


def test_the_simulator_takes_one_topology() -> None:
    assert simulator_groups([STRIDED]) == STRIDED
    assert simulator_groups([]) == []
    with pytest.raises(HloError) as caught:
        simulator_groups([STRIDED, [[0, 1]]])
    assert str(caught.value) == "Multiple LNCs are not supported yet"
