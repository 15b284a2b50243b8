"""Whether the model of a strategy agrees with the measurements. A search gives up a model that does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Generic, TypeVar

from dagc.base.errors import counted
from dagc.base.sample import CONFIRM, Sample
from dagc.base.statistics import APART
from dagc.lab.strategy import Choosing, Predictor

C = TypeVar("C", bound=Hashable)  # a candidate

FEWEST = 20  # measured candidates before a model is judged
CLEARLY = 0.05  # a smaller difference does not matter
IN_A_ROW = 3  # checks in a row at which the model's choice is slower than what was measured
MISSES = 12  # candidates in a row that are slower than predicted
CERTAIN = 0.25  # standard deviation of a prediction that a place is judged by, as a share of it
FAR = 4.0  # a miss, in standard deviations of the prediction
ASKED_AGAIN = 3  # of these candidates are measured again before the model is given up


@dataclass(slots=True)
class CandidateSamples(Generic[C]):
    """The samples of one candidate.

    `values` have drift divided out; `confirming` are those taken after the candidates to confirm were chosen.
    `repeated`: whether there is more than one, or one that is the median of several times.
    """

    candidate: C
    values: list[float] = field(default_factory=list)
    failure: str = ""
    confirming: list[float] = field(default_factory=list)
    repeated: bool = False

    def add(self, sample: Sample) -> None:
        """Add a sample whose value has drift divided out, or its failure."""
        if sample.failure:
            self.failure = sample.failure
            return
        self.repeated |= bool(self.values) or len(sample.times) > 1
        self.values.append(sample.value)
        if sample.purpose == CONFIRM:
            self.confirming.append(sample.value)

    @property
    def sample(self) -> Sample:
        """All as one, for a strategy: the median of the values."""
        return Sample(median(self.values) if self.values else math.nan, failure=self.failure)

    @property
    def median(self) -> float:
        return median(self.values) if self.values else math.inf


class Trust(Generic[C]):
    """Compares the predictions of a strategy and its choice with repeated measurements.

    `reason`: why the model is given up; "" while it is not. Strategies without a model are never given up.
    """

    def __init__(
        self,
        strategy: Any,
        samples: Mapping[C, CandidateSamples[C]],
        among: Callable[[C], Hashable],
        show: Callable[[float], str],
    ) -> None:
        """`among`: the group of a candidate, which is compared with those of its group only."""
        self.strategy, self.samples, self.among, self.show = strategy, samples, among, show
        self.reason = ""
        self._predicted: dict[C, tuple[float, float]] = {}
        self._missed: list[C] = []  # in a row, the last ones
        self._contradicted = 0  # checks in a row

    def predict(self, candidate: C) -> None:
        """Called before a candidate is measured."""
        if isinstance(self.strategy, Predictor) and candidate not in self.samples:
            expected = self.strategy.expected(candidate)
            if expected is not None and all(map(math.isfinite, expected)):
                self._predicted[candidate] = expected

    def expected(self, candidate: C) -> float:
        """What was predicted of a candidate before it was measured; NaN if nothing was, or nothing certain."""
        mean, deviation = self._predicted.get(candidate, (math.nan, math.nan))
        return mean if deviation <= CERTAIN * mean else math.nan

    def observe(self, candidate: C) -> None:
        """Called after a candidate was measured."""
        one = self.samples[candidate]
        if candidate not in self._predicted or len(one.values) != 1 or len(self.samples) < FEWEST:
            return
        if self._is_slower(one):
            self._missed.append(candidate)
        else:
            self._missed.clear()

    def check(self, bests: Mapping[Hashable, CandidateSamples[C]], noise: float) -> C | None:
        """A candidate that must be measured again to judge the model; None if there is none. `bests`: that of each
        group, by measurements. Sets `reason`."""
        if not bests or len(self.samples) < FEWEST:
            return None
        return self._check_choice(bests, noise) or self._check_predictions()

    def _check_choice(self, bests: Mapping[Hashable, CandidateSamples[C]], noise: float) -> C | None:
        chosen = self.strategy.best() if isinstance(self.strategy, Choosing) else None
        choice = self.samples.get(chosen) if chosen is not None else None
        if choice is None or choice.failure or not choice.values:
            self._contradicted = 0
            return None
        best, margin = bests[self.among(choice.candidate)], max(CLEARLY, APART * noise)
        if min(choice.values) <= best.median * (1 + margin):
            self._contradicted = 0
            return None
        for one in (choice, best):
            if not one.repeated:
                return one.candidate
        self._contradicted += 1
        if self._contradicted >= IN_A_ROW:
            times = f"{self.show(choice.median)} in {counted(len(choice.values), 'measurement')}"
            self.reason = f"its choice takes {times}, another implementation {self.show(best.median)}"
        return None

    def _check_predictions(self) -> C | None:
        if len(self._missed) < MISSES:
            return None
        asked = [self.samples[candidate] for candidate in self._missed[-ASKED_AGAIN:]]
        once = next((one for one in asked if not one.repeated), None)
        if once is not None:
            return once.candidate
        if not all(map(self._is_slower, asked)):
            self._missed.clear()
            return None
        last, expected = asked[-1], self._predicted[self._missed[-1]][0]
        self.reason = (
            f"the last {len(self._missed)} implementations were slower than predicted: {self.show(last.median)}"
            f" instead of {self.show(expected)}"
        )
        return None

    def _is_slower(self, one: CandidateSamples[C]) -> bool:
        """Whether it takes longer than predicted, even by its fastest measurement."""
        expected, deviation = self._predicted[one.candidate]
        slowest = expected + max(FAR * deviation, CLEARLY * abs(expected))
        return bool(one.values) and not one.failure and min(one.values) > slowest
