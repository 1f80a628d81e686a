"""Correct rewrites in every form: pairs of modules that compute the same, which mutations then break.

Most have one permute of `p` whose result is used twice, beside a second parameter `q`:

    p = T parameter(0)
    q = T parameter(1)
    cp = T collective-permute(p), ...
    sum = T subtract(q, cp)
    ROOT out = (T, T) tuple(sum, cp)

`tool_forms.py` has the tool's own chain in every setting, `hand_forms.py` and `more_hand_forms.py` replacements that are
made by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import hlo_cp2ag

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Form:
    """A correct rewrite."""

    name: str
    before: str
    after: str
    replicas: int
    partitions: int
    level: str = "source"
    """Where in XLA's pipeline the texts enter."""

    @property
    def devices(self) -> int:
        return self.replicas * self.partitions


@dataclass(frozen=True)
class Setting:
    """What a permute moves, between whom."""

    replicas: int
    partitions: int
    pairs: Pairs
    element: str = "f32"
    dims: tuple[int, ...] = (2, 3)
    channel: bool = True
    layout: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        return self.partitions if self.channel else self.replicas

    @property
    def shape(self) -> str:
        return self.with_dims(self.dims)

    def with_dims(self, dims: tuple[int, ...]) -> str:
        inside = "" if self.layout is None or not dims else "{" + ",".join(map(str, self.layout[-len(dims) :])) + "}"
        return f"{self.element}[{','.join(map(str, dims))}]{inside}"

    @property
    def combine(self) -> str:
        # Not a sum: XLA takes 0 + q for q, also where that is -0.0.
        return "xor" if self.element == "pred" else "subtract"

    @property
    def zero(self) -> str:
        return {"pred": "false", "c64": "(0, 0)"}.get(self.element, "0")

    def permute(self, operand: str = "p", name: str = "cp", pairs: Pairs | None = None, channel: int = 1) -> str:
        """The line of a permute."""
        channel_text = f"channel_id={channel}, " if self.channel else ""
        return f"{name} = {self.shape} collective-permute({operand}), {channel_text}{pairs_text(pairs, self.pairs)}"

    @property
    def header(self) -> str:
        return f"HloModule m, replica_count={self.replicas}, num_partitions={self.partitions}"

    def module(self, lines: list[str], result: str = "cp", helpers: str = "", header: str = "") -> str:
        """A module around the lines of a site that make `result` of `p`."""
        shape = self.shape
        body = [
            f"p = {shape} parameter(0)",
            f"q = {shape} parameter(1)",
            *lines,
            f"sum = {shape} {self.combine}(q, {result})",
            f"ROOT out = ({shape}, {shape}) tuple(sum, {result})",
        ]
        return module_text(header or self.header, body, helpers)


def pairs_text(pairs: Pairs | None, default: Pairs = ()) -> str:
    found = default if pairs is None else pairs
    return "source_target_pairs={" + ",".join(f"{{{s},{t}}}" for s, t in found) + "}"


def module_text(header: str, body: list[str], helpers: str = "") -> str:
    """A module, one instruction a line; `helpers` are other computations, indented as they like."""
    entry = "\n".join(f"  {line}" for line in body)
    return f"{header}\n\n" + (f"{tidy(helpers)}\n" if helpers else "") + f"ENTRY main {{\n{entry}\n}}\n"


def tidy(text: str) -> str:
    """Computations written with indentation, one instruction a line."""
    lines = []
    for line in lines_of(text):
        lines.append(line if line.endswith("{") or line == "}" else f"  {line}")
    return "\n".join(lines) + "\n"


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def ring(size: int, by: int = 1) -> Pairs:
    return tuple((i, (i + by) % size) for i in range(size))


def by_tool(name: str, before: str, replicas: int, partitions: int, level: str = "source", **options: object) -> Form:
    """The tool's own rewrite of a module."""
    result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(before), **options)  # type: ignore[arg-type]
    assert result.changed and not result.left, name
    return Form(name, before, hlo_cp2ag.to_text(result.module), replicas, partitions, level)


def by_hand(
    name: str, setting: Setting, lines: str, result: str = "cp", helpers: str = "", level: str = "source"
) -> Form:
    """A permute of `setting` against lines that make the same."""
    before = setting.module([setting.permute()])
    after = setting.module(lines_of(lines), result, helpers)
    return Form(name, before, after, setting.replicas, setting.partitions, level)
