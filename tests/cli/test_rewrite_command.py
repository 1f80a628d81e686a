"""`cp2ag rewrite`: its flags, their environment variables, exit codes, and what goes to which stream."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .in_process import FIXTURES, Outcome, cp2ag

HAND = FIXTURES / "hand"
MODULES = sorted(
    [*HAND.glob("*.hlo"), *(FIXTURES / "jax").glob("*.hlo"), *(FIXTURES / "golden" / "inputs").glob("*.hlo")]
)
REFUSED = {
    "pairs_duplicate_sources",
    "pairs_duplicate_targets",
    "pairs_negative",
    "pairs_outside_grid",
    "channel_id_largest",
    "flat_ranks",
}
"""Modules that are input errors under profile xla."""
REWRITABLE = [path for path in MODULES if path.stem not in REFUSED]


def _ids(path: Path) -> str:
    return path.stem


def _rewrite(path: Path, *argv: str | Path) -> Outcome:
    """`cp2ag rewrite` in the module's own folder, so that messages name it briefly."""
    split = ["--split-input-file"] if path.stem == "split" else []
    return cp2ag("rewrite", path.name, *split, *argv, cwd=path.parent)


# ---- flags and their environment variables ---------------------------------------------------------------------------

FLAGS = [
    ("--replica-count", "2", "grid_without_counts"),
    ("--num-partitions", "8", "grid_without_counts"),
    ("--secondary-mesh-count", "16", "grid_without_counts"),
    ("--strict-grid", None, "no_header"),
    ("--write-config", None, "grid_without_counts"),
    ("--profile", "neuron", "pairs_partial"),
    ("--gate", "invalid", "no_entry"),
    ("--non-target", "keep", "pairs_partial"),
    ("--device-id", "replica-id", "root_permute"),
    ("--gather-dimension", "leading", "layout_column_major_scheduled"),
    ("--sub-byte", "keep", "type_s4"),
    ("--names", "keep", "pairs_partial"),
    ("--only", "1$", "chain_of_permutes"),
    ("--require-all", None, "in_place"),
    ("--check", None, "pairs_partial"),
    ("--diff", None, "pairs_partial"),
    ("--split-input-file", None, "pairs_partial"),
    ("--platform-version", "3.0", "pairs_partial"),
    ("--nc-divisor", "4", "pairs_partial"),
    ("--override-core-count", "7", "pairs_partial"),
    ("--verbose", None, "pairs_partial"),
    ("--quiet", None, "in_place"),
]
_NO_EFFECT_ALONE = {"--split-input-file", "--platform-version", "--nc-divisor", "--override-core-count"}


def _variable(flag: str) -> str:
    return "CP2AG_" + flag.lstrip("-").replace("-", "_").upper()


@pytest.mark.parametrize(("flag", "value", "module"), FLAGS, ids=lambda each: str(each))
def test_environment_variable_is_the_flag(flag: str, value: str | None, module: str) -> None:
    path = HAND / f"{module}.hlo"
    plain = cp2ag("rewrite", path)
    with_flag = cp2ag("rewrite", path, flag, *([value] if value is not None else []))
    with_variable = cp2ag("rewrite", path, env={_variable(flag): value if value is not None else "1"})
    assert with_variable == with_flag
    if flag not in _NO_EFFECT_ALONE:
        assert with_flag != plain


def test_the_flag_wins_over_the_environment() -> None:
    path = HAND / "grid_without_counts.hlo"
    env = {"CP2AG_NUM_PARTITIONS": "8", "CP2AG_GATE": "valid"}
    assert cp2ag("rewrite", path, "--num-partitions", "4", "--gate", "every", env=env) == cp2ag(
        "rewrite", path, "--num-partitions", "4"
    )


