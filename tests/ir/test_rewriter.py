"""Edits: what is free, who is renamed, what stays."""

from __future__ import annotations

import pytest

import hlo_cp2ag
from hlo_cp2ag.ir.rewriter import NewInstruction, Rewriter, apply_edits, largest_channel_id
from hlo_cp2ag.text.printer import Printer

TEXT = """HloModule m

%f (negate.1: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  ROOT %negate = f32[2]{0} negate(%x)
}

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %a = f32[2]{0} negate(%p), metadata={op_name="%a, a channel_id=99"}
  %a.1 = f32[2]{0} add(%a, %a), control-predecessors={%a}
  %b = f32[2]{0} call(%a.1), to_apply=%f /* %a */
  ROOT %out = (f32[2]{0}, f32[2]{0}) tuple(%a, %b)
}
"""


def rewriter(text: str = TEXT) -> tuple[Rewriter, hlo_cp2ag.HloModule]:
    module = hlo_cp2ag.parse(text)
    return Rewriter(module, Printer()), module


def test_without_edits_the_text_is_the_same() -> None:
    edits, module = rewriter()
    assert edits.edits() == []
    assert edits.apply() == module.text == TEXT


def test_fresh_names_are_free_in_the_whole_module_headers_included() -> None:
    edits, _ = rewriter()
    assert [edits.fresh_name("negate") for _ in range(3)] == ["negate.2", "negate.3", "negate.4"]
    assert [edits.fresh_name("tanh") for _ in range(3)] == ["tanh", "tanh.1", "tanh.2"]
    assert edits.fresh_name("a") == "a.2"


def test_names_with_zeros_are_taken_for_what_xla_takes_them() -> None:
    edits, _ = rewriter(TEXT.replace("%b", "%tanh.0").replace("%p", "%tanh.01"))
    assert [edits.fresh_name("tanh") for _ in range(2)] == ["tanh.2", "tanh.3"]


def test_every_use_is_renamed_and_nothing_else() -> None:
    edits, module = rewriter()
    a = module.entry.find("a")
    assert a is not None
    shape = a.shape
    edits.replace(a, [NewInstruction("abs", shape, (a.operands[0],)), NewInstruction("tanh", shape)])
    lines = edits.apply().splitlines()
    assert lines[9:14] == [
        "  %abs = f32[2]{0} abs(%p)",
        "  %tanh = f32[2]{0} tanh()",
        "  %a.1 = f32[2]{0} add(%tanh, %tanh), control-predecessors={%tanh}",
        "  %b = f32[2]{0} call(%a.1), to_apply=%f /* %a */",
        "  ROOT %out = (f32[2]{0}, f32[2]{0}) tuple(%tanh, %b)",
    ]


def test_names_kept_change_no_other_line() -> None:
    edits, module = rewriter()
    a = module.entry.find("a")
    assert a is not None
    edits.replace(a, [NewInstruction("tanh", a.shape, (a.operands[0],))], keep_name=True)
    old, new = TEXT.splitlines(), edits.apply().splitlines()
    assert [i for i, (x, y) in enumerate(zip(old, new, strict=True)) if x != y] == [9]
    assert new[9] == "  %a = f32[2]{0} tanh(%p)"


def test_root_moves_along() -> None:
    edits, module = rewriter()
    out = module.entry.root
    edits.replace(out, [NewInstruction("tuple", out.shape, out.operands)])
    assert edits.apply().splitlines()[-2] == "  ROOT %tuple = (f32[2]{0}, f32[2]{0}) tuple(%a, %b)"


def test_a_new_instruction_can_use_what_is_replaced_in_the_same_run() -> None:
    edits, module = rewriter()
    a, b = module.entry.find("a"), module.entry.find("a.1")
    assert a is not None
    assert b is not None
    edits.replace(b, [NewInstruction("abs", b.shape, (a,), control_predecessors=("a",))])
    edits.replace(a, [NewInstruction("tanh", a.shape)])
    assert "%abs = f32[2]{0} abs(%tanh), control-predecessors={%tanh}" in edits.apply()


def test_erasing_takes_the_line() -> None:
    edits, module = rewriter(TEXT.replace(" /* %a */", ""))
    b = module.entry.find("b")
    assert b is not None
    edits.rename_uses(b, "a.1")
    edits.erase(b)
    assert [line.split(" = ")[0].strip() for line in edits.apply().splitlines()[8:12]] == [
        "%p",
        "%a",
        "%a.1",
        "ROOT %out",
    ]


def test_channel_ids_in_strings_do_not_count() -> None:
    edits, module = rewriter()
    assert largest_channel_id(module) == 0
    assert [edits.next_channel_id() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_new_lines_end_as_the_others_do(line_end: str) -> None:
    edits, module = rewriter(TEXT.replace("\n", line_end))
    a = module.entry.find("a")
    assert a is not None
    edits.insert_before(a, [NewInstruction("tanh", a.shape)])
    assert f"{line_end}  %tanh = f32[2]{{0}} tanh(){line_end}  %a = " in edits.apply()


def test_edits_are_applied_in_order() -> None:
    from hlo_cp2ag.ir.rewriter import Edit
    from hlo_cp2ag.ir.source import Span

    assert apply_edits("abcdef", [Edit(Span(1, 2), "X"), Edit(Span(2, 2), "-"), Edit(Span(4, 6), "")]) == "aX-cd"
