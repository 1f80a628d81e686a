"""Reading shardings, meshes, device groups and the metadata that shardings carry."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from hlo_cp2ag.ir.attributes import (
    AxisRef,
    DeviceGroups,
    DimensionSharding,
    DomainMetadata,
    Iota,
    IotaReplicaGroups,
    Mesh,
    MeshReplicaGroups,
    NamedSharding,
    OpMetadata,
    ReplicaGroupList,
    Sharding,
)
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


# ---- iotas and meshes ------------------------------------------------------------------------------------------------


def read_iota(reader: Reader) -> Iota:
    """`[8]` or `[2,4]T(1,0)`. More than one dimension needs its order; the order may be too short or too long."""
    dims = _filled(reader, "[", "]")
    if len(dims) == 1:
        return Iota(dims)
    if reader.kind != "ident" or reader.value != "T":
        reader.fail("expects T( and the dimensions' order")
    reader.advance()
    start = reader.start
    order = _filled(reader, "(", ")")
    if not all(0 <= axis < len(dims) for axis in order):
        reader.fail(f"the order names a dimension that is not in [0, {len(dims)})", start)
    return Iota(dims, order)


def _filled(reader: Reader, opening: str, closing: str) -> tuple[int, ...]:
    """A list of integers with at least one."""
    reader.expect(opening, f"expects {opening}")
    values = [reader.integer()]
    while reader.eat(","):
        values.append(reader.integer())
    reader.expect(closing, f"expects , or {closing}")
    return tuple(values)


def read_mesh(reader: Reader) -> Mesh:
    """`mesh['a'=2,'b'=4]`, with `, device_ids=(...)` behind it or not, or `maximal_mesh[device_id=3]`."""
    start = reader.start
    kind = reader.word("mesh or maximal_mesh")
    reader.expect("[", f"expects [ after {kind}")
    if kind == "maximal_mesh":
        offset = reader.start
        if reader.attribute() != "device_id":
            reader.fail("expects device_id=", offset)
        device = reader.integer()
        reader.expect("]", "expects ] to end the mesh")
        return Mesh(maximal_device=device)
    axes: list[tuple[str, int]] = []
    if reader.kind != "]":
        while True:
            name = reader.string()
            reader.expect("=", "expects = after the axis' name")
            axes.append((name, reader.integer()))
            if not reader.eat(","):
                break
    reader.expect("]", "expects , or ] in the mesh")
    if len({name for name, _ in axes}) != len(axes):
        reader.fail("two axes of one name", start)
    mesh = Mesh(tuple(axes))
    if not axes or not reader.eat(",") or reader.kind != "attribute":
        return mesh
    # XLA takes any attribute's name here and drops it; only device_ids= has a value.
    name = reader.attribute()
    return Mesh(mesh.axes, _mesh_devices(reader, mesh.device_count)) if name == "device_ids" else mesh


def _mesh_devices(reader: Reader, count: int) -> tuple[int, ...] | Iota:
    start = reader.start
    reader.expect("(", "expects ( before the devices")
    if reader.kind == "[":
        iota = read_iota(reader)
        reader.expect(")", "expects ) to end the devices")
        return iota
    devices = []
    if reader.kind != ")":
        devices.append(reader.integer())
        while reader.eat(","):
            devices.append(reader.integer())
    reader.expect(")", "expects , or ) in the devices")
    if len(devices) != count:
        reader.fail(f"expects {count} devices, but sees {len(devices)}", start)
    if sorted(devices) != list(range(count)):
        reader.fail(f"the devices are not 0 to {count - 1} in some order", start)
    if devices == list(range(count)):
        reader.fail("devices in their own order must be left out", start)
    return tuple(devices)


def _read_axis(reader: Reader, mesh: Mesh) -> AxisRef:
    """`'a'`, or `'a':(2)4`; a number in quotes is an axis' index."""
    start = reader.start
    name = reader.string()
    number = next((i for i, (axis, _) in enumerate(mesh.axes) if axis == name), -1)
    if number < 0:
        stripped = name.strip(" \t\n\r\v\f")
        if not stripped.lstrip("+-").isdecimal() or not 0 <= int(stripped) < len(mesh.axes):
            reader.fail(f"the mesh has no axis {name!r}", start)
        number = int(stripped)
    if not reader.eat(":"):
        return AxisRef(number)
    reader.expect("(", "expects ( before the size of the parts before")
    pre_size = reader.integer()
    reader.expect(")", "expects ) after the size of the parts before")
    size = reader.integer()
    full = mesh.axes[number][1]
    if pre_size < 1 or size < 2:
        reader.fail("a part's size is at least 2, and of those before at least 1", start)
    if size >= full or full % (pre_size * size):
        reader.fail(f"a part ({pre_size}){size} does not fit an axis of size {full}", start)
    return AxisRef(number, pre_size, size)


