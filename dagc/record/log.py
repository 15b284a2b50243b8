"""The logs of a recorded run, as `templates/record/log.hpp` writes them: data that are checked, and never run.

A log has a line of JSON for each event. Addresses are those of the process; ranks those of MPI_COMM_WORLD.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from dagc.base.errors import UsageError

MOST_EVENTS = 2_000_000


@dataclass(frozen=True, slots=True)
class LaunchArgument:
    """Of a launch: a pointer (`p`; `of`: its elements, of `bytes` bytes), or a value (`hex`: its bytes; `points`: a
    struct with a pointer into the GPU's memory; `referred`: a number of the host, of which the call has a pointer)."""

    of: str
    bytes: int
    p: int = -1
    const: int = 0
    hex: str = ""
    type: str = ""
    points: int = 0
    referred: int = 0

    @property
    def is_pointer(self) -> bool:
        return self.p >= 0


PIECES = 4  # of an array that an operation reads, or writes
Pieces: TypeAlias = tuple[tuple[int, int], ...]  # begin and end of each, in bytes, in their order


def pieces_of(ends: Sequence[int]) -> Pieces:
    return tuple(zip(ends[::2], ends[1::2], strict=True))


def joined(pieces: Iterable[tuple[int, int]], most: int) -> Pieces:
    """The pieces that cover these: at most `most`, without gaps that are small beside all of them."""
    ordered = sorted(p for p in pieces if p[0] < p[1])
    out: list[tuple[int, int]] = []
    for begin, end in ordered:
        if out and begin - out[-1][1] <= (ordered[-1][1] - ordered[0][0]) // 16:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    while len(out) > most:
        at = min(range(1, len(out)), key=lambda k: out[k][0] - out[k - 1][1])
        out[at - 1 : at + 1] = [(out[at - 1][0], out[at][1])]
    return tuple(out)


def covers(pieces: Iterable[tuple[int, int]], one: tuple[int, int]) -> bool:
    """Whether pieces have all of one."""
    at = one[0]
    for begin, end in sorted(pieces):
        at = max(at, end) if begin <= at else at
    return at >= one[1]


def meet(one: Iterable[tuple[int, int]], other: Iterable[tuple[int, int]]) -> bool:
    """Whether a piece of one overlaps with a piece of the other."""
    ordered = sorted([*((begin, end, 0) for begin, end in one), *((begin, end, 1) for begin, end in other)])
    last = [-1, -1]  # the ends of the pieces before
    for begin, end, side in ordered:
        if begin < last[1 - side]:
            return True
        last[side] = max(last[side], end)
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """What all events have. `n`: its number in its process; `at`: FILE:LINE, "" if not known."""

    n: int
    at: str = ""
    thread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alloc(LoggedCall):
    """`memory`: the number of the event that allocated the same memory first: a place that allocates as much again,
    after it was freed, gets it again."""

    p: int
    bytes: int
    kind: str  # device, pinned, managed, symbol
    memory: int
    text: str = ""  # the arguments of the call in the source
    of: str = ""  # element type of a symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(LoggedCall):
    p: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCall(LoggedCall):
    kernel: str  # as the launch names it
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    args: tuple[LaunchArgument, ...]
    touched: tuple[TouchedMemory, ...] = ()  # none: not recorded
    library: str = ""  # of CUDA, which launches it in place of the application
    calls: str = ""  # a library of CUDA, whose function of this name is called, and no kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedMemory(LoggedCall):
    """What the launch of this number reads and writes of an array: begins and ends in bytes. `memory`: as of its
    `Alloc`. `exact`: nothing in between is left."""

    memory: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    exact: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCall(LoggedCall):
    """`rows` rows of `bytes` bytes. `waits`: the host waits for it. `data`: of the host, before it or (of a copy to the
    host) after it."""

    to: int
    from_: int
    bytes: int
    rows: int = 1
    to_pitch: int = 0
    from_pitch: int = 0
    stream: int = 0
    waits: int = 0
    data: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill(LoggedCall):
    """Of `rows` rows of `bytes` bytes, `pitch` bytes from row to row."""

    to: int
    value: int
    bytes: int
    stream: int
    rows: int = 1
    pitch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(LoggedCall):
    """The host waits for a stream, an event, or the device."""

    what: str
    stream: int = 0
    event: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCall(LoggedCall):
    stream: int
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCall(LoggedCall):
    event: int
    stream: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCall(LoggedCall):
    """One end of a message. `peer` -1: MPI_PROC_NULL. `reqs`: none of a call that blocks. `rows`: of a derived datatype
    with gaps, bytes of a row, rows of a plane and bytes from one to the next, planes and bytes from one to the next."""

    buf: int
    bytes: int
    type: str
    peer: int
    tag: int
    comm: int
    reqs: tuple[int, ...]
    data: str = ""
    source: int = -1
    got: int = -1
    rows: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """As `rows`, also without gaps."""
        width, rows, pitch, planes, plane = self.rows or (self.bytes, 1, 0, 1, 0)
        return width, rows, pitch, planes, plane

    @property
    def span(self) -> int:
        """Bytes from its first to its last."""
        width, rows, pitch, planes, plane = self.shape
        return width + (rows - 1) * pitch + (planes - 1) * plane

    def pieces(self, begin: int) -> Iterator[tuple[int, int]]:
        """Begin and end of each row, of a message from `begin` on."""
        width, rows, pitch, planes, plane = self.shape
        for k, j in product(range(planes), range(rows)):
            yield begin + k * plane + j * pitch, begin + k * plane + j * pitch + width


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(MessageCall):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Recv(MessageCall):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete(LoggedCall):
    reqs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall(LoggedCall):
    """`send` equals `recv` where the call is in place. `result`: what the host has after it."""

    op: str
    send: int
    recv: int
    bytes: int
    type: str
    operator: str
    root: int
    ranks: tuple[int, ...]
    data: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkCall(LoggedCall):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported(LoggedCall):
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalize(LoggedCall):
    pass


Event: TypeAlias = LoggedCall
_KINDS: dict[str, type[LoggedCall]] = {
    "alloc": Alloc, "free": Free, "launch": LaunchCall, "copy": CopyCall, "fill": Fill, "sync": Sync, "wait": WaitCall,
    "record": RecordCall, "send": Send, "recv": Recv, "complete": Complete, "collective": CollectiveCall,
    "mark": MarkCall, "unsupported": Unsupported, "finalize": Finalize, "touched": TouchedMemory,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankLog:
    """The events of a rank in the order of their numbers. `contents`: which of the two contents were written; `gpu`:
    the UUID of its GPU, where it is known; `apart`: streams that were made with cudaStreamNonBlocking, each time, which
    the default stream does not wait for, nor they for it."""

    rank: int
    size: int
    events: tuple[Event, ...]
    contents: frozenset[int] = frozenset()
    too_large: int = 0
    ended: bool = False
    gpu: str = ""
    apart: frozenset[int] = frozenset()

    def memory(self) -> dict[int, Alloc]:
        """The first allocation of each memory."""
        return {e.n: e for e in self.events if isinstance(e, Alloc) and e.n == e.memory}

    def before(self, index: int) -> Memory:
        """The memory before the event with this index."""
        out = Memory()
        for event in self.events[:index]:
            out.apply(event)
        return out


def read_logs(folder: Path) -> tuple[RankLog, ...]:
    """The logs in a folder, by rank. Raises UsageError for logs that are damaged, of ranks that do not fit, or of an
    application whose forked processes call CUDA or MPI."""
    for note in folder.glob("forked-*"):
        help = "call CUDA and MPI in the process that was started, or start programs with exec"
        raise UsageError(f"{note.read_text(errors='replace')}: a forked process calls CUDA or MPI", help)
    logs = [_read(path) for path in sorted(folder.glob("events-*.jsonl"))]
    logs = [log for log in logs if log.events]  # starters and shells also load nothing of ours, and write none
    logs.sort(key=lambda log: log.rank)
    if not logs:
        help = "it must call CUDA or MPI, and the command must start the program that was built"
        raise UsageError("the application recorded no event", help)
    sizes = {log.size for log in logs}
    if len(sizes) != 1 or [log.rank for log in logs] != list(range(len(logs))) or len(logs) != logs[0].size:
        ranks = ", ".join(f"{log.rank} of {log.size}" for log in logs)
        raise UsageError(f"the processes recorded are ranks {ranks}", "start one MPI application, with each rank once")
    return tuple(logs)


def _read(path: Path) -> RankLog:
    rank, size, large, gpu = 0, 1, 0, ""
    events: list[Event] = []
    contents: set[int] = set()
    made: dict[int, bool] = {}  # streams: whether apart
    ended = False
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if number > MOST_EVENTS:
            raise UsageError(f"the application made more than {MOST_EVENTS} calls", "record a shorter run")
        item = _object(path, number, line)
        match item.get("e"):
            case "rank":
                rank, size = _number(path, number, item, "rank"), _number(path, number, item, "size")
            case "contents":
                contents.add(_number(path, number, item, "which"))
            case "gpu":
                gpu = item["uuid"] if isinstance(item.get("uuid"), str) else ""
            case "stream":
                stream, apart = _number(path, number, item, "stream"), _number(path, number, item, "apart") != 0
                made[stream] = apart and made.get(stream, True)
            case "too-large":
                large = _number(path, number, item, "bytes")
            case "end":
                ended = True
            case str(kind) if kind in _KINDS:
                events.append(_event(path, number, _KINDS[kind], item))
            case _:
                raise _damaged(path, number)
    calls = sorted((event for event in events if not isinstance(event, TouchedMemory)), key=lambda event: event.n)
    numbers: dict[tuple[str, int], int] = {("stream", 0): 0}
    whole = tuple(_with_data(_with_touched(_numbered(calls, numbers), events), path.parent, rank))
    alone = frozenset(
        numbers[key] for stream, apart in made.items() if apart and (key := ("stream", stream)) in numbers
    )
    return RankLog(rank, size, whole, frozenset(contents), large, ended, gpu, alone)


def _with_touched(calls: Iterable[Event], events: Iterable[Event]) -> Iterator[Event]:
    """The calls, each launch with what it touches."""
    of: dict[int, list[TouchedMemory]] = {}
    for event in events:
        if isinstance(event, TouchedMemory):
            of.setdefault(event.n, []).append(event)
    for call in calls:
        yield replace(call, touched=tuple(of[call.n])) if isinstance(call, LaunchCall) and call.n in of else call


def _with_data(calls: Iterable[Event], folder: Path, rank: int) -> Iterator[Event]:
    """The calls, with what the host gave to them in files."""
    for call in calls:
        if isinstance(call, CopyCall | CollectiveCall | MessageCall) and not call.data:
            file = folder / f"data-{rank}-{call.n}.bin"
            call = replace(call, data=file.read_bytes().hex()) if file.is_file() else call
        yield call


def _numbered(events: Iterable[Event], numbers: dict[tuple[str, int], int]) -> Iterator[Event]:
    """The events with streams, and CUDA's events, by the order of their first use, which `numbers` gets; 0: the default
    stream, which has the names 0, 1 and 2."""
    for event in events:
        known: dict[str, Any] = {}
        for name in ("stream", "event"):
            if hasattr(event, name):
                handle = getattr(event, name)
                handle = 0 if name == "stream" and handle <= 2 else handle
                known[name] = numbers.setdefault((name, handle), len(numbers))
        yield replace(event, **known) if known else event


def _damaged(path: Path, number: int) -> UsageError:
    return UsageError(f"{path.name}, line {number}: not an event of a recorded run", "record again")


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged(path, number) from None
    if not isinstance(item, dict):
        raise _damaged(path, number)
    return item


def _number(path: Path, line: int, item: Mapping[str, Any], name: str) -> int:
    value = item.get(name)
    if type(value) is not int:
        raise _damaged(path, line)
    return value


def _event(path: Path, line: int, kind: type[Any], item: Mapping[str, Any]) -> Any:
    """The event, or argument, of this type: each field checked against its annotation."""
    values: dict[str, Any] = {}
    for one in fields(kind):
        name = one.name.rstrip("_")
        if name not in item:
            if one.default is MISSING:
                raise _damaged(path, line)
            continue
        value = item[name]
        if one.type == "tuple[LaunchArgument, ...]" and isinstance(value, list):
            value = tuple(_event(path, line, LaunchArgument, v) if isinstance(v, dict) else v for v in value)
            good = all(isinstance(v, LaunchArgument) for v in value)
        elif one.type == "tuple[int, ...]" and isinstance(value, list):
            value, good = tuple(value), all(type(v) is int for v in value)
        else:
            good = type(value) is {"int": int, "str": str}.get(str(one.type))
        if not good:
            raise _damaged(path, line)
        values[one.name] = value
    return kind(**values)


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """Bytes of a block of memory: `block` is the `memory` of its allocation; a text: a buffer of ours; None:
    memory of the host that no recorded call allocated, and `offset` its address."""

    block: int | str | None
    offset: int
    bytes: int

    def overlaps(self, other: MemoryPlace) -> bool:
        same = self.block == other.block
        return same and self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes

    def covers(self, other: MemoryPlace) -> bool:
        same = self.block == other.block
        return same and self.offset <= other.offset and other.offset + other.bytes <= self.offset + self.bytes


@dataclass(slots=True)
class Memory:
    """Which allocations are alive, while events pass by."""

    blocks: dict[int, Alloc] = field(default_factory=dict)  # by address
    known: dict[int, Alloc] = field(default_factory=dict)  # all until now, by `memory`

    def apply(self, event: Event) -> None:
        if isinstance(event, Alloc):
            self.blocks[event.p] = self.known[event.memory] = event
        elif isinstance(event, Free):
            self.blocks.pop(event.p, None)

    def place(self, address: int, bytes: int = 1) -> MemoryPlace:
        for begin, block in self.blocks.items():
            if begin <= address < begin + max(block.bytes, 1):
                return MemoryPlace(block.memory, address - begin, bytes)
        return MemoryPlace(None, address, bytes)


def launches(events: tuple[Event, ...]) -> Iterator[LaunchCall]:
    return (event for event in events if isinstance(event, LaunchCall))
