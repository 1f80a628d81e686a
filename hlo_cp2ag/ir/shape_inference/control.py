"""Tuples, control flow, called computations, tokens, copies and their asynchronous forms."""

from __future__ import annotations

from itertools import islice

from hlo_cp2ag.ir.shape import ArrayShape, Shape, TupleShape, compatible, is_floating, leaves

from .arrays import array, flags, is_scalar, text, with_dynamic
from .query import Program, Query

TOKEN = ArrayShape("token")
_MOST_LEAVES = 1 << 18
"""Arrays in a tuple whose shape the text leaves out; nobody means more."""


def same_as_operand(query: Query) -> Shape:
    """The first operand's shape, whatever it is: copies, barriers, domains, dependencies."""
    return query.operands[0]


def token(query: Query) -> Shape:
    """`token[]`; of what `after-all` takes nothing is asked."""
    return TOKEN


def device_number(query: Query) -> Shape:
    """`u32[]`."""
    return array("u32", ())


def tuple_(query: Query) -> Shape:
    """The operands' shapes. Tuples of tuples double with every line, so that their arrays are counted."""
    shape = TupleShape(query.operands)
    if next(islice(leaves(shape), _MOST_LEAVES, None), None) is not None:
        query.refuse(f"makes a tuple of more than {_MOST_LEAVES:,} arrays")
    return shape


def get_tuple_element(query: Query) -> Shape:
    """An element's shape."""
    return element(query, query.operands[0], query.integer("index"))


def element(query: Query, shape: Shape, index: int) -> Shape:
    """An element of a tuple."""
    if not isinstance(shape, TupleShape):
        query.refuse(f"takes a tuple, the operand is {text(shape)}")
    if not 0 <= index < len(shape.elements):
        query.refuse(f"the operand {text(shape)} has no element {index}")
    return shape.elements[index]


def call(query: Query, name: str = "to_apply") -> Shape:
    """The computation's result; its parameters have the operands' types exactly."""
    program = query.program(name)
    check_arguments(query, program)
    return program.result


def fusion(query: Query) -> Shape:
    """The fused computation's result."""
    return call(query, "calls")


def check_arguments(query: Query, program: Program) -> None:
    """Raise unless the operands are what a computation takes."""
    if len(program.parameters) != len(query.operands):
        query.refuse(f"has {len(query.operands)} operands, the computation is {program}")
    for operand, parameter in zip(query.operands, program.parameters, strict=True):
        if not compatible(operand, parameter):
            query.refuse(f"the operand {text(operand)} is not what the computation {program} takes")


def while_(query: Query) -> Shape:
    """The initial value's shape, which body and condition take and the body returns."""
    init = query.operands[0]
    condition, body = query.program("condition"), query.program("body")
    for name, program in (("condition", condition), ("body", body)):
        if len(program.parameters) != 1:
            query.refuse(f"the {name} has to take one parameter, it is {program}")
    if not is_scalar(condition.result, "pred"):
        query.refuse(f"the condition has to return pred[], it is {condition}")
    for shape in (condition.parameters[0], body.parameters[0], init):
        if not compatible(body.result, shape):
            query.refuse(f"initial value {text(init)}, body {body} and condition {condition} do not go together")
    return init


def conditional(query: Query) -> Shape:
    """The branches' common result; a size that is dynamic in one of them is dynamic."""
    selector = query.operands[0]
    if is_scalar(selector, "pred"):
        branches = [query.program("true_computation"), query.program("false_computation")]
    elif is_scalar(selector, "s32"):
        branches = []
        while f"branch_computations[{len(branches)}]" in query.called:
            branches.append(query.program(f"branch_computations[{len(branches)}]"))
    else:
        query.refuse(f"the branch is chosen by pred[] or s32[], not {text(selector)}")
    if not branches or len(branches) != len(query.operands) - 1:
        query.refuse(f"has {len(query.operands) - 1} operands for {len(branches)} branches")
    result = branches[0].result
    for branch, operand in zip(branches, query.operands[1:], strict=True):
        if len(branch.parameters) != 1 or not compatible(branch.parameters[0], operand):
            query.refuse(f"the operand {text(operand)} is not what the branch {branch} takes")
        if not compatible(branch.result, branches[0].result):
            query.refuse(f"the branches' results differ: {text(branches[0].result)} and {text(branch.result)}")
        result = _either_dynamic(result, branch.result)
    return result


def _either_dynamic(shape: Shape, other: Shape) -> Shape:
    if isinstance(shape, TupleShape) and isinstance(other, TupleShape):
        return TupleShape(tuple(map(_either_dynamic, shape.elements, other.elements)))
    if isinstance(shape, ArrayShape) and isinstance(other, ArrayShape) and other.is_dynamic:
        return with_dynamic(shape, [a or b for a, b in zip(flags(shape), flags(other), strict=True)])
    return shape


def copy_start(query: Query) -> Shape:
    """(copy, original, context)."""
    return TupleShape((query.operands[0], query.operands[0], array("u32", ())))


def send(query: Query) -> Shape:
    """(data, context, token)."""
    return TupleShape((query.operands[0], array("u32", ()), TOKEN))


def recv_done(query: Query) -> Shape:
    """(data, token)."""
    return TupleShape((element(query, query.operands[0], 0), TOKEN))


def first_element(query: Query) -> Shape:
    """`copy-done`: the copy."""
    return element(query, query.operands[0], 0)


def second_element(query: Query) -> Shape:
    """The result beside the operands, where an asynchronous collective or computation ends."""
    operand = query.operands[0]
    if query.opcode == "collective-permute-done" and not isinstance(operand, TupleShape):
        return operand
    return element(query, operand, 1)


def reduce_precision(query: Query) -> Shape:
    """The operand's shape."""
    operand = query.array(0)
    if not is_floating(operand.element_type):
        query.refuse(f"takes floating-point elements, the operand is {text(operand)}")
    if query.integer("exponent_bits") < 1 or query.integer("mantissa_bits") < 0:
        query.refuse("needs at least one exponent bit and no negative number of mantissa bits")
    return operand
