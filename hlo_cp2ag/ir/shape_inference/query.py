"""What an inference rule sees of an instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from hlo_cp2ag.ir.shape import ArrayShape, Shape

from .arrays import text
from .errors import ShapeInferenceError

Called = Mapping[str, tuple[Sequence[Shape], Shape]]
"""By attribute name (`to_apply`, `branch_computations[0]`): parameter shapes and result shape."""

T = TypeVar("T")


@dataclass(frozen=True)
class Program:
    """A called computation, as its parameters and result."""

    parameters: tuple[Shape, ...]
    result: Shape

    def __str__(self) -> str:
        return f"({', '.join(map(text, self.parameters))}) -> {text(self.result)}"


@dataclass(frozen=True)
class Query:
    """An opcode with everything its result shape follows from."""

    opcode: str
    operands: tuple[Shape, ...]
    attributes: Mapping[str, object]
    called: Called
    group_size: int | None = None
    """How many devices exchange data in a collective, if the caller knows the grid."""

    def refuse(self, why: str) -> NoReturn:
        """Raise ShapeInferenceError."""
        raise ShapeInferenceError(f"{self.opcode}: {why}")

    def array(self, index: int, what: str = "") -> ArrayShape:
        """An operand that has to be an array."""
        if index >= len(self.operands):
            self.refuse(f"needs {index + 1} operands, it has {len(self.operands)}")
        shape = self.operands[index]
        if not isinstance(shape, ArrayShape) or not shape.is_data:
            self.refuse(f"{what or f'operand {index}'} has to be an array, it is {text(shape)}")
        return shape

    def arrays(self) -> tuple[ArrayShape, ...]:
        """All operands, which have to be arrays."""
        return tuple(self.array(i) for i in range(len(self.operands)))

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        value = self.attributes.get(name, default)
        if value is None:
            self.refuse(f"needs the attribute {name}")
        if not isinstance(value, Sequence) or not all(isinstance(item, int) for item in value):
            self.refuse(f"the attribute {name} has to be a list of integers")
        return tuple(value)

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is an integer."""
        value = self.attributes.get(name, default)
        if value is None:
            self.refuse(f"needs the attribute {name}")
        if not isinstance(value, int):
            self.refuse(f"the attribute {name} has to be an integer")
        return value

    def one_dimension(self) -> int:
        """The `dimensions` attribute of ops that take exactly one."""
        dimensions = self.integers("dimensions")
        if len(dimensions) != 1:
            self.refuse(f"takes one dimension, dimensions has {len(dimensions)}")
        return dimensions[0]

    def dimension_in(self, dimension: int, shape: ArrayShape, what: str = "dimension") -> int:
        """The dimension, which has to be one of the shape's."""
        if not 0 <= dimension < shape.rank:
            self.refuse(f"{what} {dimension} is out of bounds for {text(shape)}")
        return dimension

    def string(self, name: str, default: str | None = None) -> str:
        """An attribute that is a word."""
        value = self.attributes.get(name, default)
        if value is None:
            self.refuse(f"needs the attribute {name}")
        return str(value)

    def value(self, name: str, of_type: type[T]) -> T:
        """An attribute of one of the classes in `hlo_cp2ag.ir.attributes`."""
        value = self.attributes.get(name)
        if not isinstance(value, of_type):
            self.refuse(f"needs the attribute {name}")
        return value

    def program(self, name: str) -> Program:
        """A called computation."""
        if name not in self.called:
            self.refuse(f"needs the computation {name}")
        parameters, result = self.called[name]
        return Program(tuple(parameters), result)
