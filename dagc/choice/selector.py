"""Learned selectors: functions from a vector of features (float64) to the number of a choice.

Selectors work on coordinates: integers that `Scale` computes from the features without rounding errors, so ties do not
depend on a mathematical library. There is one implementation of both, the C code of emitted programs
(`templates/choice`): Python compiles it once and calls it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

from dagc.base.errors import UsageError, counted
from dagc.base.files import scratch_directory
from dagc.base.python import np
from dagc.base.resources import resource
from dagc.choice.types import Case
from dagc.ir.plan import FAR
from dagc.ir.program import Program
from dagc.perf.chart import Chart
from dagc.perf.cprint import BATCH_HELPERS, HELPERS


@lru_cache(maxsize=64)
def library(text: str, language: str = "c") -> ctypes.CDLL:
    """The compiled text, loaded; compiled once for this machine (the cache of `dagc.build.builder`). `language`: "c",
    or "c++", which may include the headers of the runtime. Raises MissingTool and BuildFailed."""
    from dagc.build.builder import Build, build  # only where a chooser is asked

    with scratch_directory("dagc-choice-") as folder:
        source = folder / "choice.cpp"
        source.write_text(text, encoding="utf-8")
        runtime = resource("templates/runtime")
        order = Build([source], include=[runtime] if language == "c++" else (), shared=True, loaded=language)
        return ctypes.CDLL(str(build(order, folder / "choice.so")))


FEWEST = 3  # training points
FRACTION = 22  # fractional bits of a coordinate: a squared distance in one dimension is below 2**58
UNIT = 1 << FRACTION
MOST_FEATURES = 16  # so that the sum of the squares stays below 2**63
SHARE_BITS = 21  # of a feature's share of its trained range: `dagc_share` in C
EXP2_FRACTION = 24  # fractional bits of a power of two in C: `dagc_exp2`
_LARGEST = 2.0**63  # larger features count as this
_SPREAD = 8  # units of a linear feature over its trained range, as if its logarithm spanned a factor of 2**8
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

    def text(self, name: str) -> str:
        """The coordinate of a feature as a formula."""
        if self.kind == "log":
            return f"log2({name})"
        return f"{_SPREAD} * ({name} - {self.low:.6g}) / {(self.high - self.low) or 1.0:.6g}"

    def coordinates(self, x: Any, *, near: bool = False) -> Any:
        """The coordinates of finite features, shape (n,), as int64; monotonic in the feature. `near`: within two units,
        which is quicker and not necessarily monotonic."""
        return self._called("dagc_coordinates", x, "float64", "int64", near)

    def coordinate(self, x: float, *, near: bool = False) -> int:
        """`coordinates` of one feature."""
        return int(self.coordinates([x], near=near)[0])

    def largest_below(self, thresholds: Any) -> Any:
        """The largest features whose coordinates, in units, are at most the thresholds; shape (n,)."""
        ends = np.floor(np.asarray(thresholds, np.float64) * UNIT) + 1  # the first coordinates above
        return self._called("dagc_largest_below", np.clip(ends, -(2**62), 2**62), "int64", "float64")

    def _called(self, function: str, values: Any, given: str, returned: str, near: bool = False) -> Any:
        kind, (low, high) = 1 if self.kind == "linear" else 2 * near, self.limits
        scale = _Scale(kind, low, high, self.low, self.factor)
        array = np.ascontiguousarray(values, given)
        out = np.empty(len(array), returned)
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in (array, out))
        getattr(_arithmetic(), function)(ctypes.byref(scale), *pointers, len(array))
        return out


class _Scale(ctypes.Structure):
    """As in `choice/scales.c.j2`."""

    _fields_ = (
        ("kind", ctypes.c_int), ("low", ctypes.c_double), ("high", ctypes.c_double), ("zero", ctypes.c_double),
        ("factor", ctypes.c_double),
    )  # fmt: skip


@cache
def _arithmetic() -> ctypes.CDLL:
    """The arithmetic of coordinates in C."""
    from dagc.emit.render import render  # loads jinja2

    return library(render("choice/scales.c.j2", fraction=FRACTION, exp2_fraction=EXP2_FRACTION))


def c_head() -> str:
    """C99: definitions shared by all selectors and choosers of a file."""
    from dagc.emit.render import render  # loads jinja2

    helpers = HELPERS + BATCH_HELPERS
    return render("choice/head.h.j2", helpers=helpers, fraction=FRACTION, exp2_fraction=EXP2_FRACTION)


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

    The class of a learner defines `answers`, `text`, `chart`, `view` and `to_json`, and the fields `data` (names of the
    features of its vector, in order), `scales` (one for each) and `least_sure`, the confidence below which the default
    is better on average (`dagc.study.train.least_sure`). Its template `choice/METHOD.h.j2` answers; the methods that
    ask it raise MissingTool without a C compiler.
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

    @property
    def ordered(self) -> frozenset[int]:
        """All numbers that `order` may return."""
        return self.answers

    def chart(self, answers: Sequence[str]) -> Chart:
        """What was learned, to read. `answers`: the text of each choice, by number."""
        raise NotImplementedError

    @property
    def predicts(self) -> bool:
        """Whether it predicts the time of each choice: `seconds`, and in C the function of
        `dagc.choice.choose.chooser_c`."""
        return False

    def view(self) -> dict[str, Any]:
        """The view for the template `choice/METHOD.h.j2`."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The representation in a tuned file; `dagc.choice.methods.from_json` reads it."""
        raise NotImplementedError

    def tables(self) -> tuple[Any, ...]:
        """NumPy arrays that are given to the code when Python asks it, in place of tables in its text: so selectors of
        equal shape have the same text, which is compiled once. Their order is that of the template."""
        return ()

    def c_text(self, site: str, ranked: bool = False, asked: bool = False) -> str:
        """C99 (and C++): `static inline int dagc_select_SITE(const double* x, double* sure)`, with its helpers. `site`:
        its identifier. `ranked`: also `int dagc_preferred_SITE(const double* x, int* order)`, which returns the number
        of choices and fills in `order`. `asked`: for Python, with `dagc_votes_SITE(x, votes)`, and `tables` given."""
        from dagc.emit.render import render  # loads jinja2

        view = {"site": site, "scales": self.scales, "ranked": ranked, "asked": asked}
        return render(f"choice/{self.method}.h.j2", **view, **self.view())

    # ---- asked in C ---------------------------------------------------------------------------

    @cached_property
    def _loaded(self) -> tuple[ctypes.CDLL, int]:
        """The library that has the selector, and its number there."""
        return _library_of([self]), 0

    @cached_property
    def _given(self) -> tuple[Any, tuple[Any, ...]]:
        """Pointers to the `tables`, and these."""
        tables = self.tables()
        return (ctypes.c_void_p * len(tables))(*(table.ctypes.data for table in tables)), tables

    def _call(self, name: str, x: Sequence[float], out: Any) -> Any:
        (loaded, number), (given, _) = self._loaded, self._given
        return getattr(loaded, f"dagc_{name}_{number}")(given, (ctypes.c_double * len(x))(*x), out)

    def ask(self, x: Sequence[float]) -> Answer:
        """The choice for a vector of features, all of which are finite."""
        sure = (ctypes.c_double * 1)()
        return Answer(int(self._call("asked", x, sure)), sure[0])

    def choose(self, x: Sequence[float]) -> int:
        """The number of the choice."""
        return self.ask(x).label

    def order(self, x: Sequence[float]) -> tuple[int, ...]:
        """The choices by the evidence for them, the best first; the first is that of `ask`. Of equal ones, the lowest
        comes first."""
        order = (ctypes.c_int * len(self.ordered))()
        return tuple(order[: self._call("ordered", x, order)])

    def votes(self, x: Sequence[float]) -> dict[int, float]:
        """The fraction of the evidence for each choice, at least for that of `ask`."""
        return self._of_each("voted", x)

    def seconds(self, x: Sequence[float]) -> dict[int, float]:
        """The expected time of each choice that was timed in training, in the unit of the training's times. Only for
        selectors that predict times."""
        return self._of_each("expected", x)

    def _of_each(self, name: str, x: Sequence[float]) -> dict[int, float]:
        """A number for each of the `answers`."""
        values = (ctypes.c_double * (max(self.answers) + 1))()
        self._call(name, x, values)
        return {answer: values[answer] for answer in sorted(self.answers)}

    def common_json(self) -> dict[str, Any]:
        """The part of `to_json` that all selectors have. Scales of sizes are omitted, as in older files."""
        scales = [[s.kind, s.low, s.high] for s in self.scales]
        plain = all(s == Scale() for s in self.scales)
        common = {"method": self.method, "data": list(self.data)} | ({} if plain else {"scales": scales})
        return common | ({"least_sure": self.least_sure} if self.least_sure else {})


