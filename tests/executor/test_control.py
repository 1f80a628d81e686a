from __future__ import annotations

import numpy as np
import pytest

from hlo_cp2ag.executor.registry import ExecutionError

from .support import run_text

COUNTDOWN = """HloModule m
body {
  s = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  t = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] subtract(n, one)
  u = s32[] add(t, n)
  ROOT r = (s32[], s32[]) tuple(m, u)
}
cond {
  s = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  z = s32[] constant(0)
  ROOT c = pred[] compare(n, z), direction=GT
}
ENTRY e {
  n = s32[] parameter(0)
  z = s32[] constant(0)
  t = (s32[], s32[]) tuple(n, z)
  w = (s32[], s32[]) while(t), condition=cond, body=body
  ROOT r = s32[] get-tuple-element(w), index=1
}
"""


def test_each_device_leaves_a_loop_by_itself() -> None:
    counts = np.array([0, 3, 1, 10, -2, 4], np.int32)
    (result,) = run_text(COUNTDOWN, counts, partitions=6)
    assert result.tolist() == [0, 6, 1, 55, 0, 10]
    assert run_text(COUNTDOWN, np.int32(4), partitions=6)[0].tolist() == [10] * 6


NESTED = """HloModule m
inner_body {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] subtract(i, one)
  y = s32[] add(x, one)
  ROOT r = (s32[], s32[]) tuple(j, y)
}
inner_cond {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  z = s32[] constant(0)
  ROOT c = pred[] compare(i, z), direction=NE
}
outer_body {
  s = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = s32[] get-tuple-element(s), index=1
  t = (s32[], s32[]) tuple(n, x)
  w = (s32[], s32[]) while(t), condition=inner_cond, body=inner_body
  y = s32[] get-tuple-element(w), index=1
  one = s32[] constant(1)
  m = s32[] subtract(n, one)
  ROOT r = (s32[], s32[]) tuple(m, y)
}
outer_cond {
  s = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  z = s32[] constant(0)
  ROOT c = pred[] compare(n, z), direction=GT
}
ENTRY e {
  n = s32[] parameter(0)
  z = s32[] constant(0)
  t = (s32[], s32[]) tuple(n, z)
  w = (s32[], s32[]) while(t), condition=outer_cond, body=outer_body
  ROOT r = s32[] get-tuple-element(w), index=1
}
"""


def test_an_inner_loop_does_not_run_for_devices_that_left_the_outer_one() -> None:
    """The inner loop counts down to zero exactly: a device that had left with a negative count would never stop."""
    (result,) = run_text(NESTED, np.array([3, 1, 0, 2], np.int32), partitions=4, max_steps=10_000)
    assert result.tolist() == [6, 1, 0, 3]


CONDITIONAL = """HloModule m
a {
  x = f32[2] parameter(0)
  ROOT r = f32[2] add(x, x)
}
b {
  x = f32[2] parameter(0)
  ROOT r = f32[2] negate(x)
}
c {
  x = f32[2] parameter(0)
  ROOT r = f32[2] multiply(x, x)
}
ENTRY e {
  i = s32[] parameter(0)
  x = f32[2] parameter(1)
  ROOT r = f32[2] conditional(i, x, x, x), branch_computations={a, b, c}
}
"""


def test_branches_by_index() -> None:
    x = np.array([3, 4], np.float32)
    right = {0: [6, 8], 1: [-3, -4], 2: [9, 16], 3: [9, 16], -1: [9, 16]}
    for index, expected in right.items():
        assert run_text(CONDITIONAL, np.int32(index), x)[0][0].tolist() == expected
    (result,) = run_text(CONDITIONAL, np.array(list(right), np.int32), x, partitions=5)
    assert result.tolist() == list(right.values())


def test_branches_by_predicate() -> None:
    text = CONDITIONAL.replace("i = s32[]", "i = pred[]").replace(
        "conditional(i, x, x, x), branch_computations={a, b, c}",
        "conditional(i, x, x), true_computation=a, false_computation=b",
    )
    (result,) = run_text(text, np.array([True, False]), np.array([3, 4], np.float32), partitions=2)
    assert result.tolist() == [[6, 8], [-3, -4]]


