"""Measurements as frozen types that search, records, rules and reports share. Times are in seconds.

A field named `value` holds what the objective compares: seconds per iteration, unless the file has another objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from statistics import median
from typing import Any, NamedTuple, NewType, TypeVar

from dagc.base.errors import UsageError, counted
from dagc.base.sample import CONFIRM, TIME, Objective, Sample
from dagc.base.statistics import Noise, faster, interval, shrunk
from dagc.cuda.lexer import tokens_of
from dagc.ir.choice import FUSE, Choice, names_form
from dagc.ir.plan import canonical_text
from dagc.ir.program import Graph, Value
from dagc.ir.traversal import Traversal, parse_traversal

ImplementationId = NewType("ImplementationId", int)


MOST_DRIFT = 1.5


def drift_factor(usual: float, now: float, follow: float = 1.0) -> float:
    """Factor for a time measured while the drift reference took `now` instead of `usual` seconds.

    1 if either is unknown. Clocks and temperature change times by some percent; a reference that deviates by more than
    half was itself disturbed (a busy machine), and dividing by it would distort a time: the factor is at most 1.5, and
    at least its inverse. `follow`: the part of such a change that the times follow (`dagc.base.statistics.followed`).
    """
    if math.isnan(usual) or math.isnan(now):
        return 1.0
    return float(min(max((usual / now) ** follow, 1 / MOST_DRIFT), MOST_DRIFT))


class Taken(NamedTuple):
    """When a sample was taken: its run (index into `Results.runs`), and its position among all samples of the file."""

    run: int
    order: int


@dataclass(frozen=True, slots=True)
class Implementation:
    """A traversal of one configuration (as text), with all samples of it but those of failures.

    The value of a sample is as measured, by default in seconds per iteration, the maximum over the ranks; its
    `metrics` are all measured values. Its `reference` is the median of the three timings of the drift reference before
    and the three after, scaled to the file's (`dagc.store.read`).
    """

    id: ImplementationId
    configuration: Choice
    traversal: str
    samples: tuple[Sample, ...] = ()
    failure: str = ""
    taken: tuple[Taken, ...] = ()  # of the samples

    def order(self, graph: Graph, file: str = "the results file") -> Traversal:
        """Its traversal in the graph of its configuration. Raises UsageError, naming the row of the file."""
        try:
            return parse_traversal(self.traversal, graph)
        except UsageError as error:
            where = f"{file}: table candidate, row {self.id}"
            raise UsageError(f"{where}, {error.message}", "measure again into another file") from None

    def times(self, reference: float = math.nan) -> tuple[float, ...]:
        """Values, with drift divided out: scaled as if the drift reference had always taken `reference` seconds.

        A measurement without a reference, and all of them if `reference` is NaN, are unchanged.
        """
        return tuple(m.value * drift_factor(reference, m.reference) for m in self.samples)

    def confirming(self, reference: float = math.nan) -> tuple[float, ...]:
        """Those of `times` that were taken after it was chosen to be confirmed: they did not choose it."""
        return self._confirming(self.times(reference))

    def _confirming(self, times: Sequence[float]) -> tuple[float, ...]:
        return tuple(time for m, time in zip(self.samples, times, strict=True) if m.purpose == CONFIRM)

    def judged(self, reference: float = math.nan) -> tuple[float, ...]:
        """The values that judge it (`judging`)."""
        times = self.times(reference)
        return tuple(judging(times, self._confirming(times)))

    def value(self, reference: float = math.nan) -> float:
        """The median of the values that judge it; NaN without measurements. `timed` gives the estimate that is
        shown."""
        values = self.judged(reference)
        return median(values) if values else math.nan


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """One entry of a traversal in a traced run of one rank: when the CPU issued it, and when the GPU worked on it.

    All in seconds from the start of the iteration; `gpu_begin` and `gpu_end` are NaN for entries that no GPU executes.
    """

    rank: int
    position: int
    begin: float
    end: float
    gpu_begin: float = math.nan
    gpu_end: float = math.nan


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """The machine of a run. Two files are from the same machine if their keys are equal."""

    hosts: tuple[str, ...]
    cpu: str
    cores: int
    gpus: tuple[str, ...]
    driver: str
    mpi: str
    target: str
    arch: str
    facts: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)  # clocks, compiler, versions

    @property
    def key(self) -> str:
        """The facts that must agree for times to be comparable: hardware, driver, target. The MPI may differ between
        runs."""
        return " | ".join((self.cpu, str(self.cores), ", ".join(self.gpus) or "no GPU", self.driver, self.target))


def described(facts: Mapping[str, Any]) -> MachineRecord:
    """Of the JSON of its fields."""
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
    return MachineRecord(**fields)


def of_hosts(machines: Sequence[MachineRecord]) -> MachineRecord:
    """The record of a run on several hosts: the first one's, with the names of all."""
    return replace(machines[0], hosts=tuple(sorted({host for machine in machines for host in machine.hosts})))


