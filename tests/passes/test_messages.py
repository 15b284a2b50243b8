"""Messages lowered: which ops, in which order, and where the copies of mpi_host are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.source import Source
from dagc.ir.program import Action, Graph, Staged
from dagc.ir.traversal import Issue
from dagc.lang.lower import lower, parse_with_includes
from dagc.passes import build_graph
from dagc.space import Space
from dagc.space.proof import Prover
from tests.passes.text import edges
from tests.passes.text import graph as small_graph
from tests.space.naive import all_traversals

SAMPLES = Path(__file__).parents[2] / "samples"
SPMV, HALO, CG = SAMPLES / "spmv/spmv.dag", SAMPLES / "halo3d/halo3d.dag", SAMPLES / "cg/cg.dag"
HALVES = "edges explicit                        // may go: the same three edges are inferred"


def spmv(changes: dict[str, str], **choices: str) -> Graph:
    text = SPMV.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    source = Source(str(SPMV), text)
    return build_graph(lower(parse_with_includes(source), choices))


def texts(staged: Iterable[Staged]) -> tuple[str, ...]:
    return tuple(s.region.text for s in staged)


def copies(graph: Graph) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    return {op.name: (texts(op.copy_in), texts(op.copy_out)) for op in graph.ops if op.copy_in or op.copy_out}


def test_fused_copies_are_in_the_producer_and_the_consumer() -> None:
    graph = spmv({}, transport="mpi_host")
    assert copies(graph) == {"pack": ((), ("x_send",)), "yr": (("x_r",), ())}
    assert [r.text for r in graph.staged] == ["x_send", "x_r"]
    staged = {(t.region.array, graph.ops[t.begin].name) for t in graph.touches if t.staged}
    assert staged == {("x_send", "pack"), ("x_send", "post_send"), ("x_r", "post_recv"), ("x_r", "yr")}


def test_copies_as_ops() -> None:
    graph = spmv({}, staging="ops")
    assert copies(graph) == {}
    assert {op.name: op.staged.region.text for op in graph.ops if op.staged} == {
        "stage_out": "x_send",
        "stage_in": "x_r",
    }
    assert {"pack -> stage_out", "stage_out -> post_send", "wait_recv -> stage_in", "stage_in -> yr"} <= edges(graph)
    assert "pack -> post_send" not in edges(graph)
    assert Space(graph).count() == 23450


def test_device_pointers_need_no_copies() -> None:
    graph = spmv({}, transport="mpi_cuda")
    assert (copies(graph), graph.staged) == ({}, ())
    assert not any(op.staged for op in graph.ops)


@pytest.mark.parametrize("transport", ["nccl", "peer"])
def test_an_exchange_as_one_grouped_op(transport: str) -> None:
    graph = spmv({}, transport=transport)
    assert [op.name for op in graph.ops] == ["pack", "x", "yl", "yr", "y", "end"]
    assert (graph.by_name("x").action, graph.by_name("x").gpu) == (Action.GROUP, True)
    assert Space(graph).count() == 96


def test_two_consumers_cannot_both_hold_the_copy() -> None:
    """x_r is read by yl too: the copy to the device becomes an op of its own, the other stays fused."""
    graph = spmv({"col_l, val_l, x_l, n)": "col_l, val_l, x_r, n)", HALVES: "x.recv -> yl; edges explicit"})
    assert copies(graph) == {"pack": ((), ("x_send",))}
    assert [op.name for op in graph.ops if op.staged] == ["stage_in"]
    assert {"wait_recv -> stage_in", "stage_in -> yl", "stage_in -> yr"} <= edges(graph)


def test_a_consumer_counts_once_however_many_of_its_arguments_are_received() -> None:
    """Two ops read what was received, the first of them twice: neither has the copy."""
    exchange = "x : mpi exchange { send a to rank recv b from rank }"
    text = f"l : gpu fill(a)  {exchange}  m : gpu twice(c, b, b)"
    kernel = 'kernel twice(y: out f32[8], x, z: in f32[8]) { gpu { launch grid(1) block(8) cuda """y[0] = x[0];""" } }'
    arrays = f"array a, b : f32[8] inout  array c, d : f32[8] out\n{kernel}"
    assert copies(small_graph(text, arrays)) == {"l": ((), ("a",)), "m": (("b",), ())}
    both = small_graph(f"{text}  n : gpu twice(d, b, b)", arrays)
    assert copies(both) == {"l": ((), ("a",))}
    assert [op.name for op in both.ops if op.staged] == ["stage_in"]


def test_what_is_sent_but_not_computed_here_is_copied_by_an_op() -> None:
    graph = spmv({"send x_send to": "send x_l to"})
    assert [op.name for op in graph.ops if op.staged] == ["stage_out"]
    assert "stage_out -> post_send" in edges(graph)


SPLIT = """
  fill : gpu fill(a)
  x : mpi exchange split apart {
    up   : send a[0 .. 4] to rank + 1 < ranks ? rank + 1 : -1  recv b[0 .. 4] from rank - 1
    down : send a[4 .. 8] to rank - 1  recv b[4 .. 8] from rank + 1 < ranks ? rank + 1 : -1
  }
  use : gpu twice(c, b, b)
