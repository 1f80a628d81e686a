"""`run`: inputs, limits, traces, and what is refused before anything runs."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from hlo_cp2ag.executor.inputs import input_shapes, output_shapes, pack, random_inputs, unpack
from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text.parser import parse

from .support import array, one_op, run_text, same_bits
from .test_control import COUNTDOWN

ADD = one_op("f32[2]", "add", ["f32[2]", "f32[2]"])
X = np.array([[1, 2], [3, 4]], np.float32)


def test_inputs_by_order_and_by_name() -> None:
    module = parse(ADD)
    assert run(module, [X, X], 2)[0].tolist() == [[2, 4], [6, 8]]
    assert run(module, {"p1": X, "p0": X[0]}, 2)[0].tolist() == [[2, 4], [4, 6]]
    assert run(module, [X[:1], X[0]], 1)[0].tolist() == [[2, 4]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([X], "takes 2 inputs, 1 are given"),
        ({"p0": X}, "no input p1"),
        ({"p0": X, "p1": X, "p2": X}, "p2 that no parameter takes"),
        ([X, X.astype(np.float64)], "input p1 has elements of float64"),
        ([X, X[:, :1]], r"input p1 has the dimensions \[2, 1\]"),
    ],
)
def test_inputs_that_do_not_fit(inputs: Any, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        run(parse(ADD), inputs, 2)


def test_random_inputs_are_seeded_and_typed() -> None:
    text = """HloModule m
ENTRY e {
  p = (f32[1000], (s8[1000], pred[1000])) parameter(0)
  k = token[] parameter(2)
  q = u4[1000] parameter(1)
  ROOT r = f32[1000] get-tuple-element(p), index=0
}
"""
    module = parse(text)
    floats, integers, preds, narrow = random_inputs(module, 3, seed=7)
    assert [s.to_text(False) for s in input_shapes(module)] == ["f32[1000]", "s8[1000]", "pred[1000]", "u4[1000]"]
    assert floats.shape == (3, 1000) and abs(float(floats.mean())) < 0.1 and abs(float(floats.std()) - 1) < 0.1
    assert integers.min() == -9 and integers.max() == 9 and preds.dtype == np.bool_
    assert narrow.astype(int).min() == 0 and narrow.astype(int).max() == 9
    again = random_inputs(module, 3, seed=7)
    assert all(same_bits(a, b) for a, b in zip(again, [floats, integers, preds, narrow], strict=True))
    assert same_bits(run(module, None, 3, seed=7)[0], floats)
    assert not same_bits(run(module, None, 3, seed=8)[0], floats)


@pytest.mark.parametrize("element_type", ["bf16", "f8e4m3fn", "s4", "u2", "f4e2m1fn", "f32", "pred", "c64"])
def test_npz_holds_every_type(element_type: str) -> None:
    x = random_inputs(parse(one_op(f"{element_type}[5]", "copy", [f"{element_type}[5]"])), 2)[0]
    file = io.BytesIO()
    np.savez(file, p0=pack(x, element_type))
    file.seek(0)
    with np.load(file) as loaded:
        packed = loaded["p0"]
    assert packed.dtype.kind in "biufc" and packed.dtype.itemsize == x.dtype.itemsize
    assert same_bits(unpack(packed, element_type), x)
    module = parse(one_op(f"{element_type}[5]", "copy", [f"{element_type}[5]"]))
    assert same_bits(np.ascontiguousarray(run(module, [packed], 2)[0]), x)
    assert output_shapes(module)[0].to_text(False) == f"{element_type}[5]"


def test_equal_inputs_are_kept_once_and_nans_too() -> None:
    x = np.full((64, 2), np.nan, np.float32)
    (result,) = run(parse(one_op("f32[2]", "negate", ["f32[2]"])), [x], 64)
    assert result.shape == (64, 2) and result.strides[0] == 0


# ---- refused before anything runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            'ENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] custom-call(p), custom_call_target="x"\n}',
            3,
            "custom-call",
        ),
        ("ENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[3] add(p, p)\n}", 3, "f32\\[3\\]"),
        ("ENTRY e {\n  p = f32[2] parameter(0)\n  q = f32[3] parameter(1)\n  ROOT r = f32[2] add(p, q)\n}", 4, "add"),
        ("ENTRY e {\n  p = f32[6] parameter(0)\n  ROOT r = f32[7] reshape(p)\n}", 3, "elements"),
        ("ENTRY e {\n  p = f32[6] parameter(0)\n  ROOT r = f32[6] call(p), to_apply=nobody\n}", 3, "nobody"),
        ("ENTRY e {\n  p = f32[6] parameter(1)\n  ROOT r = f32[6] negate(p)\n}", 2, "parameter"),
        ("ENTRY e {\n  p = f32[6] parameter(0)\n  ROOT r = f32[6] negate(q)\n}", 3, "q"),
        (
            "ENTRY e {\n  p = f32[6] parameter(0)\n  c = f32[6] constant({...})\n  ROOT r = f32[6] add(p, c)\n}",
            3,
            "elided",
        ),
        ("ENTRY e {\n  p = f32[?] parameter(0)\n  ROOT r = f32[?] negate(p)\n}", 2, "dynamic"),
        ("ENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = s32[2] add(p, p)\n}", 3, "add"),
        ("ENTRY e {\n  p = f32[2] parameter(0)\n  d = f32[2] infeed(p)\n  ROOT r = f32[2] add(p, p)\n}", 3, "infeed"),
    ],
)
def test_modules_that_cannot_run(text: str, line: int, message: str) -> None:
    with pytest.raises(HloSyntaxError, match=message) as caught:
        run(parse("HloModule m\n" + text))
    assert caught.value.line == line + 1


def test_a_computation_that_calls_itself() -> None:
    text = """HloModule m
