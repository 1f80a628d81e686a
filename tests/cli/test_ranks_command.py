# ruff: noqa: E501 (HLO lines)
"""`cp2ag ranks`: what each command writes, where, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_cp2ag.cli.json_file import place
from tests.corpus import TOP

from .in_process import cp2ag

MODULE = """\
HloModule m, replica_count=8

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  ar = f32[8]{0} all-reduce(p), channel_id=7, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true, to_apply=add
  ag = f32[16]{0} all-gather(ar), replica_groups={{0,4},{1,5},{2,6},{3,7}}, dimensions={0}
  ROOT cp = f32[16]{0} collective-permute(ag), source_target_pairs={{0,1},{1,0}}
}
"""
TWO_AXES = """\
HloModule two, replica_count=2, num_partitions=2

ENTRY e {
  p = f32[8]{0} parameter(0)
  bc = f32[8]{0} collective-broadcast(p), replica_groups={{1,0}}
  ROOT cp = f32[8]{0} collective-permute(bc), channel_id=1, source_target_pairs={{0,1},{1,0}}
}
"""
CCINFO = '{"CCInfo": {"replica_groups": [[[0, 4], [1, 5], [2, 6], [3, 7]]], "src_target_pairs": [[[0, 1], [1, 0]]], "#rank_world_size": 8}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.hlo").write_text(MODULE)
    (tmp_path / "two.hlo").write_text(TWO_AXES)
    (tmp_path / "def.json").write_text(CCINFO)
    return tmp_path


# ---- groups ----------------------------------------------------------------------------------------------------------


def test_groups_are_lines_of_fields(folder: Path) -> None:
    outcome = cp2ag("ranks", "groups", "m.hlo", cwd=folder)
    assert (outcome.code, outcome.stderr) == (0, "")
    devices = "{{(0,0),(4,0)},{(1,0),(5,0)},{(2,0),(6,0)},{(3,0),(7,0)}}"
    assert [line.split("\t") for line in outcome.text.splitlines()] == [
        [
            "m.hlo:11:3",
            "ar",
            "all-reduce",
            "flattened_id",
            "7",
            "{{0,4},{1,5},{2,6},{3,7}}",
            "[4,2]<=[2,4]T(1,0)",
            devices,
        ],
        [
            "m.hlo:12:3",
            "ag",
            "all-gather",
            "cross_replica",
            "-",
            "{{0,4},{1,5},{2,6},{3,7}}",
            "[4,2]<=[2,4]T(1,0)",
            devices,
        ],
        [
            "m.hlo:13:3",
            "cp",
            "collective-permute",
            "cross_replica",
            "-",
            "{{0,1},{1,0}}",
            "-",
            "{(0,0)>(1,0),(1,0)>(0,0)}",
        ],
    ]


def test_groups_on_two_axes(folder: Path) -> None:
    outcome = cp2ag("ranks", "groups", "-", stdin=TWO_AXES.encode())
    fields = [line.split("\t") for line in outcome.text.splitlines()]
    assert fields[0][0] == "<stdin>:5:3"
    assert fields[0][3:] == ["cross_replica", "-", "{{1,0}}", "-", "{{(1,0),(0,0)},{(1,1),(0,1)}}"]
    assert fields[1][3:] == [
        "cross_partition",
        "1",
        "{{0,1},{1,0}}",
        "-",
        "{(0,0)>(0,1),(1,0)>(1,1),(0,1)>(0,0),(1,1)>(1,0)}",
    ]


def test_groups_as_json(folder: Path) -> None:
    outcome = cp2ag("ranks", "groups", "two.hlo", "--json", cwd=folder)
    report = json.loads(outcome.text)
    assert (outcome.code, report["input"], report["name"]) == (0, "two.hlo", "two")
    assert report["configuration"]["replica_count"] == {"value": 2, "source": "header"}
    assert report["collectives"] == [
        {
            "name": "bc", "opcode": "collective-broadcast", "computation": "e", "line": 5, "column": 3,
            "mode": "cross_replica", "channel": None, "replica_groups": [[1, 0]], "source_target_pairs": None,
            "iota": None, "devices": [[[1, 0], [0, 0]], [[1, 1], [0, 1]]], "device_ids": [[2, 0], [3, 1]],
        },
        {
            "name": "cp", "opcode": "collective-permute", "computation": "e", "line": 6, "column": 3,
            "mode": "cross_partition", "channel": 1, "replica_groups": None, "source_target_pairs": [[0, 1], [1, 0]],
            "iota": None, "devices": [[[0, 0], [0, 1]], [[1, 0], [1, 1]], [[0, 1], [0, 0]], [[1, 1], [1, 0]]],
            "device_ids": [[0, 1], [2, 3], [1, 0], [3, 2]],
        },
    ]  # fmt: skip


def test_profile_neuron_takes_pairs_as_ranks(folder: Path) -> None:
    outcome = cp2ag("ranks", "groups", "two.hlo", "--profile", "neuron", cwd=folder)
    assert outcome.text.splitlines()[1].split("\t")[3:] == [
        "flattened_id",
        "1",
        "{{0,1},{1,0}}",
        "-",
        "{(0,0)>(0,1),(0,1)>(0,0)}",
    ]


def test_the_grid_is_that_of_rewrite(folder: Path) -> None:
    """Flags over header over evidence; what is a guess is said, and --strict-grid refuses it."""
    bare = MODULE.replace(", replica_count=8", "")
    outcome = cp2ag("ranks", "groups", "--json", stdin=bare.encode())
    assert json.loads(outcome.text)["configuration"]["replica_count"] == {"value": 8, "source": "collectives"}
    pairs = "HloModule m\n\nENTRY e {\n  p = f32[8] parameter(0)\n  ROOT c = f32[8] collective-permute(p), source_target_pairs={{0,3}}\n}\n"
    outcome = cp2ag("ranks", "groups", stdin=pairs.encode())
    assert outcome.code == 0
    assert outcome.stderr.startswith("<stdin>:1:1: warning: replica_count 4 is only the least that the pairs allow")
    assert cp2ag("ranks", "groups", "-q", stdin=pairs.encode()).stderr == ""
    outcome = cp2ag("ranks", "groups", "--strict-grid", stdin=pairs.encode())
    assert (outcome.code, outcome.stdout) == (2, b"")
    outcome = cp2ag("ranks", "groups", "m.hlo", cwd=folder, env={"CP2AG_REPLICA_COUNT": "16"})
    assert "--replica-count 16 contradicts the header's replica_count=8" in outcome.stderr


def test_ids_out_of_the_grid(folder: Path) -> None:
    for name in (["groups"], ["ccinfo"], ["core", "0"]):
        outcome = cp2ag("ranks", *name, "m.hlo", "--replica-count", "5", "-q", cwd=folder)
        assert (outcome.code, outcome.stdout) == (2, b"")
        assert outcome.stderr == (
            "m.hlo:11:62: error: group id 5 is not among the 5 of the grid 5 x 1 (flattened_id)\n"
            "    ar = f32[8]{0} all-reduce(p), channel_id=7, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true, to_apply=add\n"
            "                                                               ^\n"
            "  hint: the grid is replica_count 5 (flag), num_partitions 1 (default); --replica-count and --num-partitions set it\n"
        )


def test_bad_attributes_of_a_collective_are_refused(folder: Path) -> None:
    text = MODULE.replace(", dimensions={0}", "")
    outcome = cp2ag("ranks", "groups", stdin=text.encode())
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert "error: all-gather needs the attribute dimensions" in outcome.stderr


def test_no_collective(folder: Path) -> None:
    outcome = cp2ag("ranks", "groups", stdin=b"HloModule m\n\nENTRY e {\n  ROOT p = f32[8] parameter(0)\n}\n")
    assert (outcome.code, outcome.text, outcome.stderr) == (0, "", "<stdin>: note: no collective here\n")


# ---- ccinfo ----------------------------------------------------------------------------------------------------------


def test_ccinfo_digit_for_digit(folder: Path) -> None:
    outcome = cp2ag("ranks", "ccinfo", "m.hlo", "--rank-world-size", "8", cwd=folder)
    assert (outcome.code, outcome.text, outcome.stderr) == (0, CCINFO + "\n", "")
    assert cp2ag("ranks", "ccinfo", "m.hlo", "--rank-world-size", "8", "--json", cwd=folder).text == CCINFO + "\n"
    outcome = cp2ag("ranks", "ccinfo", "m.hlo", "--rank-world-size", "8", "-o", "out.json", cwd=folder)
    assert (outcome.text, (folder / "out.json").read_text()) == ("", CCINFO + "\n")


def test_ccinfo_of_the_rewritten_module(folder: Path) -> None:
    """The pairs become one global group."""
    outcome = cp2ag("ranks", "ccinfo", "m.hlo", "--rewritten", cwd=folder)
    strided = [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert json.loads(outcome.text) == {
        "before": {"CCInfo": {"replica_groups": [strided], "src_target_pairs": [[[0, 1], [1, 0]]]}},
        "after": {"CCInfo": {"replica_groups": [strided, [[0, 1, 2, 3, 4, 5, 6, 7]]], "src_target_pairs": []}},
    }


def test_ccinfo_refuses_ids_that_are_no_device_ids(folder: Path) -> None:
    outcome = cp2ag("ranks", "ccinfo", "two.hlo", "-o", "out.json", cwd=folder)
    assert (outcome.code, outcome.stdout, (folder / "out.json").exists()) == (2, b"", False)
    assert outcome.stderr == (
        "two.hlo:5:58: error: the replica_groups of 'bc' are no device ids: cross_replica on a grid 2 x 2\n"
        "    bc = f32[8]{0} collective-broadcast(p), replica_groups={{1,0}}\n"
        "                                                           ^\n"
        "  hint: --flatten writes device ids\n"
    )
    outcome = cp2ag("ranks", "ccinfo", "two.hlo", "--flatten", cwd=folder)
    assert json.loads(outcome.text)["CCInfo"] == {
        "replica_groups": [[[2, 0], [3, 1]]],
        "src_target_pairs": [[[0, 1], [2, 3], [1, 0], [3, 2]]],
    }


def test_ccinfo_warns_of_empty_groups(folder: Path) -> None:
    text = MODULE.replace("{{0,4},{1,5},{2,6},{3,7}}", "{}")
    outcome = cp2ag("ranks", "ccinfo", stdin=text.encode())
    assert json.loads(outcome.text)["CCInfo"]["replica_groups"][1] == []
    assert outcome.stderr.startswith("<stdin>:12:3: warning: no groups are written as an empty topology")
    outcome = cp2ag("ranks", "ccinfo", "--flatten", stdin=text.encode())
    assert (json.loads(outcome.text)["CCInfo"]["replica_groups"][1], outcome.stderr) == ([list(range(8))], "")


def test_ccinfo_does_not_overwrite_its_input(folder: Path) -> None:
    outcome = cp2ag("ranks", "ccinfo", "m.hlo", "-o", "m.hlo", cwd=folder)
    assert (outcome.code, (folder / "m.hlo").read_text()) == (2, MODULE)


# ---- world-size ------------------------------------------------------------------------------------------------------


def test_world_size(folder: Path) -> None:
    outcome = cp2ag("ranks", "world-size", "def.json", cwd=folder)
    assert (outcome.code, outcome.text, outcome.stderr) == (0, "8\n", "")
    without = cp2ag("ranks", "ccinfo", "m.hlo", cwd=folder).stdout
    assert cp2ag("ranks", "world-size", "-", stdin=without).text == "2\n"
    outcome = cp2ag("ranks", "world-size", "def.json", "--json", cwd=folder)
    assert json.loads(outcome.text) == {"world_size": 8, "inner_sizes": [2], "pair_span": 2, "#rank_world_size": 8}


@pytest.mark.parametrize(
    ("groups", "sentence", "column"),
    [
        ("[[[0,4]],[]]", "Empty topology found at index 1, possible MPMD neff file; use --stopAfter=compile", 40),
        (
            "[[[0,4]],[[0,1,2]]]",
            "Inconsistent worker count across topologies: 2 vs 3. Possible MPMD neff file; use --stopAfter=compile",
            40,
        ),
    ],
)
def test_world_size_refuses(groups: str, sentence: str, column: int) -> None:
    text = f'{{"CCInfo": {{"replica_groups": {groups}}}}}'.encode()
    outcome = cp2ag("ranks", "world-size", stdin=text)
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert outcome.stderr.splitlines()[0] == f"<stdin>:1:{column}: error: {sentence}"
    outcome = cp2ag("ranks", "world-size", "--json", stdin=text)
    report = json.loads(outcome.text)
    assert (outcome.code, report["world_size"], report["refusal"]) == (1, None, sentence)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "<stdin>:1:1: error: no JSON here: the text is empty"),
        ('{"CCInfo": {"replica_groups": [[[0,x]]]}}', "<stdin>:1:36: error: this is no JSON: Expecting value"),
        ('{"CCInfo": {}', "<stdin>:1:14: error: this is no JSON: Expecting ',' delimiter"),
        ("[]", "<stdin>:1:1: error: a def.json is an object, not a list"),
        ('\n{"CC": 1}', '<stdin>:2:1: error: there is no "CCInfo" here'),
        ('{"CCInfo": {}}', "<stdin>:1:12: error: CCInfo has none of replica_groups, src_target_pairs, #rank_world_size"),
        ('{"CCInfo": {"replica_groups": [[[0,1],\n  2]]}}', "<stdin>:2:3: error: a group is a list of ranks, not 2"),
        ('{"CCInfo": {"replica_groups": [[[0,-1]]]}}', "<stdin>:1:36: error: a rank is at least 0, not -1"),
        ('{"CCInfo": {"replica_groups": [[[0,1.5]]]}}', "<stdin>:1:36: error: a rank is an integer, not 1.5"),
        ('{"CCInfo": {"src_target_pairs": [[0,1],[1]]}}', "<stdin>:1:40: error: a pair is [source, target], not a list of 1"),
        ('{"CCInfo": {"#rank_world_size": "8"}}', "<stdin>:1:33: error: #rank_world_size is an integer, not a string"),
    ],
)  # fmt: skip
def test_bad_json(text: str, message: str) -> None:
    for command in (["world-size"], ["core", "0", "-"] if text.lstrip().startswith("{") else ["world-size", "-"]):
        outcome = cp2ag("ranks", *command, stdin=text.encode())
        assert (outcome.code, outcome.stdout) == (2, b"")
        lines = outcome.stderr.splitlines()
        assert lines[0].startswith(message), lines
        if text:
            column = int(message.split(":")[2])
            assert lines[2] == " " * (column + 1) + "^"


def test_missing_files() -> None:
    for command in (["groups"], ["ccinfo"], ["tp"], ["world-size"], ["core", "1"]):
        outcome = cp2ag("ranks", *command, "/nowhere/at/all")
        assert (outcome.code, outcome.stdout) == (2, b"")
        assert outcome.stderr == "/nowhere/at/all: error: cannot read it: No such file or directory\n"


# ---- core ------------------------------------------------------------------------------------------------------------


def test_rank_of_a_core(folder: Path) -> None:
    assert cp2ag("ranks", "core", "9", "--lnc", "2").text == "4\n"
    assert cp2ag("ranks", "core", "9").text == "9\n"
    assert cp2ag("ranks", "core", "9", "--platform", "trn2").text == "4\n"
    assert cp2ag("ranks", "core", "9", "--platform", "trn1").text == "9\n"
    report = json.loads(cp2ag("ranks", "core", "9", "--lnc", "2", "--json").text)
    assert report == {"core": 9, "cores_per_lnc": 2, "rank": 4}


def test_where_a_core_is_in_a_module(folder: Path) -> None:
    outcome = cp2ag("ranks", "core", "9", "--lnc", "2", "m.hlo", cwd=folder)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert [line.split("\t") for line in outcome.text.splitlines()] == [
        ["4"],
        ["m.hlo:11:3", "ar", "all-reduce", "flattened_id", "7", "0", "1", "0", "0,4"],
        ["m.hlo:12:3", "ag", "all-gather", "cross_replica", "-", "0", "1", "0", "0,4"],
        ["m.hlo:13:3", "cp", "collective-permute", "cross_replica", "-", "-", "-", "-", "-"],
    ]
    outcome = cp2ag("ranks", "core", "0", "m.hlo", cwd=folder)
    assert outcome.text.splitlines()[3].split("\t")[5:] == ["-", "-", "1", "1>0,0>1"]


def test_where_a_core_is_as_json(folder: Path) -> None:
    report = json.loads(cp2ag("ranks", "core", "9", "--lnc", "2", "m.hlo", "--json", cwd=folder).text)
    assert (report["rank"], report["replica"], report["partition"]) == (4, 4, 0)
    first = report["collectives"][0]
    assert {key: first[key] for key in ("name", "group", "position", "peers", "members")} == {
        "name": "ar", "group": 0, "position": 1, "peers": [0], "members": [0, 4],
    }  # fmt: skip
    report = json.loads(cp2ag("ranks", "core", "0", "m.hlo", "--json", cwd=folder).text)
    last = report["collectives"][2]
    assert (last["group"], last["peers"], last["receives_from"], last["sends_to"]) == (None, [1], [1], [1])


def test_where_a_core_is_in_a_def_json(folder: Path) -> None:
    outcome = cp2ag("ranks", "core", "9", "--lnc", "2", "def.json", cwd=folder)
    assert outcome.text == "4\ndef.json:1:31\ttopology 0\t-\t-\t-\t0\t1\t0\t0,4\n"
    report = json.loads(cp2ag("ranks", "core", "9", "--lnc", "2", "def.json", "--json", cwd=folder).text)
    assert (report["rank"], report["is_in_replica_group"], report["group"], report["position"]) == (4, True, 0, 1)
    report = json.loads(cp2ag("ranks", "core", "99", "def.json", "--json", cwd=folder).text)
    assert (report["is_in_replica_group"], report["group"]) == (False, None)
    two = CCINFO.replace("[[[0, 4], ", "[[[0, 1]], [[0, 4], ")
    outcome = cp2ag("ranks", "core", "9", "-", stdin=two.encode())
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert outcome.stderr.splitlines()[0] == "<stdin>:1:31: error: Multiple LNCs are not supported yet"


def test_what_is_no_core(folder: Path) -> None:
    for core in ("-1", "1.5", "-2.0", "x", "", "1e3", "٣"):
        outcome = cp2ag("ranks", "core", core, "--lnc", "2")
        assert (outcome.code, outcome.stdout) == (2, b""), core
        assert f"a core is an integer from 0 on, not {core}" in outcome.stderr
    for lnc in ("0", "-2", "x"):
        outcome = cp2ag("ranks", "core", "1", "--lnc", lnc)
        assert (outcome.code, outcome.stdout) == (2, b"")
        assert "Invalid value for '--lnc'" in outcome.stderr
    outcome = cp2ag("ranks", "core", "17", "--lnc", "2", "m.hlo", cwd=folder)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert outcome.stderr.startswith(
        "m.hlo:1:1: error: core 17 is rank 8, which is not among the 8 of the grid 8 x 1\n"
    )


# ---- tp --------------------------------------------------------------------------------------------------------------


def test_tp(folder: Path) -> None:
    outcome = cp2ag("ranks", "tp", "m.hlo", cwd=folder)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.text == "m.hlo:12:3\tag\tall-gather\te\t{{0,4},{1,5},{2,6},{3,7}}\t[4,2]<=[2,4]T(1,0)\n"
    report = json.loads(cp2ag("ranks", "tp", "m.hlo", "--opcodes", "all-reduce", "--json", cwd=folder).text)
    assert report["replica_groups"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert report["iota"] == "[4,2]<=[2,4]T(1,0)"
    assert [found["name"] for found in report["collectives"]] == ["ar"]


def test_tp_finds_nothing(folder: Path) -> None:
    outcome = cp2ag("ranks", "tp", "m.hlo", "--opcodes", "reduce-scatter,all-to-all", cwd=folder)
    assert (outcome.code, outcome.text, outcome.stderr) == (
        0,
        "",
        "m.hlo: note: no reduce-scatter or all-to-all here\n",
    )
    report = json.loads(cp2ag("ranks", "tp", "m.hlo", "--scan", "add", "--json", cwd=folder).text)
    assert (report["replica_groups"], report["iota"], report["collectives"]) == ([], None, [])


def test_tp_refuses_unknown_names(folder: Path) -> None:
    outcome = cp2ag("ranks", "tp", "m.hlo", "--scan", "ad", cwd=folder)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert "error: --scan ad: no computation and no calling attribute has this name" in outcome.stderr
    outcome = cp2ag("ranks", "tp", "m.hlo", "--opcodes", "add", cwd=folder)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert "'add' has no replica groups" in outcome.stderr


# ---- cores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (["--platform-version", "3.0", "--nc-divisor", "1"], 128),
        (["--platform-version", "3.0", "--nc-divisor", "2"], 64),
        (["--platform-version", "3.0", "--nc-divisor", "3"], 42),
        (["--platform-version", "3.0", "--nc-divisor", "2", "--override-core-count", "16"], 16),
        (["--platform-version", "3.0", "--nc-divisor", "2", "--override-core-count", "-1"], 64),
        (["--platform-version", "2.0", "--nc-divisor", "2", "--override-core-count", "16"], 32),
        (["--platform-version", "3", "--nc-divisor", "2"], 32),
    ],
)
def test_cores(flags: list[str], count: int) -> None:
    outcome = cp2ag("ranks", "cores", *flags)
    assert (outcome.code, outcome.text, outcome.stderr) == (0, f"{count}\n", "")
    assert json.loads(cp2ag("ranks", "cores", *flags, "--json").text)["core_count"] == count


def test_cores_needs_a_platform_and_a_divisor() -> None:
    assert cp2ag("ranks", "cores", "--nc-divisor", "2").code == 2
    assert cp2ag("ranks", "cores", "--platform-version", "3.0", "--nc-divisor", "0").code == 2


# ---- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["groups", "ccinfo", "world-size", "core", "tp", "cores"])
def test_help_ends_with_two_examples(name: str) -> None:
    outcome = cp2ag("ranks", name, "--help")
    assert outcome.code == 0
    examples = outcome.text.split("Examples:\n")[1].split("\n\n")[0].strip().splitlines()
    assert len(examples) == 2
    assert all("cp2ag ranks " in example for example in examples)
    assert "--json" in outcome.text


def test_pipelines(folder: Path) -> None:
    """The ones that README and docs show."""
    rewritten = cp2ag("rewrite", "m.hlo", cwd=folder).stdout
    info = cp2ag("ranks", "ccinfo", stdin=rewritten).stdout
    assert json.loads(info)["CCInfo"]["src_target_pairs"] == []
    outcome = cp2ag("ranks", "world-size", stdin=info)
    assert outcome.code == 1
    assert (
        "Inconsistent worker count across topologies: 2 vs 8. Possible MPMD neff file; use --stopAfter=compile"
        in outcome.stderr
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (
            ["groups", "m.hlo"],
            ["m.hlo, replica_count 8 (header), num_partitions 1 (default)", "iota", "[4,2]<=[2,4]T(1,0)"],
        ),
        (["core", "9", "--lnc", "2", "m.hlo"], ["rank 4 = replica 4, partition 0, in m.hlo", "position", "all-gather"]),
        (["ccinfo", "m.hlo", "--rewritten"], ["CCInfo of m.hlo", "before", "after the pass", "[[[0, 1], [1, 0]]]"]),
        (["tp", "m.hlo"], ["tensor-parallel group of m.hlo", "all-gather", "[4,2]<=[2,4]T(1,0)"]),
    ],
)
def test_tables_on_a_terminal(folder: Path, argv: list[str], words: list[str]) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-m", "hlo_cp2ag", "ranks", *argv]
    process = subprocess.Popen(
        command, stdout=slave, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=folder, env=environment
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    _, complaints = process.communicate()
    assert (process.returncode, complaints) == (0, b"")
    text = shown.decode()
    assert "│" in text
    assert "\t" not in text
    for word in words:
        assert word in text


def test_places_in_json() -> None:
    text = ' {"a\\"": [10, {"b": [], "b" : [ 1,\n[2 , {}], "]x"]}], "c": -3.5e1}'
    for path, begins in (
        ((), '{"a'),
        (('a"',), "[10"),
        (('a"', 0), "10"),
        (('a"', 1, "b"), "[ 1"),
        (('a"', 1, "b", 1, 1), "{}"),
        (('a"', 1, "b", 2), '"]x"'),
        (("c",), "-3.5"),
        (("c", 3), "-3.5"),
        (("nothing",), '{"a'),
        (('a"', 9), "[10"),
    ):
        assert text[place(text, path) :].startswith(begins), path  # type: ignore[arg-type]


def test_tp_of_an_attribute_that_the_module_lacks_is_empty(folder: Path) -> None:
    outcome = cp2ag("ranks", "tp", "m.hlo", "--scan", "branch_computations", "--json", cwd=folder)
    assert outcome.code == 0
    assert json.loads(outcome.text)["replica_groups"] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"CCInfo": {"replica_groups": [[[0,1]]], "replica_groups": [[[0,1,2,3]]]}}',
         "d.json:1:42: error: the key 'replica_groups' is given twice"),
        ('{"CCInfo": {"replica_groups": [[[0,1]]]}, "x": NaN}', "d.json:1:48: error: this is no JSON: NaN is no number"),
        ("[" * 100_000, "d.json:1:1: error: it nests too deeply"),
    ],
)  # fmt: skip
def test_world_size_of_what_only_python_takes_for_json(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text(text)
    outcome = cp2ag("ranks", "world-size", "d.json", cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert outcome.stderr.startswith(says)


def test_tp_refuses_ids_outside_the_grid_of_the_header(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(
        "HloModule t, num_partitions=8\n\nsum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT a = f32[] add(x, y)\n}\n\n"
        "ENTRY main {\n  p = f32[8] parameter(0)\n  ROOT ar = f32[8] all-reduce(p), channel_id=1, use_global_device_ids=true, "
        "replica_groups={{0,8}}, to_apply=sum\n}\n"
    )
    outcome = cp2ag("ranks", "tp", "m.hlo", cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert "error: group id 8 is not among the 8 of the grid 1 x 8 (flattened_id)" in outcome.stderr
