"""The traversals of one or several configurations and their launch settings, as one decision process.

With several configurations, the first decision is the configuration; then come the launch settings, site by site, then
the decisions of its space (`dagc.space.moves`). A search over transports, blocks and orders is therefore one search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeAlias

from dagc.base.sample import Sample
from dagc.choice.types import Site
from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import Entry, Traversal, traversal_text
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.neighbours import Item, follow, neighbour, outline, translated
from dagc.space import Counter, Space, TooManyStates
from dagc.space.moves import Asker, Moves, State
from dagc.store.results import Implementation, ImplementationId, without_later

if TYPE_CHECKING:
    from dagc.lab.model.estimate import Model

# Limit on states times ops for counting one space: about a second. A search does not need the number.
COUNTING_WORK = 500_000
RECONFIGURED = 0.2  # share of neighbours that differ in the configuration
RESET = 0.3  # share of the others that differ in launch settings, where there are any
STEPPED = 0.5  # share of those whose new setting is one step of one tunable away
DOUBTED = 0.4  # standard deviation, in natural logarithms, for drawing settings around the prediction of a model alone
HINTED = 10  # candidates that were fastest elsewhere, of which some are measured first
AGAIN = 0.3  # probability of another change of a neighbour
MOST_OPS = 512  # limit for simulation: updating the model then takes as long as a measurement
SAMPLED, FEW_OPS, LEAST_SAMPLED = 600, 128, 100  # initial candidates of a model; fewer with more than FEW_OPS ops


Decision: TypeAlias = int | Choice | Entry


@dataclass(frozen=True, slots=True)
class SearchState:
    """A state of the decision process.

    `space`: index of a space, None before the configuration is chosen. `choices`: at the first sites. `state`: None
    until all sites have one.
    """

    space: int | None
    state: State | None
    choices: tuple[Choice, ...] = ()


class Orders:
    """All implementations that a search may measure."""

    def __init__(self, spaces: Sequence[ConfiguredSpace], earlier: Sequence[tuple[Candidate, float]] = ()) -> None:
        """`spaces` must not be empty, and their configurations must be distinct. `earlier`: candidates with their times
        in seconds at another size or on another machine; the model starts with costs fitted to them."""
        self.earlier = tuple(earlier)
        if not spaces:
            raise ValueError("a domain without a configuration")
        self.spaces = tuple(spaces)
        self._number = {_without_sites(s.configuration, s.sites): i for i, s in enumerate(self.spaces)}
        if len(self._number) != len(self.spaces):
            raise ValueError("two spaces with one configuration")
        self._open = tuple(dict.fromkeys(tuple(s.sites) for s in self.spaces))
        self._configurations: dict[tuple[int, tuple[Choice, ...]], Choice] = {}

    def find(self, configuration: Choice) -> tuple[int, tuple[Choice, ...]] | None:
        """The space of a configuration, and its choice at each site there; None if it is not searched."""
        for sites in self._open:
            index = self._number.get(_without_sites(configuration, sites))
            if index is not None and self.spaces[index].sites == sites:
                choices = tuple(choice for site in sites if (choice := site.choice_of(configuration)) is not None)
                if len(choices) == len(sites):
                    return index, choices
        return None

    def number(self, configuration: Choice) -> int | None:
        """Index of the space with this configuration, None if there is none."""
        entry = self.find(configuration)
        return None if entry is None else entry[0]

    def configuration(self, candidate: Candidate) -> Choice:
        """All that is chosen of a candidate except the traversal."""
        configured = self.spaces[candidate.space]
        if not configured.sites:
            return configured.configuration
        key = candidate.space, candidate.choices
        if key not in self._configurations:
            chosen = dict(configured.configuration)
            for choice in candidate.choices:
                chosen |= choice
            self._configurations[key] = Choice.of(chosen)
        return self._configurations[key]

    def first(self, index: int) -> Candidate:
        """The first traversal of a space, under the program's own launch settings."""
        configured = self.spaces[index]
        return Candidate(index, configured.space.first(), configured.usual)

    @property
    def folded(self) -> bool:
        """Whether traversals describe one round of each loop."""
        return any(s.graph.folding is not None for s in self.spaces)

    # ---- the decision process -----------------------------------------------------------

    def start(self) -> SearchState:
        """The root node; a single configuration is already chosen."""
        return SearchState(None, None) if len(self.spaces) > 1 else self._enter(0, ())

    def _enter(self, index: int, choices: tuple[Choice, ...]) -> SearchState:
        configured = self.spaces[index]
        complete = len(choices) == len(configured.sites)
        return SearchState(index, configured.space.moves.start() if complete else None, choices)

    def offers(self, node: SearchState) -> dict[Decision, list[Asker]]:
        """Decision -> askers, for every possible next decision, in a fixed order. Empty if all is decided."""
        if node.space is None:
            return {index: [] for index in range(len(self.spaces))}
        if node.state is None:
            return {choice: [] for choice in self.spaces[node.space].sites[len(node.choices)].choices}
        moves = self.spaces[node.space].space.moves
        return {} if moves.finished(node.state) else dict(moves.offers(node.state).items())

    def weights(self, node: SearchState, offers: Mapping[Decision, list[Asker]]) -> Sequence[int] | None:
        """The number of candidates below each offer; None if there are too many to count."""
        if self._sizes is None:
            return None
        if node.space is None:
            return [self._sizes[decision] for decision in offers if isinstance(decision, int)]
        if node.state is None:
            return [1] * len(offers)  # all lead to equally many
        space = self.spaces[node.space].space
        entries = ((entry, askers) for entry, askers in offers.items() if not isinstance(entry, int | Choice))
        return [space.counter.count(space.moves.step(node.state, entry, askers)) for entry, askers in entries]

    def step(self, node: SearchState, decision: Decision, askers: list[Asker]) -> SearchState:
        """The node after one of the offers."""
        if isinstance(decision, int):
            return self._enter(decision, ())
        if node.space is None:
            raise ValueError("a decision before the choice of the configuration")
        if isinstance(decision, Choice):
            return self._enter(node.space, (*node.choices, decision))
        if node.state is None:
            raise ValueError("an entry before the choice of the launch settings")
        state = self.spaces[node.space].space.moves.step(node.state, decision, askers)
        return SearchState(node.space, state, node.choices)

    def finished(self, node: SearchState) -> bool:
        return (
            node.space is not None
            and node.state is not None
            and self.spaces[node.space].space.moves.finished(node.state)
        )

    def path(self, candidate: Candidate) -> tuple[Decision, ...]:
        """The decisions that lead to a candidate."""
        chosen: tuple[Decision, ...] = (candidate.space,) if len(self.spaces) > 1 else ()
        return (*chosen, *candidate.choices, *candidate.traversal.entries)

    def candidate(self, path: Sequence[Decision]) -> Candidate:
        """The candidate at the end of a path. Raises ValueError if the configuration is missing."""
        chosen = [decision for decision in path if isinstance(decision, int)]
        if len(chosen) != (len(self.spaces) > 1):
            raise ValueError("a path without the choice of the configuration")
        entries = tuple(d for d in path if not isinstance(d, int | Choice))
        choices = tuple(d for d in path if isinstance(d, Choice))
        return Candidate(chosen[0] if chosen else 0, Traversal(entries), choices)

    # ---- the model ----------------------------------------------------------------------

    @cached_property
    def _ops(self) -> int:
        """How many ops there are in all configurations."""
        return len({op.name for s in self.spaces for op in s.graph.ops})

    @property
    def sampled(self) -> int:
        """Drawing a candidate takes a time that grows with the square of the number of ops."""
        return max(LEAST_SAMPLED, int(SAMPLED * min(1.0, FEW_OPS / self._ops) ** 2))

    @property
    def hints(self) -> Sequence[Candidate]:
        return tuple(candidate for candidate, _ in sorted(self.earlier, key=lambda pair: pair[1])[:HINTED])

    uniform_first = True

    @property
    def has_surrogate(self) -> bool:
        """False for programs with so many ops that simulating a sample takes longer than measuring it."""
        return self._ops <= MOST_OPS

    def surrogate(self) -> Model:
        from dagc.lab.model.estimate import Model, costs_of  # loads numpy, scipy

        return Model(self.spaces, learned=costs_of(self.spaces, self.earlier) if self.earlier else None)

    # ---- counting and sampling ----------------------------------------------------------

    @cached_property
    def _sizes(self) -> tuple[int, ...] | None:
        sizes: list[int] = []
        for configured in self.spaces:
            try:
                sizes.append(configured.space.count() * configured.combinations)
            except TooManyStates as stopped:
                self._more_than = sum(sizes) + stopped.at_least * configured.combinations
                return None
        return tuple(sizes)

    def more_than(self) -> int:
        """A lower bound of the size if it is not known, else 0."""
        return 0 if self._sizes is not None else self._more_than

    def size(self) -> int | None:
        """The number of candidates; None if a space is too large to count."""
        return None if self._sizes is None else sum(self._sizes)

    def at(self, number: int) -> Candidate:
        """The candidate with this number, from 0: space by space, each in the order of IDs, each of these under all
        combinations of its launch settings. IndexError, ValueError."""
        if self._sizes is None:
            raise ValueError("the domain is too large to be numbered")
        for index, size in enumerate(self._sizes):
            if number < size:
                configured = self.spaces[index]
                traversal, combination = divmod(number, configured.combinations)
                choices = []
                for site in reversed(configured.sites):
                    combination, answer = divmod(combination, len(site.choices))
                    choices.append(site.choices[answer])
                return Candidate(index, configured.space.at(traversal), tuple(reversed(choices)))
            number -= size
        raise IndexError(number)

    def sample(self, random: Random) -> Candidate:
        """Uniform over all candidates; if they cannot be counted, a uniform configuration and a random walk."""
        size = self.size()
        return self.walk(random) if size is None else self.at(random.randrange(size))

    def walk(self, random: Random) -> Candidate:
        """A random configuration and random launch settings, then a random walk: each offer equally likely."""
        index = random.randrange(len(self.spaces))
        configured = self.spaces[index]
        choices = tuple(random.choice(site.choices) for site in configured.sites)
        return Candidate(index, configured.space.walk(random), choices)

    def likely(self, random: Random) -> Candidate:
        """A random configuration, each equally likely however many traversals it has; a random traversal of it; the
        launch settings that are fastest in a draw of what models and timings say of them."""
        index = random.randrange(len(self.spaces)) if len(self.spaces) > 1 else 0
        space = self.spaces[index].space
        traversal = space.walk(random) if self._sizes is None else space.at(random.randrange(space.count()))
        choices = []
        for site in self.spaces[index].sites:
            prior = site.prior or (1.0,) * len(site.choices)
            doubts = site.doubts or (DOUBTED,) * len(prior)
            drawn = [p * math.exp(random.gauss(0, d)) for p, d in zip(prior, doubts, strict=True)]
            choices.append(site.choices[drawn.index(min(drawn))])
        return Candidate(index, traversal, tuple(choices))

    def near(self, candidate: Candidate, random: Random) -> Candidate:
        """One op moved, one stream rebound, one sync op moved, dropped or added, another launch setting of one op, or
        another configuration; seldom several of these."""
        if len(self.spaces) > 1 and random.random() < RECONFIGURED:
            candidate = self._reconfigured(candidate, random)
            if random.random() >= AGAIN:
                return candidate
        configured = self.spaces[candidate.space]
        if any(len(site.choices) > 1 for site in configured.sites) and random.random() < RESET:
            candidate = Candidate(candidate.space, candidate.traversal, _reset(configured.sites, candidate, random))
            if random.random() >= AGAIN:
                return candidate
        moved = neighbour(configured.space.moves, candidate.traversal, _items_of(candidate), random)
        return Candidate(candidate.space, moved, candidate.choices)

    def _reconfigured(self, candidate: Candidate, random: Random) -> Candidate:
        """The same order, streams and launch settings, as far as may be, in another configuration."""
        space = (candidate.space + random.randrange(1, len(self.spaces))) % len(self.spaces)
        old, new = self.spaces[candidate.space], self.spaces[space]
        chosen = {name: value for choice in candidate.choices for name, value in choice.items()}
        choices = tuple(site.choice_of(chosen) or site.choices[0] for site in new.sites)
        if old.space.moves == new.space.moves:
            return Candidate(space, candidate.traversal, choices)
        return Candidate(space, carried_over(candidate.traversal, old.space, new.space), choices)

    def __iter__(self) -> Iterator[Candidate]:
        """All candidates, space by space, in the order of their numbers."""
        for number, configured in enumerate(self.spaces):
            for traversal in configured.space:
                for choices in product(*(site.choices for site in configured.sites)):
                    yield Candidate(number, traversal, choices)


