"""Labels where sizes have no order, the tolerance, and what is left out."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.choice.methods import LEARNED, from_json
from dagc.choice.selector import Selector
from dagc.study.train import (
    TrainingTable,
    ascends,
    best_constant,
    corrected_labels,
    covering_labels,
    expecting,
    least_sure,
    leave_one_out,
    noise_of_best,
    select_features,
    simplest_labels,
    tolerance_of,
    train,
)
from tests.tiers import examples, representatives


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.dictionaries(st.integers(0, 5), st.integers(10, 14), min_size=1, max_size=6), max_size=6),
    st.sampled_from([0.0, 0.1, 0.25]),
)
def test_no_set_of_labels_is_smaller_or_loses_less(times: list[dict[int, int]], tolerance: float) -> None:
    """Against all sets."""
    found = covering_labels(times, tolerance)
    allowed = [
        {k: v / min(at.values()) for k, v in at.items() if v <= (1 + tolerance) * min(at.values())} for at in times
    ]
    assert all(label in some for label, some in zip(found, allowed, strict=True))
    labels = sorted({label for some in allowed for label in some})
    sets = [set(s) for n in range(len(labels) + 1) for s in combinations(labels, n)]
    covering = [s for s in sets if all(s & some.keys() for some in allowed)]
    scores = [(len(s), round(sum(min(some[x] for x in s & some.keys()) for some in allowed), 9)) for s in covering]
    loss = round(sum(some[label] for label, some in zip(found, allowed, strict=True)), 9)
    assert (len(set(found)), loss) == min(scores)


def test_many_sizes_with_many_labels_end() -> None:
    times = [{(7 * i + 11 * k) % 60: 1 + k / 1000 for k in range(12)} for i in range(40)]
    found = covering_labels(times, 0.5)
    assert all(label in at for label, at in zip(found, times, strict=True))
    assert len(set(found)) < 15


def test_a_trend_where_sizes_grow_together_else_the_fewest_labels() -> None:
    times = [{0: 1.0, 1: 1.01}, {0: 1.01, 1: 1.0}, {0: 1.0, 1: 1.5}]
    together = [(10, 10), (20, 20), (40, 20)]
    assert ascends(together)
    assert corrected_labels(together, times, 0.02) == simplest_labels(times, 0.02) == (0, 0, 0)
    backwards = corrected_labels(together[::-1], times[::-1], 0.0)
    assert backwards == (0, 1, 0), "in the order given"
    assert not ascends([(10, 20), (20, 10), (30, 30)])
    assert corrected_labels([(10, 20), (20, 10), (30, 30)], times, 0.02) == (0, 0, 0)


def test_the_tolerance_is_that_of_a_comparison() -> None:
    assert tolerance_of([(0.99, 1.0, 1.01), (0.9, 1.0, 1.1), (1.96, 2.0, 2.04)]) == pytest.approx(0.04)
    assert tolerance_of([]) == 0


def exact(sizes: Sequence[tuple[float, ...]], times: Sequence[dict[int, float]], half: float = 0.0) -> TrainingTable:
    """Each size measured once, with this half width."""
    return TrainingTable.of(["n", "m"][: len(sizes[0])], sizes, times, 2 * half).merged


def test_points_of_equal_sizes_are_one() -> None:
    noise = [[(0.9, 1.0, 1.1)], [], [(0.8, 1.0, 1.2)], [(0.0, 1.0, 9.0)]]
    times = [{0: 1.0, 1: 2.0}, {0: 5.0}, {0: 30.0, 1: 10.0, 2: 1e9}, {}]
    found = TrainingTable.of(["n"], [(1,), (2,), (1,), (3,)], times, noise).merged
    assert found.features == [(1,), (2,)]
    assert found.times[0] == pytest.approx({0: 2 * 10**0.5, 1: 1.5 * 10**0.5}), "2 and 1.5 times the mean of 1 and 10"
    assert found.times[1] == {0: 5.0}
    assert [row.intervals for row in found.rows] == [(noise[0][0], noise[2][0]), ()], "of a size without times none"
    assert found.tolerance == pytest.approx(0.3)


@pytest.mark.parametrize("method", representatives(LEARNED, "forest", "knn"))
def test_left_out(method: str) -> None:
    """The step between 800 and 1600 is found by all; a size beside it may be wrong and costs 20 %."""
    sizes = [(100 * 2**k,) for k in range(8)]
    times = [{0: 1.0, 1: 1.2} if k < 4 else {0: 1.2, 1: 1.0} for k in range(8)]
    found = leave_one_out(method, exact(sizes, times, 0.005), untrained={"default": [0] * 8, "model": [1] * 8})
    assert found is not None
    assert [row.features for row in found.rows] == sizes
    assert found.right >= 6
    assert all(regret == 0 or regret == pytest.approx(0.2) for regret in found.regrets)
    assert found.text.startswith(f"leave one out: {found.right} of 8 sizes within 1.0 % of the best, mean regret ")
    noisy = replace(found, tolerance=2.2).text  # any choice is right within 220 %
    assert noisy.startswith("leave one out: 8 sizes, not judged: repetitions differ by 220 % (a busy machine?), mean ")
    assert found.text.endswith("; compared: best constant 20.0 %, default 10.0 %, model 10.0 %"), (
        "without a size, the other choice is the best of the others"
    )
    assert leave_one_out(method, exact(sizes[:3], times[:3])) is None


def test_nothing_of_the_size_left_out_is_seen() -> None:
    """How noisy the measurements of a size were decides about the labels of all others, but not when it is left out."""
    sizes = [(100,), (200,), (400,), (800,), (1600,)]
    times = [{0: 1.0, 1: 1.05}, {0: 1.04, 1: 1.0}, {0: 1.0, 1: 1.08}, {0: 1.03, 1: 1.0}, {0: 1.06, 1: 1.0}]
    narrow, wide = [(0.999, 1.0, 1.001)] * 4, [(0.95, 1.0, 1.05)] * 9
    noise = [narrow, narrow, wide, narrow, wide]
    known = TrainingTable.of(["n"], sizes, times, noise)
    tolerances = set()
    for i in range(5):
        found = leave_one_out("knn", known)
        other = [*noise]
        rest = [k for k in range(5) if k != i]
        other[i] = [(0.5, 1.0, 1.5)] * 99
        changed = TrainingTable.of(["n"], sizes, times, other)
        again = leave_one_out("knn", changed)
        assert found is not None
        assert again is not None
        assert again.regrets[i] == found.regrets[i]
        assert known.only(rest).tolerance == changed.only(rest).tolerance
        tolerances.add(round(known.only(rest).tolerance, 6))
    assert tolerances == {0.1, 0.002}, "so what is left out does matter here"


def test_a_choice_that_was_not_measured_counts_as_the_first() -> None:
    sizes = [(100,), (200,), (400,), (800,)]
    times = [{0: 2.0, 1: 1.0}, {0: 2.0, 1: 1.0}, {0: 3.0, 2: 2.0}, {0: 2.0, 1: 1.0}]
    found = leave_one_out("knn", exact(sizes, times))
    assert found is not None
    assert found.regrets[2] == pytest.approx(0.5)
    assert train("tree", exact(sizes, times)).choose([100]) == 1


def test_the_best_constant_is_among_what_was_measured_at_most_sizes() -> None:
    assert best_constant([{0: 1.0, 1: 1.1}, {0: 2.0, 1: 1.0}, {0: 1.0, 1: 1.0, 2: 0.1}]) == 1


@pytest.mark.parametrize("method", representatives(LEARNED, "tree", "cost"))
def test_unsure_where_the_default_is_better(method: str) -> None:
    """Below 1000 the sizes say which of two is best; above, they are best by turns that nothing foretells, and the
    default loses less than a wrong guess."""
    sizes = [(float(n),) for n in (*range(100, 900, 40), *range(10_000, 50_000, 1000))]
    turns = [1, 2, 2, 1, 2, 1, 1, 2, 1, 2, 2, 2, 1, 1, 2, 1, 1, 2, 1, 2] * 2
    low = [{0: 3.0, 1: 1.0, 2: 9.0} if n < 500 else {0: 3.0, 1: 9.0, 2: 1.0} for (n,) in sizes[:20]]
    high = [{0: 1.2, 1: 1.0, 2: 9.0} if turn == 1 else {0: 1.2, 1: 9.0, 2: 1.0} for turn in turns]
    selector = train(method, exact(sizes, low + high), default=0)
    always = train(method, exact(sizes, low + high))
    assert always.least_sure == 0
    assert from_json(json.loads(json.dumps(selector.to_json()))) == selector
    unseen = [((n + 500,), at) for (n,), at in zip(sizes[20:], [high[-1], *high[:-1]], strict=True)]

    def worth(chooses: Selector) -> float:
        asked = [(chooses.ask(x), at) for x, at in unseen]
        return sum(1 / at[a.label if a.sure >= chooses.least_sure else 0] for a, at in asked) / len(asked)

    assert 0.75 < worth(selector) <= 0.84
    assert worth(selector) >= worth(always)
    assert selector.least_sure > 0 or selector.choose((20_500.0,)) == 0, "the default may be what is chosen"
    right = sum(1 / at[selector.choose(size)] for size, at in zip(sizes[:20], low, strict=True)) / 20
    assert right > 0.9


def test_sure_of_everything_where_the_default_is_never_better() -> None:
    sizes = [(100.0 * 2**k,) for k in range(12)]
    times = [{0: 3.0, 1: 1.0, 2: 2.0} if k < 6 else {0: 3.0, 1: 2.0, 2: 1.0} for k in range(12)]
    assert least_sure("knn", exact(sizes, times), 0) == 0
    assert least_sure("knn", exact(sizes[:3], times[:3]), 0) == 0, "too few to leave any out"
    # A default that was not measured is worth nothing, and noise alone makes no threshold.
    assert least_sure("knn", exact(sizes, [{1: at[1], 2: at[2]} for at in times]), 0) == 0


def test_many_sizes_are_left_out_in_folds() -> None:
    sizes = [(100.0 * 1.3**k,) for k in range(40)]
    times = [{0: 1.0, 1: 1.2} if k < 20 else {0: 1.2, 1: 1.0} for k in range(40)]
    found = leave_one_out("tree", exact(sizes, times, 0.005))
    assert found is not None
    assert found.text.startswith(f"10 folds left out: {found.right} of 40 sizes within ")
    assert found.right >= 38


def test_the_noise_of_the_best_is_that_of_the_two_fastest() -> None:
    """What is clearly slower is measured a few times only, and says nothing about how exact the best are."""
    best, second, slow = (0.99, 1.0, 1.01), (1.96, 2.0, 2.04), (2.0, 10.0, 30.0)
    assert noise_of_best([slow, second, best]) == pytest.approx(0.03)
    assert noise_of_best([best]) == 0.0


@pytest.mark.parametrize("method", representatives(LEARNED, "forest", "svm"))
def test_what_may_be_chosen_is_best_somewhere_or_on_average_or_the_default(method: str) -> None:
    """Every answer has to be compiled."""
    sizes = [(100.0 + 7 * k, float(k * 5 % 11)) for k in range(30)]
    times = [dict.fromkeys(range(9), 2.0) | {3: 1.1, 5 + k % 2: 1.0, 6 - k % 2: 1.3} for k in range(30)]
    selector = train(method, exact(sizes, times), default=0)
    assert selector.answers <= {0, 3, 5, 6} or selector.predicts, "times are known of all"
    assert method in ("svm", "tree") or 3 in selector.answers


def test_where_the_choice_failed_is_counted_apart() -> None:
    """Choice 1 is the fastest, but fails at every third size, at which choice 0 alone works."""
    sizes = [(float(2**k),) for k in range(12)]
    times = [{0: 2.0} if k % 3 == 0 else {0: 2.0, 1: 1.0} for k in range(12)]
    failed = [{1} if k % 3 == 0 else set() for k in range(12)]
    table = TrainingTable.of(["n"], sizes, times, 0.0, failed)
    out = leave_one_out("tree", table, 0, {"always 1": [1] * 12})
    assert out is not None
    assert sum(map(math.isnan, dict(out.beside)["always 1"])) == 4
    assert "always 1 0.0 % (failed at 4 more)" in out.text
    assert not any(word in out.text for word in ("inf", "nan"))
    nowhere = replace(out, regrets=(math.nan,) * 12)
    assert "0 of 12 sizes within" in nowhere.text
    assert "mean regret - (failed at 12)" in nowhere.text


# ---- which features a selector needs -----------------------------------------------------------


def copied(seed: int = 0) -> TrainingTable:
    """Answer 0 is better where x is small; `copy` says the same as x, `noise` says nothing."""
    draw = random.Random(seed)
    xs = [draw.uniform(0, 10) for _ in range(20)]
    rows = [(x, 2 * x + 1, draw.uniform(0, 10)) for x in xs]
    return TrainingTable.of(("x", "copy", "noise"), rows, [{0: 1.0 if x < 5 else 4.0, 1: 2.0, 2: math.inf} for x in xs])


def test_the_cheaper_one_of_two_that_say_the_same_and_no_noise() -> None:
    found = select_features("knn", copied(), {"x": 1.0, "copy": 0.1, "noise": 0.0})
    assert found.names == ("copy",)
    assert found.loss < 1.15
    assert select_features("knn", copied(), {"x": 0.1, "copy": 1.0}).names == ("x",)


def test_all_where_too_few_can_be_left_out() -> None:
    assert select_features("knn", copied().only(range(4)), {}).names == ("x", "copy", "noise")


def test_means_are_expected_where_times_are_added() -> None:
    """Of a choice that takes the same or, at random, three times as long, regressors predict less than the mean."""
    draw = random.Random(5)
    features = [(2.0 ** draw.uniform(4, 12),) for _ in range(60)]
    times = [{0: x * draw.choice((1e-9, 3e-9)), 1: 1.5e-9 * x, 2: 2e-9 * x} for (x,) in features]
    table = TrainingTable.of(("n",), features, times)
    selector = train("cost", table)
    mean = expecting(selector, table, {0: "gpu", 1: "cpu", 2: "cpu"})
    for x in (30.0, 300.0, 3000.0):
        before, after = selector.seconds((x,)), mean.seconds((x,))
        assert after[1] / before[1] == pytest.approx(after[2] / before[2]), "one factor for the choices of a device"
        assert after[1] / before[1] == pytest.approx(1, abs=0.03)
        assert 1.03 < after[0] / before[0] < 1.6
    few = TrainingTable.of(("n",), features[:4], times[:4])
    assert expecting(selector, few, {0: "gpu", 1: "cpu", 2: "cpu"}) == selector
