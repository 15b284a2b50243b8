"""The forms in which a traversal is executed: the rows of the table of a runner, capture regions, and loops."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dagc.ir.enums import Opcode
from dagc.ir.program import CopyOp, Graph, KernelOp, OpId, Segment, alike, blocks, folded_name, two_sided
from dagc.ir.repetition import Tested
from dagc.ir.traversal import Entry, Event, Row, Stream, Traversal, awaited, bound, in_order, recorded, streams_of

# ---- runs of GPU entries that a CUDA graph captures ----


SMALLEST = 2  # GPU ops of a capture region: a graph of one op gains nothing


@dataclass(frozen=True, slots=True)
class BeginCapture:
    """A capture region begins; it is launched on `origin`. `length` entries follow until its `EndCapture`. `loop`: it
    is an iteration, which the device repeats."""

    region: int
    origin: Stream
    length: int
    loop: bool = False

    @property
    def row(self) -> Row:
        return Opcode.LOOP if self.loop else Opcode.BEGIN, self.length, self.origin


@dataclass(frozen=True, slots=True)
class EndCapture:
    """`every`: of an iteration, how many the device does between two tests."""

    region: int
    every: int = 0

    @property
    def row(self) -> Row:
        return Opcode.END, self.every, -1


Step: TypeAlias = Entry | BeginCapture | EndCapture


@dataclass(frozen=True, slots=True)
class PositionedStep:
    """A step, and the position of its entry in the traversal; None if capturing added it."""

    step: Step
    position: int | None


def never_captured(graph: Graph) -> frozenset[int]:
    """The ops that are in no capture region: those that use arrays whose sides the program copies when it runs, as
    placed ops do, which may run on the host; copies that block the thread that issues them; and launches with a value
    that the host reads each time."""
    at_run_time = two_sided(graph.program.ops, graph.program.arrays)
    outside = {t.begin for t in graph.touches if t.region.array in at_run_time}
    outside |= {op.id for op in graph.ops if op.placed or (op.kernel is not None and op.kernel.passed)}
    outside |= {op.id for op in graph.ops if isinstance(op.op, CopyOp) and blocks(graph.program, op.op)}
    return frozenset(map(int, outside))


def with_capture_regions(traversal: Traversal, outside: Collection[int] = ()) -> tuple[PositionedStep, ...]:
    """The steps of a traversal with its capture regions marked. `outside`: ops that are in none."""
    return _CaptureRegions(traversal, outside).run()


def as_loop(traversal: Traversal, loop: Tested) -> tuple[PositionedStep, ...]:
    """The GPU's entries of a traversal as one region, which the device repeats, and its end. The host waits for all."""
    dropped = () if loop.dropped is None else (loop.dropped,)  # events have no op either
    places = [i for i, e in enumerate(traversal.entries) if e.stream is not None and e.op not in dropped]
    body = Traversal(tuple(traversal.entries[i] for i in places))
    region = [
        replace(
            placed,
            step=_as_loop(placed.step, loop),
            position=None if placed.position is None else places[placed.position],
        )
        for placed in _CaptureRegions(body, (), smallest=1).run()
    ]
    return (*region, PositionedStep(traversal.entries[-1], len(traversal.entries) - 1))


def _as_loop(step: Step, loop: Tested) -> Step:
    if isinstance(step, BeginCapture):
        return replace(step, loop=True)
    return replace(step, every=loop.every) if isinstance(step, EndCapture) and loop.every > 1 else step


def steps(
    traversal: Traversal, capture: bool, outside: Collection[int] = (), loop: Tested | None = None
) -> tuple[PositionedStep, ...]:
    """The entries of a traversal; with `capture`, with its capture regions marked, except of the ops `outside`; with
    `loop`, as the device repeats them."""
    if loop is not None:
        return as_loop(traversal, loop)
    if capture:
        return with_capture_regions(traversal, outside)
    return tuple(PositionedStep(entry, i) for i, entry in enumerate(traversal.entries))


