"""What is checked of an instruction that an edit touches: a permute, its operands, its users.

`rewrite` reads no other bodies, so this is what stands between it and text that it would carry along without
understanding. Names and shapes of operands are resolved where they are used; here the opcode must be one, and its attributes
known, given once, complete and readable. The whole of XLA's rules is `check`'s business.
"""

from __future__ import annotations

import re

from hlo_cp2ag.ir.module import AttributeText, Instruction, LineForm, PlainLine
from hlo_cp2ag.text import opcodes
from hlo_cp2ag.text.parser import read_value
from hlo_cp2ag.text.plain_line import METADATA

_BY_OPERANDS = frozenset(("broadcast", "conditional"))
"""Which attributes these take depends on their operands' shapes."""
_NAMES_IN_THE_MODULE = frozenset(("computation", "computation_list", "instruction_list"))
_SLICES = re.compile(r", slice=\{\[[0-9]{1,18}:[0-9]{1,18}\](?:, \[[0-9]{1,18}:[0-9]{1,18}\])*\}")

_fine: set[LineForm] = set()
"""The forms of lines that were found in order."""
_MOST_REMEMBERED = 10_000


def check_touched(instruction: Instruction) -> None:
    """Checks one instruction by itself. Raises HloSyntaxError that points at what is wrong."""
    if instruction.line is not None and is_in_order(instruction.line):
        return
    body = instruction.body
    source = instruction.module.source
    _check_names(instruction)
    for attribute in body.attributes:
        kind = opcodes.attribute_kind(body.opcode, attribute.name)
        if kind not in _NAMES_IN_THE_MODULE and not _is_readable(attribute):
            read_value(source, attribute, body.opcode)
    line = instruction.known_line
    if line is not None and len(_fine) < _MOST_REMEMBERED:
        _fine.add(line.form)


def _is_readable(attribute: AttributeText) -> bool:
    """Whether a value is seen to be right without the classes that it would be read into, which take long to load."""
    pattern = {"metadata": METADATA, "slice": _SLICES}.get(attribute.name)
    return pattern is not None and pattern.fullmatch(f", {attribute.name}={attribute.value_text}") is not None


def is_in_order(line: PlainLine) -> bool:
    """Whether `check_touched` has found nothing wrong with an instruction of the same form."""
    return line.form in _fine


def _check_names(instruction: Instruction) -> None:
    body = instruction.body
    spec = opcodes.opcode_spec(body.opcode)
    if spec is None:
        from hlo_cp2ag.text.check_names import closest

        hint = closest(body.opcode, opcodes.OPCODES)
        raise instruction.error(f"unknown opcode {body.opcode!r}", body.opcode_span, hint)
    seen: set[str] = set()
    for attribute in body.attributes:
        if attribute.name in seen:
            raise instruction.error(f"the attribute {attribute.name} is given twice", attribute.span)
        seen.add(attribute.name)
        if attribute.name not in spec.allowed and spec.opcode not in _BY_OPERANDS:
            from hlo_cp2ag.text.check_names import closest

            hint = closest(attribute.name, spec.allowed)
            raise instruction.error(f"{body.opcode} takes no attribute {attribute.name!r}", attribute.span, hint)
    for name in sorted(spec.required - seen) if spec.opcode not in _BY_OPERANDS else ():
        raise instruction.error(f"{body.opcode} needs the attribute {name}", body.opcode_span)
    counts = spec.operand_counts
    if spec.wrapped is None and counts is not None and body.opcode not in ("constant", "parameter"):
        nameless = any(operand.name is None and operand.nested is None for operand in body.operands)
        if len(body.operands) not in counts and not nameless and not spec.opcode.startswith("async"):
            wanted = " or ".join(map(str, sorted(counts)))
            message = f"{body.opcode} takes {wanted} operand{'' if wanted == '1' else 's'}, it has {len(body.operands)}"
            raise instruction.error(message, body.opcode_span)
