"""Significance of classes: do implementations differ at all, and do those on the two sides of a boundary?

Sorted noise has steps too, above all if it is skewed or comes in bursts. Classes are therefore tested by relations that
noise cannot have, in two ways:

repeats    samples that are slow in the earlier half of their measurements are slow in the later half. Tested on samples
           measured at least twice, with other measurements between the halves.
features   slowness depends on some feature (an order, a stream, a choice): the largest absolute correlation of any.

Both statistics are compared with their values after a permutation of the times. Bursts affect consecutive measurements,
so times are not shuffled but rotated in the order in which they were taken, also in reverse: a burst stays a burst.
Fewer than 30 times are shuffled. If the order is not known, they are both shuffled and rotated in the order of the
texts of the traversals (about that of the enumeration), and the larger probability counts, until a difference is
established. Under the null hypothesis each rotation is as likely as the original, whatever the distribution of the
noise.

A class needs to pass one of the tests that can be made; the probability is the smallest one times their number.

First, all samples are tested at once, and each boundary with the samples of the two classes that it separates (a few
samples may be faster than thousands of equal ones), together at 60 % of the level: 80 % of this for the former, 20 %
divided by their number for the latter. If nothing passes, there is one class. Otherwise each boundary must pass at the
level; the least significant is dropped until all others pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from dagc.ir.traversal import traversal_text
from dagc.learn.rules.labels import EQUAL, dropped_from
from dagc.learn.rules.types import Boundary, Classes, Sample

if TYPE_CHECKING:
    from dagc.learn.rules.types import Bools, Floats, Ints

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
    def of(samples: Sequence[Sample], answers: Bools) -> Evidence:
        import numpy as np

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
        return _best([self._by_repeats(None, None), self._by_features(_ranks(times), None, False)])

    def between(self, times: Floats, first: int, boundary: int, end: int, differ: bool = False) -> float:
        """As `whole`, for samples `first` to before `boundary` against those from there to before `end`.

        `differ`: whether a difference between any samples is established.
        """
        import numpy as np

        inside = np.zeros(len(times), dtype=bool)
        inside[first:end] = True
        limit = (times[boundary - 1] + times[boundary]) / 2
        upper = (np.arange(len(times)) >= boundary).astype(float)
        return _best([self._by_repeats(inside, limit), self._by_features(upper, inside, differ)])

    def _by_repeats(self, inside: Bools | None, limit: float | None) -> float:
        """The test by repeats: samples are labelled by their earlier halves (below `limit` or not).

        NaN if too few samples have halves, or all labels are equal.
        """
        chosen = self.repeated if inside is None else self.repeated[inside[self.repeated]]
        if len(chosen) < FEWEST_REPEATED:
            return math.nan
        label = _ranks(self.earlier[chosen]) if limit is None else (self.earlier[chosen] > limit).astype(float)
        values = _ranks(self.later[chosen])
        label, values = label - label.mean(), values - values.mean()
        if not label.any() or not values.any():
            return math.nan
        return _share(_shifted(values, True) @ label)

    def _by_features(self, values: Floats, inside: Bools | None, differ: bool) -> float:
        """The test by features, with one of `values` for each sample; NaN without features."""
        chosen = self.order if inside is None else self.order[inside[self.order]]
        answers = self.answers[chosen].astype(float)
        spread = answers.std(axis=0)
        answers = (answers[:, spread > 0] - answers[:, spread > 0].mean(axis=0)) / spread[spread > 0]
        values = values[chosen] - values[chosen].mean()
        if not answers.shape[1] or not values.any():
            return math.nan
        ways = (True,) if self.in_time else (False,) if differ else (True, False)
        return max(_share(_largest(_shifted(values, way), answers)) for way in ways)


def tested(classes: Classes, evidence: Evidence, level: float) -> Classes:
    """Drop boundaries that chance explains: the probability of any boundary between equal samples is `level`."""
    import numpy as np

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
    import numpy as np

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


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    out: Floats = rankdata(values)
    return out


def _shifted(values: Floats, in_time: bool) -> Floats:
    """Row 0: the values; further rows: rotated, also in reverse, at most SHIFTS; without `in_time`, shuffled."""
    import numpy as np

    n, random = len(values), np.random.default_rng(0)
    if not in_time or n < FEWEST_SHIFTS:
        return np.stack([values, *(random.permutation(values) for _ in range(SHIFTS))])
    by = np.concatenate([[0], 1 + random.permutation(2 * n - 1)[:SHIFTS]])
    places = np.where(by[:, None] < n, np.arange(n) + by[:, None], by[:, None] - np.arange(n)) % n
    out: Floats = values[places]
    return out


def _largest(drawn: Floats, answers: Floats) -> Floats:
    """For each row of values, its largest absolute product with a column of the answers."""
    import numpy as np

    parts = [abs(drawn[k : k + ROWS] @ answers).max(axis=1) for k in range(0, len(drawn), ROWS)]
    out: Floats = np.concatenate(parts)
    return out


def _share(statistics: Floats) -> float:
    """The share of values that are at least as large as the first."""
    return float((statistics >= statistics[0] - abs(statistics[0]) * EQUAL).mean())
