"""Occupancy as a rational program: the flow chart of KLARAPTOR (figure "calculation of hardware occupancy").

`plain` is the chart as printed: five branches over per-block limits. CUDA differs in three ways, which are parameters
here: registers are allocated per warp in units, warps in groups, and shared memory in units with a reserved part for
each block. With them the program equals cudaOccupancyMaxActiveBlocksPerMultiprocessor, which
tests/perf/test_occupancy.py checks on thousands of results from an H200, and cuda_occupancy.h for other GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import sympy as sp

from dagc.base.errors import counted
from dagc.base.python import np
from dagc.cuda.expressions import symbol
from dagc.ir.program import KernelOp, Program
from dagc.perf.algebra import int_div, renamed
from dagc.perf.evaluate import evaluate_all
from dagc.perf.geometry import Geometry, parameter_of
from dagc.perf.hardware import Hardware
from dagc.perf.program import (
    Assign,
    Branch,
    Number,
    ParameterKind,
    RationalProgram,
    assignments,
    expressions,
    parameters_of,
)

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

WARP = 32  # threads


def limits_of(hardware: Hardware) -> dict[str, int]:
    """Values of the hardware parameters of `occupancy_program` on a GPU. The units are those of its architecture in
    CUDA's cuda_occupancy.h."""
    capability = int("".join(c for c in hardware.arch if c.isdigit()) or 0)
    return {
        "Rmax": hardware.registers_per_multiprocessor, "Zmax": hardware.shared_per_multiprocessor, "Tmax": 1024,
        "Bmax": hardware.max_blocks_per_multiprocessor, "Wmax": hardware.max_threads_per_multiprocessor // WARP,
        "Runit": 256, "Wunit": 2 if capability == 60 else 4, "Zunit": 128 if capability >= 80 else 256,
        "Zreserved": hardware.shared_reserved_per_block,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What a multiprocessor holds of a launch at a time: `blocks`, 0 if it cannot be launched, with `warps` in all, of
    at most `most`. `limit`: what allows no more blocks."""

    blocks: int
    warps: int
    most: int
    limit: str

    @property
    def share(self) -> float:
        """The occupancy as CUDA defines it."""
        return self.warps / self.most

    @property
    def text(self) -> str:
        """`8 blocks, 64 warps, 100%`."""
        return f"{counted(self.blocks, 'block')}, {counted(self.warps, 'warp')}, {self.share:.0%}"


@dataclass(frozen=True, slots=True)
class Demand:
    """The needs of a launch: `threads` of a block, `registers` of a thread, bytes of `shared` memory of a block."""

    threads: int
    registers: int
    shared: int


_LIMITS = {"Bmax": "blocks", "by_warps": "warps", "by_registers": "registers", "by_shared": "shared memory"}


def occupancies(demands: Sequence[Demand], hardware: Hardware) -> tuple[Occupancy, ...]:
    """The occupancy of each launch on a GPU, by the program with allocation units."""
    if not demands:
        return ()
    limits = limits_of(hardware)
    columns = {"T": "threads", "R": "registers", "Z": "shared"}
    asked = {name: np.array([getattr(d, of) for d in demands]) for name, of in columns.items()}
    steps = {**evaluate_all(occupancy_program(), {**limits, **asked}), "Bmax": limits["Bmax"]}
    rows = {name: np.broadcast_to(steps[name], len(demands)).tolist() for name in ("Bactive", "Wactive", *_LIMITS)}
    least = [min(_LIMITS, key=lambda name: rows[name][i]) for i in range(len(demands))]
    each = zip(rows["Bactive"], rows["Wactive"], least, strict=True)
    return tuple(Occupancy(blocks, warps, limits["Wmax"], _LIMITS[limit]) for blocks, warps, limit in each)


_OWN = "sm_"  # before the names of the program, which differ from those of an op's scalars


def limits_of_op(hardware: Hardware) -> dict[str, int]:
    """`limits_of` by the names of `op_occupancy`."""
    return {f"{_OWN}{name}": value for name, value in limits_of(hardware).items()}


def op_occupancy(program: Program, op: KernelOp) -> RationalProgram:
    """The warps that a multiprocessor could hold in addition, in a launch of `op`: 0 is the occupancy of 1, and all of
    them if it cannot be launched. Parameters are the block and its tunables, `registers` of a thread, `static_shared`
    memory, and scalars that determine the dynamic one."""
    geometry, whole = Geometry(program, op, shared=symbol("static_shared")), occupancy_program()
    names = (*(p.name for p in whole.parameters), *(a.name for a in assignments(whole.body)))
    own = {symbol(name): symbol(f"{_OWN}{name}") for name in names}
    needs = {"T": sp.prod(geometry.block), "R": symbol("registers"), "Z": geometry.shared}
    body = (
        *(Assign(f"{_OWN}{p.name}", needs[p.name], p.number, p.unit, p.meaning) for p in _PROGRAM),
        *renamed(whole.body, own),
        Assign(f"{_OWN}by_blocks", own[symbol("Bmax")], Number.INTEGER, "blocks", "at most"),
        Assign("idle", own[symbol("Wmax")] - own[symbol("Wactive")], Number.INTEGER, "warps", "that could be active"),
    )
    used = {s.name for value in expressions(body) for s in value.free_symbols} - {a.name for a in assignments(body)}
    limits = {f"{_OWN}{p.name}": replace(p, name=f"{_OWN}{p.name}") for p in (*_HARDWARE, *_UNITS)}
    parameters = tuple(limits[n] if n in limits else parameter_of(n) for n in sorted(used))
    return RationalProgram(f"{geometry.kernel.name}_occupancy", parameters, body, "idle", "warps", CUDA)


def why(steps: Mapping[str, float]) -> str:
    """What allows no more blocks, from the values of `op_occupancy`."""
    limits = {name: steps[f"{_OWN}{'by_blocks' if name == 'Bmax' else name}"] for name in _LIMITS}
    return _LIMITS[min(limits, key=lambda name: limits[name])]


@cache
def occupancy_program(*, plain: bool = False) -> RationalProgram:
    """Active blocks of a multiprocessor, 0 if the kernel cannot be launched.

    `plain`: the five branches as printed. The occupancy is `Wactive` / `Wmax`, a step (in warps)
    and a parameter.
    """
    return _plain() if plain else _cuda()


def _active(value: sp.Expr) -> tuple[Assign, ...]:
    return (Assign("Bactive", value, Number.INTEGER, "blocks", "of a multiprocessor at a time"),)


def _plain() -> RationalProgram:
    t, r, z, rmax, zmax, tmax, bmax, wmax = (symbol(n) for n in "T R Z Rmax Zmax Tmax Bmax Wmax".split())
    full = sp.And(t * bmax <= 32 * wmax, r * t * bmax <= rmax, z * bmax <= zmax)
    by_warps = sp.And(32 * wmax <= t * bmax, 32 * wmax * r <= rmax, 32 * wmax * z <= zmax * t)
    by_registers = sp.And(rmax <= r * t * bmax, rmax <= r * 32 * wmax, rmax * z <= r * t * zmax)
    by_shared = sp.And(zmax <= bmax * z, zmax * t <= 32 * wmax * z, zmax * r * t <= z * rmax)

    legal = sp.And(t >= 1, t <= tmax, r * t <= rmax, z <= zmax)
    branch = Branch(
        (
            (sp.And(legal, full), _active(bmax)),
            (sp.And(legal, by_warps), _active(int_div(32 * wmax, t))),
            (sp.And(legal, by_registers), _active(int_div(rmax, r * t))),
            (sp.And(legal, by_shared), _active(int_div(zmax, z))),
        ),
        _active(sp.Integer(0)),
    )
    warps = Assign(
        "Wactive", sp.Min(int_div(symbol("Bactive") * t, sp.Integer(32)), wmax), Number.INTEGER, "warps", "active"
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
        Assign("by_warps", int_div(wmax, warps), Number.INTEGER, "blocks", "that the warps allow"),
        Assign(
            "by_registers", int_div(wunit * int_div(int_div(rmax, per_warp), wunit), warps), Number.INTEGER, "blocks",
            "that the registers allow",
        ),
        Assign(
            "by_shared", int_div(zmax, sp.Max(1, shared)), Number.INTEGER, "blocks", "that the shared memory allows"
        ),
    )  # fmt: skip
    limits = [symbol(n) for n in ("by_warps", "by_registers", "by_shared")]
    legal = sp.And(t >= 1, t <= tmax, limits[1] >= 1, limits[2] >= 1)

    branch = Branch(
        (
            (sp.Not(legal), _active(sp.Integer(0))),
            (sp.And(bmax <= limits[0], bmax <= limits[1], bmax <= limits[2]), _active(bmax)),
            (sp.And(limits[0] <= limits[1], limits[0] <= limits[2]), _active(limits[0])),
            (limits[1] <= limits[2], _active(limits[1])),
        ),
        _active(limits[2]),
    )
    active_warps = Assign("Wactive", symbol("Bactive") * warps, Number.INTEGER, "warps", "active")
    return RationalProgram(
        "occupancy", (*_PROGRAM, *_HARDWARE, *_UNITS), (*steps, branch, active_warps), "Bactive", "blocks", CUDA
    )
