"""Rational functions through measured points: step 2 of KLARAPTOR ("rational function determination").

A low-level metric (transactions, instructions, ...) counted at some points of data and program parameters becomes
P / Q, two polynomials, as a `RationalProgram`. For a reliable fit, variables are scaled to -1 ... 1 (powers of sizes in
the thousands lose all digits), degrees and regularisation are selected on points that the coefficients were not fitted
to, and the stored error is from points that this selection did not use either.

P - y Q = 0 is linear in the coefficients. Q is 1 in the middle of the points, which excludes P = Q = 0 and a pole
there. Rows are weighted for relative errors, and divided by the Q of the previous round (Sanathanan and Koerner), since
P - y Q is the error times Q.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.base.python import np
from dagc.perf.evaluate import PartialEvaluator
from dagc.perf.program import Assign, Number, Parameter, ParameterKind, RationalProgram

if TYPE_CHECKING:
    import sympy as sp

RIDGES = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)  # of the largest singular value
DROPPED = 1e-12  # singular values below this fraction of the largest count as 0
ROUNDS = 6  # of reweighting
LEAST_Q = 0.02  # rows with a smaller denominator are not weighted more
NEAR_POLE = 1e-10  # of Q in the middle; 1 / (a b c), each from 1 to 1000, has no pole and a Q of 1e-9
SMALL = 1e-4  # values below this fraction of the largest are not weighted more
EXACT_FIT = 1e-9  # candidates with smaller errors are equally good
WORTH = 1.1  # factor by which a candidate with more coefficients must be better

Exponents = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Relative errors at points that neither the coefficients nor the degrees were fitted to."""

    points: int
    median: float
    largest: float


@dataclass(frozen=True)
class Fitted:
    """P / Q in z = (x - middle) / half. `below` starts with the constant, whose coefficient is 1."""

    names: tuple[str, ...]
    middle: tuple[float, ...]
    half: tuple[float, ...]
    above: Exponents
    below: Exponents
    above_coefficients: tuple[float, ...]
    below_coefficients: tuple[float, ...]
    degrees: tuple[int, int]
    ridge: float
    held_out: HeldOut

    def program(self, name: str, *, program: Collection[str] = (), unit: str = "") -> RationalProgram:
        """The function as a rational program. Parameters are integers, of kind data except for those in `program`."""
        import sympy as sp

        from dagc.cuda.expressions import real, symbol  # loads sympy

        kinds = [ParameterKind.PROGRAM if n in program else ParameterKind.DATA for n in self.names]
        parameters = tuple(
            Parameter(n, kind, Number.INTEGER, "", "of the fitted points")
            for n, kind in zip(self.names, kinds, strict=True)
        )
        scaled = [real(f"{name}_{n}") for n in self.names]
        ranges = zip(self.names, self.middle, self.half, strict=True)
        values = [(symbol(n) - sp.Float(middle)) * sp.Float(1 / half) for n, middle, half in ranges]
        steps = [_let(str(s), v, "scaled to -1 ... 1") for s, v in zip(scaled, values, strict=True)]
        products: dict[tuple[int, ...], sp.Expr] = {(0,) * len(scaled): sp.Integer(1)}
        for powers in sorted({*self.above, *self.below} - products.keys(), key=lambda p: (sum(p), p)):
            first = next(i for i, p in enumerate(powers) if p)
            product = scaled[first] * products[tuple(p - (i == first) for i, p in enumerate(powers))]
            if sum(powers) > 1:
                variable = real(f"{name}_m{'_'.join(map(str, powers))}")
                steps.append(_let(str(variable), product, "product of powers"))
                product = variable
            products[powers] = product

        def polynomial(exponents: Exponents, coefficients: Sequence[float]) -> sp.Expr:
            terms = (sp.Float(c) * products[p] for p, c in zip(exponents, coefficients, strict=True) if c)
            return sum(terms, sp.Float(0))

        steps.append(_let(f"{name}_above", polynomial(self.above, self.above_coefficients), "numerator"))
        steps.append(_let(f"{name}_below", polynomial(self.below, self.below_coefficients), "denominator"))
        result = real(f"{name}_above") / real(f"{name}_below")
        steps.append(Assign(name, result, Number.REAL, unit, "fitted"))
        source = f"fitted; error at {self.held_out.points} held-out points: median {self.held_out.median:.2g}, largest "
        return RationalProgram(name, parameters, tuple(steps), name, unit, f"{source}{self.held_out.largest:.2g}")

    def __call__(self, points: Any) -> np.ndarray:
        """Values at (n, d) points of integers, by the rational program."""
        columns = _points(points, len(self.names)).astype(np.int64)
        values = self._evaluator({n: columns[:, i] for i, n in enumerate(self.names)})
        return np.broadcast_to(np.asarray(values, np.float64), (len(columns),)).copy()

    def to_json(self) -> dict[str, Any]:
        """The function as JSON, for tuned files."""
        return asdict(self)

    @property
    def ranges(self) -> tuple[tuple[str, float, float], ...]:
        """The least and the largest value of each parameter at the fitted points; outside, the error is unknown."""
        each = zip(self.names, self.middle, self.half, strict=True)
        return tuple((name, middle - half, middle + half) for name, middle, half in each)

    def inside(self, points: Any) -> np.ndarray:
        """Which points are in the bounding box of the fitted points; outside, the error is unknown."""
        scaled = (_points(points, len(self.names)) - np.array(self.middle)) / np.array(self.half)
        return np.asarray((np.abs(scaled) <= 1 + 1e-12).all(axis=1))

    @cached_property
    def _evaluator(self) -> PartialEvaluator:
        return PartialEvaluator(self.program("fitted"), {})


