"""A computation's instructions: where each begins and ends, and its name.

Where each line is proved to hold one instruction, an instruction is found by its line's place in the text, and nothing
else is cut. Elsewhere lines are joined until brackets balance, and a run of lines that is not one instruction for certain
goes to the grammar.
"""

from __future__ import annotations

import bisect
import re
from itertools import accumulate

from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.source import Span
from hlo_cp2ag.text.body import HEAD, KEYWORDS, cut_body, opcode_behind, parse_rule
from hlo_cp2ag.text.line_proof import bracket_balance_by_line, lines_are_certain
from hlo_cp2ag.text.plain_line import plain_line

_LINE_HEADS = re.compile(r"\n +(?:ROOT )?%?([A-Za-z_][\w.\-]*) = ")
_TRAILING_ROOT = re.compile(r"(?<![\w.\-%])ROOT[ \t\r\n]*$")
_ONLY_HEAD = re.compile(r"[ \t]*(?:ROOT[ \t]+)?(?:%[A-Za-z_][\w.\-]*[ \t]*|[A-Za-z_][\w.\-]*(?::[ \t]*|[ \t]+))=")
_PERCENT_ASSIGNED = re.compile(r"%[A-Za-z_][\w.\-]*[ \t]*=|(?<![\w.\-%])[A-Za-z_][\w.\-]*(?::[ \t]*|[ \t]+)=")
_FEW = 24
"""So many names are searched for in the text, one by one, before a table of all names is made."""


class InstructionTable:
    """Instructions of a computation, found in a text that stands for its body.

    That is the module's own text where lines are certain (nothing is copied), else the masked body. `_first` and `_last`
    bound the body in it; `_shift` leads from its offsets to those of the module's text.
    """

    def __init__(self, computation: Computation, masked_body: str | None) -> None:
        self._computation = computation
        body = computation.body_span
        if masked_body is None:
            self._text, self._first, self._last, self._shift = computation.module.source.text, body.start, body.end, 0
        else:
            self._text, self._first, self._last, self._shift = masked_body, 0, len(masked_body), body.start
        self._is_own_text = masked_body is None
        self._made: dict[int, Instruction] = {}
        self._starts_of_names: dict[str, int] | None = None
        self._searched = 0
        self._cut_spans: list[tuple[int, int]] | None = None
        self.by_lines = masked_body is None or lines_are_certain(masked_body)
        if masked_body is not None and not self.by_lines:
            self._cut_spans = _entries(computation, masked_body)

    def __len__(self) -> int:
        return len(self._spans())

    def _spans(self) -> list[tuple[int, int]]:
        """Start and end of each instruction in the text."""
        if self._cut_spans is None:
            lines = self._text[self._first : self._last].split("\n")
            starts = accumulate((len(line) + 1 for line in lines), initial=self._first)
            self._cut_spans = [
                (start, start + len(line)) for start, line in zip(starts, lines, strict=False) if line.strip(" ")
            ]
        return self._cut_spans

    def names(self) -> list[str]:
        """All names in text order."""
        if self.by_lines:
            return _LINE_HEADS.findall(self._text, self._first, self._last)
        return [self.instruction(i).name for i in range(len(self))]

    def find(self, name: str) -> Instruction | None:
        """The instruction of a name, if there is one."""
        if self._may_search():
            return self._search(name)
        if self._starts_of_names is None:
            starts = (start for start, _ in self._spans())
            self._starts_of_names = dict(zip(self.names(), starts, strict=True))
        start = self._starts_of_names.get(name)
        return None if start is None else self._at(start)

    def find_before(self, name: str, offset: int) -> Instruction | None:
        """The instruction of a name, if it begins before an offset of the module's text."""
        if self._may_search():
            # Most operands are computed a few lines further up.
            return self._search_back(name, offset - self._shift)
        found = self.find(name)
        return found if found is not None and found.span.start < offset else None

    def _may_search(self) -> bool:
        """Whether the next name is to be searched for in the text; no table of all names is made for a few."""
        if not self.by_lines or self._starts_of_names is not None or self._searched >= _FEW:
            return False
        self._searched += 1
        return True

    def _search(self, name: str) -> Instruction | None:
        """The instruction of a name, by a search of the text for its head."""
        wanted = f"{name} = "
        place = self._text.find(wanted, self._first, self._last)
        while place >= 0:
            start = self._line_of_head(place)
            if start >= 0:
                return self._at(start)
            place = self._text.find(wanted, place + 1, self._last)
        return None

    def _search_back(self, name: str, last: int) -> Instruction | None:
        """The same, backwards from a place in the text."""
        wanted = f"{name} = "
        place = self._text.rfind(wanted, self._first, last)
        while place >= 0:
            start = self._line_of_head(place)
            if start >= 0:
                return self._at(start)
            place = self._text.rfind(wanted, self._first, place)
        return None

    def _line_of_head(self, place: int) -> int:
        """The start of the line whose name stands at a place; -1 if something else stands before it."""
        start = self._text.rfind("\n", self._first, place) + 1
        return start if self._text[start:place].strip(" ") in ("", "%", "ROOT", "ROOT %") else -1

    def at(self, offset: int) -> Instruction | None:
        """The instruction that holds an offset of the module's text, if there is one."""
        place = offset - self._shift
        if self.by_lines:
            start = self._text.rfind("\n", self._first, place) + 1
            if start < self._first or start >= self._last or self._text.startswith("\n", start):
                return None
        else:
            spans = self._spans()
            index = bisect.bisect_right(spans, (place, self._last)) - 1
            if index < 0:
                return None
            start = spans[index][0]
        instruction = self._at(start)
        return instruction if instruction.span.start <= offset < instruction.span.end else None

    def instruction(self, index: int) -> Instruction:
        """The instruction at a place in text order. Raises HloSyntaxError if it has no name."""
        return self._at(self._spans()[index][0])

    def index_of(self, instruction: Instruction) -> int:
        """The place of one of these instructions in text order."""
        return bisect.bisect_right(self._spans(), (instruction.span.start - self._shift, self._last)) - 1

    def _at(self, start: int) -> Instruction:
        made = self._made.get(start)
        if made is None:
            made = self._made[start] = self._make(start)
        return made

    def _end_of(self, start: int) -> int:
        if self.by_lines:
            return self._text.find("\n", start, self._last)
        spans = self._spans()
        return spans[bisect.bisect_left(spans, (start, 0))][1]

    def _make(self, start: int) -> Instruction:
        plain = plain_line(self._text, start) if self._is_own_text else None
        if plain is not None:
            name_span = Span(plain.name_start, plain.name_start + len(plain.name))
            span = Span(plain.start, plain.end)
            return Instruction(self._computation, plain.name, name_span, plain.form.opcode, plain.is_root, span, plain)
        line = self._text[start : self._end_of(start)]
        base = start + self._shift
        head = HEAD.match(line)
        if head is None:
            return self._lone(line, base)
        kind = head.lastgroup if head.lastgroup != "root" else "bare"
        assert kind is not None
        name = head.group(kind)
        name_start = head.start(kind)
        root = head.group("root") is not None
        first = head.start("root") if root else name_start - (kind == "percent")
        name_span = Span(base + name_start, base + name_start + len(name))
        if kind == "bare" and name in KEYWORDS:
            source = self._computation.module.source
            raise source.error(name_span.start, f"{name!r} is a reserved word, not a name", hint=f"write %{name}")
        span = Span(base + first, base + len(line.rstrip(" \t\r\n")))
        return Instruction(self._computation, name, name_span, opcode_behind(line, head.end()), root, span)

    def _lone(self, line: str, base: int) -> Instruction:
        """A bare instruction, `f32[2] negate(f32[2])`: the text has no name for it."""
        lead = len(line) - len(line.lstrip(" \t\r\n"))
        begin = base + lead
        end = begin + len(line.strip(" \t\r\n"))
        return Instruction(self._computation, "", Span(begin, begin), opcode_behind(line, lead), True, Span(begin, end))


