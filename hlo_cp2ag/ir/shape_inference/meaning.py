"""What XLA's shape inference lets pass although no back end of XLA gives it a meaning.

XLA's verifier compares shapes; that a shift takes integers, or that batches of a gather are of one size, is refused only
later, where XLA imports the module as StableHLO or makes code of it (measured, jaxlib 0.10.2). What is asked here is
asked beside `check_shape`, of modules that are to be run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hlo_cp2ag.ir.element_types import FLOAT_FORMATS
from hlo_cp2ag.ir.shape import ArrayShape, Shape, element_bits, is_complex, is_floating, is_integer, leaves

from .arrays import is_scalar, text
from .element_types import component_type, same_but_for_precision
from .errors import ShapeInferenceError
from .gather_scatter import check_batches
from .infer import make_query
from .query import Called, Query


def check_meaning(
    opcode: str, stated: Shape, operand_shapes: Sequence[Shape], attributes: Mapping[str, object], called: Called
) -> None:
    """Return if an instruction that `check_shape` has accepted can be run; arguments as there.

    Raises ShapeInferenceError.
    """
    rule = _RULES.get(opcode)
    if rule is not None:
        rule(make_query(opcode, operand_shapes, attributes, called), stated)


def _shift(query: Query, stated: Shape) -> None:
    for shape in query.arrays():
        if not is_integer(shape.element_type):
            query.refuse(f"takes integer elements, not {text(shape)}")


def _real(query: Query, stated: Shape) -> None:
    for shape in query.arrays():
        if is_complex(shape.element_type):
            query.refuse(f"takes real elements, not {text(shape)}")


def _reduce_precision(query: Query, stated: Shape) -> None:
    """f8e8m0fnu has neither sign nor mantissa, and how XLA's CPU rounds it depends on how it is compiled; f6 types XLA lacks."""
    element_type = query.array(0).element_type
    if element_type in ("f8e8m0fnu", "f6e2m3fn", "f6e3m2fn"):
        query.refuse(f"does not take elements of {element_type}")


def _bitcast(query: Query, stated: Shape) -> None:
    """Shape inference compares bytes in memory, of which an element narrower than a byte may have one to itself."""
    operand = query.operands[0]
    if not isinstance(operand, ArrayShape) or not isinstance(stated, ArrayShape):
        return
    widths = element_bits(operand.element_type), element_bits(stated.element_type)
    if widths[0] != widths[1] and widths[0] * operand.element_count != widths[1] * stated.element_count:
        query.refuse(f"{text(operand)} and {text(stated)} do not have the same number of bits")


# ---- products --------------------------------------------------------------------------------------------------------


def _kind(element_type: str) -> int:
    """pred, integers, floating-point numbers, complex ones: each holds something of those before it."""
    if is_complex(element_type):
        return 3
    return 2 if is_floating(element_type) else 1 if is_integer(element_type) else 0


def _dot(query: Query, stated: Shape) -> None:
    """XLA turns operands into the result's type before it multiplies, others than it does where that loses numbers."""
    assert isinstance(stated, ArrayShape)
    for shape in (query.array(0), query.array(1)):
        if _kind(shape.element_type) > _kind(stated.element_type):
            query.refuse(f"products of {text(shape)} are no elements of the result {text(stated)}")


def _convolution(query: Query, stated: Shape) -> None:
    _dot(query, stated)
    image, kernel = query.array(0), query.array(1)
    a, b = image.element_type, kernel.element_type
    if not same_but_for_precision(a, b) and not _holds(a, b) and not _holds(b, a):
        query.refuse(f"neither operand's type holds the other's numbers: {text(image)} and {text(kernel)}")


def _holds(wide: str, narrow: str) -> bool:
    """Whether every number of one type is one of the other, as far as range and digits go."""
    if wide == narrow:
        return True
    if is_complex(wide):
        return _holds(component_type(wide), component_type(narrow))
    if is_complex(narrow):
        return False
    if narrow == "pred":
        return wide != "f8e8m0fnu"  # it has no zero
    if is_integer(narrow):
        bits = element_bits(narrow) - (narrow[0] == "s")
        if is_integer(wide):
            return bits <= element_bits(wide) - (wide[0] == "s") and not (narrow[0] == "s" and wide[0] == "u")
        return is_floating(wide) and _significand(wide) >= bits and FLOAT_FORMATS[wide].limit > 2.0**bits
    return False


def _significand(element_type: str) -> int:
    """The bits of a floating-point type's numbers, the implied one included."""
    known = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "f8e3m4": 5, "f8e8m0fnu": 1, "f4e2m1fn": 2, "f6e3m2fn": 3}
    if element_type in known:
        return known[element_type]
    return 3 if element_type.startswith("f8e5m2") else 4


# ---- fft, collectives ------------------------------------------------------------------------------------------------


def _fft(query: Query, stated: Shape) -> None:
    """Of FFT and IFFT the lengths are the sizes as well; those of the others shape inference has asked."""
    if query.string("fft_type") not in ("FFT", "IFFT"):
        return
    operand, lengths = query.array(0), query.integers("fft_length")
    sizes = operand.dimensions[operand.rank - len(lengths) :]
    if sizes != lengths:
        wanted, found = (",".join(map(str, numbers)) for numbers in (sizes, lengths))
        query.refuse(f"fft_length={{{found}}} are not the last sizes {{{wanted}}} of {text(operand)}")


def _reducing(query: Query, stated: Shape) -> None:
    """The reducer takes two elements and returns one, but for which floating-point type they are of."""
    reducer = query.program("to_apply")
    if len(reducer.parameters) != 2:
        query.refuse(f"the computation {reducer} takes {len(reducer.parameters)} parameters, not 2")
    for shape in query.arrays():
        for part in (*reducer.parameters, reducer.result):
            if not isinstance(part, ArrayShape) or not is_scalar(part):
                query.refuse(f"the computation {reducer} has to take and to return scalars")
            if not same_but_for_precision(part.element_type, shape.element_type):
                query.refuse(f"elements of {text(shape)} are not what the computation {reducer} takes and returns")


_RULES: Mapping[str, Callable[[Query, Shape], None]] = {
    **dict.fromkeys(("shift-left", "shift-right-arithmetic", "shift-right-logical"), _shift),
    **dict.fromkeys(("remainder", "topk"), _real),
    "bitcast": _bitcast,
    "reduce-precision": _reduce_precision,
    "dot": _dot,
    "convolution": _convolution,
    "fft": _fft,
    **dict.fromkeys(("gather", "scatter"), lambda query, stated: check_batches(query)),
    **dict.fromkeys(("all-reduce", "all-reduce-start", "reduce-scatter"), _reducing),
}


# ---- layouts ---------------------------------------------------------------------------------------------------------


def check_layout(shape: Shape) -> None:
    """XLA's parser reads any numbers for a layout; a module is refused unless they are the dimensions, each once.

    Raises ShapeInferenceError.
    """
    for leaf in leaves(shape):
        array = leaf if isinstance(leaf, ArrayShape) else leaf.array
        if array.layout is not None and sorted(array.layout.minor_to_major) != list(range(array.rank)):
            order = ",".join(map(str, array.layout.minor_to_major))
            raise ShapeInferenceError(f"the layout {{{order}}} does not name each dimension of {text(array)} once")
