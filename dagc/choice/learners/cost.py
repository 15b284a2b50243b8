"""A regressor of the time of each choice: a line through the logarithms, and a forest of what it leaves over.

The least expected time is chosen, as in portfolios of algorithms (SATzilla, Xu et al. 2008). A choice that failed at a
training point counts as ten times the slowest there (PAR10).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec

from dagc.base.errors import counted
from dagc.choice import nodes
from dagc.choice.gains import Examples
from dagc.choice.selector import UNIT, Answer, Scale, Selector, ranked

SUMMARY = "predicted times"
TREES, LEAF = 31, 2  # least points of a leaf
PENALTY = 10.0  # times the slowest: a choice that failed
BEYOND = 2.0  # of a coordinate: as far outside of the trained range the line goes on
# Of the ridge regressions of the mean over the choices, and of what each differs from it: chosen on six tables, where
# lines that are free to differ ranked choices worse at families of inputs that were held out.
ALPHAS, OWN_ALPHAS = (0.01, 0.1, 1.0, 10.0, 100.0), (1e2, 1e3, 1e4)
_SHORTEST = 1e-30  # an energy may be 0
_SLOPE = 1 << 20  # a slope of 1, so that a line is in units of _ONE
_ONE = _SLOPE * UNIT  # a factor of 2 in time
# Magnitudes, so that the sum of a start, 16 products and a leaf, and that of 1000 leaves, stay below 2**63.
_MOST_SLOPE, _MOST_PLACE, _MOST_START, _MOST_LEAF = 1 << 26, 1 << 31, 1 << 60, 1 << 52


@dataclass(frozen=True, slots=True)
class Cost(Selector):
    """Logarithms to base 2 of seconds, in units of 2**-42.

    Of each of `labels`: `starts`, and `slopes` (a row for each) times the coordinates within `lows` and `highs`; and
    the mean over the trees, whose leaves are rows of `leaves`.
    """

    method: ClassVar[str] = "cost"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    labels: tuple[int, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]
    starts: tuple[int, ...]
    slopes: tuple[tuple[int, ...], ...]
    leaves: tuple[tuple[int, ...], ...]
    roots: tuple[nodes.Node, ...]
    least_sure: float = 0.0

    @property
    def text(self) -> str:
        """`cost of 12 choices, 31 trees`."""
        return f"cost of {counted(len(self.labels), 'choice')}, {counted(len(self.roots), 'tree')}"

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(self.labels)

    @property
    def predicts(self) -> bool:
        """As `Selector.predicts`."""
        return True

    def seconds(self, x: Sequence[float]) -> dict[int, float]:
        """As `Selector.seconds`."""
        logs = ((label, t / _ONE) for label, t in zip(self.labels, self._logs(x)[0], strict=True))
        return {label: 2.0 ** min(max(log, -1000.0), 1000.0) for label, log in logs}

    def ask(self, x: Sequence[float]) -> Answer:
        """The label whose expected time is least, the lowest of equal ones; as sure as the share of the trees that say
        so."""
        logs, each = self._logs(x)
        best = logs.index(min(logs))
        return Answer(self.labels[best], each[best] / len(self.roots))

    def votes(self, x: Sequence[float]) -> dict[int, float]:
        """As `Selector.votes`: the share of the trees for each label."""
        return {self.labels[k]: n / len(self.roots) for k, n in self._logs(x)[1].items()}

    def order(self, x: Sequence[float]) -> tuple[int, ...]:
        """As `Selector.order`."""
        return ranked(self.labels, [-t for t in self._logs(x)[0]])

    def _logs(self, x: Sequence[float]) -> tuple[list[int], Counter[int]]:
        """Of each label, and how many trees alone say that a place among the labels is the best. All in integers."""
        here = [
            min(max(scale.coordinate(v), low), high)
            for scale, v, low, high in zip(self.scales, x, self.lows, self.highs, strict=True)
        ]
        line = [
            start + sum(a * b for a, b in zip(row, here, strict=True))
            for start, row in zip(self.starts, self.slopes, strict=True)
        ]
        rows = [self.leaves[nodes.find_leaf(root, x).label] for root in self.roots]
        each: Counter[int] = Counter()
        for row in rows:
            alone = [t + v for t, v in zip(line, row, strict=True)]
            each[alone.index(min(alone))] += 1
        return [
            t + _mean(sum(column), len(rows)) for t, column in zip(line, zip(*rows, strict=True), strict=True)
        ], each

    def with_fixed(self, fixed: Mapping[int, float], data: Sequence[str]) -> Cost:
        """For vectors without the features at `fixed`, which have these values; `data`: the names of the others."""
        kept = [i for i in range(len(self.data)) if i not in fixed]
        places = {old: new for new, old in enumerate(kept)}
        here = {i: min(max(self.scales[i].coordinate(v), self.lows[i]), self.highs[i]) for i, v in fixed.items()}
        starts = (
            s + sum(row[i] * at for i, at in here.items()) for s, row in zip(self.starts, self.slopes, strict=True)
        )
        return replace(
            self, data=tuple(data), scales=tuple(self.scales[i] for i in kept), lows=tuple(self.lows[i] for i in kept),
            highs=tuple(self.highs[i] for i in kept), starts=tuple(_whole(s, _MOST_START) for s in starts),
            slopes=tuple(tuple(row[i] for i in kept) for row in self.slopes),
            roots=tuple(nodes.with_fixed(root, fixed, places) for root in self.roots),
        )  # fmt: skip

    def view(self) -> dict[str, Any]:
        """As `Selector.view`."""
        return {
            "table": nodes.table(self.roots), "labels": self.labels, "lows": self.lows, "highs": self.highs,
            "starts": self.starts, "slopes": self.slopes, "leaves": self.leaves, "all": len(self.roots), "one": _ONE,
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {
            **self.common_json(), "labels": list(self.labels), "lows": list(self.lows), "highs": list(self.highs),
            "starts": list(self.starts), "slopes": [list(row) for row in self.slopes],
            "leaves": [list(row) for row in self.leaves], "trees": [nodes.node_to_json(root) for root in self.roots],
        }  # fmt: skip


def _mean(total: int, count: int) -> int:
    """Rounded towards 0, as C divides."""
    return total // count if total >= 0 else -(-total // count)


# ---- training ---------------------------------------------------------------------------------


def fit(examples: Examples, seed: int = 0) -> Cost:
    """Ridge regressions of the logarithms of the times, weights by cross-validation, and extremely randomised trees
    (Geurts et al. 2006) of their residuals."""
    import numpy as np

    scales, x = examples.scales, examples.x
    labels = tuple(sorted({label for at in examples.times for label in at}))
    logs = logarithms(examples.times, labels)
    lines = lines_of(x, logs)
    starts = tuple(_whole(start * _ONE, _MOST_START) for start, _ in lines)
    slopes = tuple(tuple(_whole(v * _SLOPE, _MOST_SLOPE) for v in slope) for _, slope in lines)
    residuals = logs - np.array([start + x @ slope for start, slope in lines]).T
    rows: dict[tuple[int, ...], int] = {}

    def leaf(tree: Any, number: int) -> Answer:
        row = tuple(_whole(float(v) * _ONE, _MOST_LEAF) for v in tree.value[number][:, 0])
        return Answer(rows.setdefault(row, len(rows)), 1.0)

    grown = [one.tree_ for one in trained(seed, x, residuals).estimators_]
    roots = tuple(nodes.from_scikit(tree, scales, partial(leaf, tree)) for tree in grown)
    lows, highs = ((x.min(axis=0) - BEYOND) * UNIT, (x.max(axis=0) + BEYOND) * UNIT)
    return Cost(
        examples.data, scales, labels, tuple(map(int, lows)), tuple(map(int, highs)), starts, slopes, tuple(rows),
        roots,
    )  # fmt: skip


def logarithms(times: Sequence[Mapping[int, float]], labels: Sequence[int]) -> Any:
    """Of base 2, a row for each point: PENALTY times the slowest where a label failed."""
    import numpy as np

    rows = []
    for at in times:
        lost = PENALTY * max(at.values())
        rows.append([math.log2(max(at.get(label, lost), _SHORTEST)) for label in labels])
    return np.array(rows)


def lines_of(x: Any, logs: Any) -> list[tuple[float, Any]]:
    """Of each column, where its line begins and its slopes: those of the mean of the columns and those of the rest."""
    mean = logs.mean(axis=1)
    start, slopes = _line(x, mean, ALPHAS)
    return [(start + at, slopes + own) for at, own in (_line(x, column - mean, OWN_ALPHAS) for column in logs.T)]


def _line(x: Any, column: Any, alphas: tuple[float, ...]) -> tuple[float, Any]:
    """Of a ridge regression. Coordinates are scaled to unit variance before."""
    from sklearn.linear_model import RidgeCV

    middle, width = x.mean(axis=0), x.std(axis=0)
    width[width == 0] = 1
    fitted = RidgeCV(alphas).fit((x - middle) / width, column)
    slope = fitted.coef_ / width
    return float(fitted.intercept_ - slope @ middle), slope


def trained(seed: int, x: Any, residuals: Any) -> Any:
    """scikit-learn's forest of what the lines leave over."""
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, random_state=seed).fit(
        x, residuals if residuals.shape[1] > 1 else residuals[:, 0]
    )


