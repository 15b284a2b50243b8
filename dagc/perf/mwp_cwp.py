"""The MWP-CWP model as a rational program, as published, for comparison with the volume model.

After Hong and Kim, "An analytical model for a GPU architecture with memory-level and thread-level parallelism
awareness", ISCA 2009; model E of KLARAPTOR. Two numbers of warps decide: MWP, how many can wait for memory at once,
and CWP, how many could compute while one waits. docs/explanation/mwp-cwp.md has the equations.

Differences from the published equations:
- the transactions S of an uncoalesced instruction are counted per memory instruction, not per warp;
- limits are from a descriptor of the GPU, and the blocks of a multiprocessor from CUDA's occupancy;
- without memory instructions the time is that of arithmetic, and MWP below 1 overlaps nothing (it is no gain).

The model has no caches: each instruction goes to memory. This is kept, and causes the largest part of its error.

Its counts are those of the kernel's text, or rational functions of sizes and block that are fitted to hardware counters
(`fit_counts`; KLARAPTOR's steps 2 and 3, "rational function determination" and "code generation"). They are fitted per
warp with work, or per memory request, since these depend on little; the number of warps with work follows from the
launch (`dagc.perf.geometry`). The sizes and block dimensions that a count depends on are selected on points that the
coefficients were not fitted to; the stored error is from points that this selection did not use either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy as sp

from dagc.base.errors import UsageError, counted
from dagc.cuda.accesses import Accesses
from dagc.cuda.expressions import real, symbol
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.ir.program import KernelOp, Program, Region
from dagc.ir.sym import free
from dagc.perf.evaluate import PartialEvaluator
from dagc.perf.fit import Fitted, HeldOut, fit_rational
from dagc.perf.geometry import Geometry, read_accesses
from dagc.perf.guards import WARP
from dagc.perf.hardware import Hardware
from dagc.perf.program import Assign, Branch, Number, ParameterKind, RationalProgram, Statement, parameters_of
from dagc.perf.traffic import LINE, SECTOR, StridedAccess, Traffic

SOURCE = "Hong and Kim, ISCA 2009, transactions per memory instruction"

_REAL, _INT = Number.REAL, Number.INTEGER
COUNTS = (
    *parameters_of(ParameterKind.DATA, _REAL, {
        "coal_mem_insts": ("instructions", "coalesced memory instructions of a warp"),
        "uncoal_mem_insts": ("instructions", "uncoalesced memory instructions of a warp"),
        "uncoal_per_mw": ("transactions", "of one uncoalesced memory instruction (S)"),
        "load_bytes_per_warp": ("bytes", "that one memory instruction of a warp moves"),
        "comp_insts": ("instructions", "arithmetic instructions of a warp"),
        "synch_insts": ("instructions", "barriers of a warp"),
    }),
    *parameters_of(ParameterKind.DATA, _INT, {"grid_blocks": ("blocks", "of the grid")}),
)  # fmt: skip
CONFIGURATION = parameters_of(ParameterKind.PROGRAM, _INT, {
    "threads_per_block": ("threads", "of a block"),
    "resident_blocks": ("blocks", "that a multiprocessor holds at a time"),
})  # fmt: skip
MACHINE = (
    *parameters_of(ParameterKind.HARDWARE, _REAL, {
        "mem_latency": ("cycles", "of a load from memory (Mem_LD)"),
        "departure_del_coal": ("cycles", "between two coalesced transactions"),
        "departure_del_uncoal": ("cycles", "between two uncoalesced transactions"),
        "mem_bandwidth": ("bytes/s", "of the GPU's memory"),
        "issue_cycles": ("cycles", "of a multiprocessor to issue an instruction of a warp"),
        "clock": ("Hz", "of a multiprocessor"),
    }),
    *parameters_of(ParameterKind.HARDWARE, _INT, {"multiprocessors": ("", "of the GPU")}),
)  # fmt: skip

# An H200 (compute capability 9.0); docs/explanation/mwp-cwp.md names the source of each.
H200: dict[str, float] = {
    "mem_latency": 480.0, "departure_del_coal": 2.0, "departure_del_uncoal": 2.0, "mem_bandwidth": 4.8e12,
    "issue_cycles": 0.25,
}  # fmt: skip


def _let(name: str, value: sp.Expr, unit: str, meaning: str) -> Assign:
    return Assign(name, value, _REAL, unit, meaning)


def _model() -> tuple[Statement, ...]:
    """From the names of COUNTS, CONFIGURATION and MACHINE to `time`."""
    coal, uncoal, per, moved = (real(p.name) for p in COUNTS[:4])
    comp, synch, blocks = real("comp_insts"), real("synch_insts"), symbol("grid_blocks")
    latency, del_coal, del_uncoal, bandwidth, issue, clock = (real(p.name) for p in MACHINE[:6])
    sms, threads, resident = symbol("multiprocessors"), symbol("threads_per_block"), symbol("resident_blocks")
    n, active_sms, active = real("n_warps"), symbol("active_sms"), symbol("active_blocks")
    mem, mem_l, mwp, cwp, rep = real("mem_insts"), real("mem_l"), real("mwp"), real("cwp"), real("rep")
    comp_cycles, mem_cycles, share, departure = map(real, ("comp_cycles", "mem_cycles", "weight_uncoal", "departure"))
    between = comp_cycles / mem * real("overlapped")
    steps: tuple[Statement, ...] = (
        Assign("active_sms", sp.Min(blocks, sms), _INT, "", "multiprocessors that have a block"),
        Assign(
            "active_blocks", sp.Min(resident, sp.ceiling(blocks / sms)), _INT, "blocks", "of a multiprocessor at a time"
        ),
        _let("n_warps", sp.Float(1) * active * sp.ceiling(threads / 32), "warps", "of a multiprocessor at a time (N)"),
        _let("rep", sp.Max(sp.Float(1), sp.Float(1) * blocks / (active * active_sms)), "", "waves of blocks (#Rep)"),
        _let("mem_insts", coal + uncoal, "instructions", "that go to memory"),
        _let("weight_uncoal", uncoal / mem, "", "share of them that is uncoalesced"),
        _let("mem_l_uncoal", latency + (per - 1) * del_uncoal, "cycles", "latency of an uncoalesced one"),
        _let("mem_l", real("mem_l_uncoal") * share + latency * (1 - share), "cycles", "latency, on average"),
        _let("departure", del_uncoal * per * share + del_coal * (1 - share), "cycles", "from one warp to the next"),
        _let("bw_per_warp", clock * moved / mem_l, "bytes/s", "that a warp asks for"),
        _let("mwp_peak_bw", bandwidth / (real("bw_per_warp") * active_sms), "warps", "that the bandwidth allows"),
        _let("mwp", sp.Min(mem_l / departure, real("mwp_peak_bw"), n), "warps", "waiting for memory at once (MWP)"),
        _let("overlapped", sp.Max(sp.Float(0), mwp - 1), "warps", "that wait concurrently with the first"),
        _let("comp_cycles", issue * (comp + mem), "cycles", "in which a warp computes"),
        _let("mem_cycles", real("mem_l_uncoal") * uncoal + latency * coal, "cycles", "in which a warp waits"),
        _let("cwp", sp.Min((mem_cycles + comp_cycles) / comp_cycles, n), "warps", "to fill one's waiting (CWP)"),
    )

    def wave(value: sp.Expr) -> tuple[Assign, ...]:
        return (_let("wave_cycles", value, "cycles", "of one wave of blocks"),)

    cases = (
        (mem <= 0, wave(comp_cycles * n)),
        (sp.And(mwp >= n, cwp >= n), wave(mem_cycles + comp_cycles + between)),
        (sp.Or(cwp >= mwp, comp_cycles > mem_cycles), wave(mem_cycles * n / mwp + between)),
    )
    barriers = departure * real("overlapped") * synch * active
    return (
        *steps,
        Branch(cases, wave(mem_l + comp_cycles * n)),
        _let("barrier_cycles", barriers, "cycles", "of one wave, for barriers"),
        _let("time", (real("wave_cycles") + real("barrier_cycles")) * rep, "cycles", "of the launch"),
    )


def mwp_cwp_program() -> RationalProgram:
    """The model over given counts: measured, fitted (`dagc.perf.mwp_cwp`), or read from the text."""
    return RationalProgram("mwp_cwp", (*COUNTS, *CONFIGURATION, *MACHINE), _model(), "time", "cycles", SOURCE)


def op_program(program: Program, op: KernelOp, *, resources: Resources = ASSUMED) -> RationalProgram:
    """The model for a launch of `op`, with counts read from the kernel's text; no GPU is needed.

    Parameters: the program's scalars (data), the block and the registers of a thread (program), MACHINE and the limits
    of a multiprocessor (hardware). Raises NotUnderstood if the text cannot be read.
    """
    accesses = read_accesses(program, op)
    guards, one = accesses.guards, accesses.one_thread
    geometry = Geometry(program, op, one_thread=one, shared=resources.shared, guards=guards)
    geometry.place()
    _counts(geometry, Traffic(geometry, accesses), accesses, resources)
    return time_of(geometry, f"{geometry.kernel.name}_mwp_cwp", SOURCE)


def machine_values(hardware: Hardware) -> dict[str, int | float]:
    """Values of all hardware parameters: the descriptor's, and those that only this model has (H200, with values
    measured by micro-benchmarks on the present GPU)."""
    return {**hardware.parameters(), **_machine(hardware)}


def _machine(hardware: Hardware) -> dict[str, float]:
    measured = hardware.measured
    if measured is None:
        return dict(H200)
    return {
        "mem_latency": measured.memory_latency, "departure_del_coal": measured.departure_coalesced,
        "departure_del_uncoal": measured.departure_uncoalesced,
        "mem_bandwidth": measured.memory_bytes_per_cycle * hardware.clock, "issue_cycles": H200["issue_cycles"],
    }  # fmt: skip


def why(values: Mapping[str, float]) -> str:
    """The model's case for a launch, from the values of its steps: what limits it."""
    if values["mem_insts"] <= 0:
        return "arithmetic"
    if values["mwp"] >= values["n_warps"] and values["cwp"] >= values["n_warps"]:
        return "latency"
    if values["cwp"] >= values["mwp"] or values["comp_cycles"] > values["mem_cycles"]:
        return "memory bandwidth" if values["mwp"] >= values["mwp_peak_bw"] else "memory"
    return "arithmetic"


