"""Traversals near a given one: in the space, proved, and near."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.ir.program import Graph
from dagc.ir.traversal import Traversal
from dagc.lab.neighbours import deviations, follow, outline
from dagc.lab.orders import carried_over
from dagc.learn.edits import breaking
from dagc.learn.features import Samples
from dagc.learn.types import FeatureKind, Rule, RuleFeature
from dagc.space import Space
from dagc.space.proof import Prover
from tests.graphs import halo, spmv
from tests.rules.samples import NONE, graphs
from tests.tiers import examples


def is_in(space: Space, traversal: Traversal) -> bool:
    list(space.replay(traversal))
    return Prover(space.graph).proved(traversal)


def test_the_outline_of_a_traversal_leads_to_it() -> None:
    space = Space(spmv())
    assert all(follow(space.moves, outline(t)) == t for t in space)


@given(graphs(), st.integers(0, 1000))
@settings(max_examples=examples(40), deadline=None)
def test_neighbours_are_other_traversals_of_the_space(graph: Graph, seed: int) -> None:
    space = Space(graph)
    traversal = space.walk(Random(seed))
    found = list(islice(deviations(space.moves, traversal), 60))
    assert traversal not in found
    assert all(is_in(space, t) for t in found)


def test_a_neighbour_for_every_offer_that_was_not_taken() -> None:
    space = Space(spmv())
    traversal = space.at(1000)
    others = sum(len(space.moves.offers(state)) - 1 for _, state, _, _ in space.replay(traversal))
    assert len(list(deviations(space.moves, traversal))) == others


ORDERS = [
    ("yl", "pack"), ("pack", "yl"), ("yr", "yl"), ("yl", "post_send"), ("post_send", "yl"), ("wait_send", "wait_recv"),
    ("yl", "CER-after-pack"), ("CES-b4-post_send", "yl"), ("post_recv", "CES-b4-post_send"),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids=" before ".join)
def test_what_is_aimed_at_an_order_mostly_breaks_it(order: tuple[str, str]) -> None:
    space = Space(spmv())
    feature = RuleFeature(FeatureKind.BEFORE, *order)
    holds = Samples([(space.graph, NONE, t) for t in space]).ask(feature)
    broken = 0
    ids = [i for i, held in enumerate(holds) if held][::20]
    for number in ids:
        items = outline(space.at(number))
        aimed = [follow(space.moves, other) for other in breaking(space, Rule(feature, True), items)]
        broken += not Samples([(space.graph, NONE, t) for t in aimed]).ask(feature).all()
    assert broken >= 0.9 * len(ids)


@pytest.mark.parametrize("together", [True, False])
def test_what_is_aimed_at_a_stream_breaks_it(together: bool) -> None:
    space = Space(spmv())
    feature = RuleFeature(FeatureKind.SAME, "yl", "yr")
    for number in range(0, 2036, 60):
        alone = Samples([(space.graph, NONE, space.at(number))])
        if bool(alone.ask(feature)[0]) is together:
            items = outline(space.at(number))
            aimed = [follow(space.moves, other) for other in breaking(space, Rule(feature, together), items)]
            assert all(Samples([(space.graph, NONE, t) for t in aimed]).ask(feature) != together)


def test_a_large_space() -> None:
    space = Space(halo(3))
    traversal = space.walk(Random(2))
    found = set(deviations(space.moves, traversal))
    assert len(found) > 50
    assert all(is_in(space, t) for t in found)


def test_a_traversal_carried_over_to_another_graph() -> None:
    here, there = spmv(), spmv(3)
    traversal = Space(here).at(700)
    assert carried_over(traversal, Space(here), Space(there)) == traversal
    fewer = halo(1)
    assert is_in(Space(fewer), carried_over(traversal, Space(here), Space(fewer)))
