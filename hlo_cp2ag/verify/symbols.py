"""The symbolic domain of site proofs: arrays whose elements say where they come from, not what they are.

Each element is a code: a positive one is `Data(device, leaf, index)`, one of the values that a site is given; zero or a
negative one is `Bits(pattern)`, a constant by its exact bits (zero means that all bits are 0, so -0.0 is not zero); and
`UNKNOWN` is what no listed op has moved.

An array's dimension is a product of axes, the slowest first. An *expanded* axis has a code for each place. Along an
*affine* axis all that happens is known without looking: Data goes on by `stride` elements of its leaf a place, Bits
stay what they are. Leaves begin with affine axes only, and an axis is expanded when an op touches it in a way that
affine axes cannot follow. So a proof costs as much as the axes that move, not as much as the arrays are large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hlo_cp2ag.executor.values import Array

UNKNOWN = np.int64(-(1 << 63))
"""The code of an element that may be anything; it equals nothing, itself included."""

_room: ContextVar[int] = ContextVar("room", default=2 << 30)


SMALL = 1 << 20
"""Bytes that a proof may always take: what has to be computed for an index is no matter."""


class TooLarge(Exception):  # noqa: N818
    """A proof would need more memory than it may take; `size` is in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


@contextmanager
def at_most(size: int | None) -> Iterator[None]:
    """Within it, arrays of codes that would take more than `size` bytes raise TooLarge."""
    token = _room.set((1 << 62) if size is None else size)
    try:
        yield
    finally:
        _room.reset(token)


def require_room(elements: int) -> None:
    """Raise TooLarge if an array of codes of that many elements takes too much."""
    # An op holds a few arrays of the size of its result at once.
    if 32 * elements > max(_room.get(), SMALL):
        raise TooLarge(32 * elements)


class Axis(NamedTuple):
    """One factor of a dimension."""

    size: int
    stride: int | None = None
    """Elements of the leaf that Data goes on by from one place to the next; None for an expanded axis."""


Dimension = tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Symbols:
    """A symbolic array on all devices."""

    codes: Array
    """int64 `[1 or devices, *axes]`, where an expanded axis has its size and an affine one 1."""
    dims: tuple[Dimension, ...]
    """The axes of each dimension; those of size 1 are left out."""
    conversions: tuple[str, ...] = ()
    """The element types that Data was converted through, the first its own; empty where it is as it was."""
    lost_payload: bool = False
    """Whether floating-point Data was widened and narrowed again, which keeps all but the payloads of NaNs."""
    why: str = ""
    """What made elements unknown, for people."""

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The sizes."""
        return tuple(math.prod(axis.size for axis in dim) for dim in self.dims)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes in order."""
        return tuple(axis for dim in self.dims for axis in dim)

    @property
    def is_empty(self) -> bool:
        """Whether there are no elements."""
        return any(axis.size == 0 for axis in self.axes)

    @property
    def has_data(self) -> bool:
        """Whether some element is Data."""
        return bool((self.codes > 0).any())

    @property
    def has_unknown(self) -> bool:
        """Whether some element is unknown."""
        return bool((self.codes == UNKNOWN).any())

    def first_axis(self, dim: int) -> int:
        """The number of a dimension's first axis."""
        return sum(len(d) for d in self.dims[:dim])

    def with_codes(self, codes: Array, dims: tuple[Dimension, ...] | None = None) -> Symbols:
        """The same but for its codes and axes."""
        return replace(self, codes=codes, dims=self.dims if dims is None else dims)


def unknown(dimensions: Sequence[int], why: str) -> Symbols:
    """An array of which nothing is known."""
    dims = tuple(() if n == 1 else (Axis(n, 0),) for n in dimensions)
    return Symbols(np.full((1,) * (1 + sum(map(len, dims))), UNKNOWN), dims, why=why)


def empty(dimensions: Sequence[int]) -> Symbols:
    """An array without elements."""
    dims = tuple(() if n == 1 else (Axis(n, 0),) for n in dimensions)
    return Symbols(np.zeros((1,) * (1 + sum(map(len, dims))), np.int64), dims)


