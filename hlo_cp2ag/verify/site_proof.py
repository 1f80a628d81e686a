"""From a matched site to its verdict: what it leans on, or the smallest case in which it is wrong."""

from __future__ import annotations

import math
from typing import cast

from hlo_cp2ag.executor.interpreter import Execution
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import ArrayShape, TupleShape
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.lowering.uniformity import Arrival
from hlo_cp2ag.verify.bits import pattern_of
from hlo_cp2ag.verify.comparison import Disagreement
from hlo_cp2ag.verify.conditions import changed_layouts, conditions, needs_all
from hlo_cp2ag.verify.findings import SiteMatch
from hlo_cp2ag.verify.matching import Matching
from hlo_cp2ag.verify.report import Counterexample, Place, SiteVerdict
from hlo_cp2ag.verify.untouched import unordered_sites

Pairs = tuple[tuple[int, int], ...]


def place_of(instruction: Instruction) -> Place:
    """An instruction for people."""
    position = instruction.module.source.position(instruction.span.start)
    return Place(instruction.computation.name, instruction.name, instruction.opcode, position.line, position.column)


def site_verdict(
    matching: Matching,
    site: SiteMatch,
    arrival: Arrival,
    present: Array | None,
    before: Execution,
    after: Execution,
    ignore_nan_payload: bool,
    is_scheduled: bool,
) -> SiteVerdict:
    """The verdict on one site of two matched computations; `present` are the devices that may come there, None for all.

    `is_scheduled` says that the module is, so that no layout pass follows.
    """
    own = place_of(site.before)
    new = None if site.after is None else place_of(site.after)
    pairs = _pairs(site)

    def verdict(outcome: str, reason: str = "", **more: object) -> SiteVerdict:
        return SiteVerdict(own, new, pairs, outcome, reason, seconds=site.seconds, **more)  # type: ignore[arg-type]

    if site.why:
        return verdict("not shown", site.why)
    found = site.disagreement
    if found is not None and not found.refuted:
        return verdict("not shown", _explained(found.why))
    if found is not None:
        example = _counterexample(matching, site, found)
        return verdict("failed", _what_is_wrong(matching, found), counterexample=example)
    reason = unordered_sites(matching, site)
    if reason:
        return verdict("not shown", reason)
    try:
        # Compared on some devices alone, since the others never come, it cannot lean on all of them coming.
        if matching.lanes is not None and needs_all(site, arrival, before, after):
            return verdict("not shown", f"not all devices enter {site.before.computation.name}: {arrival.reason}")
        changed = next(changed_layouts(site, before, after), "") if is_scheduled else ""
        if changed:
            return verdict("not shown", f"{changed}, and no layout pass follows in a scheduled module")
        leans_on = tuple(conditions(site, arrival, present, before, after))
    except HloError as error:
        return verdict("not shown", str(error))
    if site.lost_payload and not ignore_nan_payload:
        reason = "shown except NaN payloads: floats are widened and narrowed (--ignore-nan-payload accepts that)"
        return verdict("not shown", reason, conditions=leans_on)
    return verdict("shown", conditions=leans_on)


def _pairs(site: SiteMatch) -> Pairs | None:
    for region in (site.before_region, site.after_region):
        for instruction in reversed(region):
            if instruction.attribute_text("source_target_pairs") is not None:
                return cast(Pairs, instruction.attribute("source_target_pairs"))
    return None


def _explained(why: str) -> str:
    return why or "its value is not traced"


def _counterexample(matching: Matching, site: SiteMatch, found: Disagreement) -> Counterexample:
    return Counterexample(
        found.device,
        found.index,
        describe(matching, found.expected, found.device),
        describe(matching, found.got, found.device),
        found.devices,
    )


def describe(matching: Matching, code: int, device: int) -> str:
    """An element for people: `device 3's x[0,2]`, `zero`, `the bits 0x3f800000`."""
    if code == 0:
        return "zero"
    if code < 0:
        return f"the bits {pattern_of(code):#x}"
    key, source, index = matching.table.find(code)
    whose = "its own" if source == device else f"device {source}'s"
    if key[0] != "class":
        return f"{whose} elided constant"
    for side in (matching.before, matching.after):
        if key[1] in side.classes:
            instruction = side.instruction(side.classes.index(key[1]))
            shape = instruction.shape
            where = ""
            for part in key[2:]:
                assert isinstance(shape, TupleShape) and isinstance(part, int)
                shape, where = shape.elements[part], f"{where}.{part}"
            coordinates = _coordinates(index, shape.dimensions if isinstance(shape, ArrayShape) else ())
            return f"{whose} {instruction.name}{where}{coordinates}"
    return f"{whose} data"


def _coordinates(index: int, dimensions: tuple[int, ...]) -> str:
    found = []
    for d, size in enumerate(dimensions):
        inner = math.prod(dimensions[d + 1 :])
        found.append(index // inner % size)
    return "[" + ",".join(map(str, found)) + "]" if found else ""


def _what_is_wrong(matching: Matching, found: Disagreement) -> str:
    if _is_backfill(matching, found):
        devices = _devices(found.devices or (found.device,))
        are, keep = ("is", "its") if len(found.devices or (0,)) == 1 else ("are", "their")
        return f"{devices} {are} no target; XLA gives zeros, the module keeps {keep} own shard"
    where = f" in element {'.'.join(map(str, found.element))}" if found.element else ""
    return f"it moves the wrong data to {_devices(found.devices)}{where}"


def _is_backfill(matching: Matching, found: Disagreement) -> bool:
    """Whether a device that should get zeros keeps its own data."""
    if found.expected != 0 or found.got <= 0:
        return False
    key, source, _ = matching.table.find(found.got)
    return key[0] == "class" and source == found.device


def _devices(devices: tuple[int, ...]) -> str:
    if not devices:
        return "every device"
    if len(devices) == 1:
        return f"device {devices[0]}"
    shown = [str(d) for d in devices[:8]]
    more = ", ..." if len(devices) > 8 else ""
    if more:
        return "devices " + ", ".join(shown) + more
    return "devices " + ", ".join(shown[:-1]) + f" and {shown[-1]}"
