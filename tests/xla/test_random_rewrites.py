"""Random permutes, rewritten: XLA computes the same bits before and after.

What XLA's own permute does not do right on CPU, seen with jaxlib 0.10.2, and what is done about it here:

- In injected text (how="inject") both sides move all bits of every element type: NaN payloads, denormals, signed zeros.
- Compiled from the start (how="recompile"), XLA permutes bf16 as f32, and f8e5m2, f8e4m3 and f8e3m4 as f16, with
  converts around: a NaN's payload becomes the canonical one (0x7fbf -> 0x7fc0), for f8e5m2 its sign too. The gather
  keeps payloads where all are targets, and where not, the select is widened and loses them as well. So the permute's
  side is the one that loses bits, and these four types get no NaNs there. All others keep every bit on both sides.
- A permute of packed elements (s2, u2 always; s4, u4 in injected text) copies one byte for each element out of and into
  packed buffers, past their ends: with 64 elements of s2 or s4 the process dies of a broken heap. The rewritten
  text is right. So the permute that it is compared with runs in s8 or u8, on the same numbers.
- A permute of four operands is taken by XLA's code generator for one in place, whose operands are two arrays and two
  offsets ("Buffer slice extent 32 is out of range for buffer #0 of size 24"). The rewritten text is right. It is
  compared with four permutes of one operand.
- A partial permute of f8e8m0fnu, which has no zero, is left as it is; full ones are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hlo_cp2ag

from .judge import Judge, bit_equal
from .judge_worker import element_type

NUMPY = {
    "pred": "bool",
    **{
        f"{sign}{bits}": f"{name}{bits}"
        for sign, name in (("s", "int"), ("u", "uint"))
        for bits in (2, 4, 8, 16, 32, 64)
    },
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
    **{
        f"f8{kind}": f"float8_{kind}"
        for kind in ("e4m3fn", "e5m2", "e4m3", "e3m4", "e4m3b11fnuz", "e4m3fnuz", "e5m2fnuz")
    },
    "f8e8m0fnu": "float8_e8m0fnu",
}
PACKED = {"s2": 2, "u2": 2, "s4": 4, "u4": 4}
NAN_LOST_WHEN_RECOMPILED = {"bf16", "f8e5m2", "f8e4m3", "f8e3m4"}
GRIDS = [(r, p) for r in range(1, 9) for p in range(1, 9) if 1 < r * p <= 8]

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Style:
    """How the text is written."""

    percent: bool = True
    operand_shapes: bool = False
    layouts: bool = True
    line_end: str = "\n"


@dataclass(frozen=True)
class Array:
    """An array's type; the layout goes from minor to major."""

    element: str
    dimensions: tuple[int, ...]
    layout: tuple[int, ...]

    def text(self, layouts: bool, packed: bool) -> str:
        bare = f"{self.element}[{','.join(map(str, self.dimensions))}]"
        if not layouts:
            return bare
        size = f":E({PACKED[self.element]})" if packed and self.element in PACKED else ""
        inside = ",".join(map(str, self.layout)) + size
        return f"{bare}{{{inside}}}" if inside else bare


@dataclass(frozen=True)
class Permute:
    """One permute's pairs and the axis that they name."""

    pairs: Pairs
    over_partitions: bool


