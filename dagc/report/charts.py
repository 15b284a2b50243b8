"""The plots of measured times: sorted with classes, the convolution, by configuration, and how the search converged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dagc.report import si
from dagc.report.measured import Curve, Group, Point, ranked
from dagc.report.plot import Plot, Scale, dots, n, polyline, spanning, steps, tag, text
from dagc.store.results import ImplementationId

if TYPE_CHECKING:
    from dagc.learn.rules.types import Boundary, Classes

WIDTH = 1080.0
# From this ratio of slowest to fastest on, an axis of times is logarithmic.
LOG_FROM = 8.0
_MANY = 300  # dots: from so many on they are small, and an axis of measurements is logarithmic
_STOPS = ((0, 114, 178), (86, 180, 233), (201, 180, 88), (230, 159, 0), (213, 94, 0))


def class_colour(number: int, classes: int) -> str:
    """From blue (fast) over yellow to vermilion (slow): distinguishable with every kind of colour vision."""
    place = (len(_STOPS) - 1) * (number / (classes - 1) if classes > 1 else 0.0)
    at = min(int(place), len(_STOPS) - 2)
    mixed = (round(a + (b - a) * (place - at)) for a, b in zip(_STOPS[at], _STOPS[at + 1], strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _time_scale(values: Sequence[float], start: float, stop: float, *, room: float = 0.05) -> Scale:
    low, high = min(values), max(values)
    return spanning(low, high, start, stop, log=low > 0 and high / low > LOG_FROM, room=room)


def _clip(plot: Plot, name: str) -> None:
    """What is drawn with this clip path stays inside the axes."""
    (left, right), (bottom, top) = plot.x_range, plot.y_range
    box = tag("rect", x=left, y=top - 2, width=right - left, height=bottom - top + 2)
    plot.add(tag("defs", tag("clipPath", box, id=name)))


# ---- sorted times ---------------------------------------------------------------------------


def sorted_times(
    points: Sequence[Point], best: Point | None, groups: Sequence[Group], classes: Classes | None, noise: float
) -> str:
    """Fig. 4 (a) and (c) of the seed: every implementation, fastest first, with the interval of its median.

    A ring marks `best`, one of the points: it need not be the first, which may be a single time.
    """
    plot = Plot(WIDTH, 400, top=40)
    x = Scale(0, len(points) + 1, *plot.x_range)
    y = _time_scale([p.seconds for p in points], *plot.y_range, room=0.08)
    factor, unit = si.unit(points[-1].seconds)
    _clip(plot, "times-clip")
    if classes is not None:
        plot.add(*_bands(classes, x, plot))
    plot.y_axis(y, f"time of an iteration [{unit}]", factor)
    plot.x_axis(x, "implementations, fastest first")
    if not math.isnan(noise) and best is not None:
        plot.add(*_floor(best.seconds, noise, y, plot))
    place = {p.implementation.id: x(i) for i, p in enumerate(points, 1)}
    for group in groups:
        plot.add(_intervals(group, place, y))
    for group in groups:
        marks = ((place[p.implementation.id], y(p.seconds)) for p in group.points)
        plot.add(dots(marks, f"k{group.colour}", clip_path="url(#times-clip)"))
    if classes is not None:
        plot.add(*_borders(classes, x, plot))
    if best is not None:
        at = {"cx": place[best.implementation.id], "cy": y.clamped(best.seconds)}
        plot.add(tag("circle", **at, r=7.0, class_="chosen", data_tip=f"best: {si.seconds(best.seconds)}"))
    plot.add(_cursor(plot))
    title = f"Times of {si.ordinary(len(points), 'implementation')}, sorted"
    heights = " ".join(n(y(p.seconds)) for p in points)  # for the script: where to put the cursor
    look = "plot many" if len(points) > _MANY else "plot"
    return plot.svg(title, id="times", data_left=x(1), data_right=x(len(points)), data_heights=heights, tabindex=0,
                    class_=look)  # fmt: skip


def _intervals(group: Group, place: Mapping[ImplementationId, float], y: Scale) -> str:
    bars = (
        f"M{n(place[p.implementation.id])} {n(y.clamped(p.low))}V{n(y.clamped(p.high))}"
        for p in group.points
        if p.high > p.low
    )
    path = "".join(bars)
    return tag("path", d=path, class_=f"interval k{group.colour}", clip_path="url(#times-clip)") if path else ""


def _floor(best: float, noise: float, y: Scale, plot: Plot) -> list[str]:
    """One measurement cannot distinguish what lies in this band from the best."""
    left, right = plot.x_range
    high, low = y.clamped(best * (1 + noise)), y.clamped(best)
    words = f"noise floor: {si.percent(noise)} above the best"
    return [
        tag("rect", x=left, y=high, width=right - left, height=max(1.0, low - high), class_="floor"),
        text(right - 6, high - 5, words, "note", text_anchor="end"),
    ]


def _bands(classes: Classes, x: Scale, plot: Plot) -> list[str]:
    """A band for each class, its number and size above it."""
    bottom, top = plot.y_range
    edges = [0.5, *(b.position + 1.5 for b in classes.boundaries), len(classes.times) + 0.5]
    out = []
    for each, low, high in zip(classes.classes, edges, edges[1:], strict=False):
        left, right = x(low), x(high)
        colour = f"--c:{class_colour(each.number, len(classes.classes))}"
        tip = (
            f"class {each.number + 1}: {si.ordinary(each.count, 'implementation')}\n"
            f"{si.seconds(each.fastest)} to {si.seconds(each.slowest)}, width {si.percent(each.width)}"
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


def _borders(classes: Classes, x: Scale, plot: Plot) -> list[str]:
    """Boundaries drawn as lines; those that were dropped as short dotted ones."""
    bottom, top = plot.y_range
    out = []
    for boundary, drawn in (*((b, True) for b in classes.boundaries), *((b, False) for b in classes.dropped)):
        at = x(boundary.position + 1.5)
        reach = f"M{n(at)} {n(top)}V{n(bottom)}" if drawn else f"M{n(at)} {n(bottom - 26)}V{n(bottom)}"
        why = "class boundary" if drawn else f"not drawn: {boundary.why_dropped}"
        tip = f"{why}\nafter {boundary.position + 1} of {len(classes.times)}, at {si.seconds(boundary.seconds)}"
        out.append(tag("path", d=reach, class_="border" if drawn else "border dropped", data_tip=_tip(tip, boundary)))
    return out


def _tip(words: str, boundary: Boundary) -> str:
    step = "" if math.isnan(boundary.step) else f"\nmedians of the classes differ by {si.percent(boundary.step)}"
    return f"{words}{step}\nstep of {si.seconds(boundary.height)}, prominence {si.seconds(boundary.prominence)}"


def _cursor(plot: Plot) -> str:
    """Moved by the page's script to the implementation that is looked at."""
    bottom, top = plot.y_range
    line = tag("path", d=f"M0 {n(top)}V{n(bottom)}")
    return tag("g", line + tag("circle", r=4.5), class_="cursor", visibility="hidden")


