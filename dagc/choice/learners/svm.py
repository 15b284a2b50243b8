"""Support vector machines with radial basis functions, one against one, trained with scikit-learn (libSVM).

Features are scaled to [-1, 1] over their trained range and clamped outside, as in Nitro (Muralidharan et al. 2014,
section III). All run-time arithmetic is in integers, so that Python and C agree: scaled features in units of 2**-20,
the kernel in 2**-24, coefficients in 2**-20. Decisions differ from those of libSVM by less than its tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Annotated, Any, ClassVar

import msgspec

from dagc.base.python import np
from dagc.choice.methods import Examples, best_candidate
from dagc.choice.nodes import Label, SelectorRow
from dagc.choice.selector import EXP2_FRACTION, SHARE_BITS, UNIT, Scale, Selector, shares, trained_ranges
from dagc.perf.chart import Chart, FlowBox

SUMMARY = "a support vector machine"
_GAMMA = 16  # binary digits behind the point of gamma * log2(e)
_COEFFICIENT = 20  # fractional bits of a coefficient
_LARGEST = 1 << 38  # sum of the coefficients' magnitudes of a pair, so that a decision stays below 2**63
ONE = 1 << (_COEFFICIENT + EXP2_FRACTION)  # a decision of 1, the edge of the margin
COSTS, WIDTHS = (1.0, 8.0, 64.0, 512.0), (0.125, 0.5, 2.0)  # C and gamma of the grid


@dataclass(frozen=True, slots=True)
class Pair:
    """Decides between two labels (indices among the labels): `first` if the sum is positive.

    The sum is `offset` plus the coefficients times the kernels of the support vectors at `places`.
    """

    first: int
    second: int
    offset: int
    places: tuple[int, ...]
    coefficients: tuple[int, ...]


@dataclass(frozen=True)
class Svm(Selector):
    """`points`: support vectors, scaled. `lows`, `widths`: the trained range of each coordinate. `gamma`: that of the
    kernel exp(-gamma d**2), times log2(e), in units of 2**-16.

    The label that wins against most others is chosen, the lowest if several are equal. The confidence is that of its
    closest decision: 0.5 at the boundary, 1 from the edge of the margin on; so is the evidence for each label."""

    method: ClassVar[str] = "svm"
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    lows: tuple[int, ...]
    widths: tuple[int, ...]
    gamma: int
    labels: tuple[int, ...]
    points: tuple[tuple[int, ...], ...]
    pairs: tuple[Pair, ...]
    least_sure: float = 0.0

    @property
    def text(self) -> str:
        """`svm of 17 support vectors, gamma 0.5`."""
        return f"svm of {len(self.points)} support vectors, gamma {self.gamma * math.log(2) / (1 << _GAMMA):.3g}"

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(self.labels)

    def chart(self, answers: Sequence[str]) -> Chart:
        """As `Selector.chart`."""
        ranges = zip(self.data, self.scales, self.lows, self.widths, strict=True)
        scaled = [_scaled(name, s, low / UNIT, (low + width) / UNIT) for name, s, low, width in ranges]
        unit = 1 << (SHARE_BITS - 1)
        points = [", ".join(f"{place / unit - 1:.6g}" for place in point) for point in self.points]
        parts = [FlowBox((f"features scaled to -1 ... 1, clamped outside: {', '.join(scaled)}",))]
        for pair in self.pairs:
            first, second = (answers[self.labels[i]] for i in (pair.first, pair.second))
            sums = zip(pair.coefficients, pair.places, strict=True)
            terms = [f"  + {c / (1 << _COEFFICIENT):.6g} * K({points[i]})" for c, i in sums]
            parts.append(
                FlowBox((f"{first} wins over {second} where {pair.offset / ONE:.6g}", *terms, "  is positive"))
            )
        kernel = f"K(p) = exp(-{self.gamma * math.log(2) / (1 << _GAMMA):.6g} * |x - p|**2)"
        last = "the answer that wins most" if self.pairs else f"always {answers[self.labels[0]]}"
        return (*parts, FlowBox((kernel, last)))

    def view(self) -> dict[str, Any]:
        """As `Selector.view`."""
        begin = [0]
        for pair in self.pairs:
            begin.append(begin[-1] + len(pair.places))
        places = [i for p in self.pairs for i in p.places]
        return {
            "points": self.points if places else (),
            "labels": self.labels,
            "pairs": self.pairs,
            "lows": self.lows,
            "widths": self.widths,
            "gamma": self.gamma,
            "one": ONE,
            "begin": begin,
            "places": places,
            "coefficients": [c for p in self.pairs for c in p.coefficients],
        }

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        pairs = [[p.first, p.second, p.offset, list(p.places), list(p.coefficients)] for p in self.pairs]
        return {
            **self.common_json(), "lows": list(self.lows), "widths": list(self.widths), "gamma": self.gamma,
            "labels": list(self.labels), "points": [list(row) for row in self.points], "pairs": pairs,
        }  # fmt: skip


def _scaled(name: str, scale: Scale, low: float, high: float) -> str:
    """The range of a feature, from those of its coordinate."""
    return f"{scale.text(name)} {low:.6g} to {high:.6g}"


# ---- training ---------------------------------------------------------------------------------


def fit(examples: Examples, seed: int = 0) -> Svm:
    """libSVM's classes are the best labels; C and gamma are chosen by cross-validation of the gains. (Weighting points
    by the cost of a wrong label was worse for families of inputs that were not used for training.)"""
    rows, scales, gains = examples.rows, examples.scales, examples.gains
    lows, widths = trained_ranges(rows, scales)
    points = shares(rows, scales, lows, widths)
    x = np.array(points, float) / (1 << (SHARE_BITS - 1)) - 1
    costs = [c for c in COSTS if c * len(rows) <= 1 << 17] or [1.0]  # so that a decision fits into 64 bits
    cost, width = best_candidate(list(product(costs, WIDTHS)), _choose, x, gains.matrix, seed)
    parts = (examples.data, scales, lows, widths, _fixed(width))
    machine = trained(cost, width, x, gains.matrix)
    if machine is None:
        return Svm(*parts, (gains.labels[int(gains.best[0])],), (), ())
    kept = tuple(points[i] for i in machine.support_)
    return Svm(*parts, tuple(gains.labels[c] for c in machine.classes_), kept, tuple(_pairs(machine)))


def trained(cost: float, width: float, x: Any, matrix: Any) -> Any:
    """scikit-learn's SVC on scaled features, whose classes are columns; None if all points have the same best
    column."""
    from sklearn.svm import SVC

    best = matrix.argmax(axis=1)
    if (best == best[0]).all():
        return None
    return SVC(C=cost, gamma=_fixed(width) * math.log(2) / (1 << _GAMMA)).fit(x, best)


def _choose(candidates: Sequence[tuple[float, float]], x: Any, matrix: Any, asked: Any) -> Any:
    """The `choose` of `best_candidate`."""
    machines = [trained(*candidate, x, matrix) for candidate in candidates]
    return np.array([m.predict(asked) if m else [matrix[0].argmax()] * len(asked) for m in machines])


def _fixed(width: float) -> int:
    """gamma in the selector's fixed-point format."""
    return round(width / math.log(2) * (1 << _GAMMA))


