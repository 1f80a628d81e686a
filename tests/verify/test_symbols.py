"""The symbolic domain says what the executor computes: random movement, decoded and compared bit for bit.

Each array of a random module is evaluated with the parameters as leaves. Its codes are then read back: Data as that
element of that device's parameter (converted, where it says so), Bits as the pattern. Every element that is not unknown
has to be what the executor gets. And whatever `disagreement` calls equal has to be equal, for random data.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hlo_cp2ag.executor.arithmetic import from_bits, to_bits
from hlo_cp2ag.executor.ops.conversion import convert_array
from hlo_cp2ag.executor.plan import ModuleIndex
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.element_types import dtype_of
from hlo_cp2ag.ir.shape import ArrayShape, element_bits, is_complex, is_floating
from hlo_cp2ag.text.parser import parse
from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.verify import symbols
from hlo_cp2ag.verify.bits import bits_of_codes
from hlo_cp2ag.verify.comparison import as_symbols, disagreement, fingerprint
from hlo_cp2ag.verify.evaluation import LeafTable, ModuleEvaluation
from hlo_cp2ag.verify.movement import Moved
from hlo_cp2ag.verify.symbols import UNKNOWN

from .random_movement import RandomModule

MAY_BE_UNKNOWN = (
    *(
        "add",
        "or",
        "xor",
        "maximum",
        "and",
        "minimum",
        "reduce",
        "all-reduce",
        "reduce-scatter",
        "convert",
        "bitcast-convert",
    ),
    *("bitcast", "select", "concatenate", "pad", "dynamic-update-slice", "conditional"),
)
"""Ops that compute with data at times, or that meet data of several element types."""

SIGNALLING_NANS = {"f64": (0x7F, 0xF0), "f32": (0x7F, 0x80), "bf16": (0x7F, 0x81)}
"""The highest byte, its sign aside, and the next one."""


def random_bits(shape: ArrayShape, devices: int, rng: np.random.Generator) -> np.ndarray:
    """Elements of all bit patterns, special ones often."""
    dtype = dtype_of(shape.element_type)
    raw = rng.integers(0, 256, (devices, *shape.dimensions, dtype.itemsize), dtype=np.uint8)
    if shape.element_type == "pred" or element_bits(shape.element_type) < 8:
        return from_bits(raw[..., 0] & np.uint8((1 << min(8, max(1, element_bits(shape.element_type) % 8))) - 1),
                         shape.element_type)  # fmt: skip
    chance = rng.random(raw.shape[:-1])
    raw[chance < 0.1] = 0xFF
    raw[(chance > 0.1) & (chance < 0.2)] = 0
    raw[(chance > 0.15) & (chance < 0.2), -1] = 0x80
    signalling = SIGNALLING_NANS.get(shape.element_type)
    if signalling is not None:
        high, low = signalling
        chosen = (chance > 0.2) & (chance < 0.3)
        raw[chosen, -1] = raw[chosen, -1] & 0x80 | high
        raw[chosen, -2] = raw[chosen, -2] & 0x0F | low
    return np.ascontiguousarray(raw).view(dtype)[..., 0]


def patterns(array: np.ndarray, element_type: str) -> np.ndarray:
    """The bits as Python's integers."""
    bits = to_bits(array, element_type).astype(object)
    return bits[..., 0] + (bits[..., 1] << 64) if element_type == "c128" else bits


def decoded(value: Moved, shape: ArrayShape, table: LeafTable, inputs: list[np.ndarray], types: list[str]):
    """Bits `[devices, ...]` of what a value says it is, and which elements it says something of."""
    x = as_symbols(value, shape)
    assert x.dimensions == shape.dimensions
    devices = inputs[0].shape[0]
    codes = np.broadcast_to(symbols.flatten_all(x), (devices, *shape.dimensions)).reshape(-1)
    found = np.zeros(codes.shape, object)
    is_bits = (codes <= 0) & (codes != UNKNOWN)
    found[is_bits] = bits_of_codes(codes[is_bits])
    for place in np.flatnonzero(codes > 0):
        key, device, index = table.find(int(codes[place]))
        leaf = int(key[1])  # type: ignore[call-overload]
        one = inputs[leaf][device].reshape(-1)[index : index + 1]
        own = types[leaf]
        if x.conversions:
            if own != x.conversions[0]:  # its bits were called another type before
                one, own = from_bits(to_bits(one, own), x.conversions[0]), x.conversions[0]
            for target in x.conversions[1:]:
                one, own = convert_array(one, own, target), target
        found[place] = patterns(one, own)[0]
    shape_of_all = (devices, *shape.dimensions)
    return found.reshape(shape_of_all), (codes != UNKNOWN).reshape(shape_of_all), x