class _CaptureRegions:
    def __init__(self, traversal: Traversal, outside: Collection[int], smallest: int = SMALLEST) -> None:
        self.smallest = smallest
        self.entries = traversal.entries
        self.outside = frozenset(outside)
        self.events = len(recorded(self.entries))
        self.regions = 0
        self.out: list[PositionedStep] = []

    def run(self) -> tuple[PositionedStep, ...]:
        at = 0
        while at < len(self.entries):
            end = at
            while end < len(self.entries) and self._may_join(self.entries[end]):
                end += 1
            if len(bound(self.entries[at:end])) >= self.smallest:
                self._capture(at, end)
                at = end
            else:
                stop = max(end, at + 1)
                self.out += [PositionedStep(self.entries[i], i) for i in range(at, stop)]
                at = stop
        return tuple(self.out)

    def _may_join(self, entry: Entry) -> bool:
        return entry.stream is not None and entry.op not in self.outside

    def _capture(self, start: int, end: int) -> None:
        inside = self.entries[start:end]
        own = recorded(inside)
        origin, *others = streams_of(inside)
        earlier = {i for i, e in enumerate(inside, start) if e.waits and e.event not in own}
        self.out += [PositionedStep(replace(e, stream=origin), i) for i, e in enumerate(inside, start) if i in earlier]
        for stream in others:
            if self._used(stream, 0, start):
                self._order(stream, origin)
        body: list[PositionedStep] = []
        if others:
            body += _added(*in_order(origin, self._event(), *others))
        body += [PositionedStep(entry, i) for i, entry in enumerate(inside, start) if i not in earlier]
        for stream in others:
            body += _added(*in_order(stream, self._event(), origin))
        self.out += [*_added(BeginCapture(self.regions, origin, len(body))), *body, *_added(EndCapture(self.regions))]
        self.regions += 1
        later = own.keys() & awaited(self.entries[end:])
        for event in sorted(later):
            self.out += _added(*in_order(origin, event))
        for stream in others:
            if self._used(stream, end, len(self.entries)):
                self._order(origin, stream)

    def _used(self, stream: Stream, start: int, end: int) -> bool:
        return stream in streams_of(self.entries[start:end])

    def _order(self, first: Stream, then: Stream) -> None:
        """Make later work of `then` wait for earlier work of `first`."""
        self.out += _added(*in_order(first, self._event(), then))

    def _event(self) -> Event:
        self.events += 1
        return Event(self.events - 1)


def _added(*steps: Step) -> list[PositionedStep]:
    return [PositionedStep(step, None) for step in steps]


# ---- its rows ----


def rows(
    traversal: Traversal, capture: bool = False, outside: Collection[int] = (), loop: Tested | None = None
) -> list[Row]:
    """One row per entry, in order. With `capture`, regions of GPU ops are marked for capture in CUDA graphs, except
    those `outside`; with `loop`, an iteration is one, which the device repeats."""
    return [placed.step.row for placed in steps(traversal, capture, outside, loop)]


def table_line(traversal: Traversal, capture: bool = False, outside: Collection[int] = ()) -> str:
    """A line of the file that `runner --tables` reads."""
    return ";".join(f"{int(kind)},{a},{b}" for kind, a, b in rows(traversal, capture, outside))


# ---- loops ----
# Equal rounds of a loop become a block that a `for` repeats: they issue the same ops with the same data on the same
# streams, and wait for the same records. With alternating buffers every second round is equal, and a block has two
# rounds. The first rounds wait for fewer records and the last ones record fewer events, so they stay outside the loop.
# Events are reused from round to round, each only after all waits for its earlier record have been issued: a wait is
# for the last record issued before it.
#
# Everything else that rounds share (scratch memory, requests, groups) is used on one stream or on the CPU, and
# therefore in order. Messages of different rounds have the same tag; those between two ranks arrive in the order of
# their posts.

MOST = 4  # rounds of a block

# The new name of each event: in a loop (segment, preceding op, count, round modulo the block), else the event itself.
_Names: TypeAlias = dict[Event, Hashable]


@dataclass(frozen=True, slots=True)
class Block:
    """`length` entries from `start`, repeated `times` times. The loop variable runs from `first` in steps of `step`."""

    start: int
    length: int
    times: int
    first: int
    step: int
    variable: str


@dataclass(frozen=True, slots=True)
class Rolled:
    """A traversal with reused events, and its blocks. `names`: of the ops in blocks, in terms of the loop variable."""

    traversal: Traversal
    blocks: tuple[Block, ...] = ()
    names: tuple[tuple[int, str], ...] = ()


def rolled(folded: Graph, traversal: Traversal) -> Rolled:
    """The blocks of a traversal of `folded.unrolled`; none if its rounds differ."""
    out = Rolled(traversal)
    for segment in folded.folding.segments if folded.folding is not None else ():
        if segment.loop:
            rounds = _Roller(folded.unrolled, segment, out.traversal).run()
            if rounds is not None:
                traversal, block, names = rounds
                out = Rolled(traversal, (*out.blocks, block), (*out.names, *names))
    return out


