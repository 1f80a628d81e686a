"""The result shape of an instruction whose text leaves it out.

It follows from the operands' shapes, and where a computation is called from the shapes of its parameters and its root,
any of which may be left out in turn. What is needed first is worked out first, on a list instead of the call stack: a
chain of 100,000 instructions without shapes is no deeper than one of two.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_cp2ag.ir.module import Computation, Instruction, InstructionBody
from hlo_cp2ag.ir.shape import Shape
from hlo_cp2ag.ir.shape_inference import ShapeInferenceError
from hlo_cp2ag.ir.shape_inference import infer_shape as infer_from_operands
from hlo_cp2ag.text.check_state import RESERVED
from hlo_cp2ag.text.opcodes import OPCODES, PRIMITIVE_TYPES, attribute_kind, opcode_spec


@dataclass
class _Task:
    """An instruction, or one that is written in place of an operand of it, whose shape is wanted."""

    instruction: Instruction
    body: InstructionBody
    is_nested: bool


def infer_shape(instruction: Instruction) -> Shape:
    """The result shape of an instruction, as XLA's parser infers it. Raises HloSyntaxError."""
    nested: dict[int, Shape] = {}
    tasks = [_Task(instruction, instruction.body, is_nested=False)]
    waiting = {instruction}
    while tasks:
        task = tasks[-1]
        missing = _missing(task, nested)
        if not missing:
            shape = _infer(task, nested)
            tasks.pop()
            if task.is_nested:
                nested[id(task.body)] = shape
            else:
                task.instruction._shape = shape
                waiting.discard(task.instruction)
            continue
        for needed in missing:
            if not needed.is_nested:
                if needed.instruction in waiting:
                    raise needed.instruction.error(f"the shape of {needed.instruction.name!r} depends on itself")
                waiting.add(needed.instruction)
        tasks.extend(missing)
    return instruction.shape


def _known(instruction: Instruction) -> Shape | None:
    if instruction._shape is not None:
        return instruction._shape
    return instruction.body.shape


def _missing(task: _Task, nested: dict[int, Shape]) -> list[_Task]:
    """What has to be worked out before the task."""
    found: dict[int, _Task] = {}
    for operand in task.body.operands:
        if operand.nested is not None:
            if operand.nested.shape is None and id(operand.nested) not in nested:
                found[id(operand.nested)] = _Task(task.instruction, operand.nested, is_nested=True)
        elif operand.name is not None and not _is_dropped(task.instruction, operand.name):
            target = task.instruction.operand_instruction(operand)
            if _known(target) is None:
                found[id(target)] = _Task(target, target.body, is_nested=False)
    for computation in _called(task).values():
        for target in (*_parameters(computation), computation.root):
            if _known(target) is None:
                found[id(target)] = _Task(target, target.body, is_nested=False)
    return list(found.values())


def _is_dropped(instruction: Instruction, name: str) -> bool:
    """Whether XLA's parser passes over an operand that names no instruction: an opcode's name, an element type's."""
    if name not in OPCODES and name not in PRIMITIVE_TYPES and name not in RESERVED:
        return False
    target = instruction.computation.find(name)
    return target is None or not target.is_before(instruction)


def _parameters(computation: Computation) -> list[Instruction]:
    numbered: dict[int, Instruction] = {}
    for instruction in computation:
        if instruction.opcode == "parameter":
            start, end = instruction.body.operands_span
            digits = instruction.module.source.text[start:end].strip(" \t\r\n")
            numbered[int(digits) if digits.isdecimal() else len(numbered)] = instruction
    return [numbered[number] for number in sorted(numbered)]


def _called(task: _Task) -> dict[str, Computation]:
    """The computations that an instruction names, members of a list as `branch_computations[0]`."""
    module = task.instruction.module
    found: dict[str, Computation] = {}
    for attribute in task.body.attributes:
        kind = attribute_kind(task.body.opcode, attribute.name)
        if kind not in ("computation", "computation_list"):
            continue
        if "{" in attribute.value_text[kind == "computation_list" :]:
            inline = [c for c in module.computations if c.is_inline and _within(c, attribute.value_span)]
            outermost = [c for c in inline if not any(c is not o and _within(c, o.span) for o in inline)]
            outermost.sort(key=lambda c: c.span.start)
            members: list[Computation | None] = [*outermost]
        else:
            value = task.instruction.module.reader.read_value(task.instruction, attribute)
            names = value if isinstance(value, tuple) else (value,)
            members = [module.computation(str(name)) for name in names]
        for i, member in enumerate(members):
            if member is None:
                raise task.instruction.error(f"undefined computation in {attribute.name}", attribute.value_span)
            found[f"{attribute.name}[{i}]" if kind == "computation_list" else attribute.name] = member
    return found


def _within(computation: Computation, span: tuple[int, int]) -> bool:
    return span[0] <= computation.span.start and computation.span.end <= span[1]


def _infer(task: _Task, nested: dict[int, Shape]) -> Shape:
    body, instruction = task.body, task.instruction
    spec = opcode_spec(body.opcode)
    if spec is None:
        raise instruction.error(f"unknown opcode {body.opcode!r}", body.opcode_span)
    if not spec.infers_shape:
        raise instruction.error(f"{body.opcode} needs its result shape in front of it", body.opcode_span)
    operands: list[Shape] = []
    for operand in body.operands:
        if operand.nested is not None:
            shape = operand.nested.shape
            operands.append(shape if shape is not None else nested[id(operand.nested)])
        elif operand.name is not None and not _is_dropped(instruction, operand.name):
            operands.append(instruction.operand_instruction(operand).shape)
    reader = instruction.module.reader
    values = {
        attribute.name: reader.read_value(instruction, attribute)
        for attribute in body.attributes
        if attribute_kind(body.opcode, attribute.name) not in ("computation", "computation_list", None)
    }
    programs = {
        name: (tuple(p.shape for p in _parameters(computation)), computation.root.shape)
        for name, computation in _called(task).items()
    }
    try:
        return infer_from_operands(body.opcode, operands, values, programs)
    except ShapeInferenceError as error:
        reason = error.message.removeprefix(f"{body.opcode}: ")
        raise instruction.error(f"no shape follows for {body.opcode}: {reason}", body.opcode_span) from None
