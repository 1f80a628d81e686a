"""From opcode, operands, attributes and called computations to the result shape.

The rules are those by which XLA's parser (jaxlib 0.10.2) infers shapes that HLO text leaves out, measured by what it
prints for such texts (fixtures/shape_inference.json); and, for the opcodes that must state their shape there, those by
which XLA's verifier compares the stated one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hlo_cp2ag.ir.shape import Shape

from . import (
    batch_norm,
    collectives,
    contractions,
    control,
    elementwise,
    gather_scatter,
    linear_algebra,
    movement,
    reductions,
)
from .arrays import with_layouts
from .errors import ShapeInferenceError
from .query import Called, Query

Rule = Callable[[Query], Shape]

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(elementwise.UNARY, elementwise.unary),
    **dict.fromkeys(elementwise.BINARY, elementwise.binary),
    "clamp": elementwise.clamp,
    "select": elementwise.select,
    "broadcast": movement.broadcast,
    "concatenate": movement.concatenate,
    "pad": movement.pad,
    "transpose": movement.transpose,
    "reverse": movement.reverse,
    "slice": movement.slice_,
    "dynamic-slice": movement.dynamic_slice,
    "dynamic-update-slice": movement.dynamic_update_slice,
    "get-dimension-size": movement.get_dimension_size,
    "set-dimension-size": movement.set_dimension_size,
    "reduce": reductions.reduce,
    "reduce-window": reductions.reduce_window,
    "select-and-scatter": reductions.select_and_scatter,
    "sort": reductions.sort,
    "map": reductions.map_,
    "scan": reductions.scan,
    "topk": reductions.topk,
    "dot": contractions.dot,
    "scaled-dot": contractions.scaled_dot,
    "ragged-dot": contractions.ragged_dot,
    "convolution": contractions.convolution,
    "fft": linear_algebra.fft,
    "cholesky": linear_algebra.cholesky,
    "triangular-solve": linear_algebra.triangular_solve,
    "batch-norm-training": batch_norm.training,
    "batch-norm-inference": batch_norm.inference,
    "batch-norm-grad": batch_norm.grad,
    "gather": gather_scatter.gather,
    "scatter": gather_scatter.scatter,
    **dict.fromkeys(("copy", "opt-barrier", "domain", "add-dependency", "async-update"), control.same_as_operand),
    "all-reduce-done": control.same_as_operand,
    **dict.fromkeys(("after-all", "outfeed", "send-done"), control.token),
    **dict.fromkeys(("replica-id", "partition-id"), control.device_number),
    "tuple": control.tuple_,
    "get-tuple-element": control.get_tuple_element,
    "call": control.call,
    "fusion": control.fusion,
    "while": control.while_,
    "conditional": control.conditional,
    "copy-start": control.copy_start,
    "copy-done": control.first_element,
    "send": control.send,
    "recv-done": control.recv_done,
    "reduce-precision": control.reduce_precision,
    **dict.fromkeys(("all-gather-done", "collective-permute-done", "async-done"), control.second_element),
    **dict.fromkeys(("all-reduce", "all-reduce-start"), collectives.all_reduce),
    "all-gather": collectives.all_gather,
    "all-gather-start": collectives.all_gather_start,
    "reduce-scatter": collectives.reduce_scatter,
    "all-to-all": collectives.all_to_all,
    "collective-broadcast": collectives.collective_broadcast,
    "collective-permute": collectives.collective_permute,
    "collective-permute-start": collectives.collective_permute_start,
    "ragged-all-to-all": collectives.ragged_all_to_all,
}
"""How each opcode's result follows; the opcodes that are not here (constant, convert, reshape ...) state theirs."""

OPERAND_COUNTS: Mapping[str, int] = {
    **dict.fromkeys(("replica-id", "partition-id"), 0),
    **dict.fromkeys(elementwise.UNARY, 1),
    **dict.fromkeys(("broadcast", "transpose", "reverse", "slice", "get-dimension-size", "topk", "fft", "cholesky"), 1),
    **dict.fromkeys(("copy", "opt-barrier", "domain", "get-tuple-element", "while", "copy-start", "copy-done"), 1),
    **dict.fromkeys(("recv-done", "send-done", "reduce-precision", "async-update", "async-done"), 1),
    **dict.fromkeys(("all-reduce-done", "all-gather-done", "collective-permute-done"), 1),
    **dict.fromkeys(elementwise.BINARY, 2),
    **dict.fromkeys(("pad", "set-dimension-size", "convolution", "triangular-solve", "gather", "send", "outfeed"), 2),
    "add-dependency": 2,
    **dict.fromkeys(("clamp", "select", "select-and-scatter", "ragged-dot", "batch-norm-training"), 3),
    "scaled-dot": 4,
    **dict.fromkeys(("batch-norm-inference", "batch-norm-grad"), 5),
    **dict.fromkeys(("bitcast", "bitcast-convert", "convert", "infeed", "recv", "reshape"), 1),
    **dict.fromkeys(("iota", "rng-get-and-update-state"), 0),
    "stochastic-convert": 2,
}
"""Opcodes with a fixed number of operands; the others count in their own rules."""

LEAST_OPERANDS: Mapping[str, int] = {
    **dict.fromkeys(("conditional", "dynamic-slice", "dynamic-reshape", "rng-bit-generator"), 1),
    "dynamic-update-slice": 2,
}


def make_query(
    opcode: str,
    operand_shapes: Sequence[Shape],
    attributes: Mapping[str, object],
    called: Called,
    group_size: int | None = None,
) -> Query:
    """The query with layouts filled in. Raises ShapeInferenceError for a wrong number of operands."""
    operands = tuple(map(with_layouts, operand_shapes))
    programs = {
        name: (tuple(map(with_layouts, parameters)), with_layouts(result))
        for name, (parameters, result) in called.items()
    }
    query = Query(opcode, operands, attributes, programs, group_size)
    expected = OPERAND_COUNTS.get(opcode)
    if expected is not None and len(operands) != expected:
        query.refuse(f"takes {expected} operand{'' if expected == 1 else 's'}, it has {len(operands)}")
    if len(operands) < LEAST_OPERANDS.get(opcode, 0):
        query.refuse(f"takes at least {LEAST_OPERANDS[opcode]} operands, it has {len(operands)}")
    return query


def infer_shape(
    opcode: str,
    operand_shapes: Sequence[Shape],
    attributes: Mapping[str, object],
    called: Called,
    *,
    group_size: int | None = None,
) -> Shape:
    """The result shape of an instruction that leaves it out.

    `attributes` holds typed values (`hlo_cp2ag.ir.attributes`) by name; `called` the parameter and result shapes of
    computations, by the attribute that names them (`to_apply`, `branch_computations[0]`). `group_size` is the number of
    devices that exchange data in a collective; without it, what the text says of it counts.

    Layouts left out in operands count as row-major, and the result's layout is always explicit, as in XLA's print.
    Which opcodes may leave their shape out in text is another question (`hlo_cp2ag.text.opcodes`): this infers more.

    Raises ShapeInferenceError if the operands contradict each other, or no shape follows from them.
    """
    return follow(make_query(opcode, operand_shapes, attributes, called, group_size))


def follow(query: Query) -> Shape:
    """What the opcode's rule makes of a query. Raises ShapeInferenceError."""
    rule = RULES.get(query.opcode)
    if rule is None:
        query.refuse("no result shape follows from the operands, the text has to state it")
    try:
        return rule(query)
    except ShapeInferenceError as error:
        if error.message.startswith(f"{query.opcode}: "):
            raise
        query.refuse(error.message)
