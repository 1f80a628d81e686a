"""Edits that mostly change nothing of what is computed: a site has to be shown with them all the same.

An engine decides here too: where operands depend on each other, an exchanged pair of lines is no module any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from .more_mutations import WIDE, of_type
from .mutations import Line, Mutant, Text, groups_of, mutation, outside, tables

_COMMUTE = ("multiply", "add", "and", "or", "xor", "maximum", "minimum")
_KEEPS = ("copy", "opt-barrier", "reverse", "transpose", "reshape", "slice", "concatenate", "pad", "dynamic-slice", "or",
          "select", "tuple", "convert", "broadcast", "bitcast-convert", "dynamic-update-slice", "gather")  # fmt: skip
_SAME_WIDTH = {"f32": "u32", "s32": "f32", "bf16": "u16", "s64": "f64", "u8": "s8", "u32": "s32"}


@mutation
def commuted(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions(*_COMMUTE):
        yield line.name, text.edited({n: line.with_operands(line.operands[::-1])})


@mutation
def renamed(text: Text) -> Iterator[Mutant]:
    """Everything in the sites."""
    names = {line.name: f"{line.name}.renamed" for _, line in text.instructions()}
    if not names:
        return
    pattern = re.compile(
        r"(?<![\w.\-%])(" + "|".join(map(re.escape, sorted(names, key=len, reverse=True))) + r")(?![\w.\-])"
    )
    lines = []
    for line in text.lines:
        if isinstance(line, Line):
            line = replace(
                line,
                name=names.get(line.name, line.name),
                inside=", ".join(names.get(o, o) for o in line.operands) if line.operands else line.inside,
            )
            waits = line.attribute("control-predecessors")
            if waits is not None:
                line = line.with_attribute("control-predecessors", pattern.sub(lambda m: names[m[1]], waits))
        lines.append(str(line))
    yield "all", "\n".join(lines)


@mutation
def lines_exchanged(text: Text) -> Iterator[Mutant]:
    """Two neighbours, or an instruction moved to its computation's start."""
    for n, line in text.instructions():
        following = text.lines[n + 1] if n + 1 in text.site else None
        if isinstance(following, Line) and line.name not in following.operands:
            yield f"{line.name} and {following.name}", text.edited({n: following, n + 1: line})
        if not line.operands and line.opcode != "parameter":
            start = text.computation(n)[0]
            first = text.lines[start]
            if start != n:
                yield f"{line.name} first", text.edited({n: None, start: [line, first]})


@mutation
def attribute_that_says_nothing(text: Text) -> Iterator[Mutant]:
    """constrain_layout, metadata, groups as an iota."""
    for n, line in text.instructions():
        if line.opcode == "all-gather" and line.attribute("constrain_layout") is None:
            yield (
                f"{line.name} constrained",
                text.edited({n: replace(line, tail=f", constrain_layout=true{line.tail}")}),
            )
        named = replace(line, tail=line.tail + ', metadata={op_name="mutant"}')
        if line.attribute("metadata") is None:
            yield f"{line.name} with metadata", text.edited({n: named})
        groups = groups_of(line.attribute("replica_groups"))
        if groups and [m for g in groups for m in g] == list(range(sum(map(len, groups)))):
            iota = f"[{len(groups)},{len(groups[0])}]<=[{sum(map(len, groups))}]"
            yield f"{line.name}: iota", text.edited({n: line.with_attribute("replica_groups", iota)})
            pieces = "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"
            yield f"{line.name}: list", text.edited({n: line.with_attribute("replica_groups", pieces)})
            yield f"{line.name}: all", text.edited({n: line.with_attribute("replica_groups", "{}")})


@mutation
def moved_and_back(text: Text) -> Iterator[Mutant]:
    """Movement between a site and its users that comes to nothing."""
    for n, line in text.results():
        dims, shape = line.dims, line.shape
        if dims is None or "is_scheduled" in str(text.lines[0]):
            continue
        for kind in _KEEPS:
            lines = _kept(kind, line, dims)
            if lines:
                made = text.after_result(n, lambda name, _, lines=lines: lines)  # type: ignore[misc]
                if made:
                    yield f"{line.name}: {kind} {shape}", made


