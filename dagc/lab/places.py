"""How much longer some places take than the first one, beyond what the drift reference says of them."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median

PRIOR = 0.3  # standard deviation of the logarithm of an effect, before anything is measured
CLEARLY = 3.0  # standard errors that an effect exceeds; a smaller one would be noise in all times of a place
DEVIATION = 1.4826  # of a normal distribution, in median absolute deviations
OF_MEDIAN = 1.2533  # standard error of a median, in those of a mean
FEWEST = 6  # measurements of a place


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
        (here, error), (there, other) = self._centre(place), self._centre(self.first)
        variance, difference = error**2 + other**2, here - there
        if abs(difference) <= CLEARLY * math.sqrt(variance):
            return 1.0
        return math.exp(difference * PRIOR**2 / (PRIOR**2 + variance))

    def factors(self) -> dict[str, float]:
        return {place: self.factor(place) for place in list(self._residuals)}

    def _centre(self, place: str) -> tuple[float, float]:
        """Median, and its standard error."""
        values = self._residuals[place]
        middle = median(values)
        spread = DEVIATION * median(abs(value - middle) for value in values)
        return middle, OF_MEDIAN * spread / math.sqrt(len(values))
