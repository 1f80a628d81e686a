"""ragged-dot, scaled-dot, ragged-all-to-all: products in groups, products with scales, rows of any number."""

from __future__ import annotations

import numpy as np

from hlo_cp2ag.executor.arithmetic import lift
from hlo_cp2ag.executor.ops.collectives import same_groups
from hlo_cp2ag.executor.ops.linalg import as_matrices, multiply_matrices
from hlo_cp2ag.executor.registry import Context, array_shape, execution_error, integers, op, precheck
from hlo_cp2ag.executor.values import Array, align, array_shape_of, expand
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import ArrayShape, is_complex, is_floating, is_integer


@op("ragged-dot")
def ragged_dot(context: Context, instruction: Instruction, lhs: Array, rhs: Array, sizes: Array) -> Array:
    """Semantics: XLA, RaggedDotRewriter: of each group the places [start, end) along the ragged dimension of the left.

    A free ragged dimension: each group is multiplied by its own matrix of the right, rows in no group are zero. A
    contracting one: one product a group, in front of the others. A batch one: a plain dot.
    """
    shape = array_shape(instruction)
    left, right = (array_shape_of(s).element_type for s in context.operand_shapes(instruction)[:2])
    (ragged,) = integers(instruction, "lhs_ragged_dims")
    batch, contracting = integers(instruction, "lhs_batch_dims"), integers(instruction, "lhs_contracting_dims")

    def product(a: Array, b: Array) -> Array:
        x, batch_sizes, rows = as_matrices(instruction, a, "lhs")
        y, _, columns = as_matrices(instruction, b, "rhs")
        found = multiply_matrices(x, y.swapaxes(-1, -2), (left, right), shape.element_type)
        result: Array = found.reshape(found.shape[0], *batch_sizes, *rows, *columns)
        return result

    lhs, rhs, sizes = align(lhs, rhs, sizes)
    if ragged in batch:
        return product(lhs, rhs)
    free = tuple(d for d in range(lhs.ndim - 1) if d not in batch + contracting)
    peers = contracting if ragged in contracting else free
    before = (*batch, *peers[: peers.index(ragged)]) if sizes.ndim > 2 else ()
    ends = np.cumsum(lift(sizes, "s64").astype(np.int64), axis=-1)
    results = []
    total = np.zeros((lhs.shape[0], *shape.dimensions), dtype_of(shape.element_type))
    for group in range(sizes.shape[-1]):
        end = ends[..., group]
        start = end - sizes[..., group].astype(np.int64)
        part = np.where(_between(lhs.shape, ragged, before, start, end), lhs, np.zeros((), lhs.dtype))
        if ragged in contracting:
            results.append(product(part, rhs))
            continue
        (group_dim,) = integers(instruction, "rhs_group_dims")
        result = product(part, rhs.take([group], axis=group_dim + 1)).reshape(total.shape)
        of_result = tuple((*batch, *free).index(d) for d in before)
        here = _between(total.shape, len(batch) + free.index(ragged), of_result, start, end)
        total = np.where(here, result, total)
    return np.stack(results, axis=1) if results else total


def _between(shape: tuple[int, ...], along: int, before: tuple[int, ...], start: Array, end: Array) -> Array:
    """Where the place along a dimension is in [start, end), bounds `[lanes, *sizes of the dimensions before]`."""
    places = np.arange(shape[along + 1]).reshape([-1 if axis == along + 1 else 1 for axis in range(len(shape))])
    order = sorted(range(len(before)), key=lambda i: before[i])
    spread = [1] * len(shape)
    spread[0] = start.shape[0]
    for d in before:
        spread[d + 1] = shape[d + 1]
    low, high = (x.transpose(0, *(i + 1 for i in order)).reshape(spread) for x in (start, end))
    return np.asarray((places >= low) & (places < high))


@precheck("ragged-dot")
def check_ragged_dot(context: Context, instruction: Instruction) -> None:
    """Products of numbers are no elements of a narrower kind."""
    *kinds, sizes = (array_shape_of(s).element_type for s in context.operand_shapes(instruction))
    if not is_integer(sizes):
        raise execution_error(instruction, f"ragged-dot: the group sizes have to be integers, not {sizes}")
    result = array_shape(instruction).element_type
    for kind in kinds:
        if (is_complex(kind) and not is_complex(result)) or (
            is_floating(kind) and not (is_floating(result) or is_complex(result))
        ):
            raise execution_error(instruction, f"ragged-dot: products of {kind} are no elements of {result}")


