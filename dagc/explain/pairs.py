"""Timing two implementations in interleaved pairs, so that drift touches both alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from statistics import median

from dagc.search.domain import Candidate
from dagc.search.engine import Machine
from dagc.statistics import interval

FEWEST = 8  # pairs before a decision: fewer give no 95 % interval that is narrower than their range
TOLERANCE = 0.002  # half the width of the interval of the ratio at which more pairs are not needed


class Verdict(Enum):
    """What breaking a rule does to the time."""

    COSTS = "costs"
    NOTHING = "correlation"
    GAINS = "gains"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Paired:
    """`ratio`: time of the edit over that of the original, median over the pairs, with its 95 % interval.

    `seconds`: median difference, edit minus original. `failure`: why there are no pairs.
    """

    ratio: float
    low: float
    high: float
    seconds: float
    pairs: int
    failure: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.failure or math.isnan(self.ratio):
            return Verdict.UNKNOWN
        if self.low > 1:
            return Verdict.COSTS
        return Verdict.GAINS if self.high < 1 else Verdict.NOTHING


def time_pairs(
    machine: Machine, original: Candidate, edit: Candidate, most: int = 30,
    keep: Callable[[Candidate, float], None] | None = None,
) -> Paired:  # fmt: skip
    """Measure both in turn, who goes first alternating, until the interval is narrow or `most` pairs are taken."""
    ratios: list[float] = []
    differences: list[float] = []
    for number in range(most):
        order = (original, edit) if number % 2 == 0 else (edit, original)
        times: dict[Candidate, float] = {}
        for candidate in order:
            outcome = machine.measure(candidate)
            if outcome.failure:
                return Paired(math.nan, math.nan, math.nan, math.nan, len(ratios), outcome.failure)
            times[candidate] = outcome.seconds
            if keep is not None:
                keep(candidate, outcome.seconds)
        ratios.append(times[edit] / times[original])
        differences.append(times[edit] - times[original])
        low, high = interval(ratios)
        if len(ratios) >= FEWEST and high - low <= 2 * TOLERANCE:
            break
    low, high = interval(ratios)
    return Paired(median(ratios), low, high, median(differences), len(ratios))
