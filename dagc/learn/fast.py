"""Rules for the fast end: one conjunction whose followers are fast, and its worth on samples that did not make it.

The tree (`dagc.learn.tree`) explains where classes lie; its fastest class is small and fast because these samples are
in it, so what follows its rules elsewhere is often slower than it. Here, the conjunction with the lowest mean time of
its followers is sought (geometric mean, by a beam search over features), and everything that is said of it comes from
held-out samples: the samples are divided into FOLDS, REPEATS times; rules of the other folds are followed in each:

- the number of rules: the smallest whose held-out followers are, in the mean, within one standard error of the best,
- the range: the slowest held-out follower, of all folds; and, since of others more than 5 % are slower than the slowest
  of fewer than ENOUGH, what one in 20 exceeds of at least ENOUGH that follow these rules or fewer of them,
- the cost of breaking a rule: the median time of held-out samples that follow all rules of their folds but this one,
  over that of the followers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from dagc.base.python import np
from dagc.base.statistics import ENOUGH, exceeded
from dagc.learn.classes import Evidence
from dagc.learn.features import Implications, Samples, in_order
from dagc.learn.kinds import kinds_in
from dagc.learn.types import Bools, Example, Floats, Rule, RuleFeature

NOTHING = 0.0002  # losses closer than this are ties, which the number of followers decides
FOLLOWERS = 8  # of each input at least, or 1 % of its samples
SHARE = 0.01
BEAM = 8
GAIN = 0.001  # decrease of the mean loss that justifies another rule


def both_ways(answers: Bools) -> Bools:
    """The answers to every rule: each feature, then its negation. Shape (samples, 2 * features)."""
    return np.concatenate([answers, ~answers], axis=1)


def rule_of(column: int, features: Sequence[RuleFeature]) -> Rule:
    """The rule of a column of `both_ways`."""
    return Rule(features[column % len(features)], column < len(features))


def followers_of(columns: Sequence[int], answers: Bools) -> Bools:
    """Whether each sample follows the rules of these columns of `both_ways`."""
    out: Bools = np.logical_and.reduce(answers[:, list(columns)], axis=1)
    return out


def conjunctions(
    losses: Floats, answers: Bools, inputs: Sequence[Bools], most: int | None = None, errors: float = 0.0
) -> list[tuple[int, ...]]:
    """The best conjunction of 0, 1, 2, ... rules, each as columns of `answers` (of `both_ways`), at most `most` rules.

    The best has the lowest mean loss of its followers, all inputs weighted equally, and followers on each of them.
    `errors` standard errors are added to each mean, so that of equal ones the one of more followers wins. The search
    ends where another rule lowers that by less than GAIN. `losses`: one for each sample; `inputs`: which samples are
    of each input.
    """
    weights = np.stack(inputs).astype(float)
    least = np.maximum(FOLLOWERS, SHARE * weights.sum(axis=1, keepdims=True))
    mean = float(np.mean([losses[here].mean() for here in inputs]))
    out: list[tuple[int, ...]] = [()]
    best = mean
    front: list[tuple[float, tuple[int, ...], Bools]] = [(mean, (), np.logical_or.reduce(inputs))]
    while front and (most is None or len(out) <= most):
        candidates: dict[bytes, tuple[float, tuple[int, ...], Bools]] = {}
        for value, columns, here in front:
            inside = answers[here].astype(float)
            counts = weights[:, here] @ inside
            sums = (weights[:, here] * losses[here]) @ inside
            means = sums / np.maximum(counts, 1)
            if errors:
                squares = (weights[:, here] * losses[here] ** 2) @ inside / np.maximum(counts, 1)
                means += errors * np.sqrt(np.maximum(squares - means**2, 0) / np.maximum(counts, 1))
            means = np.where((counts >= least).all(axis=0), means.mean(axis=0), np.inf)
            order = np.lexsort((-counts.sum(axis=0), _rounded(means)))
            for column in map(int, order[:BEAM]):
                if means[column] < value - GAIN:
                    followers = here & answers[:, column]
                    candidates.setdefault(followers.tobytes(), (float(means[column]), (*columns, column), followers))
        front = sorted(candidates.values(), key=lambda one: (float(_rounded(one[0])), -int(one[2].sum()), one[1]))[
            :BEAM
        ]
        if not front or front[0][0] >= best - GAIN:
            break
        best = front[0][0]
        out.append(front[0][1])
    return out


def _rounded(loss: Floats | float) -> Floats:
    return np.floor(np.asarray(loss) / NOTHING)


FOLDS, REPEATS = 10, 4
MOST = 5  # rules
FEWEST = 30  # samples
ERRORS = 0.5  # standard errors added to the mean of few followers
MARGIN = 1.25  # the least difference between samples, over the largest one of up to 999 by chance
FEWEST_HELD = 10  # held-out followers; fewer do not decide
SURE = 3  # standard errors by which the held-out followers must be faster than all samples


@dataclass(frozen=True, slots=True)
class FastRule:
    """A rule. `cost`: of breaking it alone, relative to the followers, by `broken` held-out samples (NaN: none).
    `kinds`: of the ops that it is about (`dagc.learn.kinds`), "" where unknown."""

    rule: Rule
    cost: float
    broken: int
    kinds: tuple[str, str] = ("", "")

    @property
    def weight(self) -> float:
        """How much it counts among rules of which not all can be followed."""
        return 1 + self.cost if self.cost > 0 else 1.0


@dataclass(frozen=True, slots=True)
class FastEnd:
    """Rules for the fast end, those first that cost most to break; none: `rules` is empty, and `followers` are all.

    samples    measured ones, which taught the rules
    best       their fastest value
    followers  how many of them follow the rules
    fastest    value of the fastest follower
    slowest    of held-out followers, over `best`, minus 1
    stated     what 95 % of others are expected to be within, over `best`, minus 1
    typical    median of held-out followers, over `best`, minus 1
    held_out   samples that were followers when they were held out
    spread     95th percentile of all samples, over `best`, minus 1: what ignoring the rules may cost
    """

    rules: tuple[FastRule, ...]
    samples: int
    best: float
    followers: int
    fastest: float
    slowest: float
    stated: float
    typical: float
    held_out: int
    spread: float

    @property
    def plain(self) -> tuple[Rule, ...]:
        return tuple(one.rule for one in self.rules)

    @property
    def limit(self) -> float:
        """The slowest value that is stated."""
        return self.best * (1 + self.stated)


def fast_end(samples: Iterable[Example], best: Example | None = None) -> FastEnd | None:
    """The rules of measured samples, in any order; equal samples give an equal result. None for fewer than FEWEST.

    `best`: with the value that is stated of it, which others are compared with: the least of many noisy values is too
    low. None: the least.
    """
    measured = in_order([s for s in samples if s.measurements])
    if len(measured) < FEWEST:
        return None
    found = _fast_end(measured)
    return found if best is None else _compared_with(found, best)


def _compared_with(fast: FastEnd, best: Example) -> FastEnd:
    """Relative to this value of the best. No follower is said to be faster than it."""
    follows = Samples.of([best]).follow(fast.plain)[0]
    ratio = fast.best / best.value
    relative = {name: (1 + getattr(fast, name)) * ratio - 1 for name in ("slowest", "stated", "typical", "spread")}
    fastest = best.value if follows else max(best.value, fast.fastest)
    return replace(fast, best=best.value, fastest=fastest, **relative)


def _fast_end(measured: Sequence[Example]) -> FastEnd:
    table = Samples.of(measured)
    features, answers = table.features()
    times = np.array([s.value for s in measured])
    held = _held_out(times, both_ways(answers)) if _differ(measured, times, answers) else None
    size = held.size if held is not None else 0
    if held is None or not size:
        slowest, spread = float(times.max() / times.min() - 1), float(np.quantile(times, 0.95) / times.min() - 1)
        typical = float(np.median(times) / times.min() - 1)
        best = float(times.min())
        return FastEnd((), len(times), best, len(times), best, slowest, slowest, typical, 0, spread)
    columns = _best(times, both_ways(answers))[: size + 1][-1]
    return _stated(table, times, [rule_of(c, features) for c in columns], columns, held)


def _differ(measured: Sequence[Example], times: Floats, answers: Bools) -> bool:
    """Whether features distinguish fast from slow samples far better than chance: no share of shifts that reach the
    difference says so, since there are at most 999, and as few as two for each sample."""
    order = np.argsort(times, kind="stable")
    evidence = Evidence.of([measured[k] for k in order], answers[order])
    return bool(answers.shape[1]) and evidence.margin(times[order]) >= MARGIN


def _best(times: Floats, answers: Bools) -> list[tuple[int, ...]]:
    return conjunctions(np.log(times / times.min()), answers, [np.ones(len(times), dtype=bool)], MOST, ERRORS)


@dataclass(frozen=True, slots=True)
class _Fold:
    """A part of the samples that was held out, and the conjunctions of 0, 1, 2, ... rules that the others gave."""

    out: Bools
    found: list[tuple[int, ...]]

    def of(self, size: int) -> tuple[int, ...]:
        return self.found[min(size, len(self.found) - 1)]


@dataclass(frozen=True, slots=True)
class _Held:
    """The folds, and the number of rules that they chose."""

    folds: list[_Fold]
    answers: Bools
    size: int

    def followers(self, size: int) -> list[Bools]:
        """The held-out followers of each fold."""
        return [fold.out & followers_of(fold.of(size), self.answers) for fold in self.folds]


def _held_out(times: Floats, answers: Bools) -> _Held:
    random, folds = np.random.default_rng(0), []
    for _ in range(REPEATS):
        fold = random.permutation(len(times)) % FOLDS
        folds += [_Fold(fold == k, _best(times[fold != k], answers[fold != k])) for k in range(FOLDS)]
    held, logs = _Held(folds, answers, 0), np.log(times)
    means, errors = [], []
    for size in range(MOST + 1):
        here = np.concatenate([logs[mine] for mine in held.followers(size)])
        enough = len(here) >= FEWEST_HELD
        means.append(float(here.mean()) if enough else math.inf)
        errors.append(float(here.std()) / math.sqrt(len(here) / REPEATS) if enough else 0.0)
    least = int(np.argmin(means))
    size = next(k for k in range(MOST + 1) if means[k] <= means[least] + errors[least])
    return _Held(folds, answers, size if means[size] + SURE * errors[size] < means[0] else 0)


def _stated(table: Samples, times: Floats, rules: Sequence[Rule], columns: Sequence[int], held: _Held) -> FastEnd:
    best = float(times.min())
    mine = held.followers(held.size)
    pooled = np.concatenate([times[here] for here in mine])
    followers = followers_of(columns, held.answers)
    kept = Implications(table).merge(rules)
    costs = {
        rule: _cost(times, column, held, float(np.median(pooled))) for rule, column in zip(rules, columns, strict=True)
    }
    # What `merge` has joined from several rules has the cost of the last of them that the others do not imply.
    stated = [FastRule(rule, *costs.get(rule, (math.nan, 0)), kinds_in(rule.feature, table.graphs)) for rule in kept]
    return FastEnd(
        rules=tuple(sorted(stated, key=lambda one: -one.cost if one.broken else math.inf)),
        samples=len(times), best=best, followers=int(followers.sum()), fastest=float(times[followers].min()),
        slowest=float(pooled.max() / best - 1), stated=_exceeded(times, held) / best - 1,
        typical=float(np.median(pooled) / best - 1),
        held_out=int(np.logical_or.reduce(mine).sum()), spread=float(np.quantile(times, 0.95) / best - 1),
    )  # fmt: skip


def _exceeded(times: Floats, held: _Held) -> float:
    """The value that is stated: of the slowest held-out follower, or one that fewer of other followers exceed."""
    out: Bools = np.logical_or.reduce(held.followers(held.size))
    slowest = times[out].max()
    for size in range(held.size, -1, -1):
        if out.sum() >= ENOUGH:
            break
        out |= np.logical_or.reduce(held.followers(size))
    return float(max(slowest, exceeded(times[out].tolist())))


def _cost(times: Floats, column: int, held: _Held, usual: float) -> tuple[float, int]:
    """(cost, samples) of breaking the rule of a column, in the folds that have it."""
    broken: list[float] = []
    for fold in held.folds:
        columns = fold.of(held.size)
        if column in columns:
            others = followers_of([c for c in columns if c != column], held.answers)
            broken += times[fold.out & others & ~held.answers[:, column]].tolist()
    return (median(broken) / usual - 1, len(broken)) if broken else (math.nan, 0)
