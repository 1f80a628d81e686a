"""The tensor-parallel group: which collective it comes from, and post-order as XLA has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hlo_cp2ag
from hlo_cp2ag.ir.post_order import post_order
from hlo_cp2ag.topology import TpGroup, find_tp_group, get_tp_replica_group
from tests.corpus import FIXTURES, read
from tests.text.xla_parser import XlaParser

from .support import module, reduce

SCATTER = "f32[4]{0} reduce-scatter(p), replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=add"
GATHER = "f32[16]{0} all-gather(p), replica_groups={{0,2},{1,3}}, dimensions={0}"


def names(found: TpGroup) -> list[str]:
    return [instruction.name for instruction in found.collectives]


def test_reduce_scatter_is_the_anchor() -> None:
    """Whatever stands before it."""
    m = module(reduce("replica_groups={{0,1,2,3}}"), f"ag = {GATHER}", f"rs = {SCATTER}")
    assert get_tp_replica_group(m.entry) == [[0, 1], [2, 3]]
    assert get_tp_replica_group(m) == [[0, 1], [2, 3]]
    assert names(find_tp_group(m)) == ["rs"]


def test_all_gather_and_all_reduce_follow() -> None:
    m = module(reduce("replica_groups={{0,1,2,3}}"), f"ag = {GATHER}")
    assert get_tp_replica_group(m.entry) == [[0, 2], [1, 3]]
    assert get_tp_replica_group(module(reduce("replica_groups=[1,4]<=[4]")).entry) == [[0, 1, 2, 3]]


def test_the_opcodes_are_a_parameter() -> None:
    m = module(reduce("replica_groups={{0,1,2,3}}"), f"ag = {GATHER}", f"rs = {SCATTER}")
    assert get_tp_replica_group(m.entry, opcodes=("all-gather",)) == [[0, 2], [1, 3]]
    assert get_tp_replica_group(m.entry, opcodes=("all-reduce", "reduce-scatter")) == [[0, 1, 2, 3]]
    assert get_tp_replica_group(m.entry, opcodes=("all-to-all",)) == []


def test_the_first_in_post_order_not_in_the_text() -> None:
    """Of the root's operands the first is visited first: b, though a stands before it."""
    m = module(
        reduce("replica_groups={{0,1},{2,3}}", "a"),
        reduce("replica_groups={{0,2},{1,3}}", "b"),
        "ROOT s = f32[8] subtract(b, a)",
    )
    assert get_tp_replica_group(m.entry) == [[0, 2], [1, 3]]
    assert names(find_tp_group(m)) == ["b"]


def test_starts_count() -> None:
    m = module("s = (f32[8], f32[16]) all-gather-start(p), replica_groups={{3,1}}, dimensions={0}")
    assert get_tp_replica_group(m.entry) == [[3, 1]]


def test_nothing_found() -> None:
    m = module("cp = f32[8] collective-permute(p), source_target_pairs={{0,1}}")
    assert get_tp_replica_group(m.entry) == []
    assert get_tp_replica_group(m) == []
    assert get_tp_replica_group(m, {"e", "to_apply", "nowhere"}) == []
    assert names(find_tp_group(m)) == []


LOOP = f"""
body {{
  p = f32[8]{{0}} parameter(0)
  g = {GATHER}
  ROOT r = f32[8]{{0}} all-reduce(p), replica_groups={{{{0,3}},{{1,2}}}}, to_apply=add
}}
cond {{
  p = f32[8]{{0}} parameter(0)
  ROOT t = pred[] constant(true)
}}
other {{
  p = f32[8]{{0}} parameter(0)
  ROOT r = f32[8]{{0}} all-reduce(p), replica_groups={{{{0,2}},{{1,3}},{{4,5}}}}, to_apply=add
}}
"""


def _loop() -> hlo_cp2ag.HloModule:
    return module(
        "w = f32[8] while(p), condition=cond, body=body",
        "c = f32[8] call(w), to_apply=other",
        f"ROOT rs = {SCATTER}",
        computations=LOOP,
    )


def test_a_module_by_computations_and_attributes() -> None:
    m = _loop()
    assert names(find_tp_group(m)) == ["rs"]
    assert names(find_tp_group(m, {"body"})) == ["g"]  # the name of a computation
    assert names(find_tp_group(m, {"%other"})) == ["r"]
    assert names(find_tp_group(m, {"condition"})) == []
    assert names(find_tp_group(m, {"to_apply"})) == ["r"]  # add has none, other has one
    # aggregated in text order, each group once
    assert get_tp_replica_group(m, {"body", "other"}) == [[0, 2], [1, 3], [4, 5]]
    assert get_tp_replica_group(m, ["e", "body"]) == [[0, 2], [1, 3], [0, 1], [2, 3]]


def test_an_attribute_that_calls_computations() -> None:
    m = module("w = f32[8] while(p), condition=cond, body=once", computations=LOOP.replace("body", "once"))
    assert names(find_tp_group(m, {"body"})) == ["g"]
    assert names(find_tp_group(m, {"once"})) == ["g"]


def test_wrong_arguments() -> None:
    m = _loop()
    with pytest.raises(TypeError, match="names belong to a module"):
        get_tp_replica_group(m.entry, {"body"})
    with pytest.raises(TypeError, match="not one string"):
        get_tp_replica_group(m, "body")
    with pytest.raises(TypeError, match="not one string"):
        get_tp_replica_group(m, opcodes="all-gather")


# ---- post-order ------------------------------------------------------------------------------------------------------

CASES = [
    ["a = f32[8] negate(p)", "b = f32[8] abs(p)", "c = f32[8] add(b, a)", "ROOT d = f32[8] add(c, b)"],
    ["a = f32[8] negate(p)", "b = f32[8] abs(p)", "c = f32[8] cosine(p), control-predecessors={a, b}", "ROOT d = f32[8] sine(c)"],
    ["dead = f32[8] negate(p)", "b = f32[8] abs(p)", "ROOT d = f32[8] add(b, b)", "late = f32[8] tanh(b)"],
    ["a = f32[8] negate(p)", "b = f32[8] abs(a), control-predecessors={a}", "c = f32[8] sine(p)",
     "t = (f32[8], f32[8], f32[8]) tuple(c, a, b)", "ROOT g = f32[8] get-tuple-element(t), index=1"],
]  # fmt: skip


def _order_of_xla(xla: XlaParser, text: str) -> list[str]:
    verdict, printed = xla.ask(text)
    assert verdict == "accept", printed
    entry = printed[printed.index("\nENTRY") :]
    return re.findall(r"^  (?:ROOT )?%([\w.\-]+) = ", entry, re.MULTILINE)


@pytest.mark.parametrize("lines", CASES)
def test_post_order_is_the_order_in_which_xla_prints(lines: list[str]) -> None:
    m = module(*lines)
    assert [i.name for i in post_order(m.entry)] == _order_of_xla(XlaParser(), m.text)


@pytest.mark.parametrize("path", sorted((FIXTURES / "jax").glob("*.hlo")), ids=lambda path: path.name)
def test_post_order_of_real_modules(path: Path) -> None:
    text = read(path)
    if "is_scheduled=true" in text:
        pytest.skip("XLA prints the schedule")
    assert [i.name for i in post_order(hlo_cp2ag.parse(text).entry)] == _order_of_xla(XlaParser(), text)
