"""Where a module's permutes are, found by one search over the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_cp2ag.ir.module import HloModule, Instruction

_PERMUTE = re.compile(r"collective-permute(?:-start)?[ \t\r\n]*\(")


def permutes(module: HloModule) -> Iterator[Instruction]:
    """All collective-permutes and collective-permute-starts in text order."""
    return instructions_with(module, _PERMUTE)


def instructions_with(module: HloModule, pattern: re.Pattern[str]) -> Iterator[Instruction]:
    """The instructions at whose opcode `pattern` matches, in text order.

    A match in a string, a comment or an operand's name is none: the instruction that holds the place must have its
    opcode exactly there.
    """
    text = module.text
    for match in pattern.finditer(text):
        offset = match.start()
        if offset and (text[offset - 1].isalnum() or text[offset - 1] in "_.-%\"'"):
            continue
        instruction = instruction_at(module, offset)
        if (
            instruction is not None
            and match.group().rstrip("( \t\r\n") == instruction.opcode
            and _opcode_start(instruction) == offset
        ):
            yield instruction


def _opcode_start(instruction: Instruction) -> int:
    line = instruction.known_line
    return line.opcode_start if line is not None else instruction.body.opcode_span.start


def instruction_at(module: HloModule, offset: int) -> Instruction | None:
    """The instruction that holds a place of the text."""
    computation = module.computation_at(offset)
    if computation is None:
        return None
    return computation.table.at(offset)
