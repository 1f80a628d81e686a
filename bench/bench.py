"""`make bench`: how fast, how large, against jaxlib's own parser and printer in the same run.

Times are the best of several runs. Whole processes are started as a shell would; memory is the peak resident size of
such a process.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))
import models

XLA_PROCESS = "import jaxlib._hlo as h, sys; h.hlo_module_from_text(open(sys.argv[1]).read()).to_string()"
CP2AG = [sys.executable, "-m", "hlo_cp2ag"]
console = Console(width=140)


def best(run: Callable[[], object], times: int) -> float:
    found = float("inf")
    for _ in range(times):
        gc.collect()
        start = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - start)
    return found


def process(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def peak_bytes(command: list[str]) -> int:
    """The peak resident size of a process, less that of an empty one of the same kind."""
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=-3, stderr=-3, check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    out = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, check=True)
    return int(out.stdout) * 1024


def small(folder: Path) -> None:
    path = Path(__file__).resolve().parent.parent / "fixtures" / "jax" / "halo_exchange.after_spmd.hlo"
    table = Table(title="a small module, whole process", title_justify="left")
    table.add_column("what")
    table.add_column("ms", justify="right")
    table.add_row("python, click, lark", ms(best(lambda: process([sys.executable, "-c", "import click, lark"]), 10)))
    table.add_row("cp2ag rewrite", ms(best(lambda: process([*CP2AG, "rewrite", str(path)]), 10)))
    table.add_row("cp2ag check", ms(best(lambda: process([*CP2AG, "check", str(path)]), 10)))
    ring = folder / "ring.hlo"
    ring.write_text(models.permute_over(65_536))
    table.add_row(
        "cp2ag rewrite, one permute over 65,536 devices", ms(best(lambda: process([*CP2AG, "rewrite", str(ring)]), 3))
    )
    console.print(table)


def ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}"


def large(folder: Path) -> None:
    """Each module: XLA's parse and print, our rewrite and check, in the process and as a process."""
    import jaxlib._hlo as hlo

    import hlo_cp2ag

    table = Table(title="large modules (ms; a factor is XLA's time divided by ours)", title_justify="left")
    for column in ("module", "MB", "permutes", "XLA parse", "+ print", "XLA process", "rewrite", "factor", "process",
                   "to XLA process", "to parse+print", "check", "of XLA parse", "peak/file rewrite", "check"):  # fmt: skip
        table.add_column(column, justify="right")
    for name, text in modules():
        path = folder / "module.hlo"
        path.write_text(text)
        times = 3 if len(text) > 20_000_000 else 5
        parse = best(lambda text=text: hlo.hlo_module_from_text(text), times)
        module = hlo.hlo_module_from_text(text)
        both = parse + best(module.to_string, times)
        del module

        def rewrite(path: Path = path) -> None:
            data = path.read_bytes().decode()
            result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(data))
            (folder / "out.hlo").write_bytes(result.text.encode())

        gc.disable()
        ours = best(rewrite, times)
        check = best(lambda text=text: hlo_cp2ag.parse(text).check(), times)
        gc.enable()
        xla_process = best(lambda path=path: process([sys.executable, "-c", XLA_PROCESS, str(path)]), times)
        command = [*CP2AG, "rewrite", "-q", str(path), "-o", str(folder / "out.hlo")]
        whole = best(lambda command=command: process(command), times)
        base = peak_bytes([*CP2AG, "--version"])
        table.add_row(
            name, f"{len(text) / 1e6:.1f}", f"{text.count(' collective-permute(')}", ms(parse), ms(both), ms(xla_process),
            ms(ours), f"{both / ours:.1f}x", ms(whole), f"{xla_process / whole:.1f}x", f"{both / whole:.1f}x", ms(check),
            f"{check / parse:.2f}", f"{(peak_bytes(command) - base) / len(text):.1f}",
            f"{(peak_bytes([*CP2AG, 'check', str(path)]) - base) / len(text):.1f}",
        )  # fmt: skip
        console.print(f"[dim]{name} done[/dim]")
    console.print(table)


def modules() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    folder = models.corpus()
    if folder is not None:
        texts = {path.name: path.read_text() for path in sorted(folder.iterdir())}
        found += [(name[:24], text) for name, text in texts.items() if len(text) > 1_000_000]
        for name, text in texts.items():
            if name.startswith(("hlo_llama3_8b", "nv_maxtext", "hlo_mixtral")):
                found.append((name[:20] + " x", models.repeated(text, 40_000_000)))
                if name.startswith("hlo_llama3"):
                    found.append((name[:20] + " 4M", models.repeated(text, 4_000_000)))
    found.append(("synthetic 4M", models.synthetic(4_000_000, permutes=True)))
    found.append(("synthetic 40M", models.synthetic(40_000_000, permutes=True)))
    return found


def executor() -> None:
    """Every JAX program of the corpus on all its devices: XLA compiles and runs it, we parse and run it."""
    from executor import executor_times

    times = executor_times()
    if not times:
        console.print("[dim]the executor: no corpus beside this checkout[/dim]")
        return
    table = Table(title="cp2ag run against XLA (compile + run), all devices", title_justify="left")
    for column in ("modules", "XLA s", "ours s", "slowest of ours against XLA"):
        table.add_column(column, justify="right")
    worst = max(times, key=lambda each: each[2] / each[1])
    table.add_row(
        str(len(times)),
        f"{sum(t for _, t, _ in times):.1f}",
        f"{sum(t for _, _, t in times):.1f}",
        f"{worst[0]}: {worst[2] / worst[1]:.2f}",
    )
    console.print(table)


def proofs(folder: Path) -> None:
    from proofs import proof_times

    table = Table(title="cp2ag verify --no-run: proofs of rewrite's own output", title_justify="left")
    for column in ("module", "sites", "whole process s", "slowest site ms"):
        table.add_column(column, justify="right")
    for name, sites, seconds, slowest in proof_times(folder):
        table.add_row(name, f"{sites:,}", f"{seconds:.2f}", f"{1000 * slowest:.1f}")
    console.print(table)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small(folder)
        large(folder)
        proofs(folder)
    executor()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    console.print(f"[dim]peak of the benchmark itself: {peak / 1024:,.0f} MB[/dim]")


if __name__ == "__main__":
    main()
