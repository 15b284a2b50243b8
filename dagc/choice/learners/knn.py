"""k nearest neighbours: trained with scikit-learn, asked in Python or in C."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from dagc.choice.nodes import Label, Real, SelectorRow
from dagc.choice.selector import FRACTION, Answer, Scale, Selector, check_training, coordinates, number, scales_of

SUMMARY = "nearest neighbours"


@dataclass(frozen=True, slots=True)
class Knn(Selector):
    """`points` ascend, a value for each of `data`; `labels` are numbers of choices.

    `weights`: `uniform` or `distance` (one over the Euclidean distance), as scikit-learn has them.
    """

    method: ClassVar[str] = "knn"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    points: tuple[tuple[float, ...], ...]
    labels: tuple[int, ...]
    k: int
    weights: str

    @property
    def text(self) -> str:
        """`knn, k = 3, weights by distance`."""
        return f"knn, k = {self.k}" + (", weights by distance" if self.weights == "distance" and self.k > 1 else "")

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(self.labels)

    def ask(self, x: Sequence[float]) -> Answer:
        """The label with most weight among the k nearest points, the lowest of equal ones; as sure as its share.

        Of points equally far, the one that stands first counts as nearer.
        """
        weights, total = self._weights(x)
        label = min(weights, key=lambda one: (-weights[one], one))
        return Answer(label, weights[label] / total)

    def votes(self, x: Sequence[float]) -> dict[int, float]:
        """As `Selector.votes`."""
        weights, total = self._weights(x)
        return {label: weight / total for label, weight in weights.items()}

    def _weights(self, x: Sequence[float]) -> tuple[dict[int, float], float]:
        """Of each label among the k nearest points, and their sum."""
        here = [scale.coordinate(v) for scale, v in zip(self.scales, x, strict=True)]
        rows = _coordinates(self.points, self.scales)
        apart = [sum((a - b) ** 2 for a, b in zip(row, here, strict=True)) for row in rows]
        votes: dict[int, float] = {}
        total = 0.0
        for i in sorted(range(len(apart)), key=lambda i: apart[i])[: self.k]:
            if self.weights == "distance" and apart[i] == 0:
                return {self.labels[i]: 1.0}, 1.0
            weight = 1 / math.sqrt(apart[i]) if self.weights == "distance" else 1.0
            votes[self.labels[i]] = votes.get(self.labels[i], 0.0) + weight
            total += weight
        return votes, total

    def view(self) -> dict[str, Any]:
        """As `Selector.view`."""
        return {
            "points": _coordinates(self.points, self.scales), "labels": self.labels, "k": self.k, "fraction": FRACTION,
            "by_distance": self.weights == "distance",
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {
            **self.common_json(), "sizes": [[number(v) for v in row] for row in self.points],
            "labels": list(self.labels), "k": self.k, "weights": self.weights,
        }  # fmt: skip


@lru_cache(maxsize=64)
def _coordinates(points: tuple[tuple[float, ...], ...], scales: tuple[Scale, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(s.coordinate(v) for s, v in zip(scales, row, strict=True)) for row in points)


def nearest(data: Sequence[str], rows: Sequence[Sequence[float]], labels: Sequence[int]) -> Knn:
    """The label of the nearest point, without training."""
    order = sorted(range(len(rows)), key=lambda i: tuple(rows[i]))
    points, y = tuple(tuple(rows[i]) for i in order), tuple(int(labels[i]) for i in order)
    return Knn(tuple(data), scales_of(rows), points, y, 1, "uniform")


def fit(
    data: Sequence[str], rows: Sequence[Sequence[float]], labels: Sequence[int], *, folds: int = 5, seed: int = 0
) -> Knn:
    """k from 1 to the number of labels, and the weights, by GridSearchCV over shuffled folds (as the paper on the
    tridiagonal method).

    `rows` hold a value for each of `data`. Raises UsageError as `check_training`.
    """
    import numpy as np
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.neighbors import KNeighborsClassifier

    check_training(data, rows, labels)
    one = nearest(data, rows, labels)
    splits = min(folds, len(rows))
    smallest_part = len(rows) - -(-len(rows) // splits)
    most = max(1, min(len(set(labels)), smallest_part))
    grid = {"n_neighbors": list(range(1, most + 1)), "weights": ["uniform", "distance"]}
    search = GridSearchCV(KNeighborsClassifier(), grid, cv=KFold(splits, shuffle=True, random_state=seed))
    search.fit(coordinates(one.points, one.scales), np.array(one.labels))
    best = search.best_params_
    return Knn(one.data, one.scales, one.points, one.labels, int(best["n_neighbors"]), str(best["weights"]))


class Row(SelectorRow, tag="knn", frozen=True, kw_only=True):
    """As a tuned file keeps it."""

    points: tuple[tuple[Real, ...], ...] = msgspec.field(name="sizes")
    labels: tuple[Label, ...]
    k: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    weights: Literal["uniform", "distance"]


def read(row: Row) -> Knn:
    """Raises ValueError."""
    lengths = {len(point) for point in row.points}
    if lengths != {len(row.data)} or len(row.labels) != len(row.points) or row.k > len(row.points):
        raise ValueError("a knn selector whose parts are not of one length")
    return Knn(row.data, row.read_scales(), row.points, row.labels, row.k, row.weights)