def unknowns(dimensions: int, degree: int) -> int:
    """Number of coefficients of the largest candidate: P and Q of total degree `degree`, one coefficient being 1."""
    return 2 * math.comb(dimensions + degree, degree) - 1


def points_needed(dimensions: int, degree: int) -> int:
    """Distinct points that `fit_rational` needs: the share left for the coefficients determines the largest
    candidate."""
    wanted = count = unknowns(dimensions, degree)
    while count - 2 * _held(count) < wanted:
        count += 1
    return count


def fit_rational(points: Any, values: Any, names: Sequence[str], max_degree: int, *, seed: int = 0) -> Fitted:
    """P / Q through `values` (n,) at `points` (n, d) of integers; total degrees from 0 to `max_degree` are tried.

    Points are dealt by `seed`: three quarters for the coefficients, an eighth for the degrees, an eighth for the error.
    Raises UsageError if there are too few distinct points, a parameter never varies, or a value is not finite.
    """
    x, y = _points(points, len(names)), np.asarray(values, np.float64)
    _check(x, y, names, max_degree)
    middle = (x.max(axis=0) + x.min(axis=0)) / 2
    half = (x.max(axis=0) - x.min(axis=0)) / 2
    z = (x - middle) / half
    size = float(np.abs(y).max()) or 1.0
    train, choose, test = _deal(x, seed)
    candidates = []
    for p, q in itertools.product(range(max_degree + 1), repeat=2):
        above, below = _exponents(len(names), p), _exponents(len(names), q)
        for ridge, a, b in _solve(z[train], y[train] / size, above, below):
            if _pole(z, below, b, seed):
                continue
            error = _errors(z[choose], y[choose] / size, above, below, a, b)
            candidates.append((float(np.sqrt(np.mean(error**2))), len(a) + len(b), p, q, ridge, a, b))
    best = min(c[0] for c in candidates)
    good = [c for c in candidates if c[0] <= max(best * WORTH, EXACT_FIT)]
    _, _, p, q, ridge, a, b = min(good, key=lambda c: (c[1], c[0]))
    above, below = _exponents(len(names), p), _exponents(len(names), q)
    error = _errors(z[test], y[test] / size, above, below, a, b)
    return Fitted(
        tuple(names), tuple(middle.tolist()), tuple(half.tolist()), above, below,
        tuple((a * size).tolist()), tuple(b.tolist()), (p, q), ridge,
        HeldOut(len(error), float(np.median(error)), float(error.max())),
    )  # fmt: skip


