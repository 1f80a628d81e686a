"""What is no HLO is refused as compilers refuse it: exact message, exit code 2, no output, no traceback, in time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .in_process import FIXTURES, cp2ag

HEAD = "HloModule m, replica_count=4\n\nENTRY main {\n  p = f32[2] parameter(0)\n"
PAIRS = "source_target_pairs={{0,1},{1,0}}"
PERMUTE = f"  cp = f32[2] collective-permute(p), {PAIRS}\n"
N = 100_000
MB_50 = 50_000_000
TIME_LIMIT = 20
LONGEST_MESSAGE = 1024


def _with(body: str) -> str:
    return HEAD + body + "}\n"


# ---- exact messages --------------------------------------------------------------------------------------------------

MESSAGES: dict[str, tuple[str | bytes, str]] = {
    "empty": (
        "",
        "in.hlo:1:1: error: no HLO here: the text is empty\n  hint: an HLO module has at least one computation\n",
    ),
    "blank": (
        " \n\t\n",
        "in.hlo:1:1: error: no HLO here: the text is empty\n  hint: an HLO module has at least one computation\n",
    ),
    "comment": (
        "// nothing\n",
        "in.hlo:1:1: error: no HLO here: the text is empty\n  // nothing\n  ^\n"
        "  hint: an HLO module has at least one computation\n",
    ),
    "no_computation": (
        "HloModule m\n",
        "in.hlo:2:1: error: no computation here\n  hint: the file may be cut off after its header\n",
    ),
    "no_module_name": ("HloModule\n", "in.hlo:2:1: error: expects the module's name behind HloModule\n"),
    "header_comma": (
        "HloModule m,\n\nENTRY main { ROOT p = f32[] parameter(0) }",
        "in.hlo:1:12: error: expects an attribute behind this comma\n  HloModule m,\n             ^\n",
    ),
    "header_twice": (
        HEAD.replace("replica_count=4", "replica_count=2, replica_count=4") + "}\n",
        "in.hlo:1:31: error: the module attribute replica_count is given twice\n"
        "  HloModule m, replica_count=2, replica_count=4\n                                ^\n",
    ),
    "braces_between_shape_and_permute": (
        _with(f"  cp = f32[2]{{0}}{{}} collective-permute(p), {PAIRS}\n"),
        "in.hlo:5:17: error: expects an opcode and its operands in parentheses, but sees '{'\n"
        f"    cp = f32[2]{{0}}{{}} collective-permute(p), {PAIRS}\n                  ^\n",
    ),
    "header_count_no_integer": (
        _with(PERMUTE).replace("=4", "=x"),
        "in.hlo:1:28: error: replica_count must be an integer\n"
        "  HloModule m, replica_count=x\n                             ^\n",
    ),
    "header_count_zero": (
        _with(PERMUTE).replace("=4", "=0"),
        "in.hlo:1:28: error: replica_count must be at least 1\n  HloModule m, replica_count=0\n"
        "                             ^\n  hint: --replica-count overrides it in other modules\n",
    ),
    "prose": (
        "This is not HLO at all.\n",
        "in.hlo:1:1: error: expects a shape and an opcode, but sees 'This'\n  This is not HLO at all.\n  ^\n"
        "  hint: HLO text begins with HloModule, or is one instruction such as f32[2] negate(f32[2])\n",
    ),
    "json": (
        '{"a": [1, 2]}\n',
        "in.hlo:1:1: error: expects a shape and an opcode, but sees '{'\n  {\"a\": [1, 2]}\n  ^\n"
        "  hint: HLO text begins with HloModule, or is one instruction such as f32[2] negate(f32[2])\n",
    ),
    "mlir": (
        "module @jit_f { func.func @main() { return } }\n",
        "in.hlo:1:1: error: expects a shape and an opcode, but sees 'module'\n"
        "  module @jit_f { func.func @main() { return } }\n  ^\n"
        "  hint: this looks like MLIR; XLA's tools turn StableHLO into HLO text\n",
    ),
    "binary": (
        b"\x0a\x04main\x12\x00\x1a\xff\xfe\x00\x01" * 20,
        "in.hlo:2:9: error: the byte 0xff is not UTF-8\n   main   \xff\xfe\n          ^\n"
        "  hint: this looks like binary data, perhaps a serialized HloModuleProto; cp2ag reads HLO text\n",
    ),
    "nul": (
        "HloModule m\0\n",
        "in.hlo:1:12: error: a NUL byte: this is no HLO text\n  HloModule m\n             ^\n"
        "  hint: a serialized HloModuleProto is read by XLA's own tools\n",
    ),
    "utf_16": (
        HEAD.encode("utf-16"),
        "in.hlo:1:1: error: the text is UTF-16, not plain UTF-8\n  hint: iconv converts it\n",
    ),
    "utf_16_big_endian": (
        b"\xfe\xff" + HEAD.encode("utf-16-be"),
        "in.hlo:1:1: error: the text is UTF-16, not plain UTF-8\n  hint: iconv converts it\n",
    ),
    "utf_16_without_mark": (
        "HloModule m\n".encode("utf-16-le"),
        "in.hlo:1:2: error: a NUL byte: this is no HLO text\n  H l o M o d u l e   m\n   ^\n"
        "  hint: a serialized HloModuleProto is read by XLA's own tools\n",
    ),
    "byte_order_mark": (
        b"\xef\xbb\xbf" + _with(PERMUTE).encode(),
        "in.hlo:1:1: error: the text is UTF-8 with a byte order mark, not plain UTF-8\n  hint: iconv converts it\n",
    ),
    "latin_1": (
        _with(PERMUTE).replace("ENTRY", "// \xe9\nENTRY").encode("latin-1"),
        "in.hlo:3:4: error: the byte 0xe9 is not UTF-8\n  // \xe9\n     ^\n  hint: HLO text is ASCII or UTF-8\n",
    ),
    "name_twice": (
        _with("  p = f32[2] negate(p)\n" + PERMUTE),
        "in.hlo:5:3: error: instruction 'p' is defined twice in computation 'main'\n    p = f32[2] negate(p)\n    ^\n"
        "  hint: the first one is on line 4\n",
    ),
    "computation_twice": (
        "HloModule m\n\na { ROOT p = f32[] parameter(0) }\n\na { ROOT p = f32[] parameter(0) }\n",
        "in.hlo:5:1: error: computation 'a' is defined twice\n  a { ROOT p = f32[] parameter(0) }\n  ^\n"
        "  hint: the first one is on line 3\n",
    ),
    "two_entries": (
        "HloModule m\n\nENTRY a { ROOT p = f32[] parameter(0) }\n\nENTRY b { ROOT p = f32[] parameter(0) }\n",
        "in.hlo:5:1: error: a second ENTRY: a module has one entry computation\n"
        "  ENTRY b { ROOT p = f32[] parameter(0) }\n  ^\n",
    ),
    "undefined_operand": (
        _with(f"  ROOT cp = f32[2] collective-permute(x), {PAIRS}\n"),
        "in.hlo:5:39: error: undefined operand 'x'\n"
        "    ROOT cp = f32[2] collective-permute(x), source_target_pairs={{0,1},{1,0}}\n"
        "                                        ^\n",
    ),
    "operand_defined_later": (
        _with(f"  cp = f32[2] collective-permute(q), {PAIRS}\n  ROOT q = f32[2] negate(p)\n"),
        "in.hlo:5:34: error: undefined operand 'q'\n"
        "    cp = f32[2] collective-permute(q), source_target_pairs={{0,1},{1,0}}\n"
        "                                   ^\n  hint: it is defined further down\n",
    ),
    "pair_outside_replicas": (
        _with("  ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,4}}\n"),
        "in.hlo:5:63: error: the pair {0,4} of 'cp' names replica 4, but the grid has 4 replicas "
        "(4 replicas x 1 partitions)\n    ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,4}}\n"
        "                                                                ^\n  hint: --replica-count 5 or more\n",
    ),
    "pair_outside_partitions": (
        _with("  ROOT cp = f32[2] collective-permute(p), channel_id=1, source_target_pairs={{0,1}}\n"),
        "in.hlo:5:77: error: the pair {0,1} of 'cp' names partition 1, but the grid has 1 partitions "
        "(4 replicas x 1 partitions)\n"
        "    ROOT cp = f32[2] collective-permute(p), channel_id=1, source_target_pairs={{0,1}}\n"
        "                                                                              ^\n"
        "  hint: --num-partitions 2 or more\n",
    ),
    "pair_negative": (
        _with("  ROOT cp = f32[2] collective-permute(p), source_target_pairs={{-1,0}}\n"),
        "in.hlo:5:63: error: the pair {-1,0} of 'cp' names replica -1, but the grid has 4 replicas "
        "(4 replicas x 1 partitions)\n    ROOT cp = f32[2] collective-permute(p), source_target_pairs={{-1,0}}\n"
        "                                                                ^\n  hint: ids are 0 or more\n",
    ),
    "duplicate_source": (
        _with("  ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,1},{0,2}}\n"),
        "in.hlo:5:63: error: two pairs have the source 0\n"
        "    ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,1},{0,2}}\n"
        "                                                                ^\n"
        "  hint: XLA refuses this permute; --profile neuron rewrites it, the last pair wins\n",
    ),
    "duplicate_target": (
        _with("  ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,1},{2,1}}\n"),
        "in.hlo:5:63: error: two pairs have the target 1\n"
        "    ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,1},{2,1}}\n"
        "                                                                ^\n"
        "  hint: XLA refuses this permute; --profile neuron rewrites it, the last pair wins\n",
    ),
    "no_pairs": (
        _with("  ROOT cp = f32[2] collective-permute(p)\n"),
        "in.hlo:5:8: error: a collective-permute needs source_target_pairs\n"
        "    ROOT cp = f32[2] collective-permute(p)\n         ^\n",
    ),
    "pairs_end_in_a_comma": (
        _with("  ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,1},}\n"),
        "in.hlo:5:70: error: expects another pair after the comma\n"
        "    ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,1},}\n"
        "                                                                       ^\n",
    ),
    "pair_of_three": (
        _with("  ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,1,2}}\n"),
        "in.hlo:5:64: error: expects pairs {source,target}\n"
        "    ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,1,2}}\n"
        "                                                                 ^\n",
    ),
    "pair_of_words": (
        _with("  ROOT cp = f32[2] collective-permute(p), source_target_pairs={{a,b}}\n"),
        "in.hlo:5:65: error: expects an integer\n"
        "    ROOT cp = f32[2] collective-permute(p), source_target_pairs={{a,b}}\n"
        "                                                                  ^\n",
    ),
    "pair_past_64_bits": (
        _with("  ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,99999999999999999999999999}}\n"),
        "in.hlo:5:67: error: an integer past 64 bits\n"
        "    ROOT cp = f32[2] collective-permute(p), source_target_pairs={{0,99999999999999999999999999}}\n"
        "                                                                    ^\n",
    ),
    "no_result_shape": (
        _with(f"  ROOT cp = collective-permute(p), {PAIRS}\n"),
        "in.hlo:5:13: error: collective-permute needs its result shape in front of it\n"
        "    ROOT cp = collective-permute(p), source_target_pairs={{0,1},{1,0}}\n              ^\n",
    ),
    "unknown_type": (
        _with(f"  ROOT cp = f33[2] collective-permute(p), {PAIRS}\n"),
        "in.hlo:5:13: error: unknown element type 'f33'\n"
        "    ROOT cp = f33[2] collective-permute(p), source_target_pairs={{0,1},{1,0}}\n              ^\n",
    ),
    "not_closed": (
        HEAD + PERMUTE,
        "in.hlo:3:1: error: computation 'main' is not closed by a }\n  ENTRY main {\n  ^\n"
        "  hint: the file may be cut off\n",
    ),
    "bracket_mismatch": (
        _with(f"  cp = f32[2] collective-permute(p}}, {PAIRS}\n"),
        "in.hlo:5:33: error: this ( is not closed\n"
        f"    cp = f32[2] collective-permute(p}}, {PAIRS}\n" + " " * 34 + "^\n"
        "  hint: in computation 'main'\n",
    ),
    "string_not_closed": (
        _with('  n = f32[2] negate(p), metadata={op_name="x}\n'),
        "in.hlo:5:43: error: this string is not closed\n"
        '    n = f32[2] negate(p), metadata={op_name="x}\n                                            ^\n',
    ),
    "comment_not_closed": (
        _with("  /* n = f32[2] negate(p)\n"),
        "in.hlo:5:3: error: this comment is not closed\n    /* n = f32[2] negate(p)\n    ^\n",
    ),
    "closed_too_often": (
        _with(PERMUTE) + "}\n",
        "in.hlo:7:1: error: expects a computation: a name, then { and its instructions\n  }\n  ^\n"
        "  hint: there is one } too many, or the one before closes too early\n",
    ),
    "instruction_outside": (
        "HloModule m\n\np = f32[2] parameter(0)\n",
        "in.hlo:3:1: error: expects a computation: a name, then { and its instructions\n"
        "  p = f32[2] parameter(0)\n  ^\n"
        "  hint: an instruction outside of every computation: is a } too early, or a header missing?\n",
    ),
    "last_channel_id_taken": (
        _with(f"  ROOT cp = f32[2] collective-permute(p), channel_id=9223372036854775807, {PAIRS}\n").replace(
            "replica_count", "num_partitions"
        ),
        "in.hlo:5:8: error: no channel id is left: the module's largest is 2^63 - 1\n"
        "    ROOT cp = f32[2] collective-permute(p), channel_id=9223372036854775807, "
        "source_target_pairs={{0,1},{1,0}}\n         ^\n",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_exact_message(name: str, tmp_path: Path) -> None:
    text, message = MESSAGES[name]
    (tmp_path / "in.hlo").write_bytes(text if isinstance(text, bytes) else text.encode())
    outcome = cp2ag("rewrite", "in.hlo", "-o", "out.hlo", "--report", "report.json", cwd=tmp_path)
    assert outcome.stderr == message
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["in.hlo"]


@pytest.mark.parametrize("name", MESSAGES)
def test_check_and_diff_refuse_it_too(name: str, tmp_path: Path) -> None:
    text, message = MESSAGES[name]
    (tmp_path / "in.hlo").write_bytes(text if isinstance(text, bytes) else text.encode())
    for flags in (["--check"], ["--diff"], ["-q"], ["--require-all"]):
        outcome = cp2ag("rewrite", "in.hlo", *flags, cwd=tmp_path)
        assert (outcome.code, outcome.stdout, outcome.stderr) == (2, b"", message)


# What only XLA's verifier refuses, or what rewrite has no reason to read; check is stricter than rewrite, not laxer.
_FINE_FOR_CHECK = {
    "pair_outside_replicas",
    "pair_outside_partitions",
    "pair_negative",
    "duplicate_source",
    "duplicate_target",
    "header_count_zero",
    "last_channel_id_taken",
}


@pytest.mark.parametrize("name", [name for name in MESSAGES if name not in _FINE_FOR_CHECK])
def test_the_check_command_refuses_it_too(name: str, tmp_path: Path) -> None:
    text, _ = MESSAGES[name]
    (tmp_path / "in.hlo").write_bytes(text if isinstance(text, bytes) else text.encode())
    outcome = cp2ag("check", "in.hlo", cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert outcome.stderr.startswith("in.hlo:")
    assert ": error: " in outcome.stderr


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (PERMUTE + "  ROOT n = f32[2] negatify(cp)\n", "in.hlo:6:19: error: unknown opcode 'negatify'"),
        (
            f"  q = f32[2] negatify(p)\n  ROOT cp = f32[2] collective-permute(q), {PAIRS}\n",
            "in.hlo:5:14: error: unknown opcode 'negatify'",
        ),
    ],
    ids=["user", "operand"],
)
def test_an_unknown_opcode_beside_a_permute(body: str, at: str, tmp_path: Path) -> None:
    (tmp_path / "in.hlo").write_text(_with(body))
    outcome = cp2ag("rewrite", "in.hlo", cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert outcome.stderr.startswith(at)


@pytest.mark.parametrize(
    "attributes",
    [
        f"replica_groups={{{{0,1}}}}, {PAIRS}",
        f"channel_id=1, {PAIRS}, use_global_device_ids=true",
        f"{PAIRS}, {PAIRS}",
        f"{PAIRS}, dimensions={{0}}",
    ],
)
def test_an_attribute_that_no_permute_has(attributes: str) -> None:
    """XLA's parser refuses these (design, section 11)."""
    text = _with(f"  ROOT cp = f32[2] collective-permute(p), {attributes}\n")
    outcome = cp2ag("rewrite", "--num-partitions", "4", stdin=text.encode())
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert outcome.stderr.startswith("<stdin>:5:")


