"""The JSON report of a rewrite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hlo_cp2ag import __version__
from hlo_cp2ag.cli.files import shown
from hlo_cp2ag.lowering.collective_permute_to_all_gather import RewriteResult, Site
from hlo_cp2ag.lowering.cost import Cost, cost_after, cost_before, is_known, total_costs
from hlo_cp2ag.lowering.options import LoweringOptions


def report_json(results: Sequence[RewriteResult], in_path: str, out_path: str | None, platform_version: str) -> str:
    """The report as text, two blanks of indentation, keys in a fixed order, a final newline.

    `out_path` is None where nothing is written.
    """
    report = {
        "tool": f"cp2ag {__version__}",
        "input": shown(in_path),
        "output": "<stdout>" if out_path == "-" else out_path,
        "changed": any(result.changed for result in results),
        "modules": [_module(result, platform_version) for result in results],
    }
    return json.dumps(report, indent=2) + "\n"


def _module(result: RewriteResult, platform_version: str) -> dict[str, Any]:
    config, options = result.config, result.options
    return {
        "name": result.source.name,
        "changed": result.changed,
        "configuration": {
            "replica_count": {"value": config.replica_count.value, "source": config.replica_count.source},
            "num_partitions": {"value": config.num_partitions.value, "source": config.num_partitions.source},
            "total": config.grid.device_count,
            "is_lower_bound": config.is_lower_bound,
            "profile": options.profile,
            **{
                name.rstrip("_"): _option(options, name)
                for name in ("gate", "non_target", "device_id", "gather_dimension", "sub_byte", "async_")
            },
            "groups": options.groups,
            "share_gathers": options.share_gathers,
            "max_gather_bytes": options.max_gather_bytes,
            "simplify": options.simplify,
            "names": options.names,
            "only": options.only,
            "platform_version": platform_version,
            "core_count": result.core_count,
        },
        "summary": {
            "permutes": len(result.sites),
            "rewritten": len(result.rewritten),
            "left": len(result.left),
            "bytes": _total(result),
        },
        "permutes": [_site(site, result) for site in result.sites],
        "warnings": [warning.header() for warning in result.warnings],
    }


def _option(options: LoweringOptions, name: str) -> dict[str, str]:
    return {"value": getattr(options, name), "source": "flag" if name in options.given else "profile"}


def _site(site: Site, result: RewriteResult) -> dict[str, Any]:
    permute = site.permute
    rewritten = site.action == "rewritten"
    return {
        "name": permute.name,
        "opcode": permute.opcode,
        "computation": permute.computation.name,
        "line": site.position.line,
        "column": site.position.column,
        "pairs": [list(pair) for pair in site.pairs],
        "pairs_name": site.axis + "s",
        "gate_predicate": site.gate_predicate,
        "action": site.action,
        "reason": site.reason,
        "excluded_by_flag": site.excluded,
        "names_created": list(site.names_created),
        "channel_ids_created": list(site.channel_ids),
        "gather_dimensions": list(site.gather_dimensions) if rewritten else [],
        "attributes_dropped": list(site.attributes_dropped),
        "needs_all_devices": site.needs_all_devices,
        "groups": len(site.groups) if rewritten else 0,
        "simplified_to": site.simplified if rewritten else "",
        "shares_gather_of": site.shared_with if rewritten else "",
        "bytes": _bytes(site, result) if is_known(site) else None,
    }


def _bytes(site: Site, result: RewriteResult) -> dict[str, Any]:
    """Bytes of a permute and of what stands for it, by `hlo_cp2ag.lowering.cost`."""
    return {
        "shard": site.shard_bytes,
        "before": _cost(cost_before(site, result)),
        "after": _cost(cost_after(site, result)),
    }


def _cost(cost: Cost) -> dict[str, int]:
    return {"moved": cost.moved, "gathered_per_device": cost.gathered, "peak_per_device": cost.peak}


def _total(result: RewriteResult) -> dict[str, Any]:
    before, after = total_costs([result])
    return {"before": _cost(before), "after": _cost(after)}