def sample_points(
    ranges: Mapping[str, tuple[int, int]], n: int, seed: int, *, keep: Callable[[np.ndarray], np.ndarray] | None = None
) -> np.ndarray:
    """`n` distinct points of integers, (n, d) in the order of `ranges` (least and largest value of each parameter).

    Each range is cut into as many parts as points are drawn, of equal ratio, and each part is used once (a Latin
    hypercube), so that small and large values are equally frequent and most are not powers of two. `keep` selects the
    legal ones of (m, d) points. Raises UsageError if a range is empty or not above 0, or there are not `n` legal
    points.
    """
    for name, (low, high) in ranges.items():
        if not 1 <= low <= high:
            raise UsageError(f"range {low} to {high} of `{name}`", "give a least value of 1 or more, and the largest")
    generator = np.random.default_rng(seed)
    least, most = (np.array([r[i] for r in ranges.values()], np.float64) for i in (0, 1))
    points: dict[tuple[int, ...], None] = {}
    for _ in range(200):
        parts = np.stack([generator.permutation(n) for _ in ranges], axis=1)
        share = (parts + generator.random(parts.shape)) / n
        # From half below the least to half above the largest, so that rounding gives the ends as often as the others.
        drawn = np.exp(np.log(least - 0.5) + share * (np.log(most + 0.5) - np.log(least - 0.5)))
        rows = np.clip(np.rint(drawn), least, most).astype(np.int64)
        legal = np.ones(len(rows), bool) if keep is None else np.asarray(keep(rows), bool)
        points |= dict.fromkeys(map(tuple, rows[legal].tolist()))
        if len(points) >= n:
            return np.array(list(points)[:n], np.int64)
    help = "widen the ranges or ask for fewer"
    raise UsageError(f"{len(points)} distinct legal points were found, {n} are needed", help)


RIDGE, PASSES = 1e-6, 20  # of the information matrix; most rounds of exchanges


def d_optimal(points: np.ndarray, n: int, degree: int = 2) -> list[int]:
    """Indices of `n` of the (m, d) points, in ascending order, that determine a polynomial of this total degree best:
    the determinant of the information matrix is a local maximum under exchanges (Fedorov). m >= n."""
    width = points.max(axis=0) - points.min(axis=0)
    z = 2 * (points - points.min(axis=0))[:, width > 0] / width[width > 0] - 1
    x = _matrix(z, _exponents(z.shape[1], degree))
    chosen: list[int] = []
    information = RIDGE * np.eye(x.shape[1])

    def best_other() -> tuple[int, float]:
        gains = np.einsum("ij,ij->i", x @ np.linalg.inv(information), x)
        gains[chosen] = -1.0
        best = int(gains.argmax())
        return best, float(gains[best])

    for _ in range(n):
        best, _ = best_other()
        chosen.append(best)
        information = information + np.outer(x[best], x[best])
    for _ in range(PASSES if n < len(points) else 0):
        changed = False
        for place, row in enumerate(tuple(chosen)):
            information = information - np.outer(x[row], x[row])
            own = float(x[row] @ np.linalg.inv(information) @ x[row])
            best, gain = best_other()
            taken = best if gain > own * (1 + 1e-9) else row
            chosen[place] = taken
            changed |= taken != row
            information = information + np.outer(x[taken], x[taken])
        if not changed:
            break
    return sorted(chosen)


# ---- the fit --------------------------------------------------------------------------------


def _check(x: np.ndarray, y: np.ndarray, names: Sequence[str], degree: int) -> None:
    if degree < 0:
        raise UsageError(f"degree {degree}", "give 0 or more")
    if y.shape != (len(x),):
        raise UsageError(f"{len(x)} points but values of shape {y.shape}", "give one value a point")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise UsageError("a point or a value is not a finite number", "leave points out that failed")
    have, needed = len(np.unique(x, axis=0)), points_needed(len(names), degree)
    if have < needed:
        raise UsageError(
            f"{counted(have, 'distinct point is', 'distinct points are')} too few:"
            f" degree {degree} in {counted(len(names), 'parameter')} needs {needed}",
            f"give {needed} points or more, or a lower degree",
        )
    for name, column in zip(names, x.T, strict=True):
        if (column == column[0]).all():
            raise UsageError(f"`{name}` is {column[0]:g} at all points", "vary it, or leave it out")


