"""Regions of arrays: which ops name them, what holds for them on every rank, and which may share elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dagc.ir import program as ir
from dagc.ir.enums import Place
from dagc.ir.linear import Facts, Linear
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, free


def facts(
    scalars: Iterable[ir.Scalar],
    requires: Iterable[ir.Require],
    regions: Iterable[ir.Region] = (),
    comms: Iterable[ir.Communicator] = (),
) -> Facts:
    """The conditions that hold on every rank of a running program (otherwise it exits before its first op): the
    `requires`, the types of the scalars, how ranks of communicators are numbered, and that no slice of `regions` ends
    before it starts.

    Conditions on the hardware are excluded: not every program can check them.
    """
    scalars = tuple(scalars)
    rank, ranks, zero = Var("rank"), Var("ranks"), Const(0)
    known: list[Sym] = [Apply(Fn.GE, (rank, zero)), Apply(Fn.LT, (rank, ranks))]
    known += [r.condition for r in requires if not any(name.startswith("hw.") for name in free(r.condition))]
    known += [Apply(Fn.GE, (Var(s.name), zero)) for s in scalars if s.type.is_unsigned]
    known += [fact for comm in comms for fact in comm.facts]
    for region in dict.fromkeys(regions):
        for _, start, stop in region.slices:
            known += [Apply(Fn.GE, (start, zero)), Apply(Fn.LE, (start, stop))]
    no_integers = [s.name for s in scalars if not s.type.is_integer]
    return Facts(known, no_integers)


def conditional_regions(op: ir.Op) -> Iterator[tuple[ir.Region, Sym | None]]:
    """The regions that an op of the program names in its arguments or messages, with the condition under which the rank
    uses each, None if it always does."""
    if isinstance(op, ir.KernelOp | ir.CollectiveOp):
        named = (*(a for a in op.args if isinstance(a, ir.Region)), *(access.region for access in op.accesses))
        yield from ((region, op.when) for region in dict.fromkeys(named))
    elif isinstance(op, ir.CopyOp):
        yield from ((op.dst, op.when), (op.src, op.when))
    else:
        for message in op.messages:
            yield from ((message.send, message.when), (message.recv, message.when))


def between_devices(ops: Iterable[ir.Op], arrays: Iterable[ir.Array]) -> list[ir.ExchangeOp | ir.CollectiveOp]:
    """The exchanges and collectives with arrays on the device: those that a transport moves."""
    there = {array.name for array in arrays if array.place is Place.DEVICE}
    messages = [op for op in ops if isinstance(op, ir.ExchangeOp | ir.CollectiveOp)]
    return [op for op in messages if any(region.array in there for region, _ in conditional_regions(op))]


def certain_regions(program: ir.Program) -> Iterator[ir.Region]:
    """The regions whose bounds every rank checks when the program starts."""
    yield from (region for op in program.ops for region, when in conditional_regions(op) if when is None)


def near(regions: Sequence[ir.Region]) -> Iterator[tuple[int, int]]:
    """Pairs of indices that need a comparison: all but constant slices that are apart."""
    constant = [
        (r.start.value, r.stop.value, k)
        for k, r in enumerate(regions)
        if isinstance(r.start, Const) and isinstance(r.stop, Const)
    ]
    constant.sort()
    for n, (_, stop, place) in enumerate(constant):
        for m in range(n + 1, len(constant)):
            start, _, other = constant[m]
            if start >= stop:  # type: ignore[operator]
                break
            yield place, other
    fixed = [place for _, _, place in constant]
    known = set(fixed)
    others = [place for place in range(len(regions)) if place not in known]
    for n, place in enumerate(others):
        for other in (*others[n + 1 :], *fixed):
            yield place, other


# ---- comparisons ----

LIMIT = 2_000_000  # pairs of constant slices to compare, for all arrays together
_SYMBOLIC = 8  # cost of comparing two other slices, in constant pairs


class TooManyRegions(Exception):
    """More than LIMIT pairs of regions would have to be compared."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """A region with its bounds expanded."""

    region: ir.Region
    start: Linear | None
    stop: Linear | None
    constant: bool


class Regions:
    """Compares regions of one program."""

    def __init__(self, known: Facts) -> None:
        """`known`: what holds on every rank."""
        self._facts = known
        self._slices: dict[ir.Region, _Slice] = {}
        self._cost = 0

    @staticmethod
    def of(program: ir.Program) -> Regions:
        """With what every rank checks when the program starts."""
        return Regions(facts(program.scalars, program.requires, certain_regions(program), program.comms))

    def neighbours(self, regions: Iterable[ir.Region]) -> dict[ir.Region, list[ir.Region]]:
        """For each region of one array, the regions that may share elements with it, itself included.

        Raises TooManyRegions if all arrays together need more than LIMIT comparisons.
        """
        slices = [self._slice(region) for region in regions]
        overlapping = [[slice_.region] for slice_ in slices]
        for i, j in near([slice_.region for slice_ in slices]):
            a, b = slices[i], slices[j]
            self._cost += 1 if a.constant and b.constant else _SYMBOLIC
            if self._cost > LIMIT:
                raise TooManyRegions
            if self._overlap(a, b):
                overlapping[i].append(b.region)
                overlapping[j].append(a.region)
        return {slice_.region: overlaps for slice_, overlaps in zip(slices, overlapping, strict=True)}

    def overlap(self, a: ir.Region, b: ir.Region) -> bool:
        """Whether two regions may share elements. Distinct parts are disjoint by declaration, slices if provably so."""
        return a.array == b.array and self._overlap(self._slice(a), self._slice(b))

    def _overlap(self, a: _Slice, b: _Slice) -> bool:
        shares = a.region.share, b.region.share
        if shares[0] and shares[1] and a.region.unshared == b.region.unshared and shares[0].apart(shares[1]):
            return False
        if a.region.part is not None and b.region.part is not None:
            return a.region.part == b.region.part
        if a.start is None or b.start is None or a.stop is None or b.stop is None:
            return True
        if self._facts.apart((a.start, a.stop), (b.start, b.stop)):
            return False
        return not self._other_columns(a.region, b.region)

    def _other_columns(self, a: ir.Region, b: ir.Region) -> bool:
        """Whether both are slices of one further dimension that have nothing in common."""
        if a.columns is None or b.columns is None or a.columns[0] != b.columns[0]:
            return False
        (_, *first), (_, *second) = a.columns, b.columns
        ranges = [(self._facts.linear(start), self._facts.linear(stop)) for start, stop in (first, second)]
        return self._facts.apart(*ranges)

    def within(self, inner: ir.Region, outer: ir.Region) -> bool:
        """Whether every element of `inner` is certainly one of `outer`."""
        if outer.share is not None:
            return inner == outer
        if outer.start is None and outer.part is None:
            return True
        a, b = self._slice(inner), self._slice(outer)
        if a is b:
            return True
        if outer.columns is not None and outer.columns != inner.columns:
            return False
        if a.start is None or b.start is None or a.stop is None or b.stop is None:
            return False
        return bool(self._facts.ascend(b.start, a.start) and self._facts.ascend(a.stop, b.stop))

    def _slice(self, region: ir.Region) -> _Slice:
        """The slice of a region, cached: hashing and expanding its bounds is slow."""
        known_slice = self._slices.get(region)
        if known_slice is None:
            start, stop = (None if b is None else self._facts.linear(b) for b in (region.start, region.stop))
            constant = isinstance(region.start, Const) and isinstance(region.stop, Const)
            known_slice = self._slices[region] = _Slice(region, start, stop, constant)
        return known_slice

    @property
    def given_up(self) -> bool:
        """Whether more comparisons were needed than allowed."""
        return self._facts.given_up

    def undecided(self, a: ir.Region, b: ir.Region) -> tuple[Sym, ...]:
        """The comparisons of two slices that may or may not overlap; any one of them would decide it. A slice and
        columns of it overlap, unless it is empty."""
        if a.start is None or b.start is None or a.stop is None or b.stop is None:
            return ()
        if (a.start, a.stop) == (b.start, b.stop):
            return ()
        return self._facts.disjoint_if((a.start, a.stop), (b.start, b.stop))
