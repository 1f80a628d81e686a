# ruff: noqa: E501 (HLO lines)
"""Who meets in which mode: StableHLO's definitions of process groups, and what XLA's CPU backend really communicates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_cp2ag.engines.xla import run_on_xla
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.topology import ProcessGrid, group_mode, participants
from hlo_cp2ag.topology.group_modes import device_pairs
from tests.xla.judge import available

from .support import only, reduce

needs_xla = pytest.mark.skipif(available() is not None, reason=str(available()))

Process = tuple[int, int]


# ---- StableHLO's definitions, word for word --------------------------------------------------------------------------


def cross_replica(groups: list[list[int]], num_partitions: int) -> list[list[Process]]:
    return [[(r, p) for r in group] for group in groups for p in range(num_partitions)]


def cross_partition(groups: list[list[int]], num_replicas: int) -> list[list[Process]]:
    return [[(r, p) for p in group] for group in groups for r in range(num_replicas)]


def cross_replica_and_partition(groups: list[list[int]], num_partitions: int) -> list[list[Process]]:
    """As sets of processes; StableHLO goes through partitions first, XLA through replicas first, and XLA is right."""
    return [[(r, p) for r in group for p in range(num_partitions)] for group in groups]


def flattened_ids(groups: list[list[int]], num_partitions: int) -> list[list[Process]]:
    return [[(i // num_partitions, i % num_partitions) for i in group] for group in groups]


def processes(line: str, replicas: int, partitions: int) -> list[list[Process]]:
    found = participants(only(line), replicas, partitions)
    return [[divmod(device, partitions) for device in group] for group in found]


CROSS_REPLICA = "replica_groups={groups}"
CROSS_REPLICA_AND_PARTITION = "channel_id=1, replica_groups={groups}"
FLATTENED = "channel_id=1, replica_groups={groups}, use_global_device_ids=true"


def line(attributes: str, groups: list[list[int]]) -> str:
    text = "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"
    return reduce(attributes.replace("{groups}", text))


def test_the_examples_of_stablehlo() -> None:
    """The ones that its specification gives in full."""
    # cross_replica: replica_groups = [[0, 1], [2, 3]], num_partitions = 2
    assert processes(line(CROSS_REPLICA, [[0, 1], [2, 3]]), 4, 2) == [
        [(0, 0), (1, 0)],
        [(0, 1), (1, 1)],
        [(2, 0), (3, 0)],
        [(2, 1), (3, 1)],
    ]
    # cross_partition: partition_groups = [[0, 1]], num_replicas = 4
    found = processes("r = (f32[8], f32[8]) all-to-all(p, p), channel_id=1, replica_groups={{0,1}}", 4, 2)
    assert found == [[(0, 0), (0, 1)], [(1, 0), (1, 1)], [(2, 0), (2, 1)], [(3, 0), (3, 1)]]
    # cross_replica_and_partition: replica_groups = [[0, 1], [2, 3]], num_partitions = 2, as sets
    found = processes(line(CROSS_REPLICA_AND_PARTITION, [[0, 1], [2, 3]]), 4, 2)
    assert list(map(sorted, found)) == [[(0, 0), (0, 1), (1, 0), (1, 1)], [(2, 0), (2, 1), (3, 0), (3, 1)]]
    # flattened_ids: flattened_id_groups = [[0, 1, 2, 3], [4, 5, 6, 7]], num_replicas = 4, num_partitions = 2
    assert processes(line(FLATTENED, [[0, 1, 2, 3], [4, 5, 6, 7]]), 4, 2) == [
        [(0, 0), (0, 1), (1, 0), (1, 1)],
        [(2, 0), (2, 1), (3, 0), (3, 1)],
    ]


@pytest.mark.parametrize(("replicas", "partitions"), [(4, 2), (2, 4), (4, 1), (1, 4), (2, 2)])
def test_the_definitions(replicas: int, partitions: int) -> None:
    for groups in ([list(range(replicas))], [[r] for r in range(replicas)], [list(range(replicas))[::-1]]):
        assert processes(line(CROSS_REPLICA, groups), replicas, partitions) == cross_replica(groups, partitions)
        found = processes(line(CROSS_REPLICA_AND_PARTITION, groups), replicas, partitions)
        assert found == cross_replica_and_partition(groups, partitions)
    for groups in ([list(range(partitions))], [[p] for p in range(partitions)][::-1]):
        text = line("channel_id=3, replica_groups={groups}", groups).replace("all-reduce", "collective-broadcast")
        text = text.replace(", to_apply=add", "")
        assert processes(text, replicas, partitions) == cross_partition(groups, replicas)
    devices = replicas * partitions
    for groups in ([list(range(devices))], [[d] for d in range(devices)][::-1]):
        assert processes(line(FLATTENED, groups), replicas, partitions) == flattened_ids(groups, partitions)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("replica_groups={}", [[0, 3], [1, 4], [2, 5]]),  # all replicas, by partition
        ("", [[0, 3], [1, 4], [2, 5]]),
        ("channel_id=1, replica_groups={}", [[0, 1, 2, 3, 4, 5]]),
    ],
)
def test_empty_groups_are_filled_in(attributes: str, expected: list[list[int]]) -> None:
    assert participants(only(reduce(attributes)), 2, 3) == expected


def test_empty_groups_of_partitions_are_filled_in() -> None:
    line = "r = f32[8] collective-broadcast(p), channel_id=1, replica_groups={}"
    assert participants(only(line), 2, 3) == [[0, 1, 2], [3, 4, 5]]
    permute = "r = f32[8] collective-permute(p), channel_id=1, source_target_pairs={{0,1}}"
    assert participants(only(permute), 2, 3) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("all-gather(p), {}dimensions={{0}}", ("cross_replica", "cross_replica_and_partition", "flattened_id")),
        ("all-reduce(p), {}to_apply=add", ("cross_replica", "cross_replica_and_partition", "flattened_id")),
        ("reduce-scatter(p), {}dimensions={{0}}, to_apply=add",
         ("cross_replica", "cross_replica_and_partition", "flattened_id")),
        ("all-gather-start(p), {}dimensions={{0}}", ("cross_replica", "cross_replica_and_partition", "flattened_id")),
        ("all-to-all(p), {}dimensions={{0}}", ("cross_replica", "cross_partition", None)),
        ("ragged-all-to-all(p, p, p, p, p, p), {}replica_groups={{}}", ("cross_replica", "cross_partition", None)),
        ("collective-broadcast(p), {}replica_groups={{}}", ("cross_replica", "cross_partition", None)),
        ("collective-permute(p), {}source_target_pairs={{}}", ("cross_replica", "cross_partition", None)),
    ],
)  # fmt: skip
def test_modes(line: str, mode: tuple[str, str, str | None]) -> None:
    for attributes, expected in zip(
        ("", "channel_id=1, ", "channel_id=1, use_global_device_ids=true, "), mode, strict=True
    ):
        if expected is not None:
            assert group_mode(only(f"r = f32[8] {line.format(attributes)}")) == expected
    if mode[2] is not None:
        assert group_mode(only(f"r = f32[8] {line.format('channel_id=1, use_global_device_ids=false, ')}")) == mode[1]


@pytest.mark.parametrize(
    ("attributes", "message", "at"),
    [
        ("replica_groups={{0,1},{2,4}}", r"group id 4 is not among the 4 of the grid 4 x 2 \(cross_replica\)", "4}"),
        ("channel_id=1, replica_groups={{0,1},{2,-1}}", "group id -1 is not among the 4 of the grid 4 x 2", "-1"),
        (
            "channel_id=1, replica_groups={{0,8}}, use_global_device_ids=true",
            "group id 8 is not among the 8 of the",
            "8}",
        ),
        ("replica_groups={{0,1},{2,1}}", "group id 1 stands twice in replica_groups", "1}},"),
        ("replica_groups={{0,1},{}}", "replica_groups has an empty group", "{{0"),
        ("replica_groups=[2,4]<=[8]", "group id 4 is not among the 4 of the grid", "[2,4]"),
        ("channel_id=1, replica_groups={}, use_global_device_ids=true", "replica_groups must not be empty", "{}"),
        ("replica_groups={{0,1}}, use_global_device_ids=true", "use_global_device_ids needs a channel_id", "r ="),
    ],
)
def test_refusals(attributes: str, message: str, at: str) -> None:
    instruction = only(reduce(attributes))
    with pytest.raises(HloSyntaxError, match=message) as caught:
        participants(instruction, 4, 2)
    text = instruction.module.text.splitlines()[caught.value.line - 1]
    assert text[caught.value.column - 1 :].startswith(at)


def test_grids_without_devices() -> None:
    with pytest.raises(ValueError, match="0 x 2 has no devices"):
        participants(only(reduce("")), 0, 2)


def test_pairs() -> None:
    pairs = "source_target_pairs={{0,1},{1,0}}"
    by_replica = only(f"r = f32[8] collective-permute(p), {pairs}")
    by_partition = only(f"r = f32[8] collective-permute(p), channel_id=1, {pairs}")
    grid = ProcessGrid(2, 3)
    assert device_pairs(by_replica, grid) == ((0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2))
    assert device_pairs(by_partition, grid) == ((0, 1), (3, 4), (1, 0), (4, 3))
    assert device_pairs(by_partition, grid, "neuron") == ((0, 1), (1, 0))
    bad = only("r = f32[8] collective-permute(p), source_target_pairs={{0,1},{2,0}}")
    with pytest.raises(HloSyntaxError, match=r"the pair \{2,0\} names an id that is not among the 2 of the grid 2 x 3"):
        device_pairs(bad, grid)
    twice = only("r = f32[8] collective-permute(p), source_target_pairs={{0,1},{1,1}}")
    with pytest.raises(HloSyntaxError, match=r"the pair \{1,1\} repeats a source or target"):
        device_pairs(twice, grid)
    assert device_pairs(twice, ProcessGrid(2, 1), "neuron") == ((0, 1), (1, 1))
    in_place = only(
        "r = f32[8] collective-permute(p, p, i, i), source_target_pairs={{0,1},{1,1}}, slice_sizes={{4},{4}}"
    )
    assert device_pairs(in_place, ProcessGrid(2, 1)) == ((0, 1), (1, 1))


# ---- what XLA communicates -------------------------------------------------------------------------------------------

GATHERS = {
    # by grid: attributes, in which every group has two, four or eight members
    (4, 2): [
        ("replica_groups={{0,2},{3,1}}", 2),
        ("replica_groups={}", 4),
        ("channel_id=1, replica_groups={{0,2},{3,1}}", 4),
        ("channel_id=1, replica_groups={}", 8),
        ("channel_id=1, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true", 2),
        ("channel_id=1, replica_groups={{7,0,3,2},{4,1,6,5}}, use_global_device_ids=true", 4),
        ("channel_id=1, replica_groups=mesh['a'=2,'b'=4] {'b':(1)2}, use_global_device_ids=true", 2),
    ],
    (2, 4): [
        ("replica_groups={{1,0}}", 2),
        ("channel_id=1, replica_groups={{1},{0}}", 4),
        ("channel_id=1, replica_groups={{1,0}}", 8),
        ("channel_id=1, replica_groups=[2,4]<=[2,2,2]T(1,0,2), use_global_device_ids=true", 4),
    ],
    (1, 8): [
        ("channel_id=1, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true", 2),
        ("channel_id=1, replica_groups={{0}}", 8),
    ],
    (8, 1): [("replica_groups={{0,4},{1,5},{2,6},{3,7}}", 2), ("channel_id=1, replica_groups=[2,4]<=[8]", 4)],
}


def _gathered(text: str, replicas: int, partitions: int) -> list[list[int]]:
    """What each device holds after XLA has run a text on the devices' ids."""
    ids: Any = np.arange(replicas * partitions, dtype=np.int32).reshape(-1, 1)
    (run,) = run_on_xla([text], [ids], replicas, partitions)
    assert run.status == "ran", run.reason
    return [list(map(int, row)) for row in run.outputs[0].reshape(replicas * partitions, -1)]


