"""Arrays that are not laid out row-major, in text that no layout pass will touch again: which gathers are right?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_cp2ag

from .judge import Judge, XlaDied, bit_equal, random_arrays
from .layout_modules import ARRAYS, LayoutModule, non_row_major_modules

MODULES = list(non_row_major_modules())
DEFAULT = MODULES[::3]  # a number coprime to all cycles in their making, so that each array, grid and type is there
SEED = 5


def by_default(modules: list[LayoutModule]) -> list[Any]:
    """Parameters of a test: all modules, those outside the sample under the mark `sweep`."""
    return [pytest.param(m, id=m.name, marks=() if m in DEFAULT else pytest.mark.sweep) for m in modules]


def layout_of(module: LayoutModule) -> tuple[int, ...]:
    """The permuted array's dimensions from minor to major."""
    digits = module.name.split("_layout")[1].split("_")[0]
    return tuple(map(int, digits))


def leading_is_major(module: LayoutModule) -> bool:
    """Whether nothing but dimensions of size 1 lies further out in memory than dimension 0."""
    outer_first = [d for d in reversed(layout_of(module)) if d == 0 or module.dimensions[d] != 1]
    return outer_first[0] == 0


def rewrite(module: LayoutModule, **options: Any) -> hlo_cp2ag.RewriteResult:
    result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(module.text), **options)
    assert len(result.rewritten) == 1
    return result


def run(judge: Judge, module: LayoutModule, text: str) -> np.ndarray:
    args = random_arrays(module.shapes, module.replicas * module.partitions, SEED)
    [out] = judge.run(text, module.replicas, module.partitions, args, how="inject")
    return out


@pytest.mark.parametrize("module", by_default(MODULES))
@pytest.mark.parametrize("gather_dimension", ["auto", "major"])
def test_the_gather_delivers_what_the_permute_delivered(
    judge: Judge, module: LayoutModule, gather_dimension: str
) -> None:
    result = rewrite(module, gather_dimension=gather_dimension)
    assert not result.warnings
    permuted = run(judge, module, module.text)
    assert bit_equal(run(judge, module, result.text), permuted)


def test_the_sample_has_every_array_grid_and_type() -> None:
    assert {(m.dimensions, layout_of(m)) for m in DEFAULT} == set(ARRAYS)
    for what in ("element_type", "replicas", "partitions", "cross_partition"):
        assert {getattr(m, what) for m in DEFAULT} == {getattr(m, what) for m in MODULES}
    assert 35 <= len(DEFAULT) <= 45


LEADING = [m for m in MODULES if leading_is_major(m)]
NOT_LEADING = [m for m in MODULES if not leading_is_major(m)]


@pytest.mark.parametrize("module", by_default(LEADING))
def test_leading_is_right_where_it_is_major(judge: Judge, module: LayoutModule) -> None:
    result = rewrite(module, gather_dimension="leading")
    assert result.rewritten[0].gather_dimensions == (0,)
    assert not result.warnings
    assert bit_equal(run(judge, module, result.text), run(judge, module, module.text))


@pytest.mark.parametrize("module", by_default(NOT_LEADING))
def test_leading_is_wrong_where_it_is_not_major_and_the_rewrite_warns(judge: Judge, module: LayoutModule) -> None:
    result = rewrite(module, gather_dimension="leading")
    assert result.rewritten[0].gather_dimensions == (0,)
    [warning] = result.warnings
    assert "dimension 0, which is not the most major one" in str(warning)
    assert not bit_equal(run(judge, module, result.text), run(judge, module, module.text))


PACKED = """HloModule packed, is_scheduled=true, replica_count=4

ENTRY %main (p: {type}[8]) -> {type}[8] {{
  %p = {type}[8]{{0:E({bits})}} parameter(0)
  ROOT %cp = {type}[8]{{0:E({bits})}} collective-permute(%p), source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}
}}
"""


@pytest.mark.parametrize(
    ("type_", "dtype", "bits"), [("s4", "int4", 4), ("u4", "uint4", 4), ("s2", "int2", 2), ("u2", "uint2", 2)]
)
def test_packed_types_need_whole_bytes(own_judge: Judge, type_: str, dtype: str, bits: int) -> None:
    text = PACKED.format(type=type_, bits=bits)
    kept = hlo_cp2ag.rewrite(hlo_cp2ag.parse(text), sub_byte="keep")
    widened = hlo_cp2ag.rewrite(hlo_cp2ag.parse(text))
    assert not widened.warnings
    assert any("packed" in str(warning) for warning in kept.warnings)
    [arg] = random_arrays([(dtype, (8,))], 4, SEED)
    judge = own_judge  # a packed gather writes past the end of its buffer
    [permuted] = judge.run(text, 4, 1, [arg], how="inject")
    [right] = judge.run(widened.text, 4, 1, [arg], how="inject")
    assert bit_equal(right, permuted)
    try:
        [wrong] = judge.run(kept.text, 4, 1, [arg], how="inject")
    except XlaDied:
        return
    assert not bit_equal(wrong, permuted)
