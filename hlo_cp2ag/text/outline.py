"""The outline: where a module's header, computations and instructions are, found without reading any body.

Two ways lead to the same outline. `_certain_outline` proves in a few passes at C speed that the whole text is written
as XLA prints it, one instruction a line; it works on the text with its strings taken out. Where any part of the proof
fails, `_scanned_outline` walks over the masked text, and each computation decides for itself whether its lines are
certain or its body goes to the grammar.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

from hlo_cp2ag.ir.source import HloSyntaxError, SourceText, Span
from hlo_cp2ag.text.lexical import bracket_end, mask
from hlo_cp2ag.text.line_proof import LINE_HEADS, LineProof, is_balanced, prove_lines

BLANK = "[ \t\r\n]"
NAME = r"[A-Za-z_][\w.\-]*"

_MODULE_START = re.compile(rf"{BLANK}*HloModule(?![\w.\-]){BLANK}*")
_MODULE_NAME = re.compile(rf"%?{NAME}:?")
_ATTRIBUTE_KEY = re.compile(rf"{BLANK}*,{BLANK}*({NAME})={BLANK}*")
_WORD_VALUE = re.compile(r"[\w.\-]+|\"_*\"|'_*'")
_TABLE_NAME = re.compile(rf"{BLANK}*(FileNames|FunctionNames|FileLocations|StackFrames)(?![\w.\-=:])")
_TABLE_ROWS = re.compile(rf"(?:{BLANK}*-?\d+(?:{BLANK}*(?:\"_*\"|'_*'|\{{[^{{}}]*\}}))?)*")
_STRING_ROWS = r'(?:\d+ "[^"\\\n]*(?:\\.[^"\\\n]*)*"\n)*'
_NUMBER_ROWS = r"(?:\d+ \{[\w= ]*\}\n)*"
_PRINTED_TABLES = re.compile(
    rf"\n*FileNames\n{_STRING_ROWS}\n*FunctionNames\n{_STRING_ROWS}"
    rf"\n*FileLocations\n{_NUMBER_ROWS}\n*StackFrames\n{_NUMBER_ROWS}\n*"
)
_COMPUTATION_START = re.compile(rf"{BLANK}*(?:(ENTRY)(?![\w.\-=:]){BLANK}*)?(%?)({NAME}):?{BLANK}*(?=[({{])")
_INLINE = re.compile(rf"\{{(?={BLANK}*(?:ROOT{BLANK}+)?(?:%{NAME}{BLANK}*|{NAME}:{BLANK}*|{NAME}{BLANK}+)=)")
_BRACES = re.compile(r"[{}]")
_ARROW = re.compile(rf"{BLANK}*->{BLANK}*")
_RESULT = re.compile(
    rf"[a-z][a-z0-9]*{BLANK}*\[[^\[\]{{}}()]*\](?:{BLANK}*\{{{BLANK}*[\d:][^{{}}]*\}})?{BLANK}*(?=\{{)"
)
_BRACKET = re.compile(r"[()\[\]{}]")
_NOT_BLANK = re.compile(r"[^ \t\r\n]")
_HEADER = r"(ENTRY )?%?([A-Za-z_][\w.\-]*) (?:(\([^\n]*\) -> [^\n]*[^\n {]) )?\{(?=\n)"
_THREAD = r"(?:, execution_thread=\"[^\"\\\n]*\")?"
_FIRST_HEADER = re.compile(rf"\n{_HEADER}")
_NEXT_HEADER = re.compile(rf"\n\}}{_THREAD}\n\n{_HEADER}")
"""The closing line of one computation, a blank line, and the header of the next one."""
_LAST_CLOSER = re.compile(rf"\n\}}{_THREAD}[ \n]*")
_COMPUTATION_LINES = re.compile(rb"(\n+)(?:\{\n\n+\}\n\n)*\{\n\n+\}(\n{0,2})\n*")


@dataclass
class ComputationOutline:
    """One computation: its name and where its parts are."""

    name: str
    name_span: Span
    is_entry_marked: bool
    span: Span
    body_span: Span
    parameters_span: Span | None
    attributes_span: Span | None = None
    certain_lines: bool = False
    is_inline: bool = False


@dataclass
class ModuleOutline:
    """A module: its header, tables and computations."""

    name: str = ""
    header_span: Span | None = None
    header_attributes: list[tuple[str, Span, Span]] = field(default_factory=list)
    """Name, whole span, value span."""
    tables_span: Span | None = None
    computations: list[ComputationOutline] | CertainComputations = field(default_factory=list)
    names: set[str] | None = None
    """Every instruction's name, where the certain outline has already collected them."""
    is_lone_instruction: bool = False
    masked: str | None = None
    """The masked text, where the outline needed it."""


