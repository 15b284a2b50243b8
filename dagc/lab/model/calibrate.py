"""Prior costs and assumptions of the simulation, adapted to a machine by the first measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import solve_triangular

from dagc.lab.model.fit import DIGITS, fit_costs
from dagc.lab.model.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagc.lab.candidate import Candidate, ConfiguredSpace
    from dagc.lab.model.simulate import Assumptions

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]

DEVIATION = 0.04  # relative standard deviation of a measurement and of the simulation
SPREADS = (0.7, 3.0, 1.2)  # of the logarithms of the factors (`_factors`), in standard deviations
SCALES, STEPS, LARGEST = (0.01, 1000.0), 4, 1.5  # of a factor: range, Newton steps, their length (logarithm)
# Other starts (logarithms): work slower or faster than expected, with messages or without.
STARTS = ((0.0, 3.0, 0.0), (0.0, -3.0, 0.0), (0.0, 3.0, -3.0), (0.0, -3.0, 3.0))
SCALED_BY = 24  # measurements that choose the factors
JUDGED_BY = 48  # measurements that choose the assumptions
CLEARLY = 2.0  # least decrease of the misfit required to adopt other assumptions, or costs fitted elsewhere
EXACT = 6  # decimals of a density and of logarithms of factors: linear algebra libraries differ in the last bits
EXPLAINED = 2.0  # the largest misfit per measurement under them; costs with a larger misfit do not decide


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """Times in seconds of rows of a pool, their median, and costs that were fitted elsewhere. `weights`: those of
    the squared residuals, less than 1 for a possible outlier (default: 1)."""

    rows: Numbers
    times: Array
    level: float
    learned: Array | None = None
    weights: Array | None = None

    def fitted(self, pool: Pool, prior: Array, start: Array) -> Array:
        """The costs that explain the times, each near its prior."""
        return fit_costs(
            lambda costs: pool.paths(costs, self.rows), prior, start, self.times, DEVIATION * self.level,
            weights=self.weights, spread=pool.spread(prior), heavy=pool.heavy,
        )  # fmt: skip

    def misfit(self, pool: Pool, prior: Array, costs: Array) -> float:
        """Squared deviations of times, each at most 9, and of costs from their prior, in standard deviations."""
        off = (self.times - pool.times(costs, self.rows)) / (DEVIATION * self.level)
        far = (costs - prior) / pool.spread(prior)
        each = 1.0 if self.weights is None else self.weights
        return float((each * np.minimum(off**2, 9.0)).sum() + (far**2).sum())

    def some(self, most: int) -> MeasuredRows:
        """At most this many of them, evenly drawn."""
        chosen = np.unique(np.linspace(0, len(self.rows) - 1, most).astype(np.int64))
        weights = None if self.weights is None else self.weights[chosen]
        return replace(self, rows=self.rows[chosen], times=self.times[chosen], weights=weights)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Prior and fitted costs of a pool in seconds, and how badly they explain the measurements."""

    pool: Pool
    prior: Array
    costs: Array
    misfit: float


def scaled(pool: Pool, measured: MeasuredRows) -> Calibration:
    """Scale the prior costs to this machine and problem size, then fit each.

    Costs that were fitted elsewhere are scaled, too, and are used if they explain the measurements clearly better than
    the usual ones.
    """
    usual = _scaled(pool, measured, pool.prior)
    if measured.learned is None:
        return usual
    learned = _scaled(pool, measured, measured.learned)
    return learned if learned.misfit + CLEARLY < usual.misfit else usual


