"""Iterations that overlap: which ops must follow which of the iteration before, the waits for them, and their proof."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from dagc.ir.enums import Mode
from dagc.ir.program import Action, Graph, OpId
from dagc.ir.traversal import Issue, Record, Traversal, parse_traversal
from dagc.passes.edges import Edges
from dagc.passes.loops import repeated
from dagc.passes.private import private_arrays
from dagc.space import Space
from dagc.space.enqueue import LANES, MOST, Rounds, overlapped, rounds_of, unrolled, without_host
from dagc.space.proof import NotProved, Prover
from tests.emit.build import ROOT, SPMV, graph, graph_of

RING = ROOT / "tests/library/data/ring.dag"
HEAT = ROOT / "samples/heat/heat.dag"
PROGRAMS = {
    "spmv-peer": (SPMV, "peer"), "spmv-nccl": (SPMV, "nccl"), "ring": (RING, "peer"), "heat": (HEAT, "nccl"),
}  # fmt: skip


SHORT = {"heat": {"steps": "1"}}


def _rounds(
    made: Graph, traversal: Traversal, private: tuple[str, ...] = (), lanes: int = LANES
) -> tuple[Graph, Rounds]:
    many, enqueued = repeated(made, rounds_of(lanes), private, lanes), without_host(made, traversal)
    assert many is not None
    assert isinstance(enqueued, Traversal)
    rounds = overlapped(many, enqueued, lanes)
    assert rounds is not None
    return many, rounds


def _private(made: Graph) -> tuple[str, ...]:
    return tuple(name for name, why in private_arrays(made).items() if not why)


@pytest.mark.parametrize(("name", "lanes"), [*((name, 0) for name in PROGRAMS), ("spmv-peer", 2), ("ring", 3)])
def test_every_wait_for_an_iteration_before_is_needed(name: str, lanes: int) -> None:
    """Without any one of them, the proof of a few iterations fails; with all, that of more stands, too. `lanes`:
    of private arrays."""
    path, transport = PROGRAMS[name]
    made = graph(path, transport=transport, **SHORT.get(name, {}))
    space, random, n = Space(made), Random(3), len(made.ops) - 1
    private, lanes = _private(made) if lanes else (), lanes or LANES
    more = 2 * lanes + 3
    longer = repeated(made, more, private, lanes)
    assert longer is not None
    waits = 0
    for traversal in [space.first(), *(space.sample(random) for _ in range(2 if n > 20 else 6))]:
        many, rounds = _rounds(made, traversal, private, lanes)
        Prover(longer).prove(unrolled(rounds, n, more))
        for place in rounds.back:
            entries = list(rounds.traversal.entries)
            del entries[place]
            back = {at - (at > place): back for at, back in rounds.back.items() if at != place}
            mutant = unrolled(Rounds(Traversal(tuple(entries)), back, lanes), n, rounds_of(lanes))
            assert not Prover(many).proved(mutant)
            waits += 1
    assert waits > 5


@pytest.mark.parametrize("name", PROGRAMS)
def test_conflicts_between_iterations_are_ordered(name: str) -> None:
    """Every pair of accesses to one array of which one writes; groups; every op and itself."""
    path, transport = PROGRAMS[name]
    made = graph(path, transport=transport)
    many, n = repeated(made, 3), len(made.ops) - 1
    assert many is not None
    edges = Edges(len(many.ops))
    for u, v in many.completion:
        edges.add(u, v)
    apart = {(a.region, b.region) for a, b in product(made.touches, repeat=2) if a.region.start is not None}
    for a, b in product(made.touches, repeat=2):
        if a.region.array == b.region.array and Mode.OUT in (a.mode, b.mode) and (a.region, b.region) not in apart:
            assert edges.path(OpId(a.end), OpId(b.begin + n))
            assert edges.path(OpId(a.end + n), OpId(b.begin + 2 * n))
    groups = [op.id for op in made.ops if op.action is Action.GROUP]
    for u, v in [*product(groups, groups), *((OpId(op), OpId(op)) for op in range(n))]:
        assert edges.path(u, OpId(v + n))


def test_what_is_independent_overlaps() -> None:
    """The product of the local columns does not wait for the message of the iteration before, nor the first op for the
    last one."""
    made = graph(SPMV, transport="peer")
    many, rounds = _rounds(made, Space(made).first())
    ops = {op.name: op.id for op in many.ops}
    waited = {(u, v) for u, v in many.completion if u < len(made.ops) - 1 <= v}
    assert (ops["y#0"], ops["pack#1"]) not in waited
    assert (ops["x#0"], ops["yl#1"]) not in waited
    streams = {e.stream for e in unrolled(rounds, len(made.ops) - 1, 2).entries if isinstance(e, Issue)}
    assert len(streams - {None}) == LANES * len({e.stream for e in rounds.traversal.entries if isinstance(e, Record)})


def test_private_arrays_leave_the_message_and_the_result_alone_to_wait() -> None:
    """Where an op that needs one of the last iteration of its lane has another stream, it waits for that one."""
    made = graph(SPMV, transport="peer")
    many, rounds = _rounds(made, Space(made).first(), _private(made), 3)
    n = len(made.ops) - 1
    between = {(many.ops[u].name, many.ops[v].name) for u, v in many.completion if u < n <= v < 2 * n}
    assert between == {("x#0", "x#1"), ("y#0", "y#1")}
    assert len(rounds.back) == 2
    order = (
        "pack@s0 record(e0)@s0 wait(e0)@s1 x@s1 yl@s0 yr@s1 record(e1)@s0 wait(e1)@s1 y@s1 record(e2)@s1 sync(e2) end"
    )
    _, rounds = _rounds(made, parse_traversal(order, made), _private(made), 3)
    assert sorted(rounds.back.values()) == [1, 1, 3, 3]


def test_host_functions_do_not_overlap() -> None:
    """They may share a handle, or a workspace that no header declares."""
    text = (
        "program calls\narray x, y : f32[8] inout\n"
        'kernel call(x: inout f32[8]) { gpu { cpp """ static_cast<void>(x), static_cast<void>(stream); """ } }\n'
        "dag { first : gpu call(x)  second : gpu call(y) }\n"
    )
    many = repeated(graph_of(text), 2)
    assert many is not None
    names = {(many.ops[u].name, many.ops[v].name) for u, v in many.completion}
    assert {("first#0", "second#1"), ("second#0", "first#1")} <= names
    assert ("first#0", "second#0") not in names


def test_a_record_of_another_iteration_is_not_enough() -> None:
    made = graph(RING, transport="peer")
    many, rounds = _rounds(made, Space(made).first())
    n = len(made.ops) - 1
    wrong = replace(rounds, back={})  # the waits come before the records of their own iteration
    with pytest.raises(NotProved, match=r"pack#1@s\d` may start before"):
        Prover(many).prove(unrolled(wrong, n, rounds_of(LANES)))


def test_a_long_iteration_is_not_overlapped() -> None:
    ops = "".join(f"  k{i} : gpu add(x)\n" for i in range(MOST + 1))
    text = (
        "program long\narray x : f32[8] inout\n"
        'kernel add(x: inout f32[8]) { gpu { launch grid(1) block(8) cuda """ x[threadIdx.x] += 1; """ } }\n'
        f"dag {{\n{ops}}}\n"
    )
    made = graph_of(text)
    traversal = parse_traversal(" ".join(f"k{i}@s0" for i in range(MOST + 1)) + " record(e0)@s0 sync(e0) end", made)
    enqueued, many = without_host(made, traversal), repeated(made, rounds_of(LANES))
    assert isinstance(enqueued, Traversal)
    assert many is not None
    assert overlapped(many, enqueued) is None
