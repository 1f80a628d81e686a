"""What is refused, and where: attributes that are missing, sizes, endless loops. Nothing here may take long or much."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hlo_cp2ag.executor.inputs import random_array
from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.executor.values import collapse
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import ArrayShape
from hlo_cp2ag.ir.source import HloError, HloSyntaxError
from hlo_cp2ag.text.opcodes import BASE_OPCODES, opcode_spec
from hlo_cp2ag.text.parser import parse

from .support import run_text
from .test_control import COUNTDOWN, UNDER_PREDICATE

PASSED_ON = "ENTRY e { ROOT p = f32[4000000] parameter(0) }"


class Peak:
    bytes = 0


@pytest.fixture
def peak() -> Iterator[Peak]:
    """After a test's end: the most memory that numpy and Python took."""
    found = Peak()
    tracemalloc.start()
    yield found
    tracemalloc.stop()


def taken() -> int:
    return tracemalloc.get_traced_memory()[1]


# ---- required attributes ---------------------------------------------------------------------------------------------


def _without(opcode: str) -> str:
    """A module with an instruction that has no attributes at all."""
    spec = opcode_spec(opcode)
    assert spec is not None
    names = ", ".join(["p"] * (max(spec.operand_counts) if spec.operand_counts else max(2, spec.minimum_operands)))
    if spec.operand_parity == 1:
        names = "p, p, p"
    return f"ENTRY e {{\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] {opcode}({names})\n}}\n"


@pytest.mark.parametrize("opcode", sorted(o for o in BASE_OPCODES if opcode_spec(o).required))  # type: ignore[union-attr]
def test_an_attribute_that_is_required_is_missing(opcode: str) -> None:
    with pytest.raises(HloSyntaxError) as caught:
        run(parse(_without(opcode)))
    assert caught.value.line == 3
    if opcode != "async-start":  # its shape is looked at first
        assert f"{opcode} needs the attribute" in caught.value.message


@pytest.mark.parametrize(
    ("operand", "instruction", "message"),
    [
        ("f32[2]", "f32[2] collective-permute(p)", "needs the attribute source_target_pairs"),
        ("f32[2]", "f32[2] broadcast(p)", "needs the attribute dimensions"),
        ("pred[]", "pred[] conditional(p, p, p)", "needs the attribute false_computation"),
        ("s32[]", "s32[] conditional(p, p, p)", "needs the attribute branch_computations"),
        ("f32[2]", "f32[2] collective-permute(p), source_target_pair={{0,0}}", "takes no attribute"),
        ("f32[2]", "f32[2] all-gather(p), dimensions={0}, replica_grups={{0}}", "takes no attribute"),
    ],
)
def test_attributes_that_are_missing_or_misspelt(operand: str, instruction: str, message: str) -> None:
    with pytest.raises(HloSyntaxError, match=message) as caught:
        run(parse(f"ENTRY e {{\n  p = {operand} parameter(0)\n  ROOT r = {instruction}\n}}\n"))
    assert caught.value.line == 3


def test_empty_pairs_are_pairs() -> None:
    text = "ENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] collective-permute(p), source_target_pairs={}\n}\n"
    assert run_text(text, np.ones(2, np.float32))[0].tolist() == [[0, 0]]


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_tuples_that_double_are_refused_before_they_fill_the_memory(peak: Peak) -> None:
    lines = "".join(f"  t{n + 1} = tuple(t{n}, t{n})\n" for n in range(40))
    text = f"ENTRY e {{\n  t0 = f32[2] parameter(0)\n{lines}  ROOT r = get-tuple-element(t40), index=0\n}}\n"
    with pytest.raises(HloSyntaxError, match="tuple: makes a tuple of more than 262,144 arrays") as caught:
        run(parse(text))
    assert caught.value.line == 21  # t19 has 524,288
    assert taken() < 400_000_000


def test_random_inputs_are_estimated_before_they_are_made(peak: Peak) -> None:
    message = "the random arguments of 8 devices take 128,000,000 bytes of memory, the most at parameter 'p'"
    with pytest.raises(ExecutionError, match=message) as caught:
        run(parse(PASSED_ON, "m.hlo"), num_partitions=8, max_memory=1000)
    assert str(caught.value).startswith("m.hlo:1:16: error: ")
    assert taken() < 1_000_000


