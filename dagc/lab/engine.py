"""The loop of a search: propose, measure, record, observe; then measure the best again to confirm the choice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from random import Random
from statistics import median
from time import monotonic
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from dagc.base.errors import RunFailed
from dagc.base.sample import CONFIRM, Sample
from dagc.base.signals import Clock, deferred
from dagc.base.statistics import FEWEST_PAIRS, Changes, Noise, faster, followed, interval
from dagc.lab.domain import C, Domain
from dagc.lab.places import PlaceEffects
from dagc.lab.strategy import Batching, Judge, Modelled, Proposer, RankingStrategy, fallback
from dagc.lab.trust import CandidateSamples, Trust
from dagc.store.results import CONFIRMED, best_estimate, drift_factor, judging, rank

# A search ends if the probability of a better candidate is at most DOUBT in this many consecutive checks. The model is
# optimistic: on synthetic machines, 5 % in two checks missed a better candidate in 11 % of the searches or more.
DOUBT, IN_A_ROW = 0.01, 3
LEFT = 0.05  # fraction of these searches that missed a faster candidate: 1 of 20 on synthetic machines
TRIED = 3  # candidates that are measured whatever the time limit, until one can be
FEWEST, CHECKED_EVERY = 20, 5  # candidates before the first such check; measurements between two checks
WITHOUT = 200  # measurements of a search without a model that would have ended by the model's doubt, at least

NOTHING_KNOWN: Mapping[Any, Sequence[Sample]] = MappingProxyType({})
M_contra = TypeVar("M_contra", bound=Hashable, contravariant=True)  # a candidate


class Machine(Protocol[M_contra]):
    """Measures candidates: on real ranks, or from a recording."""

    def measure(self, candidate: M_contra) -> Sample:
        """One measurement; a failure is a sample, not an exception."""


class Store(Protocol[M_contra]):
    """Keeps measurements."""

    def begin(self, candidate: M_contra) -> Any:
        """Called before a candidate is measured. Returns its key for `add` and `fail`."""

    def add(self, key: Any, sample: Sample) -> object:
        """Add a measurement, or its failure."""


FIRST = "the first group"  # the name of the place without a name


@dataclass(frozen=True, slots=True, eq=False)
class MeasuringPlace(Generic[C]):
    """A machine with the store of its measurements. Several of them measure side by side."""

    machine: Machine[C]
    store: Store[C]
    name: str


# The places that have become ready since the last call. True: wait until there is one, or none is to come.
Joining = Callable[[bool], Sequence[MeasuringPlace[C]]]
_MOST_PLACES = 1024


class _Unkept:
    def begin(self, candidate: object) -> None:
        pass

    def add(self, key: None, sample: Sample) -> None:
        pass


UNKEPT = _Unkept()  # a store that discards everything: a replay can be repeated


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """When a search ends, and how the best is confirmed.

    budget       number of measurements of the search; None: until the strategy has no more proposals
    time         seconds for everything; None: no limit. The expected time of the confirmation, at most half of the
                 total, is reserved
    passes       number of passes over all measured candidates, each in a new random order
    confirm      how many of the best are measured again at the end
    repeats      measurements of each of them; those that chose them do not count
    until        the search ends if the strategy expects no unmeasured candidate to be faster by more than this share;
                 None: it does not end by itself
    rivals       times the best of its group: what takes longer is not confirmed, nor is a best without rivals
    """

    budget: int | None = None
    time: float | None = None
    passes: int = 1
    confirm: int = 10
    repeats: int = 5
    seed: int = 0
    until: float | None = None
    rivals: float = math.inf


@dataclass(frozen=True, slots=True)
class Progress(Generic[C]):
    """The state of a search after a measurement.

    `values` are all measurements so far, in the order taken: the list of the search itself, not a copy.

    phase        "search", "passes" or "confirm"
    budget       maximal number of measurements at the end of the phase; None: not known
    space        size of the space; None: not counted
    best         the best so far; `best_value`: the median of its `measurements_of_best` measurements, `low` to `high`
                 their 95% interval, which is their range for fewer than six
    """

    phase: str
    measured: int
    budget: int | None
    space: int | None
    implementations: int
    failures: int
    elapsed: float
    time: float | None
    best_value: float
    best: C | None
    values: Sequence[float]
    measurements_of_best: int = 0
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True)
class Summary(Generic[C]):
    """The result of a search. `best` is None if nothing could be measured.

    value        estimate for the best, with its 95% interval `low` to `high`, from measurements that did not choose it
                 (`dagc.store.results.best_estimate`)
    ties         how many others are equal to the best within the noise
    reasons      (failure, number of implementations), most frequent first
    lowest       the lowest single measurement of any implementation; below `value` by selection bias
    displayed    the same as shown during the search, scaled to the drift reference of its beginning
    repeats      measurements that confirm a choice, see `confirmed`
    doubt        probability that an unmeasured candidate is faster by more than `SearchOptions.until`, if the search
                 ended because the model's was low; at least the share of such searches that were wrong; else NaN
    shrunk       whether the estimate and its interval are corrected for selection bias
    given_up     why the model of the strategy was given up; "" if it was not
    measuring    seconds spent in the machine, the mean of all places; `overhead`: in the search itself
    lost         the places that failed for good, with the reasons
    references   seconds of the drift reference on each place, the median over the measurements of the search
    effects      of each place: its times over those of the first, beyond the drift reference; divided out
    """

    best: C | None
    value: float
    low: float
    high: float
    measurements_of_best: int
    ties: int
    worst: float
    measurements: int
    implementations: int
    failures: int
    space: int | None
    measuring: float
    overhead: float
    interrupted: bool
    reasons: tuple[tuple[str, int], ...] = ()
    lowest: float = math.nan
    displayed: float = math.nan
    repeats: int = CONFIRMED
    doubt: float = math.nan
    shrunk: bool = False
    given_up: str = ""
    lost: tuple[tuple[str, str], ...] = ()
    references: Mapping[str, float] = field(default_factory=dict)
    effects: Mapping[str, float] = field(default_factory=dict)

    @property
    def confirmed(self) -> bool:
        """Whether the best was measured often enough to confirm the choice."""
        return self.measurements_of_best >= self.repeats


def drive(proposer: Proposer[C], measure: Callable[[C], Sample], over: Callable[[], bool]) -> None:
    """The loop of every search: measure what is proposed, until it is `over` or nothing is proposed."""
    while not over():
        candidate = proposer.propose()
        if candidate is None:
            return
        proposer.observe(candidate, measure(candidate))


def _together(candidate: Any) -> Hashable:
    return None


def explore(
    domain: Domain[C] | None,
    strategy: Proposer[C],
    machine: Machine[C],
    store: Store[C],
    options: SearchOptions,
    *,
    known: Mapping[C, Sequence[Sample]] = NOTHING_KNOWN,
    base: float = math.nan,
    same: Callable[[C], str] | None = None,
    progress: Callable[[Progress[C]], None] | None = None,
    show: Callable[[float], str] = "{:.4g}".format,
    clock: Clock = monotonic,
    among: Callable[[C], Hashable] = _together,
    ended: Callable[[], bool] = lambda: False,
    first: Sequence[C] = (),
    joining: Joining[C] | None = None,
) -> Summary[C]:
    """Search until the budget, the time or the space is exhausted, it has `ended`, or the user interrupts.

    `domain`: the candidates; None if they are not one space. A strategy whose model is given up (`Modelled`) goes on by
    itself, another one is replaced by one that searches the domain. `among`: the group of a candidate; the best of each
    group is sought, and the summary is that of all together. `first`: measured before the strategy is asked.
    `known`: samples of an earlier run with drift divided out, observed first. `base`: the drift reference that their
    times are scaled to (NaN: the first one measured). `same` returns equal keys for candidates that do the same work
    (`--prune-syncs`): only the first of them is measured. `show`: a value as text. `clock`: of the time limit. A failed
    measurement does not raise.

    `joining`: further places, as they become ready. Whichever is idle measures the next proposal; values are comparable
    since each place times one drift reference. A place that raises RunFailed is lost, and its candidate is measured
    elsewhere. The choice is confirmed on one place alone, where the candidates are compared under equal conditions.
    """
    places = [MeasuringPlace(machine, store, FIRST)]
    loop = _Loop(
        domain, strategy, places, options, base, same, progress, show, clock, among, ended, list(first), joining
    )  # fmt: skip
    for candidate, samples in known.items():
        loop.learn(candidate, samples)
    try:
        loop.search()
        loop.passes()
        loop.confirm()
    except KeyboardInterrupt:
        loop.interrupted = True
    return loop.summary()


@dataclass(slots=True, eq=False)
class _Loop(Generic[C]):
    domain: Domain[C] | None
    strategy: Proposer[C]
    places: list[MeasuringPlace[C]]
    options: SearchOptions
    base: float  # the drift reference that values are scaled to
    same: Callable[[C], str] | None
    progress: Callable[[Progress[C]], None] | None
    show: Callable[[float], str]
    clock: Clock
    among: Callable[[C], Hashable]
    ended: Callable[[], bool]
    first: list[C]  # what is left of it
    joining: Joining[C] | None

    measuring: float = 0.0
    timed: float = 0.0  # without failed measurements: a hang takes as long as the watchdog waits
    samples: dict[C, CandidateSamples[C]] = field(default_factory=dict)
    bests: dict[Hashable, CandidateSamples[C]] = field(default_factory=dict)  # of each group
    first_of: dict[str, CandidateSamples[C]] = field(default_factory=dict)
    inferred: set[C] = field(default_factory=set)  # took the sample of another candidate that does the same work
    times: list[float] = field(default_factory=list)
    measurements: int = 0
    failures: int = 0
    follow: float = 1.0  # the part of the change of the drift reference that times follow
    changes: Changes = field(default_factory=Changes)
    trust_at: int = 0  # measurements at the next check of the model
    given_up: str = ""  # why the model was
    given_up_at: int = 0  # after how many measurements
    check_at: int = 0  # measurements at the next check whether to end
    assured: int = 0  # checks in a row that allowed the search to end
    doubt: float = math.nan
    interrupted: bool = False
    awaited: dict[C, C] = field(default_factory=dict)  # what is being measured -> the proposal that it is measured for
    lost: list[tuple[str, str]] = field(default_factory=list)
    references: dict[str, list[float]] = field(default_factory=dict)  # by the name of the place
    effects: PlaceEffects = field(default_factory=lambda: PlaceEffects(FIRST))
    random: Random = field(init=False)
    start: float = field(init=False)
    trust: Trust[C] = field(init=False)

    def __post_init__(self) -> None:
        self.random, self.start = Random(self.options.seed), self.clock()
        self.trust = Trust(self.strategy, self.samples, self.among, self.show)

    # ---- phases -------------------------------------------------------------------------

    def learn(self, candidate: C, samples: Sequence[Sample]) -> None:
        one = self._samples_of(candidate)
        for sample in samples:
            one.add(sample)
        self.strategy.observe(candidate, samples[0] if len(samples) == 1 else one.sample)
        self._consider(one)

    def search(self) -> None:
        self._on_all_places(self._next, self._observe, "search", self._budget)

    def _next(self) -> C | None:
        """What is measured next; None if nothing is at the moment."""
        while not self._over():
            proposal = self._propose()
            if proposal is None or proposal in self.awaited.values():
                return None
            self.trust.predict(proposal)
            first = self._first_of(proposal)
            if first is None or proposal in self.inferred:  # in the latter case it is proposed again
                candidate = proposal if first is None else first.candidate
                self.awaited[candidate] = proposal
                if len(self.places) > 1 and isinstance(self.strategy, Batching):
                    self.strategy.await_sample(proposal)
                return candidate
            self.inferred.add(proposal)  # does the same work as one that was measured
            self._observe(proposal, first.sample)
        return None

    def _over(self) -> bool:
        """Whether the budget or the time of the search is spent."""
        budget = self._budget()
        spent = budget is not None and self.measurements + len(self.awaited) >= budget
        return spent or self.ended() or not self._time_to_search()

    def _propose(self) -> C | None:
        while self.first:
            if (candidate := self.first.pop(0)) not in self.samples:
                return candidate
        return None if self._enough() else self._doubtful() or self.strategy.propose()

    def _observe(self, candidate: C, sample: Sample) -> None:
        proposal = self.awaited.pop(candidate, candidate)
        self.strategy.observe(proposal, sample)
        if proposal in self.samples:
            self.trust.observe(proposal)

    def _budget(self) -> int | None:
        """The number of measurements of the search. Without its model, one that would have ended by the model's doubt
        ends after twice as many as it had taken until then."""
        budget = self.options.budget
        if not self.given_up or self.options.until is None:
            return budget
        most = max(WITHOUT, 2 * self.given_up_at)
        return most if budget is None else min(budget, most)

    def _doubtful(self) -> C | None:
        """A candidate to measure again, which shows whether the model of the strategy is wrong; None if there is no
        doubt. A model that is wrong is given up: a strategy without one continues with the measurements so far."""
        if self.measurements < self.trust_at:
            return None
        again = self.trust.check(self.bests, self._noise())
        if again is not None:
            return again
        self.trust_at = self.measurements + CHECKED_EVERY
        if self.trust.reason:
            self.given_up, self.given_up_at = self.trust.reason, self.measurements
            self._go_on_without_model()
            self.trust = Trust(self.strategy, self.samples, self.among, self.show)
        return None

    def _go_on_without_model(self) -> None:
        if isinstance(self.strategy, Modelled):
            self.strategy.give_up()
        elif self.domain is not None:
            self.strategy = fallback(self.domain, self.options.seed)
            for one in self.samples.values():
                self.strategy.observe(one.candidate, one.sample)

    def _noise(self) -> float:
        return Noise(one.values for one in self.samples.values()).value

    def _enough(self) -> bool:
        """Whether the strategy expects no better candidate."""
        until, known = self.options.until, len(self.samples)
        if until is None or not isinstance(self.strategy, Judge) or known < FEWEST or self.measurements < self.check_at:
            return False
        self.check_at = self.measurements + CHECKED_EVERY
        doubt = self.strategy.doubt(until)
        self.assured = self.assured + 1 if doubt <= DOUBT else 0
        if self.assured < IN_A_ROW:
            return False
        self.doubt = max(doubt, LEFT)  # the model alone would be too optimistic
        return True

    def passes(self) -> None:
        """Measure everything again, pass by pass, each in its own random order."""
        for number in range(1, self.options.passes):
            again = [t.candidate for t in self._timed() if len(t.values) <= number]
            self.random.shuffle(again)
            self._pass(again, self.measurements + len(again))

    def _pass(self, again: list[C], most: int) -> None:
        def following() -> C | None:
            return again.pop(0) if again and self._time_to_search() else None

        self._on_all_places(following, lambda candidate, sample: None, "passes", lambda: most)

    def confirm(self) -> None:
        """Of each group, measure the best so far `repeats` times each, then any others that still seem faster than the
        best of these.

        They are chosen first, and the measurements that chose them do not count.
        """
        for group in list(self.bests):
            chosen, once = self._shortlist(group), self.options.confirm
            while chosen and self._in_time():
                self._confirm(chosen)
                chosen = self._challengers(group, once)
                once -= sum(len(one.values) == 1 for one in chosen)

    def _confirm(self, chosen: Sequence[CandidateSamples[C]]) -> None:
        """Interleaved. Each round goes from the fastest to the slowest, so that a round that ends early has measured
        the fastest."""
        while self._in_time():
            short = sorted((t for t in chosen if self._missing(t)), key=lambda t: t.median)
            if not short:
                return
            left = sum(self._missing(t) for t in short)
            for one in short:
                self._measure(one.candidate, CONFIRM, self.measurements + left)
                left -= 1
                if not self._in_time():
                    return

    def _shortlist(self, group: Hashable) -> list[CandidateSamples[C]]:
        """The candidates to confirm: the `confirm` best, or fewer if there is no time to measure all of them. None if
        there are no rivals.

        The first is the best by measurements, then the best of those measured repeatedly. The others are ranked by the
        strategy if it can, without those that measurements contradict, however the model ranks them.
        """
        measured = sorted(self._timed(group), key=lambda t: t.median)
        chosen = [*measured[:1], *[t for t in measured if t.repeated][:1]]
        if isinstance(self.strategy, RankingStrategy) and measured:
            noise = self._noise()
            ranked = [self.samples[c] for c in self.strategy.ranked(self.options.confirm) if c in self.samples]
            good = {t.candidate for t in measured if not faster(measured[0].values, [min(t.values)], noise)}
            chosen += [t for t in ranked if t.candidate in good]
        chosen = list({t.candidate: t for t in (*chosen, *measured)}.values())[: self.options.confirm]
        if math.isfinite(self.options.rivals):
            near = [t for t in chosen if t.median <= self.options.rivals * measured[0].median]
            chosen = near if len(near) > 1 else []
        if self.options.time is not None and self.times:
            left = (self.options.time - self._elapsed()) / self._cost()
            while len(chosen) > 1 and sum(map(self._missing, chosen)) > left:
                del chosen[-1]
        return chosen

    def _challengers(self, group: Hashable, once: int) -> list[CandidateSamples[C]]:
        """Candidates that are not confirmed and faster than the best of the confirmed, beyond the noise: at most
        `confirm`, and at most `once` that were measured once."""
        ranked, noise = self._ranked(group), self._noise()
        best = max(ranked, key=lambda t: len(t.confirming), default=None)  # the first that was confirmed
        if best is None:
            return []
        judged = _judged(best)
        rivals = [t for t in self._timed(group) if self._missing(t) and faster(t.values, judged, noise)]
        rivals.sort(key=lambda t: t.median)
        single = [t for t in rivals if not t.repeated][: max(0, once)]
        return [t for t in rivals if t.repeated or t in single][: self.options.confirm]

    def _missing(self, one: CandidateSamples[C]) -> int:
        """The number of measurements it still needs to be confirmed."""
        return 0 if one.failure else max(0, self.options.repeats - len(one.confirming))

    # ---- one place, or several side by side ----------------------------------------------

    def _on_all_places(
        self,
        following: Callable[[], C | None],
        observe: Callable[[C, Sample], None],
        phase: str,
        budget: Callable[[], int | None],
    ) -> None:
        """Measure what is `following`, on whichever place is idle, and `observe` it; until nothing follows and all have
        ended. With one place there is no other thread."""
        if len(self.places) == 1 and self.joining is None:
            while (candidate := following()) is not None:
                observe(candidate, self._measure(candidate, phase, budget()))
            return
        idle, running = list(self.places), dict[Future[tuple[Sample, float]], tuple[C, MeasuringPlace[C], Any]]()
        with ThreadPoolExecutor(_MOST_PLACES) as pool:
            while idle or running:
                idle += self._joined()
                while idle and (candidate := following()) is not None:
                    place = idle.pop(0)
                    began = candidate, place, place.store.begin(candidate)
                    running[pool.submit(self._timed_on, place, candidate)] = began
                if not running:
                    return
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    candidate, place, key = running.pop(done)
                    try:
                        measured = done.result()
                    except RunFailed as why:
                        idle += self._lose(candidate, place, why)
                        continue
                    idle.append(place)
                    observe(candidate, self._keep(candidate, place, key, *measured, phase, budget()))

    def _joined(self, wait: bool = False) -> list[MeasuringPlace[C]]:
        """The places that have become ready."""
        came = [] if self.joining is None else list(self.joining(wait))
        self.places += came
        return came

    def _lose(self, candidate: C, place: MeasuringPlace[C], why: RunFailed) -> list[MeasuringPlace[C]]:
        """Go on without a place; what it measured is measured elsewhere. Returns places that have become ready. Raises
        `why` if it was the last, and no other is to come."""
        self.places.remove(place)
        self.lost.append((place.name, why.first))
        came = self._joined(wait=not self.places)
        if not self.places:
            raise why
        self.first.insert(0, self.awaited.pop(candidate, candidate))
        return came

    # ---- one measurement ----------------------------------------------------------------

    def _elapsed(self) -> float:
        return self.clock() - self.start

    def _in_time(self) -> bool:
        return not self.ended() and self._before_limit()

    def _before_limit(self) -> bool:
        return self.options.time is None or self._elapsed() < self.options.time

    def _cost(self) -> float:
        """Mean duration of the successful measurements, in seconds. There must be one."""
        return self.timed / len(self.times)

    def _time_to_search(self) -> bool:
        """Whether there is time for one more measurement and for the confirmation, or nothing could be measured yet."""
        time, options = self.options.time, self.options
        if time is None or not self.times:
            return self._before_limit() or self.failures < TRIED
        left, cost = time - self._elapsed(), self._cost()
        if left > cost * (1 + options.confirm * options.repeats):
            return True
        best = nsmallest(options.confirm, self._timed(), key=lambda t: t.median)
        return left > cost + min(cost * sum(map(self._missing, best)), time / 2)

    def _first_of(self, candidate: C) -> CandidateSamples[C] | None:
        """Another candidate that does the same work and was measured before; None if there is none."""
        if self.same is None:
            return None
        first = self.first_of.get(self.same(candidate))
        return None if first is None or first.candidate == candidate else first

    def _samples_of(self, candidate: C) -> CandidateSamples[C]:
        one = self.samples.get(candidate)
        if one is None:
            one = self.samples[candidate] = CandidateSamples(candidate)
            if self.same is not None:
                self.first_of.setdefault(self.same(candidate), one)
        return one

    def _measure(self, candidate: C, phase: str, budget: int | None) -> Sample:
        """On the first place."""
        key, measured = self.places[0].store.begin(candidate), self._timed_on(self.places[0], candidate)
        return self._keep(candidate, self.places[0], key, *measured, phase, budget)

    def _timed_on(self, place: MeasuringPlace[C], candidate: C) -> tuple[Sample, float]:
        """A measurement, and the seconds that it took."""
        before = self.clock()
        sample = place.machine.measure(candidate)
        return sample, self.clock() - before

    def _keep(
        self,
        candidate: C,
        place: MeasuringPlace[C],
        key: Any,
        sample: Sample,
        elapsed: float,
        phase: str,
        budget: int | None,
    ) -> Sample:
        """Keep a sample; returns it with drift divided out."""
        one = self._samples_of(candidate)
        self.measuring += elapsed / (1 if phase == CONFIRM else len(self.places))
        self.measurements += 1
        if phase == CONFIRM:
            sample = replace(sample, purpose=CONFIRM)
        with deferred():  # what was measured is kept
            place.store.add(key, sample)
        if sample.failure:
            self.failures += 1
        else:
            if phase != CONFIRM and not math.isnan(sample.reference):
                self.references.setdefault(place.name, []).append(sample.reference)
            sample = self._without_effect(candidate, self._without_drift(candidate, sample), place.name)
            self.times.append(sample.value)
            self.timed += elapsed
        one.add(sample)
        self._consider(one)
        if self.progress is not None:
            self._report(phase, budget, self.progress)
        return sample

    def _without_drift(self, candidate: C, sample: Sample) -> Sample:
        if math.isnan(sample.reference):
            return sample
        if math.isnan(self.base):
            self.base = sample.reference
        if sample.value > 0 < sample.reference:
            again = self.changes.add(candidate, sample.reference, sample.value)
            if again and len(self.changes.pairs) % FEWEST_PAIRS == 0:
                self.follow = followed(self.changes.pairs)
        return replace(sample, value=sample.value * drift_factor(self.base, sample.reference, self.follow))

    def _without_effect(self, candidate: C, sample: Sample, place: str) -> Sample:
        """With the effect of the place divided out, if it is not the only one."""
        if len(self.places) == 1 and place == FIRST:
            return sample
        if not self._samples_of(candidate).values:
            self.effects.add(place, sample.value, self.trust.expected(self.awaited.get(candidate, candidate)))
        return replace(sample, value=sample.value / self.effects.factor(place))

    def _consider(self, one: CandidateSamples[C]) -> None:
        """Keep the best up to date: a candidate may rise, fall or fail when it is measured again."""
        group = self.among(one.candidate)
        best = self.bests.get(group)
        if best is one:
            del self.bests[group]
            others = self._timed(group)
            self.bests |= {group: min(others, key=lambda t: t.median)} if others else {}
        elif one.values and not one.failure and (best is None or one.median < best.median):
            self.bests[group] = one

    def _timed(self, group: Hashable = None) -> list[CandidateSamples[C]]:
        """The candidates of a group (None: all) that may be its best: measured, and never failed."""
        timed = (t for t in self.samples.values() if t.values and not t.failure)
        return [t for t in timed if group is None or self.among(t.candidate) == group]

    def _report(self, phase: str, budget: int | None, progress: Callable[[Progress[C]], None]) -> None:
        # During the confirmation, show what would be the result, not the lowest single time.
        ranked = self._ranked() if phase == CONFIRM else ()
        best = ranked[0] if ranked else min(self.bests.values(), key=lambda t: t.median, default=None)
        times = () if best is None else _judged(best)
        progress(
            Progress(
                phase, self.measurements, budget, self._size(), len(self.samples), self.failures,
                self._elapsed(), self.options.time, median(times) if times else math.nan,
                best.candidate if best else None, self.times, len(times), *(interval(times) if times else ()),
            )
        )  # fmt: skip

    def _size(self) -> int | None:
        return self.domain.size() if self.domain is not None else None

    def _ranked(self, group: Hashable = None) -> tuple[CandidateSamples[C], ...]:
        return rank(self._timed(group), lambda t: t.values, lambda t: t.confirming)

    def summary(self) -> Summary[C]:
        timed = self._timed()
        lowest = min((min(t.values) for t in timed), default=math.nan)
        ranked = self._ranked()
        best = ranked[0] if ranked else None
        estimate = best_estimate([_judged(t) for t in ranked]) if ranked else None
        return Summary(
            best=best.candidate if best else None,
            value=estimate.value if estimate else math.nan,
            low=estimate.low if estimate else math.nan,
            high=estimate.high if estimate else math.nan,
            measurements_of_best=estimate.measurements if estimate else 0,
            ties=estimate.ties if estimate else 0,
            worst=max((median(_judged(t)) for t in timed), default=math.nan),
            measurements=self.measurements,
            implementations=len(timed),
            failures=self.failures,
            space=self._size(),
            measuring=self.measuring,
            overhead=self._elapsed() - self.measuring,
            interrupted=self.interrupted,
            reasons=tuple(Counter(t.failure for t in self.samples.values() if t.failure).most_common()),
            lowest=lowest,
            displayed=lowest,
            repeats=min(CONFIRMED, self.options.repeats),
            doubt=self.doubt,
            shrunk=estimate is not None and estimate.shrunk,
            given_up=self.given_up,
            lost=tuple(self.lost),
            references={name: median(seconds) for name, seconds in self.references.items()},
            effects=self.effects.factors(),
        )


def _judged(one: CandidateSamples[Any]) -> Sequence[float]:
    """The measurements that judge a candidate."""
    return judging(one.values, one.confirming)
