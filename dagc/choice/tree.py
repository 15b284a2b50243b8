"""A decision tree over sizes: trained with scikit-learn on logarithms, asked by comparisons of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from dagc.base.errors import counted
from dagc.choice.selector import UNIT, check_training, features, head, log2_fixed, parameters

LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Split:
    """`low` where the size at `index` of the data is at most `most`, else `high`."""

    index: int
    most: int
    low: Node
    high: Node


Node: TypeAlias = int | Split


def find_label(node: Node, sizes: Sequence[int]) -> int:
    """The leaf's label."""
    while isinstance(node, Split):
        node = node.low if sizes[node.index] <= node.most else node.high
    return node


def leaves(node: Node) -> int:
    """How many there are."""
    return leaves(node.low) + leaves(node.high) if isinstance(node, Split) else 1


def node_to_json(node: Node) -> Any:
    """A label, or [index, most, low, high]."""
    if isinstance(node, Split):
        return [node.index, node.most, node_to_json(node.low), node_to_json(node.high)]
    return node


def leaf_labels(node: Node) -> set[int]:
    """Every label of a leaf."""
    return leaf_labels(node.low) | leaf_labels(node.high) if isinstance(node, Split) else {node}


def node_to_c(node: Node, data: Sequence[str], function: str) -> str:
    """`static inline int function(...)` of nested comparisons."""
    names = parameters(data)
    unused = [f"  (void){name};" for i, name in enumerate(names) if not _asks(node, i)]
    return "\n".join([f"{head(function, data)} {{", *unused, *_branches(node, names, "  "), "}"]) + "\n"


def _asks(node: Node, index: int) -> bool:
    return isinstance(node, Split) and (node.index == index or _asks(node.low, index) or _asks(node.high, index))


def _branches(node: Node, names: Sequence[str], indent: str) -> list[str]:
    if not isinstance(node, Split):
        return [f"{indent}return {node};"]
    return [
        f"{indent}if ({names[node.index]} <= INT64_C({node.most})) {{",
        *_branches(node.low, names, indent + "  "),
        f"{indent}}}",
        *_branches(node.high, names, indent),
    ]


def largest_below(threshold: float) -> int:
    """The largest size whose logarithm to base 2, as `log2_fixed` gives it, is at most the threshold."""
    low, high = 0, LARGEST
    while low < high:
        middle = low + (high - low + 1) // 2
        if log2_fixed(middle) / UNIT <= threshold:
            low = middle
        else:
            high = middle - 1
    return low


def from_scikit(tree: Any, labels: Sequence[int]) -> Node:
    """A fitted tree (`tree_` of an estimator) with integer thresholds; `labels` are those of its classes.

    Splits whose sides say the same are dropped.
    """

    def node(i: int) -> Node:
        if tree.children_left[i] < 0:
            return int(labels[int(tree.value[i][0].argmax())])
        low, high = node(int(tree.children_left[i])), node(int(tree.children_right[i]))
        if low == high:
            return low
        return Split(int(tree.feature[i]), largest_below(float(tree.threshold[i])), low, high)

    return node(0)


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

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {"method": self.method, "data": list(self.data), "tree": node_to_json(self.root)}


def fit_tree(
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
    best = search.best_estimator_
    return Tree(tuple(data), from_scikit(best.tree_, best.classes_))