# ---- the convolution ------------------------------------------------------------------------


def convolution(classes: Classes) -> str:
    """Fig. 4 (b): where the sorted times rise. Peaks that became boundaries have a dot, dropped ones a ring."""
    plot = Plot(WIDTH, 220, top=16)
    values = classes.convolution
    x = Scale(0, len(classes.times) + 1, *plot.x_range)
    y = spanning(min(0.0, *values), max(values), *plot.y_range, room=0.06)
    factor, unit = si.unit(max(abs(v) for v in values))
    plot.y_axis(y, f"step [{unit}]", factor, 4)
    plot.x_axis(x, f"implementations, fastest first (radius of the step function: {classes.radius})")
    line = [(x(i + classes.radius + 0.5), y(v)) for i, v in enumerate(values)]
    area = [(line[0][0], y(0)), *line, (line[-1][0], y(0))]
    plot.add(tag("path", d="M" + "L".join(f"{n(a)} {n(b)}" for a, b in area) + "Z", class_="area"))
    plot.add(polyline(line, "curve"))
    for boundary, drawn in (*((b, True) for b in classes.boundaries), *((b, False) for b in classes.dropped)):
        tip = _tip("class boundary" if drawn else f"not drawn: {boundary.why_dropped}", boundary)
        plot.add(tag("circle", cx=x(boundary.position + 1.5), cy=y(boundary.height), r=4.5,
                     class_="peak" if drawn else "peak dropped", data_tip=tip))  # fmt: skip
    return plot.svg("The sorted times convolved with a step function", id="convolution")


# ---- by configuration -----------------------------------------------------------------------

_ROW = 46
_BINS = 90
MOST_ROWS = 24


