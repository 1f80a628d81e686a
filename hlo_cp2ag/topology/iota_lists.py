"""The short form `[g,n]<=[dims]T(perm)` of groups that are written out, where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from hlo_cp2ag.ir.device_groups import IotaReplicaGroups


def iota_form(groups: Sequence[Sequence[int]]) -> IotaReplicaGroups | None:
    """The iota whose expansion is `groups` `[group][rank]`, with fewest dimensions; None where there is none.

    There is none for groups of several sizes, for ids other than 0 to n - 1, and for orders that no transposed
    row-major grid has. Source: XLA's IotaReplicaGroupList and IotaTileAssignment.
    """
    sizes = {len(group) for group in groups}
    if len(sizes) != 1 or sizes == {0}:
        return None
    ids = list(chain.from_iterable(groups))
    axes = _axes(ids)
    if axes is None:
        return None
    # From the slowest in memory to the fastest: an axis with a greater stride stands before one with a smaller.
    by_stride = sorted(axes, reverse=True)
    dims = tuple(size for _, size in by_stride)
    found = IotaReplicaGroups((len(groups), sizes.pop()), dims, tuple(by_stride.index(axis) for axis in axes))
    return found if found.to_groups() == tuple(map(tuple, groups)) else None


def _axes(ids: list[int]) -> list[tuple[int, int]] | None:
    """`(stride, size)` of each axis of the grid that `ids` walks through, the slowest first; None if it is no grid.

    What it answers is only what would fit the first steps along each axis; the whole has to be compared.
    """
    if sorted(ids) != list(range(len(ids))) or ids[0] != 0:
        return None
    axes: list[tuple[int, int]] = []
    inner = 1
    while inner < len(ids):
        steps = ids[::inner]
        stride = steps[1]
        size = next((i for i, step in enumerate(steps) if step != i * stride), len(steps))
        if len(steps) % size:
            return None
        axes.append((stride, size))
        inner *= size
    axes = axes[::-1] or [(1, 1)]
    expected = 1
    for stride, size in sorted(axes):
        if stride != expected:
            return None
        expected *= size
    return axes
