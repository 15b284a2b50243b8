"""Neighbours of a traversal are traversals of the space, and lead everywhere."""

from __future__ import annotations

from random import Random

import pytest

from dagc.ir.constraints import configuration_of
from dagc.ir.program import Graph
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.neighbours import follow, neighbour, outline
from dagc.lab.orders import Orders
from dagc.space import Space
from dagc.stages.program import load_graph
from tests.data.h200 import SPMV
from tests.graphs import halo, make_graph, spmv

GRAPHS = {
    "spmv": lambda: spmv(3),
    "halo": lambda: halo(3),
    "pinned": lambda: make_graph(
        [("a", True), ("b", True), ("c", True), ("d", False), ("e", True)],
        [("a", "c"), ("b", "c"), ("a", "d"), ("d", "e"), ("c", "e")], streams=3, pins={"b": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_neighbours_are_of_the_space_and_differ(name: str) -> None:
    space, random = Space(GRAPHS[name]()), Random(1)
    for _ in range(20):
        at = space.walk(random)
        assert follow(space.moves, outline(at)) == at
        for _ in range(10):
            following = neighbour(space.moves, at, outline(at), random)
            assert list(space.replay(following))  # raises where it is not of the space
            assert following != at
            at = following


def test_neighbours_of_neighbours_reach_the_whole_space() -> None:
    """Extra event records and early waits too: not only what the latest place of each sync op gives."""
    space, random = Space(make_graph([("a", True), ("b", True), ("c", False)], [("a", "b"), ("a", "c")])), Random(1)
    seen = {space.first()}
    for _ in range(3000):
        at = random.choice(sorted(seen, key=repr))
        seen.add(neighbour(space.moves, at, outline(at), random))
    assert seen == set(space)


def test_a_neighbour_in_another_configuration_keeps_the_order() -> None:
    def configured(transport: str) -> Graph:
        return load_graph(SPMV, {"transport": transport})

    domain = Orders([ConfiguredSpace(configuration_of(g), Space(g)) for g in map(configured, ("mpi_cuda", "nccl"))])
    random, crossed = Random(2), 0
    for _ in range(200):
        candidate = domain.sample(random)
        near = domain.near(candidate, random)
        list(domain.spaces[near.space].space.replay(near.traversal))
        crossed += near.space != candidate.space
    assert 20 < crossed < 80
    assert isinstance(near, Candidate)
