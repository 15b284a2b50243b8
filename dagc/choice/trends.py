"""Trends: the first part of a regressor of times, a function of the features for each choice.

Two kinds. `LineTrend`: a line through the logarithms of features and seconds. `SumTrend`: a start, features, and maybe
products of two of them, with factors that are not negative, as operations over a rate and bytes over a bandwidth add up
to the time of a launch. Both give logarithms to base 2 of seconds, in units of ONE.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from dagc.base.python import np
from dagc.choice.selector import UNIT, Scale

SLOPE = 1 << 20  # a slope of 1, so that a line is in units of ONE
ONE = SLOPE * UNIT  # a factor of 2 in time
BEYOND = 2.0  # of a coordinate: how far the trend extrapolates outside of the trained range
SHORTEST, LARGEST = 2.0**-100, 2.0**63  # seconds that a sum may have
# Magnitudes, so that the sum of a start and 16 products stays below 2**62.
MOST_SLOPE, MOST_PLACE, MOST_START = 1 << 26, 1 << 31, 1 << 60
# Of the ridge regressions of the mean over the choices, and of the difference of each choice from it. Chosen on six
# tables: unconstrained lines ranked choices worse at held-out families of inputs.
ALPHAS, OWN_ALPHAS = (0.01, 0.1, 1.0, 10.0, 100.0), (1e2, 1e3, 1e4)
FOLDS = 5
# Chosen on SpMV and sort with amounts of work as features; with 1 to 5, histogram and BFS lost up to 2.7 points.
SPARE = 8
# For sums: rounds of reweighted least squares; errors of logarithms count squared up to HUBER and linearly above.
ROUNDS, HUBER, SMALL, WEIGHTS = 9, 0.3, 1e-9, (0.02, 20.0)
_DROPPED = (1 << 36) - 1  # of the 52 fractional bits: a product of three such numbers is exact

# A factor and the features that it is multiplied by; the index after the last feature stands for 1.
Term: TypeAlias = tuple[float, int, int]


def shortened(x: float) -> float:
    """The number with 17 binary digits, towards 0."""
    (bits,) = struct.unpack("<q", struct.pack("<d", x))
    (short,) = struct.unpack("<d", struct.pack("<q", bits & ~_DROPPED))
    return float(short)


@dataclass(frozen=True, slots=True)
class LineTrend:
    """For each choice: `starts` plus `slopes` (a row for each) times the coordinates, clamped to `lows` and `highs`."""

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    starts: tuple[int, ...]
    slopes: tuple[tuple[int, ...], ...]

    def with_fixed(self, scales: Sequence[Scale], fixed: Mapping[int, float]) -> LineTrend:
        """For vectors without the features at `fixed`, which have these values."""
        kept = [i for i in range(len(self.lows)) if i not in fixed]
        here = {i: min(max(scales[i].coordinate(v, near=True), self.lows[i]), self.highs[i]) for i, v in fixed.items()}
        starts = (
            s + sum(row[i] * at for i, at in here.items()) for s, row in zip(self.starts, self.slopes, strict=True)
        )
        return LineTrend(
            tuple(self.lows[i] for i in kept), tuple(self.highs[i] for i in kept),
            tuple(whole(s, MOST_START) for s in starts), tuple(tuple(row[i] for i in kept) for row in self.slopes),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SumTrend:
    """For each choice: the sum of `terms`, in this order. A feature is clamped to 0 and its `most`.

    Factors and features have 17 bits, so that products are exact and contraction of a product and a sum changes
    nothing.
    """

    most: tuple[float, ...]
    terms: tuple[tuple[Term, ...], ...]

    def with_fixed(self, scales: Sequence[Scale], fixed: Mapping[int, float]) -> SumTrend:
        """For vectors without the features at `fixed`, which have these values; exact to 17 bits."""
        kept = [i for i in range(len(self.most)) if i not in fixed]
        places = {old: new for new, old in enumerate([*kept, len(self.most)])}
        here = {i: shortened(min(max(v, 0.0), self.most[i])) for i, v in fixed.items()}

        def without(term: Term) -> Term:
            factor, *features = term
            value = factor * math.prod(here.get(i, 1.0) for i in features)
            i, j = sorted(places.get(i, len(kept)) for i in features)
            return _inside(value), i, j

        return SumTrend(tuple(self.most[i] for i in kept), tuple(tuple(map(without, terms)) for terms in self.terms))


Trend: TypeAlias = LineTrend | SumTrend
_Fit: TypeAlias = Callable[[Any, Any, Any, Any], Trend]


def texts(trend: Trend, data: Sequence[str], scales: Sequence[Scale]) -> tuple[str, ...]:
    """The seconds of each choice, a product of powers or a sum, over the features `data`."""
    if isinstance(trend, SumTrend):
        names = (*data, "")
        sums = ([(f, " * ".join(filter(None, (names[i], names[j])))) for f, i, j in terms] for terms in trend.terms)
        return tuple(" + ".join(f"{f:.6g} s" + (f" * {of}" if of else "") for f, of in terms) for terms in sums)
    ranges = [f"[{low / UNIT:.4g}, {high / UNIT:.4g}]" for low, high in zip(trend.lows, trend.highs, strict=True)]
    coordinates = (scale.text(name) for name, scale in zip(data, scales, strict=True))
    inside = [f"({text} in {within})" for text, within in zip(coordinates, ranges, strict=True)]
    both = zip(trend.starts, trend.slopes, strict=True)
    powers = ((start, [f"{s / SLOPE:+.4g} * {of}" for s, of in zip(row, inside, strict=True)]) for start, row in both)
    return tuple(f"2**({start / ONE:.6g} {' '.join(of)}) s" for start, of in powers)


# ---- training ---------------------------------------------------------------------------------


def trend_of(x: Any, rows: Any, logs: Any, timed: Any, seed: int = 0) -> Trend:
    """The kind of trend with the least squared error in cross-validation (FOLDS folds), trained on all points: a line,
    a sum of features, or a sum of features and products of two. A sum with more terms than half the points is not
    considered, since it may be wrong by any factor between the points; without products, SPARE points more than terms
    are enough.

    `x`: coordinates, shape (points, features); `rows`: the features themselves; `logs`: logarithms to base 2 of the
    seconds, shape (points, choices); `timed`, of that shape: whether that was measured. Values substituted for failed
    choices are used neither in a sum nor in the comparison.
    """
    from sklearn.model_selection import KFold

    alone, pairs = _alone(rows), _pairs(rows)
    fits: list[_Fit] = [line_of]
    if len(x) >= min(2 * len(alone), len(alone) + SPARE):
        fits.append(partial(sums_of, alone))
    if len(x) >= 2 * len(pairs):
        fits.append(partial(sums_of, pairs))
    if len(fits) == 1:
        return line_of(x, rows, logs, timed)
    errors = [0.0] * len(fits)
    for kept, left in KFold(min(FOLDS, len(x)), shuffle=True, random_state=seed).split(x):
        for k, fit in enumerate(fits):
            trend = fit(x[kept], rows[kept], logs[kept], timed[kept])
            wrong = logs_of(trend, x[left], rows[left]) - logs[left]
            errors[k] += float((np.where(timed[left], wrong, 0) ** 2).sum())
    best = 0
    for k, error in enumerate(errors):  # the choice must not depend on the last digits of a math library
        if error < 0.999 * errors[best]:
            best = k
    return fits[best](x, rows, logs, timed)


def logs_of(trend: Trend, x: Any, rows: Any) -> Any:
    """Logarithms to base 2 of seconds, shape (points, choices): those of the C code up to rounding. `x`, `rows` as of
    `trend_of`."""
    if isinstance(trend, LineTrend):
        inside = np.clip(x, np.array(trend.lows) / UNIT, np.array(trend.highs) / UNIT)
        return np.array(trend.starts) / ONE + inside @ (np.array(trend.slopes).T / SLOPE)
    here = np.column_stack([np.clip(rows, 0, trend.most), np.ones(len(rows))])
    seconds = [sum((f * here[:, i] * here[:, j] for f, i, j in terms), np.zeros(len(rows))) for terms in trend.terms]
    return np.log2(np.clip(np.array(seconds).T, SHORTEST, LARGEST))


def line_of(x: Any, rows: Any, logs: Any, timed: Any) -> LineTrend:
    """Lines by ridge regression, weights by cross-validation. Arguments as of `trend_of`."""
    lines = lines_of(x, logs)
    lows, highs = ((x.min(axis=0) - BEYOND) * UNIT, (x.max(axis=0) + BEYOND) * UNIT)
    return LineTrend(
        tuple(map(int, lows)), tuple(map(int, highs)), tuple(whole(start * ONE, MOST_START) for start, _ in lines),
        tuple(tuple(whole(v * SLOPE, MOST_SLOPE) for v in slope) for _, slope in lines),
    )  # fmt: skip


def lines_of(x: Any, logs: Any) -> list[tuple[float, Any]]:
    """The intercept and slopes of each column: those of the mean of the columns plus those of the difference."""
    mean = logs.mean(axis=1)
    start, slopes = _line(x, mean, ALPHAS)
    return [(start + at, slopes + own) for at, own in (_line(x, column - mean, OWN_ALPHAS) for column in logs.T)]


def _line(x: Any, column: Any, alphas: tuple[float, ...]) -> tuple[float, Any]:
    """A line by ridge regression, on coordinates scaled to unit variance."""
    from sklearn.linear_model import RidgeCV

    middle, width = x.mean(axis=0), x.std(axis=0)
    width[width == 0] = 1
    fitted = RidgeCV(alphas).fit((x - middle) / width, column)
    slope = fitted.coef_ / width
    return float(fitted.intercept_ - slope @ middle), slope


def sums_beyond(rows: Any, logs: Any, timed: Any) -> SumTrend:
    """The sums of features alone, which continue outside of the trained range. Arguments as of `trend_of`."""
    sums = sums_of(_alone(rows), rows, rows, logs, timed)
    return replace(sums, most=(LARGEST,) * rows.shape[1])


def sums_of(pairs: Sequence[tuple[int, int]], x: Any, rows: Any, logs: Any, timed: Any) -> SumTrend:
    """A sum of these terms, with non-negative factors (Lawson and Hanson 1974) and reduced weights of large errors of
    logarithms (Huber 1964), since an estimated feature may be far off at some points."""
    ones = np.minimum(np.column_stack([rows, np.ones(len(rows))]), LARGEST)
    basis = np.column_stack([ones[:, i] * ones[:, j] for i, j in pairs])
    terms = []
    for column, measured in zip(logs.T, timed.T, strict=True):
        weighted = basis[measured] * (2.0 ** -column[measured])[:, None]
        factors = ((_inside(float(f)), *pair) for f, pair in zip(_factors(weighted), pairs, strict=True))
        terms.append(tuple(term for term in factors if term[0] > 0))
    most = np.minimum(np.maximum(rows.max(axis=0), 0) * 2**BEYOND, LARGEST)
    return SumTrend(tuple(map(float, most)), tuple(terms))


def _factors(shares: Any) -> Any:
    """The factors of terms whose sum should be 1 at each point. `shares`: the terms, shape (points, terms)."""
    from scipy.optimize import nnls

    size = np.linalg.norm(shares, axis=0)
    size[size == 0] = 1
    coefficients, weights = np.zeros(len(size)), np.ones(len(shares))
    for _ in range(ROUNDS):
        try:
            coefficients, _ = nnls(shares / size * weights[:, None], weights, maxiter=100 * len(size))
        except RuntimeError:  # after so many iterations
            break
        sums = np.maximum(shares @ (coefficients / size), SMALL)
        errors = np.abs(np.log(sums))
        # Weights for the error of the logarithm instead of that of the sum, limited by HUBER.
        ratio = np.divide(errors, np.abs(sums - 1), out=np.ones_like(sums), where=np.abs(sums - 1) > SMALL)
        weights = np.clip(ratio * np.sqrt(np.minimum(1, HUBER / np.maximum(errors, SMALL))), *WEIGHTS)
    return coefficients / size


def _pairs(rows: Any) -> list[tuple[int, int]]:
    """The features of each term that a sum may have; the index after the last feature stands for 1."""
    usable = [i for i, _ in _alone(rows)]
    return [(i, j) for n, i in enumerate(usable) for j in usable[n:]]


def _alone(rows: Any) -> list[tuple[int, int]]:
    """The same without products: features that are never negative, and a constant."""
    count = rows.shape[1]
    usable = [i for i in range(count) if rows[:, i].min() >= 0 and rows[:, i].max() > 0]
    return [(i, count) for i in (*usable, count)]


def _inside(factor: float) -> float:
    """Limit a factor to the range of a tuned file."""
    return shortened(min(factor, LARGEST)) if factor >= SHORTEST * SHORTEST else 0.0


def whole(value: float, most: int) -> int:
    """The nearest whole number within +-most."""
    return max(-most, min(round(value), most))
