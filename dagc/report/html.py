"""`dagc report`: a results file as one self-contained HTML page that needs no network."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dagc.base.errors import UsageError, counted
from dagc.ir.choice import Choice
from dagc.ir.program import Action, Graph, shown
from dagc.ir.traversal import Entry, Traversal
from dagc.lab.orders import domain_of
from dagc.learn.text import by_chance, held_out_halves, stated_of_classes, why_no_rules
from dagc.learn.tree import LearnedRules
from dagc.learn.types import Classes, RuleSet
from dagc.report import charts, si
from dagc.report.charts import (
    AxisScale,
    ConfigurationPoints,
    MeasuredPoint,
    Plot,
    class_colour,
    common_decisions,
    curves_of,
    groups_of,
    n,
    points_of,
    ranked,
    readable_depth,
    tag,
    text,
    tree_chart,
)
from dagc.report.limits import LimitRow
from dagc.report.pages import environment
from dagc.report.picture import as_svg, kind
from dagc.report.si import TIMES, Quantity
from dagc.space.loops import unroll
from dagc.store.results import Results, TraceSpan, noise_advice_of, wanted_repeats

# ---- timelines of a traced iteration, rank by rank: the CPU, each stream, and messages -------------


WIDTH = 1080.0
MOST_RANKS = 8
_LANE, _BAR = 34.0, 24.0
_LETTER = 6.3
_PAIRS = {
    Action.POST_SEND: Action.WAIT_SEND,
    Action.POST_RECV: Action.WAIT_RECV,
    Action.POST_COLLECTIVE: Action.WAIT_COLLECTIVE,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a timeline, from `begin` to `end` (seconds). `look` is its class in the style sheet."""

    begin: float
    end: float
    name: str
    look: str
    tip: str


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """One rank of a traced iteration. `busy`: fraction of its length in which the GPU worked, on any stream."""

    rank: int
    lanes: tuple[Lane, ...]
    length: float
    busy: float

    @property
    def begin(self) -> float:
        """Start of the axis: 0, or that of an earlier bar (clocks of CPU and GPU agree only to a few us)."""
        return min(0.0, *(bar.begin for lane in self.lanes for bar in lane.bars), 0.0)


def timelines(graph: Graph, traversal: Traversal, spans: Sequence[TraceSpan]) -> tuple[RankTimeline, ...]:
    """The timelines by rank. Spans of positions outside of the traversal are skipped."""
    ranks = sorted({span.rank for span in spans})
    return tuple(_of_rank(rank, graph, traversal, [s for s in spans if s.rank == rank]) for rank in ranks)


def _of_rank(rank: int, graph: Graph, traversal: Traversal, spans: Sequence[TraceSpan]) -> RankTimeline:
    at = {s.position: s for s in spans if 0 <= s.position < len(traversal.entries)}
    cpu: list[Bar] = []
    streams: dict[int, list[Bar]] = {}
    for position in sorted(at):
        span, entry = at[position], traversal.entries[position]
        name = entry.text(graph)
        cpu.append(_bar(span.begin, span.end, name, _look(entry, graph), "CPU"))
        if entry.op is not None and entry.stream is not None and not math.isnan(span.gpu_end):
            op = graph.ops[entry.op]
            look = "group" if op.action is Action.GROUP else kind(op)
            bar = _bar(span.gpu_begin, span.gpu_end, op.name, look, f"stream {entry.stream}")
            streams.setdefault(int(entry.stream), []).append(bar)
    lanes = [Lane("CPU", tuple(cpu))]
    lanes += [Lane(f"stream {stream}", tuple(streams[stream])) for stream in sorted(streams)]
    lanes += _message_lanes(_messages(graph, traversal, at))
    length = max((b.end for lane in lanes for b in lane.bars), default=0.0)
    busy = _covered([(b.begin, b.end) for bars in streams.values() for b in bars if b.look != "cpu"])
    return RankTimeline(rank, tuple(lanes), length, busy / length if length > 0 else 0.0)


