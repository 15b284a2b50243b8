"""A traversal without host waits: GPU work that an application enqueues on its own stream.

Several iterations of it may overlap. Two in a row use streams and events of their own, their *lane*; an iteration waits
for those ops of the one before that it needs, and for nothing else. What it needs of earlier ones follows, as every op
waits for itself. So a proof of a few iterations holds for any number: nothing but the entries of two iterations in a
row orders their ops, and every pair has the same entries.
"""

from __future__ import annotations

from dataclasses import dataclass

from dagc.ir.program import Action, Graph, KernelOp, OpId
from dagc.ir.traversal import Entry, Event, Issue, Record, Stream, Sync, Traversal, Wait
from dagc.space.proof import NotProved, Prover, renumber


def without_host(graph: Graph, traversal: Traversal) -> Traversal | str:
    """The GPU entries of a traversal, or why the host is needed.

    A host wait that other ops do not need serves `end` alone. That the order of the GPU's ops stands without them is
    proved, with one wait for every stream at the end.
    """
    for entry in traversal.entries:
        op = graph.ops[entry.op] if isinstance(entry, Issue) else None
        if isinstance(entry, Issue) and op is not None and entry.stream is None and op.action is not Action.END:
            return f"op `{op.name}` runs on the host"
        if op is not None and isinstance(op.op, KernelOp) and op.op.placed:
            return f"op `{op.name}` may run on the host"
    waited = {e.event for e in traversal.entries if isinstance(e, Wait)}
    kept: list[Entry] = [
        e
        for e in traversal.entries
        if not isinstance(e, Sync)
        and not (isinstance(e, Record) and e.event not in waited)
        and not (isinstance(e, Issue) and e.stream is None)
    ]
    kept = list(renumber(Traversal(tuple(kept))).entries)
    events = sum(isinstance(e, Record) for e in kept)
    try:
        Prover(graph).prove(Traversal((*kept, *_waits_for_all(kept, events), traversal.entries[-1])))
    except NotProved:
        return "the order of its GPU ops relies on a wait of the host"
    return Traversal(tuple(kept))


def _waits_for_all(entries: list[Entry], events: int) -> list[Entry]:
    streams = sorted({e.stream for e in entries if not isinstance(e, Sync) and e.stream is not None})
    out: list[Entry] = []
    for event, stream in enumerate(streams, events):
        out += [Record(Event(event), Stream(stream)), Sync(Event(event))]
    return out


# ---- iterations that overlap ----

LANES = 2
ROUNDS = 4  # that are proved: both lanes after each other, twice
MOST = 20  # ops of an iteration: a longer one is faster joined (docs/figures.md, "In an application")


@dataclass(frozen=True, slots=True)
class Rounds:
    """One of several iterations. Streams and events are numbered within its lane; `back`: the places of the waits for
    what the iteration before has recorded."""

    traversal: Traversal
    back: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Slot:
    entry: Entry
    back: bool = False


