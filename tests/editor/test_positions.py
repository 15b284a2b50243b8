"""Offsets and positions of editors, in each encoding, for any text; what an edit moves."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.editor.positions import Lines, edit_between, moves_between

TEXTS = st.text(st.sampled_from("ab\n\r\t \u00e9\u2028\x0c\U0001f600"), max_size=40)
WIDTH = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
UNIT = {"utf-8": 1, "utf-16": 2, "utf-32": 4}


@pytest.mark.parametrize("encoding", sorted(WIDTH))
@given(text=TEXTS)
def test_positions_are_those_of_the_protocol(encoding: str, text: str) -> None:
    lines = Lines(text, encoding)
    ends = re.split("\r\n|\n|\r", text)
    for offset in range(len(text) + 1):
        line, column = lines.position(offset)
        inside = text[offset - 1 : offset + 1] == "\r\n"  # between the two: no place of the protocol
        assert line == len(re.findall("\r\n|\n|\r", text[:offset])) - inside
        if not inside:
            before = ends[line].encode(WIDTH[encoding])[: column * UNIT[encoding]].decode(WIDTH[encoding])
            assert text[:offset].endswith(before)
            assert lines.offset(line, column) == offset
    assert lines.offset(len(ends), 0) == len(text)
    assert lines.offset(0, 10**9) == len(ends[0])


@given(old=TEXTS, new=TEXTS)
def test_an_edit_makes_the_new_text(old: str, new: str) -> None:
    edit = edit_between(old, new)
    assert old[: edit.start] + new[edit.start : edit.new_end] + old[edit.old_end :] == new
    moves = moves_between(old, new)
    for old_start, new_start, length in moves.kept:
        assert old[old_start : old_start + length] == new[new_start : new_start + length]
    for offset in range(len(new) + 1):
        assert 0 <= moves.to_old(offset) <= len(old)
    for offset in range(len(old) + 1):
        assert 0 <= moves.to_new(offset) <= len(new)
        if old == new:
            assert moves.to_new(offset) == offset == moves.to_old(offset)


def test_lines_between_two_changes_keep_their_places() -> None:
    old = "first\nkept here\nlast\n"
    new = "changed first\nadded\nkept here\nlost\n"
    moves = moves_between(old, new)
    assert moves.to_old(new.index("here")) == old.index("here")
    assert moves.to_new(old.index("here")) == new.index("here")
