"""A traversal: the entries of one implementation in issue order, and their text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, Literal, NewType, TypeAlias

from dagc.base.errors import UsageError
from dagc.ir.enums import Opcode
from dagc.ir.program import Graph, GraphOp, OpId

# ---- `Traversal`: a complete program in issue order ----

Stream = NewType("Stream", int)
Event = NewType("Event", int)

# A row (kind, a, b) of the table that runners execute, see templates/runtime/dagc/runner.hpp.
Row: TypeAlias = tuple[int, int, int]


def _number(stream: Stream | None) -> int:
    """A stream in a row."""
    return -1 if stream is None else stream


def _code(row: Row) -> int:
    """A number that only equal entries share."""
    opcode, a, b = row
    return (a << 16 | b + 1) << 2 | opcode


# Every entry says what it does by the same attributes: `op`, the op that it issues; `event`, the event that it records
# or waits for (`records`, `waits`); `stream`, where it does so, None for the CPU. Its text is that of a traversal, its
# row that of the table, its code what traversals are hashed by.


@dataclass(frozen=True, slots=True)
class Issue:
    """An op is issued on a stream, or runs on the CPU."""

    op: OpId
    stream: Stream | None = None
    code: int = field(init=False, repr=False, compare=False)
    event: ClassVar[None] = None
    records: ClassVar[Literal[False]] = False
    waits: ClassVar[Literal[False]] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", _code(self.row))

    @property
    def row(self) -> Row:
        return Opcode.ISSUE, self.op, _number(self.stream)

    def text(self, graph: Graph) -> str:
        """`op` or `op@sN`."""
        name = graph.ops[self.op].name
        return name if self.stream is None else f"{name}@s{self.stream}"


@dataclass(frozen=True, slots=True)
class Record:
    """Event record in a stream. Events are numbered by their records, from 0."""

    event: Event
    stream: Stream
    code: int = field(init=False, repr=False, compare=False)
    op: ClassVar[None] = None
    records: ClassVar[Literal[True]] = True
    waits: ClassVar[Literal[False]] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", _code(self.row))

    @property
    def row(self) -> Row:
        return Opcode.RECORD, self.event, self.stream

    def text(self, graph: Graph) -> str:
        """`record(eN)@sN`."""
        return f"record(e{self.event})@s{self.stream}"


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream, or the CPU, waits for an event."""

    event: Event
    stream: Stream | None = None
    code: int = field(init=False, repr=False, compare=False)
    op: ClassVar[None] = None
    records: ClassVar[Literal[False]] = False
    waits: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", _code(self.row))

    @property
    def row(self) -> Row:
        return Opcode.SYNC if self.stream is None else Opcode.WAIT, self.event, _number(self.stream)

    def text(self, graph: Graph) -> str:
        """`sync(eN)`, or `wait(eN)@sN` for a stream."""
        return f"sync(e{self.event})" if self.stream is None else f"wait(e{self.event})@s{self.stream}"


Entry: TypeAlias = Issue | Record | Wait


# There are few entries and many traversals: what builds traversals lets equal entries share one object. -1 is the CPU.


@cache
def issue_of(op: int, stream: int) -> Issue:
    return Issue(OpId(op), Stream(stream) if stream >= 0 else None)


@cache
def record_of(event: int, stream: int) -> Record:
    return Record(Event(event), Stream(stream))


@cache
def wait_of(event: int, stream: int) -> Wait:
    return Wait(Event(event), Stream(stream) if stream >= 0 else None)


@dataclass(frozen=True, slots=True)
class Traversal:
    """Entries in issue order; the last is the issue of `end`."""

    entries: tuple[Entry, ...]

    def __hash__(self) -> int:
        return hash(tuple([entry.code for entry in self.entries]))


def streams_of(entries: Iterable[Entry]) -> tuple[Stream, ...]:
    """The streams that entries use, in the order of their first use."""
    return tuple(dict.fromkeys(e.stream for e in entries if e.stream is not None))


def recorded(entries: Iterable[Entry]) -> dict[Event, int]:
    """The events that entries record, in order, each with the position of its last record."""
    return {e.event: at for at, e in enumerate(entries) if e.records}


def awaited(entries: Iterable[Entry]) -> frozenset[Event]:
    """The events that a stream or the CPU waits for."""
    return frozenset(e.event for e in entries if e.waits)


def bound(entries: Iterable[Entry]) -> dict[OpId, Stream | None]:
    """The ops that entries issue, in order, each with its stream; None for a CPU op."""
    return {e.op: e.stream for e in entries if e.op is not None}


def in_order(first: Stream, event: Event, *then: Stream | None) -> tuple[Entry, ...]:
    """A record in a stream, and waits for it: later work of `then` starts after earlier work of `first`."""
    return Record(event, first), *(Wait(event, waiting) for waiting in then)


# ---- its text ----


def traversal_text(traversal: Traversal, graph: Graph) -> str:
    """Entries separated by spaces."""
    return " ".join(entry.text(graph) for entry in traversal.entries)


_ENTRY = re.compile(
    r"(?:(?P<what>record|wait|sync)\(e(?P<event>[0-9]{1,9})\)|(?P<op>[A-Za-z_][^\s@()]*))(?:@s(?P<stream>[0-9]{1,9}))?"
)


def parse_traversal(text: str, graph: Graph, name: str = "traversal", at: tuple[int, int] = (1, 1)) -> Traversal:
    """Read a traversal's text. Errors give `name` (of a file, say), line and column; `at`: those where the text begins.
    Raises UsageError."""
    ops = {op.name: op for op in graph.ops}
    entries: list[Entry] = []
    for number, line in enumerate(text.split("\n"), at[0]):
        for word in re.finditer(r"\S+", line.split("#", 1)[0]):
            entry = _parse_entry(word.group(), ops)
            if isinstance(entry, str):
                column = word.start() + (at[1] if number == at[0] else 1)
                raise UsageError(f"{name}:{number}:{column}: `{word.group()}`: {entry}", _HELP)
            entries.append(entry)
    return Traversal(tuple(entries))


def issued(text: str) -> list[tuple[str, int]]:
    """The ops that a text of a traversal names, in order, each with its stream (-1: none). Empty if a word of the text
    is no entry."""
    lines = (line.split("#", 1)[0] for line in text.split("\n"))
    words = [_ENTRY.fullmatch(word) for line in lines for word in line.split()]
    if not all(words):
        return []
    return [(w["op"], int(w["stream"] or -1)) for w in words if w is not None and w["op"]]


_HELP = "write entries as printed by `dagc list`: op, op@sN, record(eN)@sN, wait(eN)@sN, sync(eN)"


def _parse_entry(word: str, ops: dict[str, GraphOp]) -> Entry | str:
    match = _ENTRY.fullmatch(word)
    if match is None:
        return "not an entry of a traversal"
    stream = Stream(int(match["stream"])) if match["stream"] is not None else None
    if match["what"]:
        event = Event(int(match["event"]))
        if match["what"] == "sync":
            return Wait(event) if stream is None else "sync takes no stream"
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
