"""Modules that ask for too much or contradict themselves: an error within the bounds, never a traceback."""

from __future__ import annotations

import time

import pytest

from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.text.parser import parse

from .support import one_op

HUGE = 10**15
MODULES = {
    "bits": one_op(f"(u64[2], u8[{HUGE}])", "rng-bit-generator", ["u64[2]"], "algorithm=rng_three_fry"),
    "random numbers": one_op(f"f32[{HUGE}]", "rng", ["f32[]", "f32[]"], "distribution=rng_uniform"),
    "features": one_op(
        f"(f32[{HUGE},2], f32[2], f32[2])", "batch-norm-training", [f"f32[{HUGE},2]", "f32[2]", "f32[2]"],
        "epsilon=0.1, feature_index=1",
    ),
    "groups": one_op(
        "f32[7,5]", "ragged-dot", ["f32[7,4]", f"f32[{HUGE},4,5]", f"s32[{HUGE}]"],
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    ),
    "buffer": one_op(f"f32[{HUGE}]", "custom-call", [], 'custom_call_target="CreateBuffer"'),
    "infeed": "HloModule m\nENTRY e {\n  t = token[] after-all()\n"
    f"  ROOT i = (f32[{HUGE}], token[]) infeed(t)\n}}\n",
    "receive": "HloModule m\nENTRY e {\n  t = token[] after-all()\n"
    f"  r = (f32[{HUGE}], u32[], token[]) recv(t), channel_id=1\n"
    f"  ROOT d = (f32[{HUGE}], token[]) recv-done(r), channel_id=1\n}}\n",
    "bound": f"HloModule m\nENTRY e {{\n  n = s32[] constant(1)\n  c = f32[] constant(1)\n"
    f"  b = f32[{HUGE},2] broadcast(c), dimensions={{}}\n"
    f"  d = f32[<={HUGE},2] set-dimension-size(b, n), dimensions={{0}}\n"
    f"  e = f32[<={HUGE},2] add(d, d)\n  ROOT s = s32[] get-dimension-size(e), dimensions={{0}}\n}}\n",
    "state too short": one_op("(u64[1], u32[4])", "rng-bit-generator", ["u64[1]"], "algorithm=rng_philox"),
    "state of floats": one_op("(f32[4], u32[4])", "rng-bit-generator", ["f32[4]"], "algorithm=rng_default"),
    "bits of pred": one_op("(u64[2], pred[4])", "rng-bit-generator", ["u64[2]"], "algorithm=rng_default"),
    "products of another kind": one_op(
        "s32[7,5]", "ragged-dot", ["f32[7,4]", "f32[3,4,5]", "s32[3]"],
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    ),
    "letters": one_op(
        "f32[2,2]", "custom-call", ["f32[2,2]", "f32[2,2]"],
        'custom_call_target="lapack_strsm_ffi", backend_config={uplo = 999999999999 : ui8}',
    ),
    "missing operand": one_op("f32[2,2]", "custom-call", ["f32[2,2]"], 'custom_call_target="lapack_strsm_ffi"'),
    "wrong results": one_op("(f32[2,3], f32[9])", "custom-call", ["f32[2,3]"], 'custom_call_target="lapack_sgeqrf_ffi"'),
    "pairs": "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  t = token[] after-all()\n"
    '  s = (f32[], u32[], token[]) send(p, t), channel_id=1, '
    'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,999999999999999999999}}"}\n'
    "  ROOT d = token[] send-done(s), channel_id=1\n}\n",
    "recursion": "HloModule m\nf {\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=f\n}\n"
    "ENTRY e {\n  p = f32[] parameter(0)\n  ROOT s = ((f32[]), f32[], u32[]) call-start(p), to_apply=f\n}\n",
    "missing computation": "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n"
    "  ROOT s = ((f32[]), f32[], u32[]) call-start(p), to_apply=nothing\n}\n",
    "skipped parameter": "HloModule m\nENTRY e {\n  p = f32[] parameter(1)\n  ROOT n = f32[] negate(p)\n}\n",
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_hostile(name: str) -> None:
    start = time.monotonic()
    with pytest.raises(HloError):
        run(parse(MODULES[name]), seed=1, max_memory=1 << 28, max_steps=10_000)
    assert time.monotonic() - start < 5


def test_an_endless_loop_of_outfeeds() -> None:
    """What it puts out is bounded by the steps."""
    text = """HloModule m
body {
  t = token[] parameter(0)
  one = f32[] constant(1)
  ROOT o = token[] outfeed(one, t), outfeed_shape=f32[]
}
cond {
  t = token[] parameter(0)
  ROOT c = pred[] constant(true)
}
ENTRY e {
  t = token[] after-all()
  ROOT w = token[] while(t), condition=cond, body=body
}
"""
    with pytest.raises(HloError, match="--max-steps"):
        run(parse(text), max_steps=10_000)
    with pytest.raises(HloError, match="feeds and channels hold more than the 100,000 bytes allowed"):
        run(parse(text), max_memory=100_000)
