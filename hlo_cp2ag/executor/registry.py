"""Which function runs which opcode, and what an op sees of the run.

    @op("add")
    def add(context: Context, instruction: Instruction, lhs: Array, rhs: Array) -> Array: ...

See the package's docstring for what an op may rely on.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from hlo_cp2ag.executor.values import Array, Value, array_shape_of
from hlo_cp2ag.ir.module import Computation, Instruction
from hlo_cp2ag.ir.shape import ArrayShape, Shape
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.topology.process_grid import ProcessGrid

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Context(Protocol):
    """The run, as an op sees it; `interpreter.Execution` implements it."""

    grid: ProcessGrid
    """Replicas x partitions."""
    profile: str
    """"xla" or "neuron"."""
    lanes: int
    """The length of a lane axis where lanes differ: the number of devices, inside `apply` the number of elements."""
    in_apply: bool
    """Whether lanes are elements of arrays and not devices; collectives and ids are errors there."""
    active: Array | None
    """Which lanes are here, bool `[lanes]`; None while all are."""
    custom_calls: Mapping[str, Callable[..., Any]]
    """What the caller supplies for custom-calls, by target."""
    channels: dict[int, deque[Value]]
    """What was sent on a channel and is not yet received."""
    outfeed: list[Array]
    """What outfeeds have put out, an array `[devices, *dimensions]` a leaf."""
    steps: int
    """How many instructions have been run."""

    def operand_shapes(self, instruction: Instruction) -> tuple[Shape, ...]:
        """The operands' shapes, with the layouts that the text states."""

    def computation(self, instruction: Instruction, attribute: str) -> Computation:
        """The computation that an attribute names or holds: `context.computation(instruction, "to_apply")`."""

    def computations(self, instruction: Instruction, attribute: str) -> tuple[Computation, ...]:
        """The computations of an attribute that is a list: "branch_computations"."""

    def call(self, computation: Computation, args: Sequence[Value], mask: Array | None = None) -> Value:
        """What a computation returns on the same lanes; with a mask `[lanes]`, only those lanes are in it.

        The mask is used as it is: combine it with `active` first.
        """

    def apply(self, computation: Computation, *arrays: Array) -> Value:
        """A computation of scalars on each element of its arguments, all elements at once.

        The arrays (of any rank, no lane axis is assumed) broadcast to one shape; the result is an array of that shape,
        or a tuple of such arrays if the computation returns a tuple. One array per parameter.
        """

    def memo(self, instruction: Instruction, what: str, make: Callable[[], T]) -> T:
        """What `make` returns, made once in a run for each instruction and `what`: parsed constants, group tables."""

    def random(self) -> np.random.Generator:
        """The generator of the next random numbers: it follows from the run's seed and how many were asked for."""

    def hold(self, instruction: Instruction, size: int) -> None:
        """Count bytes that stay when an instruction is done, or go if negative. Raises BoundError where it is too many."""

    def next_infeed(self) -> tuple[int, Array | None]:
        """The number of the infeed's next array and that array, which now is taken; None if there is none."""

    def wrapped(self, instruction: Instruction) -> Instruction:
        """The instruction that a sugared async start is about: the reduce-scatter of a `reduce-scatter-start(...)`."""

    def simple_reducer(self, computation: Computation) -> str | None:
        """The opcode if the computation is one elementwise binary op of its two parameters, else None."""


Op = Callable[..., Value]
"""`(context, instruction, *operands) -> value`"""

_OPS: dict[str, Op] = {}
_PRECHECKS: dict[str, Callable[[Context, Instruction], None]] = {}


def op(*opcodes: str) -> Callable[[F], F]:
    """Registers a function for one or more opcodes."""

    def register(function: F) -> F:
        for opcode in opcodes:
            if opcode in _OPS and _OPS[opcode].__module__ != function.__module__:
                raise ValueError(f"{opcode} is registered twice")
            _OPS[opcode] = function
        return function

    return register


def precheck(*opcodes: str) -> Callable[[F], F]:
    """Registers `check(context, instruction)`, which raises before the run what no run could do (`execution_error`)."""

    def register(function: F) -> F:
        for opcode in opcodes:
            _PRECHECKS[opcode] = function
        return function

    return register


@lru_cache(maxsize=1)
def _load() -> None:
    import hlo_cp2ag.executor.ops as package

    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")


def find_op(opcode: str) -> Op | None:
    """The function of an opcode, or None if the executor does not have it."""
    _load()
    return _OPS.get(opcode)


def find_precheck(opcode: str) -> Callable[[Context, Instruction], None] | None:
    """What is asked of an opcode's instructions before the run, if anything."""
    _load()
    return _PRECHECKS.get(opcode)


def known_opcodes() -> frozenset[str]:
    """All opcodes that the executor has a function for."""
    _load()
    return frozenset(_OPS)


class ExecutionError(HloError):
    """Something that only shows when a module runs: its inputs, its size, a collective that not all devices reach."""


class BoundError(ExecutionError):
    """A run that needs more memory or more steps than there are or than the caller allows. It says nothing against the
    module."""


class TooManySteps(Exception):  # noqa: N818
    """The run has come to its bound; what loop it is in is added on the way up."""

    def __init__(self, computation: Computation, in_apply: bool) -> None:
        """`computation` is the one that was not entered any more, on elements of arrays or on devices."""
        super().__init__()
        self.in_apply = in_apply
        self.applied_by: Instruction | None = None
        """The instruction that applies it to elements."""
        self.computation = computation
        self.loop: Instruction | None = None
        self.iteration = 0
        self._is_certain = False

    def leaves(self, loop: Instruction, iteration: int, most: bool) -> None:
        """It comes out of a loop, inner ones first, which has run most of the instructions or not.

        The innermost one that has is named: a short loop inside an endless one is not at fault.
        """
        if not self._is_certain:
            self.loop, self.iteration, self._is_certain = loop, iteration, most


def execution_error(instruction: Instruction, message: str, hint: str = "") -> ExecutionError:
    """The exception for something wrong with an instruction in the run, to be raised by the caller."""
    source = instruction.module.source
    return ExecutionError(source.diagnostic(instruction.name_span.start, message, hint=hint))


def array_shape(instruction: Instruction) -> ArrayShape:
    """An instruction's result shape, which has to be an array's."""
    return array_shape_of(instruction.shape)


def integers(instruction: Instruction, attribute: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    """An attribute that is a list of integers."""
    return cast("tuple[int, ...]", instruction.attribute(attribute, default))


def integer(instruction: Instruction, attribute: str, default: int = 0) -> int:
    """An attribute that is an integer."""
    return cast(int, instruction.attribute(attribute, default))


def flag(instruction: Instruction, attribute: str, default: bool = False) -> bool:
    """An attribute that is true or false."""
    return cast(bool, instruction.attribute(attribute, default))
