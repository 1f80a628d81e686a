"""Reading the value of an attribute: from its text to plain Python values and the dataclasses of ir/attributes.py.

`parse_attribute_value` accepts and refuses what XLA's parser accepts and refuses. Which syntax an attribute's value has
is said in opcodes.py. What is short is remembered by its text; lists of integers of any length go through regular
expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from hlo_cp2ag.ir.device_groups import ReplicaGroupList
from hlo_cp2ag.text import opcodes
from hlo_cp2ag.text.value_reader import Reader, ValueTextError, unquote, wrap_int64

__all__ = ["ValueTextError", "parse_attribute_value", "unquote"]

_LONGEST_REMEMBERED = 1 << 10


def parse_attribute_value(name: str, text: str, opcode: str = "") -> object:
    """The value of the attribute `name`, whose text is `text`, comments blanked; blanks around it do not count.

    `opcode` matters where one name has two syntaxes: `slice_sizes`, `algorithm`. Raises ValueTextError, whose offset
    points into `text`, for what XLA's parser refuses.

    The result by syntax: `bool`, `int`, `float`, `str` (strings without quotes and escapes, names without %, words;
    `backend_config={...}` as it stands), tuples of `int`, `bool` or `str`, tuples of tuples, `Shape` and tuples of
    them, `dict[str, str]` for frontend_attributes, and the dataclasses of ir/attributes.py. What is XLA's own text for
    nothing else (`origin`, `origin_recovery_table`, `sparsity_config`) stays text.
    """
    if len(text) <= _LONGEST_REMEMBERED:
        return _remembered(name, text, opcode if name in ("slice_sizes", "algorithm") else "")
    return _parse(name, text, opcode)


@lru_cache(maxsize=1 << 15)
def _remembered(name: str, text: str, opcode: str) -> object:
    return _parse(name, text, opcode)


def _parse(name: str, text: str, opcode: str) -> object:
    if name == "source_target_pairs":
        return parse_pairs(text)
    kind = value_kind(name, opcode)
    fast = _FAST.get(kind)
    if fast is not None:
        return fast(text)
    return _structured(kind, text)


def _structured(kind: str, text: str) -> object:
    # Most programs that read values never come here, and do without these classes.
    from hlo_cp2ag.text.structured_values import STRUCTURED, WORDS

    reader = Reader(text)
    words = WORDS.get(kind)
    try:
        value = words.read(reader) if words is not None else STRUCTURED[kind](reader)
    except RecursionError:  # XLA goes deeper, some thousand levels
        raise ValueTextError("nested too deeply", reader.start) from None
    reader.finish()
    return value


def value_kind(name: str, opcode: str = "") -> str:
    """The syntax of an attribute's value, one of the names of opcodes.AttributeKind."""
    kind = opcodes.attribute_kind(opcode, name) if opcode else None
    kind = kind or opcodes.ATTRIBUTE_KINDS.get(name) or opcodes.MODULE_ATTRIBUTES.get(name)
    kind = kind or opcodes.COMPUTATION_ATTRIBUTES.get(name)
    if kind is None:
        raise ValueTextError(f"unknown attribute {name!r}", 0)
    return kind


# ---- what occurs by the thousand -------------------------------------------------------------------------------------

_BLANKS = " \t\r\n"
_B = r"[ \t\r\n]*"
_INTS = rf"\{{{_B}(?:-?\d+{_B}(?:,{_B}-?\d+{_B})*)?\}}"
_PAIR = rf"\{{{_B}-?\d+{_B},{_B}-?\d+{_B}\}}"
_INT_TEXT = re.compile(r"-?\d+", re.ASCII)
_NAME_TEXT = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.\-]*)(:?)", re.ASCII)
_INT_LIST = re.compile(_INTS, re.ASCII)
_INT_LIST_LIST = re.compile(rf"\{{{_B}(?:{_INTS}{_B}(?:,{_B}{_INTS}{_B})*)?\}}", re.ASCII)
_PAIRS = re.compile(rf"\{{{_B}(?:{_PAIR}{_B}(?:,{_B}{_PAIR}{_B})*)?\}}", re.ASCII)


def _integer(text: str) -> int:
    stripped = text.strip(_BLANKS)
    if not _INT_TEXT.fullmatch(stripped):
        raise ValueTextError("expects an integer", _first(text))
    return wrap_int64(stripped, _first(text))


def _integer32(text: str) -> int:
    value = _integer(text)
    if not -1 << 31 <= value < 1 << 31:
        raise ValueTextError("an integer past 32 bits", _first(text))
    return value


def _boolean(text: str) -> bool:
    stripped = text.strip(_BLANKS)
    if stripped not in ("true", "false"):
        raise ValueTextError("expects true or false", _first(text))
    return stripped == "true"


