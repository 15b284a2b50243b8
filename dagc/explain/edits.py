"""Edits of the fastest implementation that break one of its rules and leave the others as they are.

An edit is another implementation of the space, so it is right by construction. Of those in which just this rule is
broken the ones nearest to the original are taken: with the fewest answers to all questions (order of two entries, same
stream, choices) that differ. Where no implementation breaks the rule alone, because other rules follow from it, those
are taken that break the fewest others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from dagc.rules import Rule, Samples
from dagc.search.domain import Candidate, Domain

ENUMERATED = 25_000  # candidates; a larger space is searched around the original only
WALKS = 4_000


@dataclass(frozen=True, slots=True)
class Edit:
    """`also`: other rules that are broken as well, since they cannot hold without this one. `distance`: answers that
    differ from the original's."""

    rule: Rule
    candidate: Candidate
    also: tuple[Rule, ...]
    distance: int


def edits_of(
    domain: Domain, best: Candidate, rules: Sequence[Rule], variants: int = 3, seed: int = 0,
    more: Iterable[Candidate] = (),
) -> dict[Rule, tuple[Edit, ...]]:  # fmt: skip
    """Up to `variants` edits of `best` for each rule; none where no implementation breaks it.

    `more` are candidates to consider besides, the fastest of other configurations for instance. Deterministic.
    """
    import numpy as np

    candidates = [best, *(c for c in dict.fromkeys([*_around(domain, best, seed), *more]) if c != best)]
    table = Samples(
        [(domain.arms[c.arm].space.graph, domain.arms[c.arm].configuration, c.traversal) for c in candidates]
    )
    held = np.array([table.ask(rule.feature) == rule.truth for rule in rules])
    _, answers = table.features()
    distance = (answers != answers[0]).sum(axis=1)
    out: dict[Rule, tuple[Edit, ...]] = {}
    for number, rule in enumerate(rules):
        rows = np.flatnonzero(~held[number])
        broken = (~held[:, rows]).sum(axis=0)
        if not len(rows):
            out[rule] = ()
            continue
        fewest = rows[broken == broken.min()]
        order = sorted(fewest, key=lambda row: (int(distance[row]), int(row)))[:variants]
        out[rule] = tuple(
            Edit(
                rule, candidates[row],
                tuple(r for k, r in enumerate(rules) if k != number and not held[k, row]), int(distance[row]),
            )
            for row in order
        )  # fmt: skip
    return out


def _around(domain: Domain, best: Candidate, seed: int) -> Iterable[Candidate]:
    """All implementations of the best's configuration; of a large space, walks that leave the best's somewhere."""
    space = domain.arms[best.arm].space
    alone = Domain([domain.arms[best.arm]])
    size = alone.size()
    if size is not None and size <= ENUMERATED:
        return (Candidate(best.arm, traversal) for traversal in space)
    random = Random(seed)
    return (Candidate(best.arm, space.walk_from(best.traversal, random)) for _ in range(WALKS))
