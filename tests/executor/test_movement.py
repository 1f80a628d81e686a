from __future__ import annotations

import numpy as np

from .support import array, compute, one_op, run_text, same_bits

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_broadcast_and_transpose() -> None:
    row = np.array([1, 2, 3], np.float32)
    assert compute(one_op("f32[2,3]", "broadcast", ["f32[3]"], "dimensions={1}"), row).tolist() == [[1, 2, 3]] * 2
    assert compute(one_op("f32[3,2]", "broadcast", ["f32[3]"], "dimensions={0}"), row).tolist() == [
        [1, 1],
        [2, 2],
        [3, 3],
    ]
    swapped = compute(one_op("f32[3,2,2]", "broadcast", ["f32[2,3]"], "dimensions={2,0}"), X)
    assert np.array_equal(swapped[:, 0, :], X.T) and np.array_equal(swapped[:, 1, :], X.T)
    assert np.array_equal(compute(one_op("f32[3,2]", "transpose", ["f32[2,3]"], "dimensions={1,0}"), X), X.T)


def test_reshape_is_row_major_whatever_the_layouts() -> None:
    assert np.array_equal(compute(one_op("f32[3,2]{0,1}", "reshape", ["f32[2,3]{0,1}"]), X), X.reshape(3, 2))


def test_pad_cuts_and_spreads() -> None:
    zero = np.array(9, np.float32)

    def pad(result: str, padding: str) -> list[float]:
        line = np.array([1, 2, 3], np.float32)
        out: list[float] = compute(
            one_op(result, "pad", ["f32[3]", "f32[]"], f"padding={padding}"), line, zero
        ).tolist()
        return out

    assert pad("f32[6]", "1_2_0") == [9, 1, 2, 3, 9, 9]
    assert pad("f32[7]", "0_0_2") == [1, 9, 9, 2, 9, 9, 3]
    assert pad("f32[4]", "-1_-2_2") == [9, 9, 2, 9]
    assert pad("f32[2]", "-4_3_0") == [9, 9]
    assert pad("f32[0]", "-3_0_0") == []
    assert pad("f32[2]", "2_-3_0") == [9, 9]


def test_slices() -> None:
    line = np.arange(8, dtype=np.int32)
    assert compute(one_op("s32[3]", "slice", ["s32[8]"], "slice={[1:7:2]}"), line).tolist() == [1, 3, 5]
    assert compute(one_op("s32[8]", "reverse", ["s32[8]"], "dimensions={0}"), line).tolist() == line[::-1].tolist()
    joined = compute(one_op("s32[11]", "concatenate", ["s32[8]", "s32[3]"], "dimensions={0}"), line, line[:3])
    assert joined.tolist() == [*range(8), 0, 1, 2]


def test_dynamic_slices_clamp_in_every_index_type() -> None:
    line = np.arange(8, dtype=np.int32)
    text = one_op("s32[3]", "dynamic-slice", ["s32[8]", "{}"], "dynamic_slice_sizes={3}")
    for index, start, first in (("s32[]", -5, 0), ("s32[]", 7, 5), ("u8[]", 255, 5), ("s4[]", -8, 0), ("s64[]", 2, 2)):
        start_array = array(index[:-2], start)
        assert compute(text.replace("{}", index, 1), line, start_array)[0] == first
    far = np.array(2**64 - 1, np.uint64)
    assert compute(text.replace("{}", "u64[]", 1), line, far)[0] == 5
    update = one_op("s32[8]", "dynamic-update-slice", ["s32[8]", "s32[2]", "s32[]"])
    assert compute(update, line, np.array([8, 9], np.int32), np.array(100, np.int32)).tolist() == [*range(6), 8, 9]
    # The old form: all starts in one array.
    old = one_op("f32[1,2]", "dynamic-slice", ["f32[2,3]", "s32[2]"], "dynamic_slice_sizes={1,2}")
    assert compute(old, X, np.array([1, 5], np.int32)).tolist() == [[4.0, 5.0]]


def test_dynamic_slices_that_differ_between_devices() -> None:
    for devices in (4, 100):  # one by one, and with index arrays
        lines = np.arange(devices * 8, dtype=np.int32).reshape(devices, 8)
        starts = (np.arange(devices) % 7 - 1).astype(np.int32)
        expected = [lines[d, s : s + 3] for d, s in enumerate(np.clip(starts, 0, 5))]
        text = one_op("s32[3]", "dynamic-slice", ["s32[8]", "s32[]"], "dynamic_slice_sizes={3}")
        assert np.array_equal(run_text(text, lines, starts, partitions=devices)[0], expected)
        same = run_text(text, lines[0], starts, partitions=devices)[0]
        assert np.array_equal(same, [lines[0, s : s + 3] for s in np.clip(starts, 0, 5)])
        update = one_op("s32[8]", "dynamic-update-slice", ["s32[8]", "s32[2]", "s32[]"])
        result = run_text(update, lines[0], np.array([-1, -2], np.int32), starts, partitions=devices)[0]
        for d, s in enumerate(np.clip(starts, 0, 6)):
            right = lines[0].copy()
            right[s : s + 2] = [-1, -2]
            assert np.array_equal(result[d], right)


def test_iota_in_narrow_types() -> None:
    assert compute(one_op("s4[18]", "iota", [], "iota_dimension=0")).astype(int).tolist()[7:10] == [7, -8, -7]
    assert compute(one_op("bf16[2,300]", "iota", [], "iota_dimension=1")).astype(float)[0, 257] == 256.0
    assert compute(one_op("c64[2]", "iota", [], "iota_dimension=0")).tolist() == [0, 1]


def test_constants_keep_their_bits() -> None:
    parts = """HloModule m
ENTRY e {
  a = f32[3] constant({-0, nan, /*third*/ inf})
  b = s4[2,2] constant({{-8, 7}, {0, 1}})
  c = pred[] constant(true)
  d = c64[1] constant({(1, -2)})
  t = token[] after-all()
  ROOT r = (f32[3], s4[2,2], pred[], c64[1], token[]) tuple(a, b, c, d, t)
}
"""
    floats, narrow, truth, complexes = run_text(parts)
    assert np.signbit(floats[0, 0]) and np.isnan(floats[0, 1]) and floats[0, 2] == np.inf
    assert narrow[0].astype(int).tolist() == [[-8, 7], [0, 1]]
    assert truth.tolist() == [True] and same_bits(complexes, np.array([[1 - 2j]], np.complex64))