@needs_xla
@pytest.mark.parametrize(("grid", "number"), [(grid, i) for grid, cases in GATHERS.items() for i in range(len(cases))])
def test_xla_gathers_from_the_participants(grid: tuple[int, int], number: int) -> None:
    attributes, size = GATHERS[grid][number]
    text = f"HloModule m\n\nENTRY e {{\n  p = s32[1] parameter(0)\n  ROOT r = s32[{size}] all-gather(p), {attributes}, dimensions={{0}}\n}}\n"
    held = _gathered(text, *grid)
    found = participants(only(reduce(attributes)), *grid)
    assert sorted(device for group in found for device in group) == list(range(8))
    for group in found:
        for device in group:
            assert held[device] == group


@needs_xla
@pytest.mark.parametrize(
    ("attributes", "pairs_of"),
    [
        ("source_target_pairs={{0,1},{1,3}}", "cross_replica"),
        ("channel_id=1, source_target_pairs={{0,1},{1,0}}", "cross_partition"),
    ],
)
def test_xla_permutes_by_the_pairs(attributes: str, pairs_of: str) -> None:
    text = f"HloModule m\n\nENTRY e {{\n  p = s32[1] parameter(0)\n  ROOT r = s32[1] collective-permute(p), {attributes}\n}}\n"
    ids: Any = np.arange(100, 108, dtype=np.int32).reshape(-1, 1)
    (run,) = run_on_xla([text], [ids], 4, 2)
    assert run.status == "ran", run.reason
    instruction = only(f"r = f32[8] collective-permute(p), {attributes}")
    assert group_mode(instruction) == pairs_of
    expected = dict.fromkeys(range(8), 0)
    expected.update({target: 100 + source for source, target in device_pairs(instruction, ProcessGrid(4, 2))})
    assert run.outputs[0].ravel().tolist() == list(expected.values())


@needs_xla
def test_xla_exchanges_partitions_in_each_replica() -> None:
    """all-to-all with a channel is cross-partition: member i of a group receives part i of each member."""
    text = """HloModule m

ENTRY e {
  p = s32[2] parameter(0)
  ROOT r = s32[2] all-to-all(p), channel_id=1, replica_groups={{2,0},{1,3}}, dimensions={0}
}
"""
    ids: Any = np.arange(16, dtype=np.int32).reshape(8, 2)
    (run,) = run_on_xla([text], [ids], 2, 4)
    assert run.status == "ran", run.reason
    line = "r = f32[8] all-to-all(p), channel_id=1, replica_groups={{2,0},{1,3}}, dimensions={0}"
    for group in participants(only(line), 2, 4):
        for place, device in enumerate(group):
            assert run.outputs[0][device].tolist() == [2 * member + place for member in group]
