"""The launch settings of one op at one size, as a domain: one decision for each tunable."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from random import Random
from statistics import median
from typing import Any, TypeAlias

from dagc.base.python import Array, Numbers, np
from dagc.base.sample import Sample
from dagc.choice.types import Site
from dagc.ir.choice import VARIANT, Choice
from dagc.ir.program import Value
from dagc.lab.engine import UNKEPT, SearchOptions, explore
from dagc.lab.strategies.model import Strategy

Decided: TypeAlias = tuple[tuple[str, Value], ...]  # the first decisions of a choice

MISSED = 0.4  # standard deviation of the error of a performance model, in natural logarithms
UNKNOWN = 0.8  # the same without a model
SCALE = 5.0  # standard deviation of the common scale of all times, which no model predicts
NOISE = 0.02  # relative standard deviation of a measured time
WORTH = 0.0003  # expected improvement, relative to the time of all ops, for which one more launch is timed
IN_PLACE = 0.03  # the same, for the difference between an op's time in its program and alone
FEWEST = 4  # measurements that show whether the model's error is larger
FARTHEST = 100.0  # of the median of its predictions, that a model is believed
LARGE, FIRST, SHARE = 64, 8, 0.02  # settings from which so many are timed, half at random, if the op has this share
WORSE = 3.0  # by what it is larger at most
LENGTH = 0.3  # correlation length of the error, as a share of the steps of the tunables


class LaunchSettings:
    """Legal settings as a decision process, tunable by tunable. A candidate is one setting."""

    def __init__(self, choices: Sequence[Choice], prior: Sequence[float] = ()) -> None:
        """`choices` have the same tunables in the same order (those of a variant), each setting once. `prior`: times
        predicted by a model, in any unit; empty without a model."""
        self.choices, self.prior = tuple(choices), tuple(prior)
        self._near: dict[Choice, list[Choice]] = {}  # of each setting, those that differ in as few tunables as possible

    def size(self) -> int:
        return len(self.choices)

    def at(self, number: int) -> Choice:
        return self.choices[number]

    def walk(self, random: Random) -> Choice:
        return random.choice(self.choices)

    def sample(self, random: Random) -> Choice:
        return random.choice(self.choices)

    def likely(self, random: Random) -> Choice:
        return self.sample(random)

    def near(self, candidate: Choice, random: Random) -> Choice:
        """A setting that differs in as few tunables as possible."""
        if candidate not in self._near:
            own = {*candidate.decisions}
            differs = {s: len(own.symmetric_difference(s.decisions)) for s in self.choices if s != candidate}
            least = min(differs.values(), default=0)
            self._near[candidate] = [s for s, d in differs.items() if d == least] or [candidate]
        return random.choice(self._near[candidate])

    def __iter__(self) -> Iterator[Choice]:
        return iter(self.choices)

    # ---- the decision process -----------------------------------------------------------

    def start(self) -> Decided:
        return ()

    def offers(self, node: Decided) -> dict[Any, None]:
        depth, every = len(node), [s.decisions for s in self.choices]
        return {s[depth]: None for s in every if s[:depth] == node and len(s) > depth}

    def weights(self, node: Decided, offers: Mapping[Any, None]) -> Sequence[int]:
        depth = len(node) + 1
        return [sum(s.decisions[:depth] == (*node, decision) for s in self.choices) for decision in offers]

    def step(self, node: Decided, decision: Any, askers: None) -> Decided:
        return (*node, decision)

    def path(self, candidate: Choice) -> Decided:
        return candidate.decisions

    def candidate(self, path: Sequence[Any]) -> Choice:
        return Choice(tuple(path))

    # ---- the model ----------------------------------------------------------------------

    has_surrogate = True
    hints: tuple[Choice, ...] = ()
    uniform_first = False  # few are timed, and a performance model has chosen the first

    @property
    def sampled(self) -> int:
        return len(self.choices)

    def surrogate(self) -> SettingsModel:
        return SettingsModel(self.choices, self.prior)


class SettingsModel:
    """Times of settings: the prediction of a performance model, times an unknown scale, times the error of the model.

    In logarithms, a Gaussian process (`dagc.lab.model.process`): the errors of settings that are a few steps of their
    tunables apart are correlated.
    """

    def __init__(self, choices: Sequence[Choice], prior: Sequence[float]) -> None:
        from dagc.lab.model.process import Deviations, Process  # loads numpy, scipy

        self.candidates: Sequence[Choice] = choices
        self.row: Mapping[Choice, int] = {s: i for i, s in enumerate(choices)}
        self.times: dict[Choice, list[float]] = defaultdict(list)
        self._logs: list[float] = []
        self._squares: list[float] = []  # of each measurement's distance from what was expected, in deviations
        bits = steps(choices)
        self._process = Process(bits.shape[1], Deviations(MISSED if len(prior) else UNKNOWN, NOISE), length=LENGTH)
        self._process.extend(bits)
        self._process.rebuild(np.full((len(choices), 1), SCALE, dtype=np.float32))
        self._prior = np.log(plausible(prior if len(prior) else [1.0] * len(choices)))
        # The process is centred at the scale of the first measurement.
        self._level = math.nan

    def extend(self, candidates: Iterable[Choice]) -> None:
        """Nothing: all settings are in the pool."""

    def keep(self, rows: Sequence[int]) -> None:
        """Nothing: they are few."""

    def observe(self, candidate: Choice, time: float) -> None:
        row = self.row[candidate]
        log = math.log(time) - float(self._prior[row])
        if math.isnan(self._level):
            self._level = log
        else:
            mean, deviation = self._process.posterior(np.array(self._logs), [row])
            self._squares.append(float((log - self._level - mean[0]) / np.hypot(deviation[0], NOISE)) ** 2)
        self.times[candidate].append(time)
        self._logs.append(log - self._level)
        self._process.observe([row])

    def fail(self, candidate: Choice) -> None:
        """Nothing: the setting is not proposed again."""

    def estimate(self) -> tuple[Array, Array]:
        level = 0.0 if math.isnan(self._level) else self._level
        if not self._logs:
            mean = np.exp(self._prior)
            return mean, SCALE * mean
        missed, deviation = self._process.posterior(np.array(self._logs))
        mean = np.exp(self._prior + level + missed)
        return mean, mean * deviation * self._surprise()

    def _surprise(self) -> float:
        """By what the deviations are too small, as the measurements so far show: a performance model may be worse than
        MISSED says for a kernel, and then no setting would seem to be worth a measurement."""
        known = len(self._squares)
        return math.sqrt(min(max(1.0, sum(self._squares) / known), WORSE**2)) if known >= FEWEST else 1.0

    def deviation_after(self, rows: Sequence[int]) -> Array:
        return self.estimate()[0] * self._process.deviation_after([*rows])

    @property
    def fits(self) -> int:
        return 0

    def fitted(self) -> Array:
        return self.estimate()[0]

    def improved(self, candidates: Sequence[Choice], random: Random) -> list[Choice]:
        """None: a candidate is a setting, and the model predicts each."""
        return []

    def doubt(self, unmeasured: Numbers, measured: Numbers, share: float) -> float:
        mean, _ = self.estimate()
        return self._process.doubt(mean / float(mean[measured].min()), unmeasured, measured, share)

    @property
    def noise(self) -> float:
        """0: a launch is timed until its median is known, so measuring it again gives no new information."""
        return 0.0


def plausible(times: Sequence[float] | Array) -> Array:
    """The times of a performance model, in its units, each within a factor of FARTHEST of their median: a model that
    misreads a loop for some settings says nothing by how much. Those without a time are as slow as may be."""
    known = np.array(times, dtype=float)
    finite = known[np.isfinite(known)]
    if not len(finite):
        return np.ones(len(known))
    middle = float(np.median(finite))
    return np.clip(np.where(np.isfinite(known), known, np.inf), middle / FARTHEST, middle * FARTHEST)


class _Alone:
    """The model of one op's settings from timings of single launches."""

    def __init__(self, site: Site, seed: int) -> None:
        domain = LaunchSettings(site.choices, site.prior)
        self.site = site
        self.strategy, self._model = Strategy(domain, seed), domain.surrogate()
        self._random = Random(seed)
        self._seconds: dict[int, float] = {}  # by number
        self._failed: list[int] = []

    @property
    def timed(self) -> int:
        """The number of settings that were timed, or failed."""
        return len(self._seconds) + len(self._failed)

    def propose(self, guided: bool) -> Choice | None:
        """The setting that is expected to gain most; one at random, if the search is not `guided` by the model."""
        if guided:
            return self.strategy.propose()
        untimed = self._untimed()
        return self.site.choices[self._random.choice(untimed)] if untimed else None

    def observe(self, candidate: Choice, sample: Sample) -> None:
        self.strategy.observe(candidate, sample)
        number = self.site.choices.index(candidate)
        if math.isnan(sample.value):
            self._failed.append(number)
        else:
            self._seconds[number] = sample.value
            self._model.observe(candidate, sample.value)

    def _untimed(self) -> list[int]:
        return [n for n in range(len(self.site.choices)) if n not in self._seconds and n not in self._failed]

    @property
    def least(self) -> float:
        """Seconds of the fastest that was timed; infinite if none was."""
        return min(self._seconds.values(), default=math.inf)

    def gain(self, least: float) -> float:
        """The largest expected improvement of a setting that was not timed over `least`, in seconds."""
        from dagc.lab.model.process import expected_gain  # loads scipy

        mean, deviation = self._model.estimate()
        rows = self._untimed()
        share = expected_gain(np.log(mean), deviation / mean, math.log(least))  # errors are normal in logarithms
        return least * float(share[rows].max()) if rows else 0.0

    def known(self, guided: bool) -> Site:
        """The site with the expected time of each setting and its deviation; unchanged if none was timed. What was
        timed is expected to take what it took, whatever the model says; the others are unknown without it."""
        took = self._seconds
        if not took:
            return self.site
        mean, deviation = self._model.estimate()
        if not guided:
            mean = np.full(len(mean), median(took.values()))
            deviation = UNKNOWN * mean
        mean[list(took)], deviation[list(took)] = list(took.values()), 0.0
        mean[self._failed] = math.inf
        doubts = np.where(np.isfinite(mean), np.hypot(deviation / mean, IN_PLACE), IN_PLACE)
        return replace(
            self.site, prior=tuple(map(float, np.round(mean, 12))), doubts=tuple(map(float, np.round(doubts, 6)))
        )


