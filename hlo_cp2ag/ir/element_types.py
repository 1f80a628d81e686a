"""Element types as numbers: how numpy stores them, and which numbers they take.

Storage: `pred` is numpy's bool; s8 to s64, u8 to u64, f16, f32, f64, c64 and c128 are numpy's own; bf16, the f8, f6
and f4 types, s1 to s4 and u1 to u4 are ml_dtypes', one byte an element (bf16: two). Tokens and opaque values have none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

NUMPY_NAMES: dict[str, str] = {
    "pred": "bool",
    **{f"s{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
"""Element types that numpy has."""

ML_DTYPES_NAMES: dict[str, str] = {
    **{f"s{bits}": f"int{bits}" for bits in (1, 2, 4)},
    **{f"u{bits}": f"uint{bits}" for bits in (1, 2, 4)},
    "bf16": "bfloat16",
    "f4e2m1fn": "float4_e2m1fn",
    **{f"f6{kind}": f"float6_{kind}" for kind in ("e2m3fn", "e3m2fn")},
    **{
        f"f8{kind}": f"float8_{kind}"
        for kind in ("e3m4", "e4m3", "e4m3fn", "e4m3b11fnuz", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    },
}
"""Element types that ml_dtypes adds."""


@lru_cache(maxsize=64)
def dtype_of(element_type: str) -> np.dtype[Any]:
    """The numpy dtype that holds an element type. Imports numpy; raises ValueError for tokens and opaque values."""
    import numpy as np

    if element_type in NUMPY_NAMES:
        return np.dtype(NUMPY_NAMES[element_type])
    if element_type in ML_DTYPES_NAMES:
        import ml_dtypes

        name = ML_DTYPES_NAMES[element_type]
        scalar = getattr(ml_dtypes, name, None)
        # Before version 0.6 ml_dtypes has no one-bit integers; a byte holds them as well.
        return np.dtype(scalar if scalar is not None else {"int1": np.int8, "uint1": np.uint8}[name])
    raise ValueError(f"{element_type} has no elements")


class FloatFormat(NamedTuple):
    """What reading and printing a floating-point type needs to know."""

    limit: float
    """The least double that is too large for the type; infinity where none is."""
    payload_bits: int
    """Bits of a NaN's payload, the quiet bit among them; 0 if a NaN has none."""
    digits: int
    """Decimal digits that tell any two values apart."""


FLOAT_FORMATS: dict[str, FloatFormat] = {
    # f16 and bf16 are rounded twice, first to f32, as XLA does; the limits say what then becomes infinite.
    "f64": FloatFormat(float("inf"), 52, 17),
    "f32": FloatFormat(float.fromhex("0x1.ffffffp+127"), 23, 9),
    "f16": FloatFormat(float.fromhex("0x1.ffdfffp+15"), 10, 5),
    "bf16": FloatFormat(float.fromhex("0x1.feffffp+127"), 7, 4),
    "f8e5m2": FloatFormat(61440.0, 2, 2),
    "f8e4m3": FloatFormat(248.0, 3, 3),
    "f8e4m3fn": FloatFormat(float.fromhex("0x1.d000000000001p+8"), 0, 3),
    "f8e3m4": FloatFormat(15.75, 4, 3),
    "f8e4m3b11fnuz": FloatFormat(31.0, 0, 3),
    "f8e4m3fnuz": FloatFormat(248.0, 0, 3),
    "f8e5m2fnuz": FloatFormat(61440.0, 0, 2),
    "f8e8m0fnu": FloatFormat(float.fromhex("0x1.8p+127"), 0, 2),
    # These have no infinity; what is too large becomes their largest number.
    "f4e2m1fn": FloatFormat(float("inf"), 0, 2),
    "f6e2m3fn": FloatFormat(float("inf"), 0, 3),
    "f6e3m2fn": FloatFormat(float("inf"), 0, 2),
}
"""The real floating-point types. A complex number's parts must not pass the largest number at all: `COMPLEX_LIMITS`."""

COMPLEX_LIMITS: dict[str, float] = {"c64": float.fromhex("0x1.fffffe0000001p+127"), "c128": float("inf")}
"""The least double that is too large for a part of a complex number."""


def complex_part(element_type: str) -> str:
    """The type of a complex number's parts."""
    return {"c64": "f32", "c128": "f64"}[element_type]


def integer_range(element_type: str) -> tuple[int, int]:
    """The least and the largest value of an integer type."""
    bits = int(element_type[1:])
    return (-1 << (bits - 1), (1 << (bits - 1)) - 1) if element_type[0] == "s" else (0, (1 << bits) - 1)
