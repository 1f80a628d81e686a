"""How long `cp2ag verify --no-run` takes to prove what `cp2ag rewrite` makes, whole process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import models


def _one_shard(devices: int, size: int) -> str:
    """A ring of one-dimensional shards."""
    pairs = ",".join(f"{{{i},{i + 1}}}" for i in range(devices - 1))
    return (
        f"HloModule ring, num_partitions={devices}\n\nENTRY %main (p: f32[{size}]) -> f32[{size}] {{\n"
        f"  %p = f32[{size}]{{0}} parameter(0)\n  ROOT %ring = f32[{size}]{{0}} collective-permute(%p), channel_id=1, "
        f"source_target_pairs={{{pairs}}}\n}}\n"
    )


def cases() -> list[tuple[str, str]]:
    """Names and modules."""
    found = [
        ("8M elements on 4 devices", _one_shard(4, 8_388_608)),
        ("1M elements on 1,024 devices", _one_shard(1024, 1_048_576)),
        ("65,536 devices", models.permute_over(65_536)),
        ("synthetic 4M", models.synthetic(4_000_000, permutes=True)),
    ]
    folder = models.corpus()
    if folder is not None:
        for path in sorted(folder.glob("hlo_llama3_8b*")):
            found.append((path.name[:24], path.read_text()))
            found.append((path.name[:20] + " 4M", models.repeated(path.read_text(), 4_000_000)))
    return found


def proof_times(folder: Path) -> list[tuple[str, int, float, float]]:
    """For each case its name, how many sites it has, the seconds of the whole process, the slowest site in seconds."""
    times = []
    for name, text in cases():
        path = folder / "proof.hlo"
        path.write_text(text)
        start = time.perf_counter()
        command = [sys.executable, "-m", "hlo_cp2ag", "verify", "--no-run", "--report", "-", "-q", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - start
        times.append((name, len(json.loads(done.stdout)["sites"]), seconds, _slowest(text)))
    return times


def _slowest(text: str) -> float:
    import hlo_cp2ag

    module = hlo_cp2ag.parse(text)
    result = hlo_cp2ag.rewrite(module)
    verdict = hlo_cp2ag.verify(module, result.module, run=False, same_constants=True)
    assert verdict.ok
    return max((site.seconds for site in verdict.sites), default=0.0)