def _bar(begin: float, end: float, name: str, look: str, where: str) -> Bar:
    tip = f"{name}\n{where}, from {si.seconds(begin)}, {si.seconds(end - begin)} long"
    return Bar(begin, end, name, look, tip)


def _look(entry: Entry, graph: Graph) -> str:
    return _chip_look(entry, graph) if entry.op is None or entry.stream is None else "launch"


def _messages(graph: Graph, traversal: Traversal, at: dict[int, TraceSpan]) -> list[Bar]:
    """From the start of each post to the end of its wait: while the message may be in flight."""
    waits = {}
    for position, entry in enumerate(traversal.entries):
        if entry.op is not None:
            op = graph.ops[entry.op]
            waits[(id(op.op), op.action, op.serves)] = position
    out = []
    for position, entry in enumerate(traversal.entries):
        if entry.op is None:
            continue
        post = graph.ops[entry.op]
        action = _PAIRS.get(post.action)
        if action is None:
            continue
        own, shared = (id(post.op), action, post.serves), (id(post.op), action, (None, None))
        wait = waits.get(own, waits.get(shared))
        if wait is not None and position in at and wait in at:
            out.append(_bar(at[position].begin, at[wait].end, post.name, "message", "from post to the end of its wait"))
    return out


def _message_lanes(bars: Sequence[Bar]) -> list[Lane]:
    """As few lanes as possible without overlapping bars."""
    rows: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda b: (b.begin, b.end)):
        row = next((r for r in rows if r[-1].end <= bar.begin), None)
        if row is None:
            rows.append([bar])
        else:
            row.append(bar)
    return [Lane("messages" if i == 0 else "", tuple(row)) for i, row in enumerate(rows)]


def _covered(intervals: Sequence[tuple[float, float]]) -> float:
    """Length of the union."""
    total, until = 0.0, -math.inf
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


# ---- drawing --------------------------------------------------------------------------------


def shown_ranks(lines: Sequence[RankTimeline]) -> list[RankTimeline]:
    """All, or the first few together with the slowest: space on a page is limited."""
    if len(lines) <= MOST_RANKS:
        return list(lines)
    slowest = max(lines, key=lambda line: line.length)
    first = [line for line in lines if line is not slowest][: MOST_RANKS - 1]
    return sorted([*first, slowest], key=lambda line: line.rank)


def draw(line: RankTimeline, begin: float, end: float, what: str) -> str:
    """One rank. `begin` and `end` of the axis, in seconds, are common to all ranks to compare."""
    plot = Plot(WIDTH, 14 + _LANE * len(line.lanes) + 44, left=84, top=14)
    x = AxisScale(begin, end * 1.005, *plot.x_range)
    factor, unit = si.unit(end)
    for row, lane in enumerate(line.lanes):
        top = plot.top + _LANE * row
        wide, look = WIDTH - plot.left - plot.right, f"lane odd{row % 2}"
        plot.add(tag("rect", x=plot.left, y=top, width=wide, height=_LANE, class_=look))
        plot.add(text(plot.left - 10, top + _LANE / 2 + 4, lane.name, "row-label", text_anchor="end"))
        plot.add(*(_drawn(bar, x, top + (_LANE - _BAR) / 2) for bar in lane.bars))
    bottom = plot.y_range[0]
    plot.add(tag("path", d=f"M{n(x(line.length))} {n(plot.top)}V{n(bottom)}", class_="finish"))
    plot.x_axis(x, f"time since the iteration began [{unit}]", factor)
    return plot.svg(f"Timeline of {what}, rank {line.rank}")


