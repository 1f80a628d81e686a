"""What a permute costs before and after: bytes on the wire, over all devices, and peak memory on one device.

A permute sends its operand once for each pair of two devices, and holds operand and result.

A ring all-gather among n devices whose shards have S bytes takes n - 1 steps, and in each of them every device sends one
shard to its neighbour: (n - 1) * S bytes a device. Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
Collective Communication Operations in MPICH", Int. J. High Performance Computing Applications 19(1), 2005, section 4.1
(the term (p - 1)/p * n * beta, where n is the gathered size); the same factor (n - 1)/n is in doc/PERFORMANCE.md of
NVIDIA's nccl-tests. The n shards of the gather are held beside operand and result, and where elements are widened, the
widened operand and slice too.

Each instruction is counted once, however often its computation runs. A gather that permutes share is counted for the
first of them. Masks, maps and indices are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hlo_cp2ag.ir.shape import ArrayShape
from hlo_cp2ag.lowering.collective_permute_to_all_gather import RewriteResult, Site


@dataclass(frozen=True)
class Cost:
    """Of one permute, or of what stands for it."""

    moved: int = 0
    """Bytes that all devices together send."""
    gathered: int = 0
    """Bytes of the gathered arrays on one device."""
    peak: int = 0
    """Bytes of the arrays that one device holds at once."""


def cost_before(site: Site, result: RewriteResult) -> Cost:
    """Of a permute as it stands."""
    grid, shard = result.config.grid, site.shard_bytes
    lanes = {"replica": grid.num_partitions, "partition": grid.replica_count, "device": 1}[site.axis]
    sent = sum(source != target for source, target in site.pairs) * lanes
    return Cost(sent * shard, 0, 2 * shard)


def cost_after(site: Site, result: RewriteResult) -> Cost:
    """Of what stands for a permute; the permute's own if it was left."""
    if site.action != "rewritten":
        return cost_before(site, result)
    shard = site.shard_bytes
    if site.simplified:
        return Cost(peak=2 * shard if site.names_created else shard)
    handed_in = site.gathered_bytes(result.options.sub_byte == "widen")
    members, devices = len(site.groups[0]), result.config.grid.device_count
    moved = 0 if site.shared_with else devices * (members - 1) * handed_in
    gathered = members * handed_in
    widened = 2 * handed_in if handed_in != shard else 0
    return Cost(moved, gathered, 2 * shard + gathered + widened)


def is_known(site: Site) -> bool:
    """Whether a permute's sizes are known; those of some that are left are not."""
    if site.action == "rewritten":
        return True
    permute = site.permute
    if permute.attribute_text("slice_sizes") is not None or any(o.name is None for o in permute.body.operands):
        return False
    shapes = [operand.shape for operand in permute.operands]
    return all(isinstance(s, ArrayShape) and s.is_data and not s.is_dynamic for s in shapes)


def total(costs: Iterable[Cost]) -> Cost:
    """All bytes on the wire, and the largest gather and peak."""
    found = list(costs)
    return Cost(
        sum(cost.moved for cost in found),
        max((cost.gathered for cost in found), default=0),
        max((cost.peak for cost in found), default=0),
    )


def total_costs(results: Iterable[RewriteResult]) -> tuple[Cost, Cost]:
    """Of all permutes whose sizes are known, before and after."""
    known = [(site, result) for result in results for site in result.sites if is_known(site)]
    return total(cost_before(*each) for each in known), total(cost_after(*each) for each in known)
