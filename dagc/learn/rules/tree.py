"""The decision tree (Tenzing, section IV-C): CART, its size by Algorithm 1, pruning by cross-validation; and its rules.

The tree of Algorithm 1 is grown until it is right about the samples that it is grown from, and says nothing of how
right it is about others. So the samples are dealt out to ten folds, each with its share of every class; a tree is grown
from nine folds and judged by the tenth. A tree that is pruned at a cost of c per leaf is the subtree with the least
error + c * leaves (Breiman, Friedman, Olshen, Stone: Classification and Regression Trees, 1984). Of the costs tried the
largest is taken whose held-out error is within one standard error of the least: their rule of one standard error.

The error that is reported is not that by which the cost was chosen: the samples of each fold are judged with the cost
that the other nine folds choose.

Errors weigh all classes equally and count what the caller names (`dagc.learn.rules.tree`: by more than the noise),
as the tree's training error does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from dagc.ir.traversal import traversal_text
from dagc.learn.rules.chance import LEVEL, Evidence, tested
from dagc.learn.rules.features import Implications, Samples
from dagc.learn.rules.labels import PERCENTILE, Outliers, Repeats, classify_times, cut_again, noise_of, with_estimates
from dagc.learn.rules.types import Classes, Feature, Node, Rule, RuleSet, Sample, Tree

if TYPE_CHECKING:
    from dagc.learn.rules.types import Bools, Floats, Ints


# ---- CART with Gini impurity and balanced classes, its size by Algorithm 1 ----

TRIES = 5  # larger sizes tried where one leaf more does not help
CLOSE = 1e-9  # gains are sums of floating-point numbers: so close, they are equal


@dataclass(slots=True)
class _Leaf:
    """A node under construction. `gain` is by how much its best split lowers the weighted impurity, 0: no split."""

    rows: Ints
    weights: Floats  # per class
    counts: Ints  # samples per class
    depth: int
    gain: float = 0.0
    feature: int = -1
    children: tuple[int, int] | None = None  # indices: yes, no

    @property
    def number(self) -> int:
        """The class with the largest weight; of equal ones (in a tree of one leaf all) that with the most samples, then
        the fastest."""
        import numpy as np

        return int(np.argmax(np.where(self.weights >= self.weights.max() - CLOSE, self.counts, -1)))


class Growth:
    """A tree that grows leaf by leaf. `table` is samples x features, `labels` the class of each sample, from 0."""

    def __init__(self, table: Bools, labels: Ints, classes: int) -> None:
        import numpy as np

        self.table, self.labels, self.classes = table, labels, classes
        counts = np.bincount(labels, minlength=classes)
        # Every class weighs the same in all, and all together 1.
        weight = np.divide(1.0, counts * np.count_nonzero(counts), out=np.zeros(classes), where=counts > 0)
        self.weight: Floats = weight[labels]
        self.one_hot: Floats = np.eye(classes)[labels] * weight
        self.nodes = [self._leaf(np.arange(len(labels)), 0)]

    def _leaf(self, rows: Ints, depth: int) -> _Leaf:
        import numpy as np

        counts = np.bincount(self.labels[rows], minlength=self.classes)
        leaf = _Leaf(rows, self.one_hot[rows].sum(axis=0), counts, depth)
        if np.count_nonzero(leaf.weights) < 2 or not self.table.shape[1]:
            return leaf
        table = self.table[rows]
        yes: Floats = table.T.astype(float) @ self.one_hot[rows]  # features x classes
        # Weighted Gini impurity of a node is W - sum(w^2) / W, so the gain is the growth of sum(w^2) / W.
        after = _purity(yes) + _purity(leaf.weights - yes)
        splits = table.any(axis=0) & ~table.all(axis=0)
        gains = np.where(splits, after - (leaf.weights**2).sum() / leaf.weights.sum(), 0.0)
        best = float(gains.max())
        if best > CLOSE:
            leaf.gain, leaf.feature = best, int(np.argmax(gains >= best - CLOSE))
        return leaf

    def split(self) -> bool:
        """Split the leaf with the largest gain; False where none has any."""
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
        """Share of the weight that is given another class."""
        return float(sum(n.weights.sum() - n.weights.max() for n in self.nodes if n.children is None))

    @property
    def leaves(self) -> int:
        """How many leaves the tree as it is has; nodes that were taken back do not count."""
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
        """Back to the first `size` nodes."""
        del self.nodes[size:]
        for node in self.nodes:
            if node.children is not None and node.children[0] >= size:
                node.children = None

    def prune(self, wrong: Bools, simplify: float) -> None:
        """Take back splits that make no sample right (by `wrong`: samples x classes), or for each leaf that they add
        less than `simplify`, a share of the weight."""
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
        """The class that the tree as it is gives to each row of another table with the same features."""
        import numpy as np

        at = np.zeros(len(table), dtype=np.int64)
        for i, node in enumerate(self.nodes):  # children come after their parents
            if node.children is not None:
                here = at == i
                at[here] = np.where(table[here, node.feature], *node.children)
        return np.array([node.number for node in self.nodes])[at]

    def tree(self, wrong: Bools, features: Sequence[Feature], search: Sequence[Tried]) -> Tree:
        """The tree as it is."""
        import numpy as np

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
    import numpy as np

    total = weights.sum(axis=1)
    out: Floats = np.divide((weights**2).sum(axis=1), total, out=np.zeros(len(weights)), where=total > 0)
    return out


def train(
    table: Bools, labels: Ints, classes: int, features: Sequence[Feature], wrong: Bools | None = None,
    simplify: float = 0.0,
) -> Tree:  # fmt: skip
    """Algorithm 1: the smallest tree whose error five more leaves do not lower.

    `wrong` (samples x classes, default: every other class): splits that make none of these right are taken back then,
    and those that lower the error by less than `simplify` for each leaf.
    """
    growth, tried = grow(table, labels, classes)
    if wrong is not None or simplify:
        growth.prune(others(labels, classes) if wrong is None else wrong, simplify)
    return growth.tree(others(labels, classes) if wrong is None else wrong, features, tried)


def others(labels: Ints, classes: int) -> Bools:
    """samples x classes: is it another class than that of the sample?"""
    import numpy as np

    out: Bools = labels[:, None] != np.arange(classes)
    return out


def grow(table: Bools, labels: Ints, classes: int) -> tuple[Growth, list[Tried]]:
    """The tree that Algorithm 1 ends with, not pruned, and what it tried.

    Starts with 2 leaves; while one of the next five sizes has a smaller error, it goes on from the first such.
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


