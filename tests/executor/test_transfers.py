"""infeed, outfeed, send and recv, and every sugared start, update and done; values by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.ir.source import HloError

from .support import Array, run_text

FEEDS = """HloModule feeds
body {
  s = (s32[], token[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  t = token[] get-tuple-element(s), index=1
  in = ((f32[2], s32[]), token[]) infeed(t)
  data = (f32[2], s32[]) get-tuple-element(in), index=0
  x = f32[2] get-tuple-element(data), index=0
  after = token[] get-tuple-element(in), index=1
  y = f32[2] add(x, x)
  out = token[] outfeed(y, after), outfeed_shape=f32[2]
  one = s32[] constant(1)
  m = s32[] add(n, one)
  ROOT r = (s32[], token[]) tuple(m, out)
}
cond {
  s = (s32[], token[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  two = s32[] constant(2)
  ROOT c = pred[] compare(n, two), direction=LT
}
ENTRY main {
  zero = s32[] constant(0)
  t = token[] after-all()
  s = (s32[], token[]) tuple(zero, t)
  w = (s32[], token[]) while(s), condition=cond, body=body
  ROOT done = s32[] constant(7)
}
"""


def test_feeds_in_a_loop_that_nobody_needs() -> None:
    """Two infeeds of two leaves each; what is put out does not hang on the root."""
    fed = [np.array([1, 2], np.float32), np.int32(0), np.array([[3, 4], [5, 6]], np.float32), np.int32(0)]
    out: list[Array] = []
    assert run_text(FEEDS, partitions=2, infeed=fed, outfeed=out)[0].tolist() == [7, 7]
    assert [x.tolist() for x in out] == [[[2, 4], [2, 4]], [[6, 8], [10, 12]]]


def test_infeed_errors() -> None:
    with pytest.raises(ExecutionError, match="no array is left in the infeed: it has 1"):
        run_text(FEEDS, infeed=[np.array([1, 2], np.float32)])
    with pytest.raises(ExecutionError, match="input f0 has the dimensions"):
        run_text(FEEDS, infeed=[np.array([1], np.float32)])


SEND = """HloModule channels
ENTRY main {{
  p = f32[2] parameter(0)
  t = token[] after-all()
  r = (f32[2], u32[], token[]) recv(t), channel_id=3{0}
  s = (f32[2], u32[], token[]) send(p, t), channel_id=3{0}
  sd = token[] send-done(s), channel_id=3
  rd = (f32[2], token[]) recv-done(r), channel_id=3
  ROOT x = f32[2] get-tuple-element(rd), index=0
}}
"""
PAIRS = ', frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}'


def test_send_and_recv() -> None:
    p = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert run_text(SEND.format(PAIRS), p, partitions=3)[0].tolist() == [[0, 0], [0, 1], [2, 3]]
    assert run_text(SEND.format(PAIRS), p, replicas=3)[0].tolist() == [[0, 0], [0, 1], [2, 3]]
    assert np.array_equal(run_text(SEND.format(""), p, partitions=3)[0], p)


def test_send_and_recv_errors() -> None:
    p = np.zeros(2, np.float32)
    with pytest.raises(HloError, match="names an id that is not among the 2"):
        run_text(SEND.format(PAIRS), p, partitions=2)
    with pytest.raises(HloError, match="a transfer to or from the host"):
        run_text(SEND.format(", is_host_transfer=true"), p)
    lines = SEND.format("").splitlines()
    lines[5:8] = [lines[7], *lines[5:7]]
    with pytest.raises(ExecutionError, match="nothing has been sent on channel 3 at this point"):
        run_text("\n".join(lines), p)


WRAPPED = """HloModule wrapped
double {{
  a = f32[2] parameter(0)
  ROOT b = f32[2] add(a, a)
}}
ENTRY main {{
  p = f32[2] parameter(0)
  s = ((f32[2]{more}), {result}, u32[]) {op}-start(p{other}){attributes}
  u = ((f32[2]{more}), {result}, u32[]) {op}-update(s)
  ROOT d = {result} {op}-done(u)
}}
"""


@pytest.mark.parametrize(
    ("op", "attributes", "operands", "expected"),
    [
        ("call", ", to_apply=double", 1, [2, 6]),
        ("fusion", ", kind=kLoop, calls=double", 1, [2, 6]),
        ("async", ", calls=double", 1, [2, 6]),
        ("negate", "", 1, [-1, -3]),
        ("add", "", 2, [2, 6]),
        ("slice", ", slice={[1:2]}", 1, [3]),
        ("dot", ", lhs_contracting_dims={0}, rhs_contracting_dims={0}", 2, 10),
        ("custom-call", ', custom_call_target="Sharding"', 1, [1, 3]),
    ],
)
def test_sugared_pairs(op: str, attributes: str, operands: int, expected: object) -> None:
    result = f"f32{list(np.shape(expected))}".replace(" ", "")
    more, other = (", f32[2]", ", p") if operands == 2 else ("", "")
    text = WRAPPED.format(op=op, attributes=attributes, result=result, more=more, other=other)
    assert run_text(text, np.array([1, 3], np.float32))[0][0].tolist() == expected


def test_composite_call_and_domain() -> None:
    text = """HloModule m
double {
  a = f32[2] parameter(0)
  ROOT b = f32[2] add(a, a)
}
ENTRY main {
  p = f32[2] parameter(0)
  d = f32[2] domain(p), domain={kind="sharding", entry={replicated}, exit={maximal device=0}}
  ROOT c = f32[2] call(d), to_apply=double, is_composite=true, frontend_attributes={composite.name="foo.bar"}
}
"""
    assert run_text(text, np.array([1, 3], np.float32))[0].tolist() == [[2, 6]]
