"""Comparing and choosing: compare, select, clamp."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift, lower, to_bits
from hlo_cp2ag.executor.ops.elementwise import maximum, minimum
from hlo_cp2ag.executor.ops.unary import operand_type
from hlo_cp2ag.executor.registry import Context, array_shape, op
from hlo_cp2ag.executor.values import Array, Value, choose
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import element_bits, is_floating

DIRECTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
}


def total_order_key(x: Array, element_type: str) -> Array:
    """Signed integers that are ordered in XLA's total order of floats: -NaN < -inf < .. < -0 < +0 < .. < inf < NaN."""
    bits = to_bits(x, element_type)
    width = element_bits(element_type)
    wide = bits.astype(np.int64) if width < 64 else bits.view(np.int64)
    if element_type == "f8e8m0fnu":  # no sign: the bits are in order
        return wide
    if width == 64:
        return np.where(wide < 0, wide ^ np.int64((1 << 63) - 1), wide)
    top = 1 << (width - 1)
    key = np.where(wide & top != 0, ~(wide & (top - 1)), wide)
    # The fnuz types have no -0: its bits are their only NaN, a negative one.
    return np.where(wide == top, -top, key) if element_type.endswith("fnuz") else key


def compare_arrays(a: Array, b: Array, direction: str, kind: str, element_type: str) -> Array:
    """`compare` on arrays of one element type; `kind` is the instruction's `type`, "" where it has none."""
    if kind == "TOTALORDER" and is_floating(element_type):
        return np.asarray(DIRECTIONS[direction](total_order_key(a, element_type), total_order_key(b, element_type)))
    return np.asarray(DIRECTIONS[direction](lift(a, element_type), lift(b, element_type)))


@op("compare")
def compare(context: Context, instruction: Instruction, a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Element-wise comparison: NaN is unequal to all, unless `type=TOTALORDER`."""

    def make() -> tuple[str, str, str]:
        kind = cast(str, instruction.attribute("type", ""))
        return cast(str, instruction.attribute("direction")), kind, operand_type(context, instruction)

    return compare_arrays(a, b, *context.memo(instruction, "compare", make))


def fill_rank(scalar: Array, rank: int) -> Array:
    """A value of rank 0 with dimensions of size 1, so that it broadcasts; one of full rank as it is."""
    return scalar.reshape(scalar.shape[0], *[1] * rank) if scalar.ndim == 1 else scalar


@op("select")
def select(context: Context, instruction: Instruction, predicate: Array, chosen: Value, other: Value) -> Value:
    """Semantics: XLA operation semantics, Select; a scalar predicate chooses whole arrays."""
    if isinstance(chosen, np.ndarray) and isinstance(other, np.ndarray):
        if predicate.shape == (1,):
            return chosen if predicate[0] else other
        return np.where(fill_rank(predicate, chosen.ndim - 1), chosen, other)
    return choose(predicate, chosen, other)  # tuples, in old text


@op("clamp")
def clamp(context: Context, instruction: Instruction, least: Array, x: Array, most: Array) -> Array:
    """Semantics: XLA operation semantics, Clamp: min(max(x, least), most); NaN if any is."""
    element_type = array_shape(instruction).element_type
    low, value, high = (
        fill_rank(lift(a, operand_type(context, instruction, i)), x.ndim - 1) for i, a in enumerate((least, x, most))
    )
    return lower(minimum(maximum(low, value), high), element_type)