def test_output_and_report_read_the_environment(tmp_path: Path) -> None:
    env = {"CP2AG_OUTPUT": str(tmp_path / "out.hlo"), "CP2AG_REPORT": str(tmp_path / "report.json")}
    outcome = cp2ag("rewrite", HAND / "root_permute.hlo", env=env)
    assert (outcome.code, outcome.stdout) == (0, b"")
    assert (tmp_path / "out.hlo").read_bytes() == cp2ag("rewrite", HAND / "root_permute.hlo").stdout
    assert json.loads((tmp_path / "report.json").read_text())["changed"] is True


def test_check_reads_the_same_variable() -> None:
    outcome = cp2ag("check", FIXTURES / "golden" / "inputs" / "split.hlo", env={"CP2AG_SPLIT_INPUT_FILE": "1"})
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, b"", "")


def test_core_count_flags_reach_the_report() -> None:
    for flags, count in (
        ("", 32),
        ("--platform-version 2.0 --override-core-count 7", 32),
        ("--platform-version 3.0", 128),
        ("--platform-version 3.0 --nc-divisor 4", 32),
        ("--platform-version 3.0 --nc-divisor 4 --override-core-count 7", 7),
    ):
        outcome = cp2ag("rewrite", HAND / "scalar.hlo", "--check", "--report", "-", *flags.split())
        assert json.loads(outcome.stdout)["modules"][0]["configuration"]["core_count"] == count


def test_help_names_every_flag() -> None:
    text = cp2ag("rewrite", "--help").text
    for flag, _, _ in FLAGS:
        assert flag in text
    for name in ("-v", "-q", "--report", "-o", "--output"):
        assert name in text
    words = " ".join(text.split()).replace("- ", "-")
    assert "With one replica, valid and intra-group leave every permute" in words


def test_version() -> None:
    outcome = cp2ag("--version")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert re.fullmatch(r"cp2ag \d+\.\d+\.\d+\n", outcome.text)


# ---- usage errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--replica-count", "0"], "'--replica-count': 0 is not in the range x>=1."),
        (["--num-partitions", "-3"], "'--num-partitions': -3 is not in the range x>=1."),
        (["--only", "("], "error: --only is no regular expression: missing ), unterminated subpattern at position 0\n"),
        (["--replica-count", "x"], "'--replica-count': 'x' is not a valid integer range."),
        (["--profile", "gpu"], "'--profile': 'gpu' is not one of 'xla', 'neuron'."),
        (["--gate", "all"], "'--gate': 'all' is not one of 'every', 'valid', 'intra-group', 'invalid'."),
        (["--nc-divisor", "0"], "'--nc-divisor': 0 is not in the range x>=1."),
        (["--report", "-"], "--report - needs stdout for itself: give OUT a file name with -o"),
        (["--report", "-", "--diff"], "--report - needs stdout for itself: give OUT a file name with -o"),
        (["--unknown"], "No such option"),
    ],
)
def test_usage_errors(argv: list[str], message: str) -> None:
    outcome = cp2ag("rewrite", HAND / "pairs_partial.hlo", *argv)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_an_environment_variable_with_a_bad_value() -> None:
    outcome = cp2ag("rewrite", HAND / "pairs_partial.hlo", env={"CP2AG_REPLICA_COUNT": "four"})
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert "CP2AG_REPLICA_COUNT" in outcome.stderr or "--replica-count" in outcome.stderr


def test_a_missing_file() -> None:
    outcome = cp2ag("rewrite", "nowhere.hlo")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (
        2,
        b"",
        "nowhere.hlo: error: cannot read it: No such file or directory\n",
    )


def test_a_folder_as_input(tmp_path: Path) -> None:
    outcome = cp2ag("rewrite", ".", cwd=tmp_path)
    assert (outcome.code, outcome.stderr) == (2, ".: error: cannot read it: Is a directory\n")


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_stdin_is_the_default() -> None:
    path = HAND / "pairs_partial.hlo"
    expected = cp2ag("rewrite", path).stdout
    for argv in ([], ["-"], ["-", "-o", "-"]):
        outcome = cp2ag("rewrite", *argv, stdin=path.read_bytes())
        assert (outcome.code, outcome.stdout, outcome.stderr) == (0, expected, "")


