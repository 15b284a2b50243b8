"""The search for launch settings of several ops at several sizes together: the next measurement, and the end of the
search.

Each op has a surface of expected times over its settings and sizes (`dagc.choice.surface`), which every measurement
updates at all sizes. The default is measured first at each size. Then follows the cell with the largest knowledge
gradient: the expected gain over all sizes, not only at its own. The last measurements are reserved for settings that
would be chosen and were not measured, so that every setting chosen at a measured size has been compared with the
default there, and one with a form of the kernel with the best that is expected of the kernel as written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from dagc.base.python import np
from dagc.base.sample import CHECK, Sample
from dagc.base.statistics import interval
from dagc.choice.types import Case, Cell
from dagc.ir.choice import Choice

if TYPE_CHECKING:
    from dagc.choice.surface import TimeSurface

RISK = 0.3  # largest probability of being slower than the default for a setting chosen without measurements
# Largest probability that a form which is chosen without measurements is slower than the kernel as written, with the
# block that is chosen for that: three of 76 kernels are, at 0.25 four, at 0.15 two (`benchmarks.tune.forms --risks`).
FORM_RISK = 0.2
CARE = 0.5  # standard deviations that count as time when such forms are compared
MOST_COMPARED = 150  # most cells of an op whose gain is computed before a measurement
DOUBT = 0.05  # probability of a faster setting: with `until`, the search ends when it is at most this
FLOOR = 0.001  # least expected gain that is worth a measurement, if the noise is less than that
SPEND = 0.0001  # the same, while a budget that was requested is not spent
CONFIRMED = 3  # settings of an op at a size that are timed again at the end, at most
RIVALS = 1.02  # times the fastest there: a setting that may be the fastest
HALF = 1.96  # half of a 95 % interval, in standard deviations


@dataclass(slots=True)
class OpTimes:
    """The expected times of an op: `rows` are its cells, ordered by the index of their cases in `cases`, as in the
    surface. `modelled`: whether a model or a learner gives a prior."""

    op: str
    default: Choice
    cases: tuple[Case, ...]
    rows: tuple[tuple[Case, Choice], ...]
    surface: TimeSurface
    modelled: bool = True
    number: dict[tuple[Case, Choice], int] = field(init=False)
    of: dict[Case, list[int]] = field(init=False)
    closed: set[int] = field(default_factory=set)  # failed, wrong, or at an abandoned size
    medians: dict[int, list[float]] = field(default_factory=dict)  # of each series of the measured rows
    seconds: dict[int, float] = field(default_factory=dict)  # medians of these

    def __post_init__(self) -> None:
        self.number = {cell: i for i, cell in enumerate(self.rows)}
        self.of = {case: [] for case in self.cases}
        for i, (case, _) in enumerate(self.rows):
            self.of[case].append(i)

    def usable(self, case: Case) -> list[int]:
        return [i for i in self.of[case] if i not in self.closed]

    @property
    def open(self) -> list[int]:
        """The rows that may be measured and were not."""
        return [i for i in range(len(self.rows)) if i not in self.closed and i not in self.seconds]

    def measured(self, case: Case) -> list[int]:
        return [i for i in self.usable(case) if i in self.seconds]

    def least(self, case: Case) -> float:
        """Seconds of the fastest measured setting; 0 without one."""
        return min((self.seconds[i] for i in self.measured(case)), default=0.0)

    def start(self, case: Case) -> int | None:
        """The default at a size, or the best guess if it cannot be used; None if no setting can."""
        default = self.number.get((case, self.default))
        if default is not None and default not in self.closed:
            return default
        return self.expected(case)

    def expected(self, case: Case, written: bool = False) -> int | None:
        """The row that is expected to be the fastest, measured or not. `written`: of the kernels as written."""
        mean = self.surface.mean
        rows = (i for i in self.usable(case) if not (written and self.rows[i][1].formed))
        return min(rows, key=lambda i: float(mean[i]), default=None)


class AcrossSizes:
    """Proposes cells until the budget is spent or no further gain is expected; then chooses."""

    def __init__(self, ops: Sequence[OpTimes], budget: int | None = None, until: float | None = None) -> None:
        """`budget`: total number of measurements; `until`: the search ends when the probability that an unmeasured
        setting is faster by more than this fraction is at most 5 %."""
        self.ops = {o.op: o for o in ops}
        self.budget, self.until = budget, until
        self.spent = 0
        self.ended = ""  # why it has ended
        self.guided = True  # by the surfaces
        self.out_of_time = False  # only settings that would be chosen are measured from now on
        self._noises: list[float] = []
        self._random = Random(0)
        self._started: set[tuple[str, Case]] = set()
        self._sated = False  # whether no further gain is expected
        self._proposed: Cell | None = None
        self._last: Cell | None = None  # whose time was learned
        self._loaded: Cell | None = None  # whose data are loaded: it was measured last

    def has(self, cell: Cell) -> bool:
        """Whether it is a cell of the search."""
        return cell.site in self.ops and cell[1:] in self.ops[cell.site].number

    # ---- results ----------------------------------------------------------------

    def observe(self, cell: Cell, sample: Sample) -> None:
        """A sample of a cell. One of which no time is finite and positive counts as failed. A check says that the cell
        was not timed."""
        if cell == self._proposed:
            self._loaded = None if sample.purpose == CHECK else cell
        if sample.purpose == CHECK:
            return
        good = [t for t in sample.times if math.isfinite(t) and t > 0]
        if sample.failure or not good:
            self._fail(cell)
            return
        low, high = interval(good)
        self.learn(cell, median(good), (high - low) / 2 / HALF / median(good))

    def learn(self, cell: Cell, seconds: float, noise: float) -> None:
        """The median of a cell, and its relative standard deviation (NaN: not known)."""
        op, case, choice = cell
        self.spent += 1
        self._started.add((op, case))
        row = self.ops[op].number.get((case, choice))
        if row is None:
            return
        self._last = cell
        if math.isfinite(noise):
            self._noises.append(noise)
        series = self.ops[op].medians.setdefault(row, [])
        series.append(seconds)
        self.ops[op].seconds[row] = median(series)
        self.ops[op].surface.observe(row, math.log(seconds), noise)

    def _fail(self, cell: Cell) -> None:
        """The setting is not proposed at other sizes, unless all settings fail at that size."""
        op, case, choice = cell
        self.spent += 1
        self._started.add((op, case))
        times = self.ops[op]
        times.closed |= {row for row in (times.number.get((case, choice)),) if row is not None}
        if times.measured(case):
            self.exclude(op, choice)

    def exclude(self, op: str, choice: Choice) -> None:
        """Exclude a setting that failed the check, at all sizes."""
        times = self.ops[op]
        times.closed |= {i for i, (_, s) in enumerate(times.rows) if s == choice}

    def skip(self, case: Case) -> None:
        """Exclude a size at which the program does not run."""
        for times in self.ops.values():
            times.closed |= set(times.of.get(case, ()))

    # ---- trust in the surfaces ------------------------------------------------

    def expected(self, candidate: Cell) -> tuple[float, float] | None:
        """The expected seconds of a cell and their standard deviation, by what was measured at its size and the
        surface; None if nothing was, since no model predicts the scale of all times."""
        times = self.ops[candidate.site]
        row, known = times.number.get(candidate[1:]), times.measured(candidate.case)
        if not self.guided or row is None or not known:
            return None
        best = min(known, key=lambda i: times.seconds[i])
        mean, deviation = times.surface.against(row, best)
        seconds = times.seconds[best] * math.exp(mean)
        return seconds, deviation * seconds

    def best(self) -> Cell | None:
        """The cell that the surface chooses among those measured at the size that was measured last."""
        if not self.guided or self._last is None:
            return None
        times, mean = self.ops[self._last.site], self.ops[self._last.site].surface.mean
        row = min(times.measured(self._last.case), key=lambda i: float(mean[i]), default=None)
        return None if row is None else Cell(times.op, *times.rows[row])

    def give_up(self) -> None:
        """From now on the default comes first at each size, then any setting, at random."""
        self.guided = False

    # ---- proposals ------------------------------------------------------------

    def propose(self) -> Cell | None:
        """The next cell; None at the end, with the reason in `ended`."""
        self._proposed = self._next()
        return self._proposed

    def _next(self) -> Cell | None:
        left = None if self.budget is None else self.budget - self.spent
        if left is not None and left <= 0:
            return self._end(f"{self.budget} settings were measured")
        pairs = self._pairs()
        unsure = [pair for pair in pairs if self._asked(*pair)]
        if self.out_of_time or (left is not None and left <= sum(len(self._asked(*pair)) for pair in unsure)):
            return self._confirming(unsure)
        new = [(o, p) for o, p in pairs if (o.op, p) not in self._started]
        if new and (not self.guided or self.budget is None or 2 * (len(self._started) + 1) <= max(2, self.budget)):
            return self._started_at(*_nearest(new, self._loaded))
        return self._most_telling(pairs, unsure) if self.guided else self._any()

    def _any(self) -> Cell | None:
        """A cell at random."""
        rest = [Cell(o.op, *o.rows[i]) for o in self.ops.values() for i in o.open]
        return self._random.choice(rest) if rest else self._end("every setting was measured")

    @property
    def to_confirm(self) -> int:
        """The number of settings that would be chosen at measured sizes and are not measured."""
        return sum(len(self._asked(*pair)) for pair in self._pairs())

    @property
    def to_repeat(self) -> int:
        """The number of settings that are timed again at the end: the fastest of each size, if several may be."""
        pairs = [(o, p, o.least(p)) for o in self.ops.values() for p in o.cases]
        rivals = [sum(o.seconds[i] <= RIVALS * least for i in o.measured(p)) for o, p, least in pairs]
        return sum(min(CONFIRMED, number) for number in rivals if number > 1)

    def _pairs(self) -> list[tuple[OpTimes, Case]]:
        return [(o, p) for o in self.ops.values() for p in o.cases if o.usable(p)]

    def _asked(self, times: OpTimes, case: Case) -> list[int]:
        """The rows that are measured before a choice at a size where one was: the one that would be chosen; and, if it
        has a form, what is expected to be the fastest of the kernel as written, unless that is surely slower."""
        if not self.guided or (times.op, case) not in self._started or not times.measured(case):
            return []
        best, written = times.expected(case), times.expected(case, written=True)
        rows = [best] if best is not None and self._loss(times, case) > FLOOR else []
        known = min(times.measured(case), key=lambda i: times.seconds[i])
        chosen = (rows or [known])[0]
        rival = times.rows[chosen][1].formed and written is not None and written not in times.seconds
        if written is not None and rival and slower(times.surface.against(chosen, written)) > DOUBT:
            rows.append(written)
        return rows

    def _end(self, why: str) -> Cell | None:
        self.ended = why
        return None

    def _loss(self, times: OpTimes, case: Case) -> float:
        """The expected loss if the best measured setting is taken instead of the best expected one (logarithm)."""
        mean, known, best = times.surface.mean, times.measured(case), times.expected(case)
        if not self.guided:
            return 0.0
        return float(min(mean[i] for i in known) - mean[best]) if known and best is not None else 0.0

    def _started_at(self, times: OpTimes, case: Case) -> Cell | None:
        row = times.start(case)
        return None if row is None else Cell(times.op, *times.rows[row])

    def _confirming(self, unsure: Sequence[tuple[OpTimes, Case]]) -> Cell | None:
        if not unsure:
            return self._end(
                "the time limit was reached" if self.out_of_time
                else f"{self.spent} settings were measured" if not self._sated
                else "no further gain is expected" if self.until is None and self.budget is not None
                else "the expected gain is below the noise" if self.until is None
                else f"none is expected to be faster by more than {self.until:.3g}"
            )  # fmt: skip
        times, case = max(unsure, key=lambda pair: self._loss(*pair))
        return Cell(times.op, *times.rows[self._asked(times, case)[0]])

    def _most_telling(
        self, pairs: Sequence[tuple[OpTimes, Case]], unsure: Sequence[tuple[OpTimes, Case]]
    ) -> Cell | None:
        best: tuple[float, OpTimes, int] | None = None
        for times in self.ops.values():
            rows = times.open
            if rows:
                few = times.surface.promising(np.array(rows), MOST_COMPARED)
                gains = times.surface.gains(few).sum(axis=0)
                first = int(gains.argmax())
                if best is None or gains[first] > best[0]:
                    best = float(gains[first]), times, int(few[first])
        if best is None:
            return self._end("every setting was measured")
        gain, times, row = best
        if self._enough(pairs, gain):
            self._sated = True
            return self._confirming(unsure)
        case = times.rows[row][0]
        if (times.op, case) not in self._started:  # the default comes first at each size
            return self._started_at(times, case)
        return Cell(times.op, *times.rows[row])

    def _enough(self, pairs: Sequence[tuple[OpTimes, Case]], most: float) -> bool:
        if self.until is not None:
            return all(self.doubt_at(o.op, p, self.until) <= DOUBT for o, p in pairs)
        if self.budget is not None:
            return most < SPEND
        return most < max(FLOOR, median(self._noises) if self._noises else FLOOR)

    # ---- choices -------------------------------------------------------------------

    def choice(self, op: str, case: Case) -> Choice:
        """The fastest measured setting, if any was measured at the size; one with a form, if it is faster than all of
        the kernel as written with a probability of 1 - DOUBT. Otherwise that of the kernel as written with the least
        expected time among those that are slower than the default with a probability of at most RISK; or one with a
        form that is slower than this with a probability of at most FORM_RISK."""
        times = self.ops[op]
        known = times.measured(case)
        if known:
            return times.rows[self._fastest(times, known)][1]
        start = times.start(case)
        if start is None:
            return times.default
        if not self.guided:
            return times.rows[start][1]
        mean = times.surface.mean
        written = [i for i in times.usable(case) if not times.rows[i][1].formed]
        good = [i for i in written if i == start or slower(times.surface.against(i, start)) <= RISK]
        plain = min(good, key=lambda i: float(mean[i]), default=start)
        against = {i: times.surface.against(i, plain) for i in times.usable(case) if times.rows[i][1].formed}
        safe = [i for i in against if times.surface.slower(i, plain) <= FORM_RISK]
        return times.rows[min(safe, key=lambda i: against[i][0] + CARE * against[i][1], default=plain)][1]

    @staticmethod
    def _fastest(times: OpTimes, known: Sequence[int]) -> int:
        """Of measured rows."""
        best = min(known, key=lambda i: times.seconds[i])
        written = [i for i in known if not times.rows[i][1].formed]
        plain = min(written, key=lambda i: times.seconds[i], default=best)
        sure = plain == best or slower(times.surface.against(best, plain)) <= DOUBT
        return best if sure else plain

    def hopeful(self, op: str, number: int) -> list[Choice]:
        """The settings that are expected to be nearest to the best at some size."""
        times = self.ops[op]
        mean, least = times.surface.mean, dict[Choice, float]()
        for case in times.cases:
            rows = times.usable(case)
            best = min((float(mean[i]) for i in rows), default=0.0)
            for i in rows:
                choice = times.rows[i][1]
                least[choice] = min(least.get(choice, math.inf), float(mean[i]) - best)
        return sorted(least, key=lambda s: least[s])[:number]

    def doubt_at(self, op: str, case: Case, share: float) -> float:
        """Probability that an unmeasured setting is faster than the choice by more than this fraction."""
        times = self.ops[op]
        row = times.number.get((case, self.choice(op, case)))
        others = [i for i in times.usable(case) if i not in times.surface.measured and i != row]
        return 0.0 if row is None else times.surface.doubt(row, np.array(others, dtype=np.int64), share)


def _nearest(pairs: Sequence[tuple[OpTimes, Case]], loaded: Cell | None) -> tuple[OpTimes, Case]:
    """The pair whose data are loaded, else one of the same size, else the first."""
    if loaded is None:
        return pairs[0]
    return min(pairs, key=lambda pair: ((pair[0].op, pair[1]) != loaded[:2], pair[1] != loaded.case))


def slower(ratio: tuple[float, float]) -> float:
    """Probability that a logarithm with this mean and standard deviation is above 0."""
    mean, deviation = ratio
    return 0.5 * math.erfc(-mean / deviation / math.sqrt(2)) if deviation > 0 else float(mean > 0)