def _drawn(bar: Bar, x: AxisScale, top: float) -> str:
    left, wide = x(bar.begin), max(1.2, x(bar.end) - x(bar.begin))
    thin = " thin" if wide < 4 else ""
    out = tag("rect", x=left, y=top, width=wide, height=_BAR, rx=2, class_=f"bar {bar.look}{thin}")
    letters = int((wide - 6) / _LETTER)
    name = bar.name if len(bar.name) <= letters else bar.name[: letters - 1] + "…" if letters >= 5 else ""
    if name:
        out += text(left + wide / 2, top + _BAR / 2 + 4, name, "bar-name", text_anchor="middle")
    return tag("g", out, data_tip=bar.tip)


# ---- the page --------------------------------------------------------------------------------------


# ---- best and worst ----

MOST_DAGS = 6


@dataclass(frozen=True, slots=True)
class Extreme:
    """`what` is "best" or "worst". `chips`: text and class in the style sheet of each entry of its traversal. `ranks`:
    timelines and their pictures, empty without a trace; `left_out` of them are not drawn."""

    what: str
    point: MeasuredPoint
    chips: tuple[tuple[str, str], ...]
    command: str
    ranks: tuple[tuple[RankTimeline, str], ...]
    left_out: int


def traced(
    results: Results,
    best: MeasuredPoint | None,
    worst: MeasuredPoint | None,
    graphs: Mapping[Choice, Graph],
    file: str,
) -> tuple[Extreme, ...]:
    """The best and the worst, with timelines if they were traced; those of one rank have the same axis.

    `best` is None without measurements, `worst` also if only one implementation was measured.
    """
    ends = [point for point in (best, worst) if point is not None]
    parsed = [_parsed(p, graphs, file) for p in ends]
    lines = [
        timelines(*unroll(graph, traversal), results.traces.get(p.implementation.id, ()))
        for p, (graph, traversal) in zip(ends, parsed, strict=True)
    ]
    shown = [shown_ranks(lanes) for lanes in lines]
    out = []
    for what, p, (graph, traversal), all_, few in zip(("best", "worst"), ends, parsed, lines, shown, strict=False):
        ranks = tuple((line, draw(line, *_axis(line.rank, shown), what)) for line in few)
        name = shlex.quote(f"{results.program.name}-best")
        command = f"dagc best {shlex.quote(file)} -o {name}" if what == "best" else ""
        chips = tuple((entry.text(graph), _chip_look(entry, graph)) for entry in traversal.entries)
        out.append(Extreme(what, p, chips, command, ranks, len(all_) - len(few)))
    return tuple(out)


def _axis(rank: int, shown: Sequence[Sequence[RankTimeline]]) -> tuple[float, float]:
    """Start and end, in seconds, of an axis for all timelines of this rank."""
    mine = [line for lanes in shown for line in lanes if line.rank == rank]
    return min(line.begin for line in mine), max(line.length for line in mine)


def _parsed(point: MeasuredPoint, graphs: Mapping[Choice, Graph], file: str) -> tuple[Graph, Traversal]:
    implementation = point.implementation
    if implementation.configuration not in graphs:
        raise UsageError(f"{file}: no graph of the configuration {implementation.configuration.text}", "explore again")
    graph = graphs[implementation.configuration]
    return graph, implementation.order(graph, file)


def interval_text(point: MeasuredPoint, by: Quantity) -> str:
    """`95 %: 60.1 us to 63 us, 7 measurements`; below six measurements, the range unless the estimate is shrunk."""
    found = point.estimate
    if found.measurements == 1:
        return "1 measurement, no interval"
    what = "95 %" if found.shrunk or found.measurements >= 6 else "range"
    return f"{what}: {by.text(found.low)} to {by.text(found.high)}, {found.measurements} measurements"


def _chip_look(entry: Entry, graph: Graph) -> str:
    if entry.op is not None:
        return kind(graph.ops[entry.op])
    return "sync" if entry.stream is None else "mark"


_MOST_NAMED = 4  # configurations named above one picture


def _all_of(labels: Sequence[str]) -> str:
    left = len(labels) - _MOST_NAMED
    return "; ".join(labels[:_MOST_NAMED]) + (f" and {counted(left, 'other')}" if left > 0 else "")


