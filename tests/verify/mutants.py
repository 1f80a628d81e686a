"""Mutants of a form, what engines make of them, and what verify says.

XLA decides where it is installed and runs the form itself, the executor elsewhere. The executor is asked in any case,
with more seeds, NaNs among them: what differs in either has changed. XLA is not asked about what has changed in the
executor and is rejected, since no answer could make that wrong; and of the mutants that the executor and verify agree on
to be equal, the quick run hands a share to XLA, the sweep all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest

import hlo_cp2ag
from hlo_cp2ag.engines.xla import XlaRun, run_on_xla
from hlo_cp2ag.executor.inputs import input_shapes, random_inputs
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.module import HloModule
from hlo_cp2ag.ir.shape import is_floating
from hlo_cp2ag.ir.source import HloError, HloSyntaxError
from hlo_cp2ag.verify.verification import verify
from tests.xla.judge import available, bit_equal

# Each of the three registers its own.
from . import equal_mutations, more_mutations  # noqa: F401
from .forms import Form
from .mutations import MUTATIONS, OUTSIDE, Text
from .test_symbols import random_bits

Outcome = Literal["equal", "differs", "broken", "invalid"]
"""broken: it is refused, or dies, or hangs. invalid: it is no module, whoever throws the wrong instruction away before
he looks at it, as XLA does with what nothing hangs on."""
TIME_LIMIT = 4.0
SEEDS = 3


@dataclass
class Mutant:
    """One text, by all mutations that made it."""

    text: str
    made_by: list[str] = field(default_factory=list)
    what: str = ""
    in_site: bool = False
    executor: Outcome = "equal"
    xla: XlaRun | None = None
    xla_outcome: Outcome | None = None
    proved: bool = False
    conditions: tuple[str, ...] = ()
    said: str = ""
    """Why verify does not show it."""

    @property
    def outcome(self) -> Outcome:
        if self.executor == "differs" or self.xla_outcome == "differs":
            return "differs"
        if self.executor == "invalid":
            return "broken"
        return self.executor if self.xla_outcome is None else self.xla_outcome

    @property
    def wrong(self) -> str:
        """What verify has got wrong; nothing if it is right."""
        if self.outcome == "differs" and self.proved and not (self.conditions and self.executor == "equal"):
            return "shown, and the outputs differ"
        if self.outcome == "broken" and self.proved and not self.conditions:
            return "shown without a condition, and it does not run"
        if self.outcome == "equal" and self.in_site and not self.proved:
            return "not shown, and the outputs are equal"
        return ""


@dataclass
class Tally:
    """What became of a form's mutants."""

    form: Form
    mutants: list[Mutant]

    @property
    def wrong(self) -> list[Mutant]:
        return [m for m in self.mutants if m.wrong]

    @property
    def numbers(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for m in self.mutants:
            found["mutants"] += 1
            found[m.outcome] += 1
            if m.outcome != "equal":
                found["killed"] += not m.wrong
            elif m.in_site:
                found["equal in a site"] += 1
                found["shown"] += not m.wrong
        return found


def mutants_of(form: Form) -> list[Mutant]:
    """All different texts that mutations make of a form, in order."""
    text = Text(form.before, form.after)
    found: dict[str, Mutant] = {}
    for name, mutation in MUTATIONS.items():
        for what, edited in mutation(text):
            if edited == form.after:
                continue
            one = found.setdefault(edited, Mutant(edited, what=f"{name}: {what}"))
            one.made_by.append(name)
            one.in_site = one.in_site or name not in OUTSIDE
    return list(found.values())


def judged(form: Form, every: int = 1) -> Tally:
    """The form's mutants with what engines and verify say of them; XLA gets one in `every` of those agreed on."""
    before = hlo_cp2ag.parse(form.before, "before.hlo")
    mutants = mutants_of(form)
    arguments = [_inputs(before, form.devices, seed) for seed in range(SEEDS)]
    expected = [run(before, a, form.replicas, form.partitions) for a in arguments]
    for mutant in mutants:
        mutant.executor = _in_executor(form, mutant.text, arguments, expected)
        _verify(before, mutant)
    if available() is None:
        _on_xla(form, mutants, arguments[0], every)
    return Tally(form, mutants)


def _inputs(module: HloModule, devices: int, seed: int) -> list[np.ndarray]:
    """Random elements, negative zeros among them; the last seed's have all bit patterns, NaNs among them."""
    rng = np.random.default_rng(1000 + seed)
    if seed == SEEDS - 1:
        return [random_bits(shape, devices, rng) for shape in input_shapes(module)]
    found = []
    for shape, array in zip(input_shapes(module), random_inputs(module, devices, seed), strict=True):
        if is_floating(shape.element_type) and shape.element_type != "f8e8m0fnu":
            array = np.where(rng.random(array.shape) < 0.15, array.dtype.type(-0.0), array)
        elif array.dtype.kind in "iu":
            # Small integers are the same too often.
            array = random_bits(shape, devices, rng)
        found.append(array)
    return found


def _in_executor(form: Form, text: str, arguments: list[list[np.ndarray]], expected: list[list[np.ndarray]]) -> Outcome:
    try:
        module = hlo_cp2ag.parse(text)
        for inputs, wanted in zip(arguments, expected, strict=True):
            outputs = run(module, inputs, form.replicas, form.partitions, max_steps=5_000)
            if len(outputs) != len(wanted):
                return "broken"
            if not all(map(bit_equal, outputs, wanted)):
                return "differs"
    except HloSyntaxError:
        return "invalid"
    except HloError:
        return "broken"
    return "equal"


def _verify(before: HloModule, mutant: Mutant) -> None:
    try:
        verdict = verify(before, hlo_cp2ag.parse(mutant.text, "after.hlo"), run=False)
    except HloError as error:
        mutant.said = str(error)
        return
    mutant.proved = verdict.proved
    mutant.conditions = tuple(c for site in verdict.sites for c in site.conditions)
    mutant.said = "; ".join(
        [r.text for r in verdict.untouched.remarks] + [s.reason for s in verdict.sites if s.outcome != "shown"]
    )


def _on_xla(form: Form, mutants: list[Mutant], inputs: list[np.ndarray], every: int) -> None:
    asked = []
    for number, m in enumerate(mutants):
        agreed = m.proved and not m.conditions and m.executor == "equal"
        if (agreed and number % every == 0) or (not agreed and (m.proved or m.executor != "differs")):
            asked.append(m)
    texts = [form.before, form.after, *(m.text for m in asked)]
    grid = form.replicas, form.partitions
    with pytest.MonkeyPatch.context() as patch:
        # Compiling is what takes the time, and how fast the code is does not matter.
        patch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0")
        runs = run_on_xla(texts, inputs, *grid, time_limit=TIME_LIMIT, level=form.level)  # type: ignore[arg-type]
    first, second, *rest = runs
    if first.status != "ran" or second.status != "ran":
        return  # the executor decides
    assert all(map(bit_equal, first.outputs, second.outputs)), form.name
    for mutant, found in zip(asked, rest, strict=True):
        mutant.xla = found
        same = len(found.outputs) == len(first.outputs) and all(map(bit_equal, found.outputs, first.outputs))
        mutant.xla_outcome = "broken" if found.status != "ran" else "equal" if same else "differs"


def lines_about(mutants: list[Mutant], most: int = 12) -> Iterator[str]:
    """For a failing test's message."""
    for m in mutants[:most]:
        xla = "" if m.xla is None else f", XLA {m.xla.status} {m.xla_outcome}: {m.xla.reason[:150]}"
        yield f"{m.wrong} ({m.what}; executor: {m.executor}{xla}; {m.said[:300]}; {m.conditions})"
    if len(mutants) > most:
        yield f"and {len(mutants) - most} more"
