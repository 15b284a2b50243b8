"""A Gaussian process over the rows of a pool, conditioned on a few of them at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Single = np.ndarray[Any, np.dtype[np.float32]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Process:
    """What the simulation does not explain, relative to the level of the times.

    Rows are vectors of bits; the covariance of two is signal^2 exp(-d / length), d the share of bits that differ.
    `noise` is the standard deviation of one observation. What is conditioned on does not depend on observed values, so
    it is kept, and each observation adds to it: with n rows and m observations one more costs O(n m), not O(n m^2).
    """

    def __init__(self, width: int, *, signal: float, noise: float, length: float) -> None:
        import numpy as np

        self.signal, self.noise, self.length = signal, noise, length
        self.bits: Single = np.zeros((0, width), dtype=np.float32)
        self.observed: list[int] = []  # rows, one for each observation
        # With K the covariance of the observations: root of K; root^-1 times the covariance of observations and rows.
        self._root: Array = np.zeros((64, 64))
        self._cross: Single = np.zeros((64, 0), dtype=np.float32)
        self._variance: Array = np.zeros(0)

    def extend(self, bits: Single) -> None:
        """More rows of the pool."""
        import numpy as np
        from scipy.linalg import solve_triangular

        known = len(self.observed)
        cross = np.zeros((len(self._cross), len(bits)), dtype=np.float32)
        if known:
            between = self._covariance(self.bits[self.observed], bits)
            cross[:known] = solve_triangular(self._root[:known, :known], between, lower=True)
        self.bits = np.concatenate([self.bits, bits])
        self._cross = np.concatenate([self._cross, cross], axis=1)
        left = self.signal**2 - np.einsum("ij,ij->j", cross, cross)
        self._variance = np.concatenate([self._variance, left])

    def observe(self, rows: list[int]) -> None:
        """One observation at each of `rows`; a row may be observed more than once."""
        import numpy as np
        from scipy.linalg import solve_triangular

        if not rows:
            return
        known, total = len(self.observed), len(self.observed) + len(rows)
        self._reserve(total)
        below = self._cross[:known, rows].T.astype(np.float64)
        inner = self._covariance(self.bits[rows], self.bits[rows]) + np.diag(np.full(len(rows), self.noise**2))
        corner = np.linalg.cholesky(inner - below @ below.T)
        self._root[known:total, :known] = below
        self._root[known:total, known:total] = corner
        more = self._covariance(self.bits[rows], self.bits) - below.astype(np.float32) @ self._cross[:known]
        self._cross[known:total] = solve_triangular(corner, more, lower=True)
        self._variance -= np.einsum("ij,ij->j", self._cross[known:total], self._cross[known:total])
        self.observed += rows

    def posterior(self, values: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of every row, from one value for each observation."""
        import numpy as np
        from scipy.linalg import solve_triangular

        known = len(self.observed)
        weights = solve_triangular(self._root[:known, :known], values, lower=True).astype(np.float32)
        return weights @ self._cross[:known], np.sqrt(np.maximum(self._variance, 1e-12))

    def _reserve(self, total: int) -> None:
        import numpy as np

        room = len(self._root)
        if total > room:
            more = max(total, 2 * room) - room
            self._root = np.pad(self._root, ((0, more), (0, more)))
            self._cross = np.pad(self._cross, ((0, more), (0, 0)))

    def _covariance(self, a: Single, b: Single) -> Single:
        """Shape (len(a), len(b))."""
        import numpy as np

        differ = a.sum(axis=1)[:, None] + b.sum(axis=1)[None, :] - 2 * (a @ b.T)
        return np.asarray(self.signal**2 * np.exp(-differ / (self.length * a.shape[1])))
