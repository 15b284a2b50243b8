"""The counted space: the published counts, and equality with a naive enumeration."""

from __future__ import annotations

import csv
from collections import Counter as Tally
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.errors import UsageError
from dagc.ir.program import Graph
from dagc.ir.traversal import parse_traversal, traversal_text
from dagc.space import Counter, Space, TooManyStates, like, orbits
from dagc.space.moves import Moves
from tests.graphs import halo, make_graph, spmv
from tests.space.naive import all_traversals
from tests.tiers import examples

MEASURED = Path(__file__).parent.parent / "data" / "spmv-2036-4xh200.csv"


def texts(space: Space) -> list[str]:
    return [traversal_text(t, space.graph) for t in space]


@pytest.mark.parametrize(("streams", "count"), [(2, 2036), (3, 8507), (4, 10517)])
def test_spmv_counts(streams: int, count: int) -> None:
    space = Space(spmv(streams))
    assert space.count() == count
    found = texts(space)
    assert len(found) == len(set(found)) == count


def test_spmv_strings_are_the_published_ones() -> None:
    with MEASURED.open() as file:
        published = {row["traversal"] for row in csv.DictReader(file)}
    assert set(texts(Space(spmv()))) == published


def test_spmv_split_sizes() -> None:
    """Fig. 6 of the paper: the splits of its decision tree."""
    found = [text.split() for text in texts(Space(spmv()))]

    def op(text: list[str], name: str) -> int:
        return next(i for i, e in enumerate(text) if e.split("@")[0] == name)

    def stream(text: list[str], name: str) -> str:
        return text[op(text, name)].split("@")[1]

    def served(text: list[str]) -> tuple[int, int]:
        """Places of CER-after-pack and CES-b4-post_send: the host sync that let post_send go, and its record."""
        home = stream(text, "pack")
        records = [
            (i, e[7:].split(")")[0]) for i, e in enumerate(text)
            if e.startswith("record") and e.endswith(home) and i > op(text, "pack")
        ]  # fmt: skip
        ces = min(text.index(f"sync({e})") for _, e in records if f"sync({e})" in text)
        return records[0][0], ces

    def split(group: list[list[str]], test) -> tuple[list[list[str]], list[list[str]]]:  # type: ignore[no-untyped-def]
        return [t for t in group if test(t)], [t for t in group if not test(t)]

    early, late = split(found, lambda t: op(t, "yl") < served(t)[1])
    assert (len(early), len(late)) == (948, 1088)
    different, same = split(early, lambda t: stream(t, "yl") != stream(t, "pack"))
    assert (len(different), len(same)) == (396, 552)
    assert [len(g) for g in split(different, lambda t: op(t, "pack") < op(t, "yl"))] == [264, 132]
    assert [len(g) for g in split(same, lambda t: served(t)[0] < op(t, "yl"))] == [132, 420]
    after, before = split(late, lambda t: op(t, "wait_recv") < op(t, "yl"))
    assert (len(after), len(before)) == (520, 568)
    assert [len(g) for g in split(after, lambda t: stream(t, "yr") != stream(t, "yl"))] == [280, 240]


@pytest.mark.parametrize(("streams", "count"), [(1, 15), (2, 142), (3, 212), (4, 212)])
def test_first_record_counts(streams: int, count: int) -> None:
    """GPU a -> GPU b, GPU c -> CPU d: pins down that the first record after an op is the one that is used."""
    graph = make_graph([("a", True), ("b", True), ("c", True), ("d", False)], [("a", "b"), ("c", "d")], streams)
    space = Space(graph)
    assert space.count() == count == len(set(texts(space)))


@pytest.mark.parametrize(
    ("faces", "count"),
    [(1, 30), (2, 3768240), (3, 2844162493200), (6, 5367658504764649454197598361600000)],
)
def test_halo_counts(faces: int, count: int) -> None:
    assert Space(halo(faces)).count() == count


def test_halo_symmetry() -> None:
    """Packs with their sends, receive posts, and receive waits with their unpacks: each may be permuted alone."""
    graph = halo(3)
    units = [len(orbit.units) for orbit in orbits(Space(graph).moves)]
    assert units == [3, 3, 3]


def test_end_is_part_of_every_traversal() -> None:
    assert all(text.endswith(" end") for text in texts(Space(spmv())))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(1, 4))
    ops = [(f"o{i}", draw(st.booleans())) for i in range(n)]
    pairs = [(f"o{i}", f"o{j}") for j in range(n) for i in range(j)]
    kinds = draw(
        st.lists(st.sampled_from(["none", "none", "edge", "edge", "order"]), min_size=len(pairs), max_size=len(pairs))
    )
    edges = [p for p, k in zip(pairs, kinds, strict=True) if k == "edge"]
    order = [p for p, k in zip(pairs, kinds, strict=True) if k == "order"]
    streams = draw(st.integers(1, 3))
    pins = {name: draw(st.integers(0, streams - 1)) for name, gpu in ops if gpu and draw(st.integers(0, 4)) == 0}
    return make_graph(ops, edges, streams, order, pins)


