"""A regressor of the time of each choice: a trend (a line through the logarithms, or a sum of features and possibly
their products) plus a tree for the residuals.

The least expected time is chosen, as in portfolios of algorithms (SATzilla, Xu et al. 2008). A choice that failed at a
training point counts as ten times the slowest there (PAR10). The tree approximates a forest: it is trained on the
forest's predictions at many points between the training points (model compression, Bucila, Caruana and Niculescu-Mizil
2006).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from dagc.base.errors import counted
from dagc.choice import nodes, trends
from dagc.choice.methods import Examples
from dagc.choice.selector import EXP2_FRACTION, MOST_FEATURES, Answer, Scale, Selector
from dagc.perf.chart import Chart, FlowBox

SUMMARY = "predicted times"
TREES, LEAF = 31, 2  # trees of the forest; least points of a leaf
DRAWN, MOST_DRAWN = 16, 20_000  # points on which the tree is trained, per training point and in total
MOST_LEAVES = 4000
NEAR, MIXED, STRETCH = 10, 3, 1.5  # nearest neighbours, how many of them are mixed, how far mixtures reach
PENALTY = 10.0  # penalty of a choice that failed, times the slowest
_SHORTEST = 1e-30  # an energy may be 0
ALL = 1 << EXP2_FRACTION
_MOST_LEAF = 1 << 52  # so that the sum of a trend and 1000 leaves stays below 2**63


@dataclass(frozen=True)
class Cost(Selector):
    """Logarithms to base 2 of seconds, in units of 2**-42.

    Each of `labels` has its trend plus the mean over the trees, whose leaves are row indices of `leaves`. The label
    with the least time is chosen, the lowest if several are equal; the confidence is the time of the second best over
    the sum of both. The evidence for a label is proportional to its speed.
    """

    method: ClassVar[str] = "cost"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    labels: tuple[int, ...]
    trend: trends.Trend
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

    def chart(self, answers: Sequence[str]) -> Chart:
        """As `Selector.chart`."""
        names = [answers[label] for label in self.labels]
        texts = trends.texts(self.trend, self.data, self.scales)

        def leaf(at: Answer | nodes.Leaf) -> list[str]:
            row = zip(names, self.leaves[at.label], strict=True)
            return [f"{name}: x {2 ** (value / len(self.roots) / trends.ONE):.4g}" for name, value in row]

        trees = [part for root in self.roots for part in nodes.chart(root, self.data, leaf)]
        first = FlowBox(tuple(f"{name}: {text}" for name, text in zip(names, texts, strict=True)))
        return (first, *trees, FlowBox(("the answer with the least product",)))

    def with_fixed(self, fixed: Mapping[int, float], data: Sequence[str]) -> Cost:
        """The same selector for vectors without the features at `fixed`, which have these values; `data`: the names of
        the others."""
        kept = [i for i in range(len(self.data)) if i not in fixed]
        places = {old: new for new, old in enumerate(kept)}
        return replace(
            self, data=tuple(data), scales=tuple(self.scales[i] for i in kept),
            trend=self.trend.with_fixed(self.scales, fixed),
            roots=tuple(nodes.with_fixed(root, fixed, places) for root in self.roots),
        )  # fmt: skip

    def times(self, factors: Mapping[int, float]) -> Cost:
        """The same selector with the expected time of each choice multiplied by its factor; 1 if it has none."""
        more = [trends.whole(math.log2(factors.get(label, 1.0)) * trends.ONE, _MOST_LEAF) for label in self.labels]
        leaves = (
            tuple(max(-_MOST_LEAF, min(_MOST_LEAF, v + add)) for v, add in zip(row, more, strict=True))
            for row in self.leaves
        )
        return replace(self, leaves=tuple(leaves))

    def view(self) -> dict[str, Any]:
        """As `Selector.view`."""
        rows, roots = nodes.table(self.roots)
        return {
            "nodes": rows.tolist(), "roots": roots.tolist(), "labels": self.labels, "trend": self.trend,
            "leaves": self.leaves, "all": len(self.roots), "one": trends.ONE, "slope": trends.SLOPE,
            "bounds": (trends.SHORTEST, trends.LARGEST), "sums": isinstance(self.trend, trends.SumTrend), "full": ALL,
            "alone": trends.MOST_START,
        }  # fmt: skip

    def tables(self) -> tuple[Any, ...]:
        """As `Selector.tables`."""
        return (*nodes.table(self.roots), np.array(self.leaves, np.int64))

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {
            **self.common_json(), "labels": list(self.labels), **asdict(self.trend),
            "leaves": [list(row) for row in self.leaves], "trees": [nodes.node_to_json(root) for root in self.roots],
        }  # fmt: skip


# ---- training ---------------------------------------------------------------------------------


def fit(examples: Examples, seed: int = 0) -> Cost:
    """The trend of each choice (`dagc.choice.trends`), and the tree for the residuals of the logarithms of the
    times."""

    scales, x, features = examples.scales, examples.x, np.array(examples.rows, float)
    labels = tuple(sorted({label for at in examples.times for label, seconds in at.items() if seconds < math.inf}))
    logs = logarithms(examples.times, labels)
    seconds = np.array([[at.get(label, math.nan) for label in labels] for at in examples.times])
    trend = trends.trend_of(x, features, logs, np.isfinite(seconds), seed)
    rows: dict[tuple[int, ...], int] = {}

    def leaf(tree: Any, number: int) -> Answer:
        row = tuple(trends.whole(float(v) * trends.ONE, _MOST_LEAF) for v in tree.value[number][:, 0])
        return Answer(rows.setdefault(row, len(rows)), 1.0)

    # An answer that a constraint excludes is never chosen at the point, so its value there is the trend.
    left = np.where(np.isinf(seconds), 0, logs - trends.logs_of(trend, x, features))
    grown = distilled(x, trained(seed, x, left), seed).tree_
    root = nodes.from_scikit(grown, scales, partial(leaf, grown))
    return Cost(examples.data, scales, labels, trend, tuple(rows), (root,))


def distilled(x: Any, forest: Any, seed: int) -> Any:
    """scikit-learn's regression tree, trained on the predictions of a forest at and between the training points."""
    from sklearn.tree import DecisionTreeRegressor

    points = np.concatenate([x, between(x, min(DRAWN * len(x), MOST_DRAWN), seed)])
    tree = DecisionTreeRegressor(min_samples_leaf=LEAF, max_leaf_nodes=MOST_LEAVES, random_state=0)
    return tree.fit(points, forest.predict(points))


