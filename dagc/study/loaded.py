"""A results file with its graphs, and the rules that are learned from it; files of one program, compared with each
other or joined by input."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from dagc.base.errors import ProgramError, UsageError, counted
from dagc.base.source import Source
from dagc.ir.choice import FUSE, VARIANT, of_implementations, own_name
from dagc.ir.plan import Target
from dagc.ir.program import ExchangeOp, shown
from dagc.ir.sym import Const
from dagc.lab.candidate import Candidate
from dagc.lab.orders import domain_of
from dagc.lang.lower import parse_with_includes
from dagc.learn.across import Input
from dagc.learn.classes import Outliers
from dagc.learn.disagreement import Disagreement, SpaceKind, disagreement
from dagc.learn.features import in_order
from dagc.learn.judging import FEWEST, estimate, learn_confirmed
from dagc.learn.tree import learn as learn_rules
from dagc.learn.types import Example
from dagc.stages.program import ProgramText
from dagc.store.results import Estimate, Results, estimates, ranking, ties, timed

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
        try:
            parsed = parse_with_includes(source, texts)
        except ProgramError as error:
            where = f"{self.path}: table source, row {program.path}"
            raise UsageError(f"{where}: {error.diagnostics[0].message}", "measure again into another file") from None
        text = ProgramText(Path(program.path), parsed, dict(program.params), self.results.folded)
        host = any(run.machine.target == Target.HOST.value for run in self.results.runs)
        return text.on(Target.HOST, here=False)[0] if host else text

    @cached_property
    def _structural(self) -> frozenset[str]:
        """Decisions that change ops or edges. Some exist only where they are asked for, so each set of names has a
        program; those on fusion are none of the program without forms."""
        named = {frozenset(i.configuration): i.configuration for i in self.results.implementations}
        programs = [self._text.program(configuration) for configuration in (None, *named.values())]
        fused = {n for names in named for n in names if n.startswith(FUSE)}
        return frozenset({d.name for program in programs for d in program.decisions if d.structural} | fused)

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
        """The graphs (`structure`) of all configurations that have implementations."""
        return {c: self.structure(c) for c in sorted({i.configuration for i in self.results.implementations})}

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

        value = math.nan
        if self.results.objective.is_time:
            value = next(estimate.value for i, estimate in timed(self.results) if i.id == implementation.id)
        return limits_of(self.results, self.graph(implementation.configuration), implementation, value)

    def _sample(self, implementation: Implementation, value: float) -> Example:
        graph = self.structure(implementation.configuration)
        traversal = implementation.order(graph, self.path)
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
    pruned, and only what halves of the samples do not refute (`learn_confirmed`), with neither of the former two and
    not `all_classes`. Raises UsageError if there are none.
    """
    if samples is None:
        samples = [s for s in loaded.samples() if only is None or s.configuration in only]
    if not samples:
        raise UsageError(f"{loaded.path} has no measurements", "run `dagc explore` first, or continue with --resume")
    results = loaded.results
    chosen = (i for i in results.implementations if only is None or i.configuration in only)
    outliers = Outliers.of((i.times(results.reference) for i in chosen), results.noise)
    if halves:
        return learn_confirmed(samples, results.noise, outliers)
    cost = 0.0 if full_tree else None
    return learn_rules(samples, results.noise, all_classes=all_classes, cost=cost, outliers=outliers)


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


# ---- several files ------------------------------------------------------------------------------


def shared_configurations(loaded: Loaded, full: Loaded) -> set[Choice]:
    """The configurations of `loaded`. Raises UsageError unless `full` is of the same program, and has one of them."""
    if not full.results.program.is_same(loaded.results.program):
        raise UsageError(
            f"{loaded.path} and {full.path} hold results of two programs ({loaded.results.program.hash},"
            f" {full.results.program.hash})",
            "compare explorations of the same text and parameters",
        )
    known = {i.configuration for i in loaded.results.implementations}
    if not known & {i.configuration for i in full.results.implementations}:
        raise UsageError(f"{loaded.path} and {full.path} have no configuration in common", "compare the same transport")
    return known


def named(path: str) -> tuple[str, str]:
    """(name, "" if none is given; path) of `NAME=FILE` or `FILE`."""
    name, sign, file = path.partition("=")
    if not sign or Path(path).exists():
        return "", path
    if not name.strip():
        raise UsageError(f"`{path}`: the input has no name", "give NAME=FILE, or FILE alone")
    return name.strip(), file


FEWEST_OF_INPUT = 20  # least implementations of an input


