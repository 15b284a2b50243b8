"""A random forest: scikit-learn's regression trees with random thresholds, each predicting the gain of every choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from dagc.base.errors import counted
from dagc.choice import nodes
from dagc.choice.methods import FULL, Examples
from dagc.choice.selector import Answer, Scale, Selector
from dagc.perf.chart import Chart, FlowBox

SUMMARY = "a random forest"
# Up to 127 trees and at least 31, limited so that all have POINTS points together. The choice of few trees depends on
# the seed. With families held out, 127 instead of 31 take the SpMV (161 inputs) from 93.0 to 93.7 % of the best, BFS
# and sort by 0.3 and 0.6 more, the solvers by 0.1 less, mean of three seeds.
MOST_TREES, FEWEST_TREES, POINTS = 127, 31, 30_000


@dataclass(frozen=True)
class Forest(Selector):
    """Decision trees whose leaves are row indices of `gains`: the gain of each of `labels`, in units of 2**-16.

    The label with the largest mean gain over the trees is chosen, the lowest if several are equal; its gain is the
    confidence. The evidence for a label is the fraction of the trees whose best it is."""

    method: ClassVar[str] = "forest"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    labels: tuple[int, ...]
    gains: tuple[tuple[int, ...], ...]
    roots: tuple[nodes.Node, ...]
    least_sure: float = 0.0

    @property
    def text(self) -> str:
        """`forest of 31 trees`."""
        return f"forest of {counted(len(self.roots), 'tree')}"

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(self.labels)

    def chart(self, answers: Sequence[str]) -> Chart:
        """As `Selector.chart`."""

        def leaf(at: Answer | nodes.Leaf) -> list[str]:
            gains = zip(self.labels, self.gains[at.label], strict=True)
            return [f"gain {gain / FULL:.3f} of {answers[label]}" for label, gain in gains]

        trees = (
            (FlowBox((f"tree {i} of {len(self.roots)}",)), *nodes.chart(root, self.data, leaf))
            for i, root in enumerate(self.roots, 1)
        )
        return (
            *(part for tree in trees for part in tree),
            FlowBox(("the answer with the largest mean gain over the trees",)),
        )

    def view(self) -> dict[str, Any]:
        """As `Selector.view`."""
        rows, roots = nodes.table(self.roots)
        return {
            "nodes": rows.tolist(), "roots": roots.tolist(), "labels": self.labels, "gains": self.gains,
            "all": len(self.roots), "full": FULL,
        }  # fmt: skip

    def tables(self) -> tuple[Any, ...]:
        """As `Selector.tables`."""
        return (*nodes.table(self.roots), np.array(self.gains, np.int32))

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {
            **self.common_json(), "labels": list(self.labels), "gains": [list(row) for row in self.gains],
            "trees": [nodes.node_to_json(root) for root in self.roots],
        }  # fmt: skip


def fit(examples: Examples, seed: int = 0) -> Forest:
    """Extremely randomised trees (Geurts et al. 2006) with leaves of two points or more."""
    scales, gains = examples.scales, examples.gains
    rows: dict[tuple[int, ...], int] = {}

    def leaf(tree: Any, number: int) -> Answer:
        row = tuple(int(v) for v in (tree.value[number][:, 0] * FULL).round())
        return Answer(rows.setdefault(row, len(rows)), 1.0)

    fitted = trained(number_of_trees(len(examples.rows)), seed, examples.x, gains.matrix)
    grown = [one.tree_ for one in fitted.estimators_]
    roots = tuple(nodes.from_scikit(tree, scales, partial(leaf, tree)) for tree in grown)
    return Forest(examples.data, scales, gains.labels, tuple(rows), roots)


def number_of_trees(points: int) -> int:
    """The number of trees for this many training points."""
    return max(FEWEST_TREES, min(MOST_TREES, POINTS // points))


def trained(trees: int, seed: int, x: Any, matrix: Any) -> Any:
    """scikit-learn's forest of the gains."""
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(trees, min_samples_leaf=2, random_state=seed).fit(
        x, matrix if matrix.shape[1] > 1 else matrix[:, 0]
    )


class Row(nodes.SelectorRow, tag="forest", frozen=True, kw_only=True):
    """The representation in a tuned file. Without `gains`, the leaves are labels."""

    trees: Annotated[tuple[nodes.Row, ...], msgspec.Meta(min_length=1, max_length=1000)]
    labels: Annotated[tuple[nodes.Label, ...], msgspec.Meta(max_length=1000)] = ()
    gains: Annotated[tuple[tuple[nodes.Gain, ...], ...], msgspec.Meta(max_length=100_000)] = ()


def read(row: Row) -> Forest:
    """Raises ValueError."""
    trees = tuple(nodes.node_of(tree, len(row.data)) for tree in row.trees)
    labels = {leaf.label for root in trees for leaf in nodes.leaves(root)}
    if not row.gains:
        return _voting(row, trees, tuple(sorted(labels)))
    if {len(gains) for gains in row.gains} != {len(row.labels)} or not row.labels or max(labels) >= len(row.gains):
        raise ValueError("a forest whose leaves are not rows of its gains")
    return Forest(row.data, row.read_scales(), row.labels, row.gains, trees)


def _voting(row: Row, trees: tuple[nodes.Node, ...], labels: tuple[int, ...]) -> Forest:
    """Each tree votes for the label of its leaf."""
    gains = tuple(tuple(FULL * (label == one) for one in labels) for label in labels)
    return Forest(row.data, row.read_scales(), labels, gains, tuple(_renamed(root, labels) for root in trees))


def _renamed(node: nodes.Node, labels: tuple[int, ...]) -> nodes.Node:
    if isinstance(node, nodes.Split):
        return nodes.Split(node.index, node.most, _renamed(node.low, labels), _renamed(node.high, labels))
    return Answer(labels.index(node.label), 1.0)
