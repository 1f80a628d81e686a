"""Which permutes can be rewritten for certain, and why the others are left.

Each rule gives a reason in a few words, or nothing. What is plainly wrong, a pair outside the grid for example, is not
left but refused: the module would not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import ArrayShape, Shape, TupleShape, compatible
from hlo_cp2ag.ir.source import Span
from hlo_cp2ag.lowering.call_graph import CallGraph
from hlo_cp2ag.lowering.gate import duplicate_source, duplicate_target
from hlo_cp2ag.lowering.mapping import axis_size
from hlo_cp2ag.lowering.options import LoweringOptions
from hlo_cp2ag.topology.process_grid import ProcessGrid

if TYPE_CHECKING:
    from hlo_cp2ag.ir.sharding import Sharding

MAXIMUM_CHANNEL_ID = 2**63 - 1
_MAXIMUM_OFFSET = 2**31 - 1

Pairs = tuple[tuple[int, int], ...]


def left_for_its_form(permute: Instruction, start: Instruction, done: Instruction, calls: CallGraph) -> str:
    """Why a permute's form or place cannot be rewritten; nothing if it can.

    `start` and `done` are the two ends of an asynchronous permute, and the permute itself of another one.
    """
    place = left_for_its_place(start.computation, calls)
    if place:
        return place
    if permute.attribute_text("slice_sizes") is not None:
        return "an in-place permute (slice_sizes)"
    channel = permute.attribute("channel_id")
    if isinstance(channel, int) and channel < 1:
        return f"its channel_id {channel} is below 1"
    if start.computation.is_lone:
        return "a bare instruction: there is no computation to write the new ones into"
    if not start.body.operands:
        return "it has no operand"
    for operand in start.body.operands:
        if operand.nested is not None:
            return "an operand is written out in place; give it a name"
        if operand.name is None:
            return "an operand has no name"
    copied: set[str] = set()
    for end in dict.fromkeys((permute, start, done)):
        sharding = end.attribute_text("sharding")
        if sharding is not None and not sharding_is_copied(end):
            text = _short(sharding.value_text)
            return f"its sharding {text} is not manual or maximal, and XLA cannot partition partition-id there"
        if sharding is not None:
            copied.add(leaf_sharding(end))
    if len(copied) > 1:
        return f"its start and its done have two shardings, {' and '.join(sorted(copied))}"
    return _left_for_its_shapes(start.operands, done.shape)


_PLACES = {
    "fusion": "inside a fusion",
    "custom-call": "inside a computation that a custom-call calls",
    "async-start": "inside a computation that an async-start calls",
}
_APPLYING = frozenset(
    ("reduce", "reduce-window", "map", "sort", "scatter", "select-and-scatter", "scan", "all-reduce", "reduce-scatter")
)
"""How often these enter what they apply is their own business."""


def left_for_its_place(computation: Computation, calls: CallGraph) -> str:
    """Why nothing in a computation is rewritten: a fusion, a custom-call or an async-start calls it, or its callers."""
    for caller in calls.all_callers(computation):
        opcode = caller.opcode
        kind = "async-start" if opcode.endswith("-start") else opcode
        if kind in _PLACES:
            return _PLACES[kind]
        if kind in _APPLYING:
            return f"inside a computation that a {opcode} applies"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def sharding_is_copied(permute: Instruction) -> bool:
    """Whether the permute's sharding goes to every new instruction: manual or maximal, for a tuple alike in each leaf."""
    sharding = cast("Sharding | None", permute.attribute("sharding"))
    if sharding is None or not (sharding.is_manual or sharding.is_maximal):
        return False
    return not sharding.elements or all(element == sharding.elements[0] for element in sharding.elements)


def leaf_sharding(permute: Instruction) -> str:
    """The text of a copied sharding for an instruction that is no tuple."""
    text = permute.attribute_text("sharding")
    sharding = cast("Sharding | None", permute.attribute("sharding"))
    if text is None or sharding is None:
        return ""
    return sharding.elements[0].to_text() if sharding.elements else text.value_text


