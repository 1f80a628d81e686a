"""`make demo`: rewrites a module that came out of JAX and shows what changed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
FIXTURE = Path("fixtures/jax/halo_exchange.after_spmd.hlo")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        out = Path(folder) / "out.hlo"
        command = [sys.executable, "-m", "hlo_cp2ag", "rewrite", str(FIXTURE)]
        print(f"$ cp2ag rewrite --diff {FIXTURE}", flush=True)
        subprocess.run([*command, "--diff"], cwd=TOP, check=True)
        print(f"\n$ cp2ag rewrite {FIXTURE} -o out.hlo --report report.json", flush=True)
        subprocess.run([*command, "-o", str(out), "--report", str(report)], cwd=TOP, check=True)
        print(_summary(report))
        print("\n$ cp2ag check out.hlo", flush=True)
        subprocess.run([sys.executable, "-m", "hlo_cp2ag", "check", str(out)], cwd=TOP, check=True)
        print("(nothing: XLA's parser would take it)")
        print(f"\n$ cp2ag verify {FIXTURE} out.hlo", flush=True)
        verify = [sys.executable, "-m", "hlo_cp2ag", "verify", str(FIXTURE), str(out)]
        subprocess.run(verify, cwd=TOP, check=True)
    return 0


def _summary(path: Path) -> str:
    import json

    report = json.loads(path.read_text())
    module = report["modules"][0]
    counts = module["summary"]
    grid = module["configuration"]
    lines = [
        f"rewrote {counts['rewritten']} of {counts['permutes']} collective-permutes on {grid['total']} devices "
        f"(replica_count {grid['replica_count']['value']} from {grid['replica_count']['source']}, "
        f"num_partitions {grid['num_partitions']['value']} from {grid['num_partitions']['source']})"
    ]
    for site in module["permutes"]:
        moved = site["bytes"]
        lines.append(
            f"  line {site['line']}: {site['name']} -> {site['names_created'][-1]}, bytes on the wire "
            f"{moved['before']['moved']:,} -> {moved['after']['moved']:,}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
