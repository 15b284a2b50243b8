"""`dagc report`: a results file as one HTML page that needs nothing else, no network either."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from dagc.base.errors import counted, without_controls
from dagc.base.resources import resource
from dagc.ir.graph import Graph
from dagc.learn.rules.text import why_no_rules
from dagc.report import charts, si
from dagc.report.best import pictures, traced
from dagc.report.measured import Group, Point, common_decisions, curves_of, groups_of, points_of, ranked
from dagc.report.sections import class_views, curve_names, fastest_rows, provenance, summary_tiles
from dagc.report.tree_chart import readable_depth, tree_chart
from dagc.store.results import Configuration, Results, noise_advice_of, ties, wanted_repeats

if TYPE_CHECKING:
    import jinja2

    from dagc.learn.rules import LearnedRules

MOST_ROWS = 20  # of the table of the fastest, and of the failures


def as_html(
    results: Results,
    graphs: Mapping[Configuration, Graph],
    learned: LearnedRules | None,
    *,
    file: str,
    version: str = "",
    fixed: Sequence[str] = (),
) -> str:
    """The page.

    `graphs`: of every configuration of `results`; `learned`: the rules (None: too little was measured for rules);
    `file`: the name of the results file, for the commands that the page shows; `fixed`: lines about the choices of the
    best that were not searched. What is said is only what was measured:
    where there are no traces, there is no timeline. Works with no measurement at all, too.
    """
    points = points_of(results)
    choices = ranked(points)
    best = choices[0] if choices else None
    groups = groups_of(points)
    if learned is not None and len(learned.classes.times) != len(points):
        learned = None  # of other samples: their positions would not be those of the points
    no_rules = "" if learned is None else why_no_rules(learned)
    classes = None if learned is None or len(points) < 2 else learned.classes
    dropped = () if classes is None else classes.dropped
    return _environment().get_template("page.html.j2").render(
        program=results.program,
        name_of=lambda path: os.path.relpath(path, os.path.dirname(results.program.path) or "."),
        file=file,
        version=version,
        fixed=fixed,
        tiles=summary_tiles(results, points, best, groups, graphs),
        ties=ties([p.times for p in choices], results.noise),
        unconfirmed=_unconfirmed(best, wanted_repeats(results)),
        less_often=0 if best is None else sum(p.seconds < best.seconds for p in points),
        common=common_decisions([g.configuration for g in groups]) if len(groups) > 1 else {},
        legend=_legend(groups),
        chosen=traced(results, best, points[-1] if len(points) > 1 else None, graphs, file),
        dags=pictures(groups, graphs),
        times=charts.sorted_times(points, best, groups, classes, results.noise) if len(points) > 1 else "",
        convolution=charts.convolution(classes) if classes is not None and classes.convolution else "",
        classes=class_views(learned) if learned is not None else (),
        dropped=[f"Boundary at {si.seconds(b.seconds)} not drawn: {b.why_dropped}." for b in dropped],
        tree=_tree(learned),
        no_rules=no_rules,
        advice=noise_advice_of(results),
        distribution=charts.distribution(groups) if groups else "",
        rows_left=max(0, len(groups) - charts.MOST_ROWS),
        convergence=_convergence(results),
        fastest=fastest_rows(choices[:MOST_ROWS], groups),
        failures=[i for i in results.implementations if i.failure][:MOST_ROWS],
        failed=sum(bool(i.failure) for i in results.implementations),
        runs=provenance(results),
        data=_data(points, groups),
        floor=si.percent(results.noise),
        noise_known=not math.isnan(results.noise),
        seconds=si.seconds,
        count=si.count,
        percent=si.percent,
    )  # fmt: skip


def _unconfirmed(best: Point | None, repeats: int) -> str:
    """How often the best was measured, where that is too few; else ""."""
    if best is None or len(best.times) >= repeats:
        return ""
    return f"{len(best.times)} of {counted(repeats, 'measurement')}"


def _tree(learned: LearnedRules | None) -> Mapping[str, object] | None:
    """The tree as far as it is read at a glance, and whole where that is more."""
    if learned is None:
        return None
    tree = learned.tree
    depth = readable_depth(tree)
    return {
        "leaves": tree.leaves,
        "depth": tree.depth,
        "error": _errors(learned),
        "chart": tree_chart(tree, "tree-chart", depth),
        "whole": tree_chart(tree, "tree-whole") if depth < tree.depth else "",
    }


def _errors(learned: LearnedRules) -> str:
    """The error on samples held out beside that in training, never the latter alone."""
    held = learned.held_out
    if held is None:
        return ""
    before = f" (of {learned.full_leaves} leaves before pruning)" if learned.full_leaves > learned.tree.leaves else ""
    return (
        f"{before}; error {si.percent(held.error)} on samples held out (standard error {si.percent(held.deviation)}, "
        f"one answer for all {si.percent(held.one_answer)}), {si.percent(learned.tree.error)} in training"
    )


def _convergence(results: Results) -> Mapping[str, object] | None:
    curves = curves_of(results)
    if not curves:
        return None
    names = curve_names(results)
    legend = [(place, names[c.run]) for place, c in enumerate(curves[: charts.MOST_CURVES])]
    return {
        "chart": charts.convergence(curves, names),
        "legend": legend,
        "left": max(0, len(curves) - charts.MOST_CURVES),
    }


def _legend(groups: Sequence[Group]) -> list[tuple[int, str]]:
    """Colour and name; where configurations share a colour, the transport. Nothing if that is the same for all."""
    colours: dict[int, list[Group]] = {}
    for group in groups:
        colours.setdefault(group.colour, []).append(group)
    named = [
        (colour, found[0].label if len(found) == 1 else f"transport={found[0].configuration.get('transport')}")
        for colour, found in sorted(colours.items())
    ]
    return named if len({name for _, name in named}) == len(named) else []


def _data(points: Sequence[Point], groups: Sequence[Group]) -> str:
    """What the page's script shows of an implementation under the pointer: times as text, traversal, configuration."""
    place = {group.configuration: number for number, group in enumerate(groups)}
    rows = [
        [p.implementation.traversal, place[p.implementation.configuration], si.seconds(p.seconds), _interval(p)]
        for p in points
    ]
    content = {"configurations": [g.label for g in groups], "points": rows}
    # Inside <script>: the text of a program must not end the element.
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _interval(point: Point) -> str:
    if len(point.times) == 1:
        return "1 measurement"
    return f"{si.seconds(point.low)} to {si.seconds(point.high)} ({len(point.times)} measurements)"


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """Everything is escaped but what this package has drawn itself and marks as safe in the template."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource("templates") / "report"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
        finalize=_visible,
    )


def _visible(value: object) -> object:
    """What results files say, without control codes."""
    return type(value)(without_controls(value)) if isinstance(value, str) else value
