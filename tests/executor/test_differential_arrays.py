"""Random reductions, windows, sorts, gathers and scatters, run here and on XLA's CPU backend.

Bit for bit where elements are only chosen or moved, where integers compute, and in sums of narrow floats, which are
rounded after every step; sums and products of f32 and f64 within 8 units in the last place of what the absolute values
give.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.shape import is_complex, is_floating

from ..xla.judge import Judge
from .support import FLOATS, Array, array, one_op, shape_text
from .test_differential import Case, Draw, dims, hold_often, one_of, values
from .test_differential_products import Products, hold

SOME = ("f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2", "s32", "s8", "u8", "s64", "u16", "s4", "pred", "c64")


def reducer(t: str, op: str, name: str = "fold") -> str:
    return f"{name} {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT c = {t}[] {op}(a, b)\n}}\n"


def with_computations(text: str, *computations: str) -> str:
    return text.replace("\n\nENTRY", "\n\n" + "\n".join(computations) + "\nENTRY")


def op_for(draw: Draw, t: str) -> str:
    if t == "pred":
        return one_of(draw, "and", "or", "xor", "add", "multiply", "maximum")
    if is_complex(t):
        return "add"
    return one_of(draw, "add", "multiply", "maximum", "minimum", *(() if is_floating(t) else ("and", "or", "xor")))


def elements(draw: Draw, t: str, dimensions: tuple[int, ...]) -> Array:
    """Ordinary numbers."""
    return values(draw, t, dimensions, ordinary=True)


def start_of(t: str, op: str) -> Array:
    """The start value that changes nothing."""
    if is_floating(t) and op in ("maximum", "minimum"):
        limit = -np.inf if op == "maximum" else np.inf
        with np.errstate(all="ignore"):
            wide = np.asarray(limit, np.float32).astype(dtype_of(t))
            most = np.asarray(448 if t == "f8e4m3fn" else limit, np.float32)
        return (
            wide if not np.isnan(wide.astype(np.float32)) else np.copysign(most, np.float32(limit)).astype(wide.dtype)
        )
    from hlo_cp2ag.executor.ops.windows import identity_of

    found = 0 if is_complex(t) else identity_of(op, t)
    return np.asarray(abs(found) if found == 0 else found).astype(dtype_of(t))


def reduce(draw: Draw) -> Case:
    t = one_of(draw, *SOME)
    op, dimensions = op_for(draw, t), dims(draw, 1, one_of(draw, 4, 40), (1, 3))
    reduced = sorted(draw(st.sets(st.sampled_from(range(len(dimensions))))))
    result = tuple(n for d, n in enumerate(dimensions) if d not in reduced)
    attributes = f"dimensions={{{','.join(map(str, reduced))}}}, to_apply=fold"
    text = one_op(shape_text(t, result), "reduce", [shape_text(t, dimensions), shape_text(t, ())], attributes)
    args = [elements(draw, t, dimensions), start_of(t, op)]
    if op == "multiply" and is_floating(t):  # products that stay far from what XLA flushes to zero
        generator = np.random.default_rng(draw(st.integers(0, 2**31)))
        args[0] = array(t, np.exp2(generator.uniform(-0.5, 0.5, dimensions)) * generator.choice([-1, 1], dimensions))
    return folded(with_computations(text, reducer(t, op)), args, t, tolerance_of(t, op))


def folded(text: str, args: list[Array], t: str, tolerance: float) -> Case:
    return (Products if tolerance else Case)(text, args, t, tolerance)


def tolerance_of(t: str, op: str) -> float:
    return 8 if op in ("add", "multiply") and t in ("f32", "f64", "c64", "c128") else 0


ARGMAX = """fold {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  odd = pred[] compare(a, a), direction=NE
  keep = pred[] or(more, odd)
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, first)
  place = pred[] or(keep, tie)
  value = f32[] select(keep, a, b)
  number = s32[] select(place, i, j)
  ROOT r = (f32[], s32[]) tuple(value, number)
}
"""


def argmax(draw: Draw) -> Case:
    dimensions = dims(draw, 1, one_of(draw, 5, 90), (1, 2))
    along = draw(st.integers(0, len(dimensions) - 1))
    result = tuple(n for d, n in enumerate(dimensions) if d != along)
    shapes = [shape_text("f32", dimensions), shape_text("s32", dimensions), "f32[]", "s32[]"]
    out = f"({shape_text('f32', result)}, {shape_text('s32', result)})"
    text = one_op(out, "reduce", shapes, f"dimensions={{{along}}}, to_apply=fold")
    numbers = np.round(values(draw, "f32", dimensions, ordinary=True))
    places = np.broadcast_to(np.arange(dimensions[along]).reshape(
        [-1 if d == along else 1 for d in range(len(dimensions))]), dimensions).astype(np.int32)  # fmt: skip
    args = [numbers, places, np.float32(-np.inf), np.int32(0)]
    return Case(with_computations(text, ARGMAX), [np.asarray(a) for a in args], "f32")


def window_text(draw: Draw, dimensions: tuple[int, ...], *, dilated: bool) -> tuple[str, tuple[int, ...]]:
    fields: dict[str, list[str]] = {"size": [], "stride": [], "pad": [], "lhs_dilate": [], "rhs_dilate": []}
    counts = []
    for size in dimensions:
        taps, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        spread, dilation = (draw(st.integers(1, 2)) if dilated else 1 for _ in range(2))
        whole, reach = (size - 1) * spread + 1, (taps - 1) * dilation + 1
        low, high = draw(st.integers(0, taps - 1)), draw(st.integers(0, taps - 1))
        count = (whole + low + high - reach) // stride + 1 if whole + low + high >= reach else 0
        counts.append(count)
        for name, value in zip(fields, (taps, stride, f"{low}_{high}", spread, dilation), strict=True):
            fields[name].append(str(value))
    return "window={" + " ".join(f"{k}={'x'.join(v)}" for k, v in fields.items()) + "}", tuple(counts)


def reduce_window(draw: Draw) -> Case:
    t = one_of(draw, *[t for t in SOME if t != "s4"])
    op = op_for(draw, t)
    # XLA's order in a window of several dimensions depends on the padding (test_judged_arrays.py).
    in_order = op in ("add", "multiply") and is_floating(t) and t not in ("f32", "f64")
    dimensions = dims(draw, 1, 7, (1, 1 if in_order else 3))
    window, counts = window_text(draw, dimensions, dilated=draw(st.booleans()))
    text = one_op(shape_text(t, counts), "reduce-window", [shape_text(t, dimensions), shape_text(t, ())],
                  f"{window}, to_apply=fold")  # fmt: skip
    args = [elements(draw, t, dimensions), start_of(t, op)]
    return folded(with_computations(text, reducer(t, op)), args, t, tolerance_of(t, op))


def cumulative(draw: Draw) -> Case:
    t, size = one_of(draw, "f32", "s32", "f64", "s8", "u16"), draw(st.integers(1, 300))
    op = one_of(draw, "add", "maximum")
    pad = one_of(draw, f"{size - 1}_0", f"0_{size - 1}")
    shape = shape_text(t, (size, 2))
    attributes = f"window={{size={size}x1 pad={pad}x0_0}}, to_apply=fold"
    text = one_op(shape, "reduce-window", [shape, shape_text(t, ())], attributes)
    args = [elements(draw, t, (size, 2)), start_of(t, op)]
    return folded(with_computations(text, reducer(t, op)), args, t, tolerance_of(t, op))


def select_and_scatter(draw: Draw) -> Case:
    t, dimensions = one_of(draw, "f32", "s32", "bf16", "u8", "f64"), dims(draw, 1, 6, (1, 3))
    window, counts = window_text(draw, dimensions, dilated=False)
    select = f"pick {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n" + (
        f"  ROOT c = pred[] compare(a, b), direction={one_of(draw, 'GE', 'LE', 'GT', 'LT')}\n}}\n"
    )
    shapes = [shape_text(t, dimensions), shape_text(t, counts), shape_text(t, ())]
    text = one_op(shapes[0], "select-and-scatter", shapes, f"{window}, select=pick, scatter=fold")
    # No two elements are equal: XLA's order in a window depends on the padding (test_judged_arrays.py).
    count = int(np.prod(dimensions))
    numbers = np.random.default_rng(draw(st.integers(0, 2**31))).permutation(count).astype(dtype_of(t))
    args = [numbers.reshape(dimensions), elements(draw, t, counts), np.zeros((), dtype_of(t))]
    return Case(with_computations(text, select, reducer(t, "add")), args, t, tolerance_of(t, "add"))


def sort(draw: Draw) -> Case:
    t, other = one_of(draw, *FLOATS[:6], "s32", "u8", "s64", "u64", "u32", "s16"), one_of(draw, "s32", "f32", "u8")
    dimensions = dims(draw, 1, one_of(draw, 4, 40), (1, 3))
    along = draw(st.integers(0, len(dimensions) - 1))
    direction = one_of(draw, "LT", "GT")
    total = ", type=TOTALORDER" if is_floating(t) else ""
    pair = draw(st.booleans())
    lines = [f"  a = {t}[] parameter(0)", f"  b = {t}[] parameter(1)"]
    shapes = [shape_text(t, dimensions)]
    args = [values(draw, t, dimensions)]
    if pair:
        lines += [f"  c = {other}[] parameter(2)", f"  d = {other}[] parameter(3)"]
        shapes.append(shape_text(other, dimensions))
        args.append(values(draw, other, dimensions, ordinary=True))
    how = one_of(draw, "plain", "opaque", *(("second",) if pair else ()))
    if how == "second":  # by the first key, then by the second one
        lines += [f"  x = pred[] compare(a, b), direction={direction}{total}",
                  f"  y = pred[] compare(a, b), direction=EQ{total}", "  z = pred[] compare(c, d), direction=LT",
                  "  w = pred[] and(y, z)", "  ROOT r = pred[] or(x, w)"]  # fmt: skip
    elif how == "opaque":  # a form that is not read off
        lines += [f"  x = pred[] compare(a, b), direction={'GE' if direction == 'LT' else 'LE'}{total}",
                  "  ROOT r = pred[] not(x)"]  # fmt: skip
    else:
        lines.append(f"  ROOT r = pred[] compare(a, b), direction={direction}{total}")
    out = shapes[0] if not pair else f"({', '.join(shapes)})"
    text = one_op(out, "sort", shapes, f"dimensions={{{along}}}, is_stable=true, to_apply=less")
    return Case(with_computations(text, "less {\n" + "\n".join(lines) + "\n}\n"), args, t)


def topk(draw: Draw) -> Case:
    t = one_of(draw, "f32", "s32", "bf16", "u8")
    dimensions = (draw(st.integers(1, 3)), draw(st.integers(1, 20)))
    k = draw(st.integers(1, dimensions[1]))
    result = f"({shape_text(t, (dimensions[0], k))}, {shape_text('s32', (dimensions[0], k))})"
    text = one_op(result, "topk", [shape_text(t, dimensions)], f"k={k}, largest={one_of(draw, 'true', 'false')}")
    return Case(text, [values(draw, t, dimensions, ordinary=True)], t)


def indexed(
    draw: Draw, *, writes: bool
) -> tuple[dict[str, str], tuple[int, ...], tuple[int, ...], tuple[int, ...], str]:
    """Dimension numbers, the operand's, the indices' and the slices' dimensions, and the indices' element type."""
    operand = dims(draw, 1, 5, (1, 3))
    rank = len(operand)
    batching = draw(st.sets(st.sampled_from(range(rank)), max_size=1)) if draw(st.booleans()) else set()
    free = [d for d in range(rank) if d not in batching]
    mapped = list(draw(st.permutations([d for d in free if draw(st.booleans())])))
    if writes and not mapped:  # XLA takes updates at no place for one update (test_judged_arrays.py)
        operand = (1, *operand)
        batching = {d + 1 for d in batching}
        rank, free, mapped = rank + 1, [d for d in range(rank + 1) if d not in batching], [0]
    dropped = sorted(d for d in free if draw(st.booleans()))
    sizes = [1 if d in dropped or d in batching else draw(st.integers(1, n)) for d, n in enumerate(operand)]
    batch = [*(operand[d] for d in sorted(batching)), *draw(st.lists(st.integers(1, 4), max_size=2))]
    order = draw(st.permutations(range(len(batch))))
    outer = [batch[i] for i in order]
    vector_dim = draw(st.integers(0, len(outer)))
    index_batching = []
    for i in range(len(batching)):
        place = order.index(i)
        index_batching.append(place + (place >= vector_dim))
    indices = list(outer)
    if len(mapped) != 1 or draw(st.booleans()):
        indices.insert(vector_dim, len(mapped))
    else:
        vector_dim = len(outer)
        index_batching = [order.index(i) for i in range(len(batching))]
    window = [sizes[d] for d in range(rank) if d not in dropped and d not in batching]
    result_rank = len(outer) + len(window)
    offsets = sorted(draw(st.permutations(range(result_rank)))[: len(window)])
    result, w, o = [], iter(window), iter(outer)
    for d in range(result_rank):
        result.append(next(w) if d in offsets else next(o))

    def listed(numbers: list[int]) -> str:
        return "{" + ",".join(map(str, numbers)) + "}"

    names = (("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "input_batching_dims",
              "scatter_indices_batching_dims") if writes else ("offset_dims", "collapsed_slice_dims", "start_index_map",
              "operand_batching_dims", "start_indices_batching_dims"))  # fmt: skip
    lists = (offsets, dropped, mapped, sorted(batching), index_batching)
    numbers = {name: listed(value) for name, value in zip(names, lists, strict=True)}
    numbers["index_vector_dim"] = str(vector_dim)
    if not writes:
        numbers["slice_sizes"] = listed(sizes)
    return numbers, operand, tuple(indices), tuple(result), one_of(draw, "s32", "u32", "s64", "u8", "s8")


def places(draw: Draw, t: str, dimensions: tuple[int, ...]) -> Array:
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    return generator.integers(0 if t[0] == "u" else -2, 6, dimensions).astype(dtype_of(t))


def gather(draw: Draw) -> Case:
    numbers, operand, indices, result, index = indexed(draw, writes=False)
    t = one_of(draw, *[t for t in SOME if t != "s4"])
    attributes = ", ".join(f"{k}={v}" for k, v in numbers.items())
    text = one_op(shape_text(t, result), "gather", [shape_text(t, operand), shape_text(index, indices)], attributes)
    return Case(text, [values(draw, t, operand), places(draw, index, indices)], t)


def scatter(draw: Draw) -> Case:
    numbers, operand, indices, updates, index = indexed(draw, writes=True)
    t = one_of(draw, *[t for t in SOME if t not in ("s4", "f8e4m3fn", "f8e5m2")])
    attributes = ", ".join(f"{k}={v}" for k, v in numbers.items()) + ", to_apply=fold"
    op = one_of(draw, "replace", "subtract", op_for(draw, t)) if t != "pred" else op_for(draw, t)
    shapes = [shape_text(t, operand), shape_text(index, indices), shape_text(t, updates)]
    text = one_op(shapes[0], "scatter", shapes, attributes)
    fold = (
        reducer(t, op) if op != "replace" else f"fold {{\n  a = {t}[] parameter(0)\n  ROOT b = {t}[] parameter(1)\n}}\n"
    )
    args = [elements(draw, t, operand), places(draw, index, indices), elements(draw, t, updates)]
    return Case(with_computations(text, fold), args, t, tolerance_of(t, "add"))


CASES = {maker.__name__: maker for maker in (
    reduce, argmax, reduce_window, cumulative, select_and_scatter, sort, topk, gather, scatter)}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_op_agrees_with_xla(judge: Judge, name: str) -> None:
    hold_often(judge, CASES[name], hold, 15, fixed=True)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_op_agrees_with_xla_often(judge: Judge, name: str) -> None:
    hold_often(judge, CASES[name], hold, 200, fixed=False)
