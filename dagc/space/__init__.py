"""The decision space of one graph: `Space`, all its traversals, as an ordered, exactly counted set.

A traversal's ID is its rank in the lexicographic order of offers (`Moves.offers`), from 0. IDs are stable for a
program text and a number of streams on every machine and in every run.

Contract: docs/explanation/space.md. The rules are Table III of "Machine Learning for CUDA+MPI Design Rules".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from operator import itemgetter
from random import Random
from typing import TypeAlias

from dagc.base.errors import UsageError
from dagc.ir.program import Graph
from dagc.ir.traversal import Entry, Traversal, issue_of
from dagc.space.moves import Asker, Commitment, Hidden, Moves, State, bits

# ---- symmetry ----
# Interchangeable sub-graphs: sets of units, each a tuple of ops, such that any two units may be swapped.
#
# They matter for halo exchanges: the packs and sends of the six faces are alike, and so are their receives and unpacks.
# States that differ by swapping units have equally many completions, which makes exact counting feasible.


@dataclass(frozen=True, slots=True)
class Orbit:
    """Units of one kind. `units[i][k]` corresponds to `units[j][k]`."""

    units: tuple[tuple[int, ...], ...]


def orbits(moves: Moves, watch: Callable[[], None] = lambda: None) -> tuple[Orbit, ...]:
    """Disjoint orbits; every transposition of two units of one orbit is an automorphism of the graph (checked).
    `watch` is called before each; an exception from it ends the search."""
    tables = (moves.before, moves.needs, moves.users, _followers(moves))
    visited: set[int] = set()
    out: list[Orbit] = []
    for a in range(moves.size):
        if a in visited:
            continue
        units: list[tuple[int, ...]] = []
        used: set[int] = set()
        for b in range(a + 1, moves.size):
            if b in visited or b in used:
                continue
            watch()
            swap = _transposition(moves, tables, a, b)
            if swap is None:
                continue
            mine, theirs = tuple(x for x, _ in swap), tuple(y for _, y in swap)
            if not units:
                units, used = [mine], set(mine)
            if mine == units[0] and not used & set(theirs) and not visited & set(mine + theirs):
                units.append(theirs)
                used |= set(theirs)
        if len(units) > 1:
            out.append(Orbit(tuple(units)))
            visited |= used
    return tuple(out)


def _transposition(moves: Moves, tables: tuple[tuple[int, ...], ...], a: int, b: int) -> list[tuple[int, int]] | None:
    """The smallest automorphism found that swaps a and b and is its own inverse; None if none is found.

    `tables`: masks of ops for each op, which the automorphism maps to each other.
    """
    image = {a: b, b: a}
    pairs, queue = [(a, b)], [(a, b)]
    while queue:
        x, y = queue.pop()
        if moves.allowed[x] != moves.allowed[y] or (moves.gpu >> x ^ moves.gpu >> y) & 1:
            return None
        for table in tables:
            ours, others = table[x] & ~table[y], table[y] & ~table[x]
            left = [p for p in bits(ours) if p not in (x, y) and p not in image]
            right = [p for p in bits(others) if p not in (x, y) and p not in image]
            if len(left) != len(right):
                return None
            for p, q in zip(left, right, strict=True):
                image[p], image[q] = q, p
                pairs.append((p, q))
                queue.append((p, q))
    return pairs if _is_automorphism(moves, image) else None


def _followers(moves: Moves) -> tuple[int, ...]:
    out = [0] * moves.size
    for v in range(moves.size):
        for u in bits(moves.before[v]):
            out[u] |= 1 << v
    return tuple(out)


def _is_automorphism(moves: Moves, image: dict[int, int]) -> bool:
    def mapped(mask: int) -> int:
        return sum(1 << image.get(u, u) for u in bits(mask))

    return all(
        mapped(table[v]) == table[image.get(v, v)]
        for v in range(moves.size)
        for table in (moves.before, moves.needs, moves.users)
    ) and all(
        moves.allowed[v] == moves.allowed[w] and moves.gpu >> v & 1 == moves.gpu >> w & 1 for v, w in image.items()
    )


# ---- counting ----

WATCH_EVERY = 20_000  # ops of states that are visited, which take some tens of milliseconds

_FREE: Hidden = ((),)  # no GPU op is committed to a stream
# The code of an op is a character: "0" not issued, "1" settled (no op may need it any more), from "2" on its place.
_LIVE = ord("2")


class TooManyStates(Exception):
    """The count would need more states than allowed. `at_least` were counted until then."""

    def __init__(self, at_least: int = 0) -> None:
        super().__init__(f"more than {at_least}")
        self.at_least = at_least


class Counter:
    """Counts completions of states of one graph. The memo grows with the states visited, and is kept.

    `limit`: states after which it stops and raises TooManyStates (default: none). `watch` is called with the number of
    counted states after every `WATCH_EVERY` ops of visited ones, and while the orbits are searched; an exception from
    it ends the count.
    """

    def __init__(self, moves: Moves, limit: int | None = None, watch: Callable[[int], None] | None = None) -> None:
        self.moves = moves
        self.limit = limit
        self.watch = watch
        self._orbits = orbits(moves) if watch is None else orbits(moves, lambda: watch(0))
        self._visited, self._watch_every = 0, max(1, WATCH_EVERY // max(1, moves.size))
        self._lay_out()
        self._tables: dict[tuple[int, ...], dict[int, int]] = {}
        self._digits = f"0{moves.size}b"
        self._memo: dict[object, int] = {}
        self._at_least = 0  # completions that were counted before the limit was reached

    def _lay_out(self) -> None:
        """The order of the ops in a key: those of no orbit, then unit by unit."""
        in_orbit = [op for orbit in self._orbits for unit in orbit.units for op in unit]
        singles = [v for v in range(self.moves.size) if v not in set(in_orbit)]
        order = singles + in_orbit
        self._singles = slice(0, len(singles))
        self._pick = itemgetter(*order) if len(order) > 1 else tuple
        slices, at = [], len(singles)
        for orbit in self._orbits:
            width = len(orbit.units[0])
            slices.append([slice(at + i * width, at + (i + 1) * width) for i in range(len(orbit.units))])
            at += width * len(orbit.units)
        self._units = slices
        self._members = [sum(1 << op for unit in orbit.units for op in unit) for orbit in self._orbits]

    def __len__(self) -> int:
        """The number of states in the memo."""
        return len(self._memo)

    def total(self) -> int:
        """Size of the space. Counted again after the limit was reached, it has the bound of the first time."""
        try:
            return self.count(self.moves.start())
        except TooManyStates as stopped:
            self._at_least = max(self._at_least, stopped.at_least)
            raise TooManyStates(self._at_least) from None

    def count(self, state: State) -> int:
        """Traversals that begin with the prefix of `state`."""
        # One level of recursion per entry of a traversal; three entries an op is more than any traversal has.
        depth = 3 * self.moves.size * max(2, self.moves.streams) + 200
        if sys.getrecursionlimit() < depth:
            sys.setrecursionlimit(depth)
        return self._count(state)

    def _count(self, state: State) -> int:
        if self.moves.finished(state):
            return 1
        codes = self._codes(state)
        key = self._key(state, codes)
        known = self._memo.get(key)
        if known is not None:
            return known
        if self.limit is not None and len(self._memo) >= self.limit:
            raise TooManyStates
        self._visited += 1
        if self.watch is not None and self._visited % self._watch_every == 0:
            self.watch(len(self._memo))
        total = 0
        successors: dict[Entry, int] = {}
        alike = self._alike(state, codes)
        try:
            for entry, askers in self.moves.offers(state).items():
                first = like(entry, alike)
                if first not in successors:
                    successors[first] = self._count(self.moves.step(state, entry, askers))
                total += successors[first]
        except TooManyStates as stopped:
            stopped.at_least += total
            raise
        self._memo[key] = total
        return total

    # ---- symmetry -----------------------------------------------------------------------

    def alike(self, state: State) -> dict[int, int]:
        """For an op of an orbit, the first op whose issue in this state has as many completions.

        Swapping two units in the same condition maps the state to itself, and the issue of one's op to that of the
        other's. An op that is missing from the result has only itself.
        """
        return self._alike(state, self._codes(state)) if self._orbits else {}

    def _alike(self, state: State, codes: str) -> dict[int, int]:
        out: dict[int, int] = {}
        if state[3] != _FREE:
            return out
        for orbit, slices in zip(self._orbits, self._units, strict=True):
            first: dict[str, tuple[int, ...]] = {}
            for unit, place in zip(orbit.units, slices, strict=True):
                model = first.setdefault(codes[place], unit)
                if model is not unit:
                    out.update(zip(unit, model, strict=True))
        return out

    # ---- canonical form -----------------------------------------------------------------

    def _codes(self, state: State) -> str:
        """A character per op, in the order of `_lay_out`: not issued, settled, or `_LIVE` + place * streams + stream.

        Place 0 is after the last record of the stream; at place i, the first record after the op is the stream's i-th.
        A text, since it is compared, hashed and renamed as a whole: most of the time of counting is spent here.
        """
        issued, streams = state[0], state[1]
        width = len(streams)
        codes = list(format(issued, self._digits))  # the last op first
        last = len(codes) - 1
        for s, (groups, tail) in enumerate(streams):
            for u in bits(tail):
                codes[last - u] = chr(_LIVE + s)
            for number, group in enumerate(groups, 1):
                place = chr(_LIVE + number * width + s)
                for u in bits(group[0]):
                    codes[last - u] = place
        codes.reverse()
        return "".join(self._pick(codes))

    def _key(self, state: State, codes: str) -> object:
        """A value that is equal for two states only if renaming streams and swapping units makes them equal."""
        labels = self.moves.free[: state[2]]
        if len(labels) < 2:
            return self._encode(state, codes, None)
        renamings = self._renamings(state, labels)
        if len(renamings) == 1:
            return self._encode(state, codes, renamings[0])
        return min(self._encode(state, codes, renaming) for renaming in renamings)

    def _renamings(self, state: State, labels: tuple[int, ...]) -> Sequence[tuple[int, ...] | None]:
        """Renamings that sort the streams by content, in all orders of streams with equal content.

        None represents the identity.
        """
        streams = state[1]
        held = [
            (tuple([g[0].bit_count() << 1 | g[1] for g in streams[s][0]]), streams[s][1].bit_count()) for s in labels
        ]
        ordered = sorted(range(len(labels)), key=held.__getitem__)
        if all(held[x] < held[y] for x, y in pairwise(ordered)):
            return [self._renaming(labels, ordered)]
        if state[3] == _FREE and held[ordered[-1]] == ((), 0):
            return [None]  # they are empty: all renamings are equivalent
        return [
            self._renaming(labels, choice)
            for choice in permutations(ordered)
            if all(held[x] == held[y] for x, y in zip(choice, ordered, strict=True))
        ]

    def _renaming(self, labels: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...] | None:
        """The new label of each stream, where label `order[i]` becomes the i-th."""
        new = list(range(self.moves.streams))
        for place, old in enumerate(order):
            new[labels[old]] = labels[place]
        return None if new == sorted(new) else tuple(new)

    def _encode(self, state: State, codes: str, renaming: tuple[int, ...] | None) -> str | tuple[object, ...]:
        _, streams, used, hidden, _ = state
        if renaming is None:
            flags = [g[2] << 1 | g[1] for groups, _ in streams for g in groups]
        else:
            codes = codes.translate(self._table(renaming))
            old = sorted(range(len(renaming)), key=renaming.__getitem__)
            flags = [_rename(g[2], renaming) << 1 | g[1] for s in old for g in streams[s][0]]
        parts = [chr(used), codes[self._singles]]
        for places in self._units:
            parts += sorted([codes[place] for place in places])
        text = "".join(parts)
        if hidden == _FREE:  # nearly always
            # How many records there are on each stream follows from the codes, so a list of flags suffices.
            return (text, *flags) if any(flags) else text
        return text, tuple(flags), self._commitments(hidden, codes, renaming)

    def _commitments(
        self, hidden: Hidden, codes: str, renaming: tuple[int, ...] | None
    ) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The commitments of the state after renaming streams and sorting units by their conditions."""
        committed = 0
        for commitment in hidden:
            for op, _ in commitment:
                committed |= 1 << op
        image: dict[int, int] = {}
        for orbit, members, places in zip(self._orbits, self._members, self._units, strict=True):
            if not members & committed:
                continue
            conditions = sorted((codes[place], unit) for place, unit in zip(places, orbit.units, strict=True))
            for (_, unit), target in zip(conditions, orbit.units, strict=True):
                image.update(zip(unit, target, strict=True))

        def moved(commitment: Commitment) -> Commitment:
            pairs = [(op, mask if renaming is None else _rename(mask, renaming)) for op, mask in commitment]
            return tuple(sorted((image.get(op, op), mask) for op, mask in pairs))

        return tuple(sorted(moved(c) for c in hidden))

    def _table(self, renaming: tuple[int, ...]) -> dict[int, int]:
        """How renaming streams maps each character of the codes; built when first needed."""
        table = self._tables.get(renaming)
        if table is None:
            width = len(renaming)
            # A record is kept for an op that it follows, so there are no more places than GPU ops, and the tail.
            places = range(0, width * (self.moves.gpu.bit_count() + 1), width)
            table = {_LIVE + at + s: _LIVE + at + renaming[s] for at in places for s in range(width)}
            self._tables[renaming] = table
        return table


