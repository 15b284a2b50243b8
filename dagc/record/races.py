"""Races of a recorded application: an operation reads or writes what another writes, and nothing orders the two.

What is in order is kept as vector clocks: for each stream, and for the host, how many operations of each stream are
known to be over. The default stream is in order with the others but those made with cudaStreamNonBlocking. What a
kernel touches is left out where it is not known: not all races are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dagc.base.errors import counted
from dagc.record.flow import KernelCall, Move, Op, PointerArgument, Set, flow_operation, touched
from dagc.record.log import (
    CollectiveCall,
    Complete,
    CopyCall,
    Fill,
    Free,
    LaunchCall,
    Memory,
    MemoryPlace,
    MessageCall,
    RankLog,
    RecordCall,
    Send,
    Sync,
    WaitCall,
    meet,
)
from dagc.record.loop import Window

_HOST = -1  # for the streams' numbers: the host itself
_MOST = 3  # races that are named
Clock: TypeAlias = dict[object, int]


@dataclass(frozen=True, slots=True)
class _Access:
    """Of an operation: the `count`th of its line, which is a stream, or a message under way. `outlined`: blocks of
    which it touches less than its places say."""

    what: str
    line: object
    count: int
    reads: tuple[MemoryPlace, ...]
    writes: tuple[MemoryPlace, ...]
    outlined: frozenset[object] = frozenset()


def races(logs: Sequence[RankLog], found: Sequence[Window]) -> tuple[str, ...]:
    """A line for each race of the rounds, of any rank: each pair of places once, three at most, those that may be none
    last."""
    pairs: dict[tuple[str, str], bool] = {}
    for first, second, sure in (race for log, of in zip(logs, found, strict=True) for race in _Clocks(log).walk(of)):
        pairs[first, second] = pairs.get((first, second), False) or sure
    lines = [
        f"nothing orders {first} before {second}, and one "
        + ("writes what the other touches: a race of the application, unless both are atomic updates" if sure else
           "may write what the other touches, of which the outlines are known: look whether they share elements")
        for (first, second), sure in sorted(pairs.items(), key=lambda pair: not pair[1])[:_MOST]
    ]  # fmt: skip
    more = len(pairs) - len(lines)
    return (*lines, *([f"and {counted(more, 'further pair')}"] if more else []))


class _Clocks:
    """The passage of a rank's events."""

    def __init__(self, log: RankLog) -> None:
        self.log, self.memory = log, Memory()
        self.clocks: dict[object, Clock] = {_HOST: {}}  # what is over when the next operation of a stream starts
        self.events: dict[int, Clock] = {}
        self.under_way: dict[int, list[object]] = {}  # the messages of a request: small ones may share one
        self.before: list[_Access] = []

    def walk(self, window: Window) -> Iterator[tuple[str, str, bool]]:
        """Pairs of operations that race, each with its place, and whether they certainly do."""
        begin, end = window.starts[0], window.starts[-1]
        self.memory = self.log.before(begin)
        for event in self.log.events[begin:end]:
            self.memory.apply(event)
            match event:
                case LaunchCall() | CopyCall() | Fill():
                    yield from self._on_stream(event)
                case MessageCall() | CollectiveCall():
                    yield from self._by_host(event)
                case Complete():
                    for request in event.reqs:
                        self._host().update(dict.fromkeys(self.under_way.pop(request, ()), 1))
                case RecordCall():
                    self.events[event.event] = _joined(self._of(event.stream), self._host())
                case WaitCall():
                    self._next(event.stream, _joined(self._of(event.stream), self.events.get(event.event, {})))
                case Sync() | Free():
                    self.clocks[_HOST] = _joined(self._host(), *self._waited(event))
                case _:
                    pass

    def _host(self) -> Clock:
        return self.clocks[_HOST]

    def _of(self, stream: int) -> Clock:
        """Of the default stream: all that was issued to streams that are in order with it."""
        if stream == 0:
            return _joined(*(clock for line, clock in self.clocks.items() if line not in self.log.apart))
        return self.clocks.setdefault(stream, {} if stream in self.log.apart else dict(self.clocks.get(0, {})))

    def _next(self, stream: int, clock: Clock) -> None:
        """What is over when the next operation of a stream starts; of the default stream, also for those that wait."""
        self.clocks[stream] = clock
        for other in self.clocks.keys() - {_HOST, *self.log.apart} if stream == 0 else ():
            self.clocks[other] = _joined(self.clocks[other], clock)

    def _waited(self, event: Sync | Free) -> Iterable[Clock]:
        match event:
            case Sync(what="stream"):
                return (self._of(event.stream),)
            case Sync(what="event"):
                return (self.events.get(event.event, {}),)
            case _:
                return tuple(self.clocks.values())

    def _on_stream(self, event: LaunchCall | CopyCall | Fill) -> Iterator[tuple[str, str, bool]]:
        op = _with_known(flow_operation(event, self.memory))
        reads, writes = touched(op)
        if isinstance(event, CopyCall) and not event.waits:  # CUDA has taken pageable memory when the call returns
            reads = tuple(place for place in reads if place.block is not None)
        clock = _joined(self._of(event.stream), self._host())
        name = f"{_name(event)} at {event.at} in stream {event.stream}"
        access = _Access(name, event.stream, clock.get(event.stream, 0) + 1, reads, writes, _outlined(event, op))
        yield from self._against(access, clock)
        after = clock | {event.stream: access.count}
        self._next(event.stream, after)
        if isinstance(event, CopyCall) and (event.waits or any(place.block is None for place in writes)):
            self.clocks[_HOST] = _joined(self._host(), after)

    def _by_host(self, event: MessageCall | CollectiveCall) -> Iterator[tuple[str, str, bool]]:
        if isinstance(event, MessageCall):
            pieces = event.pieces(event.buf) if event.peer >= 0 else ()
            place = tuple(self.memory.place(begin, end - begin) for begin, end in pieces)
            reads, writes = (place, ()) if isinstance(event, Send) else ((), place)
            name, requests = "the message", event.reqs
        else:
            ranks = len(event.ranks) if event.op == "allgather" else 1
            reads = (self.memory.place(event.send, event.bytes),) if event.send else ()
            writes = (self.memory.place(event.recv, event.bytes * ranks),) if event.recv else ()
            name, requests = f"MPI's {event.op}", ()
        line = ("message", event.n)
        yield from self._against(_Access(f"{name} at {event.at}", line, 1, reads, writes), dict(self._host()))
        for request in requests:
            self.under_way.setdefault(request, []).append(line)
        if not requests:
            self._host()[line] = 1

    def _against(self, one: _Access, clock: Clock) -> Iterator[tuple[str, str, bool]]:
        """The operations before it that are not known to be over, and that it disturbs or is disturbed by."""
        for other in self.before:
            if clock.get(other.line, 0) < other.count and (blocks := _disturbed(one, other)):
                yield other.what, one.what, bool(blocks - one.outlined - other.outlined)
        if one.reads or one.writes:
            self.before.append(one)


