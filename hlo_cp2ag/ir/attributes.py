"""Attribute values with structure: device groups, windows, shardings, metadata. Each prints itself as XLA prints it.

Plain values stay plain: names and words are `str`, lists of integers `tuple[int, ...]`, source-target pairs
`tuple[tuple[int, int], ...]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

from hlo_cp2ag.ir.shape import Shape

SourceTargetPairs = tuple[tuple[int, int], ...]

# ---- text ------------------------------------------------------------------------------------------------------------

_ESCAPES = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}


def quote(text: str) -> str:
    """The string in double quotes with C escapes, as XLA's printer writes it: other bytes in octal."""
    if text.isascii() and text.isprintable() and not any(c in text for c in "\"'\\"):
        return f'"{text}"'
    raw = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in raw) + '"'


def _integers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


# ---- device groups ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplicaGroupList:
    """`{{0,1},{2,3}}`; no groups at all stand for one group of all devices."""

    groups: tuple[tuple[int, ...], ...] = ()

    def to_groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups."""
        return self.groups

    def to_text(self) -> str:
        """The groups as XLA prints them."""
        return "{" + ",".join("{" + _integers(group) + "}" for group in self.groups) + "}"


@dataclass(frozen=True)
class Iota:
    """`[2,4]T(1,0)`: the numbers 0, 1, 2 ... laid out as `reshape_dims`, transposed, and read in order."""

    reshape_dims: tuple[int, ...]
    transpose: tuple[int, ...] = (0,)

    def values(self) -> tuple[int, ...]:
        """The numbers in the order read. Raises ValueError if `transpose` is no permutation."""
        rank = len(self.reshape_dims)
        if sorted(self.transpose) != list(range(rank)):
            raise ValueError(f"T({_integers(self.transpose)}) is no permutation of {rank} dimensions")
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
        order = f"T({_integers(iota.transpose)})" if len(iota.reshape_dims) > 1 else ""
        return f"[{_integers(iota.reshape_dims)}]{order}"


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
        return f"[{_integers(self.shape)}]<={Iota(self.reshape_dims, self.transpose).to_text()}"


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
        return text if self.device_ids is None else f"{text}, device_ids=({_integers(self.device_ids)})"


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


def _axes_text(axes: tuple[AxisRef, ...], mesh: Mesh, comma: str = ",") -> str:
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
            pieces = list(zip(ordered, ordered[1:], strict=False)) or [(1, full)]
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
        return f"{self.mesh.to_text()} {_axes_text(self.axes, self.mesh)}"


DeviceGroups = ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups

# ---- windows, convolutions, slices, pads --------------------------------------------------------------------------------


@dataclass(frozen=True)
class WindowDimension:
    """One dimension of a window."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1
    rhs_reversal: bool = False


@dataclass(frozen=True)
class Window:
    """`{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x0}`."""

    dimensions: tuple[WindowDimension, ...] = ()

    def to_text(self) -> str:
        """The window as XLA prints it: fields that say nothing are left out."""
        if not self.dimensions:
            return "{}"
        dims = self.dimensions
        fields = ["size=" + "x".join(str(d.size) for d in dims)]
        if any(d.stride != 1 for d in dims):
            fields.append("stride=" + "x".join(str(d.stride) for d in dims))
        if any(d.padding_low or d.padding_high for d in dims):
            fields.append("pad=" + "x".join(f"{d.padding_low}_{d.padding_high}" for d in dims))
        if any(d.lhs_dilate != 1 for d in dims):
            fields.append("lhs_dilate=" + "x".join(str(d.lhs_dilate) for d in dims))
        if any(d.rhs_dilate != 1 for d in dims):
            fields.append("rhs_dilate=" + "x".join(str(d.rhs_dilate) for d in dims))
        if any(d.rhs_reversal for d in dims):
            fields.append("rhs_reversal=" + "x".join(str(int(d.rhs_reversal)) for d in dims))
        return "{" + " ".join(fields) + "}"


