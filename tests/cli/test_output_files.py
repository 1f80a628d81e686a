"""Where results go: nothing is lost when something goes wrong, and what is no regular file is written as it is."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from .in_process import FIXTURES, cp2ag

MODULE = FIXTURES / "hand" / "chain_of_permutes.hlo"
NO_PERMUTE = FIXTURES / "hand" / "no_permute.hlo"
COMMAND = [sys.executable, "-m", "hlo_cp2ag"]
OLD = b"what was there before\n"
BAD = b"HloModule m\n\nENTRY main {\n  ROOT p = f32[2] parameter(0\n"

needs_posix = pytest.mark.skipif(os.name != "posix", reason="files of this kind are POSIX")
not_root = pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")


@pytest.fixture(scope="module")
def expected() -> bytes:
    return cp2ag("rewrite", MODULE).stdout


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---- regular files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_an_absent_file_gets_the_umasks_mode(umask: int, tmp_path: Path, expected: bytes) -> None:
    out = tmp_path / "out.hlo"
    before = os.umask(umask)
    try:
        outcome = cp2ag("rewrite", MODULE, "-o", out)
    finally:
        assert os.umask(before) == umask
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, b"", "")
    assert out.read_bytes() == expected
    assert _mode(out) == 0o666 & ~umask
    assert _files(tmp_path) == ["out.hlo"]


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o664, 0o755, 0o444])
def test_an_existing_file_keeps_its_mode(mode: int, tmp_path: Path, expected: bytes) -> None:
    out = tmp_path / "out.hlo"
    out.write_bytes(OLD)
    out.chmod(mode)
    assert cp2ag("rewrite", MODULE, "-o", out).code == 0
    assert out.read_bytes() == expected
    assert _mode(out) == mode
    assert _files(tmp_path) == ["out.hlo"]


def test_a_file_is_replaced_whole(tmp_path: Path, expected: bytes) -> None:
    """Who has the old file open reads the old file to its end."""
    out = tmp_path / "out.hlo"
    out.write_bytes(OLD)
    with out.open("rb") as reader:
        assert cp2ag("rewrite", MODULE, "-o", out).code == 0
        assert reader.read() == OLD
    assert out.read_bytes() == expected


def test_in_may_be_out(tmp_path: Path, expected: bytes) -> None:
    path = tmp_path / "module.hlo"
    path.write_bytes(MODULE.read_bytes())
    path.chmod(0o640)
    assert cp2ag("rewrite", path, "-o", path).code == 0
    assert (path.read_bytes(), _mode(path), _files(tmp_path)) == (expected, 0o640, ["module.hlo"])


def test_in_may_be_out_under_another_name(tmp_path: Path, expected: bytes) -> None:
    path, link = tmp_path / "module.hlo", tmp_path / "link.hlo"
    path.write_bytes(MODULE.read_bytes())
    link.symlink_to("module.hlo")
    assert cp2ag("rewrite", path, "-o", link).code == 0
    assert path.read_bytes() == expected
    assert link.is_symlink()


def test_in_that_is_out_is_not_touched_without_a_change(tmp_path: Path) -> None:
    path = tmp_path / "module.hlo"
    path.write_bytes(NO_PERMUTE.read_bytes())
    before = path.stat()
    assert cp2ag("rewrite", path, "-o", path).code == 0
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_module_without_a_change_is_written_elsewhere(tmp_path: Path) -> None:
    out = tmp_path / "out.hlo"
    assert cp2ag("rewrite", NO_PERMUTE, "-o", out).code == 0
    assert out.read_bytes() == NO_PERMUTE.read_bytes()


def test_names_with_blanks_and_without_folder(tmp_path: Path, expected: bytes) -> None:
    for name in ("a b.hlo", "-x.hlo", "ä.hlo", "n\n.hlo", "x" * 240 + ".hlo"):
        outcome = cp2ag("rewrite", MODULE, f"--output={name}", cwd=tmp_path)
        assert (outcome.code, outcome.stderr) == (0, "")
        assert (tmp_path / name).read_bytes() == expected


def test_a_report_is_written_with_the_same_care(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_bytes(OLD)
    report.chmod(0o600)
    assert cp2ag("rewrite", MODULE, "--report", report).code == 0
    assert (_mode(report), _files(tmp_path)) == (0o600, ["report.json"])
    assert report.read_bytes().startswith(b"{\n")


# ---- symlinks --------------------------------------------------------------------------------------------------------


@needs_posix
def test_a_symlinks_target_is_replaced_not_the_link(tmp_path: Path, expected: bytes) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target, link, second = elsewhere / "target.hlo", tmp_path / "link.hlo", tmp_path / "second.hlo"
    target.write_bytes(OLD)
    target.chmod(0o640)
    link.symlink_to("elsewhere/target.hlo")
    second.symlink_to("link.hlo")
    assert cp2ag("rewrite", MODULE, "-o", second).code == 0
    assert (os.readlink(link), os.readlink(second)) == ("elsewhere/target.hlo", "link.hlo")
    assert (target.read_bytes(), _mode(target)) == (expected, 0o640)
    assert _files(elsewhere) == ["target.hlo"]


@needs_posix
def test_a_symlink_to_nothing_makes_its_target(tmp_path: Path, expected: bytes) -> None:
    link = tmp_path / "link.hlo"
    link.symlink_to("target.hlo")
    assert cp2ag("rewrite", MODULE, "-o", link).code == 0
    assert link.is_symlink()
    assert (tmp_path / "target.hlo").read_bytes() == expected


@needs_posix
def test_a_symlink_to_itself(tmp_path: Path) -> None:
    link = tmp_path / "link.hlo"
    link.symlink_to("link.hlo")
    outcome = cp2ag("rewrite", MODULE, "-o", "link.hlo", cwd=tmp_path)
    assert (outcome.code, outcome.stderr) == (
        2,
        "link.hlo: error: cannot write it: Too many levels of symbolic links\n",
    )


# ---- failures leave what was there -----------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--diff"], ["--split-input-file"], ["--report", "report.json"]], ids=str)
def test_bad_input_leaves_the_old_file(flags: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.hlo"
    out.write_bytes(OLD)
    outcome = cp2ag("rewrite", "-o", "out.hlo", *flags, stdin=BAD, cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert (out.read_bytes(), _files(tmp_path)) == (OLD, ["out.hlo"])


def test_bad_input_makes_no_file(tmp_path: Path) -> None:
    assert cp2ag("rewrite", "-o", "out.hlo", "--report", "r.json", stdin=BAD, cwd=tmp_path).code == 2
    assert _files(tmp_path) == []


def test_bad_input_that_is_out_stays(tmp_path: Path) -> None:
    path = tmp_path / "module.hlo"
    path.write_bytes(BAD)
    assert cp2ag("rewrite", path, "-o", path).code == 2
    assert path.read_bytes() == BAD


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_said(unbuffered: str) -> None:
    outcome = cp2ag("rewrite", MODULE, "-o", "/dev/full")
    assert (outcome.code, outcome.stderr) == (2, "/dev/full: error: cannot write it: No space left on device\n")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "rewrite", MODULE], stdout=full, stderr=subprocess.PIPE, timeout=60,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, b"<stdout>: error: cannot write it: No space left on device\n")


def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.hlo"
    out.write_bytes(OLD)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(os, "rename", full)
    outcome = cp2ag("rewrite", MODULE, "-o", "out.hlo", cwd=tmp_path)
    assert (outcome.code, outcome.stderr) == (2, "out.hlo: error: cannot write it: No space left on device\n")
    assert (out.read_bytes(), _files(tmp_path)) == (OLD, ["out.hlo"])


def test_ctrl_c_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.hlo"
    out.write_bytes(OLD)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    monkeypatch.setattr(os, "rename", interrupted)
    outcome = cp2ag("rewrite", MODULE, "-o", out)
    assert outcome.code == 130
    assert (out.read_bytes(), _files(tmp_path)) == (OLD, ["out.hlo"])


@needs_posix
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash sets the limit")
def test_a_file_size_limit_leaves_the_old_file(tmp_path: Path) -> None:
    """The closest thing to a full disk that needs no rights: writing fails in the middle."""
    big = tmp_path / "big.hlo"
    big.write_bytes(MODULE.read_bytes() + b"// filler\n" * 20_000)
    out = tmp_path / "out.hlo"
    out.write_bytes(OLD)
    script = 'trap "" XFSZ; ulimit -f 8; exec "$@"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND, "rewrite", "big.hlo", "-o", "out.hlo"],
        cwd=tmp_path, capture_output=True, timeout=60, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == "out.hlo: error: cannot write it: File too large\n"
    assert (out.read_bytes(), _files(tmp_path)) == (OLD, ["big.hlo", "out.hlo"])


def test_a_folder_as_out(tmp_path: Path) -> None:
    outcome = cp2ag("rewrite", MODULE, "-o", ".", cwd=tmp_path)
    assert (outcome.code, outcome.stderr) == (2, ".: error: cannot write it: Is a directory\n")
    assert _files(tmp_path) == []


def test_out_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    outcome = cp2ag("rewrite", MODULE, "-o", "no/out.hlo", cwd=tmp_path)
    assert (outcome.code, outcome.stderr) == (2, "no/out.hlo: error: cannot write it: No such file or directory\n")
    assert _files(tmp_path) == []


def test_out_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(OLD)
    outcome = cp2ag("rewrite", MODULE, "-o", "file/out.hlo", cwd=tmp_path)
    assert (outcome.code, outcome.stderr) == (2, "file/out.hlo: error: cannot write it: Not a directory\n")


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    outcome = cp2ag("rewrite", MODULE, "-o", "x" * 300, cwd=tmp_path)
    assert outcome.code == 2
    assert outcome.stderr == "x" * 300 + ": error: cannot write it: File name too long\n"
    assert _files(tmp_path) == []


@not_root
def test_a_folder_that_is_not_writable(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out.hlo").write_bytes(OLD)
    folder.chmod(0o555)
    try:
        outcome = cp2ag("rewrite", MODULE, "-o", "folder/out.hlo", cwd=tmp_path)
    finally:
        folder.chmod(0o755)
    assert (outcome.code, outcome.stderr) == (2, "folder/out.hlo: error: cannot write it: Permission denied\n")
    assert ((folder / "out.hlo").read_bytes(), _files(folder)) == (OLD, ["out.hlo"])


@needs_posix
def test_a_folder_that_refuses_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like the test above, for root too."""
    out = tmp_path / "out.hlo"
    out.write_bytes(OLD)
    import tempfile

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refused)
    outcome = cp2ag("rewrite", MODULE, "-o", "out.hlo", cwd=tmp_path)
    assert (outcome.code, outcome.stderr) == (2, "out.hlo: error: cannot write it: Permission denied\n")
    assert (out.read_bytes(), _files(tmp_path)) == (OLD, ["out.hlo"])


