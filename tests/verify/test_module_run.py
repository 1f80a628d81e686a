"""Two modules run with the same inputs: what is shown, what is not, and what the counterexample says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import HloModule
from hlo_cp2ag.ir.shape import ArrayShape
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.lowering.collective_permute_to_all_gather import rewrite
from hlo_cp2ag.text.parser import parse
from hlo_cp2ag.verify.difference import find_difference
from hlo_cp2ag.verify.module_run import Difference, EngineRun, run_both
from tests.xla.judge import available

needs_xla = pytest.mark.skipif(available() is not None, reason=str(available()))

RING = "channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
DIVERGENT = """HloModule after
taken { a = f32[2] parameter(0) ROOT r = f32[2] collective-permute(a), channel_id=1, source_target_pairs={{0,1},{1,0}} }
other { a = f32[2] parameter(0) ROOT r = f32[2] copy(a) }
ENTRY main {
  p = f32[2] parameter(0)
  id = u32[] partition-id()
  zero = u32[] constant(0)
  first = pred[] compare(id, zero), direction=EQ
  ROOT r = f32[2] conditional(first, p, p), true_computation=taken, false_computation=other
}
"""
ENDLESS = """HloModule endless
again { a = f32[2] parameter(0) ROOT t = pred[] constant(true) }
same { a = f32[2] parameter(0) ROOT n = f32[2] negate(a) }
ENTRY main {
  p = f32[2] parameter(0)
  ROOT w = f32[2] while(p), condition=again, body=same
}
"""


def module(*lines: str, element: str = "f32[2]", name: str = "after") -> HloModule:
    text = "\n".join(["HloModule m", "", "ENTRY main {", f"  p = {element} parameter(0)", *lines, "}", ""])
    return parse(text, f"{name}.hlo")


def executor(before: HloModule, after: HloModule, *grid: int, **options: Any) -> EngineRun:
    (found,) = run_both(before, after, *grid, **options)
    assert found.engine == "executor"
    assert "\n" not in found.reason and bool(found.reason) == (found.verdict != "shown")
    return found


def xla(before: HloModule, after: HloModule, *grid: int, **options: Any) -> EngineRun:
    (found,) = run_both(before, after, *grid, engine="xla", **options)
    assert found.engine == "xla"
    assert "\n" not in found.reason and bool(found.reason) == (found.verdict != "shown")
    return found


SAME = module("ROOT r = f32[2] copy(p)", name="before")


# ---- shown -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element_type", ["f32", "bf16", "f8e4m3fn", "f8e5m2", "s4", "c64", "pred", "u64"])
def test_a_rewritten_ring_is_shown(element_type: str) -> None:
    shape = f"{element_type}[2,3]"
    before = module(f"ROOT r = {shape} collective-permute(p), {RING}", element=shape, name="before")
    after = rewrite(before, num_partitions=4).module
    assert "all-gather" in after.text
    assert executor(before, after, 1, 4).verdict == "shown"
    if available() is None:
        assert xla(before, after, 1, 4).verdict == "shown"


def test_a_partial_permute_with_a_tuple_result_on_two_replicas_of_four_partitions() -> None:
    before = module(
        f"  a = f32[2] collective-permute(p), {RING}",
        "  b = f32[2] collective-permute(p), source_target_pairs={{0,1}}",
        "  ROOT t = (f32[2], (f32[2], f32[2])) tuple(a, s)",
        name="before",
    )
    before = parse(before.text.replace("  ROOT", "  s = (f32[2], f32[2]) tuple(b, p)\n  ROOT"), "before.hlo")
    after = rewrite(before, replica_count=2, num_partitions=4).module
    assert "collective-permute(" not in after.text
    engine = "both" if available() is None else "executor"
    found = run_both(before, after, 2, 4, engine=engine)
    assert [run.verdict for run in found] == ["shown"] * len(found)
    assert found[0].engine == "executor" and found[-1].engine == ("xla" if engine == "both" else "executor")


@needs_xla
def test_what_xla_could_round_once_is_rounded_alike() -> None:
    # With its fusion pass XLA puts the product and the sum into one kernel in one of the two modules only: what keeps
    # them apart in the other, a permute, has no effect on the values.
    shape = "f32[64]"
    before = module(f"m = {shape} multiply(p, p)", f"ROOT r = {shape} add(m, p)", element=shape, name="before")
    after = module(
        f"m = {shape} multiply(p, p)",
        f"k = {shape} collective-permute(m), channel_id=1, source_target_pairs={{{{0,1}},{{1,0}}}}",
        f"l = {shape} collective-permute(k), channel_id=2, source_target_pairs={{{{0,1}},{{1,0}}}}",
        f"ROOT r = {shape} add(l, p)",
        element=shape,
    )
    for run in run_both(before, after, 1, 2, engine="both"):
        assert run.verdict == "shown", run.reason


@needs_xla
def test_a_loop_that_carries_what_never_changes() -> None:
    text = f"""HloModule m
