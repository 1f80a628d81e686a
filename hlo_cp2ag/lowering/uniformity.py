"""Whether all devices enter a computation together: an all-gather over all devices hangs where some do not come.

A collective-permute may stand under a conditional or a while that only some devices take; the gather that replaces it
may not. So the pass asks, for each computation that holds a permute, whether every device of the grid enters it, and
equally often. That is so if every conditional on the way decides, and every while on the way continues, by a value that
is *uniform*: the same on all devices.

Values are followed backwards, element by element through tuples, from the predicate that is asked about, so that only
its slice of the module is read. For each value the question is answered within its own computation first: it varies for
a reason of its own, or it is uniform if certain elements of the computation's parameters are. Those elements are then
followed to the callers. The first half does not depend on who calls, so each instruction is visited once, and a helper
that is called with uniform and with varying arguments has a result for each.

Devices of one program are taken to compute the same bits from the same bits. What is not a function of its operands
(random numbers, infeeds, unknown custom-calls) or of what all devices hold (permutes, all-to-all) varies.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from hlo_cp2ag.ir.device_groups import DeviceGroups
from hlo_cp2ag.ir.module import Computation, HloModule, Instruction
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.lowering.call_graph import Call, CallGraph
from hlo_cp2ag.lowering.uniform_goals import (
    Continues,
    Depends,
    Elements,
    Entered,
    Given,
    Goal,
    Leaf,
    Need,
    Paths,
    Reaches,
    Settles,
    Steps,
    Verdict,
    circular,
)
from hlo_cp2ag.lowering.uniform_operations import (
    APPLIES,
    CONSTANT,
    ENTERS_ALIKE,
    NEEDS_CALLS,
    PASSES_OPERANDS,
    STARTED,
    VARIES,
    Path,
    Varies,
    kind_of,
    operand_of,
    operands_of,
    origin_of,
    parameter_number,
    place_of,
    root_of,
    title_of,
    varies_by,
    written_out,
)
from hlo_cp2ag.text.opcodes import OPCODES


@dataclass(frozen=True)
class Arrival:
    """How the devices come to a computation."""

    together: bool
    """Whether all devices of the grid are proved to enter it together, and equally often."""
    reason: str = ""
    """Why that is not proved, as a clause for a warning: "the predicate of %conditional.3 (line 41) depends on
    partition-id". Where `together` is true: empty, or that nobody enters it at all."""
    through: tuple[Instruction, ...] = ()
    """The calls on the way, from the entry inwards; not proved, the way that was not proved. Where one on the way has
    several callers, those of the first."""


