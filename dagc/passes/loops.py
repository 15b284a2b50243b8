"""Folds loops: replaces all iterations of a loop by one period, if they do the same work in the same order; and
joins consecutive iterations of a whole graph.

A folded loop is a run of consecutive iterations of an outermost `for`, in rounds of p iterations (the period). Each
round has the same ops and the same edges as the one before: edges within the round, and edges to earlier rounds. Names
of arrays are ignored, so two alternating buffers do not double the period. A `for` whose iterations are independent is
not folded, and iterations that differ (the first, the last) stay unrolled, before or after the loop; those that are
alike again are a loop of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, product
from typing import TypeAlias

from dagc.ir.enums import CodeLang
from dagc.ir.plan import kernel_as_written, variants_of
from dagc.ir.program import Action, CopyOp, Folding, Graph, GraphOp, Loop, OpId, Region, Segment, Touch, folded_name
from dagc.passes.edges import Edges, Hazards, TooManyConflicts
from dagc.passes.messages import LoweredMessages

LEAST = 3  # rounds: fewer are not folded
LONGEST = 16  # iterations of a period
FARTHEST = 4  # rounds spanned by an edge
FRONT = 4  # iterations before the first round
_TRIED = 8  # candidates of a loop that is not folded, to find the reason

# (op before, op after, rounds between, whether v waits for completion); ops by their place in the period.
_Edge: TypeAlias = tuple[int, int, int, bool]
# Rounds of a loop: the ops of each, by their place in the period.
_Rounds: TypeAlias = list[list[int]]


@dataclass(frozen=True, slots=True)
class _Run:
    """A loop to be folded. `values`: of the loop variable at the beginning of each round."""

    variable: str
    values: tuple[int, ...]
    rounds: _Rounds
    edges: frozenset[_Edge]


def fold(graph: Graph) -> Graph:
    """The graph with one period of each of its loops; the graph itself if it has none."""
    found = _found(graph)
    return graph if found is None else found.graph()


def _found(graph: Graph) -> _Fold | None:
    """All loops; if an edge leads back from one part of a `for` to another, only the longest of each `for`."""
    loops = [(loop, turns) for loop, turns in _turns(graph) if len(turns) >= LEAST and _counts(loop)]
    if not loops:
        return None
    neighbours = _Neighbours(graph)
    runs = [tuple(_runs(graph, loop, turns, neighbours)) for loop, turns in loops]
    for some in ([run for of_loop in runs for run in of_loop], [run for of_loop in runs for run in of_loop[:1]]):
        found = _Fold(graph, some)
        if some and found.backwards() is None:
            return found
    return None


# ---- recognition ----------------------------------------------------------------------------


def _turns(graph: Graph) -> Iterable[tuple[Loop, list[list[int]]]]:
    """For each loop of the program, the ops of each iteration."""
    turn_of = {
        name: (number, place)
        for number, loop in enumerate(graph.program.loops)
        for place, turn in enumerate(loop.turns)
        for name in turn.ops
    }
    ops: dict[tuple[int, int], list[int]] = {}
    inserted: list[int] = []  # copies inserted before an op by the compiler; they belong to its iteration
    for op in graph.ops:
        turn = None if op.op is None else turn_of.get(op.op.name)
        if turn is not None:
            ops.setdefault(turn, []).extend((*inserted, int(op.id)))
        if turn is None and getattr(op.op, "inserted", False):
            inserted.append(int(op.id))
        else:
            inserted = []
    for number, loop in enumerate(graph.program.loops):
        yield loop, [ops.get((number, place), []) for place in range(len(loop.turns))]


def _counts(loop: Loop) -> bool:
    """Whether its variable counts up by one."""
    return all(b.value - a.value == 1 for a, b in pairwise(loop.turns))


def _runs(graph: Graph, loop: Loop, turns: _Rounds, neighbours: _Neighbours) -> Iterator[_Run]:
    """The longest run of the iterations of a loop, then those of the iterations before it and after it."""
    run = _Search(graph, loop, turns, neighbours).run() if len(turns) >= LEAST else None
    if run is None:
        return
    yield run
    inside = {op for ops in run.rounds for op in ops}
    used = [at for at, ops in enumerate(turns) if inside.intersection(ops)]
    for part in (slice(0, used[0]), slice(used[-1] + 1, len(turns))):
        yield from _runs(graph, replace(loop, turns=loop.turns[part]), turns[part], neighbours)


class _Neighbours:
    """The edges of a graph: the ops `before` each op, with whether it waits for their completion, and `after` it."""

    def __init__(self, graph: Graph) -> None:
        self.before: list[list[tuple[int, bool]]] = [[] for _ in graph.ops]
        self.after: list[list[int]] = [[] for _ in graph.ops]
        for completes, edges in ((True, graph.completion), (False, graph.order)):
            for u, v in edges:
                self.before[v].append((int(u), completes))
                self.after[u].append(int(v))


class _Search:
    """Searches a loop for the longest run of iterations; ties go to the shortest period, then to the first."""

    def __init__(self, graph: Graph, loop: Loop, turns: _Rounds, neighbours: _Neighbours) -> None:
        self.graph, self.loop, self.turns = graph, loop, turns
        self.kind = {i: _kind(graph.ops[i]) for turn in turns for i in turn}
        self.before, self.after = neighbours.before, neighbours.after

    def run(self) -> _Run | None:
        best: _Run | None = None
        most = 0
        for front, count, period in self._candidates():
            if count * period > most:
                run = self._extended(front, count, period)
                if run is not None and len(run.rounds) * period > most:
                    best, most = run, len(run.rounds) * period
        return best

    def _candidates(self) -> Iterator[tuple[int, int, int]]:
        """(first iteration, rounds, period): rounds with the same ops, by period."""
        numbers: dict[tuple[object, ...], int] = {}
        alike = [numbers.setdefault(tuple(self.kind[i] for i in turn), len(numbers)) for turn in self.turns]
        for period in range(1, min(LONGEST, len(alike) // LEAST) + 1):
            for front in range(min(FRONT, len(alike) - LEAST * period + 1)):
                end = front + period
                while end < len(alike) and alike[end] == alike[end - period]:
                    end += 1
                yield front, (end - front) // period, period

    def _extended(self, front: int, count: int, period: int) -> _Run | None:
        """The rounds from iteration `front` with equal edges, and the round before and after them if these only have
        more ops or fewer edges. Additional ops are placed before or after the loop; an edge that such a round lacks is
        an additional constraint.
        """
        rounds = [self._round(front + i * period, period) for i in range(count)]
        known = self._alike(rounds)
        if len(rounds) < LEAST - 2 or not rounds:
            return None
        kinds = [self.kind[i] for i in rounds[0]]
        main = len(rounds)
        for at, last in ((front - period, False), (front + main * period, True)):
            if at < 0 or at + period > len(self.turns):
                continue
            ops = self._round(at, period)
            chosen = _subsequence(kinds, [self.kind[i] for i in ops])
            if chosen is None or self._needed(ops, chosen, last):
                continue
            more = [ops[place] for place in chosen]
            longer = [*rounds, more] if last else [more, *rounds]
            edges = frozenset[_Edge]().union(*self._edges(longer))
            if all(e in known or e[2] >= main for e in edges) and _bounded(edges):
                rounds, known = longer, known | edges
                front = front if last else at
        if len(rounds) < LEAST or not any(distance and completes for _, _, distance, completes in known):
            return None
        first = self.loop.turns[front].value
        return _Run(self.loop.variable, tuple(range(first, first + len(rounds) * period, period)), rounds, known)

    def _round(self, at: int, period: int) -> list[int]:
        return [i for turn in self.turns[at : at + period] for i in turn]

    def _needed(self, ops: Sequence[int], chosen: Sequence[int], last: bool) -> bool:
        """Whether an op of the loop depends on an op placed after the loop, or an op placed before it on one of the
        loop."""
        inside = {ops[place] for place in chosen}
        left = [i for i in ops if i not in inside]
        if last:
            return any(v in inside for i in left for v in self.after[i])
        return any(u in inside for i in left for u, _ in self.before[i])

    def _edges(self, rounds: _Rounds) -> Iterable[frozenset[_Edge]]:
        """For each round, the edges into it."""
        place = {op: (number, at) for number, ops in enumerate(rounds) for at, op in enumerate(ops)}
        for number, ops in enumerate(rounds):
            yield frozenset(
                (place[u][1], at, number - place[u][0], completes)
                for at, v in enumerate(ops)
                for u, completes in self.before[v]
                if u in place
            )

    def _alike(self, rounds: _Rounds) -> frozenset[_Edge]:
        """Drop the rounds from the first one whose edges differ from those of the round before. Returns the edges of
        the others."""
        at, known, _ = self._unlike(rounds)
        del rounds[at:]
        return known

    def _unlike(self, rounds: _Rounds) -> tuple[int, frozenset[_Edge], frozenset[_Edge]]:
        """The first round whose edges differ from those of the round before (the number of rounds if there is none),
        the edges of the round before, and its own.

        The first rounds lack the edges from rounds before the loop; they count as equal.
        """
        known: frozenset[_Edge] = frozenset()
        for number, edges in enumerate(self._edges(rounds)):
            if (number and _near(edges, number) != known) or not _bounded(edges):
                return number, known, edges
            known = edges
        return len(rounds), known, known

    # ---- why there is none --------------------------------------------------------------

    def why(self) -> tuple[str, str] | None:
        """Why iterations that depend on each other are not rounds of a loop, and what to change; None if they are."""
        if not _counts(self.loop):
            variable = self.loop.variable
            return f"the values of `{variable}` do not count up by one", f"write `for {variable} in a .. b`"
        equal = sorted((c for c in self._candidates() if c[1] >= LEAST), key=lambda c: (-c[1] * c[2], c[2]))
        if not equal:
            return self._other_ops()
        tried = [[self._round(front + i * period, period) for i in range(n)] for front, n, period in equal[:_TRIED]]
        rounds, (at, known, edges) = max(
            ((rounds, self._unlike(rounds)) for rounds in tried), key=lambda found: found[1][0] * len(found[0][0])
        )
        return self._other_edges(rounds, at, known, edges) if at < len(rounds) else None

    def _other_ops(self) -> tuple[str, str] | None:
        """The two neighbours closest to the middle that have other ops."""
        kinds = [[self.kind[i] for i in turn] for turn in self.turns]
        pairs = [at for at in range(1, len(kinds)) if kinds[at] != kinds[at - 1]]
        if not pairs:
            return None
        at = min(pairs, key=lambda at: abs(2 * at - len(kinds)))
        before, after = self.turns[at - 1], self.turns[at]
        more, fewer = self._without(after, before), self._without(before, after)
        help = (
            "give all iterations the same ops, or write those that differ as a `for` of their own; a pattern of up to"
            f" {LONGEST} iterations takes {LEAST} repetitions"
        )
        if any(self.graph.ops[i].action in (Action.STAGE_IN, Action.STAGE_OUT) for i in (*more, *fewer)):
            help = "run more iterations: the copies of the first and of the last may differ; or choose -D staging=ops"
        for a, b in product(more, fewer):
            if self._base(a) == self._base(b):
                return f"{self._name(a)} and {self._name(b)} differ in {self._difference(a, b)}", help
        alone, others = (more, at - 1) if more else (fewer, at)
        if not alone:
            return f"the ops of {self._at(at)} have another order than those of {self._at(at - 1)}", help
        return f"{self._name(alone[0])} has no counterpart in {self._at(others)}", help

    def _without(self, ops: Sequence[int], others: Sequence[int]) -> list[int]:
        left = Counter(self.kind[i] for i in others)
        left.subtract(self.kind[i] for i in ops)
        return [i for i in ops if left[self.kind[i]] < 0]

    def _difference(self, a: int, b: int) -> str:
        one, other = self.graph.ops[a], self.graph.ops[b]
        if one.stream != other.stream:
            return "their stream"
        names = ("device", "variant", "tunables")
        unequal = [name for name in names if getattr(one.op, name, None) != getattr(other.op, name, None)]
        return f"their {unequal[0]}" if unequal else "their place in the text"

    def _other_edges(
        self, rounds: _Rounds, at: int, known: frozenset[_Edge], edges: frozenset[_Edge]
    ) -> tuple[str, str]:
        def waits(edge: _Edge, number: int) -> str:
            u, v, distance, completes = edge
            verb = "waits for" if completes else "is issued after"
            return f"{self._name(rounds[number][v])} {verb} {self._name(rounds[number - distance][u])}"

        help = "access the same slices in every round, or let arrays alternate, as `u[t % 2]` does"
        gone = sorted(known - edges)
        new = sorted(_near(edges, at) - known or (e for e in edges if not _bounded([e])))
        if new:
            return f"{waits(new[0], at)}, but nothing like it happens one round earlier", help
        return f"{waits(gone[0], at - 1)}, but nothing like it happens one round later", help

    def _base(self, op: int) -> object:
        return getattr(self.graph.ops[op].op, "base", None), self.graph.ops[op].action

    def _name(self, op: int) -> str:
        return f"`{self.graph.ops[op].name}`"

    def _at(self, turn: int) -> str:
        return f"{self.loop.variable} = {self.loop.turns[turn].value}"


def _near(edges: frozenset[_Edge], number: int) -> frozenset[_Edge]:
    """The edges into a round that those into the round before it should equal: all that lead so far back there."""
    return frozenset(e for e in edges if e[2] < number) if number else edges


def _bounded(edges: Iterable[_Edge]) -> bool:
    return all(0 <= distance <= FARTHEST for _, _, distance, _ in edges)


def _kind(op: GraphOp) -> tuple[object, ...]:
    """Equal for ops that do the same work, possibly on other data. Fused copies may differ."""
    if isinstance(op.op, CopyOp) and op.op.inserted:  # named after its array, and without a place in the dag
        return op.action, op.gpu, op.op.to_device
    chosen = tuple(getattr(op.op, name, None) for name in ("base", "device", "variant", "tunables"))
    return op.action, op.gpu, op.serves, op.stream, op.span, chosen


def _subsequence(wanted: Sequence[object], given: Sequence[object]) -> list[int] | None:
    """Positions in `given` of the subsequence `wanted`; None if it is not one."""
    out: list[int] = []
    at = 0
    for kind in wanted:
        while at < len(given) and given[at] != kind:
            at += 1
        if at == len(given):
            return None
        out.append(at)
        at += 1
    return out


# ---- the folded graph -----------------------------------------------------------------------


class _Fold:
    """Builds the folded graph. Straight parts keep their ops; loops have the renamed ops of their first round."""

    def __init__(self, graph: Graph, runs: Sequence[_Run]) -> None:
        self.old = graph
        self.ops: list[GraphOp] = []
        self.segments: list[Segment] = []
        self.image: dict[int, tuple[OpId, int, int]] = {}  # op of the unrolled graph -> folded op, segment, round
        self._names = {op.name for op in graph.ops}
        inside = {i for run in runs for ops in run.rounds for i in ops}
        at = 0
        for run in sorted(runs, key=lambda run: run.rounds[0][0]):
            middle = run.rounds[1][0]  # ops before it that are not in the loop are placed before the loop
            self._straight([i for i in range(at, middle) if i not in inside])
            self._loop(run)
            at = middle
        self._straight([i for i in range(at, len(graph.ops)) if i not in inside])

    def backwards(self) -> tuple[OpId, OpId] | None:
        """An edge of the unrolled graph that leads back to an earlier segment."""
        edges = (*self.old.completion, *self.old.order)
        return next(((u, v) for u, v in edges if self.image[u][1] > self.image[v][1]), None)

    def graph(self) -> Graph:
        """The folded graph. No edge may lead backwards."""
        old = self.old
        completion, order = self._inside(old.completion), self._inside(old.order)
        crossing = self._crossing(old.completion)
        order = tuple(sorted({*order, *self._one_after_the_other(completion)} - set(completion)))
        return Graph(
            old.program, old.transport, old.staging, old.streams, tuple(self.ops), completion, order, old.staged,
            (), (), self._inside(old.matches), Folding(old, tuple(self.segments), crossing),
        )  # fmt: skip

    def _straight(self, ops: Sequence[int]) -> None:
        if ops:
            ids = tuple(self._add(self.old.ops[i], self.old.ops[i].name, [i]) for i in ops)
            self.segments.append(Segment(False, ids, (tuple(OpId(i) for i in ops),)))

    def _loop(self, run: _Run) -> None:
        ids = []
        for instances in zip(*run.rounds, strict=True):
            name = folded_name([self.old.ops[i].name for i in instances], run.values, run.variable)
            if name in self._names:
                name = f"{self.old.ops[instances[0]].name}.."
            self._names.add(name)
            ids.append(self._add(self.old.ops[instances[1]], name, instances))
        carried = sorted({(u, v, distance) for u, v, distance, completes in run.edges if distance and completes})
        rounds = tuple(tuple(OpId(i) for i in ops) for ops in run.rounds)
        edges = tuple((ids[u], ids[v], distance) for u, v, distance in carried)
        self.segments.append(Segment(True, tuple(ids), rounds, edges, run.variable, run.values))

    def _add(self, op: GraphOp, name: str, instances: Iterable[int]) -> OpId:
        new = OpId(len(self.ops))
        self.ops.append(replace(op, id=new, name=name))
        self.image.update((i, (new, len(self.segments), number)) for number, i in enumerate(instances))
        return new

    def _inside(self, edges: Iterable[tuple[OpId, OpId]]) -> tuple[tuple[OpId, OpId], ...]:
        """Images of the edges inside a segment; for a loop, inside a round."""
        out = set()
        for u, v in edges:
            (a, *here), (b, *there) = self.image[u], self.image[v]
            if here == there:
                out.add((a, b))
        return tuple(sorted(out))

    def _crossing(self, edges: Iterable[tuple[OpId, OpId]]) -> tuple[tuple[OpId, OpId], ...]:
        images = ((self.image[u], self.image[v]) for u, v in edges)
        return tuple(sorted({(a, b) for (a, here, _), (b, there, _) in images if here != there}))

    def _one_after_the_other(self, completion: Iterable[tuple[OpId, OpId]]) -> Iterable[tuple[OpId, OpId]]:
        """Issue order between segments: the last ops of one before the first of the next."""
        left, entered = {u for u, _ in completion}, {v for _, v in completion}
        for segment, following in pairwise(self.segments):
            last = [op for op in segment.ops if op not in left]
            first = [op for op in following.ops if op not in entered]
            yield from ((u, v) for u in last for v in first)


# ---- what stays unrolled --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unfolded:
    """`count` iterations of a loop that depend on each other without being rounds of a folded one: why, and what to
    change."""

    loop: Loop
    count: int
    why: str
    help: str


def unfolded(graph: Graph) -> tuple[Unfolded, ...]:
    """For each `for` of which at least LEAST iterations in a row depend on each other, but were not folded."""
    whole = graph.unrolled
    segments = () if graph.folding is None else graph.folding.segments
    inside = {op for segment in segments if segment.loop for ops in segment.rounds for op in ops}
    neighbours: _Neighbours | None = None
    out = []
    for loop, turns in _turns(whole):
        left = [not inside.intersection(ops) for ops in turns]
        part = max(_stretches(left), key=lambda part: part.stop - part.start, default=slice(0, 0))
        if part.stop - part.start < LEAST:
            continue
        neighbours = neighbours or _Neighbours(whole)
        if _chain(turns[part], neighbours) < LEAST:
            continue
        search = _Search(whole, replace(loop, turns=loop.turns[part]), turns[part], neighbours)
        found = search.why() or _led_back(whole, search)
        if found is not None:
            out.append(Unfolded(loop, sum(left), *found))
    return tuple(out)


def _stretches(left: Sequence[bool]) -> Iterator[slice]:
    at = 0
    for is_left, some in groupby(left):
        length = len(list(some))
        if is_left:
            yield slice(at, at + length)
        at += length


def _chain(turns: _Rounds, neighbours: _Neighbours) -> int:
    """The number of iterations of the longest chain in which each waits for the one before."""
    turn_of = {op: at for at, ops in enumerate(turns) for op in ops}
    longest: list[int] = []
    for at, ops in enumerate(turns):
        before = {turn_of.get(u, at) for op in ops for u, completes in neighbours.before[op] if completes}
        longest.append(1 + max((longest[turn] for turn in before if turn < at), default=0))
    return max(longest)


def _led_back(graph: Graph, search: _Search) -> tuple[str, str] | None:
    """The edge back into a loop that would otherwise be folded."""
    run = search.run()
    edge = None if run is None else _Fold(graph, [run]).backwards()
    if edge is None:
        return None
    before, after = (f"`{graph.ops[op].name}`" for op in edge)
    return f"{after} waits for {before}, which comes after it", "write ops before or after a loop where they run"


# ---- consecutive iterations ------------------------------------------------------------------------


def repeated(graph: Graph, rounds: int, private: Collection[str] = (), copies: int = 1) -> Graph | None:
    """`rounds` iterations of an unrolled graph: the op `v` of iteration `i` is `v + i * n`, where n ops precede `end`.
    There are several copies of the arrays `private`, which iterations have in turn.

    Edges between iterations are those of conflicting accesses, and these: from every op to itself, since both share its
    scratch memory, unless it has none and arrays are private; from every group to all groups of the next iteration, so
    that groups which wait for other ranks never overlap across iterations; the same among host functions, which may
    share a handle or a workspace that no header declares. None where there are too many conflicts to examine, or
    kernels write what other ranks receive, which is proved of iterations that follow one another.
    """
    if any(op.kernel is not None and op.kernel.puts for op in graph.ops):
        return None
    n = len(graph.ops) - 1
    edges = Edges(rounds * n + 1)
    groups = [op.id for op in graph.ops if op.action in (Action.GROUP, Action.FREE)]
    calls = _host_functions(graph)
    alone = [op.id for op in graph.ops[:n] if not private or _has_memory(graph, op)]
    for turn in range(rounds):
        for u, v in graph.completion:
            if v < n:
                edges.add(OpId(u + turn * n), OpId(v + turn * n))
        if turn:
            for u, v in (*zip(alone, alone, strict=True), *product(groups, groups), *product(calls, calls)):
                edges.add(OpId(u + (turn - 1) * n), OpId(v + turn * n))
    ops, touches = _copies(graph, rounds, private, copies)
    lowered = LoweredMessages(ops, touches, (), {}, graph.staged, (), ())
    try:
        hazards = Hazards(graph.program, lowered, edges)
        hazards.run(infer=True)
    except TooManyConflicts:
        return None
    order = tuple((OpId(u + t * n), OpId(v + t * n)) for t in range(rounds) for u, v in graph.order if v < n)
    return replace(
        graph, ops=ops, touches=touches, completion=edges.completion, order=order,
        hazards=tuple(hazards.ordered), matches=(), folding=None,
    )  # fmt: skip


def _has_memory(graph: Graph, op: GraphOp) -> bool:
    """Whether an op may have memory beside its arrays and the variables of its code: all but copies, and kernels
    without scratch."""
    if op.kernel is None:
        return op.action is not Action.COPY
    every = (
        impl for _, impl in (kernel_as_written(graph.program, one) for one in variants_of(graph.program, op.kernel))
    )
    return any(impl.launch is None or impl.scratch or impl.prepare for impl in every)


def _host_functions(graph: Graph) -> list[OpId]:
    """The ops on the host that call a function which enqueues, or may enqueue, work on a stream."""
    kernels = {k.name for k in graph.program.kernels if any(i.code and i.code.lang is CodeLang.CPP for i in k.impls)}
    return [op.id for op in graph.ops if op.kernel is not None and op.kernel.kernel in kernels]


def _copy_of(region: Region, number: int) -> Region:
    return replace(region, array=f"{region.array}'{number}") if number else region


def _copies(
    graph: Graph, rounds: int, private: Collection[str], copies: int
) -> tuple[tuple[GraphOp, ...], tuple[Touch, ...]]:
    *work, end = graph.ops
    ops = [replace(op, id=OpId(op.id + t * len(work)), name=f"{op.name}#{t}") for t in range(rounds) for op in work]
    touches = [
        replace(
            touch,
            begin=OpId(touch.begin + t * len(work)),
            end=OpId(touch.end + t * len(work)),
            region=_copy_of(touch.region, t % copies) if touch.region.array in private else touch.region,
        )
        for t in range(rounds)
        for touch in graph.touches
    ]
    return (*ops, replace(end, id=OpId(len(ops)))), tuple(touches)
