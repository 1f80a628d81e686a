"""dot, triangular-solve, cholesky.

Products of floats are added up in f32 (f64 where an operand or the result has it) and rounded once to the result's
type, as XLA's CPU backend does it for bf16, f16 and f8 as well (measured, jaxlib 0.10); small products even in f64,
which costs nothing and is nearer to the exact value than any order of f32 sums. Integers wrap in the result's type;
pred is or of ands, or a count where the result is an integer.

Every lane's matrices are multiplied by a call of their own and laid out alike, so that a lane's bits do not depend on
how many lanes there are.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import compute_dtype, lift, lower, round_to, wrap
from hlo_cp2ag.executor.ops.elementwise import BINARY
from hlo_cp2ag.executor.registry import Context, array_shape, flag, integers, op
from hlo_cp2ag.executor.values import Array, align, array_shape_of
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import element_bits, is_complex, is_floating, is_integer

_EXACT = 53
"""f64 holds integers of so many bits."""
_LIMB_TERMS = 1 << 20
"""f64 holds sums of so many products of 16-bit numbers, with a bit to spare."""
_FEW = 16
"""Sums of so many c64 products are computed one by one, as the formulas say it."""
_SMALL = 1 << 20
"""Products of f32 matrices of so many multiplications are added up in f64."""


def multiply_matrices(a: Array, b: Array, types: tuple[str, str], result: str) -> Array:
    """`a @ b` for arrays `[..., m, k]` and `[..., k, n]` of the two types, as elements of the type `result`."""
    wide = product_dtype(types, result, a.shape[-2], a.shape[-1], b.shape[-1])
    x, y = (lift(m, t).astype(wide, copy=False) for m, t in zip((a, b), types, strict=True))
    return multiply_wide(x, y, result)


def multiply_wide(a: Array, b: Array, result: str) -> Array:
    """`a @ b` for arrays in what `product_dtype` says, as elements of the type `result`."""
    if a.dtype == np.complex64 and a.shape[-1] <= _FEW:
        return _one_by_one(a, b).astype(dtype_of(result), copy=False)
    x, y = np.ascontiguousarray(a), np.ascontiguousarray(b)
    integral = x.dtype.kind in "iu" and x.shape[-1] <= _LIMB_TERMS and x.shape[-1] > 0
    return finished(_by_limbs(x, y) if integral else np.matmul(x, y), result)


def finished(product: Array, result: str) -> Array:
    """Sums of products in what `product_dtype` says, as elements of the type `result`."""
    if result == "pred":
        return np.asarray(product != 0)
    if is_integer(result):
        return wrap(product.astype(np.int64) if product.dtype == np.float64 else product, result)
    if is_floating(result):
        return round_to(product, result)
    return product.astype(dtype_of(result), copy=False)


def _by_limbs(a: Array, b: Array) -> Array:
    """`a @ b` for integers modulo 2^bits: BLAS multiplies the 16-bit limbs, whose sums f64 holds."""
    dtype, count = a.dtype, max(1, a.dtype.itemsize // 2)
    left, right = (x.astype(np.uint64) for x in (a, b))
    parts = [
        [((x >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.float64) for i in range(count)] for x in (left, right)
    ]
    total = np.zeros((), np.uint64)
    for i in range(count):
        for j in range(count - i):
            product = np.matmul(parts[0][i], parts[1][j]).astype(np.uint64)
            total = total + (product << np.uint64(16 * (i + j)))
    return total.astype(dtype)


def _one_by_one(a: Array, b: Array) -> Array:
    """`a @ b` for complex numbers, multiplied by the schoolbook formula and added up from first to last."""
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    total = np.zeros(shape, a.dtype)
    for term in range(a.shape[-1]):
        total += BINARY["multiply"](a[..., :, term, np.newaxis], b[..., np.newaxis, term, :], "c64")
    return total


def product_dtype(types: tuple[str, str], result: str, rows: int, terms: int, columns: int) -> np.dtype[np.generic]:
    """What products of elements of two types are added up in, for matrices `[rows, terms]` and `[terms, columns]`."""
    asked = bool({"f64", "c128"} & {*types, result})
    double = asked or rows * terms * columns <= _SMALL
    if is_complex(result) or any(map(is_complex, types)):
        double = asked or (double and terms > _FEW)
        return np.dtype(np.complex128 if double else np.complex64)
    if is_integer(result):
        bits = sum(1 if t == "pred" else element_bits(t) if is_integer(t) else 64 for t in types)
        # BLAS is fast, and exact as long as f64 holds the sums.
        return np.dtype(np.float64) if bits + terms.bit_length() <= _EXACT else compute_dtype(result)
    return np.dtype(np.float64 if double else np.float32)


@op("dot")
def dot(context: Context, instruction: Instruction, lhs: Array, rhs: Array, *metadata: Array) -> Array:
    """Semantics: XLA operation semantics, DotGeneral: batch dimensions, free ones of the left, free ones of the right.

    `operand_precision` and `algorithm` allow less exact sums than these, and do not ask for any. Further operands
    (sparsity) are passed over, as XLA's CPU backend does it.
    """
    shape = array_shape(instruction)
    left, right = (array_shape_of(s).element_type for s in context.operand_shapes(instruction)[:2])
    a, batch, free_left = as_matrices(instruction, lhs, "lhs")
    b, _, free_right = as_matrices(instruction, rhs, "rhs")
    product = multiply_matrices(a, b.swapaxes(-1, -2), (left, right), shape.element_type)
    result: Array = product.reshape(product.shape[0], *batch, *free_left, *free_right)
    return result


def as_matrices(instruction: Instruction, x: Array, side: str) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    """An operand as `[lanes, batch, free, contracting]`, and its batch and free sizes."""
    batch = integers(instruction, f"{side}_batch_dims")
    contracting = integers(instruction, f"{side}_contracting_dims")
    free = tuple(d for d in range(x.ndim - 1) if d not in batch + contracting)
    sizes = x.shape[1:]
    turned = x.transpose(0, *(d + 1 for d in (*batch, *free, *contracting)))
    batch_sizes, free_sizes = tuple(sizes[d] for d in batch), tuple(sizes[d] for d in free)
    count = [int(np.prod(n, dtype=np.int64)) for n in (batch_sizes, free_sizes, [sizes[d] for d in contracting])]
    return turned.reshape(x.shape[0], *count), batch_sizes, free_sizes


# ---- factors and triangles -------------------------------------------------------------------------------------------


def widest(x: Array, element_type: str) -> Array:
    """Floats as f64 and complex numbers as c128."""
    return lift(x, element_type).astype(np.complex128 if is_complex(element_type) else np.float64)


def narrowed(x: Array, element_type: str) -> Array:
    """f64 or c128 as an element type."""
    return round_to(x, element_type) if is_floating(element_type) else lower(x, element_type)


@op("triangular-solve")
def triangular_solve(context: Context, instruction: Instruction, a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, TriangularSolve: x with op(a) x = b, or x op(a) = b without `left_side`.

    Only the one triangle of `a` `[..., n, n]` is looked at, nor its diagonal with `unit_diagonal`. A zero on the
    diagonal makes infinities and NaNs. Computed in f64 and rounded once.
    """
    element_type = array_shape(instruction).element_type
    lower_side, left = flag(instruction, "lower"), flag(instruction, "left_side")
    matrix, x = widest(a, element_type), widest(b, element_type)
    how = cast(str, instruction.attribute("transpose_a", "NO_TRANSPOSE"))
    if how == "ADJOINT":
        matrix = np.conj(matrix)
    if not left:
        x = x.swapaxes(-1, -2)
    if (how != "NO_TRANSPOSE") == left:  # x op(a) = b is op(a)^T x^T = b^T
        matrix, lower_side = matrix.swapaxes(-1, -2), not lower_side
    unit = flag(instruction, "unit_diagonal")
    matrix, x = align(matrix, x)
    # Lane by lane: BLAS is quick on one, and its sums do not depend on how many there are.
    x = np.stack([substituted(m, y, lower_side, unit) for m, y in zip(matrix, x, strict=True)])
    return narrowed(x if left else x.swapaxes(-1, -2), element_type)


