"""The decision tree and Algorithm 1."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score
from sklearn.tree import DecisionTreeClassifier

from dagc.learn.tree import Growth, grow, others
from dagc.learn.types import Bools, FeatureKind, Ints, RuleFeature, Tree


def _features(count: int) -> list[RuleFeature]:
    return [RuleFeature(FeatureKind.BEFORE, f"a{i}", f"b{i}") for i in range(count)]


def _grown(
    table: Bools, labels: Ints, features: list[RuleFeature], wrong: Bools | None = None, simplify: float = 0.0
) -> Tree:
    """The tree of two or three classes, pruned by `wrong` if that is given, or by the cost of a leaf."""
    classes = int(labels.max()) + 1
    growth, tried = grow(table, labels, classes)
    if wrong is not None or simplify:
        growth.prune(others(labels, classes) if wrong is None else wrong, simplify)
    return growth.tree(others(labels, classes) if wrong is None else wrong, features, tried)


def _train(rows: list[str], labels: list[int]):  # type: ignore[no-untyped-def]
    """Rows of 0 and 1, one a sample."""
    table = np.array([[c == "1" for c in row] for row in rows])
    made = np.array(labels)
    return _grown(table, made, _features(table.shape[1]))


def test_by_hand() -> None:
    """The second feature separates class 1, which is small: classes weigh equally. Then the first splits the rest."""
    tree = _train(["00", "00", "10", "10", "00", "01"], [0, 0, 2, 2, 0, 1])
    root = tree.nodes[0]
    assert (root.feature, root.counts) == (_features(2)[0], (3, 1, 2))
    assert root.shares == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    yes, no = tree.nodes[root.yes], tree.nodes[root.no]
    assert (yes.leaf, yes.counts, yes.number) == (True, (0, 0, 2), 2)
    assert (no.feature, no.counts) == (_features(2)[1], (3, 1, 0))
    assert tree.nodes[no.yes].counts == (0, 1, 0)
    assert tree.nodes[no.no].counts == (3, 0, 0)
    assert (tree.leaves, tree.depth, tree.error) == (3, 2, 0.0)


def test_algorithm_1_stops_where_five_more_leaves_do_not_help() -> None:
    """Parity of two bits: the first split gains nothing, so no tree does better than guessing."""
    tree = _train(["00", "01", "10", "11"], [0, 1, 1, 0])
    assert tree.leaves == 1
    assert tree.error == 0.5


def test_algorithm_1_looks_five_leaves_ahead() -> None:
    """The next size that is better is where it goes on, and the last such is kept."""
    rows = ["100"] * 4 + ["110"] * 2 + ["111"] * 3 + ["011"] * 9
    labels = [0] * 4 + [1] * 2 + [0] * 3 + [1] * 9
    tree = _train(rows, labels)
    sizes = [leaves for leaves, _, _ in tree.search]
    errors = {leaves: error for leaves, error, _ in tree.search}
    assert sizes == list(range(2, 2 + len(sizes)))
    assert tree.error == min(errors.values()) == errors[tree.leaves]
    assert all(errors[n] > tree.error for n in sizes if n < tree.leaves)


def test_ties_go_to_the_first_feature_whatever_the_order_of_samples() -> None:
    rows, labels = ["0101", "0111", "1000", "1010"], [0, 0, 1, 1]
    for order in ([0, 1, 2, 3], [3, 1, 2, 0], [2, 3, 0, 1]):
        tree = _train([rows[i] for i in order], [labels[i] for i in order])
        assert tree.nodes[0].feature == _features(4)[0]


def test_splits_that_make_nothing_right_are_taken_back() -> None:
    """The second feature only tells the third sample from its like, and that one may as well be called slow."""
    table = np.array([[c == "1" for c in row] for row in ("00", "00", "11", "10", "10", "10")])
    labels = np.array([0, 0, 0, 1, 1, 1])
    wrong = labels[:, None] != np.arange(2)
    assert _grown(table, labels, _features(2), wrong).leaves == _grown(table, labels, _features(2)).leaves == 3
    wrong[2, 1] = False
    tree = _grown(table, labels, _features(2), wrong)
    assert [(n.feature, n.counts, n.number, n.wrong) for n in tree.nodes] == [
        (_features(1)[0], (3, 3), 0, 3), (None, (1, 3), 1, 0), (None, (2, 0), 0, 0),
    ]  # fmt: skip
    assert tree.error == 0.0
    assert [(leaves, depth) for leaves, _, depth in tree.search] == [(2, 1), (3, 2)]


def test_simpler() -> None:
    rows, labels = ["00"] * 10 + ["11"] + ["10"] * 10, [0] * 11 + [1] * 10
    assert _train(rows, labels).leaves == 3
    table = np.array([[c == "1" for c in row] for row in rows])
    tree = _grown(table, np.array(labels), _features(2), simplify=0.1)
    assert tree.leaves == 2
    assert tree.error == pytest.approx(1 / 22)
    assert [n.wrong for n in tree.nodes if n.leaf] == [1, 0]


def test_no_features() -> None:
    tree = _grown(np.zeros((3, 0), dtype=bool), np.array([0, 0, 1]), [])
    assert (tree.leaves, tree.depth, tree.error) == (1, 0, 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_the_trees_are_those_of_scikit_learn(seed: int) -> None:
    """Where no two splits are equally good: many samples with random answers, few leaves."""
    random = np.random.default_rng(seed)
    table = random.random((400, 8)) < random.random(8)
    labels = ((table @ random.random(8) + random.random(400)) * 1.2).astype(int).clip(0, 2)
    growth = Growth(table, labels, 3)
    for leaves in range(2, 9):
        assert growth.split()
        peer = DecisionTreeClassifier(
            criterion="gini", class_weight="balanced", max_leaf_nodes=leaves, max_depth=leaves - 1, random_state=seed
        ).fit(table, labels)
        assert growth.error == pytest.approx(1 - balanced_accuracy_score(labels, peer.predict(table)))
        assert growth.depth == peer.get_depth()
        used = sorted(int(f) for f in peer.tree_.feature if f >= 0)
        assert used == sorted(n.feature for n in growth.nodes if n.children is not None)
