"""The gate: which well-formed permutes are rewritten.

The predicate is the reference's `IsSourceTargetPairsInvalid`; four consumers read it in their own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

GATES = ("every", "valid", "intra-group", "invalid")

Pairs = tuple[tuple[int, int], ...]


@lru_cache(maxsize=1024)
def duplicate_target(pairs: Pairs) -> int | None:
    """The first target that two pairs name."""
    return _first_repeated(target for _, target in pairs)


@lru_cache(maxsize=1024)
def duplicate_source(pairs: Pairs) -> int | None:
    """The first source that two pairs name."""
    return _first_repeated(source for source, _ in pairs)


def repeated_pairs(pairs: Pairs) -> Iterator[str]:
    """Warnings of a source or a target that two pairs name."""
    for repeated, what in ((duplicate_source(pairs), "source"), (duplicate_target(pairs), "target")):
        if repeated is not None:
            yield f"two pairs have the {what} {repeated}; of pairs with one target the last wins"


def _first_repeated(ids: Iterable[int]) -> int | None:
    seen: set[int] = set()
    for each in ids:
        if each in seen:
            return each
        seen.add(each)
    return None


def crosses_groups(pairs: Pairs, replica_count: int) -> bool:
    """Whether some pair leads from one group of `replica_count` consecutive ids to another."""
    return any(source // replica_count != target // replica_count for source, target in pairs)


def is_source_target_pairs_invalid(pairs: Pairs, replica_count: int, total: int) -> bool:
    """The reference's predicate, a pure function of the pairs.

    True on a target that two pairs name, on a pair with source // replica_count != target // replica_count, or if some
    index in [0, total) is no target.
    """
    return invalid_because(pairs, replica_count, total) != ""


@lru_cache(maxsize=1024)
def invalid_because(pairs: Pairs, replica_count: int, total: int) -> str:
    """Why the predicate is true, in a few words; nothing where it is false."""
    repeated = duplicate_target(pairs)
    if repeated is not None:
        return f"two pairs have the target {repeated}"
    for source, target in pairs:
        if source // replica_count != target // replica_count:
            return f"the pair {{{source},{target}}} crosses groups of {replica_count}"
    targets = {target for _, target in pairs}
    missing = next((index for index in range(total) if index not in targets), None)
    return "" if missing is None else f"{missing} is no target"


def gate_verdict(gate: str, pairs: Pairs, replica_count: int, total: int) -> str:
    """Why `gate` leaves a well-formed permute alone; nothing where it lets it pass."""
    if gate == "every":
        return ""
    reason = invalid_because(pairs, replica_count, total)
    if gate == "invalid":
        return "" if reason else "clean permutation, predicate is 0; --gate every rewrites it"
    if gate == "valid":
        return f"predicate is 1 ({reason}); --gate every rewrites it" if reason else ""
    if crosses_groups(pairs, replica_count):
        return f"a pair crosses groups of {replica_count}; --gate every rewrites it"
    return ""
