"""Every opcode with every element type: a result or an error with a place, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import pytest

from hlo_cp2ag.executor.registry import ExecutionError, known_opcodes
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.element_types import ML_DTYPES_NAMES, NUMPY_NAMES
from hlo_cp2ag.ir.shape import is_floating, is_integer
from hlo_cp2ag.ir.shape_inference.elementwise import BINARY, UNARY
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.text.parser import parse

TYPES = (*NUMPY_NAMES, *ML_DTYPES_NAMES)
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CONVOLUTION = "window={size=2}, dim_labels=b0f_0io->b0f"
GATHER = "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}"
SCATTER = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply="
)
SOLVE = "left_side=true, lower=true, unit_diagonal=false, transpose_a=ADJOINT"
WINDOW = "window={size=2}, to_apply="
D, G = "dimensions={0}", "replica_groups={}"
MIXED = [(r, u) for r in ("T", "f32", "s32", "pred", "c64") for u in ("f32", "s4", "pred", "c64", "u64", "f8e8m0fnu")]

FORMS: dict[str, list[str]] = {
    # result | operands | attributes; T is the type, PART that of its parts, WHOLE the complex one of such parts
    **{opcode: ["T[2] | T[2]", "pred[2] | T[2]", "PART[2] | T[2]"] for opcode in UNARY},
    **{opcode: ["T[2] | T[2], T[2]"] for opcode in BINARY if opcode not in ("complex", "compare", "mulhi")},
    "complex": ["WHOLE[2] | T[2], T[2]"],
    "compare": [
        f"pred[2] | T[2], T[2] | direction={direction}{kind}"
        for direction in ("EQ", "LT")
        for kind in ("", *(f", type={kind}" for kind in ("TOTALORDER", "FLOAT", "SIGNED", "UNSIGNED")))
    ],
    "clamp": ["T[2] | T[], T[2], T[2]"],
    "select": ["T[2] | T[2], T[2], T[2]", "T[2] | pred[2], T[2], T[2]"],
    "constant": ["T[2] | {1, 1}", "T[2] | {true, false}", "T[2] | {(1, 1), (0, 1)}"],
    "iota": [f"T[2] | | iota_{D.replace('s={0}', '=0')}"],
    "broadcast": [f"T[2,3] | T[2] | {D}"],
    "reshape": ["T[2,1] | T[2]"],
    "transpose": ["T[3,2] | T[2,3] | dimensions={1,0}"],
    "reverse": [f"T[2] | T[2] | {D}"],
    "concatenate": [f"T[4] | T[2], T[2] | {D}"],
    "slice": ["T[1] | T[2] | slice={[0:1]}"],
    "pad": ["T[5] | T[2], T[] | padding=1_1_1"],
    "dynamic-slice": ["T[1] | T[2], T[] | dynamic_slice_sizes={1}", "T[1] | T[2], s32[] | dynamic_slice_sizes={1}"],
    "dynamic-update-slice": ["T[2] | T[2], T[1], T[]", "T[2] | T[2], T[1], u8[]"],
    "get-dimension-size": [f"s32[] | T[2] | {D}"],
    "convert": [f"{other}[2] | T[2]" for other in TYPES],
    "bitcast-convert": [
        f"{other} | T[2]" for other in ("T[2]", "u8[2]", "u4[2,2]", "u64[]", "u16[]", "c64[2]", "pred[2]")
    ],
    "bitcast": [f"{other} | T[2]" for other in ("T[1,2]", "u8[2]", "u16[1]", "c64[2]", "pred[2]")],
    "reduce-precision": [
        "T[2] | T[2] | exponent_bits=5, mantissa_bits=3", "T[2] | T[2] | exponent_bits=2, mantissa_bits=0"
    ],
    "copy": ["T[2] | T[2]"],
    "opt-barrier": ["T[2] | T[2]"],
    "domain": ['T[2] | T[2] | domain={kind="sharding", entry={replicated}, exit={replicated}}'],
    "dot": [f"T[2,2] | T[2,2], T[2,2] | {DOT}", *(f"{r}[2,2] | T[2,2], {u}[2,2] | {DOT}" for r, u in MIXED)],
    "convolution": [
        f"T[1,3,1] | T[1,4,1], T[2,1,1] | {CONVOLUTION}",
        *(f"{r}[1,3,1] | T[1,4,1], {u}[2,1,1] | {CONVOLUTION}" for r, u in MIXED),
    ],
    "triangular-solve": [f"T[2,2] | T[2,2], T[2,2] | {SOLVE}"],
    "cholesky": ["T[2,2] | T[2,2] | lower=true"],
    "fft": [
        *(f"T[2] | T[2] | fft_type={kind}, fft_length={{2}}" for kind in ("FFT", "IFFT")),
        "WHOLE[2] | T[2] | fft_type=RFFT, fft_length={2}",
        "PART[2] | T[2] | fft_type=IRFFT, fft_length={2}",
    ],
    "reduce": [f"T[] | T[2], T[] | {D}, to_apply={c}" for c in ("add", "maximum", "less", "or", "odd")],
    "map": [*(f"T[2] | T[2], T[2] | {D}, to_apply={c}" for c in ("add", "or")),
            f"pred[2] | T[2], T[2] | {D}, to_apply=less"],
    "scan": [f"(T[2], T[]) | T[2], T[] | {D}, num_carries=1, to_apply=step"],
    "reduce-window": [
        *(f"T[1] | T[2], T[] | {WINDOW}{c}" for c in ("add", "maximum", "multiply", "and", "odd", "minimum")),
        *(f"T[1] | T[256], T[] | window={{size=256}}, to_apply={c}" for c in ("add", "maximum")),
    ],
    "select-and-scatter": [
        f"T[2] | T[2], T[1], T[] | window={{size=2}}, select={s}, scatter={c}"
        for s, c in (("less", "add"), ("equal", "odd"))
    ],
    "sort": [
        f"T[2] | T[2] | {D}, to_apply=less",
        f"T[2] | T[2] | {D}, to_apply=total",
        f"(T[2], s32[2]) | T[2], s32[2] | {D}, to_apply=less_of_two",
    ],
    "topk": [f"(T[2], s32[2]) | T[3] | k=2, largest={largest}" for largest in ("true", "false")],
    "gather": [f"T[2] | T[4], {i}[2,1] | {GATHER}" for i in ("T", "s8")],
    "scatter": [
        f"T[4] | T[4], {i}[2,1], T[2] | {SCATTER}{c}"
        for i in ("T", "u8")
        for c in ("add", "maximum", "second", "odd", "and")
    ],
    "tuple": ["(T[2]) | T[2]"],
    "get-tuple-element": ["T[2] | (T[2]) | index=0"],
    "call": ["T[] | T[], T[] | to_apply=add"],
    "fusion": ["T[] | T[], T[] | kind=kLoop, calls=add"],
    "after-all": ["token[] |"],
    "add-dependency": ["T[2] | T[2], token[]"],
    "while": ["T[] | T[] | condition=never, body=same"],
    "conditional": [
        "T[] | pred[], T[], T[] | true_computation=same, false_computation=same",
        "T[] | T[], T[], T[] | branch_computations={same, same}",
    ],
    "all-gather": [f"T[4] | T[2] | {D}, {G}"],
    "all-reduce": [f"T[2] | T[2] | {G}, to_apply={c}" for c in ("add", "odd", "maximum", "less")],
    "reduce-scatter": [f"T[1] | T[2] | {D}, {G}, to_apply={c}" for c in ("add", "odd", "and")],
    "all-to-all": [f"T[2] | T[2] | {D}, {G}"],
    "collective-broadcast": ["T[2] | T[2] | replica_groups={{0,1}}"],
    "collective-permute": ["T[2] | T[2] | source_target_pairs={{0,1}}"],
    "replica-id": ["u32[] |", "T[] |"],
    "partition-id": ["u32[] |", "T[] |"],
    # with the done that ends them
    "all-gather-start": [f"(T[2], T[4]) | T[2] | {D}, {G} | T[4] all-gather-done"],
    "all-reduce-start": [f"T[2] | T[2] | {G}, to_apply=add | T[2] all-reduce-done"],
    "collective-permute-start": [
        "(T[2], T[2]) | T[2] | source_target_pairs={{0,1}} | T[2] collective-permute-done"
    ],
    "copy-start": ["(T[2], T[2], u32[]) | T[2] | | T[2] copy-done"],
    "async-start": ["((T[], T[]), T[]) | T[], T[] | calls=add | T[] async-done"],
    "async-update": [],
}  # fmt: skip
NO_FORM = {"async-update"}
"""Opcodes that only stand between a start and a done."""


def binary(name: str, lines: str) -> str:
    return f"{name} {{\n  a = T[] parameter(0)\n  b = T[] parameter(1)\n{lines}}}\n"


COMPUTATIONS = {
    **{
        opcode: binary(opcode, f"  ROOT r = T[] {opcode}(a, b)\n")
        for opcode in ("add", "maximum", "minimum", "multiply", "or", "and")
    },
    "less": binary("less", "  ROOT r = pred[] compare(a, b), direction=LT\n"),
    "equal": binary("equal", "  ROOT r = pred[] compare(a, b), direction=EQ\n"),
    "total": binary("total", "  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER\n"),
    "odd": binary("odd", "  c = T[] add(a, b)\n  ROOT r = T[] multiply(c, b)\n"),
    "step": binary("step", "  c = T[] add(a, b)\n  ROOT r = (T[], T[]) tuple(c, c)\n"),
    "second": "second {\n  a = T[] parameter(0)\n  ROOT b = T[] parameter(1)\n}\n",
    "less_of_two": binary(
        "less_of_two",
        "  c = s32[] parameter(2)\n  d = s32[] parameter(3)\n  ROOT r = pred[] compare(a, b), direction=LT\n",
    ),
    "same": "same {\n  ROOT a = T[] parameter(0)\n}\n",
    "never": "never {\n  a = T[] parameter(0)\n  ROOT b = pred[] constant(false)\n}\n",
}


def modules(opcode: str) -> Iterator[tuple[str, str]]:
    """The type and the text of each form."""
    for form in FORMS[opcode]:
        result, operands, attributes, end = [part.strip() for part in (form + " | | |").split("|")][:4]
        names, lines = [], []
        if opcode == "constant":
            names, operands = [operands], ""
        for number, operand in enumerate(re.split(r", (?![^(]*\))", operands) if operands else ()):
            names.append(f"x{number}")
            if operand.startswith("("):
                lines += [f"  q = {operand[1:-1]} parameter({number})", f"  x{number} = {operand} tuple(q)"]
            elif operand == "token[]":
                lines.append(f"  x{number} = token[] after-all()")
            else:
                lines.append(f"  x{number} = {operand} parameter({number})")
        called = [text for name, text in COMPUTATIONS.items() if re.search(rf"[={{ ]{name}\b", attributes)]
        root = "" if end else "ROOT "
        lines.append(f"  {root}r = {result} {opcode}({', '.join(names)}){', ' if attributes else ''}{attributes}")
        lines += [f"  ROOT done = {end}(r)"] if end else []
        text = "HloModule m, replica_count=2\n\n" + "".join(called) + "\n".join(["ENTRY e {", *lines, "}", ""])
        for element_type in TYPES:
            part = {"c64": "f32", "c128": "f64"}.get(element_type, element_type)
            whole = {"f32": "c64", "f64": "c128"}.get(element_type, element_type)
            yield (
                element_type,
                re.sub(r"\bT\b", element_type, text.replace("PART", part).replace("WHOLE", whole)),
            )


def test_every_opcode_is_here() -> None:
    ends = {"all-gather-done", "all-reduce-done", "collective-permute-done", "copy-done", "async-done"}
    assert FORMS.keys() | ends | _ELSEWHERE == known_opcodes()


_ELSEWHERE = {
    *("rng", "rng-bit-generator", "rng-get-and-update-state", "stochastic-convert", "mulhi", "custom-call"),
    *("batch-norm-training", "batch-norm-inference", "batch-norm-grad"),
    *("ragged-dot", "scaled-dot", "ragged-all-to-all", "set-dimension-size", "dynamic-reshape"),
    *("infeed", "outfeed", "send", "send-done", "recv", "recv-done"),
}
"""Opcodes whose element types are in tests of their own."""


FLOATS = {t for t in TYPES if is_floating(t)}
COMPLEX = {"c64", "c128"}
INTEGERS = {t for t in TYPES if is_integer(t)}
SHIFTS = ("shift-left", "shift-right-arithmetic", "shift-right-logical")
RUN: dict[str, AbstractSet[str]] = {
    **dict.fromkeys(("and", "or", "xor", "not"), INTEGERS | {"pred"}),
    **dict.fromkeys((*SHIFTS, "popcnt", "count-leading-zeros"), INTEGERS),
    "reduce-precision": FLOATS - {"f8e8m0fnu", "f6e2m3fn", "f6e3m2fn"},
    "remainder": FLOATS | INTEGERS,
    "topk": FLOATS | INTEGERS | {"pred"},
    "fft": COMPLEX | {"f32", "f64"},
    **dict.fromkeys(
        ("add", "multiply", "maximum", "minimum", "compare", "dot", "convolution", "reduce"), frozenset(TYPES)
    ),
}
"""Which types an op takes, where that is not what shape inference says."""


@pytest.mark.parametrize("opcode", sorted(FORMS.keys() - NO_FORM))
def test_a_result_or_an_error_with_its_line(opcode: str) -> None:
    runs = set()
    for element_type, text in modules(opcode):
        try:
            run(parse(text), replica_count=2, checked=True)
            runs.add(element_type)
        except HloSyntaxError as error:
            assert error.line > 1, text
        except ExecutionError as error:
            raise AssertionError(text) from error
    assert runs
    assert opcode not in RUN or runs == RUN[opcode]
