"""Which regions of one array may share elements, and which lie within others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dagc.ir.program import Program, Region, facts
from dagc.ir.sym import Apply, Const, Fn, Sym

LIMIT = 1_000_000  # pairs of constant slices that are compared
_SYMBOLIC = 8  # constant pairs that one pair of other slices counts as: it takes as long


class TooManyRegions(Exception):
    """More than LIMIT pairs of regions of one array would have to be compared."""


class Regions:
    """Compares regions of one program."""

    def __init__(self, program: Program, regions: Iterable[Region] = ()) -> None:
        """`regions`: those that ops use, which are checked when the program starts."""
        self._facts = facts(program.scalars, program.requires, regions)
        # A bounded part is known by its region. Siblings of one family are disjoint by declaration (the emitted
        # program checks their bounds when it starts), whatever their bounds look like.
        self._families = {p.region: p.name.split("[", 1)[0] for p in program.parts if p.bounded}

    def neighbours(self, regions: Iterable[Region]) -> dict[Region, list[Region]]:
        """For each region of one array those that it may share elements with, itself included.

        Raises TooManyRegions.
        """
        overlapping = {region: [region] for region in regions}
        cost = 0
        for a, b in _candidates(list(overlapping)):
            cost += 1 if isinstance(a.start, Const) and isinstance(b.start, Const) else _SYMBOLIC
            if cost > LIMIT:
                raise TooManyRegions
            if self.overlap(a, b):
                overlapping[a].append(b)
                overlapping[b].append(a)
        return overlapping

    def overlap(self, a: Region, b: Region) -> bool:
        """May they share elements?"""
        if a == b:
            return True
        if a.part is not None and b.part is not None:
            return a.part == b.part
        if a.start is None or b.start is None or a.stop is None or b.stop is None:
            return True
        if a in self._families and self._families.get(b) == self._families[a]:
            return False
        return not (self._facts.at_most(a.stop, b.start) or self._facts.at_most(b.stop, a.start))

    def within(self, inner: Region, outer: Region) -> bool:
        """Is every element of `inner` surely one of `outer`?"""
        if inner == outer or (outer.start is None and outer.part is None):
            return True
        if inner.start is None or outer.start is None or inner.stop is None or outer.stop is None:
            return False
        return bool(self._facts.at_most(outer.start, inner.start) and self._facts.at_most(inner.stop, outer.stop))

    @property
    def given_up(self) -> bool:
        """Are there more comparisons than there is time for?"""
        return self._facts.given_up

    def undecided(self, a: Region, b: Region) -> tuple[Sym, ...]:
        """Of two slices that may overlap, and may lie apart: the comparisons of which one would tell them apart."""
        if a == b or a.start is None or b.start is None or a.stop is None or b.stop is None:
            return ()
        pairs = ((a.stop, b.start), (b.stop, a.start))
        return tuple(Apply(Fn.LE, pair) for pair in pairs if self._facts.at_most(*pair) is None)


def _candidates(regions: list[Region]) -> Iterator[tuple[Region, Region]]:
    """Pairs that are worth a comparison: all but constant slices that lie apart."""
    constant = [
        (r.start.value, r.stop.value, r) for r in regions if isinstance(r.start, Const) and isinstance(r.stop, Const)
    ]
    constant.sort(key=lambda slice_: slice_[:2])
    for k, (_, stop, region) in enumerate(constant):
        for start, _, other in constant[k + 1 :]:
            if start >= stop:  # type: ignore[operator]
                break
            yield region, other
    fixed = [region for _, _, region in constant]
    known = set(fixed)
    others = [region for region in regions if region not in known]
    for k, region in enumerate(others):
        for other in (*others[k + 1 :], *fixed):
            yield region, other
