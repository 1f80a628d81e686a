"""The outline and the regular expressions against the grammar: on every file both must see the same module."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_cp2ag import HloSyntaxError, parse
from hlo_cp2ag.ir.source import SourceText
from hlo_cp2ag.text import grammar, outline
from hlo_cp2ag.text.body import body_of_tree, cut_body, parse_rule
from hlo_cp2ag.text.computations import LazyComputations
from hlo_cp2ag.text.lexical import mask
from hlo_cp2ag.text.outline import ComputationOutline
from tests.corpus import corpus_modules, fixture_modules, ident, needs_corpus, read

MODULES = fixture_modules() + corpus_modules()


def names_by_grammar(text: str) -> list[tuple[str, bool, list[tuple[str, bool]]]]:
    """Every computation that has a name, and its instructions' names and ROOT marks, as Lark alone sees them."""
    tree = grammar.parser().parse(mask(text), start="module")
    found = []
    for computation in tree.children:
        if getattr(computation, "data", None) != "computation":
            continue
        name, marked, instructions = "", False, []
        for child in computation.children:
            if getattr(child, "type", None) == "ENTRY":
                marked = True
            elif getattr(child, "data", None) == "computation_name":
                name = str(child.children[0]).strip("%:")
            elif getattr(child, "data", None) == "instruction_list":
                for instruction in child.children:
                    kinds = [getattr(part, "type", "") for part in instruction.children]
                    assigned = next(
                        str(part) for part in instruction.children if getattr(part, "type", "") == "ASSIGNED_NAME"
                    )
                    instructions.append((assigned.strip("%:"), "ROOT" in kinds))
        found.append((name, marked, instructions))
    return found


@pytest.mark.parametrize("path", MODULES, ids=ident)
def test_outline_sees_what_the_grammar_sees(path: Path) -> None:
    text = read(path)
    module = parse(text)
    if module.entry.span == module.entry.body_span:
        assert module.entry.instructions[0].name == ""
        return
    ours = [
        (c.name, c.is_entry_marked, [(i.name, i.is_root) for i in c]) for c in module.computations if not c.is_inline
    ]
    assert ours == names_by_grammar(text)


@pytest.mark.parametrize("path", MODULES, ids=ident)
def test_bodies_cut_by_regular_expressions_are_those_of_the_grammar(path: Path) -> None:
    module = parse(read(path))
    compared = 0
    for instruction in module.instructions():
        base = instruction.span.start
        masked = module.reader.masked(module.source, instruction.span)  # type: ignore[attr-defined]
        cut = cut_body(module.source, masked, base)
        rule = "instruction" if instruction.name else "lone_instruction"
        tree = body_of_tree(module.source, parse_rule(module.source, masked, base, rule), base)
        assert cut is None or cut == tree
        assert tree.opcode == instruction.opcode
        compared += cut is not None
    assert compared > 0 or len(list(module.instructions())) <= 1


@pytest.mark.parametrize("path", [p for p in MODULES if "models" not in p.parts or "llama" in p.name], ids=ident)
def test_the_certain_way_and_the_scanned_way_agree(path: Path) -> None:
    source = SourceText(read(path))
    certain = outline._certain_outline(source)
    if certain is None:
        return
    scanned = outline._scanned_outline(source)

    def places(found: ComputationOutline) -> tuple[object, ...]:
        return (found.name, found.name_span, found.is_entry_marked, found.span, found.parameters_span)

    assert [places(c) for c in certain.computations] == [places(c) for c in scanned.computations]
    assert certain.header_attributes == scanned.header_attributes
    assert certain.name == scanned.name


@needs_corpus
def test_what_xla_prints_is_certain() -> None:
    """The fast way must carry the files that it was built for, or nobody would notice that it is never taken."""
    printed = [
        p for p in corpus_modules(small_only=False) if p.name in ("final.hlo", "after_spmd.hlo") or "models" in p.parts
    ]
    assert len(printed) > 80
    for path in printed:
        assert isinstance(parse(read(path)).computations, LazyComputations), path


HEADER = "HloModule m\n\n"
BODY = "ENTRY %main (p: f32[2]) -> f32[2] {\n  %p = f32[2]{0} parameter(0)\n"

