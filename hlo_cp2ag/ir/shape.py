"""Shapes and layouts as HLO text writes them: `f32[8,3]{1,0:T(8,128)S(1)}`, `(f32[2], token[])`, `b(f32[16])`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

_MOST_DIGITS = 40
"""Longer numbers are past any range; Python refuses to read those of thousands of digits."""
UNBOUNDED = -1
"""The size of a dimension written `?`."""

_BITS = {
    "pred": 8,
    **{f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    "bf16": 16,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
    "f4e2m1fn": 4,
    "f6e2m3fn": 6,
    "f6e3m2fn": 6,
    "token": 0,
    "opaque": 0,
    **{f"f8{kind}": 8 for kind in ("e3m4", "e4m3", "e4m3fn", "e4m3b11fnuz", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")},
}

ELEMENT_TYPES: frozenset[str] = frozenset(_BITS)
"""XLA's primitive type names (xla_data.proto), less `tuple` and `buffer`, which have no name in text."""


def element_bits(element_type: str) -> int:
    """The width in bits of one element as a value (`pred` is stored in 8); 0 for tokens and opaque values."""
    return _BITS[element_type]


def is_integer(element_type: str) -> bool:
    """Whether the element type is a signed or unsigned integer (`pred` is not)."""
    return element_type[0] in "su"


def is_floating(element_type: str) -> bool:
    """Whether the element type is a real floating-point type."""
    return element_type[0] == "f" or element_type == "bf16"


def is_complex(element_type: str) -> bool:
    """Whether the element type is c64 or c128."""
    return element_type in ("c64", "c128")


@dataclass(frozen=True)
class Layout:
    """A layout: dimensions from minor to major, and the annotations behind the colon as they stand in the text.

    `annotations` holds tiles `T(8,128)(2,1)`, tail padding `L()`, element size `E()`, memory space `S()`,
    split configuration `SC()`, dynamic metadata prefix `M()`, in the text's own words.
    """

    minor_to_major: tuple[int, ...]
    annotations: str = ""

    @property
    def memory_space(self) -> int:
        """The memory space `S(n)`; 0 is the default memory."""
        match = re.search(r"(?<![A-Z])S\((\d+)\)", self.annotations)
        return int(match.group(1)) if match else 0

    @property
    def element_size_in_bits(self) -> int:
        """The packed element size `E(n)`; 0 where the text has none."""
        match = re.search(r"(?<![A-Z])E\((\d+)\)", self.annotations)
        return int(match.group(1)) if match else 0

    @property
    def tiles(self) -> str:
        """The tiles' text, `T(8,128)(2,1)`, or nothing."""
        match = re.search(r"(?<![A-Z])T(?:\([^()]*\))+", self.annotations)
        return match.group(0) if match else ""

    def without_memory_space(self) -> Layout:
        """The same layout in the default memory space, without split configuration."""
        return replace(self, annotations=re.sub(r"(?<![A-Z])SC?\([^()]*\)", "", self.annotations))

    def to_text(self) -> str:
        """`{1,0:T(8,128)}` as XLA prints it; nothing for a layout that says nothing."""
        if not self.minor_to_major and not self.annotations:
            return ""
        colon = f":{self.annotations}" if self.annotations else ""
        return "{" + ",".join(map(str, self.minor_to_major)) + colon + "}"


