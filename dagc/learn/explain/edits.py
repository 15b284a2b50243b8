"""Edits of the fastest implementation that break one of its rules and keep the others.

An edit is another implementation of the space, so it is correct by construction, and it is proved again. Among the
implementations that break only this rule, those nearest to the best are used: the distance is the number of different
answers to the questions of dagc.learn.rules.features. Among about equally near ones, different ways of breaking the
rule are preferred to variants of one way. If no implementation breaks the rule alone, because other rules imply it,
those that break the fewest other rules are used.

A rule about an order or a stream is broken in the configuration of the best. A rule about a choice is broken in
configurations with another value: by the same traversal if it exists there, else by the nearest one, and by the fastest
known there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dagc.ir.program import Graph
from dagc.ir.traversal import Entry, Event, Issue, Record, Stream, Sync, Traversal, Wait
from dagc.lab.candidate import Candidate
from dagc.lab.orders import Orders
from dagc.learn.explain.pairs import Edit, Question
from dagc.learn.rules.features import Samples
from dagc.learn.rules.types import Bools, FeatureKind, Ints, Rule
from dagc.space import Space, TooManyStates
from dagc.space.moves import State
from dagc.space.proof import Prover

# ---- traversals nearby ----
# Traversals near a given one, for spaces too large to enumerate.
#
# A traversal is built from priorities, a number for each op and each sync op that it may need: at each state, the offer
# with the smallest number is taken. The priorities of a traversal reproduce it; after a change of some numbers they
# give a traversal near it, with the sync ops that it needs. Every result is therefore in the space.
#
# Neighbours deviate from a traversal at a single state, and follow its priorities afterwards. Priorities can also
# target a rule: to break `a before b`, a is delayed until after b, or b and its predecessors are moved before a.

_OTHER_STREAM = 10_000.0  # later than everything: an op leaves its preferred stream only if it has to
_RECORD, _SYNC, _WAIT = "CER-after-", "CES-b4-", "CSWE-after-"


@dataclass(frozen=True, slots=True)
class Priorities:
    """The preferred position and stream of each entry. Ops by number; streams by the labels of the source traversal.

    issue    per op
    stream   per op, None for a CPU op
    record   per GPU op u: the first record that follows it
    sync     per GPU op u: the CPU's wait for it
    wait     per (GPU op u, stream): that stream's wait for it
    """

    issue: tuple[float, ...]
    stream: tuple[int | None, ...]
    record: dict[int, float]
    sync: dict[int, float]
    wait: dict[tuple[int, int], float]


def priorities_of(traversal: Traversal, graph: Graph) -> Priorities:
    """The priorities that reproduce this traversal."""
    issue = [0.0] * len(graph.ops)
    stream: list[int | None] = [None] * len(graph.ops)
    record: dict[int, float] = {}
    sync: dict[int, float] = {}
    wait: dict[tuple[int, int], float] = {}
    issued: dict[int, list[int]] = {}
    covered: dict[Event, tuple[int, ...]] = {}  # ops that a record follows
    for position, entry in enumerate(traversal.entries):
        match entry:
            case Issue(op, lane):
                issue[op] = position
                if lane is not None:
                    stream[op] = int(lane)
                    issued.setdefault(int(lane), []).append(op)
            case Record(event, lane):
                covered[event] = tuple(issued.get(int(lane), ()))
                for u in covered[event]:
                    record.setdefault(u, position)
            case Wait(event, lane):
                for u in covered[event]:
                    wait.setdefault((u, int(lane)), position + _older(u, event, covered))
            case Sync(event):
                for u in covered[event]:
                    sync.setdefault(u, position + _older(u, event, covered))
    return Priorities(tuple(issue), tuple(stream), record, sync, wait)


def _older(u: int, event: Event, covered: dict[Event, tuple[int, ...]]) -> float:
    """A small increment for ops that an earlier record of the stream also covers: the earlier record comes first."""
    return 0.1 * sum(u in ops for other, ops in covered.items() if other < event)


def translated(priorities: Priorities, graph: Graph, other: Graph) -> Priorities:
    """Priorities of `graph`, translated to another lowering of its program: ops of the same name keep theirs.

    An op that `graph` lacks comes directly after its predecessors, on the first stream.
    """
    number: dict[str, int] = {op.name: op.id for op in graph.ops}
    twin: dict[int, int] = {number[op.name]: op.id for op in other.ops if op.name in number}
    before: dict[int, list[int]] = {}
    for u, v in (*other.completion, *other.order):
        before.setdefault(v, []).append(u)
    issue: dict[int, float] = {}

    def when(v: int) -> float:
        if v not in issue:
            name = other.ops[v].name
            known = name in number
            issue[v] = (
                priorities.issue[number[name]] if known else max((when(u) for u in before.get(v, ())), default=-1) + 0.5
            )
        return issue[v]

    lanes: list[int | None] = [0 if op.gpu else None for op in other.ops]
    for old, new in twin.items():
        lanes[new] = (priorities.stream[old] or 0) if other.ops[new].gpu else None
    return Priorities(
        tuple(when(op.id) for op in other.ops),
        tuple(lanes),
        {twin[u]: at for u, at in priorities.record.items() if u in twin},
        {twin[u]: at for u, at in priorities.sync.items() if u in twin},
        {(twin[u], lane): at for (u, lane), at in priorities.wait.items() if u in twin},
    )


def _op_name(name: str) -> str:
    """The op in the name of an entry."""
    for prefix in (_RECORD, _SYNC, _WAIT):
        name = name.removeprefix(prefix)
    return name


class Near:
    """Generates traversals of a space that are near others."""

    def __init__(self, space: Space) -> None:
        self.space, self.graph = space, space.graph
        ops = self.graph.ops
        self._users: list[list[int]] = [[] for _ in ops]
        self._needs: list[list[int]] = [[] for _ in ops]
        self._before: list[set[int]] = [set() for _ in ops]
        for u, v in self.graph.completion:
            self._users[u].append(v)
            if ops[u].gpu:
                self._needs[v].append(u)
        for u, v in (*self.graph.completion, *self.graph.order):
            self._before[v].add(u)

    def follow(self, priorities: Priorities) -> Traversal:
        """The traversal of the priorities."""
        walk = _Walk(self, priorities)
        walk.finish()
        return Traversal(tuple(walk.entries))

    def neighbours(self, traversal: Traversal) -> Iterator[Traversal]:
        """The traversals after each single deviation from a traversal; some may be equal, none is the traversal."""
        walk = _Walk(self, priorities_of(traversal, self.graph))
        for chosen in traversal.entries:
            for entry in walk.offers():
                if entry != chosen:
                    other = walk.copy()
                    other.take(entry)
                    other.finish()
                    yield Traversal(tuple(other.entries))
            walk.take(chosen)

    def breaking(self, rule: Rule, priorities: Priorities) -> Iterator[Priorities]:
        """Priorities that may break a rule about an order or a stream. None if the graph lacks an op of the rule."""
        feature = rule.feature
        ops = [op for op in self.graph.ops if op.name in (_op_name(feature.a), _op_name(feature.b))]
        if len(ops) < len({_op_name(feature.a), _op_name(feature.b)}):
            return
        if feature.kind is FeatureKind.BEFORE:
            first, second = (feature.b, feature.a) if rule.truth else (feature.a, feature.b)
            yield from self._put_before(first, second, priorities)
        elif feature.kind in (FeatureKind.SAME, FeatureKind.DIFFERENT) and all(op.gpu for op in ops):
            together = (feature.kind is FeatureKind.SAME) != rule.truth
            yield from self._rebind(feature.a, feature.b, together, priorities)

    def _put_before(self, first: str, second: str, priorities: Priorities) -> Iterator[Priorities]:
        """Priorities for `first` before `second`, both names of entries."""
        at, limit = self._when(first, priorities), self._when(second, priorities)
        yield self._moved(priorities, {second: at + 0.25})
        ahead = sorted(self._ancestors(self._served(first)), key=lambda v: priorities.issue[v])
        names = [self.graph.ops[v].name for v in ahead if priorities.issue[v] > limit]
        pulled = {name: limit - 0.5 + 0.4 * (i + 1) / (len(names) + 1) for i, name in enumerate([*names, first])}
        yield self._moved(priorities, pulled)

    def _rebind(self, a: str, b: str, together: bool, priorities: Priorities) -> Iterator[Priorities]:
        for moved, other in ((a, b), (b, a)):
            op, mate = self.graph.by_name(moved).id, self.graph.by_name(other).id
            for lane in range(self.space.moves.streams):
                if (lane == priorities.stream[mate]) == together and lane != priorities.stream[op]:
                    streams = list(priorities.stream)
                    streams[op] = lane
                    yield replace(priorities, stream=tuple(streams))

    # ---- names of entries ---------------------------------------------------------------

    def _served(self, name: str) -> int:
        """The op in a name."""
        return self.graph.by_name(_op_name(name)).id

    def _when(self, name: str, priorities: Priorities) -> float:
        op = self._served(name)
        if name.startswith(_RECORD):
            return priorities.record.get(op, priorities.issue[op] + 0.5)
        if name.startswith(_SYNC):
            return min(
                (priorities.sync[u] for u in self._needs[op] if u in priorities.sync),
                default=priorities.issue[op] - 0.5,
            )
        if name.startswith(_WAIT):
            return min((at for (u, _), at in priorities.wait.items() if u == op), default=priorities.issue[op] + 0.5)
        return priorities.issue[op]

    def _moved(self, priorities: Priorities, places: dict[str, float]) -> Priorities:
        issue, record, sync, wait = (
            list(priorities.issue),
            dict(priorities.record),
            dict(priorities.sync),
            dict(priorities.wait),
        )
        for name, at in places.items():
            op = self._served(name)
            if name.startswith(_RECORD):
                record[op] = at
            elif name.startswith(_SYNC):
                sync.update((u, at) for u in self._needs[op])
            elif name.startswith(_WAIT):
                wait.update(((op, lane), at) for lane in range(self.space.moves.streams))
            else:
                early = issue[op] > at
                issue[op] = at
                for u in self._needs[op] if early else ():  # its sync ops move with it
                    record[u] = min(record.get(u, at), at - 0.02)
                    sync[u] = min(sync.get(u, at), at - 0.01)
        return Priorities(tuple(issue), priorities.stream, record, sync, wait)

    def _ancestors(self, op: int) -> set[int]:
        ancestors: set[int] = set()
        todo = [op]
        while todo:
            for u in self._before[todo.pop()]:
                if u not in ancestors:
                    ancestors.add(u)
                    todo.append(u)
        return ancestors

    def asked(self, u: int, priorities: Priorities, cpu: bool) -> float:
        """The position of a sync op for u that has no priority: after the first op that may need it."""
        users = [priorities.issue[v] for v in self._users[u] if self.graph.ops[v].gpu != cpu]
        return min(users, default=_OTHER_STREAM) + 0.5


class _Walk:
    """A walk through the space by priorities."""

    def __init__(self, near: Near, priorities: Priorities) -> None:
        self._near, self._priorities, self._moves = near, priorities, near.space.moves
        self.entries: list[Entry] = []
        self._state: State = self._moves.start()
        self._label: dict[int, int] = {s: s for s in range(self._moves.streams) if self._moves.pinned >> s & 1}
        self._lanes: dict[int, list[int]] = {}  # ops by stream, as issued
        self._covers: dict[Event, tuple[int, ...]] = {}
        self._settled: set[tuple[int, int]] = set()  # (op, stream that has waited for it; -1: the CPU)

    def copy(self) -> _Walk:
        other = _Walk(self._near, self._priorities)
        other.entries, other._state = list(self.entries), self._state
        other._label, other._covers = dict(self._label), dict(self._covers)
        other._settled = set(self._settled)
        other._lanes = {lane: list(ops) for lane, ops in self._lanes.items()}
        return other

    @property
    def finished(self) -> bool:
        return self._moves.finished(self._state)

    def finish(self) -> None:
        while not self.finished:
            self.take(self.offers()[0])

    def offers(self) -> list[Entry]:
        """The offers, by priority."""
        offers = list(self._moves.offers(self._state))
        return sorted(offers, key=self._priority)  # stable: equal priorities in the order of offers

    def take(self, entry: Entry) -> None:
        self._state = self._moves.step(self._state, entry, self._moves.offers(self._state)[entry])
        self.entries.append(entry)
        match entry:
            case Issue(op, lane) if lane is not None:
                preferred = self._priorities.stream[op]
                if preferred is not None and preferred not in self._label and int(lane) not in self._label.values():
                    self._label[preferred] = int(lane)
                self._lanes.setdefault(int(lane), []).append(op)
            case Record(event, lane):
                self._covers[event] = tuple(self._lanes.get(int(lane), ()))
            case Wait(event, lane):
                self._settled |= {(u, int(lane)) for u in self._covers[event]}
            case Sync(event):
                self._settled |= {(u, -1) for u in self._covers[event]}

    def _priority(self, entry: Entry) -> float:
        priorities, near = self._priorities, self._near
        match entry:
            case Issue(op, None):
                return priorities.issue[op]
            case Issue(op, lane):
                return priorities.issue[op] + (0.0 if self._is_on_preferred_stream(op, lane) else _OTHER_STREAM)
            case Record(_, lane):
                fresh = self._fresh(int(lane))
                return min(
                    (priorities.record.get(u, near.asked(u, priorities, True)) for u in fresh), default=_OTHER_STREAM
                )
            case Sync(event):
                ops = self._unsettled(event, -1)
                return min(
                    (priorities.sync.get(u, near.asked(u, priorities, True)) for u in ops), default=_OTHER_STREAM
                )
            case Wait(event, lane):
                back = next((w for w, label in self._label.items() if label == lane), self._unlabelled())
                ops = self._unsettled(event, int(lane))
                return min(
                    (priorities.wait.get((u, back), near.asked(u, priorities, False)) for u in ops),
                    default=_OTHER_STREAM,
                )

    def _is_on_preferred_stream(self, op: int, lane: Stream | None) -> bool:
        preferred = self._priorities.stream[op]
        assert preferred is not None
        if preferred in self._label:
            return self._label[preferred] == lane
        return lane not in self._label.values()

    def _unlabelled(self) -> int:
        """The first stream of the priorities that has no label here yet."""
        return next((s for s in range(self._moves.streams) if s not in self._label), -1)

    def _unsettled(self, event: Event, waiter: int) -> list[int]:
        """Ops of an event that the waiter has not waited for yet."""
        return [u for u in self._covers[event] if (u, waiter) not in self._settled]

    def _fresh(self, lane: int) -> Iterable[int]:
        """Ops of a stream that no record follows yet."""
        known = {u for ops in self._covers.values() for u in ops}
        return [u for u in self._lanes.get(lane, ()) if u not in known]


# ---- edits ----

ENUMERATED = 25_000  # implementations; a larger space is searched around the best only
_STARTS = 3  # candidates whose neighbours are examined, per rule that is not broken alone yet
_FAR = 2  # times the distance of the nearest edit: more distant edits are not used for variety
_CHOICES = (FeatureKind.CHOICE, FeatureKind.AT_MOST)

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
        if not pool.exact and usable is None and rule.feature.kind not in _CHOICES and not alone:
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
    choices = any(rule.feature.kind in _CHOICES for rule in rules)
    exact = _small(domain, best)
    here = _everything(domain, best) if exact else _around(domain, best, rules)
    there = _elsewhere(domain, best, known) if choices else ()
    familiar = (c for c in known if c.space == best.space)
    candidates = [c for c in dict.fromkeys((*here, *familiar, *there)) if c != best and (usable is None or usable(c))]
    return EditPool((best, *candidates), exact)


def _small(domain: Orders, best: Candidate) -> bool:
    try:
        return domain.spaces[best.space].space.count() <= ENUMERATED
    except TooManyStates:
        return False


def _everything(domain: Orders, best: Candidate) -> Iterator[Candidate]:
    return (Candidate(best.space, traversal) for traversal in domain.spaces[best.space].space)


def _around(domain: Orders, best: Candidate, rules: Sequence[Rule]) -> Iterator[Candidate]:
    """Neighbours of the best, and traversals that target each rule."""
    near = Near(domain.spaces[best.space].space)
    priorities = priorities_of(best.traversal, near.graph)
    traversals: Iterable[Traversal] = (
        *near.neighbours(best.traversal),
        *(near.follow(other) for rule in rules for other in near.breaking(rule, priorities)),
    )
    return (Candidate(best.space, traversal) for traversal in traversals)


def _elsewhere(domain: Orders, best: Candidate, known: Sequence[Candidate]) -> Iterator[Candidate]:
    """From every other configuration: the traversal of the best, or the nearest to it, and the fastest known one."""
    graph = domain.spaces[best.space].graph
    priorities = priorities_of(best.traversal, graph)
    fastest: dict[int, Candidate] = {}
    for candidate in known:
        fastest.setdefault(candidate.space, candidate)
    for index, other in enumerate(domain.spaces):
        if index != best.space:
            near = Near(other.space)
            yield Candidate(index, near.follow(translated(priorities, graph, near.graph)))
            if index in fastest:
                yield fastest[index]


def _search_on(domain: Orders, table: _Table, rule: Rule, variants: int) -> tuple[Edit, ...]:
    """Edits among the neighbours of candidates that break the rule together with others."""
    best = table.pool.candidates[0]
    near = Near(domain.spaces[best.space].space)
    starts = [edit.candidate for edit in table.edits(rule, _STARTS)]
    neighbours = [Candidate(best.space, t) for start in starts for t in near.neighbours(start.traversal)]
    wider = EditPool(tuple(dict.fromkeys((best, *starts, *neighbours))), False)
    return _Table(domain, wider, table.own).edits(rule, variants)


# ---- choosing -------------------------------------------------------------------------------


class _Table:
    """A pool, and the rules that hold for each candidate."""

    def __init__(self, domain: Orders, pool: EditPool, own: Sequence[Rule]) -> None:
        import numpy as np

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
        import numpy as np

        choice = rule.feature.kind in _CHOICES
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
        names: Collection[str] = {name for name, _ in (*here.decisions, *there.decisions)}
        return tuple(sorted(name for name in names if here.get(name) != there.get(name)))