class AloneFirst:
    """Proposes settings of several sites (as number of the site and setting) to be timed as single launches.

    One setting of each site comes first. Then, up to `number` of each site, those that may gain more than WORTH of the
    total time of the ops; sites of one op with the same name are its variants. The next one is chosen as in `dagc tune
    --method model`; at random, once the model is given up.
    """

    def __init__(self, sites: Sequence[Site], number: int, seed: int) -> None:
        self._alone = [_Alone(site, seed) for site in sites]
        self._least: dict[str, float] = {}  # by op, of all its variants
        self._order = self._in_order(number)
        self._guided = True

    def expected(self, candidate: tuple[int, Choice]) -> tuple[float, float] | None:
        return self._alone[candidate[0]].strategy.expected(candidate[1]) if self._guided else None

    def give_up(self) -> None:
        self._guided = False

    def propose(self) -> tuple[int, Choice] | None:
        return next(self._order, None)

    def observe(self, candidate: tuple[int, Choice], sample: Sample) -> None:
        one = self._alone[candidate[0]]
        one.observe(candidate[1], sample)
        self._least[one.site.name] = min(self._least.get(one.site.name, math.inf), one.least)

    def _in_order(self, number: int) -> Iterator[tuple[int, Choice]]:
        for place, one in enumerate(self._alone):
            if not one.timed and (chosen := one.propose(self._guided)) is not None:
                yield place, chosen
        for place, one in enumerate(self._alone):
            few = min(FIRST, number) if len(one.site.choices) >= LARGE and self._counts(one) else 0
            while one.timed < few and (chosen := one.propose(self._guided and one.timed % 2 == 0)) is not None:
                yield place, chosen
            while one.timed < number and self._is_worth(one) and (chosen := one.propose(self._guided)) is not None:
                yield place, chosen

    def _counts(self, one: _Alone) -> bool:
        """Whether the op takes so much that predictions of which only that of one setting is right cost something."""
        return self._least[one.site.name] >= SHARE * self._together

    def _is_worth(self, one: _Alone) -> bool:
        if not self._guided:
            return True
        return math.isinf(one.least) or one.gain(self._least[one.site.name]) >= WORTH * self._together

    @property
    def _together(self) -> float:
        return sum(time for time in self._least.values() if math.isfinite(time))

    @property
    def known(self) -> list[Site]:
        """The sites with the expected times of their settings; unchanged if all failed."""
        return [one.known(self._guided) for one in self._alone]


