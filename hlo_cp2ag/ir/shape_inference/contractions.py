"""Products: dot and its relatives, convolution. Their results are new row-major shapes."""

from __future__ import annotations

from hlo_cp2ag.ir.attributes import ConvolutionDimensionNumbers
from hlo_cp2ag.ir.shape import ArrayShape, Shape

from .arrays import array, flags, sizes_agree, text
from .elementwise import common_type
from .query import Query
from .reductions import window_of, windowed


def dot(query: Query) -> Shape:
    """Batch dimensions, then the left operand's free ones, then the right one's."""
    if len(query.operands) < 2:
        query.refuse("takes two operands")
    return dot_of(query, query.array(0), query.array(1))


def scaled_dot(query: Query) -> Shape:
    """`dot` of operands 0 and 2, which is what XLA's parser infers from, though the scales are operands 2 and 3."""
    return dot_of(query, query.array(0), query.array(2))


def dot_of(query: Query, left: ArrayShape, right: ArrayShape) -> ArrayShape:
    """The product of two operands by the query's batch and contracting dimensions."""
    _check_dot(query, left, right)
    dimensions, dynamic = _dot_dimensions(query, left, right)
    return array(common_type(query, left, right), dimensions, dynamic)


def _dot_numbers(query: Query, side: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return query.integers(f"{side}_batch_dims", ()), query.integers(f"{side}_contracting_dims", ())


def _check_dot(query: Query, left: ArrayShape, right: ArrayShape) -> None:
    left_numbers, right_numbers = _dot_numbers(query, "lhs"), _dot_numbers(query, "rhs")
    for side, shape, (batch, contracting) in (("lhs", left, left_numbers), ("rhs", right, right_numbers)):
        for dimension in (*batch, *contracting):
            query.dimension_in(dimension, shape, f"the {side} dimension")
        if len({*batch, *contracting}) != len(batch) + len(contracting):
            query.refuse(f"a dimension of the {side} stands twice in its batch and contracting dimensions")
    for kind, ours, theirs in zip(("batch", "contracting"), left_numbers, right_numbers, strict=True):
        if len(ours) != len(theirs):
            query.refuse(f"the lhs has {len(ours)} {kind} dimensions, the rhs {len(theirs)}")
        for a, b in zip(ours, theirs, strict=True):
            if not sizes_agree(left.dimensions[a], right.dimensions[b]):
                query.refuse(f"the {kind} dimensions {a} of {text(left)} and {b} of {text(right)} have different sizes")


def _dot_dimensions(
    query: Query, left: ArrayShape, right: ArrayShape, left_out: tuple[int, ...] = ()
) -> tuple[list[int], list[bool]]:
    left_batch, left_contracting = _dot_numbers(query, "lhs")
    right_batch, right_contracting = _dot_numbers(query, "rhs")
    free_left = [i for i in range(left.rank) if i not in left_batch + left_contracting]
    free_right = [i for i in range(right.rank) if i not in right_batch + right_contracting + left_out]
    dimensions = [left.dimensions[i] for i in (*left_batch, *free_left)] + [right.dimensions[i] for i in free_right]
    dynamic = [flags(left)[i] for i in (*left_batch, *free_left)] + [flags(right)[i] for i in free_right]
    return dimensions, dynamic


def ragged_dot(query: Query) -> Shape:
    """`dot` in groups along one ragged dimension of the left operand.

    A free ragged dimension is matched by a group dimension of the right operand; a contracting one puts the groups in
    front of the result; a batch one changes nothing.
    """
    left, right, group_sizes = query.array(0), query.array(1), query.array(2, "the group sizes")
    _check_dot(query, left, right)
    ragged_dims = query.integers("lhs_ragged_dims", ())
    if len(ragged_dims) != 1:
        query.refuse(f"takes one ragged dimension of the lhs, lhs_ragged_dims has {len(ragged_dims)}")
    ragged = query.dimension_in(ragged_dims[0], left, "the ragged dimension")
    batch, contracting = _dot_numbers(query, "lhs")
    free = tuple(i for i in range(left.rank) if i not in batch + contracting)
    if ragged in batch:
        before = batch[: batch.index(ragged)]
    else:
        peers = contracting if ragged in contracting else free
        before = batch + peers[: peers.index(ragged)]
    expected = tuple(left.dimensions[i] for i in before)
    if group_sizes.rank != 1 and (group_sizes.rank == 0 or group_sizes.dimensions[:-1] != expected):
        wanted = ",".join(map(str, (*expected, "n")))
        query.refuse(f"the group sizes have to be a vector or of sizes [{wanted}], they are {text(group_sizes)}")
    groups = group_sizes.dimensions[-1]
    group_dims = query.integers("rhs_group_dims", ())
    right_batch, right_contracting = _dot_numbers(query, "rhs")
    for dimension in group_dims:
        query.dimension_in(dimension, right, "the rhs group dimension")
        if dimension in right_batch + right_contracting:
            query.refuse(f"the rhs group dimension {dimension} is a batch or contracting dimension")
    wanted_dims = 1 if ragged in free else 0
    if len(group_dims) != wanted_dims:
        query.refuse(f"has {len(group_dims)} rhs group dimensions, the ragged dimension {ragged} needs {wanted_dims}")
    if group_dims and not sizes_agree(groups, right.dimensions[group_dims[0]]):
        query.refuse(f"there are {groups} groups, {text(right)} has {right.dimensions[group_dims[0]]}")
    dimensions, dynamic = _dot_dimensions(query, left, right, group_dims)
    if ragged in contracting:
        dimensions, dynamic = [groups, *dimensions], [flags(group_sizes)[-1], *dynamic]
    return array(common_type(query, left, right), dimensions, dynamic)


def convolution(query: Query) -> Shape:
    """Batch and features from the operands, one spatial size for each place of the window."""
    image, kernel = query.array(0, "the input"), query.array(1, "the kernel")
    numbers = query.value("dim_labels", ConvolutionDimensionNumbers)
    window = window_of(query)
    feature_groups = query.integer("feature_group_count", 1)
    batch_groups = query.integer("batch_group_count", 1)
    if feature_groups < 1 or batch_groups < 1:
        query.refuse("feature_group_count and batch_group_count have to be positive")
    if feature_groups > 1 and batch_groups > 1:
        query.refuse("feature_group_count and batch_group_count cannot both be greater than 1")
    spatial = len(numbers.input_spatial)
    if len(window.dimensions) != spatial:
        query.refuse(f"the window has {len(window.dimensions)} dimensions, dim_labels have {spatial}")
    for what, shape in (("input", image), ("kernel", kernel)):
        if shape.rank != spatial + 2:
            query.refuse(f"dim_labels give the {what} {spatial + 2} dimensions, it is {text(shape)}")
    _check_labels(query, numbers, spatial + 2)

    batch, features = image.dimensions[numbers.input_batch], image.dimensions[numbers.input_feature]
    kernel_in = kernel.dimensions[numbers.kernel_input_feature]
    kernel_out = kernel.dimensions[numbers.kernel_output_feature]
    shapes = f"{text(image)} and {text(kernel)}"
    if kernel_out % batch_groups or batch % batch_groups:
        query.refuse(f"batch_group_count={batch_groups} does not divide batch and output features of {shapes}")
    if features % feature_groups or features // feature_groups != kernel_in:
        query.refuse(
            f"the {features} input features in {feature_groups} groups are not the {kernel_in} of the kernel: {shapes}"
        )
    if kernel_out % feature_groups:
        query.refuse(f"feature_group_count={feature_groups} does not divide the output features of {shapes}")
    sizes = [kernel.dimensions[i] for i in numbers.kernel_spatial]
    if sizes != [dim.size for dim in window.dimensions]:
        query.refuse(f"the window is not of the kernel's size: {text(kernel)}")
    if flags(kernel)[numbers.kernel_output_feature]:
        query.refuse(f"the kernel's output features cannot be dynamic: {text(kernel)}")
    base = array(image.element_type, [image.dimensions[i] for i in numbers.input_spatial])
    places = windowed(query, base, window, image.element_type)

    dimensions = [0] * (spatial + 2)
    dynamic = [False] * (spatial + 2)
    dimensions[numbers.output_batch] = batch // batch_groups
    dynamic[numbers.output_batch] = flags(image)[numbers.input_batch]
    dimensions[numbers.output_feature] = kernel_out
    for i, place in enumerate(numbers.output_spatial):
        dimensions[place] = places.dimensions[i]
        dynamic[place] = flags(image)[numbers.input_spatial[i]] or flags(kernel)[numbers.kernel_spatial[i]]
    return array(common_type(query, image, kernel), dimensions, dynamic)


def _check_labels(query: Query, numbers: ConvolutionDimensionNumbers, rank: int) -> None:
    parts = (
        ("input", (numbers.input_batch, numbers.input_feature, *numbers.input_spatial)),
        ("kernel", (numbers.kernel_input_feature, numbers.kernel_output_feature, *numbers.kernel_spatial)),
        ("output", (numbers.output_batch, numbers.output_feature, *numbers.output_spatial)),
    )
    for what, dimensions in parts:
        if sorted(dimensions) != list(range(rank)):
            query.refuse(f"dim_labels do not name each dimension of the {what} once")
