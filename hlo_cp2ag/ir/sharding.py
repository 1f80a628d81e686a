"""How a value is spread over devices: `sharding={...}` in all its forms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from hlo_cp2ag.ir.device_groups import AxisRef, Iota, Mesh, axes_text, integers_text
from hlo_cp2ag.ir.metadata import OpMetadata


@dataclass(frozen=True)
class DimensionSharding:
    """`{'x', ?}`: the mesh axes that a dimension is split over; an open one may get more."""

    axes: tuple[AxisRef, ...] = ()
    is_open: bool = False

    def to_text(self, mesh: Mesh) -> str:
        """The dimension as XLA prints it."""
        return "{" + ", ".join([axis.to_text(mesh) for axis in self.axes] + ["?"] * self.is_open) + "}"


@dataclass(frozen=True)
class NamedSharding:
    """`mesh['x'=2,'y'=2], [{'x'}, {}], replicated={'y'}`."""

    mesh: Mesh
    dimensions: tuple[DimensionSharding, ...] = ()
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    manual: tuple[AxisRef, ...] = ()

    def covers(self, axes: tuple[AxisRef, ...]) -> bool:
        """Whether `axes` are all axes of the mesh, whole."""
        return bool(axes) and axes == tuple(AxisRef(i) for i in range(len(self.mesh.axes)))

    def to_text(self) -> str:
        """The sharding as XLA prints it, without braces and metadata."""
        mesh = self.mesh
        if mesh.maximal_device is not None:
            return mesh.to_text()
        if not (self.replicated or self.unreduced or self.manual or self.dimensions):
            return f"{mesh.to_text()}, replicated"
        if not (self.dimensions or self.replicated):
            if self.covers(self.unreduced) and not self.manual:
                return f"{mesh.to_text()}, unreduced"
            if self.covers(self.manual) and not self.unreduced:
                return f"{mesh.to_text()}, manual"
        parts = [mesh.to_text(), "[" + ", ".join(d.to_text(mesh) for d in self.dimensions) + "]"]
        for word, axes in (("replicated", self.replicated), ("unreduced", self.unreduced), ("manual", self.manual)):
            if axes:
                parts.append(f"{word}={axes_text(axes, mesh, ', ')}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Sharding:
    """How a value is spread over devices.

    `kind` is `replicated`, `maximal`, `manual`, `unreduced`, `unknown`, `tiled`, `tuple` or `mesh`; the other fields
    belong to the kinds that need them.
    """

    kind: str
    device: int | None = None
    """The device of a maximal sharding."""
    tile_dims: tuple[int, ...] = ()
    devices: tuple[int, ...] | Iota = ()
    """The devices of the tiles in order, written out or as an iota."""
    last_tile_dims: tuple[str, ...] = ()
    """What the last tile dimensions mean: `replicated`, `manual`, ..."""
    shard_group: tuple[str, int] | None = None
    """`("shard_as", 3)` or `("shard_like", 3)`."""
    metadata: tuple[OpMetadata, ...] = ()
    elements: tuple[Sharding, ...] = ()
    """The shardings of a tuple's leaves."""
    named: NamedSharding | None = None

    @property
    def is_manual(self) -> bool:
        """Whether each device runs its own program here: `{manual}` in some form, for a tuple in each leaf."""
        if self.kind == "tuple":
            return bool(self.elements) and all(element.is_manual for element in self.elements)
        if self.named is not None:
            return self.named.covers(self.named.manual)
        return self.canonical().kind == "manual"

    @property
    def is_maximal(self) -> bool:
        """Whether the value lives on one device, for a tuple in each leaf."""
        if self.kind == "tuple":
            return bool(self.elements) and all(element.is_maximal for element in self.elements)
        return self.kind == "maximal" or (self.named is not None and self.named.mesh.maximal_device is not None)

    @property
    def last_tile_dim_replicate(self) -> bool:
        """Whether the last tile dimension counts copies."""
        return self.last_tile_dims == ("replicated",)

    def device_count(self) -> int | None:
        """The number of devices that the sharding speaks of; None if it does not say."""
        if self.kind == "tuple":
            return max((n for element in self.elements if (n := element.device_count()) is not None), default=None)
        if self.kind == "tiled":
            return prod(self.tile_dims)
        if self.named is not None and self.named.mesh.maximal_device is None and self.named.mesh.axes:
            return self.named.mesh.device_count
        return None

    def canonical(self) -> Sharding:
        """The same sharding in the form in which XLA keeps it.

        Of the last tile dimensions, those of size 1 are dropped, those of one kind joined, and the copies come last
        with their devices in order. What is then nothing but manual, replicated or unreduced is called so. Raises
        ValueError if that needs an iota with another number of devices than there are tiles; XLA ends its process.
        """
        if self.kind == "tuple":
            return replace(self, elements=tuple(element.canonical() for element in self.elements))
        return _canonical(self) if self.kind == "tiled" and self.last_tile_dims else self

    def to_text(self) -> str:
        """The sharding as XLA prints it."""
        if self.kind == "tuple":
            parts = [
                (f"/*index={i}*/" if i and i % 5 == 0 else "") + element.to_text()
                for i, element in enumerate(self.elements)
            ]
            return "{" + ", ".join(parts) + "}"
        if self.named is not None:
            metadata = ", metadata={" + ", ".join(m.to_text() for m in self.metadata) + "}" if self.metadata else ""
            return "{" + self.named.to_text() + metadata + "}"
        words = _words(self.canonical())
        if self.shard_group:
            words.append(f"{self.shard_group[0]} {self.shard_group[1]}")
        if len(self.metadata) == 1:
            words.append("metadata=" + self.metadata[0].to_text())
        elif self.metadata:
            words.append("metadata={" + ", ".join(m.to_text() for m in self.metadata) + "}")
        return "{" + " ".join(words) + "}"