def classify(tree: Tree, answers: dict[Feature, Bools], rows: int) -> Ints:
    """The leaf (index of its node) that each of `rows` samples arrives at; `answers` has every feature of the tree."""
    import numpy as np

    at = np.zeros(rows, dtype=np.int64)
    for i, node in enumerate(tree.nodes):  # children come after their parents
        if node.feature is not None:
            here = at == i
            at[here] = np.where(answers[node.feature][here], node.yes, node.no)
    return at


# ---- pruning by cross-validation ----

FOLDS = 10
SURE = 1.64  # standard errors: 95 % of a normal distribution lie below
COSTS = (0.0, *(2.0**-k for k in range(12, 0, -1)))  # of a leaf, as shares of the weight of all samples


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The error of trees on samples that they were not grown from.

    cost        of a leaf, by all folds: a split is kept only where it lowers the error by more for each leaf it adds
    error       held-out error of trees that are pruned so, from 0 to 1, all classes weighted equally
    deviation   its standard error
    one_answer  the error of the same class for all samples
    folds       how many there were
    accuracy    share of the samples, each of the same weight, whose class such trees tell
    constant    the same of one class for all, that with which it is highest
    shuffled    the same of trees with as many leaves that are grown from shuffled labels
    """

    cost: float
    error: float
    deviation: float
    one_answer: float
    folds: int
    accuracy: float
    constant: float
    shuffled: float

    @property
    def helps(self) -> bool:
        """Is the tree better than one answer for all, with 95 % confidence?"""
        return self.error + SURE * self.deviation < self.one_answer


def held_out(
    table: Bools, labels: Ints, wrong: Bools, judged: Bools, costs: Sequence[float] = COSTS, folds: int = FOLDS
) -> HeldOut | None:
    """The cost of a leaf to prune with, and the error that this has on held-out samples.

    `table` is samples x features, `wrong` samples x classes; `judged` says which samples count in the error (the times
    of others are estimated). Samples must come in an order that has nothing to do with how they were measured; equal
    input gives equal output. None where there are fewer than two samples to judge by, or only one class.
    """
    import numpy as np

    classes = wrong.shape[1]
    folds = min(folds, int(judged.sum()))
    if folds < 2 or classes < 2:
        return None
    fold = _fold(labels, judged, folds)
    missed = np.zeros((len(costs), len(labels)), dtype=bool)
    leaves = np.ones((len(costs), folds), dtype=np.int64)
    for number in range(folds):
        test = fold == number
        if not test.any():
            continue
        growth, _ = grow(table[~test], labels[~test], classes)
        for place, cost in enumerate(costs):  # ascending: each tree is a subtree of the one before it
            growth.prune(wrong[~test], cost)
            leaves[place, number] = growth.leaves
            missed[place, test] = wrong[test, growth.classify_rows(table[test])]
    answered = np.zeros((1, len(labels)), dtype=bool)
    for number in range(folds):
        test = fold == number
        others = judged & ~test
        answered[0, test] = missed[_choose(missed[:, others], labels[others]), test]
    errors, deviations = _errors(answered[:, judged], labels[judged])
    single, _ = _errors(wrong[judged].T, labels[judged])
    chosen = _choose(missed[:, judged], labels[judged])
    return HeldOut(
        costs[chosen], float(errors[0]), float(deviations[0]), float(single.min()), folds,
        accuracy=float(1 - answered[0, judged].mean()),
        constant=float(1 - wrong[judged].mean(axis=0).min()),
        shuffled=_shuffled(table, labels, wrong, judged, fold, leaves[chosen]),
    )  # fmt: skip


def _shuffled(table: Bools, labels: Ints, wrong: Bools, judged: Bools, fold: Ints, leaves: Ints) -> float:
    """The accuracy on samples held out of trees from shuffled labels, with so many leaves in each fold."""
    import numpy as np

    missed = np.zeros(len(labels), dtype=bool)
    random = np.random.default_rng(0)
    for number, most in enumerate(leaves):
        test, rest = fold == number, np.flatnonzero(fold != number)
        growth, grown = Growth(table[rest], labels[random.permutation(rest)], wrong.shape[1]), 1
        while grown < most and growth.split():
            grown += 1
        missed[test] = wrong[test, growth.classify_rows(table[test])]
    return float(1 - missed[judged].mean())


def _choose(missed: Bools, labels: Ints) -> int:
    """Which cost to take, by what was missed with each (costs x samples): the rule of one standard error."""
    import numpy as np

    errors, deviations = _errors(missed, labels)
    least = int(np.argmin(errors))
    return int(np.flatnonzero(errors <= errors[least] + deviations[least])[-1])


def _fold(labels: Ints, judged: Bools, folds: int) -> Ints:
    """Samples of each class are dealt out in turn; the next class goes on where the last has ended.

    Those that are judged come first, so that every fold has some.
    """
    import numpy as np

    fold = np.empty(len(labels), dtype=np.int64)
    fold[np.lexsort((labels, ~judged))] = np.arange(len(labels)) % folds
    return fold


def _errors(missed: Bools, labels: Ints) -> tuple[Floats, Floats]:
    """Of each row (answers x samples): the mean over the classes of the share missed, and its standard error."""
    import numpy as np

    shares = np.array([missed[:, labels == k].mean(axis=1) for k in np.unique(labels)])
    counts = np.array([(labels == k).sum() for k in np.unique(labels)])
    variances = shares * (1 - shares) / counts[:, None]
    errors: Floats = shares.mean(axis=0)
    deviations: Floats = np.sqrt(variances.sum(axis=0)) / len(counts)
    return errors, deviations


# ---- from samples to rules ----


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
        return tuple(rule_set for rule_set in self.rule_sets if rule_set.number == number)

    def satisfied(self, sample: Sample) -> RuleSet:
        """The rule set that an implementation follows: exactly one."""
        leaf = self.leaves(Samples.of([sample]))[0]
        return next(rule_set for rule_set in self.rule_sets if rule_set.leaf == leaf)


def learn(
    samples: Iterable[Sample],
    noise: float = math.nan,
    *,
    all_classes: bool = False,
    percentile: float = PERCENTILE,
    cost: float | None = None,
    outliers: Outliers | None = None,
    judge: bool = True,
    level: float = LEVEL,
) -> LearnedRules:
    """Rules that tell fast from slow samples, in any order. ValueError without samples.

    `noise`: relative standard deviation of a single measurement; medians of several have less. Class boundaries below
    the noise of the times are not drawn, and the tree does not separate what only the noise may have put on the two
    sides of a boundary: a class is wrong for a sample only where its time is further than the noise from the range of
    that class. NaN, not known: every boundary is drawn, and every other class is wrong.
    `outliers`: how many to expect (None: assumed, not counted); classes that may be outliers are not drawn.
    `all_classes`: every boundary is drawn, as in the paper. Else a fastest class of several configurations is cut
    again.
    `cost`: by how much each leaf must lower the error of the tree (0.002 is a readable tree). Default: by
    cross-validation, and no rules where the tree is no better than one answer; with `all_classes` 0, as in the paper.
    `judge` False: the error on held-out samples, which takes most of the time, is not computed; `cost` is 0 by default.
    Estimated times (`measurements` 0) draw no boundaries, but the tree learns from them too.
    `level`: the largest probability of two or more classes where all implementations are equally fast. Boundaries that
    chance explains are not drawn (dagc.learn.rules.chance); 1: not tested, as with `all_classes`.
    """
    import numpy as np

    drawn = _drawn(samples, noise, all_classes, percentile, outliers, level)
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
    return LearnedRules(chosen, classes, tuple(map(int, labels)), features, tree, rule_sets, noise, held, leaves)


def classes_of(
    samples: Iterable[Sample], noise: float = math.nan, outliers: Outliers | None = None, level: float = LEVEL
) -> Classes:
    """The classes that `learn` would find, without a tree. ValueError without samples."""
    return _drawn(samples, noise, False, PERCENTILE, outliers, level).classes


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Samples, fastest first, those of them that were measured, all as a table, and the classes of the measured."""

    samples: tuple[Sample, ...]
    measured: tuple[Sample, ...]
    table: Samples
    features: tuple[Feature, ...]
    answers: Bools
    classes: Classes


