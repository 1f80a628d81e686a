"""Random dots, convolutions, transforms and triangular systems, run here and on XLA's CPU backend.

Integers agree bit for bit. XLA adds up floats in an order of its own, with fused multiply-adds: sums of products may
differ by `tolerance` units in the last place of the sum of the products' absolute values, the others by as many of the
largest number of the array.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.shape import is_complex

from ..xla.judge import Judge, XlaRefused
from .support import one_op, run_text, shape_text, tiny
from .test_corpus import difference, is_number
from .test_differential import Case, Draw, hold_often, one_of, values

FLOATS = ("f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2")
INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")


class Products(Case):
    """A case that sums up products, or sums or multiplies elements: what absolute values give bounds the result."""


def epsilon(element_type: str) -> float:
    """A unit in the last place of 1."""
    mantissa = {"f64": 52, "c128": 52, "f32": 23, "c64": 23, "f16": 10, "bf16": 7, "f8e4m3fn": 3, "f8e5m2": 2}
    return 2.0 ** -mantissa[element_type]


def hold(judge: Judge, case: Case) -> None:
    ours = run_text(case.text, *case.args)
    try:
        theirs = judge.run(case.text, 1, 1, [a[np.newaxis] for a in case.args], how="recompile")
    except XlaRefused as refusal:
        assert "nsupported" in str(refusal) or "not implemented" in str(refusal), case.text
        return  # a combination of element types that XLA's CPU backend does not have
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        a = np.ascontiguousarray(a)
        assert a.dtype == b.dtype and a.shape == b.shape
        element_type = case.result if a.dtype == dtype_of(case.result) else ""
        if not element_type or np.array_equal(a, b):
            assert np.array_equal(a, b), f"{a} is not XLA's {b}\n{case.text}\n{case.args}"
        elif is_number(element_type) and isinstance(case, Products):
            bound = run_text(case.text, *(np.abs(x).astype(x.dtype) for x in case.args))[0].astype(np.complex128).real
            bound = np.nan_to_num(bound, nan=np.inf)  # the sum of absolute values is too large for the type
            distance = np.abs(a.astype(np.complex128) - b.astype(np.complex128))
            allowed = case.tolerance * epsilon(element_type) * (bound + tiny(element_type))
            close = (distance <= allowed) | (np.isnan(distance) & (np.isnan(a) == np.isnan(b)))
            assert close.all(), f"{a} is not XLA's {b}\n{case.text}\n{case.args}"
        elif is_complex(element_type):  # units of the number, not of its parts
            with np.errstate(all="ignore"):
                distance = np.abs(a.astype(np.complex128) - b.astype(np.complex128)).max()
            assert distance <= case.tolerance * epsilon(element_type) * np.abs(b).max(), f"{a} {b}\n{case.text}"
        elif is_number(element_type):
            assert difference(a, b, element_type) <= case.tolerance, f"{a} is not XLA's {b}\n{case.text}\n{case.args}"
        else:
            assert np.array_equal(a, b), f"{a} is not XLA's {b}\n{case.text}\n{case.args}"


def element_types(draw: Draw) -> tuple[str, str, str]:
    """Of two operands and the result of a product, as XLA's CPU backend takes them."""
    kind = one_of(draw, "float", "float", "mixed", "wide", "integer", "integer", "pred", "complex")
    if kind == "float":
        t = one_of(draw, *FLOATS)
        return t, t, t
    if kind == "mixed":
        return one_of(draw, ("bf16", "f32", "f32"), ("f8e4m3fn", "f8e5m2", "f32"), ("f16", "bf16", "f32"),
                      ("f32", "f32", "f64"), ("f32", "f32", "bf16"))  # fmt: skip
    if kind == "wide":
        t = one_of(draw, "bf16", "f16", "f8e4m3fn")
        return t, t, "f32"
    if kind == "integer":
        t = one_of(draw, *INTEGERS)
        return t, t, "s32" if t in ("s8", "s16") and draw(st.booleans()) else t
    if kind == "pred":
        return "pred", "pred", one_of(draw, "pred", "s32")
    t = one_of(draw, "c64", "c128")
    return t, t, t


def sums(result: str) -> float:
    """The tolerance of a product of a few dozen terms; f8 is rounded twice by XLA, by way of f16."""
    return 4 if result in ("f32", "f64", "c64", "c128") else 1


def dot(draw: Draw) -> Case:
    left, right, result = element_types(draw)
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    inner = draw(st.lists(st.integers(0, 5), max_size=2))
    sides, shapes, free = [], [], []
    for side in ("lhs", "rhs"):
        own = draw(st.lists(st.integers(1, 4), max_size=2))
        sizes = [*batch, *inner, *own]
        order = draw(st.permutations(range(len(sizes))))
        shapes.append(tuple(sizes[i] for i in order))
        places = {i: place for place, i in enumerate(order)}
        kept = sorted(places[len(batch) + len(inner) + i] for i in range(len(own)))
        free += [shapes[-1][place] for place in kept]
        for name, first, count in (("batch", 0, len(batch)), ("contracting", len(batch), len(inner))):
            numbers = ",".join(str(places[first + i]) for i in range(count))
            sides.append(f"{side}_{name}_dims={{{numbers}}}")
    text = one_op(
        shape_text(result, (*batch, *free)), "dot", [shape_text(left, shapes[0]), shape_text(right, shapes[1])],
        ", ".join(sides),
    )  # fmt: skip
    args = [values(draw, left, shapes[0], ordinary=True), values(draw, right, shapes[1], ordinary=True)]
    return Products(text, args, result, sums(result))