@op("scaled-dot")
def scaled_dot(
    context: Context, instruction: Instruction, lhs: Array, rhs: Array, lhs_scale: Array, rhs_scale: Array
) -> Array:
    """Semantics: XLA, ScaledDotRewriter: the dot of operands times their scales, each scale for a block of elements.

    Operands are multiplied by scales in bf16, as XLA does it, and a scale of one element is for the whole operand.
    """
    shape = array_shape(instruction)
    types = [array_shape_of(s).element_type for s in context.operand_shapes(instruction)]
    a = _scaled(lhs, lhs_scale, types[0], types[2])
    b = _scaled(rhs, rhs_scale, types[1], types[3])
    x, batch, rows = as_matrices(instruction, a, "lhs")
    y, _, columns = as_matrices(instruction, b, "rhs")
    kinds = ("f32" if a.dtype == np.float32 else "bf16", "f32" if b.dtype == np.float32 else "bf16")
    found = multiply_matrices(x, y.swapaxes(-1, -2), kinds, shape.element_type)
    result: Array = found.reshape(found.shape[0], *batch, *rows, *columns)
    return result


def _scaled(x: Array, scale: Array, element_type: str, scale_type: str) -> Array:
    x, scale = align(x, scale)
    factors = lift(scale, scale_type).astype(np.float32)
    for axis in range(1, x.ndim):
        factors = np.repeat(factors, x.shape[axis] // max(1, factors.shape[axis]), axis=axis)
    bf16 = dtype_of("bf16")
    found: Array = (lift(x, element_type).astype(np.float32).astype(bf16) * factors.astype(bf16)).astype(bf16)
    return found


@op("ragged-all-to-all")
def ragged_all_to_all(
    context: Context,
    instruction: Instruction,
    operand: Array,
    output: Array,
    input_offsets: Array,
    send_sizes: Array,
    output_offsets: Array,
    receive_sizes: Array,
) -> Array:
    """Semantics: XLA operation semantics, RaggedAllToAll: rows of dimension 0, any number for each member of a group.

    Member i's rows [input_offsets[j], + send_sizes[j]) go to member j's output at i's output_offsets[j]; the rest of
    the output stays. With k offsets a member, they are the k numbers that begin at k * j.
    """
    _, members = same_groups(context, instruction)
    lanes = context.lanes
    source = expand(operand, lanes)
    result: Array = expand(output, lanes).copy()
    starts, counts, targets, expected = (
        expand(x, lanes).astype(np.int64) for x in (input_offsets, send_sizes, output_offsets, receive_sizes)
    )
    each = starts.shape[1] // members.shape[1]
    for group in members:
        if context.active is not None and not context.active[group[0]]:
            continue  # what those who are not here send does not count
        for place, sender in enumerate(group):
            for other, receiver in enumerate(group):
                for update in range(each):
                    number = other * each + update
                    start, count, target = (int(x[sender, number]) for x in (starts, counts, targets))
                    if count < 0 or start < 0 or start + count > source.shape[1]:
                        raise execution_error(
                            instruction, f"device {sender} sends {count} rows from {start} on, of {source.shape[1]}"
                        )
                    if target < 0 or target + count > result.shape[1]:
                        raise execution_error(
                            instruction,
                            f"device {sender} sends {count} rows to {target} of device {receiver}, "
                            f"which has {result.shape[1]}",
                        )
                    wanted = int(expected[receiver, place * each + update])
                    if wanted != count:
                        raise execution_error(
                            instruction,
                            f"device {receiver} expects {wanted} rows of device {sender}, which sends {count}",
                        )
                    result[receiver, target : target + count] = source[sender, start : start + count]
    return result


@precheck("ragged-all-to-all")
def check_ragged_all_to_all(context: Context, instruction: Instruction) -> None:
    """Offsets and sizes are a whole number for each member of a group; rows are of one size."""
    from hlo_cp2ag.executor.groups import group_table

    table = group_table(context, instruction)
    shapes = [s for s in context.operand_shapes(instruction) if isinstance(s, ArrayShape)]
    if table.same_size is None or not table.covers:
        raise execution_error(instruction, "the groups have to be of one size and to hold every device")
    members = table.same_size.shape[1]
    if shapes[2].rank != 1 or not shapes[2].dimensions[0] or shapes[2].dimensions[0] % members:
        raise execution_error(instruction, f"offsets {shapes[2].to_text(False)} for groups of {members}")
    rows = [s.dimensions[1:] for s in shapes[:2]]
    if rows[0] != rows[1] or not shapes[0].rank or shapes[0].element_type != shapes[1].element_type:
        raise execution_error(instruction, f"rows of {shapes[0].to_text(False)} do not fit {shapes[1].to_text(False)}")
