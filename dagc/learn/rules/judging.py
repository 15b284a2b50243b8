"""How far rules can be trusted: their accuracy, their consistency, and estimates of what was not measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.ir.traversal import traversal_text
from dagc.learn.rules.features import Samples
from dagc.learn.rules.labels import FEWEST_OF_ONE, noise_of
from dagc.learn.rules.tree import LearnedRules
from dagc.learn.rules.types import Classes, Rule, RuleSet, Sample

if TYPE_CHECKING:
    from dagc.learn.rules.types import Bools, Floats


# ---- accuracy ----
# How well rules from a part of a space classify all of it (Table V of the Tenzing paper).
#
# The classes of the part have ranges, from their fastest to their slowest sample. The tree classifies every
# implementation of the whole space; accuracy is the share whose time lies in the range of the class that it is given.
#
# Few wide classes make that easy. So beside it stand: the number of classes, their widths against the noise, and
# `chance`, the accuracy of labels drawn at random, as many of each class; and `constant`, that of the same class for
# all.


@dataclass(frozen=True, slots=True)
class ClassAccuracy:
    """One class. `given` implementations of the whole space were classified as it; `inside` of them lie in its range.

    `width` is relative (see PerformanceClass.width), `widths` the same in noise floors (NaN: unknown).
    """

    number: int
    classified: int
    inside: int
    width: float
    widths: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of the `implementations` of the whole space, from 0 to 1; `learned_from` so many that were measured.

    share        within the range of the class given (Table V)
    chance       the same for random labels of the same sizes, on average
    constant     the same for one class given to all, that with which it is highest
    tolerant     within that range widened by the noise on both sides
    by_boundary  on the right side of the boundaries of the class given: as if the ranges met there
    """

    implementations: int
    learned_from: int
    share: float
    chance: float
    constant: float
    tolerant: float
    by_boundary: float
    classes: tuple[ClassAccuracy, ...]


def accuracy(learned: LearnedRules, whole: Samples, values: Sequence[float]) -> Accuracy:
    """`whole` are all implementations, `values` those measured of them. ValueError without any."""
    import numpy as np

    if not len(whole):
        raise ValueError("nothing to classify")
    times = np.asarray(values, dtype=float)
    predicted = np.array([learned.tree.nodes[leaf].number for leaf in learned.leaves(whole)])
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
    return Accuracy(
        len(times), learned.measured, share(in_range), chance, constant, share(near), share(between), each
    )  # fmt: skip


# ---- consistency ----
# Rule sets against a full exploration (Tenzing, section V, Tables VI to VIII): consistent, over- or underconstrained.
#
# The paper compares texts. Texts differ where the implementations that they allow do not, so here the implementations
# are compared. A rule set speaks for a class; *meant* are the classes of the full exploration whose median lies within
# the boundaries of that class (or, where none does, the one that its median lies in). Of all implementations of the
# full exploration, the set's *followers* are those that every rule of it holds for.
#
# consistent        99 % of the followers lie in the range of the meant classes, noise on both sides allowed for
# overconstrained   consistent, and still so without some of the rules: those are extraneous, and harmless
# underconstrained  too many followers lie elsewhere; missing are the rules of the canonical rule set (of the meant
#                   classes, with the most followers in common) that do not hold for all followers
# empty             no implementation follows it

LEAST = 0.99


class Verdict(Enum):
    CONSISTENT = "consistent"
    OVERCONSTRAINED = "overconstrained"
    UNDERCONSTRAINED = "underconstrained"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class CheckedRuleSet:
    """A rule set, judged. `share` of its `followers` lie in the meant classes of the full exploration."""

    rule_set: RuleSet
    verdict: Verdict
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
    import numpy as np

    meant = meant_classes(rule_set.number, learned.classes, full.classes)
    noise = 0.0 if np.isnan(full.classes.noise) else full.classes.noise
    low = full.classes.classes[meant[0]].fastest * (1 - noise)
    high = full.classes.classes[meant[-1]].slowest * (1 + noise)
    inside: Bools = (np.array(times) >= low) & (np.array(times) <= high)
    holds = {rule: whole.ask(rule.feature) == rule.truth for rule in rule_set.rules}

    def followers(rules: Sequence[Rule]) -> Bools:
        out: Bools = np.logical_and.reduce([holds[r] for r in rules]) if rules else np.ones(len(times), dtype=bool)
        return out

    here = followers(rule_set.rules)
    if not here.any():
        return CheckedRuleSet(rule_set, Verdict.EMPTY, meant, 0, 0.0, (), ())
    share = float(inside[here].mean())
    extraneous: list[Rule] = []
    missing: tuple[Rule, ...] = ()
    if share < LEAST:
        verdict, missing = Verdict.UNDERCONSTRAINED, _missing(here, meant, full, whole)
    else:
        remaining = list(rule_set.rules)
        for rule in reversed(rule_set.rules):  # the last were added last: the most special
            rest = [r for r in remaining if r != rule]
            if inside[followers(rest)].mean() >= LEAST:
                remaining = rest
                extraneous.insert(0, rule)
        verdict = Verdict.OVERCONSTRAINED if extraneous else Verdict.CONSISTENT
    return CheckedRuleSet(rule_set, verdict, meant, int(here.sum()), share, tuple(extraneous), missing)