def leaf_symbols(base: int, dimensions: Sequence[int], devices: int) -> Symbols:
    """A leaf's own elements: on device d the codes from `base + d * count` on, in row-major order."""
    count = math.prod(dimensions)
    if count == 0:
        return empty(dimensions)
    strides = [math.prod(dimensions[d + 1 :]) for d in range(len(dimensions))]
    dims = tuple(() if n == 1 else (Axis(n, s),) for n, s in zip(dimensions, strides, strict=True))
    codes = base + count * np.arange(devices, dtype=np.int64)
    return Symbols(codes.reshape(-1, *[1] * sum(map(len, dims))), dims)


def shift(codes: Array, by: Array | int) -> Array:
    """Data moved on by elements of its leaf; everything else as it is."""
    result: Array = np.where(codes > 0, codes + by, codes)
    return result


# ---- axes ------------------------------------------------------------------------------------------------------------


def expand_axis(x: Symbols, number: int) -> Symbols:
    """The array with one axis expanded. Raises TooLarge."""
    axis = x.axes[number]
    if axis.stride is None:
        return x
    place = 1 + number
    require_room(x.codes.size * axis.size)
    steps = np.arange(axis.size, dtype=np.int64) * axis.stride
    codes = shift(x.codes, steps.reshape([-1 if i == place else 1 for i in range(x.codes.ndim)]))
    shape = list(x.codes.shape)
    shape[place] = axis.size
    codes = np.broadcast_to(codes, shape)
    return x.with_codes(codes, _with_axis(x.dims, number, (Axis(axis.size),)))


def _with_axis(dims: tuple[Dimension, ...], number: int, new: Dimension) -> tuple[Dimension, ...]:
    result: list[Dimension] = []
    at = 0
    for dim in dims:
        if at <= number < at + len(dim):
            inside = number - at
            dim = (*dim[:inside], *new, *dim[inside + 1 :])
            number = -1
        at += len(dim)
        result.append(dim)
    return tuple(result)


def split_axis(x: Symbols, number: int, sizes: Sequence[int]) -> Symbols:
    """The array with one axis cut into several whose sizes multiply to its own."""
    axis = x.axes[number]
    place = 1 + number
    new: list[Axis] = []
    for i, size in enumerate(sizes):
        inner = math.prod(sizes[i + 1 :])
        if size != 1:
            new.append(Axis(size, None if axis.stride is None else axis.stride * inner))
    kept = [a.size if axis.stride is None else 1 for a in new]
    codes = x.codes.reshape(*x.codes.shape[:place], *kept, *x.codes.shape[place + 1 :])
    return x.with_codes(codes, _with_axis(x.dims, number, tuple(new)))


def flatten(x: Symbols, dim: int) -> Symbols:
    """The array with one dimension as a single expanded axis (none if its size is 1). Raises TooLarge."""
    first, count = x.first_axis(dim), len(x.dims[dim])
    for number in range(first, first + count):
        x = expand_axis(x, number)
    if count <= 1:
        return x
    size = math.prod(a.size for a in x.dims[dim])
    codes = x.codes.reshape(*x.codes.shape[: 1 + first], size, *x.codes.shape[1 + first + count :])
    return x.with_codes(codes, (*x.dims[:dim], (Axis(size),), *x.dims[dim + 1 :]))


def flatten_all(x: Symbols) -> Array:
    """The codes `[1 or devices, *dimensions]`. Raises TooLarge."""
    if x.is_empty:
        return np.zeros((x.codes.shape[0], *x.dimensions), np.int64)
    for dim in range(len(x.dims)):
        x = flatten(x, dim)
    result: Array = x.codes.reshape(x.codes.shape[0], *x.dimensions)
    return result


def from_codes(codes: Array, like: Symbols | None = None, why: str = "") -> Symbols:
    """An array with all axes expanded out of codes `[1 or devices, *dimensions]`."""
    if codes.size == 0:
        return empty(codes.shape[1:])
    dims = tuple(() if n == 1 else (Axis(n),) for n in codes.shape[1:])
    flat = codes.reshape(codes.shape[0], *(n for n in codes.shape[1:] if n != 1))
    return Symbols(flat, dims, why=why) if like is None else replace(like, codes=flat, dims=dims)