"""
TWICE = """
  kernel twice(y: out f32[8], x, z: in f32[8]) { gpu { launch grid(1) block(8) cuda \"\"\"y[0] = x[0];\"\"\" } }
  tune apart in {false, true}
  array a, b : f32[8] inout  array c : f32[8] out
"""


def test_messages_that_are_not_split_share_a_post_and_a_wait() -> None:
    """The same copies, tags and hazards, but one place in the order for all."""
    apart, together = (small_graph(SPLIT, TWICE, apart=value) for value in ("true", "false"))
    posts = ["fill", "post_recv.up", "post_send.up", "post_recv.down", "post_send.down", "wait_send", "wait_recv.up"]
    assert [op.name for op in apart.ops] == [*posts, "wait_recv.down", "use", "end"]
    assert [op.name for op in together.ops] == [
        "fill",
        "post_recv",
        "post_send",
        "wait_send",
        "wait_recv",
        "use",
        "end",
    ]
    assert copies(apart) == copies(together)
    assert len(together.touches) == len(apart.touches)
    assert {"fill -> post_send", "post_send -> wait_recv", "post_recv -> wait_send", "wait_recv -> use"} <= edges(
        together
    )
    assert [n for n, _ in together.by_name("post_send").messages] == [0, 1]
    assert [n for n, _ in apart.by_name("post_send.down").messages] == [1]
    assert Space(together).count() < Space(apart).count()
    for graph in (apart, together):
        Prover(graph).prove(Space(graph).first())


LISTED = """
  fill : gpu fill(a)
  x : mpi exchange split apart { send a to whom counts many  recv b from whom counts many }
  y : gpu add(c, b)
"""
LISTS = """
  tune apart in {1, 2, 3}
  array a, b : f32[8]  array c : f32[8] inout  array whom, many : i32[*] on host const
"""


def test_neighbours_of_a_message_with_counts_are_divided_among_ops() -> None:
    """The last op has those that are left. Copies of one are not ordered against those of another."""
    together, two, three = (small_graph(LISTED, LISTS, staging="ops", apart=n, streams="1") for n in "123")
    assert [op.name for op in together.ops][1:-2] == [
        "stage_out", "post_recv", "post_send", "wait_send", "wait_recv", "stage_in",
    ]  # fmt: skip
    assert {op.name: op.regions[0].text for op in three.ops if op.action is Action.POST_SEND} == {
        "post_send[0]": "a of whom[0]", "post_send[1]": "a of whom[1]", "post_send[2]": "a of whom[2 ..]",
    }  # fmt: skip
    expected = {f"post_{end}[{k}] -> wait_{wait}" for end in ("send", "recv") for k in (0, 1) for wait in WAITS}
    for k in (0, 1):
        expected |= {f"fill -> stage_out[{k}]", f"stage_out[{k}] -> post_send[{k}]", f"stage_in[{k}] -> y"}
        expected |= {f"wait_recv[{k}] -> stage_in[{k}]"}
    assert edges(two) == expected
    assert [Space(graph).count() for graph in (together, two)] == [24, 118_368]
    fused = small_graph(LISTED, LISTS, apart="2", streams="1")
    assert Space(fused).count() == len(all_traversals(fused)) == 672
    for graph in (together, two, three, fused):
        Prover(graph).prove(Space(graph).first())
    first, wait = Space(two).first(), Issue(two.by_name("wait_recv[0]").id)
    late = tuple(sorted(first.entries, key=lambda entry: entry == wait))  # after the copy of what it has received
    assert not Prover(two).proved(replace(first, entries=late))


WAITS = ("send", "recv[0]", "recv[1]")
JACOBI = SAMPLES / "jacobi/jacobi.dag"
SMALL = {"transport": "mpi_host", "rows": "16", "nx": "64", "steps": "2"}


def test_slices_are_staged_in_place() -> None:
    """Border rows go to the host in the op that computes them, ghost rows come back in the op that reads them."""
    graph = api.load_graph(JACOBI, SMALL)
    assert copies(graph) == {
        "first[0]": ((), ("u[1][1 .. 2]",)),
        "last[0]": ((), ("u[1][16 .. 17]",)),
        "first[1]": (("u[1][0 .. 1]",), ("u[0][1 .. 2]",)),
        "last[1]": (("u[1][17 .. 18]",), ("u[0][16 .. 17]",)),
    }
    assert {op.name for op in graph.ops if op.staged} == {"halo[1].stage_in.north", "halo[1].stage_in.south"}
    found = edges(graph)
    assert "first[0] -> halo[0].post_send.north" in found
    assert not any(e.startswith("inner[0] -> halo[0]") or e.endswith("-> inner[0]") for e in found)
    Prover(graph).prove(Space(graph).first())


def test_slices_are_staged_by_ops() -> None:
    graph = api.load_graph(JACOBI, {**SMALL, "staging": "ops"})
    assert copies(graph) == {}
    assert sum(op.staged is not None for op in graph.ops) == 8
    assert {"last[0] -> halo[0].stage_out.south", "halo[0].stage_in.south -> first[1]"} <= edges(graph)


def test_a_slice_is_copied_from_where_it_was_last_written() -> None:
    """Half of what is sent was written later than the rest: no op has all of it."""
    text = """
    l : gpu fill(a)  m : gpu half(a[4 .. 8])
    x : mpi exchange { send a[2 .. 6] to rank recv b[0 .. 4] from rank }
    """
    kernel = 'kernel half(y: inout f32[4]) { gpu { launch grid(1) block(4) cuda """y[threadIdx.x] /= 2;""" } }'
    found = small_graph(text, f"array a, b : f32[8] inout\n{kernel}", transport="mpi_host")
    assert [op.name for op in found.ops if op.staged] == ["stage_out", "stage_in"]
    whole = small_graph(text.replace("a[2 .. 6]", "a[0 .. 4]"), f"array a, b : f32[8] inout\n{kernel}")
    assert copies(whole) == {"l": ((), ("a[0 .. 4]",))}


def test_host_arrays_are_not_staged() -> None:
    graph = spmv({"array x_r : f32[n_recv]": "array x_r : f32[n_recv] on pinned"})
    assert [r.text for r in graph.staged] == ["x_send"]
    assert copies(graph) == {"pack": ((), ("x_send",))}


@pytest.mark.parametrize("transport", ["mpi_host", "mpi_cuda"])
def test_every_wait_is_after_every_post(transport: str) -> None:
    graph = api.load_graph(HALO, {"transport": transport})
    posts = {op.id for op in graph.ops if op.action in (Action.POST_SEND, Action.POST_RECV)}
    waits = {op.id for op in graph.ops if op.action in (Action.WAIT_SEND, Action.WAIT_RECV)}
    assert (len(posts), len(waits)) == (12, 7)
    assert set(graph.matches) == {(wait, post) for wait in waits for post in posts}
    assert {(post, wait) for post in posts for wait in waits} <= set(graph.completion)


def test_collectives_are_a_post_and_a_wait() -> None:
    graph = api.load_graph(CG)
    names = [op.name for op in graph.ops]
    posts = [name for name in names if name.endswith(".post")]
    assert posts
    for name in posts:
        wait = name.removesuffix("post") + "wait"
        assert f"{name} -> {wait}" in edges(graph)
        assert (graph.by_name(wait).id, graph.by_name(name).id) in graph.matches
