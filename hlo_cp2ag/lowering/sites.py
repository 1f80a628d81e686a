"""Where a module's permutes are, found by one search over the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_cp2ag.ir.find import instructions_with
from hlo_cp2ag.ir.module import HloModule, Instruction

_PERMUTE = re.compile(r"collective-permute(?:-start)?[ \t\r\n]*\(")


def permutes(module: HloModule) -> Iterator[Instruction]:
    """All collective-permutes and collective-permute-starts in text order."""
    return instructions_with(module, _PERMUTE)
