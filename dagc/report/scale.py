"""Predicted times by number of ranks, as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from dagc.report import si
from dagc.report.charts import Plot, dots, picture, polyline, spanning, tag, text

_STYLE = """text { font: 12px sans-serif; fill: #333 } .axis { stroke: #333; fill: none }
.grid { stroke: #ddd; fill: none } .best { stroke: #0072b2; stroke-width: 2 }
.dots { stroke: #0072b2; stroke-width: 8; stroke-linecap: round } .ideal { stroke: #999; stroke-dasharray: 5 4 }"""


def scaling_svg(title: str, points: Sequence[tuple[int, float]]) -> str:
    """The seconds of the best for each number of ranks, beside those of ideal weak scaling (the work of a rank stays as
    it is with the first number) and of ideal strong scaling (all ranks share the work that the first number has).

    `points`: at least one, by rising number of ranks.
    """
    plot = Plot(720, 420, right=120)
    ranks, seconds = [number for number, _ in points], [value for _, value in points]
    strong = [(number, seconds[0] * ranks[0] / number) for number in ranks]
    x = spanning(ranks[0], ranks[-1], *plot.x_range, log=True, room=0.2)
    every = [*seconds, *(value for _, value in strong)]
    y = spanning(min(every), max(every), *plot.y_range, log=True, room=0.2)
    factor, unit = si.unit(max(every))
    plot.y_axis(y, f"predicted time of an iteration [{unit}]", factor)
    plot.x_axis(x, "ranks")
    weak = [(number, seconds[0]) for number in ranks]
    for line, words, kind in (
        (weak, "ideal weak", "ideal"),
        (strong, "ideal strong", "ideal"),
        (points, "best", "best"),
    ):
        end, value = line[-1]
        plot.add(polyline(((x(at), y(of)) for at, of in line), kind), text(x(end) + 10, y(value) + 4, words))
    plot.add(dots(((x(at), y(of)) for at, of in points), "best"))
    parts = [tag("style", _STYLE), *plot.parts]
    return picture(plot.width, plot.height, parts, title, "plot", "img", xmlns="http://www.w3.org/2000/svg")
