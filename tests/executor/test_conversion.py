from __future__ import annotations

import numpy as np
import pytest

from .support import Array, array, compute, one_op, same_bits

inf, nan = np.inf, np.nan


def convert(source: str, target: str, values: Array) -> Array:
    return compute(one_op(f"{target}[{values.size}]", "convert", [f"{source}[{values.size}]"]), values)


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        ("f32", "s32", [1.9, -1.9, 3e9, -3e9, nan, inf], [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1]),
        ("f32", "u8", [-1, 255.9, 300, nan], [0, 255, 255, 0]),
        ("f32", "s4", [7.9, 8, -9, 0.5], [7, 7, -8, 0]),
        ("f64", "s64", [9.3e18, -9.3e18, 2.0**53], [2**63 - 1, -(2**63), 2**53]),
        ("f64", "u64", [1.9e19, -1], [2**64 - 1, 0]),
        ("bf16", "s8", [200, -200], [127, -128]),
        ("s32", "s8", [300, -129], [44, 127]),
        ("s32", "u4", [17, -1], [1, 15]),
        ("s8", "u32", [-1], [2**32 - 1]),
        ("u8", "s2", [7, 2], [-1, -2]),
        ("s64", "f32", [2**24 + 1, 2**24 + 3], [2.0**24, 2.0**24 + 4]),
        ("s32", "bf16", [257, 259], [256, 260]),
        ("f32", "pred", [0.0, -0.0, nan, 0.5], [False, False, True, True]),
        ("s4", "pred", [0, -8], [False, True]),
        ("pred", "f32", [True, False], [1.0, 0.0]),
        ("pred", "s4", [True, False], [1, 0]),
        ("f32", "f8e4m3fn", [464, 465, -500, 17], [448, nan, nan, 16]),
        ("f32", "f8e5m2", [61439, 61440], [57344, inf]),
        ("f64", "f8e4m3fn", [17.0000001], [18]),
        ("f64", "f16", [1.0004882812509095], [1.0]),  # by way of f32, as XLA
        ("f32", "f4e2m1fn", [100, -5.1, nan], [6, -6, -0.0]),
        ("f8e4m3fn", "f8e5m2", [448, 0.0625], [448, 0.0625]),
    ],
)
def test_convert(source: str, target: str, values: list[float], expected: list[float]) -> None:
    result = convert(source, target, array(source, values))
    right = np.array(expected, np.uint64) if target == "u64" else array(target, expected)
    nans = right != right
    assert np.array_equal(result != result, nans)
    assert same_bits(result[~nans], right[~nans]), result


def test_complex_loses_its_imaginary_part() -> None:
    z = np.array([1.5 - 2j, 0 + 1j], np.complex64)
    assert convert("c64", "f32", z).tolist() == [1.5, 0.0]
    assert convert("c64", "c128", z).dtype == np.complex128


def reduce_precision(exponent: int, mantissa: int, values: list[float]) -> list[float]:
    shape = f"f32[{len(values)}]"
    attributes = f"exponent_bits={exponent}, mantissa_bits={mantissa}"
    result: list[float] = compute(one_op(shape, "reduce-precision", [shape], attributes), array("f32", values)).tolist()
    return result


def test_reduce_precision() -> None:
    assert reduce_precision(8, 7, [1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-20]) == [1.0, 1 + 2.0**-7]
    assert reduce_precision(5, 10, [65519.0, 65520.0, -70000.0, 2.0**-14, 2.0**-15]) == [
        65504.0,
        inf,
        -inf,
        2.0**-14,
        0.0,
    ]
    assert np.isnan(reduce_precision(2, 0, [nan])[0])


def bitcast_convert(operand: str, result: str, values: Array) -> Array:
    return compute(one_op(result, "bitcast-convert", [operand]), values)


def test_bitcast_convert() -> None:
    assert bitcast_convert("f32[1]", "u32[1]", array("f32", [1.0])).tolist() == [0x3F800000]
    assert bitcast_convert("u32[1]", "u8[1,4]", np.array([0x04030201], np.uint32)).tolist() == [[1, 2, 3, 4]]
    assert bitcast_convert("u8[1,4]", "u32[1]", np.array([[1, 2, 3, 4]], np.uint8)).tolist() == [0x04030201]
    assert bitcast_convert("u8[2]", "s4[2,2]", np.array([0x21, 0xF8], np.uint8)).astype(int).tolist() == [
        [1, 2],
        [-8, -1],
    ]
    assert bitcast_convert("u4[1,4]", "u16[1]", array("u4", [[4, 3, 2, 1]])).tolist() == [0x1234]
    assert bitcast_convert("s4[2]", "u4[2]", array("s4", [-1, -8])).astype(int).tolist() == [15, 8]
    assert bitcast_convert("c64[1]", "c64[1]", np.array([1j], np.complex64)).tolist() == [1j]
    assert bitcast_convert("f64[]", "u16[4]", np.array(1.0)).tolist() == [0, 0, 0, 0x3FF0]


def test_bitcast_follows_layouts() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert same_bits(compute(one_op("f32[3,2]{1,0}", "bitcast", ["f32[2,3]{0,1}"]), x), np.ascontiguousarray(x.T))
    assert same_bits(compute(one_op("f32[6]{0}", "bitcast", ["f32[2,3]{1,0}"]), x), x.reshape(6))
    assert same_bits(compute(one_op("f32[6]{0}", "bitcast", ["f32[2,3]{0,1}"]), x), x.T.reshape(6).copy())
    assert same_bits(compute(one_op("u32[2,3]{1,0}", "bitcast", ["f32[2,3]{1,0}"]), x), x.view(np.uint32))


def test_bitcast_follows_tiles() -> None:
    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    tiled = compute(one_op("s32[2,2,2,4]{3,2,1,0}", "bitcast", ["s32[4,8]{1,0:T(2,4)}"]), x)
    assert same_bits(tiled, np.ascontiguousarray(x.reshape(2, 2, 2, 4).transpose(0, 2, 1, 3)))
    back = compute(one_op("s32[4,8]{1,0:T(2,4)}", "bitcast", ["s32[2,2,2,4]{3,2,1,0}"]), tiled)
    assert same_bits(back, x)
    padded = compute(one_op("s32[3,1]{1,0:T(4)}", "bitcast", ["s32[3]{0:T(4)}"]), np.arange(3, dtype=np.int32))
    assert padded.shape == (3, 1)
