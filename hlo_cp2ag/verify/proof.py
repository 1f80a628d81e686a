"""Checks 1 and 2 over whole modules: computations are paired, callees before callers, and each pair is matched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.module import Computation, HloModule
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.lowering.call_graph import CallGraph
from hlo_cp2ag.lowering.eligibility import left_for_its_place
from hlo_cp2ag.lowering.uniformity import Arrival, Uniformity
from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.verify.conditions import meet_more, with_called
from hlo_cp2ag.verify.entering import Entering
from hlo_cp2ag.verify.evaluation import LeafTable, ModuleEvaluation, is_collective
from hlo_cp2ag.verify.findings import Difference, SiteMatch
from hlo_cp2ag.verify.graph import Keys
from hlo_cp2ag.verify.layouts import changed_layout
from hlo_cp2ag.verify.matching import Explain, Matching
from hlo_cp2ag.verify.report import Remark, SiteVerdict, UntouchedVerdict
from hlo_cp2ag.verify.side import Side
from hlo_cp2ag.verify.site_proof import place_of, site_verdict
from hlo_cp2ag.verify.unmatched import wrong_instruction
from hlo_cp2ag.verify.untouched import annotation_differences, effects_difference, header_differences, order_difference

_WORD = re.compile(r"[A-Za-z_][\w.\-]*")
_MOST_TRIALS = 64
"""So many computations of the same signature are tried where no name says which one it is."""

Signature = tuple[str, ...]


class Proof:
    """The proof that one module computes what the other one does, as far as it goes."""

    def __init__(
        self,
        before: HloModule,
        after: HloModule,
        grid: ProcessGrid,
        profile: str,
        *,
        same_constants: bool = False,
        ignore_nan_payload: bool = False,
    ) -> None:
        """`same_constants` says that the second module was made of the first: elided constants of one name are equal."""
        self.before = before
        self.after = after
        self.grid = grid
        self.profile = profile
        self.sites: list[SiteVerdict] = []
        self._same_constants = same_constants
        self._ignore_nan_payload = ignore_nan_payload
        self._differences: list[Difference] = []
        values: dict[tuple[str, str, str], object] = {}
        table = LeafTable(grid.device_count)
        self._evaluations = []
        self._keys = []
        for module in (before, after):
            index = ModuleIndex(module)
            evaluation = ModuleEvaluation(module, index, grid, profile, table, same_constants)
            self._evaluations.append(evaluation)
            self._keys.append(Keys(index, values, evaluation.elided_key))
        self._paired: dict[int, int] = {}
        """By a computation of the first module: the number that it shares with its counterpart."""
        self._taken: dict[int, int] = {}
        """The same by a computation of the second module."""
        self._by_name: set[str] = set()
        """Names of computations that are each other's counterparts, nothing in them having been found different."""
        self._on_some_devices: set[int] = set()
        """Computations of the second module that were compared on the devices alone that come into them."""
        self._busy: set[int] = set()
        self._explained: dict[tuple[int, int], bool] = {}
        self._next = 1

    def run(self) -> None:
        """Fills `sites` and `untouched`. Raises HloSyntaxError where the first module is no module."""
        self._differences += header_differences(self.before, self.after, self.grid)
        for computation in self._order():
            self._class_of_before(computation)
        self._differences += self._missing_computations()
        self._differences += self._wrong_instructions()

    def _missing_computations(self) -> Iterator[Difference]:
        """Computations without counterpart that nobody calls; of others, who calls them is looked at."""
        known = set(self._taken.values())
        missing = [c for c in self.before.computations if self._paired[id(c)] not in known and not c.is_inline]
        if not missing:
            return
        named = [(c, self._words(c)) for c in self.before.computations]
        for computation in missing:
            if not any(computation.name in words for other, words in named if other is not computation):
                text = f"computation {computation.name}, which nobody calls, has no counterpart in the second module"
                yield Difference(text, certain=False)

    def _wrong_instructions(self) -> Iterator[Difference]:
        """In computations without counterpart, of which perhaps only a part was evaluated."""
        evaluation = self._evaluations[1]
        for computation in (*self.after.computations, *self.after.inline_computations):
            if computation is not self.after.entry and id(computation) not in self._taken:
                for node in evaluation.index.nodes(computation):
                    found = wrong_instruction(evaluation, node)
                    if found is not None:
                        yield found

    @property
    def untouched(self) -> UntouchedVerdict:
        """Check 1."""
        remarks = tuple(
            Remark(
                d.text,
                None if d.before is None else place_of(d.before),
                None if d.after is None else place_of(d.after),
            )
            for d in self._differences
        )
        if not remarks:
            return UntouchedVerdict("shown")
        certain = any(d.certain for d in self._differences)
        return UntouchedVerdict("failed" if certain else "not shown", remarks)

    # ---- pairs of computations

    def _order(self) -> Iterator[Computation]:
        """The first module's computations, callees first as far as names tell."""
        names = self._names_before
        seen: set[int] = set()
        for start in self.before.computations:
            stack = [(start, False)]
            while stack:
                computation, is_done = stack.pop()
                if is_done:
                    yield computation
                elif id(computation) not in seen:
                    seen.add(id(computation))
                    stack.append((computation, True))
                    for name in sorted(names & self._words(computation)):
                        called = self.before.computation(name)
                        if called is not None and id(called) not in seen:
                            stack.append((called, False))

    @cached_property
    def _names_before(self) -> set[str]:
        return {c.name for c in self.before.computations if c.name}

    def _words(self, computation: Computation) -> set[str]:
        return set(_WORD.findall(computation.text))

    def _class_of_before(self, computation: Computation) -> int:
        known = self._paired.get(id(computation))
        if known is not None:
            return known
        if id(computation) in self._busy:  # it calls itself, which no module may
            return 0
        self._busy.add(id(computation))
        self._pair(computation)
        return self._paired[id(computation)]

    def _class_of_after(self, computation: Computation) -> int:
        known = self._taken.get(id(computation))
        # What has no counterpart is like nothing else.
        return -1 - id(computation) if known is None else known

    def _settle(self, own: Computation, new: Computation | None) -> None:
        number = self._next
        self._next += 1
        if new is not None:
            number = self._taken.setdefault(id(new), number)
        self._paired[id(own)] = number

    def _pair(self, computation: Computation) -> None:
        if computation is self.before.entry:
            self._match(computation, self.after.entry)
            return
        twin = None if computation.is_inline else self.after.computation(computation.name)
        if twin is not None and twin is not self.after.entry and id(twin) not in self._taken:
            if self._is_same_text(computation, twin):
                self._by_name.add(computation.name)
                self._settle(computation, twin)
                return
            if self._signature(0, computation) == self._signature(1, twin) and self._is_same(computation, twin):
                return
        self._search(computation)

    def _is_same_text(self, own: Computation, new: Computation) -> bool:
        """Whether two computations are the same text and every computation that it may name is the same as well."""
        if own.text != new.text or own.is_entry_marked != new.is_entry_marked or _tail(own) != _tail(new):
            return False
        if "{...}" in own.text and not self._same_constants:
            return False
        if self.before.inline_computations or self.after.inline_computations:
            return False
        return ((self._names_before & self._words(own)) - {own.name}) <= self._by_name

    def _signature(self, which: int, computation: Computation) -> Signature:
        index = self._evaluations[which].index
        try:
            shapes = [p.shape for p in index.parameters(computation)]
        except HloError:
            if which == 0:
                raise
            return ("broken", str(id(computation)))
        return tuple(shape.to_text() for shape in (*shapes, computation.root.shape))

    @cached_property
    def _by_signature(self) -> dict[Signature, list[Computation]]:
        found: dict[Signature, list[Computation]] = {}
        for computation in self.after.computations:
            if computation is not self.after.entry:
                found.setdefault(self._signature(1, computation), []).append(computation)
        return found

    def _search(self, computation: Computation) -> None:
        """Another name: the first computation that is proved to be the same. There need not be one: what it moves may
        be done without it in the second module."""
        fitting = self._by_signature.get(self._signature(0, computation), [])
        free = [c for c in fitting if id(c) not in self._taken]
        shared = [c for c in fitting if id(c) in self._taken and id(c) not in self._on_some_devices]
        for candidate in [*free, *shared][:_MOST_TRIALS]:
            was_tried = bool(candidate.name) and candidate.name == computation.name
            if not was_tried and self._is_same(computation, candidate):
                return
        self._settle(computation, None)

    def _is_same(self, own: Computation, new: Computation) -> bool:
        """Whether two computations are proved to be the same; then they are counterparts."""
        matching = self._matched(own, new)
        if _has_failed(matching):
            lanes = self._lanes(own, new)
            if lanes is None:
                return False
            matching = self._matched(own, new, lanes=lanes)
            if _has_failed(matching):
                return False
            self._on_some_devices.add(id(new))
        self._conclude(matching, own, new)
        return True

    def _explain(self, own: Computation, new: Computation) -> bool:
        """Reports what differs between computations that stand for each other; false if there is nothing to say."""
        if self._paired.get(id(own)) == self._taken.get(id(new), -1):
            return False
        pair = (id(own), id(new))
        if pair not in self._explained:
            self._explained[pair] = False
            if self._signature(0, own) == self._signature(1, new):
                said = len(self._differences)
                sites = len(self.sites)
                self._match(own, new)
                new_sites = self.sites[sites:]
                self._explained[pair] = len(self._differences) > said or any(s.outcome != "shown" for s in new_sites)
        return self._explained[pair]

    def _match(self, own: Computation, new: Computation) -> None:
        self._conclude(self._matched(own, new, self._explain), own, new)

    def _matched(
        self, own: Computation, new: Computation, explain: Explain = lambda *_: False, lanes: Array | None = None
    ) -> Matching:
        sides = [
            Side(evaluation, computation, keys)
            for evaluation, computation, keys in zip(self._evaluations, (own, new), self._keys, strict=True)
        ]
        # What is called has to have its counterpart before anybody asks on either side.
        for node in sides[0].nodes:
            for called in sides[0].evaluation.index.all_called(node.instruction).values():
                self._class_of_before(called)
        matching = Matching(sides[0], sides[1], self._class_of_before, self._class_of_after, explain, lanes)
        matching.run()
        return matching

    def _lanes(self, own: Computation, new: Computation) -> Array | None:
        """The devices that may come into one of two computations; None if it may be all."""
        return None if id(new) in self._taken else self._present(own, new)

    def _present(self, own: Computation, new: Computation) -> Array | None:
        """The same, whoever else is compared with them."""
        first, second = self._entering
        lanes = first.devices(own) | second.devices(new)
        return None if lanes.all() else lanes

    @cached_property
    def _entering(self) -> tuple[Entering, Entering]:
        first, second = self._evaluations
        return Entering(self.before, first), Entering(self.after, second)

    def _conclude(self, matching: Matching, own: Computation, new: Computation) -> None:
        matching.sites.sort(key=lambda site: site.before.span.start)
        differences = list(matching.differences)
        differences += annotation_differences(matching)
        if _tail(own) != _tail(new):
            differences.append(Difference(f"the attributes of computation {own.name} differ"))
        swapped = effects_difference(matching)
        if swapped is not None:
            differences.append(swapped)
        if self._is_scheduled:
            moved = order_difference(matching)
            if moved is not None:
                differences.append(moved)
        before, after = (e.context for e in self._evaluations)
        differences += self._misplaced(matching, new)
        arrival = self._arrival(own) if matching.sites or matching.extra else Arrival(True)
        present = None if arrival.together else self._present(own, new)
        if not arrival.together:
            differences += self._unreached(matching, arrival)
        differences += self._handed_on(matching)
        differences += self._lost_attributes(matching)
        verdicts = [
            site_verdict(matching, site, arrival, present, before, after, self._ignore_nan_payload, self._is_scheduled)
            for site in matching.sites
        ]
        self.sites += [v for v, site in zip(verdicts, matching.sites, strict=True) if self._is_worth_a_line(v, site)]
        self._differences += differences
        self._settle(own, new)
        if own.name == new.name and not differences and all(v.outcome == "shown" for v in verdicts):
            self._by_name.add(own.name)

    def _is_worth_a_line(self, verdict: SiteVerdict, site: SiteMatch) -> bool:
        """Data that is moved in another way within each device is not worth one, if it is shown."""
        first, second = (e.index for e in self._evaluations)
        regions = (*with_called(site.before_region, first), *with_called(site.after_region, second))
        is_special = verdict.outcome != "shown" or bool(verdict.conditions)
        return is_special or any(is_collective(instruction.opcode) for instruction in regions)

    def _handed_on(self, matching: Matching) -> Iterator[Difference]:
        """What no site needs, and hands data on in another layout."""
        index = self._evaluations[1].index
        of_sites = {id(i) for site in matching.sites for i in site.after_region}
        for instruction in with_called((i for i in matching.extra if id(i) not in of_sites), index):
            changed = changed_layout(instruction, index)
            if changed:
                yield Difference(f"{changed}, which only a layout pass makes right", None, instruction, certain=False)

    def _lost_attributes(self, matching: Matching) -> Iterator[Difference]:
        """A collective that stays one, but for its pairs or channel, keeps its other attributes."""
        for site in matching.sites:
            if site.after is None or len(site.before_region) != 1 or len(site.after_region) != 1:
                continue
            a, b = site.before, site.after
            if a.opcode != b.opcode or a.opcode == "constant":
                continue
            for name in ("frontend_attributes", "backend_config", "sharding"):
                mine, theirs = a.attribute_text(name), b.attribute_text(name)
                if (mine and self._keys[0].value(a, mine)) != (theirs and self._keys[1].value(b, theirs)):
                    yield Difference(f"{name} of {a.opcode} {a.name} differs", a, b, certain=False)

    def _misplaced(self, matching: Matching, new: Computation) -> Iterator[Difference]:
        """Collectives where no device can meet another: in what is applied to elements, or in a kernel."""
        regions = [i for site in matching.sites for i in site.after_region] + matching.extra
        made = [i for i in with_called(regions, self._evaluations[1].index) if is_collective(i.opcode)]
        if not made or any(is_collective(node.instruction.opcode) for node in matching.before.nodes):
            return
        place = left_for_its_place(new, self._calls_after)
        if "applies" in place or "fusion" in place:
            text = f"{made[0].opcode} {made[0].name} is {place}"
            yield Difference(text, None, made[0], certain=False)

    @cached_property
    def _calls_after(self) -> CallGraph:
        return CallGraph(self.after)

    def _unreached(self, matching: Matching, arrival: Arrival) -> Iterator[Difference]:
        """Collectives that no site needs, but that devices would wait in which did not meet before."""
        before, after = self._evaluations
        of_sites = {id(i) for site in matching.sites for i in site.after_region}
        own = [node.instruction for node in matching.before.nodes]
        for instruction in with_called(matching.extra, after.index):
            if not is_collective(instruction.opcode) or id(instruction) in of_sites:
                continue
            if meet_more(own, [instruction], before.context, after.context):
                text = f"{instruction.opcode} {instruction.name} is in the second module only, and not all devices may come to it"
                yield Difference(f"{text}: {arrival.reason}", None, instruction, certain=False)

    @cached_property
    def _is_scheduled(self) -> bool:
        attribute = self.before.header_attribute("is_scheduled")
        return attribute is not None and attribute.value_text.strip() == "true"

    @cached_property
    def _uniformity(self) -> Uniformity:
        flat = self.profile == "neuron"
        return Uniformity(self.before, self.grid.replica_count, self.grid.num_partitions, flat_replica_id=flat)

    def _arrival(self, computation: Computation) -> Arrival:
        return self._uniformity.arrival(computation)


def _has_failed(matching: Matching) -> bool:
    return bool(matching.differences) or any(s.disagreement is not None or s.why for s in matching.sites)


def _tail(computation: Computation) -> str:
    span = computation.attributes_span
    return "" if span is None else computation.module.text[span.start : span.end].strip()
