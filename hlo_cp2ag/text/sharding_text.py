"""Reading shardings, and the metadata that instructions and shardings carry."""

from __future__ import annotations

from math import prod

from hlo_cp2ag.ir.device_groups import AxisRef, Iota, Mesh
from hlo_cp2ag.ir.metadata import OpMetadata
from hlo_cp2ag.ir.sharding import DimensionSharding, DomainMetadata, NamedSharding, Sharding
from hlo_cp2ag.text.device_text import check_axes, check_mergeable, read_axis, read_filled, read_iota, read_mesh
from hlo_cp2ag.text.opcodes import METADATA_FIELDS, PROFILE_TYPES
from hlo_cp2ag.text.value_reader import Reader

_PLAIN_KINDS = ("replicated", "maximal", "manual", "unknown", "unreduced")
"""In the order in which they win over each other."""


# ---- metadata --------------------------------------------------------------------------------------------------------


def read_metadata(reader: Reader) -> OpMetadata:
    """`{op_name="x" source_line=1, ...}`: fields in any order, each at most once, a comma before each or none."""
    fields: dict[str, object] = {}
    start = reader.start
    reader.expect("{", "expects { to start the metadata")
    if reader.kind != "}":
        while True:
            reader.eat(",")
            offset, name = reader.start, reader.attribute()
            kind = METADATA_FIELDS.get(name)
            if name in fields:
                reader.fail(f"the field {name} is there already", offset)
            if kind is None:
                reader.fail(f"unknown field {name!r}; known are {', '.join(sorted(METADATA_FIELDS))}", offset)
            if kind == "string":
                fields[name] = reader.string()
            elif kind == "int32":
                fields[name] = reader.integer32()
            else:
                fields[name] = reader.integers()
            if reader.kind == "}":
                break
    reader.advance()
    profile = fields.get("profile_type", ())
    assert isinstance(profile, tuple)
    if not PROFILE_TYPES.issuperset(profile):
        reader.fail("unknown profile type", start)
    return OpMetadata(**fields)  # type: ignore[arg-type]


def read_metadata_list(reader: Reader) -> list[OpMetadata]:
    """One metadata, or `{{...}, {...}}`."""
    text, position = reader.text, reader.end
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    if reader.kind == "{" and text.startswith("{", position):
        return reader.items("{", "}", lambda: read_metadata(reader))
    return [read_metadata(reader)]


# ---- shardings -------------------------------------------------------------------------------------------------------


def read_sharding(reader: Reader) -> Sharding:
    """`{replicated}`, or a tuple of shardings `{{...}, {...}}`; `{}` is the empty tuple."""
    reader.expect("{", "expects { to start the sharding")
    if reader.kind not in "{}":
        return _read_one(reader)
    elements: list[Sharding] = []
    if reader.kind == "{":
        while True:
            reader.expect("{", "expects { to start a sharding")
            elements.append(_read_one(reader))
            if not reader.eat(","):
                break
    reader.expect("}", "expects , or } in a tuple of shardings")
    return Sharding("tuple", elements=tuple(elements))