def meant_classes(number: int, classes: Classes, full: Classes) -> tuple[int, ...]:
    """The classes of a full exploration that class `number` of a part stands for, ascending; at least one."""
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
# Rules that are learned from a few single measurements suffer from two things: outliers, which the tree takes for slow
# implementations and separates, and gaps, where it must guess. A regression forest over the features of rules and the
# simulated time (whose costs are fitted to the measurements) knows more of both than the tree does: it weighs many
# neighbours of each implementation. So the tree may learn from its estimates.
#
# A measurement that its neighbours contradict counts less: an observation whose residual is r standard deviations has
# the weight (nu + 1) / (nu + r^2) of Student's t distribution, nu = 2, and the forest is grown again. Residuals are
# those of trees that were not grown from the observation (out of bag). Their standard deviation is that of a
# measurement, or 1.48 times the median absolute residual where that is more: where the forest knows little, nothing is
# improbable.
#
# What was measured keeps its time, unless it is improbable: further than five such standard deviations from what is
# expected of it. (Nearer than that, it is more often the forest that is wrong.) Then, as where nothing was measured,
# the time is the expected one and `measurements` is 0. A median of three or more is never improbable: two outliers of
# three are rarer than something that the forest does not know. Expected times are those of a last forest, without
# bootstrap.


# (times of the measured samples, in seconds; their weights) -> simulated times of all samples, the measured ones first.
Simulate: TypeAlias = Callable[["Floats", "Floats"], "Floats"]

FEWEST = 10  # measured: with fewer, hardly anything can be said of the others
TREES = 100
LEAF = 2  # samples at least
SHARE = 0.7  # of the features that are tried for each split
ROUNDS = 2  # of weights, before the last forest
DEGREES = 2  # of freedom of Student's t distribution
IMPROBABLE = 5  # standard deviations


@dataclass(frozen=True, slots=True)
class Estimates:
    """What `estimate` found.

    samples  all: measured ones with their times, those with estimated times with `measurements` 0
    error    median of how far, relative, measured times are from what trees that have not seen them expect
    spread   median of how far they are from the median of them all: the error without any knowledge
    """

    samples: tuple[Sample, ...]
    error: float
    spread: float

    @property
    def weak(self) -> bool:
        """Do they know little?"""
        return self.error > self.spread / 2


def in_order(samples: Sequence[Sample]) -> list[Sample]:
    """In an order that does not depend on times, nor on that in which they come."""
    return sorted(samples, key=lambda s: (s.configuration.text, traversal_text(s.traversal, s.graph)))


def estimate(
    measured: Sequence[Sample], others: Sequence[Sample], simulate: Simulate, noise: float = math.nan
) -> Estimates:
    """All of `measured`, then all of `others`, with times as described above; the times of `others` are not looked at.

    `noise` is the relative standard deviation of a single measurement (NaN: unknown). The same samples in the same
    order give the same times (`in_order`). ValueError with fewer than FEWEST measured samples.
    """
    import numpy as np

    if len(measured) < FEWEST:
        raise ValueError(f"{len(measured)} samples, at least {FEWEST} are needed")
    everything = (*measured, *others)
    _, answers = Samples.of(everything).features()
    times = np.array([s.value for s in measured])
    logs = np.log(times)  # residuals are relative then: transports differ by an order of magnitude
    floor = np.array([noise_of(noise, s.measurements) for s in measured])
    known, weights = len(measured), np.ones(len(measured))
    for _ in range(ROUNDS):
        table = _table(answers, simulate(times, weights))
        forest = _forest(bootstrap=True).fit(table[:known], logs, sample_weight=weights)
        residuals = logs - forest.oob_prediction_
        # Not known (NaN): what the residuals say.
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
    import numpy as np

    # scikit-learn takes values within 1e-7 of each other as equal, so not in seconds.
    table: Floats = np.column_stack([answers.astype(float), np.log(simulated)])
    return table


def _forest(bootstrap: bool) -> Any:
    """Extremely randomised trees: their splits are drawn at random, so their mean is smooth where they know little."""
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(
        TREES, min_samples_leaf=LEAF, max_features=SHARE, bootstrap=bootstrap, oob_score=bootstrap, random_state=0
    )
