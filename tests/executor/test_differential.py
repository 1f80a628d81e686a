"""Random one-op modules, run here and on XLA's CPU backend.

What moves data or computes in integers has to agree bit for bit, float arithmetic too; transcendental functions within
4 units in the last place. XLA's CPU backend takes denormals for zero and contracts complex products: neither counts.
Cases in which XLA is wrong are in test_judged.py, with the right values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo_cp2ag.ir.element_types import dtype_of, integer_range
from hlo_cp2ag.ir.shape import is_complex, is_floating, is_integer

from ..xla.judge import Judge
from .support import ALL_TYPES, COMPLEX, FLOATS, INTEGERS, Array, array, one_op, run_text, shape_text, tiny, ulps

Draw = Callable[[st.SearchStrategy[Any]], Any]

COMMON_FLOATS = ("f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2")


@dataclass
class Case:
    text: str
    args: list[Array]
    result: str
    """The result's element type."""
    tolerance: float = 0
    """Units in the last place."""
    replicas: int = 1
    partitions: int = 1
    options: dict[str, Any] = field(default_factory=dict)


def agree(ours: Array, theirs: Array, case: Case) -> None:
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    if is_complex(case.result):
        # A unit in the last place of the number, not of each part: products may cancel in one of them.
        size = np.abs(theirs).astype(np.float64)
        step = np.maximum(size, tiny(case.result)) * (2.0**-23 if case.result == "c64" else 2.0**-52)
        with np.errstate(all="ignore"):
            distance = np.abs(ours.astype(np.complex128) - theirs.astype(np.complex128))
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        assert (same | (distance <= max(case.tolerance, 2) * step)).all(), f"{ours} is not XLA's {theirs}\n{case.text}"
        return
    if not is_floating(case.result):
        assert np.array_equal(ours, theirs), f"{ours} is not XLA's {theirs}\n{case.text}\n{case.args}"
        return
    distance = ulps(ours, theirs, case.result)
    small = tiny(case.result)
    flushed = (np.abs(ours.astype(np.float64)) < 2 * small) & (np.abs(theirs.astype(np.float64)) < 2 * small)
    far = (distance > case.tolerance) & ~flushed
    assert not far.any(), f"{ours[far]} is not XLA's {theirs[far]}\n{case.text}\n{case.args}"


# ---- values ----------------------------------------------------------------------------------------------------------


def values(draw: Draw, element_type: str, dimensions: tuple[int, ...], *, ordinary: bool = False) -> Array:
    """Random elements; unless `ordinary`, some of them are special."""
    count = int(np.prod(dimensions))
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    if element_type == "pred":
        return generator.integers(0, 2, dimensions).astype(bool)
    if is_integer(element_type):
        low, high = integer_range(element_type)
        wide = np.uint64 if element_type == "u64" else np.int64
        large = generator.integers(low, high, count, dtype=wide, endpoint=True)
        small = generator.integers(max(low, -4), min(high, 4), count, endpoint=True).astype(wide)
        edges = np.array([low, high], wide)[generator.integers(0, 2, count)]
        kind = generator.integers(0, 5, count)
        picked = np.where(kind < 2, small, np.where(kind < 4, large, edges))
        return (small if ordinary else picked).astype(dtype_of(element_type)).reshape(dimensions)
    if is_complex(element_type):
        numbers = generator.standard_normal(count) + 1j * generator.standard_normal(count)
        return numbers.astype(dtype_of(element_type)).reshape(dimensions)
    normal = generator.standard_normal(count) * np.exp2(generator.integers(-3, 6, count))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5])[generator.integers(0, 8, count)]
    picked = normal if ordinary else np.where(generator.integers(0, 3, count) == 0, special, normal)
    return array(element_type, picked.reshape(dimensions))


def dims(draw: Draw, least: int = 0, most: int = 4, rank: tuple[int, int] = (0, 3)) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(least, most), min_size=rank[0], max_size=rank[1])))


def one_of(draw: Draw, *choices: Any) -> Any:
    return draw(st.sampled_from(choices))


# ---- elementwise -----------------------------------------------------------------------------------------------------

TRANSCENDENTAL = ("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "rsqrt", "cbrt", "sine",
                  "cosine", "tan", "tanh", "erf", "sqrt")  # fmt: skip