def pictures(groups: Sequence[ConfigurationPoints], graphs: Mapping[Choice, Graph]) -> list[tuple[str, str]]:
    """(configurations, SVG) of every distinct DAG, that of the best first."""
    labels_by_picture: dict[str, list[str]] = {}
    for group in groups:
        if group.configuration in graphs:
            labels_by_picture.setdefault(as_svg(graphs[group.configuration]), []).append(group.label)
    # Each picture names its arrow heads; names are global in the page.
    return [
        (_all_of(labels), svg.replace('id="tip"', f'id="tip{i}"').replace("url(#tip)", f"url(#tip{i})"))
        for i, (svg, labels) in enumerate(list(labels_by_picture.items())[:MOST_DAGS])
    ]


# ---- tables and tiles ----


def summary_tiles(
    results: Results,
    points: Sequence[MeasuredPoint],
    best: MeasuredPoint | None,
    groups: Sequence[ConfigurationPoints],
    graphs: Mapping[Choice, Graph],
    by: Quantity,
) -> list[tuple[str, str, str]]:
    """Name, value and note: the best time, the speed-up, the number of measurements, the confidence."""
    if best is None:
        return [("best", "none", "results disagree" if points else "nothing could be measured")]
    middle, worst = points[len(points) // 2], points[-1]
    measured = sum(len(p.times) for p in points)
    space = domain_of((g.configuration, graphs[g.configuration]) for g in groups if g.configuration in graphs)
    size = space.size() if results.searched is None else results.searched
    of = f"of more than {si.about(space.more_than())}" if size is None else f"of {si.count(size)}"
    reference = "" if math.isnan(results.reference) else "drift divided out"
    return [
        ("best", by.text(best.value), interval_text(best, by)),
        ("the median takes", si.times(middle.value / best.value), by.text(middle.value)),
        ("the worst takes", si.times(worst.value / best.value), by.text(worst.value)),
        ("implementations", si.count(len(points)), of),
        ("measurements", si.count(measured), reference),
        ("noise floor", si.percent(results.noise), "standard deviation of one measurement"),
    ]


# ---- classes and rules ----------------------------------------------------------------------


def _as_text(number: int, sets: Sequence[RuleSet]) -> str:
    """The rule sets of a class, numbered from 1, as the button copies them."""
    blocks = (
        "\n".join((f"class {number}, {counted(r.samples, 'sample')}:", *(f"  {rule.text}" for rule in r.rules)))
        for r in sets
    )
    return "\n\n".join(blocks)


# ---- tables ---------------------------------------------------------------------------------


def curve_names(results: Results) -> list[str]:
    """The name of each run in the plot of the search."""
    return [f"run {i + 1}: {run.strategy}, seed {run.seed}" for i, run in enumerate(results.runs)]


def provenance(results: Results) -> list[tuple[str, list[tuple[str, str]]]]:
    """How each run, by its name, measured: all recorded facts, including options at their default."""
    out = []
    for name, run in zip(curve_names(results), results.runs, strict=True):
        machine = run.machine
        rows = [
            ("started", run.started),
            ("hosts", ", ".join(machine.hosts)),
            ("CPU", f"{machine.cpu}, {si.ordinary(machine.cores, 'core')}"),
            ("GPUs", _models_counted(machine.gpus) or "none"),
            ("driver", machine.driver or "not recorded"),
            ("MPI", machine.mpi),
            ("target", f"{machine.target} {machine.arch}".strip()),
            ("ranks", str(run.ranks)),
            ("one measurement", f"at least {si.seconds(run.seconds)}"),
            ("noise, measured first", si.percent(run.noise)),
            ("strategy, seed", f"{run.strategy}, {run.seed}"),
            ("revision of the program", run.revision or "not known: not in a git repository"),
            ("dagc", run.version),
        ]
        rows += [(key, _fact(value)) for key, value in sorted(machine.facts.items())]
        rows += [(_option(key), _fact(value)) for key, value in sorted(run.options.items()) if key != "fixed"]
        out.append((name, rows))
    return out


# Names on the command line of options that runs store under another name.
_OPTIONS = {
    "most": "--max", "most_configurations": "--max-configurations", "opened": "--open", "transport": "--transport",
    "setup": "digest of the set-up", "trace": "traced",
}  # fmt: skip


def _option(key: str) -> str:
    """As on the command line: `--mpi-takes-device-pointers`."""
    return _OPTIONS.get(key, f"--{key.replace('_', '-')}")


def _models_counted(names: Sequence[str]) -> str:
    """`4 x NVIDIA H200`, with the sign for it."""
    return ", ".join(f"{len(list(same))} \u00d7 {name}" for name, same in groupby(names))


def _fact(value: object) -> str:
    if isinstance(value, bool | str | int | float):
        return shown(value) or "none"
    if value is None or value == []:
        return "none"
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


# ---- page ----

MOST_ROWS = 20  # of the table of the fastest, and of the failures


def as_html(
    results: Results,
    graphs: Mapping[Choice, Graph],
    learned: LearnedRules | None,
    *,
    file: str,
    version: str = "",
    fixed: Sequence[str] = (),
    doubts: Sequence[str] = (),
    limits: Sequence[LimitRow] = (),
    beside: Sequence[str] = (),
) -> str:
    """The page.

    `graphs`: of every configuration of `results`; `learned`: the rules (None: too few measurements); `file`: the name
    of the results file, for the commands shown; `fixed`: lines about choices of the best that were not searched;
    `doubts`: why none is the best though some were measured; `limits`: how far the best is from its lower bounds;
    `beside`: lines on the order of an application beside the best. Without traces there is no timeline; a file without
    a measurement gives a page too.
    """
    objective = results.objective
    by = TIMES if objective.is_time else Quantity(f"{objective.text} of an iteration", objective.unit)
    points = points_of(results)
    choices = () if doubts else ranked(points)
    best, groups = choices[0] if choices else None, groups_of(points)
    if learned is not None and len(learned.classes.times) != len(points):
        learned = None  # for other samples, whose positions are not those of the points
    classes = None if learned is None or len(points) < 2 else learned.classes
    failures = [i for i in results.implementations if i.failure]
    return environment().get_template("page.html.j2").render(
        program=results.program, file=file, version=version, fixed=fixed,
        name_of=lambda path: os.path.relpath(path, os.path.dirname(results.program.path) or "."),
        tiles=summary_tiles(results, points, best, groups, graphs, by),
        ties=0 if best is None else best.estimate.ties, unconfirmed=_unconfirmed(best, wanted_repeats(results)),
        less_often=_less_often(points, choices), legend=_legend(groups),
        common=common_decisions([g.configuration for g in groups]) if len(groups) > 1 else {},
        compared="" if objective.is_time else objective.text, dags=pictures(groups, graphs),
        chosen=() if best is None else traced(results, best, points[-1] if len(points) > 1 else None, graphs, file),
        times=charts.sorted_times(points, best, groups, classes, results.noise, by) if len(points) > 1 else "",
        convolution=charts.convolution(classes, by) if classes is not None and classes.convolution else "",
        dropped=_dropped(classes, by), limits=limits, beside=beside, tree=_tree(learned),
        convergence=_convergence(results, by), advice=noise_advice_of(results), doubts=doubts,
        distribution=charts.distribution(groups, by) if groups else "", **_rules(learned, by),
        rows_left=max(0, len(groups) - charts.MOST_ROWS), fastest=choices[:MOST_ROWS],
        group_of={group.configuration: group for group in groups},
        runs=provenance(results), data=_data(points, groups, by, limits), failures=failures[:MOST_ROWS],
        failed=len(failures), floor=si.percent(results.noise), noise_known=not math.isnan(results.noise),
        count=si.count, percent=si.percent, seconds=si.seconds, value=by.text,
        interval=lambda point: interval_text(point, by),
    )  # fmt: skip


def _dropped(classes: Classes | None, by: Quantity) -> list[str]:
    dropped = classes.dropped if classes is not None else ()
    return [f"Boundary at {by.text(b.value)} not drawn: {b.why_dropped}." for b in dropped]


def _less_often(points: Sequence[MeasuredPoint], choices: Sequence[MeasuredPoint]) -> int:
    """How many others have a smaller value than the best, but were measured less often."""
    ids = {p.implementation.id for p in choices}
    return sum(p.value < choices[0].value for p in points if p.implementation.id not in ids) if choices else 0


def _unconfirmed(best: MeasuredPoint | None, repeats: int) -> str:
    """How often the best was measured, if that is too few; else ""."""
    if best is None or len(best.times) >= repeats:
        return ""
    return f"{len(best.times)} of {counted(repeats, 'measurement')}"


def _rules(learned: LearnedRules | None, by: Quantity) -> dict[str, Any]:
    """Names of the template: the rules of each class, why there are none, and how certain they are."""
    if learned is None:
        return {"classes": (), "no_rules": "", "certainty": []}
    certainty = [by_chance(learned), stated_of_classes(learned, by.text), *held_out_halves(learned)]
    classes = learned.classes.classes
    return {
        "classes": [(c, learned.of_class(c.number), class_colour(c.number, len(classes))) for c in classes],
        "no_rules": why_no_rules(learned), "certainty": certainty, "as_text": _as_text,
    }  # fmt: skip


def _tree(learned: LearnedRules | None) -> Mapping[str, object] | None:
    """The tree to a readable depth, and the whole tree if it is deeper."""
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
    """The error on held-out samples together with that in training, never the latter alone."""
    held = learned.held_out
    if held is None:
        return ""
    before = f" (of {learned.full_leaves} leaves before pruning)" if learned.full_leaves > learned.tree.leaves else ""
    return (
        f"{before}; error {si.percent(held.error)} on held-out samples (standard error {si.percent(held.deviation)}, "
        f"one class for all {si.percent(held.one_answer)}), {si.percent(learned.tree.error)} in training"
    )


def _convergence(results: Results, by: Quantity) -> Mapping[str, object] | None:
    curves = curves_of(results)
    if not curves:
        return None
    names = curve_names(results)
    legend = [(place, names[c.run]) for place, c in enumerate(curves[: charts.MOST_CURVES])]
    return {
        "chart": charts.convergence(curves, names, by),
        "legend": legend,
        "left": max(0, len(curves) - charts.MOST_CURVES),
    }


def _legend(groups: Sequence[ConfigurationPoints]) -> list[tuple[int, str]]:
    """Colour and name; the transport, if configurations share a colour. Empty if that is the same for all."""
    colours: dict[int, list[ConfigurationPoints]] = {}
    for group in groups:
        colours.setdefault(group.colour, []).append(group)
    named = [
        (colour, sharing[0].label if len(sharing) == 1 else f"transport={sharing[0].configuration.get('transport')}")
        for colour, sharing in sorted(colours.items())
    ]
    return named if len({name for _, name in named}) == len(named) else []


def _data(
    points: Sequence[MeasuredPoint], groups: Sequence[ConfigurationPoints], by: Quantity, limits: Sequence[LimitRow]
) -> str:
    """Data that the page's script shows for the implementation under the pointer: times as text, traversal,
    configuration; and for other programs the `limits` of the best, times in seconds, null where they are not known."""
    place = {group.configuration: number for number, group in enumerate(groups)}
    rows = [
        [p.implementation.traversal, place[p.implementation.configuration], by.text(p.value), interval_text(p, by)]
        for p in points
    ]
    content: dict[str, Any] = {"configurations": [g.label for g in groups], "points": rows}
    content["limits"] = [row.record for row in limits]
    # Inside <script>: the text of a program must not end the element.
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
