"""Model-guided search: simulate, fit, and measure by expected improvement, with a share of uniform samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from random import Random
from statistics import median
from typing import Any, ClassVar, Generic

from dagc.base.python import Array, Numbers, np
from dagc.base.sample import Sample
from dagc.lab.domain import C, Domain, Surrogate

WHOLE = 2500  # a space up to this size is simulated as a whole; of a larger one, a sample is
RENEW = 6  # measurements between two local searches on the model
ROUNDS, GROWTH = 2, 40  # rounds of a local search, and neighbours added in each
DEEP = 10  # rounds on the fitted simulation alone, after each fit
DRAWN = 5  # neighbours whose launch settings are chosen by one draw from the model
FASTEST = 8  # candidates whose neighbours are added
MOST, LEFT, SIMULATED = 1500, 800, 100  # most unmeasured rows; if more, so many stay, and the fastest simulated ones
FIRST = 12  # of this many measurements at the start, every second is drawn uniformly
HINTED_FROM, HINTED_EVERY = 4, 8  # measurements before the first candidate from elsewhere, and per further one
FAIR_EVERY = ((32, 4), (64, 8), (math.inf, 16))  # up to the first number of measurements, one in this many is uniform
MOST_TIMES = 12  # most measurements of one candidate by the search; the final choice is confirmed by more
UNIFORM_EVERY = 4  # every fourth of these in all choices; the others have launch settings that the model chose
DIGITS = 12  # decimals of a time in seconds: linear algebra libraries differ in the last bits of a double
UNLIKELY_EVERY = 4  # every fourth draw of the first pool is uniform in all choices
WALKED = 3  # candidates of the first pool for each draw
_OPEN, _FAILED, _TIMED = range(3)


class Strategy(Generic[C]):
    """Fits costs of ops and messages to measurements, simulates the candidates, and measures by expected improvement.

    The error of the simulation is a Gaussian process over order and streams. A space that is too large to be simulated
    as a whole is searched locally, through neighbours of the candidates with the smallest expected time
    (docs/explanation/search.md). A share of uniform draws limits the cost of a wrong model.
    """

    summary: ClassVar[str] = "model-guided: fitted simulation, expected improvement, local search, uniform samples"

    def __init__(self, domain: Domain[C], seed: int) -> None:
        self.domain, self.random = domain, Random(seed)
        self.before: list[tuple[C, Sample]] = []  # observations before the model was built
        self.measured = 0
        self.observed = 0  # measurements, of failed ones too
        self.grown_with = -RENEW
        self.fits = 0  # of the model, at the last search on the simulation
        self.fair = 0  # proposals that were drawn uniformly
        self.closed: set[C] = set()
        self.awaited: list[C] = []  # being measured
        self._states = bytearray()  # of each row of the pool: _OPEN, _FAILED or _TIMED
        self._built: Surrogate[C] | None = None  # built when first needed: that takes a while

    @classmethod
    def suits(cls, domain: Domain[Any]) -> bool:
        return domain.has_surrogate

    # ---- the protocol -------------------------------------------------------------------

    def propose(self) -> C | None:
        model = self._model()
        if self._fair_is_due():
            fair = self._hint() or self._fair()
            if fair is not None:
                return fair
        rows = self._rows(model, _OPEN)
        if self.awaited:
            rows = np.setdiff1d(rows, self._awaited(model))
        if not len(rows):
            return self._fair()
        timed = self._rows(model, _TIMED)
        if model.noise and len(timed) > 1:
            rows = np.concatenate([rows, self._again(model, timed)])
        score = self._gain(model, rows, timed)
        # Equal scores are common (many orders simulate alike): the seed decides among them.
        best = rows[np.flatnonzero(score >= score.max() - 1e-6 * abs(score.max()))]
        return model.candidates[int(best[self.random.randrange(len(best))])]

    def _again(self, model: Surrogate[C], timed: Numbers) -> Numbers:
        """Those of these rows that may be measured again."""
        often = [model.row[candidate] for candidate, times in model.times.items() if len(times) >= MOST_TIMES]
        return np.setdiff1d(timed, [*often, *(model.row[candidate] for candidate in self.awaited)], assume_unique=True)

    def _fair_is_due(self) -> bool:
        """With every second of the first measurements uniform, at most twice as many are needed as by uniform draws
        alone, however wrong the model is before it is fitted."""
        number = self.observed + len(self.awaited)
        if number < FIRST:
            return self.domain.uniform_first and number % 2 == 0
        return number % next(every for most, every in FAIR_EVERY if number < most) == 0

    def _hint(self) -> C | None:
        """A candidate that was the fastest elsewhere, in place of a uniform draw: the fifth measurement, and a later
        one if that is the fastest of eight. All others are those of a search without prior results."""
        times, hints = self._model().times, self.domain.hints
        known = [hint for hint in hints if hint in times]
        fastest = min(times, key=lambda c: median(times[c]), default=None)
        contradicted = known and fastest not in known
        if contradicted or len(times) < max(HINTED_FROM, HINTED_EVERY * len(known)) or self.observed >= FIRST:
            return None
        return next((hint for hint in hints if hint not in self.closed), None)

    def _gain(self, model: Surrogate[C], rows: Numbers, timed: Numbers) -> Array:
        """The expected improvement of the choice by one measurement of each of these rows.

        The knowledge gradient for noisy measurements, restricted to a choice among the measured candidates (Picheny et
        al., Quantile-based optimization of noisy computer experiments, Technometrics 2013). A measured candidate is
        measured again if it may be better than the choice, or if the choice may be worse than it. What is being
        measured elsewhere leaves less to learn near it, whatever its time (Desautels et al., Parallelizing
        exploration-exploitation tradeoffs in Gaussian process bandit optimization, JMLR 2014).
        """
        from dagc.lab.model.process import expected_gain  # loads scipy

        mean, deviation = model.estimate()
        if self.awaited:
            deviation = model.deviation_after(self._awaited(model))
        moved = deviation[rows] ** 2 / np.hypot(deviation[rows], model.noise)
        if not len(timed):
            return expected_gain(mean[rows], moved, math.inf)
        ranked = timed[np.argsort(mean[timed], kind="stable")[:2]]
        expected = mean[rows]
        if len(ranked) > 1:  # the choice gains where its successor becomes better
            expected = np.where(rows == ranked[0], mean[ranked[1]], expected)
        return expected_gain(expected, moved, float(mean[ranked[0]]))

    def await_sample(self, candidate: C) -> None:
        self.awaited.append(candidate)

    def _awaited(self, model: Surrogate[C]) -> list[int]:
        model.extend(self.awaited)
        return [model.row[candidate] for candidate in self.awaited]

    def observe(self, candidate: C, sample: Sample) -> None:
        if candidate in self.awaited:
            self.awaited.remove(candidate)
        if self._built is None:
            self.before.append((candidate, sample))
            return
        self._built.extend([candidate])
        self.closed.add(candidate)
        self.observed += 1
        row = self._built.row[candidate]
        self._states.extend(bytes(max(0, row + 1 - len(self._states))))
        self._states[row] = _FAILED if math.isnan(sample.value) else _TIMED
        if math.isnan(sample.value):
            self._built.fail(candidate)
        else:
            self.measured += 1
            self._built.observe(candidate, sample.value)

    def expected(self, candidate: C) -> tuple[float, float] | None:
        """What the model expects of a candidate in its pool, once it is fitted."""
        model = self._model()
        row = model.row.get(candidate)
        if row is None or not self.measured:
            return None
        mean, deviation = model.estimate()
        return float(mean[row]), float(deviation[row])

    def best(self) -> C | None:
        """The current choice: the measured candidate with the smallest expected, not the smallest measured time."""
        return next(iter(self.ranked(1)), None)

    def ranked(self, number: int) -> list[C]:
        """At most `number` measured candidates, by expected time."""
        model = self._model()
        rows = self._rows(model, _TIMED)
        order = rows[np.argsort(model.estimate()[0][rows], kind="stable")]
        return [model.candidates[int(row)] for row in order[:number]]

    def doubt(self, share: float) -> float:
        """Probability that an unmeasured candidate is faster than the current choice by more than this share.

        If the space is not simulated as a whole, only the pool is considered, which holds the best candidates that
        local search has found.
        """
        model = self._model()
        open_, timed = self._rows(model, _OPEN), self._rows(model, _TIMED)
        return model.doubt(open_, timed, share) if len(open_) and len(timed) else float(not len(timed))

    # ---- pool ---------------------------------------------------------------------------

    @property
    def _whole(self) -> bool:
        size = self.domain.size()
        return size is not None and size <= WHOLE

    def _model(self) -> Surrogate[C]:
        """All candidates of a small domain; else a sample that grows around the fastest."""
        if self._built is None:
            model = self._built = self.domain.surrogate()
            model.extend(self.domain if self._whole else self._sample())
            # Those that are not in the sample, all at once: each addition copies the arrays.
            model.extend(candidate for candidate, _ in self.before)
            for candidate, sample in self.before:
                self.observe(candidate, sample)
        if not self._whole and self.measured - self.grown_with >= RENEW:
            self.grown_with = self.measured
            self._grow(self._built)
        return self._built

    def _sample(self) -> Iterator[C]:
        """Every third is drawn, three of four of these by what is known beforehand. Each is followed by a neighbour and
        a neighbour of that: a draw from a large space takes up to a hundred times as long."""
        for number in range(-(-self.domain.sampled // WALKED)):
            drawn = self.domain.likely(self.random) if number % UNLIKELY_EVERY else self.domain.sample(self.random)
            yield drawn
            for _ in range(WALKED - 1):
                drawn = self.domain.near(drawn, self.random)
                yield drawn

    def _grow(self, model: Surrogate[C]) -> None:
        """Local search on the model: add neighbours of the expected fastest, measured or not.

        After each fit, also search on the simulation alone, deeper. What was learned of its error holds for similar
        candidates only: around those that were measured it discourages all others, however fast they are simulated.
        """
        for _ in range(ROUNDS):
            mean, deviation = model.estimate()
            self._add_near(model, [*_least(mean - deviation, FASTEST), *_least(mean, FASTEST)])
        if model.fits != self.fits:
            self.fits = model.fits
            for _ in range(DEEP):
                self._add_near(model, _least(model.fitted(), 2 * FASTEST))
        open_ = self._rows(model, _OPEN)
        if len(open_) > MOST:
            mean, deviation = model.estimate()
            states = dict(zip(model.candidates, self._states, strict=False))
            hopeful = open_[_least((mean - deviation)[open_], LEFT)]
            simulated = open_[_least(model.fitted()[open_], SIMULATED)]
            # What was measured stays, whatever the model expects of it now.
            measured = [*self._rows(model, _TIMED), *self._rows(model, _FAILED)]
            model.keep(sorted({int(row) for row in (*hopeful, *simulated, *measured)}))
            self._states = bytearray(states.get(c, _OPEN) for c in model.candidates)

    def _add_near(self, model: Surrogate[C], rows: Iterable[int]) -> None:
        """Add neighbours of the candidates in these rows."""
        starts = [model.candidates[int(row)] for row in rows]
        near = [self.domain.near(self.random.choice(starts), self.random) for _ in range(GROWTH)]
        for begin in range(0, GROWTH, DRAWN):
            near += model.improved(near[begin : begin + DRAWN], self.random)
        model.extend(c for c in near if c not in self.closed)

    def _rows(self, model: Surrogate[C], state: int) -> Numbers:
        """Rows of the pool in this state, ascending."""
        self._states.extend(bytes(max(0, len(model.candidates) - len(self._states))))
        return np.flatnonzero(np.frombuffer(self._states, dtype=np.uint8) == state)

    def _fair(self) -> C | None:
        """A uniformly random candidate that is not measured yet."""
        size = self.domain.size()
        if size is not None and len(self.closed.union(self.awaited)) >= size:
            return None
        self.fair += 1
        for _ in range(1000):
            candidate = self.domain.sample(self.random)
            if self.fair % UNIFORM_EVERY and self._built is not None:  # uniform in what the model does not know apart
                candidate = next(iter(self._built.improved([candidate], self.random)), candidate)
            if candidate not in self.closed and candidate not in self.awaited:
                return candidate
        return next((c for c in self.domain if c not in self.closed and c not in self.awaited), None)


def _least(values: Array, number: int) -> Numbers:
    """Where the smallest values are, in their order."""
    return np.argsort(np.round(values, DIGITS), kind="stable")[:number]
