"""The engine on real XLA: what it computes on every grid, and that the caller survives what XLA does to its process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo_cp2ag
from hlo_cp2ag.engines.xla import XlaRun, one_line, run_on_xla
from tests.xla.judge import available

needs_xla = pytest.mark.skipif(available() is not None, reason=str(available()))

RING = "channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
ADD = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }"

DIVERGENT = """HloModule divergent
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
PERMUTE_IN_FUSION = """HloModule fused, is_scheduled=true
f { a = f32[2]{0} parameter(0) ROOT r = f32[2]{0} collective-permute(a), channel_id=1, source_target_pairs={{0,1}} }
ENTRY main {
  p = f32[2]{0} parameter(0)
  ROOT r = f32[2]{0} fusion(p), kind=kLoop, calls=f
}
"""


def module(*lines: str, element: str = "f32[2]") -> str:
    return "\n".join(["HloModule m", "", "ENTRY main {", f"  p = {element} parameter(0)", *lines, "}", ""])


def numbers(devices: int) -> np.ndarray[Any, Any]:
    return np.arange(1, 2 * devices + 1, dtype=np.float32).reshape(devices, 2)


def only(runs: list[XlaRun]) -> XlaRun:
    assert len(runs) == 1
    return runs[0]


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No file stays behind, and no process that nobody has waited for."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = os.environ.get("XLA_FLAGS")
    yield
    assert os.environ.get("XLA_FLAGS") == before
    assert list(tmp_path.glob("cp2ag-xla-*")) == []
    if sys.platform.startswith("linux"):
        assert [pid for pid in _children() if b"xla_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()] == []
        assert [pid for pid in _children() if Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"] == []


def _children() -> list[str]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [pid for task in tasks for pid in task.read_text().split()]


# ---- what it computes ------------------------------------------------------------------------------------------------


@needs_xla
def test_a_ring_of_partitions() -> None:
    p = numbers(4)
    run = only(run_on_xla([module(f"ROOT r = f32[2] collective-permute(p), {RING}")], [p], 1, 4))
    assert (run.status, run.reason) == ("ran", "")
    assert np.array_equal(run.outputs[0], p[[3, 0, 1, 2]])


@needs_xla
def test_a_ring_of_replicas_whose_header_says_nothing_or_something_else() -> None:
    text = module("ROOT r = f32[2] collective-permute(p), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}")
    p = numbers(4)
    for run in run_on_xla(
        [text, text.replace("HloModule m", "HloModule m, replica_count=2, num_partitions=3")], [p], 4
    ):
        assert np.array_equal(run.outputs[0], p[[3, 0, 1, 2]])


@needs_xla
def test_text_from_before_layouts_on_two_replicas_of_four_partitions() -> None:
    text = "\n".join(
        [
            "HloModule m",
            ADD,
            "ENTRY main {",
            "  p = f32[2,3] parameter(0), sharding={devices=[4,1,2]<=[8] last_tile_dim_replicate}",
            "  g = f32[2,12] all-gather(p), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={1}, "
            "use_global_device_ids=true",
            "  s = f32[2,3] all-reduce(p), replica_groups={{0,1}}, to_apply=add",
            "  q = f32[2,3] collective-permute(p), source_target_pairs={{0,1}}",
            f"  c = f32[2,3] collective-permute(p), {RING.replace('=1,', '=2,')}",
            "  partition = u32[] partition-id()",
            "  replica = u32[] replica-id()",
            "  ROOT t = (f32[2,12], f32[2,3], (f32[2,3], f32[2,3]), u32[], u32[]) tuple(g, s, qc, partition, replica)",
            "}",
        ]
    ).replace("  partition =", "  qc = (f32[2,3], f32[2,3]) tuple(q, c)\n  partition =")
    p = np.arange(48, dtype=np.float32).reshape(8, 2, 3)
    run = only(run_on_xla([text], [p], 2, 4))
    assert run.status == "ran", run.reason
    gathered, summed, across, ring, partition, replica = run.outputs
    for replica_id in range(2):
        for partition_id in range(4):
            device = 4 * replica_id + partition_id
            mine = p[4 * replica_id : 4 * replica_id + 4]
            assert np.array_equal(gathered[device], np.concatenate(mine, axis=1))
            assert np.array_equal(summed[device], p[partition_id] + p[4 + partition_id])
            assert np.array_equal(across[device], p[partition_id] if replica_id else np.zeros((2, 3)))
            assert np.array_equal(ring[device], mine[partition_id - 1])
            assert (partition[device], replica[device]) == (partition_id, replica_id)


@needs_xla
@pytest.mark.parametrize(
    "element_type", ["f8e4m3fn", "f8e5m2", "bf16", "f16", "s4", "u4", "c64", "c128", "pred", "s8", "u64"]
)
def test_element_types_keep_their_bits(element_type: str) -> None:
    names = {"f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "bf16": "bfloat16", "s4": "int4", "u4": "uint4"}
    others = {"f16": "float16", "c64": "complex64", "c128": "complex128", "pred": "bool", "s8": "int8", "u64": "uint64"}
    name = {**names, **others}[element_type]
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    p = (np.arange(12).reshape(4, 3) % (2 if element_type == "pred" else 7)).astype(dtype)
    text = module(f"ROOT r = {element_type}[3] collective-permute(p), {RING}", element=f"{element_type}[3]")
    run = only(run_on_xla([text], [p], 1, 4))
    assert run.status == "ran", run.reason
    assert run.outputs[0].dtype == dtype
    assert run.outputs[0].tobytes() == p[[3, 0, 1, 2]].tobytes()
    assert [a.dtype for a in hlo_cp2ag.run(hlo_cp2ag.parse(text), [p], 1, 4)] == [dtype]


@needs_xla
def test_nan_payloads_and_negative_zero_go_through() -> None:
    bits = np.array([[0x7FC01234, 0x80000000], [0xFFC00001, 0x7F800000]], np.uint32)
    text = module("ROOT r = f32[2] collective-permute(p), channel_id=1, source_target_pairs={{0,1},{1,0}}")
    run = only(run_on_xla([text], [bits.view(np.float32)], 1, 2))
    assert np.array_equal(run.outputs[0].view(np.uint32), bits[::-1])


@needs_xla
def test_tuples_and_tokens_of_the_signature() -> None:
    text = """HloModule m
ENTRY main {
  p = (f32[2], (s32[])) parameter(0)
  x = f32[2] get-tuple-element(p), index=0
  q = (s32[]) get-tuple-element(p), index=1
  y = s32[] get-tuple-element(q), index=0
  ROOT r = (s32[], (f32[2])) tuple(y, z)
}
""".replace("  ROOT", "  z = (f32[2]) tuple(x)\n  ROOT")
    run = only(run_on_xla([text], [numbers(2), np.array([5, 6], np.int32)], 2, 1))
    assert run.status == "ran", run.reason
    assert run.outputs[0].tolist() == [5, 6]
    assert np.array_equal(run.outputs[1], numbers(2))
    token = module("k = token[] after-all()", "ROOT r = (token[], f32[2]) tuple(k, p)")
    run = only(run_on_xla([token], [numbers(2)], 2, 1))
    assert run.status == "ran", run.reason
    assert [a.tolist() for a in run.outputs] == [numbers(2).tolist()]


@needs_xla
def test_the_same_array_on_all_devices() -> None:
    p = np.broadcast_to(np.float32([1, 2]), (4, 2))
    run = only(run_on_xla([module("ROOT r = f32[2] negate(p)")], [p], 1, 4))
    assert np.array_equal(run.outputs[0], -p)


@needs_xla
def test_scheduled_text_runs_as_it_stands_and_layouts_are_obeyed() -> None:
    # The bitcast shows the memory: column-major [[1, 2, 3], [4, 5, 6]] is 1 4 2 5 3 6.
    text = """HloModule m, is_scheduled=true
ENTRY main {
  p = f32[2,3]{0,1} parameter(0)
  ROOT r = f32[6]{0} bitcast(p)
}
"""
    p = np.arange(1, 7, dtype=np.float32).reshape(1, 2, 3)
    run = only(run_on_xla([text], [p]))
    assert run.status == "ran", run.reason
    assert run.outputs[0].tolist() == [[1, 4, 2, 5, 3, 6]]


# ---- what XLA does to its process ------------------------------------------------------------------------------------


@needs_xla
def test_a_hang_an_abort_and_refusals_are_told_apart_and_the_texts_between_them_run() -> None:
    fine = module("ROOT r = f32[2] negate(p)")
    outside = module("ROOT r = f32[2] collective-permute(p), channel_id=1, source_target_pairs={{0,9}}")
    texts = [fine, DIVERGENT, fine, module("ROOT r = f32[2] negat(p)"), outside, fine]
    runs = run_on_xla(texts, [numbers(2)], 1, 2, time_limit=4)
    assert [run.status for run in runs] == ["ran", "hung", "ran", "refused", "refused", "ran"]
    assert runs[1].reason.startswith("no answer from XLA within 4 s") and 4 <= runs[1].seconds < 30
    assert "collective permute" in runs[1].reason
    assert "Unknown opcode: negat" in runs[3].reason
    assert "Target 9" in runs[4].reason
    assert all("\n" not in run.reason for run in runs)
    assert all(bool(run.outputs) == (run.status == "ran") for run in runs)
    assert np.array_equal(runs[5].outputs[0], -numbers(2))


@needs_xla
def test_an_abort_is_named_and_the_next_text_runs() -> None:
    fine = module("ROOT r = f32[2] negate(p)")
    runs = run_on_xla([PERMUTE_IN_FUSION, fine], [numbers(2)], 1, 2, time_limit=60)
    assert [run.status for run in runs] == ["aborted", "ran"]
    assert runs[0].reason.startswith("XLA's process ended with signal SIG")
    assert "\n" not in runs[0].reason


@needs_xla
def test_stop_ends_with_the_first_text_that_does_not_run() -> None:
    fine = module("ROOT r = f32[2] negate(p)")
    runs = run_on_xla([fine, module("ROOT r = f32[2] negat(p)"), fine], [numbers(2)], 1, 2, stop=True)
    assert [run.status for run in runs] == ["ran", "refused"]


@needs_xla
def test_scheduled_text_with_a_tuple_parameter_is_no_question_for_xla() -> None:
    text = "HloModule m, is_scheduled=true\nENTRY e { p = (f32[2]{0}) parameter(0) "
    text += "ROOT r = f32[2]{0} get-tuple-element(p), index=0 }"
    run = only(run_on_xla([text], [numbers(1)]))
    assert run.status == "unsupported" and "(f32[2]" in run.reason


# ---- without XLA -----------------------------------------------------------------------------------------------------


def test_without_jaxlib_every_text_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "stub" / "jax"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text("raise ImportError('there is no jaxlib here\\nat all')\n")
    monkeypatch.setenv("PYTHONPATH", str(stub.parent))
    runs = run_on_xla([module("ROOT r = f32[2] negate(p)")] * 2, [numbers(2)], 1, 2)
    assert [run.status for run in runs] == ["missing", "missing"]
    if available() is None:
        assert runs[0].reason == "jax cannot be loaded: there is no jaxlib here"
    else:
        assert "is not installed" in runs[0].reason or "too old" in runs[0].reason


def test_an_old_jaxlib_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("jax", "jaxlib"):
        info = tmp_path / "stub" / f"{package}-0.4.30.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.4.30\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    run = only(run_on_xla([module("ROOT r = f32[2] negate(p)")], [numbers(2)], 1, 2))
    assert (run.status, run.reason) == ("missing", "jax 0.4.30 is too old, 0.10.2 is needed")


def test_a_file_named_jax_in_the_callers_directory_is_not_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jax.py").write_text("raise SystemExit('the wrong jax')\n")
    monkeypatch.chdir(tmp_path)
    run = only(run_on_xla([module("ROOT r = f32[2] negate(p)")], [numbers(1)]))
    assert run.status == ("ran" if available() is None else "missing")


def test_a_worker_that_dies_at_its_start_is_reported_for_all_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nprint('F0101 here.cc:1] out of sorts', file=sys.stderr, flush=True)\nos.abort()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    runs = run_on_xla([module("ROOT r = f32[2] negate(p)")] * 2, [numbers(1)])
    assert [run.status for run in runs] == ["aborted"] * 2
    assert runs[0].reason == "XLA's process ended with signal SIGABRT while it loaded jax: out of sorts"


def test_bad_questions_are_errors() -> None:
    with pytest.raises(hlo_cp2ag.HloError, match="0 x 2 has no devices"):
        run_on_xla([""], [], 0, 2)
    with pytest.raises(hlo_cp2ag.HloError, match=r"input p0 has the dimensions \[3, 2\]; the first one has to be 2"):
        run_on_xla([""], [numbers(3)], 1, 2)


def test_reasons_are_one_short_line() -> None:
    assert one_line("\n  \n the first \nthe second") == "the first"
    assert len(one_line("x" * 1000)) == 400
    assert one_line("") == ""
