"""The decision tree (Tenzing, section IV-C): CART, its size by Algorithm 1, pruning by cross-validation; and its rules.

The tree of Algorithm 1 is grown until it fits its training samples, so its training error does not apply to other
samples. The samples are therefore divided into ten stratified folds; a tree is grown from nine folds and tested on the
tenth. A tree pruned at a cost of c per leaf is the subtree with the smallest error + c * leaves (Breiman, Friedman,
Olshen, Stone: Classification and Regression Trees, 1984). Of the costs tried, the largest is used whose held-out error
is within one standard error of the smallest: their one-standard-error rule.

The reported error is not the one by which the cost was chosen: the samples of each fold are tested with the cost chosen
by the other nine folds (nested cross-validation).

Errors weight all classes equally, as the training error does. The caller defines which assignments are errors
(`learn`: those that differ by more than the noise).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import TypeAlias

from dagc.base.python import np
from dagc.base.statistics import ENOUGH, exceeded
from dagc.ir.traversal import traversal_text
from dagc.learn.classes import (
    LEVEL,
    PERCENTILE,
    Evidence,
    Outliers,
    Repeats,
    classify_times,
    cut_again,
    noise_of,
    tested,
    with_estimates,
)
from dagc.learn.features import Implications, Samples
from dagc.learn.types import Bools, Classes, Example, Floats, Halves, Ints, Node, Rule, RuleFeature, RuleSet, Tree

# ---- CART with Gini impurity and balanced classes, its size by Algorithm 1 ----

TRIES = 5  # larger sizes tried if one more leaf does not help
CLOSE = 1e-9  # tolerance for equal gains, which are sums of floating-point numbers


@dataclass(slots=True)
class _Leaf:
    """A node under construction. `gain`: decrease of the weighted impurity by its best split, 0: no split.

    number  the class with the largest weight; ties (all classes, in a tree of one leaf) go to the class with the most
            samples, then to the fastest
    error   the weight of all others
    """

    rows: Ints
    weights: Floats  # per class
    depth: int
    number: int
    error: float
    gain: float = 0.0
    feature: int = -1
    children: tuple[int, int] | None = None  # indices: yes, no


class Growth:
    """A tree that grows leaf by leaf. `table` is samples x features, `labels` the class of each sample, from 0."""

    def __init__(self, table: Bools, labels: Ints, classes: int) -> None:
        self.table, self.labels, self.classes = table, labels, classes
        counts = np.bincount(labels, minlength=classes)
        # All classes have equal weight, with sum 1.
        weight = np.divide(1.0, counts * np.count_nonzero(counts), out=np.zeros(classes), where=counts > 0)
        self.weight: Floats = weight[labels]
        self.one_hot: Floats = np.eye(classes)[labels] * weight
        self.nodes = [self._leaf(np.arange(len(labels)), 0)]

    def _leaf(self, rows: Ints, depth: int) -> _Leaf:
        counts = np.bincount(self.labels[rows], minlength=self.classes)
        weights = self.one_hot[rows].sum(axis=0)
        largest = weights.max()
        number = int(np.argmax(np.where(weights >= largest - CLOSE, counts, -1)))
        leaf = _Leaf(rows, weights, depth, number, weights.sum() - largest)
        if np.count_nonzero(leaf.weights) < 2 or not self.table.shape[1]:
            return leaf
        table = self.table[rows]
        yes: Floats = table.T.astype(float) @ self.one_hot[rows]  # features x classes
        # The weighted Gini impurity of a node is W - sum(w^2) / W, so the gain is the increase of sum(w^2) / W.
        after = _purity(yes) + _purity(leaf.weights - yes)
        splits = table.any(axis=0) & ~table.all(axis=0)
        gains = np.where(splits, after - (leaf.weights**2).sum() / leaf.weights.sum(), 0.0)
        best = float(gains.max())
        if best > CLOSE:
            leaf.gain, leaf.feature = best, int(np.argmax(gains >= best - CLOSE))
        return leaf

    def split(self) -> bool:
        """Split the leaf with the largest gain; False if no leaf has a gain."""
        leaves = [node for node in self.nodes if node.children is None and node.gain > 0]
        if not leaves:
            return False
        best = max(node.gain for node in leaves)
        node = next(node for node in leaves if node.gain >= best - CLOSE)
        answers = self.table[node.rows, node.feature]
        for rows in (node.rows[answers], node.rows[~answers]):
            self.nodes.append(self._leaf(rows, node.depth + 1))
        node.children = len(self.nodes) - 2, len(self.nodes) - 1
        return True

    @property
    def error(self) -> float:
        """Share of the weight that is assigned another class."""
        return float(sum(node.error for node in self.nodes if node.children is None))

    @property
    def leaves(self) -> int:
        """The number of leaves of the current tree, without removed nodes."""
        left, count = [0], 0
        while left:
            children = self.nodes[left.pop()].children
            count += children is None
            left += children or ()
        return count

    @property
    def depth(self) -> int:
        return max(node.depth for node in self.nodes)

    def cut(self, size: int) -> None:
        """Remove all but the first `size` nodes."""
        del self.nodes[size:]
        for node in self.nodes:
            if node.children is not None and node.children[0] >= size:
                node.children = None

    def prune(self, wrong: Bools, simplify: float) -> None:
        """Undo splits that correct no sample (by `wrong`: samples x classes), or, per leaf that they add, less than
        `simplify`, a share of the weight."""
        errors, leaves = [0.0] * len(self.nodes), [1] * len(self.nodes)
        for i in range(len(self.nodes) - 1, -1, -1):  # children come after their parents
            node = self.nodes[i]
            errors[i] = float(self.weight[node.rows][wrong[node.rows, node.number]].sum())
            if node.children is None:
                continue
            below = sum(errors[child] for child in node.children)
            more = sum(leaves[child] for child in node.children)
            if errors[i] <= below + simplify * (more - 1) + CLOSE:
                node.children = None
            else:
                errors[i], leaves[i] = below, more

    def classify_rows(self, table: Bools) -> Ints:
        """The class that the current tree assigns to each row of another table with the same features."""
        at = np.zeros(len(table), dtype=np.int64)
        for i, node in enumerate(self.nodes):  # children come after their parents
            if node.children is not None:
                here = at == i
                at[here] = np.where(table[here, node.feature], *node.children)
        return np.array([node.number for node in self.nodes])[at]

    def tree(self, wrong: Bools, features: Sequence[RuleFeature], search: Sequence[Tried]) -> Tree:
        """The current tree."""
        kept = [0]
        for i in kept:
            kept += self.nodes[i].children or ()
        place = {i: k for k, i in enumerate(kept)}
        nodes, error = [], 0.0
        for i in kept:
            node = self.nodes[i]
            counts = tuple(int(c) for c in np.bincount(self.labels[node.rows], minlength=self.classes))
            shares = tuple(float(w / node.weights.sum()) for w in node.weights)
            missed = wrong[node.rows, node.number]
            yes, no = (place[child] for child in node.children) if node.children else (-1, -1)
            feature = features[node.feature] if node.children else None
            error += 0.0 if node.children else float(self.weight[node.rows][missed].sum())
            nodes.append(
                Node(feature, yes, no, node.depth, len(node.rows), counts, shares, node.number, int(missed.sum()))
            )
        return Tree(tuple(nodes), error, tuple(search))


Tried: TypeAlias = tuple[int, float, int]  # leaf nodes allowed, error, depth


def _purity(weights: Floats) -> Floats:
    total = weights.sum(axis=1)
    out: Floats = np.divide((weights**2).sum(axis=1), total, out=np.zeros(len(weights)), where=total > 0)
    return out


def others(labels: Ints, classes: int) -> Bools:
    """Whether a class is not that of the sample. Shape (samples, classes)."""
    out: Bools = labels[:, None] != np.arange(classes)
    return out


def grow(table: Bools, labels: Ints, classes: int) -> tuple[Growth, list[Tried]]:
    """The tree of Algorithm 1, not pruned, and the sizes tried.

    Starts with 2 leaves; while one of the next five sizes has a smaller error, continues from the first of them.
    """
    growth = Growth(table, labels, classes)
    sizes = _grow(growth)
    tried = list(islice(sizes, 1))
    chosen = 0
    while True:
        tried += islice(sizes, max(0, chosen + 1 + TRIES - len(tried)))
        error = tried[chosen][0][1]
        ahead = range(chosen + 1, min(chosen + 1 + TRIES, len(tried)))
        better = next((i for i in ahead if tried[i][0][1] < error - CLOSE), None)
        if better is None:
            break
        chosen = better
    growth.cut(tried[chosen][1])
    return growth, [one for one, _ in tried]


def _grow(growth: Growth) -> Iterator[tuple[Tried, int]]:
    """((leaves allowed, error, depth), nodes) for 2, 3, ... leaves, until no leaf can be split."""
    leaves, grown = 2, growth.split()
    yield (leaves, growth.error, growth.depth), len(growth.nodes)
    while grown and growth.split():
        leaves += 1
        yield (leaves, growth.error, growth.depth), len(growth.nodes)


def classify(tree: Tree, answers: dict[RuleFeature, Bools], rows: int) -> Ints:
    """The leaf (index of its node) of each of `rows` samples; `answers` has every feature of the tree."""
    at = np.zeros(rows, dtype=np.int64)
    for i, node in enumerate(tree.nodes):  # children come after their parents
        if node.feature is not None:
            here = at == i
            at[here] = np.where(answers[node.feature][here], node.yes, node.no)
    return at


# ---- pruning by cross-validation ----

FOLDS = 10
SURE = 1.64  # standard errors: one-sided 95 % of a normal distribution
COSTS = (0.0, *(2.0**-k for k in range(12, 0, -1)))  # of a leaf, as shares of the weight of all samples


@dataclass(frozen=True, slots=True)
class TreeError:
    """The error of trees on held-out samples.

    cost        per leaf, by all folds: a split is kept only if it lowers the error by more for each leaf it adds
    error       held-out error of trees pruned at this cost, from 0 to 1, with all classes weighted equally
    deviation   its standard error
    one_answer  the error of one class for all samples
    folds       number of folds
    gain        share of held-out samples that such trees answer rightly, minus that of the best one class for all
    uncertain   its standard error
    given       the class of each sample by such a tree when the sample was held out; -1 if it is not judged
    """

    cost: float
    error: float
    deviation: float
    one_answer: float
    folds: int
    gain: float
    uncertain: float
    given: tuple[int, ...]

    @property
    def helps(self) -> bool:
        """Whether the tree is better than one class for all, with 95 % confidence.

        By the error, and by samples of equal weight: a tree that finds a rare class may put too much into it.
        """
        return self.error + SURE * self.deviation < self.one_answer and self.gain > SURE * self.uncertain


def held_out(
    table: Bools, labels: Ints, wrong: Bools, judged: Bools, costs: Sequence[float] = COSTS, folds: int = FOLDS
) -> TreeError | None:
    """The cost per leaf for pruning, and its error on held-out samples.

    `table`: shape (samples, features); `wrong`: shape (samples, classes); `judged`: which samples count in the error
    (the times of the others are estimated). The order of the samples must be unrelated to their measurements; equal
    input gives equal output. None with fewer than two judged samples, or only one class.
    """
    classes = wrong.shape[1]
    folds = min(folds, int(judged.sum()))
    if folds < 2 or classes < 2:
        return None
    fold = _fold(labels, judged, folds)
    given = np.zeros((len(costs), len(labels)), dtype=np.int64)
    for number in range(folds):
        test = fold == number
        if not test.any():
            continue
        growth, _ = grow(table[~test], labels[~test], classes)
        for place, cost in enumerate(costs):  # ascending: each tree is a subtree of the one before it
            growth.prune(wrong[~test], cost)
            given[place, test] = growth.classify_rows(table[test])
    missed: Bools = wrong[np.arange(len(labels)), given]
    answers = np.full(len(labels), -1, dtype=np.int64)
    for number in range(folds):
        test = judged & (fold == number)
        others = judged & (fold != number)
        answers[test] = given[_choose(missed[:, others], labels[others]), test]
    answered: Bools = wrong[judged, answers[judged]][None]
    errors, deviations = _errors(answered, labels[judged])
    single, _ = _errors(wrong[judged].T, labels[judged])
    chosen = _choose(missed[:, judged], labels[judged])
    constant = wrong[judged, int(wrong[judged].sum(axis=0).argmin())]
    gains = constant.astype(float) - answered[0]
    return TreeError(
        costs[chosen], float(errors[0]), float(deviations[0]), float(single.min()), folds, float(gains.mean()),
        float(gains.std() / math.sqrt(len(gains))), tuple(map(int, answers)),
    )  # fmt: skip


def _choose(missed: Bools, labels: Ints) -> int:
    """The index of the cost by the one-standard-error rule. `missed`: errors, shape (costs, samples)."""
    errors, deviations = _errors(missed, labels)
    least = int(np.argmin(errors))
    return int(np.flatnonzero(errors <= errors[least] + deviations[least])[-1])


def _fold(labels: Ints, judged: Bools, folds: int) -> Ints:
    """The fold of each sample. Samples of each class are assigned in turn, continuing after those of the last class.

    Judged samples come first, so that every fold has some.
    """
    fold = np.empty(len(labels), dtype=np.int64)
    fold[np.lexsort((labels, ~judged))] = np.arange(len(labels)) % folds
    return fold


def _errors(missed: Bools, labels: Ints) -> tuple[Floats, Floats]:
    """For each row of `missed`, the mean over the classes of the share of errors, and its standard error."""
    shares = np.array([missed[:, labels == k].mean(axis=1) for k in np.unique(labels)])
    counts = np.array([(labels == k).sum() for k in np.unique(labels)])
    variances = shares * (1 - shares) / counts[:, None]
    errors: Floats = shares.mean(axis=0)
    deviations: Floats = np.sqrt(variances.sum(axis=0)) / len(counts)
    return errors, deviations


# ---- from samples to rules ----


@dataclass(frozen=True, slots=True)
class LearnedRules:
    """Rules learned from samples.

    samples     fastest first (ties by their texts)
    labels      the class of each sample, from its time
    features    all features that distinguish samples, in canonical order; the tree uses some of them
    rule_sets   of the fastest class first; in a class, those with the most samples first
    noise       relative standard deviation of a single measurement, NaN: unknown
    held_out    the held-out error of such trees; None: not requested, or one class
    full_leaves leaves of the tree before pruning at the cost in `held_out`
    halves      how rules of one half of the samples do on the other half; None: not requested, or too few samples
    limits      per class, the value that one in 20 others to which the tree gives it is expected to exceed; empty:
                unknown
    """

    samples: tuple[Example, ...]
    classes: Classes
    labels: tuple[int, ...]
    features: tuple[RuleFeature, ...]
    tree: Tree
    rule_sets: tuple[RuleSet, ...]
    noise: float
    held_out: TreeError | None = None
    full_leaves: int = 1
    halves: Halves | None = None
    limits: tuple[float, ...] = ()

    @property
    def measured(self) -> int:
        """The number of measured samples; the times of the others are estimated."""
        return sum(s.measurements > 0 for s in self.samples)

    def leaves(self, samples: Samples) -> list[int]:
        """The leaf of the tree (index of its node) of each sample."""
        used = dict.fromkeys(node.feature for node in self.tree.nodes if node.feature is not None)
        answers = {feature: samples.ask(feature) for feature in used}
        return [int(leaf) for leaf in classify(self.tree, answers, len(samples))]

    def classify(self, samples: Samples) -> list[int]:
        """The class, from 0 for the fastest, that the tree assigns to each sample. Their times are ignored."""
        return [self.tree.nodes[leaf].number for leaf in self.leaves(samples)]

    def of_class(self, number: int) -> tuple[RuleSet, ...]:
        """The rule sets of a class, those with the most samples first."""
        return tuple(rule_set for rule_set in self.rule_sets if rule_set.number == number)

    def satisfied(self, sample: Example) -> RuleSet:
        """The rule set that an implementation follows: exactly one."""
        leaf = self.leaves(Samples.of([sample]))[0]
        return next(rule_set for rule_set in self.rule_sets if rule_set.leaf == leaf)


def learn(
    samples: Iterable[Example],
    noise: float = math.nan,
    *,
    all_classes: bool = False,
    cost: float | None = None,
    outliers: Outliers | None = None,
    judge: bool = True,
    level: float = LEVEL,
) -> LearnedRules:
    """Learn rules that distinguish fast from slow samples (in any order). Raises ValueError without samples.

    `noise`: relative standard deviation of a single measurement; medians of several have less. Class boundaries below
    the noise of the times are not drawn, and the tree does not separate samples that only noise may have put on the two
    sides of a boundary: a class is wrong for a sample only if its time is further than the noise from the range of that
    class. NaN (unknown): every boundary is drawn, and every other class is wrong.
    `outliers`: the outliers to expect (None: assumed); classes that may be outliers are not drawn.
    `all_classes`: every boundary is drawn, as in the paper. Otherwise a fastest class with several configurations is
    divided again.
    `cost`: the decrease of the error that justifies a leaf (0.002 gives a readable tree). Default: by cross-validation,
    and no rules if the tree is no better than one class for all; with `all_classes` 0, as in the paper.
    `judge` False: the held-out error, which takes most of the time, is not computed; `cost` is 0 by default.
    Estimated times (`measurements` 0) are used for the tree, but not for boundaries.
    `level`: the probability of two or more classes if all implementations are equally fast. Boundaries that chance
    explains are not drawn (dagc.learn.classes); 1: not tested, as with `all_classes`.
    """
    drawn = _drawn(samples, noise, all_classes, outliers, level)
    chosen, table, features, answers = drawn.samples, drawn.table, drawn.features, drawn.answers
    classes, labels = _labelled(chosen, drawn.measured, drawn.classes)
    known = not math.isnan(classes.noise)
    wrong = _wrong(labels, chosen, classes) if known else others(labels, len(classes.classes))
    costs = COSTS if cost is None and not all_classes else (cost or 0.0,)
    timed = np.array([s.measurements > 0 for s in chosen])
    held = held_out(answers, labels, wrong, timed, costs) if judge else None
    growth, tried = grow(answers, labels, len(classes.classes))
    if known:
        growth.prune(wrong, 0.0)
    leaves = growth.leaves
    if least := _cost(held, costs):
        growth.prune(wrong, least)
    tree = growth.tree(wrong, features, tried)
    rule_sets = _rule_sets(tree, Implications(table))
    limits = _limits(held, chosen, classes) if held is not None else ()
    return LearnedRules(
        chosen, classes, tuple(map(int, labels)), features, tree, rule_sets, noise, held, leaves, limits=limits
    )


def classes_of(samples: Iterable[Example], noise: float = math.nan, outliers: Outliers | None = None) -> Classes:
    """The classes of `learn`, without a tree. Raises ValueError without samples."""
    return _drawn(samples, noise, False, outliers, LEVEL).classes


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Samples, fastest first; the measured ones of them; all as a table; and the classes of the measured ones."""

    samples: tuple[Example, ...]
    measured: tuple[Example, ...]
    table: Samples
    features: tuple[RuleFeature, ...]
    answers: Bools
    classes: Classes


