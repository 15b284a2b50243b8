"""What failed in training is not chosen at inputs like these, by any method."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.sample import Sample
from dagc.choice.choose import PENALTY, Avoided, Chooser, Reason, Tried, avoided_of, tried_at
from dagc.choice.feature import SelectorFeature
from dagc.choice.methods import LEARNED
from dagc.choice.selector import Extent
from dagc.choice.types import Case, Cell, Site
from dagc.ir.choice import Choice
from dagc.ir.sym import Var
from dagc.study.train import TrainingTable, train
from tests.tiers import examples

NAMES = ("n", "share")
VARIANTS = ("row", "ell", "dia")
ANSWERS = tuple(Choice.at("y", [("variant", name)]) for name in VARIANTS)
VALUES = st.tuples(st.sampled_from([1.0, 2.0, 50.0, 3e4, math.nan]), st.sampled_from([-1.0, 0.0, 0.25, 1.0]))
INPUTS = st.lists(st.tuples(VALUES, st.sets(st.integers(0, 2)), st.sets(st.integers(0, 2))), max_size=8)


@settings(max_examples=examples(150), deadline=None)
@given(INPUTS)
def test_what_failed_is_avoided_there_and_what_worked_is_not(
    inputs: list[tuple[tuple[float, float], set[int], set[int]]],
) -> None:
    rows, worked, failed = [i[0] for i in inputs], [i[1] - i[2] for i in inputs], [i[2] for i in inputs]
    avoided = Avoided.of(rows, worked, failed)
    for row in rows:
        same = [k for k, other in enumerate(rows) if other == row]
        there = set().union(*(failed[k] for k in same))
        if not all(map(math.isfinite, row)):
            assert avoided.at(row) == set().union(*failed), "where is not known"
        else:
            assert there <= avoided.at(row)
            assert not (set().union(*(worked[k] for k in same)) - there) & avoided.at(row)


def test_a_region_reaches_to_the_nearest_input_at_which_the_answer_worked() -> None:
    avoided = Avoided.of([(16.0,), (64.0,), (256.0,), (1024.0,)], [{0, 1}, {0}, {0}, {0, 1}], [set(), {1}, {1}, set()])
    assert [n for n in (16, 17, 60, 64, 100, 1000, 1024, 4000) if 1 in avoided.at((float(n),))] == [
        17,
        60,
        64,
        100,
        1000,
    ]
    nowhere = Avoided.of([(16.0,), (64.0,)], [set(), set()], [{0}, {0}])
    assert nowhere.at((1e9,)) == {0}
    assert Avoided.of([(16.0,)], [{0}], [set()]) == Avoided()
    cases = [Case.of({"k": k}) for k in range(3)]
    samples = [(Cell("y", case, ANSWERS[0]), Sample(failure="wrong" if k else "")) for k, case in enumerate(cases)]
    features = {case: {"n": 1.0} for case in cases[1:]}
    assert tried_at(samples, "y", features, {cases[2]}) == (Tried({"n": 1.0}, frozenset(), frozenset(ANSWERS[:1])),)


def chooser(method: str, variants: bool, seed: int) -> Chooser:
    """Each answer fails in some region: the default for small `n`, the second one for large `share`, the third one at a
    few inputs at random; the default also where a feature is not a number."""
    draw = random.Random(seed)
    rows = [(float(round(2 ** draw.uniform(2, 16))), round(draw.uniform(-1, 1), 3)) for _ in range(40)]
    times = [{0: 1e-6 * n, 1: 3e-5 + 2e-7 * n, 2: 1e-4 * (2 + share)} for n, share in rows]
    failed = [{a for a, bad in enumerate((n < 50, share > 0.3, draw.random() < 0.1)) if bad} for n, share in rows]
    kept = [{a: t for a, t in at.items() if a not in bad} or {2: 1.0} for at, bad in zip(times, failed, strict=True)]
    known = TrainingTable.of(NAMES, rows, kept, 0.02).merged
    tried = [
        Tried(dict(zip(NAMES, row, strict=True)), frozenset(ANSWERS[a] for a in at if a not in bad),
              frozenset(ANSWERS[a] for a in bad))
        for row, at, bad in zip(rows, times, failed, strict=True)
    ]  # fmt: skip
    tried.append(Tried({"n": 4.0}, frozenset(ANSWERS[1:]), frozenset(ANSWERS[:1])))
    op, names = f"y{seed}", VARIANTS if variants else ()
    answers = [Choice.at(op, [("variant", VARIANTS[k]) if variants else ("bx", 32 << k)]) for k in range(3)]
    site = Site(op, tuple(answers), variants=names)
    features = tuple(SelectorFeature(name, Var(name)) for name in NAMES)
    extent = Extent.of(dict(zip(NAMES, row, strict=True)) for row in rows)
    selector = train(method, known, default=0 if variants else None)
    return Chooser(
        site, features, selector=selector, extent=extent, avoided=avoided_of(NAMES, ANSWERS, tried)
    )  # fmt: skip


@pytest.mark.parametrize("method", LEARNED)
@pytest.mark.parametrize("variants", [True, False])
def test_no_answer_that_failed_is_chosen_or_fallen_back_to(method: str, variants: bool) -> None:
    made, draw = chooser(method, variants, 2 - variants), random.Random(5)
    cases = [{"n": float(round(2 ** draw.uniform(0, 18))), "share": draw.uniform(-2, 2)} for _ in range(150)]
    cases += [{"n": math.nan, "share": 0.0}, {"n": 1e9, "share": 0.9}, {"n": 20.0, "share": 40.0}, cases[0], cases[0]]
    reasons = set()
    for here in cases:
        answer, reason = made.decide(here)
        failed = made.failed(here)
        assert answer not in failed or (reason is Reason.FAILED and len(failed) == 3)
        reasons.add(reason)
        ordered = made.order(here)
        assert (ordered[0], sorted(ordered)) == (answer, [0, 1, 2])
        assert set(ordered[len(ordered) - len(failed) :]) == failed, "they come last"
        if made.predicts and math.isfinite(here["n"]):
            seconds, plain = made.predict(here), made.selector
            assert plain is not None
            raw = plain.seconds([here[n] for n in NAMES])
            assert all(seconds[a] == t * (PENALTY if a in failed else 1) for a, t in raw.items())
    assert Reason.AVOIDED in reasons
