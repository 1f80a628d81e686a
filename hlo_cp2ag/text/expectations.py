"""What the grammar expected, in the words of people who write HLO."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlo_cp2ag.ir.source import HloSyntaxError, SourceText

if TYPE_CHECKING:
    from lark.exceptions import UnexpectedInput

_CALL = re.compile(r"([A-Za-z][A-Za-z0-9_.\-]*)[ \t\r\n]*\(")
_KEY_AND_BLANK = re.compile(r"(?:[A-Za-z_][\w.\-]*[ \t\r\n]+)?=")
_WORDS = [
    ({"LITERAL"}, "a literal in parentheses"),
    ({"ARRAY_SHAPE", "OPCODE"}, "a shape and an opcode"),
    ({"OPCODE"}, "an opcode and its operands in parentheses"),
    ({"INT_LISTS"}, "a list of lists of integers such as {{0,1},{1,0}}"),
    ({"INT_LIST"}, "a list of integers such as {0,1}"),
    ({"SLICES"}, "slices such as {[0:4], [0:8:2]}"),
    ({"DIM_LABELS"}, "dimension labels such as b01f_01io->b01f"),
    ({"PADDING_CONFIG"}, "a padding such as 0_0x1_1"),
    ({"IOTA_DEVICES"}, "device groups such as {{0,1},{2,3}} or [2,2]<=[4]"),
    ({"BOOL"}, "true or false"),
    ({"FLOAT"}, "a number"),
    ({"STRING"}, "a string in quotes"),
    ({"WORD"}, "a word"),
    ({"UNKNOWN_KEY"}, "an attribute such as dimensions={0}"),
    ({"EQUAL"}, "= behind the instruction's name"),
    ({"PERCENT_NAME", "BARE_NAME"}, "a name"),
    ({"ASSIGNED_NAME"}, "an instruction: a name, a blank and ="),
    ({"INT"}, "an integer"),
    ({"ARRAY_SHAPE"}, "a shape"),
    ({"LPAR"}, "("),
    ({"RPAR"}, ") or a comma"),
    ({"RAW_CLOSE"}, "}"),
]


def syntax_error(source: SourceText, masked: str, base: int, error: UnexpectedInput) -> HloSyntaxError:
    """The exception to raise for one of Lark's; `masked` is the part of the text that begins at `base`."""
    at = error.pos_in_stream
    token = getattr(error, "token", None)
    ended = token is not None and token.type == "$END"
    if at is None or at < 0 or ended:
        at = len(masked.rstrip(" \t\r\n"))
    expected = set(
        getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", ()) or ()
    )
    call = _CALL.match(masked, at)
    if call is not None and "OPCODE" in expected:
        return source.error(base + at, f"unknown opcode {call.group(1)!r}", hint=_opcode_hint(call.group(1)))
    wanted = next((words for terminals, words in _WORDS if terminals <= expected), "")
    found = "the end of the text" if ended and base + len(masked) >= len(source.text) else _found(masked, at)
    message = f"expects {wanted}, but sees {found}" if wanted else f"cannot read this: {found}"
    hint = _hint(masked, at, expected)
    if not hint and base == 0 and "HloModule" not in masked:
        hint = "HLO text begins with HloModule, or is one instruction such as f32[2] negate(f32[2])"
        if masked.lstrip().startswith(("module @", "module {", "module attributes", "#loc", "func.func")):
            hint = "this looks like MLIR; XLA's tools turn StableHLO into HLO text"
    return source.error(base + at, message, hint=hint)


def _found(masked: str, at: int) -> str:
    if at >= len(masked.rstrip(" \t\r\n")):
        return "the end of the instruction"
    word = masked[at : at + 40].split()
    if not word:
        return "a blank"
    text = word[0]
    for i, character in enumerate(text):
        if i and character in ",(){}[]=\"'":
            text = text[:i]
            break
    return repr(text[:24] + ("..." if len(text) > 24 else ""))


def _opcode_hint(word: str) -> str:
    import difflib

    from hlo_cp2ag.text.opcodes import OPCODES

    close = difflib.get_close_matches(word.lower().replace("_", "-"), OPCODES, 1, 0.75)
    return f"did you mean {close[0]!r}?" if close else ""


def _hint(masked: str, at: int, expected: set[str]) -> str:
    if "UNKNOWN_KEY" in expected and _KEY_AND_BLANK.match(masked, at):
        return "XLA allows no blank before an attribute's ="
    if "COMMA" in expected and masked[at : at + 1].isalpha() and "OPCODE" not in expected:
        return "is a comma missing before it?"
    return ""
