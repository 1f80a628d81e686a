"""Elementwise ops of two operands, and the machinery by which unary and binary ops get their element types.

A function here computes on lifted arrays (`arithmetic.lift`: f32 for narrower floats, s32 or u32 for s4, u2 ...); what
it returns is rounded or wrapped to the result's element type. Where the operands' floating-point types differ (XLA
allows it), numpy computes in the wider one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift, lower, round_to, wrap
from hlo_cp2ag.executor.registry import Context, array_shape, execution_error, op, precheck
from hlo_cp2ag.executor.values import Array, align, array_shape_of
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import element_bits, is_floating, is_integer

UNARY: dict[str, Callable[[Array, str], Array]] = {}
"""By opcode: the op on one array of an element type, `[...]` to `[...]`, in that element type."""
BINARY: dict[str, Callable[[Array, Array, str], Array]] = {}
"""By opcode: the op on two arrays of one element type, in that element type; shapes broadcast as in numpy."""

_Unary = Callable[[Array], Array]
_Binary = Callable[[Array, Array], Array]


def widen(x: Array) -> Array:
    """f32 as f64 and c64 as c128, where transcendental functions keep within half a unit in the last place of f32."""
    if x.dtype == np.float32:
        return x.astype(np.float64)
    return x.astype(np.complex128) if x.dtype == np.complex64 else x


def unary(opcode: str, *, wide: bool = False) -> Callable[[_Unary], _Unary]:
    """Registers a function of one lifted array; with `wide`, f32 and c64 are computed in twice the precision."""

    def register(function: _Unary) -> _Unary:
        def typed(x: Array, element_type: str) -> Array:
            lifted = lift(x, element_type)
            if wide and element_type in ("f32", "c64"):
                lifted = widen(lifted)
            return lower(function(lifted), element_type)

        def run(context: Context, instruction: Instruction, x: Array) -> Array:
            result = array_shape(instruction).element_type
            if x.dtype == dtype_of(result):
                return typed(x, result)
            operand = array_shape_of(context.operand_shapes(instruction)[0]).element_type
            return as_type(typed(x, operand), result)

        UNARY[opcode] = typed
        _register(opcode, function, run)
        return function

    return register


def binary(opcode: str, *, wide: bool = False) -> Callable[[_Binary], _Binary]:
    """Registers a function of two lifted arrays; with `wide`, f32 and c64 are computed in twice the precision."""

    def register(function: _Binary) -> _Binary:
        def typed(a: Array, b: Array, element_type: str) -> Array:
            x, y = lift(a, element_type), lift(b, element_type)
            if wide and element_type in ("f32", "c64"):
                x, y = widen(x), widen(y)
            return lower(function(x, y), element_type)

        def run(context: Context, instruction: Instruction, a: Array, b: Array) -> Array:
            result = array_shape(instruction).element_type
            if a.dtype == b.dtype == dtype_of(result):
                return typed(a, b, result)
            lhs, rhs = (array_shape_of(s).element_type for s in context.operand_shapes(instruction))
            common = wider(lhs, rhs)
            return as_type(typed(as_type(a, common), as_type(b, common), common), result)

        BINARY[opcode] = typed
        _register(opcode, function, run)
        return function

    return register


def _register(opcode: str, function: Callable[..., Array], run: Callable[..., Array]) -> None:
    run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
    op(opcode)(run)


def wider(a: str, b: str) -> str:
    """The floating-point type that holds both: f32 for bf16 and f16."""
    if a == b or element_bits(a) != element_bits(b):
        return a if element_bits(a) >= element_bits(b) else b
    return "f32" if is_floating(a) else a


def as_type(x: Array, element_type: str) -> Array:
    """Floats of any type rounded to another."""
    target = dtype_of(element_type)
    return x if x.dtype == target or not is_floating(element_type) else round_to(_wide_float(x), element_type)


def _wide_float(x: Array) -> Array:
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)


# ---- arithmetic ------------------------------------------------------------------------------------------------------


@binary("add")
def add(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Element-wise binary arithmetic; integers wrap, pred is a disjunction."""
    return a + b


@binary("subtract")
def subtract(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Element-wise binary arithmetic; integers wrap, pred is an exclusive or."""
    return a ^ b if a.dtype == np.bool_ else a - b


@binary("multiply")
def multiply(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Element-wise binary arithmetic; integers wrap, pred is a conjunction.

    Complex numbers are multiplied by the schoolbook formula, as XLA does: infinities are not mended.
    """
    if a.dtype.kind != "c":
        return a * b
    real, imaginary = a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
    return make_complex(real, imaginary, a.dtype)


def make_complex(real: Array, imaginary: Array, dtype: np.dtype[np.generic]) -> Array:
    """Complex numbers of two parts; shapes broadcast."""
    result = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), dtype)
    result.real, result.imag = real, imaginary
    return result


