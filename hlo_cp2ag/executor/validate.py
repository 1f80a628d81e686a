"""What can be said before a run: opcodes the executor has, computations that are there, shapes that fit."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hlo_cp2ag.executor.groups import group_table
from hlo_cp2ag.executor.plan import CALLING_ATTRIBUTES, ModuleIndex, Node, function_of
from hlo_cp2ag.executor.registry import Context, find_precheck
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import UNBOUNDED, ArrayShape, BufferShape, Shape, leaves
from hlo_cp2ag.ir.shape_inference import ShapeInferenceError, check_layout, check_meaning, check_shape
from hlo_cp2ag.text.opcodes import split_opcode

_IGNORED = frozenset(
    (*CALLING_ATTRIBUTES, "metadata", "backend_config", "frontend_attributes", "sharding", "origin", "statistics",
     "control-predecessors", "result_accuracy")
)  # fmt: skip
"""Attributes that say nothing about shapes."""
_GROUPED = ("all-gather", "reduce-scatter", "all-to-all", "all-reduce", "collective-broadcast")


def validate(context: Context, index: ModuleIndex, entry: Computation) -> int:
    """Looks at every instruction; returns how deep computations call each other.

    Raises HloSyntaxError, with the line, for an opcode that the executor lacks, a computation that is not there, calls
    itself or lacks a parameter, and for a stated shape that contradicts the operands.
    """
    order, depth = _reachable(index, entry)
    reached = set(map(id, order))
    for computation in order:
        index.parameters(computation)
        for node in index.nodes(computation):
            check_instruction(context, index, node)
    for computation in index.module.computations:  # XLA verifies what nothing calls, too
        if id(computation) not in reached:
            index.parameters(computation)
            for node in index.nodes(computation):
                check_instruction(context, index, node, runs=False)
    return depth


def _reachable(index: ModuleIndex, entry: Computation) -> tuple[list[Computation], int]:
    """The computations that the entry reaches, and the length of the longest chain of calls."""
    depth: dict[int, int] = {}
    order: list[Computation] = []
    on_path: set[int] = set()
    stack: list[tuple[Computation, Iterator[tuple[Instruction, Computation]]]] = []

    def enter(computation: Computation) -> None:
        on_path.add(id(computation))
        stack.append((computation, iter(list(_calls(index, computation)))))
        depth[id(computation)] = 1

    enter(entry)
    while stack:
        computation, calls = stack[-1]
        following = next(calls, None)
        if following is None:
            stack.pop()
            on_path.discard(id(computation))
            order.append(computation)
            if stack:
                caller = id(stack[-1][0])
                depth[caller] = max(depth[caller], depth[id(computation)] + 1)
            continue
        instruction, called = following
        if id(called) in on_path:
            raise instruction.error(f"computation {called.name!r} calls itself")
        if id(called) in depth:
            depth[id(computation)] = max(depth[id(computation)], depth[id(called)] + 1)
        else:
            enter(called)
    return order, depth[id(entry)]


def _calls(index: ModuleIndex, computation: Computation) -> Iterator[tuple[Instruction, Computation]]:
    for node in index.nodes(computation):
        for called in index.all_called(node.instruction).values():
            yield node.instruction, called


def check_instruction(context: Context, index: ModuleIndex, node: Node, *, runs: bool = True) -> None:
    """Raise HloSyntaxError if no run could do an instruction: see `validate`.

    Of one that does not run (`runs`), the opcode need not be one that the executor has.
    """
    instruction = node.instruction
    try:
        check_layout(instruction.shape)
    except ShapeInferenceError as error:
        raise instruction.error(error.message) from None
    if runs:
        _refuse_shape(context, instruction)
    if instruction.opcode == "parameter":
        return
    if runs:
        function_of(instruction)
    for attribute in ("to_apply", "calls", "body", "condition"):
        if instruction.attribute_text(attribute) is not None and not index.called(instruction, attribute):
            raise instruction.error(f"needs one computation {attribute}=")
    split = split_opcode(instruction.opcode)
    inside = instruction
    if split is not None and split[1] is not None and split[0] == "async-start":
        inside = index.wrapped(instruction)
    elif split is not None and split[1] is not None:
        _expect(instruction, split[0], index.operand_shapes(instruction))
        return
    _check_shape(context, index, inside)
    found = find_precheck(inside.opcode) if runs else None
    if found is not None:
        found(context, inside)


def _expect(instruction: Instruction, opcode: str, operands: tuple[Shape, ...]) -> None:
    """Raise unless the update or done of a sugared pair states the shape that its start makes it."""
    try:
        check_shape(opcode, instruction.shape, operands, {}, {})
    except ShapeInferenceError as error:
        raise instruction.error(error.message) from None


_MOST_BYTES = (1 << 63) - 1
_MOST_DIMENSIONS = (64 if int(np.__version__.split(".")[0]) >= 2 else 32) - 2
"""What numpy takes, without the lane axis and the one of groups."""


def _refuse_shape(context: Context, instruction: Instruction) -> None:
    """Raise HloSyntaxError for a shape that no array has."""
    for leaf in leaves(instruction.shape):
        array = leaf.array if isinstance(leaf, BufferShape) else leaf
        if UNBOUNDED in array.dimensions:
            raise instruction.error(
                f"the executor does not support dynamic dimensions without a bound: {array.to_text(False)}"
            )
        if array.rank > _MOST_DIMENSIONS:
            raise instruction.error(
                f"the executor does not support {array.rank} dimensions, {_MOST_DIMENSIONS} are the most"
            )
        if array.is_data:  # numpy counts what an array without elements would have if its zeros were ones
            size = math.prod(filter(None, array.dimensions)) * dtype_of(array.element_type).itemsize * context.lanes
            if size > _MOST_BYTES:
                raise instruction.error(f"{array.to_text(False)} is larger than an array can be: {size:,} bytes")


def _check_shape(context: Context, index: ModuleIndex, instruction: Instruction) -> None:
    opcode, operands = instruction.opcode, index.operand_shapes(instruction)
    if opcode in _SAME and _all_same(instruction.shape, operands):
        return
    attributes = {a.name: instruction.attribute(a.name) for a in instruction.body.attributes if a.name not in _IGNORED}
    called = {
        name: (tuple(p.shape for p in index.parameters(c)), c.root.shape)
        for name, c in index.all_called(instruction).items()
    }
    group_size = None
    if opcode.removesuffix("-start") in _GROUPED:
        table = group_table(context, instruction)
        group_size = len(table.groups[0]) if table.groups else None
    try:
        check_shape(opcode, instruction.shape, operands, attributes, called, group_size=group_size)
        check_meaning(opcode, instruction.shape, operands, attributes, called)
    except ShapeInferenceError as error:
        raise instruction.error(error.message) from None


_SAME = frozenset(("add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "tanh", "exponential"))
"""Common opcodes whose shapes fit if all are the same arrays of numbers; the general check is slower."""


def _all_same(result: Shape, operands: tuple[Shape, ...]) -> bool:
    if not isinstance(result, ArrayShape) or result.element_type not in ("f32", "f64", "bf16", "f16"):
        return False
    return bool(operands) and all(
        isinstance(o, ArrayShape) and o.element_type == result.element_type and o.dimensions == result.dimensions
        for o in operands
    )
