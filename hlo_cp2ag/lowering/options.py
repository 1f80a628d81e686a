"""What the pass is asked to do: a profile, and each of its flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Profile = Literal["xla", "neuron"]
Gate = Literal["every", "valid", "intra-group", "invalid"]
NonTarget = Literal["zero", "keep"]
DeviceId = Literal["auto", "replica-id"]
GatherDimension = Literal["auto", "leading", "major"]
SubByte = Literal["widen", "keep"]
Names = Literal["fresh", "keep"]
Async = Literal["keep", "convert"]
GatherGroups = Literal["all", "minimal"]

PROFILES: dict[str, dict[str, str]] = {
    "xla": {
        "gate": "every",
        "non_target": "zero",
        "device_id": "auto",
        "gather_dimension": "auto",
        "sub_byte": "widen",
        "async_": "convert",
    },
    "neuron": {
        "gate": "invalid",
        "non_target": "keep",
        "device_id": "replica-id",
        "gather_dimension": "leading",
        "sub_byte": "keep",
        "async_": "keep",
    },
}
"""Each profile's defaults; a flag that is given wins over them."""


CHOICES: dict[str, tuple[str, ...]] = {
    "gate": get_args(Gate),
    "non_target": get_args(NonTarget),
    "device_id": get_args(DeviceId),
    "gather_dimension": get_args(GatherDimension),
    "sub_byte": get_args(SubByte),
    "names": get_args(Names),
    "async_": get_args(Async),
    "groups": get_args(GatherGroups),
}
"""What each option may be."""


@dataclass(frozen=True)
class LoweringOptions:
    """The pass's options with the profile's defaults filled in."""

    profile: str = "xla"
    gate: str = "every"
    non_target: str = "zero"
    device_id: str = "auto"
    gather_dimension: str = "auto"
    sub_byte: str = "widen"
    async_: str = "convert"
    groups: str = "all"
    share_gathers: bool = False
    max_gather_bytes: int | None = None
    """Bytes that one permute may gather on a device."""
    simplify: bool = False
    names: str = "fresh"
    only: str | None = None
    """A regular expression that an instruction's name must match somewhere."""
    write_config: bool = False
    strict_grid: bool = False
    given: frozenset[str] = frozenset()
    """Which of these somebody asked for; the others are the profile's."""


def options_for(profile: str = "xla", **given: object) -> LoweringOptions:
    """The options of a profile; values that are None are filled in from it.

    Raises ValueError for an unknown profile or value.
    """
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}; there are {', '.join(PROFILES)}")
    for name, value in given.items():
        if value is not None and name in CHOICES and value not in CHOICES[name]:
            raise ValueError(f"unknown {name} {value!r}; there are {', '.join(CHOICES[name])}")
    asked = {name: value for name, value in given.items() if value is not None}
    chosen: dict[str, object] = {**PROFILES[profile], **asked}
    return LoweringOptions(profile=profile, given=frozenset(asked), **chosen)  # type: ignore[arg-type]