def unlike(machines: Sequence[MachineRecord]) -> list[str]:
    """A note on each fact that is not the same on all hosts."""
    notes = []
    for what, of in _MUST_AGREE.items():
        hosts: dict[str, set[str]] = {}
        for machine in machines:
            hosts.setdefault(of(machine), set()).update(machine.hosts)
        if len(hosts) > 1:
            found = "; ".join(f"{value or 'none'} on {', '.join(sorted(names))}" for value, names in hosts.items())
            notes.append(f"the hosts differ in {what}: {found}")
    return notes


def _largest_clocks(machine: MachineRecord) -> str:
    known = machine.facts.get("clocks", [])
    return ", ".join(f"{one.get('clocks.max.sm')} and {one.get('clocks.max.mem')}" for one in known)


_MUST_AGREE: Mapping[str, Callable[[MachineRecord], str]] = {
    "their processor": lambda machine: f"{machine.cpu} with {counted(machine.cores, 'core')}",
    "their GPUs": lambda machine: ", ".join(machine.gpus),
    "the driver": lambda machine: machine.driver,
    "the MPI": lambda machine: machine.mpi,
    "the largest clocks of GPU and memory": _largest_clocks,
}


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """The measured program: enough to build its graphs again."""

    name: str
    path: str
    hash: str  # dagc.ir.plan.program_hash
    sources: tuple[tuple[str, str], ...]  # path, text
    params: tuple[tuple[str, Value], ...]

    def has_text_of(self, other: ProgramRecord) -> bool:
        """Whether the texts are equal but for comments and layout, wherever the files lie; parameters may differ."""
        return self.name == other.name and self._texts() == other._texts()

    def is_same(self, other: ProgramRecord) -> bool:
        """Whether results of one may be used for the other: as `has_text_of`, and the parameters are equal."""
        return self.hash == other.hash or (self.has_text_of(other) and sorted(self.params) == sorted(other.params))

    def _texts(self) -> list[str]:
        texts = ((path.endswith(".dag") or path == self.path, text) for path, text in self.sources)
        return sorted(canonical_text(text) if dag else tokens_of(text) for dag, text in texts)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of `dagc explore`: what was measured, where and how. `options` are those of the command, as JSON."""

    started: str  # ISO 8601, UTC
    machine: MachineRecord
    ranks: int
    seed: int
    strategy: str
    seconds: float  # length of one measurement
    revision: str  # git, "" if there is none
    version: str  # of dagc
    noise: float = math.nan  # coefficient of variation of the drift reference, measured first
    options: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)


SPACE = "space"  # option of a run: the number of implementations that it searched, in decimal digits
GROUP = "group"  # option of a run: of a further group of ranks, which measured beside the run before it, its number
FOLDED = "folded"  # option of a run: true if its traversals describe one round of each loop


@dataclass(frozen=True, slots=True)
class Results:
    """A results file, loaded. `reference` is the median of the drift reference over the file (NaN: never measured).

    `noise` is the noise floor: the relative standard deviation of single measurements of one implementation.
    `objective` gives the compared value, `units` are those of all metrics in the file.
    """

    program: ProgramRecord
    runs: tuple[Run, ...]
    implementations: tuple[Implementation, ...]
    reference: float = math.nan
    noise: float = math.nan
    traces: dict[ImplementationId, tuple[TraceSpan, ...]] = field(default_factory=dict, compare=False, hash=False)
    objective: Objective = TIME
    units: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False)

    @property
    def folded(self) -> bool:
        """Whether its traversals describe one round of each loop (`dagc.space.loops`), not every round."""
        return any(run.options.get(FOLDED) is True for run in self.runs)

    @property
    def forms(self) -> bool:
        """Whether the configurations have forms of kernels."""
        return any(names_form(i.configuration) for i in self.implementations)

    @property
    def predicted(self) -> str:
        """What has predicted its times (`explore --simulate`), for how many ranks; "" for measured ones."""
        last = self.runs[-1] if self.runs else None
        return f"{last.machine.cpu}, {counted(last.ranks, 'rank')}" if last and last.options.get("simulate") else ""

    @property
    def searched(self) -> int | None:
        """The size of the largest space that a run searched; None if no run has stored it."""
        stored = (run.options.get(SPACE) for run in self.runs)
        return max((int(n) for n in stored if isinstance(n, str) and n.isdecimal() and len(n) < 1000), default=None)

    def check_folded(self, folded: bool, name: str) -> None:
        """Raises UsageError if new traversals would be of another kind than its own."""
        if self.runs and self.folded != folded:
            kinds = {True: "one order for all rounds of a loop", False: "an order for each round of a loop"}
            raise UsageError(
                f"{name} has {kinds[self.folded]}, this is a search for {kinds[folded]}",
                f"{'drop' if self.folded else 'give'} --unroll, or choose another file with -o",
            )

    def measured(self) -> tuple[Implementation, ...]:
        """Implementations with at least one time, fastest first (median of the values that judge it; ties by ID).

        Excludes those that ever failed. `ranking` decides which is the best, `timed` what each takes.
        """
        timed = [i for i in self.implementations if i.samples and not i.failure]
        return tuple(sorted(timed, key=lambda i: (i.value(self.reference), i.id)))


# ---- decisions of later versions ------------------------------------------------------------

# Of files from before these were decisions.
EARLIER = {
    "host_memory": "pinned", "transfers": "at_need", "collectives": "same", "graph_edges": "full", "loop": "host",
    "test_every": 1, "put_wait": "op", "rank_order": "same",
}  # fmt: skip


def without_later(configuration: Choice) -> Choice:
    """Without what says the same as its absence: decisions that files of earlier versions lack, as they were then."""
    kept = ((n, v) for n, v in configuration.decisions if v != (0 if n.startswith(FUSE) else EARLIER.get(n)))
    return Choice(tuple(kept))


# ---- noise ----------------------------------------------------------------------------------

NOISY = 0.1  # relative standard deviation of one measurement; on a machine at rest it is 0.01 to 0.03


def noise_advice(noise: float, machine: MachineRecord, ranks: int) -> tuple[str, ...]:
    """A warning for a noise floor of at least NOISY, with its likely cause from `machine.facts` and a remedy, or ()."""
    if not noise >= NOISY:
        return ()
    facts = machine.facts
    seen = []
    load = facts.get("load")
    if isinstance(load, list) and load and isinstance(load[0], int | float):
        seen.append(f"load average {load[0]:.1f} on {machine.cores} cores, for {counted(ranks, 'rank')}")
    processes = facts.get("gpu_processes")
    if isinstance(processes, list) and processes:
        seen.append(f"other processes on the GPUs: {', '.join(map(str, processes[:5]))}")
    clocks = facts.get("clocks")
    if isinstance(clocks, list):
        both = [(c.get("clocks.sm"), c.get("clocks.max.sm")) for c in clocks if isinstance(c, dict)]
        seen += [f"SM clock {now} of at most {most}" for now, most in dict.fromkeys(both) if now and most]
    crowded = f" start fewer ranks than the {machine.cores} cores (-n)," if ranks >= machine.cores else ""
    clocked = ", on GPUs fix the clocks (nvidia-smi -lgc)" if machine.gpus else ""
    ways = f"stop other processes,{crowded} measure longer (--seconds 0.1) and more often (--passes 5){clocked}"
    floor = f"The noise floor of one measurement is {100 * noise:.0f} %"
    return (
        f"{floor}: times that differ by less cannot be distinguished. The machine is busy, or its clocks change.",
        *([f"Observed before measuring: {'; '.join(seen)}."] if seen else []),
        f"To reduce it: {ways}.",
    )


def noise_advice_of(results: Results) -> tuple[str, ...]:
    """As `noise_advice`, for a results file, from its last run with the groups on the same hosts beside it; of
    predicted times, that they are."""
    if results.predicted or not results.runs:
        return (f"No time was measured: all are {results.predicted}.",) if results.predicted else ()
    number = max((n for n, run in enumerate(results.runs) if GROUP not in run.options), default=0)
    first, *groups = results.runs[number:]
    beside = sum(run.ranks for run in groups if set(run.machine.hosts) & set(first.machine.hosts))
    return noise_advice(results.noise, first.machine, first.ranks + beside)


# ---- the best ----------------------------------------------------------------------

CONFIRMED = 5  # measurements that confirm a choice: more add no weight
TWICE = 2  # measurements of a candidate that count against one that was confirmed
FASTEST = 10
ALIKE = 50  # maximal number of candidates in a confirmation: more is a pass over everything
T = TypeVar("T")


def judging(times: Sequence[float], confirming: Sequence[float], least: int = 1) -> Sequence[float]:
    """Those of a candidate's times that judge it: the confirming ones, which did not choose it. All of them if there
    are fewer than `least` confirming ones, or one beside TWICE others, which could be the disturbed one."""
    one = len(confirming) == 1 and len(times) > TWICE
    return times if one or len(confirming) < least else confirming


def rank(
    timed: Iterable[T],
    times: Callable[[T], Sequence[float]],
    confirming: Callable[[T], Sequence[float]] = lambda _: (),
) -> tuple[T, ...]:
    """The candidates for the best, fastest first: by the median of their times; ties in the given order.

    `times`: of one candidate (at least one), as measured, with drift divided out; `confirming`: those of them taken
    after the choice of what is confirmed. If there are any, only they decide: the times by which a candidate was chosen
    are too low (selection bias). A single low time must not win over a median of several either, so only candidates
    with the largest number of measurements are ranked, counted up to CONFIRMED. If none of the FASTEST by their first
    measurements has that many, the largest number among these is used: a pass that ended early has not measured the
    fastest again yet.

    Others that were measured TWICE and are faster than the first beyond the noise come before it: the result is never
    worse than what was measured repeatedly.
    """
    measured = [(one, times(one), confirming(one)) for one in timed]
    most = min(CONFIRMED, max((len(confirmed) for _, _, confirmed in measured), default=0))
    if most:
        judged = [(one, judging(series, confirmed)) for one, series, confirmed in measured if len(confirmed) >= most]
    else:
        shortlist = nsmallest(FASTEST, (series for _, series, _ in measured), key=lambda series: series[0])
        enough = min(CONFIRMED, max((len(series) for series in shortlist), default=0))
        judged = [(one, series) for one, series, _ in measured if len(series) >= enough]
    judged.sort(key=lambda pair: median(pair[1]))
    if not judged:
        return ()
    noise, first = Noise(series for _, series, _ in measured), judged[0][1]
    ahead = [
        (one, seen)
        for one, series, confirmed in measured
        if len(seen := judging(series, confirmed, TWICE)) >= TWICE and faster(seen, first, noise.between(seen, first))
    ]
    ahead.sort(key=lambda pair: median(pair[1]))
    named = {id(one) for one, _ in ahead}
    return tuple(one for one, _ in (*ahead, *(pair for pair in judged if id(pair[0]) not in named)))


def ranking(results: Results) -> tuple[Implementation, ...]:
    """The implementations of a results file that may be the best, fastest first. `dagc best` takes the first.

    All code that names a best implementation uses this.
    """
    timed = (i for i in results.implementations if i.samples and not i.failure)
    return rank(timed, lambda i: i.times(results.reference), lambda i: i.confirming(results.reference))


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected value of a candidate, its 95% interval `low` to `high`, and the number of measurements behind it.

    ties    of the best: number of others that are equal within the noise
    shrunk  shrunk towards the candidates confirmed with it; the interval then covers 95% even with few measurements
    """

    value: float
    low: float
    high: float
    measurements: int
    ties: int
    shrunk: bool = False


