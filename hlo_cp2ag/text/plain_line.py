"""A line in XLA's own writing, cut by one regular expression.

What has been found out about one such line holds for every other one that differs from it in names (its own, of its
operands and of what it calls), numbers of parameters and metadata alone (`LineForm`): thousands of lines of a large
module have some dozens of forms.
"""

from __future__ import annotations

import re
import sys

from hlo_cp2ag.ir.module import InstructionBody, LineForm, PlainLine

_NAME = r"[A-Za-z_][\w.\-]*"
_OPERAND = rf"(?:/\*index=[0-9]+\*/)?%{_NAME}"
_LINE = re.compile(
    rf" *(ROOT )?%({_NAME}) = "
    r"([a-z][a-z0-9]*\[[^\[\]{}()\"%\n]*\](?:\{[\d:][^{}=\"%\n]*\})?|\([^\n]*?\)(?= [a-z][a-z0-9\-]*\())"
    rf" ([a-z][a-z0-9\-]*)\(((?:{_OPERAND}(?:, {_OPERAND})*)?|[0-9]+)\)([^\n]*)"
)
METADATA = re.compile(
    r", metadata=\{(?:op_type=\"[A-Za-z0-9_.\-]*\" ?)?(?:op_name=\"[^\"\\\n]*(?:\\['\"][^\"\\\n]*)*\")?"
    r"(?: ?source_file=\"[^\"\\\n]*\")?(?: source_line=\d{1,9})?(?: source_end_line=\d{1,9})?"
    r"(?: source_column=\d{1,9})?"
    r"(?: source_end_column=\d{1,9})?(?: ?stack_frame_id=\d{1,9})?(?: ?scheduling_name=\"[^\"\\\n]*\")?\}"
)
"""Metadata in the order in which XLA prints it, with the escapes that occur in names."""
NO_METADATA = ", metadata={}"
_SOME_NAME = re.compile(rf"%{_NAME}")
_LONGEST = 4_000
_A_NUMBER = -1
"""Stands for the count of operands where a number is in their place: `parameter(0)`."""


def plain_line(text: str, start: int) -> PlainLine | None:
    """The instruction on the line that begins at `start`; None if it is written in any other way.

    Instructions' names stand in front and among the operands alone: control predecessors are no part of this form.
    The line must be one of which it is certain that it holds one whole instruction.
    """
    match = _LINE.match(text, start)
    if match is None:
        return None
    root, name, shape, opcode, operands, attributes = match.groups()
    end = match.end()
    if attributes[-1:] == " " or end - start > _LONGEST or "control-predecessors" in attributes:
        return None
    if shape[0] == "(" and shape.count("(") != shape.count(")"):
        return None
    count = _A_NUMBER if operands[:1].isdigit() else operands.count("%")
    name_start = match.start(2)
    # Interned, for thousands of lines share these.
    common = sys.intern(_without_names(attributes))
    return PlainLine(
        LineForm(sys.intern(shape), sys.intern(opcode), count, common),
        name,
        name_start,
        name_start - 1 if root is None else match.start(1),
        match.start(4),
        operands,
        match.start(5),
        common if attributes == common else attributes,
        end,
    )


def _without_names(attributes: str) -> str:
    """Attributes without metadata and without names. In a string a name goes as well, which makes it no worse."""
    if ", metadata={" in attributes:
        attributes = METADATA.sub(NO_METADATA, attributes)
    return _SOME_NAME.sub("%", attributes) if "%" in attributes else attributes


def is_cut_alike(line: PlainLine, body: InstructionBody) -> bool:
    """Whether an instruction's body, read with all care, has its parts where its line says."""
    form = line.form
    return (
        body.opcode == form.opcode
        and body.opcode_span.start == line.opcode_start
        and body.shape is not None
        and body.shape_span == (line.opcode_start - 1 - len(form.shape), line.opcode_start - 1)
        and body.operands_span == (line.operands_start, line.operands_start + len(line.operands))
        and len(body.operands) == max(form.operand_count, 0)
        and all(operand.name is not None and operand.shape is None for operand in body.operands)
    )
