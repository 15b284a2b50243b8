"""What the loads and stores of a kernel move, from their address expressions: cycles of the L1 cache, sectors, lines,
unique data of a block and of the grid.

Strides are sorted into small constants and wide ones (those that hold a size) when the program is made, so that what is
left for run time is arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from dagc.cuda.accesses import Access, Accesses, Loop, Work, symbol
from dagc.cuda.ptx import Instructions
from dagc.perf.geometry import WARP, Geometry, ceil_div, int_div

SECTOR, LINE, BANKS = 32, 128, 32  # bytes, bytes, banks of 4 bytes
TAG_CYCLES = sp.Rational(44, 100)  # of the L1 cache, for each line that a load touches
STORE_LINE_CYCLES = sp.Rational(7, 2)  # for each line that a store touches
STORE_BYTES_A_CYCLE = 16


@dataclass(frozen=True, slots=True)
class Dimension:
    """A stride in elements over so many steps. `wide`: it holds a size."""

    stride: sp.Expr
    count: sp.Expr
    wide: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """An access with its strides: per threadIdx.x, .y, per plane of blocks (blockIdx.z), and per iteration."""

    access: Access
    x: sp.Expr
    y: sp.Expr
    z: sp.Expr
    loops: tuple[tuple[sp.Expr, sp.Expr], ...]  # stride, trips
    offset: sp.Expr
    times: sp.Expr  # executions by a thread


class Traffic:
    """Of a launch whose geometry is placed. Intermediate results become assignments of the geometry's program."""

    def __init__(self, geometry: Geometry, accesses: Accesses) -> None:
        self.geometry, self.accesses = geometry, accesses
        self.b, self.sizes, self.extent = geometry.b, geometry.sizes, geometry.extent
        self.lx, self.ly = geometry.lx, geometry.ly
        # What is rare (weight 0) moves nothing worth counting.
        self.placed = [self._placed(a) for a in accesses.accesses if not a.shared and a.weight > 0]

    def _placed(self, access: Access) -> Placed:
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
            return Placed(access, wide, wide, sp.Integer(0), (), sp.Integer(0), times)
        # What is loaded and the same for all threads shifts addresses, and hardly matters.
        address = sp.expand(address.subs({s: 0 for s in address.free_symbols if s.name.startswith("uniform_")}))
        rest = address.subs(dict.fromkeys((*t.values(), *g.values(), *(lo.counter for lo in access.loops)), 0))
        return Placed(
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
        average = sp.simplify(trips.subs(zero).subs(middle)) if trips.free_symbols & set(middle) else trips.subs(zero)
        return self.b.let(
            "trips",
            sp.Float(1) * average if not average.is_Integer else sp.Float(average),
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
            return sp.Integer(WARP)
        nx = self.lx if p.x != 0 else sp.Integer(1)
        ny = self.ly if p.y != 0 else sp.Integer(1)
        gx = self._gcd(p.x * words, BANKS) if p.x != 0 else sp.Integer(BANKS)
        gy = self._gcd(p.y * words, BANKS) if p.y != 0 else sp.Integer(BANKS)
        banks_x = sp.Min(nx, int_div(sp.Integer(BANKS), gx)) if p.x != 0 else sp.Integer(1)
        banks_y = sp.Min(ny, int_div(sp.Integer(BANKS), gy)) if p.y != 0 else sp.Integer(1)
        banks = sp.Min(int_div(sp.Integer(BANKS), sp.Min(gx, gy)), banks_x * banks_y)
        return self.b.let(
            "passes",
            ceil_div(nx * ny * words, sp.Max(1, banks)),
            "cycles",
            "bank conflicts of a request",
            integer=True,
        )

    def _row_bytes(self, p: Placed) -> sp.Expr:
        """Bytes from the first to the last lane along x; one element where they lie far apart."""
        nx = self.lx if p.x != 0 else sp.Integer(1)
        if self._wide(p.x) or abs(int(p.x)) > 8:
            return sp.Integer(p.access.size)
        return ((nx - 1) * abs(int(p.x)) + 1) * p.access.size

    def _rows(self, p: Placed) -> sp.Expr:
        nx = self.lx if p.x != 0 and (self._wide(p.x) or abs(int(p.x)) > 8) else sp.Integer(1)
        return nx * (self.ly if p.y != 0 else sp.Integer(1))

    def _alignment(self, p: Placed, size: int) -> sp.Expr:
        """To how many bytes the rows of a request are aligned, at most `size`."""
        element = p.access.size
        found = element * self._gcd(p.y, size // element) if p.y != 0 else sp.Integer(size)
        if p.offset.is_Integer and (int(p.offset) * element) % size:
            found = sp.Min(found, math.gcd(int(abs(p.offset)) * element, size))
        return found

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
        return self.b.let(
            "touched",
            sp.Max(sp.Float(1), sp.Float(1) * (row + size - self._alignment(p, size)) / size) * ny,
            "",
            f"pieces of {size} bytes of a request",
        )

    def load_cycles(self, p: Placed) -> sp.Expr:
        if self.accesses.one_thread:
            return sp.Float(1)
        return sp.Max(sp.Float(1) * self._conflicts(p), sp.Float(TAG_CYCLES) * self.touched(p, LINE))

    def store_cycles(self, p: Placed) -> tuple[sp.Expr, sp.Expr]:
        """Cycles, and sectors that are written in part because rows do not begin at a sector."""
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
        """Accesses of one array with the same strides whose offsets lie within a few rows of each other."""
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
        """How many loops, one after the other, load what a cluster touches."""
        return len({tuple(loop.place for loop in p.access.loops) for p in members if not p.access.store})

    def unique(
        self, members: list[Placed], nx: sp.Expr, ny: sp.Expr, nz: sp.Expr, bytes_: bool, size: int = SECTOR
    ) -> sp.Expr:
        """Pieces of `size` bytes (or bytes, in whole pieces) that the accesses of a cluster touch over `nx` x `ny`
        threads and `nz` planes."""
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
            Dimension(p.x, nx + more_x, self._wide(p.x)) if p.x != 0 else None,
            Dimension(p.y, ny + more_rows, self._wide(p.y)) if p.y != 0 else None,
            Dimension(p.z, nz, self._wide(p.z)) if p.z != 0 and nz != 1 else None,
            *(Dimension(stride, trips, self._wide(stride)) if stride != 0 else None for stride, trips in p.loops),
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
        if bytes_:
            return sp.Float(1) * many * sp.Max(size, run)
        edge: sp.Expr = sp.Float(0)
        if ragged and run != element:
            aligned = self._gcd(ragged[0], size // element)
            edge = sp.Piecewise((sp.Float(0.5), aligned * element < size), (sp.Float(0), True))
        return sp.Float(1) * many * sp.Max(sp.Float(1), sp.Float(1) * run / size + edge)

    # ---- the sum ------------------------------------------------------------------------------
    def instructions(self, counted: Instructions | None) -> sp.Expr:
        """Of a warp: as nvcc compiled them, else the loads, stores and operations of the text.

        nvcc's output says how many there are for each that goes to memory; the text, how often these run. A loop that
        nvcc unrolled to the end counts as the one around it; in one that it left and that goes to no memory the text's
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
        """Did nvcc unroll the innermost of these loops, where what it made is `depth` loops deep? It does so where it
        knows the number of iterations, and begins inside."""
        return len(loops) > depth and bool(loops[-1].trips.subs(self.sizes).is_Integer)

    def _operations(self, work: Sequence[Work]) -> sp.Expr:
        total: sp.Expr = sp.Float(0)
        for one in work:
            times: sp.Expr = sp.Float(one.operations)
            for loop in one.loops:
                times = times * self._average(loop.trips.subs(self.sizes))
            total = total + times
        return total
