"""Neuron's three-dimensional envelope `replica_groups[topology][group][rank]`: the `CCInfo` object of a def.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlo_cp2ag.ir.module import HloModule, Instruction
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.topology.collective_ops import collectives, is_permute
from hlo_cp2ag.topology.group_modes import (
    Mode,
    Pairs,
    Profile,
    check_groups,
    check_pairs,
    device_groups,
    device_pairs,
    flattened_groups,
    flattened_pairs,
    group_mode,
    pair_mode,
    written_pairs,
)
from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.topology.replica_groups import Groups, group_list

JsonPath = tuple[str | int, ...]


class CCInfoError(HloError):
    """A def.json whose `CCInfo` is none. `path` leads to the value that is wrong: keys and places in lists."""

    def __init__(self, message: str, path: JsonPath = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint


@dataclass(frozen=True)
class CCInfo:
    """What a def.json says of collectives."""

    replica_groups: tuple[Groups, ...] = ()
    """`[topology][group][rank]`: the distinct geometries of a module's collectives."""
    src_target_pairs: tuple[Pairs, ...] = ()
    """`[permute][pair]`, each pair (source, target)."""
    rank_world_size: int | None = None
    """`#rank_world_size`, None where it is not given."""

    def to_json(self) -> dict[str, Any]:
        """The object as def.json holds it: `{"CCInfo": {...}}`."""
        value: dict[str, Any] = {
            "replica_groups": [[list(group) for group in topology] for topology in self.replica_groups],
            "src_target_pairs": [[list(pair) for pair in pairs] for pairs in self.src_target_pairs],
        }
        if self.rank_world_size is not None:
            value["#rank_world_size"] = self.rank_world_size
        return {"CCInfo": value}


# ---- a module's ------------------------------------------------------------------------------------------------------


def write_cc_info(
    module: HloModule,
    replica_count: int | None = None,
    num_partitions: int | None = None,
    *,
    flatten: bool = False,
    rank_world_size: int | None = None,
    profile: Profile = "xla",
) -> dict[str, Any]:
    """The `{"CCInfo": {...}}` of a module, as def.json holds it; the arguments are those of `module_cc_info`."""
    info = module_cc_info(
        module, replica_count, num_partitions, flatten=flatten, rank_world_size=rank_world_size, profile=profile
    )
    return info.to_json()


def module_cc_info(
    module: HloModule,
    replica_count: int | None = None,
    num_partitions: int | None = None,
    *,
    flatten: bool = False,
    rank_world_size: int | None = None,
    profile: Profile = "xla",
) -> CCInfo:
    """What a def.json says of a module's collectives; every computation is scanned.

    One topology a geometry: geometries are equal iff their explicit lists are, order included, and stand in the order
    of their first appearance in the text. A list is wrapped, not transformed. Permutes give one list of pairs each.
    With `flatten` all of it is written as device ids, empty groups filled in.

    Counts that are None are the header's, or 1. If neither says anything the grid is not known: then nothing is held
    against it. `profile="neuron"`: pairs are flat ranks already.

    Raises HloSyntaxError for groups and pairs outside the grid; without `flatten` for a collective whose ids are no device
    ids; with it for a grid that is not known. Raises ValueError for counts below 1.
    """
    grid = _grid(module, replica_count, num_partitions)
    if grid is None and flatten:
        raise module.header_error("device ids need a grid", "say --replica-count and --num-partitions")
    if rank_world_size is not None and rank_world_size < 1:
        raise ValueError(f"#rank_world_size must be at least 1, not {rank_world_size}")
    topologies: dict[Groups, None] = {}
    permutes: list[Pairs] = []
    for instruction in collectives(module):
        if is_permute(instruction):
            permutes.append(_pairs(instruction, grid, flatten, profile))
        else:
            topologies.setdefault(_geometry(instruction, grid, flatten))
    return CCInfo(tuple(topologies), tuple(permutes), rank_world_size)


def _grid(module: HloModule, replica_count: int | None, num_partitions: int | None) -> ProcessGrid | None:
    counts = []
    for name, given in (("replica_count", replica_count), ("num_partitions", num_partitions)):
        stated = module.header_attribute(name)
        if given is None and stated is not None:
            if not stated.value_text.strip().isdecimal():
                raise module.source.error(stated.value_span.start, f"{name} must be an integer of at least 1")
            given = int(stated.value_text)
        if given is not None and given < 1:
            raise ValueError(f"{name} must be at least 1, not {given}")
        counts.append(given)
    if counts == [None, None]:
        return None
    return ProcessGrid(*(1 if count is None else count for count in counts))


def _geometry(instruction: Instruction, grid: ProcessGrid | None, flatten: bool) -> Groups:
    groups = group_list(instruction)
    mode = group_mode(instruction)
    if grid is not None and flatten:
        return device_groups(instruction, grid)
    check_groups(instruction, groups, mode, grid)
    if grid is None:
        return groups
    is_device_ids = not _has_two_axes(grid, mode) and (not groups or flattened_groups(groups, mode, grid) == groups)
    if not is_device_ids:
        raise _no_device_ids(instruction, "replica_groups", mode, grid)
    return groups


