"""Start and done pairs. A start does the work, and returns operands and result as its shape says."""

from __future__ import annotations

from hlo_cp2ag.executor.ops.collectives import all_gather, all_reduce, collective_permute
from hlo_cp2ag.executor.plan import function_of
from hlo_cp2ag.executor.registry import Context, op
from hlo_cp2ag.executor.values import Array, Value, zeros
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import TupleShape


def started(instruction: Instruction, operands: Value, result: Value) -> Value:
    """Operands, result, and zeros for the context words that the shape has behind them."""
    shape = instruction.shape
    if not isinstance(shape, TupleShape):
        return result
    if isinstance(shape.elements[0], TupleShape) and not isinstance(operands, tuple):
        operands = (operands,)
    return (operands, result, *map(zeros, shape.elements[2:]))


@op("all-gather-start")
def all_gather_start(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA, HloAllGatherInstruction as a start: (operand, result)."""
    result = all_gather(context, instruction, *operands)
    return started(instruction, operands[0] if len(operands) == 1 else operands, result)


@op("all-reduce-start")
def all_reduce_start(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA, HloAllReduceInstruction as a start: the result alone."""
    return all_reduce(context, instruction, *operands)


@op("collective-permute-start")
def collective_permute_start(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA, HloCollectivePermuteInstruction as a start: (operand, result, contexts)."""
    result = collective_permute(context, instruction, *operands)
    return started(instruction, operands[0] if len(operands) == 1 else operands, result)


@op("copy-start")
def copy_start(context: Context, instruction: Instruction, operand: Value) -> Value:
    """Semantics: XLA, HloCopyStartInstruction: (result, operand, context)."""
    return started(instruction, operand, operand)


@op("all-reduce-done", "async-update")
def all_reduce_done(context: Context, instruction: Instruction, operand: Value) -> Value:
    """Semantics: XLA, AllReduceDone and AsyncUpdate: the operand."""
    return operand


@op("copy-done")
def copy_done(context: Context, instruction: Instruction, operand: tuple[Value, ...]) -> Value:
    """Semantics: XLA, CopyDone: the first element."""
    return operand[0]


@op("all-gather-done", "collective-permute-done", "async-done")
def async_done(context: Context, instruction: Instruction, operand: Value) -> Value:
    """Semantics: XLA, AllGatherDone, CollectivePermuteDone and AsyncDone: the second element, or the result alone."""
    return operand[1] if isinstance(operand, tuple) else operand


@op("async-start")
def async_start(context: Context, instruction: Instruction, *operands: Value) -> Value:
    """Semantics: XLA, HloAsyncStartInstruction: ((operands), result, contexts); also `reduce-scatter-start(...)`."""
    if instruction.opcode == "async-start":
        result = context.call(context.computation(instruction, "calls"), operands)
    else:
        inside = context.wrapped(instruction)
        result = function_of(inside)(context, inside, *operands)
    return started(instruction, operands, result)
