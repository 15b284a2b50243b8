"""Flow charts: as text, LaTeX, Graphviz dot, or SVG (drawn here: no Graphviz needed).

Diamonds are conditions, boxes are lines. Conditions are in a column, what follows each to its right; the paths of a
branch meet at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import TypeAlias

_CHAR, _LINE, _PAD, _GAP = 6.7, 15, 10, 34  # of a letter of 11 points, of a line; inside a box, between boxes


@dataclass(frozen=True, slots=True)
class FlowBox:
    """A box of consecutive assignments, or a diamond of a condition in lines of one comparison."""

    lines: tuple[str, ...]
    diamond: bool = False

    @property
    def _around(self) -> tuple[float, float]:
        """Size, relative to that of the text."""
        if not self.diamond:
            return 1.0, 1.0
        return (1.5, 3.0) if len(self.lines) == 1 else (2.0, 2.0)

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * _CHAR * self._around[0] + 2 * _PAD

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE * self._around[1] + 2 * _PAD


@dataclass(frozen=True, slots=True)
class Branching:
    cases: tuple[tuple[FlowBox, Chart], ...]
    otherwise: Chart


Chart: TypeAlias = "tuple[FlowBox | Branching, ...]"


def condition_of(comparisons: Sequence[str]) -> FlowBox:
    """The diamond of a conjunction, a line for each comparison."""
    return FlowBox((*(f"{text} and" for text in comparisons[:-1]), f"{comparisons[-1]}?"), diamond=True)


# ---- text and LaTeX ----


def to_text(chart: Chart) -> str:
    """A line for each of a box; what a branch chooses is indented."""
    return "".join(f"{'  ' * depth}{line}\n" for depth, line in _lines(chart))


def to_latex(chart: Chart) -> str:
    """An `align*` environment with a line for each of the text."""
    step = "\\quad "
    rows = (f"&{step * depth}\\text{{{_tex(line)}}}" for depth, line in _lines(chart))
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}\n"


_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {"\\": r"\textbackslash{}", "<": "$<$", ">": "$>$"}


def _tex(text: str) -> str:
    return "".join(_SPECIAL.get(c, c) for c in text)


def _lines(chart: Chart, depth: int = 0) -> Iterator[tuple[int, str]]:
    for part in chart:
        if isinstance(part, FlowBox):
            yield from ((depth, line) for line in part.lines)
            continue
        for number, (condition, inner) in enumerate(part.cases):
            yield depth, f"{'else ' * (number > 0)}if {' '.join(condition.lines).removesuffix('?')}:"
            yield from _lines(inner, depth + 1)
        yield depth, "else:"
        yield from _lines(part.otherwise, depth + 1)


# ---- Graphviz --------------------------------------------------------------------------


def to_dot(chart: Chart, name: str, end: str) -> str:
    """Graphviz dot. `end`: the text of the last node."""
    dot = _Dot()
    ends = dot.chart(chart, [("start", "")])
    lines = [f'digraph "{_quoted(name)}" {{', "  rankdir=TB;", '  node [shape=box, fontname="Courier"];']
    lines += ['  start [shape=oval, label="start"];', *dot.nodes]
    lines.append(f'  end [shape=oval, label="{_quoted(end)}"];')
    return "\n".join([*lines, *dot.edges, *dot.arrows(ends, "end"), "}", ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


class _Dot:
    """Collects nodes and edges. An open end is a node and the label of its outgoing arrow."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.edges: list[str] = []

    def chart(self, chart: Chart, ends: list[tuple[str, str]]) -> list[tuple[str, str]]:
        for part in chart:
            if isinstance(part, FlowBox):
                ends = [(self._node(part, ends), "")]
                continue
            done: list[tuple[str, str]] = []
            for condition, body in part.cases:
                test = self._node(condition, ends)
                done += self.chart(body, [(test, "yes")])
                ends = [(test, "no")]
            ends = done + self.chart(part.otherwise, ends)
        return ends

    def _node(self, box: FlowBox, before: list[tuple[str, str]]) -> str:
        name = f"n{len(self.nodes) + 1}"
        shape, end = ("diamond", "\\n") if box.diamond else ("box", "\\l")
        label = "".join(_quoted(line) + end for line in box.lines)
        self.nodes.append(f'  {name} [shape={shape}, label="{label}"];')
        self.edges += self.arrows(before, name)
        return name

    @staticmethod
    def arrows(ends: list[tuple[str, str]], to: str) -> list[str]:
        return [f"  {name} -> {to}" + (f' [label="{word}"];' if word else ";") for name, word in ends]


# ---- SVG -------------------------------------------------------------------------------

_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
)


@dataclass(slots=True)
class _Drawing:
    shapes: list[tuple[FlowBox, float, float]] = field(default_factory=list)  # with their centres
    lines: list[tuple[tuple[tuple[float, float], ...], bool]] = field(default_factory=list)  # points, has a tip
    words: list[tuple[float, float, str]] = field(default_factory=list)


@cache
def _extent(chart: Chart) -> tuple[float, float, float]:
    """Extent left and right of the chart's axis, and height."""
    left = right = 0.0
    height = _GAP * (len(chart) - 1.0)
    for part in chart:
        if isinstance(part, FlowBox):
            half, more = part.width / 2, 0.0
            height += part.height
        else:
            half = _column(part)
            rest = _extent(part.otherwise)
            bodies = [_extent(body) for _, body in part.cases]
            half = max(half, rest[0])
            more = max(half, rest[1]) - half + _GAP + max(b[0] + b[1] for b in bodies) + _GAP
            height += sum(row + _GAP for row in _heights(part)) + rest[2] + _GAP
        left, right = max(left, half), max(right, half + more)
    return left, right, height


