"""Decision trees, trained with scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dagc.base.errors import counted
from dagc.choice import nodes
from dagc.choice.selector import Answer, Scale, Selector, check_training, coordinates, scales_of

SUMMARY = "a decision tree"


@dataclass(frozen=True, slots=True)
class Tree(Selector):
    """A decision tree; its leaves are numbers of choices, as sure as their training points agree."""

    method: ClassVar[str] = "tree"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    root: nodes.Node

    @property
    def text(self) -> str:
        """`tree of 3 leaves`."""
        return f"tree of {counted(len(nodes.leaves(self.root)), 'leaf', 'leaves')}"

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(leaf.label for leaf in nodes.leaves(self.root))

    def ask(self, x: Sequence[float]) -> Answer:
        """As `Selector.ask`."""
        return nodes.find_leaf(self.root, x)

    def view(self) -> dict[str, Any]:
        """As `Selector.view`."""
        return {"lines": tuple(nodes.lines(self.root))}

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {**self.common_json(), "tree": nodes.node_to_json(self.root)}


def fit(
    data: Sequence[str], rows: Sequence[Sequence[float]], labels: Sequence[int], *, folds: int = 5, seed: int = 0
) -> Tree:
    """Depth (1 to 5, or any) and least size of a leaf (1 to 3) by GridSearchCV over shuffled folds; of equally good
    ones the shallowest.

    `rows` hold a value for each of `data`. Raises UsageError as `check_training`.
    """
    import numpy as np
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.tree import DecisionTreeClassifier

    check_training(data, rows, labels)
    scales = scales_of(rows)
    grid = {"max_depth": [1, 2, 3, 4, 5, None], "min_samples_leaf": [1, 2, 3]}
    cv = KFold(min(folds, len(rows)), shuffle=True, random_state=seed)
    search = GridSearchCV(DecisionTreeClassifier(random_state=seed), grid, cv=cv)
    search.fit(coordinates(rows, scales), np.array(labels))
    best = search.best_estimator_
    return Tree(tuple(data), scales, nodes.from_scikit(best.tree_, best.classes_, scales))


class Row(nodes.SelectorRow, tag="tree", frozen=True, kw_only=True):
    """As a tuned file keeps it."""

    tree: nodes.Row


def read(row: Row) -> Tree:
    """Raises ValueError."""
    return Tree(row.data, row.read_scales(), nodes.node_of(row.tree, len(row.data)))
