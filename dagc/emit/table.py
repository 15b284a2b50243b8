"""A traversal as the runner's table: rows (kind, a, b), see templates/runtime/dagc/runner.hpp."""

from __future__ import annotations

from dataclasses import dataclass

from dagc.emit.stretches import Begin, End, Step, plain, with_stretches
from dagc.traversal import Issue, Record, Sync, Traversal, Wait

ISSUE, RECORD, WAIT, SYNC, BEGIN, END = range(6)


@dataclass(frozen=True, slots=True)
class RowView:
    kind: int
    a: int
    b: int


def row(step: Step) -> tuple[int, int, int]:
    """The row of one step."""
    match step:
        case Issue(op, stream):
            return ISSUE, op, -1 if stream is None else stream
        case Record(event, stream):
            return RECORD, event, stream
        case Wait(event, stream):
            return WAIT, event, stream
        case Sync(event):
            return SYNC, event, -1
        case Begin(_, origin, length):
            return BEGIN, length, origin
        case End(_):
            return END, 0, -1


def rows(traversal: Traversal, capture: bool = False) -> list[tuple[int, int, int]]:
    """One row per entry, in order. With `capture`, stretches of GPU ops are marked to be captured in CUDA graphs."""
    return [row(placed.step) for placed in (with_stretches if capture else plain)(traversal)]


def positions(traversal: Traversal, capture: bool = False) -> list[int | None]:
    """Per row of `rows`, the position of its entry in the traversal; None for what capturing added."""
    return [placed.position for placed in (with_stretches if capture else plain)(traversal)]


def table_line(traversal: Traversal, capture: bool = False) -> str:
    """A line of the file that `runner --tables` reads."""
    return ";".join(f"{kind},{a},{b}" for kind, a, b in rows(traversal, capture))


def row_views(traversal: Traversal, capture: bool = False) -> tuple[RowView, ...]:
    return tuple(RowView(*r) for r in rows(traversal, capture))
