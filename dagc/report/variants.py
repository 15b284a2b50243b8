"""The page of a tuned file with variants: which variant wins where, the quality of the selector, its costliest
mistakes.

The data to draw are finished views (`VariantView`); only coordinates are computed here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dagc.report import si
from dagc.report.charts import WIDTH, AxisScale, Plot, n, polyline, spanning, tag, text
from dagc.report.pages import environment

LOOKS = 8  # of marks: a colour and a shape each; the last is for all others
_SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z",  # a circle
    "M-4.6-4.6H4.6V4.6H-4.6Z",
    "M0-6L5.6 4.6H-5.6Z",
    "M0-6.4L6.4 0L0 6.4L-6.4 0Z",
    "M0 6L5.6-4.6H-5.6Z",
    "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",  # a cross
    "M0-6.2L5.9-1.9L3.6 5H-3.6L-5.9-1.9Z",
    "M-6-2.2H6V2.2H-6Z",
)


@dataclass(frozen=True, slots=True)
class Mark:
    """An input in the scatter. `look`: of the variant that wins; `tip`: lines of text."""

    name: str
    x: float
    y: float
    look: int
    test: bool
    wrong: bool
    tip: str


@dataclass(frozen=True, slots=True)
class Axis:
    name: str
    log: bool


@dataclass(frozen=True, slots=True)
class ShareBar:
    """A share of exhaustive, in [0, 1]. `look`: that of the variant, -1 for what is not a single variant."""

    name: str
    share: float
    look: int = -1


@dataclass(frozen=True, slots=True)
class Mistake:
    """`ratio`: t_taken / t_best as text, or `failed`; `reason`: of the choice, or of the failure. `features`: the
    inputs of the selector."""

    name: str
    taken: str
    best: str
    ratio: str
    reason: str
    features: str


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """`steps`: labelled inputs, share of exhaustive, other figures as text. `name`: of the order of the inputs."""

    name: str
    steps: tuple[tuple[int, float, str], ...]


@dataclass(frozen=True, slots=True)
class VariantView:
    """One op. `tiles`: name, value, note. `legend`: look, variant, inputs that it wins. `weights`: features and what is
    lost without them, the largest first. `figures`: rows of a table."""

    op: str
    learned: str
    judged: str
    tiles: tuple[tuple[str, str, str], ...]
    axes: tuple[Axis, Axis]
    marks: tuple[Mark, ...]
    legend: tuple[tuple[int, str, int], ...]
    weights: tuple[tuple[str, float], ...]
    bars: tuple[ShareBar, ...]
    curves: tuple[LearningCurve, ...]
    figures: tuple[tuple[str, ...], ...]
    mistakes: tuple[Mistake, ...]
    notes: tuple[str, ...] = ()


def scatter(view: VariantView) -> str:
    """The inputs over two features, each marked by the variant that wins; ringed where the choice is another one."""
    plot = Plot(WIDTH, 460, left=76, right=36)
    scales = []
    for axis, values, span in zip(
        view.axes, ([m.x for m in view.marks], [m.y for m in view.marks]), (plot.x_range, plot.y_range), strict=True
    ):
        scales.append(spanning(min(values), max(values), *span, log=axis.log, room=0.08))
    x, y = scales
    plot.y_axis(y, view.axes[1].name)
    plot.x_axis(x, view.axes[0].name)
    for number, mark in enumerate(sorted(view.marks, key=lambda m: (m.x, m.y))):
        look = f"mark k{mark.look}" + (" test" if mark.test else "") + (" wrong" if mark.wrong else "")
        shape = tag("path", d=_SHAPES[mark.look])
        ring = tag("circle", r=9.5, class_="ring") if mark.wrong else ""
        at = f"translate({n(x(mark.x))} {n(y(mark.y))})"
        order = 0 if number == 0 else -1
        words = {"data_tip": mark.tip, "aria_label": mark.tip, "role": "img"}
        plot.add(tag("g", shape + ring, class_=look, transform=at, tabindex=order, **words))
    return plot.svg(f"Which variant wins at {si.ordinary(len(view.marks), 'input')}", role_="group")


def key(look: int) -> str:
    """The mark of a legend."""
    shape = tag("path", d=_SHAPES[look])
    return tag("svg", tag("g", shape, class_=f"mark k{look}"), viewBox="-8 -8 16 16", width=14, height=14, class_="key")


def bars(view: VariantView) -> str:
    """Shares of exhaustive: the selector, each single variant, a random choice."""
    height, left = 26, 250
    plot = Plot(WIDTH, 44 + height * len(view.bars), left=left, right=70, top=4, bottom=40)
    x = AxisScale(0.0, 100.0, *plot.x_range)
    plot.x_axis(x, "% of exhaustive")
    for row, bar in enumerate(view.bars):
        at = 8.0 + height * row
        look = f"share k{bar.look}" if bar.look >= 0 else "share own" if row == 0 else "share other"
        wide = max(1.0, x(100 * bar.share) - left)
        tip = f"{bar.name}: {_of(bar.share)}"
        plot.add(
            text(left - 10, at + 13, _short(bar.name), "row-label", text_anchor="end"),
            tag("rect", x=left, y=at, width=wide, height=18.0, rx=3, class_=look, data_tip=tip),
            text(left + wide + 8, at + 13, _of(bar.share), "row-value"),
        )
    return plot.svg("Percent of exhaustive of the selector and of single variants")


def learning(view: VariantView) -> str:
    """Share of exhaustive by the number of labelled inputs, for each order of them."""
    plot = Plot(WIDTH, 300, left=76)
    every = [step for curve in view.curves for step in curve.steps]
    x = spanning(min(k for k, _, _ in every), max(k for k, _, _ in every), *plot.x_range, room=0.02)
    y = spanning(100 * min(s for _, s, _ in every), 100 * max(s for _, s, _ in every), *plot.y_range, room=0.15)
    plot.y_axis(y, "% of exhaustive")
    plot.x_axis(x, "labelled inputs")
    for look, curve in enumerate(view.curves):
        points = [(x(k), y(100 * share)) for k, share, _ in curve.steps]
        plot.add(polyline(points, f"choice k{look}"))
        for (k, share, more), (cx, cy) in zip(curve.steps, points, strict=True):
            tip = f"{si.ordinary(k, 'labelled input')}, {curve.name}: {_of(share)}; {more}"
            plot.add(tag("circle", cx=cx, cy=cy, r=5.0, class_=f"point k{look}", data_tip=tip, tabindex=0))
    return plot.svg("Learning curve")


def as_page(ops: Sequence[VariantView], *, title: str, subtitle: str, file: str, version: str) -> str:
    """The complete HTML, which loads nothing."""
    views = [_drawn(op) for op in ops]
    template = environment().get_template("variants.html.j2")
    return template.render(
        ops=views, title=title, subtitle=subtitle, file=file, version=version, percent=_of, ratio=si.times
    )


def _drawn(op: VariantView) -> dict[str, object]:
    return {
        "view": op,
        "scatter": scatter(op) if op.marks else "",
        "bars": bars(op) if op.bars else "",
        "curve": learning(op) if any(len(curve.steps) > 1 for curve in op.curves) else "",
        "orders": [(key(look), curve.name) for look, curve in enumerate(op.curves)],
        "keys": [(key(look), name, count) for look, name, count in op.legend],
    }


def _of(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def _short(words: str) -> str:
    return words if len(words) <= 36 else words[:35] + "…"
