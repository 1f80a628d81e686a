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

An asynchronous pair becomes two pieces: what ends in `all-gather-start` takes the place of the start, and in the place of
the done the look-up stands before `all-gather-done`, since it needs no data, and the slice after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.rewriter import NewInstruction, Value
from hlo_cp2ag.ir.shape import ArrayShape, Layout, Shape, TupleShape, element_bits, is_complex, is_integer
from hlo_cp2ag.lowering.mapping import SourceMap
from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.topology.replica_groups import Groups

_S32 = ArrayShape("s32", (), (), Layout(()))
_U32 = ArrayShape("u32", (), (), Layout(()))
_PRED = ArrayShape("pred", (), (), Layout(()))

Tail = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ChainPlan:
    """What the chain of one permute needs to know."""

    permute: Instruction
    """Whose style the new ones are written in."""
    operands: tuple[Instruction, ...]
    shape: Shape
    """Of the result."""
    grid: ProcessGrid
    sources: SourceMap
    """Whose shard each device receives, by that one's place in the device's group."""
    groups: Groups
    """The devices that gather from each other."""
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
    gathers: tuple[NewInstruction | None, ...] = ()
    """All-gathers that another permute of the same operand has made already, if it has; one for each operand."""
    gather_tail: Tail = ()
    """Attributes of the permute that go to each all-gather."""
    last_tail: Tail = ()
    """Attributes of the permute that go to the last instruction."""
    every_tail: Tail = ()
    """Attributes that go to every new instruction that is no tuple: a manual or maximal sharding."""
    tuple_tail: Tail = ()
    """The same for the tuple of a variadic permute."""
    control_predecessors: tuple[str, ...] = ()
    """Of each all-gather."""
    start_tail: Tail = ()
    """What the last all-gather-start takes over from the start of a pair."""
    done_tail: Tail = ()
    """Attributes of a pair's done that go to each all-gather-done."""
    done_predecessors: tuple[str, ...] = ()

    @property
    def result_shapes(self) -> tuple[ArrayShape, ...]:
        """One for each operand."""
        return cast(
            "tuple[ArrayShape, ...]", self.shape.elements if isinstance(self.shape, TupleShape) else (self.shape,)
        )

    @property
    def group_size(self) -> int:
        """How many devices gather together."""
        return len(self.groups[0])

    @property
    def groups_text(self) -> str:
        """The groups as XLA prints them: `{{0,1},{2,3}}`."""
        return _groups_text(self.groups)


def emit_chain(plan: ChainPlan) -> list[NewInstruction]:
    """The new instructions in order; the last one stands for the permute."""
    chain = _Chain(plan)
    results: list[Value] = []
    for number in range(len(plan.operands)):
        gathered = chain.gather(number)
        results.append(chain.deliver(number, gathered, chain.starts(number)))
    chain.end(results)
    return chain.instructions


