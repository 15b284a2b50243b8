"""Edits: in the space, proved, and with nothing broken but the wanted rule wherever that is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import parse_traversal, traversal_text
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.orders import Orders
from dagc.learn.edits import questions
from dagc.learn.explain import ask
from dagc.learn.features import Samples
from dagc.learn.pairs import Question
from dagc.learn.types import FeatureKind, Rule, RuleFeature
from dagc.space import Space
from dagc.space.proof import Prover
from tests.data.h200 import h200_graph, h200_results
from tests.graphs import halo, spmv
from tests.rules.samples import NONE, graphs, h200_learned
from tests.tiers import examples

COUNTED = 20_000  # states


def domain_of(graph: Graph, limit: int = COUNTED) -> Orders:
    """`limit`: a space of more states is too large to be counted, and is searched around the best only."""
    return Orders([ConfiguredSpace(NONE, Space(graph, limit=limit))])


def broken(domain: Orders, candidate: Candidate, rules: Sequence[Rule]) -> set[Rule]:
    configured = domain.spaces[candidate.space]
    alone = Samples([(configured.graph, configured.configuration, candidate.traversal)])
    return {rule for rule in rules if bool(alone.ask(rule.feature)[0]) != rule.truth}


def rules_of(domain: Orders, candidate: Candidate, random: Random, most: int = 4) -> list[Rule]:
    """Rules that hold for a candidate, at random; each is broken by another one."""
    space = domain.spaces[candidate.space].space
    features, _ = Samples([(space.graph, NONE, t) for t in space]).features()
    alone = Samples([(space.graph, NONE, candidate.traversal)])
    return [Rule(f, bool(alone.ask(f)[0])) for f in random.sample(features, min(most, len(features)))]


@given(graphs(), st.integers(0, 1000), st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_an_edit_breaks_what_it_shall(graph: Graph, seed: int, all_of_them: bool) -> None:
    domain, random = domain_of(graph), Random(seed)
    space = domain.spaces[0].space
    assume(1 < space.count() < 500)
    best = domain.sample(random)
    rules = rules_of(domain, best, random)
    found = questions(domain_of(graph, COUNTED if all_of_them else 0), best, rules)
    prover = Prover(graph)
    for question in found:
        assert question.exact is all_of_them
        assert question.edits or not all_of_them
        for edit in question.edits:
            list(space.replay(edit.candidate.traversal))
            assert prover.proved(edit.candidate.traversal)
            assert broken(domain, edit.candidate, rules) == {question.rule, *edit.also}
            if all_of_them:
                assert len(edit.also) == fewest(domain, rules, question.rule)


def fewest(domain: Orders, rules: Sequence[Rule], rule: Rule) -> float:
    """How many others break at least where a rule is broken, among all implementations."""
    wrong = (broken(domain, candidate, rules) for candidate in domain)
    return min((len(found) - 1 for found in wrong if rule in found), default=math.inf)


def h200_questions(exact: bool = True) -> tuple[Orders, Candidate, tuple[Question, ...]]:
    graph, results = h200_graph(), h200_results()
    space = Space(graph, limit=COUNTED if exact else 0)
    domain = Orders([ConfiguredSpace(results.implementations[0].configuration, space)])
    best = Candidate(0, parse_traversal(results.measured()[0].traversal, graph))
    return domain, best, ask(h200_learned(), domain, best).questions


@pytest.mark.thorough
def test_the_edits_of_the_best_on_four_h200s_are_among_the_recorded() -> None:
    domain, _, found = h200_questions()
    recorded = {i.traversal for i in h200_results().implementations}
    assert sum(q.own for q in found) >= 3
    for question in found:
        assert len({e.candidate for e in question.edits}) == 3
        assert [e.distance for e in question.edits] == sorted(e.distance for e in question.edits)
        for edit in question.edits:
            assert traversal_text(edit.candidate.traversal, domain.spaces[0].graph) in recorded


def test_the_search_around_the_best_finds_what_looking_at_all_finds() -> None:
    """As near, and with as few rules broken. (Which questions tell apart depends on what was looked at, a little.)"""
    _, _, exact = h200_questions()
    _, _, around = h200_questions(exact=False)
    for wanted, found in zip(exact, around, strict=True):
        assert wanted.rule == found.rule
        assert len(found.edits[0].also) == len(wanted.edits[0].also)
        assert found.edits[0].distance <= wanted.edits[0].distance + 2


def before(a: str, b: str) -> Rule:
    return Rule(RuleFeature(FeatureKind.BEFORE, a, b), True)


def test_a_rule_that_others_follow_from_breaks_with_them() -> None:
    domain = domain_of(spmv())
    text = (
        "pack@s0 record(e0)@s0 yl@s0 post_recv sync(e0) post_send wait_recv wait_send yr@s0 y@s0 record(e1)@s0 sync(e1)"
        " end"
    )
    best = Candidate(0, parse_traversal(text, domain.spaces[0].graph))
    early, earlier = before("yl", "post_send"), before("yl", "CES-b4-post_send")
    found = questions(domain, best, [early, earlier])
    assert found[0].edits[0].also == (earlier,)
    assert found[1].edits[0].also == ()
    # pack is needed for the message that yr waits for.
    impossible = questions(domain, best, [early], [before("pack", "yr")])[1]
    assert (impossible.own, impossible.edits, impossible.exact) == (False, (), True)


def test_a_large_space_is_searched_around_the_best() -> None:
    domain, random = domain_of(halo(4)), Random(3)
    best = Candidate(0, domain.spaces[0].space.walk(random))
    alone = Samples([(domain.spaces[0].graph, NONE, best.traversal)])
    names = [("pack0", "pack1"), ("send2", "recv3"), ("CER-after-pack2", "pack3"), ("unpack0", "unpack3")]
    features = [
        *(RuleFeature(FeatureKind.BEFORE, a, b) for a, b in names),
        RuleFeature(FeatureKind.SAME, "pack0", "unpack2"),
    ]
    rules = [Rule(f, bool(alone.ask(f)[0])) for f in features]
    for question in questions(domain, best, rules):
        assert not question.exact
        assert not question.edits[0].also
        assert broken(domain, question.edits[0].candidate, rules) == {question.rule}


def test_a_choice_is_broken_by_the_same_traversal_in_another_configuration() -> None:
    space = Space(spmv())
    spaces = [ConfiguredSpace(Choice((("block", b), ("capture", c))), space) for c in (True, False) for b in (64, 128)]
    domain = Orders(spaces)
    best = Candidate(0, space.first())
    rules = [
        Rule(RuleFeature(FeatureKind.CHOICE, "capture", "true"), True),
        Rule(RuleFeature(FeatureKind.AT_MOST, "block", "64"), True),
    ]
    rules.append(before("pack", "yl"))
    assert not broken(domain, best, rules)
    found = questions(domain, best, rules, known=[Candidate(3, space.at(5)), Candidate(2, space.at(9))])
    assert found[0].edits[0].candidate == Candidate(2, space.first())
    assert found[0].edits[0].changed == ("capture",)
    assert found[1].edits[0].candidate == Candidate(1, space.first())
    assert all(e.candidate.space == 0 and not e.changed for e in found[2].edits)
    assert all(e.candidate.space != 0 for q in found[:2] for e in q.edits)


def test_a_rule_about_ops_of_another_configuration() -> None:
    """It holds for the best because they are not there, and cannot be broken where they are not."""
    best = Candidate(0, Space(halo(1)).first())
    rules = [
        Rule(RuleFeature(FeatureKind.BEFORE, "CER-after-yl", "post_send", False), False),
        Rule(RuleFeature(FeatureKind.SAME, "yl", "yr", False), False),
        before("pack0", "recv0"),
    ]
    for limit in (0, COUNTED):
        spaces = (Space(graph, limit=limit) for graph in (halo(1), spmv()))
        domain = Orders([ConfiguredSpace(Choice((("arm", i),)), space) for i, space in enumerate(spaces)])
        assert not broken(domain, best, rules)
        assert [bool(q.edits) for q in questions(domain, best, rules)] == [False, False, True]


def test_only_what_can_be_timed() -> None:
    domain, best, _ = h200_questions()
    rules = [before("yl", "wait_recv")]
    wanted = questions(domain, best, rules)[0].edits[1].candidate
    found = questions(domain, best, rules, usable=lambda candidate: candidate == wanted)
    assert [e.candidate for e in found[0].edits] == [wanted]
    assert not questions(domain, best, rules, usable=lambda candidate: False)[0].edits
