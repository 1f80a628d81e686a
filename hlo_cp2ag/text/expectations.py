"""What the grammar expected, in the words of people who write HLO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_cp2ag.ir.source import HloSyntaxError, SourceText

if TYPE_CHECKING:
    from lark.exceptions import UnexpectedInput

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
    wanted = next((words for terminals, words in _WORDS if terminals <= expected), "")
    found = "the end of the text" if ended and base + len(masked) >= len(source.text) else _found(masked, at)
    message = f"expects {wanted}, but sees {found}" if wanted else f"cannot read this: {found}"
    return source.error(base + at, message, hint=_hint(masked, at, expected))


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


def _hint(masked: str, at: int, expected: set[str]) -> str:
    if masked.startswith("=", at) and "ASSIGNED_NAME" not in expected and "UNKNOWN_KEY" in expected:
        return "XLA allows no blank before an attribute's ="
    if "COMMA" in expected and masked[at : at + 1].isalpha() and "OPCODE" not in expected:
        return "is a comma missing before it?"
    return ""
