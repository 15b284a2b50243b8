"""The volume model: the time of a launch, from the data that its address expressions move.

After the idea of Ernst et al., arXiv 2204.14242 (volumes from address expressions, limits from the hardware), with the
terms that matter on an H200. All terms are in cycles of a multiprocessor (SM):

    time = shape * (max(issue + loads + stores + misses + L2 + HBM + latency, starts) + launch + turnover)

issue      instructions of the busiest SM with four schedulers; as compiled by nvcc if known, else counted in the text
loads      cycles of the L1 cache for each load of a warp: bank conflicts as in shared memory, or cache lines touched
stores     cycles of the L1 cache for each store of a warp: lines, bytes, and sectors written in part
misses     sectors that a block brings into the L1 cache: unique ones, again for each later
           loop that finds them evicted, or more if its working set is too large
L2, HBM    unique sectors of all blocks, unique bytes of the grid, over the bandwidth
latency    what one warp waits for, load after load, times the waves of blocks
starts     the whole GPU starts about one block a cycle
turnover   a block's slot is empty while its successor starts, longer with more warps
shape      a mild preference for blocks of middle size, fitted

Terms are added, unlike the maximum of a roofline: on the oracle (benchmarks/results) a sum ranks better, since overlap
is never perfect, and the program stays rational. The constants (`CALIBRATION`) were fitted once to that oracle;
docs/how-to/launch-settings.md gives the error on programs outside of the fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sympy as sp

from dagc.cuda.accesses import Accesses
from dagc.cuda.expressions import real, symbol
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.ir.program import KernelOp, Program
from dagc.perf.geometry import LINE, SECTOR, WARP, Geometry, Placed, Traffic, read_accesses
from dagc.perf.hardware import Hardware, load_hardware
from dagc.perf.program import Assign, Number, Parameter, ParameterKind, RationalProgram

# name -> (value, unit, meaning). Fitted to the oracle of an H200 by benchmarks/tune/calibrate.py. Two are outside of
# its search bounds: c_partial, for which least squares over all blocks find 2 (values from 8 to 13 choose correctly
# among the best, for SYRK between the sizes of the oracle too: near.csv.xz of benchmarks/results), and c_hbm, which the
# fit leaves at its lower bound, 1/3000.
CALIBRATION: dict[str, tuple[float, str, str]] = {
    "lat_hit": (100.985, "cycles", "wait for a load that hits the L1 cache, or for a store, as one warp sees it"),
    "lat_miss": (24.3572, "cycles", "more, for each sector of a load that misses"),
    "c_issue": (0.3, "cycles", "a scheduler's time for an instruction that was counted"),
    "c_load": (1.25, "", "cycles of the L1 cache over those that were counted, loads"),
    "c_store": (0.8, "", "the same, stores"),
    "c_partial": (10.0, "cycles", "more, for a sector that is written in part"),
    "c_sector": (0.0915, "cycles", "of an SM, for a sector that comes from the L2 cache"),
    "c_thrash": (0.105, "", "how much more comes where the working set is twice the L1 cache"),
    "c_l2": (0.001, "cycles", "of the GPU, for a sector that the L2 cache gives"),
    "c_hbm": (0.0003, "cycles/byte", "of the GPU, for a byte from memory"),
    "c_start": (1.3, "cycles", "of the GPU, to start a block"),
    "launch": (8340.96, "cycles", "a launch that does nothing"),
    "turn_warp": (10.1667, "cycles", "a block's turnover, for each of its warps"),
    "turn_block": (8.5509, "cycles", "a block's turnover"),
    "shape": (0.0128, "", "excess time of a block of twice or half the best size, squared in doublings"),
    "shape_best": (8.7636, "log2 threads", "the best size"),
}
SPILL = 0.5  # of the L1 cache: beyond, a later loop finds less of what an earlier one read; 1 beyond, nothing
REFERENCE = "h200"
SAME = 0.1  # relative difference of equal measurements

# Constants that a micro-benchmark measures: the H200's value, times the ratio of the present GPU's measurement to the
# H200's. True: a larger measurement is faster.
SCALES = {
    "lat_hit": ("l1_latency", False), "lat_miss": ("l2_latency", False), "c_sector": ("departure_uncoalesced", False),
    "c_l2": ("l2_bytes_per_cycle", True), "c_hbm": ("memory_bytes_per_cycle", True),
    "c_start": ("block_start_cycles", False),
}  # fmt: skip


def calibration_of(hardware: Hardware) -> dict[str, float]:
    """The constants for a GPU: those of CALIBRATION, scaled by SCALES if its speed was measured.

    Measurements within a tenth of the H200's leave a constant unchanged: that is the variation between runs.
    """
    out = {name: value for name, (value, _, _) in CALIBRATION.items()}
    reference = load_hardware(REFERENCE).measured
    if hardware.measured is None or reference is None:
        return out
    for name, (measured, faster) in SCALES.items():
        ratio = getattr(hardware.measured, measured) / getattr(reference, measured)
        if abs(ratio - 1) > SAME:
            out[name] *= 1 / ratio if faster else ratio
    return out


# The terms whose sum is the time, then those beside the sum; `t_NAME` in the program.
TERMS = ("issue", "loads", "stores", "misses", "l2", "hbm", "latency", "starts", "turnover")


def volume_program(
    program: Program,
    op: KernelOp,
    accesses: Accesses | None = None,
    *,
    resources: Resources = ASSUMED,
    features: bool = False,
) -> RationalProgram:
    """The time of a launch of `op` in cycles of an SM, as a rational program in the program's scalars (data), the
    limits of the GPU and the calibration (hardware), and the block and the registers of a thread (program parameters).
    `resources`: shared memory and instructions of the compiled kernel; if not known, they are counted in its text.
    `features`: with steps `f_NAME` that describe the launch, and do not enter its time.

    Raises NotUnderstood if the kernel's text cannot be read.
    """
    op_accesses = accesses if accesses is not None else read_accesses(program, op)
    geometry = Geometry(program, op, one_thread=op_accesses.one_thread, shared=resources.shared)
    geometry.place()
    traffic = Traffic(geometry, op_accesses)
    _time(geometry, traffic, op_accesses, resources)
    if features:
        _features(geometry, traffic, op_accesses)
    constants = {n: Parameter(n, ParameterKind.HARDWARE, Number.REAL, u, m) for n, (_, u, m) in CALIBRATION.items()}
    return RationalProgram(
        f"{geometry.kernel.name}_volume", geometry.parameters(constants), tuple(geometry.b.body), "time", "cycles",
        "volumes from address expressions (after Ernst et al., arXiv 2204.14242), calibrated on an H200",
    )  # fmt: skip


def _features(g: Geometry, t: Traffic, accesses: Accesses) -> None:
    """What describes a launch to a learner (`dagc.choice.terms`)."""
    one = sp.Float(1)

    def mean(what: sp.Expr, of: sp.Expr) -> sp.Expr:
        return what / sp.Max(of, sp.Float(1e-9))

    loads, stores = ([p for p in t.placed if p.access.store is kind] for kind in (False, True))
    of_loads, of_stores = (_total(p.times for p in ps) for ps in (loads, stores))
    asked, written = (_total(p.times * t.touched(p, SECTOR) for p in ps) for ps in (loads, stores))
    lanes = one * g.extent[0] * g.extent[1] * g.extent[2] / (WARP * one * g.active)
    width = one * g.lx * g.ly
    stored = _total(p.times * p.access.size * width for p in stores)
    nx, ny = (sp.Min(g.bx, g.extent[0]), sp.Min(g.by, g.extent[1])) if not accesses.one_thread else (one, one)
    clusters = t.clusters(t.placed)
    unique, lines = (_total(t.unique(m, (nx, ny), size=size) for m in clusters) for size in (SECTOR, LINE))
    asked_of_all = (asked + written) * g.active
    guessed = _total(p.times for p in t.placed if not p.access.known)
    waves = g.b.let("whole_waves", sp.ceiling(g.busiest / g.resident), "", "of blocks", integer=True)
    values = {
        "tail": 1 - one * g.busiest / (one * waves * sp.Min(g.resident, g.busiest)),
        "occupancy": one * g.together * WARP / symbol("max_threads_per_multiprocessor"),
        "active_lanes": one / WARP if accesses.one_thread else lanes,
        "load_sectors": mean(asked, of_loads), "store_sectors": mean(written, of_stores),
        "store_bytes": sp.Min(sp.Float(SECTOR), mean(stored, written)),
        "reuse": one * asked_of_all / sp.Max(one, unique * g.blocks),
        "held": one * sp.Min(g.resident, g.busiest) * LINE * lines / symbol("l1_bytes"),
        "uncertainty": SURE + GUESS * len(accesses.notes) + GUESS * mean(guessed, of_loads + of_stores),
    }  # fmt: skip
    for name, value in values.items():
        g.b.body.append(Assign(f"f_{name}", sp.Float(1) * sp.sympify(value), Number.REAL, "", "feature"))


SURE, GUESS = 0.15, 0.15  # standard deviation of log(time): of a kernel that is read, and more for each guess


def _time(g: Geometry, t: Traffic, accesses: Accesses, resources: Resources) -> None:
    b = g.b
    c = {name: real(name) for name in CALIBRATION}
    requests = b.let("requests", _total(p.times for p in t.placed), "", "loads and stores of a warp")
    issued = sp.sympify(t.instructions(resources.instructions))
    b.body.append(Assign("instructions", issued, Number.REAL, "instructions", "of a warp"))
    loads, stores, partial, sectors, lines = _of_a_warp(t, accesses.one_thread)
    unique, memory = _volumes(g, t, accesses.one_thread)
    share = sp.Min(sp.Float(1), unique * g.blocks / sp.Max(sp.Float(1), sectors * g.active))
    misses = b.let("miss_share", share, "", "of the sectors that are asked for")
    waves = b.let("waves", sp.Max(sp.Float(1), sp.Float(1) * g.busiest / g.resident), "", "of blocks on an SM")
    beyond = sp.Max(sp.Float(0), g.together * lines * LINE / symbol("l1_bytes") - 1)
    thrash = b.let("thrash", beyond, "", "working set beyond the L1 cache, in its sizes")
    schedulers = sp.Min(4, sp.Max(sp.Float(1), sp.Min(g.on_sm, g.together)))
    terms = {
        "issue": (g.on_sm * real("instructions") * c["c_issue"] / schedulers, "instructions"),
        "loads": (g.on_sm * loads * c["c_load"], "the L1 cache, loads"),
        "stores": (g.on_sm * (stores * c["c_store"] + partial * c["c_partial"]), "the L1 cache, stores"),
        "misses": (unique * g.busiest * c["c_sector"] * (1 + c["c_thrash"] * thrash), "from the L2 cache to an SM"),
        "l2": (unique * g.blocks * c["c_l2"], "the L2 cache"),
        "hbm": (memory * c["c_hbm"], "memory"),
        "latency": (waves * requests * (c["lat_hit"] + c["lat_miss"] * misses), "latency"),
    }
    for name, (value, meaning) in terms.items():
        b.body.append(Assign(f"t_{name}", sp.sympify(value), Number.REAL, "cycles", meaning))
    starts = b.let("t_starts", g.blocks * c["c_start"], "cycles", "to start the blocks")
    empty = sp.Float(1) * g.busiest / g.resident * (g.warps * c["turn_warp"] + c["turn_block"])
    turnover = b.let("t_turnover", empty, "cycles", "places empty between blocks")
    preference = 1 + c["shape"] * (symbol("log2_threads") - c["shape_best"]) ** 2
    shape = b.let("shape_factor", preference, "", "preference for blocks of middle size")
    total = _total(real(f"t_{n}") for n in terms)
    b.let("time", shape * (sp.Max(total, starts) + c["launch"] + turnover), "cycles", "of the launch")


def _total(values: Iterable[sp.Expr]) -> sp.Expr:
    return sum(values, sp.Float(0))


def _of_a_warp(t: Traffic, one_thread: bool) -> tuple[sp.Expr, sp.Expr, sp.Expr, sp.Expr, sp.Expr]:
    """L1 cycles of a warp's loads and stores, sectors that it writes in part and requests, lines in use."""
    let, placed = t.b.let, t.placed
    cycles = _total(p.times * t.load_cycles(p) for p in placed if not p.access.store)
    loads = let("load_cycles", cycles, "cycles", "of the L1 cache for a warp's loads")
    stored = [(p.times, *t.store_cycles(p)) for p in placed if p.access.store]
    cycles = _total(times * n for times, n, _ in stored)
    stores = let("store_cycles", cycles, "cycles", "of the L1 cache for a warp's stores")
    partial = let("partial_sectors", _total(times * n for times, _, n in stored), "", "that a warp writes in part")
    touched = _total(p.times * (sp.Float(1) if one_thread else t.touched(p, SECTOR)) for p in placed)
    sectors = let("sectors", touched, "", "that a warp asks for")
    used = _total(t.touched(p, LINE) for p in placed if p.loops and not p.access.store)
    return loads, stores, partial, sectors, let("lines", used, "", "in use by a warp in an iteration")


