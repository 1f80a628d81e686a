"""infeed, outfeed, and send and recv within one module.

What a module sends on a channel waits there until a recv-done of the channel takes it, first in, first out. Between
devices it goes by the frontend attribute `_xla_send_recv_source_target_pairs`, as XLA writes it for permutes that it
takes apart: partitions, or replicas where there is one partition; a device that is no target gets zeros. Without the
attribute each device gets what it has sent itself.
"""

from __future__ import annotations

import re
from collections import deque
from typing import cast

import numpy as np

from hlo_cp2ag.executor.inputs import as_input
from hlo_cp2ag.executor.registry import Context, execution_error, flag, integer, op, precheck
from hlo_cp2ag.executor.values import TOKEN, Array, Token, Value, array_shape_of, choose, expand, leaves, zeros
from hlo_cp2ag.executor.values import map_arrays as mapped
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.ir.shape import Shape, TupleShape

_PAIRS = re.compile(r'_xla_send_recv_source_target_pairs\s*=\s*"?(\{[\d,{}\s]*\})')


@op("infeed")
def infeed(context: Context, instruction: Instruction, token: Token) -> Value:
    """Semantics: XLA operation semantics, Infeed: the next arrays of the run's infeed, and a token."""
    shape = instruction.shape
    assert isinstance(shape, TupleShape)

    def take(part: Shape) -> Value:
        if isinstance(part, TupleShape):
            return tuple(map(take, part.elements))
        array = array_shape_of(part)
        if not array.is_data:
            return TOKEN
        number, given = context.next_infeed()
        if given is None:
            hint = "--infeed gives arrays f0, f1, ..., one a leaf in the order in which infeeds run"
            raise execution_error(instruction, f"no array is left in the infeed: it has {number}", hint)
        return as_input(given, array, context.lanes, f"f{number}")

    return (take(shape.elements[0]), TOKEN)


@op("outfeed")
def outfeed(context: Context, instruction: Instruction, operand: Value, token: Token) -> Token:
    """Semantics: XLA operation semantics, Outfeed: the operand's arrays go into the run's outfeed.

    Devices that are in another branch put zeros there.
    """
    if context.active is not None:
        operand = choose(context.active, operand, mapped(np.zeros_like, operand))
    for leaf in leaves(operand):
        if not isinstance(leaf, Token):
            context.hold(instruction, leaf.nbytes + 200)  # and what Python takes for an array
            context.outfeed.append(np.broadcast_to(leaf, (context.lanes, *leaf.shape[1:])))
    return TOKEN


@precheck("infeed", "outfeed", "send", "recv")
def check_transfer(context: Context, instruction: Instruction) -> None:
    """Elements of arrays have no feeds and no channels; a transfer to the host needs a host."""
    if instruction.opcode in ("send", "recv") and flag(instruction, "is_host_transfer"):
        raise instruction.error(f"{instruction.opcode}: a transfer to or from the host, and there is none")
    if instruction.opcode in ("send", "recv"):
        _sources(context, instruction)


def _sources(context: Context, instruction: Instruction) -> Array | None:
    """By device whose data it gets, -1 for none; None if each gets its own."""
    text = instruction.attribute_text("frontend_attributes")
    found = _PAIRS.search(text.value_text) if text is not None else None
    if found is None:
        return None
    numbers = list(map(int, re.findall(r"\d+", found[1])))
    if len(numbers) % 2:
        raise instruction.error("_xla_send_recv_source_target_pairs has an odd number of ids")
    replicas, partitions = context.grid.replica_count, context.grid.num_partitions
    by_partition = partitions > 1 or replicas == 1
    count = partitions if by_partition else replicas
    sources = np.full(replicas * partitions, -1)
    seen: set[int] = set()
    for source, target in zip(numbers[::2], numbers[1::2], strict=True):
        if max(source, target) >= count:
            raise instruction.error(
                f"the pair {{{source},{target}}} names an id that is not among the {count} there are"
            )
        if target in seen:
            raise instruction.error(f"the target {target} is there twice")
        seen.add(target)
        for other in range(replicas if by_partition else partitions):
            pair = [other * partitions + x if by_partition else x * partitions + other for x in (source, target)]
            sources[pair[1]] = pair[0]
    return sources


def _channel(context: Context, instruction: Instruction) -> deque[Value]:
    return context.channels.setdefault(integer(instruction, "channel_id"), deque())


@op("send")
def send(context: Context, instruction: Instruction, operand: Value, token: Token) -> Value:
    """Semantics: XLA operation semantics, Send: (operand, context, token)."""
    sources = context.memo(instruction, "sources", lambda: _sources(context, instruction))
    sent = operand if sources is None else _moved(context, operand, sources)
    context.hold(instruction, _size(sent))
    _channel(context, instruction).append(sent)
    return (operand, np.zeros(1, np.uint32), TOKEN)


def _size(value: Value) -> int:
    return sum(200 + x.nbytes for x in leaves(value) if not isinstance(x, Token))


def _moved(context: Context, operand: Value, sources: Array) -> Value:
    def move(x: Array) -> Array:
        taken = expand(x, context.lanes)[np.maximum(sources, 0)]
        return cast(Array, choose(sources >= 0, taken, np.zeros_like(taken)))

    return mapped(move, operand)


@op("recv")
def recv(context: Context, instruction: Instruction, token: Token) -> Value:
    """Semantics: XLA operation semantics, Recv: (data, context, token); the data is there after recv-done."""
    return zeros(instruction.shape)


@op("send-done")
def send_done(context: Context, instruction: Instruction, operand: Value) -> Token:
    """Semantics: XLA operation semantics, SendDone: a token."""
    return TOKEN


@op("recv-done")
def recv_done(context: Context, instruction: Instruction, operand: tuple[Value, ...]) -> Value:
    """Semantics: XLA operation semantics, RecvDone: (what was sent, token)."""
    channel = _channel(context, instruction)
    if not channel:
        raise execution_error(
            instruction,
            f"nothing has been sent on channel {integer(instruction, 'channel_id')} at this point",
            "only what the same module sends is received, in the order of its text",
        )
    data = channel.popleft()
    context.hold(instruction, -_size(data))
    if [getattr(x, "shape", ())[1:] for x in leaves(data)] != [getattr(x, "shape", ())[1:] for x in leaves(operand[0])]:
        raise execution_error(instruction, "what was sent has another shape than what is to be received")
    return (data, TOKEN)
