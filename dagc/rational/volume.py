"""The volume model: how long a launch takes, from the data that its address expressions move.

After the idea of Ernst et al., arXiv 2204.14242 (volumes from address expressions, limits from the hardware), with the
terms that an H200 showed to matter. All is counted in cycles of a multiprocessor (SM):

    time = shape * (max(issue + loads + stores + misses + L2 + HBM + latency, starts) + launch + turnover)

issue      instructions of the busiest SM, four schedulers
loads      cycles of the L1 cache for each load of a warp: bank conflicts as in shared memory, or cache lines touched
stores     cycles of the L1 cache for each store of a warp: lines, bytes, and sectors written in part
misses     sectors that a block brings into the L1 cache: unique ones, or more where its working set is too large
L2, HBM    unique sectors of all blocks, unique bytes of the grid, over the bandwidth
latency    what one warp waits for, load after load, times the waves of blocks
starts     the whole GPU starts about one block a cycle
turnover   a block's place is empty while its successor starts, the longer the more warps it has
shape      a mild preference for blocks of middle size, fitted

Sums instead of the maximum that a roofline takes: on the oracle (benchmarks/results) a sum ranks better, since nothing
overlaps perfectly, and the program stays rational. The constants (`CALIBRATION`) were fitted once to that oracle;
docs/tune.md gives the error on programs that the fit had not seen.

Strides are sorted into small constants and wide ones (those that hold a size) when the program is made, so that what is
left for run time is arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from dagc.ir import KernelOp, Program, Region
from dagc.launching import kernel_of
from dagc.rational.access import Access, Accesses, symbol
from dagc.rational.model_input import read_accesses, to_sympy
from dagc.rational.program import Assign, Kind, Number, Parameter, RationalProgram
from dagc.sym import Const, substitute

SECTOR, LINE, WARP, BANKS = 32, 128, 32, 32
TAG_CYCLES = sp.Rational(44, 100)  # of the L1 cache, for each line that a load touches
STORE_LINE_CYCLES = sp.Rational(7, 2)  # for each line that a store touches
STORE_BYTES_A_CYCLE = 16

# name -> (value, unit, meaning). Fitted to the oracle of an H200: benchmarks/tune/calibrate.py.
CALIBRATION: dict[str, tuple[float, str, str]] = {
    "lat_hit": (100.985, "cycles", "wait for a load that hits the L1 cache, or for a store, as one warp sees it"),
    "lat_miss": (24.3572, "cycles", "more, for each sector of a load that misses"),
    "c_issue": (0.3, "cycles", "a scheduler's time for an instruction that was counted"),
    "c_load": (1.25, "", "cycles of the L1 cache over those that were counted, loads"),
    "c_store": (0.8, "", "the same, stores"),
    "c_partial": (1.9237, "cycles", "more, for a sector that is written in part"),
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
HARDWARE = {
    "multiprocessors": ("", "SMs of the GPU"),
    "max_threads_per_multiprocessor": ("threads", "resident on an SM"),
    "max_blocks_per_multiprocessor": ("blocks", "resident on an SM"),
    "registers_per_multiprocessor": ("registers", "of 32 bits"),
    "l1_bytes": ("bytes", "of the L1 cache that loads can use"),
}


@dataclass(frozen=True, slots=True)
class _Dimension:
    """A stride in elements over so many steps. `wide`: it holds a size."""

    stride: sp.Expr
    count: sp.Expr
    wide: bool


@dataclass(frozen=True, slots=True)
class _Placed:
    """An access with its strides: per threadIdx.x, .y, per plane of blocks (blockIdx.z), and per iteration."""

    access: Access
    x: sp.Expr
    y: sp.Expr
    z: sp.Expr
    loops: tuple[tuple[sp.Expr, sp.Expr], ...]  # stride, trips
    offset: sp.Expr
    times: sp.Expr  # executions by a thread


class _Builder:
    """Collects assignments; equal expressions are assigned once."""

    def __init__(self) -> None:
        self.body: list[Assign] = []
        self._names: dict[sp.Expr, sp.Symbol] = {}

    def let(self, name: str, value: sp.Expr, unit: str = "", meaning: str = "", *, integer: bool = False) -> sp.Expr:
        value = sp.sympify(value)
        if value.is_Atom:
            return value
        if value not in self._names:
            made = symbol(name) if integer else sp.Symbol(name, real=True)
            known = {a.name for a in self.body}
            number = 1
            while made.name in known:
                number += 1
                made = symbol(f"{name}_{number}") if integer else sp.Symbol(f"{name}_{number}", real=True)
            kind = Number.INTEGER if integer else Number.REAL
            self.body.append(Assign(made.name, value, kind, unit, meaning))
            self._names[value] = made
        return self._names[value]


def _int_div(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return sp.floor(a / b)


def _ceil_div(a: sp.Expr, b: sp.Expr) -> sp.Expr:
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


def volume_program(program: Program, op: KernelOp, accesses: Accesses | None = None) -> RationalProgram:
    """The time of a launch of `op` in cycles of an SM, as a rational program in the program's scalars (data), the
    limits of the GPU and the calibration (hardware), and the block and the registers of a thread (program parameters).

    Raises NotUnderstood where the kernel's text cannot be read.
    """
    found = accesses if accesses is not None else read_accesses(program, op)
    return _Volume(program, op, found).build()


class _Volume:
    def __init__(self, program: Program, op: KernelOp, accesses: Accesses) -> None:
        self.b = _Builder()
        self.accesses = accesses
        self.kernel, self.impl = kernel_of(program, op)
        self.sizes = sizes_of(program, op)
        self.bx, self.by = symbol("blockDim_x"), symbol("blockDim_y")
        self.extent, self.grid = self._grid(program, op)

    # ---- shape of the launch ------------------------------------------------------------------

    def _grid(self, program: Program, op: KernelOp) -> tuple[list[sp.Expr], list[sp.Expr]]:
        """Threads that have work in each dimension (the grid for blocks of one thread), and blocks."""
        from dagc.sym import Var

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

    def build(self) -> RationalProgram:
        b, one = self.b, self.accesses.one_thread
        bx = self.bx
        by = self.by if self.impl.launch is not None and len(self.impl.launch.block) > 1 else sp.Integer(1)
        self.by = by
        ex, ey, ez = (
            b.let(f"extent_{a}", e, "threads", f"with work along {a}", integer=True)
            for a, e in zip("xyz", self.extent, strict=True)
        )
        self.extent = [ex, ey, ez]
        threads = b.let("threads", bx * by, "threads", "of a block", integer=True)
        warps = b.let("warps", _ceil_div(threads, WARP), "warps", "of a block", integer=True)
        blocks = b.let("blocks", self.grid[0] * self.grid[1] * self.grid[2], "blocks", "of the grid", integer=True)
        self.lx = b.let("lanes_x", sp.Min(bx, WARP), "threads", "of a warp along x", integer=True)
        self.ly = (
            b.let(
                "lanes_y", sp.Min(by, _int_div(sp.Integer(WARP), self.lx)), "threads", "of a warp along y", integer=True
            )
            if by != 1
            else sp.Integer(1)
        )
        active = blocks if one else self._active_warps(ex, ey, ez, threads)
        active = b.let("active_warps", active, "warps", "that have work", integer=True)
        sms = symbol("multiprocessors")
        resident = self._resident(threads, warps)
        busiest = b.let("busiest", _ceil_div(blocks, sms), "blocks", "on the busiest SM", integer=True)
        together = b.let("together", sp.Min(resident, busiest) * warps, "warps", "resident on it", integer=True)
        on_sm = b.let(
            "warps_sm", sp.Float(1) * busiest * active / blocks, "warps", "with work, on the busiest SM, in all"
        )
        return self._time(threads, warps, blocks, active, resident, busiest, together, on_sm)

    def _active_warps(self, ex: sp.Expr, ey: sp.Expr, ez: sp.Expr, threads: sp.Expr) -> sp.Expr:
        bx, by, b = self.bx, self.by, self.b
        whole = b.let("whole_x", _int_div(ex, bx), integer=True)
        wide = (whole * _int_div(bx, sp.Integer(WARP)) + _ceil_div(ex - whole * bx, sp.Integer(WARP))) * ey * ez
        if by == 1:
            narrow = _ceil_div(ex, bx) * ey * ez
        else:
            rows = b.let("whole_y", _int_div(ey, by), integer=True)
            narrow = (
                _ceil_div(ex, bx)
                * (
                    rows * sp.Max(1, _int_div(threads, sp.Integer(WARP)))
                    + _ceil_div((ey - rows * by) * bx, sp.Integer(WARP))
                )
                * ez
            )
        return sp.Piecewise((wide, bx >= WARP), (narrow, True))

    def _resident(self, threads: sp.Expr, warps: sp.Expr) -> sp.Expr:
        """Blocks on an SM at a time, by threads, blocks and registers."""
        registers = symbol("registers")
        allocated = self.b.let(
            "warp_registers",
            256 * _ceil_div(registers * WARP, sp.Integer(256)),
            "registers",
            "a warp is given",
            integer=True,
        )
        by_threads = _int_div(symbol("max_threads_per_multiprocessor"), WARP * warps)
        by_registers = _int_div(symbol("registers_per_multiprocessor"), allocated * warps)
        most = sp.Min(symbol("max_blocks_per_multiprocessor"), by_threads, by_registers)
        return self.b.let("resident", sp.Max(1, most), "blocks", "an SM holds at a time", integer=True)

    # ---- accesses -----------------------------------------------------------------------------

    def _placed(self, access: Access) -> _Placed:
        t = {a: symbol(f"threadIdx_{a}") for a in "xyz"}
        g = {a: symbol(f"blockIdx_{a}") for a in "xyz"}
        times, loops = sp.Float(access.weight), []
        address = access.address.subs(self.sizes)
        for loop in access.loops:
            trips = self._average(loop.trips.subs(self.sizes))
            loops.append((sp.expand(address).coeff(loop.counter, 1) * loop.step, trips))
            times = times * trips
        if not access.known:
            wide = symbol("blockDim_x") * 0 + 33
            return _Placed(access, wide, wide, sp.Integer(0), (), sp.Integer(0), times)
        # What is loaded and the same for all threads shifts addresses, and hardly matters.
        address = sp.expand(address.subs({s: 0 for s in address.free_symbols if s.name.startswith("uniform_")}))
        rest = address.subs(dict.fromkeys((*t.values(), *g.values(), *(lo.counter for lo in access.loops)), 0))
        return _Placed(
            access,
            address.coeff(t["x"], 1),
            address.coeff(t["y"], 1),
            address.coeff(g["z"], 1),
            tuple(loops),
            rest,
            times,
        )

    def _average(self, trips: sp.Expr) -> sp.Expr:
        """Trips of the thread in the middle of the grid."""
        zero = {symbol(f"threadIdx_{a}"): 0 for a in "xyz"}
        middle = {symbol(f"blockIdx_{a}"): self.extent[i] / (2 * symbol(f"blockDim_{a}")) for i, a in enumerate("xyz")}
        found = sp.simplify(trips.subs(zero).subs(middle)) if trips.free_symbols & set(middle) else trips.subs(zero)
        return self.b.let(
            "trips",
            sp.Float(1) * found if not found.is_Integer else sp.Float(found),
            "",
            "iterations of a loop, in the middle of the grid",
        )

    def _gcd(self, stride: sp.Expr, most: int) -> sp.Expr:
        """The greatest common divisor of a stride and a power of two: by comparison, so that it stays rational."""
        if stride.is_Integer:
            return sp.Integer(math.gcd(int(abs(stride)), most) if stride != 0 else most)
        total, power = sp.Integer(1), 2
        whole = self.b.let("stride", stride, "elements", integer=True)
        while power <= most:
            total = total + sp.Piecewise(
                (power // 2, sp.Eq(whole - power * _int_div(whole, sp.Integer(power)), 0)), (0, True)
            )
            power *= 2
        return self.b.let("stride_gcd", total, "", f"greatest common divisor of a stride and {most}", integer=True)

    @staticmethod
    def _wide(stride: sp.Expr) -> bool:
        return not stride.is_Integer

    def _conflicts(self, p: _Placed) -> sp.Expr:
        """Passes through the banks of the L1 cache for one request of a warp."""
        words = max(1, p.access.size // 4)
        if not p.access.known:
            return sp.Integer(WARP)
        nx = self.lx if p.x != 0 else sp.Integer(1)
        ny = self.ly if p.y != 0 else sp.Integer(1)
        gx = self._gcd(p.x * words, BANKS) if p.x != 0 else sp.Integer(BANKS)
        gy = self._gcd(p.y * words, BANKS) if p.y != 0 else sp.Integer(BANKS)
        banks_x = sp.Min(nx, _int_div(sp.Integer(BANKS), gx)) if p.x != 0 else sp.Integer(1)
        banks_y = sp.Min(ny, _int_div(sp.Integer(BANKS), gy)) if p.y != 0 else sp.Integer(1)
        banks = sp.Min(_int_div(sp.Integer(BANKS), sp.Min(gx, gy)), banks_x * banks_y)
        return self.b.let(
            "passes",
            _ceil_div(nx * ny * words, sp.Max(1, banks)),
            "cycles",
            "bank conflicts of a request",
            integer=True,
        )

    def _row_bytes(self, p: _Placed) -> sp.Expr:
        """Bytes from the first to the last lane along x; one element where they lie far apart."""
        nx = self.lx if p.x != 0 else sp.Integer(1)
        if self._wide(p.x) or abs(int(p.x)) > 8:
            return sp.Integer(p.access.size)
        return ((nx - 1) * abs(int(p.x)) + 1) * p.access.size

    def _rows(self, p: _Placed) -> sp.Expr:
        nx = self.lx if p.x != 0 and (self._wide(p.x) or abs(int(p.x)) > 8) else sp.Integer(1)
        return nx * (self.ly if p.y != 0 else sp.Integer(1))

    def _alignment(self, p: _Placed, size: int) -> sp.Expr:
        """To how many bytes the rows of a request are aligned, at most `size`."""
        element = p.access.size
        found = element * self._gcd(p.y, size // element) if p.y != 0 else sp.Integer(size)
        if p.offset.is_Integer and (int(p.offset) * element) % size:
            found = sp.Min(found, math.gcd(int(abs(p.offset)) * element, size))
        return found

    def _touched(self, p: _Placed, size: int) -> sp.Expr:
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
        return self.b.let(
            "touched",
            sp.Max(sp.Float(1), sp.Float(1) * (row + size - self._alignment(p, size)) / size) * ny,
            "",
            f"pieces of {size} bytes of a request",
        )

    def _load_cycles(self, p: _Placed) -> sp.Expr:
        if self.accesses.one_thread:
            return sp.Float(1)
        return sp.Max(sp.Float(1) * self._conflicts(p), sp.Float(TAG_CYCLES) * self._touched(p, LINE))

    def _store_cycles(self, p: _Placed) -> tuple[sp.Expr, sp.Expr]:
        """Cycles, and sectors that are written in part because rows do not begin at a sector."""
        if self.accesses.one_thread:
            return sp.Float(8), sp.Float(0)
        if not p.access.known:
            return sp.Float(WARP * float(STORE_LINE_CYCLES)), sp.Float(0)
        rows, row = self._rows(p), self._row_bytes(p)
        cycles = sp.Max(
            sp.Float(STORE_LINE_CYCLES) * self._touched(p, LINE),
            sp.Float(1) * rows * sp.Min(row, LINE) / STORE_BYTES_A_CYCLE,
        )
        aligned = p.access.size * self._gcd(p.y, SECTOR // p.access.size) if p.y != 0 else sp.Integer(SECTOR)
        return cycles, sp.Float(1) * rows * 2 * (1 - sp.Float(1) * aligned / SECTOR)

    # ---- unique data --------------------------------------------------------------------------

    def _clusters(self, placed: Sequence[_Placed]) -> list[list[_Placed]]:
        """Accesses of one array with the same strides whose offsets lie within a few rows of each other."""
        groups: dict[tuple[object, ...], list[_Placed]] = {}
        for p in placed:
            groups.setdefault((p.access.array, p.x, p.y, p.z, p.loops, p.access.store), []).append(p)
        out = []
        for members in groups.values():
            planes: dict[sp.Expr, list[_Placed]] = {}
            for p in members:
                plane = sp.expand(p.offset).coeff(p.z, 1) if p.z != 0 and self._wide(p.z) else sp.Integer(0)
                planes.setdefault(plane, []).append(p)
            out += list(planes.values())
        return out

    def _unique(self, members: list[_Placed], nx: sp.Expr, ny: sp.Expr, nz: sp.Expr, bytes_: bool) -> sp.Expr:
        """Sectors (or bytes) that the accesses of a cluster touch over `nx` x `ny` threads and `nz` planes."""
        p, element = members[0], members[0].access.size
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
            _Dimension(p.x, nx + more_x, self._wide(p.x)) if p.x != 0 else None,
            _Dimension(p.y, ny + more_rows, self._wide(p.y)) if p.y != 0 else None,
            _Dimension(p.z, nz, self._wide(p.z)) if p.z != 0 and nz != 1 else None,
            *(_Dimension(stride, trips, self._wide(stride)) if stride != 0 else None for stride, trips in p.loops),
        ]
        known = [d for d in dimensions if d is not None]
        run, many, ragged = sp.sympify(element), sp.Float(1), []
        for d in sorted((d for d in known if not d.wide), key=lambda d: abs(int(d.stride))):
            step = abs(int(d.stride)) * element
            if step <= SECTOR or (many == 1 and run != element):
                run = run + (d.count - 1) * step
            else:
                many = many * d.count
        for d in (d for d in known if d.wide):
            many = many * d.count
            ragged.append(d.stride)
        if bytes_:
            return sp.Float(1) * many * sp.Max(SECTOR, run)
        edge: sp.Expr = sp.Float(0)
        if ragged and run != element:
            aligned = self._gcd(ragged[0], SECTOR // element)
            edge = sp.Piecewise((sp.Float(0.5), aligned * element < SECTOR), (sp.Float(0), True))
        return sp.Float(1) * many * sp.Max(sp.Float(1), sp.Float(1) * run / SECTOR + edge)

    # ---- the sum ------------------------------------------------------------------------------

    def _time(
        self, threads: sp.Expr, warps: sp.Expr, blocks: sp.Expr, active: sp.Expr, resident: sp.Expr, busiest: sp.Expr,
        together: sp.Expr, on_sm: sp.Expr,
    ) -> RationalProgram:  # fmt: skip
        b, one = self.b, self.accesses.one_thread
        c = {name: sp.Symbol(name, real=True) for name in CALIBRATION}
        placed = [self._placed(a) for a in self.accesses.accesses if not a.shared]
        requests = b.let("requests", sum((p.times for p in placed), sp.Float(0)), "", "loads and stores of a warp")
        operations = b.let("operations", self._operations(), "", "arithmetic of a warp")
        loads = b.let(
            "load_cycles",
            sum((p.times * self._load_cycles(p) for p in placed if not p.access.store), sp.Float(0)),
            "cycles",
            "of the L1 cache for a warp's loads",
        )
        stores = [(p, *self._store_cycles(p)) for p in placed if p.access.store]
        store_cycles = b.let(
            "store_cycles",
            sum((p.times * n for p, n, _ in stores), sp.Float(0)),
            "cycles",
            "of the L1 cache for a warp's stores",
        )
        partial = b.let(
            "partial_sectors", sum((p.times * n for p, _, n in stores), sp.Float(0)), "", "that a warp writes in part"
        )
        sectors = b.let(
            "sectors",
            sum((p.times * (sp.Float(1) if one else self._touched(p, SECTOR)) for p in placed), sp.Float(0)),
            "",
            "that a warp asks for",
        )
        lines = b.let(
            "lines",
            sum((self._touched(p, LINE) for p in placed if p.loops and not p.access.store), sp.Float(0)),
            "",
            "in use by a warp in an iteration",
        )
        nx, ny = (
            (sp.Integer(1), sp.Integer(1))
            if one
            else (sp.Min(self.bx, self.extent[0]), sp.Min(self.by, self.extent[1]))
        )
        clusters = self._clusters(placed)
        unique = b.let(
            "block_sectors",
            sum((self._unique(m, nx, ny, sp.Integer(1), False) for m in clusters), sp.Float(0)),
            "",
            "unique ones of a block",
        )
        whole = (sp.Integer(1), sp.Integer(1), sp.Integer(1)) if one else tuple(self.extent)
        memory = b.let(
            "memory_bytes",
            sum((self._unique(m, whole[0], whole[1], whole[2], True) for m in clusters), sp.Float(0)),
            "bytes",
            "unique ones of the grid",
        )
        misses = b.let(
            "miss_share",
            sp.Min(sp.Float(1), unique * blocks / sp.Max(sp.Float(1), sectors * active)),
            "",
            "of the sectors that are asked for",
        )
        waves = b.let("waves", sp.Max(sp.Float(1), sp.Float(1) * busiest / resident), "", "of blocks on an SM")
        thrash = b.let(
            "thrash",
            sp.Max(sp.Float(0), together * lines * LINE / symbol("l1_bytes") - 1),
            "",
            "working set beyond the L1 cache, in its sizes",
        )
        schedulers = sp.Min(4, sp.Max(sp.Float(1), sp.Min(on_sm, together)))
        terms = {
            "issue": (on_sm * (requests + operations) * c["c_issue"] / schedulers, "instructions"),
            "loads": (on_sm * loads * c["c_load"], "the L1 cache, loads"),
            "stores": (on_sm * (store_cycles * c["c_store"] + partial * c["c_partial"]), "the L1 cache, stores"),
            "misses": (unique * busiest * c["c_sector"] * (1 + c["c_thrash"] * thrash), "from the L2 cache to an SM"),
            "l2": (unique * blocks * c["c_l2"], "the L2 cache"),
            "hbm": (memory * c["c_hbm"], "memory"),
            "latency": (waves * requests * (c["lat_hit"] + c["lat_miss"] * misses), "latency"),
        }
        for name, (value, meaning) in terms.items():
            b.body.append(Assign(f"t_{name}", sp.sympify(value), Number.REAL, "cycles", meaning))
        starts = b.let("t_starts", blocks * c["c_start"], "cycles", "to start the blocks")
        turnover = b.let(
            "t_turnover",
            sp.Float(1) * busiest / resident * (warps * c["turn_warp"] + c["turn_block"]),
            "cycles",
            "places empty between blocks",
        )
        doublings = symbol("log2_threads")
        shape = b.let(
            "shape_factor",
            1 + c["shape"] * (doublings - c["shape_best"]) ** 2,
            "",
            "preference for blocks of middle size",
        )
        total = sum((sp.Symbol(f"t_{n}", real=True) for n in terms), sp.Float(0))
        b.let("time", shape * (sp.Max(total, starts) + c["launch"] + turnover), "cycles", "of the launch")
        return RationalProgram(
            f"{self.kernel.name}_volume", self._parameters(), tuple(b.body), "time", "cycles",
            "volumes from address expressions (after Ernst et al., arXiv 2204.14242), calibrated on an H200",
        )  # fmt: skip

    def _operations(self) -> sp.Expr:
        total: sp.Expr = sp.Float(0)
        for work in self.accesses.work:
            times: sp.Expr = sp.Float(work.operations)
            for loop in work.loops:
                times = times * self._average(loop.trips.subs(self.sizes))
            total = total + times
        return total

    def _parameters(self) -> tuple[Parameter, ...]:
        names = {s.name for a in self.b.body for s in a.value.free_symbols} - {a.name for a in self.b.body}
        out = []
        for name in sorted(names):
            if name in CALIBRATION:
                _, unit, meaning = CALIBRATION[name]
                out.append(Parameter(name, Kind.HARDWARE, Number.REAL, unit, meaning))
            elif name in HARDWARE:
                out.append(Parameter(name, Kind.HARDWARE, Number.INTEGER, *HARDWARE[name]))
            elif name in ("blockDim_x", "blockDim_y", "blockDim_z", "registers", "log2_threads"):
                number = Number.REAL if name == "log2_threads" else Number.INTEGER
                out.append(Parameter(name, Kind.PROGRAM, number, "", _MEANINGS[name]))
            else:
                out.append(Parameter(name, Kind.DATA, Number.INTEGER, "", "size"))
        return tuple(out)


_MEANINGS = {
    "blockDim_x": "threads of a block along x", "blockDim_y": "threads of a block along y",
    "blockDim_z": "threads of a block along z", "registers": "of a thread", "log2_threads": "of a block",
}  # fmt: skip


def launchable_program(program: Program, op: KernelOp) -> RationalProgram:
    """1 where the grid has blocks and is within CUDA's limits, else 0. Parameters as in `volume_program`."""
    volume = _Volume(program, op, Accesses((), ()))
    conditions = []
    for size, limit in zip(volume.grid, (2**31 - 1, 65535, 65535), strict=True):
        if size != 1:
            conditions += [size >= 1, size <= limit]
    good = sp.Piecewise((1, sp.And(*conditions)), (0, True)) if conditions else sp.Integer(1)
    names = sorted(s.name for s in good.free_symbols)
    parameters = tuple(
        Parameter(n, Kind.PROGRAM if n in _MEANINGS else Kind.DATA, Number.INTEGER, "", _MEANINGS.get(n, "size"))
        for n in names
    )
    return RationalProgram(
        f"{volume.kernel.name}_launchable", parameters, (Assign("good", good, Number.INTEGER),), "good", "",
        "CUDA C++ Programming Guide, technical specifications",
    )  # fmt: skip


def explain_terms(values: Mapping[str, float]) -> str:
    """The name of the largest term of the sum: what limits the launch."""
    overlapped = {n: v for n, v in values.items() if n.startswith("t_") and n not in ("t_starts", "t_turnover")}
    if not overlapped:
        return ""
    if values.get("t_starts", 0.0) > sum(overlapped.values()):
        return "starts"
    return max(overlapped, key=lambda n: overlapped[n]).removeprefix("t_")
