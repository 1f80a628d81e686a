"""Ops that make arrays out of nothing or move elements: constant, iota, broadcast, reshape, slices, pad, ..."""

from __future__ import annotations

from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift
from hlo_cp2ag.executor.ops.conversion import convert_array
from hlo_cp2ag.executor.ops.elementwise import as_type
from hlo_cp2ag.executor.registry import Context, array_shape, integer, integers, op, precheck
from hlo_cp2ag.executor.values import TOKEN, Array, Value, align, array_shape_of, expand
from hlo_cp2ag.ir.attributes import PaddingConfig, SliceRanges
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.literal import Literal, LiteralTextError, parse_literal
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import TupleShape
from hlo_cp2ag.text.lexical import mask

# ---- from nothing ----------------------------------------------------------------------------------------------------


def read_literal(instruction: Instruction) -> Literal:
    """The literal of a `constant`. Raises HloSyntaxError if it is none of the instruction's shape."""
    source, span = instruction.module.source, instruction.body.operands_span
    text = source.text[span.start : span.end]
    if "/" in text:
        text = mask(text, source, span.start)
    try:
        return parse_literal(text, instruction.shape)
    except LiteralTextError as error:
        raise source.error(span.start + error.offset, error.message) from None


@op("constant")
def constant(context: Context, instruction: Instruction) -> Value:
    """Semantics: XLA operation semantics, Constant. An elided one `{...}` has seeded values, if the run allows it."""

    def make() -> Value:
        literal = _literal(context, instruction)
        if not literal.elided:
            return literal_value(literal)
        from hlo_cp2ag.executor.inputs import random_value

        return random_value(instruction.shape, 1, np.random.default_rng(_seed(context, instruction)))

    return context.memo(instruction, "constant", make)


def _literal(context: Context, instruction: Instruction) -> Literal:
    return context.memo(instruction, "literal", lambda: read_literal(instruction))


def _seed(context: Context, instruction: Instruction) -> int:
    """The seed of an elided constant's values. Raises HloSyntaxError unless the run fills them."""

    def make() -> int:
        fill = getattr(context, "fill_elided", None)
        if fill is None:
            raise instruction.error(
                "an elided constant has no value",
                hint='dump with large constants, or give it seeded values by fill_elided="random" (--fill-elided random)',
            )
        return int(fill.integers(1 << 62))

    return context.memo(instruction, "seed", make)


@precheck("constant")
def constant_has_value(context: Context, instruction: Instruction) -> None:
    """Raise for an elided constant, unless the run fills them: now it gets its seed, its values when it is run."""
    if _literal(context, instruction).elided:
        _seed(context, instruction)


def literal_value(literal: Literal) -> Value:
    """A literal as a value, the same on all lanes."""
    if isinstance(literal.shape, TupleShape):
        return tuple(map(literal_value, literal.elements))
    return TOKEN if literal.array is None else literal.array[np.newaxis]


@op("iota")
def iota(context: Context, instruction: Instruction) -> Array:
    """Semantics: XLA operation semantics, Iota: 0, 1, 2 ... along one dimension."""

    def make() -> Array:
        shape = array_shape(instruction)
        if not shape.element_count:
            return np.empty((1, *shape.dimensions), dtype_of(shape.element_type))
        along = integer(instruction, "iota_dimension")
        numbers = convert_array(np.arange(shape.dimensions[along], dtype=np.int64), "s64", shape.element_type)
        line = numbers.reshape([1] + [n if d == along else 1 for d, n in enumerate(shape.dimensions)])
        return np.broadcast_to(line, (1, *shape.dimensions))

    return context.memo(instruction, "iota", make)


def keep_type(context: Context, instruction: Instruction, x: Array, number: int = 0) -> Array:
    """The operand in the result's element type: XLA allows another floating-point type to be stated."""
    return as_type(x, array_shape(instruction).element_type)


# ---- shapes ----------------------------------------------------------------------------------------------------------


