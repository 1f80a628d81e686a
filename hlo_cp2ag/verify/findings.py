"""What matching two computations finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.verify.comparison import Disagreement


@dataclass
class SiteMatch:
    """An instruction of the first computation that was rewritten, and what stands for it in the second."""

    before: Instruction
    after: Instruction | None
    disagreement: Disagreement | None = None
    """None if they are shown to be equal."""
    why: str = ""
    """Why there is nothing to compare it with, if it is so."""
    lost_payload: bool = False
    before_region: list[Instruction] = field(default_factory=list)
    """What the site consists of, in text order, its output last."""
    after_region: list[Instruction] = field(default_factory=list)
    stands_for: tuple[Instruction, ...] = ()
    """Other instructions of the first computation that became the same value."""
    seconds: float = 0.0


@dataclass
class Difference:
    """Something outside the sites that is not the same."""

    text: str
    before: Instruction | None = None
    after: Instruction | None = None
    certain: bool = True
    """Whether the graphs are not the same for certain, rather than not understood."""
