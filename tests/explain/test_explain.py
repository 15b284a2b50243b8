"""Causal rules: edits break one rule, pairs cost what they cost, the text says it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

import pytest

from dagc.api_explain import ExplainOptions, explain
from dagc.errors import UsageError
from dagc.explain import Verdict, edits_of, time_pairs
from dagc.explain.text import difference
from dagc.results import Configuration, Outcome
from dagc.rules import Sample, Samples, learn
from dagc.search.domain import Arm, Candidate, Domain
from dagc.space import Space
from dagc.verify import Prover
from tests.data.h200 import h200_file
from tests.graphs import halo, spmv


class Costs:
    """A machine on which a table says what each candidate takes; every measurement is a little slower than the last."""

    def __init__(self, seconds: dict[Candidate, float]) -> None:
        self.seconds, self.asked = seconds, list[Candidate]()

    def measure(self, candidate: Candidate) -> Outcome:
        self.asked.append(candidate)
        if candidate not in self.seconds:
            return Outcome(failure="hang: rank 1 in `wait_recv`")
        return Outcome(self.seconds[candidate] * (1 + 1e-4 * len(self.asked)))


def two() -> tuple[Candidate, Candidate]:
    space = Space(spmv())
    return Candidate(0, space.at(0)), Candidate(0, space.at(7))


@pytest.mark.parametrize(("ratio", "verdict"), [(1.1, Verdict.COSTS), (1.0, Verdict.NOTHING), (0.9, Verdict.GAINS)])
def test_verdicts(ratio: float, verdict: Verdict) -> None:
    original, edit = two()
    machine = Costs({original: 1e-4, edit: ratio * 1e-4})
    paired = time_pairs(machine, original, edit)
    assert paired.verdict is verdict
    assert paired.ratio == pytest.approx(ratio, abs=2e-4)
    assert paired.low <= paired.ratio <= paired.high
    # Who goes first alternates, so that drift favours neither.
    assert machine.asked[:4] == [original, edit, edit, original]
    assert len(machine.asked) == 2 * paired.pairs


def test_a_failure_is_told() -> None:
    original, edit = two()
    paired = time_pairs(Costs({original: 1e-4}), original, edit)
    assert paired.verdict is Verdict.UNKNOWN
    assert paired.failure.startswith("hang: rank 1")
    assert math.isnan(paired.ratio)


@pytest.mark.parametrize("large", [False, True])
def test_edits_break_their_rule_and_stay_in_the_space(large: bool) -> None:
    graph = halo(3) if large else spmv()
    arm = Arm(Configuration(()), Space(graph, limit=100_000))
    domain, random, prover = Domain([arm]), Random(2), Prover(graph)
    sample = [arm.space.walk(random) for _ in range(150)]
    learned = learn([Sample(graph, arm.configuration, t, 1e-4 * (1 + random.random())) for t in dict.fromkeys(sample)])
    best = Candidate(0, learned.samples[0].traversal)
    rules = learned.satisfied(learned.samples[0]).rules
    found = edits_of(domain, best, rules, variants=2, seed=1)
    assert set(found) == set(rules)
    assert any(edits for edits in found.values())
    assert found == edits_of(domain, best, rules, variants=2, seed=1)
    for rule, edits in found.items():
        for edit in edits:
            list(arm.space.replay(edit.candidate.traversal))  # raises where it is not in the space
            assert prover.proved(edit.candidate.traversal)
            table = Samples([(graph, arm.configuration, edit.candidate.traversal)])
            held = {r: bool((table.ask(r.feature) == r.truth)[0]) for r in rules}
            assert not held[rule]
            assert {r for r, holds in held.items() if not holds} == {rule, *edit.also}


def test_difference() -> None:
    assert difference("a b c d".split(), "a c b d".split()) in ("a {+c+} b [-c-] d", "a [-b-] c {+b+} d")
    assert difference("a b c d e f g".split(), "a b c d e f x".split()) == "a ... f [-g-] {+x+}"


def test_on_recorded_data(tmp_path: Path) -> None:
    recorded = str(h200_file(tmp_path))
    found = json.loads(explain(recorded, ExplainOptions(replay=recorded, variants=2), "json"))
    assert found["rules"]
    timed = [edit for rule in found["rules"] for edit in rule["edits"]]
    assert timed
    assert all(edit["pairs"] == 5 and not edit["failure"] for edit in timed)
    assert all(edit["low"] <= edit["ratio"] <= edit["high"] for edit in timed)
    text = explain(recorded, ExplainOptions(replay=recorded, variants=1))
    assert all(rule["rule"] in text for rule in found["rules"])
    assert "| rule |" in explain(recorded, ExplainOptions(replay=recorded, variants=1), "md")
    with pytest.raises(UsageError, match="no format"):
        explain(recorded, ExplainOptions(replay=recorded, variants=1), "xml")