@pytest.mark.parametrize(
    ("parameters", "instruction"),
    [
        (["f32[300000]"], "f32[300000] erf(p0)"),
        (["bf16[300000]"], "bf16[300000] logistic(p0)"),
        (["bf16[300000]", "bf16[300000]"], "bf16[300000] add(p0, p1)"),
        (["c64[300000]", "c64[300000]"], "c64[300000] power(p0, p1)"),
        (["c64[300000]", "c64[300000]"], "c64[300000] divide(p0, p1)"),
        (["s8[500,500]", "s8[500,500]"], "s8[500,500] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        (["f32[300000]"], "s8[300000] convert(p0)"),
        (["bf16[300000]", "bf16[300000]"], "pred[300000] compare(p0, p1), direction=LT, type=TOTALORDER"),
        (["bf16[300000]", "bf16[300000]", "bf16[300000]"], "bf16[300000] clamp(p0, p1, p2)"),
        (["f32[300000]"], "f32[300000] reduce-precision(p0), exponent_bits=5, mantissa_bits=10"),
        (["s32[300000]"], "s32[300000] count-leading-zeros(p0)"),
        (["f32[700,700]"], "f32[700,700] cholesky(p0), lower=true"),
        (["c64[512,512]"], "c64[512,512] fft(p0), fft_type=FFT, fft_length={512,512}"),
        (
            ["f32[100]", "s32[300000]"],
            "f32[300000] gather(p0, p1), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
            "index_vector_dim=1, slice_sizes={1}",
        ),
        (["f32[2000,1500]", "f32[]"], "f32[2000] reduce(p0, p1), dimensions={1}, to_apply=sum_f32"),
        (["s8[900,1000]", "s8[]"], "s8[1000] reduce(p0, p1), dimensions={0}, to_apply=sum_s8"),
        (["bf16[1000,1000]", "bf16[]"], "bf16[998,998] reduce-window(p0, p1), window={size=3x3}, to_apply=sum_bf16"),
        (
            ["bf16[4,64,64,16]", "bf16[3,3,16,16]"],
            "bf16[4,62,62,16] convolution(p0, p1), window={size=3x3}, dim_labels=b01f_01io->b01f",
        ),
        (
            ["f32[1,200,200,2]", "f32[24,24,2,2]"],
            "f32[1,177,177,2] convolution(p0, p1), window={size=24x24}, dim_labels=b01f_01io->b01f",
        ),
        (
            ["s32[1,100,100,2]", "s32[24,24,2,2]"],
            "s32[1,77,77,2] convolution(p0, p1), window={size=24x24}, dim_labels=b01f_01io->b01f",
        ),
        (
            ["f32[1,1,1000]", "f32[1,1,2]"],
            "f32[1,1,3] convolution(p0, p1), window={size=2 stride=1000000 pad=0_2000000}, dim_labels=bf0_oi0->bf0",
        ),
        (
            ["f32[1000]", "f32[]"],
            "f32[3] reduce-window(p0, p1), window={size=2 stride=1000000 pad=0_2000000}, to_apply=sum_f32",
        ),
        (["f32[500000]", "f32[]"], "f32[250001] reduce-window(p0, p1), window={size=250000}, to_apply=sum_f32"),
        (
            ["f32[600000]", "f32[300000]", "f32[]"],
            "f32[600000] select-and-scatter(p0, p1, p2), window={size=2 stride=2}, select=ge, scatter=sum_f32",
        ),
        (["u64[2]"], "(u64[2], u32[500000]) rng-bit-generator(p0), algorithm=rng_three_fry"),
        (["u64[3]"], "(u64[3], u8[500000]) rng-bit-generator(p0), algorithm=rng_philox"),
        (["u64[3]"], "(u64[3], u64[500000]) rng-bit-generator(p0), algorithm=rng_default"),
        (["bf16[]", "bf16[]"], "bf16[500000] rng(p0, p1), distribution=rng_uniform"),
        (["s8[]", "s8[]"], "s8[500000] rng(p0, p1), distribution=rng_uniform"),
        (["f32[300000]", "u32[300000]"], "s8[300000] stochastic-convert(p0, p1)"),
        (["s8[300000]", "s8[300000]"], "s8[300000] mulhi(p0, p1)"),
        (
            ["bf16[1000,300]", "bf16[300]", "bf16[300]"],
            "(bf16[1000,300], bf16[300], bf16[300]) batch-norm-training(p0, p1, p2), epsilon=0.1, feature_index=1",
        ),
        (
            ["f32[1000,300]", "f32[300]", "f32[300]", "f32[300]", "f32[1000,300]"],
            "(f32[1000,300], f32[300], f32[300]) batch-norm-grad(p0, p1, p2, p3, p4), epsilon=0.1, feature_index=1",
        ),
        (
            ["f32[600,300]", "f32[4,300,500]", "s32[4]"],
            "f32[600,500] ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
            "lhs_ragged_dims={0}, rhs_group_dims={0}",
        ),
        (
            ["f8e4m3fn[600,300]", "f8e4m3fn[500,300]", "f8e8m0fnu[600,1]", "f8e8m0fnu[1,1]"],
            "f32[600,500] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        ),
        (["f32[400,400]"], '(f32[400,400], f32[400]) custom-call(p0), custom_call_target="lapack_sgeqrf_ffi"'),
    ],
    ids=lambda value: re.findall(r"([a-z][\w-]*)\(", value)[0] if isinstance(value, str) else "",
)
def test_a_run_takes_no_more_than_was_estimated(peak: Peak, parameters: list[str], instruction: str) -> None:
    given = "".join(f"  p{n} = {shape} parameter({n})\n" for n, shape in enumerate(parameters))
    sums = "".join(
        f"sum_{t} {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT s = {t}[] add(a, b)\n}}\n\n"
        for t in ("f32", "s8", "bf16")
    )
    sums += (
        "ge {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = pred[] compare(a, b), direction=GE\n}\n\n"
    )
    module = parse(f"{sums}ENTRY e {{\n{given}  ROOT r = {instruction}\n}}\n")
    tracemalloc.reset_peak()
    run(module, seed=1)
    with pytest.raises(ExecutionError, match="--max-memory"):
        run(module, seed=1, max_memory=taken() - 1_000_000)


def test_windows_of_a_convolution_are_laid_out_a_block_at_a_time(peak: Peak) -> None:
    text = (
        "ENTRY e {\n  p = f32[1,300,300,2] parameter(0)\n  k = f32[24,24,2,2] parameter(1)\n"
        "  ROOT c = f32[1,277,277,2] convolution(p, k), window={size=24x24}, dim_labels=b01f_01io->b01f\n}\n"
    )
    tracemalloc.reset_peak()
    (result,) = run(parse(text), max_memory=100_000_000)  # all windows at one time take 350 MB
    assert taken() < 100_000_000 and result.shape == (1, 1, 277, 277, 2)


def test_making_random_inputs_takes_little_besides(peak: Peak) -> None:
    run(parse(PASSED_ON), num_partitions=8, max_memory=130_000_000)
    assert taken() < 140_000_000


@pytest.mark.parametrize(("element_type", "size"), [("f32", 4), ("s8", 1), ("pred", 1), ("c64", 8), ("bf16", 2)])
def test_random_arrays_are_made_in_blocks(peak: Peak, element_type: str, size: int) -> None:
    array = random_array(ArrayShape(element_type, (1_000_003,)), 3, np.random.default_rng(5))
    assert array.shape == (3, 1_000_003) and taken() < 3 * 1_000_003 * size + 16_000_000


def test_one_stream_of_random_numbers_whatever_the_blocks() -> None:
    for element_type, whole in (
        ("f64", np.random.default_rng(5).standard_normal(600_000)),
        ("s64", np.random.default_rng(5).integers(-9, 9, 600_000, endpoint=True)),
    ):
        assert (random_array(ArrayShape(element_type, (600_000,)), 1, np.random.default_rng(5))[0] == whole).all()


@pytest.mark.parametrize(("element_type", "dtype"), [("f32", np.float32), ("pred", np.uint8), ("s4", np.uint8)])
def test_an_input_that_shows_one_lane_is_not_copied(peak: Peak, element_type: str, dtype: Any) -> None:
    view = np.broadcast_to(np.zeros(1_000_000, dtype), (256, 1_000_000))
    (result,) = run(parse(f"ENTRY e {{ ROOT p = {element_type}[1000000] parameter(0) }}"), [view], 256)
    assert result.shape == (256, 1_000_000) and result.strides[0] == 0
    assert taken() < 20_000_000


def test_collapse() -> None:
    view = np.broadcast_to(np.arange(3), (4, 3))
    assert collapse(view).shape == (1, 3)
    same = np.tile(np.array([1, np.nan], np.float32), (3000, 1))
    assert collapse(same).shape == (1, 2) and collapse(np.asfortranarray(same)).shape == (1, 2)
    for lane in (1, 2, 1500, 2999):
        other = same.copy()
        other[lane, 0] = 2
        assert collapse(other) is other
    assert collapse(np.array([[0.0], [-0.0]])).shape == (2, 1)
    assert collapse(np.zeros((5, 0))).shape == (1, 0) and collapse(np.full(5, 1j)).shape == (1,)


def test_comparing_lanes_takes_little(peak: Peak) -> None:
    columns = np.zeros((1_000_000, 32), np.uint8).T
    before = taken()
    assert collapse(columns).shape == (1, 1_000_000)
    assert taken() - before < 8_000_000


MANY = 10**15
HUGE: dict[str, tuple[str, int, str]] = {
    "parameter": (f"  ROOT p = f32[{MANY}] parameter(0)\n", 2, "parameter 'p'"),
    "iota": (f"  ROOT i = f32[{MANY}] iota(), iota_dimension=0\n", 2, "iota 'i'"),
    "negate": (
        f"  c = f32[] constant(1)\n  b = f32[{MANY}] broadcast(c), dimensions={{}}\n  ROOT n = f32[{MANY}] negate(b)\n",
        4,
        "negate 'n'",
    ),
    "pad": (f"  c = f32[] constant(1)\n  d = f32[1] constant({{1}})\n"
            f"  ROOT q = f32[{MANY + 1}] pad(d, c), padding=0_{MANY}\n", 4, "pad 'q'"),
    "dot": (
        "  p = f32[1000000] parameter(0)\n"
        "  ROOT d = f32[1000000,1000000] dot(p, p), lhs_contracting_dims={}, rhs_contracting_dims={}\n",
        3,
        "dot 'd'",
    ),
    "elided": (f"  ROOT c = f32[{MANY}] constant({{...}})\n", 2, "constant 'c'"),
}  # fmt: skip


@pytest.mark.parametrize("case", HUGE)
def test_what_is_too_large_is_named_with_its_line(peak: Peak, case: str) -> None:
    body, line, what = HUGE[case]
    started = time.monotonic()
    with pytest.raises(ExecutionError, match=f"bytes of memory, the most at {what}, more than the") as caught:
        run(parse("ENTRY e {\n" + body + "}\n", "m.hlo"), fill_elided="random")
    assert str(caught.value).startswith(f"m.hlo:{line}:")
    assert "hint: a larger --max-memory lets it run" in str(caught.value)
    assert taken() < 20_000_000 and time.monotonic() - started < 5


def test_the_place_is_inside_the_computation_that_needs_it() -> None:
    text = COUNTDOWN.replace(
        "one = s32[] constant(1)", "i = s32[9000] broadcast(n), dimensions={}\n  k = s32[9000] not(i)"
    )
    text = text.replace("m = s32[] subtract(n, one)", "o = s32[1] slice(k), slice={[0:1]}\n  m = s32[] reshape(o)")
    with pytest.raises(ExecutionError, match="the most at not 'k'") as caught:
        run(parse(text, "m.hlo"), max_memory=50_000)
    assert str(caught.value).startswith("m.hlo:7:3: error: ")


def test_an_input_that_shows_one_number_many_times(peak: Peak) -> None:
    view = np.broadcast_to(np.float32(0), (2, MANY))
    with pytest.raises(ExecutionError, match=r"the arguments take at least .* parameter 'p'"):
        run(parse(f"ENTRY e {{ ROOT p = f32[{MANY}] parameter(0) }}"), [view], 2)
    assert taken() < 1_000_000


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (f"f32[{10**30}]", "past 64 bits"),
        ("f32[" + ",".join(["1000000"] * 20) + "]", "larger than an array can be"),
        ("f32[0,4611686018427387904,4]", "larger than an array can be"),
        ("f32[" + ",".join(["1"] * 70) + "]", "does not support 70 dimensions"),
    ],
)
def test_shapes_that_no_array_has(shape: str, message: str) -> None:
    for instruction in ("parameter(0)", "iota(), iota_dimension=1"):
        with pytest.raises(HloSyntaxError, match=message) as caught:
            run(parse(f"ENTRY e {{\n  ROOT p = {shape} {instruction}\n}}\n"), max_memory=None)
        assert caught.value.line == 2


