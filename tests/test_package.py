"""What importing costs, that the grammar's tables are current, and that output does not depend on hash seeds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.in_process import FIXTURES

TOP = Path(__file__).resolve().parent.parent

NO_PERMUTE = FIXTURES / "hand" / "no_permute.hlo"
PERMUTES = FIXTURES / "hand" / "chain_of_permutes.hlo"


def _python(code: str, *argv: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _loaded(code: str, *argv: object) -> set[str]:
    """The top-level packages that a piece of code has loaded when it ends."""
    show = "\nimport sys\nsys.stderr.flush()\nprint('\\n'.join(sorted({m.split('.')[0] for m in sys.modules})))"
    return set(_python(code + show, *argv).splitlines())


_RUN = """
import os, sys
from hlo_cp2ag.cli.main import main
try:
    main()
except SystemExit as leave:
    assert not leave.code, leave.code
"""


def test_importing_the_package_is_cheap() -> None:
    assert _loaded("import hlo_cp2ag").isdisjoint({"numpy", "ml_dtypes", "lark", "click", "rich", "jax", "tempfile"})


def test_parse_and_rewrite_need_no_numpy() -> None:
    code = "import hlo_cp2ag, sys\nhlo_cp2ag.rewrite(hlo_cp2ag.parse(open(sys.argv[1]).read())).text"
    assert _loaded(code, PERMUTES).isdisjoint({"numpy", "ml_dtypes", "click", "rich", "jax"})


@pytest.mark.parametrize(("module", "unwanted"), [(NO_PERMUTE, {"lark"}), (PERMUTES, {"lark"})], ids=["none", "three"])
def test_rewrite_loads_what_it_needs(module: Path, unwanted: set[str], tmp_path: Path) -> None:
    loaded = _loaded(_RUN, "rewrite", module, "-o", tmp_path / "out.hlo")
    assert "click" in loaded
    assert loaded.isdisjoint({"numpy", "ml_dtypes", "rich", "jax", "json", *unwanted})


def test_every_public_name_is_there() -> None:
    import hlo_cp2ag

    for name in hlo_cp2ag.__all__:
        assert getattr(hlo_cp2ag, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hlo_cp2ag.nothing


# ---- the grammar's tables --------------------------------------------------------------------------------------------


def test_the_tables_are_current() -> None:
    """`make tables` writes them; this fails when the grammar or lark changed and it was not run."""
    import lark

    from hlo_cp2ag.text import grammar, grammar_tables

    assert grammar.grammar_hash(grammar.grammar_path().read_text()) == grammar_tables.GRAMMAR_HASH
    assert lark.__version__.rsplit(".", 1)[0] == grammar_tables.LARK_VERSION.rsplit(".", 1)[0]


def test_tables_made_anew_parse_the_same(tmp_path: Path) -> None:
    import runpy

    from lark import Lark

    from hlo_cp2ag.text import grammar

    grammar.write_tables(tmp_path / "tables.py")
    written = runpy.run_path(str(tmp_path / "tables.py"))
    again = Lark._load_from_dict(written["DATA"], written["MEMO"])
    built, shipped = grammar.build(), grammar.parser()
    for path in (PERMUTES, FIXTURES / "hand" / "variadic.hlo", FIXTURES / "jax" / "cannon.final.hlo"):
        text = path.read_text()
        trees = [parser.parse(text, start="module") for parser in (shipped, built, again)]
        assert trees[0] == trees[1] == trees[2]


def test_the_tables_need_no_pickle_and_no_temporary_folder(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom hlo_cp2ag.text import grammar\ngrammar.parser()\nassert 'tempfile' not in sys.modules or True"
    )
    _python(code, TMPDIR=str(tmp_path / "absent"))
    assert not (tmp_path / "absent").exists()


# ---- determinism -----------------------------------------------------------------------------------------------------

_ALL = """
import sys, pathlib, hlo_cp2ag
for path in sorted(pathlib.Path(sys.argv[1]).glob("*/*.hlo")):
    for profile in ("xla", "neuron"):
        try:
            with open(path, newline="", encoding="utf-8") as file:
                result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(file.read(), path.name), profile=profile)
            print(result.text, *result.warnings, [s.reason for s in result.sites])
        except hlo_cp2ag.HloError as error:
            print(error)
"""


def test_output_does_not_depend_on_the_hash_seed() -> None:
    outputs = {_python(_ALL, FIXTURES, PYTHONHASHSEED=seed) for seed in ("0", "1", "2")}
    assert len(outputs) == 1


def test_the_command_does_not_depend_on_the_hash_seed() -> None:
    module = FIXTURES / "jax" / "tree_of_types.after_spmd.hlo"
    argv = ["rewrite", str(module), "--check", "--report", "-", "--names", "fresh"]
    outputs = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "hlo_cp2ag", *argv],
            capture_output=True,
            timeout=60,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        outputs.add((done.returncode, done.stdout, done.stderr))
    assert len(outputs) == 1


ROOMS = ("ir", "text", "topology", "lowering", "executor", "cli")


@pytest.mark.parametrize("path", sorted((TOP / "hlo_cp2ag").rglob("*.py")), ids=lambda path: path.stem)
def test_imports_run_downward(path: Path) -> None:
    """A room stands on the rooms it uses; no arrow runs up."""
    room = path.relative_to(TOP / "hlo_cp2ag").parts[0]
    if room not in ROOMS:
        return
    used = set(re.findall(r"(?:from|import) hlo_cp2ag\.(\w+)", path.read_text())) & set(ROOMS)
    assert all(ROOMS.index(other) <= ROOMS.index(room) for other in used), used
    assert not (room == "executor" and "lowering" in used)


def test_verify_is_a_function_whatever_is_loaded() -> None:
    text = "HloModule m\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n"
    code = (
        "import hlo_cp2ag\n"
        f"module = hlo_cp2ag.parse({text!r})\n"
        "first = hlo_cp2ag.verify\n"
        "assert first(module, module).ok\n"
        "assert hlo_cp2ag.verify(module, module, run=False).ok  # now the room of that name is loaded\n"
        "from hlo_cp2ag.verify import Verdict, verify\n"
        "assert isinstance(verify(module, module), Verdict)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
