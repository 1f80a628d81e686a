"""Collectives in all group modes, by hand; compared with XLA in test_corpus.py and test_differential.py."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.ir.source import HloSyntaxError

from .support import Array, array, one_op, run_text

REDUCERS = """add {
  a = %s parameter(0)
  b = %s parameter(1)
  ROOT s = %s add(a, b)
}
"""


def module(result: str, operand: str, body: str, element: str = "f32[]") -> str:
    reducer = REDUCERS % (element, element, element)
    return f"HloModule m\n{reducer}ENTRY e {{\n  p = {operand} parameter(0)\n  ROOT r = {result} {body}\n}}\n"


def run_one(text: str, x: Array, replicas: int, partitions: int, **options: Any) -> Array:
    return run_text(text, x, replicas=replicas, partitions=partitions, **options)[0]


GROUPS = {
    # mode: attributes, and the groups of devices on 2 replicas x 2 partitions
    "cross_replica": ("replica_groups={{0,1}}", [[0, 2], [1, 3]]),
    "cross_replica_reversed": ("replica_groups={{1,0}}", [[2, 0], [3, 1]]),
    "cross_replica_empty": ("replica_groups={}", [[0, 2], [1, 3]]),
    "both": ("channel_id=1, replica_groups={{1,0}}", [[2, 3, 0, 1]]),
    "both_empty": ("channel_id=1, replica_groups={}", [[0, 1, 2, 3]]),
    "both_apart": ("channel_id=1, replica_groups={{1},{0}}", [[2, 3], [0, 1]]),
    "flattened": ("channel_id=1, use_global_device_ids=true, replica_groups={{0,3},{2,1}}", [[0, 3], [2, 1]]),
    "iota": ("channel_id=1, use_global_device_ids=true, replica_groups=[2,2]<=[2,2]T(1,0)", [[0, 2], [1, 3]]),
    "mesh": ("channel_id=1, use_global_device_ids=true, replica_groups=mesh['a'=2,'b'=2] {'b'}", [[0, 1], [2, 3]]),
}


@pytest.mark.parametrize("mode", GROUPS)
def test_gather_reduce_scatter(mode: str) -> None:
    attributes, groups = GROUPS[mode]
    size = len(groups[0])
    x = np.arange(4 * 8, dtype=np.float32).reshape(4, 8) ** 2
    gather = module(f"f32[{8 * size}]", "f32[8]", f"all-gather(p), {attributes}, dimensions={{0}}")
    reduce = module("f32[8]", "f32[8]", f"all-reduce(p), {attributes}, to_apply=add")
    scatter = module(f"f32[{8 // size}]", "f32[8]", f"reduce-scatter(p), {attributes}, dimensions={{0}}, to_apply=add")
    gathered, total, parts = (run_one(text, x, 2, 2) for text in (gather, reduce, scatter))
    for group in groups:
        for place, device in enumerate(group):
            assert np.array_equal(gathered[device], np.concatenate([x[d] for d in group]))
            assert np.array_equal(total[device], x[group].sum(axis=0))
            assert np.array_equal(parts[device], np.split(x[group].sum(axis=0), size)[place])
    # The same where all devices agree.
    for text in (gather, reduce, scatter):
        assert np.array_equal(run_one(text, x[1], 2, 2), run_one(text, np.tile(x[1], (4, 1)), 2, 2))


PARTITION_GROUPS = {
    "cross_replica": ("replica_groups={{1,0}}", [[2, 0], [3, 1]]),
    "cross_partition": ("channel_id=1, replica_groups={{0,1}}", [[0, 1], [2, 3]]),
    "cross_partition_reversed": ("channel_id=1, replica_groups={{1,0}}", [[1, 0], [3, 2]]),
    "cross_partition_empty": ("channel_id=1, replica_groups={}", [[0, 1], [2, 3]]),
}


@pytest.mark.parametrize("mode", PARTITION_GROUPS)
def test_all_to_all_and_broadcast(mode: str) -> None:
    attributes, groups = PARTITION_GROUPS[mode]
    x = np.arange(4 * 6, dtype=np.int32).reshape(4, 2, 3)
    whole = module("s32[2,3]", "s32[2,3]", f"all-to-all(p), {attributes}, dimensions={{0}}", "s32[]")
    columns = module("s32[3,2]", "s32[3,2]", f"all-to-all(p), {attributes}, dimensions={{1}}", "s32[]")
    sent = module("s32[2,3]", "s32[2,3]", f"collective-broadcast(p), {attributes}", "s32[]")
    several = f"""HloModule m
