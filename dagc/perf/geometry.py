"""The geometry of a launch as rational expressions: grid, warps with work, resident blocks, and the data they move.

All are expressions in the program's scalars, the block (`blockDim_x`, ...), the registers of a thread and the limits of
the GPU. Models (`volume`, `mwp_cwp`, `counted`) add their terms to its assignments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from dagc.cuda.accesses import Accesses, Work, accesses_of
from dagc.cuda.expressions import Access, Loop, linear, real, symbol
from dagc.cuda.ptx import Instructions
from dagc.cuda.text import NotUnderstood
from dagc.ir.enums import ElementType, Mode
from dagc.ir.plan import AXES, kernel_of
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

# ---- inputs of the models for an op ----


def read_accesses(program: Program, op: KernelOp) -> Accesses:
    """Raises NotUnderstood. Tunables that are block dimensions become `blockDim_x`, others `tunable` symbols."""
    kernel, impl = kernel_of(program, op)
    if impl.code is None or impl.code.text is None or impl.launch is None:
        raise NotUnderstood(f"kernel `{kernel.name}` has no CUDA text")
    arrays = {f.name: f.type.size for f in kernel.formals if f.mode is not None}
    values: dict[str, sp.Expr] = {f.name: symbol(f.name) for f in kernel.formals if f.mode is None}
    for name, _ in op.tunables:
        values[name] = tunable(name)
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


def tunable(name: str) -> sp.Symbol:
    """A tunable that is no dimension of the block: a parameter of the models, as the block is."""
    return symbol(f"{name}{TUNABLE}")


TUNABLE = "_tunable"
_C_TYPES = {t: f"{'u' * t.value.startswith('u')}int{t.size * 8}_t" for t in ElementType}
_C_TYPES |= {ElementType.F32: "float", ElementType.F64: "double", ElementType.BOOL: "bool"}


# `hw.NAME` of the language: the descriptor's name, or the value
_HARDWARE: dict[str, str | int] = {
    "hw.sms": "multiprocessors", "hw.max_threads_per_sm": "max_threads_per_multiprocessor",
    "hw.max_blocks_per_sm": "max_blocks_per_multiprocessor", "hw.shared_per_sm": "shared_per_multiprocessor",
    "hw.registers_per_sm": "registers_per_multiprocessor", "hw.l2_bytes": "l2_bytes",
    "hw.warp_size": 32, "hw.max_threads_per_block": 1024, "hw.shared_per_block": 48 << 10,
}  # fmt: skip
_FUNCTIONS: dict[Fn, Callable[..., sp.Expr]] = {
    Fn.ADD: sp.Add, Fn.MUL: sp.Mul, Fn.MIN: sp.Min, Fn.MAX: sp.Max, Fn.FLOOR: sp.floor, Fn.CEIL: sp.ceiling,
    Fn.SUB: lambda a, b: a - b, Fn.DIV: lambda a, b: a / b, Fn.NEG: lambda a: -a,
    Fn.MOD: lambda a, b: a - b * sp.floor(a / b),
}  # fmt: skip


def to_sympy(expr: Sym) -> sp.Expr | None:
    """A symbolic scalar as a SymPy expression; None if it is not arithmetic."""
    if isinstance(expr, Const):
        return sp.sympify(expr.value) if not isinstance(expr.value, (str, bool)) else None
    if isinstance(expr, Var):
        known = _HARDWARE.get(expr.name, expr.name)
        return symbol(known) if isinstance(known, str) else sp.Integer(known)
    args = [to_sympy(a) for a in expr.args]
    return None if None in args or expr.fn not in _FUNCTIONS else _FUNCTIONS[expr.fn](*args)


_RELATIONS = {Fn.EQ: sp.Eq, Fn.NE: sp.Ne, Fn.LT: sp.Lt, Fn.LE: sp.Le, Fn.GT: sp.Gt, Fn.GE: sp.Ge}


def conditions_of(expr: Sym) -> tuple[sp.Basic, ...]:
    """The comparisons in a condition, which must all hold; parts that are not comparisons of numbers are skipped."""
    if not isinstance(expr, Apply):
        return ()
    if expr.fn is Fn.AND:
        return tuple(relation for arg in expr.args for relation in conditions_of(arg))
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
    "l2_bytes": ("bytes", "of the L2 cache"),
}
MEANINGS = {
    "blockDim_x": "threads of a block along x", "blockDim_y": "threads of a block along y",
    "blockDim_z": "threads of a block along z", "registers": "of a thread", "log2_threads": "of a block",
}  # fmt: skip


def parameter_of(name: str) -> Parameter:
    """What a symbol of the models stands for: a limit of the GPU, something of the setting, or a size."""
    if name in HARDWARE:
        return Parameter(name, ParameterKind.HARDWARE, Number.INTEGER, *HARDWARE[name])
    if name in MEANINGS:
        number = Number.REAL if name == "log2_threads" else Number.INTEGER
        return Parameter(name, ParameterKind.PROGRAM, number, "", MEANINGS[name])
    if name.endswith(TUNABLE):
        return Parameter(name, ParameterKind.PROGRAM, Number.INTEGER, "", "a tunable")
    return Parameter(name, ParameterKind.DATA, Number.INTEGER, "", "size")


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
            known = {a.name for a in assignments(tuple(self.body))}
            names = (name, *(f"{name}_{number}" for number in range(2, len(known) + 3)))
            variable = (symbol if integer else real)(next(n for n in names if n not in known))
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
            value = to_sympy(arg)
            if value is not None:
                out[symbol(formal.name)] = value
    return out


def covered(grid: sp.Expr, block: sp.Expr) -> sp.Expr:
    """Threads with work of `grid` blocks of `block` threads each.

    `ceil(E / block)` blocks have a thread for each of E, and the threads beyond leave. In any other grid (a block for
    each row, a fixed number of blocks whose threads loop) all threads of all blocks have work.
    """
    if block == 1:
        return grid
    if isinstance(grid, (sp.ceiling, sp.floor)):
        elements = sp.expand(grid.args[0] * block)
        if isinstance(grid, sp.floor):  # (E + block - 1) / block in integers
            elements = sp.expand(elements - block + 1)
        if not elements.free_symbols & block.free_symbols:
            return grid.func(elements)
    return grid * block


class Geometry:
    """Geometry for one op. `place` writes the assignments and sets the attributes that depend on the block."""

    def __init__(self, program: Program, op: KernelOp, *, one_thread: bool = False, shared: int = 0) -> None:
        """`one_thread`: one thread of each block works. `shared`: bytes of shared memory of a block."""
        self.b = Builder()
        self.one_thread, self.shared = one_thread, shared
        self.kernel, self.impl = kernel_of(program, op)
        self.sizes = sizes_of(program, op)
        self.bx, self.by = symbol("blockDim_x"), symbol("blockDim_y")
        self.block, self.grid = self._launch(op)
        # Threads with work in each dimension; blocks of one thread: the grid.
        self.extent = self.grid if one_thread else [covered(*s) for s in zip(self.grid, self.block, strict=True)]

    def _launch(self, op: KernelOp) -> tuple[list[sp.Expr], list[sp.Expr]]:
        """Block and grid, three dimensions each; 1 where a size cannot be read."""
        assert self.impl.launch is not None
        names = dict(zip(self.impl.launch.block, AXES, strict=False))
        values = {
            symbol(n): symbol(f"blockDim_{names[Var(n)]}") if Var(n) in names else tunable(n) for n, _ in op.tunables
        }

        def of(sizes: Sequence[Sym]) -> list[sp.Expr]:
            read = [to_sympy(size) for size in sizes]
            known = [sp.Integer(1) if one is None else one.subs(values).subs(self.sizes) for one in read]
            return known + [sp.Integer(1)] * (3 - len(known))

        return of(self.impl.launch.block), of(self.impl.launch.grid)

    def place(self) -> None:
        """Assign everything, in a computable order."""
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
        self.ly = sp.Integer(1)
        if by != 1:
            rows = sp.Min(by, int_div(WARP, self.lx))
            self.ly = b.let("lanes_y", rows, "threads", "of a warp along y", integer=True)
        active = blocks if one else self._active_warps(ex, ey, ez, threads)
        active = b.let("active_warps", active, "warps", "that have work", integer=True)
        sms = symbol("multiprocessors")
        resident = self._resident(threads, warps)
        busiest = b.let("busiest", ceil_div(blocks, sms), "blocks", "on the busiest SM", integer=True)
        together = b.let("together", sp.Min(resident, busiest) * warps, "warps", "resident on it", integer=True)
        share = sp.Float(1) * busiest * active / blocks
        on_sm = b.let("warps_sm", share, "warps", "with work, on the busiest SM, in all")
        self.threads, self.warps, self.blocks, self.active = threads, warps, blocks, active
        self.resident, self.busiest, self.together, self.on_sm = resident, busiest, together, on_sm

    def _active_warps(self, ex: sp.Expr, ey: sp.Expr, ez: sp.Expr, threads: sp.Expr) -> sp.Expr:
        bx, by, b = self.bx, self.by, self.b
        whole = b.let("whole_x", int_div(ex, bx), integer=True)
        wide = (whole * int_div(bx, WARP) + ceil_div(ex - whole * bx, WARP)) * ey * ez
        if by == 1:
            narrow = ceil_div(ex, bx) * ey * ez
        else:
            rows = b.let("whole_y", int_div(ey, by), integer=True)
            of_rows = rows * sp.Max(1, int_div(threads, WARP)) + ceil_div((ey - rows * by) * bx, WARP)
            narrow = ceil_div(ex, bx) * of_rows * ez
        return sp.Piecewise((wide, bx >= WARP), (narrow, True))

    def _resident(self, threads: sp.Expr, warps: sp.Expr) -> sp.Expr:
        """Blocks on an SM at a time, limited by threads, blocks, registers and shared memory."""
        rounded = 256 * ceil_div(symbol("registers") * WARP, 256)
        allocated = self.b.let("warp_registers", rounded, "registers", "a warp is given", integer=True)
        by_threads = int_div(symbol("max_threads_per_multiprocessor"), WARP * warps)
        by_registers = int_div(symbol("registers_per_multiprocessor"), allocated * warps)
        limits = [symbol("max_blocks_per_multiprocessor"), by_threads, by_registers]
        if self.shared:
            shared = SHARED_UNIT * ceil_div(self.shared + symbol("shared_reserved_per_block"), SHARED_UNIT)
            block = self.b.let("block_shared", shared, "bytes", "of shared memory a block is given", integer=True)
            limits.append(int_div(symbol("shared_per_multiprocessor"), block))
        most = sp.Min(*limits)
        return self.b.let("resident", sp.Max(1, most), "blocks", "an SM holds at a time", integer=True)

    def parameters(self, known: Mapping[str, Parameter] | None = None) -> tuple[Parameter, ...]:
        """Parameters of everything used and not assigned, by name; `known` are those that the model declares."""
        body = tuple(self.b.body)
        used = {s.name for value in expressions(body) for s in value.free_symbols} - {a.name for a in assignments(body)}
        return tuple(known[n] if known is not None and n in known else parameter_of(n) for n in sorted(used))


def _required(program: Program, geometry: Geometry, op: KernelOp) -> list[sp.Basic]:
    """The `require`s that depend on sizes. Those on tunables and the GPU alone are checked with the settings."""
    kernel, impl = geometry.kernel, geometry.impl
    assert impl.launch is not None
    blocks = {s.name: f"blockDim_{a}" for s, a in zip(impl.launch.block, AXES, strict=False) if isinstance(s, Var)}
    tunables = {name: blocks.get(name, tunable(name).name) for name, _ in op.tunables}
    env: dict[str, Sym] = {name: Var(known) for name, known in tunables.items()}
    for name, expr in (*kernel.lets, *impl.lets):
        env[name] = substitute(expr, env)
    sizes = {scalar.name for scalar in program.scalars}
    out = []
    for require in (*kernel.requires, *impl.requires):
        for relation in conditions_of(substitute(require, env)):
            condition = relation.subs(geometry.sizes)
            names = {s.name for s in condition.free_symbols}
            if names & sizes and names <= sizes | set(tunables.values()):
                out.append(condition)
    return out


def launchable_program(program: Program, op: KernelOp) -> RationalProgram:
    """1 if the grid has blocks and is within CUDA's limits, and the kernel's `require`s on sizes hold, else 0.
    Parameters as for `volume_program`."""
    geometry = Geometry(program, op)
    conditions = _required(program, geometry, op)
    for size, limit in zip(geometry.grid, (2**31 - 1, 65535, 65535), strict=True):
        if size != 1:
            conditions += [size >= 1, size <= limit]
    good = sp.Piecewise((1, sp.And(*conditions)), (0, True)) if conditions else sp.Integer(1)
    parameters = tuple(parameter_of(name) for name in sorted(s.name for s in good.free_symbols))
    return RationalProgram(
        f"{geometry.kernel.name}_launchable", parameters, (Assign("good", good, Number.INTEGER),), "good", "",
        "CUDA C++ Programming Guide, technical specifications",
    )  # fmt: skip


# ---- data moved ----
# Data moved by the loads and stores of a kernel, from their address expressions: cycles of the L1 cache, sectors,
# lines, unique data of a block and of the grid.
#
# Strides are classified into small constants and wide ones (those that contain a size) when the program is generated,
# so only arithmetic remains for run time.
# is left for run time is arithmetic.

SECTOR, LINE, BANKS = 32, 128, 32  # bytes, bytes, banks of 4 bytes
TAG_CYCLES = sp.Rational(44, 100)  # of the L1 cache, for each line that a load touches
STORE_LINE_CYCLES = sp.Rational(7, 2)  # for each line that a store touches
STORE_BYTES_A_CYCLE = 16


@dataclass(frozen=True, slots=True)
class Dimension:
    """A stride in elements, for so many steps. `wide`: it contains a size."""

    stride: sp.Expr
    count: sp.Expr
    wide: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """An access with its strides: per threadIdx.x, .y, per plane of blocks (blockIdx.z), and per iteration.

    `blocks`: per blockIdx.x, .y where that is not the stride of a thread times the size of the block; None where it is,
    so that the threads of the grid along this dimension are one row. `rows`: how often the iterations of loops repeat
    the row of a block along x, each time beginning where it ended (`for (j = threadIdx.x; j < n; j += blockDim.x)`:
    n / blockDim.x). `apart`: stride and trips of the other loops.
    """

    access: Access
    x: sp.Expr
    y: sp.Expr
    z: sp.Expr
    loops: tuple[tuple[sp.Expr, sp.Expr], ...]  # stride, trips
    offset: sp.Expr
    times: sp.Expr  # executions by a thread
    blocks: tuple[sp.Expr | None, sp.Expr | None] = (None, None)
    rows: sp.Expr = sp.Integer(1)
    apart: tuple[tuple[sp.Expr, sp.Expr], ...] = ()


def _unrounded(count: sp.Expr) -> sp.Expr:
    """An average number of iterations, of which fractions count."""
    return count.replace(lambda e: isinstance(e, (sp.ceiling, sp.floor)), lambda e: e.args[0])


class Traffic:
    """Data moved by a launch with placed geometry. Intermediate results become assignments of the geometry's
    program."""

    def __init__(self, geometry: Geometry, accesses: Accesses) -> None:
        self.geometry, self.accesses = geometry, accesses
        self.b, self.sizes, self.extent = geometry.b, geometry.sizes, geometry.extent
        self.lx, self.ly = geometry.lx, geometry.ly
        self._shape = {symbol(f"blockDim_{a}"): n for a, n in zip("xyz", geometry.block, strict=True)}
        self._shape |= {symbol(f"gridDim_{a}"): n for a, n in zip("xyz", geometry.grid, strict=True)}
        # Rare accesses (weight 0) move a negligible amount.
        self.placed = [self._placed(a) for a in accesses.accesses if not a.shared and a.weight > 0]

    def _placed(self, access: Access) -> Placed:
        t, g = ([symbol(f"{index}_{a}") for a in "xyz"] for index in ("threadIdx", "blockIdx"))
        times = sp.Float(access.weight)
        trips = self.trips_of(access.loops)
        for number in trips:
            times = times * number
        if not access.known:
            wide = symbol("blockDim_x") * 0 + 33
            return Placed(access, wide, wide, sp.Integer(0), (), sp.Integer(0), times)
        address = linear(self._in_iterations(access))
        loops = tuple((address.coeff(loop.counter, 1), n) for loop, n in zip(access.loops, trips, strict=True))
        rest = address.subs(dict.fromkeys((*t, *g, *(lo.counter for lo in access.loops)), 0))
        x, y = (address.coeff(index, 1) for index in t[:2])
        apart = [address.coeff(index, 1) for index in g[:2]]
        whole = [sp.expand(one * size) for one, size in zip((x, y), self.geometry.block, strict=False)]
        blocks = tuple(None if own == row else own for own, row in zip(apart, whole, strict=True))
        continues = [stride == whole[0] != 0 for stride, _ in loops]
        rows = self._rows_of([lo for lo, row in zip(access.loops, continues, strict=True) if row])
        others = tuple(one for one, row in zip(loops, continues, strict=True) if not row)
        return Placed(access, x, y, address.coeff(g[2], 1), loops, rest, times, blocks, rows, others)  # type: ignore[arg-type]

    def _rows_of(self, loops: Sequence[Loop]) -> sp.Expr:
        """How many blocks long the row is that the iterations of these loops continue."""
        rows: sp.Expr = sp.Integer(1)
        for loop in loops:
            trips = loop.trips.args[0] if isinstance(loop.trips, sp.ceiling) else loop.trips
            rows = rows * self._of_first_thread(trips.subs(self._shape).subs(self.sizes))
        return rows

    def _in_iterations(self, access: Access) -> sp.Expr:
        """The address, expanded, with the number of the iteration in place of each counter: a loop that a thread begins
        at its own index strides with the threads."""
        address = access.address
        for loop in reversed(access.loops):
            address = address.subs(loop.counter, loop.first + loop.step * loop.counter)
        address = address.subs(self._shape).subs(self.sizes)
        # Loaded values that are the same for all threads shift addresses, which hardly matters.
        return sp.expand(address.subs({s: 0 for s in address.free_symbols if s.name.startswith("uniform_")}))

    def trips_of(self, loops: Sequence[Loop]) -> list[sp.Expr]:
        """Iterations of each of nested loops, the outer ones halfway through."""
        halfway: dict[sp.Expr, sp.Expr] = {}
        out = []
        for loop in loops:
            trips, first = loop.trips, loop.first
            if trips.free_symbols & halfway.keys() or first.free_symbols & halfway.keys():
                trips, first = (_unrounded(e.subs(halfway)) for e in (trips, first))
            out.append(self._average(trips.subs(self.sizes)))
            halfway[loop.counter] = first + loop.step * (out[-1] - 1) / 2
        return out

    def _average(self, trips: sp.Expr) -> sp.Expr:
        """Iterations of the thread in the middle of the grid."""
        average = self._of_first_thread(trips.subs(self._shape))
        trips = sp.Float(average) if average.is_Integer else sp.Float(1) * average
        return self.b.let("trips", trips, "", "iterations of a loop, in the middle of the grid")

    def _of_first_thread(self, trips: sp.Expr) -> sp.Expr:
        """Of the block in the middle of the grid."""
        trips = trips.subs({symbol(f"threadIdx_{a}"): 0 for a in "xyz"})
        g = self.geometry
        of_all = zip("xyz", self.extent, g.block, strict=True)
        middle = {symbol(f"blockIdx_{a}"): whole / (2 * block) for a, whole, block in of_all}
        return sp.simplify(trips.subs(middle)) if trips.free_symbols & set(middle) else trips

    def _gcd(self, stride: sp.Expr, most: int) -> sp.Expr:
        """The greatest common divisor of a stride and a power of two, by comparisons, so that it stays rational."""
        if stride.is_Integer:
            return sp.Integer(math.gcd(int(abs(stride)), most) if stride != 0 else most)
        total, power = sp.Integer(1), 2
        whole = self.b.let("stride", stride, "elements", integer=True)
        while power <= most:
            total = total + sp.Piecewise(
                (power // 2, sp.Eq(whole - power * int_div(whole, sp.Integer(power)), 0)), (0, True)
            )
            power *= 2
        return self.b.let("stride_gcd", total, "", f"greatest common divisor of a stride and {most}", integer=True)

    @staticmethod
    def _wide(stride: sp.Expr) -> bool:
        return not stride.is_Integer

    def _conflicts(self, p: Placed) -> sp.Expr:
        """Passes through the banks of the L1 cache for one request of a warp."""
        words = max(1, p.access.size // 4)
        if not p.access.known:
            return WARP
        nx = self.lx if p.x != 0 else sp.Integer(1)
        ny = self.ly if p.y != 0 else sp.Integer(1)
        gx = self._gcd(p.x * words, BANKS) if p.x != 0 else BANKS
        gy = self._gcd(p.y * words, BANKS) if p.y != 0 else BANKS
        banks_x = sp.Min(nx, int_div(BANKS, gx)) if p.x != 0 else sp.Integer(1)
        banks_y = sp.Min(ny, int_div(BANKS, gy)) if p.y != 0 else sp.Integer(1)
        banks = sp.Min(int_div(BANKS, sp.Min(gx, gy)), banks_x * banks_y)
        passes = ceil_div(nx * ny * words, sp.Max(1, banks))
        return self.b.let("passes", passes, "cycles", "bank conflicts of a request", integer=True)

    def _row_bytes(self, p: Placed) -> sp.Expr:
        """Bytes from the first to the last lane along x; one element if they are far apart."""
        nx = self.lx if p.x != 0 else sp.Integer(1)
        if self._wide(p.x) or abs(int(p.x)) > 8:
            return sp.Integer(p.access.size)
        return ((nx - 1) * abs(int(p.x)) + 1) * p.access.size

    def _rows(self, p: Placed) -> sp.Expr:
        nx = self.lx if p.x != 0 and (self._wide(p.x) or abs(int(p.x)) > 8) else sp.Integer(1)
        return nx * (self.ly if p.y != 0 else sp.Integer(1))

    def _alignment(self, p: Placed, size: int) -> sp.Expr:
        """Alignment in bytes of the rows of a request, at most `size`."""
        element = p.access.size
        step = element * self._gcd(p.y, size // element) if p.y != 0 else sp.Integer(size)
        if p.offset.is_Integer and (int(p.offset) * element) % size:
            step = sp.Min(step, math.gcd(int(abs(p.offset)) * element, size))
        return step

    def touched(self, p: Placed, size: int) -> sp.Expr:
        """Aligned pieces of `size` bytes that one request of a warp touches, on average."""
        if not p.access.known:
            return sp.Float(WARP)
        element = p.access.size
        scattered = self._wide(p.x) or abs(int(p.x)) * element > size
        if scattered:
            return sp.Float(1) * self.lx * (self.ly if p.y != 0 else 1)
        row = ((self.lx if p.x != 0 else 1) - 1) * abs(int(p.x)) * element + element
        ny = self.ly if p.y != 0 else sp.Integer(1)
        if p.y != 0 and not self._wide(p.y) and abs(int(p.y)) * element < size:
            return sp.Max(sp.Float(1), sp.Float(1) * ((ny - 1) * abs(int(p.y)) * element + row) / size)
        pieces = sp.Max(sp.Float(1), sp.Float(1) * (row + size - self._alignment(p, size)) / size) * ny
        return self.b.let("touched", pieces, "", f"pieces of {size} bytes of a request")

    def load_cycles(self, p: Placed) -> sp.Expr:
        if self.accesses.one_thread:
            return sp.Float(1)
        return sp.Max(sp.Float(1) * self._conflicts(p), sp.Float(TAG_CYCLES) * self.touched(p, LINE))

    def store_cycles(self, p: Placed) -> tuple[sp.Expr, sp.Expr]:
        """Cycles, and sectors written in part because rows do not start at a sector."""
        if self.accesses.one_thread:
            return sp.Float(8), sp.Float(0)
        if not p.access.known:
            return sp.Float(WARP * float(STORE_LINE_CYCLES)), sp.Float(0)
        rows, row = self._rows(p), self._row_bytes(p)
        cycles = sp.Max(
            sp.Float(STORE_LINE_CYCLES) * self.touched(p, LINE),
            sp.Float(1) * rows * sp.Min(row, LINE) / STORE_BYTES_A_CYCLE,
        )
        aligned = p.access.size * self._gcd(p.y, SECTOR // p.access.size) if p.y != 0 else sp.Integer(SECTOR)
        return cycles, sp.Float(1) * rows * 2 * (1 - sp.Float(1) * aligned / SECTOR)

    # ---- unique data --------------------------------------------------------------------------

    def clusters(self, placed: Sequence[Placed]) -> list[list[Placed]]:
        """Accesses of one array with the same strides whose offsets are within a few rows of each other."""
        groups: dict[tuple[object, ...], list[Placed]] = {}
        for p in placed:
            groups.setdefault((p.access.array, p.x, p.y, p.z, p.loops, p.access.store), []).append(p)
        out = []
        for members in groups.values():
            planes: dict[sp.Expr, list[Placed]] = {}
            for p in members:
                plane = sp.expand(p.offset).coeff(p.z, 1) if p.z != 0 and self._wide(p.z) else sp.Integer(0)
                planes.setdefault(plane, []).append(p)
            out += list(planes.values())
        return out

    @staticmethod
    def visits(members: Sequence[Placed]) -> int:
        """How many consecutive loops load what a cluster touches."""
        return len({tuple(loop.place for loop in p.access.loops) for p in members if not p.access.store})

    def unique(self, members: list[Placed], threads: tuple[sp.Expr, sp.Expr] | None, *, size: int = SECTOR) -> sp.Expr:
        """Pieces of `size` bytes that the accesses of a cluster touch in a block of `threads` (x, y); without `threads`
        the bytes, in whole pieces, in the grid."""
        p, element = members[0], members[0].access.size
        (nx, ny), nz, apart = self._of_grid(p) if threads is None else (threads, sp.Integer(1), [])
        rows = [sp.expand(m.offset).coeff(p.y, 1) if p.y != 0 and self._wide(p.y) else sp.Integer(0) for m in members]
        more_rows = max(rows) - min(rows) if all(r.is_Integer for r in rows) else sp.Integer(0)
        rests = [
            sp.expand(
                m.offset - r * p.y - (sp.expand(m.offset).coeff(p.z, 1) * p.z if p.z != 0 and self._wide(p.z) else 0)
            )
            for m, r in zip(members, rows, strict=True)
        ]
        small = [r for r in rests if r.is_Integer]
        more_x = (max(small) - min(small)) if small and p.x != 0 and abs(p.x) == 1 else sp.Integer(0)
        dimensions = [
            Dimension(p.x, nx * p.rows + more_x, self._wide(p.x)) if p.x != 0 else None,
            Dimension(p.y, ny + more_rows, self._wide(p.y)) if p.y != 0 else None,
            Dimension(p.z, nz, self._wide(p.z)) if p.z != 0 and nz != 1 else None,
            *(Dimension(stride, n, self._wide(stride)) if stride != 0 else None for stride, n in (*apart, *p.apart)),
        ]
        known = [d for d in dimensions if d is not None]
        run, many, ragged = sp.sympify(element), sp.Float(1), []
        for d in sorted((d for d in known if not d.wide), key=lambda d: abs(int(d.stride))):
            step = abs(int(d.stride)) * element
            if step <= size or (many == 1 and run != element):
                run = run + (d.count - 1) * step
            else:
                many = many * d.count
        for d in (d for d in known if d.wide):
            many = many * d.count
            ragged.append(d.stride)
        if threads is None:
            return sp.Float(1) * many * sp.Max(size, run)
        edge: sp.Expr = sp.Float(0)
        if ragged and run != element:
            aligned = self._gcd(ragged[0], size // element)
            edge = sp.Piecewise((sp.Float(0.5), aligned * element < size), (sp.Float(0), True))
        return sp.Float(1) * many * sp.Max(sp.Float(1), sp.Float(1) * run / size + edge)

    def _of_grid(self, p: Placed) -> tuple[list[sp.Expr], sp.Expr, list[tuple[sp.Expr, sp.Expr]]]:
        """Threads of a row along x and y, planes, and the stride and the number of blocks that continue no row."""
        g, threads, apart = self.geometry, [], []
        for own, whole, block, blocks in zip(p.blocks, self.extent, g.block, g.grid, strict=False):
            threads.append(whole if own is None else sp.Min(block, whole))
            if own is not None:
                apart.append((own, blocks))
        return threads, self.extent[2], apart

    # ---- the sum ------------------------------------------------------------------------------
    def instructions(self, counted: Instructions | None) -> sp.Expr:
        """Instructions of a warp: as compiled by nvcc, else the loads, stores and operations of the text.

        nvcc's output gives the number per memory access, and the text how often accesses run. A loop that nvcc unrolled
        completely counts as part of the enclosing loop; for a remaining loop without memory accesses, the text's
        operations count.
        """
        if counted is None:
            return sum((p.times for p in self.placed), self._operations(self.accesses.work))
        total: sp.Expr = sp.Float(counted.once)
        for p in self.placed:
            depth = min(len(p.access.loops), len(counted.loops))
            if depth:
                total = total + p.times * counted.loops[depth - 1]
        loaded = {p.access.loops[:n] for p in self.placed for n in range(len(p.access.loops) + 1)}
        left = [w for w in self.accesses.work if w.loops and w.loops not in loaded]
        return total + self._operations([w for w in left if not self._is_unrolled(w.loops, len(counted.loops))])

    def _is_unrolled(self, loops: Sequence[Loop], depth: int) -> bool:
        """Whether nvcc unrolled the innermost of these loops, if its output has `depth` nested loops. It unrolls loops
        with a known number of iterations, from the inside out."""
        return len(loops) > depth and bool(loops[-1].trips.subs(self.sizes).is_Integer)

    def _operations(self, work: Sequence[Work]) -> sp.Expr:
        total: sp.Expr = sp.Float(0)
        for one in work:
            times: sp.Expr = sp.Float(one.operations)
            for number in self.trips_of(one.loops):
                times = times * number
            total = total + times
        return total