def like(entry: Entry, alike: dict[int, int]) -> Entry:
    """The first entry of a state with as many completions as this one (`Counter.alike`)."""
    if entry.op not in alike:
        return entry
    return issue_of(alike[entry.op], -1 if entry.stream is None else int(entry.stream))


def _rename(mask: int, renaming: tuple[int, ...]) -> int:
    return sum(1 << renaming[s] for s in bits(mask))


# ---- space ----


# What may come next, and which op may have requested it (`Moves.offers`).
Offer: TypeAlias = tuple[Entry, list[Asker]]


class Space:
    """The implementations of `graph`.

    `limit`: states after which counting stops with TooManyStates (default: none). Counts, IDs and uniform samples
    need counting; iterating, `first` and `walk` do not.

    `counter`: that of a graph with equal moves, to count common states once; with its limit.
    """

    def __init__(self, graph: Graph, limit: int | None = None, counter: Counter | None = None) -> None:
        self.graph = graph
        self.moves = Moves.of(graph) if counter is None else counter.moves
        self.counter = Counter(self.moves, limit) if counter is None else counter
        # Offers and successors of a state do not depend on the path to it: enumeration visits each state many times.
        self._steps: dict[State, tuple[tuple[Entry, State], ...]] = {}

    def count(self) -> int:
        """The number of traversals, without enumerating them."""
        return self.counter.total()

    def __iter__(self) -> Iterator[Traversal]:
        """All traversals in the order of their IDs."""
        prefix: list[Entry] = []
        path = [iter(self._next(self.moves.start()))]
        while path:
            for entry, state in path[-1]:
                prefix.append(entry)
                if self.moves.finished(state):
                    yield Traversal(tuple(prefix))
                    prefix.pop()
                    continue
                path.append(iter(self._next(state)))
                break
            else:
                path.pop()
                if prefix:
                    prefix.pop()

    def _next(self, state: State) -> tuple[tuple[Entry, State], ...]:
        known = self._steps.get(state)
        if known is None:
            step = self.moves.step
            offers = self.moves.offers(state)
            known = tuple((entry, step(state, entry, askers)) for entry, askers in offers.items())
            self._steps[state] = known
        return known

    def first(self) -> Traversal:
        """The traversal with ID 0: ops in file order, on the first stream wherever possible."""
        return self._follow(lambda offers: offers[0])

    def last(self) -> Traversal:
        """The traversal that takes the last offer each time: ops in the order furthest from that of the file."""
        return self._follow(lambda offers: offers[-1])

    def walk(self, random: Random) -> Traversal:
        """A traversal by a random walk: each offer equally likely. Not uniform, but needs no counts."""
        return self._follow(random.choice)

    def _follow(self, choose: Callable[[Sequence[Offer]], Offer]) -> Traversal:
        """The traversal of these choices. Nothing is cached: walks in large spaces rarely reach a state twice."""
        entries: list[Entry] = []
        state = self.moves.start()
        while not self.moves.finished(state):
            entry, askers = choose(tuple(self.moves.offers(state).items()))
            state = self.moves.step(state, entry, askers)
            entries.append(entry)
        return Traversal(tuple(entries))

    def at(self, number: int) -> Traversal:
        """The traversal with this ID. Raises UsageError if there is none."""
        total = self.count()
        if not 0 <= number < total:
            raise UsageError(f"traversal {number} does not exist", f"give an ID from 0 to {total - 1}")
        entries: list[Entry] = []
        state = self.moves.start()
        while not self.moves.finished(state):
            offers = tuple(self.moves.offers(state).items())
            sizes: dict[Entry, int] = {}
            alike = self.counter.alike(state) if len(offers) > 1 else {}
            for entry, askers in offers[:-1]:
                first, after = like(entry, alike), None
                if first not in sizes:
                    after = self.moves.step(state, entry, askers)
                    sizes[first] = self.counter.count(after)
                if number < sizes[first]:
                    break
                number -= sizes[first]
            else:  # none before it, so it is the last: no need to count
                (entry, askers), after = offers[-1], None
            entries.append(entry)
            state = self.moves.step(state, entry, askers) if after is None else after
        return Traversal(tuple(entries))

    def id_of(self, traversal: Traversal) -> int:
        """The ID of a traversal. Raises UsageError, naming the entry, if it is not in this space."""
        number = 0
        for _, state, entry, _ in self.replay(traversal):
            for other, askers in self.moves.offers(state).items():
                if other == entry:
                    break
                number += self.counter.count(self.moves.step(state, other, askers))
        return number

    def replay(self, traversal: Traversal) -> Iterator[tuple[int, State, Entry, list[Asker]]]:
        """(position, state, entry, what may have requested it) along a traversal; UsageError if it leaves the space."""
        state = self.moves.start()
        for position, entry in enumerate(traversal.entries):
            offers = self.moves.offers(state)
            if entry not in offers:
                known = ", ".join(e.text(self.graph) for e in offers) or "nothing: the traversal is complete"
                raise UsageError(
                    f"entry {position + 1} of the traversal, {entry.text(self.graph)}, is not possible there",
                    f"one of: {known}",
                )
            yield position, state, entry, offers[entry]
            state = self.moves.step(state, entry, offers[entry])
        if not self.moves.finished(state):
            raise UsageError("the traversal stops before `end`", "give all of its entries; the last is end")

    def sample(self, random: Random) -> Traversal:
        """One traversal, uniformly at random."""
        return self.at(random.randrange(self.count()))
