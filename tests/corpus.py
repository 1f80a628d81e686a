"""Where real modules are: those of the project, and the corpus beside the checkout where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
FIXTURES = TOP / "fixtures"
SHARED = TOP.parent / "shared" / "corpus"

needs_corpus = pytest.mark.skipif(not SHARED.is_dir(), reason="the corpus ../shared/corpus is not beside this checkout")


def fixture_modules() -> list[Path]:
    """Every module of the project's own that is HLO."""
    return sorted((FIXTURES / "hand").glob("*.hlo")) + sorted((FIXTURES / "jax").glob("*.hlo"))


def corpus_modules(small_only: bool = True) -> list[Path]:
    """Every module of the corpus; the large models only if asked for."""
    if not SHARED.is_dir():
        return []
    found = sorted(SHARED.glob("*/*/*.hlo")) + sorted((SHARED / "xla_hlo").glob("*.hlo"))
    models = sorted((SHARED / "models").iterdir())
    return found + [path for path in models if not small_only or path.stat().st_size < 1_000_000]


def read(path: Path) -> str:
    """A module's text with its line ends as they are."""
    return path.read_bytes().decode()


def ident(path: Path) -> str:
    """A short name for a test's id."""
    return "/".join(path.parts[-2:])
