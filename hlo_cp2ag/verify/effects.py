"""What does more than to compute its result: random numbers, custom-calls, infeeds, and whatever calls one of them."""

from __future__ import annotations

from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.text.opcodes import split_opcode

_STATEFUL = frozenset(
    (
        *("rng", "rng-get-and-update-state", "infeed", "outfeed", "send", "recv", "send-done", "recv-done"),
        *("custom-call", "rng-bit-generator"),
    )
)
"""Opcodes of which two with the same operands need not be the same."""


class Effects:
    """Answers for one module. Two instructions with effects stand each for itself, in text order."""

    def __init__(self, index: ModuleIndex) -> None:
        self._index = index
        self._inside: dict[int, Instruction | None] = {}

    def of(self, instruction: Instruction) -> Instruction | None:
        """The instruction that has an effect when this one is run: itself, or one in what it calls; None without."""
        split = split_opcode(instruction.opcode)
        if instruction.opcode in _STATEFUL or (split is not None and split[1] in _STATEFUL):
            return instruction
        for called in self._index.all_called(instruction).values():
            found = self.within(called)
            if found is not None:
                return found
        return None

    def within(self, computation: Computation) -> Instruction | None:
        """The first instruction with an effect in a computation and all that it calls."""
        known = id(computation)
        if known not in self._inside:
            self._inside[known] = None  # while it is found out, should it call itself
            found = (self.of(node.instruction) for node in self._index.nodes(computation))
            self._inside[known] = next((instruction for instruction in found if instruction is not None), None)
        return self._inside[known]