@lru_cache(maxsize=64)  # a search asks for several neighbours of each of a few candidates
def _items_of(candidate: Candidate) -> Sequence[Item]:
    return outline(candidate.traversal)


def carried_over(traversal: Traversal, old: Space, new: Space) -> Traversal:
    """The traversal of another space of the program that is nearest: ops of equal names in the same order."""
    ids = {op.name: int(op.id) for op in new.graph.ops}
    shared = {
        int(op.id): ids[op.name] for op in old.graph.ops if op.name in ids and op.gpu == new.graph.ops[ids[op.name]].gpu
    }
    return follow(new.moves, translated(outline(traversal), shared, new.moves))


def _without_sites(configuration: Choice, sites: Sequence[Site]) -> Choice:
    """The decisions that are not launch settings of these sites, as files of all versions have them."""
    names = {name for site in sites for name in site.decisions}
    return without_later(Choice(tuple((n, v) for n, v in configuration.decisions if n not in names)))


def _reset(sites: Sequence[Site], candidate: Candidate, random: Random) -> tuple[Choice, ...]:
    """Its choices with another one at one of the sites."""
    chosen = list(candidate.choices)
    at = random.choice([i for i, site in enumerate(sites) if len(site.choices) > 1])
    others = [choice for choice in sites[at].choices if choice != chosen[at]]
    if random.random() < STEPPED:
        others = steps_of(sites[at].choices)[chosen[at]] or others
    chosen[at] = random.choice(others)
    return tuple(chosen)


