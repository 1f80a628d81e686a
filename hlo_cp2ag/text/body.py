"""One instruction's body, cut into shape, opcode, operands and attributes.

`cut_body` does it with compiled regular expressions for the forms that XLA prints; `body_of_tree` does it from a Lark
tree for every form there is. A test holds the two against each other on every instruction of the corpus.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlo_cp2ag.ir.module import AttributeText, InstructionBody, Operand
from hlo_cp2ag.ir.shape import Shape, ShapeTextError, parse_shape
from hlo_cp2ag.ir.source import HloSyntaxError, SourceText, Span
from hlo_cp2ag.text.lexical import bracket_end
from hlo_cp2ag.text.opcodes import split_opcode

if TYPE_CHECKING:
    from lark import Token, Tree

BLANK = "[ \t\r\n]"
NAME = r"[A-Za-z_][\w.\-]*"
ARRAY = rf"[a-z][a-z0-9]*{BLANK}*\[[^\[\]{{}}()\"%]*\](?:{BLANK}*\{{{BLANK}*[\d:][^{{}}=\"%]*\}})?"
HEAD = re.compile(
    rf"{BLANK}*(?P<root>ROOT{BLANK}+)?(?:%(?P<percent>{NAME}){BLANK}*|(?P<colon>{NAME}):{BLANK}*|(?P<bare>{NAME}){BLANK}+)={BLANK}*"
)
"""An instruction up to its `=`."""

_TUPLE_OR_BUFFER = re.compile(rf"(?:b{BLANK}*)?\(")
_ARRAY_SHAPE = re.compile(ARRAY)
_OPCODE = re.compile(rf"{BLANK}*([a-z][a-z0-9\-]*){BLANK}*\(")
_OPERAND = re.compile(rf"{BLANK}*(?:({ARRAY}){BLANK}+)?(%?)({NAME}:?){BLANK}*(,|$)")
_BRACES = r"\{[^{}]*(?:\{[^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]*)*\}[^{}]*)*\}"
_ATTRIBUTE = re.compile(
    rf"{BLANK}*,{BLANK}*({NAME})={BLANK}*"
    rf"({_BRACES}|\"_*\"|'_*'|\[[\d,]*\]<=\[[\d,]*\](?:T\([\d,]*\))?|[%\w?\-][\w.\-?>]*)(?=[ \t\r\n,]|$)"
)
_AFTER_ATTRIBUTE = re.compile(rf"{BLANK}*(?:,|$)")

KEYWORDS = frozenset(
    [
        "true",
        "false",
        "inf",
        "nan",
        "HloModule",
        "ENTRY",
        "ROOT",
        "FileLocations",
        "FileNames",
        "FunctionNames",
        "StackFrames",
        "maximal",
        "replicated",
        "manual",
        "last_tile_dim_replicate",
        "shard_as",
        "shard_like",
        "unknown",
        "unreduced",
    ]
)
"""Words that XLA's lexer reserves: no names, unless a `%` stands before them."""


def opcode_behind(masked: str, position: int) -> str:
    """The opcode of an instruction whose `=` ends at `position`; nothing if there is no opcode to be seen."""
    if (opening := _TUPLE_OR_BUFFER.match(masked, position)) is not None:
        position = bracket_end(masked, opening.end() - 1)
        if position < 0:
            return ""
    elif (array := _ARRAY_SHAPE.match(masked, position)) is not None:
        position = array.end()
    match = _OPCODE.match(masked, position)
    return match.group(1) if match else ""


def cut_body(source: SourceText, masked: str, base: int) -> InstructionBody | None:
    """Cuts a masked instruction, which begins at `base`; None if its form is one that only the grammar reads.

    Raises HloSyntaxError for a shape that is none.
    """
    head = HEAD.match(masked)
    if head is None:
        return None
    shape_start = position = head.end()
    if (opening := _TUPLE_OR_BUFFER.match(masked, position)) is not None:
        position = bracket_end(masked, opening.end() - 1)
    elif (array := _ARRAY_SHAPE.match(masked, position)) is not None:
        position = array.end()
    opcode = _OPCODE.match(masked, position) if position > 0 else None
    if opcode is None:
        return None
    open_paren = opcode.end() - 1
    close = masked.find(")", open_paren) + 1
    if close > 0 and masked.find("(", open_paren + 1, close) >= 0:
        close = bracket_end(masked, open_paren)
    if close <= 0:
        return None
    operands: tuple[Operand, ...] | None = ()
    if opcode.group(1) not in ("constant", "parameter"):
        operands = _cut_operands(source, masked, open_paren + 1, close - 1, base)
    attributes = _cut_attributes(source, masked, close, base)
    if operands is None or attributes is None:
        return None
    shape = None
    if position > shape_start:
        shape = read_shape(source, masked[shape_start:position], base + shape_start)
    return InstructionBody(
        opcode.group(1),
        Span(base + opcode.start(1), base + opcode.end(1)),
        shape,
        Span(base + shape_start, base + position),
        operands,
        Span(base + open_paren + 1, base + close - 1),
        attributes,
        attributes[-1].span.end if attributes else base + close,
    )


