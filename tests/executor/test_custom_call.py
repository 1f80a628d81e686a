"""custom-calls: LAPACK's routines and TopK held against XLA's CPU backend, markers, and what a user supplies."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hlo_cp2ag.executor.registry import ExecutionError
from hlo_cp2ag.executor.run import run
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.text.parser import parse

from ..xla.judge import Judge
from .support import Array, array, one_op, run_text

GENERATOR = np.random.default_rng(0)
LETTERS = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}


def matrix(t: str, *dimensions: int) -> Array:
    values = GENERATOR.standard_normal(dimensions)
    if t[0] == "c":
        return (values + 1j * GENERATOR.standard_normal(dimensions)).astype({"c64": "c8", "c128": "c16"}[t])
    return array(t, values)


def shape(t: str, *dimensions: int) -> str:
    """With the last two dimensions in column-major order, as jaxlib's kernels take matrices."""
    order = list(range(len(dimensions)))[::-1]
    order[:2] = order[:2][::-1]
    return f"{t}[{','.join(map(str, dimensions))}]{{{','.join(map(str, order))}}}"


def call(name: str, letter: str, results: list[str], operands: list[str], config: str) -> str:
    result = f"({', '.join(results)})" if len(results) > 1 else results[0]
    constraints = ", ".join(o if "{" in o else o + "{0}" for o in operands)
    return one_op(
        result,
        "custom-call",
        operands,
        f'custom_call_target="lapack_{letter}{name}_ffi", operand_layout_constraints={{{constraints}}}, '
        f"api_version=API_VERSION_TYPED_FFI, backend_config={{{config}}}",
    )


def hold(judge: Judge, text: str, *args: Array, only: tuple[int, ...] | None = None) -> list[Array]:
    theirs = judge.run(text, 1, 1, [a[np.newaxis] for a in args], how="recompile")
    ours = run_text(text, *args)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if only is not None and i not in only:
            continue
        assert a.shape == b.shape and a.dtype == b.dtype
        if a.dtype.kind in "iu":
            assert np.array_equal(a, b), f"{i}: {a} is not {b}"
        else:
            tolerance = 2e-4 if a.dtype in (np.float32, np.complex64) else 1e-10
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"result {i} of\n{text}")
    return [x[0] for x in ours]


@pytest.mark.parametrize("letter", "sdcz")
def test_lapack_agrees_with_xla(judge: Judge, letter: str) -> None:
    t = LETTERS[letter]
    real = {"c64": "f32", "c128": "f64"}.get(t, t)
    complex_type = {"f32": "c64", "f64": "c128"}.get(t, t)
    square, tall, square_matrix = shape(t, 4, 4), shape(t, 5, 3), matrix(t, 4, 4)
    hermitian = (square_matrix @ np.conj(square_matrix.T) + np.eye(4)).astype(square_matrix.dtype)
    for uplo in "LU":
        hold(judge, call("potrf", letter, [square, "s32[]"], [square], f"uplo = {ord(uplo)} : ui8"), hermitian)
    pivots = call("getrf", letter, [shape(t, 2, 5, 3), "s32[2,3]{1,0}", "s32[2]{0}"], [shape(t, 2, 5, 3)], "")
    hold(judge, pivots, matrix(t, 2, 5, 3))
    text = call("geqrf", letter, [tall, f"{t}[3]{{0}}"], [tall], "")
    packed, tau = hold(judge, text, matrix(t, 5, 3))
    product = "orgqr" if letter in "sd" else "ungqr"
    hold(judge, call(product, letter, [tall], [tall, f"{t}[3]"], ""), packed, tau)
    for mode, u, v in (("A", shape(t, 5, 5), shape(t, 3, 3)), ("S", shape(t, 5, 3), shape(t, 3, 3))):
        results = [tall, f"{real}[3]{{0}}", u, v, "s32[]"]
        svd = call("gesdd", letter, results, [tall], f"mode = {ord(mode)} : ui8")
        hold(judge, svd, matrix(t, 5, 3), only=(1, 2, 3, 4) if mode == "S" else (1, 3, 4))
    eigen = "syevd" if letter in "sd" else "heevd"
    config = "mode = 86 : ui8, uplo = 76 : ui8"
    hold(judge, call(eigen, letter, [square, f"{real}[4]{{0}}", "s32[]"], [square], config), hermitian)
    values = [f"{t}[4]{{0}}"] * (1 if letter in "cz" else 2)
    vectors = shape(complex_type, 4, 4)
    config = "compute_left = 86 : ui8, compute_right = 86 : ui8"
    general = call("geev", letter, [*values, vectors, vectors, "s32[]"], [square], config)
    a = matrix(t, 4, 4)
    *found, left, right, _ = hold(judge, general, a, only=(0, 3) if letter in "cz" else (0, 1, 4))
    eigenvalues = found[0] if letter in "cz" else found[0] + 1j * found[1]
    np.testing.assert_allclose(np.conj(left.T) @ a, eigenvalues[:, np.newaxis] * np.conj(left.T), atol=1e-4)
    np.testing.assert_allclose(a @ right, right * eigenvalues, atol=1e-4)
    assert np.allclose(np.linalg.norm([left, right], axis=1), 1)  # their signs are the library's
    for side, uplo, trans, diag in ("LUNN", "LLTN", "RUCN", "RLNU"):
        words = {"diag": diag, "side": side, "trans_x": trans, "uplo": uplo}
        config = ", ".join(f"{name} = {ord(value)} : ui8" for name, value in words.items())
        hold(judge, call("trsm", letter, [square], [square, square], config), hermitian, matrix(t, 4, 4))
    diagonal = f"{t}[4]{{0}}"
    right = shape(t, 4, 2)
    solver = call("gtsv", letter, [diagonal, diagonal, diagonal, right, "s32[]"], [diagonal] * 3 + [right], "")
    hold(judge, solver, matrix(t, 4), matrix(t, 4) + 4, matrix(t, 4), matrix(t, 4, 2), only=(3, 4))