@cache
def steps_of(choices: tuple[Choice, ...]) -> dict[Choice, list[Choice]]:
    """For each choice, those that differ from it in one tunable, whose next legal value it is."""
    rows = [tuple(choice.values()) for choice in choices]
    values = [sorted(set(column)) for column in zip(*rows, strict=True)]
    rank = [[of.index(v) for of, v in zip(values, row, strict=True)] for row in rows]
    out: dict[Choice, list[Choice]] = {}
    for choice, mine in zip(choices, rank, strict=True):
        best: dict[tuple[int, bool], tuple[int, int]] = {}
        for other, theirs in enumerate(rank):
            differ = [i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b]
            if len(differ) == 1:
                far = theirs[differ[0]] - mine[differ[0]]
                key = differ[0], far > 0
                best[key] = min(best.get(key, (abs(far), other)), (abs(far), other))
        out[choice] = [choices[other] for _, other in best.values()]
    return out


class ResultsFile(Protocol):
    """A results file (dagc.store.records)."""

    def begin(self, configuration: Choice, traversal: str) -> ImplementationId: ...

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

    def reference(self, seconds: float) -> None: ...


class OrderStore:
    """Writes measurements of the candidates of a domain to a results file."""

    def __init__(self, domain: Orders, records: ResultsFile) -> None:
        self.domain, self._records = domain, records
        self._references: list[float] = []

    def reference(self, seconds: float) -> None:
        """A timing of the drift reference. May be called in another thread: it is written before the next sample."""
        self._references.append(seconds)

    def write_references(self) -> None:
        while self._references:
            self._records.reference(self._references.pop(0))

    def begin(self, candidate: Candidate) -> ImplementationId:
        text = traversal_text(candidate.traversal, self.domain.spaces[candidate.space].graph)
        return self._records.begin(self.domain.configuration(candidate), text)

    def add(self, key: ImplementationId, sample: Sample) -> None:
        self.write_references()
        if sample.failure:
            self._records.fail(key, sample.failure)
            return
        others = dict(sample.metrics)
        seconds = others.pop("time", sample.value)
        self._records.add(key, seconds, sample.reference, sample.iterations, sample.purpose, others)


def candidate_of(domain: Orders, implementation: Implementation) -> Candidate | None:
    """An implementation of a results file, None if its configuration is not searched."""
    entry = domain.find(implementation.configuration)
    if entry is None:
        return None
    index, choices = entry
    traversal = implementation.order(domain.spaces[index].graph)
    return Candidate(index, traversal, choices)


def domain_of(
    graphs: Iterable[tuple[Choice, Graph]],
    work: int = COUNTING_WORK,
    sites: Mapping[Choice, tuple[Site, ...]] | None = None,
) -> Orders:
    """The traversals of these graphs. Graphs with equal moves (transports, launch parameters) are counted once.

    `work` bounds the counting of each, in states times ops. `sites`: the launch settings that are searched too.
    """
    counters: dict[Moves, Counter] = {}
    spaces = []
    for configuration, graph in graphs:
        moves = Moves.of(graph)
        counter = counters.setdefault(moves, Counter(moves, max(1, work // moves.size)))
        open_ = (sites or {}).get(configuration, ())
        spaces.append(ConfiguredSpace(configuration, Space(graph, counter=counter), open_))
    return Orders(spaces)
