"""Finds each instruction's counterpart in another computation.

Both computations are numbered from their parameters on: an instruction whose operands all have counterparts has a key,
and where both sides have instructions of one key these are counterparts and get one class. Where that stops, something
was rewritten: a site. What moves data there is evaluated in the symbolic domain on both sides, with classes as leaves,
and instructions whose values are equal on all devices for all data become counterparts too. Then numbering goes on.

What still has none is reported, paired by name or by its users so that the rest can be looked at.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hlo_cp2ag.executor.plan import Node
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.verify.comparison import Disagreement, disagreement, fingerprint
from hlo_cp2ag.verify.control_movement import mover_of
from hlo_cp2ag.verify.evaluation import Blocked, LeafTable, ModuleEvaluation, is_collective
from hlo_cp2ag.verify.graph import Keys, is_stateful
from hlo_cp2ag.verify.movement import Moved, unknown_of
from hlo_cp2ag.verify.symbols import Symbols, TooLarge

_CALLS = frozenset(("call", "fusion", "while", "conditional", "async-start"))
_COMPUTES = frozenset(("add", "or", "xor", "and", "maximum", "minimum", "reduce", "convert"))
"""Ops that move data beside zeros only, or there and back: what they are given elsewhere is a value of its own."""

ClassOf = Callable[[Computation], int]
Explain = Callable[[Computation, Computation], bool]


@dataclass
class SiteMatch:
    """An instruction of the first computation that was rewritten, and what stands for it in the second."""

    before: Instruction
    after: Instruction | None
    disagreement: Disagreement | None = None
    """None if they are shown to be equal."""
    why: str = ""
    """Why there is nothing to compare it with, if it is so."""
    lost_payload: bool = False
    before_region: list[Instruction] = field(default_factory=list)
    """What the site consists of, in text order, its output last."""
    after_region: list[Instruction] = field(default_factory=list)
    stands_for: tuple[Instruction, ...] = ()
    """Other instructions of the first computation that became the same value."""
    seconds: float = 0.0


@dataclass
class Difference:
    """Something outside the sites that is not the same."""

    text: str
    before: Instruction | None = None
    after: Instruction | None = None
    certain: bool = True
    """Whether the graphs are not the same for certain, rather than not understood."""


class Side:
    """One of the two computations."""

    def __init__(self, evaluation: ModuleEvaluation, computation: Computation, keys: Keys) -> None:
        self.evaluation = evaluation
        self.computation = computation
        self.keys = keys
        self.nodes: list[Node] = evaluation.index.nodes(computation)
        self.place = {id(node.instruction): i for i, node in enumerate(self.nodes)}
        self.operands = [tuple(self.place[id(o)] for o in node.operands) for node in self.nodes]
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for i, operands in enumerate(self.operands):
            for operand in dict.fromkeys(operands):
                self.users[operand].append(i)
        self.root = self.place[id(computation.root)]
        self.classes: list[int | None] = [None] * len(self.nodes)
        self.by_site: set[int] = set()
        """Instructions that got their class from a site."""
        self.waiting = [len(set(operands)) for operands in self.operands]
        self.ready = [i for i, count in enumerate(self.waiting) if count == 0]
        self.computable = [evaluation.is_computable(node.instruction, node.operands) for node in self.nodes]
        self.movers = [mover_of(node.instruction.opcode) for node in self.nodes]
        self._values: dict[tuple[int, bool], Moved] = {}
        self._blocked: dict[tuple[int, bool], int] = {}
        self._ordinals: dict[object, int] = {}

    def instruction(self, place: int) -> Instruction:
        """The instruction at a place."""
        return self.nodes[place].instruction

    def is_output(self, place: int) -> bool:
        """Whether something but movement takes the value."""
        return place == self.root or any(self._takes_value(user) for user in self.users[place])

    def _takes_value(self, user: int) -> bool:
        mover = self.movers[user]
        return not self.computable[user] and (mover is None or mover in _CALLS or mover in _COMPUTES)

    def can_be_traced(self, place: int) -> bool:
        """Whether an instruction moves data or computes from device ids and constants."""
        opcode = self.instruction(place).opcode
        return self.movers[place] is not None or self.computable[place] or opcode == "constant"

    def key(self, place: int, class_of: ClassOf) -> object:
        """The key of an instruction all of whose operands have classes."""
        node = self.nodes[place]
        classes = tuple(self.classes[o] or 0 for o in self.operands[place])
        key: object = self.keys.key(node, classes, class_of)
        if is_stateful(node.instruction):
            self._ordinals[key] = self._ordinals.get(key, -1) + 1
            key = (key, self._ordinals[key])
        return key

    # ---- values

    def forced_value(self, place: int, deep: bool = False) -> Moved:
        """The symbolic value of an instruction, in which what has no counterpart and does not move data is unknown."""
        while True:
            try:
                return self.value(place, deep)
            except Blocked as blocked:
                by = self.place[id(blocked.by)]
                shape = blocked.by.shape
                known = [self._values.get((o, deep)) for o in self.operands[by]]
                why = next((v.why for v in known if isinstance(v, Symbols) and v.why), "")
                text = f"{blocked.by.opcode} {blocked.by.name} computes with data"
                self._values[by, deep] = unknown_of(shape, f"{text} ({why})" if why else text)
                self._blocked.clear()

    def value(self, place: int, deep: bool = False) -> Moved:
        """The symbolic value of an instruction. Raises Blocked.

        Instructions with classes are leaves; `deep` looks behind those that only move data.
        """
        blocked = self._blocked.get((place, deep))
        if blocked is not None and self.classes[blocked] is None:
            raise Blocked(self.instruction(blocked))
        stack = [place]
        while stack:
            at = stack[-1]
            if (at, deep) in self._values:
                stack.pop()
            elif self._is_leaf(at, deep):
                node = self.nodes[at]
                try:
                    leaf = self.evaluation.leaf(("class", self.classes[at]), node.instruction.shape)
                except TooLarge:
                    leaf = unknown_of(node.instruction.shape, "the values have more elements than can be counted")
                self._values[at, deep] = leaf
            elif not self.can_be_traced(at):
                self._blocked[place, deep] = at
                raise Blocked(self.instruction(at))
            else:
                missing = [o for o in self.operands[at] if (o, deep) not in self._values]
                if missing:
                    stack += missing
                else:
                    self._values[at, deep] = self._apply(at, deep)
        return self._values[place, deep]

    def _is_leaf(self, place: int, deep: bool) -> bool:
        if self.classes[place] is None or self.computable[place]:
            return False
        if self.evaluation.has_computable_part(self.instruction(place)):
            return False
        mover = self.movers[place]
        return not (deep and mover is not None and mover not in _CALLS and mover not in _COMPUTES)

    def _apply(self, place: int, deep: bool) -> Moved:
        node = self.nodes[place]
        self.evaluation.steps = 0
        try:
            return self.evaluation.apply(node, [self._values[o, deep] for o in self.operands[place]])
        except TooLarge as error:
            why = f"too large: {error.size:,} bytes of symbols at {node.instruction.name} (--max-memory)"
        except HloError as error:
            why = error.diagnostics[0].message if not isinstance(error.diagnostics[0], str) else error.diagnostics[0]
        return unknown_of(node.instruction.shape, why)

    def forget_values(self) -> None:
        """Lets go of what was evaluated."""
        self._values.clear()

    def region(self, place: int, deep: bool = False) -> list[Instruction]:
        """What was followed to evaluate an instruction, in text order."""
        found = {place}
        stack = [place]
        while stack:
            at = stack.pop()
            for operand in self.operands[at]:
                if operand not in found and not self._is_leaf(operand, deep) and self.can_be_traced(operand):
                    found.add(operand)
                    stack.append(operand)
        return [self.instruction(i) for i in sorted(found)]


class Matching:
    """Matches two computations; see the module's docstring."""

    def __init__(
        self,
        before: Side,
        after: Side,
        class_of_before: ClassOf,
        class_of_after: ClassOf,
        explain: Explain,
        lanes: Array | None = None,
    ) -> None:
        """`explain` reports what differs between two computations that instructions of both sides call; false where it
        finds nothing. `lanes` are the devices that may come here: values have to be equal on these alone; None for all.
        """
        self._explain = explain
        self.lanes = lanes
        self.before = before
        self.after = after
        self._class_of = {id(before): class_of_before, id(after): class_of_after}
        self._keys: dict[object, tuple[list[int], list[int]]] = {}
        self._key_class: dict[object, int] = {}
        self._next = 1
        self.sites: list[SiteMatch] = []
        self.differences: list[Difference] = []
        self.extra: list[Instruction] = []
        """What the second computation has besides and no site needs."""
        table = LeafTable(before.evaluation.context.grid.device_count)
        before.evaluation.table = after.evaluation.table = table
        self.table = table

    # ---- numbering

    def run(self) -> None:
        """Finds all counterparts; what has none is in `sites` and `differences`."""
        while True:
            self._number()
            if self._match_sites():
                continue
            if not self._give_up():
                break
        self._compare_roots()
        self._report_extra()
        self.before.forget_values()
        self.after.forget_values()

    def _number(self) -> None:
        sides = (self.before, self.after)
        for side in sides:
            heapq.heapify(side.ready)
        while self.before.ready or self.after.ready:
            for which, side in enumerate(sides):
                while side.ready:
                    place = heapq.heappop(side.ready)
                    if side.classes[place] is None:
                        self._meet(which, side, place)

    def _meet(self, which: int, side: Side, place: int) -> None:
        key = side.key(place, self._class_of[id(side)])
        known = self._key_class.get(key)
        if known is not None:
            self._settle(side, place, known)
            return
        met = self._keys.setdefault(key, ([], []))
        met[which].append(place)
        if met[0] and met[1]:
            known = self._key_class[key] = self._new_class()
            for i in met[0]:
                self._settle(self.before, i, known)
            for i in met[1]:
                self._settle(self.after, i, known)

    def _new_class(self) -> int:
        self._next += 1
        return self._next - 1

    def _settle(self, side: Side, place: int, number: int, by_site: bool = False) -> None:
        if side.classes[place] is not None:
            return
        side.classes[place] = number
        if by_site:
            side.by_site.add(place)
        for user in side.users[place]:
            side.waiting[user] -= 1
            if side.waiting[user] == 0 and side.classes[user] is None:
                heapq.heappush(side.ready, user)

    def _open(self, side: Side) -> list[int]:
        return [i for i, number in enumerate(side.classes) if number is None]

    # ---- sites

    def _match_sites(self) -> bool:
        for lossy in (False, True):
            for deep in (False, True):
                if self._match_by_value(deep, lossy):
                    return True
        return False

    def _match_by_value(self, deep: bool, lossy: bool) -> bool:
        """Instructions without counterparts whose values are equal, in text order."""
        before, after = self.before, self.after
        waiting: dict[str, list[int]] = {}
        for place in self._open(after):
            if self._may_be_traced(after, place, deep):
                waiting.setdefault(after.instruction(place).shape.to_text(), []).append(place)
        buckets: dict[str, dict[bytes, list[int]]] = {}
        computed: dict[str, dict[bytes, list[int]]] = {}
        moved: dict[str, dict[bytes, list[int]]] = {}
        any_settled = False
        for place in self._open(before):
            # What was found meanwhile may have settled it, or not need it any more.
            if before.classes[place] is not None or not self._is_asked_for(place, deep):
                continue
            started = time.perf_counter()
            mark = self._mark(before, place, deep)
            if mark is None or (_lost(before.value(place, deep)) and not lossy):
                continue
            shape = before.instruction(place).shape.to_text()
            bucket = buckets.setdefault(shape, {})
            # What hung on something without counterpart may not any more.
            waiting[shape] = self._put(bucket, after, waiting.get(shape, []), deep)
            found = bucket.get(mark, [])
            if not found and not _has_data(before.value(place, deep)):
                # Zeros may be there already, for other users.
                if shape not in computed:
                    same = (i for i in self._settled_computed(after) if after.instruction(i).shape.to_text() == shape)
                    computed[shape] = {}
                    self._put(computed[shape], after, same, deep)
                found = computed[shape].get(mark, [])
            if not found and deep:
                # Two equal ones may have become one.
                if shape not in moved:
                    moved[shape] = {}
                    self._put(moved[shape], after, self._settled_movers(after, shape), deep)
                found = moved[shape].get(mark, [])
            candidates = [other for other in found if self._is_same(place, other, deep)]
            if not lossy:
                candidates = [other for other in candidates if not _lost(after.value(other, deep))]
            leaf = self._leaf_of(before, place, deep)
            if not candidates and leaf is None:
                continue
            chosen = self._best(place, candidates) if candidates else None
            settled = None if chosen is None else after.classes[chosen]
            number = leaf or settled or self._new_class()
            if not before.computable[place] or is_collective(before.instruction(place).opcode):
                self._note_site(place, chosen, deep, started)
            self._settle(before, place, number, by_site=True)
            if chosen is not None:
                self._settle(after, chosen, number, by_site=True)
            self._number()  # what only hangs on this is no site of its own
            any_settled = True
        any_settled = self._match_into_known(deep) or any_settled
        if any_settled:
            before.forget_values()
            after.forget_values()
        return any_settled

    def _is_asked_for(self, place: int, deep: bool) -> bool:
        before = self.before
        return self._may_be_traced(before, place, deep) and (not before.computable[place] or before.is_output(place))

    def _may_be_traced(self, side: Side, place: int, deep: bool) -> bool:
        return side.can_be_traced(place) and (deep or side.movers[place] != "while")

    def _mark(self, side: Side, place: int, deep: bool) -> bytes | None:
        """What equal values have in common; None for one that hangs on something without counterpart."""
        try:
            value = side.value(place, deep)
            return fingerprint(
                value, side.instruction(place).shape, side.evaluation.context.grid.device_count, self.lanes
            )
        except (Blocked, TooLarge):
            return None

    def _put(self, bucket: dict[bytes, list[int]], side: Side, places: Iterable[int], deep: bool) -> list[int]:
        """Adds instructions by what equal values have in common; returns those that have no value yet."""
        left: list[int] = []
        for place in places:
            mark = self._mark(side, place, deep)
            if mark is None:
                left.append(place)
            else:
                bucket.setdefault(mark, []).append(place)
        return left

    def _match_into_known(self, deep: bool) -> bool:
        """Instructions of the second computation that are some value that has a class already."""
        before, after = self.before, self.after
        any_settled = False
        known: dict[str, dict[bytes, list[int]]] = {}
        for place in self._open(after):
            if after.classes[place] is not None or not after.is_output(place):
                continue
            mark = self._mark(after, place, deep) if self._may_be_traced(after, place, deep) else None
            if mark is None or _lost(after.value(place, deep)):
                continue
            number = self._leaf_of(after, place, deep)
            if number is None and (deep or not _has_data(after.value(place, deep))):
                shape = after.instruction(place).shape.to_text()
                if shape not in known:
                    same = [i for i in self._settled_computed(before) if before.instruction(i).shape.to_text() == shape]
                    known[shape] = {}
                    self._put(known[shape], before, same, deep)
                    if deep:
                        self._put(known[shape], before, self._settled_movers(before, shape), deep)
                equal = (o for o in known[shape].get(mark, ()) if self._is_same(o, place, deep))
                number = next((before.classes[other] for other in equal), None)
            if number is not None:
                # Nothing was rewritten for it, but devices may have to meet in it.
                self.extra += after.region(place, deep)
                self._settle(after, place, number, by_site=True)
                self._number()
                any_settled = True
        return any_settled

    def _settled_movers(self, side: Side, shape: str) -> list[int]:
        return [
            i
            for i, number in enumerate(side.classes)
            if number is not None
            and not side.computable[i]
            and side.movers[i] is not None
            and side.movers[i] not in _CALLS
            and side.instruction(i).shape.to_text() == shape
        ]

    def _settled_computed(self, side: Side) -> list[int]:
        return [i for i, number in enumerate(side.classes) if number is not None and side.computable[i]]

    def _is_same(self, place: int, other: int, deep: bool) -> bool:
        shape = self.before.instruction(place).shape
        try:
            return (
                disagreement(self.before.value(place, deep), self.after.value(other, deep), shape, self.lanes) is None
            )
        except TooLarge:
            return False

    def _leaf_of(self, side: Side, place: int, deep: bool) -> int | None:
        """The class whose instructions' value an array is, element for element."""
        value, shape = side.value(place, deep), side.instruction(place).shape
        if not isinstance(value, Symbols) or value.is_empty or value.conversions or value.lost_payload:
            return None
        first = int(value.codes.reshape(-1)[0])
        if first <= 0:
            return None
        key, _, _ = self.table.find(first)
        if len(key) != 2 or key[0] != "class" or not isinstance(key[1], int):
            return None
        for owner in (self.before, self.after):
            if key[1] in owner.classes:
                own = owner.instruction(owner.classes.index(key[1])).shape
                if own.to_text() != shape.to_text():
                    return None
                try:
                    leaf = side.evaluation.leaf(key, own)
                    return key[1] if disagreement(leaf, value, shape, self.lanes) is None else None
                except TooLarge:
                    return None
        return None

    def _best(self, place: int, candidates: list[int]) -> int:
        """Which of several equal counterparts is meant: the one whose users do what this one's users do."""
        before, after = self.before, self.after
        if len(candidates) == 1:
            return candidates[0]
        if place == before.root and after.root in candidates:
            return after.root
        for user in before.users[place]:
            twin = self._same_name(before.instruction(user))
            if twin is not None and len(after.operands[twin]) == len(before.operands[user]):
                other = after.operands[twin][before.operands[user].index(place)]
                if other in candidates:
                    return other
        tasks = {before.instruction(user).opcode for user in before.users[place]}
        for fits in (lambda c: any(after.instruction(u).opcode in tasks for u in after.users[c]), after.is_output):
            for other in candidates:
                if fits(other):
                    return other
        return candidates[0]

    def _note_site(self, place: int, other: int | None, deep: bool, started: float) -> None:
        before, after = self.before, self.after
        values = [before.value(place, deep)] + ([] if other is None else [after.value(other, deep)])
        self.sites.append(
            SiteMatch(
                before.instruction(place),
                None if other is None else after.instruction(other),
                lost_payload=any(_lost(value) for value in values),
                before_region=before.region(place, deep),
                after_region=[] if other is None else after.region(other, deep),
                seconds=time.perf_counter() - started,
            )
        )

    # ---- what has no counterpart

    def _give_up(self) -> bool:
        """Reports one thing that has no counterpart, and assumes one, so that what follows is looked at as well."""
        before = self.before
        needed = self._needed()
        for place in needed:
            if is_collective(before.instruction(place).opcode) and self._report_site(place, only_refuted=True):
                return True
        for place in needed:
            mover = before.movers[place]
            is_lone = not before.computable[place] and (mover is None or mover in _CALLS or mover in _COMPUTES)
            if before.can_be_traced(place) and not (is_lone and before.waiting[place] == 0):
                if before.is_output(place) and self._report_site(place):
                    return True
            elif before.waiting[place] == 0:
                self._report_difference(place)
                return True
        return False

    def _needed(self) -> list[int]:
        """What has no counterpart, and is not only there for what has one."""
        before = self.before
        needed: set[int] = set()
        for place in reversed(self._open(before)):
            is_end = not before.users[place] and not before.can_be_traced(place)
            is_asked_for = any(user in needed for user in before.users[place])
            if place == before.root or is_end or is_stateful(before.instruction(place)) or is_asked_for:
                needed.add(place)
        return sorted(needed)

    def _report_site(self, place: int, only_refuted: bool = False) -> bool:
        """Reports an instruction that stands for no equal one. Where it happens is best said at the collective itself,
        if what stands for that is known and is wrong for certain (`only_refuted`)."""
        started = time.perf_counter()
        before, after = self.before, self.after
        try:
            before.value(place)
        except Blocked:
            return False
        instruction = before.instruction(place)
        other = self._aligned(place)
        if only_refuted and (other is None or self.after.classes[other] is not None):
            return False
        if other is not None:
            try:
                found = self._judged(place, other) or Disagreement(False, "it is not traced")
                site = SiteMatch(instruction, after.instruction(other), found)
                site.after_region = after.region(other)
            except TooLarge as error:
                why = f"too large: {error.size:,} bytes of symbols (--max-memory)"
                site = SiteMatch(instruction, after.instruction(other), Disagreement(False, why))
        else:
            site = SiteMatch(instruction, None, why="nothing stands for it in the second module")
        if only_refuted and (site.disagreement is None or not site.disagreement.refuted):
            return False
        if other is not None and site.disagreement is not None and not site.disagreement.refuted:
            same_op = after.instruction(other).opcode == instruction.opcode
            if same_op and before.waiting[place] == 0 and after.waiting[other] == 0:
                self._report_difference(place)
                return True
        site.before_region = before.region(place)
        site.seconds = time.perf_counter() - started
        self.sites.append(site)
        number = self._new_class()
        self._settle(before, place, number, by_site=True)
        if other is not None:
            self._settle(after, other, number, by_site=True)
        before.forget_values()
        after.forget_values()
        return True

    def _judged(self, place: int, other: int) -> Disagreement | None:
        """Where two instructions differ, looked at as deeply as can be; None if they do not. Raises TooLarge."""
        before, after = self.before, self.after
        shape, new = before.instruction(place).shape, after.instruction(other).shape
        if shape.to_text() != new.to_text():
            return Disagreement(False, f"it is {new.to_text()}, not {shape.to_text()}")
        found = disagreement(before.forced_value(place), after.forced_value(other), shape, self.lanes)
        if found is None:
            return None
        with contextlib.suppress(Blocked):
            found = disagreement(before.value(place, True), after.value(other, True), shape, self.lanes)
        if found is None or not found.refuted or self._is_certain(found):
            return found
        why = "it takes data from another instruction, and nothing says whether the two are the same"
        return Disagreement(False, why, found.element, found.device, found.index)

    def _is_certain(self, found: Disagreement) -> bool:
        """Whether two elements differ for some inputs. Values of two instructions may be equal all the same, unless both
        are parameters."""
        if found.expected <= 0 or found.got <= 0:
            return True
        one, two = self.table.find(found.expected)[0], self.table.find(found.got)[0]
        return one == two or (self._is_parameter(one) and self._is_parameter(two))

    def _is_parameter(self, key: tuple[object, ...]) -> bool:
        return any(
            key[1] in side.classes and side.instruction(side.classes.index(key[1])).opcode == "parameter"
            for side in (self.before, self.after)
        )

    def _aligned(self, place: int) -> int | None:
        """What most likely stands for an instruction: by its users, by its name, or as the root."""
        before, after = self.before, self.after
        if place == before.root:
            return after.root if after.classes[after.root] is None else None
        for user in before.users[place]:
            twin = self._same_name(before.instruction(user))
            if twin is not None and len(after.operands[twin]) == len(before.operands[user]):
                other = after.operands[twin][before.operands[user].index(place)]
                if (
                    after.classes[other] is None
                    or after.instruction(other).shape.to_text() == before.instruction(place).shape.to_text()
                ):
                    return other
        twin = self._same_name(before.instruction(place))
        if twin is not None and after.classes[twin] is None:
            return twin
        shape = before.instruction(place).shape.to_text()
        fitting = [
            i
            for i in self._open(after)
            if after.can_be_traced(i) and after.is_output(i) and after.instruction(i).shape.to_text() == shape
        ]
        return fitting[0] if fitting else None

    def _same_name(self, instruction: Instruction) -> int | None:
        twin = self.after.computation.find(instruction.name)
        if twin is None or twin.opcode != instruction.opcode:
            return None
        return self.after.place.get(id(twin))

    def _report_difference(self, place: int) -> None:
        before, after = self.before, self.after
        instruction = before.instruction(place)
        other = self._same_name(instruction)
        if other is None or after.classes[other] is not None:
            open_ones = [
                i
                for i in self._open(after)
                if after.instruction(i).opcode == instruction.opcode
                and after.instruction(i).shape.to_text(False) == instruction.shape.to_text(False)
                and len(after.operands[i]) == len(before.operands[place])
            ]
            other = open_ones[0] if open_ones else None
        number = self._new_class()
        if other is None:
            text = f"{instruction.opcode} {instruction.name} has no counterpart in the second module"
            self.differences.append(Difference(text, instruction))
        else:
            text, certain = self._what_differs(place, other)
            if text:
                self.differences.append(Difference(text, instruction, after.instruction(other), certain))
            self._settle(after, other, number)
        self._settle(before, place, number)

    def _what_differs(self, place: int, other: int) -> tuple[str, bool]:
        """What is not the same in two instructions, and whether that is certain; nothing if it is said elsewhere."""
        before, after = self.before, self.after
        a, b = before.instruction(place), after.instruction(other)
        where = f"{a.opcode} {a.name}"
        if a.opcode == "constant" and "..." in a.text and "..." in b.text:
            return (
                f"{where} is elided in both modules, and nothing says that the values are the same: "
                "dump with large constants",
                False,
            )
        if a.shape.to_text() != b.shape.to_text():
            return f"{where} is {b.shape.to_text()} in the second module, {a.shape.to_text()} in the first", True
        if len(before.operands[place]) != len(after.operands[other]):
            return f"{where} has {len(after.operands[other])} operands, not {len(before.operands[place])}", True
        for number, (x, y) in enumerate(zip(before.operands[place], after.operands[other], strict=True)):
            if before.classes[x] is None or before.classes[x] != after.classes[y]:
                wanted, found = before.instruction(x), after.instruction(y)
                return f"operand {number} of {where} is {found.name}, not what stands for {wanted.name}", True
        own = {t.name: before.keys.value(a, t) for t in a.body.attributes}
        new = {t.name: after.keys.value(b, t) for t in b.body.attributes}
        for name in {**own, **new}:
            if own.get(name) != new.get(name):
                mine, theirs = a.attribute_text(name), b.attribute_text(name)
                if mine is None or theirs is None:
                    missing = "second" if theirs is None else "first"
                    return f"{where} has no {name} in the {missing} module", True
                if name not in ("calls", "to_apply", "body", "condition", "branch_computations"):
                    return f"{name} of {where} is {theirs.value_text}, not {mine.value_text}", True
        if a.opcode == "constant":
            return f"{where} has another value", True
        called, new_called = before.evaluation.index.all_called(a), after.evaluation.index.all_called(b)
        explained = [self._explain(c, new_called[name]) for name, c in called.items() if name in new_called]
        return ("" if any(explained) else f"what {where} calls differs"), True

    # ---- in the end

    def _compare_roots(self) -> None:
        before, after = self.before, self.after
        own, new = before.classes[before.root], after.classes[after.root]
        if own is not None and own == new:
            return
        a, b = before.instruction(before.root), after.instruction(after.root)
        # A root that was reported as a site or a difference has a counterpart by then.
        if own is None and any(a in site.before_region for site in self.sites if site.disagreement or site.why):
            return
        text = f"the result is {b.opcode} {b.name}, not what stands for {a.opcode} {a.name}"
        try:
            found = self._judged(before.root, after.root)
        except TooLarge as error:
            found = Disagreement(False, f"too large: {error.size:,} bytes of symbols (--max-memory)")
        if found is not None:
            text += "" if found.refuted else f": {found.why}"
            self.differences.append(Difference(text, a, b, found.refuted))
            return
        # What the roots are made of was rewritten: what it leans on is said of a site.
        roots = [side.forced_value(side.root, deep) for side in (before, after) for deep in (False, True)]
        regions = before.region(before.root, True), after.region(after.root, True)
        lost = any(map(_lost, roots))
        self.sites.append(SiteMatch(a, b, lost_payload=lost, before_region=regions[0], after_region=regions[1]))

    def _report_extra(self) -> None:
        """What the second computation has besides: harmless if it only moves data, or computes from device ids."""
        after = self.after
        has_failed = bool(self.differences) or any(site.disagreement or site.why for site in self.sites)
        for place in self._open(after):
            instruction = after.instruction(place)
            self._refuse_wrong(after.nodes[place])
            if after.can_be_traced(place):
                if not after.users[place] and place != after.root:
                    self._refuse_broken(place)
                    self.extra += after.region(place)
            elif not has_failed or after.waiting[place] == 0:
                text = f"{instruction.opcode} {instruction.name} is in the second module only"
                self.differences.append(Difference(text, None, instruction))

    def _refuse_wrong(self, node: Node) -> None:
        """What no value hangs on still has to be an instruction."""
        difference = wrong_instruction(self.after.evaluation, node)
        if difference is not None:
            self.differences.append(difference)

    def _refuse_broken(self, place: int) -> None:
        """A collective that nobody needs still has to be one."""
        try:
            value = self.after.value(place)
        except Blocked:
            return
        instruction = self.after.instruction(place)
        if isinstance(value, Symbols) and value.has_unknown and value.why:
            text = f"{instruction.opcode} {instruction.name} is in the second module only: {value.why}"
            self.differences.append(Difference(text, None, instruction, certain=False))


def wrong_instruction(evaluation: ModuleEvaluation, node: Node) -> Difference | None:
    """What is wrong with an instruction of the second module that has no counterpart."""
    try:
        evaluation.check(node)
    except HloError as error:
        first = error.diagnostics[0]
        message = first if isinstance(first, str) else first.message
        if not message.startswith("the executor does not support"):
            return Difference(f"{node.instruction.opcode} {node.instruction.name}: {message}", None, node.instruction)
    return None


def _has_data(value: Moved) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_data, value))
    return isinstance(value, Symbols) and (value.has_data or value.has_unknown)


def _lost(value: Moved) -> bool:
    if isinstance(value, tuple):
        return any(map(_lost, value))
    return isinstance(value, Symbols) and value.lost_payload