def test_no_elements_take_no_memory() -> None:
    text = f"ENTRY e {{ ROOT i = f32[0,{MANY}] iota(), iota_dimension=1 }}"
    assert run_text(text)[0].shape == (1, 0, MANY)


def test_an_iota_is_one_line() -> None:
    text = "ENTRY e {\n  i = s32[100000,100000] iota(), iota_dimension=1\n  ROOT s = s32[1,2] slice(i), slice={[8:9],[5:7]}\n}"
    assert run_text(text, max_memory=3_000_000)[0].tolist() == [[[5, 6]]]
    with pytest.raises(ExecutionError, match="the most at iota 'i'"):
        run_text(text, max_memory=1_000_000)


def test_memory_that_is_not_there_is_said_with_the_line() -> None:
    text = f"ENTRY e {{\n  ROOT i = f32[{MANY}] iota(), iota_dimension=0\n}}\n"
    with pytest.raises(ExecutionError, match="no memory is left for iota") as caught:
        run(parse(text, "m.hlo"), max_memory=None)
    assert str(caught.value).startswith("m.hlo:2:8: error: ")


@pytest.mark.parametrize("devices", [10**8, 10**12])
def test_grids_that_are_too_large(peak: Peak, devices: int) -> None:
    text = (
        "ENTRY e {\n  p = f32[] parameter(0)\n  ROOT r = f32[] collective-permute(p), source_target_pairs={{0,1}}\n}\n"
    )
    with pytest.raises(ExecutionError, match=f"the ids of {devices:,} devices take"):
        run(parse(text), replica_count=devices)
    assert taken() < 1_000_000


