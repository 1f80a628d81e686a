"""`cp2ag verify`."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Literal, cast

import click
from click.core import ParameterSource

from hlo_cp2ag.cli import console, files
from hlo_cp2ag.cli.flags import cost_flags, flag, grid_flags, profile_flags
from hlo_cp2ag.cli.progress import Steps, bar
from hlo_cp2ag.cli.run_setup import memory_size, read_npz, sum_in_one_order
from hlo_cp2ag.ir.module import HloModule
from hlo_cp2ag.ir.source import SourceText
from hlo_cp2ag.text.parser import parse_source

if TYPE_CHECKING:
    from hlo_cp2ag.verify.report import Verdict

_NO = 1
_OF_THE_PASS = (
    *("gate", "non_target", "device_id", "gather_dimension", "sub_byte", "async_", "groups", "share_gathers"),
    *("max_gather_bytes", "simplify", "names", "only"),
)


@click.command(
    "verify",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Examples:
  cp2ag verify model.hlo --num-partitions 8
  cp2ag verify before.hlo after.hlo --engine both --report verdict.json

Exit codes: 0 shown, 1 something failed or is not shown, 2 trouble.""",
)
@click.argument("before_path", metavar="BEFORE")
@click.argument("after_path", metavar="[AFTER]", required=False)
@grid_flags
@profile_flags
@cost_flags
@flag("--names", type=click.Choice(["fresh", "keep"]), default="fresh", show_default=True,
      help="As for rewrite, where there is no AFTER.")  # fmt: skip
@flag("--only", metavar="REGEX", help="As for rewrite, where there is no AFTER.")
@flag("--run/--no-run", "run", default=None,
      help="Run both modules, or do not. Default: where every opcode is known, no constant elided, memory enough.")  # fmt: skip
@flag("--engine", type=click.Choice(["executor", "xla", "both"]), default="executor", show_default=True,
      help="What runs them: numpy, real XLA (needs the extra [xla]), or both.")  # fmt: skip
@flag(
    "--inputs",
    "inputs_path",
    metavar="NPZ",
    help="Arguments of the run, as for cp2ag run. Default: seeded random ones.",
)
@flag("--seed", type=click.IntRange(min=0), default=0, metavar="S", show_default=True, help="Of random arguments.")
@flag("--tolerance", type=click.FloatRange(min=0), metavar="T",
      help="Let floats of the run differ by T * max(1, |x|). Default: bit for bit, payloads of NaNs included.")  # fmt: skip
@flag("--fill-elided", type=click.Choice(["random"]), help="In the run, give constants printed {...} seeded values.")
@flag("--ignore-nan-payload", is_flag=True, help="Accept what is shown except for the payloads of NaNs.")
@flag("--max-memory", callback=memory_size, default="2GiB", metavar="SIZE", show_default=True,
      help="Of the proof of a site, and of the run.")  # fmt: skip
@flag(
    "--max-steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop the run after so many instructions. Default: 2^20, with --run none.",
)
@flag("--time-limit", type=click.FloatRange(min=0, min_open=True), default=120.0, metavar="SECONDS", show_default=True,
      help="For each module on real XLA, which hangs on some.")  # fmt: skip
