"""k nearest neighbours, trained with scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from dagc.base.errors import counted
from dagc.base.python import np
from dagc.choice.methods import FOLDS, FULL, Examples, Gains, best_candidate
from dagc.choice.nodes import Gain, Label, Real, SelectorRow
from dagc.choice.selector import Scale, Selector, coordinates, number, scales_of
from dagc.perf.chart import Chart, FlowBox

SUMMARY = "nearest neighbours"
_WEIGHT = 2.0**36  # weight by distance: this value over the distance in units of 2**-22, rounded down
_MOST = 9  # neighbours


@dataclass(frozen=True)
class Knn(Selector):
    """`points` are in ascending order, with a value for each of `data`; `labels` are numbers of choices.

    `weights`: `uniform` or `distance` (one over the Euclidean distance), as in scikit-learn. `gains`: the gain of each
    of the `columns` at each point, in units of 2**-16; without it, the gain of a point's label is 1 and any other 0.

    The label with the largest weighted gain at the k nearest points is chosen, the lowest if several are equal; its
    gain is the confidence. Of points at the same distance, the first in the list counts as nearer.
    """

    method: ClassVar[str] = "knn"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    points: tuple[tuple[float, ...], ...]
    labels: tuple[int, ...]
    k: int
    weights: str
    columns: tuple[int, ...] = ()
    gains: tuple[tuple[int, ...], ...] = ()
    least_sure: float = 0.0

    @property
    def text(self) -> str:
        """`knn, k = 3, weights by distance`."""
        return f"knn, k = {self.k}" + (", weights by distance" if self.weights == "distance" and self.k > 1 else "")

    @property
    def choices(self) -> tuple[int, ...]:
        """The choices that may be made, in ascending order."""
        return self.columns or tuple(sorted(set(self.labels)))

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(self.choices)

    def chart(self, answers: Sequence[str]) -> Chart:
        """As `Selector.chart`."""
        weights = "each weighs 1 over its distance" if self.weights == "distance" else "all weigh the same"
        kinds = (scale.text(name) for name, scale in zip(self.data, self.scales, strict=True))
        rows = []
        for i, point in enumerate(self.points):
            at = ", ".join(f"{name} = {value:.12g}" for name, value in zip(self.data, point, strict=True))
            gains = dict(zip(self.columns, self.gains[i], strict=True)) if self.gains else {}
            mine = self.labels[i]
            gain = f", gain {gains.pop(mine) / FULL:.3f}" if gains.get(mine) else ""
            rows.append(f"{at}: {answers[mine]}{gain}")
            others = ", ".join(f"{answers[label]} {gain / FULL:.3f}" for label, gain in gains.items() if gain)
            rows += [f"  others gain {others}"] if others else []
        best = "largest sum of gains" if self.gains else "largest weight"
        return (
            FlowBox((f"distance of points in ({', '.join(kinds)})",)), FlowBox(tuple(rows)),
            FlowBox((f"of the {counted(self.k, 'nearest point')}, {weights}: the answer with the {best}",)),
        )  # fmt: skip

    def view(self) -> dict[str, Any]:
        """As `Selector.view`."""
        columns = zip(self.scales, zip(*self.points, strict=True), strict=True)
        points = tuple(zip(*(scale.coordinates(column).tolist() for scale, column in columns), strict=True))
        gains = self.gains or tuple(tuple(FULL * (label == one) for one in self.choices) for label in self.labels)
        return {
            "points": points, "labels": self.choices, "k": self.k, "full": FULL, "gains": gains,
            "by_distance": self.weights == "distance", "weight": _WEIGHT,
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {
            **self.common_json(), "sizes": [[number(v) for v in row] for row in self.points],
            "labels": list(self.labels), "k": self.k, "weights": self.weights,
            **({"columns": list(self.columns), "gains": [list(row) for row in self.gains]} if self.gains else {}),
        }  # fmt: skip


def nearest(data: Sequence[str], rows: Sequence[Sequence[float]], labels: Sequence[int]) -> Knn:
    """The label of the nearest point, without training."""
    order = sorted(range(len(rows)), key=lambda i: tuple(rows[i]))
    points, y = tuple(tuple(rows[i]) for i in order), tuple(int(labels[i]) for i in order)
    return Knn(tuple(data), scales_of(rows), points, y, 1, "uniform")


def fit(examples: Examples, seed: int = 0) -> Knn:
    """Choose k from 1 to the number of labels (as in the paper on the tridiagonal method), or to 9 if gains are known,
    and the weights, by cross-validation."""
    rows, shared = examples.rows, examples.shared
    one = nearest(examples.data, rows, examples.labels)
    order = sorted(range(len(rows)), key=lambda i: rows[i])
    gains = Gains(examples.gains.labels, examples.gains.matrix[order])
    smallest_part = len(rows) - -(-len(rows) // min(FOLDS, len(rows)))
    most = max(1, min(max(len(gains.labels), _MOST if shared else 1), smallest_part))
    grid = list(product(range(1, most + 1), ("uniform", "distance")))
    x = coordinates(one.points, one.scales)
    k, weights = best_candidate(grid, _choose, x, gains.matrix, seed)
    kept = replace(one, k=k, weights=weights)
    return replace(kept, columns=gains.labels, gains=gains.rows) if shared else kept


def _choose(candidates: Sequence[tuple[int, str]], x: Any, matrix: Any, asked: Any) -> Any:
    """The `choose` of `best_candidate`, with the rule of `Knn`."""
    most = max(k for k, _ in candidates)
    apart = ((asked[:, None, :] - x[None, :, :]) ** 2).sum(axis=2)
    near = np.argsort(apart, axis=1, kind="stable")[:, :most]
    closeness = 1 / np.maximum(np.sqrt(np.take_along_axis(apart, near, axis=1)), 1e-30)
    scores = {"uniform": matrix[near], "distance": matrix[near] * closeness[:, :, None]}
    best = {weights: of.cumsum(axis=1).argmax(axis=2) for weights, of in scores.items()}
    return np.array([best[weights][:, k - 1] for k, weights in candidates])


class Row(SelectorRow, tag="knn", frozen=True, kw_only=True):
    """The representation in a tuned file."""

    points: tuple[tuple[Real, ...], ...] = msgspec.field(name="sizes")
    labels: tuple[Label, ...]
    k: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    weights: Literal["uniform", "distance"]
    columns: tuple[Label, ...] = ()
    gains: tuple[tuple[Gain, ...], ...] = ()


def read(row: Row) -> Knn:
    """Raises ValueError."""
    lengths = {len(point) for point in row.points}
    if lengths != {len(row.data)} or len(row.labels) != len(row.points) or row.k > len(row.points):
        raise ValueError("a knn selector whose arrays differ in length")
    if row.columns and ([len(g) for g in row.gains] != [len(row.columns)] * len(row.points)):
        raise ValueError("a knn selector whose gains do not match its points and columns")
    return Knn(
        row.data, row.read_scales(), row.points, row.labels, row.k, row.weights, row.columns,
        row.gains if row.columns else (),
    )  # fmt: skip
