"""New instructions as text, in the style of the instruction that they replace."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hlo_cp2ag.ir.module import HloModule, Instruction
from hlo_cp2ag.ir.rewriter import NameOf, NewInstruction, Value
from hlo_cp2ag.ir.shape import ArrayShape, Shape, TupleShape, leaves

_TAIL_ORDER = ("sharding", "frontend_attributes", "control-predecessors", "origin", "metadata")
_ANY_LAYOUT = re.compile(r"\]\{[\d:]")
_ANY_ARRAY = re.compile(r"[a-z]\w+\[[\d<?]")


def to_text(module: HloModule) -> str:
    """The module's text: what no edit has touched is byte for byte what was parsed."""
    return module.text


@dataclass(frozen=True)
class TextStyle:
    """How a module writes its instructions, read off one of them."""

    percent: bool
    """`%name` or `name`."""
    operand_shapes: bool
    """`negate(f32[2]{0} %x)` or `negate(%x)`."""
    layouts: bool
    """`f32[2]{0}` or `f32[2]`."""


class Printer:
    """Writes new instructions; implements `hlo_cp2ag.ir.rewriter.InstructionPrinter`."""

    def __init__(self) -> None:
        self._styles: dict[Instruction, TextStyle] = {}
        self._line_ends: tuple[str, str] | None = None

    def style(self, like: Instruction) -> TextStyle:
        """The style of an instruction's text; what it does not show is read off its computation."""
        style = self._styles.get(like)
        if style is None:
            style = self._styles[like] = _style_of(like)
        return style

    def separator(self, like: Instruction) -> str:
        """A line end and the indentation of the line that holds the instruction."""
        text = like.module.text
        line_end = self._line_end(text)
        start = text.rfind(line_end[-1], 0, like.span.start) + 1
        line = text[start : like.span.start]
        return line_end + line[: len(line) - len(line.lstrip(" \t"))]

    def _line_end(self, text: str) -> str:
        """The text's line ends, by its first one."""
        if self._line_ends is None or self._line_ends[0] is not text:
            newline = text.find("\n")
            if newline > 0 and text[newline - 1] == "\r":
                found = "\r\n"
            else:
                found = "\r" if newline < 0 and "\r" in text else "\n"
            self._line_ends = (text, found)
        return self._line_ends[1]

    def instruction(self, new: NewInstruction, like: Instruction, name_of: NameOf) -> str:
        """The text from the name to the last attribute."""
        style = self.style(like)
        sign = "%" if style.percent else ""
        if new.opcode == "constant":
            inside = new.literal
        elif len(new.operands) <= 5:
            inside = ", ".join([_operand(operand, style, sign, name_of) for operand in new.operands])
        else:
            inside = ", ".join(
                (f"/*index={i}*/" if i and i % 5 == 0 else "") + _operand(operand, style, sign, name_of)
                for i, operand in enumerate(new.operands)
            )
        written = "".join([f", {key}={value}" for key, value in new.attributes])
        if new.tail or new.control_predecessors:
            written += _tail(new, sign, name_of)
        return f"{sign}{name_of(new)} = {new.shape.to_text(style.layouts)} {new.opcode}({inside}){written}"


def _tail(new: NewInstruction, sign: str, name_of: NameOf) -> str:
    """The attributes that any instruction may have, in XLA's order."""
    tail = dict(new.tail)
    if new.control_predecessors:
        names = dict.fromkeys(name_of(value) for value in new.control_predecessors)
        tail["control-predecessors"] = "{" + ", ".join(sign + name for name in names) + "}"
    return "".join(f", {key}={tail[key]}" for key in _TAIL_ORDER if key in tail)


def _operand(value: Value, style: TextStyle, sign: str, name_of: NameOf) -> str:
    name = sign + name_of(value)
    return f"{value.shape.to_text(style.layouts)} {name}" if style.operand_shapes else name


def _style_of(like: Instruction) -> TextStyle:
    text = like.module.text
    shapes: list[Shape | None]
    if like.known_line is not None:
        percent, operand_shapes, shapes = True, False, [like.shape]
    else:
        body = like.body
        percent = text[like.name_span.start - 1 : like.name_span.start] == "%" if like.name else False
        operand_shapes = any(operand.shape is not None for operand in body.operands)
        shapes = [body.shape, *(operand.shape for operand in body.operands)]
    layouts = _says_layouts(shapes)
    if layouts is None:
        span = like.computation.body_span
        layouts = _ANY_LAYOUT.search(text, span.start, span.end) is not None
        if not layouts and _ANY_ARRAY.search(text, span.start, span.end) is None:  # scalars alone: XLA's own text?
            layouts = like.module.header_attribute("entry_computation_layout") is not None
    return TextStyle(percent, operand_shapes, layouts)


def _says_layouts(shapes: list[Shape | None]) -> bool | None:
    """Whether these shapes are written with layouts; None where they are scalars, which show none."""
    for shape in shapes:
        for leaf in leaves(shape) if shape is not None else ():
            if isinstance(leaf, ArrayShape) and leaf.dimensions:
                return leaf.layout is not None
    return None


def default_layout(shape: Shape) -> Shape:
    """The shape with row-major layouts where it has none, as XLA prints it."""
    from dataclasses import replace

    from hlo_cp2ag.ir.shape import Layout

    if isinstance(shape, TupleShape):
        return TupleShape(tuple(default_layout(element) for element in shape.elements))
    if isinstance(shape, ArrayShape) and shape.layout is None:
        return replace(shape, layout=Layout(tuple(reversed(range(shape.rank)))))
    return shape
