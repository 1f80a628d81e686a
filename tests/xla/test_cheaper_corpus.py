"""The corpus with every combination of the flags that make gathers cost less: proved, and the same bits on XLA."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

import hlo_cp2ag
from tests.corpus import SHARED, needs_corpus, read

from .judge import Judge
from .test_corpus_runs import JAX, check_same_bits, chosen, corpus_case, corpus_id, header_counts

COMBINATIONS: list[dict[str, Any]] = [
    {"async_": a, "groups": g, "share_gathers": share, "simplify": simplify, "max_gather_bytes": bound}
    for a, g, share, simplify, bound in product(
        ("keep", "convert"), ("all", "minimal"), (False, True), (False, True), (None, 64)
    )
]
ALL_AT_ONCE: dict[str, Any] = {"async_": "convert", "groups": "minimal", "share_gathers": True, "simplify": True}
FOLDERS = sorted({path.parent for path in JAX})
ASYNC = sorted(SHARED.glob("xla_hlo/import_async_hlo__*.hlo"))
MODELS = sorted((SHARED / "models").iterdir()) if SHARED.is_dir() else []


def params(paths: list[Path]) -> list[Any]:
    return [pytest.param(p, id=corpus_id(p), marks=() if chosen(p, FOLDERS) else pytest.mark.sweep) for p in paths]


def rewrites(text: str, **counts: Any) -> list[hlo_cp2ag.RewriteResult]:
    """One result for each text that some combination gives."""
    module = hlo_cp2ag.parse(text)
    found = {}
    for options in COMBINATIONS:
        result = hlo_cp2ag.rewrite(module, **counts, **options)
        assert all(site.reason for site in result.left)
        found.setdefault(result.text, result)
    return list(found.values())


@needs_corpus
@pytest.mark.parametrize("path", params(JAX))
def test_programs_are_proved_with_every_combination(path: Path) -> None:
    case = corpus_case(path)
    counts = {"replica_count": case.replicas, "num_partitions": case.partitions}
    for result in rewrites(case.text, **counts):
        verdict = hlo_cp2ag.verify(result.source, result.module, **counts, run=False, same_constants=True)
        assert verdict.ok, (result.options, verdict.sites, verdict.untouched)


@needs_corpus
@pytest.mark.parametrize("path", params(JAX))
def test_programs_compute_the_same_with_all_at_once(judge: Judge, path: Path) -> None:
    case = corpus_case(path)
    if case.how == "inject" and "is_scheduled=true" not in case.text:
        simplify = False  # before copy insertion a result may be a parameter
    else:
        simplify = True
    module = hlo_cp2ag.parse(case.text, case.filename)
    counts = {"replica_count": case.replicas, "num_partitions": case.partitions}
    result = hlo_cp2ag.rewrite(module, **counts, **{**ALL_AT_ONCE, "simplify": simplify})
    assert not result.left
    check_same_bits(judge, case, result.text)


@needs_corpus
@pytest.mark.sweep
@pytest.mark.parametrize("options", COMBINATIONS, ids=lambda options: "-".join(str(v) for v in options.values()))
@pytest.mark.parametrize("path", [p for p in JAX if chosen(p, FOLDERS)], ids=corpus_id)
def test_programs_compute_the_same_with_every_combination(judge: Judge, path: Path, options: dict[str, Any]) -> None:
    case = corpus_case(path)
    if options["simplify"] and case.how == "inject" and "is_scheduled=true" not in case.text:
        pytest.skip("before copy insertion a result may be a parameter")
    module = hlo_cp2ag.parse(case.text, case.filename)
    counts = {"replica_count": case.replicas, "num_partitions": case.partitions}
    check_same_bits(judge, case, hlo_cp2ag.rewrite(module, **counts, **options).text)


@needs_corpus
@pytest.mark.parametrize("path", ASYNC, ids=lambda path: path.stem)
def test_async_modules_are_proved_with_every_combination(path: Path) -> None:
    for result in rewrites(read(path)):
        assert not result.left or result.options.async_ == "keep" or result.options.max_gather_bytes is not None
        if result.changed:
            assert hlo_cp2ag.verify(result.source, result.module, run=False).ok


@needs_corpus
@pytest.mark.parametrize("path", [p for p in MODELS if p.stat().st_size < 1_000_000], ids=lambda path: path.name)
def test_models_are_proved_with_all_at_once(path: Path) -> None:
    text = read(path)
    replicas, partitions = header_counts(text)
    module = hlo_cp2ag.parse(text)
    counts = {"replica_count": replicas, "num_partitions": partitions} if replicas * partitions > 1 else {}
    result = hlo_cp2ag.rewrite(module, **counts, **ALL_AT_ONCE)  # type: ignore[arg-type]
    if result.changed:
        verdict = hlo_cp2ag.verify(module, result.module, **counts, run=False, same_constants=True)  # type: ignore[arg-type]
        assert all(site.outcome == "shown" for site in verdict.sites), verdict.sites
        assert verdict.untouched.outcome == "shown", verdict.untouched


@needs_corpus
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_models_are_rewritten_and_the_rest_stays(path: Path) -> None:
    text = read(path)
    result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(text), **ALL_AT_ONCE)
    assert not result.left
    assert all(site.groups or site.simplified for site in result.rewritten)
    assert " collective-permute" not in result.text or not result.changed