def _kept(kind: str, line: Line, dims: list[int]) -> list[str]:
    name, shape, element = line.name, line.shape, line.element
    sizes = ",".join(map(str, dims))
    total = 1
    for size in dims:
        total *= size
    order = ",".join(map(str, range(len(dims))[::-1]))
    turned = f"{element}[{','.join(map(str, dims[::-1]))}]"
    every = ",".join(map(str, range(len(dims))))
    zero = {"pred": "false", "c64": "(0, 0)"}.get(element, "0")
    at_zero = [f"mutant.{i} = s32[] constant({i * 7})" for i in range(len(dims))]
    indices = "".join(f", mutant.{i}" for i in range(len(dims)))
    found: dict[str, list[str]] = {
        "copy": [f"mutant = {shape} copy({name})"],
        "opt-barrier": [f"mutant = {shape} opt-barrier({name})"],
        "tuple": [f"mutant.0 = ({shape}, {shape}) tuple({name}, {name})",
                  f"mutant = {shape} get-tuple-element(mutant.0), index=1"],
        "select": ["mutant.0 = pred[] constant(true)", f"mutant.1 = {element}[] constant({zero})",
                   f"mutant.2 = {shape} broadcast(mutant.1), dimensions={{}}",
                   f"mutant = {shape} select(mutant.0, {name}, mutant.2)"],
    }  # fmt: skip
    if dims:
        whole = ", ".join(f"[0:{size}]" for size in dims)
        found |= {
            "reverse": [f"mutant.0 = {shape} reverse({name}), dimensions={{{every}}}",
                        f"mutant = {shape} reverse(mutant.0), dimensions={{{every}}}"],
            "transpose": [f"mutant.0 = {turned} transpose({name}), dimensions={{{order}}}",
                          f"mutant = {shape} transpose(mutant.0), dimensions={{{order}}}"],
            "reshape": [f"mutant.0 = {element}[{total}] reshape({name})", f"mutant = {shape} reshape(mutant.0)"],
            "slice": [f"mutant = {shape} slice({name}), slice={{{whole}}}"],
            "concatenate": [f"mutant.0 = {element}[{','.join(map(str, [2 * dims[0], *dims[1:]]))}] "
                            f"concatenate({name}, {name}), dimensions={{0}}",
                            f"mutant = {shape} slice(mutant.0), slice={{{whole}}}"],
            "pad": [f"mutant.0 = {element}[] constant({zero})",
                    f"mutant.1 = {element}[{','.join(map(str, [dims[0] + 1, *dims[1:]]))}] pad({name}, mutant.0), "
                    f"padding={'x'.join(['1_0'] + ['0_0'] * (len(dims) - 1))}",
                    f"mutant = {shape} slice(mutant.1), "
                    f"slice={{{', '.join([f'[1:{dims[0] + 1}]', *(f'[0:{s}]' for s in dims[1:])])}}}"],
            "dynamic-slice": [*at_zero, f"mutant = {shape} dynamic-slice({name}{indices}), dynamic_slice_sizes={{{sizes}}}"],
            "dynamic-update-slice": [*at_zero, f"mutant.zero = {element}[] constant({zero})",
                                     f"mutant.zeros = {shape} broadcast(mutant.zero), dimensions={{}}",
                                     f"mutant = {shape} dynamic-update-slice(mutant.zeros, {name}{indices})"],
            "broadcast": [f"mutant.0 = {element}[3,{sizes}] broadcast({name}), "
                          f"dimensions={{{','.join(map(str, range(1, len(dims) + 1)))}}}",
                          f"mutant.1 = {element}[1,{sizes}] slice(mutant.0), slice={{[2:3], {whole}}}",
                          f"mutant = {shape} reshape(mutant.1)"],
        }  # fmt: skip
    if element in ("s32", "u8", "s8", "u32", "s64", "u16", "s4", "pred"):
        wide = WIDE.get(element)
        found["or"] = [f"mutant.0 = {element}[] constant({zero})", f"mutant.1 = {shape} broadcast(mutant.0), dimensions={{}}",
                       f"mutant = {shape} or(mutant.1, {name})"]  # fmt: skip
        if wide:
            found["convert"] = [
                f"mutant.0 = {of_type(shape, wide)} convert({name})",
                f"mutant = {shape} convert(mutant.0)",
            ]
    if element in _SAME_WIDTH:
        other = of_type(shape, _SAME_WIDTH[element])
        found["bitcast-convert"] = [f"mutant.0 = {other} bitcast-convert({name})",
                                    f"mutant = {shape} bitcast-convert(mutant.0)"]  # fmt: skip
    return found.get(kind, [])


