"""`Space`: all traversals of one graph, as an ordered, exactly counted set.

A traversal's ID is its rank in the lexicographic order of offers (`Moves.offers`), from 0. IDs are stable for a
program text and a number of streams, whatever machine or run prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TypeAlias

from dagc.base.errors import UsageError
from dagc.ir.graph import Graph
from dagc.ir.traversal import Entry, Traversal, entry_text
from dagc.space.count import Counter, like
from dagc.space.moves import Asker, Moves, State

# What may come next, and who may have asked for it (`Moves.offers`).
Offer: TypeAlias = tuple[Entry, list[Asker]]


class Space:
    """The implementations of `graph` on `streams` streams (default: the graph's own number).

    `limit`: states after which counting gives up with TooManyStates (default: none). Counts, IDs and uniform samples
    need counting; iterating, `first` and `walk` do not.

    `counter`: that of a graph with equal moves, so that what the two have in common is counted once; with its limit.
    """

    def __init__(
        self, graph: Graph, streams: int | None = None, limit: int | None = None, counter: Counter | None = None
    ) -> None:
        self.graph = graph
        self.moves = Moves.of(graph, streams) if counter is None else counter.moves
        self.counter = Counter(self.moves, limit) if counter is None else counter
        # Offers and successors of a state do not depend on how it was reached: enumeration meets each many times.
        self._steps: dict[State, tuple[tuple[Entry, State], ...]] = {}

    def count(self) -> int:
        """How many there are, without enumerating them."""
        return self.counter.total()

    def __iter__(self) -> Iterator[Traversal]:
        """All of them in the order of their IDs."""
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
        """The traversal with ID 0: ops in file order, everything on the first stream where that is allowed."""
        return self._follow(lambda offers: offers[0], [], self.moves.start())

    def last(self) -> Traversal:
        """The traversal that takes the last offer each time: ops in the order furthest from that of the file."""
        return self._follow(lambda offers: offers[-1], [], self.moves.start())

    def walk(self, random: Random) -> Traversal:
        """A traversal by a random walk: each offer equally likely. Not uniform, but needs no counts."""
        return self._follow(random.choice, [], self.moves.start())

    def walk_from(self, traversal: Traversal, random: Random) -> Traversal:
        """The beginning of a traversal of this space, up to a random place, then a random walk: a neighbour of it."""
        entries: list[Entry] = []
        state = self.moves.start()
        for entry in traversal.entries[: random.randrange(len(traversal.entries))]:
            entries.append(entry)
            state = self.moves.step(state, entry, self.moves.offers(state)[entry])
        return self._follow(random.choice, entries, state)

    def _follow(self, choose: Callable[[Sequence[Offer]], Offer], entries: list[Entry], state: State) -> Traversal:
        """To the end from `state`, which `entries` lead to. Only what is chosen is built and nothing is kept: large
        spaces are walked, and their states hardly ever met again."""
        while not self.moves.finished(state):
            entry, askers = choose(tuple(self.moves.offers(state).items()))
            state = self.moves.step(state, entry, askers)
            entries.append(entry)
        return Traversal(tuple(entries))

    def at(self, number: int) -> Traversal:
        """The traversal with this ID. Raises UsageError where there is none."""
        total = self.count()
        if not 0 <= number < total:
            raise UsageError(f"there is no traversal {number}", f"give an ID from 0 to {total - 1}")
        entries: list[Entry] = []
        state = self.moves.start()
        while not self.moves.finished(state):
            offers = tuple(self.moves.offers(state).items())
            sizes: dict[Entry, int] = {}
            alike = self.counter.alike(state) if len(offers) > 1 else {}
            for entry, askers in offers[:-1]:
                first = like(entry, alike)
                if first not in sizes:
                    sizes[first] = self.counter.count(self.moves.step(state, entry, askers))
                if number < sizes[first]:
                    break
                number -= sizes[first]
            else:  # nothing before it, so the last: no need to count
                entry, askers = offers[-1]
            entries.append(entry)
            state = self.moves.step(state, entry, askers)
        return Traversal(tuple(entries))

    def id_of(self, traversal: Traversal) -> int:
        """The ID of a traversal. Raises UsageError where it is not in this space, naming the entry."""
        number = 0
        for _, state, entry, _ in self.replay(traversal):
            for other, askers in self.moves.offers(state).items():
                if other == entry:
                    break
                number += self.counter.count(self.moves.step(state, other, askers))
        return number

    def replay(self, traversal: Traversal) -> Iterator[tuple[int, State, Entry, list[Asker]]]:
        """(position, state, entry, who may have asked) along a traversal; UsageError where it leaves the space."""
        state = self.moves.start()
        for position, entry in enumerate(traversal.entries):
            offers = self.moves.offers(state)
            if entry not in offers:
                known = ", ".join(entry_text(e, self.graph) for e in offers) or "nothing: the traversal is complete"
                raise UsageError(
                    f"entry {position + 1} of the traversal, {entry_text(entry, self.graph)}, is not possible there",
                    f"one of: {known}",
                )
            yield position, state, entry, offers[entry]
            state = self.moves.step(state, entry, offers[entry])
        if not self.moves.finished(state):
            raise UsageError("the traversal stops before `end`", "give all of its entries, the last is end")

    def sample(self, random: Random) -> Traversal:
        """One traversal, every one equally likely."""
        return self.at(random.randrange(self.count()))
