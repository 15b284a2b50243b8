"""The happens-before proof: true of everything in the space, and false exactly when an order is lost."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.ir.program import Graph
from dagc.ir.traversal import Issue, Record, Traversal, Wait, parse_traversal, traversal_text
from dagc.space import Space
from dagc.space.proof import NotProved, Prover, prune
from tests.graphs import halo, spmv
from tests.space.test_space import graphs
from tests.tiers import examples


def ordered(graph: Graph, traversal: Traversal) -> bool:
    """An independent oracle: a graph of start and completion of each entry, searched for each edge."""
    after: dict[tuple[str, int], list[tuple[str, int]]] = {}

    def link(a: tuple[str, int], b: tuple[str, int]) -> None:
        after.setdefault(a, []).append(b)

    last: dict[int, tuple[str, int]] = {}
    recorded: dict[int, int] = {}
    place: dict[int, int] = {}
    for i, entry in enumerate(traversal.entries):
        issued, start, done = ("issued", i), ("start", i), ("done", i)
        link(issued, start)
        link(start, done)
        link(issued, ("issued", i + 1))
        if entry.stream is None:
            link(done, ("issued", i + 1))  # the CPU goes on only when it is done
            if entry.waits and entry.event in recorded:
                link(("done", recorded[entry.event]), done)
        else:
            stream = int(entry.stream)  # type: ignore[arg-type]
            if stream in last:
                link(last[stream], start)
            last[stream] = done
            if isinstance(entry, Record):
                recorded[int(entry.event)] = i
            elif isinstance(entry, Wait) and entry.event in recorded:
                link(("done", recorded[entry.event]), done)
        if isinstance(entry, Issue):
            place[entry.op] = i
    for u, v in graph.completion:
        goal, todo, seen = ("start", place[v]), [("done", place[u])], set()
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo += after.get(node, [])
        if goal not in seen:
            return False
    return True


def test_all_of_the_spmv_are_proved() -> None:
    for streams in (2, 3):
        space = Space(spmv(streams))
        prover = Prover(space.graph)
        assert all(prover.proved(t) for t in space)


def test_samples_of_the_halo_are_proved() -> None:
    space = Space(halo(6))
    prover, random = Prover(space.graph), Random(3)
    assert all(prover.proved(space.sample(random)) for _ in range(50))


def without(traversal: Traversal, i: int) -> Traversal:
    return Traversal(traversal.entries[:i] + traversal.entries[i + 1 :])


@pytest.mark.parametrize("graph", [spmv(), spmv(3), halo(3)], ids=["spmv", "spmv-3-streams", "halo"])
def test_dropping_a_sync_op(graph: Graph) -> None:
    """The proof fails exactly when the order is lost; both happen."""
    space = Space(graph)
    prover, random = Prover(graph), Random(11)
    lost = kept = 0
    for _ in range(150):
        traversal = space.sample(random)
        for i, entry in enumerate(traversal.entries):
            if not isinstance(entry, Issue):
                mutant = without(traversal, i)
                assert prover.proved(mutant) == ordered(graph, mutant)
                lost, kept = lost + (not prover.proved(mutant)), kept + prover.proved(mutant)
    assert lost > 100
    assert kept > 0


@settings(max_examples=examples(100), deadline=None)
@given(graphs(), st.data())
def test_random_graphs_and_mutants(graph: Graph, data: st.DataObject) -> None:
    space = Space(graph)
    prover = Prover(graph)
    traversal = space.at(data.draw(st.integers(0, space.count() - 1)))
    assert prover.proved(traversal)
    syncs = [i for i, e in enumerate(traversal.entries) if not isinstance(e, Issue)]
    for i in syncs:
        assert prover.proved(without(traversal, i)) == ordered(graph, without(traversal, i))


def test_reasons_name_the_ops() -> None:
    graph = spmv()
    text = "pack@s0 post_recv record(e0)@s0 post_send wait_recv wait_send yl@s0 yr@s0 y@s0 record(e1)@s0 sync(e1) end"
    with pytest.raises(NotProved, match=r"entry 4: `post_send` may start before `pack` has completed"):
        Prover(graph).prove(parse_traversal(text, graph))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("post_recv wait_recv", "`wait_recv` may start before `post_send` has completed"),
        ("post_recv post_recv", "issued twice"),
        ("post_recv", "never issued: pack, post_send"),
    ],
)
def test_other_reasons(text: str, reason: str) -> None:
    graph = spmv()
    gaps = Prover(graph).gaps(parse_traversal(text, graph))
    assert any(reason in gap.reason for gap in gaps)


def test_wait_before_its_record_proves_nothing() -> None:
    graph = spmv()
    text = (
        "pack@s0 post_recv record(e0)@s0 sync(e0) post_send wait_recv wait_send yl@s0 wait(e1)@s1 record(e1)@s0 "
        "yr@s1 y@s1 record(e2)@s1 sync(e2) end"
    )
    gaps = Prover(graph).gaps(parse_traversal(text, graph))
    assert gaps[0].reason == "`y@s1` may start before `yl` has completed"


def test_pruning_keeps_the_proof_and_1856_of_2036() -> None:
    space = Space(spmv())
    prover = Prover(space.graph)
    pruned = {traversal_text(prune(t, prover), space.graph): prune(t, prover) for t in space}
    assert all(prover.proved(t) for t in pruned.values())
    assert len(pruned) == 1856
