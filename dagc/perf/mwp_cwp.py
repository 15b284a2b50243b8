"""The MWP-CWP model as a rational program, as published, for comparison with the volume model.

After Hong and Kim, "An analytical model for a GPU architecture with memory-level and thread-level parallelism
awareness", ISCA 2009; model E of KLARAPTOR. Two numbers of warps decide: MWP, how many can wait for memory at once,
and CWP, how many could compute while one waits. docs/explanation/mwp-cwp.md has the equations.

Differences from the published equations:
- the transactions S of an uncoalesced instruction are counted per memory instruction, not per warp;
- limits are from a descriptor of the GPU, and the blocks of a multiprocessor from CUDA's occupancy;
- without memory instructions the time is that of arithmetic, and MWP below 1 overlaps nothing (it is no gain).

The model has no caches: each instruction goes to memory. This is kept, and causes the largest part of its error.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from dagc.cuda.accesses import Accesses
from dagc.cuda.expressions import real, symbol
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.ir.program import KernelOp, Program
from dagc.perf.geometry import Geometry, read_accesses
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
    """The model over given counts: measured, fitted (`dagc.perf.counted`), or read from the text."""
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
