"""Edges that are inferred, against the plain definition: compare every pair, and ask for a path each time."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.ir.enums import Mode
from dagc.ir.program import OpId, Region, Touch
from dagc.ir.regions import Regions
from dagc.ir.sym import Const
from dagc.passes.edges import Edges, Hazards
from dagc.passes.messages import LoweredMessages
from tests.passes.text import program
from tests.tiers import examples

SIZE = 9
NOTHING = program("u : gpu fill(a)", "array a : f32[8] out")


def region(bounds: tuple[int, int] | None) -> Region:
    return Region("a") if bounds is None else Region("a", *(Const(b) for b in sorted(bounds)))


PLACES = st.none() | st.tuples(st.integers(0, 3), st.integers(4, 6))
MODES = st.sampled_from(list(Mode))
ACCESSES = st.lists(st.tuples(PLACES, MODES), min_size=1, max_size=2)
PAIRS = st.lists(
    st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)).filter(lambda e: e[0] != e[1]), max_size=4
)


def plain(touches: tuple[Touch, ...], edges: Edges) -> set[tuple[int, int]]:
    """The definition. Adds the inferred edges; gives all pairs that conflict."""
    found, regions = set(), Regions.of(NOTHING)
    for j, b in enumerate(touches):
        for i in range(j - 1, -1, -1):
            a = touches[i]
            if a.begin == b.begin or a.mode.commutes(b.mode) or not regions.overlap(a.region, b.region):
                continue
            found.add((i, j))
            if not edges.path(a.end, b.begin) and not edges.path(b.end, a.begin):
                edges.add(a.end, b.begin)
    return found


def written(pairs: list[tuple[int, int]]) -> Edges:
    edges = Edges(SIZE)
    for u, v in pairs:
        edges.add(OpId(u), OpId(v))
    return edges


@settings(max_examples=examples(100), deadline=None)
@given(accesses=st.lists(ACCESSES, min_size=SIZE, max_size=SIZE), pairs=PAIRS)
def test_the_same_edges_and_every_conflict_is_ordered(
    accesses: list[list[tuple[tuple[int, int] | None, Mode]]], pairs: list[tuple[int, int]]
) -> None:
    expected = written(pairs)
    if expected.cycle():
        return
    touches = tuple(Touch(OpId(op), OpId(op), region(r), m) for op, every in enumerate(accesses) for r, m in every)
    conflicts = plain(touches, expected)
    edges = written(pairs)
    found = Hazards(NOTHING, lowered(touches), edges)
    found.run(infer=True)
    assert edges.completion == expected.completion
    # What is left out follows from what is there: the pairs alone, as edges, order every conflict.
    alone = written([(touches[i].end, touches[j].begin) for i, j in found.ordered])
    for i, j in conflicts:
        u, v = (i, j) if edges.path(touches[i].end, touches[j].begin) else (j, i)
        assert alone.path(touches[u].end, touches[v].begin)


@settings(max_examples=examples(100), deadline=None)
@given(accesses=st.lists(ACCESSES, min_size=SIZE, max_size=SIZE), pairs=PAIRS)
def test_explicit_edges_are_refused_exactly_where_a_conflict_has_no_order(
    accesses: list[list[tuple[tuple[int, int] | None, Mode]]], pairs: list[tuple[int, int]]
) -> None:
    edges = written(pairs)
    if edges.cycle():
        return
    touches = tuple(Touch(OpId(op), OpId(op), region(r), m) for op, every in enumerate(accesses) for r, m in every)
    conflicts = plain(touches, written(pairs))
    missing = {
        (i, j)
        for i, j in conflicts
        if not edges.path(touches[i].end, touches[j].begin) and not edges.path(touches[j].end, touches[i].begin)
    }
    found = Hazards(NOTHING, lowered(touches), edges)
    found.run(infer=False)
    assert set(found.unordered) <= missing
    assert bool(found.unordered) is bool(missing)


def lowered(touches: tuple[Touch, ...]) -> LoweredMessages:
    return LoweredMessages((), touches, (), {}, (), (), ())


def test_a_chain_has_as_many_hazards_as_edges() -> None:
    touches = tuple(Touch(OpId(op), OpId(op), Region("a"), Mode.INOUT) for op in range(SIZE))
    edges = written([])
    found = Hazards(NOTHING, lowered(touches), edges)
    found.run(infer=True)
    assert found.ordered == list(pairwise(range(SIZE)))
    assert edges.completion == tuple(pairwise(range(SIZE)))