class Uniformity:
    """Answers for one module on a grid of `replica_count` times `num_partitions` devices; remembers what it has read.

    Every question raises HloSyntaxError if an instruction that it has to read is none. `flat_replica_id` says that
    `replica-id` counts all devices, as on Neuron, and not the replicas alone.
    """

    def __init__(
        self,
        module: HloModule,
        replica_count: int,
        num_partitions: int,
        *,
        flat_replica_id: bool = False,
        call_graph: CallGraph | None = None,
    ) -> None:
        self._module = module
        self._replica_count = replica_count
        self._num_partitions = num_partitions
        self._flat_replica_id = flat_replica_id
        self._graph = CallGraph(module) if call_graph is None else call_graph
        self._known: dict[Goal, Any] = {}
        self._parameters: dict[Computation, Elements] = {}
        self._device_sets: dict[str, frozenset[int] | None] = {}

    def arrival(self, computation: Computation) -> Arrival:
        """Whether all devices enter `computation` together, and equally often."""
        if self._replica_count * self._num_partitions == 1:
            return Arrival(True)
        verdict = cast(Verdict, self._solve(Entered(computation)))
        through: dict[Instruction, None] = {}
        call = verdict.call
        while call is not None and call not in through:
            through[call] = None
            call = cast(Verdict, self._solve(Entered(call.computation))).call
        return Arrival(verdict.together, verdict.reason, tuple(reversed(through)))

    def is_uniform(self, instruction: Instruction, path: Path = ()) -> bool:
        """Whether an instruction's result (or the element of it at `path`) is proved to be the same on all devices.

        In a computation that only some devices enter, or enter more often: the same on those that are there.
        """
        if self._replica_count * self._num_partitions == 1:
            return True
        return not isinstance(self._solve(Settles(*origin_of(instruction, path))), Varies)

    # ---- the work list ---------------------------------------------------------------------------------------------

    def _solve(self, goal: Goal) -> Any:
        """The answer to a goal. Goals that wait for others are generators on a stack, so depth costs no recursion."""
        known = self._known
        answer = known.get(goal)
        if answer is not None:
            return answer
        stack = [(goal, self._start(goal))]
        waiting = {goal}
        while stack:
            goal, steps = stack[-1]
            try:
                wanted = steps.send(answer)
            except StopIteration as stop:
                known[goal] = answer = stop.value
                waiting.discard(goal)
                stack.pop()
                continue
            answer = known.get(wanted)
            if answer is None:
                if wanted in waiting:
                    answer = circular(wanted)
                else:
                    waiting.add(wanted)
                    stack.append((wanted, self._start(wanted)))
        return answer

    def _start(self, goal: Goal) -> Steps[Any]:
        if isinstance(goal, Depends):
            return self._depends(goal.instruction, goal.path)
        if isinstance(goal, Given):
            return self._given(goal.computation, goal.leaf)
        if isinstance(goal, Reaches):
            return self._reaches(goal.loop, goal.path)
        if isinstance(goal, Continues):
            return self._continues(goal.loop)
        if isinstance(goal, Settles):
            return self._settles(goal.instruction, goal.path)
        return self._entered(goal.computation)

    # ---- who enters a computation ----------------------------------------------------------------------------------

    def _entered(self, computation: Computation) -> Steps[Verdict]:
        """Entered by all: the entry, and what is called only where all devices are and decide alike."""
        if computation is self._module.entry:
            return Verdict(True)
        first: Instruction | None = None
        for call in self._graph.callers(computation):
            outer: Verdict = yield Entered(call.caller.computation)
            if not outer.together:
                return Verdict(False, outer.reason, call.caller)
            if outer.is_vacuous:
                continue
            reason: str = yield from self._doubt(call)
            if reason:
                return Verdict(False, reason, call.caller)
            first = first or call.caller
        if first is None:
            return Verdict(True, f"{title_of(computation)} is never entered: no call leads to it", is_vacuous=True)
        return Verdict(True, call=first)

    def _doubt(self, call: Call) -> Steps[str]:
        """Why devices that come to a call together may not enter what it calls together; nothing if they do."""
        caller = call.caller
        kind = kind_of(caller)
        if kind == "while":
            what, varies = "condition", (yield from self._loop_varies(caller))
        elif kind == "conditional":
            what = "branch index" if call.attribute == "branch_computations" else "predicate"
            varies = yield from self._predicate_varies(caller)
        elif kind in ENTERS_ALIKE:
            return ""
        else:
            return f"{title_of(call.computation)} is called by the {kind} {place_of(caller)}, as often as that sees fit"
        return f"the {what} of {place_of(caller)} depends on {varies.what}" if isinstance(varies, Varies) else ""

    def _loop_varies(self, loop: Instruction) -> Steps[Need]:
        """Whether some iteration's condition may differ between devices that begin the loop together."""
        paths: Paths = yield Continues(loop)
        if isinstance(paths, Varies):
            return paths
        initial = operand_of(loop, 0)
        if initial is None:
            return written_out(loop)
        for path in paths:
            varies: Need = yield Settles(*origin_of(initial, path))
            if isinstance(varies, Varies):
                return varies
        return 0

    def _predicate_varies(self, conditional: Instruction) -> Steps[Need]:
        """Whether devices that come to a conditional together may take different branches."""
        predicate = operand_of(conditional, 0)
        if predicate is None:
            return written_out(conditional)
        varies: Need = yield Settles(*origin_of(predicate, ()))
        return varies

    # ---- from a computation to its callers -------------------------------------------------------------------------

    def _settles(self, instruction: Instruction, path: Path) -> Steps[Need]:
        """0 if the value is uniform for every caller of its computation, else why it varies."""
        need: Need = yield Depends(instruction, path)
        if isinstance(need, Varies):
            return need
        for leaf in self._leaves(instruction.computation, need):
            varies: Need = yield Given(instruction.computation, leaf)
            if isinstance(varies, Varies):
                return varies
        return 0

    def _given(self, computation: Computation, leaf: Leaf) -> Steps[Need]:
        """0 if an element of a parameter is uniform at every call (for a while: in every iteration), else why not."""
        for call in self._graph.callers(computation):
            caller, paths = call.caller, cast(Paths, (leaf.path,))
            kind = kind_of(caller)
            if kind == "while":
                paths = yield Reaches(caller, leaf.path)
                numbers = range(1)
            elif kind == "conditional":
                numbers = range(call.position + 1, call.position + 2)
            elif kind in PASSES_OPERANDS:
                numbers = range(leaf.parameter, leaf.parameter + 1)
            else:  # a reducer's parameters may hold any element of any operand
                numbers, paths = range(len(caller.body.operands)), ((),)
            if isinstance(paths, Varies):
                return paths
            for number in numbers:
                operand = operand_of(caller, number)
                if operand is None:
                    return written_out(caller)
                for path in paths:
                    varies: Need = yield Settles(*origin_of(operand, path))
                    if isinstance(varies, Varies):
                        return varies
        return 0

    def _leaves(self, computation: Computation, need: int) -> list[Leaf]:
        """The elements of a computation's parameters that a need is made of."""
        return self._parameters[computation].of(need) if need else []

    # ---- within a computation --------------------------------------------------------------------------------------

    def _depends(self, instruction: Instruction, path: Path) -> Steps[Need]:
        """What must be uniform for a value to be so; the value is one that `origin_of` does not lead further back."""
        opcode = instruction.opcode
        if opcode in CONSTANT:
            return 0
        if opcode == "parameter":
            return self._parameter(instruction, path)
        if opcode.endswith("-done"):
            need: Need = yield from self._done(instruction, path)
            return need
        if opcode.endswith(("-start", "-update")):
            return varies_by(instruction)
        need = yield from self._operation(instruction, kind_of(instruction), path)
        return need

    def _operation(self, instruction: Instruction, kind: str, path: Path) -> Steps[Need]:
        """The same for an instruction that does what the opcode `kind` does."""
        if kind in ("replica-id", "partition-id"):
            return 0 if self._is_one(kind) else Varies(kind)
        if kind in ("all-gather", "all-reduce"):
            return 0 if self._joins_all(instruction) else varies_by(instruction)
        if kind in VARIES or kind not in OPCODES:
            return varies_by(instruction)
        if kind in NEEDS_CALLS and not self._graph.calls(instruction):
            raise instruction.error(f"{instruction.opcode} names no computation")
        if kind == "while":
            need: Need = yield from self._while(instruction, path)
        elif kind == "conditional":
            need = yield from self._conditional(instruction, path)
        elif kind in PASSES_OPERANDS:
            need = yield from self._call(instruction, path)
        else:
            need = yield from self._function(instruction)
        return need

    def _done(self, instruction: Instruction, path: Path) -> Steps[Need]:
        """The result of a started operation: as if it had been done where it was started."""
        start = operand_of(instruction, 0)
        while start is not None and start.opcode.endswith("-update"):
            start = operand_of(start, 0)
        if start is None or not start.opcode.endswith("-start"):
            return varies_by(instruction)
        kind = kind_of(start)
        need: Need = yield from self._operation(start, STARTED.get(kind, kind), path)
        return need

    def _is_one(self, kind: str) -> bool:
        """Whether `replica-id` or `partition-id` has only one value on this grid of several devices."""
        if kind == "partition-id":
            return self._num_partitions == 1
        return self._replica_count == 1 and not self._flat_replica_id

    def _parameter(self, instruction: Instruction, path: Path) -> Need:
        """A parameter's element: settled here for the entry, left to the callers elsewhere.

        Parameters of the entry hold each device's own data; a partitioned module's shapes are local already. Only
        `sharding={replicated}` promises otherwise, and only for the partitions of one replica, so it counts where there
        is no other replica. It is the partitioner's word, printed on every parameter that it did not split; JAX keeps
        it, while who runs a module by hand may break it.
        """
        number = parameter_number(instruction)
        if instruction.computation is not self._module.entry:
            elements = self._parameters.setdefault(instruction.computation, Elements())
            return elements.bit(Leaf(number, path))
        sharding = instruction.attribute_text("sharding")
        if sharding is not None and sharding.value_text == "{replicated}" and self._replica_count == 1:
            return 0
        return Varies(f"parameter {number} of the entry")

    def _function(self, instruction: Instruction) -> Steps[Need]:
        """An operation whose result is a function of its operands (and of a reducer, which may look elsewhere)."""
        for called in self._graph.calls(instruction) if kind_of(instruction) in APPLIES else ():
            inner: Need = yield Depends(*origin_of(root_of(called.computation), ()))
            if isinstance(inner, Varies):
                return inner
        need = 0
        for operand in operands_of(instruction):
            if operand is None:
                return written_out(instruction)
            if operand.opcode in CONSTANT:
                continue
            more: Need = yield Depends(*origin_of(operand, ()))
            if isinstance(more, Varies):
                return more
            need |= more
        return need

    def _call(self, instruction: Instruction, path: Path) -> Steps[Need]:
        """The result of a call, a fusion or an async-start: the called root, with operands in place of parameters."""
        return self._called_results(instruction, path, lambda called, leaf: leaf.parameter)

    def _conditional(self, instruction: Instruction, path: Path) -> Steps[Need]:
        """A conditional's result: the predicate, and each branch's result of that branch's operand."""
        predicate = operand_of(instruction, 0)
        if predicate is None:
            return written_out(instruction)
        need: Need = yield Depends(*origin_of(predicate, ()))
        if isinstance(need, Varies):
            return need
        branches: Need = yield from self._called_results(instruction, path, lambda called, leaf: called.position + 1)
        return branches if isinstance(branches, Varies) else need | branches

    def _called_results(
        self, instruction: Instruction, path: Path, position: Callable[[Call, Leaf], int]
    ) -> Steps[Need]:
        """The roots of all that an instruction calls; `position` says which operand a leaf of a parameter is from."""
        need = 0
        for called in self._graph.calls(instruction):
            inner: Need = yield Depends(*origin_of(root_of(called.computation), path))
            if isinstance(inner, Varies):
                return inner
            for leaf in self._leaves(called.computation, inner):
                operand = operand_of(instruction, position(called, leaf))
                if operand is None:
                    return written_out(instruction)
                more: Need = yield Depends(*origin_of(operand, leaf.path))
                if isinstance(more, Varies):
                    return more
                need |= more
        return need

    def _while(self, instruction: Instruction, path: Path) -> Steps[Need]:
        """A while's result: the initial elements that flow into it, and into how often the loop runs."""
        paths: Paths = yield Reaches(instruction, path)
        if isinstance(paths, Varies):
            return paths
        if not self._stays(instruction, path):
            more: Paths = yield Continues(instruction)
            if isinstance(more, Varies):
                return more
            paths = (*paths, *more)
        initial = operand_of(instruction, 0)
        if initial is None:
            return written_out(instruction)
        need = 0
        for element in dict.fromkeys(paths):
            inner: Need = yield Depends(*origin_of(initial, element))
            if isinstance(inner, Varies):
                return inner
            need |= inner
        return need

    def _stays(self, loop: Instruction, path: Path) -> bool:
        """Whether a loop hands an element on as it is, however often it runs."""
        origin, place = origin_of(root_of(self._graph.called(loop, "body")), path)
        return origin.opcode == "parameter" and place == path

    def _continues(self, loop: Instruction) -> Steps[Paths]:
        """The initial elements that some iteration's condition depends on."""
        condition = self._graph.called(loop, "condition")
        need: Need = yield Depends(*origin_of(root_of(condition), ()))
        if isinstance(need, Varies):
            return need
        paths: dict[Path, None] = {}
        for leaf in self._leaves(condition, need):
            more: Paths = yield Reaches(loop, leaf.path)
            if isinstance(more, Varies):
                return more
            paths.update(dict.fromkeys(more))
        return tuple(paths)

    def _reaches(self, loop: Instruction, path: Path) -> Steps[Paths]:
        """The initial elements that a loop-carried element depends on in some iteration: the closure over the body.

        An element is in the greatest set of uniform ones (its initial value is uniform, and the body computes it from
        elements of the set) exactly if all elements that it reaches this way are uniform at first.
        """
        body = self._graph.called(loop, "body")
        root = root_of(body)
        paths = {path: None}
        pending = [path]
        while pending:
            need: Need = yield Depends(*origin_of(root, pending.pop()))
            if isinstance(need, Varies):
                return need
            for leaf in self._leaves(body, need):
                if leaf.path not in paths:
                    paths[leaf.path] = None
                    pending.append(leaf.path)
        return tuple(paths)

    # ---- groups ----------------------------------------------------------------------------------------------------

    def _joins_all(self, instruction: Instruction) -> bool:
        """Whether an all-gather or all-reduce has one group that holds every device of the grid.

        Without a channel id, groups name replicas, and each partition has its own; with one they name replicas and hold
        all their partitions, or flattened ids under `use_global_device_ids`. No groups stand for one of all replicas.
        """
        channel = instruction.attribute_text("channel_id")
        flat = instruction.attribute_text("use_global_device_ids")
        is_flat = flat is not None and flat.value_text == "true"
        if channel is None and (is_flat or self._num_partitions != 1):
            return False
        if channel is not None and not re.fullmatch("[1-9][0-9]*", channel.value_text):
            return False
        size = self._replica_count * self._num_partitions if is_flat else self._replica_count
        devices = self._only_group(instruction)
        return devices == frozenset(range(size)) or (devices == frozenset() and not is_flat)

    def _only_group(self, instruction: Instruction) -> frozenset[int] | None:
        """The members of the only group; empty where there are no groups at all, None if there are several."""
        text = instruction.attribute_text("replica_groups")
        if text is None:
            return frozenset()
        if text.value_text not in self._device_sets:
            try:
                groups = cast(DeviceGroups, instruction.attribute("replica_groups")).to_groups()
            except HloSyntaxError:
                raise
            except ValueError as error:  # numbers that do not fill the groups
                raise instruction.error(str(error), text.value_span) from None
            is_one = len(groups) == 1 and groups[0]
            self._device_sets[text.value_text] = frozenset(groups[0]) if is_one else None if groups else frozenset()
        return self._device_sets[text.value_text]