@dataclass(frozen=True)
class ArrayShape:
    """An array (or `token[]`, `opaque[]`): element type, sizes, which of them are dynamic (`<=N`, `?`), layout."""

    element_type: str
    dimensions: tuple[int, ...] = ()
    dynamic: tuple[bool, ...] = ()
    layout: Layout | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dimensions)

    @property
    def is_dynamic(self) -> bool:
        """Whether some dimension's size is known only at run time."""
        return any(self.dynamic)

    @property
    def is_data(self) -> bool:
        """Whether the shape holds elements; tokens and opaque values do not."""
        return self.element_type not in ("token", "opaque")

    @cached_property
    def element_count(self) -> int:
        """The product of the dimensions."""
        count = 1
        for size in self.dimensions:
            count *= size
        return count

    @property
    def byte_size(self) -> int:
        """Bytes of the elements, packed if narrower than a byte; padding of tiles is not counted."""
        return (self.element_count * element_bits(self.element_type) + 7) // 8

    def with_dimensions(self, dimensions: tuple[int, ...]) -> ArrayShape:
        """The same element type and layout with other sizes; no dimension is dynamic."""
        return replace(self, dimensions=dimensions, dynamic=())

    def to_text(self, layout: bool = True) -> str:
        """The shape as XLA prints it."""
        return self._text if layout else self._text_without_layout

    @cached_property
    def _text(self) -> str:
        return self._text_without_layout + (self.layout.to_text() if self.layout else "")

    @cached_property
    def _text_without_layout(self) -> str:
        flags = self.dynamic or (False,) * len(self.dimensions)
        sizes = ",".join(
            "?" if size == UNBOUNDED else f"<={size}" if flag else str(size)
            for size, flag in zip(self.dimensions, flags, strict=True)
        )
        return f"{self.element_type}[{sizes}]"


@dataclass(frozen=True)
class TupleShape:
    """A tuple of shapes, possibly empty or nested."""

    elements: tuple[Shape, ...] = ()

    def to_text(self, layout: bool = True) -> str:
        """The shape as XLA prints it, with an index comment before every fifth element after the first five."""
        parts = [
            (f"/*index={i}*/" if i and i % 5 == 0 else "") + element.to_text(layout)
            for i, element in enumerate(self.elements)
        ]
        return "(" + ", ".join(parts) + ")"


@dataclass(frozen=True)
class BufferShape:
    """A buffer `b(f32[16])`: memory that custom-calls pass along without copying."""

    array: ArrayShape

    def to_text(self, layout: bool = True) -> str:
        """The shape as XLA prints it."""
        return f"b({self.array.to_text(layout)})"


Shape = ArrayShape | TupleShape | BufferShape


def leaves(shape: Shape) -> Iterator[ArrayShape | BufferShape]:
    """The shape's leaves in order; an array is its own leaf."""
    pending: list[Shape] = [shape]
    while pending:
        shape = pending.pop()
        if isinstance(shape, TupleShape):
            pending.extend(reversed(shape.elements))
        else:
            yield shape


def compatible(a: Shape, b: Shape) -> bool:
    """Whether two shapes agree in all but their layouts (XLA's ShapeUtil::Compatible).

    Element types and sizes are compared; whether a dimension is dynamic is not.
    """
    pending: list[tuple[Shape, Shape]] = [(a, b)]
    while pending:
        a, b = pending.pop()
        if isinstance(a, BufferShape) and isinstance(b, BufferShape):
            a, b = a.array, b.array
        if isinstance(a, TupleShape) and isinstance(b, TupleShape):
            if len(a.elements) != len(b.elements):
                return False
            pending.extend(zip(a.elements, b.elements, strict=True))
        elif not (isinstance(a, ArrayShape) and isinstance(b, ArrayShape) and _compatible_arrays(a, b)):
            return False
    return True


def _compatible_arrays(a: ArrayShape, b: ArrayShape) -> bool:
    return a.element_type == b.element_type and (
        a.dimensions == b.dimensions
        or (
            len(a.dimensions) == len(b.dimensions)
            and UNBOUNDED in a.dimensions + b.dimensions
            and all(x == y or UNBOUNDED in (x, y) for x, y in zip(a.dimensions, b.dimensions, strict=True))
        )
    )