def substituted(matrix: Array, b: Array, lower_side: bool, unit: bool) -> Array:
    """x `[..., n, m]` with matrix x = b, by forward (`lower_side`) or backward substitution."""
    matrix, x = np.ascontiguousarray(matrix), np.array(b, order="C")
    size = matrix.shape[-1]
    for row in range(size) if lower_side else range(size - 1, -1, -1):
        known = slice(0, row) if lower_side else slice(row + 1, size)
        rest = x[..., row, :] - np.matmul(matrix[..., row : row + 1, known], x[..., known, :])[..., 0, :]
        x[..., row, :] = rest if unit else rest / matrix[..., row, row, np.newaxis]
    return x


@op("cholesky")
def cholesky(context: Context, instruction: Instruction, a: Array) -> Array:
    """Semantics: XLA operation semantics, Cholesky: the lower l with a = l l^H, or the upper u with a = u^H u.

    Only that triangle of `a` `[..., n, n]` is looked at; the other one of the result is 0. A matrix that is not
    positive definite gives NaN everywhere, as XLA has it. Computed in f64 and rounded once.
    """
    element_type = array_shape(instruction).element_type
    matrix = widest(a, element_type)
    from_lower = flag(instruction, "lower")
    if not from_lower:
        matrix = np.conj(matrix.swapaxes(-1, -2))
    factor = np.stack([lower_factor(m) for m in matrix])
    return narrowed(factor if from_lower else np.conj(factor.swapaxes(-1, -2)), element_type)


def lower_factor(a: Array) -> Array:
    """The lower l with a = l l^H for matrices `[..., n, n]`; NaN everywhere where a is not positive definite."""
    matrix = np.ascontiguousarray(a)
    factor = np.zeros_like(matrix)
    bad = np.zeros(matrix.shape[:-2], np.bool_)
    for column in range(matrix.shape[-1]):
        done = factor[..., :, :column]
        rest = matrix[..., column:, column] - np.matmul(
            done[..., column:, :], np.conj(done[..., column, :, np.newaxis])
        )[..., 0]  # fmt: skip
        pivot = rest[..., 0].real
        bad |= ~(pivot > 0)
        factor[..., column:, column] = rest / np.sqrt(np.where(pivot > 0, pivot, 1))[..., np.newaxis]
        factor[..., column, column] = np.sqrt(np.where(pivot > 0, pivot, 1))
    return np.where(bad[..., np.newaxis, np.newaxis], np.nan, factor)
