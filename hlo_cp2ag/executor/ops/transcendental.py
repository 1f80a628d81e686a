"""Transcendental functions: f32 is computed in f64 and rounded, f16 and narrower in f32, f64 by numpy's functions.

All stay within 3 units in the last place of the exact value (tests/executor/test_accuracy.py). Complex numbers: c64 in
c128, by formulas that do not cancel where one function of a real number has a name for it (expm1, log1p).
"""

from __future__ import annotations

import math

import numpy as np

from hlo_cp2ag.executor.ops.elementwise import make_complex, unary
from hlo_cp2ag.executor.values import Array


def _is_complex(x: Array) -> bool:
    return x.dtype.kind == "c"


@unary("exponential", wide=True)
def exponential(x: Array) -> Array:
    """Semantics: XLA operation semantics, Exp."""
    return np.exp(x)


@unary("exponential-minus-one", wide=True)
def exponential_minus_one(x: Array) -> Array:
    """Semantics: XLA operation semantics, Expm1."""
    if _is_complex(x):
        half = np.sin(x.imag / 2)
        real = np.expm1(x.real) * np.cos(x.imag) - 2 * half * half
        imaginary = np.where(x.imag == 0, x.imag, np.exp(x.real) * np.sin(x.imag))
        return make_complex(real, imaginary, x.dtype)
    return np.expm1(x)


@unary("log", wide=True)
def log(x: Array) -> Array:
    """Semantics: XLA operation semantics, Log."""
    return np.log(x)


@unary("log-plus-one", wide=True)
def log_plus_one(x: Array) -> Array:
    """Semantics: XLA operation semantics, Log1p."""
    if _is_complex(x):
        a, b = x.real, x.imag
        small = (np.abs(a) < 0.5) & (np.abs(b) < 0.5)
        near = 0.5 * np.log1p(np.where(small, a * (2 + a) + b * b, 0))
        real = np.where(small, near, np.log(np.hypot(1 + a, b)))
        return make_complex(real, np.arctan2(b, 1 + a), x.dtype)
    return np.log1p(x)


@unary("logistic", wide=True)
def logistic(x: Array) -> Array:
    """Semantics: XLA operation semantics, Logistic: 1 / (1 + exp(-x))."""
    if _is_complex(x):
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


@unary("sqrt")
def sqrt(x: Array) -> Array:
    """Semantics: XLA operation semantics, Sqrt; correctly rounded for real numbers."""
    return np.sqrt(x.astype(np.complex128)) if _is_complex(x) else np.sqrt(x)


@unary("rsqrt", wide=True)
def rsqrt(x: Array) -> Array:
    """Semantics: XLA operation semantics, Rsqrt: 1 / sqrt(x)."""
    if _is_complex(x):
        return _complex_rsqrt(x)
    return 1 / np.sqrt(x)


def _complex_rsqrt(x: Array) -> Array:
    """As XLA: 1 / sqrt(|x|) at half the angle; infinite at 0, 0 at infinity."""
    root = np.sqrt(x)
    result = np.asarray(1 / root)
    zero, infinite = x == 0, np.isinf(x.real) | np.isinf(x.imag)
    result = np.where(zero, make_complex(np.full(x.shape, np.inf), np.full(x.shape, np.nan), x.dtype), result)
    return np.where(infinite & ~np.isnan(x.real) & ~np.isnan(x.imag), 0, result)


@unary("cbrt", wide=True)
def cbrt(x: Array) -> Array:
    """Semantics: XLA operation semantics, Cbrt: the real cube root; of complex numbers the principal one."""
    return np.power(x, 1 / 3) if _is_complex(x) else np.cbrt(x)


@unary("sine", wide=True)
def sine(x: Array) -> Array:
    """Semantics: XLA operation semantics, Sin."""
    return np.sin(x)


@unary("cosine", wide=True)
def cosine(x: Array) -> Array:
    """Semantics: XLA operation semantics, Cos."""
    return np.cos(x)


@unary("tan", wide=True)
def tan(x: Array) -> Array:
    """Semantics: XLA operation semantics, Tan."""
    return np.tan(x)


@unary("tanh", wide=True)
def tanh(x: Array) -> Array:
    """Semantics: XLA operation semantics, Tanh."""
    return np.tanh(x)


@unary("sinh", wide=True)
def sinh(x: Array) -> Array:
    """Semantics: XLA operation semantics, Sinh."""
    return np.sinh(x)


@unary("cosh", wide=True)
def cosh(x: Array) -> Array:
    """Semantics: XLA operation semantics, Cosh."""
    return np.cosh(x)


@unary("asin", wide=True)
def asin(x: Array) -> Array:
    """Semantics: XLA operation semantics, Asin."""
    return np.arcsin(x)


@unary("acos", wide=True)
def acos(x: Array) -> Array:
    """Semantics: XLA operation semantics, Acos."""
    return np.arccos(x)


@unary("asinh", wide=True)
def asinh(x: Array) -> Array:
    """Semantics: XLA operation semantics, Asinh."""
    return np.arcsinh(x)


@unary("acosh", wide=True)
def acosh(x: Array) -> Array:
    """Semantics: XLA operation semantics, Acosh."""
    return np.arccosh(x)


@unary("atanh", wide=True)
def atanh(x: Array) -> Array:
    """Semantics: XLA operation semantics, Atanh."""
    return np.arctanh(x)


_ERF = np.frompyfunc(math.erf, 1, 1)


@unary("erf", wide=True)
def erf(x: Array) -> Array:
    """Semantics: XLA operation semantics, Erf; the C library's function."""
    return np.asarray(_ERF(x.astype(np.float64)), np.float64)
