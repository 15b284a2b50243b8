"""What `dagc explain` finds: edits of the best implementation, what each costs, and what that says about a rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from statistics import median_low

from dagc.lab.candidate import Candidate
from dagc.learn.rules.types import Rule
from dagc.store.results import Configuration

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


@dataclass(frozen=True, slots=True)
class EditView:
    """An edit for the reader. `before` and `after`: the stretch of the traversal that differs; empty where none does.

    mechanism   what it changes for the machine, in words; "" where nothing can be said
    """

    configuration: Configuration
    traversal: str
    before: str
    after: str
    mechanism: str
