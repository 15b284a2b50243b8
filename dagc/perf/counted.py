"""Counts of a launch as rational functions of sizes and block, fitted to hardware counters; MWP-CWP over them.

KLARAPTOR's steps 2 and 3 ("rational function determination", "code generation"). Counts are fitted per warp with work,
or per memory request, since these depend on little; the number of warps with work follows from the launch
(`dagc.perf.geometry`). The sizes and block dimensions that a count depends on are selected on points that the
coefficients were not fitted to; the stored error is from points that this selection did not use either.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import sympy as sp

from dagc.base.errors import UsageError, counted
from dagc.cuda.expressions import real, symbol
from dagc.ir.program import KernelOp, Program, Region
from dagc.ir.sym import free
from dagc.perf.evaluate import PartialEvaluator
from dagc.perf.geometry import Geometry
from dagc.perf.guards import WARP
from dagc.perf.mwp_cwp import count, time_of
from dagc.perf.program import Assign, Number, Parameter, ParameterKind, RationalProgram

# ---- rational functions through points ----
# Rational functions through measured points: step 2 of KLARAPTOR ("rational function determination").
#
# A low-level metric (transactions, instructions, ...) counted at some points of data and program parameters becomes
# P / Q, two polynomials, as a `RationalProgram`. For a reliable fit, variables are scaled to -1 ... 1 (powers of sizes
# in the thousands lose all digits), degrees and regularisation are selected on points that the coefficients were not
# fitted to, and the stored error is from points that this selection did not use either.
#
# P - y Q = 0 is linear in the coefficients. Q is 1 in the middle of the points, which excludes P = Q = 0 and a pole
# there. Rows are weighted for relative errors, and divided by the Q of the previous round (Sanathanan and Koerner),
# since P - y Q is the error times Q.

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
        parameters = tuple(
            Parameter(
                n,
                ParameterKind.PROGRAM if n in program else ParameterKind.DATA,
                Number.INTEGER,
                "",
                "of the fitted points",
            )
            for n in self.names
        )
        steps: list[Assign] = []
        scaled = []
        for n, middle, half in zip(self.names, self.middle, self.half, strict=True):
            steps.append(_let(f"{name}_{n}", (symbol(n) - sp.Float(middle)) * sp.Float(1 / half), "scaled to -1 ... 1"))
            scaled.append(real(f"{name}_{n}"))
        products: dict[tuple[int, ...], sp.Expr] = {(0,) * len(scaled): sp.Integer(1)}
        for powers in sorted({*self.above, *self.below}, key=lambda p: (sum(p), p)):
            _monomial(name, powers, scaled, products, steps)
        steps.append(_let(f"{name}_above", _sum(self.above, self.above_coefficients, products), "numerator"))
        steps.append(_let(f"{name}_below", _sum(self.below, self.below_coefficients, products), "denominator"))
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
        """The function as JSON, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fitted:
        """Raises KeyError and TypeError if something is missing."""
        return cls(
            tuple(data["names"]), tuple(data["middle"]), tuple(data["half"]),
            tuple(tuple(p) for p in data["above"]), tuple(tuple(p) for p in data["below"]),
            tuple(data["above_coefficients"]), tuple(data["below_coefficients"]), tuple(data["degrees"]),
            data["ridge"], HeldOut(**data["held_out"]),
        )  # fmt: skip

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


# ---- the program ----------------------------------------------------------------------------


def _let(name: str, value: sp.Expr, meaning: str) -> Assign:
    return Assign(name, value, Number.REAL, "", meaning)


def _monomial(
    name: str,
    powers: tuple[int, ...],
    scaled: list[sp.Expr],
    products: dict[tuple[int, ...], sp.Expr],
    steps: list[Assign],
) -> None:
    """A step for a product, from the one of a degree less, which already exists."""
    if powers in products:
        return
    first = next(i for i, p in enumerate(powers) if p)
    less = tuple(p - (i == first) for i, p in enumerate(powers))
    value = scaled[first] * products[less]
    if sum(powers) == 1:
        products[powers] = value
        return
    products[powers] = real(f"{name}_m{'_'.join(map(str, powers))}")
    steps.append(_let(str(products[powers]), value, "product of powers"))


def _sum(exponents: Exponents, coefficients: Sequence[float], products: Mapping[tuple[int, ...], sp.Expr]) -> sp.Expr:
    terms = (sp.Float(c) * products[p] for p, c in zip(exponents, coefficients, strict=True) if c)
    return sum(terms, sp.Float(0))


# ---- counts ----

