"""What the grammar expected, in the words of people who write HLO."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlo_cp2ag.ir.source import HloSyntaxError, SourceText
from hlo_cp2ag.text.opcodes import OPCODES, PRIMITIVE_TYPES, split_opcode

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
        return source.error(base + at, f"unknown opcode {call.group(1)!r}", hint=opcode_hint(call.group(1)))
    unknown = _unknown_around(masked, at)
    if unknown is not None:
        return source.error(base + unknown.start(1), f"unknown opcode {unknown[1]!r}", hint=opcode_hint(unknown[1]))
    named = _ELEMENTS.match(masked, at)
    if named is not None and named[1].lower() in PRIMITIVE_TYPES and named[1] not in PRIMITIVE_TYPES:
        return source.error(base + at, f"unknown element type {named[1]!r}", hint=element_type_hint(named[1]))
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


def _unknown_around(masked: str, at: int) -> re.Match[str] | None:
    """The word before the parentheses that hold a place of an instruction, if it stands for an opcode and is none."""
    depth, start = 0, max(0, at - _LONGEST_LOOK_BACK)
    for position in range(at - 1, start - 1, -1):
        if masked[position] == ")":
            depth += 1
        elif masked[position] == "(" and depth:
            depth -= 1
        elif masked[position] == "(":
            line = max(start, masked.rfind("\n", start, position) + 1)
            word = _BEHIND_SHAPE.search(masked, line, position)
            if word is not None:
                return None if split_opcode(word[1]) is not None else word
    return None


_LONGEST_LOOK_BACK = 1000
_BEHIND_SHAPE = re.compile(r"=(?:[^=]*[\]})])?[ \t]*\b([A-Za-z][A-Za-z0-9_\-]*)[ \t]*\Z")
"""An opcode's place: behind a name's `=`, and behind a shape if there is one."""
_ELEMENTS = re.compile(r"([A-Za-z][A-Za-z0-9]{0,30})\[")
_OTHER_NAMES = {
    **{f"i{bits}": f"s{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"int{bits}": f"s{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"{name}{bits}": f"u{bits}" for name in ("ui", "uint") for bits in (2, 4, 8, 16, 32, 64)},
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    "bool": "pred",
    "i1": "pred",
    "bfloat16": "bf16",
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "int": "s32",
    "complex64": "c64",
    "complex128": "c128",
}
"""Element types as other languages call them."""


def element_type_hint(word: str) -> str:
    """Which element type was probably meant."""
    import difflib

    low = word.lower()
    if low in PRIMITIVE_TYPES or low in _OTHER_NAMES:
        return f"did you mean {_OTHER_NAMES.get(low, low)!r}?"
    turned = [known for known in PRIMITIVE_TYPES if sorted(known) == sorted(low)]  # f23
    close = turned or difflib.get_close_matches(low, PRIMITIVE_TYPES, 1, 0.75)
    return f"did you mean {close[0]!r}?" if close else ""


def opcode_hint(word: str) -> str:
    """Which opcode was probably meant."""
    import difflib

    close = difflib.get_close_matches(word.lower().replace("_", "-"), OPCODES, 1, 0.75)
    return f"did you mean {close[0]!r}?" if close else ""


def _hint(masked: str, at: int, expected: set[str]) -> str:
    if "UNKNOWN_KEY" in expected and _KEY_AND_BLANK.match(masked, at):
        return "XLA allows no blank before an attribute's ="
    if "COMMA" in expected and masked[at : at + 1].isalpha() and "OPCODE" not in expected:
        return "is a comma missing before it?"
    return ""
