"""sort and topk.

A comparator that asks for the order of keys, one key after the other, as JAX and StableHLO write them, is read off its
instructions: the keys are computed for all elements at once, and numpy sorts. Any other comparator is asked on whole
arrays by a merge sort whose merges are binary searches: about log2(n)^2 / 2 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift
from hlo_cp2ag.executor.ops.comparison import total_order_key
from hlo_cp2ag.executor.ops.reduction import in_types
from hlo_cp2ag.executor.plan import ModuleIndex, function_of, parameter_number
from hlo_cp2ag.executor.registry import Context, flag, integer, integers, op
from hlo_cp2ag.executor.values import Array, Value, array_shape_of, expand
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import is_complex, is_floating

# ---- comparators -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """One thing that a comparator orders by: an instruction that computes it from the left elements."""

    instruction: Instruction
    element_type: str
    descending: bool
    total: bool
    """Whether floats are in total order."""


class Comparator:
    """A comparator's instructions, looked at: which keys it orders by, if that is all it does."""

    def __init__(self, index: ModuleIndex, computation: Computation) -> None:
        self.computation = computation
        self.nodes = {id(node.instruction): node for node in index.nodes(computation)}
        self.keys = self._order(computation.root)

    def _operands(self, instruction: Instruction) -> tuple[Instruction, ...]:
        return self.nodes[id(instruction)].operands

    def _order(self, instruction: Instruction) -> tuple[Key, ...] | None:
        """The keys of `a < b`, of `a < b or (a = b and <more keys>)` and of `a = b ? <more keys> : a < b`."""
        if instruction.opcode == "compare":
            key = self._key(instruction, ("LT", "GT"))
            return None if key is None else (key,)
        parts = self._operands(instruction)
        if instruction.opcode == "select" and len(parts) == 3:
            return self._then(parts[2], parts[0], parts[1])
        if instruction.opcode == "or":
            for first, rest in (parts, parts[::-1]):
                if rest.opcode == "and":
                    for equal, more in (self._operands(rest), self._operands(rest)[::-1]):
                        found = self._then(first, equal, more)
                        if found is not None:
                            return found
        return None

    def _then(self, first: Instruction, equal: Instruction, more: Instruction) -> tuple[Key, ...] | None:
        """The key of `first` and those of `more`, if `equal` says that the key of `first` is the same."""
        key = self._key(first, ("LT", "GT"))
        same = self._key(equal, ("EQ",))
        if key is None or same is None or same.total != key.total:
            return None
        sides = self._operands(first)
        if not any(self._alike(same.instruction, side, False) for side in sides if self._reads(side) <= {0}):
            return None
        rest = self._order(more)
        return None if rest is None else (key, *rest)

    def _key(self, instruction: Instruction, directions: tuple[str, ...]) -> Key | None:
        """The key of a comparison of the same function of the left and of the right elements."""
        if instruction.opcode != "compare" or instruction.attribute("direction") not in directions:
            return None
        a, b = self._operands(instruction)
        element_type = array_shape_of(a.shape).element_type
        if self._reads(a) != {0}:
            a, b, swapped = b, a, True
        else:
            swapped = False
        if self._reads(a) != {0} or self._reads(b) != {1} or not self._alike(a, b, True) or is_complex(element_type):
            return None
        descending = (instruction.attribute("direction") == "GT") != swapped
        total = instruction.attribute("type", "") == "TOTALORDER" or not is_floating(element_type)
        return Key(a, element_type, descending, total)

    def _reads(self, instruction: Instruction) -> set[int]:
        """Which sides an instruction depends on: 0 (left, even parameters) and 1 (right, odd ones)."""
        found: set[int] = set()
        seen: set[int] = set()
        pending = [instruction]
        while pending:
            current = pending.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            if current.opcode == "parameter":
                found.add(parameter_number(current) % 2)
            pending += self._operands(current)
        return found

    def _alike(self, a: Instruction, b: Instruction, mirrored: bool) -> bool:
        """Whether two instructions compute the same; `mirrored`: of the left and of the right elements."""
        pending, seen = [(a, b)], set()
        while pending:
            x, y = pending.pop()
            if (id(x), id(y)) in seen or (x is y and (not mirrored or not self._reads(x))):
                continue
            seen.add((id(x), id(y)))
            if x.opcode != y.opcode or x.shape != y.shape:
                return False
            if x.opcode == "parameter":
                if parameter_number(x) ^ int(mirrored) != parameter_number(y):
                    return False
                continue
            if x.opcode == "constant" and _text_of(x) != _text_of(y):
                return False
            names = [{n: v.attribute(n) for n in _names(v)} for v in (x, y)]
            if names[0] != names[1]:
                return False
            pairs = list(zip(self._operands(x), self._operands(y), strict=False))
            if len(pairs) != len(self._operands(x)) or len(pairs) != len(self._operands(y)):
                return False
            pending += pairs
        return True

    def compute(self, context: Context, instruction: Instruction, sides: Sequence[Array]) -> Array:
        """An instruction that depends on left elements alone, for all elements `[count]` of each operand."""
        values: dict[int, Value] = {}
        for node in self.nodes.values():  # operands stand before those who use them
            if node.instruction.opcode == "parameter":
                number = parameter_number(node.instruction)
                if number % 2 == 0:
                    values[id(node.instruction)] = sides[number // 2]
            elif all(id(o) in values for o in node.operands):
                arguments = [values[id(o)] for o in node.operands]
                values[id(node.instruction)] = function_of(node.instruction)(context, node.instruction, *arguments)
            if node.instruction is instruction:
                break
        return cast(Array, values[id(instruction)])


_SILENT = frozenset(("metadata", "backend_config", "frontend_attributes", "sharding", "origin"))


def _names(instruction: Instruction) -> list[str]:
    return [a.name for a in instruction.body.attributes if a.name not in _SILENT]


def _text_of(constant: Instruction) -> str:
    span = constant.body.operands_span
    return constant.module.source.text[span.start : span.end]


# ---- orders ----------------------------------------------------------------------------------------------------------


def sortable(x: Array, element_type: str, total: bool, descending: bool) -> Array:
    """Numbers that numpy sorts in ascending order as the keys are to be sorted."""
    if is_floating(element_type) and total:
        key = total_order_key(x, element_type)
    else:
        key = lift(x, element_type)
    if not descending:
        return key
    return np.negative(key) if key.dtype.kind == "f" else np.invert(key)


def order_of(context: Context, instruction: Instruction, operands: Sequence[Array]) -> Array:
    """For operands `[rows, n]` the stable order of each row: places `[rows, n]` to take elements from."""
    computation = context.computation(instruction, "to_apply")
    rows, size = operands[0].shape
    index = getattr(context, "index", None)
    if isinstance(index, ModuleIndex):
        comparator = context.memo(instruction, "comparator", lambda: Comparator(index, computation))
        if comparator.keys is not None:
            keys = []
            flat = [x.reshape(-1) for x in operands]
            for key in comparator.keys:
                found = np.broadcast_to(comparator.compute(context, key.instruction, flat), (rows * size,))
                keys.append(sortable(found, key.element_type, key.total, key.descending).reshape(rows, size))
            if len(keys) == 1:
                return np.argsort(keys[0], axis=1, kind="stable")
            return np.asarray(np.lexsort(tuple(reversed(keys)), axis=1))
    return merge_order(context, computation, operands)


def merge_order(context: Context, computation: Computation, operands: Sequence[Array]) -> Array:
    """`order_of` for any comparator: runs are merged by binary searches, all at once.

    An element's new place is its place in its own run and how many elements of the other run come before it: for one
    of the left run those that are less, for one of the right run those that are not greater.
    """
    rows, size = operands[0].shape
    order: Array = np.broadcast_to(np.arange(size), (rows, size)).copy()
    line = np.arange(rows)[:, np.newaxis]
    flat = [x.reshape(-1) for x in operands]

    def less(a: Array, b: Array) -> Array:
        pairs = [side for x in flat for side in (x[a], x[b])]
        return cast(Array, context.apply(computation, *pairs))

    place = np.arange(size)
    run = 1
    while run < size:
        begin = place // (2 * run) * (2 * run)
        middle, end = np.minimum(begin + run, size), np.minimum(begin + 2 * run, size)
        is_left = place < middle
        other = np.where(is_left, middle, begin)
        low, high = (
            np.zeros((rows, size), np.int64),
            np.broadcast_to(np.where(is_left, end - middle, run), (rows, size)),
        )
        mine = line * size + order
        while (low < high).any():
            probe = (low + high) // 2
            theirs = line * size + order[line, np.minimum(other + probe, size - 1)]
            # One question for both: is the element of the right run less than that of the left one?
            asked = less(np.where(is_left, theirs, mine), np.where(is_left, mine, theirs))
            before = np.where(is_left, asked, ~asked)
            open_ = low < high
            low, high = np.where(open_ & before, probe + 1, low), np.where(open_ & ~before, probe, high)
        target = begin + np.where(is_left, place - begin, place - middle) + low
        if not np.array_equal(np.sort(target, axis=1), np.broadcast_to(place, target.shape)):
            # The comparator is no order, so that places collide: any order will do, but nothing may be lost.
            target = np.argsort(np.argsort(target, axis=1, kind="stable"), axis=1, kind="stable")
        merged = np.empty_like(order)
        np.put_along_axis(merged, target, order, axis=1)
        order = merged
        run *= 2
    return order


# ---- the ops ---------------------------------------------------------------------------------------------------------


@op("sort")
def sort(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """Semantics: XLA operation semantics, Sort: n operands of one shape sorted together along a dimension.

    `to_apply` says whether the left elements (its even parameters) come before the right ones. The order is stable
    whether `is_stable` asks for it or not.
    """
    (along,) = integers(instruction, "dimensions")
    computation = context.computation(instruction, "to_apply")
    index = cast(ModuleIndex, getattr(context, "index", None))
    types = [array_shape_of(p.shape).element_type for p in index.parameters(computation)[::2]]
    if 0 in operands[0].shape:
        return operands[0] if len(operands) == 1 else operands
    lanes = max(x.shape[0] for x in operands)
    rows = []
    for x in in_types(operands, types):
        moved = np.moveaxis(expand(x, lanes), along + 1, -1)
        rows.append(moved.reshape(-1, moved.shape[-1]))
    order = order_of(context, instruction, rows)
    results = []
    for x in operands:
        moved = np.moveaxis(expand(x, lanes), along + 1, -1)
        moved = np.take_along_axis(moved, order.reshape(moved.shape), axis=-1)
        results.append(np.moveaxis(moved, -1, along + 1))
    return results[0] if len(results) == 1 else tuple(results)


@op("topk")
def topk(context: Context, instruction: Instruction, x: Array) -> Value:
    """Semantics: XLA operation semantics, TopK: the `k` largest (or smallest) of the last dimension and their places.

    In order, the first of equal elements first; floats in total order.
    """
    element_type = array_shape_of(context.operand_shapes(instruction)[0]).element_type
    count = integer(instruction, "k")
    key = sortable(x, element_type, True, flag(instruction, "largest", True))
    places = np.argsort(key, axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(x, places, axis=-1), places.astype(np.int32)
