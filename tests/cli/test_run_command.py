"""`cp2ag run`: values worked out by hand, what goes to which stream, exact messages."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo_cp2ag

from .in_process import FIXTURES, Outcome, cp2ag

HAND = FIXTURES / "hand"

RING = """HloModule ring, num_partitions=4

ENTRY %main (x: s32[2], y: bf16[3]) -> (s32[2], bf16[3]) {
  %x = s32[2]{0} parameter(0)
  %y = bf16[3]{0} parameter(1)
  %cp = s32[2]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3}}
  %two = bf16[3]{0} constant({1, 2, 0.5})
  %m = bf16[3]{0} multiply(%y, %two)
  ROOT %t = (s32[2]{0}, bf16[3]{0}) tuple(%cp, %m)
}
"""

LOOP = """HloModule loop, num_partitions=2

%body (s: (s32[], s32[2])) -> (s32[], s32[2]) {
  %s = (s32[], s32[2]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %v = s32[2] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %cp = s32[2] collective-permute(%v), channel_id=1, source_target_pairs={{0,1},{1,0}}
  ROOT %t = (s32[], s32[2]) tuple(%next, %cp)
}

%cond (s: (s32[], s32[2])) -> pred[] {
  %s = (s32[], s32[2]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(3)
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (x: s32[2]) -> (s32[], s32[2]) {
  %x = s32[2] parameter(0)
  %zero = s32[] constant(0)
  %t = (s32[], s32[2]) tuple(%zero, %x)
  ROOT %w = (s32[], s32[2]) while(%t), condition=%cond, body=%body
}
"""
LOOP_STEPS = 3 + 4 * 3 + 3 * 6
"""The entry without its parameter, the condition four times, the body three times."""

IDS = """HloModule ids
ENTRY e {
  r = u32[] replica-id()
  p = u32[] partition-id()
  ROOT t = (u32[], u32[]) tuple(r, p)
}
"""

ONE, THREE, TWO, SIX = 0x3F80, 0x4040, 0x4000, 0x40C0
"""bf16 numbers by their bits."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the modules and with inputs for the ring: x on device d is [2d, 2d + 1], y is [1, 3, 2]."""
    (tmp_path / "ring.hlo").write_text(RING)
    (tmp_path / "loop.hlo").write_text(LOOP)
    (tmp_path / "ids.hlo").write_text(IDS)
    _save(tmp_path / "in.npz", p0=np.arange(8, dtype=np.int32).reshape(4, 2), p1=np.array([ONE, THREE, TWO], np.uint16))
    _save(tmp_path / "loop.npz", p0=np.array([[1, 2], [3, 4]], np.int32))
    return tmp_path


def _save(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays)


def _load(data: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(data)) as archive:
        return dict(archive)


def _run(folder: Path, *argv: str | Path, stdin: bytes = b"", **env: str) -> Outcome:
    return cp2ag("run", *argv, stdin=stdin, cwd=folder, env=env)


# ---- values ----------------------------------------------------------------------------------------------------------

RESULT = np.array([[0, 0], [0, 1], [2, 3], [4, 5]], np.int32)
PRODUCT = np.array([[ONE, SIX, ONE]] * 4, np.uint16)


def _is_the_ring(arrays: dict[str, Any]) -> None:
    assert list(arrays) == ["o0", "o1"]
    for array, expected in ((arrays["o0"], RESULT), (arrays["o1"], PRODUCT)):
        assert (array.dtype, array.tolist()) == (expected.dtype, expected.tolist())


def test_the_outputs_are_in_the_file_and_nothing_is_said(folder: Path) -> None:
    outcome = _run(folder, "ring.hlo", "--inputs", "in.npz", "--outputs", "out.npz")
    assert outcome == Outcome(0, b"", "")
    _is_the_ring(_load((folder / "out.npz").read_bytes()))


def test_every_stream_may_be_a_dash(folder: Path) -> None:
    by_name = _run(folder, "ring.hlo", "--inputs", "in.npz", "-o", "-")
    _is_the_ring(_load(by_name.stdout))
    assert _run(folder, "-", "--inputs", "in.npz", "-o", "-", stdin=RING.encode()) == by_name
    assert _run(folder, "--inputs", "in.npz", "-o", "-", stdin=RING.encode()) == by_name
    assert _run(folder, "ring.hlo", "--inputs", "-", "-o", "-", stdin=(folder / "in.npz").read_bytes()) == by_name


def test_inputs_may_come_through_a_pipe_and_outputs_go_to_a_descriptor(folder: Path) -> None:
    command = f"{sys.executable} -m hlo_cp2ag run ring.hlo --inputs <(cat in.npz) -o /dev/stdout | cat"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, timeout=60)
    assert done.stderr == b""
    _is_the_ring(_load(done.stdout))


def test_print_shows_each_value_once(folder: Path) -> None:
    expected = (
        "o0 = s32[2]\n  device 0: [0, 0]\n  device 1: [0, 1]\n  device 2: [2, 3]\n  device 3: [4, 5]\n"
        "o1 = bf16[3]\n  every device: [1, 6, 1]\n"
    )
    assert _run(folder, "ring.hlo", "--inputs", "in.npz", "--print").text == expected
    assert _run(folder, "ring.hlo", "--inputs", "in.npz").text == expected
    assert _run(folder, "ids.hlo", "--replica-count", "2", "--num-partitions", "3").text == (
        "o0 = u32[]\n  devices 0-2: 0\n  devices 3-5: 1\n"
        "o1 = u32[]\n  devices 0, 3: 0\n  devices 1, 4: 1\n  devices 2, 5: 2\n"
    )


def test_print_shows_matrices_in_columns_and_every_type() -> None:
    text = """ENTRY e {
  a = token[] after-all()
  m = f32[2,2] constant({{1, -0.5}, {nan, 100}})
  p = pred[3] constant({1, 0, 1})
  c = c64[1] constant({(1, -inf)})
  i = s4[3] constant({-8, 7, 0})
  z = f32[0,3] constant({})
  s = f64[] constant(0.1)
  ROOT t = (token[], f32[2,2], pred[3], c64[1], s4[3], (), f32[0,3], f64[]) tuple(a, m, p, c, i, () tuple(), z, s)
}
"""
    outcome = cp2ag("run", stdin=text.encode())
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.text == (
        "o0 = f32[2,2]\n  [[   1, -0.5],\n   [ nan,  100]]\n"
        "o1 = pred[3]\n  [ true, false,  true]\n"
        "o2 = c64[1]\n  [(1, -inf)]\n"
        "o3 = s4[3]\n  [-8,  7,  0]\n"
        "o4 = f32[0,3]\n  []\n"
        "o5 = f64[]\n  0.1\n"
    )


def test_print_leaves_the_middle_of_large_arrays_and_many_devices_out(folder: Path) -> None:
    large = b"ENTRY e { ROOT x = s32[2000] iota(), iota_dimension=0 }"
    assert cp2ag("run", stdin=large).text == "o0 = s32[2000]\n  [   0,    1,    2, ..., 1997, 1998, 1999]\n"
    lines = _run(folder, "ids.hlo", "--replica-count", "40").text.splitlines()
    assert lines[16:18] == ["  device 15: 15", "  ... and 24 more devices with 24 other values"]
    # One element's memory: nothing may be made of the other 10^12.
    huge = b"ENTRY e { ROOT x = f32[1000000000000] broadcast(f32[] constant(1)), dimensions={} }"
    assert cp2ag("run", stdin=huge).text == "o0 = f32[1000000000000]\n  [1, 1, 1, ..., 1, 1, 1]\n"


def test_no_outputs(folder: Path) -> None:
    text = b"ENTRY e { ROOT t = () tuple() }"
    assert cp2ag("run", stdin=text) == Outcome(0, b"no outputs\n", "")
    assert _load(cp2ag("run", "-o", "-", stdin=text).stdout) == {}


def test_json_describes_the_outputs(folder: Path) -> None:
    outcome = _run(folder, "ring.hlo", "--inputs", "in.npz", "--json")
    report = json.loads(outcome.stdout)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert report == {
        "tool": f"cp2ag {hlo_cp2ag.__version__}",
        "input": "ring.hlo",
        "name": "ring",
        "configuration": {
            "replica_count": {"value": 1, "source": "default"},
            "num_partitions": {"value": 4, "source": "header"},
            "total": 4,
            "is_lower_bound": False,
            "profile": "xla",
            "inputs": "in.npz",
            "seed": 0,
            "fill_elided": None,
        },
        "steps": 4,
        "outputs": [
            {
                "name": "o0",
                "element_type": "s32",
                "dimensions": [2],
                "stored_as": "int32",
                "devices": 4,
                "devices_agree": False,
                "sha256": hashlib.sha256(RESULT.astype("<i4").tobytes()).hexdigest(),
            },
            {
                "name": "o1",
                "element_type": "bf16",
                "dimensions": [3],
                "stored_as": "uint16",
                "devices": 4,
                "devices_agree": True,
                "sha256": hashlib.sha256(PRODUCT.astype("<u2").tobytes()).hexdigest(),
            },
        ],
        "warnings": [],
    }


def test_json_hashes_what_the_file_holds(folder: Path) -> None:
    module = HAND / "type_s4.hlo"
    report = json.loads(_run(folder, module, "--json", "-o", "out.npz").stdout)
    arrays = _load((folder / "out.npz").read_bytes())
    for output in report["outputs"]:
        array = arrays[output["name"]]
        assert array.dtype.name == output["stored_as"] == "uint8"
        assert array.max() < 16
        assert hashlib.sha256(array.tobytes()).hexdigest() == output["sha256"]


def test_inputs_that_are_the_same_on_all_devices_and_in_any_byte_order(folder: Path) -> None:
    _save(folder / "same.npz", p0=np.array([7, 8], ">i4"), p1=np.array([ONE, THREE, TWO], ">u2"))
    arrays = _load(_run(folder, "ring.hlo", "--inputs", "same.npz", "-o", "-").stdout)
    assert arrays["o0"].tolist() == [[0, 0], [7, 8], [7, 8], [7, 8]]
    assert arrays["o1"].tolist() == PRODUCT.tolist()


def test_the_leaves_of_tuples_are_inputs(folder: Path) -> None:
    text = "ENTRY e {\n  p = (f32[1], token[], (u8[], pred[2])) parameter(0)\n  ROOT q = s8[1] parameter(1)\n}\n"
    _save(folder / "t.npz", p0=np.zeros(1, np.float32), p1=np.uint8(1), p2=np.ones(2, bool), p3=np.array([-5], np.int8))
    assert _run(folder, "--inputs", "t.npz", stdin=text.encode()).text == "o0 = s8[1]\n  [-5]\n"


def test_the_same_run_writes_the_same_bytes_and_seeds_differ(folder: Path) -> None:
    runs = {seed: _run(folder, "ring.hlo", "--seed", seed, "-o", "-").stdout for seed in ("0", "1", "2")}
    assert len(set(runs.values())) == 3
    assert _run(folder, "ring.hlo", "-o", "-").stdout == runs["0"]
    for data in runs.values():
        assert np.abs(_load(data)["o0"]).max() <= 9


def test_neuron_keeps_the_operand_and_names_flat_ranks(folder: Path) -> None:
    outcome = _run(folder, "ring.hlo", "--inputs", "in.npz", "--profile", "neuron", "-o", "-")
    assert _load(outcome.stdout)["o0"].tolist() == [[0, 1], [0, 1], [2, 3], [4, 5]]
    flat = _run(folder, "ids.hlo", "--replica-count", "2", "--num-partitions", "2", "--profile", "neuron", "-o", "-")
    assert _load(flat.stdout)["o0"].tolist() == [0, 1, 2, 3]


def test_elided_constants_are_filled_by_the_seed(folder: Path) -> None:
    text = RING.replace("{1, 2, 0.5}", "{...}").encode()
    argv = ["--inputs", "in.npz", "--fill-elided", "random", "-o", "-", "--seed"]
    first, again, other = (_load(_run(folder, *argv, s, stdin=text).stdout) for s in ("1", "1", "2"))
    assert first["o1"].tolist() == again["o1"].tolist() != other["o1"].tolist()
    assert first["o0"].tolist() == RESULT.tolist()


def test_what_rewrite_makes_computes_the_same(folder: Path) -> None:
    rewritten = cp2ag("rewrite", "ring.hlo", cwd=folder).stdout
    assert b"all-gather" in rewritten
    _is_the_ring(_load(_run(folder, "--inputs", "in.npz", "-o", "-", stdin=rewritten).stdout))


def test_the_library_function_is_exported() -> None:
    inputs = [np.arange(8, dtype=np.int32).reshape(4, 2), np.array([ONE, THREE, TWO], np.uint16)]
    first, second = hlo_cp2ag.run(hlo_cp2ag.parse(RING), inputs, num_partitions=4)
    assert first.tolist() == RESULT.tolist()
    assert second.astype(np.float32).tolist() == [[1, 6, 1]] * 4


# ---- the grid --------------------------------------------------------------------------------------------------------


def _counts(outcome: Outcome) -> tuple[tuple[int, str], tuple[int, str]]:
    configuration = json.loads(outcome.stdout)["configuration"]
    r, p = configuration["replica_count"], configuration["num_partitions"]
    return (r["value"], r["source"]), (p["value"], p["source"])


GATHER = "HloModule g\nENTRY e {\n  p = s32[1] parameter(0)\n  ROOT a = s32[3] all-gather(p), ATTRIBUTES\n}\n"


@pytest.mark.parametrize(
    ("text", "argv", "counts"),
    [
        (RING, [], ((1, "default"), (4, "header"))),
        (IDS, [], ((1, "default"), (1, "default"))),
        (IDS, ["--replica-count", "2", "--num-partitions", "3"], ((2, "flag"), (3, "flag"))),
        (IDS, ["--secondary-mesh-count", "5"], ((1, "default"), (5, "secondary mesh count"))),
        (
            GATHER.replace("ATTRIBUTES", "dimensions={0}, replica_groups={{0,1,2}}"),
            [],
            ((3, "collectives"), (1, "default")),
        ),
        (RING.replace(", num_partitions=4", ""), [], ((1, "default"), (4, "pairs"))),
    ],
    ids=["header", "nothing", "flags", "secondary", "collectives", "pairs"],
)
def test_where_the_counts_come_from(text: str, argv: list[str], counts: object) -> None:
    assert _counts(cp2ag("run", "--json", "-q", *argv, stdin=text.encode())) == counts


def test_a_grid_that_only_pairs_speak_for_is_a_warning(folder: Path) -> None:
    text = RING.replace(", num_partitions=4", "").encode()
    warning = (
        "<stdin>:1:1: warning: num_partitions 4 is only the least that the pairs allow; there may be more partitions: "
        "--num-partitions says how many\n"
    )
    outcome = _run(folder, "--inputs", "in.npz", "-o", "-", stdin=text)
    assert outcome.stderr == warning
    _is_the_ring(_load(outcome.stdout))
    assert _run(folder, "--inputs", "in.npz", "-o", "-", "--quiet", stdin=text).stderr == ""
    assert _run(folder, "--inputs", "in.npz", "--strict-grid", stdin=text).code == 2


def test_a_flag_wins_over_the_header(folder: Path) -> None:
    outcome = _run(folder, "ring.hlo", "--num-partitions", "5", "--json")
    assert outcome.stderr == "ring.hlo:1:1: warning: --num-partitions 5 contradicts the header's num_partitions=4\n"
    assert _counts(outcome) == ((1, "default"), (5, "flag"))
    assert json.loads(outcome.stdout)["warnings"] == [outcome.stderr.strip()]


# ---- traces and bounds -----------------------------------------------------------------------------------------------


def test_trace_shows_values_as_they_are_computed(folder: Path) -> None:
    outcome = _run(folder, "loop.hlo", "--inputs", "loop.npz", "--trace", "^(cp|lt|while)$", "-o", "-")
    swapped, straight = "  device 0: [3, 4]\n  device 1: [1, 2]\n", "  device 0: [1, 2]\n  device 1: [3, 4]\n"
    test = "loop.hlo:17:9: trace: lt = pred[] compare\n  every device: "
    permute = "loop.hlo:9:4: trace: cp = s32[2] collective-permute\n"
    assert outcome.stderr == (
        f"{test}true\n{permute}{swapped}{test}true\n{permute}{straight}{test}true\n{permute}{swapped}{test}false\n"
        "loop.hlo:24:9: trace: w = (s32[], s32[2]) while\n"
        f"  leaf 0: s32[]\n  every device: 3\n  leaf 1: s32[2]\n{swapped}"
    )
    assert _load(outcome.stdout)["o1"].tolist() == [[3, 4], [1, 2]]


BRANCHES = """HloModule branches
yes {
  x = f32[] parameter(0)
  ROOT a = f32[] add(x, x)
}
no {
  x = f32[] parameter(0)
  ROOT b = f32[] negate(x)
}
ENTRY e {
  p = pred[] parameter(0)
  x = f32[] parameter(1)
  ROOT r = f32[] conditional(p, x, x), true_computation=yes, false_computation=no
}
"""


def test_trace_leaves_out_the_devices_that_are_in_another_branch(folder: Path) -> None:
    (folder / "m.hlo").write_text(BRANCHES)
    argv = ["m.hlo", "--inputs", "in.npz", "--num-partitions", "3", "-o", "out.npz", "--trace", "^[abr]$"]
    head = "m.hlo:{}: trace: {} = f32[] {}\n  "
    a, b, r = (head.format(*p) for p in (("4:8", "a", "add"), ("8:8", "b", "negate"), ("13:8", "r", "conditional")))
    for p, x, expected in (
        ([1, 0, 1], np.float32(3), f"{b}device 1: -3\n{a}devices 0, 2: 6\n{r}devices 0, 2: 6\n  device 1: -3\n"),
        (
            [1, 0, 1],
            np.array([1, 2, 4], np.float32),
            f"{b}device 1: -2\n{a}device 0: 2\n  device 2: 8\n{r}device 0: 2\n  device 1: -2\n  device 2: 8\n",
        ),
        ([1, 1, 1], np.float32(3), f"{a}every device: 6\n{r}every device: 6\n"),
    ):
        _save(folder / "in.npz", p0=np.array(p, bool), p1=x)
        traced = _run(folder, *argv).stderr
        pieces = [sorted(re.split(r"(?=m.hlo:)", text)) for text in (traced, expected)]
        assert pieces[0] == pieces[1]


def test_trace_says_if_nothing_matched(folder: Path) -> None:
    assert _run(folder, "ring.hlo", "--trace", "zzz", "-o", "out.npz").stderr == (
        "ring.hlo:3:8: warning: --trace zzz: no instruction that was run has such a name or opcode\n"
    )


def test_steps_are_bounded(folder: Path) -> None:
    argv = ["loop.hlo", "--inputs", "loop.npz", "--json", "--max-steps"]
    assert json.loads(_run(folder, *argv, str(LOOP_STEPS)).stdout)["steps"] == LOOP_STEPS
    outcome = _run(folder, *argv, str(LOOP_STEPS - 1))
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert outcome.stderr == (
        f"loop.hlo:24:9: error: more than {LOOP_STEPS - 1} instructions were run (--max-steps), at iteration 4 of while"
        " 'w'\n    ROOT %w = (s32[], s32[2]) while(%t), condition=%cond, body=%body\n          ^\n"
        "  hint: a loop may not end; a larger --max-steps lets it run on\n"
    )


def test_a_module_that_takes_one_input(folder: Path) -> None:
    _save(folder / "in.npz", x=P0)
    outcome = _run(folder, "--inputs", "in.npz", stdin=b"ENTRY e { ROOT p = s32[2] parameter(0) }")
    assert outcome.stderr.startswith("<stdin>:1:16: error: no input p0: the entry takes 1 input, p0\n")


def test_memory_is_bounded_before_it_is_taken(folder: Path) -> None:
    big = "ENTRY e {\n  p = f32[1000000000000] parameter(0)\n  ROOT x = f32[] constant(1)\n}\n"
    allowed = "more than the 4,294,967,296 allowed (--max-memory)"
    started = time.monotonic()
    for text, argv, what in (
        (big, [], "the random arguments of one device take 4,000,000,000,000 bytes of memory"),
        (
            IDS,
            ["--num-partitions", "1000000000000"],
            "the ids of 1,000,000,000,000 devices take 8,000,000,000,000 bytes",
        ),
        (
            "ENTRY e { ROOT b = s8[3000000000] broadcast(s8[] constant(1)), dimensions={} }",
            ["--num-partitions", "2", "-o", "out.npz"],
            "the outputs of 2 devices take 6,000,000,000 bytes of memory",
        ),
        (
            "ENTRY e {\n  i = f64[1000000000000] iota(), iota_dimension=0\n  ROOT s = f64[1] slice(i), slice={[0:1]}\n}\n",
            [],
            "the run would take about ",
        ),
    ):
        outcome = _run(folder, *argv, stdin=text.encode())
        assert (outcome.code, outcome.stdout) == (2, b"")
        head, *_, hint = outcome.stderr.splitlines()
        assert re.match(r"<stdin>:\d+:\d+: error: ", head) and what in head and head.endswith(allowed)
        assert hint == "  hint: a larger --max-memory lets it run"
    assert time.monotonic() - started < 30
    outcome = _run(folder, "ring.hlo", "--inputs", "in.npz", "--max-memory", "100")
    assert re.match(r"in.npz: error: its arrays take \d+ bytes of memory, more than the 100 allowed", outcome.stderr)


@pytest.mark.parametrize(
    ("size", "number"),
    [("100", "100"), ("100B", "100"), ("0.1kB", "100"), ("0.1k", "102"), ("0.1 KiB", "102"), ("0.0001MB", "100")],
)
def test_sizes(folder: Path, size: str, number: str) -> None:
    outcome = _run(folder, "ring.hlo", "--inputs", "in.npz", "--max-memory", size)
    assert f"more than the {number} allowed" in outcome.stderr


@pytest.mark.parametrize("size", ["", "2x", "-1", "0", "1e9", "GiB", "9" * 30, "٣"])
def test_what_is_no_size(folder: Path, size: str) -> None:
    outcome = _run(folder, "ring.hlo", "--max-memory", size)
    assert outcome.code == 2
    assert "Invalid value for '--max-memory'" in outcome.stderr


# ---- trouble ---------------------------------------------------------------------------------------------------------

X = "    %x = s32[2]{0} parameter(0)\n     ^\n"
Y = "    %y = bf16[3]{0} parameter(1)\n     ^\n"
ENTRY = "  ENTRY %main (x: s32[2], y: bf16[3]) -> (s32[2], bf16[3]) {\n         ^\n"
P0, P1 = np.zeros(2, np.int32), np.zeros(3, np.uint16)
INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": (
        {"p0": P0},
        f"ring.hlo:5:4: error: no input p1: the entry takes 2 inputs, p0 to p1\n{Y}"
        "  hint: in.npz holds p0; the keys are p0, p1, ... in the parameters' order\n",
    ),
    "nothing": (
        {},
        f"ring.hlo:4:4: error: no input p0: the entry takes 2 inputs, p0 to p1\n{X}"
        "  hint: in.npz holds nothing; the keys are p0, p1, ... in the parameters' order\n",
    ),
    "too_many": (
        {"p0": P0, "p1": P1, "x": P0},
        f"ring.hlo:3:8: error: an input x that no parameter takes: the entry takes 2 inputs\n{ENTRY}"
        "  hint: in.npz holds p0, p1, x; the keys are p0, p1, ... in the parameters' order\n",
    ),
    "devices": (
        {"p0": np.zeros((8, 2), np.int32), "p1": P1},
        "ring.hlo:4:4: error: input p0 has the dimensions [8, 2]; it takes [2] for s32[2], or [4, 2] for one on each of"
        f" 4 devices\n{X}"
        "  hint: the array is for 8 devices, the grid has 4: replica_count 1 (default), num_partitions 4 (header);"
        " --replica-count and --num-partitions set it\n",
    ),
    "shape": (
        {"p0": np.zeros(3, np.int32), "p1": P1},
        "ring.hlo:4:4: error: input p0 has the dimensions [3]; it takes [2] for s32[2], or [4, 2] for one on each of"
        f" 4 devices\n{X}",
    ),
    "type": (
        {"p0": np.zeros(2, np.int64), "p1": P1},
        f"ring.hlo:4:4: error: input p0 has elements of int64, its parameter takes s32\n{X}"
        "  hint: array.astype(numpy.int32) makes it one\n",
    ),
    "type_for_all_devices": (
        {"p0": np.zeros((4, 2), np.int64), "p1": P1},
        f"ring.hlo:4:4: error: input p0 has elements of int64, its parameter takes s32\n{X}"
        "  hint: array.astype(numpy.int32) makes it one\n",
    ),
    "type_of_ours": (
        {"p0": P0, "p1": np.zeros(3, np.float32)},
        f"ring.hlo:5:4: error: input p1 has elements of float32, its parameter takes bf16\n{Y}"
        "  hint: numpy has no bf16: store its bits as uint16\n",
    ),
    "objects": (
        {"p0": np.array([None]), "p1": P1},
        "in.npz: error: cannot read it: Object arrays cannot be loaded when allow_pickle=False\n",
    ),
}


