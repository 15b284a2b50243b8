"""A traversal without host waits: GPU work that an application enqueues on its own stream.

Several iterations of it may overlap. Two or more in a row use streams and events of their own, their *lane*, and copies
of their own of the arrays that are private (`dagc.passes.private`). An iteration waits for those ops of the one before
that it needs, and of the last one of its lane, and for nothing else. What it needs of earlier ones follows: an op comes
after itself of the last iteration of its lane, on the same stream, and an access that conflicts with one of an
iteration conflicts with that of every iteration after it, or with those of its lane. So a proof of a few iterations
holds for any number: nothing but the entries of so many iterations orders their ops, and all have the same entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from dagc.ir.program import Action, Graph, OpId
from dagc.ir.traversal import Entry, Event, Issue, Stream, Traversal, awaited, bound, in_order, recorded, streams_of
from dagc.space.loops import Carried, Slot, added_record
from dagc.space.proof import NotProved, Prover, renumbered


def without_host(graph: Graph, traversal: Traversal) -> Traversal | str:
    """The GPU entries of a traversal, or why the host is needed.

    A host wait that other ops do not need serves `end` alone. That the order of the GPU's ops stands without them is
    proved, with one wait for every stream at the end.
    """
    for entry in traversal.entries:
        if entry.op is None:
            continue
        op = graph.ops[entry.op]
        if entry.stream is None and op.action is not Action.END:
            return f"op `{op.name}` runs on the host"
        if op.placed:
            return f"op `{op.name}` may run on the host"
    on_streams = renumbered([e for e in traversal.entries if e.stream is not None])
    kept, events = on_streams.entries, len(recorded(on_streams.entries))
    try:
        Prover(graph).prove(Traversal((*kept, *_waits_for_all(kept, events), traversal.entries[-1])))
    except NotProved:
        return "the order of its GPU ops relies on a wait of the host"
    return on_streams


def _waits_for_all(entries: Sequence[Entry], events: int) -> Iterator[Entry]:
    for event, stream in enumerate(sorted(streams_of(entries)), events):
        yield from in_order(stream, Event(event), None)


def by_phases(graph: Graph) -> Traversal:
    """What one kernel that repeats a dag does in an iteration, as a traversal: each op has a stream of its own, and
    between two phases each op of the second waits for events of all ops of the first. Ops that the kernel leaves out
    follow, as the host waits then."""
    left_out = tuple(op.id for op in graph.ops if op.gpu and all(op.id not in phase for phase in graph.phases))
    phases = [phase for phase in (*graph.phases, left_out) if phase]
    entries: list[Entry] = []
    for phase, then in zip(phases, [*phases[1:], ()], strict=True):
        entries += [Issue(op, Stream(op)) for op in phase]
        waiting = tuple(Stream(op) for op in then) or (None,)
        entries += [entry for op in phase for entry in in_order(Stream(op), Event(op), *waiting)]
    return renumbered([*entries, Issue(OpId(len(graph.ops) - 1))])


def prove_phases(graph: Graph) -> None:
    """Prove the waits of the kernel that repeats a dag, if one does. Raises NotProved, which would be a fault."""
    if graph.phases:
        Prover(graph).prove(by_phases(graph), "the kernel that repeats the dag")


# ---- iterations that overlap ----

LANES, MOST_LANES = 2, 16  # where no array is private; where some are
MOST = 20  # ops of an iteration: a longer one is faster joined (docs/figures.md, "In an application")


@dataclass(frozen=True, slots=True)
class Rounds:
    """One of several iterations. Streams and events are numbered within its lane; `back`: the places of the waits for
    what an earlier iteration has recorded, and how many before: the last one, or that of its lane."""

    traversal: Traversal
    back: Mapping[int, int]
    lanes: int = LANES


def rounds_of(lanes: int) -> int:
    """How many iterations are proved: all lanes after each other, twice."""
    return 2 * lanes


def overlapped(many: Graph, traversal: Traversal, lanes: int = LANES) -> Rounds | None:
    """The iterations of `traversal`, which has no host waits, in `many`: `rounds_of(lanes)` iterations of its graph
    with the edges between them (`dagc.passes.loops`). None for a long iteration. Proved. Raises NotProved, which would
    be a fault."""
    n = (len(many.ops) - 1) // rounds_of(lanes)
    if n > MOST:
        return None
    out = _connected(many, traversal, n, lanes)
    Prover(many).prove(unrolled(out, n, rounds_of(lanes)), "the iterations that overlap")
    return out


def unrolled(rounds: Rounds, n: int, times: int) -> Traversal:
    """The traversal of `times` iterations of n ops each, with the streams and events of all lanes, and the host's wait
    for all ops."""
    entries = rounds.traversal.entries
    streams = 1 + max(streams_of(entries), default=-1)
    events = 1 + max(recorded(entries), default=-1)
    out: list[Entry] = []
    for turn in range(times):
        lane = turn % rounds.lanes
        for at, entry in enumerate(entries):
            stream = Stream(int(entry.stream or 0) + lane * streams)
            back = rounds.back.get(at, 0)
            of = (turn - back) % rounds.lanes
            if entry.op is not None:
                out.append(Issue(OpId(entry.op + turn * n), stream))
            elif turn >= back:
                out.append(replace(entry, event=Event(entry.event + of * events), stream=stream))
    return Traversal((*out, *_waits_for_all(out, rounds.lanes * events), Issue(OpId(times * n))))


def _connected(many: Graph, traversal: Traversal, n: int, lanes: int) -> Rounds:
    """Add the waits for earlier iterations, without those that others imply."""
    body = [Slot(e, (0, -1 if e.event is None else int(e.event))) for e in traversal.entries]
    stream = bound(traversal.entries)
    labels = count(len(recorded(traversal.entries)))

    needs = [(u, OpId(v % n), v // n) for u, v in many.completion if u < n <= v < (1 + lanes) * n]
    carried = Carried(body, stream, [OpId(op) for op in range(n)], needs, partial(added_record, 0, labels), lanes)
    carried.close()
    for slot in [slot for slot in carried.body if slot.back]:  # later ones may have made it superfluous
        kept = carried.body
        carried.body = [other for other in kept if other is not slot]
        if carried.gap() is not None:
            carried.body = kept
    waited = awaited(slot.entry for slot in carried.body)
    kept = [slot for slot in carried.body if not slot.entry.records or slot.entry.event in waited]
    back = {at: slot.back for at, slot in enumerate(kept) if slot.back}
    return Rounds(renumbered([slot.entry for slot in kept]), back, lanes)
