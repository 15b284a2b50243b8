"""A traversal as the runner's table: rows (kind, a, b), see templates/runtime/dagc/runner.hpp."""

from __future__ import annotations

from dataclasses import dataclass

from dagc.traversal import Entry, Issue, Record, Sync, Traversal, Wait

ISSUE, RECORD, WAIT, SYNC = range(4)


@dataclass(frozen=True, slots=True)
class RowView:
    kind: int
    a: int
    b: int


def row(entry: Entry) -> tuple[int, int, int]:
    """The row of one entry."""
    match entry:
        case Issue(op, stream):
            return ISSUE, op, -1 if stream is None else stream
        case Record(event, stream):
            return RECORD, event, stream
        case Wait(event, stream):
            return WAIT, event, stream
        case Sync(event):
            return SYNC, event, -1


def rows(traversal: Traversal) -> list[tuple[int, int, int]]:
    """One row per entry, in order."""
    return [row(entry) for entry in traversal.entries]


def table_line(traversal: Traversal) -> str:
    """A line of the file that `runner --tables` reads."""
    return ";".join(f"{kind},{a},{b}" for kind, a, b in rows(traversal))


def row_views(traversal: Traversal) -> tuple[RowView, ...]:
    return tuple(RowView(*r) for r in rows(traversal))
