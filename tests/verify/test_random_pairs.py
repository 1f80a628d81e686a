"""Random modules against their mutants: what verify shows has to be so, whatever the modules look like.

Nothing says here that an equal mutant has to be shown: the modules are no rewrites, and most of their ops stand outside
of any site. But many are shown, and none of those may differ in the executor.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import hlo_cp2ag
from hlo_cp2ag.executor.inputs import input_shapes
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.verify.verification import verify
from tests.xla.judge import bit_equal

from .mutants import MUTATIONS
from .mutations import Text
from .random_movement import RandomModule
from .random_text import Value
from .test_symbols import random_bits


class RandomProgram(RandomModule):
    """Movement with computation in between, of which only a part is returned."""

    def make_negated(self, x: Value) -> Value | None:
        if x.element == "pred":
            return self.add(x.element, x.dims, f"not({x.name})", x.layout)
        return self.add(x.element, x.dims, f"negate({x.name})", x.layout) if x.element[0] != "u" else None

    def make_combined(self, x: Value) -> Value | None:
        opcode = "xor" if x.element == "pred" else str(self.one("add", "multiply", "subtract"))
        return self.add(x.element, x.dims, f"{opcode}({x.name}, {self.like(x).name})", x.layout)

    make_combined_again = make_combined
    make_permuted = RandomModule.make_collective_permute

    @property
    def text(self) -> str:
        kept, self.values = self.values, [self.values[i] for i in range(len(self.values)) if i % 3 == 0 or i > 8][-5:]
        try:
            return super().text
        finally:
            self.values = kept


def check(seed: int, seen: Counter[str], per_kind: int = 2) -> None:
    random = RandomProgram(seed, steps=10)
    text, grid = random.text, (random.replicas, random.partitions)
    before = hlo_cp2ag.parse(text, "before.hlo")
    rng = np.random.default_rng(seed)
    inputs = [[random_bits(s, random.devices, rng) for s in input_shapes(before)] for _ in range(2)]
    wanted = [run(before, one, *grid) for one in inputs]
    assert verify(before, before, run=False).proved
    # Everything is the site: the first module is taken for none that the second one knows.
    parts = Text("", text)
    for name, mutation in MUTATIONS.items():
        made = [edited for _, edited in mutation(parts) if edited != text]
        for i in rng.permutation(len(made))[:per_kind]:
            after = made[i]
            try:
                verdict = verify(before, hlo_cp2ag.parse(after, "after.hlo"), run=False)
            except HloError:
                seen["refused"] += 1
                continue
            if not verdict.proved:
                seen["not shown"] += 1
                continue
            seen["shown"] += 1
            where = f"seed {seed}, {name}\n{text}\n{after}"
            if any(site.conditions for site in verdict.sites):
                continue
            module = hlo_cp2ag.parse(after)
            for one, outputs in zip(inputs, wanted, strict=True):
                found = run(module, one, *grid)
                assert all(map(bit_equal, found, outputs)), where


def sweep(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        check(seed, seen)
    assert seen["shown"] > len(seeds) and seen["not shown"] > len(seeds), seen


def test_random_pairs() -> None:
    sweep(range(8))


@pytest.mark.sweep
@pytest.mark.parametrize("start", range(100, 500, 50))
def test_many_random_pairs(start: int) -> None:
    sweep(range(start, start + 50))
