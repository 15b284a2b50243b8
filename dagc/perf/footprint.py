"""Distinct elements that a launch must read and write: a number that is never too large.

Only accesses that run for certain count (`MemoryAccess.surely`), over ranges of indices on which their conditions hold.
With all sizes known an address is a sum of integers times indices, each index in a range of its own; equal addresses
are counted once. Where a count would need more than such sums (an index that is loaded, a clamp), the access counts as
nothing, and its array is named.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import sympy as sp

from dagc.base.python import np
from dagc.cuda.expressions import Clause, CountedLoop, MemoryAccess, symbol
from dagc.ir.plan import AXES

Terms: TypeAlias = dict[str, int]  # the factor of each index; "" has the constant
MOST_POINTS = 1 << 22  # of indices that are tried one by one, where conditions connect several
MOST_STEPS = 32  # of the reduction of quotients


class Uncounted(Exception):
    """The elements of an access cannot be counted."""


@dataclass(frozen=True, slots=True)
class Elements:
    """Distinct elements of one access: at least `count`, of `size` bytes. `low`, `high`: bytes between which all of
    them lie; `step`: the greatest common divisor of the distances between them, in bytes (0: there is one)."""

    count: int
    size: int
    low: int
    high: int
    step: int

    @property
    def bytes(self) -> int:
        return self.count * self.size


def elements_of(access: MemoryAccess, values: Mapping[sp.Symbol, sp.Expr], shape: Mapping[str, int]) -> Elements:
    """`values` of sizes and tunables; `shape`: threads of a block and blocks of the grid by `blockDim_x`, `gridDim_x`.

    Raises Uncounted.
    """
    if access.surely is None:
        raise Uncounted("whether it runs depends on data")
    return _read(access.address, access.loops, access.surely, values, shape).count(access.size)


def executions_of(
    loops: Sequence[CountedLoop],
    surely: frozenset[Clause],
    values: Mapping[sp.Symbol, sp.Expr],
    shape: Mapping[str, int],
) -> int:
    """How often the threads of a launch run what is in these loops, at least. Raises Uncounted."""
    return _read(sp.Integer(0), loops, surely, values, shape).executions()


def _read(
    address: sp.Expr, loops: Sequence[CountedLoop], surely: frozenset[Clause], values: Mapping[sp.Symbol, sp.Expr],
    shape: Mapping[str, int],
) -> _System:  # fmt: skip
    system = _System(shape)
    values = {**values, **{symbol(name): sp.Integer(n) for name, n in shape.items()}}
    counters: dict[sp.Symbol, sp.Expr] = {}
    clauses = set(surely)
    for loop in loops:
        first, trips, step = (sp.expand(e.subs(counters).subs(values)) for e in (loop.first, loop.trips, loop.step))
        turns = symbol(f"turn of {loop.counter}")
        system.ranges[turns.name] = (0, system.most(trips))
        clauses |= _within(turns, trips)
        counters[loop.counter] = first + step * turns
    system.add_address(sp.expand(address.subs(counters).subs(values)))
    for clause in clauses:
        system.add_clause(sp.expand(clause.value.subs(counters).subs(values)), clause.unequal)
    return system


def together(parts: Iterable[Elements]) -> int:
    """Bytes of all of them: the sum over those that share no element for certain."""
    parts = [p for p in parts if p.count > 0]
    sizes = {p.size for p in parts}
    step = math.gcd(*(p.step for p in parts))
    groups: dict[int, list[Elements]] = {}
    for part in parts:
        apart = part.low % step // part.size if len(sizes) == 1 and step and step % part.size == 0 else 0
        groups.setdefault(apart, []).append(part)
    return sum(_disjoint(group) for group in groups.values())


def _disjoint(parts: Sequence[Elements]) -> int:
    """The most bytes of parts whose ranges do not overlap."""
    best: list[tuple[int, int]] = [(-1, 0)]  # the end of the ranges taken so far, and their bytes
    for part in sorted(parts, key=lambda p: p.high):
        before = max(total for end, total in best if end < part.low or end == -1)
        best.append((part.high, max(best[-1][1], before + part.bytes)))
    return best[-1][1]


def _within(turns: sp.Symbol, trips: sp.Expr) -> set[Clause]:
    """The conditions on the number of an iteration: below that of all."""
    if isinstance(trips, sp.ceiling):
        numerator, denominator = sp.fraction(sp.together(trips.args[0]))
        if denominator.is_positive:
            return {Clause(sp.expand(numerator - denominator * turns - 1))}
    return {Clause(trips - turns - 1)}


class _System:
    """An address and conditions in indices with ranges."""

    def __init__(self, shape: Mapping[str, int]) -> None:
        self.ranges = {
            f"{index}_{axis}": (0, shape[f"{size}_{axis}"])
            for axis in AXES
            for index, size in (("threadIdx", "blockDim"), ("blockIdx", "gridDim"))
        }
        self._address: Terms = {}
        self._least: list[Terms] = []
        self._unequal: list[Terms] = []
        self._quotients: dict[str, tuple[Terms, int]] = {}

    # ---- reading ------------------------------------------------------------------------------

    def add_address(self, value: sp.Expr) -> None:
        self._address = self._whole(value)

    def add_clause(self, value: sp.Expr, unequal: bool) -> None:
        (self._unequal if unequal else self._least).append(self._whole(value))

    def most(self, value: sp.Expr) -> int:
        """The largest value of a number of iterations; at least 0."""
        kept = dict(self._quotients)
        most = math.ceil(self._bounds(self._terms(value))[1])
        self._quotients = kept  # those of the value alone have no place in the address
        return max(0, most)

    def _bounds(self, terms: Mapping[str, Fraction] | Terms) -> tuple[Fraction, Fraction]:
        low = high = Fraction(terms.get("", 0))
        for name, factor in terms.items():
            if name and factor:
                first, last = self._range(name)
                ends = factor * first, factor * last
                low, high = low + min(ends), high + max(ends)
        return low, high

    def _range(self, name: str) -> tuple[int, int]:
        """First and last value."""
        if name in self._quotients:
            terms, divisor = self._quotients[name]
            low, high = self._bounds(terms)
            return math.floor(low / divisor), math.floor(high / divisor)
        low_, high_ = self.ranges[name]
        return low_, max(low_, high_ - 1)

    def _whole(self, value: sp.Expr) -> Terms:
        terms = self._terms(value)
        if any(factor.denominator != 1 for factor in terms.values()):
            raise Uncounted(f"`{value}` is not an integer")
        return {name: int(factor) for name, factor in terms.items() if factor}

    def _terms(self, value: sp.Expr) -> dict[str, Fraction]:
        """A sum of factors times indices; rounded quotients become indices of their own. Raises Uncounted."""
        if value.is_Rational:
            return {"": Fraction(int(value.p), int(value.q))}
        if value.is_Symbol:
            if value.name.startswith(("unknown_", "uniform_")):
                raise Uncounted("its place depends on data")
            if value.name not in self.ranges:
                raise Uncounted(f"`{value.name}` is not known")
            return {value.name: Fraction(1)}
        if value.is_Add:
            total: dict[str, Fraction] = {}
            for part in value.args:
                for name, factor in self._terms(part).items():
                    total[name] = total.get(name, Fraction(0)) + factor
            return total
        if value.is_Mul:
            number, rest = value.as_coeff_Mul()
            if number.is_Rational and number != 1:
                return {n: f * Fraction(int(number.p), int(number.q)) for n, f in self._terms(rest).items()}
        if isinstance(value, sp.floor):
            return self._floor(self._terms(value.args[0]))
        if isinstance(value, sp.ceiling):
            return {n: -f for n, f in self._floor({n: -f for n, f in self._terms(value.args[0]).items()}).items()}
        if isinstance(value, (sp.Max, sp.Min)):
            return self._most([self._terms(part) for part in value.args], -1 if isinstance(value, sp.Min) else 1)
        raise Uncounted("its place is not a sum of indices")

    def _most(self, parts: Sequence[dict[str, Fraction]], sign: int) -> dict[str, Fraction]:
        """The largest, or with -1 the smallest, of sums of which one always is. Raises Uncounted."""
        for part in parts:
            others = ({**part, **{n: part.get(n, Fraction(0)) - f for n, f in other.items()}} for other in parts)
            if all(min(sign * end for end in self._bounds(apart)) >= 0 for apart in others):
                return part
        raise Uncounted("its place is not a sum of indices")

    def _floor(self, terms: Mapping[str, Fraction]) -> dict[str, Fraction]:
        divisor = math.lcm(*(f.denominator for f in terms.values()))
        numerator = {n: int(f * divisor) for n, f in terms.items() if f}
        key = f"floor of {sorted(numerator.items())} / {divisor}"
        self._quotients[key] = numerator, divisor
        return {key: Fraction(1)}

    # ---- fewer indices ------------------------------------------------------------------------

    @property
    def _all(self) -> list[Terms]:
        return [self._address, *self._least, *self._unequal, *(terms for terms, _ in self._quotients.values())]

    def _set(self, name: str, terms: Terms) -> None:
        """Put a sum in the place of an index."""
        for one in self._all:
            factor = one.pop(name, 0)
            for other, own in terms.items():
                if factor:
                    one[other] = one.get(other, 0) + factor * own
            for other in [n for n, f in one.items() if not f]:
                del one[other]

    def _merge(self) -> None:
        """`x + n * y`, with x below n, is one index wherever both appear so."""
        for name, (low, high) in list(self.ranges.items()):
            if high - low == 1:
                self._set(name, {"": low} if low else {})
                del self.ranges[name]
        merged = True
        while merged:
            merged = False
            used = {name for one in self._all for name in one if name in self.ranges}
            for x in sorted(used):
                for y in sorted(used - {x}):
                    (low, size), (first, last) = self.ranges[x], self.ranges[y]
                    alike = all(one.get(y, 0) == size * one.get(x, 0) for one in self._all)
                    if low == first == 0 and size > 0 and last > 0 and alike:
                        for one in self._all:
                            one.pop(y, None)
                        self.ranges[x] = 0, size * last
                        del self.ranges[y]
                        merged = True
                        break
                if merged:
                    break

    def _reduce(self) -> None:
        """Remove the quotients: `v / d` and `v % d` are indices in the place of v. Raises Uncounted."""
        for _ in range(MOST_STEPS):
            self._merge()
            plain = [
                (divisor, name) for name, (terms, divisor) in self._quotients.items()
                if not any(n in self._quotients for n in terms)
            ]  # fmt: skip
            if not plain:
                break
            self._replace(min(plain)[1])
        if self._quotients:
            raise Uncounted("its place has quotients that are not understood")

    def _replace(self, name: str) -> None:
        terms, divisor = self._quotients[name]
        whole = {n: f // divisor for n, f in terms.items() if f // divisor}
        rest = {n: f % divisor for n, f in terms.items() if f % divisor}
        low, high = (math.floor(b / divisor) for b in self._bounds(rest))
        if low == high:
            self._resolve(name, _plus(whole, {"": low}))
            return
        others = {n: f for n, f in rest.items() if n}
        factor = math.gcd(divisor, max(others.values()))
        wide = {n: f for n, f in rest.items() if f % factor == 0}
        narrow = {n: f for n, f in rest.items() if f % factor}
        offset = wide.get("", 0) or narrow.get("", 0) // factor * factor
        small = self._bounds({**narrow, "": narrow.get("", 0) % factor} if narrow else {})
        if factor > 1 and small[0] >= 0 and small[1] < factor:
            terms = {n: f // factor for n, f in wide.items() if n}
            terms = _plus(terms, {"": offset // factor})
            key = f"{name} again"
            del self._quotients[name]
            self._quotients[key] = terms, divisor // factor
            self._set(name, _plus(whole, {key: 1}))
            return
        if list(others.values()) != [1]:
            raise Uncounted("its place has quotients that are not understood")
        self._split(next(iter(others)), rest.get("", 0), divisor)

    def _resolve(self, name: str, terms: Terms) -> None:
        del self._quotients[name]
        self._set(name, terms)

    def _split(self, name: str, offset: int, divisor: int) -> None:
        """`name + offset` is a multiple of the divisor and a rest. Values at the ends that fill no multiple are left
        out."""
        low, high = self.ranges.pop(name)
        first, last = -(-(low + offset) // divisor), (high + offset) // divisor
        if first >= last:  # within one multiple, or across one border: the longer side
            border = first * divisor - offset
            sides = (low, min(high, border)), (max(low, border), high)
            self.ranges[name] = max(sides, key=lambda s: s[1] - s[0])
            return
        quotient, rest = f"{name} / {divisor}", f"{name} % {divisor}"
        self.ranges |= {quotient: (first, last), rest: (0, divisor)}
        self._set(name, _plus({quotient: divisor, rest: 1}, {"": -offset}))

    def _narrow(self) -> list[Terms]:
        """Apply the conditions on one index to its range; those on several that do not always hold are returned, after
        what cannot satisfy them has been left out of the ranges."""
        for _ in range(MOST_STEPS):
            before = dict(self.ranges)
            for terms in self._least:
                for name in (n for n in terms if n):
                    self._bound(name, terms)
            if self.ranges == before:
                break
        for terms in self._unequal:
            self._exclude(terms)
        return [t for t in self._least if self._bounds(t)[0] < 0]

    def _bound(self, name: str, terms: Terms) -> None:
        """The values of an index for which a condition can hold."""
        factor, rest = terms[name], {n: f for n, f in terms.items() if n != name}
        most = math.floor(self._bounds(rest)[1])
        low, high = self.ranges[name]
        if factor > 0:
            low = max(low, -(most // factor))
        else:
            high = min(high, most // -factor + 1)
        self.ranges[name] = low, max(low, high)

    def _exclude(self, terms: Terms) -> None:
        """Leave out a value of an index, and the shorter side of it. Raises Uncounted for a condition on several."""
        low, high = self._bounds(terms)
        names = [n for n in terms if n]
        if low > 0 or high < 0:
            return
        if len(names) != 1:
            raise Uncounted("its conditions are not understood")
        (name,) = names
        value, rest = divmod(-terms.get("", 0), terms[name])
        first, last = self.ranges[name]
        if rest == 0 and first <= value < last:
            self.ranges[name] = max((first, value), (value + 1, last), key=lambda s: s[1] - s[0])

    # ---- counting -----------------------------------------------------------------------------

    def count(self, size: int) -> Elements:
        """The distinct values of the address, as elements of `size` bytes. Raises Uncounted."""
        self._reduce()
        left = self._narrow()
        step = math.gcd(*(f for n, f in self._address.items() if n)) * size
        if any(high <= low for low, high in self.ranges.values()):
            return Elements(0, size, 0, 0, step)
        names = {n for terms in left for n in terms if n}
        points = self._joint(names, left) if names else None
        low, high = self._bounds(self._address)
        count = self._distinct(names, points)
        return Elements(count, size, int(low) * size, (int(high) + 1) * size - 1, step)

    def _length(self, name: str) -> int:
        low, high = self.ranges[name]
        return high - low

    def _joint(self, names: Collection[str], conditions: Sequence[Terms]) -> int | None:
        """The points of indices that conditions connect, if their addresses differ. Otherwise None, and their ranges
        are reduced to a part in which all conditions hold."""
        in_address = {n for n in names if n in self._address}
        orders = (sorted(names, key=lambda n: (n not in in_address, self._length(n))), sorted(names, key=self._length))
        few = [order for order in orders if math.prod(map(self._length, order[:-1])) <= MOST_POINTS]
        if not few:
            raise Uncounted("its conditions connect too many indices")
        *tried, inner = few[0]
        at, low, high = self._solved(tried, inner, conditions)
        lengths = np.maximum(0, high - low)
        if in_address >= set(tried) and self._differ():
            return int(lengths.sum() if inner in in_address else np.count_nonzero(lengths))
        longest = np.unravel_index(int(lengths.argmax()), lengths.shape)
        for name, grid in at.items():
            self.ranges[name] = int(grid[longest]), int(grid[longest]) + 1
        self.ranges[inner] = int(low[longest]), max(int(low[longest]), int(high[longest]))
        return None

    def executions(self) -> int:
        """The points of all indices for which the conditions hold. Raises Uncounted."""
        self._reduce()
        left = self._narrow()
        if any(high <= low for low, high in self.ranges.values()):
            return 0
        names = sorted({n for terms in left for n in terms if n}, key=self._length)
        others = math.prod(self._length(n) for n in self.ranges if n not in names)
        if not names:
            return others
        if math.prod(map(self._length, names[:-1])) > MOST_POINTS:
            raise Uncounted("its conditions connect too many indices")
        _, low, high = self._solved(names[:-1], names[-1], left)
        return others * int(np.maximum(0, high - low).sum())

    def _solved(self, tried: Sequence[str], inner: str, conditions: Sequence[Terms]) -> tuple[dict[str, Any], Any, Any]:
        """All points of the indices that are tried, and between which values of the inner one the conditions hold."""
        grids = np.meshgrid(*(np.arange(*self.ranges[n]) for n in tried), indexing="ij") if tried else []
        at = dict(zip(tried, grids, strict=True))
        low, high = (np.full(grids[0].shape if grids else (), end) for end in self.ranges[inner])
        for terms in conditions:
            rest = sum((f * at[n] for n, f in terms.items() if n in at), terms.get("", 0))
            factor = terms.get(inner, 0)
            if factor > 0:
                low = np.maximum(low, -(rest // factor))
            elif factor < 0:
                high = np.minimum(high, rest // -factor + 1)
            else:
                high = np.where(rest < 0, low, high)
        return at, low, high

    def _differ(self) -> bool:
        """Whether different values of the indices in the address give different addresses."""
        ordered = sorted((abs(f), self._length(n)) for n, f in self._address.items() if n)
        reach = 0
        for factor, length in ordered:
            if factor <= reach:
                return False
            reach += factor * (length - 1)
        return True

    def _distinct(self, names: Collection[str], points: int | None) -> int:
        """Distinct addresses: of indices whose strides are multiples of shorter rows, the row they make together; of
        others the product, and one where they may meet."""
        if points is not None:
            return points * math.prod(self._length(n) for n, f in self._address.items() if n and n not in names)
        rows = sorted((abs(f), self._length(n)) for n, f in self._address.items() if n and self._length(n) > 1)
        if any(self._length(n) <= 0 for n in self._address if n):
            return 0
        while (pair := _overlapping(rows)) is not None:
            (step, length), (far, count) = pair
            for row in pair:
                rows.remove(row)
            rows.append((step, length + far // step * (count - 1)))
        total, reach = 1, 0
        for step, length in sorted(rows):
            if step > reach:
                total, reach = total * length, reach + step * (length - 1)
        return total


Row: TypeAlias = tuple[int, int]  # a stride, and how often it is taken


def _overlapping(rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """Two rows that make one: the second takes steps within, or to the end of, the first."""
    ordered = sorted(rows)
    pairs = ((one, other) for i, one in enumerate(ordered) for other in ordered[i + 1 :])
    return next((p for p in pairs if p[1][0] % p[0][0] == 0 and p[1][0] // p[0][0] <= p[0][1]), None)


def _plus(one: Terms, other: Terms) -> Terms:
    out = dict(one)
    for name, factor in other.items():
        out[name] = out.get(name, 0) + factor
    return {n: f for n, f in out.items() if f}
