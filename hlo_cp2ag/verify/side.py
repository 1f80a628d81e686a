"""One of two computations that are compared: its graph, the classes of its instructions, their symbolic values."""

from __future__ import annotations

from collections.abc import Callable

from hlo_cp2ag.executor.plan import Node
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.verify.control_movement import mover_of
from hlo_cp2ag.verify.evaluation import Blocked, ModuleEvaluation
from hlo_cp2ag.verify.graph import Keys
from hlo_cp2ag.verify.movement import Moved, unknown_of
from hlo_cp2ag.verify.symbols import Symbols, TooLarge

CALLS = frozenset(("call", "fusion", "while", "conditional", "async-start"))
COMPUTES = frozenset(("add", "or", "xor", "and", "maximum", "minimum", "reduce", "convert"))
"""Ops that move data beside zeros only, or there and back: what they are given elsewhere is a value of its own."""

ClassOf = Callable[[Computation], int]


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
        self.has_effect = [evaluation.effects.of(node.instruction) is not None for node in self.nodes]
        """Whether an instruction, or something that it calls, does more than to compute its result."""
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
        return not self.computable[user] and (mover is None or mover in CALLS or mover in COMPUTES)

    def can_be_traced(self, place: int) -> bool:
        """Whether an instruction moves data or computes from device ids and constants."""
        opcode = self.instruction(place).opcode
        return self.movers[place] is not None or self.computable[place] or opcode == "constant"

    def only_moves(self, place: int) -> bool:
        """Whether an instruction only moves data, or computes from device ids and constants alone."""
        opcode = self.instruction(place).opcode
        reduces = opcode.startswith(("all-reduce", "reduce-scatter"))
        computes = self.movers[place] in CALLS or self.movers[place] in COMPUTES or reduces
        return self.computable[place] or (self.movers[place] is not None and not computes) or opcode == "constant"

    def key(self, place: int, class_of: ClassOf) -> object:
        """The key of an instruction all of whose operands have classes."""
        node = self.nodes[place]
        classes = tuple(self.classes[o] or 0 for o in self.operands[place])
        key: object = self.keys.key(node, classes, class_of)
        if self.has_effect[place]:
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
        return not (deep and mover is not None and mover not in CALLS and mover not in COMPUTES)

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


def has_data(value: Moved) -> bool:
    """Whether some element of a value is more than Bits."""
    if isinstance(value, tuple):
        return any(map(has_data, value))
    return isinstance(value, Symbols) and (value.has_data or value.has_unknown)


def lost_payload(value: Moved) -> bool:
    """Whether NaNs in a value may have lost their payloads."""
    if isinstance(value, tuple):
        return any(map(lost_payload, value))
    return isinstance(value, Symbols) and value.lost_payload
