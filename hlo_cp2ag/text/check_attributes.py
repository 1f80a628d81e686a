"""An instruction's attributes: known, given once, complete, and with a value that can be read."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from hlo_cp2ag.ir.module import AttributeText, InstructionBody
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text import opcodes
from hlo_cp2ag.text.check_names import closest
from hlo_cp2ag.text.check_state import Program, Scope, State
from hlo_cp2ag.text.lexical import mask
from hlo_cp2ag.text.parser import read_value

_ITEM = re.compile(r"[ \t\r\n]*(?:(%?)([A-Za-z_][\w.\-]*)(:?)|(\{))")
_AFTER_ITEM = re.compile(r"[ \t\r\n]*([,}])")
_NAME_AT = re.compile(r"[^A-Za-z_]*")


@dataclass
class Attributes:
    """What an instruction's attributes say."""

    values: dict[str, object] = field(default_factory=dict)
    called: dict[str, Program] = field(default_factory=dict)
    """The computations: by attribute, members of lists as `branch_computations[0]`."""
    texts: dict[str, AttributeText] = field(default_factory=dict)

    def list_length(self, name: str) -> int | None:
        """How many items an attribute has that is a list; None without it."""
        value = self.values.get(name)
        return len(value) if isinstance(value, tuple) else None

    def where(self, name: str, default: int) -> int:
        """Where an attribute begins."""
        text = self.texts.get(name)
        return default if text is None else text.span.start


def read_attributes(
    state: State,
    scope: Scope,
    body: InstructionBody,
    allowed: Collection[str],
    required: Collection[str],
) -> Attributes:
    """Reads the attributes of one instruction. Raises HloSyntaxError."""
    found = Attributes()
    for attribute in body.attributes:
        name = attribute.name
        start = attribute.span.start
        if name in found.texts:
            raise state.error(start, f"the attribute {name} is given twice")
        if name not in allowed:
            raise state.error(start, f"{body.opcode} takes no attribute {name!r}", hint=_allowed_hint(name, allowed))
        found.texts[name] = attribute
        kind = opcodes.attribute_kind(body.opcode, name) or opcodes.ATTRIBUTE_KINDS[name]
        if kind == "computation":
            found.called[name] = _computation(state, attribute)
            found.values[name] = found.called[name].name
        elif kind == "computation_list":
            programs = _computations(state, attribute)
            found.called.update((f"{name}[{i}]", program) for i, program in enumerate(programs))
            found.values[name] = tuple(program.name for program in programs)
        else:
            found.values[name] = read_value(state.source, attribute, body.opcode)
            if kind == "instruction_list":
                _check_predecessors(state, scope, attribute, found.values[name])
    for name in sorted(required):
        if name not in found.texts:
            raise state.error(body.opcode_span.start, f"{body.opcode} needs the attribute {name}")
    return found


def _allowed_hint(name: str, allowed: Collection[str]) -> str:
    meant = closest(name, allowed)
    if meant:
        return meant
    own = sorted(set(allowed) - opcodes.UNIVERSAL_ATTRIBUTES)
    everywhere = ", ".join(sorted(opcodes.UNIVERSAL_ATTRIBUTES))
    return f"it takes {', '.join(own)}, and as every instruction {everywhere}" if own else f"it takes {everywhere}"


def _computation(state: State, attribute: AttributeText) -> Program:
    if attribute.value_text.startswith("{"):
        return _inline(state, attribute.value_span.start)
    name = read_value(state.source, attribute)
    return _named(state, str(name), attribute.value_span.start)


def _named(state: State, name: str, where: int) -> Program:
    program = state.programs.get(name)
    if program is not None:
        return program
    later = state.module.computation(name)
    if later is not None:
        line = state.source.position(later.name_span.start).line
        hint = f"it is defined on line {line}, and has to be before its use"
    else:
        hint = closest(name, state.programs)
    raise state.error(where, f"undefined computation {name!r}", hint=hint)


def _inline(state: State, offset: int) -> Program:
    result = state.inline_results.get(offset)
    if result is None:
        raise state.error(offset, "expects a computation: its name, or its instructions in braces")
    if isinstance(result, HloSyntaxError):
        raise result
    return result


def _computations(state: State, attribute: AttributeText) -> list[Program]:
    """The members of `{name, %name, { ... }}`."""
    base = attribute.value_span.start
    text = (
        mask(attribute.value_text, state.source, base)
        if "{" in attribute.value_text[1:] or "/" in attribute.value_text
        else attribute.value_text
    )
    programs: list[Program] = []
    if re.fullmatch(r"\{[ \t\r\n]*\}", text):
        return programs
    position = 1
    while True:
        item = _ITEM.match(text, position)
        if item is None or not text.startswith("{"):
            raise state.error(base + position, "expects a list of computations such as {%a, %b}")
        if item.group(4):
            start = base + item.start(4)
            program = _inline(state, start)
            computation = state.inline[start]
            position = computation.span.end - base
        else:
            if item.group(1) and item.group(3):
                raise state.error(base + item.start(3), "a colon behind a name with %")
            program = _named(state, item.group(2), base + item.start(2) - len(item.group(1)))
            position = item.end()
        programs.append(program)
        after = _AFTER_ITEM.match(text, position)
        if after is None:
            raise state.error(base + position, "expects a comma or } in a list of computations")
        position = after.end()
        if after.group(1) == "}":
            return programs


def _check_predecessors(state: State, scope: Scope, attribute: AttributeText, names: object) -> None:
    for name in names if isinstance(names, tuple) else ():
        if name not in scope.shapes:
            found = re.compile(rf"(?<![\w.\-]){re.escape(name)}(?![\w.\-])").search(attribute.value_text)
            where = attribute.value_span.start + (found.start() if found else 0)
            later = scope.computation.find(name)
            hint = "it is defined further down" if later is not None else closest(name, scope.shapes)
            raise state.error(where, f"undefined control predecessor {name!r}", hint=hint)