@dataclass(frozen=True)
class ConvolutionDimensionNumbers:
    """`b01f_01io->b01f`: which dimension plays which part in input, kernel and output."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]

    def to_text(self) -> str:
        """The labels as XLA prints them; dimensions without a part are `?`."""
        return (
            _labels("bf", self.input_batch, self.input_feature, self.input_spatial)
            + "_"
            + _labels("io", self.kernel_input_feature, self.kernel_output_feature, self.kernel_spatial)
            + "->"
            + _labels("bf", self.output_batch, self.output_feature, self.output_spatial)
        )


def _labels(letters: str, first: int, second: int, spatial: tuple[int, ...]) -> str:
    labels = ["?"] * (max(first, second, *spatial, 0) + 1)
    labels[first] = letters[0]
    labels[second] = letters[1]
    for number, dimension in enumerate(spatial):
        labels[dimension] = str(number)
    return "".join(labels)


@dataclass(frozen=True)
class PaddingConfig:
    """`0_0x1_2_3`: for each dimension the padding before, after and between elements."""

    dimensions: tuple[tuple[int, int, int], ...]

    def to_text(self) -> str:
        """The padding as XLA prints it: the parts between elements only if there are any."""
        interior = any(between for _, _, between in self.dimensions)
        return "x".join(
            f"{low}_{high}_{between}" if interior else f"{low}_{high}" for low, high, between in self.dimensions
        )


@dataclass(frozen=True)
class SliceRanges:
    """`{[0:8:2], [0:1]}`: for each dimension start, limit and stride."""

    ranges: tuple[tuple[int, int, int], ...] = ()

    def to_text(self) -> str:
        """The ranges as XLA prints them."""
        return "{" + ", ".join(f"[{a}:{b}]" if c == 1 else f"[{a}:{b}:{c}]" for a, b, c in self.ranges) + "}"


# ---- metadata --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpMetadata:
    """`{op_type="..." op_name="..." source_file="..." source_line=1}`."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    profile_type: tuple[int, ...] = ()
    deduplicated_name: str = ""
    scheduling_name: str = ""
    metadata_payload: str = ""

    def to_text(self) -> str:
        """The metadata as XLA prints it: fields that say nothing are left out."""
        fields = []
        for name in _METADATA_ORDER:
            value = getattr(self, name)
            if isinstance(value, str):
                if value:
                    fields.append(f"{name}={quote(value)}")
            elif isinstance(value, tuple):
                if value:
                    fields.append(f"{name}={{{_integers(value)}}}")
            elif value > 0:
                fields.append(f"{name}={value}")
        return "{" + " ".join(fields) + "}"


_METADATA_ORDER = (
    "op_type",
    "op_name",
    "source_file",
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
    "stack_frame_id",
    "profile_type",
    "deduplicated_name",
    "scheduling_name",
    "metadata_payload",
)

# ---- shardings -------------------------------------------------------------------------------------------------------


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
                parts.append(f"{word}={_axes_text(axes, mesh, ', ')}")
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
        """Whether the text says that each device runs its own program here: `{manual}`, for a tuple in each leaf."""
        if self.kind == "tuple":
            return bool(self.elements) and all(element.is_manual for element in self.elements)
        if self.named is not None:
            return self.named.covers(self.named.manual)
        return self.kind == "manual"

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

    def to_text(self) -> str:
        """The sharding as XLA prints it, but for the merging of last tile dimensions of one kind."""
        if self.kind == "tuple":
            return "{" + ", ".join(element.to_text() for element in self.elements) + "}"
        if self.named is not None:
            metadata = ", metadata={" + ", ".join(m.to_text() for m in self.metadata) + "}" if self.metadata else ""
            return "{" + self.named.to_text() + metadata + "}"
        words = [self.kind]
        if self.kind == "maximal":
            words = [f"maximal device={self.device}"]
        elif self.kind == "tiled":
            words = [f"devices=[{_integers(self.tile_dims)}]" + self._devices_text()]
            if self.last_tile_dim_replicate:
                words.append("last_tile_dim_replicate")
            elif self.last_tile_dims:
                words.append("last_tile_dims={" + ", ".join(self.last_tile_dims) + "}")
        if self.shard_group:
            words.append(f"{self.shard_group[0]} {self.shard_group[1]}")
        if len(self.metadata) == 1:
            words.append("metadata=" + self.metadata[0].to_text())
        elif self.metadata:
            words.append("metadata={" + ", ".join(m.to_text() for m in self.metadata) + "}")
        return "{" + " ".join(words) + "}"

    def _devices_text(self) -> str:
        return "<=" + self.devices.to_text() if isinstance(self.devices, Iota) else _integers(self.devices)


@dataclass(frozen=True)
class DomainMetadata:
    """`{kind="sharding", entry={...}, exit={...}}`."""

    entry: Sharding
    exit: Sharding

    def to_text(self) -> str:
        """The domain as XLA prints it."""
        return f'{{kind="sharding", entry={self.entry.to_text()}, exit={self.exit.to_text()}}}'


