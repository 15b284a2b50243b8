"""What one measurement gave, whatever was measured: the only type of a measured value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from dagc.base.objective import Objective
from dagc.base.statistics import interval

# What a sample is for: to search, to confirm a choice, to compare an edit, to compare results with the reference; or
# to have a first answer while compilers run, which disturb it.
SEARCH: Final = "search"
BESIDE: Final = "beside"
CONFIRM: Final = "confirm"
EXPLAIN: Final = "explain"
CHECK: Final = "check"


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured value with all metrics behind it, or the reason why there is none. SI units.

    value       what the objective compares: seconds, unless it is another one; the median of `times` if there are any
    times       the single times that were taken together, in order
    metrics     the other metrics by name (`dagc.measure.metrics`); empty if only the time was measured
    failure     "" or one line: `wrong result: ...`, `hang: ...`, `out of memory: ...`, `run failed: ...`
    reference   seconds of the drift reference at about the same time; NaN if there is none
    iterations  how many iterations a time is the mean of
    purpose     what it was taken for
    took        seconds that it kept the machine busy, including cache flushes and the restoration of data; not stored
    """

    value: float = math.nan
    reference: float = math.nan
    iterations: int = 0
    failure: str = ""
    times: tuple[float, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    purpose: str = SEARCH
    took: float = 0.0

    @classmethod
    def of(cls, times: tuple[float, ...], failure: str = "", metrics: Mapping[str, float] | None = None) -> Sample:
        """A sample of single times, whose median is the value."""
        return cls(median(times) if times else math.nan, failure=failure, times=times, metrics=metrics or {})

    @property
    def good(self) -> bool:
        """Whether something was measured, and nothing failed."""
        return not self.failure and not math.isnan(self.value)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median of `times`."""
        return interval(self.times)

    def priced(self, objective: Objective, more: float = 0.0) -> Sample:
        """The sample whose `times` and `value` are those of an objective. `more`: additional seconds of every time."""
        if not more and objective.is_time:
            return self
        values = tuple(objective.value({**self.metrics, "time": t + more}) for t in self.times)
        return replace(self, value=median(values) if values else math.nan, times=values)
