"""Rules from a part of a space against all of it: accuracy (Table V) and consistency (Tables VI to VIII)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from dagc.ir.program import Graph
from dagc.ir.traversal import Issue, Traversal
from dagc.learn import judging
from dagc.learn.features import Samples
from dagc.learn.judging import FEWEST_OF_HALVES, RuleSetVerdict, accuracy, check, in_halves, learn_confirmed
from dagc.learn.tree import LearnedRules, learn
from dagc.learn.types import Example, FeatureKind, Halves, Rule, RuleFeature, RuleSet
from tests.data.h200 import h200_results
from tests.graphs import spmv
from tests.rules.samples import h200_learned, h200_samples, samples_of


def _slow_if_early(graph: Graph) -> Callable[[Traversal], float]:
    """1 where yl is issued after post_send, 2 where before it and on pack's stream, else 3; and a little noise."""
    random = Random(5)

    def seconds(traversal: Traversal) -> float:
        at = {graph.ops[e.op].name: (i, e.stream) for i, e in enumerate(traversal.entries) if isinstance(e, Issue)}
        if at["yl"][0] > at["post_send"][0]:
            return 1.0 + 0.01 * random.random()
        return (2.0 if at["yl"][1] == at["pack"][1] else 3.0) + 0.01 * random.random()

    return seconds


@cache
def _learned() -> LearnedRules:
    graph = spmv()
    return learn(samples_of(graph, _slow_if_early(graph)), noise=0.02)


EARLY = RuleFeature(FeatureKind.BEFORE, "post_send", "yl")
EARLIER = Rule(EARLY, False)
TOGETHER = RuleFeature(FeatureKind.SAME, "pack", "yl")


def test_what_is_checked_has_three_classes() -> None:
    found = [[(r.feature.text(), r.truth) for r in s.rules] for s in _learned().rule_sets]
    assert found == [
        [("post_send before yl", True)],
        [("post_send before yl", False), ("pack, yl in the same stream", True)],
        [("post_send before yl", False), ("pack, yl in the same stream", False)],
    ]


def test_a_full_exploration_is_consistent_with_itself() -> None:
    full = _learned()
    for found in check(full, full):
        assert found.verdict is RuleSetVerdict.CONSISTENT
        assert (found.meant, found.share) == ((found.rule_set.number,), 1.0)
        assert found.followers == found.rule_set.samples


@pytest.mark.parametrize(
    ("number", "rules", "verdict", "extraneous", "missing"),
    [
        (0, [Rule(EARLY, True)], RuleSetVerdict.CONSISTENT, [], []),
        (0, [Rule(EARLY, True), Rule(TOGETHER, True)], RuleSetVerdict.OVERCONSTRAINED, [1], []),
        (0, [Rule(TOGETHER, True), Rule(EARLY, True)], RuleSetVerdict.OVERCONSTRAINED, [0], []),
        (0, [Rule(TOGETHER, True)], RuleSetVerdict.UNDERCONSTRAINED, [], ["post_send before yl"]),
        (1, [EARLIER], RuleSetVerdict.UNDERCONSTRAINED, [], ["pack, yl in the same stream"]),
        (1, [Rule(TOGETHER, True), EARLIER], RuleSetVerdict.CONSISTENT, [], []),
        (2, [Rule(TOGETHER, True), EARLIER], RuleSetVerdict.UNDERCONSTRAINED, [], ["pack, yl in different streams"]),
        (2, [], RuleSetVerdict.UNDERCONSTRAINED, [], ["yl before post_send", "pack, yl in different streams"]),
        (0, [Rule(EARLY, True), EARLIER], RuleSetVerdict.EMPTY, [], []),
    ],
)  # fmt: skip
def test_verdicts(
    number: int, rules: list[Rule], verdict: RuleSetVerdict, extraneous: list[int], missing: list[str]
) -> None:  # fmt: skip
    full = _learned()
    judged = RuleSet(number, tuple(rules), 0, 1, (1, 0, 0), (1.0, 0.0, 0.0), 0)
    part = LearnedRules(full.samples, full.classes, full.labels, full.features, full.tree, (judged,), full.noise)
    (found,) = check(part, full)
    assert found.verdict is verdict
    assert found.extraneous == tuple(rules[i] for i in extraneous)
    assert sorted(r.text for r in found.missing) == sorted(missing)