@outside
def converted_wide_and_back(text: Text) -> Iterator[Mutant]:
    """Which floats survive but for the payloads of NaNs."""
    for n, line in text.results():
        if line.element in ("f32", "bf16", "f8e4m3fn") and line.dims is not None:
            wide = of_type(line.shape, WIDE[line.element])
            made = text.after_result(n, lambda name, shape, wide=wide: [  # type: ignore[misc]
                f"mutant.0 = {wide} convert({name})", f"mutant = {shape} convert(mutant.0)",
            ])  # fmt: skip
            if made:
                yield line.name, made


@mutation
def sliced_twice(text: Text) -> Iterator[Mutant]:
    """The slice of the gather sliced once more at the same place: clamped, it stays whole."""
    for n, line in text.instructions("dynamic-slice"):
        if line.dims:
            again = replace(line, inside=", ".join(["mutant", *line.operands[1:]]))
            yield line.name, text.edited({n: [replace(line, name="mutant", root=""), again]})


@mutation
def index_written_otherwise(text: Text) -> Iterator[Mutant]:
    """An index plus zero, times one, in another type, less what was added."""
    for n, line in text.instructions("dynamic-slice", "gather", "dynamic-update-slice"):
        first = 2 if line.opcode == "dynamic-update-slice" else 1
        if len(line.operands) <= first:
            continue
        index = line.operands[first]
        shape = text.shape_of(n, index)
        if shape is None or "[]" not in shape:
            continue
        constant = "mutant.0 = {} constant({})"
        ways = {
            "plus zero": [constant.format(shape, 0), f"mutant = {shape} add({index}, mutant.0)"],
            "times one": [constant.format(shape, 1), f"mutant = {shape} multiply({index}, mutant.0)"],
            "there and back": [constant.format(shape, 5), f"mutant.1 = {shape} add({index}, mutant.0)",
                               f"mutant = {shape} subtract(mutant.1, mutant.0)"],
            "or zero": [constant.format(shape, 0), f"mutant = {shape} or({index}, mutant.0)"],
            "shifted by none": [constant.format(shape, 0), f"mutant = {shape} shift-left({index}, mutant.0)"],
            "largest": [constant.format(shape, 0), f"mutant = {shape} maximum({index}, mutant.0)"],
            "by way of s64": [f"mutant.1 = s64[] convert({index})", f"mutant = {shape} convert(mutant.1)"],
            "by way of a vector": [f"mutant.1 = {shape.replace('[]', '[3]')} broadcast({index}), dimensions={{}}",
                                   f"mutant.2 = {shape.replace('[]', '[1]')} slice(mutant.1), slice={{[1:2]}}",
                                   f"mutant = {shape} reshape(mutant.2)"],
            "by way of a barrier": [f"mutant = {shape} opt-barrier({index})"],
        }  # fmt: skip
        operands = list(line.operands)
        operands[first] = "mutant"
        for way, added in ways.items():
            new = [f"{line.indent}{one}" for one in added]
            yield f"{line.name}: {way}", text.edited({n: [*new, line.with_operands(operands)]})


@mutation
def table_written_otherwise(text: Text) -> Iterator[Mutant]:
    """As a sum of an iota, in two halves, reversed twice, negated twice."""
    for n, line, entries in tables(text):
        shape, size, element = line.shape, len(entries), line.element
        if line.dims is None or element not in ("s32", "u32"):
            continue
        half = size // 2
        rest = f"{element}[{size - half}]"
        shifts = ", ".join(str((e - i) % (1 << 32) if element == "u32" else e - i) for i, e in enumerate(entries))
        ways = {
            "iota": [f"mutant.0 = {shape} iota(), iota_dimension=0", f"mutant.1 = {shape} constant({{{shifts}}})",
                     f"{line.name} = {shape} add(mutant.0, mutant.1)"],
            "halves": [f"mutant.0 = {element}[{half}] constant({{{', '.join(map(str, entries[:half]))}}})",
                       f"mutant.1 = {rest} constant({{{', '.join(map(str, entries[half:]))}}})",
                       f"{line.name} = {shape} concatenate(mutant.0, mutant.1), dimensions={{0}}"],
            "reversed": [f"mutant.0 = {shape} constant({{{', '.join(map(str, entries[::-1]))}}})",
                         f"{line.name} = {shape} reverse(mutant.0), dimensions={{0}}"],
            "inverted": [f"mutant.0 = {shape} constant({{{', '.join(map(str, entries))}}})",
                         f"mutant.1 = {shape} not(mutant.0)", f"{line.name} = {shape} not(mutant.1)"],
            "sorted by a gather": [
                f"mutant.0 = {shape} constant({{{', '.join(map(str, entries[::-1]))}}})",
                f"mutant.1 = s32[{size},1] constant({{{', '.join(f'{{{i}}}' for i in range(size))[::1]}}})",
                f"mutant.2 = s32[{size},1] reverse(mutant.1), dimensions={{0}}",
                f"{line.name} = {shape} gather(mutant.0, mutant.2), offset_dims={{}}, collapsed_slice_dims={{0}}, "
                "start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
            ],
        }  # fmt: skip
        for way, lines in ways.items():
            yield f"{line.name}: {way}", text.edited({n: [f"{line.indent}{one}" for one in lines]})


