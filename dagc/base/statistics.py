"""Statistics of repeated measurements, without NumPy: small commands need them too."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from math import comb
from statistics import NormalDist, median


def median_interval(n: int) -> tuple[int, int]:
    """Ranks (from 0) of the order statistics that bound the median with at least 95% confidence.

    The largest r with P(Binomial(n, 1/2) < r) <= 2.5%; distribution-free. With fewer than 6 values, all of them.
    """
    below, rank = 0.0, 0
    for k in range(n // 2):
        below += comb(n, k) / 2**n
        if below > 0.025:
            break
        rank = k
    return rank, n - 1 - rank


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the median of `values`; (NaN, NaN) if there are none."""
    if not values:
        return math.nan, math.nan
    low, high = median_interval(len(values))
    ordered = sorted(values)
    return ordered[low], ordered[high]


def variation(values: Sequence[float]) -> float:
    """A robust coefficient of variation: 1.4826 times the median absolute deviation, over the median.

    Equal to the standard deviation over the mean for normally distributed values, and insensitive to a few outliers.
    NaN with fewer than two values.
    """
    if len(values) < 2:
        return math.nan
    middle = median(values)
    return 1.4826 * median(abs(v - middle) for v in values) / middle


def shrunk(series: Sequence[Sequence[float]]) -> list[tuple[float, float, float]] | None:
    """(estimate, low, high) of the true value of each candidate; None if there are too few data.

    `series` are measurements of each, equally many, of candidates that were not chosen by these. The least of several
    medians is too low, since it was selected: each is moved towards the mean of the medians by as much as their spread
    is explained by the noise (parametric empirical Bayes; the 95% interval is that of Morris, "Parametric Empirical
    Bayes Inference", 1983). Their order stays. At least four series and ten pairs of measurements.
    """
    noise = noise_floor(series)
    if len(series) < 4 or math.isnan(noise):
        return None
    medians = [median(values) for values in series]
    mean, number = sum(medians) / len(medians), len(medians)
    each = 1.5 * (noise * mean) ** 2 / min(len(values) for values in series)  # variance of a median
    spread = sum((m - mean) ** 2 for m in medians) / (number - 1)
    kept = 1 - min(1.0, (number - 3) / (number - 1) * each / spread) if spread > 0 else 0.0
    out = []
    for off in (m - mean for m in medians):
        variance = each * (1 - (1 - kept) * (number - 1) / number) + 2 / (number - 3) * ((1 - kept) * off) ** 2
        estimate, margin = mean + kept * off, 1.96 * math.sqrt(variance)
        out.append((estimate, max(0.0, estimate - margin), estimate + margin))  # measurements are above 0
    return out


FEWEST_PAIRS = 10
PER_DEVIATION = 1.4826  # standard deviation, per median of the deviations from the median
PER_CHANGE = PER_DEVIATION / math.sqrt(2)  # standard deviation of a measurement, per median of the changes between two


def noise_floor(series: Iterable[Sequence[float]]) -> float:
    """Relative standard deviation of a single measurement; NaN with fewer than ten pairs.

    Each of `series` holds measurements of one implementation in the order taken, in any unit. The estimate is
    1.4826 / sqrt(2) times the median of |relative difference of a measurement to the one before it|. For normal noise
    this is the coefficient of variation. A few disturbed measurements and slow drift do not change it.
    """
    differences = [_change(a, b) for values in series for a, b in pairwise(values) if a + b > 0]
    return PER_CHANGE * median(differences) if len(differences) >= FEWEST_PAIRS else math.nan


ENOUGH = 19  # values; the largest of n is exceeded by one in n + 1 others, so by 5 % here


