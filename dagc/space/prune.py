"""Removal of redundant sync ops (`--prune-syncs`). Comparisons with the Tenzing paper run without it."""

from __future__ import annotations

from dagc.ir.traversal import Entry, Event, Issue, Record, Sync, Traversal, Wait
from dagc.space.proof import Prover


def prune(traversal: Traversal, prover: Prover) -> Traversal:
    """Drop waits and host syncs that the proof does not need, then unused records.

    Later ones first: what an earlier sync op establishes makes later ones redundant. Events are renumbered.
    Traversals that become equal do the same work and are measured once.
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
    recorded = dict.fromkeys(entry.event for entry in traversal.entries if isinstance(entry, Record))
    events = {event: Event(number) for number, event in enumerate(recorded)}
    out: list[Entry] = []
    for entry in traversal.entries:
        if isinstance(entry, Issue):
            out.append(entry)
            continue
        event = events[entry.event]  # in a loop a wait may stand before its record
        out.append(Sync(event) if isinstance(entry, Sync) else type(entry)(event, entry.stream))
    return Traversal(tuple(out))