@dataclass(frozen=True)
class Program:
    """Permutes of the parameters, one after another, with what stands before and after them."""

    replicas: int
    partitions: int
    arrays: tuple[Array, ...]
    permutes: tuple[Permute, ...]
    in_the_middle: bool
    style: Style
    inject: bool
    scheduled: bool
    seed: int
    separate: bool = False
    """Whether each array has a permute of its own."""

    @property
    def how(self) -> str:
        return "inject" if self.inject else "recompile"

    @property
    def has_packed_permutes(self) -> bool:
        return any(a.element in PACKED and (self.inject or PACKED[a.element] == 2) for a in self.arrays)

    def widened(self) -> Program:
        """The program with whole bytes for packed elements."""
        wide = tuple(
            Array(a.element[0] + "8" if a.element in PACKED else a.element, a.dimensions, a.layout) for a in self.arrays
        )
        return replace(self, arrays=wide)

    def text(self) -> str:
        style = self.style
        sign = "%" if style.percent else ""
        types = [a.text(style.layouts, self.inject) for a in self.arrays]
        together = types[0] if len(types) == 1 else f"({', '.join(types)})"
        lines: list[str] = []

        def add(name: str, shape: str, opcode: str, operands: list[tuple[str, str]], attributes: str = "") -> None:
            written = ", ".join(f"{s} {sign}{n}" if style.operand_shapes else f"{sign}{n}" for s, n in operands)
            lines.append(f"{sign}{name} = {shape} {opcode}({written}){attributes}")

        values: list[tuple[str, str]] = []
        for i, shape in enumerate(types):
            lines.append(f"{sign}p.{i} = {shape} parameter({i})")
            values.append((shape, f"p.{i}"))
        if self.in_the_middle:
            for i, shape in enumerate(types):
                add(f"before.{i}", shape, "copy", [values[i]])
                values[i] = (shape, f"before.{i}")
        for k, permute in enumerate(self.permutes):
            channel = f", channel_id={7 + k}" if permute.over_partitions else ""
            pairs = ",".join(f"{{{s},{t}}}" for s, t in permute.pairs)
            add(f"cp.{k}", together, "collective-permute", values, f"{channel}, source_target_pairs={{{pairs}}}")
            if len(types) == 1:
                values = [(together, f"cp.{k}")]
                continue
            if self.separate:
                lines.pop()
                for i, shape in enumerate(types):
                    attributes = f"{channel}, source_target_pairs={{{pairs}}}"
                    add(f"cp.{k}.{i}", shape, "collective-permute", [values[i]], attributes)
                    values[i] = (shape, f"cp.{k}.{i}")
                continue
            last = k == len(self.permutes) - 1 and not self.in_the_middle
            for i, shape in enumerate([] if last else types):
                add(f"part.{k}.{i}", shape, "get-tuple-element", [(together, f"cp.{k}")], f", index={i}")
                values[i] = (shape, f"part.{k}.{i}")
        if self.in_the_middle:
            for i, shape in enumerate(types):
                add(f"after.{i}", shape, "copy", [values[i]])
                values[i] = (shape, f"after.{i}")
        if len(types) > 1 and (self.in_the_middle or self.separate):
            add("all", together, "tuple", values)
        lines[-1] = "ROOT " + lines[-1]
        header = "HloModule random" + ", is_scheduled=true" * self.scheduled
        header += f", entry_computation_layout={{({', '.join(types)})->{together}}}" * style.layouts
        header += f", replica_count={self.replicas}, num_partitions={self.partitions}"
        return style.line_end.join([header, "", "ENTRY main {", *(f"  {line}" for line in lines), "}", ""])

    def args(self) -> list[np.ndarray]:
        """Random bytes for every element of every device."""
        rng = np.random.default_rng(self.seed)
        return [self._random(rng, a) for a in self.arrays]

    def _random(self, rng: np.random.Generator, array: Array) -> np.ndarray:
        dtype = element_type(NUMPY[array.element])
        shape = (self.replicas * self.partitions, *array.dimensions)
        raw = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
        if array.element == "pred":
            raw &= 1
        elif array.element in PACKED:
            raw &= (1 << PACKED[array.element]) - 1
            if array.element[0] == "s":  # numpy's view of a negative number has its sign in all upper bits
                raw = np.where(
                    raw >> (PACKED[array.element] - 1), raw | (256 - (1 << PACKED[array.element])), raw
                ).astype(np.uint8)
        else:
            raw[rng.random(shape) < 0.2] = 0xFF  # NaNs with payloads, which are rare among wide random floats
            raw[rng.random(shape) < 0.2, -1] &= 0x80  # denormals and zeros, of both signs
        out = raw.view(dtype).reshape(shape)
        if not self.inject and array.element in NAN_LOST_WHEN_RECOMPILED:
            out = np.where(np.isnan(out.astype(np.float32)), np.zeros((), dtype), out)
        return out


