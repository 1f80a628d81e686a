"""What the executor's tests share: one-op modules, special values of every type, distances between floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_cp2ag.executor.ops.comparison import total_order_key
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.element_types import dtype_of, integer_range
from hlo_cp2ag.ir.shape import is_complex, is_floating, is_integer
from hlo_cp2ag.text.parser import parse

Array = np.ndarray[Any, Any]

FLOATS = ("f64", "f32", "f16", "bf16", "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e3m4", "f8e4m3b11fnuz", "f8e4m3fnuz",
          "f8e5m2fnuz", "f4e2m1fn", "f8e8m0fnu")  # fmt: skip
INTEGERS = ("s64", "u64", "s32", "u32", "s16", "u16", "s8", "u8", "s4", "u4", "s2", "u2")
COMPLEX = ("c64", "c128")
ALL_TYPES = (*FLOATS, *INTEGERS, *COMPLEX, "pred")


def shape_text(element_type: str, dimensions: Sequence[int], layout: str = "") -> str:
    return f"{element_type}[{','.join(map(str, dimensions))}]{layout}"


def one_op(result: str, op: str, operands: Sequence[str], attributes: str = "") -> str:
    """A module whose root is one op on parameters: `one_op("f32[2]", "add", ["f32[2]", "f32[2]"])`."""
    lines = [f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    tail = f", {attributes}" if attributes else ""
    return "\n".join(["HloModule one", "", "ENTRY main {", *lines, f"  ROOT r = {result} {op}({names}){tail}", "}", ""])


def run_text(text: str, *args: Any, replicas: int = 1, partitions: int = 1, **options: Any) -> list[Array]:
    """All results `[devices, ...]`; every value on the way is held against its stated shape."""
    return run(parse(text), list(args), replicas, partitions, checked=True, **options)


def compute(text: str, *args: Any) -> Array:
    """The first result on one device, `[...]`."""
    result: Array = run_text(text, *args)[0][0]
    return result


def array(element_type: str, values: Any) -> Array:
    """Values of an element type, by way of f32 for narrow floats and s64 for narrow integers."""
    dtype = dtype_of(element_type)
    if is_integer(element_type) and element_type != "u64":
        return np.asarray(values, np.int64).astype(dtype)
    if is_floating(element_type) and element_type != "f64":
        with np.errstate(all="ignore"):
            return np.asarray(values, np.float32).astype(dtype)
    return np.asarray(values, dtype)


def special_values(element_type: str) -> Array:
    """Values at which ops of this type differ from the textbook."""
    if element_type == "pred":
        return np.array([False, True, True, False])
    if is_integer(element_type):
        low, high = integer_range(element_type)
        integers = {low, low + 1, high, high - 1, 0, 1, 2, 3, 5, 7, 31, 33, 63, -1, -2, -3, -7}
        return np.array(sorted(v for v in integers if low <= v <= high), object).astype(dtype_of(element_type))
    if is_complex(element_type):
        parts = (0.0, -0.0, 1.0, -1.0, 2.5, -0.3, 1e-3)
        return np.array([complex(x, y) for x in parts for y in parts]).astype(dtype_of(element_type))
    some = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3.5, 2, 3, -3, np.inf, -np.inf, np.nan, 1e-3, -1e-3, 100,
                   -100, 1e4, 0.1, 0.7, -0.7, 0.99, 88, 1e20, -1e20, 3e38, 1e-30, 255.5, -129, 0.49999997]  # fmt: skip
    return array(element_type, some)


def all_pairs(values: Array) -> tuple[Array, Array]:
    """Each value with each."""
    i, j = np.indices((values.size, values.size))
    return values[i.ravel()], values[j.ravel()]


def ulps(a: Array, b: Array, element_type: str) -> Array:
    """How many numbers of the type lie between; NaNs are equal, -0.0 and 0.0 half a unit apart. Not for integers."""
    if is_complex(element_type):
        part = "f32" if element_type == "c64" else "f64"
        split = [[np.ascontiguousarray(p) for p in (x.real, x.imag)] for x in (a, b)]
        return np.maximum(ulps(split[0][0], split[1][0], part), ulps(split[0][1], split[1][1], part))
    key_a, key_b = (total_order_key(x, element_type).astype(object) for x in (a, b))
    distance = np.abs(key_a - key_b).astype(float)
    numbers = [x.astype(np.float64) for x in (a, b)]
    nan = [np.isnan(x) for x in numbers]
    distance = np.where(nan[0] & nan[1], 0.0, np.where(nan[0] != nan[1], np.inf, distance))
    return np.where((numbers[0] == 0) & (numbers[1] == 0) & (distance != 0), 0.5, distance)


def same_bits(a: Array, b: Array) -> bool:
    """The same type, dimensions and bits."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def tiny(element_type: str) -> float:
    """The least normal number: XLA's CPU backend takes what is smaller for zero."""
    real = {"c64": "f32", "c128": "f64"}.get(element_type, element_type)
    return {"f64": 2.0**-1022, "f32": 2.0**-126, "bf16": 2.0**-126}.get(real, 0.0)