ENTRY e {{
  p = s32[2,3] parameter(0)
  q = s32[2,3] add(p, p)
  ROOT r = (s32[2,3], s32[2,3]) all-to-all(p, q), {attributes}
}}
"""
    by_row, by_column, received = (
        run_one(whole, x, 2, 2),
        run_one(columns, x.swapaxes(1, 2), 2, 2),
        run_one(sent, x, 2, 2),
    )
    first, second = run_text(several, x, replicas=2, partitions=2)
    for group in groups:
        for place, device in enumerate(group):
            assert np.array_equal(by_row[device], x[group, place])
            assert np.array_equal(by_column[device], x[group, place].T)
            assert np.array_equal(received[device], x[group[0]])
            assert np.array_equal(first[device], x[group[0]] * (place + 1))
            assert np.array_equal(second[device], x[group[1]] * (place + 1))


def test_broadcast_leaves_zeros_where_no_group_is() -> None:
    text = module("f32[2]", "f32[2]", "collective-broadcast(p), replica_groups={{2,1}}")
    assert run_one(text, np.arange(8, dtype=np.float32).reshape(4, 2), 4, 1).tolist() == [
        [0, 0],
        [4, 5],
        [4, 5],
        [0, 0],
    ]
    assert run_one(text, np.ones(2, np.float32), 4, 1)[:, 0].tolist() == [0, 1, 1, 0]


def test_groups_of_different_sizes_can_reduce() -> None:
    text = module("f32[]", "f32[]", "all-reduce(p), replica_groups={{0},{3,1,2}}, to_apply=add")
    assert run_one(text, np.array([1, 2, 3, 4], np.float32), 4, 1).tolist() == [1, 9, 9, 9]
    assert run_one(text, np.float32(2), 4, 1).tolist() == [2, 6, 6, 6]


def test_any_reducer_does() -> None:
    text = """HloModule m
second {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  two = f32[] constant(2)
  c = f32[] multiply(a, two)
  ROOT s = f32[] add(c, b)
}
ENTRY e {
  p = f32[2] parameter(0)
  ROOT r = f32[2] all-reduce(p), replica_groups={{2,0,1}}, to_apply=second
}
"""
    x = np.array([[1, 2], [3, 5], [7, 11]], np.float32)
    right = (x[2] * 2 + x[0]) * 2 + x[1]
    assert np.array_equal(run_one(text, x, 3, 1), [right] * 3)


@pytest.mark.parametrize("element_type", ["f32", "f64", "bf16", "f16", "s8", "u4", "f8e5m2"])
def test_equal_devices_reduce_to_the_same_bits(element_type: str) -> None:
    x = array(element_type, np.random.default_rng(0).standard_normal(50) * 3)
    text = module(f"{element_type}[50]", f"{element_type}[50]", "all-reduce(p), replica_groups={}, to_apply=add",
                  f"{element_type}[]")  # fmt: skip
    # One that differs in a further parameter keeps its lane axis.
    t = element_type
    apart = text.replace("all-reduce(p)", "all-reduce(u)").replace(
        "  ROOT r =",
        f"  q = {t}[50] parameter(1)\n  s = {t}[50] subtract(q, q)\n  u = {t}[50] add(p, s)\n  ROOT r =",
    )
    different = array(element_type, np.arange(13)[:, None] * np.ones(50))
    assert run_one(text, x, 13, 1).tobytes() == run_text(apart, x, different, replicas=13)[0].tobytes()


# ---- permutes --------------------------------------------------------------------------------------------------------


def permuted(
    pairs: list[tuple[int, int]], channel: bool, x: Array, replicas: int, partitions: int, **options: Any
) -> Array:
    text = ",".join(f"{{{s},{t}}}" for s, t in pairs)
    attributes = ("channel_id=1, " if channel else "") + f"source_target_pairs={{{text}}}"
    return run_one(one_op("f32[2]", "collective-permute", ["f32[2]"], attributes), x, replicas, partitions, **options)


def test_permutes_follow_their_axis() -> None:
    x = np.arange(1, 17, dtype=np.float32).reshape(8, 2)
    by_replica = permuted([(0, 1), (1, 3)], False, x, 4, 2)
    by_partition = permuted([(0, 1), (1, 3)], True, x, 2, 4)
    for device in range(8):
        replica, partition = divmod(device, 2)
        source = {1: 0, 3: 1}.get(replica)
        assert by_replica[device].tolist() == ([0, 0] if source is None else x[source * 2 + partition].tolist())
        replica, partition = divmod(device, 4)
        source = {1: 0, 3: 1}.get(partition)
        assert by_partition[device].tolist() == ([0, 0] if source is None else x[replica * 4 + source].tolist())


def test_permutes_of_equal_values() -> None:
    x = np.array([1, 2], np.float32)
    assert permuted([(0, 1), (1, 0)], False, x, 2, 1).tolist() == [[1, 2], [1, 2]]
    assert permuted([(0, 1)], False, x, 2, 1).tolist() == [[0, 0], [1, 2]]
    assert permuted([], False, x, 2, 1).tolist() == [[0, 0], [0, 0]]


def test_permutes_of_several_operands_and_narrow_types() -> None:
    text = """HloModule m
