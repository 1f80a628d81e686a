"""How many replicas and partitions there are, and where that is known from (stands in for XLA's HloModuleConfig).

Flags first, then the module's header, then the secondary mesh count; a module that says nothing is asked for evidence:
the device groups of its other collectives, the device counts in its shardings, and last the ids in the permutes' pairs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from hlo_cp2ag.ir.find import instruction_at
from hlo_cp2ag.ir.module import HloModule, Instruction
from hlo_cp2ag.ir.source import Span
from hlo_cp2ag.topology.process_grid import ProcessGrid

CountSource = Literal["flag", "header", "secondary mesh count", "collectives", "shardings", "pairs", "default"]

_SHARDING = re.compile(r", sharding=(\{[^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]*)*\})")
_TILES = re.compile(r"devices=\[((?:\d{1,9},)*\d{1,9})\]")
_MESH = re.compile(r"mesh\[([^\]]*)\]")
_MESH_AXIS_SIZE = re.compile(r"=(\d{1,9})(?!\d)")
_GROUPED = frozenset(
    f"{opcode}{suffix}"
    for opcode in (
        "all-gather",
        "all-reduce",
        "reduce-scatter",
        "all-to-all",
        "collective-broadcast",
        "ragged-all-to-all",
    )
    for suffix in ("", "-start")
)


@dataclass(frozen=True)
class Count:
    """One of the two counts and where it comes from."""

    value: int
    source: CountSource


@dataclass(frozen=True)
class GridConfig:
    """The grid of a module."""

    replica_count: Count
    num_partitions: Count
    warnings: tuple[str, ...] = ()
    header_edits: tuple[tuple[Span, str], ...] = field(default=(), repr=False)
    """Counts in the header that a flag contradicts, and what is to stand there."""
    missing_in_header: tuple[str, ...] = ()
    """`replica_count`, `num_partitions`, as far as the header does not say them."""

    @property
    def grid(self) -> ProcessGrid:
        """The grid itself."""
        return ProcessGrid(self.replica_count.value, self.num_partitions.value)

    @property
    def is_lower_bound(self) -> bool:
        """Whether a count rests on pairs alone, which say only how many devices there are at least."""
        return "pairs" in (self.replica_count.source, self.num_partitions.source)

    def describe(self) -> str:
        """Both counts with their sources, for people."""
        r, p = self.replica_count, self.num_partitions
        return f"replica_count {r.value} ({r.source}), num_partitions {p.value} ({p.source})"


def resolve_grid(
    module: HloModule,
    permutes: list[tuple[Instruction, tuple[tuple[int, int], ...]]],
    replica_count: int | None = None,
    num_partitions: int | None = None,
    secondary_mesh_count: int = 0,
    strict: bool = False,
    write_config: bool = False,
) -> GridConfig:
    """The grid of a module, from flags (`replica_count`, `num_partitions`), header, fallback or evidence.

    `permutes` are the module's collective-permutes with their pairs; they are asked last. Without permutes
    nothing depends on the grid, and evidence is looked for only where the counts are to be written.

    Raises HloError for counts below 1, for contradictory evidence, for pairs as the only evidence on both axes, and with
    `strict` for pairs as the only evidence at all.
    """
    for flag, value in (("--replica-count", replica_count), ("--num-partitions", num_partitions)):
        if value is not None and not isinstance(value, int):
            raise TypeError(f"{flag} must be an integer, not {value!r}")
        if value is not None and value < 1:
            raise module.header_error(f"{flag} must be at least 1, not {value}")
    header = {name: _header_count(module, name) for name in ("replica_count", "num_partitions")}
    warnings: list[str] = []
    edits: list[tuple[Span, str]] = []
    counts: dict[str, Count] = {}
    for name, flag_value in (("replica_count", replica_count), ("num_partitions", num_partitions)):
        stated = header[name]
        if flag_value is not None:
            counts[name] = Count(flag_value, "flag")
            attribute = module.header_attribute(name)
            if stated is not None and stated != flag_value and attribute is not None:
                flag = "--" + name.replace("_", "-")
                warnings.append(f"{flag} {flag_value} contradicts the header's {name}={stated}")
                edits.append((attribute.value_span, str(flag_value)))
        else:
            counts[name] = Count(1, "default") if stated is None else Count(stated, "header")
    both_at_most_1 = counts["replica_count"].value <= 1 and counts["num_partitions"].value <= 1
    if both_at_most_1 and secondary_mesh_count > 0:
        counts["num_partitions"] = Count(secondary_mesh_count, "secondary mesh count")
    elif all(count.source == "default" for count in counts.values()) and (permutes or write_config):
        counts = _infer(module, permutes, warnings, strict)
    return GridConfig(
        counts["replica_count"],
        counts["num_partitions"],
        tuple(warnings),
        tuple(edits),
        tuple(name for name, value in header.items() if value is None),
    )


def _header_count(module: HloModule, name: str) -> int | None:
    attribute = module.header_attribute(name)
    if attribute is None:
        return None
    text = attribute.value_text.strip()
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise module.source.error(attribute.value_span.start, f"{name} must be an integer")
    if int(text) < 1:
        raise module.source.error(
            attribute.value_span.start,
            f"{name} must be at least 1",
            hint=f"--{name.replace('_', '-')} overrides it in other modules",
        )
    return int(text)


# ---- evidence ------------------------------------------------------------------------------------------------------------


@dataclass
class _Evidence:
    """What one kind of evidence says of each axis, and of both together (`devices`)."""

    replicas: set[int] = field(default_factory=set)
    partitions: set[int] = field(default_factory=set)
    devices: set[int] = field(default_factory=set)

    def refuse_contradiction(self, module: HloModule, what: str) -> None:
        for found, of in ((self.replicas, "replicas"), (self.partitions, "partitions"), (self.devices, "devices")):
            if len(found) > 1:
                numbers = " and ".join(map(str, sorted(found)))
                raise module.header_error(
                    f"{what} speak of {numbers} {of}", "say which with --replica-count and --num-partitions"
                )


def _infer(
    module: HloModule,
    permutes: list[tuple[Instruction, tuple[tuple[int, int], ...]]],
    warnings: list[str],
    strict: bool,
) -> dict[str, Count]:
    has_channel = [instruction.attribute_text("channel_id") is not None for instruction, _ in permutes]
    lower = {"replica_count": 0, "num_partitions": 0}
    for (_, pairs), partitioned in zip(permutes, has_channel, strict=True):
        name = "num_partitions" if partitioned else "replica_count"
        lower[name] = max(lower[name], 1 + max((max(pair) for pair in pairs), default=-1))
    counts: dict[str, Count] = {}
    found: list[tuple[_Evidence, CountSource]] = [
        (_from_collectives(module), "collectives"),
        (_from_shardings(module), "shardings"),
    ]
    for evidence, source in found:
        evidence.refuse_contradiction(module, f"the {source}")
        for name, values in (("replica_count", evidence.replicas), ("num_partitions", evidence.partitions)):
            for value in values:
                _agree(module, counts, name, Count(value, source))
    guess = ""
    for evidence, source in found:
        for devices in evidence.devices:
            flat_axis = "replica_count" if has_channel and not any(has_channel) else "num_partitions"
            if not counts and lower[flat_axis] < devices:
                guess = f"the {source} say only that there are {devices} devices; {flat_axis} {devices} is a guess"
            _split_devices(module, counts, devices, flat_axis, source)
    for name, bound in lower.items():
        if name in counts and counts[name].value < bound:
            raise module.header_error(
                f"pairs name the id {bound - 1}, but the {counts[name].source} speak of {counts[name].value} {_axis(name)}",
                f"say how many there are with --{name.replace('_', '-')}",
            )
    alone = [name for name, bound in lower.items() if bound > 1 and name not in counts]
    if len(alone) == 2:
        raise module.header_error(
            "nothing but the pairs says how many replicas and partitions there are",
            "say how many with --replica-count and --num-partitions",
        )
    if guess:
        _doubt(module, guess, "--replica-count and --num-partitions say", warnings, strict)
    for name in alone:
        message = f"{name} {lower[name]} is only the least that the pairs allow; there may be more {_axis(name)}"
        _doubt(module, message, f"--{name.replace('_', '-')} says", warnings, strict)
        counts[name] = Count(lower[name], "pairs")
    return {name: counts.get(name, Count(1, "default")) for name in ("replica_count", "num_partitions")}


def _doubt(module: HloModule, message: str, who_says: str, warnings: list[str], strict: bool) -> None:
    """Warns of a count that is not certain; with `strict` refuses it."""
    if strict:
        raise module.header_error(f"{message} (--strict-grid)", f"{who_says} how many there are")
    warnings.append(f"{message}: {who_says} how many")


def _axis(name: str) -> str:
    return "replicas" if name == "replica_count" else "partitions"


def _agree(module: HloModule, counts: dict[str, Count], name: str, new: Count) -> None:
    old = counts.setdefault(name, new)
    if old.value != new.value:
        raise module.header_error(
            f"the {old.source} speak of {old.value} {_axis(name)}, the {new.source} of {new.value}",
            f"say which with --{name.replace('_', '-')}",
        )


def _split_devices(
    module: HloModule, counts: dict[str, Count], devices: int, flat_axis: str, source: CountSource
) -> None:
    """Flattened groups name devices of both axes: the axis that is not known yet is what is left."""
    other = "num_partitions" if flat_axis == "replica_count" else "replica_count"
    if flat_axis in counts and other not in counts and devices % counts[flat_axis].value == 0:
        flat_axis, other = other, flat_axis
    known = counts[other].value if other in counts else 1
    if devices % known:
        raise module.header_error(
            f"the {source} speak of {devices} devices, which {known} {_axis(other)} do not divide",
            "say how many there are with --replica-count and --num-partitions",
        )
    _agree(module, counts, flat_axis, Count(devices // known, source))


def _from_collectives(module: HloModule) -> _Evidence:
    """The device groups of collectives that are no permutes, where they cover ids 0 to n - 1."""
    from hlo_cp2ag.topology.replica_groups import covered_ids

    evidence = _Evidence()
    if "replica_groups=" not in module.text:
        return evidence
    seen: set[tuple[str, str, bool, bool]] = set()
    for instruction in _grouped_collectives(module):
        attribute = instruction.attribute_text("replica_groups")
        if attribute is None:
            continue
        has_channel = instruction.attribute_text("channel_id") is not None
        flattened = instruction.attribute("use_global_device_ids", False) is True
        key = (instruction.opcode, attribute.value_text, has_channel, flattened)
        if key in seen:
            continue
        seen.add(key)
        devices = covered_ids(instruction)
        if devices == 0:
            continue
        opcode = instruction.opcode.removesuffix("-start")
        if has_channel and flattened:
            evidence.devices.add(devices)
        elif has_channel and opcode in ("all-to-all", "collective-broadcast", "ragged-all-to-all"):
            evidence.partitions.add(devices)
        else:
            evidence.replicas.add(devices)
    return evidence


def _grouped_collectives(module: HloModule) -> Iterable[Instruction]:
    """The collectives that have device groups; of those with the same groups one a line of attributes is enough."""
    text = module.text
    seen: set[str] = set()
    place = text.find("replica_groups=")
    while place >= 0:
        end = text.find("\n", place)
        attributes = text[place:end]
        if attributes not in seen:
            seen.add(attributes)
            instruction = instruction_at(module, place)
            if instruction is not None and instruction.opcode in _GROUPED:
                yield instruction
        place = text.find("replica_groups=", place + 1)


def _from_shardings(module: HloModule) -> _Evidence:
    """The device counts of shardings: `devices=[2,4]<=[8]`, `mesh['x'=2,'y'=4]`."""
    evidence = _Evidence()
    for value in set(_SHARDING.findall(module.text)) if ", sharding={" in module.text else ():
        counts = [math.prod(int(size) for size in tiles.split(",") if size) for tiles in _TILES.findall(value)]
        counts += [
            math.prod(map(int, sizes)) for mesh in _MESH.findall(value) if (sizes := _MESH_AXIS_SIZE.findall(mesh))
        ]
        evidence.partitions.update(counts)
    return evidence