def outline(source: SourceText) -> ModuleOutline:
    """The outline of a module's text.

    Raises HloSyntaxError if brackets, strings or comments are not closed, or something stands where a computation is
    expected, and for names defined twice where these are known without reading further.
    """
    found = _certain_outline(source)
    return found if found is not None else _scanned_outline(source)


# ---- the certain way ---------------------------------------------------------------------------------------------------


def _certain_outline(source: SourceText) -> ModuleOutline | None:
    text = source.text
    header_end = text.find("\n")
    if not text.startswith("HloModule ") or header_end < 0 or "\0" in text:
        return None
    found = ModuleOutline()
    try:
        masked_header = mask(text[:header_end], source)
        if _read_header(source, masked_header, found) != len(masked_header.rstrip(" ")):
            return None
    except HloSyntaxError:
        return None  # it may run over several lines; the scanned way says what is wrong if anything is
    # The header's frontend attributes may hold anything between braces: the proof begins behind it.
    headers: list[re.Match[str]] = []
    distinct: set[str] = set()

    def meanwhile(names: list[str]) -> None:
        first = _FIRST_HEADER.search(text, header_end)
        headers.extend([first] if first is not None else [])
        headers.extend(_NEXT_HEADER.finditer(text, header_end))
        distinct.update(names)

    proof = prove_lines(text, source.data or text.encode("latin-1", "replace"), header_end, meanwhile)
    if proof is None or not headers or not _each_line_has_its_place(text, header_end, proof, distinct, headers):
        return None
    computations = CertainComputations(source, headers, proof.all_have_percent)
    if not _tables_are_known(source, found, header_end, headers[0].start() + 1):
        return None
    found.computations = computations
    found.names = distinct
    return found


def _each_line_has_its_place(
    text: str, header_end: int, proof: LineProof, distinct: set[str], headers: list[re.Match[str]]
) -> bool:
    """Whether every computation is a header line, lines that each assign a name, and a closing line with a blank one
    behind it; and no name is assigned twice in one.

    As many headers stand at the margin as brackets stay open, so that what leaves a bracket open is a header; the lines
    around them are blank; so if there are as many names as lines in bodies, each of these lines has one.
    """
    shape = _COMPUTATION_LINES.fullmatch(proof.brackets)
    if shape is None or proof.brackets.count(b"{") != len(headers):
        return False
    first = headers[0]
    if len(headers) > 1 and first.end() > headers[1].start():
        return False
    if _LAST_CLOSER.fullmatch(text, max(text.rfind("\n}"), 0)) is None:
        return False
    before, trailing = len(shape.group(1)), len(shape.group(2))
    inside = proof.brackets.count(b"\n") - before - 2 * (len(headers) - 1) - trailing
    if inside - len(headers) != len(proof.names):
        return False
    if LINE_HEADS.search(text, header_end, first.start()) is not None:
        return False
    if len(distinct) == len(proof.names):
        return True
    start = 0
    for body in proof.brackets.split(b"{")[1:]:
        end = start + body.index(b"}") - 1
        if len(set(proof.names[start:end])) != end - start:
            return False  # a name defined twice; the scanned way says where
        start = end
    return True


class CertainComputations(Sequence[ComputationOutline]):
    """The computations of a text whose lines are certain, each cut out when it is asked for."""

    def __init__(self, source: SourceText, headers: list[re.Match[str]], all_names_have_percent: bool) -> None:
        """`headers` are matches of `_FIRST_HEADER` and `_NEXT_HEADER`."""
        self.all_names_have_percent = all_names_have_percent
        self._source = source
        self._headers = headers

    def __len__(self) -> int:
        return len(self._headers)

    @overload
    def __getitem__(self, index: int) -> ComputationOutline: ...
    @overload
    def __getitem__(self, index: slice) -> list[ComputationOutline]: ...
    def __getitem__(self, index: int | slice) -> ComputationOutline | list[ComputationOutline]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.outline(index)

    def names(self) -> list[str]:
        """The computations' names in text order."""
        return [header[2] for header in self._headers]

    def entry_marks(self) -> list[int]:
        """The numbers of the computations marked ENTRY."""
        return [i for i, header in enumerate(self._headers) if header[1]]

    def parameter_texts(self) -> list[str]:
        """What the headers say of parameters and results."""
        return [header[3] for header in self._headers if header[3]]

    def index_at(self, offset: int) -> int:
        """The number of the computation that a place may be in: the last one that begins before it, else the first."""
        return max(bisect.bisect_left(self._headers, offset, key=re.Match.start) - 1, 0)

    def outline(self, index: int) -> ComputationOutline:
        """One computation."""
        text, header = self._source.text, self._headers[index]
        is_last = index + 1 == len(self._headers)
        end = (text.rfind("\n}") if is_last else self._headers[index + 1].start()) + 2
        line_end = text.find("\n", end)
        line_end = len(text) if line_end < 0 else line_end
        return ComputationOutline(
            header[2],
            Span(*header.span(2)),
            header[1] is not None,
            Span(text.rfind("\n", 0, header.start(2)) + 1, end),
            Span(header.end(), end - 1),
            Span(*header.span(3)) if header[3] else None,
            Span(end, line_end) if line_end > end else None,
            certain_lines=True,
        )