def between(x: Any, number: int, seed: int) -> Any:
    """Points near those of `x`, shape (number, features): mixtures of a point and MIXED of its NEAR nearest neighbours.

    Mixing in logarithms keeps products of features consistent. The weights are uniform, then moved STRETCH times as far
    from equal weights, so that mixtures extend slightly beyond the points.
    """
    from scipy.spatial import cKDTree

    draw = np.random.default_rng(seed)
    width = x.std(axis=0)
    scaled = x / np.where(width > 0, width, 1)
    near = cKDTree(scaled).query(scaled, k=range(1, min(NEAR + 1, len(x)) + 1))[1]
    first = draw.integers(len(x), size=number)
    others = near[first[:, None], draw.integers(near.shape[1], size=(number, MIXED))]
    weights = draw.dirichlet(np.ones(MIXED + 1), size=number)
    weights = STRETCH * weights + (1 - STRETCH) / (MIXED + 1)
    return weights[:, :1] * x[first] + (weights[:, 1:, None] * x[others]).sum(axis=1)


def logarithms(times: Sequence[Mapping[int, float]], labels: Sequence[int]) -> Any:
    """Logarithms to base 2, a row for each point. A label that failed has PENALTY times the slowest. A label that a
    constraint excludes has the mean of the others at the point, plus its mean excess elsewhere."""

    rows = []
    for at in times:
        succeeded = {label: seconds for label, seconds in at.items() if seconds < math.inf}
        lost = PENALTY * max(succeeded.values())
        rows.append([math.log2(max(succeeded.get(label, lost), _SHORTEST)) for label in labels])
    logs, barred = np.array(rows), np.array([[at.get(label) == math.inf for label in labels] for at in times])
    common = np.where(barred, 0, logs).sum(axis=1, keepdims=True) / (~barred).sum(axis=1, keepdims=True)
    own = np.where(barred, 0, logs - common).sum(axis=0) / (~barred).sum(axis=0)
    return np.where(barred, common + own, logs)


