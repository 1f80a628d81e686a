"""Ops that work element by element: one operand, two, or three.

Layouts: the result has the first operand's layout (for `select` the predicate's, unless that is a scalar) with tiles
and memory space. Two operands of unequal shapes are broadcast (sizes of one, and scalars) into a new row-major shape;
XLA's parser infers that, though its verifier then refuses the implicit broadcast.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_cp2ag.ir.shape import UNBOUNDED, ArrayShape, Shape, is_complex, is_floating, is_integer

from .arrays import (
    array,
    compatible_but_for_precision,
    flags,
    is_scalar,
    is_unbounded,
    same_sizes,
    text,
    with_dynamic,
    with_element_size,
    with_element_type,
)
from .element_types import (
    complex_type,
    component_type,
    higher_precision,
    is_number,
    is_signed,
    same_but_for_precision,
)
from .query import Query

FLOATING = ("ceil", "cbrt", "erf", "floor", "round-nearest-afz", "round-nearest-even", "is-finite")
FLOATING_OR_COMPLEX = (
    *("acos", "acosh", "asin", "asinh", "atanh", "cosine", "cosh", "exponential", "exponential-minus-one", "imag"),
    *("log", "log-plus-one", "logistic", "real", "rsqrt", "sine", "sinh", "sqrt", "tan", "tanh"),
)
INTEGER = ("count-leading-zeros", "popcnt")
ARITHMETIC = (
    *("atan2", "divide", "power", "remainder", "shift-left", "shift-right-arithmetic", "shift-right-logical"),
    "subtract",
)
ANYTHING = ("add", "compare", "maximum", "minimum", "mulhi", "multiply")
BITWISE = ("and", "or", "xor")

UNARY = (*FLOATING, *FLOATING_OR_COMPLEX, *INTEGER, "abs", "negate", "not", "sign")
BINARY = (*ARITHMETIC, *ANYTHING, *BITWISE, "complex")


def _takes(opcode: str) -> tuple[str, Callable[[str], bool]]:
    """The element types a unary op takes, in words and as a test."""
    if opcode in FLOATING:
        return "floating-point", is_floating
    if opcode in FLOATING_OR_COMPLEX:
        return "floating-point or complex", lambda t: is_floating(t) or is_complex(t)
    if opcode in INTEGER:
        return "integer", is_integer
    if opcode == "negate":
        return "integer, floating-point or complex", is_number
    if opcode == "not":
        return "pred or integer", lambda t: t == "pred" or is_integer(t)
    return "signed, floating-point or complex", lambda t: is_signed(t) or is_complex(t)


def unary(query: Query) -> Shape:
    """`abs` to `tanh`: the operand's shape; a real type for parts of complex numbers, pred for `is-finite`."""
    operand = query.array(0)
    words, takes = _takes(query.opcode)
    if not takes(operand.element_type):
        query.refuse(f"takes {words} elements, the operand is {text(operand)}")
    if query.opcode == "is-finite":
        return with_element_type(operand, "pred")
    if query.opcode in ("abs", "real", "imag") and is_complex(operand.element_type):
        return with_element_type(operand, component_type(operand.element_type))
    return operand


def binary(query: Query) -> Shape:
    """`add` to `xor`, `compare` and `complex`."""
    left, right = query.array(0), query.array(1)
    for shape in (left, right):
        if query.opcode in ARITHMETIC and shape.element_type == "pred":
            query.refuse(f"takes numbers, not {text(shape)}")
    if query.opcode in BITWISE and not (left.element_type == "pred" or is_integer(left.element_type)):
        query.refuse(f"takes pred or integer elements, the operands are {text(left)} and {text(right)}")
    if query.opcode == "complex" and not is_floating(left.element_type):
        query.refuse(f"takes floating-point elements, the operands are {text(left)} and {text(right)}")
    if not same_but_for_precision(left.element_type, right.element_type):
        query.refuse(f"the operands' element types differ: {text(left)} and {text(right)}")
    if query.opcode == "atan2" and not (is_floating(left.element_type) or is_complex(left.element_type)):
        query.refuse(f"takes floating-point or complex elements, the operands are {text(left)} and {text(right)}")
    result = _binary_result(query, left, right)
    if query.opcode == "compare":
        return with_element_type(result, "pred")
    if query.opcode == "complex":
        whole = complex_type(left.element_type)
        if whole is None or left.element_type != right.element_type:
            query.refuse(f"takes two f32 or two f64 operands, not {text(left)} and {text(right)}")
        return with_element_type(result, whole)
    return result


