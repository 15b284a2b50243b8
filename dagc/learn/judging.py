"""Validation of rules: their accuracy, their consistency, and estimates of times that were not measured."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from dagc.base.python import np
from dagc.learn.classes import FEWEST_OF_ONE, Outliers, noise_of
from dagc.learn.features import Samples, in_order
from dagc.learn.tree import LearnedRules, learn
from dagc.learn.types import Bools, Classes, Example, Floats, Halves, Rule, RuleSet

# ---- accuracy ----
# How well rules from a part of a space classify all of it (Table V of the Tenzing paper).
#
# The classes of the part have ranges, from their fastest to their slowest sample. The tree classifies every
# implementation of the whole space; accuracy is the share whose time is in the range of the assigned class.
#
# Few wide classes make that easy. The accuracy is therefore reported with the number of classes, their widths relative
# to the noise, `chance` (the accuracy of random labels with the same class sizes), and `constant` (the accuracy of one
# class for all).


@dataclass(frozen=True, slots=True)
class ClassAccuracy:
    """One class. `given`: number of implementations of the whole space assigned to it; `inside`: of them in its range.

    `width` is relative (see PerformanceClass.width); `widths`: the same in noise floors (NaN: unknown).
    """

    number: int
    classified: int
    inside: int
    width: float
    widths: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of the `implementations` of the whole space, from 0 to 1, for rules from `learned_from` measured ones.

    share        within the range of the assigned class (Table V)
    chance       the mean of the same for random labels with the same class sizes
    constant     the same for one class for all, the best one
    tolerant     within that range widened by the noise on both sides
    by_boundary  between the boundaries of the assigned class: as if the ranges met there
    losses       of those that are assigned to class 1, ascending: how much longer than the best of all they take
    """

    implementations: int
    learned_from: int
    share: float
    chance: float
    constant: float
    tolerant: float
    by_boundary: float
    classes: tuple[ClassAccuracy, ...]
    losses: tuple[float, ...]


def accuracy(learned: LearnedRules, whole: Samples, values: Sequence[float]) -> Accuracy:
    """`whole`: all implementations; `values`: their measured values. Raises ValueError without any."""
    if not len(whole):
        raise ValueError("nothing to classify")
    times = np.asarray(values, dtype=float)
    predicted = np.array(learned.classify(whole))
    classes = learned.classes
    noise = 0.0 if math.isnan(classes.noise) else classes.noise
    in_range: list[Bools] = [(times >= c.fastest) & (times <= c.slowest) for c in classes.classes]
    near = [(times >= c.fastest * (1 - noise)) & (times <= c.slowest * (1 + noise)) for c in classes.classes]
    limits = [-math.inf, *(b.value for b in classes.boundaries), math.inf]
    between = [(times > limits[k]) & (times <= limits[k + 1]) for k in range(len(classes.classes))]
    each = tuple(
        ClassAccuracy(
            c.number,
            int((predicted == k).sum()),
            int((in_range[k] & (predicted == k)).sum()),
            c.width,
            c.width / classes.noise,
        )
        for k, c in enumerate(classes.classes)
    )

    def share(ranges: Sequence[Bools]) -> float:
        return float(sum((ranges[k] & (predicted == k)).sum() for k in range(len(ranges))) / len(times))

    chance = sum(c.classified / len(times) * float(in_range[k].mean()) for k, c in enumerate(each))
    constant = max(float(inside.mean()) for inside in in_range)
    losses = np.sort(times[predicted == 0] / times.min() - 1)
    return Accuracy(
        len(times), learned.measured, share(in_range), chance, constant, share(near), share(between), each,
        tuple(losses.tolist()),
    )  # fmt: skip


# ---- rules on samples that did not make them ----
# The folds of the tree's held-out error share their classes, which all samples have drawn; what is small and fast is
# then a class because these samples are in it. Here a half of the samples draws its own classes.

FEWEST_OF_HALVES = 60
DRAWS = 2
TOLERANCE = 0.01


