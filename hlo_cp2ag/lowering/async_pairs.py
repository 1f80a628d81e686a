"""Asynchronous permutes: which instruction starts one, which one ends it, and what else holds on to the start.

Two forms. `collective-permute-start` and `collective-permute-done`; and `async-start`, whose computation is a
collective-permute of its parameters, with `async-done`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.rewriter import mentions, names_in_braces
from hlo_cp2ag.ir.shape import Shape, TupleShape, compatible
from hlo_cp2ag.lowering.call_graph import CallGraph

_DONE = {"collective-permute-start": "collective-permute-done", "async-start": "async-done"}
_MAIN_THREADS = ("", "main", '"main"')


@dataclass(frozen=True, eq=False)
class AsyncPair:
    """A permute that is started in one place and ended in another of the same computation."""

    permute: Instruction
    """What has the pairs: the start itself, or the permute in the computation that it calls."""
    start: Instruction
    done: Instruction
    is_waited_for: bool
    """Whether a control predecessor names the start."""

    @property
    def wrapper(self) -> Computation | None:
        """The computation that the start calls, which nobody needs when the pair is gone; none where it is inline."""
        called = self.permute.computation
        return None if self.permute is self.start or called.is_inline else called


class AsyncPairs:
    """Finds pairs; the users of all starts of a computation are found in one pass over its text."""

    def __init__(self, permutes: Sequence[Instruction], calls: CallGraph) -> None:
        self._calls = calls
        self._starts: dict[Computation, list[Instruction]] = {}
        self._users: dict[Computation, dict[str, list[Instruction]]] = {}
        for permute in permutes:
            start = self.start_of(permute)
            if start is not None:
                self._starts.setdefault(start.computation, []).append(start)

    def start_of(self, permute: Instruction) -> Instruction | None:
        """What starts a permute; None if it is a synchronous one."""
        if permute.opcode == "collective-permute-start":
            return permute
        callers = [call.caller for call in self._calls.callers(permute.computation)]
        return callers[0] if len(callers) == 1 and callers[0].opcode == "async-start" else None

    def pair(self, permute: Instruction) -> AsyncPair | str:
        """The pair of an asynchronous permute, or why it is none that can be rewritten."""
        start = self.start_of(permute)
        assert start is not None
        if permute is not start:
            reason = _left_for_its_wrapper(permute, start)
            if reason:
                return reason
        users, is_waited_for = [], False
        for user in self._mentioned(start):
            if start.name in user.operand_names or any(operand.nested for operand in user.body.operands):
                users.append(user)
            predecessors = user.attribute_text("control-predecessors")
            if predecessors is not None:
                is_waited_for |= any(name == start.name for _, name in names_in_braces(predecessors.value_text, 0))
        wanted = _DONE[start.opcode]
        if not users:
            return f"an async start without a {wanted}"
        if len(users) > 1:
            return f"an async start with {len(users)} users"
        done = users[0]
        if done.opcode != wanted:
            return f"an async start that {done.opcode} {done.name} uses in place of its {wanted}"
        if len(done.body.operands) != 1:
            raise done.error(f"{wanted} takes 1 operand, it has {len(done.body.operands)}")
        if start is start.computation.root:
            return "an async start that is its computation's result"
        reason = _left_for_its_shapes(start, done)
        if not reason and is_waited_for and len(start.body.operands) > 1:
            reason = "an async start of several operands that control-predecessors name"
        return reason or AsyncPair(permute, start, done, is_waited_for)

    def _mentioned(self, start: Instruction) -> list[Instruction]:
        computation = start.computation
        users = self._users.get(computation)
        if users is None:
            users = self._users[computation] = {}
            names = {each.name for each in self._starts[computation]}
            for offset, name in mentions(computation.module.text, computation.body_span, names):
                user = computation.table.at(offset)
                if user is not None and user.name_span.start != offset and user not in users.setdefault(name, []):
                    users[name].append(user)
        return users.get(start.name, [])


def is_waited_for(instruction: Instruction) -> bool:
    """Whether a control predecessor names an instruction."""
    computation = instruction.computation
    text = computation.module.text
    if text.find("control-predecessors", *computation.body_span) < 0:
        return False
    for offset, name in mentions(text, computation.body_span, {instruction.name}):
        user = computation.table.at(offset)
        predecessors = user.attribute_text("control-predecessors") if user is not None else None
        found = names_in_braces(predecessors.value_text, 0) if predecessors is not None else []
        if any(each == name for _, each in found):
            return True
    return False


def _left_for_its_wrapper(permute: Instruction, start: Instruction) -> str:
    """Why a computation that an async-start calls is more than a permute of its parameters."""
    computation = permute.computation
    thread = start.attribute_text("async_execution_thread")
    other = thread is not None and thread.value_text.strip() not in _MAIN_THREADS
    if other or computation.attributes_span is not None:
        return "an async-start on a thread of its own"
    parameters = [i for i in computation.instructions if i.opcode == "parameter"]
    numbers = [p.body.operands_span for p in parameters]
    text = permute.module.text
    ordered = {text[span.start : span.end].strip(): p for span, p in zip(numbers, parameters, strict=True)}
    wanted = [ordered.get(str(number)) for number in range(len(parameters))]
    if len(computation) != len(parameters) + 1 or permute is not computation.root or wanted != list(permute.operands):
        return "an async-start of more than a permute of its parameters"
    if len(start.body.operands) != len(parameters):
        raise start.error(f"{computation.name!r} takes {len(parameters)} operands, not {len(start.body.operands)}")
    if permute.attribute_text("control-predecessors") is not None:
        return "an async-start whose permute waits on control-predecessors"
    return ""


def _left_for_its_shapes(start: Instruction, done: Instruction) -> str:
    """Why the shapes of a pair do not say what is handed in and what comes out."""
    if any(operand.name is None for operand in start.body.operands):
        return "an operand is written out in place; give it a name"
    result: Shape = start.shape
    if isinstance(result, TupleShape):
        if len(result.elements) < 2:
            return f"an async start of shape {result.to_text(False)}"
        given, result = result.elements[:2]
        parts = given.elements if isinstance(given, TupleShape) else (given,)
        shapes = [operand.shape for operand in start.operands]
        if len(parts) != len(shapes) or not all(map(compatible, parts, shapes)):
            return f"its shape {start.shape.to_text(False)} does not begin with its operands'"
    if not compatible(result, done.shape):
        return f"it makes {result.to_text(False)}, and its done {done.shape.to_text(False)}"
    return ""