def overlapped(many: Graph, traversal: Traversal) -> Rounds | None:
    """The iterations of `traversal`, which has no host waits, in `many`: ROUNDS iterations of its graph with the edges
    between them (`dagc.passes.loops`). None for a long iteration. Proved. Raises NotProved, which would be a fault."""
    if (len(many.ops) - 1) // ROUNDS > MOST:
        return None
    out = _Overlap(many, traversal).run()
    Prover(many).prove(unrolled(out, (len(many.ops) - 1) // ROUNDS, ROUNDS), "the iterations that overlap")
    return out


def unrolled(rounds: Rounds, n: int, times: int) -> Traversal:
    """So many iterations of n ops each, with the streams and events of both lanes, and the host's wait for all."""
    entries = rounds.traversal.entries
    streams = 1 + max((e.stream for e in entries if not isinstance(e, Sync) and e.stream is not None), default=-1)
    events = 1 + max((e.event for e in entries if isinstance(e, Record)), default=-1)
    out: list[Entry] = []
    for turn in range(times):
        lane = turn % LANES
        for at, entry in enumerate(entries):
            match entry:
                case Issue(op, stream) if stream is not None:
                    out.append(Issue(OpId(op + turn * n), Stream(stream + lane * streams)))
                case Record(event, stream):
                    out.append(Record(Event(event + lane * events), Stream(stream + lane * streams)))
                case Wait(event, stream):
                    of = (turn - (at in rounds.back)) % LANES
                    if at not in rounds.back or turn:
                        out.append(Wait(Event(event + of * events), Stream(stream + lane * streams)))
    return Traversal((*out, *_waits_for_all(out, LANES * events), Issue(OpId(times * n))))


class _Overlap:
    """Adds the waits for the iteration before, where they constrain least: the record directly after its op, the wait
    directly before the op that needs it."""

    def __init__(self, many: Graph, traversal: Traversal) -> None:
        self.n = (len(many.ops) - 1) // ROUNDS
        self.body = [_Slot(entry) for entry in traversal.entries]
        self.stream = {e.op: e.stream for e in traversal.entries if isinstance(e, Issue)}
        self.events = sum(isinstance(e, Record) for e in traversal.entries)
        self.needs: dict[int, list[int]] = {}  # op -> ops of the iteration before
        for u, v in many.completion:
            if u < self.n <= v < 2 * self.n:
                self.needs.setdefault(v - self.n, []).append(u)

    def run(self) -> Rounds:
        while (gap := self._gap()) is not None:
            v, u = gap
            event = self._record_after(u)
            stream = self.stream[OpId(v)]
            assert stream is not None
            self.body.insert(self._place(v), _Slot(Wait(event, stream), back=True))
        self._prune()
        back = frozenset(at for at, slot in enumerate(self.body) if slot.back)
        return Rounds(Traversal(tuple(slot.entry for slot in self.body)), back)

    def _prune(self) -> None:
        """Drop waits that later ones made superfluous, and records that nothing waits for."""
        for slot in [slot for slot in self.body if slot.back]:
            body = self.body
            self.body = [other for other in body if other is not slot]
            if self._gap() is not None:
                self.body = body
        waited = {slot.entry.event for slot in self.body if isinstance(slot.entry, Wait)}
        self.body = [s for s in self.body if not isinstance(s.entry, Record) or s.entry.event in waited]
        entries = renumber(Traversal(tuple(slot.entry for slot in self.body))).entries
        self.body = [_Slot(entry, slot.back) for entry, slot in zip(entries, self.body, strict=True)]

    def _place(self, op: int) -> int:
        return next(at for at, slot in enumerate(self.body) if isinstance(slot.entry, Issue) and slot.entry.op == op)

    def _record_after(self, u: int) -> Event:
        """The record between an op and the next op of its stream; added if there is none."""
        at, stream = self._place(u), self.stream[OpId(u)]
        assert stream is not None
        for slot in self.body[at + 1 :]:
            if isinstance(slot.entry, Issue | Record) and slot.entry.stream == stream:
                if isinstance(slot.entry, Record):
                    return slot.entry.event
                break
        event = Event(self.events)
        self.events += 1
        self.body.insert(at + 1, _Slot(Record(event, stream)))
        return event

    def _gap(self) -> tuple[int, int] | None:
        """(op, op of the iteration before that it does not wait for) of the second iteration: the last one, whose
        completion implies that of most others. Masks: bit `op + n * iteration`."""
        events: dict[tuple[Event, int], int] = {}
        for turn in (0, 1):
            streams: dict[Stream, int] = {}
            for slot in self.body:
                entry = slot.entry
                if isinstance(entry, Issue):
                    assert entry.stream is not None
                    known = streams.get(entry.stream, 0)
                    missing = [u for u in self.needs.get(entry.op, ()) if turn and not known >> u & 1]
                    if missing:
                        return int(entry.op), max(missing, key=self._place)
                    streams[entry.stream] = known | 1 << (entry.op + turn * self.n)
                elif isinstance(entry, Record):
                    events[entry.event, turn] = streams.get(entry.stream, 0)
                elif isinstance(entry, Wait):
                    covered = events.get((entry.event, turn - slot.back), 0)
                    streams[entry.stream] = streams.get(entry.stream, 0) | covered
        return None
