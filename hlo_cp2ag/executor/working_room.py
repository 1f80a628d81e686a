"""The memory that ops need besides what they are given and what they make: measured, and rounded up.

Transcendental functions are computed in f64, narrow floats in f32, products of integers in f64.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from hlo_cp2ag.executor.ops.linalg import product_dtype
from hlo_cp2ag.executor.values import array_shape_of
from hlo_cp2ag.ir.attributes import ConvolutionDimensionNumbers, Window, WindowDimension
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import ArrayShape, Shape, TupleShape, is_floating, leaves

_REAL = {"erf": 48, "logistic": 40, "power": 32, "atan2": 24, "rsqrt": 24}
"""Bytes for each element of a function of real numbers; 16 where it is not here."""
_REPEATED = {
    "clamp": 28,
    "reduce-precision": 32,
    "count-leading-zeros": 32,
    "triangular-solve": 32,
    "cholesky": 24,
    "convert": 36,
    "compare": 32,
}
"""Bytes for each element of ops in several steps, each of which makes an array.

convert where a float becomes an integer, compare in total order.
"""
_COMPLEX = {"power": 96, "rsqrt": 80, "add": 16, "subtract": 16, "multiply": 32}
"""Bytes for each c64 element, twice as many for c128; 56 where it is not here."""
_FUNCTIONS = frozenset(
    (
        *("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "tan", "sine", "cosine"),
        *("sqrt", "rsqrt", "cbrt", "erf", "power", "atan2", "acosh", "asinh", "atanh", "cosh", "sinh", "acos", "asin"),
    )
)
_HEAVY = {
    "rng-bit-generator": 72,
    "rng": 48,
    "stochastic-convert": 96,
    "mulhi": 160,
    "ragged-all-to-all": 16,
    "ragged-dot": 48,
    "scaled-dot": 64,
    "batch-norm-training": 80,
    "batch-norm-inference": 64,
    "batch-norm-grad": 120,
}
"""Bytes for each element of the largest operand or result."""
CONVOLUTION_ROOM = 1 << 26
"""Bytes that a convolution's windows laid out as rows may take at one time, copies for their product included."""