# ---- truncated and mangled files -------------------------------------------------------------------------------------

_WHOLE = {
    name: (FIXTURES / f"{name}.hlo").read_bytes()
    for name in (
        "jax/scan_ring.pre_scheduler",
        "hand/metadata",
        "hand/comments",
        "hand/strings_like_code",
        "hand/variadic",
    )
}


def _never_a_traceback(data: bytes) -> int:
    """What rewrite ends with, once it and check have shown that they say why where they refuse."""
    outcome = cp2ag("rewrite", "--replica-count", "4", "--num-partitions", "4", stdin=data)
    assert outcome.code in (0, 2)
    if outcome.code == 2:
        assert outcome.stdout == b""
        assert ": error: " in outcome.stderr
        assert len(outcome.stderr) <= LONGEST_MESSAGE
    checked = cp2ag("check", "-", stdin=data)
    assert checked.code in (0, 2)
    assert checked.stdout == b""
    assert (checked.code == 2) == (": error: " in checked.stderr)
    return outcome.code


@pytest.mark.parametrize("name", _WHOLE)
def test_a_file_that_is_cut_off(name: str) -> None:
    whole = _WHOLE[name]
    for end in range(0, len(whole), 50 if len(whole) > 2000 else 7):
        behind = whole[whole.rindex(b"}") + 1 : end]  # the last brace; only line comments follow it
        is_whole = end > whole.rindex(b"}") and not behind.endswith(b"\n/")
        assert _never_a_traceback(whole[:end]) == (0 if is_whole else 2)


