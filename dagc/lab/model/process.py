"""A Gaussian process over the rows of a pool, conditioned on a few of them at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import solve_triangular

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[np.float64]]
    Single = np.ndarray[Any, np.dtype[np.float32]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Process:
    """How far the times of candidates are from what the prior costs say, relative to the level of the times.

    Two causes. The costs are not the prior ones: each deviates by a Gaussian of its own, and a time by as much as the
    cost lies on its path. And the simulation misses something, which is alike for candidates that are: rows of bits
    have the covariance signal^2 exp(-d / length), d the share of bits that differ. `noise` is the standard deviation
    of one observation. What is conditioned on does not depend on observed values, so it is kept, and each observation
    adds to it: with n rows and m observations one more costs O(n m), not O(n m^2).
    """

    def __init__(self, width: int, *, signal: float, noise: float, length: float) -> None:
        self.signal, self.noise, self.length = signal, noise, length
        self.bits: Single = np.zeros((0, width), dtype=np.float32)
        self.paths: Single = np.zeros((0, 0), dtype=np.float32)
        self._ones: Single = np.zeros(0, dtype=np.float32)
        self.observed: list[int] = []  # rows, one for each observation
        # With K the covariance of the observations: root of K; root^-1 times the covariance of observations and rows.
        self._root: Array = np.zeros((0, 0))
        self._cross: Single = np.zeros((0, 0), dtype=np.float32)
        self._variance: Array = np.zeros(0)

    def extend(self, bits: Single) -> None:
        """More rows of the pool; `rebuild` must follow."""
        self.bits = np.concatenate([self.bits, bits])
        self._ones = self.bits.sum(axis=1)

    def rebuild(self, paths: Single) -> None:
        """New paths, shape (rows, costs): what one standard deviation of a cost changes of each time."""
        self.paths = paths
        rows, self.observed = self.observed, []
        self._root, self._cross = np.zeros((0, 0)), np.zeros((0, len(paths)), dtype=np.float32)
        self._variance = self.signal**2 + np.einsum("ij,ij->i", paths, paths).astype(np.float64)
        self.observe(rows)

    def observe(self, rows: list[int]) -> None:
        """One observation at each of `rows`; a row may be observed more than once."""
        if not rows:
            return
        known, total = len(self.observed), len(self.observed) + len(rows)
        self._reserve(total)
        below = self._cross[:known, rows].T.astype(np.float64)
        covariance = self._covariance(rows)
        inner = covariance[:, rows] + np.diag(np.full(len(rows), self.noise**2))
        corner = np.linalg.cholesky(inner - below @ below.T)
        self._root[known:total, :known] = below
        self._root[known:total, known:total] = corner
        more = covariance - below.astype(np.float32) @ self._cross[:known]
        self._cross[known:total] = solve_triangular(corner.astype(np.float32), more, lower=True)
        self._variance -= np.einsum("ij,ij->j", self._cross[known:total], self._cross[known:total])
        self.observed += rows

    def posterior(self, values: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of every row, from one value for each observation."""
        known = len(self.observed)
        weights = solve_triangular(self._root[:known, :known], values, lower=True).astype(np.float32)
        return weights @ self._cross[:known], np.sqrt(np.maximum(self._variance, 1e-12))

    def _reserve(self, total: int) -> None:
        room = len(self._root)
        if total > room:
            more = max(total, 2 * room, 64) - room
            self._root = np.pad(self._root, ((0, more), (0, more)))
            self._cross = np.pad(self._cross, ((0, more), (0, 0)))

    def _covariance(self, rows: list[int]) -> Single:
        """Of these rows with all, shape (len(rows), rows of the pool)."""
        differ = self._ones[rows, None] + self._ones[None, :] - 2 * (self.bits[rows] @ self.bits.T)
        missed = self.signal**2 * np.exp(-differ / np.float32(self.length * max(1, self.bits.shape[1])))
        return np.asarray(missed + self.paths[rows] @ self.paths.T)
