"""How many ranks a NEFF runs on, as its reader finds it in def.json; what looks like several programs is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.topology.cc_info import CCInfo, JsonPath, read_cc_info
from hlo_cp2ag.topology.replica_groups import Groups

_EMPTY = "Empty topology found at index {}, possible MPMD neff file; use --stopAfter=compile"
_INCONSISTENT = (
    "Inconsistent worker count across topologies: {} vs {}. Possible MPMD neff file; use --stopAfter=compile"
)


class WorldSizeError(HloError):
    """A def.json that has no one world size: topologies that are empty, or that disagree.

    `str()` is Neuron's sentence; `path` leads to the topology.
    """

    def __init__(self, sentence: str, path: JsonPath = ()) -> None:
        super().__init__(sentence)
        self.path = path


def get_cc_rank_world_size(def_json: Mapping[str, Any]) -> int:
    """The largest of: the topologies' inner size, the span of the pairs, `#rank_world_size`, and 1.

    Source: Neuron's NeffInfo.getCCRankWorldSize. Topologies are gone through in order.

    Raises WorldSizeError for an empty topology and for topologies of several inner sizes, CCInfoError for a def.json
    that is none.
    """
    return world_size(read_cc_info(def_json))


def world_size(info: CCInfo) -> int:
    """The same of a CCInfo. Raises WorldSizeError."""
    inner = 0
    for index, topology in enumerate(info.replica_groups):
        size = inner_size(topology)
        path = ("CCInfo", "replica_groups", index)
        if size == 0:
            raise WorldSizeError(_EMPTY.format(index), path)
        if inner not in (0, size):
            raise WorldSizeError(_INCONSISTENT.format(inner, size), path)
        inner = size
    return max(inner, pair_span(info), info.rank_world_size or 0, 1)


def inner_size(topology: Groups) -> int:
    """The size of a topology's largest group, 0 if it has none."""
    return max(map(len, topology), default=0)


def pair_span(info: CCInfo) -> int:
    """1 + the largest id in the pairs of all permutes, 0 without pairs."""
    return 1 + max((rank for pairs in info.src_target_pairs for pair in pairs for rank in pair), default=-1)
