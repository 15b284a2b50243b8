"""Learned selectors: functions from a vector of features (float64) to the number of a choice.

Selectors work on coordinates: integers that `Scale` computes from the features without rounding errors. Python and C
therefore compare the same numbers, and ties do not depend on a mathematical library.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from dagc.base.errors import UsageError, counted
from dagc.choice.types import Case
from dagc.ir.plan import FAR
from dagc.ir.program import Program

FEWEST = 3  # training points
FRACTION = 22  # fractional bits of a coordinate: a squared distance in one dimension is below 2**58
UNIT = 1 << FRACTION
MOST_FEATURES = 16  # so that the sum of the squares stays below 2**63
_LARGEST = 2.0**63  # larger features count as this
_SPREAD = 8  # units of a linear feature over its trained range, as if its logarithm spanned a factor of 2**8
_LOG_NEAR, _LINEAR_NEAR = 2.0**-28, 2.0**-45  # relative error bound of the formula for the feature of a coordinate
_UNREAD = 21  # the last bits of a mantissa, which `log2_fixed` does not read
_BEYOND = 16  # number of widths outside of that range at which values are clamped


class Answer(NamedTuple):
    """The number of a choice and the confidence of the selector: the fraction of the evidence for it, in (0, 1]."""

    label: int
    sure: float


@dataclass(frozen=True, slots=True)
class Scale:
    """The conversion of a feature to a coordinate, an integer in units of 2**-22.

    `log`: the logarithm to base 2; values below `low` (> 0) count as `low`. `linear`: `low` to `high` is 8 units.
    """

    kind: Literal["log", "linear"] = "log"
    low: float = 1.0
    high: float = 0.0

    @property
    def factor(self) -> float:
        """Units of a linear coordinate per unit of the feature."""
        return _SPREAD * UNIT / ((self.high - self.low) or 1.0)

    @property
    def limits(self) -> tuple[float, float]:
        """Values outside are clamped to the nearer limit."""
        if self.kind == "log":
            return self.low, _LARGEST
        width = (self.high - self.low) or 1.0
        return self.low - _BEYOND * width, self.high + _BEYOND * width

    def coordinate(self, x: float) -> int:
        """The coordinate of a finite feature; monotonic in the feature."""
        low, high = self.limits
        x = min(max(x, low), high)
        return log2_fixed(x) if self.kind == "log" else math.floor((x - self.low) * self.factor)

    def near(self, x: float) -> int:
        """The coordinate within two units; not necessarily monotonic in the feature."""
        return log2_near(min(max(x, self.low), _LARGEST)) if self.kind == "log" else self.coordinate(x)

    def largest_below(self, threshold: float) -> float:
        """The largest feature whose coordinate, in units, is at most the threshold."""
        least, most = self.limits
        first = math.floor(threshold * UNIT) + 1  # the first coordinate above
        if not self.coordinate(least) < first <= self.coordinate(most):
            return most if self.coordinate(most) < first else least
        log = self.kind == "log"
        about = 2.0 ** (first / UNIT) if log else self.low + first / self.factor
        width = _LOG_NEAR * about if log else _LINEAR_NEAR * (abs(about) + abs(least) + abs(most))
        near = (max(about - width, least), min(about + width, most))
        if not self.coordinate(near[0]) < first <= self.coordinate(near[1]):
            near = self.limits
        unread = _UNREAD if log else 0
        low, high = (_bits(x) >> unread for x in near)
        while low < high:
            middle = low + (high - low + 1) // 2
            if self.coordinate(_from_bits(middle << unread)) < first:
                low = middle
            else:
                high = middle - 1
        return _from_bits((low + 1 << unread) - 1)


def _bits(x: float) -> int:
    """An integer that is monotonic in the number."""
    (bits,) = struct.unpack("<q", struct.pack("<d", x + 0.0))
    return int(bits if bits >= 0 else -(bits & (2**63 - 1)))


def _from_bits(bits: int) -> float:
    magnitude: float = struct.unpack("<d", struct.pack("<q", abs(bits)))[0]
    return magnitude if bits >= 0 else -magnitude


def log2_fixed(x: float) -> int:
    """2**22 log2(x) rounded down, within one unit; x > 0. Monotonic in x.

    The integer part is the exponent. Each squaring of the mantissa, which lies in [1, 2) and has 31 bits, gives one
    more bit. The rounding errors of the squares add up to less than 2**-7 units, so the logarithm of the math library
    gives the same result unless the next unit is that close.
    """
    near = math.log2(x) * UNIT
    result = math.floor(near - 2.0**-7)
    if result == math.floor(near + 2.0**-16):
        return result
    mantissa, exponent = math.frexp(x)
    part, result = int(mantissa * 2.0**32), exponent - 1
    for _ in range(FRACTION):
        part = part * part >> 31
        result *= 2
        if part >> 32:
            part >>= 1
            result += 1
    return result


LOG2 = (774535969, 193787467, 62980716, 31894440, -10831372, 34829004, -23263435, 9809035)
LOG2_FRACTION = 30  # 2**30 (1 - log2(2 - s)) on [0, 1] is s times this polynomial, whose coefficients add up to 2**30


def log2_near(x: float) -> int:
    """2**22 log2(x) within two units, exact at powers of 2; x > 0, not subnormal. It needs one product per coefficient,
    `log2_fixed` one per bit."""
    bits, one = _bits(x), 1 << LOG2_FRACTION
    rest, part = one - (bits >> 52 - LOG2_FRACTION & one - 1), 0
    for coefficient in reversed(LOG2):
        part = coefficient + (part * rest >> LOG2_FRACTION)
    return ((bits >> 52) - 1022) * UNIT - (part * rest >> 2 * LOG2_FRACTION - FRACTION)


EXP2 = (1073741827, 744260852, 257945486, 59571873, 10398316, 1330509, 234782)  # 2**30 2**x on [0, 1]: a polynomial
EXP2_FRACTION = 24  # fractional bits of the result of `exp2_fixed`


def exp2_fixed(t: int) -> int:
    """2**24 * 2**(-t / 2**22) for t >= 0, within two units. Decreasing in t."""
    whole, rest = t >> FRACTION, UNIT - (t & (UNIT - 1))
    result = 0
    for coefficient in reversed(EXP2):
        result = coefficient + (result * rest >> FRACTION)
    return result >> (whole + 31 - EXP2_FRACTION) if whole <= EXP2_FRACTION else 0


def scales_of(rows: Sequence[Sequence[float]]) -> tuple[Scale, ...]:
    """A scale for each column of training points: logarithmic if all values are positive and span a factor of 4, or are
    positive integers such as sizes; else linear."""
    out = []
    for column in zip(*rows, strict=True):
        low, high = min(column), max(column)
        sizes = low >= 1 and all(float(v).is_integer() for v in column)
        if low > 0 and (sizes or high >= 4 * low):
            out.append(Scale("log", min(1.0, float(low))))
        else:
            out.append(Scale("linear", float(low), float(high)))
    return tuple(out)


class Selector:
    """A selector. Frozen; made by `dagc.choice.methods.fit`, or from the row of a tuned file.

    The class of a learner defines `ask`, `answers`, `text`, `view` and `to_json`, and the fields `data` (names of the
    features of its vector, in order), `scales` (one for each) and `least_sure`, the confidence below which the default
    is better on average (`dagc.study.train.least_sure`). It may override `votes`.
    """

    method: ClassVar[str]
    data: tuple[str, ...]
    scales: tuple[Scale, ...]
    least_sure: float

    @property
    def text(self) -> str:
        """A short description: `knn, k = 1`."""
        raise NotImplementedError

    @property
    def answers(self) -> frozenset[int]:
        """All numbers that `choose` may return."""
        raise NotImplementedError

    def ask(self, x: Sequence[float]) -> Answer:
        """The choice for a vector of features, all of which are finite."""
        raise NotImplementedError

    def votes(self, x: Sequence[float]) -> Mapping[int, float]:
        """The fraction of the evidence for each choice, at least for that of `ask`."""
        answer = self.ask(x)
        return {answer.label: answer.sure}

    def order(self, x: Sequence[float]) -> tuple[int, ...]:
        """The choices that it may return, the best first; the first is that of `ask`. If several are equal, the lowest
        comes first."""
        raise NotImplementedError

    @property
    def predicts(self) -> bool:
        """Whether it predicts the time of each choice: `seconds`, and in C the function of
        `dagc.choice.choose.chooser_c`."""
        return False

    def seconds(self, x: Sequence[float]) -> Mapping[int, float]:
        """The expected time of each choice that was timed in training, in the unit of the training's times. Only for
        selectors that predict times."""
        raise NotImplementedError

    def view(self) -> dict[str, Any]:
        """The view for the template `choice/METHOD.h.j2`."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The representation in a tuned file; `dagc.choice.methods.from_json` reads it."""
        raise NotImplementedError

    def choose(self, x: Sequence[float]) -> int:
        """The number of the choice."""
        return self.ask(x).label

    def c_text(self, site: str, ranked: bool = False) -> str:
        """C99 (and C++): `static inline int dagc_select_SITE(const double* x, double* sure)`, with its helpers. `site`:
        its identifier. `ranked`: also `int dagc_preferred_SITE(const double* x, int* order)`, which returns the number
        of choices and fills in `order`."""
        from dagc.emit.render import render  # loads jinja2

        view = {"site": site, "scales": self.scales, "ranked": ranked}
        return render(f"choice/{self.method}.h.j2", **view, **self.view())

    def common_json(self) -> dict[str, Any]:
        """The part of `to_json` that all selectors have. Scales of sizes are omitted, as in older files."""
        scales = [[s.kind, s.low, s.high] for s in self.scales]
        plain = all(s == Scale() for s in self.scales)
        common = {"method": self.method, "data": list(self.data)} | ({} if plain else {"scales": scales})
        return common | ({"least_sure": self.least_sure} if self.least_sure else {})


