"""Reading modules and writing results so that nothing is ever lost."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from hlo_cp2ag.ir.source import HloError, SourceText

STDIN_NAME = "<stdin>"
_TEXT_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\xef\xbb\xbf": "UTF-8 with a byte order mark"}


def read_bytes(path: str) -> bytes:
    """The bytes of a file, or of standard input for `-`. Raises HloError if they cannot be read."""
    if path == "-":
        if sys.stdin is None:
            raise HloError(f"{STDIN_NAME}: error: standard input is closed")
        if sys.stdin.isatty():
            sys.stderr.write("cp2ag: reading HLO from the terminal; Ctrl-D ends it\n")
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise HloError(f"{shown(path)}: error: cannot read it: {error.strerror or error}") from None
    except ValueError as error:
        raise HloError(f"{path!r}: error: cannot read it: {error}") from None


def decode(data: bytes, path: str) -> str:
    """The text of a file. Raises HloError, with the place, if it is not UTF-8 text."""
    name = shown(path)
    for mark, encoding in _TEXT_MARKS.items():
        if data.startswith(mark):
            problem = SourceText("", name).diagnostic(
                0, f"the text is {encoding}, not plain UTF-8", hint="iconv converts it"
            )
            raise HloError(problem)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        source = SourceText(data.decode("latin-1"), name)
        hint = "HLO text is ASCII or UTF-8"
        if b"\0" in data[:4096]:
            hint = "this looks like binary data, perhaps a serialized HloModuleProto; cp2ag reads HLO text"
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        raise HloError(source.diagnostic(error.start, message, hint=hint)) from None


def shown(path: str) -> str:
    """How messages name a file."""
    return STDIN_NAME if path == "-" else path or "''"


def same_file(a: str, b: str) -> bool:
    """Whether two paths are one existing file."""
    try:
        return a != "-" and b != "-" and Path(a).samefile(b)
    except (OSError, ValueError):
        return False


Pieces = Iterable[bytes | memoryview]


def write_bytes(path: str, data: bytes | Pieces) -> None:
    """Writes a result, whole or in pieces: to standard output for `-`, else to a file.

    An absent or regular file is written beside itself and renamed, its mode kept, so that a failure leaves the old one; a
    symlink's target is replaced, not the link. Devices, pipes and /dev/fd/* are written directly.

    Raises HloError if it cannot be written, BrokenPipeError if nobody reads a pipe any more.
    """
    pieces = [data] if isinstance(data, bytes) else data
    try:
        if path == "-":
            write_stdout(b"".join(pieces))
        else:
            _write_file(path, pieces)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise HloError(f"{'<stdout>' if path == '-' else shown(path)}: error: cannot write it: {reason}") from None


def write_stdout(data: bytes) -> None:
    """Writes to standard output. Raises OSError if that fails or standard output is closed."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    try:
        sys.stdout.flush()
        # With PYTHONUNBUFFERED the buffer is the raw file, which may write a part only.
        view = memoryview(data)
        while view:
            view = view[sys.stdout.buffer.write(view) :]
        sys.stdout.buffer.flush()
    except OSError:
        discard(sys.stdout)
        raise


def discard(stream: TextIO | None) -> None:
    """Sends what a stream still holds nowhere, so that the interpreter does not stumble over it when it ends."""
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


def _write_file(path: str, pieces: Pieces) -> None:
    # /dev/fd/N may lead to a regular file, whose position and appending belong to the shell: no second opening.
    absolute = os.path.abspath(path)
    number = _DESCRIPTOR.fullmatch(absolute)
    if number is not None or absolute in _STANDARD:
        if sys.stdout is not None:
            sys.stdout.flush()
        _write_all(os.dup(int(number.group(1)) if number is not None else _STANDARD[absolute]), b"".join(pieces))
        return
    try:
        mode: int | None = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        _write_all(os.open(path, os.O_WRONLY), b"".join(pieces))
        return
    import tempfile  # loads much that nothing else here needs

    target = os.path.realpath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".cp2ag-", suffix=".tmp")
    try:
        # Thousands of pieces of some kilobytes: with the usual buffer each would be a call of its own.
        with os.fdopen(handle, "wb", buffering=1 << 17) as out:
            out.writelines(pieces)
        os.chmod(temporary, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    """Writes everything to a file descriptor and closes it."""
    with open(descriptor, "wb", buffering=0) as out:
        view = memoryview(data)
        while view:
            view = view[out.write(view) :]


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def split_modules(text: str) -> list[tuple[str, int]]:
    """The parts of a text that `// -----` lines separate, and each one's first line; a separator begins its part."""
    parts: list[tuple[str, int]] = []
    start, line, position = 0, 1, 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end + 1
        if text.startswith("// -----", position) and not text[position + 8 : end].strip() and position > start:
            parts.append((text[start:position], line))
            line += text.count("\n", start, position)
            start = position
        position = end
    parts.append((text[start:], line))
    return parts
