"""Attribute values with structure: windows, slices, aliases and the like. Each prints itself as XLA prints it.

Plain values stay plain: names and words are `str`, lists of integers `tuple[int, ...]`, source-target pairs
`tuple[tuple[int, int], ...]`. Device groups, shardings and metadata have modules of their own; their names are here
as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_cp2ag.ir.device_groups import (
    AxisRef,
    DeviceGroups,
    Iota,
    IotaReplicaGroups,
    Mesh,
    MeshReplicaGroups,
    ReplicaGroupList,
    integers_text,
)
from hlo_cp2ag.ir.metadata import OpMetadata, quote
from hlo_cp2ag.ir.shape import Shape
from hlo_cp2ag.ir.sharding import DimensionSharding, DomainMetadata, NamedSharding, Sharding

__all__ = [
    "AxisRef",
    "BufferDonor",
    "ComputationLayout",
    "ConvolutionDimensionNumbers",
    "DeviceGroups",
    "DimensionSharding",
    "DomainMetadata",
    "InputOutputAlias",
    "Iota",
    "IotaReplicaGroups",
    "Mesh",
    "MeshReplicaGroups",
    "NamedSharding",
    "OpMetadata",
    "OriginalArray",
    "OutputOperandAlias",
    "PaddingConfig",
    "RecoveryEntry",
    "ReplicaGroupList",
    "ResultAccuracy",
    "Sharding",
    "SliceRanges",
    "SourceTargetPairs",
    "Statistics",
    "TypedLiteral",
    "Window",
    "WindowDimension",
    "frontend_attributes_text",
    "is_json_dict",
    "quote",
]

SourceTargetPairs = tuple[tuple[int, int], ...]

# ---- windows, convolutions, slices, pads -----------------------------------------------------------------------------


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
    """`{[0:8:2], [0:1:1]}`: for each dimension start, limit and stride."""

    ranges: tuple[tuple[int, int, int], ...] = ()

    def to_text(self) -> str:
        """The ranges as XLA prints them: the strides only if one is not 1."""
        strides = any(stride != 1 for _, _, stride in self.ranges)
        return "{" + ", ".join(f"[{a}:{b}:{c}]" if strides else f"[{a}:{b}]" for a, b, c in self.ranges) + "}"


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
        return f"{{{integers_text(self.output_index)}}}: ({self.operand}, {{{integers_text(self.operand_index)}}})"


@dataclass(frozen=True)
class InputOutputAlias:
    """`{0}: (1, {}, may-alias)`: a part of the result that may or must live in a parameter's memory."""

    output_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...]
    kind: str = "may-alias"

    def to_text(self) -> str:
        """The alias as XLA prints it."""
        index = integers_text(self.parameter_index)
        return f"{{{integers_text(self.output_index)}}}: ({self.parameter}, {{{index}}}, {self.kind})"


@dataclass(frozen=True)
class BufferDonor:
    """`(1, {})`: a part of a parameter that is given away."""

    parameter: int
    parameter_index: tuple[int, ...]

    def to_text(self) -> str:
        """The donor as XLA prints it."""
        return f"({self.parameter}, {{{integers_text(self.parameter_index)}}})"


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
        index = f" {{{integers_text(self.index)}}}" if self.index else ""
        return f"{{{quote(self.instruction)}{index}}}"


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