def _check_axes(reader: Reader, axes: list[AxisRef], start: int) -> None:
    """No axis, and no part of one, is named twice."""
    by_axis: dict[int, list[AxisRef]] = {}
    for axis in axes:
        by_axis.setdefault(axis.axis, []).append(axis)
    for same in by_axis.values():
        if len(same) == 1:
            continue
        same.sort(key=lambda ref: ref.pre_size)
        for low, high in pairwise(same):
            if not low.size or not high.size or high.pre_size % (low.pre_size * low.size):
                reader.fail("an axis is named twice", start)


def _check_mergeable(reader: Reader, axes: list[AxisRef], start: int) -> None:
    """Two parts of an axis that follow on each other must be written as one."""
    for low, high in pairwise(axes):
        if low.axis == high.axis and low.size and high.size and low.pre_size * low.size == high.pre_size:
            reader.fail("two parts of an axis that make one", start)


# ---- device groups ---------------------------------------------------------------------------------------------------


def read_device_groups(reader: Reader) -> DeviceGroups:
    """`{{0,1},{2,3}}`, `[2,4]<=[4,2]T(1,0)`, or `mesh['a'=2,'b'=4] {'b'}`."""
    if reader.kind == "{":
        return ReplicaGroupList(tuple(reader.items("{", "}", reader.integers)))
    if reader.kind == "ident" and reader.value in ("mesh", "maximal_mesh"):
        mesh = read_mesh(reader)
        start = reader.start
        axes = reader.items("{", "}", lambda: _read_axis(reader, mesh))
        _check_axes(reader, axes, start)
        _check_mergeable(reader, axes, start)
        size = prod(axis.size or mesh.axes[axis.axis][1] for axis in axes)
        if size < 2:
            reader.fail(f"a group needs more than one device, but these axes give {size}", start)
        return MeshReplicaGroups(mesh, tuple(axes))
    start = reader.start
    shape = _filled(reader, "[", "]")
    reader.expect("<=", "expects <= after the groups' shape")
    iota = read_iota(reader)
    if len(shape) != 2:
        reader.fail("expects the number of groups and of devices in each", start)
    return IotaReplicaGroups((shape[0], shape[1]), iota.reshape_dims, iota.transpose[: len(iota.reshape_dims)])


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
                tile_dims += _filled(reader, "[", "]")
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
    dims = _filled(reader, "[", "]")
    if reader.kind != "ident" or reader.value != "T":
        reader.fail("expects T( and the dimensions' order")
    reader.advance()
    start = reader.start
    order = _filled(reader, "(", ")")
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
            axes[name] += reader.items("{", "}", lambda: _read_axis(reader, mesh))
        else:
            reader.fail("expects replicated=, unreduced=, manual= or metadata=", offset)
    reader.advance()
    used = [axis for dimension in dimensions for axis in dimension.axes]
    for name, refs in axes.items():
        used += refs
        if refs != sorted(refs, key=lambda ref: (ref.axis, ref.pre_size)):
            reader.fail(f"the axes of {name}= must stand in the mesh's order", start)
        _check_mergeable(reader, refs, start)
    for dimension in dimensions:
        _check_mergeable(reader, list(dimension.axes), start)
    _check_axes(reader, used, start)
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
            axes.append(_read_axis(reader, mesh))

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
