"""Fits the costs of the simulation to measurements."""

from __future__ import annotations

from collections.abc import Callable

from dagc.base.python import Array, Bools, np

SPREAD = 0.7  # relative standard deviation of a cost before anything is measured
ROUNDS = 4
DIGITS = 12  # decimals of a cost in seconds: linear algebra libraries differ in the last bits of a double


def fit_costs(
    simulate: Callable[[Array], tuple[Array, Array]], prior: Array, start: Array, times: Array, deviation: float,
    weights: Array | None = None, spread: Array | None = None, heavy: Bools | None = None,
) -> Array:  # fmt: skip
    """Costs that explain `times` (seconds, one for each simulated candidate), each near its prior.

    `simulate(costs)` returns times and how often each cost lies on each path, shapes (n,) and (n, costs); all arrays of
    costs may have a first axis of several problems, which are solved together. A time is
    linear in the costs while the paths stay the same, so the regularised least-squares problem is solved a few times,
    each time for the last paths. `deviation`: standard deviation of a measurement and of the simulation, in
    seconds. `weights`: of each squared residual (default: 1), less for what may be an outlier. `spread`: standard
    deviation of each cost (default: SPREAD of the prior); a cost whose prior is above 0 stays above 0. `heavy`: which
    costs may be far from their prior: theirs is a Cauchy distribution.
    """
    before, costs = prior, start.copy()
    each = np.ones(len(times)) if weights is None else weights
    wide = SPREAD * before if spread is None else spread
    least = np.where(before > 0, 0.02 * before, -np.inf)
    for _ in range(ROUNDS):
        simulated, table = simulate(costs)
        left = times[..., None] - table @ before[..., None]  # what the deviations from the prior have to explain
        far = np.zeros(costs.shape)
        if heavy is not None:
            left = left - (simulated[..., None] - table @ costs[..., None])  # 0 where times are linear in the costs
            far = np.where(heavy, ((costs - before) / wide) ** 2, 0.0)
        weighted = np.swapaxes(table, -1, -2) * each
        normal = weighted @ table
        np.einsum("...ii->...i", normal)[...] += (deviation / wide) ** 2 / (1 + far)
        solution = np.round(np.linalg.solve(normal, weighted @ left)[..., 0] + before, DIGITS)
        # Half a step: the paths are those of the previous costs.
        costs = 0.5 * costs + 0.5 * np.maximum(solution, least)
    return costs