def refine(x: Symbols, dim: int, sizes: Sequence[int]) -> Symbols:
    """The array with a dimension's axes of the given sizes, which multiply to its size; expanded where that must be."""
    wanted = [size for size in sizes if size != 1]
    at, position = 0, 0
    while at < len(wanted):
        axes = x.dims[dim]
        taken: list[int] = []
        size = axes[position].size
        while at < len(wanted) and math.prod(taken) * wanted[at] <= size:
            taken.append(wanted[at])
            at += 1
        if math.prod(taken) != size:
            whole = flatten(x, dim)
            return split_axis(whole, whole.first_axis(dim), wanted)
        if len(taken) > 1:
            x = split_axis(x, x.first_axis(dim) + position, taken)
        position += len(taken)
    return x


def _common_sizes(dims: Iterable[Dimension], total: int) -> list[int]:
    """The coarsest axis sizes that all of some dimensions can be cut into; the whole as one if they do not fit."""
    inner = {1, total}
    for dim in dims:
        product = 1
        for axis in reversed(dim):
            product *= axis.size
            inner.add(product)
    ordered = sorted(inner)
    if any(b % a for a, b in pairwise(ordered)):
        return [total]
    return [b // a for a, b in pairwise(ordered)][::-1]


def unify(arrays: Sequence[Symbols], skip: int | None = None) -> tuple[list[Array], tuple[Dimension, ...]]:
    """Arrays of the same dimensions with the same axes: their codes, which broadcast to each other, and the axes.

    Where Data goes on along an axis in the same way in all of them the axis stays affine. `skip` is a dimension whose
    sizes may differ: it is expanded in all, and its axes are left out of the answer. Raises TooLarge.
    """
    found = list(arrays)
    for dim in range(len(found[0].dims)):
        if dim == skip:
            found = [_one_axis(flatten(x, dim), dim) for x in found]
            continue
        sizes = _common_sizes((x.dims[dim] for x in found), found[0].dimensions[dim])
        found = [refine(x, dim, sizes) for x in found]
    data = [x.has_data for x in found]
    if not found[0].axes:
        return [x.codes for x in found], found[0].dims
    skipped = range(0) if skip is None else range(found[0].first_axis(skip), found[0].first_axis(skip) + 1)
    axes: list[Axis] = []
    for number, axis in enumerate(found[0].axes):
        if number in skipped:
            axes.append(axis)
            continue
        mine = [x.axes[number] for x in found]
        strides = {a.stride for a, d in zip(mine, data, strict=True) if d or a.stride is None}
        if len(strides) <= 1 and None not in strides:
            axes.append(Axis(axis.size, next(iter(strides), 0)))
            continue
        axes.append(Axis(axis.size))
        found = [expand_axis(x, number) if d and x.axes[number].stride else x for x, d in zip(found, data, strict=True)]
    dims: list[Dimension] = []
    at = 0
    for own in found[0].dims:
        dims.append(tuple(axes[at : at + len(own)]))
        at += len(own)
    return [x.codes for x in found], tuple(dims)


def _one_axis(x: Symbols, dim: int) -> Symbols:
    """The array with an axis in a dimension that has none, since its size is 1."""
    if x.dims[dim]:
        return x
    place = 1 + x.first_axis(dim)
    return x.with_codes(np.expand_dims(x.codes, place), (*x.dims[:dim], (Axis(1),), *x.dims[dim + 1 :]))


def fill_axes(codes: Array, dims: tuple[Dimension, ...]) -> Array:
    """Codes broadcast to the sizes of all expanded axes. Raises TooLarge."""
    shape = [codes.shape[0], *(1 if a.stride is not None else a.size for dim in dims for a in dim)]
    require_room(math.prod(shape))
    return np.broadcast_to(codes, shape)


def same_conversions(arrays: Sequence[Symbols]) -> bool:
    """Whether Data is as it was, or converted in the same way, in all arrays that have some."""
    return len({x.conversions for x in arrays if x.has_data}) <= 1


def combined(arrays: Sequence[Symbols], codes: Array, dims: tuple[Dimension, ...]) -> Symbols:
    """An array made of elements of others, with what is to be said of them; unknown if conversions differ."""
    why = next((x.why for x in arrays if x.why), "")
    if not same_conversions(arrays):
        sizes = [math.prod(a.size for a in dim) for dim in dims]
        return unknown(sizes, why or "elements of different element types meet")
    conversions = next((x.conversions for x in arrays if x.has_data), ())
    dims = tuple(tuple(a for a in dim if a.size != 1) for dim in dims) if _has_ones(dims) else dims
    if codes.ndim != 1 + sum(map(len, dims)):
        codes = codes.reshape(codes.shape[0], *(1 if a.stride is not None else a.size for dim in dims for a in dim))
    return Symbols(codes, dims, conversions, any(x.lost_payload for x in arrays), why)


def _has_ones(dims: tuple[Dimension, ...]) -> bool:
    return any(a.size == 1 for dim in dims for a in dim)


# ---- shapes ----------------------------------------------------------------------------------------------------------


def reshape(x: Symbols, dimensions: Sequence[int]) -> Symbols:
    """The elements in row-major order in other dimensions. Raises TooLarge."""
    if x.is_empty:
        return empty(dimensions)
    flat = x.with_codes(x.codes, (x.axes,))
    dims: list[Dimension] = []
    at = 0
    for size in dimensions:
        taken = 0
        remaining = size
        while remaining != 1:
            axis = flat.dims[0][at + taken]
            if remaining % axis.size == 0:
                remaining //= axis.size
                taken += 1
            elif axis.size % remaining == 0:
                flat = split_axis(flat, at + taken, (remaining, axis.size // remaining))
            else:
                codes = flatten_all(x)
                return from_codes(codes.reshape(codes.shape[0], *dimensions), x)
        dims.append(flat.dims[0][at : at + taken])
        at += taken
    return x.with_codes(flat.codes, tuple(dims))


def transpose(x: Symbols, order: Sequence[int]) -> Symbols:
    """Dimension i of the result is dimension `order[i]`."""
    axes = [0]
    for dim in order:
        first = 1 + x.first_axis(dim)
        axes += range(first, first + len(x.dims[dim]))
    return x.with_codes(x.codes.transpose(axes), tuple(x.dims[dim] for dim in order))


def broadcast(x: Symbols, dimensions: Sequence[int], places: Sequence[int]) -> Symbols:
    """Dimension i becomes dimension `places[i]` of the result; along all others the elements are the same."""
    if 0 in dimensions:
        return empty(dimensions)
    order = sorted(range(len(places)), key=places.__getitem__)
    x = transpose(x, order)
    dims: list[Dimension] = []
    codes = x.codes
    position = 0
    own = {places[dim]: x.dims[i] for i, dim in enumerate(order)}
    for dim, size in enumerate(dimensions):
        axes = own.get(dim)
        if axes is None or (not axes and size != 1):
            axes = () if size == 1 else (Axis(size, 0),)
            if axes:
                codes = np.expand_dims(codes, 1 + position)
        dims.append(axes)
        position += len(axes)
    return x.with_codes(codes, tuple(dims))


def split_dim(x: Symbols, dim: int, outer: int) -> Symbols:
    """The array with a dimension cut into two, the slower one of size `outer`. Raises TooLarge."""
    sizes = x.dimensions
    return reshape(x, (*sizes[:dim], outer, sizes[dim] // outer if outer else 0, *sizes[dim + 1 :]))


def merge_dims(x: Symbols, dim: int) -> Symbols:
    """The inverse: dimensions `dim` and `dim + 1` as one."""
    return x.with_codes(x.codes, (*x.dims[:dim], x.dims[dim] + x.dims[dim + 1], *x.dims[dim + 2 :]))


def reverse(x: Symbols, dim: int) -> Symbols:
    """The array turned around in one dimension."""
    first = x.first_axis(dim)
    codes, axes = x.codes, []
    for number, axis in enumerate(x.dims[dim], first):
        if axis.stride is None:
            codes = np.flip(codes, 1 + number)
            axes.append(axis)
        else:
            codes = shift(codes, (axis.size - 1) * axis.stride)
            axes.append(Axis(axis.size, -axis.stride))
    return x.with_codes(codes, (*x.dims[:dim], tuple(axes), *x.dims[dim + 1 :]))


def take(x: Symbols, dim: int, starts: Array, size: int, step: int = 1) -> Symbols:
    """`size` places of a dimension from `starts` `[1 or devices]` on, all of them inside. Raises TooLarge."""
    total = x.dimensions[dim]
    if size == total and step == 1:
        return x
    if size == 0:
        return empty((*x.dimensions[:dim], 0, *x.dimensions[dim + 1 :]))
    axes = x.dims[dim]
    if not axes:
        return x
    if len(axes) > 1:
        inner = math.prod(a.size for a in axes[1:])
        if step == 1 and size % inner == 0 and not (starts % inner).any():
            cut = take(_outer_apart(x, dim), dim, starts // inner, size // inner)
            return merge_dims(cut, dim)
        if (starts % inner + (size - 1) * step < inner).all():
            block = take(_outer_apart(x, dim), dim, starts // inner, 1)
            return take(merge_dims(block, dim), dim, starts % inner, size, step)
        x = flatten(x, dim)
        axes = x.dims[dim]
    number, axis = x.first_axis(dim), axes[0]
    dims = (*x.dims[:dim], () if size == 1 else (Axis(size, axis.stride and axis.stride * step),), *x.dims[dim + 1 :])
    if axis.stride == 0:
        dims = (*x.dims[:dim], () if size == 1 else (Axis(size, 0),), *x.dims[dim + 1 :])
    if axis.stride is not None:
        codes = shift(x.codes, starts.reshape(-1, *[1] * (x.codes.ndim - 1)) * axis.stride) if axis.stride else x.codes
        return x.with_codes(codes if size > 1 else np.squeeze(codes, 1 + number), dims)
    place = 1 + number
    if (starts == starts[0]).all():
        first = int(starts[0])
        which = [slice(None)] * x.codes.ndim
        which[place] = slice(first, first + (size - 1) * step + 1, step)
        codes = x.codes[tuple(which)]
    else:
        lanes = starts.shape[0]
        require_room(lanes * size * (x.codes.size // (x.codes.shape[0] * x.codes.shape[place])))
        moved = np.moveaxis(x.codes, place, 1)
        rows = np.zeros((lanes, 1), np.int64) if moved.shape[0] == 1 else np.arange(lanes).reshape(-1, 1)
        codes = np.moveaxis(moved[rows, starts.reshape(-1, 1) + np.arange(size) * step], 1, place)
    return x.with_codes(codes if size > 1 else np.squeeze(codes, place), dims)


def _outer_apart(x: Symbols, dim: int) -> Symbols:
    """The array with a dimension's slowest axis as a dimension of its own."""
    return x.with_codes(x.codes, (*x.dims[:dim], x.dims[dim][:1], x.dims[dim][1:], *x.dims[dim + 1 :]))


def concatenate(arrays: Sequence[Symbols], dim: int) -> Symbols:
    """Arrays one behind the other along a dimension. Raises TooLarge."""
    parts = [x for x in arrays if not x.is_empty]
    if not parts:
        sizes = list(arrays[0].dimensions)
        sizes[dim] = sum(x.dimensions[dim] for x in arrays)
        return empty(sizes)
    if len(parts) == 1:
        return parts[0]
    block = math.gcd(*(x.dimensions[dim] for x in parts))
    parts = [split_dim(x, dim, x.dimensions[dim] // block) for x in parts]
    codes, dims = unify(parts, skip=dim)
    place = 1 + sum(len(d) for d in dims[:dim])
    lanes = max(c.shape[0] for c in codes)
    shape = [max(c.shape[i] for c in codes) for i in range(codes[0].ndim)]
    require_room(math.prod(shape) // shape[place] * sum(c.shape[place] for c in codes))
    whole = np.concatenate(
        [np.broadcast_to(c, (lanes, *shape[1:place], c.shape[place], *shape[place + 1 :])) for c in codes], axis=place
    )
    dims = (*dims[:dim], (Axis(whole.shape[place]),), *dims[dim + 1 :])
    return merge_dims(combined(parts, whole, dims), dim)
