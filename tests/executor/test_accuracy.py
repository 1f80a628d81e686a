"""Transcendental functions against higher precision: at most 3 units in the last place, in every float type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from .support import Array, array, compute, one_op, ulps

LONG = np.longdouble
needs_long_double = pytest.mark.skipif(np.finfo(LONG).nmant < 63, reason="no type wider than f64 to compare with")

FUNCTIONS: dict[str, tuple[Any, float, float]] = {
    "exponential": (np.exp, -80, 80),
    "exponential-minus-one": (np.expm1, -3, 3),
    "log": (np.log, 1e-6, 1e6),
    "log-plus-one": (np.log1p, -0.99, 10),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)), -60, 60),
    "sqrt": (np.sqrt, 0, 1e6),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-6, 1e6),
    "cbrt": (np.cbrt, -1e6, 1e6),
    "sine": (np.sin, -100, 100),
    "cosine": (np.cos, -100, 100),
    "tan": (np.tan, -100, 100),
    "tanh": (np.tanh, -20, 20),
    "sinh": (np.sinh, -20, 20),
    "cosh": (np.cosh, -20, 20),
    "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1),
    "asinh": (np.arcsinh, -1e3, 1e3),
    "acosh": (np.arccosh, 1, 1e3),
    "atanh": (np.arctanh, -0.999, 0.999),
    "erf": (np.vectorize(math.erf, otypes=[LONG]), -6, 6),  # exact to less than one unit of f64
}
TYPES = (
    *("f64", "f32", "f16", "bf16"),
    *("f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz", "f8e5m2", "f8e5m2fnuz"),
)


def rounded(exact: Array, element_type: str) -> Array:
    return exact.astype(np.float64) if element_type == "f64" else array(element_type, exact.astype(np.float64))


@needs_long_double
@pytest.mark.parametrize("element_type", TYPES)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_unary(op: str, element_type: str) -> None:
    function, low, high = FUNCTIONS[op]
    generator = np.random.default_rng(1)
    x = np.concatenate([generator.uniform(low, high, 3000), generator.standard_normal(1000).clip(low, high)])
    x = x.clip(-200, 200) if element_type == "f8e5m2" else x.clip(-15, 15) if element_type == "f8e3m4" else x
    operand = x if element_type == "f64" else array(element_type, x)
    wide = operand.astype(LONG) if element_type == "f64" else operand.astype(np.float64).astype(LONG)
    with np.errstate(all="ignore"):
        exact = rounded(function(wide), element_type)
    shape = f"{element_type}[{operand.size}]"
    distance = ulps(compute(one_op(shape, op, [shape]), operand), exact, element_type)
    finite = np.isfinite(exact.astype(np.float64))
    assert distance[finite].max() <= 3


@needs_long_double
@pytest.mark.parametrize("element_type", TYPES)
@pytest.mark.parametrize("op", ["power", "atan2"])
def test_binary(op: str, element_type: str) -> None:
    generator = np.random.default_rng(2)
    a = generator.uniform(0.01, 10, 3000) * (1 if op == "power" else generator.choice([-1, 1], 3000))
    b = generator.uniform(-3, 3, 3000)
    a, b = (x if element_type == "f64" else array(element_type, x) for x in (a, b))
    function = np.power if op == "power" else np.arctan2
    exact = rounded(function(a.astype(np.float64).astype(LONG), b.astype(np.float64).astype(LONG)), element_type)
    shape = f"{element_type}[{a.size}]"
    distance = ulps(compute(one_op(shape, op, [shape, shape]), a, b), exact, element_type)
    assert distance[np.isfinite(exact.astype(np.float64))].max() <= 3