def test_elided_constants_get_the_same_values_whatever_is_traced() -> None:
    text = "ENTRY e {\n  a = f32[20] constant({...})\n  ROOT b = f32[20] constant({...})\n}\n"
    first = run(parse(text), fill_elided="random", seed=3)[0]
    again = run(parse(text), fill_elided="random", seed=3, trace=("a", lambda *_: None))[0]
    assert first.tolist() == again.tolist()


def test_the_hint_names_the_option() -> None:
    with pytest.raises(HloSyntaxError) as caught:
        run(parse("ENTRY e { ROOT c = f32[20] constant({...}) }"))
    assert "--fill-elided random" in caught.value.hint and 'fill_elided="random"' in caught.value.hint


@pytest.mark.parametrize(("count", "names"), [(1, "1 input, p0$"), (2, "2 inputs, p0 to p1$")])
def test_the_names_of_inputs(count: int, names: str) -> None:
    lines = [f"  p{i} = f32[] parameter({i})\n" for i in range(count)]
    with pytest.raises(ExecutionError, match="no input p0: the entry takes " + names):
        run(parse("ENTRY e {\n" + "".join(lines) + "}\n"), {})


# ---- steps -----------------------------------------------------------------------------------------------------------

ENDLESS = """body {
  s = s32[] parameter(0)
  ROOT r = s32[] negate(s)
}
always {
  s = s32[] parameter(0)
  ROOT t = pred[] constant(true)
}
"""
OUTER = """outer {
  s = s32[] parameter(0)
  ROOT v = s32[] while(s), condition=%s, body=body
}
never {
  s = s32[] parameter(0)
  ROOT t = pred[] constant(false)
}
ENTRY e {
  s = s32[] parameter(0)
  ROOT w = s32[] while(s), condition=always, body=outer
}
"""