def _tables_are_known(source: SourceText, found: ModuleOutline, header_end: int, first: int) -> bool:
    """Reads the tables between the header and the first computation; False if something else stands there."""
    between = source.text[header_end:first]
    if between.strip(" \n"):
        if _PRINTED_TABLES.fullmatch(between) is None:
            return False
        found.tables_span = Span(header_end, first)
    return True


# ---- the scanned way ---------------------------------------------------------------------------------------------------


def _scanned_outline(source: SourceText) -> ModuleOutline:
    text = source.text
    if "\0" in text:
        raise source.error(
            text.index("\0"),
            "a NUL byte: this is no HLO text",
            hint="a serialized HloModuleProto is read by XLA's own tools",
        )
    masked = mask(text, source)
    found = ModuleOutline(masked=masked)
    computations: list[ComputationOutline] = []
    found.computations = computations
    if not masked.strip(" \t\r\n"):
        raise source.error(0, "no HLO here: the text is empty", hint="an HLO module has at least one computation")
    position = 0
    has_header = _MODULE_START.match(masked) is not None
    if has_header:
        position = _read_header(source, masked, found)
    elif not _starts_like_a_module(masked):
        _refuse_headless(source, masked)
        found.is_lone_instruction = True
        found.computations = _inline_computations(masked, Span(0, len(masked)))
        return found
    position = _tables(source, masked, position, found)
    while (token := _NOT_BLANK.search(masked, position)) is not None:
        computation = _scan_computation(source, masked, token.start())
        computations.extend(_inline_computations(masked, computation.body_span))
        computations.append(computation)
        position = (computation.attributes_span or computation.span).end
    if not found.computations:
        raise source.error(len(text), "no computation here", hint="the file may be cut off after its header")
    return found


def _starts_like_a_module(masked: str) -> bool:
    """XLA's rule for text without a header: ENTRY, or a name and a brace; all else is one bare instruction."""
    start = _COMPUTATION_START.match(masked)
    return start is not None and (start.group(1) is not None or masked.startswith("{", start.end()))


def _refuse_headless(source: SourceText, masked: str) -> None:
    """A computation with a parameter list is no beginning: XLA would read it as an instruction."""
    start = _COMPUTATION_START.match(masked)
    end = bracket_end(masked, start.end()) if start is not None and masked.startswith("(", start.end()) else -1
    if start is not None and end > 0 and _ARROW.match(masked, end):
        raise source.error(
            start.start(3),
            "text without a HloModule header begins with ENTRY, or with a name and {",
            hint="add a header: HloModule name",
        )


def _tables(source: SourceText, masked: str, position: int, found: ModuleOutline) -> int:
    if _TABLE_NAME.match(masked, position) is None:
        return position
    end = _read_tables(masked, position)
    if end < 0:
        raise source.error(
            -end, "expects the tables FileNames, FunctionNames, FileLocations and StackFrames in this order"
        )
    found.tables_span = Span(position, end)
    return end


def _read_tables(masked: str, position: int) -> int:
    """The end of the four tables; minus the offset where they go wrong."""
    for expected in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
        table = _TABLE_NAME.match(masked, position)
        if table is None or table.group(1) != expected:
            return -position
        rows = _TABLE_ROWS.match(masked, table.end())
        position = rows.end() if rows is not None else table.end()
    return position


def _read_header(source: SourceText, masked: str, found: ModuleOutline) -> int:
    """Reads `HloModule name, key=value, ...` into the outline; the offset behind it."""
    start = _MODULE_START.match(masked)
    position = start.end() if start else 0
    name = _MODULE_NAME.match(masked, position)
    if name is None:
        raise source.error(position, "expects the module's name behind HloModule")
    found.name = name.group().strip("%:")
    position = name.end()
    seen: set[str] = set()
    while (key := _ATTRIBUTE_KEY.match(masked, position)) is not None:
        value_start = key.end()
        if masked.startswith("{", value_start):
            value_end = bracket_end(masked, value_start)
            if value_end < 0:
                raise source.error(value_start, f"the value of {key.group(1)} is not closed")
        else:
            word = _WORD_VALUE.match(masked, value_start)
            if word is None:
                raise source.error(value_start, f"expects a value for {key.group(1)}")
            value_end = word.end()
        if key.group(1) in seen:
            raise source.error(key.start(1), f"the module attribute {key.group(1)} is given twice")
        seen.add(key.group(1))
        found.header_attributes.append((key.group(1), Span(key.start(1), value_end), Span(value_start, value_end)))
        position = value_end
    comma = re.compile(rf"{BLANK}*,").match(masked, position)
    if comma is not None:
        raise source.error(comma.end() - 1, "expects an attribute behind this comma")
    found.header_span = Span(masked.index("HloModule"), position)
    return position


