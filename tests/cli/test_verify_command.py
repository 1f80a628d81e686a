# ruff: noqa: E501 (HLO lines)
"""`cp2ag verify` and `rewrite --verify`: verdicts, exit codes, what goes to which stream."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .in_process import FIXTURES, Outcome, cp2ag

RING = """\
HloModule ring, num_partitions=4

ENTRY %main (p: f32[2,3]) -> f32[2,3] {
  %p = f32[2,3]{1,0} parameter(0)
  %ppermute = f32[2,3]{1,0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, metadata={op_name="ppermute"}
  ROOT %out = f32[2,3]{1,0} add(%ppermute, %p)
}
"""
CHAIN = """\
HloModule ring, num_partitions=4

ENTRY %main (p: f32[2,3]) -> f32[2,3] {
  %p = f32[2,3]{1,0} parameter(0)
  %all-gather = f32[8,3]{1,0} all-gather(%p), channel_id=2, replica_groups={{0,1,2,3}}, constrain_layout=true, dimensions={0}, use_global_device_ids=true
  %constant = s32[4]{0} constant({3, 0, 1, 2})
  %partition-id = u32[] partition-id()
  %dynamic-slice = s32[1]{0} dynamic-slice(%constant, %partition-id), dynamic_slice_sizes={1}
  %reshape = s32[] reshape(%dynamic-slice)
  %constant.1 = s32[] constant(2)
  %multiply = s32[] multiply(%reshape, %constant.1)
  %constant.2 = s32[] constant(0)
  %dynamic-slice.1 = f32[2,3]{1,0} dynamic-slice(%all-gather, %multiply, %constant.2), dynamic_slice_sizes={2,3}, metadata={op_name="ppermute"}
  ROOT %out = f32[2,3]{1,0} add(%dynamic-slice.1, %p)
}
"""
SHOWN = """\
before.hlo:5:3: shown: collective-permute ppermute {0>1, 1>2, 2>3, ...} -> dynamic-slice dynamic-slice.1 (after.hlo:13:3)
before.hlo: shown: everything else is the same
before.hlo: shown: both modules give the same results when run in the executor
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "before.hlo").write_text(RING)
    (tmp_path / "after.hlo").write_text(CHAIN)
    return tmp_path


def _changed(folder: Path, old: str, new: str, name: str = "after.hlo") -> None:
    text = (folder / name).read_text()
    assert text.count(old) == 1, (old, text)
    (folder / name).write_text(text.replace(old, new))


def _verify(folder: Path, *argv: str | Path, **more: object) -> Outcome:
    return cp2ag("verify", *argv, cwd=folder, **more)  # type: ignore[arg-type]


# ---- shown -----------------------------------------------------------------------------------------------------------


def test_a_pair_of_files(folder: Path) -> None:
    outcome = _verify(folder, "before.hlo", "after.hlo")
    assert (outcome.code, outcome.text, outcome.stderr) == (0, SHOWN, "")


def test_rewrites_by_itself(folder: Path) -> None:
    outcome = _verify(folder, "before.hlo")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.text == SHOWN.replace("after.hlo:13:3", "line 13 of the rewrite")


@pytest.mark.parametrize(("first", "second"), [("-", "after.hlo"), ("before.hlo", "-")])
def test_one_of_both_is_stdin(folder: Path, first: str, second: str) -> None:
    stdin = (RING if first == "-" else CHAIN).encode()
    outcome = _verify(folder, first, second, stdin=stdin)
    wanted = SHOWN.replace("before.hlo" if first == "-" else "after.hlo", "<stdin>")
    assert (outcome.code, outcome.text) == (0, wanted)


def test_names_and_the_order_of_independent_instructions_may_differ(folder: Path) -> None:
    text = CHAIN.replace("%p ", "%arg ").replace("%p)", "%arg)").replace("(p:", "(arg:").replace("ring", "other")
    lines = text.splitlines(keepends=True)
    lines[4:6] = lines[5], lines[4]
    (folder / "after.hlo").write_text("".join(lines))
    assert _verify(folder, "before.hlo", "after.hlo").code == 0


def test_the_same_module_has_no_sites(folder: Path) -> None:
    outcome = _verify(folder, "before.hlo", "before.hlo", "--no-run")
    assert (outcome.code, outcome.text) == (0, "before.hlo: shown: everything else is the same\nbefore.hlo: not run\n")


def test_back_to_a_permute(folder: Path) -> None:
    outcome = _verify(folder, "after.hlo", "before.hlo")
    assert outcome.code == 0
    assert (
        "after.hlo:13:3: shown: dynamic-slice dynamic-slice.1 {0>1, 1>2, 2>3, ...} -> collective-permute"
        in outcome.text
    )


