"""The order in which XLA visits a computation's instructions: operands before users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from hlo_cp2ag.ir.module import Computation, Instruction, InstructionBody


def post_order(computation: Computation) -> list[Instruction]:
    """Every instruction once, after its operands and control predecessors; else as XLA prints them.

    Source: HloComputation::MakeInstructionPostOrder: a depth-first walk from each instruction that has no users, in text
    order; the last control predecessor first, then the operands from the first on. Channels do not matter, as in XLA
    where one program runs on all devices.

    Raises HloSyntaxError for operands or control predecessors that are not there.
    """
    reads = {instruction: list(_reads(instruction)) for instruction in computation}
    used = {source for instruction in computation for source in _operands(instruction)}
    visiting: set[Instruction] = set()
    done: dict[Instruction, None] = {}
    for root in computation:
        if root in used:
            continue
        stack = [root]
        while stack:
            current = stack[-1]
            if current in visiting or current in done:
                stack.pop()
                done.setdefault(current)
                continue
            visiting.add(current)
            stack += [source for source in reads[current] if source not in done]
    return list(done)


def _reads(instruction: Instruction) -> Iterator[Instruction]:
    """Operands from the last to the first, then control predecessors: the last of these is visited first."""
    yield from reversed(_operands(instruction))
    for name in cast("tuple[str, ...]", instruction.attribute("control-predecessors", ())):
        predecessor = instruction.computation.find(name)
        if predecessor is None:
            attribute = instruction.attribute_text("control-predecessors")
            raise instruction.error(f"undefined control predecessor {name!r}", attribute and attribute.value_span)
        yield predecessor


def _operands(instruction: Instruction) -> list[Instruction]:
    """The instructions that operands name, those inside operands that are written out in place included."""
    found: list[Instruction] = []
    pending: list[InstructionBody] = [instruction.body]
    while pending:
        for operand in pending.pop().operands:
            if operand.nested is not None:
                pending.append(operand.nested)
            elif operand.name is not None:
                found.append(instruction.operand_instruction(operand))
    return found
