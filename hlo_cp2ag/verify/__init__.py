"""Proves rewrites: the rest untouched, each site moving the right data, both modules agreeing when run.

`hlo_cp2ag.verify` is a function and this room at once: Python puts a loaded room where the function stood, so the room
can be called as well.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlo_cp2ag.verify.report import Verdict
    from hlo_cp2ag.verify.verification import verify

__all__ = ["Verdict", "verify"]


class _Room(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`verification.verify`."""
        from hlo_cp2ag.verify.verification import verify

        return verify(*args, **kwargs)


def __getattr__(name: str) -> object:
    if name == "verify":
        from hlo_cp2ag.verify.verification import verify

        return verify
    if name == "Verdict":
        from hlo_cp2ag.verify.report import Verdict

        return Verdict
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Room
