"""Unrolls a traversal of a folded graph: all rounds of its loops, with the synchronisation between rounds.

A folded graph has one period of each loop, so its traversals define order, streams and sync ops of one round. Unrolled,
every round repeats them. Loop-carried edges (edges to earlier rounds) need sync ops of their own, which are not
decisions: they are inserted where they constrain least, the record directly after its op, the wait directly before the
op that needs it. They pair across the back edge, and are omitted if stream order or other sync ops suffice. Between
segments (before, in and after a loop), the same is done once, at the boundary.

In the text of a traversal, a wait or sync before the record of its event refers to the record of the previous round.

If loop-carried edges span at most d rounds, a proof of d + 1 rounds is a proof of any number of rounds: all entries
that order an op after one of d rounds earlier are between the two, in these d + 1 rounds, and all of them are present
except waits for a record of a round before the first, which order nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TypeAlias

from dagc.base.errors import UsageError
from dagc.ir.program import Folding, Graph, GraphOp, OpId
from dagc.ir.traversal import Entry, Event, Issue, Record, Stream, Traversal, Wait, bound, recorded

# A record: (segment, label). The label is the event in the folded traversal, or a larger number for an added record.
Key: TypeAlias = tuple[int, int]
# What waits: a stream, or None for the CPU.
Target: TypeAlias = Stream | None


@dataclass(frozen=True, slots=True)
class Slot:
    """An entry of a segment. `key`: of its record. `back`: rounds between it and its record. `added`: not in the folded
    traversal."""

    entry: Entry
    key: Key = (0, -1)
    back: int = 0
    added: bool = False

    def issues_on(self, stream: Stream | None) -> bool:
        """Whether it issues an op on this stream, or on the CPU."""
        return self.entry.op is not None and self.entry.stream == stream

    def records_on(self, stream: Stream) -> bool:
        return self.entry.records and self.entry.stream == stream


def unroll(graph: Graph, traversal: Traversal) -> tuple[Graph, Traversal]:
    """The unrolled graph and its traversal; both unchanged if the graph is not folded.

    Raises UsageError for a traversal that mixes the ops of a loop with others. Other faults of the traversal remain in
    the result, and `Prover` reports them.
    """
    if graph.folding is None:
        return graph, traversal
    return graph.folding.unrolled, _Unrolling(graph, graph.folding, traversal).run()


def shortened(graph: Graph, rounds: int) -> Graph:
    """The folded graph with at most `rounds` rounds of each loop, for simulations: its unrolled graph has the ops of
    these rounds and no edges. A graph that is not folded is returned unchanged."""
    if graph.folding is None:
        return graph
    old = graph.folding.unrolled
    ops: list[GraphOp] = []
    segments = []
    for segment in graph.folding.segments:
        kept = []
        for instances in segment.rounds[:rounds]:
            kept.append(tuple(OpId(len(ops) + i) for i in range(len(instances))))
            ops += [replace(old.ops[op], id=new) for op, new in zip(instances, kept[-1], strict=True)]
        segments.append(replace(segment, rounds=tuple(kept)))
    short = replace(old, ops=tuple(ops), completion=(), order=(), touches=(), hazards=(), matches=())
    return replace(graph, folding=Folding(short, tuple(segments), graph.folding.crossing))


def is_folded_text(text: str, graph: Graph) -> bool:
    """Whether this is the text of a traversal of the folded graph, not of the unrolled one."""
    if graph.folding is None:
        return False
    names = {graph.ops[op].name for segment in graph.folding.segments if segment.loop for op in segment.ops}
    return any(word.partition("@")[0] in names for word in text.split())


def waits_between(graph: Graph, traversal: Traversal) -> str:
    """The waits that unrolling adds between rounds of a loop, and between a loop and what surrounds it: `first[t]@s0
    waits for inner[t]@s1 of the round before; ...`. "" without a loop."""
    if graph.folding is None:
        return ""
    unrolling = _Unrolling(graph, graph.folding, traversal)
    unrolling.close()
    return "; ".join(dict.fromkeys(unrolling.added(graph)))


class _Unrolling:
    def __init__(self, graph: Graph, folding: Folding, traversal: Traversal) -> None:
        self.graph, self.folding = graph, folding
        self.segments = folding.segments
        self.home = {op: number for number, segment in enumerate(self.segments) for op in segment.ops}
        self.stream = bound(traversal.entries)
        self.labels = count(1 + max(recorded(traversal.entries), default=-1))
        self.enter: list[list[Slot]] = [[] for _ in self.segments]  # issued once, before the rounds
        self.leave: list[list[Slot]] = [[] for _ in self.segments]  # issued once, after the rounds
        self.bodies = self._split(traversal)

    def run(self) -> Traversal:
        self.close()
        return _numbered(list(self._rounds()))

    def close(self) -> None:
        """Add the sync ops between rounds and between segments."""
        for number, segment in enumerate(self.segments):
            if segment.carried:
                new = partial(added_record, number, self.labels)
                Carried(self.bodies[number], self.stream, segment.ops, segment.carried, new).close()
        self._cross()

    def added(self, graph: Graph) -> Iterator[str]:
        """A text for each wait that was added."""
        for number, segment in enumerate(self.segments):
            slots = [*self.enter[number], *self.bodies[number]]
            for at, slot in enumerate(slots):
                if not slot.added or slot.entry.records:
                    continue
                stream = slot.entry.stream
                later = next((s.entry for s in slots[at + 1 :] if s.issues_on(stream)), None)
                before = self._recorded_after(slot.key)
                if later is None or before is None:
                    continue
                when = (
                    ""
                    if slot.back == 0
                    else " of the round before"
                    if slot.back == 1
                    else f" {slot.back} rounds before"
                )
                loop = self.segments[slot.key[0]].loop and slot.key[0] != number
                once = (
                    " of the last round" if loop else ", once" if segment.loop and at < len(self.enter[number]) else ""
                )
                yield f"{later.text(graph)} waits for {before.text(graph)}{when}{once}"

    def _recorded_after(self, key: Key) -> Entry | None:
        """The op of its stream that a record follows."""
        slots = [*self.bodies[key[0]], *self.leave[key[0]]]
        at = next((n for n, s in enumerate(slots) if s.entry.records and s.key == key), 0)
        return next((s.entry for s in reversed(slots[:at]) if s.issues_on(slots[at].entry.stream)), None)

    def _split(self, traversal: Traversal) -> list[list[Slot]]:
        """The entries of each segment. A record belongs to the op before it, a wait to the op after it."""
        bodies: list[list[Slot]] = [[] for _ in self.segments]
        places = self._places(traversal)
        records = {event: (at, places[at]) for event, at in recorded(traversal.entries).items()}
        for at, entry in enumerate(traversal.entries):
            here = places[at]
            if entry.op is not None:
                bodies[here].append(Slot(entry))
                continue
            record, there = records.get(entry.event, (at, here))
            before = self.segments[here].loop and there == here and record > at
            bodies[here].append(Slot(entry, (there, int(entry.event)), int(before)))
        return bodies

    def _places(self, traversal: Traversal) -> list[int]:
        """The segment of each entry. Raises UsageError for an op between the ops of another segment."""
        after, number = [], len(self.segments) - 1
        for entry in reversed(traversal.entries):
            if entry.op is not None:
                if self.home[entry.op] > number:
                    name = self.graph.ops[entry.op].name
                    help = "list the ops of a loop together, after all ops before the loop and before all ops after it"
                    raise UsageError(f"`{name}` is issued before ops of an earlier part of the program", help)
                number = self.home[entry.op]
            after.append(number)
        out, number = [], 0
        for entry, following in zip(traversal.entries, reversed(after), strict=True):
            number = number if entry.op is None else self.home[entry.op]
            out.append(number if entry.records else following)
        return out

    # ---- between segments ---------------------------------------------------------------

    def _cross(self) -> None:
        """Add the waits of a segment for ops of earlier segments."""
        needs: dict[OpId, list[OpId]] = {}
        for u, v in self.folding.crossing:
            if self.graph.ops[u].gpu:
                needs.setdefault(v, []).append(u)
        known: set[tuple[Key, Target]] = set()
        for number, segment in enumerate(self.segments):
            placed: list[Slot] = []
            for slot in self.bodies[number]:
                if slot.entry.op is not None:
                    into = self.enter[number] if segment.loop else placed
                    for u in needs.get(slot.entry.op, ()):
                        into += self._wait_for(u, slot.entry.stream, known)
                placed.append(slot)
            self.bodies[number] = placed

    def _wait_for(self, u: OpId, target: Target, known: set[tuple[Key, Target]]) -> list[Slot]:
        stream = self.stream.get(u)
        if stream is None or stream == target:
            return []
        key = self._record_of(u, stream)
        if (key, target) in known or (key, None) in known:
            return []
        known.add((key, target))
        return [waiting(key, target)]

    def _record_of(self, u: OpId, stream: Stream) -> Key:
        """The record after an op; for an op in a loop, after the loop."""
        number = self.home[u]
        if not self.segments[number].loop:
            return record_after(self.bodies[number], u, stream, partial(added_record, number, self.labels))
        for slot in self.leave[number]:
            if slot.records_on(stream):
                return slot.key
        slot = added_record(number, self.labels, stream)
        self.leave[number].append(slot)
        return slot.key

    # ---- rounds -------------------------------------------------------------------------

    def _rounds(self) -> Iterator[tuple[Slot, int]]:
        """Every entry with the round of its record, in the op numbers of the unrolled graph."""
        last = [len(segment.rounds) - 1 for segment in self.segments]
        for number, segment in enumerate(self.segments):
            yield from ((slot, last[slot.key[0]]) for slot in self.enter[number])
            for turn, ops in enumerate(segment.rounds):
                instance = dict(zip(segment.ops, ops, strict=True))
                for slot in self.bodies[number]:
                    if slot.entry.op is not None:
                        yield Slot(Issue(instance[slot.entry.op], slot.entry.stream)), 0
                    elif slot.key[0] != number:
                        yield slot, last[slot.key[0]]
                    elif turn >= slot.back:
                        yield slot, turn - slot.back
            yield from ((slot, last[number]) for slot in self.leave[number])


class Carried:
    """Adds the sync ops for ops that need ops of earlier rounds to the body of a round.

    `carried`: (op, op that needs it, rounds between). `new_record`: an added record of a stream. `lanes`: as many
    rounds in a row have streams of their own, so that only events order them.

    The ops that have completed before an op starts are a mask: bit `place + width * age` is the op at that place of the
    round, `age` rounds earlier.
    """

    def __init__(
        self,
        body: list[Slot],
        stream: Mapping[OpId, Stream | None],
        ops: Sequence[OpId],
        carried: Iterable[tuple[OpId, OpId, int]],
        new_record: Callable[[Stream], Slot],
        lanes: int = 1,
    ) -> None:
        self.body, self.stream, self.new_record, self.lanes = body, stream, new_record, lanes
        self.place = {op: place for place, op in enumerate(ops)}
        self.width, self.depth = len(ops), 0
        self.needs: dict[OpId, list[tuple[OpId, int]]] = {}
        for u, v, distance in carried:
            self.depth = max(self.depth, distance)
            if stream.get(u) is not None:  # a CPU op has completed when it was issued
                self.needs.setdefault(v, []).append((u, distance))

    def close(self) -> None:
        """Close gaps until none is left: closing one may close others."""
        closed = None
        while True:
            gap = self.gap()
            if gap is None or gap == closed:  # a gap that cannot be closed belongs to an op that is issued twice
                return
            closed = v, u, distance = gap
            stream = self.stream[u]
            assert stream is not None
            key = record_after(self.body, u, stream, self.new_record)
            self.body.insert(place_of(self.body, v), waiting(key, self.stream.get(v), distance))

    def gap(self) -> tuple[OpId, OpId, int] | None:
        """(op, op that it does not wait for, rounds between), in a round preceded by as many rounds as edges span: the
        last such op, whose completion implies that of most others."""
        of_lane: list[dict[Target, int]] = [{None: 0} for _ in range(self.lanes)]
        events: dict[tuple[Key, int], int] = {}
        for turn in range(self.depth + 1):
            of_lane = [{s: self._older(mask, 1) for s, mask in done.items()} for done in of_lane]
            done = of_lane[turn % self.lanes]
            for slot in self.body:
                entry = slot.entry
                known = done.get(entry.stream, 0) | done[None]
                if entry.op is not None:
                    missing = self._missing(entry.op, known) if turn == self.depth else []
                    if missing:
                        return entry.op, *max(missing, key=lambda need: (-need[1], place_of(self.body, need[0])))
                    done[entry.stream] = known | 1 << self.place[entry.op]
                elif entry.records:
                    events[slot.key, turn] = known
                else:
                    covered = self._older(events.get((slot.key, turn - slot.back), 0), slot.back)
                    done[entry.stream] = known | covered
        return None

    def _missing(self, op: OpId, known: int) -> list[tuple[OpId, int]]:
        return [(u, n) for u, n in self.needs.get(op, ()) if not known >> (self.place[u] + self.width * n) & 1]

    def _older(self, mask: int, rounds: int) -> int:
        return mask << self.width * rounds & (1 << self.width * (self.depth + 1)) - 1


def place_of(body: Sequence[Slot], op: OpId) -> int:
    """The place of an op in a body."""
    return next(at for at, slot in enumerate(body) if slot.entry.op == op)


def record_after(body: list[Slot], u: OpId, stream: Stream, new_record: Callable[[Stream], Slot]) -> Key:
    """The record between an op and the next op of its stream; added if there is none."""
    place = place_of(body, u)
    for slot in body[place + 1 :]:
        if slot.issues_on(stream):
            break
        if slot.records_on(stream):
            return slot.key
    slot = new_record(stream)
    body.insert(place + 1, slot)
    return slot.key


def added_record(segment: int, labels: Iterator[int], stream: Stream) -> Slot:
    """An added record of a stream, under the next label."""
    label = next(labels)
    return Slot(Record(Event(label), stream), (segment, label), added=True)


def waiting(key: Key, target: Target, back: int = 0) -> Slot:
    """A wait of a stream, or of the CPU, for a record."""
    return Slot(Wait(Event(key[1]), target), key, back, added=True)


def _numbered(slots: list[tuple[Slot, int]]) -> Traversal:
    """The traversal with events numbered by their records, without added records that nothing waits for."""
    wanted = {(slot.key, turn) for slot, turn in slots if slot.entry.waits}
    events: dict[tuple[Key, int], Event] = {}
    out: list[Entry] = []
    for slot, turn in slots:
        entry, key = slot.entry, (slot.key, turn)
        if entry.op is not None:
            out.append(entry)
            continue
        if entry.records:
            if slot.added and key not in wanted:
                continue
            events[key] = Event(len(events))
        # A wait without a record gets an unused number, and orders nothing.
        out.append(replace(entry, event=events.setdefault(key, Event(len(events)))))
    return Traversal(tuple(out))
