"""What has to be the same outside the sites besides the graph: headers, annotations, control predecessors, schedules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_cp2ag.ir.module import HloModule, Instruction
from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.verify.evaluation import is_collective
from hlo_cp2ag.verify.findings import Difference, SiteMatch
from hlo_cp2ag.verify.graph import ANNOTATIONS, ORDER
from hlo_cp2ag.verify.matching import Matching
from hlo_cp2ag.verify.side import Side

_BLANKS_AND_COMMENTS = re.compile(r"\s+|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/")


def header_differences(before: HloModule, after: HloModule, grid: ProcessGrid) -> list[Difference]:
    """Fields of the headers that are not the same. The module's name may differ, and counts are the grid's."""
    counts = {"replica_count": grid.replica_count, "num_partitions": grid.num_partitions}
    own, new = _fields(before), _fields(after)
    found = []
    for name in {**own, **new}:
        mine, theirs = own.get(name), new.get(name)
        if name in counts and theirs in (None, str(counts[name])):
            continue  # a flag may say otherwise than the first header; the second one has to fit
        if mine != theirs:
            if mine is None or theirs is None:
                text = f"the header of the {'first' if mine is None else 'second'} module has no {name}"
            else:
                text = f"the header says {name}={_short(theirs)}, not {_short(mine)}"
            found.append(Difference(text))
    return found


def _fields(module: HloModule) -> dict[str, str]:
    return {a.name: _BLANKS_AND_COMMENTS.sub("", a.value_text) for a in module.header_attributes}


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def annotation_differences(matching: Matching) -> Iterator[Difference]:
    """Metadata and control predecessors of counterparts that are not the same."""
    before, after = matching.before, matching.after
    members: dict[int, tuple[list[int], list[int]]] = {}
    for which, side in enumerate((before, after)):
        for place, number in enumerate(side.classes):
            if number is not None and place not in side.by_site:
                members.setdefault(number, ([], []))[which].append(place)
    for own, new in members.values():
        if not own or not new:
            continue
        for name in ANNOTATIONS:
            mine, theirs = (sorted({_text(s, p, name) for p in ps}) for s, ps in ((before, own), (after, new)))
            # A constant of the chain may be just like one that was there: it has no metadata of its own.
            if mine != theirs and mine != [text for text in theirs if text]:
                a, b = before.instruction(own[0]), after.instruction(new[0])
                yield Difference(f"{name} of {a.opcode} {a.name} differs", a, b, certain=False)
        waits = [sorted({_predecessors(s, p) for p in ps}) for s, ps in ((before, own), (after, new))]
        if waits[0] != waits[1]:
            a, b = before.instruction(own[0]), after.instruction(new[0])
            yield Difference(f"control predecessors of {a.opcode} {a.name} differ", a, b, certain=False)


def _text(side: Side, place: int, name: str) -> str:
    attribute = side.instruction(place).attribute_text(name)
    return "" if attribute is None else _BLANKS_AND_COMMENTS.sub(" ", attribute.value_text)


def _predecessors(side: Side, place: int) -> tuple[int, ...]:
    """The classes that an instruction waits for; -1 for one without counterpart."""
    return tuple(sorted(_waits_for(side, side.instruction(place))))


def _waits_for(side: Side, instruction: Instruction) -> set[int]:
    return {-1 if (found := side.classes[place]) is None else found for place in _control(side, instruction)}


def _control(side: Side, instruction: Instruction) -> list[int]:
    names = instruction.attribute(ORDER) if instruction.attribute_text(ORDER) is not None else None
    if names is None:
        return []
    found = []
    for name in names if isinstance(names, tuple) else (names,):
        target = side.computation.find(str(name).lstrip("%"))
        if target is None or id(target) not in side.place:
            raise instruction.error(f"undefined control predecessor {name!r}")
        found.append(side.place[id(target)])
    return found


def unordered_sites(matching: Matching, site: SiteMatch) -> str:
    """Why a site does not wait for what it had to wait for; nothing if it does."""
    before, after = matching.before, matching.after
    inside = {id(i) for i in site.before_region}
    wanted: set[int] = set()
    wanted_by_dones: set[int] = set()
    for instruction in site.before_region:
        for place in _control(before, instruction):
            if id(before.instruction(place)) not in inside:
                number = before.classes[place]
                if number is None:
                    return f"it waits for {before.instruction(place).name}, which has no counterpart"
                (wanted_by_dones if instruction.opcode.endswith("-done") else wanted).add(number)
    if not wanted and not wanted_by_dones:
        return ""
    starting = [i for i in site.after_region if is_collective(i.opcode)] or site.after_region[-1:]
    # What a done waits for need not hold up its start.
    dones = [i for i in site.after_region if i.opcode.endswith("-done")] or starting
    for instruction, asked in (*((i, wanted) for i in starting), *((i, wanted_by_dones) for i in dones)):
        missing = asked - _all_before(after, instruction)
        if missing:
            place = before.classes.index(missing.pop())
            return f"{instruction.opcode} {instruction.name} does not wait for {before.instruction(place).name}"
    return ""


def _all_before(side: Side, instruction: Instruction) -> set[int]:
    """The classes of everything that has to be done before an instruction."""
    start = side.place[id(instruction)]
    seen, stack = {start}, [start]
    while stack:
        place = stack.pop()
        for other in (*side.operands[place], *_control(side, side.instruction(place))):
            if other not in seen:
                seen.add(other)
                stack.append(other)
    seen.discard(start)
    return {number for place in seen if (number := side.classes[place]) is not None}


def effects_difference(matching: Matching) -> Difference | None:
    """The first instruction with a side effect that comes in another place among those that have one."""
    before, after = matching.before, matching.after
    own, new = ([p for p, has in enumerate(s.has_effect) if has and s.classes[p] is not None] for s in (before, after))
    for a, b in zip(own, new, strict=False):
        if before.classes[a] != after.classes[b]:
            first, second = before.instruction(a), after.instruction(b)
            text = f"{first.opcode} {first.name} has a side effect, and comes in another order"
            return Difference(text, first, second, certain=False)
    return None


def order_difference(matching: Matching) -> Difference | None:
    """In a scheduled module: the first untouched instruction that stands in another place among the others."""
    before, after = matching.before, matching.after
    sequence = [
        (place, number)
        for place, number in enumerate(before.classes)
        if number is not None and place not in before.by_site
    ]
    later = iter(enumerate(after.classes))
    for place, number in sequence:
        if not any(other == number for _, other in later):
            a = before.instruction(place)
            text = f"the schedule is another one: {a.opcode} {a.name} has moved"
            return Difference(text, a, None, certain=False)
    return None