def test_messages_about_stdin_name_it() -> None:
    outcome = cp2ag("rewrite", stdin=(HAND / "in_place.hlo").read_bytes())
    assert outcome.stderr == "<stdin>:10:3: warning: left: an in-place permute (slice_sizes)\n"


@pytest.mark.parametrize("path", MODULES, ids=_ids)
def test_stdout_holds_the_module_and_nothing_else(path: Path) -> None:
    outcome = _rewrite(path, "-v")
    if path.stem in REFUSED:
        assert (outcome.code, outcome.stdout) == (2, b"")
        assert outcome.stderr.count("\n") >= 3
        return
    assert outcome.code == 0
    quiet = _rewrite(path, "-q")
    assert (quiet.code, quiet.stdout, quiet.stderr) == (0, outcome.stdout, "")
    assert "rewrote" not in outcome.stderr, "a summary, where stderr is no terminal"


@pytest.mark.parametrize("path", REWRITABLE, ids=_ids)
def test_what_is_rewritten_is_rewritten_once(path: Path) -> None:
    """A second run over the output finds nothing but what the first run left, and changes nothing."""
    once = _rewrite(path, "--write-config").stdout
    flags = ["--split-input-file"] if path.stem == "split" else []
    again = cp2ag("rewrite", "-", *flags, stdin=once)
    assert (again.code, again.stdout) == (0, once)


@pytest.mark.parametrize("path", REWRITABLE, ids=_ids)
def test_each_permute_that_is_left_prints_one_line(path: Path) -> None:
    outcome = _rewrite(path)
    report = json.loads(_rewrite(path, "--check", "--report", "-").stdout)
    left = [site for module in report["modules"] for site in module["permutes"] if site["action"] == "left"]
    lines = [line for line in outcome.stderr.splitlines() if " left: " in line]
    assert lines == [f"{path.name}:{s['line']}:{s['column']}: warning: left: {s['reason']}" for s in left]
    required = _rewrite(path, "--require-all")
    assert (required.code, required.stdout) == (1 if left else 0, outcome.stdout)


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        ("chain_of_permutes", "--only ^cp$"),
        ("root_permute", "--gate valid"),
        ("root_in_the_middle", "--profile neuron"),
        ("in_place", ""),
    ],
)
def test_require_all_counts_what_flags_exclude_and_still_writes(module: str, flags: str, tmp_path: Path) -> None:
    path, out = HAND / f"{module}.hlo", tmp_path / "out.hlo"
    outcome = cp2ag("rewrite", path, "-o", out, "--require-all", *flags.split())
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert out.read_bytes() == cp2ag("rewrite", path, *flags.split()).stdout


def test_require_all_is_content_when_all_are_rewritten() -> None:
    assert cp2ag("rewrite", HAND / "chain_of_permutes.hlo", "--require-all").code == 0
    assert cp2ag("rewrite", HAND / "no_permute.hlo", "--require-all").code == 0


# ---- check and diff --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REWRITABLE, ids=_ids)
def test_check_writes_nothing(path: Path, tmp_path: Path) -> None:
    changed = _rewrite(path).stdout != path.read_bytes()
    out = tmp_path / "out.hlo"
    outcome = _rewrite(path, "--check", "-o", out)
    assert (outcome.code, outcome.stdout, out.exists()) == (int(changed), b"", False)


@pytest.mark.parametrize("path", REWRITABLE, ids=_ids)
@pytest.mark.parametrize("names", ["fresh", "keep"])
def test_the_diff_can_be_applied(path: Path, names: str, tmp_path: Path) -> None:
    flags = ["--names", names, "--write-config"]
    new = _rewrite(path, *flags).stdout
    outcome = _rewrite(path, *flags, "--diff")
    assert outcome.code == 0
    assert outcome.stdout == _rewrite(path, *flags, "--diff", "--check").stdout
    assert _applied(path.read_bytes(), outcome.stdout) == new
    if not outcome.stdout:
        assert new == path.read_bytes()
    elif shutil.which("patch"):
        copy = tmp_path / path.name
        copy.write_bytes(path.read_bytes())
        command = ["patch", "--binary", "-s", "-p0", "--fuzz=0"]
        done = subprocess.run(command, cwd=tmp_path, input=outcome.stdout, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b"")
        assert copy.read_bytes() == new


