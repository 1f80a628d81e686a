"""Tuples, calls and control flow.

A while or conditional on whose predicate lanes disagree runs under a mask: every lane computes along, and what the ones
outside the mask compute is thrown away.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift
from hlo_cp2ag.executor.ops.unary import operand_type
from hlo_cp2ag.executor.registry import Context, TooManySteps, integer, op
from hlo_cp2ag.executor.values import TOKEN, Array, Token, Value, choose, expand
from hlo_cp2ag.ir.module import Instruction


@op("tuple")
def tuple_(context: Context, instruction: Instruction, *operands: Value) -> Value:
    """Semantics: XLA operation semantics, Tuple."""
    return operands


@op("get-tuple-element")
def get_tuple_element(context: Context, instruction: Instruction, operand: tuple[Value, ...]) -> Value:
    """Semantics: XLA operation semantics, GetTupleElement."""
    return operand[context.memo(instruction, "index", lambda: integer(instruction, "index"))]


@op("call")
def call(context: Context, instruction: Instruction, *operands: Value) -> Value:
    """Semantics: XLA operation semantics, Call."""
    return context.call(context.computation(instruction, "to_apply"), operands)


@op("fusion")
def fusion(context: Context, instruction: Instruction, *operands: Value) -> Value:
    """Semantics: XLA operation semantics, Fusion: what the called computation returns."""
    return context.call(context.computation(instruction, "calls"), operands)


@op("after-all")
def after_all(context: Context, instruction: Instruction, *operands: Value) -> Token:
    """Semantics: XLA operation semantics, AfterAll: a token."""
    return TOKEN


@op("add-dependency")
def add_dependency(context: Context, instruction: Instruction, operand: Value, token: Value) -> Value:
    """Semantics: XLA, HloInstruction::CreateAddDependency: the operand, after the token."""
    return operand


@op("while")
def while_(context: Context, instruction: Instruction, state: Value) -> Value:
    """Semantics: XLA operation semantics, While: each lane leaves the loop when its own condition is false."""
    before, iteration = context.steps, 0
    condition, body = context.computation(instruction, "condition"), context.computation(instruction, "body")
    mask = context.active
    some_left = False
    try:
        while True:
            iteration += 1
            goes_on = cast(Array, context.call(condition, (state,), mask))
            if goes_on.shape[0] == 1:
                if not goes_on[0]:
                    return state
            else:
                here = goes_on if mask is None else goes_on & mask
                if not here.any():
                    return state
                if not (here.all() if mask is None else np.array_equal(here, mask)):
                    mask, some_left = here, True
            result = context.call(body, (state,), mask)
            state = choose(mask, result, state) if some_left and mask is not None else result
    except TooManySteps as limit:
        limit.leaves(instruction, iteration, 2 * (context.steps - before) >= context.steps)
        raise


@op("conditional")
def conditional(context: Context, instruction: Instruction, selector: Array, *arguments: Value) -> Value:
    """Semantics: XLA operation semantics, Conditional: true is the first branch, an index out of range the last one."""
    if instruction.attribute_text("branch_computations") is not None:
        branches = context.computations(instruction, "branch_computations")
    else:
        branches = (
            context.computation(instruction, "true_computation"),
            context.computation(instruction, "false_computation"),
        )
    if selector.dtype == np.bool_:
        chosen = np.where(selector, 0, 1)
    else:
        number = lift(selector, operand_type(context, instruction)).astype(np.int64)
        chosen = np.where((number < 0) | (number >= len(branches)), len(branches) - 1, number)
    mask = context.active
    taken = np.unique(chosen if mask is None or chosen.shape[0] == 1 else chosen[mask]).tolist()
    if len(taken) <= 1:
        branch = int(taken[0]) if taken else 0
        return context.call(branches[branch], (arguments[branch],))
    chosen = expand(chosen, context.lanes)
    result: Value | None = None
    for branch in taken:
        here = chosen == branch if mask is None else (chosen == branch) & mask
        value = context.call(branches[branch], (arguments[branch],), here)
        result = value if result is None else choose(here, value, result)
    assert result is not None
    return result
