"""A results file with its graphs, and the rules that are learned from it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError
from dagc.base.source import Source
from dagc.ir.choice import VARIANT, of_implementations, own_name
from dagc.ir.plan import Target
from dagc.ir.traversal import parse_traversal
from dagc.lab.candidate import Candidate
from dagc.lab.orders import domain_of
from dagc.lang.lower import parse_with_includes
from dagc.learn.classes import Outliers
from dagc.learn.disagreement import Disagreement, SpaceKind, disagreement
from dagc.learn.judging import FEWEST, estimate, in_halves, in_order
from dagc.learn.tree import learn as learn_rules
from dagc.learn.types import Example
from dagc.stages.program import ProgramText
from dagc.store.results import Estimate, Results, estimates, ranking, ties

if TYPE_CHECKING:
    from dagc.ir.choice import Choice
    from dagc.ir.program import Graph, Value
    from dagc.lab.orders import Orders
    from dagc.learn.judging import Estimates
    from dagc.learn.tree import LearnedRules
    from dagc.report.limits import LimitRow
    from dagc.store.results import Implementation


class Loaded:
    """A results file with the graphs of its configurations, rebuilt from the texts in the file."""

    def __init__(self, path: str | Path, objective: str | None = None) -> None:
        """`objective`: the objective to compare by (None: that of the search).

        Raises UsageError for a file that cannot be read, or does not have the metrics of the objective.
        """
        from dagc.store.records import load  # loads msgspec, sqlite3

        self.path = str(path)
        self.results: Results = load(path, objective)
        self._graphs: dict[Choice, Graph] = {}
        self._structures: dict[tuple[tuple[str, Value], ...], Graph] = {}

    @cached_property
    def _text(self) -> ProgramText:
        """The text in the file, regardless of later changes to the `.dag` file."""
        program = self.results.program
        texts = dict(program.sources)
        source = Source(program.path, texts[program.path])
        parsed = parse_with_includes(source, texts)
        text = ProgramText(Path(program.path), parsed, dict(program.params), self.results.folded)
        host = any(run.machine.target == Target.HOST.value for run in self.results.runs)
        return text.on(Target.HOST, here=False)[0] if host else text

    @cached_property
    def _structural(self) -> frozenset[str]:
        return frozenset(d.name for d in self._text.program().decisions if d.structural)

    def graph(self, configuration: Choice) -> Graph:
        """The graph of a configuration."""
        if configuration not in self._graphs:
            self._graphs[configuration] = self._text.graph(configuration)
        return self._graphs[configuration]

    def structure(self, configuration: Choice) -> Graph:
        """A graph with the ops and edges of a configuration; its launch settings may be those of another one.

        In a search over launch settings nearly every implementation has its own configuration.
        """
        structural = self._structural
        key = tuple((n, v) for n, v in configuration.decisions if n in structural or own_name(n) == VARIANT)
        if key not in self._structures:
            self._structures[key] = self.graph(configuration)
        return self._structures[key]

    def kind(self, implementation: Implementation) -> SpaceKind:
        """What it shares with implementations of equal ops."""
        decisions = implementation.configuration.decisions
        names = (n for n, _ in decisions if "." in n and not of_implementations(n))
        settings = frozenset(names) - self._structural
        key = tuple((n, v) for n, v in decisions if n not in settings)
        return SpaceKind(key, self.structure(implementation.configuration), settings)

    @cached_property
    def disagreement(self) -> Disagreement | None:
        """Whether implementations that differ only in the order of their ops give right and wrong results."""
        return disagreement(self.results, self.kind)

    @property
    def graphs(self) -> Mapping[Choice, Graph]:
        """The graphs of all configurations that have implementations."""
        return {c: self.graph(c) for c in sorted({i.configuration for i in self.results.implementations})}

    def samples(self) -> tuple[Example, ...]:
        """The measured implementations for rules, fastest first.

        With their medians as measured: what was confirmed is shrunk together elsewhere, and the step between that and
        the rest would look like a class of its own.
        """
        return tuple(self._sample(i, i.value(self.results.reference)) for i in self.results.measured())

    @property
    def doubts(self) -> tuple[str, ...]:
        """Lines on implementations that disagree; none if they agree."""
        return () if self.disagreement is None else self.disagreement.lines

    def best(self) -> Example | None:
        """The best implementation of the file; None without measurements, or if implementations disagree."""
        chosen = () if self.disagreement is not None else ranking(self.results)
        return self._sample(chosen[0], judged(chosen, 0, self.results).value) if chosen else None

    def limits(self, implementation: Implementation) -> tuple[LimitRow, ...]:
        """How far its ops and the program are from their lower bounds; none if the machine's speed is not known."""
        from dagc.study.limits import limits_of  # loads sympy

        value = implementation.value(self.results.reference) if self.results.objective.is_time else math.nan
        return limits_of(self.results, self.graph(implementation.configuration), implementation, value)

    def _sample(self, implementation: Implementation, value: float) -> Example:
        graph = self.structure(implementation.configuration)
        traversal = parse_traversal(implementation.traversal, graph, self.path)
        return Example(
            graph, implementation.configuration, traversal, value, len(implementation.samples),
            implementation.times(self.results.reference), tuple(place.order for place in implementation.taken),
        )  # fmt: skip