@pytest.mark.parametrize(
    ("element_type", "bits", "message"),
    [
        ("pred", [0, 1, 2], "the value 2, the bits of pred are at most 1 | (array != 0) makes it one"),
        ("s4", [1, 255], "the value 255, the bits of s4 are at most 15 | array & 15 keeps the 4 bits of s4"),
        (
            "f4e2m1fn",
            [16],
            "the value 16, the bits of f4e2m1fn are at most 15 | array & 15 keeps the 4 bits of f4e2m1fn",
        ),
    ],
)
def test_bytes_that_hold_more_than_an_element(folder: Path, element_type: str, bits: list[int], message: str) -> None:
    line = f"  ROOT p = {element_type}[{len(bits)}] parameter(0)"
    _save(folder / "in.npz", p0=np.array(bits, np.uint8))
    outcome = _run(folder, "--inputs", "in.npz", stdin=f"HloModule m\nENTRY e {{\n{line}\n}}\n".encode())
    what, hint = message.split(" | ")
    assert outcome.code == 2
    assert outcome.stderr == f"<stdin>:3:8: error: input p0 has {what}\n  {line}\n         ^\n  hint: {hint}\n"


def test_repeated_pairs_are_a_warning_under_neuron(folder: Path) -> None:
    text = RING.replace("{{0,1},{1,2},{2,3}}", "{{0,3},{1,3},{1,2}}").encode()
    outcome = _run(folder, "--inputs", "in.npz", "--profile", "neuron", "-o", "-", stdin=text)
    warnings = [line for line in outcome.stderr.splitlines() if "warning" in line]
    assert warnings == [
        "<stdin>:6:4: warning: two pairs have the source 1; of pairs with one target the last wins",
        "<stdin>:6:4: warning: two pairs have the target 3; of pairs with one target the last wins",
    ]
    assert _load(outcome.stdout)["o0"].tolist() == [[0, 1], [2, 3], [2, 3], [2, 3]]
    refused = _run(folder, "--inputs", "in.npz", "-o", "-", stdin=text)
    assert refused.code == 2 and "repeats a source or target" in refused.stderr


