"""`cp2ag ranks`: replica groups, Neuron's envelope of them, ranks of cores. Each subcommand loads what it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click

from hlo_cp2ag.cli import console, files
from hlo_cp2ag.cli.flags import flag, grid_flags
from hlo_cp2ag.ir.module import HloModule
from hlo_cp2ag.ir.source import Diagnostic, HloError, HloSyntaxError

if TYPE_CHECKING:
    from hlo_cp2ag.cli.rank_rows import Collective
    from hlo_cp2ag.lowering.config import GridConfig
    from hlo_cp2ag.topology.cc_info import CCInfo, CCInfoError
    from hlo_cp2ag.topology.group_modes import Profile
    from hlo_cp2ag.topology.process_grid import ProcessGrid
    from hlo_cp2ag.topology.replica_groups import Groups

F = TypeVar("F", bound=Callable[..., Any])

_NO = 1
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _Numbers(click.Command):
    """A command one of whose arguments is a number: `-1` is a wrong one, not an unknown flag."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for before, arg in zip(("", *args), args, strict=False):
            if re.fullmatch(r"-\d+(?:\.\d*)?", arg) and not before.startswith("--"):
                raise click.UsageError(f"a core is an integer from 0 on, not {arg}", ctx)
        return super().parse_args(ctx, args)


@click.group(
    "ranks",
    context_settings=_SETTINGS,
    epilog="""\b
Examples:
  cp2ag ranks groups model.hlo | cut -f3,6
  cp2ag ranks ccinfo model.hlo | cp2ag ranks world-size -

Exit codes: 0 yes, 1 no (world-size refuses what looks like several programs), 2 trouble.""",
)
def command() -> None:
    """Say who is which rank, and who talks to whom: replica groups, Neuron's CCInfo, world size, cores."""


def _json_flag(function: F) -> F:
    return flag("--json", "as_json", is_flag=True, help="Write JSON.")(function)


def _quiet_flag(function: F) -> F:
    return flag("-q", "--quiet", is_flag=True, help="No warnings on stderr.")(function)


def _profile_flag(function: F) -> F:
    return flag("--profile", type=click.Choice(["xla", "neuron"]), default="xla", show_default=True,
                help="neuron: pairs of permutes name flat ranks, whatever their channel.")(function)  # fmt: skip


# ---- groups ----------------------------------------------------------------------------------------------------------


