"""The recipe of `dagc rules --estimate`: what was measured -> the space -> simulated times -> estimated times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagc.rules import Estimates, Sample
    from dagc.search.domain import Candidate, Domain

WHOLE = 2500  # a space up to this size is estimated as a whole, of a larger one
SAMPLE = 1000  # so many implementations, drawn uniformly (by random walks where they cannot be counted)


def estimated(samples: Sequence[Sample], noise: float = math.nan) -> Estimates:
    """The samples and the rest of the space of their configurations, with the times of `dagc.rules.estimate`.

    `noise` is the relative standard deviation of a single measurement. The order of the samples does not matter.
    Raises UsageError for fewer than ten.
    """
    from dagc.errors import UsageError
    from dagc.rules import FEWEST, Sample, estimate, in_order
    from dagc.search.domain import Candidate, domain_of
    from dagc.search.model.fitted import Fitted

    if len(samples) < FEWEST:
        raise UsageError(
            f"{len(samples)} implementations were measured, estimates need at least {FEWEST}",
            "measure more with `dagc explore --resume`, or leave out --estimate",
        )
    measured = in_order(samples)
    graphs = {s.configuration: s.graph for s in measured}
    domain = domain_of(graphs.items())
    arms = {arm.configuration: number for number, arm in enumerate(domain.arms)}
    known = [Candidate(arms[s.configuration], s.traversal) for s in measured]
    others = _others(domain, known)
    unknown = [
        Sample(domain.arms[c.arm].space.graph, domain.arms[c.arm].configuration, c.traversal, math.nan, 0)
        for c in others
    ]
    return estimate(measured, unknown, Fitted(domain, [*known, *others], len(known)), noise)


def _others(domain: Domain, known: Sequence[Candidate]) -> list[Candidate]:
    """Those that were not measured, or a sample of them."""
    size, random = domain.size(), Random(0)
    if size is not None and size <= WHOLE:
        found = list(domain)
    else:
        found = [domain.sample(random) for _ in range(SAMPLE)]
    measured = set(known)
    return [c for c in dict.fromkeys(found) if c not in measured]
