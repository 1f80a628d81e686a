"""rng-bit-generator, rng, rng-get-and-update-state, stochastic-convert.

The bits are XLA's (xla/hlo/builder/lib/prng.cc: ThreeFry2x32 with 20 rounds, Philox4x32 with 10; both from Salmon et
al., SC 2011); rng has a specified shape and distribution only, and is seeded here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hlo_cp2ag.executor.arithmetic import from_bits, lift, round_to, wrap
from hlo_cp2ag.executor.registry import Context, array_shape, execution_error, integer, op, precheck
from hlo_cp2ag.executor.values import Array, Value, align, array_shape_of
from hlo_cp2ag.ir.element_types import integer_range
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import ArrayShape, TupleShape, element_bits, is_complex, is_floating, is_integer

_U32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


# ---- ThreeFry --------------------------------------------------------------------------------------------------------

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def three_fry(x: Array, y: Array, key: tuple[Array, Array]) -> tuple[Array, Array]:
    """ThreeFry2x32 of counter words u32, with key words u32; all broadcast."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << np.uint32(distance)) | (y >> np.uint32(32 - distance)))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _words(x: Array) -> tuple[Array, Array]:
    """The low and the high 32 bits of u64."""
    return (x & _U32).astype(np.uint32), (x >> _32).astype(np.uint32)


def _joined(low: Array, high: Array) -> Array:
    """u64 of low and high words."""
    result: Array = low.astype(np.uint64) | (high.astype(np.uint64) << _32)
    return result