def _applied(old: bytes, diff: bytes) -> bytes:
    """Applies a unified diff by hand and holds every line of it against the old text."""
    old_lines = old.split(b"\n")
    old_lines = [line + b"\n" for line in old_lines[:-1]] + ([old_lines[-1]] if old_lines[-1] else [])
    lines = diff.split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]]
    assert diff == b"" or (lines[0].startswith(b"--- ") and lines[1].startswith(b"+++ ") and diff.endswith(b"\n"))
    new: list[bytes] = []
    position = 0
    i = 2
    while i < len(lines):
        header = re.fullmatch(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n", lines[i])
        assert header is not None, lines[i]
        start, old_count = int(header[1]), int(header[2] or 1)
        new_start, new_count = int(header[3]), int(header[4] or 1)
        new += old_lines[position : start - 1]
        position = start - 1
        assert len(new) == new_start - 1
        i += 1
        before = len(new)
        while i < len(lines) and not lines[i].startswith(b"@@"):
            mark, line = lines[i][:1], lines[i][1:]
            if i + 1 < len(lines) and lines[i + 1].startswith(b"\\"):
                assert lines[i + 1] == b"\\ No newline at end of file\n"
                line = line[:-1]
                i += 1
            if mark in b" -":
                assert old_lines[position] == line
                position += 1
            if mark in b" +":
                new.append(line)
            assert mark in (b" ", b"-", b"+")
            i += 1
        assert position - (start - 1) == old_count
        assert len(new) - before == new_count
    return b"".join(new + old_lines[position:])


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not there")
@pytest.mark.parametrize("module", ["chain_of_permutes", "crlf_lines", "no_final_newline", "in_while_body"])
def test_git_applies_the_diff(module: str, tmp_path: Path) -> None:
    path = HAND / f"{module}.hlo"
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    diff = cp2ag("rewrite", path.name, "--diff", cwd=tmp_path).stdout
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "apply", "-p0", "--whitespace=nowarn"],
        cwd=tmp_path, input=diff, capture_output=True, env=env,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert copy.read_bytes() == cp2ag("rewrite", path).stdout


def test_diff_goes_to_out(tmp_path: Path) -> None:
    path, out = HAND / "chain_of_permutes.hlo", tmp_path / "change.diff"
    expected = cp2ag("rewrite", path, "--diff").stdout
    assert cp2ag("rewrite", path, "--diff", "-o", out) == cp2ag("rewrite", path, "--diff", "-o", out)
    assert out.read_bytes() == expected


def test_diff_and_check_together_say_no() -> None:
    outcome = cp2ag("rewrite", HAND / "pairs_partial.hlo", "--diff", "--check")
    assert outcome.code == 1
    assert outcome.stdout.startswith(b"--- ")
    assert cp2ag("rewrite", HAND / "pairs_partial.hlo", "--diff").code == 0
    assert cp2ag("rewrite", HAND / "no_permute.hlo", "--diff", "--check").code == 0


def test_an_explicit_count_changes_the_header_alone() -> None:
    text = (HAND / "no_permute.hlo").read_bytes()
    outcome = cp2ag("rewrite", HAND / "no_permute.hlo", "--replica-count", "8")
    assert outcome.stdout == text.replace(b"replica_count=4", b"replica_count=8")
    assert cp2ag("rewrite", HAND / "no_permute.hlo", "--replica-count", "8", "--check").code == 1


# ---- the report ------------------------------------------------------------------------------------------------------


