"""What the checker knows while it walks a module in text order: computations so far, and names in one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hlo_cp2ag.ir.module import Computation, HloModule
from hlo_cp2ag.ir.shape import Shape
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text.opcodes import KEYWORDS, PRIMITIVE_TYPES
from hlo_cp2ag.text.value_reader import wrap_int64

if TYPE_CHECKING:
    from hlo_cp2ag.text.check_fast import Batch

RESERVED = KEYWORDS | PRIMITIVE_TYPES
"""Words that are no names unless a % stands before them or a colon behind."""


@dataclass(frozen=True)
class Program:
    """A checked computation, seen from outside."""

    parameters: tuple[Shape, ...]
    result: Shape
    root_opcode: str
    identity: int
    """A number of its own, since inline computations have no name."""
    name: str = ""


@dataclass(frozen=True)
class AsyncChain:
    """What an async-start passes on to the updates and the done that follow it."""

    program: Program
    thread: str
    is_done: bool = False


class Names:
    """Shapes by instruction name.

    `written` holds them as the text writes names, `%a` or `a`: the batch path looks up what it finds. Names that come
    in one by one can be found both ways.
    """

    __slots__ = ("written",)

    def __init__(self) -> None:
        self.written: dict[str, Shape] = {}

    def get(self, name: str) -> Shape | None:
        """The shape of the instruction of that name (without %), if there is one."""
        return self.written.get("%" + name) or (None if name in RESERVED else self.written.get(name))

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __getitem__(self, name: str) -> Shape:
        shape = self.get(name)
        if shape is None:
            raise KeyError(name)
        return shape

    def __setitem__(self, name: str, shape: Shape) -> None:
        self.written["%" + name] = shape
        if name not in RESERVED:
            self.written[name] = shape

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.lstrip("%") for name in self.written))


@dataclass
class Scope:
    """The instructions of one computation, as far as they are checked."""

    computation: Computation
    shapes: Names = field(default_factory=Names)
    """What a later operand is held against."""
    parameters: dict[int, Shape] = field(default_factory=dict)
    is_lone: bool = False
    """Whether the text is one bare instruction: names that are not there become parameters."""
    root: str | None = None
    """The name marked ROOT so far."""
    root_opcode: str = ""
    last: str = ""
    """The name of the instruction that was added last."""
    last_opcode: str = ""
    chains: dict[str, AsyncChain] = field(default_factory=dict)
    channels: dict[str, int | None] = field(default_factory=dict)
    """The channel_id, or none, of every instruction that could have one."""
    channel_texts: dict[str, str] = field(default_factory=dict)
    """The attributes of those whose channel_id nobody has asked for yet."""

    def channel(self, name: str) -> tuple[bool, int | None]:
        """Whether an instruction could have a channel_id, and which it has."""
        if name in self.channels:
            return True, self.channels[name]
        text = self.channel_texts.get(name)
        if text is None:
            return False, None
        found = re.search(r", channel_id=(-?\d+)", text)
        return True, wrap_int64(found.group(1)) if found else None


class State:
    """The module and everything that its text has defined so far."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.source = module.source
        self.programs: dict[str, Program] = {}
        self.inline = {c.span.start: c for c in module.computations if c.is_inline}
        self.async_starts: dict[int, tuple[str, int]] = {}
        """For each computation that an async-start calls: its name, and where the first one calls it."""
        self.second_async_start: tuple[str, int] | None = None
        self.anonymous: dict[str, int] = {}
        self.inline_results: dict[int, Program | HloSyntaxError] = {}
        """What came of the computations that are written out inside an instruction, by where they begin."""
        self.batch: Batch | None = None
        self._made = 0

    def error(self, offset: int, message: str, hint: str = "") -> HloSyntaxError:
        """The exception for something wrong at an offset, to be raised by the caller."""
        return self.source.error(offset, message, hint=hint)

    def next_identity(self) -> int:
        """A number that no other computation has."""
        self._made += 1
        return self._made

    def anonymous_name(self, opcode: str) -> str:
        """The name that XLA gives an instruction written in place of an operand: `add.anon`, `add.anon.1`."""
        count = self.anonymous.get(opcode, 0)
        self.anonymous[opcode] = count + 1
        return f"{opcode}.anon.{count}" if count else f"{opcode}.anon"

    def note_async_start(self, program: Program, offset: int) -> None:
        """Counts who calls a computation asynchronously: XLA allows one for each computation."""
        if program.identity not in self.async_starts:
            self.async_starts[program.identity] = (program.name, offset)
        elif self.second_async_start is None:
            self.second_async_start = (program.name, offset)