def emit_pair(plan: ChainPlan) -> tuple[list[NewInstruction], list[NewInstruction]]:
    """What stands for the start of an asynchronous pair, and for its done; the last one of each takes its place.

    Each operand has an all-gather-start of its own.
    """
    chain = _Chain(plan)
    numbers = range(len(plan.operands))
    started = [chain.gather_start(number) for number in numbers]
    chain.tag(plan.every_tail)
    started[-1].tail += plan.start_tail
    for_start, chain.instructions = chain.instructions, []
    starts = [chain.starts(number) for number in numbers]
    if plan.needs_zeros:
        chain.is_target()
    gathered = [chain.gather_done(number, start) for number, start in zip(numbers, started, strict=True)]
    chain.end([chain.deliver(*each) for each in zip(numbers, gathered, starts, strict=True)])
    return for_start, chain.instructions


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

    def tag(self, tail: Tail) -> None:
        """Gives attributes to all that was made: those of an array to arrays, and to a tuple its elements' together."""
        for new in self.instructions:
            if isinstance(new.shape, TupleShape) and new.opcode != "tuple":
                elements = len(new.shape.elements)
                new.tail += tuple((name, "{" + ", ".join([value] * elements) + "}") for name, value in tail)
            else:
                new.tail += self.plan.tuple_tail if new.opcode == "tuple" else tail

    def end(self, results: list[Value]) -> None:
        """The tuple of several results, and the attributes of what was made."""
        if isinstance(self.plan.shape, TupleShape):
            self.add("tuple", self.plan.shape, *results)
        self.tag(self.plan.every_tail)
        self.instructions[-1].tail += self.plan.last_tail

    # ---- the gather ------------------------------------------------------------------------------------------------

    def gathered_shape(self, number: int) -> ArrayShape:
        """What one device hands in: the operand's shape, widened, and `[1]` for a scalar."""
        shape = self.plan.operands[number].shape
        assert isinstance(shape, ArrayShape)
        wide = self._wide(number)
        if wide is not None:
            shape = _as_type(shape, wide)
        return shape if shape.dimensions else replace(_inner(shape), dimensions=(1,), layout=Layout((0,)))

    def _wide(self, number: int) -> str | None:
        shape = self.plan.operands[number].shape
        assert isinstance(shape, ArrayShape)
        return _widened(shape.element_type) if self.plan.widen else None

    def _dimension(self, number: int) -> int:
        return self.plan.gather_dimensions[number] if self.plan.operands[number].shape.dimensions else 0  # type: ignore[union-attr]

    def _handed_in(self, number: int) -> Value:
        """The operand as it is gathered."""
        operand = self.plan.operands[number]
        assert isinstance(operand.shape, ArrayShape)
        value: Value = operand
        wide = self._wide(number)
        if wide is not None:
            value = self.add("convert", _as_type(operand.shape, wide), value)
        if not operand.shape.dimensions:
            value = self.add("reshape", self.gathered_shape(number), value)
        return value

    def gather(self, number: int) -> Value:
        """Everybody's shards of one operand; one that another permute has gathered already is taken from there."""
        if self.plan.gathers and self.plan.gathers[number] is not None:
            return self.plan.gathers[number]  # type: ignore[return-value]
        return self._all_gather("all-gather", self._all_shards(number), self._handed_in(number), number)

    def gather_start(self, number: int) -> NewInstruction:
        """The start of the same."""
        value, whole = self._handed_in(number), self._all_shards(number)
        pair = TupleShape((self.gathered_shape(number), whole))
        return self._all_gather("all-gather-start", pair, value, number)

    def gather_done(self, number: int, start: NewInstruction) -> NewInstruction:
        """And its end."""
        done = self.add("all-gather-done", self._all_shards(number), start)
        done.tail += self.plan.done_tail
        done.control_predecessors = self.plan.done_predecessors
        return done

    def _all_shards(self, number: int) -> ArrayShape:
        shape = _inner(self.gathered_shape(number))
        sizes = list(shape.dimensions)
        sizes[self._dimension(number)] *= self.plan.group_size
        return shape.with_dimensions(tuple(sizes))

    def _all_gather(self, opcode: str, shape: ArrayShape | TupleShape, value: Value, number: int) -> NewInstruction:
        plan = self.plan
        new = self.add(
            opcode,
            shape,
            value,
            channel_id=str(plan.channel_ids[number]),
            replica_groups=plan.groups_text,
            constrain_layout="true",
            dimensions=f"{{{self._dimension(number)}}}",
            use_global_device_ids="true",
        )
        new.tail += plan.gather_tail
        new.control_predecessors = plan.control_predecessors
        return new

    # ---- the slice -------------------------------------------------------------------------------------------------

    def starts(self, number: int) -> list[Value]:
        """Where the shard that I receive begins, a number for each dimension."""
        source, dimension = self.gathered_shape(number), self._dimension(number)
        starts: list[Value] = [
            self.constant(_S32, "0") for _ in range(dimension)
        ]  # in the order in which XLA prints them
        index = self.source_index()
        size = self.constant(_S32, str(source.dimensions[dimension]))
        starts.append(self.add("multiply", _S32, index, size))
        starts += [self.constant(_S32, "0") for _ in range(dimension + 1, source.rank)]
        return starts

    def deliver(self, number: int, gathered: Value, starts: list[Value]) -> Value:
        """The shard, or zeros; the last instruction has the permute's result shape."""
        plan, wide = self.plan, self._wide(number)
        result = plan.result_shapes[number]
        inner = _inner(result)
        if wide is not None:
            inner = _as_type(inner, wide)
        elif not plan.needs_zeros:
            inner = result
        source = self.gathered_shape(number)
        sizes = _braces(source.dimensions)
        if result.dimensions:
            value = self.add("dynamic-slice", inner, gathered, *starts, dynamic_slice_sizes=sizes)
        else:
            one = self.add("dynamic-slice", source, gathered, *starts, dynamic_slice_sizes=sizes)
            value = self.add("reshape", inner, one)
        if plan.needs_zeros:
            value = self._zero_unless_target(value, result if wide is None else inner)
        if wide is not None:
            value = self.add("convert", result, value)
        return value

    # ---- the look-up -----------------------------------------------------------------------------------------------

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

    def is_target(self) -> NewInstruction:
        """Whether I am anybody's target."""
        if self._mask is None:
            count = self.plan.grid.device_count
            table = self.constant(_vector("pred", count), self.plan.sources.is_target_literal)
            entry = self.add("dynamic-slice", _vector("pred", 1), table, self.own_index(), dynamic_slice_sizes="{1}")
            self._mask = self.add("reshape", _PRED, entry)
        return self._mask

    def _zero_unless_target(self, value: Value, shape: ArrayShape) -> NewInstruction:
        mask = self.is_target()
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
def _groups_text(groups: Groups) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


@lru_cache(maxsize=4096)
def _braces(sizes: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, sizes)) + "}"
