"""`cp2ag run`.

numpy and the executor are loaded only inside the command, rich only for a bar on a terminal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from hlo_cp2ag.cli import console, files
from hlo_cp2ag.cli.flags import flag, grid_flags
from hlo_cp2ag.cli.grid import grid_warnings, module_grid, read_module
from hlo_cp2ag.cli.progress import Steps, bar
from hlo_cp2ag.cli.run_setup import functions_of, in_order, memory_size, outfeed_npz, read_npz, sum_in_one_order
from hlo_cp2ag.ir.module import HloModule, Instruction
from hlo_cp2ag.ir.shape import ArrayShape, BufferShape, element_bits, leaves
from hlo_cp2ag.ir.source import Diagnostic, HloError
from hlo_cp2ag.lowering.config import GridConfig
from hlo_cp2ag.lowering.gate import repeated_pairs
from hlo_cp2ag.lowering.sites import permutes

if TYPE_CHECKING:
    import numpy as np

    from hlo_cp2ag.executor.values import Value

    Array = np.ndarray[Any, np.dtype[Any]]

_MOST_GROUPS = 16
"""The most different values of one array that are printed, one for each group of devices that agree."""
_LINE = 110
_SHOWN_WHOLE = 1000
"""Arrays with more elements are printed with their middle left out."""


@click.command(
    "run",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Examples:
  cp2ag run ring.hlo --inputs in.npz --outputs out.npz --num-partitions 8
  cp2ag rewrite ring.hlo | cp2ag run - --seed 7 --print --trace 'all-gather|dynamic-slice'
""",
)
@click.argument("in_path", metavar="[IN]", default="-")
@flag(
    "--inputs",
    "inputs_path",
    metavar="NPZ",
    help="Arguments p0, p1, ..., each [devices, ...], or [...] for the same on all devices; - is stdin. Types that "
    "numpy lacks are unsigned integers of the same width. Default: seeded random ones.",
)
@flag(
    "-o",
    "--outputs",
    "outputs_path",
    metavar="NPZ",
    help="Write the results o0, o1, ..., each [devices, ...]; - is stdout.",
)
@grid_flags
@flag(
    "--profile",
    type=click.Choice(["xla", "neuron"]),
    default="xla",
    show_default=True,
    help="neuron: replica-id is the flat rank, pairs name flat ranks, and a device that no pair targets keeps its "
    "operand.",
)
@flag(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    metavar="S",
    show_default=True,
    help="Of random arguments and filled constants: floats standard normal, integers -9 to 9, preds coin flips.",
)
@flag(
    "--fill-elided",
    type=click.Choice(["random"]),
    help="Give constants that were printed {...} seeded values; else they are an error.",
)
@flag(
    "--print",
    "show",
    is_flag=True,
    help="Show the outputs on stdout. Default if there is neither --outputs nor --json.",
)
@flag("--json", "as_json", is_flag=True, help="Describe the outputs on stdout for machines: shapes and SHA-256.")
@flag(
    "--trace", metavar="REGEX", help="Print on stderr what instructions compute whose name or opcode matches somewhere."
)
@flag(
    "--max-memory",
    callback=memory_size,
    default="4GiB",
    metavar="SIZE",
    show_default=True,
    help="Refuse what is estimated to take more; GB is 1000^3 bytes, GiB 1024^3.",
)
@flag(
    "--max-steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop when more instructions are run, loop iterations included.",
)
@flag(
    "--custom-call",
    "custom_calls",
    multiple=True,
    metavar="NAME=MODULE:FUNCTION",
    help="The Python function that computes a custom-call's target: numpy arrays in, an array or a tuple out, once for "
    "each device. Can stand several times.",
)
@flag(
    "--infeed",
    "infeed_path",
    metavar="NPZ",
    help="What infeeds take: f0, f1, ..., one a leaf, in the order in which they run.",
)
@flag("--outfeed", "outfeed_path", metavar="NPZ", help="Write what outfeeds put out: f0, f1, ..., each [devices, ...].")
@flag("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
def command(
    in_path: str,
    inputs_path: str | None,
    outputs_path: str | None,
    replica_count: int | None,
    num_partitions: int | None,
    secondary_mesh_count: int,
    strict_grid: bool,
    profile: str,
    seed: int,
    fill_elided: str | None,
    show: bool,
    as_json: bool,
    trace: str | None,
    max_memory: int,
    max_steps: int | None,
    custom_calls: tuple[str, ...],
    infeed_path: str | None,
    outfeed_path: str | None,
    quiet: bool,
) -> int:
    """Run the per-device module IN on replicas x partitions simulated devices, in numpy.

    IN defaults to - (stdin). Device = replica * num_partitions + partition. Nothing runs unless every opcode is
    supported and every shape fits.
    """
    sum_in_one_order()
    show = show or (outputs_path is None and not as_json)
    _refuse_conflicts(in_path, inputs_path, outputs_path, show, as_json)
    _refuse_feeds(in_path, inputs_path, infeed_path, outfeed_path, outputs_path, show or as_json)
    module = read_module(in_path)
    module.check()
    config = module_grid(module, replica_count, num_partitions, secondary_mesh_count, strict_grid)
    devices = config.grid.device_count
    warnings = [*grid_warnings(module, config), *(_repeated_pairs(module) if profile == "neuron" else ())]
    if not quiet:
        for warning in warnings:
            console.warning(warning)
    inputs = None if inputs_path is None else read_npz(inputs_path, max_memory)
    infeed = [] if infeed_path is None else in_order(read_npz(infeed_path, max_memory), infeed_path)
    outfeed: list[Array] = []
    functions = functions_of(custom_calls)
    tracer = None if trace is None else _Tracer(trace, devices)

    from hlo_cp2ag.executor.inputs import output_shapes
    from hlo_cp2ag.executor.run import run

    steps = Steps()
    try:
        if outputs_path is not None or as_json:
            _bound_outputs(module, devices, max_memory)
        with bar(steps, console.is_terminal() and tracer is None):
            outputs = run(
                module,
                inputs,
                config.replica_count.value,
                config.num_partitions.value,
                cast(Literal["xla", "neuron"], profile),
                seed=seed,
                fill_elided=cast("Literal['random'] | None", fill_elided),
                max_memory=max_memory,
                max_steps=max_steps,
                trace=None if tracer is None else (tracer.pattern, tracer),
                progress=steps,
                custom_calls=functions,
                infeed=infeed,
                outfeed=outfeed,
            )
    except HloError as error:
        raise _explained(error, module, config, inputs, inputs_path) from None
    shapes = output_shapes(module)
    if tracer is not None and not tracer.matched and not quiet:
        message = f"--trace {trace}: no instruction that was run has such a name or opcode"
        console.warning(module.source.diagnostic(module.entry.name_span.start, message, severity="warning"))
    if outputs_path is not None:
        files.write_bytes(outputs_path, _npz(outputs, shapes))
    if outfeed_path is not None:
        files.write_bytes(outfeed_path, outfeed_npz(outfeed))
    if as_json:
        report = {
            "tool": _tool(),
            "input": files.shown(in_path),
            "name": module.name,
            "configuration": {
                "replica_count": {"value": config.replica_count.value, "source": config.replica_count.source},
                "num_partitions": {"value": config.num_partitions.value, "source": config.num_partitions.source},
                "total": devices,
                "is_lower_bound": config.is_lower_bound,
                "profile": profile,
                "inputs": None if inputs_path is None else files.shown(inputs_path),
                "seed": seed,
                "fill_elided": fill_elided,
            },
            "steps": steps.count,
            "outputs": [_described(f"o{i}", *pair) for i, pair in enumerate(zip(outputs, shapes, strict=True))],
            "warnings": [warning.header() for warning in warnings],
        }
        import json

        files.write_bytes("-", (json.dumps(report, indent=2) + "\n").encode())
    if show:
        lines = [] if outputs else ["no outputs"]
        for i, (array, shape) in enumerate(zip(outputs, shapes, strict=True)):
            lines += [f"o{i} = {shape.to_text(False)}", *_readable(array, shape.element_type, devices)]
        files.write_bytes("-", ("\n".join(lines) + "\n").encode())
    if not quiet:
        where = f" -> {outputs_path}" if outputs_path not in (None, "-") else ""
        console.summary(f"ran {steps.count:,} instructions on {config.grid} devices; {config.describe()}{where}")
    return 0


def _tool() -> str:
    from hlo_cp2ag import __version__

    return f"cp2ag {__version__}"


# ---- before the run --------------------------------------------------------------------------------------------------


def _refuse_feeds(
    in_path: str,
    inputs_path: str | None,
    infeed_path: str | None,
    outfeed_path: str | None,
    outputs_path: str | None,
    to_stdout: bool,
) -> None:
    if infeed_path == "-" and "-" in (in_path, inputs_path):
        raise click.UsageError("stdin cannot be --infeed and the module or --inputs: give one of them a file name")
    if outfeed_path is None:
        return
    if outfeed_path == "-" and (to_stdout or outputs_path == "-"):
        raise click.UsageError("--outfeed - needs stdout for itself: give --outputs a file name")
    if outfeed_path != "-" and any(
        path is not None and path != "-" and files.same_file(path, outfeed_path)
        for path in (in_path, inputs_path, infeed_path, outputs_path)
    ):
        raise click.UsageError(f"--outfeed {outfeed_path} would overwrite another of the files")


def _refuse_conflicts(
    in_path: str, inputs_path: str | None, outputs_path: str | None, show: bool, as_json: bool
) -> None:
    if in_path == "-" and inputs_path == "-":
        raise click.UsageError("stdin cannot be both the module and --inputs: give one of them a file name")
    if (outputs_path == "-") + show + as_json > 1:
        raise click.UsageError("--outputs -, --print and --json each need stdout for themselves")
    if outputs_path is None or outputs_path == "-":
        return
    if files.same_file(in_path, outputs_path):
        raise click.UsageError(f"--outputs {outputs_path} would overwrite the module")
    # What is certain to fail at the end of a long run is said at its start.
    reason = ""
    with contextlib.suppress(ValueError):
        parent = os.path.dirname(os.path.realpath(outputs_path))
        if os.path.isdir(outputs_path):
            reason = "Is a directory"
        elif not os.path.isdir(parent):
            reason = "No such file or directory" if not os.path.exists(parent) else "Not a directory"
        elif not os.access(outputs_path if os.path.exists(outputs_path) else parent, os.W_OK):
            reason = "Permission denied"
    if reason:
        raise HloError(f"{outputs_path}: error: cannot write it: {reason}")


def _repeated_pairs(module: HloModule) -> Iterator[Diagnostic]:
    """What is repeated in the pairs of permutes; under the profile "xla" the run refuses it."""
    for permute in permutes(module):
        pairs = cast("tuple[tuple[int, int], ...]", permute.attribute("source_target_pairs", ()))
        for text in repeated_pairs(pairs):
            yield module.source.diagnostic(permute.name_span.start, text, severity="warning")


def _bound_outputs(module: HloModule, devices: int, max_memory: int) -> None:
    """Raise before the run if the npz file would take too much memory: each device's outputs are in it."""
    size = sum(map(_bytes, _leaves(module.entry.root))) * devices
    if size > max_memory:
        number = "one device" if devices == 1 else f"{devices:,} devices"
        message = (
            f"the outputs of {number} take {size:,} bytes of memory, more than the {max_memory:,} allowed "
            "(--max-memory)"
        )
        hint = "a larger --max-memory lets it run"
        raise HloError(module.source.diagnostic(module.entry.root.name_span.start, message, hint=hint))


def _leaves(instruction: Instruction) -> Iterator[ArrayShape]:
    for leaf in leaves(instruction.shape):
        shape = leaf.array if isinstance(leaf, BufferShape) else leaf
        if shape.is_data:
            yield shape


def _bytes(shape: ArrayShape) -> int:
    return shape.element_count * max(1, element_bits(shape.element_type) // 8)


# ---- what went wrong -------------------------------------------------------------------------------------------------

_NAMED_INPUT = re.compile(r"\binput (p[0-9]{1,9})\b")


def _explained(
    error: HloError, module: HloModule, config: GridConfig, inputs: Mapping[str, Array] | None, inputs_path: str | None
) -> HloError:
    """The executor's error with a place in the module, and with a hint that names flags and files of this command."""
    first = error.diagnostics[0]
    if isinstance(first, Diagnostic):
        hint = first.hint
        if "elided constant" in first.message:
            hint = "dump with large constants, or give it seeded values by --fill-elided random"
        elif not hint and ("of the grid" in first.message or "in none of the replica_groups" in first.message):
            hint = f"the grid is {config.describe()}; --replica-count and --num-partitions set it"
        return HloError(dataclasses.replace(first, hint=hint), *error.diagnostics[1:])
    named = _NAMED_INPUT.search(first)
    place, hint = module.entry.name_span.start, ""
    if inputs is not None and inputs_path is not None:
        parameter = None if named is None else _parameter(module, named.group(1))
        if parameter is not None:
            place = parameter[0].name_span.start
        array = None if named is None else inputs.get(named.group(1))
        if parameter is not None and array is not None:
            if "has elements of" in first:
                hint = _type_hint(parameter[1])
            elif "has the value" in first:
                hint = _bits_hint(parameter[1])
            else:
                hint = _input_hint(array, parameter[1], config)
        else:
            keys = ", ".join(list(inputs)[:8]) + (", ..." if len(inputs) > 8 else "") if inputs else "nothing"
            hint = f"{files.shown(inputs_path)} holds {keys}; the keys are p0, p1, ... in the parameters' order"
    return HloError(module.source.diagnostic(place, first, hint=hint))


def _parameter(module: HloModule, name: str) -> tuple[Instruction, ArrayShape] | None:
    """The entry's parameter that takes the input of a name, and the shape of that leaf."""
    from hlo_cp2ag.executor.plan import ModuleIndex

    number = int(name[1:])
    for parameter in ModuleIndex(module).parameters(module.entry):
        shapes = list(_leaves(parameter))
        if number < len(shapes):
            return parameter, shapes[number]
        number -= len(shapes)
    return None


def _input_hint(array: Array, shape: ArrayShape, config: GridConfig) -> str:
    if array.shape[1:] == shape.dimensions and array.ndim == len(shape.dimensions) + 1:
        grid = f"the grid has {config.grid.device_count}: {config.describe()}"
        return f"the array is for {array.shape[0]} devices, {grid}; --replica-count and --num-partitions set it"
    return ""


def _type_hint(shape: ArrayShape) -> str:
    from hlo_cp2ag.ir.element_types import NUMPY_NAMES, dtype_of

    dtype = dtype_of(shape.element_type)
    if shape.element_type in NUMPY_NAMES:
        return f"array.astype(numpy.{dtype.name}) makes it one"
    return f"numpy has no {shape.element_type}: store its bits as uint{8 * dtype.itemsize}"


def _bits_hint(shape: ArrayShape) -> str:
    if shape.element_type == "pred":
        return "(array != 0) makes it one"
    bits = element_bits(shape.element_type)
    return f"array & {(1 << bits) - 1} keeps the {bits} bits of {shape.element_type}"


# ---- while it runs ---------------------------------------------------------------------------------------------------


class _Tracer:
    """Prints what matching instructions compute."""

    def __init__(self, pattern: str, devices: int) -> None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise HloError(f"cp2ag: error: --trace is no regular expression: {error}") from None
        self.pattern = pattern
        self.matched = False
        self._devices = devices
        self._heads: dict[Instruction, str] = {}

    def __call__(self, instruction: Instruction, value: Value, active: Array | None) -> None:
        self.matched = True
        head = self._heads.get(instruction)
        if head is None:
            what = f"{instruction.name} = {instruction.shape.to_text(False)} {instruction.opcode}"
            place = instruction.module.source.diagnostic(instruction.name_span.start, what, severity="note")
            head = self._heads[instruction] = place.header().replace(" note: ", " trace: ", 1)
        console.say("\n".join([head, *self._lines(instruction, value, active)]), "trace")

    def _lines(self, instruction: Instruction, value: Value, active: Array | None) -> Iterator[str]:
        from hlo_cp2ag.executor.values import Token
        from hlo_cp2ag.executor.values import leaves as value_leaves

        shapes = list(leaves(instruction.shape))
        for number, (leaf, shape) in enumerate(zip(value_leaves(value), shapes, strict=True)):
            array = shape.array if isinstance(shape, BufferShape) else shape
            if len(shapes) > 1 or isinstance(value, tuple):
                yield f"  leaf {number}: {array.to_text(False)}"
            if not isinstance(leaf, Token):
                yield from _readable(leaf, array.element_type, self._devices, active)


# ---- what comes out --------------------------------------------------------------------------------------------------


def _npz(outputs: Sequence[Array], shapes: Sequence[ArrayShape]) -> bytes:
    """The outputs as an npz file, the same bytes for the same arrays."""
    import io

    import numpy as np

    from hlo_cp2ag.executor.inputs import pack

    stream = io.BytesIO()
    arrays: dict[str, Array] = {}
    for i, (array, shape) in enumerate(zip(outputs, shapes, strict=True)):
        packed = pack(_collapsed(array), shape.element_type)
        arrays[f"o{i}"] = np.broadcast_to(packed, (array.shape[0], *packed.shape[1:]))
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _collapsed(array: Array) -> Array:
    """The array with a device axis of length 1 if all devices have the same bits; a view of one costs nothing."""
    from hlo_cp2ag.executor.values import collapse

    return collapse(array)


def _described(name: str, array: Array, shape: ArrayShape) -> dict[str, Any]:
    """One output for machines; the hash is of the npz array's elements, row-major and little-endian."""
    import hashlib

    from hlo_cp2ag.executor.inputs import pack

    one = pack(_collapsed(array), shape.element_type)
    little = one.astype(one.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.sha256()
    for _ in range(array.shape[0] if one.shape[0] == 1 else 1):
        digest.update(little.tobytes())
    return {
        "name": name,
        "element_type": shape.element_type,
        "dimensions": list(shape.dimensions),
        "stored_as": one.dtype.name,
        "devices": array.shape[0],
        "devices_agree": one.shape[0] == 1,
        "sha256": digest.hexdigest(),
    }


def _readable(array: Array, element_type: str, devices: int, active: Array | None = None) -> list[str]:
    """An array `[1 or devices, ...]` for people: one entry for each group of devices that have the same bits.

    Where there is `active` `[devices]`, the devices for which it is false are left out.
    """
    present = list(range(devices)) if active is None else active.nonzero()[0].tolist()
    groups = _groups(array, present)
    lines: list[str] = []
    for members in groups[:_MOST_GROUPS]:
        if len(members) == devices:
            label = "every device" if devices > 1 else ""
        else:
            label = ("device " if len(members) == 1 else "devices ") + _ranges(members)
        rows = [
            row
            for row in _elements(array[members[0] if array.shape[0] > 1 else 0], element_type).splitlines()
            if row.strip()
        ]
        if len(rows) == 1:
            lines.append("  " + (f"{label}: " if label else "") + rows[0])
        else:
            lines += [f"  {label}:"] * bool(label) + ["  " + "  " * bool(label) + row for row in rows]
    if len(groups) > _MOST_GROUPS:
        rest = sum(map(len, groups[_MOST_GROUPS:]))
        lines.append(f"  ... and {rest} more devices with {len(groups) - _MOST_GROUPS} other values")
    return lines


def _groups(array: Array, present: list[int]) -> list[list[int]]:
    """The devices among `present` that have the same bits, by their first ones."""
    import hashlib

    from hlo_cp2ag.executor.values import bits_of

    if _collapsed(array).shape[0] == 1:
        return [present]
    found: dict[bytes, list[int]] = {}
    for device in present:
        found.setdefault(hashlib.sha256(bits_of(array[device]).tobytes()).digest(), []).append(device)
    return list(found.values())


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers in few words: 0-2, 5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] + 1 == number:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    words = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}-{b}" for a, b in parts]
    return ", ".join(words[:12]) + (", ..." if len(words) > 12 else "")


def _elements(array: Array, element_type: str) -> str:
    """Elements in brackets, with the digits that tell any two apart, in columns."""
    import numpy as np

    from hlo_cp2ag.ir.literal import element_words

    width = 0

    def word(element: object) -> str:
        nonlocal width
        text = element_words(np.array([element], array.dtype), element_type)[0]
        if element_type == "pred":
            text = ("false", "true")[int(text)]
        width = max(width, len(text))
        return text.rjust(width)

    def once() -> str:
        return np.array2string(
            array, separator=", ", threshold=_SHOWN_WHOLE, max_line_width=_LINE, formatter={"all": word}
        )

    once()  # now the width is known
    return once()
