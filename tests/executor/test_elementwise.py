"""Elementwise ops at the values where they differ from the textbook, checked by hand and against XLA."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hlo_cp2ag.executor.registry import known_opcodes

from .support import INTEGERS, Array, array, compute, one_op, same_bits

inf, nan = np.inf, np.nan


def binary(op: str, element_type: str, a: list[float], b: list[float]) -> Array:
    shape = f"{element_type}[{len(a)}]"
    return compute(one_op(shape, op, [shape, shape]), array(element_type, a), array(element_type, b))


def unary(op: str, element_type: str, a: list[float], result: str = "") -> Array:
    shape = f"{element_type}[{len(a)}]"
    return compute(one_op(f"{result or element_type}[{len(a)}]", op, [shape]), array(element_type, a))


@pytest.mark.parametrize(
    ("op", "element_type", "a", "b", "expected"),
    [
        ("add", "s8", [127, -128], [1, -1], [-128, 127]),
        ("add", "u8", [255], [2], [1]),
        ("add", "s4", [7, -8], [1, -1], [-8, 7]),
        ("add", "u4", [15], [3], [2]),
        ("subtract", "u2", [0], [1], [3]),
        ("multiply", "s4", [7, -8], [7, -1], [1, -8]),
        ("multiply", "s2", [-2, 1], [-2, -2], [0, -2]),
        ("divide", "s32", [7, -7, 5, -(2**31)], [-2, 2, 0, -1], [-3, -3, -1, -(2**31)]),
        ("divide", "u8", [7, 7], [0, 2], [255, 3]),
        ("divide", "s4", [-8, 3], [-1, 0], [-8, -1]),
        ("divide", "u4", [3], [0], [15]),
        ("remainder", "s32", [7, -7, 5, -(2**31)], [-2, 2, 0, -1], [1, -1, 5, 0]),
        ("remainder", "u8", [7, 7], [0, 4], [7, 3]),
        ("remainder", "f32", [5.5, -5.5, 1, inf], [2, 2, 0, 2], [1.5, -1.5, nan, nan]),
        ("maximum", "f32", [nan, 1, -0.0, 0.0], [1, nan, 0.0, -0.0], [nan, nan, 0.0, 0.0]),
        ("minimum", "f32", [nan, 1, -0.0, 0.0], [1, nan, 0.0, -0.0], [nan, nan, -0.0, -0.0]),
        ("maximum", "s4", [-8], [7], [7]),
        ("power", "s32", [2, 2, -1, -1, 1, 3, 0, 0], [10, -1, -3, -2, -5, 0, 0, 3], [1024, 0, -1, 1, 1, 1, 1, 0]),
        ("power", "u8", [3], [6], [217]),
        ("power", "f32", [0, 0, -2, -2, inf], [0, -1, 3, 0.5, 0], [1, inf, -8, nan, 1]),
        ("atan2", "f32", [0.0, -0.0, 0.0, -0.0, inf], [1, 1, -1, -1, inf], [0.0, -0.0, np.pi, -np.pi, np.pi / 4]),
        ("shift-left", "s8", [1, 1, 1, 3], [7, 8, -1, 1], [-128, 0, 0, 6]),
        ("shift-left", "s4", [1, 3, 1], [3, 1, 4], [-8, 6, 0]),
        ("shift-right-arithmetic", "s8", [-128, -128, 64], [7, 9, 8], [-1, -1, 0]),
        ("shift-right-arithmetic", "u8", [128], [1], [192]),
        ("shift-right-logical", "s8", [-1, -1], [1, 8], [127, 0]),
        ("shift-right-logical", "s4", [-1, -8], [1, 3], [7, 1]),
        ("xor", "u4", [5], [15], [10]),
        ("add", "bf16", [256, 1], [1, 2.0**-9], [256, 1]),
        ("add", "f16", [2048, 65504], [1, 16], [2048, inf]),
        ("multiply", "f8e4m3fn", [448, 3], [2, 1.125], [nan, 3.5]),
        ("multiply", "f8e5m2", [57344], [2], [inf]),
    ],
)
def test_binary(op: str, element_type: str, a: list[float], b: list[float], expected: list[float]) -> None:
    result, right = binary(op, element_type, a, b), array(element_type, expected)
    nans = right != right
    assert np.array_equal(result != result, nans)
    assert same_bits(result[~nans], right[~nans]), result


def test_small_floats_round_after_every_op() -> None:
    text = """HloModule m
