"""`check`: what XLA's text parser refuses is refused, with a message that says where and what.

The module is walked in text order: header, tables, computations, their instructions. Each instruction: its name, its
parts (`InstructionBody`, whatever form they are written in), its opcode, operands, attributes, the opcode's own rules,
and its shape. What is written as XLA prints it takes the batch path of check_fast.py, which only ever says yes; every
no is said here.
"""

from __future__ import annotations

import gc
import re

from hlo_cp2ag.ir.literal import LiteralTextError, check_literal
from hlo_cp2ag.ir.module import Computation, HloModule, Instruction, InstructionBody
from hlo_cp2ag.ir.shape import ArrayShape, BufferShape, Shape, compatible, layout_fault, leaves
from hlo_cp2ag.ir.shape_inference import ShapeInferenceError, infer_shape
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text import check_rules
from hlo_cp2ag.text.check_async import check_async, check_chain_operand, check_start_shape
from hlo_cp2ag.text.check_attributes import Attributes, read_attributes
from hlo_cp2ag.text.check_header import check_computation_header, check_module_end, check_module_start
from hlo_cp2ag.text.check_names import check_instruction_name, closest
from hlo_cp2ag.text.check_operands import Frame, find_operands
from hlo_cp2ag.text.check_rules import Case, made_shape, plural
from hlo_cp2ag.text.check_state import AsyncChain, Program, Scope, State
from hlo_cp2ag.text.opcodes import OPCODES, OpcodeSpec, opcode_spec, operand_dependent_attributes
from hlo_cp2ag.text.parser import blank_comments

_ASYNC = ("async-start", "async-update", "async-done")


