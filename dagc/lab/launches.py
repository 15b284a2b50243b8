"""Machines of the laboratory that time settings: of single launches, and of whole programs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, TypeAlias

from dagc.base.errors import RunFailed
from dagc.base.statistics import interval
from dagc.choice.types import Settings
from dagc.measure.link import RanksDied
from dagc.measure.service import Library, Service, one_line
from dagc.store.results import Outcome

LIMIT = 120.0  # seconds that a command may take: a launch that takes longer hangs
BATCH = 0.002  # seconds of one measurement of a program: long beside what calling it costs

Row: TypeAlias = tuple[int, int, int]  # dagc.emit.table
Values: TypeAlias = Sequence[tuple[str, int]]  # open launch parameters as the program names them


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a candidate is timed; see `Runner.time`. Seconds and bytes."""

    relative: float = 0.01
    seconds: float = 0.25
    fewest: int = 5
    most: int = 30
    flush: int = 0


@dataclass(frozen=True, slots=True)
class SizedProgram:
    """A program with open launch parameters, with the arrays of one size.

    rows        its first traversal as the runner's table
    ops         the ops of this, in their order
    repeats     runs of the program in which the references were made
    """

    library: Library
    rows: tuple[Row, ...]
    ops: tuple[int, ...]
    repeats: int


def verify(service: Service, program: SizedProgram, base: Values, settings: Values) -> str:
    """Run the program under settings: "" where its results agree with the references, else what is wrong.

    Raises RunFailed where the program cannot be opened.
    """
    failure = service.insist(("open", program.library), lambda: service.open(program.library)).get("error")
    if failure:
        raise RunFailed(f"the program does not run: {failure}")
    try:
        answer = service.ask(
            program.library, do="verify", rows=program.rows, base=base, settings=settings, runs=1, limit=LIMIT
        )
    except RanksDied as death:
        return one_line(str(death))
    return _outcome(answer).failure


class Launches:
    """Times single launches of one op, from the data that it finds in its program. A candidate is a setting of it."""

    def __init__(
        self,
        service: Service,
        program: SizedProgram,
        op: int,
        base: Values,
        named: Callable[[Settings], Values],
        *,
        timing: Timing,
        rtol: float,
    ) -> None:
        """`op` is an index of the graph; `base`: all open launch parameters; `named`: settings as the program names
        them. Results under each setting must agree with those under `base` within `rtol` of the largest value."""
        self._service, self._program, self._op = service, program, op
        self._base, self._named, self._timing, self._rtol = base, named, timing, rtol
        self._placed_at = -1  # the service's count of deaths then
        self._wrong = ""  # why the op itself does not run

    def place(self) -> str:
        """Run the program as far as the op. "" or why it does not run at all, whatever the settings."""
        if self._placed_at == self._service.died:
            return ""
        answer = self._service.insist((self._program.library, self._op), self._placed)
        if "error" in answer:
            return one_line(answer["error"])
        self._placed_at, self._wrong = self._service.died, answer.get("wrong", "")
        return ""

    def measure(self, candidate: Settings) -> Outcome:
        """Times of single launches; their median. A failure is an outcome."""
        return self._ask(candidate, do="launch", rtol=self._rtol, timing=asdict(self._timing))

    def count(self, candidate: Settings) -> str:
        """Have a profiler see one launch. "" or why there is none."""
        return self._ask(candidate, do="count").failure

    def _placed(self) -> dict[str, Any]:
        return self._service.ask(
            self._program.library, do="place", rows=self._program.rows, base=self._base, op=self._op,
            ops=self._program.ops,
            # In the middle of a program that repeats: there its kernels do what they do on average.
            iterations=(self._program.repeats - 1) // 2, limit=LIMIT,
        )  # fmt: skip

    def _ask(self, candidate: Settings, **command: Any) -> Outcome:
        """Have a command executed where the program stands before the op, under a setting."""
        failure = self.place() or self._wrong
        if failure:
            return Outcome(failure=one_line(failure))
        settings = self._named(candidate)
        try:
            return _outcome(
                self._service.ask(self._program.library, op=self._op, settings=settings, limit=LIMIT, **command)
            )
        except RanksDied as death:
            return Outcome(failure=one_line(str(death)))


def _outcome(answer: Mapping[str, Any]) -> Outcome:
    if "error" in answer:
        return Outcome(failure=one_line(f"run failed: {answer['error']}"))
    if "wrong" in answer:
        return Outcome(failure=one_line(str(answer["wrong"])))
    times = answer.get("times", ())
    return Outcome(median(times) if times else math.nan, iterations=len(times), times=tuple(map(float, times)))


class Programs:
    """Checks and times whole programs, each compiled. A candidate is a setting of the program's own decisions."""

    def __init__(
        self, service: Service, programs: Mapping[Settings, tuple[Library, Sequence[Row]]], timing: Timing
    ) -> None:
        """`programs`: the runner library of each candidate, and the traversal that it is to run."""
        self._service, self._programs, self._timing = service, programs, timing

    def measure(self, candidate: Settings) -> Outcome:
        """Compared with the references, then timed until the interval of the median is narrow enough."""
        library, rows = self._programs[candidate]
        try:
            outcome = self._timed(library, rows)
            self._service.close(library)
        except RanksDied as death:
            return Outcome(failure=one_line(str(death)))
        return outcome

    def _timed(self, library: Library, rows: Sequence[Row]) -> Outcome:
        answer = self._service.ask(library, do="audit", tables=[rows], limit=LIMIT)
        times: list[float] = []
        end = time.monotonic() + self._timing.seconds
        while not ("error" in answer or "wrong" in answer) and not (times and self._enough(times, end)):
            answer = self._service.ask(
                library, do="measure", rows=rows, check=not times, recheck=not times, seconds=BATCH,
                guess=times[-1] if times else 0.0, limit=LIMIT,
            )  # fmt: skip
            if "seconds" in answer:
                times.append(answer["seconds"])
        return _outcome(answer if "seconds" not in answer else {"times": times})

    def _enough(self, times: Sequence[float], end: float) -> bool:
        timing = self._timing
        if len(times) < timing.fewest:
            return False
        low, high = interval(times)
        narrow = (high - low) / 2 <= timing.relative * sorted(times)[len(times) // 2]
        return len(times) >= timing.most or narrow or time.monotonic() > end
