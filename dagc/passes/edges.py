"""Edges of the graph: those inside exchanges, those written, and those inferred from conflicts between accesses;
and the reason of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from itertools import pairwise
from typing import TypeAlias

from dagc.base.errors import Diagnostic, Severity
from dagc.base.source import Span
from dagc.ir import program as ir
from dagc.ir.enums import Mode, Pairs, Place, Transport
from dagc.ir.regions import Regions, TooManyRegions
from dagc.ir.sym import show
from dagc.lang.scope import listing
from dagc.passes.messages import Ends, Labelled, LoweredMessages, lower_messages

# ---- reachability ----


class Edges:
    """Completion and issue-order edges over `size` ops. Paths are paths of completion edges.

    The ops above an op are computed when first asked for, and again after an edge above it was added. Asking for ops
    in the order of the edges costs one mask operation per edge.
    """

    def __init__(self, size: int) -> None:
        self._completion: dict[tuple[ir.OpId, ir.OpId], None] = {}
        self._order: dict[tuple[ir.OpId, ir.OpId], None] = {}
        self._before: list[list[ir.OpId]] = [[] for _ in range(size)]
        self._after: list[list[ir.OpId]] = [[] for _ in range(size)]
        self._above: list[int | None] = [None] * size  # ops that reach it; None: not computed, nor for any op below

    def __len__(self) -> int:
        """The number of ops."""
        return len(self._before)

    @property
    def completion(self) -> tuple[tuple[ir.OpId, ir.OpId], ...]:
        return tuple(sorted(self._completion))

    @property
    def order(self) -> tuple[tuple[ir.OpId, ir.OpId], ...]:
        return tuple(sorted(e for e in self._order if e not in self._completion))

    def path(self, u: ir.OpId, v: ir.OpId) -> bool:
        """Whether u == v, or a path of completion edges leads from u to v. There must be no cycle."""
        return u == v or bool(self.above(v) >> u & 1)

    def above(self, op: ir.OpId) -> int:
        """The ops that reach `op`, as a mask. There must be no cycle."""
        known = self._above[op]
        return known if known is not None else self._work_out(op)

    def add(self, u: ir.OpId, v: ir.OpId) -> None:
        """Add a completion edge. One that closes a cycle is accepted: `cycle` finds it."""
        if (u, v) in self._completion:
            return
        self._completion[u, v] = None
        self._before[v].append(u)
        self._after[u].append(v)
        known, more = self._above[v], self._above[u]
        if known is not None:
            self._above[v] = None if more is None else known | more | 1 << u
            if self._above[v] != known:
                self._forget_below(v)

    def add_order(self, u: ir.OpId, v: ir.OpId) -> None:
        """u is issued before v."""
        self._order[u, v] = None

    def backward(self) -> int:
        """The ops that a completion edge enters from an op of a greater number, as a mask."""
        return sum(1 << v for v in {v for u, v in self._completion if u > v})

    def _work_out(self, op: ir.OpId) -> int:
        above = self._above
        stack = [op]
        while stack:
            last = stack[-1]
            if above[last] is not None:
                stack.pop()
                continue
            missing = [u for u in self._before[last] if above[u] is None]
            if missing:
                stack += missing
                continue
            mask = 0
            for u in self._before[last]:
                mask |= (above[u] or 0) | 1 << u
            above[last] = mask
        return above[op] or 0

    def _forget_below(self, op: ir.OpId) -> None:
        stack = [op]
        while stack:
            for w in self._after[stack.pop()]:
                if self._above[w] is not None:
                    self._above[w] = None
                    stack.append(w)

    def sorted(self, *, issued: bool = False) -> list[ir.OpId]:
        """All ops in a topological order of the completion edges, with `issued` of both kinds, small numbers first.
        There must be no cycle."""
        waits = [len(before) for before in self._before]
        more: dict[ir.OpId, list[ir.OpId]] = {}
        for u, v in self._order if issued else ():
            more.setdefault(u, []).append(v)
            waits[v] += 1
        ready = [ir.OpId(op) for op, count in enumerate(waits) if not count]
        out: list[ir.OpId] = []
        while ready:
            op = heappop(ready)
            out.append(op)
            for after in (*self._after[op], *more.get(op, ())):
                waits[after] -= 1
                if not waits[after]:
                    heappush(ready, after)
        return out

    def cycle(self) -> list[ir.OpId]:
        """Ops of one cycle of edges of either kind, in order; empty if there is none."""
        after: dict[ir.OpId, list[ir.OpId]] = {}
        for u, v in (*self._completion, *self._order):
            after.setdefault(u, []).append(v)
        state: dict[ir.OpId, int] = {}
        for root in sorted(after):
            path: list[ir.OpId] = []
            stack: list[tuple[ir.OpId, bool]] = [(root, False)]
            while stack:
                op, leaving = stack.pop()
                if leaving:
                    state[op] = 2
                    path.pop()
                    continue
                if state.get(op) == 1:
                    return path[path.index(op) :]
                if state.get(op) == 2:
                    continue
                state[op] = 1
                path.append(op)
                stack.append((op, True))
                stack += [(v, False) for v in reversed(after.get(op, []))]
        return []


# ---- conflicts ----

LIMIT = 3_000_000  # conflicts that are examined


class TooManyConflicts(Exception):
    """More than LIMIT accesses to one array conflict, or the array has too many slices to compare."""

    def __init__(self, array: str, why: str) -> None:
        super().__init__(array, why)
        self.array, self.why = array, why


@dataclass(slots=True)
class _Earlier:
    """Earlier accesses to one region that a later access may conflict with, by their indices."""

    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)  # of Mode.ACCUMULATE

    def of(self, mode: Mode) -> list[int]:
        """Those that an access of this mode joins."""
        return {Mode.IN: self.reads, Mode.ACCUMULATE: self.sums}.get(mode, self.writes)


@dataclass(slots=True)
class _Array:
    """One array, or one staging buffer: its regions, and for each the regions that may share elements with it."""

    earlier: dict[ir.Region, _Earlier]
    near: dict[ir.Region, list[tuple[ir.Region, _Earlier]]]


class Hazards:
    """Finds the pairs of touches that conflict: they touch the same array in regions that may overlap, and one writes,
    unless both add to it; or they use the same staging buffer.

    A pair that follows from two others is omitted: if i comes before j, and j writes all that i touches, then whatever
    conflicts with i later also conflicts with j. So a chain of n ops has n - 1 pairs, not n (n - 1) / 2. If j adds, a
    later addition conflicts with i and not with j, so none is omitted.
    """

    def __init__(self, program: ir.Program, lowered: LoweredMessages, edges: Edges) -> None:
        """The written edges must have no cycle. Raises TooManyConflicts."""
        self.touches, self.edges = lowered.touches, edges
        both = ((op.id, op.op) for op in lowered.ops)
        kinds = ir.ExchangeOp | ir.CollectiveOp
        pairs = {n: x for n, x in both if isinstance(x, kinds) and x.pairs is not Pairs.ALL}
        self._exchanges = {n: x for n, x in pairs.items() if x.within is not None}  # in two halves
        self.ordered: list[tuple[int, int]] = []  # pairs of indices into touches, in order of execution
        self.inferred: list[tuple[int, int]] = []  # the pairs of `ordered` that got an edge
        self.unordered: list[tuple[int, int]] = []  # pairs without an order, in text order
        self._halves: set[tuple[str, Pairs, ir.Region]] = set()  # the accesses in `_exchanges` that were entered
        self.regions = Regions.of(program)
        self._arrays = self._by_array()
        self._looked_at = 0

    def run(self, *, infer: bool) -> None:
        """Find all conflicts. With `infer`, a pair that no path orders gets an edge in text order; nearest pairs first,
        so that no edge repeats a path. Raises TooManyConflicts."""
        # Where text order means nothing, an order of the edges replaces it: an op is visited after all that reach it.
        order = range(len(self.edges)) if infer else self.edges.sorted()
        place = {op: k for k, op in enumerate(order)}
        turned = self.edges.backward() if infer else 0
        for j in sorted(range(len(self.touches)), key=lambda j: (place[self.touches[j].begin], j)):
            touch = self.touches[j]
            array = self._arrays[_storage(touch)]
            for i in sorted(self._conflicting(array, touch), reverse=True):
                self._order(i, j, infer)
            self._enter(array, touch, j, turned)

    def _by_array(self) -> dict[str | ir.Region, _Array]:
        regions: dict[str | ir.Region, dict[ir.Region, None]] = {}
        for touch in self.touches:
            regions.setdefault(_storage(touch), {})[touch.region] = None
        out: dict[str | ir.Region, _Array] = {}
        for storage, accesses in regions.items():
            try:
                neighbours = self.regions.neighbours(accesses)
            except TooManyRegions:
                array = next(iter(accesses)).array
                raise TooManyConflicts(array, f"has {len(accesses)} slices, more than can be compared") from None
            earlier = {r: _Earlier() for r in accesses}
            near = {r: [(other, earlier[other]) for other in overlapping] for r, overlapping in neighbours.items()}
            out[storage] = _Array(earlier, near)
        return out

    def _conflicting(self, array: _Array, touch: ir.Touch) -> Iterator[int]:
        for _, earlier in array.near[touch.region]:
            for candidates in (earlier.writes, earlier.reads, earlier.sums):
                if candidates is earlier.of(touch.mode) and touch.mode.commutes(touch.mode):
                    continue
                self._looked_at += len(candidates)
                if self._looked_at > LIMIT:
                    raise TooManyConflicts(touch.region.array, f"has more than {LIMIT} pairs of accesses that conflict")
                for i in candidates:
                    if not (self._same(i, touch) or self._of_other_pairs(i, touch)):
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

    def _enter(self, array: _Array, touch: ir.Touch, j: int, turned: int) -> None:
        """Keep j for later touches, and drop those that it covers.

        `turned` holds the ops that an edge against text order enters. What they reach may have to follow an op that
        comes later in the text, so it covers nothing. Neither does the first half of an exchange, for which the
        other half does not wait.
        """
        covers = touch.mode in (Mode.OUT, Mode.INOUT) and self._is_whole(touch)
        if covers and not (self.edges.above(touch.begin) | 1 << touch.begin) & turned:
            for region, earlier in array.near[touch.region]:
                if (earlier.reads or earlier.writes or earlier.sums) and self.regions.within(region, touch.region):
                    earlier.reads = self._not_before(earlier.reads, touch)
                    earlier.writes = self._not_before(earlier.writes, touch)
                    earlier.sums = self._not_before(earlier.sums, touch)
        array.earlier[touch.region].of(touch.mode).append(j)

    def _not_before(self, indices: list[int], touch: ir.Touch) -> list[int]:
        """The earlier accesses that `touch` does not cover: those of other ops that are not known to come before it."""
        return [i for i in indices if not (self._same(i, touch) or self.edges.path(self.touches[i].end, touch.begin))]

    def _is_whole(self, touch: ir.Touch) -> bool:
        """Whether what conflicts with an access of all pairs has been ordered with this one too: it is of all pairs, or
        that of the other ones was entered before."""
        op = self._exchanges.get(touch.end)
        if op is None:
            return True
        region = touch.region.unshared
        self._halves.add((op.name, op.pairs, region))
        return all((op.name, pairs, region) in self._halves for pairs in (Pairs.WITHIN_HOST, Pairs.BETWEEN_HOSTS))

    def _of_other_pairs(self, i: int, touch: ir.Touch) -> bool:
        """Whether both are of one exchange, one of the messages within hosts and one of those between them. On a rank,
        each message is one or the other, and messages of an exchange have disjoint buffers."""
        a, b = self._exchanges.get(self.touches[i].end), self._exchanges.get(touch.end)
        return a is not None and b is not None and a.name == b.name and a.pairs is not b.pairs

    def _same(self, i: int, touch: ir.Touch) -> bool:
        return self.touches[i].begin == touch.begin and self.touches[i].end == touch.end


def _storage(touch: ir.Touch) -> str | ir.Region:
    """The storage of an access: an array, or the staging buffer of its region, which no other region shares."""
    return touch.region.unshared if touch.staged else touch.region.array


def unordered(
    program: ir.Program, lowered: LoweredMessages, pairs: list[tuple[int, int]], findings: list[Diagnostic]
) -> None:
    """Add a diagnostic for each pair of ops and array without an order."""
    reported = set()
    for i, j in sorted(pairs, key=lambda pair: (pair[1], pair[0])):
        a, b = lowered.touches[i], lowered.touches[j]
        u, v = lowered.ops[a.begin], lowered.ops[b.begin]
        first, second = (u.op.name if u.op else u.name), (v.op.name if v.op else v.name)
        if (first, second, a.region.array) not in reported:
            reported.add((first, second, a.region.array))
            findings.append(_finding(first, second, a, b, u.span, v.span, program.explicit))


def undecided(lowered: LoweredMessages, hazards: Hazards, findings: list[Diagnostic]) -> None:
    """Add a note for each pair of lines that are ordered because of regions that may or may not overlap."""
    reported = set()
    for i, j in (*hazards.inferred, *_received(lowered, hazards.regions)):
        a, b = lowered.touches[i], lowered.touches[j]
        comparisons, unbounded = hazards.regions.undecided(a.region, b.region), _unbounded(a.region, b.region)
        u, v = lowered.ops[a.begin], lowered.ops[b.begin]
        lines = frozenset(((u.span.file, u.span.start), (v.span.file, v.span.start)))
        if not (comparisons or unbounded) or lines in reported:
            continue
        reported.add(lines)
        first, second = (f"`{t.region.text}` of `{op.op.name if op.op else op.name}`" for t, op in ((a, u), (b, v)))
        message = f"cannot decide whether {first} and {second} overlap, so one waits for the other"
        if unbounded:
            message += f": `{unbounded}` has no bounds"
            help = f"give `{unbounded}` bounds, or declare both as parts without bounds, which are taken as disjoint"
        else:
            message += f": is {' or '.join(f'`{show(c)}`' for c in comparisons)}?"
            help = f"if so, write `require {show(comparisons[0])}`; it is checked when the program starts"
            if hazards.regions.given_up:
                help += "; there are too many slices and `require`s to compare all of them"
        related = ((u.span, "the first is here"),)
        findings.append(Diagnostic("undecided-overlap", message, v.span, help, Severity.NOTE, related))


def _received(lowered: LoweredMessages, regions: Regions) -> Iterator[tuple[int, int]]:
    """The receives whose copy to the device is part of an op that may touch none of what is received."""
    receives = {t.region.unshared: i for i, t in enumerate(lowered.touches) if t.staged and t.mode is Mode.OUT}
    fused = {op.id: [receives[s.region] for s in op.copy_in] for op in lowered.ops if op.copy_in}
    touched: dict[ir.OpId, list[int]] = {}
    for j, touch in enumerate(lowered.touches):
        if touch.begin in fused and not touch.staged:
            touched.setdefault(touch.begin, []).append(j)
    for op, received in fused.items():
        for i in received:
            region = lowered.touches[i].region
            near = [j for j in touched[op] if lowered.touches[j].region.array == region.array]
            reads = [j for j in near if lowered.touches[j].mode is not Mode.OUT]
            met = [j for j in reads if regions.overlap(region, lowered.touches[j].region)]
            others = (lowered.touches[j].region for j in met)
            if all(_unbounded(region, other) or regions.undecided(region, other) for other in others):
                yield from ((i, j) for j in met)


def _unbounded(a: ir.Region, b: ir.Region) -> str | None:
    """The part without bounds of two regions, where the other is a slice that may lie outside of it."""
    part, slice_ = (a, b) if a.part is not None else (b, a)
    return part.part if slice_.start is not None else None


def shared_states(lowered: LoweredMessages, hazards: Hazards, findings: list[Diagnostic]) -> None:
    """Add a note for each variable that no header names and that got ops an order."""
    kernels = [op.kernel for op in lowered.ops if op.kernel is not None]
    states = {state.name: (state, op.span) for op in kernels for state in op.states}
    inferred = {lowered.touches[j].region.array for _, j in hazards.inferred}
    for name, (state, span) in states.items():
        if name not in inferred:
            continue
        ops = dict.fromkeys(lowered.ops[t.begin].name for t in lowered.touches if t.region.array == name)
        message = f"{listing([f'`{op}`' for op in ops], 6)} use `{name}`, which no header names: they run in text order"
        help = "to declare it, make it an array argument of the kernels"
        findings.append(
            Diagnostic("undeclared-state", message, span, help, Severity.NOTE, ((state.span, "it is declared here"),))
        )


def against_text(
    program: ir.Program, lowered: LoweredMessages, hazards: tuple[tuple[int, int], ...], findings: list[Diagnostic]
) -> None:
    """Add a diagnostic for each array `on any` of which written edges order two accesses against text order: which of
    its two sides is valid where follows from text order."""
    places = {array.name: array for array in program.arrays if array.place is Place.ANY}
    for i, j in hazards:
        a, b = lowered.touches[i], lowered.touches[j]
        array = places.get(a.region.array) if a.begin > b.begin else None
        if array is not None:
            del places[array.name]
            u, v = lowered.ops[a.begin], lowered.ops[b.begin]
            message = f"an edge orders `{u.name}` before `{v.name}`, but the copies of `{array.name}` follow text order"
            related = ((v.span, f"`{v.name}` is here"), (array.span, "declared here"))
            help = f"write `{u.name}` before `{v.name}`, or drop the edge"
            findings.append(Diagnostic("explicit-any", message, u.span, help, related=related))


def _finding(first: str, second: str, a: ir.Touch, b: ir.Touch, u: Span, v: Span, explicit: bool) -> Diagnostic:
    what = "both write"
    if Mode.IN in (a.mode, b.mode):
        what = "read and write" if a.mode is Mode.IN else "write and read"
    if first == second:
        message = f"`{first}` sends from and receives into overlapping parts of `{a.region.array}`"
        help = "give each message its own buffer or part"
    else:
        message = f"`{first}` and `{second}` {what} `{a.region.array}`, and no edge orders them"
        help = f"add the edge `{first} -> {second}`" + (", or drop `edges explicit`" if explicit else "")
    return Diagnostic("unordered-hazard", message, v, help, related=((u, f"`{first}` is here"),))


# ---- edges ----


def written(program: ir.Program, lowered: LoweredMessages, findings: list[Diagnostic]) -> Edges | None:
    """The edges inside exchanges and those of the text. A cycle becomes a diagnostic, and the result None."""
    edges = Edges(len(lowered.ops))
    for u, v in lowered.inner:
        edges.add(u, v)
    for u, v in lowered.before:
        edges.add_order(u, v)
    for edge in program.edges:
        for u in leaving(lowered.ends[edge.u.op], edge.u):
            for v in entering(lowered.ends[edge.v.op], edge.v):
                if edge.completion:
                    edges.add(u, v)
                else:
                    edges.add_order(u, v)
    return None if _has_cycle(program, lowered, edges, findings) else edges


def connect(
    program: ir.Program, lowered: LoweredMessages, edges: Edges, findings: list[Diagnostic]
) -> tuple[tuple[int, int], ...]:
    """Order all hazards, by edges inferred unless `edges explicit`, then groups of several NCCL communicators, and add
    the edges into `end`.

    Returns the hazards as pairs of touches, in order of execution. A pair without an order becomes a diagnostic, as
    does a cycle of inferred edges with `before`.
    """
    hazards: tuple[tuple[int, int], ...] = ()
    try:
        analysis = Hazards(program, lowered, edges)
        analysis.run(infer=not program.explicit)
    except TooManyConflicts as error:
        findings.append(_too_many(lowered, error))
    else:
        hazards = tuple(analysis.ordered)
        unordered(program, lowered, analysis.unordered, findings)
        undecided(lowered, analysis, findings)
        shared_states(lowered, analysis, findings)
        against_text(program, lowered, hazards, findings)
        if not _has_cycle(program, lowered, edges, findings):
            _one_by_one(lowered, edges)
    end = ir.OpId(len(lowered.ops) - 1)
    followed = {u for u, _ in edges.completion}
    for op in lowered.ops:
        if op.action is not ir.Action.END and op.id not in followed:
            edges.add(op.id, end)
    return hazards


def _one_by_one(lowered: LoweredMessages, edges: Edges) -> None:
    """Order all groups of NCCL if they belong to several communicators.

    NCCL orders the groups of one communicator. Those of several must run in one order on all GPUs: two that wait for
    each other's rank, each on a GPU that the other occupies, would never end (NCCL User Guide, "Using multiple NCCL
    communicators concurrently").
    """
    all_groups = (op for op in lowered.ops if op.action is ir.Action.GROUP)
    groups = {op.id: op.comm for op in all_groups if op.transport is Transport.NCCL}
    if len({*groups.values()}) < 2:
        return
    for u, v in pairwise(op for op in edges.sorted(issued=True) if op in groups):
        if not edges.path(u, v):
            edges.add(u, v)


def _too_many(lowered: LoweredMessages, error: TooManyConflicts) -> Diagnostic:
    first = next(t for t in lowered.touches if t.region.array == error.array)
    help = "use several arrays, or fewer and larger ops, and write edges in text order"
    return Diagnostic("too-many-ops", f"array `{error.array}` {error.why}", lowered.ops[first.begin].span, help)


def leaving(several: Iterable[Ends], end: ir.EdgeEnd) -> list[ir.OpId]:
    """The lowered ops at which an edge out of this end of an exchange starts: its last ones."""
    return _pick(((ends.last_send, ends.last_recv) for ends in several), end)


def entering(several: Iterable[Ends], end: ir.EdgeEnd) -> list[ir.OpId]:
    """The lowered ops at which an edge into this end of an exchange arrives: its first ones."""
    return _pick(((ends.first_send, ends.first_recv) for ends in several), end)


def _pick(several: Iterable[Sequence[Labelled]], end: ir.EdgeEnd) -> list[ir.OpId]:
    sides = {ir.End.SEND: slice(0, 1), ir.End.RECV: slice(1, 2), ir.End.WHOLE: slice(0, 2)}[end.end]
    tables = (table for both in several for table in both[sides])
    ops = [op for table in tables for label, op in table if end.message is None or label == end.message]
    return list(dict.fromkeys(ops))


def _has_cycle(program: ir.Program, lowered: LoweredMessages, edges: Edges, findings: list[Diagnostic]) -> bool:
    cycle = edges.cycle()
    if cycle:
        findings.append(_cycle(program, lowered, cycle))
    return bool(cycle)


def _cycle(program: ir.Program, lowered: LoweredMessages, cycle: list[ir.OpId]) -> Diagnostic:
    names = [lowered.ops[op].name for op in cycle]
    span = lowered.ops[cycle[0]].span
    written = {op.op.name for op in (lowered.ops[i] for i in cycle) if op.op is not None}
    for edge in program.edges:  # point at an edge of the cycle where one was written
        if edge.u.op in written and edge.v.op in written:
            span = edge.span
            break
    message = "these ops wait for each other: " + " -> ".join(f"`{n}`" for n in [*names, names[0]])
    return Diagnostic("cycle", message, span, "remove or reverse one of the edges")


# ---- the reason of each edge ------------------------------------------------------------------------


Pair: TypeAlias = tuple[ir.OpId, ir.OpId]


class Why(Enum):
    """The kind of a reason; the text is used in reports."""

    WRITTEN = "written"
    RAW = "RAW"
    WAR = "WAR"
    WAW = "WAW"
    MESSAGE = "message"
    END = "end"
    ROUNDS = "rounds"  # the rounds of a loop and what stands around it are issued one after the other


HAZARDS = frozenset((Why.RAW, Why.WAR, Why.WAW))


@dataclass(frozen=True, slots=True)
class EdgeReason:
    """One reason for an edge u -> v.

    text   a sentence: "`pack` writes `x_send`, then `x.send` reads it"
    first  of a hazard: the region that u accesses, and `second` the region that v accesses
    spans  places in the text: the edge as written, or the two ops
    """

    why: Why
    text: str
    spans: tuple[Span, ...] = ()
    first: ir.Region | None = None
    second: ir.Region | None = None


def reasons(graph: ir.Graph) -> dict[Pair, tuple[EdgeReason, ...]]:
    """The reasons of every edge: of completion, of issue order, and in a folded graph of those that are carried from
    one round to a later one. At least one each. Reasons of a folded edge are those of its first instance.
    """
    if graph.folding is None:
        return _unfolded(graph)
    return _folded(graph, _unfolded(graph.folding.unrolled))


def carried(graph: ir.Graph) -> Mapping[Pair, int]:
    """The loop-carried edges of a folded graph, with their shortest distance in rounds."""
    out: dict[Pair, int] = {}
    for segment in graph.folding.segments if graph.folding is not None else ():
        for u, v, distance in segment.carried:
            out[u, v] = min(distance, out.get((u, v), distance))
    return out


# ---- without folding ------------------------------------------------------------------------


def _unfolded(graph: ir.Graph) -> dict[Pair, tuple[EdgeReason, ...]]:
    reasons: dict[Pair, dict[EdgeReason, None]] = {edge: {} for edge in (*graph.completion, *graph.order)}
    for edge, reason in (*_written(graph), *_hazards(graph)):
        if edge in reasons:
            reasons[edge].setdefault(reason)
    for (u, v), known in reasons.items():
        if not known:
            known[_otherwise(graph.ops[u], graph.ops[v], bool(graph.phases))] = None
    return {edge: tuple(known) for edge, known in reasons.items()}


def _written(graph: ir.Graph) -> Iterator[tuple[Pair, EdgeReason]]:
    """The reasons of edges of the text. One edge between exchanges stands for several."""
    ends = lower_messages(graph.program, graph.staging).ends if graph.program.edges else {}
    for edge in graph.program.edges:
        source = graph.program.sources[edge.span.file]
        words = " ".join(source.text[edge.span.start : edge.span.end].split())
        reason = EdgeReason(Why.WRITTEN, f"`{words}`", (edge.span,))
        for u in leaving(ends[edge.u.op], edge.u):
            for v in entering(ends[edge.v.op], edge.v):
                yield (u, v), reason


def _hazards(graph: ir.Graph) -> Iterator[tuple[Pair, EdgeReason]]:
    for i, j in graph.hazards:
        a, b = graph.touches[i], graph.touches[j]
        u, v = graph.ops[a.end], graph.ops[b.begin]
        yield (a.end, b.begin), _hazard(a, b, u, v)


def _hazard(a: ir.Touch, b: ir.Touch, u: ir.GraphOp, v: ir.GraphOp) -> EdgeReason:
    writes, reads = a.mode is not Mode.IN, b.mode is not Mode.OUT
    why = Why.RAW if writes and reads else Why.WAW if writes else Why.WAR
    first, second = ("writes" if writes else "reads"), ("reads" if why is Why.RAW else "writes")
    buffer = "the staging buffer of " if a.staged else ""
    then = "it" if a.region == b.region else f"`{b.region.text}`, which may share elements with it"
    text = f"`{u.name}` {first} {buffer}`{a.region.text}`, then `{v.name}` {second} {then}"
    return EdgeReason(why, text, (u.span, v.span), a.region, b.region)


def _otherwise(u: ir.GraphOp, v: ir.GraphOp, in_order: bool) -> EdgeReason:
    """The reason of an edge that comes neither from the text nor from a hazard."""
    if u.action is v.action is ir.Action.GROUP:
        text = (
            f"`{u.name}` and `{v.name}` are on different NCCL communicators, whose groups run in one order on all GPUs"
        )
        return EdgeReason(Why.MESSAGE, text, (u.span, v.span))
    if v.action is ir.Action.END:
        return EdgeReason(Why.END, f"the iteration ends after `{u.name}`")
    if in_order:
        return EdgeReason(Why.ROUNDS, "one kernel does the ops in the order of the text")
    return EdgeReason(Why.MESSAGE, f"inside the exchange or collective, `{u.name}` comes before `{v.name}`", (u.span,))


# ---- folded ---------------------------------------------------------------------------------


def _folded(graph: ir.Graph, unrolled: Mapping[Pair, tuple[EdgeReason, ...]]) -> dict[Pair, tuple[EdgeReason, ...]]:
    """The reasons of each folded edge: those of its first instance."""
    assert graph.folding is not None
    image = {
        instance: op
        for segment in graph.folding.segments
        for ops in segment.rounds
        for op, instance in zip(segment.ops, ops, strict=True)
    }
    wanted = {*graph.completion, *graph.order, *graph.folding.crossing, *carried(graph)}
    out: dict[Pair, tuple[EdgeReason, ...]] = {}
    for (u, v), known in sorted(unrolled.items()):
        edge = (image[u], image[v])
        if edge in wanted:
            out.setdefault(edge, known)
    between = (EdgeReason(Why.ROUNDS, "ops before, in and after a loop are issued in that order"),)
    return {edge: out.get(edge, between) for edge in sorted(wanted)}
