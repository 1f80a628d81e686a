"""A unified diff, made from the list of edits: no search for differences, for they are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_CONTEXT = 3
Edits = Sequence[tuple[int, int, str]]


def unified_diff(old: str, edits: Edits, name: str) -> str:
    """The unified diff of a text and its edits `(start, end, text)`, which are sorted and do not overlap."""
    blocks = [block for block in _blocks(old, edits) if block[2] != block[3]]
    if not blocks:
        return ""
    pieces = [f"--- {name}\n+++ {name}\n"]
    shift = 0
    for hunk in _hunks(blocks):
        first = max(hunk[0][0] - _CONTEXT, 0)
        lines: list[str] = []
        old_count = new_count = 0
        position = first
        last_line, end_offset = hunk[-1][1], hunk[-1][5]
        for start, end, removed, added, offset, _ in hunk:
            context = _lines_before(old, offset, start - position)
            lines += [" " + line for line in context]
            lines += ["-" + line for line in removed]
            lines += ["+" + line for line in added]
            old_count += len(context) + len(removed)
            new_count += len(context) + len(added)
            position = end
        after = _lines_after(old, end_offset, _CONTEXT)
        lines += [" " + line for line in after]
        old_count += len(after)
        new_count += len(after)
        del last_line
        pieces.append(f"@@ -{_range(first, old_count)} +{_range(first + shift, new_count)} @@\n")
        pieces += [line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines]
        shift += new_count - old_count
    return "".join(pieces)


def _range(first: int, count: int) -> str:
    start = first + 1 if count else first
    return str(start) if count == 1 else f"{start},{count}"


_Block = tuple[int, int, list[str], list[str], int, int]
"""First old line, line behind the last, the old lines, the new lines, the offsets where the old lines begin and end."""


def _blocks(old: str, edits: Edits) -> Iterator[_Block]:
    """Runs of whole lines that edits touch; edits on one line are one run."""
    line = position = 0
    i = 0
    while i < len(edits):
        start = old.rfind("\n", 0, edits[i][0]) + 1
        new: list[str] = []
        at = start
        end = start
        while i < len(edits) and (edits[i][0] < end or at == start):
            edit_start, edit_end, text = edits[i]
            new += [old[at:edit_start], text]
            at = edit_end
            # An edit that ends at a line's very beginning leaves that line alone, unless it inserts into it.
            line_end = old.find("\n", max(edit_end - 1, edit_start) if edit_end > edit_start else edit_end)
            end = len(old) if line_end < 0 else max(end, line_end + 1)
            i += 1
        new.append(old[at:end])
        line += old.count("\n", position, start)
        removed = old[start:end].splitlines(keepends=True) if "\r" not in old else _split(old[start:end])
        added = "".join(new)
        count = old.count("\n", start, end) + (end == len(old) and end > start and old[end - 1] != "\n")
        yield line, line + count, removed, _split(added), start, end
        position = start


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _hunks(blocks: Sequence[_Block]) -> Iterator[list[_Block]]:
    """Blocks whose context would touch stand in one hunk."""
    hunk: list[_Block] = []
    for block in blocks:
        if hunk and block[0] - hunk[-1][1] > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(block)
    yield hunk


def _lines_before(old: str, offset: int, count: int) -> list[str]:
    start = offset
    for _ in range(count):
        start = old.rfind("\n", 0, start - 1) + 1
    return _split(old[start:offset])


def _lines_after(old: str, offset: int, count: int) -> list[str]:
    end = offset
    for _ in range(count):
        newline = old.find("\n", end)
        if newline < 0:
            end = len(old)
            break
        end = newline + 1
    return _split(old[offset:end])
