# ruff: noqa: E501 (HLO lines)
"""Neuron's envelope of a module, and of a def.json."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import hlo_cp2ag
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.topology import CCInfoError, collectives, get_replica_groups, module_cc_info, read_cc_info, write_cc_info
from tests.corpus import SHARED, needs_corpus, read

from .support import module, reduce

STRIDED = [[0, 4], [1, 5], [2, 6], [3, 7]]
PERMUTE = "cp = f32[8] collective-permute(p), source_target_pairs={{0,1},{1,0}}"


def topologies(*lines: str, header: str = "", **more: Any) -> list[Any]:
    found: list[Any] = write_cc_info(module(*lines, header=header), **more)["CCInfo"]["replica_groups"]
    return found


def test_the_worked_example_digit_for_digit() -> None:
    m = module(reduce("replica_groups=[4,2]<=[2,4]T(1,0)"), PERMUTE, header=", replica_count=8")
    assert json.dumps(write_cc_info(m, rank_world_size=8)) == (
        '{"CCInfo": {"replica_groups": [[[0, 4], [1, 5], [2, 6], [3, 7]]], '
        '"src_target_pairs": [[[0, 1], [1, 0]]], "#rank_world_size": 8}}'
    )
    assert list(write_cc_info(m)["CCInfo"]) == ["replica_groups", "src_target_pairs"]


def test_one_geometry_is_wrapped_not_transformed() -> None:
    m = module(reduce("channel_id=1, replica_groups={{7,3},{1,5},{2,6},{0,4}}, use_global_device_ids=true"))
    info = write_cc_info(m, 4, 2)["CCInfo"]
    assert info["replica_groups"] == [[[7, 3], [1, 5], [2, 6], [0, 4]]]
    assert info["replica_groups"][0] == get_replica_groups(m.entry.root)
    assert info["replica_groups"][0][1][0] == 1


def test_geometries_are_lists_order_included() -> None:
    """The same list in any form, of any opcode, mode and channel is one; another order is another one."""
    lines = [
        reduce("replica_groups={{0,4},{1,5},{2,6},{3,7}}", "a"),
        "b = f32[16] all-gather(p), channel_id=3, replica_groups=[4,2]<=[2,4]T(1,0), dimensions={0}, use_global_device_ids=true",
        reduce("replica_groups={{1,5},{0,4},{2,6},{3,7}}", "c"),
        reduce("replica_groups={{4,0},{1,5},{2,6},{3,7}}", "d"),
        reduce("channel_id=9, replica_groups=mesh['a'=2,'b'=4] {'a'}, use_global_device_ids=true", "f"),
        reduce("replica_groups={{1,5},{0,4},{2,6},{3,7}}", "g"),
    ]
    assert topologies(*lines, header=", replica_count=8") == [
        STRIDED,
        [[1, 5], [0, 4], [2, 6], [3, 7]],
        [[4, 0], [1, 5], [2, 6], [3, 7]],
    ]


def test_every_computation_is_scanned_in_text_order() -> None:
    inner = "f {\n  p = f32[8]{0} parameter(0)\n  ROOT r = f32[8]{0} all-reduce(p), replica_groups={{1,0}}, to_apply=add\n}\n"
    text = module(reduce("replica_groups={{0,1}}"), "ROOT c = f32[8] call(r), to_apply=f", computations=inner)
    assert write_cc_info(text)["CCInfo"]["replica_groups"] == [[[1, 0]], [[0, 1]]]


def test_one_list_of_pairs_a_permute() -> None:
    m = module(PERMUTE, PERMUTE.replace("cp", "cq"), "cr = f32[8] collective-permute(p), source_target_pairs={}")
    assert write_cc_info(m)["CCInfo"] == {
        "replica_groups": [],
        "src_target_pairs": [[[0, 1], [1, 0]], [[0, 1], [1, 0]], []],
    }


@pytest.mark.parametrize(
    ("attributes", "flat"),
    [
        ("replica_groups={{0,1}}", [[0, 2], [1, 3]]),
        ("replica_groups={}", [[0, 2], [1, 3]]),
        ("channel_id=1, replica_groups={{0},{1}}", [[0, 1], [2, 3]]),
        ("channel_id=1, replica_groups={}", [[0, 1, 2, 3]]),
    ],
)
def test_ids_that_are_no_device_ids(attributes: str, flat: list[list[int]]) -> None:
    with pytest.raises(HloSyntaxError) as caught:
        topologies(reduce(attributes), replica_count=2, num_partitions=2)
    assert re.fullmatch(
        r"the replica_groups of 'r' are no device ids: cross_replica(_and_partition)? on a grid 2 x 2",
        caught.value.message,
    )
    assert caught.value.hint == "--flatten writes device ids"
    assert topologies(reduce(attributes), replica_count=2, num_partitions=2, flatten=True) == [flat]


def test_pairs_that_are_no_device_ids() -> None:
    by_partition = module(PERMUTE.replace("(p), ", "(p), channel_id=1, "))
    with pytest.raises(HloSyntaxError, match="the source_target_pairs of 'cp' are no device ids: cross_partition"):
        write_cc_info(by_partition, 2, 2)
    flat = write_cc_info(by_partition, 2, 2, flatten=True)["CCInfo"]["src_target_pairs"]
    assert flat == [[[0, 1], [2, 3], [1, 0], [3, 2]]]
    assert write_cc_info(by_partition, 2, 2, profile="neuron")["CCInfo"]["src_target_pairs"] == [[[0, 1], [1, 0]]]
    assert write_cc_info(by_partition, 1, 4)["CCInfo"]["src_target_pairs"] == [[[0, 1], [1, 0]]]


def test_one_axis_alone_may_hold_no_device_ids_either() -> None:
    """{{0}} of replicas joins all partitions of replica 0: the device list is another one."""
    with pytest.raises(HloSyntaxError, match="no device ids: cross_replica_and_partition on a grid 1 x 4"):
        topologies(reduce("channel_id=1, replica_groups={{0}}"), num_partitions=4)
    assert topologies(reduce("channel_id=1, replica_groups={{0}}"), num_partitions=4, flatten=True) == [[[0, 1, 2, 3]]]


def test_empty_groups_stay_empty_unless_flattened() -> None:
    assert topologies(reduce("replica_groups={}"), replica_count=4) == [[]]
    assert topologies(reduce("replica_groups={}"), replica_count=4, flatten=True) == [[[0, 1, 2, 3]]]


def test_grids() -> None:
    with pytest.raises(HloSyntaxError, match="group id 4 is not among the 2 of the grid 2 x 1"):
        topologies(reduce("replica_groups={{0,4}}"), header=", replica_count=2")
    with pytest.raises(HloSyntaxError, match="group id 4 is not among the 1 of the grid 1 x 8"):
        topologies(reduce("replica_groups={{0,4}}"), header=", num_partitions=8")
    with pytest.raises(HloSyntaxError, match="device ids need a grid"):
        topologies(reduce("replica_groups={{0,4}}"), flatten=True)
    with pytest.raises(HloSyntaxError, match="group id -1 is below 0"):
        topologies(reduce("replica_groups={{0,-1}}"))
    with pytest.raises(HloSyntaxError, match=r"the pair \{0,-1\} names an id below 0"):
        write_cc_info(module(PERMUTE.replace("{0,1}", "{0,-1}")))
    with pytest.raises(ValueError, match="replica_count must be at least 1, not 0"):
        topologies(reduce(""), replica_count=0)
    with pytest.raises(ValueError, match="#rank_world_size must be at least 1, not 0"):
        topologies(reduce(""), rank_world_size=0)


def test_asynchronous_collectives_count_once() -> None:
    """A start that calls a computation has its collective in there; one with groups of its own is the collective."""
    inner = "f {\n  p = f32[8]{0} parameter(0)\n  ROOT rs = f32[4]{0} reduce-scatter(p), replica_groups={{1,0}}, dimensions={0}, to_apply=add\n}\n"
    m = module(
        "s = ((f32[8]), f32[4]) reduce-scatter-start(p), calls=f",
        "d = f32[4] reduce-scatter-done(s)",
        "g = (f32[8], f32[16]) all-gather-start(p), replica_groups={{0,1}}, dimensions={0}",
        "h = f32[16] all-gather-done(g)",
        computations=inner,
    )
    assert [found.name for found in collectives(m)] == ["rs", "g"]
    assert write_cc_info(m)["CCInfo"]["replica_groups"] == [[[1, 0]], [[0, 1]]]


def test_an_operand_that_is_a_collective() -> None:
    """It has no name to speak of; leaving it out would be wrong."""
    m = module("s = f32[8] add(f32[8] all-reduce(p), p)")
    with pytest.raises(HloSyntaxError, match="this all-reduce is written out in place as an operand"):
        write_cc_info(m)


def test_names_and_strings_are_no_collectives() -> None:
    m = module(
        'n = f32[8] negate(p), metadata={op_name="x all-reduce(p), replica_groups={{0,9}}"}',
        "all-gather = f32[8] abs(n)",
        "ROOT r = f32[8] add(all-gather, n) // all-reduce(p), replica_groups={{0,9}}",
    )
    assert collectives(m) == []


@needs_corpus
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hlo_llama31_405b_bf16_64x8.hlo", [[list(range(512))]]),
        ("hlo_llama3_8b_cp_bf16_1x4.hlo", [[[0, 1, 2, 3]]]),
        (
            "hlo_mixtral_8x7b_bf16_2x8.hlo",
            [
                [list(range(16))],
                [list(range(8)), list(range(8, 16))],
                [[i, i + 8] for i in range(8)],
            ],
        ),
        ("vit__training__module_2323.jit_train_step.before_optimizations.txt", []),
    ],
)
def test_geometries_of_real_models(name: str, expected: list[list[list[int]]]) -> None:
    path = SHARED / "models" / name
    if not path.is_file():
        pytest.skip(f"{name} is not there")
    text = read(path)
    m = hlo_cp2ag.parse(text)
    counts = [int(n) for n in re.findall(r"^HloModule.*\b(?:replica_count|num_partitions)=(\d+)", text)]
    assert module_cc_info(m).to_json()["CCInfo"]["replica_groups"] == expected, counts
    # as many as there are lines with groups and lines with pairs
    written = len(re.findall(r"^ .*, (?:replica_groups|source_target_pairs)=", text, re.MULTILINE))
    assert len(collectives(m)) == written


# ---- a def.json ------------------------------------------------------------------------------------------------------


def info(**keys: Any) -> dict[str, Any]:
    return {"CCInfo": keys}


def test_what_is_written_is_read() -> None:
    m = module(reduce("replica_groups=[4,2]<=[2,4]T(1,0)"), PERMUTE)
    assert read_cc_info(json.loads(json.dumps(write_cc_info(m, rank_world_size=8)))) == module_cc_info(
        m, rank_world_size=8
    )


def test_flat_pairs_are_one_permute() -> None:
    flat = read_cc_info(info(src_target_pairs=[[0, 1], [1, 0]]))
    assert flat == read_cc_info(info(src_target_pairs=[[[0, 1], [1, 0]]]))
    assert read_cc_info(info(src_target_pairs=[[]])).src_target_pairs == ((),)


PATH = ("CCInfo", "replica_groups")
PAIRS = ("CCInfo", "src_target_pairs")


@pytest.mark.parametrize(
    ("value", "message", "path"),
    [
        ([], "a def.json is an object, not a list", ()),
        ({}, 'there is no "CCInfo" here', ()),
        ({"CCInfo": None}, "CCInfo is an object, not null", ("CCInfo",)),
        (info(), "CCInfo has none of replica_groups, src_target_pairs, #rank_world_size", ("CCInfo",)),
        (info(replica_groups=3), "replica_groups is a list of topologies, not 3", PATH),
        (info(replica_groups=[3]), "a topology is a list of groups, not 3", (*PATH, 0)),
        (info(replica_groups=[[0, 4]]), "a group is a list of ranks, not 0", (*PATH, 0, 0)),
        (info(replica_groups=[[[0, 4], 1]]), "a group is a list of ranks, not 1", (*PATH, 0, 1)),
        (info(replica_groups=[[[0, [4]]]]), "a rank is an integer, not a list", (*PATH, 0, 0, 1)),
        (info(replica_groups=[[[0, "4"]]]), "a rank is an integer, not a string", (*PATH, 0, 0, 1)),
        (info(replica_groups=[[[0, 1.0]]]), "a rank is an integer, not 1.0", (*PATH, 0, 0, 1)),
        (info(replica_groups=[[[0, True]]]), "a rank is an integer, not true", (*PATH, 0, 0, 1)),
        (info(replica_groups=[[[0, -1]]]), "a rank is at least 0, not -1", (*PATH, 0, 0, 1)),
        (info(src_target_pairs=7), "src_target_pairs is a list of pairs or of lists of pairs, not 7", PAIRS),
        (info(src_target_pairs=[7]), "a permute is a list of pairs, not 7", (*PAIRS, 0)),
        (info(src_target_pairs=[[0, 1], [1]]), "a pair is [source, target], not a list of 1", (*PAIRS, 1)),
        (info(src_target_pairs=[[0, 1], [[1, 0]]]), "a pair is [source, target], not a list of 1", (*PAIRS, 1)),
        (info(src_target_pairs=[[[0, 1, 2]]]), "a pair is [source, target], not a list of 3", (*PAIRS, 0, 0)),
        (info(src_target_pairs=[[[0, 1], 2]]), "a pair is a list [source, target], not 2", (*PAIRS, 0, 1)),
        (info(src_target_pairs=[[[0, {}]]]), "a rank is an integer, not an object", (*PAIRS, 0, 0, 1)),
        (info(**{"#rank_world_size": "8"}), "#rank_world_size is an integer, not a string", ("CCInfo", "#rank_world_size")),
        (info(**{"#rank_world_size": -8}), "#rank_world_size is -8", ("CCInfo", "#rank_world_size")),
    ],
)  # fmt: skip
def test_what_is_no_cc_info(value: Any, message: str, path: tuple[str | int, ...]) -> None:
    with pytest.raises(CCInfoError) as caught:
        read_cc_info(value)
    assert (caught.value.message, caught.value.path) == (message, path)
