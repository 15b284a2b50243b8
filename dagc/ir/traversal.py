"""A traversal: the entries of one implementation in issue order, and their text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NewType, TypeAlias

from dagc.base.errors import UsageError
from dagc.ir.program import Graph, GraphOp, OpId

# ---- `Traversal`: a complete program in issue order ----

Stream = NewType("Stream", int)
Event = NewType("Event", int)


@dataclass(frozen=True, slots=True)
class Issue:
    """An op is issued; `stream` is None for a CPU op."""

    op: OpId
    stream: Stream | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Event record in a stream. Events are numbered by their records, from 0."""

    event: Event
    stream: Stream


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream waits for an event."""

    event: Event
    stream: Stream


@dataclass(frozen=True, slots=True)
class Sync:
    """The CPU waits for an event."""

    event: Event
    stream: ClassVar[None] = None  # so that every entry has one


Entry: TypeAlias = Issue | Record | Wait | Sync


@dataclass(frozen=True, slots=True)
class Traversal:
    """Entries in issue order; the last is the issue of `end`."""

    entries: tuple[Entry, ...]


def streams_of(entries: Iterable[Entry]) -> tuple[Stream, ...]:
    """The streams that entries use, in the order of their first use."""
    return tuple(dict.fromkeys(e.stream for e in entries if e.stream is not None))


def recorded(entries: Iterable[Entry]) -> dict[Event, int]:
    """The events that entries record, in order, each with the position of its last record."""
    return {e.event: at for at, e in enumerate(entries) if isinstance(e, Record)}


def awaited(entries: Iterable[Entry]) -> frozenset[Event]:
    """The events that a stream or the CPU waits for."""
    return frozenset(e.event for e in entries if isinstance(e, Wait | Sync))


def bound(entries: Iterable[Entry]) -> dict[OpId, Stream | None]:
    """The ops that entries issue, in order, each with its stream; None for a CPU op."""
    return {e.op: e.stream for e in entries if isinstance(e, Issue)}


# ---- its text ----


def entry_text(entry: Entry, graph: Graph) -> str:
    """`op`, `op@sN`, `record(eN)@sN`, `wait(eN)@sN` or `sync(eN)`."""
    match entry:
        case Issue(op, None):
            return graph.ops[op].name
        case Issue(op, stream):
            return f"{graph.ops[op].name}@s{stream}"
        case Record(event, stream):
            return f"record(e{event})@s{stream}"
        case Wait(event, stream):
            return f"wait(e{event})@s{stream}"
        case Sync(event):
            return f"sync(e{event})"


def traversal_text(traversal: Traversal, graph: Graph) -> str:
    """Entries separated by spaces."""
    return " ".join(entry_text(entry, graph) for entry in traversal.entries)


_ENTRY = re.compile(
    r"(?:(?P<what>record|wait|sync)\(e(?P<event>[0-9]{1,9})\)|(?P<op>[A-Za-z_][^\s@()]*))(?:@s(?P<stream>[0-9]{1,9}))?"
)


def parse_traversal(text: str, graph: Graph, name: str = "traversal") -> Traversal:
    """Read a traversal's text. Errors give `name` (of a file, say), line and column. Raises UsageError."""
    ops = {op.name: op for op in graph.ops}
    entries: list[Entry] = []
    for number, line in enumerate(text.split("\n"), 1):
        for word in re.finditer(r"\S+", line.split("#", 1)[0]):
            entry = _parse_entry(word.group(), ops)
            if isinstance(entry, str):
                raise UsageError(f"{name}:{number}:{word.start() + 1}: `{word.group()}`: {entry}", _HELP)
            entries.append(entry)
    return Traversal(tuple(entries))


_HELP = "write entries as printed by `dagc list`: op, op@sN, record(eN)@sN, wait(eN)@sN, sync(eN)"


def _parse_entry(word: str, ops: dict[str, GraphOp]) -> Entry | str:
    match = _ENTRY.fullmatch(word)
    if match is None:
        return "not an entry of a traversal"
    stream = Stream(int(match["stream"])) if match["stream"] is not None else None
    if match["what"]:
        event = Event(int(match["event"]))
        if match["what"] == "sync":
            return Sync(event) if stream is None else "sync takes no stream"
        if stream is None:
            return f"{match['what']} needs a stream"
        return Record(event, stream) if match["what"] == "record" else Wait(event, stream)
    op = ops.get(match["op"])
    if op is None:
        return "no op has this name"
    if op.gpu != (stream is not None):
        if not op.gpu:
            return "only a GPU op has a stream"
        return f"{'an op of a worker thread' if op.in_worker else 'a GPU op'} needs a stream"
    return Issue(op.id, stream)