# --------------------------------------------------------------------------------------------------------------------
# What is drawn


@st.composite
def partial_permutations(draw: st.DrawFn, size: int, full: bool) -> Pairs:
    targets = draw(st.permutations(range(size)))
    pairs = list(zip(draw(st.permutations(range(size))), targets, strict=True))
    return tuple(pairs if full else pairs[: draw(st.integers(0, size))])


@st.composite
def arrays(draw: st.DrawFn, elements: list[str], any_layout: bool) -> Array:
    element = draw(st.sampled_from(elements))
    dimensions = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 2, 3, 4]), max_size=6)))
    while np.prod(dimensions) > 200:
        dimensions = dimensions[:-1]
    row_major = tuple(reversed(range(len(dimensions))))
    layout = tuple(draw(st.permutations(row_major))) if any_layout else row_major
    return Array(element, dimensions, layout)


@st.composite
def programs(draw: st.DrawFn, inject: bool, operands: int = 1) -> Program:
    grids = [g for g in GRIDS if inject or 1 in g]
    replicas, partitions = draw(st.sampled_from(grids))
    layouts = draw(st.booleans())
    made = tuple(draw(arrays(list(NUMPY), any_layout=layouts)) for _ in range(operands))
    layouts = layouts or (inject and any(a.element in PACKED for a in made))  # packed text has to say E(4)
    no_zero = any(a.element == "f8e8m0fnu" for a in made)
    permutes = []
    for _ in range(draw(st.integers(1, 2))):
        over_partitions = draw(st.booleans())
        size = partitions if over_partitions else replicas
        pairs = draw(partial_permutations(size, full=no_zero or draw(st.booleans())))
        permutes.append(Permute(pairs, over_partitions))
    style = Style(draw(st.booleans()), draw(st.booleans()), layouts, draw(st.sampled_from(["\n", "\r\n"])))
    # Text without a schedule is laid out by XLA, or is injected as it is: then its layouts are taken at their word too.
    scheduled = inject and draw(st.booleans())
    in_the_middle = draw(st.booleans())
    return Program(
        replicas, partitions, made, tuple(permutes), in_the_middle, style, inject, scheduled, draw(st.integers(0, 99))
    )


OPTIONS = st.fixed_dictionaries(
    {"names": st.sampled_from(["fresh", "keep"]), "gather_dimension": st.sampled_from(["auto", "major"])}
)
ALL = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
STEADY: dict[str, Any] = {"derandomize": True, "deadline": None, "database": None, "suppress_health_check": ALL}


def check(judge: Judge, program: Program, options: dict[str, str]) -> None:
    text = program.text()
    result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(text), **options)  # type: ignore[arg-type]
    assert len(result.rewritten) == len(program.permutes), [site.reason for site in result.left]
    assert " collective-permute(" not in result.text
    if program.style.line_end == "\r\n":
        assert result.text.count("\n") == result.text.count("\r\n")
    args = program.args()
    before, wide_args = (program.widened(), []) if program.has_packed_permutes else (program, args)
    if before is not program:
        wide_args = [a.astype(element_type(NUMPY[w.element])) for a, w in zip(args, before.arrays, strict=True)]
    if len(args) == 4:
        before = replace(before, separate=True)
    grid = program.replicas, program.partitions
    permuted = judge.run(before.text(), *grid, wide_args, how=program.how)  # type: ignore[arg-type]
    gathered = judge.run(result.text, *grid, args, how=program.how)  # type: ignore[arg-type]
    assert len(permuted) == len(gathered) == len(args)
    for old, new in zip(permuted, gathered, strict=True):
        assert bit_equal(old.astype(new.dtype) if program.has_packed_permutes else old, new)


