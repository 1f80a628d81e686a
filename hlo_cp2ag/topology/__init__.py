"""Who is on the grid, and who talks to whom: group modes, replica groups, Neuron's ranks.

Everything that is meant for others can be had from here; what is not used is not loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_cp2ag.topology.cc_info import CCInfo, CCInfoError, module_cc_info, read_cc_info, write_cc_info
    from hlo_cp2ag.topology.collective_ops import collectives
    from hlo_cp2ag.topology.group_modes import group_mode, participants
    from hlo_cp2ag.topology.iota_lists import iota_form
    from hlo_cp2ag.topology.lnc import cores_per_lnc, get_rank_id_for_core, is_in_replica_group, simulator_groups
    from hlo_cp2ag.topology.process_grid import ProcessGrid
    from hlo_cp2ag.topology.replica_groups import get_replica_groups, has_matching_replica_groups, num_replicas
    from hlo_cp2ag.topology.tp_groups import TpGroup, find_tp_group, get_tp_replica_group
    from hlo_cp2ag.topology.world_size import WorldSizeError, get_cc_rank_world_size

_HOMES = {
    "CCInfo": "cc_info",
    "CCInfoError": "cc_info",
    "module_cc_info": "cc_info",
    "read_cc_info": "cc_info",
    "write_cc_info": "cc_info",
    "collectives": "collective_ops",
    "group_mode": "group_modes",
    "participants": "group_modes",
    "iota_form": "iota_lists",
    "cores_per_lnc": "lnc",
    "get_rank_id_for_core": "lnc",
    "is_in_replica_group": "lnc",
    "simulator_groups": "lnc",
    "ProcessGrid": "process_grid",
    "get_replica_groups": "replica_groups",
    "has_matching_replica_groups": "replica_groups",
    "num_replicas": "replica_groups",
    "TpGroup": "tp_groups",
    "find_tp_group": "tp_groups",
    "get_tp_replica_group": "tp_groups",
    "WorldSizeError": "world_size",
    "get_cc_rank_world_size": "world_size",
}

__all__ = [
    "CCInfo",
    "CCInfoError",
    "ProcessGrid",
    "TpGroup",
    "WorldSizeError",
    "collectives",
    "cores_per_lnc",
    "find_tp_group",
    "get_cc_rank_world_size",
    "get_rank_id_for_core",
    "get_replica_groups",
    "get_tp_replica_group",
    "group_mode",
    "has_matching_replica_groups",
    "iota_form",
    "is_in_replica_group",
    "module_cc_info",
    "num_replicas",
    "participants",
    "read_cc_info",
    "simulator_groups",
    "write_cc_info",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
