"""The charts of the page: sorted times, convolution, configurations, convergence, and the decision tree.

Coordinates are user units of the picture (one CSS pixel at its natural size). All text is escaped here.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import median
from typing import TYPE_CHECKING

from dagc.base.errors import counted
from dagc.base.statistics import Noise, faster
from dagc.ir.choice import Choice
from dagc.ir.program import shown
from dagc.report import si
from dagc.report.si import TIMES, Quantity, significant
from dagc.store.results import (
    CONFIRMED,
    FASTEST,
    TWICE,
    Estimate,
    Implementation,
    ImplementationId,
    Results,
    rank,
    timed,
)

if TYPE_CHECKING:
    from dagc.learn.types import Boundary, Classes, Node, Tree


# ---- data computed from the measurements before drawing: intervals, ties, labels, convergence ----


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A measured implementation and the estimate of what it takes (`dagc.store.results.timed`)."""

    implementation: Implementation
    estimate: Estimate
    times: tuple[float, ...]
    confirming: tuple[float, ...] = ()  # those of them that did not choose it

    @property
    def value(self) -> float:
        return self.estimate.value

    @property
    def low(self) -> float:
        return self.estimate.low

    @property
    def high(self) -> float:
        return self.estimate.high


@dataclass(frozen=True, slots=True)
class ConfigurationPoints:
    """A configuration: its label, its colour, and its points, fastest first."""

    configuration: Choice
    label: str
    colour: int
    points: tuple[MeasuredPoint, ...]


COLOURS = 8  # in the style sheet, distinguishable with colour blindness


def points_of(results: Results) -> tuple[MeasuredPoint, ...]:
    """All measured implementations, fastest first, drift divided out."""
    reference = results.reference
    return tuple(MeasuredPoint(i, found, i.times(reference), i.confirming(reference)) for i, found in timed(results))


def groups_of(points: Sequence[MeasuredPoint]) -> tuple[ConfigurationPoints, ...]:
    """By configuration, that of the fastest first. If there are more than colours, they share them by transport."""
    mine: dict[Choice, list[MeasuredPoint]] = {}
    for point in points:
        mine.setdefault(point.implementation.configuration, []).append(point)
    common = common_decisions(mine)
    if len(mine) <= COLOURS:
        colours = {c: i for i, c in enumerate(mine)}
    else:
        transports = list(dict.fromkeys(str(c.get("transport")) for c in mine))
        colours = {c: transports.index(str(c.get("transport"))) % COLOURS for c in mine}
    return tuple(ConfigurationPoints(c, label(c, common), colours[c], tuple(members)) for c, members in mine.items())


def common_decisions(configurations: Iterable[Choice]) -> dict[str, str]:
    """Decisions with the same value in all of them: name -> value as text."""
    sets = [{name: shown(value) for name, value in c.decisions} for c in configurations]
    if not sets:
        return {}
    return {name: value for name, value in sets[0].items() if all(s.get(name) == value for s in sets)}


def label(configuration: Choice, common: dict[str, str]) -> str:
    """The decisions that distinguish it from others; its transport if it is the only one."""
    left = [f"{name}={shown(value)}" for name, value in configuration.decisions if name not in common]
    transport = configuration.get("transport")
    return " ".join(left) or (configuration.text if transport is None else f"transport={transport}")


def ranked(points: Sequence[MeasuredPoint]) -> tuple[MeasuredPoint, ...]:
    """Candidates for the best, best first, as numbered by `dagc best --rank N` (`dagc.store.results.rank`).

    `points`: fastest first. A point with a smaller time that is missing here was measured less often.
    """
    return rank(points, lambda p: p.times, lambda p: p.confirming)


@dataclass(frozen=True, slots=True)
class Curve:
    """The progress of one run over its own measurements, counted from 1.

    measured   the time of each
    lowest     (measurement, value): the lowest single time so far, at each decrease
    choice     (measurement, value): the best at that moment (`dagc.store.results.rank`), at each change, with
               its estimate by all measurements of the file
    """

    run: int
    measured: tuple[float, ...]
    lowest: tuple[tuple[int, float], ...]
    choice: tuple[tuple[int, float], ...]


