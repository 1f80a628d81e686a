"""Every op on many devices at once gives what it gives on each device by itself, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo_cp2ag.ir.element_types import dtype_of

from .support import Array, run_text, same_bits
from .test_differential import CASES

DEVICES = 3
ALONE = [name for name in CASES if name != "collective"]


def on_device(x: Array, device: int, shared: bool) -> Array:
    """Another argument of the same type and dimensions for each device."""
    if shared or not device:
        return x
    if x.ndim:
        return np.roll(x, device)
    return (x + x.dtype.type(device)) if x.dtype.kind in "iu" and x.dtype.itemsize > 1 else x


def as_bits(x: Array) -> Array:
    return np.ascontiguousarray(x)


@pytest.mark.parametrize("name", ALONE)
def test_lanes_do_not_touch_each_other(name: str) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        case = CASES[name](data.draw)
        shared = data.draw(st.lists(st.booleans(), min_size=len(case.args), max_size=len(case.args)))
        args = [[on_device(x, d, s) for x, s in zip(case.args, shared, strict=True)] for d in range(DEVICES)]
        stacked = [x if s else np.stack([args[d][i] for d in range(DEVICES)])
                   for i, (x, s) in enumerate(zip(case.args, shared, strict=True))]  # fmt: skip
        together = run_text(case.text, *stacked, partitions=DEVICES)[0]
        for device in range(DEVICES):
            alone = run_text(case.text, *args[device])[0][0]
            assert same_bits(as_bits(together[device]), as_bits(alone)), case.text

    check()


def test_dtype_of_is_what_results_have() -> None:
    x = np.zeros((DEVICES, 2), dtype_of("bf16"))
    text = "HloModule m\nENTRY e {\n  p = bf16[2] parameter(0)\n  ROOT r = bf16[2] cosine(p)\n}\n"
    assert run_text(text, x, partitions=DEVICES)[0].dtype == dtype_of("bf16")
