"""Stretches: runs of consecutive GPU entries of a traversal, each to be captured in a CUDA graph and launched as one.

The result is again a list of entries, with `Begin` and `End` around what is captured, and with the entries added that
the rest of the traversal needs, since a captured event means nothing outside of its graph:

- the streams of a stretch fork from its first stream, its origin, and join it at the end (a record and a wait each);
- a wait for an event that was recorded before the stretch is taken out of it, before the launch, on the origin;
- an event of the stretch that is used after it is recorded once more after the launch, on the origin;
- the origin waits for earlier work in the other streams of the stretch, and these wait for the graph if they are used
  later.

Each of these makes the order only stronger: what waited for one op now waits for the whole stretch, and what started
after one op starts after it still. So a proved traversal stays proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dagc.traversal import Entry, Event, Issue, Record, Stream, Sync, Traversal, Wait

SMALLEST = 2  # GPU ops in a stretch: a graph of one op is no gain


@dataclass(frozen=True, slots=True)
class Begin:
    """A stretch begins; it is launched on `origin`. `length` entries follow until its `End`."""

    stretch: int
    origin: Stream
    length: int


@dataclass(frozen=True, slots=True)
class End:
    stretch: int


Step: TypeAlias = Entry | Begin | End


@dataclass(frozen=True, slots=True)
class Placed:
    """A step and the position of the entry in the traversal that it is, None where it was added."""

    step: Step
    position: int | None


def with_stretches(traversal: Traversal) -> tuple[Placed, ...]:
    """The steps of a traversal whose stretches are captured."""
    return _Stretches(traversal).run()


def plain(traversal: Traversal) -> tuple[Placed, ...]:
    """The entries themselves."""
    return tuple(Placed(entry, i) for i, entry in enumerate(traversal.entries))


def _on_gpu(entry: Entry) -> bool:
    return not isinstance(entry, Sync) and entry.stream is not None


class _Stretches:
    def __init__(self, traversal: Traversal) -> None:
        self.entries = traversal.entries
        self.events = sum(isinstance(e, Record) for e in self.entries)
        self.stretches = 0
        self.out: list[Placed] = []

    def run(self) -> tuple[Placed, ...]:
        at = 0
        while at < len(self.entries):
            end = at
            while end < len(self.entries) and _on_gpu(self.entries[end]):
                end += 1
            if sum(isinstance(e, Issue) for e in self.entries[at:end]) >= SMALLEST:
                self._capture(at, end)
                at = end
            else:
                stop = max(end, at + 1)
                self.out += [Placed(self.entries[i], i) for i in range(at, stop)]
                at = stop
        return tuple(self.out)

    def _capture(self, start: int, end: int) -> None:
        inside = self.entries[start:end]
        recorded = {e.event for e in inside if isinstance(e, Record)}
        streams = list(dict.fromkeys(e.stream for e in inside if not isinstance(e, Sync) and e.stream is not None))
        origin, others = streams[0], streams[1:]
        for i, entry in enumerate(inside, start):
            if isinstance(entry, Wait) and entry.event not in recorded:
                self.out.append(Placed(Wait(entry.event, origin), i))
        for stream in others:
            if self._used(stream, 0, start):
                self._order(stream, origin)
        body: list[Placed] = []
        if others:
            fork = self._event()
            body.append(Placed(Record(fork, origin), None))
            body += [Placed(Wait(fork, stream), None) for stream in others]
        body += [
            Placed(entry, i)
            for i, entry in enumerate(inside, start)
            if not (isinstance(entry, Wait) and entry.event not in recorded)
        ]
        for stream in others:
            join = self._event()
            body += [Placed(Record(join, stream), None), Placed(Wait(join, origin), None)]
        self.out += [Placed(Begin(self.stretches, origin, len(body)), None), *body, Placed(End(self.stretches), None)]
        self.stretches += 1
        later = {e.event for e in self.entries[end:] if isinstance(e, Wait | Sync)}
        self.out += [Placed(Record(event, origin), None) for event in sorted(recorded & later)]
        for stream in others:
            if self._used(stream, end, len(self.entries)):
                self._order(origin, stream)

    def _used(self, stream: Stream, start: int, end: int) -> bool:
        return any(not isinstance(e, Sync) and e.stream == stream for e in self.entries[start:end])

    def _order(self, first: Stream, then: Stream) -> None:
        """Later work of `then` waits for earlier work of `first`."""
        event = self._event()
        self.out += [Placed(Record(event, first), None), Placed(Wait(event, then), None)]

    def _event(self) -> Event:
        self.events += 1
        return Event(self.events - 1)
