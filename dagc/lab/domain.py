"""What is searched: the traversals of one or several configurations, as one decision process.

With several configurations the first decision is the configuration, the others are those of its space
(`dagc.space.moves`). So a search over transports and orders is one search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TypeAlias

from dagc.ir.program import Graph
from dagc.ir.traversal import Entry, Traversal
from dagc.space import Counter, Space, TooManyStates
from dagc.space.moves import Asker, Moves, State
from dagc.store.results import Configuration

# States times ops that counting one space may take: about a second. A search does without the number.
COUNTING_WORK = 500_000


@dataclass(frozen=True, slots=True)
class ConfiguredSpace:
    """A configuration and its traversals."""

    configuration: Configuration
    space: Space

    @property
    def graph(self) -> Graph:
        return self.space.graph


@dataclass(frozen=True, slots=True)
class Candidate:
    """One implementation: a traversal of `domain.spaces[space]`."""

    space: int
    traversal: Traversal


# The choice of a configured space (its index), or the next entry of the traversal.
Decision: TypeAlias = int | Entry


@dataclass(frozen=True, slots=True)
class Node:
    """A state of the decision process. `space` is an index of the domain's, None before the configuration is chosen."""

    space: int | None
    state: State | None


class Domain:
    """All implementations that a search may measure."""

    def __init__(self, spaces: Sequence[ConfiguredSpace]) -> None:
        """`spaces` must not be empty, their configurations distinct."""
        if not spaces:
            raise ValueError("a domain without a configuration")
        self.spaces = tuple(spaces)
        self._number = {configured.configuration: i for i, configured in enumerate(self.spaces)}
        if len(self._number) != len(self.spaces):
            raise ValueError("two spaces with one configuration")

    def number(self, configuration: Configuration) -> int | None:
        """Index of the space with this configuration, None if it is not searched."""
        return self._number.get(configuration)

    # ---- the decision process -----------------------------------------------------------

    def start(self) -> Node:
        """Nothing decided; with a single configuration, that one is chosen."""
        return Node(None, None) if len(self.spaces) > 1 else self._enter(0)

    def _enter(self, index: int) -> Node:
        return Node(index, self.spaces[index].space.moves.start())

    def offers(self, node: Node) -> dict[Decision, list[Asker]]:
        """Every decision that may come next, with what `step` wants of it, in a fixed order. Empty: all is decided."""
        if node.space is None or node.state is None:
            return {index: [] for index in range(len(self.spaces))}
        moves = self.spaces[node.space].space.moves
        return {} if moves.finished(node.state) else dict(moves.offers(node.state).items())

    def step(self, node: Node, decision: Decision, askers: list[Asker]) -> Node:
        """Where one of the offers leads."""
        if isinstance(decision, int):
            return self._enter(decision)
        if node.space is None or node.state is None:
            raise ValueError("an entry before the choice of the configuration")
        return Node(node.space, self.spaces[node.space].space.moves.step(node.state, decision, askers))

    def finished(self, node: Node) -> bool:
        return (
            node.space is not None
            and node.state is not None
            and self.spaces[node.space].space.moves.finished(node.state)
        )

    def path(self, candidate: Candidate) -> tuple[Decision, ...]:
        """The decisions that lead to a candidate."""
        entries = candidate.traversal.entries
        return (candidate.space, *entries) if len(self.spaces) > 1 else entries

    # ---- counting and sampling ----------------------------------------------------------

    @cached_property
    def _sizes(self) -> tuple[int, ...] | None:
        try:
            return tuple(configured.space.count() for configured in self.spaces)
        except TooManyStates as stopped:
            self._more_than = stopped.at_least
            return None

    def more_than(self) -> int:
        """A lower bound of the size where that is not known; 0 where it is."""
        return 0 if self._sizes is not None else self._more_than

    def size(self) -> int | None:
        """How many candidates there are; None if a space is too large to count."""
        return None if self._sizes is None else sum(self._sizes)

    def at(self, number: int) -> Candidate:
        """The candidate with this number, from 0: space by space, each in the order of IDs. IndexError, ValueError."""
        if self._sizes is None:
            raise ValueError("the domain is too large to be numbered")
        for index, size in enumerate(self._sizes):
            if number < size:
                return Candidate(index, self.spaces[index].space.at(number))
            number -= size
        raise IndexError(number)

    def sample(self, random: Random) -> Candidate:
        """Uniform over all candidates; if they cannot be counted, a uniform configuration and a random walk."""
        size = self.size()
        return self.walk(random) if size is None else self.at(random.randrange(size))

    def walk(self, random: Random) -> Candidate:
        """A random configuration, then a random walk: each offer equally likely."""
        index = random.randrange(len(self.spaces))
        return Candidate(index, self.spaces[index].space.walk(random))

    def __iter__(self) -> Iterator[Candidate]:
        """All candidates, space by space, each in the order of IDs."""
        for number, configured in enumerate(self.spaces):
            for traversal in configured.space:
                yield Candidate(number, traversal)


def domain_of(graphs: Iterable[tuple[Configuration, Graph]], work: int = COUNTING_WORK) -> Domain:
    """The traversals of these graphs. Those with equal moves (transports, launch parameters) share one count.

    `work` bounds the counting of each, in states times ops.
    """
    counters: dict[Moves, Counter] = {}
    spaces = []
    for configuration, graph in graphs:
        moves = Moves.of(graph)
        counter = counters.setdefault(moves, Counter(moves, max(1, work // moves.size)))
        spaces.append(ConfiguredSpace(configuration, Space(graph, counter=counter)))
    return Domain(spaces)