def test_the_report_goes_to_a_file_beside_the_module(tmp_path: Path) -> None:
    path, report = HAND / "chain_of_permutes.hlo", tmp_path / "r.json"
    outcome = cp2ag("rewrite", path, "--report", report)
    assert outcome.stdout == cp2ag("rewrite", path).stdout
    document = json.loads(report.read_text())
    assert document["output"] == "<stdout>"
    assert [site["name"] for site in document["modules"][0]["permutes"]] == ["cp", "cp.1", "cp.10"]
    assert report.read_text().endswith("}\n")


def test_the_report_goes_to_stdout_when_out_is_a_file(tmp_path: Path) -> None:
    path, out = HAND / "chain_of_permutes.hlo", tmp_path / "out.hlo"
    outcome = cp2ag("rewrite", path, "-o", out, "--report", "-")
    document = json.loads(outcome.stdout)
    assert document["output"] == str(out)
    assert out.read_bytes() == cp2ag("rewrite", path).stdout


@pytest.mark.parametrize("path", REWRITABLE, ids=_ids)
def test_the_report_agrees_with_the_output(path: Path) -> None:
    document = json.loads(_rewrite(path, "--check", "--report", "-").stdout)
    text = _rewrite(path).text
    for module in document["modules"]:
        for site in module["permutes"]:
            assert (site["action"] == "left") == (not site["names_created"])
            assert len(site["channel_ids_created"]) == len(site["gather_dimensions"])
            for name in site["names_created"]:
                assert re.search(rf"(?<![\w.\-]){re.escape(name)} = ", text)
            for channel in site["channel_ids_created"]:
                assert f"channel_id={channel}," in text
    counts = document["modules"][0]["summary"]
    assert counts["permutes"] == counts["rewritten"] + counts["left"]


# ---- several modules in one file -------------------------------------------------------------------------------------


def test_split_input_file_is_each_part_on_its_own() -> None:
    whole = (FIXTURES / "golden" / "inputs" / "split.hlo").read_text()
    parts = whole.split("// -----\n")
    expected = "// -----\n".join(cp2ag("rewrite", stdin=p.encode()).text if p.strip() else p for p in parts)
    assert cp2ag("rewrite", "--split-input-file", stdin=whole.encode()).text == expected


def test_split_input_file_counts_lines_from_the_top() -> None:
    good = "HloModule a\n\nENTRY m { ROOT p = f32[] parameter(0) }\n"
    text = good + "// -----\nHloModule b\n\nENTRY m { ROOT q = f32[] foo( }\n"
    outcome = cp2ag("rewrite", "--split-input-file", stdin=text.encode())
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert outcome.stderr.startswith("<stdin>:7:")


def test_without_the_flag_a_separator_is_a_comment() -> None:
    text = "// -----\nHloModule a\n\nENTRY m { ROOT p = f32[] parameter(0) }\n// -----\n"
    outcome = cp2ag("rewrite", stdin=text.encode())
    assert (outcome.code, outcome.text, outcome.stderr) == (0, text, "")


@pytest.mark.parametrize("text", ["", "\n\n", "// -----\n", "// -----\n\n// -----\n"])
def test_split_input_file_of_nothing(text: str) -> None:
    outcome = cp2ag("rewrite", "--split-input-file", stdin=text.encode())
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert outcome.stderr.startswith("<stdin>:1:1: error: no HLO here: the text is empty\n")


# ---- what the pass logs ----------------------------------------------------------------------------------------------


