"""Where XLA's CPU backend and the executor differ, and who is right.

Each case says what is right and why. Where the judge is there, XLA's own answer is held too: when a later XLA agrees,
the case goes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from ..xla.judge import Judge
from .support import Array, array, compute, one_op, same_bits


@dataclass(frozen=True)
class Judged:
    why: str
    text: str
    args: tuple[Array, ...]
    right: Array
    xla: Array


def unary(why: str, op: str, source: str, target: str, x: list[float], right: list[float], xla: list[float]) -> Judged:
    text = one_op(f"{target}[{len(x)}]", op, [f"{source}[{len(x)}]"])
    return Judged(why, text, (array(source, x),), array(target, right), array(target, xla))


def power(element_type: str, a: int, b: int, right: int, xla: int) -> Judged:
    text = one_op(f"{element_type}[1]", "power", [f"{element_type}[1]"] * 2)
    args = (array(element_type, [a]), array(element_type, [b]))
    return Judged("XLA takes the lowest six bits of an exponent alone", text, args, array(element_type, [right]),
                  array(element_type, [xla]))  # fmt: skip


CASES = {
    "integer_power_of_two": power("s32", 2, 64, 0, 1),
    "integer_power": power("u8", 5, 64, pow(5, 64, 256), 1),
    "popcnt_s4": unary("XLA counts the bits of a whole byte", "popcnt", "s4", "s4", [-8, -1], [1, 4], [5, -8]),
    "f4_to_integer": unary(
        "6 is the type's largest number, and XLA takes it for too large", "convert", "f4e2m1fn", "s32", [6, 4, -6],
        [6, 4, -6], [2**31 - 1, 4, -(2**31)],
    ),
    "exponential_denormal": unary(
        "XLA flushes denormals", "exponential", "f32", "f32", [-88.0], [float(np.float32(np.exp(-88.0)))], [0.0]
    ),
    "divide_denormal": Judged(
        "XLA flushes denormals", one_op("f32[1]", "divide", ["f32[1]"] * 2), (array("f32", [1]), array("f32", [1e38])),
        array("f32", [1]) / array("f32", [1e38]), array("f32", [0]),
    ),
    "sqrt_branch_cut": Judged(
        "a negative zero lies below the branch cut (C99 csqrt, StableHLO); XLA looks at the angle of +0 alone",
        one_op("c64[1]", "sqrt", ["c64[1]"]), (np.array([complex(-1.0, -0.0)], np.complex64),),
        np.array([complex(0.0, -1.0)], np.complex64), np.array([complex(0.0, 1.0)], np.complex64),
    ),
    "abs_of_infinite": Judged(
        "an infinite part makes the number infinite, whatever the other part (C99 hypot)",
        one_op("f32[1]", "abs", ["c64[1]"]), (np.array([complex(np.inf, np.nan)], np.complex64),),
        array("f32", [np.inf]), array("f32", [np.nan]),
    ),
    "tanh_f64": unary(
        "XLA's rational function is 7 units off; 3 are allowed here", "tanh", "f64", "f64", [19.255041401827878],
        [1.0], [0.9999999999999992],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_here(name: str) -> None:
    case = CASES[name]
    assert same_bits(compute(case.text, *case.args), case.right), case.why


@pytest.mark.parametrize("name", CASES)
def test_xla(name: str, judge: Judge) -> None:
    case = CASES[name]
    (result,) = judge.run(case.text, 1, 1, [x[np.newaxis] for x in case.args], how="recompile")
    wanted = case.xla
    assert np.array_equal(result[0], wanted, equal_nan=wanted.dtype.kind in "fc"), "XLA has changed its answer"
