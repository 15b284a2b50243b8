"""A Gaussian process over the rows of a pool, conditioned on a few of them at a time."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg.blas import dtpsv
from scipy.linalg.lapack import dtrtrs
from scipy.special import ndtr

from dagc.base.python import Array, Numbers, Single

if TYPE_CHECKING:
    from collections.abc import Sequence

Words: TypeAlias = "np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]"

OUTLIER = 2.5  # standard deviations: observations are clipped to this distance from what the others predict
LIKELIEST, DRAWS = 150, 400  # rows, and draws from their distribution, for the probability that one is better
DIGITS = 7  # decimals of results, relative to the level: linear algebra libraries differ in the last bits of a double


class Deviations(NamedTuple):
    """Standard deviations, relative to the level of the times: of the error of the simulation that similar candidates
    share, of one measurement, and of the error that a candidate shares with no other."""

    signal: float
    noise: float
    own: float = 0.0


class Process:
    """Deviation of the times of candidates from the prediction of the prior costs, relative to the level of the times.

    It has three sources. Each cost deviates from its prior by an independent Gaussian, and changes a time as often as
    it lies on its path. The simulation has an error that is correlated for similar candidates: rows of bits have the
    covariance signal^2 exp(-d / length), d the share of bits that differ. And each row has an error of its own: without
    it, a fast row among slower ones that it resembles would not be believed, however often it was observed. The
    factorisation does not depend on observed values, so it is kept and extended: with n rows and m observations, one
    more costs O(n m), not O(n m^2). Of the `width` bits of a row, those that are equal in all rows may be left out.
    """

    def __init__(self, width: int, deviations: Deviations, *, length: float) -> None:
        self.deviations = deviations
        self._far = length * max(1, width)  # bits that differ at the correlation length
        self._words: Words = np.zeros((0, 0), dtype=np.uint64)  # the bits of each row, one row a column
        self.paths: Array = np.zeros((0, 0))
        self.observed: list[int] = []  # rows, one for each observation
        # With K the covariance of the observations: root of K; root^-1 times the covariance of observations and rows.
        self._root: Array = np.zeros((0, 0))
        self._held: Array = np.zeros((0, 0))  # the latter, with room for more observations and rows
        self._variance: Array = np.zeros(0)
        # Of the last `posterior`: its values, root^-1 times these, and the mean of all rows.
        self._values, self._weights, self._mean = (np.zeros(0) for _ in range(3))
        self._inverse = InverseRoot()  # of the root, for outliers; extended when it is needed
        self._likelihoods = Likelihoods(())

    def __len__(self) -> int:
        """The number of rows."""
        return int(self._words.shape[1])

    @property
    def _cross(self) -> Array:
        return self._held[:, : len(self)]

    def extend(self, bits: Single) -> None:
        """Add rows of the pool, shape (rows, bits), of 0 and 1; `rebuild` must follow."""
        octets = np.packbits(bits > 0, axis=1)
        octets = np.pad(octets, ((0, 0), (0, -octets.shape[1] % 8)))
        words = np.ascontiguousarray(octets).view(np.uint64).T
        self._words = np.concatenate([self._words, words], axis=1) if len(self) else words

    def append(self, bits: Single, paths: Array) -> None:
        """Add rows with their paths, conditioned on the observations so far."""
        first, known = len(self), len(self.observed)
        self.extend(bits)
        self.paths = np.concatenate([self.paths, paths])
        covariance = self._covariance(self.observed, slice(first, None))
        below = self._inverse_root() @ covariance
        if len(self) > self._held.shape[1]:
            self._held = np.pad(self._held, ((0, 0), (0, 3 * len(self) // 2 - self._held.shape[1])))
        self._cross[:known, first:] = below
        self._variance = np.concatenate([self._variance, self._before(paths) - np.einsum("ij,ij->j", below, below)])
        self._mean = np.concatenate([self._mean, self._weights @ below[: len(self._weights)]])

    def keep(self, rows: Numbers) -> None:
        """Drop all other rows; these (ascending, including all observed rows) are renumbered."""
        number = {int(row): i for i, row in enumerate(rows)}
        for of in (self.observed, self._likelihoods.rows):
            of[:] = [number[row] for row in of]
        self._words, self.paths = self._words[:, rows], self.paths[rows]
        self._variance, self._mean = self._variance[rows], self._mean[rows]
        self._held[: len(self.observed), : len(rows)] = self._held[: len(self.observed), rows]

    def rebuild(self, paths: Array) -> None:
        """Set the paths, and factorise again under the present signal and noise."""
        if paths is not self.paths:
            self.follow(paths)
        rows, self.observed = self.observed, []
        self._inverse = InverseRoot()
        self._root, self._held = np.zeros((0, 0)), np.zeros((0, len(self.paths)))
        self._variance = self._before(self.paths)
        self._forget()
        self.observe(rows)

    def follow(self, paths: Array) -> None:
        """Set the paths, shape (rows, costs): the change of each time by one standard deviation of each cost; `rebuild`
        must follow."""
        self.paths = np.asarray(paths, dtype=np.float64)
        self._likelihoods = Likelihoods(())

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
        inner = covariance[:, rows] + np.diag(np.full(len(rows), self.deviations.noise**2))
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

    def _inverse_root(self) -> Array:
        known, before = len(self.observed), self._inverse.size
        self._inverse.extend(self._root[before:known, :before], self._root[before:known, before:known])
        return self._inverse.matrix

    # ---- outliers and hyperparameters ---------------------------------------------------

    def without_outliers(self, values: Array) -> Array:
        """The values, each clipped to OUTLIER standard deviations from its prediction by all others."""
        inverse_root = self._inverse_root()
        precision = np.einsum("ij,ij->j", inverse_root, inverse_root)
        off = (inverse_root.T @ (inverse_root @ values)) / precision
        limit = OUTLIER / np.sqrt(precision)
        return np.asarray(values - np.sign(off) * np.maximum(np.abs(off) - limit, 0.0))

    def adapt(
        self, rows: Sequence[int], values: Array, signals: Sequence[float], noises: Sequence[float],
        owns: Sequence[float],
    ) -> None:  # fmt: skip
        """Choose the deviations by maximum likelihood of the values of these rows; `rebuild` must follow where they
        change. Values that were added to those of the last call take O(n^2) each, as long as the paths stay, and only
        signal and noise are chosen again."""
        rows, known = [*rows], self._likelihoods

        def under(own: float) -> Likelihoods:
            return self._likely(tuple(Deviations(s, n, own) for s, n in product(signals, noises)), rows, values)

        if known.begin(rows, values):
            self._add_to(known, rows, values)
        else:
            known = under(self.deviations.own)
            best = known.likeliest
            own = self._likely(tuple(best._replace(own=own) for own in owns), rows, values).likeliest.own
            self._likelihoods = known = known if own == best.own else under(own)
        self.deviations = known.likeliest

    def _likely(self, several: tuple[Deviations, ...], rows: list[int], values: Array) -> Likelihoods:
        found = Likelihoods(several)
        self._add_to(found, rows, values)
        return found

    def _add_to(self, known: Likelihoods, rows: list[int], values: Array) -> None:
        """Add the observations that it does not have yet."""
        if new := rows[len(known.rows) :]:
            alike = np.exp(-self._differ(new, rows) / self._far)
            known.add(rows, alike, np.equal.outer(new, rows), self.paths[new] @ self.paths[rows].T, values)

    def _before(self, paths: Array) -> Array:
        """Prior variance of rows."""
        signal, _, own = self.deviations
        return np.asarray(signal**2 + own**2 + np.einsum("ij,ij->i", paths, paths))

    def _reserve(self, total: int) -> None:
        room = len(self._root)
        if total > room:
            more = max(total, 2 * room, 64) - room
            self._root = np.pad(self._root, ((0, more), (0, more)))
            self._held = np.pad(self._held, ((0, more), (0, 0)))

    def _differ(self, rows: Sequence[int], others: Any) -> Array:
        """The number of bits that differ, shape (rows, others)."""
        ours, theirs = self._words[:, list(rows)], self._words[:, others]
        out = np.zeros((ours.shape[1], theirs.shape[1]))
        for mine, its in zip(ours, theirs, strict=True):
            out += bits_set(mine[:, None] ^ its[None, :])
        return out

    def _covariance(self, rows: Sequence[int], others: Any = slice(None)) -> Array:
        """Of these rows with `others` (default: all), shape (rows, others)."""
        signal, _, own = self.deviations
        missed = signal**2 * np.exp(-self._differ(rows, others) / self._far)
        if own:
            missed += own**2 * np.equal.outer(rows, np.arange(len(self))[others])
        return np.asarray(missed + self.paths[list(rows)] @ self.paths[others].T)


def bits_set(words: Words) -> Words:
    """Of each word; as `numpy.bitwise_count`, which numpy has since 2.0."""
    if hasattr(np, "bitwise_count"):
        return np.asarray(np.bitwise_count(words))
    return np.asarray(np.unpackbits(words[..., None].view(np.uint8), axis=-1).sum(axis=-1))


class InverseRoot:
    """root^-1 for the lower triangular root of a covariance that grows."""

    def __init__(self) -> None:
        self._held: Array = np.zeros((0, 0))
        self.size = 0

    @property
    def matrix(self) -> Array:
        return self._held[: self.size, : self.size]

    def extend(self, below: Array, corner: Array) -> None:
        """Rows that the root gains: left of the diagonal, and at it. O(n^2) each."""
        known, total = self.size, self.size + len(corner)
        if total > len(self._held):
            more = max(total, 2 * len(self._held), 64) - len(self._held)
            self._held = np.pad(self._held, ((0, more), (0, more)))
        self._held[known:total, :known] = -solved(corner, below @ self.matrix)
        self._held[known:total, known:total] = solved(corner, np.eye(len(corner)))
        self.size = total


class Likelihoods:
    """Of the same observations under several deviations."""

    def __init__(self, several: tuple[Deviations, ...]) -> None:
        self.several, self.rows = several, list[int]()
        # Of each: the lower triangular root of the covariance, row after row (LAPACK's packed form), with room for
        # more; root^-1 times the values; the logarithm of the determinant of the root.
        self._roots: list[Array] = []
        number = len(several)
        self._values, self._scaled, self._logarithms = np.zeros(0), np.zeros((number, 0)), np.zeros(number)

    def begin(self, rows: list[int], values: Array) -> bool:
        """Whether these are the observations so far (at least one), or these and more."""
        known = len(self.rows)
        return known > 0 and self.rows == rows[:known] and np.array_equal(self._values, values[:known])

    def add(self, rows: list[int], alike: Array, same: Array, paths: Array, values: Array) -> None:
        """The observations at `rows`, which begin with those so far. `alike`, `same`, `paths`: covariances of the new
        ones with all, of a signal of 1, of an own error of 1 and of the costs, shape (new, all). O(n^2) for each but
        the first ones."""
        known, total = len(self.rows), len(rows)
        scaled = np.zeros((len(self.several), total))
        scaled[:, :known] = self._scaled
        for number, (signal, noise, own) in enumerate(self.several):
            covariance = signal**2 * alike + own**2 * same + paths
            covariance[np.arange(total - known), np.arange(known, total)] += noise**2
            if known:
                for at in range(known, total):
                    self._extend(number, covariance[at - known, : at + 1], values[at], scaled[number])
            else:
                root: Array = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
                self._roots.append(root[np.tril_indices(total)])
                scaled[number] = solved(root, values)
                self._logarithms[number] = np.log(np.diag(root)).sum()
        self.rows, self._values, self._scaled = list(rows), values, scaled

    def _extend(self, number: int, covariance: Array, value: float, scaled: Array) -> None:
        """One observation under one of them. `covariance`: with those so far, and its variance."""
        known = len(covariance) - 1
        begin, end = known * (known + 1) // 2, (known + 1) * (known + 2) // 2
        if end > len(self._roots[number]):
            self._roots[number] = np.append(self._roots[number], np.zeros(end))
        packed = self._roots[number]
        below = dtpsv(known, packed[:begin], covariance[:known], lower=0, trans=1)
        corner = math.sqrt(covariance[known] - below @ below)
        packed[begin : end - 1], packed[end - 1] = below, corner
        scaled[known] = (value - below @ scaled[:known]) / corner
        self._logarithms[number] += math.log(corner)

    @property
    def likeliest(self) -> Deviations:
        """The first of the most likely. Large residuals count as under a distribution with heavier tails."""
        found = -2.5 * np.log1p(self._scaled**2 / 4).sum(axis=1) - self._logarithms
        return self.several[int(np.argmax(np.round(found, 6)))]


def solved(root: Array, right: Array) -> Array:
    """`root`^-1 times `right`, of a lower triangular matrix. As `scipy.linalg.solve_triangular`, which takes longer to
    check its arguments than to solve the small systems of a search."""
    if not right.size:
        return right
    out, failed = dtrtrs(root.T, right, lower=0, trans=1)
    if failed:
        raise np.linalg.LinAlgError(f"no triangular matrix of full rank (dtrtrs: {failed})")
    return np.asarray(out)


def expected_gain(mean: Array, deviation: Array, incumbent: float) -> Array:
    """Expected improvement over the incumbent; without one, the smallest mean wins."""
    if math.isinf(incumbent):
        return np.asarray(-mean)
    z = (incumbent - mean) / deviation
    return np.asarray(deviation * (z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)))
