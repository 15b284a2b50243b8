"""Times of one op under all settings at all sizes: one Gaussian process in logarithms, conditioned on measurements.

The prior mean is what a model and the pre-trained learner predict (`dagc.choice.residual`). What they miss has these
parts. Each term of the model may be wrong by a factor that is the same for all settings and sizes of the op. Of what is
left, an error of the setting is the same at all sizes, one is similar at similar sizes, and one is of the cell alone
(shares of the variance of each cell). There is an unknown factor for all cells of a size, and the whole prediction may
be too strong or too weak. So a measurement at one size informs the others.

The value of a measurement is the knowledge gradient (Frazier, Powell, Dayanik: The Knowledge-Gradient Policy for
Correlated Normal Beliefs, 2009): the expected decrease of the least expected time, here summed over the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

LEVEL = 300.0  # standard deviation of the logarithm of the factor of a size: nothing is known of it
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
DRAWS = 500  # from the posterior, for probabilities
JITTER = 1e-9  # of the mean variance: far below the noise of a measurement
AMPLITUDES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of what a prediction misses, over what is usual
NEGLIGIBLE = 0.02  # weight of a part of the mixture below which it is dropped
WARP = 5.0  # a warp along x, in doublings


@dataclass(frozen=True, slots=True)
class Covariance:
    """Hyperparameters, fitted to what the learner missed on families that it was not trained on.

    `lengths`: correlation lengths along x up to a warp and beyond, along y and z of the block, and along any other
    tunable, in doublings; `size_length`: of the distance of sizes, in doublings.
    `shared`, `similar`, `alone`: shares of the variance. `strength`: standard deviation of the factor of the predicted
    differences; `terms`: of the logarithm of the factor of each term. `noise`: least relative standard deviation of a
    measurement.
    """

    lengths: tuple[float, float, float, float, float]
    size_length: float
    shared: float
    similar: float
    alone: float
    strength: float
    terms: float
    noise: float


@dataclass(frozen=True, slots=True)
class Rows:
    """Settings at sizes, and what is known of their times before a measurement.

    `mean`, `deviation`: of each row, of the prediction without the factor of the size, shape (rows,); `responses`: how
    the logarithm of its time answers to that of each term, (rows, terms); `coordinates`: of the setting of each row,
    (rows, 3 + other tunables), and `sizes`: of the sizes, (sizes, parameters), in doublings; `size_of`: the size of
    each row, ascending.
    """

    mean: Array
    deviation: Array
    responses: Array
    coordinates: Array
    sizes: Array
    size_of: Numbers

    def missed(self, amplitude: float) -> Rows:
        """The same, where the prediction misses so many times as much."""
        return replace(self, deviation=amplitude * self.deviation, responses=amplitude * self.responses)


class TimeSurface:
    """Rows are cells: a setting at a size. Logarithms of seconds.

    How much the prediction misses differs from kernel to kernel, so the process is a mixture over AMPLITUDES, whose
    weights follow from the measurements.
    """

    def __init__(self, kernel: Covariance, rows: Rows) -> None:
        self.kernel, self.size_of = kernel, rows.size_of
        self.first = np.flatnonzero(np.r_[True, rows.size_of[1:] != rows.size_of[:-1]])  # the first row of each size
        self._parts = [
            _Part(rows.mean.astype(float), prior_covariance(kernel, rows.missed(a)), -math.log(len(AMPLITUDES)))
            for a in AMPLITUDES
        ]
        self.measured: dict[int, int] = {}  # how often each row was measured

    @property
    def mean(self) -> Array:
        """Expected logarithm of each row's time."""
        return np.asarray(sum(w * part.mean for w, part in self._weighted()))

    def _weighted(self) -> list[tuple[float, _Part]]:
        total = float(np.logaddexp.reduce([part.log_weight for part in self._parts]))
        return [(math.exp(part.log_weight - total), part) for part in self._parts]

    def observe(self, row: int, log_time: float, noise: float = math.nan) -> None:
        """Condition on a measurement: the logarithm of its seconds, and its relative standard deviation. What is not
        finite is ignored."""
        if not math.isfinite(log_time):
            return
        variance = self._variance(noise)
        for part in self._parts:
            part.observe(row, log_time, variance)
        self._parts = [part for w, part in self._weighted() if w > NEGLIGIBLE]
        self.measured[row] = self.measured.get(row, 0) + 1

    def _variance(self, noise: float) -> float:
        least = self.kernel.noise
        return max(least, noise if math.isfinite(noise) else least) ** 2

    def gains(self, rows: Numbers) -> Array:
        """The expected decrease of the logarithm of the least expected time at each size, if each of these rows is
        measured. Shape (sizes, rows)."""
        noise = self._variance(math.nan)
        return np.asarray(sum(w * part.gains(rows, self.first, noise) for w, part in self._weighted()))

    def promising(self, rows: Numbers, number: int) -> Numbers:
        """Those of the rows, `number` at most, that may be the fastest of their size: by their means less two standard
        deviations, over the least mean there."""
        if len(rows) <= number:
            return rows
        mean = self.mean
        least = np.minimum.reduceat(mean, self.first)[self.size_of]
        start = self.first[self.size_of]  # deviations over the first row of a size: the factor of the size is no doubt
        spread = sum(w * part.deviations(rows, start[rows]) for w, part in self._weighted())
        score = mean[rows] - least[rows] - 2 * spread
        return np.sort(rows[np.argsort(score, kind="stable")[:number]])

    def against(self, row: int, other: int) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm of the time of a row over that of another one."""
        parts = [(w, *part.against(row, other)) for w, part in self._weighted()]
        mean = sum(w * m for w, m, _ in parts)
        return mean, math.sqrt(max(0.0, sum(w * (v + (m - mean) ** 2) for w, m, v in parts)))

    def doubt(self, chosen: int, rows: Numbers, share: float, seed: int = 0) -> float:
        """Probability that one of these rows is faster than the row `chosen` by more than a share of it."""
        if not len(rows):
            return 0.0
        return float(sum(w * part.doubt(chosen, rows, share, seed) for w, part in self._weighted()))


class _Part:
    """A Gaussian over all rows, and the logarithm of its weight in the mixture."""

    def __init__(self, mean: Array, covariance: Array, log_weight: float) -> None:
        self.mean, self.covariance, self.log_weight = mean, covariance, log_weight

    def observe(self, row: int, value: float, variance: float) -> None:
        column = self.covariance[:, row].copy()
        total, missed = column[row] + variance, value - self.mean[row]
        self.log_weight -= 0.5 * (missed**2 / total + math.log(total))
        self.mean = self.mean + column * (missed / total)
        self.covariance -= np.outer(column / total, column)

    def gains(self, rows: Numbers, first: Numbers, noise: float) -> Array:
        spread = self.covariance[:, rows]
        spread = spread / np.sqrt(np.maximum(np.diag(self.covariance)[rows], 0.0) + noise)
        expected = np.zeros((len(first), len(rows)))
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            expected += weight * np.minimum.reduceat(self.mean[:, None] + node * spread, first, axis=0)
        return np.asarray(np.minimum.reduceat(self.mean, first)[:, None] - expected)

    def deviations(self, rows: Numbers, others: Numbers) -> Array:
        own = np.diag(self.covariance)
        return np.asarray(np.sqrt(np.maximum(own[rows] + own[others] - 2 * self.covariance[rows, others], 0.0)))

    def against(self, row: int, other: int) -> tuple[float, float]:
        c = self.covariance
        return float(self.mean[row] - self.mean[other]), float(c[row, row] + c[other, other] - 2 * c[row, other])

    def doubt(self, chosen: int, rows: Numbers, share: float, seed: int) -> float:
        """Draws of the rows over the chosen one: the factor of the size, of which nothing is known, cancels."""
        c = self.covariance
        over = c[np.ix_(rows, rows)] - c[rows, chosen][:, None] - c[chosen, rows][None, :] + c[chosen, chosen]
        normal = np.random.default_rng(seed).standard_normal((len(rows), DRAWS))
        drawn = (self.mean[rows] - self.mean[chosen])[:, None] + _root(over) @ normal
        return float((drawn.min(axis=0) < math.log1p(-share)).mean())


def _root(covariance: Array) -> Array:
    """A matrix R with R R^T = covariance, but for rounding. A tenth of the time of an eigenvalue decomposition, which
    serves where the rounding errors of a nearly singular covariance are larger than what is added to its diagonal."""
    size = len(covariance)
    try:
        return np.linalg.cholesky(covariance + JITTER * np.trace(covariance) / size * np.eye(size))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def prior_covariance(kernel: Covariance, rows: Rows) -> Array:
    """Of the logarithms of all rows' times, before a measurement, shape (rows, rows)."""
    alike, _ = matern(np.sqrt(squares(rows.coordinates, kernel.lengths).sum(axis=2)))
    near = np.exp(-distance(rows.sizes) / kernel.size_length)[np.ix_(rows.size_of, rows.size_of)]
    total = kernel.shared + kernel.similar + kernel.alone
    shape = (kernel.shared * alike + kernel.similar * alike * near) / total
    shape[np.diag_indices_from(shape)] += kernel.alone / total
    out = shape * np.outer(rows.deviation, rows.deviation)
    same = (rows.size_of[:, None] == rows.size_of[None, :]).astype(float)
    centred = within_sizes(rows.mean[:, None], same)
    out += kernel.strength**2 * centred @ centred.T
    centred = within_sizes(rows.responses, same)
    out += kernel.terms**2 * centred @ centred.T
    out += LEVEL**2 * same
    return np.asarray(out)


