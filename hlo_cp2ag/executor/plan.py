"""Computations made ready to run: operands as slot numbers, parameters in order, what may be freed after each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hlo_cp2ag.executor.registry import Op, find_op
from hlo_cp2ag.ir.module import Computation, HloModule, Instruction, InstructionBody, Operand
from hlo_cp2ag.ir.shape import Shape, TupleShape, compatible
from hlo_cp2ag.ir.source import Span
from hlo_cp2ag.text.opcodes import ATTRIBUTE_KINDS, OPCODES, PRIMITIVE_TYPES, AttributeKind, split_opcode

CALLING_ATTRIBUTES = tuple(
    name
    for name, kind in ATTRIBUTE_KINDS.items()
    if kind in (AttributeKind.COMPUTATION, AttributeKind.COMPUTATION_LIST)
)
"""The attributes that name computations or hold them."""

_EFFECTS = frozenset(("infeed", "outfeed", "send", "send-done", "recv", "recv-done"))
"""Opcodes that are run whether or not somebody needs their result."""
_RESERVED = OPCODES | PRIMITIVE_TYPES


@dataclass(frozen=True)
class Step:
    """One instruction, ready to run."""

    instruction: Instruction
    function: Op
    operands: tuple[int, ...]
    """The slots that hold the operands' values."""
    slot: int
    """Where the result goes."""
    frees: tuple[int, ...] = ()
    """The slots whose values nobody needs after this step."""


@dataclass(frozen=True)
class Plan:
    """One computation, ready to run."""

    computation: Computation
    steps: tuple[Step, ...]
    """In text order, which is dependency order; what the root does not need is left out."""
    parameters: tuple[int, ...]
    """The slot of each parameter, by its number; -1 for one that nobody uses."""
    parameter_instructions: tuple[Instruction, ...]
    root: int
    root_shape: Shape
    slots: int


@dataclass(frozen=True)
class Node:
    """An instruction and the instructions that its operands are, those written out in place included."""

    instruction: Instruction
    operands: tuple[Instruction, ...]