@pytest.mark.parametrize("case", INPUTS)
def test_inputs_that_do_not_fit(folder: Path, case: str) -> None:
    arrays, message = INPUTS[case]
    _save(folder / "in.npz", **arrays)
    assert _run(folder, "ring.hlo", "--inputs", "in.npz", "-o", "out.npz") == Outcome(2, b"", message)
    assert not (folder / "out.npz").exists()


def test_files_that_are_no_inputs(folder: Path) -> None:
    good = (folder / "in.npz").read_bytes()
    no_npz = (
        "in.npz: error: this is no npz file, or it is cut off\n  hint: numpy.savez(path, p0=..., p1=...) writes one\n"
    )
    one = io.BytesIO()
    np.save(one, P0)
    flipped = bytearray(good)
    flipped[200] ^= 1
    for data, message in (
        (b"", no_npz),
        (b"p0 = 1\n", no_npz),
        (one.getvalue(), no_npz),
        (good[:-40], no_npz),
        (bytes(flipped), "in.npz: error: cannot read it: Bad CRC-32 for file 'p0.npy'\n"),
    ):
        (folder / "in.npz").write_bytes(data)
        assert _run(folder, "ring.hlo", "--inputs", "in.npz") == Outcome(2, b"", message)
    absent = _run(folder, "ring.hlo", "--inputs", "absent.npz").stderr
    assert absent == "absent.npz: error: cannot read it: No such file or directory\n"
    assert _run(folder, "ring.hlo", "--inputs", ".").stderr == ".: error: cannot read it: Is a directory\n"