def estimates(ranked: Sequence[Sequence[float]], noise: float = math.nan) -> list[Estimate]:
    """Of each of `ranked`: the values that judge each candidate, best first, at least one.

    Candidates confirmed together are similar: the smallest of their medians is too low, so all are shrunk towards
    their mean (`dagc.base.statistics.shrunk`). If there are too few, an estimate is the median with its own interval.
    """
    best = ranked[0]
    alike = [series for series in ranked if len(series) == len(best)] if len(best) > 1 else []
    together = shrunk(alike) if len(alike) == len(ranked) <= ALIKE else None
    if together is not None:
        out = [Estimate(*one, len(series), 0, True) for one, series in zip(together, ranked, strict=True)]
        equal = sum(interval(series)[0] <= out[0].high for series in ranked[1:])
    else:
        out = [_alone(series) for series in ranked]
        equal = ties(ranked, noise)
    return [replace(out[0], ties=equal), *out[1:]]


def _alone(series: Sequence[float]) -> Estimate:
    return Estimate(median(series), *interval(series), len(series), 0)


def best_estimate(ranked: Sequence[Sequence[float]], noise: float = math.nan) -> Estimate:
    """That of the first of `ranked`."""
    return estimates(ranked, noise)[0]


def timed(results: Results) -> list[tuple[Implementation, Estimate]]:
    """The measured implementations with what each takes, fastest first: the one estimate that every command prints,
    draws, and divides by.

    Those that were confirmed together are shrunk together, also if others were not measured as often.
    """
    ranked = ranking(results)
    found = estimates([i.judged(results.reference) for i in ranked], results.noise) if ranked else []
    of_ranked = {i.id: estimate for i, estimate in zip(ranked, found, strict=True)}
    out = [(i, of_ranked.get(i.id) or _alone(i.judged(results.reference))) for i in results.measured()]
    return sorted(out, key=lambda pair: (pair[1].value, pair[0].id))


def ties(ranked: Sequence[Sequence[float]], noise: float = math.nan) -> int:
    """How many others cannot be distinguished from the first: the 95% intervals of their medians overlap.

    `ranked`: times of the candidates, best first. For a single time, two standard deviations of a single measurement
    replace the interval (zero if the noise is not known).
    """
    if not ranked:
        return 0
    margin = 0.0 if math.isnan(noise) else 2 * noise
    best = ranked[0]
    high = interval(best)[1] if len(best) > 1 else best[0] * (1 + margin)
    return sum((interval(t)[0] if len(t) > 1 else t[0] * (1 - margin)) <= high for t in ranked[1:])


def lowest(results: Results) -> float:
    """The lowest single measurement of all, drift divided out; NaN without measurements."""
    return min((min(i.times(results.reference)) for i in results.measured()), default=math.nan)


def wanted_repeats(results: Results) -> int:
    """Measurements that confirm a choice: CONFIRMED, `--repeats` of the last search if that is less, one prediction."""
    if results.predicted:
        return 1
    asked = [run.options["repeats"] for run in results.runs if "repeats" in run.options]
    return min(CONFIRMED, asked[-1]) if asked else CONFIRMED