@pytest.mark.parametrize("path", sorted((FIXTURES / "jax").glob("*.hlo")), ids=lambda path: path.stem)
def test_everything_out_of_jax_is_shown(path: Path) -> None:
    outcome = cp2ag("verify", path, "-q", "--report", "-")
    report = json.loads(outcome.text)
    rewritten = json.loads(cp2ag("rewrite", path, "-q", "--check", "--report", "-").text)["modules"][0]["permutes"]
    assert outcome.code == 0
    assert report["untouched"] == {"outcome": "shown", "remarks": []}
    assert [site["outcome"] for site in report["sites"]] == ["shown"] * len(report["sites"])
    # Nothing but the permutes was rewritten, and each of them was looked at.
    assert {(s["before"]["line"], s["before"]["name"]) for s in report["sites"]} == {
        (p["line"], p["name"]) for p in rewritten if p["action"] == "rewritten"
    }
    assert [run["verdict"] for run in report["run"]] == ["shown"]


# ---- not shown -------------------------------------------------------------------------------------------------------


def test_a_wrong_map_is_refuted_by_its_smallest_case(folder: Path) -> None:
    _changed(folder, "constant({3, 0, 1, 2})", "constant({1, 2, 3, 0})")
    outcome = _verify(folder, "before.hlo", "after.hlo", "--no-run")
    assert outcome.code == 1
    assert outcome.text == (
        "before.hlo:5:3: failed: collective-permute ppermute {0>1, 1>2, 2>3, ...} -> dynamic-slice dynamic-slice.1 "
        "(after.hlo:13:3): it moves the wrong data to devices 0, 1, 2 and 3\n"
        "  device 0 at [0,0]: should be device 3's p[0,0], is device 1's p[0,0]\n"
        "  look at dynamic-slice dynamic-slice.1, after.hlo:13:3\n"
        "before.hlo: shown: everything else is the same\n"
        "before.hlo: not run\n"
    )


def test_one_wrong_device_and_one_wrong_row_are_found(folder: Path) -> None:
    _changed(folder, "constant({3, 0, 1, 2})", "constant({3, 0, 2, 2})")
    text = _verify(folder, "before.hlo", "after.hlo", "--no-run").text
    assert (
        "it moves the wrong data to device 2\n  device 2 at [0,0]: should be device 1's p[0,0], is its own p[0,0]"
        in text
    )
    (folder / "after.hlo").write_text(CHAIN)
    _changed(folder, "%constant.1 = s32[] constant(2)", "%constant.1 = s32[] constant(1)")
    text = _verify(folder, "before.hlo", "after.hlo", "--no-run").text
    assert "device 0 at [0,0]: should be device 3's p[0,0], is device 1's p[1,0]" in text


def test_identity_backfill_is_named(folder: Path) -> None:
    (folder / "partial.hlo").write_text(
        "HloModule m, num_partitions=6\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT cp = f32[2] collective-permute(p), "
        "channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,4}}\n}\n"
    )
    outcome = _verify(folder, "partial.hlo", "--non-target", "keep", "-q", "--report", "-")
    (site,) = json.loads(outcome.text)["sites"]
    assert outcome.code == 1
    assert site["reason"] == "devices 0 and 5 are no target; XLA gives zeros, the module keeps their own shard"
    assert site["counterexample"] == {
        "device": 0, "index": [0], "expected": "zero", "got": "its own p[0]", "devices": [0, 5]
    }  # fmt: skip
    assert _verify(folder, "partial.hlo", "--profile", "neuron", "--gate", "every").code == 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("add(%dynamic-slice.1, %p)", "add(%p, %p)", "operand 0 of add out is parameter p, not what stands for collective-permute ppermute"),
        ("add(%dynamic-slice.1, %p)", "subtract(%dynamic-slice.1, %p)", "add out has no counterpart in the second module"),
        ("add(%dynamic-slice.1, %p)", "add(%dynamic-slice.1, %p), metadata={op_name=\"x\"}", "metadata of add out differs"),
        ("num_partitions=4", "num_partitions=4, is_scheduled=true", "the header of the first module has no is_scheduled"),
        ("ROOT %out = f32[2,3]{1,0} add(%dynamic-slice.1, %p)",
         "%out = f32[2,3]{1,0} add(%dynamic-slice.1, %p)\n  ROOT %o = f32[2,3]{1,0} copy(%p)",
         "the result is copy o, not what stands for add out"),
        ("  ROOT %out", "  %out.2 = f32[2,3]{1,0} negate(%p)\n  ROOT %out", "negate out.2 is in the second module only"),
    ],
)  # fmt: skip
def test_the_rest_has_to_be_the_same(folder: Path, old: str, new: str, says: str) -> None:
    _changed(folder, old, new)
    outcome = _verify(folder, "before.hlo", "after.hlo", "--no-run")
    assert outcome.code == 1
    assert says in outcome.text