def test_any_damage_to_the_inputs_is_told_in_words(folder: Path) -> None:
    good = (folder / "in.npz").read_bytes()
    for place in range(0, len(good), 3):
        damaged = bytearray(good)
        damaged[place] ^= 0x5A
        (folder / "in.npz").write_bytes(bytes(damaged))
        outcome = _run(folder, "ring.hlo", "--inputs", "in.npz", "--max-memory", "1MiB")
        assert outcome.code in (0, 2)
        assert outcome.code == 0 or " error: " in outcome.stderr


MODULES: dict[str, tuple[str, list[str], str]] = {
    "unknown_opcode": (
        RING.replace("multiply(", "frobnicate("),
        [],
        "m.hlo:8:19: error: unknown opcode 'frobnicate'\n    %m = bf16[3]{0} frobnicate(%y, %two)\n"
        "                    ^\n",
    ),
    "unsupported_opcode": (
        RING.replace("multiply(%y, %two)", 'custom-call(%y), custom_call_target="f"'),
        [],
        "m.hlo:8:4: error: the executor does not know the custom-call 'f'\n"
        '    %m = bf16[3]{0} custom-call(%y), custom_call_target="f"\n     ^\n'
        "  hint: --custom-call 'f=module:function' supplies it\n",
    ),
    "elided": (
        RING.replace("{1, 2, 0.5}", "{...}"),
        [],
        "m.hlo:7:4: error: an elided constant has no value\n    %two = bf16[3]{0} constant({...})\n     ^\n"
        "  hint: dump with large constants, or give it seeded values by --fill-elided random\n",
    ),
    "outside_the_grid": (
        RING,
        ["--num-partitions", "2", "--quiet"],
        "m.hlo:6:77: error: the pair {1,2} names an id that is not among the 2 of the grid 1 x 2\n"
        "    %cp = s32[2]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3}}\n"
        "  " + " " * 76 + "^\n"
        "  hint: the grid is replica_count 1 (default), num_partitions 2 (flag); --replica-count and --num-partitions set"
        " it\n",
    ),
    "shapes": (
        "ENTRY e {\n  p = f32[2] parameter(0)\n  ROOT x = f32[3] add(p, p)\n}\n",
        [],
        "m.hlo:3:8: error: add: the shape stated is f32[3], the operands make it f32[2]\n"
        "    ROOT x = f32[3] add(p, p)\n         ^\n",
    ),
    "pattern": (
        RING,
        ["--trace", "("],
        "cp2ag: error: --trace is no regular expression: missing ), unterminated subpattern at position 0\n",
    ),
    "no_folder": (
        RING,
        ["-o", "absent/out.npz"],
        "absent/out.npz: error: cannot write it: No such file or directory\n",
    ),
    "folder": (RING, ["-o", "."], ".: error: cannot write it: Is a directory\n"),
}


