"""Which permutes of one operand can use one gather: halo exchanges, that send to the left and to the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.rewriter import NewInstruction, names_in_braces
from hlo_cp2ag.topology.replica_groups import Groups


@dataclass(eq=False)
class Sharing:
    """Permutes that use the gather of the first of them, which waits for the control predecessors of all."""

    permutes: list[Instruction]
    key: object
    """What has to be alike: the operand, the dimension, the attributes that go to the gather."""
    sources: list[tuple[int, ...]]
    groups: Groups
    gather: NewInstruction | None = field(default=None)
    """The gather, once it is written."""


def find_sharing(
    sharings: Sequence[Sharing],
    permute: Instruction,
    key: object,
    sources: tuple[int, ...],
    own: Groups,
    groups_of: Callable[[Sequence[tuple[int, ...]]], Groups],
    fits: Callable[[Groups], bool],
) -> tuple[Sharing | None, str]:
    """The first sharing that a permute can join, which then counts it; or why it joins none that has its operand.

    A gather over more devices than two gathers take together costs more than it saves.
    """
    reason = ""
    for sharing in sharings:
        first = sharing.permutes[0]
        if sharing.key != key:
            continue
        if waits_for(permute, first):
            reason = f"not shared with {first.name}'s gather: a control predecessor depends on {first.name}"
            continue
        if any(not _stands_before(name, first) for name in predecessors_of(permute)):
            reason = f"not shared with {first.name}'s gather: a control predecessor stands behind {first.name}"
            continue
        together = groups_of([*sharing.sources, sources])
        if len(together[0]) - 1 > len(sharing.groups[0]) - 1 + len(own[0]) - 1:
            reason = f"not shared with {first.name}'s gather: groups of {len(together[0])} devices cost more than two"
            continue
        if not fits(together):
            reason = f"not shared with {first.name}'s gather: over {len(together[0])} devices it passes the bound"
            continue
        sharing.permutes.append(permute)
        sharing.sources.append(sources)
        sharing.groups = together
        return sharing, ""
    return None, reason


def waits_for(later: Instruction, earlier: Instruction) -> bool:
    """Whether a control predecessor of one instruction is another one of its computation, or depends on it."""
    computation = later.computation
    pending, seen = predecessors_of(later), set()
    while pending:
        name = pending.pop()
        if name == earlier.name:
            return True
        instruction = computation.find(name) if name not in seen else None
        seen.add(name)
        if instruction is not None and not instruction.span.end < earlier.span.start:
            pending += [*_operands(instruction), *predecessors_of(instruction)]
    return False


def _stands_before(name: str, first: Instruction) -> bool:
    """Whether the gather in the place of `first` can wait for an instruction."""
    found = first.computation.find(name)
    return found is not None and found.is_before(first)


def predecessors_of(instruction: Instruction) -> list[str]:
    """The names of an instruction's control predecessors."""
    text = instruction.attribute_text("control-predecessors")
    return [name for _, name in names_in_braces(text.value_text, 0)] if text is not None else []


def _operands(instruction: Instruction) -> list[str]:
    found: list[str] = []
    bodies = [instruction.body]
    while bodies:
        for operand in bodies.pop().operands:
            if operand.name is not None:
                found.append(operand.name)
            if operand.nested is not None:
                bodies.append(operand.nested)
    return found