ENTRY e {
  p = s4[2] parameter(0)
  q = f8e8m0fnu[] parameter(1)
  ROOT r = (s4[2], f8e8m0fnu[]) collective-permute(p, q), source_target_pairs={{1,0}}
}
"""
    p, q = array("s4", [[1, 2], [-8, 7]]), array("f8e8m0fnu", [1, 4])
    first, second = run_text(text, p, q, replicas=2)
    assert first.astype(int).tolist() == [[-8, 7], [0, 0]]
    assert second.view(np.uint8).tolist() == [129, 0]


def test_neuron_profile() -> None:
    """replica-id is the flat rank, pairs are flat ranks, and who is no target keeps its own; all else is as ever."""
    x = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    result = permuted([(0, 3), (3, 1)], True, x, 2, 2, profile="neuron")
    assert result.tolist() == [x[0].tolist(), x[3].tolist(), x[2].tolist(), x[0].tolist()]
    text = one_op("u32[]", "replica-id", [])
    assert run_text(text, replicas=2, partitions=2, profile="neuron")[0].tolist() == [0, 1, 2, 3]
    assert run_text(text, replicas=2, partitions=2)[0].tolist() == [0, 0, 1, 1]
    text = one_op("u32[]", "partition-id", [])
    for profile in ("xla", "neuron"):
        assert run_text(text, replicas=2, partitions=2, profile=profile)[0].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("source_target_pairs={{0,4}}", r"\{0,4\} names an id"),
        ("source_target_pairs={{0,1},{2,1}}", "repeats"),
        ("source_target_pairs={{0,1},{0,2}}", "repeats"),
        ("channel_id=1, source_target_pairs={{0,1}}", "names an id"),
    ],
)
def test_bad_pairs(attributes: str, message: str) -> None:
    with pytest.raises(HloSyntaxError, match=message):
        run_text(one_op("f32[]", "collective-permute", ["f32[]"], attributes), np.float32(1), replicas=4)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("all-reduce(p), replica_groups={{0,1},{1,2}}, to_apply=add", "stands twice"),
        ("all-reduce(p), replica_groups={{0,4}}, to_apply=add", "not among the 4"),
        ("all-reduce(p), replica_groups={{0,1}}, to_apply=add", "in none of the replica_groups"),
        ("all-reduce(p), replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add", "needs a channel_id"),
        (
            "all-reduce(p), channel_id=1, replica_groups={}, use_global_device_ids=true, to_apply=add",
            "must not be empty",
        ),
    ],
)
def test_bad_groups(body: str, message: str) -> None:
    with pytest.raises(HloSyntaxError, match=message):
        run_one(module("f32[]", "f32[]", body), np.float32(1), 4, 1)


# ---- pairs of start and done -----------------------------------------------------------------------------------------


def test_starts_and_dones() -> None:
    text = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
wrapped {
  x = f32[4] parameter(0)
  ROOT r = f32[2] reduce-scatter(x), replica_groups={{0,1}}, dimensions={0}, to_apply=add
}
ENTRY e {
  p = f32[4] parameter(0)
  gs = (f32[4], f32[8]) all-gather-start(p), replica_groups={{0,1}}, dimensions={0}
  g = f32[8] all-gather-done(gs)
  rs = f32[4] all-reduce-start(p), replica_groups={{0,1}}, to_apply=add
  r = f32[4] all-reduce-done(rs)
  ps = (f32[4], f32[4], u32[], u32[]) collective-permute-start(p), source_target_pairs={{0,1},{1,0}}
  c = f32[4] collective-permute-done(ps)
  as = ((f32[4]), f32[2], u32[]) async-start(p), calls=wrapped
  au = ((f32[4]), f32[2], u32[]) async-update(as)
  a = f32[2] async-done(au)
  ss = ((f32[4]), f32[2]) reduce-scatter-start(p), replica_groups={{0,1}}, dimensions={0}, to_apply=add
  s = f32[2] reduce-scatter-done(ss)
  cs = (f32[4], f32[4], u32[]) copy-start(p)
  k = f32[4] copy-done(cs)
  ROOT t = (f32[8], f32[4], f32[4], f32[2], f32[2], f32[4]) tuple(g, r, c, a, s, k)
}
"""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    gathered, total, swapped, part, sugared, copied = run_text(text, x, replicas=2)
    assert gathered.tolist() == [list(range(8))] * 2 and total.tolist() == [[4, 6, 8, 10]] * 2
    assert np.array_equal(swapped, x[::-1]) and np.array_equal(copied, x)
    assert part.tolist() == sugared.tolist() == [[4, 6], [8, 10]]