def test_the_log_has_the_references_words() -> None:
    outcome = cp2ag("rewrite", "grid_2x4_partitions_partial.hlo", "-v", cwd=HAND)
    lines = outcome.stderr.splitlines()
    wanted = [
        r"Platform Version: . Defaulting to 32 cores",
        r"Initial replica_count from config = 2",
        r"Initial num_partitions from config = 4",
        r"Found collective-permute: .*%collective-permute = f32\[2,3\]\{1,0\} collective-permute\(%p\), channel_id=1, "
        r"source_target_pairs=\{\{0,2\},\{3,1\}\}",
        r"Created mapping array constant: %?constant with values: ",
        *(rf"  mapping_array\[{i}\] = {v}" for i, v in enumerate([0, 3, 0, 3, 4, 7, 4, 7])),
    ]
    position = 0
    for pattern in wanted:
        matching = [i for i, line in enumerate(lines[position:], position) if re.search(pattern, line)]
        assert matching, f"{pattern} in {lines[position:]}"
        position = matching[0] + 1


def test_the_log_of_the_core_count() -> None:
    path = HAND / "scalar.hlo"
    assert ". Defaulting to 32 cores" in cp2ag("rewrite", path, "-v", "--platform-version", "2.0").stderr
    log = cp2ag(
        "rewrite", path, "-v", "--platform-version", "3.0", "--nc-divisor", "2", "--override-core-count", "9"
    ).stderr
    for text in ("Platform Version: 3.0", "core count 9", "override_core_count 9"):
        assert text in log


def test_without_v_nothing_is_logged() -> None:
    assert cp2ag("rewrite", HAND / "grid_2x4_partitions_partial.hlo").stderr == ""


def test_verbose_and_quiet_do_not_change_the_output() -> None:
    path = HAND / "chain_of_permutes.hlo"
    plain = cp2ag("rewrite", path).stdout
    assert cp2ag("rewrite", path, "-v").stdout == plain
    assert cp2ag("rewrite", path, "-q").stdout == plain


# ---- terminals -------------------------------------------------------------------------------------------------------