def check_comparison(query: Query) -> None:
    """The kind of comparison, where the text states one, is the one of the element type."""
    operand, kind = query.array(0), query.string("type", "")
    if is_floating(operand.element_type):
        kinds: tuple[str, ...] = ("FLOAT", "TOTALORDER")
    elif is_complex(operand.element_type):
        kinds = ("FLOAT",)
    else:
        kinds = ("SIGNED",) if operand.element_type[0] == "s" else ("UNSIGNED",)
    if kind and kind not in kinds:
        query.refuse(f"compares {text(operand)} by type={' or '.join(kinds)}, not {kind}")


def common_type(query: Query, *shapes: ArrayShape) -> str:
    """The element type of the result where elements of several shapes meet."""
    result = shapes[0].element_type
    for shape in shapes[1:]:
        higher = higher_precision(shape.element_type, result)
        if higher is None:
            query.refuse(f"no result type for {result} with {shape.element_type}")
        result = higher
    return result


def _binary_result(query: Query, left: ArrayShape, right: ArrayShape) -> ArrayShape:
    element_type = common_type(query, left, right)
    if same_sizes(left, right) and not is_unbounded(left) and not is_unbounded(right):
        either = [a or b for a, b in zip(flags(left), flags(right), strict=True)]
        return with_dynamic(with_element_type(left, element_type), either)
    if left.rank != right.rank:
        smaller, larger = sorted((left, right), key=lambda shape: shape.rank)
        if smaller.rank:
            query.refuse(f"the operands' ranks differ: {text(left)} and {text(right)}")
        return array(element_type, larger.dimensions, flags(larger))
    dimensions: list[int] = []
    dynamic: list[bool] = []
    for i, (a, b) in enumerate(zip(left.dimensions, right.dimensions, strict=True)):
        other = flags(right)[i]
        if a == b:
            size, flag = a, flags(left)[i] or other
        elif a == 1 or (a == UNBOUNDED and b != 1):
            size, flag = b, other
        elif b in (1, UNBOUNDED):
            size, flag = a, flags(left)[i]
        else:
            query.refuse(f"the operands' shapes differ: {text(left)} and {text(right)}")
        dimensions.append(size)
        dynamic.append(flag)
    return array(element_type, dimensions, dynamic)


def clamp(query: Query) -> Shape:
    """`clamp(low, operand, high)`: the operand's shape; each bound has it too or is a scalar."""
    low, operand, high = query.array(0), query.array(1), query.array(2)
    for bound in (low, high):
        if not same_but_for_precision(bound.element_type, operand.element_type):
            query.refuse(f"the operands' element types differ: {text(low)}, {text(operand)} and {text(high)}")
        if bound.rank and not compatible_but_for_precision(bound, operand):
            query.refuse(f"the bound {text(bound)} does not fit the operand {text(operand)}")
    if low.rank and high.rank and not compatible_but_for_precision(low, high):
        query.refuse(f"the bounds {text(low)} and {text(high)} differ")
    return operand


def select(query: Query) -> Shape:
    """`select(predicate, on_true, on_false)`: in the predicate's layout unless that is a scalar."""
    predicate, on_true, on_false = query.array(0), query.array(1), query.array(2)
    if not compatible_but_for_precision(on_true, on_false):
        query.refuse(f"the choices differ: {text(on_true)} and {text(on_false)}")
    if predicate.element_type != "pred":
        query.refuse(f"the predicate has to be of pred, it is {text(predicate)}")
    if predicate.rank and not (same_sizes(predicate, on_true) and same_sizes(predicate, on_false)):
        query.refuse(f"the predicate {text(predicate)} does not fit the choices {text(on_true)} and {text(on_false)}")
    model = on_true if is_scalar(predicate) else predicate
    dimensions = list(model.dimensions)
    dynamic = list(flags(model))
    for i, (a, b) in enumerate(zip(on_true.dimensions, on_false.dimensions, strict=True)):
        if UNBOUNDED in (a, b):
            dimensions[i] = b if a == UNBOUNDED else a
            dynamic[i] = flags(on_true)[i] and flags(on_false)[i]
        else:
            dynamic[i] = flags(model)[i] or flags(on_true)[i] or flags(on_false)[i]
    result = with_element_type(model, common_type(query, on_true, on_false)).with_dimensions(tuple(dimensions))
    packed = on_true.layout.element_size_in_bits if on_true.layout else 0
    return with_element_size(with_dynamic(result, dynamic), packed)
