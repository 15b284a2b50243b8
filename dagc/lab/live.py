"""Machines: the real one, where candidates are checked, timed, and traced on running ranks; and the replay of a
recorded results file, which compares strategies and rules on real data, without a GPU."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from statistics import median
from typing import Any

from dagc.base.errors import RunFailed, WrongResult
from dagc.base.sample import TIME, Objective, Sample
from dagc.base.statistics import noise_floor
from dagc.choice.types import Site
from dagc.ir.choice import Choice
from dagc.ir.enums import Opcode
from dagc.ir.traversal import Row, Traversal, traversal_text
from dagc.lab.candidate import Candidate
from dagc.lab.launches import Launches, SizedProgram, Timing, Tolerance
from dagc.lab.orders import Orders
from dagc.measure.metrics import least_seconds, observed
from dagc.measure.service import OPEN_SECONDS, HostLost, RankLink, RanksDied, RunnerLibrary, Service, one_line
from dagc.store.results import Implementation, MachineRecord, Results, TraceSpan, described, of_hosts

AROUND = 3  # timings of the drift reference, whose median counts
EVERY = 8  # measurements between two timings of the drift reference

_OP = " op `"  # dagc.emit.iteration.titled


@dataclass(frozen=True, slots=True)
class Loadable:
    """The runner library of one configured space of a domain. Spaces that differ only in capture or loop share one.

    rows      dagc.emit.rows: a traversal as a table of the runner, with or without capture regions, or a loop
    capture   whether it has them
    """

    library: RunnerLibrary
    rows: Callable[[Traversal, bool], Sequence[Row]]
    capture: bool = False


class LiveMachine:
    """Measures the candidates of a domain. A failure is a sample; the next measurement starts the ranks again.

    The drift reference is the candidate whose noise floor was measured, else the first that can be measured, whose time
    is the first timing. It is timed again after every eighth measurement; each of these timings is passed to
    `on_reference` at once. The reference of a sample is the median of the last three.
    """

    def __init__(
        self,
        domain: Orders,
        loadables: Sequence[Loadable],
        link: RankLink,
        *,
        seconds: float = 0.01,
        watchdog: float = 20.0,
        on_reference: Callable[[float], None] | None = None,
        objective: Objective = TIME,
    ) -> None:
        """`loadables`: one for each space of the domain; those that are missing are loaded later. `seconds`: length of
        one measurement, longer if a metric of the objective needs more.

        `watchdog`: seconds after which a measurement counts as hung, at least a hundred times its expected length.
        """
        self.domain = domain
        self.on_reference = on_reference
        self._loadables = dict(enumerate(loadables))
        self._service = Service(link, watchdog=watchdog)
        self._objective, self._observed = objective, observed(objective)
        self._seconds, self._watchdog = max(seconds, least_seconds(self._observed)), watchdog
        self._audited: dict[
            RunnerLibrary, str
        ] = {}  # the result of the audit of a library's ops, "" if it found nothing
        self._op_failed: dict[RunnerLibrary, str] = {}  # how the ranks ended when the ops of a library ran one by one
        self._measured: Counter[Candidate] = Counter()
        self._last: dict[int, float] = {}  # seconds of an iteration, by index of the space
        self._reference: Candidate | None = None
        self._timings: list[float] = []  # of the drift reference
        self._since = 0
        self._alone = True  # there is no other machine that could measure in its place

    def beside(self, link: RankLink) -> LiveMachine:
        """A machine of other ranks for the same candidates, with the same drift reference. It and this one then raise
        RunFailed, and give no sample, if the ranks died and cannot be started again."""
        other = LiveMachine(
            self.domain, (), link, seconds=self._seconds, watchdog=self._watchdog, objective=self._objective
        )
        other._loadables, other._audited, other._reference = self._loadables, self._audited, self._reference
        other._last, other._since, other._alone = dict(self._last), EVERY, False
        self._alone = False
        self._timings.clear()  # they were taken while the other ranks were idle
        self._since = EVERY
        return other

    # ---- measuring ----------------------------------------------------------------------------

    def measure(self, candidate: Candidate) -> Sample:
        """Check the results of the candidate unless that was done before, then time it once.

        Raises RunFailed if the ranks cannot be started, MissingTool if mpi4py is missing.
        """
        died = self._service.died
        if self._since >= EVERY:
            for _ in range(1 if self._timings else AROUND):
                self.time_reference()
        sample = self.probe(candidate)
        if sample.failure:
            if not self._alone and self._service.died > died:
                self.start()
            return sample
        self._since += 1
        if self._reference is None:
            self._reference = candidate
            self._timed(self._last[candidate.space])
        return replace(sample, reference=self._around()) if self._objective.is_time else sample

    def probe(self, candidate: Candidate) -> Sample:
        """As `measure`, without the drift reference: while other work disturbs the machine."""
        seconds, iterations, failure, others = self._time(candidate, self._observed)
        if failure:
            return Sample(failure=failure)
        if self._objective.is_time:
            return Sample(seconds, iterations=iterations)
        metrics = {"time": seconds, **others}
        value = self._objective.value(metrics)
        if math.isnan(value) or not all(0 <= amount < math.inf for amount in metrics.values()):
            amounts = ", ".join(f"{name} {amount:g}" for name, amount in metrics.items())
            return Sample(failure=f"no objective: {self._objective.text} is not a number above 0 ({amounts})")
        return Sample(value, iterations=iterations, metrics=metrics)

    def time_reference(self) -> float:
        """Time the drift reference; NaN if there is none yet, or if it fails. Also called at the end of a search."""
        self._since = 0
        if self._reference is None:
            return math.nan
        seconds, _, failure, _ = self._time(self._reference)
        return math.nan if failure else self._timed(seconds)

    def _timed(self, seconds: float) -> float:
        """Keep a timing of the drift reference."""
        self._timings.append(seconds)
        if self.on_reference is not None:
            self.on_reference(seconds)
        return seconds

    def start(self, **command: Any) -> dict[str, Any]:
        """Start the ranks, unless they run. Returns their answer to a first command. Raises RunFailed, MissingTool."""
        first = {"do": "hello", "limit": OPEN_SECONDS, **command}
        try:
            with suppress(HostLost):
                return self._service.send(first)
            return self._service.send(first)
        except RanksDied as death:
            raise RunFailed(f"the ranks failed to start: {death}") from None

    def hosts(self, target: str, arch: str) -> tuple[MachineRecord, ...]:
        """Start the ranks, and describe each of their hosts. Raises RunFailed, MissingTool."""
        return tuple(map(described, self.start(do="describe", target=target, arch=arch)["machines"]))

    def facts(self, target: str, arch: str) -> MachineRecord:
        """The first of these, with the names of all hosts."""
        return of_hosts(self.hosts(target, arch))

    def noise_floor(self, reference: Candidate, number: int = 20, limit: float = math.inf) -> float:
        """Make `reference` the drift reference and time it `number` times; the relative deviation of a single timing.

        After `limit` seconds no further timing begins, but there is at least one. NaN if there are too few.
        Raises WrongResult if its results are wrong, RunFailed if it cannot be measured.
        """
        _, _, failure, _ = self._time(reference)
        if failure:
            raise WrongResult(failure) if failure.startswith("wrong result") else RunFailed(failure)
        self._reference = reference
        end = time.monotonic() + limit
        timings: list[float] = []
        while len(timings) < number and (not timings or time.monotonic() < end):
            timings.append(self.time_reference())
        return noise_floor([[t for t in timings if not math.isnan(t)]])

    def load(self, index: int, loadable: Loadable) -> None:
        """The runner library of a space, which has been built."""
        self._loadables[index] = loadable

    def quickest(self) -> Candidate:
        """The first traversal of the space whose last time was the least, for example after `probe`."""
        spaces = range(len(self.domain.spaces))
        return self.domain.first(min(spaces, key=lambda index: self._last.get(index, math.inf)))

    def narrow(self, spaces: Sequence[int]) -> Orders:
        """Restrict the machine to these spaces. Returns the new domain; candidates of the old one become invalid."""
        narrowed = Orders([self.domain.spaces[index] for index in spaces])
        self.turn_to(narrowed, {old: new for new, old in enumerate(spaces)})
        return narrowed

    def turn_to(self, domain: Orders, numbers: Mapping[int, int]) -> None:
        """Measure the candidates of another domain. `numbers`: of the spaces that it has, by those of the old one."""
        self.domain = domain
        self._loadables = {numbers[old]: of for old, of in self._loadables.items() if old in numbers}
        self._last = {numbers[old]: last for old, last in self._last.items() if old in numbers}
        self._service.deaths.forget()
        kept = (
            (replace(c, space=numbers[c.space]), times) for c, times in self._measured.items() if c.space in numbers
        )
        self._measured = Counter(dict(kept))  # what was checked is not checked again
        self._reference = None

    def alone(
        self, index: int, site: Site, repeats: int, timing: Timing, tolerance: Tolerance
    ) -> Callable[[Choice], Sample]:
        """Time single launches of an op of a space under a choice of its site, on the data that it reads in its
        program. `repeats`: number of runs of the program that produced the references."""
        first, graph = self.domain.first(index), self.domain.spaces[index].graph.unrolled
        rows = tuple(self._loadables[index].rows(first.traversal, False))
        issued = tuple(a for kind, a, _ in rows if kind == Opcode.ISSUE and graph.ops[a].name != "end")
        op = next(a for a in issued if (called := graph.ops[a].kernel) is not None and called.site == site.name)
        program = SizedProgram(self._loadables[index].library, rows, issued, repeats)

        return Launches(
            self._service, program, op, _values(*first.choices), _values, timing=timing, tolerance=tolerance
        ).measure

    def trace(self, candidate: Candidate) -> tuple[TraceSpan, ...]:
        """Trace one iteration on all ranks, without capture; empty if it fails."""
        index = candidate.space
        try:
            answer = self._ask(
                index, do="trace", rows=self._rows(candidate, False), settings=_values(*candidate.choices),
                limit=self._limit(index),
            )  # fmt: skip
        except RanksDied:
            return ()
        return tuple(TraceSpan(int(rank), int(at), *times) for rank, at, *times in answer.get("spans", ()))

    # ---- internals ----------------------------------------------------------------------------

    def _around(self) -> float:
        return median(self._timings[-AROUND:]) if self._timings else math.nan

    def _rows(self, candidate: Candidate, capture: bool) -> list[list[int]]:
        return [list(row) for row in self._loadables[candidate.space].rows(candidate.traversal, capture)]

    def _limit(self, index: int) -> float:
        return max(self._watchdog, 100 * self._last.get(index, 0.0), 100 * self._seconds)

    def _time(self, candidate: Candidate, metrics: Sequence[str] = ()) -> tuple[float, int, str, dict[str, float]]:
        """(seconds, iterations, failure, other metrics by name)."""
        index = candidate.space
        given_up = self._service.deaths.given_up(index)
        if given_up:
            return math.nan, 0, given_up, {}
        guess = self._last.get(index, 0.0)
        times = self._measured[candidate] + 1
        try:
            answer = self._audit(index) or self._ask(
                index, do="measure", rows=self._rows(candidate, self._loadables[index].capture),
                settings=_values(*candidate.choices),
                # Checked again after 2, 4, 8, ... measurements: when it is confirmed, but not each time.
                check=times == 1, recheck=times & (times - 1) == 0,
                seconds=self._seconds, guess=guess, metrics=list(metrics), limit=self._limit(index),
            )  # fmt: skip
        except RanksDied as death:
            return math.nan, 0, self._note_death(index, str(death)), {}
        if "error" in answer:
            return math.nan, 0, one_line(f"run failed: {answer['error']}"), {}
        if "wrong" in answer:
            return math.nan, 0, one_line(f"wrong result: {answer['wrong']}"), {}
        self._measured[candidate] = times
        self._last[index] = answer["seconds"]
        self._service.deaths.success(index)
        return answer["seconds"], answer["iterations"], "", answer["metrics"]

    def _audit(self, index: int) -> dict[str, Any]:
        """On the first use of a library: an answer that names the op that violates its header, or an empty one.

        Runs the first and the last order, which differ most: overlapping parts show up whichever op comes first.
        """
        key = self._loadables[index].library
        if key not in self._audited:
            space = self.domain.spaces[index].space
            usual = self.domain.spaces[index].usual
            orders = [Candidate(index, traversal, usual) for traversal in (space.first(), space.last())]
            tables = [self._rows(order, False) for order in orders]
            settings = _values(*orders[0].choices)
            try:
                answer = self._ask(index, do="audit", tables=tables, settings=settings, limit=self._limit(index))
            except RanksDied as death:  # perhaps in one order only: the measurement decides
                answer = {}
                self._op_failed[key] = str(death)
            if "error" in answer:
                return answer
            self._audited[key] = answer.get("wrong", "")
        return {"wrong": self._audited[key]} if self._audited[key] else {}

    def _note_death(self, index: int, failure: str) -> str:
        """The failure, with the op that caused it, if known."""
        failure = one_line(failure)
        failed = one_line(self._op_failed.get(self._loadables[index].library, ""))
        if _OP in failed and _OP not in failure:  # errors of a GPU are reported by a later call
            failure = f"{failure}; op by op: {failed.removeprefix('run failed: ')}"
        return self._service.deaths.death(index, failure)

    def _ask(self, index: int, **command: Any) -> dict[str, Any]:
        """Execute a command with the library of the space open. Raises RanksDied."""
        return self._service.ask(self._loadables[index].library, **command)


def _values(*choices: Choice) -> list[tuple[str, int]]:
    """The values of open launch parameters, for the runner."""
    return [(name, int(value)) for choice in choices for name, value in choice.items()]


class ReplayMachine:
    """Returns recorded times, with drift divided out.

    The passes of each implementation are returned in an order drawn by `seed`, each once, then again except the first.
    An implementation that was not recorded is a failure.
    """

    def __init__(self, results: Results, domain: Orders, seed: int) -> None:
        self.domain, self.results = domain, results
        self._recorded = {(i.configuration, i.traversal): i for i in results.implementations}
        self._random = Random(seed)
        self._dealt: dict[int, list[int]] = {}  # per implementation, order of its passes
        self._next: dict[int, int] = {}

    def measure(self, candidate: Candidate) -> Sample:
        implementation = self._implementation(candidate)
        if implementation is None:
            return Sample(failure="not recorded")
        times = implementation.times(self.results.reference)
        if not times:
            return Sample(failure=implementation.failure or "not recorded")
        order = self._dealt.get(implementation.id)
        if order is None:
            order = self._dealt[implementation.id] = list(range(len(times)))
            self._random.shuffle(order)
        turn = self._next.get(implementation.id, 0)
        self._next[implementation.id] = turn + 1
        # After the last pass, start again without the first, which may have chosen the implementation and must not
        # confirm it.
        again = order[1:] or order
        dealt = order[turn] if turn < len(order) else again[(turn - len(order)) % len(again)]
        metrics = {} if self.results.objective.is_time else implementation.samples[dealt].metrics
        return Sample(times[dealt], iterations=1, metrics=metrics)

    def judged(self, candidate: Candidate) -> float:
        """The median of the passes that `measure` has not returned; of all passes if it has returned every one."""
        recorded = self._implementation(candidate)
        if recorded is None or not recorded.samples:
            return math.nan
        times = recorded.times(self.results.reference)
        seen = set(self._dealt.get(recorded.id, [])[: self._next.get(recorded.id, 0)])
        unseen = [t for i, t in enumerate(times) if i not in seen]
        return median(unseen or times)

    def passes(self, candidate: Candidate) -> int:
        """The number of recorded measurements."""
        recorded = self._implementation(candidate)
        return 0 if recorded is None else len(recorded.samples)

    def _implementation(self, candidate: Candidate) -> Implementation | None:
        text = traversal_text(candidate.traversal, self.domain.spaces[candidate.space].graph)
        return self._recorded.get((self.domain.configuration(candidate), text))
