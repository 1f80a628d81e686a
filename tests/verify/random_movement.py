"""Random modules of ops that move data: what the symbolic domain says of them is held against the executor.

`RandomModule(seed)` writes a module whose result is a tuple of every array that it makes, so that each of them can be
compared. Indices and predicates are computed from device ids and constants, as a site's have to be.
"""

from __future__ import annotations

import math

import numpy as np

from .random_text import CONVERSIONS, MOST_ELEMENTS, SAME_WIDTH, ZERO, RandomText, Value, nested, numbers, shape_text


class RandomModule(RandomText):
    """Movement of all kinds."""

    # ---- shapes

    def make_copy(self, x: Value) -> Value | None:
        opcode = str(self.one("copy", "opt-barrier"))
        return self.add(x.element, x.dims, f"{opcode}({x.name})", x.layout if opcode == "opt-barrier" else None)

    def make_broadcast(self, x: Value) -> Value | None:
        dims = list(x.dims)
        places = list(range(len(dims)))
        for _ in range(int(self.rng.integers(1, 3))):
            at = int(self.rng.integers(len(dims) + 1))
            dims.insert(at, int(self.rng.integers(1, 4)))
            places = [p + (p >= at) for p in places]
        return self.add(x.element, tuple(dims), f"broadcast({x.name}), dimensions={numbers(places)}")

    def make_reshape(self, x: Value) -> Value | None:
        factors = [f for n in x.dims for f in _primes(n)]
        if self.rng.random() < 0.3:
            self.rng.shuffle(factors)
        dims: list[int] = []
        for factor in factors:
            if dims and self.rng.random() < 0.5:
                dims[-1] *= factor
            else:
                dims.append(factor)
        for _ in range(int(self.rng.integers(0, 2))):
            dims.insert(int(self.rng.integers(len(dims) + 1)), 1)
        return self.add(x.element, tuple(dims), f"reshape({x.name})")

    def make_transpose(self, x: Value) -> Value | None:
        order = self.rng.permutation(len(x.dims)).tolist()
        dims = tuple(x.dims[d] for d in order)
        return self.add(x.element, dims, f"transpose({x.name}), dimensions={numbers(order)}")

    def make_reverse(self, x: Value) -> Value | None:
        dims = [d for d in range(len(x.dims)) if self.rng.random() < 0.6]
        return self.add(x.element, x.dims, f"reverse({x.name}), dimensions={numbers(dims)}")

    def make_bitcast(self, x: Value) -> Value | None:
        made = self.make_reshape(x) if self.rng.random() < 0.5 else self.make_transpose(x)
        if made is None or made.element in ("u4", "s4"):
            return made
        return self.add(x.element, made.dims, f"bitcast({x.name})")

    def make_bitcast_convert(self, x: Value) -> Value | None:
        target = SAME_WIDTH.get(x.element)
        return None if target is None else self.add(target, x.dims, f"bitcast-convert({x.name})")

    def make_concatenate(self, x: Value) -> Value | None:
        if not x.dims:
            return None
        dim = int(self.rng.integers(len(x.dims)))
        fits = [
            v for v in self.values
            if v.element == x.element and len(v.dims) == len(x.dims)
            and all(a == b for d, (a, b) in enumerate(zip(v.dims, x.dims, strict=True)) if d != dim)
        ]  # fmt: skip
        parts = [(fits[i].name, fits[i].dims) for i in self.rng.integers(0, len(fits), self.rng.integers(1, 3))]
        parts.append((x.name, x.dims))
        if self.rng.random() < 0.4:
            size = tuple(2 if d == dim else n for d, n in enumerate(x.dims))
            parts.insert(int(self.rng.integers(len(parts))), (self.zero(x.element, size), size))
        dims = tuple(sum(p[1][dim] for p in parts) if d == dim else n for d, n in enumerate(x.dims))
        return self.add(x.element, dims, f"concatenate({', '.join(p[0] for p in parts)}), dimensions={{{dim}}}")

    def make_slice(self, x: Value) -> Value | None:
        ranges, dims = [], []
        for n in x.dims:
            start = int(self.rng.integers(0, n)) if self.rng.random() < 0.6 else 0
            limit = int(self.rng.integers(start + 1, n + 1)) if self.rng.random() < 0.6 else n
            stride = int(self.rng.integers(1, 4))
            ranges.append(f"[{start}:{limit}:{stride}]")
            dims.append(-(-(limit - start) // stride))
        return self.add(x.element, tuple(dims), f"slice({x.name}), slice={numbers(ranges)}")

    def make_pad(self, x: Value) -> Value | None:
        config, dims = [], []
        for n in x.dims:
            low, high = (int(self.rng.integers(-2, 4)) if self.rng.random() < 0.6 else 0 for _ in range(2))
            interior = int(self.rng.integers(0, 3)) if self.rng.random() < 0.4 else 0
            size = n + low + high + (n - 1) * interior
            if size < 1:
                low, high, interior, size = 0, 0, 0, n
            config.append(f"{low}_{high}_{interior}")
            dims.append(size)
        tail = f", padding={'x'.join(config)}" if config else ""
        return self.add(x.element, tuple(dims), f"pad({x.name}, {self.filling(x.element)}){tail}") if config else None

    # ---- at computed places

    def make_dynamic_slice(self, x: Value) -> Value | None:
        sizes = [int(self.rng.integers(1, n + 1)) if self.rng.random() < 0.7 else n for n in x.dims]
        # Blocks that fit are what sites cut.
        sizes = [n // 2 if n % 2 == 0 and self.rng.random() < 0.4 else s for n, s in zip(x.dims, sizes, strict=True)]
        where = self.indices([n - s for n, s in zip(x.dims, sizes, strict=True)])
        names = "".join(f", {i}" for i in where)
        return self.add(
            x.element, tuple(sizes), f"dynamic-slice({x.name}{names}), dynamic_slice_sizes={numbers(sizes)}"
        )

    def make_dynamic_update_slice(self, x: Value) -> Value | None:
        part = self.make_dynamic_slice(self.like(x))
        if part is None:
            return None
        where = self.indices([n - s for n, s in zip(x.dims, part.dims, strict=True)])
        whole = x.name if self.rng.random() < 0.6 else self.zero(x.element, x.dims)
        names = "".join(f", {i}" for i in where)
        return self.add(x.element, x.dims, f"dynamic-update-slice({whole}, {part.name}{names})")

    def make_gather(self, x: Value) -> Value | None:
        if not x.dims:
            return None
        rank = len(x.dims)
        mapped = sorted(self.rng.choice(rank, size=self.rng.integers(1, min(rank, 2) + 1), replace=False).tolist())
        if self.rng.random() < 0.4:
            mapped = mapped[::-1]
        sizes = [int(self.rng.integers(1, n + 1)) if d in mapped else n for d, n in enumerate(x.dims)]
        collapsed = [d for d in mapped if sizes[d] == 1 and self.rng.random() < 0.7]
        batch = [int(n) for n in self.rng.integers(1, 4, self.rng.integers(0, 3))]
        vector = int(self.rng.integers(0, len(batch) + 1))
        shape = (*batch[:vector], len(mapped), *batch[vector:])
        highest = max(x.dims)
        if self.rng.random() < 0.5:
            picked = self.rng.integers(-1, highest + 1, shape)
            where = self.line(shape_text("s32", shape), f"constant({nested(picked)})")
        else:
            start = self.table("s32", self.rng.integers(-1, highest + 1, self.devices).tolist())
            wide = self.line(shape_text("s32", shape), f"broadcast({start}), dimensions={{}}")
            steps = self.line(shape_text("s32", shape), f"iota(), iota_dimension={len(shape) - 1}")
            where = self.line(shape_text("s32", shape), f"add({wide}, {steps})")
        window = [s for d, s in enumerate(sizes) if d not in collapsed]
        result_rank = len(batch) + len(window)
        offsets = sorted(self.rng.choice(result_rank, size=len(window), replace=False).tolist()) if window else []
        dims, own, rest = [], iter(window), iter(batch)
        for d in range(result_rank):
            dims.append(next(own) if d in offsets else next(rest))
        return self.add(
            x.element,
            tuple(dims),
            f"gather({x.name}, {where}), offset_dims={numbers(offsets)}, "
            f"collapsed_slice_dims={numbers(sorted(collapsed))}, start_index_map={numbers(mapped)}, "
            f"index_vector_dim={vector}, slice_sizes={numbers(sizes)}",
        )

    def make_select(self, x: Value) -> Value | None:
        other = self.like(x).name if self.rng.random() < 0.4 else self.zero(x.element, x.dims)
        pair = [x.name, other]
        if self.rng.random() < 0.5:
            pair.reverse()
        return self.add(x.element, x.dims, f"select({self.mask(x.dims)}, {', '.join(pair)})")

    def make_select_by_data(self, x: Value) -> Value | None:
        mask = next((v for v in self.values if v.element == "pred" and v.dims == x.dims), None)
        if mask is None:
            return None
        true = self.line("pred[]", "constant(true)")
        options = [self.like(x).name, x.name, self.zero(x.element, x.dims)]
        if x.element == "pred":
            options.append(self.line(shape_text("pred", x.dims), f"broadcast({true}), dimensions={{}}"))
        one, other = (options[i] for i in self.rng.integers(0, len(options), 2))
        return self.add(x.element, x.dims, f"select({mask.name}, {one}, {other})")

    # ---- beside zeros

    def make_sum(self, x: Value) -> Value | None:
        if x.element in ("c64", "c128") or x.element[0] in "fb":
            return None
        mask = self.mask(x.dims)
        zero = self.zero(x.element, x.dims)
        shape = shape_text(x.element, x.dims)
        one = self.line(shape, f"select({mask}, {x.name}, {zero})")
        other = self.line(shape, f"select({mask}, {zero}, {self.like(x).name})")
        if self.rng.random() < 0.3:
            other = self.constant(x)
        opcode = str(self.one("add", "or", "xor", "maximum", "and", "minimum"))
        if opcode == "xor" and x.element == "pred":
            opcode = "or"
        return self.add(x.element, x.dims, f"{opcode}({one}, {other})")

    def make_reduce(self, x: Value) -> Value | None:
        if x.element in ("c64", "c128") or x.element[0] in "fb" or not x.dims:
            return None
        dim = int(self.rng.integers(len(x.dims)))
        shape = shape_text(x.element, x.dims)
        iota = self.line(shape_text("s32", x.dims), f"iota(), iota_dimension={dim}")
        chosen = self.table("s32", self.rng.integers(0, x.dims[dim] + 1, self.devices).tolist())
        wide = self.line(shape_text("s32", x.dims), f"broadcast({chosen}), dimensions={{}}")
        mask = self.line(shape_text("pred", x.dims), f"compare({iota}, {wide}), direction=EQ")
        one = self.line(shape, f"select({mask}, {x.name}, {self.zero(x.element, x.dims)})")
        reduced = {dim} | {d for d in range(len(x.dims)) if self.rng.random() < 0.15}
        dims = tuple(n for d, n in enumerate(x.dims) if d not in reduced)
        zero = self.line(f"{x.element}[]", f"constant({ZERO.get(x.element, 0)})")
        return self.add(
            x.element, dims, f"reduce({one}, {zero}), dimensions={numbers(sorted(reduced))}, to_apply={self.reducer(x)}"
        )

    def reducer(self, x: Value) -> str:
        name = f"reducer{len(self.helpers)}"
        options = ["or", "add", "maximum"] if x.element != "pred" else ["or", "and"]
        if x.element[0] == "s":
            options = ["add", "or", "maximum"]
        opcode = self.one(*options)
        self.helpers.append(
            f"{name} {{\n  a = {x.element}[] parameter(0)\n  b = {x.element}[] parameter(1)\n"
            f"  ROOT r = {x.element}[] {opcode}(a, b)\n}}"
        )
        return name

    def make_convert(self, x: Value) -> Value | None:
        options = CONVERSIONS.get(x.element, ())
        if not options:
            return None
        wide = self.add(str(self.one(*options)), x.dims, f"convert({x.name})")
        if wide is None or self.rng.random() < 0.25:
            return wide
        self.values.append(wide)
        moved = getattr(self, str(self.one("make_copy", "make_reverse", "make_select", "make_transpose")))(wide)
        return self.add(x.element, moved.dims, f"convert({moved.name})")

    # ---- between devices

    def groups(self, has_channel: bool, flat: bool, opcode: str) -> tuple[str, int]:
        """Groups of one size that cover their axis, and how many devices a group has."""
        joins_both = opcode in ("all-gather", "all-reduce", "reduce-scatter")
        if flat:
            size = self.devices
        elif has_channel and not joins_both:
            size = self.partitions
        else:
            size = self.replicas
        members = int(self.one(*[n for n in range(1, size + 1) if size % n == 0]))
        ids = self.rng.permutation(size).reshape(-1, members).tolist()
        text = numbers(numbers(group) for group in ids)
        if len(ids) == 1 and self.rng.random() < 0.3 and not flat:
            text = "{}"
        if self.rng.random() < 0.2 and text != "{}":
            ids = np.arange(size).reshape(-1, members)
            text = f"[{size // members},{members}]<=[{size}]"
        return text, members * (self.partitions if joins_both and has_channel and not flat else 1)

    def across(self, opcode: str) -> tuple[str, int]:
        has_channel = bool(self.rng.random() < 0.7)
        flat = has_channel and opcode in ("all-gather", "all-reduce", "reduce-scatter") and self.rng.random() < 0.5
        text, members = self.groups(has_channel, bool(flat), opcode)
        attributes = f"replica_groups={text}"
        if has_channel:
            self.channel += 1
            attributes = f"channel_id={self.channel}, {attributes}"
        return attributes + ", use_global_device_ids=true" * bool(flat), members

    def make_all_gather(self, x: Value) -> Value | None:
        if not x.dims:
            return None
        attributes, members = self.across("all-gather")
        dim = int(self.rng.integers(len(x.dims)))
        dims = tuple(n * members if d == dim else n for d, n in enumerate(x.dims))
        if math.prod(dims) > MOST_ELEMENTS:
            return None
        attributes += f", dimensions={{{dim}}}"
        if self.rng.random() < 0.3:
            result = shape_text(x.element, dims)
            start = self.line(f"({x.shape}, {result})", f"all-gather-start({x.name}), {attributes}")
            return self.add(x.element, dims, f"all-gather-done({start})", tuple(reversed(range(len(dims)))))
        return self.add(x.element, dims, f"all-gather({x.name}), {attributes}")

    def pairs(self, size: int) -> str:
        count = int(self.rng.integers(0, size + 1))
        sources, targets = self.rng.permutation(size)[:count], self.rng.permutation(size)[:count]
        return numbers(numbers(pair) for pair in zip(sources.tolist(), targets.tolist(), strict=True))

    def make_collective_permute(self, x: Value) -> Value | None:
        has_channel = bool(self.rng.random() < 0.5)
        self.channel += has_channel
        pairs = self.pairs(self.partitions if has_channel else self.replicas)
        attributes = (f"channel_id={self.channel}, " if has_channel else "") + f"source_target_pairs={pairs}"
        kind = self.rng.integers(3)
        if kind == 0:
            start = self.line(f"({x.shape}, {x.shape})", f"collective-permute-start({x.name}), {attributes}")
            return self.add(x.element, x.dims, f"collective-permute-done({start})", x.layout)
        if kind == 1:
            y = self.pick()
            both = self.line(f"({x.shape}, {y.shape})", f"collective-permute({x.name}, {y.name}), {attributes}")
            self.values.append(self.add(y.element, y.dims, f"get-tuple-element({both}), index=1", y.layout))  # type: ignore[arg-type]
            return self.add(x.element, x.dims, f"get-tuple-element({both}), index=0", x.layout)
        return self.add(x.element, x.dims, f"collective-permute({x.name}), {attributes}", x.layout)

    def make_collective_broadcast(self, x: Value) -> Value | None:
        has_channel = bool(self.rng.random() < 0.5)
        self.channel += has_channel
        size = self.partitions if has_channel else self.replicas
        order = self.rng.permutation(size).tolist()
        cut = int(self.rng.integers(1, size + 1))
        groups = [order[:cut], *([order[cut:]] if cut < size and self.rng.random() < 0.5 else [])]
        channel = f"channel_id={self.channel}, " if has_channel else ""
        text = numbers(numbers(group) for group in groups)
        return self.add(x.element, x.dims, f"collective-broadcast({x.name}), {channel}replica_groups={text}", x.layout)

    def make_all_to_all(self, x: Value) -> Value | None:
        attributes, members = self.across("all-to-all")
        fits = [d for d, n in enumerate(x.dims) if n % members == 0]
        if fits and self.rng.random() < 0.6:
            return self.add(
                x.element, x.dims, f"all-to-all({x.name}), {attributes}, dimensions={{{self.one(*fits)}}}", x.layout
            )
        layout = tuple(reversed(range(len(x.dims))))
        shape = shape_text(x.element, x.dims)
        pieces = [self.line(shape, f"copy({self.like(x).name})") for _ in range(members)]
        if members == 1:
            return None
        all_of_them = self.line(f"({', '.join([shape] * members)})", f"all-to-all({', '.join(pieces)}), {attributes}")
        made = None
        for i in range(members):
            made = self.add(x.element, x.dims, f"get-tuple-element({all_of_them}), index={i}", layout)
            if i < members - 1 and made is not None:
                self.values.append(made)
        return made

    def lone(self, x: Value) -> str:
        """The value on some devices, zeros on the others."""
        most = int(self.one(1, 1, 2, self.devices))
        flags = ["false"] * self.devices
        for device in self.rng.permutation(self.devices)[:most]:
            flags[device] = "true"
        one = self.table("pred", flags)
        mask = self.line(shape_text("pred", x.dims, x.layout), f"broadcast({one}), dimensions={{}}")
        return self.line(x.shape, f"select({mask}, {x.name}, {self.zero(x.element, x.dims)})")

    def make_all_reduce(self, x: Value) -> Value | None:
        if x.element in ("c64", "c128") or x.element[0] in "fb":
            return None
        attributes, _ = self.across("all-reduce")
        return self.add(
            x.element, x.dims, f"all-reduce({self.lone(x)}), {attributes}, to_apply={self.reducer(x)}", x.layout
        )

    def make_reduce_scatter(self, x: Value) -> Value | None:
        if x.element in ("c64", "c128") or x.element[0] in "fb":
            return None
        attributes, members = self.across("reduce-scatter")
        fits = [d for d, n in enumerate(x.dims) if n % members == 0]
        if not fits:
            return None
        dim = int(self.one(*fits))  # type: ignore[call-overload]
        dims = tuple(n // members if d == dim else n for d, n in enumerate(x.dims))
        reducer = self.reducer(x)
        return self.add(
            x.element, dims, f"reduce-scatter({self.lone(x)}), {attributes}, dimensions={{{dim}}}, to_apply={reducer}"
        )

    # ---- computations

    def make_call(self, x: Value) -> Value | None:
        name = f"called{len(self.helpers)}"
        order = self.rng.permutation(len(x.dims)).tolist()
        turned = shape_text(x.element, tuple(x.dims[d] for d in order))
        self.helpers.append(
            f"{name} {{\n  a = {x.shape} parameter(0)\n  b = {turned} transpose(a), dimensions={numbers(order)}\n"
            f"  ROOT r = ({turned}, {x.shape}) tuple(b, a)\n}}"
        )
        both = self.line(f"({turned}, {x.shape})", str(self.one(
            f"call({x.name}), to_apply={name}", f"fusion({x.name}), kind=kLoop, calls={name}"
        )))  # fmt: skip
        dims = tuple(x.dims[d] for d in order)
        return self.add(x.element, dims, f"get-tuple-element({both}), index=0", tuple(reversed(range(len(dims)))))

    def make_conditional(self, x: Value) -> Value | None:
        names = []
        for body in ("copy(a)", f"reverse(a), dimensions={numbers(range(len(x.dims)))}"):
            names.append(f"branch{len(self.helpers)}")
            self.helpers.append(f"{names[-1]} {{\n  a = {x.shape} parameter(0)\n  ROOT r = {x.shape} {body}\n}}")
        y = next((v for v in reversed(self.values) if v.shape == x.shape), x)
        if self.rng.random() < 0.5:
            flags = [("false", "true")[int(b)] for b in self.rng.integers(0, 2, self.devices)]
            which = self.table("pred", flags)
            rest = f"true_computation={names[0]}, false_computation={names[1]}"
        else:
            which = self.table("s32", self.rng.integers(-1, 3, self.devices).tolist())
            rest = f"branch_computations={numbers(names)}"
        return self.add(x.element, x.dims, f"conditional({which}, {x.name}, {y.name}), {rest}", x.layout)

    def make_while(self, x: Value) -> Value | None:
        if not x.dims:
            return None
        number = len(self.helpers)
        state = f"(s32[], {x.shape})"
        trips = int(self.rng.integers(0, 4))
        dim = int(self.rng.integers(len(x.dims)))
        n = x.dims[dim]
        cut = [f"[0:{m}]" for m in x.dims]
        first, rest = list(cut), list(cut)
        first[dim], rest[dim] = "[0:1]", f"[1:{n}]"
        moved = [f"  m = {x.shape} copy(a)"]
        if n > 1:
            one = shape_text(x.element, tuple(1 if d == dim else m for d, m in enumerate(x.dims)))
            others = shape_text(x.element, tuple(n - 1 if d == dim else m for d, m in enumerate(x.dims)))
            moved = [
                f"  f = {one} slice(a), slice={numbers(first)}", f"  o = {others} slice(a), slice={numbers(rest)}",
                f"  m = {x.shape} concatenate(o, f), dimensions={{{dim}}}",
            ]  # fmt: skip
        self.helpers.append("\n".join([
            f"body{number} {{", f"  s = {state} parameter(0)", "  i = s32[] get-tuple-element(s), index=0",
            f"  a = {x.shape} get-tuple-element(s), index=1", *moved, "  one = s32[] constant(1)",
            "  j = s32[] add(i, one)", f"  ROOT t = {state} tuple(j, m)", "}",
        ]))  # fmt: skip
        self.helpers.append("\n".join([
            f"condition{number} {{", f"  s = {state} parameter(0)", "  i = s32[] get-tuple-element(s), index=0",
            f"  n = s32[] constant({trips})", "  ROOT c = pred[] compare(i, n), direction=LT", "}",
        ]))  # fmt: skip
        start = self.line(state, f"tuple({self.line('s32[]', 'constant(0)')}, {x.name})")
        loop = self.line(state, f"while({start}), condition=condition{number}, body=body{number}")
        return self.add(x.element, x.dims, f"get-tuple-element({loop}), index=1", x.layout)


def _primes(n: int) -> list[int]:
    found = []
    for p in (2, 3):
        while n % p == 0:
            found.append(p)
            n //= p
    return found if n == 1 else [*found, n]
