"""What is measured while compilers run: a first answer, long before all configurations are built.

Compilers disturb these measurements, so they judge nothing once there are others: they show where the search stands,
say with which implementations it begins, and are the answer of a file whose run ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from statistics import median

from dagc.base.errors import counted
from dagc.base.sample import BESIDE, Objective, Sample
from dagc.base.signals import deferred
from dagc.base.statistics import interval
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Store
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders
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
        objective: Objective,
        seed: int,
        predictions: Predictions,
        draws: int | None = None,
        say: Callable[[str], None] = lambda text: None,
        compared: Candidate | None = None,
    ) -> None:
        """`say` tells the user. `compared`: an order of his own, which is measured before others of its space."""
        self._machine, self._objective, self._say = machine, objective, say
        self._random, self._domain, self._turn, self._draws = Random(seed), machine.domain, 0, draws
        self._times: dict[Candidate, list[float]] = {}
        self._tried: set[Candidate] = set()
        self._usable: dict[int, Orders] = {}  # the spaces that may be drawn from, each as a domain
        self._store: Store[Candidate] | None = None
        self._unkept: list[tuple[Candidate, Sample]] = []  # while there is no store
        self.checked: dict[int, Sample] = {}  # of each space that was built, the first
        self.predictions, self.compared = predictions, compared

    def turn_to(self, domain: Orders, numbers: Mapping[int, int]) -> None:
        """Measure candidates of another domain. `numbers`: of its spaces, by those of the old one, all of which it
        has."""

        def moved(candidate: Candidate) -> Candidate:
            return replace(candidate, space=numbers[candidate.space])

        self._domain = domain
        self._times = {moved(one): times for one, times in self._times.items()}
        self._tried = set(map(moved, self._tried))
        self._usable = {numbers[index]: Orders([domain.spaces[numbers[index]]]) for index in self._usable}
        self.checked = {numbers[index]: sample for index, sample in self.checked.items()}
        self._store, self._unkept = None, [(moved(one), sample) for one, sample in self._unkept]

    def keep_in(self, store: Store[Candidate]) -> None:
        """Keep what is measured, and what was, in a store, until the domain is another one."""
        self._store, unkept = store, self._unkept
        self._unkept = []
        for one, sample in unkept:
            self._keep(one, sample)

    @property
    def kept(self) -> bool:
        return self._store is not None

    def first(self, index: int) -> Sample:
        """Open the library of a space, check and time the order that is compared, if it has it; else its first
        traversal, with the settings that are predicted to be the fastest; if this fails, with the program's own."""
        compared = self.compared if self.compared is not None and self.compared.space == index else None
        if compared is None:
            self.predictions.known.wait(0 if self._times else PREDICTING_SECONDS)
        sample = Sample(failure="not predicted")
        for one in (compared, self._favourite_of(index), self._domain.first(index)):
            if one is not None and sample.failure:
                sample = self._measure(one)
        if not sample.failure:
            self._usable[index] = Orders([self._domain.spaces[index]])
        return sample

    def tell(self, index: int, sample: Sample, rest: int) -> None:
        """Note the first sample of a space, and say it if it is the first of all. `rest`: spaces that follow."""
        if index in self.checked:
            return
        self.checked[index] = sample
        values = [one for one in self.checked.values() if not one.failure]
        if sample.failure and len(self.checked) == 1 and rest:
            others = counted(rest, "other configuration follows", "other configurations follow")
            text = self._domain.spaces[index].configuration.text
            self._say(f"{text}: {sample.failure}\n  {others}; Ctrl-C ends it")
        if not sample.failure and len(values) == 1:
            self._say(f"first measurement: {self._objective.show(sample.value)}, {self.configuration}")

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
            self._keep(candidate, sample)
        return sample

    def _keep(self, candidate: Candidate, sample: Sample) -> None:
        if self._store is None:
            self._unkept.append((candidate, sample))
            return
        with deferred():  # what was measured is kept
            self._store.add(self._store.begin(candidate), replace(sample, purpose=BESIDE))