def _read_one(reader: Reader) -> Sharding:
    """One sharding, whose opening brace is read already."""
    if reader.kind == "ident" and reader.value in ("mesh", "maximal_mesh"):
        return _read_named(reader)
    start = reader.start
    words: set[str] = set()
    devices: list[int] = []
    tile_dims: tuple[int, ...] = ()
    iota_dims: tuple[int, ...] = ()
    iota_order: tuple[int, ...] = ()
    last_tile_dims: list[str] = []
    metadata: list[OpMetadata] = []
    group = 0
    while reader.kind != "}":
        kind = reader.kind
        if kind in _PLAIN_KINDS or kind == "last_tile_dim_replicate":
            words.add(kind)
            reader.advance()
        elif kind in ("shard_as", "shard_like"):
            words.add(kind)
            reader.advance()
            group = reader.integer()
        elif kind == "attribute":
            name, offset = reader.attribute(), reader.start
            if name == "device":
                devices = [reader.integer()]
            elif name == "devices":
                tile_dims += read_filled(reader, "[", "]")
                if reader.eat("<="):
                    # XLA appends to what an earlier devices= left, and then asks how many dimensions there are.
                    iota = _read_more_iota(reader, len(iota_dims))
                    iota_dims, iota_order = iota_dims + iota.reshape_dims, iota_order + iota.transpose
                else:
                    devices.append(reader.integer())
                    while reader.eat(","):
                        devices.append(reader.integer())
            elif name == "metadata":
                metadata += read_metadata_list(reader)
            elif name == "last_tile_dims":
                last_tile_dims += reader.items("{", "}", lambda: _read_tile_kind(reader))
            else:
                reader.fail("expects device=, devices=, metadata= or last_tile_dims=", offset)
        else:
            reader.fail("unexpected text in a sharding")
    shard_group = None
    if "shard_as" in words or "shard_like" in words:
        shard_group = ("shard_as" if "shard_as" in words else "shard_like", group)
    found = next((kind for kind in _PLAIN_KINDS if kind in words), "tiled")
    if found == "maximal":
        if len(devices) != 1:
            reader.fail("a maximal sharding has one device", start)
    elif found != "tiled":
        if devices:
            reader.fail(f"a sharding that is {found} has no devices", start)
    else:
        if not tile_dims:
            reader.fail("expects devices= with the tiles' dimensions", start)
        if len(iota_order) != len(iota_dims):
            reader.fail("expects an order of as many dimensions", start)
        if "last_tile_dim_replicate" in words:
            if last_tile_dims:
                reader.fail("last_tile_dim_replicate and last_tile_dims= exclude each other", start)
            last_tile_dims = ["replicated"]
        if len(last_tile_dims) > len(tile_dims):
            reader.fail("more last_tile_dims than tile dimensions", start)
        if iota_dims:
            if devices:
                reader.fail("devices both written out and as an iota", start)
        elif len(devices) <= 1:
            reader.fail("a tiled sharding has more than one device", start)
        elif prod(tile_dims) < 0:
            reader.fail("a negative number of tiles", start)
    reader.advance()
    if found == "maximal":
        return Sharding(found, device=devices[0], shard_group=shard_group, metadata=tuple(metadata))
    if found != "tiled":
        return Sharding(found, shard_group=shard_group, metadata=tuple(metadata))
    sharding = Sharding(
        found,
        tile_dims=tile_dims,
        devices=Iota(iota_dims, iota_order) if iota_dims else _exactly(devices, tile_dims),
        last_tile_dims=tuple(last_tile_dims),
        shard_group=shard_group,
        metadata=tuple(metadata),
    )
    try:
        sharding.canonical()
    except ValueError as error:
        reader.fail(str(error), start)
    return sharding


def _read_more_iota(reader: Reader, before: int) -> Iota:
    if not before:
        return read_iota(reader)
    dims = read_filled(reader, "[", "]")
    if reader.kind != "ident" or reader.value != "T":
        reader.fail("expects T( and the dimensions' order")
    reader.advance()
    start = reader.start
    order = read_filled(reader, "(", ")")
    if not all(0 <= axis < before + len(dims) for axis in order):
        reader.fail("the order names a dimension that is not there", start)
    return Iota(dims, order)


def _exactly(devices: list[int], tile_dims: tuple[int, ...]) -> tuple[int, ...]:
    """As many devices as tiles; XLA fills up with zeros and drops what is too much."""
    count = prod(tile_dims)
    if not 0 <= count < 1 << 24:
        return tuple(devices)
    return tuple(devices[:count] + [0] * (count - len(devices)))