def _scan_computation(source: SourceText, masked: str, position: int) -> ComputationOutline:
    start = _COMPUTATION_START.match(masked, position)
    if start is None:
        raise source.error(
            position, "expects a computation: a name, then { and its instructions", hint=_hint(masked, position)
        )
    name = start.group(3)
    begin = start.start(1) if start.group(1) else start.start(3) - len(start.group(2))
    brace = start.end()
    parameters = None
    if masked.startswith("(", brace):
        parameters_end = bracket_end(masked, brace)
        arrow = _ARROW.match(masked, parameters_end) if parameters_end > 0 else None
        result_end = -1
        if arrow is not None:
            if masked.startswith("(", arrow.end()):
                result_end = bracket_end(masked, arrow.end())
            elif (result := _RESULT.match(masked, arrow.end())) is not None:
                result_end = result.end()
        opening = re.compile(rf"{BLANK}*(?=\{{)").match(masked, result_end) if result_end > 0 else None
        if opening is None:
            raise source.error(brace, f"expects (parameters) -> result {{ in the header of computation {name!r}")
        header = masked[brace:result_end]
        parameters = Span(brace, brace + len(header.rstrip(" \t\r\n")))
        brace = opening.end()
    close = _body_end(masked, brace)
    if close < 0:
        bracket, instead = _mismatch(masked, brace)
        if bracket > brace:
            raise source.error(bracket, f"this {masked[bracket]} is not closed", hint=f"in computation {name!r}")
        if instead >= 0:
            raise source.error(instead, f"this {masked[instead]} closes nothing", hint=f"in computation {name!r}")
        raise source.error(begin, f"computation {name!r} is not closed by a }}", hint="the file may be cut off")
    attributes_end = close
    while (key := _ATTRIBUTE_KEY.match(masked, attributes_end)) is not None:
        value = _WORD_VALUE.match(masked, key.end())
        if key.group(1) != "execution_thread" or value is None or value.group()[0] not in "\"'":
            raise source.error(
                key.start(1),
                f"unknown attribute {key.group(1)!r} of a computation",
                hint='it takes execution_thread="..."',
            )
        attributes_end = value.end()
    return ComputationOutline(
        name,
        Span(*start.span(3)),
        start.group(1) is not None,
        Span(begin, close),
        Span(brace + 1, close - 1),
        parameters,
        Span(close, attributes_end) if attributes_end > close else None,
    )


def _inline_computations(masked: str, body: Span) -> list[ComputationOutline]:
    """Computations that are written out in an attribute, `to_apply={ x = ... }`, inner ones first."""
    opened = {match.start() for match in _INLINE.finditer(masked, body.start, body.end)}
    inline: list[ComputationOutline] = []
    pending: list[int] = []
    for brace in _BRACES.finditer(masked, body.start, body.end) if opened else ():
        if brace.group() == "{":
            pending.append(brace.start())
        elif pending and (start := pending.pop()) in opened:
            span = Span(start, brace.end())
            inner = Span(start + 1, brace.start())
            inline.append(ComputationOutline("", Span(start, start), False, span, inner, None, is_inline=True))
    return inline


def _body_end(masked: str, brace: int) -> int:
    """The end of the body whose `{` is at `brace`: first guess the next line that begins with `}`, then count."""
    guess = masked.find("\n}", brace)
    if guess >= 0 and is_balanced(masked[brace + 1 : guess]):
        return guess + 2
    return bracket_end(masked, brace)


def _mismatch(masked: str, start: int) -> tuple[int, int]:
    """The innermost bracket from `start` on that nothing closes, and the one of another kind that stands in its place.

    The second is -1 if the text ends before anything could close the first.
    """
    stack: list[int] = []
    for match in _BRACKET.finditer(masked, start):
        if match.group() in "([{":
            stack.append(match.start())
        elif masked[stack[-1]] + match.group() not in ("()", "[]", "{}"):
            return stack[-1], match.start()
        else:
            stack.pop()
            if not stack:
                break
    return (stack[-1] if stack else start), -1


def _hint(masked: str, position: int) -> str:
    if masked.startswith("HloModule", position):
        return "a second module: --split-input-file reads several, separated by lines that say // -----"
    if masked.startswith("}", position):
        return "there is one } too many, or the one before closes too early"
    if re.compile(rf"(?:ROOT )?%?{NAME} *=").match(masked, position):
        return "an instruction outside of every computation: is a } too early, or a header missing?"
    return ""