def exceeded(values: Sequence[float]) -> float:
    """The value, among at least one, that one in 20 others like them is expected to exceed: of fewer than ENOUGH, the
    largest, which more exceed."""
    return sorted(values)[-max(1, (len(values) + 1) // (ENOUGH + 1))]


APART = 2.0  # standard deviations of a measurement between medians that differ beyond the noise
UNKNOWN = 0.1  # the noise where nothing was measured twice


def faster(one: Sequence[float], other: Sequence[float], noise: float) -> bool:
    """Whether the median of `one` is below that of `other` beyond the noise of a single measurement."""
    return median(one) < median(other) * (1 - APART * noise)


class Noise:
    """The noise of a single measurement, relative; `add` takes the changes between successive ones of one thing.

    As `noise_floor`, but always a number: with fewer than ten changes, that of the largest.
    """

    def __init__(self, series: Iterable[Sequence[float]] = ()) -> None:
        self._changes = sorted(_change(a, b) for values in series for a, b in pairwise(values) if a + b > 0)

    def add(self, before: float, now: float) -> None:
        if before + now > 0:
            insort(self._changes, _change(before, now))

    @property
    def value(self) -> float:
        number = len(self._changes)
        if number < FEWEST_PAIRS:
            return PER_CHANGE * self._changes[-1] if number else UNKNOWN
        # They are sorted: `statistics.median` would go through all, after each of thousands of measurements.
        return PER_CHANGE * (self._changes[(number - 1) // 2] + self._changes[number // 2]) / 2

    def between(self, one: Sequence[float], other: Sequence[float]) -> float:
        """The noise that matters to a comparison of these two, which have values above 0.

        With fewer than ten changes in all, one disturbed measurement of something else would hide any difference: then
        that of these two, by their deviations from their medians.
        """
        if len(self._changes) >= FEWEST_PAIRS:
            return self.value
        return PER_DEVIATION * median(abs(v / median(values) - 1) for values in (one, other) for v in values)


def _change(a: float, b: float) -> float:
    return abs(a - b) / ((a + b) / 2)


class Changes:
    """The changes of a reference and of the times between successive measurements of one thing, as `followed` takes
    them."""

    def __init__(self) -> None:
        self.pairs: list[tuple[float, float]] = []
        self._last: dict[Hashable, tuple[float, float]] = {}

    def add(self, measured: Hashable, reference: float, time: float) -> bool:
        """One measurement; both numbers above 0. Whether there was one of the same before."""
        here = math.log(reference), math.log(time)
        before, self._last[measured] = self._last.get(measured), here
        if before is not None:
            self.pairs.append((here[0] - before[0], here[1] - before[1]))
        return before is not None


def followed(changes: Iterable[tuple[float, float]]) -> float:
    """The part of a reference's change that other times follow, from 0 to 1; 1 with fewer than ten pairs.

    `changes`: pairs of the logarithms by which the reference and the time of one implementation changed between two
    measurements. The slope with the least sum of absolute residuals, which disturbed measurements do not decide: the
    median of the ratios, weighted by the change of the reference.
    """
    ratios = sorted((time / change, abs(change)) for change, time in changes if change)
    if len(ratios) < FEWEST_PAIRS:
        return 1.0
    reached = list(accumulate(weight for _, weight in ratios))
    slope, _ = ratios[bisect_left(reached, reached[-1] / 2)]
    return min(max(slope, 0.0), 1.0)


def shift_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float, float]:
    """(estimate, low, high, confidence) for the centre of `values`: Hodges and Lehmann's, by signed ranks.

    The estimate is the median of the means of all pairs (each value with itself too). The interval inverts Wilcoxon's
    signed-rank test. It holds for any symmetric distribution, for example that of the difference of two measurements
    that differ only in location. Fewer than six values cannot reach 95%: the interval then spans them all, and
    `confidence` is what this gives. Time and memory grow with the square of their number. ValueError without values.
    """
    if not values:
        raise ValueError("no values")
    n = len(values)
    means = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    left_out, reached = _left_out(n, confidence)
    return median(means), means[left_out], means[-1 - left_out], reached


_EXACT = 100  # values up to which signs are counted; then the sum of ranks is as good as normal


@cache
def _left_out(n: int, confidence: float) -> tuple[int, float]:
    """(number of the lowest, and of the highest, means of pairs that the interval excludes; its confidence), for n
    values.

    The confidence may be lower than asked for if none is excluded.
    """
    if n > _EXACT:
        deviation = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return int(n * (n + 1) / 4 - NormalDist().inv_cdf((1 + confidence) / 2) * deviation), confidence
    outside = [1 - 2 * below / 2**n for below in accumulate(_signed_ranks(n)[: n * (n + 1) // 4 + 1])]
    left_out = max(sum(reached >= confidence for reached in outside) - 1, 0)
    return left_out, outside[left_out]


def _signed_ranks(n: int) -> list[int]:
    """For each sum of positive ranks, from 0, the number of the 2^n choices of signs that give it."""
    counts = [1]
    for rank in range(1, n + 1):
        longer = counts + [0] * rank
        for total, count in enumerate(counts):
            longer[total + rank] += count
        counts = longer
    return counts
