"""Timelines of a traced iteration, rank by rank: the CPU, each stream, and messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dagc.ir.program import Action, Graph
from dagc.ir.traversal import Issue, Record, Sync, Traversal, Wait, entry_text
from dagc.report import si
from dagc.report.charts import AxisScale, Plot, n, tag, text
from dagc.report.picture import kind
from dagc.store.results import TraceSpan

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
    """Something that lasted from `begin` to `end` (seconds). `look` is its class in the style sheet."""

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
    """By rank. Spans of positions outside of the traversal are skipped."""
    ranks = sorted({span.rank for span in spans})
    return tuple(_of_rank(rank, graph, traversal, [s for s in spans if s.rank == rank]) for rank in ranks)


def _of_rank(rank: int, graph: Graph, traversal: Traversal, spans: Sequence[TraceSpan]) -> RankTimeline:
    at = {s.position: s for s in spans if 0 <= s.position < len(traversal.entries)}
    cpu: list[Bar] = []
    streams: dict[int, list[Bar]] = {}
    for position in sorted(at):
        span, entry = at[position], traversal.entries[position]
        name = entry_text(entry, graph)
        cpu.append(_bar(span.begin, span.end, name, _look(entry, graph), "CPU"))
        if isinstance(entry, Issue) and entry.stream is not None and not math.isnan(span.gpu_end):
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


def _look(entry: object, graph: Graph) -> str:
    match entry:
        case Issue(op, None):
            return kind(graph.ops[op])
        case Issue():
            return "launch"
        case Sync():
            return "sync"
        case Record() | Wait():
            return "mark"
    raise AssertionError(entry)


def _messages(graph: Graph, traversal: Traversal, at: dict[int, TraceSpan]) -> list[Bar]:
    """From the start of each post to the end of its wait: while the message may be in flight."""
    waits = {}
    for position, entry in enumerate(traversal.entries):
        if isinstance(entry, Issue):
            op = graph.ops[entry.op]
            waits[(id(op.op), op.action, op.message)] = position
    out = []
    for position, entry in enumerate(traversal.entries):
        if not isinstance(entry, Issue):
            continue
        post = graph.ops[entry.op]
        action = _PAIRS.get(post.action)
        if action is None:
            continue
        own, shared = (id(post.op), action, post.message), (id(post.op), action, None)
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
        plot.add(
            tag(
                "rect",
                x=plot.left,
                y=top,
                width=WIDTH - plot.left - plot.right,
                height=_LANE,
                class_=f"lane odd{row % 2}",
            )
        )
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
