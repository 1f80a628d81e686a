"""Where an instruction comes from: `metadata={...}`, and the quoting of strings."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_cp2ag.ir.device_groups import integers_text

_ESCAPES = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}


def quote(text: str) -> str:
    """The string in double quotes with C escapes, as XLA's printer writes it: other bytes in octal."""
    if text.isascii() and text.isprintable() and not any(c in text for c in "\"'\\"):
        return f'"{text}"'
    raw = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in raw) + '"'


@dataclass(frozen=True)
class OpMetadata:
    """`{op_type="..." op_name="..." source_file="..." source_line=1}`."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    profile_type: tuple[int, ...] = ()
    deduplicated_name: str = ""
    scheduling_name: str = ""
    metadata_payload: str = ""

    def to_text(self) -> str:
        """The metadata as XLA prints it: fields that say nothing are left out."""
        fields = []
        for name in _METADATA_ORDER:
            value = getattr(self, name)
            if isinstance(value, str):
                if value:
                    fields.append(f"{name}={quote(value)}")
            elif isinstance(value, tuple):
                if value:
                    fields.append(f"{name}={{{integers_text(value)}}}")
            elif value > 0:
                fields.append(f"{name}={value}")
        return "{" + " ".join(fields) + "}"


_METADATA_ORDER = (
    "op_type",
    "op_name",
    "source_file",
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
    "profile_type",
    "deduplicated_name",
    "scheduling_name",
    "stack_frame_id",
    "metadata_payload",
)
