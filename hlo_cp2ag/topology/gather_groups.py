"""Which devices have to gather together: those that exchange data, in groups of one size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from hlo_cp2ag.topology.replica_groups import Groups

_MOST_TRIALS = 20_000
"""Steps of the search for a packing, for each size of a group."""


@lru_cache(maxsize=1024)
def all_devices(count: int) -> Groups:
    """One group of all devices."""
    return (tuple(range(count)),)


def connected_components(sources: Sequence[Sequence[int]]) -> Groups:
    """The sets of devices that exchange data, each in order, by their first devices.

    Each of `sources` says for every device whose data it receives; a device that receives its own is alone.
    """
    count = len(sources[0])
    leader = list(range(count))

    def find(device: int) -> int:
        while leader[device] != device:
            leader[device] = leader[leader[device]]
            device = leader[device]
        return device

    for one in sources:
        for target, source in enumerate(one):
            a, b = find(target), find(source)
            leader[max(a, b)] = min(a, b)
    found: dict[int, list[int]] = {}
    for device in range(count):
        found.setdefault(find(device), []).append(device)
    return tuple(map(tuple, found.values()))


@lru_cache(maxsize=1024)
def minimal_groups(*sources: tuple[int, ...]) -> Groups:
    """Groups of one size, as all-gather requires, that hold every connected component whole and cover all devices.

    The smallest size for which a packing is found: the sizes that divide the number of devices are tried from the
    largest component on. Whether components fill groups exactly is a bin packing problem, so that the search is cut
    off for odd mixtures of many sizes; one group of all devices always works.
    """
    components = connected_components(sources)
    count = len(sources[0])
    largest = max(map(len, components))
    for size in range(largest, count):
        if count % size == 0:
            packed = _packed(components, size)
            if packed is not None:
                return packed
    return all_devices(count)


def _packed(components: Groups, size: int) -> Groups | None:
    """The components in groups of exactly `size` devices; None if no packing is found."""
    by_size: dict[int, list[tuple[int, ...]]] = {}
    for component in reversed(components):
        by_size.setdefault(len(component), []).append(component)
    sizes = sorted(by_size, reverse=True)
    left = {each: len(by_size[each]) for each in sizes}
    chosen = _fill(left, sizes, size, sum(map(len, components)) // size)
    if chosen is None:
        return None
    groups = [sorted(d for each in group for d in by_size[each].pop()) for group in chosen]
    return tuple(sorted(map(tuple, groups)))


def _fill(left: dict[int, int], sizes: list[int], size: int, count: int) -> list[list[int]] | None:
    """`count` lists of component sizes that add up to `size` each and use up all that is `left`.

    Depth first, without recursion: the largest component that is left opens a group, and the largest ones that fit
    fill it, so that one of each pair of equal trials is made.
    """
    groups: list[list[int]] = [[]]
    tried: list[int] = []  # the place in `sizes` of each component that was put down, in order
    room, place = size, 0
    for _ in range(_MOST_TRIALS + 4 * sum(left.values())):
        if room == 0:
            if len(groups) == count:
                return groups
            groups.append([])
            room, place = size, 0
        fitting = next((i for i in range(place, len(sizes)) if left[sizes[i]] and sizes[i] <= room), None)
        is_opening = not groups[-1]
        largest = next((i for i, each in enumerate(sizes) if left[each]), None)
        if fitting is not None and not (is_opening and fitting != largest):
            groups[-1].append(sizes[fitting])
            left[sizes[fitting]] -= 1
            tried.append(fitting)
            room, place = room - sizes[fitting], fitting
            continue
        if not tried:
            return None
        last = tried.pop()
        if is_opening:
            groups.pop()
        left[sizes[last]] += 1
        groups[-1].pop()
        room, place = size - sum(groups[-1]), last + 1
    return None
