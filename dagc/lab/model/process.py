"""A Gaussian process over the rows of a pool, conditioned on a few of them at a time."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg.lapack import dtrtrs

from dagc.base.python import Array, Numbers, Single

if TYPE_CHECKING:
    from collections.abc import Sequence

OUTLIER = 2.5  # standard deviations: observations are clipped to this distance from what the others predict
LIKELIEST, DRAWS = 150, 400  # rows, and draws from their distribution, for the probability that one is better
DIGITS = 7  # decimals of results, relative to the level: linear algebra libraries differ in the last bits of a double


class Process:
    """Deviation of the times of candidates from the prediction of the prior costs, relative to the level of the times.

    It has two sources. Each cost deviates from its prior by an independent Gaussian, and changes a time as often as it
    lies on its path. And the simulation has an error that is correlated for similar candidates: rows of bits have the
    covariance signal^2 exp(-d / length), d the share of bits that differ. `noise` is the standard deviation of one
    observation. The factorisation does not depend on observed values, so it is kept and extended: with n rows and m
    observations, one more costs O(n m), not O(n m^2). Of the `width` bits of a row, those that are equal in all rows
    may be left out.
    """

    def __init__(self, width: int, *, signal: float, noise: float, length: float) -> None:
        self.signal, self.noise = signal, noise
        self._far = length * max(1, width)  # bits that differ at the correlation length
        self.bits: Single = np.zeros((0, 0), dtype=np.float32)
        self.paths: Array = np.zeros((0, 0))
        self._ones: Single = np.zeros(0, dtype=np.float32)
        self.observed: list[int] = []  # rows, one for each observation
        # With K the covariance of the observations: root of K; root^-1 times the covariance of observations and rows.
        self._root: Array = np.zeros((0, 0))
        self._cross: Array = np.zeros((0, 0))
        self._variance: Array = np.zeros(0)
        # Of the last `posterior`: its values, root^-1 times these, and the mean of all rows.
        self._values, self._weights, self._mean = (np.zeros(0) for _ in range(3))

    def extend(self, bits: Single) -> None:
        """Add rows of the pool; `rebuild` must follow."""
        self.bits = np.concatenate([self.bits, bits]) if len(self.bits) else bits
        self._ones = np.concatenate([self._ones, bits.sum(axis=1)])

    def append(self, bits: Single, paths: Array) -> None:
        """Add rows with their paths, conditioned on the observations so far."""
        first, known = len(self.bits), len(self.observed)
        self.extend(bits)
        self.paths = np.concatenate([self.paths, paths])
        covariance = self._covariance(self.observed, slice(first, None))
        below = solved(self._root[:known, :known], covariance) if known else covariance
        more = np.zeros((len(self._cross), len(bits)))
        more[:known] = below
        self._cross = np.concatenate([self._cross, more], axis=1)
        self._variance = np.concatenate([self._variance, self._before(paths) - np.einsum("ij,ij->j", below, below)])
        self._mean = np.concatenate([self._mean, self._weights @ below[: len(self._weights)]])

    def keep(self, rows: Numbers) -> None:
        """Drop all other rows; these (ascending, including all observed rows) are renumbered."""
        number = {int(row): i for i, row in enumerate(rows)}
        self.observed = [number[row] for row in self.observed]
        self.bits, self.paths, self._ones = self.bits[rows], self.paths[rows], self._ones[rows]
        self._cross, self._variance, self._mean = self._cross[:, rows], self._variance[rows], self._mean[rows]

    def rebuild(self, paths: Array) -> None:
        """Set the paths, shape (rows, costs): the change of each time by one standard deviation of each cost."""
        self.paths = np.asarray(paths, dtype=np.float64)
        rows, self.observed = self.observed, []
        self._root, self._cross = np.zeros((0, 0)), np.zeros((0, len(self.paths)))
        self._variance = self._before(self.paths)
        self._forget()
        self.observe(rows)

    def observe(self, rows: list[int]) -> None:
        """Add one observation at each of `rows`; a row may be observed more than once."""
        if not rows:
            return
        known, total = len(self.observed), len(self.observed) + len(rows)
        below, corner, cross = self._further(rows)
        self._reserve(total)
        self._root[known:total, :known] = below
        self._root[known:total, known:total] = corner
        self._cross[known:total] = cross
        self._variance -= np.einsum("ij,ij->j", cross, cross)
        self.observed += rows

    def _further(self, rows: list[int]) -> tuple[Array, Array, Array]:
        """What observations at these rows add to the root (below and at the corner) and to the cross."""
        known = len(self.observed)
        below = self._cross[:known, rows].T
        covariance = self._covariance(rows)
        inner = covariance[:, rows] + np.diag(np.full(len(rows), self.noise**2))
        corner: Array = np.asarray(np.linalg.cholesky(inner - below @ below.T), dtype=np.float64)
        cross = solved(corner, covariance - below @ self._cross[:known])
        return below, corner, cross

    def deviation_after(self, rows: list[int]) -> Array:
        """The standard deviation of each row once these rows are observed too. It does not depend on the values."""
        cross = self._further(rows)[2]
        return np.asarray(np.sqrt(np.maximum(self._variance - np.einsum("ij,ij->j", cross, cross), 1e-12)))

    def posterior(self, values: Array, rows: Any = slice(None)) -> tuple[Array, Array]:
        """Mean and standard deviation of these rows (default: all), from one value for each observation.

        Rounded, so that the order of additions in a library has no influence. If the values only grew in number since
        the last call, the effect of the new ones is added to its mean.
        """
        if not np.array_equal(self._values, values[: len(self._values)]):
            self._forget()
        known, total = len(self._values), len(values)
        if total > known:
            left = values[known:] - self._root[known:total, :known] @ self._weights
            more = solved(self._root[known:total, known:total], left)
            self._mean = self._mean + more @ self._cross[known:total]
            self._values, self._weights = values, np.concatenate([self._weights, more])
        deviation = np.sqrt(np.maximum(self._variance[rows], 1e-12))
        return np.round(self._mean[rows], DIGITS), np.round(deviation, DIGITS) + 10.0**-DIGITS

    def _forget(self) -> None:
        """Forget the values of the last posterior."""
        self._values, self._weights, self._mean = np.zeros(0), np.zeros(0), np.zeros(len(self.paths))

    def doubt(self, mean: Array, unmeasured: Numbers, measured: Numbers, share: float) -> float:
        """Probability that a row of `unmeasured` is below the smallest mean of `measured` by more than `share` of it.

        `mean`: the expected value of every row, in units of the level. Estimated by draws from the joint distribution
        of the most probable rows: similar rows are correlated, so the sum of their probabilities would be far too
        large.
        """
        choice = int(measured[mean[measured].argmin()])
        target = (1 - share) * mean[choice]
        hopeful = np.argsort(np.round((mean - target) / np.sqrt(self._variance + 1e-12), 6)[unmeasured], kind="stable")
        rows = [choice, *(int(i) for i in unmeasured[hopeful[:LIKELIEST]])]
        known = self._cross[: len(self.observed), rows]
        covariance = self._covariance(rows, rows) - known.T @ known
        root = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(rows)))
        drawn = mean[rows][:, None] + root @ np.random.default_rng(0).standard_normal((len(rows), DRAWS))
        return float((drawn[1:].min(axis=0) < (1 - share) * drawn[0]).mean())

    # ---- outliers and hyperparameters ---------------------------------------------------

    def without_outliers(self, values: Array) -> Array:
        """The values, each clipped to OUTLIER standard deviations from its prediction by all others."""
        known = len(self.observed)
        inverse_root = solved(self._root[:known, :known], np.eye(known))
        precision = np.einsum("ij,ij->j", inverse_root, inverse_root)
        off = (inverse_root.T @ (inverse_root @ values)) / precision
        limit = OUTLIER / np.sqrt(precision)
        return np.asarray(values - np.sign(off) * np.maximum(np.abs(off) - limit, 0.0))

    def adapt(self, rows: Sequence[int], values: Array, signals: Sequence[float], noises: Sequence[float]) -> None:
        """Choose signal and noise by maximum likelihood of the values of these rows; `rebuild` must follow."""
        chosen = list(rows)
        alike = np.exp(-self._differ(chosen, chosen) / self._far)
        paths, unit = self.paths[chosen] @ self.paths[chosen].T, np.eye(len(chosen))

        def likelihood(pair: tuple[float, float]) -> float:
            root = np.linalg.cholesky(pair[0] ** 2 * alike + paths + pair[1] ** 2 * unit)
            scaled = solved(np.asarray(root), values)
            # Large residuals count as under a distribution with heavier tails.
            return float(-2.5 * np.log1p(scaled**2 / 4).sum() - np.log(np.diag(root)).sum())

        self.signal, self.noise = max(product(signals, noises), key=lambda pair: round(likelihood(pair), 6))

    def _before(self, paths: Array) -> Array:
        """Prior variance of rows."""
        return np.asarray(self.signal**2 + np.einsum("ij,ij->i", paths, paths))

    def _reserve(self, total: int) -> None:
        room = len(self._root)
        if total > room:
            more = max(total, 2 * room, 64) - room
            self._root = np.pad(self._root, ((0, more), (0, more)))
            self._cross = np.pad(self._cross, ((0, more), (0, 0)))

    def _differ(self, rows: Sequence[int], others: Any) -> Array:
        """The number of bits that differ. Integers, so exact in any order of additions."""
        ours, theirs = self.bits[list(rows)], self.bits[others]
        same = ours @ theirs.T
        return np.asarray(self._ones[list(rows), None] + self._ones[others][None, :] - 2 * same, dtype=np.float64)

    def _covariance(self, rows: Sequence[int], others: Any = slice(None)) -> Array:
        """Of these rows with `others` (default: all), shape (rows, others)."""
        missed = self.signal**2 * np.exp(-self._differ(rows, others) / self._far)
        return np.asarray(missed + self.paths[list(rows)] @ self.paths[others].T)


def solved(root: Array, right: Array) -> Array:
    """`root`^-1 times `right`, of a lower triangular matrix. As `scipy.linalg.solve_triangular`, which takes longer to
    check its arguments than to solve the small systems of a search."""
    if not right.size:
        return right
    out, failed = dtrtrs(root.T, right, lower=0, trans=1)
    if failed:
        raise np.linalg.LinAlgError(f"no triangular matrix of full rank (dtrtrs: {failed})")
    return np.asarray(out)
