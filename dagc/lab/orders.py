"""The traversals of one or several configurations, as one decision process.

With several configurations, the first decision is the configuration; the others are those of its space
(`dagc.space.moves`). A search over transports and orders is therefore one search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeAlias

from dagc.ir.program import Graph
from dagc.ir.traversal import Entry, Traversal, traversal_text
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.neighbours import follow, neighbour, outline, translated
from dagc.space import Counter, Space, TooManyStates
from dagc.space.moves import Asker, Moves, State
from dagc.store.results import Configuration, ImplementationId, Outcome

if TYPE_CHECKING:
    from dagc.lab.model.estimate import Model

# Limit on states times ops for counting one space: about a second. A search does not need the number.
COUNTING_WORK = 500_000
RECONFIGURED = 0.2  # share of neighbours that differ in the configuration
MOST_OPS = 128  # limit for simulation: a sample of 1000 then takes some seconds, the features of pairs 50 MB


# The choice of a configured space (its index), or the next entry of the traversal.
Decision: TypeAlias = int | Entry


@dataclass(frozen=True, slots=True)
class Node:
    """A state of the decision process. `space`: index of a space, None before the configuration is chosen."""

    space: int | None
    state: State | None


class Orders:
    """All implementations that a search may measure."""

    def __init__(self, spaces: Sequence[ConfiguredSpace], earlier: Sequence[tuple[Candidate, float]] = ()) -> None:
        """`spaces` must not be empty, and their configurations must be distinct. `earlier`: candidates with their times
        in seconds at another size or on another machine; the model starts with costs fitted to them."""
        self.earlier = tuple(earlier)
        if not spaces:
            raise ValueError("a domain without a configuration")
        self.spaces = tuple(spaces)
        self._number = {configured.configuration: i for i, configured in enumerate(self.spaces)}
        if len(self._number) != len(self.spaces):
            raise ValueError("two spaces with one configuration")

    def number(self, configuration: Configuration) -> int | None:
        """Index of the space with this configuration, None if there is none."""
        return self._number.get(configuration)

    @property
    def folded(self) -> bool:
        """Whether traversals describe one round of each loop."""
        return any(s.graph.folding is not None for s in self.spaces)

    # ---- the decision process -----------------------------------------------------------

    def start(self) -> Node:
        """The root node; a single configuration is already chosen."""
        return Node(None, None) if len(self.spaces) > 1 else self._enter(0)

    def _enter(self, index: int) -> Node:
        return Node(index, self.spaces[index].space.moves.start())

    def offers(self, node: Node) -> dict[Decision, list[Asker]]:
        """Decision -> askers, for every possible next decision, in a fixed order. Empty if all is decided."""
        if node.space is None or node.state is None:
            return {index: [] for index in range(len(self.spaces))}
        moves = self.spaces[node.space].space.moves
        return {} if moves.finished(node.state) else dict(moves.offers(node.state).items())

    def weights(self, node: Node, offers: Mapping[Decision, list[Asker]]) -> Sequence[int] | None:
        """The number of candidates below each offer; None if there are too many to count."""
        if self._sizes is None:
            return None
        if node.space is None or node.state is None:
            return [self._sizes[decision] for decision in offers if isinstance(decision, int)]
        space = self.spaces[node.space].space
        entries = ((entry, askers) for entry, askers in offers.items() if not isinstance(entry, int))
        return [space.counter.count(space.moves.step(node.state, entry, askers)) for entry, askers in entries]

    def step(self, node: Node, decision: Decision, askers: list[Asker]) -> Node:
        """The node after one of the offers."""
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

    def candidate(self, path: Sequence[Decision]) -> Candidate:
        """The candidate at the end of a path. Raises ValueError if the configuration is missing."""
        chosen = [decision for decision in path if isinstance(decision, int)]
        if len(chosen) != (len(self.spaces) > 1):
            raise ValueError("a path without the choice of the configuration")
        entries = tuple(d for d in path if not isinstance(d, int))
        return Candidate(chosen[0] if chosen else 0, Traversal(entries))

    # ---- the model ----------------------------------------------------------------------

    @property
    def has_surrogate(self) -> bool:
        """False for programs with so many ops that simulating a sample takes longer than measuring it."""
        return len({op.name for s in self.spaces for op in s.graph.ops}) <= MOST_OPS

    def surrogate(self) -> Model:
        from dagc.lab.model.estimate import Model, costs_of  # loads numpy, scipy

        return Model(self.spaces, learned=costs_of(self.spaces, self.earlier) if self.earlier else None)

    # ---- counting and sampling ----------------------------------------------------------

    @cached_property
    def _sizes(self) -> tuple[int, ...] | None:
        try:
            return tuple(configured.space.count() for configured in self.spaces)
        except TooManyStates as stopped:
            self._more_than = stopped.at_least
            return None

    def more_than(self) -> int:
        """A lower bound of the size if it is not known, else 0."""
        return 0 if self._sizes is not None else self._more_than

    def size(self) -> int | None:
        """The number of candidates; None if a space is too large to count."""
        return None if self._sizes is None else sum(self._sizes)

    def at(self, number: int) -> Candidate:
        """The candidate with this number, from 0: space by space, in order of IDs. Raises IndexError, ValueError."""
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

    def near(self, candidate: Candidate, random: Random) -> Candidate:
        """One op moved, one stream rebound, one sync op moved, dropped or added, or another configuration."""
        if len(self.spaces) > 1 and random.random() < RECONFIGURED:
            return self._reconfigured(candidate, random)
        moves = self.spaces[candidate.space].space.moves
        return Candidate(candidate.space, neighbour(moves, candidate.traversal, random))

    def _reconfigured(self, candidate: Candidate, random: Random) -> Candidate:
        """The same order and streams, as far as possible, in another configuration."""
        space = (candidate.space + random.randrange(1, len(self.spaces))) % len(self.spaces)
        old, new = self.spaces[candidate.space], self.spaces[space]
        if old.space.moves == new.space.moves:
            return Candidate(space, candidate.traversal)
        ids = {op.name: int(op.id) for op in new.graph.ops}
        shared = {
            int(op.id): ids[op.name]
            for op in old.graph.ops
            if op.name in ids and op.gpu == new.graph.ops[ids[op.name]].gpu
        }
        return Candidate(
            space, follow(new.space.moves, translated(outline(candidate.traversal), shared, new.space.moves))
        )

    def __iter__(self) -> Iterator[Candidate]:
        """All candidates, space by space, each in the order of IDs."""
        for number, configured in enumerate(self.spaces):
            for traversal in configured.space:
                yield Candidate(number, traversal)


class Records(Protocol):
    """A results file (dagc.store.records)."""

    def begin(self, configuration: Configuration, traversal: str) -> ImplementationId: ...

    def add(
        self,
        number: ImplementationId,
        seconds: float,
        reference: float,
        iterations: int,
        purpose: str,
        others: Mapping[str, float],
    ) -> None: ...

    def fail(self, number: ImplementationId, failure: str) -> None: ...


class OrderStore:
    """Writes measurements of the candidates of a domain to a results file."""

    def __init__(self, domain: Orders, records: Records) -> None:
        self._domain, self._records = domain, records

    def begin(self, candidate: Candidate) -> ImplementationId:
        configured = self._domain.spaces[candidate.space]
        return self._records.begin(configured.configuration, traversal_text(candidate.traversal, configured.graph))

    def add(self, key: ImplementationId, outcome: Outcome, purpose: str = "search") -> None:
        others = dict(outcome.metrics)
        seconds = others.pop("time", outcome.value)
        self._records.add(key, seconds, outcome.reference, outcome.iterations, purpose, others)

    def fail(self, key: ImplementationId, failure: str) -> None:
        self._records.fail(key, failure)


def domain_of(graphs: Iterable[tuple[Configuration, Graph]], work: int = COUNTING_WORK) -> Orders:
    """The traversals of these graphs. Graphs with equal moves (transports, launch parameters) are counted once.

    `work` limits the counting of each, in states times ops.
    """
    counters: dict[Moves, Counter] = {}
    spaces = []
    for configuration, graph in graphs:
        moves = Moves.of(graph)
        counter = counters.setdefault(moves, Counter(moves, max(1, work // moves.size)))
        spaces.append(ConfiguredSpace(configuration, Space(graph, counter=counter)))
    return Orders(spaces)
