"""The decision tree (seed section IV-C): CART with Gini impurity and balanced classes, its size by Algorithm 1.

The tree is that of scikit-learn's DecisionTreeClassifier(criterion="gini", class_weight="balanced", max_leaf_nodes=n,
max_depth=n - 1): grown best first, the leaf whose split lowers the impurity most is split next. scikit-learn breaks
ties between equally good splits by its random state, and on few samples ties are many: the rules would depend on a
seed, or on the version. Here the first feature in canonical order (dagc.rules.features) wins, and of leaves the one
that was made first; so the same samples give the same tree, in whatever order they come. (A test compares both.)

A tree with n leaves has depth n - 1 at most, so max_depth never binds; and growing best first, the tree of n + 1
leaves extends that of n. So one growth gives all the trees that Algorithm 1 tries. Its error is the training error
with all classes weighted equally, which is what a balanced tree minimises: the mean over the classes of the share of
their samples that are given a wrong class. What is wrong is the caller's to say (`dagc.rules.learn`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from dagc.rules.types import Feature, Node, Tree

if TYPE_CHECKING:
    from dagc.rules.arrays import Bools, Floats, Ints

TRIES = 5  # larger sizes tried where one leaf more does not help
CLOSE = 1e-9  # gains are sums of floating-point numbers: so close, they are equal


@dataclass(slots=True)
class _Leaf:
    """A node under construction. `gain` is by how much its best split lowers the weighted impurity, 0: no split."""

    rows: Ints
    weights: Floats  # per class
    depth: int
    error: float  # weight of its samples for which its class is wrong
    gain: float = 0.0
    feature: int = -1
    children: tuple[int, int] | None = None  # indices: yes, no


class Growth:
    """A tree that grows leaf by leaf.

    `table` is samples x features, `labels` the class of each sample, from 0; `wrong` (samples x classes): is it an
    error to give this class to this sample?
    """

    def __init__(self, table: Bools, labels: Ints, wrong: Bools) -> None:
        import numpy as np

        self.table, classes = table, wrong.shape[1]
        counts = np.bincount(labels, minlength=classes)
        # Every class weighs 1 / classes in all.
        weight = np.divide(1.0, counts * np.count_nonzero(counts), out=np.zeros(classes), where=counts > 0)
        self.labels, self.classes = labels, classes
        self.one_hot: Floats = np.eye(classes)[labels] * weight
        self.wrong = wrong
        self.costs: Floats = wrong * weight[labels][:, None]
        self.nodes = [self._leaf(np.arange(len(labels)), 0)]

    def _leaf(self, rows: Ints, depth: int) -> _Leaf:
        import numpy as np

        weights = self.one_hot[rows].sum(axis=0)
        total = weights.sum()
        leaf = _Leaf(rows, weights, depth, float(self.costs[rows, _largest(weights)].sum()))
        if np.count_nonzero(leaf.weights) < 2 or not self.table.shape[1]:
            return leaf
        yes: Floats = self.table[rows].T.astype(float) @ self.one_hot[rows]  # features x classes
        no = leaf.weights - yes
        split = self.table[rows].any(axis=0) & ~self.table[rows].all(axis=0)
        # Weighted Gini impurity of a node is W - sum(w^2) / W, so the gain is the growth of sum(w^2) / W.
        after = _purity(yes) + _purity(no)
        gains = np.where(split, after - (leaf.weights**2).sum() / total, 0.0)
        best = float(gains.max())
        if best > CLOSE:
            leaf.gain, leaf.feature = best, int(np.argmax(gains >= best - CLOSE))
        return leaf

    def split(self) -> bool:
        """Split the leaf with the largest gain; False where none has any."""
        leaves = [i for i, node in enumerate(self.nodes) if node.children is None and node.gain > 0]
        if not leaves:
            return False
        best = max(self.nodes[i].gain for i in leaves)
        node = next(self.nodes[i] for i in leaves if self.nodes[i].gain >= best - CLOSE)
        answers = self.table[node.rows, node.feature]
        for rows in (node.rows[answers], node.rows[~answers]):
            self.nodes.append(self._leaf(rows, node.depth + 1))
        node.children = len(self.nodes) - 2, len(self.nodes) - 1
        return True

    @property
    def error(self) -> float:
        """Share of the weight that is given a wrong class."""
        return sum(node.error for node in self.nodes if node.children is None)

    @property
    def depth(self) -> int:
        return max(node.depth for node in self.nodes)

    def tree(self, size: int, features: Sequence[Feature], error: float, search: Sequence[_Tried]) -> Tree:
        """The first `size` nodes as a tree: later ones are left out."""
        return Tree(tuple(self._node(n, size, features) for n in self.nodes[:size]), error, tuple(search))

    def _node(self, node: _Leaf, size: int, features: Sequence[Feature]) -> Node:
        import numpy as np

        counts = tuple(int(c) for c in np.bincount(self.labels[node.rows], minlength=self.classes))
        total = node.weights.sum()
        shares = tuple(float(w / total) for w in node.weights)
        number = _largest(node.weights)
        inner = node.children is not None and node.children[0] < size
        yes, no = node.children if inner and node.children else (-1, -1)
        feature = features[node.feature] if inner else None
        wrong = int(self.wrong[node.rows, number].sum())
        return Node(feature, yes, no, node.depth, len(node.rows), counts, shares, number, wrong)


_Tried: TypeAlias = tuple[int, float, int]  # leaf nodes allowed, error, depth


def _largest(weights: Floats) -> int:
    """The class with the largest weight; of equal ones the fastest."""
    import numpy as np

    return int(np.argmax(weights >= weights.max() - CLOSE))


def _purity(weights: Floats) -> Floats:
    import numpy as np

    total = weights.sum(axis=1)
    out: Floats = np.divide((weights**2).sum(axis=1), total, out=np.zeros(len(weights)), where=total > 0)
    return out


def train(table: Bools, labels: Ints, wrong: Bools, features: Sequence[Feature]) -> Tree:
    """Algorithm 1: the smallest tree whose error five more leaves do not lower.

    Starts with 2 leaves; while one of the next five sizes has a smaller error, it goes on from the first such.
    """
    growth = Growth(table, labels, wrong)
    sizes = _grow(growth)
    tried: list[tuple[_Tried, int]] = list(islice(sizes, 1))
    chosen = 0
    while True:
        while len(tried) <= chosen + TRIES and (more := next(sizes, None)) is not None:
            tried.append(more)
        error = tried[chosen][0][1]
        better = [i for i in range(chosen + 1, min(chosen + TRIES + 1, len(tried))) if tried[i][0][1] < error - CLOSE]
        if not better:
            break
        chosen = better[0]
    return growth.tree(tried[chosen][1], features, tried[chosen][0][1], [one for one, _ in tried])


def _grow(growth: Growth) -> Iterator[tuple[_Tried, int]]:
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
