"""What shape inference says when operands contradict each other."""

from __future__ import annotations


class ShapeInferenceError(ValueError):
    """Operands, attributes or called computations that no result shape fits; the message begins with the opcode."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
