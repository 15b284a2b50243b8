"""What is measured while compilers run: a first answer, long before all configurations are built.

Compilers disturb these measurements, so they judge nothing once there are others: they show where the search stands,
say with which implementations it begins, and are the answer of a file whose run ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import median

from dagc.base.objective import Objective
from dagc.base.sample import BESIDE, Sample
from dagc.base.signals import deferred
from dagc.base.statistics import interval
from dagc.choice.types import Site
from dagc.ir.choice import Choice
from dagc.lab.candidate import Candidate
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders, OrderStore
from dagc.report.display import spread

SHARE = 0.2  # of the time, at most: measuring also delays the compilers
OFTEN = 6  # measurements of the best, which give it a 95 % interval


class Beside:
    """Measures the configurations that are built: the first traversal of each, the same with the launch settings that
    a model predicts to be the fastest, uniform draws, and the best again."""

    def __init__(self, machine: LiveMachine, store: OrderStore, objective: Objective, seed: int) -> None:
        self._machine, self._store, self._objective = machine, store, objective
        self._random, self._domain, self._turn = Random(seed), machine.domain, 0
        self._times: dict[Candidate, list[float]] = {}
        self._usable: dict[int, Orders] = {}  # the spaces that may be drawn from, each as a domain
        self._expected: Mapping[Choice, Sequence[Site]] = {}

    def expect(self, sites: Mapping[Choice, Sequence[Site]]) -> None:
        """The sites of configurations with predicted times; any thread may call it, again when more is known."""
        self._expected = sites

    def first(self, index: int) -> Sample:
        """Open the library of a space, check and time its first traversal."""
        sample = self._measure(self._domain.first(index))
        if not sample.failure:
            self._usable[index] = Orders([self._domain.spaces[index]])
        return sample

    def step(self) -> bool:
        """Measure once; False if nothing can be measured yet."""
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
        index = best.space if best.space in self._usable and self._turn % 4 else self._random.choice([*self._usable])
        drawn = replace(self._usable[index].sample(self._random), space=index)
        if self._measure(drawn).failure:
            del self._usable[index]  # the search judges it, undisturbed
        return True

    def _favourite(self) -> Candidate | None:
        """The first traversal of a space with the settings that are predicted to be the fastest, if not measured."""
        for index in self._usable:
            sites = self._expected.get(self._domain.spaces[index].configuration, ())
            choices = tuple(s.choices[s.prior.index(min(s.prior)) if s.prior else 0] for s in sites)
            favourite = replace(self._domain.first(index), choices=choices)
            if sites and favourite not in self._times:
                return favourite
        return None

    @property
    def line(self) -> str:
        """The best so far with its interval; "" without one."""
        best = self._best()
        if best is None:
            return ""
        times, shown = self._times[best], self._objective
        sure = spread(*interval(times), len(times), shown)
        return f"best so far {shown.show(median(times))} ({sure}), {self._domain.configuration(best).text}"

    def _best(self) -> Candidate | None:
        return min(self._times, key=lambda c: median(self._times[c]), default=None)

    def _measure(self, candidate: Candidate) -> Sample:
        sample = self._machine.probe(candidate)
        if not sample.failure:
            self._times.setdefault(candidate, []).append(sample.value)
            with deferred():  # what was measured is kept
                self._store.add(self._store.begin(candidate), replace(sample, purpose=BESIDE))
        return sample