def curves_of(results: Results) -> tuple[Curve, ...]:
    """One for each run with measurements."""
    rows: dict[int, list[tuple[int, ImplementationId, float]]] = {}
    final: dict[ImplementationId, float] = {}
    for implementation, estimate in timed(results):
        times = implementation.times(results.reference)
        final[implementation.id] = estimate.value
        for place, seconds in zip(implementation.taken, times, strict=True):
            rows.setdefault(place.run, []).append((place.order, implementation.id, seconds))
    return tuple(_curve(run, sorted(rows[run]), final) for run in sorted(rows))


def _curve(
    run: int, rows: Sequence[tuple[int, ImplementationId, float]], final: dict[ImplementationId, float]
) -> Curve:
    lowest: list[tuple[int, float]] = []
    choice: list[tuple[int, float]] = []
    so_far = _SoFar()
    chosen: ImplementationId | None = None
    for number, (_, key, seconds) in enumerate(rows, 1):
        if not lowest or seconds < lowest[-1][1]:
            lowest.append((number, seconds))
        so_far.add(key, seconds)
        best = so_far.best()
        if best != chosen:
            chosen = best
            choice.append((number, final[chosen]))
    return Curve(run, tuple(seconds for _, _, seconds in rows), tuple(lowest), tuple(choice))


class _SoFar:
    """The first of `dagc.store.results.rank`, updated incrementally: ranking everything after each of thousands of
    measurements would take minutes."""

    def __init__(self) -> None:
        self.times: dict[ImplementationId, list[float]] = {}
        self.first: list[tuple[float, ImplementationId]] = []  # the FASTEST by their first times
        # By the number of measurements, at most CONFIRMED: medians of candidates with that many. Includes outdated
        # ones, which `best` skips.
        self.medians: list[list[tuple[float, ImplementationId]]] = [[] for _ in range(CONFIRMED + 1)]
        self.noise = Noise()

    def add(self, key: ImplementationId, seconds: float) -> None:
        mine = self.times.setdefault(key, [])
        if mine:
            self.noise.add(mine[-1], seconds)
        mine.append(seconds)
        if len(mine) == 1:
            insort(self.first, (seconds, key))
            del self.first[FASTEST:]
        middle = median(mine)
        for heap in self.medians[1 : len(mine) + 1]:
            heapq.heappush(heap, (middle, key))

    def best(self) -> ImplementationId:
        """There must be a measurement."""
        first = self._least(min(CONFIRMED, max(len(self.times[key]) for _, key in self.first)))
        # Before it comes the least of those measured TWICE that are faster beyond the noise.
        below, series, seen = median(self.times[first]), self.times[first], []
        ranked = self.medians[TWICE]
        while ranked and ranked[0][0] < below:
            value, key = heapq.heappop(ranked)
            mine = self.times[key]
            if value == median(mine):
                seen.append((value, key))
                if faster(mine, series, self.noise.between(mine, series)):
                    first = key
                    break
        for entry in seen:
            heapq.heappush(ranked, entry)
        return first

    def _least(self, number: int) -> ImplementationId:
        """That with the smallest median of those with at least so many measurements."""
        ranked = self.medians[number]
        while ranked[0][0] != median(self.times[ranked[0][1]]):
            heapq.heappop(ranked)
        return ranked[0][1]


# ---- charts ----------------------------------------------------------------------------------------


# ---- axes and shapes ----


