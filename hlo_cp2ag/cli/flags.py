"""Flags that several commands share, each with its environment variable `CP2AG_` + name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def flag(*names: str, **settings: Any) -> Callable[[F], F]:
    """An option that also reads the environment: `--replica-count` reads CP2AG_REPLICA_COUNT."""
    long = next(name for name in names if name.startswith("--"))
    variable = "CP2AG_" + long.split("/")[0].lstrip("-").replace("-", "_").upper()
    settings.setdefault("envvar", variable)
    return click.option(*names, **settings)


def grid_flags(function: F) -> F:
    """What stands in for HloModuleConfig."""
    for decorate in reversed(
        [
            flag(
                "--replica-count",
                type=click.IntRange(min=1),
                metavar="R",
                help="Replicas. Default: the module's header, else evidence in it.",
            ),
            flag(
                "--num-partitions",
                type=click.IntRange(min=1),
                metavar="P",
                help="Partitions. Default: the module's header, else evidence in it.",
            ),
            flag(
                "--secondary-mesh-count",
                type=click.IntRange(min=0),
                default=0,
                metavar="C",
                help="Partitions where both counts are at most 1.",
            ),
            flag("--strict-grid", is_flag=True, help="Refuse a grid that is a guess."),
        ]
    ):
        function = decorate(function)
    return function


def profile_flags(function: F) -> F:
    """The profile and the flags that it sets."""
    for decorate in reversed(
        [
            flag("--profile", type=click.Choice(["xla", "neuron"]), default="xla", show_default=True,
                 help="xla: computes what the input computed. neuron: the graph that the Neuron binary builds."),
            flag("--gate", type=click.Choice(["every", "valid", "intra-group", "invalid"]),
                 help="Which permutes to rewrite, by the reference's predicate (duplicate target, a pair that crosses groups of"
                 " replica_count, or an id that is no target). every: all; valid: where it is false; intra-group: where no pair"
                 " crosses groups; invalid: where it is true. With one replica, valid and intra-group leave every permute that"
                 " has a non-self pair. Default: every (xla), invalid (neuron)."),
            flag("--non-target", type=click.Choice(["zero", "keep"]),
                 help="What a device gets that is no pair's target. Default: zero (xla), keep its own shard (neuron)."),
            flag("--device-id", type=click.Choice(["auto", "replica-id"]),
                 help="How a device finds itself in the map. auto: by replica-id, partition-id or both. replica-id: flat ranks."
                 " Default: auto (xla), replica-id (neuron)."),
            flag("--gather-dimension", type=click.Choice(["auto", "leading", "major"]),
                 help="auto: 0 where it is the most major one in memory, else that one. Default: auto (xla), leading (neuron)."),
            flag("--sub-byte", type=click.Choice(["widen", "keep"]),
                 help="Gather s4, u4, s2, u2 as s8, u8, or packed. Default: widen (xla), keep (neuron)."),
            flag("--async", "async_", type=click.Choice(["keep", "convert"]),
                 help="convert: async start/done pairs become all-gather-start and -done in the same places."
                 " Default: convert (xla), keep (neuron)."),
        ]
    ):  # fmt: skip
        function = decorate(function)
    return function


def cost_flags(function: F) -> F:
    """What makes gathers cost less than the reference's."""
    for decorate in reversed(
        [
            flag("--groups", type=click.Choice(["all", "minimal"]), default="all", show_default=True,
                 help="Who gathers together. minimal: only devices that exchange data, in groups of one size."),
            flag("--share-gathers", is_flag=True, help="Permutes of one operand use one gather."),
            flag("--max-gather-bytes", callback=_optional_size, metavar="SIZE",
                 help="Leave a permute that would gather more than this on a device, 64MiB for example."),
            flag("--simplify", is_flag=True, help="No gather where every device keeps its own shard or none receives any."),
        ]
    ):  # fmt: skip
        function = decorate(function)
    return function


def _optional_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    from hlo_cp2ag.cli.run_setup import memory_size

    return None if value is None else memory_size(ctx, param, value)