def _string(text: str) -> str:
    try:
        return unquote(text)
    except ValueTextError as error:
        raise ValueTextError(error.message, _first(text)) from None


def _name(text: str) -> str:
    """A computation's name; an inline computation is no value, and not read here."""
    stripped = text.strip(_BLANKS)
    match = _NAME_TEXT.fullmatch(stripped)
    if match is None or (match[2] and stripped[0] == "%"):
        raise ValueTextError("expects a name", _first(text))
    name = match[1]
    if stripped[0] != "%" and not match[2] and (name in opcodes.KEYWORDS or name in opcodes.PRIMITIVE_TYPES):
        raise ValueTextError(f"{name!r} is no name without a %", _first(text))
    return name


def _first(text: str) -> int:
    return len(text) - len(text.lstrip(_BLANKS))


def _ints(text: str, start: int, end: int) -> list[int]:
    """The integers in a part of a text that has nothing else but marks and blanks."""
    try:
        values = list(map(int, _INT_TEXT.findall(text, start, end)))
    except ValueError:  # more digits than Python takes at once
        values = [1 << 64]
    if values and not (max(values) < 1 << 63 and min(values) >= -1 << 63):
        return [wrap_int64(match[0], match.start()) for match in _INT_TEXT.finditer(text, start, end)]
    return values


def _int_list(text: str) -> tuple[int, ...]:
    if not _INT_LIST.fullmatch(text.strip(_BLANKS)):
        reader = Reader(text)
        reader.integers()
        reader.finish()
        raise ValueTextError("expects a list of integers", _first(text))
    return tuple(_ints(text, 0, len(text)))


def _int_list_list(text: str) -> tuple[tuple[int, ...], ...]:
    if not _INT_LIST_LIST.fullmatch(text.strip(_BLANKS)):
        reader = Reader(text)
        reader.items("{", "}", reader.integers)
        reader.finish()
        raise ValueTextError("expects a list of lists of integers", _first(text))
    lists = []
    start = text.index("{") + 1
    end = text.find("}", start)
    last = text.rindex("}")
    while 0 <= end < last:
        lists.append(tuple(_ints(text, start, end)))
        start, end = end, text.find("}", end + 1)
    return tuple(lists)


_MARKS_OF_PAIRS = bytes(c if c in b"{}," else ord(" ") if c in b" \t\r\n" else ord("v") for c in range(256))


def _many_pairs(text: str) -> tuple[tuple[int, int], ...] | None:
    """The pairs of a long list, cut by translation tables; None if something in it is unusual."""
    if not text.isascii():
        return None
    raw = text.encode("ascii")
    classes = raw.translate(_MARKS_OF_PAIRS)
    while b"  " in classes:
        classes = classes.replace(b"  ", b" ")
    marks = classes.translate(None, b" ")
    if b"v v" in classes or b"v{" in marks or b"}v" in marks or raw.translate(None, b"0123456789-{}, \t\r\n"):
        return None
    if marks.translate(None, b"v") != b"{" + b",".join([b"{,}"] * (marks.count(b"{") - 1)) + b"}":
        return None
    try:
        values = list(map(int, raw.translate(None, b" \t\r\n{}").split(b",")))
    except ValueError:
        return None
    if not -1 << 63 <= min(values) <= max(values) < 1 << 63:
        return None
    return tuple(zip(values[::2], values[1::2], strict=True))


def parse_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """The pairs of a collective-permute: `{{0,1},{1,0}}`."""
    pairs = _many_pairs(text) if len(text) > _LONGEST_REMEMBERED else None
    if pairs is not None:
        return pairs
    if not _PAIRS.fullmatch(text.strip(_BLANKS)):
        reader = Reader(text)
        reader.expect("{", "expects {{source,target},...}")
        while reader.kind != "}":
            start = reader.start
            if len(reader.integers()) != 2:
                reader.fail("expects pairs {source,target}", start)
            if not reader.eat(","):
                break
            if reader.kind == "}":
                reader.fail("expects another pair after the comma")
        reader.expect("}", "expects , or }")
        reader.finish()
        raise ValueTextError("expects pairs {source,target}", _first(text))
    values = _ints(text, 0, len(text))
    return tuple(zip(values[::2], values[1::2], strict=True))


def _device_list(text: str) -> object:
    if _INT_LIST_LIST.fullmatch(text.strip(_BLANKS)):
        return ReplicaGroupList(_int_list_list(text))
    return _structured("device_list", text)


_FAST: dict[str, Callable[[str], object]] = {
    "bool": _boolean,
    "int64": _integer,
    "int32": _integer32,
    "string": _string,
    "computation": _name,
    "int_list": _int_list,
    "int_list_list": _int_list_list,
    "device_list": _device_list,
}
