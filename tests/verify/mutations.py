"""Mutations: mechanical edits of the second module of a rewrite.

A mutation is a function of a `Text` that yields edited texts, each by what was done to which instruction:

    @mutation
    def operands_swapped(text: Text) -> Iterator[Mutant]: ...

Those in `mutations.py` change numbers and attributes, those in `more_mutations.py` what instructions are and what they
take, those in `equal_mutations.py` what does not matter. Whether a mutant still computes the same is not for a mutation
to know: an engine decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

LINE = re.compile(r"^(\s*)(ROOT )?(%?[\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*?)\)(, [a-z].*)?$")
SHAPE = re.compile(r"^(\w+)\[([\d,]*)\](.*)$")
_ATTRIBUTE = r"(?:\{(?:[^{}]|\{[^{}]*\})*\}(?:T\([\d,]*\))?|[^,\s]+)"


@dataclass(frozen=True)
class Line:
    """An instruction's line."""

    indent: str
    root: str
    name: str
    shape: str
    opcode: str
    inside: str
    """Between the parentheses."""
    tail: str
    """The attributes, with the comma before them."""

    @property
    def operands(self) -> list[str]:
        return [] if self.opcode in ("constant", "parameter", "iota") else [o for o in self.inside.split(", ") if o]

    @property
    def element(self) -> str:
        return self.shape.partition("[")[0]

    @property
    def dims(self) -> list[int] | None:
        match = SHAPE.match(self.shape)
        return [int(n) for n in match[2].split(",") if n] if match else None

    def with_operands(self, operands: list[str]) -> Line:
        return replace(self, inside=", ".join(operands))

    def attribute(self, name: str) -> str | None:
        match = re.search(rf", {name}=({_ATTRIBUTE})", self.tail)
        return match[1] if match else None

    def with_attribute(self, name: str, value: str | None) -> Line:
        """With another value, or without the attribute."""
        new = "" if value is None else f", {name}={value}"
        return replace(self, tail=re.sub(rf", {name}={_ATTRIBUTE}", lambda _: new, self.tail, count=1))

    def with_shape(self, element: str | None = None, dims: list[int] | None = None) -> Line:
        match = SHAPE.match(self.shape)
        assert match is not None
        written = match[2] if dims is None else ",".join(map(str, dims))
        return replace(self, shape=f"{element or match[1]}[{written}]{match[3]}")

    def __str__(self) -> str:
        return f"{self.indent}{self.root}{self.name} = {self.shape} {self.opcode}({self.inside}){self.tail}"


@dataclass
class Text:
    """The second module of a rewrite, line by line."""

    before: str
    text: str
    lines: list[Line | str] = field(init=False)
    site: list[int] = field(init=False)
    """The numbers of lines that the first module has not, in any form."""

    def __post_init__(self) -> None:
        self.lines = [read(line) for line in self.text.split("\n")]
        known = {(i.name, i.opcode) for i in map(read, self.before.split("\n")) if isinstance(i, Line)}
        known = {k for k in known if not k[1].startswith("collective-permute")}
        whole = set(self.before.split("\n"))
        self.site = [
            n for n, i in enumerate(self.lines)
            if isinstance(i, Line) and str(i) not in whole and (i.name, i.opcode) not in known
        ]  # fmt: skip

    def instructions(self, *opcodes: str, everywhere: bool = False) -> Iterator[tuple[int, Line]]:
        """The site's lines, or all of them."""
        for n, line in enumerate(self.lines):
            if isinstance(line, Line) and (everywhere or n in self.site) and (not opcodes or line.opcode in opcodes):
                yield n, line

    def edited(self, edits: dict[int, Line | list[Line | str] | str | None]) -> str:
        """The text with lines replaced: by one, by several, or by none."""
        out: list[str] = []
        for n, line in enumerate(self.lines):
            new = edits.get(n, line)
            if n in edits and new is None:
                continue
            out += [str(one) for one in new] if isinstance(new, list) else [str(new)]
        return "\n".join(out)

    def computation(self, number: int) -> range:
        """The lines of the computation that a line is in."""
        first = number
        while first and not str(self.lines[first - 1]).rstrip().endswith("{"):
            first -= 1
        last = number
        while last < len(self.lines) and str(self.lines[last]).strip() != "}":
            last += 1
        return range(first, last)

    def earlier(self, number: int, shape: str) -> list[str]:
        """Names of that shape that a line could use, the nearest first."""
        found = []
        for n in self.computation(number):
            line = self.lines[n]
            if n < number and isinstance(line, Line) and line.shape == shape:
                found.append(line.name)
        return found[::-1]

    def shape_of(self, number: int, name: str) -> str | None:
        """The shape of what a line uses."""
        for n in self.computation(number):
            line = self.lines[n]
            if isinstance(line, Line) and line.name == name:
                return line.shape
        return None

    def results(self) -> Iterator[tuple[int, Line]]:
        """The site's lines that something outside of it uses, and its lines at the end of a computation."""
        for n, line in self.instructions():
            users = [
                m for m in self.computation(n)
                if isinstance(self.lines[m], Line) and line.name in self.lines[m].operands  # type: ignore[union-attr]
            ]  # fmt: skip
            if line.root or any(m not in self.site for m in users):
                yield n, line

    def after_result(self, number: int, make: Callable[[str, str], list[str]], name: str = "mutant") -> str | None:
        """The text with instructions between a line and its users; `make` gets the line's name and shape, and the last
        instruction it writes is called `name`."""
        line = self.lines[number]
        assert isinstance(line, Line)
        added = [f"{line.indent}{text}" for text in make(line.name, line.shape)]
        edits: dict[int, Line | list[Line | str] | str | None] = {}
        if line.root:
            added[-1] = f"{line.indent}ROOT {added[-1].strip()}"
            edits[number] = [replace(line, root=""), *added]
            return self.edited(edits)
        edits[number] = [line, *added]
        for m in self.computation(number):
            user = self.lines[m]
            if m <= number or not isinstance(user, Line):
                continue
            new = user
            if line.name in user.operands:
                new = user.with_operands([name if o == line.name else o for o in user.operands])
            waits = user.attribute("control-predecessors")
            if waits is not None and line.name in waits.strip("{}").split(", "):
                names = [name if o == line.name else o for o in waits.strip("{}").split(", ")]
                new = new.with_attribute("control-predecessors", "{" + ", ".join(names) + "}")
            if new is not user:
                edits[m] = new
        return self.edited(edits)


