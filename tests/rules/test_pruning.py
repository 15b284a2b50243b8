"""How large a tree is worth its leaves, and what it is worth on samples that it has not seen."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from dagc.learn.features import Samples
from dagc.learn.judging import accuracy
from dagc.learn.tree import LearnedRules, grow, held_out, learn, others
from dagc.learn.types import Example
from tests.data.h200 import h200_results
from tests.rules.samples import h200_learned, h200_outliers, h200_samples


def _table(rows: int, features: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    return np.random.default_rng(seed).random((rows, features)) < 0.5


def test_labels_drawn_by_lot_cannot_be_predicted() -> None:
    table = _table(300, 20, 1)
    labels = np.array([Random(i).randrange(2) for i in range(300)])
    wrong = others(labels, 2)
    found = held_out(table, labels, wrong, np.ones(300, dtype=bool))
    assert found is not None
    assert found.error > 0.4
    assert found.one_answer == 0.5
    assert not found.helps


def test_a_rule_that_holds_is_kept_and_predicts() -> None:
    """One feature in twenty decides; a tenth of the labels is wrong. The tree has the two leaves that this takes."""
    table = _table(300, 20, 2)
    labels = np.array([int(row[7]) ^ (Random(i).random() < 0.1) for i, row in enumerate(table)])
    wrong = others(labels, 2)
    found = held_out(table, labels, wrong, np.ones(300, dtype=bool))
    assert found is not None
    assert 0.05 < found.error < 0.2
    assert found.helps
    growth, _ = grow(table, labels, 2)
    assert growth.leaves > 10
    growth.prune(wrong, found.cost)
    assert growth.leaves == 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_very_few_samples(count: int) -> None:
    labels = np.arange(count) % 2
    found = held_out(_table(count, 3, 0), labels, others(labels, 2), np.ones(count, dtype=bool))
    assert (found is None) == (count < 2)
    assert (
        held_out(_table(9, 3, 0), np.zeros(9, dtype=int), np.zeros((9, 1), dtype=bool), np.ones(9, dtype=bool)) is None
    )


def test_estimated_samples_are_not_judged() -> None:
    """Those that are not judged are wrong in every way; it does not show."""
    table = _table(200, 5, 3)
    labels = table[:, 0].astype(int)
    wrong = others(labels, 2)
    judged = np.arange(200) < 100
    wrong[~judged] = True
    found = held_out(table, labels, wrong, judged)
    assert found is not None
    assert found.error == 0.0


def test_few_judged_samples_are_in_different_folds() -> None:
    """Ten of 200, which would all be in one fold if estimated ones were dealt out first."""
    table = _table(200, 5, 4)
    labels = table[:, 0].astype(int)
    judged = np.arange(200) % 20 == 0
    found = held_out(table, labels, others(labels, 2), judged)
    assert found is not None
    assert (found.error, found.folds) == (0.0, 10)


def _part() -> tuple[list[Example], float]:
    """A quarter of the implementations, each with one of its passes."""
    chosen = list(zip(h200_samples(), h200_results().implementations, strict=True))[::4]
    return [replace(s, value=i.samples[0].value, measurements=1) for s, i in chosen], h200_results().noise


def _on_the_rest(learned: LearnedRules) -> float:
    rest = [s for k, s in enumerate(h200_samples()) if k % 4]
    return accuracy(learned, Samples.of(rest), [s.value for s in rest]).tolerant


def test_a_pruned_tree_is_small_and_no_worse_on_implementations_that_it_has_not_seen() -> None:
    samples, noise = _part()
    pruned = learn(samples, noise, outliers=h200_outliers())
    full = learn(samples, noise, outliers=h200_outliers(), cost=0.0)
    assert pruned.tree.leaves < full.tree.leaves / 3
    assert pruned.full_leaves == full.tree.leaves
    assert _on_the_rest(pruned) > _on_the_rest(full) - 0.02
    # What the training error hides, and the held-out error says.
    assert full.held_out is not None
    assert full.held_out.error > 2 * full.tree.error


def test_the_order_of_samples_does_not_matter() -> None:
    samples = list(h200_samples()[::10])
    one = learn(samples, 0.027)
    Random(3).shuffle(samples)
    assert learn(samples, 0.027) == one


def test_the_seed_is_not_pruned() -> None:
    seed = learn(h200_samples()[::10], 0.027, all_classes=True)
    assert seed.tree.leaves == seed.full_leaves
    assert seed.held_out is not None


def test_the_recorded_orders_have_rules_that_can_be_read() -> None:
    found = h200_learned()
    assert found.tree.leaves <= 30 < found.full_leaves
    assert found.held_out is not None
    assert found.tree.error <= found.held_out.error < 0.1