def ranked(labels: Sequence[int], scores: Sequence[int]) -> tuple[int, ...]:
    """The labels by decreasing gain; stable for equal ones."""
    return tuple(labels[i] for i in sorted(range(len(labels)), key=lambda i: -scores[i]))


def coordinates(rows: Sequence[Sequence[float]], scales: Sequence[Scale]) -> Any:
    """The training matrix: coordinates in units, a row for each training point."""
    import numpy as np

    return np.array([[s.coordinate(v) / UNIT for s, v in zip(scales, row, strict=True)] for row in rows], float)


def check_training(data: Sequence[str], rows: Sequence[Sequence[float]], labels: Sequence[int]) -> None:
    """Raises UsageError for no features or too many, fewer than three points, numbers that are not finite, or points
    given twice."""
    if len(rows) < FEWEST or len(rows) != len(labels):
        raise UsageError(
            f"{counted(len(rows), 'size')} and {counted(len(labels), 'label')}",
            f"give {FEWEST} or more, a label for each size",
        )
    if not data or any(len(row) != len(data) for row in rows):
        raise UsageError("no sizes to choose by, or not as many as have names", "name each size of a training point")
    if len(data) > MOST_FEATURES:
        raise UsageError(f"{len(data)} features", f"choose by {MOST_FEATURES} at most")
    if not all(math.isfinite(v) for row in rows for v in row):
        raise UsageError("a feature that is not a finite number", "check its expression: it may divide by zero")
    if len({tuple(row) for row in rows}) != len(rows):
        raise UsageError("a size that is given twice", "give different sizes")


