"""What has no counterpart: paired by name, by its users or as the root, judged, and said.

Each thing that is reported gets an assumed counterpart, so that what follows it is looked at as well.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from hlo_cp2ag.executor.plan import Node
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.verify.comparison import Disagreement, disagreement
from hlo_cp2ag.verify.evaluation import Blocked, ModuleEvaluation, is_collective
from hlo_cp2ag.verify.findings import Difference, SiteMatch
from hlo_cp2ag.verify.side import CALLS, COMPUTES, lost_payload
from hlo_cp2ag.verify.symbols import Symbols, TooLarge

if TYPE_CHECKING:
    from hlo_cp2ag.verify.matching import Matching


class Unmatched:
    """Reports for one matching; see the module's docstring."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self.before = matching.before
        self.after = matching.after

    def give_up(self) -> bool:
        """Reports one thing that has no counterpart, and assumes one, so that what follows is looked at as well."""
        before = self.before
        needed = self._needed()
        for place in needed:
            if is_collective(before.instruction(place).opcode) and self._report_site(place, only_refuted=True):
                return True
        for place in needed:
            mover = before.movers[place]
            is_lone = not before.computable[place] and (mover is None or mover in CALLS or mover in COMPUTES)
            is_dead = not before.users[place] and place != before.root
            if before.can_be_traced(place) and not ((is_lone or is_dead) and before.waiting[place] == 0):
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
        for place in reversed(self._matching.open(before)):
            is_end = not before.users[place] and not before.only_moves(place)
            is_asked_for = any(user in needed for user in before.users[place])
            if place == before.root or is_end or before.has_effect[place] or is_asked_for:
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
        self._matching.sites.append(site)
        number = self._matching.new_class()
        self._matching.settle(before, place, number, by_site=True)
        if other is not None:
            self._matching.settle(after, other, number, by_site=True)
        before.forget_values()
        after.forget_values()
        return True

    def _judged(self, place: int, other: int) -> Disagreement | None:
        """Where two instructions differ, looked at as deeply as can be; None if they do not. Raises TooLarge."""
        before, after = self.before, self.after
        shape, new = before.instruction(place).shape, after.instruction(other).shape
        if shape.to_text() != new.to_text():
            return Disagreement(False, f"it is {new.to_text()}, not {shape.to_text()}")
        found = disagreement(before.forced_value(place), after.forced_value(other), shape, self._matching.lanes)
        if found is None:
            return None
        with contextlib.suppress(Blocked):
            found = disagreement(before.value(place, True), after.value(other, True), shape, self._matching.lanes)
        if found is None or not found.refuted or self._is_certain(found):
            return found
        why = "it takes data from another instruction, and nothing says whether the two are the same"
        return Disagreement(False, why, found.element, found.device, found.index)

    def _is_certain(self, found: Disagreement) -> bool:
        """Whether two elements differ for some inputs. Values of two instructions may be equal all the same, unless both
        are parameters."""
        if found.expected <= 0 or found.got <= 0:
            return True
        one, two = self._matching.table.find(found.expected)[0], self._matching.table.find(found.got)[0]
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
            twin = self._matching.same_name(before.instruction(user))
            if twin is not None and len(after.operands[twin]) == len(before.operands[user]):
                other = after.operands[twin][before.operands[user].index(place)]
                if (
                    after.classes[other] is None
                    or after.instruction(other).shape.to_text() == before.instruction(place).shape.to_text()
                ):
                    return other
        twin = self._matching.same_name(before.instruction(place))
        if twin is not None and after.classes[twin] is None:
            return twin
        shape = before.instruction(place).shape.to_text()
        fitting = [
            i
            for i in self._matching.open(after)
            if after.can_be_traced(i) and after.is_output(i) and after.instruction(i).shape.to_text() == shape
        ]
        return fitting[0] if fitting else None

    def _report_difference(self, place: int) -> None:
        before, after = self.before, self.after
        instruction = before.instruction(place)
        other = self._matching.same_name(instruction)
        if other is None or after.classes[other] is not None:
            open_ones = [
                i
                for i in self._matching.open(after)
                if after.instruction(i).opcode == instruction.opcode
                and after.instruction(i).shape.to_text(False) == instruction.shape.to_text(False)
                and len(after.operands[i]) == len(before.operands[place])
            ]
            other = open_ones[0] if open_ones else None
        number = self._matching.new_class()
        if other is None:
            text = f"{instruction.opcode} {instruction.name} has no counterpart in the second module"
            self._matching.differences.append(Difference(text, instruction))
        else:
            text, certain = self._what_differs(place, other)
            if text:
                self._matching.differences.append(Difference(text, instruction, after.instruction(other), certain))
            self._matching.settle(after, other, number)
        self._matching.settle(before, place, number)

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
                return self._other_operand(f"operand {number} of {where}", x, y)
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
        explained = [self._matching.explain(c, new_called[name]) for name, c in called.items() if name in new_called]
        return ("" if any(explained) else f"what {where} calls differs"), True

    def _other_operand(self, which: str, wanted: int, found: int) -> tuple[str, bool]:
        """That an operand is not the right one, and whether that is certain."""
        a, b = self.before.instruction(wanted), self.after.instruction(found)
        text = f"{which} is {b.opcode} {b.name}, not what stands for {a.opcode} {a.name}"
        if self.after.classes[found] is not None:
            return text, True
        try:
            judged = self._judged(wanted, found)
        except TooLarge as error:
            judged = Disagreement(False, f"too large: {error.size:,} bytes of symbols (--max-memory)")
        if judged is None or judged.refuted:
            return text, judged is not None
        return f"{text}: {judged.why}", False

    # ---- in the end

    def compare_roots(self) -> None:
        """Reports a result that is another one."""
        before, after = self.before, self.after
        own, new = before.classes[before.root], after.classes[after.root]
        if own is not None and own == new:
            return
        a, b = before.instruction(before.root), after.instruction(after.root)
        # A root that was reported as a site or a difference has a counterpart by then.
        if own is None and any(
            a in site.before_region for site in self._matching.sites if site.disagreement or site.why
        ):
            return
        text = f"the result is {b.opcode} {b.name}, not what stands for {a.opcode} {a.name}"
        try:
            found = self._judged(before.root, after.root)
        except TooLarge as error:
            found = Disagreement(False, f"too large: {error.size:,} bytes of symbols (--max-memory)")
        if found is not None:
            text += "" if found.refuted else f": {found.why}"
            self._matching.differences.append(Difference(text, a, b, found.refuted))
            return
        # What the roots are made of was rewritten: what it leans on is said of a site.
        roots = [side.forced_value(side.root, deep) for side in (before, after) for deep in (False, True)]
        regions = before.region(before.root, True), after.region(after.root, True)
        lost = any(map(lost_payload, roots))
        self._matching.sites.append(
            SiteMatch(a, b, lost_payload=lost, before_region=regions[0], after_region=regions[1])
        )

    def report_extra(self) -> None:
        """What the second computation has besides: harmless if it only moves data, or computes from device ids."""
        after = self.after
        has_failed = bool(self._matching.differences) or any(
            site.disagreement or site.why for site in self._matching.sites
        )
        for place in self._matching.open(after):
            instruction = after.instruction(place)
            self._refuse_wrong(after.nodes[place])
            if after.can_be_traced(place) and not after.has_effect[place]:
                if not after.users[place] and place != after.root:
                    self._refuse_broken(place)
                    self._matching.extra += after.region(place)
            elif not has_failed or after.waiting[place] == 0 or after.has_effect[place]:
                text = f"{instruction.opcode} {instruction.name} is in the second module only"
                self._matching.differences.append(Difference(text, None, instruction))

    def _refuse_wrong(self, node: Node) -> None:
        """What no value hangs on still has to be an instruction."""
        difference = wrong_instruction(self.after.evaluation, node)
        if difference is not None:
            self._matching.differences.append(difference)

    def _refuse_broken(self, place: int) -> None:
        """A collective that nobody needs still has to be one."""
        try:
            value = self.after.value(place)
        except Blocked:
            return
        instruction = self.after.instruction(place)
        if isinstance(value, Symbols) and value.has_unknown and value.why:
            text = f"{instruction.opcode} {instruction.name} is in the second module only: {value.why}"
            self._matching.differences.append(Difference(text, None, instruction, certain=False))


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
