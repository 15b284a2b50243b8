"""Conflicts between accesses, and the check that every one of them has an order."""

from __future__ import annotations

from collections.abc import Iterator

from dagc.errors import Diagnostic
from dagc.graph import Touch
from dagc.ir import Program, Region
from dagc.lang.ast import Mode
from dagc.passes.messages import Lowered
from dagc.passes.reach import Edges
from dagc.source import Span
from dagc.sym import Const, equal


class Conflicts:
    """Which touches meet: the same array (or mirror), overlapping regions, at least one of them writing."""

    def __init__(self, program: Program, touches: tuple[Touch, ...]) -> None:
        # A bounded part is known by its region. Siblings of one family are disjoint by declaration (the emitted
        # program checks their bounds when it starts), whatever their bounds look like.
        self._families = {p.region: p.name.split("[", 1)[0] for p in program.parts if p.bounded}
        self.touches = touches
        self.earlier: list[list[int]] = [[] for _ in touches]
        by_array: dict[tuple[str, bool], list[int]] = {}
        for j, touch in enumerate(touches):
            same = by_array.setdefault((touch.region.array, touch.mirror), [])
            self.earlier[j] = [i for i in same if self._meet(touches[i], touch)]
            same.append(j)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Pairs (i, j), i < j, in text order."""
        for j, earlier in enumerate(self.earlier):
            for i in earlier:
                yield i, j

    def _meet(self, a: Touch, b: Touch) -> bool:
        if (a.mode is Mode.IN and b.mode is Mode.IN) or (a.begin == b.begin and a.end == b.end):
            return False
        return self._overlap(a.region, b.region)

    def _overlap(self, a: Region, b: Region) -> bool:
        if a == b:
            return True
        if a.part is not None and b.part is not None:
            return a.part == b.part
        if a.start is None or b.start is None or a.stop is None or b.stop is None:
            return True
        if a in self._families and self._families.get(b) == self._families[a]:
            return False
        for first, second in ((a, b), (b, a)):
            stop, start = first.stop, second.start
            if stop is None or start is None or equal(stop, start) is True:
                return False
            if isinstance(stop, Const) and isinstance(start, Const) and stop.value <= start.value:  # type: ignore[operator]
                return False
        return True


def unordered(
    program: Program, lowered: Lowered, edges: Edges, conflicts: Conflicts, findings: list[Diagnostic]
) -> tuple[tuple[int, int], ...]:
    """The hazards as pairs of touches, the one that comes first first. Adds a diagnostic per pair without an order."""
    hazards, told = [], set()
    for i, j in conflicts:
        a, b = lowered.touches[i], lowered.touches[j]
        if edges.path(a.end, b.begin):
            hazards.append((i, j))
        elif edges.path(b.end, a.begin):
            hazards.append((j, i))
        else:
            u, v = lowered.ops[a.begin], lowered.ops[b.begin]
            first, second = (u.op.name if u.op else u.name), (v.op.name if v.op else v.name)
            if (first, second, a.region.array) in told:
                continue
            told.add((first, second, a.region.array))
            findings.append(_finding(first, second, a, b, u.span, v.span, program.explicit))
    return tuple(hazards)


def _finding(first: str, second: str, a: Touch, b: Touch, u: Span, v: Span, explicit: bool) -> Diagnostic:
    what = "both write"
    if Mode.IN in (a.mode, b.mode):
        what = "read and write" if a.mode is Mode.IN else "write and read"
    if first == second:
        message = f"`{first}` sends from and receives into overlapping parts of `{a.region.array}`"
        mend = "give each message a buffer, or a part, of its own"
    else:
        message = f"`{first}` and `{second}` {what} `{a.region.array}`, and no edge orders them"
        mend = f"add the edge `{first} -> {second}`" + (", or drop `edges explicit`" if explicit else "")
    return Diagnostic("unordered-hazard", message, v, mend, related=((u, f"`{first}` is here"),))
