"""`cp2ag rewrite`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from hlo_cp2ag.cli import console, files
from hlo_cp2ag.cli.flags import cost_flags, flag, grid_flags, profile_flags
from hlo_cp2ag.ir.source import HloError, SourceText
from hlo_cp2ag.lowering.collective_permute_to_all_gather import RewriteResult, rewrite
from hlo_cp2ag.lowering.core_count import core_count, core_count_log
from hlo_cp2ag.text.parser import parse_source

_NO = 1


@dataclass
class _Run:
    """What one call of the command has gathered."""

    results: list[RewriteResult] = field(default_factory=list)
    parts: list[tuple[str, RewriteResult | None]] = field(default_factory=list)
    """Each part's text, and what became of it; None for one that holds no module."""

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The new text, piece by piece."""
        for part, result in self.parts:
            if result is None:
                yield part.encode()
            else:
                yield from result.pieces()

    @property
    def changed(self) -> bool:
        return any(result.changed for result in self.results)

    @property
    def left(self) -> int:
        return sum(len(result.left) for result in self.results)

    @property
    def rewritten(self) -> int:
        return sum(len(result.rewritten) for result in self.results)


@click.command(
    "rewrite",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Examples:
  cp2ag rewrite model.hlo -o model.ag.hlo --report model.json
  cp2ag rewrite --check --diff --num-partitions 8 model.hlo
""",
)
@click.argument("in_path", metavar="[IN]", default="-")
@click.option(
    "-o", "--output", "out_path", metavar="OUT", default="-", envvar="CP2AG_OUTPUT", help="Where to write; - is stdout."
)
@grid_flags
@flag("--write-config", is_flag=True, help="Add the counts to the header where it lacks them.")
@profile_flags
@cost_flags
@flag("--names", type=click.Choice(["fresh", "keep"]), default="fresh", show_default=True,
      help="fresh: the new instruction has a new name and all uses are edited. keep: it takes the permute's name.")  # fmt: skip
@flag("--only", metavar="REGEX", help="Rewrite only permutes whose name the expression matches somewhere.")
@flag("--require-all", is_flag=True, help="Exit 1 if a permute was left; the output is still written.")
@flag("--check", "check_only", is_flag=True, help="Write nothing; exit 1 if something would change.")
@flag("--verify", "verify", is_flag=True,
      help="Prove each rewrite, and that the rest is the same, before anything is written; exit 1 if that fails.")  # fmt: skip