@binary("divide")
def divide(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Div.

    Integers round towards zero, x / 0 is -1 (all ones), INT_MIN / -1 is INT_MIN.
    """
    if a.dtype == np.bool_:
        return a & b
    if a.dtype.kind == "c":
        return complex_divide(a, b)
    if a.dtype.kind == "f":
        return a / b
    nonzero = np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        return np.where(b == 0, ~a.dtype.type(0), a // nonzero)
    ordinary = np.where(nonzero == -1, a.dtype.type(1), nonzero)
    quotient = (a - np.fmod(a, ordinary)) // ordinary
    return np.where(b == 0, a.dtype.type(-1), np.where(b == -1, np.negative(a), quotient))


def complex_divide(a: Array, b: Array) -> Array:
    """a / b, c64 in c128; where that gives NaN, the infinities and zeros of C99's annex G, as XLA gives them."""
    dtype = a.dtype
    x, y = widen(a), widen(b)
    result = np.asarray(x / y)
    odd = (np.isnan(result.real) & np.isnan(result.imag)) | (y == 0)
    if odd.any():
        x, y = np.broadcast_arrays(x, y)
        result[odd] = _divide_with_infinities(x[odd], y[odd])
    return result.astype(dtype)


def _divide_with_infinities(x: Array, y: Array) -> Array:
    """C99 annex G.5.1: the cases in which the plain formula gives NaN though the result is infinite or zero."""
    a, b, c, d = x.real, x.imag, y.real, y.imag
    result = make_complex(np.full(a.shape, np.nan), np.full(a.shape, np.nan), x.dtype)
    zero_divisor = (c == 0) & (d == 0) & (~np.isnan(a) | ~np.isnan(b))
    infinity = np.copysign(np.inf, c)
    result[zero_divisor] = make_complex(infinity * a, infinity * b, x.dtype)[zero_divisor]
    ones = [np.copysign(np.where(np.isinf(part), 1.0, 0.0), part) for part in (a, b, c, d)]
    infinite = (np.isinf(a) | np.isinf(b)) & np.isfinite(c) & np.isfinite(d) & ~zero_divisor
    p, q = ones[0], ones[1]
    result[infinite] = make_complex(np.inf * (p * c + q * d), np.inf * (q * c - p * d), x.dtype)[infinite]
    vanishing = (np.isinf(c) | np.isinf(d)) & np.isfinite(a) & np.isfinite(b)
    r, s = ones[2], ones[3]
    result[vanishing] = make_complex(0.0 * (a * r + b * s), 0.0 * (b * r - a * s), x.dtype)[vanishing]
    return result


@binary("remainder")
def remainder(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Rem: the sign of the dividend; x % 0 is x for integers, INT_MIN % -1 is 0."""
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    divisor = np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "i":
        divisor = np.where(divisor == -1, b.dtype.type(1), divisor)
    return np.where(b == 0, a, np.fmod(a, divisor))


@binary("maximum")
def maximum(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Max: NaN if either is, +0 above -0; complex numbers in dictionary order."""
    if a.dtype.kind == "c":
        return np.where((a.real > b.real) | ((a.real == b.real) & (a.imag >= b.imag)), a, b)
    larger = np.maximum(a, b)
    if a.dtype.kind == "f":
        larger = np.where((a == 0) & (b == 0), a + b, larger)
    return larger


@binary("minimum")
def minimum(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Min: NaN if either is, -0 below +0; complex numbers in dictionary order."""
    if a.dtype.kind == "c":
        return np.where((a.real < b.real) | ((a.real == b.real) & (a.imag <= b.imag)), a, b)
    smaller = np.minimum(a, b)
    if a.dtype.kind == "f":
        smaller = np.where((a == 0) & (b == 0), -(-a - b), smaller)
    return smaller


@binary("power")
def power(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Pow; integers wrap, and negative exponents give what exact division would."""
    if a.dtype.kind == "f":
        wide = a.dtype == np.float32
        return np.power(widen(a), widen(b)) if wide else np.power(a, b)
    if a.dtype.kind == "c":
        return complex_power(widen(a), widen(b))
    return integer_power(a, b)


def complex_power(a: Array, b: Array) -> Array:
    """|a|^Re(b) exp(-Im(b) arg(a)) at the angle Re(b) arg(a) + Im(b) log|a|, as XLA emits it.

    Anything to the power 0 is 1, and 0 to a power with positive real part is 0.
    """
    a, b = np.broadcast_arrays(a, b)
    length, angle = np.hypot(a.real, a.imag), np.arctan2(a.imag, a.real)
    size = np.power(length, b.real) * np.exp(-b.imag * angle)
    turn = b.real * angle + b.imag * np.log(length)
    result = make_complex(size * np.cos(turn), size * np.sin(turn), a.dtype)
    result = np.where((a == 0) & (b.imag == 0) & (b.real > 0), 0, result)
    return np.where(b == 0, 1, result)


def integer_power(a: Array, b: Array) -> Array:
    """By squaring, modulo 2^bits; a negative exponent gives 0, but for the bases 1 and -1."""
    a, b = np.broadcast_arrays(a, b)
    result, base, exponent = np.ones_like(a), a.copy(), np.where(b < 0, 0, b)
    while (exponent != 0).any():
        result = np.where(exponent & 1, result * base, result)
        base, exponent = base * base, exponent >> 1
    if a.dtype.kind == "i":
        parity = np.where(b & 1, a, a.dtype.type(1))
        negative = np.where(a == 1, a, np.where(a == -1, parity, a.dtype.type(0)))
        result = np.where(b < 0, negative, result)
    return result


@binary("atan2", wide=True)
def atan2(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Atan2; of complex numbers -i log((b + i a) / sqrt(a a + b b))."""
    if a.dtype.kind == "c":
        return np.asarray(-1j * np.log((b + 1j * a) / np.sqrt(a * a + b * b)))
    return np.arctan2(a, b)


# ---- bits ------------------------------------------------------------------------------------------------------------


@binary("and")
def and_(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Element-wise binary arithmetic, And."""
    return a & b


@binary("or")
def or_(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Element-wise binary arithmetic, Or."""
    return a | b


@binary("xor")
def xor(a: Array, b: Array) -> Array:
    """Semantics: XLA operation semantics, Element-wise binary arithmetic, Xor."""
    return a ^ b


def _shift(opcode: str, function: Callable[[Array, Array, int], Array]) -> None:
    def typed(a: Array, b: Array, element_type: str) -> Array:
        bits = element_bits(element_type)
        return lower(function(lift(a, element_type), lift(b, element_type), bits), element_type)

    def run(context: Context, instruction: Instruction, a: Array, b: Array) -> Array:
        return typed(a, b, array_shape(instruction).element_type)

    BINARY[opcode] = typed
    _register(opcode, function, run)


def _amount(b: Array, bits: int) -> tuple[Array, Array]:
    """The shift amount, cut so that numpy shifts by it, and where it is negative or too large."""
    beyond = (b < 0) | (b >= bits)
    return np.where(beyond, b.dtype.type(0), b), beyond


def shift_left(a: Array, b: Array, bits: int) -> Array:
    """Semantics: XLA operation semantics, shift-left; amounts are unsigned, those past the width give 0."""
    amount, beyond = _amount(b, bits)
    return np.where(beyond, a.dtype.type(0), a << amount)


def shift_right_arithmetic(a: Array, b: Array, bits: int) -> Array:
    """Semantics: XLA operation semantics, shift-right-arithmetic; amounts past the width give the sign everywhere."""
    amount, beyond = _amount(b, bits)
    if a.dtype.kind == "u":  # the sign is the highest bit of the type, whatever the type says
        signed = a.astype(f"i{a.dtype.itemsize}")
        spare = signed.dtype.type(a.dtype.itemsize * 8 - bits)
        signed = (signed << spare) >> spare
        return np.asarray(signed >> np.where(beyond, bits - 1, amount).astype(signed.dtype)).astype(a.dtype)
    return np.asarray(a >> np.where(beyond, a.dtype.type(bits - 1), amount))


def shift_right_logical(a: Array, b: Array, bits: int) -> Array:
    """Semantics: XLA operation semantics, shift-right-logical; zeros come in, amounts past the width give 0."""
    amount, beyond = _amount(b, bits)
    unsigned = a.astype(f"u{a.dtype.itemsize}")
    if bits < 8:
        unsigned &= unsigned.dtype.type((1 << bits) - 1)
    shifted = np.where(beyond, unsigned.dtype.type(0), unsigned >> amount.astype(unsigned.dtype))
    result: Array = shifted.astype(a.dtype)
    return result


_shift("shift-left", shift_left)
_shift("shift-right-arithmetic", shift_right_arithmetic)
_shift("shift-right-logical", shift_right_logical)


# ---- complex numbers from parts --------------------------------------------------------------------------------------


@op("complex")
def complex_(context: Context, instruction: Instruction, real: Array, imaginary: Array) -> Array:
    """Semantics: XLA operation semantics, Complex: a complex number of two real parts."""
    return make_complex(real, imaginary, dtype_of(array_shape(instruction).element_type))


@op("mulhi")
def mulhi(context: Context, instruction: Instruction, a: Array, b: Array) -> Array:
    """Semantics: XLA, HloOpcode::kMulhi: the upper half of the product of two integers of one type."""
    element_type = array_shape(instruction).element_type
    x, y = (lift(v, element_type).astype(object) for v in align(a, b))
    upper: Array = (x * y) >> element_bits(element_type)
    return wrap(upper.astype(np.uint64 if element_type == "u64" else np.int64), element_type)


@precheck("mulhi")
def check_mulhi(context: Context, instruction: Instruction) -> None:
    """It takes integers."""
    if not is_integer(array_shape(instruction).element_type):
        raise execution_error(instruction, "mulhi: takes integer elements")
