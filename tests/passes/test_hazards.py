"""Hazards without an order: which pairs conflict, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.errors import ProgramError
from dagc.base.source import Source
from dagc.lang.lower import lower, parse_with_includes
from dagc.passes import build_graph
from tests.passes.text import edges, findings, graph

SPMV = Path(__file__).parents[2] / "samples/spmv/spmv.dag"


@pytest.mark.parametrize(
    ("dag", "message"),
    [
        ("u : gpu fill(a)\nv : gpu add(b, a)", "`u` and `v` write and read `a`, and no edge orders them"),
        ("u : gpu add(b, a)\nv : gpu fill(a)", "`u` and `v` read and write `a`, and no edge orders them"),
        ("u : gpu fill(a)\nv : gpu fill(a)", "`u` and `v` both write `a`, and no edge orders them"),
    ],
)
def test_the_ops_and_the_array_are_named(dag: str, message: str) -> None:
    (found,) = findings(f"{dag}\nedges explicit", "array a, b : f32[8] inout")
    assert (found.code, found.message) == ("unordered-hazard", message)
    assert found.help == "add the edge `u -> v`, or drop `edges explicit`"
    assert [label for _, label in found.related] == ["`u` is here"]


def test_readers_do_not_conflict() -> None:
    found = graph(
        "u : gpu add(a, c)\nv : gpu add(b, c)\nedges explicit", "array a, b : f32[8] inout  array c : f32[8] in"
    )
    assert edges(found) == set()
    assert found.hazards == ()


def test_additions_are_ordered_against_others_alone() -> None:
    arrays = "array a, d : f32[8] inout  array b, c : f32[8] in"
    found = graph("u : gpu fill(a)\nv : gpu sum(a, b)\nw : gpu sum(a, c)\nx : gpu add(d, a)\ny : gpu sum(a, b)", arrays)
    assert edges(found) == {"u -> v", "u -> w", "v -> x", "w -> x", "x -> y"}
    touched = {(found.touches[i].begin, found.touches[j].begin) for i, j in found.hazards}
    assert touched == {(0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (2, 3), (3, 4)}


@pytest.mark.parametrize(("kernel", "fused"), [("sum", False), ("add", True)])
def test_a_sum_is_sent_after_all_additions(kernel: str, fused: bool) -> None:
    """A copy that is part of the last op which writes what is sent would miss what others add."""
    arrays = "scalar p : i32  array a, r : f32[8] inout  array b : f32[8] in"
    send = "x : mpi exchange { send a to p  recv r from p }"
    found = graph(f"v : gpu {kernel}(a, b)\nw : gpu {kernel}(a, b)\n{send}", arrays)
    assert [bool(op.copy_out) for op in found.ops if op.name == "w"] == [fused]
    last = {u for u, v in found.completion if "send" in found.ops[v].name or "stage" in found.ops[v].name}
    assert {found.ops[u].name for u in last} >= ({"w"} if fused else {"v", "w"})


def test_a_path_is_order_enough() -> None:
    arrays = "array a : f32[8] out  array b, c : f32[8] inout"
    found = graph("u : gpu fill(a)\nm : gpu add(b, c)\nv : gpu add(c, a)\nedges explicit\nu -> m -> v", arrays)
    assert edges(found) == {"u -> m", "m -> v"}
    touched = {
        (found.touches[i].region.array, found.touches[i].begin, found.touches[j].begin) for i, j in found.hazards
    }
    assert touched == {("a", 0, 2), ("c", 1, 2)}


def test_every_pair_is_told_once() -> None:
    found = findings(
        "u : gpu add(a, b)\nv : gpu add(a, b)\nw : gpu add(b, a)\nedges explicit", "array a, b : f32[8] inout"
    )
    assert [d.message.split(",")[0] for d in found if "`u` and `v`" in d.message] == ["`u` and `v` both write `a`"]
    assert {d.code for d in found} == {"unordered-hazard"}
    assert len(found) == len({d.message for d in found})


PARTS = "array a : f32[24] inout  array b : f32[8] in"


def test_siblings_of_a_family_are_disjoint() -> None:
    bounded = f"{PARTS}\nenum half {{l, r}}\nlet lo = {{0, 8}}\nfor i in half {{ part h[i] of a[lo[i] .. lo[i] + 8] }}"
    dag = "for i in half { u[i] : gpu add(h[i], b) }"
    found = graph(dag, bounded)
    assert edges(found) == set()


def test_parts_conflict_where_they_overlap() -> None:
    parts = "part left of a[0 .. 8]\npart middle of a[4 .. 12]\npart right of a[8 .. 16]"
    arrays = f"array a : f32[16] inout  array b : f32[8] in\n{parts}"
    dag = "l : gpu add(left, b)\nr : gpu add(right, b)\nm : gpu add(middle, b)"
    assert edges(graph(dag, arrays)) == {"l -> m", "r -> m"}


def spmv(change: tuple[str, str], **choices: str) -> list[str]:
    """What is said of the sample with one change."""
    text = SPMV.read_text()
    assert change[0] in text
    source = Source("spmv.dag", text.replace(*change))
    with pytest.raises(ProgramError) as error:
        build_graph(lower(parse_with_includes(source), choices))
    return [d.message for d in error.value.diagnostics]


def test_a_send_buffer_is_read_until_the_wait() -> None:
    """pack must have completed before the send is posted; without the edge both are named."""
    for transport in ("mpi_host", "mpi_cuda", "nccl", "peer"):
        (said,) = spmv(("pack -> x.send;", ""), transport=transport)
        assert said == "`pack` and `x` write and read `x_send`, and no edge orders them"


def test_a_receive_buffer_is_written_until_the_wait() -> None:
    (said,) = spmv(("x.recv -> yr;", ""), transport="mpi_cuda")
    assert said == "`x` and `yr` write and read `x_r`, and no edge orders them"


def test_sending_and_receiving_in_one_buffer() -> None:
    said = spmv(("recv x_r    from", "recv x_send from"), transport="mpi_cuda")
    assert "`x_send` is received into while another message of the exchange uses it" in said


def test_one_finding_for_a_line_in_a_loop() -> None:
    text = "for t in 0..5 { u[t] : gpu fill(a) }\nfor t in 0..3 { v[t] : gpu add(b, a) }\nedges explicit"
    found = findings(text, "array a, b : f32[8] inout")
    assert {d.code for d in found} == {"unordered-hazard"}
    assert [d.message for d in found] == [
        "`u[0]` and `u[1]` both write `a`, and no edge orders them (10 instances)",
        "`u[0]` and `v[0]` write and read `a`, and no edge orders them (15 instances)",
        "`v[0]` and `v[1]` both write `b`, and no edge orders them (3 instances)",
    ]
