# ruff: noqa: E501 (HLO lines)
"""Explicit lists of groups, and the iota forms of lists."""

from __future__ import annotations

from itertools import chain
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_cp2ag.ir.device_groups import IotaReplicaGroups, ReplicaGroupList
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.topology import get_replica_groups, has_matching_replica_groups, iota_form, num_replicas
from tests.text.xla_parser import XlaParser

from .support import only, reduce

STRIDED = [[0, 4], [1, 5], [2, 6], [3, 7]]


def groups_of(text: str) -> list[list[int]]:
    return get_replica_groups(only(reduce(f"replica_groups={text}")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{0,4},{1,5},{2,6},{3,7}}", STRIDED),
        ("{{7,0},{3,99}}", [[7, 0], [3, 99]]),  # ids are never changed, order is kept
        ("{}", []),
        ("[4,2]<=[2,4]T(1,0)", STRIDED),
        ("[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[2,4]<=[2,2,2]T(1,0,2)", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("[1,6]<=[2,3]T(1,0)", [[0, 3, 1, 4, 2, 5]]),
        # a mesh of 2 x 4: device = 4 * a + b
        ("mesh['a'=2,'b'=4] {'a'}", STRIDED),
        ("mesh['a'=2,'b'=4] {'b'}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("mesh['a'=2,'b'=4] {'b','a'}", [[0, 4, 1, 5, 2, 6, 3, 7]]),
        # the slow and the fast half of b
        ("mesh['a'=2,'b'=4] {'b':(1)2}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("mesh['a'=2,'b'=4] {'b':(2)2}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'b'}", [[3, 1], [2, 0]]),
        ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", [[0, 2], [1, 3]]),
    ],
)
def test_lists(text: str, expected: list[list[int]]) -> None:
    assert groups_of(text) == expected


def test_no_attribute_and_permutes_have_no_groups() -> None:
    assert get_replica_groups(only(reduce(""))) == []
    assert get_replica_groups(only("r = f32[8] collective-permute(p), source_target_pairs={{0,1}}")) == []


def test_what_is_no_collective_is_refused() -> None:
    with pytest.raises(HloSyntaxError, match="negate is no collective"):
        get_replica_groups(only("r = f32[8] negate(p)"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[4,2]<=[6]", "does not hold 6 devices"),
        ("[1,67108864]<=[67108864]", "more devices than there are"),
    ],
)
def test_lists_that_are_none(text: str, message: str) -> None:
    with pytest.raises(HloSyntaxError, match=message):
        groups_of(text)


def test_matching_is_of_lists_order_included() -> None:
    iota = only(reduce("replica_groups=[4,2]<=[2,4]T(1,0)"))
    assert has_matching_replica_groups(iota, STRIDED)
    assert has_matching_replica_groups(iota, tuple(map(tuple, STRIDED)))
    assert not has_matching_replica_groups(iota, STRIDED[::-1])
    assert not has_matching_replica_groups(iota, [[4, 0], [1, 5], [2, 6], [3, 7]])
    assert not has_matching_replica_groups(iota, [])
    assert has_matching_replica_groups(only(reduce("replica_groups={}")), [])


def test_num_replicas_is_the_first_groups_size() -> None:
    assert num_replicas([[0, 1, 2], [3]]) == 3
    assert num_replicas([], world_size=8) == 8
    with pytest.raises(ValueError, match="only the world size says"):
        num_replicas([])


# ---- iota forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (STRIDED, "[4,2]<=[2,4]T(1,0)"),
        ([[0, 1, 2, 3], [4, 5, 6, 7]], "[2,4]<=[8]"),
        ([[0]], "[1,1]<=[1]"),
        ([[0], [1], [2]], "[3,1]<=[3]"),
        ([[0, 1, 4, 5], [2, 3, 6, 7]], "[2,4]<=[2,2,2]T(1,0,2)"),
        ([[0, 4, 2, 6, 1, 5, 3, 7]], "[1,8]<=[2,2,2]T(2,1,0)"),
        ([[0, 3, 1, 4, 2, 5]], "[1,6]<=[2,3]T(1,0)"),
        # the box does not end where a group does
        ([[0, 2, 4, 1], [3, 5, 6, 8], [10, 7, 9, 11]], "[3,4]<=[2,3,2]T(0,2,1)"),
        ([[4, 0], [1, 5], [2, 6], [3, 7]], None),
        ([[1, 0]], None),
        ([[0, 1], [2, 3, 4]], None),
        ([[1, 2], [3, 4]], None),
        ([[0, 2], [4, 6]], None),
        ([[0, 1], [0, 1]], None),
        ([[0, 1, 3, 2]], None),
        ([[0, 2, 1, 4, 3, 5]], None),
        ([[0, 1, 4, 5, 2, 3, 7, 6]], None),  # the first steps along each axis are those of a grid
        ([[]], None),
        ([], None),
    ],
)
def test_iota_form(groups: list[list[int]], expected: str | None) -> None:
    form = iota_form(groups)
    assert (None if form is None else form.to_text()) == expected