ENTRY e {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  s = bf16[] add(a, b)
  ROOT r = bf16[] subtract(s, a)
}
"""
    assert float(compute(text, array("bf16", 256), array("bf16", 1))) == 0.0


@pytest.mark.parametrize(
    ("op", "element_type", "a", "expected"),
    [
        ("negate", "s8", [-128, 1], [-128, -1]),
        ("negate", "u8", [1, 0], [255, 0]),
        ("abs", "s8", [-128, -3], [-128, 3]),
        ("sign", "f32", [-0.0, 0.0, -3, nan, inf], [-0.0, 0.0, -1, nan, 1]),
        ("sign", "s4", [-8, 0, 5], [-1, 0, 1]),
        ("round-nearest-afz", "f32", [0.5, -0.5, 1.5, 2.5, 0.49999997, 8388609.0], [1, -1, 2, 3, 0.0, 8388609.0]),
        ("round-nearest-even", "f32", [0.5, -0.5, 1.5, 2.5], [0.0, -0.0, 2, 2]),
        ("floor", "bf16", [-0.5, 0.5], [-1, 0.0]),
        ("ceil", "f16", [-0.5, 0.5], [-0.0, 1]),
        ("not", "s8", [0, 5], [-1, -6]),
        ("not", "u4", [0, 5], [15, 10]),
        ("popcnt", "s8", [-1, 5], [8, 2]),
        ("popcnt", "s4", [-1, -8], [4, 1]),
        ("count-leading-zeros", "s32", [0, 1, -1], [32, 31, 0]),
        ("count-leading-zeros", "u4", [0, 1, 8], [4, 3, 0]),
        ("count-leading-zeros", "s64", [0, 1], [64, 63]),
        ("exponential", "f32", [-inf, inf, nan, 0], [0.0, inf, nan, 1]),
        ("log", "f32", [0, -1, inf, 1], [-inf, nan, inf, 0.0]),
        ("log-plus-one", "f32", [-1, -2, 0], [-inf, nan, 0.0]),
        ("exponential-minus-one", "f32", [-inf, -0.0], [-1, -0.0]),
        ("logistic", "f32", [-inf, inf, 0], [0.0, 1, 0.5]),
        ("sqrt", "f32", [-1, -0.0, 4, inf], [nan, -0.0, 2, inf]),
        ("rsqrt", "f32", [0.0, -0.0, 4, inf], [inf, -inf, 0.5, 0.0]),
        ("cbrt", "f32", [-8, 27], [-2, 3]),
        ("tanh", "f32", [-inf, inf, -0.0], [-1, 1, -0.0]),
        ("erf", "f32", [-inf, inf, 0], [-1, 1, 0.0]),
        ("acosh", "f32", [1, 0.5], [0.0, nan]),
        ("atanh", "f32", [1, -1, 2], [inf, -inf, nan]),
        ("asin", "f32", [2], [nan]),
        ("cosine", "f32", [inf, 0], [nan, 1]),
    ],
)
def test_unary(op: str, element_type: str, a: list[float], expected: list[float]) -> None:
    result, right = unary(op, element_type, a), array(element_type, expected)
    nans = right != right
    assert np.array_equal(result != result, nans)
    assert same_bits(result[~nans], right[~nans]), result


def test_predicates() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for op, expected in {
        "and": a & b,
        "or": a | b,
        "xor": a ^ b,
        "add": a | b,
        "multiply": a & b,
        "maximum": a | b,
    }.items():
        assert np.array_equal(compute(one_op("pred[4]", op, ["pred[4]", "pred[4]"]), a, b), expected), op
    assert np.array_equal(compute(one_op("pred[4]", "not", ["pred[4]"]), a), ~a)
    less = compute(one_op("pred[4]", "compare", ["pred[4]", "pred[4]"], "direction=LT"), a, b)
    assert np.array_equal(less, ~a & b)


def test_is_finite() -> None:
    assert unary("is-finite", "bf16", [1, inf, nan, -inf], "pred").tolist() == [True, False, False, False]


def test_complex_parts_and_products() -> None:
    z = np.array([3 + 4j, complex(0.0, -0.0), complex(-1, inf)], np.complex64)
    shape = "c64[3]"
    assert compute(one_op("f32[3]", "abs", [shape]), z).tolist() == [5.0, 0.0, inf]
    assert np.signbit(compute(one_op("f32[3]", "imag", [shape]), z)).tolist() == [False, True, False]
    assert compute(one_op("f32[3]", "real", [shape]), z).tolist() == [3.0, 0.0, -1.0]
    assert compute(one_op(shape, "sign", [shape]), z[:1].repeat(3))[0] == np.complex64(0.6 + 0.8j)
    made = compute(one_op(shape, "complex", ["f32[3]", "f32[3]"]), z.real.copy(), z.imag.copy())
    assert same_bits(made, z)
    # The schoolbook product, infinities and all.
    product = compute(one_op("c64[1]", "multiply", ["c64[1]", "c64[1]"]), z[2:], np.array([1j], np.complex64))
    assert product[0].real == -inf and np.isnan(product[0].imag)


def test_compare_total_order() -> None:
    values = array("f32", [-nan, -inf, -1, -0.0, 0.0, 1, inf, nan])
    values.view(np.uint32)[0] |= np.uint32(1 << 31)
    values.view(np.uint32)[-1] &= np.uint32(0x7FFFFFFF)
    text = one_op("pred[7]", "compare", ["f32[7]", "f32[7]"], "direction=LT, type=TOTALORDER")
    assert compute(text, values[:-1], values[1:]).all()
    ordinary = one_op("pred[7]", "compare", ["f32[7]", "f32[7]"], "direction=LT")
    assert compute(ordinary, values[:-1], values[1:]).tolist() == [False, True, True, False, True, True, False]


def test_clamp_and_select_take_scalars() -> None:
    x = array("f32", [-5, 0, 5, nan])
    clamped = compute(one_op("f32[4]", "clamp", ["f32[]", "f32[4]", "f32[]"]), array("f32", -1), x, array("f32", 2))
    assert clamped[:3].tolist() == [-1.0, 0.0, 2.0] and np.isnan(clamped[3])
    text = one_op("f32[4]", "select", ["pred[]", "f32[4]", "f32[4]"])
    assert same_bits(compute(text, np.array(True), x, -x), x)


def test_mixed_float_types_round_once() -> None:
    """XLA's verifier lets the result, and the operands among themselves, have another float type."""
    text = one_op("bf16[1]", "add", ["f32[1]", "bf16[1]"])
    assert compute(text, array("f32", [1.0]), array("bf16", [2.0**-7])).astype(np.float32)[0] == 1 + 2.0**-7


@pytest.mark.parametrize("element_type", INTEGERS)
def test_integers_wrap(element_type: str) -> None:
    from hlo_cp2ag.ir.element_types import dtype_of, integer_range

    low, high = integer_range(element_type)
    shape = f"{element_type}[1]"
    top = np.array([high], np.uint64 if element_type == "u64" else np.int64).astype(dtype_of(element_type))
    one = array(element_type, [1])
    assert int(compute(one_op(shape, "add", [shape, shape]), top, one)[0]) == low


def test_every_elementwise_opcode_is_there() -> None:
    wanted = (
        "abs acos acosh add and asin asinh atan2 atanh cbrt ceil clamp compare complex convert copy cosh cosine "
        "count-leading-zeros divide erf exponential exponential-minus-one floor imag is-finite log log-plus-one "
        "logistic maximum minimum multiply negate not or popcnt power real reduce-precision remainder "
        "round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign "
        "sine sinh sqrt subtract tan tanh xor"
    )
    assert set(re.findall(r"\S+", wanted)) <= known_opcodes()
