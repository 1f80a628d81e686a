"""What random modules are written with: shapes, and indices and predicates made of device ids and constants."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

TYPES = ("f32", "s32", "u8", "pred", "s8", "bf16", "s64", "f8e5m2", "c64", "u4", "s4", "f64", "u16", "c128")
SAME_WIDTH = {"f32": "s32", "s32": "f32", "s64": "f64", "f64": "s64", "u8": "s8", "s8": "u8", "bf16": "u16",
              "u16": "bf16"}  # fmt: skip
CONVERSIONS = {"s8": ("s32", "s16"), "u8": ("s32", "u32", "s16"), "u4": ("u8", "s32"), "s4": ("s8", "u8"),
               "bf16": ("f32",), "f32": ("f64", "bf16"), "pred": ("s32", "u8"), "s32": ("s64", "s8"), "f8e5m2": ("f16",),
               "u16": ("s32", "s8"), "c64": ("c128",)}  # fmt: skip
GRIDS = ((4, 1), (1, 4), (2, 2), (2, 3), (1, 6), (3, 1), (2, 4), (1, 1))
ZERO = {"pred": "false", "c64": "(0, 0)", "c128": "(0, 0)"}
MOST_ELEMENTS = 400


@dataclass(frozen=True)
class Value:
    """An array that the module has made."""

    name: str
    element: str
    dims: tuple[int, ...]
    layout: tuple[int, ...]
    """Minor to major."""

    @property
    def shape(self) -> str:
        return shape_text(self.element, self.dims, self.layout)


def shape_text(element: str, dims: tuple[int, ...], layout: tuple[int, ...] | None = None) -> str:
    layout = tuple(reversed(range(len(dims)))) if layout is None else layout
    inside = "{" + ",".join(map(str, layout)) + "}" if dims else ""
    return f"{element}[{','.join(map(str, dims))}]{inside}"


def numbers(values: object) -> str:
    return "{" + ",".join(map(str, values)) + "}"  # type: ignore[call-overload]


class RandomText:
    """The text of a module that makes array after array by the methods that a subclass calls make_..."""

    def __init__(self, seed: int, steps: int = 14) -> None:
        self.rng = np.random.default_rng(seed)
        self.replicas, self.partitions = GRIDS[self.rng.integers(len(GRIDS))]
        self.devices = self.replicas * self.partitions
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.helpers: list[str] = []
        self.count = 0
        self.channel = 0
        self.odd_layouts = bool(self.rng.random() < 0.4)
        elements = self.rng.choice(TYPES, size=2, replace=False)
        self.parameters: list[Value] = []
        for i in range(3):
            dims = self.dims()
            value = Value(f"p{i}", str(elements[i % 2]), dims, self.layout(dims))
            self.lines.append(f"{value.name} = {value.shape} parameter({i})")
            self.parameters.append(value)
        self.values += self.parameters
        makers = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("make_")]
        for _ in range(steps):
            # What came last is taken more often, so that ops pile up.
            made = self.rng.choice(makers)(self.pick())
            if made is not None:
                self.values.append(made)

    @property
    def text(self) -> str:
        results = self.values
        shapes = ", ".join(v.shape for v in results)
        root = f"ROOT all = ({shapes}) tuple({', '.join(v.name for v in results)})"
        header = f"HloModule random, replica_count={self.replicas}, num_partitions={self.partitions}"
        lines = "\n".join(f"  {line}" for line in [*self.lines, root])
        return "\n\n".join([header, *self.helpers, f"ENTRY main {{\n{lines}\n}}", ""])

    # ---- choices

    def one(self, *options: object) -> object:
        return options[int(self.rng.integers(len(options)))]

    def dims(self) -> tuple[int, ...]:
        while True:
            found = tuple(int(n) for n in self.rng.choice([1, 2, 3, 4, 6, 8, 12], size=self.rng.integers(0, 4)))
            if math.prod(found) <= 96:
                return found

    def layout(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        order = list(reversed(range(len(dims))))
        return tuple(int(d) for d in self.rng.permutation(order)) if self.odd_layouts else tuple(order)

    def pick(self) -> Value:
        recent = self.values[-4:] if self.rng.random() < 0.7 else self.values
        return recent[int(self.rng.integers(len(recent)))]

    def like(self, value: Value) -> Value:
        """A value of the same type and dimensions: another one if there is one."""
        same = [v for v in self.values if (v.element, v.dims) == (value.element, value.dims)]
        return same[int(self.rng.integers(len(same)))]

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def add(
        self, element: str, dims: tuple[int, ...], rest: str, layout: tuple[int, ...] | None = None
    ) -> Value | None:
        if math.prod(dims) > MOST_ELEMENTS:
            return None
        layout = self.layout(dims) if layout is None else layout
        value = Value(self.name(), element, tuple(int(d) for d in dims), layout)
        self.lines.append(f"{value.name} = {value.shape} {rest}")
        return value

    def line(self, shape: str, rest: str) -> str:
        name = self.name()
        self.lines.append(f"{name} = {shape} {rest}")
        return name

    # ---- what is computed

    def table(self, element: str, entries: list[object]) -> str:
        """A scalar that each device looks up in a constant by its id."""
        flat = self.device_id()
        table = self.line(f"{element}[{self.devices}]", f"constant({numbers(entries)})")
        one = self.line(f"{element}[1]", f"dynamic-slice({table}, {flat}), dynamic_slice_sizes={{1}}")
        return self.line(f"{element}[]", f"reshape({one})")

    def device_id(self) -> str:
        if self.partitions == 1:
            return self.line("u32[]", "replica-id()")
        partition = self.line("u32[]", "partition-id()")
        if self.replicas == 1:
            return partition
        replica = self.line("u32[]", "replica-id()")
        factor = self.line("u32[]", f"constant({self.partitions})")
        return self.line("u32[]", f"add({self.line('u32[]', f'multiply({replica}, {factor})')}, {partition})")

    def indices(self, limits: list[int]) -> list[str]:
        """Starts of one type: the same everywhere or by device, now and then out of bounds."""
        element = str(self.one("s32", "u32", "s64", "s8", "u8"))
        low = 0 if element[0] == "u" else -2
        found = []
        for limit in limits:
            high = min(limit + 2, 100)
            if self.rng.random() < 0.4:
                found.append(self.line(f"{element}[]", f"constant({self.rng.integers(low, high + 1)})"))
            else:
                found.append(self.table(element, self.rng.integers(low, high + 1, self.devices).tolist()))
        return found

    def mask(self, dims: tuple[int, ...]) -> str:
        kind = self.rng.integers(3)
        if kind == 0 or not dims:
            flags = [("false", "true")[int(b)] for b in self.rng.integers(0, 2, self.devices)]
            one = self.table("pred", flags)
            return one if self.rng.random() < 0.5 else self.line(
                shape_text("pred", dims), f"broadcast({one}), dimensions={{}}"
            )  # fmt: skip
        if kind == 1:
            dim = int(self.rng.integers(len(dims)))
            iota = self.line(shape_text("s32", dims), f"iota(), iota_dimension={dim}")
            bound = self.table("s32", self.rng.integers(0, dims[dim] + 1, self.devices).tolist())
            wide = self.line(shape_text("s32", dims), f"broadcast({bound}), dimensions={{}}")
            return self.line(
                shape_text("pred", dims), f"compare({iota}, {wide}), direction={self.one('LT', 'EQ', 'GE')}"
            )
        flags = self.rng.integers(0, 2, dims)
        return self.line(shape_text("pred", dims), f"constant({nested(flags)})")

    def zero(self, element: str, dims: tuple[int, ...]) -> str:
        scalar = self.line(f"{element}[]", f"constant({ZERO.get(element, 0)})")
        return self.line(shape_text(element, dims), f"broadcast({scalar}), dimensions={{}}")

    def constant(self, value: Value) -> str:
        """A constant of a value's shape that is not all the same."""
        if value.element[0] == "c" or math.prod(value.dims) > 100:
            return self.zero(value.element, value.dims)
        most = 2 if value.element == "pred" else 4
        return self.line(
            shape_text(value.element, value.dims), f"constant({nested(self.rng.integers(0, most, value.dims))})"
        )

    def filling(self, element: str) -> str:
        number = int(self.rng.integers(0, 2))
        word = {"pred": ("false", "true")[number], "c64": f"({number}, 0)", "c128": f"({number}, -0)"}.get(
            element, number
        )
        return self.line(f"{element}[]", f"constant({word})")


def nested(values: np.ndarray) -> str:
    if values.ndim == 0:
        return str(int(values))
    return "{" + ", ".join(nested(v) for v in values) + "}"
