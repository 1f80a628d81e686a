"""The wheel works on its own: built, installed into a fresh environment, and run from another folder."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.cli.in_process import FIXTURES

ROOT = FIXTURES.parent
LIMIT = 300


def _environment() -> dict[str, str]:
    unwanted = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if k not in unwanted and not k.startswith("CP2AG_")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("build", "hatchling"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"building a wheel needs {module} (the extra dev)")
    folder = tmp_path_factory.mktemp("wheel")
    # A copy: other tests may run in the checkout at the same time, and building leaves nothing behind in it.
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("hlo_cp2ag", "grammar"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, checkout / name)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", checkout],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (folder / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with nothing but the wheel and what it asks for."""
    home = tmp_path_factory.mktemp("venv") / "venv"
    venv.create(home, with_pip=True)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", wheel],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=_environment(),
    )
    if done.returncode != 0:
        complaints = (
            "Connection",
            "connection",
            "Temporary failure",
            "Network",
            "No matching distribution",
            "timed out",
        )
        if any(word in done.stderr for word in complaints):
            pytest.skip(f"the registry cannot be reached: {done.stderr.strip().splitlines()[-1]}")
        pytest.fail(done.stderr)
    return python


def test_the_grammar_and_the_type_marker_are_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for path in (ROOT / "grammar").glob("*.lark"):
            assert archive.read(f"hlo_cp2ag/grammar/{path.name}") == path.read_bytes()
    assert {"hlo_cp2ag/text/grammar_tables.py", "hlo_cp2ag/py.typed", "hlo_cp2ag/cli/main.py"} <= names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hlo_cp2ag"}
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]


def test_it_asks_for_five_packages_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    needed = [line.split(": ", 1)[1] for line in lines if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert {need.split(">")[0].split("<")[0].split("=")[0].strip().lower().replace("-", "_") for need in needed} == {
        "lark",
        "click",
        "rich",
        "numpy",
        "ml_dtypes",
    }


def test_it_runs_from_another_folder(python: Path, tmp_path: Path) -> None:
    for module in ("chain_of_permutes", "comments", "async_start_done"):
        shutil.copy(FIXTURES / "hand" / f"{module}.hlo", tmp_path)
    script = python.with_name("cp2ag")
    env = _environment()
    for module, golden in (("chain_of_permutes", "chain_of_permutes"), ("comments", "style_comments")):
        expected = (FIXTURES / "golden" / f"{golden}.hlo").read_bytes()
        for command in ([script], [python, "-m", "hlo_cp2ag"]):
            done = subprocess.run(
                [*command, "rewrite", f"{module}.hlo"], cwd=tmp_path, env=env, capture_output=True, timeout=60
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")
    modules = sorted(path.name for path in tmp_path.glob("*.hlo"))
    done = subprocess.run([script, "check", *modules], cwd=tmp_path, env=env, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_it_finds_its_grammar(python: Path, tmp_path: Path) -> None:
    code = (
        "from hlo_cp2ag.text import grammar\n"
        "path = grammar.grammar_path()\n"
        "assert path.is_file() and path.parent.parent.name == 'hlo_cp2ag', path\n"
        "text = 'HloModule m\\n\\nENTRY e { ROOT p = f32[] parameter(0) }\\n'\n"
        "assert grammar.build().parse(text, start='module') == grammar.parser().parse(text, start='module')\n"
        "import hlo_cp2ag\nprint(hlo_cp2ag.__file__)\n"
    )
    done = subprocess.run(
        [python, "-c", code], cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).is_relative_to(ROOT / "hlo_cp2ag")
