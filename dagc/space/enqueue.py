"""A traversal without host waits: GPU work that an application enqueues on a stream of its own."""

from __future__ import annotations

from dagc.ir.program import Action, Graph, KernelOp
from dagc.ir.traversal import Entry, Event, Issue, Record, Stream, Sync, Traversal, Wait
from dagc.space.proof import NotProved, Prover


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
    records = [e for e in kept if isinstance(e, Record)]
    number = {e.event: Event(i) for i, e in enumerate(records)}
    kept = [_renumbered(e, number) for e in kept]
    try:
        Prover(graph).prove(Traversal((*kept, *_waits_for_all(kept, len(number)), traversal.entries[-1])))
    except NotProved:
        return "the order of its GPU ops relies on a wait of the host"
    return Traversal(tuple(kept))


def _renumbered(entry: Entry, number: dict[Event, Event]) -> Entry:
    match entry:
        case Record(event, stream):
            return Record(number[event], stream)
        case Wait(event, stream):
            return Wait(number[event], stream)
        case _:
            return entry


def _waits_for_all(entries: list[Entry], events: int) -> list[Entry]:
    streams = sorted({e.stream for e in entries if not isinstance(e, Sync) and e.stream is not None})
    out: list[Entry] = []
    for event, stream in enumerate(streams, events):
        out += [Record(Event(event), Stream(stream)), Sync(Event(event))]
    return out