def _scaled(pool: Pool, measured: MeasuredRows, base: Array) -> Calibration:
    """The calibration with these prior costs, multiplied by the factors of a maximum of the posterior density.

    Each cost and each error of a model of launch settings may deviate from its scaled prior by its own spread. This
    deviation counts as an error of the times, so that an op or a setting far from its prior does not set the factors.

    Critical paths change with the factors, so the density has several maxima. Two are sought, one from factors of 1,
    and the one is taken whose fitted costs explain the measurements better.
    """
    some = measured.some(SCALED_BY)
    deviation, spread = DEVIATION * measured.level, np.array(SPREADS)
    design = _factors(pool)
    noise = np.eye(len(some.rows)) if some.weights is None else np.diag(1 / some.weights)

    def at(logs: Array) -> tuple[float, Array, Array]:
        """Minus twice the logarithm of the density, up to a constant; the logarithms of the factors; the next step,
        Gauss and Newton's for these paths and this covariance."""
        prior = base * np.exp(design @ logs)
        times, paths = pool.paths(prior, some.rows)
        table, single = paths @ (prior[:, None] * design) / deviation, paths * pool.spread(prior) / deviation
        root = np.linalg.cholesky(noise + single @ single.T)
        off = solve_triangular(root, (some.times - times) / deviation, lower=True)
        table = solve_triangular(root, table, lower=True)
        step = np.linalg.solve(table.T @ table + np.diag(spread**-2), table.T @ off - logs / spread**2)
        density = off @ off + 2 * np.log(np.diag(root)).sum() + ((logs / spread) ** 2).sum()
        return round(float(density), EXACT), logs, np.clip(step, -LARGEST, LARGEST)

    def fitted(best: tuple[float, Array, Array]) -> Calibration:
        """From the maximum found from these factors. A step that does not increase the density is halved."""
        size = 1.0
        for _ in range(STEPS):
            found = at(np.clip(best[1] + size * best[2], *np.log(SCALES)))
            best, size = (found, min(1.0, 2 * size)) if found[0] < best[0] else (best, size / 2)
        logs = np.round(best[1], EXACT)
        prior = np.round(base * np.exp(design @ logs), DIGITS)
        costs = measured.fitted(pool, prior, prior)
        misfit = measured.misfit(pool, prior, costs) + float(((logs / spread) ** 2).sum())
        return Calibration(pool, prior, costs, round(misfit, 3))

    other = min((at(np.array(logs)) for logs in STARTS), key=itemgetter(0))
    return min(fitted(at(np.zeros(len(SPREADS)))), fitted(other), key=attrgetter("misfit"))


def _factors(pool: Pool) -> Array:
    """1 where a factor multiplies a parameter: of calls of the CPU, of work, of messages; shape (parameters, 3)."""
    work, sent = np.array(pool.work()), np.array(pool.sent())
    call = ~work & ~np.array(pool.timed()) & (np.arange(len(work)) < len(pool.costs.prior))
    return np.stack([call, work, sent], axis=1).astype(float)


def assumed(pool: Pool, measured: MeasuredRows) -> Calibration:
    """The calibration under the assumptions of the pool, or under others (with their own pool) if these explain the
    measurements clearly better. One assumption is changed after the other."""
    some = measured.some(JUDGED_BY)
    candidates = [pool.candidates[int(row)] for row in some.rows]

    def judged(under: Pool) -> Calibration:
        return scaled(under, replace(some, rows=np.array([under.row[candidate] for candidate in candidates])))

    def better(best: Calibration, others: Iterable[Assumptions]) -> Calibration:
        for other in others:
            rival = Pool(pool.spaces, other)
            rival.extend(candidates)
            found = judged(rival)
            if found.misfit + CLEARLY < best.misfit and found.misfit <= EXPLAINED * len(candidates):
                best = found
        return best

    best = judged(pool)
    if pool.has_streams:
        best = better(best, best.pool.assumptions.on_the_gpu)
    if pool.has_messages:
        best = better(best, best.pool.assumptions.on_messages)
    return best


def fitted_simulation(
    spaces: Sequence[ConfiguredSpace], candidates: Sequence[Candidate], measured: int
) -> Callable[[Array, Array], Array]:
    """A function `(seconds, weights)` that simulates all `candidates`, in seconds. They are distinct.

    `seconds`: times of the first `measured` of them, to which costs and assumptions are adapted; `weights`: those in
    the fit.
    """
    usual = Pool(spaces)
    usual.extend(candidates)
    rows = np.array(Random(0).sample(range(measured), measured))  # neighbours in the list are alike
    pools = {usual.assumptions: usual}

    def simulate(seconds: Array, weights: Array) -> Array:
        known = MeasuredRows(rows, seconds[rows], float(np.median(seconds)), weights=weights[rows])
        found = assumed(usual, known)
        assumptions = found.pool.assumptions
        pool = pools.setdefault(assumptions, pools.get(assumptions) or usual.under(assumptions))
        return pool.times(known.fitted(pool, found.prior, found.costs))

    return simulate
