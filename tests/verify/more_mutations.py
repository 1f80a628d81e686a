"""Mutations of what instructions are, what they take, and who takes what they make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from .mutations import Line, Mutant, Text, mutation, numbers_of, outside

_ARITHMETIC = ("multiply", "add", "subtract", "and", "or", "xor", "remainder", "divide", "maximum", "minimum")
_ONE = {"pred": "true", "c64": "(1, 0)"}
NARROW = {"f32": ("bf16", "f16", "s32"), "s32": ("s16", "s8", "f32"), "bf16": ("f8e5m2",), "u8": ("u4",), "s64": ("s32",),
          "u32": ("u16",), "f8e4m3fn": ("f8e5m2",), "s8": ("s4",), "u16": ("u8",), "s4": ("s2",)}  # fmt: skip
WIDE = {"f32": "f64", "s32": "s64", "bf16": "f32", "u8": "s32", "f8e4m3fn": "bf16", "s8": "s16", "u32": "u64", "s4": "s8",
        "u16": "s32"}  # fmt: skip


def of_type(shape: str, element: str) -> str:
    return element + shape[shape.index("[") :]


# ---- other ops -------------------------------------------------------------------------------------------------------


@mutation
def arithmetic_changed(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions(*_ARITHMETIC):
        for opcode in _ARITHMETIC:
            fits = opcode not in ("subtract", "remainder", "divide", "multiply", "add") or line.element != "pred"
            fits = fits and (opcode not in ("and", "or", "xor", "remainder") or line.element[0] in "sup")
            if opcode != line.opcode and fits:
                yield f"{line.name}: {line.opcode} to {opcode}", text.edited({n: replace(line, opcode=opcode)})


@mutation
def comparison_changed(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("compare", everywhere=True):
        if n in text.site or text.site:
            for direction in ("EQ", "NE", "LT", "LE", "GT", "GE"):
                if direction != line.attribute("direction") and n in text.site:
                    edited = line.with_attribute("direction", direction)
                    yield f"{line.name}: {direction}", text.edited({n: edited})


@mutation
def ids_exchanged(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("partition-id", "replica-id"):
        other = "replica-id" if line.opcode == "partition-id" else "partition-id"
        yield f"{line.name}: {other}", text.edited({n: replace(line, opcode=other)})
    both = [n for n, _ in text.instructions("partition-id", "replica-id")]
    if len(both) > 1:
        swapped = {n: replace(i, opcode="replica-id" if i.opcode == "partition-id" else "partition-id")
                   for n, i in text.instructions("partition-id", "replica-id")}  # fmt: skip
        yield "both", text.edited(swapped)  # type: ignore[arg-type]


@mutation
def id_is_a_constant(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("partition-id", "replica-id"):
        for value in (0, 1):
            yield f"{line.name} is {value}", text.edited({n: replace(line, opcode="constant", inside=str(value))})


@mutation
def reducer_changed(text: Text) -> Iterator[Mutant]:
    """Of a reduce or an all-reduce; and its initial value."""
    names = {line.attribute("to_apply") for _, line in text.instructions("reduce", "all-reduce", "reduce-scatter")}
    for n, line in text.instructions(everywhere=True):
        head = str(text.lines[text.computation(n)[0] - 1]).split()
        if head and head[0].lstrip("%") in names and line.root and line.opcode != "parameter":
            options = ("or", "and") if line.element == "pred" else (
                *("add", "multiply", "maximum", "minimum", "or", "and", "xor", "subtract"),
            )  # fmt: skip
            for opcode in options:
                if opcode != line.opcode:
                    yield f"{line.opcode} to {opcode}", text.edited({n: replace(line, opcode=opcode)})


@mutation
def trip_count_changed(text: Text) -> Iterator[Mutant]:
    for _, loop in text.instructions("while"):
        for n, line in text.instructions("constant", everywhere=True):
            head = str(text.lines[text.computation(n)[0] - 1]).split()
            if head and head[0] == loop.attribute("condition"):
                for new in (int(line.inside) + d for d in (-3, -1, 1, 4)):
                    yield f"{new} rounds", text.edited({n: replace(line, inside=str(new))})


@mutation
def branches_exchanged(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("conditional"):
        one, two = line.attribute("true_computation"), line.attribute("false_computation")
        edited = line.with_attribute("true_computation", two).with_attribute("false_computation", one)
        yield line.name, text.edited({n: edited})
        yield f"{line.name}: one twice", text.edited({n: line.with_attribute("false_computation", one)})


# ---- dimensions ------------------------------------------------------------------------------------------------------


@mutation
def dimension_changed(text: Text) -> Iterator[Mutant]:
    """The dimension of a collective, a concatenation or an iota, with the shape where that follows."""
    for n, line in text.instructions(
        "all-gather", "all-to-all", "reduce-scatter", "concatenate", "iota", "reverse", "reduce"
    ):
        name = "iota_dimension" if line.opcode == "iota" else "dimensions"
        value = line.attribute(name)
        if value is None or line.dims is None or not value.strip("{}").isdecimal():
            continue
        number = int(value.strip("{}"))
        for new in range(len(line.dims)):
            if new == number:
                continue
            edited = line.with_attribute(name, str(new) if line.opcode == "iota" else f"{{{new}}}")
            yield f"{line.name}: {new}, the shape kept", text.edited({n: edited})
            before = text.shape_of(n, line.operands[0]) if line.operands else None
            if line.opcode == "all-gather" and before is not None:
                own = [int(d) for d in re.findall(r"\d+", before[before.index("[") : before.index("]")])]
                factor = line.dims[number] // max(1, own[number])
                own[new] *= factor
                yield f"{line.name}: {new}", text.edited({n: edited.with_shape(dims=own)})
                yield from _sliced_along(text, n, edited.with_shape(dims=own), number, new)


def _sliced_along(text: Text, n: int, gather: Line, old: int, new: int) -> Iterator[Mutant]:
    """The other dimension's gather, and the offset moved to where it belongs; the shard constant may fit or not."""
    for m, line in text.instructions("dynamic-slice"):
        if line.operands[0] == gather.name and len(line.operands) > max(old, new) + 1:
            operands = list(line.operands)
            operands[1 + old], operands[1 + new] = operands[1 + new], operands[1 + old]
            yield f"{gather.name}: {new}, offset moved", text.edited({n: gather, m: line.with_operands(operands)})
            for k, constant in text.instructions("constant"):
                if re.fullmatch(r"\d+", constant.inside) and line.dims is not None:
                    fitting = replace(constant, inside=str(line.dims[new]))
                    edits = {n: gather, m: line.with_operands(operands), k: fitting}
                    yield f"{gather.name}: {new}, offset moved, {constant.name} too", text.edited(edits)  # type: ignore[arg-type]


