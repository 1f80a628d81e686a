"""custom-call, by target.

Known are the markers that change nothing, TopK, and the LAPACK solvers that JAX programs call on XLA's CPU
(`ops/lapack.py`). Others are errors that name the target, unless the caller of the run supplies a function for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from hlo_cp2ag.executor.dynamic import pad_to_static, slice_to_dynamic
from hlo_cp2ag.executor.ops.lapack import ROUTINES
from hlo_cp2ag.executor.ops.sorting import sortable
from hlo_cp2ag.executor.registry import Context, execution_error, op, precheck
from hlo_cp2ag.executor.values import Array, Token, Value, array_shape_of, check_value, lane_count, map_arrays, zeros
from hlo_cp2ag.executor.values import leaves as value_leaves
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import ArrayShape, BufferShape, Shape, TupleShape, compatible, is_complex, leaves

MARKERS = frozenset(
    (
        *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint"),
        *("MoveToHost", "MoveToDevice", "Pin", "Unpin", "PinToDevice", "PinToDeviceSram", "AssumeGatherIndicesInBound"),
        *("xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape", "InspectSharding"),
    )
)
"""Targets that give back their operand: notes to passes of the compiler."""
_CALLBACKS = ("python_cpu_callback", "python_gpu_callback", "python_callback", "xla_buffer_python")

CustomCall = Callable[..., Any]
"""What a user supplies: one array `[*dimensions]` an operand leaf in, the result's array, or a tuple of them, out."""


def target_of(instruction: Instruction) -> str:
    """The name of what a custom-call calls."""
    return str(instruction.attribute("custom_call_target", ""))


@op("custom-call")
def custom_call(context: Context, instruction: Instruction, *operands: Value) -> Value:
    """Semantics: XLA operation semantics, CustomCall: what the target's implementation computes."""
    target = target_of(instruction)
    supplied = context.custom_calls.get(target)
    if supplied is not None:
        return _supplied(context, instruction, supplied, operands)
    if target in MARKERS:
        if instruction.shape == TupleShape(()):
            return ()
        return operands[0] if len(operands) == 1 else operands
    if target == "TopK":
        return _top_k(context, instruction, cast(Array, operands[0]))
    if target in ("CreateBuffer", "AllocateBuffer"):
        return zeros(instruction.shape)
    arrays = [cast(Array, x) for x in operands]
    if target == "PadToStatic":
        return pad_to_static(arrays[0])
    if target == "SliceToDynamic":
        return slice_to_dynamic(*arrays)
    try:
        result = ROUTINES[target](instruction, *arrays)
    except (ValueError, IndexError, TypeError, AssertionError, AttributeError) as error:
        raise execution_error(instruction, f"custom-call {target!r} does not take this: {error}") from None
    wrong = check_value(result, instruction.shape, (lane_count(*operands),))
    if wrong:
        raise execution_error(instruction, f"custom-call {target!r} makes {wrong}")
    return result


