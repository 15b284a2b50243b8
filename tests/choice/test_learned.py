"""What `--show -o TUNED` prints of a selector, evaluated as text: it answers as the selector does."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from dagc.choice.selector import Selector
from dagc.perf.chart import Branching, Chart, FlowBox, to_dot, to_latex, to_svg, to_text
from tests.report.tuned import NAMES, tuned_file

ANSWERS = ("answer0", "answer1", "answer2")
FUNCTIONS: dict[str, Any] = {
    "log2": math.log2, "exp": math.exp, "clamp": lambda x, low, high: min(max(x, low), high)
}  # fmt: skip
Values = Mapping[str, float]


def _value(text: str, values: Values) -> Any:
    return eval(text, {**FUNCTIONS, **values})


def _taken(chart: Chart, values: Values) -> list[tuple[str, ...]]:
    """The boxes on the way through a chart."""
    out: list[tuple[str, ...]] = []
    for part in chart:
        if isinstance(part, FlowBox):
            out.append(part.lines)
            continue
        tests = ((_value(test.lines[0].rstrip("?"), values), inner) for test, inner in part.cases)
        out += _taken(next((inner for holds, inner in tests if holds), part.otherwise), values)
    return out


def _number(line: str) -> int:
    """The number of the last answer in a line."""
    found = re.findall(r"answer(\d)", line)
    return int(found[-1])


def _best(scores: Mapping[int, float]) -> int:
    return min(scores, key=lambda i: (-scores[i], i))


def _tree(chart: Chart, values: Values) -> int:
    (leaf,) = _taken(chart, values)
    return _number(leaf[0])


def _forest(chart: Chart, values: Values) -> int:
    sums: dict[int, float] = dict.fromkeys(range(len(ANSWERS)), 0.0)
    for lines in _taken(chart, values)[1:-1:2]:
        for line in lines:
            sums[_number(line)] += float(line.split()[1])
    return _best(sums)


def _knn(chart: Chart, values: Values) -> int:
    first, rows, last = (part.lines for part in chart if isinstance(part, FlowBox))
    coordinates = re.sub(r".*points in ", "", first[0])
    here, points = _value(coordinates, values), []
    for line in rows:
        if "others gain" in line:
            points[-1][1].extend((gain, answer) for answer, gain in re.findall(r"answer(\d) ([\d.]+)", line))
            continue
        at = dict(re.findall(r"(\w+) = ([\d.e+-]+)", line))
        there = _value(coordinates, {name: float(value) for name, value in at.items()})
        own = re.findall(r": answer(\d), gain ([\d.]+)", line)
        points.append((math.dist(here, there), [(gain, answer) for answer, gain in own]))
    k = int(re.findall(r"of the (\d+) nearest", last[0])[0])
    sums: dict[int, float] = dict.fromkeys(range(len(ANSWERS)), 0.0)
    for distance, of in sorted(points, key=lambda p: p[0])[:k]:
        for gain, answer in of:
            sums[int(answer)] += float(gain) / (max(distance, 1e-12) if "1 over" in last[0] else 1)
    return _best(sums)


def _svm(chart: Chart, values: Values) -> int:
    first, *pairs, last = (part.lines for part in chart if isinstance(part, FlowBox))
    ranges = re.findall(r"(log2\(\w+\)|8 \* \(.*?\) / \S+) ([\d.e+-]+) to ([\d.e+-]+)", first[0])
    here = [2 * (_value(f"clamp({x}, {low}, {high})", values) - float(low)) / (float(high) - float(low)) - 1
            for x, low, high in ranges]  # fmt: skip
    gamma = float(re.findall(r"exp\(-([\d.e+-]+) ", last[0])[0])
    wins: dict[int, float] = dict.fromkeys(range(len(ANSWERS)), 0.0)
    for head, *terms, _ in pairs:
        names, total = re.findall(r"answer(\d)", head), float(head.split()[-1])
        for term in terms:
            factor, point = re.findall(r"\+ (\S+) \* K\((.*)\)", term)[0]
            total += float(factor) * math.exp(-gamma * math.dist(here, [float(v) for v in point.split(", ")]) ** 2)
        wins[int(names[total <= 0])] += 1
    return _best(wins)


def _cost(chart: Chart, values: Values) -> int:
    trends, factors, _ = _taken(chart, values)
    formula = re.compile(r"\((log2\(\w+\)|8 \* \(.*?\) / \S+) in \[(\S+), (\S+)\]\)")
    seconds = {}
    for trend, factor in zip(trends, factors, strict=True):
        text = formula.sub(r"clamp(\1, \2, \3)", trend.partition(": ")[2])
        seconds[_number(trend)] = _value(re.sub(r" s\b", "", text), values) * float(factor.split(" x ")[-1])
    return min(seconds, key=lambda i: seconds[i])


EVALUATED: dict[str, Callable[[Chart, Values], int]] = {
    "tree": _tree, "forest": _forest, "knn": _knn, "svm": _svm, "cost": _cost
}  # fmt: skip


def _points(number: int) -> list[Sequence[float]]:
    draw = random.Random(1)
    return [(float(int(2 ** draw.uniform(4, 20))), draw.uniform(1, 12)) for _ in range(number)]


@pytest.mark.parametrize("method", EVALUATED)
def test_the_text_answers_as_the_selector(method: str) -> None:
    selector = tuned_file(method=method).kernel_choosers["y"].selector
    assert isinstance(selector, Selector)
    chart = selector.chart(ANSWERS)
    answered = [EVALUATED[method](chart, dict(zip(NAMES, x, strict=True))) for x in _points(200)]
    expected = [selector.choose(x) for x in _points(200)]
    assert len(set(expected)) > 1
    different = sum(a != b for a, b in zip(answered, expected, strict=True))
    assert different <= 2, "numbers are rounded to six digits"


def test_formats_of_a_chart() -> None:
    inner = Branching(((FlowBox(("n <= 3?",), True), (FlowBox(("a_1",)),)),), (FlowBox(("50 % \\ b",)),))
    chart: Chart = (FlowBox(("first",)), inner)
    assert to_text(chart) == "first\nif n <= 3:\n  a_1\nelse:\n  50 % \\ b\n"
    assert r"&\quad \text{50 \% \textbackslash{} b}" in to_latex(chart)
    assert r"&\text{if n $<$= 3:}" in to_latex(chart)
    assert 'n2 -> n3 [label="yes"];' in to_dot(chart, "x", "choice")
    assert to_svg(chart, "x", "choice").count("<polygon") == 1


def test_a_deep_tree_is_drawn_at_once() -> None:
    chart: Chart = (FlowBox(("leaf",)),)
    for i in range(60):
        chart = (Branching(((FlowBox((f"n <= {i}?",), True), chart),), (FlowBox(("other",)),)),)
    assert to_svg(chart, "x", "choice").count("<polygon") == 60