@flag("--report", "report_path", metavar="FILE", help="Write a JSON report; - is stdout, in place of the table.")
@flag("-q", "--quiet", is_flag=True, help="Nothing on stdout but a report, no warnings on stderr.")
@click.pass_context
def command(
    ctx: click.Context,
    before_path: str,
    after_path: str | None,
    replica_count: int | None,
    num_partitions: int | None,
    secondary_mesh_count: int,
    strict_grid: bool,
    profile: str,
    gate: str | None,
    non_target: str | None,
    device_id: str | None,
    gather_dimension: str | None,
    sub_byte: str | None,
    async_: str | None,
    groups: str,
    share_gathers: bool,
    max_gather_bytes: int | None,
    simplify: bool,
    names: str,
    only: str | None,
    run: bool | None,
    engine: str,
    inputs_path: str | None,
    seed: int,
    tolerance: float | None,
    fill_elided: str | None,
    ignore_nan_payload: bool,
    max_memory: int,
    max_steps: int | None,
    time_limit: float,
    report_path: str | None,
    quiet: bool,
) -> int:
    """Prove that AFTER computes what BEFORE does; without AFTER, that rewrite's own output does.

    Three checks: the graph outside the rewritten sites is the same; each site moves the right data on every device, for
    all inputs; both modules give the same results when run. One of the two may be - (stdin).
    """
    sum_in_one_order()
    _refuse_conflicts(ctx, before_path, after_path, inputs_path, report_path)
    before = _read(before_path)
    same_constants = after_path is None
    warnings: list[str] = []
    if after_path is None:
        from hlo_cp2ag.lowering.collective_permute_to_all_gather import rewrite

        result = rewrite(
            before,
            replica_count=replica_count,
            num_partitions=num_partitions,
            secondary_mesh_count=secondary_mesh_count,
            strict_grid=strict_grid,
            profile=profile,
            gate=gate,
            non_target=non_target,
            device_id=device_id,
            gather_dimension=gather_dimension,
            sub_byte=sub_byte,
            async_=async_,
            groups=groups,
            share_gathers=share_gathers,
            max_gather_bytes=max_gather_bytes,
            simplify=simplify,
            names=names,
            only=only,
        )
        after = result.module
        if result.rewritten or result.left:
            replica_count, num_partitions = result.config.grid.replica_count, result.config.grid.num_partitions
            warnings = [warning.header() for warning in result.warnings]
    else:
        after = _read(after_path)
    from hlo_cp2ag.verify.verification import verify

    steps = Steps()
    with bar(steps, console.is_terminal()):
        verdict = verify(
            before,
            after,
            replica_count,
            num_partitions,
            cast(Literal["xla", "neuron"], profile),
            secondary_mesh_count=secondary_mesh_count,
            strict_grid=strict_grid,
            run=run,
            engine=cast(Literal["executor", "xla", "both"], engine),
            inputs=None if inputs_path is None else read_npz(inputs_path, max_memory),
            seed=seed,
            tolerance=tolerance,
            max_memory=max_memory,
            max_steps=max_steps,
            time_limit=time_limit,
            fill_elided=cast("Literal['random'] | None", fill_elided),
            ignore_nan_payload=ignore_nan_payload,
            same_constants=same_constants,
            progress=steps,
        )
    warnings += [_at_header(before, text) for text in verdict.warnings if not warnings]
    if not quiet:
        for warning in warnings:
            console.say(warning, "warning")
    if report_path is not None:
        report = _report(verdict, before_path, after_path, warnings)
        files.write_bytes(report_path, (json.dumps(report, indent=2) + "\n").encode())
    if report_path != "-" and not quiet:
        from hlo_cp2ag.cli.verdict_table import show

        show(verdict, files.shown(before_path), None if after_path is None else files.shown(after_path))
    return 0 if verdict.ok else _NO


def _read(path: str) -> HloModule:
    data = files.read_bytes(path)
    module = parse_source(SourceText(files.decode(data, path), files.shown(path), 1, data))
    module.check()
    return module


def _at_header(module: HloModule, text: str) -> str:
    start = module.header_span.start if module.header_span is not None else 0
    return module.source.diagnostic(start, text, severity="warning").header()


def _refuse_conflicts(
    ctx: click.Context, before_path: str, after_path: str | None, inputs_path: str | None, report_path: str | None
) -> None:
    if [before_path, after_path, inputs_path].count("-") > 1:
        raise click.UsageError("only one of BEFORE, AFTER and --inputs can be stdin: give the others file names")
    for path in (before_path, after_path, inputs_path):
        if path is None or report_path in (None, "-"):
            continue
        if path == report_path or files.same_file(path, report_path):
            raise click.UsageError(f"--report would overwrite {path}")
    if ctx.params["run"] is False and ctx.get_parameter_source("engine") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--engine says what runs the modules, and --no-run that nothing does")
    tolerance = ctx.params["tolerance"]
    if tolerance is not None and not math.isfinite(tolerance):
        raise click.UsageError(f"--tolerance {tolerance} is no number from 0 on")
    if after_path is not None:
        for name in _OF_THE_PASS:
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                long = "--" + name.rstrip("_").replace("_", "-")
                raise click.UsageError(
                    f"{long} is a flag of the pass, and AFTER is there already: leave one of them out"
                )


def _report(verdict: Verdict, before_path: str, after_path: str | None, warnings: list[str]) -> dict[str, Any]:
    """The verdict for machines. No times: the same modules give the same bytes."""
    from dataclasses import asdict

    from hlo_cp2ag import __version__

    def without_time(value: Any) -> dict[str, Any]:
        return {name: item for name, item in asdict(value).items() if name != "seconds"}

    return {
        "tool": f"cp2ag {__version__}",
        "before": files.shown(before_path),
        "after": None if after_path is None else files.shown(after_path),
        "ok": verdict.ok,
        "configuration": {
            "replica_count": verdict.replica_count,
            "num_partitions": verdict.num_partitions,
            "total": verdict.replica_count * verdict.num_partitions,
            "profile": verdict.profile,
        },
        "untouched": without_time(verdict.untouched),
        "sites": [without_time(site) for site in verdict.sites],
        "run": [without_time(one) for one in verdict.run],
        "warnings": warnings,
    }
