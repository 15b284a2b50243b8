"""Edits timed against the best in interleaved pairs: best, edit, edit, best, and so on.

The two measurements of a pair follow each other, so what drifts is in both; their order alternates, so what the second
gains from the first cancels. All edits take turns, four measurements each, in an order drawn again every round: a
minute in which the machine is disturbed does not fall on one edit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median

from dagc.base.statistics import shift_interval
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Machine, Store
from dagc.learn.explain.types import LEAST_NOISE, Timing
from dagc.store.results import Outcome

FEWEST = 6  # pairs for an interval of 95 %
_ERRORS = 3  # standard errors on both sides: two would do for normal noise, which this is not


@dataclass(frozen=True, slots=True)
class Options:
    """How long to time.

    pairs       most pairs of each edit
    tolerance   half a width of the interval of the ratio at which an edit is known well enough
    noise       relative standard deviation of a single measurement, NaN: unknown
    selection_bias  see Timing; 0 if the best was chosen by times other than those measured now
    """

    pairs: int = 30
    tolerance: float = 0.004
    noise: float = math.nan
    selection_bias: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Timed:
    """What was timed; `interrupted`: by the user, before it was done."""

    timings: tuple[Timing, ...]
    interrupted: bool


@dataclass(slots=True)
class _Series:
    """Pairs of one edit so far."""

    edit: Candidate
    most: int
    ratios: list[float] = field(default_factory=list)
    best: list[float] = field(default_factory=list)
    edited: list[float] = field(default_factory=list)
    failure: str = ""
    look_at: int = FEWEST  # pairs at which the interval is looked at next

    def done(self, tolerance: float) -> bool:
        if self.failure or len(self.ratios) >= self.most:
            return True
        if len(self.ratios) < self.look_at:
            return False
        self.look_at = len(self.ratios) + max(2, len(self.ratios) // 5)
        _, low, high, _ = _interval(self.ratios)
        return (high - low) / 2 <= tolerance


def time_pairs(
    best: Candidate,
    edits: Sequence[Candidate],
    machine: Machine[Candidate],
    store: Store[Candidate],
    options: Options,
    most: Callable[[Candidate], int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Timed:
    """The timing of every edit against the best, in the order of `edits`; each distinct one is timed once.

    `most` says how many pairs there can be of an edit (a recording has only so many passes). Every measurement is kept
    in `store` for the purpose "explain". A failure ends the pairs of its edit; after one of the best itself the edit
    goes on with its next pair, at most as often as it was to be timed. Ctrl-C ends the timing: what was measured until
    then counts. `progress` is called with how many pairs are timed, of how many at most.
    """
    series = {edit: _Series(edit, min(options.pairs, most(edit) if most else options.pairs)) for edit in edits}
    total = sum(s.most for s in series.values())
    random = Random(options.seed)
    rounds, interrupted = 0, False
    try:
        while rounds < options.pairs:
            open_ = [s for s in series.values() if not s.done(options.tolerance)]
            if not open_:
                break
            random.shuffle(open_)
            for one in open_:
                for best_first in (True, False)[: one.most - len(one.ratios)]:
                    _pair(best, one, best_first, machine, store)
                if progress is not None:
                    progress(sum(len(s.ratios) for s in series.values()), total)
            rounds += 1
    except KeyboardInterrupt:
        interrupted = True
    timings = {edit: _timing(one, options.noise, options.selection_bias) for edit, one in series.items()}
    return Timed(tuple(timings[edit] for edit in edits), interrupted)


def _pair(
    best: Candidate, one: _Series, best_first: bool, machine: Machine[Candidate], store: Store[Candidate]
) -> None:
    if one.failure:
        return
    order = (best, one.edit) if best_first else (one.edit, best)
    seconds: dict[Candidate, float] = {}
    for candidate in order:
        outcome = _measure(candidate, machine, store)
        if outcome.failure:
            if candidate == one.edit:
                one.failure = outcome.failure
            return
        seconds[candidate] = outcome.seconds
    one.best.append(seconds[best])
    one.edited.append(seconds[one.edit])
    one.ratios.append(seconds[one.edit] / seconds[best])


def _measure(candidate: Candidate, machine: Machine[Candidate], store: Store[Candidate]) -> Outcome:
    key = store.begin(candidate)
    outcome = machine.measure(candidate)
    if outcome.failure:
        store.fail(key, outcome.failure)
    else:
        store.add(key, outcome, "explain")
    return outcome


def _interval(ratios: Sequence[float]) -> tuple[float, float, float, float]:
    """Estimate, low, high, confidence of the ratio."""
    middle, low, high, confidence = shift_interval([math.log(r) for r in ratios])
    return math.exp(middle), math.exp(low), math.exp(high), confidence


def _timing(one: _Series, noise: float, selection_bias: float) -> Timing:
    if one.failure:
        return Timing(failure=one.failure)
    n = len(one.ratios)
    if not n:
        return Timing(failure="not timed")
    ratio, low, high, confidence = _interval(one.ratios)
    if n < FEWEST and not math.isnan(noise):
        # So few cannot say themselves how much they vary; what is known of single measurements does.
        spread = _ERRORS * noise * math.sqrt(2 / n)
        low, high, confidence = min(low, ratio * math.exp(-spread)), max(high, ratio * math.exp(spread)), 0.95
    known = LEAST_NOISE if math.isnan(noise) else noise
    return Timing(
        n, ratio, low, high, confidence, known, median(one.best), median(one.edited), selection_bias=selection_bias
    )