def number(value: float) -> int | float:
    """The representation in a tuned file: integers without a fraction."""
    return int(value) if float(value).is_integer() and abs(value) < 2.0**53 else float(value)


# ---- how far features lie outside of the measured ranges; in C: `choice/head.h.j2` ----


@dataclass(frozen=True, slots=True)
class Extent:
    """The least and the largest measured value of each feature: (name, low, high)."""

    ranges: tuple[tuple[str, float, float], ...]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, float]]) -> Extent:
        """The extent of measured features by name; a row may lack some names."""
        ranges: dict[str, list[float]] = {}
        for row in rows:
            for name, value in row.items():
                ranges.setdefault(name, []).append(value)
        return cls(tuple((name, min(values), max(values)) for name, values in ranges.items()))

    @property
    def text(self) -> str:
        """`ni 256 to 8192, nj 1024`."""
        return ", ".join(
            f"{n} {_shown(low)}" + (f" to {_shown(high)}" if high > low else "") for n, low, high in self.ranges
        )

    def beyond(self, values: Mapping[str, float]) -> dict[str, float]:
        """The factor by which each feature lies outside of its measured range, 1 inside. Names without a range are
        omitted."""
        return {name: beyond(values[name], low, high) for name, low, high in self.ranges if name in values}

    def warning(self, values: Mapping[str, float]) -> str:
        """One line if a feature lies more than FAR times outside, else ""."""
        excess = self.beyond(values)
        worst = max(excess, key=lambda name: excess[name], default="")
        if not worst or excess[worst] <= FAR:
            return ""
        return (
            f"{worst} = {_shown(values[worst])} is {excess[worst]:.3g} times outside the measured sizes"
            f" ({self.text}): the choice may be slow; add it with `dagc tune --resume --sizes`"
        )


def beyond(x: float, low: float, high: float) -> float:
    """The factor by which a value lies outside of [low, high], 1 inside."""
    width = high - low if high > low else 1
    if x > high:
        return x / high if high > 0 else 1 + (x - high) / width
    if x < low:
        return low / x if x > 0 else 1 + (low - x) / width
    return 1.0


def _shown(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.4g}"


def far_parameters(program: Program, timed: Iterable[Case]) -> tuple[str, ...]:
    """Warnings about parameters of the program that lie far outside of the sizes that were timed."""
    extent = Extent.of(case.sizes for case in timed)
    sizes = {p.name: p.value for p in program.params if isinstance(p.value, int) and not isinstance(p.value, bool)}
    warning = extent.warning(sizes)
    return (warning,) if warning else ()
