"""What the model expects of every candidate of a pool: the fitted simulation, corrected by a Gaussian process."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import ThreadpoolController

from dagc.search.domain import Candidate, Domain
from dagc.search.model.fit import fit_costs
from dagc.search.model.pool import Pool
from dagc.search.model.process import Process

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[np.float64]]

NOISE = 0.02  # relative standard deviation of a measurement
SIGNAL = 0.06  # relative standard deviation of what the simulation misses
LENGTH = 0.15  # share of bits over which that is alike
UNKNOWN = 0.3  # relative standard deviation of a simulated time before anything is measured


class Model:
    """The pool of a search, and what was measured of it. Times are in microseconds."""

    def __init__(self, domain: Domain) -> None:
        self.pool = Pool(domain)
        self.times: dict[Candidate, list[float]] = {}
        self._process = Process(self.pool.bits, signal=SIGNAL, noise=NOISE, length=LENGTH)
        self._prior: Array = np.array(self.pool.costs.prior)
        self._costs = self._prior
        self._fitted_with = 0
        self._level = 1.0  # median of the times when the costs were fitted
        self._observed: list[float] = []  # every observation of the process
        self._fresh: list[tuple[Candidate, float]] = []  # what it has not been told yet
        self._simulated: Array | None = None  # per row of the pool, with the costs fitted last
        self._estimate: tuple[Array, Array] | None = None
        # The arrays are small. Threads of BLAS would gain little on an idle machine, and on one whose cores are taken,
        # as by ranks that poll, they wait for each other a hundred times longer than they work.
        self._threads = ThreadpoolController()

    def extend(self, candidates: Iterable[Candidate]) -> None:
        """Candidates that the pool does not have yet are added to it."""
        with self._threads.limit(limits=1, user_api="blas"):
            self._process.extend(self.pool.extend(candidates))
        self._simulated = self._estimate = None

    def observe(self, candidate: Candidate, time: float) -> None:
        """A measurement of a candidate, which must be in the pool when the next estimate is asked for."""
        self.times.setdefault(candidate, []).append(time)
        self._fresh.append((candidate, time))
        self._estimate = None

    def estimate(self) -> tuple[Array, Array]:
        """Expected time of each row of the pool, and its standard deviation."""
        if self._estimate is None:
            with self._threads.limit(limits=1, user_api="blas"):
                self._estimate = self._make_estimate()
        return self._estimate

    def incumbent(self) -> float:
        """The smallest expected time of what was measured; infinite where nothing was."""
        rows = self._process.observed
        return float(self.estimate()[0][rows].min()) if rows else math.inf

    def _make_estimate(self) -> tuple[Array, Array]:
        process = self._process
        process.observe([self.pool.row[c] for c, _ in self._fresh])
        self._observed += [time for _, time in self._fresh]
        self._fresh.clear()
        if self._due():
            self._fit()
        if self._simulated is None:
            self._simulated = self.pool.batch.times(self._costs)
        expected = self._simulated
        if not self.times:
            return expected, UNKNOWN * expected
        left = (np.array(self._observed) - expected[process.observed]) / self._level
        missing, deviation = process.posterior(left)
        return expected + self._level * missing, self._level * deviation

    def _due(self) -> bool:
        """Fitting costs more than the rest: at first every time, then each time that a quarter more is known."""
        return len(self.times) > self._fitted_with and (
            len(self.times) <= 4 or len(self.times) >= 1.25 * self._fitted_with
        )

    def _fit(self) -> None:
        rows = np.array([self.pool.row[c] for c in self.times])
        values = np.array([fmean(times) for times in self.times.values()])
        self._level = float(np.median(values))
        self._costs = fit_costs(
            lambda costs: self.pool.batch.paths(costs, rows), self._prior, self._costs, values, 2 * NOISE * self._level
        )
        self._fitted_with, self._simulated = len(rows), None
