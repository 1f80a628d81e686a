"""`check` accepts and refuses what XLA's text parser accepts and refuses."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text.checker import check_module
from hlo_cp2ag.text.parser import parse
from tests.text.xla_parser import XlaParser

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT.parent / "shared" / "corpus"
PROBES = ROOT / "fixtures" / "probes.jsonl"

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here (../shared/corpus)")

KNOWN_DIFFERENCES: dict[str, str] = {
    "replica_groups=[-2,2]<=[4]": "XLA takes a negative number of groups, which nothing can mean",
    'origin={({"a"}, {"b"}}': "XLA does not miss the parenthesis; brackets have to close here",
    "origin={)}": "XLA takes the parenthesis off an empty list; brackets have to open here",
}
"""Probes on which we differ knowingly: XLA accepts them, we do not."""

# Where XLA aborts its process there is no verdict to agree with: `check` refuses these texts, with a message.
# What else differs, and is in no probe: XLA's lexer needs no blank after a number, `index=1ROOT x = ...` is two
# instructions to it, an error to us; a layout's dimension may be negative there outside of tuples, `f32[2]{-1}`; and
# `input_output_alias={ {}: (, {}) }`, with no parameter's number at all, passes. A NUL byte may stand in a string there.
# Spatial dimensions that are not numbered from 0, `dim_labels=b02f_02io->b02f`, make XLA write past the end of a list:
# sometimes it aborts, sometimes it accepts.


@pytest.fixture(scope="module")
def xla() -> Iterator[XlaParser]:
    parser = XlaParser()
    yield parser
    parser.close()


def _probes(path: Path) -> Iterator[tuple[str, str, str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        probe = json.loads(line)
        yield probe["probe"], probe["text"], probe["verdict"]


def _verdict(text: str, *, batch: bool = True) -> str:
    try:
        check_module(parse(text), batch=batch)
    except HloSyntaxError as error:
        assert error.message
        assert error.line >= 1
        return "reject"
    return "accept"


def _message(text: str, *, batch: bool) -> str:
    try:
        check_module(parse(text), batch=batch)
    except HloSyntaxError as error:
        return str(error)
    return ""


def _compare(path: Path) -> list[str]:
    different = []
    for probe, text, xla in _probes(path):
        ours = _verdict(text)
        if ours != ("reject" if xla == "crash" else xla) and probe not in KNOWN_DIFFERENCES:
            different.append(f"{probe}: XLA says {xla}, we say {ours}")
    return different


def test_probes() -> None:
    assert _compare(PROBES) == []


def test_known_differences_are_differences() -> None:
    verdicts = {probe: (_verdict(text), xla) for probe, text, xla in _probes(PROBES) if probe in KNOWN_DIFFERENCES}
    assert verdicts == dict.fromkeys(KNOWN_DIFFERENCES, ("reject", "accept"))


def test_probes_say_the_same_in_both_ways() -> None:
    """The batch path and the path that looks at each instruction by itself give the same messages."""
    for probe, text, _ in _probes(PROBES):
        assert _message(text, batch=True) == _message(text, batch=False), probe


@needs_corpus
def test_probes_of_the_corpus() -> None:
    assert _compare(CORPUS / "probes.jsonl") == []


def _corpus_files() -> list[Path]:
    return sorted(CORPUS.glob("**/*.hlo")) if CORPUS.is_dir() else []


@needs_corpus
def test_corpus_is_accepted_in_both_ways() -> None:
    for path in _corpus_files():
        text = path.read_bytes().decode()
        assert _message(text, batch=True) == "", path
        if len(text) < 300_000 or os.environ.get("CP2AG_SWEEP"):
            assert _message(text, batch=False) == "", path


@pytest.mark.sweep
@needs_corpus
def test_large_corpus_files_one_by_one() -> None:
    for path in _corpus_files():
        if path.stat().st_size >= 300_000:
            assert _message(path.read_bytes().decode(), batch=False) == "", path


def test_fixtures_are_accepted() -> None:
    for path in sorted((ROOT / "fixtures").glob("[hj]*/*.hlo")):
        assert _verdict(path.read_bytes().decode()) == "accept", path


def test_probes_are_what_xla_says(xla: XlaParser) -> None:
    """The verdicts on file are those of the XLA at hand; a sample, since a crash costs a process."""
    rng = random.Random(7)
    probes = [p for p in _probes(PROBES) if p[2] != "crash"]
    for probe, text, verdict in rng.sample(probes, 400):
        assert xla.ask(text)[0].replace("refuse", "reject") == verdict, probe


# ---- mutations -----------------------------------------------------------------------------------------------------

_TOKENS = re.compile(r'"[^"\n]*"|%?[A-Za-z_][\w.\-]*[=:]?|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|<=|->|\s+|.', re.DOTALL)
_COMMON = (
    *(
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        "=",
        " ",
        "%",
        "0",
        "1",
        "-1",
        "true",
        "ROOT ",
        "f32[] ",
        "f32[2]",
        "add(",
        '"x"',
        ":",
    ),
    *("x", "metadata={}", ', metadata={op_name="a"}', "tuple", "\n"),
)
_GLUED = re.compile(r"[)}\d](?:ROOT|ENTRY|FileNames|[a-z%][\w.\-]* ?=|-\d)|\{-\d|\(, |origin=")
"""What a mutation may make that XLA forgives and we do not (see KNOWN_DIFFERENCES and the comment below it)."""


def _mutate(rng: random.Random, tokens: list[str]) -> str:
    """The text with one or two tokens deleted, added, replaced, repeated or exchanged."""
    changed = list(tokens)
    pool = _COMMON if rng.random() < 0.4 else tokens
    for _ in range(rng.choice([1, 1, 1, 2])):
        i, kind = rng.randrange(len(changed)), rng.random()
        if kind < 0.3:
            changed[i] = ""
        elif kind < 0.5:
            changed.insert(i, rng.choice(pool))
        elif kind < 0.75:
            changed[i] = rng.choice(pool)
        elif kind < 0.85:
            changed.insert(i, changed[rng.randrange(len(changed))])
        else:
            j = min(i + 1, len(changed) - 1)
            changed[i], changed[j] = changed[j], changed[i]
    return "".join(changed)


@pytest.mark.sweep
@needs_corpus
def test_mutations(xla: XlaParser) -> None:
    """Damaged corpus files: XLA's verdict, and both our ways agree. At most two in a thousand may differ."""
    seed, count = int(os.environ.get("CP2AG_SEED", "1")), int(os.environ.get("CP2AG_MUTATIONS", "4000"))
    rng = random.Random(seed)
    texts = [p.read_bytes().decode() for p in _corpus_files() if p.stat().st_size < 5000]
    tokens = [_TOKENS.findall(text) for text in texts]
    different = []
    for _ in range(count):
        text = _mutate(rng, rng.choice(tokens))
        ours = _message(text, batch=True)
        assert ours == _message(text, batch=False), text
        verdict = xla.ask(text)[0]
        if (ours == "") != (verdict == "accept") and not _GLUED.search(text):
            different.append(f"XLA says {verdict}; {ours.splitlines()[0] if ours else 'we accept'}")
    assert len(different) <= count * 0.002, "\n".join(different)
