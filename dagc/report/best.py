"""The best and the worst implementation as the report shows them, and the DAGs of the configurations."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dagc.base.errors import UsageError, counted
from dagc.ir.graph import Graph
from dagc.ir.traversal import Issue, Record, Sync, Traversal, Wait, entry_text, parse_traversal
from dagc.report import si, timeline
from dagc.report.measured import Group, Point
from dagc.report.picture import as_svg, kind
from dagc.store.results import Configuration, Results

MOST_DAGS = 6


@dataclass(frozen=True, slots=True)
class Chip:
    """An entry of a traversal; `look` is the class that the style sheet colours."""

    text: str
    look: str


@dataclass(frozen=True, slots=True)
class RankView:
    rank: int
    length: str
    busy: str
    svg: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """`what` is "best" or "worst"; `ranks` is empty where no trace was recorded, `left_out` of them are not drawn."""

    what: str
    point: Point
    time: str
    interval: str
    configuration: str
    traversal: str
    chips: tuple[Chip, ...]
    command: str
    ranks: tuple[RankView, ...]
    left_out: int


def traced(
    results: Results, best: Point | None, worst: Point | None, graphs: Mapping[Configuration, Graph], file: str
) -> tuple[Chosen, ...]:
    """The best and the worst, with timelines where they were traced: those of one rank have the same axis.

    `best` is None where nothing was measured, `worst` also where nothing else was.
    """
    ends = [point for point in (best, worst) if point is not None]
    parsed = [_parsed(p, graphs, file) for p in ends]
    lines = [
        timeline.timelines(graph, traversal, results.traces.get(p.implementation.id, ()))
        for p, (graph, traversal) in zip(ends, parsed, strict=True)
    ]
    shown = [timeline.shown_ranks(found) for found in lines]
    out = []
    for what, p, (graph, traversal), all_, few in zip(("best", "worst"), ends, parsed, lines, shown, strict=False):
        ranks = tuple(
            RankView(
                line.rank,
                si.seconds(line.length),
                si.percent(line.busy),
                timeline.draw(line, *_axis(line.rank, shown), what),
            )
            for line in few
        )
        name = shlex.quote(f"{results.program.name}-best")
        out.append(
            Chosen(
                what, p, si.seconds(p.seconds), interval_text(p), p.implementation.configuration.text,
                p.implementation.traversal, tuple(_chip(entry, graph) for entry in traversal.entries),
                f"dagc best {shlex.quote(file)} -o {name}" if what == "best" else "", ranks, len(all_) - len(few),
            )
        )  # fmt: skip
    return tuple(out)


def _axis(rank: int, shown: Sequence[Sequence[timeline.RankTimeline]]) -> tuple[float, float]:
    """Begin and end, in seconds, of an axis for all timelines of this rank."""
    mine = [line for found in shown for line in found if line.rank == rank]
    return min(line.begin for line in mine), max(line.length for line in mine)


def _parsed(point: Point, graphs: Mapping[Configuration, Graph], file: str) -> tuple[Graph, Traversal]:
    found = point.implementation
    if found.configuration not in graphs:
        raise UsageError(f"{file}: no graph of the configuration {found.configuration.text}", "explore again")
    graph = graphs[found.configuration]
    return graph, parse_traversal(found.traversal, graph, file)


def interval_text(point: Point) -> str:
    """`95 %: 60.1 us to 63 us, 7 measurements`; below six measurements it is their range that has this confidence."""
    if len(point.times) == 1:
        return "1 measurement, no interval"
    what = "95 %" if len(point.times) >= 6 else "range"
    return f"{what}: {si.seconds(point.low)} to {si.seconds(point.high)}, {len(point.times)} measurements"


def _chip(entry: object, graph: Graph) -> Chip:
    look = "mark"
    if isinstance(entry, Issue):
        look = kind(graph.ops[entry.op])
    elif isinstance(entry, Sync):
        look = "sync"
    assert isinstance(entry, Issue | Record | Wait | Sync)
    return Chip(entry_text(entry, graph), look)


_MOST_NAMED = 4  # configurations, above one picture


def _all_of(labels: Sequence[str]) -> str:
    left = len(labels) - _MOST_NAMED
    return "; ".join(labels[:_MOST_NAMED]) + (f" and {counted(left, 'other')}" if left > 0 else "")


def pictures(groups: Sequence[Group], graphs: Mapping[Configuration, Graph]) -> list[tuple[str, str]]:
    """(configurations, SVG) of every DAG that looks different, that of the best first."""
    labels_by_picture: dict[str, list[str]] = {}
    for group in groups:
        if group.configuration in graphs:
            labels_by_picture.setdefault(as_svg(graphs[group.configuration]), []).append(group.label)
    # Each picture names its arrow tips; names are those of the whole page.
    return [
        (_all_of(labels), svg.replace('id="tip"', f'id="tip{i}"').replace("url(#tip)", f"url(#tip{i})"))
        for i, (svg, labels) in enumerate(list(labels_by_picture.items())[:MOST_DAGS])
    ]
