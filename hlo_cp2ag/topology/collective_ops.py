"""Which instructions are collectives, and where a module has them."""

from __future__ import annotations

import re

from hlo_cp2ag.ir.find import instructions_with, refuse_nested
from hlo_cp2ag.ir.module import HloModule, Instruction

GROUPED = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-broadcast",
)
"""The collectives that have replica_groups."""
PERMUTE = "collective-permute"
"""The one that has source_target_pairs in their place."""

_COLLECTIVE = re.compile(rf"(?:{'|'.join((*GROUPED, PERMUTE))})(?:-start)?[ \t\r\n]*\(")


def base_opcode(instruction: Instruction) -> str:
    """The opcode, `all-gather` for `all-gather-start`."""
    return instruction.opcode.removesuffix("-start")


def is_collective(instruction: Instruction) -> bool:
    """Whether an instruction is a collective or the start of one; a done only waits for its start."""
    return base_opcode(instruction) in GROUPED or is_permute(instruction)


def is_permute(instruction: Instruction) -> bool:
    """Whether an instruction is a collective-permute or the start of one."""
    return base_opcode(instruction) == PERMUTE


def collectives(module: HloModule) -> list[Instruction]:
    """Every collective of every computation in text order; starts count, their dones do not.

    Raises HloSyntaxError for one that is written out in place as an operand, for it has no name.
    """
    refuse_nested(module, _COLLECTIVE)
    found = instructions_with(module, _COLLECTIVE)
    # `reduce-scatter-start(x), calls=%f` is a call; the collective stands in %f.
    return [instruction for instruction in found if instruction.attribute_text("calls") is None]
