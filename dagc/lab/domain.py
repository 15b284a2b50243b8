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

from dagc.ir.graph import Graph
from dagc.ir.traversal import Entry, Traversal
from dagc.space import Counter, Space, TooManyStates
from dagc.space.moves import Asker, Moves, State
from dagc.store.results import Configuration

# States times ops that counting one space may take: about a second. A search does without the number.
COUNTING_WORK = 500_000


@dataclass(frozen=True, slots=True)
class Arm:
    """A configuration and its traversals. `space.graph` is its graph."""

    configuration: Configuration
    space: Space


@dataclass(frozen=True, slots=True)
class Candidate:
    """One implementation: a traversal of `domain.arms[arm]`."""

    arm: int
    traversal: Traversal


# The choice of an arm, or the next entry of the traversal.
Decision: TypeAlias = int | Entry


@dataclass(frozen=True, slots=True)
class Node:
    """A state of the decision process. `arm` is None before the configuration is chosen."""

    arm: int | None
    state: State | None


class Domain:
    """All implementations that a search may measure."""

    def __init__(self, arms: Sequence[Arm]) -> None:
        """`arms` must not be empty, their configurations distinct."""
        if not arms:
            raise ValueError("a domain without arms")
        self.arms = tuple(arms)
        self._number = {arm.configuration: i for i, arm in enumerate(self.arms)}
        if len(self._number) != len(self.arms):
            raise ValueError("two arms of one configuration")

    def number(self, configuration: Configuration) -> int | None:
        """The arm of a configuration, None where it is not searched."""
        return self._number.get(configuration)

    # ---- the decision process -----------------------------------------------------------

    def start(self) -> Node:
        """Nothing decided; with a single arm, that arm."""
        return Node(None, None) if len(self.arms) > 1 else self._enter(0)

    def _enter(self, arm: int) -> Node:
        return Node(arm, self.arms[arm].space.moves.start())

    def offers(self, node: Node) -> dict[Decision, list[Asker]]:
        """Every decision that may come next, with what `step` wants of it, in a fixed order. Empty: all is decided."""
        if node.arm is None or node.state is None:
            return {arm: [] for arm in range(len(self.arms))}
        moves = self.arms[node.arm].space.moves
        return {} if moves.finished(node.state) else dict(moves.offers(node.state).items())

    def step(self, node: Node, decision: Decision, askers: list[Asker]) -> Node:
        """Where one of the offers leads."""
        if isinstance(decision, int):
            return self._enter(decision)
        if node.arm is None or node.state is None:
            raise ValueError("an entry before the choice of the configuration")
        return Node(node.arm, self.arms[node.arm].space.moves.step(node.state, decision, askers))

    def finished(self, node: Node) -> bool:
        return node.arm is not None and node.state is not None and self.arms[node.arm].space.moves.finished(node.state)

    def path(self, candidate: Candidate) -> tuple[Decision, ...]:
        """The decisions that lead to a candidate."""
        entries = candidate.traversal.entries
        return (candidate.arm, *entries) if len(self.arms) > 1 else entries

    # ---- counting and sampling ----------------------------------------------------------

    @cached_property
    def _sizes(self) -> tuple[int, ...] | None:
        try:
            return tuple(arm.space.count() for arm in self.arms)
        except TooManyStates as stopped:
            self._more_than = stopped.at_least
            return None

    def more_than(self) -> int:
        """A lower bound of the size where that is not known; 0 where it is."""
        return 0 if self._sizes is not None else self._more_than

    def size(self) -> int | None:
        """How many candidates there are; None where an arm's space is too large to count."""
        return None if self._sizes is None else sum(self._sizes)

    def at(self, number: int) -> Candidate:
        """The candidate with this number, from 0: arm by arm, in the order of IDs. IndexError, ValueError."""
        if self._sizes is None:
            raise ValueError("the domain is too large to be numbered")
        for arm, size in enumerate(self._sizes):
            if number < size:
                return Candidate(arm, self.arms[arm].space.at(number))
            number -= size
        raise IndexError(number)

    def sample(self, random: Random) -> Candidate:
        """Uniform over all candidates; where they cannot be counted, a uniform arm and a random walk."""
        size = self.size()
        return self.walk(random) if size is None else self.at(random.randrange(size))

    def walk(self, random: Random) -> Candidate:
        """A random arm, then a random walk: each offer equally likely."""
        arm = random.randrange(len(self.arms))
        return Candidate(arm, self.arms[arm].space.walk(random))

    def __iter__(self) -> Iterator[Candidate]:
        """All of them, arm by arm, in the order of IDs."""
        for number, arm in enumerate(self.arms):
            for traversal in arm.space:
                yield Candidate(number, traversal)


def domain_of(graphs: Iterable[tuple[Configuration, Graph]], work: int = COUNTING_WORK) -> Domain:
    """The traversals of these graphs. Those with equal moves (transports, launch parameters) share one count.

    `work` bounds the counting of each, in states times ops.
    """
    counters: dict[Moves, Counter] = {}
    arms = []
    for configuration, graph in graphs:
        moves = Moves.of(graph)
        counter = counters.setdefault(moves, Counter(moves, max(1, work // moves.size)))
        arms.append(Arm(configuration, Space(graph, counter=counter)))
    return Domain(arms)
