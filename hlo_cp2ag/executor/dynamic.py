"""Ops on arrays with bounded dynamic dimensions: arrays of the bound's size that know how many elements are there.

Source: XLA, DynamicDimensionInference and DynamicPadder. Whatever is elementwise computes on all of the room; what
folds or multiplies elements first puts values there that change nothing. Which dimensions may hold fewer elements
follows from the values (set-dimension-size, dynamic-reshape), whether or not shapes say so; a parameter is full. Ops
that are not here refuse such operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, cast

import numpy as np

from hlo_cp2ag.executor.registry import Context, Op, array_shape, execution_error, integers
from hlo_cp2ag.executor.values import Array, Bounded, Value, align, array_shape_of, bounded, expand, sizes_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import is_complex

MAKE_SIZES = frozenset(("set-dimension-size", "dynamic-reshape", "custom-call"))
"""The opcodes that give arrays sizes."""

_HANDED_ON = frozenset(
    (
        *("tuple", "get-tuple-element", "call", "fusion", "while", "conditional", "opt-barrier", "domain"),
        *("get-dimension-size", "set-dimension-size", "dynamic-reshape", "add-dependency", "copy", "after-all"),
    )
)
"""Ops that hand values on as they are, or know of sizes themselves."""
_ELEMENTWISE = frozenset(
    ("compare", "select", "clamp", "convert", "reduce-precision", "complex", "map", "is-finite", "real", "imag", "abs")
)

Sizes = dict[int, Array]


def run_with_sizes(context: Context, instruction: Instruction, function: Op, operands: Sequence[Value]) -> Value:
    """An op on operands of which at least one has sizes. Raises ExecutionError where it cannot be said what it means."""
    from hlo_cp2ag.executor.ops.elementwise import BINARY, UNARY

    opcode = instruction.opcode
    if opcode in _HANDED_ON:
        return function(context, instruction, *operands)
    plain = [x.view(np.ndarray) if isinstance(x, Bounded) else x for x in operands]
    if opcode in _ELEMENTWISE or opcode in UNARY or opcode in BINARY:
        sizes: Sizes = {}
        for x in operands:
            sizes.update(sizes_of(x))
        return bounded(cast(Array, function(context, instruction, *plain)), sizes)
    rule = _RULES.get(opcode)
    if rule is None or (opcode == "custom-call" and instruction.attribute("custom_call_target") != "PadToStatic"):
        refuse(instruction)
    return rule(context, instruction, function, operands, plain)


def refuse(instruction: Instruction) -> NoReturn:
    """Raise ExecutionError: the op is not defined here on such operands."""
    raise execution_error(
        instruction, f"the executor does not support {instruction.opcode} along a dimension of dynamic size"
    )


_Rule = Callable[[Context, Instruction, Op, Sequence[Value], Sequence[Value]], Value]


def _broadcast(
    context: Context, instruction: Instruction, function: Op, operands: Sequence[Value], plain: Sequence[Value]
) -> Value:
    places = integers(instruction, "dimensions")
    made = cast(Array, function(context, instruction, *plain))
    return bounded(made, {places[d]: size for d, size in sizes_of(operands[0]).items()})


def _transpose(
    context: Context, instruction: Instruction, function: Op, operands: Sequence[Value], plain: Sequence[Value]
) -> Value:
    places = integers(instruction, "dimensions")
    made = cast(Array, function(context, instruction, *plain))
    return bounded(made, {places.index(d): size for d, size in sizes_of(operands[0]).items()})


def _reshape(
    context: Context, instruction: Instruction, function: Op, operands: Sequence[Value], plain: Sequence[Value]
) -> Value:
    """Dimensions of size 1 come and go; any other reshape of such an array is a matter for dynamic-reshape."""
    before, after = (
        array_shape_of(context.operand_shapes(instruction)[0]).dimensions,
        array_shape(instruction).dimensions,
    )
    sizes = sizes_of(operands[0])
    kept = [d for d, n in enumerate(before) if n != 1 or d in sizes]
    wanted = [d for d, n in enumerate(after) if n != 1]
    if [before[d] for d in kept] != [after[d] for d in wanted]:
        refuse(instruction)
    made = cast(Array, function(context, instruction, *plain))
    return bounded(made, {wanted[kept.index(d)]: size for d, size in sizes.items()})


def _slice(
    context: Context, instruction: Instruction, function: Op, operands: Sequence[Value], plain: Sequence[Value]
) -> Value:
    """Dynamic dimensions have to stay whole, in slices, concatenations, reversals and sorts."""
    sizes: Sizes = {}
    for x in operands:
        sizes.update(sizes_of(x))
    before, after = array_shape_of(context.operand_shapes(instruction)[0]), array_shape(instruction)
    along = () if instruction.opcode == "slice" else integers(instruction, "dimensions")
    if any(d in along or before.dimensions[d] != after.dimensions[d] for d in sizes):
        refuse(instruction)
    return bounded(cast(Array, function(context, instruction, *plain)), sizes)


def filled(x: Array, sizes: Sizes, filling: Array | float) -> Array:
    """The array with a value in the room that holds no elements, for some of its dimensions."""
    result = x.view(np.ndarray)
    for d, size in sizes.items():
        places = np.arange(x.shape[d + 1]).reshape([-1 if axis == d + 1 else 1 for axis in range(x.ndim)])
        here = places < size.reshape(-1, *[1] * (x.ndim - 1))
        result = np.where(here, result, np.asarray(filling).astype(x.dtype))
    return result


def _reduce(
    context: Context, instruction: Instruction, function: Op, operands: Sequence[Value], plain: Sequence[Value]
) -> Value:
    """Room along the reduced dimensions is filled with what changes nothing, else with the start values, as XLA does."""
    from hlo_cp2ag.executor.ops.windows import identity_of

    along = integers(instruction, "dimensions")
    half = len(operands) // 2
    kind = context.simple_reducer(context.computation(instruction, "to_apply"))
    given = list(plain)
    kept: Sizes = {}
    for i in range(half):
        sizes = sizes_of(operands[i])
        kept.update({d: size for d, size in sizes.items() if d not in along})
        reduced = {d: size for d, size in sizes.items() if d in along}
        x, start = cast(Array, plain[i]), cast(Array, plain[half + i])
        element_type = array_shape_of(context.operand_shapes(instruction)[i]).element_type
        if kind is not None and not (is_complex(element_type) and kind != "add"):
            filling: Array | float = np.asarray(identity_of(kind, element_type) if not is_complex(element_type) else 0)
        else:
            filling = start.reshape(-1, *[1] * (x.ndim - 1))
        given[i] = filled(x, reduced, filling)
    left = [d for d in range(cast(Array, plain[0]).ndim - 1) if d not in along]
    made = function(context, instruction, *given)
    sizes = {left.index(d): size for d, size in kept.items()}
    return (
        tuple(bounded(cast(Array, m), sizes) for m in made)
        if isinstance(made, tuple)
        else bounded(cast(Array, made), sizes)
    )


def _dot(
    context: Context, instruction: Instruction, function: Op, operands: Sequence[Value], plain: Sequence[Value]
) -> Value:
    """Room along contracting dimensions is zero."""
    given, kept = list(plain), {}
    place = len(integers(instruction, "lhs_batch_dims"))
    for i, side in enumerate(("lhs", "rhs")):
        batch, inner = integers(instruction, f"{side}_batch_dims"), integers(instruction, f"{side}_contracting_dims")
        x, sizes = cast(Array, plain[i]), sizes_of(operands[i])
        given[i] = filled(x, {d: n for d, n in sizes.items() if d in inner}, 0)
        free = [d for d in range(x.ndim - 1) if d not in (*batch, *inner)]
        for d, size in sizes.items():
            if d in batch:
                kept[batch.index(d)] = size
            elif d in free:
                kept[place + free.index(d)] = size
        place += len(free)
    # In the other operand, room along the contracting dimensions may hold NaNs.
    pairs = zip(*(integers(instruction, f"{side}_contracting_dims") for side in ("lhs", "rhs")), strict=True)
    for left, right in pairs:
        for i, own, other in ((0, left, right), (1, right, left)):
            theirs = sizes_of(operands[1 - i])
            if other in theirs:
                given[i] = filled(cast(Array, given[i]), {own: theirs[other]}, 0)
    return bounded(cast(Array, function(context, instruction, *given)), kept)


def _pad_to_static(
    context: Context, instruction: Instruction, function: Op, operands: Sequence[Value], plain: Sequence[Value]
) -> Value:
    return pad_to_static(cast(Array, operands[0]))


def pad_to_static(x: Array) -> Value:
    """(the array with all of its room, the size of each dimension)."""
    sizes = sizes_of(x)
    plain = filled(x, sizes, 0) if sizes else x
    numbers = [sizes.get(d, np.full(1, n)).astype(np.int32) for d, n in enumerate(x.shape[1:])]
    return (plain, *numbers)


def slice_to_dynamic(x: Array, *numbers: Array) -> Array:
    """The array with sizes for each dimension; what is full needs none."""
    sizes = {d: np.clip(n.astype(np.int64), 0, x.shape[d + 1]) for d, n in enumerate(numbers)}
    return bounded(x, {d: n for d, n in sizes.items() if (n != x.shape[d + 1]).any()})


def reshaped(x: Array, bounds: tuple[int, ...], numbers: Sequence[Array]) -> Array | None:
    """The elements that are there, in row-major order, as an array of other sizes; None if they are not so many."""
    own = [sizes_of(x).get(d, np.full(1, n)) for d, n in enumerate(x.shape[1:])]
    (plain,) = align(x.view(np.ndarray))
    wanted = [n.astype(np.int64) for n in numbers]
    lanes = max([plain.shape[0], *(n.shape[0] for n in (*own, *wanted))])
    result = np.zeros((lanes, *bounds), plain.dtype)
    for lane in range(lanes):
        at = [slice(0, int(expand(n, lanes)[lane])) for n in own]
        to = [slice(0, int(expand(n, lanes)[lane])) for n in wanted]
        elements = expand(plain, lanes)[lane][tuple(at)]
        target = result[lane][tuple(to)]
        sizes = tuple(int(expand(n, lanes)[lane]) for n in wanted)
        if target.size != elements.size or target.shape != sizes:
            return None
        result[lane][tuple(to)] = elements.reshape(target.shape)
    return slice_to_dynamic(result, *wanted)


_RULES: dict[str, _Rule] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    **dict.fromkeys(("slice", "concatenate", "reverse", "sort"), _slice),
    "reduce": _reduce,
    "dot": _dot,
    "custom-call": _pad_to_static,
}