def test_a_schedule_is_kept(folder: Path) -> None:
    module = (
        "HloModule m, is_scheduled=true, num_partitions=2\nENTRY e {\n  p = f32[2] parameter(0)\n"
        "  a = f32[2] negate(p)\n  b = f32[2] sine(p)\n  ROOT t = (f32[2], f32[2]) tuple(a, b)\n}\n"
    )
    (folder / "a.hlo").write_text(module)
    lines = module.splitlines(keepends=True)
    lines[3:5] = lines[4], lines[3]
    (folder / "b.hlo").write_text("".join(lines))
    outcome = _verify(folder, "a.hlo", "b.hlo", "--no-run")
    assert outcome.code == 1
    assert "not shown: the schedule is another one: " in outcome.text
    for name in ("a.hlo", "b.hlo"):
        _changed(folder, "is_scheduled=true, ", "", name)
    assert _verify(folder, "a.hlo", "b.hlo", "--no-run").code == 0


def test_elided_constants_are_equal_only_where_verify_made_the_second_module(folder: Path) -> None:
    for name in ("before.hlo", "after.hlo"):
        _changed(folder, "ROOT %out", "%big = f32[2,3]{1,0} constant({...})\n  ROOT %out", name)
        (folder / name).write_text((folder / name).read_text().replace(", %p)\n}", ", %big)\n}"))
    outcome = _verify(folder, "before.hlo", "after.hlo")
    assert outcome.code == 1
    assert "constant big is elided in both modules" in outcome.text
    assert "dump with large constants" in outcome.text
    outcome = _verify(folder, "before.hlo")
    assert outcome.code == 0
    assert "before.hlo: not run in the executor: " in outcome.text


def test_an_elided_map_shows_nothing(folder: Path) -> None:
    _changed(folder, "constant({3, 0, 1, 2})", "constant({...})")
    outcome = _verify(folder, "before.hlo", "after.hlo")
    assert outcome.code == 1
    assert "not shown: collective-permute ppermute" in outcome.text
    assert "data reaches the index of dynamic-slice dynamic-slice.1" in outcome.text


# ---- conditions ------------------------------------------------------------------------------------------------------


def test_arrival_is_a_condition() -> None:
    outcome = cp2ag("verify", FIXTURES / "hand" / "in_both_branches_by_replica.hlo", "--no-run", "-q", "--report", "-")
    report = json.loads(outcome.text)
    assert outcome.code == 0
    conditions = {condition for site in report["sites"] for condition in site["conditions"]}
    assert conditions
    assert all(re.match(r"all devices enter \S+ together: the predicate of ", text) for text in conditions)


def test_a_gather_that_is_not_along_the_most_major_dimension_is_a_condition(folder: Path) -> None:
    for name in ("before.hlo", "after.hlo"):
        (folder / name).write_text((folder / name).read_text().replace("{1,0}", "{0,1}"))
    outcome = _verify(folder, "before.hlo", "after.hlo", "--no-run")
    assert outcome.code == 0
    assert (
        "  provided a layout pass follows, or the backend's all-gather all-gather works along dimension 0"
        in outcome.text
    )


# ---- trouble, flags, streams -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("num_partitions=4", "num_partitions=8", "after.hlo:1:32: error: the modules are for two grids: num_partitions=8 here"),
        ("ROOT %out = f32[2,3]{1,0} add(%dynamic-slice.1, %p)", "ROOT %out = (f32[2,3]{1,0}) tuple(%dynamic-slice.1)",
         "error: the two modules do not belong together: the result is (f32[2,3]), f32[2,3] in before.hlo"),
        ("parameter(0)", "parameter(", "after.hlo:4:"),
    ],
)  # fmt: skip
def test_files_that_do_not_belong_together(folder: Path, old: str, new: str, says: str) -> None:
    _changed(folder, old, new)
    (folder / "after.hlo").write_text(
        (folder / "after.hlo").read_text().replace("-> f32[2,3] {", "{")
        if "tuple" in new
        else (folder / "after.hlo").read_text()
    )
    (folder / "after.hlo").write_text((folder / "after.hlo").read_text().replace("(p: f32[2,3]) {", "{"))
    outcome = _verify(folder, "before.hlo", "after.hlo", "--report", "r.json")
    assert (outcome.code, outcome.text) == (2, "")
    assert says in outcome.stderr
    assert not (folder / "r.json").exists()


@pytest.mark.parametrize(
    "argv",
    [("-", "-"), ("before.hlo", "after.hlo", "--only", "x"), ("before.hlo", "--report", "before.hlo"),
     ("before.hlo", "after.hlo", "--report", "after.hlo"), ("before.hlo", "--tolerance", "-1"),
     ("before.hlo", "--tolerance", "nan"), ("before.hlo", "--no-run", "--engine", "xla"), ()],
)  # fmt: skip
def test_usage(folder: Path, argv: tuple[str, ...]) -> None:
    outcome = _verify(folder, *argv)
    assert (outcome.code, outcome.text) == (2, "")
    assert (folder / "before.hlo").read_text() == RING