class _Roller:
    """One loop."""

    def __init__(self, graph: Graph, segment: Segment, traversal: Traversal) -> None:
        self.graph, self.segment, self.entries = graph, segment, traversal.entries
        self.place = {op: (turn, k) for turn, ops in enumerate(segment.rounds) for k, op in enumerate(ops)}
        self.alike = alike(graph.program.ops)
        kinds: dict[Hashable, int] = {}
        self.kinds = {
            e.op: kinds.setdefault(self._kind(e.op, e.stream), len(kinds))
            for e in self.entries
            if e.op is not None and e.op in self.place
        }
        self.rounds = self._rounds()

    def run(self) -> tuple[Traversal, Block, list[tuple[int, str]]] | None:
        """The traversal with reused events, the block that gives the shortest text, and the names in it."""
        best: tuple[int, Traversal, int, int, int] | None = None
        for width in range(1, min(MOST, len(self.rounds) // 2) + 1):
            traversal = self._with_events(width)
            if traversal is None:
                continue
            first, times = self._longest(traversal.entries, width)
            saved = (times - 1) * width
            if times > 1 and (best is None or saved > best[0]):
                best = saved, traversal, first, width, times
        if best is None:
            return None
        _, traversal, first, width, times = best
        start, stop = self.rounds[first].start, self.rounds[first + width - 1].stop
        values = self.segment.values
        step = values[first + width] - values[first]
        block = Block(start, stop - start, times, values[first], step, self.segment.variable)
        return traversal, block, self._names(first, width, times)

    def _rounds(self) -> list[range]:
        """The entries of each round, up to its last op; none if rounds overlap."""
        places = ((at, self.place.get(e.op)) for at, e in enumerate(self.entries) if e.op is not None)
        issued = [(at, place) for at, place in places if place is not None]
        ends = [max(at for at, (r, _) in issued if r == turn) + 1 for turn in range(len(self.segment.rounds))]
        starts = [min((at for at, _ in issued), default=0), *ends[:-1]]
        ranges = [range(start, stop) for start, stop in zip(starts, ends, strict=True)]
        mixed = any(turn >= len(ranges) or at not in ranges[turn] for at, (turn, _) in issued)
        return [] if mixed else ranges

    def _with_events(self, width: int) -> Traversal | None:
        """Use equal events in every `width`-th round; None if one would be recorded again too early."""
        names = self._event_names(width)
        numbers: dict[Hashable, Event] = {}
        last: dict[Event, Event] = {}  # new event -> the old one that was recorded last
        out: list[Entry] = []
        for entry in self.entries:
            if entry.op is not None:
                out.append(entry)
                continue
            new = numbers.setdefault(names.get(entry.event, entry.event), Event(len(numbers)))
            if entry.records:
                last[new] = entry.event
            elif last.get(new) != entry.event:
                return None
            out.append(replace(entry, event=new))
        return Traversal(tuple(out))

    def _event_names(self, width: int) -> _Names:
        names: _Names = {}
        for turn, entries in enumerate(self.rounds):
            after: dict[Stream, tuple[int, int]] = {}  # place of the last op, number of records since
            for entry in (self.entries[at] for at in entries):
                if entry.op is not None and entry.stream is not None:
                    after[entry.stream] = self.place[entry.op][1], 0
                elif entry.records:
                    place, number = after.get(entry.stream, (-1, 0))
                    after[entry.stream] = place, number + 1
                    names[entry.event] = id(self), entry.stream, place, number, turn % width
        return names

    def _longest(self, entries: Sequence[Entry], width: int) -> tuple[int, int]:
        """The first round of the longest run of equal blocks, and their number."""
        rounds = ([entries[at] for at in places] for places in self.rounds)
        texts = [[e if e.op is None else self.kinds[e.op] for e in places] for places in rounds]
        best = 0, 0
        for first in range(len(texts)):
            end = first + width
            while end < len(texts) and texts[end] == texts[end - width]:
                end += 1
            times = (min(end, len(texts)) - first) // width
            if times > best[1]:
                best = first, times
        return best

    def _kind(self, issued: OpId, stream: Stream | None) -> Hashable:
        """Equal for ops with the same emitted text, except for the name."""
        op = self.graph.ops[issued]
        apart = op.kernel is not None and op.placed and op.kernel.others  # each is chosen for itself
        work = op.op if op.op is None or apart else replace(op.op, name="")
        if isinstance(work, KernelOp):  # exchanges that are alike have one group
            puts = (replace(put, exchange=self.alike.get(put.exchange, "")) for put in work.puts)
            awaits = ((self.alike[exchange], number) for exchange, number in work.awaits)
            work = replace(work, puts=tuple(puts), awaits=tuple(awaits))
        return self.place[issued][1], stream, replace(op, id=OpId(0), name="", op=work)

    def _names(self, first: int, width: int, times: int) -> list[tuple[int, str]]:
        """For each op in the blocks, its name in terms of the loop variable."""
        out = []
        values = self.segment.values[first : first + width * times : width]
        for turn in range(first, first + width):
            for instances in zip(*self.segment.rounds[turn : first + width * times : width], strict=True):
                names = [self.graph.ops[op].name for op in instances]
                name = folded_name(names, values, self.segment.variable)
                out += [(int(op), name) for op in instances]
        return out