def working_room(instruction: Instruction, operands: tuple[Shape, ...], size: int) -> int:
    """Bytes for one lane; `size` is what the result takes in one."""
    opcode = instruction.opcode
    room = 2 * size  # gathering before the result is laid out takes a second or third copy
    if opcode in ("reduce-window", "select-and-scatter"):
        room += _windows_room(instruction, [array_shape_of(leaf) for shape in operands for leaf in leaves(shape)])
    if opcode == "custom-call":
        given = [array_shape_of(leaf) for shape in operands for leaf in leaves(shape)]
        room += 64 * sum(shape.element_count for shape in given if shape.is_data)
    if opcode in _HEAVY:
        room += _HEAVY[opcode] * max(
            shape.element_count for shape in map(array_shape_of, leaves(TupleShape((instruction.shape, *operands))))
        )
    if isinstance(instruction.shape, TupleShape) or not array_shape_of(instruction.shape).is_data:
        return room
    result = array_shape_of(instruction.shape)
    given = [array_shape_of(leaf) for shape in operands for leaf in leaves(shape)]
    kind = dtype_of(result.element_type)
    if opcode in ("dot", "convolution"):
        wide = max(8 if kind.kind in "iu" else 4, kind.itemsize)
        room += wide * sum(shape.element_count for shape in (result, result, *given))
        if opcode == "convolution":
            numbers = cast(ConvolutionDimensionNumbers, instruction.attribute("dim_labels"))
            outer = (given[0].dimensions[numbers.input_batch], given[0].dimensions[numbers.input_feature])
            wide = _sums_of(instruction, result, *given[:2]).itemsize
            room += wide * _padded_count(instruction, given[0], outer, numbers.input_spatial)
    elif opcode == "fft":
        room += 16 * max(shape.element_count for shape in (result, *given)) + 16 * result.element_count
    elif opcode in ("gather", "scatter"):
        room += 32 * given[1].element_count
    elif opcode == "reduce":
        room += sum(shape.element_count * max(3, 2 * dtype_of(shape.element_type).itemsize) for shape in given)
    elif opcode == "reduce-window" and kind.itemsize == 2:
        room += 16 * given[0].element_count
    elif opcode in _REPEATED and _takes_steps(instruction, kind.kind, given[0].element_type):
        room = max(room, result.element_count * _REPEATED[opcode] * max(1, kind.itemsize // 8))
    elif kind.kind == "c":
        room = max(room, result.element_count * _COMPLEX.get(opcode, 56) * kind.itemsize // 8)
    elif opcode in _FUNCTIONS:
        room = max(room, result.element_count * _REAL.get(opcode, 16))
    elif kind.itemsize < 4:
        room += 8 * result.element_count
    return room


def _takes_steps(instruction: Instruction, result_kind: str, operand_type: str) -> bool:
    if instruction.opcode == "convert":
        return result_kind in "iu" and is_floating(operand_type)
    if instruction.opcode == "compare":
        return "TOTALORDER" in str(instruction.attribute("type", ""))
    return True


def shared_room(instruction: Instruction, operands: tuple[Shape, ...], lanes: int) -> int:
    """Bytes besides those of the lanes: the windows of a convolution, which are laid out a block at a time."""
    if instruction.opcode != "convolution":
        return 0
    image, kernel = (array_shape_of(shape) for shape in operands[:2])
    numbers = cast(ConvolutionDimensionNumbers, instruction.attribute("dim_labels"))
    result = array_shape_of(instruction.shape)
    each = row_bytes(_sums_of(instruction, result, image, kernel))
    place = image.dimensions[numbers.input_feature] * math.prod(kernel.dimensions[d] for d in numbers.kernel_spatial)
    places = image.dimensions[numbers.input_batch] * math.prod(result.dimensions[d] for d in numbers.output_spatial)
    groups = cast(int, instruction.attribute("batch_group_count", 1))
    return max(groups * place * each, min(places * place * each * lanes, CONVOLUTION_ROOM))


def row_bytes(wide: np.dtype[np.generic]) -> int:
    """What an element of the windows takes while rows are multiplied: integers are split into limbs of 16 bits."""
    return wide.itemsize + (8 * (2 + max(1, wide.itemsize // 2)) if wide.kind in "iu" else 0)


def _sums_of(
    instruction: Instruction, result: ArrayShape, image: ArrayShape, kernel: ArrayShape
) -> np.dtype[np.generic]:
    """What a convolution's products are added up in."""
    numbers = cast(ConvolutionDimensionNumbers, instruction.attribute("dim_labels"))
    outputs = kernel.dimensions[numbers.kernel_output_feature]
    rows = result.element_count // max(1, outputs)
    terms = kernel.element_count // max(1, outputs)
    groups = [cast(int, instruction.attribute(f"{what}_group_count", 1)) for what in ("feature", "batch")]
    columns = outputs // math.prod(groups)
    return product_dtype((image.element_type, kernel.element_type), result.element_type, rows, terms, columns)


def _padded_count(
    instruction: Instruction, base: ArrayShape, outer: tuple[int, ...] = (), spatial: tuple[int, ...] | None = None
) -> int:
    """How many elements an array has once it is padded and dilated for a window over its `spatial` dimensions, or all."""
    places = tuple(range(base.rank)) if spatial is None else spatial
    sizes = []
    for d, place in zip(_window(instruction, len(places)), places, strict=True):
        size = base.dimensions[place]
        sizes.append(max(0, d.padding_low + d.padding_high + ((size - 1) * d.lhs_dilate + 1 if size else 0)))
    return math.prod((*outer, *sizes))


def _window(instruction: Instruction, rank: int) -> tuple[WindowDimension, ...]:
    return cast(Window, instruction.attribute("window", Window((WindowDimension(1),) * rank))).dimensions


def _windows_room(instruction: Instruction, given: list[ArrayShape]) -> int:
    """What reduce-window and select-and-scatter need: operands lifted and padded, and an array or more a step."""
    if instruction.opcode == "select-and-scatter":
        return 48 * given[1].element_count + dtype_of(given[0].element_type).itemsize * _padded_count(
            instruction, given[0]
        )
    room = 0
    taps = math.prod(d.size for d in _window(instruction, given[0].rank))
    for shape in given[: len(given) // 2]:
        kind = dtype_of(shape.element_type)
        # Long windows are folded by powers of two, each of which is an array of its own.
        times = 1 if taps <= 128 else 4 if kind.itemsize >= 4 else 8
        padded = _padded_count(instruction, shape)
        room += max(4, kind.itemsize) * (times * padded + 4 * shape.element_count)
    return room
