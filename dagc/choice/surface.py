"""Times of one op under all settings at all sizes: one Gaussian process in logarithms, conditioned on measurements.

The prior mean is what a model and the pre-trained learner predict (`dagc.choice.residual`). Their error has these
parts. Each term of the model may be wrong by a factor that is the same for all settings and sizes of the op. The rest
consists of an error of the setting that is the same at all sizes, one that is similar at similar sizes, and one of the
cell alone (fractions of the variance of each cell). All cells of a size share an unknown factor, and the predicted
differences may be too large or too small as a whole. A measurement at one size therefore informs the others.

The value of a measurement is the knowledge gradient (Frazier, Powell, Dayanik: The Knowledge-Gradient Policy for
Correlated Normal Beliefs, 2009): the expected decrease of the least expected time, here summed over the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dagc.base.python import Array, Numbers

LEVEL = 300.0  # standard deviation of the logarithm of the factor of a size: practically unknown
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
DRAWS = 500  # draws from the posterior, for probabilities
JITTER = 1e-9  # of the mean variance: far below the noise of a measurement
AMPLITUDES = (0.25, 0.5, 1.0, 2.0, 4.0)  # error of a prediction, relative to the usual error
NEGLIGIBLE = 0.02  # a component of the mixture with less weight is dropped
WARP = 5.0  # a warp along x, in doublings


@dataclass(frozen=True, slots=True)
class Covariance:
    """Hyperparameters, fitted to the errors of the learner on families that it was not trained on.

    `lengths`: correlation lengths along x up to a warp and beyond, along y and z of the block, and along any other
    tunable, in doublings; `size_length`: the correlation length of sizes, in doublings. `shared`, `similar`, `alone`:
    fractions of the variance. `strength`: standard deviation of the factor of the predicted differences; `terms`: that
    of the logarithm of the factor of each term. `noise`: least relative standard deviation of a measurement.
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
    """Settings at sizes, with the prior of their times.

    `mean`, `deviation`: of the prediction for each row, without the factor of the size, shape (rows,); `responses`:
    derivative of the logarithm of its time with respect to that of each term, (rows, terms); `coordinates`: those of
    the setting of each row, (rows, 3 + other tunables), and `sizes`: those of the sizes, (sizes, parameters), in
    doublings; `size_of`: the size of each row, in ascending order.
    """

    mean: Array
    deviation: Array
    responses: Array
    coordinates: Array
    sizes: Array
    size_of: Numbers

    def missed(self, amplitude: float) -> Rows:
        """The same rows with the error of the prediction multiplied by this factor."""
        return replace(self, deviation=amplitude * self.deviation, responses=amplitude * self.responses)