more {{ s = (s32[], f32[2], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=2 ROOT l = pred[] compare(i, n), direction=LT }}
step {{ s = (s32[], f32[2], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0 one = s32[] constant(1)
  j = s32[] add(i, one) x = f32[2] get-tuple-element(s), index=1 y = f32[2] collective-permute(x), {RING}
  n = s32[] get-tuple-element(s), index=2 ROOT t = (s32[], f32[2], s32[]) tuple(j, y, n) }}
ENTRY main {{
  p = f32[2] parameter(0)
  zero = s32[] constant(0)
  three = s32[] constant(3)
  start = (s32[], f32[2], s32[]) tuple(zero, p, three)
  end = (s32[], f32[2], s32[]) while(start), condition=more, body=step
  ROOT r = f32[2] get-tuple-element(end), index=1
}}
"""
    # Three steps along the ring of four are one step back.
    after = module("ROOT r = f32[2] collective-permute(p), channel_id=1, source_target_pairs={{1,0},{2,1},{3,2},{0,3}}")
    for run in run_both(parse(text, "before.hlo"), after, 1, 4, engine="both"):
        assert run.verdict == "shown", run.reason


def test_given_inputs_in_order_and_by_name_and_for_all_devices() -> None:
    after = module("z = f32[] constant(0)", "b = f32[2] broadcast(z), dimensions={}", "ROOT r = f32[2] add(p, b)")
    # 0.0 + -0.0 is 0.0: the two modules agree but for negative zero.
    assert executor(SAME, after, 1, 2, inputs=[np.float32([[1, 2], [3, 4]])]).verdict == "shown"
    assert executor(SAME, after, 1, 2, inputs={"p0": np.float32([1, 2])}).verdict == "shown"
    found = executor(SAME, after, 1, 2, inputs={"p0": np.float32([1, -0.0])})
    assert found.verdict == "failed"
    assert found.difference == Difference(0, 0, (1,), "-0", "0", 2, (0,))


def test_neurons_semantics() -> None:
    before = module("ROOT r = f32[2] collective-permute(p), source_target_pairs={{0,1}}", name="before")
    kept = module(
        "i = u32[] replica-id()",
        "one = u32[] constant(1)",
        "c = pred[] compare(i, one), direction=EQ",
        "b = pred[2] broadcast(c), dimensions={}",
        "g = f32[4] all-gather(p), dimensions={0}",
        "f = f32[2] slice(g), slice={[0:2]}",
        "ROOT r = f32[2] select(b, f, p)",
    )
    assert executor(before, kept, 2, 1, profile="neuron").verdict == "shown"
    assert executor(before, kept, 2, 1, profile="xla").verdict == "failed"
    found = xla(before, kept, 2, 1, profile="neuron")
    assert (found.verdict, found.reason) == ("not shown", "XLA has not the semantics of --profile neuron")


# ---- differences -----------------------------------------------------------------------------------------------------


def test_the_smallest_counterexample_is_on_device_five_alone() -> None:
    before = module("n = f32[2] negate(p)", "ROOT t = (f32[2], f32[2]) tuple(p, n)", name="before")
    after = module(
        "i = u32[] partition-id()",
        "five = u32[] constant(5)",
        "c = pred[] compare(i, five), direction=EQ",
        "b = pred[2] broadcast(c), dimensions={}",
        "v = f32[2] constant({7, 8})",
        "n = f32[2] negate(p)",
        "wrong = f32[2] select(b, v, n)",
        "ROOT t = (f32[2], f32[2]) tuple(p, wrong)",
    )
    p = np.arange(16, dtype=np.float32).reshape(8, 2)
    p[5] = [-7, 11]
    for run in run_both(before, after, 1, 8, inputs=[p], engine="both" if available() is None else "executor"):
        assert run.verdict == "failed"
        # Of device 5, -(-7) is 7 in both modules: the second element is the first that differs.
        assert run.difference == Difference(5, 1, (1,), "-11", "8", 1, (1,))
        assert run.reason == (
            "output 1 (after.hlo:11:1: %wrong) differs on device 5 at [1]: -11 before, 8 after; 1 of 16 elements differ"
        )


def test_the_first_device_counts_and_then_the_first_output() -> None:
    before = module("ROOT t = (f32[2], f32[2], f32[2]) tuple(p, p, p)", name="before")
    after = module("n = f32[2] negate(p)", "ROOT t = (f32[2], f32[2], f32[2]) tuple(p, n, n)")
    found = executor(before, after, 1, 2, inputs=[np.float32([[0, 1], [2, 3]])])
    # Device 0: 0 and -0 differ as well.
    assert found.difference == Difference(0, 1, (0,), "0", "-0", 4, (1, 2))
    assert found.reason.endswith("4 of 4 elements differ, and 1 more output")


def test_a_scalar_and_one_device_need_few_words() -> None:
    before = module("ROOT r = s32[] copy(p)", element="s32[]", name="before")
    after = module("one = s32[] constant(1)", "ROOT r = s32[] add(p, one)", element="s32[]")
    found = executor(before, after, inputs=[np.int32(4)])
    assert found.reason == "the output (after.hlo:6:6: %r) differs: 4 before, 5 after"


@needs_xla
def test_nan_payloads_are_told_apart_in_both_engines() -> None:
    before = module("ROOT r = f32[2] copy(p)", name="before")
    # Through an integer: the lowest bit of the payload is flipped.
    after = module(
        "one = u32[] constant(1)",
        "ones = u32[2] broadcast(one), dimensions={}",
        "i = u32[2] bitcast-convert(p)",
        "x = u32[2] xor(i, ones)",
        "ROOT r = f32[2] bitcast-convert(x)",
    )
    bits = np.array([0x7FC01234, 0x7FC00001], np.uint32)
    for run in run_both(before, after, inputs=[bits.view(np.float32)], engine="both"):
        assert run.verdict == "failed"
        assert run.difference == Difference(0, 0, (0,), "nan(0x401234)", "nan(0x401235)", 2, (0,))
    assert executor(before, after, inputs=[bits.view(np.float32)], tolerance=0.0).verdict == "shown"


def test_elements_that_print_alike_show_their_bits() -> None:
    shape = ArrayShape("f8e4m3fn", (1,))
    dtype = dtype_of("f8e4m3fn")
    a, b = (np.array([[bits]], np.uint8).view(dtype) for bits in (0x7F, 0x7E))
    found = find_difference([a], [b], [shape])
    assert found is not None and (found.before, found.after) == ("nan", "448")  # the largest number, and the one NaN
    # f8e5m2 has several NaNs, whose payloads are printed.
    a, b = (np.array([[bits]], np.uint8).view(ml_dtypes.float8_e5m2) for bits in (0x7E, 0x7F))
    found = find_difference([a], [b], [ArrayShape("f8e5m2", (1,))])
    assert found is not None and (found.before, found.after) == ("nan", "nan(0x3)")
    # XLA prints an f4e2m1fn of 0.5 with two digits: no two print alike; f8e8m0fnu of large powers neither.
    a, b = (np.array([[bits]], np.uint64).view(np.float64) for bits in (0x7FF8000000000001, 0x7FF8000000000002))
    found = find_difference([a], [b], [ArrayShape("f64", (1,))])
    assert found is not None and (found.before, found.after) == ("nan(0x8000000000001)", "nan(0x8000000000002)")


def test_only_the_bits_that_an_element_has_count() -> None:
    a = np.array([[0x0F, 0x03]], np.uint8).view(ml_dtypes.int4)
    b = np.array([[0xFF, 0x03]], np.uint8).view(ml_dtypes.int4)
    assert find_difference([a], [b], [ArrayShape("s4", (2,))]) is None


def test_both_halves_of_complex_numbers_count() -> None:
    a = np.array([[1 + 0j, 2 + 0j]], np.complex64)
    b = np.array([[1 + 0j, complex(2, -0.0)]], np.complex64)
    for wide, name in ((np.complex64, "c64"), (np.complex128, "c128")):
        found = find_difference([a.astype(wide)], [b.astype(wide)], [ArrayShape(name, (2,))])
        assert found == Difference(0, 0, (1,), "(2, 0)", "(2, -0)", 1, (0,))
        assert find_difference([a.astype(wide)], [b.astype(wide)], [ArrayShape(name, (2,))], 0.0) is None


def test_arrays_without_elements_and_larger_than_a_block() -> None:
    nothing = np.empty((2, 0, 3), np.float32)
    assert find_difference([nothing], [nothing], [ArrayShape("f32", (0, 3))]) is None
    a = np.zeros((2, 700, 1000), np.float32)
    b = a.copy()
    b[1, 650, 999] = b[1, 699, 0] = 1
    assert find_difference([a], [b], [ArrayShape("f32", (700, 1000))]) == (
        Difference(1, 0, (650, 999), "0", "1", 2, (0,))
    )
    alike = [np.broadcast_to(np.full((1, 2), x, np.float32), (5, 2)) for x in (1, 2)]
    found = find_difference(alike[:1], alike[1:], [ArrayShape("f32", (2,))])
    assert found == Difference(0, 0, (0,), "1", "2", 10, (0,))


# ---- tolerance -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("element_type", "before", "after", "tolerance", "equal"),
    [
        ("f32", 100.0, 100.5, 0.005, True),  # 0.5 <= 0.005 * 100
        ("f32", 100.0, 100.75, 0.005, False),
        ("f32", 0.0, 0.25, 0.25, True),  # max(1, |a|) is 1
        ("f32", 0.25, 0.0, 0.125, False),
        ("f32", 0.0, -0.0, 0.0, True),
        ("f32", np.inf, np.inf, 0.0, True),
        ("f32", np.inf, 3e38, 10.0, False),
        ("f32", 1.0, np.inf, 10.0, False),
        ("f32", np.inf, -np.inf, 10.0, False),
        ("f32", np.nan, np.nan, 0.0, True),
        ("f32", np.nan, 1.0, 10.0, False),
        ("f64", 1e308, -1e308, 0.5, False),
        ("bf16", 1.0, 1.0078125, 0.0078125, True),
        ("bf16", 1.0, 1.0078125, 0.0, False),
        ("c64", 3 + 4j, 3 + 4.5j, 0.1, True),  # |a| is 5
        ("c64", 3 + 4j, 3 + 4.75j, 0.1, False),
        ("s32", 1000, 1001, 0.5, False),
        ("pred", True, False, 10.0, False),
    ],
)
def test_tolerance(element_type: str, before: Any, after: Any, tolerance: float, equal: bool) -> None:
    a, b = (np.array([x]).astype(dtype_of(element_type)) for x in (before, after))
    found = find_difference([a], [b], [ArrayShape(element_type, ())], tolerance)
    assert (found is None) == equal


def test_tolerance_in_a_run() -> None:
    after = module(
        "h = f32[] constant(1.0625)", "b = f32[2] broadcast(h), dimensions={}", "ROOT r = f32[2] multiply(p, b)"
    )
    p = np.float32([1, 2])
    assert executor(SAME, after, inputs=[p], tolerance=0.0625).verdict == "shown"
    found = executor(SAME, after, inputs=[p], tolerance=0.03125)
    assert found.difference == Difference(0, 0, (0,), "1", "1.0625", 2, (0,))


# ---- what cannot be run ----------------------------------------------------------------------------------------------


def test_an_opcode_that_the_executor_lacks_is_not_held_against_a_module() -> None:
    custom = module('ROOT r = f32[2] custom-call(p), custom_call_target="f"')
    for before, after, which in ((custom, SAME, "before"), (SAME, custom, "after")):
        for forced in (False, True):
            found = executor(before, after, forced=forced)
            assert found.verdict == "not shown"
            assert found.reason == (
                f"{which} cannot be run: after.hlo:5:6: the executor does not know the custom-call 'f'"
            )


def test_elided_constants_have_no_value_unless_they_are_filled() -> None:
    elided = module("c = f32[2] constant({...})", "ROOT r = f32[2] add(p, c)")
    for before, after, which in ((elided, SAME, "before"), (SAME, elided, "after")):
        found = executor(before, after)
        assert (found.verdict, found.reason) == (
            "not shown",
            f"{which} cannot be run: after.hlo:5:1: an elided constant has no value",
        )
        found = xla(before, after)
        assert (found.verdict, found.reason) == ("not shown", "after.hlo:5:1: an elided constant has no value")
    assert executor(elided, elided, fill_elided="random").verdict == "shown"
    assert executor(elided, SAME, fill_elided="random").verdict == "failed"


def test_memory_is_bounded_before_it_is_taken() -> None:
    huge = module("ROOT r = f32[65536,65536] negate(p)", element="f32[65536,65536]", name="before")
    for found in run_both(huge, huge, 1, 64, engine="both"):
        assert found.verdict == "not shown"
        size = 64 * 4 * 65536**2
        assert found.reason.startswith(f"the random inputs of all devices take {size:,} bytes of memory, more than")
    wide = parse(
        "HloModule m\nadd { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }\nENTRY e {\n"
        "  p = f32[2] parameter(0)\n  z = f32[] constant(0)\n  b = f32[2,65536] broadcast(p), dimensions={0}\n"
        "  n = f32[2,65536] negate(b)\n  ROOT r = f32[2] reduce(n, z), dimensions={1}, to_apply=add\n}\n",
        "after.hlo",
    )
    for before, after, which in ((wide, SAME, "before"), (SAME, wide, "after")):
        found = executor(before, after, 1, 4, max_memory=100_000)
        assert found.verdict == "not shown" and found.difference is None
        assert found.reason.startswith(f"{which} cannot be run: after.hlo:") and "--max-memory" in found.reason
    out = module("ROOT r = f32[2,65536] broadcast(p), dimensions={0}", name="before")
    found = xla(out, out, 1, 4, max_memory=100_000)
    assert found.verdict == "not shown" and found.reason.startswith("the inputs and outputs of all devices take 4,194,")


def test_the_outputs_that_are_kept_count_for_the_second_run() -> None:
    before = module("n = f32[100000] negate(p)", "ROOT r = f32[100000] copy(n)", element="f32[100000]", name="before")
    # By itself, either run is estimated at 1,600,000 bytes.
    assert executor(before, before, max_memory=2_000_000).verdict == "shown"
    found = executor(before, before, max_memory=1_800_000)
    assert found.verdict == "not shown"
    assert found.reason.startswith("after cannot be run: before.hlo:5:1: the run would take about 1,600,000 bytes")
    assert found.reason.endswith("; before's outputs take 400,000 of the 1,800,000")


def test_a_loop_without_end_is_bounded() -> None:
    endless = parse(ENDLESS, "after.hlo")
    for before, after, which in ((endless, SAME, "before"), (SAME, endless, "after")):
        found = executor(before, after, max_steps=1000, forced=True)
        assert found.verdict == "not shown"
        assert found.reason.startswith(f"{which} cannot be run: after.hlo:6:8: more than 1000 instructions were run")


def test_a_run_that_nobody_asked_for_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlo_cp2ag.verify.module_run.DEFAULT_MAX_STEPS", 500)
    found = executor(SAME, parse(ENDLESS, "after.hlo"))
    assert found.verdict == "not shown" and "more than 500 instructions were run" in found.reason
    counted = parse(ENDLESS.replace("constant(true)", "constant(false)"), "after.hlo")
    assert executor(SAME, counted).verdict == "shown"


def test_progress_counts_both_runs() -> None:
    told: list[int] = []
    executor(SAME, SAME, progress=told.append)
    assert len(told) == 2


# ---- what only one module can be run for -----------------------------------------------------------------------------


def test_a_collective_that_only_a_part_of_its_group_reaches_is_a_failure() -> None:
    after = parse(DIVERGENT, "after.hlo")
    found = executor(SAME, after, 1, 2)
    assert (found.verdict, found.difference) == ("failed", None)
    assert found.reason.startswith("after cannot be run, and before can: after.hlo:2:")
    found = executor(after, SAME, 1, 2)
    assert found.verdict == "not shown" and found.reason.startswith("before cannot be run: after.hlo:2:")


@needs_xla
def test_xla_hangs_on_it() -> None:
    after = parse(DIVERGENT, "after.hlo")
    found = xla(SAME, after, 1, 2, time_limit=4)
    assert found.verdict == "failed"
    assert found.reason.startswith("XLA hangs on after, and runs before: no answer from XLA within 4 s")
    found = xla(after, SAME, 1, 2, time_limit=4)
    assert found.verdict == "not shown"
    assert found.reason.startswith("XLA hangs on before: no answer from XLA within 4 s")


@needs_xla
def test_xla_refuses_pairs_outside_of_the_grid() -> None:
    after = module("ROOT r = f32[2] collective-permute(p), channel_id=1, source_target_pairs={{0,9}}")
    for found in run_both(SAME, after, 1, 2, engine="both"):
        assert found.verdict == "failed" and "9" in found.reason
    for found in run_both(after, SAME, 1, 2, engine="both"):
        assert found.verdict == "not shown"


@needs_xla
def test_xla_dies_of_a_permute_in_a_fusion() -> None:
    after = parse(
        "HloModule fused, is_scheduled=true\n"
        "f { a = f32[2]{0} parameter(0) "
        "ROOT r = f32[2]{0} collective-permute(a), channel_id=1, source_target_pairs={{0,0},{1,1}} }\n"
        "ENTRY main {\n  p = f32[2]{0} parameter(0)\n  ROOT r = f32[2]{0} fusion(p), kind=kLoop, calls=f\n}\n",
        "after.hlo",
    )
    found = xla(SAME, after, 1, 2)
    assert found.verdict == "failed"
    assert found.reason.startswith("XLA dies of after, and runs before: XLA's process ended with signal SIG")


@needs_xla
def test_a_wrong_rewrite_differs_on_xla_as_in_the_executor() -> None:
    before = module(f"ROOT r = f32[2] collective-permute(p), {RING}", name="before")
    after = parse(before.text.replace("{3,0}", "{3,3}").replace("{2,3},", "{2,0},"), "after.hlo")
    p = np.arange(8, dtype=np.float32).reshape(4, 2)
    ran = run_both(before, after, 1, 4, inputs=[p], engine="both")
    for found in ran:
        # Device 0 should have heard from 3 and heard from 2; device 3 from 2 and heard from itself.
        assert found.difference == Difference(0, 0, (0,), "6", "4", 4, (0,))
    assert ran[0].reason == ran[1].reason


def test_without_jaxlib_nothing_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    stub = tmp_path / "jax"
    stub.mkdir()
    (stub / "__init__.py").write_text("raise ImportError('no jaxlib')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = xla(SAME, SAME)
    assert found.verdict == "not shown" and found.reason.startswith("there is no XLA to run on: jax")


# ---- bad questions ---------------------------------------------------------------------------------------------------


def test_other_signatures_are_refused() -> None:
    with pytest.raises(HloError, match=r"after.hlo:3:7: error: the entry takes f32\[3\], and f32\[2\] before"):
        run_both(SAME, module("ROOT r = f32[2] slice(p), slice={[0:2]}", element="f32[3]"))
    with pytest.raises(HloError, match=r"the entry returns \(f32\[2\]\), and f32\[2\] before"):
        run_both(SAME, module("ROOT r = (f32[2]) tuple(p)"))


def test_inputs_that_do_not_fit_and_other_nonsense() -> None:
    with pytest.raises(ExecutionError, match="input p0 has the dimensions"):
        run_both(SAME, SAME, inputs=[np.zeros(3, np.float32)])
    with pytest.raises(ExecutionError, match="the entry takes 1 input, 2 are given"):
        run_both(SAME, SAME, inputs=[np.zeros(2, np.float32)] * 2)
    with pytest.raises(ExecutionError, match="0 x 1 has no devices"):
        run_both(SAME, SAME, 0)
    for tolerance in (-1.0, float("nan"), float("inf")):
        with pytest.raises(HloError, match="the tolerance is"):
            run_both(SAME, SAME, tolerance=tolerance)