@dataclass(frozen=True, slots=True)
class AxisScale:
    """Maps values from `low` to `high` to coordinates from `start` to `stop`; logarithmic if asked (then low > 0)."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.low == self.high:
            share = 0.0
        elif self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def clamped(self, value: float) -> float:
        """The coordinate of a value, clamped to the range."""
        return self(min(max(value, self.low), self.high))

    def ticks(self, most: int = 6) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high, most)


def spanning(low: float, high: float, start: float, stop: float, *, log: bool = False, room: float = 0.04) -> AxisScale:
    """A scale with some margin around the values, even if all of them are equal."""
    if log:
        return AxisScale(low / (1 + room), high * (1 + room), start, stop, True)
    space = room * (high - low) or 0.05 * abs(high) or 1.0
    return AxisScale(low - space, high + space, start, stop)


def linear_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values between `low` and `high`, at steps of 1, 2 or 5 times a power of ten. `most` is at least 4."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; only the powers if these would be too many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(powers) > 4 else (1, 2, 5)
    return [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """As short as possible while different."""
    for decimals in range(7):
        texts = [f"{tick:.{decimals}f}" for tick in ticks]
        if all(
            abs(float(text) - tick) <= 1e-6 * max(1e-12, abs(tick)) for text, tick in zip(texts, ticks, strict=True)
        ):
            return texts
    return [significant(tick) for tick in ticks]


def n(value: float) -> str:
    """A coordinate, rounded to a tenth of a unit, which is finer than a screen shows."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def tag(name: str, content: str | None = None, /, **attributes: object) -> str:
    """An element; `content` is SVG already. `class_` is class, other underscores are hyphens, None omits an
    attribute."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = n(value) if isinstance(value, float) else str(value)
            words.append(f'{key.rstrip("_").replace("_", "-")}="{escape(shown)}"')
    inside = " ".join(words)
    return f"<{inside}/>" if content is None else f"<{inside}>{content}</{name}>"


def text(x: float, y: float, words: str, class_: str = "label", **attributes: object) -> str:
    """A line of text; `words` is escaped."""
    return tag("text", escape(words), x=x, y=y, class_=class_, **attributes)


def dots(points: Iterable[tuple[float, float]], class_: str, **attributes: object) -> str:
    """Many round dots as one element: lines of zero length with round ends. Equal ones are drawn once."""
    distinct = dict.fromkeys((n(x), n(y)) for x, y in points)
    return tag("path", d="".join(f"M{x} {y}h0" for x, y in distinct), class_=f"dots {class_}", **attributes)


def polyline(points: Iterable[tuple[float, float]], class_: str, **attributes: object) -> str:
    return tag("path", d="M" + "L".join(f"{n(x)} {n(y)}" for x, y in points), class_=class_, fill="none", **attributes)


def steps(points: Sequence[tuple[float, float]], until: float, class_: str, **attributes: object) -> str:
    """A line that keeps each value until the next point, and the last until x = `until`."""
    (x, y), *rest = points
    path = [f"M{n(x)} {n(y)}"] + [f"H{n(to_x)}V{n(to_y)}" for to_x, to_y in rest] + [f"H{n(until)}"]
    return tag("path", d="".join(path), class_=class_, fill="none", **attributes)


@dataclass(slots=True)
class Plot:
    """A picture with one x axis at the bottom and one y axis at the left."""

    width: float
    height: float
    left: float = 64
    right: float = 16
    top: float = 24
    bottom: float = 44
    parts: list[str] = field(default_factory=list)

    @property
    def x_range(self) -> tuple[float, float]:
        return self.left, self.width - self.right

    @property
    def y_range(self) -> tuple[float, float]:
        """From bottom to top."""
        return self.height - self.bottom, self.top

    def add(self, *parts: str) -> None:
        self.parts += parts

    def x_axis(self, scale: AxisScale, title: str, factor: float = 1.0) -> None:
        """`factor`: units of the scale per unit of the labels."""
        base = self.height - self.bottom
        values = AxisScale(scale.low / factor, scale.high / factor, scale.start, scale.stop, scale.log)
        ticks = values.ticks(8)
        marks = "".join(f"M{n(values(t))} {n(base)}v5" for t in ticks)
        self.add(tag("path", d=f"M{n(self.left)} {n(base)}H{n(self.width - self.right)}{marks}", class_="axis"))
        for tick, words in zip(ticks, tick_texts(ticks), strict=True):
            self.add(text(values(tick), base + 18, words, "tick", text_anchor="middle"))
        self.add(text((self.left + self.width - self.right) / 2, base + 36, title, "axis-title", text_anchor="middle"))

    def y_axis(self, scale: AxisScale, title: str, factor: float = 1.0, most: int = 6) -> None:
        values = AxisScale(scale.low / factor, scale.high / factor, scale.start, scale.stop, scale.log)
        ticks = values.ticks(most)
        lines = "".join(f"M{n(self.left)} {n(values(t))}H{n(self.width - self.right)}" for t in ticks)
        self.add(tag("path", d=lines or "M0 0", class_="grid"))
        for tick, words in zip(ticks, tick_texts(ticks), strict=True):
            self.add(text(self.left - 8, values(tick) + 4, words, "tick", text_anchor="end"))
        middle = (self.top + self.height - self.bottom) / 2
        turned = f"rotate(-90 14 {n(middle)})"
        self.add(text(14, middle, title, "axis-title", text_anchor="middle", transform=turned))

    def svg(self, title: str, class_: str = "plot", **attributes: object) -> str:
        return picture(self.width, self.height, self.parts, title, class_, "img", **attributes)


def picture(
    width: float, height: float, parts: Iterable[str], title: str, class_: str, role: str, /, **attributes: object
) -> str:
    """The complete SVG; `title` is for screen readers."""
    return tag(
        "svg", "\n".join(parts), viewBox=f"0 0 {n(width)} {n(height)}", width=width, height=height, role=role,
        aria_label=title, class_=class_, **attributes,
    )  # fmt: skip


# ---- measured times ----

WIDTH = 1080.0
# An axis of times is logarithmic from this ratio of slowest to fastest.
LOG_FROM = 8.0
_MANY = 300  # dots: from this number they are small, and an axis of measurements is logarithmic
_STOPS = ((0, 114, 178), (86, 180, 233), (201, 180, 88), (230, 159, 0), (213, 94, 0))


def class_colour(number: int, classes: int) -> str:
    """From blue (fast) through yellow to vermilion (slow), distinguishable with every kind of colour vision."""
    place = (len(_STOPS) - 1) * (number / (classes - 1) if classes > 1 else 0.0)
    at = min(int(place), len(_STOPS) - 2)
    mixed = (round(a + (b - a) * (place - at)) for a, b in zip(_STOPS[at], _STOPS[at + 1], strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _time_scale(values: Sequence[float], start: float, stop: float, *, room: float = 0.05) -> AxisScale:
    low, high = min(values), max(values)
    return spanning(low, high, start, stop, log=low > 0 and high / low > LOG_FROM, room=room)


def _clip(plot: Plot, name: str) -> None:
    """Clip drawings with this clip path to the axes."""
    (left, right), (bottom, top) = plot.x_range, plot.y_range
    box = tag("rect", x=left, y=top - 2, width=right - left, height=bottom - top + 2)
    plot.add(tag("defs", tag("clipPath", box, id=name)))


# ---- sorted times ---------------------------------------------------------------------------


def sorted_times(
    points: Sequence[MeasuredPoint],
    best: MeasuredPoint | None,
    groups: Sequence[ConfigurationPoints],
    classes: Classes | None,
    noise: float,
    by: Quantity = TIMES,
) -> str:
    """As Fig. 4 (a) and (c) of the Tenzing paper: every implementation, fastest first, with the interval of its median.

    A ring marks `best`, one of the points. It need not be the first, which may have a single time.
    """
    plot = Plot(WIDTH, 400, top=40)
    x = AxisScale(0, len(points) + 1, *plot.x_range)
    y = _time_scale([p.value for p in points], *plot.y_range, room=0.08)
    factor, axis = by.axis(points[-1].value)
    _clip(plot, "times-clip")
    if classes is not None:
        plot.add(*_bands(classes, x, plot, by))
    plot.y_axis(y, axis, factor)
    plot.x_axis(x, "implementations, fastest first")
    if not math.isnan(noise) and best is not None:
        plot.add(*_floor(best.value, noise, y, plot))
    place = {p.implementation.id: x(i) for i, p in enumerate(points, 1)}
    for group in groups:
        plot.add(_intervals(group, place, y))
    for group in groups:
        marks = ((place[p.implementation.id], y(p.value)) for p in group.points)
        plot.add(dots(marks, f"k{group.colour}", clip_path="url(#times-clip)"))
    if classes is not None:
        plot.add(*_borders(classes, x, plot, by))
    if best is not None:
        at = {"cx": place[best.implementation.id], "cy": y.clamped(best.value)}
        plot.add(tag("circle", **at, r=7.0, class_="chosen", data_tip=f"best: {by.text(best.value)}"))
    plot.add(_cursor(plot))
    title = f"Times of {si.ordinary(len(points), 'implementation')}, sorted"
    heights = " ".join(n(y(p.value)) for p in points)  # for the script that places the cursor
    look = "plot many" if len(points) > _MANY else "plot"
    return plot.svg(title, id="times", data_left=x(1), data_right=x(len(points)), data_heights=heights, tabindex=0,
                    class_=look)  # fmt: skip


def _intervals(group: ConfigurationPoints, place: Mapping[ImplementationId, float], y: AxisScale) -> str:
    bars = (
        f"M{n(place[p.implementation.id])} {n(y.clamped(p.low))}V{n(y.clamped(p.high))}"
        for p in group.points
        if p.high > p.low
    )
    path = "".join(bars)
    return tag("path", d=path, class_=f"interval k{group.colour}", clip_path="url(#times-clip)") if path else ""


def _floor(best: float, noise: float, y: AxisScale, plot: Plot) -> list[str]:
    """One measurement cannot distinguish points in this band from the best."""
    left, right = plot.x_range
    high, low = y.clamped(best * (1 + noise)), y.clamped(best)
    words = f"noise floor: {si.percent(noise)} above the best"
    return [
        tag("rect", x=left, y=high, width=right - left, height=max(1.0, low - high), class_="floor"),
        text(right - 6, high - 5, words, "note", text_anchor="end"),
    ]


def _bands(classes: Classes, x: AxisScale, plot: Plot, by: Quantity) -> list[str]:
    """A band for each class, with its number and size above it."""
    bottom, top = plot.y_range
    edges = [0.5, *(b.position + 1.5 for b in classes.boundaries), len(classes.times) + 0.5]
    out = []
    for each, low, high in zip(classes.classes, edges, edges[1:], strict=False):
        left, right = x(low), x(high)
        colour = f"--c:{class_colour(each.number, len(classes.classes))}"
        tip = (
            f"class {each.number + 1}: {si.ordinary(each.count, 'implementation')}\n"
            f"{by.text(each.fastest)} to {by.text(each.slowest)}, width {si.percent(each.width)}"
        )
        out.append(tag("rect", x=left, y=top, width=right - left, height=bottom - top, class_="band", style=colour))
        bar = tag("rect", x=left + 0.5, y=top - 8, width=max(1.0, right - left - 1), height=6.0, rx=1.5,
                  class_="band-bar", style=colour, data_tip=tip)  # fmt: skip
        out.append(bar)
        number = str(each.number + 1)
        words = next((w for w in (f"class {number} ({si.count(each.count)})", number) if 7 * len(w) < right - left), "")
        if words:
            out.append(text((left + right) / 2, top - 14, words, "band-label", text_anchor="middle"))
    return out


def _borders(classes: Classes, x: AxisScale, plot: Plot, by: Quantity) -> list[str]:
    """Boundaries as lines; dropped ones as short dotted lines."""
    bottom, top = plot.y_range
    out = []
    for boundary, drawn in (*((b, True) for b in classes.boundaries), *((b, False) for b in classes.dropped)):
        at = x(boundary.position + 1.5)
        reach = f"M{n(at)} {n(top)}V{n(bottom)}" if drawn else f"M{n(at)} {n(bottom - 26)}V{n(bottom)}"
        why = "class boundary" if drawn else f"not drawn: {boundary.why_dropped}"
        tip = f"{why}\nafter {boundary.position + 1} of {len(classes.times)}, at {by.text(boundary.value)}"
        out.append(
            tag("path", d=reach, class_="border" if drawn else "border dropped", data_tip=_tip(tip, boundary, by))
        )
    return out


def _tip(words: str, boundary: Boundary, by: Quantity) -> str:
    step = "" if math.isnan(boundary.step) else f"\nmedians of the classes differ by {si.percent(boundary.step)}"
    return f"{words}{step}\nstep of {by.text(boundary.height)}, prominence {by.text(boundary.prominence)}"


def _cursor(plot: Plot) -> str:
    """Moved by the page's script to the implementation under the pointer."""
    bottom, top = plot.y_range
    line = tag("path", d=f"M0 {n(top)}V{n(bottom)}")
    return tag("g", line + tag("circle", r=4.5), class_="cursor", visibility="hidden")


