"""Performance classes from times (Tenzing, section IV-A), and the tests of their boundaries against noise.

The sorted times are convolved with a step of radius r = 0.5 % of their count (at least 1). Peaks of the result are
found by comparison with their neighbours; those whose prominence exceeds the 98th percentile are boundaries.

The step function as printed (-1 for -r <= m <= 0, 1 for 0 < m < r) does not match the printed sum (m from -r + 1 to r).
Here it is -1 for -r < m <= 0 and 1 for 0 < m <= r, r values each, so that equal times give zero. The result is divided
by r: it is the mean of the next r times minus that of the last r.

**The noise floor.** The steepest places of sorted times are not always steps: noise around one value has steep ends
too. A boundary is therefore drawn only if the classes on its two sides differ by more than the noise: the median of the
class above divided by that of the class below, minus 1, must reach the relative standard deviation of the times used,
`noise_of(noise, n)` for medians of n measurements. The boundary with the largest shortfall is dropped and its two
classes are merged, until all others reach it. Two times that differ by one standard deviation of each change places in
24 % of repetitions: such classes cannot be distinguished.

**Outliers.** Of the remaining classes, the smallest that has no more samples than chance may put there is merged with
its more similar neighbour, repeatedly. With few times the percentile selects one or two peaks, and if these were
outliers only one class remains. Then the times without those outliers are classified again, if they were the fastest or
slowest and more than three noise floors away; the outliers join the class next to them.

**Several configurations.** Times of different transports differ by far more than times of different orders; then only
those differences are peaks, and the fastest class is everything with the right transport. Beyond the paper, the fastest
class is therefore divided again in the same way while it has implementations of several configurations (`cut_again`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import comb
from statistics import median
from typing import Any

from dagc.base.python import np, scipy
from dagc.ir.traversal import traversal_text
from dagc.learn.types import Bools, Boundary, Classes, Example, Floats, Ints, PerformanceClass

# ---- classes that may be chance ----


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
    """Deviations of measurements from the median of their implementation.

    deviations  relative, ascending; of implementations with at least three measurements
    noise       relative standard deviation of a single measurement: used if there are fewer than 100 deviations
    """

    deviations: tuple[float, ...]
    noise: float

    @classmethod
    def of(cls, series: Iterable[Sequence[float]], noise: float) -> Outliers:
        """Each of `series` holds the measurements of one implementation, in any unit."""
        repeated = [(values, median(values)) for values in series if len(values) >= FEWEST_OF_ONE]
        return cls(tuple(sorted(v / middle - 1 for values, middle in repeated for v in values)), noise)

    def shares(self, ratios: Floats) -> Floats:
        """The share of single measurements that are at least (for a ratio below 1: at most) `ratio` times their median.

        By the rule of succession, (k + 1) / (n + 2), since an event not seen among few may occur. With too few
        deviations: 6 % up to 1.5 times, 0.1 % beyond, or the share under normal noise if that is larger.
        """
        deviations = ratios - 1
        if len(self.deviations) >= ENOUGH:
            known = np.array(self.deviations)
            slower = len(known) - np.searchsorted(known, deviations, side="left")
            faster = np.searchsorted(known, deviations, side="right")
            return (np.where(deviations < 0, faster, slower) + 1) / (len(known) + 2)
        assumed: Floats = np.where(abs(deviations) <= REACH, USUAL, BEYOND)
        return np.maximum(assumed, scipy.special.ndtr(-abs(deviations) / self.noise)) if self.noise > 0 else assumed

    def shares_of_medians(self, ratios: Floats, measurements: int) -> Floats:
        """The same for medians of so many measurements: at least half of them must deviate."""
        p, n = self.shares(ratios), measurements
        terms = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range((n + 1) // 2, n + 1)]
        total: Floats = np.sum(terms, axis=0)
        return total


@dataclass(frozen=True, slots=True)
class Repeats:
    """The number of measurements of each sample, in the order of their times, and the outliers to expect."""

    measurements: tuple[int, ...]
    outliers: Outliers

    def first(self, count: int) -> Repeats:
        """Those of the fastest `count` samples."""
        return Repeats(self.measurements[:count], self.outliers)


def by_chance(times: Sequence[float], first: int, end: int, repeats: Repeats) -> int:
    """The number of samples that chance may put into the class from `first` to before `end` of the ascending `times`.

    0 if the class has more samples than that, and is kept. There are times outside of it.
    """
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
        # As if the samples of the class were outliers of the others.
        share = repeats.outliers.shares_of_medians(edge[others] / all_times[others], int(least)).mean()
        most = most_by_chance(float(share) * int(asked.sum()))
        if (asked & inside).sum() > most:
            return 0
        allowed = allowed or most
    return allowed


def most_by_chance(expected: float) -> int:
    """The 99th percentile of a Poisson distribution with this mean."""
    most = 0
    while scipy.special.pdtr(most, expected) < SURE:
        most += 1
    return most


# ---- performance classes ----


PERCENTILE = 98
RADIUS = 0.005
FEWEST_TO_CUT = 20
OUTLYING = 3  # noise floors
EQUAL = 1e-9  # tolerance for equal prominences, which are differences of floating-point sums
ROUNDING = 1e-12  # relative to the largest time: a smaller prominence is a rounding error of those sums


def noise_of(noise: float, measurements: float) -> float:
    """Relative standard deviation of a median of `measurements` measurements, each with `noise`.

    For normal noise sqrt(pi / 2n) times it, an upper bound for n >= 3; the median of 1 or 2 is their mean: sqrt(1 / n).
    """
    return noise * math.sqrt((1 if measurements < 3 else math.pi / 2) / max(measurements, 1))


def classify_times(
    times: Sequence[float], noise: float = math.nan, percentile: float = PERCENTILE, repeats: Repeats | None = None
) -> Classes:
    """Divide times (in any order, at least one) into classes.

    `noise`: of these times, see `noise_of`; NaN keeps every boundary. `repeats`: decides which classes are outliers;
    without it, or without noise, none is. Raises ValueError without times.
    """
    if not times:
        raise ValueError("no times")
    ordered = np.sort(np.asarray(times, dtype=float))
    radius = max(1, round(RADIUS * len(ordered)))
    convolution = _convolve(ordered, radius)
    times = tuple(float(t) for t in ordered)
    dropped: dict[int, Boundary] = {}
    lo, hi = 0, len(times)
    while True:
        peaks, threshold = _boundaries(ordered[lo:hi], lo, percentile)
        drawn, more = _above_noise(times, peaks, noise, repeats)
        dropped.update((b.position, b) for b in more)
        classes = Classes(
            _classes(times, drawn), times, radius, tuple(float(c) for c in convolution), threshold, drawn, (), noise
        )
        last = lo, hi
        lo, hi = _without_outliers(lo, hi, len(times), more, noise)
        if drawn or (lo, hi) == last or hi - lo < FEWEST_TO_CUT:
            return _with_dropped(classes, dropped.values())


def _without_outliers(lo: int, hi: int, count: int, dropped: Sequence[Boundary], noise: float) -> tuple[int, int]:
    """The range of the times `lo` to `hi`, of `count`, without the outliers at both ends."""
    for b in dropped:
        if b.chance and b.step > OUTLYING * noise:
            if b.position + 1 == b.samples:
                lo = max(lo, b.position + 1)
            elif count - b.position - 1 == b.samples:
                hi = min(hi, b.position + 1)
    return lo, hi


def _with_dropped(classes: Classes, dropped: Iterable[Boundary]) -> Classes:
    """The classes with these dropped boundaries: each once, ascending, without drawn ones, with heights among all
    times."""
    drawn = {b.position for b in classes.boundaries}
    left = {b.position: _seen_in(classes, b) for b in dropped if b.position not in drawn}
    return replace(
        classes,
        boundaries=tuple(_seen_in(classes, b) for b in classes.boundaries),
        dropped=tuple(left[position] for position in sorted(left)),
    )


def cut_again(
    classes: Classes, groups: Sequence[Hashable], percentile: float = PERCENTILE, repeats: Repeats | None = None
) -> Classes:
    """Divide the fastest class again while it has several `groups` (one for each time, ascending) and many times.

    Such a boundary has its height in the convolution of all times, and its prominence among the divided times.
    """
    drawn, dropped, count = list(classes.boundaries), list(classes.dropped), classes.classes[0].count
    while count >= FEWEST_TO_CUT and len(set(groups[:count])) > 1:
        again = classify_times(classes.times[:count], classes.noise, percentile, repeats and repeats.first(count))
        drawn += again.boundaries
        dropped += again.dropped
        if len(again.classes) == 1:
            break
        count = again.classes[0].count
    boundaries, more = _above_noise(classes.times, drawn, classes.noise, repeats)
    return _with_dropped(
        replace(classes, classes=_classes(classes.times, boundaries), boundaries=boundaries), [*dropped, *more]
    )


def dropped_from(classes: Classes, boundaries: Sequence[Boundary]) -> Classes:
    """The classes without these boundaries; the classes on both sides of each are merged."""
    dropped = {b.position for b in boundaries}
    left = [b for b in classes.boundaries if b.position not in dropped]
    joined = _classes(classes.times, left)
    steps = [above.median / below.median - 1 for below, above in pairwise(joined)]
    drawn = tuple(replace(b, step=step) for b, step in zip(left, steps, strict=True))
    return _with_dropped(
        replace(classes, classes=joined, boundaries=drawn, dropped=()), [*classes.dropped, *boundaries]
    )


def with_estimates(classes: Classes, times: Sequence[float]) -> Classes:
    """The same boundaries, with classes of these times (some estimated) and of those that gave the boundaries."""
    inside: list[list[float]] = [[] for _ in classes.classes]
    for time in times:
        inside[classes.of(time)].append(time)
    extended = tuple(
        replace(
            c, count=len(all_of_it), fastest=min(c.fastest, *all_of_it), slowest=max(c.slowest, *all_of_it),
            median=median(all_of_it or [c.median]),
        )
        for c, all_of_it in zip(classes.classes, inside, strict=True)
    )  # fmt: skip
    return replace(classes, classes=extended)


def _seen_in(classes: Classes, boundary: Boundary) -> Boundary:
    """The boundary with its height in the convolution of all times, if that is defined there."""
    at = boundary.position - classes.radius + 1
    return replace(boundary, height=classes.convolution[at]) if 0 <= at < len(classes.convolution) else boundary


def _classes(times: tuple[float, ...], boundaries: Sequence[Boundary]) -> tuple[PerformanceClass, ...]:
    edges = [0, *(b.position + 1 for b in boundaries), len(times)]
    return tuple(
        PerformanceClass(k, hi - lo, times[lo], median(times[lo:hi]), times[hi - 1])
        for k, (lo, hi) in enumerate(pairwise(edges))
    )


def _convolve(ordered: Floats, radius: int) -> Floats:
    """Mean of the next `radius` times minus that of the last, at each position with that many times on both sides."""
    if len(ordered) < 2 * radius:
        return np.zeros(0)
    sums: Floats = np.convolve(ordered, np.ones(radius), mode="valid") / radius  # means of `radius` in a row
    return sums[radius:] - sums[:-radius]


def _boundaries(ordered: Floats, first: int, percentile: float) -> tuple[list[Boundary], float]:
    """The boundaries of consecutive times (the first of them is number `first` of all), and the threshold."""
    radius = max(1, round(RADIUS * len(ordered)))
    convolution = _convolve(ordered, radius)
    peaks, threshold = _peaks(convolution, percentile, ROUNDING * float(ordered[-1]))
    positions = [(i + radius - 1, float(convolution[i]), prominence) for i, prominence in peaks]
    middles = (ordered[:-1] + ordered[1:]) / 2
    return [
        Boundary(first + at, float(middles[at]), height, prominence, math.nan) for at, height, prominence in positions
    ], threshold


def _peaks(convolution: Floats, percentile: float, rounding: float) -> tuple[list[tuple[int, float]], float]:
    """(index, prominence) of the prominent peaks, ascending, and the prominence that they exceed.

    Peaks up to `rounding` are ignored: evenly rising times have hundreds of them, and the percentile would be one.
    """
    peaks = _maxima(convolution)
    if not len(peaks):
        return [], math.nan
    prominences = np.array([_prominence(convolution, peak) for peak in peaks])
    threshold = float(np.percentile(prominences, percentile))
    prominent = [(int(i), float(p)) for i, p in zip(peaks, prominences, strict=True)]
    # With few peaks, or if several have the largest prominence, the percentile is the largest prominence and no peak
    # exceeds it: then the peaks with that prominence are used.
    least = min(threshold, float(prominences.max()) * (1 - EQUAL))
    return [peak for peak in prominent if peak[1] > max(least, rounding)], threshold


def _maxima(values: Floats) -> Ints:
    """The places of local maxima, ascending; of a flat one, its middle. As `scipy.signal.find_peaks`, which takes
    longer to import than the classes of a file."""
    steps = np.flatnonzero(np.diff(values))  # the last place of each run of equal values but the last run
    rises = values[steps + 1] > values[steps]
    tops = np.flatnonzero(rises[:-1] & ~rises[1:])
    out: Ints = (steps[tops] + 1 + steps[tops + 1]) // 2
    return out


def _prominence(values: Floats, peak: int) -> float:
    """How far a peak is above the higher of its two bases, the least values from it to the next higher one."""
    bases = []
    for side in (values[peak::-1], values[peak:]):
        higher = np.flatnonzero(side > values[peak])
        bases.append(side[: higher[0] if len(higher) else None].min())
    return float(values[peak] - max(bases))


def _above_noise(
    times: tuple[float, ...], peaks: list[Boundary], noise: float, repeats: Repeats | None
) -> tuple[tuple[Boundary, ...], tuple[Boundary, ...]]:
    """(drawn, dropped), both ascending, each with its step."""
    boundaries = sorted(peaks, key=lambda b: b.position)
    dropped: list[Boundary] = []
    while True:
        classes = _classes(times, boundaries)
        boundaries = [
            replace(b, step=above.median / below.median - 1)
            for b, (below, above) in zip(boundaries, pairwise(classes), strict=True)
        ]
        least = min(boundaries, key=lambda b: b.step, default=None)
        if least is not None and not least.step < noise:  # NaN: the noise is unknown
            least = None if repeats is None or math.isnan(noise) else _of_outliers(times, boundaries, classes, repeats)
        if least is None:
            return tuple(boundaries), tuple(sorted(dropped, key=lambda b: b.position))
        boundaries = [b for b in boundaries if b.position != least.position]
        dropped.append(least)


def _of_outliers(
    times: Sequence[float], boundaries: Sequence[Boundary], classes: Sequence[PerformanceClass], repeats: Repeats
) -> Boundary | None:
    """The boundary to drop for the smallest class that may be chance, None if there is none."""
    edges = [0, *(b.position + 1 for b in boundaries), len(times)]
    for c in sorted(classes, key=lambda c: c.count) if boundaries else ():
        chance = by_chance(times, edges[c.number], edges[c.number + 1], repeats)
        if chance:
            nearest = min(boundaries[max(c.number - 1, 0) : c.number + 1], key=lambda b: b.step)
            return replace(nearest, samples=c.count, chance=chance)
    return None


# ---- significance ----------------------------------------------------------------------------------


LEVEL = 0.05  # probability of two or more classes if there is one
ANY = 0.6  # share of the level for two or more classes at all: a reserve for noise that is not stationary (drift)
WHOLE = 0.8  # share of that for the test of all samples; the rest is for the boundaries
SHIFTS = 999  # maximal number
FEWEST_REPEATED = 8  # samples with repeats
FEWEST_SHIFTS = 30  # fewer samples are shuffled: their shifts cannot reach the level
APART = 2  # the halves of the measurements of a sample are at least 1 / APART of the repeated samples apart
ROWS = 250  # shifts at a time, to limit memory


@dataclass(frozen=True, slots=True)
class Evidence:
    """Data of the samples (ascending by time) beyond their sorted times.

    answers   shape (samples, features)
    order     the samples in the order of their first measurements, or in that of their texts
    in_time   whether it is the former
    earlier   median of the earlier half of the measurements of each sample, NaN if it was measured once
    later     of the other half
    repeated  the samples that have both, in the order of the later halves; empty: too few, or too close together
    """

    answers: Bools
    order: Ints
    in_time: bool
    earlier: Floats
    later: Floats
    repeated: Ints

    @staticmethod
    def of(samples: Sequence[Example], answers: Bools) -> Evidence:
        in_time = all(s.orders for s in samples)
        texts = [] if in_time else [(s.configuration.text, traversal_text(s.traversal, s.graph)) for s in samples]
        keys: list[Any] = [s.orders[0] for s in samples] if in_time else texts
        order = np.array(sorted(range(len(samples)), key=keys.__getitem__), dtype=np.int64)
        earlier, later = np.full(len(samples), math.nan), np.full(len(samples), math.nan)
        taken: dict[int, int] = {}  # sample -> place of the first measurement of its later half
        gaps = []
        for place, s in enumerate(samples):
            half = len(s.times) // 2 if len(s.orders) == len(s.times) else 0
            if half:
                earlier[place], later[place] = median(s.times[:half]), median(s.times[half:])
                taken[place] = s.orders[half]
                gaps.append(s.orders[half] - s.orders[half - 1])
        enough = len(taken) >= FEWEST_REPEATED and median(gaps) * APART >= len(taken)
        repeated = np.array(sorted(taken, key=taken.__getitem__) if enough else [], dtype=np.int64)
        return Evidence(answers, order, in_time, earlier, later, repeated)

    def whole(self, times: Floats) -> float:
        """The probability of so large a difference of the samples by chance."""
        return _best([_largest_share(test) for test in self._of_all(times)])

    def margin(self, times: Floats) -> float:
        """The difference of the samples over the largest one by chance, of the test in which that is larger; 0 without
        tests. Beyond 1 it says more than `whole`, which is at least the reciprocal of the number of shifts."""
        return max((min(_over_chance(way) for way in test) for test in self._of_all(times) if test), default=0.0)

    def _of_all(self, times: Floats) -> tuple[list[Floats], list[Floats]]:
        """The statistics of both tests of all samples."""
        return self._by_repeats(None, None), self._by_features(_ranks(times), None, False)

    def between(self, times: Floats, first: int, boundary: int, end: int, differ: bool = False) -> float:
        """As `whole`, for samples `first` to before `boundary` against those from there to before `end`.

        `differ`: whether a difference between any samples is established.
        """
        inside = np.zeros(len(times), dtype=bool)
        inside[first:end] = True
        limit = (times[boundary - 1] + times[boundary]) / 2
        upper = (np.arange(len(times)) >= boundary).astype(float)
        tests = self._by_repeats(inside, limit), self._by_features(upper, inside, differ)
        return _best([_largest_share(test) for test in tests])

    def _by_repeats(self, inside: Bools | None, limit: float | None) -> list[Floats]:
        """The statistics of the test by repeats: samples are labelled by their earlier halves (below `limit` or not).

        None if too few samples have halves, or all labels are equal.
        """
        chosen = self.repeated if inside is None else self.repeated[inside[self.repeated]]
        if len(chosen) < FEWEST_REPEATED:
            return []
        label = _ranks(self.earlier[chosen]) if limit is None else (self.earlier[chosen] > limit).astype(float)
        values = _ranks(self.later[chosen])
        label, values = label - label.mean(), values - values.mean()
        if not label.any() or not values.any():
            return []
        return [_shifted(values, True) @ label]

    def _by_features(self, values: Floats, inside: Bools | None, differ: bool) -> list[Floats]:
        """The statistics of the test by features, with one of `values` for each sample, of each way to shift them; none
        without features."""
        chosen = self.order if inside is None else self.order[inside[self.order]]
        answers = self.answers[chosen].astype(float)
        spread = answers.std(axis=0)
        answers = (answers[:, spread > 0] - answers[:, spread > 0].mean(axis=0)) / spread[spread > 0]
        values = values[chosen] - values[chosen].mean()
        if not answers.shape[1] or not values.any():
            return []
        ways = (True,) if self.in_time else (False,) if differ else (True, False)
        return [_largest(_shifted(values, way), answers) for way in ways]


def tested(classes: Classes, evidence: Evidence, level: float) -> Classes:
    """Drop boundaries that chance explains: the probability of any boundary between equal samples is `level`."""
    if not classes.boundaries:
        return classes
    times, drawn = np.array(classes.times), _judged(classes.boundaries, classes, evidence, False)
    least = min(b.p for b in drawn) * len(drawn)
    p = min(1.0, evidence.whole(times) / WHOLE, least / (1 - WHOLE))
    if p > ANY * level:
        return replace(dropped_from(classes, [replace(b, p=p) for b in drawn]), p=p)
    drawn = _judged(drawn, classes, evidence, True)
    while drawn:
        worst = max(drawn, key=lambda b: b.p)
        if worst.p <= level or len(drawn) == 1:
            p = max(p, worst.p)
        if worst.p <= level:
            break
        classes = dropped_from(classes, [worst])
        drawn.remove(worst)
        drawn = _judged(drawn, classes, evidence, True)
    return replace(classes, boundaries=tuple(drawn), p=p)


def _judged(boundaries: Sequence[Boundary], classes: Classes, evidence: Evidence, differ: bool) -> list[Boundary]:
    times, edges = np.array(classes.times), [0, *(b.position + 1 for b in boundaries), len(classes.times)]
    out = []
    for i, b in enumerate(boundaries):
        first, boundary, end = edges[i : i + 3]
        out.append(replace(b, p=evidence.between(times, first, boundary, end, differ)))
    return out


def _best(tests: Sequence[float]) -> float:
    """The smallest probability of the tests that could be made, times their number; 1 without tests."""
    valid = [p for p in tests if not math.isnan(p)]
    return min([1.0, *(len(valid) * p for p in valid)])


def _shifted(values: Floats, in_time: bool) -> Floats:
    """Row 0: the values; further rows: rotated, also in reverse, at most SHIFTS; without `in_time`, shuffled."""
    n, random = len(values), np.random.default_rng(0)
    if not in_time or n < FEWEST_SHIFTS:
        return np.stack([values, *(random.permutation(values) for _ in range(SHIFTS))])
    by = np.concatenate([[0], 1 + random.permutation(2 * n - 1)[:SHIFTS]])
    places = np.where(by[:, None] < n, np.arange(n) + by[:, None], by[:, None] - np.arange(n)) % n
    out: Floats = values[places]
    return out


def _largest(drawn: Floats, answers: Floats) -> Floats:
    """For each row of values, its largest absolute product with a column of the answers."""
    parts = [abs(drawn[k : k + ROWS] @ answers).max(axis=1) for k in range(0, len(drawn), ROWS)]
    return np.concatenate(parts)


def _ranks(values: Floats) -> Floats:
    """From 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    out: Floats = (last - (counts - 1) / 2)[place]
    return out


def _largest_share(test: Sequence[Floats]) -> float:
    """The share of statistics that are at least as large as the first, of the way in which that is largest; NaN without
    statistics."""
    return max((float((s >= s[0] - abs(s[0]) * EQUAL).mean()) for s in test), default=math.nan)


def _over_chance(statistics: Floats) -> float:
    """The first over the largest of the others, 0 if it is not above 0."""
    largest = float(statistics[1:].max())
    return float(statistics[0]) / largest if largest > 0 else math.inf if statistics[0] > 0 else 0.0
