"""Edges: inferred from hazards in text order, written by hand, inside exchanges, and issue order."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import ProgramError
from dagc.base.source import Source
from dagc.ir.traversal import traversal_text
from dagc.lang.lower import lower, parse_with_includes
from dagc.passes import analysis_of, build_graph
from dagc.space import Space
from tests.passes.text import edges, findings, graph

SAMPLES = Path(__file__).parents[2] / "samples"
SPMV, HALO = SAMPLES / "spmv/spmv.dag", SAMPLES / "halo3d/halo3d.dag"
AB = "array a, b : f32[8] out"


@pytest.mark.parametrize(
    "choices",
    [{"transport": "mpi_host"}, {"staging": "ops"}, {"transport": "mpi_cuda"}, {"transport": "nccl"}],
    ids=["mpi_host", "staging_ops", "mpi_cuda", "nccl"],
)
def test_inferred_edges_of_the_spmv_are_those_written(choices: dict[str, str]) -> None:
    text = SPMV.read_text()
    start, stop = text.index("  edges explicit"), text.index("\n}\nverify")
    source = Source(str(SPMV), text[:start] + text[stop:])
    inferred = build_graph(lower(parse_with_includes(source), choices))
    written = api.load_graph(SPMV, choices)
    assert written.program.explicit
    assert not inferred.program.explicit
    assert inferred.completion == written.completion
    assert [op.name for op in inferred.ops] == [op.name for op in written.ops]


@pytest.mark.parametrize("transport", ["mpi_cuda", "mpi_host"])
def test_edges_of_the_halo_exchange(transport: str) -> None:
    found = api.load_graph(HALO, {"transport": transport})
    assert api.show(HALO, {"transport": transport}).startswith("halo: 33 vertices with start and end, 115 edges;")
    named = edges(found)
    faces = [f"[{d},{s}]" for d in "xyz" for s in ("lo", "hi")]
    opposite = {face: face.replace("lo", "?").replace("hi", "lo").replace("?", "hi") for face in faces}
    posts = [f"post_{what}{face}" for what in ("send", "recv") for face in faces]
    waits = ["wait_send", *(f"wait_recv{face}" for face in faces)]
    expected = {f"pack{face} -> post_send{face}" for face in faces}
    expected |= {f"{post} -> {wait}" for post in posts for wait in waits}
    expected |= {f"wait_recv{face} -> unpack{opposite[face]}" for face in faces}
    assert named == expected


def test_three_small_exchanges_have_names_of_their_own() -> None:
    found = api.load_graph(HALO, {"per_axis": "true", "transport": "mpi_cuda"})
    names = {op.name for op in found.ops}
    assert {"halo[x].post_send[lo]", "halo[y].wait_send", "halo[z].wait_recv[hi]"} <= names
    # Every wait follows the posts of its own exchange only.
    assert "halo[x].post_send[lo] -> halo[x].wait_send" in edges(found)
    assert "halo[x].post_send[lo] -> halo[y].wait_send" not in edges(found)


def test_each_kind_of_hazard_gives_an_edge() -> None:
    found = graph(
        "w : gpu fill(a)\nr : gpu add(b, a)\nw2 : gpu fill(a)", "array a : f32[8] out  array b : f32[8] inout"
    )
    assert edges(found) == {"w -> r", "r -> w2"}  # read after write, write after read; w -> w2 by the path
    assert edges(graph("w : gpu fill(a)\nw2 : gpu fill(a)", "array a : f32[8] out")) == {"w -> w2"}


def test_readers_are_not_ordered_and_paths_not_repeated() -> None:
    found = graph(
        "w : gpu fill(a)\nr1 : gpu add(b, a)\nr2 : gpu add(c, a)\nlast : gpu add(b, c)",
        "array a : f32[8] out  array b, c : f32[8] inout",
    )
    assert edges(found) == {"w -> r1", "w -> r2", "r1 -> last", "r2 -> last"}


def test_end_follows_all_ops_without_successors() -> None:
    found = graph("u : gpu fill(a)\nv : gpu fill(b)", AB)
    assert found.completion == ((0, 2), (1, 2))
    assert found.ops[-1].name == "end"


def test_a_written_edge_besides_the_inferred_ones() -> None:
    assert edges(graph("u : gpu fill(a)\nv : gpu fill(b)\nv -> u", AB)) == {"v -> u"}


def test_issue_order_is_no_completion() -> None:
    found = graph("u : gpu fill(a)\nv : gpu fill(b)\nv before u", AB)
    assert (found.order, edges(found)) == (((1, 0),), set())
    texts = [traversal_text(t, found) for t in Space(found)]
    assert texts
    assert all(text.index("v@") < text.index("u@") for text in texts)
    assert not any("wait(" in text.split("u@")[0] for text in texts)  # nothing makes u wait for v
    both = Space(graph("u : gpu fill(a)\nv : gpu fill(b)", AB))
    assert len(texts) * 2 == both.count()


def test_issue_order_that_an_edge_gives_is_not_kept_twice() -> None:
    found = graph("u : gpu fill(a)\nv : gpu fill(b)\nu -> v\nu before v", AB)
    assert (found.order, edges(found)) == ((), {"u -> v"})


@pytest.mark.parametrize("against", ["v -> u", "v before u"])
def test_cycles(against: str) -> None:
    arrays = "array a : f32[8] out  array b : f32[8] inout"
    (found,) = findings(f"u : gpu fill(a)\nv : gpu add(b, a)\nedges explicit\nu -> v\n{against}", arrays)
    assert found.code == "cycle"
    assert found.message == "these ops wait for each other: `u` -> `v` -> `u`"


def test_a_pin_to_a_stream_that_is_not_there() -> None:
    with pytest.raises(ProgramError) as error:
        graph("u : gpu fill(a) stream 2", "array a : f32[8] out")
    assert [d.code for d in error.value.diagnostics] == ["bad-stream"]
    pinned = graph("u : gpu fill(a) stream 2", "array a : f32[8] out", streams="3")
    assert pinned.by_name("u").stream == 2


def test_program_errors_carry_every_finding() -> None:
    with pytest.raises(ProgramError) as error:
        graph("u : gpu fill(a)\nv : gpu fill(a)\nw : gpu fill(b)\nx : gpu fill(b)\nedges explicit", AB)
    assert [d.code for d in error.value.diagnostics] == ["unordered-hazard"] * 2
    assert error.value.render().endswith("2 errors")


STATE = '''program state
array x : f32[8] in
array y, z : f32[8] out
cuda """__constant__ float weight[8]; __device__ float kept[8]; float* seen;"""
kernel load(x: in f32[8]) {
  gpu { cpp """cudaMemcpyToSymbolAsync(weight, x, sizeof(float) * 8, 0, cudaMemcpyDeviceToDevice, stream);""" }
}
kernel use(y: out f32[8]) {
  gpu { launch grid(1) block(8) cuda """y[threadIdx.x] = weight[threadIdx.x];""" }
  gpu keeping { launch grid(1) block(8) cuda """y[threadIdx.x] = kept[threadIdx.x] = weight[threadIdx.x];""" }
}
dag {
  load : gpu load(x)
  one : gpu use(y)
  two : gpu use(z)
}
'''


@pytest.mark.parametrize(
    ("variant", "expected"),
    [("default", {"load -> one", "load -> two"}), ("keeping", {"load -> one", "one -> two"})],
)
def test_ops_are_ordered_by_variables_that_no_header_names(variant: str, expected: set[str]) -> None:
    choices = {"one.variant": variant, "two.variant": variant}
    assert edges(build_graph(lower(parse_with_includes(Source("s.dag", STATE)), choices))) == expected


def test_an_op_that_fills_constant_memory_is_used() -> None:
    assert "unreachable-op" not in {d.code for d in analysis_of(Source("s.dag", STATE)).diagnostics}