@settings(max_examples=examples(150), deadline=None)
@given(graphs())
def test_equals_naive_enumeration(graph: Graph) -> None:
    space = Space(graph)
    found = texts(space)
    assert len(found) == len(set(found))
    assert set(found) == all_traversals(graph)
    assert space.count() == len(found)


@settings(max_examples=examples(60), deadline=None)
@given(graphs())
def test_ids_are_ranks(graph: Graph) -> None:
    space = Space(graph)
    for number, traversal in enumerate(space):
        if number % 7 == 0:
            assert space.at(number) == traversal
            assert space.id_of(traversal) == number
            assert parse_traversal(traversal_text(traversal, graph), graph) == traversal
        if number > 200:
            break


def test_ids_of_a_huge_space() -> None:
    space = Space(halo(6))
    random = Random(1)
    for _ in range(5):
        number = random.randrange(space.count())
        assert space.id_of(space.at(number)) == number


def test_sampling_is_uniform() -> None:
    """Chi-squared over all 142 traversals, 40 expected in each: 1 in 10^6 would exceed the bound."""
    from scipy.stats import chi2

    space = Space(make_graph([("a", True), ("b", True), ("c", True), ("d", False)], [("a", "b"), ("c", "d")], 2))
    random, draws = Random(7), 142 * 40
    tally = Tally(traversal_text(space.sample(random), space.graph) for _ in range(draws))
    assert len(tally) == 142
    statistic = sum((n - 40) ** 2 / 40 for n in tally.values())
    assert statistic < chi2.ppf(1 - 1e-6, 141)


def test_no_such_id() -> None:
    with pytest.raises(UsageError, match="traversal 2036 does not exist"):
        Space(spmv()).at(2036)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pack@s0 post_send end", "entry 2 of the traversal, post_send, is not possible there"),
        ("pack@s1 end", "pack@s1, is not possible there"),
        ("pack@s0", "stops before `end`"),
        ("pack", "t.txt:1:1: `pack`: a GPU op needs a stream"),
        ("post_recv\n post_recv@s1", "t.txt:2:2: `post_recv@s1`: only a GPU op has a stream"),
        ("nothing", "no op has this name"),
        ("wait(e0)", "wait needs a stream"),
        ("pack@s0 (", "not an entry"),
    ],
)
def test_bad_traversals(text: str, message: str) -> None:
    graph = spmv()
    with pytest.raises(UsageError) as error:
        Space(graph).id_of(parse_traversal(text, graph, "t.txt"))
    assert message in str(error.value)


def test_the_first_is_found_without_counting() -> None:
    for graph in (spmv(), spmv(3), halo(2)):
        assert Space(graph).first() == Space(graph).at(0)
    assert len(Space(halo(40)).first().entries) > 40  # a space that cannot be counted


def test_alike_ops_lead_to_equally_many() -> None:
    """What `at` relies on to count only one of several alike: checked without that, along random walks."""
    space = Space(halo(3))
    random, compared = Random(3), 0
    for _ in range(20):
        for _, state, _, _ in space.replay(space.walk(random)):
            offers = space.moves.offers(state)
            sizes = {e: space.counter.count(space.moves.step(state, e, a)) for e, a in offers.items()}
            alike = space.counter.alike(state)
            for entry, size in sizes.items():
                compared += like(entry, alike) != entry
                assert sizes[like(entry, alike)] == size
    assert compared > 100


def test_streams_and_units_renamed_are_one_state() -> None:
    """States of the memo, so that a key that tells too much apart does not go unseen."""
    for graph, states in ((spmv(2), 92), (spmv(4), 138), (halo(3), 391)):
        space = Space(graph)
        space.count()
        assert len(space.counter) <= states


def test_a_count_that_is_cut_gives_a_lower_bound() -> None:
    graph = halo(3)
    whole = Space(graph).count()
    bounds = []
    for limit in (5, 20, 80):
        with pytest.raises(TooManyStates) as cut:
            Space(graph, limit=limit).count()
        bounds.append(cut.value.at_least)
    assert bounds == sorted(bounds)
    assert 0 < bounds[-1] < whole


def test_a_count_says_how_far_it_is() -> None:
    seen: list[int] = []
    counter = Counter(Moves.of(halo(4)), watch=seen.append)
    counter.total()
    assert seen == sorted(seen)
    assert 0 < seen[-1] <= len(counter)


@pytest.mark.parametrize("ops", [1000, 4000])
@pytest.mark.parametrize("asked", [1, 3, 40])
def test_a_count_may_be_stopped_before_it_has_counted_a_state(ops: int, asked: int) -> None:
    """The search for symmetries, and the first way to a complete traversal, take minutes for thousands of ops."""
    at: list[int] = []

    def watch(states: int) -> None:
        at.append(states)
        if len(at) == asked:
            raise TooManyStates

    with pytest.raises(TooManyStates):
        Counter(Moves.of(make_graph([(f"o{i}", True) for i in range(ops)], [])), watch=watch).total()
    assert at == [0] * asked