class ModuleIndex:
    """Operands and called computations of one module's instructions, resolved once."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._inline = {c.span.start: c for c in module.inline_computations}
        self._nodes: dict[int, list[Node]] = {}
        self._operand_shapes: dict[int, tuple[Shape, ...]] = {}
        self._called: dict[tuple[int, str], tuple[Computation, ...]] = {}
        self._parameters: dict[int, tuple[Instruction, ...]] = {}
        self._has_effect: dict[int, bool] = {}
        self._wrapped: dict[int, Instruction] = {}
        self._kept: list[Instruction] = []  # instructions are known by their ids here, so none may be freed

    # ---- instructions and operands

    def nodes(self, computation: Computation) -> list[Node]:
        """A computation's instructions in an order in which each stands after its operands. Raises HloSyntaxError."""
        found = self._nodes.get(id(computation))
        if found is None:
            found = self._nodes[id(computation)] = list(self._walk(computation))
        return found

    def _walk(self, computation: Computation) -> Iterator[Node]:
        lone = computation.span == computation.body_span  # the text is one bare instruction
        implicit: dict[str, Instruction] = {}
        for instruction in computation.instructions:
            # Operands that are whole instructions come first, innermost foremost; a stack, since they may nest deeply.
            pending: list[tuple[Instruction, list[Instruction], int]] = [(instruction, [], 0)]
            while pending:
                current, found, at = pending.pop()
                operands = current.body.operands if current.opcode not in ("constant", "parameter") else ()
                if at == len(operands):
                    self._kept.append(current)
                    self._operand_shapes[id(current)] = tuple(f.shape for f in found)
                    yield Node(current, tuple(found))
                    if pending:
                        pending[-1][1].append(current)
                    continue
                pending.append((current, found, at + 1))
                operand = operands[at]
                if operand.nested is not None:
                    pending.append((written_in_place(current, operand.nested), [], 0))
                    continue
                if lone and operand.name is not None and operand.shape is not None:
                    if operand.name not in implicit:
                        implicit[operand.name] = implied_parameter(current, operand, len(implicit))
                        self._kept.append(implicit[operand.name])
                        self._operand_shapes[id(implicit[operand.name])] = ()
                        yield Node(implicit[operand.name], ())
                    found.append(implicit[operand.name])
                    continue
                if operand.name in _RESERVED and computation.find(operand.name) is None:
                    continue  # XLA's parser passes over an operand that is only a word of its own
                if operand.name is None:
                    raise current.error("an operand without a name", operand.span)
                target = instruction.operand_instruction(operand)
                if operand.shape is not None and not compatible(operand.shape, target.shape):
                    raise current.error(
                        f"operand {operand.name} is {target.shape.to_text(False)}, not {operand.shape.to_text(False)}",
                        operand.span,
                    )
                found.append(target)

    def operand_shapes(self, instruction: Instruction) -> tuple[Shape, ...]:
        """The shapes of an instruction's operands."""
        shapes = self._operand_shapes.get(id(instruction))
        if shapes is None:
            self.nodes(instruction.computation)
            shapes = self._operand_shapes[id(instruction)]
        return shapes

    def wrapped(self, instruction: Instruction) -> Instruction:
        """The instruction that a sugared async start is about, with the same operands. Raises HloSyntaxError."""
        made = self._wrapped.get(id(instruction))
        if made is None:
            split, body = split_opcode(instruction.opcode), instruction.body
            shape = instruction.shape
            if split is None or split[1] is None or not isinstance(shape, TupleShape) or len(shape.elements) < 2:
                raise instruction.error("an async start returns a tuple of operands and result")
            made = Instruction(
                instruction.computation, instruction.name, instruction.name_span, split[1], False,
                instruction.span,
            )  # fmt: skip
            made._body = body._replace(opcode=split[1], shape=shape.elements[1])
            self._operand_shapes[id(made)] = self.operand_shapes(instruction)
            self._wrapped[id(instruction)] = made
        return made

    # ---- computations

    def called(self, instruction: Instruction, attribute: str) -> tuple[Computation, ...]:
        """The computations that an attribute names or holds; none where it is missing. Raises HloSyntaxError."""
        key = (id(instruction), attribute)
        found = self._called.get(key)
        if found is None:
            found = self._called[key] = self._find_called(instruction, attribute)
            self._kept.append(instruction)
        return found

    def _find_called(self, instruction: Instruction, attribute: str) -> tuple[Computation, ...]:
        text = instruction.attribute_text(attribute)
        if text is None:
            return ()
        span = text.value_span
        if span.start in self._inline and ATTRIBUTE_KINDS.get(attribute) == AttributeKind.COMPUTATION:
            return (self._inline[span.start],)
        inside = {start: c for start, c in self._inline.items() if span.start <= start < span.end}
        inside = {
            start: c
            for start, c in inside.items()
            if not any(o.span.start < start and c.span.end <= o.span.end for o in inside.values())
        }
        if inside:
            return tuple(self._of_list(instruction, span, inside))
        value = instruction.attribute(attribute)
        names = (value,) if isinstance(value, str) else value
        assert isinstance(names, tuple)
        return tuple(self._by_name(instruction, str(name), span) for name in names)

    def _of_list(self, instruction: Instruction, span: Span, inside: dict[int, Computation]) -> Iterator[Computation]:
        """The computations of `{name, { ... }, name}`."""
        text = self.module.text
        at = span.start + 1
        for start in [*sorted(s for s in inside if s > span.start), span.end - 1]:
            for word in text[at:start].replace(",", " ").split():
                yield self._by_name(instruction, word.lstrip("%"), span)
            if start in inside:
                yield inside[start]
                at = inside[start].span.end

    def _by_name(self, instruction: Instruction, name: str, span: Span) -> Computation:
        computation = self.module.computation(name)
        if computation is None:
            raise instruction.error(f"there is no computation {name!r}", span)
        return computation

    def all_called(self, instruction: Instruction) -> dict[str, Computation]:
        """Every computation an instruction calls: `to_apply`, `branch_computations[0]`, ..."""
        found: dict[str, Computation] = {}
        for attribute in instruction.body.attributes:
            if attribute.name in CALLING_ATTRIBUTES:
                computations = self.called(instruction, attribute.name)
                if ATTRIBUTE_KINDS[attribute.name] == AttributeKind.COMPUTATION_LIST:
                    found.update((f"{attribute.name}[{i}]", c) for i, c in enumerate(computations))
                elif computations:
                    found[attribute.name] = computations[0]
        return found

    def has_effect(self, instruction: Instruction) -> bool:
        """Whether it does something besides computing its result, or calls what does."""
        if instruction.opcode in _EFFECTS:
            return True
        if instruction.opcode.startswith("custom-call"):
            return bool(instruction.attribute("custom_call_has_side_effect", False))
        return any(map(self._computation_has_effect, self.all_called(instruction).values()))

    def _computation_has_effect(self, computation: Computation) -> bool:
        known = self._has_effect.get(id(computation))
        if known is None:
            found = any(self.has_effect(node.instruction) for node in self.nodes(computation))
            known = self._has_effect[id(computation)] = found
        return known

    def parameters(self, computation: Computation) -> tuple[Instruction, ...]:
        """A computation's parameters by number. Raises HloSyntaxError if one is missing or there twice."""
        found = self._parameters.get(id(computation))
        if found is None:
            by_number: dict[int, Instruction] = {}
            for node in self.nodes(computation):
                if node.instruction.opcode == "parameter":
                    number = parameter_number(node.instruction)
                    if number in by_number:
                        raise node.instruction.error(f"a second parameter({number})")
                    by_number[number] = node.instruction
            for number in range(len(by_number)):
                if number not in by_number:
                    after = by_number[min(n for n in by_number if n > number)]
                    raise after.error(f"computation {computation.name!r} has no parameter({number})")
            found = self._parameters[id(computation)] = tuple(by_number[i] for i in range(len(by_number)))
        return found

    # ---- plans

    def plan(self, computation: Computation, keep: Callable[[Instruction], bool] = lambda _: False) -> Plan:
        """A computation's plan; instructions that `keep` says are run even if the root does not need them."""
        nodes = self.nodes(computation)
        root = computation.root
        needed = {id(root)}
        for node in reversed(nodes):
            if id(node.instruction) in needed or keep(node.instruction):
                needed.add(id(node.instruction))
                needed.update(id(o) for o in node.operands)
        slot_of: dict[int, int] = {}
        last_use: dict[int, int] = {}
        live = [node for node in nodes if id(node.instruction) in needed]
        for place, node in enumerate(live):
            slot_of[id(node.instruction)] = place
            last_use[place] = place
            for operand in node.operands:
                last_use[slot_of[id(operand)]] = place
        frees: dict[int, list[int]] = {}
        for slot, place in last_use.items():
            if slot != slot_of[id(root)]:
                frees.setdefault(place, []).append(slot)
        steps = []
        for place, node in enumerate(live):
            if node.instruction.opcode == "parameter":
                continue
            function = function_of(node.instruction)
            operands = tuple(slot_of[id(o)] for o in node.operands)
            steps.append(Step(node.instruction, function, operands, place, tuple(frees.get(place, ()))))
        parameters = self.parameters(computation)
        return Plan(
            computation,
            tuple(steps),
            tuple(slot_of.get(id(p), -1) for p in parameters),
            parameters,
            slot_of[id(root)],
            root.shape,
            len(live),
        )