def halves_of(samples: Sequence[Example], draws: int) -> Iterator[tuple[list[Example], list[Example]]]:
    """Samples in two halves, by lot, to learn from one and judge by the other, and the other way round."""
    for draw in range(draws):
        drawn = random.Random(draw).sample(samples, len(samples))
        one, other = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
        yield one, other
        yield other, one


Teach: TypeAlias = Callable[[Sequence[Example]], LearnedRules]


def in_halves(samples: Iterable[Example], teach: Teach, draws: int = DRAWS) -> Halves | None:
    """Learn rules from one half of the measured samples and judge them by the other, and the other way round.

    `teach`: learns the rules. `draws`: of the halves, by lot; equal samples, in any order, give an equal result. None
    for fewer than FEWEST_OF_HALVES samples.
    """
    measured = in_order([s for s in samples if s.measurements])
    if len(measured) < FEWEST_OF_HALVES:
        return None
    judged = [_of_half(teach(one), other) for one, other in halves_of(measured, draws)]
    kept = [found for found in judged if found is not None]
    losses = sorted(loss for found, _, _ in kept for loss in found.losses)
    slow = sum(1 + loss > limit * (1 + TOLERANCE) for found, limit, _ in kept for loss in found.losses)
    return Halves(
        halves=len(judged),
        without=len(judged) - len(kept),
        accuracy=_mean([found.share for found, _, _ in kept]),
        constant=_mean([found.constant for found, _, _ in kept]),
        chance=_mean([found.chance for found, _, _ in kept]),
        followers=len(losses),
        stated=_mean([stated for _, _, stated in kept]),
        slower=slow / len(losses) if losses else math.nan,
        loss=statistics.median(losses) if losses else math.nan,
        loss_95=far(losses) if losses else math.nan,
        tolerance=TOLERANCE,
    )


def learn_confirmed(samples: Sequence[Example], noise: float, outliers: Outliers | None = None) -> LearnedRules:
    """The rules of the tree with `halves`; none if those of the halves are no better than one class for all.

    As `learn`, of which `noise` and `outliers` are arguments.
    """

    def teach(part: Sequence[Example]) -> LearnedRules:
        return learn(part, noise, outliers=Outliers.of((s.times for s in part), noise))

    halves, learned = in_halves(samples, teach), learn(samples, noise, outliers=outliers)
    if halves is not None and halves.refutes:
        learned = learn(samples, noise, cost=math.inf, outliers=outliers, judge=False)
    return replace(learned, halves=halves)


def _of_half(learned: LearnedRules, test: Sequence[Example]) -> tuple[Accuracy, float, float] | None:
    """The accuracy, and what is stated of followers of class 1, relative to the best of `test` and of the samples that
    taught; None without rules."""
    if learned.tree.leaves == 1:
        return None
    table, times = Samples.of(test), [s.value for s in test]
    limit = learned.limits[0]
    return accuracy(learned, table, times), limit / min(times), limit / learned.samples[0].value - 1


def far(losses: Sequence[float]) -> float:
    """The 95th percentile of losses in ascending order."""
    return losses[int(0.95 * (len(losses) - 1))]


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


# ---- consistency ----
# Rule sets against a full exploration (Tenzing, section V, Tables VI to VIII): consistent, over- or underconstrained.
#
# The paper compares texts. Different texts may allow the same implementations, so here the implementations are
# compared. A rule set belongs to a class; its *meant* classes are those of the full exploration whose median is within
# the boundaries of that class (or, if there is none, the one that contains its median). The *followers* of a rule set
# are the implementations of the full exploration for which all its rules hold.
#
# consistent        99 % of the followers are in the range of the meant classes, widened by the noise on both sides
# overconstrained   consistent, and still so without some of the rules, which are extraneous and harmless
# underconstrained  too many followers are elsewhere; missing are the rules of the canonical rule set (of the meant
#                   classes, with the most followers in common) that do not hold for all followers
# empty             no implementation follows it

LEAST = 0.99