def _name(event: LaunchCall | CopyCall | Fill) -> str:
    match event:
        case LaunchCall():
            return event.kernel
        case CopyCall():
            return "the copy"
        case Fill():
            return "the fill"


def _joined(*clocks: Clock) -> Clock:
    out: Clock = {}
    for clock in clocks:
        for line, count in clock.items():
            out[line] = max(count, out.get(line, 0))
    return out


def _disturbed(one: _Access, other: _Access) -> set[object]:
    """The blocks of which one writes what the other touches."""

    def of(places: Iterable[MemoryPlace], block: object) -> list[tuple[int, int]]:
        return [(place.offset, place.offset + place.bytes) for place in places if place.block == block]

    return {
        block
        for a, b in ((one, other), (other, one))
        for block in {place.block for place in a.writes}
        if meet(of(a.writes, block), of((*b.reads, *b.writes), block))
    }


def _outlined(event: LaunchCall | CopyCall | Fill, op: Op) -> frozenset[object]:
    if isinstance(event, LaunchCall):
        return frozenset(t.memory for t in event.touched if not t.exact)
    rows = isinstance(op, Move | Set) and op.rows > 1
    return frozenset(place.block for places in touched(op) for place in places) if rows else frozenset()


def _with_known(op: Op) -> Op:
    """A kernel without the arrays of which is not known what it touches."""
    if not isinstance(op, KernelCall):
        return op
    known = (a for a in op.args if not isinstance(a, PointerArgument) or None not in (a.reads, a.writes))
    return replace(op, args=tuple(known))
