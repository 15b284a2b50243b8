"""Progress of long commands on standard error: rich on a terminal, else occasional lines.

A command creates one `Display` and passes it down. Each part of the work is a phase, which shows its description, its
progress and, if known, the remaining time. A phase that ends within a second shows nothing.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

from dagc.base.errors import counted
from dagc.base.sample import TIME, Objective
from dagc.base.signals import Clock
from dagc.report import si

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.measure import Measurement
    from rich.table import Table

    from dagc.lab.candidate import Candidate
    from dagc.lab.engine import Progress

_BARS = "▁▂▃▄▅▆▇█"
_EVERY = 0.25  # seconds between two drawings
FIRST_LINE = 1.0  # seconds before the first line of a phase or a search, without a terminal
LOG_EVERY = 10.0  # seconds between two lines, without a terminal
BINS = 40
FEWEST_BINS = 8  # fewer are not informative
MOST_DRAWN = 2000  # times that a histogram uses


Describe = Callable[["Candidate"], str]


def warn(lines: Iterable[str], *, quiet: bool = False) -> None:
    """Print a warning to standard error before a search of several minutes."""
    if not quiet:
        for line in lines:
            print(f"warning: {line}", file=sys.stderr, flush=True)


# ---- phases ---------------------------------------------------------------------------------


class Phase:
    """Progress of a phase. Any thread may call it."""

    def __init__(self, what: str, total: int | None = None, unit: str = "", clock: Clock = monotonic) -> None:
        """`total`: number of steps, None if unknown. `unit` names one of them."""
        self._what, self._unit, self._detail, self._clock = what, unit, "", clock
        self._done, self._total = 0, total
        self._began = clock()
        self._counts = self._began, 0  # start of the steps being counted, and the number done by then
        self._last = self._began  # time of the last step
        self._lock = threading.Lock()

    def advance(self, detail: str = "") -> None:
        """Count one step as done. `detail` is shown until the next one."""
        with self._lock:
            self._done, self._detail, self._last = self._done + 1, detail, self._clock()

    def at(self, done: int, total: int | None = None, detail: str = "") -> None:
        """Set the progress: `done` steps of `total` are done (None or 0: the total is unknown)."""
        with self._lock:
            if (total or self._total) != self._total or done < self._done:
                self._counts = self._clock(), done
            if done != self._done:
                self._last = self._clock()
            self._done, self._detail = done, detail
            self._total = total or self._total

    @property
    def share(self) -> float | None:
        """Fraction done, 0 to 1; None if the total is unknown."""
        return min(1.0, self._done / self._total) if self._total else None

    def where(self) -> str:
        """`2 of 4, 20 s, about 20 s left`; `120000 states, 20 s` if the total is unknown."""
        with self._lock:
            done, total, detail = self._done, self._total, self._detail
            (began, first), last = self._counts, self._last
        now = self._clock()
        out = []
        if total is not None:
            out.append(f"{done} of {counted(total, self._unit) if self._unit else total}")
        elif done:
            out.append(counted(done, self._unit or "step"))
        out.append(duration(now - self._began))
        if total and first < done < total:
            # Counted down from the last step, so that the remaining time does not grow during a long step.
            left = (last - began) * (total - done) / (done - first) - (now - last)
            if left > 0:
                out.append(f"about {duration(left)} left")
        return ", ".join(out) + (f" ({detail})" if detail else "")

    def line(self) -> str:
        """Everything in one line."""
        return f"{self._what}: {self.where()}"

    def panel(self) -> Table:
        """The display on a terminal."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        bar = Text("") if self.share is None else ProgressBar(total=1.0, completed=self.share, width=BINS // 2)
        where = Text(self.where(), style="dim", overflow="ellipsis", no_wrap=True)
        table.add_row(Text(self._what), bar, where)
        return table


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 and whole < 600 else "")
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Display:
    """Messages of a command while it works. Silent with `quiet`. `clock` is that of the command."""

    def __init__(self, *, quiet: bool = False, clock: Clock = monotonic) -> None:
        self._quiet, self._clock = quiet, clock
        self._live: Live | None = None
        self._busy = False

    @contextmanager
    def phase(self, what: str, total: int | None = None, unit: str = "") -> Iterator[Phase]:
        """A part of the work that may take long. Phases inside it are not shown."""
        phase = Phase(what, total, unit, self._clock)
        if self._quiet or self._busy:
            yield phase
            return
        self._busy = True
        stop = threading.Event()
        draw = self._draw if sys.stderr.isatty() else _print_line
        thread = threading.Thread(target=_repeat, args=(draw, phase, stop), daemon=True)
        thread.start()
        try:
            yield phase
        finally:
            stop.set()
            thread.join()
            self._busy = False
            if self._live is not None:
                self._live.stop()
                self._live = None

    def say(self, text: str) -> None:
        """Print a line at once."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _draw(self, phase: Phase) -> None:
        if self._live is None:
            self._live = _live()
            self._live.start()
        self._live.update(phase.panel(), refresh=True)

    @contextmanager
    def search(
        self, noise: float, describe: Describe | None = None, objective: Objective = TIME
    ) -> Iterator[Callable[[Progress[Candidate]], None]]:
        """The function to call after each measurement of a search. No thread runs meanwhile: it would disturb.

        `noise` is the noise floor (NaN: unknown). `describe` gives the lines shown for the best candidate; `objective`
        is that of its values.
        """
        if self._quiet:
            yield lambda _: None
        elif sys.stderr.isatty():
            with _terminal(noise, describe, objective, self._clock) as show:
                yield show
        else:
            yield _Log(objective, self._clock, noise)


SILENT = Display(quiet=True)


def _repeat(draw: Callable[[Phase], None], phase: Phase, stop: threading.Event) -> None:
    """Draw a phase until it ends. A closed standard error does not end the command."""
    terminal = draw is not _print_line
    wait = _EVERY if terminal else FIRST_LINE
    with suppress(OSError, ValueError):
        while not stop.wait(wait):
            draw(phase)
            wait = _EVERY if terminal else LOG_EVERY


def _print_line(phase: Phase) -> None:
    print(phase.line(), file=sys.stderr, flush=True)


def _live() -> Live:
    from rich.console import Console
    from rich.live import Live

    return Live(console=Console(stderr=True), auto_refresh=False, transient=True)


# ---- a search -------------------------------------------------------------------------------


class _Log:
    def __init__(self, objective: Objective, clock: Clock, noise: float) -> None:
        self._next, self._objective, self._clock, self._noise = clock() + FIRST_LINE, objective, clock, noise

    def __call__(self, progress: Progress[Candidate]) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + LOG_EVERY
            print(one_line(progress, self._objective, self._noise), file=sys.stderr, flush=True)


@contextmanager
def _terminal(
    noise: float, describe: Describe | None, objective: Objective, clock: Clock
) -> Iterator[Callable[[Progress[Candidate]], None]]:
    """Redraws a few times a second, in the searching thread; leaves neither text nor a hidden cursor behind."""
    last = -math.inf
    with _live() as live:

        def show(progress: Progress[Candidate]) -> None:
            nonlocal last
            if clock() - last >= _EVERY:
                live.update(panel(progress, noise, describe, objective), refresh=True)
                last = clock()

        yield show


def panel(
    progress: Progress[Candidate], noise: float, describe: Describe | None = None, objective: Objective = TIME
) -> Table:
    """The display on a terminal: progress, coverage, the best, the distribution, failures."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row(progress.phase, f"{_measurements(progress)}, {_pace(progress)}{_left(progress)}")
    share = _fraction_used(progress)
    if share is not None:
        table.add_row("", ProgressBar(total=1.0, completed=share, width=BINS))
    table.add_row("covered", _covered(progress))
    if not math.isnan(progress.best_value):
        floor = "" if math.isnan(noise) else f"  (noise floor {100 * noise:.1f} %)"
        best = (objective.show(progress.best_value), "green"), _how_sure(progress, noise, objective), floor
        table.add_row("best", Text.assemble(*best))
        if describe is not None and progress.best is not None:
            for line in describe(progress.best).splitlines():
                table.add_row("", Text(line, style="dim", overflow="ellipsis", no_wrap=True))
        table.add_row("times" if objective.is_time else "values", _Histogram(progress.values, objective))
    if progress.failures:
        table.add_row("failed", Text(str(progress.failures), style="red"))
    return table


