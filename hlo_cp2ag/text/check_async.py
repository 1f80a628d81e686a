"""Asynchronous chains: async-start, any number of updates, and a done, also as sugar (`add-start`)."""

from __future__ import annotations

from dataclasses import replace

from hlo_cp2ag.ir.shape import Shape, TupleShape
from hlo_cp2ag.ir.shape_inference.arrays import with_layouts
from hlo_cp2ag.text import check_rules
from hlo_cp2ag.text.check_rules import Case, plural
from hlo_cp2ag.text.check_state import AsyncChain, Program
from hlo_cp2ag.text.opcodes import OpcodeSpec

MAIN_THREAD = "main"


def check_start_shape(case: Case) -> tuple[Shape, ...]:
    """The elements of an async-start's shape, ((operands), result, state). Raises HloSyntaxError for another form."""
    shape = case.shape
    if not isinstance(shape, TupleShape) or len(shape.elements) < 2 or not isinstance(shape.elements[0], TupleShape):
        raise case.error(f"{case.body.opcode} makes ((operands), result, state)", at=case.body.shape_span.start)
    return shape.elements


def check_chain_operand(case: Case) -> AsyncChain:
    """The chain that an update or a done goes on with. Raises HloSyntaxError if its operand belongs to none."""
    chain = case.scope.chains.get(case.names[0]) if len(case.names) == 1 else None
    if chain is None or chain.is_done:
        raise case.error(f"{case.body.opcode} takes the async-start or async-update before it, and nothing else")
    if case.opcode == "async-update":
        operand = case.operands[0]
        if case.shape is None or with_layouts(operand) != with_layouts(case.shape):
            raise case.error(
                f"the shape of {case.body.opcode} has to be its operand's, {operand.to_text()}",
                at=case.body.shape_span.start,
            )
    return chain


def check_async(case: Case, spec: OpcodeSpec) -> AsyncChain:
    """An async instruction with its attributes read. Raises HloSyntaxError."""
    values, called = case.attributes.values, case.attributes.called
    thread = values.get("async_execution_thread")
    if spec.opcode == "async-start":
        elements = check_start_shape(case)
        if spec.wrapped is not None:
            program = _wrapped(case, spec.wrapped, elements[1])
        else:
            program = called["calls"]
            case.state.note_async_start(program, case.at("calls"))
        return AsyncChain(program, MAIN_THREAD if thread is None else str(thread))
    chain = check_chain_operand(case)
    if spec.wrapped is not None and chain.program.root_opcode != spec.wrapped:
        raise case.error(f"{case.names[0]!r} runs {chain.program.root_opcode}, not {spec.wrapped}")
    if thread is not None and thread != chain.thread:
        raise case.error(f"{case.names[0]!r} runs on thread {chain.thread!r}", at=case.at("async_execution_thread"))
    if "calls" in called and called["calls"].identity != chain.program.identity:
        raise case.error(f"{case.names[0]!r} calls {chain.program.name!r}", at=case.at("calls"))
    return replace(chain, is_done=spec.opcode == "async-done")


def _wrapped(case: Case, opcode: str, result: Shape) -> Program:
    """The computation that `add-start` stands for: an add of its operands."""
    from hlo_cp2ag.text.opcodes import opcode_spec

    spec = opcode_spec(opcode)
    inner = replace(case, opcode=opcode, shape=result)
    if opcode in ("constant", "parameter") or spec is None:
        raise case.error(f"{opcode} cannot run asynchronously")
    if spec.operand_counts is not None and len(case.operands) < min(spec.operand_counts):
        raise case.count_error(plural(min(spec.operand_counts)))
    rule = check_rules.RULES.get(opcode)
    # The parser counts a tuple's operands while it reads them, and here it reads none.
    if rule is not None and opcode != "tuple":
        rule(inner)
    return Program(case.operands, result, opcode, case.state.next_identity(), "async_wrapped")
