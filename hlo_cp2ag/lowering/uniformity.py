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
from bisect import bisect_right
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from hlo_cp2ag.ir.attributes import DeviceGroups
from hlo_cp2ag.ir.module import Computation, HloModule, Instruction
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text.opcodes import OPCODES, split_opcode

T = TypeVar("T")
Path = tuple[int, ...]
"""A place in a nested tuple: `(1, 0)` is element 0 of element 1, `()` the whole value."""


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
        self, module: HloModule, replica_count: int, num_partitions: int, *, flat_replica_id: bool = False
    ) -> None:
        self._module = module
        self._replica_count = replica_count
        self._num_partitions = num_partitions
        self._flat_replica_id = flat_replica_id
        self._graph = _CallGraph(module)
        self._known: dict[_Goal, Any] = {}
        self._parameters: dict[Computation, _Elements] = {}
        self._device_sets: dict[str, frozenset[int] | None] = {}

    def arrival(self, computation: Computation) -> Arrival:
        """Whether all devices enter `computation` together, and equally often."""
        if self._replica_count * self._num_partitions == 1:
            return Arrival(True)
        verdict = cast(_Verdict, self._solve(_Entered(computation)))
        through: dict[Instruction, None] = {}
        call = verdict.call
        while call is not None and call not in through:
            through[call] = None
            call = cast(_Verdict, self._solve(_Entered(call.computation))).call
        return Arrival(verdict.together, verdict.reason, tuple(reversed(through)))

    def is_uniform(self, instruction: Instruction, path: Path = ()) -> bool:
        """Whether an instruction's result (or the element of it at `path`) is proved to be the same on all devices.

        In a computation that only some devices enter, or enter more often: the same on those that are there.
        """
        if self._replica_count * self._num_partitions == 1:
            return True
        return not isinstance(self._solve(_Settles(*_origin(instruction, path))), _Varies)

    # ---- the work list ---------------------------------------------------------------------------------------------

    def _solve(self, goal: _Goal) -> Any:
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
                    answer = _circular(wanted)
                else:
                    waiting.add(wanted)
                    stack.append((wanted, self._start(wanted)))
        return answer

    def _start(self, goal: _Goal) -> Steps[Any]:
        if isinstance(goal, _Depends):
            return self._depends(goal.instruction, goal.path)
        if isinstance(goal, _Given):
            return self._given(goal.computation, goal.leaf)
        if isinstance(goal, _Reaches):
            return self._reaches(goal.loop, goal.path)
        if isinstance(goal, _Continues):
            return self._continues(goal.loop)
        if isinstance(goal, _Settles):
            return self._settles(goal.instruction, goal.path)
        return self._entered(goal.computation)

    # ---- who enters a computation ----------------------------------------------------------------------------------

    def _entered(self, computation: Computation) -> Steps[_Verdict]:
        """Entered by all: the entry, and what is called only where all devices are and decide alike."""
        if computation is self._module.entry:
            return _Verdict(True)
        first: Instruction | None = None
        for call in self._graph.callers(computation):
            outer: _Verdict = yield _Entered(call.caller.computation)
            if not outer.together:
                return _Verdict(False, outer.reason, call.caller)
            if outer.is_vacuous:
                continue
            reason: str = yield from self._doubt(call)
            if reason:
                return _Verdict(False, reason, call.caller)
            first = first or call.caller
        if first is None:
            return _Verdict(True, f"{_title(computation)} is never entered: no call leads to it", is_vacuous=True)
        return _Verdict(True, call=first)

    def _doubt(self, call: _Call) -> Steps[str]:
        """Why devices that come to a call together may not enter what it calls together; nothing if they do."""
        caller = call.caller
        kind = _kind(caller)
        if kind == "while":
            what, varies = "condition", (yield from self._loop_varies(caller))
        elif kind == "conditional":
            what = "branch index" if call.attribute == "branch_computations" else "predicate"
            varies = yield from self._predicate_varies(caller)
        elif kind in _ENTERS_ALIKE:
            return ""
        else:
            return f"{_title(call.computation)} is called by the {kind} {_place(caller)}, as often as that sees fit"
        return f"the {what} of {_place(caller)} depends on {varies.what}" if isinstance(varies, _Varies) else ""

    def _loop_varies(self, loop: Instruction) -> Steps[_Need]:
        """Whether some iteration's condition may differ between devices that begin the loop together."""
        paths: _Paths = yield _Continues(loop)
        if isinstance(paths, _Varies):
            return paths
        initial = _operand(loop, 0)
        if initial is None:
            return _written_out(loop)
        for path in paths:
            varies: _Need = yield _Settles(*_origin(initial, path))
            if isinstance(varies, _Varies):
                return varies
        return 0

    def _predicate_varies(self, conditional: Instruction) -> Steps[_Need]:
        """Whether devices that come to a conditional together may take different branches."""
        predicate = _operand(conditional, 0)
        if predicate is None:
            return _written_out(conditional)
        varies: _Need = yield _Settles(*_origin(predicate, ()))
        return varies

    # ---- from a computation to its callers -------------------------------------------------------------------------

    def _settles(self, instruction: Instruction, path: Path) -> Steps[_Need]:
        """0 if the value is uniform for every caller of its computation, else why it varies."""
        need: _Need = yield _Depends(instruction, path)
        if isinstance(need, _Varies):
            return need
        for leaf in self._leaves(instruction.computation, need):
            varies: _Need = yield _Given(instruction.computation, leaf)
            if isinstance(varies, _Varies):
                return varies
        return 0

    def _given(self, computation: Computation, leaf: _Leaf) -> Steps[_Need]:
        """0 if an element of a parameter is uniform at every call (for a while: in every iteration), else why not."""
        for call in self._graph.callers(computation):
            caller, paths = call.caller, cast(_Paths, (leaf.path,))
            kind = _kind(caller)
            if kind == "while":
                paths = yield _Reaches(caller, leaf.path)
                numbers = range(1)
            elif kind == "conditional":
                numbers = range(call.position + 1, call.position + 2)
            elif kind in _PASSES_OPERANDS:
                numbers = range(leaf.parameter, leaf.parameter + 1)
            else:  # a reducer's parameters may hold any element of any operand
                numbers, paths = range(len(caller.body.operands)), ((),)
            if isinstance(paths, _Varies):
                return paths
            for number in numbers:
                operand = _operand(caller, number)
                if operand is None:
                    return _written_out(caller)
                for path in paths:
                    varies: _Need = yield _Settles(*_origin(operand, path))
                    if isinstance(varies, _Varies):
                        return varies
        return 0

    def _leaves(self, computation: Computation, need: int) -> list[_Leaf]:
        """The elements of a computation's parameters that a need is made of."""
        return self._parameters[computation].of(need) if need else []

    # ---- within a computation --------------------------------------------------------------------------------------

    def _depends(self, instruction: Instruction, path: Path) -> Steps[_Need]:
        """What must be uniform for a value to be so; the value is one that `_origin` does not lead further back."""
        opcode = instruction.opcode
        if opcode in _CONSTANT:
            return 0
        if opcode == "parameter":
            return self._parameter(instruction, path)
        if opcode.endswith("-done"):
            need: _Need = yield from self._done(instruction, path)
            return need
        if opcode.endswith(("-start", "-update")):
            return _varies(instruction)
        need = yield from self._operation(instruction, _kind(instruction), path)
        return need

    def _operation(self, instruction: Instruction, kind: str, path: Path) -> Steps[_Need]:
        """The same for an instruction that does what the opcode `kind` does."""
        if kind in ("replica-id", "partition-id"):
            return 0 if self._is_one(kind) else _Varies(kind)
        if kind in ("all-gather", "all-reduce"):
            return 0 if self._joins_all(instruction) else _varies(instruction)
        if kind in _VARIES or kind not in OPCODES:
            return _varies(instruction)
        if kind in _NEEDS_CALLS and not self._graph.calls(instruction):
            raise instruction.error(f"{instruction.opcode} names no computation")
        if kind == "while":
            need: _Need = yield from self._while(instruction, path)
        elif kind == "conditional":
            need = yield from self._conditional(instruction, path)
        elif kind in _PASSES_OPERANDS:
            need = yield from self._call(instruction, path)
        else:
            need = yield from self._function(instruction)
        return need

    def _done(self, instruction: Instruction, path: Path) -> Steps[_Need]:
        """The result of a started operation: as if it had been done where it was started."""
        start = _operand(instruction, 0)
        while start is not None and start.opcode.endswith("-update"):
            start = _operand(start, 0)
        if start is None or not start.opcode.endswith("-start"):
            return _varies(instruction)
        kind = _kind(start)
        need: _Need = yield from self._operation(start, _STARTED.get(kind, kind), path)
        return need

    def _is_one(self, kind: str) -> bool:
        """Whether `replica-id` or `partition-id` has only one value on this grid of several devices."""
        if kind == "partition-id":
            return self._num_partitions == 1
        return self._replica_count == 1 and not self._flat_replica_id

    def _parameter(self, instruction: Instruction, path: Path) -> _Need:
        """A parameter's element: settled here for the entry, left to the callers elsewhere.

        Parameters of the entry hold each device's own data; a partitioned module's shapes are local already. Only
        `sharding={replicated}` promises otherwise, and only for the partitions of one replica, so it counts where there
        is no other replica. It is the partitioner's word, printed on every parameter that it did not split; JAX keeps
        it, while who runs a module by hand may break it.
        """
        number = _parameter_number(instruction)
        if instruction.computation is not self._module.entry:
            elements = self._parameters.setdefault(instruction.computation, _Elements())
            return elements.bit(_Leaf(number, path))
        sharding = instruction.attribute_text("sharding")
        if sharding is not None and sharding.value_text == "{replicated}" and self._replica_count == 1:
            return 0
        return _Varies(f"parameter {number} of the entry")

    def _function(self, instruction: Instruction) -> Steps[_Need]:
        """An operation whose result is a function of its operands (and of a reducer, which may look elsewhere)."""
        for called in self._graph.calls(instruction) if _kind(instruction) in _APPLIES else ():
            inner: _Need = yield _Depends(*_origin(_root(called.computation), ()))
            if isinstance(inner, _Varies):
                return inner
        need = 0
        for operand in _operands(instruction):
            if operand is None:
                return _written_out(instruction)
            if operand.opcode in _CONSTANT:
                continue
            more: _Need = yield _Depends(*_origin(operand, ()))
            if isinstance(more, _Varies):
                return more
            need |= more
        return need

    def _call(self, instruction: Instruction, path: Path) -> Steps[_Need]:
        """The result of a call, a fusion or an async-start: the called root, with operands in place of parameters."""
        need = 0
        for called in self._graph.calls(instruction):
            inner: _Need = yield _Depends(*_origin(_root(called.computation), path))
            if isinstance(inner, _Varies):
                return inner
            for leaf in self._leaves(called.computation, inner):
                operand = _operand(instruction, leaf.parameter)
                if operand is None:
                    return _written_out(instruction)
                more: _Need = yield _Depends(*_origin(operand, leaf.path))
                if isinstance(more, _Varies):
                    return more
                need |= more
        return need

    def _conditional(self, instruction: Instruction, path: Path) -> Steps[_Need]:
        """A conditional's result: the predicate, and each branch's result of that branch's operand."""
        predicate = _operand(instruction, 0)
        if predicate is None:
            return _written_out(instruction)
        need: _Need = yield _Depends(*_origin(predicate, ()))
        if isinstance(need, _Varies):
            return need
        for called in self._graph.calls(instruction):
            inner: _Need = yield _Depends(*_origin(_root(called.computation), path))
            if isinstance(inner, _Varies):
                return inner
            for leaf in self._leaves(called.computation, inner):
                operand = _operand(instruction, called.position + 1)
                if operand is None:
                    return _written_out(instruction)
                more: _Need = yield _Depends(*_origin(operand, leaf.path))
                if isinstance(more, _Varies):
                    return more
                need |= more
        return need

    def _while(self, instruction: Instruction, path: Path) -> Steps[_Need]:
        """A while's result: the initial elements that flow into it, and into how often the loop runs."""
        paths: _Paths = yield _Reaches(instruction, path)
        if isinstance(paths, _Varies):
            return paths
        if not self._stays(instruction, path):
            more: _Paths = yield _Continues(instruction)
            if isinstance(more, _Varies):
                return more
            paths = (*paths, *more)
        initial = _operand(instruction, 0)
        if initial is None:
            return _written_out(instruction)
        need = 0
        for element in dict.fromkeys(paths):
            inner: _Need = yield _Depends(*_origin(initial, element))
            if isinstance(inner, _Varies):
                return inner
            need |= inner
        return need

    def _stays(self, loop: Instruction, path: Path) -> bool:
        """Whether a loop hands an element on as it is, however often it runs."""
        origin, place = _origin(_root(self._graph.called(loop, "body")), path)
        return origin.opcode == "parameter" and place == path

    def _continues(self, loop: Instruction) -> Steps[_Paths]:
        """The initial elements that some iteration's condition depends on."""
        condition = self._graph.called(loop, "condition")
        need: _Need = yield _Depends(*_origin(_root(condition), ()))
        if isinstance(need, _Varies):
            return need
        paths: dict[Path, None] = {}
        for leaf in self._leaves(condition, need):
            more: _Paths = yield _Reaches(loop, leaf.path)
            if isinstance(more, _Varies):
                return more
            paths.update(dict.fromkeys(more))
        return tuple(paths)

    def _reaches(self, loop: Instruction, path: Path) -> Steps[_Paths]:
        """The initial elements that a loop-carried element depends on in some iteration: the closure over the body.

        An element is in the greatest set of uniform ones (its initial value is uniform, and the body computes it from
        elements of the set) exactly if all elements that it reaches this way are uniform at first.
        """
        body = self._graph.called(loop, "body")
        root = _root(body)
        paths = {path: None}
        pending = [path]
        while pending:
            need: _Need = yield _Depends(*_origin(root, pending.pop()))
            if isinstance(need, _Varies):
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