def _drawn(
    samples: Iterable[Sample],
    noise: float,
    all_classes: bool,
    percentile: float,
    outliers: Outliers | None,
    level: float,
) -> _Drawn:
    import numpy as np

    chosen = _sorted(samples)
    if not chosen:
        raise ValueError("no samples")
    measured = tuple(s for s in chosen if s.measurements) or chosen
    floor = math.nan if all_classes else noise_of(noise, median(s.measurements for s in measured))
    repeats = Repeats(tuple(s.measurements for s in measured), outliers or Outliers((), noise))
    classes = classify_times([s.value for s in measured], floor, percentile, repeats)
    if not all_classes:
        classes = cut_again(classes, [s.configuration for s in measured], percentile, repeats)
    table = Samples.of(chosen)
    features, answers = table.features()
    if not all_classes and level < 1:
        timed = np.array([s.measurements > 0 or len(measured) == len(chosen) for s in chosen])
        classes = tested(classes, Evidence.of(measured, answers[timed]), level)
    return _Drawn(chosen, measured, table, features, answers, classes)


def _sorted(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    def key(s: Sample) -> tuple[float, str, str]:
        return s.value, s.configuration.text, traversal_text(s.traversal, s.graph)

    return tuple(sorted(samples, key=key))


def _cost(held: HeldOut | None, costs: Sequence[float]) -> float:
    """Of a leaf: infinite where, of several costs, none gives a tree that is better than one answer for all."""
    if held is None:
        return costs[0]
    return math.inf if len(costs) > 1 and not held.helps else held.cost


def _labelled(chosen: Sequence[Sample], measured: Sequence[Sample], classes: Classes) -> tuple[Classes, Ints]:
    """(the classes of all samples, the class of each); `measured` are those that have drawn the boundaries."""
    import numpy as np

    if len(measured) == len(chosen):
        return classes, np.repeat(np.arange(len(classes.classes)), [c.count for c in classes.classes])
    times = [s.value for s in chosen]
    return with_estimates(classes, times), np.array([classes.of(t) for t in times])


def _wrong(labels: Ints, samples: Sequence[Sample], classes: Classes) -> Bools:
    """samples x classes: is it wrong, by more than the noise, to give this class to this sample?"""
    import numpy as np

    other: Bools = labels[:, None] != np.arange(len(classes.classes))
    times = np.array([s.value for s in samples])[:, None]
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