def _column(choice: Branching) -> float:
    """Half the width of the widest condition."""
    return max(condition.width for condition, _ in choice.cases) / 2


def _heights(choice: Branching) -> Iterator[float]:
    """Heights of the conditions with the statements to their right."""
    for condition, body in choice.cases:
        half, first = condition.height / 2, _first(body).height / 2
        yield max(half, first) + max(half, _extent(body)[2] - first)


def _first(chart: Chart) -> FlowBox:
    first = chart[0]
    return first if isinstance(first, FlowBox) else first.cases[0][0]


def to_svg(chart: Chart, name: str, end: str) -> str:
    """A picture, drawn here. `end`: the text of the last box."""
    left, right, height = _extent(chart)
    title = FlowBox((end,))
    left, right = max(left, title.width / 2), max(right, title.width / 2)
    width, total = left + right + 2 * _GAP, height + 4 * _GAP + title.height
    drawing = _Drawing()
    x = left + _GAP
    bottom = _draw(drawing, chart, x, 2.0 * _GAP)
    drawing.lines.append((((x, _GAP * 1.0), (x, 2.0 * _GAP)), True))
    drawing.lines.append((((x, bottom), (x, bottom + _GAP)), True))
    drawing.shapes.append((title, x, bottom + _GAP + title.height / 2))
    out = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{total:.0f}" '
            f'viewBox="0 0 {width:.0f} {total:.0f}" font-family="Courier, monospace" font-size="11">'
        ),
        _TIP,
        f'<rect width="100%" height="100%" fill="white"/><title>{escape(name)}</title>',
        f'<circle cx="{x:.1f}" cy="{_GAP - 5}" r="5" fill="#555"/>',
    ]
    for points, tip in drawing.lines:
        path = "M" + " L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        marker = ' marker-end="url(#tip)"' if tip else ""
        out.append(f'<path d="{path}" fill="none" stroke="#555"{marker}/>')
    for box, bx, by in drawing.shapes:
        out += _svg_box(box, bx, by)
    out += [f'<text x="{wx:.1f}" y="{wy:.1f}" fill="#555">{word}</text>' for wx, wy, word in drawing.words]
    return "\n".join([*out, "</svg>", ""])


def _draw(drawing: _Drawing, chart: Chart, x: float, y: float) -> float:
    """Draws a chart about the axis x from y downwards; returns its end."""
    for position, part in enumerate(chart):
        if position:
            drawing.lines.append((((x, y), (x, y + _GAP)), True))
            y += _GAP
        if isinstance(part, FlowBox):
            drawing.shapes.append((part, x, y + part.height / 2))
            y += part.height
        else:
            y = _draw_choice(drawing, part, x, y)
    return y


def _draw_choice(drawing: _Drawing, choice: Branching, x: float, y: float) -> float:
    rest = _extent(choice.otherwise)
    bodies = [_extent(body) for _, body in choice.cases]
    edge = x + max(_column(choice), *rest[:2]) + _GAP  # left edge of the right column
    bus = edge + max(b[0] + b[1] for b in bodies) + _GAP / 2
    last = 0.0
    exits: list[tuple[float, float]] = []
    for (condition, body), size, row in zip(choice.cases, bodies, _heights(choice), strict=True):
        first = _first(body)
        middle = y + max(condition.height, first.height) / 2
        drawing.shapes.append((condition, x, middle))
        top, low = middle - condition.height / 2, middle + condition.height / 2
        drawing.lines.append((((x, last or y), (x, top)), bool(last)))
        if last:
            drawing.words.append((x + 5, last + 14, "no"))
        axis = edge + size[0]
        right = x + condition.width / 2
        drawing.lines.append((((right, middle), (axis - first.width / 2, middle)), True))
        drawing.words.append((right + 5, middle - 4, "yes"))
        bottom = _draw(drawing, body, axis, middle - first.height / 2)
        exits.append((axis, bottom))
        last = low
        y += row + _GAP
    drawing.lines.append((((x, last), (x, y)), True))
    drawing.words.append((x + 5, last + 14, "no"))
    bottom = _draw(drawing, choice.otherwise, x, y)
    join = bottom + _GAP
    drawing.lines.append((((x, bottom), (x, join)), False))
    for axis, low in exits:
        turn = low + _GAP / 3
        drawing.lines.append((((axis, low), (axis, turn), (bus, turn), (bus, join), (x, join)), True))
    return join


def _svg_box(box: FlowBox, x: float, y: float) -> list[str]:
    half, tall = box.width / 2, box.height / 2
    if box.diamond:
        points = f"{x - half:.1f},{y:.1f} {x:.1f},{y - tall:.1f} {x + half:.1f},{y:.1f} {x:.1f},{y + tall:.1f}"
        out = [f'<polygon points="{points}" fill="#fff2cc" stroke="#444"/>']
    else:
        size = f'width="{box.width:.1f}" height="{box.height:.1f}"'
        out = [f'<rect x="{x - half:.1f}" y="{y - tall:.1f}" {size} fill="#d9ead3" stroke="#444"/>']
    first = y - len(box.lines) * _LINE / 2 + 11
    place = f'x="{x:.1f}" text-anchor="middle"' if box.diamond else f'x="{x - half + _PAD:.1f}"'
    for number, line in enumerate(box.lines):
        out.append(f'<text {place} y="{first + number * _LINE:.1f}">{escape(line)}</text>')
    return out
