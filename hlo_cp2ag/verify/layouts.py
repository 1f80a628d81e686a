"""Where data goes on in another layout without being moved: right only if a layout pass follows.

Elementwise ops, copies, transposes and the like read and write each array in its own layout. Collectives, barriers and
the borders of called computations hand memory on as it is; XLA's CPU backend returns wrong numbers where the layouts on
both sides differ, as text before layout assignment may say.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import ArrayShape, Shape, TupleShape

_HANDED_ON = frozenset(
    (
        *("all-gather", "all-reduce", "all-to-all", "reduce-scatter", "collective-permute", "collective-broadcast"),
        *("ragged-all-to-all", "opt-barrier", "bitcast-convert", "domain", "all-reduce-start", "all-reduce-done"),
        *("add-dependency", "async-update"),
    )
)


def changed_layout(instruction: Instruction, index: ModuleIndex) -> str:
    """What hands data on in another layout at an instruction, as a clause; nothing if nothing does."""
    for one, other in _borders(instruction, index):
        if other_layout(one, other):
            return f"{instruction.opcode} {instruction.name} hands {one.to_text()} on as {other.to_text()}"
    return ""


def other_layout(one: Shape, other: Shape) -> bool:
    """Whether memory holds two shapes' elements in different orders, as far as both say."""
    if isinstance(one, TupleShape) and isinstance(other, TupleShape):
        return any(other_layout(a, b) for a, b in zip(one.elements, other.elements, strict=False))
    if not isinstance(one, ArrayShape) or not isinstance(other, ArrayShape):
        return False
    if one.layout is None or other.layout is None or one.rank != other.rank:
        return False
    # Where a dimension of size 1 stands is no matter.
    long = [d for d in range(one.rank) if one.dimensions[d] != 1 and other.dimensions[d] != 1]
    orders = [[d for d in shape.layout.minor_to_major if d in long] for shape in (one, other) if shape.layout]
    return orders[0] != orders[1] or one.layout.tiles != other.layout.tiles


def _borders(instruction: Instruction, index: ModuleIndex) -> Iterator[tuple[Shape, Shape]]:
    """The pairs of shapes of which the second is the first one's memory."""
    opcode, shape, operands = instruction.opcode, instruction.shape, index.operand_shapes(instruction)
    elements = shape.elements if isinstance(shape, TupleShape) else (shape,)
    whole = operands[0] if len(operands) == 1 else TupleShape(operands)
    if opcode in _HANDED_ON:
        if opcode in ("add-dependency", "async-update", "all-reduce-done"):
            yield operands[0], shape
        elif len(operands) == 1:
            yield from [(operands[0], shape)] if not isinstance(shape, TupleShape) else _with_first(operands[0], shape)
        else:
            yield from zip(operands, elements, strict=False)
    elif opcode == "tuple":
        yield from zip(operands, elements, strict=False)
    elif opcode == "get-tuple-element":
        number = instruction.attribute("index", 0)
        if isinstance(operands[0], TupleShape) and isinstance(number, int):
            yield operands[0].elements[number], shape
    elif opcode.endswith("-start") and opcode != "copy-start" and len(elements) > 1:
        given = TupleShape(operands) if opcode not in ("all-gather-start", "collective-permute-start") else whole
        yield given, elements[0]
        if opcode in ("all-gather-start", "collective-permute-start"):
            yield whole, elements[1]
    elif opcode.endswith("-done") and opcode != "copy-done":
        started = operands[0].elements if isinstance(operands[0], TupleShape) else ()
        yield from ((result, shape) for result in started[1:2])
    yield from _called(instruction, index, operands, elements)


def _with_first(operand: Shape, shape: TupleShape) -> Iterator[tuple[Shape, Shape]]:
    """One operand and a tuple: a tuple that is handed on whole, or parts of one array."""
    if isinstance(operand, TupleShape):
        yield operand, shape
    else:
        yield from ((operand, element) for element in shape.elements)


def _called(
    instruction: Instruction, index: ModuleIndex, operands: tuple[Shape, ...], elements: tuple[Shape, ...]
) -> Iterator[tuple[Shape, Shape]]:
    """What goes into called computations and comes out of them."""
    opcode, shape = instruction.opcode, instruction.shape
    if opcode not in ("call", "fusion", "while", "conditional", "async-start"):
        return
    for number, (name, called) in enumerate(index.all_called(instruction).items()):
        parameters = [parameter.shape for parameter in index.parameters(called)]
        given = operands[1 + number : 2 + number] if opcode == "conditional" else operands
        yield from zip(given, parameters, strict=False)
        if name == "condition":
            continue
        yield called.root.shape, elements[1] if opcode == "async-start" and len(elements) > 1 else shape