class _Histogram:
    """The times in one line, as wide as possible."""

    def __init__(self, values: Sequence[float], objective: Objective) -> None:
        self._values, self._objective = values, objective

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        low, high, _ = histogram(self._values, 1)
        begin, end = f"{self._objective.show(low, decimals=1)} ", f" {self._objective.show(high, decimals=1)}"
        bins = min(BINS, options.max_width - len(begin) - len(end))
        bars = histogram(self._values, bins)[2] if bins >= FEWEST_BINS else "to"
        yield Text(f"{begin}{bars}{end}", no_wrap=True, overflow="ellipsis")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement(FEWEST_BINS, options.max_width)


def _pace(progress: Progress[Candidate]) -> str:
    if progress.elapsed <= 0:
        return "0 s"
    return f"{progress.elapsed:.0f} s, {progress.measured / progress.elapsed:.1f} a second"


def _fraction_used(progress: Progress[Candidate]) -> float | None:
    """Fraction used of the budget or of the time, whichever is larger; None if neither is known."""
    shares = []
    if progress.budget:
        shares.append(progress.measured / progress.budget)
    if progress.time:
        shares.append(progress.elapsed / progress.time)
    return min(1.0, max(shares)) if shares else None


def one_line(progress: Progress[Candidate], objective: Objective = TIME, noise: float = math.nan) -> str:
    """`search: 120 of 200 measurements, 12 s, 8 s left, best 40.12 us (95%: 39.8 us to 40.7 us, 8 measurements),
    120 implementations of 2036 (5.9 %)`. `noise`: the noise floor."""
    known = not math.isnan(progress.best_value)
    best = f", best {objective.show(progress.best_value)}{_how_sure(progress, noise, objective)}" if known else ""
    failed = f", {progress.failures} failed" if progress.failures else ""
    return (
        f"{progress.phase}: {_measurements(progress)}, {progress.elapsed:.0f} s{_left(progress)}{best}, "
        f"{_covered(progress)}{failed}"
    )


