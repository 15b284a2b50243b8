"""A random forest over sizes: a few decision trees of scikit-learn, each on a sample of its own, and their majority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

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
    node_of,
    node_to_c,
    node_to_json,
)
from dagc.choice.selector import check_training, features, head, parameters

SUMMARY = "a random forest"
TREES = 15


@dataclass(frozen=True, slots=True)
class Forest:
    """Decision trees; the leaves are numbers of choices."""

    method: ClassVar[str] = "forest"
    data: tuple[str, ...]
    roots: tuple[Node, ...]

    @property
    def text(self) -> str:
        """`forest of 15 trees`."""
        return f"forest of {counted(len(self.roots), 'tree')}"

    def choose(self, sizes: Sequence[int]) -> int:
        """The label that most trees give; the lowest of equally many."""
        votes = Counter(find_label(root, sizes) for root in self.roots)
        return min(votes, key=lambda label: (-votes[label], label))

    def c_text(self, function: str) -> str:
        """C99, as `Selector.c_text`. Equal trees are one function with so many votes."""
        counts = Counter(self.roots)
        functions = [node_to_c(root, self.data, f"{function}_{i}") for i, root in enumerate(counts)]
        arguments, n = ", ".join(parameters(self.data)), len(counts)
        return "\n".join(
            [
                "#include <stdint.h>\n",
                *functions,
                f"/* The label with most votes of {counted(len(self.roots), 'tree')}; the lowest of equal ones. */",
                f"{head(function, self.data)} {{",
                f"  static const int dagc_votes[{n}] = {{{', '.join(map(str, counts.values()))}}};",
                f"  const int dagc_said[{n}] = {{{', '.join(f'{function}_{i}({arguments})' for i in range(n))}}};",
                "  int dagc_best = 0, dagc_most = 0;",
                f"  for (int i = 0; i < {n}; ++i) {{",
                "    int count = 0;",
                f"    for (int k = 0; k < {n}; ++k)",
                "      if (dagc_said[k] == dagc_said[i]) count += dagc_votes[k];",
                "    if (count > dagc_most || (count == dagc_most && dagc_said[i] < dagc_best))",
                "      dagc_best = dagc_said[i], dagc_most = count;",
                "  }",
                "  return dagc_best;",
                "}\n",
            ]
        )

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(label for root in self.roots for label in leaf_labels(root))

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {"method": self.method, "data": list(self.data), "trees": [node_to_json(root) for root in self.roots]}


def fit(
    data: Sequence[str], sizes: Sequence[Sequence[int]], labels: Sequence[int], *, trees: int = TREES, seed: int = 0
) -> Forest:
    """Full-grown trees; the same seed gives the same forest.

    `sizes` holds a value for each of `data`. Raises UsageError as `check_training`.
    """
    import numpy as np
    from sklearn.ensemble import RandomForestClassifier

    check_training(data, sizes, labels)
    found = RandomForestClassifier(trees, random_state=seed).fit(features(sizes), np.array(labels))
    return Forest(tuple(data), tuple(from_scikit(tree.tree_, found.classes_) for tree in found.estimators_))


class Row(msgspec.Struct, tag_field="method", tag="forest", frozen=True):
    """As a tuned file keeps it."""

    data: tuple[Name, ...]
    trees: Annotated[tuple[Label | SplitRow, ...], msgspec.Meta(min_length=1, max_length=1000)]


def read(row: Row) -> Forest:
    """Raises ValueError."""
    return Forest(row.data, tuple(node_of(tree, len(row.data)) for tree in row.trees))
