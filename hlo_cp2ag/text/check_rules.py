"""What single opcodes ask beyond a fixed number of operands and known attributes.

A rule here is one that XLA's text parser has. Whether shapes go together is its verifier's business, and nobody asks it
in `check`; only where the text leaves a result shape out do operands have to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo_cp2ag.ir.module import InstructionBody
from hlo_cp2ag.ir.shape import UNBOUNDED, ArrayShape, BufferShape, Shape, TupleShape, compatible, leaves
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text.check_attributes import Attributes
from hlo_cp2ag.text.check_state import Scope, State


@dataclass
class Case:
    """An instruction whose operands and attributes are read."""

    state: State
    scope: Scope
    body: InstructionBody
    opcode: str
    """What it does: for `add-start`, `async-start` first and then `add`."""
    shape: Shape | None
    operands: tuple[Shape, ...]
    names: tuple[str, ...]
    attributes: Attributes

    def error(self, message: str, *, at: int | None = None, hint: str = "") -> HloSyntaxError:
        """The exception for this instruction, to be raised by the caller."""
        return self.state.error(self.body.opcode_span.start if at is None else at, message, hint)

    def count_error(self, wants: str) -> HloSyntaxError:
        """The exception for a wrong number of operands."""
        return count_error(self.state, self.body, len(self.operands), wants)

    def at(self, attribute: str) -> int:
        """Where an attribute begins."""
        return self.attributes.where(attribute, self.body.opcode_span.start)

    def rank(self, index: int) -> int:
        """The number of an operand's dimensions; XLA aborts where it has none to count."""
        operand = self.operands[index]
        operand = operand.array if isinstance(operand, BufferShape) else operand
        if not isinstance(operand, ArrayShape) or not operand.is_data:
            raise self.error(f"operand {index} of {self.opcode} has to be an array, it is {operand.to_text(False)}")
        return operand.rank


def count_error(state: State, body: InstructionBody, count: int, wants: str) -> HloSyntaxError:
    """The exception for a wrong number of operands: points at the first one too many, else at the opcode."""
    return state.error(body.opcode_span.start, f"{body.opcode} takes {wants}, it has {count}")


def plural(count: int, word: str = "operand") -> str:
    """`no operands`, `1 operand`, `2 operands`."""
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"


# ---- lists of dimensions ---------------------------------------------------------------------------------------------


def _some_dimension(case: Case) -> None:
    if case.attributes.list_length("dimensions") == 0:
        raise case.error(f"{case.opcode} needs a dimension", at=case.at("dimensions"))


def _one_dimension(case: Case) -> None:
    if case.attributes.list_length("dimensions") not in (None, 1):
        raise case.error(f"{case.opcode} takes one dimension", at=case.at("dimensions"))


# ---- collectives -----------------------------------------------------------------------------------------------------


def _reducing_collective(case: Case) -> None:
    values = case.attributes.values
    if values.get("use_global_device_ids") and "channel_id" not in values and "mode" not in values:
        raise case.error(
            "use_global_device_ids=true needs a channel_id",
            at=case.at("use_global_device_ids"),
            hint="without channel_id the groups name replicas",
        )
    if case.opcode == "reduce-scatter":
        _some_dimension(case)


def _permute(case: Case) -> None:
    if "slice_sizes" in case.attributes.values and len(case.operands) != 4:
        raise case.error(
            f"slice_sizes goes with 4 operands, {case.opcode} has {len(case.operands)}",
            at=case.at("slice_sizes"),
            hint="the permute in place: input, output, input offsets, output offsets",
        )


# ---- operand counts that depend on something -------------------------------------------------------------------------


def _at_least(count: int) -> Callable[[Case], None]:
    def rule(case: Case) -> None:
        if len(case.operands) < count:
            raise case.count_error(f"at least {plural(count)}")

    return rule


def _even(case: Case) -> None:
    if len(case.operands) % 2:
        raise case.count_error("an even number of operands")


def _odd(case: Case) -> None:
    if len(case.operands) % 2 == 0:
        raise case.count_error("an odd number of operands")


def _dynamic_slice(case: Case) -> None:
    _indexed(case, 1)


def _dynamic_update_slice(case: Case) -> None:
    _indexed(case, 2)


def _indexed(case: Case, leading: int) -> None:
    """Either one index of rank 1, or one scalar for each dimension."""
    count = len(case.operands)
    if count < leading:
        raise case.count_error(f"at least {plural(leading)}")
    if count == leading + 1 and case.rank(leading) == 1:
        return
    rank = case.rank(0)
    if count != leading + rank:
        raise case.count_error(f"{plural(leading + rank)} (an index for each of {plural(rank, 'dimension')})")


