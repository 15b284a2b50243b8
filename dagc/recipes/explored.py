"""How an exploration ended, as `dagc explore` prints it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.errors import counted
from dagc.report import si

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagc.lab.engine import Summary
    from dagc.store.results import Configuration
    from dagc.store.settings import Fixed

REASONS = 3  # of failures, shown
TOLD_APART = 0.005  # a lowest time so little below the median is not worth a line


@dataclass(frozen=True, slots=True)
class Explored:
    """How an exploration ended, and where its results are. `fixed`: choices that it left alone, of the best."""

    summary: Summary
    configuration: Configuration | None
    traversal: str
    output: Path | None
    notes: tuple[str, ...]
    noise: float
    more_than: int = 0  # implementations, where the space is too large to be counted
    fixed: tuple[Fixed, ...] = ()

    @property
    def exit_code(self) -> int:
        """0; 130 where the user interrupted, 5 where nothing could be measured."""
        if self.summary.interrupted:
            return 130
        return 0 if self.summary.best is not None else 5

    def render(self) -> str:
        """A few lines: what was searched, the best with its interval, what failed, and how to get its code."""
        s = self.summary
        more = f"more than {si.about(self.more_than)}"
        space = f"a space of {si.exact(s.space) if s.space is not None else more}"
        out = [f"note       {note}" for note in self.notes]
        failed = f", {s.failures} failed" if s.failures else ""
        done = f"{counted(s.implementations, 'implementation')} of {space}, {counted(s.measurements, 'measurement')}"
        out.append(f"measured   {done}{failed}")
        out += [f"failed     {count} x {reason}" for reason, count in s.reasons[:REASONS]]
        if len(s.reasons) > REASONS:
            out.append(f"           and {counted(len(s.reasons) - REASONS, 'other reason')}; dagc export has all")
        out.append(f"time       {s.measuring:.1f} s measuring, {s.overhead:.1f} s searching and writing")
        if s.best is None or self.configuration is None:
            early = (
                "interrupted before the first measurement"
                if s.interrupted
                else "nothing was measured in the time given"
            )
            why = "nothing could be measured" if s.failures else early
            return "\n".join([*out, f"best       none: {why}", ""])
        noise = "" if math.isnan(self.noise) else f"; noise floor {100 * self.noise:.1f} %"
        ties = f"; {s.ties} more cannot be told from it" if s.ties else ""
        out += [
            f"best       {_us(s.seconds)} ({spread(s.low, s.high, s.measurements_of_best)})",
            *self._how_sure(),
            f"           the slowest measured takes {s.worst / s.seconds:.2f} times as long{noise}{ties}",
            f"           {self.configuration.text}",
            f"           {self.traversal}",
            *fixed_lines(self.fixed),
        ]
        if self.output is not None:
            out.append(f"results    {self.output}; dagc best, rules, explain and report read it")
        if s.interrupted:
            out.append("           interrupted; --resume goes on")
        return "\n".join(out) + "\n"

    def _how_sure(self) -> list[str]:
        """That the best is not confirmed, or what became of the lowest time that the progress display showed."""
        s = self.summary
        out = [] if s.confirmed else unconfirmed(s.measurements_of_best, s.repeats)
        if s.confirmed and s.lowest < s.seconds * (1 - TOLD_APART):
            out.append(f"           lowest single measurement {_us(s.lowest)}; {_us(s.seconds)} after confirmation")
        if abs(s.displayed / s.lowest - 1) > TOLD_APART:
            out.append(
                f"           displayed while searching as {_us(s.displayed)}: times are now scaled to the median speed"
                " of the machine, not to that at the start"
            )
        return out


def unconfirmed(measurements: int, repeats: int) -> list[str]:
    """The line for a choice that was measured fewer than `repeats` times; none for others."""
    if measurements >= repeats:
        return []
    often = f"{measurements} of {counted(repeats, 'measurement')}"
    return [f"           unconfirmed: {often}, so it may be chance; `dagc explore --resume` confirms it"]


def fixed_lines(fixed: Sequence[Fixed]) -> list[str]:
    """The choices that were not searched, a line for each origin of values."""
    from dagc.store.settings import fixed_text

    if not fixed:
        return []
    head = ("fixed", *[""] * len(fixed))
    return [f"{word:10} {line}" for word, line in zip(head, fixed_text(fixed), strict=False)]


def spread(low: float, high: float, measurements: int) -> str:
    """`95%: 20.76 us to 21.20 us, 10 measurements`; `low` and `high` in seconds.

    Of fewer than six measurements even their whole range has less confidence than 95%, and one has no range.
    """
    number = counted(measurements, "measurement")
    if measurements == 1:
        return number
    return f"{'95%' if measurements >= 6 else 'range'}: {_us(low)} to {_us(high)}, {number}"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"
