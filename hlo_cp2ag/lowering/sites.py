"""Where a module's permutes are, found by one search over the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_cp2ag.ir.find import instruction_at, opcode_start
from hlo_cp2ag.ir.module import HloModule, Instruction

_PERMUTE = "collective-permute"
_OPCODE = re.compile(r"([a-z\-]+)[ \t\r\n]*\(")


def permutes(module: HloModule) -> Iterator[Instruction]:
    """All collective-permutes and collective-permute-starts in text order.

    What looks like one in a string, a comment or an operand's name is none: the instruction that holds the place must
    have its opcode exactly there.
    """
    text = module.text
    offset = text.find(_PERMUTE)
    while offset >= 0:
        match = _OPCODE.match(text, offset)
        if (
            match is not None
            and match[1] in (_PERMUTE, f"{_PERMUTE}-start")
            and not (offset and (text[offset - 1].isalnum() or text[offset - 1] in "_.-%\"'"))
        ):
            instruction = instruction_at(module, offset)
            if instruction is not None and match[1] == instruction.opcode and opcode_start(instruction) == offset:
                yield instruction
            elif instruction is not None and instruction.opcode != match[1]:
                # A string, an operand written in place; or text that only looks as if it had another opcode.
                instruction.body  # noqa: B018  raises HloSyntaxError
        offset = text.find(_PERMUTE, offset + len(_PERMUTE))
