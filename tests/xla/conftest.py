from __future__ import annotations

from collections.abc import Iterator

import pytest

from .judge import Judge, available


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    reason = available()
    if reason:
        pytest.skip(reason)
    with Judge() as one:
        yield one


@pytest.fixture
def own_judge() -> Iterator[Judge]:
    """A judge for one test alone, which may kill it."""
    reason = available()
    if reason:
        pytest.skip(reason)
    with Judge() as one:
        yield one
