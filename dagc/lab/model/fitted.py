"""Simulated times of implementations, with costs fitted to measurements of some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dagc.lab.candidate import Candidate
from dagc.lab.model.fit import fit_costs
from dagc.lab.model.pool import Pool
from dagc.lab.orders import Orders

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

DEVIATION = 0.04  # relative standard deviation of a measurement and of the simulation


class Fitted:
    """A simulation of distinct candidates, of which the first `measured` have times."""

    def __init__(self, domain: Orders, candidates: Sequence[Candidate], measured: int) -> None:
        self._pool = Pool(domain.spaces)
        self._pool.extend(candidates)
        self._measured = measured

    def __call__(self, seconds: Array, weights: Array) -> Array:
        """The simulated time of every candidate, in seconds.

        `seconds`: times of the measured candidates; `weights`: of each in the fit.
        """
        import numpy as np

        pool = self._pool
        prior, rows, times = pool.prior, np.arange(self._measured), seconds * 1e6
        deviation, spread = DEVIATION * float(np.median(times)), pool.spread(prior)
        costs = fit_costs(lambda costs: pool.paths(costs, rows), prior, prior, times, deviation, weights, spread)
        return pool.times(costs) * 1e-6