def test_cost_does_not_grow_with_devices_that_agree() -> None:
    pairs = ",".join(f"{{{d},{(d + 1) % 1024}}}" for d in range(1024))
    text = module("f32[100]", "f32[100]", f"collective-permute(p), source_target_pairs={{{pairs}}}")
    (result,) = run_text(text, np.ones(100, np.float32), replicas=1024, max_memory=5000)
    assert result.shape == (1024, 100) and result.strides[0] == 0


def test_ids_are_refused_where_lanes_are_elements() -> None:
    text = """HloModule m
odd {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = u32[] replica-id()
  c = f32[] convert(i)
  ROOT s = f32[] add(a, c)
}
ENTRY e {
  p = f32[] parameter(0)
  ROOT r = f32[] all-reduce(p), replica_groups={}, to_apply=odd
}
"""
    with pytest.raises(ExecutionError, match="applied to elements"):
        run_text(text, np.float32(1), replicas=2)


def test_grids_of_all_forms() -> None:
    for replicas, partitions in product((1, 2, 3), repeat=2):
        text = module("f32[]", "f32[]", "all-reduce(p), channel_id=1, replica_groups={}, to_apply=add")
        count = replicas * partitions
        assert (
            run_one(text, np.arange(count, dtype=np.float32), replicas, partitions).tolist()
            == [sum(range(count))] * count
        )


def test_all_to_all_refuses_other_counts() -> None:
    text = """HloModule m
ENTRY e {
  p = f32[2] parameter(0)
  ROOT r = (f32[2], f32[2]) all-to-all(p, p), replica_groups={}
}
"""
    with pytest.raises(HloSyntaxError, match="2 operands for a group of 3"):
        run_text(text, np.ones(2, np.float32), replicas=3)


def test_a_done_of_another_shape_is_refused() -> None:
    text = """HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  s = ((f32[4]), f32[4]) all-to-all-start(p), replica_groups={{0,1}}, dimensions={0}
  ROOT r = f32[5] all-to-all-done(s)
}
"""
    with pytest.raises(HloSyntaxError):
        run_text(text, np.ones(4, np.float32), replicas=2)
    ordered = run_text(text.replace("f32[5]", "f32[4]"), np.arange(8, dtype=np.float32).reshape(2, 4), replicas=2)
    assert ordered[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