# ---- goals and answers ---------------------------------------------------------------------------------------------


class _Leaf(NamedTuple):
    """An element of one of a computation's parameters."""

    parameter: int
    path: Path


class _Elements:
    """The elements of a computation's parameters that were met so far, each with a bit of its own."""

    def __init__(self) -> None:
        self._order: list[_Leaf] = []
        self._bits: dict[_Leaf, int] = {}

    def bit(self, leaf: _Leaf) -> int:
        """The bit of an element."""
        bit = self._bits.get(leaf)
        if bit is None:
            bit = self._bits[leaf] = 1 << len(self._order)
            self._order.append(leaf)
        return bit

    def of(self, bits: int) -> list[_Leaf]:
        """The elements of bits."""
        found = []
        while bits:
            low = bits & -bits
            found.append(self._order[low.bit_length() - 1])
            bits ^= low
        return found


class _Varies(NamedTuple):
    """A value that is not proved to be uniform, and what makes it so: "partition-id"."""

    what: str


class _Verdict(NamedTuple):
    """How a computation is entered, and the call that decided it."""

    together: bool
    reason: str = ""
    call: Instruction | None = None
    is_vacuous: bool = False


_Need = int | _Varies
"""The elements of its computation's parameters that must be uniform for a value to be so, as bits; or why it varies."""
_Paths = tuple[Path, ...] | _Varies
"""Elements of a while's initial value; or why what depends on them varies all the same."""


