"""Whether a stated result shape goes with the operands, as XLA's verifier asks it (layouts aside)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hlo_cp2ag.ir.shape import (
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    Shape,
    TupleShape,
    compatible,
    element_bits,
    is_complex,
    is_floating,
)

from . import collectives, control, elementwise
from .arrays import compatible_but_for_precision, is_scalar, same_sizes, sizes_agree, text
from .check_called import check_scan, check_sort
from .contractions import dot_of
from .element_types import bitcast_dimensions, is_number, same_but_for_precision
from .infer import RULES, follow, make_query
from .query import Called, Query

EXACT = frozenset(
    (
        *("add-dependency", "after-all", "all-reduce-done", "async-done", "async-update", "call", "conditional"),
        *("copy-done", "copy-start", "dynamic-update-slice", "fusion", "get-tuple-element", "opt-barrier", "outfeed"),
        *("recv-done", "scan", "send", "send-done", "tuple", "while"),
    )
)
"""Opcodes that pass values on: their result has the inferred element types exactly.

All others may state another floating-point type than the operands' (XLA's verifier runs with mixed precision allowed).
"""


def check_shape(
    opcode: str,
    stated: Shape,
    operand_shapes: Sequence[Shape],
    attributes: Mapping[str, object],
    called: Called,
    *,
    group_size: int | None = None,
) -> None:
    """Return if an instruction's stated result shape goes with everything else it says.

    Arguments as for `infer_shape`. Layouts are not compared, nor which dimensions are dynamic. Opcodes whose result is
    free (constant, parameter, custom-call, infeed ...) are accepted as far as nothing can be asked.

    Raises ShapeInferenceError if the operands contradict each other or the stated shape.
    """
    query = make_query(opcode, operand_shapes, attributes, called, group_size)
    special = _SPECIAL.get(opcode)
    if special is not None:
        special(query, stated)
        return
    if opcode not in RULES:
        return
    if opcode in _BESIDES:
        _BESIDES[opcode](query)
    expect(query, stated, follow(query))
    if opcode in elementwise.UNARY or opcode in elementwise.BINARY:
        for i, operand in enumerate(query.arrays()):
            assert isinstance(stated, ArrayShape)
            if not same_sizes(operand, stated):
                query.refuse(f"operand {i} is {text(operand)}, the result {text(stated)}: nothing is broadcast here")


def expect(query: Query, stated: Shape, inferred: Shape) -> None:
    """Raise unless the stated shape is the inferred one, for most opcodes up to floating-point precision."""
    fits = compatible if query.opcode in EXACT else compatible_but_for_precision
    if not fits(stated, inferred):
        query.refuse(f"the shape stated is {text(stated)}, the operands make it {text(inferred)}")


def _array(query: Query, stated: Shape) -> ArrayShape:
    if not isinstance(stated, ArrayShape) or not stated.is_data:
        query.refuse(f"the result has to be an array, the shape stated is {text(stated)}")
    return stated


def _convert(query: Query, stated: Shape) -> None:
    operand, result = query.array(0), _array(query, stated)
    if not same_sizes(operand, result):
        query.refuse(f"the shape stated is {text(stated)}, the operand {text(operand)}")


def _bitcast_convert(query: Query, stated: Shape) -> None:
    operand, result = query.array(0), _array(query, stated)
    if is_complex(operand.element_type) != is_complex(result.element_type):
        query.refuse(f"does not go between complex and real: {text(operand)} and {text(result)}")
    dimensions = bitcast_dimensions(operand, result.element_type)
    if dimensions is None:
        query.refuse(f"elements of {text(operand)} do not make elements of {text(result)}")
    expect(query, result, ArrayShape(result.element_type, dimensions))


def _bitcast(query: Query, stated: Shape) -> None:
    operand, result = query.operands[0], stated
    if not isinstance(operand, ArrayShape) or not isinstance(result, ArrayShape):
        return
    if any(shape.layout and shape.layout.tiles for shape in (operand, result)) or UNBOUNDED in (
        operand.dimensions + result.dimensions
    ):
        return
    if _stored_bits(operand) != _stored_bits(result):
        query.refuse(f"{text(operand)} and {text(result)} do not take the same memory")


def _stored_bits(shape: ArrayShape) -> int:
    packed = shape.layout.element_size_in_bits if shape.layout else 0
    return shape.element_count * (packed or max(8, element_bits(shape.element_type)))


def _same_elements(query: Query, stated: Shape) -> tuple[ArrayShape, ArrayShape]:
    operand, result = query.array(0), _array(query, stated)
    if not same_but_for_precision(operand.element_type, result.element_type):
        query.refuse(f"the shape stated is {text(result)}, of another type than the operand {text(operand)}")
    return operand, result


def _reshape(query: Query, stated: Shape) -> None:
    operand, result = _same_elements(query, stated)
    if UNBOUNDED in operand.dimensions:
        return
    if UNBOUNDED in result.dimensions or operand.element_count != result.element_count:
        query.refuse(f"{text(operand)} has {operand.element_count} elements, {text(result)} does not")


def _dynamic_reshape(query: Query, stated: Shape) -> None:
    _reshape(query, stated)
    result = _array(query, stated)
    if len(query.operands) != 1 + result.rank:
        query.refuse(f"has {len(query.operands) - 1} sizes for {text(result)}")
    for size in query.operands[1:]:
        if not isinstance(size, ArrayShape) or size.element_type != "s32":
            query.refuse(f"a size has to be s32[], not {text(size)}")


def _broadcast(query: Query, stated: Shape) -> None:
    operand, result = _same_elements(query, stated)
    places = query.integers("dimensions", () if not operand.rank else None)
    if len(places) != operand.rank:
        query.refuse(f"dimensions has {len(places)} places, the operand is {text(operand)}")
    if len(set(places)) != len(places):
        query.refuse("a dimension stands twice in dimensions")
    for size, place in zip(operand.dimensions, places, strict=True):
        query.dimension_in(place, result, "the result dimension")
        if not sizes_agree(size, result.dimensions[place]):
            query.refuse(f"dimension {place} of {text(result)} gets the size {size} from {text(operand)}")


def _product(query: Query, stated: Shape) -> None:
    inferred = follow(query)
    assert isinstance(inferred, ArrayShape)
    _expect_sizes(query, stated, inferred)


def _expect_sizes(query: Query, stated: Shape, inferred: ArrayShape) -> None:
    """Sizes follow; in which element type products are added up is free."""
    expect(query, stated, replace(inferred, element_type=_array(query, stated).element_type))


def _scaled_dot(query: Query, stated: Shape) -> None:
    """(left, right, left scale, right scale), each scale with sizes that divide its operand's.

    XLA's parser infers from operands 0 and 2 where the shape is left out; its verifier takes operands 0 and 1.
    """
    _expect_sizes(query, stated, dot_of(query, query.array(0), query.array(1)))
    for i in range(2):
        operand, scale = query.array(i), query.array(i + 2)
        if operand.rank != scale.rank or any(
            not small or large % small for small, large in zip(scale.dimensions, operand.dimensions, strict=True)
        ):
            query.refuse(f"the scale {text(scale)} does not divide the operand {text(operand)}")


def _reduce_window(query: Query, stated: Shape) -> None:
    """A tuple if the reducer returns one, be it of one."""
    inferred = follow(query)
    if isinstance(query.program("to_apply").result, TupleShape) and not isinstance(inferred, TupleShape):
        inferred = TupleShape((inferred,))
    expect(query, stated, inferred)


def _iota(query: Query, stated: Shape) -> None:
    result = _array(query, stated)
    query.dimension_in(query.integer("iota_dimension"), result, "iota_dimension")
    if not is_number(result.element_type):
        query.refuse(f"makes numbers, the shape stated is {text(stated)}")


def _stochastic_convert(query: Query, stated: Shape) -> None:
    operand, noise = query.array(0), query.array(1)
    result = _array(query, stated)
    if not is_floating(operand.element_type):
        query.refuse(f"takes floating-point elements, the operand is {text(operand)}")
    if noise.element_type[0] != "u" or element_bits(noise.element_type) != element_bits(operand.element_type):
        query.refuse(f"the random numbers have to be unsigned and as wide as {text(operand)}, they are {text(noise)}")
    for shape in (noise, result):
        if not same_sizes(shape, operand):
            query.refuse(f"the shapes differ: {text(operand)} and {text(shape)}")


def _rng(query: Query, stated: Shape) -> None:
    result = _array(query, stated)
    if len(query.operands) != 2:
        query.refuse(f"takes two operands, it has {len(query.operands)}")
    for operand in query.operands:
        if not is_scalar(operand) or not isinstance(operand, ArrayShape):
            query.refuse(f"takes scalars, not {text(operand)}")
        if not same_but_for_precision(operand.element_type, result.element_type):
            query.refuse(f"the shape stated is {text(stated)}, of another type than the operand {text(operand)}")
    if query.string("distribution") == "rng_normal" and not is_floating(result.element_type):
        query.refuse(f"a normal distribution makes floating-point numbers, not {text(stated)}")


def _rng_bit_generator(query: Query, stated: Shape) -> None:
    if isinstance(stated, TupleShape):
        if len(stated.elements) != 2:
            query.refuse(f"the result is (state, bits), the shape stated is {text(stated)}")
        if not compatible(stated.elements[0], query.operands[0]):
            query.refuse(f"the state is {text(query.operands[0])}, the shape stated is {text(stated)}")


def _rng_state(query: Query, stated: Shape) -> None:
    if stated.to_text(layout=False) != "u64[2]":
        query.refuse(f"the result is u64[2], the shape stated is {text(stated)}")


def _add_dependency(query: Query, stated: Shape) -> None:
    expect(query, stated, query.operands[0])
    if query.operands[1] != control.TOKEN:
        query.refuse(f"operand 1 has to be token[], it is {text(query.operands[1])}")


def _outfeed(query: Query, stated: Shape) -> None:
    expect(query, stated, control.TOKEN)
    sent = query.attributes.get("outfeed_shape", query.operands[0])
    if not isinstance(sent, (ArrayShape, TupleShape, BufferShape)) or not compatible(sent, query.operands[0]):
        query.refuse(f"outfeed_shape is not the shape of the operand {text(query.operands[0])}")


def _infeed(query: Query, stated: Shape) -> None:
    if not isinstance(stated, TupleShape) or len(stated.elements) != 2 or stated.elements[1] != control.TOKEN:
        query.refuse(f"the result is (data, token[]), the shape stated is {text(stated)}")


def _recv(query: Query, stated: Shape) -> None:
    ends = TupleShape(stated.elements[1:]).to_text(layout=False) if isinstance(stated, TupleShape) else ""
    if ends != "(u32[], token[])":
        query.refuse(f"the result is (data, u32[], token[]), the shape stated is {text(stated)}")


def _permute_start(query: Query, stated: Shape) -> None:
    """The context behind operands and results is what a backend makes of it.

    What XLA prints for an async-start has its one operand in a tuple of its own, and its text import also takes the
    result alone.
    """
    known = TupleShape(stated.elements[:2]) if isinstance(stated, TupleShape) else stated
    wanted = collectives.collective_permute_start(query)
    if len(query.operands) == 1 and "slice_sizes" not in query.attributes:
        operand = query.operands[0]
        if not isinstance(known, TupleShape):
            wanted = operand
        elif isinstance(known.elements[0], TupleShape):
            wanted = TupleShape((TupleShape((operand,)), operand))
    expect(query, known, wanted)


def _async_start(query: Query, stated: Shape) -> None:
    """((operands), result, context); the computation it wraps, if named, takes and returns just those."""
    if not isinstance(stated, TupleShape) or len(stated.elements) < 2 or not isinstance(stated.elements[0], TupleShape):
        query.refuse(f"the result is ((operands), result, context), the shape stated is {text(stated)}")
    if not compatible(stated.elements[0], TupleShape(query.operands)):
        query.refuse(f"the shape stated is {text(stated)}, the operands are {text(TupleShape(query.operands))}")
    if "calls" in query.called:
        expect(query, stated.elements[1], control.fusion(query))


def _resized(query: Query, stated: Shape) -> None:
    """All-gather and reduce-scatter; without a known group size any whole multiple goes."""
    size = collectives.group_size(query)
    start = query.opcode == "all-gather-start"
    if start and (not isinstance(stated, TupleShape) or len(stated.elements) != 2):
        query.refuse(f"the result is (operands, results), the shape stated is {text(stated)}")
    if not query.operands:
        query.refuse("needs an operand")
    if size is None:
        result = stated.elements[1] if start and isinstance(stated, TupleShape) else stated
        first = result.elements[0] if isinstance(result, TupleShape) and result.elements else result
        operand = query.array(0)
        dimension = query.dimension_in(query.one_dimension(), operand)
        fits = isinstance(first, ArrayShape) and first.rank == operand.rank
        sizes = (operand.dimensions[dimension], first.dimensions[dimension]) if fits else (0, 0)  # type: ignore[union-attr]
        small, large = sizes if query.opcode != "reduce-scatter" else sizes[::-1]
        size = large // small if small > 0 else 1
    expect(query, stated, follow(replace(query, group_size=size)))


_SPECIAL: Mapping[str, Callable[[Query, Shape], None]] = {
    "convert": _convert,
    "bitcast-convert": _bitcast_convert,
    "bitcast": _bitcast,
    "reshape": _reshape,
    "dynamic-reshape": _dynamic_reshape,
    "broadcast": _broadcast,
    "iota": _iota,
    **dict.fromkeys(("dot", "ragged-dot", "convolution"), _product),
    "scaled-dot": _scaled_dot,
    "reduce-window": _reduce_window,
    "stochastic-convert": _stochastic_convert,
    "rng": _rng,
    "rng-bit-generator": _rng_bit_generator,
    "rng-get-and-update-state": _rng_state,
    "add-dependency": _add_dependency,
    "outfeed": _outfeed,
    "infeed": _infeed,
    "recv": _recv,
    "collective-permute-start": _permute_start,
    "async-start": _async_start,
    "all-gather": _resized,
    "all-gather-start": _resized,
    "reduce-scatter": _resized,
}

_BESIDES: Mapping[str, Callable[[Query], None]] = {
    "sort": check_sort,
    "scan": check_scan,
    "compare": elementwise.check_comparison,
}
"""What XLA's verifier asks beyond what inference does."""