def _left_for_its_shapes(operands: tuple[Instruction, ...], shape: Shape) -> str:
    results = shape.elements if isinstance(shape, TupleShape) else (shape,)
    if len(results) != len(operands) or (isinstance(shape, TupleShape) and len(operands) < 2):
        return (
            f"{len(operands)} operands, but a result of {len(results)}"
            if len(operands) != 1
            else "a tuple of one operand"
        )
    for operand, result in zip(operands, results, strict=True):
        reason = _left_for_a_shape(result)
        if not reason and operand.shape is result:
            continue
        reason = reason or _left_for_a_shape(operand.shape)
        if reason:
            return reason
        if not compatible(operand.shape, result):
            return f"its result {result.to_text(False)} is not its operand's {operand.shape.to_text(False)}"
    return ""


def _left_for_a_shape(shape: Shape) -> str:
    if not isinstance(shape, ArrayShape):
        return "a tuple operand" if isinstance(shape, TupleShape) else "a buffer operand"
    if not shape.is_data:
        return f"{'an' if shape.element_type == 'opaque' else 'a'} {shape.element_type} operand"
    if shape.is_dynamic:
        return "a dynamic dimension"
    order = shape.layout.minor_to_major if shape.layout is not None else ()
    if order and sorted(order) != list(range(shape.rank)):
        return f"its layout {shape.layout.to_text() if shape.layout else ''} is no order of its dimensions"
    if shape.element_type.startswith(("f4e", "f6e")):
        return f"{shape.element_type} cannot be gathered: it is packed and has no exact wider type here"
    return ""


def left_for_its_size(permute: Instruction, group_size: int, dimensions: tuple[int, ...]) -> str:
    """Why the array gathered by so many devices is too large for 32-bit offsets, or has no elements."""
    for operand, dimension in zip(permute.operands, dimensions, strict=True):
        shape = operand.shape
        assert isinstance(shape, ArrayShape)
        if 0 in shape.dimensions:
            return (
                f"{shape.to_text(False)} has no elements: XLA refuses to gather along a dimension of size 0, or crashes"
            )
        size = shape.dimensions[dimension] if shape.dimensions else 1
        if size * group_size > _MAXIMUM_OFFSET:
            return f"{group_size} shards of {size} pass 2^31 - 1 along dimension {dimension}"
    return ""


def left_for_zeros(permute: Instruction) -> str:
    """Why zeros cannot be delivered; asked only where some device is no target."""
    if any(isinstance(o.shape, ArrayShape) and o.shape.element_type == "f8e8m0fnu" for o in permute.operands):
        return "f8e8m0fnu has no zero, and some device is no target"
    return ""


def refuse_bad_pairs(
    permute: Instruction, pairs: Pairs, grid: ProcessGrid, axis: str, options: LoweringOptions
) -> None:
    """Refuses ids outside the axis, and under profile xla repeated sources and targets.

    Raises HloSyntaxError that points at the pairs.
    """
    size = axis_size(grid, axis)
    for pair in pairs:
        for each in pair:
            if not 0 <= each < size:
                raise _outside(permute, pair, each, grid, axis)
    if options.profile == "neuron":
        return
    for repeated, what in ((duplicate_source(pairs), "source"), (duplicate_target(pairs), "target")):
        if repeated is not None:
            raise permute.error(
                f"two pairs have the {what} {repeated}",
                _pairs_span(permute),
                "XLA refuses this permute; --profile neuron rewrites it, the last pair wins",
            )


def _outside(permute: Instruction, pair: tuple[int, int], each: int, grid: ProcessGrid, axis: str) -> Exception:
    what = {"replica": "replicas", "partition": "partitions", "device": "devices"}[axis]
    size = axis_size(grid, axis)
    message = (
        f"the pair {{{pair[0]},{pair[1]}}} of {permute.name!r} names {axis} {each}, but the grid has {size} {what}"
    )
    message += f" ({grid.replica_count} replicas x {grid.num_partitions} partitions)"
    flag = "--num-partitions" if axis == "partition" else "--replica-count"
    hint = f"{flag} {each + 1} or more" if each >= 0 else "ids are 0 or more"
    if axis == "replica" and grid.num_partitions > 1:
        hint += "; a permute without channel_id names replicas, one with channel_id names partitions"
    return permute.error(message, _pairs_span(permute), hint)


def _pairs_span(permute: Instruction) -> Span:
    pairs = permute.attribute_text("source_target_pairs")
    return pairs.value_span if pairs is not None else permute.name_span
