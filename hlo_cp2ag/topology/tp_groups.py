"""The tensor-parallel group: discovered in the graph, never recomputed from a mesh."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from hlo_cp2ag.ir.find import CALLING, instruction_at
from hlo_cp2ag.ir.module import Computation, HloModule, Instruction
from hlo_cp2ag.ir.post_order import post_order
from hlo_cp2ag.topology.collective_ops import base_opcode, collectives
from hlo_cp2ag.topology.replica_groups import Groups, group_list

TP_OPCODES = ("reduce-scatter", "all-gather", "all-reduce")
"""The anchor first: sequence-parallel layers end in a reduce-scatter over the tensor-parallel group. The others follow
where there is none."""


@dataclass(frozen=True)
class TpGroup:
    """The tensor-parallel group of some computations."""

    replica_groups: Groups
    """`[group][rank]`, ids as the collectives have them; of several collectives each group once, in order."""
    collectives: tuple[Instruction, ...]
    """Where they come from: one in each computation that has one."""


def get_tp_replica_group(
    where: Computation | HloModule, names: Collection[str] | None = None, *, opcodes: Sequence[str] = TP_OPCODES
) -> list[list[int]]:
    """The tensor-parallel group as `[group][rank]`; nothing found gives `[]`.

    The groups of `find_tp_group`, whose arguments it takes. Source: Neuron's GetTpReplicaGroup.
    """
    return [list(group) for group in find_tp_group(where, names, opcodes=opcodes).replica_groups]


def find_tp_group(
    where: Computation | HloModule, names: Collection[str] | None = None, *, opcodes: Sequence[str] = TP_OPCODES
) -> TpGroup:
    """The tensor-parallel group and the collectives that it comes from.

    In a computation: the first collective in post-order that has the first of `opcodes` (its `-start` form too); if there
    is none, the second of `opcodes`, and so on. In a module: the same over all computations, in text order, in which XLA
    prints callees before their callers. With `names` (no names are all): in each computation that one of them means
    (`named_computations`), aggregated; groups that are there already are not added again.

    Raises TypeError for names beside a computation or a string as names, HloSyntaxError for text that is no HLO where it
    has to be read.
    """
    if isinstance(names, str) or isinstance(opcodes, str):
        raise TypeError("names and opcodes are collections of strings, not one string")
    if isinstance(where, Computation):
        if names is not None:
            raise TypeError("names belong to a module, not to a computation")
        return _aggregated([_first(where.module, [where], opcodes)])
    if not names:
        return _aggregated([_first(where, where.computations, opcodes)])
    meant = {computation for name in names for computation in named_computations(where, name)}
    return _aggregated([_first(where, [c], opcodes) for c in where.computations if c in meant])


def named_computations(module: HloModule, name: str) -> list[Computation]:
    """The computations that a name means, in text order; none for a name that is not there.

    The computation of that name, else those that instructions call by an attribute of that name (`body`, `to_apply`).
    """
    found = module.computation(name)
    if found is not None:
        return [found]
    if name not in CALLING:
        return []
    called = {called for instruction in _instructions_that_say(module, name) for called in _called(instruction, name)}
    return [computation for computation in module.computations if computation in called]


def _first(module: HloModule, computations: Iterable[Computation], opcodes: Sequence[str]) -> Instruction | None:
    inside = list(computations)
    there = set(inside)
    found = [c for c in collectives(module) if c.computation in there and base_opcode(c) in opcodes]
    for opcode in opcodes:
        for computation in inside:
            candidates = {c for c in found if c.computation is computation and base_opcode(c) == opcode}
            if len(candidates) == 1:
                return candidates.pop()
            if candidates:
                return next(instruction for instruction in post_order(computation) if instruction in candidates)
    return None


def _aggregated(found: list[Instruction | None]) -> TpGroup:
    there = tuple(instruction for instruction in found if instruction is not None)
    groups = dict.fromkeys(group for instruction in there for group in group_list(instruction))
    return TpGroup(tuple(groups), there)


def _instructions_that_say(module: HloModule, name: str) -> Iterator[Instruction]:
    """The instructions in whose text `name=` stands somewhere."""
    text, key = module.text, name + "="
    last: Instruction | None = None
    at = text.find(key)
    while at >= 0:
        instruction = instruction_at(module, at)
        if instruction is not None and instruction is not last:
            last = instruction
            yield instruction
        at = text.find(key, at + len(key))


def _called(instruction: Instruction, attribute: str) -> Iterator[Computation]:
    """The computations that an attribute names or holds, written out in place."""
    text = instruction.attribute_text(attribute)
    if text is None:
        return
    inline = [c for c in instruction.module.inline_computations if _is_inside(c, text.value_span)]
    if inline:
        yield from inline
        return
    value = instruction.attribute(attribute)
    for name in (value,) if isinstance(value, str) else cast("tuple[str, ...]", value):
        computation = instruction.module.computation(name)
        if computation is None:
            raise instruction.error(f"undefined computation {name!r}", text.value_span)
        yield computation


def _is_inside(computation: Computation, span: tuple[int, int]) -> bool:
    return span[0] <= computation.span.start and computation.span.end <= span[1]
