"""Which regions of one array may share elements, and which lie within others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dagc.ir import Program, Region
from dagc.sym import Const, Sym, equal

LIMIT = 1_000_000  # pairs of regions that are compared, or overlap


class TooManyRegions(Exception):
    """More than LIMIT pairs of regions of one array would have to be compared."""


class Regions:
    """Compares regions of one program."""

    def __init__(self, program: Program) -> None:
        # A bounded part is known by its region. Siblings of one family are disjoint by declaration (the emitted
        # program checks their bounds when it starts), whatever their bounds look like.
        self._families = {p.region: p.name.split("[", 1)[0] for p in program.parts if p.bounded}

    def neighbours(self, regions: Iterable[Region]) -> dict[Region, list[Region]]:
        """For each region of one array those that it may share elements with, itself included.

        Raises TooManyRegions.
        """
        found = {region: [region] for region in regions}
        for compared, (a, b) in enumerate(_candidates(list(found))):
            if compared >= LIMIT:
                raise TooManyRegions
            if self.overlap(a, b):
                found[a].append(b)
                found[b].append(a)
        return found

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
        return not (at_most(a.stop, b.start) or at_most(b.stop, a.start))

    def within(self, inner: Region, outer: Region) -> bool:
        """Is every element of `inner` surely one of `outer`?"""
        if inner == outer or (outer.start is None and outer.part is None):
            return True
        if inner.start is None or outer.start is None or inner.stop is None or outer.stop is None:
            return False
        return at_most(outer.start, inner.start) and at_most(inner.stop, outer.stop)


def at_most(a: Sym, b: Sym) -> bool:
    """Is a <= b sure?"""
    if isinstance(a, Const) and isinstance(b, Const):
        return bool(a.value <= b.value)  # type: ignore[operator]
    return equal(a, b) is True


def _candidates(regions: list[Region]) -> Iterator[tuple[Region, Region]]:
    """Pairs that are worth a comparison: all but constant slices that lie apart."""
    constant = [
        (r.start.value, r.stop.value, r) for r in regions if isinstance(r.start, Const) and isinstance(r.stop, Const)
    ]
    constant.sort(key=lambda slice_: slice_[:2])  # type: ignore[arg-type,return-value]
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