def is_cut_by_lines(table: object) -> bool:
    """Whether each line of a computation holds one whole instruction."""
    return isinstance(table, InstructionTable) and table.by_lines


def _entries(computation: Computation, masked: str) -> list[tuple[int, int]]:
    """Start and end of each instruction in a masked body that need not be written line by line.

    Raises HloSyntaxError where the grammar cannot read a part of it.
    """
    source = computation.module.source
    base = computation.body_span.start
    if not masked.strip(" \t\r\n"):
        raise source.error(max(base - 1, 0), f"computation {computation.name!r} has no instruction")
    if computation.span == computation.body_span:
        return _grammar_entries(computation, masked, 0, len(masked))
    groups = _groups(masked)
    entries: list[tuple[int, int]] = []
    for start, end in groups:
        part = masked[start:end]
        if _is_one_line_instruction(part) or cut_body(source, part, base + start) is not None:
            entries.append((start, end))
        else:
            entries.extend(_grammar_entries(computation, part, start, end))
    return entries


def _groups(masked: str) -> list[tuple[int, int]]:
    """Runs of lines that begin with a head at depth 0 and go on to the next such line."""
    starts: list[int] = []
    depth = position = 0
    pending_root = -1
    for line, balance in zip(masked.split("\n"), bracket_balance_by_line(masked), strict=True):
        if depth == 0 and line and not line.isspace():
            if _ONLY_HEAD.match(line):
                starts.append(pending_root if pending_root >= 0 else position)
            elif not starts and line.strip(" \t\r") != "ROOT":
                starts.append(position)
            root = _TRAILING_ROOT.search(line)
            pending_root = position + root.start() if root else -1
        depth += balance
        position += len(line) + 1
    return list(zip(starts, [*starts[1:], len(masked)], strict=True))


def _is_one_line_instruction(part: str) -> bool:
    """Whether a part is one line with one balanced instruction on it, by the same reasons as in the outline."""
    stripped = part.strip(" \t\r\n")
    if "\n" in stripped or "\r" in stripped or len(_PERCENT_ASSIGNED.findall(part)) != 1:
        return False
    return bracket_balance_by_line(stripped) == [0]


def _grammar_entries(computation: Computation, part: str, start: int, end: int) -> list[tuple[int, int]]:
    source = computation.module.source
    rule = "lone_instruction" if computation.span == computation.body_span else "instruction_list"
    tree = parse_rule(source, part, computation.body_span.start + start, rule)
    if rule == "lone_instruction":
        return [(start + tree.meta.start_pos, start + tree.meta.end_pos)]
    return [(start + child.meta.start_pos, start + child.meta.end_pos) for child in tree.children]  # type: ignore[union-attr]