a {
  x = f32[] parameter(0)
  ROOT r = f32[] call(x), to_apply=a
}
ENTRY e {
  x = f32[] parameter(0)
  ROOT r = f32[] call(x), to_apply=a
}
"""
    with pytest.raises(HloSyntaxError, match=r"calls itself|undefined|there is no"):
        run(parse(text))


def test_shapes_left_out_are_inferred() -> None:
    text = """HloModule m
ENTRY e {
  p = f32[2,3] parameter(0)
  q = add(p, p)
  t = transpose(q), dimensions={1,0}
  c = concatenate(t, t), dimensions={1}
  ROOT r = tuple(c, q)
}
"""
    first, second = run_text(text, np.ones((2, 3), np.float32))
    assert first.shape == (1, 3, 4) and second.shape == (1, 2, 3)


def test_one_bare_instruction() -> None:
    assert run_text("f32[2] add(f32[2] x, f32[2] y)", X[0], X[1])[0].tolist() == [[4, 6]]


# ---- limits and traces -----------------------------------------------------------------------------------------------


def test_elided_constants_can_be_filled() -> None:
    text = """HloModule m
ENTRY e {
  p = f32[20] parameter(0)
  c = f32[20] constant({...})
  ROOT r = f32[20] add(p, c)
}
"""
    zeros = np.zeros(20, np.float32)
    first, again, other = (run_text(text, zeros, fill_elided="random", seed=s)[0] for s in (1, 1, 2))
    assert same_bits(first, again) and not same_bits(first, other) and first.std() > 0


def test_memory_is_estimated_before_it_is_taken() -> None:
    text = one_op("f32[1000000,1000000]", "broadcast", ["f32[]"], "dimensions={}")
    text = text.replace("ROOT r", "b").replace("}\n\n", "").rstrip().rstrip("}")
    text += "  ROOT r = f32[1000000,1000000] negate(b)\n}\n"
    with pytest.raises(ExecutionError, match="memory"):
        run_text(text, np.float32(1))
    small = one_op("f32[1000]", "negate", ["f32[1000]"])
    with pytest.raises(ExecutionError, match="memory"):
        run_text(small, np.zeros(1000, np.float32), max_memory=5000)
    run_text(small, np.zeros(1000, np.float32), max_memory=20_000)
    # 64 devices that differ take 64 times as much.
    with pytest.raises(ExecutionError, match="memory"):
        run_text(
            small, np.random.default_rng(0).random((64, 1000)).astype(np.float32), partitions=64, max_memory=20_000
        )


def test_the_estimate_does_not_grow_with_the_length_of_a_chain() -> None:
    lines = ["  x0 = f32[1000] parameter(0)"]
    for i in range(1, 600):
        op = ("negate(x{})", "reverse(x{}), dimensions={{0}}", "add(x{0}, x{0})")[i % 3].format(i - 1)
        lines.append(f"  x{i} = f32[1000] {op}")
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
    run_text(text, np.zeros(1000, np.float32), max_memory=40_000)


def test_steps_are_bounded() -> None:
    run_text(COUNTDOWN, np.int32(100), max_steps=2000)
    with pytest.raises(ExecutionError, match="more than 2000 instructions"):
        run_text(COUNTDOWN, np.int32(1_000_000), max_steps=2000)
    seen: list[int] = []
    run_text(COUNTDOWN, np.int32(5), progress=seen.append)
    assert seen == sorted(seen) and len(seen) > 5


def test_traces_show_every_iteration() -> None:
    seen: list[tuple[str, list[int]]] = []

    def callback(instruction: Instruction, value: Any, active: Any) -> None:
        assert active is None
        seen.append((instruction.name, value.tolist()))

    run_text(COUNTDOWN, np.int32(3), trace=("^[mu]$", callback))
    assert seen == [("m", [2]), ("u", [3]), ("m", [1]), ("u", [5]), ("m", [0]), ("u", [6])]
    seen.clear()
    run_text(COUNTDOWN, np.int32(0), trace=("^n$", callback))
    assert ("n", [0]) in seen


def test_bad_grids_and_profiles() -> None:
    with pytest.raises(ExecutionError, match="no devices"):
        run(parse(ADD), [X[0], X[0]], 0)
    with pytest.raises(ExecutionError, match="profile"):
        run(parse(ADD), [X[0], X[0]], profile="tpu")  # type: ignore[arg-type]


def test_nothing_is_changed_in_place() -> None:
    x = np.zeros(4, np.int32)
    text = """HloModule m
ENTRY e {
  p = s32[4] parameter(0)
  i = s32[] parameter(1)
  u = s32[1] constant({9})
  d = s32[4] dynamic-update-slice(p, u, i)
  ROOT r = (s32[4], s32[4]) tuple(p, d)
}
"""
    before, after = run_text(text, x, np.int32(2))
    assert before.tolist() == [[0, 0, 0, 0]] and after.tolist() == [[0, 0, 9, 0]] and x.tolist() == [0, 0, 0, 0]


def test_ops_of_all_element_types_keep_them() -> None:
    for element_type in ("bf16", "s4", "f8e5m2", "pred", "c128"):
        x = array(element_type, [1, 0])
        shape = f"{element_type}[2]"
        for op in ("copy", "reshape"):
            assert same_bits(run_text(one_op(shape, op, [shape]), x)[0][0], x)