@command.command(
    "groups",
    short_help="Every collective with its groups, in three forms.",
    context_settings=_SETTINGS,
    epilog="""\b
Examples:
  cp2ag ranks groups model.hlo
  cp2ag ranks groups model.hlo | cut -f6 | sort | uniq -c""",
)
@click.argument("in_path", metavar="[IN]", default="-")
@grid_flags
@_profile_flag
@_json_flag
@_quiet_flag
def groups(
    in_path: str,
    replica_count: int | None,
    num_partitions: int | None,
    secondary_mesh_count: int,
    strict_grid: bool,
    profile: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Show every collective of IN with its groups: as a list, as an iota where there is one, as (replica, partition).

    IN defaults to - (stdin). Off a terminal one line a collective, with tabs between file:line:column, name, opcode, mode,
    channel, list, iota and devices; - stands for nothing. List and iota hold the ids as written, devices who really meets,
    empty groups filled in. A permute has pairs.
    """
    module = _read(in_path)
    config, warnings = _grid(module, replica_count, num_partitions, secondary_mesh_count, strict_grid, quiet)
    found = _collectives(module, config, profile)
    from hlo_cp2ag.cli import rank_rows

    grid = config.grid
    if as_json:
        report = {
            **_about(module, in_path, config, profile),
            "collectives": [rank_rows.groups_json(collective, grid) for collective in found],
            "warnings": [warning.header() for warning in warnings],
        }
        _write_json(report)
        return 0
    columns = ("line", "name", "opcode", "mode", "channel", "groups", "iota", "(replica, partition)")
    rows = [rank_rows.groups_fields(collective, grid) for collective in found]
    rank_rows.show(f"{files.shown(in_path)}, {config.describe()}", columns, rows)
    if not found and not quiet:
        console.say(f"{files.shown(in_path)}: note: no collective here")
    return 0


# ---- ccinfo ----------------------------------------------------------------------------------------------------------


@command.command(
    "ccinfo",
    short_help="The CCInfo object of a def.json for a module.",
    context_settings=_SETTINGS,
    epilog="""\b
Examples:
  cp2ag ranks ccinfo model.hlo --rank-world-size 8 -o ccinfo.json
  cp2ag ranks ccinfo model.hlo --rewritten --num-partitions 8""",
)
@click.argument("in_path", metavar="[IN]", default="-")
@click.option(
    "-o", "--output", "out_path", metavar="OUT", default="-", envvar="CP2AG_OUTPUT", help="Where to write; - is stdout."
)
@flag("--flatten", is_flag=True, help="Write device ids, empty groups filled in, whatever the ids in IN name.")
@flag("--rewritten", is_flag=True,
      help='Also that of the module after the pass: {"before": {"CCInfo": ...}, "after": {"CCInfo": ...}}.')  # fmt: skip
@flag("--rank-world-size", type=click.IntRange(min=1), metavar="N", help='What "#rank_world_size" is to say.')
@grid_flags
@flag("--profile", type=click.Choice(["xla", "neuron"]), default="xla", show_default=True,
      help="neuron: pairs of permutes name flat ranks, whatever their channel; also the pass's, for --rewritten.")  # fmt: skip
@flag("--json", "as_json", is_flag=True, help="Write JSON, with --rewritten on a terminal too.")
@_quiet_flag
def ccinfo(
    in_path: str,
    out_path: str,
    flatten: bool,
    rewritten: bool,
    rank_world_size: int | None,
    replica_count: int | None,
    num_partitions: int | None,
    secondary_mesh_count: int,
    strict_grid: bool,
    profile: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write the CCInfo object of a def.json for IN: the distinct geometries of its collectives, and its permutes' pairs.

    IN defaults to - (stdin). The ids are those of IN; ids that are no device ids are refused unless --flatten makes
    device ids of them. The JSON is one line. With --rewritten, a table on a terminal.
    """
    if out_path != "-" and (out_path == in_path or files.same_file(out_path, in_path)):
        raise click.UsageError("--output would overwrite IN")
    module = _read(in_path)
    config, _ = _grid(module, replica_count, num_partitions, secondary_mesh_count, strict_grid, quiet)
    from hlo_cp2ag.topology.cc_info import module_cc_info

    grid, ranks = config.grid, cast("Profile", profile)

    def info_of(some: HloModule) -> CCInfo:
        _collectives(some, config, profile)
        return module_cc_info(
            some,
            grid.replica_count,
            grid.num_partitions,
            flatten=flatten,
            rank_world_size=rank_world_size,
            profile=ranks,
        )

    before = info_of(module)
    if not quiet and not flatten:
        _warn_of_empty_groups(module)
    if not rewritten:
        files.write_bytes(out_path, (json.dumps(before.to_json()) + "\n").encode())
        return 0
    from hlo_cp2ag.lowering.collective_permute_to_all_gather import rewrite

    result = rewrite(module, replica_count=grid.replica_count, num_partitions=grid.num_partitions, profile=profile)
    if not quiet:
        for warning in result.warnings:
            console.warning(warning)
    after = info_of(result.module)
    if out_path == "-" and not as_json and _on_terminal():
        rows: list[tuple[str, ...]] = [
            (key, _cell(before.to_json(), key), _cell(after.to_json(), key))
            for key in ("replica_groups", "src_target_pairs", "#rank_world_size")
        ]
        console.table(f"CCInfo of {files.shown(in_path)}", ("key", "before", "after the pass"), rows, {})
    else:
        both = {"before": before.to_json(), "after": after.to_json()}
        files.write_bytes(out_path, (json.dumps(both) + "\n").encode())
    return 0


def _warn_of_empty_groups(module: HloModule) -> None:
    from hlo_cp2ag.topology.collective_ops import collectives, is_permute
    from hlo_cp2ag.topology.replica_groups import group_list

    message = "no groups are written as an empty topology, which world-size refuses; --flatten fills in all devices"
    for found in collectives(module):
        if not is_permute(found) and not group_list(found):
            console.warning(module.source.diagnostic(found.span.start, message, severity="warning"))
            return


def _cell(info: dict[str, Any], key: str) -> str:
    return json.dumps(info["CCInfo"][key]) if key in info["CCInfo"] else "-"


# ---- world-size ------------------------------------------------------------------------------------------------------


@command.command(
    "world-size",
    short_help="The world size that a def.json says.",
    context_settings=_SETTINGS,
    epilog="""\b
Examples:
  cp2ag ranks world-size def.json
  cp2ag ranks ccinfo model.hlo | cp2ag ranks world-size -

Exit codes: 0 a number, 1 refused: topologies that are empty or disagree, 2 trouble.""",
)
@click.argument("in_path", metavar="[DEF_JSON]", default="-")
@_json_flag
def world_size(in_path: str, as_json: bool) -> int:
    """Write the world size that a DEF_JSON says, as Neuron's reader finds it.

    DEF_JSON defaults to - (stdin). It is the largest of the topologies' inner size, the span of the pairs,
    "#rank_world_size", and 1.
    """
    from hlo_cp2ag.cli.json_file import place, read_json
    from hlo_cp2ag.topology.cc_info import CCInfoError, read_cc_info
    from hlo_cp2ag.topology.world_size import WorldSizeError, inner_size, pair_span
    from hlo_cp2ag.topology.world_size import world_size as size_of

    source, value = read_json(in_path)
    try:
        info = read_cc_info(value)
    except CCInfoError as error:
        _refuse_json(source.text, in_path, error)
    refusal = None
    try:
        size: int | None = size_of(info)
    except WorldSizeError as error:
        size, refusal = None, str(error)
        console.error(source.error(place(source.text, error.path), refusal))
    if as_json:
        report: dict[str, Any] = {
            "world_size": size,
            "inner_sizes": [inner_size(topology) for topology in info.replica_groups],
            "pair_span": pair_span(info),
            "#rank_world_size": info.rank_world_size,
        }
        _write_json(report if refusal is None else {**report, "refusal": refusal})
    elif size is not None:
        files.write_bytes("-", f"{size}\n".encode())
    return 0 if refusal is None else _NO


def _refuse_json(text: str, path: str, error: CCInfoError) -> NoReturn:
    from hlo_cp2ag.cli.json_file import parse_json, place

    source, _ = parse_json(text, path)
    raise source.error(place(text, error.path), error.message, hint=error.hint) from None


# ---- core ------------------------------------------------------------------------------------------------------------


@command.command(
    "core",
    short_help="The rank of a physical core, and its peers in each collective.",
    cls=_Numbers,
    context_settings=_SETTINGS,
    epilog="""\b
Examples:
  cp2ag ranks core 9 --lnc 2
  cp2ag ranks core 9 --platform trn2 model.hlo""",
)
@click.argument("core_id", metavar="CORE")
@click.argument("in_path", metavar="[IN]", required=False)
@flag("--lnc", type=click.IntRange(min=1), metavar="N", help="Physical cores a rank. Default: by --platform, else 1.")
@flag("--platform", default="", metavar="NAME", help="2 physical cores a rank on trn2, 1 on every other.")
@grid_flags
@_profile_flag
@_json_flag
@_quiet_flag
def core(
    core_id: str,
    in_path: str | None,
    lnc: int | None,
    platform: str,
    replica_count: int | None,
    num_partitions: int | None,
    secondary_mesh_count: int,
    strict_grid: bool,
    profile: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write the rank of the physical core CORE, and for each collective of IN its group, position and peers.

    The first line is the rank. Off a terminal one line a collective follows, with tabs between file:line:column, name,
    opcode, mode, channel, group, position, peers and members; - stands for nothing. A permute has no group: its last field
    says who sends to whom. IN may be a def.json too; its one topology counts, more than one is refused (exit 1).
    """
    from hlo_cp2ag.topology.lnc import cores_per_lnc, get_rank_id_for_core

    if not re.fullmatch(r"[0-9]{1,18}", core_id):
        raise click.UsageError(f"a core is an integer from 0 on, not {core_id}")
    per_rank = lnc if lnc is not None else cores_per_lnc(platform)
    rank = get_rank_id_for_core(int(core_id), per_rank)
    about: dict[str, Any] = {"core": int(core_id), "cores_per_lnc": per_rank, "rank": rank}
    if in_path is None:
        if as_json:
            _write_json(about)
        else:
            files.write_bytes("-", f"{rank}\n".encode())
        return 0
    text = files.decode(files.read_bytes(in_path), in_path)
    from hlo_cp2ag.cli import rank_rows

    if text.lstrip().startswith("{"):
        return _core_in_envelope(text, in_path, rank, about, as_json)
    module = _parse(text, in_path)
    config, warnings = _grid(module, replica_count, num_partitions, secondary_mesh_count, strict_grid, quiet)
    found = _collectives(module, config, profile)
    if rank >= config.grid.device_count:
        raise module.header_error(
            f"core {core_id} is rank {rank}, which is not among the {config.grid.device_count} of the grid {config.grid}",
            _hint(config),
        )
    replica, partition = config.grid.replica_and_partition(rank)
    if as_json:
        report = {
            **about,
            "replica": replica,
            "partition": partition,
            **_about(module, in_path, config, profile),
            "collectives": [rank_rows.rank_json(collective, rank) for collective in found],
            "warnings": [warning.header() for warning in warnings],
        }
        _write_json(report)
        return 0
    columns = ("line", "name", "opcode", "mode", "channel", "group", "position", "peers", "members or pairs")
    rows = [rank_rows.rank_fields(collective, rank) for collective in found]
    title = f"rank {rank} = replica {replica}, partition {partition}, in {files.shown(in_path)}"
    rank_rows.show(title, columns, rows, str(rank))
    return 0


def _core_in_envelope(text: str, path: str, rank: int, about: dict[str, Any], as_json: bool) -> int:
    """The rank in the one topology of a def.json."""
    from hlo_cp2ag.cli import rank_rows
    from hlo_cp2ag.cli.json_file import parse_json, place
    from hlo_cp2ag.topology.cc_info import CCInfoError, read_cc_info
    from hlo_cp2ag.topology.lnc import is_in_replica_group, simulator_groups

    source, value = parse_json(text, path)
    try:
        info = read_cc_info(value)
    except CCInfoError as error:
        _refuse_json(text, path, error)
    where = place(text, ("CCInfo", "replica_groups"))
    try:
        listed = simulator_groups(info.replica_groups)
    except HloError as error:
        console.error(source.error(where, str(error)))
        return _NO
    groups: Groups = tuple(map(tuple, listed))
    if as_json:
        is_in = is_in_replica_group(rank, groups)
        _write_json({**about, "is_in_replica_group": is_in, **rank_rows.group_json(rank, groups)})
        return 0
    position = source.position(where)
    place_text = f"{source.filename}:{position.line}:{position.column}"
    rows = [(place_text, "topology 0", *(rank_rows.NONE,) * 3, *rank_rows.group_fields(rank, groups))] if groups else []
    columns = ("line", "name", "opcode", "mode", "channel", "group", "position", "peers", "members")
    rank_rows.show(f"rank {rank} in {files.shown(path)}", columns, rows, str(rank))
    return 0


# ---- tp --------------------------------------------------------------------------------------------------------------


@command.command(
    "tp",
    short_help="The tensor-parallel group and where it comes from.",
    context_settings=_SETTINGS,
    epilog="""\b
Examples:
  cp2ag ranks tp model.hlo
  cp2ag ranks tp model.hlo --scan body --opcodes all-reduce --json""",
)
@click.argument("in_path", metavar="[IN]", default="-")
@flag("--scan", "names", multiple=True, metavar="NAME",
      help="Only computations of this name, or called by an attribute of this name (body, to_apply); may be repeated, "
      "and gives one collective a computation. Default: one collective of the module.")  # fmt: skip
@flag("--opcodes", metavar="LIST", default="reduce-scatter,all-gather,all-reduce", show_default=True,
      help="What to look for; an opcode is looked for only where there is none of those before it.")  # fmt: skip
@_json_flag
@_quiet_flag
def tp(in_path: str, names: tuple[str, ...], opcodes: str, as_json: bool, quiet: bool) -> int:
    """Show the tensor-parallel group of IN and the collective that it comes from: the first one in post-order.

    IN defaults to - (stdin). Off a terminal one line a collective, with tabs between file:line:column, name, opcode,
    computation, list and iota. The ids are those of IN. Nothing found: nothing is written, and the exit code is 0.
    """
    from hlo_cp2ag.cli import rank_rows
    from hlo_cp2ag.ir.device_groups import IotaReplicaGroups
    from hlo_cp2ag.ir.find import CALLING
    from hlo_cp2ag.topology.collective_ops import GROUPED
    from hlo_cp2ag.topology.iota_lists import iota_form
    from hlo_cp2ag.topology.replica_groups import group_list
    from hlo_cp2ag.topology.tp_groups import find_tp_group, named_computations

    wanted = tuple(opcode.strip() for opcode in opcodes.split(","))
    for opcode in wanted:
        if opcode not in GROUPED:
            raise click.UsageError(f"--opcodes: {opcode!r} has no replica groups; these have: {', '.join(GROUPED)}")
    module = _read(in_path)
    for name in names:
        # A module without a loop has no body: that is an answer, and only a name that means nothing is a mistake.
        if name not in CALLING and not named_computations(module, name):
            hint = "names of computations, or attributes that call them: " + ", ".join(
                computation.name for computation in module.computations if computation.name
            )
            raise module.header_error(
                f"--scan {name}: no computation and no calling attribute has this name", hint[:200]
            )
    found = find_tp_group(module, names or None, opcodes=wanted)
    _check(found.collectives, _stated_grid(module))

    def iota(groups: Groups) -> IotaReplicaGroups | None:
        return iota_form(groups) if groups else None

    if as_json:
        form = iota(found.replica_groups)
        listed = []
        for instruction in found.collectives:
            ids = group_list(instruction)
            own = iota(ids)
            listed.append(
                {
                    **rank_rows.place_json(instruction),
                    "replica_groups": [list(group) for group in ids],
                    "iota": None if own is None else own.to_text(),
                }
            )
        report = {
            "tool": _tool(),
            "input": files.shown(in_path),
            "replica_groups": [list(group) for group in found.replica_groups],
            "iota": None if form is None else form.to_text(),
            "collectives": listed,
        }
        _write_json(report)
        return 0
    rows = []
    for instruction in found.collectives:
        ids = group_list(instruction)
        own = iota(ids)
        rows.append(
            (
                *rank_rows.place_fields(instruction),
                instruction.computation.name or rank_rows.NONE,
                rank_rows.list_text(ids),
                rank_rows.NONE if own is None else own.to_text(),
            )
        )
    columns = ("line", "name", "opcode", "computation", "groups", "iota")
    rank_rows.show(f"tensor-parallel group of {files.shown(in_path)}", columns, rows)
    if not rows and not quiet:
        console.say(f"{files.shown(in_path)}: note: no {' or '.join(wanted)} here")
    return 0


# ---- cores -----------------------------------------------------------------------------------------------------------


@command.command(
    "cores",
    short_help="The core count that Neuron's pass computes.",
    context_settings=_SETTINGS,
    epilog="""\b
Examples:
  cp2ag ranks cores --platform-version 3.0 --nc-divisor 2
  cp2ag ranks cores --platform-version 3.0 --override-core-count 16 --json""",
)
@flag("--platform-version", required=True, metavar="V", help="Neuron's platform version.")
@flag(
    "--nc-divisor", type=click.IntRange(min=1), default=1, metavar="D", show_default=True, help="Neuron's NC divisor."
)
@flag("--override-core-count", type=int, default=0, metavar="N", help="Overrides the count on platform 3.0 if above 0.")
@_json_flag
def cores(platform_version: str, nc_divisor: int, override_core_count: int, as_json: bool) -> int:
    """Write the core count that Neuron's pass computes.

    On platform 3.0 the override if there is one, else 128 // D; on every other platform 32.
    """
    from hlo_cp2ag.lowering.core_count import core_count, core_count_log

    count = core_count(platform_version, nc_divisor, override_core_count)
    if as_json:
        report = {
            "platform_version": platform_version,
            "nc_divisor": nc_divisor,
            "override_core_count": override_core_count,
            "core_count": count,
        }
        _write_json(report)
    else:
        files.write_bytes("-", f"{count}\n".encode())
        console.summary(core_count_log(platform_version, nc_divisor, override_core_count))
    return 0


# ---- what they share -------------------------------------------------------------------------------------------------


def _read(path: str) -> HloModule:
    from hlo_cp2ag.cli.grid import read_module

    return read_module(path)


def _parse(text: str, path: str) -> HloModule:
    from hlo_cp2ag.ir.source import SourceText
    from hlo_cp2ag.text.parser import parse_source

    return parse_source(SourceText(text, files.shown(path)))


def _grid(
    module: HloModule, replica_count: int | None, num_partitions: int | None, secondary: int, strict: bool, quiet: bool
) -> tuple[GridConfig, list[Diagnostic]]:
    """The grid, and the warnings about it, which are said."""
    from hlo_cp2ag.cli.grid import grid_warnings, module_grid

    config = module_grid(module, replica_count, num_partitions, secondary, strict)
    warnings = grid_warnings(module, config)
    if not quiet:
        for warning in warnings:
            console.warning(warning)
    return config, warnings


def _collectives(module: HloModule, config: GridConfig, profile: str) -> list[Collective]:
    """The collectives on the grid; what is outside it is said with the flags that set it."""
    from hlo_cp2ag.cli.rank_rows import read_collective
    from hlo_cp2ag.topology.collective_ops import collectives

    try:
        return [read_collective(found, config.grid, cast("Profile", profile)) for found in collectives(module)]
    except HloSyntaxError as error:
        first = error.diagnostics[0]
        if isinstance(first, Diagnostic) and not first.hint and "of the grid" in first.message:
            import dataclasses

            raise HloSyntaxError(dataclasses.replace(first, hint=_hint(config))) from None
        raise


def _stated_grid(module: HloModule) -> ProcessGrid | None:
    """The grid of a module whose header says one; a group needs no other."""
    from hlo_cp2ag.cli.grid import module_grid

    if all(module.header_attribute(name) is None for name in ("replica_count", "num_partitions")):
        return None
    return module_grid(module, None, None, 0, False).grid


def _check(found: tuple[Any, ...], grid: ProcessGrid | None) -> None:
    from hlo_cp2ag.text.check_touched import check_touched
    from hlo_cp2ag.topology.group_modes import check_groups, group_mode
    from hlo_cp2ag.topology.replica_groups import group_list

    for instruction in found:
        check_touched(instruction)
        check_groups(instruction, group_list(instruction), group_mode(instruction), grid)


def _hint(config: GridConfig) -> str:
    return f"the grid is {config.describe()}; --replica-count and --num-partitions set it"


def _about(module: HloModule, path: str, config: GridConfig, profile: str) -> dict[str, Any]:
    return {
        "tool": _tool(),
        "input": files.shown(path),
        "name": module.name,
        "configuration": {
            "replica_count": {"value": config.replica_count.value, "source": config.replica_count.source},
            "num_partitions": {"value": config.num_partitions.value, "source": config.num_partitions.source},
            "total": config.grid.device_count,
            "is_lower_bound": config.is_lower_bound,
            "profile": profile,
        },
    }


def _tool() -> str:
    from hlo_cp2ag import __version__

    return f"cp2ag {__version__}"


def _write_json(report: dict[str, Any]) -> None:
    from hlo_cp2ag.cli.json_file import to_json

    files.write_bytes("-", to_json(report).encode())


def _on_terminal() -> bool:
    import sys

    return console.is_terminal(sys.stdout)