def test_an_endless_loop_is_named_with_its_line() -> None:
    text = ENDLESS + "ENTRY e {\n  s = s32[] parameter(0)\n  ROOT w = s32[] while(s), condition=always, body=body\n}\n"
    with pytest.raises(ExecutionError) as caught:
        run(parse(text, "m.hlo"), max_steps=1000)
    assert str(caught.value) == (
        "m.hlo:11:8: error: more than 1000 instructions were run (--max-steps), at iteration 500 of while 'w'\n"
        "    ROOT w = s32[] while(s), condition=always, body=body\n         ^\n"
        "  hint: a loop may not end; a larger --max-steps lets it run on"
    )


def test_the_loop_that_does_not_end_is_named_not_one_inside_or_around_it() -> None:
    never = OUTER.index("never {")
    text = ENDLESS + OUTER[never : OUTER.index("ENTRY")] + OUTER[:never] + OUTER[OUTER.index("ENTRY") :]
    for condition, name in (("always", "v"), ("never", "w")):
        for steps in range(1000, 1010):
            with pytest.raises(ExecutionError, match=f"of while '{name}'"):
                run(parse(text % condition), max_steps=steps)


def test_without_a_loop_the_computation_is_named() -> None:
    text = "f {\n  x = f32[] parameter(0)\n  ROOT y = f32[] negate(x)\n}\n"
    text += "ENTRY e {\n  x = f32[] parameter(0)\n  ROOT y = f32[] call(x), to_apply=f\n}\n"
    with pytest.raises(ExecutionError, match=r"m.hlo:1:1: error: more than 1 .*, at computation 'f'"):
        run(parse(text, "m.hlo"), max_steps=1)
    with pytest.raises(ExecutionError, match=r"<string>:1:\d+: error: more than 1 instructions"):
        run(parse("f32[] add(f32[] x, f32[] negate(f32[] x))"), max_steps=1)


def test_in_a_reducer_the_instruction_is_named_that_applies_it() -> None:
    text = "f {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  c = s32[] add(a, b)\n  ROOT d = s32[] negate(c)\n}\n"
    text += "ENTRY e {\n  x = s32[64] parameter(0)\n  z = s32[] constant(0)\n"
    text += "  ROOT r = s32[] reduce(x, z), dimensions={0}, to_apply=f\n}\n"
    message = r"m.hlo:10:8: error: more than 5 .*, at reduce 'r', which applies a computation to elements"
    with pytest.raises(ExecutionError, match=message):
        run(parse(text, "m.hlo"), max_steps=5)


def test_computations_that_call_each_other() -> None:
    body = "{{\n  x = f32[] parameter(0)\n  ROOT r = f32[] call(x), to_apply={}\n}}\n"
    text = "a " + body.format("b") + "b " + body.format("a") + "ENTRY e " + body.format("a")
    with pytest.raises(HloSyntaxError, match="undefined computation 'b'") as caught:
        run(parse(text))
    assert caught.value.line == 3


