"""Counts of a launch as rational functions of sizes and block, fitted to hardware counters; MWP-CWP over them.

KLARAPTOR's steps 2 and 3 ("rational function determination", "code generation"). What is fitted is counted a warp that
has work, or a memory request, since these depend on little; how many warps have work is known from the launch itself
(`dagc.perf.geometry`). Which of the sizes and of the block's numbers a count depends on is found on points that the
coefficients did not see; the error that is kept comes from points that this choice did not see either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy as sp

from dagc.base.errors import UsageError, counted
from dagc.ir.program import KernelOp, Program, Region
from dagc.ir.sym import free
from dagc.perf.evaluate import Evaluator
from dagc.perf.fit import Fitted, HeldOut, fit_rational
from dagc.perf.geometry import WARP, Geometry
from dagc.perf.mwp_cwp import count, time_of
from dagc.perf.program import ParameterKind, RationalProgram

SOURCE = "Hong and Kim, ISCA 2009, over counts that were fitted to hardware counters"
FEWEST = 16  # launches
# What counts may depend on besides sizes. Not on the whole block: of two blocks with the same lanes a fit's error of
# a few per cent would choose, which on the oracle costs more than the true difference (docs/explanation/mwp-cwp.md).
BLOCK = ("lanes_x",)
WORSE = 1.05  # by how much the error may grow when a parameter is left out
EXACT = 1e-3  # errors below it do not tell parameters apart
FOLDS = 4
POOR = 0.05  # an error from which a function of the higher degree is grown, of so many parameters:
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
    """One counted launch: per-rank scalars (the whole ones), block, counts by name (`dagc.measure.profile.METRICS`)."""

    scalars: Mapping[str, int]
    block: tuple[int, int, int]
    counts: Mapping[str, float]


def derived(counts: Mapping[str, float], active_warps: float) -> dict[str, float]:
    """What is fitted, by name as in COUNTS, from the counters of a launch."""
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

    Raises UsageError where there are too few launches, or none varies.
    """
    if len(launches) < FEWEST:
        raise UsageError(
            f"op `{op.name}`: {counted(len(launches), 'counted launch', 'counted launches')}: too few for a fit",
            f"count {FEWEST} or more: more sizes, or more legal blocks",
        )
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
    run = Evaluator(shape, {**known, **hardware, "registers": 32, "log2_threads": 1.0})
    active = np.broadcast_to(np.asarray(run({}), float), len(launches))
    columns = {n: known[n] for n in (*sizes, *BLOCK) if len(np.unique(known[n])) > 1}
    if not columns:
        raise UsageError(f"op `{op.name}`: all counted launches are alike", "count at several sizes or blocks")
    values = [derived(at.counts, float(w)) for at, w in zip(launches, active, strict=True)]
    return {name: _fitted(columns, np.array([v[name] for v in values]), seed) for name in COUNTS}


def _scalars_of(op: KernelOp) -> set[str]:
    """Per-rank scalars that are handed to the kernel by value."""
    return {n for arg in op.args if not isinstance(arg, Region) for n in free(arg)} - {"rank", "ranks"}


def _fitted(columns: Mapping[str, np.ndarray], values: np.ndarray, seed: int) -> Fitted:
    """Parameters are left out one by one while that costs nothing; then a higher degree is tried on the rest."""
    rows = np.random.default_rng(seed).permutation(len(values))
    tested = max(2, len(values) // 6)
    test, seen = rows[:tested], rows[tested:]
    folds = [seen[i::FOLDS] for i in range(FOLDS)]

    def fit(names: Sequence[str], degree: int, at: np.ndarray) -> Fitted | None:
        points = np.stack([columns[n][at] for n in names], axis=1)
        try:
            return fit_rational(points, values[at], names, degree, seed=seed)
        except UsageError:
            return None

    def error(fitted: Fitted, names: Sequence[str], at: np.ndarray) -> np.ndarray:
        got = fitted(np.stack([columns[n][at] for n in names], axis=1))
        return np.asarray(np.abs(got - values[at]) / np.maximum(np.abs(values[at]), 1e-9))

    def score(names: Sequence[str], degree: int) -> float:
        """Mean over the folds of the error at the fold that a fit did not see; outliers count to 1."""
        off = []
        for fold in folds:
            found = fit(names, degree, np.setdiff1d(seen, fold))
            if found is None:
                return np.inf
            off.append(np.minimum(error(found, names, fold), 1.0))
        return float(np.sqrt(np.mean(np.concatenate(off) ** 2)))

    def eliminated(degree: int) -> tuple[float, tuple[str, ...], int]:
        names = tuple(columns)
        now = score(names, degree)
        while len(names) > 1:
            trials = [(score(rest, degree), rest) for rest in (tuple(n for n in names if n != out) for out in names)]
            least, rest = min(trials, key=lambda t: t[0])
            if least > now * WORSE + EXACT and np.isfinite(now):
                break
            now, names = (min(least, now), rest) if np.isfinite(now) else (least, rest)
        return now, names, degree

    def grown(degree: int) -> tuple[float, tuple[str, ...], int]:
        names: tuple[str, ...] = ()
        now = np.inf
        while len(names) < min(MOST, len(columns)):
            trials = [(score((*names, more), degree), (*names, more)) for more in columns if more not in names]
            least, longer = min(trials, key=lambda t: t[0])
            if names and least * WORSE > now:
                break
            now, names = least, longer
        return now, names, degree

    now, names, degree = eliminated(1)
    if now > EXACT:
        second = score(names, 2)
        if second * WORSE < now:
            now, degree = second, 2
    if now > POOR:
        now, names, degree = min((now, names, degree), grown(2))
    found = fit(names, degree, seen)
    if found is None:
        raise UsageError("no rational function fits the counts", "count at more sizes and blocks")
    off = error(found, names, test)
    return replace(found, held_out=HeldOut(len(off), float(np.median(off)), float(off.max())))


def counted_program(
    program: Program, op: KernelOp, fits: Mapping[str, Fitted], barriers: int = 0, *, shared: int = 0
) -> RationalProgram:
    """MWP-CWP for a launch of `op`, its counts those of `fit_counts`: cycles, in the program's scalars, the block and
    the registers of a thread, the limits of the GPU and MACHINE. `barriers`: of a warp, which no counter gives."""
    g = Geometry(program, op, shared=shared)
    g.place()
    for name, fitted in fits.items():
        g.b.body += fitted.program(f"fit_{name}", program=BLOCK).body
    fit = {n: sp.Symbol(f"fit_{n}", real=True) for n in fits}
    requests = g.b.let("warp_requests", sp.Max(sp.Float(0), fit["requests"]), "instructions", "to memory, of a warp")
    least = sp.Max(sp.Float(1), fit["sectors"] / SECTORS_PER_LINE)
    count(g, "coal_mem_insts", sp.Float(0))
    count(g, "uncoal_mem_insts", requests)
    count(g, "uncoal_per_mw", least)
    count(g, "load_bytes_per_warp", SECTOR * sp.Max(sp.Float(1), fit["sectors"]))
    count(g, "comp_insts", sp.Max(sp.Float(0), fit["instructions"] - requests))
    count(g, "synch_insts", sp.Float(barriers))
    return time_of(g, f"{g.kernel.name}_counted", SOURCE)
