"""What a proved site leans on besides the semantics: that all devices arrive, and what backends do with layouts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from hlo_cp2ag.executor.groups import axis_groups, group_table
from hlo_cp2ag.executor.interpreter import Execution
from hlo_cp2ag.executor.ops.collectives import permute_map
from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.executor.registry import Context, integers
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import ArrayShape, element_bits, leaves
from hlo_cp2ag.lowering.uniformity import Arrival
from hlo_cp2ag.topology.replica_groups import Groups
from hlo_cp2ag.verify.evaluation import is_collective
from hlo_cp2ag.verify.findings import SiteMatch
from hlo_cp2ag.verify.layouts import changed_layout


def conditions(
    site: SiteMatch, arrival: Arrival, present: Array | None, before: Execution, after: Execution
) -> list[str]:
    """What must hold besides, each as a clause that follows "provided". Raises HloSyntaxError for broken groups.

    `present` are the devices that may come to the site, where that is known and not all.
    """
    found: list[str] = []
    new = list(with_called(site.after_region, after.index))
    if needs_all(site, arrival, before, after):
        absent = _never_there(new, present, after)
        found.append(f"all devices enter {site.before.computation.name} together: {arrival.reason}{absent}")
    for instruction in new:
        found += _of_backend(instruction, after)
    found += [f"a layout pass follows: {changed}" for changed in changed_layouts(site, before, after)]
    return list(dict.fromkeys(found))


def changed_layouts(site: SiteMatch, before: Execution, after: Execution) -> Iterator[str]:
    """Where a site, in either module, hands data on in another layout, as clauses."""
    for region, index in ((site.before_region, before.index), (site.after_region, after.index)):
        for instruction in with_called(region, index):
            changed = changed_layout(instruction, index)
            if changed:
                yield changed


def needs_all(site: SiteMatch, arrival: Arrival, before: Execution, after: Execution) -> bool:
    """Whether devices have to come to a site that had not to before, and perhaps do not. Raises HloSyntaxError."""
    own, new = (with_called(r, e.index) for r, e in ((site.before_region, before), (site.after_region, after)))
    return not arrival.together and meet_more(list(own), list(new), before, after)


def with_called(region: Iterable[Instruction], index: ModuleIndex) -> Iterator[Instruction]:
    """Instructions and those of everything that they call."""
    pending, seen = list(region)[::-1], set()
    while pending:
        instruction = pending.pop()
        yield instruction
        for called in index.all_called(instruction).values():
            if id(called) not in seen:
                seen.add(id(called))
                pending += [node.instruction for node in index.nodes(called)]


def _meetings(instruction: Instruction, context: Context) -> Groups:
    """The sets of devices that meet in a collective at most: all of an axis in a permute."""
    if instruction.opcode.startswith("collective-permute"):
        return axis_groups(context, instruction)
    return group_table(context, instruction).groups


def _sure_meetings(instruction: Instruction, context: Context) -> Groups:
    """The sets of devices that meet at least: those that pairs connect. Others need not come to a permute."""
    if not instruction.opcode.startswith("collective-permute"):
        return group_table(context, instruction).groups
    received = permute_map(context, instruction)
    leader = list(range(received.size))

    def find(device: int) -> int:
        while leader[device] != device:
            leader[device] = leader[leader[device]]
            device = leader[device]
        return device

    for target, source in enumerate(received.tolist()):
        if source >= 0:
            leader[find(target)] = find(source)
    found: dict[int, list[int]] = {}
    for device in range(received.size):
        found.setdefault(find(device), []).append(device)
    return tuple(map(tuple, found.values()))


def meet_more(own: list[Instruction], new: list[Instruction], before: Context, after: Context) -> bool:
    """Whether devices meet in the second module that did not in the first."""
    old = [frozenset(g) for i in _collectives(own) for g in _sure_meetings(i, before)]
    asked = {frozenset(g) for i in _collectives(new) for g in _meetings(i, after)}
    return any(not any(group <= other for other in old) for group in asked if len(group) > 1)


def _never_there(new: list[Instruction], present: Array | None, after: Context) -> str:
    """The first collective in which devices wait for others that never come, as a clause; nothing if none is known."""
    if present is None:
        return ""
    for instruction in _collectives(new):
        for group in _meetings(instruction, after):
            here = present[np.asarray(group, np.int64)]
            if here.any() and not here.all():
                absent = group[int(np.flatnonzero(~here)[0])]
                return f"; as it is, device {absent} never comes to {instruction.opcode} {instruction.name}"
    return ""


def _collectives(region: list[Instruction]) -> Iterator[Instruction]:
    return (i for i in region if is_collective(i.opcode) and _has_members(i))


def _has_members(instruction: Instruction) -> bool:
    return (
        instruction.opcode.startswith("collective-permute") or instruction.attribute_text("replica_groups") is not None
    )


_REDUCTIONS = ("add", "multiply", "minimum", "maximum")
"""What every backend reduces with between devices; of preds also and, or."""


def _of_backend(instruction: Instruction, context: Context) -> Iterator[str]:
    opcode = instruction.opcode.removesuffix("-start")
    if opcode in ("all-reduce", "reduce-scatter"):
        computation = context.computation(instruction, "to_apply")
        kind = context.simple_reducer(computation)
        is_pred = isinstance(computation.root.shape, ArrayShape) and computation.root.shape.element_type == "pred"
        if kind not in _REDUCTIONS and not (is_pred and kind in ("and", "or")):
            yield f"the backend's {opcode} {instruction.name} can reduce with {kind or computation.name}"
    if opcode not in ("all-gather", "all-to-all", "reduce-scatter"):
        return
    shapes = [leaf for shape in (*context.operand_shapes(instruction), instruction.shape) for leaf in leaves(shape)]
    for shape in shapes:
        if not isinstance(shape, ArrayShape) or not shape.is_data:
            continue
        if element_bits(shape.element_type) < 8 and shape.element_type != "pred":
            yield f"the backend's {opcode} {instruction.name} moves packed {shape.element_type} right"
        dims = integers(instruction, "dimensions")
        if dims and dims[0] < shape.rank and _not_first(shape, dims[0]):
            yield (
                f"a layout pass follows, or the backend's {opcode} {instruction.name} works along dimension {dims[0]}, "
                f"which is not the most major one of {shape.to_text()}"
            )
            return


def _not_first(shape: ArrayShape, dim: int) -> bool:
    """Whether the shape has a layout in which some dimension with more than one place is more major."""
    if shape.layout is None or len(shape.layout.minor_to_major) != shape.rank:
        return False
    for other in reversed(shape.layout.minor_to_major):
        if other == dim:
            return False
        if shape.dimensions[other] != 1:
            return True
    return False
