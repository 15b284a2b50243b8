"""Lower bounds of copies and messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagc import api
from dagc.ir.program import Graph
from dagc.perf.bound import CACHE, HOST_LINK, LAUNCH, LINK, MEMORY, Ceilings, bound_of, copy_bound, over_links
from dagc.study.limits import op_bounds, why_of
from tests.emit.build import ROOT

TEXT = """
program copies
param n : i64 = 1000000
setup "none.py" data()
scalar left, right, k : i32
array a : f32[n, 4] inout
array b : f32[n, 4] inout
kernel fill(y: out f32[m, 4], m: i64) {
  gpu {
    launch grid(ceil(m / 256)) block(256)
    cuda \"\"\"int i = blockIdx.x * 256 + threadIdx.x; if (i < m) for (int j = 0; j < 4; ++j) y[i * 4 + j] = 1;\"\"\"
  }
}
dag {
  whole : gpu copy(b, a)
  some  : gpu copy(b[0 .. k], a[0 .. k])
  halo  : mpi exchange {
    up   : send a[1 .. 2] to left             recv a[n - 1 .. n] from right
    down : send a[0 .. n - 1] to right        recv b[0 .. n - 1] from left
  }
  if k > 3 { maybe : gpu fill(a, n) }
  none  : gpu fill(a[k .. k], k - k)
}
"""
CEILINGS = Ceilings(((1e6, 8e12), (1e8, 4e12)), launch=1e-9, link=1e11)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("copies") / "copies.dag"
    path.write_text(TEXT)
    return api.read(path, {"transport": "peer"}).graph()


def test_a_copy_is_read_and_written(graph: Graph) -> None:
    whole, some = graph.by_name("whole"), graph.by_name("some")
    bound = copy_bound(graph.program, whole, {}, CEILINGS)
    assert (bound.why, bound.seconds) == (CACHE, pytest.approx(2 * 16e6 / 8e12))
    assert copy_bound(graph.program, whole, {}, replace(CEILINGS, streams=((1e6, 4e12),))).why == MEMORY
    assert copy_bound(graph.program, some, {"k": 10}, CEILINGS).footprint.bytes == 2 * 10 * 16
    assert copy_bound(graph.program, some, {"k": 10}, CEILINGS).why == LAUNCH
    assert copy_bound(graph.program, some, {}, CEILINGS).unknown == "what it copies is not known"


def test_the_longest_message_passes_its_link(graph: Graph) -> None:
    halo = graph.by_name("halo")
    bound = copy_bound(graph.program, halo, {"rank": 0, "left": 1, "right": 2}, CEILINGS)
    assert (bound.why, bound.seconds) == (LINK, pytest.approx(16 * 999999 / 1e11))
    edge = copy_bound(graph.program, halo, {"rank": 0, "left": -1, "right": 2}, CEILINGS)
    assert edge.footprint.bytes == 16  # nothing comes from the left
    alone = copy_bound(graph.program, halo, {"rank": 0, "left": 0, "right": 0}, CEILINGS)
    assert (alone.seconds, alone.unknown) == (0.0, "its messages are not known")  # to itself: over no link
    assert copy_bound(graph.program, halo, {}, CEILINGS).seconds == 0.0


def test_what_may_not_run_takes_no_time_for_certain(graph: Graph) -> None:
    def bound(name: str, **values: int) -> tuple[float, str]:
        op = graph.by_name(name).kernel
        assert op is not None
        found = bound_of(graph.program, op, values, CEILINGS)
        return found.seconds, found.unknown

    assert bound("maybe", k=3) == bound("maybe") == (0.0, "it may not run")
    assert bound("maybe", k=4) == (pytest.approx(16e6 / 8e12), "")
    assert bound("none", k=7) == (0.0, "nothing is launched")


def test_what_another_gpu_writes_comes_over_the_link() -> None:
    """Of G = (A B) (C D) with the product of C and D on a second GPU: the last op waits for F, and not for E."""
    sides = {"n": 256, "f.device": "gpu1"}
    graph = api.read(ROOT / "benchmarks/gpu/several.dag", sides).graph()
    assert {op: [v.array for v in values] for op, values in over_links(graph.program).items()} == {"g": ["F"]}

    def seconds(graph: Graph, op: str) -> float:
        return op_bounds(graph, [{}], CEILINGS)[graph.by_name(op).id].seconds

    alone = api.read(ROOT / "benchmarks/gpu/several.dag", {"n": 256}).graph()
    assert seconds(graph, "g") - seconds(alone, "g") == pytest.approx(256 * 256 * 4 / CEILINGS.link)
    assert seconds(graph, "f") == seconds(alone, "f")
    for name in ("A.to_device", "G.to_host"):
        copy = graph.by_name(name)
        assert copy_bound(graph.program, copy, {}, CEILINGS).why == CACHE  # on the host target, a copy in memory
        unknown = copy_bound(graph.program, copy, {}, replace(CEILINGS, shared=True))
        assert unknown.unknown == "the speed of the link to the host was not measured"
        crossed = copy_bound(graph.program, copy, {}, replace(CEILINGS, shared=True, host_link=5e10))
        assert (crossed.why, crossed.seconds) == (HOST_LINK, pytest.approx(256 * 256 * 4 / 5e10))
    bound = op_bounds(graph, [{}], replace(CEILINGS, link=1e6))[graph.by_name("g").id]
    assert (bound.why, bound.footprint.bytes) == (LINK, 256 * 256 * 4)
    assert why_of(bound) == "262\u202fkB over a link at 1.00\u202fMB/s"
    assert not over_links(api.read(ROOT / "benchmarks/gpu/several.dag", {**sides, "g.device": "any"}).graph().program)
