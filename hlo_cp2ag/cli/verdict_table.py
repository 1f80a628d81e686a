"""How a verdict is shown: a table on a terminal, plain lines `file:line:column: outcome: what` everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from hlo_cp2ag.cli import console, files
from hlo_cp2ag.verify.report import Place, SiteVerdict, Verdict

_MOST_PAIRS = 3
_STYLES = {"shown": "green", "failed": "bold red", "not shown": "yellow"}


def show(verdict: Verdict, before: str, after: str | None) -> None:
    """The verdict on stdout; `after` is None where rewrite made the second module."""
    if not console.is_terminal(sys.stdout):
        files.write_bytes("-", "".join(line + "\n" for line in lines(verdict, before, after)).encode())
        return
    devices = f"{verdict.replica_count} x {verdict.num_partitions} devices"
    console.table(
        f"{before} -> {after or 'its rewrite'}, {devices}, profile {verdict.profile}",
        ("what", "computation", "line", "pairs", "verdict", "time"),
        list(_rows(verdict)),
        _STYLES,
    )
    details = "".join(line + "\n" for line in _details(verdict, before, after))
    if details:
        files.write_bytes("-", details.encode())


def _details(verdict: Verdict, before: str, after: str | None) -> Iterator[str]:
    """What does not fit into a table."""
    for site in verdict.sites:
        if site.reason or site.conditions:
            yield from site_lines(site, before, after)
    if verdict.untouched.remarks:
        yield from _untouched_lines(verdict, before, after)
    yield from (line for run, line in zip(verdict.run, _run_lines(verdict, before), strict=True) if run.reason)


def lines(verdict: Verdict, before: str, after: str | None) -> Iterator[str]:
    """The verdict as lines; what a site leans on, and a counterexample, stand below it."""
    for site in verdict.sites:
        yield from site_lines(site, before, after)
    yield from _untouched_lines(verdict, before, after)
    yield from _run_lines(verdict, before)
    if not verdict.run:
        yield f"{before}: not run"


def _untouched_lines(verdict: Verdict, before: str, after: str | None) -> Iterator[str]:
    untouched = verdict.untouched
    if untouched.outcome == "shown":
        yield f"{before}: shown: everything else is the same"
    for remark in untouched.remarks:
        if remark.before is not None:
            where = f"{before}:{remark.before.line}:{remark.before.column}"
        elif remark.after is not None:
            where = _after(remark.after, after)
        else:
            where = before
        yield f"{where}: {untouched.outcome}: {remark.text}"


def _run_lines(verdict: Verdict, before: str) -> Iterator[str]:
    for run in verdict.run:
        name = {"executor": "in the executor", "xla": "on XLA"}[run.engine]
        if run.verdict == "not shown" and not verdict.run_required:
            yield f"{before}: not run {name}: {run.reason}"
            continue
        text = f"{before}: {run.verdict}: both modules give the same results when run {name}"
        yield text + (f": {run.reason}" if run.reason else "")


def site_lines(site: SiteVerdict, before: str, after: str | None) -> Iterator[str]:
    """One site's verdict as lines."""
    new = "nothing" if site.after is None else f"{site.after.opcode} {site.after.name} ({_after(site.after, after)})"
    pairs = f" {{{_pairs(site)}}}" if site.pairs else ""
    text = f"{site.before.opcode} {site.before.name}{pairs} -> {new}"
    yield f"{before}:{site.before.line}:{site.before.column}: {site.outcome}: {text}" + (
        f": {site.reason}" if site.reason else ""
    )
    for condition in site.conditions:
        yield f"  provided {condition}"
    example = site.counterexample
    if example is not None:
        at = f"[{','.join(map(str, example.index))}]"
        yield f"  device {example.device} at {at}: should be {example.expected}, is {example.got}"
        if site.after is not None:
            yield f"  look at {site.after.opcode} {site.after.name}, {_after(site.after, after)}"


def _after(place: Place, after: str | None) -> str:
    return f"line {place.line} of the rewrite" if after is None else f"{after}:{place.line}:{place.column}"


def _rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for site in verdict.sites:
        place = site.before
        name = place.name if site.after is None else f"{place.name} -> {site.after.name}"
        outcome = site.outcome + (", provided" if site.conditions else "")
        yield name, place.computation, str(place.line), _pairs(site), outcome, _time(site.seconds)
    yield "everything else", "", "", "", verdict.untouched.outcome, ""
    for run in verdict.run:
        outcome = "not run" if run.verdict == "not shown" and not verdict.run_required else run.verdict
        yield f"run: {run.engine}", "", "", "", outcome, _time(run.seconds)


def _pairs(site: SiteVerdict) -> str:
    if site.pairs is None:
        return ""
    more = ", ..." if len(site.pairs) > _MOST_PAIRS else ""
    return ", ".join(f"{s}>{t}" for s, t in site.pairs[:_MOST_PAIRS]) + more


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
