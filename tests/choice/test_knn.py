"""Labels by rule, and nearest neighbours as in scikit-learn."""

from __future__ import annotations

import math
import random
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.errors import UsageError
from dagc.choice.learners.knn import Knn
from dagc.choice.methods import fit
from dagc.choice.selector import Scale
from dagc.study.train import observed_labels, simplest_labels
from tests.tiers import examples

SIZES = [100, 200, 400, 800, 1000, 2000, 5000, 10_000, 30_000, 100_000, 400_000, 1_000_000]
LABELS = [4, 4, 4, 4, 4, 8, 8, 8, 16, 32, 32, 32]


def test_the_seeds_correction_comes_out() -> None:
    """Sizes 6e4 to 1e5 of the paper: 20, 35, 40, 32, 40 become 20, 20, 20, 32, 32, since the differences are small."""
    times = [
        {20: 1.0, 35: 1.1, 40: 1.1, 32: 1.2}, {20: 1.0008, 35: 1.0, 40: 1.1, 32: 1.2},
        {20: 1.007, 35: 1.1, 40: 1.0, 32: 1.2}, {20: 1.2, 35: 1.1, 40: 1.1, 32: 1.0},
        {20: 1.2, 35: 1.1, 40: 1.0, 32: 1.0006},
    ]  # fmt: skip
    assert observed_labels(times) == (20, 35, 40, 32, 40)
    assert simplest_labels(times, 0.01) == (20, 20, 20, 32, 32)
    assert simplest_labels(times, 0.0) == (20, 35, 40, 32, 40)
    assert simplest_labels([], 0.01) == ()


def _changes(labels: tuple[int, ...]) -> int:
    return sum(a != b for a, b in pairwise(labels))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.dictionaries(st.integers(0, 3), st.integers(10, 14), min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.1, 0.25]),
)
def test_no_labelling_is_simpler(times: list[dict[int, int]], tolerance: float) -> None:
    """Against all labellings."""
    found = simplest_labels(times, tolerance)
    allowed = [[k for k, v in at.items() if v <= (1 + tolerance) * min(at.values())] for at in times]

    def cost(labels: tuple[int, ...]) -> tuple[int, float]:
        return _changes(labels), round(sum(at[k] / min(at.values()) for at, k in zip(times, labels, strict=True)), 9)

    assert all(label in some for label, some in zip(found, allowed, strict=True))
    assert cost(found) == min(cost(labels) for labels in product(*allowed))


def test_a_fit() -> None:
    chooser = fit("knn", ["n"], [[s] for s in reversed(SIZES)], LABELS[::-1])
    assert chooser.points == tuple((s,) for s in SIZES)
    assert [chooser.choose([s]) for s in (50, 900, 6000, 10**9)] == [4, 4, 8, 32]
    assert chooser.text == f"knn, k = {chooser.k}, weights by distance"


def test_a_tie_goes_to_the_size_that_stands_first() -> None:
    """200 is as far from 100 as from 400, and the logarithms say so exactly."""
    assert Knn(("n",), (Scale(),), ((100,), (400,)), (7, 3), 1, "uniform").choose([200]) == 7
    assert Knn(("n",), (Scale(),), ((100,), (400,)), (7, 3), 2, "uniform").choose([200]) == 3, (
        "of equal votes the lowest label"
    )
    assert Knn(("n",), (Scale(),), ((100,), (400,)), (7, 3), 2, "distance").choose([400]) == 3, (
        "itself, whatever else is near"
    )


@pytest.mark.parametrize(
    ("sizes", "labels"), [([1, 2], [1, 1]), ([1, 2, 3], [1, 2]), ([math.nan, 2, 3], [1, 2, 3]), ([2, 2, 3], [1, 2, 3])]
)
def test_what_cannot_be_fitted(sizes: list[int], labels: list[int]) -> None:
    with pytest.raises(UsageError):
        fit("knn", ["n"], [[s] for s in sizes], labels)


@pytest.mark.parametrize(("k", "weights"), [(1, "uniform"), (3, "uniform"), (2, "distance"), (4, "distance")])
def test_scikit_learn_chooses_the_same(k: int, weights: str) -> None:
    from sklearn.neighbors import KNeighborsClassifier

    chooser = Knn(("n",), (Scale(),), tuple((s,) for s in SIZES), tuple(LABELS), k, weights)
    draw = random.Random(3)
    sizes = sorted({int(10 ** draw.uniform(1.5, 7)) for _ in range(2000)} | set(SIZES))
    model = KNeighborsClassifier(k, weights=weights).fit(np.log10(np.array(SIZES, float))[:, None], LABELS)
    expected = model.predict(np.log10(np.array(sizes, float))[:, None])
    assert [chooser.choose([s]) for s in sizes] == list(expected)
