"""Counts of a launch as rational functions of sizes and block, fitted to hardware counters; MWP-CWP over them.

KLARAPTOR's steps 2 and 3 ("rational function determination", "code generation"). Counts are fitted per warp with work,
or per memory request, since these depend on little; the number of warps with work follows from the launch
(`dagc.perf.geometry`). The sizes and block dimensions that a count depends on are selected on points that the
coefficients were not fitted to; the stored error is from points that this selection did not use either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy as sp

from dagc.base.errors import UsageError, counted
from dagc.cuda.expressions import real
from dagc.ir.program import KernelOp, Program, Region
from dagc.ir.sym import free
from dagc.perf.evaluate import PartialEvaluator
from dagc.perf.fit import Fitted, HeldOut, fit_rational
from dagc.perf.geometry import Geometry
from dagc.perf.guards import WARP
from dagc.perf.mwp_cwp import count, time_of
from dagc.perf.program import ParameterKind, RationalProgram

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
    """One counted launch: integer per-rank scalars, block, counts by name (`dagc.measure.machine.METRICS`)."""

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


def covered(fits: Mapping[str, Fitted]) -> tuple[tuple[str, float, float], ...]:
    """The ranges of sizes that all fitted functions cover."""
    ranges: dict[str, tuple[float, float]] = {}
    for name, low, high in (one for fitted in fits.values() for one in fitted.ranges if one[0] not in BLOCK):
        least, most = ranges.get(name, (low, high))
        ranges[name] = max(least, low), min(most, high)
    return tuple((name, low, high) for name, (low, high) in ranges.items())


def function_of(name: str, fitted: Fitted) -> RationalProgram:
    """The fitted function of one of COUNTS, as `counted_program` names it."""
    return fitted.program(f"fit_{name}", program=BLOCK, unit=COUNTS[name][0])


def counted_program(
    program: Program, op: KernelOp, fits: Mapping[str, Fitted], barriers: int = 0, *, shared: int = 0
) -> RationalProgram:
    """MWP-CWP for a launch of `op`, with the counts of `fit_counts`: cycles, in the program's scalars, the block and
    the registers of a thread, the limits of the GPU and MACHINE. `barriers`: per warp, which no counter gives."""
    g = Geometry(program, op, shared=shared)
    g.place()
    for name, fitted in fits.items():
        g.b.body += function_of(name, fitted).body
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
