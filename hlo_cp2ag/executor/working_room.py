"""The memory that ops need besides what they are given and what they make: measured, and rounded up.

Transcendental functions are computed in f64, narrow floats in f32, products of integers in f64.
"""

from __future__ import annotations

import math
from typing import cast

from hlo_cp2ag.executor.values import array_shape_of
from hlo_cp2ag.ir.attributes import Window
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import Shape, TupleShape, is_floating, leaves

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
_CONVOLUTION_WINDOWS = 1 << 26
"""Bytes of windows that a convolution lays out at one time, so long as it can be split."""


def working_room(instruction: Instruction, operands: tuple[Shape, ...], size: int) -> int:
    """Bytes for one lane; `size` is what the result takes in one."""
    opcode = instruction.opcode
    room = 2 * size  # gathering before the result is laid out takes a second or third copy
    if isinstance(instruction.shape, TupleShape) or not array_shape_of(instruction.shape).is_data:
        return room
    result = array_shape_of(instruction.shape)
    given = [array_shape_of(leaf) for shape in operands for leaf in leaves(shape)]
    kind = dtype_of(result.element_type)
    if opcode in ("dot", "convolution"):
        wide = max(8 if kind.kind in "iu" else 4, kind.itemsize)
        room += wide * sum(shape.element_count for shape in (result, result, *given))
        if opcode == "convolution":
            taps = math.prod(d.size for d in cast(Window, instruction.attribute("window", Window(()))).dimensions)
            room += min(result.element_count * taps * wide, 2 * _CONVOLUTION_WINDOWS)
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
