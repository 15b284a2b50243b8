"""Conflicts between accesses: each gets an order, from the edges as written or from text order, or is an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dagc.base.errors import Diagnostic, Severity
from dagc.base.source import Span
from dagc.ir.enums import Mode
from dagc.ir.graph import Touch
from dagc.ir.program import Program, Region
from dagc.ir.sym import show
from dagc.passes.messages import Lowered
from dagc.passes.reach import Edges
from dagc.passes.regions import Regions, TooManyRegions

LIMIT = 3_000_000  # conflicts that are looked at


class TooManyConflicts(Exception):
    """More than LIMIT accesses to one array conflict, or it has more slices than can be compared."""

    def __init__(self, array: str, why: str) -> None:
        super().__init__(array, why)
        self.array, self.why = array, why


@dataclass(slots=True)
class _Earlier:
    """Accesses to one region so far that a later access may conflict with, by their indices."""

    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Array:
    """One array, or one staging buffer: its regions with those that they may share elements with."""

    neighbours: dict[Region, list[Region]]
    earlier: dict[Region, _Earlier]


class Hazards:
    """Finds the pairs of touches that conflict: the same array, regions that may overlap, one writes; or the same
    staging buffer.

    A pair that follows from two others is left out: where i comes before j, and j writes all that i touches, whatever
    conflicts with i later conflicts with j too. So a chain of n ops has n - 1 pairs, not n (n - 1) / 2.
    """

    def __init__(self, program: Program, lowered: Lowered, edges: Edges) -> None:
        """The edges, as written, must have no cycle. Raises TooManyConflicts."""
        self.touches, self.edges = lowered.touches, edges
        self.ordered: list[tuple[int, int]] = []  # pairs of indices into touches, the one that comes first first
        self.inferred: list[tuple[int, int]] = []  # those of them that got an edge
        self.unordered: list[tuple[int, int]] = []  # pairs without an order, in text order
        self.regions = Regions(program, (t.region for t in self.touches))
        self._arrays = self._by_array()
        self._looked_at = 0

    def run(self, *, infer: bool) -> None:
        """Find them all. With `infer`, a pair that no path orders gets an edge in text order; nearest first, so that no
        edge repeats a path. Raises TooManyConflicts."""
        # Where text order means nothing, an order of the edges takes its place: an op is met after all that reach it.
        order = range(len(self.edges)) if infer else self.edges.sorted()
        place = {op: k for k, op in enumerate(order)}
        turned = self.edges.backward() if infer else 0
        for j in sorted(range(len(self.touches)), key=lambda j: (place[self.touches[j].begin], j)):
            touch = self.touches[j]
            array = self._arrays[_storage(touch)]
            for i in sorted(self._conflicting(array, touch), reverse=True):
                self._order(i, j, infer)
            self._enter(array, touch, j, turned)

    def _by_array(self) -> dict[str | Region, _Array]:
        regions: dict[str | Region, dict[Region, None]] = {}
        for touch in self.touches:
            regions.setdefault(_storage(touch), {})[touch.region] = None
        out: dict[str | Region, _Array] = {}
        for storage, accesses in regions.items():
            try:
                out[storage] = _Array(self.regions.neighbours(accesses), {r: _Earlier() for r in accesses})
            except TooManyRegions:
                array = next(iter(accesses)).array
                raise TooManyConflicts(array, f"has {len(accesses)} slices, more than can be compared") from None
        return out

    def _conflicting(self, array: _Array, touch: Touch) -> Iterator[int]:
        for region in array.neighbours[touch.region]:
            earlier = array.earlier[region]
            for candidates in (earlier.writes, earlier.reads if touch.mode is not Mode.IN else ()):
                self._looked_at += len(candidates)
                if self._looked_at > LIMIT:
                    raise TooManyConflicts(touch.region.array, f"has more than {LIMIT} pairs of accesses that conflict")
                for i in candidates:
                    if not self._same(i, touch):
                        yield i

    def _order(self, i: int, j: int, infer: bool) -> None:
        a, b = self.touches[i], self.touches[j]
        if self.edges.path(a.end, b.begin):
            self.ordered.append((i, j))
        elif self.edges.path(b.end, a.begin):
            self.ordered.append((j, i))
        elif infer:
            self.edges.add(a.end, b.begin)
            self.ordered.append((i, j))
            self.inferred.append((i, j))
        else:
            self.unordered.append((min(i, j), max(i, j)))

    def _enter(self, array: _Array, touch: Touch, j: int, turned: int) -> None:
        """Keep j for later touches, and drop those that it stands for.

        `turned` holds the ops that an edge against text order enters. What they reach may have to follow an op that
        comes later in the text, and stands for nothing.
        """
        if touch.mode is not Mode.IN and not (self.edges.above(touch.begin) | 1 << touch.begin) & turned:
            for region in array.neighbours[touch.region]:
                if self.regions.within(region, touch.region):
                    earlier = array.earlier[region]
                    earlier.reads = self._not_before(earlier.reads, touch)
                    earlier.writes = self._not_before(earlier.writes, touch)
        earlier = array.earlier[touch.region]
        (earlier.reads if touch.mode is Mode.IN else earlier.writes).append(j)

    def _not_before(self, indices: list[int], touch: Touch) -> list[int]:
        """Those that `touch` does not stand for: of other ops, and not known to come before it."""
        return [i for i in indices if not (self._same(i, touch) or self.edges.path(self.touches[i].end, touch.begin))]

    def _same(self, i: int, touch: Touch) -> bool:
        return self.touches[i].begin == touch.begin and self.touches[i].end == touch.end


def _storage(touch: Touch) -> str | Region:
    """What it is in: an array, or the staging buffer of its region, which no other region shares."""
    return touch.region if touch.staged else touch.region.array


def unordered(program: Program, lowered: Lowered, pairs: list[tuple[int, int]], findings: list[Diagnostic]) -> None:
    """Adds a diagnostic for each pair of ops and array without an order."""
    reported = set()
    for i, j in sorted(pairs, key=lambda pair: (pair[1], pair[0])):
        a, b = lowered.touches[i], lowered.touches[j]
        u, v = lowered.ops[a.begin], lowered.ops[b.begin]
        first, second = (u.op.name if u.op else u.name), (v.op.name if v.op else v.name)
        if (first, second, a.region.array) not in reported:
            reported.add((first, second, a.region.array))
            findings.append(_finding(first, second, a, b, u.span, v.span, program.explicit))


def undecided(lowered: Lowered, hazards: Hazards, findings: list[Diagnostic]) -> None:
    """Adds a note for each pair of lines whose ops are ordered for slices that may as well lie apart."""
    reported = set()
    for i, j in hazards.inferred:
        a, b = lowered.touches[i], lowered.touches[j]
        comparisons = hazards.regions.undecided(a.region, b.region)
        u, v = lowered.ops[a.begin], lowered.ops[b.begin]
        lines = frozenset(((u.span.file, u.span.start), (v.span.file, v.span.start)))
        if not comparisons or lines in reported:
            continue
        reported.add(lines)
        first, second = (f"`{t.region.text}` of `{op.op.name if op.op else op.name}`" for t, op in ((a, u), (b, v)))
        question = " or ".join(f"`{show(c)}`" for c in comparisons)
        message = f"cannot tell whether {first} and {second} overlap, so one waits for the other: is {question}?"
        help = f"where it is, write `require {show(comparisons[0])}`; it is checked when the program starts"
        if hazards.regions.given_up:
            help += "; there are too many slices and `require`s to compare all of them"
        related = ((u.span, "the first is here"),)
        findings.append(Diagnostic("undecided-overlap", message, v.span, help, Severity.NOTE, related))


def _finding(first: str, second: str, a: Touch, b: Touch, u: Span, v: Span, explicit: bool) -> Diagnostic:
    what = "both write"
    if Mode.IN in (a.mode, b.mode):
        what = "read and write" if a.mode is Mode.IN else "write and read"
    if first == second:
        message = f"`{first}` sends from and receives into overlapping parts of `{a.region.array}`"
        help = "give each message a buffer, or a part, of its own"
    else:
        message = f"`{first}` and `{second}` {what} `{a.region.array}`, and no edge orders them"
        help = f"add the edge `{first} -> {second}`" + (", or drop `edges explicit`" if explicit else "")
    return Diagnostic("unordered-hazard", message, v, help, related=((u, f"`{first}` is here"),))
