"""The corpus: what XLA's CPU backend (or StableHLO's published data) computed, case by case.

Where only data moves or integers compute, bit for bit. Elsewhere XLA may contract a * b + c, sum in another order, and
approximate functions otherwise than here, so that float results may differ by `TOLERANCE` units in the last place of
the largest number of the array, by the most inexact op family that the module has.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlo_cp2ag.executor.inputs import output_shapes, unpack
from hlo_cp2ag.executor.registry import known_opcodes
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.module import HloModule
from hlo_cp2ag.ir.shape import is_complex, is_floating
from hlo_cp2ag.text.opcodes import split_opcode
from hlo_cp2ag.text.parser import parse

from .support import Array, same_bits, ulps

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus"
NO_CORPUS = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus at {CORPUS}")

ARITHMETIC = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "remainder", "sqrt", "complex", "convert", "reduce-precision"),
        *("all-reduce", "reduce-scatter"),
    )
)
TRANSCENDENTAL = frozenset(
    (
        *("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "rsqrt", "cbrt", "sine", "cosine"),
        *(
            "tan",
            "tanh",
            "sinh",
            "cosh",
            "asin",
            "acos",
            "asinh",
            "acosh",
            "atanh",
            "atan2",
            "erf",
            "power",
            "abs",
            "sign",
        ),
    )
)
SUMS = frozenset(
    (
        *("dot", "convolution", "reduce", "reduce-window", "scatter", "select-and-scatter", "fft", "triangular-solve"),
        *("cholesky", "scan"),
    )
)
TOLERANCE = {"moves": 0, "arithmetic": 1, "transcendental": 4, "sums": 4}
"""Units in the last place of the largest number of an array, by op family; measured are 0, 1, -, and 3.5."""
LOOSER = {"pipeline_gpipe_grad": 17}
"""Programs that lose digits: its gradients are small differences of sums."""


def cases(folder: str) -> list[Any]:
    root = CORPUS / folder
    if not root.is_dir():
        return []
    return [pytest.param(text, id=f"{text.parent.name}-{text.stem}") for text in sorted(root.glob("*/*.hlo"))]


@lru_cache(maxsize=8)
def load(path: Path) -> HloModule:
    return parse(path.read_text(), str(path))


def opcodes(module: HloModule) -> set[str]:
    return {instruction.opcode for instruction in module.instructions()} - {"parameter"}


def missing(module: HloModule) -> list[str]:
    known = known_opcodes()
    lacking = set()
    for opcode in opcodes(module):
        split = split_opcode(opcode)
        base = split[1] if split is not None and split[1] is not None else opcode
        if base not in known:
            lacking.add(base)
    return sorted(lacking)


def family(module: HloModule) -> str:
    found = opcodes(module)
    if found & SUMS:
        return "sums"
    if found & TRANSCENDENTAL:
        return "transcendental"
    return "arithmetic" if found & ARITHMETIC else "moves"


def arrays(path: Path) -> list[Array]:
    """The arrays p0, p1, ... (or i0, ..., or o0, ...) of an npz file in order."""
    if not path.exists():
        return []
    with np.load(path) as file:
        names = sorted((name for name in file.files if re.fullmatch(r"[pio]\d+", name)), key=lambda n: int(n[1:]))
        return [file[name] for name in names]


def difference(ours: Array, theirs: Array, element_type: str) -> float:
    """The largest difference in units in the last place of the largest finite number of the array."""
    if same_bits(ours, theirs):
        return 0.0
    if is_complex(element_type):
        part = {"c64": "f32", "c128": "f64"}[element_type]
        return max(difference(np.ascontiguousarray(a), np.ascontiguousarray(b), part)
                   for a, b in ((ours.real, theirs.real), (ours.imag, theirs.imag)))  # fmt: skip
    exact = ulps(ours, theirs, element_type)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if (exact[~finite] > 0).any():
        return float("inf")
    largest = np.abs(b[finite]).max(initial=0.0)
    if largest == 0:
        return float(exact.max(initial=0.0))
    mantissa = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7, "f8e4m3": 3, "f8e4m3fn": 3, "f8e3m4": 4, "f8e4m3fnuz": 3,
                "f8e4m3b11fnuz": 3}.get(element_type, 2)  # fmt: skip
    unit = 2.0 ** (np.floor(np.log2(largest)) - mantissa)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / unit)


def is_number(element_type: str) -> bool:
    return is_floating(element_type) or is_complex(element_type)


def hold_against(outputs: list[Array], expected: list[Array], module: HloModule, tolerance: float) -> None:
    shapes = output_shapes(module)
    assert len(outputs) == len(expected) == len(shapes)
    for number, (ours, packed, shape) in enumerate(zip(outputs, expected, shapes, strict=True)):
        theirs = unpack(packed, shape.element_type)
        theirs = theirs.reshape(ours.shape) if theirs.shape == ours.shape[1:] else theirs
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        if tolerance == 0 or not is_number(shape.element_type):
            assert same_bits(np.ascontiguousarray(ours), theirs), f"o{number} differs: {ours} is not {theirs}"
        else:
            worst = difference(np.ascontiguousarray(ours), theirs, shape.element_type)
            assert worst <= tolerance, f"o{number} is {worst} units away, {tolerance} are allowed: {ours} for {theirs}"


@NO_CORPUS
@pytest.mark.parametrize("path", cases("jax"))
def test_jax(path: Path) -> None:
    module = load(path)
    assert not missing(module)
    meta = json.loads((path.parent / "meta.json").read_text())
    grid = (meta["replica_count"], meta["num_partitions"])
    outputs = run(module, arrays(path.parent / "inputs.npz"), *grid, checked=True)
    tolerance = LOOSER.get(path.parent.name, TOLERANCE[family(module)])
    hold_against(outputs, arrays(path.parent / "outputs.npz"), module, tolerance)


@NO_CORPUS
@pytest.mark.parametrize("path", cases("stablehlo_collectives"))
def test_stablehlo_collectives(path: Path) -> None:
    module = load(path)
    assert not missing(module)
    meta = json.loads((path.parent / "meta.json").read_text())
    grid = (meta["replica_count"], meta["num_partitions"])
    outputs = run(module, arrays(path.parent / "inputs.npz"), *grid, checked=True)
    expected = arrays(path.parent / "outputs.npz")
    if "group order" in meta.get("xla_note", ""):
        # Members of a cross-replica-and-partition group: XLA orders them replica-major, and XLA is right here.
        expected = [np.asarray(got, e.dtype) for got, e in zip(meta["xla"]["got"], expected, strict=True)]
    hold_against(outputs, expected, module, 0)


@NO_CORPUS
@pytest.mark.parametrize("path", cases("stablehlo"))
def test_stablehlo(path: Path) -> None:
    """Compared as each meta.json says: eq, close (units in the last place), almost_eq (absolute tolerance)."""
    module = load(path)
    assert not missing(module)
    meta = json.loads((path.parent / "meta.json").read_text())
    outputs = run(module, arrays(path.parent / "inputs.npz"), checked=True)
    expected = arrays(path.parent / "expected.npz")
    assert len(outputs) == len(expected)
    checks = meta["checks"] * len(expected) if len(meta["checks"]) == 1 else meta["checks"]
    for ours, packed, shape, check in zip(outputs, expected, output_shapes(module), checks, strict=True):
        theirs = unpack(packed, shape.element_type)
        one = np.ascontiguousarray(ours[0]).reshape(theirs.shape)
        assert one.dtype == theirs.dtype
        if not is_number(shape.element_type) or same_bits(one, theirs):
            assert same_bits(one, theirs)
        elif check["kind"] == "eq":
            assert bool(((one == theirs) | ((one != one) & (theirs != theirs))).all())
        elif check["kind"] == "close":
            assert float(ulps(one, theirs, shape.element_type).max()) <= check["max_ulp"]
        else:
            assert check["kind"] == "almost_eq"
            np.testing.assert_allclose(_wide(one), _wide(theirs), rtol=0, atol=check.get("atol", 1e-3))


def _wide(x: Array) -> Array:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
