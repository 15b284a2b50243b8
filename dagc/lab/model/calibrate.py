"""Prior costs and assumptions of the simulation, adapted to a machine by the first measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from dagc.base.python import Array, Numbers
from dagc.lab.model.fit import DIGITS, fit_costs
from dagc.lab.model.pool import Pool, PoolRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagc.lab.candidate import Candidate, ConfiguredSpace
    from dagc.lab.model.simulate import Assumptions

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

    def fitted(self, pools: Sequence[Pool], prior: Array, start: Array) -> Array:
        """The costs that explain the times, each near its prior, of each of the pools: shape (pools, parameters)."""
        return fit_costs(
            PoolRows([(pool, self.rows) for pool in pools]).paths, prior, start, self.times, DEVIATION * self.level,
            weights=self.weights, spread=pools[0].spread(prior), heavy=pools[0].heavy,
        )  # fmt: skip

    def misfit(self, pools: Sequence[Pool], prior: Array, costs: Array) -> Array:
        """Squared deviations of times, each at most 9, and of costs from their prior, in standard deviations."""
        times = PoolRows([(pool, self.rows) for pool in pools]).times(costs)
        off = (self.times - times) / (DEVIATION * self.level)
        far = (costs - prior) / pools[0].spread(prior)
        each = 1.0 if self.weights is None else self.weights
        return np.asarray((each * np.minimum(off**2, 9.0)).sum(axis=1) + (far**2).sum(axis=1))

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
    return _scaled([pool], measured)[0]


def _scaled(pools: Sequence[Pool], measured: MeasuredRows) -> list[Calibration]:
    """Of each pool; all share their costs, and have the candidates that were measured in the same rows."""
    usual = _calibrated(pools, measured, np.stack([pool.prior for pool in pools]))
    if measured.learned is None:
        return usual
    learned = _calibrated(pools, measured, np.stack([measured.learned] * len(pools)))
    pairs = zip(usual, learned, strict=True)
    return [there if there.misfit + CLEARLY < here.misfit else here for here, there in pairs]


def _calibrated(pools: Sequence[Pool], measured: MeasuredRows, base: Array) -> list[Calibration]:
    """The calibration of each pool with these prior costs, multiplied by the factors of a maximum of the posterior
    density.

    Each cost and each error of a model of launch settings may deviate from its scaled prior by its own spread. This
    deviation counts as an error of the times, so that an op or a setting far from its prior does not set the factors.

    Critical paths change with the factors, so the density has several maxima. Two are sought, one from factors of 1,
    and the one is taken whose fitted costs explain the measurements better. All maxima of all pools are sought at once:
    a simulation of few candidates takes as long as one of many.
    """
    number, starts, some = len(pools), len(STARTS), measured.some(SCALED_BY)
    others = _density([*pools] * starts, some, np.tile(base, (starts, 1)))
    best = others(np.repeat(STARTS, number, axis=0))[0].reshape(starts, number).argmin(axis=0)
    pools, base = [*pools, *pools], np.concatenate([base, base])
    at = _density(pools, some, base)
    logs = np.concatenate([np.zeros((number, len(SPREADS))), np.array(STARTS)[best]])
    (density, step), size = at(logs), np.ones(len(logs))
    for _ in range(STEPS):  # a step that does not increase the density is halved
        tried = np.clip(logs + size[:, None] * step, *np.log(SCALES))
        found, following = at(tried)
        better = found < density
        density, size = np.where(better, found, density), np.where(better, np.minimum(1.0, 2 * size), size / 2)
        logs, step = np.where(better[:, None], tried, logs), np.where(better[:, None], following, step)
    logs = np.round(logs, EXACT)
    prior = np.round(base * np.exp(logs @ _factors(pools[0]).T), DIGITS)
    costs = measured.fitted(pools, prior, prior)
    misfit = measured.misfit(pools, prior, costs) + ((logs / SPREADS) ** 2).sum(axis=1)
    out = [Calibration(*one) for one in zip(pools, prior, costs, np.round(misfit, 3).tolist(), strict=True)]
    return [min(pair, key=attrgetter("misfit")) for pair in zip(out[:number], out[number:], strict=True)]


def _density(pools: Sequence[Pool], some: MeasuredRows, base: Array) -> Callable[[Array], tuple[Array, Array]]:
    """A function of the logarithms of the factors of each pool, shape (pools, factors): minus twice the logarithm of
    their posterior density, up to a constant; the next step, Gauss and Newton's for these paths and this covariance."""
    rows, design = PoolRows([(pool, some.rows) for pool in pools]), _factors(pools[0])
    deviation, spread = DEVIATION * some.level, np.array(SPREADS)
    noise = np.eye(len(some.rows)) if some.weights is None else np.diag(1 / some.weights)

    def at(logs: Array) -> tuple[Array, Array]:
        prior = base * np.exp(logs @ design.T)
        times, paths = rows.paths(prior)
        single = paths * (pools[0].spread(prior) / deviation)[:, None, :]
        root = np.linalg.cholesky(noise + single @ np.swapaxes(single, 1, 2))
        unscaled = [(some.times - times)[..., None], paths @ (prior[..., None] * design)]
        solved = np.linalg.solve(root, np.concatenate(unscaled, axis=2) / deviation)
        off, table = solved[..., 0], solved[..., 1:]
        across = np.swapaxes(table, 1, 2)
        left = (across @ off[..., None])[..., 0] - logs / spread**2
        step = np.linalg.solve(across @ table + np.diag(spread**-2), left[..., None])[..., 0]
        volume = 2 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        density = (off**2).sum(axis=1) + volume + ((logs / spread) ** 2).sum(axis=1)
        return np.round(density, EXACT), np.clip(step, -LARGEST, LARGEST)

    return at


def _factors(pool: Pool) -> Array:
    """1 where a factor multiplies a parameter: of calls of the CPU, of work, of messages; shape (parameters, 3)."""
    work, sent = np.array(pool.work()), np.array(pool.sent())
    call = ~work & ~np.array(pool.timed()) & (np.arange(len(work)) < len(pool.costs.prior))
    return np.stack([call, work, sent], axis=1).astype(float)


def assumed(pool: Pool, measured: MeasuredRows) -> Calibration:
    """The calibration under the assumptions of the pool, or under others if these explain the measurements clearly
    better; its pool has only the measured candidates. One assumption is changed after the other."""
    some = measured.some(JUDGED_BY)
    rows, places = np.unique(some.rows, return_inverse=True)  # a candidate may be measured several times
    candidates, some = [pool.candidates[row] for row in rows], replace(some, rows=places)

    def judged(others: Iterable[Assumptions]) -> list[Calibration]:
        return _scaled([pool.under(other, candidates) for other in others], some)

    def better(best: Calibration, others: Iterable[Calibration]) -> Calibration:
        for found in others:
            if found.misfit + CLEARLY < best.misfit and found.misfit <= EXPLAINED * len(places):
                best = found
        return best

    usual = pool.assumptions
    best, *others = judged([usual, *(usual.on_the_gpu if pool.has_streams else ())])
    best = better(best, others)
    return better(best, judged(best.pool.assumptions.on_messages)) if pool.has_messages else best


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
        return pool.times(known.fitted([pool], found.prior[None], found.costs[None])[0])

    return simulate
