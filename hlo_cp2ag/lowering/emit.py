"""The chain that stands for one permute: gather from everybody, look up my source, slice its shard out.

    ag      all-gather(operand)                         everybody's shard, one behind the other along dimension D
    map     constant                                    map[target] = source
    rid     replica-id()                                my own place in the map
    ds0     dynamic-slice(map, rid)                     my source's id, as an array of one
    idx     reshape(ds0)                                the same as a scalar
    shard   constant(dims[D])                           how long a shard is
    off     multiply(idx, shard)                        where my source's shard begins
    z       constant(0)                                 for each further dimension
    result  dynamic-slice(ag, off, z...)                its shard

Where a device that is no target has to receive zeros, a mask of the targets is looked up in the same way and selects
between the result and zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.rewriter import NewInstruction, Value
from hlo_cp2ag.ir.shape import ArrayShape, Layout, TupleShape, element_bits, is_complex, is_integer
from hlo_cp2ag.lowering.mapping import SourceMap
from hlo_cp2ag.topology.process_grid import ProcessGrid

_S32 = ArrayShape("s32", (), (), Layout(()))
_U32 = ArrayShape("u32", (), (), Layout(()))
_PRED = ArrayShape("pred", (), (), Layout(()))

Tail = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ChainPlan:
    """What the chain of one permute needs to know."""

    permute: Instruction
    grid: ProcessGrid
    sources: SourceMap
    needs_zeros: bool
    """Whether some device is no target and must receive zeros."""
    flat_replica_id: bool
    """Whether replica-id alone is the index (Neuron's flat rank)."""
    channel_ids: tuple[int, ...]
    """One for each operand's all-gather."""
    gather_dimensions: tuple[int, ...]
    """One for each operand."""
    widen: bool
    """Whether integers under 8 bits are gathered as s8 or u8."""
    gather_tail: Tail = ()
    """Attributes of the permute that go to each all-gather."""
    last_tail: Tail = ()
    """Attributes of the permute that go to the last instruction."""
    every_tail: Tail = ()
    """Attributes that go to every new instruction that is no tuple: a manual or maximal sharding."""
    tuple_tail: Tail = ()
    """The same for the tuple of a variadic permute."""
    control_predecessors: tuple[str, ...] = ()


def emit_chain(plan: ChainPlan) -> list[NewInstruction]:
    """The new instructions in order; the last one stands for the permute."""
    chain = _Chain(plan)
    operands = plan.permute.operands
    shape = plan.permute.shape
    result_shapes = shape.elements if isinstance(shape, TupleShape) else (shape,)
    results: list[Value] = []
    for number, (operand, result_shape) in enumerate(zip(operands, result_shapes, strict=True)):
        assert isinstance(result_shape, ArrayShape)
        results.append(chain.shard(operand, result_shape, number))
    if isinstance(shape, TupleShape):
        chain.add("tuple", shape, *results)
    new = chain.instructions
    for instruction in new:
        instruction.tail += plan.tuple_tail if instruction.opcode == "tuple" else plan.every_tail
    new[-1].tail += plan.last_tail
    return new


class _Chain:
    """Builds the instructions; map, index and mask are made once and shared by a permute's operands."""

    def __init__(self, plan: ChainPlan) -> None:
        self.plan = plan
        self.instructions: list[NewInstruction] = []
        self._own_index: NewInstruction | None = None
        self._source: NewInstruction | None = None
        self._mask: NewInstruction | None = None

    def add(self, opcode: str, shape: ArrayShape | TupleShape, *operands: Value, **attributes: str) -> NewInstruction:
        new = NewInstruction(opcode, shape, operands, tuple(attributes.items()))
        self.instructions.append(new)
        return new

    def constant(self, shape: ArrayShape, literal: str) -> NewInstruction:
        new = NewInstruction("constant", shape, literal=literal)
        self.instructions.append(new)
        return new

    def shard(self, operand: Instruction, result_shape: ArrayShape, number: int) -> NewInstruction:
        """The chain of one operand; its last instruction has the permute's result shape."""
        plan = self.plan
        source_shape = operand.shape
        assert isinstance(source_shape, ArrayShape)
        wide = _widened(source_shape.element_type) if plan.widen else None
        value: Value = operand
        inner_shape = _inner(result_shape)
        if wide is not None:
            source_shape, inner_shape = _as_type(source_shape, wide), _as_type(inner_shape, wide)
            value = self.add("convert", source_shape, value)
        elif not plan.needs_zeros:
            inner_shape = result_shape
        if not source_shape.dimensions:
            value = self._scalar(value, source_shape, inner_shape, number)
        else:
            value = self._array(value, source_shape, inner_shape, number)
        if plan.needs_zeros:
            value = self._zero_unless_target(value, result_shape if wide is None else inner_shape)
        if wide is not None:
            value = self.add("convert", result_shape, value)
        assert isinstance(value, NewInstruction)
        return value

    def _array(self, value: Value, source: ArrayShape, result: ArrayShape, number: int) -> NewInstruction:
        dimension = self.plan.gather_dimensions[number]
        gathered = self._all_gather(value, source, dimension, number)
        starts: list[Value] = [
            self.constant(_S32, "0") for _ in range(dimension)
        ]  # in the order in which XLA prints them
        index = self.source_index()
        size = self.constant(_S32, str(source.dimensions[dimension]))
        starts.append(self.add("multiply", _S32, index, size))
        starts += [self.constant(_S32, "0") for _ in range(dimension + 1, source.rank)]
        return self.add("dynamic-slice", result, gathered, *starts, dynamic_slice_sizes=_braces(source.dimensions))

    def _scalar(self, value: Value, source: ArrayShape, result: ArrayShape, number: int) -> NewInstruction:
        one = replace(_inner(source), dimensions=(1,), layout=Layout((0,)))
        value = self.add("reshape", one, value)
        gathered = self._all_gather(value, one, 0, number)
        index = self.source_index()
        size = self.constant(_S32, "1")
        offset = self.add("multiply", _S32, index, size)
        slice_ = self.add("dynamic-slice", one, gathered, offset, dynamic_slice_sizes="{1}")
        return self.add("reshape", result, slice_)

    def _all_gather(self, value: Value, source: ArrayShape, dimension: int, number: int) -> NewInstruction:
        plan = self.plan
        sizes = list(source.dimensions)
        sizes[dimension] *= plan.grid.device_count
        new = self.add(
            "all-gather",
            _inner(source).with_dimensions(tuple(sizes)),
            value,
            channel_id=str(plan.channel_ids[number]),
            replica_groups=_all_devices(plan.grid.device_count),
            constrain_layout="true",
            dimensions=f"{{{dimension}}}",
            use_global_device_ids="true",
        )
        new.tail += plan.gather_tail
        new.control_predecessors = plan.control_predecessors
        return new

    def own_index(self) -> NewInstruction:
        """My own place in the map: `replica * num_partitions + partition`, as far as the grid has both."""
        if self._own_index is None:
            grid = self.plan.grid
            if self.plan.flat_replica_id or grid.num_partitions == 1:
                self._own_index = self.add("replica-id", _U32)
            elif grid.replica_count == 1:
                self._own_index = self.add("partition-id", _U32)
            else:
                replica = self.add("replica-id", _U32)
                size = self.constant(_U32, str(grid.num_partitions))
                base = self.add("multiply", _U32, replica, size)
                partition = self.add("partition-id", _U32)
                self._own_index = self.add("add", _U32, base, partition)
        return self._own_index

    def source_index(self) -> NewInstruction:
        """The device whose shard I receive."""
        if self._source is None:
            count = self.plan.grid.device_count
            table = self.constant(_vector("s32", count), self.plan.sources.sources_literal)
            entry = self.add("dynamic-slice", _vector("s32", 1), table, self.own_index(), dynamic_slice_sizes="{1}")
            self._source = self.add("reshape", _S32, entry)
        return self._source

    def _is_target(self) -> NewInstruction:
        """Whether I am anybody's target."""
        if self._mask is None:
            count = self.plan.grid.device_count
            table = self.constant(_vector("pred", count), self.plan.sources.is_target_literal)
            entry = self.add("dynamic-slice", _vector("pred", 1), table, self.own_index(), dynamic_slice_sizes="{1}")
            self._mask = self.add("reshape", _PRED, entry)
        return self._mask

    def _zero_unless_target(self, value: Value, shape: ArrayShape) -> NewInstruction:
        mask = self._is_target()
        inner = _inner(shape)
        scalar = ArrayShape(shape.element_type, (), (), Layout(()))
        if not shape.dimensions:
            return self.add("select", shape, mask, value, self.constant(scalar, zero_literal(shape.element_type)))
        mask = self.add("broadcast", _as_type(inner, "pred"), mask, dimensions="{}")
        zero = self.constant(scalar, zero_literal(shape.element_type))
        zeros = self.add("broadcast", inner, zero, dimensions="{}")
        return self.add("select", shape, mask, value, zeros)


def zero_literal(element_type: str) -> str:
    """Zero as XLA prints it."""
    if element_type == "pred":
        return "false"
    return "(0, 0)" if is_complex(element_type) else "0"


def is_sub_byte_integer(element_type: str) -> bool:
    """Whether the element type is an integer narrower than a byte."""
    return is_integer(element_type) and element_bits(element_type) < 8


def _widened(element_type: str) -> str | None:
    return f"{element_type[0]}8" if is_sub_byte_integer(element_type) else None


@lru_cache(maxsize=4096)
def _inner(shape: ArrayShape) -> ArrayShape:
    """The shape of a value inside the chain: the same order and tiles, in the default memory space."""
    if shape.layout is None or not shape.layout.annotations:
        return shape
    return replace(shape, layout=shape.layout.without_memory_space())


@lru_cache(maxsize=4096)
def _as_type(shape: ArrayShape, element_type: str) -> ArrayShape:
    """The same sizes with another element type; a packed element size belongs to the old one."""
    layout = shape.layout
    if layout is not None and layout.annotations:
        layout = replace(layout, annotations=layout.tiles)
    return replace(shape, element_type=element_type, layout=layout)


@lru_cache(maxsize=256)
def _vector(element_type: str, size: int) -> ArrayShape:
    return ArrayShape(element_type, (size,), (), Layout((0,)))


@lru_cache(maxsize=64)
def _all_devices(count: int) -> str:
    return "{{" + ",".join(map(str, range(count))) + "}}"


@lru_cache(maxsize=4096)
def _braces(sizes: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, sizes)) + "}"