def judged(ranked: Sequence[Implementation], rank: int, results: Results) -> Estimate:
    """The estimate for the implementation of this rank, with the number of others equal to it within the noise."""
    series = [i.judged(results.reference) for i in ranked]
    found = estimates(series, results.noise)[rank]
    others = [*series[:rank], *series[rank + 1 :]]
    return found if rank == 0 else replace(found, ties=ties([series[rank], *others], results.noise))


def learn(
    loaded: Loaded,
    *,
    all_classes: bool = False,
    full_tree: bool = False,
    only: Collection[Choice] | None = None,
    samples: Sequence[Example] | None = None,
    halves: bool = False,
) -> LearnedRules:
    """Learn rules from all measurements of a results file (of the configurations in `only`).

    `full_tree`: not pruned by cross-validation. `samples`: learn from these instead, for instance estimates. `halves`:
    also judge rules of one half of the samples by the other half. Raises UsageError if there are none.
    """
    if samples is None:
        samples = [s for s in loaded.samples() if only is None or s.configuration in only]
    if not samples:
        raise UsageError(f"{loaded.path} has no measurements", "run `dagc explore` first, or continue with --resume")
    results = loaded.results
    chosen = (i for i in results.implementations if only is None or i.configuration in only)
    outliers = Outliers.of((i.times(results.reference) for i in chosen), results.noise)
    cost = 0.0 if full_tree else None
    learned = learn_rules(samples, results.noise, all_classes=all_classes, cost=cost, outliers=outliers)
    return replace(learned, halves=in_halves(samples, results.noise)) if halves else learned


# ---- estimates of what was not measured --------------------------------------------------------


WHOLE = 2500  # a space up to this size is estimated as a whole; of a larger one,
SAMPLE = 1000  # this many implementations, drawn uniformly (by random walks if they cannot be counted)


def estimated(samples: Sequence[Example], noise: float = math.nan) -> Estimates:
    """The samples and the rest of the space of their configurations, with times (`dagc.learn.judging.estimate`).

    `noise` is the relative standard deviation of a single measurement. The order of the samples does not matter.
    Raises UsageError for fewer than ten.
    """
    if len(samples) < FEWEST:
        raise UsageError(
            f"{len(samples)} implementations were measured, estimates need at least {FEWEST}",
            "measure more with `dagc explore --resume`, or leave out --estimate",
        )
    measured = in_order(samples)
    graphs = {s.configuration: s.graph for s in measured}
    domain = domain_of(graphs.items())
    spaces = {s.configuration: number for number, s in enumerate(domain.spaces)}
    known = [Candidate(spaces[s.configuration], s.traversal) for s in measured]
    others = _others(domain, known)
    unknown = [
        Example(domain.spaces[c.space].graph, domain.spaces[c.space].configuration, c.traversal, math.nan, 0)
        for c in others
    ]
    from dagc.lab.model.calibrate import fitted_simulation  # loads numpy

    return estimate(measured, unknown, fitted_simulation(domain.spaces, [*known, *others], len(known)), noise)


def _others(domain: Orders, known: Sequence[Candidate]) -> list[Candidate]:
    """The unmeasured implementations, or a sample of them."""
    size, random = domain.size(), Random(0)
    if size is not None and size <= WHOLE:
        candidates = list(domain)
    else:
        candidates = [domain.sample(random) for _ in range(SAMPLE)]
    measured = set(known)
    return [c for c in dict.fromkeys(candidates) if c not in measured]
