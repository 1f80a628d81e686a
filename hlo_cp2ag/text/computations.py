"""A module's computations, made when somebody asks for one: a dump of 40 MB has 100,000 of them."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

from hlo_cp2ag.ir.module import Computation, HloModule
from hlo_cp2ag.text.outline import CertainComputations, ComputationOutline


def computation_of(module: HloModule, index: int, found: ComputationOutline) -> Computation:
    """The computation of an outline."""
    return Computation(
        module,
        index,
        found.name,
        found.name_span,
        found.is_entry_marked,
        found.span,
        found.body_span,
        found.parameters_span,
        found.attributes_span,
        is_inline=found.is_inline,
        certain_lines=found.certain_lines,
    )


class LazyComputations(Sequence[Computation]):
    """The computations of a text whose lines are certain."""

    def __init__(self, module: HloModule, outlines: CertainComputations) -> None:
        self.outlines = outlines
        self._module = module
        self._made: dict[int, Computation] = {}

    def __len__(self) -> int:
        return len(self.outlines)

    @overload
    def __getitem__(self, index: int) -> Computation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Computation]: ...
    def __getitem__(self, index: int | slice) -> Computation | list[Computation]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        made = self._made.get(index)
        if made is None:
            made = self._made[index] = computation_of(self._module, index, self.outlines[index])
        return made

    def __iter__(self) -> Iterator[Computation]:
        return (self[i] for i in range(len(self)))

    def are_distinct(self) -> bool:
        """Whether no name and no ENTRY stands twice."""
        names = self.outlines.names()
        return len(set(names)) == len(names) and len(self.outlines.entry_marks()) <= 1


class LazyIndex:
    """Finds computations by name and place without making the others."""

    def __init__(self, computations: LazyComputations) -> None:
        self._computations = computations

    @cached_property
    def _numbers(self) -> dict[str, int]:
        names = self._computations.outlines.names()
        return dict(zip(names, range(len(names)), strict=True))

    def find(self, name: str) -> Computation | None:
        """The computation of a name, if there is one."""
        number = self._numbers.get(name)
        return None if number is None else self._computations[number]

    def at(self, offset: int) -> Computation | None:
        """The computation whose body holds a place of the text."""
        number = self._computations.outlines.index_at(offset)
        if number >= len(self._computations):
            return None
        computation = self._computations[number]
        return computation if computation.body_span.start <= offset < computation.body_span.end else None

    def entry(self) -> Computation:
        """The computation marked ENTRY, else the last one."""
        marks = self._computations.outlines.entry_marks()
        return self._computations[marks[0] if marks else -1]

    def inline(self) -> list[Computation]:
        """None: where lines are certain, nothing is written out inside an instruction."""
        return []

    def is_printed(self) -> bool:
        """Whether every name has a `%`."""
        return self._computations.outlines.all_names_have_percent

    def parameter_texts(self) -> list[str]:
        """What the headers say of parameters and results."""
        return self._computations.outlines.parameter_texts()


class ListIndex:
    """Finds computations that are all made, those written out inside an instruction among them."""

    def __init__(self, module: HloModule, computations: list[Computation]) -> None:
        self._module = module
        self._outer = [c for c in computations if not c.is_inline]
        self._inline = [c for c in computations if c.is_inline]
        self._by_name = {c.name: c for c in self._outer}

    def find(self, name: str) -> Computation | None:
        """The computation of a name, if there is one; those written out inside an instruction have none."""
        return self._by_name.get(name)

    def at(self, offset: int) -> Computation | None:
        """The innermost computation whose body holds a place of the text."""
        number = bisect.bisect_right(self._outer, offset, key=lambda c: c.body_span.start) - 1
        if number < 0 or offset >= self._outer[number].body_span.end:
            return None
        inside = [c for c in self._inline if c.body_span.start <= offset < c.body_span.end]
        return min(inside, key=lambda c: c.body_span.end - c.body_span.start) if inside else self._outer[number]

    def entry(self) -> Computation:
        """The computation marked ENTRY, else the last one."""
        return next((c for c in self._outer if c.is_entry_marked), self._outer[-1])

    def inline(self) -> list[Computation]:
        """The computations that are written out inside an instruction, inner ones first."""
        return self._inline

    def is_printed(self) -> bool:
        """Not certain of a text that had to be scanned."""
        return False

    def parameter_texts(self) -> list[str]:
        """What the headers say of parameters and results."""
        text = self._module.text
        spans = [c.parameters_span for c in self._outer if c.parameters_span is not None]
        return [text[span.start : span.end] for span in spans]