@dataclass(frozen=True)
class _Depends:
    """What must be uniform for a value to be so (`_Need`); answered within its computation."""

    instruction: Instruction
    path: Path


@dataclass(frozen=True)
class _Settles:
    """Whether a value is uniform, whoever calls: 0 or `_Varies`."""

    instruction: Instruction
    path: Path


@dataclass(frozen=True)
class _Given:
    """Whether an element of a parameter is uniform at every call: 0 or `_Varies`."""

    computation: Computation
    leaf: _Leaf


@dataclass(frozen=True)
class _Reaches:
    """The initial elements that a loop-carried element depends on (`_Paths`)."""

    loop: Instruction
    path: Path


@dataclass(frozen=True)
class _Continues:
    """The initial elements that a loop's condition depends on (`_Paths`)."""

    loop: Instruction


@dataclass(frozen=True)
class _Entered:
    """How a computation is entered (`_Verdict`)."""

    computation: Computation


_Goal = _Depends | _Settles | _Given | _Reaches | _Continues | _Entered
Steps = Generator[_Goal, Any, T]
"""A goal at work: yields the goals that it needs, is sent their answers, and returns its own."""


def _circular(goal: _Goal) -> _Varies | _Verdict:
    """The answer to a goal that waits for itself: HLO has no recursion, so nothing is proved of it."""
    if isinstance(goal, _Entered):
        return _Verdict(False, f"{_title(goal.computation)} calls itself")
    return _Varies("a computation that calls itself")