def _whole(value: float, most: int) -> int:
    return max(-most, min(round(value), most))


# ---- as a tuned file keeps it -------------------------------------------------------------------

_Place = Annotated[int, msgspec.Meta(ge=-_MOST_PLACE, le=_MOST_PLACE)]
_Slope = Annotated[int, msgspec.Meta(ge=-_MOST_SLOPE, le=_MOST_SLOPE)]
_Start = Annotated[int, msgspec.Meta(ge=-_MOST_START, le=_MOST_START)]
_Leaf = Annotated[int, msgspec.Meta(ge=-_MOST_LEAF, le=_MOST_LEAF)]


class Row(nodes.SelectorRow, tag="cost", frozen=True, kw_only=True):
    """As a tuned file keeps it."""

    labels: Annotated[tuple[nodes.Label, ...], msgspec.Meta(min_length=1, max_length=1000)]
    lows: tuple[_Place, ...]
    highs: tuple[_Place, ...]
    starts: tuple[_Start, ...]
    slopes: tuple[tuple[_Slope, ...], ...]
    leaves: Annotated[tuple[tuple[_Leaf, ...], ...], msgspec.Meta(min_length=1, max_length=100_000)]
    trees: Annotated[tuple[nodes.Row, ...], msgspec.Meta(min_length=1, max_length=1000)]


def read(row: Row) -> Cost:
    """Raises ValueError."""
    d, c = len(row.data), len(row.labels)
    trees = tuple(nodes.node_of(tree, d) for tree in row.trees)
    if {len(row.lows), len(row.highs), *map(len, row.slopes)} != {d} or len(row.slopes) != c:
        raise ValueError("a cost selector whose lines are not of its features and labels")
    if len(row.starts) != c or {len(leaf) for leaf in row.leaves} != {c} or list(row.labels) != sorted({*row.labels}):
        raise ValueError("a cost selector whose parts are not those of its labels")
    if any(low > high for low, high in zip(row.lows, row.highs, strict=True)):
        raise ValueError("a cost selector without a range")
    if max(leaf.label for root in trees for leaf in nodes.leaves(root)) >= len(row.leaves):
        raise ValueError("a cost selector with leaves that have no times")
    return Cost(row.data, row.read_scales(), row.labels, row.lows, row.highs, row.starts, row.slopes, row.leaves, trees)
