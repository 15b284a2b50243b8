"""Rational programs as text, LaTeX, and flow charts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

import sympy as sp

from dagc.perf.program import Assign, Branch, ParameterKind, RationalProgram, Statement

# ---- text and LaTeX ----

_KINDS = {ParameterKind.DATA: "data", ParameterKind.HARDWARE: "hardware", ParameterKind.PROGRAM: "program"}


def to_text(program: RationalProgram) -> str:
    """Parameters by kind, then one line a step, with units and meanings."""
    lines = [f"{program.name}: {program.result} in {program.unit}", f"  source: {program.source}"]
    for kind, word in _KINDS.items():
        parameters = program.of_kind(kind)
        if parameters:
            lines.append(f"  {word} parameters")
            width = max(len(p.name) for p in parameters)
            lines += [f"    {p.name:{width}}  {_note(p.unit, p.meaning)}".rstrip() for p in parameters]
    lines.append("  steps")
    lines += _steps(program.body, "    ")
    return "\n".join(lines) + "\n"


def _note(unit: str, meaning: str) -> str:
    return ", ".join(word for word in (meaning, unit) if word)


def _steps(body: tuple[Statement, ...], indent: str) -> list[str]:
    lines = []
    for statement in body:
        if isinstance(statement, Assign):
            note = _note(statement.unit, statement.meaning)
            lines.append(f"{indent}{statement.name} = {statement.value}" + (f"    # {note}" if note else ""))
            continue
        for i, (condition, inner) in enumerate(statement.cases):
            lines.append(f"{indent}{'if' if i == 0 else 'else if'} {condition}:")
            lines += _steps(inner, indent + "  ")
        lines.append(f"{indent}else:")
        lines += _steps(statement.otherwise, indent + "  ")
    return lines


def to_latex(program: RationalProgram) -> str:
    """An `align*` environment, one line a step."""
    rows = _rows(program.body)
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}\n"


def _name(name: str) -> str:
    return "\\mathit{" + name.replace("_", "\\_") + "}"


def _math(value: sp.Basic) -> str:
    names = {s: _name(s.name) for s in value.free_symbols}
    return str(sp.latex(value, symbol_names=names))


def _rows(body: tuple[Statement, ...]) -> list[str]:
    rows = []
    for statement in body:
        if isinstance(statement, Assign):
            rows.append(f"{_name(statement.name)} &= {_math(statement.value)}")
            continue
        for i, (condition, inner) in enumerate(statement.cases):
            rows.append(f"&\\text{{{'if' if i == 0 else 'else if'} }} {_math(condition)}:")
            rows += _rows(inner)
        rows.append("&\\text{else}:")
        rows += _rows(statement.otherwise)
    return rows


# ---- flow charts ----
# Rational programs as flow charts: Graphviz dot, or SVG (drawn here: no Graphviz needed).
#
# Diamonds are conditions, boxes are sequences of assignments. Conditions are in a column, the statements of each to
# its right; the paths of a branch meet at its end.

_CHAR, _LINE, _PAD, _GAP = 6.7, 15, 10, 34  # of a letter of 11 points, of a line; inside a box, between boxes


@dataclass(frozen=True, slots=True)
class _Box:
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
class _Branching:
    cases: tuple[tuple[_Box, _Chart], ...]
    otherwise: _Chart


_Chart = tuple["_Box | _Branching", ...]


def _chart(body: tuple[Statement, ...]) -> _Chart:
    out: list[_Box | _Branching] = []
    run: list[str] = []
    for statement in body:
        if isinstance(statement, Assign):
            run.append(f"{statement.name} = {sp.sstr(statement.value)}")
            continue
        if run:
            out.append(_Box(tuple(run)))
            run = []
        out.append(_choice(statement))
    if run or not out:
        out.append(_Box(tuple(run) or ("nothing",)))
    return tuple(out)


def _choice(branch: Branch) -> _Branching:
    cases = tuple((_condition(condition), _chart(body)) for condition, body in branch.cases)
    return _Branching(cases, _chart(branch.otherwise))


def _condition(condition: sp.Basic) -> _Box:
    """One line for each comparison of a conjunction, joined by `and`."""
    parts = sorted(condition.args, key=sp.default_sort_key) if isinstance(condition, sp.And) else [condition]
    texts = [sp.sstr(part) for part in parts]
    return _Box((*(f"{text} and" for text in texts[:-1]), f"{texts[-1]}?"), diamond=True)


# ---- Graphviz --------------------------------------------------------------------------


def to_flow(program: RationalProgram) -> str:
    """Graphviz dot."""
    dot = _Dot()
    ends = dot.chart(_chart(program.body), [("start", "")])
    lines = [f'digraph "{_quoted(program.name)}" {{', "  rankdir=TB;", '  node [shape=box, fontname="Courier"];']
    lines += ['  start [shape=oval, label="start"];', *dot.nodes]
    lines.append(f'  end [shape=oval, label="{_quoted(program.result)}"];')
    return "\n".join([*lines, *dot.edges, *dot.arrows(ends, "end"), "}", ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


class _Dot:
    """Collects nodes and edges. An open end is a node and the label of its outgoing arrow."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.edges: list[str] = []

    def chart(self, chart: _Chart, ends: list[tuple[str, str]]) -> list[tuple[str, str]]:
        for part in chart:
            if isinstance(part, _Box):
                ends = [(self._node(part, ends), "")]
                continue
            done: list[tuple[str, str]] = []
            for condition, body in part.cases:
                test = self._node(condition, ends)
                done += self.chart(body, [(test, "yes")])
                ends = [(test, "no")]
            ends = done + self.chart(part.otherwise, ends)
        return ends

    def _node(self, box: _Box, before: list[tuple[str, str]]) -> str:
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
    shapes: list[tuple[_Box, float, float]] = field(default_factory=list)  # with their centres
    lines: list[tuple[tuple[tuple[float, float], ...], bool]] = field(default_factory=list)  # points, has a tip
    words: list[tuple[float, float, str]] = field(default_factory=list)


