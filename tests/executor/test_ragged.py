"""ragged-dot, scaled-dot, ragged-all-to-all and mulhi, which XLA's CPU backend does not have: by numpy and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.ir.element_types import dtype_of, integer_range
from hlo_cp2ag.ir.source import HloError

from .support import Array, array, compute, one_op, run_text

GENERATOR = np.random.default_rng(0)


def small(t: str, *dimensions: int) -> Array:
    return array(t, GENERATOR.integers(-5, 6, dimensions))


@pytest.mark.parametrize("t", ["f32", "bf16", "s32"])
def test_ragged_free_dimension(t: str) -> None:
    """Rows 0 and 1 by matrix 0, none by matrix 1, rows 2 to 4 by matrix 2, and rows 5 and 6 are in no group."""
    attributes = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
    text = one_op(f"{t}[7,5]", "ragged-dot", [f"{t}[7,4]", f"{t}[3,4,5]", "s32[3]"], attributes)
    a, b = small(t, 7, 4), small(t, 3, 4, 5)
    x, y = a.astype(np.int64), b.astype(np.int64)
    expected = np.concatenate([x[:2] @ y[0], x[2:5] @ y[2], np.zeros((2, 5), np.int64)])
    assert np.array_equal(compute(text, a, b, np.array([2, 0, 3], np.int32)), array(t, expected))


def test_ragged_free_dimension_in_batches() -> None:
    attributes = (
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}, "
        "lhs_ragged_dims={1}, rhs_group_dims={1}"
    )
    text = one_op("s32[2,7,5]", "ragged-dot", ["s32[2,7,4]", "s32[2,3,4,5]", "s32[2,3]"], attributes)
    a, b, sizes = small("s32", 2, 7, 4), small("s32", 2, 3, 4, 5), np.array([[1, 3, 3], [2, 2, 1]], np.int32)
    expected = np.zeros((2, 7, 5), np.int32)
    for batch in range(2):
        start = 0
        for group in range(3):
            end = start + sizes[batch, group]
            expected[batch, start:end] = a[batch, start:end] @ b[batch, group]
            start = end
    assert np.array_equal(compute(text, a, b, sizes), expected)


def test_ragged_contracting_dimension() -> None:
    attributes = "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}"
    text = one_op("s32[3,4,5]", "ragged-dot", ["s32[4,6]", "s32[6,5]", "s32[3]"], attributes)
    a, b = small("s32", 4, 6), small("s32", 6, 5)
    expected = np.stack([a[:, :1] @ b[:1], a[:, 1:4] @ b[1:4], np.zeros((4, 5), np.int32)])
    assert np.array_equal(compute(text, a, b, np.array([1, 3, 0], np.int32)), expected)


def test_ragged_batch_dimension_is_a_dot() -> None:
    attributes = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={0}"
    text = one_op("s32[2,3,5]", "ragged-dot", ["s32[2,3,4]", "s32[2,4,5]", "s32[2]"], attributes)
    a, b = small("s32", 2, 3, 4), small("s32", 2, 4, 5)
    assert np.array_equal(compute(text, a, b, np.array([1, 1], np.int32)), a @ b)


def test_scaled_dot() -> None:
    """Each scale is for a block of two elements along the contracting dimension; powers of two are exact."""
    operands = ["f8e4m3fn[2,4]", "f8e4m3fn[3,4]", "f8e8m0fnu[2,2]", "f8e8m0fnu[3,1]"]
    text = one_op("f32[2,3]", "scaled-dot", operands, "lhs_contracting_dims={1}, rhs_contracting_dims={1}")
    a, b = small("f8e4m3fn", 2, 4), small("f8e4m3fn", 3, 4)
    left, right = array("f8e8m0fnu", [[2, 0.5], [1, 4]]), array("f8e8m0fnu", [[1], [0.25], [8]])
    x = a.astype(np.float32) * np.repeat(left.astype(np.float32), 2, axis=1)
    y = b.astype(np.float32) * right.astype(np.float32)
    assert np.array_equal(compute(text, a, b, left, right), x @ y.T)


RAGGED = one_op(
    "s32[4]", "ragged-all-to-all", ["s32[3]", "s32[4]", *["s32[2]"] * 4], "replica_groups={{0,1}}"
)  # fmt: skip


def exchange(send: list[list[int]], receive: list[list[int]]) -> Array:
    operand = np.array([[10, 11, 12], [20, 21, 22]], np.int32)
    output = np.array([[-1, -2, -3, -4], [-5, -6, -7, -8]], np.int32)
    starts, targets = np.array([[0, 1], [0, 2]], np.int32), np.array([[0, 1], [2, 3]], np.int32)
    sizes = [np.array(x, np.int32) for x in (send, receive)]
    return run_text(RAGGED, operand, output, starts, sizes[0], targets, sizes[1], replicas=2)[0]


def test_ragged_all_to_all() -> None:
    """Device 0 keeps 10 and sends 11 and 12; device 1 sends 20 and 21, and keeps 22; places that get nothing stay."""
    found = exchange([[1, 2], [2, 1]], [[1, 2], [2, 1]])
    assert found.tolist() == [[10, -2, 20, 21], [-5, 11, 12, 22]]


def test_ragged_all_to_all_errors() -> None:
    with pytest.raises(ExecutionError, match="device 1 expects 1 rows of device 0, which sends 2"):
        exchange([[1, 2], [2, 1]], [[1, 2], [1, 1]])
    with pytest.raises(ExecutionError, match="device 0 sends 5 rows from 1 on, of 3"):
        exchange([[1, 5], [2, 1]], [[1, 2], [5, 1]])
    with pytest.raises(HloError, match="for groups of 2"):
        run_text(RAGGED.replace("s32[2] ", "s32[3] "), replicas=2)


@pytest.mark.parametrize("t", ["s8", "u8", "s32", "u32", "s64", "u64", "s4"])
def test_mulhi(t: str) -> None:
    low, high = integer_range(t)
    numbers = [low, high, low + 1, high - 1, 0, 1, 3]
    pairs = [(a, b) for a in numbers for b in numbers]
    a, b = (np.array([p[i] for p in pairs], object).astype(dtype_of(t)) for i in (0, 1))
    bits = int("".join(filter(str.isdigit, t)))
    expected = np.array([x * y >> bits for x, y in pairs], object).astype(dtype_of(t))
    text = one_op(f"{t}[{len(pairs)}]", "mulhi", [f"{t}[{len(pairs)}]"] * 2)
    assert np.array_equal(compute(text, a, b), expected)
