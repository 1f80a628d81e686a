"""batch-norm-training, -inference and -grad: the operand's shape, with one vector of features each for two others."""

from __future__ import annotations

from hlo_cp2ag.ir.shape import ArrayShape, Shape, TupleShape, is_floating

from .arrays import array, flags, sizes_agree, text
from .element_types import same_but_for_precision
from .query import Query


def training(query: Query) -> Shape:
    """(operand, mean, variance)."""
    operand, features = _operand_and_features(query)
    _check_vectors(query, operand, features, ((1, "scale", True), (2, "offset", True)))
    return TupleShape((operand, features, features))


def inference(query: Query) -> Shape:
    """The operand's shape. That mean and variance are vectors is not asked, only their first size."""
    operand, features = _operand_and_features(query)
    vectors = ((1, "scale", True), (2, "offset", True), (3, "mean", False), (4, "variance", False))
    _check_vectors(query, operand, features, vectors)
    return operand


def grad(query: Query) -> Shape:
    """(gradient of operand, of scale, of offset)."""
    operand, features = _operand_and_features(query)
    output = query.array(4, "the output gradient")
    _check_vectors(query, operand, features, ((1, "scale", True), (2, "mean", True), (3, "variance", True)))
    if not same_but_for_precision(output.element_type, operand.element_type):
        query.refuse(f"the output gradient {text(output)} is not of the operand's type {text(operand)}")
    if operand.rank != output.rank or not all(map(sizes_agree, operand.dimensions, output.dimensions)):
        query.refuse(f"the output gradient {text(output)} has not the operand's sizes {text(operand)}")
    return TupleShape((operand, features, features))


def _operand_and_features(query: Query) -> tuple[ArrayShape, ArrayShape]:
    operand = query.array(0)
    feature = query.dimension_in(query.integer("feature_index"), operand, "feature_index")
    if not is_floating(operand.element_type):
        query.refuse(f"takes floating-point elements, the operand is {text(operand)}")
    features = array(operand.element_type, (operand.dimensions[feature],), (flags(operand)[feature],))
    return operand, features


def _check_vectors(
    query: Query, operand: ArrayShape, features: ArrayShape, vectors: tuple[tuple[int, str, bool], ...]
) -> None:
    for index, what, is_vector in vectors:
        shape = query.array(index, f"the {what}")
        if (is_vector and shape.rank != 1) or not shape.rank:
            query.refuse(f"the {what} has to be a vector, it is {text(shape)}")
        if not same_but_for_precision(shape.element_type, operand.element_type):
            query.refuse(f"the {what} {text(shape)} is not of the operand's type {text(operand)}")
        if not sizes_agree(shape.dimensions[0], features.dimensions[0]):
            query.refuse(f"the {what} {text(shape)} has not the {features.dimensions[0]} features of {text(operand)}")
