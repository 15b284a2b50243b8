"""Timing in pairs, on machines whose times are known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

import pytest

from benchmarks.explain_chance import NOISES, part
from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.orders import Orders
from dagc.learn.pairs import (
    AnsweredQuestion,
    Edit,
    Finding,
    PairTiming,
    Question,
    TimingOptions,
    Verdict,
    differing,
    time_pairs,
)
from dagc.learn.types import FeatureKind, Rule, RuleFeature
from dagc.space import Space
from tests.graphs import spmv
from tests.tiers import representatives

SPACE = Space(spmv())
DOMAIN = Orders([ConfiguredSpace(Choice(()), SPACE)])
BEST, *EDITS = (Candidate(0, SPACE.at(number)) for number in range(4))


@dataclass
class Known:
    """A machine with given seconds, noise and drift (relative, per measurement)."""

    seconds: dict[Candidate, float]
    noise: float = 0.0
    drift: float = 0.0
    fails: dict[Candidate, str] = field(default_factory=dict)
    interrupt_at: int = -1
    random: Random = field(default_factory=lambda: Random(5))
    asked: list[Candidate] = field(default_factory=list)

    def measure(self, candidate: Candidate) -> Sample:
        if len(self.asked) == self.interrupt_at:
            raise KeyboardInterrupt
        self.asked.append(candidate)
        if candidate in self.fails:
            return Sample(failure=self.fails[candidate])
        factor = self.random.gauss(1, self.noise) * (1 + self.drift) ** len(self.asked)
        return Sample(self.seconds[candidate] * factor, iterations=3)


@dataclass
class Kept:
    begun: list[Candidate] = field(default_factory=list)
    added: list[tuple[float, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def begin(self, candidate: Candidate) -> int:
        self.begun.append(candidate)
        return len(self.begun)

    def add(self, key: int, sample: Sample) -> None:
        if sample.failure:
            self.failed.append(sample.failure)
        else:
            self.added.append((sample.value, sample.purpose))


def test_pairs_are_interleaved_and_alternate() -> None:
    machine = Known({BEST: 1.0, EDITS[0]: 2.0})
    timed = time_pairs(BEST, EDITS[:1], machine, Kept(), TimingOptions(pairs=4, tolerance=0))
    assert machine.asked == [BEST, EDITS[0], EDITS[0], BEST] * 2
    assert timed.timings[0].pairs == 4
    assert timed.timings[0].ratio == pytest.approx(2.0)
    assert (timed.timings[0].best, timed.timings[0].edited) == (1.0, 2.0)
    assert timed.timings[0].cost == pytest.approx(1.0)


def test_drift_does_not_look_like_a_cost() -> None:
    machine = Known({BEST: 1.0, EDITS[0]: 1.0}, drift=0.02)
    timing = time_pairs(BEST, EDITS[:1], machine, Kept(), TimingOptions(pairs=20)).timings[0]
    assert timing.ratio == pytest.approx(1.0, abs=1e-3)
    assert timing.low <= 1 <= timing.high


def test_a_cost_is_found_in_noise() -> None:
    machine = Known({BEST: 1.0, EDITS[0]: 1.05, EDITS[1]: 1.0, EDITS[2]: 0.95}, noise=0.02)
    timings = time_pairs(BEST, EDITS, machine, Kept(), TimingOptions(pairs=40, noise=0.02)).timings
    assert [t.verdict for t in timings] == [Verdict.COSTS, Verdict.LEVEL, Verdict.FASTER]
    assert timings[0].low < 1.05 < timings[0].high
    assert all(t.confidence >= 0.95 for t in timings)


def test_what_is_known_well_enough_is_not_timed_on() -> None:
    machine = Known({BEST: 1.0, EDITS[0]: 1.5, EDITS[1]: 1.0}, noise=0.001)
    timings = time_pairs(BEST, EDITS[:2], machine, Kept(), TimingOptions(pairs=30, tolerance=0.01)).timings
    assert [t.pairs for t in timings] == [8, 8]  # seven, in twos: the fewest that can tell two edits from chance


def test_of_a_recording_the_pairs_of_an_edit_follow_one_another() -> None:
    machine = Known(dict.fromkeys([BEST, *EDITS[:2]], 1.0))
    time_pairs(BEST, EDITS[:2], machine, Kept(), TimingOptions(together=True, tolerance=0), most=lambda _: 5)
    first, second = machine.asked[:10], machine.asked[10:]
    assert [set(first), set(second)] in ([{BEST, EDITS[0]}, {BEST, EDITS[1]}], [{BEST, EDITS[1]}, {BEST, EDITS[0]}])


def test_edits_take_turns_and_equal_ones_are_timed_once() -> None:
    machine = Known({BEST: 1.0, EDITS[0]: 1.1, EDITS[1]: 1.2})
    edits = [EDITS[0], EDITS[1], EDITS[0]]
    timed = time_pairs(BEST, edits, machine, Kept(), TimingOptions(pairs=4, tolerance=0))
    assert timed.timings[0] == timed.timings[2]
    for start in (0, 8):  # a round: both edits, two pairs each
        assert machine.asked[start : start + 8].count(EDITS[0]) == 2
        assert machine.asked[start : start + 8].count(EDITS[1]) == 2


def test_everything_is_kept_as_explanation() -> None:
    kept = Kept()
    machine = Known({BEST: 1.0, EDITS[0]: 1.1}, fails={EDITS[1]: "hang: rank 2 in `yl`"})
    timed = time_pairs(BEST, EDITS[:2], machine, kept, TimingOptions(pairs=3))
    assert {purpose for _, purpose in kept.added} == {"explain"}
    assert len(kept.begun) == len(kept.added) + len(kept.failed) == len(machine.asked)
    assert kept.failed == ["hang: rank 2 in `yl`"]
    assert timed.timings[1].failure == "hang: rank 2 in `yl`"
    assert timed.timings[1].verdict is Verdict.FAILED
    assert timed.timings[0].pairs == 3


def test_a_best_that_fails_does_not_go_on_for_ever() -> None:
    machine = Known({EDITS[0]: 1.0}, fails={BEST: "run failed"})
    timed = time_pairs(BEST, EDITS[:1], machine, Kept(), TimingOptions(pairs=5))
    assert timed.timings[0].verdict is Verdict.FAILED
    assert len(machine.asked) <= 4 * 5


def test_only_so_many_pairs_as_there_are() -> None:
    machine = Known({BEST: 1.0, EDITS[0]: 1.1, EDITS[1]: 1.1})
    most = {EDITS[0]: 5, EDITS[1]: 1}
    timed = time_pairs(BEST, EDITS[:2], machine, Kept(), TimingOptions(tolerance=0), most=most.__getitem__)
    assert [t.pairs for t in timed.timings] == [5, 1]
    assert timed.timings[0].confidence == pytest.approx(0.9375)
    assert timed.timings[1].verdict is Verdict.UNDECIDED


def test_few_pairs_are_as_uncertain_as_the_noise() -> None:
    machine = Known({BEST: 1.0, EDITS[0]: 1.1, EDITS[1]: 1.02})
    options = TimingOptions(pairs=1, noise=0.01)
    sure, unsure = time_pairs(BEST, EDITS[:2], machine, Kept(), options).timings
    assert sure.verdict is Verdict.COSTS
    assert (sure.low, sure.high) == pytest.approx((1.1 * math.exp(-0.03 * 2**0.5), 1.1 * math.exp(0.03 * 2**0.5)))
    assert unsure.verdict is Verdict.UNDECIDED


def test_an_interrupt_keeps_what_was_timed() -> None:
    machine = Known({BEST: 1.0, EDITS[0]: 1.1, EDITS[1]: 1.1}, interrupt_at=10)
    timed = time_pairs(BEST, EDITS[:2], machine, Kept(), TimingOptions(tolerance=0))
    assert timed.interrupted
    assert sum(t.pairs for t in timed.timings) == 5


def test_the_same_seed_gives_the_same() -> None:
    def asked(seed: int) -> list[Candidate]:
        machine = Known(dict.fromkeys([BEST, *EDITS], 1.0))
        time_pairs(BEST, EDITS, machine, Kept(), TimingOptions(pairs=6, tolerance=0, seed=seed))
        return machine.asked

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)


def timing(low: float, ratio: float, high: float) -> PairTiming:
    return PairTiming(30, ratio, low, high, 0.95, 0.02, 1.0, ratio)


COSTS, LEVEL, FASTER = timing(1.02, 1.04, 1.06), timing(0.99, 1.0, 1.01), timing(0.9, 0.92, 0.95)
UNDECIDED, FAILED = timing(0.9, 1.02, 1.1), PairTiming(failure="hang")
RULE = Rule(RuleFeature(FeatureKind.BEFORE, "yl", "pack"), True)


@pytest.mark.parametrize(
    ("timings", "finding"),
    [
        ((), Finding.UNBREAKABLE),
        ((FAILED,), Finding.FAILED),
        ((COSTS, COSTS, COSTS), Finding.CAUSE),
        ((COSTS, FAILED), Finding.CAUSE),
        ((COSTS, COSTS, UNDECIDED), Finding.CAUSE),
        ((COSTS, LEVEL, COSTS), Finding.DEPENDS),
        ((COSTS, FASTER), Finding.DEPENDS),
        ((LEVEL, UNDECIDED, LEVEL), Finding.CORRELATION),
        ((FASTER, FASTER, LEVEL), Finding.FASTER),
        ((COSTS, UNDECIDED, UNDECIDED), Finding.UNDECIDED),
        ((UNDECIDED,), Finding.UNDECIDED),
    ],
)
def test_what_edits_say_about_a_rule(timings: tuple[PairTiming, ...], finding: Finding) -> None:
    assert AnsweredQuestion(Question(RULE, True, (), True), timings).finding is finding


def test_a_rule_that_others_break_with_is_not_said_to_cost() -> None:
    other = Rule(RuleFeature(FeatureKind.BEFORE, "yr", "pack"), True)
    joint = Question(RULE, True, (Edit(EDITS[0], (other,), (), 1),), True)
    found = AnsweredQuestion(joint, (COSTS,))
    assert found.finding is Finding.JOINT
    assert found.inseparable == (other,)
    assert AnsweredQuestion(joint, (LEVEL,)).finding is Finding.CORRELATION


def test_edits_that_may_be_alike_do_not_depend() -> None:
    """A cost of 1 % that one edit shows for certain and another does not."""
    question = Question(RULE, True, (), True)
    assert AnsweredQuestion(question, (COSTS, LEVEL), 0.04).finding is Finding.DEPENDS
    assert AnsweredQuestion(question, (COSTS, LEVEL), 0.06).finding is Finding.UNDECIDED
    assert AnsweredQuestion(question, (COSTS, LEVEL, COSTS), 0.06).finding is Finding.CAUSE
    near, far = (PairTiming(30, ratio, 0.99 * ratio, 1.01 * ratio, 0.95, error=0.005) for ratio in (1.01, 1.1))
    assert differing((near, far), 10) < 1e-6
    assert differing((near, near), 10) == 1.0
    assert math.isnan(differing((near, FAILED), 10))


def test_the_probability_of_an_edit_counts_all_edits() -> None:
    """Six of six pairs slower: 3 % by chance. Of three edits eight of eight: 0.8 %, and three times as much."""
    alone = time_pairs(BEST, EDITS[:1], Known({BEST: 1.0, EDITS[0]: 1.1}), Kept(), TimingOptions(pairs=8, tolerance=0))
    assert alone.timings[0].p == pytest.approx(2 / 2**6)
    machine = Known({BEST: 1.0, EDITS[0]: 1.1, EDITS[1]: 1.0, EDITS[2]: 1.0})
    among = time_pairs(BEST, EDITS, machine, Kept(), TimingOptions(pairs=8, tolerance=0))
    assert [t.p for t in among.timings] == pytest.approx([3 * 2 / 2**8, 1.0, 1.0])
    assert [t.verdict for t in among.timings] == [Verdict.COSTS, Verdict.LEVEL, Verdict.LEVEL]


@pytest.mark.parametrize("noise", representatives(NOISES, "bursty"))
def test_nothing_is_found_where_there_is_nothing(noise: str) -> None:
    """Ten rules of three edits; of a share of 5 %, four false runs in 14 would be an accident of 0.4 %."""
    live = part((noise, "live", 10, range(4)))
    recorded = part((noise, "recorded", 10, range(10)))
    assert live["false"] + recorded["false"] < 4
    assert live["depends"] + recorded["depends"] < 4
    for found in (live, recorded):
        assert 0.9 <= found["held"] / found["intervals"] < 0.98


def test_a_difference_below_the_noise_of_the_pairs_is_none() -> None:
    """2 % noise, 30 pairs: half a percent."""
    assert timing(1.001, 1.002, 1.003).verdict is Verdict.LEVEL
    assert timing(1.006, 1.008, 1.009).verdict is Verdict.COSTS


def test_a_noisy_machine_does_not_make_costs_disappear() -> None:
    wide = PairTiming(30, 1.1, 0.8, 1.4, 0.95, 0.6, 1.0, 1.1)
    assert wide.verdict is Verdict.UNDECIDED


def test_what_luck_may_explain_is_not_a_cost() -> None:
    machine = Known({BEST: 1.0, EDITS[0]: 1.03, EDITS[1]: 1.08})
    timings = time_pairs(
        BEST, EDITS[:2], machine, Kept(), TimingOptions(pairs=6, selection_bias=0.04, noise=0.01)
    ).timings
    assert [t.verdict for t in timings] == [Verdict.UNDECIDED, Verdict.COSTS]