def read(line: str) -> Line | str:
    match = LINE.match(line)
    return Line(match[1], match[2] or "", *match.groups()[2:6], match[7] or "") if match else line


Mutant = tuple[str, str]
"""What was done to what, and the text."""
MUTATIONS: dict[str, Callable[[Text], Iterator[Mutant]]] = {}
OUTSIDE: set[str] = set()
"""Mutations whose edit is not one of a site alone, or puts something into it that no site has: what computes the same
need not be shown."""


def mutation(function: Callable[[Text], Iterator[Mutant]]) -> Callable[[Text], Iterator[Mutant]]:
    MUTATIONS[function.__name__] = function
    return function


def outside(function: Callable[[Text], Iterator[Mutant]]) -> Callable[[Text], Iterator[Mutant]]:
    OUTSIDE.add(function.__name__)
    return mutation(function)


def numbers_of(text: str) -> list[int] | None:
    """The entries of a constant of one dimension."""
    match = re.fullmatch(r"\{(-?\d+(?:, ?-?\d+)*)\}", text.strip())
    return [int(n) for n in match[1].split(",")] if match else None


def braces(numbers: object) -> str:
    return "{" + ", ".join(map(str, numbers)) + "}"  # type: ignore[call-overload]


def groups_of(text: str | None) -> list[list[int]] | None:
    """Groups or pairs."""
    if text is None:
        return None
    iota = re.fullmatch(r"\[(\d+),(\d+)\]<=\[(\d+)\]", text)
    if iota:
        return np.arange(int(iota[3])).reshape(int(iota[1]), int(iota[2])).tolist()
    if not re.fullmatch(r"\{(\{[\d,]*\},?)*\}", text):
        return None
    return [[int(n) for n in group.split(",") if n] for group in re.findall(r"\{([\d,]*)\}", text[1:-1])]


