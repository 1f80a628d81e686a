"""What permutes and gathers cost, by hand."""

from __future__ import annotations

from typing import Any

import pytest

import hlo_cp2ag
from hlo_cp2ag.lowering.cost import Cost, cost_after, cost_before, total_costs

TEXT = """HloModule m, num_partitions=8
ENTRY e {{
  p = {type} parameter(0)
  a = {type} collective-permute(p), channel_id=1, source_target_pairs={{{{0,1}},{{1,0}},{{2,2}}}}
  b = {type} collective-permute(p), channel_id=2, source_target_pairs={{{{0,1}}}}
  ROOT t = ({type}, {type}) tuple(a, b)
}}
"""


@pytest.mark.parametrize(
    ("element", "options", "after"),
    [
        ("f32[3]", {}, [Cost(8 * 7 * 12, 96, 24 + 96)] * 2),
        ("f32[3]", {"groups": "minimal"}, [Cost(8 * 12, 24, 24 + 24)] * 2),
        ("f32[3]", {"share_gathers": True}, [Cost(8 * 7 * 12, 96, 24 + 96), Cost(0, 96, 24 + 96)]),
        ("f32[3]", {"max_gather_bytes": 95}, [Cost(24, 0, 24), Cost(12, 0, 24)]),
        ("s4[6]", {}, [Cost(8 * 7 * 6, 48, 6 + 48 + 12)] * 2),
        ("s4[6]", {"sub_byte": "keep"}, [Cost(8 * 7 * 3, 24, 6 + 24)] * 2),
    ],
)
def test_costs(element: str, options: dict[str, Any], after: list[Cost]) -> None:
    result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(TEXT.format(type=element)), **options)
    shard = 12 if element == "f32[3]" else 3
    assert [cost_before(site, result) for site in result.sites] == [
        Cost(2 * shard, 0, 2 * shard),
        Cost(shard, 0, 2 * shard),
    ]
    assert [cost_after(site, result) for site in result.sites] == after
    total = total_costs([result])[1]
    assert (total.moved, total.peak) == (sum(c.moved for c in after), max(c.peak for c in after))


def test_a_permute_of_itself_costs_nothing_on_the_wire() -> None:
    text = """HloModule m, replica_count=2
ENTRY e {
  p = f32[3] parameter(0)
  a = f32[3] collective-permute(p), source_target_pairs={{0,0},{1,1}}
  b = f32[3] collective-permute(p), source_target_pairs={}
  ROOT t = (f32[3], f32[3]) tuple(a, b)
}
"""
    result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(text), simplify=True)
    assert [cost_after(site, result) for site in result.sites] == [Cost(0, 0, 12), Cost(0, 0, 24)]
