"""Decision trees, trained with scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from dagc.base.errors import counted
from dagc.base.python import np
from dagc.choice import nodes
from dagc.choice.methods import LEAST, Examples, best_candidate
from dagc.choice.selector import Answer, Scale, Selector
from dagc.perf.chart import Chart

SUMMARY = "a decision tree"
DEPTHS = (1, 2, 3, 4, 5, 7, None)
Candidate = tuple[int | None, int]  # greatest depth, fewest points of a leaf


@dataclass(frozen=True)
class TreeSelector(Selector):
    """A decision tree; its leaves are numbers of choices, with the mean gain at their training points as confidence."""

    method: ClassVar[str] = "tree"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    root: nodes.Node
    least_sure: float = 0.0

    @property
    def text(self) -> str:
        """`tree of 3 leaves`."""
        return f"tree of {counted(len(nodes.leaves(self.root)), 'leaf', 'leaves')}"

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(leaf.label for leaf in nodes.leaves(self.root))

    @property
    def ordered(self) -> frozenset[int]:
        """As `Selector.ordered`: also labels that are best in no leaf."""
        return frozenset(label for leaf in nodes.leaves(self.root) for label in self._order(leaf))

    def _order(self, leaf: Answer | nodes.Leaf) -> tuple[int, ...]:
        """The labels of a leaf, the best first. One without an order (of an older file) is followed by the labels of
        all leaves."""
        others = leaf.then if isinstance(leaf, nodes.Leaf) else sorted(self.answers - {leaf.label})
        return (leaf.label, *others)

    def chart(self, answers: Sequence[str]) -> Chart:
        """As `Selector.chart`."""

        def leaf(at: Answer | nodes.Leaf) -> tuple[str]:
            return (answers[at.label] + (f", confidence {at.sure:.0%}" if at.sure < 1 else ""),)

        return nodes.chart(self.root, self.data, leaf)

    def view(self) -> dict[str, Any]:
        """As `Selector.view`. `orders`: the distinct orders of the leaves; the leaves of `ordered` are their
        numbers."""
        of_leaves = [self._order(leaf) for leaf in nodes.leaves(self.root)]
        orders = tuple(dict.fromkeys(of_leaves))
        lines, left = [], iter(of_leaves)
        for line in nodes.lines(self.root):
            leaf = not line.close and line.at < 0
            lines.append(line._replace(label=orders.index(next(left)), sure=1.0) if leaf else line)
        return {"lines": tuple(nodes.lines(self.root)), "ordered": lines, "orders": orders}

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {**self.common_json(), "tree": nodes.node_to_json(self.root)}


def fit(examples: Examples, seed: int = 0) -> TreeSelector:
    """A regression tree of the gains; a leaf answers with the label of the largest gain. Depth (1 to 7, or any) and
    least size of a leaf are chosen by cross-validation; the shallowest if several are equally good."""
    scales, gains, x = examples.scales, examples.gains, examples.x
    grid = list(product(DEPTHS, (1, 2, 3, 5)))
    grown = trained(best_candidate(grid, _choose, x, gains.matrix, seed), x, gains.matrix)
    at = grown.apply(x)

    def leaf(number: int) -> Answer | nodes.Leaf:
        scores = grown.tree_.value[number].reshape(-1)
        best, *others = sorted(range(len(scores)), key=lambda i: -scores[i])
        sure = min(1.0, float(gains.matrix[at == number, best].mean()))
        if not examples.shared or not others:
            return Answer(gains.labels[best], sure)
        return nodes.Leaf(gains.labels[best], sure, tuple(gains.labels[i] for i in others))

    return TreeSelector(examples.data, scales, nodes.from_scikit(grown.tree_, scales, leaf))


def trained(candidate: Candidate, x: Any, matrix: Any) -> Any:
    """scikit-learn's regression tree of the logarithms of gains, so that a loss by a factor of ten weighs more than two
    losses of half. For one-hot gains its criterion is the Gini impurity."""
    from sklearn import config_context
    from sklearn.tree import DecisionTreeRegressor

    depth, least = candidate
    grown = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=least, random_state=0)
    logs = np.log(np.maximum(matrix, LEAST))
    with config_context(skip_parameter_validation=True):  # checking parameters and inputs takes as long as a small tree
        return grown.fit(np.ascontiguousarray(x, np.float32), np.ascontiguousarray(logs), check_input=False)


def _choose(candidates: Sequence[Candidate], x: Any, matrix: Any, asked: Any) -> Any:
    """The `choose` of `best_candidate`. A tree of limited depth is the upper part of a deeper one."""
    asked = asked.astype(np.float32)
    at: dict[Candidate, Any] = {}
    for least in {least for _, least in candidates}:
        tree = trained((None, least), x, matrix).tree_
        best, node = tree.value[:, :, 0].argmax(axis=1), np.zeros(len(asked), int)
        feature = np.maximum(tree.feature, 0)  # leaves have none
        for depth in range(1, tree.max_depth + 1):
            low = asked[np.arange(len(asked)), feature[node]] <= tree.threshold[node]
            below = np.where(low, tree.children_left[node], tree.children_right[node])
            node = np.where(below < 0, node, below)
            at[depth, least] = best[node]
        at[None, least] = best[node]
    return np.array([at.get(one, at[None, one[1]]) for one in candidates])


class Row(nodes.SelectorRow, tag="tree", frozen=True, kw_only=True):
    """The representation in a tuned file."""

    tree: nodes.Row


def read(row: Row) -> TreeSelector:
    """Raises ValueError."""
    return TreeSelector(row.data, row.read_scales(), nodes.node_of(row.tree, len(row.data)))
