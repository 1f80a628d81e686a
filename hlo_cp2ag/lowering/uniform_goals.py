"""The questions that `Uniformity` asks itself, and their answers."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.lowering.uniform_operations import Path, Varies, title_of

T = TypeVar("T")


class Leaf(NamedTuple):
    """An element of one of a computation's parameters."""

    parameter: int
    path: Path


class Elements:
    """The elements of a computation's parameters that were met so far, each with a bit of its own."""

    def __init__(self) -> None:
        self._order: list[Leaf] = []
        self._bits: dict[Leaf, int] = {}

    def bit(self, leaf: Leaf) -> int:
        """The bit of an element."""
        bit = self._bits.get(leaf)
        if bit is None:
            bit = self._bits[leaf] = 1 << len(self._order)
            self._order.append(leaf)
        return bit

    def of(self, bits: int) -> list[Leaf]:
        """The elements of bits."""
        found = []
        while bits:
            low = bits & -bits
            found.append(self._order[low.bit_length() - 1])
            bits ^= low
        return found


class Verdict(NamedTuple):
    """How a computation is entered, and the call that decided it."""

    together: bool
    reason: str = ""
    call: Instruction | None = None
    is_vacuous: bool = False


Need = int | Varies
"""The elements of its computation's parameters that must be uniform for a value to be so, as bits; or why it varies."""
Paths = tuple[Path, ...] | Varies
"""Elements of a while's initial value; or why what depends on them varies all the same."""


@dataclass(frozen=True)
class Depends:
    """What must be uniform for a value to be so (`Need`); answered within its computation."""

    instruction: Instruction
    path: Path


@dataclass(frozen=True)
class Settles:
    """Whether a value is uniform, whoever calls: 0 or `Varies`."""

    instruction: Instruction
    path: Path


@dataclass(frozen=True)
class Given:
    """Whether an element of a parameter is uniform at every call: 0 or `Varies`."""

    computation: Computation
    leaf: Leaf


@dataclass(frozen=True)
class Reaches:
    """The initial elements that a loop-carried element depends on (`Paths`)."""

    loop: Instruction
    path: Path


@dataclass(frozen=True)
class Continues:
    """The initial elements that a loop's condition depends on (`Paths`)."""

    loop: Instruction


@dataclass(frozen=True)
class Entered:
    """How a computation is entered (`Verdict`)."""

    computation: Computation


Goal = Depends | Settles | Given | Reaches | Continues | Entered
Steps = Generator[Goal, Any, T]
"""A goal at work: yields the goals that it needs, is sent their answers, and returns its own."""


def circular(goal: Goal) -> Varies | Verdict:
    """The answer to a goal that waits for itself: HLO has no recursion, so nothing is proved of it."""
    if isinstance(goal, Entered):
        return Verdict(False, f"{title_of(goal.computation)} calls itself")
    return Varies("a computation that calls itself")