def test_lapack_info() -> None:
    """The second minor is not positive; a column of zeros has no pivot."""
    text = call("potrf", "s", [shape("f32", 3, 3), "s32[]"], [shape("f32", 3, 3)], "uplo = 76 : ui8")
    bad = np.array([[1, 9, 9], [2, 1, 9], [0, 0, 1]], np.float32)
    assert run_text(text, bad)[1].tolist() == [2]
    text = call("getrf", "s", [shape("f32", 2, 2), "s32[2]", "s32[]"], [shape("f32", 2, 2)], "")
    assert run_text(text, np.array([[0, 1], [0, 1]], np.float32))[2].tolist() == [1]


def test_top_k(judge: Judge) -> None:
    compare = """gt {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=GT, type=TOTALORDER
}
"""
    text = one_op("(f32[2,3], s32[2,3])", "custom-call", ["f32[2,6]"],
                  'custom_call_target="TopK", called_computations={gt}')  # fmt: skip
    text = text.replace("\n\nENTRY", f"\n\n{compare}\nENTRY")
    x = np.array([[1, 5, 5, -2, 7, 0], [-0.0, 0.0, -1, -3, np.inf, -np.inf]], np.float32)
    values, places = run_text(text, x)
    assert places[0].tolist() == [[4, 1, 2], [4, 1, 0]] and values[0][0].tolist() == [7, 5, 5]


def custom(target: str, result: str = "f32[2]", operand: str = "f32[2]") -> str:
    return one_op(result, "custom-call", [operand], f'custom_call_target="{target}"')


@pytest.mark.parametrize("target", ["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "MoveToHost"])
def test_markers(target: str) -> None:
    assert run_text(custom(target), np.array([1, 2], np.float32))[0].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (custom("bar"), "does not know the custom-call 'bar'"),
        (custom("xla_ffi_python_cpu_callback"), "'xla_ffi_python_cpu_callback' calls back into the Python program"),
        (custom("SPMDFullToShardShape", "f32[1]"), "changes the shape"),
        (custom("TopK"), "TopK of (f32[2]) is not f32[2]"),
        (custom("lapack_spotrf_ffi"), "takes matrices, not f32[2]"),
        (custom("lapack_dpotrf_ffi"), "takes elements of f64"),
        (custom("lapack_spotrf_ffi", "f32[2,3]", "f32[2,3]"), "custom-call 'lapack_spotrf_ffi'"),
        (custom("lapack_sgees_ffi"), "does not know the custom-call 'lapack_sgees_ffi'"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(HloError, match=re.escape(message)):
        run(parse(text), seed=1)


def test_supplied() -> None:
    """Once for each device, once where they agree; what does not fit is an error with the line."""
    calls = []

    def double(x: Array) -> Array:
        calls.append(x.shape)
        return x * 2

    x = np.array([[1, 2], [3, 4]], np.float32)
    found = run_text(custom("double"), x, partitions=2, custom_calls={"double": double})
    assert found[0].tolist() == [[2, 4], [6, 8]] and calls == [(2,), (2,)]
    run_text(custom("double"), x[0], partitions=2, custom_calls={"double": double})
    assert len(calls) == 3
    with pytest.raises(ExecutionError, match="has returned an array"):
        run_text(custom("double"), x[0], custom_calls={"double": lambda x: x[:1]})
    with pytest.raises(ExecutionError, match="failed: ZeroDivisionError"):
        run_text(custom("double"), x[0], custom_calls={"double": lambda x: 1 // 0})
