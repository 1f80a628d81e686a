"""Tuples, calls, loops, conditionals and asynchronous pairs in the symbolic domain."""

from __future__ import annotations

from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift
from hlo_cp2ag.executor.registry import Context, integer
from hlo_cp2ag.executor.values import Array, Token, array_shape_of, zeros
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import TupleShape
from hlo_cp2ag.text.opcodes import split_opcode
from hlo_cp2ag.verify import symbols
from hlo_cp2ag.verify.bits import codes_of_bits
from hlo_cp2ag.verify.movement import MOVERS, Evaluation, Moved, moves, unknown_of
from hlo_cp2ag.verify.symbols import Symbols

_MOST_ITERATIONS = 10_000


@moves("tuple")
def tuple_(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """The operands as one value."""
    return operands


@moves("get-tuple-element")
def get_tuple_element(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """One element."""
    assert isinstance(x, tuple)
    return x[integer(instruction, "index")]


@moves("opt-barrier")
def opt_barrier(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """The operand."""
    return operands[0] if len(operands) == 1 else operands


@moves("all-reduce-done", "async-update")
def first_operand(site: Evaluation, instruction: Instruction, x: Moved, *rest: Moved) -> Moved:
    """The first operand."""
    return x


@moves("call", "fusion")
def call(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """What the called computation moves."""
    attribute = "to_apply" if instruction.attribute_text("to_apply") is not None else "calls"
    return site.call(site.context.computation(instruction, attribute), operands)


def _started(instruction: Instruction, operands: Moved, result: Moved) -> Moved:
    shape = instruction.shape
    if not isinstance(shape, TupleShape):
        return result
    if isinstance(shape.elements[0], TupleShape) and not isinstance(operands, tuple):
        operands = (operands,)
    rest = shape.elements[2:]
    return (operands, result, *(cast(Moved, zeros(element)) for element in rest))


@moves("all-gather-start", "collective-permute-start")
def started(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """The work is done where it is started: (operand, result, contexts)."""
    result = MOVERS[instruction.opcode.removesuffix("-start")](site, instruction, *operands)
    return _started(instruction, operands[0] if len(operands) == 1 else operands, result)


@moves("all-reduce-start")
def all_reduce_start(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """The result alone."""
    return MOVERS["all-reduce"](site, instruction, *operands)


@moves("copy-start")
def copy_start(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """(result, operand, context)."""
    return _started(instruction, x, x)


@moves("copy-done")
def copy_done(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """The first element."""
    assert isinstance(x, tuple)
    return x[0]


@moves("all-gather-done", "collective-permute-done", "async-done")
def done(site: Evaluation, instruction: Instruction, x: Moved) -> Moved:
    """The second element, or what a start hands out alone."""
    return x[1] if isinstance(x, tuple) else x


@moves("async-start")
def async_start(site: Evaluation, instruction: Instruction, *operands: Moved) -> Moved:
    """What the started computation, or the one op of a sugared start, moves."""
    if instruction.opcode == "async-start":
        result = site.call(site.context.computation(instruction, "calls"), operands)
    else:
        inside = site.context.wrapped(instruction)
        mover = MOVERS.get(inside.opcode)
        if mover is None:
            return unknown_of(instruction.shape, f"{inside.opcode} {instruction.name} computes with data")
        result = mover(site, inside, *operands)
    return _started(instruction, operands, result)


def mover_of(opcode: str) -> str | None:
    """The name under which an opcode's mover is registered; None if it has none."""
    if opcode in MOVERS:
        return opcode
    split = split_opcode(opcode)
    return split[0] if split is not None and split[1] is not None and split[0] in MOVERS else None


def chosen_branches(context: Context, instruction: Instruction, number: Array) -> tuple[tuple[Computation, ...], Array]:
    """A conditional's computations, and which of them each device takes. Raises HloSyntaxError."""
    if instruction.attribute_text("branch_computations") is not None:
        branches = context.computations(instruction, "branch_computations")
        element_type = array_shape_of(context.operand_shapes(instruction)[0]).element_type
        wide = lift(number, element_type)
        last = len(branches) - 1
        chosen = np.where((wide < 0) | (wide > last), last, wide).astype(np.int64)
    else:
        names = ("true_computation", "false_computation")
        branches = tuple(context.computation(instruction, name) for name in names)
        chosen = np.where(number, 0, 1)
    if number.dtype == np.bool_ and instruction.attribute_text("branch_computations") is not None:
        chosen = np.where(number, 0, 1)
    return branches, chosen


@moves("conditional")
def conditional(site: Evaluation, instruction: Instruction, selector: Moved, *arguments: Moved) -> Moved:
    """Semantics: XLA, Conditional, by a computed predicate; each device has its own branch's result."""
    number = site.computed(selector, instruction, "predicate")
    context = site.context
    branches, chosen = chosen_branches(context, instruction, number)
    taken = np.unique(chosen).tolist()
    if len(taken) == 1:
        return site.call(branches[taken[0]], (arguments[taken[0]],))
    saved = context.active
    result: Moved | None = None
    for branch in taken:
        here = np.broadcast_to(chosen == branch, (context.grid.device_count,))
        context.active = here if saved is None else here & saved
        try:
            value = site.call(branches[branch], (arguments[branch],))
        finally:
            context.active = saved
        result = value if result is None else _choose(here, value, result, instruction.shape)
    assert result is not None
    return result


def _choose(mask: Array, chosen: Moved, other: Moved, shape: object) -> Moved:
    if isinstance(chosen, tuple) and isinstance(other, tuple) and isinstance(shape, TupleShape):
        return tuple(_choose(mask, a, b, s) for a, b, s in zip(chosen, other, shape.elements, strict=True))
    if isinstance(chosen, Token) or isinstance(other, Token) or isinstance(chosen, tuple) or isinstance(other, tuple):
        return chosen
    element_type = array_shape_of(shape).element_type  # type: ignore[arg-type]
    a, b = (v if isinstance(v, Symbols) else codes_of_bits(v, element_type) for v in (chosen, other))
    if a.is_empty:
        return a
    (x, y), dims = symbols.unify([a, b])
    return symbols.combined([a, b], np.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, y), dims)


@moves("while")
def while_(site: Evaluation, instruction: Instruction, state: Moved) -> Moved:
    """Semantics: XLA, While, as often as a computed condition says, the same on all devices."""
    context = site.context
    condition, body = context.computation(instruction, "condition"), context.computation(instruction, "body")
    for _ in range(_MOST_ITERATIONS):
        goes_on = site.computed(site.call(condition, (state,)), instruction, "condition")
        if not (goes_on == goes_on[0]).all():
            return unknown_of(instruction.shape, f"devices leave the loop {instruction.name} at different times")
        if not goes_on[0]:
            return state
        state = site.call(body, (state,))
    return unknown_of(instruction.shape, f"the loop {instruction.name} takes more than {_MOST_ITERATIONS:,} rounds")
