"""What answers are expected to take at an input, by the inputs measured before: `--cut` leaves out those that are
expected to be far slower than the fastest.

The expected time of an answer is a sum of amounts of work (the features of the site) over rates, as in
`dagc.choice.trends`. It continues beyond the measured inputs, so that small ones tell which answers lose at large ones.
An answer is left out only if the difference exceeds the errors of both expectations at the inputs measured so far.
These errors say little of an input that takes longer than all of them: there it has to take more than SHORT too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dagc.base.python import np
from dagc.choice.trends import SumTrend, logs_of, sums_beyond
from dagc.study.train import TrainingTable

LEAST = 12  # inputs at which an answer was timed before anything is expected of it
SURE = 0.9  # of the inputs have errors within the margin of an answer
SHORT = 0.2  # seconds; five kernels on an H200: up to 6 % more time, the fastest answer and those near it left out less


@dataclass(frozen=True, slots=True)
class Expected:
    """`names`: of the features; `answers`: numbers of the columns of `trend`; `margins`: errors of the logarithms to
    base 2; `longest`: the seconds of the fastest answer where they are most."""

    names: tuple[str, ...]
    answers: tuple[int, ...]
    trend: SumTrend
    margins: tuple[float, ...]
    longest: float

    @classmethod
    def of(cls, table: TrainingTable) -> Expected | None:
        """By the seconds of a table; None as long as it has too few rows."""
        rows = [row for row in table.rows if row.usable]
        counts = {a: sum(a in row.finite for row in rows) for a in {a for row in rows for a in row.finite}}
        answers = tuple(sorted(a for a, count in counts.items() if count >= LEAST))
        if len(answers) < 2:
            return None
        features = np.array([row.features for row in rows])
        logs = np.log2([[row.finite.get(a, math.nan) for a in answers] for row in rows])
        trend = sums_beyond(features, logs, ~np.isnan(logs))
        errors = np.abs(logs_of(trend, features, features) - logs)
        margins = tuple(map(float, np.nanquantile(errors, SURE, axis=0)))
        return cls(table.names, answers, trend, margins, max(min(row.finite.values()) for row in rows))

    def seconds(self, features: Mapping[str, float]) -> dict[int, float]:
        """Of each answer of which anything is expected; empty where a feature is not finite."""
        if not all(name in features for name in self.names):
            return {}
        row = np.array([[features[name] for name in self.names]])
        return dict(zip(self.answers, map(float, 2.0 ** logs_of(self.trend, row, row)[0]), strict=True))

    def slow(self, seconds: Mapping[int, float], factor: float, least: float) -> frozenset[int]:
        """The answers that take more than `factor` times the fastest, and `least` seconds, whatever the errors."""
        margin = dict(zip(self.answers, self.margins, strict=True))
        least = max(least, SHORT) if min(seconds.values()) > self.longest else least
        bound = min(value * 2 ** margin[a] for a, value in seconds.items())
        return frozenset(a for a, t in seconds.items() if t > least and t * 2 ** -margin[a] > factor * bound)