def is_nan(bits: np.ndarray, element_type: str) -> np.ndarray:
    if not (is_floating(element_type) or is_complex(element_type)):
        return np.zeros(bits.shape, bool)
    width = dtype_of(element_type).itemsize
    raw = b"".join(int(b).to_bytes(width, "little") for b in bits.reshape(-1))
    with np.errstate(all="ignore"):
        return np.isnan(np.frombuffer(raw, dtype_of(element_type)).reshape(bits.shape))


def check(seed: int, seen: Counter[str]) -> None:
    random = RandomModule(seed)
    module = parse(random.text)
    rng = np.random.default_rng(seed)
    index = ModuleIndex(module)
    parameters = index.parameters(module.entry)
    inputs = [random_bits(p.shape, random.devices, rng) for p in parameters]
    types = [p.shape.element_type for p in parameters]
    outputs = run(module, inputs, random.replicas, random.partitions, checked=True)
    table = LeafTable(random.devices)
    evaluation = ModuleEvaluation(module, index, ProcessGrid(random.replicas, random.partitions), "xla", table)
    values: dict[int, Moved] = {}
    for node in index.nodes(module.entry):
        instruction = node.instruction
        if instruction.opcode == "parameter":
            number = parameters.index(instruction)
            values[id(instruction)] = evaluation.leaf(("class", number), instruction.shape)
        elif instruction is not module.entry.root:
            values[id(instruction)] = evaluation.apply(node, [values[id(o)] for o in node.operands])
    tainted: set[int] = set()
    results = module.entry.root.operands
    for node in index.nodes(module.entry):
        if node.instruction.opcode in MAY_BE_UNKNOWN or any(id(o) in tainted for o in node.operands):
            tainted.add(id(node.instruction))
    read = []
    for instruction, output in zip(results, outputs, strict=True):
        shape = instruction.shape
        value = values[id(instruction)]
        bits, known, x = decoded(value, shape, table, inputs, types)
        wanted = patterns(np.broadcast_to(output, (random.devices, *shape.dimensions)), shape.element_type)
        same = bits == wanted
        if x.lost_payload:
            same = same | (is_nan(bits, shape.element_type) & is_nan(wanted, shape.element_type))
        wrong = known & ~same
        where = f"seed {seed}: {instruction.text.strip()}\n{random.text}"
        assert not wrong.any(), f"{np.argwhere(wrong)[0]} of {where}"
        assert known.all() or id(instruction) in tainted, f"unknown ({x.why}): {where}"
        seen[instruction.opcode] += int(known.sum())
        seen["unknown"] += int((~known).sum())
        read.append((instruction, value, wanted, known.all(), x))
    compare_all(random, read)


def compare_all(random: RandomModule, read: list) -> None:
    """What is shown to be equal is equal, and then its fingerprints are."""
    for i, (a, x, bits, is_known, own) in enumerate(read):
        for b, y, other, is_other_known, new in read[:i]:
            if a.shape.to_text(False) != b.shape.to_text(False):
                continue
            found = disagreement(x, y, a.shape)
            where = f"{a.name}, {b.name}\n{random.text}"
            if found is None:
                assert is_known and is_other_known, where
                differs = bits != other
                if own.lost_payload or new.lost_payload:
                    differs = differs & ~is_nan(bits, a.shape.element_type)
                assert not differs.any(), where
                marks = [fingerprint(v, a.shape, random.devices) for v in (x, y)]
                assert marks[0] == marks[1], where
            elif is_known and is_other_known and own.conversions == new.conversions:
                assert found.refuted, where


def sweep(seeds: range, least: dict[str, int]) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        check(seed, seen)
    print(dict(seen))
    for opcode, count in least.items():
        assert seen[opcode] >= count, f"{opcode}: {seen[opcode]}"


def test_random_movement() -> None:
    sweep(range(120), {"gather": 100, "dynamic-update-slice": 100, "all-to-all": 50, "reduce": 10, "unknown": 1})


@pytest.mark.sweep
@pytest.mark.parametrize("start", range(1000, 5000, 500))
def test_much_random_movement(start: int) -> None:
    sweep(range(start, start + 500), {"gather": 1000, "dynamic-update-slice": 1000, "all-reduce": 100})