def compile_together(selectors: Sequence[Selector]) -> None:
    """Compile selectors that will be asked, at once: that takes a fraction of the time of one after the other."""
    if len(selectors) > 1:
        loaded = _library_of(selectors)
        for number, selector in enumerate(selectors):
            vars(selector)["_loaded"] = loaded, number


def _library_of(selectors: Sequence[Selector]) -> ctypes.CDLL:
    from dagc.emit.render import render  # loads jinja2

    texts = [selector.c_text(str(i), ranked=True, asked=True) for i, selector in enumerate(selectors)]
    predicts = [selector.predicts for selector in selectors]
    return library(render("choice/asked.c.j2", head=c_head(), selectors=texts, predicts=predicts))


def coordinates(rows: Sequence[Sequence[float]], scales: Sequence[Scale]) -> Any:
    """The training matrix: coordinates in units, a row for each training point."""
    columns = [s.coordinates(column) / UNIT for s, column in zip(scales, np.array(rows, float).T, strict=True)]
    return np.ascontiguousarray(np.array(columns).T)


def trained_ranges(rows: Sequence[Sequence[float]], scales: Sequence[Scale]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The least coordinate of each feature over the rows, and the width of its range, at least 1."""
    columns = [scale.coordinates(column) for scale, column in zip(scales, zip(*rows, strict=True), strict=True)]
    lows = tuple(int(column.min()) for column in columns)
    return lows, tuple(int(column.max()) - low or 1 for column, low in zip(columns, lows, strict=True))


def shares(
    rows: Sequence[Sequence[float]], scales: Sequence[Scale], lows: Sequence[int], widths: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The positions of finite features in their `trained_ranges`, clamped: 0 to 2**SHARE_BITS, a row for each."""
    columns = [
        ((scale.coordinates(column) - low).clip(0, width) << SHARE_BITS) // width
        for scale, column, low, width in zip(scales, zip(*rows, strict=True), lows, widths, strict=True)
    ]
    return tuple(zip(*(column.tolist() for column in columns), strict=True)) if columns else ((),) * len(rows)


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
