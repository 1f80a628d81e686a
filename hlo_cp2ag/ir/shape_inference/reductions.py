"""Ops that apply a computation along dimensions: reductions, windows, sort, map, scan, and topk.

Their results are new row-major shapes, save that `sort` and `select-and-scatter` return the operands' shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_cp2ag.ir.attributes import Window
from hlo_cp2ag.ir.shape import UNBOUNDED, ArrayShape, Layout, Shape, TupleShape, compatible

from .arrays import array, compatible_but_for_precision, flags, is_scalar, same_sizes, text, with_element_type
from .element_types import same_but_for_precision
from .query import Program, Query


def check_reducer(query: Query, reducer: Program, starts: Sequence[Shape], inputs: Sequence[str]) -> list[ArrayShape]:
    """The accumulators of a reducer: 2n scalar parameters, n results, each of its start value's and input's type.

    `inputs` are the element types of what is reduced; all types may differ in floating-point precision, except that a
    result has exactly the type of the parameter it comes back as.
    """
    if len(reducer.parameters) != 2 * len(inputs):
        query.refuse(f"the computation {reducer} takes {len(reducer.parameters)} parameters, not {2 * len(inputs)}")
    result = reducer.result
    accumulators = result.elements if isinstance(result, TupleShape) else (result,)
    if len(accumulators) != len(inputs) or (len(inputs) != 1 and not isinstance(result, TupleShape)):
        query.refuse(f"the computation {reducer} has to return {len(inputs)} scalars")
    checked: list[ArrayShape] = []
    for i, accumulator in enumerate(accumulators):
        if not is_scalar(accumulator) or not isinstance(accumulator, ArrayShape):
            query.refuse(f"the computation {reducer} has to return scalars")
        if not compatible(accumulator, reducer.parameters[i]):
            query.refuse(f"parameter {i} of {reducer} has not the type of the result")
        if not compatible_but_for_precision(accumulator, starts[i]):
            query.refuse(f"the start value {text(starts[i])} is not what the computation {reducer} takes")
        if not compatible_but_for_precision(array(inputs[i], ()), reducer.parameters[len(inputs) + i]):
            query.refuse(f"elements of type {inputs[i]} are not what the computation {reducer} takes")
        if not compatible_but_for_precision(accumulator, reducer.parameters[len(inputs) + i]):
            query.refuse(f"parameter {len(inputs) + i} of {reducer} has not the type of the result")
        checked.append(accumulator)
    return checked


def reduce(query: Query) -> Shape:
    """The operands without the reduced dimensions; element types are the reducer's."""
    half = len(query.operands) // 2
    if not query.operands or len(query.operands) % 2:
        query.refuse(f"takes operands and as many start values, it has {len(query.operands)} in all")
    shapes = [query.array(i) for i in range(half)]
    for shape in shapes[1:]:
        if not same_sizes(shapes[0], shape):
            query.refuse(f"the operands' sizes differ: {text(shapes[0])} and {text(shape)}")
    dimensions = query.integers("dimensions")
    for dimension in dimensions:
        query.dimension_in(dimension, shapes[0])
    reducer = query.program("to_apply")
    accumulators = check_reducer(query, reducer, query.operands[half:], [shape.element_type for shape in shapes])
    if len(set(dimensions)) != len(dimensions):
        query.refuse("a dimension stands twice in dimensions")
    kept = [i for i in range(shapes[0].rank) if i not in dimensions]
    sizes = [shapes[0].dimensions[i] for i in kept]
    dynamic = [flags(shapes[0])[i] for i in kept]
    results = [array(accumulator.element_type, sizes, dynamic) for accumulator in accumulators]
    return TupleShape(tuple(results)) if isinstance(reducer.result, TupleShape) else results[0]