def _cut_operands(source: SourceText, masked: str, start: int, end: int, base: int) -> tuple[Operand, ...] | None:
    operands: list[Operand] = []
    position = start
    if not masked[start:end].strip(" \t\r\n"):
        return ()
    while True:
        match = _OPERAND.match(masked, position, end)
        if match is None:
            return None
        shape_text, percent, name, comma = match.groups()
        if name in KEYWORDS and not percent:
            return None
        name_start = base + match.start(3)
        first = base + match.start(1) if shape_text else name_start - len(percent)
        shape = read_shape(source, shape_text, first) if shape_text else None
        operands.append(
            Operand(
                name.rstrip(":"),
                Span(first, base + match.end(3)),
                Span(name_start, name_start + len(name.rstrip(":"))),
                shape,
            )
        )
        position = match.end()
        if not comma:
            return tuple(operands)


def _cut_attributes(source: SourceText, masked: str, position: int, base: int) -> tuple[AttributeText, ...] | None:
    attributes: list[AttributeText] = []
    text = source.text
    while (match := _ATTRIBUTE.match(masked, position)) is not None:
        position = match.end()
        if _AFTER_ATTRIBUTE.match(masked, position) is None:
            return None
        value = Span(base + match.start(2), base + position)
        attributes.append(
            AttributeText(match.group(1), text[value.start : value.end], Span(base + match.start(1), value.end), value)
        )
    return None if masked[position:].strip(" \t\r\n") else tuple(attributes)


def read_shape(source: SourceText, text: str, offset: int) -> Shape:
    """A shape's text, which begins at `offset`. Raises HloSyntaxError that points into it."""
    try:
        return parse_shape(text)
    except ShapeTextError as error:
        from hlo_cp2ag.text.expectations import element_type_hint

        word = _ELEMENT_TYPE.match(text, error.offset)
        if word is None or error.message not in ("expects a shape", f"unknown element type {word[1]!r}"):
            raise source.error(offset + error.offset, error.message) from None
        message, hint = f"unknown element type {word[1]!r}", element_type_hint(word[1])
        raise source.error(offset + error.offset, message, hint=hint) from None


_ELEMENT_TYPE = re.compile(r"([A-Za-z][A-Za-z0-9]{0,30})\[")


# ---- from a tree of the grammar ------------------------------------------------------------------------------------------


def parse_rule(source: SourceText, masked: str, base: int, rule: str) -> Tree[Token]:
    """Parses a masked part of the text, which begins at `base`, with one of the grammar's rules.

    Raises HloSyntaxError that says what was expected instead.
    """
    from lark.exceptions import UnexpectedInput

    from hlo_cp2ag.text import expectations, grammar

    try:
        return grammar.parser().parse(masked, start=rule)
    except UnexpectedInput as error:
        raise expectations.syntax_error(source, masked, base, error) from None


def body_of_tree(source: SourceText, tree: Tree[Token], base: int) -> InstructionBody:
    """The parts of an `instruction` or `lone_instruction` tree whose text begins at `base`.

    Raises HloSyntaxError for a shape that is none.
    """
    attributes = tuple(_attribute(source, child, base) for child in _trees(tree, "attribute"))
    return _operation(source, _trees(tree, "operation")[0], attributes, base)


def _trees(tree: Tree[Token], rule: str) -> list[Tree[Token]]:
    return [child for child in tree.children if getattr(child, "data", None) == rule]  # type: ignore[misc]


def _span(node: Tree[Token] | Token, base: int) -> Span:
    if hasattr(node, "meta"):
        return Span(base + node.meta.start_pos, base + node.meta.end_pos)
    assert node.start_pos is not None and node.end_pos is not None
    return Span(base + node.start_pos, base + node.end_pos)


_SHAPES = ("array_shape", "tuple_shape", "buffer_shape")