def unary_float(draw: Draw) -> Case:
    op = one_of(
        draw, *TRANSCENDENTAL, "abs", "negate", "sign", "floor", "ceil", "round-nearest-afz", "round-nearest-even"
    )
    t = one_of(draw, *(COMMON_FLOATS if op in TRANSCENDENTAL else FLOATS))
    shape = shape_text(t, (16,))
    # XLA's tanh of f64 is a rational function: 7 units at 19.25 (test_judged.py), its log1p up to 18 near -0.38.
    loose = {("tanh", "f64"): 16, ("log-plus-one", "f64"): 32, ("logistic", "f64"): 8, ("erf", "f64"): 8}
    tolerance = loose.get((op, t), 4) if op in TRANSCENDENTAL else 0
    return Case(one_op(shape, op, [shape]), [values(draw, t, (16,))], t, tolerance)


def unary_complex(draw: Draw) -> Case:
    op = one_of(draw, "exponential", "log", "sqrt", "tanh", "sine", "cosine", "negate", "real", "imag", "abs", "sign")
    t = one_of(draw, *COMPLEX)
    part = {"c64": "f32", "c128": "f64"}[t]
    result = part if op in ("real", "imag", "abs") else t
    args = [values(draw, t, (16,))]
    return Case(one_op(shape_text(result, (16,)), op, [shape_text(t, (16,))]), args, result, 16 if op != "abs" else 4)


def unary_integer(draw: Draw) -> Case:
    op = one_of(draw, "negate", "not", "popcnt", "count-leading-zeros", "abs", "sign")
    types = [t for t in INTEGERS if t[0] == "s" or op not in ("abs", "sign")]
    t = one_of(draw, *[t for t in types if op != "popcnt" or t != "s4"])
    shape = shape_text(t, (16,))
    return Case(one_op(shape, op, [shape]), [values(draw, t, (16,))], t)


def binary_float(draw: Draw) -> Case:
    op = one_of(draw, "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power", "atan2")
    t = one_of(draw, *(COMMON_FLOATS if op in ("power", "atan2") else FLOATS[:-1]))
    shape = shape_text(t, (16,))
    args = [values(draw, t, (16,)), values(draw, t, (16,))]
    return Case(one_op(shape, op, [shape, shape]), args, t, 4 if op in ("power", "atan2") else 0)


def binary_complex(draw: Draw) -> Case:
    op, t = one_of(draw, "add", "subtract", "multiply", "divide"), one_of(draw, *COMPLEX)
    shape = shape_text(t, (16,))
    return Case(one_op(shape, op, [shape, shape]), [values(draw, t, (16,)), values(draw, t, (16,))], t, 8)


def binary_integer(draw: Draw) -> Case:
    op = one_of(draw, "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power", "and", "or",
                "xor", "shift-left", "shift-right-arithmetic", "shift-right-logical")  # fmt: skip
    t = one_of(draw, *INTEGERS)
    shape = shape_text(t, (16,))
    # XLA looks at the lowest six bits of an exponent alone (test_judged.py).
    args = [values(draw, t, (16,)), values(draw, t, (16,), ordinary=op == "power")]
    return Case(one_op(shape, op, [shape, shape]), args, t)


def binary_pred(draw: Draw) -> Case:
    op = one_of(draw, "and", "or", "xor", "add", "multiply", "maximum", "minimum")
    args = [values(draw, "pred", (8,)), values(draw, "pred", (8,))]
    return Case(one_op("pred[8]", op, ["pred[8]", "pred[8]"]), args, "pred")


def compare(draw: Draw) -> Case:
    t = one_of(draw, *ALL_TYPES)
    direction = one_of(draw, "EQ", "NE") if is_complex(t) else one_of(draw, "EQ", "NE", "LT", "LE", "GT", "GE")
    attributes = f"direction={direction}"
    if is_floating(t) and draw(st.booleans()):
        attributes += ", type=TOTALORDER"
    shape = shape_text(t, (32,))
    args = [values(draw, t, (32,)), values(draw, t, (32,))]
    return Case(one_op("pred[32]", "compare", [shape, shape], attributes), args, "pred")


