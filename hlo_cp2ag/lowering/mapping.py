"""From source-target pairs to the flattened map: who delivers to me?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from hlo_cp2ag.topology.process_grid import ProcessGrid
from hlo_cp2ag.topology.replica_groups import Groups

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SourceMap:
    """For each device of the grid the device whose shard it receives."""

    sources: tuple[int, ...]
    """`sources[target] = source`; a device that is no target has its own id here."""
    is_target: tuple[bool, ...]

    @cached_property
    def sources_literal(self) -> str:
        """The map as XLA prints a constant: `{3, 0, 1, 2}`."""
        return "{" + ", ".join(map(str, self.sources)) + "}"

    @cached_property
    def is_target_literal(self) -> str:
        """The mask as XLA prints a constant of pred: `{0, 1, 1, 1}`."""
        return "{" + ", ".join("01"[flag] for flag in self.is_target) + "}"

    @cached_property
    def all_targets(self) -> bool:
        """Whether every device receives from somebody."""
        return all(self.is_target)


@lru_cache(maxsize=1024)
def source_map(pairs: Pairs, grid: ProcessGrid, axis: str) -> SourceMap:
    """The flattened map over all devices; of pairs with the same target the last one wins.

    axis "replica": pairs name replicas, `map[t*P + p] = s*P + p` for each partition p.
    axis "partition": pairs name partitions, `map[r*P + t] = r*P + s` for each replica r.
    axis "device": pairs name devices, `map[t] = s` (Neuron's flat ranks).
    """
    replicas, partitions = grid.replica_count, grid.num_partitions
    sources = [-1] * grid.device_count
    if axis == "replica":
        for source, target in pairs:
            for p in range(partitions):
                sources[target * partitions + p] = source * partitions + p
    elif axis == "partition":
        for source, target in pairs:
            for r in range(replicas):
                sources[r * partitions + target] = r * partitions + source
    else:
        for source, target in pairs:
            sources[target] = source
    return SourceMap(
        tuple(own if source < 0 else source for own, source in enumerate(sources)),
        tuple(source >= 0 for source in sources),
    )


@lru_cache(maxsize=1024)
def placed_in_groups(sources: SourceMap, groups: Groups) -> SourceMap:
    """The map with each source's place in its device's group instead of its id; nothing changes for one group of all."""
    if len(groups) <= 1:
        return sources
    place = {device: number for group in groups for number, device in enumerate(group)}
    return SourceMap(tuple(place[source] for source in sources.sources), sources.is_target)


def axis_size(grid: ProcessGrid, axis: str) -> int:
    """How many ids the axis that pairs name has."""
    return {"replica": grid.replica_count, "partition": grid.num_partitions, "device": grid.device_count}[axis]
