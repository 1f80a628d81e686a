"""Scheduled per-device modules with a permute of an array that is not laid out row-major, and what each computes.

XLA's layout pass has already run on such text, so nothing mends a collective whose data does not lie as the collective
expects. They are for `Judge.run(..., how="inject")`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

# Dimensions, and the layout as HLO writes it: the dimension that moves fastest comes first.
ARRAYS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (0, 1)),
    ((4, 1), (0, 1)),
    ((2, 3, 4), (0, 2, 1)),
    ((2, 3, 4), (1, 2, 0)),
    ((3, 2, 2), (0, 1, 2)),
    ((2, 1, 3), (1, 0, 2)),
    ((2, 3, 1, 4), (1, 3, 0, 2)),
    ((1, 3, 2, 2), (2, 0, 3, 1)),
]
ELEMENTS = {"f32": "float32", "bf16": "bfloat16", "s32": "int32", "pred": "bool"}
GRIDS = [(4, 1, False), (1, 4, True), (2, 2, False), (2, 2, True)]  # replicas, partitions, pairs name partitions
PAIRS = {4: [[(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 2), (1, 1), (3, 0)]], 2: [[(0, 1), (1, 0)], [(0, 1)]]}


@dataclass(frozen=True)
class LayoutModule:
    """One text, the grid it is for, and its single parameter."""

    name: str
    text: str
    replicas: int
    partitions: int
    cross_partition: bool
    pairs: tuple[tuple[int, int], ...]
    element_type: str
    dimensions: tuple[int, ...]

    @property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """The ENTRY parameters, as `random_arrays` wants them."""
        return [(self.element_type, self.dimensions)]

    def expected(self, arg: np.ndarray) -> np.ndarray:
        """The result on all devices: what each pair moves, and zeros where nothing arrives."""
        grid = arg.reshape(self.replicas, self.partitions, *self.dimensions)
        out = np.zeros_like(grid)
        for source, target in self.pairs:
            if self.cross_partition:
                out[:, target] = grid[:, source]
            else:
                out[target] = grid[source]
        return out.reshape(arg.shape)


def non_row_major_modules() -> Iterator[LayoutModule]:
    """Every array on every grid with full and partial pairs; element types take turns.

    In the "border" modules the parameter and the result have the layout themselves; the "inside" ones copy from
    row-major and back.
    """
    elements = itertools.cycle(ELEMENTS)
    for dims, layout in ARRAYS:
        for replicas, partitions, cross_partition in GRIDS:
            for pairs in PAIRS[partitions if cross_partition else replicas]:
                for place in ("border", "inside"):
                    element = next(elements)
                    full = len(pairs) == (partitions if cross_partition else replicas)
                    name = "_".join(
                        [
                            "x".join(map(str, dims)),
                            "layout" + "".join(map(str, layout)),
                            element,
                            f"{replicas}by{partitions}",
                            "partitions" if cross_partition else "replicas",
                            "full" if full else "partial",
                            place,
                        ]
                    )
                    inside = place == "inside"
                    text = _text(name, element, dims, layout, replicas, partitions, cross_partition, pairs, inside)
                    yield LayoutModule(
                        name, text, replicas, partitions, cross_partition, tuple(pairs), ELEMENTS[element], dims
                    )
                next(elements)  # so that each array meets each type in each role


def _text(
    name: str,
    element: str,
    dims: tuple[int, ...],
    layout: tuple[int, ...],
    replicas: int,
    partitions: int,
    cross_partition: bool,
    pairs: list[tuple[int, int]],
    inside: bool,
) -> str:
    """The module, as XLA prints it."""
    bare = f"{element}[{','.join(map(str, dims))}]"
    other = bare + "{" + ",".join(map(str, layout)) + "}"
    border = bare + "{" + ",".join(map(str, reversed(range(len(dims))))) + "}" if inside else other
    channel = "channel_id=1, " if cross_partition else ""
    list_of_pairs = ",".join(f"{{{s},{t}}}" for s, t in pairs)
    counts = f", replica_count={replicas}" * (replicas > 1) + f", num_partitions={partitions}" * (partitions > 1)
    moved = "copy" if inside else "p"
    body = [f"%p = {border} parameter(0)"]
    if inside:
        body.append(f"%copy = {other} copy(%p)")
    attributes = f"{channel}source_target_pairs={{{list_of_pairs}}}"
    body.append(f"%collective-permute = {other} collective-permute(%{moved}), {attributes}")
    if inside:
        body.append(f"%copy.1 = {border} copy(%collective-permute)")
    body[-1] = "ROOT " + body[-1]
    header = f"HloModule permute_{name}, is_scheduled=true, entry_computation_layout={{({border})->{border}}}{counts}"
    return "\n".join(
        [header, "", f"ENTRY %main (p: {bare}) -> {bare} {{", *(f"  {line}" for line in body), "}", "", ""]
    )