def _on_terminals(argv: list[str], stdout_too: bool, env: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a process whose stderr, and stdout if asked, are terminals of their own."""
    terminals = {"stderr": pty.openpty()}
    if stdout_too:
        terminals["stdout"] = pty.openpty()
    base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "CLICOLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "hlo_cp2ag", *argv],
        stdin=subprocess.DEVNULL,
        stdout=terminals["stdout"][1] if stdout_too else subprocess.PIPE,
        stderr=terminals["stderr"][1],
        env={**base, "TERM": "xterm-256color", **env},
    )
    for _, child in terminals.values():
        os.close(child)
    readers = {name: parent for name, (parent, _) in terminals.items()}
    if process.stdout is not None:
        readers["stdout"] = process.stdout.fileno()
    texts = dict.fromkeys(readers, b"")
    deadline = time.monotonic() + 60
    while readers and time.monotonic() < deadline:
        ready, _, _ = select.select(list(readers.values()), [], [], 1)
        for name, descriptor in list(readers.items()):
            if descriptor in ready:
                try:
                    piece = os.read(descriptor, 65536)
                except OSError:  # the other end of a terminal is closed
                    piece = b""
                if piece:
                    texts[name] += piece
                else:
                    del readers[name]
    for parent, _ in terminals.values():
        os.close(parent)
    code = process.wait(timeout=10)
    if process.stdout is not None:
        process.stdout.close()
    return code, texts["stdout"].decode().replace("\r\n", "\n"), texts["stderr"].decode().replace("\r\n", "\n")


def _uncoloured(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_the_summary_is_for_terminals(tmp_path: Path) -> None:
    out = str(tmp_path / "out.hlo")
    path = str(HAND / "chain_of_permutes.hlo")
    code, stdout, stderr = _on_terminals(["rewrite", path, "-o", out], False, {})
    assert (code, stdout) == (0, "")
    assert "\x1b[" in stderr
    expected = "rewrote 3 of 3 collective-permutes; replica_count 4 (header), num_partitions 1 (default) -> "
    assert " ".join(_uncoloured(stderr).split()).startswith(expected)
    code, stdout, stderr = _on_terminals(["rewrite", path, "-q", "-o", out], False, {})
    assert (code, stdout, stderr) == (0, "", "")


def test_stdout_stays_plain_while_stderr_is_a_terminal() -> None:
    path = HAND / "chain_of_permutes.hlo"
    code, stdout, stderr = _on_terminals(["rewrite", str(path)], False, {})
    assert (code, stdout) == (0, cp2ag("rewrite", path).text)
    assert "rewrote 3 of 3" in stderr


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_no_colour_where_it_is_not_wanted(env: dict[str, str]) -> None:
    path = str(HAND / "in_place.hlo")
    code, _, stderr = _on_terminals(["rewrite", path], False, env)
    assert code == 0
    assert stderr == (
        f"{path}:10:3: warning: left: an in-place permute (slice_sizes)\n"
        "rewrote 0 of 1 collective-permutes, left 1; replica_count 4 (header), num_partitions 1 (default)\n"
        "on the wire 0 B -> 0 B, peak memory of a permute on a device 0 B -> 0 B\n"
    )
    code, stdout, _ = _on_terminals(["rewrite", str(HAND / "pairs_partial.hlo"), "--diff"], True, env)
    assert (code, "\x1b[" in stdout) == (0, False)


def test_a_diff_is_coloured_on_a_terminal() -> None:
    path = HAND / "pairs_partial.hlo"
    code, stdout, _ = _on_terminals(["rewrite", str(path), "--diff"], True, {})
    assert code == 0
    assert "\x1b[32m+" in stdout
    assert "\x1b[31m-" in stdout
    assert _uncoloured(stdout) == cp2ag("rewrite", path, "--diff").text


def test_a_long_line_on_a_terminal_is_not_broken() -> None:
    """A path or a line of the diff longer than the terminal stays one line, so that it can be copied."""
    path = HAND / "pairs_partial.hlo"
    _, stdout, stderr = _on_terminals(["rewrite", str(path), "--diff"], True, {"COLUMNS": "40"})
    assert _uncoloured(stdout) == cp2ag("rewrite", path, "--diff").text
    assert len(stderr.splitlines()) == 2


def test_left_lines_come_on_a_terminal_too_and_quiet_silences_them() -> None:
    path = str(HAND / "in_place.hlo")
    _, _, stderr = _on_terminals(["rewrite", path], False, {})
    assert f"{path}:10:3: warning: left: an in-place permute (slice_sizes)\n" in _uncoloured(stderr)
    assert _on_terminals(["rewrite", path, "-q"], False, {})[2] == ""


# ---- the two ways to call it -----------------------------------------------------------------------------------------


def test_python_m_is_the_command() -> None:
    path = HAND / "pairs_partial.hlo"
    done = subprocess.run([sys.executable, "-m", "hlo_cp2ag", "rewrite", path], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, cp2ag("rewrite", path).stdout, b"")


def test_the_console_script_is_the_command() -> None:
    script = Path(sys.executable).with_name("cp2ag")
    if not script.exists():
        pytest.skip("the console script is not installed beside this Python")
    path = HAND / "pairs_partial.hlo"
    done = subprocess.run([script, "rewrite", path], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, cp2ag("rewrite", path).stdout, b"")


def test_the_report_never_overwrites_a_module(tmp_path: Path) -> None:
    text = (FIXTURES / "hand" / "pairs_self.hlo").read_text()
    (tmp_path / "in.hlo").write_text(text)
    outcome = cp2ag("rewrite", "in.hlo", "-o", "out.hlo", "--report", "in.hlo", cwd=tmp_path)
    assert (outcome.code, "--report would overwrite IN" in outcome.stderr) == (2, True)
    outcome = cp2ag("rewrite", "in.hlo", "-o", "out.hlo", "--report", "out.hlo", cwd=tmp_path)
    assert (outcome.code, "--report would overwrite OUT" in outcome.stderr) == (2, True)
    outcome = cp2ag("rewrite", "in.hlo", "-o", "in.hlo", "--report", "nowhere/x.json", cwd=tmp_path)
    assert outcome.code == 2
    assert (tmp_path / "in.hlo").read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.hlo"]
