"""The display of a search that is under way: rich on a terminal, else a line now and then."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from dagc.errors import counted
from dagc.report import si

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement
    from rich.table import Table

    from dagc.search.domain import Candidate
    from dagc.search.engine import Progress

_BARS = "▁▂▃▄▅▆▇█"
_EVERY = 0.25  # seconds between two drawings
_LOG_EVERY = 10.0  # seconds between two lines where there is no terminal
BINS = 40
FEWEST_BINS = 8  # fewer say nothing
MOST_DRAWN = 2000  # times that a histogram looks at


Describe = Callable[["Candidate"], str]


def announce(what: str, *, quiet: bool = False) -> None:
    """Say on standard error what takes its time now, before there are measurements to show."""
    if not quiet:
        print(f"{what} ...", file=sys.stderr, flush=True)


@contextmanager
def progress_display(
    noise: float, *, quiet: bool = False, describe: Describe | None = None
) -> Iterator[Callable[[Progress], None]]:
    """What to call after each measurement. Writes to standard error; with `quiet` nothing.

    `noise` is the noise floor (NaN: not known). `describe` gives the lines that are shown of the best candidate.
    """
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _terminal(noise, describe) as show:
            yield show
    else:
        yield _Log()


class _Log:
    def __init__(self) -> None:
        self._last = monotonic()

    def __call__(self, progress: Progress) -> None:
        if monotonic() - self._last >= _LOG_EVERY:
            self._last = monotonic()
            print(one_line(progress), file=sys.stderr, flush=True)


@contextmanager
def _terminal(noise: float, describe: Describe | None) -> Iterator[Callable[[Progress], None]]:
    """Redraws a few times a second, in the searching thread; leaves nothing behind, nor a hidden cursor."""
    from rich.console import Console
    from rich.live import Live

    last = -math.inf
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:

        def show(progress: Progress) -> None:
            nonlocal last
            if monotonic() - last >= _EVERY:
                live.update(panel(progress, noise, describe), refresh=True)
                last = monotonic()

        yield show


def panel(progress: Progress, noise: float, describe: Describe | None = None) -> Table:
    """What a terminal shows: how far it is, what was covered, the best, the distribution, failures."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row(progress.phase, f"{_measurements(progress)}, {_pace(progress)}{_left(progress)}")
    share = _share(progress)
    if share is not None:
        table.add_row("", ProgressBar(total=1.0, completed=share, width=BINS))
    table.add_row("covered", _covered(progress))
    if not math.isnan(progress.best_seconds):
        floor = "" if math.isnan(noise) else f"  (noise floor {100 * noise:.1f} %)"
        best = (f"{progress.best_seconds * 1e6:.2f} us", "green"), _how_often(progress), floor
        table.add_row("best", Text.assemble(*best))
        if describe is not None and progress.best is not None:
            for line in describe(progress.best).splitlines():
                table.add_row("", Text(line, style="dim", overflow="ellipsis", no_wrap=True))
        table.add_row("times", _Histogram(progress.seconds))
    if progress.failures:
        table.add_row("failed", Text(str(progress.failures), style="red"))
    return table


class _Histogram:
    """The times in one line, as wide as there is room for."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        low, high, _ = histogram(self._seconds, 1)
        begin, end = f"{low * 1e6:.1f} us ", f" {high * 1e6:.1f} us"
        bins = min(BINS, options.max_width - len(begin) - len(end))
        bars = histogram(self._seconds, bins)[2] if bins >= FEWEST_BINS else "to"
        yield Text(f"{begin}{bars}{end}", no_wrap=True, overflow="ellipsis")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement(FEWEST_BINS, options.max_width)


def _pace(progress: Progress) -> str:
    if progress.elapsed <= 0:
        return "0 s"
    return f"{progress.elapsed:.0f} s, {progress.measured / progress.elapsed:.1f} a second"


def _share(progress: Progress) -> float | None:
    """How much of the budget or of the time is used, whichever is further; None where neither is known."""
    shares = []
    if progress.budget:
        shares.append(progress.measured / progress.budget)
    if progress.time:
        shares.append(progress.elapsed / progress.time)
    return min(1.0, max(shares)) if shares else None


def one_line(progress: Progress) -> str:
    """`search: 120 of 200 measurements, 12 s, 8 s left, best 40.12 us, 120 implementations of 2036 (5.9 %)`."""
    known = not math.isnan(progress.best_seconds)
    best = f", best {progress.best_seconds * 1e6:.2f} us{_how_often(progress)}" if known else ""
    failed = f", {progress.failures} failed" if progress.failures else ""
    return (
        f"{progress.phase}: {_measurements(progress)}, {progress.elapsed:.0f} s{_left(progress)}{best}, "
        f"{_covered(progress)}{failed}"
    )


def _how_often(progress: Progress) -> str:
    """How many measurements the best time stands for: a single one may be low by chance, and rise when repeated."""
    often = progress.measurements_of_best
    return f" ({counted(often, 'measurement')})" if often else ""


def _measurements(progress: Progress) -> str:
    if progress.budget is None:
        return counted(progress.measured, "measurement")
    return f"{progress.measured} of {counted(progress.budget, 'measurement')}"


def _covered(progress: Progress) -> str:
    if progress.space is None:
        return f"{counted(progress.implementations, 'implementation')} of a space not counted"
    share = 100 * progress.implementations / progress.space
    of = f"{counted(progress.implementations, 'implementation')} of {si.about(progress.space)}"
    return f"{of} ({share:.2g} %)" if share >= 0.01 else of


def _left(progress: Progress) -> str:
    """By the budget or by the time limit, whichever ends first; "" where neither is known."""
    ends = []
    if progress.budget is not None and progress.measured:
        ends.append(progress.elapsed * (progress.budget - progress.measured) / progress.measured)
    if progress.time is not None:
        ends.append(progress.time - progress.elapsed)
    return f", {max(0.0, min(ends)):.0f} s left" if ends else ""


def histogram(seconds: Sequence[float], bins: int = BINS) -> tuple[float, float, str]:
    """(smallest, largest shown, bars). The slowest 2 % are left out, so that one outlier does not flatten the rest.

    Of very many times every k-th is looked at: drawing must not hold up the search.
    """
    if not seconds:
        return math.nan, math.nan, ""
    low = min(seconds)
    ordered = sorted(seconds[:: 1 + len(seconds) // MOST_DRAWN])
    high = ordered[min(len(ordered) - 1, math.ceil(0.98 * len(ordered)))]
    counts = [0] * bins
    for value in ordered:
        if value <= high:
            counts[min(bins - 1, int(bins * (value - low) / (high - low))) if high > low else 0] += 1
    most = max(counts)
    return low, high, "".join(_BARS[math.ceil(c / most * (len(_BARS) - 1))] if c else " " for c in counts)
