"""Traversals as tables."""

from __future__ import annotations

from dagc.emit.forms import rows, table_line
from dagc.ir.program import OpId
from dagc.ir.traversal import Event, Issue, Record, Stream, Traversal, Wait

MADE = Traversal(
    (
        Issue(OpId(2), Stream(1)),
        Record(Event(0), Stream(1)),
        Wait(Event(0), Stream(0)),
        Wait(Event(0)),
        Issue(OpId(5)),
    )
)


def test_rows() -> None:
    assert rows(MADE) == [(0, 2, 1), (1, 0, 1), (2, 0, 0), (3, 0, -1), (0, 5, -1)]


def test_line() -> None:
    assert table_line(MADE) == "0,2,1;1,0,1;2,0,0;3,0,-1;0,5,-1"
