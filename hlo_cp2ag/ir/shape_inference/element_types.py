"""Which element types an op takes, and which one comes out where two floating-point types meet."""

from __future__ import annotations

from hlo_cp2ag.ir.shape import ArrayShape, element_bits, is_complex, is_floating, is_integer

_COMPONENT = {"c64": "f32", "c128": "f64"}
_COMPLEX = {component: whole for whole, component in _COMPONENT.items()}

_RANGE_AND_PRECISION = {
    "f64": (1024, 53),
    "f32": (128, 24),
    "bf16": (128, 8),
    "f16": (16, 11),
    "f8e8m0fnu": (128, 1),
    "f8e5m2": (16, 3),
    "f8e5m2fnuz": (16, 3),
    "f8e4m3fn": (9, 4),
    "f8e4m3": (8, 4),
    "f8e4m3fnuz": (8, 4),
    "f8e4m3b11fnuz": (5, 4),
    "f8e3m4": (4, 5),
    "f4e2m1fn": (3, 2),
}
"""The first power of two past the largest number, and the significand's bits."""


def component_type(element_type: str) -> str:
    """The real type of a complex type's two parts; any other type itself."""
    return _COMPONENT.get(element_type, element_type)


def complex_type(element_type: str) -> str | None:
    """The complex type with parts of this type: c64 of f32, c128 of f64, else none."""
    return _COMPLEX.get(element_type)


def is_signed(element_type: str) -> bool:
    """Whether the type has negative numbers and is not complex."""
    return element_type[0] == "s" or is_floating(element_type)


def is_number(element_type: str) -> bool:
    """Whether the type is an integer, floating-point or complex one."""
    return is_integer(element_type) or is_floating(element_type) or is_complex(element_type)


def same_but_for_precision(a: str, b: str) -> bool:
    """Whether two element types are equal or both floating-point: XLA lets ops mix floating-point types."""
    return a == b or (is_floating(a) and is_floating(b))


def higher_precision(a: str, b: str) -> str | None:
    """The type of the result where elements of types `a` and `b` meet; None if XLA has no order between them.

    Complex goes before real, then the greater range (any floating-point type before any integer), then precision,
    then width, then signed. Measured over all pairs through XLA's inference for `dot`; the pairs without an order (on
    which XLA aborts) are f8e4m3 and f8e4m3fnuz, f8e5m2 and f8e5m2fnuz, pred and u1.
    """
    if a == b:
        return a
    rank_a, rank_b = _rank(a), _rank(b)
    if rank_a == rank_b:
        return None
    return a if rank_a > rank_b else b


def _rank(element_type: str) -> tuple[bool, int, int, int, bool]:
    component = component_type(element_type)
    reach, precision = _RANGE_AND_PRECISION.get(component, (-1, -1))
    bits = 1 if component == "pred" else element_bits(component)
    return is_complex(element_type), reach, precision, bits, component[0] == "s"


def bitcast_dimensions(shape: ArrayShape, to_type: str) -> tuple[int, ...] | None:
    """The sizes after `bitcast-convert` to a type: a minor dimension appears or goes where widths differ.

    None if the widths do not divide each other or the minor dimension does not hold one element of the wider type.
    """
    narrow, wide = sorted((element_bits(shape.element_type), element_bits(to_type)))
    if narrow == 0 or wide % narrow:
        return None
    ratio = wide // narrow
    if ratio == 1:
        return shape.dimensions
    if element_bits(to_type) == narrow:
        return (*shape.dimensions, ratio)
    return shape.dimensions[:-1] if shape.dimensions[-1:] == (ratio,) else None
