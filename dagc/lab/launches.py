"""Machines that time the settings of single launches and of whole programs."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, TypeAlias

from dagc.base.errors import RunFailed
from dagc.base.sample import TIME, Objective, Sample
from dagc.base.signals import HANGS
from dagc.base.statistics import interval
from dagc.ir.choice import Choice
from dagc.ir.traversal import Row
from dagc.lab.domain import C
from dagc.measure.metrics import least_seconds, observed, of_results, outputs
from dagc.measure.service import RanksDied, RunnerLibrary, Service, one_line

EXPECTED = 100.0  # times its expected length: what takes longer counts as hung
UNKNOWN = 6.0  # times the watchdog: the same where no length is expected yet
OVER = 4.0  # times `Timing.seconds` that one series of launches takes at most (templates/runtime/dagc/tune.hpp)
AGREE = 1.1  # times the median of a series of launches: a slower series was disturbed
NEAR, LONG = 2.0, 4.0  # times the best candidate; times the seconds for a candidate: a launch takes long
BATCH = 0.002  # seconds of one measurement of a program: long compared with the cost of the call

Values: TypeAlias = Sequence[tuple[str, int]]  # open launch parameters as the program names them


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits for the timing of a candidate, see `Runner.time`. Seconds and bytes.

    `clear`: a candidate that takes this many times the best so far is timed only `fewest` times (0: never).
    `objective`: its metrics are measured for a launch in addition to the time. `transfers`: time a call from data on
    the host to results on the host, for an op that may run on either side; else its data are where it runs. `rounds`:
    most series of a candidate, `every`: whether each candidate gets a second one, see `repeated`. `watchdog`: seconds
    after which a launch or a run counts as hung, see `allowed`. `longest`: seconds of a launch; nothing is timed where
    it takes longer.
    """

    relative: float = 0.01
    seconds: float = 0.25
    fewest: int = 5
    most: int = 30
    flush: int = 0
    clear: float = 0.0
    objective: Objective = TIME
    transfers: bool = False
    rounds: int = 1
    every: bool = False
    watchdog: float = HANGS
    longest: float = math.inf

    def allowed(self, expected: float | None) -> float:
        """Seconds after which something counts as hung. `expected`: its length, None if it is not known yet."""
        return UNKNOWN * self.watchdog if expected is None else max(self.watchdog, EXPECTED * expected)

    @property
    def limits(self) -> dict[str, Any]:
        """The arguments of `Runner.time`."""
        others = ("clear", "objective", "rounds", "every", "watchdog", "longest")
        return {name: value for name, value in asdict(self).items() if name not in others}

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics measured in addition to the time."""
        return observed(self.objective)

    def valued(self, timed: Sample, observed: Sample) -> Sample:
        """The times of a candidate with its other metrics, and the value of the objective; or why there is none."""
        if observed.failure:
            return observed
        value = self.objective.value({**observed.metrics, "time": timed.value})
        if math.isnan(value):
            return Sample(failure=f"{self.objective.text} is not a number above 0")
        return replace(timed, value=value, metrics=observed.metrics)


@dataclass(frozen=True, slots=True)
class SizedProgram:
    """A program with open launch parameters, with the arrays of one size.

    rows        its first traversal as a table of the runner
    ops         the ops of this traversal, in issue order
    repeats     number of runs of the program that produced the references
    """

    library: RunnerLibrary
    rows: tuple[Row, ...]
    ops: tuple[int, ...]
    repeats: int


def verify(service: Service, program: SizedProgram, base: Values, settings: Values, limit: float) -> str:
    """Run the program under settings: "" if its results agree with the references, else the mismatch. `limit`: seconds
    after which that counts as hung.

    Raises RunFailed if the program cannot be opened.
    """
    failure = service.insist(("open", program.library), lambda: service.open(program.library)).get("error")
    if failure:
        raise RunFailed(f"the program does not run: {failure}")
    try:
        answer = service.ask(
            program.library, do="verify", rows=program.rows, base=base, settings=settings, runs=1, limit=limit
        )
    except RanksDied as death:
        return one_line(str(death))
    return _sample(answer).failure


Tolerance: TypeAlias = tuple[
    float, float
]  # of two results: relative to the largest value, and absolute; they are added


class Launches:
    """Times single launches of one op, on the data that it reads in its program. A candidate is a setting of the op."""

    def __init__(
        self,
        service: Service,
        program: SizedProgram,
        op: int,
        base: Values,
        named: Callable[[Choice], Values],
        *,
        timing: Timing,
        tolerance: Tolerance,
    ) -> None:
        """`op`: an index of the graph; `base`: all open launch parameters; `named`: settings by their program names.

        Results under each setting must agree with those under `base` within `tolerance`.
        """
        self._service, self._program, self._op = service, program, op
        self._base, self._named, self._timing, self._tolerance = base, named, timing, tolerance
        self._placed_at = -1  # the number of rank deaths when the program was last run up to the op
        self._wrong = ""  # why the op itself does not run
        self._best = math.inf  # seconds of the fastest so far
        # Seconds of the op under `base` when the program was placed, with copies of what it writes, its first load, and
        # a conversion if it has one.
        self.took = 0.0

    def place(self) -> str:
        """Run the program up to the op. Returns "", or why that fails under any setting."""
        if self._placed_at == self._service.died and self._service.placed is self:
            return ""
        answer = self._service.insist((self._program.library, self._op), self._placed)
        if "error" in answer:
            return one_line(answer["error"])
        self._placed_at, self._wrong = self._service.died, answer.get("wrong", "")
        self.took = sum(answer.get("times", ()))
        self._service.placed = self
        return ""

    def unusable(self) -> str:
        """`place`: why nothing is timed here, in words; "" if launches can be timed."""
        failure, longest = self.place(), self._timing.longest
        if self.took > longest or (failure.startswith("hang") and math.isfinite(longest)):
            return f"a launch takes more than {longest:g} s"
        return f"the program does not run: {failure}" if failure else ""

    def measure(self, candidate: Choice) -> Sample:
        """Time single launches; the value is their median, or that of the objective. A failure is a sample."""
        return self._observed(candidate, self._series(candidate, self._tolerance))

    def again(self, candidate: Choice) -> Sample:
        """Another series of launches of a candidate whose results have been compared."""
        return self._series(candidate, None)

    def _series(self, candidate: Choice, tolerance: Tolerance | None) -> Sample:
        """`tolerance`: None for results that have been compared."""
        if self._timing.clear:
            few = replace(self._timing, most=self._timing.fewest)
            sample, tolerance = self._timed(candidate, few, tolerance), None
            if sample.failure or min(sample.times, default=0.0) > self._timing.clear * self._best:
                return sample
            if sum(sample.times) >= OVER * self._timing.seconds:  # another series would have no more launches
                self._best = min(self._best, sample.value)
                return sample
        sample = self._timed(candidate, self._timing, tolerance)
        if not sample.failure:
            self._best = min(self._best, sample.value)
        return sample

    def _observed(self, candidate: Choice, sample: Sample) -> Sample:
        """The sample with the other metrics of a launch, and the value of the objective if that is not the time."""
        if self._timing.objective.is_time or sample.failure:
            return sample
        observed = self._ask(
            candidate, do="observe", metrics=self._timing.metrics, seconds=sample.value, rows=self._program.rows
        )
        if of_results(self._timing.metrics):
            self._service.placed = None  # the program has run
        return self._timing.valued(sample, observed)

    def _timed(self, candidate: Choice, timing: Timing, tolerance: Tolerance | None) -> Sample:
        criteria = outputs(self._timing.metrics)
        return self._ask(candidate, do="launch", tolerance=tolerance, criteria=criteria, timing=timing.limits)

    def count(self, candidate: Choice) -> str:
        """Issue one launch for a profiler. Returns "", or the failure."""
        return self._ask(candidate, do="count").failure

    def _placed(self) -> dict[str, Any]:
        ops = self._program.ops
        # In the middle of the repetitions of a program, where its kernels do average work.
        iterations = (self._program.repeats - 1) // 2
        launches = iterations * len(ops) + ops.index(self._op) + 2  # the op is also compared
        return self._service.ask(
            self._program.library, do="place", rows=self._program.rows, base=self._base, op=self._op, ops=ops,
            iterations=iterations, limit=min(self._timing.allowed(None), launches * self._timing.longest),
        )  # fmt: skip

    def _ask(self, candidate: Choice, **command: Any) -> Sample:
        """Execute a command under a setting, with the program stopped before the op."""
        failure = self.place() or self._wrong
        if failure:
            return Sample(failure=one_line(failure))
        settings = self._named(candidate)
        limit = self._timing.allowed(self.took if command["do"] == "launch" else None) + OVER * self._timing.seconds
        try:
            return _sample(
                self._service.ask(self._program.library, op=self._op, settings=settings, limit=limit, **command)
            )
        except RanksDied as death:
            return Sample(failure=one_line(str(death)))


def _sample(answer: Mapping[str, Any]) -> Sample:
    if "error" in answer:
        return Sample(failure=one_line(f"run failed: {answer['error']}"))
    if "wrong" in answer:
        return Sample(failure=one_line(str(answer["wrong"])))
    times = answer.get("times", ())
    if not all(math.isfinite(t) and t > 0 for t in times):
        return Sample(failure="a time that is not a positive number was measured")
    return Sample(
        median(times) if times else math.nan, iterations=len(times), times=tuple(map(float, times)),
        metrics=answer.get("metrics", {}),
    )  # fmt: skip


def middle(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The times of a candidate, from series of launches at different times: all of them if the medians agree within
    AGREE, else those of the series with the middle median (the faster one of two). Disturbances make a series slower
    and last for a while."""
    ordered = sorted((s for s in series if s), key=median)
    if agree(ordered):
        return tuple(t for s in series for t in s)
    return tuple(ordered[(len(ordered) - 1) // 2])


def repeated(
    first: Mapping[C, tuple[float, ...]],
    measure: Callable[[C], tuple[float, ...]],
    timing: Timing,
    seed: int,
    over: Callable[[], bool] = lambda: False,
) -> dict[C, tuple[float, ...]]:
    """The `middle` of `timing.rounds` series of each candidate at most, of which `first` has one. Without those that
    were not timed again, or failed then.

    Candidates that are not `settled` are timed again in the next round, in random order, and all of them in the second
    with `timing.every`; but none that takes long and is not near the best, and none that failed. `measure`: a series,
    () for a failure; `over`: whether to stop.
    """
    series = {candidate: [times] for candidate, times in first.items()}
    best = min(map(median, first.values()), default=0.0)
    short = max(NEAR * best, LONG * timing.seconds)
    todo = [c for c, times in first.items() if median(times) <= short and (timing.every or not settled([times]))]
    draw = random.Random(f"{seed} rounds")
    for _ in range(1, timing.rounds):
        draw.shuffle(todo)
        for candidate in todo:
            if over():
                break
            series[candidate].append(measure(candidate))
        todo = [candidate for candidate in todo if all(series[candidate]) and not settled(series[candidate])]
    return {candidate: middle(of) for candidate, of in series.items() if sum(map(bool, of)) > 1}


def settled(series: Sequence[Sequence[float]]) -> bool:
    """Whether a candidate need not be timed again: its series agree, and the 95% interval of the median of all its
    launches is not wider than AGREE allows. An interval of few launches is that of all of them, so that one slow launch
    of five is enough."""
    times = [t for s in series for t in s]
    low, high = interval(times)
    return not times or (agree(series) and high - low <= (AGREE - 1) * median(times))


def agree(series: Sequence[Sequence[float]]) -> bool:
    """Whether the medians of all series are within AGREE of the least."""
    medians = [median(s) for s in series if s]
    return not medians or max(medians) <= AGREE * min(medians)


class Programs:
    """Checks and times whole compiled programs. A candidate is a setting of the decisions of the program.

    For a program that ends by a condition (`until`), the value is the time of the whole repetition from the start; not
    reaching the end is a failure.
    """

    def __init__(
        self,
        service: Service,
        programs: Mapping[Choice, tuple[RunnerLibrary, Sequence[Row]]],
        timing: Timing,
        *,
        until: bool = False,
        checked: bool = True,
    ) -> None:
        """`programs`: runner library and traversal of each candidate; `checked`: their arrays have references."""
        self._service, self._programs, self._timing = service, programs, timing
        self._until, self._checked = until, checked
        self._best = math.inf  # seconds of the fastest so far
        self._took: dict[str, float] = {}  # by command: the least seconds

    def measure(self, candidate: Choice) -> Sample:
        """Compare with the references, time until the interval of the median is narrow enough, and observe the other
        metrics of the objective."""
        library, rows = self._programs[candidate]
        try:
            sample = self._observed(library, rows, self._timed(library, rows, self._checked))
            self._service.close(library)
        except RanksDied as death:
            return Sample(failure=one_line(str(death)))
        return sample

    def again(self, candidate: Choice) -> Sample:
        """Another series of times of a candidate whose results have been compared."""
        library, rows = self._programs[candidate]
        try:
            sample = self._timed(library, rows, False)
            self._service.close(library)
        except RanksDied as death:
            return Sample(failure=one_line(str(death)))
        return sample

    def verify(self, candidate: Choice) -> str:
        """Compare one run with the reference. Returns "" or the mismatch."""
        library, rows = self._programs[candidate]
        try:
            answer = self._ask(library, "audit", tables=[rows])
            self._service.close(library)
        except RanksDied as death:
            return one_line(str(death))
        return _sample(answer).failure

    def _timed(self, library: RunnerLibrary, rows: Sequence[Row], checked: bool) -> Sample:
        answer = self._ask(library, "audit", tables=[rows]) if checked else {}
        times: list[float] = []
        end = time.monotonic() + self._timing.seconds
        while not ("error" in answer or "wrong" in answer) and not (times and self._enough(times, end)):
            if self._until and times and times[0] > self._timing.clear * self._best:
                break  # a solve may take long
            answer = self._once(library, rows, times, checked)
            if "seconds" in answer:
                times.append(answer["seconds"])
        if "seconds" in answer:
            self._best = min(self._best, median(times))
        return _sample(answer if "seconds" not in answer else {"times": times})

    def _observed(self, library: RunnerLibrary, rows: Sequence[Row], sample: Sample) -> Sample:
        timing = self._timing
        if timing.objective.is_time or sample.failure:
            return sample
        answer = self._service.ask(
            library, do="measure", rows=rows, check=False, recheck=False, guess=sample.value, metrics=timing.metrics,
            seconds=max(BATCH, least_seconds(timing.metrics)), limit=timing.allowed(None),
        )  # fmt: skip
        return timing.valued(sample, _sample(answer))

    def _once(
        self, library: RunnerLibrary, rows: Sequence[Row], times: Sequence[float], checked: bool
    ) -> dict[str, Any]:
        if self._until:
            return self._ask(library, "solve", rows=rows)
        check, guess = checked and not times, times[-1] if times else 0.0
        return self._ask(library, "measure", rows=rows, check=check, recheck=check, seconds=BATCH, guess=guess)

    def _ask(self, library: RunnerLibrary, do: str, **command: Any) -> dict[str, Any]:
        """Execute a command, which is expected to take as long as it took another candidate."""
        opened = self._service.open(library)  # reads the arrays, which is not expected to take as long each time
        if "error" in opened:
            return opened
        began = time.monotonic()
        answer = self._service.ask(library, do=do, limit=self._timing.allowed(self._took.get(do)), **command)
        if not ("error" in answer or "wrong" in answer):
            self._took[do] = min(self._took.get(do, math.inf), time.monotonic() - began)
        return answer

    def _enough(self, times: Sequence[float], end: float) -> bool:
        timing = self._timing
        if len(times) < timing.fewest:
            return False
        low, high = interval(times)
        narrow = (high - low) / 2 <= timing.relative * sorted(times)[len(times) // 2]
        return len(times) >= timing.most or narrow or time.monotonic() > end
