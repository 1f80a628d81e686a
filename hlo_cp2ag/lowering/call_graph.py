"""Who calls a computation, found by one search over the text and read only where somebody asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from hlo_cp2ag.ir.module import Computation, HloModule, Instruction
from hlo_cp2ag.lowering.sites import instruction_at

_REFERENCE = re.compile(
    r"(?<![\w.\-])(?:calls|to_apply|body|condition|select|scatter|true_computation|false_computation)=[ \t\r\n]*%?([A-Za-z_][\w.\-]*)"
    r"|(?<![\w.\-])(?:branch_computations|called_computations)=[ \t\r\n]*\{([^{}]*)\}"
)
_NAME = re.compile(r"[A-Za-z_][\w.\-]*")


class CallGraph:
    """The callers of each computation of one module."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._callers: dict[int, list[Instruction]] = {}
        self._all: dict[int, list[Instruction]] = {}

    @cached_property
    def _references(self) -> dict[str, list[int]]:
        """For each computation's name the places where an attribute names it."""
        found: dict[str, list[int]] = {}
        for match in _REFERENCE.finditer(self.module.text):
            if match.group(1) is not None:
                found.setdefault(match.group(1).rstrip(":"), []).append(match.start())
            else:
                for name in _NAME.findall(match.group(2)):
                    found.setdefault(name, []).append(match.start())
        return found

    def callers(self, computation: Computation) -> list[Instruction]:
        """The instructions that call a computation, in text order."""
        known = self._callers.get(id(computation))
        if known is None:
            if computation.is_inline:
                around = instruction_at(self.module, computation.span.start - 1)
                known = [around] if around is not None else []
            else:
                offsets = self._references.get(computation.name, ())
                found = [instruction_at(self.module, offset) for offset in offsets]
                known = [
                    caller
                    for caller, offset in zip(found, offsets, strict=True)
                    if caller is not None and any(a.span.start == offset for a in caller.body.attributes)
                ]
            self._callers[id(computation)] = known
        return known

    def all_callers(self, computation: Computation) -> list[Instruction]:
        """The callers, their computations' callers, and so on; each once."""
        known = self._all.get(id(computation))
        if known is None:
            known = self._all[id(computation)] = list(self._walk(computation))
        return known

    def _walk(self, computation: Computation) -> Iterator[Instruction]:
        seen = {id(computation)}
        pending = [computation]
        while pending:
            for caller in self.callers(pending.pop()):
                yield caller
                if id(caller.computation) not in seen:
                    seen.add(id(caller.computation))
                    pending.append(caller.computation)
