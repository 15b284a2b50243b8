"""Decision trees over the logarithms of sizes, trained with scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from dagc.base.errors import counted
from dagc.choice.nodes import (
    Label,
    Name,
    Node,
    SplitRow,
    find_label,
    from_scikit,
    leaf_labels,
    leaves,
    node_of,
    node_to_c,
    node_to_json,
)
from dagc.choice.selector import check_training, features

SUMMARY = "a decision tree"


@dataclass(frozen=True, slots=True)
class Tree:
    """A decision tree; its leaves are numbers of choices."""

    method: ClassVar[str] = "tree"
    data: tuple[str, ...]
    root: Node

    @property
    def text(self) -> str:
        """`tree of 3 leaves`."""
        count = leaves(self.root)
        return f"tree of {counted(count, 'leaf', 'leaves')}"

    def choose(self, sizes: Sequence[int]) -> int:
        """As `Selector.choose`."""
        return find_label(self.root, sizes)

    def c_text(self, function: str) -> str:
        """C99, as `Selector.c_text`."""
        return f"#include <stdint.h>\n\n{node_to_c(self.root, self.data, function)}"

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(leaf_labels(self.root))

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {"method": self.method, "data": list(self.data), "tree": node_to_json(self.root)}


def fit(
    data: Sequence[str], sizes: Sequence[Sequence[int]], labels: Sequence[int], *, folds: int = 5, seed: int = 0
) -> Tree:
    """Depth (1 to 5, or any) and least size of a leaf (1 to 3) by GridSearchCV over shuffled folds; of equally good
    ones the shallowest.

    `sizes` holds a value for each of `data`. Raises UsageError as `check_training`.
    """
    import numpy as np
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.tree import DecisionTreeClassifier

    check_training(data, sizes, labels)
    grid = {"max_depth": [1, 2, 3, 4, 5, None], "min_samples_leaf": [1, 2, 3]}
    cv = KFold(min(folds, len(sizes)), shuffle=True, random_state=seed)
    search = GridSearchCV(DecisionTreeClassifier(random_state=seed), grid, cv=cv)
    search.fit(features(sizes), np.array(labels))
    found = search.best_estimator_
    return Tree(tuple(data), from_scikit(found.tree_, found.classes_))


class Row(msgspec.Struct, tag_field="method", tag="tree", frozen=True):
    """As a tuned file keeps it."""

    data: tuple[Name, ...]
    tree: Label | SplitRow


def read(row: Row) -> Tree:
    """Raises ValueError."""
    return Tree(row.data, node_of(row.tree, len(row.data)))
