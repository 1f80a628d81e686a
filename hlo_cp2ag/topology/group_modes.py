"""What the ids of a collective's groups and pairs name, and the same as flattened device ids.

Source: XLA's collective_ops_utils (GetCollectiveOpGroupMode, GetParticipatingFlattenedIdGroups), which orders groups as
StableHLO's cross_replica, cross_partition, cross_replica_and_partition and flattened_ids do; the members of a
cross-replica-and-partition group are in XLA's order, replica-major.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.topology.collective_ops import is_collective
from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.topology.replica_groups import MOST_IDS, Groups, bad_groups, group_list

Mode = Literal["cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_id"]
Profile = Literal["xla", "neuron"]
Pairs = tuple[tuple[int, int], ...]

_GLOBAL_IDS = ("all-gather", "all-reduce", "reduce-scatter")
"""The collectives that take use_global_device_ids."""


def group_mode(instruction: Instruction) -> Mode:
    """What the ids of a collective's groups or pairs mean. Raises HloSyntaxError for global ids without a channel."""
    has_channel = instruction.attribute_text("channel_id") is not None
    if not instruction.opcode.startswith(_GLOBAL_IDS):
        return "cross_partition" if has_channel else "cross_replica"
    is_global = instruction.attribute("use_global_device_ids", False)
    if not has_channel:
        if is_global:
            raise instruction.error("use_global_device_ids needs a channel_id")
        return "cross_replica"
    return "flattened_id" if is_global else "cross_replica_and_partition"


def pair_mode(instruction: Instruction, profile: Profile = "xla") -> Mode:
    """What the ids of a permute's pairs mean; under the profile "neuron" they are flat ranks."""
    return "flattened_id" if profile == "neuron" else group_mode(instruction)


def axis_size(mode: Mode, grid: ProcessGrid) -> int:
    """How many ids there are that a mode can name."""
    return {"cross_partition": grid.num_partitions, "flattened_id": grid.device_count}.get(mode, grid.replica_count)


def participants(instruction: Instruction, replica_count: int, num_partitions: int) -> list[list[int]]:
    """Who really meets in a collective: device ids `[group][member]` by its mode, empty groups filled in.

    device id = replica * num_partitions + partition. For a permute: all devices of each line that its pairs may join.

    Raises ValueError for counts below 1, HloSyntaxError for an instruction that is no collective and for groups that name
    ids outside the grid, one id twice, or none at all.
    """
    if replica_count < 1 or num_partitions < 1:
        raise ValueError(f"a grid of {replica_count} x {num_partitions} has no devices")
    if not is_collective(instruction):
        raise instruction.error(f"{instruction.opcode} is no collective")
    return [list(group) for group in device_groups(instruction, ProcessGrid(replica_count, num_partitions))]


def device_groups(instruction: Instruction, grid: ProcessGrid) -> Groups:
    """The groups of a collective as device ids `[group][member]`, empty groups filled in.

    Raises HloSyntaxError for groups that name ids outside the grid, one id twice, or none at all.
    """
    mode = group_mode(instruction)
    ids = group_list(instruction)
    if mode == "flattened_id" and not ids:
        raise bad_groups(instruction, "replica_groups must not be empty with use_global_device_ids=true")
    if grid.device_count > MOST_IDS:
        raise bad_groups(instruction, f"the grid {grid} has more devices than there are")
    check_groups(instruction, ids, mode, grid)
    return flattened_groups(ids, mode, grid)