def _extent(chart: _Chart) -> tuple[float, float, float]:
    """Extent left and right of the chart's axis, and height."""
    left = right = 0.0
    height = _GAP * (len(chart) - 1.0)
    for part in chart:
        if isinstance(part, _Box):
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


def _column(choice: _Branching) -> float:
    """Half the width of the widest condition."""
    return max(condition.width for condition, _ in choice.cases) / 2


def _heights(choice: _Branching) -> Iterator[float]:
    """Heights of the conditions with the statements to their right."""
    for condition, body in choice.cases:
        half, first = condition.height / 2, _first(body).height / 2
        yield max(half, first) + max(half, _extent(body)[2] - first)


def _first(chart: _Chart) -> _Box:
    first = chart[0]
    return first if isinstance(first, _Box) else first.cases[0][0]


def to_flow_svg(program: RationalProgram) -> str:
    """A picture of the flow chart."""
    chart = _chart(program.body)
    left, right, height = _extent(chart)
    title = _Box((f"{program.result} [{program.unit}]" if program.unit else program.result,))
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
        f'<rect width="100%" height="100%" fill="white"/><title>{escape(program.name)}</title>',
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


def _draw(drawing: _Drawing, chart: _Chart, x: float, y: float) -> float:
    """Draws a chart about the axis x from y downwards; returns its end."""
    for position, part in enumerate(chart):
        if position:
            drawing.lines.append((((x, y), (x, y + _GAP)), True))
            y += _GAP
        if isinstance(part, _Box):
            drawing.shapes.append((part, x, y + part.height / 2))
            y += part.height
        else:
            y = _draw_choice(drawing, part, x, y)
    return y


def _draw_choice(drawing: _Drawing, choice: _Branching, x: float, y: float) -> float:
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


def _svg_box(box: _Box, x: float, y: float) -> list[str]:
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
