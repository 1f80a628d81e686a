"""The pass's pure parts, with values worked out by hand from the design's formulas."""

from __future__ import annotations

import pytest

from hlo_cp2ag.ir.shape import Layout
from hlo_cp2ag.lowering.collective_permute_to_all_gather import gather_dimension, is_physically_major
from hlo_cp2ag.lowering.core_count import core_count, core_count_log
from hlo_cp2ag.lowering.gate import gate_verdict, is_source_target_pairs_invalid
from hlo_cp2ag.lowering.mapping import source_map
from hlo_cp2ag.topology.process_grid import ProcessGrid

RING_4 = ((0, 1), (1, 2), (2, 3), (3, 0))


@pytest.mark.parametrize(
    ("pairs", "grid", "axis", "sources", "is_target"),
    [
        # map[target] = source, never the other way round.
        (RING_4, (4, 1), "replica", (3, 0, 1, 2), (1, 1, 1, 1)),
        (RING_4, (1, 4), "partition", (3, 0, 1, 2), (1, 1, 1, 1)),
        # No target: the own index, and no mark.
        (((0, 1), (1, 2)), (4, 1), "replica", (0, 0, 1, 3), (0, 1, 1, 0)),
        ((), (1, 3), "partition", (0, 1, 2), (0, 0, 0)),
        # A self-pair keeps its data: its own index, and a mark.
        (((1, 1),), (1, 3), "partition", (0, 1, 2), (0, 1, 0)),
        # cross-replica: map[t*P + p] = s*P + p for each partition.
        (((0, 1), (1, 0)), (2, 4), "replica", (4, 5, 6, 7, 0, 1, 2, 3), (1,) * 8),
        # cross-partition: map[r*P + t] = r*P + s for each replica.
        (((0, 1), (2, 3)), (2, 4), "partition", (0, 0, 2, 2, 4, 4, 6, 6), (0, 1, 0, 1, 0, 1, 0, 1)),
        # Neuron's flat ranks.
        (((0, 7), (7, 0)), (2, 4), "device", (7, 1, 2, 3, 4, 5, 6, 0), (1, 0, 0, 0, 0, 0, 0, 1)),
        # Of pairs with one target the last wins.
        (((0, 1), (2, 1)), (3, 1), "replica", (0, 2, 2), (0, 1, 0)),
    ],
)
def test_the_flattened_map(
    pairs: tuple[tuple[int, int], ...],
    grid: tuple[int, int],
    axis: str,
    sources: tuple[int, ...],
    is_target: tuple[int, ...],
) -> None:
    found = source_map(pairs, ProcessGrid(*grid), axis)
    assert found.sources == sources
    assert tuple(map(int, found.is_target)) == is_target
    assert found.all_targets == all(is_target)


@pytest.mark.parametrize(
    ("pairs", "replica_count", "total", "invalid"),
    [
        (RING_4, 4, 4, False),
        (RING_4, 1, 4, True),  # with groups of one, every pair to somebody else crosses
        (((0, 0), (1, 1)), 1, 2, False),  # self-pairs cross nothing
        (((0, 1), (1, 0), (2, 3), (3, 2)), 2, 4, False),
        (((0, 2), (2, 0), (1, 3), (3, 1)), 2, 4, True),
        (((0, 1), (1, 2)), 4, 4, True),  # 0 and 3 are no target
        (((0, 1), (2, 1)), 4, 4, True),  # 1 is a target twice
        ((), 4, 4, True),
        ((), 4, 0, False),
    ],
)
def test_the_predicate(pairs: tuple[tuple[int, int], ...], replica_count: int, total: int, invalid: bool) -> None:
    assert is_source_target_pairs_invalid(pairs, replica_count, total) is invalid


@pytest.mark.parametrize(
    ("gate", "clean", "partial", "crossing"),
    [
        ("every", True, True, True),
        ("valid", True, False, False),
        ("intra-group", True, True, False),
        ("invalid", False, True, True),
    ],
)
def test_the_four_consumers(gate: str, clean: bool, partial: bool, crossing: bool) -> None:
    """Whether each gate rewrites a clean permutation, a partial one inside a group, and one that crosses groups."""
    swap = ((0, 1), (1, 0), (2, 3), (3, 2))
    assert (gate_verdict(gate, swap, 2, 4) == "") is clean
    assert (gate_verdict(gate, ((0, 1),), 2, 4) == "") is partial
    assert (gate_verdict(gate, ((0, 2), (2, 0), (1, 3), (3, 1)), 2, 4) == "") is crossing


def test_the_reason_of_the_binarys_gate_is_the_designs_own_sentence() -> None:
    assert gate_verdict("invalid", RING_4, 4, 4) == "clean permutation, predicate is 0; --gate every rewrites it"


@pytest.mark.parametrize(
    ("version", "divisor", "override", "cores"),
    [("3.0", 1, 0, 128), ("3.0", 4, 0, 32), ("3.0", 4, 7, 7), ("3.0", 3, -1, 42), ("2.0", 4, 7, 32), ("", 1, 0, 32)],
)
def test_the_core_count(version: str, divisor: int, override: int, cores: int) -> None:
    assert core_count(version, divisor, override) == cores


def test_a_divisor_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        core_count("3.0", 0)


def test_the_core_counts_log_texts() -> None:
    assert core_count_log("2.5") == "Platform Version: 2.5. Defaulting to 32 cores"
    assert core_count_log("3.0", 2, 5) == "Platform Version: 3.0 core count 5 override_core_count 5"


@pytest.mark.parametrize(
    ("dimensions", "minor_to_major", "auto", "major"),
    [
        ((2, 3), (1, 0), 0, 0),
        ((2, 3), (0, 1), 1, 1),
        ((2, 3), None, 0, 0),
        ((2, 1), (0, 1), 0, 1),  # what lies further out than dimension 0 has size 1
        ((1, 3), (0, 1), 1, 1),  # here it has not, though dimension 0 itself has
        ((2, 3, 4), (0, 2, 1), 1, 1),
        ((2, 1, 4), (0, 2, 1), 1, 1),  # 4 lies between: the most major one it is
        ((), None, 0, 0),
    ],
)
def test_the_gather_dimension(
    dimensions: tuple[int, ...], minor_to_major: tuple[int, ...] | None, auto: int, major: int
) -> None:
    layout = None if minor_to_major is None else Layout(minor_to_major)
    assert gather_dimension(dimensions, layout, "auto") == auto
    assert gather_dimension(dimensions, layout, "major") == major
    assert gather_dimension(dimensions, layout, "leading") == 0
    assert is_physically_major(dimensions, layout, auto)
