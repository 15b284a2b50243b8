"""Neighbours of a traversal: one op moved, one stream rebound, one sync op moved, dropped or added.

A traversal is converted to an outline: its ops in issue order with their streams, and its sync ops named by the ops
they serve. An outline is a priority list, not a program: `follow` turns any changed outline into a traversal of the
space. An op is issued as early as its place in the outline and its predecessors allow; a missing sync op is inserted
directly before the op that needs it, and one that no op needs is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import TypeAlias

from dagc.ir.traversal import Entry, Traversal, issue_of, record_of, wait_of
from dagc.space.moves import Asker, Moves, bits

ISSUE, RECORD, WAIT = range(3)
# (ISSUE, op, stream); of the record after `op`: (RECORD, op, -1), (WAIT, op, stream that waits). -1 is the CPU.
Item: TypeAlias = tuple[int, int, int]
# A record: the ops since the one before it in its stream, its event, the label of the stream, the users of the ops.
Group: TypeAlias = tuple[int, int, int, int]

TRIES = 8  # attempts at a change that has an effect


def outline(traversal: Traversal) -> list[Item]:
    """The outline of a traversal: `follow` gives the traversal back."""
    out: list[Item] = []
    last: dict[int, int] = {}
    after: dict[int, int] = {}  # event -> op
    for entry in traversal.entries:
        stream = -1 if entry.stream is None else int(entry.stream)
        if entry.op is not None:
            if stream >= 0:
                last[stream] = int(entry.op)
            out.append((ISSUE, int(entry.op), stream))
        elif entry.records:
            after[entry.event] = last[stream]
            out.append((RECORD, last[stream], -1))
        else:
            out.append((WAIT, after[entry.event], stream))
    return out


class _Follower:
    """Follows one outline. Per stream: the ops since its last record, and its records with the ops they cover.

    A search follows some twenty outlines a measurement, which is a quarter of its time.
    """

    def __init__(self, moves: Moves, items: Sequence[Item]) -> None:
        self.moves, self.items = moves, list(items)
        self.issued, self.events = 0, 0
        self.bound = {op: stream for kind, op, stream in items if kind == ISSUE}
        self.tails = [0] * moves.streams
        self.users = [0] * moves.streams  # of the ops in the tails
        self.last = [-1] * moves.streams
        # Per stream label, and last of the CPU: the ops that it knows to have completed, or to complete before its own.
        self.seen = [0] * (moves.streams + 1)
        self.groups: list[list[Group]] = [[] for _ in range(moves.streams)]
        self.recorded: dict[int, Group] = {}  # by the op before the record
        # The numbers of the streams that have appeared, of the CPU (-1), and of those that appear next.
        self.labels = {-1: -1, **{s: s for s in range(moves.streams) if moves.pinned >> s & 1}}
        self.free = [*moves.free, -1]
        self.entries: list[Entry] = []

    def run(self) -> Traversal:
        """The traversal. Raises ValueError if the outline lacks an op."""
        at, items, moves, sync, serve = 0, self.items, self.moves, self._sync, self._serve
        before, needs, users, append = moves.before, moves.needs, moves.users, self.entries.append
        labels, free, seen, tails, last = self.labels, self.free, self.seen, self.tails, self.last
        issued = 0
        while at < len(items):
            kind, op, stream = items[at]
            if kind != ISSUE:
                if not (issued >> op & 1 and sync(kind, op, stream)):
                    at += 1
                    continue
            elif before[op] & ~issued:
                at += 1
                continue
            else:
                label = labels.get(stream, free[0])
                if missing := needs[op] & ~seen[label]:
                    serve(missing, stream)
                    at = 0
                    continue
                bit = 1 << op
                self.issued = issued = issued | bit
                if label >= 0:
                    if stream not in labels:
                        labels[stream] = free.pop(0)
                    tails[label] |= bit
                    self.users[label] |= users[op]
                    seen[label] |= bit
                    last[label] = op
                append(issue_of(op, label))
            del items[at]
            at = 0
        if issued != (1 << moves.size) - 1:
            raise ValueError("an outline without all ops")
        return Traversal(tuple(self.entries))

    # ---- ops ----------------------------------------------------------------------------

    def _serve(self, needs: int, stream: int) -> None:
        """The first sync op by which a stream, or the CPU (-1), waits for some of these ops, which it has not seen."""
        for label, groups in enumerate(self.groups):
            for group in groups:
                if group[0] & needs:
                    self._synchronise(group, stream)
                    return
            if self.tails[label] & needs:
                self._record(label)
                return

    # ---- sync ops -----------------------------------------------------------------------

    def _sync(self, kind: int, op: int, stream: int) -> bool:
        """The record after an op that is issued, or a wait for it of a stream or of the CPU (-1), if an op that can be
        issued now asks for it. True: done, or not needed any more."""
        bound, before, unissued = self.bound, self.moves.before, ~self.issued
        if kind == RECORD:
            label = self.labels[bound[op]]
            if self.last[label] != op or not self.tails[label]:
                return True
            for v in bits(self.users[label] & unissued):
                if not before[v] & unissued and self.labels.get(bound[v]) != label:
                    self._record(label)
                    return True
            return False
        group = self.recorded.get(op)
        if group is None:
            return not self.moves.users[op] & unissued
        known = self.labels.get(stream)
        if known is not None and not group[0] & ~self.seen[known]:
            return True
        for v in bits(group[3] & unissued):
            if bound[v] == stream and not before[v] & unissued:
                self._synchronise(group, stream)
                return True
        return False

    def _record(self, label: int) -> None:
        group = self.tails[label], self.events, label, self.users[label]
        self.groups[label].append(group)
        self.recorded[self.last[label]] = group
        self.tails[label] = self.users[label] = 0
        self.entries.append(record_of(self.events, label))
        self.events += 1

    def _synchronise(self, group: Group, stream: int) -> None:
        """The CPU (stream < 0) or a stream waits for a record, and so for all older records of its stream."""
        if stream not in self.labels:
            self.labels[stream] = self.free.pop(0)
        label = self.labels[stream]
        for older in self.groups[group[2]]:
            self.seen[label] |= older[0]
            if older is group:
                break
        self.entries.append(wait_of(group[1], label))


def follow(moves: Moves, items: Sequence[Item]) -> Traversal:
    """The traversal of an outline, which must contain every op once. Raises ValueError."""
    return _Follower(moves, items).run()


# ---- changes --------------------------------------------------------------------------------


def changed(moves: Moves, items: Sequence[Item], random: Random) -> list[Item]:
    """An outline with one random change."""
    kind = random.random()
    if kind < 0.5:
        return _op_moved(moves, items, random)
    if kind < 0.75 and moves.streams > 1:
        return _rebound(moves, items, random)
    if kind < 0.9:
        return _sync_moved(items, random)
    return _record_added(moves, items, random)


def _op_moved(moves: Moves, items: Sequence[Item], random: Random) -> list[Item]:
    """Move an op within the range between its predecessors and successors, mostly with the sync ops before it."""
    out = list(items)
    at = random.choice([i for i, item in enumerate(out) if item[0] == ISSUE])
    op = out[at][1]
    first = at
    if random.random() < 0.7:
        while first > 0 and out[first - 1][0] == WAIT:
            first -= 1
    taken, out[first : at + 1] = out[first : at + 1], []
    low, high = 0, len(out)
    for i, (kind, other, _) in enumerate(out):
        if kind == ISSUE:
            if moves.before[op] >> other & 1:
                low = i + 1
            elif moves.before[other] >> op & 1:
                high = i
                break
    place = random.randint(low, max(low, high))
    out[place:place] = taken
    return out


def _rebound(moves: Moves, items: Sequence[Item], random: Random) -> list[Item]:
    """Bind an op to another stream; sync ops that are still useful stay in place."""
    issues = [(i, op) for i, (kind, op, stream) in enumerate(items) if kind == ISSUE and stream >= 0]
    on_gpu = [i for i, op in issues if len(bits(moves.allowed[op])) > 1]
    if not on_gpu:
        return list(items)
    out, at = list(items), random.choice(on_gpu)
    _, op, stream = out[at]
    others = [s for s in bits(moves.allowed[op]) if s != stream]
    out[at] = (ISSUE, op, random.choice(others))
    return out


def _sync_moved(items: Sequence[Item], random: Random) -> list[Item]:
    """Move a sync op elsewhere, or to the latest place at which it is needed."""
    syncs = [i for i, item in enumerate(items) if item[0] != ISSUE]
    out = list(items)
    if syncs:
        item = out.pop(random.choice(syncs))
        if random.random() < 0.6:
            out.insert(random.randint(0, len(out)), item)
    return out


def _record_added(moves: Moves, items: Sequence[Item], random: Random) -> list[Item]:
    """Add a record directly after an op that others need, and a wait for it as early as possible."""
    out = list(items)
    used = [i for i, (kind, op, stream) in enumerate(out) if kind == ISSUE and stream >= 0 and moves.users[op]]
    if used:
        at = random.choice(used)
        op = out[at][1]
        waits: list[Item] = [(WAIT, op, -1), *((WAIT, op, s) for s in range(moves.streams) if s != out[at][2])]
        out[at + 1 : at + 1] = [(RECORD, op, -1)]
        if random.random() < 0.5:
            out.insert(random.randint(at + 2, len(out)), random.choice(waits))
    return out


def neighbour(moves: Moves, traversal: Traversal, items: Sequence[Item], random: Random) -> Traversal:
    """A traversal after one change of its outline, rarely after more; the same one if nothing can be changed."""
    for _ in range(TRIES):
        other = changed(moves, items, random)
        while random.random() < 0.3:
            other = changed(moves, other, random)
        moved = follow(moves, other)
        if moved != traversal:
            return moved
    return traversal


def deviations(moves: Moves, traversal: Traversal) -> Iterator[Traversal]:
    """For each position of a traversal and each other entry that is possible there: that entry, followed by the rest in
    its order as far as possible. Some results may be equal; none is the traversal itself."""
    items, state = outline(traversal), moves.start()
    for at, chosen in enumerate(traversal.entries):
        offers = moves.offers(state)
        for entry, askers in offers.items():
            if entry != chosen:
                other = outline(Traversal((*traversal.entries[:at], entry)))[at]
                issued = other[0] == ISSUE
                rest = [i for i in items[at:] if i[:2] != other[:2]] if issued else _asking(items[at:], askers)
                yield follow(moves, [*items[:at], other, *rest])
        state = moves.step(state, chosen, offers[chosen])


def _asking(items: Sequence[Item], askers: Sequence[Asker]) -> list[Item]:
    """Restricted to outlines with at least one op on a stream that needs the preceding entry; a sync op that no op
    needs is dropped."""
    bound = {op: stream for kind, op, stream in items if kind == ISSUE}
    if any(op < 0 or (op in bound and mask >> bound[op] & 1) for op, mask in askers):
        return list(items)
    asker, mask = next((op, mask) for op, mask in askers if op in bound)
    return [(kind, op, bits(mask)[0]) if kind == ISSUE and op == asker else (kind, op, s) for kind, op, s in items]


def translated(items: Sequence[Item], ops: Mapping[int, int], moves: Moves) -> list[Item]:
    """The outline of another graph, translated to the graph of `moves`. `ops`: common ops -> their new numbers.

    An op that the other graph lacks is inserted before its users. Streams that this graph lacks become its last stream.
    """
    out: list[Item] = []
    for kind, op, stream in items:
        if op in ops:
            label = min(stream, moves.streams - 1)
            if kind == ISSUE and stream >= 0 and not moves.allowed[ops[op]] >> label & 1:
                label = bits(moves.allowed[ops[op]])[0]
            out.append((kind, ops[op], label))
    present = {op for kind, op, _ in out if kind == ISSUE}
    for op in reversed(range(moves.size)):
        if op not in present:
            users = [i for i, (kind, v, _) in enumerate(out) if kind == ISSUE and moves.before[v] >> op & 1]
            stream = bits(moves.allowed[op])[0] if moves.gpu >> op & 1 else -1
            out.insert(min(users, default=len(out)), (ISSUE, op, stream))
    return out
