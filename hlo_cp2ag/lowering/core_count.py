"""The core count that the Neuron pass's constructor computes; it is reported and, by design, not used by the rewrite."""

from __future__ import annotations

CORES_PER_PLATFORM_3 = 128
DEFAULT_CORES = 32


def core_count(platform_version: str, nc_divisor: int = 1, override_core_count: int = 0) -> int:
    """Neuron cores: on platform "3.0" the override if it is > 0, else 128 // nc_divisor; on any other platform 32.

    Raises ValueError if `nc_divisor` is below 1.
    """
    if nc_divisor < 1:
        raise ValueError(f"the NC divisor must be at least 1, not {nc_divisor}")
    if platform_version != "3.0":
        return DEFAULT_CORES
    return override_core_count if override_core_count > 0 else CORES_PER_PLATFORM_3 // nc_divisor


def core_count_log(platform_version: str, nc_divisor: int = 1, override_core_count: int = 0) -> str:
    """The line that the reference logs about it."""
    cores = core_count(platform_version, nc_divisor, override_core_count)
    if platform_version != "3.0":
        return f"Platform Version: {platform_version}. Defaulting to 32 cores"
    return f"Platform Version: {platform_version} core count {cores} override_core_count {override_core_count}"