@op("broadcast")
def broadcast(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, BroadcastInDim: operand dimension i becomes dimension `dimensions[i]`."""
    shape = array_shape(instruction)
    places = context.memo(instruction, "dimensions", lambda: integers(instruction, "dimensions"))
    x = keep_type(context, instruction, x)
    order = sorted(range(len(places)), key=places.__getitem__)
    if order != list(range(len(places))):
        x = x.transpose(0, *(d + 1 for d in order))
    sizes = [1] * shape.rank
    for place, size in zip(sorted(places), x.shape[1:], strict=True):
        sizes[place] = size
    return np.broadcast_to(x.reshape(x.shape[0], *sizes), (x.shape[0], *shape.dimensions))


@op("reshape")
def reshape(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, Reshape: the elements in row-major order, whatever the layouts."""
    result: Array = keep_type(context, instruction, x).reshape(x.shape[0], *array_shape(instruction).dimensions)
    return result


@op("transpose")
def transpose(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, Transpose: dimension i of the result is the operand's `dimensions[i]`."""
    order = integers(instruction, "dimensions")
    result: Array = keep_type(context, instruction, x).transpose(0, *(d + 1 for d in order))
    return result


@op("reverse")
def reverse(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, Rev (reverse): the order of elements turned around in `dimensions`."""
    x = keep_type(context, instruction, x)
    return np.flip(x, tuple(d + 1 for d in integers(instruction, "dimensions")))


@op("concatenate")
def concatenate(context: Context, instruction: Instruction, *operands: Array) -> Array:
    """Semantics: XLA operation semantics, Concatenate."""
    (along,) = integers(instruction, "dimensions")
    parts = [keep_type(context, instruction, x) for x in align(*operands)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=along + 1)


@op("slice")
def slice_(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, Slice: from start to limit by stride."""
    ranges = cast(SliceRanges, instruction.attribute("slice", SliceRanges())).ranges
    x = keep_type(context, instruction, x)
    return cut(x, [slice(start, limit, stride) for start, limit, stride in ranges])


@op("pad")
def pad(context: Context, instruction: Instruction, x: Array, filling: Array) -> Array:
    """Semantics: XLA operation semantics, Pad: interior padding first, then the edges, where negative sizes cut."""
    config = cast(PaddingConfig, instruction.attribute("padding")).dimensions
    shape = array_shape(instruction)
    x, filling = align(keep_type(context, instruction, x), keep_type(context, instruction, filling))
    fill = filling.reshape(-1, *[1] * shape.rank)
    result = np.empty((x.shape[0], *shape.dimensions), x.dtype)
    result[...] = fill
    to, origin = [slice(None)], [slice(None)]
    for (low, _, interior), size, target in zip(config, x.shape[1:], shape.dimensions, strict=True):
        step = interior + 1
        first = max(0, -(low // step))  # the first operand element at or after the result's edge
        stop = min(size, (target - 1 - low) // step + 1)
        if stop <= first:
            return result
        origin.append(slice(first, stop))
        to.append(slice(low + first * step, low + (stop - 1) * step + 1, step))
    result[tuple(to)] = x[tuple(origin)]
    return result


# ---- at places that are computed -------------------------------------------------------------------------------------


def starts_of(
    context: Context, instruction: Instruction, indices: tuple[Array, ...], first: int, limits: list[int]
) -> Array:
    """Start indices `[lanes, rank]` in s64, clamped to `[0, limit]`; scalars, or one array of them."""
    rank = len(limits)
    if not rank:
        return np.zeros((1, 0), np.int64)
    types = [array_shape_of(s).element_type for s in context.operand_shapes(instruction)[first:]]

    def clamped(index: Array, element_type: str, limit: int) -> Array:
        wide = lift(index, element_type)
        if wide.dtype == np.uint64:
            wide = np.minimum(wide, np.uint64(limit))
        return np.clip(wide.astype(np.int64), 0, limit)

    if len(indices) == 1 and indices[0].ndim == 2:
        columns = [clamped(indices[0][:, d], types[0], limits[d]) for d in range(rank)]
    else:
        columns = [clamped(index, t, limit) for index, t, limit in zip(indices, types, limits, strict=True)]
    return np.stack(align(*columns), axis=1)


@op("dynamic-slice")
def dynamic_slice(context: Context, instruction: Instruction, x: Array, *indices: Array) -> Array:
    """Semantics: XLA operation semantics, DynamicSlice: starts are clamped so that the slice lies inside."""
    sizes = integers(instruction, "dynamic_slice_sizes")
    x = keep_type(context, instruction, x)
    limits = [total - size for total, size in zip(x.shape[1:], sizes, strict=True)]
    starts = starts_of(context, instruction, indices, 1, limits)
    if starts.shape[0] == 1 or (starts == starts[0]).all():
        return cut(x, blocks(starts[0], sizes))
    lanes = starts.shape[0]
    if lanes <= 64:
        x = expand(x, lanes)
        result = np.empty((lanes, *sizes), x.dtype)
        for lane, start in enumerate(starts.tolist()):
            result[lane] = x[lane][tuple(slice(s, s + n) for s, n in zip(start, sizes, strict=True))]
        return result
    return x[element_places(starts, sizes, x.shape[0])]


def blocks(start: Array, sizes: tuple[int, ...]) -> list[slice]:
    """The slices of the block of `sizes` at a start `[rank]`."""
    return [slice(s, s + n) for s, n in zip(start.tolist(), sizes, strict=True)]


def cut(x: Array, slices: list[slice]) -> Array:
    """A view of a part of all lanes."""
    whole: list[slice] = [slice(None), *slices]
    view: Array = x[tuple(whole)]
    return view


def element_places(starts: Array, sizes: tuple[int, ...], lanes: int) -> tuple[Array, ...]:
    """Index arrays for the blocks of `sizes` at each lane's start, in an array with a lane axis of length `lanes`."""
    rank = len(sizes)
    numbers = np.arange(starts.shape[0]) if lanes > 1 else np.zeros(starts.shape[0], np.int64)
    places = [numbers.reshape(-1, *[1] * rank)]
    for d, size in enumerate(sizes):
        offsets = np.arange(size).reshape([1] + [size if e == d else 1 for e in range(rank)])
        places.append(starts[:, d].reshape(-1, *[1] * rank) + offsets)
    return tuple(places)


@op("dynamic-update-slice")
def dynamic_update_slice(context: Context, instruction: Instruction, x: Array, update: Array, *indices: Array) -> Array:
    """Semantics: XLA operation semantics, DynamicUpdateSlice: starts are clamped so that the update lies inside."""
    x, update = keep_type(context, instruction, x), keep_type(context, instruction, update)
    sizes = update.shape[1:]
    limits = [total - size for total, size in zip(x.shape[1:], sizes, strict=True)]
    starts = starts_of(context, instruction, indices, 2, limits)
    if 0 in sizes:
        return x
    if starts.shape[0] == 1 or (starts == starts[0]).all():
        result = np.array(expand(x, max(x.shape[0], update.shape[0])))
        cut(result, blocks(starts[0], sizes))[...] = update
        return result
    lanes = starts.shape[0]
    result = np.array(expand(x, lanes))
    result[element_places(starts, sizes, lanes)] = expand(update, lanes)
    return result
