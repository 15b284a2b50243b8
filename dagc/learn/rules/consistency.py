"""Rule sets against a full exploration (seed section V, Tables VI to VIII): consistent, over- or underconstrained.

The seed compares texts. Texts differ where the implementations that they allow do not, so here the implementations are
compared. A rule set speaks for a class; *meant* are the classes of the full exploration whose median lies within the
boundaries of that class (or, where none does, the one that its median lies in). Of all implementations of the full
exploration, the set's *followers* are those that every rule of it holds for.

consistent        99 % of the followers lie in the range of the meant classes, noise on both sides allowed for
overconstrained   consistent, and still so without some of the rules: those are extraneous, and harmless
underconstrained  too many followers lie elsewhere; missing are the rules of the canonical rule set (of the meant
                  classes, with the most followers in common) that do not hold for all followers
empty             no implementation follows it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from dagc.learn.rules.features import Samples
from dagc.learn.rules.learn import LearnedRules
from dagc.learn.rules.types import Classes, Rule, RuleSet

if TYPE_CHECKING:
    from dagc.learn.rules.types import Bools

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
    times = [s.seconds for s in full.samples]
    return tuple(_check(found, learned, full, whole, times) for found in learned.rule_sets)


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
    found = tuple(c.number for c in full.classes if classes.of(c.median) == number)
    return found or (full.of(classes.classes[number].median),)


def _missing(here: Bools, meant: Sequence[int], full: LearnedRules, whole: Samples) -> tuple[Rule, ...]:
    candidates = [r for r in full.rule_sets if r.number in meant and r.rules]
    if not candidates:
        return ()
    common = [int((whole.follow(r.rules) & here).sum()) for r in candidates]
    closest = candidates[common.index(max(common))]
    return tuple(r for r in closest.rules if not (whole.ask(r.feature) == r.truth)[here].all())
