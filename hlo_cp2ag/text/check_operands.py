"""Operands: names of earlier instructions, with or without a shape, or whole instructions written in place.

XLA's parser forgives more than it seems to. An operand that it cannot make sense of is dropped without a word if what
follows it is the comma or the parenthesis it would have looked for anyway: a shape without a name, an opcode's name
that no instruction has, an instruction in place whose own operands or attributes are wrong. Only the number of
operands that are left, and what they are, is judged afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo_cp2ag.ir.module import Instruction, InstructionBody, Operand
from hlo_cp2ag.ir.shape import Shape, compatible
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text.check_names import closest
from hlo_cp2ag.text.check_state import RESERVED, Scope, State
from hlo_cp2ag.text.opcodes import OPCODES, PRIMITIVE_TYPES


@dataclass
class Frame:
    """An instruction whose operands are being looked up; `shapes` and `names` hold those that were found."""

    body: InstructionBody
    instruction: Instruction
    is_nested: bool
    next: int = 0
    shapes: list[Shape] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    dropped: HloSyntaxError | None = None
    """What was wrong with the first operand that was dropped: the reason, if the number is wrong in the end."""

    def drop(self, error: HloSyntaxError) -> None:
        """Goes on without an operand."""
        self.dropped = self.dropped or error


def find_operands(state: State, scope: Scope, frame: Frame) -> InstructionBody | None:
    """Looks up operands until all are done (None) or one is an instruction in place, which is returned.

    Raises HloSyntaxError for an operand that XLA's parser stops at.
    """
    operands = frame.body.operands
    while frame.next < len(operands):
        operand = operands[frame.next]
        frame.next += 1
        if operand.nested is not None:
            return operand.nested
        found = _named(state, scope, frame, operand)
        if found is not None:
            frame.shapes.append(scope.shapes[found])
            frame.names.append(found)
    return None


def _named(state: State, scope: Scope, frame: Frame, operand: Operand) -> str | None:
    """The name that an operand stands for in `scope.shapes`; None if it is dropped."""
    name = operand.name
    if name is None:
        if scope.is_lone and operand.shape is not None:
            return _new_parameter(scope, f"_{len(scope.parameters)}", operand.shape)
        frame.drop(state.error(operand.span.start, "an operand without a name", hint=_nameless_hint(frame)))
        return None
    where = (operand.name_span or operand.span).start
    text = state.source.text
    has_percent = text[where - 1 : where] == "%"
    has_colon = text[where + len(name) : where + len(name) + 1] == ":"
    is_bare = not has_percent and not has_colon
    if has_percent and has_colon:
        raise state.error(where + len(name), "a colon behind a name with %")
    if is_bare and name in RESERVED:
        error = state.error(where, f"{name!r} is a reserved word, not a name", hint=f"write %{name}")
        if name in PRIMITIVE_TYPES and operand.shape is None:
            frame.drop(error)
            return None
        raise error
    known = scope.shapes.get(name)
    if known is None and scope.is_lone and operand.shape is not None:
        return _new_parameter(scope, name, operand.shape)
    if known is None:
        error = _undefined(state, scope, frame, name, where)
    elif operand.shape is not None and not compatible(known, operand.shape):
        error = state.error(
            operand.span.start,
            f"operand {name!r} has shape {known.to_text(False)}, not {operand.shape.to_text(False)}",
        )
    else:
        return name
    if is_bare and name in OPCODES:
        frame.drop(error)
        return None
    raise error


def _new_parameter(scope: Scope, name: str, shape: Shape) -> str:
    scope.parameters[len(scope.parameters)] = shape
    scope.shapes[name] = shape
    return name


def _nameless_hint(frame: Frame) -> str:
    return "only a bare instruction, outside of every computation, may leave operands' names out"


def _undefined(state: State, scope: Scope, frame: Frame, name: str, where: int) -> HloSyntaxError:
    if scope.is_lone:
        hint = "in a bare instruction, an operand needs its shape"
    else:
        later = scope.computation.find(name)
        if later is not None and later is frame.instruction:
            hint = "an instruction cannot use itself"
        elif later is not None:
            line = state.source.position(later.name_span.start).line
            hint = f"it is defined further down, on line {line}"
        else:
            hint = closest(name, scope.shapes) or _elsewhere(state, scope, name)
    return state.error(where, f"undefined operand {name!r}", hint=hint)


def _elsewhere(state: State, scope: Scope, name: str) -> str:
    for computation in state.module.computations:
        if computation is not scope.computation and computation.find(name) is not None:
            return f"computation {computation.name!r} has one, but names end with their computation"
    return ""
