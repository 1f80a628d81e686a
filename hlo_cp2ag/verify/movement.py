"""The ops that move data, in the symbolic domain. Whatever is not here makes its result unknown.

    @moves("transpose")
    def transpose(site: Evaluation, instruction: Instruction, x: Symbols) -> Symbols: ...

Operands that are indices or predicates come as the executor's own arrays: they are computed, not traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar, Union, cast

import numpy as np

from hlo_cp2ag.executor.layouts import major_to_minor, tiles_of
from hlo_cp2ag.executor.ops.gather_scatter import gather_places
from hlo_cp2ag.executor.ops.movement import starts_of
from hlo_cp2ag.executor.registry import Context, array_shape, integers
from hlo_cp2ag.executor.values import Array, Token
from hlo_cp2ag.ir.attributes import PaddingConfig, SliceRanges
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import ArrayShape, element_bits, is_complex, is_floating, is_integer
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.verify import symbols
from hlo_cp2ag.verify.bits import array_of_bits, codes_of_bits
from hlo_cp2ag.verify.symbols import Axis, Symbols

Moved: TypeAlias = Union[Symbols, Array, Token, "tuple[Moved, ...]"]
"""A value in a site: traced data, computed data, a token, or a tuple of these."""


class Evaluation(Protocol):
    """What a moving op sees of the evaluation it is in."""

    context: Context

    def traced(self, value: Moved, instruction: Instruction, number: int) -> Symbols:
        """An operand as Symbols, whether it is traced or computed."""

    def computed(self, value: Moved, instruction: Instruction, what: str) -> Array:
        """An operand that has to be computed, such as an index. Raises Traced if it is traced."""

    def call(self, computation: Computation, operands: tuple[Moved, ...]) -> Moved:
        """What a computation returns."""


class Traced(Exception):  # noqa: N818
    """Traced or unknown data has reached an index, a predicate or a loop condition."""


Mover = Callable[..., Moved]
F = TypeVar("F", bound=Callable[..., Any])

MOVERS: dict[str, Mover] = {}
"""By opcode: `(site, instruction, *operands) -> value`."""


def moves(*opcodes: str) -> Callable[[F], F]:
    """Registers what opcodes do in the symbolic domain."""

    def register(function: F) -> F:
        for opcode in opcodes:
            MOVERS[opcode] = function
        return function

    return register


# ---- shapes ----------------------------------------------------------------------------------------------------------


@moves("copy")
def copy(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """The operand."""
    return x


@moves("broadcast")
def broadcast(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """Semantics: XLA, BroadcastInDim."""
    places = integers(instruction, "dimensions")
    return symbols.broadcast(site.traced(x, instruction, 0), array_shape(instruction).dimensions, places)


@moves("reshape")
def reshape(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """Semantics: XLA, Reshape."""
    return symbols.reshape(site.traced(x, instruction, 0), array_shape(instruction).dimensions)


@moves("transpose")
def transpose(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """Semantics: XLA, Transpose."""
    return symbols.transpose(site.traced(x, instruction, 0), integers(instruction, "dimensions"))


@moves("reverse")
def reverse(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """Semantics: XLA, Rev."""
    result = site.traced(x, instruction, 0)
    for dim in integers(instruction, "dimensions"):
        result = symbols.reverse(result, dim)
    return result


@moves("bitcast")
def bitcast(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """Semantics: XLA, Bitcast: the same memory in the result's layout; tiles are not followed."""
    operand, result = site.context.operand_shapes(instruction)[0], instruction.shape
    if not isinstance(operand, ArrayShape) or not isinstance(result, ArrayShape):
        return x
    moved = site.traced(x, instruction, 0)
    if element_bits(operand.element_type) != element_bits(result.element_type):
        return symbols.unknown(result.dimensions, f"{instruction.name} changes the width of elements")
    if tiles_of(operand) != tiles_of(result):
        return symbols.unknown(result.dimensions, f"{instruction.name} changes tiles")
    own, new = major_to_minor(operand), major_to_minor(result)
    if tiles_of(operand) and (operand.dimensions != result.dimensions or own != new):
        return symbols.unknown(result.dimensions, f"{instruction.name} moves elements between tiles")
    memory = symbols.transpose(moved, own)
    memory = symbols.reshape(memory, [result.dimensions[d] for d in new])
    return symbols.transpose(memory, [new.index(d) for d in range(result.rank)])