def select(draw: Draw) -> Case:
    t, dimensions = one_of(draw, *ALL_TYPES), dims(draw)
    mask = dimensions if draw(st.booleans()) else ()
    shape = shape_text(t, dimensions)
    args = [values(draw, "pred", mask), values(draw, t, dimensions), values(draw, t, dimensions)]
    return Case(one_op(shape, "select", [shape_text("pred", mask), shape, shape]), args, t)


def clamp(draw: Draw) -> Case:
    t, dimensions = one_of(draw, *FLOATS[:-1], *INTEGERS), dims(draw)
    bound = dimensions if draw(st.booleans()) else ()
    shape, bounds = shape_text(t, dimensions), shape_text(t, bound)
    args = [values(draw, t, bound), values(draw, t, dimensions), values(draw, t, bound)]
    return Case(one_op(shape, "clamp", [bounds, shape, bounds]), args, t)


def convert(draw: Draw) -> Case:
    source = one_of(draw, *ALL_TYPES)
    target = one_of(draw, *(COMPLEX if is_complex(source) else ALL_TYPES))
    if source == "f4e2m1fn" and is_integer(target):
        target = "f32"  # XLA takes 6, its largest number, for too large (test_judged.py)
    args = [values(draw, source, (32,))]
    return Case(one_op(shape_text(target, (32,)), "convert", [shape_text(source, (32,))]), args, target)


def reduce_precision(draw: Draw) -> Case:
    t = one_of(draw, "f32", "f64", "f16", "bf16")
    exponent, mantissa = draw(st.integers(1, 11)), draw(st.integers(0, 52))
    shape = shape_text(t, (32,))
    attributes = f"exponent_bits={exponent}, mantissa_bits={mantissa}"
    return Case(one_op(shape, "reduce-precision", [shape], attributes), [values(draw, t, (32,))], t)