def _words(sharding: Sharding) -> list[str]:
    if sharding.kind == "maximal":
        return [f"maximal device={sharding.device}"]
    if sharding.kind != "tiled":
        return [sharding.kind]
    devices = sharding.devices
    listed = f"<={devices.to_text()}" if isinstance(devices, Iota) else integers_text(devices)
    words = [f"devices=[{integers_text(sharding.tile_dims)}]{listed}"]
    if sharding.last_tile_dim_replicate:
        words.append("last_tile_dim_replicate")
    elif sharding.last_tile_dims:
        words.append("last_tile_dims={" + ", ".join(sharding.last_tile_dims) + "}")
    return words


# ---- the form in which XLA keeps a tiled sharding --------------------------------------------------------------------

_TILE_KIND_ORDER = ("maximal", "manual", "unreduced", "replicated")


def _canonical(sharding: Sharding) -> Sharding:
    dims, kinds = sharding.tile_dims, sharding.last_tile_dims
    data = len(dims) - len(kinds)
    plain = Sharding("", shard_group=sharding.shard_group, metadata=sharding.metadata)
    if len(set(kinds)) == 1 and prod(dims[:data]) == 1 and kinds[0] != "maximal":
        return replace(plain, kind=kinds[0])
    by_kind: dict[str, list[int]] = {}
    for i, kind in enumerate(kinds):
        if dims[data + i] != 1:
            by_kind.setdefault(kind, []).append(data + i)
    merged = tuple(kind for kind in _TILE_KIND_ORDER if kind in by_kind)
    order = [*range(data), *(i for kind in merged for i in by_kind[kind])]
    new_dims = dims[:data] + tuple(prod(dims[i] for i in by_kind[kind]) for kind in merged)
    if merged == ("replicated",) and (not data or new_dims[-1] == prod(new_dims)):
        return replace(plain, kind="replicated")
    if merged in (("manual",), ("unreduced",)) and new_dims[-1] == prod(new_dims):
        return replace(plain, kind=merged[0])
    copies = new_dims[-1] if merged and merged[-1] == "replicated" else 1
    devices = sharding.devices
    moved = order != sorted(order)
    if moved or copies > 1:
        devices = _rearranged(devices, dims, order, copies)
    return replace(sharding, tile_dims=new_dims, devices=devices, last_tile_dims=merged)


