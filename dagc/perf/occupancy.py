"""Occupancy as a rational program: the flow chart of KLARAPTOR (figure "calculation of hardware occupancy").

`plain` is the chart as printed: five branches over per-block limits. CUDA differs in three ways, which are parameters
here: registers are allocated per warp in units, warps in groups, and shared memory in units with a reserved part for
each block. With them the program equals cudaOccupancyMaxActiveBlocksPerMultiprocessor, which
tests/perf/test_occupancy.py checks on thousands of results from an H200.
"""

from __future__ import annotations

import sympy as sp

from dagc.cuda.expressions import symbol
from dagc.perf.program import Assign, Branch, Number, ParameterKind, RationalProgram, parameters_of

PLAIN = "KLARAPTOR, figure of the occupancy's rational program"
CUDA = "CUDA C++ Programming Guide, occupancy; compared with cudaOccupancyMaxActiveBlocksPerMultiprocessor"

_PROGRAM = parameters_of(ParameterKind.PROGRAM, Number.INTEGER, {
    "T": ("threads", "of a block"),
    "R": ("registers", "of a thread"),
    "Z": ("bytes", "of shared memory of a block"),
})  # fmt: skip
_HARDWARE = parameters_of(ParameterKind.HARDWARE, Number.INTEGER, {
    "Rmax": ("registers", "of a multiprocessor"),
    "Zmax": ("bytes", "of shared memory of a multiprocessor"),
    "Tmax": ("threads", "of a block, at most"),
    "Bmax": ("blocks", "of a multiprocessor"),
    "Wmax": ("warps", "of a multiprocessor"),
})  # fmt: skip
_UNITS = parameters_of(ParameterKind.HARDWARE, Number.INTEGER, {
    "Runit": ("registers", "a warp's registers are a multiple of this"),
    "Wunit": ("warps", "a multiprocessor's register limit counts so many warps"),
    "Zunit": ("bytes", "a block's shared memory is a multiple of this"),
    "Zreserved": ("bytes", "of shared memory that each block costs besides"),
})  # fmt: skip

# Compute capability 9.0 (H100, H200).
H200 = {
    "Rmax": 65536, "Zmax": 233472, "Tmax": 1024, "Bmax": 32, "Wmax": 64,
    "Runit": 256, "Wunit": 4, "Zunit": 128, "Zreserved": 1024,
}  # fmt: skip


def _floor(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return sp.floor(a / b)


def occupancy_program(*, plain: bool = False) -> RationalProgram:
    """Active blocks of a multiprocessor, 0 if the kernel cannot be launched.

    `plain`: the five branches as printed. The occupancy is `Wactive` / `Wmax`, a step (in warps)
    and a parameter.
    """
    return _plain() if plain else _cuda()


def _plain() -> RationalProgram:
    t, r, z, rmax, zmax, tmax, bmax, wmax = (symbol(n) for n in "T R Z Rmax Zmax Tmax Bmax Wmax".split())
    full = sp.And(t * bmax <= 32 * wmax, r * t * bmax <= rmax, z * bmax <= zmax)
    by_warps = sp.And(32 * wmax <= t * bmax, 32 * wmax * r <= rmax, 32 * wmax * z <= zmax * t)
    by_registers = sp.And(rmax <= r * t * bmax, rmax <= r * 32 * wmax, rmax * z <= r * t * zmax)
    by_shared = sp.And(zmax <= bmax * z, zmax * t <= 32 * wmax * z, zmax * r * t <= z * rmax)

    def active(value: sp.Expr) -> tuple[Assign, ...]:
        return (Assign("Bactive", value, Number.INTEGER, "blocks", "of a multiprocessor at a time"),)

    legal = sp.And(t >= 1, t <= tmax, r * t <= rmax, z <= zmax)
    branch = Branch(
        (
            (sp.And(legal, full), active(bmax)),
            (sp.And(legal, by_warps), active(_floor(32 * wmax, t))),
            (sp.And(legal, by_registers), active(_floor(rmax, r * t))),
            (sp.And(legal, by_shared), active(_floor(zmax, z))),
        ),
        active(sp.Integer(0)),
    )
    warps = Assign(
        "Wactive", sp.Min(_floor(symbol("Bactive") * t, sp.Integer(32)), wmax), Number.INTEGER, "warps", "active"
    )
    return RationalProgram("occupancy", (*_PROGRAM, *_HARDWARE), (branch, warps), "Bactive", "blocks", PLAIN)


def _cuda() -> RationalProgram:
    t, r, z, rmax, zmax, tmax, bmax, wmax = (symbol(n) for n in "T R Z Rmax Zmax Tmax Bmax Wmax".split())
    runit, wunit, zunit, reserved = (symbol(n) for n in "Runit Wunit Zunit Zreserved".split())
    warps, per_warp, shared = symbol("W"), symbol("Rwarp"), symbol("Zblock")
    steps = (
        Assign("W", sp.ceiling(t / 32), Number.INTEGER, "warps", "of a block"),
        Assign("Rwarp", runit * sp.ceiling(32 * r / runit), Number.INTEGER, "registers", "that a warp is given"),
        Assign("Zblock", zunit * sp.ceiling((z + reserved) / zunit), Number.INTEGER, "bytes", "that a block is given"),
        Assign("by_warps", _floor(wmax, warps), Number.INTEGER, "blocks", "that the warps allow"),
        Assign(
            "by_registers", _floor(wunit * _floor(_floor(rmax, per_warp), wunit), warps), Number.INTEGER, "blocks",
            "that the registers allow",
        ),
        Assign("by_shared", _floor(zmax, shared), Number.INTEGER, "blocks", "that the shared memory allows"),
    )  # fmt: skip
    limits = [symbol(n) for n in ("by_warps", "by_registers", "by_shared")]
    legal = sp.And(t >= 1, t <= tmax, limits[1] >= 1, limits[2] >= 1)

    def active(value: sp.Expr) -> tuple[Assign, ...]:
        return (Assign("Bactive", value, Number.INTEGER, "blocks", "of a multiprocessor at a time"),)

    branch = Branch(
        (
            (sp.Not(legal), active(sp.Integer(0))),
            (sp.And(bmax <= limits[0], bmax <= limits[1], bmax <= limits[2]), active(bmax)),
            (sp.And(limits[0] <= limits[1], limits[0] <= limits[2]), active(limits[0])),
            (limits[1] <= limits[2], active(limits[1])),
        ),
        active(limits[2]),
    )
    active_warps = Assign("Wactive", symbol("Bactive") * warps, Number.INTEGER, "warps", "active")
    return RationalProgram(
        "occupancy", (*_PROGRAM, *_HARDWARE, *_UNITS), (*steps, branch, active_warps), "Bactive", "blocks", CUDA
    )
