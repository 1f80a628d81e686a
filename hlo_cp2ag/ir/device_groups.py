"""Groups of devices as collectives name them: written out, as an iota, or by the axes of a mesh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod


def integers_text(values: Iterable[int]) -> str:
    """Integers with commas between them."""
    return ",".join(map(str, values))


@dataclass(frozen=True)
class ReplicaGroupList:
    """`{{0,1},{2,3}}`; no groups at all stand for one group of all devices."""

    groups: tuple[tuple[int, ...], ...] = ()

    def to_groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups."""
        return self.groups

    def to_text(self) -> str:
        """The groups as XLA prints them."""
        return "{" + ",".join("{" + integers_text(group) + "}" for group in self.groups) + "}"


@dataclass(frozen=True)
class Iota:
    """`[2,4]T(1,0)`: the numbers 0, 1, 2 ... laid out as `reshape_dims`, transposed, and read in order."""

    reshape_dims: tuple[int, ...]
    transpose: tuple[int, ...] = (0,)

    def values(self) -> tuple[int, ...]:
        """The numbers in the order read. Raises ValueError if `transpose` is no permutation."""
        rank = len(self.reshape_dims)
        if sorted(self.transpose) != list(range(rank)):
            raise ValueError(f"T({integers_text(self.transpose)}) is no permutation of {rank} dimensions")
        strides = [prod(self.reshape_dims[i + 1 :]) for i in range(rank)]
        values = [0]
        for axis in self.transpose:
            steps = range(0, self.reshape_dims[axis] * strides[axis], strides[axis] or 1) if strides[axis] else range(0)
            values = [value + step for value in values for step in steps]
        return tuple(values)

    def canonical(self) -> Iota:
        """The same numbers with fewest dimensions: those of size 1 dropped, those that stay together joined."""
        dims, order = list(self.reshape_dims), list(self.transpose)
        if sorted(order) != list(range(len(dims))):
            return self
        kept = [i for i, size in enumerate(dims) if size != 1]
        if not kept:
            return Iota((1,))
        renumbered = {axis: i for i, axis in enumerate(kept)}
        dims, order = [dims[i] for i in kept], [renumbered[i] for i in order if i in renumbered]
        runs: list[list[int]] = []
        for axis in order:
            if runs and runs[-1][-1] + 1 == axis:
                runs[-1].append(axis)
            else:
                runs.append([axis])
        by_axis = sorted(runs)
        return Iota(tuple(prod(dims[i] for i in run) for run in by_axis), tuple(by_axis.index(run) for run in runs))

    @property
    def is_plain(self) -> bool:
        """Whether the numbers are read in their own order."""
        return self.canonical().transpose == (0,)

    def to_text(self) -> str:
        """`[8]` or `[2,4]T(1,0)`, with fewest dimensions, as XLA prints it."""
        iota = self.canonical()
        order = f"T({integers_text(iota.transpose)})" if len(iota.reshape_dims) > 1 else ""
        return f"[{integers_text(iota.reshape_dims)}]{order}"


@dataclass(frozen=True)
class IotaReplicaGroups:
    """`[4,2]<=[2,4]T(1,0)`: `shape` is the number of groups and of devices in each."""

    shape: tuple[int, int]
    reshape_dims: tuple[int, ...]
    transpose: tuple[int, ...] = (0,)

    def to_groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups, written out. Raises ValueError if the numbers do not fill them."""
        count, size = self.shape
        values = Iota(self.reshape_dims, self.transpose).values()
        if count < 0 or size < 0 or len(values) != count * size:
            raise ValueError(f"[{count},{size}] does not hold {len(values)} devices")
        return tuple(values[i * size : (i + 1) * size] for i in range(count))

    def to_text(self) -> str:
        """The groups as XLA prints them."""
        return f"[{integers_text(self.shape)}]<={Iota(self.reshape_dims, self.transpose).to_text()}"


@dataclass(frozen=True)
class Mesh:
    """`mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0))`: named axes, and which device stands where if not in order.

    A mesh with a `maximal_device` is `maximal_mesh[device_id=3]` and has no axes.
    """

    axes: tuple[tuple[str, int], ...] = ()
    device_ids: tuple[int, ...] | Iota | None = None
    maximal_device: int | None = None

    @property
    def device_count(self) -> int:
        """The product of the axes."""
        return prod(size for _, size in self.axes)

    def devices(self) -> tuple[int, ...]:
        """The device at each place, row-major."""
        if self.maximal_device is not None:
            return (self.maximal_device,)
        if self.device_ids is None:
            return tuple(range(self.device_count))
        return self.device_ids.values() if isinstance(self.device_ids, Iota) else self.device_ids

    def to_text(self) -> str:
        """The mesh as XLA prints it."""
        if self.maximal_device is not None:
            return f"maximal_mesh[device_id={self.maximal_device}]"
        text = "mesh[" + ",".join(f"'{name}'={size}" for name, size in self.axes) + "]"
        if isinstance(self.device_ids, Iota):
            return text if self.device_ids.is_plain else f"{text}, device_ids=({self.device_ids.to_text()})"
        return text if self.device_ids is None else f"{text}, device_ids=({integers_text(self.device_ids)})"


@dataclass(frozen=True)
class AxisRef:
    """A mesh's axis by its index, or a part of it `'a':(2)4`: of size 4, after parts of size 2 in all."""

    axis: int
    pre_size: int = 1
    size: int = 0
    """The part's size; 0 is the whole axis."""

    def to_text(self, mesh: Mesh) -> str:
        """The reference as XLA prints it."""
        part = f":({self.pre_size}){self.size}" if self.size else ""
        return f"'{mesh.axes[self.axis][0]}'{part}"


def axes_text(axes: tuple[AxisRef, ...], mesh: Mesh, comma: str = ",") -> str:
    """Axes in braces as XLA prints them."""
    return "{" + comma.join(axis.to_text(mesh) for axis in axes) + "}"


@dataclass(frozen=True)
class MeshReplicaGroups:
    """`mesh['a'=2,'b'=4] {'b'}`: devices that differ only along `axes` make a group."""

    mesh: Mesh
    axes: tuple[AxisRef, ...]

    def to_groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups, written out; within a group the first axis named is the slowest."""
        sizes: list[int] = []
        where: dict[tuple[int, int], int] = {}
        for number, (_, full) in enumerate(self.mesh.axes):
            edges = {1, full}
            for ref in self.axes:
                if ref.axis == number and ref.size:
                    edges |= {ref.pre_size, ref.pre_size * ref.size}
            ordered = sorted(edges)
            pieces = list(pairwise(ordered)) or [(1, full)]
            for low, high in pieces:
                where[number, low] = len(sizes)
                sizes.append(high // low)
        inside: list[int] = []
        for ref in self.axes:
            if ref.size:
                inside.append(where[ref.axis, ref.pre_size])
            else:
                inside += [place for (axis, _), place in where.items() if axis == ref.axis]
        outside = [i for i in range(len(sizes)) if i not in inside]
        strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        devices = self.mesh.devices()

        def offsets(axes: list[int]) -> list[int]:
            return [sum(steps) for steps in product(*(range(0, sizes[a] * strides[a], strides[a]) for a in axes))]

        inner = offsets(inside)
        return tuple(tuple(devices[base + step] for step in inner) for base in offsets(outside))

    def to_text(self) -> str:
        """The groups as XLA prints them."""
        return f"{self.mesh.to_text()} {axes_text(self.axes, self.mesh)}"


DeviceGroups = ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups
