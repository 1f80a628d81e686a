"""Values of reductions, windows, sorts, gathers, scatters and products that are known without XLA."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.shape import is_floating
from hlo_cp2ag.text.parser import parse

from .support import ALL_TYPES, Array, array, compute, one_op, run_text, same_bits, shape_text, ulps
from .test_differential_arrays import ARGMAX, reducer, with_computations

SUM_AND_PRODUCT = """fold {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  x = f32[] add(a, b)
  y = s32[] multiply(i, j)
  ROOT r = (f32[], s32[]) tuple(x, y)
}
"""
MATRICES = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def s32(*values: int) -> Array:
    return np.array(values, np.int32)


def two_steps(first: str, root: str) -> str:
    """A computation of two s32 scalars a and b; c is the first step."""
    lines = [
        "fold {",
        "  a = s32[] parameter(0)",
        "  b = s32[] parameter(1)",
        f"  c = s32[] {first}",
        f"  ROOT d = {root}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def all_of(text: str, *args: Array) -> list[list[float]]:
    return [result[0].tolist() for result in run_text(text, *args)]


def test_scatter_of_several_arrays_and_of_places_that_are_not_there() -> None:
    shapes = ["f32[5]", "s32[5]", "s32[4,1]", "f32[4]", "s32[4]"]
    numbers = ("update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
               "to_apply=fold")  # fmt: skip
    text = with_computations(one_op("(f32[5], s32[5])", "scatter", shapes, numbers), SUM_AND_PRODUCT)
    indices = s32(1, 4, 1, 7).reshape(4, 1)
    found = all_of(text, f32(0, 1, 2, 3, 4), s32(0, 1, 2, 3, 4), indices, f32(1, 2, 3, 4), s32(5, 6, 7, 8))
    assert found == [[0, 5, 2, 3, 6], [0, 35, 2, 3, 24]]


def test_scatter_drops_windows_that_stick_out() -> None:
    numbers = ("update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
               "to_apply=fold")  # fmt: skip
    text = with_computations(
        one_op("s32[4]", "scatter", ["s32[4]", "s32[3,1]", "s32[3,2]"], numbers), reducer("s32", "add")
    )
    indices, updates = s32(3, -1, 1).reshape(3, 1), s32(1, 2, 3, 4, 5, 6).reshape(3, 2)
    assert all_of(text, s32(0, 0, 0, 0), indices, updates) == [[0, 5, 6, 0]]


@pytest.mark.parametrize("width", [3, 20])
def test_scatter_keeps_the_order_of_updates_at_one_place(width: int) -> None:
    numbers = ("update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
               "to_apply=fold")  # fmt: skip
    fold = two_steps("add(a, a)", "s32[] add(c, b)")
    shapes = [f"s32[2,{width}]", "s32[4,1]", f"s32[4,{width}]"]
    text = with_computations(one_op(shapes[0], "scatter", shapes, numbers), fold)
    updates = np.repeat(s32(1, 2, 3, 4)[:, np.newaxis], width, axis=1)
    (found,) = run_text(text, np.ones((2, width), np.int32), s32(1, 0, 1, 1).reshape(4, 1), updates)
    assert (found[0] == np.repeat([[4], [((2 + 1) * 2 + 3) * 2 + 4]], width, axis=1)).all()


def test_gather_clamps_starts() -> None:
    numbers = "offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={2}"
    text = one_op("s32[3,2]", "gather", ["s32[4]", "s32[3,1]"], numbers)
    assert all_of(text, s32(10, 11, 12, 13), s32(-5, 1, 9).reshape(3, 1)) == [[[10, 11], [11, 12], [12, 13]]]


def test_reduce_window_of_several_arrays() -> None:
    shapes = ["f32[5]", "s32[5]", "f32[]", "s32[]"]
    text = with_computations(
        one_op("(f32[4], s32[4])", "reduce-window", shapes, "window={size=2}, to_apply=fold"), ARGMAX
    )
    found = all_of(text, f32(1, 3, 2, 2, 5), s32(0, 1, 2, 3, 4), np.float32(-np.inf), np.int32(0))
    assert found == [[3, 3, 2, 5], [1, 1, 2, 4]]


def test_padding_is_passed_over_whatever_the_start_value() -> None:
    shapes = ["f32[5]", "s32[5]", "f32[]", "s32[]"]
    window = "window={size=2 pad=1_1 lhs_dilate=2}, to_apply=fold"
    text = with_computations(one_op("(f32[10], s32[10])", "reduce-window", shapes, window), SUM_AND_PRODUCT)
    sums, products = all_of(text, f32(1, 2, 3, 4, 5), s32(1, 2, 3, 4, 5), np.float32(10), np.int32(2))
    assert sums == [11, 11, 12, 12, 13, 13, 14, 14, 15, 15]
    assert products == [2, 2, 4, 4, 6, 6, 8, 8, 10, 10]


def test_long_windows_are_put_together_from_powers_of_two() -> None:
    size = 300
    window = f"window={{size={size} pad={size - 1}_0}}, to_apply=fold"
    shape = f"s32[{size}]"
    text = with_computations(one_op(shape, "reduce-window", [shape, "s32[]"], window), reducer("s32", "add"))
    numbers = np.arange(size, dtype=np.int32)
    assert all_of(text, numbers, np.int32(0)) == [np.cumsum(numbers).tolist()]


def test_map_and_scan() -> None:
    fold = two_steps("multiply(a, b)", "s32[] add(c, b)")
    text = with_computations(one_op("s32[3]", "map", ["s32[3]", "s32[3]"], "dimensions={0}, to_apply=fold"), fold)
    assert all_of(text, s32(1, 2, 3), s32(4, 5, 6)) == [[8, 15, 24]]
    step = two_steps("add(a, b)", "(s32[], s32[]) tuple(c, a)")
    for reverse, outputs, carry in (("false", [11, 3, 5], 3), ("true", [3, 5, 13], 1)):
        attributes = f"dimensions={{0}}, num_carries=1, is_reverse={reverse}, to_apply=fold"
        text = with_computations(one_op("(s32[3], s32[])", "scan", ["s32[3]", "s32[]"], attributes), step)
        assert all_of(text, s32(1, 2, 3), np.int32(10)) == [outputs, carry]


def test_a_matrix_that_is_not_positive_definite_has_no_factor() -> None:
    text = one_op("f32[2,2,2]", "cholesky", ["f32[2,2,2]"], "lower=true")
    found = compute(text, array("f32", [[[4, 9], [2, 5]], [[1, 9], [2, 1]]]))
    assert np.array_equal(found[0], [[2, 0], [1, 2]]) and np.isnan(found[1]).all()


def test_topk_orders_floats_totally() -> None:
    text = one_op("(f32[4], s32[4])", "topk", ["f32[6]"], "k=4")
    values, places = run_text(text, f32(3, np.nan, 3, -0.0, 0.0, -np.nan))
    assert np.array_equal(values[0], f32(np.nan, 3, 3, 0), equal_nan=True) and places[0].tolist() == [1, 0, 2, 4]


@pytest.mark.parametrize("element_type", ALL_TYPES)
def test_products_of_every_type(element_type: str) -> None:
    generator = np.random.default_rng(1)
    a, b = (array(element_type, generator.integers(0, 2, (3, 3))) for _ in range(2))
    shape = shape_text(element_type, (3, 3))
    wide = np.float64 if element_type not in ("c64", "c128") else np.complex128
    exact = a.astype(wide) @ b.astype(wide)
    expected = exact != 0 if element_type == "pred" else exact
    found = compute(one_op(shape, "dot", [shape, shape], MATRICES), a, b)
    bits = {"s2": 4, "u2": 4, "s4": 16, "u4": 16}.get(element_type)
    if bits is not None:
        assert ((found.astype(np.int64) - exact.astype(np.int64)) % bits == 0).all()
    elif element_type == "f8e8m0fnu":  # 0 is not of the type
        assert same_bits(found, array("f32", a.astype(np.float32) @ b.astype(np.float32)).astype(found.dtype))
    else:
        assert np.array_equal(found.astype(wide), expected)
    image, kernel = shape_text(element_type, (1, 3, 3)), shape_text(element_type, (1, 3, 3))
    text = one_op(image, "convolution", [image, kernel], "window={size=1}, dim_labels=b0f_0io->b0f")
    assert same_bits(compute(text, a[np.newaxis], b[np.newaxis])[0], found)


@pytest.mark.parametrize(
    "element_type", [t for t in ALL_TYPES if is_floating(t) and t not in ("f32", "f64", "f8e8m0fnu")]
)
def test_sums_of_narrow_floats_are_rounded_at_each_step(element_type: str) -> None:
    generator = np.random.default_rng(2)
    numbers = array(element_type, generator.standard_normal((20, 3)) + 0.5)
    total = np.zeros(3, numbers.dtype)
    for row in numbers:
        total = (total.astype(np.float32) + row.astype(np.float32)).astype(numbers.dtype)
    operand, start = shape_text(element_type, (20, 3)), shape_text(element_type, ())
    text = one_op(shape_text(element_type, (3,)), "reduce", [operand, start], "dimensions={0}, to_apply=fold")
    found = compute(with_computations(text, reducer(element_type, "add")), numbers, np.zeros((), numbers.dtype))
    assert float(ulps(found, total, element_type).max()) <= 0.5  # zeros of either sign


@pytest.mark.parametrize("element_type", ["s64", "u64", "s32", "u32"])
def test_large_integers_wrap_in_products(element_type: str) -> None:
    dtype = dtype_of(element_type)
    generator = np.random.default_rng(3)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a, b = (generator.integers(low, high, n, dtype=dtype, endpoint=True) for n in ((5, 70), (70, 4)))
    exact = (a.astype(object) @ b.astype(object)) % (1 << (8 * dtype.itemsize))
    shapes = [shape_text(element_type, x.shape) for x in (a, b)]
    found = compute(one_op(shape_text(element_type, (5, 4)), "dot", shapes, MATRICES), a, b)
    assert (found.view(f"u{dtype.itemsize}").astype(object) == exact).all()


def test_many_thin_groups_are_convolved_as_few_are() -> None:
    generator = np.random.default_rng(4)
    image, kernel = (generator.integers(-9, 9, n).astype(np.int32) for n in ((1, 12, 24), (3, 2, 12)))
    text = one_op("s32[1,10,12]", "convolution", ["s32[1,12,24]", "s32[3,2,12]"],
                  "window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=12")  # fmt: skip
    expected = sum(
        image[0, tap : tap + 10].reshape(10, 12, 2)[:, :, f] * kernel[tap, f] for tap in range(3) for f in range(2)
    )
    assert np.array_equal(compute(text, image, kernel)[0], expected)


def test_a_device_multiplies_as_if_alone() -> None:
    generator = np.random.default_rng(5)
    a, b = (
        generator.standard_normal((4, 65, 300)).astype(np.float32),
        generator.standard_normal((300, 130)).astype(np.float32),
    )
    text = one_op("f32[65,130]", "dot", ["f32[65,300]", "f32[300,130]"], MATRICES)
    together = run_text(text, a, b, replicas=4)[0]
    for device in range(4):
        assert same_bits(together[device], compute(text, a[device], b))


EMPTY = {
    "sort": ("s32[0]", "sort", ["s32[0]"], "dimensions={0}, to_apply=less"),
    "sort_rows": ("s32[0,3]", "sort", ["s32[0,3]"], "dimensions={1}, to_apply=less"),
    "topk": ("(s32[0,2], s32[0,2])", "topk", ["s32[0,3]"], "k=2"),
    "reduce": ("s32[0]", "reduce", ["s32[0,3]", "s32[]"], "dimensions={1}, to_apply=fold"),
    "reduce_nothing": ("s32[3]", "reduce", ["s32[0,3]", "s32[]"], "dimensions={0}, to_apply=fold"),
    "reduce_window": ("s32[0]", "reduce-window", ["s32[2]", "s32[]"], "window={size=3}, to_apply=fold"),
    "reduce_window_nothing": ("s32[1]", "reduce-window", ["s32[0]", "s32[]"], "window={size=3 pad=1_2}, to_apply=fold"),
    "select_and_scatter": ("s32[2]", "select-and-scatter", ["s32[2]", "s32[0]", "s32[]"],
                           "window={size=3}, select=less, scatter=fold"),
    "gather": ("s32[0,2]", "gather", ["s32[4]", "s32[0,1]"],
               "offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={2}"),
    "scatter": ("s32[4]", "scatter", ["s32[4]", "s32[0,1]", "s32[0,2]"],
                "update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, "
                "index_vector_dim=1, to_apply=fold"),
    "dot": ("s32[2,3]", "dot", ["s32[2,0]", "s32[0,3]"], MATRICES),
    "dot_floats": ("f32[0,3]", "dot", ["f32[0,2]", "f32[2,3]"], MATRICES),
    "convolution": ("f32[1,2,4]", "convolution", ["f32[1,3,0]", "f32[2,0,4]"], "window={size=2}, dim_labels=b0f_0io->b0f"),
    "convolution_nothing": ("f32[0,2,4]", "convolution", ["f32[0,3,2]", "f32[2,2,4]"],
                            "window={size=2}, dim_labels=b0f_0io->b0f"),
    "fft": ("c64[0,4]", "fft", ["c64[0,4]"], "fft_type=FFT, fft_length={4}"),
    "triangular_solve": ("f32[2,0]", "triangular-solve", ["f32[2,2]", "f32[2,0]"],
                         "left_side=true, lower=true, transpose_a=NO_TRANSPOSE"),
    "cholesky": ("f32[0,0]", "cholesky", ["f32[0,0]"], "lower=true"),
    "map": ("s32[0]", "map", ["s32[0]", "s32[0]"], "dimensions={0}, to_apply=fold"),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_arrays_without_elements(name: str) -> None:
    result, op, shapes, attributes = EMPTY[name]
    less = (
        "less {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=LT\n}\n"
    )
    text = with_computations(one_op(result, op, shapes, attributes), reducer("s32", "add"), less)
    for found in run(parse(text), None, 2, 1, checked=True):
        assert found.shape[0] == 2


def test_large_convolutions_are_split() -> None:
    generator = np.random.default_rng(6)
    image, kernel = (generator.integers(-2, 3, n).astype(np.int8) for n in ((2, 4, 70, 70, 16), (5, 5, 16, 8)))
    text = one_op("s8[4,66,66,8]", "convolution", ["s8[4,70,70,16]", "s8[5,5,16,8]"],
                  "window={size=5x5}, dim_labels=b01f_01io->b01f")  # fmt: skip
    together = run_text(text, image, kernel, replicas=2)[0]
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.int32), (5, 5), axis=(2, 3))
    expected = np.einsum("lbxyfij,ijfo->lbxyo", windows, kernel.astype(np.int32), optimize=True).astype(np.int8)
    assert np.array_equal(together, expected)


CONVOLUTIONS = {
    "one_place": ("s32[1,1,1,3]", ["s32[1,9,7,2]", "s32[9,6,2,3]"], "window={size=9x6 stride=1x2}"),
    "stride": ("s32[3,4,4,4]", ["s32[3,9,7,2]", "s32[3,2,2,4]"], "window={size=3x2 stride=2x2 pad=0_1x1_0}"),
    "dilation": ("s32[2,13,5,3]", ["s32[2,8,9,2]", "s32[2,3,2,3]"],
                 "window={size=2x3 pad=1_0x0_0 lhs_dilate=2x1 rhs_dilate=3x2 rhs_reversal=1x0}"),
    "feature_groups": ("s32[2,7,5,4]", ["s32[2,8,6,6]", "s32[2,2,3,4]"], "window={size=2x2}, feature_group_count=2"),
    "batch_groups": ("s32[2,7,5,4]", ["s32[4,8,6,3]", "s32[2,2,3,4]"], "window={size=2x2}, batch_group_count=2"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("lanes", [(1, 1), (3, 1), (1, 3), (3, 3)])
def test_convolutions_in_blocks_are_those_in_one(
    case: str, lanes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, operands, attributes = CONVOLUTIONS[case]
    text = one_op(result, "convolution", operands, f"{attributes}, dim_labels=b01f_01io->b01f")
    random = np.random.default_rng(7)
    args = [
        random.integers(-9, 9, (count, *map(int, shape[4:-1].split(",")))).astype(np.int32)
        for count, shape in zip(lanes, operands, strict=True)
    ]
    args = [x if x.shape[0] == 3 else x[0] for x in args]
    whole = run_text(text, *args, replicas=3)[0]
    assert whole.any()
    for room in (1, 2000, 20_000):
        monkeypatch.setattr("hlo_cp2ag.executor.ops.convolution.CONVOLUTION_ROOM", room)
        assert run_text(text, *args, replicas=3)[0].tolist() == whole.tolist()


@pytest.mark.parametrize("size", [5, 7, 16, 300])
def test_a_sort_by_no_order_loses_nothing(size: int) -> None:
    """x * y > y * y is no order: XLA's result is unspecified, but a permutation of the input."""
    text = f"""HloModule m
c {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  d = f32[] multiply(x, y)
  e = f32[] multiply(y, y)
  ROOT q = pred[] compare(d, e), direction=GT
}}
ENTRY e {{
  b = f32[{size}] parameter(0)
  ROOT r = f32[{size}] sort(b), dimensions={{0}}, to_apply=c
}}
"""
    values = np.random.default_rng(3).standard_normal(size).astype(np.float32)
    assert sorted(compute(text, values[np.newaxis]).tolist()) == sorted(values.tolist())
