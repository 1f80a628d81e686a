"""What `check` says of bad input, word for word: place, message, hint."""

# ruff: noqa: E501 (tables of texts)

from __future__ import annotations

import pytest

from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text.checker import check_module
from hlo_cp2ag.text.parser import parse

HEAD = """\
HloModule m

ENTRY e {
  p = f32[2] parameter(0)
"""

CASES: dict[str, tuple[str, str, str]] = {
    # what is wrong: the text, `line:column: message`, the hint
    "empty file": (
        "",
        "1:1: no HLO here: the text is empty",
        "an HLO module has at least one computation",
    ),
    "only blanks": (
        " \n\n",
        "1:1: no HLO here: the text is empty",
        "an HLO module has at least one computation",
    ),
    "only a comment": (
        "// nothing here\n",
        "1:1: no HLO here: the text is empty",
        "an HLO module has at least one computation",
    ),
    "only a header": (
        "HloModule m\n",
        "2:1: no computation here",
        "the file may be cut off after its header",
    ),
    "cut off in a computation": (
        HEAD + "  ROOT q = f32[2] neg",
        "3:1: computation 'e' is not closed by a }",
        "the file may be cut off",
    ),
    "cut off in an operand list": (
        HEAD + "  ROOT q = f32[2] add(p,",
        "5:22: this ( is not closed",
        "in computation 'e'",
    ),
    "binary": (
        "\x7fELF\x02\x01\x01\x00\x00\x00",
        "1:8: a NUL byte: this is no HLO text",
        "a serialized HloModuleProto is read by XLA's own tools",
    ),
    "NUL behind a module": (
        HEAD + "}\n\0",
        "6:1: a NUL byte: this is no HLO text",
        "a serialized HloModuleProto is read by XLA's own tools",
    ),
    "a proto": (
        "\n\x05hello\x12\x07\x08\x01",
        "2:1: expects a shape and an opcode, but sees '\\x05hello\\x12\\x07\\x08\\x01'",
        "HLO text begins with HloModule, or is one instruction such as f32[2] negate(f32[2])",
    ),
    "plain text": (
        "Dear compiler,\nplease check this.\n",
        "1:1: expects a shape and an opcode, but sees 'Dear'",
        "HLO text begins with HloModule, or is one instruction such as f32[2] negate(f32[2])",
    ),
    "JSON": (
        '{"module": "m"}\n',
        "1:1: expects a shape and an opcode, but sees '{'",
        "HLO text begins with HloModule, or is one instruction such as f32[2] negate(f32[2])",
    ),
    "MLIR": (
        "module @m {\n  func.func @main() {\n    return\n  }\n}\n",
        "1:1: expects a shape and an opcode, but sees 'module'",
        "this looks like MLIR; XLA's tools turn StableHLO into HLO text",
    ),
    "no name behind HloModule": (
        "HloModule\n\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n",
        "3:1: 'ENTRY' is a reserved word, not a name",
        "write %ENTRY",
    ),
    "unknown module attribute": (
        "HloModule m, num_partition=2\n\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n",
        "1:14: unknown module attribute 'num_partition'",
        "did you mean 'num_partitions'?",
    ),
    "bad module attribute": (
        "HloModule m, is_scheduled=yes\n\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n",
        "1:27: expects true or false",
        "",
    ),
    "module attribute twice": (
        "HloModule m, replica_count=2, replica_count=4\n\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n",
        "1:31: the module attribute replica_count is given twice",
        "",
    ),
    "two ENTRY": (
        "HloModule m\n\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n\nENTRY f {\n  ROOT p = f32[2] parameter(0)\n}\n",
        "7:1: a second ENTRY: a module has one entry computation",
        "",
    ),
    "computation twice": (
        "HloModule m\n\nf {\n  ROOT p = f32[2] parameter(0)\n}\n\nf {\n  ROOT p = f32[2] parameter(0)\n}\n",
        "7:1: computation 'f' is defined twice",
        "the first one is on line 3",
    ),
    "one } too many": (
        HEAD + "  ROOT q = f32[2] negate(p)\n}\n}\n",
        "7:1: expects a computation: a name, then { and its instructions",
        "there is one } too many, or the one before closes too early",
    ),
    "instruction outside": (
        "HloModule m\n\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n  q = f32[2] negate(p)\n",
        "6:3: expects a computation: a name, then { and its instructions",
        "an instruction outside of every computation: is a } too early, or a header missing?",
    ),
    "no instructions": (
        "HloModule m\n\nENTRY e {\n}\n",
        "3:9: computation 'e' has no instruction",
        "",
    ),
    "two ROOT": (
        HEAD + "  ROOT q = f32[2] negate(p)\n  ROOT r = f32[2] negate(p)\n}\n",
        "6:3: a second ROOT in one computation",
        "'q' is its ROOT already",
    ),
    "name twice": (
        HEAD + "  q = f32[2] negate(p)\n  q = f32[2] negate(p)\n}\n",
        "6:3: instruction 'q' is defined twice in computation 'e'",
        "the first one is on line 5",
    ),
    "unknown opcode": (
        HEAD + "  ROOT q = f32[2] negat(p)\n}\n",
        "5:19: unknown opcode 'negat'",
        "did you mean 'negate'?",
    ),
    "unknown opcode, number": (
        "HloModule m\n\nENTRY e {\n  ROOT p = f32[2] paramter(1)\n}\n",
        "4:19: unknown opcode 'paramter'",
        "did you mean 'parameter'?",
    ),
    "unknown opcode, literal": (
        HEAD + "  ROOT q = f32[2] constnt({1,2})\n}\n",
        "5:19: unknown opcode 'constnt'",
        "did you mean 'constant'?",
    ),
    "unknown opcode, complex literal": (
        HEAD + "  ROOT q = c64[] constnt((1,2))\n}\n",
        "5:18: unknown opcode 'constnt'",
        "did you mean 'constant'?",
    ),
    "unknown opcode, word": (
        HEAD + "  ROOT q = pred[] constnt(true)\n}\n",
        "5:19: unknown opcode 'constnt'",
        "did you mean 'constant'?",
    ),
    "element type in capitals": (
        HEAD + "  ROOT q = F32[2] negate(p)\n}\n",
        "5:12: unknown element type 'F32'",
        "did you mean 'f32'?",
    ),
    "element type in capitals, in a tuple": (
        HEAD + "  ROOT q = (F32[2], f32[2]) tuple(p, p)\n}\n",
        "5:13: unknown element type 'F32'",
        "did you mean 'f32'?",
    ),
    "element type of another language": (
        HEAD + "  ROOT q = int64[2] iota(), iota_dimension=0\n}\n",
        "5:12: unknown element type 'int64'",
        "did you mean 's64'?",
    ),
    "element type, digits turned": (
        HEAD + "  ROOT q = f23[2] negate(p)\n}\n",
        "5:12: unknown element type 'f23'",
        "did you mean 'f32'?",
    ),
    "numbers where rows should be": (
        HEAD + "  ROOT q = s32[2,2] constant({1,2,3,4})\n}\n",
        "5:38: expects 2 rows in dimension 0, but sees numbers instead",
        "",
    ),
    "numbers where inner rows should be": (
        HEAD + "  ROOT q = s32[2,2,1] constant({{1,2},{3,4}})\n}\n",
        "5:37: expects 2 rows in dimension 1, but sees numbers instead",
        "",
    ),
    "negative interior padding": (
        HEAD + "  z = f32[] constant(0)\n  ROOT q = f32[1] pad(p, z), padding=0_0_-1\n}\n",
        "6:42: the padding between elements cannot be negative",
        "",
    ),
    "unknown opcode, underscore": (
        HEAD + "  ROOT q = f32[2] collective_permute(p)\n}\n",
        "5:19: unknown opcode 'collective_permute'",
        "did you mean 'collective-permute'?",
    ),
    "unknown opcode, nothing like it": (
        HEAD + "  ROOT q = f32[2] frobnicate(p)\n}\n",
        "5:19: unknown opcode 'frobnicate'",
        "",
    ),
    "undefined operand": (
        HEAD + "  ROOT q = f32[2] negate(zz)\n}\n",
        "5:26: undefined operand 'zz'",
        "",
    ),
    "undefined operand, close": (
        "HloModule m\n\nENTRY e {\n  weights = f32[2] parameter(0)\n  ROOT q = f32[2] negate(weight)\n}\n",
        "5:26: undefined operand 'weight'",
        "did you mean 'weights'?",
    ),
    "operand further down": (
        HEAD + "  q = f32[2] negate(r)\n  ROOT r = f32[2] negate(p)\n}\n",
        "5:21: undefined operand 'r'",
        "it is defined further down, on line 6",
    ),
    "operand is itself": (
        HEAD + "  ROOT q = f32[2] negate(q)\n}\n",
        "5:26: undefined operand 'q'",
        "an instruction cannot use itself",
    ),
    "operand of another computation": (
        "HloModule m\n\nf {\n  ROOT inner = f32[2] parameter(0)\n}\n\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT q = f32[2] negate(inner)\n}\n",
        "9:26: undefined operand 'inner'",
        "computation 'f' has one, but names end with their computation",
    ),
    "operand shape": (
        HEAD + "  ROOT q = f32[2] negate(f32[3] p)\n}\n",
        "5:26: operand 'p' has shape f32[2], not f32[3]",
        "",
    ),
    "too many operands": (
        HEAD + "  ROOT q = f32[2] negate(p, p)\n}\n",
        "5:29: negate takes 1 operand, it has 2",
        "",
    ),
    "too few operands": (
        HEAD + "  ROOT q = f32[2] add(p)\n}\n",
        "5:19: add takes 2 operands, it has 1",
        "",
    ),
    "operand without a name": (
        HEAD + "  ROOT q = f32[2] add(p, f32[2])\n}\n",
        "5:26: an operand without a name",
        "only a bare instruction, outside of every computation, may leave operands' names out",
    ),
    "unknown attribute": (
        HEAD + "  ROOT q = f32[2] negate(p), dimensions={0}\n}\n",
        "5:30: negate takes no attribute 'dimensions'",
        "it takes backend_config, control-predecessors, frontend_attributes, metadata, origin, parameter_replication, sharding, statistics",
    ),
    "unknown attribute, close": (
        HEAD + "  ROOT q = f32[2] reverse(p), dimension={0}\n}\n",
        "5:31: reverse takes no attribute 'dimension'",
        "did you mean 'dimensions'?",
    ),
    "attribute twice": (
        HEAD + "  ROOT q = f32[2] reverse(p), dimensions={0}, dimensions={0}\n}\n",
        "5:47: the attribute dimensions is given twice",
        "",
    ),
    "attribute missing": (
        HEAD + "  ROOT q = f32[2] reverse(p)\n}\n",
        "5:19: reverse needs the attribute dimensions",
        "",
    ),
    "attribute value": (
        HEAD + "  ROOT q = pred[2] compare(p, p), direction=LTE\n}\n",
        "5:45: unknown word 'LTE'; known are EQ, GE, GT, LE, LT, NE",
        "",
    ),
    "attribute list value": (
        HEAD + "  ROOT q = f32[2] reverse(p), dimensions={a}\n}\n",
        "5:43: expects an integer",
        "",
    ),
    "pair of three": (
        HEAD + "  ROOT q = f32[2] collective-permute(p), source_target_pairs={{0,1},{1,2,3}}\n}\n",
        "5:69: expects pairs {source,target}",
        "",
    ),
    "blank before =": (
        HEAD + "  ROOT q = f32[2] reverse(p), dimensions ={0}\n}\n",
        "5:31: expects an attribute such as dimensions={0}, but sees 'dimensions'",
        "XLA allows no blank before an attribute's =",
    ),
    "comma missing": (
        HEAD + "  ROOT q = f32[2] reverse(p) dimensions={0}\n}\n",
        "5:30: cannot read this: 'dimensions'",
        "is a comma missing before it?",
    ),
    "comma at the end": (
        HEAD + "  ROOT q = f32[2] negate(p),\n}\n",
        "5:29: expects an attribute such as dimensions={0}, but sees the end of the instruction",
        "",
    ),
    "shape missing": (
        HEAD + "  ROOT q = convert(p)\n}\n",
        "5:12: convert needs its result shape in front of it",
        "",
    ),
    "shape bad": (
        HEAD + "  ROOT q = f32[2,] negate(p)\n}\n",
        "5:18: expects a dimension's size: an integer, <=integer or ?",
        "",
    ),
    "layout bad": (
        HEAD + "  ROOT q = f32[2]{0,1} negate(p)\n}\n",
        "5:18: the shape has 1 dimensions, its layout 2",
        "",
    ),
    "element type unknown": (
        HEAD + "  ROOT q = float32[2] negate(p)\n}\n",
        "5:12: unknown element type 'float32'",
        "did you mean 'f32'?",
    ),
    "no opcode": (
        HEAD + "  ROOT q = f32[2]\n}\n",
        "5:18: expects an opcode and its operands in parentheses, but sees the end of the instruction",
        "",
    ),
    "string not closed": (
        HEAD + '  ROOT q = f32[2] custom-call(p), custom_call_target="abc\n}\n',
        "5:54: this string is not closed",
        "",
    ),
    "comment not closed": (
        HEAD + "  ROOT q = f32[2] negate(p) /* oops\n}\n",
        "5:29: this comment is not closed",
        "",
    ),
    "parenthesis not closed": (
        HEAD + "  ROOT q = f32[2] negate(p\n}\n",
        "5:25: this ( is not closed",
        "in computation 'e'",
    ),
    "constant out of range": (
        HEAD + "  ROOT q = u8[2] constant({1, 256})\n}\n",
        "5:31: 256 is out of range for u8: [0, 255]",
        "",
    ),
    "constant too short": (
        HEAD + "  ROOT q = f32[3] constant({1, 2})\n}\n",
        "5:33: expects 3 elements in dimension 0, but sees 2",
        "",
    ),
    "constant true for a number": (
        HEAD + "  ROOT q = f32[] constant(true)\n}\n",
        "5:27: true is no f32",
        "",
    ),
    "parameter gap": (
        HEAD + "  ROOT q = f32[2] parameter(2)\n}\n",
        "5:29: parameter 2 of 2 parameters: number 1 is missing",
        "",
    ),
    "parameter twice": (
        HEAD + "  ROOT q = f32[2] parameter(0)\n}\n",
        "5:29: parameter 0 is there twice",
        "",
    ),
    "parameter negative": (
        HEAD + "  ROOT q = f32[2] parameter(-1)\n}\n",
        "5:29: a parameter's number is not negative",
        "",
    ),
    "undefined computation": (
        HEAD + "  ROOT q = f32[2] call(p), to_apply=f\n}\n",
        "5:37: undefined computation 'f'",
        "",
    ),
    "computation further down": (
        HEAD + "  ROOT q = f32[2] call(p), to_apply=f\n}\n\nf {\n  ROOT a = f32[2] parameter(0)\n}\n",
        "5:37: undefined computation 'f'",
        "it is defined on line 8, and has to be before its use",
    ),
    "header result": (
        "HloModule m\n\nENTRY e (p: f32[2]) -> f32[3] {\n  ROOT p = f32[2] parameter(0)\n}\n",
        "3:24: the header says that 'e' returns f32[3], its root is f32[2]",
        "",
    ),
    "header %": (
        "HloModule m\n\nENTRY e (%p: f32[2]) -> f32[2] {\n  ROOT p = f32[2] parameter(0)\n}\n",
        "3:12: expects a shape",
        "",
    ),
    "reserved name": (
        HEAD + "  ROOT true = f32[2] negate(p)\n}\n",
        "5:8: 'true' is a reserved word, not a name",
        "write %true",
    ),
    "type as a name": (
        HEAD + "  ROOT %f32 = f32[2] negate(p)\n}\n",
        "5:9: 'f32' is an element type, not a name",
        "XLA would call it f32_",
    ),
    "name with __": (
        HEAD + "  ROOT __q = f32[2] negate(p)\n}\n",
        "5:8: '__q' is no name: two underscores at the start are XLA's",
        "XLA would call it a_q",
    ),
    "control predecessor": (
        HEAD + "  ROOT q = f32[2] negate(p), control-predecessors={r}\n}\n",
        "5:52: undefined control predecessor 'r'",
        "",
    ),
    "inference": (
        HEAD + "  c = s32[2] constant({1, 2})\n  ROOT q = add(p, c)\n}\n",
        "6:12: no shape follows for add: the operands' element types differ: f32[2] and s32[2]",
        "",
    ),
    "no text without header": (
        "f (a: f32[2]) -> f32[2] {\n  ROOT a = f32[2] parameter(0)\n}\n",
        "1:1: text without a HloModule header begins with ENTRY, or with a name and {",
        "add a header: HloModule name",
    ),
    "non-ASCII": (
        HEAD + "  ROOT q = f32[2] négate(p)\n}\n",
        "5:20: the character 'é' (U+00E9) cannot stand here",
        "outside of strings and comments, HLO is written in ASCII",
    ),
    "async-done of nothing": (
        HEAD + "  ROOT q = f32[2] async-done(p)\n}\n",
        "5:19: async-done takes the async-start or async-update before it, and nothing else",
        "",
    ),
    "channel ids": (
        HEAD
        + "  k = token[] after-all()\n  r = (f32[2], u32[], token[]) recv(k), channel_id=1\n  ROOT d = (f32[2], token[]) recv-done(r), channel_id=2\n}\n",
        "7:44: 'r' has channel_id=1, so recv-done has to",
        "",
    ),
    "bare instruction": (
        "f32[2] negate(x)\n",
        "1:15: undefined operand 'x'",
        "in a bare instruction, an operand needs its shape",
    ),
    "tables": (
        'HloModule m\n\nFileNames\n1 "a.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n1 {file_name_id=1 function_name_id=1 line=x end_line=1 column=1 end_column=1}\n\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n',
        "10:37: expects a field such as line=1",
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_diagnostic(case: str) -> None:
    text, where_and_what, hint = CASES[case]
    with pytest.raises(HloSyntaxError) as caught:
        parse(text, "in.hlo").check()
    error = caught.value
    assert f"{error.line}:{error.column}: {error.message}" == where_and_what
    assert error.hint == hint
    assert str(error).startswith(f"in.hlo:{error.line}:{error.column}: error: {error.message}")


def test_the_whole_text_of_a_message() -> None:
    with pytest.raises(HloSyntaxError) as caught:
        parse(HEAD + "  ROOT q = f32[2] negat(p)\n}\n", "in.hlo").check()
    assert str(caught.value) == (
        "in.hlo:5:19: error: unknown opcode 'negat'\n"
        "    ROOT q = f32[2] negat(p)\n"
        "                    ^\n"
        "  hint: did you mean 'negate'?"
    )


def test_the_first_problem_in_text_order() -> None:
    text = HEAD + "  a = f32[2] negate(nobody)\n  b = f32[2] frobnicate(p)\n}\n"
    for batch in (True, False):
        with pytest.raises(HloSyntaxError, match="undefined operand 'nobody'"):
            check_module(parse(text), batch=batch)


def test_an_inline_computation_is_checked_where_it_stands() -> None:
    inline = "to_apply={ x = f32[2] parameter(0) ROOT y = f32[2] nothing(x) }"
    with pytest.raises(HloSyntaxError, match="unknown opcode 'nothing'"):
        parse(HEAD + f"  ROOT q = f32[2] call(p), {inline}\n}}\n").check()
    with pytest.raises(HloSyntaxError, match="undefined operand 'nobody'"):
        parse(HEAD + f"  ROOT q = f32[2] call(nobody), {inline}\n}}\n").check()


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_deep_nesting_is_read(depth: int) -> None:
    parse(HEAD + "  ROOT q = " + "negate(" * depth + "p" + ")" * depth + "\n}\n").check()
    parse(HEAD + "  ROOT q = " + "(" * depth + "f32[]" + ")" * depth + " parameter(1)\n}\n").check()


def test_a_long_chain_without_shapes() -> None:
    lines = ["  x0 = negate(p)", *(f"  x{i} = negate(x{i - 1})" for i in range(1, 5_000))]
    module = parse(HEAD + "\n".join(lines) + "\n}\n")
    module.check()
    assert module.entry.root.shape.to_text() == "f32[2]{0}"


def test_a_bracket_that_closes_nothing_is_named() -> None:
    text = "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT n = f32[2] negate(p))\n}\n"
    with pytest.raises(HloSyntaxError) as caught:
        parse(text, "m.hlo")
    assert (caught.value.line, caught.value.column, caught.value.message) == (4, 28, "this ) closes nothing")


def test_a_second_module_names_the_flag() -> None:
    text = "HloModule m\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n// -----\n"
    with pytest.raises(HloSyntaxError) as caught:
        parse(text + text, "m.hlo")
    assert caught.value.hint.startswith("a second module: --split-input-file")
