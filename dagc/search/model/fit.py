"""Fits the costs of the simulation to measurements, and models what is left over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

SPREAD = 0.7  # relative standard deviation of a cost before anything is measured
ROUNDS = 4


def fit_costs(
    simulate: Callable[[Array], tuple[Array, Array]], prior: Array, start: Array, seconds: Array, deviation: float
) -> Array:
    """Costs that explain `seconds` (microseconds, one for each simulated candidate), each near its prior.

    `simulate(costs)` gives times and how often each cost lies on each path, shapes (n,) and (n, costs). A time is
    linear in the costs as long as the paths stay the same, so the regularised least-squares problem is solved for the
    paths found last, a few times over. `deviation`: standard deviation of a measurement and of the simulation, in
    microseconds.
    """
    import numpy as np

    before, costs = prior, start.copy()
    weight = np.diag((deviation / (SPREAD * before)) ** 2)
    for _ in range(ROUNDS):
        _, table = simulate(costs)
        found = np.linalg.solve(table.T @ table + weight, table.T @ (seconds - table @ before)) + before
        # Half a step: the paths belong to the costs that they were found with.
        costs = 0.5 * costs + 0.5 * np.maximum(found, 0.02 * before)
    return costs


@dataclass(frozen=True, slots=True)
class Residuals:
    """What the simulation does not explain: a Gaussian process over the bits of a candidate (order, streams)."""

    mean: Array
    deviation: Array


def residuals(pool: Array, seen: Array, left: Array, *, signal: float, noise: Array, length: float) -> Residuals:
    """Posterior of the residual of every row of `pool`, from `left` at the rows `seen`.

    Rows are vectors of bits; the covariance of two is signal^2 exp(-d / length), d the share of bits that differ.
    `noise`: standard deviation of each entry of `left`.
    """
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve

    inner = signal**2 * np.exp(-_distance(seen, seen) / length) + np.diag(noise**2)
    cross = signal**2 * np.exp(-_distance(pool, seen) / length)
    factor = cho_factor(inner, lower=True)
    mean = cross @ cho_solve(factor, left)
    variance = signal**2 - np.einsum("ij,ij->i", cross, cho_solve(factor, cross.T).T)
    return Residuals(mean, np.sqrt(np.maximum(variance, 1e-12)))


def _distance(a: Array, b: Array) -> Array:
    """Share of bits that differ, shape (len(a), len(b)), of 0/1 rows."""
    import numpy as np

    ones = a.sum(axis=1)[:, None] + b.sum(axis=1)[None, :]
    return np.asarray((ones - 2 * (a @ b.T)) / a.shape[1])
