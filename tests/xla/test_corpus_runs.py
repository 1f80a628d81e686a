"""Real modules, rewritten and run on XLA: every output has the bits that the permutes gave."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo_cp2ag

from .judge import Judge, XlaTimedOut, bit_equal
from .judge_worker import element_type

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
CORPUS = ROOT.parent / "shared" / "corpus"
JAX = sorted(CORPUS.glob("jax/*/*.hlo"))
COLLECTIVES = sorted(
    p for p in CORPUS.glob("stablehlo_collectives/*/module.hlo") if " collective-permute(" in p.read_text()
)
NO_CORPUS = "the corpus lies beside a checkout, in ../shared/corpus; it is not part of the project"
PERMUTE = re.compile(r" collective-permute(?:-start)?\(")

# Compiled from the start, XLA may contract a multiply and the add behind it into one rounding or leave them, depending
# on what else is in the fusion. Here the gather's slice is fused with them and the permute is not: one element of 48
# differs in its last bit. With whole numbers as inputs nothing is rounded, and every bit agrees.
ROUNDED_INPUTS = {("linear_recurrence_scan", "after_spmd"): 4}


@dataclass(frozen=True)
class Case:
    """One module with inputs and the grid that they are for."""

    text: str
    filename: str
    replicas: int
    partitions: int
    args: list[np.ndarray]
    how: str


def rewritten(case: Case, **options: Any) -> hlo_cp2ag.RewriteResult:
    module = hlo_cp2ag.parse(case.text, case.filename)
    return hlo_cp2ag.rewrite(module, replica_count=case.replicas, num_partitions=case.partitions, **options)


def check_same_bits(judge: Judge, case: Case, after: str) -> None:
    before = judge.run(case.text, case.replicas, case.partitions, case.args, how=case.how)
    outputs = judge.run(after, case.replicas, case.partitions, case.args, how=case.how)
    assert len(before) == len(outputs)
    for number, (old, new) in enumerate(zip(before, outputs, strict=True)):
        assert bit_equal(old, new), f"output {number} of {case.filename}"


# --------------------------------------------------------------------------------------------------------------------
# The corpus


def corpus_case(path: Path) -> Case:
    folder = path.parent
    meta = json.loads((folder / "meta.json").read_text())
    replicas, partitions = meta["replica_count"], meta["num_partitions"]
    arrays = np.load(folder / "inputs.npz")
    if "parameters" in meta:  # element types that numpy lacks are stored as integers of their width
        args = [_as_type(arrays[p["npz"]], element_type(p["dtype"])) for p in meta["parameters"]]
    else:
        args = [arrays[f"i{n}"] for n in range(len(meta["input_shapes"]))]
    scale = ROUNDED_INPUTS.get((folder.name, path.stem))
    if scale:
        args = [np.round(arg * scale) for arg in args]
    text = path.read_bytes().decode()
    if path.stem == "module":
        text = without_the_tuple_of_one(text)
    early = path.stem in ("after_spmd", "source", "module")  # from before XLA's layout and copy passes
    variadic = re.search(r" collective-permute\(%?[\w.]+,", text) is not None  # StableHLO has no such thing
    how = "recompile" if early and 1 in (replicas, partitions) and not variadic else "inject"
    return Case(text, str(path), replicas, partitions, args, how)


def without_the_tuple_of_one(text: str) -> str:
    """The module with its only result as ROOT: the stand-in that XLA compiles before an injection cannot return (x)."""
    text, tuples = re.subn(r"\n  ROOT %t = \([^()]*\) tuple\(%o\)(?=\n)", "", text)
    text, roots = re.subn(r"\n  (?=%o = )", "\n  ROOT ", text)
    text, headers = re.subn(r"->\(([^()]*)\)", r"->\1", text)
    text, signatures = re.subn(r"-> \(([^()]*)\) \{", r"-> \1 {", text)
    assert (tuples, roots, headers, signatures) == (1, 1, 1, 1)
    return text


def _as_type(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    return array if array.dtype == dtype else array.view(dtype)


STAGES = ("pre_scheduler", "final", "after_spmd")


def programs() -> list[Any]:
    """Every text of every program: one stage each by default, in turn; the others and the longest under `sweep`."""
    folders = sorted({path.parent for path in JAX})
    return [pytest.param(p, id=corpus_id(p), marks=() if chosen(p, folders) else pytest.mark.sweep) for p in JAX]


def chosen(path: Path, folders: list[Path]) -> bool:
    stage = STAGES[folders.index(path.parent) % 3]
    wanted = "source" if stage == "after_spmd" and path.with_name("source.hlo").exists() else stage
    return path.stem == wanted and path.stat().st_size < 50_000


def corpus_id(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.skipif(not JAX, reason=NO_CORPUS)
@pytest.mark.parametrize("path", programs())
def test_jax_programs_compute_the_same(judge: Judge, path: Path) -> None:
    case = corpus_case(path)
    result = rewritten(case)
    counted = json.loads((path.parent / "meta.json").read_text())["collective_permutes"][path.name]
    assert len(result.sites) == counted
    assert len(result.rewritten) == counted > 0
    assert not any(site.needs_all_devices for site in result.sites)
    assert PERMUTE.search(result.text) is None
    check_same_bits(judge, case, result.text)


@pytest.mark.skipif(not JAX, reason=NO_CORPUS)
@pytest.mark.parametrize("path", [p for k, p in enumerate(programs()) if k % 3 == k // 9 % 3])  # a third, all stages
def test_jax_programs_compute_the_same_with_names_kept(judge: Judge, path: Path) -> None:
    case = corpus_case(path)
    check_same_bits(judge, case, rewritten(case, names="keep").text)


@pytest.mark.skipif(not COLLECTIVES, reason=NO_CORPUS)
@pytest.mark.parametrize("names", ["fresh", "keep"])
@pytest.mark.parametrize("path", COLLECTIVES, ids=lambda path: path.parent.name)
def test_stablehlo_cases_compute_the_same(judge: Judge, path: Path, names: str) -> None:
    case = corpus_case(path)
    result = rewritten(case, names=names)
    assert len(result.rewritten) == 1
    check_same_bits(judge, case, result.text)


# --------------------------------------------------------------------------------------------------------------------
# Fixtures

COUNTS = {"no_header": (4, 1), "grid_without_counts": (1, 4)}
REFUSED = {  # what the pass says of fixtures that it refuses
    "channel_id_largest": "channel",
    "pairs_duplicate_sources": "two pairs have the source",
    "pairs_duplicate_targets": "two pairs have the target",
    "pairs_negative": "ids are 0 or more",
    "pairs_outside_grid": "but the grid has",
}
TOO_EARLY = "injecting needs text from behind XLA's {} pass, and this fixture is from before it"
CANNOT_RUN = {
    ("in_branch_by_replica", "recompile"): "XLA's own permute waits forever: devices 2 and 3 never come",
    ("in_branch_by_replica", "inject"): "XLA's own permute waits forever: devices 2 and 3 never come",
    ("in_both_branches_by_replica", "recompile"): "waits forever, as the rewrite warns; a test of its own holds that",
    ("in_both_branches_by_replica", "inject"): "waits forever, as the rewrite warns; a test of its own holds that",
    ("async_start_done", "inject"): "XLA's CPU backend has no asynchronous permutes but through its whole pipeline",
    (
        "async_calls_a_permute",
        "inject",
    ): "XLA's CPU backend has no asynchronous permutes but through its whole pipeline",
    ("in_called_computation", "inject"): TOO_EARLY.format("call inlining"),
    ("in_while_body", "inject"): TOO_EARLY.format("copy insertion"),
    ("used_many_times", "inject"): TOO_EARLY.format("copy insertion"),
    ("variadic", "recompile"): "StableHLO, which XLA recompiles from, has no permute of several operands",
    **{
        (
            f"type_{name}",
            "inject",
        ): "the judge injects packed types only with E(n) in the layout, as layout_s4_packed has it"
        for name in ("s2", "u2", "s4", "u4")
    },
}


def header_counts(text: str) -> tuple[int, int]:
    replicas, partitions = (re.search(rf"\b{name}=(\d+)", text) for name in ("replica_count", "num_partitions"))
    return int(replicas[1]) if replicas else 1, int(partitions[1]) if partitions else 1


def fixture_case(judge: Judge, path: Path, how: str) -> Case:
    text = path.read_bytes().decode()
    name, _, stage = path.stem.partition(".")
    counts = header_counts((path.with_name(f"{name}.final.hlo") if stage else path).read_text())
    replicas, partitions = COUNTS.get(name, counts)
    args = judge.random_inputs(text, replicas * partitions, seed=11)
    return Case(text, path.name, replicas, partitions, args, how)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("jax/*.hlo")), ids=lambda path: path.stem)
def test_jax_fixtures_compute_the_same(judge: Judge, path: Path) -> None:
    case = fixture_case(judge, path, "recompile" if ".after_spmd" in path.name else "inject")
    result = rewritten(case)
    assert len(result.rewritten) == len(result.sites) > 0
    check_same_bits(judge, case, result.text)


@pytest.mark.parametrize("how", ["recompile", "inject"])
@pytest.mark.parametrize("path", sorted(FIXTURES.glob("hand/*.hlo")), ids=lambda path: path.stem)
def test_hand_written_fixtures_compute_the_same(judge: Judge, path: Path, how: str) -> None:
    text = path.read_bytes().decode()
    replicas, partitions = COUNTS.get(path.stem, header_counts(text))
    if path.stem in REFUSED:
        with pytest.raises(hlo_cp2ag.HloError, match=REFUSED[path.stem]):
            hlo_cp2ag.rewrite(hlo_cp2ag.parse(text), replica_count=replicas, num_partitions=partitions)
        return
    result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(text), replica_count=replicas, num_partitions=partitions)
    if not result.changed:
        assert result.text == text
        assert all(site.reason for site in result.sites)
        return
    if (path.stem, how) in CANNOT_RUN:
        pytest.skip(CANNOT_RUN[path.stem, how])
    if how == "recompile" and min(replicas, partitions) > 1:
        pytest.skip("the judge recompiles one-dimensional grids only; the injected run covers this one")
    check_same_bits(judge, fixture_case(judge, path, how), result.text)


def test_a_gather_under_a_divergent_predicate_is_warned_of_and_waits_forever(own_judge: Judge) -> None:
    path = FIXTURES / "hand" / "in_both_branches_by_replica.hlo"
    judge = own_judge  # it dies here
    case = fixture_case(judge, path, "recompile")
    result = rewritten(case)
    assert [site.needs_all_devices for site in result.rewritten] == [True, True]
    assert len([w for w in result.warnings if "all devices must arrive here together" in str(w)]) == 2
    judge.run(case.text, 4, 1, case.args, how="recompile")
    with pytest.raises(XlaTimedOut):
        judge.run(result.text, 4, 1, case.args, how="recompile", timeout=4)