# ---- what the opcodes do -------------------------------------------------------------------------------------------

_CONSTANT = frozenset(("constant", "iota", "after-all"))
_IDENTITY = frozenset(("copy", "bitcast", "opt-barrier", "domain", "add-dependency"))
"""Operations whose result is their first operand, element by element."""
_TRACKED = frozenset(("parameter", "while", "conditional", "call", "fusion"))
"""Operations whose result is followed element by element; elsewhere one answer holds for all elements."""
_APPLIES = frozenset(("map", "reduce", "reduce-window", "scan", "scatter", "select-and-scatter", "sort"))
"""Operations that compute their result by a computation, of nothing but their operands."""
_PASSES_OPERANDS = frozenset(("call", "fusion", "async-start"))
"""Operations whose operands are the parameters, and whose result is the root, of what they call."""
_NEEDS_CALLS = _PASSES_OPERANDS | {"conditional"}
_ENTERS_ALIKE = _PASSES_OPERANDS | {"map", "reduce", "reduce-window", "scan"}
"""Operations that enter what they call once, or as often as their shapes say. How often a sort enters its comparator,
a scatter its combiner, a custom-call or a reducing collective whatever they call, may hang on data or on the device."""
_STARTED = {"all-gather-start": "all-gather", "all-reduce-start": "all-reduce", "copy-start": "copy"}
"""What their `-done` hands out; of other starts, that of the computation or the operation that they wrap."""
_VARIES = frozenset(
    (
        *("rng", "rng-get-and-update-state", "infeed", "recv", "send", "custom-call", "collective-permute"),
        *("collective-permute-start", "all-to-all", "ragged-all-to-all", "reduce-scatter", "collective-broadcast"),
    )
)
"""Operations whose result is no function of their operands, or one that may differ from device to device."""


