"""The second process gives what the first would have computed, and nothing is lost when it fails."""

from __future__ import annotations

import os

import pytest

from hlo_cp2ag import parse
from hlo_cp2ag.text import side_process
from hlo_cp2ag.text.computations import LazyComputations
from tests.corpus import FIXTURES, read

PRINTED = sorted((FIXTURES / "jax").glob("*.hlo"))


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_process, "allowed", True)
    monkeypatch.setattr(side_process, "WORTH_IT", 0)


def test_the_library_never_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_process, "WORTH_IT", 0)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    assert side_process.start(lambda: b"here", 1)() == b"here"
    parse(read(PRINTED[0]))


@pytest.mark.usefixtures("beside")
def test_the_answer_comes_from_another_process() -> None:
    answer = side_process.start(lambda: str(os.getpid()).encode(), 1)()
    assert int(answer) != os.getpid()


@pytest.mark.usefixtures("beside")
def test_work_that_fails_there_is_done_here() -> None:
    here = os.getpid()

    def work() -> bytes:
        if os.getpid() != here:
            raise MemoryError
        return b"done here"

    assert side_process.start(work, 1)() == b"done here"


@pytest.mark.usefixtures("beside")
def test_megabytes_pass_through_the_pipe() -> None:
    assert side_process.start(lambda: b"x" * 5_000_000, 1)() == b"x" * 5_000_000


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("path", PRINTED[:6], ids=lambda path: path.stem)
def test_outlines_are_the_same(path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    text = read(path)  # type: ignore[arg-type]
    with_two = [(c.name, c.span, c.body_span) for c in parse(text).computations]
    assert isinstance(parse(text).computations, LazyComputations)
    monkeypatch.setattr(side_process, "allowed", False)
    assert [(c.name, c.span, c.body_span) for c in parse(text).computations] == with_two