@mutation
def order_of_dimensions_changed(text: Text) -> Iterator[Mutant]:
    """Of a transpose or a broadcast, and which are reversed or reduced."""
    for n, line in text.instructions("transpose", "broadcast", "reverse", "reduce"):
        numbers = numbers_of(line.attribute("dimensions") or "")
        if numbers:
            for new in (numbers[::-1], numbers[1:] + numbers[:1], numbers[:-1], [*range(len(numbers))]):
                if new != numbers:
                    written = "{" + ",".join(map(str, new)) + "}"
                    yield f"{line.name}: {written}", text.edited({n: line.with_attribute("dimensions", written)})


@mutation
def slice_moved(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("slice"):
        ranges = re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", line.tail)
        for i, (start, limit, _) in enumerate(ranges):
            for by in (-1, 1):
                new = [f"[{a}:{b}]" for a, b, _ in ranges]
                new[i] = f"[{int(start) + by}:{int(limit) + by}]"
                if int(start) + by >= 0:
                    written = "{" + ", ".join(new) + "}"
                    yield f"{line.name}: {written}", text.edited({n: replace(line, tail=f", slice={written}")})


@mutation
def padding_changed(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("pad"):
        low, high = (int(x) for x in (line.attribute("padding") or "0_0").split("x")[0].split("_")[:2])
        for by in (-2, -1, 1):
            rest = (line.attribute("padding") or "").partition("x")[2]
            written = f"{low + by}_{high - by}x{rest}" if rest else f"{low + by}_{high - by}"
            yield f"{line.name}: {written}", text.edited({n: line.with_attribute("padding", written)})


@mutation
def gather_changed(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("gather"):
        for name, value in (("start_index_map", "{1}"), ("collapsed_slice_dims", "{1}"), ("offset_dims", "{1,0}"),
                            ("index_vector_dim", "1"), ("slice_sizes", "{1,2,2}")):  # fmt: skip
            if line.attribute(name) != value:
                yield f"{line.name}: {name}={value}", text.edited({n: line.with_attribute(name, value)})


@mutation
def half_taken_twice(text: Text) -> Iterator[Mutant]:
    """The slice has half the size, with its shape, and is put behind itself."""
    for n, line in text.instructions("dynamic-slice"):
        sizes = numbers_of(line.attribute("dynamic_slice_sizes") or "")
        if not sizes or line.dims is None:
            continue
        for dim, size in enumerate(sizes):
            if size % 2 == 0:
                half = [s // 2 if d == dim else s for d, s in enumerate(sizes)]
                small = replace(line.with_shape(dims=half), name="mutant", root="").with_attribute(
                    "dynamic_slice_sizes", "{" + ",".join(map(str, half)) + "}"
                )
                joined = f"{line.indent}{line.root}{line.name} = {line.shape} concatenate(mutant, mutant), dimensions={{{dim}}}"
                yield f"{line.name}: along {dim}", text.edited({n: [small, joined]})


# ---- operands --------------------------------------------------------------------------------------------------------


@mutation
def operands_swapped(text: Text) -> Iterator[Mutant]:
    """Of a select, of the index, of a concatenation, of anything with two."""
    for n, line in text.instructions():
        operands = line.operands
        for i in range(len(operands)):
            for j in range(i + 1, len(operands)):
                if text.shape_of(n, operands[i]) == text.shape_of(n, operands[j]) and operands[i] != operands[j]:
                    new = list(operands)
                    new[i], new[j] = new[j], new[i]
                    yield f"{line.name}: {i} and {j}", text.edited({n: line.with_operands(new)})


@mutation
def operand_replaced(text: Text) -> Iterator[Mutant]:
    """By something else of its shape in the computation, such as the permute's operand or another index."""
    for n, line in text.instructions():
        for i, operand in enumerate(line.operands):
            shape = text.shape_of(n, operand)
            others = [o for o in text.earlier(n, shape) if o != operand] if shape else []
            for other in others[:4]:
                new = [*line.operands[:i], other, *line.operands[i + 1 :]]
                yield f"{line.name}: {other} for {operand}", text.edited({n: line.with_operands(new)})


@outside
def use_rewired(text: Text) -> Iterator[Mutant]:
    """A use of a site's result takes the old value, or another site's result, or anything of that shape."""
    results = {line.name for _, line in text.results()}
    for n, line in text.instructions(everywhere=True):
        if n in text.site:
            continue
        for i, operand in enumerate(line.operands):
            if operand in results:
                shape = text.shape_of(n, operand)
                for other in [o for o in text.earlier(n, shape or "") if o != operand][:6]:
                    new = [*line.operands[:i], other, *line.operands[i + 1 :]]
                    yield f"{line.name}: {other} for {operand}", text.edited({n: line.with_operands(new)})


@outside
def other_operand_replaced(text: Text) -> Iterator[Mutant]:
    """Outside of the sites too, a use may be lost."""
    for n, line in text.instructions(everywhere=True):
        if n in text.site:
            continue
        for i, operand in enumerate(line.operands):
            shape = text.shape_of(n, operand)
            for other in [o for o in text.earlier(n, shape or "") if o != operand][:2]:
                new = [*line.operands[:i], other, *line.operands[i + 1 :]]
                yield f"{line.name}: {other} for {operand}", text.edited({n: line.with_operands(new)})


@outside
def root_moved(text: Text) -> Iterator[Mutant]:
    """To another instruction of its shape."""
    for n, line in text.instructions(everywhere=True):
        if line.root:
            for m in text.computation(n):
                other = text.lines[m]
                if m != n and isinstance(other, Line) and other.shape == line.shape:
                    edits = {n: replace(line, root=""), m: replace(other, root="ROOT ")}
                    yield f"from {line.name} to {other.name}", text.edited(edits)  # type: ignore[arg-type]


@outside
def elements_exchanged(text: Text) -> Iterator[Mutant]:
    """Of a tuple, or which element is taken of one."""
    for n, line in text.instructions("tuple", everywhere=True):
        operands = line.operands
        for i in range(len(operands) - 1):
            if text.shape_of(n, operands[i]) == text.shape_of(n, operands[i + 1]) and operands[i] != operands[i + 1]:
                new = [*operands[:i], operands[i + 1], operands[i], *operands[i + 2 :]]
                yield f"{line.name}: {i}", text.edited({n: line.with_operands(new)})
    for n, line in text.instructions("get-tuple-element", everywhere=True):
        for new_index in range(3):
            if str(new_index) != line.attribute("index"):
                edited = line.with_attribute("index", str(new_index))
                yield f"{line.name}: {new_index}", text.edited({n: edited})


@outside
def order_dropped(text: Text) -> Iterator[Mutant]:
    """A control predecessor."""
    for n, line in text.instructions(everywhere=True):
        if line.attribute("control-predecessors") is not None:
            yield line.name, text.edited({n: line.with_attribute("control-predecessors", None)})


@outside
def header_changed(text: Text) -> Iterator[Mutant]:
    """The grid in the header."""
    head = next(n for n, line in enumerate(text.lines) if str(line).startswith("HloModule"))
    line = str(text.lines[head])
    for name in ("replica_count", "num_partitions"):
        for new in ("1", "2", "3", "8"):
            edited = re.sub(rf"{name}=\d+", f"{name}={new}", line)
            if edited != line:
                yield f"{name}={new}", text.edited({head: edited})
        yield f"no {name}", text.edited({head: re.sub(rf", {name}=\d+", "", line)})
    swapped = (
        line.replace("replica_count", "@").replace("num_partitions", "replica_count").replace("@", "num_partitions")
    )
    yield "swapped", text.edited({head: swapped})


# ---- between a site and its users ------------------------------------------------------------------------------------


@mutation
def converted_there_and_back(text: Text) -> Iterator[Mutant]:
    """Through a narrower type, which loses digits."""
    for n, line in text.results():
        for narrow in NARROW.get(line.element, ()):
            made = text.after_result(n, lambda name, shape, narrow=narrow: [  # type: ignore[misc]
                f"mutant.0 = {of_type(shape, narrow)} convert({name})", f"mutant = {shape} convert(mutant.0)",
            ])  # fmt: skip
            if made and line.dims is not None:
                yield f"{line.name} as {narrow}", made


@mutation
def zeros_added(text: Text) -> Iterator[Mutant]:
    """Which keeps integers; and ones, which keep nothing."""
    for n, line in text.results():
        if line.dims is None or line.element[0] not in "su":
            continue
        for value in ("0", "1"):
            made = _combined(text, n, line, "add", value)
            if made:
                yield f"{line.name}: add {value}", made


def _combined(text: Text, n: int, line: Line, opcode: str, value: str) -> str | None:
    return text.after_result(n, lambda name, shape: [
        f"mutant.0 = {line.element}[] constant({value})", f"mutant.1 = {shape} broadcast(mutant.0), dimensions={{}}",
        f"mutant = {shape} {opcode}({name}, mutant.1)",
    ])  # fmt: skip


@outside
def computed_with(text: Text) -> Iterator[Mutant]:
    """What no site does with data: products, negations, sums of floats, even where they keep it. (-0.0 + 0.0 is 0.0.)"""
    for n, line in text.results():
        if line.dims is None or line.element == "pred":
            continue
        one, zero = _ONE.get(line.element, "1"), "(0, 0)" if line.element == "c64" else "0"
        ways = [("multiply", one), ("subtract", zero), ("divide", one)]
        if line.element[0] not in "su":
            ways += [("add", zero), ("add", one), ("add", "-0")]
        if line.element[0] in "fbsu":
            ways.append(("maximum", "0"))
        for opcode, value in ways:
            made = _combined(text, n, line, opcode, value) if value != "-0" or line.element != "c64" else None
            if made:
                yield f"{line.name}: {opcode} {value}", made
        made = text.after_result(n, lambda name, shape: [f"mutant = {shape} negate({name})"])
        if made and line.element[0] != "u":
            yield f"{line.name}: negated", made


@mutation
def moved_after(text: Text) -> Iterator[Mutant]:
    """The result reversed, turned by one row, read in another order, permuted once more, its first row everywhere."""
    for n, line in text.results():
        dims = line.dims
        if not dims or ("{" in line.shape and text.lines and "is_scheduled" in str(text.lines[0])):
            continue
        shape = line.shape
        wide = [d for d, size in enumerate(dims) if size > 1]
        for d in wide:
            made = text.after_result(n, lambda name, _, d=d: [f"mutant = {shape} reverse({name}), dimensions={{{d}}}"])  # type: ignore[misc] # noqa: B023
            if made:
                yield f"{line.name}: reversed in {d}", made
        flipped = dims[::-1]
        made = text.after_result(n, lambda name, shape: [
            f"mutant.0 = {line.element}[{','.join(map(str, flipped))}] reshape({name})",  # noqa: B023
            f"mutant = {shape} transpose(mutant.0), dimensions={{{','.join(map(str, range(len(dims))[::-1]))}}}",  # noqa: B023
        ])  # fmt: skip
        if made and len(dims) > 1:
            yield f"{line.name}: read in another order", made
        made = text.after_result(n, lambda name, shape: [
            f"mutant.0 = {line.element}[{','.join(map(str, dims[1:]))}] reshape(mutant.1)",  # noqa: B023
            f"mutant = {shape} broadcast(mutant.0), dimensions={{{','.join(map(str, range(1, len(dims))))}}}",  # noqa: B023
        ])  # fmt: skip
        first = ", ".join(f"[0:{1 if d == 0 else s}]" for d, s in enumerate(dims))
        one = f"mutant.1 = {line.element}[{','.join(map(str, [1, *dims[1:]]))}] slice({line.name}), slice={{{first}}}"
        if made and dims[0] > 1:
            yield (
                f"{line.name}: its first row",
                made.replace(f"{line.indent}mutant.0 =", f"{line.indent}{one}\n{line.indent}mutant.0 ="),
            )
