"""Data moved by the loads and stores of a kernel, from their address expressions: cycles of the L1 cache, sectors,
lines, unique data of a block and of the grid, and the chain of loads that a warp waits for.

An address is a sum of strides: of the threads along x, y and z, of blocks, of iterations. Constant strides below the
size of a piece (a sector, a line) make a row; wide ones, which contain a size, give as many rows as they have steps.
`j / c` and `j % c` split the threads along an axis in groups of c. Strides are classified when the program is
generated, so that only arithmetic is left for run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy as sp

from dagc.cuda.accesses import Accesses, Work
from dagc.cuda.expressions import (
    EVERYTHING,
    CountedLoop,
    Guard,
    MemoryAccess,
    indices_of,
    linear,
    nearby,
    only_scattered,
    symbol,
)
from dagc.cuda.ptx import Instructions
from dagc.ir.plan import AXES
from dagc.perf.algebra import ceil_div, int_div, maximum, minimum
from dagc.perf.geometry import TUNABLE, Geometry
from dagc.perf.guards import WARP, Reach, reach_of

SECTOR, LINE, BANKS = 32, 128, 32  # bytes, bytes, banks of 4 bytes
TAG_CYCLES = sp.Rational(44, 100)  # of the L1 cache, for each line that a load touches
MOST_UNROLLED = 64  # iterations of a loop that nvcc unrolls completely
UNROLLED = 4  # iterations whose loads nvcc interleaves if they are independent
# Of atomic operations, as benchmarks/gpu/contention.cu measures them on an H100: in passes through the banks of shared
# memory, a request that adds integers, one that adds floating-point numbers, and each lane of it at one address; beside
# an addition of a floating-point number at one address of global memory, one of an integer, and a sector of a request.
SHARED_INTEGERS, SHARED_FLOATS, SHARED_FLOAT = 4.2, 7.3, 3.5
INTEGER, ATOMIC_SECTOR = 0.42, 0.35
MEETING = sp.Rational(1, 6)  # of the other lanes of a warp, at one address, where atomic operations go to loaded ones
MERGED = 4  # words of shared memory that one load takes, where all lanes load the same
MOST_STREAMS = 10  # stores of a thread, beyond which more do not matter: then all shared sectors are completed
SCATTERED = symbol("scattered")  # the stride of an index that is loaded
ONE, ZERO = sp.Integer(1), sp.Integer(0)


@dataclass(frozen=True, slots=True)
class Step:
    """A stride in elements and how often it is taken, as a function of a number of threads: `min(n, group)` within a
    group, `ceil(n / group)` between groups; without groups n."""

    stride: sp.Expr
    group: sp.Expr | None = None
    between: bool = False

    def count(self, n: sp.Expr) -> sp.Expr:
        if self.group is None or n == 1:
            return n
        return ceil_div(n, self.group) if self.between else minimum(n, self.group)


@dataclass(frozen=True, slots=True)
class StridedAccess:
    """An access with its strides along the threads of a block.

    `threads`: for each axis its steps (none: all threads use the same). `z`: stride of a plane of blocks. `blocks`: per
    blockIdx.x, .y where that is not the stride of a thread times the size of the block; None where it is, so that the
    threads of the grid along this axis are one row. `rows`: how often the iterations of loops repeat the row of a block
    along x, each time beginning where it ended (`for (j = threadIdx.x; j < n; j += blockDim.x)`: n / blockDim.x).
    `apart`: stride and trips of the other loops. `times`: executions by a warp with work. `reach`: which threads of it
    and which blocks run it.
    """

    access: MemoryAccess
    threads: tuple[tuple[Step, ...], ...]
    z: sp.Expr
    loops: tuple[tuple[sp.Expr, sp.Expr], ...]
    offset: sp.Expr
    times: sp.Expr
    reach: Reach
    blocks: tuple[sp.Expr | None, sp.Expr | None] = (None, None)
    rows: sp.Expr = ONE
    apart: tuple[tuple[sp.Expr, sp.Expr], ...] = ()

    def stride(self, axis: int) -> sp.Expr:
        """Of the first step along an axis."""
        return self.threads[axis][0].stride if self.threads[axis] else ZERO

    @property
    def scattered(self) -> bool:
        """Whether neighbouring threads are at places that are loaded."""
        return any(step.stride.has(SCATTERED) for steps in self.threads for step in steps)


def _unrounded(count: sp.Expr) -> sp.Expr:
    """An average number of iterations, not rounded to an integer."""
    return count.replace(lambda e: isinstance(e, (sp.ceiling, sp.floor)), lambda e: e.args[0])


def _is_constant(trips: sp.Expr) -> bool:
    """Whether the compiler knows a number of iterations, and that it is small."""
    if trips.is_number:
        return bool(trips <= MOST_UNROLLED)
    return all(s.name.endswith(TUNABLE) for s in trips.free_symbols)


def is_wide(stride: sp.Expr) -> bool:
    """Whether a stride is assumed to be longer than a line: it contains a size."""
    return not stride.is_number


def _multiple(offset: sp.Expr, stride: sp.Expr) -> sp.Expr:
    """How many rows of this stride an offset is away, where that can be told: 0 for one within a row."""
    if is_wide(stride):
        factor, row = stride.as_coeff_Mul()
        rows = sp.expand(offset).coeff(row, 1) / factor
        return sp.Integer(round(rows)) if rows.is_Rational else rows
    if abs(stride) * 4 > LINE and offset.is_Integer:  # of known sizes
        return sp.Integer(round(offset / stride))
    return ZERO


class Traffic:
    """Data moved by a launch with placed geometry. Intermediate results become assignments of the geometry's
    program."""

    def __init__(self, geometry: Geometry, accesses: Accesses) -> None:
        self.geometry, self.accesses = geometry, accesses
        self.b, self.sizes, self.extent = geometry.b, geometry.sizes, geometry.extent
        self._shape = {symbol(f"blockDim_{a}"): n for a, n in zip("xyz", geometry.block, strict=True)}
        self._shape |= {symbol(f"gridDim_{a}"): n for a, n in zip("xyz", geometry.grid, strict=True)}
        # Rare accesses (weight 0) move a negligible amount.
        placed = [self._placed(a) for a in accesses.accesses if a.weight > 0]
        self.placed = [p for p in placed if not p.access.shared]
        self.shared = [p for p in placed if p.access.shared]

    def _placed(self, access: MemoryAccess) -> StridedAccess:
        t, g = ([symbol(f"{index}_{a}") for a in AXES] for index in ("threadIdx", "blockIdx"))
        times = sp.Float(access.weight)
        trips = self.trips_of(access.loops)
        for number in trips:
            times = times * number
        reach = self._in_lanes(self._reach(access.guards), access.loops)
        exact = self._in_iterations(access)
        times = times * reach.warps * self._distinct(access, exact)
        loaded = {s for s in exact.free_symbols if s.name.startswith("unknown_")}
        of = {value: self._reached(indices_of(value), access.loops) for value in loaded}
        depends = set().union(*of.values())
        if symbol(EVERYTHING) in depends or not only_scattered(exact):
            scattered = Step(SCATTERED)
            return StridedAccess(access, tuple((scattered,) for _ in t), ZERO, (), ZERO, times, reach)
        walks = {i: SCATTERED * exact.coeff(value, 1) for value in loaded for i in of[value]}
        exact = exact.xreplace(dict.fromkeys(loaded, ZERO))
        address = linear(exact)
        steps = tuple((Step(walks[index]),) if index in walks else _steps(exact, address, index) for index in t)
        along = [walks.get(lo.counter, address.coeff(lo.counter, 1)) for lo in access.loops]
        loops = tuple(zip(along, trips, strict=True))
        rest = address.subs(dict.fromkeys((*t, *g, *(lo.counter for lo in access.loops)), 0))
        apart = [walks.get(index, address.coeff(index, 1)) for index in g]
        whole = [sp.expand(address.coeff(i, 1) * size) for i, size in zip(t, self.geometry.block, strict=True)]
        free = [any(s.stride.has(SCATTERED) for s in one) for one in steps]
        blocks = tuple(None if f or own == row else own for own, row, f in zip(apart, whole, free, strict=True))
        continues = [stride == whole[0] != 0 and not free[0] for stride, _ in loops]
        rows = self._rows_of([lo for lo, row in zip(access.loops, continues, strict=True) if row])
        others = tuple(one for one, row in zip(loops, continues, strict=True) if not row)
        return StridedAccess(access, steps, apart[2], loops, rest, times, reach, blocks[:2], rows, others)  # type: ignore[arg-type]

    def _distinct(self, access: MemoryAccess, exact: sp.Expr) -> sp.Expr:
        """The share of the loads in unrolled loops that nvcc keeps: one of each element, if nothing stores between."""
        loops = self._unrolled(access.loops)
        loaded = set().union(*(indices_of(s) for s in exact.free_symbols if s.name.startswith("unknown_")))
        if loaded & {symbol(EVERYTHING), *(loop.counter for loop in loops)}:
            return ONE
        steps = [exact.coeff(loop.counter, 1) for loop in loops]
        apart = exact.subs(dict.fromkeys((loop.counter for loop in loops), ZERO))
        linear_ = sp.expand(exact - apart - sum((s * lo.counter for s, lo in zip(steps, loops, strict=True)), ZERO))
        all_ = math.prod(int(loop.trips) for loop in loops)
        unrolled = linear_ == 0 and all(s.is_Integer for s in steps) and all_ <= MOST_UNROLLED
        if access.store or not unrolled or self._stores_between(access.loops):
            return ONE
        places = {0}
        for step, loop in zip(steps, loops, strict=True):
            places = {place + int(step) * k for place in places for k in range(int(loop.trips))}
        return sp.Rational(len(places), all_)

    @staticmethod
    def _unrolled(loops: Sequence[CountedLoop]) -> Sequence[CountedLoop]:
        """The innermost of nested loops, as far as the compiler unrolls them completely."""
        first = len(loops)
        while first and loops[first - 1].trips.is_Integer and _is_constant(loops[first - 1].trips):
            first -= 1
        return loops[first:]

    def _in_lanes(self, reach: Reach, loops: Sequence[CountedLoop]) -> Reach:
        """The part of the launch that runs an access in loops: of a loop of less than an iteration, the lanes of a warp
        that have one, on average."""
        x, *others = reach.lanes
        for loop in loops:
            all_ = self._of_all_threads(loop, loop.trips)
            if all_ is not None and symbol("threadIdx_x") in loop.first.free_symbols:
                x = self._working_lanes(x, *all_)
        return replace(reach, lanes=(x, *others))

    def _working_lanes(self, lanes: sp.Expr, places: sp.Expr, step: sp.Expr) -> sp.Expr:
        if places.is_number and step.is_number and places >= step:
            return lanes
        warps = self.b.let("warps", ceil_div(maximum(ONE, places), sp.Integer(WARP)), "", "with work", integer=True)
        mean = minimum(lanes, ceil_div(maximum(ONE, places), warps))
        fewer = sp.Piecewise((mean, places < step), (lanes, True))
        return self.b.let("lanes", fewer, "", "of a warp that have an iteration", integer=True)

    def _reach(self, guards: frozenset[Guard]) -> Reach:
        """The part of the launch that passes the conditions of an access; for data, also the conditions of all threads
        with work."""
        g = self.geometry
        own = reach_of(frozenset() if self.accesses.one_thread else guards - g.regarded, g.launch)
        return replace(own, grid=own.grid * g.share)

    def _reach_of_all(self, members: Sequence[StridedAccess]) -> Reach:
        """The part of the launch that passes the conditions common to all accesses of a cluster."""
        guards = [m.access.guards for m in members]
        return members[0].reach if len(set(guards)) == 1 else self._reach(frozenset.intersection(*guards))

    @staticmethod
    def _reached(indices: set[sp.Symbol], loops: Sequence[CountedLoop]) -> set[sp.Symbol]:
        """The symbols, with those that the first values of the counters among them depend on."""
        for loop in reversed(loops):
            if loop.counter in indices:
                indices = indices | indices_of(loop.first)
        return indices

    def _rows_of(self, loops: Sequence[CountedLoop]) -> sp.Expr:
        """The length, in blocks, of the row that the iterations of these loops continue."""
        rows: sp.Expr = ONE
        for loop in loops:
            trips = loop.trips.args[0] if isinstance(loop.trips, sp.ceiling) else loop.trips
            all_ = self._of_all_threads(loop, trips)
            if all_ is not None:
                rows = rows * all_[0] / all_[1]
                continue
            rows = rows * self._of_first_thread(trips.xreplace(self.sizes).subs(self._shape))
        return rows

    def _in_iterations(self, access: MemoryAccess) -> sp.Expr:
        """The address, expanded, with the number of the iteration in place of each counter: a loop that a thread begins
        at its own index strides with the threads."""
        address = nearby(access.address)
        for loop in reversed(access.loops):
            address = address.subs(loop.counter, loop.first + loop.step * loop.counter)
        address = address.xreplace(self.sizes).subs(self._shape)
        # Loaded values that are the same for all threads shift addresses, which hardly matters.
        return sp.expand(address.xreplace({s: ZERO for s in address.free_symbols if s.name.startswith("uniform_")}))

    def trips_of(self, loops: Sequence[CountedLoop]) -> list[sp.Expr]:
        """Iterations of each of nested loops, the outer ones halfway through."""
        halfway: dict[sp.Expr, sp.Expr] = {}
        out = []
        for loop in loops:
            trips, first = loop.trips, loop.first
            if trips.free_symbols & halfway.keys() or first.free_symbols & halfway.keys():
                trips, first = (_unrounded(e.subs(halfway)) for e in (trips, first))
            average = self._average(trips.xreplace(self.sizes))
            all_ = self._of_all_threads(loop, trips)
            if all_ is not None:
                average = self._of_working_warps(all_, average)
            out.append(average)
            halfway[loop.counter] = first + loop.step * (average - 1 if all_ is None else maximum(0, average - 1)) / 2
        return out

    def _average(self, trips: sp.Expr) -> sp.Expr:
        """Iterations of the thread in the middle of the grid."""
        average = self._of_first_thread(trips.subs(self._shape))
        trips = sp.Float(average) if average.is_Integer else sp.Float(1) * average
        return self.b.let("trips", trips, "", "iterations of a loop, in the middle of the grid")

    def _of_all_threads(self, loop: CountedLoop, trips: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
        """Of a loop whose threads begin at neighbouring places that one iteration covers (`for (i = index of the
        thread; i < n; i += number of threads)`): the places of all iterations, and those of one. None of other
        loops."""
        first, step = (sp.expand(e.xreplace(self.sizes).subs(self._shape)) for e in (loop.first, loop.step))
        of_axes = {
            symbol(f"{name}_{a}"): n
            for name, dims in (("threadIdx", self.geometry.block), ("blockIdx", self.geometry.grid))
            for a, n in zip("xyz", dims, strict=True)
        }
        used = first.free_symbols & of_axes.keys()
        covered = ONE + sum((first.coeff(index, 1) * (of_axes[index] - 1) for index in used), ZERO)
        if not used or sp.expand(covered - step) != 0:
            return None
        iterations = _unrounded(trips).xreplace(self.sizes).subs(self._shape).subs(dict.fromkeys(of_axes, 0))
        return sp.expand(iterations * step), step

    def _of_working_warps(self, all_: tuple[sp.Expr, sp.Expr], average: sp.Expr) -> sp.Expr:
        """Iterations of a warp: where one iteration covers all, the share of the warps that have it."""
        places, step = all_
        if places.is_number and step.is_number and places >= step:
            return average
        share = sp.Float(1) * ceil_div(maximum(0, places), sp.Integer(WARP)) * WARP / step
        fewer = sp.Piecewise((minimum(sp.Float(1), share), places < step), (average, True))
        return self.b.let("trips", fewer, "", "iterations of a loop, of a warp")

    def _of_first_thread(self, trips: sp.Expr) -> sp.Expr:
        """Of the block in the middle of the grid."""
        trips = trips.subs({symbol(f"threadIdx_{a}"): 0 for a in "xyz"})
        of_all = zip("xyz", self.extent, self.geometry.block, strict=True)
        middle = {symbol(f"blockIdx_{a}"): whole / (2 * block) for a, whole, block in of_all}
        return sp.simplify(trips.subs(middle)) if trips.free_symbols & set(middle) else trips

    def _gcd(self, stride: sp.Expr, most: int) -> sp.Expr:
        """The greatest common divisor of a stride and a power of two, by comparisons, so that it stays rational."""
        if stride.is_number:
            whole = int(abs(stride)) if stride.is_Integer else 1
            return sp.Integer(math.gcd(whole, most) if stride != 0 else most)
        if stride.has(SCATTERED) or not stride.is_integer:
            return ONE
        total, power = ONE, 2
        named = self.b.let("stride", stride, "elements", integer=True)
        while power <= most:
            total = total + sp.Piecewise(
                (power // 2, sp.Eq(named - power * int_div(named, sp.Integer(power)), 0)), (0, True)
            )
            power *= 2
        return self.b.let("stride_gcd", total, "", f"greatest common divisor of a stride and {most}", integer=True)

    def memory_bytes(self, clusters: Sequence[list[StridedAccess]]) -> sp.Expr:
        """Unique bytes of the grid, of each array no more than it has, where its size is known."""
        of: dict[str, sp.Expr] = {}
        for members in clusters:
            array = members[0].access.array
            of[array] = of.get(array, sp.Float(0)) + self.unique(members, None)
        sizes = self.geometry.array_bytes
        return sum((minimum(moved, sizes[a]) if a in sizes else moved for a, moved in of.items()), sp.Float(0))

    # ---- one request of a warp ----------------------------------------------------------------

    def conflicts(self, p: StridedAccess) -> sp.Expr:
        """Passes through the banks of the L1 cache for one request of a warp."""
        words = max(1, p.access.size // 4)
        steps = [(s.stride, s.count(n)) for one, n in zip(p.threads, p.reach.lanes, strict=True) for s in one if n != 1]
        lanes, banks, least = ONE, ONE, sp.Integer(BANKS)
        for stride, count in steps:
            divisor = self._gcd(sp.expand(stride * words), BANKS)
            lanes, least = lanes * count, self.b.let("divisor", minimum(least, divisor), integer=True)
            banks = banks * minimum(count, int_div(sp.Integer(BANKS), divisor))
        banks = minimum(int_div(sp.Integer(BANKS), least), banks) * self._elements(p)
        passes = ceil_div(lanes * words, maximum(1, banks))
        return self.b.let("passes", passes, "cycles", "bank conflicts of a request", integer=True)

    def _elements(self, p: StridedAccess) -> int:
        """The elements of an array that one access has: several of a vector, whose banks are neighbours."""
        sizes = {f.name: f.type.size for f in self.geometry.kernel.formals if f.mode is not None}
        return max(1, p.access.size // sizes.get(p.access.array, p.access.size))

    def touched(self, p: StridedAccess, size: int) -> sp.Expr:
        """Aligned pieces of `size` bytes that one request of a warp touches, on average."""
        steps = [(s.stride, s.count(n)) for one, n in zip(p.threads, p.reach.lanes, strict=True) for s in one if n != 1]
        many, pieces, _ = self._pieces(steps, p.access.size, size, p.offset, self._begin(p, size))
        return self.b.let("touched", many * pieces, "", f"pieces of {size} bytes of a request")

    def _pieces(
        self,
        steps: Sequence[tuple[sp.Expr, sp.Expr]],
        element: int,
        size: int,
        offset: sp.Expr,
        begin: sp.Expr | None = None,
    ) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
        """(rows, pieces of each, and the share of a row's bytes in pieces that it covers): constant strides up to
        `size` make a row, all others give rows of their own."""
        run: sp.Expr = sp.Float(element)
        many: sp.Expr = sp.Float(1)
        apart = []
        for stride, count in sorted((s for s in steps if not is_wide(s[0])), key=lambda s: abs(s[0])):
            bytes_ = abs(stride) * element
            if bytes_ <= size:
                run = run + (count - 1) * bytes_
            else:
                many = many * count
                apart.append(stride)
        wide, run = _diagonal(_merged([s for s in steps if is_wide(s[0])]), element, run)
        rows = [row for stride, _ in wide if (row := stride.xreplace({SCATTERED: ONE})) != 1]
        for stride, count in wide:
            if stride == SCATTERED and rows:  # within a row: some of them meet
                count = count / (1 + (count - 1) * sp.Float(size) / (2 * element * maximum(ONE, rows[0])))
            many = many * count
            apart.append(stride)
        aligned = self._alignment(apart, element, size, offset)
        aligned = aligned if begin is None else minimum(aligned, begin)
        start = self.b.let("aligned", aligned, "bytes", "that rows start at")
        whole = sp.Piecewise((maximum(sp.Float(0), run - size + start) / run, run >= size), (sp.Float(0), True))
        return many, maximum(sp.Float(1), self.b.let("span", (run + size - start) / size, "", "pieces of a row")), whole

    def _begin(self, p: StridedAccess, size: int) -> sp.Expr:
        """Alignment in bytes of the first lane of a row along x, at most `size`: threads that skip elements begin a
        block anywhere."""
        x = p.stride(0)
        if not x.is_Integer or abs(x) < 2 or abs(x) * p.access.size > size:
            return sp.Integer(size)
        return self._gcd(self.geometry.bx * abs(x) * p.access.size, size)

    def _alignment(self, apart: Sequence[sp.Expr], element: int, size: int, offset: sp.Expr) -> sp.Expr:
        """Alignment in bytes of rows at these strides, at most `size`."""
        start: sp.Expr = sp.Integer(size)
        for stride in apart:
            row = stride.xreplace({SCATTERED: ONE})
            if row.is_integer and row != 1 and size > element:
                start = minimum(start, element * self._gcd(row, size // element))
            elif row != 1:
                start = minimum(start, self._gcd(sp.expand(row * element), size))
        if offset.is_Integer and (int(offset) * element) % size:
            start = minimum(start, math.gcd(int(abs(offset)) * element, size))
        return start

    def load_cycles(self, p: StridedAccess) -> sp.Expr:
        if self.accesses.one_thread:
            return sp.Float(1)
        tags = sp.Float(TAG_CYCLES) * self.touched(p, LINE)
        return tags if p.scattered else maximum(sp.Float(1) * self.conflicts(p), tags)

    def passes(self, p: StridedAccess) -> sp.Expr:
        """Passes through the banks of shared memory for one request of a warp. Lanes of an atomic operation at one
        address follow each other."""
        if self.accesses.one_thread:
            return sp.Float(1)
        passes = sp.Float(1) if p.scattered or not self._is_read(p) else self.conflicts(p)
        if p.access.atomic:
            floats = maximum(sp.Float(SHARED_FLOATS), SHARED_FLOAT * self._meeting(p))
            return passes * (floats if self._is_floating(p) else SHARED_INTEGERS)
        return sp.Rational(1, MERGED) if self._is_merged(p) else passes

    def _is_floating(self, p: StridedAccess) -> bool:
        of_formals = {f.name: f.type.is_float for f in self.geometry.kernel.formals}
        return of_formals.get(p.access.array, p.access.array in self.accesses.floating)

    @staticmethod
    def _is_merged(p: StridedAccess) -> bool:
        """Whether all lanes load the same words, and successive iterations neighbouring ones, so that nvcc loads
        several with one instruction."""
        if p.access.store or any(p.threads) or not p.loops:
            return False
        step = p.loops[-1][0] * max(1, p.access.size // 4)
        return bool(step.is_Integer and 0 < abs(step) <= MERGED // 2)

    def _is_read(self, p: StridedAccess) -> bool:
        """Whether the strides of an address are known along all axes on which it depends."""
        of = self._reached(indices_of(p.access.address), p.access.loops)
        return all(
            bool(steps) for axis, steps in zip(AXES, p.threads, strict=True) if symbol(f"threadIdx_{axis}") in of
        )

    def _meeting(self, p: StridedAccess) -> sp.Expr:
        """Lanes of a warp at one address: all lanes along an axis on which the address does not depend, and those with
        equal remainders. Where it is loaded, a sixth of the others are: between none (keys at random) and all (an
        image), as the data have it."""
        if self.accesses.one_thread:
            return sp.Float(1)
        axes = [(steps, lanes) for steps, lanes in zip(p.threads, p.reach.lanes, strict=True) if lanes != 1]
        loaded = [any(s.stride.has(SCATTERED) for s in steps) for steps, _ in axes]
        several = sp.prod([lanes for (_, lanes), free in zip(axes, loaded, strict=True) if free])
        known = [(steps, lanes) for (steps, lanes), free in zip(axes, loaded, strict=True) if not free]
        alike = sp.prod([lanes / sp.prod([s.count(lanes) for s in steps]) for steps, lanes in known])
        return sp.Float(1) * alike * (1 + (several - 1) * MEETING)

    def slices(self, p: StridedAccess) -> sp.Expr:
        """Accesses of the L2 cache's slices for one request of a warp that the L1 cache does not serve: one for each
        line, and one for each two sectors of it."""
        if self.accesses.one_thread:
            return sp.Float(1)
        return maximum(self.touched(p, LINE), self.touched(p, SECTOR) / 2)

    # ---- unique data --------------------------------------------------------------------------

    def clusters(self, placed: Sequence[StridedAccess]) -> list[list[StridedAccess]]:
        """Accesses of one array with the same strides whose offsets are within a few rows of each other."""
        groups: dict[tuple[object, ...], list[StridedAccess]] = {}
        for p in placed:
            groups.setdefault((p.access.array, p.threads, p.z, p.loops, p.access.store), []).append(p)
        out = []
        for members in groups.values():
            planes: dict[sp.Expr, list[StridedAccess]] = {}
            for p in members:
                planes.setdefault(_multiple(p.offset, p.z), []).append(p)
            out += list(planes.values())
        return out

    @staticmethod
    def visits(members: Sequence[StridedAccess]) -> int:
        """The number of consecutive loops that load the data of a cluster."""
        return len({tuple(loop.place for loop in p.access.loops) for p in members if not p.access.store})

    def unique(self, members: list[StridedAccess], threads: Sequence[sp.Expr] | None, *, size: int = SECTOR) -> sp.Expr:
        """Pieces of `size` bytes that the accesses of a cluster touch in a block of `threads` (x, y, z); without
        `threads` the bytes, in whole pieces, in the grid."""
        many, pieces, _ = self._pieces_of(members, threads, size)
        reach = self._reach_of_all(members)
        unique = many * pieces * (size * reach.grid if threads is None else reach.blocks)
        return self.b.let(
            "unique", unique, "", f"pieces of {size} bytes" if threads is not None else "bytes of the grid"
        )

    def shared_bytes(self, stores: Sequence[list[StridedAccess]], threads: Sequence[sp.Expr]) -> sp.Expr:
        """Bytes of the grid in sectors of which a block of `threads` stores a part, and other blocks the rest, times
        the stores of a thread. What a loop stores in iterations that are not unrolled is left out: a block continues
        its own rows there."""
        once = [m for m in stores if all(_is_constant(loop.trips) for loop in m[0].access.loops)]
        total: sp.Expr = sp.Float(0)
        for members in once:
            _, _, whole = self._pieces_of(members, threads, SECTOR)
            total = total + self.unique(members, None) * (1 - whole)
        return total * minimum(sp.Integer(MOST_STREAMS), sum((p.times for m in once for p in m), sp.Float(0)))

    def contended(self) -> sp.Expr:
        """How many additions at one address take as long as the atomic operations that a line serves one after the
        other. Lanes of a warp at one address follow each other, those at others are served sector by sector. The
        requests of all warps are spread over the lines that the resident blocks use at a time; blocks run in the order
        of x."""
        g = self.geometry
        left: sp.Expr = minimum(g.blocks, g.resident * symbol("multiprocessors"))
        together = []
        for blocks in g.grid:
            together.append(self.b.let("running", minimum(blocks, maximum(1, left)), "blocks", "at a time, on an axis"))
            left = left * sp.Float(1) / together[-1]
        total: sp.Expr = sp.Float(0)
        for members in self.clusters([p for p in self.placed if p.access.atomic and self._is_read(p)]):
            many, pieces, _ = self._pieces_of(members, None, LINE, together)
            of_array = g.array_bytes.get(members[0].access.array)
            bound = [] if of_array is None else [maximum(ONE, of_array / LINE)]
            each = (p.times * self._served(p, bound) for p in members)
            total = total + g.active * sum(each, sp.Float(0)) / maximum(ONE, minimum(many * pieces, *bound))
        return total

    def _served(self, p: StridedAccess, bound: Sequence[sp.Expr]) -> sp.Expr:
        """The additions at one address that take as long as a request of a warp with atomic operations, at all of its
        lines. `bound`: the lines of the array, if they are known."""
        kind = 1 if self._is_floating(p) else INTEGER
        if self.accesses.one_thread:
            return sp.Float(kind)
        lines, sectors = (minimum(self.touched(p, n), *(b * LINE / n for b in bound)) for n in (LINE, SECTOR))
        return maximum(kind * self._meeting(p) * lines, ATOMIC_SECTOR * sectors)

    def _pieces_of(
        self,
        members: list[StridedAccess],
        threads: Sequence[sp.Expr] | None,
        size: int,
        together: Sequence[sp.Expr] | None = None,
    ) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
        """As `_pieces`, for a block of `threads`; without `threads`, for the grid, or for this number of blocks along
        each axis."""
        p, element = members[0], members[0].access.size
        reach = self._reach_of_all(members)
        counts, blocks = self._of_grid(p, reach, together) if threads is None else (list(threads), [])
        if threads is not None:
            parts = zip(reach.part, reach.threads, counts, strict=True)
            counts = [minimum(own, n) if part else n for part, own, n in parts]
        more_x, more_rows = self._spread(members)
        steps = []
        for axis, (one, n) in enumerate(zip(p.threads, counts, strict=True)):
            for number, step in enumerate(one):
                count = step.count(n * p.rows if axis == 0 else n)
                more = (more_x, more_rows, ZERO)[axis] if number == 0 and step.group is None else ZERO
                if count + more != 1:
                    steps.append((step.stride, count + more))
        steps += [(stride, n) for stride, n in (*blocks, *p.apart) if stride != 0]
        return self._pieces(steps, element, size, p.offset if threads is not None else ZERO)

    def _spread(self, members: Sequence[StridedAccess]) -> tuple[sp.Expr, sp.Expr]:
        """The differences of the offsets of a cluster: in elements of a row, and in rows."""
        p = members[0]
        x, y = p.stride(0), p.stride(1)
        within = [sp.expand(m.offset - _multiple(m.offset, p.z) * p.z) for m in members]
        rows = [_multiple(offset, y) for offset in within]
        more_rows = max(rows) - min(rows) if all(r.is_Integer for r in rows) else ZERO
        rests = [sp.expand(offset - r * y) for offset, r in zip(within, rows, strict=True)]
        small = [r for r in rests if r.is_Integer]
        return (max(small) - min(small)) if small and abs(x) == 1 else ZERO, more_rows

    def _of_grid(
        self, p: StridedAccess, reach: Reach, together: Sequence[sp.Expr] | None
    ) -> tuple[list[sp.Expr], list[tuple[sp.Expr, sp.Expr]]]:
        """Threads of a row along x, y and z, and the stride and the number of blocks that continue no row. `together`:
        of so many blocks; none: of all."""
        g, threads, apart = self.geometry, [], []
        extent = reach.extent
        if together is not None:
            extent = tuple(minimum(e, n * b) for e, n, b in zip(extent, together, g.block, strict=True))
        of_axes = zip(p.blocks, extent, g.block, together or g.grid, reach.part, strict=False)
        for axis, (own, whole, block, blocks, part) in enumerate(of_axes):
            threads.append(reach.threads[axis] if part else whole if own is None else minimum(block, whole))
            if own is not None or part:
                apart.append((p.stride(axis) * block if own is None else own, blocks))
        if p.z != 0 and g.block[2] == 1:
            return [*threads, ONE], [*apart, (p.z, extent[2])]
        return [*threads, extent[2] if p.threads[2] else ONE], apart

    # ---- latency and instructions of a warp ----------------------------------------------------

    def stages(self) -> sp.Expr:
        """Loads that follow each other in a thread, since each needs the one before: those outside of loops, and of
        each loop an iteration in UNROLLED; an index that is loaded is one more."""
        total: sp.Expr = sp.Float(0)
        outside = [p for p in self.placed if not p.access.store and not p.loops]
        total = total + (1 if outside else 0) + (1 if any(p.scattered for p in outside) else 0)
        innermost: dict[tuple[CountedLoop, ...], list[StridedAccess]] = {}
        for p in self.placed:
            if not p.access.store and p.access.loops:
                innermost.setdefault(p.access.loops, []).append(p)
        for loops, members in innermost.items():
            each = 2 if any(p.scattered for p in members) else 1
            weight = max(p.access.weight for p in members)
            total = total + weight * each * self._turns(loops)
        return total

    def _turns(self, loops: Sequence[CountedLoop]) -> sp.Expr:
        """The number of times that a thread waits in nested loops. The loads of loops whose number of iterations is a
        constant of the code, and of UNROLLED iterations of an innermost loop, are in flight together, unless the loop
        stores: nvcc moves no load across a store that might be to the same place, nor across a barrier."""
        turning = loops[: len(loops) - len(self._unrolled(loops))]
        within, stores = (self._stores_between(tuple(some)) for some in (loops, turning))
        trips = self.trips_of(loops)
        turns = [n for loop, n in zip(loops, trips, strict=True) if within or not _is_constant(loop.trips)]
        waits = any(around and around == tuple(loops[: len(around)]) for around in self.accesses.barriers)
        if turns and not stores and not waits:
            turns[-1] = maximum(sp.Float(1), turns[-1] / UNROLLED)
        return sp.prod(turns) if turns else sp.Float(1)

    def _stores_between(self, loops: tuple[CountedLoop, ...]) -> bool:
        """Whether nvcc cannot move loads from one iteration of nested loops to another, since these store: to the same
        array, or to any that is not known to be apart."""
        inside = [a for a in self.accesses.accesses if a.loops[: len(loops)] == loops and not a.shared]
        loaded = {a.array for a in inside if not a.store}
        code = self.geometry.impl.code
        apart = code is not None and code.restrict
        return any(a.store and (not apart or a.array in loaded) for a in inside)

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

    def _is_unrolled(self, loops: Sequence[CountedLoop], depth: int) -> bool:
        """Whether nvcc unrolled the innermost of these loops, if its output has `depth` nested loops. It unrolls loops
        with a known number of iterations, from the inside out."""
        return len(loops) > depth and bool(loops[-1].trips.xreplace(self.sizes).is_Integer)

    def _operations(self, work: Sequence[Work]) -> sp.Expr:
        total: sp.Expr = sp.Float(0)
        for one in work:
            times: sp.Expr = sp.Float(one.operations)
            for number in self.trips_of(one.loops):
                times = times * number
            total = total + times
        return total


Strides = list[tuple[sp.Expr, sp.Expr]]  # and the number of times that each is taken


def _merged(wide: Strides) -> Strides:
    """Strides of which one is a multiple of another overlap: threads of neighbouring rows in a loop over rows (a
    convolution) touch each row but once."""
    out: Strides = []
    for stride, count in wide:
        for i, (other, have) in enumerate(out):
            ratio = _ratio(stride, other)
            if ratio is None or stride.has(SCATTERED):
                continue
            factor = abs(ratio)
            apart = have * count  # where the smaller one does not reach the next of the larger
            if factor >= 1:
                out[i] = (other, minimum(apart, have + factor * (count - 1)))
            else:
                out[i] = (stride, minimum(apart, count + (have - 1) / factor))
            break
        else:
            out.append((stride, count))
    return out


def _ratio(one: sp.Expr, other: sp.Expr) -> sp.Rational | None:
    """Of two sums, if it is a number: all terms have it. (`simplify` would take a fifth of the time of a ranking.)"""
    terms, others = (sp.expand(each).as_coefficients_dict() for each in (one, other))
    ratios = {number / others[term] for term, number in terms.items()} if terms.keys() == others.keys() else set()
    ratio = next(iter(ratios), None)
    return ratio if len(ratios) == 1 and ratio is not None and ratio.is_Rational else None


def _diagonal(wide: Strides, element: int, run: sp.Expr) -> tuple[Strides, sp.Expr]:
    """Two wide strides that differ by a few elements: threads on a diagonal are neighbours in a row. The rows, and the
    bytes of a row."""
    for i, (stride, one) in enumerate(wide):
        for j, (next_, other) in enumerate(wide[i + 1 :], i + 1):
            apart = sp.expand(stride - next_)
            if apart.is_Integer and not stride.has(SCATTERED):
                rows = one + other - 1
                left = [w for k, w in enumerate(wide) if k not in (i, j)]
                return [*left, (stride, rows)], run + (sp.Float(1) * one * other / rows - 1) * abs(apart) * element
    return wide, run


def _steps(exact: sp.Expr, address: sp.Expr, index: sp.Symbol) -> tuple[Step, ...]:
    """The steps of an address along an axis of the block. `exact`: with quotients that are rounded; `address`: its
    linear form."""
    stride = address.coeff(index, 1)
    quotients = [q for q in exact.atoms(sp.floor) if q.has(index)]
    groups = {1 / sp.expand(linear(q)).coeff(index, 1) for q in quotients if sp.expand(linear(q)).coeff(index, 1) != 0}
    if len(groups) != 1 or not (group := next(iter(groups))).is_integer or group == 1:
        return (Step(stride),) if stride != 0 else ()
    within = linear(exact.xreplace(dict.fromkeys(quotients, ZERO))).coeff(index, 1)
    between = sp.expand(stride * group)
    steps = (Step(within, group), Step(between, group, between=True))
    return tuple(s for s in steps if s.stride != 0)
