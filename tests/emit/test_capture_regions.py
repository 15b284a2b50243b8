"""Regions of consecutive GPU entries, captured in CUDA graphs."""

from __future__ import annotations

from random import Random

import pytest

from dagc.emit import emit
from dagc.emit.forms import SMALLEST, BeginCapture, EndCapture, PositionedStep, rows, with_capture_regions
from dagc.ir.plan import Target
from dagc.ir.traversal import Issue, Stream, Traversal, parse_traversal
from dagc.space import Space
from dagc.space.proof import Prover
from tests.conftest import Compare
from tests.emit.build import SPMV, plan
from tests.emit.test_golden import GOLDEN
from tests.graphs import halo, spmv

GRAPHS = ("spmv", "halo")


def flat(placed: tuple[PositionedStep, ...]) -> Traversal:
    return Traversal(tuple(p.step for p in placed if not isinstance(p.step, BeginCapture | EndCapture)))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("streams", [1, 2, 3])
def test_what_capturing_adds_only_strengthens_the_order(name: str, streams: int) -> None:
    graph = spmv(streams) if name == "spmv" else halo(2, streams)
    space, prover, random = Space(graph), Prover(graph), Random(streams)
    for _ in range(60):
        traversal = space.walk(random)
        placed = with_capture_regions(traversal)
        assert prover.proved(flat(placed))
        kept = [p for p in placed if p.position is not None]
        assert sorted(p.position for p in kept if p.position is not None) == list(range(len(traversal.entries)))
        issued = [p.step for p in kept if isinstance(p.step, Issue)]
        assert issued == [e for e in traversal.entries if isinstance(e, Issue)]


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_regions_hold_gpu_entries_and_are_as_long_as_can_be(streams: int) -> None:
    random = Random(1)
    space = Space(spmv(streams))
    for _ in range(60):
        traversal = space.walk(random)
        placed = with_capture_regions(traversal)
        begins = [i for i, p in enumerate(placed) if isinstance(p.step, BeginCapture)]
        for i in begins:
            begin = placed[i].step
            assert isinstance(begin, BeginCapture)
            assert placed[i + begin.length + 1].step == EndCapture(begin.region)
            inside = [p.step for p in placed[i + 1 : i + 1 + begin.length]]
            assert all(not isinstance(s, BeginCapture | EndCapture) and s.stream is not None for s in inside)
            assert sum(isinstance(s, Issue) for s in inside) >= SMALLEST
        outside = set(range(len(placed)))
        for i in begins:
            step = placed[i].step
            assert isinstance(step, BeginCapture)
            outside -= set(range(i, i + step.length + 2))
        left = {placed[i].position for i in outside}
        run = 0
        for i, entry in enumerate(traversal.entries):
            on_gpu = entry.stream is not None
            run = run + isinstance(entry, Issue) if on_gpu and i in left else 0
            assert run < SMALLEST


def test_by_hand() -> None:
    """Two streams; the first region is one op long and stays as it is; e0 is waited for from outside."""
    graph = spmv()
    text = (
        "yl@s0 post_recv pack@s1 record(e0)@s1 sync(e0) post_send wait_recv wait_send record(e1)@s0 yr@s1"
        " wait(e1)@s1 y@s1 record(e2)@s1 sync(e2) end"
    )
    traversal = parse_traversal(text, graph, "by hand")
    steps = [p.step for p in with_capture_regions(traversal)]
    begin = next(i for i, s in enumerate(steps) if isinstance(s, BeginCapture))
    assert steps[begin] == BeginCapture(0, Stream(0), 9)
    before = rows(traversal, capture=True)[:begin]
    # s1 has run pack before the region: the origin, s0, waits for it.
    assert before[-2:] == [(1, 3, 1), (2, 3, 0)]
    # e2 is synchronised with after the region: recorded again on s0. Nothing more is issued on s1.
    end = steps.index(EndCapture(0))
    assert rows(traversal, capture=True)[end + 1 :] == [(1, 2, 0), (3, 2, -1), (0, 8, -1)]
    assert [placed.position for placed in with_capture_regions(traversal)][end + 1 :] == [None, 13, 14]


def test_emitted_text(golden: Compare) -> None:
    files = emit(plan(SPMV, Target.CUDA, capture="true", transport="mpi_cuda"))
    for name in ("iteration.hpp", "bench.cu"):
        golden(GOLDEN / "spmv-cuda-capture" / f"{name}.golden", files[name])
