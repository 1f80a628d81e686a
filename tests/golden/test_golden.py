"""Every golden case answers, byte for byte, what is written down."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.in_process import FIXTURES, cp2ag

from .cases import CASES, GOLDEN, Case

_BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answer(case: Case) -> None:
    outcome = case.run()
    assert outcome.stdout == case.stdout_path.read_bytes()
    assert outcome.stderr == (case.stderr_path.read_bytes().decode() if case.stderr_path.exists() else "")
    assert outcome.code == case.exit_code


@pytest.mark.parametrize("name", ["zeros", "style_crlf", "left_require_all", "report_variadic", "diff_check"])
def test_answer_of_a_process(name: str) -> None:
    case = _BY_NAME[name]
    process = subprocess.run(
        [sys.executable, "-m", "hlo_cp2ag", *case.command()], cwd=case.path.parent, capture_output=True, timeout=60
    )
    assert process.stdout == case.stdout_path.read_bytes()
    assert process.stderr.decode() == (case.stderr_path.read_bytes().decode() if case.stderr_path.exists() else "")
    assert process.returncode == case.exit_code


def test_names_are_unique() -> None:
    assert len(_BY_NAME) == len(CASES)


def test_no_file_without_a_case() -> None:
    wanted = {path for case in CASES for path in (case.stdout_path, case.stderr_path)}
    assert [path.name for path in GOLDEN.iterdir() if path.is_file() and path not in wanted] == []


def test_no_input_without_a_case() -> None:
    used = {case.path for case in CASES}
    assert [path.name for path in (GOLDEN / "inputs").iterdir() if path not in used] == []


@pytest.mark.parametrize("case", [c for c in CASES if c.stdout_path.suffix == ".hlo"], ids=lambda case: case.name)
def test_output_is_hlo(case: Case) -> None:
    flags = ["--split-input-file"] if "--split-input-file" in case.argv else []
    if case.input in ("hand/elided_constant",):
        assert cp2ag("check", *flags, case.path, cwd=FIXTURES).code == cp2ag("check", *flags, case.stdout_path).code
        return
    checked = cp2ag("check", *flags, case.stdout_path, cwd=FIXTURES)
    assert (checked.code, checked.stderr) == (0, "")
