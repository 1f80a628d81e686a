"""Reading values with an inner syntax of their own: words of a closed list, shapes, literals, aliases, origins."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hlo_cp2ag.ir.attributes import (
    BufferDonor,
    ComputationLayout,
    InputOutputAlias,
    OriginalArray,
    OutputOperandAlias,
    RecoveryEntry,
    ResultAccuracy,
    Statistics,
    TypedLiteral,
)
from hlo_cp2ag.ir.literal import LiteralTextError, check_literal
from hlo_cp2ag.ir.shape import Shape, ShapeTextError, TupleShape, parse_shape
from hlo_cp2ag.text import opcodes
from hlo_cp2ag.text.device_text import read_device_groups
from hlo_cp2ag.text.sharding_text import read_domain, read_metadata, read_sharding
from hlo_cp2ag.text.value_reader import Reader, ValueTextError
from hlo_cp2ag.text.window_values import read_dim_labels, read_padding, read_slices, read_sparsity_config, read_window

# ---- words of a closed list ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """The words an attribute may have, and how XLA prints them if it reads them in any case."""

    words: frozenset[str]
    printed: Callable[[str], str] | None = None

    def read(self, reader: Reader) -> str:
        """One of the words, as XLA prints it."""
        start = reader.start
        word = reader.word("one of " + ", ".join(sorted(self.words)))
        if (word.lower() if self.printed else word) not in self.words:
            reader.fail(f"unknown word {word!r}; known are {', '.join(sorted(self.words))}", start)
        return self.printed(word) if self.printed else word


WORDS: dict[str, Words] = {
    "fft_type": Words(opcodes.FFT_TYPES),
    "padding_type": Words(opcodes.PADDING_TYPES),
    "comparison_direction": Words(opcodes.COMPARISON_DIRECTIONS),
    "comparison_type": Words(opcodes.COMPARISON_TYPES),
    "enum": Words(opcodes.TRANSPOSE_OPTIONS),
    "fusion_kind": Words(opcodes.FUSION_KINDS),
    "convolution_kind": Words(opcodes.CONVOLUTION_KINDS),
    "group_mode": Words(opcodes.GROUP_MODES),
    "distribution": Words(opcodes.DISTRIBUTIONS_LOWER, str.lower),
    "random_algorithm": Words(opcodes.RANDOM_ALGORITHMS_LOWER, str.lower),
    "precision_algorithm": Words(opcodes.PRECISION_ALGORITHMS_LOWER, str.lower),
    "custom_call_schedule": Words(opcodes.CUSTOM_CALL_SCHEDULES_LOWER, str.upper),
    "custom_call_api_version": Words(opcodes.CUSTOM_CALL_API_VERSIONS_LOWER, str.upper),
}
_PRECISION = Words(opcodes.PRECISIONS_LOWER, str.lower)
_ACCURACY_MODE = Words(opcodes.RESULT_ACCURACY_MODES_LOWER, str.lower)

# ---- numbers and lists -----------------------------------------------------------------------------------------------

_FLOAT_MAX = float.fromhex("0x1.fffffep+127")


def _float(reader: Reader) -> float:
    """A number in the range of f32, which excludes infinities but not NaN."""
    start, value = reader.start, reader.number()
    if abs(value) > _FLOAT_MAX:
        reader.fail("a number past 32 bits", start)
    return value


def _bool_list(reader: Reader) -> tuple[bool, ...]:
    return tuple(reader.items("{", "}", reader.boolean))


def _bool_list_or_bool(reader: Reader) -> tuple[bool, ...]:
    return _bool_list(reader) if reader.kind == "{" else (reader.boolean(),)


def _names(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.items("{", "}", reader.name))


def _instruction_names(reader: Reader) -> tuple[str, ...]:
    start, names = reader.start, _names(reader)
    if not names:
        reader.fail("expects at least one name", start)
    return names


def _precisions(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.items("{", "}", lambda: _PRECISION.read(reader)))


def _string_or_dict(reader: Reader) -> str:
    return reader.string() if reader.kind == "string" else reader.json()


def _frontend_attributes(reader: Reader) -> Mapping[str, str]:
    """`{a="x",b={...}}`; of a name that stands twice the last counts. Read-only, since it is remembered."""
    pairs = reader.items("{", "}", lambda: (reader.attribute(), _string_or_dict(reader)))
    return MappingProxyType(dict(pairs))


# ---- shapes and literals ---------------------------------------------------------------------------------------------

_SHAPE_PIECE = re.compile(
    r"[ \t\r\n]*(?:(?P<open>(?:b[ \t\r\n]*)?\()|(?P<close>\))|(?P<comma>,)"
    r"|(?P<array>[a-z][a-z0-9]*[ \t\r\n]*\[[^\[\]{}()\"%]*\](?:[ \t\r\n]*\{[ \t\r\n]*[\d:][^{}=\"%]*\})?))"
)


def _shape(reader: Reader) -> Shape:
    """A shape with its layout."""
    text, start = reader.text, reader.start
    position, depth = start, 0
    while True:
        match = _SHAPE_PIECE.match(text, position)
        if match is None or (depth == 0 and (match["close"] or match["comma"])):
            reader.fail("expects a shape", position)
        position = match.end()
        depth += 1 if match["open"] else -1 if match["close"] else 0
        if depth == 0:
            break
    try:
        shape = parse_shape(text[start:position])
    except ShapeTextError as error:
        reader.fail(error.message, start + error.offset)
    reader.end = position
    reader.advance()
    return shape


def _shapes(reader: Reader) -> tuple[Shape, ...]:
    return tuple(reader.items("{", "}", lambda: _shape(reader)))


def _computation_layout(reader: Reader) -> ComputationLayout:
    """`{(f32[2]{0}, s32[])->f32[2]{0}}`; a comma after the last parameter does not matter."""
    reader.expect("{", "expects {")
    reader.expect("(", "expects ( before the parameters' shapes")
    parameters = []
    while reader.kind != ")":
        parameters.append(_shape(reader))
        if not reader.eat(","):
            break
    reader.expect(")", "expects , or ) after a parameter's shape")
    reader.expect("->", "expects -> before the result's shape")
    result = _shape(reader)
    reader.expect("}", "expects } at the end of the layout")
    return ComputationLayout(tuple(parameters), result)


_LITERAL_PIECE = re.compile(r"[^{}()\"' \t\r\n,]+|[{}(),]|[ \t\r\n]+")


def _typed_literal(reader: Reader) -> TypedLiteral:
    """`f32[2]{0} {1, 2}`, or a tuple of such in parentheses, between whose elements commas may be missing."""
    if reader.eat("("):
        elements = []
        while reader.kind != ")":
            elements.append(_typed_literal(reader))
            reader.eat(",")
        reader.advance()
        return TypedLiteral(None, "", tuple(elements))
    if reader.kind != "type" and not (reader.kind == "ident" and reader.value == "b"):
        reader.fail("expects a shape before the literal")
    text, shape = reader.text, _shape(reader)
    start = position = reader.start
    depth = 0
    while True:
        match = _LITERAL_PIECE.match(text, position)
        if match is None:
            reader.fail("expects a literal", position)
        piece = match[0]
        if depth == 0 and (piece in "})" or piece[0] in " \t\r\n"):
            reader.fail("expects a literal", position)
        position = match.end()
        depth += 1 if piece in "{(" else -1 if piece in "})" else 0
        if depth == 0:
            break
    try:
        check_literal(text[start:position], shape)
    except LiteralTextError as error:
        raise ValueTextError(error.message, start + error.offset) from None
    if isinstance(shape, TupleShape):
        reader.fail("expects the shape of an array", start)
    reader.end = position
    reader.advance()
    return TypedLiteral(shape, text[start:position])


# ---- aliases ---------------------------------------------------------------------------------------------------------


def _entries(reader: Reader, entry: Callable[[], object]) -> list[object]:
    """Entries in braces; here a comma after the last does not matter."""
    reader.expect("{", "expects {")
    result = []
    while reader.kind != "}":
        result.append(entry())
        if not reader.eat(","):
            break
    reader.expect("}", "expects , or }")
    return result


def _output_operand_aliases(reader: Reader) -> tuple[OutputOperandAlias, ...]:
    def entry() -> OutputOperandAlias:
        output = reader.index()
        reader.expect(":", "expects : after the output's index")
        reader.expect("(", "expects (")
        operand = reader.integer()
        reader.expect(",", "expects , after the operand's number")
        index = reader.index()
        reader.expect(")", "expects )")
        return OutputOperandAlias(output, operand, index)

    return tuple(_entries(reader, entry))  # type: ignore[arg-type]


def _input_output_aliases(reader: Reader) -> tuple[InputOutputAlias, ...]:
    def entry() -> InputOutputAlias:
        output = reader.index()
        reader.expect(":", "expects : after the output's index")
        reader.expect("(", "expects (")
        start, parameter = reader.start, reader.integer()
        if parameter < 0:
            reader.fail("a parameter's number is not negative", start)
        reader.expect(",", "expects , after the parameter's number")
        index = reader.index()
        kind = "may-alias"
        if reader.eat(","):
            start, kind = reader.start, reader.name()
            if kind not in opcodes.ALIAS_KINDS:
                reader.fail("expects may-alias or must-alias", start)
        reader.expect(")", "expects )")
        return InputOutputAlias(output, parameter, index, kind)

    return tuple(_entries(reader, entry))  # type: ignore[arg-type]


def _buffer_donors(reader: Reader) -> tuple[BufferDonor, ...]:
    def entry() -> BufferDonor:
        reader.expect("(", "expects (")
        start, parameter = reader.start, reader.integer()
        if parameter < 0:
            reader.fail("a parameter's number is not negative", start)
        reader.expect(",", "expects , after the parameter's number")
        index = reader.index()
        reader.expect(")", "expects )")
        return BufferDonor(parameter, index)

    return tuple(_entries(reader, entry))  # type: ignore[arg-type]


# ---- accuracy, statistics, origins -----------------------------------------------------------------------------------


def _result_accuracy(reader: Reader) -> ResultAccuracy:
    reader.expect("{", "expects {")
    start, name = reader.start, reader.attribute()
    if name == "mode":
        accuracy = ResultAccuracy(_ACCURACY_MODE.read(reader))
    elif name == "tolerance":
        accuracy = _tolerance(reader)
    else:
        reader.fail("expects mode= or tolerance=", start)
    reader.expect("}", "expects }")
    return accuracy


def _tolerance(reader: Reader) -> ResultAccuracy:
    fields = {"atol": 0.0, "rtol": 0.0, "ulps": 0.0}
    start = reader.start

    def item() -> None:
        offset, name = reader.start, reader.attribute()
        if name not in fields:
            reader.fail("expects atol=, rtol= or ulps=", offset)
        if reader.kind not in (",", "}"):  # a field without a value is none
            fields[name] = reader.number()

    reader.items("{", "}", item)
    if not all(value >= 0 for value in fields.values()):
        reader.fail("a tolerance is not negative, and a number", start)
    ulps = fields["ulps"]
    return ResultAccuracy("", fields["atol"], fields["rtol"], int(ulps) if ulps < 1 << 63 else (1 << 63) - 1)


def _statistics(reader: Reader) -> Statistics:
    reader.expect("{", "expects {")
    index, values = 0, []
    if reader.kind != "}":
        reader.attribute()
        index = reader.integer()
        while reader.eat(","):
            name = reader.attribute()
            if reader.kind not in ("int", "decimal"):
                reader.fail("expects a number")
            values.append((name, _statistic(reader)))
    reader.expect("}", "expects , or }")
    return Statistics(index, tuple(values))


def _statistic(reader: Reader) -> float:
    if reader.kind == "int":
        return float(reader.integer())
    word = reader.expect("decimal", "expects a number")
    return float(word.partition("(")[0])  # past 64 bits it is an infinity, and allowed here


def _original_array(reader: Reader) -> OriginalArray | None:
    """`{"name" {0,1}}`, or `{}`."""
    reader.expect("{", "expects {")
    array = None
    if reader.kind == "string":
        name = reader.string()
        array = OriginalArray(name, reader.index() if reader.kind == "{" else ()) if name else None
    reader.expect("}", "expects } at the end of an original array")
    return array


def _origin(reader: Reader) -> str:
    """`{({"a" {0}}, {"b"})}` or `{[synthetic_call]}`; kept as text."""
    start = reader.start
    reader.expect("{", "expects { to start the origin")
    if reader.eat("["):
        if reader.kind != "ident" or reader.value != "synthetic_call":
            reader.fail("expects synthetic_call")
        reader.advance()
        reader.expect("]", "expects ]")
        if reader.kind != "}":
            reader.fail("expects } to end the origin")
    depth = 0
    while reader.kind != "}":
        if reader.kind == "{":
            _original_array(reader)
            continue
        if reader.kind == "(":
            depth += 1
        elif reader.kind not in (")", ",") or depth == 0:
            # XLA takes a closing parenthesis too many from an empty list.
            reader.fail("expects a tree of original arrays, ({...}, {...})")
        elif reader.kind == ")":
            depth -= 1
        reader.advance()
    end = reader.end
    reader.advance()
    return reader.text[start:end]


def _recovery_table(reader: Reader) -> tuple[RecoveryEntry, ...]:
    """`{ {"a"} : {"b"}, "HloModule ..." {"c"} : {"d"} }`; the modules are not read here."""
    reader.expect("{", "expects {")
    entries = []
    while reader.kind != "}":
        replaced = _original_array(reader)
        reader.expect(":", "expects : between two original arrays")
        replacing = _original_array(reader)
        module = reader.string() if reader.eat(",") else None
        entries.append(RecoveryEntry(replaced, replacing, module))
    reader.advance()
    return tuple(entries)


STRUCTURED: dict[str, Callable[[Reader], object]] = {
    "float": _float,
    "string_or_dict": _string_or_dict,
    "literal": _typed_literal,
    "computation_list": _names,
    "window": read_window,
    "dim_labels": read_dim_labels,
    "sparsity_config": read_sparsity_config,
    "sharding": read_sharding,
    "frontend_attributes": _frontend_attributes,
    "statistics": _statistics,
    "bool_list": _bool_list,
    "bool_list_or_bool": _bool_list_or_bool,
    "instruction_list": _instruction_names,
    "slice_ranges": read_slices,
    "padding_config": read_padding,
    "metadata": read_metadata,
    "domain": read_domain,
    "precision_list": _precisions,
    "shape": _shape,
    "shape_list": _shapes,
    "result_accuracy": _result_accuracy,
    "instruction_aliasing": _output_operand_aliases,
    "device_list": read_device_groups,
    "original_value": _origin,
    "aliasing": _input_output_aliases,
    "buffer_donor": _buffer_donors,
    "computation_layout": _computation_layout,
    "original_value_recovery_table": _recovery_table,
}
"""How a value is read, by the names of opcodes.AttributeKind; what is not here is read in values.py."""