def groups_text(groups: list[list[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


# ---- tables ----------------------------------------------------------------------------------------------------------


def tables(text: Text) -> Iterator[tuple[int, Line, list[int]]]:
    for n, line in text.instructions("constant"):
        entries = numbers_of(line.inside)
        if entries is not None and len(entries) > 1 and line.element != "pred":
            yield n, line, entries


def _entries(change: Callable[[list[int]], Iterator[tuple[str, list[int]]]]) -> Callable[[Text], Iterator[Mutant]]:
    def mutate(text: Text) -> Iterator[Mutant]:
        for n, line, entries in tables(text):
            for what, new in change(entries):
                if new != entries and len(new) == len(entries) and (min(new) >= 0 or line.element[0] != "u"):
                    yield f"{line.name}: {what}", text.edited({n: replace(line, inside=braces(new))})

    return mutate


@mutation
def table_entries_swapped(text: Text) -> Iterator[Mutant]:
    def change(e: list[int]) -> Iterator[tuple[str, list[int]]]:
        for i in range(len(e) - 1):
            yield f"{i} and {i + 1}", [*e[:i], e[i + 1], e[i], *e[i + 2 :]]

    return _entries(change)(text)


@mutation
def table_rotated(text: Text) -> Iterator[Mutant]:
    return _entries(lambda e: iter([("left", e[1:] + e[:1]), ("right", e[-1:] + e[:-1])]))(text)


@mutation
def table_transposed(text: Text) -> Iterator[Mutant]:
    """map[source] = target."""

    def change(e: list[int]) -> Iterator[tuple[str, list[int]]]:
        if sorted(e) == list(range(len(e))):
            yield "inverse", [e.index(i) for i in range(len(e))]
        else:
            new = list(range(len(e)))
            for target, source in enumerate(e):
                if 0 <= source < len(e):
                    new[source] = target
            yield "as far as it has one", new

    return _entries(change)(text)


@mutation
def table_entry_changed(text: Text) -> Iterator[Mutant]:
    def change(e: list[int]) -> Iterator[tuple[str, list[int]]]:
        for i, entry in enumerate(e):
            for new in (entry + 1, entry - 1, 0, len(e), -1):
                yield f"{i} is {new}", [*e[:i], new, *e[i + 1 :]]

    return _entries(change)(text)


@mutation
def table_reversed(text: Text) -> Iterator[Mutant]:
    return _entries(lambda e: iter([("", e[::-1])]))(text)


@mutation
def table_of_oneself(text: Text) -> Iterator[Mutant]:
    return _entries(lambda e: iter([("", list(range(len(e))))]))(text)


@mutation
def table_of_one_entry(text: Text) -> Iterator[Mutant]:
    """All devices read what device 0 reads."""
    return _entries(lambda e: iter([("", [e[0]] * len(e))]))(text)


@mutation
def mask_entry_flipped(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("constant"):
        if line.element == "pred" and line.inside.startswith("{"):
            entries = re.findall(r"\w+", line.inside)
            for i, entry in enumerate(entries):
                new = [*entries[:i], {"0": "1", "1": "0", "true": "false", "false": "true"}[entry], *entries[i + 1 :]]
                yield f"{line.name}[{i}]", text.edited({n: replace(line, inside=braces(new))})


@mutation
def mask_constant(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("constant"):
        if line.element == "pred" and line.inside.startswith("{"):
            count = len(re.findall(r"\w+", line.inside))
            for value in (0, 1):
                yield f"{line.name}: all {value}", text.edited({n: replace(line, inside=braces([value] * count))})


# ---- numbers ---------------------------------------------------------------------------------------------------------


@mutation
def scalar_constant_changed(text: Text) -> Iterator[Mutant]:
    """The shard constant, a multiplier, a zero offset, a bound."""
    for n, line in text.instructions("constant"):
        if re.fullmatch(r"[su]\d+\[\]\S*", line.shape) and re.fullmatch(r"-?\d+", line.inside):
            value = int(line.inside)
            for new in {value + 1, value - 1, 0, 2 * value, -value, value + 256} - {value}:
                if new >= 0 or line.element[0] == "s":
                    yield f"{line.name} is {new}", text.edited({n: replace(line, inside=str(new))})


@mutation
def zeros_are_other_bits(text: Text) -> Iterator[Mutant]:
    """The constant behind the zeros of devices that hear nobody."""
    for n, line in text.instructions("constant"):
        if not line.shape.split("{")[0].endswith("[]") or line.inside not in ("0", "false", "(0, 0)"):
            continue
        if line.element == "pred":
            new = ["true"]
        elif line.element[0] == "c":
            new = ["(1, 0)", "(-0, 0)", "(0, -0)"]
        elif line.element[0] in "fb":
            new = ["1", "-0", "nan"]
        else:
            new = ["1"]
        for value in new:
            yield f"{line.name} is {value}", text.edited({n: replace(line, inside=value)})


@mutation
def narrow_index(text: Text) -> Iterator[Mutant]:
    """All that is s32 or u32 in a site in another type, where it may wrap around."""
    for old in ("s32", "u32"):
        chosen = [
            (n, line) for n, line in text.instructions()
            if line.element == old and line.opcode not in ("partition-id", "replica-id") and line.dims is not None
        ]  # fmt: skip
        if not chosen or any(line.opcode in ("all-gather", "all-reduce", "reduce-scatter") for _, line in chosen):
            continue
        for new in ("s8", "u8", "s16", "s64", "u64", "s4"):
            yield f"{old} as {new}", text.edited({n: line.with_shape(new) for n, line in chosen})


@mutation
def offset_shifted(text: Text) -> Iterator[Mutant]:
    """One is added to, or taken from, where a slice starts."""
    for n, line in text.instructions("dynamic-slice", "dynamic-update-slice"):
        first = 1 if line.opcode == "dynamic-slice" else 2
        for place, index in enumerate(line.operands[first:], first):
            shape = text.shape_of(n, index)
            for opcode in ("add", "subtract"):
                operands = list(line.operands)
                operands[place] = "mutant"
                added = [
                    f"{line.indent}mutant.one = {shape} constant(1)",
                    f"{line.indent}mutant = {shape} {opcode}({index}, mutant.one)",
                ]
                yield f"{line.name}: {opcode} at {place}", text.edited({n: [*added, line.with_operands(operands)]})


@mutation
def index_clamped(text: Text) -> Iterator[Mutant]:
    """Clamped to all rows but the last, or to the first, before it is used."""
    for n, line in text.instructions("dynamic-slice"):
        whole = text.shape_of(n, line.operands[0])
        match = SHAPE.match(whole or "")
        if match is None:
            continue
        dims = [int(d) for d in match[2].split(",") if d]
        for place, (index, size) in enumerate(zip(line.operands[1:], dims, strict=False), 1):
            shape = text.shape_of(n, index)
            for bound in {size - 2, size - 1, 0, 2 * size} - {-1}:
                operands = list(line.operands)
                operands[place] = "mutant"
                added = [
                    f"{line.indent}mutant.low = {shape} constant(0)",
                    f"{line.indent}mutant.high = {shape} constant({bound})",
                    f"{line.indent}mutant = {shape} clamp(mutant.low, {index}, mutant.high)",
                ]
                yield f"{line.name}: {place} at most {bound}", text.edited({n: [*added, line.with_operands(operands)]})


# ---- groups ----------------------------------------------------------------------------------------------------------


def _changed_groups(text: Text, change: Callable[[list[list[int]]], Iterator[list[list[int]]]]) -> Iterator[Mutant]:
    for n, line in text.instructions():
        groups = groups_of(line.attribute("replica_groups"))
        if groups:
            for new in change([list(g) for g in groups]):
                if new != groups:
                    edited = line.with_attribute("replica_groups", groups_text(new))
                    yield f"{line.name}: {groups_text(new)}", text.edited({n: edited})


@mutation
def group_in_another_order(text: Text) -> Iterator[Mutant]:
    def change(groups: list[list[int]]) -> Iterator[list[list[int]]]:
        for i, g in enumerate(groups):
            yield [*groups[:i], g[::-1], *groups[i + 1 :]]
            yield [*groups[:i], g[1:] + g[:1], *groups[i + 1 :]]
            yield [*groups[:i], [*g[1:2], *g[:1], *g[2:]], *groups[i + 1 :]]

    return _changed_groups(text, change)


@mutation
def groups_reordered(text: Text) -> Iterator[Mutant]:
    return _changed_groups(text, lambda groups: iter([groups[::-1]]))


@mutation
def group_without_a_device(text: Text) -> Iterator[Mutant]:
    def change(groups: list[list[int]]) -> Iterator[list[list[int]]]:
        yield [groups[0][:-1], *groups[1:]]
        yield [groups[0][1:], *groups[1:]]
        yield [groups[0][:-1], *groups[1:], groups[0][-1:]]
        yield groups[1:]

    return _changed_groups(text, change)


@mutation
def group_split_or_joined(text: Text) -> Iterator[Mutant]:
    def change(groups: list[list[int]]) -> Iterator[list[list[int]]]:
        half = len(groups[0]) // 2
        yield [part for g in groups for part in (g[:half], g[half:])]
        yield [[member for g in groups for member in g]]
        yield [[member] for g in groups for member in g]

    return _changed_groups(text, change)


@mutation
def members_exchanged(text: Text) -> Iterator[Mutant]:
    def change(groups: list[list[int]]) -> Iterator[list[list[int]]]:
        if len(groups) > 1:
            a, b = groups[0], groups[1]
            yield [[b[0], *a[1:]], [a[0], *b[1:]], *groups[2:]]
            yield [[*a[:-1], b[-1]], [*b[:-1], a[-1]], *groups[2:]]

    return _changed_groups(text, change)


@mutation
def group_with_a_stranger(text: Text) -> Iterator[Mutant]:
    def change(groups: list[list[int]]) -> Iterator[list[list[int]]]:
        most = max(max(g) for g in groups)
        yield [[*groups[0][:-1], most + 1], *groups[1:]]
        yield [[*groups[0][:-1], groups[0][0]], *groups[1:]]

    return _changed_groups(text, change)


@mutation
def attribute_dropped(text: Text) -> Iterator[Mutant]:
    """use_global_device_ids, channel_id, constrain_layout, or the groups."""
    for n, line in text.instructions():
        for name in ("use_global_device_ids", "channel_id", "constrain_layout", "replica_groups"):
            if line.attribute(name) is not None:
                yield f"{line.name} without {name}", text.edited({n: line.with_attribute(name, None)})
        if line.attribute("use_global_device_ids") and line.attribute("channel_id"):
            bare = line.with_attribute("use_global_device_ids", None).with_attribute("channel_id", None)
            yield f"{line.name} without both", text.edited({n: bare})
        if line.attribute("channel_id") and line.opcode == "all-gather" and not line.attribute("use_global_device_ids"):
            edited = replace(line, tail=line.tail + ", use_global_device_ids=true")
            yield f"{line.name} with global ids", text.edited({n: edited})


@mutation
def channel_changed(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions():
        if line.attribute("channel_id") is not None:
            for new in ("77", "1", "2"):
                yield f"{line.name}: {new}", text.edited({n: line.with_attribute("channel_id", new)})
        elif line.opcode in ("collective-permute", "all-gather"):
            yield f"{line.name}: a channel", text.edited({n: replace(line, tail=f", channel_id=78{line.tail}")})


# ---- pairs -----------------------------------------------------------------------------------------------------------


def _changed_pairs(text: Text, change: Callable[[list[list[int]]], Iterator[list[list[int]]]]) -> Iterator[Mutant]:
    for n, line in text.instructions():
        pairs = groups_of(line.attribute("source_target_pairs"))
        if pairs is not None:
            for new in change([list(p) for p in pairs]):
                if new != pairs:
                    edited = line.with_attribute("source_target_pairs", groups_text(new))
                    yield f"{line.name}: {groups_text(new)}", text.edited({n: edited})


@mutation
def pairs_dropped(text: Text) -> Iterator[Mutant]:
    """One of them, the kept shards, all of them."""

    def change(pairs: list[list[int]]) -> Iterator[list[list[int]]]:
        for i in range(len(pairs)):
            yield [*pairs[:i], *pairs[i + 1 :]]
        yield [p for p in pairs if p[0] != p[1]]
        yield []

    return _changed_pairs(text, change)


@mutation
def pairs_turned(text: Text) -> Iterator[Mutant]:
    """All of them, one of them, or two targets exchanged."""

    def change(pairs: list[list[int]]) -> Iterator[list[list[int]]]:
        yield [p[::-1] for p in pairs]
        for i, p in enumerate(pairs):
            yield [*pairs[:i], p[::-1], *pairs[i + 1 :]]
        for i in range(len(pairs) - 1):
            (a, b), (c, d) = pairs[i : i + 2]
            yield [*pairs[:i], [a, d], [c, b], *pairs[i + 2 :]]

    return _changed_pairs(text, change)


@mutation
def pairs_added(text: Text) -> Iterator[Mutant]:
    def change(pairs: list[list[int]]) -> Iterator[list[list[int]]]:
        for i in range(4):
            if all(i != s for s, _ in pairs):
                for j in range(4):
                    if all(j != t for _, t in pairs):
                        yield [*pairs, [i, j]]
        if pairs:
            yield [*pairs, [pairs[0][0], 9]]
            yield [*pairs, pairs[0]]

    return _changed_pairs(text, change)


@mutation
def one_cycle_kept(text: Text) -> Iterator[Mutant]:
    """All but one cycle of a permute lost."""

    def change(pairs: list[list[int]]) -> Iterator[list[list[int]]]:
        to = dict(map(tuple, pairs))
        for start in to:
            cycle, at = [], start
            while at in to and [at, to[at]] not in cycle:
                cycle.append([at, to[at]])
                at = to[at]
            yield cycle

    return _changed_pairs(text, change)


@mutation
def pairs_in_another_order(text: Text) -> Iterator[Mutant]:
    return _changed_pairs(text, lambda pairs: iter([pairs[::-1], sorted(pairs)]))