# ---- the convolution ------------------------------------------------------------------------


def convolution(classes: Classes, by: Quantity = TIMES) -> str:
    """As Fig. 4 (b): the slope of the sorted times. Peaks that became boundaries have a dot, dropped ones a ring."""
    plot = Plot(WIDTH, 220, top=16)
    values = classes.convolution
    x = AxisScale(0, len(classes.times) + 1, *plot.x_range)
    y = spanning(min(0.0, *values), max(values), *plot.y_range, room=0.06)
    factor, title = Quantity("step", by.unit).axis(max(abs(v) for v in values))
    plot.y_axis(y, title, factor, 4)
    plot.x_axis(x, f"implementations, fastest first (radius of the step function: {classes.radius})")
    line = [(x(i + classes.radius + 0.5), y(v)) for i, v in enumerate(values)]
    area = [(line[0][0], y(0)), *line, (line[-1][0], y(0))]
    plot.add(tag("path", d="M" + "L".join(f"{n(a)} {n(b)}" for a, b in area) + "Z", class_="area"))
    plot.add(polyline(line, "curve"))
    for boundary, drawn in (*((b, True) for b in classes.boundaries), *((b, False) for b in classes.dropped)):
        tip = _tip("class boundary" if drawn else f"not drawn: {boundary.why_dropped}", boundary, by)
        plot.add(tag("circle", cx=x(boundary.position + 1.5), cy=y(boundary.height), r=4.5,
                     class_="peak" if drawn else "peak dropped", data_tip=tip))  # fmt: skip
    return plot.svg("The sorted times convolved with a step function", id="convolution")


