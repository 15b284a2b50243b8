"""How likely classes are by chance: do implementations differ at all, and do those on the two sides of a boundary?

Sorted noise has steps too, above all where it is skewed or comes in bursts. So classes are tested by what noise cannot
know, in two ways:

repeats    whoever is slow in the earlier half of its measurements is slow in the later half. Asked of the samples that
           were measured twice or more, where other measurements lie between the halves.
features   who is slow depends on some feature (an order, a stream, a choice): the largest absolute correlation of any.

Both are compared with what they are where the times are dealt to other samples. As bursts hit measurements that follow
one another, times are not shuffled but shifted in the order in which they were taken, the last coming first, and that
in reverse too: a burst stays a burst. Fewer than 30 times are shuffled. Where the order is not known, they are both
shuffled and shifted in the order of the traversals' texts (about that of the enumeration), and the larger probability
counts, until it is known that they differ at all. Under the null hypothesis each shift is as likely as none, whatever
the distribution of the noise.

Of the tests that can be made a class needs one; the probability is that of the best, times their number.

First all samples are tested at once, and each boundary with the samples of the two classes that it separates (a few
samples may be faster than thousands that are alike), together at 60 % of the level: 80 % of this for the former, 20 %
divided by their number for the latter. If nothing passes, there is one class. Otherwise each boundary has to pass at
the level; the least certain is dropped, until all that are left do.
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

LEVEL = 0.05  # probability of two or more classes where there is one
ANY = 0.6  # of the level, for two or more classes at all: a reserve for what is not quite stationary, such as drift
WHOLE = 0.8  # of that, for the test of all samples; the rest for those of the boundaries
SHIFTS = 999  # at most
FEWEST_REPEATED = 8  # samples with repeats
FEWEST_SHIFTS = 30  # with fewer samples the shifts cannot reach the level: these are shuffled
APART = 2  # the halves of a sample's measurements lie this share of the repeated samples (1 / APART) apart, or more
ROWS = 250  # shifts at a time, for memory


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the samples (ascending by time) say beyond their sorted times.

    answers   samples x features
    order     the samples in the order in which they were first measured, or that of their texts
    in_time   it is the former
    earlier   median of the earlier half of each sample's measurements, NaN where it was measured once
    later     of the other half
    repeated  the samples that have both, in the order in which the later half was taken; empty: too few, or too near
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
        """The probability that chance alone makes the samples differ so much."""
        return _best([self._by_repeats(None, None), self._by_features(_ranks(times), None, False)])

    def between(self, times: Floats, first: int, boundary: int, end: int, differ: bool = False) -> float:
        """The same of the samples from `first` to before `boundary` against those from there to before `end`.

        `differ`: it is known that not all samples are alike.
        """
        import numpy as np

        inside = np.zeros(len(times), dtype=bool)
        inside[first:end] = True
        limit = (times[boundary - 1] + times[boundary]) / 2
        upper = (np.arange(len(times)) >= boundary).astype(float)
        return _best([self._by_repeats(inside, limit), self._by_features(upper, inside, differ)])

    def _by_repeats(self, inside: Bools | None, limit: float | None) -> float:
        """By the later halves; samples are labelled by the earlier ones, with `limit` as faster and slower.

        NaN where too few samples have halves, or they are all alike.
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
        """By the features of the samples, with `values` for each of them; NaN where there are none."""
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
    """Without the boundaries that chance explains, so that the probability of any where all are alike is `level`."""
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
    """The least probability of the tests that could be made, times their number; 1 where there is none."""
    made = [p for p in tests if not math.isnan(p)]
    return min([1.0, *(len(made) * p for p in made)])


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    out: Floats = rankdata(values)
    return out


def _shifted(values: Floats, in_time: bool) -> Floats:
    """Row 0: the values; then shifted, also reversed, in at most SHIFTS ways; or, not `in_time`, shuffled."""
    import numpy as np

    n, random = len(values), np.random.default_rng(0)
    if not in_time or n < FEWEST_SHIFTS:
        return np.stack([values, *(random.permutation(values) for _ in range(SHIFTS))])
    by = np.concatenate([[0], 1 + random.permutation(2 * n - 1)[:SHIFTS]])
    places = np.where(by[:, None] < n, np.arange(n) + by[:, None], by[:, None] - np.arange(n)) % n
    out: Floats = values[places]
    return out


def _largest(drawn: Floats, answers: Floats) -> Floats:
    """Of each row of values: its largest absolute product with a column of the answers."""
    import numpy as np

    parts = [abs(drawn[k : k + ROWS] @ answers).max(axis=1) for k in range(0, len(drawn), ROWS)]
    out: Floats = np.concatenate(parts)
    return out


def _share(found: Floats) -> float:
    """Of all that were found: how many are as large as the first."""
    return float((found >= found[0] - abs(found[0]) * EQUAL).mean())
