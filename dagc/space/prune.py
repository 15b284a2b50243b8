"""Removal of sync ops that prove nothing. Asked for by `--prune-syncs`; comparisons with the seed run without it."""

from __future__ import annotations

from dagc.ir.traversal import Entry, Event, Issue, Record, Sync, Traversal, Wait
from dagc.space.proof import Prover


def prune(traversal: Traversal, prover: Prover) -> Traversal:
    """Drop waits and host syncs without which the traversal is still proved, then records that nobody uses.

    Later ones first: what an earlier sync op has established makes later ones superfluous. Events are renumbered.
    Two traversals that become equal do the same work and are measured once.
    """
    entries = list(traversal.entries)
    for i in range(len(entries) - 1, -1, -1):
        if isinstance(entries[i], Wait | Sync):
            shorter = entries[:i] + entries[i + 1 :]
            if prover.proved(Traversal(tuple(shorter))):
                entries = shorter
    used = {e.event for e in entries if isinstance(e, Wait | Sync)}
    return renumber(Traversal(tuple(e for e in entries if not isinstance(e, Record) or e.event in used)))


def renumber(traversal: Traversal) -> Traversal:
    """Number events by their records, from 0."""
    events: dict[Event, Event] = {}
    out: list[Entry] = []
    for entry in traversal.entries:
        if isinstance(entry, Issue):
            out.append(entry)
            continue
        if isinstance(entry, Record):
            events[entry.event] = Event(len(events))
        event = events[entry.event]
        out.append(Sync(event) if isinstance(entry, Sync) else type(entry)(event, entry.stream))
    return Traversal(tuple(out))
