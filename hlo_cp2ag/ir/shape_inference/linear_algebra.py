"""fft, cholesky, triangular-solve: the operand's shape in its layout, but for what a real transform changes."""

from __future__ import annotations

from hlo_cp2ag.ir.shape import UNBOUNDED, ArrayShape, Shape, is_complex, is_floating

from .arrays import flags, sizes_agree, text, with_dynamic, with_element_type
from .element_types import complex_type, component_type
from .query import Query


def fft(query: Query) -> Shape:
    """FFT and IFFT keep the shape; RFFT halves the last dimension, n to n // 2 + 1, and IRFFT makes it n again."""
    operand = query.array(0)
    kind = query.string("fft_type")
    lengths = query.integers("fft_length")
    if not 1 <= len(lengths) <= 3:
        query.refuse(f"takes 1 to 3 lengths, fft_length has {len(lengths)}")
    if operand.rank < len(lengths):
        query.refuse(f"fft_length has {len(lengths)} dimensions, the operand is {text(operand)}")
    if kind == "RFFT":
        if operand.element_type not in ("f32", "f64"):
            query.refuse(f"RFFT takes f32 or f64, the operand is {text(operand)}")
    elif not is_complex(operand.element_type):
        query.refuse(f"{kind} takes complex elements, the operand is {text(operand)}")
    if kind in ("FFT", "IFFT"):
        return operand
    inner, last = operand.dimensions[-len(lengths) :], lengths[-1]
    for size, length in zip(inner[:-1], lengths[:-1], strict=True):
        if size != length and not (kind == "RFFT" and size == UNBOUNDED):
            query.refuse(f"fft_length does not fit the operand {text(operand)}")
    if kind == "RFFT":
        if not sizes_agree(inner[-1], last):
            query.refuse(f"fft_length does not fit the operand {text(operand)}")
        result = with_element_type(operand, complex_type(operand.element_type) or "")
        return _with_last_size(result, last // 2 + 1) if last else result
    if not sizes_agree(inner[-1], last // 2 + 1) and (inner[-1] or last):
        query.refuse(f"fft_length asks for {last // 2 + 1} numbers in the last dimension of {text(operand)}")
    return _with_last_size(with_element_type(operand, component_type(operand.element_type)), last)


def _with_last_size(shape: ArrayShape, size: int) -> ArrayShape:
    dynamic = flags(shape)
    last = dynamic[-1] and shape.dimensions[-1] != UNBOUNDED
    return with_dynamic(shape.with_dimensions((*shape.dimensions[:-1], size)), (*dynamic[:-1], last))


def cholesky(query: Query) -> Shape:
    """The shape of the square matrices."""
    return _square(query, query.array(0))


def triangular_solve(query: Query) -> Shape:
    """The shape of operand 1, the right (or, without `left_side`, left) hand side."""
    matrix, other = query.array(0), query.array(1)
    if matrix.element_type != other.element_type:
        query.refuse(f"the operands' element types differ: {text(matrix)} and {text(other)}")
    _square(query, matrix)
    if matrix.rank != other.rank or matrix.dimensions[:-2] != other.dimensions[:-2]:
        query.refuse(f"the operands' batch dimensions differ: {text(matrix)} and {text(other)}")
    shared = other.dimensions[-2 if query.attributes.get("left_side", False) else -1]
    if not sizes_agree(matrix.dimensions[-1], shared):
        query.refuse(f"the operands share no dimension: {text(matrix)} and {text(other)}")
    if query.string("transpose_a", "TRANSPOSE_INVALID") not in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
        query.refuse("needs transpose_a: NO_TRANSPOSE, TRANSPOSE or ADJOINT")
    return other


def _square(query: Query, matrix: ArrayShape) -> ArrayShape:
    if not is_floating(matrix.element_type) and not is_complex(matrix.element_type):
        query.refuse(f"takes floating-point or complex elements, the operand is {text(matrix)}")
    if matrix.rank < 2 or not sizes_agree(*matrix.dimensions[-2:]):
        query.refuse(f"the operand {text(matrix)} has to be a square matrix")
    return matrix