@moves("bitcast-convert")
def bitcast_convert(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """Semantics: XLA, BitcastConvertType, between types of one width: the bits stay what they are."""
    operand, result = site.context.operand_shapes(instruction)[0], array_shape(instruction)
    assert isinstance(operand, ArrayShape)
    moved = site.traced(x, instruction, 0)
    if element_bits(operand.element_type) != element_bits(result.element_type) or "pred" in (
        operand.element_type,
        result.element_type,
    ):
        return symbols.unknown(result.dimensions, f"{instruction.name} changes the width of elements")
    # A NaN that lost its payload is the same NaN, but not the same integer.
    if moved.conversions or moved.lost_payload:
        return symbols.unknown(result.dimensions, f"{instruction.name} reads converted elements as another type")
    return moved


@moves("concatenate")
def concatenate(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """Semantics: XLA, Concatenate."""
    (dim,) = integers(instruction, "dimensions")
    return symbols.concatenate([site.traced(x, instruction, i) for i, x in enumerate(operands)], dim)


@moves("slice")
def slice_(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """Semantics: XLA, Slice."""
    result = site.traced(x, instruction, 0)
    ranges = cast(SliceRanges, instruction.attribute("slice", SliceRanges())).ranges
    for dim, ((start, _, stride), size) in enumerate(zip(ranges, array_shape(instruction).dimensions, strict=True)):
        result = symbols.take(result, dim, np.array([start]), size, stride)
    return result


@moves("pad")
def pad(site: Evaluation, instruction: Instruction, x: Moved, filling: Moved) -> Moved:
    """Semantics: XLA, Pad: interior padding, then the edges."""
    result, fill = site.traced(x, instruction, 0), site.traced(filling, instruction, 1)
    config = cast(PaddingConfig, instruction.attribute("padding")).dimensions

    def filled(dim: int, size: int) -> Symbols:
        sizes = list(result.dimensions)
        sizes[dim] = size
        return symbols.broadcast(fill, sizes, ())

    for dim, (low, high, interior) in enumerate(config):
        size = result.dimensions[dim]
        if interior and size > 1:
            wide = symbols.split_dim(result, dim, size)
            sizes = list(wide.dimensions)
            sizes[dim + 1] = interior
            gaps = symbols.broadcast(fill, sizes, ())
            spread = symbols.merge_dims(symbols.concatenate([wide, gaps], dim + 1), dim)
            result = symbols.take(spread, dim, np.array([0]), size + (size - 1) * interior)
        cut_low, cut_high = max(0, -low), max(0, -high)
        if cut_low or cut_high:
            # One edge may cut into what the other one adds.
            grown = [filled(dim, low)] if low > 0 else []
            grown += [result] + ([filled(dim, high)] if high > 0 else [])
            result = symbols.concatenate(grown, dim)
            kept = result.dimensions[dim] - cut_low - cut_high
            result = symbols.take(result, dim, np.array([cut_low]), kept)
        elif low or high:
            parts = ([filled(dim, low)] if low else []) + [result] + ([filled(dim, high)] if high else [])
            result = symbols.concatenate(parts, dim)
    return result


# ---- at computed places ----------------------------------------------------------------------------------------------


@moves("dynamic-slice")
def dynamic_slice(site: Evaluation, instruction: Instruction, x: Moved, *indices: Moved) -> Moved:
    """Semantics: XLA, DynamicSlice: starts are clamped."""
    result = site.traced(x, instruction, 0)
    sizes = integers(instruction, "dynamic_slice_sizes")
    limits = [total - size for total, size in zip(result.dimensions, sizes, strict=True)]
    starts = _starts(site, instruction, indices, 1, limits)
    for dim, size in enumerate(sizes):
        result = symbols.take(result, dim, starts[:, dim], size)
    return result


def _starts(
    site: Evaluation, instruction: Instruction, indices: tuple[Moved, ...], first: int, limits: list[int]
) -> Array:
    """Clamped starts `[1 or devices, rank]`. What must be 0 whatever the index says is not asked."""
    found = []
    for number, (index, limit) in enumerate(zip(indices, limits, strict=len(indices) == len(limits))):
        if limit == 0 and len(indices) == len(limits) and isinstance(index, Symbols):
            shape = site.context.operand_shapes(instruction)[first + number]
            assert isinstance(shape, ArrayShape)
            index = array_of_bits(np.zeros(1, np.int64), shape.element_type)
        found.append(site.computed(index, instruction, "index"))
    return starts_of(site.context, instruction, tuple(found), first, limits)


@moves("dynamic-update-slice")
def dynamic_update_slice(site: Evaluation, instruction: Instruction, x: Moved, update: Moved, *indices: Moved) -> Moved:
    """Semantics: XLA, DynamicUpdateSlice: starts are clamped."""
    whole, part = site.traced(x, instruction, 0), site.traced(update, instruction, 1)
    if part.is_empty:
        return whole
    limits = [total - size for total, size in zip(whole.dimensions, part.dimensions, strict=True)]
    starts = _starts(site, instruction, indices, 2, limits)
    sizes = part.dimensions
    # Each cut dimension becomes one of blocks, which are chosen one by one, and one of what a block holds.
    apart = [d for d, limit in enumerate(limits) if limit]
    for dim in reversed(apart):
        block = int(np.gcd.reduce([whole.dimensions[dim], part.dimensions[dim], *starts[:, dim].tolist()]))
        starts[:, dim] //= block
        whole = symbols.split_dim(whole, dim, whole.dimensions[dim] // block)
        part = symbols.split_dim(part, dim, part.dimensions[dim] // block)
    outer = [d + i for i, d in enumerate(apart)]
    counts = [part.dimensions[d] for d in outer]
    rest = [d for d in range(len(whole.dims)) if d not in outer]
    whole, part = (symbols.transpose(s, [*outer, *rest]) for s in (whole, part))
    blocks = whole.dimensions[: len(outer)]
    whole, part = (_one_outer(s, len(outer)) for s in (whole, part))
    places = np.zeros((starts.shape[0], 1), np.int64)
    for d, count, total in zip(apart, counts, blocks, strict=True):
        along = starts[:, d].reshape(-1, 1, 1) + np.arange(count)
        places = (places[:, :, None] * total + along).reshape(starts.shape[0], -1)
    (own, new), dims = symbols.unify([whole, part], skip=0)
    lanes = max(own.shape[0], new.shape[0], starts.shape[0])
    full = [max(a, b) for a, b in zip(own.shape[2:], new.shape[2:], strict=True)]
    symbols.require_room(lanes * own.shape[1] * int(np.prod(full, dtype=np.int64)))
    result = np.array(np.broadcast_to(own, (lanes, own.shape[1], *full)))
    result[np.arange(lanes).reshape(-1, 1), np.broadcast_to(places, (lanes, places.shape[1]))] = new
    moved = symbols.combined([whole, part], result, ((Axis(result.shape[1]),), *dims[1:]))
    moved = symbols.reshape(moved, (*blocks, *moved.dimensions[1:]))
    moved = symbols.transpose(moved, [(*outer, *rest).index(d) for d in range(len(moved.dims))])
    for dim in apart:
        moved = symbols.merge_dims(moved, dim)
    del sizes
    return moved


def _one_outer(x: Symbols, count: int) -> Symbols:
    """The first `count` dimensions as one."""
    axes = tuple(axis for dim in x.dims[:count] for axis in dim)
    return x.with_codes(x.codes, (axes, *x.dims[count:]))


@moves("gather")
def gather(site: Evaluation, instruction: Instruction, x: Moved, indices: Moved) -> Moved:
    """Semantics: XLA, Gather; dimensions that are taken whole are not looked into."""
    moved = site.traced(x, instruction, 0)
    where = site.computed(indices, instruction, "index")
    shape = array_shape(instruction)
    if 0 in shape.dimensions:
        return symbols.empty(shape.dimensions)
    symbols.require_room(where.size)
    places = gather_places(site.context, instruction, moved.dimensions, where)
    moved = symbols.transpose(moved, [*places.part, *places.whole])
    moved = symbols.flatten(_one_outer(moved, len(places.part)), 0)
    codes = moved.codes if moved.dims[0] else np.expand_dims(moved.codes, 1)
    flat = places.flat
    lanes = max(codes.shape[0], flat.shape[0])
    symbols.require_room(lanes * int(np.prod(flat.shape[1:], dtype=np.int64)) * (codes[0, 0].size if codes.size else 1))
    rows = np.zeros(1, np.int64) if codes.shape[0] == 1 else np.arange(lanes)
    taken = codes[rows.reshape(-1, *[1] * (flat.ndim - 1)), flat]
    dims = tuple(() if n == 1 else (Axis(n),) for n in flat.shape[1:])
    squeezed = taken.reshape(taken.shape[0], *(n for n in flat.shape[1:] if n != 1), *codes.shape[2:])
    return symbols.transpose(moved.with_codes(squeezed, (*dims, *moved.dims[1:])), places.order)


@moves("select")
def select(site: Evaluation, instruction: Instruction, mask: Moved, chosen: Moved, other: Moved) -> Moved:
    """Semantics: XLA, Select, with a computed predicate; one of data chooses between equals, or is itself the result."""
    if isinstance(mask, Symbols):
        return _select_by_data(site, instruction, mask, chosen, other)
    predicate = site.computed(mask, instruction, "predicate")
    a, b = site.traced(chosen, instruction, 1), site.traced(other, instruction, 2)
    if a.is_empty:
        return a
    where = codes_of_bits(predicate, "pred")
    if len(where.dims) != len(a.dims):
        where = symbols.broadcast(where, a.dimensions, ())
    (m, x, y), dims = symbols.unify([where, a, b])
    symbols.require_room(int(np.prod(np.broadcast_shapes(m.shape, x.shape, y.shape), dtype=np.int64)))
    return symbols.combined([a, b], np.where(m != 0, x, y), dims)


def _select_by_data(site: Evaluation, instruction: Instruction, mask: Symbols, chosen: Moved, other: Moved) -> Symbols:
    a, b = site.traced(chosen, instruction, 1), site.traced(other, instruction, 2)
    if a.is_empty:
        return a
    where = mask if len(mask.dims) == len(a.dims) else symbols.broadcast(mask, a.dimensions, ())
    (m, x, y), dims = symbols.unify([where, a, b])
    symbols.require_room(int(np.prod(np.broadcast_shapes(m.shape, x.shape, y.shape), dtype=np.int64)))
    m, x, y = np.broadcast_arrays(m, x, y)
    is_itself = (x == _TRUE) & (y == 0) if array_shape(instruction).element_type == "pred" else np.False_
    codes = np.where(m == 0, y, np.where(m == _TRUE, x, np.where(is_itself, m, symbols.UNKNOWN)))
    codes = np.where((x == y) & (x != symbols.UNKNOWN), x, codes)
    because = f" ({mask.why})" if mask.why else ""
    why = f"data reaches the predicate of {instruction.opcode} {instruction.name}{because}"
    return _explained(symbols.combined([where, a, b], codes, dims), why)


_TRUE = -1
"""The code of a pred that is set."""


# ---- with zeros ------------------------------------------------------------------------------------------------------


def keeps_data_beside_zero(opcode: str, element_type: str) -> bool:
    """Whether an op of data and zero is the data, bit for bit: integers and pred only, since -0.0 + 0.0 is 0.0."""
    if not (is_integer(element_type) or element_type == "pred"):
        return False
    if opcode == "maximum":
        return element_type[0] in "up"
    return opcode in ("add", "or", "xor")


def reduces_beside_zero(site: Evaluation, instruction: Instruction, element_type: str) -> bool:
    """Whether the computation that an instruction reduces with gives what is not zero beside zeros, in any order."""
    computation = site.context.computation(instruction, "to_apply")
    kind = site.context.simple_reducer(computation)
    if kind is not None:
        return keeps_data_beside_zero(kind, element_type)
    return site.context.memo(instruction, "beside zero", lambda: _keeps_one(site, computation, element_type))


_IN_REDUCERS = frozenset(
    (
        *(
            "parameter",
            "constant",
            "copy",
            "opt-barrier",
            "reshape",
            "broadcast",
            "tuple",
            "get-tuple-element",
            "select",
            "convert",
        ),
        *("bitcast", "bitcast-convert", "add", "or", "xor", "and", "maximum", "minimum"),
    )
)
"""Ops of one element on one device."""


def _keeps_one(site: Evaluation, computation: Computation, element_type: str) -> bool:
    """Whether a computation of data and zero, either way round, is the data, and that of two zeros zero."""
    shape = computation.root.shape
    if not isinstance(shape, ArrayShape) or shape.rank or shape.element_type != element_type:
        return False
    if not all(i.opcode in _IN_REDUCERS for i in computation.instructions):
        return False
    data, zero = (Symbols(np.array([code]), ()) for code in (1, 0))
    for operands, wanted in (((data, zero), 1), ((zero, data), 1), ((zero, zero), 0)):
        try:
            value = site.call(computation, operands)
        except (HloError, symbols.TooLarge):
            return False
        found = value if isinstance(value, Symbols) else codes_of_bits(cast(Array, value), element_type)
        if found.conversions or found.lost_payload or (found.codes != wanted).any():
            return False
    return True


def disjoint(codes: Array, axis: int) -> Array:
    """Along an axis the one code that is not zero; unknown where there are several, or one of them is unknown."""
    is_something = codes != 0
    count = is_something.sum(axis=axis)
    result: Array = np.where(count <= 1, codes.sum(axis=axis, where=is_something), symbols.UNKNOWN)
    return result


@moves("add", "or", "xor", "maximum")
def add(site: Evaluation, instruction: Instruction, x: Moved, y: Moved) -> Moved:
    """Data beside zero stays what it is, in types where that is so; else unknown."""
    shape = array_shape(instruction)
    a, b = site.traced(x, instruction, 0), site.traced(y, instruction, 1)
    if not keeps_data_beside_zero(instruction.opcode, shape.element_type):
        return symbols.unknown(shape.dimensions, f"{instruction.opcode} {instruction.name} computes with data")
    if a.is_empty:
        return a
    (p, q), dims = symbols.unify([a, b])
    p, q = np.broadcast_arrays(p, q)
    symbols.require_room(2 * p.size)
    why = f"{instruction.opcode} {instruction.name} computes with data"
    codes = disjoint(np.stack([p, q]), 0)
    if instruction.opcode in ("or", "maximum"):  # of twice the same
        codes = np.where(p == q, p, codes)
    return _explained(symbols.combined([a, b], codes, dims), why)


def _explained(x: Symbols, why: str) -> Symbols:
    if x.why or not x.has_unknown:
        return x
    return Symbols(x.codes, x.dims, x.conversions, x.lost_payload, why)


@moves("and", "minimum")
def and_(site: Evaluation, instruction: Instruction, x: Moved, y: Moved) -> Moved:
    """Zero beside zero bits, the data beside set ones; else unknown. The lesser one too, where nothing is negative."""
    shape = array_shape(instruction)
    a, b = site.traced(x, instruction, 0), site.traced(y, instruction, 1)
    why = f"{instruction.opcode} {instruction.name} computes with data"
    if instruction.opcode == "minimum" and shape.element_type[0] not in "up":
        return symbols.unknown(shape.dimensions, why)
    if a.is_empty:
        return a
    ones = 1 if shape.element_type == "pred" else (1 << element_bits(shape.element_type)) - 1
    full = codes_of_bits(array_of_bits(np.array([ones], np.uint64), shape.element_type), shape.element_type).codes[0]
    (p, q), dims = symbols.unify([a, b])
    p, q = np.broadcast_arrays(p, q)
    symbols.require_room(2 * p.size)
    codes = np.where((p == 0) | (q == 0), 0, np.where(p == full, q, np.where(q == full, p, symbols.UNKNOWN)))
    return _explained(symbols.combined([a, b], codes, dims), why)


@moves("reduce")
def reduce(site: Evaluation, instruction: Instruction, x: Moved, *rest: Moved) -> Moved:
    """The sum of one element and zeros is that element, in types where that is so; else unknown."""
    shape = instruction.shape
    why = f"reduce {instruction.name} computes with data"
    if not isinstance(shape, ArrayShape) or len(rest) != 1:
        return unknown_of(shape, why)
    if not reduces_beside_zero(site, instruction, shape.element_type):
        return symbols.unknown(shape.dimensions, why)
    moved, initial = site.traced(x, instruction, 0), site.traced(rest[0], instruction, 1)
    if initial.codes.any() or moved.is_empty:
        return symbols.unknown(shape.dimensions, why)
    dims = sorted(integers(instruction, "dimensions"))
    if not dims:
        return moved
    kept = [d for d in range(len(moved.dims)) if d not in dims]
    moved = symbols.flatten(_one_outer(symbols.transpose(moved, [*dims, *kept]), len(dims)), 0)
    if not moved.dims[0]:
        return moved.with_codes(moved.codes, moved.dims[1:])
    return _explained(moved.with_codes(disjoint(moved.codes, 1), moved.dims[1:]), why)


def unknown_of(shape: object, why: str) -> Moved:
    """Nothing known of a value of a shape."""
    from hlo_cp2ag.ir.shape import BufferShape, TupleShape

    if isinstance(shape, TupleShape):
        return tuple(unknown_of(element, why) for element in shape.elements)
    array = shape.array if isinstance(shape, BufferShape) else shape
    assert isinstance(array, ArrayShape)
    return symbols.unknown(array.dimensions, why) if array.is_data else Token()


# ---- element types ---------------------------------------------------------------------------------------------------


@moves("convert")
def convert(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """A widening and its inverse are the data again: exact for integers, all but NaN payloads for floats."""
    from hlo_cp2ag.executor.ops.conversion import convert_array

    operand = site.context.operand_shapes(instruction)[0]
    assert isinstance(operand, ArrayShape)
    source, target = operand.element_type, array_shape(instruction).element_type
    moved = site.traced(x, instruction, 0)
    if source == target or moved.is_empty:
        return moved
    codes = moved.codes
    is_bits = (codes <= 0) & (codes != symbols.UNKNOWN)
    if is_bits.any():
        patterns, back = np.unique(codes[is_bits], return_inverse=True)
        from hlo_cp2ag.verify.bits import bits_of_codes

        values = convert_array(array_of_bits(bits_of_codes(patterns), source), source, target)
        codes = codes.copy()
        codes[is_bits] = codes_of_bits(values.reshape(1, -1), target, expanded=True).codes.reshape(-1)[back.reshape(-1)]
    before = moved.conversions or (source,)
    conversions = (*before, target)
    lost = moved.lost_payload
    if len(conversions) >= 3 and conversions[-3] == target and is_exact_widening(target, source):
        lost = lost or is_floating(target) or is_complex(target)
        conversions = conversions[:-2] if len(conversions) > 3 else ()
    return Symbols(codes, moved.dims, conversions if moved.has_data else (), lost, moved.why)


_MANTISSA_AND_EXPONENT = {
    "f16": (10, 5), "bf16": (7, 8), "f32": (23, 8), "f64": (52, 11), "f8e5m2": (2, 5), "f8e4m3fn": (3, 4),
    "f8e4m3": (3, 4), "f8e3m4": (4, 3), "f8e4m3b11fnuz": (3, 4), "f8e4m3fnuz": (3, 4), "f8e5m2fnuz": (2, 5),
}  # fmt: skip
"""Bits of the fraction and of the exponent."""


def is_exact_widening(narrow: str, wide: str) -> bool:
    """Whether every value of `narrow` comes back from `wide` as it was, NaN payloads aside."""
    if is_integer(narrow) or narrow == "pred":
        bits = 1 if narrow == "pred" else element_bits(narrow)
        if narrow != "pred" and is_integer(wide) and element_bits(wide) == bits:
            return True  # s8 and u8: the same bits
        if wide in _MANTISSA_AND_EXPONENT and not wide.startswith("f8"):
            # A float holds every integer of as many bits as its fraction has, and the largest power of two besides.
            return bits - (narrow[0] == "s") <= _MANTISSA_AND_EXPONENT[wide][0] + 1
        return is_integer(wide) and element_bits(wide) > bits
    if is_complex(narrow):
        return (narrow, wide) == ("c64", "c128")
    small, large = _MANTISSA_AND_EXPONENT.get(narrow), _MANTISSA_AND_EXPONENT.get(wide)
    if small is None or large is None:
        return False
    # One bit more of exponent holds the denormals and whatever bias the narrow type has.
    return small[0] < large[0] and (small[1] < large[1] or (small[1] == large[1] and narrow in ("f8e5m2", "bf16")))