# ---- the rest --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResultAccuracy:
    """`{mode=highest}` or `{tolerance={atol=0.03125,rtol=0.03125,ulps=2}}`."""

    mode: str = ""
    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def to_text(self) -> str:
        """The accuracy as XLA prints it; numbers with six digits."""
        if self.mode:
            return f"{{mode={self.mode}}}"
        return f"{{tolerance={{atol={self.atol:.6g},rtol={self.rtol:.6g},ulps={self.ulps}}}}}"


@dataclass(frozen=True)
class OutputOperandAlias:
    """`{0}: (1, {2})`: a part of the output that is a part of an operand."""

    output_index: tuple[int, ...]
    operand: int
    operand_index: tuple[int, ...]

    def to_text(self) -> str:
        """The alias as XLA prints it."""
        return f"{{{_integers(self.output_index)}}}: ({self.operand}, {{{_integers(self.operand_index)}}})"


@dataclass(frozen=True)
class InputOutputAlias:
    """`{0}: (1, {}, may-alias)`: a part of the result that may or must live in a parameter's memory."""

    output_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...]
    kind: str = "may-alias"

    def to_text(self) -> str:
        """The alias as XLA prints it."""
        index = _integers(self.parameter_index)
        return f"{{{_integers(self.output_index)}}}: ({self.parameter}, {{{index}}}, {self.kind})"


@dataclass(frozen=True)
class BufferDonor:
    """`(1, {})`: a part of a parameter that is given away."""

    parameter: int
    parameter_index: tuple[int, ...]

    def to_text(self) -> str:
        """The donor as XLA prints it."""
        return f"({self.parameter}, {{{_integers(self.parameter_index)}}})"


@dataclass(frozen=True)
class ComputationLayout:
    """`{(f32[2]{0})->f32[2]{0}}`: the entry's parameters and result with their layouts."""

    parameters: tuple[Shape, ...]
    result: Shape

    def to_text(self) -> str:
        """The layout as XLA prints it."""
        parts = [
            (f"/*index={i}*/" if i and i % 5 == 0 else "") + shape.to_text() for i, shape in enumerate(self.parameters)
        ]
        return "{(" + ", ".join(parts) + ")->" + self.result.to_text() + "}"


@dataclass(frozen=True)
class Statistics:
    """`{visualizing_index=1,a=1,b=2.5}`."""

    visualizing_index: int = 0
    values: tuple[tuple[str, float], ...] = field(default=())

    def to_text(self) -> str:
        """The statistics as XLA prints them."""
        if not self.values:
            return "{}"
        parts = [f"visualizing_index={self.visualizing_index}", *(f"{name}={value:.6g}" for name, value in self.values)]
        return "{" + ",".join(parts) + "}"


@dataclass(frozen=True)
class TypedLiteral:
    """`f32[2]{0} {1, 2}`: the value of `literal=`, as shape and text; a tuple has `elements` instead."""

    shape: Shape | None
    text: str
    elements: tuple[TypedLiteral, ...] = ()

    def to_text(self) -> str:
        """The literal as it stands."""
        if self.shape is None:
            return "( " + ", ".join(element.to_text() for element in self.elements) + " )"
        return f"{self.shape.to_text()} {self.text}"


@dataclass(frozen=True)
class OriginalArray:
    """`{"name" {0,1}}`: an array of the program before some transformation, by its instruction and index."""

    instruction: str
    index: tuple[int, ...] = ()

    def to_text(self) -> str:
        """The array as XLA prints it."""
        return f"{{{quote(self.instruction)} {{{_integers(self.index)}}}}}" if self.index else f"{{{quote(self.instruction)}}}"


@dataclass(frozen=True)
class RecoveryEntry:
    """`{"a"} : {"b"}, "HloModule ..."`: how an array that is gone is computed from another; `module` as it stands."""

    replaced: OriginalArray | None
    replacing: OriginalArray | None
    module: str | None = None


def frontend_attributes_text(attributes: Mapping[str, str]) -> str:
    """`{a="x",b={...}}` as XLA prints it: sorted by name; what looks like a dictionary stays bare."""
    return "{" + ",".join(f"{n}={v if is_json_dict(v) else quote(v)}" for n, v in sorted(attributes.items())) + "}"


def is_json_dict(text: str) -> bool:
    """Whether XLA prints a text without quotes: it starts with a brace, and that brace closes at its end."""
    if not text.startswith("{"):
        return False
    depth = 0
    for match in re.finditer(r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"|[{}\"]", text):
        piece = match[0]
        if piece == '"':
            return False
        depth += 1 if piece == "{" else -1 if piece == "}" else 0
        if depth == 0:
            return match.end() == len(text)
    return False
