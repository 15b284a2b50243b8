"""How much longer some places take than the first one, beyond what the drift reference says of them."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median

PRIOR = 0.3  # standard deviation of the logarithm of an effect, before anything is measured
CLEARLY = 4.0  # standard errors that an effect exceeds; a smaller one would be noise in all times of a place
DEVIATION = 1.4826  # of a normal distribution, in median absolute deviations
OF_MEDIAN = 1.2533  # standard error of a median, in those of a mean
FEWEST = 8  # measurements of a place


class PlaceEffects:
    """A random effect of each place: the difference of the medians of log(time / expected time) between it and the
    first one, shrunk by its standard error. The drift reference is one kernel; hosts may also differ in what it does
    not use, such as a network."""

    def __init__(self, first: str) -> None:
        self.first = first
        self._residuals: dict[str, list[float]] = defaultdict(list)

    def add(self, place: str, time: float, expected: float) -> None:
        """The first measurement of a candidate, and what a model expected of it (NaN: nothing)."""
        if time > 0 < expected:
            self._residuals[place].append(math.log(time / expected))

    def factor(self, place: str) -> float:
        """By how much times of the place are longer than those of the first; 1 while nothing is known."""
        if place == self.first or min(len(self._residuals[name]) for name in (place, self.first)) < FEWEST:
            return 1.0
        spread = self._spread()
        variance = sum(spread**2 / len(self._residuals[name]) for name in (place, self.first))
        difference = median(self._residuals[place]) - median(self._residuals[self.first])
        if abs(difference) <= CLEARLY * math.sqrt(variance):
            return 1.0
        return math.exp(difference * PRIOR**2 / (PRIOR**2 + variance))

    def factors(self) -> dict[str, float]:
        return {place: self.factor(place) for place in list(self._residuals)}

    def _spread(self) -> float:
        """Of the residuals of all places about the medians of theirs: that of the few of one place may be 0."""
        off = [abs(v - middle) for values in self._residuals.values() for middle in (median(values),) for v in values]
        return OF_MEDIAN * max(DEVIATION * median(off), sum(off) / len(off))