def _tuple(case: Case) -> None:
    if case.shape is None:
        return
    if not isinstance(case.shape, TupleShape):
        raise case.error(f"tuple makes a tuple, not {case.shape.to_text(False)}", at=case.body.shape_span.start)
    if len(case.shape.elements) != len(case.operands):
        raise case.count_error(f"{plural(len(case.shape.elements))} (as many as its shape has elements)")


def _dynamic_reshape(case: Case) -> None:
    _at_least(1)(case)
    operand, result = case.operands[0], case.shape
    if not isinstance(result, ArrayShape) or not isinstance(operand, ArrayShape):
        raise case.error("dynamic-reshape takes and makes arrays")
    if result.element_count != operand.element_count:
        raise case.error(f"{operand.to_text(False)} and {result.to_text(False)} differ in their number of elements")
    if len(case.operands) != 1 + result.rank:
        raise case.count_error(f"{plural(1 + result.rank)} (a size for each of {plural(result.rank, 'dimension')})")


def _conditional(case: Case) -> None:
    programs = [name for name in case.attributes.called if name.startswith("branch_computations")]
    branches = len(programs) if "branch_computations" in case.attributes.values else 2
    if not branches:
        raise case.error("conditional needs a branch", at=case.at("branch_computations"))
    if len(case.operands) != 1 + branches:
        raise case.count_error(
            f"{plural(1 + branches)} (the index, and one for each of {plural(branches, 'branch')})".replace(
                "branchs", "branches"
            )
        )


def _scan(case: Case) -> None:
    program = case.attributes.called["to_apply"]
    if len(case.operands) != len(program.parameters):
        raise case.count_error(f"{plural(len(program.parameters))} (as many as to_apply has parameters)")
    _one_dimension(case)
    carries = case.attributes.values["num_carries"]
    if not isinstance(carries, int) or not 0 <= carries <= len(case.operands):
        raise case.error(f"num_carries is {carries}, of {plural(len(case.operands))}", at=case.at("num_carries"))


def _reduce_window(case: Case) -> None:
    _even(case)
    if case.shape is None and not case.operands:
        raise case.count_error("at least 2 operands")


# ---- channels --------------------------------------------------------------------------------------------------------


def _recv(case: Case) -> None:
    if not isinstance(case.shape, TupleShape) or not case.shape.elements:
        raise case.error("recv makes a tuple (data, u32[], token[])", at=case.body.shape_span.start)


def _channel_done(case: Case) -> None:
    has_channel, other = case.scope.channel(case.names[0])
    if has_channel and case.attributes.values.get("channel_id") != other:
        says = "no channel_id" if other is None else f"channel_id={other}"
        raise case.error(f"{case.names[0]!r} has {says}, so {case.opcode} has to", at=case.at("channel_id"))


def _recv_done(case: Case) -> None:
    _channel_done(case)
    operand = case.operands[0]
    if not isinstance(operand, TupleShape) or not operand.elements:
        raise case.error(f"recv-done takes what recv made, not {operand.to_text(False)}")


def _infeed(case: Case) -> None:
    if not isinstance(case.shape, TupleShape) or not case.shape.elements:
        raise case.error("infeed makes a tuple (data, token[])", at=case.body.shape_span.start)


# ---- the rest --------------------------------------------------------------------------------------------------------


def _custom_call(case: Case) -> None:
    constraints = case.attributes.values.get("operand_layout_constraints")
    if not isinstance(constraints, tuple):
        return
    at = case.at("operand_layout_constraints")
    if len(constraints) != len(case.operands):
        raise case.error(f"{plural(len(constraints), 'layout constraint')} for {plural(len(case.operands))}", at=at)
    for i, (constraint, operand) in enumerate(zip(constraints, case.operands, strict=True)):
        if not compatible(constraint, operand):
            raise case.error(
                f"layout constraint {i} is {constraint.to_text(False)}, operand {i} is {operand.to_text(False)}", at=at
            )


def _triangular_solve(case: Case) -> None:
    from hlo_cp2ag.text.opcodes import TRANSPOSE_OPTIONS

    option = case.attributes.values.get("transpose_a")
    if option is not None and option not in TRANSPOSE_OPTIONS:
        raise case.error(
            f"unknown transpose_a {option}",
            at=case.at("transpose_a"),
            hint=f"it is one of {', '.join(sorted(TRANSPOSE_OPTIONS))}",
        )


def _reshape(case: Case) -> None:
    if case.shape is None:
        return
    operand, result = _whole(case.operands[0]), _whole(case.shape)
    if operand is None or result is None:
        raise case.error("reshape takes and makes arrays")
    if UNBOUNDED not in operand.dimensions and operand.element_count != result.element_count:
        raise case.error(
            f"{operand.to_text(False)} and {result.to_text(False)} differ in their number of elements",
            at=case.body.shape_span.start,
        )


