"""What stands outside of instructions: the module's header, its tables, computations' headers, and the end."""

from __future__ import annotations

import re

from hlo_cp2ag.ir.attributes import RecoveryEntry
from hlo_cp2ag.ir.module import AttributeText, Computation
from hlo_cp2ag.ir.shape import Shape, ShapeTextError, TupleShape, parse_shape
from hlo_cp2ag.ir.source import HloSyntaxError, Span
from hlo_cp2ag.text import opcodes
from hlo_cp2ag.text.check_names import closest
from hlo_cp2ag.text.check_state import RESERVED, State
from hlo_cp2ag.text.lexical import bracket_end, mask, needs_mask
from hlo_cp2ag.text.parser import read_value

_B = "[ \t\r\n]*"
_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
_BEFORE_NAME = re.compile(rf"{_B}HloModule{_B}(%?)({_NAME})(:?)")
_PARAMETER_NAME = re.compile(rf"{_B}(?:%{_NAME}|({_NAME})(:?)){_B}")
_ARRAY = re.compile(rf"[a-z][a-z0-9]*{_B}\[[^\[\]{{}}()\"%]*\](?:{_B}\{{{_B}[\d:][^{{}}=\"%]*\}})?")
_NEXT = re.compile(rf"{_B}([,)])")
_ARROW = re.compile(rf"{_B}->{_B}")


# ---- the module ------------------------------------------------------------------------------------------------------


def check_module_start(state: State) -> None:
    """Checks characters, header and tables. Raises HloSyntaxError."""
    module = state.module
    _check_characters(state)
    if module.header_span is not None:
        _check_module_name(state, module.header_span)
        for attribute in module.header_attributes:
            _check_module_attribute(state, attribute)
    first = next((c for c in module.computations if not c.is_inline), None)
    if first is not None and first.span != first.body_span:
        start = module.header_span.end if module.header_span is not None else 0
        check_tables(state, Span(start, first.span.start))


def _check_characters(state: State) -> None:
    """Letters beyond ASCII and control characters are for strings, comments and raw dictionaries."""
    text = state.source.text
    if text.isascii() and not _CONTROL.search(text):
        return
    masked = mask(text, state.source)
    bad = _NOT_HLO.search(masked)
    if bad is not None:
        raise state.error(
            bad.start(),
            f"the character {text[bad.start()]!r} (U+{ord(text[bad.start()]):04X}) cannot stand here",
            hint="outside of strings and comments, HLO is written in ASCII",
        )


_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NOT_HLO = re.compile("[^\t\n\r\x20-\x7e]")


def _check_module_name(state: State, header: Span) -> None:
    match = _BEFORE_NAME.match(_masked(state, header.start, header.end))
    if match is not None and not match.group(1) and not match.group(3) and match.group(2) in RESERVED:
        where = header.start + match.start(2)
        raise state.error(where, f"{match.group(2)!r} is a reserved word, not a name", hint=f"write %{match.group(2)}")


def _check_module_attribute(state: State, attribute: AttributeText) -> None:
    name = attribute.name
    if name not in opcodes.MODULE_ATTRIBUTES:
        hint = (
            closest(name, opcodes.MODULE_ATTRIBUTES) or f"a module takes {', '.join(sorted(opcodes.MODULE_ATTRIBUTES))}"
        )
        raise state.error(attribute.span.start, f"unknown module attribute {name!r}", hint=hint)
    value = read_value(state.source, attribute)
    if name == "origin_recovery_table" and isinstance(value, tuple):
        for entry in value:
            if isinstance(entry, RecoveryEntry) and entry.module is not None:
                _check_recovery_module(state, attribute, entry.module)


def _check_recovery_module(state: State, attribute: AttributeText, text: str) -> None:
    from hlo_cp2ag.text.parser import parse

    try:
        parse(text).check()
    except HloSyntaxError as error:
        raise state.error(
            attribute.span.start,
            f"the module in its string is none: {error.message}",
            hint=f"line {error.line} of the string",
        ) from None


def check_module_end(state: State) -> None:
    """What is known only when all computations are read. Raises HloSyntaxError."""
    alias = state.module.header_attribute("input_output_alias")
    if alias is not None:
        _check_aliases(state, alias)
    if state.second_async_start is not None:
        name, where = state.second_async_start
        raise state.error(
            where, f"computation {name!r} is called by two async-starts", hint="each async-start needs one of its own"
        )


