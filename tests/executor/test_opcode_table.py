"""docs/opcodes.md says what the registry has, and has every opcode that HLO texts were seen with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hlo_cp2ag.executor.opcode_table import runs, table
from hlo_cp2ag.executor.registry import known_opcodes
from hlo_cp2ag.text.opcodes import BASE_OPCODES, split_opcode

ROOT = Path(__file__).parents[2]
FEATURES = ROOT.parent / "shared" / "hlo_text_features.md"


def test_the_document_is_current() -> None:
    assert (ROOT / "docs" / "opcodes.md").read_text() == table()


def test_every_opcode_runs() -> None:
    assert [opcode for opcode in sorted(BASE_OPCODES) if not runs(opcode)] == []
    assert known_opcodes() <= BASE_OPCODES


@pytest.mark.skipif(not FEATURES.exists(), reason=f"no list of opcodes at {FEATURES}")
def test_every_opcode_that_was_seen_is_in_the_table() -> None:
    text = FEATURES.read_text().split("## All opcodes")[1].split("\n\n")[1]
    seen = [entry.split()[0] for entry in text.split(";")]
    assert len(seen) > 140
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (\w+) \|", table(), re.MULTILINE))
    for opcode in seen:
        split = split_opcode(opcode)
        assert split is not None, opcode
        family, wrapped = split
        assert rows[family] == "yes" and (wrapped is None or rows[wrapped] == "yes"), opcode