# ---- by configuration -----------------------------------------------------------------------

_ROW = 46
_BINS = 90
MOST_ROWS = 24


def distribution(groups: Sequence[ConfigurationPoints], by: Quantity = TIMES) -> str:
    """A histogram of each configuration on a common axis of time; a line at its median, a dot at its best."""
    groups = groups[:MOST_ROWS]
    longest = max(len(g.label) for g in groups)
    left = min(420.0, max(120.0, 24 + 6.6 * longest))
    plot = Plot(WIDTH, 30 + _ROW * len(groups) + 44, left=left, top=30, right=96)
    x = _time_scale([p.value for g in groups for p in (g.points[0], g.points[-1])], *plot.x_range, room=0.02)
    factor, title = by.axis(max(g.points[-1].value for g in groups))
    plot.add(text(WIDTH - 90, 18, "best", "tick"))
    for row, group in enumerate(groups):
        plot.add(*_histogram(group, x, plot.top + _ROW * (row + 1) - 8, plot, by))
    plot.x_axis(x, title, factor)
    return plot.svg(f"Distribution of times in {si.ordinary(len(groups), 'configuration')}", id="distribution")


def _histogram(group: ConfigurationPoints, x: AxisScale, base: float, plot: Plot, by: Quantity) -> list[str]:
    left, right = plot.x_range
    wide = (right - left) / _BINS
    counts = [0] * _BINS
    for point in group.points:
        counts[min(_BINS - 1, max(0, int((x(point.value) - left) / wide)))] += 1
    tallest = max(counts)
    path = "".join(
        f"M{n(left + wide * i)} {n(base)}v{n(-c / tallest * (_ROW - 16))}h{n(wide)}V{n(base)}z"
        for i, c in enumerate(counts)
        if c
    )
    best, middle = ranked(group.points)[0], group.points[len(group.points) // 2]
    tip = (
        f"{group.label}\n{si.ordinary(len(group.points), 'implementation')}\nbest {by.text(best.value)}, "
        f"median {by.text(middle.value)}, worst {by.text(group.points[-1].value)}"
    )
    colour = f"k{group.colour}"
    name = group.label if len(group.label) <= 60 else group.label[:59] + "…"
    return [
        tag("rect", x=left, y=base - _ROW + 12, width=right - left, height=_ROW - 12.0, class_="lane", data_tip=tip),
        tag("path", d=path, class_=f"bars {colour}"),
        tag("path", d=f"M{n(x(middle.value))} {n(base + 4)}V{n(base - _ROW + 16)}", class_=f"median {colour}"),
        tag("circle", cx=x(best.value), cy=base, r=4.0, class_=f"best {colour}"),
        text(left - 10, base - 6, name, "row-label", text_anchor="end"),
        text(right + 8, base - 6, by.text(best.value), "row-value"),
    ]


# ---- convergence ----------------------------------------------------------------------------

MOST_CURVES = 8


def convergence(curves: Sequence[Curve], names: Sequence[str], by: Quantity = TIMES) -> str:
    """Each measurement as a dot, the lowest single time so far, and the value of the choice. `names`: of the runs."""
    curves = curves[:MOST_CURVES]
    plot = Plot(WIDTH, 360, top=20)
    longest = max(len(c.measured) for c in curves)
    x = AxisScale(1, max(2, longest), *plot.x_range, log=longest > _MANY)
    times = sorted(t for c in curves for t in c.measured)
    shown = times[: max(1, math.ceil(0.98 * len(times)))]  # a few outliers would flatten all others
    worth = [seconds for c in curves for _, seconds in c.choice]
    y = _time_scale([*shown, *worth], *plot.y_range)
    factor, title = by.axis(max(shown))
    _clip(plot, "search-clip")
    plot.y_axis(y, title, factor)
    plot.x_axis(x, "measurements")
    clip = {"clip_path": "url(#search-clip)"}
    for place, curve in enumerate(curves):
        plot.add(dots(((x(i), y.clamped(t)) for i, t in enumerate(curve.measured, 1)), f"faint k{place}", **clip))
    for place, curve in enumerate(curves):
        end = x(max(2, len(curve.measured)))
        lowest, choice = ([(x(i), y.clamped(t)) for i, t in line] for line in (curve.lowest, curve.choice))
        name = names[curve.run]
        tip = f"{name}\nlowest single time {by.text(curve.lowest[-1][1])}"
        plot.add(steps(lowest, end, f"lowest k{place}", data_tip=tip, **clip))
        tip = f"{name}\nchosen in the end: {by.text(curve.choice[-1][1])} (median of all its times)"
        plot.add(steps(choice, end, f"choice k{place}", data_tip=tip, **clip))
    look = "plot many" if longest > _MANY else "plot"
    return plot.svg("Convergence of the search", look, id="convergence")


# ---- decision tree ----


# Height of a leaf's row, of a leaf, of a question; width between parent and child, of a bold and of a normal letter.
_LEAF_ROW, _LEAF, _BOX, _GAP, _LETTER, _SMALL_LETTER, _MARGIN = 44.0, 34.0, 56.0, 44.0, 7.4, 6.2, 6.0


MOST_LEAVES = 24  # that are readable at a glance
MOST_WIDTH = 1080.0  # of the page: wider content needs scrolling


def tree_chart(tree: Tree, name: str, deepest: int | None = None) -> str:
    """Questions in boxes, `yes` upwards; the bar below a box shows the shares of its classes.

    `name` is the element's ID. Nodes deeper than `deepest` are omitted; the box above states that.
    """
    return _Chart(tree, tree.depth if deepest is None else deepest).svg(name)


def readable_depth(tree: Tree) -> int:
    """The greatest depth at which the tree has at most MOST_LEAVES ends and fits on the page; at least 1."""

    def ends(depth: int) -> int:
        return sum(node.depth == depth or (node.leaf and node.depth < depth) for node in tree.nodes)

    fits = (d for d in range(1, tree.depth + 1) if ends(d) <= MOST_LEAVES and _Chart(tree, d).width <= MOST_WIDTH)
    return max(fits, default=1)


class _Chart:
    """Every box has `lefts` and `rows`: its left side, and its middle from the top."""

    def __init__(self, tree: Tree, deepest: int) -> None:
        self.nodes = tree.nodes
        self.deepest = deepest
        self.title = f"Decision tree with {counted(tree.leaves, 'leaf', 'leaves')}, depth {tree.depth}"
        self.lefts: dict[int, float] = {}
        self.rows: dict[int, float] = {}
        self._place(0, 0, _MARGIN)

    def _end(self, at: int) -> bool:
        """Whether nothing is drawn below this node."""
        return self.nodes[at].leaf or self.nodes[at].depth >= self.deepest

    def _place(self, at: int, ends: int, left: float) -> int:
        """Ends in separate rows, other boxes halfway between their children; returns the ends so far."""
        node = self.nodes[at]
        self.lefts[at] = left
        if self._end(at):
            self.rows[at] = _MARGIN + _LEAF_ROW * ends + _BOX / 2
            return ends + 1
        right = left + self._width(at) + _GAP
        ends = self._place(node.no, self._place(node.yes, ends, right), right)
        self.rows[at] = (self.rows[node.yes] + self.rows[node.no]) / 2
        return ends

    @property
    def width(self) -> float:
        return max(left + self._width(at) for at, left in self.lefts.items()) + _MARGIN

    def svg(self, name: str) -> str:
        height = max(self.rows.values()) + _BOX / 2 + _MARGIN
        return picture(self.width, height, [self._branch(0)], self.title, "plot tree natural", "group", id=name)

    def _branch(self, at: int) -> str:
        """A box with its subtree."""
        node = self.nodes[at]
        if self._end(at):
            return tag("g", self._end_box(at), class_="leaf" if node.leaf else "leaf cut", data_tip=_tooltip(node))
        below = "".join(self._edge(at, to, yes) + self._branch(to) for to, yes in ((node.yes, True), (node.no, False)))
        button = tag("g", self._question_box(at), class_="question", role="button", tabindex=0, aria_expanded="true",
                     aria_label=_question(node), data_tip=_tooltip(node))  # fmt: skip
        return tag("g", button + tag("g", below, class_="below"), class_="branch")

    def _edge(self, at: int, to: int, yes: bool) -> str:
        x, to_x = self.lefts[at] + self._width(at), self.lefts[to]
        y, to_y = self.rows[at], self.rows[to]
        bend = (x + to_x) / 2
        curve = f"M{n(x)} {n(y)}C{n(bend)} {n(y)} {n(bend)} {n(to_y)} {n(to_x)} {n(to_y)}"
        word = text(to_x - 5, to_y + (-6 if yes else 14), "yes" if yes else "no", "tick", text_anchor="end")
        return tag("path", d=curve, class_="edge", fill="none") + word

    def _question_box(self, at: int) -> str:
        x, top, node = self.lefts[at], self.rows[at] - _BOX / 2, self.nodes[at]
        lines = (text(x + 8, top + 16 + 14 * i, line, "box-title") for i, line in enumerate(_lines(node)))
        samples = text(x + 8, top + 44, si.ordinary(node.samples, "sample"), "box-detail")
        return self._frame(at, _BOX) + "".join(lines) + samples + self._shares(at, _BOX)

    def _end_box(self, at: int) -> str:
        title, detail = self._end_words(at)
        detail_tag = tag("tspan", escape(detail), dx=7, class_="box-detail")
        x, y = self.lefts[at] + 8, self.rows[at] - _LEAF / 2 + 17
        words = tag("text", escape(title) + detail_tag, x=x, y=y, class_="box-title")
        return self._frame(at, _LEAF) + words + self._shares(at, _LEAF)

    def _end_words(self, at: int) -> tuple[str, str]:
        """The class and its number of samples; for a box with omitted leaves, their number.

        "mixed": more samples are of another class than noise explains.
        """
        node = self.nodes[at]
        impure = ", mixed" if node.wrong else ""
        more = "" if node.leaf else f", {counted(self._leaves(at), 'leaf', 'leaves')}"
        return f"class {node.number + 1}{impure}", si.ordinary(node.samples, "sample") + more

    def _leaves(self, at: int) -> int:
        node = self.nodes[at]
        return 1 if node.leaf else self._leaves(node.yes) + self._leaves(node.no)

    def _width(self, at: int) -> float:
        if self._end(at):
            title, detail = self._end_words(at)
            return 24 + _LETTER * len(title) + _SMALL_LETTER * len(detail)
        return max(100.0, 16 + _LETTER * max(map(len, _lines(self.nodes[at]))))

    def _frame(self, at: int, height: float) -> str:
        x, y = self.lefts[at], self.rows[at] - height / 2
        return tag("rect", x=x, y=y, width=self._width(at), height=height, rx=5, class_="box")

    def _shares(self, at: int, height: float) -> str:
        """The bar at the bottom of a box."""
        shares, left, y = self.nodes[at].shares, self.lefts[at] + 1, self.rows[at] + height / 2 - 7
        out = []
        for number, share in enumerate(shares):
            wide = share * (self._width(at) - 2)
            if wide > 0:
                colour = f"fill:{class_colour(number, len(shares))}"
                out.append(tag("rect", x=left, y=y, width=wide, height=6.0, style=colour))
                left += wide
        return "".join(out)


def _question(node: Node) -> str:
    return "leaf" if node.feature is None else f"{node.feature.text()}?"


def _lines(node: Node) -> list[str]:
    """The question in two lines of about the same length."""
    words = _question(node).split(" ")
    cuts = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(1, len(words))]
    return list(min(cuts, key=lambda c: max(map(len, c)), default=(words[0],)))


def _tooltip(node: Node) -> str:
    shares = (
        f"class {number + 1}: {si.ordinary(count, 'sample')}, {si.percent(share)} with all classes weighted equally"
        for number, (count, share) in enumerate(zip(node.counts, node.shares, strict=True))
        if count
    )
    return "\n".join((_question(node), *shares))