def _check_aliases(state: State, attribute: AttributeText) -> None:
    result = state.programs[state.module.entry.name].result
    aliases = read_value(state.source, attribute)
    for alias in aliases if isinstance(aliases, tuple) else ():
        shape: Shape | None = result
        for i in alias.output_index:
            elements = shape.elements if isinstance(shape, TupleShape) else ()
            shape = elements[i] if 0 <= i < len(elements) else None
        if shape is None:
            index = ",".join(map(str, alias.output_index))
            raise state.error(
                attribute.value_span.start,
                f"input_output_alias names the output {{{index}}}, the result is {result.to_text(False)}",
            )


# ---- tables ----------------------------------------------------------------------------------------------------------

_CANONICAL = re.compile(
    r"\s*FileNames\n(?:\d{1,9} \"[^\"\\\n]*\"\n)*\nFunctionNames\n(?:\d{1,9} \"[^\"\\\n]*\"\n)*\nFileLocations\n"
    r"(?:\d{1,9} \{file_name_id=\d{1,9} function_name_id=\d{1,9} line=\d{1,9} end_line=\d{1,9} column=\d{1,9}"
    r" end_column=\d{1,9}\}\n)*"
    r"\nStackFrames\n(?:\d{1,9} \{file_location_id=\d{1,9}(?: parent_frame_id=\d{1,9})\}\n)*\s*"
)
_TABLE = re.compile(rf"{_B}(FileNames|FunctionNames|FileLocations|StackFrames)(?![\w.\-=:])")
_ROW = re.compile(
    rf"{_B}(-?\d+)(?:{_B}(\"[^\"\\]*(?:\\[\s\S][^\"\\]*)*\"|'[^'\\]*(?:\\[\s\S][^'\\]*)*'|\{{[^{{}}]*\}}))?"
)
_FIELD = re.compile(rf"{_B}(?:,{_B})?([A-Za-z_]\w*)={_B}(-?\d+)")


def check_tables(state: State, span: Span) -> None:
    """Checks FileNames, FunctionNames, FileLocations and StackFrames. Raises HloSyntaxError."""
    text = state.source.text[span.start : span.end]
    if _CANONICAL.fullmatch(text) or not text.strip(" \t\r\n"):
        return
    from hlo_cp2ag.text.parser import blank_comments

    text = blank_comments(text)
    position = 0
    while (table := _TABLE.match(text, position)) is not None:
        position = table.end()
        while (row := _ROW.match(text, position)) is not None:
            position = row.end()
            value = row.group(2) or ""
            where = span.start + (row.start(2) if value else row.end())
            if table.group(1) not in ("FileNames", "FunctionNames"):
                fields = (
                    opcodes.FILE_LOCATION_FIELDS if table.group(1) == "FileLocations" else opcodes.STACK_FRAME_FIELDS
                )
                _check_fields(state, where, value, fields)
            elif value:  # XLA does not miss a string that is not there
                _check_string(state, where, value)


def _check_string(state: State, where: int, text: str) -> None:
    from hlo_cp2ag.text.value_reader import ValueTextError, unquote

    try:
        unquote(text)
    except ValueTextError as error:
        raise state.error(where + error.offset, error.message) from None


def _check_fields(state: State, where: int, text: str, fields: dict[str, str]) -> None:
    if not text.startswith("{"):
        raise state.error(where, "expects fields in braces")
    seen: set[str] = set()
    position = 1
    while (found := _FIELD.match(text, position)) is not None:
        name, value = found.groups()
        if name not in fields:
            raise state.error(
                where + found.start(1), f"unknown field {name!r}", hint=f"it is one of {', '.join(fields)}"
            )
        if name in seen:
            raise state.error(where + found.start(1), f"the field {name} is given twice")
        if len(value.lstrip("-0")) > 10 or not -(1 << 31) <= int(value) < 1 << 31:
            raise state.error(where + found.start(2), "an integer past 32 bits")
        seen.add(name)
        position = found.end()
    if text[position:].strip(" \t\r\n") != "}":
        raise state.error(where + position, "expects a field such as line=1")
    for name in fields:
        if name not in seen:
            raise state.error(where, f"needs the field {name}")