@pytest.mark.parametrize("case", MODULES)
def test_trouble(folder: Path, case: str) -> None:
    text, argv, message = MODULES[case]
    (folder / "m.hlo").write_text(text)
    before = sorted(folder.iterdir())
    assert _run(folder, "m.hlo", *argv) == Outcome(2, b"", message)
    assert sorted(folder.iterdir()) == before


def test_only_a_part_of_a_group_arrives() -> None:
    outcome = cp2ag("run", HAND / "in_branch_by_replica.hlo")
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert "only a part of a group reaches this collective-permute: devices 0, 1 do, 2, 3 do not" in outcome.stderr


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-", "--inputs", "-"], "stdin cannot be both the module and --inputs: give one of them a file name"),
        (["ring.hlo", "-o", "-", "--print"], "--outputs -, --print and --json each need stdout for themselves"),
        (["ring.hlo", "--json", "--print"], "--outputs -, --print and --json each need stdout for themselves"),
        (["ring.hlo", "-o", "ring.hlo"], "--outputs ring.hlo would overwrite the module"),
    ],
)
def test_requests_that_contradict_themselves(folder: Path, argv: list[str], message: str) -> None:
    outcome = _run(folder, *argv)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert outcome.stderr.endswith(f"Error: {message}\n")
    assert (folder / "ring.hlo").read_text() == RING


