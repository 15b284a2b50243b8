"""Edits of the fastest implementation that break one of its rules and leave the others as they are.

An edit is another implementation of the space, so it is right by construction, and proved again. Of those in which just
this rule is broken the nearest to the best are taken: with the fewest answers that differ to all questions of
dagc.learn.rules.features; and of those about as near, different ways rather than one with something else moved. Where
none breaks the rule alone, because other rules follow from it, those are taken that break the fewest others with it.

A rule about an order or a stream is broken in the best's own configuration; a rule about a choice, in configurations
where it is another one: by the same traversal where there is such a one, else by the nearest to it, and by the fastest
that is known there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dagc.ir.traversal import Traversal
from dagc.lab.candidate import Candidate
from dagc.lab.orders import Orders
from dagc.learn.explain.near import Near, priorities_of, translated
from dagc.learn.explain.types import Edit, Question
from dagc.learn.rules.features import Samples
from dagc.learn.rules.types import FeatureKind, Rule
from dagc.space import TooManyStates
from dagc.space.proof import Prover

if TYPE_CHECKING:
    from dagc.learn.rules.types import Bools, Ints

ENUMERATED = 25_000  # implementations; a larger space is searched around the best only
_STARTS = 3  # candidates whose neighbours are looked at, per rule that is not broken alone yet
_FAR = 2  # times the distance of the nearest edit: what is further is not tried for the sake of variety
_CHOICES = (FeatureKind.CHOICE, FeatureKind.AT_MOST)

_Key: TypeAlias = tuple[int, int, int, int]  # others broken, decisions changed, distance, row


@dataclass(frozen=True, slots=True)
class Pool:
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

    own      the rules that the best follows: all but the one in question shall still hold
    further  more rules that hold for the best
    known    candidates to look at besides, the fastest first
    usable   which candidates can be timed (of a recording: the recorded ones); all where it is None
    """
    known = list(known)
    pool = _pool(domain, best, (*own, *further), known, usable)
    table = _Table(domain, pool, own)
    out = []
    for rule in dict.fromkeys((*own, *further)):
        edits = table.edits(rule, variants)
        if not pool.exact and usable is None and rule.feature.kind not in _CHOICES and not _alone(edits):
            edits = _search_on(domain, table, rule, variants) or edits
        out.append(Question(rule, rule in own, edits, pool.exact))
    provers = {c.space: Prover(domain.spaces[c.space].graph) for q in out for c in (e.candidate for e in q.edits)}
    for question in out:
        for edit in question.edits:
            provers[edit.candidate.space].prove(
                edit.candidate.traversal, f"the edit that breaks `{question.rule.text}`"
            )
    return tuple(out)


def _alone(edits: Sequence[Edit]) -> bool:
    return bool(edits) and not edits[0].also


# ---- candidates -----------------------------------------------------------------------------


def _pool(
    domain: Orders,
    best: Candidate,
    rules: Sequence[Rule],
    known: Sequence[Candidate],
    usable: Callable[[Candidate], bool] | None,
) -> Pool:
    choices = any(rule.feature.kind in _CHOICES for rule in rules)
    exact = _small(domain, best)
    here = _everything(domain, best) if exact else _around(domain, best, rules)
    there = _elsewhere(domain, best, known) if choices else ()
    familiar = (c for c in known if c.space == best.space)
    candidates = [c for c in dict.fromkeys((*here, *familiar, *there)) if c != best and (usable is None or usable(c))]
    return Pool((best, *candidates), exact)


def _small(domain: Orders, best: Candidate) -> bool:
    try:
        return domain.spaces[best.space].space.count() <= ENUMERATED
    except TooManyStates:
        return False


def _everything(domain: Orders, best: Candidate) -> Iterator[Candidate]:
    return (Candidate(best.space, traversal) for traversal in domain.spaces[best.space].space)


def _around(domain: Orders, best: Candidate, rules: Sequence[Rule]) -> Iterator[Candidate]:
    """Neighbours of the best; what is aimed at each rule."""
    near = Near(domain.spaces[best.space].space)
    priorities = priorities_of(best.traversal, near.graph)
    found: Iterable[Traversal] = (
        *near.neighbours(best.traversal),
        *(near.follow(other) for rule in rules for other in near.breaking(rule, priorities)),
    )
    return (Candidate(best.space, traversal) for traversal in found)


def _elsewhere(domain: Orders, best: Candidate, known: Sequence[Candidate]) -> Iterator[Candidate]:
    """Of every other configuration: the best's traversal, or the nearest to it, and the fastest that is known."""
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
    """Edits among the neighbours of those that break the rule, though not alone."""
    best = table.pool.candidates[0]
    near = Near(domain.spaces[best.space].space)
    starts = [edit.candidate for edit in table.edits(rule, _STARTS)]
    found = [Candidate(best.space, t) for start in starts for t in near.neighbours(start.traversal)]
    wider = Pool(tuple(dict.fromkeys((best, *starts, *found))), False)
    return _Table(domain, wider, table.own).edits(rule, variants)


# ---- choosing -------------------------------------------------------------------------------


class _Table:
    """A pool, and what holds in it."""

    def __init__(self, domain: Orders, pool: Pool, own: Sequence[Rule]) -> None:
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
        """Up to `most` that break the rule with the fewest others; the nearest, and other ways that are near."""
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
        """Of edits in order: those that no nearer one is a part of, unless far; then those that are left."""
        chosen: list[_Key] = []
        for key in keys:
            if len(chosen) == most or key[2] > _FAR * keys[0][2]:
                break
            row = self.differs[key[3]]
            if not any((self.differs[other] <= row).all() for *_, other in chosen):
                chosen.append(key)
        return chosen + [key for key in keys if key not in chosen][: most - len(chosen)]

    def _changed(self, candidate: Candidate) -> tuple[str, ...]:
        """Names of the decisions in which its configuration differs from the best's."""
        here = self.domain.spaces[self.pool.candidates[0].space].configuration
        there = self.domain.spaces[candidate.space].configuration
        names: Collection[str] = {name for name, _ in (*here.decisions, *there.decisions)}
        return tuple(sorted(name for name in names if here.get(name) != there.get(name)))
