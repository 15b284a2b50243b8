"""Which regions of one array may share elements, and which lie within others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dagc.ir.linear import Linear
from dagc.ir.program import Program, Region, facts, near
from dagc.ir.sym import Const, Sym

LIMIT = 2_000_000  # pairs of constant slices to compare, for all arrays together
_SYMBOLIC = 8  # cost of comparing two other slices, in constant pairs


class TooManyRegions(Exception):
    """More than LIMIT pairs of regions would have to be compared."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """A region with its bounds expanded."""

    region: Region
    start: Linear | None
    stop: Linear | None
    constant: bool


class Regions:
    """Compares regions of one program."""

    def __init__(self, program: Program, regions: Iterable[Region] = ()) -> None:
        """`regions`: those that every rank checks when the program starts."""
        self._facts = facts(program.scalars, program.requires, regions, program.comms)
        self._slices: dict[Region, _Slice] = {}
        self._cost = 0

    def neighbours(self, regions: Iterable[Region]) -> dict[Region, list[Region]]:
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

    def overlap(self, a: Region, b: Region) -> bool:
        """Whether two regions may share elements."""
        return a == b or self._overlap(self._slice(a), self._slice(b))

    def _overlap(self, a: _Slice, b: _Slice) -> bool:
        if a.region.part is not None and b.region.part is not None:
            return a.region.part == b.region.part
        if a.start is None or b.start is None or a.stop is None or b.stop is None:
            return True
        if self._facts.apart((a.start, a.stop), (b.start, b.stop)):
            return False
        return not self._other_columns(a.region, b.region)

    def _other_columns(self, a: Region, b: Region) -> bool:
        """Whether both are slices of one further dimension that have nothing in common."""
        if a.columns is None or b.columns is None or a.columns[0] != b.columns[0]:
            return False
        (_, *first), (_, *second) = a.columns, b.columns
        ranges = [(self._facts.linear(start), self._facts.linear(stop)) for start, stop in (first, second)]
        return self._facts.apart(*ranges)

    def within(self, inner: Region, outer: Region) -> bool:
        """Whether every element of `inner` is certainly one of `outer`."""
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

    def _slice(self, region: Region) -> _Slice:
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

    def undecided(self, a: Region, b: Region) -> tuple[Sym, ...]:
        """The comparisons of two slices that may or may not overlap; any one of them would decide it."""
        if a == b or a.start is None or b.start is None or a.stop is None or b.stop is None:
            return ()
        return self._facts.disjoint_if((a.start, a.stop), (b.start, b.stop))
