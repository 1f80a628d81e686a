"""Random bits, batch norms and stochastic conversions, run here and on XLA's CPU backend.

Bits have to agree; XLA gives them in an unsigned type of the same width whatever the text states. Batch norms lose
digits where features cancel: they are held within a part of the largest number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.shape import element_bits

from ..xla.judge import Judge
from .support import Array, array, compute, one_op, run_text, shape_text
from .test_corpus import difference
from .test_differential import Case, Draw, hold_against_xla, hold_often, one_of

STATES = {"rng_three_fry": (2,), "rng_philox": (2, 3), "rng_default": (2, 3)}


def bits(draw: Draw) -> Case:
    t = one_of(draw, "u32", "u64", "u16", "u8", "u4", "s32", "s16", "f32", "f64", "bf16")
    algorithm = one_of(draw, *STATES)
    words = one_of(draw, *STATES[algorithm])
    dimensions = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
    text = one_op(f"(u64[{words}], {shape_text(t, dimensions)})", "rng-bit-generator", [f"u64[{words}]"],
                  f"algorithm={algorithm}")  # fmt: skip
    state = np.random.default_rng(draw(st.integers(0, 2**31))).integers(0, 1 << 64, words, dtype=np.uint64)
    state[1:] = np.where(draw(st.booleans()), np.uint64(2**64 - 1), state[1:])  # a counter that overflows
    return Case(text, [state], t)


def hold_bits(judge: Judge, case: Case) -> None:
    theirs = judge.run(case.text, 1, 1, [case.args[0][np.newaxis]], how="recompile")
    ours = run_text(case.text, *case.args)
    assert np.array_equal(ours[0], theirs[0])
    mask = (1 << min(8, element_bits(case.result))) - 1
    a, b = (np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8) & mask for x in (ours[1], theirs[1]))
    assert np.array_equal(a, b), f"{ours[1]} is not XLA's {theirs[1]}\n{case.text}\n{case.args}"


def batch_norm(draw: Draw) -> Case:
    t = one_of(draw, "f32", "f64", "bf16", "f16")
    dimensions = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    feature = draw(st.integers(0, len(dimensions) - 1))
    vector = shape_text(t, (dimensions[feature],))
    whole = shape_text(t, dimensions)
    opcode = one_of(draw, "batch-norm-training", "batch-norm-inference", "batch-norm-grad")
    operands = {
        "batch-norm-training": [whole, vector, vector],
        "batch-norm-inference": [whole, *[vector] * 4],
        "batch-norm-grad": [whole, vector, vector, vector, whole],
    }[opcode]
    result = whole if opcode.endswith("inference") else f"({whole}, {vector}, {vector})"
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    args = [
        array(t, generator.standard_normal(dimensions if s == whole else dimensions[feature : feature + 1]))
        for s in operands
    ]
    if len(args) > 3:  # a variance is not negative
        place = 4 if opcode.endswith("inference") else 3
        args[place] = array(t, generator.uniform(0.5, 2, args[place].shape))
    text = one_op(result, opcode, operands, f"epsilon=0.001, feature_index={feature}")
    return Case(text, args, t)


def hold_batch_norm(judge: Judge, case: Case) -> None:
    theirs = judge.run(case.text, 1, 1, [a[np.newaxis] for a in case.args], how="recompile")
    for a, b in zip(run_text(case.text, *case.args), theirs, strict=True):
        largest = max(1.0, *(float(np.abs(x.astype(np.float64)).max(initial=0)) for x in case.args))
        scale = array(case.result, [largest * 8])
        with_scale = [np.concatenate([np.ascontiguousarray(x).ravel(), scale]) for x in (a, b)]
        assert difference(with_scale[0], with_scale[1], case.result) <= 24, f"{a} is not XLA's {b}\n{case.text}"


def stochastic_convert(draw: Draw) -> Case:
    t = one_of(draw, "f32", "f64", "bf16", "f16")
    target = one_of(draw, "s8", "s16", "s32", "s64", "s4")
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    special = [0, 0.5, -0.5, 127, -128, 1e5, -1e5, np.inf, -np.inf, -127.5, 32767, 1e-3]
    values = np.concatenate([array(t, generator.standard_normal(20) * 20), array(t, special)])
    width = element_bits(t)
    noise = generator.integers(0, 1 << width, values.size, dtype=np.uint64).astype(dtype_of(f"u{width}"))
    operands = [shape_text(t, values.shape), shape_text(f"u{width}", values.shape)]
    return Case(one_op(shape_text(target, values.shape), "stochastic-convert", operands), [values, noise], target)


CASES: dict[str, Any] = {
    "rng-bit-generator": (bits, hold_bits),
    "batch-norm": (batch_norm, hold_batch_norm),
    "stochastic-convert": (stochastic_convert, hold_against_xla),
}


@pytest.mark.parametrize("name", CASES)
def test_random_op_agrees_with_xla(judge: Judge, name: str) -> None:
    maker, hold = CASES[name]
    hold_often(judge, maker, hold, 16, fixed=True)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_random_op_agrees_with_xla_often(judge: Judge, name: str) -> None:
    maker, hold = CASES[name]
    hold_often(judge, maker, hold, 150, fixed=False)


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_three_fry_known_answers() -> None:
    """Random123's known answers for threefry2x32 with 20 rounds: key and counter 0, and all ones."""
    text = one_op("(u64[2], u32[2])", "rng-bit-generator", ["u64[2]"], "algorithm=rng_three_fry")
    state, words = run_text(text, np.zeros(2, np.uint64))
    assert words[0].tolist() == [0x6B200159, 0x99BA4EFE] and state[0].tolist() == [0, 1]
    ones = np.full(2, 2**64 - 1, np.uint64)
    state, words = run_text(text, ones)
    assert words[0].tolist() == [0x1CB996FC, 0xBB002BE7] and state[0].tolist() == [2**64 - 1, 0]


