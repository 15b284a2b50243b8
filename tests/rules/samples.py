"""Samples for tests of rules: of graphs made by hand, and the SpMV as measured on four H200s."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from hypothesis import strategies as st

from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import Traversal, parse_traversal
from dagc.learn.classes import Outliers
from dagc.learn.tree import LearnedRules, learn
from dagc.learn.types import Example
from dagc.space import Space
from tests.data.h200 import PASSES, h200_graph, h200_results
from tests.graphs import make_graph

NONE = Choice(())


def samples_of(graph: Graph, seconds: Callable[[Traversal], float] = lambda t: 1.0) -> list[Example]:
    """Every implementation of a graph, with times made up."""
    return [Example(graph, NONE, t, seconds(t)) for t in Space(graph)]


@cache
def h200_samples() -> tuple[Example, ...]:
    """All 2036, in the order of their IDs, with the median of their five passes."""
    graph = h200_graph()
    return tuple(
        Example(
            graph, i.configuration, parse_traversal(i.traversal, graph), i.value(), PASSES, i.times(),
            tuple(place.order for place in i.taken),
        )
        for i in h200_results().implementations
    )  # fmt: skip


@cache
def h200_learned() -> LearnedRules:
    """Learned from all 2036."""
    return learn(h200_samples(), h200_results().noise, outliers=h200_outliers())


@cache
def h200_outliers() -> Outliers:
    """As counted in the five passes."""
    return Outliers.of((i.times() for i in h200_results().implementations), h200_results().noise)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs, some of their GPU ops pinned to a stream."""
    n = draw(st.integers(2, 4))
    ops = [(f"o{i}", draw(st.booleans())) for i in range(n)]
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    edges = [(f"o{i}", f"o{j}") for i, j in pairs if draw(st.booleans())]
    streams = draw(st.integers(1, 3))
    pins = {name: draw(st.integers(0, streams - 1)) for name, gpu in ops if gpu and draw(st.integers(0, 4)) == 0}
    return make_graph(ops, edges, streams, pins=pins)