class TimeSurface:
    """Rows are cells: a setting at a size. Logarithms of seconds.

    The size of the prediction's error differs between kernels, so the process is a mixture over AMPLITUDES, weighted by
    the measurements.
    """

    def __init__(self, kernel: Covariance, rows: Rows) -> None:
        self.kernel, self.size_of = kernel, rows.size_of
        self.first = np.flatnonzero(np.r_[True, rows.size_of[1:] != rows.size_of[:-1]])  # the first row of each size
        self._parts = [
            _Part(rows.mean.astype(float), prior_covariance(kernel, rows.missed(a)), -math.log(len(AMPLITUDES)))
            for a in AMPLITUDES
        ]
        self.measured: dict[int, int] = {}  # number of measurements of each row

    @property
    def mean(self) -> Array:
        """Expected logarithm of each row's time."""
        return np.asarray(sum(w * part.mean for w, part in self._weighted()))

    def _weighted(self) -> list[tuple[float, _Part]]:
        total = float(np.logaddexp.reduce([part.log_weight for part in self._parts]))
        return [(math.exp(part.log_weight - total), part) for part in self._parts]

    def observe(self, row: int, log_time: float, noise: float = math.nan) -> None:
        """Condition on a measurement: the logarithm of its seconds, and its relative standard deviation. Values that
        are not finite are ignored."""
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
        """At most `number` of the rows: those that may be the fastest of their size, by the mean minus two standard
        deviations, relative to the least mean there."""
        if len(rows) <= number:
            return rows
        mean = self.mean
        least = np.minimum.reduceat(mean, self.first)[self.size_of]
        start = self.first[self.size_of]  # deviations relative to it exclude the factor of the size
        spread = sum(w * part.deviations(rows, start[rows]) for w, part in self._weighted())
        score = mean[rows] - least[rows] - 2 * spread
        return np.sort(rows[np.argsort(score, kind="stable")[:number]])

    def against(self, row: int, other: int) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm of the ratio of two rows' times."""
        parts = [(w, *part.against(row, other)) for w, part in self._weighted()]
        mean = sum(w * m for w, m, _ in parts)
        return mean, math.sqrt(max(0.0, sum(w * (v + (m - mean) ** 2) for w, m, v in parts)))

    def slower(self, row: int, other: int) -> float:
        """Probability that a row takes longer than another one. It is that of the mixture: a Gaussian of its mean and
        variance, which the largest AMPLITUDES set, would give a predicted gain less weight."""
        parts = [(w, *part.against(row, other)) for w, part in self._weighted()]
        return sum(w * (0.5 * math.erfc(-m / math.sqrt(2 * v)) if v > 0 else float(m > 0)) for w, m, v in parts)

    def doubt(self, chosen: int, rows: Numbers, share: float, seed: int = 0) -> float:
        """Probability that one of these rows is faster than the row `chosen` by more than this fraction of its time."""
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
        """Draws of the rows relative to the chosen one, so that the unknown factor of the size cancels."""
        c = self.covariance
        over = c[np.ix_(rows, rows)] - c[rows, chosen][:, None] - c[chosen, rows][None, :] + c[chosen, chosen]
        normal = np.random.default_rng(seed).standard_normal((len(rows), DRAWS))
        drawn = (self.mean[rows] - self.mean[chosen])[:, None] + _root(over) @ normal
        return float((drawn.min(axis=0) < math.log1p(-share)).mean())


def _root(covariance: Array) -> Array:
    """A matrix R with R R^T = covariance, up to rounding. Takes a tenth of the time of an eigenvalue decomposition,
    which is used if the rounding errors of a nearly singular covariance are larger than the term added to its
    diagonal."""
    size = len(covariance)
    try:
        return np.linalg.cholesky(covariance + JITTER * np.trace(covariance) / size * np.eye(size))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def prior_covariance(kernel: Covariance, rows: Rows) -> Array:
    """Covariance of the logarithms of all rows' times before a measurement, shape (rows, rows)."""
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
    beyond it, y, z, and all other tunables. Up to a warp, x determines which addresses a warp requests; beyond, it does
    not."""
    x, rest = coordinates[:, :1], coordinates[:, 1:]
    columns = np.hstack([np.minimum(x, WARP), np.maximum(x - WARP, 0.0), rest])
    apart = (columns[:, None, :] - columns[None, :, :]) ** 2
    return np.asarray(np.dstack([apart[:, :, :4], apart[:, :, 4:].sum(axis=2)]) / np.array(lengths) ** 2)


def matern(distances: Array) -> tuple[Array, Array]:
    """The Matern 3/2 covariance, and minus its derivative with respect to the distance, divided by the distance.

    On the corpus its likelihood is higher than that of 1/2, and not lower than that of 5/2."""
    falling = np.exp(-math.sqrt(3) * distances)
    return (1 + math.sqrt(3) * distances) * falling, 3 * falling


def within_sizes(columns: Array, same: Array) -> Array:
    """Columns over rows, minus their means within each size. `same`: 1 if two rows have the same size, else 0."""
    return np.asarray(columns - (same @ columns) / same.sum(axis=1)[:, None])


def distance(cases: Array) -> Array:
    """Euclidean distances of the rows, shape (rows, rows)."""
    square = (cases**2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(square[:, None] + square[None, :] - 2 * cases @ cases.T, 0.0)))
