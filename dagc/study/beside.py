"""What is measured while compilers run: a first answer, long before all configurations are built.

Compilers disturb these measurements, so they judge nothing once there are others: they show where the search stands,
say with which implementations it begins, and are the answer of a file whose run ended meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import median

from dagc.base.objective import Objective
from dagc.base.sample import BESIDE, Sample
from dagc.base.signals import deferred
from dagc.base.statistics import interval
from dagc.lab.candidate import Candidate
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders, OrderStore
from dagc.report.display import spread
from dagc.study.launch import Predictions

SHARE = 0.2  # of the time, at most: measuring also delays the compilers
OFTEN = 6  # measurements of the best, which give it a 95 % interval
PREDICTING_SECONDS = 4.0  # that the first measurement waits for predictions: an unlucky block costs a factor


class Beside:
    """Measures the configurations that are built: the first traversal of each, with the launch settings that a model
    predicts to be the fastest, uniform draws, at most `draws` of them (None: no limit), and the best again."""

    def __init__(
        self,
        machine: LiveMachine,
        store: OrderStore,
        objective: Objective,
        seed: int,
        predictions: Predictions,
        draws: int | None = None,
    ) -> None:
        self._machine, self._store, self._objective = machine, store, objective
        self._random, self._domain, self._turn, self._draws = Random(seed), machine.domain, 0, draws
        self._times: dict[Candidate, list[float]] = {}
        self._tried: set[Candidate] = set()
        self._usable: dict[int, Orders] = {}  # the spaces that may be drawn from, each as a domain
        self.predictions = predictions

    def first(self, index: int) -> Sample:
        """Open the library of a space, check and time its first traversal, with the settings that are predicted to be
        the fastest; if these fail, or nothing is predicted, with the program's own."""
        self.predictions.known.wait(0 if self._times else PREDICTING_SECONDS)
        favourite = self._favourite_of(index)
        sample = Sample(failure="not predicted") if favourite is None else self._measure(favourite)
        if sample.failure:
            sample = self._measure(self._domain.first(index))
        if not sample.failure:
            self._usable[index] = Orders([self._domain.spaces[index]])
        return sample

    def step(self) -> bool:
        """Measure once; False if there is nothing to measure at present."""
        best = self._best()
        if best is None or not self._usable:
            return False
        favourite = self._favourite()
        if favourite is not None:
            if self._measure(favourite).failure:
                del self._usable[favourite.space]
            return True
        self._turn += 1
        if self._turn % 2 and len(self._times[best]) < OFTEN:
            self._measure(best)
            return True
        if self._draws is not None:
            if self._draws == 0:
                return False
            self._draws -= 1
        index = best.space if best.space in self._usable and self._turn % 4 else self._random.choice([*self._usable])
        drawn = replace(self._usable[index].sample(self._random), space=index)
        if self._measure(drawn).failure:
            del self._usable[index]  # the search judges it, undisturbed
        return True

    def _favourite(self) -> Candidate | None:
        """That of a usable space which has not been measured."""
        favourites = map(self._favourite_of, self._usable)
        return next((one for one in favourites if one is not None and one not in self._tried), None)

    def _favourite_of(self, index: int) -> Candidate | None:
        """The first traversal of a space with the settings that are predicted to be the fastest."""
        sites = self.predictions.sites.get(self._domain.spaces[index].configuration, ())
        choices = tuple(s.choices[s.prior.index(min(s.prior)) if s.prior else 0] for s in sites)
        return replace(self._domain.first(index), choices=choices) if sites else None

    @property
    def line(self) -> str:
        """The best so far with its interval, and why the search may end with a slower one; "" without one."""
        best = self._best()
        if best is None:
            return ""
        times, shown, count = self._times[best], self._objective, len(self._times)
        sure = spread(*interval(times), len(times), shown)
        low = f", and perhaps too low as the lowest of {count}" if count > 1 else ""
        return f"best so far {shown.show(median(times))} ({sure}; disturbed by compilers{low}), {self.configuration}"

    @property
    def configuration(self) -> str:
        """That of the best so far; "" without one."""
        best = self._best()
        return "" if best is None else self._domain.configuration(best).text

    def _best(self) -> Candidate | None:
        return min(self._times, key=lambda c: median(self._times[c]), default=None)

    def _measure(self, candidate: Candidate) -> Sample:
        self._tried.add(candidate)
        sample = self._machine.probe(candidate)
        if not sample.failure:
            self._times.setdefault(candidate, []).append(sample.value)
            with deferred():  # what was measured is kept
                self._store.add(self._store.begin(candidate), replace(sample, purpose=BESIDE))
        return sample
