"""What commands that run modules do before: numbers of bytes, numpy's threads, files of inputs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from hlo_cp2ag.cli import files
from hlo_cp2ag.ir.source import HloError

if TYPE_CHECKING:
    from hlo_cp2ag.executor.values import Array

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?(?:([kmgtp])(i?b?))?b?", re.IGNORECASE)


def memory_size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """The number of bytes that 2GiB, 500MB or 4096 means."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no size; write 4096, 500MB or 2GiB", ctx, param)
    number, letter, tail = match.groups()
    base = 1000 if (tail or "").lower() == "b" else 1024
    size = int(Fraction(number) * base ** (1 + "kmgtp".index(letter.lower()) if letter else 0))
    if size < 1:
        raise click.BadParameter("must be at least 1 byte", ctx, param)
    return size


def sum_in_one_order() -> None:
    """Keeps matrix products in one thread: numpy's BLAS splits sums by the number of threads, and rounds otherwise.

    To be called before numpy is imported.
    """
    for name in ("OPENBLAS_NUM", "MKL_NUM", "OMP_NUM", "BLIS_NUM", "VECLIB_MAXIMUM"):
        os.environ[f"{name}_THREADS"] = "1"


def read_npz(path: str, max_memory: int) -> dict[str, Array]:
    """The arrays of an npz file in this machine's byte order. Raises HloError."""
    import io
    import zipfile

    import numpy as np

    name = files.shown(path)
    hint = "  hint: numpy.savez(path, p0=..., p1=...) writes one"
    arrays: dict[str, Array] = {}
    try:
        with io.BytesIO(files.read_bytes(path)) if path == "-" else open(path, "rb") as opened:
            stream = opened if opened.seekable() else io.BytesIO(opened.read())
            if not zipfile.is_zipfile(stream):
                raise HloError(f"{name}: error: this is no npz file, or it is cut off\n{hint}")
            stream.seek(0)
            with zipfile.ZipFile(stream) as archive:
                size = sum(member.file_size for member in archive.infolist())
            if size > max_memory:
                allowed = f"more than the {max_memory:,} allowed (--max-memory)"
                raise HloError(f"{name}: error: its arrays take {size:,} bytes of memory, {allowed}")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as loaded:
                for key in loaded.files:
                    array = loaded[key]
                    if not isinstance(array, np.ndarray):
                        raise HloError(f"{name}: error: {key} is no array\n{hint}")
                    arrays[key] = array.astype(array.dtype.newbyteorder("="), copy=False)
    except HloError:
        raise
    except Exception as error:  # a broken file makes zipfile, zlib and numpy raise whatever they like
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or repr(error)
        raise HloError(f"{name}: error: cannot read it: {reason.splitlines()[0]}") from None
    return arrays


def functions_of(texts: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """The functions that `NAME=module:function` name. Raises click.BadParameter for what cannot be loaded."""
    import importlib
    import sys

    found: dict[str, Callable[..., Any]] = {}
    for text in texts:
        target, _, place = text.rpartition("=")
        module_name, _, name = place.partition(":")
        if not target or not module_name or not name:
            raise click.BadParameter(f"{text!r}: write NAME=module:function", param_hint="--custom-call")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            function: Any = importlib.import_module(module_name)
            for part in name.split("."):
                function = getattr(function, part)
        except Exception as error:
            message = f"{place} cannot be loaded: {type(error).__name__}: {error}"
            raise click.BadParameter(message, param_hint="--custom-call") from None
        if not callable(function):
            raise click.BadParameter(f"{place} is no function", param_hint="--custom-call")
        found[target] = function
    return found


def in_order(arrays: dict[str, Array], path: str) -> list[Array]:
    """The arrays f0, f1, ... of an infeed. Raises HloError where one is missing or named otherwise."""
    missing = next((f"f{i}" for i in range(len(arrays)) if f"f{i}" not in arrays), None)
    if missing is not None:
        raise HloError(f"{files.shown(path)}: error: an infeed has arrays f0, f1, ...; there is no {missing}")
    return [arrays[f"f{i}"] for i in range(len(arrays))]


def outfeed_npz(arrays: list[Array]) -> bytes:
    """An npz file f0, f1, ...; types that numpy lacks as unsigned integers of the same width."""
    import io

    import numpy as np

    stream = io.BytesIO()
    packed = [a if a.dtype.kind in "biufc" else np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}") for a in arrays]
    np.savez(stream, **{f"f{i}": a for i, a in enumerate(packed)})  # type: ignore[arg-type]
    return stream.getvalue()
