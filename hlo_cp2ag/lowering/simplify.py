"""Permutes that need no gather: everybody keeps what it has, or nobody receives anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.rewriter import NewInstruction, Value
from hlo_cp2ag.ir.shape import ArrayShape, Layout, Shape, TupleShape
from hlo_cp2ag.lowering.emit import Tail, zero_literal
from hlo_cp2ag.lowering.mapping import SourceMap

Simplification = Literal["", "operand", "zeros"]


def simplification(sources: SourceMap, non_target: str) -> Simplification:
    """What a permute delivers without a gather: its operand, zeros, or something else."""
    if sources.sources == tuple(range(len(sources.sources))) and (sources.all_targets or non_target == "keep"):
        return "operand"
    return "" if any(sources.is_target) or non_target == "keep" else "zeros"


def emit_simplified(
    kind: Simplification,
    needs_copies: bool,
    operands: tuple[Instruction, ...],
    shape: Shape,
    every_tail: Tail = (),
    tuple_tail: Tail = (),
    last_tail: Tail = (),
    control_predecessors: tuple[str, ...] = (),
) -> list[NewInstruction]:
    """The new instructions in order: a copy or zeros for each operand, then the tuple of several.

    Operands of a tuple are copied only where they have to be: for another layout, or with `needs_copies`, which is for
    text behind XLA's copy insertion: there a result can be neither a parameter nor a constant.
    """
    results = shape.elements if isinstance(shape, TupleShape) else (shape,)
    new: list[NewInstruction] = []
    made: list[Value] = []
    for operand, result in zip(operands, results, strict=True):
        assert isinstance(result, ArrayShape)
        if kind == "operand" and not needs_copies and isinstance(shape, TupleShape) and operand.shape == result:
            made.append(operand)
            continue
        if kind == "operand":
            new.append(NewInstruction("copy", result, (operand,)))
        elif result.dimensions:
            scalar = replace(result, dimensions=(), dynamic=(), layout=Layout(()))
            zero = NewInstruction("constant", scalar, literal=zero_literal(result.element_type))
            new += [zero, NewInstruction("broadcast", result, (zero,), (("dimensions", "{}"),))]
        else:
            new.append(NewInstruction("constant", result, literal=zero_literal(result.element_type)))
            if needs_copies:
                new.append(NewInstruction("copy", result, (new[-1],)))
        made.append(new[-1])
    if isinstance(shape, TupleShape):
        new.append(NewInstruction("tuple", shape, tuple(made)))
    for each in new:
        each.tail = tuple_tail if each.opcode == "tuple" else every_tail
    new[-1].tail += last_tail
    new[-1].control_predecessors = control_predecessors
    return new