_NAME = re.compile(r"%([A-Za-z_][\w.\-]*)")
_PLAIN_OPERANDS = re.compile(r"(?:%[\w.\-]+(?:, (?:/\*index=\d+\*/)?%[\w.\-]+)*)?\)")
_PLAIN_INDEX = re.compile(r"%[\w.\-]+\), index=(\d+)(?![\w.\-])")
_PLAIN_PARAMETER = re.compile(r"(\d+)\)")


def _kind(instruction: Instruction) -> str:
    """What an instruction does: its opcode, and for a shorthand such as `call-start` the opcode that it starts."""
    base, wrapped = split_opcode(instruction.opcode) or (instruction.opcode, None)
    return wrapped if wrapped is not None and base == "async-start" else base


def _varies(instruction: Instruction) -> _Varies:
    return _Varies(f"the {instruction.opcode or 'unknown operation'} {_place(instruction)}")


def _place(instruction: Instruction) -> str:
    name = f"%{instruction.name}" if instruction.name else "without a name"
    return f"{name} (line {instruction.module.source.position(instruction.name_span.start).line})"


def _title(computation: Computation) -> str:
    if computation.name:
        return f"computation {computation.name}"
    return f"the computation on line {computation.module.source.position(computation.span.start).line}"


def _written_out(instruction: Instruction) -> _Varies:
    return _Varies(f"an operand of {_place(instruction)} that is written out in place")