# --------------------------------------------------------------------------------------------------------------------
# The tests


@settings(max_examples=30, **STEADY)
@given(program=programs(inject=True), options=OPTIONS)
def test_injected(judge: Judge, program: Program, options: dict[str, str]) -> None:
    check(judge, program, options)


@settings(max_examples=20, **STEADY)
@given(program=programs(inject=False), options=OPTIONS)
def test_recompiled(judge: Judge, program: Program, options: dict[str, str]) -> None:
    check(judge, program, options)


@settings(max_examples=12, **STEADY)
@given(program=st.integers(2, 7).flatmap(lambda n: programs(inject=True, operands=n)), options=OPTIONS)
def test_several_operands(judge: Judge, program: Program, options: dict[str, str]) -> None:
    check(judge, program, options)


@pytest.mark.sweep
@settings(max_examples=600, **STEADY)
@given(program=st.integers(1, 3).flatmap(lambda n: programs(inject=True, operands=n)), options=OPTIONS)
def test_many_injected(judge: Judge, program: Program, options: dict[str, str]) -> None:
    check(judge, program, options)


@pytest.mark.sweep
@settings(max_examples=400, **STEADY)
@given(program=programs(inject=False), options=OPTIONS)
def test_many_recompiled(judge: Judge, program: Program, options: dict[str, str]) -> None:
    check(judge, program, options)


@pytest.mark.parametrize("element", NUMPY)
@pytest.mark.parametrize("full", [True, False], ids=["full", "partial"])
@pytest.mark.parametrize("inject", [True, False], ids=["inject", "recompile"])
def test_every_element_type_with_all_its_bits(judge: Judge, element: str, full: bool, inject: bool) -> None:
    pairs = ((0, 1), (1, 0)) if full else ((1, 0),)
    array = Array(element, (16, 16), (1, 0))
    program = Program(2, 1, (array,), (Permute(pairs, False),), False, Style(), inject, inject, seed=1)
    if element == "f8e8m0fnu" and not full:
        result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(program.text()))
        assert "has no zero" in result.sites[0].reason
        assert not result.changed
        return
    check(judge, program, {})


@pytest.mark.parametrize("dimensions", [(0,), (0, 3), (3, 0), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("layout", ["row", "column"])
def test_arrays_without_elements_are_left(dimensions: tuple[int, ...], layout: str) -> None:
    # XLA permutes them, but refuses to gather along a dimension of size 0 or dies of a division by zero; with another
    # dimension it depends on the layout that XLA chooses later.
    order = tuple(range(len(dimensions)))
    array = Array("f32", dimensions, order if layout == "column" else order[::-1])
    program = Program(2, 1, (array,), (Permute(((0, 1),), False),), False, Style(), True, True, seed=1)
    result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(program.text()))
    assert "has no elements" in result.sites[0].reason
    assert not result.changed


@settings(max_examples=100, **STEADY)
@given(data=st.data())
def test_the_profiles_print_the_same_where_nothing_sets_them_apart(data: st.DataObject) -> None:
    replicas = data.draw(st.integers(2, 8))
    made = tuple(data.draw(arrays(list(NUMPY), any_layout=True)) for _ in range(data.draw(st.integers(1, 3))))
    pairs = data.draw(partial_permutations(replicas, full=True))
    style = Style(data.draw(st.booleans()), data.draw(st.booleans()), True, data.draw(st.sampled_from(["\n", "\r\n"])))
    program = Program(replicas, 1, made, (Permute(pairs, False),), data.draw(st.booleans()), style, True, True, seed=0)
    shared: dict[str, Any] = {"gate": "every", "sub_byte": "widen", "gather_dimension": "auto", **data.draw(OPTIONS)}
    texts = {p: hlo_cp2ag.rewrite(hlo_cp2ag.parse(program.text()), profile=p, **shared).text for p in ("xla", "neuron")}
    assert texts["xla"] == texts["neuron"]
    assert " collective-permute(" not in texts["xla"]
