"""Learning as a whole: determinism, rule sets that partition the space, rules that say nothing left out."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import Issue
from dagc.learn.features import Implications, Samples
from dagc.learn.tree import learn, paths
from dagc.learn.types import Example, FeatureKind, Rule, RuleFeature
from dagc.space import Space
from tests.data.h200 import h200_results
from tests.graphs import make_graph, spmv
from tests.rules.samples import NONE, graphs, h200_learned, h200_outliers, h200_samples, samples_of
from tests.tiers import examples


@settings(max_examples=examples(40), deadline=None)
@given(graphs(), st.integers(0, 2**32))
def test_every_implementation_follows_exactly_one_rule_set(graph: Graph, seed: int) -> None:
    """Also those that nothing was learned from: rules that were left out are implied by the rest."""
    random = Random(seed)
    everything = samples_of(graph, lambda _: random.choice([1.0, 1.01, 1.5, 2.0]))[:200]
    learned = learn(everything[::2])
    whole = Samples.of(everything)
    followed = np.array([whole.follow(r.rules) for r in learned.rule_sets])
    assert (followed.sum(axis=0) == 1).all()
    leaf = {r.leaf: i for i, r in enumerate(learned.rule_sets)}
    assert [leaf[found] for found in learned.leaves(whole)] == followed.argmax(axis=0).tolist()


def test_every_sample_of_the_h200_data_follows_exactly_one_rule_set() -> None:
    learned = h200_learned()
    whole = Samples.of(learned.samples)
    followed = np.array([whole.follow(r.rules) for r in learned.rule_sets])
    assert (followed.sum(axis=0) == 1).all()
    assert [int(row.sum()) for row in followed] == [r.samples for r in learned.rule_sets]
    for row, found in zip(followed, learned.rule_sets, strict=True):
        assert np.bincount(np.array(learned.labels)[row], minlength=3).tolist() == list(found.counts)
    assert [r.number for r in learned.rule_sets] == sorted(r.number for r in learned.rule_sets)
    for number in range(3):
        samples = [r.samples for r in learned.of_class(number)]
        assert samples == sorted(samples, reverse=True)


def test_the_order_of_samples_does_not_matter() -> None:
    samples = list(h200_samples())[::7]
    first = learn(samples, 0.03)
    Random(0).shuffle(samples)
    again = learn(samples, 0.03)
    assert first.rule_sets == again.rule_sets
    assert first.tree == again.tree
    assert first.classes == again.classes


@pytest.mark.thorough
def test_equal_times_do_not_make_the_order_matter() -> None:
    samples = [Example(s.graph, s.configuration, s.traversal, round(s.value, 6)) for s in h200_samples()[::5]]
    assert learn(samples).rule_sets == learn(samples[::-1]).rule_sets


def test_the_rule_that_makes_the_times_is_found() -> None:
    """yl before post_send costs half; yl, yr on one stream a tenth more; and a little noise."""
    random = Random(3)

    def seconds(traversal) -> float:  # type: ignore[no-untyped-def]
        at = {graph.ops[e.op].name: (i, e.stream) for i, e in enumerate(traversal.entries) if isinstance(e, Issue)}
        late, together = at["yl"][0] > at["post_send"][0], at["yl"][1] == at["yr"][1]
        return 1.0 + 0.5 * (not late) + 0.1 * together + 0.001 * random.random()

    graph = spmv()
    learned = learn(samples_of(graph, seconds), noise=0.02)
    assert [c.median for c in learned.classes.classes] == pytest.approx([1.0, 1.1, 1.5, 1.6], abs=0.001)
    assert [[r.text for r in found.rules] for found in learned.rule_sets] == [
        ["yl, yr in different streams", "post_send before yl"],
        ["yl, yr in the same stream", "post_send before yl"],
        ["yl, yr in different streams", "yl before post_send"],
        ["yl, yr in the same stream", "yl before post_send"],
    ]
    assert all(found.sufficient for found in learned.rule_sets)
    assert learned.tree.error == 0.0
    sample = learned.samples[0]
    assert learned.classify(Samples.of([sample, learned.samples[-1]])) == [0, 3]
    assert learned.satisfied(sample) == learned.rule_sets[0]


def _at_random(samples: list[Example]) -> list[Example]:
    """As measured once, in random order."""
    order = Random(7).sample(range(len(samples)), len(samples))
    return [replace(s, times=(s.value,), orders=(place,)) for s, place in zip(samples, order, strict=True)]


def test_a_transport_is_a_rule() -> None:
    """The fastest class of a union of configurations is that of one of them, although its graph has other ops."""
    host, nccl = spmv(), make_graph([("pack", True), ("swap", True), ("yl", True)], [("pack", "swap")])
    samples = [
        Example(graph, Choice((("transport", name),)), t, seconds * (1 + 0.001 * i))
        for graph, name, seconds in ((host, "mpi_host", 2.0), (nccl, "nccl", 1.0))
        for i, t in enumerate(list(Space(graph))[:30])
    ]
    learned = learn(_at_random(samples), noise=0.02)
    assert [[r.text for r in found.rules] for found in learned.rule_sets] == [
        ["transport is not mpi_host"], ["transport = mpi_host"],
    ]  # fmt: skip


def test_every_implementation_of_a_union_follows_exactly_one_rule_set() -> None:
    random = Random(2)
    host = spmv()
    swapped = make_graph([("pack", True), ("swap", True), ("yl", True), ("y", True)], [("pack", "swap"), ("swap", "y")])
    samples = [
        Example(graph, Choice((("capture", capture), ("transport", name))), t, seconds + random.random())
        for graph, name, seconds in ((host, "mpi_host", 5.0), (swapped, "nccl", 1.0), (swapped, "peer", 1.5))
        for capture in (False, True)
        for t in list(Space(graph))[:40]
    ]
    learned = learn(_at_random(samples), noise=0.02)
    assert len(learned.classes.classes) > 2
    whole = Samples.of(learned.samples)
    followed = np.array([whole.follow(r.rules) for r in learned.rule_sets])
    assert (followed.sum(axis=0) == 1).all()
    assert [int(row.sum()) for row in followed] == [r.samples for r in learned.rule_sets]


def test_the_noise_decides_what_is_wrong() -> None:
    """With every class of the paper the tree of the H200 data is larger, and its leaves are purer than the noise."""
    learned, seed = h200_learned(), learn(h200_samples(), h200_results().noise, all_classes=True)
    assert len(seed.classes.classes) == len(learned.classes.classes) + 2
    assert math.isnan(seed.classes.noise)
    full = learn(h200_samples(), h200_results().noise, cost=0.0, outliers=h200_outliers(), judge=False)
    assert full.tree.leaves == learned.full_leaves < seed.tree.leaves
    assert full.tree.error < 0.01
    small = learn(h200_samples(), h200_results().noise, cost=0.002)
    assert small.tree.leaves < 30
    assert small.tree.error < 0.03


def test_one_sample() -> None:
    learned = learn(samples_of(spmv())[:1])
    assert [r.rules for r in learned.rule_sets] == [()]
    with pytest.raises(ValueError, match="no samples"):
        learn([])


def test_paths_of_the_tree() -> None:
    learned = h200_learned()
    found = paths(learned.tree)
    assert {leaf for leaf, _ in found} == {r.leaf for r in learned.rule_sets}
    assert all(len(rules) == learned.tree.nodes[leaf].depth for leaf, rules in found)


# ---- rules that say nothing -----------------------------------------------------------------


def _before(a: str, b: str, truth: bool = True, total: bool = True) -> Rule:
    return Rule(RuleFeature(FeatureKind.BEFORE, a, b, total), truth)


def _same(a: str, b: str, truth: bool = True) -> Rule:
    return Rule(RuleFeature(FeatureKind.SAME, a, b), truth)


@pytest.mark.parametrize(
    ("path", "merged"),
    [
        # post_send comes before wait_recv by the program's edges
        ([_before("yl", "wait_recv"), _before("yl", "post_send")], [1]),
        ([_before("yl", "post_send"), _before("yl", "wait_recv", False)], [0, 1]),
        ([_before("yl", "post_recv"), _before("post_recv", "pack"), _before("yl", "pack")], [0, 1]),
        # a sync op comes before the op that it serves
        ([_before("post_send", "yl"), _before("CES-b4-post_send", "yl")], [0]),
        ([_before("pack", "yl"), _before("CER-after-yl", "CES-b4-post_send", True, False)], [0, 1]),
        ([_before("yl", "post_send"), _before("CER-after-yl", "CES-b4-post_send", True, False)], [1]),
        # no: where it is absent, CER-after-yl is not before post_send either
        ([_before("CER-after-yl", "post_send", False, False), _before("post_send", "yl")], [0, 1]),
        # two streams
        ([_same("yl", "yr"), _same("yr", "y"), _same("yl", "y")], [1, 2]),
        ([_same("yl", "yr", False), _same("yr", "y", False), _same("pack", "y")], [0, 1, 2]),
        ([_same("yl", "y"), _same("yl", "yr", False), _same("yr", "y", False)], [1, 2]),
    ],
)  # fmt: skip
def test_merging(path: list[Rule], merged: list[int]) -> None:
    samples = Samples.of(samples_of(spmv())[:50])
    assert Implications(samples).merge(path) == tuple(path[i] for i in merged)


def test_merging_on_three_streams() -> None:
    samples = Samples.of(samples_of(spmv(3))[:50])
    path = (_same("yl", "y"), _same("yl", "yr", False), _same("yr", "y", False))
    assert Implications(samples).merge(path) == path[::2]
    apart = (_same("yl", "y", False), _same("yl", "yr", False), _same("yr", "y", False))
    assert Implications(samples).merge(apart) == apart


def test_merging_choices() -> None:
    graph = spmv()
    made = [Choice((("block", b), ("transport", t))) for b in (32, 64, 128) for t in ("nccl", "peer", "mpi_host")]
    samples = Samples([(graph, c, Space(graph).first()) for c in made])

    def choice(name: str, value: str, truth: bool = True, kind: FeatureKind = FeatureKind.CHOICE) -> Rule:
        return Rule(RuleFeature(kind, name, value, False), truth)

    merge = Implications(samples).merge
    several = choice("transport", "nccl or peer")
    assert merge([several, choice("transport", "peer", False)]) == (choice("transport", "nccl"),)
    rest = [choice("transport", "nccl", False), _before("yl", "pack"), choice("transport", "peer", False)]
    assert merge(rest) == (_before("yl", "pack"), choice("transport", "mpi_host"))
    assert merge([choice("transport", "nccl", False)]) == (choice("transport", "nccl", False),)
    assert merge([several, choice("transport", "nccl")]) == (choice("transport", "nccl"),)
    at_most = choice("block", "64", True, FeatureKind.AT_MOST)
    assert merge([at_most, choice("block", "32", True, FeatureKind.AT_MOST)]) == (
        choice("block", "32", True, FeatureKind.AT_MOST),
    )
    assert merge([at_most, _before("yl", "pack")]) == (at_most, _before("yl", "pack"))


def test_what_the_choices_make_certain_is_said() -> None:
    """Only one of two configurations has x: where its choice is on the path, x is there."""
    one = make_graph([("a", True), ("x", True)], [])
    other = make_graph([("a", True)], [])
    made = {name: Choice((("transport", name),)) for name in ("nccl", "peer")}
    samples = Samples([(g, made[n], t) for g, n in ((one, "nccl"), (other, "peer")) for t in Space(g)])
    merge = Implications(samples).merge
    nccl = Rule(RuleFeature(FeatureKind.CHOICE, "transport", "nccl", False), True)
    together, apart = (
        RuleFeature(FeatureKind.SAME, "a", "x", False),
        RuleFeature(FeatureKind.DIFFERENT, "a", "x", False),
    )
    first = Rule(RuleFeature(FeatureKind.BEFORE, "a", "x", False), False)
    assert [r.text for r in merge([Rule(together, False)])] == ["a, x not in the same stream"]
    assert [r.text for r in merge([nccl, Rule(together, False), first])] == [
        "transport = nccl", "a, x in different streams", "x before a",
    ]  # fmt: skip
    assert merge([nccl, Rule(together, False)]) == merge([nccl, Rule(apart, True)])
    assert merge([nccl, Rule(together, True)]) == merge([nccl, Rule(apart, False)])


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), st.data())
def test_what_is_implied_follows(graph: Graph, data: st.DataObject) -> None:
    """On every implementation: where the other rules hold, the rule that they are said to imply holds."""
    table = Samples.of(samples_of(graph)[:300])
    features, _ = table.features()
    if len(features) < 2:
        return
    rules = data.draw(st.lists(st.builds(Rule, st.sampled_from(features), st.booleans()), min_size=2, max_size=5))
    imply = Implications(Samples([(graph, NONE, t) for t in list(Space(graph))[:2]]))
    if imply.implies(rules[1:], rules[0]):
        assert not (table.follow(rules[1:]) & ~table.follow(rules[:1])).any()