def three_fry_bits(state: Array, dimensions: Sequence[int], bits: int) -> tuple[Array, Array]:
    """New state and random bits, u64 `[lanes, *dimensions]` for 64 bits, else u32.

    Words of 32 bits come in pairs, which lie side by side along the first dimension of even size, or the largest one.
    """
    lanes, rank = state.shape[0], len(dimensions)
    key, start = _words(state[:, 0]), state[:, 1]
    if bits == 64 or not rank:
        counts, along = list(dimensions), -1
    else:
        even = [d for d, size in enumerate(dimensions) if size % 2 == 0]
        along = even[0] if even else max(range(rank), key=lambda d: dimensions[d])
        counts = [-(-size // 2) if d == along else size for d, size in enumerate(dimensions)]
    count = math.prod(counts)
    low, high = _words(start[:, np.newaxis] + np.arange(count, dtype=np.uint64))
    low, high = three_fry(low, high, (key[0][:, np.newaxis], key[1][:, np.newaxis]))
    after = np.stack([state[:, 0], start + np.uint64(count)], axis=1)
    if bits == 64:
        return after, _joined(low, high).reshape(lanes, *dimensions)
    if along < 0:
        return after, low.reshape(lanes)
    pairs = np.stack([x.reshape(lanes, *counts) for x in (low, high)], axis=along + 2)
    whole = pairs.reshape(lanes, *(2 * n if d == along else n for d, n in enumerate(counts)))
    cut = (slice(None), *map(slice, dimensions))
    return after, whole[cut]


# ---- Philox ----------------------------------------------------------------------------------------------------------


def philox(counter: tuple[Array, ...], key: tuple[Array, Array]) -> tuple[Array, ...]:
    """Philox4x32 of four counter words u32, with key words u32; all broadcast."""
    a, b, c, d = (x.astype(np.uint64) for x in counter)
    k, m = (x.astype(np.uint64) for x in key)
    for _ in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (second >> _32) ^ b ^ k, second & _U32, (first >> _32) ^ d ^ m, first & _U32
        k, m = (k + np.uint64(0x9E3779B9)) & _U32, (m + np.uint64(0xBB67AE85)) & _U32
    return tuple(x.astype(np.uint32) for x in (a, b, c, d))


def philox_bits(state: Array, dimensions: Sequence[int], bits: int) -> tuple[Array, Array]:
    """New state and random bits, u64 `[lanes, *dimensions]` for 64 bits, else u32.

    The counter has 128 bits, low word first; of a state u64[2] it is the reversed state, and its high word is not kept.
    """
    lanes, count = state.shape[0], math.prod(dimensions)
    key = _words(state[:, 0])
    low, high = (state[:, 1], state[:, 2]) if state.shape[1] >= 3 else (state[:, 1], state[:, 0])
    blocks = -(-count * (2 if bits == 64 else 1) // 4)
    lows = low[:, np.newaxis] + np.arange(blocks, dtype=np.uint64)
    highs = high[:, np.newaxis] + (lows < low[:, np.newaxis]).astype(np.uint64)
    words = philox((*_words(lows), *_words(highs)), (key[0][:, np.newaxis], key[1][:, np.newaxis]))
    after = [state[:, 0], low + np.uint64(blocks)]
    if state.shape[1] >= 3:
        after.append(high + (after[1] < low).astype(np.uint64))
    if bits == 64:
        words = (_joined(words[0], words[1]), _joined(words[2], words[3]))
    numbers = np.stack(words, axis=-1).reshape(lanes, -1)[:, :count]
    return np.stack(after, axis=1), numbers.reshape(lanes, *dimensions)


# ---- the ops ---------------------------------------------------------------------------------------------------------


@op("rng-bit-generator")
def rng_bit_generator(context: Context, instruction: Instruction, state: Array) -> Value:
    """Semantics: XLA operation semantics, RngBitGenerator: (new state, bits); rng_default is Philox, as on XLA's CPU."""
    shape = instruction.shape
    made = array_shape_of(shape.elements[1] if isinstance(shape, TupleShape) else shape)
    bits = element_bits(made.element_type)
    words = state.astype(np.uint64) if state.dtype.itemsize == 8 else _pairs(state)
    make = three_fry_bits if _algorithm(instruction) == "rng_three_fry" else philox_bits
    after, numbers = make(words, made.dimensions, bits)
    if state.dtype.itemsize != 8:
        after = np.ascontiguousarray(after).view(np.uint32)
    narrow = numbers.astype(f"u{max(1, bits // 8)}")
    found = from_bits(narrow & np.uint8((1 << bits) - 1) if bits < 8 else narrow, made.element_type)
    return (after, found) if isinstance(shape, TupleShape) else found


def _pairs(state: Array) -> Array:
    """A state of u32 as u64, low words first."""
    result: Array = np.ascontiguousarray(state).view(np.uint64)
    return result


def _algorithm(instruction: Instruction) -> str:
    return str(instruction.attribute("algorithm", "rng_default")).lower()


@precheck("rng-bit-generator")
def check_rng_bit_generator(context: Context, instruction: Instruction) -> None:
    """The state is u64[2], of Philox also u64[3] (or the same in u32); numbers have 2 to 64 bits."""
    state, shape = context.operand_shapes(instruction)[0], instruction.shape
    made = shape.elements[1] if isinstance(shape, TupleShape) else shape
    assert isinstance(state, ArrayShape)
    words = state.dimensions[0] * element_bits(state.element_type) // 64 if state.rank == 1 else 0
    allowed = (2,) if _algorithm(instruction) == "rng_three_fry" else (2, 3)
    if state.element_type not in ("u64", "u32") or words not in allowed:
        raise execution_error(
            instruction,
            f"{instruction.opcode}: {_algorithm(instruction)} takes a state of "
            f"{' or '.join(f'u64[{n}]' for n in allowed)}, not {state.to_text(False)}",
        )
    if not isinstance(made, ArrayShape) or not made.is_data or made.element_type == "pred":
        raise execution_error(instruction, f"{instruction.opcode}: makes no elements of {made.to_text(False)}")
    if is_complex(made.element_type):
        raise execution_error(instruction, f"{instruction.opcode}: makes no elements of {made.element_type}")


@op("rng")
def rng(context: Context, instruction: Instruction, first: Array, second: Array) -> Array:
    """Semantics: XLA operation semantics, RngUniform `[first, second)` and RngNormal (mean `first`, deviation `second`).

    Shape and distribution are specified and the numbers are not: here they follow from the run's seed, the same for the
    n-th rng of a run, and differ between devices.
    """
    shape = array_shape(instruction)
    element_type, dimensions = shape.element_type, (context.lanes, *shape.dimensions)
    generator = context.random()
    a, b = (x.reshape(-1, *[1] * shape.rank) for x in (first, second))
    if str(instruction.attribute("distribution")).lower() == "rng_normal":
        normal = generator.standard_normal(dimensions)
        return round_to(lift(a, element_type) + normal * lift(b, element_type), element_type)
    if is_integer(element_type) or element_type == "pred":
        low, high = (lift(x, element_type).astype(object) for x in (a, b))
        span = np.maximum(high - low, 1)
        draw = generator.integers(0, 1 << 63, dimensions, dtype=np.uint64)
        return _integers_in(low, span, draw, element_type)
    wide = generator.random(dimensions)
    low, high = (lift(x, element_type).astype(np.float64) for x in (a, b))
    found = round_to(low + wide * (high - low), element_type)
    return np.where((lift(found, element_type) >= high) & (low < high), np.broadcast_to(a, found.shape), found)


def _integers_in(low: Array, span: Array, draw: Array, element_type: str) -> Array:
    """Integers from `low` on, `span` different ones, of random 63-bit numbers."""
    places = draw % span.astype(np.uint64)
    if element_type == "pred":
        return np.asarray((low.astype(np.uint64) + places) != 0)
    least, _ = integer_range(element_type)
    offset = (low - least).astype(np.uint64)
    return wrap((places + offset).astype(np.uint64) + np.uint64(least % (1 << 64)), element_type)


@op("rng-get-and-update-state")
def rng_get_and_update_state(context: Context, instruction: Instruction) -> Array:
    """Semantics: XLA, RngGetAndUpdateState: a 128-bit counter that grows by `delta`, low word first.

    XLA's CPU backend begins at 0x7012395 in every loaded program, and so does every run here.
    """
    counter: list[int] = context.memo(instruction, "state", lambda: [0x7012395])
    now = counter[0]
    counter[0] = (now + integer(instruction, "delta", 1)) % (1 << 128)
    return np.array([[now % (1 << 64), now >> 64]], np.uint64)


@op("stochastic-convert")
def stochastic_convert(context: Context, instruction: Instruction, operand: Array, noise: Array) -> Array:
    """Semantics: XLA, StochasticConvertDecomposer: away from zero where the noise is less than the fraction.

    The fraction counts in units of the noise's bits; what does not fit into the integer saturates, and NaN is 0.
    """
    operand, noise = align(operand, noise)
    source = array_shape_of(context.operand_shapes(instruction)[0]).element_type
    target, bits = array_shape(instruction).element_type, element_bits(source)
    x = lift(operand, source)
    whole = np.floor(np.abs(x))
    fraction = round_to(np.abs(x) - whole, source) if bits > 16 else np.abs(x) - whole
    units = np.asarray(np.nan_to_num(lift(fraction, source) if bits > 16 else fraction), np.float64) * 2.0**bits
    up = noise.astype(np.uint64) < units.astype(np.uint64)
    least, most = integer_range(target)
    clipped = np.nan_to_num(np.minimum(whole.astype(np.float64), 2.0**62)).astype(np.int64) + up
    signed = np.where(x < 0, -clipped, clipped)
    signed = np.where(x <= least, least, np.where(x >= most, most, signed))
    return wrap(np.where(np.isnan(x), 0, signed), target)


@precheck("stochastic-convert")
def check_stochastic_convert(context: Context, instruction: Instruction) -> None:
    """XLA has it for signed integers only."""
    target = array_shape(instruction).element_type
    source = array_shape_of(context.operand_shapes(instruction)[0]).element_type
    if target[0] != "s" or not is_integer(target) or not is_floating(source):
        raise execution_error(instruction, f"{instruction.opcode}: from {source} to {target} is not defined")