def test_philox_known_answers() -> None:
    """Random123's known answer for philox4x32 with 10 rounds, key and counter 0."""
    text = one_op("(u64[3], u32[4])", "rng-bit-generator", ["u64[3]"], "algorithm=rng_philox")
    state, words = run_text(text, np.zeros(3, np.uint64))
    assert words[0].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8] and state[0].tolist() == [0, 1, 0]


def rng_text(t: str, distribution: str, size: int = 4000) -> str:
    return one_op(f"{t}[{size}]", "rng", [f"{t}[]", f"{t}[]"], f"distribution={distribution}")


@pytest.mark.parametrize("t", ["f32", "f64", "bf16", "s32", "u8", "s64"])
def test_rng_uniform(t: str) -> None:
    found = compute(rng_text(t, "rng_uniform"), array(t, 3), array(t, 7)).astype(np.float64)
    assert found.min() >= 3 and found.max() < 7
    integral = t[0] in "su"
    assert abs(found.mean() - (4.5 if integral else 5)) < 0.1
    assert not integral or set(found) == {3, 4, 5, 6}


def test_rng_normal_follows_the_seed() -> None:
    first, again, other = (
        run_text(rng_text("f32", "rng_normal"), np.float32(2), np.float32(3), partitions=2, seed=seed)[0]
        for seed in (0, 0, 1)
    )
    assert abs(first.mean() - 2) < 0.2 and abs(first.std() - 3) < 0.2
    assert np.array_equal(first, again) and not np.array_equal(first, other) and not np.array_equal(first[0], first[1])


def test_rng_state_counts() -> None:
    """XLA's CPU backend, jaxlib 0.10.2: 0x7012395 at first, and each instruction has a counter of its own."""
    text = """HloModule m
ENTRY e {
  a = u64[2] rng-get-and-update-state(), delta=3
  b = u64[2] rng-get-and-update-state(), delta=5
  ROOT t = (u64[2], u64[2]) tuple(a, b)
}
"""
    a, b = run_text(text)
    expected: Array = np.array([[0x7012395, 0]], np.uint64)
    assert np.array_equal(a, expected) and np.array_equal(b, expected)
