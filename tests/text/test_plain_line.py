"""Lines cut by one expression say what reading them in full says, and a known form changes no result."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_cp2ag import HloError, parse, rewrite
from hlo_cp2ag.ir.shape import parse_shape
from hlo_cp2ag.lowering.call_graph import CALLING, calling_attributes
from hlo_cp2ag.text import check_touched
from hlo_cp2ag.text.plain_line import is_cut_alike
from tests.corpus import corpus_modules, fixture_modules, ident, read

MODULES = fixture_modules() + corpus_modules()

REPEATED = """HloModule m, num_partitions=2

ENTRY %main (p: f32[2]) -> (f32[2], f32[2]) {
  %p = f32[2]{0} parameter(0)
  %ring = f32[2]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %ringing.1 = f32[2]{0} collective-permute(%ring), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %a = f32[2]{0} add(%ringing.1, %ringing.1), metadata={op_name="%ring"}
  %b = f32[2]{0} add(%a, %ringing.1), metadata={op_name="ringing.1"}
  ROOT %out = (f32[2]{0}, f32[2]{0}) tuple(%ring, %b), control-predecessors={%ring}
}
"""


@pytest.mark.parametrize("path", MODULES, ids=ident)
def test_plain_lines_are_cut_as_bodies_are(path: Path) -> None:
    for instruction in parse(read(path)).instructions():
        line = instruction.line
        if line is None:
            continue
        try:
            body = instruction.body
        except HloError:
            continue
        assert is_cut_alike(line, body), instruction.text
        assert body.shape == parse_shape(line.form.shape)
        assert line.operand_names == [operand.name for operand in body.operands]
        assert body.end == line.end
        again = instruction.module.reader.line_at(instruction.computation, body.end - 1)
        assert again == line


def test_what_xla_prints_is_plain() -> None:
    for path in (p for p in MODULES if p.name.endswith("after_spmd.hlo")):
        entry = parse(read(path)).entry.instructions
        plain = [each for each in entry if each.line is not None]
        assert len(plain) * 3 >= len(entry) * 2, path


@pytest.mark.parametrize("path", MODULES, ids=ident)
@pytest.mark.parametrize("profile", ["xla", "neuron"])
def test_known_forms_change_no_result(path: Path, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> str:
        try:
            return rewrite(parse(read(path)), profile=profile).text
        except HloError as error:
            return str(error)

    monkeypatch.setattr(check_touched, "_fine", set())
    assert outcome() == outcome()


def test_uses_in_known_lines_are_renamed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_touched, "_fine", set())
    first = rewrite(parse(REPEATED)).text
    assert first == rewrite(parse(REPEATED)).text
    uses = [line for line in first.splitlines() if "%a = " in line or "%b = " in line or "%out = " in line]
    assert uses == [
        '  %a = f32[2]{0} add(%dynamic-slice.3, %dynamic-slice.3), metadata={op_name="%ring"}',
        '  %b = f32[2]{0} add(%a, %dynamic-slice.3), metadata={op_name="ringing.1"}',
        "  ROOT %out = (f32[2]{0}, f32[2]{0}) tuple(%dynamic-slice.1, %b), control-predecessors={%dynamic-slice.1}",
    ]


def test_a_line_like_a_known_one_but_for_a_fault_is_refused() -> None:
    rewrite(parse(REPEATED))
    for fault in ("add(%a %ringing.1)", "add(%a, %ringing.1", "add(f31[2] %a, %ringing.1)"):
        with pytest.raises(HloError):
            rewrite(parse(REPEATED.replace("add(%a, %ringing.1)", fault)))


@pytest.mark.parametrize("path", MODULES, ids=ident)
def test_calls_are_found_in_known_lines(path: Path) -> None:
    for instruction in parse(read(path)).instructions():
        try:
            attributes = instruction.body.attributes
        except HloError:
            continue
        if instruction.known_line is not None:
            calls = [(a.name, a.value_span.start) for a in attributes if a.name in CALLING]
            assert calling_attributes(instruction) == calls


CALLER = """HloModule m

%f (x: f32[2]) -> f32[2] {
  ROOT %x = f32[2]{0} parameter(0)
}

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %c = f32[2]{0} custom-call(%p), custom_call_target="a"ATTRIBUTES
}
"""


@pytest.mark.parametrize(
    "attributes",
    [
        ", called_computations={%f}",
        ",called_computations={%f}",
        " , called_computations={%f}",
        ", /*no*/ called_computations={%f}",
        ', backend_config=", called_computations={%g}"',
        ', frontend_attributes={a=", called_computations={%g}"}, called_computations={%f}',
        ", backend_config={a, called_computations={%g}}",
        ', metadata={op_name=", calls=%g"}, called_computations={%f}',
    ],
)
def test_calls_in_unusual_writing(attributes: str) -> None:
    caller = parse(CALLER.replace("ATTRIBUTES", attributes)).entry.find("c")
    assert caller is not None
    places = [(a.name, a.value_span.start) for a in caller.body.attributes if a.name in CALLING]
    assert calling_attributes(caller) == places
    assert len(places) == attributes.count("{%f}")
