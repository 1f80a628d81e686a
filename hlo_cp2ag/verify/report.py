"""What `verify` has found out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hlo_cp2ag.verify.module_run import EngineRun

Outcome = Literal["shown", "not shown", "failed"]
"""Proved; neither proved nor refuted; refuted."""


@dataclass(frozen=True)
class Place:
    """An instruction, for people."""

    computation: str
    name: str
    opcode: str
    line: int
    """In the file, from 1."""
    column: int

    def __str__(self) -> str:
        return f"{self.opcode} {self.name} (line {self.line})"


@dataclass(frozen=True)
class Counterexample:
    """The smallest case in which a site moves the wrong data."""

    device: int
    index: tuple[int, ...]
    """The first element that differs, row-major."""
    expected: str
    """What the first module puts there: "device 3's x[0,0]" or "zero"."""
    got: str
    devices: tuple[int, ...] = ()
    """All devices that differ; empty where it is the same on all of them."""


@dataclass(frozen=True)
class SiteVerdict:
    """One rewritten instruction."""

    before: Place
    after: Place | None
    pairs: tuple[tuple[int, int], ...] | None
    """Of the permute that was rewritten, or that stands in its place."""
    outcome: Outcome
    reason: str = ""
    """Why it is not shown, or what is wrong."""
    conditions: tuple[str, ...] = ()
    """What a shown site leans on, each to be read after "provided"."""
    counterexample: Counterexample | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Remark:
    """One thing outside the sites that is not the same."""

    text: str
    before: Place | None = None
    after: Place | None = None


@dataclass(frozen=True)
class UntouchedVerdict:
    """Check 1: whether the modules are the same graph outside the sites."""

    outcome: Outcome
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """All that `verify` has found out about two modules."""

    replica_count: int
    num_partitions: int
    profile: str
    untouched: UntouchedVerdict
    sites: tuple[SiteVerdict, ...]
    run: tuple[EngineRun, ...] = ()
    """Check 3, one for each engine; empty where it was not asked for."""
    run_required: bool = False
    warnings: tuple[str, ...] = field(default=())
    """About the grid."""

    @property
    def proved(self) -> bool:
        """Whether checks 1 and 2 are shown."""
        return self.untouched.outcome == "shown" and all(site.outcome == "shown" for site in self.sites)

    @property
    def ok(self) -> bool:
        """Whether checks 1 and 2 are shown, and check 3 is, or was not run for a reason and not asked for."""
        if any(run.verdict == "failed" for run in self.run):
            return False
        if self.run_required and not any(run.verdict == "shown" for run in self.run):
            return False
        return self.proved