# ---- computations ----------------------------------------------------------------------------------------------------


def _masked(state: State, start: int, end: int) -> str:
    text = state.source.text[start:end]
    return mask(text, state.source, start) if needs_mask(text) else text


def check_computation_header(state: State, computation: Computation) -> tuple[Shape, int] | None:
    """Checks a computation's name, parameter list and attributes. Raises HloSyntaxError.

    Returns the result shape that the header states, and where; None if it states none.
    """
    text = state.source.text
    start, end = computation.name_span
    if text[start - 1 : start] == "%" and text[end : end + 1] == ":":
        raise state.error(end, "a colon behind a name with %")
    if computation.name in RESERVED and text[start - 1 : start] != "%" and text[end : end + 1] != ":":
        raise state.error(
            start, f"{computation.name!r} is a reserved word, not a name", hint=f"write %{computation.name}"
        )
    span = computation.parameters_span
    result = None
    if span is not None:
        known = state.batch.header_result(text[span.start : span.end]) if state.batch is not None else None
        result = (known, text.rfind("->", span.start, span.end) + 3) if known is not None else _parameters(state, span)
    if computation.attributes_span is not None:
        _check_computation_attributes(state, computation.attributes_span)
    return result


def _parameters(state: State, span: Span) -> tuple[Shape, int]:
    """Checks `(a: f32[2], b: s32[]) -> f32[2]`; the result shape and where it stands."""
    masked = _masked(state, span.start, span.end)
    position = 1
    empty = _NEXT.match(masked, position)
    if empty is not None and empty.group(1) == ")":
        position = empty.end()
    else:
        while True:
            name = _PARAMETER_NAME.match(masked, position)
            if name is None or (not name.group(2) and name.group(1) in RESERVED):
                raise state.error(span.start + _skip(masked, position), "expects a parameter's name")
            position = _check_shape(state, span.start, masked, name.end())
            after = _NEXT.match(masked, position)
            if after is None:
                raise state.error(
                    span.start + _skip(masked, position), "expects a comma or ) after a parameter's shape"
                )
            position = after.end()
            if after.group(1) == ")":
                break
    arrow = _ARROW.match(masked, position)
    if arrow is None:
        raise state.error(span.start + _skip(masked, position), "expects -> and the result's shape")
    end = _check_shape(state, span.start, masked, arrow.end())
    if masked[end:].strip(" \t\r\n"):
        raise state.error(span.start + _skip(masked, end), "expects { after the result's shape")
    return parse_shape(masked[arrow.end() : end]), span.start + arrow.end()


def _skip(text: str, position: int) -> int:
    return len(text) - len(text[position:].lstrip(" \t\r\n"))


def _check_shape(state: State, base: int, masked: str, position: int) -> int:
    """Checks the shape at a position of a masked text that begins at `base`; where it ends."""
    opening = re.compile(rf"(?:b{_B})?\(").match(masked, position)
    if opening is not None:
        end = bracket_end(masked, opening.end() - 1)
    else:
        array = _ARRAY.match(masked, position)
        end = array.end() if array is not None else -1
    if end < 0:
        raise state.error(base + _skip(masked, position), "expects a shape")
    try:
        parse_shape(masked[position:end])
    except ShapeTextError as error:
        raise state.error(base + position + error.offset, error.message) from None
    return end


_COMPUTATION_ATTRIBUTE = re.compile(rf"{_B},{_B}({_NAME})={_B}(\"_*\"|'_*')")


def _check_computation_attributes(state: State, span: Span) -> None:
    masked = _masked(state, span.start, span.end)
    position = 0
    seen = False
    while masked[position:].strip(" \t\r\n"):
        found = _COMPUTATION_ATTRIBUTE.match(masked, position)
        where = span.start + _skip(masked, position)
        if found is None:
            raise state.error(where, 'expects , execution_thread="..." or the next computation')
        name, value = found.group(1), span.start + found.start(2)
        if name != "execution_thread":
            raise state.error(
                span.start + found.start(1),
                f"unknown attribute {name!r} of a computation",
                hint='it takes execution_thread="..."',
            )
        if seen:
            raise state.error(span.start + found.start(1), f"the attribute {name} is given twice")
        seen = True
        position = found.end()
        _check_string(state, value, state.source.text[value : span.start + position])