class ShapeTextError(ValueError):
    """A shape's text that XLA refuses; `offset` is where in the text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<comment>/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)"
    r"|(?P<array>(?P<type>[a-z][a-z0-9]*)[ \t\r\n]*\[(?P<sizes>[^\[\]{}()\"%]*)\])"
    r"(?:[ \t\r\n]*(?P<layout>\{[ \t\r\n]*[\d:][^{}=\"%]*\}))?"
    r"|(?P<buffer>b[ \t\r\n]*\()|(?P<open>\()|(?P<close>\))|(?P<comma>,))"
)
_SIZE = re.compile(
    r"[ \t\r\n]*(?:(?P<bound><=[ \t\r\n]*)?(?P<size>-?[0-9]+)|(?P<unbounded>\?)|(?P<bad><=[ \t\r\n]*\?))[ \t\r\n]*"
)
_I = r"-?[0-9]+"
_DIM = rf"(?:\*|{_I})"
_ANNOTATION = re.compile(
    r"(?:D\((?:[DCSH]\+?~?(?:,[DCSH]\+?~?)*)?\))?"
    rf"(?:T(?P<tiles>(?:\((?:{_DIM}(?:,{_DIM})*)?\))*))?"
    rf"(?:L(?:\((?P<padding>{_I})\))?)?"
    r"(?P<sparse>(?:#\([su][0-9]+\))?(?:\*\([suf][0-9]+\))?)"
    rf"(?:E(?:\((?P<bits>{_I})\))?)?(?:S(?:\({_I}\))?)?"
    rf"(?:SC(?P<splits>(?:\({_I}:(?:{_I}(?:,{_I})*)?\))+))?"
    rf"(?:M(?:\({_I}\))?)?"
)
"""What may stand behind a layout's colon, in this order."""


@lru_cache(maxsize=1 << 15)
def parse_shape(text: str) -> Shape:
    """The shape that `text` writes.

    Raises ShapeTextError, whose `offset` points into `text`, if XLA's parser refuses it.
    """
    stack: list[tuple[bool, list[Shape]]] = []
    result: Shape | None = None
    position, wants_comma, behind_comma = 0, False, False
    while True:
        if result is not None and not stack and not text[position:].strip(" \t\r\n"):
            return result
        match = _TOKEN.match(text, position)
        if match is None or (result is not None and not stack and match["comment"] is None):
            raise ShapeTextError("expects a shape", position)
        start, position = match.start(match.lastgroup or 0), match.end()
        done: Shape | None = None
        if match["comment"]:
            continue
        if wants_comma and not (match["comma"] or match["close"]):
            raise ShapeTextError("expects a comma between the shapes of a tuple", start)
        if behind_comma and match["close"]:
            raise ShapeTextError("expects a shape behind this comma", start)
        behind_comma = bool(match["comma"])
        if match["array"]:
            done = _array(match)
            in_tuple = bool(stack) and not all(is_buffer for is_buffer, _ in stack)
            reason = layout_fault(done) if in_tuple else ""
            if reason:
                raise ShapeTextError(reason, match.start("array"))
        elif match["buffer"]:
            stack.append((True, []))
            wants_comma = False
        elif match["open"]:
            stack.append((False, []))
            wants_comma = False
            continue
        elif match["close"] and stack:
            is_buffer, elements = stack.pop()
            if is_buffer and (len(elements) != 1 or not isinstance(elements[0], ArrayShape)):
                raise ShapeTextError("a buffer shape holds one array", start)
            if is_buffer and isinstance(elements[0], ArrayShape) and not elements[0].is_data:
                raise ShapeTextError("a buffer shape holds an array", start)
            if not is_buffer and elements and not wants_comma:
                raise ShapeTextError("expects a shape after the comma", start)
            done = BufferShape(elements[0]) if is_buffer else TupleShape(tuple(elements))  # type: ignore[arg-type]
        elif match["comma"] and wants_comma and not stack[-1][0]:
            wants_comma = False
            continue
        else:
            raise ShapeTextError("expects a shape", start)
        if done is None:
            continue
        if stack:
            stack[-1][1].append(done)
            wants_comma = True
        else:
            result = done


