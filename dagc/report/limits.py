"""The distance to the limit: of each op and of the whole program what it takes, at least, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dagc.report import si

FINDING = "finding lower bounds of the ops and of the program, by the speed of this machine"
NEAR = 0.9  # of the limit: what holds an op back matters no more


@dataclass(frozen=True, slots=True)
class LimitRow:
    """Times in seconds: what was measured (NaN: nothing) and the lower bound. `why`: the reason of the bound; `held`:
    what keeps the op from it. `unknown`: why there is no bound beside that of a launch, "" if there is one."""

    name: str
    measured: float
    bound: float
    why: str
    held: str = ""
    unknown: str = ""

    @property
    def reached(self) -> float:
        """The bound over the time; NaN if either is unknown."""
        return math.nan if self.unknown or not self.measured > 0 else self.bound / self.measured

    @property
    def record(self) -> dict[str, str | float | None]:
        """For JSON: None where a number is not known."""
        bound = math.nan if self.unknown else self.bound
        times = {"measured": self.measured, "bound": bound, "reached": self.reached}
        numbers = {name: None if math.isnan(value) else value for name, value in times.items()}
        return {"name": self.name, **numbers, "why": self.unknown or self.why, "held": self.held}

    @property
    def text(self) -> str:
        """`inner 121 us of at least 66: 55 %; accesses of 4 bytes, one element a thread`."""
        if self.unknown:
            took = "" if math.isnan(self.measured) else f" {si.seconds(self.measured)};"
            return f"{self.name}{took} lower bound unknown: {self.unknown}"
        if math.isnan(self.measured):
            return f"{self.name} at least {si.seconds(self.bound)}: {self.why}"
        held = self.why if self.reached >= NEAR or not self.held else f"{self.why}; {self.held}"
        took, least = si.seconds(self.measured), si.seconds(self.bound)
        return f"{self.name} {took} of at least {least}: {si.percent(self.reached)}; {held}"


def limit_lines(rows: Sequence[LimitRow]) -> list[str]:
    """In ASCII, the first with a title as the other lines of a command."""
    plain = (row.text.replace(si.THIN, " ").replace("\u00b5", "u") for row in rows)
    return [f"{'limit' if number == 0 else '':10} {text}" for number, text in enumerate(plain)]