def test_run_is_a_condition_where_it_is_asked_for(folder: Path) -> None:
    assert _verify(folder, "before.hlo", "after.hlo", "--run").code == 0
    outcome = _verify(folder, "before.hlo", "after.hlo", "--max-memory", "64")
    assert outcome.code == 0 or "too large" in outcome.text
    outcome = _verify(folder, "before.hlo", "after.hlo", "--run", "--max-steps", "3")
    assert outcome.code == 1
    assert "not shown: both modules give the same results when run in the executor: " in outcome.text
    outcome = _verify(folder, "before.hlo", "after.hlo", "--max-steps", "3")
    assert outcome.code == 0
    assert "before.hlo: not run in the executor: " in outcome.text


def test_the_report_is_the_same_every_time(folder: Path) -> None:
    first = _verify(folder, "before.hlo", "after.hlo", "--report", "-")
    assert first.stdout == _verify(folder, "before.hlo", "after.hlo", "--report", "-").stdout
    report = json.loads(first.text)
    assert list(report) == ["tool", "before", "after", "ok", "configuration", "untouched", "sites", "run", "warnings"]
    assert report["configuration"] == {"replica_count": 1, "num_partitions": 4, "total": 4, "profile": "xla"}
    (site,) = report["sites"]
    assert site["after"] == {
        "computation": "main", "name": "dynamic-slice.1", "opcode": "dynamic-slice", "line": 13, "column": 3
    }  # fmt: skip
    assert site["pairs"] == [[0, 1], [1, 2], [2, 3], [3, 0]]


def test_quiet_says_nothing(folder: Path) -> None:
    outcome = _verify(folder, "before.hlo", "--non-target", "keep", "-q")
    assert (outcome.code, outcome.text, outcome.stderr) == (0, "", "")


def test_flags_read_the_environment(folder: Path) -> None:
    outcome = _verify(folder, "before.hlo", "after.hlo", env={"CP2AG_NO_RUN": "1"})
    assert outcome.code == 0
    outcome = _verify(folder, "before.hlo", "after.hlo", env={"CP2AG_MAX_STEPS": "3"})
    assert "not run in the executor" in outcome.text
    # Those of the pass may be set for other commands.
    assert _verify(folder, "before.hlo", "after.hlo", env={"CP2AG_GATE": "invalid"}).code == 0


def test_help_ends_with_two_examples() -> None:
    text = cp2ag("verify", "--help").text
    for flag in ("--run / --no-run", "--engine", "--inputs", "--tolerance", "--ignore-nan-payload", "--max-memory",
                 "--time-limit", "--report", "--profile", "--gate", "--replica-count"):  # fmt: skip
        assert flag in text
    assert text[text.index("Examples:") :].count("cp2ag verify") == 2


def test_help_loads_no_numpy(folder: Path) -> None:
    code = "import sys\nfrom hlo_cp2ag.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "verify", "--help"], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False"


# ---- rewrite --verify ------------------------------------------------------------------------------------------------


def test_rewrite_writes_what_is_proved(folder: Path) -> None:
    outcome = cp2ag("rewrite", "before.hlo", "--verify", cwd=folder)
    assert (outcome.code, outcome.text, outcome.stderr) == (0, CHAIN, "")


def test_rewrite_writes_nothing_that_is_not_proved(folder: Path) -> None:
    _changed(folder, ",{3,0}", "", "before.hlo")
    argv = ("rewrite", "before.hlo", "--verify", "--non-target", "keep", "-o", "out.hlo", "--report", "r.json")
    outcome = cp2ag(*argv, cwd=folder)
    assert (outcome.code, outcome.text) == (1, "")
    assert not (folder / "out.hlo").exists()
    assert not (folder / "r.json").exists()
    assert "device 0 is no target; XLA gives zeros, the module keeps its own shard" in outcome.stderr
    assert outcome.stderr.endswith("before.hlo: not written: not everything is proved\n")


def test_who_never_comes_is_named() -> None:
    text = cp2ag(
        "verify", FIXTURES / "hand" / "in_both_branches_by_replica.hlo", "--no-run", "-q", "--report", "-"
    ).text
    first = json.loads(text)["sites"][0]["conditions"][0]
    assert first.endswith("; as it is, device 2 never comes to all-gather all-gather")


def test_more_devices_than_memory_has_room_for(folder: Path) -> None:
    outcome = _verify(folder, "before.hlo", "after.hlo", "--num-partitions", "1000000000")
    assert (outcome.code, outcome.text) == (2, "")
    assert "error: tables of 1,000,000,000 devices take more than the 2,147,483,648 bytes allowed" in outcome.stderr