def _how_sure(progress: Progress[Candidate], noise: float, objective: Objective) -> str:
    """The interval of the best and its number of measurements: a single time may be low by chance, and rise when
    repeated. That of a single time is two standard deviations of the noise to both sides, if that is known."""
    often = progress.measurements_of_best
    if often == 1 and not math.isnan(noise):
        low, high = (progress.best_value * max(0.0, 1 + sign * 2 * noise) for sign in (-1, 1))
        return f" (noise: {objective.show(low)} to {objective.show(high)}, 1 measurement)"
    return f" ({spread(progress.low, progress.high, often, objective)})" if often else ""


def spread(low: float, high: float, measurements: int, objective: Objective = TIME, *, shrunk: bool = False) -> str:
    """`95%: 20.76 us to 21.20 us, 10 measurements`; `low` and `high` are values of the objective.

    With fewer than six measurements even their whole range has less than 95% confidence, unless the estimate is
    `shrunk`; a single one has no range.
    """
    number = counted(measurements, "measurement")
    if measurements == 1:
        return number
    what = "95%" if shrunk or measurements >= 6 else "range"
    return f"{what}: {objective.show(low)} to {objective.show(high)}, {number}"


def _measurements(progress: Progress[Candidate]) -> str:
    if progress.budget is None:
        return counted(progress.measured, "measurement")
    return f"{progress.measured} of {counted(progress.budget, 'measurement')}"


def _covered(progress: Progress[Candidate]) -> str:
    if progress.space is None:
        return f"{counted(progress.implementations, 'implementation')} of a space not counted"
    share = 100 * progress.implementations / progress.space
    of = f"{counted(progress.implementations, 'implementation')} of {si.about(progress.space)}"
    return f"{of} ({share:.2g} %)" if share >= 0.01 else of


def _left(progress: Progress[Candidate]) -> str:
    """By the budget or the time limit, whichever ends first; "" if neither is known."""
    ends = []
    if progress.budget is not None and progress.measured:
        ends.append(progress.elapsed * (progress.budget - progress.measured) / progress.measured)
    if progress.time is not None:
        ends.append(progress.time - progress.elapsed)
    return f", {max(0.0, min(ends)):.0f} s left" if ends else ""


def histogram(values: Sequence[float], bins: int = BINS) -> tuple[float, float, str]:
    """(smallest, largest shown, bars). The slowest 2 % are excluded, so that an outlier does not flatten the rest.

    For very many times, every k-th is used: drawing must not delay the search.
    """
    if not values:
        return math.nan, math.nan, ""
    low = min(values)
    ordered = sorted(values[:: 1 + len(values) // MOST_DRAWN])
    high = ordered[min(len(ordered) - 1, math.ceil(0.98 * len(ordered)))]
    counts = [0] * bins
    for value in ordered:
        if value <= high:
            counts[min(bins - 1, int(bins * (value - low) / (high - low))) if high > low else 0] += 1
    most = max(counts)
    return low, high, "".join(_BARS[math.ceil(c / most * (len(_BARS) - 1))] if c else " " for c in counts)