@st.composite
def iotas(draw: st.DrawFn) -> IotaReplicaGroups:
    dims = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(dims))))
    count = prod(dims)
    size = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    return IotaReplicaGroups((count // size, size), tuple(dims), tuple(order))


@given(iotas())
def test_expanding_flattening_and_wrapping_again_is_the_identity(iota: IotaReplicaGroups) -> None:
    groups = groups_of(iota.to_text())
    flat = list(chain.from_iterable(groups))
    count, size = iota.shape
    again = [flat[i * size : (i + 1) * size] for i in range(count)]
    assert again == groups
    form = iota_form(again)
    assert form is not None
    assert form.shape == iota.shape
    assert form.to_text() == iota.to_text()  # both with fewest dimensions
    assert [list(group) for group in form.to_groups()] == groups


@given(iotas())
def test_expansion_by_coordinates(iota: IotaReplicaGroups) -> None:
    """Each id by its coordinates in the grid, as IotaTileAssignment::value_at computes it."""
    dims, order = iota.reshape_dims, iota.transpose
    expected = []
    for number in range(prod(dims)):
        coordinates = [0] * len(dims)
        rest = number
        for axis in reversed(order):
            rest, coordinates[axis] = divmod(rest, dims[axis])
        value = 0
        for axis, size in enumerate(dims):
            value = value * size + coordinates[axis]
        expected.append(value)
    assert list(chain.from_iterable(iota.to_groups())) == expected


@given(st.permutations(range(6)))
def test_a_form_is_never_wrong(order: list[int]) -> None:
    form = iota_form([order])
    # of six numbers only these orders are grids
    assert (form is not None) == (order in ([0, 1, 2, 3, 4, 5], [0, 3, 1, 4, 2, 5], [0, 2, 4, 1, 3, 5]))


def test_xla_prints_the_same_forms() -> None:
    """XLA's parser reads our form and prints it back as it is, and holds the same list behind it."""
    xla = XlaParser()
    for groups in (
        STRIDED,
        [[0, 1, 4, 5], [2, 3, 6, 7]],
        [[0, 4, 2, 6, 1, 5, 3, 7]],
        [[0, 2, 4, 1], [3, 5, 6, 8], [10, 7, 9, 11]],
    ):
        form = iota_form(groups)
        assert form is not None
        written = ReplicaGroupList(tuple(map(tuple, groups))).to_text()
        for text in (form.to_text(), written):
            verdict, printed = xla.ask(_gather(text))
            assert verdict == "accept", printed
            assert f"replica_groups={text}," in printed


def _gather(groups: str) -> str:
    return f"HloModule m\n\nENTRY e {{\n  p = f32[4] parameter(0)\n  ROOT r = f32[8] all-gather(p), replica_groups={groups}, dimensions={{0}}\n}}\n"
