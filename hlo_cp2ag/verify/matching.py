"""Finds each instruction's counterpart in another computation.

Both computations are numbered from their parameters on: an instruction whose operands all have counterparts has a key,
and where both sides have instructions of one key these are counterparts and get one class. Where that stops, something
was rewritten: a site. What moves data there is evaluated in the symbolic domain on both sides, with classes as leaves,
and instructions whose values are equal on all devices for all data become counterparts too. Then numbering goes on.

What still has none is reported, paired by name or by its users so that the rest can be looked at.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable

from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.verify.comparison import disagreement, fingerprint
from hlo_cp2ag.verify.evaluation import Blocked, LeafTable, is_collective
from hlo_cp2ag.verify.findings import Difference, SiteMatch
from hlo_cp2ag.verify.side import CALLS, ClassOf, Side, has_data, lost_payload
from hlo_cp2ag.verify.symbols import Symbols, TooLarge
from hlo_cp2ag.verify.unmatched import Unmatched

Explain = Callable[[Computation, Computation], bool]


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
        self.explain = explain
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
        unmatched = Unmatched(self)
        while True:
            self._number()
            if self._match_sites():
                continue
            if not unmatched.give_up():
                break
        unmatched.compare_roots()
        unmatched.report_extra()
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
            self.settle(side, place, known)
            return
        met = self._keys.setdefault(key, ([], []))
        met[which].append(place)
        if met[0] and met[1]:
            known = self._key_class[key] = self.new_class()
            for i in met[0]:
                self.settle(self.before, i, known)
            for i in met[1]:
                self.settle(self.after, i, known)

    def new_class(self) -> int:
        """The number of a class that nothing is in yet."""
        self._next += 1
        return self._next - 1

    def settle(self, side: Side, place: int, number: int, by_site: bool = False) -> None:
        """Puts an instruction that has no class into one; `by_site` says that its value did it, not its key."""
        if side.classes[place] is not None:
            return
        side.classes[place] = number
        if by_site:
            side.by_site.add(place)
        for user in side.users[place]:
            side.waiting[user] -= 1
            if side.waiting[user] == 0 and side.classes[user] is None:
                heapq.heappush(side.ready, user)

    def open(self, side: Side) -> list[int]:
        """What has no counterpart yet, in text order."""
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
        for place in self.open(after):
            if self._may_be_traced(after, place, deep):
                waiting.setdefault(after.instruction(place).shape.to_text(), []).append(place)
        buckets: dict[str, dict[bytes, list[int]]] = {}
        computed: dict[str, dict[bytes, list[int]]] = {}
        moved: dict[str, dict[bytes, list[int]]] = {}
        any_settled = False
        for place in self.open(before):
            # What was found meanwhile may have settled it, or not need it any more.
            if before.classes[place] is not None or not self._is_asked_for(place, deep):
                continue
            started = time.perf_counter()
            mark = self._mark(before, place, deep)
            if mark is None or (lost_payload(before.value(place, deep)) and not lossy):
                continue
            shape = before.instruction(place).shape.to_text()
            bucket = buckets.setdefault(shape, {})
            # What hung on something without counterpart may not any more.
            waiting[shape] = self._put(bucket, after, waiting.get(shape, []), deep)
            found = bucket.get(mark, [])
            if not found and not has_data(before.value(place, deep)):
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
                candidates = [other for other in candidates if not lost_payload(after.value(other, deep))]
            leaf = self._leaf_of(before, place, deep)
            if not candidates and leaf is None:
                continue
            chosen = self._best(place, candidates) if candidates else None
            settled = None if chosen is None else after.classes[chosen]
            number = leaf or settled or self.new_class()
            if not before.computable[place] or is_collective(before.instruction(place).opcode):
                self._note_site(place, chosen, deep, started)
            self.settle(before, place, number, by_site=True)
            if chosen is not None:
                self.settle(after, chosen, number, by_site=True)
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
        for place in self.open(after):
            if after.classes[place] is not None or not after.is_output(place):
                continue
            mark = self._mark(after, place, deep) if self._may_be_traced(after, place, deep) else None
            if mark is None or lost_payload(after.value(place, deep)):
                continue
            number = self._leaf_of(after, place, deep)
            if number is None and (deep or not has_data(after.value(place, deep))):
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
                self.settle(after, place, number, by_site=True)
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
            and side.movers[i] not in CALLS
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
            twin = self.same_name(before.instruction(user))
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

    def same_name(self, instruction: Instruction) -> int | None:
        """The instruction of the second computation with the same name and opcode."""
        twin = self.after.computation.find(instruction.name)
        if twin is None or twin.opcode != instruction.opcode:
            return None
        return self.after.place.get(id(twin))

    def _note_site(self, place: int, other: int | None, deep: bool, started: float) -> None:
        before, after = self.before, self.after
        values = [before.value(place, deep)] + ([] if other is None else [after.value(other, deep)])
        self.sites.append(
            SiteMatch(
                before.instruction(place),
                None if other is None else after.instruction(other),
                lost_payload=any(lost_payload(value) for value in values),
                before_region=before.region(place, deep),
                after_region=[] if other is None else after.region(other, deep),
                seconds=time.perf_counter() - started,
            )
        )