@pytest.mark.parametrize(
    "body",
    [
        "  ROOT r = f32[] negate(f32[2] parameter(0))\n",
        "  p = f32[] parameter(1)\n",
        "  p = f32[] parameter(0)\n  q = f32[] parameter(0)\n",
        "  p = f32[] parameter(0)\n  ROOT r = f32[2] tuple(p)\n",
        "  p = f32[2] parameter(0)\n  ROOT r = f32[3] reshape(p)\n",
        "  p = f32[2] parameter(0)\n  ROOT r = f32[2] slice(p), slice={[0:3]}\n",
        "  p = f32[2] parameter(0)\n  ROOT r = f32[2] add(p)\n",
        "  p = f32[2] parameter(0)\n  ROOT r = f32[2] get-tuple-element(p), index=0\n",
        "",
    ],
)
def test_contradictions_are_errors_with_a_place(body: str) -> None:
    with pytest.raises(HloError, match=r"<string>:\d+:\d+: error: "):
        run(parse("ENTRY e {\n" + body + "}\n"))


# ---- what no back end gives a meaning --------------------------------------------------------------------------------

GATHER = "offset_dims={1,2}, collapsed_slice_dims={%s}, start_index_map={%s}, index_vector_dim=1, slice_sizes={%s}"
BATCHES = "operand_batching_dims={0}, start_indices_batching_dims={%s}"
SCATTER = (
    "update_window_dims={%s}, inserted_window_dims={%s}, scatter_dims_to_operand_dims={%s}, index_vector_dim=1, "
    "input_batching_dims={0}, scatter_indices_batching_dims={%s}, to_apply=%s"
)
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CONVOLUTION = "window={size=2}, dim_labels=b0f_0io->b0f"
SUM = "{n} {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT s = {t}[] add(a, b)\n}}\n"
SUMS = SUM.format(n="sum", t="f32") + SUM.format(n="vectors", t="f32").replace("[]", "[2]")
MEANINGLESS: list[tuple[str, str, str]] = [
    # operands, instruction, message: XLA's shape inference takes all of them, its importer or its CPU refuses them
    ("f32[4,2,2], s32[3,1]", f"f32[3,2,2] gather(p0, p1), {GATHER % ('', '1', '1,2,2')}, {BATCHES % 0}",
     "the batching dimensions 0 of f32[4,2,2] and 0 of s32[3,1] have different sizes"),
    ("f32[4,2,2], s32[4,1]", f"f32[4,2,2] gather(p0, p1), {GATHER % ('', '1', '1,2,2')}, {BATCHES % 1}",
     "the dimension 1 in start_indices_batching_dims is index_vector_dim"),
    ("f32[4,2,2], s32[4]", f"f32[4,2,2] gather(p0, p1), {GATHER % ('', '1', '1,2,2')}, {BATCHES % 1}",
     "the dimension 1 in start_indices_batching_dims is index_vector_dim"),
    ("f32[4,2,2], s32[4,1]", f"f32[4,2,2] gather(p0, p1), {GATHER % ('', '0', '1,2,2')}, {BATCHES % 0}",
     "the dimension 0 stands in both operand_batching_dims and start_index_map"),
    ("f32[4,2,2,2], s32[4,1]", f"f32[4,2,2] gather(p0, p1), {GATHER % ('0', '1', '1,2,2,2')}, {BATCHES % 0}",
     "the dimension 0 stands in both operand_batching_dims and collapsed_slice_dims"),
    ("f32[4,2,2], s32[4,1]", f"f32[4,2,2] gather(p0, p1), {GATHER % ('0', '0', '0,2,2')}",
     "the slice size of dimension 0, which is dropped, is 0"),
    ("f32[4,2], s32[3,1], f32[3,2]", f"f32[4,2] scatter(p0, p1, p2), {SCATTER % ('1', '', '1', '0', 'sum')}",
     "the batching dimensions 0 of f32[4,2] and 0 of s32[3,1] have different sizes"),
    ("f32[4,2], s32[4,1], f32[4,2]", f"f32[4,2] scatter(p0, p1, p2), {SCATTER % ('1', '', '1', '1', 'sum')}",
     "the dimension 1 in scatter_indices_batching_dims is index_vector_dim"),
    ("f32[4,2], s32[4,1], f32[4,2]", f"f32[4,2] scatter(p0, p1, p2), {SCATTER % ('1', '', '0', '0', 'sum')}",
     "the dimension 0 stands in both input_batching_dims and scatter_dims_to_operand_dims"),
    ("f32[4,2], s32[4,1], f32[4]", f"f32[4,2] scatter(p0, p1, p2), {SCATTER % ('', '0', '1', '0', 'sum')}",
     "the dimension 0 stands in both input_batching_dims and inserted_window_dims"),
    ("c64[4]", "c64[4] fft(p0), fft_type=FFT, fft_length={3}", "fft_length={3} are not the last sizes {4} of c64[4]"),
    ("c64[3,4]", "c64[3,4] fft(p0), fft_type=IFFT, fft_length={2,4}", "fft_length={2,4} are not the last sizes {3,4}"),
    ("f32[4]", "c64[2] fft(p0), fft_type=RFFT, fft_length={3}", "fft_length does not fit"),
    ("c64[3]", "f32[6] fft(p0), fft_type=IRFFT, fft_length={6}", "asks for 4 numbers in the last dimension of c64[3]"),
    ("u64[1,4,1], s32[2,1,1]", f"u64[1,3,1] convolution(p0, p1), {CONVOLUTION}", "holds the other's numbers"),
    ("s4[1,4,1], u4[2,1,1]", f"s4[1,3,1] convolution(p0, p1), {CONVOLUTION}", "holds the other's numbers"),
    ("f32[1,4,1], s32[2,1,1]", f"f32[1,3,1] convolution(p0, p1), {CONVOLUTION}", "holds the other's numbers"),
    ("s32[2,2], f32[2,2]", f"s32[2,2] dot(p0, p1), {DOT}", "products of f32[2,2] are no elements of the result"),
    ("pred[2,2], s4[2,2]", f"pred[2,2] dot(p0, p1), {DOT}", "products of s4[2,2] are no elements of the result"),
    ("f32[2], f32[2]", "f32[2] shift-left(p0, p1)", "takes integer elements, not f32[2]"),
    ("c64[2], c64[2]", "c64[2] shift-right-arithmetic(p0, p1)", "takes integer elements, not c64[2]"),
    ("bf16[2], bf16[2]", "bf16[2] shift-right-logical(p0, p1)", "takes integer elements, not bf16[2]"),
    ("c64[2], c64[2]", "c64[2] remainder(p0, p1)", "takes real elements, not c64[2]"),
    ("c64[3]", "(c64[2], s32[2]) topk(p0), k=2, largest=true", "takes real elements, not c64[3]"),
    ("s32[2], s32[2]", "pred[2] compare(p0, p1), direction=LT, type=TOTALORDER", "by type=SIGNED, not TOTALORDER"),
    ("f8e8m0fnu[2]", "f8e8m0fnu[2] reduce-precision(p0), exponent_bits=5, mantissa_bits=3", "elements of f8e8m0fnu"),
    ("s4[2]", "u8[2] bitcast(p0)", "s4[2] and u8[2] do not have the same number of bits"),
    ("s32[2]", "s32[2] all-reduce(p0), replica_groups={}, to_apply=sum", "elements of s32[2] are not what"),
    ("f32[2]", "f32[2] all-reduce(p0), replica_groups={}, to_apply=vectors", "has to take and to return scalars"),
    ("s32[2]", "s32[2] reduce-scatter(p0), dimensions={0}, replica_groups={}, to_apply=sum", "elements of s32[2] are"),
    ("f32[2,3]", "f32[2,3]{0,0} negate(p0)", "the layout {0,0} does not name each dimension of f32[2,3] once"),
    ("f32[2,3]{7,9}", "f32[2,3] negate(p0)", "the layout {7,9} does not name each dimension of f32[2,3] once"),
]  # fmt: skip