def check_module(module: HloModule, *, batch: bool = True) -> None:
    """Checks a whole module. Raises HloSyntaxError for the first thing that is wrong.

    `batch=False` looks at every instruction by itself; the verdict is the same.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        _check(module, batch)
    except RecursionError:
        raise module.source.error(0, "shapes or literals nested deeper than can be read") from None
    finally:
        if was_enabled:
            gc.enable()


def _check(module: HloModule, batch: bool) -> None:
    from hlo_cp2ag.text.check_fast import Batch

    state = State(module)
    state.batch = Batch(state) if batch else None
    check_module_start(state)
    for computation in module.computations:
        if computation.is_inline:
            _check_inline(state, computation)
        else:
            state.programs[computation.name] = check_computation(state, computation)
    check_module_end(state)


def _check_inline(state: State, computation: Computation) -> None:
    """Checks a computation that is written out inside an instruction, ahead of that instruction.

    What is wrong in it is said when the instruction is checked, unless that has something wrong further up.
    """
    try:
        state.inline_results[computation.span.start] = check_computation(state, computation)
    except HloSyntaxError as error:
        state.inline_results[computation.span.start] = error


def check_computation(state: State, computation: Computation) -> Program:
    """Checks one computation and returns what callers see of it. Raises HloSyntaxError."""
    is_lone = computation.span == computation.body_span
    scope = Scope(computation, is_lone=is_lone)
    stated = None if is_lone or computation.is_inline else check_computation_header(state, computation)
    if state.batch is None or not state.batch.check(scope):
        for instruction in computation:
            check_instruction(state, scope, instruction)
    program = _program(state, scope)
    if stated is not None and stated[0] is not program.result and not compatible(stated[0], program.result):
        raise state.error(
            stated[1],
            f"the header says that {computation.name!r} returns {stated[0].to_text(False)}, "
            f"its root is {program.result.to_text(False)}",
        )
    return program


def _program(state: State, scope: Scope) -> Program:
    """What callers see of a computation whose instructions are checked."""
    count = len(scope.parameters)
    if count and max(scope.parameters) != count - 1:
        for number in range(count):
            if number in scope.parameters:
                continue
            most = max(scope.parameters)
            where = next((i for i in scope.computation if _is_parameter(i, most)), None)
            raise state.error(
                scope.computation.span.start if where is None else where.body.operands_span.start,
                f"parameter {most} of {plural(count, 'parameter')}: number {number} is missing",
            )
    name = scope.root or scope.last
    opcode = scope.root_opcode if scope.root else scope.last_opcode
    parameters = tuple(scope.parameters[i] for i in range(count))
    return Program(parameters, scope.shapes[name], opcode, state.next_identity(), scope.computation.name)


def _is_parameter(instruction: Instruction, number: int) -> bool:
    if instruction.opcode != "parameter":
        return False
    start, end = instruction.body.operands_span
    return blank_comments(instruction.module.source.text[start:end]).strip(" \t\r\n") == str(number)


def check_instruction(state: State, scope: Scope, instruction: Instruction) -> None:
    """Checks one instruction and adds it to the scope. Raises HloSyntaxError."""
    name = instruction.name or "_"
    if instruction.name:
        check_instruction_name(state, instruction)
    if instruction.is_root:
        if scope.root is not None:
            raise state.error(
                instruction.span.start, "a second ROOT in one computation", hint=f"{scope.root!r} is its ROOT already"
            )
        scope.root = name
    opcode = _evaluate(state, scope, instruction, name)
    scope.last, scope.last_opcode = name, opcode
    if instruction.is_root:
        scope.root_opcode = opcode


def _evaluate(state: State, scope: Scope, instruction: Instruction, name: str) -> str:
    """Checks an instruction with the instructions written in place of its operands, innermost first.

    Returns the opcode that it stands for. Without recursion: 100,000 of them may be nested.
    """
    frames = [Frame(instruction.body, instruction, is_nested=False)]
    if not instruction.name and instruction.body.shape is None:
        raise state.error(
            instruction.span.start, "a bare instruction begins with its result shape, or with a name and ="
        )
    _begin(state, frames[0])
    while True:
        frame = frames[-1]
        nested = find_operands(state, scope, frame)
        if nested is not None:
            frames.append(Frame(nested, instruction, is_nested=True))
            _begin(state, frames[-1])
            continue
        frames.pop()
        if not frames:
            return _complete(state, scope, frame, name)
        parent = frames[-1]
        try:
            made = _complete(state, scope, frame, "")
        except HloSyntaxError as error:
            parent.drop(error)
            continue
        parent.shapes.append(scope.shapes[made])
        parent.names.append(made)


def _begin(state: State, frame: Frame) -> None:
    """What is known before the operands: the opcode, and that it has a shape or can infer one."""
    body = frame.body
    spec = opcode_spec(body.opcode)
    if spec is None:
        raise state.error(body.opcode_span.start, f"unknown opcode {body.opcode!r}", closest(body.opcode, OPCODES))
    if body.shape is None and not spec.infers_shape:
        raise state.error(body.opcode_span.start, f"{body.opcode} needs its result shape in front of it")
    if spec.opcode == "constant":
        _check_constant(state, body)
    elif spec.opcode == "parameter":
        _parameter_number(state, body)
    elif spec.opcode == "async-start" and spec.wrapped in ("constant", "parameter"):
        raise state.error(body.opcode_span.start, f"{spec.wrapped} cannot run asynchronously")


def _check_constant(state: State, body: InstructionBody) -> None:
    start, end = body.operands_span
    shape = body.shape
    assert shape is not None
    _check_constant_layout(state, body, shape)
    try:
        check_literal(blank_comments(state.source.text[start:end]), shape)
    except LiteralTextError as error:
        raise state.error(start + error.offset, error.message) from None


def _check_constant_layout(state: State, body: InstructionBody, shape: Shape) -> None:
    """A constant is laid out at once, so its layout has to be one."""
    for leaf in leaves(shape):
        array = leaf.array if isinstance(leaf, BufferShape) else leaf
        fault = layout_fault(array)
        if fault:
            raise state.error(body.shape_span.start, fault)


_INTEGER = re.compile(r"[ \t\r\n]*(-?[0-9]+)[ \t\r\n]*")


def _parameter_number(state: State, body: InstructionBody) -> int:
    start, end = body.operands_span
    match = _INTEGER.fullmatch(blank_comments(state.source.text[start:end]))
    if match is None:
        raise state.error(start, "expects the parameter's number")
    digits = match.group(1)
    if digits.startswith("-") and digits.strip("-0"):
        raise state.error(start + match.start(1), "a parameter's number is not negative")
    if len(digits.lstrip("-0")) > 18:
        raise state.error(start + match.start(1), "a parameter's number past all bounds")
    return int(digits)


def _complete(state: State, scope: Scope, frame: Frame, name: str) -> str:
    """The rest of an instruction whose operands are found. Returns its opcode, for a nested one its name."""
    body = frame.body
    spec = opcode_spec(body.opcode)
    assert spec is not None
    operands = tuple(frame.shapes)
    if spec.wrapped is None and spec.operand_counts is not None and spec.opcode not in _ASYNC:
        _check_count(state, frame, spec)
    case = Case(state, scope, body, spec.opcode, body.shape, operands, tuple(frame.names), Attributes())
    if spec.opcode == "async-start":
        check_start_shape(case)
    elif spec.opcode in _ASYNC:
        check_chain_operand(case)
    allowed, required = _attribute_names(case, spec)
    case.attributes = read_attributes(state, scope, body, allowed, required)
    chain: AsyncChain | None = None
    try:
        if spec.opcode in _ASYNC:
            chain = check_async(case, spec)
        elif spec.opcode in check_rules.RULES:
            check_rules.RULES[spec.opcode](case)
    except HloSyntaxError:
        if frame.dropped is not None:
            raise frame.dropped from None
        raise
    shape = body.shape if body.shape is not None else _inferred(case, frame)
    shape = made_shape(spec.opcode, shape, operands)
    if spec.opcode == "parameter":
        number = _parameter_number(state, body)
        if scope.is_lone and (scope.parameters or frame.is_nested):
            raise state.error(
                body.opcode_span.start, "a bare instruction makes its operands parameters: this is one too many"
            )
        if number in scope.parameters:
            raise state.error(body.operands_span.start, f"parameter {number} is there twice")
        scope.parameters[number] = shape
    case.shape = shape
    check_rules.check_any(case, spec.opcode)
    made = name or state.anonymous_name(spec.opcode)
    if made in scope.shapes:
        raise state.error(body.opcode_span.start, f"the name {made!r} is taken", hint="by an operand")
    scope.shapes[made] = shape
    if chain is not None:
        scope.chains[made] = chain
    if spec.opcode in check_rules.CHANNELS:
        channel = case.attributes.values.get("channel_id")
        scope.channels[made] = channel if isinstance(channel, int) else None
    return spec.opcode if name else made


def _check_count(state: State, frame: Frame, spec: OpcodeSpec) -> None:
    body, count = frame.body, len(frame.shapes)
    counts = spec.operand_counts
    if spec.opcode in ("constant", "parameter") or counts is None or count in counts:
        return
    if frame.dropped is not None:
        raise frame.dropped
    wants = plural(min(counts))
    at = body.opcode_span.start
    if count > max(counts) and max(counts) < len(body.operands):
        at = body.operands[max(counts)].span.start
    raise state.error(at, f"{body.opcode} takes {wants}, it has {count}")


def _attribute_names(case: Case, spec: OpcodeSpec) -> tuple[frozenset[str], frozenset[str]]:
    """The attributes that an instruction may have and those that it must have."""
    opcode = spec.wrapped or spec.opcode
    if opcode not in ("broadcast", "conditional") or spec.opcode in ("async-update", "async-done"):
        return spec.allowed, spec.required
    if not case.operands:
        raise case.count_error("at least 1 operand")
    first = case.operands[0]
    is_array = isinstance(first, ArrayShape) and first.is_data
    own = operand_dependent_attributes(
        opcode,
        first.element_type if isinstance(first, ArrayShape) else "",
        len(first.dimensions) if is_array else None,  # type: ignore[union-attr]
    )
    if own is None:
        at = case.body.operands[0].span.start if case.body.operands else None
        raise case.error(f"conditional is decided by a scalar of pred or s32, not by {first.to_text(False)}", at=at)
    allowed = spec.allowed - {"true_computation", "false_computation", "branch_computations"} | own[0]
    return allowed, own[1]


def _inferred(case: Case, frame: Frame) -> Shape:
    """The result shape that the text leaves out. Raises HloSyntaxError."""
    called = {name: (program.parameters, program.result) for name, program in case.attributes.called.items()}
    try:
        return infer_shape(case.opcode, case.operands, case.attributes.values, called)
    except ShapeInferenceError as error:
        if frame.dropped is not None:
            raise frame.dropped from None
        reason = error.message.removeprefix(f"{case.opcode}: ")
        raise case.error(f"no shape follows for {case.opcode}: {reason}") from None
