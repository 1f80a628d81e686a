"""What XLA's verifier asks of the computations that `sort` and `scan` call, beyond what inference does."""

from __future__ import annotations

from hlo_cp2ag.ir.shape import ArrayShape, Shape, TupleShape, compatible

from .arrays import compatible_but_for_precision, is_scalar, text
from .query import Program, Query


def check_sort(query: Query) -> None:
    """The computation compares two elements of each operand, in turn; the dimension is one of theirs."""
    shapes = query.arrays()
    program = query.program("to_apply")
    if not shapes:
        query.refuse("needs an operand")
    query.dimension_in(query.one_dimension(), shapes[0])
    expected = [ArrayShape(shape.element_type) for shape in shapes for _ in range(2)]
    if not _takes(program, expected):
        query.refuse(f"the computation {program} has to take ({', '.join(map(text, expected))})")
    if not is_scalar(program.result, "pred"):
        query.refuse(f"the computation {program} has to return pred[]")


def check_scan(query: Query) -> None:
    """The computation takes a slice of each input and the carries, and returns the carries behind its outputs."""
    program = query.program("to_apply")
    along = query.one_dimension()
    carries = query.integer("num_carries")
    inputs = len(query.operands) - carries
    expected: list[Shape] = []
    for i in range(inputs):
        shape = query.array(i)
        query.dimension_in(along, shape)
        expected.append(shape.with_dimensions((*shape.dimensions[:along], *shape.dimensions[along + 1 :])))
    expected += query.operands[inputs:]
    if not _takes(program, expected):
        query.refuse(f"the computation {program} has to take ({', '.join(map(text, expected))})")
    result = program.result.elements if isinstance(program.result, TupleShape) else (program.result,)
    ends = result[len(result) - carries :] if carries <= len(result) else ()
    if len(ends) != carries or not all(map(compatible, ends, program.parameters[inputs:])):
        query.refuse(f"the computation {program} has to return its {carries} carries")


def _takes(program: Program, expected: list[ArrayShape] | list[Shape]) -> bool:
    return len(program.parameters) == len(expected) and all(
        map(compatible_but_for_precision, program.parameters, expected)
    )