@pytest.mark.parametrize("name", _WHOLE)
def test_a_file_whose_beginning_is_missing(name: str) -> None:
    whole = _WHOLE[name]
    for start in range(1, len(whole), 211 if len(whole) > 2000 else 17):
        _never_a_traceback(whole[start:])


@pytest.mark.parametrize("name", _WHOLE)
@pytest.mark.parametrize("replacement", [b"", b"{", b"}", b'"', b"(", b",", b"\n", b"\0", b"9999", b"=", b"%", b"/*"])
def test_a_file_with_a_character_wrong(name: str, replacement: bytes) -> None:
    whole = _WHOLE[name]
    for at in range(13, len(whole), 487 if len(whole) > 2000 else 53):
        _never_a_traceback(whole[:at] + replacement + whole[at + 1 :])


# ---- input made to be slow or deep -----------------------------------------------------------------------------------

REFUSED, FINE, UNREAD = (2, 2), (0, 0), (0, 2)
"""The exit codes of rewrite and check. Unread is what rewrite does not look into, for no permute is in it."""

NESTED: dict[str, tuple[str, tuple[int, int]]] = {
    "operand_parentheses": (_with("  q = f32[2] negate(" + "(" * N + ")" * N + ")\n" + PERMUTE), UNREAD),
    "permute_operand_parentheses": (
        _with("  cp = f32[2] collective-permute(" + "(" * N + "p" + ")" * N + f"), {PAIRS}\n"),
        REFUSED,
    ),
    "instructions_in_a_permute": (
        _with("  cp = f32[2] collective-permute(" + "f32[2] negate(" * N + "p" + ")" * N + f"), {PAIRS}\n"),
        FINE,
    ),
    "instructions_in_a_user": (
        _with(PERMUTE + "  n = f32[2] add(cp, " + "f32[2] negate(" * N + "p" + ")" * N + ")\n"),
        FINE,
    ),
    "permute_tuple_shape": (
        _with("  cp = " + "(" * N + "f32[2]" + ")" * N + f" collective-permute(p), {PAIRS}\n"),
        FINE,
    ),
    "operand_tuple_shape": (
        _with(
            "  q = " + "(" * N + "f32[2]" + ")" * N + f" parameter(1)\n  cp = f32[2] collective-permute(q), {PAIRS}\n"
        ),
        FINE,
    ),
    "backend_config": (
        _with(f"  cp = f32[2] collective-permute(p), {PAIRS}, backend_config=" + "{" * N + "}" * N + "\n"),
        FINE,
    ),
    "frontend_attributes": (
        _with(f"  cp = f32[2] collective-permute(p), {PAIRS}, frontend_attributes=" + "{" * N + "}" * N + "\n"),
        REFUSED,
    ),
    "pairs": (_with("  cp = f32[2] collective-permute(p), source_target_pairs=" + "{" * N + "}" * N + "\n"), REFUSED),
    "sharding": (_with(f"  cp = f32[2] collective-permute(p), {PAIRS}, sharding=" + "{" * N + "}" * N + "\n"), REFUSED),
    "metadata": (_with(f"  cp = f32[2] collective-permute(p), {PAIRS}, metadata=" + "{" * N + "}" * N + "\n"), REFUSED),
    "literal": (
        _with("  c = f32[2] constant(" + "{" * N + "}" * N + f")\n  cp = f32[2] collective-permute(c), {PAIRS}\n"),
        UNREAD,
    ),
    "inline_computations": (
        _with(PERMUTE + "  q = f32[] call(p), to_apply={ " * (N // 20) + "}" * (N // 20) + "\n"),
        REFUSED,
    ),
    "header_attribute": (
        "HloModule m, a=" + "{" * N + "}" * N + "\n\nENTRY main { ROOT p = f32[] parameter(0) }\n",
        UNREAD,
    ),
    "header_parameters": (
        "HloModule m\n\nENTRY main " + "(" * N + ")" * N + " -> f32[] { ROOT p = f32[] parameter(0) }\n",
        UNREAD,
    ),
    "open_parentheses": (_with("  q = f32[2] negate(" + "(" * N + "\n"), REFUSED),
    "open_braces": (HEAD + "{" * N, REFUSED),
    "open_mixed": (HEAD + "([{" * N, REFUSED),
    "only_open_braces": ("{" * N, REFUSED),
    "only_open_parentheses": ("(" * N, REFUSED),
    "only_open_brackets": ("[" * N, REFUSED),
    "only_closing_braces": ("}" * N, REFUSED),
    "closing_parentheses": (_with(")" * N + "\n"), REFUSED),
}

SLOW: dict[str, tuple[str, tuple[int, int]]] = {
    "backslashes": (_with('  n = f32[2] negate(p), metadata={op_name="' + "\\" * 200_001 + "\n" + PERMUTE), REFUSED),
    "backslashes_closed": (
        _with('  n = f32[2] negate(p), metadata={op_name="' + "\\" * 200_000 + '"}\n' + PERMUTE),
        FINE,
    ),
    "backslashes_in_single_quotes": (_with("  n = f32[2] negate(p), a='" + "\\" * 200_001 + "\n" + PERMUTE), REFUSED),
    "quotes_odd": (_with('"' * 200_001 + "\n" + PERMUTE), REFUSED),
    "quotes_even": (_with('"' * 200_000 + "\n" + PERMUTE), REFUSED),
    "single_quotes": (_with("'" * 200_001 + "\n" + PERMUTE), REFUSED),
    "quotes_and_backslashes": (_with('\\"' * 200_001 + "\n" + PERMUTE), REFUSED),
    "blanks": (_with(" " * 2_000_000 + "x\n" + PERMUTE), REFUSED),
    "blanks_at_the_end": (_with(PERMUTE) + " " * 2_000_000, FINE),
    "blank_lines": ("\n" * 2_000_000 + "x", REFUSED),
    "carriage_returns": ("\r" * 2_000_000 + "x", REFUSED),
    "lines_of_blanks": ((" " * 300 + "\n") * 10_000, REFUSED),
    "blanks_behind_the_opcode": (_with("  cp = f32[2] collective-permute" + " " * 1_000_000 + "p\n"), UNREAD),
    "opcodes": (_with("  cp = f32[2] " + "collective-permute " * 100_000 + "\n"), UNREAD),
    "opcodes_with_parentheses": (
        _with(PERMUTE + "  n = f32[2] add(" + "collective-permute(" * 20_000 + ")" * 20_001 + "\n"),
        UNREAD,
    ),
    "comment_openers": (_with("/*" * 500_000 + "\n" + PERMUTE), REFUSED),
    "comment_openers_closed": (_with("/* " * 200_000 + "*/\n" + PERMUTE), FINE),
    "comment_stars": (_with("/*" + "*" * 1_000_000 + "\n" + PERMUTE), REFUSED),
    "slashes": (_with("/" * 1_000_000 + "\n" + PERMUTE), FINE),
    "slashes_and_blanks": (_with("/ " * 500_000 + "\n" + PERMUTE), REFUSED),
    "dots_in_a_name": (_with("  " + "a.a." * 250_000 + " = f32[2] negate(p)\n" + PERMUTE), FINE),
    "dots_in_a_user": (_with(PERMUTE + "  n = f32[2] add(cp, " + "a.a." * 250_000 + ")\n"), UNREAD),
    "dots_in_a_permute": (_with("  cp = f32[2] collective-permute(" + "a.a." * 250_000 + f"), {PAIRS}\n"), REFUSED),
    "dashes": (_with("  n = f32[2] " + "-" * 1_000_000 + "(p)\n" + PERMUTE), UNREAD),
    "commas": (_with("  n = f32[2] negate(p)" + "," * 1_000_000 + "\n" + PERMUTE), UNREAD),
    "commas_in_a_permute": (_with(PERMUTE.rstrip() + "," * 1_000_000 + "\n"), REFUSED),
    "equal_signs": (_with("=" * 1_000_000 + "\n" + PERMUTE), REFUSED),
    "percent_signs": (_with("%" * 1_000_000 + "\n"), REFUSED),
    "many_attributes": (_with(f"  cp = f32[2] collective-permute(p), {PAIRS}" + ", a=1" * 100_000 + "\n"), REFUSED),
    "open_dictionaries": (_with("  n = f32[2] negate(p), metadata={" + "a={" * 100_000 + "\n" + PERMUTE), REFUSED),
    "open_raw_configs": (_with("  n = f32[2] negate(p)" + ", backend_config={ = " * 20_000 + "\n" + PERMUTE), REFUSED),
    "open_raw_configs_deep": (
        _with("  n = f32[2] negate(p)" + ", backend_config={ = {{{" * 20_000 + "\n" + PERMUTE),
        REFUSED,
    ),
    "open_shardings": (_with("  n = f32[2] negate(p)" + ", sharding={" * 20_000 + "\n" + PERMUTE), REFUSED),
    "digits_in_a_shape": (_with("  cp = f32[" + "1" * 1_000_000 + f"] collective-permute(p), {PAIRS}\n"), REFUSED),
    "digits_in_an_operands_shape": (
        _with("  q = f32[" + "1" * 5000 + f"] parameter(1)\n  cp = f32[2] collective-permute(q), {PAIRS}\n"),
        REFUSED,
    ),
    "digits_in_a_pair": (
        _with("  cp = f32[2] collective-permute(p), source_target_pairs={{0," + "9" * 1_000_000 + "}}\n"),
        REFUSED,
    ),
    "digits_in_a_channel": (
        _with("  cp = f32[2] collective-permute(p), channel_id=" + "9" * 5000 + f", {PAIRS}\n"),
        REFUSED,
    ),
    "digits_in_another_channel": (_with("  n = f32[2] negate(p), channel_id=" + "9" * 5000 + "\n" + PERMUTE), UNREAD),
    "digits_in_the_header": (_with(PERMUTE).replace("=4", "=" + "9" * 5000), REFUSED),
    "digits_in_a_layout": (_with("  cp = f32[2]{" + "1" * 5000 + f"}} collective-permute(p), {PAIRS}\n"), REFUSED),
    "digits_in_a_sharding": (
        _with("  q = f32[2] negate(p), sharding={devices=[" + "9" * 5000 + "]<=[8]}\n" + PERMUTE).replace(
            ", replica_count=4", ""
        ),
        UNREAD,
    ),
    "digits_in_groups": (
        _with(
            "  q = f32[8] all-gather(p), replica_groups=[1," + "9" * 5000 + "]<=[8], dimensions={0}\n" + PERMUTE
        ).replace(", replica_count=4", ""),
        REFUSED,
    ),
    "many_devices_in_groups": (
        _with(
            "  q = f32[8] all-gather(p), replica_groups=[1,999999999999]<=[999999999999], dimensions={0}\n" + PERMUTE
        ).replace(", replica_count=4", ""),
        FINE,
    ),
    "many_replicas": (_with(PERMUTE).replace("=4", "=999999999999"), FINE),
    "many_dimensions": (_with("  cp = f32[" + "1," * 500_000 + f"1] collective-permute(p), {PAIRS}\n"), FINE),
    "table_rows": (
        "HloModule m\n\nFileNames\n" + '1 "x"\n' * 100_000 + "\nENTRY main { ROOT p = f32[] parameter(0) }\n",
        REFUSED,
    ),
    "index_comments": (_with("  n = f32[2] negate(" + "/*index=5*/" * 100_000 + "p)\n" + PERMUTE), FINE),
}

HUGE: dict[str, tuple[Callable[[], str | bytes], tuple[int, int]]] = {
    "one_word": (lambda: "x" * MB_50, REFUSED),
    "blanks_and_a_word": (lambda: " " * MB_50 + "x", REFUSED),
    "bytes": (lambda: b"\xff" * MB_50, REFUSED),
    "an_open_string": (lambda: _with(PERMUTE.rstrip() + ', metadata={op_name="' + "y" * MB_50 + "\n"), REFUSED),
    "an_open_comment": (lambda: "/*" + "c" * MB_50, REFUSED),
    "an_operand_name": (lambda: _with("  cp = f32[2] collective-permute(" + "q" * MB_50 + f"), {PAIRS}\n"), REFUSED),
    "an_opcode": (lambda: _with(PERMUTE + "  n = f32[2] " + "z" * MB_50 + "(cp)\n"), REFUSED),
    "an_element_type": (lambda: _with("  cp = " + "f" * MB_50 + f"[2] collective-permute(p), {PAIRS}\n"), REFUSED),
    "an_open_attribute": (lambda: _with(PERMUTE.rstrip() + ", zzz={" + "1," * (MB_50 // 2) + "\n"), REFUSED),
    "a_literal": (
        lambda: _with(
            "  c = f32[2] constant({" + "1," * (MB_50 // 2) + f"}})\n  cp = f32[2] collective-permute(c), {PAIRS}\n"
        ),
        UNREAD,
    ),
}

SWEEP: dict[str, tuple[Callable[[], str | bytes], tuple[int, int]]] = {
    "pairs": (
        lambda: _with(
            "  cp = f32[2] collective-permute(p), source_target_pairs={" + "{0,1}," * (MB_50 // 6) + "{1,0}}\n"
        ),
        REFUSED,
    ),
    "open_braces": (lambda: HEAD + "{" * MB_50, REFUSED),
    "uses": (lambda: _with(PERMUTE + "  n = f32[2] add(" + "cp, " * (MB_50 // 4) + "cp)\n"), REFUSED),
    "instruction_text": (lambda: _with("  n = f32[2] " + "x" * MB_50 + "\n" + PERMUTE), UNREAD),
}


def _in_time(data: str | bytes, code: int, command: str = "rewrite", limit: int = TIME_LIMIT) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "hlo_cp2ag", command, "-"],
        input=data if isinstance(data, bytes) else data.encode(),
        capture_output=True,
        timeout=limit,
        env={name: value for name, value in os.environ.items() if not name.startswith("CP2AG_")},
    )
    stderr = process.stderr.decode()
    assert "Traceback" not in stderr
    assert process.returncode == code, stderr[:LONGEST_MESSAGE]
    assert len(stderr) <= LONGEST_MESSAGE
    if process.returncode == 2:
        assert process.stdout == b""
        assert stderr.startswith(("<stdin>:", "error:"))


@pytest.mark.parametrize("name", NESTED)
def test_deep_nesting(name: str) -> None:
    data, (code, _) = NESTED[name]
    _in_time(data, code)


@pytest.mark.parametrize("name", NESTED)
def test_deep_nesting_in_check(name: str) -> None:
    data, (_, code) = NESTED[name]
    _in_time(data, code, "check")


@pytest.mark.parametrize("name", SLOW)
def test_patterns_made_to_be_slow(name: str) -> None:
    data, (code, _) = SLOW[name]
    _in_time(data, code)


@pytest.mark.parametrize("name", SLOW)
def test_patterns_made_to_be_slow_in_check(name: str) -> None:
    data, (_, code) = SLOW[name]
    _in_time(data, code, "check")


@pytest.mark.parametrize("name", HUGE)
def test_a_line_of_50_mb(name: str) -> None:
    make, (code, _) = HUGE[name]
    _in_time(make(), code)


@pytest.mark.sweep
@pytest.mark.parametrize("name", SWEEP)
def test_more_lines_of_50_mb(name: str) -> None:
    make, (code, _) = SWEEP[name]
    _in_time(make(), code, limit=60)
