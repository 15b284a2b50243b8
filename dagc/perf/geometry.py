"""The geometry of a launch as rational expressions: grid, warps with work, blocks that are resident at a time.

In the program's scalars, the block (`blockDim_x`, ...), the registers of a thread and the limits of the GPU. Models
(`volume`, `mwp_cwp`, `counted`) add their terms to its assignments.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from dagc.cuda.accesses import Accesses, accesses_of, symbol
from dagc.cuda.text import NotUnderstood
from dagc.ir.enums import ElementType, Mode
from dagc.ir.launching import AXES, kernel_of
from dagc.ir.program import KernelOp, Program, Region
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, substitute
from dagc.perf.program import (
    Assign,
    Number,
    Parameter,
    ParameterKind,
    RationalProgram,
    Statement,
    assignments,
    expressions,
)

# ---- what the models need of an op ----


def read_accesses(program: Program, op: KernelOp) -> Accesses:
    """Raises NotUnderstood. Tunables that are block dimensions are `blockDim_x`, others symbols of their name."""
    kernel, impl = kernel_of(program, op)
    if impl.code is None or impl.code.text is None or impl.launch is None:
        raise NotUnderstood(f"kernel `{kernel.name}` has no CUDA text")
    arrays = {f.name: f.type.size for f in kernel.formals if f.mode is not None}
    values: dict[str, sp.Expr] = {f.name: symbol(f.name) for f in kernel.formals if f.mode is None}
    for name, _ in op.tunables:
        values[name] = symbol(name)
    for axis, size in zip(AXES, impl.launch.block, strict=False):
        if isinstance(size, Var) and size.name in values:
            values[size.name] = symbol(f"blockDim_{axis}")
    for param in program.params:
        if isinstance(param.value, (int, float)) and param.name not in values:
            values[param.name] = sp.Integer(param.value) if isinstance(param.value, int) else sp.Float(param.value)
    for decision in program.decisions:
        if isinstance(decision.chosen, int) and decision.name not in values:
            values[decision.name] = sp.Integer(int(decision.chosen))
    for name, expr in (*program.lets, *kernel.lets, *impl.lets):
        converted = to_sympy(expr)
        if converted is not None:
            values[name] = converted.subs({symbol(n): v for n, v in values.items()})
    constant = {f.name for f in kernel.formals if f.mode is Mode.IN}
    types = {p.name: _C_TYPES[p.value] for p in program.params if isinstance(p.value, ElementType)}
    return accesses_of(impl.code.text, arrays, values, constant, types)


_C_TYPES = {t: f"{'u' * t.value.startswith('u')}int{t.size * 8}_t" for t in ElementType}
_C_TYPES |= {ElementType.F32: "float", ElementType.F64: "double", ElementType.BOOL: "bool"}


_BINARY = {Fn.ADD: sp.Add, Fn.MUL: sp.Mul, Fn.MIN: sp.Min, Fn.MAX: sp.Max}


def to_sympy(expr: Sym) -> sp.Expr | None:
    """A symbolic scalar as a SymPy expression; None where it is no arithmetic of numbers."""
    if isinstance(expr, Const):
        return sp.sympify(expr.value) if not isinstance(expr.value, (str, bool)) else None
    if isinstance(expr, Var):
        return symbol(expr.name)
    assert isinstance(expr, Apply)
    args = [to_sympy(a) for a in expr.args]
    if any(a is None for a in args):
        return None
    numbers = [a for a in args if a is not None]
    if expr.fn in _BINARY:
        return _BINARY[expr.fn](*numbers)
    match expr.fn:
        case Fn.SUB:
            return numbers[0] - numbers[1]
        case Fn.DIV:
            return numbers[0] / numbers[1]
        case Fn.NEG:
            return -numbers[0]
        case Fn.FLOOR:
            return sp.floor(numbers[0])
        case Fn.CEIL:
            return sp.ceiling(numbers[0])
        case Fn.MOD:
            return numbers[0] - numbers[1] * sp.floor(numbers[0] / numbers[1])
        case _:
            return None


_RELATIONS = {Fn.EQ: sp.Eq, Fn.NE: sp.Ne, Fn.LT: sp.Lt, Fn.LE: sp.Le, Fn.GT: sp.Gt, Fn.GE: sp.Ge}


def conditions_of(expr: Sym) -> tuple[sp.Basic, ...]:
    """The comparisons that a condition asks for, all of them; those that are no comparisons of numbers are left out."""
    if not isinstance(expr, Apply):
        return ()
    if expr.fn is Fn.AND:
        return tuple(found for arg in expr.args for found in conditions_of(arg))
    if expr.fn not in _RELATIONS:
        return ()
    left, right = (to_sympy(a) for a in expr.args)
    return () if left is None or right is None else (_RELATIONS[expr.fn](left, right),)


# ---- grid, warps, resident blocks ----


WARP = 32
SHARED_UNIT = 128  # bytes
HARDWARE = {
    "multiprocessors": ("", "SMs of the GPU"),
    "max_threads_per_multiprocessor": ("threads", "resident on an SM"),
    "max_blocks_per_multiprocessor": ("blocks", "resident on an SM"),
    "registers_per_multiprocessor": ("registers", "of 32 bits"),
    "shared_per_multiprocessor": ("bytes", "of shared memory of an SM"),
    "shared_reserved_per_block": ("bytes", "of shared memory that each block costs besides"),
    "l1_bytes": ("bytes", "of the L1 cache that loads can use"),
}
MEANINGS = {
    "blockDim_x": "threads of a block along x", "blockDim_y": "threads of a block along y",
    "blockDim_z": "threads of a block along z", "registers": "of a thread", "log2_threads": "of a block",
}  # fmt: skip


class Builder:
    """Collects assignments; equal expressions are assigned once."""

    def __init__(self) -> None:
        self.body: list[Statement] = []
        self._names: dict[sp.Expr, sp.Symbol] = {}

    def let(self, name: str, value: sp.Expr, unit: str = "", meaning: str = "", *, integer: bool = False) -> sp.Expr:
        value = sp.sympify(value)
        if value.is_Atom:
            return value
        if value not in self._names:
            variable = symbol(name) if integer else sp.Symbol(name, real=True)
            known = {a.name for a in assignments(tuple(self.body))}
            number = 1
            while variable.name in known:
                number += 1
                variable = symbol(f"{name}_{number}") if integer else sp.Symbol(f"{name}_{number}", real=True)
            kind = Number.INTEGER if integer else Number.REAL
            self.body.append(Assign(variable.name, value, kind, unit, meaning))
            self._names[value] = variable
        return self._names[value]


def int_div(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return sp.floor(a / b)


def ceil_div(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return sp.ceiling(a / b)


def sizes_of(program: Program, op: KernelOp) -> dict[sp.Symbol, sp.Expr]:
    """By-value formals -> expressions in per-rank scalars."""
    kernel, _ = kernel_of(program, op)
    out: dict[sp.Symbol, sp.Expr] = {}
    for formal, arg in zip(kernel.formals, op.args, strict=True):
        if not isinstance(arg, Region):
            found = to_sympy(arg)
            if found is not None:
                out[symbol(formal.name)] = found
    return out


class Geometry:
    """Of one op. `place` writes the assignments and makes the attributes that depend on the block."""

    def __init__(self, program: Program, op: KernelOp, *, one_thread: bool = False, shared: int = 0) -> None:
        """`one_thread`: one thread of each block works. `shared`: bytes of shared memory of a block."""
        self.b = Builder()
        self.one_thread, self.shared = one_thread, shared
        self.kernel, self.impl = kernel_of(program, op)
        self.sizes = sizes_of(program, op)
        self.bx, self.by = symbol("blockDim_x"), symbol("blockDim_y")
        self.extent, self.grid = self._grid(program, op)

    def _grid(self, program: Program, op: KernelOp) -> tuple[list[sp.Expr], list[sp.Expr]]:
        """Threads that have work in each dimension (the grid for blocks of one thread), and blocks."""
        assert self.impl.launch is not None
        axes = dict(zip((s.name for s in self.impl.launch.block if isinstance(s, Var)), ("x", "y", "z"), strict=False))
        for position, size in enumerate(self.impl.launch.block):
            if isinstance(size, Var):
                axes[size.name] = "xyz"[position]
        extent, grid = [], []
        names = {n: symbol(f"blockDim_{a}") for n, a in axes.items()}
        for expr in self.impl.launch.grid:
            ones = to_sympy(substitute(expr, {n: Const(1) for n, _ in op.tunables}))
            full = to_sympy(expr)
            extent.append(sp.Integer(1) if ones is None else ones.subs(self.sizes))
            free = {symbol(n): s for n, s in names.items()} | {
                symbol(n): sp.sympify(v) for n, v in op.tunables if n not in names
            }
            grid.append(sp.Integer(1) if full is None else full.subs(free).subs(self.sizes))
        while len(extent) < 3:
            extent.append(sp.Integer(1))
            grid.append(sp.Integer(1))
        return extent, grid

    def place(self) -> None:
        """Assign everything, in an order in which it can be computed."""
        b, one = self.b, self.one_thread
        bx = self.bx
        by = self.by if self.impl.launch is not None and len(self.impl.launch.block) > 1 else sp.Integer(1)
        self.by = by
        ex, ey, ez = (
            b.let(f"extent_{a}", e, "threads", f"with work along {a}", integer=True)
            for a, e in zip("xyz", self.extent, strict=True)
        )
        self.extent = [ex, ey, ez]
        threads = b.let("threads", bx * by, "threads", "of a block", integer=True)
        warps = b.let("warps", ceil_div(threads, WARP), "warps", "of a block", integer=True)
        blocks = b.let("blocks", self.grid[0] * self.grid[1] * self.grid[2], "blocks", "of the grid", integer=True)
        self.lx = b.let("lanes_x", sp.Min(bx, WARP), "threads", "of a warp along x", integer=True)
        self.ly = (
            b.let(
                "lanes_y", sp.Min(by, int_div(sp.Integer(WARP), self.lx)), "threads", "of a warp along y", integer=True
            )
            if by != 1
            else sp.Integer(1)
        )
        active = blocks if one else self._active_warps(ex, ey, ez, threads)
        active = b.let("active_warps", active, "warps", "that have work", integer=True)
        sms = symbol("multiprocessors")
        resident = self._resident(threads, warps)
        busiest = b.let("busiest", ceil_div(blocks, sms), "blocks", "on the busiest SM", integer=True)
        together = b.let("together", sp.Min(resident, busiest) * warps, "warps", "resident on it", integer=True)
        on_sm = b.let(
            "warps_sm", sp.Float(1) * busiest * active / blocks, "warps", "with work, on the busiest SM, in all"
        )
        self.threads, self.warps, self.blocks, self.active = threads, warps, blocks, active
        self.resident, self.busiest, self.together, self.on_sm = resident, busiest, together, on_sm

    def _active_warps(self, ex: sp.Expr, ey: sp.Expr, ez: sp.Expr, threads: sp.Expr) -> sp.Expr:
        bx, by, b = self.bx, self.by, self.b
        whole = b.let("whole_x", int_div(ex, bx), integer=True)
        wide = (whole * int_div(bx, sp.Integer(WARP)) + ceil_div(ex - whole * bx, sp.Integer(WARP))) * ey * ez
        if by == 1:
            narrow = ceil_div(ex, bx) * ey * ez
        else:
            rows = b.let("whole_y", int_div(ey, by), integer=True)
            narrow = (
                ceil_div(ex, bx)
                * (
                    rows * sp.Max(1, int_div(threads, sp.Integer(WARP)))
                    + ceil_div((ey - rows * by) * bx, sp.Integer(WARP))
                )
                * ez
            )
        return sp.Piecewise((wide, bx >= WARP), (narrow, True))

    def _resident(self, threads: sp.Expr, warps: sp.Expr) -> sp.Expr:
        """Blocks on an SM at a time, by threads, blocks, registers and shared memory."""
        registers = symbol("registers")
        allocated = self.b.let(
            "warp_registers",
            256 * ceil_div(registers * WARP, sp.Integer(256)),
            "registers",
            "a warp is given",
            integer=True,
        )
        by_threads = int_div(symbol("max_threads_per_multiprocessor"), WARP * warps)
        by_registers = int_div(symbol("registers_per_multiprocessor"), allocated * warps)
        limits = [symbol("max_blocks_per_multiprocessor"), by_threads, by_registers]
        if self.shared:
            shared = SHARED_UNIT * ceil_div(self.shared + symbol("shared_reserved_per_block"), sp.Integer(SHARED_UNIT))
            block = self.b.let("block_shared", shared, "bytes", "of shared memory a block is given", integer=True)
            limits.append(int_div(symbol("shared_per_multiprocessor"), block))
        most = sp.Min(*limits)
        return self.b.let("resident", sp.Max(1, most), "blocks", "an SM holds at a time", integer=True)

    def parameters(self, known: Mapping[str, Parameter] | None = None) -> tuple[Parameter, ...]:
        """Of everything that is used and not assigned, by name; `known` are those that the model declares."""
        body = tuple(self.b.body)
        used = {s.name for value in expressions(body) for s in value.free_symbols} - {a.name for a in assignments(body)}
        out = []
        for name in sorted(used):
            if known is not None and name in known:
                out.append(known[name])
            elif name in HARDWARE:
                out.append(Parameter(name, ParameterKind.HARDWARE, Number.INTEGER, *HARDWARE[name]))
            elif name in MEANINGS:
                number = Number.REAL if name == "log2_threads" else Number.INTEGER
                out.append(Parameter(name, ParameterKind.PROGRAM, number, "", MEANINGS[name]))
            else:
                out.append(Parameter(name, ParameterKind.DATA, Number.INTEGER, "", "size"))
        return tuple(out)


def _required(program: Program, geometry: Geometry, op: KernelOp) -> list[sp.Basic]:
    """The `require`s that depend on sizes. Those on tunables and the GPU alone were checked with the settings; a
    tunable that is no block dimension has no value here."""
    kernel, impl = geometry.kernel, geometry.impl
    assert impl.launch is not None
    blocks = {s.name: f"blockDim_{a}" for s, a in zip(impl.launch.block, "xy", strict=False) if isinstance(s, Var)}
    env: dict[str, Sym] = {name: Var(blocks.get(name, f"tunable.{name}")) for name, _ in op.tunables}
    for name, expr in (*kernel.lets, *impl.lets):
        env[name] = substitute(expr, env)
    sizes = {scalar.name for scalar in program.scalars}
    out = []
    for require in (*kernel.requires, *impl.requires):
        for relation in conditions_of(substitute(require, env)):
            condition = relation.subs(geometry.sizes)
            names = {s.name for s in condition.free_symbols}
            if names & sizes and names <= sizes | set(blocks.values()):
                out.append(condition)
    return out


def launchable_program(program: Program, op: KernelOp) -> RationalProgram:
    """1 where the grid has blocks and is within CUDA's limits, and the kernel's `require`s on sizes hold, else 0.
    Parameters as in `volume_program`."""
    geometry = Geometry(program, op)
    conditions = _required(program, geometry, op)
    for size, limit in zip(geometry.grid, (2**31 - 1, 65535, 65535), strict=True):
        if size != 1:
            conditions += [size >= 1, size <= limit]
    good = sp.Piecewise((1, sp.And(*conditions)), (0, True)) if conditions else sp.Integer(1)
    names = sorted(s.name for s in good.free_symbols)
    parameters = tuple(
        Parameter(
            n,
            ParameterKind.PROGRAM if n in MEANINGS else ParameterKind.DATA,
            Number.INTEGER,
            "",
            MEANINGS.get(n, "size"),
        )
        for n in names
    )
    return RationalProgram(
        f"{geometry.kernel.name}_launchable", parameters, (Assign("good", good, Number.INTEGER),), "good", "",
        "CUDA C++ Programming Guide, technical specifications",
    )  # fmt: skip
