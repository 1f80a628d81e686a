"""The pipelines of the README, each with FileCheck patterns: `fixtures/filecheck/*.check`, run by their RUN lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .in_process import FIXTURES

FOLDER = FIXTURES / "filecheck"
CHECKS = sorted(FOLDER.glob("*.check"))


def _path(tmp_path: Path) -> str:
    """A PATH whose `cp2ag` and `filecheck` are this Python's."""
    (tmp_path / "bin").mkdir()
    for name, module in (("cp2ag", "hlo_cp2ag"), ("filecheck", "filecheck")):
        script = tmp_path / "bin" / name
        if module == "filecheck":
            body = "import sys\nfrom filecheck.main import main\nsys.exit(main())\n"
        else:
            body = "from hlo_cp2ag.cli.main import main\nmain()\n"
        script.write_text(f"#!{sys.executable}\n{body}")
        script.chmod(0o755)
    return f"{tmp_path / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


@pytest.mark.parametrize("check", CHECKS, ids=lambda path: path.stem)
def test_pipeline(check: Path, tmp_path: Path) -> None:
    pytest.importorskip("filecheck")
    if shutil.which("bash") is None:
        pytest.skip("the pipelines are run by bash")
    first, *_ = check.read_text().splitlines()
    assert first.startswith("// RUN: ")
    script = "set -o pipefail; " + first.removeprefix("// RUN: ")
    if " 2>&1 >/dev/null" in first or first.startswith("// RUN: !"):
        script = script.removeprefix("set -o pipefail; ")
    if first.startswith("// RUN: ! "):
        command, rest = script.removeprefix("! ").split(" && ", 1)
        script = f'{command}; codes=("${{PIPESTATUS[@]}}"); [ "${{codes[*]}}" = "1 0" ] && {rest}'
    env = {name: value for name, value in os.environ.items() if not name.startswith("CP2AG_")}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=FOLDER,
        env={**env, "PATH": _path(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_pattern_fails(tmp_path: Path) -> None:
    """The checks themselves check something."""
    pytest.importorskip("filecheck")
    wrong = (FOLDER / "ring.check").read_text().replace("{3, 0, 1, 2}", "{1, 2, 3, 0}")
    (tmp_path / "wrong.check").write_text(wrong)
    module = FIXTURES / "hand" / "root_permute.hlo"
    rewritten = subprocess.run([sys.executable, "-m", "hlo_cp2ag", "rewrite", module], capture_output=True, timeout=60)
    done = subprocess.run(
        [tmp_path / "bin" / "filecheck", "wrong.check"],
        cwd=tmp_path,
        env={**os.environ, "PATH": _path(tmp_path)},
        input=rewritten.stdout,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1