def _pairs(machine: Any) -> Iterator[Pair]:
    """libSVM's one-against-one decisions: the coefficients of a class against each other class are in rows."""
    ends = [0]
    for count in machine.n_support_:
        ends.append(ends[-1] + int(count))
    rows, offsets = machine.dual_coef_, machine.intercept_
    sign = -1 if len(machine.classes_) == 2 else 1  # scikit-learn inverts the sign for two classes
    for offset, (one, other) in zip(offsets, combinations(range(len(machine.classes_)), 2), strict=True):
        places, coefficients = [], []
        for members, row in ((range(ends[one], ends[one + 1]), other - 1), (range(ends[other], ends[other + 1]), one)):
            for i in members:
                if value := round(sign * float(rows[row, i]) * (1 << _COEFFICIENT)):
                    places.append(i)
                    coefficients.append(value)
        yield Pair(one, other, round(sign * float(offset) * ONE), tuple(places), tuple(coefficients))


# ---- as a tuned file keeps it -------------------------------------------------------------------

_Places = tuple[Annotated[int, msgspec.Meta(ge=0, le=100_000)], ...]
_Small = Annotated[int, msgspec.Meta(ge=0, le=1000)]
_Share = Annotated[int, msgspec.Meta(ge=0, le=1 << SHARE_BITS)]
_Coordinate = Annotated[int, msgspec.Meta(ge=-(1 << 40), le=1 << 40)]


class PairRow(msgspec.Struct, array_like=True, frozen=True):
    """As `Pair`."""

    first: _Small
    second: _Small
    offset: Annotated[int, msgspec.Meta(ge=-(1 << 61), le=1 << 61)]
    places: _Places
    coefficients: tuple[Annotated[int, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)], ...]


class Row(SelectorRow, tag="svm", frozen=True, kw_only=True):
    """The representation in a tuned file."""

    lows: tuple[_Coordinate, ...]
    widths: tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 40)], ...]
    gamma: Annotated[int, msgspec.Meta(ge=1, le=1 << 22)]
    labels: Annotated[tuple[Label, ...], msgspec.Meta(min_length=1, max_length=1000)]
    points: tuple[tuple[_Share, ...], ...]
    pairs: tuple[PairRow, ...]


def read(row: Row) -> Svm:
    """Raises ValueError."""
    d = len(row.data)
    pairs = tuple(Pair(p.first, p.second, p.offset, p.places, p.coefficients) for p in row.pairs)
    if [(p.first, p.second) for p in pairs] != list(combinations(range(len(row.labels)), 2)):
        raise ValueError("an svm selector without one decision for each pair of labels")
    if {len(row.lows), len(row.widths), *map(len, row.points)} != {d}:
        raise ValueError("an svm selector whose arrays differ in length")
    for p in pairs:
        if len(p.places) != len(p.coefficients) or any(i >= len(row.points) for i in p.places):
            raise ValueError("an svm selector with coefficients of missing vectors")
        if sum(map(abs, p.coefficients)) > _LARGEST:
            raise ValueError("an svm selector whose decisions do not fit into 64 bits")
    return Svm(row.data, row.read_scales(), row.lows, row.widths, row.gamma, row.labels, row.points, pairs)
