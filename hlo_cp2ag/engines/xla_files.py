"""Arrays in npz files between a process and its XLA worker: types that numpy lacks as their bits, with their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np

from hlo_cp2ag.executor.values import Array


def save_arrays(path: Path, arrays: Sequence[Array]) -> None:
    """Writes arrays of numpy's and ml_dtypes' element types, in order."""
    names = np.array([array.dtype.name for array in arrays], dtype="U32")
    stored: dict[str, Any] = {f"a{i}": _stored(array) for i, array in enumerate(arrays)}
    np.savez(path, names=names, **stored)


def load_arrays(path: Path) -> list[Array]:
    """What `save_arrays` wrote."""
    with np.load(path, allow_pickle=False) as loaded:
        names = cast("list[str]", loaded["names"].tolist())
        return [_loaded(loaded[f"a{i}"], name) for i, name in enumerate(names)]


def _stored(array: Array) -> Array:
    if not hasattr(ml_dtypes, array.dtype.name):  # the kind says nothing: f8e5m2's is "f"
        return array
    result: Array = np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")
    return result


def _loaded(array: Array, name: str) -> Array:
    scalar = getattr(ml_dtypes, name, None)
    result: Array = array if scalar is None else array.view(np.dtype(scalar))
    return result
