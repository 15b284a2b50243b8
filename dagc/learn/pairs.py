"""The measurements of `dagc explain`: edits of the best implementation, each timed against it in interleaved pairs.

The two measurements of a pair are consecutive, so drift affects both; their order alternates, so an effect of the first
on the second cancels. All edits take turns, four measurements each, in a new random order every round, so that a
disturbance of the machine is spread over all edits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from random import Random
from statistics import median, median_low

from dagc.base.python import np, scipy
from dagc.base.sample import EXPLAIN, Sample
from dagc.base.statistics import shift_interval
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Machine, Store
from dagc.learn.types import Floats, Rule

LEAST_NOISE = 0.01  # assumed relative standard deviation of a single measurement if it is not known
MOST_MARGIN = 0.05  # maximal margin for "costs nothing", however noisy the machine
LEAST_CONFIDENCE = 0.9  # five pairs reach 0.94, four 0.88
LEVEL = 0.05  # probability of any false finding among all rules if no edit makes a difference


@dataclass(frozen=True, slots=True)
class Edit:
    """An implementation near the best in which a rule is broken.

    also       other rules of the rule set that it breaks; empty if the rule is broken alone
    changed    decisions of the configuration that differ from those of the best
    distance   number of answers to "a before b" and "on the same stream" that differ from those of the best
    """

    candidate: Candidate
    also: tuple[Rule, ...]
    changed: tuple[str, ...]
    distance: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question: the cost of breaking this rule. `edits` are timed to answer it, the smallest first.

    own     whether the rule is in the rule set that the best follows, or in another one of its class
    exact   whether all implementations were examined, so that without an edit there is none
    """

    rule: Rule
    own: bool
    edits: tuple[Edit, ...]
    exact: bool


class Verdict(Enum):
    """`LEVEL`: no difference, and one that a single measurement would show is excluded. `UNDECIDED`: not excluded."""

    COSTS = "costs"
    LEVEL = "costs nothing"
    FASTER = "faster"
    UNDECIDED = "undecided"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PairTiming:
    """An edit and the best, timed in interleaved pairs.

    ratio        time of the edit over time of the best: Hodges-Lehmann estimate over the pairs
    low, high    its interval, with this `confidence` (0.95; less with fewer than six pairs and an unknown noise)
    noise        relative standard deviation of a single measurement; of a ratio it is that times sqrt(2 / pairs)
    selection_bias  relative amount by which the best may seem faster because these times chose it
    best, edited medians of the times, in seconds
    failure      why it could not be timed; everything else is NaN then
    p            probability of so large a difference by chance, adjusted for all edits (Holm); NaN: not tested
    error        standard error of the logarithm of the ratio, from the interval
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
    p: float = math.nan
    error: float = math.nan

    @property
    def verdict(self) -> Verdict:
        if self.failure or not self.pairs:
            return Verdict.FAILED
        if self.confidence < LEAST_CONFIDENCE:
            return Verdict.UNDECIDED
        clear = abs(self.ratio - 1) > self.noise * math.sqrt(2 / self.pairs) and not self.p > LEVEL
        if self.low > 1 + self.selection_bias and clear:
            return Verdict.COSTS
        if self.high < 1 and clear:
            return Verdict.FASTER
        margin = min(self.noise, MOST_MARGIN)
        small = self.low >= 1 - margin and self.high <= 1 + margin
        return Verdict.LEVEL if small else Verdict.UNDECIDED

    @property
    def cost(self) -> float:
        """Cost of the edit in seconds per iteration."""
        return self.best * (self.ratio - 1)


class Finding(Enum):
    """The result for a rule."""

    CAUSE = "costs"  # the edits that break it cost: the median edit significantly, and none is free
    JOINT = "not separable"  # the same, but the edits also break other rules: which rule costs is not known
    CORRELATION = "correlation"  # it can be broken at no cost
    DEPENDS = "depends"  # some edits cost, others do not, with a significant difference: their other changes decide
    FASTER = "faster"  # the best is faster without it
    UNDECIDED = "undecided"  # the noise is too large
    UNBREAKABLE = "not breakable"  # no implementation breaks it
    FAILED = "failed"  # no edit could be timed


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question with the timings of its edits, in the order of `question.edits`.

    differ   probability of differences as large if their costs are equal, adjusted for all rules; NaN: not tested
    """

    question: Question
    timings: tuple[PairTiming, ...]
    differ: float = math.nan

    @property
    def rule(self) -> Rule:
        return self.question.rule

    @property
    def finding(self) -> Finding:
        verdicts = {t.verdict for t in self.timings} - {Verdict.FAILED}
        if not verdicts:
            return Finding.FAILED if self.timings else Finding.UNBREAKABLE
        costs, free = Verdict.COSTS in verdicts, bool(verdicts & {Verdict.LEVEL, Verdict.FASTER})
        if costs and free and not self.differ > LEVEL:
            return Finding.DEPENDS
        middle = self.middle
        assert middle is not None
        if middle.verdict is Verdict.FASTER:
            return Finding.FASTER
        if Verdict.LEVEL in verdicts and not costs:  # one free edit is enough
            return Finding.CORRELATION
        if middle.verdict is Verdict.COSTS:
            return Finding.JOINT if self.inseparable else Finding.CAUSE
        return Finding.UNDECIDED

    @property
    def inseparable(self) -> tuple[Rule, ...]:
        """The other rules of the rule set that every edit, or one of them, also breaks."""
        return tuple(dict.fromkeys(rule for edit in self.question.edits for rule in edit.also))

    @property
    def middle(self) -> PairTiming | None:
        """The timing that represents the rule: of the edits that could be timed, the one with the median cost.

        Of two, the cheaper one. The most expensive may have another reason, and the cheapest is favoured by chance.
        """
        timed = [t for t in self.timings if t.verdict is not Verdict.FAILED]
        if not timed:
            return None
        middle = median_low(t.ratio for t in timed)
        return next(t for t in timed if t.ratio == middle)