@flag("--diff", "show_diff", is_flag=True, help="Write a unified diff instead of the module.")
@flag("--report", "report_path", metavar="FILE", help="Write a JSON report; - is stdout if OUT is a file.")
@flag("--split-input-file", is_flag=True, help="IN holds several modules, separated by // ----- lines.")
@flag("--platform-version", default="", metavar="V", help="Neuron's platform version, for the reported core count.")
@flag(
    "--nc-divisor",
    type=click.IntRange(min=1),
    default=1,
    metavar="D",
    help="Neuron's NC divisor, for the reported core count.",
)
@flag(
    "--override-core-count", type=int, default=0, metavar="N", help="Overrides the reported core count on platform 3.0."
)
@flag("-v", "--verbose", is_flag=True, help="Log on stderr what the pass does, in the reference's words.")
@flag("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
def command(
    in_path: str,
    out_path: str,
    replica_count: int | None,
    num_partitions: int | None,
    secondary_mesh_count: int,
    strict_grid: bool,
    write_config: bool,
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
    require_all: bool,
    check_only: bool,
    verify: bool,
    show_diff: bool,
    report_path: str | None,
    split_input_file: bool,
    platform_version: str,
    nc_divisor: int,
    override_core_count: int,
    verbose: bool,
    quiet: bool,
) -> int:
    """Replace each collective-permute of IN by an all-gather over all devices and a dynamic-slice.

    IN and OUT default to - (stdin, stdout). Everything that is not rewritten comes back byte for byte. A permute that is
    left says why, on a line of its own on stderr.
    """
    if report_path == "-" and (show_diff or (out_path == "-" and not check_only)):
        raise click.UsageError("--report - needs stdout for itself: give OUT a file name with -o")
    for other, what in ((in_path, "IN"), (out_path, "OUT")):
        if report_path not in (None, "-") and (report_path == other or files.same_file(report_path, other)):
            raise click.UsageError(f"--report would overwrite {what}")
    log = (lambda line: console.say(line)) if verbose else None
    if log is not None:
        log(core_count_log(platform_version, nc_divisor, override_core_count))
    data = files.read_bytes(in_path)
    text = files.decode(data, in_path)
    run = _Run()
    for part, first_line in files.split_modules(text) if split_input_file else [(text, 1)]:
        if split_input_file and _holds_nothing(part):
            run.parts.append((part, None))
            continue
        module = parse_source(SourceText(part, files.shown(in_path), first_line, data if part is text else None))
        result = rewrite(
            module,
            replica_count=replica_count,
            num_partitions=num_partitions,
            secondary_mesh_count=secondary_mesh_count,
            strict_grid=strict_grid,
            write_config=write_config,
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
            log=log,
        )
        result.core_count = core_count(platform_version, nc_divisor, override_core_count)
        run.results.append(result)
        run.parts.append((part, result))
    if not run.results:
        raise HloError(SourceText(text, files.shown(in_path)).diagnostic(0, "no HLO here: the text is empty"))
    if not quiet:
        for result in run.results:
            for warning in result.warnings:
                console.warning(warning)
    proved = [_is_proved(result, in_path, quiet) for result in run.results] if verify else []
    if not all(proved):
        console.say(f"{files.shown(in_path)}: not written: not everything is proved", "error")
        return _NO
    # The report first: if it cannot be written, OUT is still what it was.
    if report_path is not None:
        from hlo_cp2ag.cli.report import report_json

        out = None if check_only else out_path
        files.write_bytes(report_path, report_json(run.results, in_path, out, platform_version).encode())
    _write(run, data, text, in_path, out_path, check_only, show_diff)
    if not quiet:
        _summarize(run, out_path, check_only)
    return _NO if (check_only and run.changed) or (require_all and run.left) else 0


def _is_proved(result: RewriteResult, in_path: str, quiet: bool) -> bool:
    """Whether checks 1 and 2 of `verify` are shown; says on stderr what is not, and what a proof leans on."""
    from hlo_cp2ag.cli.verdict_table import site_lines
    from hlo_cp2ag.verify.verification import verify

    grid, options = result.config.grid, result.options
    verdict = verify(
        result.source,
        result.module,
        grid.replica_count,
        grid.num_partitions,
        "neuron" if options.profile == "neuron" else "xla",
        run=False,
        same_constants=True,
    )
    name = files.shown(in_path)
    for site in verdict.sites:
        if site.outcome != "shown" or (site.conditions and not quiet):
            for line in site_lines(site, name, None):
                console.say(line, "failed")
    for remark in verdict.untouched.remarks:
        console.say(f"{name}: {verdict.untouched.outcome}: {remark.text}", "failed")
    return verdict.proved


def _holds_nothing(part: str) -> bool:
    """Whether a part of a split file has no HLO in it: blanks and separators only."""
    return not part.removeprefix("// -----").strip()


def _write(run: _Run, data: bytes, text: str, in_path: str, out_path: str, check_only: bool, show_diff: bool) -> None:
    if show_diff:
        from hlo_cp2ag.cli.diff import unified_diff

        diff = unified_diff(text, _all_edits(run), files.shown(in_path))
        if check_only or out_path == "-":
            console.write_diff(diff)
        else:
            files.write_bytes(out_path, diff.encode())
    elif not check_only:
        if not run.changed and files.same_file(in_path, out_path):
            return
        files.write_bytes(out_path, run.pieces() if run.changed else data)


def _all_edits(run: _Run) -> list[tuple[int, int, str]]:
    """The edits of all parts, in offsets of the whole text."""
    edits: list[tuple[int, int, str]] = []
    base = 0
    for part, result in run.parts:
        if result is not None:
            edits += [(base + e.span.start, base + e.span.end, e.text) for e in result.edits]
        base += len(part)
    return edits


def _summarize(run: _Run, out_path: str, check_only: bool) -> None:
    total = run.rewritten + run.left
    if total == 0:
        console.summary("no collective-permute here; nothing changed")
        return
    from hlo_cp2ag.lowering.cost import total_costs

    grid = run.results[0].config
    verb = "would rewrite" if check_only else "rewrote"
    left = f", left {run.left}" if run.left else ""
    where = "" if check_only or out_path == "-" else f" -> {out_path}"
    console.summary(f"{verb} {run.rewritten} of {total} collective-permutes{left}; {grid.describe()}{where}")
    before, after = total_costs(run.results)
    console.summary(
        f"on the wire {_size(before.moved)} -> {_size(after.moved)}, "
        f"peak memory of a permute on a device {_size(before.peak)} -> {_size(after.peak)}"
    )


def _size(count: int) -> str:
    """A number of bytes to three digits, as --max-gather-bytes takes it."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
