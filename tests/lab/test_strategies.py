"""Strategies: nothing twice, everything in the end, the same for the same seed, and what the tree remembers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.ir.traversal import Issue
from dagc.lab import orders
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.model.features import CandidateFeatures
from dagc.lab.orders import Orders
from dagc.lab.strategies.mcts import coverage
from dagc.lab.strategies.mcts_min import closeness
from dagc.lab.strategy import RankingStrategy, default, find, names
from dagc.lab.tree import SearchTree, TreeNode
from dagc.space import Space
from tests.graphs import halo, make_graph, spmv
from tests.tiers import examples

CHEAP = ("exhaustive", "mcts", "mcts-min", "random")


def domain(two: bool = True) -> Orders:
    """15 implementations on one stream and 142 on two, or the latter alone."""
    edges = [("a", "b"), ("c", "d")]
    ops = [("a", True), ("b", True), ("c", True), ("d", False)]
    spaces = [ConfiguredSpace(Choice((("streams", n),)), Space(make_graph(ops, edges, streams=n))) for n in (1, 2)]
    return Orders(spaces if two else spaces[1:])


def time_of(candidate: Candidate) -> float:
    rows = [tuple(map(int, entry.row)) for entry in candidate.traversal.entries]
    return 1 + Random(f"{candidate.space} {rows}").random()


def drain(name: str, where: Orders, seed: int = 0) -> list[Candidate]:
    strategy, out = find(name)(where, seed), []
    while (candidate := strategy.propose()) is not None:
        out.append(candidate)
        strategy.observe(candidate, Sample(time_of(candidate)))
    return out


def test_the_model_is_repeatable_and_skips_what_is_known_or_fails() -> None:
    where = domain()
    known = list(where)[:5]

    def first(seed: int) -> list[Candidate]:
        strategy, out = find("model")(where, seed), []
        for candidate in known:
            strategy.observe(candidate, Sample(time_of(candidate)))
        for number in range(8):
            candidate = strategy.propose()
            assert candidate is not None
            out.append(candidate)
            strategy.observe(candidate, Sample(failure="hang") if number % 2 else Sample(time_of(candidate)))
        return out

    found = first(1)
    assert found == first(1)
    assert len({*found, *known}) >= 12  # what was unexpected may be measured again
    assert all(found.count(candidate) == 1 and candidate not in known for candidate in found[1::2])


def test_there_are_five() -> None:
    assert names() == ("exhaustive", "mcts", "mcts-min", "model", "random")
    assert all(find(name).summary for name in names())


@pytest.mark.parametrize(("name", "two"), [*((n, two) for n in CHEAP for two in (False, True)), ("model", True)])
def test_everything_is_proposed(name: str, two: bool) -> None:
    """Once; what may be the fastest, again by the model."""
    where = domain(two)
    found = drain(name, where)
    assert set(found) == set(where)
    assert len(set(found)) == where.size() == (157 if two else 142)
    assert len(found) == len(set(found)) or name == "model"


def test_every_second_of_the_first_measurements_is_uniform() -> None:
    """Whatever the model expects: what it takes for slow, most of this space, gets its share."""
    where = domain()

    def first(seed: int) -> list[Candidate]:
        strategy, out = find("model")(where, seed), []
        for _ in range(12):
            candidate = strategy.propose()
            assert candidate is not None
            out.append(candidate)
            strategy.observe(candidate, Sample(1e-6 * len(candidate.traversal.entries)))
        return out

    runs = [first(seed) for seed in range(8)]
    uniform = [where.sample(Random(seed)) for seed in range(8)]
    assert [run[0] for run in runs] == uniform
    longest = max(len(c.traversal.entries) for c in where)
    slow = [sum(len(c.traversal.entries) >= longest - 2 for c in run[at::2]) for at in (0, 1) for run in runs]
    assert sum(slow[:8]) > 2 * sum(slow[8:])


def test_what_may_be_the_fastest_is_measured_again() -> None:
    """Up to twelve times, where many are equal but for noise; none of the slower half."""
    where, random, times = domain(False), Random(1), Counter[Candidate]()
    strategy = find("model")(where, 1)
    for _ in range(60):
        candidate = strategy.propose()
        assert candidate is not None
        times[candidate] += 1
        strategy.observe(candidate, Sample(1e-6 * len(candidate.traversal.entries) * random.gauss(1, 0.04)))
    middle = sorted(len(c.traversal.entries) for c in where)[71]
    again = [c for c, number in times.items() if number > 1]
    assert len(again) >= 3
    assert all(len(c.traversal.entries) <= middle for c in again)
    assert max(times.values()) <= 12


@pytest.mark.parametrize("name", CHEAP)
def test_a_seed_makes_it_repeatable(name: str) -> None:
    assert drain(name, domain(), 3) == drain(name, domain(), 3)
    assert drain(name, domain(), 3) != drain(name, domain(), 4)


@pytest.mark.parametrize("name", CHEAP)
def test_failures_are_not_proposed_again(name: str) -> None:
    strategy, where = find(name)(domain(False), 1), set()
    while (candidate := strategy.propose()) is not None:
        assert candidate not in where
        where.add(candidate)
        strategy.observe(candidate, Sample(failure="hang: a rank"))
    assert len(where) == 142


@pytest.mark.parametrize("name", CHEAP)
def test_what_is_known_is_not_proposed(name: str) -> None:
    where = domain()
    known = list(where)[::3]
    strategy = find(name)(where, 1)
    for candidate in known:
        strategy.observe(candidate, Sample(time_of(candidate)))
    found = []
    while (candidate := strategy.propose()) is not None:
        found.append(candidate)
        strategy.observe(candidate, Sample(time_of(candidate)))
    assert sorted(map(repr, found)) == sorted(repr(c) for c in where if c not in known)


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 1000), number=st.integers(1, 120), value=st.sampled_from([coverage, closeness]))
def test_the_tree_remembers_what_was_observed_below_each_node(seed: int, number: int, value: object) -> None:
    where = domain()
    tree = SearchTree(where, seed, value)  # type: ignore[arg-type]
    for _ in range(number):
        candidate = tree.propose()
        assert candidate is not None
        tree.observe(candidate, Sample(time_of(candidate)))

    def check(node: TreeNode) -> list[float]:
        below = [t for child in node.children.values() for t in check(child)]
        if not node.children and not node.untried:
            below = [node.tmin]
        assert node.n == len(below)
        assert (node.tmin, node.tmax) == (min(below), max(below))
        for child in node.children.values():
            assert 0 <= value(child, node, tree.root) <= 1  # type: ignore[operator]
        return below

    assert len(check(tree.root)) == number


def test_values_by_hand() -> None:
    root, child = (TreeNode(domain().start(), None, None) for _ in range(2))
    assert coverage(child, root, root) == closeness(child, root, root) == 1
    root.n, root.tmin, root.tmax = 10, 1.0, 3.0
    child.n, child.tmin, child.tmax = 4, 1.5, 2.0
    assert coverage(child, root, root) == 0.25
    assert closeness(child, root, root) == 0.75


def test_a_space_that_cannot_be_counted() -> None:
    where = Orders([ConfiguredSpace(Choice(()), Space(halo(6), limit=500))])
    assert where.size() is None
    for name in ("mcts", "random"):
        strategy = find(name)(where, 1)
        found = set()
        for _ in range(30):
            candidate = strategy.propose()
            assert candidate is not None
            found.add(candidate)
            strategy.observe(candidate, Sample(1.0))
        assert len(found) == 30


def test_uniform_over_the_union() -> None:
    """15 of 157 are of the first configuration: 1570 draws, six standard deviations."""
    random, where = Random(5), domain()
    first = sum(where.sample(random).space == 0 for _ in range(1570))
    assert abs(first - 150) < 6 * math.sqrt(150)


def test_the_model_finds_the_fastest_soon() -> None:
    """A world in which launching yl early is what counts, with 2 % noise; random search needs about 35."""
    where = Orders([ConfiguredSpace(Choice(()), Space(spmv()))])
    graph, random = where.spaces[0].graph, Random(1)
    yl, post = graph.by_name("yl").id, graph.by_name("post_send").id

    def true(candidate: Candidate) -> float:
        issued = {e.op: i for i, e in enumerate(candidate.traversal.entries) if isinstance(e, Issue)}
        return 40 + 4 * (issued[yl] > issued[post]) + 0.5 * len(candidate.traversal.entries)

    fastest = min(true(c) for c in where)
    strategy = find("model")(where, 2)
    assert isinstance(strategy, RankingStrategy)
    for _ in range(12):
        candidate = strategy.propose()
        assert candidate is not None
        strategy.observe(candidate, Sample(1e-6 * true(candidate) * random.gauss(1, 0.02)))
    choice = strategy.best()
    assert choice is not None
    assert true(choice) <= 1.03 * fastest


def test_the_default_is_the_model_where_a_sample_can_be_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default(domain()) == "model"
    assert default(Orders([ConfiguredSpace(Choice(()), Space(halo(6), limit=500))])) == "model"
    ops = [(f"op{i}", True) for i in range(140)]
    many = make_graph(ops, [(a, b) for (a, _), (b, _) in pairwise(ops)], streams=1)
    large = Orders([ConfiguredSpace(Choice(()), Space(many, limit=10))])
    assert default(large) == "model"
    assert large.sampled < domain().sampled == 600  # a candidate takes longer to draw
    features = CandidateFeatures(large.spaces)
    assert features.number <= 4 + 2 * (128 * 127 // 2)  # not of all pairs of ops
    assert features.of([large.first(0)]).shape[1] == 4 + features.number - 4 - 128 * 127 // 2  # a chain has one order
    monkeypatch.setattr(orders, "MOST_OPS", 100)
    assert default(Orders(large.spaces)) == "mcts-min"


def test_rollouts_meet_every_candidate_equally_often() -> None:
    """142 candidates; a walk with equally likely decisions meets some of them ten times as often as others."""
    configured = domain().spaces[1]
    where = Orders([configured])
    assert where.size() == 142
    met = Counter(find("mcts")(where, seed).propose() for seed in range(10 * 142))
    # Chi-squared with 141 degrees of freedom: five standard deviations above its mean.
    assert sum((met[c] - 10) ** 2 / 10 for c in where) < 141 + 5 * math.sqrt(2 * 141)


REPLAYED = """
from zlib import crc32
from benchmarks.machines.family import draw
from dagc.lab.strategy import find
from dagc.base.sample import Sample
machine = draw(18)
strategy = find("model")(machine.domain, 0)
for _ in range(20):
    candidate = strategy.propose()
    noise = 1 + crc32(repr(candidate).encode()) % 1000 / 20000
    strategy.observe(candidate, Sample(machine.truth(candidate) * noise))
    print(candidate)
"""


def test_the_model_proposes_the_same_with_another_library_of_linear_algebra() -> None:
    """Kernels for other processors add numbers up in another order."""
    started = []
    for processor in ("Haswell", "Nehalem"):
        environment = os.environ | {"OPENBLAS_CORETYPE": processor, "PYTHONPATH": os.pathsep.join(sys.path)}
        started.append(
            subprocess.Popen([sys.executable, "-c", REPLAYED], env=environment, stdout=subprocess.PIPE, text=True)
        )
    first, second = (process.communicate()[0] for process in started)
    assert first == second
    assert first.count("\n") == 20
