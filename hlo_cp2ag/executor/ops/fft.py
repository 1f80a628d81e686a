"""fft."""

from __future__ import annotations

from typing import cast

import numpy as np

from hlo_cp2ag.executor.registry import Context, array_shape, integers, op
from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction


@op("fft")
def fft(context: Context, instruction: Instruction, x: Array) -> Array:
    """Semantics: XLA operation semantics, FFT: over the last `fft_length` dimensions, inverse ones divided by the size.

    FFT and IFFT map c64 to c64 and c128 to c128; RFFT real numbers to the first n // 2 + 1 of the last dimension,
    IRFFT back. Computed in f64 and rounded once.
    """
    shape = array_shape(instruction)
    dtype = dtype_of(shape.element_type)
    lengths = integers(instruction, "fft_length")
    if 0 in shape.dimensions or 0 in x.shape:
        return np.zeros((1, *shape.dimensions), dtype)
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    kind = cast(str, instruction.attribute("fft_type"))
    result: Array = wide
    if not lengths:
        pass
    elif kind == "FFT":
        result = np.fft.fftn(wide, axes=axes)
    elif kind == "IFFT":
        result = np.fft.ifftn(wide, axes=axes)
    elif kind == "RFFT":
        result = np.fft.rfftn(wide, axes=axes)
    else:
        result = np.fft.irfftn(wide, s=lengths, axes=axes)
    return result.astype(dtype)
