"""batch-norm-training, -inference, -grad.

Semantics: XLA operation semantics, BatchNormTraining, BatchNormInference and BatchNormGrad, written out as XLA's
BatchNormExpander does it (xla/service/batchnorm_expander.cc): every intermediate is rounded to the operand's type.
Features lie along `feature_index`; statistics are over all other dimensions.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from hlo_cp2ag.executor.ops.elementwise import BINARY, UNARY, as_type
from hlo_cp2ag.executor.ops.reduction import fold_simple, in_types, types_of
from hlo_cp2ag.executor.registry import Context, integer, op
from hlo_cp2ag.executor.values import Array, Value, align, array_shape_of
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction


class _Arithmetic:
    """Arithmetic in the operand's type, and what a batch norm is about."""

    def __init__(self, context: Context, instruction: Instruction, operands: tuple[Array, ...]) -> None:
        shape = array_shape_of(context.operand_shapes(instruction)[0])
        self.type = shape.element_type
        self.feature = integer(instruction, "feature_index")
        self.rest = tuple(d + 1 for d in range(shape.rank) if d != self.feature)
        self.operands = align(*(as_type(x, self.type) for x in operands))
        self.epsilon = self.number(cast(float, instruction.attribute("epsilon", 0.0)))
        features = shape.dimensions[self.feature]
        self.count = self.number(shape.element_count // features if features else 0)

    def number(self, value: float) -> Array:
        """A number in the operand's type, `[1]`."""
        return np.asarray(np.float32(value), np.float64).reshape(1).astype(dtype_of(self.type))

    def do(self, opcode: str, a: Array, b: Array) -> Array:
        """A binary op of arrays `[lanes, ...]` that broadcast."""
        if a.ndim != b.ndim:
            a, b = (x.reshape(x.shape[0], *[1] * (max(a.ndim, b.ndim) - 1)) if x.ndim == 1 else x for x in (a, b))
        result: Array = BINARY[opcode](a, b, self.type)
        return result

    def spread(self, features: Array) -> Array:
        """`[lanes, features]` broadcast along the other dimensions."""
        shape = [features.shape[0], *[1] * (len(self.rest) + 1)]
        shape[self.feature + 1] = features.shape[1]
        return features.reshape(shape)

    def total(self, x: Array) -> Array:
        """Sums over all dimensions but the features'."""
        if x.size == 0 or not self.rest:
            summed: Array = np.zeros((x.shape[0], x.shape[self.feature + 1]), x.dtype) if self.rest else x
            return summed
        return fold_simple("add", self.type, np.zeros((1, 1), x.dtype), x, self.rest)

    def root(self, variance: Array) -> Array:
        """1 / sqrt(variance + epsilon)."""
        result: Array = UNARY["rsqrt"](self.do("add", variance, self.epsilon), self.type)
        return result


@op("batch-norm-training")
def batch_norm_training(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """(normalized operand, mean, variance) of operand, scale, offset."""
    a = _Arithmetic(context, instruction, operands)
    x, scale, offset = a.operands
    mean = a.do("divide", a.total(x), a.count)
    square = a.do("divide", a.total(a.do("multiply", x, x)), a.count)
    variance = a.do("subtract", square, a.do("multiply", mean, mean))
    normal = a.do("multiply", a.do("subtract", x, a.spread(mean)), a.spread(a.root(variance)))
    result = a.do("add", a.do("multiply", normal, a.spread(scale)), a.spread(offset))
    return tuple(in_types([result, mean, variance], types_of(instruction.shape)))


@op("batch-norm-inference")
def batch_norm_inference(context: Context, instruction: Instruction, *operands: Array) -> Array:
    """operand * factor + shift, where factor = scale / sqrt(variance + epsilon), shift = offset - mean * factor."""
    a = _Arithmetic(context, instruction, operands)
    x, scale, offset, mean, variance = a.operands
    factor = a.do("multiply", scale, a.root(variance))
    shift = a.do("subtract", offset, a.do("multiply", mean, factor))
    result = a.do("add", a.do("multiply", x, a.spread(factor)), a.spread(shift))
    return as_type(result, types_of(instruction.shape)[0])


@op("batch-norm-grad")
def batch_norm_grad(context: Context, instruction: Instruction, *operands: Array) -> Value:
    """(gradient of operand, of scale, of offset) of operand, scale, mean, variance, gradient of the output."""
    a = _Arithmetic(context, instruction, operands)
    x, scale, mean, variance, gradient = a.operands
    centred = a.do("subtract", x, a.spread(mean))
    product = a.total(a.do("multiply", gradient, centred))
    offset_gradient = a.total(gradient)
    root = a.root(variance)
    scale_gradient = a.do("multiply", product, root)
    spread_variance = a.do("add", a.spread(variance), a.epsilon)
    share = a.do("divide", a.do("multiply", a.spread(product), centred), spread_variance)
    factor = a.do("divide", a.do("multiply", a.spread(scale), a.spread(root)), a.count)
    inner = a.do("subtract", a.do("multiply", a.count, gradient), a.spread(offset_gradient))
    result = a.do("multiply", factor, a.do("subtract", inner, share))
    return tuple(in_types([result, scale_gradient, offset_gradient], types_of(instruction.shape)))
