"""Big modules for the benchmark: a model's computations repeated under new names."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"%([\w.\-]+)")
_COMPUTATION = re.compile(r"(?m)^(?=(?:ENTRY )?%[\w.\-]+ \()")


def corpus() -> Path | None:
    """The folder with real models beside the checkout, if it is there."""
    folder = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus" / "models"
    return folder if folder.is_dir() else None


def repeated(text: str, size: int) -> str:
    """The module with all computations but ENTRY repeated under new names until it has about `size` bytes."""
    head, *computations = _COMPUTATION.split(text)
    others = [each for each in computations if not each.startswith("ENTRY")]
    entry = [each for each in computations if each.startswith("ENTRY")]
    once = "".join(others)
    copies = max(1, round((size - len(text)) / max(len(once), 1)) + 1)
    pieces = [head, once]
    for number in range(1, copies):
        suffix = f".c{number}"
        pieces.append(_NAME.sub(lambda match, suffix=suffix: "%" + match.group(1) + suffix, once))
    return "".join([*pieces, *entry])


def permute_over(devices: int) -> str:
    """A ring over many devices in one permute."""
    pairs = ",".join(f"{{{i},{(i + 1) % devices}}}" for i in range(devices))
    return (
        f"HloModule ring, num_partitions={devices}\n\n"
        "ENTRY %main (p: f32[2,3]) -> f32[2,3] {\n"
        "  %p = f32[2,3]{1,0} parameter(0)\n"
        "  ROOT %ring = f32[2,3]{1,0} collective-permute(%p), channel_id=1, "
        f"source_target_pairs={{{pairs}}}\n}}\n"
    )


def synthetic(size: int, permutes: bool) -> str:
    """A module of this project's own making, for machines without the corpus: loops of elementwise math and permutes."""
    pieces = ["HloModule synthetic, num_partitions=8\n\n"]
    count = 0
    written = 0
    while written < size:
        lines = [f"%step.{count} (p.{count}: f32[128,256]) -> f32[128,256] {{"]
        lines.append(f"  %p.{count} = f32[128,256]{{1,0}} parameter(0)")
        last = f"%p.{count}"
        for i in range(40):
            name = f"%add.{count}.{i}"
            place = f'metadata={{op_name="jit(step)/layer_{count}/add" source_file="model.py" source_line={i + 10}}}'
            lines.append(f"  {name} = f32[128,256]{{1,0}} add({last}, {last}), {place}")
            last = name
        if permutes:
            ring = ",".join(f"{{{i},{(i + 1) % 8}}}" for i in range(8))
            name = f"%ppermute.{count}"
            lines.append(
                f"  {name} = f32[128,256]{{1,0}} collective-permute({last}), channel_id=1, source_target_pairs={{{ring}}}"
            )
            last = name
        lines.append(f"  ROOT %tanh.{count} = f32[128,256]{{1,0}} tanh({last})\n}}\n\n")
        pieces.append("\n".join(lines))
        written += len(pieces[-1])
        count += 1
    pieces.append("ENTRY %main (p: f32[128,256]) -> f32[128,256] {\n  %p = f32[128,256]{1,0} parameter(0)\n")
    last = "%p"
    for i in range(count):
        root = "ROOT " if i == count - 1 else ""
        pieces.append(f"  {root}%call.{i} = f32[128,256]{{1,0}} call({last}), to_apply=%step.{i}\n")
        last = f"%call.{i}"
    pieces.append("}\n")
    return "".join(pieces)