class RuleSetVerdict(Enum):
    CONSISTENT = "consistent"
    OVERCONSTRAINED = "overconstrained"
    UNDERCONSTRAINED = "underconstrained"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class CheckedRuleSet:
    """The verdict on a rule set. `share` of its `followers` are in the meant classes of the full exploration."""

    rule_set: RuleSet
    verdict: RuleSetVerdict
    meant: tuple[int, ...]
    followers: int
    share: float
    extraneous: tuple[Rule, ...]
    missing: tuple[Rule, ...]


def check(learned: LearnedRules, full: LearnedRules) -> tuple[CheckedRuleSet, ...]:
    """Every rule set of `learned` against a full exploration, in the same order."""
    whole = Samples.of(full.samples)
    times = [s.value for s in full.samples]
    return tuple(_check(rule_set, learned, full, whole, times) for rule_set in learned.rule_sets)


def _check(
    rule_set: RuleSet, learned: LearnedRules, full: LearnedRules, whole: Samples, times: Sequence[float]
) -> CheckedRuleSet:
    meant = meant_classes(rule_set.number, learned.classes, full.classes)
    noise = 0.0 if np.isnan(full.classes.noise) else full.classes.noise
    low = full.classes.classes[meant[0]].fastest * (1 - noise)
    high = full.classes.classes[meant[-1]].slowest * (1 + noise)
    inside: Bools = (np.array(times) >= low) & (np.array(times) <= high)
    holds = {rule: whole.ask(rule.feature) == rule.truth for rule in rule_set.rules}

    def followers(rules: Sequence[Rule]) -> Bools:
        return np.logical_and.reduce([holds[r] for r in rules]) if rules else np.ones(len(times), dtype=bool)

    here = followers(rule_set.rules)
    if not here.any():
        return CheckedRuleSet(rule_set, RuleSetVerdict.EMPTY, meant, 0, 0.0, (), ())
    share = float(inside[here].mean())
    extraneous: list[Rule] = []
    missing: tuple[Rule, ...] = ()
    if share < LEAST:
        verdict, missing = RuleSetVerdict.UNDERCONSTRAINED, _missing(here, meant, full, whole)
    else:
        remaining = list(rule_set.rules)
        for rule in reversed(rule_set.rules):  # the last ones are the most specific
            rest = [r for r in remaining if r != rule]
            if inside[followers(rest)].mean() >= LEAST:
                remaining = rest
                extraneous.insert(0, rule)
        verdict = RuleSetVerdict.OVERCONSTRAINED if extraneous else RuleSetVerdict.CONSISTENT
    return CheckedRuleSet(rule_set, verdict, meant, int(here.sum()), share, tuple(extraneous), missing)


def meant_classes(number: int, classes: Classes, full: Classes) -> tuple[int, ...]:
    """The classes of a full exploration that correspond to class `number` of a part, ascending; at least one."""
    numbers = tuple(c.number for c in full.classes if classes.of(c.median) == number)
    return numbers or (full.of(classes.classes[number].median),)


def _missing(here: Bools, meant: Sequence[int], full: LearnedRules, whole: Samples) -> tuple[Rule, ...]:
    candidates = [r for r in full.rule_sets if r.number in meant and r.rules]
    if not candidates:
        return ()
    common = [int((whole.follow(r.rules) & here).sum()) for r in candidates]
    closest = candidates[common.index(max(common))]
    return tuple(r for r in closest.rules if not (whole.ask(r.feature) == r.truth)[here].all())


# ---- estimates ----
# Times of implementations that were not measured, estimated from those that were.
#
# Rules learned from few single measurements have two problems: outliers, which the tree separates as slow
# implementations, and gaps between samples. A regression forest over the features of rules and the simulated time (with
# costs fitted to the measurements) handles both better, since it averages over many neighbours of each implementation.
# The tree may therefore learn from its estimates.
#
# A measurement that its neighbours contradict gets less weight: an observation with a residual of r standard deviations
# has the weight (nu + 1) / (nu + r^2) of Student's t distribution, nu = 2, and the forest is grown again. Residuals are
# out of bag: from trees that were not grown from the observation. Their standard deviation is that of a measurement, or
# 1.48 times the median absolute residual if that is larger: if the forest is inaccurate, nothing is improbable.
#
# A measured sample keeps its time unless it is improbable: more than five such standard deviations from its expected
# time. (Below that, the forest is more often wrong.) An improbable sample, like one that was not measured, has its
# expected time, and `measurements` is 0. A median of three or more is never improbable: two outliers of three are rarer
# than an error of the forest. Expected times are those of a last forest, without bootstrap.


