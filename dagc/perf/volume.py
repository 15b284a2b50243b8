"""The volume model: the time of a launch, from the data that its address expressions move.

After the idea of Ernst et al., arXiv 2204.14242 (volumes from address expressions, limits from the hardware), with the
terms that matter on an H200. All terms are in cycles of a multiprocessor (SM):

    time = soft_max(work, starts) + launch + turnover
    work = L + c_overlap * (sum - L) + c_square * (sum of squares - L^2) / L,  L the longest of the terms

issue      instructions of the busiest SM with four schedulers; as compiled by nvcc if known, else counted in the text
loads      cycles of the L1 cache for each load of a warp: bank conflicts as in shared memory, or cache lines touched;
           and passes through the banks of shared memory, which is in the same place
stores     cycles of the L1 cache for each store of a warp. It writes through: nothing is merged between requests
misses     accesses of the L2 cache by loads: one for each line of a block, and for each two sectors of it; unique ones,
           again for each later loop that finds them evicted
l2         the same by stores, of each request; a sector that is written in part costs what a whole one does. The L2
           cache serves both with the same slices: the two are one term. At least as long as the atomic operations that
           one line serves one after the other
hbm        unique bytes of the grid over the bandwidth of the memory, bytes that complete the sectors which several
           blocks store, and those that later loops read again where neither cache has kept them
latency    what one warp takes alone, load after load and instruction after instruction, times the waves of blocks
starts     the whole GPU starts about one block a cycle, while others work
turnover   a block's slot is empty while its successor starts, longer with more warps

On the oracles (benchmarks/results) overlap is neither perfect, as in a roofline, nor absent: terms as long as the
longest are hidden less. soft_max(a, b) = max + soft * min^2 / max: the terms are not exact enough to ignore the smaller
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import sympy as sp

from dagc.cuda.accesses import Accesses
from dagc.cuda.expressions import real, symbol
from dagc.cuda.ptx import ASSUMED, Instructions, Resources
from dagc.cuda.syntax import NotUnderstood
from dagc.ir.program import KernelOp, Program
from dagc.perf.algebra import int_div, maximum, minimum
from dagc.perf.geometry import Geometry, read_accesses
from dagc.perf.guards import WARP
from dagc.perf.hardware import Hardware, load_hardware
from dagc.perf.lower import instructions
from dagc.perf.program import Assign, NotRational, Number, Parameter, ParameterKind, RationalProgram, Statement
from dagc.perf.traffic import LINE, SECTOR, StridedAccess, Traffic

# name -> (value, unit, meaning). Of an H200; fitted together to the oracles of the fit families of benchmarks/corpus
# and of PolyBench (benchmarks/results), but for those that the micro-benchmarks of templates/probe and the data sheet
# give: c_issue (four schedulers of one instruction a cycle), c_sector (64 bytes a cycle), c_hbm, c_start; and c_fill,
# which kernels of one to nine stores give where their rows begin anywhere in a sector (stream and lbm).
CALIBRATION: dict[str, tuple[float, str, str]] = {
    "c_issue": (1.0, "cycles", "a scheduler's time for an instruction"),
    "c_load": (1.268, "", "cycles of the L1 cache over those that were counted, loads"),
    "c_store": (2.345, "cycles", "of the L1 cache, for each piece of up to 64 bytes of a line that a warp stores"),
    "c_sector": (0.5, "cycles", "of an SM, for an access of the L2 cache"),
    "c_read": (0.0061, "cycles", "of the GPU, for an access of the L2 cache's slices by loads"),
    "c_write": (0.0182, "cycles", "the same, by stores"),
    "c_bank": (1.0, "cycles", "of an SM, for a pass through the banks of shared memory"),
    "c_atomic": (3.0, "cycles", "of the GPU, for an atomic addition of a floating-point number at an address"),
    "c_hbm": (0.000439, "cycles/byte", "of the GPU, for a byte from memory"),
    "c_fill": (
        0.3,
        "",
        "bytes more, for a byte in a sector that several blocks store, and each store of a thread",
    ),
    "c_wait": (238.0, "cycles", "that a warp waits for loads that are in flight together"),
    "c_miss": (283.0, "cycles", "more, where none of their sectors is in the L1 cache"),
    "c_serial": (6.0, "cycles", "that a warp takes for an instruction, were it alone"),
    "c_start": (1.2, "cycles", "of the GPU, to start a block"),
    "c_overlap": (0.12, "", "share of the other terms that is not overlapped with the longest"),
    "c_square": (0.365, "", "the same, of their squares over the longest: a term as long is overlapped less"),
    "soft": (0.2, "", "the same, of the work while blocks start, or of their starts while they work"),
    "launch": (5002.0, "cycles", "a launch that does nothing"),
    "turn_warp": (32.3, "cycles", "a block's turnover, for each of its warps"),
}
SPILL = 0.5  # of a cache: beyond, a later loop finds less of what an earlier one read; 1 beyond, nothing
REFERENCE = "h200"
ONE_BY_ONE = 2.0  # assumed: times as long as with vectors, where a thread does one neighbour after the other
SAME = 0.1  # relative difference of equal measurements

# Constants that a micro-benchmark measures: the H200's value, times the ratio of the present GPU's measurement to the
# H200's. True: a larger measurement is faster. The first that both descriptors have counts.
SCALES = {
    "c_wait": (("l2_latency", False),), "c_miss": (("memory_latency", False),),
    "c_sector": (("departure_uncoalesced", False),),
    "c_read": (("l2_loads_per_cycle", True), ("l2_bytes_per_cycle", True)),
    "c_write": (("l2_stores_per_cycle", True), ("l2_bytes_per_cycle", True)),
    "c_hbm": (("memory_bytes_per_cycle", True),), "c_start": (("block_start_cycles", False),),
    "c_atomic": (("atomic_cycles", False),),
}  # fmt: skip


def calibration_of(hardware: Hardware) -> dict[str, float]:
    """The constants for a GPU: those of CALIBRATION, scaled by SCALES if its speed was measured.

    Measurements within a tenth of the H200's leave a constant unchanged: that is the variation between runs.
    """
    out = {name: value for name, (value, _, _) in CALIBRATION.items()}
    reference = load_hardware(REFERENCE).measured
    if hardware.measured is None or reference is None:
        return out
    for name, ways in SCALES.items():
        pairs = [(getattr(hardware.measured, m), getattr(reference, m), faster) for m, faster in ways]
        here, there, faster = next((p for p in pairs if p[0] > 0 and p[1] > 0), (1.0, 1.0, False))
        ratio = here / there
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
    shared = resources.shared
    timed = _timed(program, op, shared) if accesses is None else _steps(program, op, shared, accesses)
    geometry, traffic, op_accesses = timed
    counted = _issued(traffic, resources.instructions)
    constants = {n: Parameter(n, ParameterKind.HARDWARE, Number.REAL, u, m) for n, (_, u, m) in CALIBRATION.items()}
    steps = (counted if _name(step) == counted.name else step for step in geometry.b.body)
    body = (*steps, *(_features(geometry, traffic, op_accesses) if features else ()))
    source = "volumes from address expressions (after Ernst et al., arXiv 2204.14242)"
    try:
        volume = RationalProgram(
            f"{geometry.kernel.name}_volume", geometry.parameters(constants), body, "time", "cycles", source
        )
        instructions(volume)
    except NotRational as error:
        raise NotUnderstood(f"its addresses are beyond the model: {error.message}") from None
    return volume


@lru_cache(maxsize=64)
def _timed(program: Program, op: KernelOp, shared: int) -> tuple[Geometry, Traffic, Accesses]:
    """`_steps` of a kernel's text, cached: a learner needs the same steps with features, and with the instructions of
    the kernel compiled under each setting."""
    return _steps(program, op, shared, read_accesses(program, op))


def _steps(program: Program, op: KernelOp, shared: int, accesses: Accesses) -> tuple[Geometry, Traffic, Accesses]:
    """The steps of the time, in the builder of the geometry, with the instructions of the text. `shared`: bytes of the
    compiled kernel, 0 where they are not known."""
    held = accesses.shared if accesses.shared.free_symbols or not shared else shared
    geometry = Geometry(program, op, one_thread=accesses.one_thread, shared=held, guards=accesses.guards)
    geometry.place()
    traffic = Traffic(geometry, accesses)
    geometry.b.body.append(_issued(traffic, None))
    _time(geometry, traffic, accesses)
    return geometry, traffic, accesses


def _issued(traffic: Traffic, counted: Instructions | None) -> Assign:
    value = sp.sympify(traffic.instructions(counted))
    return Assign("instructions", value, Number.REAL, "instructions", "of a warp")


def _name(step: Statement) -> str:
    return step.name if isinstance(step, Assign) else ""


def _features(g: Geometry, t: Traffic, accesses: Accesses) -> tuple[Statement, ...]:
    """Assign the features of a launch for a learner (`dagc.choice.residual`)."""
    one = sp.Float(1)

    def mean(what: sp.Expr, of: sp.Expr) -> sp.Expr:
        return what / maximum(of, sp.Float(1e-9))

    loads, stores = ([p for p in t.placed if p.access.store is kind] for kind in (False, True))
    of_loads, of_stores = (_total(p.times for p in ps) for ps in (loads, stores))
    written = real("stored_sectors")
    lanes = g.share * g.extent[0] * g.extent[1] * g.extent[2] / (WARP * one * g.active)
    stored = _total(p.times * p.access.size * one * sp.prod(p.reach.lanes) for p in stores)
    guessed = _total(p.times for p in t.placed if p.scattered)
    waves = symbol("whole_waves")
    whole = Assign(waves.name, sp.ceiling(g.busiest / g.resident), Number.INTEGER, "", "of blocks")
    values = {
        "tail": 1 - one * g.busiest / (one * waves * minimum(g.resident, g.busiest)),
        "occupancy": one * g.together * WARP / symbol("max_threads_per_multiprocessor"),
        "active_lanes": one / WARP if accesses.one_thread else lanes,
        "load_sectors": mean(real("sectors"), of_loads), "store_sectors": mean(written, of_stores),
        "store_bytes": minimum(sp.Float(SECTOR), mean(stored, written)),
        "reuse": real("sectors") * g.active / maximum(one, real("block_sectors") * g.working),
        "held": one * minimum(g.resident, g.busiest) * LINE * real("block_lines") / symbol("l1_bytes"),
        "uncertainty": SURE + GUESS * len(accesses.notes) + GUESS * mean(guessed, of_loads + of_stores),
    }  # fmt: skip
    values |= {"blocks": g.blocks, "active": g.active, "busiest": g.busiest, "together": g.together, "whole": g.whole}
    steps = (Assign(f"f_{n}", one * sp.sympify(v), Number.REAL, "", "feature") for n, v in values.items())
    return (whole, *steps)


SURE, GUESS = 0.15, 0.15  # standard deviation of log(time): of a kernel that is read, and more for each guess


def _time(g: Geometry, t: Traffic, accesses: Accesses) -> None:
    b = g.b
    c = {name: real(name) for name in CALIBRATION}
    _of_a_warp(t, accesses.one_thread)
    _of_a_block(g, t, accesses.one_thread)
    waves = b.let("waves", maximum(sp.Float(1), sp.Float(1) * g.busy / g.resident), "", "of blocks on an SM")
    schedulers = minimum(4, maximum(sp.Float(1), minimum(g.on_sm, g.together)))
    read, written = (g.working * real("block_slices"), g.whole * real("store_slices"))
    of_sm = g.busy * real("block_slices")
    terms = {
        "issue": (g.on_sm * real("instructions") * c["c_issue"] / schedulers, "instructions"),
        "loads": (
            g.on_sm * (real("load_cycles") * c["c_load"] + real("shared_passes") * c["c_bank"]),
            "the L1 cache, loads, and shared memory",
        ),
        "stores": (written * g.busiest / g.blocks * c["c_store"], "the L1 cache, stores"),
        "misses": (maximum(of_sm * c["c_sector"], read * c["c_read"]), "from the L2 cache"),
        "l2": (maximum(written * c["c_write"], real("contended") * c["c_atomic"]), "to the L2 cache"),
        "hbm": (real("memory_bytes") * c["c_hbm"], "memory"),
        "latency": (
            waves
            * (
                real("stages") * (c["c_wait"] + c["c_miss"] * real("miss_share")) + real("instructions") * c["c_serial"]
            ),
            "latency",
        ),
    }
    for name, (value, meaning) in terms.items():
        b.body.append(Assign(f"t_{name}", sp.sympify(value), Number.REAL, "cycles", meaning))
    starts = b.let("t_starts", g.blocks * c["c_start"], "cycles", "to start the blocks")
    empty = sp.Float(1) * g.busiest / g.resident * g.warps * c["turn_warp"]
    turnover = b.let("t_turnover", empty, "cycles", "places empty between blocks")
    slices = b.let("t_slices", real("t_misses") + real("t_l2"), "cycles", "of the L2 cache, loads and stores")
    limits = [slices, *(real(f"t_{n}") for n in terms if n not in ("misses", "l2"))]
    most = b.let("longest", maximum(*limits), "cycles", "the longest of the terms")
    squares = _total(t * t for t in limits)
    rest = c["c_overlap"] * (_total(limits) - most) + c["c_square"] * (squares - most * most) / most
    work = b.let("work", most + rest, "cycles", "of all terms, as far as they overlap")
    longer, shorter = (b.let(n, f(work, starts), "cycles") for n, f in (("longer", maximum), ("shorter", minimum)))
    whole = longer + c["soft"] * shorter * shorter / longer + turnover
    b.let("time", whole * _one_by_one(g, accesses) + c["launch"], "cycles", "of the launch")


def _one_by_one(g: Geometry, accesses: Accesses) -> sp.Expr:
    """What the time is multiplied by where rows do not begin at vectors (`dagc.forms.wide`)."""
    rest: sp.Expr = sp.Integer(0)
    for number, divisor in accesses.multiples:
        value = sp.expand(number.xreplace(g.sizes))
        if value.is_integer:
            rest = rest + value - divisor * int_div(value, sp.Integer(divisor))
    return sp.Piecewise((sp.Float(1), sp.Eq(rest, 0)), (sp.Float(ONE_BY_ONE), True)) if rest != 0 else sp.Float(1)


def _total(values: Iterable[sp.Expr]) -> sp.Expr:
    return sum(values, sp.Float(0))


def _of_a_warp(t: Traffic, one_thread: bool) -> None:
    """Assign the requests of a warp: L1 cycles of its loads, accesses of the L2 cache's slices by its stores, sectors,
    and the loads that it waits for one after the other."""
    let = t.b.body.append
    loads, stores = ([p for p in t.placed if p.access.store is kind] for kind in (False, True))
    one = sp.Float(1)

    def asked(placed: list[StridedAccess]) -> sp.Expr:
        return _total(p.times * (one if one_thread else t.touched(p, SECTOR)) for p in placed)

    values = {
        "load_cycles": (_total(p.times * t.load_cycles(p) for p in loads), "cycles", "of the L1 cache, a warp's loads"),
        "shared_passes": (_total(p.times * t.passes(p) for p in t.shared), "", "through the banks of shared memory"),
        "store_slices": (_total(p.times * t.slices(p) for p in stores), "", "accesses of the L2 cache, its stores"),
        "requests": (_total(p.times for p in t.placed), "", "loads and stores of a warp"),
        "sectors": (asked(loads), "", "that a warp loads"),
        "stored_sectors": (asked(stores), "", "that a warp stores"),
        "stages": (t.stages(), "", "loads that follow each other"),
    }  # fmt: skip
    for name, (value, unit, meaning) in values.items():
        let(Assign(name, one * value, Number.REAL, unit, meaning))


def _of_a_block(g: Geometry, t: Traffic, one_thread: bool) -> None:
    """Assign the data that a block loads into its L1 cache, and the bytes that the grid moves."""
    one = sp.Float(1)
    threads = [sp.Integer(1)] * 3 if one_thread else [minimum(b, e) for b, e in zip(g.block, g.extent, strict=True)]
    clusters = t.clusters(t.placed)
    loads, stores = ([m for m in clusters if m[0].access.store is kind] for kind in (False, True))

    def slices(members: list[StridedAccess]) -> sp.Expr:
        return maximum(t.unique(members, threads, size=LINE), t.unique(members, threads) / 2)

    def let(name: str, value: sp.Expr, unit: str, meaning: str) -> None:
        g.b.body.append(Assign(name, one * value, Number.REAL, unit, meaning))

    let("block_sectors", _total(t.unique(m, threads) for m in loads), "", "unique ones of a block")
    let("block_lines", _total(t.unique(m, threads, size=LINE) for m in loads), "", "unique ones of a block")
    let("unique_slices", _total(slices(m) for m in loads), "", "accesses of the L2 cache, each sector once")
    let("again_slices", _total((t.visits(m) - 1) * slices(m) for m in loads), "", "for what a later loop reads again")
    held = minimum(g.resident, g.busiest) * LINE * real("block_lines") / symbol("l1_bytes")
    let("held_bytes", held * symbol("l1_bytes"), "bytes", "that the resident blocks load")
    let("spilled", minimum(one, maximum(sp.Float(0), held - SPILL)), "", "share that a later loop reads again")
    more = real("spilled") * real("again_slices")
    let("block_slices", real("unique_slices") + more, "", "accesses of the L2 cache by a block's loads")
    again = real("block_slices") / maximum(sp.Float(1e-9), real("unique_slices"))
    share = again * real("block_sectors") * g.working / maximum(one, real("sectors") * g.active)
    let("miss_share", minimum(one, share), "", "of the sectors that are asked for")
    let("contended", t.contended(), "", "atomic additions that one address serves one after the other")
    shared = t.shared_bytes(stores, threads)
    let("shared_bytes", shared, "bytes", "in sectors that several blocks store, times the stores of a thread")
    let("evicted", _evicted(g), "", "share of that which the L2 cache does not have either")
    later = _total((t.visits(m) - 1) * t.unique(m, None) for m in loads) * real("evicted")
    whole = t.memory_bytes(clusters) + real("c_fill") * real("shared_bytes") + later
    let("memory_bytes", whole, "bytes", "unique ones of the grid, what completes sectors, and what is read again")


def _evicted(g: Geometry) -> sp.Expr:
    """Share of what a block loads that a later loop reads from memory again: the blocks of all multiprocessors hold
    more than the L2 cache."""
    held = real("held_bytes") * minimum(g.blocks, symbol("multiprocessors")) / symbol("l2_bytes")
    return real("spilled") * minimum(sp.Float(1), maximum(sp.Float(0), held - SPILL))


def explain_terms(values: Mapping[str, float]) -> str:
    """The name of the largest term of the sum: what limits the launch."""
    overlapped = {n: v for n, v in values.items() if n.startswith("t_") and n not in ("t_starts", "t_turnover")}
    if not overlapped:
        return ""
    if values.get("t_starts", 0.0) > sum(overlapped.values()):
        return "starts"
    return max(overlapped, key=lambda n: overlapped[n]).removeprefix("t_")
