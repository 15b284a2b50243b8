"""Edits of the fastest implementation that break one of its rules and keep the others.

An edit is another implementation of the space, so it is correct by construction, and it is proved again. Among the
implementations that break only this rule, those nearest to the best are used: the distance is the number of different
answers to the questions of dagc.learn.features. Among about equally near ones, different ways of breaking the
rule are preferred to variants of one way. If no implementation breaks the rule alone, because other rules imply it,
those that break the fewest other rules are used.

A rule about an order or a stream is broken in the configuration of the best. A rule about a choice is broken in
configurations with another value: by the same traversal if it exists there, else by the nearest one, and by the fastest
known there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dagc.base.python import np
from dagc.ir.traversal import Traversal
from dagc.lab.candidate import Candidate
from dagc.lab.neighbours import ISSUE, RECORD, WAIT, Item, deviations, follow, outline
from dagc.lab.orders import Orders, carried_over
from dagc.learn.features import RECORD_OF, SYNC_FOR, WAIT_OF, Samples
from dagc.learn.pairs import Edit, Question
from dagc.learn.types import Bools, FeatureKind, Ints, Rule
from dagc.space import Space, TooManyStates
from dagc.space.moves import bits
from dagc.space.proof import Prover

# ---- traversals nearby: in outlines (dagc.lab.neighbours), for spaces too large to enumerate ----

_OF_CPU = -1 - WAIT  # a wait of the CPU
_KINDS = {RECORD_OF: RECORD, SYNC_FOR: _OF_CPU, WAIT_OF: WAIT}


def breaking(space: Space, rule: Rule, items: Sequence[Item]) -> Iterator[list[Item]]:
    """Outlines that may break a rule about an order or a stream. None if the graph lacks an op of the rule."""
    feature, names = rule.feature, {op.name: op for op in space.graph.ops}
    if not {_named(feature.a)[1], _named(feature.b)[1]} <= names.keys():
        return
    nearby = _Nearby(space, items)
    if feature.kind is FeatureKind.BEFORE:
        first, second = (feature.b, feature.a) if rule.truth else (feature.a, feature.b)
        yield from nearby.put_before(_named(first), _named(second))
    elif feature.is_stream and names[feature.a].gpu and names[feature.b].gpu:
        together = (feature.kind is FeatureKind.SAME) != rule.truth
        for moved, other in ((feature.a, feature.b), (feature.b, feature.a)):
            yield from nearby.rebound(int(names[moved].id), int(names[other].id), together)


def _named(name: str) -> tuple[int, str]:
    """(kind, op) of the name of an entry."""
    head = next((head for head in _KINDS if name.startswith(head)), "")
    return _KINDS.get(head, ISSUE), name.removeprefix(head)


class _Nearby:
    """Changes of one outline, each aimed at the place of an entry. The entry need not be where it is aimed at."""

    def __init__(self, space: Space, items: Sequence[Item]) -> None:
        self.moves, self.graph, self.items = space.moves, space.graph, list(items)
        self.place = {op: i for i, (kind, op, _) in enumerate(items) if kind == ISSUE}
        self.bound = {op: stream for kind, op, stream in items if kind == ISSUE}

    def put_before(self, first: tuple[int, str], second: tuple[int, str]) -> Iterator[list[Item]]:
        """The second entry directly after the first, and the first with what it needs directly before the second: on
        its stream, and on each other one, which then takes the place of its stream in the rest."""
        moved = self._delayed(*second)
        after = [i for i in self._entries(*first) if self.items[i] not in moved]
        if moved and after:
            at = after[0]
            moved = [item for item in self.items[:at] if item in moved]
            stay = [item for item in self.items[: at + 1] if item not in moved]
            yield self._renamed([*stay, *moved, *self.items[at + 1 :]])
        before = self._entries(*second)
        if before:
            at = before[0]
            ahead = self._needed(*first, at)
            head = [*self.items[:at], *(self.items[self.place[op]] for op in ahead)]
            tail = (i for i in self.items[at:] if i[0] != ISSUE or i[1] not in ahead)
            pulled = [*head, *self._added(*first, head), *tail]
            op = int(self.graph.by_name(first[1]).id)
            own = self.bound[op]
            for stream in bits(self.moves.allowed[op]) if own >= 0 else (own,):
                yield self._renamed([*pulled[:at], *self._exchanged(pulled[at:], stream, own)])

    def rebound(self, op: int, mate: int, together: bool) -> Iterator[list[Item]]:
        """Outlines with one op on the stream of the other, or on any other stream."""
        for stream in bits(self.moves.allowed[op]):
            if (stream == self.bound[mate]) == together and stream != self.bound[op]:
                yield [(kind, v, stream) if kind == ISSUE and v == op else (kind, v, s) for kind, v, s in self.items]

    def _exchanged(self, items: Sequence[Item], one: int, other: int) -> Iterator[Item]:
        """The outline with two streams exchanged, as far as ops may be bound to them."""
        exchange = {one: other, other: one}
        for kind, op, s in items:
            stream = exchange.get(s, s)
            yield kind, op, stream if kind != ISSUE or s < 0 or self.moves.allowed[op] >> stream & 1 else s

    def _renamed(self, items: Sequence[Item]) -> list[Item]:
        """The outline with each record named by the op that now precedes it on its stream."""
        bound = {op: stream for kind, op, stream in items if kind == ISSUE}
        last, names, out = dict[int, int](), dict[int, int](), list[Item]()
        for kind, op, stream in items:
            if kind == ISSUE:
                last[stream] = op
            elif kind == RECORD:
                names[op] = last.get(bound[op], op)
            out.append((kind, op if kind == ISSUE else names.get(op, op), stream))
        return out

    def _served(self, kind: int, name: str) -> list[int]:
        """The GPU ops whose completion a sync op records or waits for."""
        op = int(self.graph.by_name(name).id)
        return list(bits(self.moves.needs[op])) if kind == _OF_CPU else [op]

    def _entries(self, kind: int, name: str) -> list[int]:
        """The position of an entry and of the other entries of its kind about these ops, in order."""
        if kind == ISSUE:
            return [self.place[int(self.graph.by_name(name).id)]]
        kinds = (_OF_CPU if k == WAIT and s < 0 else k for k, _, s in self.items)
        alike = [i for i, k in enumerate(kinds) if k == kind]
        return [i for i in alike if any(self._covers(self.items[i][1], u) for u in self._served(kind, name))]

    def _covers(self, w: int, u: int) -> bool:
        """Whether a record after `w` is one after `u`."""
        return self.bound[w] == self.bound[u] and self.place[w] >= self.place[u]

    def _delayed(self, kind: int, name: str) -> list[Item]:
        """The entries that must be moved back with an entry: sync ops are issued where an op needs them."""
        moved = [self.items[i] for i in self._entries(kind, name)]
        if kind == ISSUE:
            return moved
        covered = {u for k, w, _ in moved for u in self.bound if self.bound[u] >= 0 and self._covers(w, u)}
        users = {v for u in covered.union(self._served(kind, name)) for v in bits(self.moves.users[u])}
        cpu = {v for v in users if not self.moves.gpu >> v & 1}
        asking = {RECORD: users, _OF_CPU: cpu, WAIT: users - cpu}[kind]
        return moved + [self.items[self.place[v]] for v in asking]

    def _needed(self, kind: int, name: str, limit: int) -> list[int]:
        """The ops at or after a place that have to be issued before an entry, in order."""
        op = int(self.graph.by_name(name).id)
        needed, left = set() if kind == _OF_CPU else {op}, [op]
        while left:
            more = [u for u in bits(self.moves.before[left.pop()]) if u not in needed]
            needed.update(more)
            left += more
        return sorted((u for u in needed if self.place[u] >= limit), key=self.place.__getitem__)

    def _added(self, kind: int, name: str, head: Sequence[Item]) -> Iterator[Item]:
        """The sync ops of an entry, after a part of an outline that has what they serve."""
        for u in self._served(kind, name) if kind != ISSUE else ():
            last = next(op for k, op, s in reversed(head) if k == ISSUE and s == self.bound[u])
            yield RECORD, last, -1
            if kind == _OF_CPU:
                yield WAIT, last, -1
            elif kind == WAIT:
                yield from ((WAIT, last, s) for s in range(self.moves.streams) if s != self.bound[u])


# ---- edits ----

ENUMERATED = 25_000  # implementations; a larger space is searched around the best only
_STARTS = 3  # candidates whose neighbours are examined, per rule that is not broken alone yet
_FAR = 2  # times the distance of the nearest edit: more distant edits are not used for variety

_Key: TypeAlias = tuple[int, int, int, int]  # others broken, decisions changed, distance, row


@dataclass(frozen=True, slots=True)
class EditPool:
    """Candidates to choose edits from. The best is the first. `exact`: all implementations of its configuration."""

    candidates: tuple[Candidate, ...]
    exact: bool


def questions(
    domain: Orders,
    best: Candidate,
    own: Sequence[Rule],
    further: Sequence[Rule] = (),
    *,
    variants: int = 3,
    known: Iterable[Candidate] = (),
    usable: Callable[[Candidate], bool] | None = None,
) -> tuple[Question, ...]:
    """A question for each rule, with up to `variants` edits of `best`. Deterministic.

    own      the rules that the best follows: an edit should keep all but the one in question
    further  more rules that hold for the best
    known    additional candidates to examine, the fastest first
    usable   predicate of the candidates that can be timed (in a recording: the recorded ones); None: all
    """
    known = list(known)
    pool = _pool(domain, best, (*own, *further), known, usable)
    table = _Table(domain, pool, own)
    out = []
    for rule in dict.fromkeys((*own, *further)):
        edits = table.edits(rule, variants)
        alone = bool(edits) and not edits[0].also
        if not pool.exact and usable is None and not rule.feature.is_choice and not alone:
            edits = _search_on(domain, table, rule, variants) or edits
        out.append(Question(rule, rule in own, edits, pool.exact))
    provers = {c.space: Prover(domain.spaces[c.space].graph) for q in out for c in (e.candidate for e in q.edits)}
    for question in out:
        for edit in question.edits:
            provers[edit.candidate.space].prove(
                edit.candidate.traversal, f"the edit that breaks `{question.rule.text}`"
            )
    return tuple(out)


# ---- candidates -----------------------------------------------------------------------------


def _pool(
    domain: Orders,
    best: Candidate,
    rules: Sequence[Rule],
    known: Sequence[Candidate],
    usable: Callable[[Candidate], bool] | None,
) -> EditPool:
    choices = any(rule.feature.is_choice for rule in rules)
    exact = _small(domain, best)
    every = (Candidate(best.space, traversal) for traversal in domain.spaces[best.space].space)
    here = every if exact else _around(domain, best, rules)
    there = _elsewhere(domain, best, known) if choices else ()
    familiar = (c for c in known if c.space == best.space)
    candidates = [c for c in dict.fromkeys((*here, *familiar, *there)) if c != best and (usable is None or usable(c))]
    return EditPool((best, *candidates), exact)


def _small(domain: Orders, best: Candidate) -> bool:
    try:
        return domain.spaces[best.space].space.count() <= ENUMERATED
    except TooManyStates:
        return False


def _around(domain: Orders, best: Candidate, rules: Sequence[Rule]) -> Iterator[Candidate]:
    """Neighbours of the best, and traversals that target each rule."""
    space = domain.spaces[best.space].space
    items = outline(best.traversal)
    traversals: Iterable[Traversal] = (
        *deviations(space.moves, best.traversal),
        *(follow(space.moves, other) for rule in rules for other in breaking(space, rule, items)),
    )
    return (Candidate(best.space, traversal) for traversal in traversals)


def _elsewhere(domain: Orders, best: Candidate, known: Sequence[Candidate]) -> Iterator[Candidate]:
    """From every other configuration: the traversal of the best, or the nearest to it, and the fastest known one."""
    here = domain.spaces[best.space].space
    fastest: dict[int, Candidate] = {}
    for candidate in known:
        fastest.setdefault(candidate.space, candidate)
    for index, other in enumerate(domain.spaces):
        if index != best.space:
            yield Candidate(index, carried_over(best.traversal, here, other.space))
            if index in fastest:
                yield fastest[index]


def _search_on(domain: Orders, table: _Table, rule: Rule, variants: int) -> tuple[Edit, ...]:
    """Edits among the neighbours of candidates that break the rule together with others."""
    best = table.pool.candidates[0]
    moves = domain.spaces[best.space].space.moves
    starts = [edit.candidate for edit in table.edits(rule, _STARTS)]
    neighbours = [Candidate(best.space, t) for start in starts for t in deviations(moves, start.traversal)]
    wider = EditPool(tuple(dict.fromkeys((best, *starts, *neighbours))), False)
    return _Table(domain, wider, table.own).edits(rule, variants)


# ---- choosing -------------------------------------------------------------------------------


class _Table:
    """A pool, and the rules that hold for each candidate."""

    def __init__(self, domain: Orders, pool: EditPool, own: Sequence[Rule]) -> None:
        self.domain, self.pool, self.own = domain, pool, tuple(own)
        spaces = domain.spaces
        self.samples = Samples(
            [(spaces[c.space].graph, spaces[c.space].configuration, c.traversal) for c in pool.candidates]
        )
        _, answers = self.samples.features()
        self.differs: Bools = answers != answers[0]
        self.distance: Ints = self.differs.sum(axis=1)
        self.at_home: Bools = np.array([c.space == pool.candidates[0].space for c in pool.candidates])

    def broken(self, rule: Rule) -> Bools:
        out: Bools = self.samples.ask(rule.feature) != rule.truth
        return out

    def edits(self, rule: Rule, most: int) -> tuple[Edit, ...]:
        """Up to `most` that break the rule with the fewest others: the nearest, and other ways that are near."""
        choice = rule.feature.is_choice
        rows = np.flatnonzero(self.broken(rule) & (self.at_home != choice))
        if not len(rows):
            return ()
        others = {other: self.broken(other) for other in self.own if other != rule}
        count = np.sum([wrong[rows] for wrong in others.values()], axis=0) if others else np.zeros(len(rows), dtype=int)
        changed = {int(row): self._changed(self.pool.candidates[row]) for row in rows} if choice else {}
        keys = sorted(
            (int(n), len(changed.get(int(row), ())), int(self.distance[row]), int(row))
            for row, n in zip(rows, count, strict=True)
            if n == count.min()
        )
        return tuple(
            Edit(
                self.pool.candidates[row],
                tuple(other for other, wrong in others.items() if wrong[row]),
                changed.get(row, ()),
                distance,
            )
            for _, _, distance, row in sorted(self._different_ways(keys, most))
        )

    def _different_ways(self, keys: Sequence[_Key], most: int) -> list[_Key]:
        """The edits in order of preference: first those, unless far, that contain no nearer one; then the others."""
        chosen: list[_Key] = []
        for key in keys:
            if len(chosen) == most or key[2] > _FAR * keys[0][2]:
                break
            row = self.differs[key[3]]
            if not any((self.differs[other] <= row).all() for *_, other in chosen):
                chosen.append(key)
        return chosen + [key for key in keys if key not in chosen][: most - len(chosen)]

    def _changed(self, candidate: Candidate) -> tuple[str, ...]:
        """Names of the decisions in which its configuration differs from that of the best."""
        here = self.domain.spaces[self.pool.candidates[0].space].configuration
        there = self.domain.spaces[candidate.space].configuration
        names: Collection[str] = here.keys() | there.keys()
        return tuple(sorted(name for name in names if here.get(name) != there.get(name)))
