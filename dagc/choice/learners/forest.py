"""A random forest: a few decision trees of scikit-learn, each on a sample of its own, and their majority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec

from dagc.base.errors import counted
from dagc.choice import nodes
from dagc.choice.selector import Answer, Scale, Selector, check_training, coordinates, scales_of

SUMMARY = "a random forest"
TREES = 15


@dataclass(frozen=True, slots=True)
class Forest(Selector):
    """Decision trees; the leaves are numbers of choices."""

    method: ClassVar[str] = "forest"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    roots: tuple[nodes.Node, ...]

    @property
    def text(self) -> str:
        """`forest of 15 trees`."""
        return f"forest of {counted(len(self.roots), 'tree')}"

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(leaf.label for root in self.roots for leaf in nodes.leaves(root))

    def ask(self, x: Sequence[float]) -> Answer:
        """The label that most trees give, the lowest of equally many; as sure as the share of the trees."""
        votes = self.votes(x)
        label = min(votes, key=lambda one: (-votes[one], one))
        return Answer(label, votes[label])

    def votes(self, x: Sequence[float]) -> dict[int, float]:
        """As `Selector.votes`."""
        votes = Counter(nodes.find_leaf(root, x).label for root in self.roots)
        return {label: n / len(self.roots) for label, n in votes.items()}

    def view(self) -> dict[str, Any]:
        """As `Selector.view`. Equal trees are one function with so many votes."""
        counts = Counter(self.roots)
        trees = [tuple(nodes.lines(root)) for root in counts]
        return {"trees": trees, "votes": tuple(counts.values()), "all": len(self.roots)}

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {**self.common_json(), "trees": [nodes.node_to_json(root) for root in self.roots]}


def fit(
    data: Sequence[str], rows: Sequence[Sequence[float]], labels: Sequence[int], *, trees: int = TREES, seed: int = 0
) -> Forest:
    """Full-grown trees; the same seed gives the same forest.

    `rows` hold a value for each of `data`. Raises UsageError as `check_training`.
    """
    import numpy as np
    from sklearn.ensemble import RandomForestClassifier

    check_training(data, rows, labels)
    scales = scales_of(rows)
    found = RandomForestClassifier(trees, random_state=seed).fit(coordinates(rows, scales), np.array(labels))
    grown = (nodes.from_scikit(tree.tree_, found.classes_, scales) for tree in found.estimators_)
    return Forest(tuple(data), scales, tuple(grown))


class Row(nodes.SelectorRow, tag="forest", frozen=True, kw_only=True):
    """As a tuned file keeps it."""

    trees: Annotated[tuple[nodes.Row, ...], msgspec.Meta(min_length=1, max_length=1000)]


def read(row: Row) -> Forest:
    """Raises ValueError."""
    trees = tuple(nodes.node_of(tree, len(row.data)) for tree in row.trees)
    return Forest(row.data, row.read_scales(), trees)