def timed_alone(
    ops: Sequence[tuple[Site, Callable[[Choice], Sample]]],
    number: int,
    seed: int,
    late: Callable[[], bool] = lambda: False,
) -> list[Site]:
    """The sites with the expected times of their settings from timings of single launches, `number` of each at most;
    unchanged if all fail. Each site comes with a function that times one of its choices. Ends when it is `late`."""
    from threadpoolctl import threadpool_limits

    proposer = AloneFirst([site for site, _ in ops], number, seed)
    options = SearchOptions(confirm=0, seed=seed)
    with threadpool_limits(1, user_api="blas"):  # its threads wait for each other where polling ranks fill the cores
        done = explore(None, proposer, _Single(ops), UNKEPT, options, among=itemgetter(0), ended=late)
    if done.interrupted:
        raise KeyboardInterrupt
    return proposer.known


@dataclass(frozen=True, slots=True)
class _Single:
    """Times single launches. `ops`: sites, each with a function that times one of its choices."""

    ops: Sequence[tuple[Site, Callable[[Choice], Sample]]]

    def measure(self, candidate: tuple[int, Choice]) -> Sample:
        return self.ops[candidate[0]][1](candidate[1])


def steps(choices: Sequence[Choice]) -> Any:
    """Whether each setting is at least each value of a tunable but the smallest, and whether it is of each variant.
    Shape (settings, steps)."""
    rows = [s.own for s in choices]
    columns: list[list[bool]] = []
    for name in dict.fromkeys(name for row in rows for name in row):
        of: list[Any] = [row.get(name, -math.inf) for row in rows]  # a tunable that a variant lacks
        if name == VARIANT:  # without an order
            columns += [[v == value for v in of] for value in dict.fromkeys(of)]
        else:
            columns += [[v >= value for v in of] for value in sorted(set(of))[1:]]
    return np.array(columns, dtype=np.float32).reshape(-1, len(choices)).T