def _drawn(
    samples: Iterable[Example],
    noise: float,
    all_classes: bool,
    outliers: Outliers | None,
    level: float,
) -> _Drawn:
    chosen = _sorted(samples)
    if not chosen:
        raise ValueError("no samples")
    measured = tuple(s for s in chosen if s.measurements) or chosen
    floor = math.nan if all_classes else noise_of(noise, median(s.measurements for s in measured))
    repeats = Repeats(tuple(s.measurements for s in measured), outliers or Outliers((), noise))
    classes = classify_times([s.value for s in measured], floor, PERCENTILE, repeats)
    if not all_classes:
        classes = cut_again(classes, [s.configuration for s in measured], PERCENTILE, repeats)
    table = Samples.of(chosen)
    features, answers = table.features()
    if not all_classes and level < 1:
        timed = np.array([s.measurements > 0 or len(measured) == len(chosen) for s in chosen])
        classes = tested(classes, Evidence.of(measured, answers[timed]), level)
    return _Drawn(chosen, measured, table, features, answers, classes)


def _sorted(samples: Iterable[Example]) -> tuple[Example, ...]:
    def key(s: Example) -> tuple[float, str, str]:
        return s.value, s.configuration.text, traversal_text(s.traversal, s.graph)

    return tuple(sorted(samples, key=key))


