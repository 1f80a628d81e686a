"""Reading iotas, meshes with their axes, and the device groups of collectives."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from hlo_cp2ag.ir.device_groups import (
    AxisRef,
    DeviceGroups,
    Iota,
    IotaReplicaGroups,
    Mesh,
    MeshReplicaGroups,
    ReplicaGroupList,
)
from hlo_cp2ag.text.value_reader import Reader

# ---- iotas and meshes ------------------------------------------------------------------------------------------------


def read_iota(reader: Reader) -> Iota:
    """`[8]` or `[2,4]T(1,0)`. More than one dimension needs its order; the order may be too short or too long."""
    dims = read_filled(reader, "[", "]")
    if len(dims) == 1:
        return Iota(dims)
    if reader.kind != "ident" or reader.value != "T":
        reader.fail("expects T( and the dimensions' order")
    reader.advance()
    start = reader.start
    order = read_filled(reader, "(", ")")
    if not all(0 <= axis < len(dims) for axis in order):
        reader.fail(f"the order names a dimension that is not in [0, {len(dims)})", start)
    return Iota(dims, order)


def read_filled(reader: Reader, opening: str, closing: str) -> tuple[int, ...]:
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


def read_axis(reader: Reader, mesh: Mesh) -> AxisRef:
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


def check_axes(reader: Reader, axes: list[AxisRef], start: int) -> None:
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


def check_mergeable(reader: Reader, axes: list[AxisRef], start: int) -> None:
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
        axes = reader.items("{", "}", lambda: read_axis(reader, mesh))
        check_axes(reader, axes, start)
        check_mergeable(reader, axes, start)
        size = prod(axis.size or mesh.axes[axis.axis][1] for axis in axes)
        if size < 2:
            reader.fail(f"a group needs more than one device, but these axes give {size}", start)
        return MeshReplicaGroups(mesh, tuple(axes))
    start = reader.start
    shape = read_filled(reader, "[", "]")
    reader.expect("<=", "expects <= after the groups' shape")
    iota = read_iota(reader)
    if len(shape) != 2:
        reader.fail("expects the number of groups and of devices in each", start)
    return IotaReplicaGroups((shape[0], shape[1]), iota.reshape_dims, iota.transpose[: len(iota.reshape_dims)])