def _operand(instruction: Instruction, number: int) -> Instruction | None:
    """An operand; None if it has no name of its own. Raises HloSyntaxError if there is none of that number."""
    names = _plain_operands(instruction)
    if names is None:
        names = [operand.name for operand in instruction.body.operands]
    if number >= len(names):
        raise instruction.error(f"{instruction.opcode} has {len(names)} operands, expects number {number + 1}")
    return _operand_of_name(instruction, number, names[number])


def _operands(instruction: Instruction) -> Iterator[Instruction | None]:
    """All operands; None for one that has no name of its own."""
    names = _plain_operands(instruction)
    if names is None:
        names = [operand.name for operand in instruction.body.operands]
    return (_operand_of_name(instruction, number, name) for number, name in enumerate(names))


def _operand_of_name(instruction: Instruction, number: int, name: str | None) -> Instruction | None:
    if name is None:
        return None
    operand = instruction.computation.find(name)
    if operand is None or operand.index >= instruction.index:  # for the message
        return instruction.operand_instruction(instruction.body.operands[number])
    return operand


def _plain_operands(instruction: Instruction) -> list[str | None] | None:
    """The operands' names in XLA's own writing, `add(%x, %y)`; None for any other writing."""
    start = _behind_opcode(instruction)
    plain = _PLAIN_OPERANDS.match(instruction.text, start) if start >= 0 else None
    return None if plain is None else _NAME.findall(plain.group())


def _behind_opcode(instruction: Instruction) -> int:
    """The offset behind `opcode(` in the instruction's text, found at a tenth of what reading the whole body costs.

    -1 if there are comments before it, blanks in it, or anything else that XLA does not write.
    """
    text, key = instruction.text, f" {instruction.opcode}("
    at = text.find(key)
    head = text[:at]
    return -1 if at < 0 or "/" in head or '"' in head or "'" in head else at + len(key)


def _origin(instruction: Instruction, path: Path) -> tuple[Instruction, Path]:
    """Where an element comes from: back through tuples and copies to what computes it."""
    while True:
        opcode = instruction.opcode
        if opcode == "get-tuple-element":
            source, inner = _operand(instruction, 0), (_index(instruction), *path)
        elif opcode == "tuple" and path:
            source, inner = _operand(instruction, path[0]), path[1:]
        elif opcode in _IDENTITY:
            source, inner = _operand(instruction, 0), path
        else:
            break
        if source is None:
            break
        instruction, path = source, inner
    return instruction, path if opcode in _TRACKED or opcode.endswith("-done") else ()


def _index(instruction: Instruction) -> int:
    start = _behind_opcode(instruction)
    plain = _PLAIN_INDEX.match(instruction.text, start) if start >= 0 else None
    if plain is not None:
        return int(plain.group(1))
    attribute = instruction.attribute_text("index")
    if attribute is None or not attribute.value_text.isdecimal():
        raise instruction.error("get-tuple-element expects index=N")
    return int(attribute.value_text)


def _parameter_number(instruction: Instruction) -> int:
    start = _behind_opcode(instruction)
    plain = _PLAIN_PARAMETER.match(instruction.text, start) if start >= 0 else None
    if plain is not None:
        return int(plain.group(1))
    start, end = instruction.body.operands_span
    text = instruction.module.text[start:end].strip()
    if not text.isdecimal():
        raise instruction.error("parameter expects its number")
    return int(text)