def _top_k(context: Context, instruction: Instruction, x: Array) -> Value:
    """The largest of the last dimension and their places, the first of equal ones first."""
    element_type = array_shape_of(context.operand_shapes(instruction)[0]).element_type
    shape = instruction.shape
    assert isinstance(shape, TupleShape)
    count = array_shape_of(shape.elements[0]).dimensions[-1]
    places = np.argsort(sortable(x, element_type, True, True), axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(x, places, axis=-1), places.astype(np.int32)


def _supplied(context: Context, instruction: Instruction, function: CustomCall, operands: Sequence[Value]) -> Value:
    """A user's function, once for each lane that is here; once if the lanes agree."""
    lanes = lane_count(*operands)
    here = range(lanes)
    if lanes > 1 and context.active is not None:
        here = np.flatnonzero(context.active).tolist() or range(1)
    results: dict[int, Value] = {}
    for lane in here:
        leaves_here = [x for operand in operands for x in value_leaves(operand) if not isinstance(x, Token)]
        arrays = [x[lane if x.shape[0] > 1 else 0] for x in leaves_here]
        name = f"--custom-call {target_of(instruction)}"
        try:
            made = function(*(a.copy() for a in arrays))
        except Exception as error:
            raise execution_error(instruction, f"{name} failed: {type(error).__name__}: {error}") from error
        result = _as_value(made, instruction.shape)
        wrong = check_value(result, instruction.shape, (1,))
        if wrong:
            raise execution_error(instruction, f"{name} has returned {wrong}")
        results[lane] = result
    if lanes == 1:
        return results[0]
    first = next(iter(results.values()))
    return map_arrays(lambda *parts: np.concatenate(parts), *(results.get(lane, first) for lane in range(lanes)))


def _as_value(made: Any, shape: Shape) -> Value:
    """What a function returned as a value of one lane; what does not fit is left for the check."""
    if isinstance(shape, TupleShape):
        if not isinstance(made, (tuple, list)) or len(made) != len(shape.elements):
            return ()
        return tuple(map(_as_value, made, shape.elements))
    if not array_shape_of(shape).is_data:
        return Token()
    return np.asarray(made)[np.newaxis]


@precheck("custom-call")
def check_custom_call(context: Context, instruction: Instruction) -> None:
    """Raise HloSyntaxError for a target that nothing here computes, or whose operands it does not take."""
    target = target_of(instruction)
    if target in context.custom_calls:
        return
    operands, shape = context.operand_shapes(instruction), instruction.shape
    if any(word in target for word in _CALLBACKS):
        raise instruction.error(
            f"custom-call {target!r} calls back into the Python program that the module is from",
            hint=_hint(target),
        )
    if target in MARKERS:
        fits = shape == TupleShape(()) or compatible(
            _plain(shape), _plain(operands[0] if len(operands) == 1 else TupleShape(operands))
        )
        if not fits:
            raise instruction.error(
                f"custom-call {target!r} changes the shape: the module is not the program of one device yet"
            )
    elif target == "TopK":
        _check_top_k(instruction, operands)
    elif target in ROUTINES:
        _check_routine(instruction, operands)
    elif target in ("PadToStatic", "SliceToDynamic"):
        _check_sizes(instruction, operands)
    elif target not in ("CreateBuffer", "AllocateBuffer"):
        raise instruction.error(f"the executor does not know the custom-call {target!r}", hint=_hint(target))


def _hint(target: str) -> str:
    return f"--custom-call '{target}=module:function' supplies it"


def _plain(shape: Shape) -> Shape:
    """Buffers as the arrays that they hold."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_plain, shape.elements)))
    return shape.array if isinstance(shape, BufferShape) else shape


def _check_top_k(instruction: Instruction, operands: tuple[Shape, ...]) -> None:
    parts = instruction.shape.elements if isinstance(instruction.shape, TupleShape) else ()
    given = operands[0] if len(operands) == 1 else None
    if isinstance(given, ArrayShape) and given.rank and given.is_data and len(parts) == 2:
        values, places = parts
        if isinstance(values, ArrayShape) and isinstance(places, ArrayShape) and values.rank == given.rank:
            count = values.dimensions[-1]
            fits = values.dimensions == places.dimensions == (*given.dimensions[:-1], count)
            same = values.element_type == given.element_type and not is_complex(given.element_type)
            if fits and same and count <= given.dimensions[-1] and places.element_type == "s32":
                return
    raise instruction.error(f"TopK of ({', '.join(s.to_text(False) for s in operands)}) is not {_text(instruction)}")


def _text(instruction: Instruction) -> str:
    return instruction.shape.to_text(False)


def _check_routine(instruction: Instruction, operands: tuple[Shape, ...]) -> None:
    """Raise for elements of another type than the name says, and for no matrices."""
    for leaf in leaves(TupleShape(operands)):
        if not isinstance(leaf, ArrayShape) or not leaf.is_data:
            raise instruction.error(f"custom-call {target_of(instruction)!r} takes arrays")
    element_type = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}[target_of(instruction)[7]]
    matrix = operands[0] if operands else None
    if not isinstance(matrix, ArrayShape) or matrix.element_type != element_type:
        raise instruction.error(f"custom-call {target_of(instruction)!r} takes elements of {element_type}")
    vector = "gtsv" in target_of(instruction)
    if matrix.rank < (1 if vector else 2):
        raise instruction.error(f"custom-call {target_of(instruction)!r} takes matrices, not {matrix.to_text(False)}")


def _check_sizes(instruction: Instruction, operands: tuple[Shape, ...]) -> None:
    """PadToStatic gives an array and an s32 for each of its dimensions, SliceToDynamic takes that."""
    inward = target_of(instruction) == "SliceToDynamic"
    many = operands if inward else instruction.shape.elements if isinstance(instruction.shape, TupleShape) else ()
    one = instruction.shape if inward else operands[0] if len(operands) == 1 else None
    scalar = ArrayShape("s32")
    fits = bool(many) and isinstance(one, ArrayShape) and compatible(one, many[0]) and len(many) == one.rank + 1
    if not fits or not all(isinstance(s, ArrayShape) and compatible(s, scalar) for s in many[1:]):
        raise instruction.error(
            f"custom-call {target_of(instruction)!r} needs an s32[] for each dimension of its array"
        )
