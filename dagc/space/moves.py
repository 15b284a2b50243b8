"""States of a traversal under construction, the entries they offer, and the state after each entry.

A state holds what the rest of the traversal depends on, and nothing else:

issued    bit mask of the ops issued so far
streams   per stream label: the records that some op may still need, oldest first, each with the ops whose *first*
          following record it is; and the ops that no record follows yet
used      how many interchangeable (not pinned) stream labels have appeared
hidden    which streams the ready GPU ops may still be bound to, see below
events    how many records were issued

Binding a ready op to a stream adds nothing to the sequence, so a prefix can have several bindings. `hidden` is
the set of all bindings that explain the prefix, as an antichain of the least committed: each is a tuple of (op, mask
of streams it may be bound to); ops without an entry are free. A record requested on stream s commits the requesting
op to "not s"; a wait requested on stream t commits it to "t". Keeping the set makes the automaton deterministic:
equal prefixes are one state whichever op made the request, so each traversal is generated, and counted, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from dagc.ir.program import Graph
from dagc.ir.traversal import Entry, issue_of, record_of, wait_of

# Plain tuples: a search creates millions of them.
Group: TypeAlias = tuple[int, int, int, int]  # ops, host has synchronised (0/1), streams that wait, event
StreamState: TypeAlias = tuple[tuple[Group, ...], int]
Commitment: TypeAlias = tuple[tuple[int, int], ...]
Hidden: TypeAlias = tuple[Commitment, ...]
State: TypeAlias = tuple[int, tuple[StreamState, ...], int, Hidden, int]
# Which op may have made the request: (op, mask of streams it is then committed to); (-1, 0) if none is committed.
Asker: TypeAlias = tuple[int, int]

_EMPTY: StreamState = ((), 0)
_NOBODY: Asker = (-1, 0)


@lru_cache(maxsize=1 << 16)  # a search asks for few masks, each of them very often
def bits(mask: int) -> tuple[int, ...]:
    """Positions of the set bits, ascending."""
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Moves:
    """A graph as bit masks. Op i of the graph is bit i.

    gpu        mask of GPU ops
    before     per op: ops that must have been issued before it (completion and issue order)
    needs      per op: GPU ops that must have completed before it
    users      per op: ops that need its completion
    allowed    per op: mask of stream labels it may be bound to
    pinned     mask of stream labels that some op is pinned to: these are not interchangeable
    free       labels that are interchangeable, in order of first use
    """

    size: int
    streams: int
    gpu: int
    before: tuple[int, ...]
    needs: tuple[int, ...]
    users: tuple[int, ...]
    allowed: tuple[int, ...]
    pinned: int
    free: tuple[int, ...]

    @staticmethod
    def of(graph: Graph) -> Moves:
        """Raises ValueError if an op is pinned to a stream beyond the graph's number."""
        n, count = len(graph.ops), graph.streams
        everything = (1 << count) - 1
        gpu = sum(1 << op.id for op in graph.ops if op.gpu)
        before, needs, users, pinned, allowed = [0] * n, [0] * n, [0] * n, 0, []
        for op in graph.ops:
            if op.stream is not None and not 0 <= op.stream < count:
                raise ValueError(f"{op.name} is pinned to stream {op.stream}, but there are {count}")
            pinned |= 0 if op.stream is None else 1 << op.stream
            allowed.append(everything if op.stream is None else 1 << op.stream)
        for u, v in graph.completion:
            before[v] |= 1 << u
            users[u] |= 1 << v
            needs[v] |= (1 << u) & gpu
        for u, v in graph.order:
            before[v] |= 1 << u
        free = tuple(s for s in range(count) if not pinned >> s & 1)
        return Moves(n, count, gpu, tuple(before), tuple(needs), tuple(users), tuple(allowed), pinned, free)

    def start(self) -> State:
        """The initial state: nothing is issued."""
        return 0, (_EMPTY,) * self.streams, 0, ((),), 0

    def finished(self, state: State) -> bool:
        return state[0] == (1 << self.size) - 1

    # ---- possible entries of a state ------------------------------------------------------------

    def offers(self, state: State) -> dict[Entry, list[Asker]]:
        """Entries that may come next, each with all that may have requested it.

        Order: ready ops in file order; for a GPU op its streams ascending; for each, the missing sync ops by the
        stream and the age of what they serve, or the op itself. Equal entries are merged, at their first place.
        """
        issued, streams, used, hidden, events = state
        out: dict[Entry, list[Asker]] = {}
        known = self.pinned
        for label in self.free[: used + 1]:  # the labels in use, and the lowest unused one
            known |= 1 << label
        for v in range(self.size):
            if issued >> v & 1 or self.before[v] & ~issued:
                continue
            if self.gpu >> v & 1:
                for t in bits(known & self._still_allowed(v, hidden)):
                    self._offer_gpu(out, streams, v, t, events)
            else:
                self._offer_cpu(out, streams, v, events)
        return out

    def _still_allowed(self, v: int, hidden: Hidden) -> int:
        mask = 0
        for commitment in hidden:
            for op, streams in commitment:
                if op == v:
                    mask |= streams
                    break
            else:
                return self.allowed[v]
        return mask

    def _offer_cpu(self, out: dict[Entry, list[Asker]], streams: tuple[StreamState, ...], v: int, events: int) -> None:
        needs, missing = self.needs[v], False
        if needs:
            for s, (groups, tail) in enumerate(streams):
                for ops, synced, _, event in groups:
                    if ops & needs and not synced:
                        missing = True
                        out.setdefault(wait_of(event, -1), []).append(_NOBODY)
                if tail & needs:
                    missing = True
                    out.setdefault(record_of(events, s), []).append(_NOBODY)
        if not missing:
            out[issue_of(v, -1)] = [_NOBODY]

    def _offer_gpu(
        self, out: dict[Entry, list[Asker]], streams: tuple[StreamState, ...], v: int, t: int, events: int
    ) -> None:
        needs, missing = self.needs[v], False
        if needs:
            for s, (groups, tail) in enumerate(streams):
                if s == t:
                    continue
                for ops, _, waited, event in groups:
                    if ops & needs and not waited >> t & 1:
                        missing = True
                        out.setdefault(wait_of(event, t), []).append((v, 1 << t))
                if tail & needs:
                    missing = True
                    # Any stream but s explains this record, so the commitment is "not s", not "t".
                    asker = (v, self.allowed[v] & ~(1 << s))
                    askers = out.setdefault(record_of(events, s), [])
                    if asker not in askers:
                        askers.append(asker)
        if not missing:
            out[issue_of(v, t)] = [(v, 1 << t)]

    # ---- successors ---------------------------------------------------------

    def step(self, state: State, entry: Entry, askers: list[Asker]) -> State:
        """The state after an entry that `offers` returned."""
        issued, streams, used, hidden, events = state
        hidden = _commit(hidden, askers)
        if entry.op is not None:
            v = entry.op
            issued |= 1 << v
            streams = self._prune(streams, issued, self.before[v])
            if entry.stream is not None:
                t = int(entry.stream)
                hidden = _forget(hidden, v)
                used = self._used(used, t)
                if self._wanted(v, issued, t, 0, 0):
                    groups, tail = streams[t]
                    streams = (*streams[:t], (groups, tail | 1 << v), *streams[t + 1 :])
        elif entry.records:
            s = int(entry.stream)
            groups, tail = streams[s]
            new: StreamState = ((*groups, (tail, 0, 0, int(entry.event))), 0)
            streams = (*streams[:s], new, *streams[s + 1 :])
            events += 1
        else:
            t = -1 if entry.stream is None else int(entry.stream)
            if t >= 0:
                used = self._used(used, t)
            streams = self._synchronise(streams, issued, int(entry.event), t)
        return issued, streams, used, hidden, events

    def _used(self, used: int, label: int) -> int:
        if used < len(self.free) and label == self.free[used]:
            return used + 1
        return used

    def _wanted(self, u: int, issued: int, stream: int, synced: int, waited: int) -> bool:
        """Whether an op that is not issued yet may still request a sync op on behalf of `u`."""
        rest = self.users[u] & ~issued
        if rest & ~self.gpu and not synced:
            return True
        return bool(rest & self.gpu) and (waited | 1 << stream) != (1 << self.streams) - 1

    def _prune(self, streams: tuple[StreamState, ...], issued: int, changed: int) -> tuple[StreamState, ...]:
        """Drop what no op may request any more, so that states with equal futures are equal."""
        out = None
        for s, (groups, tail) in enumerate(streams):
            if not tail & changed and not any(g[0] & changed for g in groups):
                continue
            remaining = []
            for ops, synced, waited, event in groups:
                ops = sum(1 << u for u in bits(ops) if self._wanted(u, issued, s, synced, waited))
                if ops:
                    rest = 0
                    for u in bits(ops):
                        rest |= self.users[u] & ~issued
                    synced = synced if rest & ~self.gpu else 0
                    waited = waited if rest & self.gpu else 0
                    remaining.append((ops, synced, waited, event))
            tail = sum(1 << u for u in bits(tail) if self._wanted(u, issued, s, 0, 0))
            out = list(streams) if out is None else out
            out[s] = (tuple(remaining), tail)
        return streams if out is None else tuple(out)

    def _synchronise(
        self, streams: tuple[StreamState, ...], issued: int, event: int, t: int
    ) -> tuple[StreamState, ...]:
        """The CPU (t < 0) or stream t has waited for `event`, hence for all older records of its stream."""
        for s, (groups, tail) in enumerate(streams):
            if not any(g[3] == event for g in groups):
                continue
            new, changed, older = [], 0, True
            for ops, synced, waited, e in groups:
                if older:
                    synced, waited = (1, waited) if t < 0 else (synced, waited | 1 << t)
                    changed |= ops
                older = older and e != event
                new.append((ops, synced, waited, e))
            return self._prune((*streams[:s], (tuple(new), tail), *streams[s + 1 :]), issued, changed)
        raise AssertionError(f"event {event} is not live")


def _commit(hidden: Hidden, askers: list[Asker]) -> Hidden:
    if _NOBODY in askers:
        return hidden
    commitments: set[Commitment] = set()
    for commitment in hidden:
        held = dict(commitment)
        for op, mask in askers:
            both = mask & held.get(op, mask)
            if both:
                commitments.add(tuple(sorted({**held, op: both}.items())))
    if len(commitments) < 2:
        return tuple(commitments)
    return tuple(sorted(a for a in commitments if not any(a != b and _weaker(b, a) for b in commitments)))


def _weaker(a: Commitment, b: Commitment) -> bool:
    """Whether `a` commits to no more than `b`: every continuation under b is also possible under a."""
    held = dict(b)
    return all(op in held and not held[op] & ~mask for op, mask in a)


def _forget(hidden: Hidden, v: int) -> Hidden:
    if hidden == ((),):
        return hidden
    rest = {tuple(pair for pair in commitment if pair[0] != v) for commitment in hidden}
    return tuple(sorted(a for a in rest if not any(a != b and _weaker(b, a) for b in rest)))
