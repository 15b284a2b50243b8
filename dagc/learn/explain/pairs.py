"""What `dagc explain` measures: edits of the best implementation, each timed against it in interleaved pairs.

The two measurements of a pair follow each other, so what drifts is in both; their order alternates, so what the second
gains from the first cancels. All edits take turns, four measurements each, in an order drawn again every round: a
minute in which the machine is disturbed does not fall on one edit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from statistics import median, median_low

from dagc.base.objective import TIME, Objective
from dagc.base.statistics import shift_interval
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Machine, Store
from dagc.learn.rules.types import Rule
from dagc.store.results import Configuration, Outcome

LEAST_NOISE = 0.01  # what a single measurement is taken to vary by where nothing is known of it
MOST_MARGIN = 0.05  # a larger cost may not hide behind the noise of a machine that is as noisy
LEAST_CONFIDENCE = 0.9  # five pairs reach 0.94, four 0.88


@dataclass(frozen=True, slots=True)
class Edit:
    """An implementation near the best in which a rule is broken.

    also       rules of the best's rule set that are broken with it: none where the rule is broken alone
    changed    decisions of the configuration that differ from the best's
    distance   how many answers to "a before b" and "on the same stream" differ from the best's
    """

    candidate: Candidate
    also: tuple[Rule, ...]
    changed: tuple[str, ...]
    distance: int


@dataclass(frozen=True, slots=True)
class Question:
    """What does breaking this rule cost? `edits` are tried for an answer, the smallest first.

    own     the rule is of the rule set that the best follows; otherwise of another one of its class
    exact   all implementations were looked at, so that no edit means that there is none
    """

    rule: Rule
    own: bool
    edits: tuple[Edit, ...]
    exact: bool


class Verdict(Enum):
    """`LEVEL`: no difference, and none that a single measurement would show is possible. `UNDECIDED`: it still is."""

    COSTS = "costs"
    LEVEL = "costs nothing"
    FASTER = "faster"
    UNDECIDED = "undecided"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Timing:
    """An edit and the best, timed in interleaved pairs.

    ratio        time of the edit over time of the best: Hodges-Lehmann estimate over the pairs
    low, high    its interval, with this `confidence` (0.95; less with fewer than six pairs and an unknown noise)
    noise        relative standard deviation of a single measurement; of a ratio it is that times sqrt(2 / pairs)
    selection_bias  how much faster the best may look because these same times chose it: a smaller cost may be that
    best, edited medians of the times, in seconds
    failure      why it could not be timed; all else is NaN then
    """

    pairs: int = 0
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    confidence: float = math.nan
    noise: float = LEAST_NOISE
    best: float = math.nan
    edited: float = math.nan
    failure: str = ""
    selection_bias: float = 0.0

    @property
    def verdict(self) -> Verdict:
        if self.failure or not self.pairs:
            return Verdict.FAILED
        if self.confidence < LEAST_CONFIDENCE:
            return Verdict.UNDECIDED
        clear = abs(self.ratio - 1) > self.noise * math.sqrt(2 / self.pairs)
        if self.low > 1 + self.selection_bias and clear:
            return Verdict.COSTS
        if self.high < 1 and clear:
            return Verdict.FASTER
        margin = min(self.noise, MOST_MARGIN)
        small = self.low >= 1 - margin and self.high <= 1 + margin
        return Verdict.LEVEL if small else Verdict.UNDECIDED

    @property
    def cost(self) -> float:
        """Seconds an iteration that the edit costs."""
        return self.best * (self.ratio - 1)


class Finding(Enum):
    """What the edits say about a rule."""

    CAUSE = "costs"  # the edits that break it cost: the middle one for certain, and none is free
    CORRELATION = "correlation"  # it can be broken, and nothing is lost
    DEPENDS = "depends"  # some edits cost and others do not: what else they change decides
    FASTER = "faster"  # without it the best gets faster
    UNDECIDED = "undecided"  # the noise hides the answer
    UNBREAKABLE = "not breakable"  # no implementation breaks it
    FAILED = "failed"  # no edit could be timed


@dataclass(frozen=True, slots=True)
class Answer:
    """A question with its edits timed: `timings` are those of `question.edits`."""

    question: Question
    timings: tuple[Timing, ...]

    @property
    def rule(self) -> Rule:
        return self.question.rule

    @property
    def finding(self) -> Finding:
        verdicts = {t.verdict for t in self.timings} - {Verdict.FAILED}
        if not verdicts:
            return Finding.FAILED if self.timings else Finding.UNBREAKABLE
        if Verdict.COSTS in verdicts and verdicts & {Verdict.LEVEL, Verdict.FASTER}:
            return Finding.DEPENDS
        middle = self.middle
        assert middle is not None
        if middle.verdict is Verdict.FASTER:
            return Finding.FASTER
        if Verdict.LEVEL in verdicts:  # one free way to break it is enough
            return Finding.CORRELATION
        return Finding.CAUSE if middle.verdict is Verdict.COSTS else Finding.UNDECIDED

    @property
    def middle(self) -> Timing | None:
        """The timing that stands for the rule: of the edits that could be timed, the one with the middle cost.

        Of two, the cheaper. Not the dearest, which may be dear for another reason; not the cheapest, which chance
        favours.
        """
        timed = [t for t in self.timings if t.verdict is not Verdict.FAILED]
        if not timed:
            return None
        middle = median_low(t.ratio for t in timed)
        return next(t for t in timed if t.ratio == middle)


@dataclass(frozen=True, slots=True)
class Explanation:
    """All answers for the best implementation.

    traversal    text of the best
    seconds      its median, in the results file
    number       its class, from 0, of `classes`
    noise        relative standard deviation of a single measurement, NaN: unknown
    shown        per answer and edit: what is shown of it
    """

    program: str
    configuration: Configuration
    traversal: str
    seconds: float
    number: int
    classes: int
    implementations: int
    noise: float
    answers: tuple[Answer, ...]
    shown: tuple[tuple[EditView, ...], ...]
    notes: tuple[str, ...] = ()
    objective: Objective = TIME


@dataclass(frozen=True, slots=True)
class EditView:
    """An edit for the reader. `before` and `after`: the entries of the traversal that differ; empty where none do.

    mechanism   what it changes for the machine, in words; "" where nothing can be said
    """

    configuration: Configuration
    traversal: str
    before: str
    after: str
    mechanism: str


# ---- timed pairs ----

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
