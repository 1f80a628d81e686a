"""The LAPACK routines that JAX programs call on XLA's CPU backend: `lapack_spotrf_ffi` and the like.

Semantics: LAPACK's, on matrices `[..., m, n]`, with jaxlib's calling convention (jaxlib/cpu/lapack_kernels): letters of
options are in `backend_config` as ASCII codes, results come first and `info` (0: all went well) last. A routine is a
function of the instruction and its operands `[lanes, ...]`; all sizes are in the shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from hlo_cp2ag.executor.ops.linalg import lower_factor, narrowed, substituted, widest
from hlo_cp2ag.executor.registry import execution_error
from hlo_cp2ag.executor.values import Array, Value, align, array_shape_of
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import TupleShape

Routine = Callable[..., Value]

ROUTINES: dict[str, Routine] = {}
"""By custom-call target."""
_TYPES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}


def routine(*names: str) -> Callable[[Routine], Routine]:
    """Registers a function for a routine in each element type; a name that begins with a type letter in that one."""

    def register(function: Routine) -> Routine:
        for name in names:
            real = name in ("orgqr", "syevd", "sytrd")
            for letter in "sd" if real else "cz" if name in ("ungqr", "heevd", "hetrd") else "sdcz":
                ROUTINES[f"lapack_{letter}{name}_ffi"] = function
        return function

    return register


def option(instruction: Instruction, name: str, default: str = "") -> str:
    """A letter of the backend config, `uplo = 76 : ui8`."""
    text = instruction.attribute_text("backend_config")
    found = re.search(rf"\b{name}\s*=\s*(\d+)", text.value_text) if text is not None else None
    if found is None:
        return default
    if not 65 <= int(found[1]) <= 90:
        raise execution_error(instruction, f"{name} = {found[1]} is no letter of LAPACK's")
    return chr(int(found[1]))


def element_type_of(instruction: Instruction) -> str:
    """What a routine computes in, by its name."""
    return _TYPES[str(instruction.attribute("custom_call_target"))[7]]


def _result_types(instruction: Instruction) -> list[np.dtype[np.generic]]:
    shape = instruction.shape
    parts = shape.elements if isinstance(shape, TupleShape) else (shape,)
    return [dtype_of(array_shape_of(part).element_type) for part in parts]


def _typed(instruction: Instruction, *results: Array) -> Value:
    """Results in the element types that the shape states: a tuple of them where it is one."""
    kinds = _result_types(instruction)
    if len(kinds) != len(results):
        raise execution_error(instruction, f"the routine has {len(results)} results, the shape stated {len(kinds)}")
    if any(np.iscomplexobj(r) and k.kind != "c" for r, k in zip(results, kinds, strict=True)):
        raise execution_error(instruction, "the routine's results are complex, and the shape stated is not")
    made = tuple(np.asarray(r).astype(k) for r, k in zip(results, kinds, strict=True))
    return made if isinstance(instruction.shape, TupleShape) else made[0]


def _not_finite(a: Array) -> Array:
    """Which matrices have an infinity or a NaN."""
    return ~np.asarray(np.isfinite(a).all(axis=(-1, -2)))


def _no_info(x: Array, drop: int = 2) -> Array:
    return np.zeros(x.shape[: x.ndim - drop], np.int32)


@routine("potrf")
def potrf(instruction: Instruction, a: Array) -> Value:
    """(factor in its triangle, the other triangle as it was; info: the first minor that is not positive)."""
    lower = option(instruction, "uplo", "L") == "L"
    element_type = element_type_of(instruction)
    wide = widest(a, element_type)
    matrix = wide if lower else np.conj(wide.swapaxes(-1, -2))
    factor = lower_factor(matrix)
    bad = np.isnan(factor).all(axis=(-1, -2)) if a.shape[-1] else np.zeros(a.shape[:-2], np.bool_)
    info = _no_info(a)
    for place in np.argwhere(bad):
        at = tuple(place)
        minors = [bool(np.isnan(lower_factor(matrix[at][: n + 1, : n + 1])).any()) for n in range(a.shape[-1])]
        info[at] = 1 + minors.index(True)
    factor = factor if lower else np.conj(factor.swapaxes(-1, -2))
    mask = np.tril(np.ones(a.shape[-2:], np.bool_)) if lower else np.triu(np.ones(a.shape[-2:], np.bool_))
    return _typed(instruction, np.where(mask, narrowed(factor, element_type), a), info)


@routine("getrf")
def getrf(instruction: Instruction, a: Array) -> Value:
    """(l below the diagonal and u, pivots from 1, info: the first zero on the diagonal of u)."""
    x = np.array(a)
    rows, columns = x.shape[-2:]
    flat = x.reshape(-1, rows, columns)
    count = min(rows, columns)
    pivots = np.zeros((flat.shape[0], count), np.int32)
    info = np.zeros(flat.shape[0], np.int32)
    for number, matrix in enumerate(flat):
        for step in range(count):
            size = np.abs(matrix[step:, step].real) + np.abs(matrix[step:, step].imag)
            pivot = step + int(np.argmax(np.where(np.isnan(size), -1, size)))
            pivots[number, step] = pivot + 1
            if matrix[pivot, step] == 0:
                info[number] = info[number] or step + 1
                continue
            if pivot != step:
                matrix[[step, pivot]] = matrix[[pivot, step]]
            matrix[step + 1 :, step] = matrix[step + 1 :, step] / matrix[step, step]
            below = matrix[step + 1 :, step, np.newaxis]
            matrix[step + 1 :, step + 1 :] -= below * matrix[step, step + 1 :]
    outer = x.shape[:-2]
    return _typed(instruction, flat.reshape(x.shape), pivots.reshape(*outer, count), info.reshape(outer))


@routine("geqrf")
def geqrf(instruction: Instruction, a: Array) -> Value:
    """(r in the upper triangle and Householder vectors below, their factors tau)."""
    if 0 in a.shape:
        tau = np.zeros((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
        return _with_info(instruction, a, tau)
    flat = [np.linalg.qr(m, mode="raw") for m in a.reshape(-1, *a.shape[-2:])]
    packed = np.stack([h.T for h, _ in flat]).reshape(a.shape)
    return _with_info(instruction, packed, np.stack([t for _, t in flat]).reshape(*a.shape[:-2], -1))


def _with_info(instruction: Instruction, packed: Array, tau: Array) -> Value:
    more = (_no_info(packed),) if len(_result_types(instruction)) == 3 else ()
    return _typed(instruction, packed, tau, *more)


@routine("orgqr", "ungqr")
def orgqr(instruction: Instruction, a: Array, tau: Array) -> Value:
    """The first columns of the product of the reflectors that geqrf packs."""
    element_type = element_type_of(instruction)
    packed, factors = align(widest(a, element_type), widest(tau, element_type))
    rows, columns = a.shape[-2:]
    product = np.broadcast_to(np.eye(rows, columns, dtype=packed.dtype), packed.shape).copy()
    for number in range(tau.shape[-1] - 1, -1, -1):
        vector = np.where(np.arange(rows) > number, packed[..., :, number], 0)
        vector[..., number] = 1
        along = np.einsum("...i,...ij->...j", np.conj(vector), product)
        product -= factors[..., number, np.newaxis, np.newaxis] * vector[..., :, np.newaxis] * along[..., np.newaxis, :]
    return _typed(instruction, narrowed(product, element_type))


@routine("gesdd")
def gesdd(instruction: Instruction, a: Array) -> Value:
    """(the operand, overwritten; singular values, u, v^H, info); mode N computes no vectors."""
    mode, kinds = option(instruction, "mode", "A"), instruction.shape
    assert isinstance(kinds, TupleShape)
    u_shape, v_shape = ((*a.shape[:-2], *array_shape_of(kinds.elements[i]).dimensions[-2:]) for i in (2, 3))
    bad = _not_finite(a)
    safe = np.where(bad[..., np.newaxis, np.newaxis], np.zeros((), a.dtype), a)
    u, v = np.zeros(u_shape, a.dtype), np.zeros(v_shape, a.dtype)
    if mode == "N":
        values = np.linalg.svd(safe, compute_uv=False)
    else:
        u, values, v = np.linalg.svd(safe, full_matrices=mode == "A")
    values = np.where(bad[..., np.newaxis], np.nan, values)
    return _typed(instruction, a, values, u, v, np.where(bad, -4, 0))


@routine("syevd", "heevd")
def syevd(instruction: Instruction, a: Array) -> Value:
    """(eigenvectors in columns, eigenvalues from the least, info); mode N leaves the operand."""
    upper = option(instruction, "uplo", "L") == "U"
    bad = _not_finite(a)
    safe = np.where(bad[..., np.newaxis, np.newaxis], np.zeros((), a.dtype), a)
    values, vectors = np.linalg.eigh(safe, UPLO="U" if upper else "L")
    return _typed(instruction, a if option(instruction, "mode", "V") == "N" else vectors, values, np.where(bad, 1, 0))


@routine("geev")
def geev(instruction: Instruction, a: Array) -> Value:
    """(eigenvalues: real and imaginary parts of a real matrix, left and right eigenvectors in columns, info).

    Vectors have length 1. The largest component of a left one is real and positive here; LAPACK's sign may be another.
    """
    bad = _not_finite(a)
    safe = np.where(bad[..., np.newaxis, np.newaxis], np.zeros((), a.dtype), a)
    values, right = (np.asarray(x) for x in np.linalg.eig(safe))
    left = np.zeros_like(right)
    if option(instruction, "compute_left", "N") == "V" and a.shape[-1]:
        left = np.conj(np.linalg.inv(right)).swapaxes(-1, -2)
        left = left / np.linalg.norm(left, axis=-2, keepdims=True)
        largest = np.take_along_axis(left, np.abs(left).argmax(axis=-2)[..., np.newaxis, :], axis=-2)
        left = left * np.conj(largest) / np.abs(largest)
    if option(instruction, "compute_right", "V") == "N":
        right = np.zeros_like(right)
    ends = (left.astype(np.complex128), right.astype(np.complex128), np.where(bad, 1, 0))
    if a.dtype.kind == "c":
        return _typed(instruction, values, *ends)
    return _typed(instruction, values.real, values.imag, *ends)


@routine("trsm")
def trsm(instruction: Instruction, a: Array, b: Array) -> Value:
    """x with op(a) x = b, or x op(a) = b where side is R."""
    element_type = element_type_of(instruction)
    matrix, x = align(widest(a, element_type), widest(b, element_type))
    lower, left = option(instruction, "uplo") == "L", option(instruction, "side") == "L"
    how = option(instruction, "trans_x", "N")
    if how == "C":
        matrix = np.conj(matrix)
    if not left:
        x = x.swapaxes(-1, -2)
    if (how != "N") == left:
        matrix, lower = matrix.swapaxes(-1, -2), not lower
    solved = substituted(matrix, x, lower, option(instruction, "diag") == "U")
    return _typed(instruction, narrowed(solved if left else solved.swapaxes(-1, -2), element_type))


@routine("gtsv")
def gtsv(instruction: Instruction, lower: Array, diagonal: Array, upper: Array, b: Array) -> Value:
    """(what is left of the three diagonals, x, info): elimination with row interchanges.

    Only x and info are what LAPACK says of them in words; the diagonals come back as they were.
    """
    element_type = element_type_of(instruction)
    low, middle, up, x = align(*(widest(v, element_type) for v in (lower, diagonal, upper, b)))
    size = diagonal.shape[-1]
    matrix = np.zeros((*middle.shape, size), middle.dtype)
    places = np.arange(size)
    matrix[..., places, places] = middle
    # The element of row 0 below, and of the last row above the diagonal, are not in the matrix.
    matrix[..., places[1:], places[:-1]] = low[..., 1:] if low.shape[-1] == size else low
    matrix[..., places[:-1], places[1:]] = up[..., : size - 1]
    bad: Array = np.asarray(np.linalg.matrix_rank(np.nan_to_num(matrix)) < size) if size else _not_finite(matrix)
    safe = np.where(bad[..., np.newaxis, np.newaxis], np.eye(size), matrix)
    solved = np.where(bad[..., np.newaxis, np.newaxis], x, np.linalg.solve(safe, x))
    return _typed(instruction, lower, diagonal, upper, narrowed(solved, element_type), np.where(bad, size, 0))
