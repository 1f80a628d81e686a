"""As test_judged.py: reductions, windows, scatters and products in which XLA's CPU backend and the executor differ."""

from __future__ import annotations

import numpy as np
import pytest

from ..xla.judge import Judge
from .support import Array, array, compute, one_op, same_bits
from .test_differential_arrays import reducer, with_computations
from .test_judged import Judged

PICK = "pick {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=LE\n}\n"


def s32(*rows: list[int]) -> Array:
    return np.array(rows, np.int32)


CASES = {
    "select_of_equal_elements": Judged(
        "of two equal elements the first in row-major order stays; XLA does so too, unless the last dimension is padded",
        with_computations(
            one_op("s32[2,2]", "select-and-scatter", ["s32[2,2]", "s32[1,2]", "s32[]"],
                   "window={size=2x2 pad=0_0x0_1}, select=pick, scatter=fold"),
            PICK, reducer("s32", "add"),
        ),
        (s32([3, 0], [0, 3]), s32([1, 0]), np.array(0, np.int32)),
        s32([0, 1], [0, 0]), s32([0, 0], [1, 0]),
    ),
    "scatter_without_indices": Judged(
        "both updates go to the one place there is; XLA applies one",
        with_computations(
            one_op("s32[1]", "scatter", ["s32[1]", "s32[0,2]", "s32[2]"],
                   "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={}, "
                   "index_vector_dim=0, to_apply=fold"),
            reducer("s32", "subtract"),
        ),
        (np.array([7], np.int32), np.zeros((0, 2), np.int32), np.array([2, 1], np.int32)),
        np.array([4], np.int32), np.array([6], np.int32),
    ),
    "reduce_of_size_one": Judged(
        "the start value takes part, whatever it is; XLA drops it where there is nothing to fold",
        with_computations(
            one_op("f32[2]", "reduce", ["f32[1,2]", "f32[]"], "dimensions={0}, to_apply=fold"),
            reducer("f32", "maximum"),
        ),
        (array("f32", [[-1, 2]]), array("f32", 0)),
        array("f32", [0, 2]), array("f32", [-1, 2]),
    ),
    "reduce_with_a_start_value": Judged(
        "the start value takes part once; XLA begins each window of 32 elements with it",
        with_computations(
            one_op("f32[1]", "reduce", ["f32[100,1]", "f32[]"], "dimensions={0}, to_apply=fold"), reducer("f32", "add")
        ),
        (array("f32", np.ones((100, 1))), array("f32", 10)),
        array("f32", [110]), array("f32", [150]),
    ),
    "singular_triangle": Judged(
        "1 / 0 is infinite; XLA inverts the matrix first, and gets NaN",
        one_op("f32[2,1]", "triangular-solve", ["f32[2,2]", "f32[2,1]"],
               "left_side=true, lower=true, transpose_a=NO_TRANSPOSE"),
        (array("f32", [[0, 0], [2, 3]]), array("f32", [[1], [2]])),
        array("f32", [[np.inf], [-np.inf]]), array("f32", [[np.nan], [np.nan]]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_here(name: str) -> None:
    case = CASES[name]
    assert same_bits(compute(case.text, *case.args), case.right), case.why


@pytest.mark.parametrize("name", CASES)
def test_xla(name: str, judge: Judge) -> None:
    case = CASES[name]
    (result,) = judge.run(case.text, 1, 1, [x[np.newaxis] for x in case.args], how="recompile")
    assert np.array_equal(result[0], case.xla, equal_nan=case.xla.dtype.kind == "f"), (
        f"XLA has changed its answer: {result[0]}"
    )


INFINITE_WEIGHTS = {
    "infinite_weight_over_padding_f32": Judged(
        "StableHLO pads with zeros, and 0 x infinity is NaN; XLA's CPU agrees for f32",
        one_op("f32[1,1,3]", "convolution", ["f32[1,1,3]", "f32[1,1,3]"], "window={size=3 pad=1_1}, dim_labels=bf0_oi0->bf0"),
        (array("f32", [[[1, 2, 3]]]), array("f32", [[[np.inf, 1, 1]]])),
        array("f32", [[[np.nan, np.inf, np.inf]]]), array("f32", [[[np.nan, np.inf, np.inf]]]),
    ),
    "infinite_weight_over_padding_f64": Judged(
        "StableHLO pads with zeros, and 0 x infinity is NaN; XLA's CPU passes over the padding for f64",
        one_op("f64[1,1,3]", "convolution", ["f64[1,1,3]", "f64[1,1,3]"], "window={size=3 pad=1_1}, dim_labels=bf0_oi0->bf0"),
        (array("f64", [[[1, 2, 3]]]), array("f64", [[[np.inf, 1, 1]]])),
        array("f64", [[[np.nan, np.inf, np.inf]]]), array("f64", [[[3, np.inf, np.inf]]]),
    ),
    "infinite_weight_over_holes": Judged(
        "StableHLO fills the holes with zeros, and 0 x infinity is NaN; XLA's CPU passes over them",
        one_op("f32[1,1,3]", "convolution", ["f32[1,1,3]", "f32[1,1,3]"],
               "window={size=3 lhs_dilate=2}, dim_labels=bf0_oi0->bf0"),
        (array("f32", [[[1, 2, 3]]]), array("f32", [[[np.inf, 1, 1]]])),
        array("f32", [[[np.inf, np.nan, np.inf]]]), array("f32", [[[np.inf, 2, np.inf]]]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INFINITE_WEIGHTS)
def test_infinite_weights_here(name: str) -> None:
    """The sign of the NaN that 0 x infinity makes is the processor's, so that only its place is held."""
    case = INFINITE_WEIGHTS[name]
    assert np.array_equal(compute(case.text, *case.args), case.right, equal_nan=True), case.why


@pytest.mark.parametrize("name", INFINITE_WEIGHTS)
def test_infinite_weights_on_xla(name: str, judge: Judge) -> None:
    case = INFINITE_WEIGHTS[name]
    (result,) = judge.run(case.text, 1, 1, [x[np.newaxis] for x in case.args], how="recompile")
    assert np.array_equal(result[0], case.xla, equal_nan=True), f"XLA has changed its answer: {result[0]}"
