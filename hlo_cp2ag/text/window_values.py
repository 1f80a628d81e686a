"""Reading windows, convolutions' dimension labels, padding, slices and sparsity."""

from __future__ import annotations

import re

from hlo_cp2ag.ir.attributes import ConvolutionDimensionNumbers, PaddingConfig, SliceRanges, Window, WindowDimension
from hlo_cp2ag.text import opcodes
from hlo_cp2ag.text.value_reader import Reader, split_int64s

_NEGATIVE_INTERIOR = re.compile(r"_-[0-9]")


def read_window(reader: Reader) -> Window:
    """`{size=3x3 stride=2x2 pad=1_1x1_1}`: fields in any order, blanks between them."""
    fields: dict[str, tuple[int, ...]] = {}
    pads: list[tuple[int, ...]] = []
    start = reader.start
    reader.expect("{", "expects { to start the window")
    while reader.kind != "}":
        offset, name = reader.start, reader.attribute()
        if name not in opcodes.WINDOW_FIELDS:
            reader.fail(f"unknown field {name!r}; known are {', '.join(sorted(opcodes.WINDOW_FIELDS))}", offset)
        if name in fields or (name == "pad" and pads):
            reader.fail(f"the field {name} is there already", offset)
        if name == "pad":
            offset = reader.start
            pads = [split_int64s(part, "_", offset) for part in reader.expect("pad", "expects 0_0x1_1").split("x")]
            if any(len(pad) != 2 for pad in pads):
                reader.fail("expects low_high for each dimension", offset)
        elif reader.kind == "int":
            fields[name] = (reader.integer(),)
        else:
            offset = reader.start
            fields[name] = split_int64s(reader.expect("dxd", "expects an integer or 1x2x3"), "x", offset)
    reader.advance()
    sizes = fields.get("size", ())
    for name in ("stride", "lhs_dilate", "rhs_dilate"):
        if name in fields and len(fields[name]) != len(sizes):
            reader.fail(f"{name}= and size= differ in their number of dimensions", start)
    if pads and len(pads) != len(sizes):
        reader.fail("pad= and size= differ in their number of dimensions", start)
    # XLA does not compare the length of rhs_reversal=; what is missing counts as 0 here.
    reversal = fields.get("rhs_reversal", ()) + (0,) * len(sizes)
    ones = (1,) * len(sizes)
    strides, lhs, rhs = (fields.get(name, ones) for name in ("stride", "lhs_dilate", "rhs_dilate"))
    dimensions = []
    for i, size in enumerate(sizes):
        low, high = pads[i] if pads else (0, 0)
        dimensions.append(WindowDimension(size, strides[i], low, high, lhs[i], rhs[i], reversal[i] == 1))
    return Window(tuple(dimensions))


def read_dim_labels(reader: Reader) -> ConvolutionDimensionNumbers:
    """`b01f_01io->b01f`."""
    start, text = reader.start, reader.expect("labels", "expects labels like b01f_01io->b01f")
    inputs, rest = text.split("_")
    kernel, outputs = rest.split("->")
    input_ = _label_places(reader, inputs, "bf", start)
    kernel_ = _label_places(reader, kernel, "io", start)
    output = _label_places(reader, outputs, "bf", start)
    if not len(input_[2]) == len(kernel_[2]) == len(output[2]):
        reader.fail("input, kernel and output differ in their number of spatial dimensions", start)
    return ConvolutionDimensionNumbers(*input_, *kernel_, *output)


def _label_places(reader: Reader, labels: str, letters: str, start: int) -> tuple[int, int, tuple[int, ...]]:
    """Where the two letters and the spatial dimensions stand; a letter that is missing stands at 0, as in XLA."""
    places: dict[str, int] = {}
    for i, label in enumerate(labels):
        if label in places:
            reader.fail(f"the label {label} stands twice in {labels}", start)
        if label != "?":
            places[label] = i
    spatial = sorted((label, i) for label, i in places.items() if label not in letters)
    # XLA asks less here, and then writes past the end of a list.
    if [label for label, _ in spatial] != [str(i) for i in range(len(spatial))]:
        reader.fail(f"the spatial dimensions of {labels} are not numbered from 0", start)
    return places.get(letters[0], 0), places.get(letters[1], 0), tuple(i for _, i in spatial)


def read_padding(reader: Reader) -> PaddingConfig:
    """`0_0x1_2_3`."""
    start, text = reader.start, reader.expect("pad", "expects padding like 0_0x1_2_3")
    if _NEGATIVE_INTERIOR.match(reader.text, start + len(text)):
        reader.fail("the padding between elements cannot be negative", start + len(text) + 1)
    dimensions = []
    for part in text.split("x"):
        numbers = split_int64s(part, "_", start)
        dimensions.append((numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 0))
    return PaddingConfig(tuple(dimensions))


def read_slices(reader: Reader) -> SliceRanges:
    """`{[0:8:2], [0:1]}`."""

    def item() -> tuple[int, int, int]:
        start, numbers = reader.start, reader.integers("[", "]", ":")
        if len(numbers) not in (2, 3):
            reader.fail("expects [start:limit] or [start:limit:stride]", start)
        return numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 1

    return SliceRanges(tuple(reader.items("{", "}", item)))


def read_sparsity_config(reader: Reader) -> str:
    """`{lhs={sparsity=2x4 dimension=1 stride=1} rhs={...}}`, fields in any order and any number; kept as text."""
    start = reader.start
    reader.expect("{", "expects {")
    while reader.kind != "}":
        offset, name = reader.start, reader.attribute()
        if name not in ("lhs", "rhs"):
            reader.fail("expects lhs= or rhs=", offset)
        reader.expect("{", "expects {")
        while reader.kind != "}":
            offset, name = reader.start, reader.attribute()
            if name == "sparsity":
                offset = reader.start
                if len(split_int64s(reader.expect("dxd", "expects 2x4"), "x", offset)) != 2:
                    reader.fail("expects two numbers, like 2x4", offset)
            elif name in ("dimension", "stride"):
                reader.integer()
            else:
                reader.fail("expects sparsity=, dimension= or stride=", offset)
        reader.advance()
    end = reader.end
    reader.advance()
    return reader.text[start:end]
