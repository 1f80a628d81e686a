"""Names: which are legal, and which one was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_cp2ag.ir.module import Instruction
from hlo_cp2ag.text.check_state import RESERVED, State
from hlo_cp2ag.text.opcodes import PRIMITIVE_TYPES

_MOST_TO_COMPARE = 5000
"""With more names than that, looking for the closest one takes longer than it helps."""


def closest(name: str, names: Iterable[str]) -> str:
    """`did you mean 'x'?` for the name that is most like `name`; nothing if none is, or there are too many."""
    names = list(names)
    if len(names) > _MOST_TO_COMPARE or len(name) > 200:
        return ""
    import difflib

    found = difflib.get_close_matches(name, names, 1, 0.75)
    return f"did you mean {found[0]!r}?" if found else ""


def check_instruction_name(state: State, instruction: Instruction) -> None:
    """Raises HloSyntaxError for a name that XLA reserves or renames."""
    name = instruction.name
    start, end = instruction.name_span
    text = state.source.text
    if text[start - 1 : start] != "%" and text[end : end + 1] != ":" and name in RESERVED:
        raise state.error(start, f"{name!r} is a reserved word, not a name", hint=f"write %{name}_")
    if name in PRIMITIVE_TYPES:
        raise state.error(start, f"{name!r} is an element type, not a name", hint=f"XLA would call it {name}_")
    if name.startswith("__") and not name.startswith("__xla_"):
        raise state.error(
            start, f"{name!r} is no name: two underscores at the start are XLA's", hint=f"XLA would call it a{name[1:]}"
        )