UNDER_PREDICATE = """HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
yes {{
  x = f32[] parameter(0)
  ROOT r = f32[] {collective}
}}
no {{
  x = f32[] parameter(0)
  ROOT r = f32[] negate(x)
}}
ENTRY e {{
  p = pred[] parameter(0)
  x = f32[] parameter(1)
  ROOT r = f32[] conditional(p, x, x), true_computation=yes, false_computation=no
}}
"""


def test_a_collective_under_a_mask_needs_whole_groups() -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    reduce = "all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add"
    text = UNDER_PREDICATE.format(collective=reduce)
    (result,) = run_text(text, np.array([True, True, False, False]), x, replicas=4)
    assert result.tolist() == [3, 3, -3, -4]
    with pytest.raises(ExecutionError, match=r"devices 0 do, 1 do not") as caught:
        run_text(text, np.array([True, False, False, False]), x, replicas=4)
    assert ":9:" in str(caught.value)


def test_a_permute_under_a_mask_needs_its_whole_axis() -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    permute = "collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}"
    text = UNDER_PREDICATE.format(collective=permute)
    (result,) = run_text(text, np.array([True, True, False, False]), x, replicas=2, partitions=2)
    assert result.tolist() == [2, 1, -3, -4]
    with pytest.raises(ExecutionError, match="only a part of a group"):
        run_text(text, np.array([True, False, False, False]), x, replicas=2, partitions=2)
    # The pairs touch two of four partitions; all four have to be there.
    with pytest.raises(ExecutionError, match="only a part of a group"):
        run_text(text, np.array([True, True, False, False]), x, partitions=4)


def test_calls_fusions_barriers_and_tokens() -> None:
    text = """HloModule m
double {
  x = f32[] parameter(0)
  ROOT r = f32[] add(x, x)
}
ENTRY e {
  x = f32[] parameter(0)
  a = f32[] call(x), to_apply=double
  b = f32[] fusion(a), kind=kLoop, calls=double
  t = (f32[], f32[]) tuple(a, b)
  o = (f32[], f32[]) opt-barrier(t)
  c = f32[] get-tuple-element(o), index=1
  k = token[] after-all()
  ROOT d = f32[] add-dependency(c, k)
}
"""
    assert run_text(text, np.float32(3))[0].tolist() == [12]


def test_computations_written_in_place() -> None:
    text = """HloModule m
ENTRY e {
  i = s32[] parameter(0)
  x = f32[] parameter(1)
  ROOT r = f32[] conditional(i, x, x), branch_computations={ {
    y = f32[] parameter(0)
    ROOT r = f32[] add(y, f32[] multiply(y, f32[] constant(2)))
  }, {
    y = f32[] parameter(0)
    ROOT r = f32[] negate(y)
  } }
}
"""
    assert run_text(text, np.array([0, 1], np.int32), np.float32(2), partitions=2)[0].tolist() == [6, -2]


def test_a_long_chain_needs_no_python_stack() -> None:
    lines = ["  x0 = f32[] parameter(0)"]
    lines += [f"  x{i} = f32[] negate(x{i - 1})" for i in range(1, 20_001)]
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
    assert run_text(text, np.float32(1))[0].tolist() == [1.0]


def test_deep_calls() -> None:
    parts = ["f_0 {\n  x = f32[] parameter(0)\n  ROOT r = f32[] add(x, x)\n}"]
    parts += [
        f"f_{i} {{\n  x = f32[] parameter(0)\n  ROOT r = f32[] call(x), to_apply=f_{i - 1}\n}}" for i in range(1, 1500)
    ]
    text = "HloModule m\n" + "\n".join(parts)
    text += "\nENTRY e {\n  x = f32[] parameter(0)\n  ROOT r = f32[] call(x), to_apply=f_1499\n}\n"
    assert run_text(text, np.float32(1))[0].tolist() == [2.0]