def _read_tile_kind(reader: Reader) -> str:
    kind = reader.kind
    if kind not in ("maximal", "replicated", "manual", "unreduced"):
        reader.fail("expects maximal, replicated, manual or unreduced")
    reader.advance()
    return kind


def _read_named(reader: Reader) -> Sharding:
    start = reader.start
    mesh = read_mesh(reader)
    metadata: list[OpMetadata] = []

    def ends() -> None:
        if reader.eat(","):
            offset = reader.start
            if reader.attribute() != "metadata":
                reader.fail("expects metadata=", offset)
            metadata.extend(read_metadata_list(reader))
        reader.expect("}", "expects } to end the sharding")

    everything = tuple(AxisRef(i) for i in range(len(mesh.axes)))
    if mesh.maximal_device is not None:
        ends()
        return Sharding("mesh", named=NamedSharding(mesh), metadata=tuple(metadata))
    reader.eat(",")
    kind = reader.kind
    if kind in ("replicated", "unreduced", "manual"):
        reader.advance()
        ends()
        named = NamedSharding(mesh) if kind == "replicated" else NamedSharding(mesh, **{kind: everything})  # type: ignore[arg-type]
        return Sharding("mesh", named=named, metadata=tuple(metadata))
    dimensions = reader.items("[", "]", lambda: _read_dimension(reader, mesh))
    axes: dict[str, list[AxisRef]] = {"replicated": [], "unreduced": [], "manual": []}
    while reader.kind != "}":
        reader.expect(",", "expects , or } in a sharding")
        offset, name = reader.start, reader.attribute()
        if name == "metadata":
            metadata.extend(read_metadata_list(reader))
        elif name in axes:
            axes[name] += reader.items("{", "}", lambda: read_axis(reader, mesh))
        else:
            reader.fail("expects replicated=, unreduced=, manual= or metadata=", offset)
    reader.advance()
    used = [axis for dimension in dimensions for axis in dimension.axes]
    for name, refs in axes.items():
        used += refs
        if refs != sorted(refs, key=lambda ref: (ref.axis, ref.pre_size)):
            reader.fail(f"the axes of {name}= must stand in the mesh's order", start)
        check_mergeable(reader, refs, start)
    for dimension in dimensions:
        check_mergeable(reader, list(dimension.axes), start)
    check_axes(reader, used, start)
    named = NamedSharding(
        mesh, tuple(dimensions), tuple(axes["replicated"]), tuple(axes["unreduced"]), tuple(axes["manual"])
    )
    return Sharding("mesh", named=named, metadata=tuple(metadata))


def _read_dimension(reader: Reader, mesh: Mesh) -> DimensionSharding:
    axes: list[AxisRef] = []
    is_open = False

    def item() -> None:
        nonlocal is_open
        if is_open:
            reader.fail("nothing may follow ?")
        if reader.eat("?"):
            is_open = True
        else:
            axes.append(read_axis(reader, mesh))

    reader.items("{", "}", item)
    return DimensionSharding(tuple(axes), is_open)


def read_domain(reader: Reader) -> DomainMetadata:
    """`{kind="sharding", entry={...}, exit={...}}`, fields in any order, a comma before each or none."""
    start = reader.start
    shardings: dict[str, Sharding] = {}
    kind: str | None = None
    reader.expect("{", "expects { to start the domain")
    while reader.kind != "}":
        reader.eat(",")
        offset, name = reader.start, reader.attribute()
        if name in shardings or (name == "kind" and kind is not None):
            reader.fail(f"the field {name} is there already", offset)
        if name == "kind":
            kind = reader.string()
        elif name in ("entry", "exit"):
            shardings[name] = read_sharding(reader)
        else:
            reader.fail("expects kind=, entry= or exit=", offset)
    reader.advance()
    if kind != "sharding" or len(shardings) != 2:
        reader.fail('a domain has kind="sharding", entry= and exit=', start)
    return DomainMetadata(shardings["entry"], shardings["exit"])
