"""Groups of one size that hold the devices that exchange data."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_cp2ag
from hlo_cp2ag.topology.gather_groups import all_devices, connected_components, minimal_groups


def ring(*devices: int) -> dict[int, int]:
    return dict(zip(devices, (*devices[1:], devices[0]), strict=True))


def sources(count: int, *rings: dict[int, int]) -> tuple[int, ...]:
    found = {device: source for each in rings for device, source in each.items()}
    return tuple(found.get(device, device) for device in range(count))


@pytest.mark.parametrize(
    ("given_sources", "groups"),
    [
        (sources(4), ((0,), (1,), (2,), (3,))),
        (sources(4, ring(0, 1, 2, 3)), ((0, 1, 2, 3),)),
        (sources(4, ring(0, 2), ring(1, 3)), ((0, 2), (1, 3))),
        (sources(4, ring(1, 2)), ((0, 3), (1, 2))),
        (sources(6, ring(0, 1, 2), ring(3, 4)), ((0, 1, 2), (3, 4, 5))),
        (sources(5, ring(0, 1)), ((0, 1, 2, 3, 4),)),
        (sources(8, ring(0, 1, 2), ring(3, 4, 5), ring(6, 7)), ((0, 1, 2, 3, 4, 5, 6, 7),)),
        (sources(12, ring(0, 1, 2), ring(3, 4, 5), ring(6, 7), ring(8, 9), ring(10, 11)), None),
    ],
)
def test_groups(given_sources: tuple[int, ...], groups: tuple[tuple[int, ...], ...] | None) -> None:
    found = minimal_groups(given_sources)
    if groups is None:
        assert [len(group) for group in found] == [6, 6]
    else:
        assert found == groups


def can_be_packed(sizes: tuple[int, ...], size: int) -> bool:
    """By trying every set that fills a group with the first component."""
    if not sizes:
        return True
    rest = sizes[1:]
    for count in range(len(rest) + 1):
        for chosen in combinations(range(len(rest)), count):
            if sizes[0] + sum(rest[i] for i in chosen) == size:
                others = tuple(each for i, each in enumerate(rest) if i not in chosen)
                if can_be_packed(others, size):
                    return True
    return False


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(data=st.data(), count=st.integers(1, 12))
def test_groups_are_right_and_as_small_as_can_be(data: st.DataObject, count: int) -> None:
    maps = st.lists(st.integers(0, count - 1), min_size=count, max_size=count).map(tuple)
    near = st.builds(lambda m: tuple(s if abs(s - d) < 3 else d for d, s in enumerate(m)), maps)
    chosen = data.draw(st.lists(st.one_of(maps, near), min_size=1, max_size=2))
    groups = minimal_groups(*chosen)
    components = connected_components(chosen)
    assert sorted(device for group in groups for device in group) == list(range(count))
    assert len({len(group) for group in groups}) == 1
    assert all(any(set(component) <= set(group) for group in groups) for component in components)
    for one in chosen:
        assert all(any(target in g and source in g for g in groups) for target, source in enumerate(one))
    sizes = tuple(map(len, components))
    smaller = [size for size in range(1, len(groups[0])) if count % size == 0]
    assert not any(can_be_packed(sizes, size) for size in smaller)


def test_many_odd_sizes_end_soon() -> None:
    rings, start = [], 0
    for size in (7, 11, 13, 17, 19, 23, 29) * 8:
        rings.append(ring(*range(start, start + size)))
        start += size
    count = 2 * start
    assert sum(map(len, minimal_groups(sources(count, *rings)))) == count


def test_disjoint_rings_of_4_on_1024_devices_gather_256_times_less() -> None:
    pairs = ",".join(f"{{{d},{d // 4 * 4 + (d + 1) % 4}}}" for d in range(1024))
    text = f"""HloModule rings, num_partitions=1024
ENTRY e {{
  p = f32[2] parameter(0)
  ROOT cp = f32[2] collective-permute(p), channel_id=1, source_target_pairs={{{pairs}}}
}}
"""
    module = hlo_cp2ag.parse(text)
    every, minimal = (hlo_cp2ag.rewrite(module, groups=groups) for groups in ("all", "minimal"))
    assert every.sites[0].groups == all_devices(1024)
    assert len(every.sites[0].groups[0]) // len(minimal.sites[0].groups[0]) == 256
    assert "f32[8] all-gather(p)" in minimal.text
    assert hlo_cp2ag.verify(module, minimal.module, run=False).ok