# (times of the measured samples, in seconds; weights) -> simulated times of all samples, the measured ones first.
Simulate: TypeAlias = Callable[["Floats", "Floats"], "Floats"]

FEWEST = 10  # measured samples: fewer are not enough for estimates
TREES = 100
LEAF = 2  # minimal samples of a leaf
SHARE = 0.7  # share of the features tried for each split
ROUNDS = 2  # of reweighting, before the last forest
DEGREES = 2  # degrees of freedom of Student's t distribution
IMPROBABLE = 5  # standard deviations


@dataclass(frozen=True, slots=True)
class Estimates:
    """The result of `estimate`.

    samples  all samples; those with estimated times have `measurements` 0
    error    median relative out-of-bag error of measured times
    spread   median relative deviation of measured times from their median: the error of a constant
    """

    samples: tuple[Example, ...]
    error: float
    spread: float

    @property
    def weak(self) -> bool:
        """Whether the estimates are hardly better than a constant."""
        return self.error > self.spread / 2


def estimate(
    measured: Sequence[Example], others: Sequence[Example], simulate: Simulate, noise: float = math.nan
) -> Estimates:
    """All of `measured`, then all of `others`, with times as described above; the given times of `others` are ignored.

    `noise`: relative standard deviation of a single measurement (NaN: unknown). Equal samples in equal order give equal
    times (`in_order`). Raises ValueError with fewer than FEWEST measured samples.
    """
    if len(measured) < FEWEST:
        raise ValueError(f"{len(measured)} samples, at least {FEWEST} are needed")
    everything = (*measured, *others)
    _, answers = Samples.of(everything).features()
    times = np.array([s.value for s in measured])
    logs = np.log(times)  # for relative residuals: transports differ by an order of magnitude
    floor = np.array([noise_of(noise, s.measurements) for s in measured])
    known, weights = len(measured), np.ones(len(measured))
    for _ in range(ROUNDS):
        table = _table(answers, simulate(times, weights))
        forest = _forest(bootstrap=True).fit(table[:known], logs, sample_weight=weights)
        residuals = logs - forest.oob_prediction_
        # Unknown (NaN): from the residuals.
        deviation = np.fmax(floor, 1.4826 * np.median(abs(residuals)))
        weights = (DEGREES + 1) / (DEGREES + (residuals / deviation) ** 2)
    often = np.array([s.measurements >= FEWEST_OF_ONE for s in measured])
    kept = often | (abs(residuals) <= IMPROBABLE * deviation)
    table = _table(answers, simulate(times, weights))
    expected = np.exp(_forest(bootstrap=False).fit(table[:known], logs, sample_weight=weights).predict(table))
    samples = tuple(
        sample if place < known and kept[place] else replace(sample, value=float(expected[place]), measurements=0)
        for place, sample in enumerate(everything)
    )
    spread = float(np.median(abs(logs - np.median(logs))))
    return Estimates(samples, float(np.median(abs(residuals))), spread)


def _table(answers: Any, simulated: Floats) -> Floats:
    """The features of rules and the logarithm of the simulated time: samples x features."""
    # Not in seconds: scikit-learn treats values within 1e-7 of each other as equal.
    return np.column_stack([answers.astype(float), np.log(simulated)])


def _forest(bootstrap: bool) -> Any:
    """Extremely randomised trees: their splits are random, so their mean is smooth between distant samples."""
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(
        TREES, min_samples_leaf=LEAF, max_features=SHARE, bootstrap=bootstrap, oob_score=bootstrap, random_state=0
    )
