"""JSON files: read with the places of syntax errors, and values in them found again by their paths."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from hlo_cp2ag.cli import files
from hlo_cp2ag.ir.source import SourceText

_BLANK = re.compile(r"[ \t\r\n]*")
_INNER_LIST = re.compile(r"\[\n\s+(-?\d+(?:,\n\s+-?\d+)*)\n\s+\]")


def read_json(path: str) -> tuple[SourceText, Any]:
    """The text of a JSON file and what it says. Raises HloError, with the place, if it is none."""
    return parse_json(files.decode(files.read_bytes(path), path), path)


def parse_json(text: str, path: str) -> tuple[SourceText, Any]:
    """The same of a text that was read already."""
    source = SourceText(text, files.shown(path))
    try:
        return source, json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_number)
    except _NotJson as error:
        raise source.error(max(0, text.rfind(error.word)), str(error)) from None
    except RecursionError:
        raise source.error(0, "it nests too deeply") from None
    except json.JSONDecodeError as error:
        message = "no JSON here: the text is empty" if not text.strip() else f"this is no JSON: {error.msg}"
        raise source.error(error.pos, message) from None
    except ValueError:  # Python reads no number of thousands of digits
        raise source.error(0, "some number in it has too many digits") from None


class _NotJson(Exception):  # noqa: N818
    """What Python's reader lets pass."""

    def __init__(self, message: str, word: str) -> None:
        super().__init__(message)
        self.word = word


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _NotJson(f"the key {key!r} is given twice", json.dumps(key))
        found[key] = value
    return found


def _no_number(word: str) -> Any:
    raise _NotJson(f"this is no JSON: {word} is no number", word)


def place(text: str, path: Sequence[str | int]) -> int:
    """The offset at which the value stands to which `path` (keys, places in lists) leads, as far as it leads.

    `text` is JSON without repeated keys.
    """
    at = _skip(text, 0)
    for step in path:
        found = _item(text, at, step) if text[at : at + 1] == "[" else _value(text, at, step)
        if found is None:
            break
        at = found
    return at


def to_json(value: object) -> str:
    """JSON with two blanks of indentation, lists of integers on one line, and a final newline."""
    text = json.dumps(value, indent=2)
    return _INNER_LIST.sub(lambda match: "[" + re.sub(r"\n\s+", " ", match[1]) + "]", text) + "\n"


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def _end(text: str, at: int) -> int:
    """Where the value that begins at `at` ends."""
    return json.JSONDecoder().raw_decode(text, at)[1]


def _item(text: str, at: int, index: str | int) -> int | None:
    """Where an item of the list at `at` begins."""
    at = _skip(text, at + 1)
    number = 0
    while text[at : at + 1] not in ("]", ""):
        if number == index:
            return at
        at = _skip(text, _end(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)
        number += 1
    return None


def _value(text: str, at: int, key: str | int) -> int | None:
    """Where the value of a key of the object at `at` begins."""
    if text[at : at + 1] != "{":
        return None
    at = _skip(text, at + 1)
    found = None
    while text[at : at + 1] not in ("}", ""):
        name, end = scanstring(text, at + 1)
        at = _skip(text, _skip(text, end) + 1)
        if name == key:
            found = at
        at = _skip(text, _end(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found