def check_joinable(files: Sequence[Loaded]) -> None:
    first = files[0]
    for other in files[1:]:
        one, two = first.results.program, other.results.program
        if not one.has_text_of(two):
            what = f"two versions of `{one.name}`" if one.name == two.name else f"`{one.name}` and `{two.name}`"
            raise UsageError(
                f"{first.path} and {other.path} hold results of {what}",
                "join files of one program text; its parameters may differ",
            )
        if first.results.objective.text != other.results.objective.text:
            raise UsageError(
                f"{first.path} was searched for {first.results.objective.text}, {other.path} for"
                f" {other.results.objective.text}",
                "choose what to compare: --objective time",
            )
    where: dict[tuple[object, ...], str] = {}
    for loaded in files:
        for mine in {
            (r.started, r.strategy, r.seed, loaded.path if math.isnan(r.noise) else r.noise)
            for r in loaded.results.runs
        }:  # a measured noise floor identifies a run as well as a serial number
            if mine in where:
                raise UsageError(
                    f"{loaded.path} and {where[mine]} hold the same run, begun {mine[0]}",
                    "its measurements would count twice; leave one of them out",
                )
            where[mine] = loaded.path
        count = len(loaded.results.measured())
        if count < FEWEST_OF_INPUT:
            raise UsageError(
                f"{loaded.path} has {counted(count, 'measured implementation')}, rules across inputs need"
                f" {FEWEST_OF_INPUT} of each",
                "measure more with `dagc explore --resume`, or leave it out",
            )


def inputs_of(names: Sequence[str], files: Sequence[Loaded]) -> tuple[Input, ...]:
    joined: dict[tuple[object, ...], list[int]] = {}
    for number, loaded in enumerate(files):
        run = loaded.results.runs[0]
        arrays = run.options.get("data")
        joined.setdefault((loaded.results.program.params, arrays, run.seed, run.ranks, run.machine.key), []).append(
            number
        )
    facts = {key: _facts(files[members[0]]) for key, members in joined.items()}
    out = []
    for key, members in joined.items():
        given = sorted({names[k] for k in members} - {""})
        if len(given) > 1:
            raise UsageError(f"{files[members[0]].path} has two names: {', '.join(given)}", "give one input one name")
        name = given[0] if given else _name(facts[key], list(facts.values()))
        samples = tuple(sample for k in members for sample in files[k].samples())
        noise = max((files[k].results.noise for k in members), key=lambda n: -1.0 if math.isnan(n) else n)
        out.append((name, Input(name, facts[key], samples, noise), members))
    for name, _, members in out:
        others = [m for other, _, m in out if other == name and m is not members]
        if others:
            raise UsageError(
                f"{files[members[0]].path} and {files[others[0][0]].path} are two inputs that no recorded value"
                f" distinguishes ({name or 'the same parameters and machine'})" if not names[members[0]] else
                f"two inputs have the name {name}",
                "name each input: NAME=FILE",
            )  # fmt: skip
    return tuple(one for _, one, _ in out)


def _facts(loaded: Loaded) -> tuple[tuple[str, Value], ...]:
    """The parameters, the size of the largest message if the program fixes it, and the machine."""
    run = loaded.results.runs[0]
    machine, bytes_ = run.machine, max(map(message_bytes, loaded.graphs.values()), default=0)
    return (
        *loaded.results.program.params, *([("message bytes", bytes_)] if bytes_ else []), ("ranks", run.ranks),
        ("GPU", machine.gpus[0] if machine.gpus else "none"), ("CPU", machine.cpu), ("target", machine.target),
    )  # fmt: skip


def message_bytes(graph: Graph) -> int:
    """Size of the largest message between two ranks, 0 if it is not known before the set-up has run."""
    program, largest = graph.program, 0
    arrays = {array.name: array for array in program.arrays}
    for message in (m for op in program.ops if isinstance(op, ExchangeOp) for m in op.messages):
        region = message.send
        array = arrays[region.array]
        bounds = [region.start, region.stop] if region.start is not None else []
        sizes = [d.value if isinstance(d, Const) else None for d in (*array.dims, *bounds)]
        if message.send_counts is not None or any(size is None for size in sizes):
            return 0
        numbers = [int(size) for size in sizes if size is not None]
        if bounds:
            numbers = [numbers[-1] - numbers[-2], *numbers[1:-2]]
        largest = max(largest, math.prod(numbers) * array.type.size)
    return largest


def _name(facts: tuple[tuple[str, Value], ...], all_facts: Sequence[tuple[tuple[str, Value], ...]]) -> str:
    """A name that distinguishes it from the others: as many of the differing facts as necessary."""
    differ = [(n, v) for n, v in facts if any(dict(other).get(n) != v for other in all_facts)]
    count = next((k for k in range(1, len(differ) + 1) if _bearers(differ[:k], all_facts) == 1), len(differ))
    return " ".join(f"{n}={shown(v)}" for n, v in differ[:count])


def _bearers(some: Sequence[tuple[str, Value]], all_facts: Sequence[tuple[tuple[str, Value], ...]]) -> int:
    return sum(all(fact in facts for fact in some) for facts in all_facts)