def squares(coordinates: Array, lengths: Sequence[float]) -> Array:
    """Squared distances of settings over the correlation lengths, shape (rows, rows, 5): along x up to a warp and
    beyond it, y, z, and all other tunables. Up to a warp, x decides which addresses a warp asks for; beyond, it does
    not."""
    x, rest = coordinates[:, :1], coordinates[:, 1:]
    columns = np.hstack([np.minimum(x, WARP), np.maximum(x - WARP, 0.0), rest])
    apart = (columns[:, None, :] - columns[None, :, :]) ** 2
    return np.asarray(np.dstack([apart[:, :, :4], apart[:, :, 4:].sum(axis=2)]) / np.array(lengths) ** 2)


def matern(distances: Array) -> tuple[Array, Array]:
    """The covariance 3/2 of Matern, and minus its derivative over the distance, divided by the distance.

    On the corpus it is more likely than 1/2, and no less than 5/2."""
    falling = np.exp(-math.sqrt(3) * distances)
    return (1 + math.sqrt(3) * distances) * falling, 3 * falling


def within_sizes(columns: Array, same: Array) -> Array:
    """Columns over rows, less their means within each size. `same`: 1 where two rows are of one size, else 0."""
    return np.asarray(columns - (same @ columns) / same.sum(axis=1)[:, None])


def distance(points: Array) -> Array:
    """Euclidean distances of the rows, shape (rows, rows)."""
    square = (points**2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(square[:, None] + square[None, :] - 2 * points @ points.T, 0.0)))
