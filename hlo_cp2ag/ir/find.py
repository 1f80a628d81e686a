"""Finds instructions by a search over the text, so that only those that somebody asks for are read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_cp2ag.ir.module import HloModule, Instruction, InstructionBody

CALLING = (
    *("to_apply", "calls", "condition", "body", "true_computation", "false_computation", "branch_computations"),
    *("called_computations", "select", "scatter"),
)
"""The attributes that name computations."""


def instructions_with(module: HloModule, pattern: re.Pattern[str]) -> Iterator[Instruction]:
    """The instructions at whose opcode `pattern` matches, in text order.

    A match in a string, a comment or an operand's name is none: the instruction that holds the place must have its
    opcode exactly there.
    """
    for offset, opcode, instruction in _matches(module, pattern):
        if opcode == instruction.opcode and opcode_start(instruction) == offset:
            yield instruction


def refuse_nested(module: HloModule, pattern: re.Pattern[str]) -> None:
    """Raise HloSyntaxError if `pattern` matches the opcode of an operand that is written out in place."""
    for offset, opcode, instruction in _matches(module, pattern):
        body = instruction.body
        if body.opcode_span.start != offset and _holds(body, offset):
            message = f"this {opcode} is written out in place as an operand"
            raise module.source.error(offset, message, hint="give it a name and a line of its own")


def instruction_at(module: HloModule, offset: int) -> Instruction | None:
    """The instruction that holds a place of the text."""
    computation = module.computation_at(offset)
    if computation is None:
        return None
    return computation.table.at(offset)


def opcode_start(instruction: Instruction) -> int:
    """Where an instruction's opcode stands."""
    line = instruction.known_line
    return line.opcode_start if line is not None else instruction.body.opcode_span.start


def _matches(module: HloModule, pattern: re.Pattern[str]) -> Iterator[tuple[int, str, Instruction]]:
    """Where `pattern` matches an opcode's characters, and the instruction that holds the place."""
    text = module.text
    for match in pattern.finditer(text):
        offset = match.start()
        if offset and (text[offset - 1].isalnum() or text[offset - 1] in "_.-%\"'"):
            continue
        instruction = instruction_at(module, offset)
        if instruction is not None:
            yield offset, match.group().rstrip("( \t\r\n"), instruction


def _holds(body: InstructionBody, offset: int) -> bool:
    """Whether some operand that is written out in place, at any depth, has its opcode at a place of the text."""
    pending = [body]
    while pending:
        nested = [operand.nested for operand in pending.pop().operands if operand.nested is not None]
        if any(inner.opcode_span.start == offset for inner in nested):
            return True
        pending += nested
    return False