def _cost(held: TreeError | None, costs: Sequence[float]) -> float:
    """The cost per leaf: infinite if, of several costs, none gives a tree better than one class for all."""
    if held is None:
        return costs[0]
    return math.inf if len(costs) > 1 and not held.helps else held.cost


def _labelled(chosen: Sequence[Example], measured: Sequence[Example], classes: Classes) -> tuple[Classes, Ints]:
    """(the classes of all samples, the class of each); `measured`: the samples that gave the boundaries."""
    if len(measured) == len(chosen):
        return classes, np.repeat(np.arange(len(classes.classes)), [c.count for c in classes.classes])
    times = [s.value for s in chosen]
    return with_estimates(classes, times), np.array([classes.of(t) for t in times])


def _wrong(labels: Ints, samples: Sequence[Example], classes: Classes) -> Bools:
    """Whether a class is wrong for a sample by more than the noise. Shape (samples, classes)."""
    times = np.array([s.value for s in samples])[:, None]
    fastest = np.array([c.fastest for c in classes.classes]) * (1 - classes.noise)
    slowest = np.array([c.slowest for c in classes.classes]) * (1 + classes.noise)
    return others(labels, len(classes.classes)) & ((times < fastest) | (times > slowest))


def _limits(held: TreeError, samples: Sequence[Example], classes: Classes) -> tuple[float, ...]:
    """What `LearnedRules.limits` states: by the samples that were given the class when they were held out; if these are
    few, also by those that were given the next slower classes, then faster ones."""
    given: list[list[float]] = [[] for _ in classes.classes]
    for sample, number in zip(samples, held.given, strict=True):
        if number >= 0:
            given[number].append(sample.value)
    out = []
    for c, mine in zip(classes.classes, given, strict=True):
        pooled: list[float] = []
        for others in (*given[c.number :], *given[: c.number][::-1]):
            pooled += others if len(pooled) < ENOUGH else []
        out.append(max([c.slowest, *(exceeded(values) for values in (mine, pooled) if values)]))
    return tuple(out)


def _rule_sets(tree: Tree, imply: Implications) -> tuple[RuleSet, ...]:
    out = []
    for leaf, path in paths(tree):
        node = tree.nodes[leaf]
        rules = imply.merge(path)
        out.append(RuleSet(node.number, rules, leaf, node.samples, node.counts, node.shares, node.wrong))
    return tuple(sorted(out, key=lambda r: (r.number, -r.samples, r.leaf)))


def paths(tree: Tree) -> Sequence[tuple[int, tuple[Rule, ...]]]:
    """(leaf, rules from the root) of every leaf, `yes` first."""
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