def _root(computation: Computation) -> Instruction:
    """The root; where it stands last, as in nearly all text, without reading the rest."""
    if not len(computation):
        raise computation.module.source.error(computation.span.start, f"{_title(computation)} has no instruction")
    last = computation.table.instruction(len(computation) - 1)
    return last if last.is_root else computation.root


# ---- who calls whom ------------------------------------------------------------------------------------------------

_CALLING = (
    *("to_apply", "calls", "condition", "body", "true_computation", "false_computation", "branch_computations"),
    *("called_computations", "select", "scatter"),
)
"""The attributes that name computations."""
_TOKEN = re.compile(
    r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|//[^\r\n]*|\"[^\"\\]*(?:\\[\s\S][^\"\\]*)*\""
    r"|(?P<brace>[{}])|%?(?P<name>[A-Za-z_][\w.\-]*)"
)


class _Call(NamedTuple):
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


class _CallGraph:
    """Who calls whom: one scan of the text for all names, then only the instructions that are asked for are read."""

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._callers: dict[Computation, tuple[_Call, ...]] = {}
        self._calls: dict[Instruction, tuple[_Call, ...]] = {}

    def calls(self, instruction: Instruction) -> tuple[_Call, ...]:
        """The computations that an instruction names. Raises HloSyntaxError for one that is not there."""
        found = self._calls.get(instruction)
        if found is None:
            calls = []
            for attribute in instruction.body.attributes:
                if attribute.name in _CALLING:
                    first = 1 if attribute.name == "false_computation" else 0
                    for i, computation in enumerate(self._named(attribute.value_span.start)):
                        calls.append(_Call(instruction, attribute.name, first + i, computation))
            found = self._calls[instruction] = tuple(calls)
        return found

    def called(self, instruction: Instruction, attribute: str) -> Computation:
        """The one computation that an attribute names. Raises HloSyntaxError if there is none."""
        for call in self.calls(instruction):
            if call.attribute == attribute:
                return call.computation
        raise instruction.error(f"{instruction.opcode} expects {attribute}=")

    def callers(self, computation: Computation) -> tuple[_Call, ...]:
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

    def _read_callers(self, computation: Computation) -> Iterator[_Call]:
        offsets = [computation.span.start] if computation.is_inline else self._mentions.get(computation.name, [])
        callers = dict.fromkeys(self._instruction_at(offset) for offset in sorted(offsets))
        for caller in callers:
            # async-update and async-done repeat what their async-start calls.
            if caller is not None and not caller.opcode.endswith(("-update", "-done")):
                yield from (call for call in self.calls(caller) if call.computation is computation)

    @cached_property
    def _inline(self) -> dict[int, Computation]:
        """The computations that are written out in place, by the offset of their brace."""
        return {c.span.start: c for c in self._module.computations if c.is_inline}

    @cached_property
    def _mentions(self) -> dict[str, list[int]]:
        """Name to the offsets where an attribute seems to name it; a string or a comment may look the same."""
        text = self._module.text
        mentions: dict[str, list[int]] = {}
        for attribute in _CALLING:
            key = attribute + "="
            at = text.find(key)
            while at >= 0:
                if not (text[at - 1].isalnum() or text[at - 1] in "_.-%"):
                    for offset, name in _targets(text, at + len(key)):
                        mentions.setdefault(name, []).append(offset)
                at = text.find(key, at + len(key))
        return mentions

    @cached_property
    def _by_start(self) -> tuple[list[int], list[Computation]]:
        ordered = sorted(self._module.computations, key=lambda c: c.body_span.start)
        return [c.body_span.start for c in ordered], ordered

    def _instruction_at(self, offset: int) -> Instruction | None:
        """The instruction around an offset, of the innermost computation that holds it."""
        starts, computations = self._by_start
        at = bisect_right(starts, offset) - 1
        while at >= 0 and computations[at].body_span.end <= offset:
            if not computations[at].is_inline:
                return None
            at -= 1
        if at < 0:
            return None
        table = computations[at].table
        index = table.index_at(offset)
        return table.instruction(index) if index >= 0 else None