def test_a_failure_leaves_the_old_outputs(folder: Path) -> None:
    (folder / "out.npz").write_bytes(b"old")
    assert _run(folder, "loop.hlo", "--max-steps", "5", "-o", "out.npz").code == 2
    assert (folder / "out.npz").read_bytes() == b"old"


# ---- flags, environment, help ----------------------------------------------------------------------------------------

FLAGS: list[tuple[str, str | None]] = [
    ("--inputs", "in.npz"),
    ("--outputs", "-"),
    ("--replica-count", "3"),
    ("--num-partitions", "5"),
    ("--secondary-mesh-count", "16"),
    ("--strict-grid", None),
    ("--profile", "neuron"),
    ("--seed", "3"),
    ("--fill-elided", "random"),
    ("--print", None),
    ("--json", None),
    ("--trace", "cp"),
    ("--max-memory", "64"),
    ("--max-steps", "3"),
    ("--quiet", None),
]
_NEEDS: dict[str, tuple[str, list[str]]] = {
    "--secondary-mesh-count": (RING.replace(", num_partitions=4", ""), []),
    "--strict-grid": (RING.replace(", num_partitions=4", ""), []),
    "--quiet": (RING.replace(", num_partitions=4", ""), []),
    "--fill-elided": (RING.replace("{1, 2, 0.5}", "{...}"), []),
    "--print": (RING, ["-o", "out.npz"]),
}