# ---- timed pairs ----

FEWEST = 6  # pairs for an interval of 95 %
_ERRORS = 3  # standard errors on both sides: two would suffice for normal noise


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """How long to time.

    pairs       maximal number of pairs of each edit
    tolerance   half width of the interval of the ratio at which timing an edit ends
    noise       relative standard deviation of a single measurement, NaN: unknown
    selection_bias  see Timing; 0 if the best was chosen by times other than those measured now
    together        whether all pairs of an edit are consecutive: in a recording, each pass of the best is in one pair
    alike           logarithms of the ratios of two measurements of one implementation: the null distribution if there
                    are too few pairs for a test of their own (fewer than 100: normal noise)
    """

    pairs: int = 30
    tolerance: float = 0.004
    noise: float = math.nan
    selection_bias: float = 0.0
    seed: int = 0
    together: bool = False
    alike: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Timed:
    """The timings; `interrupted`: whether the user ended them early."""

    timings: tuple[PairTiming, ...]
    interrupted: bool


@dataclass(slots=True)
class _Series:
    """The pairs of one edit so far."""

    edit: Candidate
    most: int
    ratios: list[float] = field(default_factory=list)
    best: list[float] = field(default_factory=list)
    edited: list[float] = field(default_factory=list)
    failure: str = ""
    look_at: int = FEWEST  # pairs at which the interval is looked at next, at first the fewest that there may be

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
    options: TimingOptions,
    most: Callable[[Candidate], int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Timed:
    """Time every edit against the best, in the order of `edits`; each distinct one is timed once.

    `most`: the maximal number of pairs of an edit (a recording has a limited number of passes). Every measurement is
    stored in `store` with the purpose "explain". A failure ends the pairs of its edit; after a failure of the best, the
    edit continues with its next pair, up to its number of pairs. Ctrl-C ends the timing; measurements so far count.
    `progress` is called with the number of pairs timed and its maximum.
    """
    least = fewest_pairs(len(set(edits)))
    series = {
        edit: _Series(edit, min(options.pairs, most(edit) if most else options.pairs), look_at=least) for edit in edits
    }
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
                for number in range(min(one.most - len(one.ratios), one.most if options.together else 2)):
                    _pair(best, one, number % 2 == 0, machine, store)
                if progress is not None:
                    progress(sum(len(s.ratios) for s in series.values()), total)
            rounds += 1
    except KeyboardInterrupt:
        interrupted = True
    chances = _chances([one for one in series.values() if one.ratios and not one.failure], options, least)
    timings = {edit: _timing(one, options, chances.get(edit, math.nan)) for edit, one in series.items()}
    return Timed(tuple(timings[edit] for edit in edits), interrupted)


def _pair(
    best: Candidate, one: _Series, best_first: bool, machine: Machine[Candidate], store: Store[Candidate]
) -> None:
    if one.failure:
        return
    order = (best, one.edit) if best_first else (one.edit, best)
    values: dict[Candidate, float] = {}
    for candidate in order:
        sample = _measure(candidate, machine, store)
        if sample.failure:
            if candidate == one.edit:
                one.failure = sample.failure
            return
        values[candidate] = sample.value
    one.best.append(values[best])
    one.edited.append(values[one.edit])
    one.ratios.append(values[one.edit] / values[best])


def _measure(candidate: Candidate, machine: Machine[Candidate], store: Store[Candidate]) -> Sample:
    key = store.begin(candidate)
    sample = replace(machine.measure(candidate), purpose=EXPLAIN)
    store.add(key, sample)
    return sample


def _interval(ratios: Sequence[float]) -> tuple[float, float, float, float]:
    """Estimate, low, high, confidence of the ratio."""
    middle, low, high, confidence = shift_interval([math.log(r) for r in ratios])
    return math.exp(middle), math.exp(low), math.exp(high), confidence


def _timing(one: _Series, options: TimingOptions, p: float) -> PairTiming:
    if one.failure:
        return PairTiming(failure=one.failure)
    n, noise = len(one.ratios), options.noise
    if not n:
        return PairTiming(failure="not timed")
    ratio, low, high, confidence = _interval(one.ratios)
    if n < FEWEST and len(options.alike) >= _ENOUGH:
        # Too few to estimate their own variance: use that of single measurements.
        spread = float(_drawn(n, options.alike)[_SPREAD])
        low, high, confidence = ratio * math.exp(-spread), ratio * math.exp(spread), _SPREAD_HOLDS
    elif n < FEWEST - 1 and not math.isnan(noise):
        spread = _ERRORS * noise * math.sqrt(2 / n)
        low, high, confidence = min(low, ratio * math.exp(-spread)), max(high, ratio * math.exp(spread)), 0.95
    known = LEAST_NOISE if math.isnan(noise) else noise
    error = max(math.log(high / low) / (2 * _NORMAL), known * math.sqrt(2 / n) / 2)
    return PairTiming(
        n, ratio, low, high, confidence, known, median(one.best), median(one.edited),
        selection_bias=options.selection_bias, p=p, error=error,
    )  # fmt: skip


# ---- significance ----

_NORMAL = 1.96  # standard errors on both sides for 95 %
_DRAWN = 20_000  # simulated series of pairs without a difference
_SPREAD_HOLDS = 0.95
_SPREAD = round(_SPREAD_HOLDS * _DRAWN)
_ENOUGH = 100  # ratios of equals for an empirical distribution


def fewest_pairs(edits: int) -> int:
    """The number of pairs from which one of so many edits can be significant by the signs of its differences alone."""
    return max(FEWEST, math.ceil(math.log2(2 * max(edits, 1) / LEVEL)))


def _chances(series: Sequence[_Series], options: TimingOptions, least: int) -> dict[Candidate, float]:
    """For each edit, the probability of so large a difference from the best by chance, adjusted for all (Holm)."""
    alone = {one.edit: _chance(one.ratios, options, least) for one in series}
    out, largest = {}, 0.0
    for place, (edit, p) in enumerate(sorted(alone.items(), key=lambda pair: pair[1])):
        largest = max(largest, min(1.0, (len(alone) - place) * p))
        out[edit] = largest
    return out


def _chance(ratios: Sequence[float], options: TimingOptions, least: int) -> float:
    """By Wilcoxon's signed-rank test; with fewer than `least` pairs, from the distribution of single measurements."""
    logs = [math.log(r) for r in ratios]
    if sum(logs) > 0:
        logs = [x - math.log1p(options.selection_bias) for x in logs]
    n = len(logs)
    if n >= least:
        return float(scipy.stats.wilcoxon(logs).pvalue) if any(logs) else 1.0
    middle = abs(shift_interval(logs)[0])
    if len(options.alike) >= _ENOUGH:
        drawn = _drawn(n, options.alike)
        return float((1 + (drawn >= middle).sum()) / (1 + _DRAWN))
    if math.isnan(options.noise):
        return 1.0
    errors = middle / (max(options.noise, 1e-9) * math.sqrt(2 / n) * _ERRORS / _NORMAL)
    return math.erfc(errors / math.sqrt(2))


@lru_cache(8)
def _drawn(n: int, alike: tuple[float, ...]) -> Floats:
    """Null distribution for n pairs: _DRAWN absolute Hodges-Lehmann estimates of the logarithm, ascending."""
    pairs = np.random.default_rng(0).choice([*alike, *(-x for x in alike)], (_DRAWN, n))
    first, second = np.triu_indices(n)
    return np.sort(abs(np.median((pairs[:, first] + pairs[:, second]) / 2, axis=1)))


def differing(timings: Sequence[PairTiming], rules: int) -> float:
    """The probability of differences this large between edits with equal costs, adjusted for the number of rules."""
    timed = sorted((one for one in timings if one.verdict is not Verdict.FAILED), key=lambda one: one.ratio)
    if len(timed) < 2:
        return math.nan
    cheap, dear = timed[0], timed[-1]
    apart = math.log(dear.ratio / cheap.ratio) / math.hypot(cheap.error, dear.error)
    ways = len(timed) * (len(timed) - 1) // 2
    return min(1.0, 2 * float(scipy.stats.t.sf(apart, max(cheap.pairs + dear.pairs - 2, 1))) * ways * rules)
