"""The operations of a rank: its events without staging buffers, requests and waits.

A copy to the host whose data a message sends, and a copy from the host of what one received, are parts of the message:
the message then has the places on the device, if what happens in between permits it, else buffers of its own there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product, takewhile
from typing import TypeAlias

from dagc.base.errors import UsageError
from dagc.record.log import (
    CollectiveCall,
    Complete,
    CopyCall,
    Event,
    Fill,
    LaunchArgument,
    LaunchCall,
    Memory,
    MemoryPlace,
    Pieces,
    RankLog,
    RecordCall,
    Recv,
    Send,
    Sync,
    meet,
    pieces_of,
)
from dagc.record.loop import Window

# ---- operations ----


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """An argument. `reads`, `writes`: what the launch touches of the block; None if that was not recorded."""

    place: MemoryPlace
    of: str
    width: int  # bytes of an element
    const: bool
    type: str
    reads: Pieces | None = None
    writes: Pieces | None = None

    @property
    def writes_none(self) -> bool:
        return self.const if self.writes is None else not self.writes


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """`referred`: the function of a library gets a pointer to it."""

    of: str
    hex: str
    type: str
    referred: bool = False


@dataclass(frozen=True, slots=True)
class KernelCall:
    """`calls`: the library whose function it is, in place of a kernel."""

    at: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    args: tuple[PointerArgument | ScalarArgument, ...]
    calls: str = ""
    index: float = field(default=-1, compare=False)  # of its event


@dataclass(frozen=True, slots=True)
class Move:
    """A copy of `rows` rows; `pitches`: bytes from row to row, of the destination and of the source; `shape`: of one
    that packs a message into a buffer, or unpacks it, what it has of the other side (`MessageCall`)."""

    at: str
    to: MemoryPlace
    source: MemoryPlace
    rows: int
    pitches: tuple[int, int]
    stream: int
    content: str = ""  # of a source on the host that no event wrote
    index: float = field(default=-1, compare=False)  # of its event
    result: str = field(default="", compare=False)  # what the host has after it
    waits: bool = field(default=False, compare=False)  # the host, for it
    shape: tuple[int, ...] = ()
    sent: str = field(default="", compare=False)  # what the host has before it
    computed: bool = field(default=False, compare=False)  # that, by the host


@dataclass(frozen=True, slots=True)
class Set:
    at: str
    to: MemoryPlace
    value: int
    stream: int
    rows: int = 1
    pitch: int = 0
    index: float = field(default=-1, compare=False)  # of its event


@dataclass(frozen=True, slots=True)
class MessageEnd:
    """One end of a message. `place` None: MPI_PROC_NULL, and not known. `number`: of the event."""

    at: str
    peer: int
    tag: int
    comm: int
    place: MemoryPlace | None
    type: str
    bytes: int
    number: int
    content: str = ""
    computed: bool = field(default=False, compare=False)  # the content, by the host


@dataclass(frozen=True, slots=True)
class Messages:
    """`index`: of the last event that posts one; `done`: of that from which all are received; `stages`: the copies of
    the application through the host, to it (True) or from it, each with its index and stream."""

    sends: tuple[MessageEnd, ...]
    receives: tuple[MessageEnd, ...]
    index: float = field(default=-1, compare=False)
    done: float = field(default=-1, compare=False)
    stages: tuple[tuple[bool, float, int], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Together:
    """A collective."""

    at: str
    op: str
    to: MemoryPlace
    source: MemoryPlace
    operator: str
    root: int
    ranks: tuple[int, ...]
    type: str
    content: str = ""
    index: float = field(default=-1, compare=False)  # of its event
    result: str = field(default="", compare=False)  # what the host has after it


_AFTER = 2  # rounds after the last, of which it is known what reads memory of the host
_BEFORE = 3  # rounds before the first, of which it is known what wrote memory of the host
_MOST_PARTS = 32  # messages that one copy from the host brings to the device
BARRIER = "MPI_Barrier"
_WAITS = {"device": "cudaDeviceSynchronize", "stream": "cudaStreamSynchronize", "event": "cudaEventSynchronize"}


@dataclass(frozen=True, slots=True)
class HostWait:
    """A wait of the host. `stream`: for the operations of it alone; None: for all, or for ranks. `until`: those of its
    round that are issued from this index on are not waited for."""

    at: str
    call: str
    stream: int | None
    index: float = field(default=-1, compare=False)  # of its event
    until: float = field(default=math.inf, compare=False)

    def covers(self, op: Op) -> bool:
        """Whether an operation that was issued before has completed after it."""
        if isinstance(op, Messages | Together | HostWait):
            return True
        known = op.index < self.until or op.index > self.index
        return self.call != BARRIER and self.stream in (None, op.stream) and known


Op: TypeAlias = KernelCall | Move | Set | Messages | Together | HostWait


@dataclass(frozen=True, slots=True)
class Flow:
    """The operations of each round, and how many messages needed buffers of their own. `waits`: of the host in a round,
    each with whether data require it; `carries`: whether memory of the host has data of one round for a later one."""

    rounds: tuple[tuple[Op, ...], ...]
    buffered: int
    memory: Memory
    waits: tuple[tuple[HostWait, bool], ...] = ()
    carries: bool = False


def touched(op: Op) -> tuple[tuple[MemoryPlace, ...], tuple[MemoryPlace, ...]]:
    """What an operation reads, and what it writes. Of a kernel whole blocks if that was not recorded."""
    match op:
        case KernelCall():
            whole, pointers = ((0, 1 << 62),), [a for a in op.args if isinstance(a, PointerArgument)]
            reads = ((p, whole if p.reads is None else p.reads) for p in pointers)
            writes = ((p, (() if p.const else whole) if p.writes is None else p.writes) for p in pointers)
            return tuple(_pieces(reads)), tuple(_pieces(writes))
        case Move():
            if op.shape:
                width, rows, pitch, planes, plane = op.shape
                bytes = width + (rows - 1) * pitch + (planes - 1) * plane
                ends = (p if isinstance(p.block, str) else replace(p, bytes=bytes) for p in (op.source, op.to))
                return (next(ends),), (next(ends),)
            return (_span(op.source, op.rows, op.pitches[1]),), (_span(op.to, op.rows, op.pitches[0]),)
        case Set():
            return (), (_span(op.to, op.rows, op.pitch),)
        case Messages():
            return _places(op.sends), _places(op.receives)
        case Together():
            return (op.source,), (op.to,)
        case HostWait():
            return (), ()


def _pieces(touched: Iterable[tuple[PointerArgument, Pieces]]) -> Iterator[MemoryPlace]:
    return (MemoryPlace(p.place.block, begin, end - begin) for p, pieces in touched for begin, end in pieces)


def _span(place: MemoryPlace, rows: int, pitch: int) -> MemoryPlace:
    return replace(place, bytes=place.bytes + (rows - 1) * pitch) if rows > 1 else place


def _places(ends: Sequence[MessageEnd]) -> tuple[MemoryPlace, ...]:
    return tuple(end.place for end in ends if end.place is not None)


# ---- single events ----


def flow_operation(event: LaunchCall | CopyCall | Fill, memory: Memory) -> KernelCall | Move | Set:
    """The operation of a call that is issued to a stream. `memory`: as it is then."""
    match event:
        case LaunchCall():
            return _launch(event, memory)
        case CopyCall():
            return _move(event, memory)
        case Fill():
            return _set(event, memory)


def _launch(event: LaunchCall, memory: Memory) -> KernelCall:
    def argument(one: LaunchArgument) -> PointerArgument | ScalarArgument:
        if not one.is_pointer:
            return ScalarArgument(one.of, one.hex, one.type, bool(one.referred))
        place = memory.place(one.p)
        known = [t for t in event.touched if t.memory == place.block]
        reads, writes = (pieces_of(known[0].reads), pieces_of(known[0].writes)) if known else (None, None)
        return PointerArgument(place, one.of, one.bytes, bool(one.const), one.type, reads, writes)

    args = tuple(map(argument, event.args))
    return KernelCall(event.at, event.kernel, event.grid, event.block, event.shared, event.stream, args, event.calls)


def _move(event: CopyCall, memory: Memory) -> Move:
    """Rows without gaps are one."""
    size, pitches = event.bytes, (event.to_pitch, event.from_pitch)
    joined = event.rows > 1 and pitches == (size, size)
    rows, pitches = (1, (0, 0)) if joined else (event.rows, pitches)
    bytes = size * (event.rows if joined else 1)
    to, source = memory.place(event.to, bytes), memory.place(event.from_, bytes)
    return Move(event.at, to, source, rows, pitches, event.stream, waits=bool(event.waits))


def _set(event: Fill, memory: Memory) -> Set:
    flat = event.rows == 1 or event.pitch == event.bytes
    rows, pitch = (1, 0) if flat else (event.rows, event.pitch)
    place = memory.place(event.to, event.bytes * (event.rows if flat else 1))
    return Set(event.at, place, event.value, event.stream, rows, pitch)


# ---- the passage ----


@dataclass(slots=True)
class _Pack:
    """A copy to the host. `kept`: the host itself reads it, or something that needs it there."""

    index: int
    event: CopyCall
    move: Move
    users: int = 0
    kept: bool = False


@dataclass(slots=True)
class _Part:
    """An end of a message under way. `ready`: index of the event from which its data are in, or must be out of, its
    place on the device; `stage`: its copy."""

    index: int
    event: Send | Recv
    place: MemoryPlace | None
    ready: int
    stage: Move | None = None
    pack: _Pack | None = None
    on_host: bool = False
    computed: bool = False  # by the host, which sends it
    done: int = -1


@dataclass(slots=True)
class _Group:
    parts: list[_Part] = field(default_factory=list)
    open: set[int] = field(default_factory=set)  # requests


@dataclass(frozen=True, slots=True)
class _Written:
    """Bytes of the host that an event wrote."""

    begin: int
    end: int
    by: _Pack | _Part | int  # or the index of a collective


def flow_of(log: RankLog, window: Window, keep_waits: bool = False) -> Flow:
    """The operations of the rounds of a rank; with `keep_waits` also waits of the host."""
    passage = _Passage(log, window)
    passage.walk()
    flow = passage.finish()
    if keep_waits:
        return flow
    rounds = tuple(tuple(op for op in ops if not isinstance(op, HostWait)) for ops in flow.rounds)
    return replace(flow, rounds=rounds)


def _required(wait: HostWait, ops: Sequence[Op]) -> bool:
    """Whether data require a wait of a round that is repeated: an operation since the last wait for it is disturbed by
    one before the next, which neither its stream nor a copy that waits orders."""
    at = next(i for i, op in enumerate(ops) if op is wait)
    around = [*ops[at + 1 :], *ops[:at]]
    between, waited = list[HostWait](), set[int]()
    for one in reversed(around):
        if isinstance(one, HostWait):
            between.append(one)
        if isinstance(one, Messages | Together | HostWait) or not wait.covers(one) or one.stream in waited:
            continue
        if isinstance(one, Move) and one.waits:
            waited.add(one.stream)
        elif not any(other.covers(one) for other in between):
            later = takewhile(lambda op, of=one: not (isinstance(op, HostWait) and op.covers(of)), around)  # type: ignore[misc]
            if any(_disturbs(one, other) and not _in_order(one, wait, other) for other in later):
                return True
    return False


def _disturbs(one: Op, other: Op) -> bool:
    """Whether one of two operations writes what the other reads or writes."""
    (reads, writes), (its_reads, its_writes) = touched(one), touched(other)
    hazards = [*product(writes, (*its_reads, *its_writes)), *product(reads, its_writes)]
    return any(a.overlaps(b) for a, b in hazards)


def _in_order(one: KernelCall | Move | Set, wait: HostWait, later: Op) -> bool:
    """Whether an operation before a wait and a later one are in order without it: of one stream, or by copies of a
    message in it that are not waited for."""
    if isinstance(later, Messages):
        return bool(later.stages) and all(
            stream == one.stream and not (out and at < wait.index < later.index) for out, at, stream in later.stages
        )
    return not isinstance(later, Together | HostWait) and later.stream == one.stream


class _Passage:
    def __init__(self, log: RankLog, window: Window) -> None:
        self.log, self.window = log, window
        begin, after, *_ = window.starts
        self._first = max(
            begin - _BEFORE * (after - begin), 0
        )  # from where on it is known who wrote memory of the host
        self.memory = log.before(self._first)
        self.ops: list[tuple[float, Op]] = []  # by index of the event
        self.packs: list[_Pack] = []
        self.groups: list[_Group] = []
        self.host: list[_Written] = []
        self.buffered, self.carries = 0, False
        self.recorded: dict[int, tuple[int, float]] = {}  # where an event was recorded last: its stream, and the index

    def on_device(self, place: MemoryPlace) -> bool:
        """Whether memory belongs to the device: not pinned memory, which is a buffer like any of the host."""
        return isinstance(place.block, int) and self.memory.known[place.block].kind == "device"

    def walk(self) -> None:
        begin, end = self.window.starts[0], self.window.starts[-1]
        for index, event in enumerate(self.log.events[self._first : begin], start=self._first):
            self.memory.apply(event)
            self._before(index, event)
        for index, event in enumerate(self.log.events[begin : self._end_of_use()], start=begin):
            self.memory.apply(event)
            self._event(index, event)
        self.ops = [(index, op) for index, op in self.ops if index < end]
        self.packs = [pack for pack in self.packs if pack.index < end]
        self.groups = [group for group in self.groups if group.parts[0].index < end]

    def _end_of_use(self) -> int:
        """The index up to which it is known what uses memory of the host: that of the next rounds."""
        events, (*_, last, end) = self.log.events, self.window.starts
        places = [(type(event), event.at) for event in events[last : end + _AFTER * (end - last)]]
        period = end - last
        while places[end - last : end - last + period] == places[:period] and end - last < len(places):
            end += period
        return end

    def _event(self, index: int, event: Event) -> None:
        match event:
            case LaunchCall():
                self.ops.append((index, _launch(event, self.memory)))
            case CopyCall():
                self._copy(index, event)
            case Fill():
                self.ops.append((index, _set(event, self.memory)))
            case Send() | Recv():
                self._message(index, event)
            case Complete():
                self._complete(index, event)
            case CollectiveCall():
                self._collective(index, event)
            case RecordCall():
                self.recorded[event.event] = (event.stream, index)
            case Sync():
                stream, until = (
                    self.recorded.get(event.event, (0, -1)) if event.what == "event" else (event.stream, math.inf)
                )
                of = None if event.what == "device" else stream
                self.ops.append((index, HostWait(event.at, _WAITS[event.what], of, until=until)))
            case _:
                pass

    def _before(self, index: int, event: Event) -> None:
        """An event before the rounds."""
        match event:
            case CopyCall() if self.on_device(self.memory.place(event.from_)):
                move = _move(event, self.memory)
                if not self.on_device(move.to) and move.rows == 1:
                    self._write(event.to, move.to.bytes, _Pack(index, event, move))
            case Recv() if event.peer >= 0 and not self.on_device(self.memory.place(event.buf)):
                for low, high in event.pieces(event.buf):
                    self._write(low, high - low, index)
            case CollectiveCall() if event.recv and event.op != "barrier":
                ranks = len(event.ranks) if event.op == "allgather" else 1
                self._write(event.recv, event.bytes * ranks, index)
            case _:
                pass

    def _now(self, by: _Pack | _Part | int, index: int) -> bool:
        """Whether something wrote memory of the host in the round of this index."""
        return self._round(by if isinstance(by, int) else by.index) == self._round(index)

    # -- copies --

    def _copy(self, index: int, event: CopyCall) -> None:
        move = _move(event, self.memory)
        to, source, flat = move.to, move.source, event.rows == 1 or move.rows == 1
        if self.on_device(to) == self.on_device(source):
            self.ops.append((index, move))
        elif self.on_device(source):
            pack = _Pack(index, event, replace(move, result=event.data))
            self.packs.append(pack)
            self._write(event.to, move.to.bytes if flat else event.to_pitch * event.rows, pack)
        else:
            for ahead, size in self._received(index, event.from_, move):
                place, source = (
                    replace(p, offset=p.offset + ahead, bytes=size) if move.rows == 1 else p
                    for p in (move.to, move.source)
                )
                data = event.data[2 * ahead : 2 * (ahead + size)] if move.rows == 1 else event.data
                self._upload(index, event.from_ + ahead, data, replace(move, to=place, source=source))

    def _received(self, index: int, begin: int, move: Move) -> Iterator[tuple[int, int]]:
        """The pieces of a copy from the host, as bytes from its begin, and sizes: each message of the round that is
        whole in it is one, since several may receive into one buffer."""
        end, at = begin + move.source.bytes, begin
        whole = (w for w in self.host if isinstance(w.by, _Part) and self._now(w.by, index))
        inside = sorted((w.begin, w.end) for w in whole if begin <= w.begin and w.end <= end)
        for low, high in inside if move.rows == 1 and len(inside) <= _MOST_PARTS else ():
            if at < low:
                yield at - begin, low - at
            yield low - begin, high - low
            at = high
        if at < end:
            yield at - begin, end - at

    def _upload(self, index: int, begin: int, data: str, move: Move) -> None:
        by, several = self._writer(begin, move.source.bytes, data), self._writers(begin, move.source.bytes, data)
        move = replace(move, sent=data)
        if isinstance(by, _Part) and move.rows == 1 and by.stage is None and by.event.bytes == move.source.bytes:
            by.stage, by.place, by.ready = move, move.to, index
            return
        whole = isinstance(by, _Pack) and move.rows == by.move.rows == 1 and self._now(by, index)
        if isinstance(by, _Pack) and whole and self._returns(by, begin, move):
            return
        if by is None and not several:
            move = replace(move, content=data, computed=True)
        self._keep([by, *several], index)
        self.ops.append((index, move))

    def _keep(self, writers: Iterable[_Pack | _Part | int | None], index: int) -> None:
        """What they wrote is needed on the host at an index."""
        for by in writers:
            self.carries |= by is not None and not self._now(by, index)
            if isinstance(by, _Pack):
                by.kept = True
            elif isinstance(by, _Part):
                by.on_host = True
                if by.stage is not None:  # the copy that made it one to the device
                    self.ops.append((by.ready, by.stage))
                    by.stage, by.ready = None, by.done
                    by.place = self.memory.place(by.event.buf, by.event.bytes)

    def _writers(self, begin: int, bytes: int, data: str) -> list[_Pack | _Part | int]:
        """Those that wrote this memory of the host together; none if the host wrote a part of it."""
        end, at, out = begin + bytes, begin, list[_Pack | _Part | int]()
        for one in sorted((w for w in self.host if w.begin < end and begin < w.end), key=lambda w: w.begin):
            low, high = max(one.begin, begin), min(one.end, end)
            by = self._writer(low, high - low, data[2 * (low - begin) : 2 * (high - begin)])
            if low != at or by is None:
                return []
            out.append(by)
            at = high
        return out if at == end else []

    def _returns(self, pack: _Pack, begin: int, move: Move) -> bool:
        """Whether a copy from the host only puts data back where they came from, and are still."""
        if pack.move.source.block != move.to.block or pack.move.source.offset + begin - pack.event.to != move.to.offset:
            return False
        written = [place for index, op in self.ops if index > pack.index for place in touched(op)[1]]
        parts = (p for group in self.groups for p in group.parts if isinstance(p.event, Recv))
        written += [p.place for p in parts if p.place is not None and p.ready > pack.index]
        return not any(place.overlaps(move.to) for place in written)

    def _write(self, begin: int, bytes: int, by: _Pack | _Part | int) -> None:
        end, left = begin + bytes, []
        for one in self.host:
            if one.end <= begin or end <= one.begin:
                left.append(one)
                continue
            left += [replace(one, end=begin)] if one.begin < begin else []
            left += [replace(one, begin=end)] if end < one.end else []
        self.host = [*left, _Written(begin, end, by)]

    def _writer(self, begin: int, bytes: int, data: str) -> _Pack | _Part | int | None:
        """What wrote this memory of the host; None if it has other `data` since, so that the host wrote it."""
        end = begin + bytes
        by = next((w.by for w in self.host if w.begin <= begin and end <= w.end), None)
        if isinstance(by, _Pack) and by.event.rows == 1:
            at = 2 * (begin - by.event.to)
            known = by.event.data[at : at + 2 * bytes]
            return by if not data or len(known) != len(data) or known == data else None
        return by

    # -- messages --

    def _message(self, index: int, event: Send | Recv) -> None:
        place = self.memory.place(event.buf, event.span)
        part = _Part(index, event, place, index)
        if event.rows and not self.on_device(place):
            self._of_rows_on_host(index, event)
        elif not self.on_device(place):
            if isinstance(event, Send):
                by = self._writer(event.buf, event.bytes, event.data)
                if isinstance(by, _Pack) and by.move.rows == 1 and self._now(by, index):
                    by.users += 1
                    ahead = event.buf - by.event.to
                    part.place = replace(by.move.source, offset=by.move.source.offset + ahead, bytes=event.bytes)
                    part.pack, part.stage = by, by.move
                    part.ready = by.index
                else:
                    part.on_host, part.computed = True, by is None and event.peer >= 0
                    self._keep([by] if not isinstance(by, _Part) else [], index)
            else:
                self._write(event.buf, event.bytes, part)
        self._group(part).parts.append(part)

    def _of_rows_on_host(self, index: int, event: Send | Recv) -> None:
        """A message of rows of the host's memory, which are packed, or unpacked. Raises UsageError."""
        pieces = [(begin, end - begin) for begin, end in event.pieces(event.buf)]
        sends = isinstance(event, Send) and event.peer >= 0
        writers = [self._writers(*piece, "") for piece in pieces] if sends else []
        if event.rows[3] > 1 or [] in writers:
            what = f"{event.at}: a derived datatype with data of the host"
            raise UsageError(what, "send it from memory of the GPU, or pack it with a kernel or cudaMemcpy2D")
        self._keep(chain(*writers), index)
        for piece in pieces if isinstance(event, Recv) else ():
            self._write(*piece, index)

    def _group(self, part: _Part) -> _Group:
        """The exchange that an end belongs to: that of the ends before, unless something else was issued in between, or
        it sends what one of them received."""
        group = self.groups[-1] if self.groups else None
        last = max((p.index for p in group.parts), default=0) if group is not None else 0
        crosses = self._round(part.index) != self._round(last)
        received = group is not None and all(p.done >= 0 for p in group.parts if isinstance(p.event, Recv))
        if group is not None and (not group.open or (crosses and received)):  # sends may never be waited for
            between = any(index > last and not isinstance(op, HostWait) for index, op in self.ops)
            group = None if between or crosses or self._used_since(group, part) else group
        sends = group is not None and isinstance(part.event, Send)
        if group is not None and sends and any(isinstance(p.event, Recv) and _share(p, part) for p in group.parts):
            together = [p for p in group.parts if p.done < 0 and min(p.event.reqs, default=0) < 0]  # of its call
            group.parts = [p for p in group.parts if not any(p is other for other in together)]
            group.open -= {request for p in together for request in p.event.reqs}
            self.groups = [one for one in self.groups if one.parts]
            group = _Group(together, {request for p in together for request in p.event.reqs})
            self.groups.append(group)
        if group is None:
            group = _Group()
            self.groups.append(group)
        group.open |= set(part.event.reqs)
        return group

    @staticmethod
    def _used_since(group: _Group, part: _Part) -> bool:
        """Whether what the group received was used since, or the part needs memory of one of its ends; what was sent of
        a staging buffer is on the device."""
        received = any(isinstance(p.event, Recv) and p.stage is not None for p in group.parts)
        both = [p for p in group.parts if p.pack is None and Recv in (type(p.event), type(part.event))]
        return received or any(meet(p.event.pieces(p.event.buf), part.event.pieces(part.event.buf)) for p in both)

    def _complete(self, index: int, event: Complete) -> None:
        for group in self.groups:
            group.open -= set(event.reqs)
            for part in group.parts:
                if part.done < 0 and set(part.event.reqs) & set(event.reqs):  # later ones may have the same handle
                    part.done = index
                if isinstance(part.event, Recv) and part.ready == part.index and set(part.event.reqs) & set(event.reqs):
                    part.ready = index

    # -- collectives --

    def _collective(self, index: int, event: CollectiveCall) -> None:
        if event.op == "barrier":
            self.ops.append((index, HostWait(event.at, BARRIER, None)))
            return
        source, to = self.memory.place(event.send, event.bytes), self.memory.place(event.recv, event.bytes)
        size = event.bytes * (len(event.ranks) if event.op == "allgather" else 1)
        to = replace(to, bytes=size)
        content = ""
        if not self.on_device(source):
            by = self._writer(event.send, event.bytes, event.data)
            self._keep([by], index)
            if by is None and (event.op != "bcast" or event.root == self.log.rank):
                content = event.data
        self._write(event.recv, size, index)
        together = Together(
            event.at, event.op, to, source, event.operator, event.root, event.ranks, event.type, content,
            result=event.result,
        )  # fmt: skip
        self.ops.append((index, together))

    # -- the end --

    def _round(self, index: float) -> int:
        return sum(start <= index for start in self.window.starts) - 1

    def finish(self) -> Flow:
        for group in self.groups:
            for part in group.parts:
                if isinstance(part.event, Recv) and part.stage is None and not self._direct(part):
                    part.on_host = part.event.peer >= 0
                    part.place = part.place if part.on_host else None
        for pack in self.packs:
            if pack.kept or not pack.users:
                self.ops.append((pack.index, pack.move))
        for group in self.groups:
            self._place_group(group)
        self.ops.sort(key=lambda item: item[0])
        rounds: list[list[Op]] = [[] for _ in range(self.window.rounds)]
        for index, op in self.ops:
            one = op if isinstance(op, Messages) else replace(op, index=index)
            rounds[min(max(self._round(index), 0), len(rounds) - 1)].append(one)
        waits = tuple((op, _required(op, rounds[0])) for op in rounds[0] if isinstance(op, HostWait))
        return Flow(tuple(map(tuple, rounds)), self.buffered, self.memory, waits, self.carries)

    def _direct(self, part: _Part) -> bool:
        return part.place is not None and self.on_device(part.place)

    def _place_group(self, group: _Group) -> None:
        posted = max(part.index for part in group.parts)
        done = min((p.ready for p in group.parts if isinstance(p.event, Recv) and p.place is not None), default=posted)
        at = next((at for at in (posted, max(done, posted)) if all(self._holds(p, at) for p in group.parts)), None)
        # Else data change, or are read, while they are under way: buffers as the application has them, on the device.
        self.buffered += at is None
        parts: list[_Part] = []
        for part in group.parts:
            buffered = part.stage is not None and part.place is not None and at is None
            parts.append(self._through_buffer(part, parts, at or posted) if buffered or part.event.rows else part)
        self.ops.append((posted if at is None else at, _exchange(parts)))

    def _through_buffer(self, part: _Part, before: Sequence[_Part], at: float) -> _Part:
        """The part with a buffer on the device, and its copy: of rows with gaps, or of data that change."""
        event, sends = part.event, isinstance(part.event, Send)
        nth = sum(p.event.at == event.at and type(p.event) is type(event) for p in before)
        buffer = MemoryPlace(f"{'send' if sends else 'recv'} {event.at} {nth}", 0, event.bytes)
        of = part.stage
        known = part.place is not None and part.place.block is not None
        if part.place is not None and (of is not None or event.peer >= 0 or (sends and known)):  # of no rank
            width, rows, pitch, _, _ = event.shape
            on_device = self.on_device(part.place)  # else the copy is one of the host's
            here, there = (replace(place, bytes=event.bytes if on_device else width) for place in (buffer, part.place))
            to, source, pitches = (here, there, (width, pitch)) if sends else (there, here, (pitch, width))
            move = Move(
                of.at if of else event.at, to, source, 1 if on_device else rows, (0, 0) if on_device else pitches,
                of.stream if of else 0, shape=event.rows if on_device else (),
            )  # fmt: skip
            packs = part.ready - 0.5 if of is not None else part.index
            self.ops.append((packs if sends else max(part.ready, at + 0.25 if event.rows else 0), move))
        return replace(part, place=buffer)

    def _holds(self, part: _Part, at: int) -> bool:
        """Whether the end may happen at an index: nothing between it and its copy disturbs its data."""
        if part.place is None or part.event.rows:
            return True
        begin, end = sorted((part.ready, at))
        for index, op in self.ops:
            if not begin < index < end:
                continue
            reads, writes = touched(op)
            for place in writes if isinstance(part.event, Send) else (*reads, *writes):
                if place.overlaps(part.place):
                    return False
        return True


def _share(one: _Part, other: _Part) -> bool:
    """Whether two ends have bytes in common."""
    a, b = one.place, other.place
    if a is None or b is None or a.block != b.block:
        return False
    return meet(one.event.pieces(a.offset), other.event.pieces(b.offset))


def _exchange(parts: Sequence[_Part]) -> Messages:
    sends = tuple(_end(part) for part in parts if isinstance(part.event, Send))
    receives = tuple(_end(part) for part in parts if isinstance(part.event, Recv))
    stages = tuple((isinstance(p.event, Send), p.ready, p.stage.stream) for p in parts if p.stage is not None)
    posted = max(part.index for part in parts)
    return Messages(sends, receives, posted, max(posted, *(part.done for part in parts)), stages)


def _end(part: _Part) -> MessageEnd:
    event = part.event
    peer = event.source if event.source >= 0 else event.peer
    tag = event.got if event.got >= 0 else event.tag
    content = event.data if part.on_host and isinstance(event, Send) else ""
    return MessageEnd(
        event.at, peer, tag, event.comm, part.place, event.type, event.bytes, event.n, content, part.computed
    )