def _counts(g: Geometry, t: Traffic, accesses: Accesses, resources: Resources) -> None:
    """Assign COUNTS and CONFIGURATION from the kernel's text and nvcc's instructions."""
    zero = sp.Float(0)
    lines = [_pieces(t, p, LINE) for p in t.placed]
    whole = [_coalesced(g, p, n) for p, n in zip(t.placed, lines, strict=True)]
    coal = sum((p.times * w for p, w in zip(t.placed, whole, strict=True)), zero)
    uncoal = sum((p.times * (1 - w) for p, w in zip(t.placed, whole, strict=True)), zero)
    apart = sum((p.times * (1 - w) * n for p, w, n in zip(t.placed, whole, lines, strict=True)), zero)
    moved = sum((p.times * _pieces(t, p, SECTOR) * SECTOR for p in t.placed), zero)
    count(g, "coal_mem_insts", coal)
    count(g, "uncoal_mem_insts", uncoal)
    transactions = g.b.let("transactions", apart, "", "of a warp's uncoalesced instructions")
    bytes_ = g.b.let("warp_bytes", moved, "bytes", "that a warp moves")
    count(g, "uncoal_per_mw", transactions / real("uncoal_mem_insts"))
    count(g, "load_bytes_per_warp", bytes_ / (real("coal_mem_insts") + real("uncoal_mem_insts")))
    arithmetic = t.instructions(resources.instructions) - sum((p.times for p in t.placed), zero)
    count(g, "comp_insts", arithmetic if resources.instructions is None else sp.Max(zero, arithmetic))
    count(g, "synch_insts", sp.Float(len(accesses.barriers)))