def _array(match: re.Match[str]) -> ArrayShape:
    element_type = match["type"]
    if element_type not in ELEMENT_TYPES:
        raise ShapeTextError(f"unknown element type {element_type!r}", match.start("type"))
    sizes: list[int] = []
    dynamic: list[bool] = []
    text = match["sizes"]
    if text.strip(" \t\r\n"):
        offset = match.start("sizes")
        for part in text.split(","):
            size = _SIZE.fullmatch(part)
            if size is None or size["bad"]:
                raise ShapeTextError("expects a dimension's size: an integer, <=integer or ?", offset)
            if size["size"] and (len(size["size"]) > _MOST_DIGITS or int(size["size"]) >= 1 << 63):
                raise ShapeTextError("a dimension's size is past 64 bits", offset)
            if size["size"] and int(size["size"]) < 0:
                raise ShapeTextError("a dimension's size is not negative", offset)
            sizes.append(UNBOUNDED if size["unbounded"] else int(size["size"]))
            dynamic.append(bool(size["bound"] or size["unbounded"]))
            offset += len(part) + 1
    if sizes and element_type in ("token", "opaque"):
        raise ShapeTextError(f"{element_type} has no dimensions", match.start("sizes"))
    layout = _layout(match, len(sizes)) if match["layout"] else None
    return ArrayShape(element_type, tuple(sizes), tuple(dynamic) if any(dynamic) else (), layout)


def _layout(match: re.Match[str], rank: int) -> Layout:
    text = re.sub(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|[ \t\r\n]+", " ", match["layout"][1:-1])
    order_text, _, annotations = text.partition(":")
    annotations = annotations.replace(" ", "")
    start = match.start("layout")
    order = []
    for part in order_text.split(",") if order_text.strip() else ():
        if not re.fullmatch(r" *-?[0-9]{1,20} *", part):
            raise ShapeTextError("expects a layout's dimension", start)
        order.append(int(part))
        if not -1 << 63 <= order[-1] < 1 << 64:
            raise ShapeTextError("an integer past 64 bits", start)
    if len(order) != rank:
        raise ShapeTextError(f"the shape has {rank} dimensions, its layout {len(order)}", start)
    if annotations:
        known = _ANNOTATION.fullmatch(annotations)
        if known is None:
            raise ShapeTextError(f"unknown layout annotation {annotations!r}", start)
        if "-" in (known["tiles"] or "") or int(known["padding"] or 1) < 1:
            raise ShapeTextError(f"a size below one in the layout annotation {annotations!r}", start)
        if any(len(digits) > 19 and int(digits) >= 1 << 64 for digits in re.findall("[0-9]+", annotations)):
            raise ShapeTextError("an integer past 64 bits", start)
    return Layout(tuple(order), annotations)


def layout_fault(shape: ArrayShape) -> str:
    """Why an array cannot be laid out in memory as its layout says; nothing if it can.

    XLA's parser asks this of the parts of tuples and of constants, and of no other array.
    """
    layout = shape.layout
    if layout is not None:
        if sorted(layout.minor_to_major) != list(range(shape.rank)):
            return f"the layout {layout.to_text()} is no order of {shape.rank} dimensions"
        if not shape.is_data:
            return f"{shape.element_type} has no layout"
        annotations = _ANNOTATION.fullmatch(layout.annotations)
        if annotations is not None:
            tiles, splits = annotations["tiles"] or "", annotations["splits"] or ""
            if "()" in tiles or re.search(r"[(,]0+[,)]", tiles):
                return "a tile of no size"
            if annotations["sparse"] or (annotations["bits"] or "").startswith("-"):
                return f"the layout annotation {layout.annotations!r} is not for this array"
            if any(not 0 <= int(dimension) < shape.rank for dimension in re.findall(r"\((-?[0-9]+):", splits)):
                return f"a split of a dimension that {shape.to_text(False)} does not have"
    count = 1
    for size in shape.dimensions:
        count *= 1 if size == UNBOUNDED else size
    if count * max(8, element_bits(shape.element_type)) // 8 >= 1 << 63:
        return f"{shape.to_text(False)} takes more memory than 64 bits count"
    return ""
