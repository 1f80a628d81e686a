"""What the opcodes do to uniformity, and the few parts of an instruction that the question needs, read cheaply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.text.opcodes import split_opcode

Path = tuple[int, ...]
"""A place in a nested tuple: `(1, 0)` is element 0 of element 1, `()` the whole value."""


class Varies(NamedTuple):
    """A value that is not proved to be uniform, and what makes it so: "partition-id"."""

    what: str


CONSTANT = frozenset(("constant", "iota", "after-all"))
IDENTITY = frozenset(("copy", "bitcast", "opt-barrier", "domain", "add-dependency"))
"""Operations whose result is their first operand, element by element."""
TRACKED = frozenset(("parameter", "while", "conditional", "call", "fusion"))
"""Operations whose result is followed element by element; elsewhere one answer holds for all elements."""
APPLIES = frozenset(("map", "reduce", "reduce-window", "scan", "scatter", "select-and-scatter", "sort"))
"""Operations that compute their result by a computation, of nothing but their operands."""
PASSES_OPERANDS = frozenset(("call", "fusion", "async-start"))
"""Operations whose operands are the parameters, and whose result is the root, of what they call."""
NEEDS_CALLS = PASSES_OPERANDS | {"conditional"}
ENTERS_ALIKE = PASSES_OPERANDS | {"map", "reduce", "reduce-window", "scan"}
"""Operations that enter what they call once, or as often as their shapes say. How often a sort enters its comparator,
a scatter its combiner, a custom-call or a reducing collective whatever they call, may hang on data or on the device."""
STARTED = {"all-gather-start": "all-gather", "all-reduce-start": "all-reduce", "copy-start": "copy"}
"""What their `-done` hands out; of other starts, that of the computation or the operation that they wrap."""
VARIES = frozenset(
    (
        *("rng", "rng-get-and-update-state", "infeed", "recv", "send", "custom-call", "collective-permute"),
        *("collective-permute-start", "all-to-all", "ragged-all-to-all", "reduce-scatter", "collective-broadcast"),
    )
)
"""Operations whose result is no function of their operands, or one that may differ from device to device."""


_NAME = re.compile(r"%([A-Za-z_][\w.\-]*)")
_PLAIN_OPERANDS = re.compile(r"(?:%[\w.\-]+(?:, (?:/\*index=\d+\*/)?%[\w.\-]+)*)?\)")
_PLAIN_INDEX = re.compile(r"%[\w.\-]+\), index=(\d+)(?![\w.\-])")
_PLAIN_PARAMETER = re.compile(r"(\d+)\)")


def kind_of(instruction: Instruction) -> str:
    """What an instruction does: its opcode, and for a shorthand such as `call-start` the opcode that it starts."""
    base, wrapped = split_opcode(instruction.opcode) or (instruction.opcode, None)
    return wrapped if wrapped is not None and base == "async-start" else base


def varies_by(instruction: Instruction) -> Varies:
    """That a value varies because of the operation that computes it."""
    return Varies(f"the {instruction.opcode or 'unknown operation'} {place_of(instruction)}")


def place_of(instruction: Instruction) -> str:
    """An instruction for a message: `%add.3 (line 12)`."""
    name = f"%{instruction.name}" if instruction.name else "without a name"
    return f"{name} (line {instruction.module.source.position(instruction.name_span.start).line})"


def title_of(computation: Computation) -> str:
    """A computation for a message."""
    if computation.name:
        return f"computation {computation.name}"
    return f"the computation on line {computation.module.source.position(computation.span.start).line}"


def written_out(instruction: Instruction) -> Varies:
    """That a value varies because an operand has no instruction of its own to follow."""
    return Varies(f"an operand of {place_of(instruction)} that is written out in place")


def operand_of(instruction: Instruction, number: int) -> Instruction | None:
    """An operand; None if it has no name of its own. Raises HloSyntaxError if there is none of that number."""
    names = _plain_operands(instruction)
    if names is None:
        names = [operand.name for operand in instruction.body.operands]
    if number >= len(names):
        raise instruction.error(f"{instruction.opcode} has {len(names)} operands, expects number {number + 1}")
    return _operand_of_name(instruction, number, names[number])


def operands_of(instruction: Instruction) -> Iterator[Instruction | None]:
    """All operands; None for one that has no name of its own."""
    names = _plain_operands(instruction)
    if names is None:
        names = [operand.name for operand in instruction.body.operands]
    return (_operand_of_name(instruction, number, name) for number, name in enumerate(names))


def _operand_of_name(instruction: Instruction, number: int, name: str | None) -> Instruction | None:
    if name is None:
        return None
    operand = instruction.computation.find(name)
    if operand is None or not operand.is_before(instruction):  # for the message
        return instruction.operand_instruction(instruction.body.operands[number])
    return operand


def _plain_operands(instruction: Instruction) -> list[str | None] | None:
    """The operands' names in XLA's own writing, `add(%x, %y)`; None for any other writing."""
    start = _behind_opcode(instruction)
    plain = _PLAIN_OPERANDS.match(instruction.text, start) if start >= 0 else None
    return None if plain is None else _NAME.findall(plain.group())


def _behind_opcode(instruction: Instruction) -> int:
    """The offset behind `opcode(` in the instruction's text, found at a tenth of what reading the whole body costs.

    -1 if there are comments before it, blanks in it, or anything else that XLA does not write.
    """
    text, key = instruction.text, f" {instruction.opcode}("
    at = text.find(key)
    head = text[:at]
    return -1 if at < 0 or "/" in head or '"' in head or "'" in head else at + len(key)


def origin_of(instruction: Instruction, path: Path) -> tuple[Instruction, Path]:
    """Where an element comes from: back through tuples and copies to what computes it."""
    while True:
        opcode = instruction.opcode
        if opcode == "get-tuple-element":
            source, inner = operand_of(instruction, 0), (index_of(instruction), *path)
        elif opcode == "tuple" and path:
            source, inner = operand_of(instruction, path[0]), path[1:]
        elif opcode in IDENTITY:
            source, inner = operand_of(instruction, 0), path
        else:
            break
        if source is None:
            break
        instruction, path = source, inner
    return instruction, path if opcode in TRACKED or opcode.endswith("-done") else ()


def index_of(instruction: Instruction) -> int:
    """The element that a get-tuple-element takes. Raises HloSyntaxError if it does not say."""
    start = _behind_opcode(instruction)
    plain = _PLAIN_INDEX.match(instruction.text, start) if start >= 0 else None
    if plain is not None:
        return int(plain.group(1))
    attribute = instruction.attribute_text("index")
    if attribute is None or not attribute.value_text.isdecimal():
        raise instruction.error("get-tuple-element expects index=N")
    return int(attribute.value_text)


def parameter_number(instruction: Instruction) -> int:
    """The number of a parameter. Raises HloSyntaxError if it has none."""
    start = _behind_opcode(instruction)
    plain = _PLAIN_PARAMETER.match(instruction.text, start) if start >= 0 else None
    if plain is not None:
        return int(plain.group(1))
    start, end = instruction.body.operands_span
    text = instruction.module.text[start:end].strip()
    if not text.isdecimal():
        raise instruction.error("parameter expects its number")
    return int(text)


def root_of(computation: Computation) -> Instruction:
    """The root; where it stands last, as in nearly all text, without reading the rest."""
    return computation.root