# ---- devices and pipes -----------------------------------------------------------------------------------------------


@needs_posix
def test_dev_null() -> None:
    outcome = cp2ag("rewrite", MODULE, "-o", "/dev/null")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, b"", "")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@needs_posix
def test_a_fifo_is_written_and_stays(tmp_path: Path, expected: bytes) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_bytes()), daemon=True)
    reader.start()
    done = subprocess.run([*COMMAND, "rewrite", MODULE, "-o", fifo], capture_output=True, timeout=60)
    reader.join(10)
    assert (done.returncode, done.stderr, received) == (0, b"", [expected])
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert _files(tmp_path) == ["fifo"]


@needs_posix
def test_a_fifo_as_in(tmp_path: Path, expected: bytes) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(MODULE.read_bytes()), daemon=True)
    writer.start()
    done = subprocess.run([*COMMAND, "rewrite", fifo], capture_output=True, timeout=60)
    writer.join(10)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")


def _bash(script: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    env = {**os.environ, "PY": sys.executable, "IN": str(MODULE), "PYTHONUNBUFFERED": "", **variables}
    return subprocess.run(["bash", "-c", script], cwd=cwd, env=env, capture_output=True, timeout=60)


@needs_posix
def test_process_substitution(tmp_path: Path, expected: bytes) -> None:
    script = 'set -e; "$PY" -m hlo_cp2ag rewrite <(cat "$IN") -o >(cat > out.hlo; touch done); '
    script += "for i in $(seq 100); do [ -e done ] && break; sleep 0.05; done"
    done = _bash(script, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "out.hlo").read_bytes() == expected


@needs_posix
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_dev_stdout(name: str, tmp_path: Path, expected: bytes) -> None:
    if not Path(name).exists():
        pytest.skip(f"there is no {name} here")
    done = _bash(f'"$PY" -m hlo_cp2ag rewrite "$IN" -o {name} | cat', tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")
    # Redirected into a regular file, what the shell has written before stays, and what it writes behind comes behind.
    done = _bash(
        f'{{ echo before; "$PY" -m hlo_cp2ag rewrite "$IN" -o {name}; echo after; }} > out; {{ :; }} >> out', tmp_path
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "out").read_bytes() == b"before\n" + expected + b"after\n"


@needs_posix
def test_stdout_that_is_closed(tmp_path: Path) -> None:
    done = _bash('"$PY" -m hlo_cp2ag rewrite "$IN" >&-', tmp_path)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert done.stderr.strip()


@needs_posix
def test_stdin_that_is_closed(tmp_path: Path) -> None:
    done = _bash('"$PY" -m hlo_cp2ag rewrite - <&-', tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr
    assert done.stderr.decode() == "<stdin>: error: standard input is closed\n"


@needs_posix
def test_stderr_that_is_closed(tmp_path: Path) -> None:
    left = str(FIXTURES / "hand" / "in_place.hlo")
    done = _bash('"$PY" -m hlo_cp2ag rewrite "$LEFT" 2>&-', tmp_path, LEFT=left)
    assert (done.returncode, done.stdout) == (0, Path(left).read_bytes())


@needs_posix
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("flags", ["", "--diff", "-o /dev/stdout"])
def test_a_closed_pipe_is_no_error(flags: str, unbuffered: str, tmp_path: Path) -> None:
    big = tmp_path / "big.hlo"
    permute = "  cp.%d = f32[2] collective-permute(p), source_target_pairs={{0,1},{1,0}}\n"
    lines = "".join(permute % i for i in range(3000))
    big.write_text(f"HloModule big, replica_count=2\n\nENTRY main {{\n  p = f32[2] parameter(0)\n{lines}}}\n")
    script = f'"$PY" -m hlo_cp2ag rewrite big.hlo {flags} | head -1; echo "${{PIPESTATUS[0]}}"'
    done = _bash(script, tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert done.stderr == b""
    first = b"--- big.hlo" if flags == "--diff" else b"HloModule big, replica_count=2"
    assert done.stdout.splitlines() == [first, b"0"]


@needs_posix
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_on_stderr_is_no_error(unbuffered: str, tmp_path: Path) -> None:
    permute = "  cp.%d = (f32[2], f32[2]) collective-permute-start(p), source_target_pairs={{0,1},{1,0}}\n"
    lines = "".join(permute % i for i in range(3000))
    text = f"HloModule big, replica_count=2\n\nENTRY main {{\n  p = f32[2] parameter(0)\n{lines}}}\n"
    (tmp_path / "big.hlo").write_text(text)
    script = '{ "$PY" -m hlo_cp2ag rewrite big.hlo -o out.hlo; echo $? > code; } 2>&1 >/dev/null | head -1'
    done = _bash(script, tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""
    assert (tmp_path / "code").read_text() == "0\n"
    assert (tmp_path / "out.hlo").read_text() == text


@needs_posix
def test_ctrl_c_while_reading_stdin(tmp_path: Path) -> None:
    out = tmp_path / "out.hlo"
    out.write_bytes(OLD)
    process = subprocess.Popen(
        [*COMMAND, "rewrite", "-", "-o", out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(MODULE.read_bytes()[:100])
    process.stdin.flush()
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    code = process.wait(timeout=20)
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = process.stdout.read(), process.stderr.read()
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()
    assert code in (130, -signal.SIGINT)
    assert stdout == b""
    assert b"Traceback" not in stderr
    assert (out.read_bytes(), _files(tmp_path)) == (OLD, ["out.hlo"])
