"""What one device computes does not depend on how many there are, nor on which operands they share: bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import test_differential_arrays as arrays
from . import test_differential_products as products
from .support import Array, run_text, same_bits

DEVICES = 3
CASES = {**arrays.CASES, **products.CASES}


@pytest.mark.parametrize("name", CASES)
def test_each_device_computes_as_if_alone(name: str) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        case = CASES[name](data.draw)
        generator = np.random.default_rng(data.draw(st.integers(0, 2**31)))
        together: list[Array] = []
        alone: list[list[Array]] = [[] for _ in range(DEVICES)]
        for arg in case.args:
            flat = arg.reshape(-1)
            if data.draw(st.booleans()):  # the same on all devices
                each = [arg] * DEVICES
                together.append(arg)
            else:
                each = [flat[generator.permutation(flat.size)].reshape(arg.shape) for _ in range(DEVICES)]
                together.append(np.stack(each))
            for device, own in enumerate(each):
                alone[device].append(own)
        found = run_text(case.text, *together, replicas=DEVICES)
        for device in range(DEVICES):
            for all_devices, one in zip(found, run_text(case.text, *alone[device]), strict=True):
                assert same_bits(np.ascontiguousarray(all_devices[device]), np.ascontiguousarray(one[0])), case.text

    check()
