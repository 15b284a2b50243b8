"""Timelines show what the trace says: every entry, every GPU op, every message from its post to its wait."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dagc import api
from dagc.ir.program import Action, Graph
from dagc.ir.traversal import Issue, Traversal
from dagc.report.html import MOST_RANKS, RankTimeline, draw, shown_ranks, timelines
from dagc.space import Space
from dagc.store.results import TraceSpan
from tests.report.data import made_up_trace

SAMPLES = Path(__file__).parents[2] / "samples"
POSTS = (Action.POST_SEND, Action.POST_RECV, Action.POST_COLLECTIVE)


def _traced(name: str, transport: str) -> tuple[Graph, Traversal, tuple[TraceSpan, ...], RankTimeline]:
    graph = api.load_graph(SAMPLES / name / f"{name}.dag", {"transport": transport})
    traversal = Space(graph).first()
    spans = made_up_trace(graph, traversal, 2)
    return graph, traversal, spans, timelines(graph, traversal, spans)[1]


@pytest.mark.parametrize(
    ("name", "transport"), [("spmv", "mpi_host"), ("halo3d", "mpi_cuda"), ("cg", "mpi_host"), ("spmv", "nccl")]
)
def test_every_entry_op_and_message_has_its_bar(name: str, transport: str) -> None:
    graph, traversal, spans, line = _traced(name, transport)
    assert line.rank == 1
    cpu, *others = line.lanes
    assert cpu.name == "CPU"
    assert len(cpu.bars) == len(traversal.entries)
    on_gpu = [b.name for lane in others if lane.name.startswith("stream") for b in lane.bars]
    assert sorted(on_gpu) == sorted(op.name for op in graph.ops if op.gpu)
    messages = {b.name: b for lane in others if not lane.name.startswith("stream") for b in lane.bars}
    assert set(messages) == {op.name for op in graph.ops if op.action in POSTS}
    mine = {s.position: s for s in spans if s.rank == 1}
    for position, entry in enumerate(traversal.entries):
        if isinstance(entry, Issue) and graph.ops[entry.op].name in messages:
            assert messages[graph.ops[entry.op].name].begin == mine[position].begin
    for lane in others:
        for a, b in zip(lane.bars, lane.bars[1:], strict=False):
            assert a.end <= b.begin


def test_a_message_ends_with_the_wait_for_it() -> None:
    graph, traversal, spans, line = _traced("spmv", "mpi_host")
    ends = {
        graph.ops[e.op].name: spans_of(spans, 1)[i].end for i, e in enumerate(traversal.entries) if isinstance(e, Issue)
    }
    messages = {b.name: b.end for lane in line.lanes for b in lane.bars if b.look == "message"}
    assert messages == {"post_send": ends["wait_send"], "post_recv": ends["wait_recv"]}


def spans_of(spans: tuple[TraceSpan, ...], rank: int) -> list[TraceSpan]:
    return [s for s in spans if s.rank == rank]


def test_how_busy_the_gpu_is_counts_overlaps_once() -> None:
    graph = api.load_graph(SAMPLES / "spmv/spmv.dag", {"transport": "mpi_cuda"})
    traversal = Space(graph).first()
    at = [i for i, e in enumerate(traversal.entries) if isinstance(e, Issue) and e.stream is not None][:2]
    spans = [TraceSpan(0, at[0], 0.0, 1.0, 1.0, 4.0), TraceSpan(0, at[1], 1.0, 2.0, 3.0, 6.0)]
    (line,) = timelines(graph, traversal, spans)
    assert line.length == 6.0
    assert line.busy == pytest.approx(5 / 6)


def test_an_op_in_a_worker_thread_is_on_its_stream_and_does_not_occupy_the_gpu() -> None:
    graph = api.load_graph(SAMPLES.parent / "tests/emit/data/newton.dag", {"largest.thread": "worker"})
    traversal = Space(graph).first()
    (at,) = (i for i, e in enumerate(traversal.entries) if isinstance(e, Issue) and graph.ops[e.op].name == "largest")
    (line,) = timelines(graph, traversal, [TraceSpan(0, at, 0.0, 1.0, 1.0, 4.0)])
    assert [(lane.name, b.look) for lane in line.lanes for b in lane.bars] == [("CPU", "launch"), ("stream 0", "cpu")]
    assert line.busy == 0.0


def test_a_position_that_the_traversal_lacks_is_left_out() -> None:
    graph = api.load_graph(SAMPLES / "spmv/spmv.dag", {"transport": "mpi_cuda"})
    (line,) = timelines(graph, Space(graph).first(), [TraceSpan(0, 999, 0.0, 1.0)])
    assert line.length == 0.0
    assert timelines(graph, Space(graph).first(), []) == ()


def test_of_many_ranks_the_slowest_is_kept() -> None:
    lines = [RankTimeline(rank, (), 2.0 if rank == 40 else 1.0, 0.0) for rank in range(64)]
    kept = shown_ranks(lines)
    assert [line.rank for line in kept] == [*range(MOST_RANKS - 1), 40]


def test_bars_are_inside_the_axis_of_the_longest() -> None:
    _, _, _, line = _traced("spmv", "mpi_host")
    root = ET.fromstring(draw(line, line.begin, line.length * 2, "the best"))
    bars = [e for e in root.iter("rect") if "bar" in (e.get("class") or "").split()]
    assert len(bars) == sum(len(lane.bars) for lane in line.lanes)
    left, right = 84.0, float(root.get("width", "")) - 16
    for bar in bars:
        assert left - 0.1 <= float(bar.get("x", "")) <= (left + right) / 2 + 1
