"""What `cp2ag ranks` says of a collective: for machines as JSON, for pipes as lines of fields, on terminals as rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hlo_cp2ag.cli import console, files
from hlo_cp2ag.ir.device_groups import ReplicaGroupList
from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.topology.collective_ops import is_permute
from hlo_cp2ag.topology.group_modes import (
    Mode,
    Pairs,
    Profile,
    device_groups,
    device_pairs,
    group_mode,
    pair_mode,
    written_pairs,
)
from hlo_cp2ag.topology.iota_lists import iota_form
from hlo_cp2ag.topology.lnc import place_of
from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.topology.replica_groups import Groups, group_list

NONE = "-"
"""Stands in a field that has nothing to say."""
_WIDEST = 60
"""The most characters of a list in a cell of a table."""


@dataclass(frozen=True)
class Collective:
    """One collective with its groups, or its pairs if it is a permute, as written and as device ids."""

    instruction: Instruction
    mode: Mode
    groups: Groups | None
    devices: Groups | None
    pairs: Pairs | None
    device_pairs: Pairs | None

    @property
    def channel(self) -> int | None:
        """Its channel id."""
        value = self.instruction.attribute("channel_id")
        return value if isinstance(value, int) else None

    @property
    def iota(self) -> str | None:
        """The short form of its groups, where there is one."""
        form = iota_form(self.groups) if self.groups else None
        return None if form is None else form.to_text()

    def described(self) -> dict[str, Any]:
        """Name and place for machines, with mode and channel."""
        return {**place_json(self.instruction), "mode": self.mode, "channel": self.channel}

    def head(self) -> tuple[str, ...]:
        """Name and place as fields, with mode and channel."""
        channel = NONE if self.channel is None else str(self.channel)
        return (*place_fields(self.instruction), self.mode, channel)


def read_collective(instruction: Instruction, grid: ProcessGrid, profile: Profile) -> Collective:
    """A collective on a grid. Raises HloSyntaxError for what XLA refuses of it."""
    from hlo_cp2ag.text.check_touched import check_touched

    check_touched(instruction)
    if is_permute(instruction):
        pairs, on_devices = written_pairs(instruction), device_pairs(instruction, grid, profile)
        return Collective(instruction, pair_mode(instruction, profile), None, None, pairs, on_devices)
    groups, devices = group_list(instruction), device_groups(instruction, grid)
    return Collective(instruction, group_mode(instruction), groups, devices, None, None)


# ---- its groups ------------------------------------------------------------------------------------------------------


def groups_json(collective: Collective, grid: ProcessGrid) -> dict[str, Any]:
    """The three forms of its groups for machines; a permute has pairs in their place."""
    ids = collective.devices if collective.pairs is None else collective.device_pairs
    return {
        **collective.described(),
        "replica_groups": _lists(collective.groups),
        "source_target_pairs": _lists(collective.pairs),
        "iota": collective.iota,
        "devices": [[list(grid.replica_and_partition(device)) for device in group] for group in ids or ()],
        "device_ids": _lists(ids),
    }


def groups_fields(collective: Collective, grid: ProcessGrid) -> tuple[str, ...]:
    """The same as fields: list, iota, devices."""
    if collective.pairs is not None:
        pairs = ",".join(
            f"{_device(source, grid)}>{_device(target, grid)}" for source, target in collective.device_pairs or ()
        )
        return (*collective.head(), list_text(collective.pairs), NONE, f"{{{pairs}}}")
    groups = ",".join(
        "{" + ",".join(_device(member, grid) for member in group) + "}" for group in collective.devices or ()
    )
    return (*collective.head(), list_text(collective.groups or ()), collective.iota or NONE, f"{{{groups}}}")


def _device(device: int, grid: ProcessGrid) -> str:
    replica, partition = grid.replica_and_partition(device)
    return f"({replica},{partition})"


# ---- one rank in it --------------------------------------------------------------------------------------------------


def rank_json(collective: Collective, rank: int) -> dict[str, Any]:
    """Where a rank stands in a collective, for machines; in a permute it has no group but those it talks to."""
    if collective.device_pairs is not None:
        sources, targets = _partners(collective.device_pairs, rank)
        peers = sorted({*sources, *targets} - {rank})
        where: dict[str, Any] = {"group": None, "position": None, "members": None, "peers": peers}
        return {**collective.described(), **where, "receives_from": sources, "sends_to": targets}
    return {**collective.described(), **group_json(rank, collective.devices or ())}


def group_json(rank: int, groups: Groups) -> dict[str, Any]:
    """Its group, position in it, and peers."""
    found = place_of(rank, groups)
    if found is None:
        return {"group": None, "position": None, "members": [], "peers": []}
    group, position = found
    members = list(groups[group])
    peers = [member for member in members if member != rank]
    return {"group": group, "position": position, "members": members, "peers": peers}


def rank_fields(collective: Collective, rank: int) -> tuple[str, ...]:
    """The same as fields: group, position, peers, and how: members in order, or who sends to whom."""
    if collective.device_pairs is not None:
        sources, targets = _partners(collective.device_pairs, rank)
        how = [f"{source}>{rank}" for source in sources] + [f"{rank}>{target}" for target in targets]
        peers = sorted({*sources, *targets} - {rank})
        return (*collective.head(), NONE, NONE, _commas(peers), _commas(dict.fromkeys(how)))
    return (*collective.head(), *group_fields(rank, collective.devices or ()))


def group_fields(rank: int, groups: Groups) -> tuple[str, ...]:
    """The same of groups alone."""
    found = group_json(rank, groups)
    if found["group"] is None:
        return (NONE,) * 4
    return (str(found["group"]), str(found["position"]), _commas(found["peers"]), _commas(found["members"]))


def _partners(pairs: Pairs, rank: int) -> tuple[list[int], list[int]]:
    """From whom a rank receives and to whom it sends."""
    return [s for s, t in pairs if t == rank], [t for s, t in pairs if s == rank]


# ---- how it is written -----------------------------------------------------------------------------------------------


def place_json(instruction: Instruction) -> dict[str, Any]:
    """Which instruction this is, for machines."""
    position = instruction.module.source.position(instruction.span.start)
    return {
        "name": instruction.name,
        "opcode": instruction.opcode,
        "computation": instruction.computation.name,
        "line": position.line,
        "column": position.column,
    }


def place_fields(instruction: Instruction) -> tuple[str, ...]:
    """Which instruction this is, as fields: `file:line:column`, name, opcode."""
    source = instruction.module.source
    position = source.position(instruction.span.start)
    return (f"{source.filename}:{position.line}:{position.column}", instruction.name, instruction.opcode)


def list_text(groups: Iterable[Sequence[int]]) -> str:
    """Groups or pairs as XLA prints them: `{{0,4},{1,5}}`."""
    return ReplicaGroupList(tuple(map(tuple, groups))).to_text()


def show(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], first: str = "") -> None:
    """Rows of fields on stdout: a table on a terminal, else a line each with tabs between the fields.

    `first` is a line of its own before them.
    """
    if first:
        files.write_bytes("-", f"{first}\n".encode())
    if not console.is_terminal(sys.stdout):
        # A name is the only field that somebody else has written.
        files.write_bytes("-", "".join("\t".join(row) + "\n" for row in rows).encode())
    elif rows:
        cells = [(row[0].rsplit(":", 2)[-2], *map(_short, row[1:])) for row in rows]
        console.table(title, columns, cells, {})


def _short(text: str) -> str:
    if len(text) <= _WIDEST:
        return text
    cut = text.rfind("{", 0, _WIDEST)
    return text[: cut if cut > _WIDEST // 2 else _WIDEST] + "..."


def _commas(values: Iterable[object]) -> str:
    return ",".join(map(str, values)) or NONE


def _lists(groups: Groups | Pairs | None) -> list[list[int]] | None:
    return None if groups is None else [list(group) for group in groups]