@pytest.mark.parametrize(("operands", "instruction", "message"), MEANINGLESS)
def test_what_shape_inference_lets_pass(operands: str, instruction: str, message: str) -> None:
    shapes = operands.split(", ")
    given = "".join(f"  p{number} = {shape} parameter({number})\n" for number, shape in enumerate(shapes))
    with pytest.raises(HloSyntaxError) as caught:
        run(parse(f"{SUMS}ENTRY e {{\n{given}  ROOT r = {instruction}\n}}\n"))
    assert message in caught.value.message
    assert caught.value.line == (12 if "{7,9}" in operands else 12 + len(shapes))


def test_batches_of_a_gather_in_any_order() -> None:
    text = (
        "ENTRY e {\n  p = s32[2,3,4] parameter(0)\n  i = s32[1,4,2] parameter(1)\n"
        "  ROOT g = s32[4,2] gather(p, i), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, "
        "operand_batching_dims={0,2}, start_indices_batching_dims={2,1}, index_vector_dim=0, slice_sizes={1,1,1}\n}\n"
    )
    p, i = np.arange(24, dtype=np.int32).reshape(2, 3, 4), np.array([[[0, 1], [2, 0], [1, 1], [2, 2]]], np.int32)
    expected = [[int(p[b, i[0, a, b], a]) for b in range(2)] for a in range(4)]
    assert run_text(text, p, i)[0][0].tolist() == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("  ROOT q = f32[4] negate(p)\n", "negate: the shape stated is f32[4]"),
        ("  q = f32[2]{3} negate(p)\n  ROOT r = f32[2] negate(p)\n", "the layout {3}"),
        ("  ROOT q = f32[2] shift-left(p, p)\n", "takes integer elements"),
    ],
)
def test_a_computation_that_nothing_calls_is_looked_at(body: str, message: str) -> None:
    text = "unused {\n  p = f32[2] parameter(0)\n" + body + "}\n" + PASSED_ON
    with pytest.raises(HloSyntaxError) as caught:
        run(parse(text))
    assert message in caught.value.message and caught.value.line == 3