def bitcast_convert(draw: Draw) -> Case:
    by_width = {8: ("s8", "u8", "f8e4m3fn", "f8e5m2"), 16: ("s16", "u16", "bf16", "f16"), 32: ("s32", "u32", "f32"),
                64: ("s64", "u64", "f64"), 4: ("s4", "u4")}  # fmt: skip
    old, new = one_of(draw, *by_width), one_of(draw, *by_width)
    source, target = one_of(draw, *by_width[old]), one_of(draw, *by_width[new])
    dimensions = dims(draw, 1, 3, (0, 2))
    operand = (*dimensions, new // old) if new > old else dimensions
    result = (*dimensions, old // new) if new < old else dimensions
    # Floats as results could be NaNs of any kind: integers have all the bits to compare.
    target = {"bf16": "u16", "f16": "u16", "f32": "u32", "f64": "u64"}.get(target, target)
    args = [values(draw, source, operand)]
    return Case(one_op(shape_text(target, result), "bitcast-convert", [shape_text(source, operand)]), args, target)


# ---- movement --------------------------------------------------------------------------------------------------------


def broadcast(draw: Draw) -> Case:
    t, result = one_of(draw, *ALL_TYPES), dims(draw, 1)
    places = tuple(sorted(draw(st.sets(st.sampled_from(range(len(result)))) if result else st.just(set()))))
    operand = tuple(result[p] for p in places)
    attributes = f"dimensions={{{','.join(map(str, places))}}}"
    text = one_op(shape_text(t, result), "broadcast", [shape_text(t, operand)], attributes)
    return Case(text, [values(draw, t, operand)], t)


def reshape(draw: Draw) -> Case:
    t, operand = one_of(draw, *ALL_TYPES), dims(draw, 1)
    result = tuple(draw(st.permutations(operand)))
    if draw(st.booleans()):
        result = (*result, 1) if draw(st.booleans()) else (int(np.prod(operand)),)
    return Case(one_op(shape_text(t, result), "reshape", [shape_text(t, operand)]), [values(draw, t, operand)], t)


def transpose(draw: Draw) -> Case:
    t, operand = one_of(draw, *ALL_TYPES), dims(draw)
    order = draw(st.permutations(range(len(operand))))
    result = tuple(operand[d] for d in order)
    attributes = f"dimensions={{{','.join(map(str, order))}}}"
    text = one_op(shape_text(t, result), "transpose", [shape_text(t, operand)], attributes)
    return Case(text, [values(draw, t, operand)], t)


def reverse(draw: Draw) -> Case:
    t, dimensions = one_of(draw, *ALL_TYPES), dims(draw, rank=(1, 3))
    turned = sorted(draw(st.sets(st.sampled_from(range(len(dimensions))))))
    shape = shape_text(t, dimensions)
    text = one_op(shape, "reverse", [shape], f"dimensions={{{','.join(map(str, turned))}}}")
    return Case(text, [values(draw, t, dimensions)], t)


def concatenate(draw: Draw) -> Case:
    # XLA aborts on concatenations of s2 and u2.
    t, dimensions = one_of(draw, *[t for t in ALL_TYPES if t not in ("s2", "u2")]), dims(draw, rank=(1, 3))
    along = draw(st.integers(0, len(dimensions) - 1))
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    operands = [tuple(n if d == along else size for d, size in enumerate(dimensions)) for n in sizes]
    result = tuple(sum(sizes) if d == along else size for d, size in enumerate(dimensions))
    text = one_op(shape_text(t, result), "concatenate", [shape_text(t, o) for o in operands], f"dimensions={{{along}}}")
    return Case(text, [values(draw, t, o) for o in operands], t)


def slice_(draw: Draw) -> Case:
    t, dimensions = one_of(draw, *ALL_TYPES), dims(draw, 1, 6)
    ranges, result = [], []
    for size in dimensions:
        start = draw(st.integers(0, size))
        limit, stride = draw(st.integers(start, size)), draw(st.integers(1, 3))
        ranges.append(f"[{start}:{limit}:{stride}]")
        result.append(-(-(limit - start) // stride))
    text = one_op(shape_text(t, result), "slice", [shape_text(t, dimensions)], f"slice={{{', '.join(ranges)}}}")
    return Case(text, [values(draw, t, dimensions)], t)


def pad(draw: Draw) -> Case:
    t, dimensions = one_of(draw, *ALL_TYPES), dims(draw, 0, 4, (1, 3))
    parts, result = [], []
    for size in dimensions:
        interior = draw(st.integers(0, 2))
        whole = size + max(0, size - 1) * interior
        low = draw(st.integers(-whole, 3))
        high = draw(st.integers(-(whole + min(low, 0)), 3)) if whole + low >= 0 else 3
        parts.append(f"{low}_{high}_{interior}")
        result.append(whole + low + high)
    shapes = [shape_text(t, dimensions), shape_text(t, ())]
    text = one_op(shape_text(t, result), "pad", shapes, f"padding={'x'.join(parts)}")
    return Case(text, [values(draw, t, dimensions), values(draw, t, ())], t)


def iota(draw: Draw) -> Case:
    t, dimensions = one_of(draw, *FLOATS[:-2], *INTEGERS[:-2], *COMPLEX), dims(draw, 1, 5, (1, 3))
    along = draw(st.integers(0, len(dimensions) - 1))
    return Case(one_op(shape_text(t, dimensions), "iota", [], f"iota_dimension={along}"), [], t)


def dynamic(draw: Draw) -> tuple[str, tuple[int, ...], tuple[int, ...], str, list[Array]]:
    """Element type, dimensions, sizes of the block, index type, starts."""
    t, dimensions = one_of(draw, *ALL_TYPES), dims(draw, 1, 5, (1, 3))
    sizes = tuple(draw(st.integers(1, n)) for n in dimensions)
    index = one_of(draw, "s32", "u32", "s64", "u8", "s8")
    least = 0 if index[0] == "u" else -3
    starts = [np.asarray(draw(st.integers(least, n + 2))).astype(dtype_of(index)) for n in dimensions]
    return t, dimensions, sizes, index, starts


def dynamic_slice(draw: Draw) -> Case:
    t, dimensions, sizes, index, starts = dynamic(draw)
    shapes = [shape_text(t, dimensions), *[f"{index}[]"] * len(starts)]
    attributes = f"dynamic_slice_sizes={{{','.join(map(str, sizes))}}}"
    text = one_op(shape_text(t, sizes), "dynamic-slice", shapes, attributes)
    return Case(text, [values(draw, t, dimensions), *starts], t)


def dynamic_update_slice(draw: Draw) -> Case:
    t, dimensions, sizes, index, starts = dynamic(draw)
    shapes = [shape_text(t, dimensions), shape_text(t, sizes), *[f"{index}[]"] * len(starts)]
    text = one_op(shape_text(t, dimensions), "dynamic-update-slice", shapes)
    return Case(text, [values(draw, t, dimensions), values(draw, t, sizes), *starts], t)


# ---- collectives -----------------------------------------------------------------------------------------------------


def grouped(draw: Draw, devices: int) -> tuple[str, int]:
    """Groups of one size over all devices, in any order, and that size."""
    size = one_of(draw, *[n for n in (1, 2, 4, 8) if devices % n == 0])
    order = draw(st.permutations(range(devices)))
    groups = [order[i : i + size] for i in range(0, devices, size)]
    text = ",".join("{" + ",".join(map(str, group)) + "}" for group in groups)
    return f"replica_groups={{{text}}}", size


def collective(draw: Draw) -> Case:
    op = one_of(draw, "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
    t = one_of(draw, "f32", "bf16", "f16", "s32", "s8", "u16", "f64", "f8e4m3fn", "s64")
    devices = one_of(draw, 2, 4, 8)
    groups, size = grouped(draw, devices)
    along = draw(st.integers(0, 1))
    operand = (8, 2) if along == 0 else (3, 8)
    result = list(operand)
    tail = f", dimensions={{{along}}}" if op in ("all-gather", "reduce-scatter", "all-to-all") else ""
    if op == "all-gather":
        result[along] *= size
    if op == "reduce-scatter":
        result[along] //= size
    if op in ("all-reduce", "reduce-scatter"):
        tail += ", to_apply=reducer"
    if op == "collective-permute":
        targets = draw(st.permutations(range(devices)))
        count = draw(st.integers(0, devices))
        groups = "source_target_pairs={" + ",".join(f"{{{s},{t}}}" for s, t in list(enumerate(targets))[:count]) + "}"
    reducer_op = one_of(draw, "add", "multiply", "maximum", "minimum")
    reducer = f"""reducer {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] {reducer_op}(a, b)
}}
"""
    text = one_op(shape_text(t, result), op, [shape_text(t, operand)], groups + tail)
    text = text.replace("\n\nENTRY", "\n\n" + reducer + "\nENTRY")
    return Case(text, [values(draw, t, (devices, *operand), ordinary=True)], t, replicas=devices)


CASES = {
    maker.__name__.rstrip("_").replace("_", "-"): maker
    for maker in (
        unary_float, unary_complex, unary_integer, binary_float, binary_complex, binary_integer, binary_pred, compare,
        select, clamp, convert, reduce_precision, bitcast_convert, broadcast, reshape, transpose, reverse, concatenate,
        slice_, pad, iota, dynamic_slice, dynamic_update_slice, collective,
    )
}  # fmt: skip


def hold_against_xla(judge: Judge, case: Case) -> None:
    devices = case.replicas * case.partitions
    args = [np.broadcast_to(a, (devices, *a.shape)) for a in case.args] if devices == 1 else case.args
    theirs = judge.run(case.text, case.replicas, case.partitions, args, how="recompile")
    ours = run_text(case.text, *args, replicas=case.replicas, partitions=case.partitions)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        agree(np.ascontiguousarray(a), b, case)


def hold_often(
    judge: Judge, maker: Callable[[Draw], Case], hold: Callable[[Judge, Case], None], examples: int, fixed: bool
) -> None:
    """Random cases of one op, held against XLA; the same ones every time if `fixed`."""

    @settings(max_examples=examples, deadline=None, derandomize=fixed, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def check(data: st.DataObject) -> None:
        hold(judge, maker(data.draw))

    check()


@pytest.mark.parametrize("name", CASES)
def test_op_agrees_with_xla(judge: Judge, name: str) -> None:
    hold_often(judge, CASES[name], hold_against_xla, 12, fixed=True)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_op_agrees_with_xla_often(judge: Judge, name: str) -> None:
    hold_often(judge, CASES[name], hold_against_xla, 150, fixed=False)