def count(g: Geometry, name: str, value: sp.Expr) -> None:
    """Assign one of COUNTS or CONFIGURATION."""
    parameter = next(p for p in (*COUNTS, *CONFIGURATION) if p.name == name)
    g.b.body.append(Assign(name, sp.sympify(value), parameter.number, parameter.unit, parameter.meaning))


def time_of(g: Geometry, name: str, source: str) -> RationalProgram:
    """The model over a placed geometry with assigned counts of a warp."""
    count(g, "grid_blocks", g.blocks)
    count(g, "threads_per_block", g.threads)
    count(g, "resident_blocks", g.resident)
    counted = g.parameters({p.name: p for p in MACHINE})
    of_machine = {p.name for p in MACHINE}
    g.b.body += _model()
    parameters = (*(p for p in counted if p.name not in of_machine), *MACHINE)
    return RationalProgram(name, parameters, tuple(g.b.body), "time", "cycles", source)


def _pieces(t: Traffic, p: StridedAccess, size: int) -> sp.Expr:
    """Aligned pieces that a request touches. A block with one working thread touches one."""
    return sp.Float(1) if t.accesses.one_thread else t.touched(p, size)


def _coalesced(g: Geometry, p: StridedAccess, lines: sp.Expr) -> sp.Expr:
    """1 if a request touches less than one line more than its lanes' data fill (it may be misaligned)."""
    lanes = sp.Integer(1) if g.one_thread else g.lx * g.ly
    filled = sp.Float(p.access.size) / LINE * lanes
    near = sp.Piecewise((sp.Integer(1), lines < 1 + sp.Max(sp.Float(1), filled)), (sp.Integer(0), True))
    return g.b.let("coalesced", near, "", "1 where the request is coalesced, else 0", integer=True)


# ---- counts as rational functions of sizes and block, fitted to hardware counters ----

FITTED_SOURCE = "Hong and Kim, ISCA 2009, over counts that were fitted to hardware counters"
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
SECTORS_PER_LINE = LINE // SECTOR

# name -> (unit, meaning)
FITTED_COUNTS: dict[str, tuple[str, str]] = {
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
    """The fitted quantities, by name as in FITTED_COUNTS, from the counters of a launch."""
    requests = counts["load_requests"] + counts["store_requests"]
    return {
        "instructions": counts["instructions"] / active_warps,
        "requests": requests / active_warps,
        "sectors": (counts["load_sectors"] + counts["store_sectors"]) / max(1.0, requests),
    }


def fit_counts(
    program: Program, op: KernelOp, launches: Sequence[CountedLaunch], *, seed: int = 0
) -> dict[str, Fitted]:
    """A rational function for each of FITTED_COUNTS.

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
    fits = {name: _of_block(columns, np.array([v[name] for v in values]), seed) for name in FITTED_COUNTS}
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
    """The fitted function of one of FITTED_COUNTS, as `counted_program` names it."""
    return fitted.program(f"fit_{name}", program=BLOCK, unit=FITTED_COUNTS[name][0])


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
    return time_of(g, f"{g.kernel.name}_counted", FITTED_SOURCE)