def _pairs(instruction: Instruction, grid: ProcessGrid | None, flatten: bool, profile: Profile) -> Pairs:
    pairs = written_pairs(instruction)
    mode = pair_mode(instruction, profile)
    if grid is not None and flatten:
        return device_pairs(instruction, grid, profile)
    check_pairs(instruction, pairs, mode, grid, repeats=profile == "neuron")
    if grid is None:
        return pairs
    if _has_two_axes(grid, mode) or flattened_pairs(pairs, mode, grid) != pairs:
        raise _no_device_ids(instruction, "source_target_pairs", mode, grid)
    return pairs


def _has_two_axes(grid: ProcessGrid, mode: Mode) -> bool:
    """Whether ids of this mode name one axis of a grid that has two."""
    return mode != "flattened_id" and grid.replica_count > 1 and grid.num_partitions > 1


def _no_device_ids(instruction: Instruction, attribute: str, mode: Mode, grid: ProcessGrid) -> Exception:
    text = instruction.attribute_text(attribute)
    return instruction.error(
        f"the {attribute} of {instruction.name!r} are no device ids: {mode} on a grid {grid}",
        text.value_span if text is not None else None,
        "--flatten writes device ids",
    )


# ---- a def.json's ----------------------------------------------------------------------------------------------------


def read_cc_info(def_json: object) -> CCInfo:
    """The `CCInfo` of a parsed def.json. `src_target_pairs` may be one flat list of pairs or one list per permute.

    Of `replica_groups`, `src_target_pairs` and `#rank_world_size` each may be missing, but not all. Other keys are not
    looked at.

    Raises CCInfoError for missing keys, lists of another depth, pairs that are not two, and ids that are no integers from
    0 on.
    """
    if not isinstance(def_json, Mapping):
        raise CCInfoError(f"a def.json is an object, not {_kind(def_json)}")
    if "CCInfo" not in def_json:
        raise CCInfoError('there is no "CCInfo" here', (), _HINT)
    info, path = def_json["CCInfo"], ("CCInfo",)
    if not isinstance(info, Mapping):
        raise CCInfoError(f"CCInfo is an object, not {_kind(info)}", path, _HINT)
    if not any(key in info for key in _KEYS):
        raise CCInfoError(f"CCInfo has none of {', '.join(_KEYS)}", path, _HINT)
    world_size = info.get("#rank_world_size")
    if "#rank_world_size" in info and (isinstance(world_size, bool) or not isinstance(world_size, int)):
        raise CCInfoError(f"#rank_world_size is an integer, not {_kind(world_size)}", (*path, "#rank_world_size"))
    if world_size is not None and world_size < 0:
        raise CCInfoError(f"#rank_world_size is {world_size}", (*path, "#rank_world_size"))
    return CCInfo(
        _topologies(info.get("replica_groups", []), (*path, "replica_groups")),
        _permutes(info.get("src_target_pairs", []), (*path, "src_target_pairs")),
        world_size,
    )


_KEYS = ("replica_groups", "src_target_pairs", "#rank_world_size")
_HINT = '{"CCInfo": {"replica_groups": [[[0, 1]]], "src_target_pairs": [[[0, 1]]], "#rank_world_size": 2}}'


def _topologies(value: object, path: JsonPath) -> tuple[Groups, ...]:
    found = []
    for i, topology in enumerate(_list(value, "replica_groups is a list of topologies", path)):
        groups = []
        for j, group in enumerate(_list(topology, "a topology is a list of groups", (*path, i))):
            ranks = _list(group, "a group is a list of ranks", (*path, i, j))
            groups.append(tuple(_id(rank, (*path, i, j, k)) for k, rank in enumerate(ranks)))
        found.append(tuple(groups))
    return tuple(found)


def _permutes(value: object, path: JsonPath) -> tuple[Pairs, ...]:
    items = _list(value, "src_target_pairs is a list of pairs or of lists of pairs", path)
    # A pair begins with a number, a permute with a pair.
    if items and isinstance(items[0], list) and items[0] and not isinstance(items[0][0], list):
        return (_pair_list(items, path),)
    return tuple(
        _pair_list(_list(item, "a permute is a list of pairs", (*path, i)), (*path, i)) for i, item in enumerate(items)
    )


def _pair_list(items: list[Any], path: JsonPath) -> Pairs:
    found = []
    for i, item in enumerate(items):
        pair = _list(item, "a pair is a list [source, target]", (*path, i))
        if len(pair) != 2:
            raise CCInfoError(f"a pair is [source, target], not a list of {len(pair)}", (*path, i))
        source, target = (_id(rank, (*path, i, k)) for k, rank in enumerate(pair))
        found.append((source, target))
    return tuple(found)


def _list(value: object, what: str, path: JsonPath) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise CCInfoError(f"{what}, not {_kind(value)}", path)
    return list(value)


def _id(value: object, path: JsonPath) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CCInfoError(f"a rank is an integer, not {_kind(value)}", path)
    if value < 0:
        raise CCInfoError(f"a rank is at least 0, not {value}", path)
    return value


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value}"
    return "a string" if isinstance(value, str) else "an object" if isinstance(value, Mapping) else "a list"