def _volumes(g: Geometry, t: Traffic, one_thread: bool) -> tuple[sp.Expr, sp.Expr]:
    """Sectors that a block brings in, and unique bytes of the grid."""
    one = sp.Integer(1)
    nx, ny = (one, one) if one_thread else (sp.Min(g.bx, g.extent[0]), sp.Min(g.by, g.extent[1]))
    clusters = t.clusters(t.placed)
    sectors = _total(t.unique(m, (nx, ny)) for m in clusters)
    unique = _read_again(g, t, clusters, g.b.let("block_sectors", sectors, "", "unique ones of a block"), nx, ny)
    moved = _total(t.unique(m, None) for m in clusters)
    return unique, g.b.let("memory_bytes", moved, "bytes", "unique ones of the grid")


def _read_again(
    g: Geometry, t: Traffic, clusters: list[list[Placed]], unique: sp.Expr, nx: sp.Expr, ny: sp.Expr
) -> sp.Expr:
    """Sectors that a block brings in, including those that a later loop reads again.

    Data read by several loops stays in the L1 cache between them only if everything that the resident blocks touch
    fits, in whole lines. On an H200 (GRAMSCHM r, `near.csv.xz` of benchmarks/results) the gain decreases between half
    of the cache and one and a half of it.
    """
    again = [m for m in clusters if t.visits(m) > 1]
    if not again:
        return unique
    touched = _total(t.unique(m, (nx, ny), size=LINE) for m in clusters if t.visits(m))
    loaded = sp.Min(g.resident, g.busiest) * LINE * touched
    held = g.b.let("held_bytes", loaded, "bytes", "that the resident blocks load")
    share = sp.Min(1, sp.Max(sp.Float(0), held / symbol("l1_bytes") - SPILL))
    spilled = g.b.let("spilled", share, "", "share that is read again")
    more = _total((t.visits(m) - 1) * t.unique(m, (nx, ny)) for m in again)
    return g.b.let("all_sectors", unique + spilled * more, "", "that a block brings in, those of later loops too")


def explain_terms(values: Mapping[str, float]) -> str:
    """The name of the largest term of the sum: what limits the launch."""
    overlapped = {n: v for n, v in values.items() if n.startswith("t_") and n not in ("t_starts", "t_turnover")}
    if not overlapped:
        return ""
    if values.get("t_starts", 0.0) > sum(overlapped.values()):
        return "starts"
    return max(overlapped, key=lambda n: overlapped[n]).removeprefix("t_")
