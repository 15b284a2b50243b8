"""Rounds of a loop that are issued alike, as a block that a `for` repeats.

Rounds are alike where they issue the same ops with the same data on the same streams, and wait for the same records.
Buffers that alternate make every second round alike, and the block two rounds. The first rounds wait for less and the
last record less, so these stay beside the loop. Events are used again round by round, each only when everything that
waits for its earlier record has been issued: a wait is for the last record that was issued before it.

What a round shares with others then, it uses on one stream or on the CPU, so in order: scratch memory, requests and
groups. Messages of different rounds have one tag; those between two ranks arrive in the order in which they are posted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dagc.ir.program import Graph, OpId, Segment, folded_name
from dagc.ir.traversal import Entry, Event, Issue, Record, Stream, Traversal

MOST = 4  # rounds of a block

# The new name of each event: of a loop (segment, what it follows, round modulo the block), else the event itself.
_Names: TypeAlias = dict[Event, Hashable]


@dataclass(frozen=True, slots=True)
class Block:
    """`length` entries from `start`, `times` times. The loop's variable begins with `first` and grows by `step`."""

    start: int
    length: int
    times: int
    first: int
    step: int
    variable: str


@dataclass(frozen=True, slots=True)
class Rolled:
    """A traversal that uses events again, and its blocks. `names`: of the ops in blocks, by the loop variable."""

    traversal: Traversal
    blocks: tuple[Block, ...] = ()
    names: tuple[tuple[int, str], ...] = ()


def rolled(folded: Graph, traversal: Traversal) -> Rolled:
    """The blocks of a traversal of `folded.unrolled`; none where its rounds differ."""
    out = Rolled(traversal)
    for segment in folded.folding.segments if folded.folding is not None else ():
        if segment.loop:
            found = _Roller(folded.unrolled, segment, out.traversal).run()
            if found is not None:
                traversal, block, names = found
                out = Rolled(traversal, (*out.blocks, block), (*out.names, *names))
    return out


class _Roller:
    """One loop."""

    def __init__(self, graph: Graph, segment: Segment, traversal: Traversal) -> None:
        self.graph, self.segment, self.entries = graph, segment, traversal.entries
        self.place = {op: (turn, k) for turn, ops in enumerate(segment.rounds) for k, op in enumerate(ops)}
        self.rounds = self._rounds()

    def run(self) -> tuple[Traversal, Block, list[tuple[int, str]]] | None:
        """The traversal with its events used again, the block that leaves the least text, and the names in it."""
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
        """The entries of each round, up to its last op; none where rounds are mixed."""
        issued = [
            (at, self.place[e.op]) for at, e in enumerate(self.entries) if isinstance(e, Issue) and e.op in self.place
        ]
        ends = [max(at for at, (r, _) in issued if r == turn) + 1 for turn in range(len(self.segment.rounds))]
        starts = [min((at for at, _ in issued), default=0), *ends[:-1]]
        found = [range(start, stop) for start, stop in zip(starts, ends, strict=True)]
        mixed = any(turn >= len(found) or at not in found[turn] for at, (turn, _) in issued)
        return [] if mixed else found

    def _with_events(self, width: int) -> Traversal | None:
        """With the events of every `width`-th round alike; None where one would be recorded again too early."""
        names = self._event_names(width)
        numbers: dict[Hashable, Event] = {}
        last: dict[Event, Event] = {}  # new event -> the old one that was recorded last
        out: list[Entry] = []
        for entry in self.entries:
            if isinstance(entry, Issue):
                out.append(entry)
                continue
            new = numbers.setdefault(names.get(entry.event, entry.event), Event(len(numbers)))
            if isinstance(entry, Record):
                last[new] = entry.event
            elif last.get(new) != entry.event:
                return None
            out.append(replace(entry, event=new))
        return Traversal(tuple(out))

    def _event_names(self, width: int) -> _Names:
        names: _Names = {}
        for turn, entries in enumerate(self.rounds):
            after: dict[Stream, tuple[int, int]] = {}  # place of the last op, records since
            for entry in (self.entries[at] for at in entries):
                if isinstance(entry, Issue) and entry.stream is not None:
                    after[entry.stream] = self.place[entry.op][1], 0
                elif isinstance(entry, Record):
                    place, number = after.get(entry.stream, (-1, 0))
                    after[entry.stream] = place, number + 1
                    names[entry.event] = id(self), entry.stream, place, number, turn % width
        return names

    def _longest(self, entries: Sequence[Entry], width: int) -> tuple[int, int]:
        """The first round of the longest run of blocks, and how many blocks it has."""
        kinds: dict[Hashable, int] = {}
        texts = [
            tuple(kinds.setdefault(self._kind(entries[at]), len(kinds)) for at in places) for places in self.rounds
        ]
        best = 0, 0
        for first in range(len(texts)):
            end = first + width
            while end < len(texts) and texts[end] == texts[end - width]:
                end += 1
            times = (min(end, len(texts)) - first) // width
            if times > best[1]:
                best = first, times
        return best

    def _kind(self, entry: Entry) -> Hashable:
        """Equal for entries that are written alike, but for the name of the op."""
        if not isinstance(entry, Issue):
            return entry
        op = self.graph.ops[entry.op]
        work = None if op.op is None else replace(op.op, name="")
        return self.place[entry.op][1], entry.stream, replace(op, id=OpId(0), name="", op=work)

    def _names(self, first: int, width: int, times: int) -> list[tuple[int, str]]:
        """Of each op in the blocks, its name by the variable where its block begins."""
        out = []
        values = self.segment.values[first : first + width * times : width]
        for turn in range(first, first + width):
            for instances in zip(*self.segment.rounds[turn : first + width * times : width], strict=True):
                names = [self.graph.ops[op].name for op in instances]
                name = folded_name(names, values, self.segment.variable)
                out += [(int(op), name) for op in instances]
        return out
