"""Who calls a computation: found by one search over the text, read only where somebody asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from hlo_cp2ag.ir.find import CALLING, instruction_at
from hlo_cp2ag.ir.module import Computation, HloModule, Instruction

_CALLING_KEY = re.compile(rf"(?:{'|'.join(CALLING)})=")
_CALLING_ATTRIBUTE = re.compile(rf", *({'|'.join(CALLING)})= *")
_OPAQUE = re.compile(r"[\"'/]|_config=|_attributes=")
"""Where strings, comments or dictionaries may begin, in which nothing is an attribute."""
_TOKEN = re.compile(
    r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|//[^\r\n]*|\"[^\"\\]*(?:\\[\s\S][^\"\\]*)*\""
    r"|(?P<brace>[{}])|%?(?P<name>[A-Za-z_][\w.\-]*)"
)


_LARGE = 1_000_000
"""From this many characters on, a pass for each attribute is too dear for text whose writing is known."""
_PERCENT_MENTION = re.compile(r"=%([A-Za-z_][\w.\-]*)")
_LIST_MENTION = re.compile(
    r"_computations=(?<=branch_computations=|called_computations=)(?:\{(%[A-Za-z_][\w.\-]*(?:, %[A-Za-z_][\w.\-]*)*)\})?"
)
"""A list of computations; its names, where it is written as XLA prints it. It begins with what can be searched for."""


class Call(NamedTuple):
    """One place where an instruction names a computation."""

    caller: Instruction
    attribute: str
    position: int
    """The branch of a conditional, else the place in a list."""
    computation: Computation


def _targets(text: str, start: int) -> Iterator[tuple[int, str]]:
    """What a value that begins at `start` calls, `%f` or `{%f, { ... }}`: names, and nothing for each opening brace.

    A brace may be that of the list or of a computation that is written out in place.
    """
    depth = 0
    for token in _TOKEN.finditer(text, start):
        name, brace = token.group("name", "brace")
        if name and depth <= 1:
            yield token.start(), name
        elif brace == "{":
            if depth <= 1:
                yield token.start(), ""
            depth += 1
        elif brace == "}":
            depth -= 1
        if depth <= 0 and (name or brace):
            return


def calling_attributes(instruction: Instruction) -> list[tuple[str, int]]:
    """The attributes that name computations, and where their values begin. Raises HloSyntaxError."""
    line = instruction.known_line
    if line is not None:
        attributes, start = line.attributes, line.end - len(line.attributes)
        opaque = _OPAQUE.search(attributes)
        behind = opaque.start() if opaque is not None else len(attributes)
        if _CALLING_KEY.search(attributes, behind) is None:
            return [(match[1], start + match.end()) for match in _CALLING_ATTRIBUTE.finditer(attributes, 0, behind)]
    return [(a.name, a.value_span.start) for a in instruction.body.attributes if a.name in CALLING]


class CallGraph:
    """Who calls whom: one scan of the text for all names, then only the instructions that are asked for are read."""

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._callers: dict[Computation, tuple[Call, ...]] = {}
        self._calls: dict[Instruction, tuple[Call, ...]] = {}
        self._all: dict[Computation, tuple[Instruction, ...]] = {}

    def calls(self, instruction: Instruction) -> tuple[Call, ...]:
        """The computations that an instruction names. Raises HloSyntaxError for one that is not there."""
        found = self._calls.get(instruction)
        if found is None:
            calls = []
            for attribute, start in calling_attributes(instruction):
                first = 1 if attribute == "false_computation" else 0
                for i, computation in enumerate(self._named(start)):
                    calls.append(Call(instruction, attribute, first + i, computation))
            found = self._calls[instruction] = tuple(calls)
        return found

    def called(self, instruction: Instruction, attribute: str) -> Computation:
        """The one computation that an attribute names. Raises HloSyntaxError if there is none."""
        for call in self.calls(instruction):
            if call.attribute == attribute:
                return call.computation
        raise instruction.error(f"{instruction.opcode} expects {attribute}=")

    def callers(self, computation: Computation) -> tuple[Call, ...]:
        """The calls of a computation in text order."""
        found = self._callers.get(computation)
        if found is None:
            found = self._callers[computation] = tuple(self._read_callers(computation))
        return found

    def _named(self, start: int) -> list[Computation]:
        """The computations that a value names."""
        found: list[Computation] = []
        for offset, name in _targets(self._module.text, start):
            computation = self._module.computation(name) if name else self._inline.get(offset)
            if computation is not None:
                found.append(computation)
            elif name:
                raise self._module.source.error(offset, f"undefined computation {name!r}")
            if offset == start and found:
                break
        return found

    def _read_callers(self, computation: Computation) -> Iterator[Call]:
        offsets = [computation.span.start] if computation.is_inline else self._places(computation.name)
        callers = dict.fromkeys(instruction_at(self._module, offset) for offset in sorted(offsets))
        for caller in callers:
            # async-update and async-done repeat what their async-start calls.
            if caller is not None and not caller.opcode.endswith(("-update", "-done")):
                yield from (call for call in self.calls(caller) if call.computation is computation)

    @cached_property
    def _inline(self) -> dict[int, Computation]:
        """The computations that are written out in place, by the offset of their brace."""
        return {c.span.start: c for c in self._module.inline_computations}

    def _places(self, name: str) -> list[int]:
        """The offsets where an attribute seems to name a computation; a string or a comment may look the same.

        Only a large text that XLA printed is taken at its word that each reference has a `%` behind its `=`.
        """
        if len(self._module.text) >= _LARGE and self._module.is_printed():
            return self._percent_mentions.get(name, [])
        return self._mentions.get(name, [])

    @cached_property
    def _percent_mentions(self) -> dict[str, list[int]]:
        """What XLA writes: `to_apply=%f`, `branch_computations={%f, %g}`. One pass that looks for `=%`."""
        text = self._module.text
        mentions: dict[str, list[int]] = {}
        for match in _PERCENT_MENTION.finditer(text):
            mentions.setdefault(match.group(1), []).append(match.start())
        for match in _LIST_MENTION.finditer(text):
            if match.group(1) is not None:
                for name in match.group(1).split(", "):
                    mentions.setdefault(name[1:], []).append(match.start())
            else:
                for offset, name in _targets(text, match.end()):
                    mentions.setdefault(name, []).append(offset)
        return mentions

    @cached_property
    def _mentions(self) -> dict[str, list[int]]:
        """The same in any writing: one pass for each attribute."""
        mentions: dict[str, list[int]] = {}
        for attribute in CALLING:
            self._add_mentions(mentions, attribute)
        return mentions

    def _add_mentions(self, mentions: dict[str, list[int]], attribute: str) -> None:
        text, key = self._module.text, attribute + "="
        at = text.find(key)
        while at >= 0:
            if not (text[at - 1].isalnum() or text[at - 1] in "_.-%"):
                for offset, name in _targets(text, at + len(key)):
                    mentions.setdefault(name, []).append(offset)
            at = text.find(key, at + len(key))

    def all_callers(self, computation: Computation) -> tuple[Instruction, ...]:
        """The callers, their computations' callers, and so on; each once."""
        known = self._all.get(computation)
        if known is None:
            known = self._all[computation] = tuple(self._walk(computation))
        return known

    def _walk(self, computation: Computation) -> Iterator[Instruction]:
        seen = {computation}
        pending = [computation]
        while pending:
            for call in self.callers(pending.pop()):
                yield call.caller
                if call.caller.computation not in seen:
                    seen.add(call.caller.computation)
                    pending.append(call.caller.computation)
