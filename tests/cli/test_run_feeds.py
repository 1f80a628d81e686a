"""`cp2ag run --custom-call`, `--infeed` and `--outfeed`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from .in_process import cp2ag

CUSTOM = """HloModule custom
ENTRY main {
  p = f32[2] constant({1, 2})
  ROOT r = f32[2] custom-call(p), custom_call_target="mine"
}
"""
FEEDS = """HloModule feeds
ENTRY main {
  t = token[] after-all()
  i = (bf16[2], token[]) infeed(t)
  x = bf16[2] get-tuple-element(i), index=0
  o = token[] outfeed(x, t), outfeed_shape=bf16[2]
  ROOT c = s32[] constant(3)
}
"""


def test_a_function_for_a_custom_call(tmp_path: Path) -> None:
    (tmp_path / "kernels_for_cp2ag.py").write_text("def mine(x):\n    return x + 1\n\nbad = 3\n")
    (tmp_path / "m.hlo").write_text(CUSTOM)
    found = cp2ag("run", "m.hlo", "-q", "--custom-call", "mine=kernels_for_cp2ag:mine", cwd=tmp_path)
    assert (found.code, found.text, found.stderr) == (0, "o0 = f32[2]\n  [2, 3]\n", "")
    found = cp2ag("run", "m.hlo", cwd=tmp_path)
    assert found.code == 2
    assert "m.hlo:4:8: error: the executor does not know the custom-call 'mine'" in found.stderr
    assert "hint: --custom-call 'mine=module:function' supplies it" in found.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine", "write NAME=module:function"),
        ("mine=nowhere_at_all:f", "cannot be loaded: ModuleNotFoundError"),
        ("mine=os:nothing", "cannot be loaded: AttributeError"),
        ("mine=os:name", "is no function"),
    ],
)
def test_functions_that_are_none(text: str, message: str) -> None:
    found = cp2ag("run", "-", "--custom-call", text, stdin=CUSTOM.encode())
    assert found.code == 2 and message in " ".join(found.stderr.split())


def test_feeds_are_files(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(FEEDS)
    bits = np.array([[0x3F80, 0x4000], [0x4040, 0]], np.uint16)
    np.savez(tmp_path / "in.npz", f0=bits)
    found = cp2ag("run", "m.hlo", "--num-partitions", "2", "--infeed", "in.npz", "--outfeed", "out.npz", cwd=tmp_path)
    assert found.code == 0, found.stderr
    assert np.array_equal(np.load(io.BytesIO((tmp_path / "out.npz").read_bytes()))["f0"], bits)


def test_feeds_that_do_not_go(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(FEEDS)
    found = cp2ag("run", "m.hlo", cwd=tmp_path)
    assert found.code == 2 and "m.hlo:4:3: error: no array is left in the infeed" in found.stderr
    np.savez(tmp_path / "in.npz", x=np.zeros(2, np.uint16))
    found = cp2ag("run", "m.hlo", "--infeed", "in.npz", cwd=tmp_path)
    assert found.code == 2 and "there is no f0" in found.stderr
    found = cp2ag("run", "m.hlo", "--outfeed", "m.hlo", cwd=tmp_path)
    assert found.code == 2 and "would overwrite" in found.stderr
    found = cp2ag("run", "-", "--infeed", "-", stdin=FEEDS.encode())
    assert found.code == 2 and "stdin cannot be --infeed" in found.stderr