def convolution(draw: Draw) -> Case:
    left, right, result = element_types(draw)
    if "pred" in (left, right):
        left = right = result = "s32"
    rank = draw(st.integers(0, 3))
    groups = one_of(draw, (1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3))
    feature_groups, batch_groups = groups
    batch, features = draw(st.integers(1, 2)) * batch_groups, draw(st.integers(1, 3))
    outputs = draw(st.integers(1, 2)) * feature_groups * batch_groups
    fields: dict[str, list[str]] = {
        k: [] for k in ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
    }
    image, kernel, counts = [], [], []
    for _ in range(rank):
        size, taps = draw(st.integers(1, 6)), draw(st.integers(1, 3))
        stride, spread, dilation = (draw(st.integers(1, 3)) for _ in range(3))
        whole = (size - 1) * spread + 1
        low, high = draw(st.integers(-1 if whole > 2 else 0, 2)), draw(st.integers(-1 if whole > 2 else 0, 2))
        reach = (taps - 1) * dilation + 1
        count = (whole + low + high - reach) // stride + 1 if whole + low + high >= reach else 0
        image.append(size), kernel.append(taps), counts.append(count)
        for name, value in zip(fields, (taps, stride, f"{low}_{high}", spread, dilation, draw(st.integers(0, 1))),
                               strict=True):  # fmt: skip
            fields[name].append(str(value))
    window = "window={" + " ".join(f"{k}={'x'.join(v)}" for k, v in fields.items()) + "}, " if rank else "window={}, "
    spatial = "".join(map(str, range(rank)))
    labels, shapes = [], []
    for letters, sizes in (("bf", (batch, features * feature_groups, *image)), ("io", (features, outputs, *kernel)),
                           ("bf", (batch // batch_groups, outputs, *counts))):  # fmt: skip
        order = draw(st.permutations(range(rank + 2)))
        labels.append("".join((letters + spatial)[i] for i in order))
        shapes.append(tuple(sizes[i] for i in order))
    attributes = window + f"dim_labels={labels[0]}_{labels[1]}->{labels[2]}"
    if feature_groups > 1:
        attributes += f", feature_group_count={feature_groups}"
    if batch_groups > 1:
        attributes += f", batch_group_count={batch_groups}"
    text = one_op(
        shape_text(result, shapes[2]), "convolution", [shape_text(left, shapes[0]), shape_text(right, shapes[1])],
        attributes,
    )  # fmt: skip
    args = [values(draw, left, shapes[0], ordinary=True), values(draw, right, shapes[1], ordinary=True)]
    return Products(text, args, result, sums(result))


def fft(draw: Draw) -> Case:
    kind, double = one_of(draw, "FFT", "IFFT", "RFFT", "IRFFT"), draw(st.booleans())
    real, number = ("f64", "c128") if double else ("f32", "c64")
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    half = [*lengths[:-1], lengths[-1] // 2 + 1]
    operand, result = (
        (*batch, *(half if kind == "IRFFT" else lengths)),
        (*batch, *(half if kind == "RFFT" else lengths)),
    )
    types = {"RFFT": (real, number), "IRFFT": (number, real)}.get(kind, (number, number))
    attributes = f"fft_type={kind}, fft_length={{{','.join(map(str, lengths))}}}"
    text = one_op(shape_text(types[1], result), "fft", [shape_text(types[0], operand)], attributes)
    return Case(text, [values(draw, types[0], operand, ordinary=True)], types[1], 8)


def triangular_solve(draw: Draw) -> Case:
    t = one_of(draw, "f32", "f64", "c64", "c128")
    batch, size, other = tuple(draw(st.lists(st.integers(1, 3), max_size=1))), draw(st.integers(1, 6)), 3
    left = draw(st.booleans())
    matrix = values(draw, t, (*batch, size, size), ordinary=True)
    matrix = (matrix + np.eye(size) * (100 + np.abs(matrix).max())).astype(matrix.dtype)
    b = (*batch, size, other) if left else (*batch, other, size)
    how = one_of(draw, "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
    words = [word for word in ("lower", "unit_diagonal") if draw(st.booleans())] + ["left_side"] * left
    unit = "unit_diagonal" in words
    attributes = ", ".join([*(f"{word}=true" for word in words), f"transpose_a={how}"])
    shapes = [shape_text(t, matrix.shape), shape_text(t, b)]
    if unit:
        matrix = (matrix / np.abs(matrix).max() / 4).astype(matrix.dtype)
    text = one_op(shapes[1], "triangular-solve", shapes, attributes)
    return Case(text, [matrix, values(draw, t, b, ordinary=True)], t, 16)


def cholesky(draw: Draw) -> Case:
    t = one_of(draw, "f32", "f64", "c64", "c128")
    batch, size = tuple(draw(st.lists(st.integers(1, 3), max_size=1))), draw(st.integers(1, 6))
    root = values(draw, t, (*batch, size, size), ordinary=True)
    matrix = root @ np.conj(root.swapaxes(-1, -2)) + 100 * np.eye(size)
    matrix = matrix.astype(root.dtype)
    shape = shape_text(t, matrix.shape)
    text = one_op(shape, "cholesky", [shape], "lower=true" if draw(st.booleans()) else "lower=false")
    return Case(text, [matrix], t, 32)


CASES = {maker.__name__: maker for maker in (dot, convolution, fft, triangular_solve, cholesky)}


@pytest.mark.parametrize("name", CASES)
def test_op_agrees_with_xla(judge: Judge, name: str) -> None:
    hold_often(judge, CASES[name], hold, 15, fixed=True)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_op_agrees_with_xla_often(judge: Judge, name: str) -> None:
    hold_often(judge, CASES[name], hold, 200, fixed=False)
