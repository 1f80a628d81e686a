from __future__ import annotations

import pytest

from .judge import Judge, bit_equal, random_arrays
from .layout_modules import ELEMENTS, LayoutModule, non_row_major_modules

MODULES = list(non_row_major_modules())


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_xla_permutes_other_layouts_as_row_major_ones(judge: Judge, module: LayoutModule) -> None:
    assert judge.canonical(module.text) == module.text
    args = random_arrays(module.shapes, module.replicas * module.partitions, seed=3)
    [out] = judge.run(module.text, module.replicas, module.partitions, args, how="inject")
    assert bit_equal(out, module.expected(args[0]))


def test_the_modules_cover_what_they_promise() -> None:
    assert len({module.name for module in MODULES}) == len(MODULES)
    for rank in (2, 3, 4):
        assert {m.element_type for m in MODULES if len(m.dimensions) == rank} == set(ELEMENTS.values())
    assert {(m.replicas, m.partitions) for m in MODULES} == {(4, 1), (1, 4), (2, 2)}