def windowed(query: Query, base: ArrayShape, window: Window, element_type: str) -> ArrayShape:
    """How many places a window has over a base: (padded and dilated base - dilated window) // stride + 1, or none."""
    if len(window.dimensions) != base.rank:
        query.refuse(f"the window has {len(window.dimensions)} dimensions, the operand is {text(base)}")
    sizes = []
    for i, (size, dim) in enumerate(zip(base.dimensions, window.dimensions, strict=True)):
        if min(dim.size, dim.stride, dim.lhs_dilate, dim.rhs_dilate) < 1:
            query.refuse(f"size, stride and dilation of the window's dimension {i} have to be positive")
        if size == UNBOUNDED:
            sizes.append(UNBOUNDED)
            continue
        padded = dim.padding_low + _dilated(size, dim.lhs_dilate) + dim.padding_high
        if padded < 0:
            query.refuse(f"the padding of the window's dimension {i} takes away more than there is")
        reach = _dilated(dim.size, dim.rhs_dilate)
        sizes.append((padded - reach) // dim.stride + 1 if 0 < reach <= padded else 0)
    return array(element_type, sizes, flags(base))


def _dilated(size: int, dilation: int) -> int:
    return (size - 1) * dilation + 1 if size else 0


def window_of(query: Query) -> Window:
    """The `window` attribute; one without dimensions where it is left out."""
    window = query.attributes.get("window", Window())
    if not isinstance(window, Window):
        query.refuse("the attribute window has to be a window")
    return window


def reduce_window(query: Query) -> Shape:
    """One value for each place of the window; element types are the start values'.

    XLA's parser infers for one operand only, and then an array even where the reducer returns a tuple of one.
    """
    half = len(query.operands) // 2
    if not query.operands or len(query.operands) % 2:
        query.refuse(f"takes operands and as many start values, it has {len(query.operands)} in all")
    shapes = [query.array(i) for i in range(half)]
    for shape in shapes[1:]:
        if not same_sizes(shapes[0], shape):
            query.refuse(f"the operands' sizes differ: {text(shapes[0])} and {text(shape)}")
    reducer = query.program("to_apply")
    check_reducer(query, reducer, query.operands[half:], [shape.element_type for shape in shapes])
    window = window_of(query)
    results = []
    for i, shape in enumerate(shapes):
        start = query.operands[half + i]
        assert isinstance(start, ArrayShape)
        results.append(windowed(query, shape, window, start.element_type))
    return results[0] if half == 1 else TupleShape(tuple(results))


def select_and_scatter(query: Query) -> Shape:
    """The operand's shape; the source has one value for each place of the window."""
    operand, source, start = query.array(0), query.array(1, "the source"), query.operands[2]
    select = query.program("select")
    if len(select.parameters) != 2 or not is_scalar(select.result, "pred"):
        query.refuse(f"the computation select takes two elements and returns pred[], it is {select}")
    for parameter in select.parameters:
        if not compatible_but_for_precision(array(operand.element_type, ()), parameter):
            query.refuse(f"the computation select is {select}, the operand is {text(operand)}")
    check_reducer(query, query.program("scatter"), (start,), (source.element_type,))
    places = windowed(query, operand, window_of(query), operand.element_type)
    if not compatible_but_for_precision(source, places):
        query.refuse(f"the source {text(source)} does not fit the window's places {text(places)}")
    return operand


def sort(query: Query) -> Shape:
    """The operands' shapes, as a tuple if there are several; whether `dimensions` fits is not inference's to ask."""
    query.one_dimension()
    if len(query.operands) == 1:
        return query.operands[0]
    shapes = query.arrays()
    for shape in shapes[1:]:
        if not same_sizes(shapes[0], shape):
            query.refuse(f"the operands' sizes differ: {text(shapes[0])} and {text(shape)}")
    return TupleShape(query.operands)


def map_(query: Query) -> Shape:
    """The operands' sizes with the computation's element type; scalars go with operands of the same type."""
    if not query.operands:
        query.refuse("needs an operand")
    shapes = query.arrays()
    model = shapes[0]
    for shape in shapes[1:]:
        if same_sizes(shape, model):
            continue
        fits = same_but_for_precision(shape.element_type, model.element_type)
        if not fits or (shape.rank and model.rank):
            query.refuse(f"the operands' sizes differ: {', '.join(map(text, shapes))}")
        model = model if model.rank else shape
    dimensions = query.integers("dimensions", ())
    if dimensions != tuple(range(model.rank)):
        query.refuse(f"dimensions={{{','.join(map(str, dimensions))}}} are not those of {text(model)} in order")
    program = query.program("to_apply")
    if len(program.parameters) != len(shapes):
        query.refuse(f"has {len(shapes)} operands, the computation is {program}")
    if not is_scalar(program.result):
        query.refuse(f"the computation {program} has to return a scalar")
    for parameter, shape in zip(program.parameters, shapes, strict=True):
        if not is_scalar(parameter) or not isinstance(parameter, ArrayShape):
            query.refuse(f"the computation {program} has to take scalars")
        if not same_but_for_precision(parameter.element_type, shape.element_type):
            query.refuse(f"the operand {text(shape)} is not what the computation {program} takes")
    assert isinstance(program.result, ArrayShape)
    return array(program.result.element_type, model.dimensions, flags(model))


def scan(query: Query) -> Shape:
    """The computation's results, those that are not carries with the scanned dimension put in.

    In memory that dimension is the next slower one to the dimension it pushes back, or the fastest if it is the last.
    Tiles, memory space and dynamic sizes get lost, as they do in XLA.
    """
    program = query.program("to_apply")
    along = query.one_dimension()
    carries = query.integer("num_carries")
    if len(program.parameters) != len(query.operands):
        query.refuse(f"has {len(query.operands)} operands, the computation is {program}")
    if not 0 <= carries <= len(query.operands):
        query.refuse(f"has {len(query.operands)} operands, num_carries is {carries}")
    if carries == len(query.operands):
        query.refuse("no shape follows without an operand to scan")
    scanned = query.array(0)
    size = scanned.dimensions[query.dimension_in(along, scanned)]
    if size == UNBOUNDED:
        query.refuse(f"the scanned dimension of {text(scanned)} has no known size")
    if not isinstance(program.result, TupleShape):
        return program.result if carries else _with_dimension(query, program.result, along, size)
    results = program.result.elements
    stacked = len(results) - carries
    return TupleShape(
        tuple(_with_dimension(query, r, along, size) if i < stacked else r for i, r in enumerate(results))
    )


def _with_dimension(query: Query, shape: Shape, at: int, size: int) -> ArrayShape:
    if not isinstance(shape, ArrayShape) or not shape.is_data or at > shape.rank:
        query.refuse(f"the result {text(shape)} of the computation has no place for dimension {at}")
    if UNBOUNDED in shape.dimensions:
        query.refuse(f"the result {text(shape)} of the computation has no known size")
    dimensions = (*shape.dimensions[:at], size, *shape.dimensions[at:])
    order = [d + (d >= at) for d in (shape.layout.minor_to_major if shape.layout else ())]
    order.insert(order.index(at + 1) + 1 if at + 1 in order else 0, at)
    return ArrayShape(shape.element_type, dimensions, (), Layout(tuple(order)))


def topk(query: Query) -> Shape:
    """`k` values and their indices along the last dimension, whose dynamic size is then a static one."""
    operand = query.array(0)
    k = query.integer("k")
    if not operand.rank:
        query.refuse(f"the operand {text(operand)} has no dimension to take from")
    if not 0 <= k <= operand.dimensions[-1]:
        query.refuse(f"k={k} is not within the last dimension of {text(operand)}")
    dynamic = (*flags(operand)[:-1], False)
    values = array(operand.element_type, (*operand.dimensions[:-1], k), dynamic)
    return TupleShape((values, with_element_type(values, "s32")))