def trained(seed: int, x: Any, residuals: Any) -> Any:
    """scikit-learn's forest for the residuals of the trends: extremely randomised trees (Geurts et al. 2006)."""
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, random_state=seed).fit(
        x, residuals if residuals.shape[1] > 1 else residuals[:, 0]
    )


# ---- as a tuned file keeps it -------------------------------------------------------------------

_Place = Annotated[int, msgspec.Meta(ge=-trends.MOST_PLACE, le=trends.MOST_PLACE)]
_Slope = Annotated[int, msgspec.Meta(ge=-trends.MOST_SLOPE, le=trends.MOST_SLOPE)]
_Start = Annotated[int, msgspec.Meta(ge=-trends.MOST_START, le=trends.MOST_START)]
_Leaf = Annotated[int, msgspec.Meta(ge=-_MOST_LEAF, le=_MOST_LEAF)]
_Positive = Annotated[float, msgspec.Meta(ge=0, le=trends.LARGEST)]
_Index = Annotated[int, msgspec.Meta(ge=0, le=MOST_FEATURES)]
_Terms = Annotated[tuple[tuple[_Positive, _Index, _Index], ...], msgspec.Meta(max_length=1000)]


class Row(nodes.SelectorRow, tag="cost", frozen=True, kw_only=True):
    """The representation in a tuned file: with `slopes` and their ranges, or with `terms`."""

    labels: Annotated[tuple[nodes.Label, ...], msgspec.Meta(min_length=1, max_length=1000)]
    lows: tuple[_Place, ...] = ()
    highs: tuple[_Place, ...] = ()
    starts: tuple[_Start, ...] = ()
    slopes: tuple[tuple[_Slope, ...], ...] = ()
    most: tuple[_Positive, ...] = ()
    terms: tuple[_Terms, ...] = ()
    leaves: Annotated[tuple[tuple[_Leaf, ...], ...], msgspec.Meta(min_length=1, max_length=100_000)]
    trees: Annotated[tuple[nodes.Row, ...], msgspec.Meta(min_length=1, max_length=1000)]


def read(row: Row) -> Cost:
    """Raises ValueError."""
    d, c = len(row.data), len(row.labels)
    trees = tuple(nodes.node_of(tree, d) for tree in row.trees)
    trend = _sums(row, d, c) if row.terms else _line(row, d, c)
    if {len(leaf) for leaf in row.leaves} != {c} or list(row.labels) != sorted({*row.labels}):
        raise ValueError("a cost selector whose parts do not match its labels")
    if max(leaf.label for root in trees for leaf in nodes.leaves(root)) >= len(row.leaves):
        raise ValueError("a cost selector with leaves without times")
    return Cost(row.data, row.read_scales(), row.labels, trend, row.leaves, trees)


def _line(row: Row, features: int, choices: int) -> trends.LineTrend:
    if {len(row.lows), len(row.highs), *map(len, row.slopes)} != {features} or len(row.slopes) != choices:
        raise ValueError("a cost selector whose lines do not match its features and labels")
    if len(row.starts) != choices or row.most:
        raise ValueError("a cost selector whose parts do not match its labels")
    if any(low > high for low, high in zip(row.lows, row.highs, strict=True)):
        raise ValueError("a cost selector without a range")
    return trends.LineTrend(row.lows, row.highs, row.starts, row.slopes)


def _sums(row: Row, features: int, choices: int) -> trends.SumTrend:
    if len(row.terms) != choices or len(row.most) != features or row.lows or row.highs or row.starts or row.slopes:
        raise ValueError("a cost selector whose sums do not match its features and labels")
    terms = [term for of in row.terms for term in of]
    if any(i > features or j > features or factor != trends.shortened(factor) for factor, i, j in terms):
        raise ValueError("a cost selector with a term that uses none of its features")
    return trends.SumTrend(row.most, row.terms)
