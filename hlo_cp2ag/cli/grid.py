"""The grid of a module that a command reads, from the same sources as `rewrite`'s."""

from __future__ import annotations

from typing import cast

from hlo_cp2ag.cli import files
from hlo_cp2ag.ir.module import HloModule
from hlo_cp2ag.ir.source import Diagnostic, SourceText
from hlo_cp2ag.lowering.config import GridConfig, resolve_grid
from hlo_cp2ag.lowering.sites import permutes
from hlo_cp2ag.text.parser import parse_source


def read_module(path: str) -> HloModule:
    """The module in a file, or in standard input for `-`. Raises HloError."""
    data = files.read_bytes(path)
    return parse_source(SourceText(files.decode(data, path), files.shown(path), 1, data))


def module_grid(
    module: HloModule, replica_count: int | None, num_partitions: int | None, secondary: int, strict: bool
) -> GridConfig:
    """The counts, from flags, header or evidence; without permutes too. Raises HloError."""
    found = [
        (permute, cast("tuple[tuple[int, int], ...]", permute.attribute("source_target_pairs", ())))
        for permute in permutes(module)
    ]
    return resolve_grid(module, found, replica_count, num_partitions, secondary, strict, write_config=True)


def grid_warnings(module: HloModule, config: GridConfig) -> list[Diagnostic]:
    """What is not certain about the counts, at the module's header."""
    header = module.header_span.start if module.header_span is not None else 0
    return [module.source.diagnostic(header, text, severity="warning") for text in config.warnings]
