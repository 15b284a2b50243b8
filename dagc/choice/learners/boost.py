"""Gradient-boosted trees: for each choice, scikit-learn's regression trees whose sum predicts its gain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from dagc.base.errors import counted
from dagc.choice import nodes
from dagc.choice.methods import Examples
from dagc.choice.selector import Answer, Scale, Selector

SUMMARY = "gradient-boosted trees"
TREES, DEPTH, RATE, SAMPLE = 40, 4, 0.15, 0.7
_UNIT = 1 << 24  # unit of a leaf: 2**-24, so that no sum is rounded
_MOST = 1 << 40  # limit of a leaf's magnitude


@dataclass(frozen=True)
class Boost(Selector):
    """`trees`: those of each of `labels`; their leaves are indices into `values`, in units of 2**-24. The predicted
    gain of a label is its start in `starts` plus a leaf of each of its trees. The label with the largest is chosen, the
    lowest if several are equal; its gain is the confidence."""

    method: ClassVar[str] = "boost"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    labels: tuple[int, ...]
    starts: tuple[int, ...]
    values: tuple[int, ...]
    trees: tuple[tuple[nodes.Node, ...], ...]
    least_sure: float = 0.0

    @property
    def text(self) -> str:
        """`boost of 120 trees`."""
        return f"boost of {counted(sum(map(len, self.trees)), 'tree')}"

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(self.labels)

    def view(self) -> dict[str, Any]:
        """As `Selector.view`. `begin`: index of the first tree of each label."""
        rows, first = nodes.table([root for roots in self.trees for root in roots])
        begin = [0]
        for roots in self.trees:
            begin.append(begin[-1] + len(roots))
        return {
            "nodes": rows.tolist(), "roots": first.tolist(), "labels": self.labels,
            "starts": self.starts, "values": self.values, "begin": begin, "unit": _UNIT,
        }  # fmt: skip

    def tables(self) -> tuple[Any, ...]:
        """As `Selector.tables`."""
        return (*nodes.table([root for roots in self.trees for root in roots]), np.array(self.values, np.int64))

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {
            **self.common_json(), "labels": list(self.labels), "starts": list(self.starts), "values": list(self.values),
            "trees": [[nodes.node_to_json(root) for root in roots] for roots in self.trees],
        }  # fmt: skip


def fit(examples: Examples, seed: int = 0) -> Boost:
    """Trees of depth 4, each on 70 % of the points."""
    scales, gains, x = examples.scales, examples.gains, examples.x
    values: dict[int, int] = {}

    def leaf(tree: Any, number: int) -> Answer:
        value = round(float(tree.value[number][0, 0]) * RATE * _UNIT)
        return Answer(values.setdefault(value, len(values)), 1.0)

    starts, trees = [], []
    for column in gains.matrix.T:
        starts.append(round(float(column.mean()) * _UNIT))
        grown = trained(seed, x, column).estimators_[:, 0] if (column != column[0]).any() else ()
        trees.append(tuple(nodes.from_scikit(one.tree_, scales, partial(leaf, one.tree_)) for one in grown))
    return Boost(examples.data, scales, gains.labels, tuple(starts), tuple(values), tuple(trees))


def trained(seed: int, x: Any, column: Any) -> Any:
    """scikit-learn's regressor of the gain of one label; it starts with the mean."""
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(
        n_estimators=TREES, max_depth=DEPTH, learning_rate=RATE, subsample=SAMPLE, random_state=seed
    ).fit(x, column)


Value = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]


class Row(nodes.SelectorRow, tag="boost", frozen=True, kw_only=True):
    """The representation in a tuned file."""

    labels: Annotated[tuple[nodes.Label, ...], msgspec.Meta(min_length=1, max_length=1000)]
    starts: tuple[Value, ...]
    values: Annotated[tuple[Value, ...], msgspec.Meta(max_length=100_000)]
    trees: tuple[Annotated[tuple[nodes.Row, ...], msgspec.Meta(max_length=1000)], ...]


def read(row: Row) -> Boost:
    """Raises ValueError."""
    trees = tuple(tuple(nodes.node_of(tree, len(row.data)) for tree in roots) for roots in row.trees)
    labels = {leaf.label for roots in trees for root in roots for leaf in nodes.leaves(root)}
    if not len(row.labels) == len(row.starts) == len(trees) or any(a >= b for a, b in pairwise(row.labels)):
        raise ValueError("a boost selector whose parts do not match its labels")
    if max(labels, default=-1) >= len(row.values):
        raise ValueError("a boost selector with leaves without a value")
    return Boost(row.data, row.read_scales(), row.labels, row.starts, row.values, trees)
