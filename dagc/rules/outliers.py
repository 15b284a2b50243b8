"""Which classes are no more than chance: how many samples noise and outliers may put where they do not belong.

Single measurements have long tails: in 33 recordings on H200s with repeated measurements, 2 to 20 % (median 6 %) lie
further than three noise floors from the median of their implementation; none of these 61 000 lies further than half of
it. In sorted times such outliers look like a class, far above the noise floor, but no implementation belongs there.

So a class needs more samples than chance would put there. A sample of time t gets into a slower class that begins at T
where its measurement is at least T / t times what it usually is: how often that happens is counted where
implementations were measured several times, else assumed (`Outliers`); likewise for faster classes. A sample that is
the median of several measurements gets there only if half of them do: where 5 % do, 0.1 % of the medians of five do.
The number of all that get there is that of a Poisson distribution with the sum of these shares as its mean; a class
needs more than its 99th percentile. Not the 95th: several boundaries are tried, each where times happen to be sparse.

This is asked of all samples, of those with at least two measurements, three, and so on, and a class stands where one of
these groups does. So a few fast samples that were measured again, as the best are by `dagc explore`, suffice. Without
that a class that is rarer than outliers is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagc.rules.arrays import Floats

SURE = 0.99
# Where too little was measured several times to count: the median and the reach of the recordings above.
USUAL = 0.06
REACH = 0.5
BEYOND = 0.001
# With fewer deviations a share of some percent cannot be counted.
ENOUGH = 100
FEWEST_OF_ONE = 3


@dataclass(frozen=True, slots=True)
class Outliers:
    """How far measurements lie from the median of their implementation.

    deviations  relative, ascending; those of implementations with at least three measurements
    noise       relative standard deviation of a single measurement: used where there are fewer than 100 deviations
    """

    deviations: tuple[float, ...]
    noise: float

    @classmethod
    def of(cls, series: Iterable[Sequence[float]], noise: float) -> Outliers:
        """Each of `series` holds the measurements of one implementation, in any unit."""
        repeated = [(values, median(values)) for values in series if len(values) >= FEWEST_OF_ONE]
        return cls(tuple(sorted(v / middle - 1 for values, middle in repeated for v in values)), noise)

    def shares(self, ratios: Floats) -> Floats:
        """Of single measurements, how many are at least (where it is below 1: at most) `ratio` times their median.

        Counted with the rule of succession, (k + 1) / (n + 2): what was not seen among few may happen. Where there are
        too few deviations: 6 % up to 1.5 times, 0.1 % beyond, or what normal noise gives where that is more.
        """
        import numpy as np
        from scipy.special import ndtr

        deviations = ratios - 1
        if len(self.deviations) >= ENOUGH:
            known = np.array(self.deviations)
            slower = len(known) - np.searchsorted(known, deviations, side="left")
            faster = np.searchsorted(known, deviations, side="right")
            counted: Floats = (np.where(deviations < 0, faster, slower) + 1) / (len(known) + 2)
            return counted
        assumed: Floats = np.where(abs(deviations) <= REACH, USUAL, BEYOND)
        return np.maximum(assumed, ndtr(-abs(deviations) / self.noise)) if self.noise > 0 else assumed

    def shares_of_medians(self, ratios: Floats, measurements: int) -> Floats:
        """The same of medians of so many measurements: at least half of each must lie there."""
        import numpy as np

        p, n = self.shares(ratios), measurements
        terms = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range((n + 1) // 2, n + 1)]
        total: Floats = np.sum(terms, axis=0)
        return total


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often each sample was measured, in the order of their times, and what is known of outliers."""

    measurements: tuple[int, ...]
    outliers: Outliers

    def first(self, count: int) -> Repeats:
        """Those of the fastest `count` samples."""
        return Repeats(self.measurements[:count], self.outliers)


def by_chance(times: Sequence[float], first: int, end: int, repeats: Repeats) -> int:
    """How many samples chance may put into the class from the `first` to before the `end` of the ascending `times`.

    0 where the class has more than that: it stands. There are times outside of it.
    """
    import numpy as np

    all_times, measurements = np.array(times), np.array(repeats.measurements)
    place = np.arange(len(times))
    inside = (place >= first) & (place < end)
    edge = np.where(place < first, times[first], times[end - 1])
    allowed = 0
    for least in np.unique(measurements):
        asked = measurements >= least
        others = asked & ~inside
        if not others.any():
            others = ~inside
        # As if the samples of the class were of the others, too.
        share = repeats.outliers.shares_of_medians(edge[others] / all_times[others], int(least)).mean()
        most = most_by_chance(float(share) * int(asked.sum()))
        if (asked & inside).sum() > most:
            return 0
        allowed = allowed or most
    return allowed


def most_by_chance(expected: float) -> int:
    """The 99th percentile of a Poisson distribution with this mean."""
    from scipy.special import pdtr

    most = 0
    while pdtr(most, expected) < SURE:
        most += 1
    return most
