"""Incremental tuning: what is measured next, and replays of full tables."""

from __future__ import annotations

import math
import random

import pytest

from dagc.base.errors import UsageError
from dagc.choice.active import STRATEGIES, Strategy, curve, next_input, trained
from dagc.choice.gains import FULL
from dagc.choice.learners.forest import Forest
from dagc.choice.learners.knn import Knn
from dagc.choice.learners.tree import Tree
from dagc.choice.nodes import Split
from dagc.choice.selector import Answer, Scale

NAMES = ["n", "share"]
INF = math.inf


def _table(count: int = 60, seed: int = 1) -> tuple[list[tuple[float, float]], list[dict[int, float]]]:
    """Three variants; the best is that of the nearest border of n and share. The third cannot run at large n."""
    draw = random.Random(seed)
    vectors, times = [], []
    for _ in range(count):
        n, share = float(int(2 ** draw.uniform(4, 20))), draw.random()
        third = n ** (0.4 + share) if n < 2**17 else INF
        times.append({0: 200 + n * (1 - share / 2), 1: 2 * n**0.9 + 100, 2: third + 50})
        vectors.append((n, share))
    return vectors, times


def test_the_first_inputs_are_far_apart_and_the_next_where_the_best_two_are_closest() -> None:
    vectors = [(float(n), 0.5) for n in (1, 2, 4, 8, 900, 1000, 1100, 2**18, 2**20)]
    first = next_input(NAMES, vectors, {}, "knn", 3)
    assert first == next_input(NAMES, vectors, {}, "knn", 3)
    assert {next_input(NAMES, vectors, {}, "knn", seed) for seed in range(20)} > {first}
    assert next_input(NAMES, vectors, {0: {0: 1.0, 1: 2.0}}, "knn") == 8
    assert next_input(NAMES, vectors, {0: {0: 1.0, 1: 2.0}, 8: {0: 2.0, 1: 1.0}}, "knn") == 5
    labelled = {0: {0: 1.0, 1: 2.0}, 1: {0: 1.0, 1: 2.0}, 8: {0: 2.0, 1: 1.0}, 7: {0: 2.0, 1: 1.0}}
    # By a forest the votes are divided in the middle only; the cost-aware strategy finds the same border.
    assert next_input(NAMES, vectors, labelled, "forest", strategy="bvsb") in (4, 5, 6)
    assert next_input(NAMES, vectors, labelled, "forest", strategy="cost") in (3, 4, 5, 6)


def test_far_apart_as_long_as_an_answer_is_best_nowhere_and_there_are_more_answers_than_inputs() -> None:
    vectors = [(2.0**n, 0.5) for n in range(13)]
    best_of_six = {0: 1.0, 1: 9.0, 2: 9.0, 3: 9.0, 4: 9.0, 5: 9.0}
    labelled = {0: best_of_six, 12: best_of_six, 6: best_of_six}
    assert next_input(NAMES, vectors, labelled, "tree") in (3, 9)
    labelled = {0: best_of_six, 12: {**best_of_six, 1: 0.5}, 6: best_of_six, 3: best_of_six, 9: best_of_six}
    assert next_input(NAMES, vectors, labelled, "tree") not in labelled


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_never_proposed(strategy: Strategy) -> None:
    """An input that is labelled, has the features of a labelled one, or has a feature without a value."""
    vectors = [(1.0, 0.5), (1.0, 0.5), (math.nan, 0.5), (64.0, INF), (8.0, 0.5), (64.0, 0.5), (32.0, 0.5)]
    labelled: dict[int, dict[int, float]] = {}
    proposed = []
    while (number := next_input(NAMES, vectors, labelled, "knn", 0, strategy)) is not None:
        proposed.append(number)
        labelled[number] = {0: 1.0, 1: 2.0 - number / 4}
    assert sorted(proposed) in ([0, 4, 5, 6], [1, 4, 5, 6])


def test_inputs_at_which_nothing_works_teach_nothing() -> None:
    vectors = [(float(2**k), 0.5) for k in range(8)]
    labelled = {k: {0: INF, 1: INF} for k in range(4)}
    assert trained(NAMES, vectors, labelled, "tree", 0, 0.0) is None
    for strategy in STRATEGIES:
        assert next_input(NAMES, vectors, labelled, "tree", 0, strategy) in range(4, 8)
    with pytest.raises(UsageError, match="no learned method"):
        next_input(NAMES, vectors, {k: {0: 1.0, 1: 2.0} for k in range(4)}, "oracle")


def test_a_curve_ends_at_full_training() -> None:
    vectors, times = _table(12)
    for strategy in STRATEGIES:
        found = curve(NAMES, vectors, times, "knn", strategy, seeds=[0], steps=99)
        assert {len(of_seed) for of_seed in found.percent} == {12 - found.first + 1}
        assert found.mean[-1] == pytest.approx(found.full)
        assert found.reaches(0) == found.first
        assert found.reaches(2) is None


def test_asking_where_it_matters_does_better_than_at_random() -> None:
    """Over some seeds, at inputs that are not among those that may be asked for."""
    vectors, times = _table(80)
    test = _table(200, 2)
    areas = {
        strategy: sum(curve(NAMES, vectors, times, "forest", strategy, test=test, seeds=range(2), steps=14).mean[4:])
        for strategy in STRATEGIES
    }
    assert areas["cost"] > areas["random"]
    assert areas["bvsb"] > areas["random"]


def test_votes_are_the_evidence_for_each_answer() -> None:
    sizes = ((100.0,), (400.0,), (1600.0,))
    assert Knn(("n",), (Scale(),), sizes, (7, 3, 7), 3, "uniform").votes([200]) == pytest.approx({7: 2 / 3, 3: 1 / 3})
    assert Knn(("n",), (Scale(),), sizes, (7, 3, 7), 3, "distance").votes([400]) == {3: 1}
    gains = ((FULL, FULL // 2), (0, FULL))
    forest = Forest(("n",), (Scale(),), (2, 9), gains, (Answer(1, 1), Answer(0, 1), Answer(1, 1)))
    assert forest.votes([1]) == {9: 2 / 3, 2: 1 / 3}
    assert forest.ask([1]) == (9, pytest.approx(2.5 / 3)), "as sure as it is worth on average"
    assert Tree(("n",), (Scale(),), Split(0, 5.0, Answer(1, 0.75), Answer(2, 1.0))).votes([4]) == {1: 0.75}