@pytest.mark.parametrize(("flag", "value"), FLAGS, ids=lambda each: str(each))
def test_environment_variable_is_the_flag(folder: Path, flag: str, value: str | None) -> None:
    text, others = _NEEDS.get(flag, (RING, []))
    (folder / "m.hlo").write_text(text)
    variable = "CP2AG_" + flag.lstrip("-").replace("-", "_").upper()
    plain = _run(folder, "m.hlo", *others)
    with_flag = _run(folder, "m.hlo", *others, flag, *([value] if value is not None else []))
    with_variable = _run(folder, "m.hlo", *others, **{variable: value if value is not None else "1"})
    assert with_variable == with_flag != plain


def test_help_names_every_flag_and_its_examples_run(folder: Path) -> None:
    text = cp2ag("run", "--help").text
    for flag, _ in FLAGS:
        assert flag in text
    examples = text[text.index("Examples:") :].splitlines()[1:]
    assert len(examples) == 2
    ring = RING.replace(", num_partitions=4", "").replace("{{0,1},{1,2},{2,3}}", "{{0,1},{1,2},{7,0}}")
    (folder / "ring.hlo").write_text(ring)
    script = f'cp2ag() {{ {sys.executable} -m hlo_cp2ag "$@"; }}; set -o pipefail; '
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CP2AG_")}
    for example in examples:
        _save(folder / "in.npz", p0=np.zeros((8, 2), np.int32), p1=P1)
        done = subprocess.run(
            ["bash", "-c", script + example], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
    assert (folder / "out.npz").exists()
    assert done.stdout.startswith("o0 = s32[2]\n  device 0: ")
    assert "trace: all-gather = s32[16] all-gather" in done.stderr


def _loaded(*argv: str, cwd: Path) -> set[str]:
    code = """
import sys
from hlo_cp2ag.cli.main import main
try:
    main()
except SystemExit as leave:
    assert not leave.code, leave.code
sys.stderr.write(" ".join({m.split(".")[0] for m in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code, *argv], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_what_is_loaded(folder: Path) -> None:
    assert _loaded("run", "--help", cwd=folder).isdisjoint({"numpy", "ml_dtypes", "rich", "json", "lark"})
    loaded = _loaded("run", "ring.hlo", "-o", "out.npz", cwd=folder)
    assert "numpy" in loaded
    assert loaded.isdisjoint({"rich", "jax"})


def test_sums_do_not_depend_on_the_number_of_threads(folder: Path) -> None:
    (folder / "dot.hlo").write_text(
        "ENTRY e {\n  a = f32[700,1500] parameter(0)\n  b = f32[1500,900] parameter(1)\n"
        "  ROOT r = f32[700,900] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    written = []
    for threads in ("1", "2"):
        subprocess.run(
            [sys.executable, "-m", "hlo_cp2ag", "run", "dot.hlo", "--seed", "1", "-o", f"{threads}.npz"],
            cwd=folder,
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            check=True,
        )
        written.append((folder / f"{threads}.npz").read_bytes())
    assert written[0] == written[1]


# ---- on a terminal ---------------------------------------------------------------------------------------------------


def _on_a_terminal(cwd: Path, *argv: str) -> tuple[int, str]:
    """Exit code and what a terminal sees, of a run that counts as long from its start on."""
    code = "import hlo_cp2ag.cli.run as r; r._BAR_AFTER = 0; from hlo_cp2ag.cli.main import main; main()"
    main_end, other_end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *argv], cwd=cwd, stdout=other_end, stderr=other_end, env=environment
    )
    os.close(other_end)
    seen = b""
    while select.select([main_end], [], [], 30)[0]:
        try:
            data = os.read(main_end, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(main_end)
    return process.wait(30), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())


def test_a_long_run_shows_a_bar_on_a_terminal(folder: Path) -> None:
    (folder / "long.hlo").write_text(LOOP.replace("constant(3)", "constant(100000)"))
    code, seen = _on_a_terminal(folder, "run", "long.hlo", "--max-steps", "1000000", "-o", "out.npz")
    steps = 3 + 100_001 * 3 + 100_000 * 6
    assert code == 0
    assert re.search(r"running .* [\d,]+ instructions 0:00:0\d", seen)
    assert seen.endswith(
        f"ran {steps:,} instructions on 1 x 2 devices; replica_count 1 (default), num_partitions 2 (header) -> out.npz\r\n"
    )


def test_the_bar_is_gone_when_an_error_is_shown(folder: Path) -> None:
    (folder / "long.hlo").write_text(LOOP.replace("constant(3)", "constant(100000000)"))
    code, seen = _on_a_terminal(folder, "run", "long.hlo", "--max-steps", "3000000")
    assert code == 2
    assert "instructions 0:00" in seen
    assert seen.endswith("hint: a loop may not end; a larger --max-steps lets it run on\r\n")
    traced = _on_a_terminal(folder, "run", "loop.hlo", "--trace", "lt")[1]
    assert "running" not in traced and "trace: lt" in traced


def test_counts_below_1_are_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(RING)
    outcome = cp2ag("run", "m.hlo", "--num-partitions", "0", cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert "0 is not in the range x>=1" in outcome.stderr