def check_groups(instruction: Instruction, ids: Groups, mode: Mode, grid: ProcessGrid | None) -> None:
    """Raise HloSyntaxError for ids outside the grid, ids that stand twice, and groups without ids.

    Where the grid is not known any id from 0 on is in it.
    """
    size = None if grid is None else axis_size(mode, grid)
    seen: set[int] = set()
    for group in ids:
        if not group:
            raise bad_groups(instruction, "replica_groups has an empty group")
        for member in group:
            if member < 0 and size is None:
                raise bad_groups(instruction, f"group id {member} is below 0", len(seen))
            if size is not None and not 0 <= member < size:
                what = f"group id {member} is not among the {size} of the grid {grid} ({mode})"
                raise bad_groups(instruction, what, len(seen))
            if member in seen:
                raise bad_groups(instruction, f"group id {member} stands twice in replica_groups", len(seen))
            seen.add(member)


def flattened_groups(ids: Groups, mode: Mode, grid: ProcessGrid) -> Groups:
    """Groups of replicas, partitions or devices as groups of devices; no groups are one of all ids of the axis."""
    replicas, partitions = grid.replica_count, grid.num_partitions
    if not ids:
        ids = (tuple(range(axis_size(mode, grid))),)
    if mode == "cross_replica":
        return tuple(tuple(r * partitions + p for r in group) for group in ids for p in range(partitions))
    if mode == "cross_partition":
        return tuple(tuple(r * partitions + p for p in group) for group in ids for r in range(replicas))
    if mode == "cross_replica_and_partition":
        return tuple(tuple(r * partitions + p for r in group for p in range(partitions)) for group in ids)
    return ids


def written_pairs(instruction: Instruction) -> Pairs:
    """`source_target_pairs` as they stand. Raises HloSyntaxError for a permute without them."""
    pairs = instruction.attribute("source_target_pairs")
    if pairs is None:
        raise instruction.error("a collective-permute needs source_target_pairs")
    return cast(Pairs, pairs)


def device_pairs(instruction: Instruction, grid: ProcessGrid, profile: Profile = "xla") -> Pairs:
    """A permute's pairs as `(source, target)` device ids: for each pair, one on each line of the grid.

    Raises HloSyntaxError for pairs that name ids outside their axis and, but for the profile "neuron", for a source or
    target that stands twice.
    """
    mode = pair_mode(instruction, profile)
    pairs = written_pairs(instruction)
    check_pairs(instruction, pairs, mode, grid, repeats=profile == "neuron")
    return flattened_pairs(pairs, mode, grid)


def check_pairs(
    instruction: Instruction, pairs: Pairs, mode: Mode, grid: ProcessGrid | None, repeats: bool = False
) -> None:
    """Raise HloSyntaxError for ids outside the axis and, unless `repeats`, for a source or target that stands twice.

    Where the grid is not known any id from 0 on is in it. A permute in place moves several slices, and a device may send
    or receive one for each.
    """
    size = None if grid is None else axis_size(mode, grid)
    repeats = repeats or instruction.attribute_text("slice_sizes") is not None
    written = instruction.attribute_text("source_target_pairs")
    span = written.value_span if written is not None else None
    sources: set[int] = set()
    targets: set[int] = set()
    for source, target in pairs:
        if size is None and min(source, target) < 0:
            raise instruction.error(f"the pair {{{source},{target}}} names an id below 0", span)
        if size is not None and not (0 <= source < size and 0 <= target < size):
            raise instruction.error(
                f"the pair {{{source},{target}}} names an id that is not among the {size} of the grid {grid}",
                span,
            )
        if not repeats and (source in sources or target in targets):
            raise instruction.error(f"the pair {{{source},{target}}} repeats a source or target", span)
        sources.add(source)
        targets.add(target)


def flattened_pairs(pairs: Sequence[tuple[int, int]], mode: Mode, grid: ProcessGrid) -> Pairs:
    """Pairs of replicas, partitions or devices as pairs of devices."""
    replicas, partitions = grid.replica_count, grid.num_partitions
    if mode == "cross_replica":
        return tuple((s * partitions + p, t * partitions + p) for s, t in pairs for p in range(partitions))
    if mode == "cross_partition":
        return tuple((r * partitions + s, r * partitions + t) for s, t in pairs for r in range(replicas))
    return tuple(pairs)
