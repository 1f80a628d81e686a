"""A written chain with holes for its names: what is alike in thousands of places is emitted and printed once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

OPERAND = "\0operand\0"
"""The name of the one operand that comes from outside, while a template is made."""
CHANNEL = -1 - 2**62
"""The channel id while a template is made: a number that no module has."""

_HOLES = re.compile(rf"\0(\d+|operand)\0|({CHANNEL})")
_OPERAND_HOLE, _CHANNEL_HOLE = -1, -2


def name_hole(index: int) -> str:
    """The name of the new instruction of a number, while a template is made."""
    return f"\0{index}\0"


@dataclass(frozen=True, slots=True)
class _Text:
    """Text cut at its holes: every second piece is one, and `holes` says which."""

    pieces: tuple[str, ...]
    holes: tuple[int, ...]

    def fill(self, names: Sequence[str], operand: str, channel: str) -> str:
        pieces = list(self.pieces)
        place = 1
        for hole in self.holes:
            pieces[place] = names[hole] if hole >= 0 else operand if hole == _OPERAND_HOLE else channel
            place += 2
        return "".join(pieces)


@dataclass(frozen=True, slots=True)
class ChainTemplate:
    """The text of a chain, for any names, operand and channel id."""

    opcodes: tuple[str, ...]
    """Of its instructions in order; the last one takes the place of what is replaced."""
    before: _Text
    """All instructions but the last, each with the line end and the indentation behind it."""
    last: _Text

    @classmethod
    def of(cls, opcodes: Sequence[str], before: str, last: str) -> ChainTemplate:
        """The template of a chain written with `name_hole`s, `OPERAND` and `CHANNEL`."""
        return cls(tuple(opcodes), _cut(before), _cut(last))


def _cut(text: str) -> _Text:
    pieces: list[str] = []
    holes: list[int] = []
    position = 0
    for match in _HOLES.finditer(text):
        pieces += [text[position : match.start()], ""]
        name = match.group(1)
        holes.append(_CHANNEL_HOLE if name is None else _OPERAND_HOLE if name == "operand" else int(name))
        position = match.end()
    return _Text((*pieces, text[position:]), tuple(holes))
