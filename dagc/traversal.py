"""`Traversal`: a complete program in issue order, and its text (the one of design.md section 11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType, TypeAlias

from dagc.ir import OpId

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


Entry: TypeAlias = Issue | Record | Wait | Sync


@dataclass(frozen=True, slots=True)
class Traversal:
    """Entries in issue order; the last is the issue of `end`."""

    entries: tuple[Entry, ...]