def function_of(instruction: Instruction) -> Op:
    """The op that runs an instruction. Raises HloSyntaxError if the executor has none for its opcode."""
    function = find_op(instruction.opcode)
    if function is None:
        split = split_opcode(instruction.opcode)
        if split is not None and split[1] is not None and find_op(split[1]) is not None:
            function = find_op(split[0])
    if function is None:
        raise instruction.error(f"the executor does not support the opcode {instruction.opcode!r}")
    return function


def parameter_number(instruction: Instruction) -> int:
    """The number of a `parameter`. Raises HloSyntaxError if it is none."""
    span = instruction.body.operands_span
    text = instruction.module.text[span.start : span.end].strip()
    if instruction.body.operands_span == instruction.span:  # an implied parameter
        return int(instruction.name.rpartition("#")[2])
    if not text.isdecimal():
        raise instruction.error("expects a parameter number", span)
    return int(text)


def written_in_place(around: Instruction, body: InstructionBody) -> Instruction:
    """The instruction for one that is written in place of an operand."""
    span = Span(body.shape_span.start, body.end)
    made = Instruction(around.computation, around.name, body.opcode_span, body.opcode, False, span)
    made._body = body
    return made


def implied_parameter(around: Instruction, operand: Operand, number: int) -> Instruction:
    """The parameter that a text of one bare instruction means by an operand's name."""
    span = operand.span
    made = Instruction(around.computation, f"{operand.name}#{number}", span, "parameter", False, span)
    made._body = InstructionBody("parameter", span, operand.shape, span, (), span, (), span.end)
    return made
