"""The table of all opcodes in docs/opcodes.md: `python -m hlo_cp2ag.executor.opcode_table` prints it.

What is supported is what the registry has; the words are those of the ops' docstrings.
"""

from __future__ import annotations

from hlo_cp2ag.executor.ops.custom_call import MARKERS
from hlo_cp2ag.executor.ops.lapack import ROUTINES
from hlo_cp2ag.executor.registry import find_op
from hlo_cp2ag.text.opcodes import ASYNC_SUFFIXES, BASE_OPCODES

_LIMITS = {
    "custom-call": "targets listed below, and what `--custom-call NAME=module:function` supplies; others are errors "
    "that name the target",
    "infeed": "from the file of `--infeed`",
    "outfeed": "to the file of `--outfeed`",
    "send": "to a recv of the same module; transfers to the host are refused",
    "recv": "from a send of the same module; transfers from the host are refused",
    "rng": "seeded by `--seed`: shape and distribution are XLA's, the numbers are not",
    "rng-bit-generator": "ThreeFry and Philox, bit for bit; rng_default is Philox, as on XLA's CPU",
    "stochastic-convert": "to signed integers; XLA has no other",
    "set-dimension-size": "sizes go with elementwise ops, broadcast, transpose, reduce, dot, reshapes by dimensions of "
    "size 1, tuples and calls; other ops along such a dimension are errors",
    "topk": "in order; of equal elements the first",
}
"""What else there is to say of an opcode."""


def table() -> str:
    """The document: one row an opcode, then the targets of custom-calls."""
    rows = [
        "# Opcodes that `cp2ag run` knows",
        "",
        "Generated from the executor's registry by `python -m hlo_cp2ag.executor.opcode_table > docs/opcodes.md`.",
        "",
        "| Opcode | Runs | What it computes |",
        "|---|---|---|",
    ]
    rows += [
        f"| `{opcode}` | {'yes' if runs(opcode) else 'no'} | {_words(opcode)} |" for opcode in sorted(BASE_OPCODES)
    ]
    suffixes = ", ".join(f"`X{suffix}`" for suffix in sorted(ASYNC_SUFFIXES))
    routines = sorted({name[8:-4] for name in ROUTINES})
    rows += [
        "",
        f"Every opcode X also runs as an asynchronous pair, {suffixes}: the start computes, update and done hand on.",
        "",
        "Targets of custom-calls:",
        "",
        f"- markers, which give back their operand: {', '.join(f'`{m}`' for m in sorted(MARKERS))};",
        "- `TopK`, `PadToStatic`, `SliceToDynamic`, `CreateBuffer`, `AllocateBuffer`;",
        f"- LAPACK, as JAX calls it (`lapack_?NAME_ffi`, ? one of s, d, c, z): {', '.join(f'`{r}`' for r in routines)};",
        "- callbacks into Python are refused by name.",
        "",
    ]
    return "\n".join(rows)


def runs(opcode: str) -> bool:
    """Whether the executor has an opcode."""
    return opcode == "parameter" or find_op(opcode) is not None


def _words(opcode: str) -> str:
    if opcode == "parameter":
        return "XLA operation semantics, Parameter: an argument"
    function = find_op(opcode)
    lines = ((function.__doc__ or "") if function is not None else "").strip().splitlines() or [""]
    said = lines[0].removeprefix("Semantics: ").replace("|", "\\|").rstrip(".")
    limit = _LIMITS.get(opcode)
    return "; ".join(filter(None, (said, limit)))


if __name__ == "__main__":
    print(table(), end="")
