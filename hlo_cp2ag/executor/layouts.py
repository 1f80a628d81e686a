"""Where memory holds the elements of an array: layouts with dimension orders and tiles.

Source: XLA, docs/tiled_layout.md.
"""

from __future__ import annotations

import re

import numpy as np

from hlo_cp2ag.executor.values import Array
from hlo_cp2ag.ir.shape import ArrayShape

_TILE = re.compile(r"\(([^()]*)\)")


def major_to_minor(shape: ArrayShape) -> tuple[int, ...]:
    """The dimensions in the order in which memory holds them, row-major if the shape has no layout."""
    if shape.layout is None or len(shape.layout.minor_to_major) != shape.rank:
        return tuple(range(shape.rank))
    return shape.layout.minor_to_major[::-1]


def tiles_of(shape: ArrayShape) -> list[tuple[int | None, ...]]:
    """The tiles `T(8,128)(2,1)`; None is a `*`, a dimension that is combined with the next more minor one."""
    text = shape.layout.tiles if shape.layout is not None else ""
    return [
        tuple(None if size.strip() == "*" else int(size) for size in tile.split(","))
        for tile in _TILE.findall(text)
        if tile.strip()
    ]


def memory_places(shape: ArrayShape) -> Array:
    """For each place of memory in order the row-major number of the element it holds, -1 for padding."""
    numbers = np.arange(shape.element_count).reshape(shape.dimensions).transpose(major_to_minor(shape))
    for tile in tiles_of(shape):
        numbers = _tiled(numbers, tile)
    result: Array = numbers.reshape(-1)
    return result


def _tiled(numbers: Array, tile: tuple[int | None, ...]) -> Array:
    """The minor dimensions cut into tiles: first which tile, then where in it."""
    sizes = list(numbers.shape)
    tile_sizes: list[int] = []
    while len(sizes) < len(tile):
        sizes.insert(0, 1)
    lead = len(sizes) - len(tile)
    tiled: list[int] = []
    carried = 1
    for size, part in zip(sizes[lead:], tile, strict=True):
        if part is None:
            carried *= size
        else:
            tiled.append(size * carried)
            tile_sizes.append(part)
            carried = 1
    numbers = numbers.reshape(*sizes[:lead], *tiled)
    padding = [(0, 0)] * lead + [(0, -size % part) for size, part in zip(tiled, tile_sizes, strict=True)]
    numbers = np.pad(numbers, padding, constant_values=-1)
    split = [*numbers.shape[:lead]]
    for size, part in zip(numbers.shape[lead:], tile_sizes, strict=True):
        split += [size // part, part]
    count = len(tile_sizes)
    order = [*range(lead), *(lead + 2 * i for i in range(count)), *(lead + 2 * i + 1 for i in range(count))]
    result: Array = numbers.reshape(split).transpose(order)
    return result
