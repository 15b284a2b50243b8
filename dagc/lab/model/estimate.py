"""What the model expects of every candidate of a pool.

A time is a sum of costs along a path through the simulation. Which path, the costs fitted last say; with paths given
it is linear in the costs, so what is known of the costs and what the simulation misses are one Gaussian process
(`dagc.lab.model.process`): it separates what a candidate would teach about costs from what it would about itself alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import ThreadpoolController

from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.model.fit import SPREAD, fit_costs
from dagc.lab.model.pool import Pool
from dagc.lab.model.process import Process

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[np.float64]]

NOISE = 0.02  # relative standard deviation of a measurement
SIGNAL = 0.06  # relative standard deviation of what the simulation misses
LENGTH = 0.15  # share of bits over which that is alike
BLOCK = 512  # rows whose paths are found at once: they take (moments, rows, costs) numbers


class Model:
    """The pool of a search, and what was measured of it. Times are in microseconds."""

    def __init__(self, spaces: Sequence[ConfiguredSpace]) -> None:
        self.pool = Pool(spaces)
        self.times: dict[Candidate, list[float]] = {}
        self._process = Process(self.pool.bits, signal=SIGNAL, noise=NOISE, length=LENGTH)
        self._prior: Array = np.array(self.pool.costs.prior)
        self._costs = self._prior
        self._fitted_with = 0
        self._level = 1.0  # median of the times when the costs were fitted
        self._observed: list[float] = []  # every observation of the process
        self._fresh: list[tuple[Candidate, float]] = []  # measurements that are not in the model yet
        self._simulated: Array | None = None  # per row of the pool: prior costs along the paths of the fitted ones
        self._estimate: tuple[Array, Array] | None = None
        # The arrays are small. Threads of BLAS would gain little on an idle machine, and on one whose cores are taken,
        # as by ranks that poll, they wait for each other a hundred times longer than they work.
        self._threads = ThreadpoolController()

    @property
    def candidates(self) -> Sequence[Candidate]:
        return self.pool.candidates

    @property
    def row(self) -> Mapping[Candidate, int]:
        return self.pool.row

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
        process, rows = self._process, [self.pool.row[c] for c, _ in self._fresh]
        self._observed += [time for _, time in self._fresh]
        self._fresh.clear()
        if self._due():
            self._fit()
        if self._simulated is None:
            process.observed += rows
            expected = self._simulated = self._rebuild()
        else:
            expected = self._simulated
            process.observe(rows)
        left = (np.array(self._observed) - expected[process.observed]) / self._level
        missing, deviation = process.posterior(left)
        return expected + self._level * missing, self._level * deviation

    def _rebuild(self) -> Array:
        """The paths of all, with the costs fitted last; times along them with the prior costs."""
        blocks = np.array_split(np.arange(len(self.pool)), 1 + len(self.pool) // BLOCK)
        paths = np.concatenate([self.pool.batch.paths(self._costs, block)[1] for block in blocks])
        simulated = paths @ self._prior
        if not self.times:
            self._level = float(np.median(simulated))
        self._process.rebuild((paths * (SPREAD * self._prior / self._level)).astype(np.float32))
        return simulated

    def _due(self) -> bool:
        """Fitting costs more than the rest: at first every time, then each time that half as much again is known."""
        measured = len(self.times)
        return measured > self._fitted_with and (measured <= 6 or measured >= 1.5 * self._fitted_with)

    def _fit(self) -> None:
        rows = np.array([self.pool.row[c] for c in self.times])
        values = np.array([fmean(times) for times in self.times.values()])
        self._level = float(np.median(values))
        self._costs = fit_costs(
            lambda costs: self.pool.batch.paths(costs, rows), self._prior, self._costs, values, 2 * NOISE * self._level
        )
        self._fitted_with, self._simulated = len(rows), None
