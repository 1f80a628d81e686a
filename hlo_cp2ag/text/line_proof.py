"""The proof that each line of a text holds one whole instruction, in a few passes at C speed.

What could hide or make structure (strings, comments, raw dictionaries) is taken out or refused; of the rest only brackets,
`%`, `=` and line ends are kept, and brackets that match on their line cancel. What is left says where lines do not stand by
themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from hlo_cp2ag.text import side_process

LINE_HEADS = re.compile(r"\n +(?:ROOT )?%?([A-Za-z0-9_.\-]+) = ")
"""A head with any other name is none, and the `=` behind it one that stands where it should not."""
# A raw dictionary on one line, strings emptied: what it holds is no structure, though it may look like an assignment.
_RAW_CONFIG = re.compile(
    r"backend_config=\{[^{}\n]*(?:\{[^{}\n]*(?:\{[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*)*\}[^{}\n]*)*\}[^{}\n]*)*\}"
)
_ESCAPES_NO_QUOTE = re.compile(rb"\\[^\"']")
_FLAT_CONFIG = re.compile(r"backend_config=\{[^{}\"\n]*\}")
_STRUCTURE = b"{}()[]%=,\"'/*\r\t\n"
_NOT_STRUCTURE = bytes(c for c in range(256) if c not in _STRUCTURE)
_MOST_PASSES = 64
_PIECE = 100_000
_CLOSED_BY = dict(zip(b"([{", b")]}", strict=True))
_NOT_STRUCTURE_OR_BACKSLASH = _NOT_STRUCTURE.replace(b"\\", b"")
_NOT_BRACKETS_AT_ALL = bytes(c for c in range(256) if c not in b"{}()[]")
_NOT_BRACKETS_OR_LINES = bytes(c for c in range(256) if c not in b"{}()[]\n")


@dataclass
class LineProof:
    """What is certain of a text in which every name that is assigned anywhere is the head of its line."""

    names: list[str]
    """The names in text order."""
    all_have_percent: bool
    """Whether each of them stands behind a `%`."""
    brackets: bytes
    """The brackets that no neighbour on their line closes, and every line end."""


def prove_lines(
    text: str, data: bytes, start: int = 0, meanwhile: Callable[[list[str]], object] | None = None
) -> LineProof | None:
    """The proof for a text from the line end at `start` on; `data` is the same text, one byte a character.

    None unless it is certain that no string and no comment hides or makes structure. `meanwhile` is other work on the
    same text and the names in it, done while a second process is busy with the proof.
    """
    structure = side_process.start(lambda: _structure(text, data, start), len(data))
    names = LINE_HEADS.findall(text, start)
    if meanwhile is not None:
        meanwhile(names)
    found = structure()
    if not found:
        return None
    percent, assigned = int.from_bytes(found[:8], "little"), int.from_bytes(found[8:16], "little")
    if assigned != len(names) and _assigned_outside(text, start) != len(names):
        return None
    return LineProof(names, percent == len(names), found[16:])


def _structure(text: str, data: bytes, start: int) -> bytes:
    """How many names with `%` are assigned (8 bytes), how many names at most (8 bytes), and the brackets of a `LineProof`.

    Nothing if they are not certain. With a `start` the first line is a module's header, which may hold anything and is
    read on its own.
    """
    kept = _NOT_STRUCTURE
    if b"\\" in data:
        if _ESCAPES_NO_QUOTE.search(data) is None:
            # Each one escapes a quote: that can be seen in what is left, a tenth of the text.
            kept = _NOT_STRUCTURE_OR_BACKSLASH
        else:
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = data.translate(None, kept)
    if kept is _NOT_STRUCTURE_OR_BACKSLASH:
        structure = structure.replace(b'\\"', b"").replace(b"\\'", b"")
    if start > 0:
        structure = structure[structure.index(b"\n") :]
    found = _without_strings(structure)
    if found is None:
        return b""
    percent = found.count(b"%=")
    if percent != found.count(b"\n%="):
        return b""
    # An `=` with a blank before it assigns, unless it stands in a string or a raw dictionary.
    assigned = text.count(" =", start)
    if assigned != percent:
        assigned -= sum(raw.count(" =") for raw in _FLAT_CONFIG.findall(text, start))
    numbers = percent.to_bytes(8, "little") + assigned.to_bytes(8, "little")
    return numbers + _reduce(found.translate(None, _NOT_BRACKETS_OR_LINES))


def _without_strings(structure: bytes) -> bytes | None:
    """Structure characters without those in double-quoted strings, and without index comments.

    By induction from the left: as long as no comment opener and no single quote stands outside of strings, each double
    quote opens or closes a string. None if a string holds a line end, or a comment holds anything but a word or a number,
    or anything else could hide structure.
    """
    if b"\r" in structure or b"\t" in structure:
        return None
    if b'"' in structure:
        # Some lines at a time: a hundred thousand small pieces take many times the room of what they hold.
        parts: list[bytes] = []
        start = 0
        while start < len(structure):
            end = structure.find(b"\n", start + _PIECE)
            end = len(structure) if end < 0 else end
            pieces = structure[start:end].split(b'"')
            if len(pieces) % 2 == 0 or b"\n" in b"".join(pieces[1::2]):
                return None
            # A quote stays where a string was, so that nothing on its two sides seems to be neighbours.
            parts.append(b'"'.join(pieces[::2]))
            start = end
        structure = b"".join(parts)
    if b"/" in structure:
        structure = structure.replace(b"/*=*/", b"")
        if b"/" in structure:
            structure = structure.replace(b"/**/", b"")
            if b"/" in structure:
                return None
    if b"'" in structure:
        structure = structure.replace(b"''", b"")  # mesh axes: 'x'
        if b"'" in structure:
            return None
    return structure


def _assigned_outside(text: str, start: int) -> int:
    """How many times an `=` with a blank before it stands outside of strings and raw dictionaries."""
    text = text[start:].replace("\\\\", "").replace('\\"', "")
    return _RAW_CONFIG.sub("", '""'.join(text.split('"')[::2])).count(" =")


def lines_are_certain(masked_body: str) -> bool:
    """Whether each line of a masked body, which begins and ends with a line end, holds one whole instruction."""
    if not masked_body.startswith("\n") or not masked_body.rstrip(" ").endswith("\n"):
        return False
    proof = prove_lines(masked_body, masked_body.encode("latin-1", "replace"))
    return (
        proof is not None
        and not proof.brackets.strip(b"\n")
        and len(proof.names) == len(proof.brackets) - 1
        and len(proof.names) > 0
    )


def _reduce(brackets: bytes) -> bytes:
    """What is left of a run of brackets when matching neighbours cancel; a newline between them keeps them apart."""
    for _ in range(_MOST_PASSES):
        length = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"").replace(b"()", b"")
        if length == len(brackets):
            return brackets
    # Nested so deep that passes over the whole would take too long.
    left = bytearray()
    for bracket in brackets:
        if left and _CLOSED_BY.get(left[-1]) == bracket:
            left.pop()
        else:
            left.append(bracket)
    return bytes(left)


def bracket_balance_by_line(masked: str) -> list[int]:
    """For each line, how many brackets it opens more than it closes; brackets of a kind that do not match count too."""
    brackets = _reduce(masked.encode("latin-1", "replace").translate(None, _NOT_BRACKETS_OR_LINES)).split(b"\n")
    return [len(b) and sum(1 if c in b"([{" else -1 for c in b) for b in brackets]


def is_balanced(masked: str) -> bool:
    """Whether each bracket of a masked text is closed by one of its kind."""
    return not _reduce(masked.encode("latin-1", "replace").translate(None, _NOT_BRACKETS_AT_ALL))