SOURCE = "Hong and Kim, ISCA 2009, over counts that were fitted to hardware counters"
FEWEST = 16  # launches
# Parameters that counts may depend on besides sizes. The whole block only where the lanes are not enough: between two
# blocks with the same lanes, a fit's error of a few per cent would decide, which on the oracle costs more than the true
# difference (docs/explanation/mwp-cwp.md). Counts such as 5 + 8 n / bx, of a block for each row, need it.
LANES, BLOCK = ("lanes_x",), ("lanes_x", "blockDim_x", "blockDim_y")
MEDIAN_BOUND, LARGEST_BOUND = 0.15, 1.0  # errors at held-out launches above which a fit is refused
WORSE = 1.05  # factor by which the error may grow if a parameter is dropped
EXACT = 1e-3  # parameters with smaller errors are equally good
FOLDS = 4
POOR = 0.05  # error above which a function of the higher degree is grown, with so many parameters:
MOST = 4
SECTOR, SECTORS_PER_LINE = 32, 4  # bytes of a sector

# name -> (unit, meaning)
COUNTS: dict[str, tuple[str, str]] = {
    "instructions": ("instructions", "of a warp that has work"),
    "requests": ("instructions", "that go to memory, of a warp that has work"),
    "sectors": ("sectors", "of a request"),
}


@dataclass(frozen=True, slots=True)
class CountedLaunch:
    """One counted launch: integer per-rank scalars, block, counts by name (`dagc.measure.profile.METRICS`)."""

    scalars: Mapping[str, int]
    block: tuple[int, int, int]
    counts: Mapping[str, float]


def derived(counts: Mapping[str, float], active_warps: float) -> dict[str, float]:
    """The fitted quantities, by name as in COUNTS, from the counters of a launch."""
    requests = counts["load_requests"] + counts["store_requests"]
    return {
        "instructions": counts["instructions"] / active_warps,
        "requests": requests / active_warps,
        "sectors": (counts["load_sectors"] + counts["store_sectors"]) / max(1.0, requests),
    }


def fit_counts(
    program: Program, op: KernelOp, launches: Sequence[CountedLaunch], *, seed: int = 0
) -> dict[str, Fitted]:
    """A rational function for each of COUNTS.

    Raises UsageError if there are too few launches, or nothing varies.
    """
    if len(launches) < FEWEST:
        message = f"op `{op.name}`: {counted(len(launches), 'counted launch', 'counted launches')}: too few for a fit"
        raise UsageError(message, f"count {FEWEST} or more: more sizes, or more legal blocks")
    geometry = Geometry(program, op)
    geometry.place()
    shape = RationalProgram(
        "shape", geometry.parameters(), tuple(geometry.b.body), "active_warps", "warps", "geometry of the launch"
    )
    sizes = [p.name for p in shape.parameters if p.kind is ParameterKind.DATA]
    sizes += sorted(n for n in _scalars_of(op) - set(sizes) if all(n in at.scalars for at in launches))
    known: dict[str, Any] = {n: np.array([int(at.scalars[n]) for at in launches]) for n in sizes}
    for i, axis in enumerate("xyz"):
        known[f"blockDim_{axis}"] = np.array([at.block[i] for at in launches])
    known["lanes_x"] = np.minimum(known["blockDim_x"], WARP)
    hardware = {p.name: 1 for p in shape.of_kind(ParameterKind.HARDWARE)}
    run = PartialEvaluator(shape, {**known, **hardware, "registers": 32, "log2_threads": 1.0})
    active = np.broadcast_to(np.asarray(run({}), float), len(launches))
    columns = {n: known[n] for n in (*sizes, *BLOCK) if len(np.unique(known[n])) > 1}
    if not columns:
        raise UsageError(f"op `{op.name}`: all counted launches are alike", "count at several sizes or blocks")
    values = [derived(at.counts, float(w)) for at, w in zip(launches, active, strict=True)]
    fits = {name: _of_block(columns, np.array([v[name] for v in values]), seed) for name in COUNTS}
    for name, fitted in fits.items():
        off = fitted.held_out
        if off.median > MEDIAN_BOUND or off.largest > LARGEST_BOUND:
            message = (
                f"op `{op.name}`: the fit of {name} is off by {off.median:.0%} at held-out launches (median; largest"
            )
            bounds = f"{off.largest:.0%}): more than {MEDIAN_BOUND:.0%} and {LARGEST_BOUND:.0%}"
            raise UsageError(f"{message} {bounds}", "count at more sizes and blocks")
    return fits


def _of_block(columns: Mapping[str, np.ndarray], values: np.ndarray, seed: int) -> Fitted:
    """A function of sizes and lanes; of the whole block too, if that is off by more than POOR and this by less."""
    few = {n: v for n, v in columns.items() if n not in BLOCK or n in LANES}
    score, fitted = _fitted(few, values, seed) if few else (np.inf, None)
    if fitted is None or (score > POOR and len(columns) > len(few)):
        other, whole = _fitted(columns, values, seed)
        if fitted is None or other * WORSE < score:
            return whole
    return fitted


