"""Prior costs and assumptions of the simulation, adapted to a machine by the first measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dagc.lab.model.fit import fit_costs
from dagc.lab.model.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagc.lab.model.simulate import Assumptions

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]

DEVIATION = 0.04  # relative standard deviation of a measurement and of the simulation
SPEEDS = (1.0, 2.0, 4.0)  # of the CPU: factors of the prior costs of a call
SCALES, STEPS, SCALED_BY = (0.05, 1000.0), 3, 8  # of the work: range of factors, Newton steps, measurements used
JUDGED_BY = 48  # measurements that choose the assumptions
CLEARLY = 2.0  # by so much less must the misfit be under other assumptions
EXPLAINED = 2.0  # the largest misfit under them, for each measurement: costs that explain nothing choose nothing


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """Times in microseconds of rows of a pool, their median, and costs that were fitted elsewhere."""

    rows: Numbers
    times: Array
    level: float
    learned: Array | None = None

    def fitted(self, pool: Pool, prior: Array, start: Array) -> Array:
        """The costs that explain the times, each near its prior."""
        return fit_costs(
            lambda costs: pool.paths(costs, self.rows), prior, start, self.times, DEVIATION * self.level,
            spread=pool.spread(prior), heavy=pool.heavy,
        )  # fmt: skip

    def misfit(self, pool: Pool, prior: Array, costs: Array) -> float:
        """Squared deviations of times, each at most 9, and of costs from their prior, in standard deviations."""
        off = (self.times - pool.times(costs, self.rows)) / (DEVIATION * self.level)
        far = (costs - prior) / pool.spread(prior)
        return float(np.minimum(off**2, 9.0).sum() + (far**2).sum())


@dataclass(frozen=True, slots=True)
class Calibration:
    """Prior and fitted costs of a pool in microseconds, and how badly they explain the measurements."""

    pool: Pool
    prior: Array
    costs: Array
    misfit: float


def scaled(pool: Pool, measured: MeasuredRows) -> Calibration:
    """Scale the prior costs to this machine and problem size.

    For each of a few speeds of the CPU, one factor of all work is chosen so that the times agree. The speed is the one
    whose fitted costs explain the measurements best while staying close to their prior.
    """
    work, usual, some = np.array(pool.work()), pool.prior, measured.rows[:SCALED_BY]
    values, tried = measured.times[:SCALED_BY], []
    bases = [(speed, usual) for speed in SPEEDS]
    for speed, base in bases if measured.learned is None else [(1.0, measured.learned), *bases]:
        factor, machine = 1.0, np.where(work, 0.0, np.where(pool.timed, base, speed * base))
        for _ in range(STEPS):  # Newton's: times are linear in the factor along their paths
            prior = machine + np.where(work, factor * base, 0.0)
            _, paths = pool.paths(prior, some)
            share = np.maximum(paths @ np.where(work, base, 0.0), 1e-9)
            factor = float(np.clip(np.median((values - paths @ machine) / share), *SCALES))
        prior = np.round(machine + np.where(work, factor * base, 0.0), 6)
        costs = measured.fitted(pool, prior, prior)
        misfit = measured.misfit(pool, prior, costs) + math.log2(speed) ** 2
        tried.append(Calibration(pool, prior, costs, round(misfit, 3)))
    return min(tried, key=lambda one: one.misfit)


def assumed(pool: Pool, measured: MeasuredRows) -> Calibration | None:
    """The calibration under other assumptions of the simulation that explain the measurements clearly better than those
    of the pool; None if there are none. One assumption is changed after the other."""
    chosen = np.unique(np.linspace(0, len(measured.rows) - 1, JUDGED_BY).astype(np.int64))
    candidates = [pool.candidates[int(row)] for row in measured.rows[chosen]]

    def judged(under: Pool) -> Calibration:
        rows = np.array([under.row[candidate] for candidate in candidates])
        return scaled(under, MeasuredRows(rows, measured.times[chosen], measured.level, measured.learned))

    def better(best: Calibration, others: Iterable[Assumptions]) -> Calibration:
        for other in others:
            rival = Pool(pool.spaces, other)
            rival.extend(candidates)
            found = judged(rival)
            if found.misfit + CLEARLY < best.misfit and found.misfit <= EXPLAINED * len(candidates):
                best = found
        return best

    first = best = judged(pool)
    if pool.has_streams:
        best = better(best, best.pool.assumptions.on_the_gpu)
    if pool.has_messages:
        best = better(best, best.pool.assumptions.on_messages)
    return None if best is first else best