@mutation
def operand_moved_and_back(text: Text) -> Iterator[Mutant]:
    """A copy or a reversal before a collective, and what undoes it."""
    for n, line in text.instructions("all-gather", "collective-permute"):
        if len(line.operands) != 1 or line.dims is None or "is_scheduled" in str(text.lines[0]):
            continue
        own = text.shape_of(n, line.operands[0])
        dims = line.attribute("dimensions")
        copied = [f"{line.indent}mutant = {own} copy({line.operands[0]})", line.with_operands(["mutant"])]
        yield f"{line.name}: copied", text.edited({n: copied})
        if (len(line.dims) > 1 and line.opcode == "collective-permute") or (dims in ("{0}",) and len(line.dims) > 1):
            for d, undone in ((1, True), (1, False), (0, True)):
                if line.opcode == "all-gather" and d == 0:
                    continue
                lines: list[Line | str] = [
                    f"{line.indent}mutant = {own} reverse({line.operands[0]}), dimensions={{{d}}}",
                    replace(line.with_operands(["mutant"]), name="mutant.1" if undone else line.name,
                            root="" if undone else line.root),
                ]  # fmt: skip
                if undone:
                    back = f"{line.root}{line.name} = {line.shape} reverse(mutant.1), dimensions={{{d}}}"
                    lines.append(f"{line.indent}{back}")
                yield f"{line.name}: reversed in {d}{'' if undone else ', not back'}", text.edited({n: lines})  # type: ignore[dict-item]


@mutation
def dead_movement_added(text: Text) -> Iterator[Mutant]:
    for n, line in text.results():
        if line.dims is not None:
            dead = [f"mutant = {line.shape} copy({line.name})", f"mutant.1 = {line.shape} opt-barrier(mutant)"]
            new: list[Line | str] = [line, *(f"{line.indent}{one}" for one in dead)]
            yield line.name, text.edited({n: new})


@mutation
def dead_collective_added(text: Text) -> Iterator[Mutant]:
    for n, line in text.instructions("all-gather", "collective-permute"):
        if not line.shape.startswith("("):
            twin = replace(line, name="mutant", root="").with_attribute("channel_id", "79")
            if line.attribute("channel_id") is not None:
                yield line.name, text.edited({n: [twin, line]})


@outside
def dead_computation_added(text: Text) -> Iterator[Mutant]:
    for n, line in text.results():
        if line.dims is not None and line.element not in ("pred", "u8", "u32", "u16"):
            yield line.name, text.edited({n: [line, f"{line.indent}mutant = {line.shape} negate({line.name})"]})


@mutation
def permuted_twice(text: Text) -> Iterator[Mutant]:
    """A site's result handed on in a ring and back, or on alone."""
    head = str(text.lines[0])
    partitions = re.search(r"num_partitions=(\d+)", head)
    replicas = re.search(r"replica_count=(\d+)", head)
    axis, channel = (partitions, "channel_id=90, ") if partitions and int(partitions[1]) > 1 else (replicas, "")
    if axis is None:
        return
    size = int(axis[1])
    on = "{" + ",".join(f"{{{i},{(i + 1) % size}}}" for i in range(size)) + "}"
    back = "{" + ",".join(f"{{{(i + 1) % size},{i}}}" for i in range(size)) + "}"
    for n, line in text.results():
        if line.dims is None or line.element in ("s4", "bf16", "f8e4m3fn"):
            continue
        for pairs in ([on, back], [on], [on, on]):
            names = [f"mutant.{i}" for i in range(len(pairs) - 1)] + ["mutant"]
            made = text.after_result(n, lambda name, shape, pairs=pairs, names=names: [  # type: ignore[misc]
                f"{new} = {shape} collective-permute({old}), {channel.replace('90', str(90 + i))}source_target_pairs={p}"
                for i, (new, old, p) in enumerate(zip(names, [name, *names], pairs, strict=False))
            ])  # fmt: skip
            if made:
                yield f"{line.name}: {len(pairs)} {'there and back' if pairs == [on, back] else 'on'}", made