def test_a_computation_that_nothing_calls_may_have_opcodes_that_do_not_run() -> None:
    text = 'unused {\n  ROOT c = f32[<=2] custom-call(), custom_call_target="t"\n}\n'
    assert run_text(text + "ENTRY e { ROOT p = s32[] constant(3) }")[0].tolist() == [3]


def test_the_size_of_a_dimension() -> None:
    text = "ENTRY e {\n  p = f32[2,5] parameter(0)\n  ROOT s = s32[] get-dimension-size(p), dimensions={1}\n}\n"
    assert run_text(text, np.zeros((2, 5), np.float32))[0].tolist() == [5]


# ---- masks -----------------------------------------------------------------------------------------------------------


def test_traces_say_which_devices_are_there() -> None:
    seen: list[tuple[str, Any]] = []

    def callback(instruction: Instruction, value: Any, active: Any) -> None:
        seen.append((instruction.name, None if active is None else active.tolist()))

    text = UNDER_PREDICATE.format(collective="add(x, x)")
    x = np.float32(1)
    run_text(text, np.array([True, False, True]), x, partitions=3, trace=("^(x|r)$", callback))
    yes, no = [True, False, True], [False, True, False]
    assert sorted(seen, key=str) == sorted(
        [("x", None), ("x", yes), ("r", yes), ("x", no), ("r", no), ("r", None)], key=str
    )
    seen.clear()
    run_text(COUNTDOWN, np.array([2, 1, 0], np.int32), partitions=3, trace=("^u$", callback))
    assert seen == [("u", [True, True, False]), ("u", [True, False, False])]


LOOP_WITH = """HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
body {{
  s = (s32[], f32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] subtract(n, one)
  y = f32[] {collective}
  ROOT r = (s32[], f32[]) tuple(m, y)
}}
cond {{
  s = (s32[], f32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  z = s32[] constant(0)
  ROOT c = pred[] compare(n, z), direction=GT
}}
ENTRY e {{
  n = s32[] parameter(0)
  x = f32[] parameter(1)
  t = (s32[], f32[]) tuple(n, x)
  w = (s32[], f32[]) while(t), condition=cond, body=body
  ROOT r = f32[] get-tuple-element(w), index=1
}}
"""


def test_collectives_in_a_loop_that_groups_leave_one_after_the_other() -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    text = LOOP_WITH.format(collective="all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add")
    (result,) = run_text(text, np.array([1, 1, 3, 3], np.int32), x, replicas=4)
    assert result.tolist() == [3, 3, 28, 28]
    with pytest.raises(ExecutionError, match="devices 2 do, 3 do not") as caught:
        run_text(text, np.array([1, 1, 3, 2], np.int32), x, replicas=4)
    assert str(caught.value).startswith("<string>:13:3: error: ")


def test_permutes_in_a_loop_that_axes_leave_one_after_the_other() -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    text = LOOP_WITH.format(collective="collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}")
    (result,) = run_text(text, np.array([0, 0, 1, 1], np.int32), x, replicas=2, partitions=2)
    assert result.tolist() == [1, 2, 4, 3]
    with pytest.raises(ExecutionError, match="devices 0 do, 1 do not"):
        run_text(text, np.array([1, 0, 1, 1], np.int32), x, replicas=2, partitions=2)


@pytest.mark.parametrize(
    "collective",
    [
        "all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add",
        "collective-broadcast(x), replica_groups={{0,1},{2,3}}",
        "collective-permute(x), source_target_pairs={{0,1}}",
        "negate(x)\n  s = (f32[], f32[]) collective-permute-start(x), source_target_pairs={{0,1}}\n"
        "  ROOT d = f32[] collective-permute-done(s)",
        "negate(x)\n  s = f32[] all-reduce-start(x), replica_groups={{0,1},{2,3}}, to_apply=add\n"
        "  ROOT d = f32[] all-reduce-done(s)",
    ],
)
def test_every_collective_needs_its_whole_group(collective: str) -> None:
    text = UNDER_PREDICATE.format(collective=collective)
    if "ROOT d" in text:
        text = text.replace("ROOT r = f32[] negate(x)\n  s", "q = f32[] negate(x)\n  s")
    x = np.array([1, 2, 3, 4], np.float32)
    for present in ([True, False, False, False], [False, True, True, True]):
        with pytest.raises(ExecutionError, match="only a part of a group"):
            run_text(text, np.array(present), x, replicas=4)
    run_text(text, np.array([True] * 4), x, replicas=4)
    run_text(text, np.array([False] * 4), x, replicas=4)
    run_text(text, True, np.float32(1), replicas=4)
