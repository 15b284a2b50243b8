"""The expected time of every candidate of a pool.

A time is a sum of costs along the critical path of the simulation. The path is that of the costs fitted last; with the
path fixed, the time is linear in the costs. The uncertainty of the costs and the error of the simulation are therefore
one Gaussian process (`dagc.lab.model.process`), which separates what a measurement says about the costs from what it
says about its candidate alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

import numpy as np
from scipy.linalg import solve_triangular
from threadpoolctl import ThreadpoolController

from dagc.base.python import Array, Numbers
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.model.calibrate import MeasuredRows, assumed, scaled
from dagc.lab.model.features import CandidateFeatures
from dagc.lab.model.pool import Pool
from dagc.lab.model.process import OUTLIER, Deviations, Process

NOISE = 0.02  # relative standard deviation of a measurement
SIGNAL = 0.06  # relative standard deviation of the error of the simulation
# Candidates for maximum likelihood; the last: what a candidate has that those like it do not have.
NOISES, SIGNALS, OWNS = (0.01, 0.02, 0.04), (0.06, 0.12, 0.24, 0.48), (0.0, 0.01, 0.02, 0.04)
AGREED = 4.0  # largest difference of two measurements without a disturbance, in standard deviations
LENGTH = 0.15  # correlation length of the error, as a share of the bits
BLOCK = 512  # rows whose paths are computed at once: they need several arrays of shape (instructions, rows)
ADAPTED = 12  # measurements before signal and noise are chosen by likelihood
LEARNED_FROM = 200  # measurements from elsewhere: half of them the fastest
SCALED_UP_TO = 13  # measurements; then the prior costs stay
ASSUMED_FROM, ASSUMED_UP_TO = 20, 48  # measurements between which the assumptions of the simulation are chosen
SUSPECTED = 10.0  # levels added to the expected time of a candidate with a suspected launch setting
MOST = 400  # observations held by the process: the cost of one more grows with their number
FASTEST = 250  # of them, the fastest; the others are drawn evenly from the rest


class Model:
    """The pool of a search and its measurements. Times and costs are in seconds."""

    def __init__(self, spaces: Sequence[ConfiguredSpace], learned: Array | None = None) -> None:
        """`learned`: costs fitted to measurements of these spaces elsewhere. They are one of the priors among which the
        measurements choose, so they can be rejected."""
        self.pool = Pool(spaces)
        self.times: dict[Candidate, list[float]] = {}
        self._features = CandidateFeatures(spaces)
        self._process = Process(self._features.number, Deviations(SIGNAL, NOISE), length=LENGTH)
        self._learned = learned
        self._prior = self.pool.prior if learned is None else learned  # scaled once something is measured
        self._costs = self._prior
        self._fitted_with, self.fits = 0, 0
        self._level = 1.0  # median of the times when the costs were fitted
        self._observed: list[tuple[Candidate, float]] = []  # every observation of the process
        self._taken: list[float] = []  # the same without outliers
        self._series: list[list[float]] = []  # all times of the candidate of each
        # Measured once, so unexpectedly that it is not believed: by how much.
        self._clipped: dict[Candidate, float] = {}
        self._fresh: list[tuple[Candidate, float]] = []  # measurements that are not in the model yet
        self._fitted: Array = np.zeros(0)  # per row, of the first ones: the simulated time under the fitted costs
        self._simulated: Array | None = None  # per row of the pool: prior costs along the paths of the fitted costs
        self._estimate: tuple[Array, Array] | None = None
        self._precision_root: Array | None = None  # of the fitted costs, each in its deviations before measuring
        # The arrays are small. Threads of BLAS gain little on an idle machine; on a machine whose cores are busy, for
        # example with polling ranks, they wait for each other a hundred times longer than they work.
        self._blas = ThreadpoolController().select(user_api="blas").lib_controllers

    @property
    def costs(self) -> Array:
        """The costs fitted last, in seconds, above 0."""
        return self.pool.above(self._costs, self._prior)

    @property
    def _centre(self) -> Array:
        """The costs of `_expected`."""
        return self.costs if self.pool.has_settings else self._prior

    @property
    def candidates(self) -> Sequence[Candidate]:
        return self.pool.candidates

    @property
    def row(self) -> Mapping[Candidate, int]:
        return self.pool.row

    def extend(self, candidates: Iterable[Candidate]) -> None:
        """Add the candidates that are not in the pool yet."""
        if self.pool.extend(candidates):
            self._estimate = None

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows of the pool except these and those held by the process."""
        self._catch_up()
        needed = {self.pool.row[c] for c, _ in (*self._observed, *self._fresh)}
        left = np.array(sorted(needed.union(map(int, rows))), dtype=np.int64)
        self.pool.keep(left)
        self._process.keep(left)
        if self._simulated is not None:
            self._simulated = self._simulated[left]
        self._fitted = self._fitted[left[left < len(self._fitted)]]
        self._estimate = None

    def observe(self, candidate: Candidate, time: float) -> None:
        """Add a measurement of a candidate, which must be in the pool at the next estimate."""
        self.times.setdefault(candidate, []).append(time)
        self.pool.clear(candidate)
        self._fresh.append((candidate, time))
        self._estimate = None

    def fail(self, candidate: Candidate) -> None:
        """Suspect each launch setting of a failed candidate, until a candidate with it can be measured."""
        self.pool.suspect(candidate)
        self._estimate = None

    def estimate(self) -> tuple[Array, Array]:
        """Expected time of each row of the pool, and its standard deviation."""
        if self._estimate is None:
            with self._one_thread():
                self._estimate = self._make_estimate()
        return self._estimate

    def deviation_after(self, rows: Sequence[int]) -> Array:
        """Standard deviation of each row of the pool once these rows are measured too."""
        deviation = self.estimate()[1]
        with self._one_thread():
            return np.minimum(deviation, self._level * self._process.deviation_after([*rows]))

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """As `ThreadpoolController.limit`, which asks each library for its name and version first, every time."""
        several = [(library, n) for library in self._blas if (n := library.get_num_threads()) != 1]
        for library, _ in several:
            library.set_num_threads(1)
        try:
            yield
        finally:
            for library, threads in several:
                library.set_num_threads(threads)

    @property
    def noise(self) -> float:
        """Standard deviation of one measurement."""
        return self._process.deviations.noise * self._level

    def doubt(self, unmeasured: Numbers, measured: Numbers, share: float) -> float:
        """Probability that a row of `unmeasured` is faster than the best of `measured` by more than this share."""
        mean, _ = self.estimate()
        with self._one_thread():
            return self._process.doubt(mean / self._level, unmeasured, measured, share)

    # ---- the process --------------------------------------------------------------------

    def _make_estimate(self) -> tuple[Array, Array]:
        if self._due():
            self._fit()
        self._catch_up()
        if self._simulated is None:
            self._rebuild()
        elif any(candidate in self._clipped for candidate, _ in self._fresh):
            self._rebuild()  # it is known now whether the first measurement was disturbed
        elif self._fresh:
            self._add()
        assert self._simulated is not None
        missing, deviation = self._process.posterior(self._left(self._taken))
        expected, deviation = self._simulated + self._level * missing, self._level * deviation
        rows = [self.pool.row[candidate] for candidate in self._clipped]
        deviation[rows] = np.maximum(deviation[rows], list(self._clipped.values()))
        return expected + SUSPECTED * self._level * self.pool.suspected, deviation

    def _catch_up(self) -> None:
        """Add the candidates that the pool has gained to the process, all at once."""
        known, process = len(self._process), self._process
        if known == len(self.pool):
            return
        bits = self._features.of(self.pool.candidates[known:])
        if self._simulated is None:
            process.extend(bits)
            return
        simulated, paths = self.pool.paths(self._costs, slice(known, None))
        process.append(bits, paths * (self.pool.spread(self._centre) / self._level))
        self._simulated = np.concatenate([self._simulated, self._expected(simulated, paths)])

    def _left(self, times: Sequence[float]) -> Array:
        """The residuals of the simulation for the observations, relative to the level."""
        assert self._simulated is not None
        return np.asarray((np.array(times) - self._simulated[self._process.observed]) / self._level)

    def _add(self) -> None:
        """Add the fresh measurements, each clipped to a plausible range of the model."""
        process = self._process
        assert self._simulated is not None
        rows = [self.pool.row[c] for c, _ in self._fresh]
        missing, deviation = process.posterior(self._left(self._taken), rows)
        for i, (candidate, time) in enumerate(self._fresh):
            middle = self._simulated[rows[i]] + self._level * missing[i]
            limit = OUTLIER * self._level * math.hypot(deviation[i], process.deviations.noise)
            self._observed.append((candidate, time))
            self._series.append(self.times[candidate])
            agreed = self._is_agreed(time, self._series[-1])
            self._taken.append(time if agreed else float(min(max(time, middle - limit), middle + limit)))
        process.observe(rows)
        self._fresh.clear()
        self._clip()

    def _rebuild(self) -> None:
        """Recompute everything: the observations held, paths of costs fitted since, signal and noise, outliers."""
        process, known, simulated = self._process, self._observed, self._simulated
        held = _held([*known, *self._fresh])
        extended = simulated is not None and held[: len(known)] == known  # else some of these are dropped
        self._observed = held
        self._fresh.clear()
        if simulated is None:
            simulated = self._simulate()
        new = held[len(known) if extended else 0 :]
        rows = [*(process.observed if extended else []), *(self.pool.row[c] for c, _ in new)]
        self._series = [*(self._series if extended else []), *(self.times[c] for c, _ in new)]
        times = [t for _, t in held]
        usual = process.deviations
        if len(rows) >= ADAPTED:
            process.adapt(rows, (np.array(times) - simulated[rows]) / self._level, SIGNALS, NOISES, OWNS)
        self._simulated = simulated
        if extended and process.deviations == usual:  # the same factorisation, with these in addition
            process.observe(rows[len(known) :])
        else:
            process.observed = rows
            process.rebuild(process.paths)
        taken = process.without_outliers(self._left(times)) if rows else np.zeros(0)
        self._taken = [
            time if len(series) > 1 and self._is_agreed(time, series) else cut
            for time, series, cut in zip(
                times, self._series, (taken * self._level + simulated[rows]).tolist(), strict=True
            )
        ]
        self._clip()

    def _simulate(self) -> Array:
        """The expected times of all rows under the fitted costs. Sets the paths of the process."""
        blocks = np.array_split(np.arange(len(self.pool)), 1 + len(self.pool) // BLOCK)
        simulated, parts = zip(*(self.pool.paths(self._costs, block) for block in blocks), strict=True)
        paths = np.concatenate(parts)
        expected = self._expected(np.concatenate(simulated), paths)
        if not self.times:
            self._level = float(np.median(expected))
        self._process.follow(paths * (self.pool.spread(self._centre) / self._level))
        return expected

    def _is_agreed(self, time: float, times: list[float]) -> bool:
        """Whether another measurement of the candidate with these times gave the same within the noise: then it was not
        disturbed, however unexpected it is."""
        within = AGREED * self._process.deviations.noise * time
        return len(times) > 1 and sum(abs(other - time) <= within for other in times) > 1

    def _clip(self) -> None:
        """Note the candidates of which the only measurement was clipped: it may be the model that is wrong, so they are
        uncertain by the difference and are measured again where that matters."""
        parts = zip(self._observed, self._taken, self._series, strict=True)
        self._clipped = {c: abs(t - taken) for (c, t), taken, times in parts if taken != t and len(times) == 1}

    def _expected(self, simulated: Array, paths: Array) -> Array:
        """The reference of the process: times of the prior costs along the paths; with launch settings, times of the
        fitted costs, which may be far from their prior and on which times do not depend linearly."""
        return simulated if self.pool.has_settings else np.asarray(paths @ self._prior)

    def _due(self) -> bool:
        """Whether to fit again: at first always, then each time the number of measurements has grown by half."""
        measured = len(self.times)
        enough = min(1.5 * self._fitted_with, self._fitted_with + MOST / 2)
        return measured > self._fitted_with and (measured <= 6 or measured >= enough)

    def _fit(self) -> None:
        held = _held([*self._observed, *self._fresh])
        cut = dict(zip(self._observed, self._taken, strict=False))
        rows = np.array([self.pool.row[c] for c, _ in held])
        values = np.array([cut.get(one, one[1]) for one in held])
        self._level = float(np.median(values))
        measured = MeasuredRows(rows, values, self._level, self._learned)
        found = None
        if len(self.times) >= ASSUMED_FROM and self._fitted_with < ASSUMED_UP_TO:
            other = assumed(self.pool, measured)
            if other.pool.assumptions != self.pool.assumptions:
                self.pool, found = self.pool.under(other.pool.assumptions), other
        if found is None and self._fitted_with < SCALED_UP_TO:
            found = scaled(self.pool, measured)
        if found is not None:
            self._prior, self._costs = found.prior, found.costs
        costs = measured.fitted([self.pool], self._prior[None], self._costs[None])[0]
        self._costs = costs if np.isfinite(costs).all() else self._prior  # a fit that diverges says nothing
        self.fits += 1
        self._fitted_with, self._simulated, self._fitted = len(self.times), None, np.zeros(0)
        if self.pool.has_settings:
            self._precision_root = self._root_of_precision(rows)

    def _root_of_precision(self, rows: Numbers) -> Array:
        """Upper root of the inverse covariance of the fitted costs, each in its deviations before measuring. By QR: the
        product of the table with itself loses the smallest eigenvalues where costs are far apart."""
        deviation = math.hypot(2 * NOISE, self._process.deviations.signal) * self._level
        table = self.pool.paths(self._costs, rows)[1] * (self.pool.spread(self._centre) / deviation)
        return np.asarray(np.linalg.qr(np.concatenate([table, np.eye(table.shape[1])]), mode="r"))

    def fitted(self) -> Array:
        """The simulated time of each row of the pool, under the costs fitted last."""
        known, total = len(self._fitted), len(self.pool)
        if known < total:
            self._fitted = np.concatenate([self._fitted, self.pool.times(self.costs, slice(known, None))])
        return self._fitted

    def improved(self, candidates: Sequence[Candidate], random: Random) -> list[Candidate]:
        """The candidates with the launch settings that are fastest in a draw of the costs; empty without settings."""
        if not self.pool.has_settings:
            return []
        drawn = np.array([random.gauss(0, 1) for _ in self._costs])
        root = self._precision_root
        spread, own = (self._prior, drawn) if root is None else (self._centre, solve_triangular(root, drawn))
        costs = self._costs + self.pool.spread(spread) * own
        costs = self.pool.above(costs, self._prior)
        return [self.pool.improved(candidate, costs) for candidate in candidates]


def costs_of(spaces: Sequence[ConfiguredSpace], measured: Sequence[tuple[Candidate, float]]) -> Array:
    """Costs fitted to measurements of candidates (at least one). Seconds."""
    ranked = sorted(measured, key=lambda pair: pair[1])
    others = ranked[LEARNED_FROM // 2 :]
    step = max(1, 2 * len(others) // LEARNED_FROM)
    model = Model(spaces)
    chosen = [*ranked[: LEARNED_FROM // 2], *others[::step]]
    model.extend([candidate for candidate, _ in chosen])
    for candidate, seconds in chosen:
        model.observe(candidate, seconds)
    model.estimate()
    return model.costs


def _held(observed: list[tuple[Candidate, float]]) -> list[tuple[Candidate, float]]:
    """The observations held by the process, in order: all, or the fastest and an even sample of the others."""
    if len(observed) <= MOST:
        return observed
    ranked = sorted(range(len(observed)), key=lambda i: observed[i][1])
    others = ranked[FASTEST:]
    step = len(others) / (MOST - FASTEST)
    chosen = ranked[:FASTEST] + [others[int(i * step)] for i in range(MOST - FASTEST)]
    return [observed[i] for i in sorted(chosen)]