def test_fewer_classes_mean_several_of_the_full_exploration() -> None:
    """Learned from two classes, "slow" stands for both slow classes."""
    full = _learned()
    part = learn([s for s in full.samples if s.value < 2.5], noise=0.02)
    found = check(part, full)
    assert [(f.rule_set.number, f.meant, f.verdict) for f in found] == [
        (0, (0,), RuleSetVerdict.CONSISTENT), (1, (1, 2), RuleSetVerdict.CONSISTENT),
    ]  # fmt: skip


def test_accuracy_of_a_full_exploration_is_one() -> None:
    full = _learned()
    found = accuracy(full, Samples.of(full.samples), [s.value for s in full.samples])
    assert (found.share, found.tolerant, found.by_boundary) == (1.0, 1.0, 1.0)
    shares = [c.count / len(full.samples) for c in full.classes.classes]
    assert found.chance == pytest.approx(sum(s * s for s in shares))
    assert [(c.classified, c.inside) for c in found.classes] == [(c.count, c.count) for c in full.classes.classes]
    assert [c.widths for c in found.classes] == pytest.approx([c.width / 0.02 for c in full.classes.classes])


def test_accuracy_by_hand() -> None:
    """One class from 1.00 to 1.01: what is slower is outside its range, a little slower within the noise of it."""
    full = _learned()
    part = learn(full.samples[:50], noise=0.02)
    assert len(part.classes.classes) == 1
    whole = Samples.of(full.samples[:4])
    slowest = part.classes.classes[0].slowest
    found = accuracy(part, whole, [1.0005, slowest, slowest * 1.01, slowest * 1.03])
    assert (found.share, found.chance, found.tolerant, found.by_boundary) == (0.5, 0.5, 0.75, 1.0)
    assert (found.implementations, found.learned_from) == (4, 50)
    assert found.losses == pytest.approx([v / 1.0005 - 1 for v in (1.0005, slowest, slowest * 1.01, slowest * 1.03)])
    with pytest.raises(ValueError, match="nothing to classify"):
        accuracy(part, Samples([]), [])


def test_two_hundred_single_measurements_of_the_h200_data() -> None:
    """Recorded data, one pass each: far better than random labels of the same sizes."""
    random, results = Random(0), h200_results()
    chosen = random.sample(list(zip(h200_samples(), results.implementations, strict=True)), 400)
    part = learn(
        [Example(s.graph, s.configuration, s.traversal, random.choice(i.times())) for s, i in chosen], results.noise
    )
    whole = h200_samples()
    found = accuracy(part, Samples.of(whole), [s.value for s in whole])
    assert found.chance < found.share <= found.tolerant <= 1.0
    checked = check(part, h200_learned())
    assert len(checked) == len(part.rule_sets)
    assert {f.verdict for f in checked} >= {RuleSetVerdict.OVERCONSTRAINED, RuleSetVerdict.UNDERCONSTRAINED}


# ---- halves ----


@cache
def _some() -> list[Example]:
    """An eighth of the implementations of the SpMV."""
    graph = spmv()
    return samples_of(graph, _slow_if_early(graph))[::8]


def _teach(samples: Sequence[Example]) -> LearnedRules:
    return learn(samples, 0.02)


def test_rules_that_hold_hold_in_the_other_half() -> None:
    samples = _some()
    learned = learn_confirmed(samples, 0.02)
    found = learned.halves
    assert found is not None
    assert found == in_halves(samples[::-1], _teach)  # whatever the order of the samples
    assert learned.tree == _teach(samples).tree
    assert (found.without, found.slower) == (0, 0.0)
    assert found.accuracy > 0.95 > found.constant > found.chance
    assert 0 <= found.loss <= 0.0101
    assert found.loss <= found.loss_95
    assert not found.refutes


def test_what_one_half_has_by_luck_is_not_in_the_other() -> None:
    """Times that no feature explains, with gaps: without the test of chance, every half finds classes and rules."""
    random = Random(7)
    samples = [replace(s, value=random.choice([1.0, 1.5, 2.0]) + 0.01 * random.random()) for s in _some()]
    found = in_halves(samples, _teach)
    assert found is not None
    assert found.without == found.halves or found.refutes


def test_rules_that_halves_refute_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    refuted = Halves(4, 0, 0.5, 0.5, 0.4, 9, 0.1, 0.1, 0.1, 0.1, 0.01)
    monkeypatch.setattr(judging, "in_halves", lambda *_: refuted)
    learned = learn_confirmed(_some(), 0.02)
    assert (learned.halves, learned.tree.leaves, learned.limits) == (refuted, 1, ())
    assert len(learned.classes.classes) > 1


def test_few_samples_are_not_divided() -> None:
    samples = _some()
    assert in_halves(samples[: FEWEST_OF_HALVES - 1], _teach) is None
