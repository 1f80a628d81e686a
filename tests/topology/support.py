"""Small modules around one collective."""

from __future__ import annotations

import hlo_cp2ag
from hlo_cp2ag import HloModule, Instruction

ADD = """
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}
"""


def module(*lines: str, header: str = "", computations: str = "") -> HloModule:
    """A module whose entry has `p = f32[8] parameter(0)` and these lines."""
    body = "\n".join(f"  {line}" for line in lines)
    return hlo_cp2ag.parse(
        f"HloModule m{header}\n{ADD}{computations}\nENTRY e {{\n  p = f32[8]{{0}} parameter(0)\n{body}\n}}\n"
    )


def only(line: str, header: str = "") -> Instruction:
    """The instruction of that one line."""
    return module(line, header=header).entry.instructions[-1]


def reduce(attributes: str, name: str = "r", operand: str = "p") -> str:
    return f"{name} = f32[8]{{0}} all-reduce({operand}), {attributes}{', ' if attributes else ''}to_apply=add"
