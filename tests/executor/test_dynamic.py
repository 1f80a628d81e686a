"""Bounded dynamic dimensions: sizes that are set, asked for, carried along and folded; values from XLA and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.ir.source import HloError

from ..xla.judge import Judge
from .support import Array, run_text

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def module(*lines: str, computations: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"HloModule m\n{computations}ENTRY main {{\n  p = f32[4,3] parameter(0)\n  n = s32[] parameter(1)\n{body}\n}}\n"
    )


SET = "d = f32[<=4,3] set-dimension-size(p, n), dimensions={0}"
P = np.arange(1, 13, dtype=np.float32).reshape(4, 3)

PROGRAMS = {
    "size": module(SET, "ROOT s = s32[] get-dimension-size(d), dimensions={0}"),
    "size of an elementwise op": module(
        SET, "e = f32[<=4,3] multiply(d, d)", "t = f32[3,<=4] transpose(e), dimensions={1,0}",
        "ROOT s = s32[] get-dimension-size(t), dimensions={1}",
    ),
    "sum": module(
        SET, "z = f32[] constant(0)", "ROOT r = f32[] reduce(d, z), dimensions={0,1}, to_apply=add", computations=ADD
    ),
    "sum of one dimension": module(
        SET, "z = f32[] constant(0)", "ROOT r = f32[3] reduce(d, z), dimensions={0}, to_apply=add", computations=ADD
    ),
    "dot": module(SET, "ROOT r = f32[3,3] dot(d, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    "dot with a full one": module(SET, "ROOT r = f32[3,3] dot(d, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
}  # fmt: skip
EXPECTED = {
    "size": 2,
    "size of an elementwise op": 2,
    "sum": 21,
    "sum of one dimension": [5, 7, 9],
    "dot": P[:2].T @ P[:2],
    "dot with a full one": P[:2].T @ P[:2],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_first_two_rows(name: str) -> None:
    assert np.array_equal(run_text(PROGRAMS[name], P, np.int32(2))[0][0], np.asarray(EXPECTED[name]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_xla(judge: Judge, name: str) -> None:
    for size in (0, 1, 3, 4):
        args = [P, np.int32(size)]
        (theirs,) = judge.run(PROGRAMS[name], 1, 1, [np.asarray(a)[np.newaxis] for a in args], how="recompile")
        assert np.array_equal(run_text(PROGRAMS[name], *args)[0], theirs), size


def test_sizes_differ_between_devices() -> None:
    sizes = np.array([1, 4, 0], np.int32)
    found = run_text(PROGRAMS["sum"], P, sizes, partitions=3)[0]
    assert found.tolist() == [6, 78, 0]


def test_result_has_its_bound() -> None:
    """What is behind the elements is zero, whatever was there."""
    text = module(SET.replace("d =", "ROOT d ="))
    assert run_text(text, P, np.int32(1))[0][0].tolist() == [[1, 2, 3], [0, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_branches_with_other_sizes() -> None:
    text = """HloModule m
two { p = f32[4] parameter(0)
  n = s32[] constant(2)
  ROOT d = f32[<=4] set-dimension-size(p, n), dimensions={0} }
all { ROOT p = f32[4] parameter(0) }
ENTRY main {
  p = f32[4] parameter(0)
  c = pred[] parameter(1)
  d = f32[<=4] conditional(c, p, p), true_computation=two, false_computation=all
  ROOT s = s32[] get-dimension-size(d), dimensions={0}
}
"""
    assert run_text(text, np.ones(4, np.float32), np.array([True, False]), partitions=2)[0].tolist() == [2, 4]


RESHAPE = """HloModule m
ENTRY main {
  p = f32[6] parameter(0)
  n = s32[] parameter(1)
  a = s32[] parameter(2)
  b = s32[] parameter(3)
  d = f32[<=6] set-dimension-size(p, n), dimensions={0}
  r = f32[<=3,<=2] dynamic-reshape(d, a, b)
  ROOT s = (f32[3,2], s32[], s32[]) custom-call(r), custom_call_target="PadToStatic"
}
"""


def reshape(n: int, a: int, b: int) -> list[Array]:
    return run_text(RESHAPE, np.arange(1, 7, dtype=np.float32), *(np.int32(x) for x in (n, a, b)))


def test_dynamic_reshape() -> None:
    data, a, b = reshape(4, 2, 2)
    assert data[0].tolist() == [[1, 2], [3, 4], [0, 0]] and (a[0], b[0]) == (2, 2)
    assert reshape(3, 3, 1)[0][0].tolist() == [[1, 0], [2, 0], [3, 0]]
    for wrong in ((4, 2, 3), (6, 1, 6), (5, 2, 2)):
        with pytest.raises(ExecutionError, match="the sizes are not those of"):
            reshape(*wrong)


def test_errors() -> None:
    for size in (-1, 5):
        with pytest.raises(ExecutionError, match=f"a size of {size} for a dimension with room for 4"):
            run_text(PROGRAMS["size"], P, np.int32(size))
    with pytest.raises(ExecutionError, match="does not support reverse along a dimension of dynamic size"):
        run_text(module(SET, "ROOT r = f32[<=4,3] reverse(d), dimensions={0}"), P, np.int32(1))
    with pytest.raises(HloError, match=r"dynamic dimensions without a bound: f32\[\?,3\]"):
        run_text(module("ROOT r = f32[?,3] copy(p)"), P, np.int32(1))