def _whole(shape: Shape) -> ArrayShape | None:
    """The array that a shape is or holds."""
    shape = shape.array if isinstance(shape, BufferShape) else shape
    return shape if isinstance(shape, ArrayShape) and shape.is_data else None


def _compare(case: Case) -> None:
    operand = case.operands[0]
    if "type" not in case.attributes.values and not (isinstance(operand, ArrayShape) and operand.is_data):
        raise case.error(f"nothing compares {operand.to_text(False)}", hint="type=... would say how")


def _device_number(case: Case) -> None:
    shape = case.shape
    if shape is not None and shape.to_text(False) != "u32[]":
        raise case.error(f"{case.opcode} is a u32[], not {shape.to_text(False)}", at=case.body.shape_span.start)


def _get_tuple_element(case: Case) -> None:
    operand, index = case.operands[0], case.attributes.values["index"]
    if case.shape is not None:
        return
    size = len(operand.elements) if isinstance(operand, TupleShape) else 0
    if not isinstance(operand, TupleShape) or not isinstance(index, int) or not 0 <= index < size:
        raise case.error(f"{operand.to_text(False)} has no element {index}", at=case.at("index"))


RULES: dict[str, Callable[[Case], None]] = {
    "all-gather": _some_dimension,
    "all-gather-start": _some_dimension,
    "all-reduce": _reducing_collective,
    "all-reduce-start": _reducing_collective,
    "reduce-scatter": _reducing_collective,
    "all-to-all": _one_dimension,
    "ragged-all-to-all": _one_dimension,
    "collective-permute": _permute,
    "collective-permute-start": _permute,
    "compare": _compare,
    "concatenate": _one_dimension,
    "conditional": _conditional,
    "custom-call": _custom_call,
    "dot": _at_least(2),
    "dynamic-reshape": _dynamic_reshape,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "get-dimension-size": _some_dimension,
    "get-tuple-element": _get_tuple_element,
    "infeed": _infeed,
    "recv": _recv,
    "recv-done": _recv_done,
    "reduce": _even,
    "reduce-window": _reduce_window,
    "partition-id": _device_number,
    "replica-id": _device_number,
    "reshape": _reshape,
    "rng-bit-generator": _at_least(1),
    "scan": _scan,
    "scatter": _odd,
    "send-done": _channel_done,
    "set-dimension-size": _some_dimension,
    "sort": _one_dimension,
    "triangular-solve": _triangular_solve,
    "tuple": _tuple,
}

CHANNELS = frozenset((
    "all-gather", "all-gather-start", "all-reduce", "all-reduce-start", "all-to-all", "collective-broadcast",
    "collective-permute", "collective-permute-start", "ragged-all-to-all", "recv", "recv-done", "reduce-scatter",
    "send",
    "send-done",
))  # fmt: skip
"""Opcodes that XLA counts among the channel instructions."""


def check_any(case: Case, opcode: str) -> None:
    """Rules that hold for every opcode."""
    replication = case.attributes.values.get("parameter_replication")
    if isinstance(replication, tuple) and case.shape is not None:
        at = case.at("parameter_replication")
        if opcode != "parameter":
            raise case.error("parameter_replication belongs to a parameter", at=at)
        count = sum(1 for _ in leaves(case.shape))
        if count != len(replication):
            raise case.error(
                f"the parameter has {plural(count, 'array')}, "
                f"parameter_replication {plural(len(replication), 'value')}",
                at=at,
            )


# ---- shapes that are not the text's ----------------------------------------------------------------------------------

_TOKEN = ArrayShape("token")
_CONTEXT = ArrayShape("u32")


def made_shape(opcode: str, stated: Shape, operands: tuple[Shape, ...]) -> Shape:
    """The shape of the instruction that XLA makes: for some opcodes it does not look at the one that is stated."""
    if opcode in ("after-all", "outfeed", "send-done"):
        return _TOKEN
    if opcode == "add-dependency":
        return operands[0]
    if opcode == "send":
        return TupleShape((operands[0], _CONTEXT, _TOKEN))
    if opcode == "recv" and isinstance(stated, TupleShape):
        return TupleShape((stated.elements[0], _CONTEXT, _TOKEN))
    if opcode == "recv-done" and isinstance(operands[0], TupleShape):
        return TupleShape((operands[0].elements[0], _TOKEN))
    if opcode == "infeed" and isinstance(stated, TupleShape):
        return TupleShape((stated.elements[0], _TOKEN))
    return stated


RESHAPED = frozenset(("after-all", "outfeed", "send-done", "add-dependency", "send", "recv", "recv-done", "infeed"))
"""The opcodes of `made_shape`."""
