"""Shapes inferred and checked, against XLA's answers (fixtures/shape_inference.json) and against plain arithmetic."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_cp2ag.ir.attributes import PaddingConfig, ReplicaGroupList, SliceRanges
from hlo_cp2ag.ir.module import Computation
from hlo_cp2ag.ir.shape import ArrayShape, Shape, compatible, parse_shape
from hlo_cp2ag.ir.shape_inference import ShapeInferenceError, check_shape, infer_shape
from hlo_cp2ag.text.opcodes import BASE_OPCODES, opcode_spec
from hlo_cp2ag.text.parser import parse
from hlo_cp2ag.text.values import ValueTextError, parse_attribute_value
from tests.corpus import corpus_modules, fixture_modules, ident, read
from tests.xla.judge import Judge, available

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = json.loads((ROOT / "fixtures" / "shape_inference.json").read_text())
NO = ("refused", "aborts")


def _questions() -> ModuleType:
    path = ROOT / "fixtures" / "programs" / "make_shape_inference.py"
    spec = importlib.util.spec_from_file_location("make_shape_inference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks its own module up
    spec.loader.exec_module(module)
    return module


questions = _questions()

INFERS_OTHERWISE = {
    "opt-barrier((f32[4]{0:S(1)}, s32[]))": "XLA's parser fails on every opt-barrier without a shape",
    "opt-barrier(f32[4,4]{0,1})": "as above",
    "opt-barrier(token[])": "as above",
    "reduce-window(f32[8], s32[8], f32[], s32[]), window={size=2}, "
    "to_apply=(f32[], s32[], f32[], s32[]) -> (f32[], s32[])": "XLA's parser looks at two operands alone",
    "reduce-window(f32[8], f32[8], f32[], f32[]), window={size=2}, "
    "to_apply=(f32[], f32[], f32[], f32[]) -> (f32[], f32[])": "as above",
    "scan(f32[?], f32[]), dimensions={0}, num_carries=1, "
    "to_apply=(f32[], f32[]) -> (f32[], f32[])": "XLA makes it an array of size -9223372036854775808",
}
CHECKS_OTHERWISE = {
    "f32[] after-all(token[])": "XLA's parser does not read this opcode's shape",
    "f32[4] collective-permute-start(f32[4]), source_target_pairs={{0,1}}": "XLA's own dumps hold starts of arrays",
    "f32[5] add-dependency(f32[4], token[])": "as above",
    "(f32[5], u32[], token[]) send(f32[4], token[]), channel_id=1": "as above",
    "(f32[4], token[]) send(f32[4], token[]), channel_id=1": "as above",
    "(f32[4], f32[]) infeed(token[])": "as above, but for the data",
    "f32[] outfeed(f32[4], token[]), outfeed_shape=f32[4]": "as above",
    "f32[4,4] bitcast(f32[15])": "asked by the verifier only when it looks at layouts",
    "s16[16] bitcast(f32[16])": "as above",
    "f32[2] all-gather(f32[1]), dimensions={0}, replica_groups={{0},{1}}": "XLA takes any multiple for groups of one",
    "f32[4] fusion(f32[4], f32[4]), kind=kLoop, calls=(f32[4]) -> f32[4]": "an operand that nothing takes",
    "f32[4] sort(f32[4]), dimensions={-1}, to_apply=(f32[], f32[]) -> pred[]": "no such dimension",
    "f32[2,4] broadcast(f32[2,2]), dimensions={0,0}": "two dimensions cannot go to one",
}


def parts(question: object) -> tuple[list[Shape], dict[str, object], dict[str, tuple[list[Shape], Shape]]]:
    """Operands, attributes and called computations of a question."""
    q = question
    return (
        [parse_shape(shape) for shape in q.operands],  # type: ignore[attr-defined]
        {name: parse_attribute_value(name, text, q.opcode) for name, text in q.attributes.items()},  # type: ignore[attr-defined]
        {
            name: ([parse_shape(shape) for shape in parameters], parse_shape(result))
            for name, (parameters, result) in q.called.items()  # type: ignore[attr-defined]
        },
    )


def our_inference(text: str) -> str:
    q = questions.read(text)
    try:
        return infer_shape(q.opcode, *parts(q)).to_text()
    except ValueTextError:
        return "refused"
    except ShapeInferenceError as error:
        assert error.message.startswith(f"{q.opcode}: ") and len(error.message) < 300
        return "refused"


def our_check(text: str) -> str:
    q = questions.read(text)
    operands, attributes, called = parts(q)
    everybody = 2 if attributes.get("replica_groups") == ReplicaGroupList() else None
    try:
        check_shape(q.opcode, parse_shape(q.stated), operands, attributes, called, group_size=everybody)
    except ShapeInferenceError as error:
        assert error.message.startswith(f"{q.opcode}: ") and len(error.message) < 300
        return "refused"
    return "ok"


def by_opcode(kind: str) -> Mapping[str, Sequence[str]]:
    found = defaultdict(list)
    for text in ANSWERS[kind]:
        found[questions.read(text).opcode].append(text)
    return dict(sorted(found.items()))


INFER, CHECK = by_opcode("infer"), by_opcode("check")


# ---- XLA's answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", INFER)
def test_infers_what_xla_infers(opcode: str) -> None:
    for text in INFER[opcode]:
        expected = "refused" if ANSWERS["infer"][text] in NO else ANSWERS["infer"][text]
        assert (our_inference(text) == expected) != (text in INFERS_OTHERWISE), f"{text}: XLA makes it {expected}"


@pytest.mark.parametrize("opcode", CHECK)
def test_checks_what_xla_checks(opcode: str) -> None:
    for text in CHECK[opcode]:
        expected = "refused" if ANSWERS["check"][text] in NO else "ok"
        assert (our_check(text) == expected) != (text in CHECKS_OTHERWISE), f"{text}: XLA says {expected}"


def test_known_differences_are_asked() -> None:
    assert INFERS_OTHERWISE.keys() <= ANSWERS["infer"].keys()
    assert CHECKS_OTHERWISE.keys() <= ANSWERS["check"].keys()


def test_every_opcode_that_may_leave_its_shape_out_is_asked_both_ways() -> None:
    answers = {(questions.read(text).opcode, answer in NO) for text, answer in ANSWERS["infer"].items()}
    never_refused = {"after-all", "tuple"}
    for opcode in BASE_OPCODES:
        spec = opcode_spec(opcode)
        if spec is not None and spec.infers_shape:
            assert (opcode, False) in answers, opcode
            assert (opcode, True) in answers or opcode in never_refused, opcode


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["infer", "check"])
def test_xla_still_answers_so(kind: str) -> None:
    reason = available()
    if reason:
        pytest.skip(reason)
    ask = questions.ask_infer if kind == "infer" else questions.ask_check
    with Judge() as judge:
        assert {text: ask(judge, text) for text in ANSWERS[kind]} == ANSWERS[kind]


# ---- real modules ----------------------------------------------------------------------------------------------------


def program(computation: Computation) -> tuple[list[Shape], Shape]:
    numbered = {}
    for instruction in computation:
        if instruction.opcode == "parameter":
            span = instruction.body.operands_span
            numbered[int(instruction.module.source.text[span.start : span.end])] = instruction.shape
    return [shape for _, shape in sorted(numbered.items())], computation.root.shape


def check_module(text: str) -> None:
    """Check every shape, and infer those that follow."""
    module = parse(text)
    programs = {computation.name: program(computation) for computation in module.computations}
    for computation in module.computations:
        for instruction in computation:
            if instruction.opcode not in BASE_OPCODES or instruction.opcode in ("constant", "parameter"):
                continue
            attributes = dict(instruction.attributes)
            called = {}
            for name, value in attributes.items():
                if name in questions.COMPUTATIONS:
                    called[name] = programs[str(value)]
                elif name == questions.BRANCHES:
                    assert isinstance(value, tuple)
                    called.update({f"{name}[{i}]": programs[one] for i, one in enumerate(value)})
            operands = [operand.shape for operand in instruction.operands]
            check_shape(instruction.opcode, instruction.shape, operands, attributes, called)
            spec = opcode_spec(instruction.opcode)
            products = ("dot", "convolution", "ragged-dot", "scaled-dot")
            if spec is not None and spec.infers_shape and instruction.opcode not in ("broadcast", *products):
                assert compatible(infer_shape(instruction.opcode, operands, attributes, called), instruction.shape)


def modules() -> list[object]:
    """Those whose operands and computations all have names and whose shapes do not contradict each other on purpose."""
    odd = ("inline_computation", "operand_is_an_instruction", "token_operand")
    mine = [pytest.param(path, id=ident(path)) for path in fixture_modules() if path.stem not in odd]
    rest = [path for path in corpus_modules(small_only=False) if path.parts[-2] != "xla_hlo"]
    return [*mine, *(pytest.param(path, id=ident(path), marks=pytest.mark.sweep) for path in rest)]


@pytest.mark.parametrize("path", modules())
def test_shapes_of_real_modules_go_together(path: Path) -> None:
    check_module(read(path))


# ---- by hand ---------------------------------------------------------------------------------------------------------


def shapes(*texts: str) -> list[Shape]:
    return [parse_shape(text) for text in texts]


def test_left_out_layouts_count_as_row_major_and_are_filled_in() -> None:
    assert infer_shape("add", shapes("f32[2,3]", "f32[2,3]{0,1}"), {}, {}).to_text() == "f32[2,3]{1,0}"
    assert infer_shape("tuple", shapes("f32[2,3]", "(s32[4], token[])"), {}, {}).to_text() == (
        "(f32[2,3]{1,0}, (s32[4]{0}, token[]))"
    )
    body = {"body": (shapes("f32[2,3]"), parse_shape("f32[2,3]"))}
    body["condition"] = (shapes("f32[2,3]"), parse_shape("pred[]"))
    assert infer_shape("while", shapes("f32[2,3]{0,1:S(1)}"), {}, body).to_text() == "f32[2,3]{0,1:S(1)}"


def test_message_in_the_users_words() -> None:
    with pytest.raises(ShapeInferenceError) as caught:
        infer_shape("add", shapes("f32[4]{0}", "f32[5]"), {}, {})
    assert str(caught.value) == caught.value.message == "add: the operands' shapes differ: f32[4] and f32[5]"
    with pytest.raises(ShapeInferenceError) as caught:
        check_shape("reshape", parse_shape("f32[21]"), shapes("f32[5,4]"), {}, {})
    assert caught.value.message == "reshape: f32[5,4] has 20 elements, f32[21] does not"


@pytest.mark.parametrize("opcode", ["constant", "parameter", "convert", "reshape", "bitcast", "custom-call", "made-up"])
def test_shapes_that_do_not_follow(opcode: str) -> None:
    with pytest.raises(ShapeInferenceError, match=f"^{opcode}: no result shape follows"):
        infer_shape(opcode, shapes("f32[4]"), {}, {})


@pytest.mark.parametrize("opcode", ["constant", "parameter", "custom-call"])
def test_any_shape_may_be_stated_where_nothing_follows(opcode: str) -> None:
    check_shape(opcode, parse_shape("(f32[4], u8[])"), shapes("f32[4]"), {}, {})


def test_missing_or_wrong_attributes_and_computations() -> None:
    for attributes in ({}, {"dimensions": 1}, {"dimensions": (1, 0, 2)}, {"dimensions": "{0,1}"}):
        with pytest.raises(ShapeInferenceError, match=r"^transpose: "):
            infer_shape("transpose", shapes("f32[4,5]"), attributes, {})
    with pytest.raises(ShapeInferenceError, match="needs the computation to_apply"):
        infer_shape("call", [], {}, {})
    with pytest.raises(ShapeInferenceError, match="needs the attribute padding"):
        infer_shape("pad", shapes("f32[4]", "f32[]"), {"padding": "0_0"}, {})
    assert infer_shape("map", shapes("f32[]"), {}, {"to_apply": (shapes("f32[]"), parse_shape("s8[]"))}).to_text() == (
        "s8[]"
    )


@pytest.mark.parametrize(
    ("groups", "channel", "global_ids", "grid", "result"),
    [
        ("{{0,1,2}}", None, False, None, "f32[6]{0}"),
        ("[2,3]<=[6]", None, False, None, "f32[6]{0}"),
        ("{}", None, False, None, None),
        ("{}", None, False, 4, "f32[8]{0}"),
        ("{{0,1}}", 1, False, None, None),
        ("{{0,1}}", 1, False, 8, "f32[16]{0}"),
        ("{{0,1}}", 1, True, None, "f32[4]{0}"),
    ],
)
def test_size_of_a_group(
    groups: str, channel: int | None, global_ids: bool, grid: int | None, result: str | None
) -> None:
    attributes: dict[str, object] = {
        "dimensions": (0,),
        "replica_groups": parse_attribute_value("replica_groups", groups),
    }
    if channel is not None:
        attributes["channel_id"] = channel
        attributes["use_global_device_ids"] = global_ids
    if result is None:
        with pytest.raises(ShapeInferenceError, match="number of devices"):
            infer_shape("all-gather", shapes("f32[2]"), attributes, {}, group_size=grid)
        check_shape("all-gather", parse_shape("f32[14]"), shapes("f32[2]"), attributes, {}, group_size=grid)
        with pytest.raises(ShapeInferenceError):
            check_shape("all-gather", parse_shape("f32[15]"), shapes("f32[2]"), attributes, {}, group_size=grid)
    else:
        assert infer_shape("all-gather", shapes("f32[2]"), attributes, {}, group_size=grid).to_text() == result
        check_shape("all-gather", parse_shape(result), shapes("f32[2]"), attributes, {}, group_size=grid)


@pytest.mark.parametrize("text", ["f32[4]", "(f32[4], f32[4])", "f32[]", "token[]"])
def test_reduce_scatter_of_an_unknown_number_of_devices(text: str) -> None:
    attributes = {"dimensions": (0,), "replica_groups": ReplicaGroupList()}
    called = {"to_apply": (shapes("f32[]", "f32[]"), parse_shape("f32[]"))}
    if text == "f32[4]":
        check_shape("reduce-scatter", parse_shape(text), shapes("f32[12]"), attributes, called)
    else:
        with pytest.raises(ShapeInferenceError):
            check_shape("reduce-scatter", parse_shape(text), shapes("f32[12]"), attributes, called)


@pytest.mark.parametrize(
    ("opcode", "operand", "result"),
    [
        ("all-gather-done", "(f32[2], f32[4]{0:S(1)})", "f32[4]{0:S(1)}"),
        ("collective-permute-done", "(f32[2], f32[2], u32[], u32[])", "f32[2]{0}"),
        ("async-done", "((f32[2]), f32[3], u32[])", "f32[3]{0}"),
        ("async-update", "((f32[2]), f32[3], u32[])", "((f32[2]{0}), f32[3]{0}, u32[])"),
        ("all-reduce-done", "f32[2]", "f32[2]{0}"),
        ("copy-done", "(f32[2]{0:S(1)}, f32[2], u32[])", "f32[2]{0:S(1)}"),
        ("recv-done", "(f32[2], u32[], token[])", "(f32[2]{0}, token[])"),
        ("send-done", "(f32[2], u32[], token[])", "token[]"),
    ],
)
def test_ends_of_asynchronous_operations(opcode: str, operand: str, result: str) -> None:
    assert infer_shape(opcode, shapes(operand), {}, {}).to_text() == result
    check_shape(opcode, parse_shape(result), shapes(operand), {}, {})
    with pytest.raises(ShapeInferenceError):
        check_shape(opcode, parse_shape("s64[7]"), shapes(operand), {}, {})


def test_async_start() -> None:
    called = {"calls": (shapes("f32[2]"), parse_shape("f32[3]"))}
    check_shape("async-start", parse_shape("((f32[2]), f32[3], u32[])"), shapes("f32[2]"), {}, called)
    check_shape("async-start", parse_shape("((f32[2]), f32[3])"), shapes("f32[2]"), {}, {})
    for text in ("((f32[3]), f32[3], u32[])", "((f32[2]), f32[4], u32[])", "(f32[2], f32[3])", "((f32[2]))", "f32[3]"):
        with pytest.raises(ShapeInferenceError):
            check_shape("async-start", parse_shape(text), shapes("f32[2]"), {}, called)


def test_bitcasts_keep_their_memory_unless_tiles_pad_it() -> None:
    check_shape("bitcast", parse_shape("s8[4]{0:E(4)}"), shapes("s8[2]"), {}, {})
    check_shape("bitcast", parse_shape("s4[8]"), shapes("f32[2]"), {}, {})
    check_shape("bitcast", parse_shape("f32[15]{0:T(16)}"), shapes("f32[16]"), {}, {})
    with pytest.raises(ShapeInferenceError):
        check_shape("bitcast", parse_shape("s4[8]{0:E(4)}"), shapes("f32[2]"), {}, {})


ODD_SHAPES = st.sampled_from(
    [parse_shape(text) for text in ("f32[]", "s32[]", "pred[]", "f32[2,3]", "s32[0]", "c64[?,<=4]", "token[]", "()")]
    + [parse_shape(text) for text in ("(f32[2], u32[], token[])", "((f32[2]), s4[3]{0:E(4)})", "b(f32[2])", "opaque[]")]
)
ODD_ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            ("dimensions", "slice_sizes", "offset_dims"), st.lists(st.integers(-2, 3), max_size=3).map(tuple)
        ),
        **dict.fromkeys(("fft_length", "start_index_map", "lhs_batch_dims", "inserted_window_dims"), st.just((0,))),
        **dict.fromkeys(("collapsed_slice_dims", "update_window_dims", "scatter_dims_to_operand_dims"), st.just((1,))),
        **dict.fromkeys(("index", "k", "num_carries", "index_vector_dim", "feature_index"), st.integers(-2, 3)),
        "replica_groups": st.sampled_from([ReplicaGroupList(), ReplicaGroupList(((0, 1),)), ReplicaGroupList(((),))]),
        "slice": st.just(SliceRanges(((0, 1, 1),))),
        "padding": st.just(PaddingConfig(((0, 1, 1), (1, 1, 0)))),
        "fft_type": st.sampled_from(["FFT", "RFFT", "IRFFT"]),
        "window": st.just(parse_attribute_value("window", "{size=2x1}")),
        "dim_labels": st.just(parse_attribute_value("dim_labels", "bf_io->bf")),
        "outfeed_shape": ODD_SHAPES,
    },
)
ODD_CALLED = st.dictionaries(
    st.sampled_from((*questions.COMPUTATIONS, "branch_computations[0]")),
    st.tuples(st.lists(ODD_SHAPES, max_size=3), ODD_SHAPES),
)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(sorted(BASE_OPCODES)),
    st.lists(ODD_SHAPES, max_size=5),
    ODD_SHAPES,
    ODD_ATTRIBUTES,
    ODD_CALLED,
    st.sampled_from([None, 0, 2]),
)
def test_nothing_but_a_refusal_is_raised(
    opcode: str,
    operands: list[Shape],
    stated: Shape,
    attributes: dict[str, object],
    called: dict[str, tuple[list[Shape], Shape]],
    size: int | None,
) -> None:
    try:
        inferred = infer_shape(opcode, operands, attributes, called, group_size=size)
    except ShapeInferenceError as error:
        assert error.message.startswith(f"{opcode}: ")
    else:
        assert parse_shape(inferred.to_text()) == inferred
    with contextlib.suppress(ShapeInferenceError):
        check_shape(opcode, stated, operands, attributes, called, group_size=size)


# ---- against plain arithmetic ----------------------------------------------------------------------------------------

SIZES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
ORDERED = SIZES.flatmap(lambda sizes: st.tuples(st.just(sizes), st.permutations(range(len(sizes)))))


def f32(sizes: Sequence[int], order: Sequence[int] = ()) -> ArrayShape:
    layout = "{" + ",".join(map(str, order)) + "}" if order else ""
    shape = parse_shape(f"f32[{','.join(map(str, sizes))}]{layout}")
    assert isinstance(shape, ArrayShape)
    return shape


def array_of(shape: Shape) -> ArrayShape:
    assert isinstance(shape, ArrayShape)
    return shape


def sizes_of(shape: Shape) -> tuple[int, ...]:
    return array_of(shape).dimensions


@settings(deadline=None)
@given(ORDERED)
def test_elementwise(ordered: tuple[tuple[int, ...], list[int]]) -> None:
    sizes, order = ordered
    first, second = f32(sizes, order), f32(sizes)
    for result in (infer_shape("tanh", [first], {}, {}), infer_shape("add", [first, second], {}, {})):
        assert result.to_text() == first.to_text()
    check_shape("compare", parse_shape(first.to_text().replace("f32", "pred")), [first, second], {}, {})


@settings(deadline=None)
@given(SIZES, SIZES)
def test_two_operands_of_unequal_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    fits = len(left) == len(right) or not left or not right
    try:
        expected = np.broadcast_shapes(left, right)
    except ValueError:
        fits = False
    try:
        result = infer_shape("multiply", [f32(left), f32(right)], {}, {})
    except ShapeInferenceError:
        assert not fits
    else:
        assert fits and sizes_of(result) == expected


@settings(deadline=None)
@given(SIZES, st.lists(st.integers(-1, 3), max_size=3))
def test_broadcast_by_sizes(sizes: tuple[int, ...], new: list[int]) -> None:
    if min(new, default=0) < 0:
        with pytest.raises(ShapeInferenceError):
            infer_shape("broadcast", [f32(sizes)], {"dimensions": tuple(new)}, {})
    else:
        assert sizes_of(infer_shape("broadcast", [f32(sizes)], {"dimensions": tuple(new)}, {})) == (*new, *sizes)


@settings(deadline=None)
@given(SIZES.filter(len), st.data())
def test_broadcast_by_places(sizes: tuple[int, ...], data: st.DataObject) -> None:
    places = data.draw(st.permutations(range(len(sizes))))[: data.draw(st.integers(0, len(sizes)))]
    operand = [sizes[place] for place in places]
    check_shape("broadcast", f32(sizes), [f32(operand)], {"dimensions": tuple(places)}, {})
    if places:
        operand[0] += 1
        with pytest.raises(ShapeInferenceError):
            check_shape("broadcast", f32(sizes), [f32(operand)], {"dimensions": tuple(places)}, {})


@settings(deadline=None)
@given(SIZES, SIZES)
def test_reshape(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    if np.prod(before) == np.prod(after):
        check_shape("reshape", f32(after), [f32(before)], {}, {})
    else:
        with pytest.raises(ShapeInferenceError):
            check_shape("reshape", f32(after), [f32(before)], {}, {})


@settings(deadline=None)
@given(ORDERED, st.data())
def test_transpose_moves_no_bytes(ordered: tuple[tuple[int, ...], list[int]], data: st.DataObject) -> None:
    sizes, order = ordered
    permutation = data.draw(st.permutations(range(len(sizes))))
    result = array_of(infer_shape("transpose", [f32(sizes, order)], {"dimensions": tuple(permutation)}, {}))
    assert result.dimensions == np.zeros(sizes).transpose(permutation).shape
    if result.layout is not None:
        assert [permutation[d] for d in result.layout.minor_to_major] == order


@settings(deadline=None)
@given(SIZES, st.data())
def test_slice(sizes: tuple[int, ...], data: st.DataObject) -> None:
    ends = [data.draw(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 3))) for _ in sizes]
    ranges = SliceRanges(tuple(ends))
    fits = all(start <= limit <= size for (start, limit, _), size in zip(ends, sizes, strict=True))
    try:
        result = infer_shape("slice", [f32(sizes)], {"slice": ranges}, {})
    except ShapeInferenceError:
        assert not fits
    else:
        assert fits
        assert sizes_of(result) == np.zeros(sizes)[tuple(slice(*end) for end in ends)].shape


@settings(deadline=None)
@given(SIZES, st.data())
def test_pad(sizes: tuple[int, ...], data: st.DataObject) -> None:
    edge = st.integers(-3, 3)
    padding = [data.draw(st.tuples(edge, edge, st.integers(0, 2))) for _ in sizes]
    expected = [
        low + len(range(0, size + (size - 1) * between if size else 0, 1)) + high
        for size, (low, high, between) in zip(sizes, padding, strict=True)
    ]
    try:
        result = infer_shape("pad", [f32(sizes), f32(())], {"padding": PaddingConfig(tuple(padding))}, {})
    except ShapeInferenceError:
        assert min(expected) < 0
    else:
        assert list(sizes_of(result)) == expected


@settings(deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=4), st.integers(0, 3))
def test_concatenate(operands: list[tuple[int, ...]], along: int) -> None:
    try:
        expected = np.concatenate([np.zeros(sizes) for sizes in operands], along).shape
    except ValueError:
        with pytest.raises(ShapeInferenceError):
            infer_shape("concatenate", [f32(sizes) for sizes in operands], {"dimensions": (along,)}, {})
    else:
        result = infer_shape("concatenate", [f32(sizes) for sizes in operands], {"dimensions": (along,)}, {})
        assert sizes_of(result) == expected