def _held(count: int) -> int:
    return max(2, count // 8)


def _deal(x: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows for coefficients, degrees and error. A point measured twice is in only one of the three."""
    _, group = np.unique(x, axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.random.default_rng(seed).permutation(int(group.max()) + 1)
    place = np.argsort(order)[group]
    held = _held(len(order))
    rows = np.arange(len(x))
    return rows[place >= 2 * held], rows[place < held], rows[(place >= held) & (place < 2 * held)]


def _exponents(dimensions: int, degree: int) -> Exponents:
    """All monomials up to the total degree, the constant first."""
    exponents = [p for p in itertools.product(range(degree + 1), repeat=dimensions) if sum(p) <= degree]
    return tuple(sorted(exponents, key=lambda p: (sum(p), p)))


def _matrix(z: np.ndarray, exponents: Exponents) -> np.ndarray:
    return np.stack([np.prod(z ** np.array(p), axis=1) for p in exponents], axis=1)


def _solve(z: np.ndarray, y: np.ndarray, above: Exponents, below: Exponents) -> list[tuple[float, Any, Any]]:
    """(ridge, coefficients of P, of Q) for each ridge."""
    denominator = _matrix(z, below)
    columns = np.hstack([_matrix(z, above), -y[:, None] * denominator[:, 1:]])
    relative = 1 / np.maximum(np.abs(y), SMALL)
    out = []
    for ridge in RIDGES:
        b = np.zeros(len(below))
        b[0] = 1.0
        for _ in range(ROUNDS if len(below) > 1 else 1):
            weight = relative / np.maximum(np.abs(denominator @ b), LEAST_Q)
            u, s, vt = np.linalg.svd(columns * weight[:, None], full_matrices=False)
            used = s > DROPPED * s[0]
            factors = np.where(used, s / np.where(used, s**2 + (ridge * s[0]) ** 2, 1.0), 0.0)
            solution = vt.T @ (factors * (u.T @ (y * weight)))
            b = np.concatenate([[1.0], solution[len(above) :]])
        out.append((ridge, solution[: len(above)], b))
    return out


def _pole(z: np.ndarray, below: Exponents, b: np.ndarray, seed: int) -> bool:
    """Whether Q changes its sign at the points, or between them in their box."""
    if len(below) == 1:
        return False
    return any((matrix @ b < NEAR_POLE).any() for matrix in (_matrix(z, below), _matrix_between(below, seed)))


@lru_cache(maxsize=64)
def _matrix_between(below: Exponents, seed: int) -> np.ndarray:
    """The matrix at points drawn from the box of all points, and at its corners."""
    dimensions = len(below[0])
    drawn = np.random.default_rng(seed).uniform(-1, 1, (2048, dimensions))
    corners = list(itertools.product((-1.0, 1.0), repeat=dimensions)) if dimensions <= 8 else []
    return _matrix(np.array([*drawn, *corners]), below)


def _errors(z: np.ndarray, y: np.ndarray, above: Exponents, below: Exponents, a: Any, b: Any) -> np.ndarray:
    """Relative errors; for small values relative to SMALL."""
    fitted = (_matrix(z, above) @ a) / (_matrix(z, below) @ b)
    return np.asarray(np.abs(fitted - y) / np.maximum(np.abs(y), SMALL))


def _points(points: Any, dimensions: int) -> np.ndarray:
    rows = np.asarray(points, np.float64)
    if rows.ndim != 2 or rows.shape[1] != dimensions or not len(rows):
        raise UsageError(f"points of shape {rows.shape}", f"give one row a point, {dimensions} numbers each")
    return rows


def _let(name: str, value: sp.Expr, meaning: str) -> Assign:
    return Assign(name, value, Number.REAL, "", meaning)