def _rearranged(
    devices: tuple[int, ...] | Iota, dims: tuple[int, ...], order: list[int], copies: int
) -> tuple[int, ...] | Iota:
    """The devices with the tile dimensions in another order, and each run of `copies` devices sorted."""
    if isinstance(devices, Iota):
        iota = _moved(devices, dims, order)
        iota = _with_sorted_copies(iota, copies) if iota is not None else None
        if iota is not None:
            return iota
        if prod(devices.reshape_dims) != prod(dims):
            raise ValueError(f"{prod(devices.reshape_dims)} devices for {prod(dims)} tiles")
        devices = devices.values()
    strides = [prod(dims[i + 1 :]) for i in range(len(dims))]
    places = [0]
    for i in order:
        places = [place + step * strides[i] for place in places for step in range(dims[i])]
    listed = [devices[place] for place in places]
    return tuple(device for i in range(0, len(listed), copies) for device in sorted(listed[i : i + copies]))


def _moved(iota: Iota, dims: tuple[int, ...], order: list[int]) -> Iota | None:
    """The iota with the tile dimensions in another order; None if that is no iota."""
    if order == sorted(order):
        return iota
    if iota.is_plain:  # XLA does not compare the numbers of devices and tiles here
        kept = sorted(order)  # what is not there has size 1
        return Iota(tuple(dims[i] for i in kept), tuple(kept.index(i) for i in order)).canonical()
    pieces = _pieces(iota)
    if pieces is None or prod(iota.reshape_dims) != prod(dims):
        return None
    tiles = _grouped(pieces, dims)
    return _iota_of([piece for i in order for piece in tiles[i]]) if tiles is not None else None


def _with_sorted_copies(iota: Iota, copies: int) -> Iota | None:
    pieces = _pieces(iota)
    if pieces is None:
        return iota
    inner = _taken(pieces, copies)
    if inner is None:
        return None
    return _iota_of([*pieces, *sorted(inner, key=lambda piece: -piece[1])])


_Piece = tuple[int, int]
"""The size and the stride of a part of an iota's dimensions."""


def _pieces(iota: Iota) -> list[_Piece] | None:
    iota = iota.canonical()
    dims = iota.reshape_dims
    if sorted(iota.transpose) != list(range(len(dims))):
        return None
    return [(dims[axis], prod(dims[axis + 1 :])) for axis in iota.transpose]


def _grouped(pieces: list[_Piece], sizes: tuple[int, ...]) -> list[list[_Piece]] | None:
    """The pieces cut into groups of these sizes; None if the cuts do not come out even."""
    rest = list(pieces)
    groups = [_taken(rest, size) for size in reversed(sizes)]
    whole = [group for group in groups if group is not None]
    return whole[::-1] if len(whole) == len(groups) else None


def _taken(pieces: list[_Piece], wanted: int) -> list[_Piece] | None:
    """Take pieces from the end that make up a size, or all that are left; None if the cut does not come out even."""
    group: list[_Piece] = []
    while wanted > 1 and pieces:
        size, stride = pieces.pop()
        if wanted % size == 0:
            group.append((size, stride))
            wanted //= size
        elif size % wanted == 0:
            group.append((wanted, stride))
            pieces.append((size // wanted, stride * wanted))
            wanted = 1
        else:
            return None
    return group[::-1]


def _iota_of(pieces: list[_Piece]) -> Iota:
    kept = [piece for piece in pieces if piece[0] > 1]
    if not kept:
        return Iota((1,))
    by_stride = sorted(kept, key=lambda piece: -piece[1])
    return Iota(tuple(size for size, _ in by_stride), tuple(by_stride.index(piece) for piece in kept)).canonical()


@dataclass(frozen=True)
class DomainMetadata:
    """`{kind="sharding", entry={...}, exit={...}}`."""

    entry: Sharding
    exit: Sharding

    def to_text(self) -> str:
        """The domain as XLA prints it."""
        return f'{{kind="sharding", entry={self.entry.to_text()}, exit={self.exit.to_text()}}}'
