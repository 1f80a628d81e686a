"""cp2ag: rewrite collective-permute to all-gather in textual HLO, prove it, run it.

    module = hlo_cp2ag.parse(text, filename="model.hlo")
    module.check()
    result = hlo_cp2ag.rewrite(module, replica_count=4)
    text = hlo_cp2ag.to_text(result.module)
    verdict = hlo_cp2ag.verify(module, result.module, replica_count=4)

Importing this package is cheap: what is not used is not loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hlo_cp2ag.executor.run import run
    from hlo_cp2ag.ir.module import Computation, HloModule, Instruction
    from hlo_cp2ag.ir.source import Diagnostic, HloError, HloSyntaxError
    from hlo_cp2ag.lowering.collective_permute_to_all_gather import RewriteResult, Site, rewrite
    from hlo_cp2ag.text.parser import parse
    from hlo_cp2ag.text.printer import to_text
    from hlo_cp2ag.verify.report import Verdict
    from hlo_cp2ag.verify.verification import verify

_HOMES = {
    "Computation": "ir.module",
    "HloModule": "ir.module",
    "Instruction": "ir.module",
    "Diagnostic": "ir.source",
    "HloError": "ir.source",
    "HloSyntaxError": "ir.source",
    "RewriteResult": "lowering.collective_permute_to_all_gather",
    "Site": "lowering.collective_permute_to_all_gather",
    "rewrite": "lowering.collective_permute_to_all_gather",
    "run": "executor.run",
    "parse": "text.parser",
    "to_text": "text.printer",
    "Verdict": "verify.report",
    "verify": "verify.verification",
}

__all__ = [
    "Computation",
    "Diagnostic",
    "HloError",
    "HloModule",
    "HloSyntaxError",
    "Instruction",
    "RewriteResult",
    "Site",
    "Verdict",
    "parse",
    "rewrite",
    "run",
    "to_text",
    "verify",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