# Texts that look as if each line held one instruction, and do not; each must be seen as the grammar sees it.
DISGUISES = {
    "an instruction in a string over two lines": BODY
    + '  ROOT %n = f32[2]{0} negate(%p), metadata={op_name="\n  %x = f32[2]{0} negate(%p)"}\n}\n',
    "an instruction in a block comment": BODY
    + "  /*\n  %x = f32[2]{0} negate(%p)\n  */\n  ROOT %n = f32[2]{0} negate(%p)\n}\n",
    "a brace in a line comment": BODY + "  // }\n  ROOT %n = f32[2]{0} negate(%p) // {\n}\n",
    "two instructions on a line": BODY
    + "  %a = f32[2]{0} negate(%p) %b = f32[2]{0} negate(%a)\n  ROOT %n = f32[2]{0} negate(%b)\n}\n",
    "two on a line, no blank before =": BODY
    + "  %a = f32[2]{0} negate(%p) %b=f32[2]{0} negate(%a)\n  ROOT %n = f32[2]{0} negate(%b)\n}\n",
    "an inline computation": BODY
    + "  ROOT %c = f32[2]{0} call(%p), to_apply={\n  %x = f32[2]{0} parameter(0)\n  ROOT %y = f32[2]{0} negate(%x)\n}\n}\n",
    "an inline computation that closes on an instruction's line": BODY
    + "  ROOT %c = f32[2]{0} call(%p), to_apply={\n  %x = f32[2]{0} parameter(0)\n  ROOT %y = f32[2]{0} negate(%x) }\n}\n",
    "an attribute on a line of its own": BODY + "  ROOT %n = f32[2]{0} transpose(%p),\n    dimensions={0}\n}\n",
    "a name on a line of its own": BODY + "  ROOT %n =\n  f32[2]{0} negate(%p)\n}\n",
    "ROOT on a line of its own": BODY + "  %a = f32[2]{0} negate(%p)\n  ROOT\n  %n = f32[2]{0} negate(%a)\n}\n",
    "a quote in a single-quoted string": BODY + "  ROOT %n = f32[2]{0} negate(%p), metadata={op_name='a\"b'}\n}\n",
    "an assignment in a raw dictionary": BODY + "  ROOT %n = f32[2]{0} negate(%p), backend_config={a = {b = 1}}\n}\n",
    "an instruction in a raw dictionary": BODY
    + "  ROOT %n = f32[2]{0} negate(%p), backend_config={\n  %x = f32[2]{0} negate(%p)\n}\n}\n",
    "a comment opener in a raw dictionary": BODY + "  ROOT %n = f32[2]{0} negate(%p), backend_config={a: /* }\n}\n",
    "a quote escaped at a string's end": BODY
    + '  ROOT %n = f32[2]{0} negate(%p), metadata={op_name="a\\\\" op_type="\\""}\n}\n',
    "a one-line computation": "%f { %x = f32[2]{0} parameter(0) ROOT %y = f32[2]{0} negate(%x) }\n"
    + BODY
    + "  ROOT %n = f32[2]{0} call(%p), to_apply=%f\n}\n",
    "a comment behind a closing brace": BODY + "  ROOT %n = f32[2]{0} negate(%p)\n} // main\n",
    "carriage returns": (BODY + "  ROOT %n = f32[2]{0} negate(%p)\n}\n").replace("\n", "\r\n"),
    "old Mac line ends": (BODY + "  ROOT %n = f32[2]{0} negate(%p)\n}\n").replace("\n", "\r"),
    "a tab": BODY + "\tROOT %n = f32[2]{0} negate(%p)\n}\n",
    "a comment that holds a comment opener": BODY + "  /* /* */ ROOT %n = f32[2]{0} negate(%p)\n}\n",
}


@pytest.mark.parametrize("text", DISGUISES.values(), ids=DISGUISES.keys())
def test_disguises_are_seen_through(text: str) -> None:
    text = HEADER + text if "\r" not in text else HEADER.replace("\n", "\r") + text
    module = parse(text)
    ours = [
        (c.name, c.is_entry_marked, [(i.name, i.is_root) for i in c]) for c in module.computations if not c.is_inline
    ]
    assert ours == names_by_grammar(text)
    assert module.text == text


JUNK = {
    "a word between computations": HEADER
    + "%f (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\njunk\n"
    + BODY
    + "}\n",
    "an instruction between computations": HEADER
    + "%f (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n  %y = f32[] parameter(0)\n"
    + BODY
    + "}\n",
    "a word before the first computation": HEADER + "junk\n" + BODY + "}\n",
    "a word behind the last computation": HEADER + BODY + "}\njunk\n",
    "a word behind the last brace": HEADER + BODY + "} junk\n",
    "an unknown attribute behind the last brace": HEADER + BODY + "}, junk=1",
    "a brace too many": HEADER + BODY + "}\n}\n",
    "a body that is not closed": HEADER + BODY,
    "a bracket that is not closed": HEADER + BODY + "  ROOT %n = f32[2]{0} negate(%p\n}\n",
}


@pytest.mark.parametrize("text", JUNK.values(), ids=JUNK.keys())
def test_junk_is_refused(text: str) -> None:
    with pytest.raises(HloSyntaxError):
        module = parse(text)
        for instruction in module.instructions():
            _ = instruction.body


def test_a_name_twice_in_a_computation_is_refused_and_twice_in_a_module_is_not() -> None:
    two = (
        HEADER
        + "%f (x: f32[2]) -> f32[2] {\n  ROOT %p = f32[2]{0} parameter(0)\n}\n\n"
        + BODY
        + "  ROOT %n = f32[2]{0} negate(%p)\n}\n"
    )
    assert isinstance(parse(two).computations, LazyComputations)
    with pytest.raises(HloSyntaxError) as caught:
        parse(HEADER + BODY + "  ROOT %p = f32[2]{0} negate(%p)\n}\n", "m.hlo")
    assert caught.value.line == 5
    assert caught.value.message == "instruction 'p' is defined twice in computation 'main'"
    assert caught.value.hint == "the first one is on line 4"