def distribution(groups: Sequence[Group]) -> str:
    """A histogram of each configuration on one axis of time; a line at its median, a dot at its best."""
    groups = groups[:MOST_ROWS]
    longest = max(len(g.label) for g in groups)
    left = min(420.0, max(120.0, 24 + 6.6 * longest))
    plot = Plot(WIDTH, 30 + _ROW * len(groups) + 44, left=left, top=30, right=96)
    x = _time_scale([p.seconds for g in groups for p in (g.points[0], g.points[-1])], *plot.x_range, room=0.02)
    factor, unit = si.unit(max(g.points[-1].seconds for g in groups))
    plot.add(text(WIDTH - 90, 18, "best", "tick"))
    for row, group in enumerate(groups):
        plot.add(*_histogram(group, x, plot.top + _ROW * (row + 1) - 8, plot))
    plot.x_axis(x, f"time of an iteration [{unit}]", factor)
    return plot.svg(f"Distribution of times in {si.ordinary(len(groups), 'configuration')}", id="distribution")


def _histogram(group: Group, x: Scale, base: float, plot: Plot) -> list[str]:
    left, right = plot.x_range
    wide = (right - left) / _BINS
    counts = [0] * _BINS
    for point in group.points:
        counts[min(_BINS - 1, max(0, int((x(point.seconds) - left) / wide)))] += 1
    tallest = max(counts)
    path = "".join(
        f"M{n(left + wide * i)} {n(base)}v{n(-c / tallest * (_ROW - 16))}h{n(wide)}V{n(base)}z"
        for i, c in enumerate(counts)
        if c
    )
    best, middle = ranked(group.points)[0], group.points[len(group.points) // 2]
    tip = (
        f"{group.label}\n{si.ordinary(len(group.points), 'implementation')}\nbest {si.seconds(best.seconds)}, "
        f"median {si.seconds(middle.seconds)}, worst {si.seconds(group.points[-1].seconds)}"
    )
    colour = f"k{group.colour}"
    name = group.label if len(group.label) <= 60 else group.label[:59] + "…"
    return [
        tag("rect", x=left, y=base - _ROW + 12, width=right - left, height=_ROW - 12.0, class_="lane", data_tip=tip),
        tag("path", d=path, class_=f"bars {colour}"),
        tag("path", d=f"M{n(x(middle.seconds))} {n(base + 4)}V{n(base - _ROW + 16)}", class_=f"median {colour}"),
        tag("circle", cx=x(best.seconds), cy=base, r=4.0, class_=f"best {colour}"),
        text(left - 10, base - 6, name, "row-label", text_anchor="end"),
        text(right + 8, base - 6, si.seconds(best.seconds), "row-value"),
    ]


# ---- convergence ----------------------------------------------------------------------------

MOST_CURVES = 8


def convergence(curves: Sequence[Curve], names: Sequence[str]) -> str:
    """Each measurement as a dot, the lowest single time so far, and what the choice was worth. `names`: of the runs."""
    curves = curves[:MOST_CURVES]
    plot = Plot(WIDTH, 360, top=20)
    longest = max(len(c.measured) for c in curves)
    x = Scale(1, max(2, longest), *plot.x_range, log=longest > _MANY)
    times = sorted(t for c in curves for t in c.measured)
    shown = times[: max(1, math.ceil(0.98 * len(times)))]  # a few outliers would flatten all others
    worth = [seconds for c in curves for _, seconds in c.choice]
    y = _time_scale([*shown, *worth], *plot.y_range)
    factor, unit = si.unit(max(shown))
    _clip(plot, "search-clip")
    plot.y_axis(y, f"time of an iteration [{unit}]", factor)
    plot.x_axis(x, "measurements")
    clip = {"clip_path": "url(#search-clip)"}
    for place, curve in enumerate(curves):
        plot.add(dots(((x(i), y.clamped(t)) for i, t in enumerate(curve.measured, 1)), f"faint k{place}", **clip))
    for place, curve in enumerate(curves):
        end = x(max(2, len(curve.measured)))
        lowest, choice = ([(x(i), y.clamped(t)) for i, t in line] for line in (curve.lowest, curve.choice))
        name = names[curve.run]
        tip = f"{name}\nlowest single time {si.seconds(curve.lowest[-1][1])}"
        plot.add(steps(lowest, end, f"lowest k{place}", data_tip=tip, **clip))
        tip = f"{name}\nchosen in the end: {si.seconds(curve.choice[-1][1])} (median of all its times)"
        plot.add(steps(choice, end, f"choice k{place}", data_tip=tip, **clip))
    look = "plot many" if longest > _MANY else "plot"
    return plot.svg("Convergence of the search", look, id="convergence")