def _operation(
    source: SourceText, tree: Tree[Token], attributes: tuple[AttributeText, ...], base: int
) -> InstructionBody:
    """An operation with the operations written in place of its operands, innermost first and without recursion."""
    order, pending = [], [tree]
    while pending:
        order.append(pending.pop())
        for operands in _trees(order[-1], "operands"):
            for operand in _trees(operands, "operand"):
                pending.extend(_trees(operand, "operation"))
    bodies: dict[int, InstructionBody] = {}
    for part in reversed(order):
        bodies[id(part)] = _one_operation(source, part, attributes if part is tree else (), base, bodies)
    return bodies[id(tree)]


def _one_operation(
    source: SourceText,
    tree: Tree[Token],
    attributes: tuple[AttributeText, ...],
    base: int,
    bodies: dict[int, InstructionBody],
) -> InstructionBody:
    shape, shape_span = None, Span(base + tree.meta.start_pos, base + tree.meta.start_pos)
    operands: list[Operand] = []
    opcode, opcode_span, operands_span = "", shape_span, shape_span
    for child in tree.children:
        kind = getattr(child, "data", None) or getattr(child, "type", "")
        if kind in _SHAPES:
            shape_span = _span(child, base)
            shape = read_shape_at(source, shape_span)
        elif kind in ("OPCODE", "CONSTANT", "PARAMETER"):
            opcode, opcode_span = str(child), _span(child, base)
        elif kind == "LITERAL":
            start, end = _span(child, base)
            operands_span = Span(start + 1, end - 1)
        elif kind == "INT":
            operands_span = _span(child, base)
        elif kind == "operands":
            try:
                operands = [_operand(source, operand, base, bodies) for operand in child.children]  # type: ignore[union-attr, arg-type]
            except HloSyntaxError:
                if split_opcode(opcode) is not None:
                    raise
                from hlo_cp2ag.text.expectations import opcode_hint  # what it takes for a name may be a literal

                message = f"unknown opcode {opcode!r}"
                raise source.error(opcode_span.start, message, hint=opcode_hint(opcode)) from None
    end = attributes[-1].span.end if attributes else base + tree.meta.end_pos
    if opcode not in ("constant", "parameter"):
        open_paren = source.text.find("(", opcode_span.end)
        operands_span = Span(open_paren + 1, base + tree.meta.end_pos - 1)
    return InstructionBody(opcode, opcode_span, shape, shape_span, tuple(operands), operands_span, attributes, end)


def read_shape_at(source: SourceText, span: Span) -> Shape:
    """The shape at a place in the text, comments between its parts allowed. Raises HloSyntaxError."""
    from hlo_cp2ag.text.lexical import mask, needs_mask

    text = source.text[span.start : span.end]
    return read_shape(source, mask(text) if needs_mask(text) else text, span.start)


def _operand(source: SourceText, tree: Tree[Token], base: int, bodies: dict[int, InstructionBody]) -> Operand:
    span = _span(tree, base)
    shape = name = name_span = nested = None
    for child in tree.children:
        kind = getattr(child, "data", None) or getattr(child, "type", "")
        if kind in _SHAPES:
            shape = read_shape_at(source, _span(child, base))
        elif kind == "operation":
            nested = bodies[id(child)]
        else:
            name = str(child).lstrip("%").rstrip(":")
            start = _span(child, base).start + str(child).startswith("%")
            name_span = Span(start, start + len(name))
            if name in KEYWORDS and not str(child).startswith("%"):
                raise source.error(start, f"{name!r} is a reserved word, not a name", hint=f"write %{name}")
    return Operand(name, span, name_span, shape, nested)


def _attribute(source: SourceText, tree: Tree[Token], base: int) -> AttributeText:
    span = _span(tree, base)
    key = tree.children[0]
    value_start = _span(tree.children[1], base).start if len(tree.children) > 1 else span.end
    # Braces that the grammar keeps no token for ("{" of a list of names) still belong to the value.
    behind_key = base + (key.end_pos or 0)  # type: ignore[union-attr]
    value_start = min(value_start, behind_key + _blanks(source.text, behind_key))
    value = Span(value_start, span.end)
    return AttributeText(str(key)[:-1], source.text[value.start : value.end], span, value)


def _blanks(text: str, position: int) -> int:
    """How many blanks and comments stand at `position`."""
    import re as _re

    match = _re.compile(r"(?:[ \t\r\n]|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|//[^\r\n]*)*").match(text, position)
    return len(match.group()) if match else 0
