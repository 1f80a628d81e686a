"""Which devices may come into a computation at all: conditionals by device ids send some of them elsewhere."""

from __future__ import annotations

import numpy as np

from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.module import Computation, HloModule, Instruction
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.lowering.call_graph import Call, CallGraph
from hlo_cp2ag.verify.control_movement import chosen_branches
from hlo_cp2ag.verify.evaluation import ModuleEvaluation
from hlo_cp2ag.verify.movement import Moved
from hlo_cp2ag.verify.symbols import TooLarge


class Entering:
    """Answers for one module; what is not known for certain is that a device may come."""

    def __init__(self, module: HloModule, evaluation: ModuleEvaluation) -> None:
        self._module = module
        self._evaluation = evaluation
        self._calls = CallGraph(module)
        self._all = np.ones(evaluation.context.grid.device_count, bool)
        self._known: dict[int, Array] = {}

    def devices(self, computation: Computation) -> Array:
        """By device: whether it may come into a computation."""
        if computation is self._module.entry or "conditional" not in self._module.text:
            return self._all
        found = self._known.get(id(computation))
        if found is None:
            self._known[id(computation)] = self._all  # while it is found out, should it call itself
            found = np.zeros_like(self._all)
            for call in self._calls.callers(computation):
                found = found | (self.devices(call.caller.computation) & self._taking(call))
            self._known[id(computation)] = found = found if found.any() else self._all
        return found

    def _taking(self, call: Call) -> Array:
        """The devices that take a call, of those that come to it."""
        if call.caller.opcode != "conditional":
            return self._all
        try:
            selector = self._computed(call.caller.operands[0])
            if selector is None:
                return self._all
            branches, chosen = chosen_branches(self._evaluation.context, call.caller, selector)
        except (HloError, TooLarge):
            return self._all
        mine = [number for number, branch in enumerate(branches) if branch is call.computation]
        found: Array = np.broadcast_to(np.isin(chosen, mine), self._all.shape)
        return found

    def _computed(self, instruction: Instruction) -> Array | None:
        """The value of an instruction that hangs on device ids and constants alone; None for others."""
        evaluation = self._evaluation
        nodes = evaluation.index.nodes(instruction.computation)
        computable = {id(n.instruction) for n in nodes if evaluation.is_computable(n.instruction, n.operands)}
        needed = {id(instruction)}
        for node in reversed(nodes):
            if id(node.instruction) in needed:
                needed.update(id(o) for o in node.operands)
        if not needed <= computable:
            return None
        values: dict[int, Moved] = {}
        for node in nodes:
            if id(node.instruction) in needed:
                values[id(node.instruction)] = evaluation.apply(node, [values[id(o)] for o in node.operands])
        found = values[id(instruction)]
        return found if isinstance(found, np.ndarray) else None
