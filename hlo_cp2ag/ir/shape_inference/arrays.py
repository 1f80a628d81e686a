"""Making result shapes the way XLA does: default layouts for new shapes, the operand's layout for elementwise ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hlo_cp2ag.ir.shape import UNBOUNDED, ArrayShape, BufferShape, Layout, Shape, TupleShape, compatible, element_bits

from .element_types import same_but_for_precision
from .errors import ShapeInferenceError

_INT64_MAX = (1 << 63) - 1
_ELEMENT_SIZE = re.compile(r"(?<![A-Z])E\(\d+\)")
_AFTER_ELEMENT_SIZE = re.compile(r"(?<![A-Z])(?:SC?|P|M)\(")


def default_layout(rank: int) -> Layout | None:
    """Row-major order; none for a scalar, whose layout is never printed."""
    return Layout(tuple(range(rank - 1, -1, -1))) if rank else None


def with_layouts(shape: Shape) -> Shape:
    """The shape with row-major layouts where the text left them out, as XLA's parser fills them in."""
    if isinstance(shape, ArrayShape):
        if shape.layout is None and shape.rank:
            return replace(shape, layout=default_layout(shape.rank))
        return shape
    if isinstance(shape, TupleShape):
        elements = tuple(with_layouts(element) for element in shape.elements)
        return shape if all(a is b for a, b in zip(elements, shape.elements, strict=True)) else TupleShape(elements)
    array = with_layouts(shape.array)
    return shape if array is shape.array else BufferShape(array)  # type: ignore[arg-type]


def flags(shape: ArrayShape) -> tuple[bool, ...]:
    """Which dimensions are dynamic, one flag each."""
    return shape.dynamic or (False,) * shape.rank


def is_unbounded(shape: ArrayShape) -> bool:
    """Whether some dimension is written `?`."""
    return UNBOUNDED in shape.dimensions


def array(element_type: str, dimensions: Sequence[int], dynamic: Sequence[bool] = ()) -> ArrayShape:
    """A new array in row-major order. Raises ShapeInferenceError for more elements than 64 bits count."""
    count, overflows = 1, False
    for size in dimensions:
        if size == UNBOUNDED:
            continue
        count *= size
        if count > _INT64_MAX:
            count, overflows = count % (1 << 63), True
    if overflows:
        raise ShapeInferenceError(f"the result {element_type}[{','.join(map(str, dimensions))}] has too many elements")
    dynamic = tuple(dynamic) if any(dynamic) else ()
    return ArrayShape(element_type, tuple(dimensions), dynamic, default_layout(len(dimensions)))


def with_dynamic(shape: ArrayShape, dynamic: Sequence[bool]) -> ArrayShape:
    """The same shape with other flags."""
    return replace(shape, dynamic=tuple(dynamic) if any(dynamic) else ())


def with_element_type(shape: ArrayShape, element_type: str) -> ArrayShape:
    """Another element type in the same layout; `E(n)` stays only on types narrower than a byte.

    XLA drops it even if the element type stays as it is.
    """
    if element_bits(element_type) >= 8:
        shape = with_element_size(shape, 0)
    return shape if element_type == shape.element_type else replace(shape, element_type=element_type)


def with_element_size(shape: ArrayShape, bits: int) -> ArrayShape:
    """The same shape with the layout's `E(bits)`; 0 takes it away."""
    layout = shape.layout
    if layout is None or layout.element_size_in_bits == bits:
        return shape
    annotations = _ELEMENT_SIZE.sub("", layout.annotations)
    if bits:
        behind = _AFTER_ELEMENT_SIZE.search(annotations)
        place = behind.start() if behind else len(annotations)
        annotations = f"{annotations[:place]}E({bits}){annotations[place:]}"
    return replace(shape, layout=replace(layout, annotations=annotations))


def compatible_but_for_precision(a: Shape, b: Shape) -> bool:
    """Whether shapes agree but for layouts and for which floating-point types they hold."""
    if isinstance(a, ArrayShape) and isinstance(b, ArrayShape):
        return same_but_for_precision(a.element_type, b.element_type) and same_sizes(a, b)
    if isinstance(a, TupleShape) and isinstance(b, TupleShape):
        return len(a.elements) == len(b.elements) and all(
            compatible_but_for_precision(x, y) for x, y in zip(a.elements, b.elements, strict=True)
        )
    if isinstance(a, BufferShape) and isinstance(b, BufferShape):
        return compatible_but_for_precision(a.array, b.array)
    return False


def same_sizes(a: ArrayShape, b: ArrayShape) -> bool:
    """Whether two arrays have the same sizes; `?` goes with any size."""
    return compatible(replace(a, element_type=b.element_type), b)


def sizes_agree(a: int, b: int) -> bool:
    """Whether two sizes are equal or one of them is `?`."""
    return a == b or UNBOUNDED in (a, b)


def is_scalar(shape: Shape, element_type: str | None = None) -> bool:
    """Whether a shape is a scalar array, of an element type if one is given."""
    return (
        isinstance(shape, ArrayShape)
        and shape.is_data
        and not shape.dimensions
        and element_type in (None, shape.element_type)
    )


def text(shape: Shape) -> str:
    """The shape without its layout, for messages."""
    return shape.to_text(layout=False)
