"""From samples to rules: classes, features, tree, rule sets (seed section IV)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from dagc.ir.traversal import traversal_text
from dagc.learn.rules.features import Samples
from dagc.learn.rules.imply import Implications
from dagc.learn.rules.labels import PERCENTILE, Outliers, Repeats, classify_times, cut_again, noise_of, with_estimates
from dagc.learn.rules.tree import COSTS, HeldOut, classify, grow, held_out, others
from dagc.learn.rules.types import Classes, Feature, Rule, RuleSet, Sample, Tree

if TYPE_CHECKING:
    from dagc.learn.rules.types import Bools, Ints


@dataclass(frozen=True, slots=True)
class LearnedRules:
    """What was learned from some samples.

    samples     those, fastest first (ties by their texts)
    labels      the class of each of them, from its time
    features    all that tell them apart, in canonical order; the tree uses some of them
    rule_sets   of the fastest class first; of a class, those with the most samples first
    noise       relative standard deviation of a single measurement, NaN: unknown
    held_out    how wrong such trees are about samples that they were not grown from; None: not asked, or one class
    full_leaves leaves of the tree before it was pruned at the cost that `held_out` found
    """

    samples: tuple[Sample, ...]
    classes: Classes
    labels: tuple[int, ...]
    features: tuple[Feature, ...]
    tree: Tree
    rule_sets: tuple[RuleSet, ...]
    noise: float
    held_out: HeldOut | None = None
    full_leaves: int = 1

    @property
    def measured(self) -> int:
        """How many samples were measured; the times of the others are estimated."""
        return sum(s.measurements > 0 for s in self.samples)

    def leaves(self, samples: Samples) -> list[int]:
        """The leaf of the tree (index of its node) that each sample arrives at."""
        used = dict.fromkeys(node.feature for node in self.tree.nodes if node.feature is not None)
        answers = {feature: samples.ask(feature) for feature in used}
        return [int(leaf) for leaf in classify(self.tree, answers, len(samples))]

    def classify(self, *samples: Sample) -> list[int]:
        """The class, from 0 for the fastest, that the tree gives to each sample. Their times are not looked at."""
        return [self.tree.nodes[leaf].number for leaf in self.leaves(Samples.of(samples))]

    def of_class(self, number: int) -> tuple[RuleSet, ...]:
        """The rule sets of a class, those with the most samples first."""
        return tuple(found for found in self.rule_sets if found.number == number)

    def satisfied(self, sample: Sample) -> RuleSet:
        """The rule set that an implementation follows: exactly one."""
        leaf = self.leaves(Samples.of([sample]))[0]
        return next(found for found in self.rule_sets if found.leaf == leaf)


def learn(
    samples: Iterable[Sample],
    noise: float = math.nan,
    *,
    all_classes: bool = False,
    percentile: float = PERCENTILE,
    cost: float | None = None,
    outliers: Outliers | None = None,
    judge: bool = True,
) -> LearnedRules:
    """Rules that tell fast from slow samples.

    `noise` is the relative standard deviation of a single measurement; medians of several have less. Class boundaries
    below the noise of the times are not drawn, and the tree does not separate what only the noise may have put on the
    two sides of a boundary: it is wrong to give a sample a class only where its time is further from the range of that
    class than the noise. Where the noise is not known (NaN), every boundary is drawn and every other class is wrong.
    Classes that may be outliers are not drawn either; `outliers` says how many to expect (None: assumed, not counted).
    A fastest class that holds several configurations is cut again. `all_classes`: nothing of this, all as in the seed.
    `cost` is by how much each leaf must lower the error of the tree (0.002 is a readable tree). Default: what
    cross-validation can tell from noise (`dagc.learn.rules.tree`), and no rules at all where the tree is no better on
    samples held out than one answer for all; with `all_classes` 0, as in the seed. `judge` False:
    the error on held-out samples, which takes most of the time, is not found, and `cost` is 0 unless it is given.
    Samples whose times are estimated (`measurements` 0) draw no boundaries: they are of the class between whose
    boundaries their times lie, and the tree learns from them as from the others.
    The order of the samples does not matter. ValueError without samples.
    """
    import numpy as np

    chosen = tuple(
        sorted(samples, key=lambda s: (s.seconds, s.configuration.text, traversal_text(s.traversal, s.graph)))
    )
    if not chosen:
        raise ValueError("no samples")
    measured = tuple(s for s in chosen if s.measurements) or chosen
    floor = math.nan if all_classes else noise_of(noise, median(s.measurements for s in measured))
    repeats = Repeats(tuple(s.measurements for s in measured), outliers or Outliers((), noise))
    classes = classify_times([s.seconds for s in measured], floor, percentile, repeats)
    if not all_classes:
        classes = cut_again(classes, [s.configuration for s in measured], percentile, repeats)
    classes, labels = _labelled(chosen, measured, classes)
    table = Samples.of(chosen)
    features, answers = table.features()
    known = not math.isnan(classes.noise)
    wrong = _wrong(labels, chosen, classes) if known else others(labels, len(classes.classes))
    costs = COSTS if cost is None and not all_classes else (cost or 0.0,)
    timed = np.array([s.measurements > 0 for s in chosen])
    out = held_out(answers, labels, wrong, timed, costs) if judge else None
    growth, tried = grow(answers, labels, len(classes.classes))
    if known:
        growth.prune(wrong, 0.0)
    leaves = growth.leaves
    least = costs[0] if out is None else out.cost
    if out is not None and len(costs) > 1 and not out.helps:
        least = math.inf
    if least:
        growth.prune(wrong, least)
    tree = growth.tree(wrong, features, tried)
    rule_sets = _rule_sets(tree, Implications(table))
    return LearnedRules(chosen, classes, tuple(map(int, labels)), features, tree, rule_sets, noise, out, leaves)


def _labelled(chosen: Sequence[Sample], measured: Sequence[Sample], classes: Classes) -> tuple[Classes, Ints]:
    """(the classes of all samples, the class of each); `measured` are those that have drawn the boundaries."""
    import numpy as np

    if len(measured) == len(chosen):
        return classes, np.repeat(np.arange(len(classes.classes)), [c.count for c in classes.classes])
    times = [s.seconds for s in chosen]
    return with_estimates(classes, times), np.array([classes.of(t) for t in times])


def _wrong(labels: Ints, samples: Sequence[Sample], classes: Classes) -> Bools:
    """samples x classes: is it wrong, by more than the noise, to give this class to this sample?"""
    import numpy as np

    other: Bools = labels[:, None] != np.arange(len(classes.classes))
    times = np.array([s.seconds for s in samples])[:, None]
    fastest = np.array([c.fastest for c in classes.classes]) * (1 - classes.noise)
    slowest = np.array([c.slowest for c in classes.classes]) * (1 + classes.noise)
    return other & ((times < fastest) | (times > slowest))


def _rule_sets(tree: Tree, imply: Implications) -> tuple[RuleSet, ...]:
    out = []
    for leaf, path in paths(tree):
        node = tree.nodes[leaf]
        rules = imply.merge(path)
        out.append(RuleSet(node.number, rules, leaf, node.samples, node.counts, node.shares, node.wrong))
    return tuple(sorted(out, key=lambda r: (r.number, -r.samples, r.leaf)))


def paths(tree: Tree) -> Sequence[tuple[int, tuple[Rule, ...]]]:
    """(leaf, rules from the root to it) of every leaf, `yes` first."""
    out: list[tuple[int, tuple[Rule, ...]]] = []
    stack: list[tuple[int, tuple[Rule, ...]]] = [(0, ())]
    while stack:
        index, rules = stack.pop()
        node = tree.nodes[index]
        if node.feature is None:
            out.append((index, rules))
            continue
        stack.append((node.no, (*rules, Rule(node.feature, False))))
        stack.append((node.yes, (*rules, Rule(node.feature, True))))
    return out