def _scalars_of(op: KernelOp) -> set[str]:
    """Per-rank scalars passed to the kernel by value."""
    return {n for arg in op.args if not isinstance(arg, Region) for n in free(arg)} - {"rank", "ranks"}


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Data for fits: columns and values of the launches that may be `seen`, dealt into folds."""

    columns: Mapping[str, np.ndarray]
    values: np.ndarray
    seen: np.ndarray
    seed: int

    def fit(self, names: Sequence[str], degree: int, at: np.ndarray) -> Fitted | None:
        points = np.stack([self.columns[n][at] for n in names], axis=1)
        try:
            return fit_rational(points, self.values[at], names, degree, seed=self.seed)
        except UsageError:
            return None

    def error(self, fitted: Fitted, names: Sequence[str], at: np.ndarray) -> np.ndarray:
        predicted = fitted(np.stack([self.columns[n][at] for n in names], axis=1))
        return np.asarray(np.abs(predicted - self.values[at]) / np.maximum(np.abs(self.values[at]), 1e-9))

    def score(self, names: Sequence[str], degree: int) -> float:
        """Mean over the folds of the error at the fold left out of the fit; outliers count as 1."""
        off = []
        for fold in (self.seen[i::FOLDS] for i in range(FOLDS)):
            fitted = self.fit(names, degree, np.setdiff1d(self.seen, fold))
            if fitted is None:
                return np.inf
            off.append(np.minimum(self.error(fitted, names, fold), 1.0))
        return float(np.sqrt(np.mean(np.concatenate(off) ** 2)))

    def eliminated(self, degree: int) -> tuple[float, tuple[str, ...], int]:
        """Score, parameters and degree after backward elimination: drops parameters as long as that costs nothing."""
        names = tuple(self.columns)
        now = self.score(names, degree)
        while len(names) > 1:
            shorter = (tuple(n for n in names if n != out) for out in names)
            least, rest = min(((self.score(s, degree), s) for s in shorter), key=lambda t: t[0])
            if least > now * WORSE + EXACT and np.isfinite(now):
                break
            now, names = (min(least, now), rest) if np.isfinite(now) else (least, rest)
        return now, names, degree

    def grown(self, degree: int) -> tuple[float, tuple[str, ...], int]:
        """Score, parameters and degree after forward selection: adds parameters that help."""
        names: tuple[str, ...] = ()
        now = np.inf
        while len(names) < min(MOST, len(self.columns)):
            longer = ((*names, more) for more in self.columns if more not in names)
            least, best = min(((self.score(s, degree), s) for s in longer), key=lambda t: t[0])
            if names and least * WORSE > now:
                break
            now, names = least, best
        return now, names, degree


def _fitted(columns: Mapping[str, np.ndarray], values: np.ndarray, seed: int) -> tuple[float, Fitted]:
    """Error in cross-validation, and the fit. Backward elimination; then a higher degree is tried on the remaining
    parameters."""
    rows = np.random.default_rng(seed).permutation(len(values))
    tested = max(2, len(values) // 6)
    candidates = _Candidates(columns, values, rows[tested:], seed)
    now, names, degree = candidates.eliminated(1)
    if now > EXACT:
        second = candidates.score(names, 2)
        if second * WORSE < now:
            now, degree = second, 2
    if now > POOR:
        now, names, degree = min((now, names, degree), candidates.grown(2))
    fitted = candidates.fit(names, degree, candidates.seen)
    if fitted is None:
        raise UsageError("no rational function fits the counts", "count at more sizes and blocks")
    off = candidates.error(fitted, names, rows[:tested])
    return now, replace(fitted, held_out=HeldOut(len(off), float(np.median(off)), float(off.max())))


def counted_program(
    program: Program, op: KernelOp, fits: Mapping[str, Fitted], barriers: int = 0, *, shared: int = 0
) -> RationalProgram:
    """MWP-CWP for a launch of `op`, with the counts of `fit_counts`: cycles, in the program's scalars, the block and
    the registers of a thread, the limits of the GPU and MACHINE. `barriers`: per warp, which no counter gives."""
    g = Geometry(program, op, shared=shared)
    g.place()
    for name, fitted in fits.items():
        g.b.body += fitted.program(f"fit_{name}", program=BLOCK).body
    fit = {n: real(f"fit_{n}") for n in fits}
    requests = g.b.let("warp_requests", sp.Max(sp.Float(0), fit["requests"]), "instructions", "to memory, of a warp")
    least = sp.Max(sp.Float(1), fit["sectors"] / SECTORS_PER_LINE)
    count(g, "coal_mem_insts", sp.Float(0))
    count(g, "uncoal_mem_insts", requests)
    count(g, "uncoal_per_mw", least)
    count(g, "load_bytes_per_warp", SECTOR * sp.Max(sp.Float(1), fit["sectors"]))
    count(g, "comp_insts", sp.Max(sp.Float(0), fit["instructions"] - requests))
    count(g, "synch_insts", sp.Float(barriers))
    return time_of(g, f"{g.kernel.name}_counted", SOURCE)
