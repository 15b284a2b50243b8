"""Judging choices: figures computed by hand, and the bounds between them."""

from __future__ import annotations

import math
from dataclasses import asdict, astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.study.judge import Worst, importance, judge, least_calls, pays_after, worst_cases
from tests.tiers import examples

INF = math.inf
NAMES = ["a", "b", "c", "d"]
TIMES = [{0: 1.0, 1: 2.0, 2: 4.0}, {0: 2.0, 1: 1.0, 2: 1.01}, {0: 4.0, 1: INF, 2: 1.0}, {0: 1.0, 1: 1.005, 2: INF}]


def test_figures_by_hand() -> None:
    found = judge(NAMES, TIMES, [0, 2, 0, 1], tolerance=0.02)
    assert found.all.inputs == 4
    assert found.all.percent == pytest.approx((1 + 1 / 1.01 + 1 / 4 + 1 / 1.005) / 4)
    assert found.all.accuracy == 3 / 4, "a tie within the noise is no error"
    assert found.all.balanced == pytest.approx((1 + 1 + 0) / 3), "0 is best twice, 1 and 2 once"
    assert found.all.regret == pytest.approx((0 + 0.01 + 3 + 0.005) / 4)
    assert found.all.geometric == pytest.approx((1.01 * 4 * 1.005) ** (1 / 4))
    assert found.all.lost == pytest.approx(4), "over the wrong one"
    assert found.all.poor == 1
    assert [verdict.name for verdict in found.verdicts] == ["c", "b", "d", "a"]
    assert [verdict.name for verdict in found.wrong] == ["c"]


def test_worst_cases() -> None:
    assert worst_cases(TIMES) == {0: Worst(0, 4.0), 1: Worst(1, 2.0), 2: Worst(1, 4.0)}
    assert worst_cases([{0: 3.0, 1: 1.5}, {0: 2.0, 1: 2.5}, {0: INF}, {}]) == {0: Worst(0, 2.0), 1: Worst(0, 1.25)}, (
        "nothing is known of two"
    )
    assert worst_cases([{0: 1.0, 1: 2.0}, {0: 1.0}]) == {0: Worst(0, 1.0), 1: Worst(1, 2.0)}, "1 failed at the second"
    assert worst_cases([]) == {}


def test_where_a_constraint_fails_the_default_runs() -> None:
    found = judge(NAMES, TIMES, [1, 1, 1, 2], tolerance=0.02)
    assert found.refused == 2
    assert {verdict.name: verdict.taken for verdict in found.verdicts} == {"a": 1, "b": 1, "c": 0, "d": 0}
    assert found.all.percent == pytest.approx((1 / 2 + 1 + 1 / 4 + 1) / 4)
    assert found.all.default == pytest.approx((1 + 1 / 2 + 1 / 4 + 1) / 4)
    always = [(1 + 0.5 + 0.25 + 1) / 4, (0.5 + 1 + 0.25 + 1 / 1.005) / 4, (0.25 + 1 / 1.01 + 1 + 1) / 4]
    assert dict(found.all.singles) == pytest.approx(dict(enumerate(always)))
    assert found.all.single[0] == 2
    assert found.all.random == pytest.approx(sum(always) / 3)


def test_failures_are_counted_apart_and_an_unsolved_input_judges_nothing() -> None:
    times = [{0: 2.0, 2: 1.0}, {0: INF, 1: INF}, {}, {0: 1.0, 1: 2.0}]
    why = [{1: "largest difference 0.5, allowed 0.01"}, {}, {}, {}]
    found = judge(["solved", "constrained", "crashed", "right"], times, [1, 0, 0, 1], failures=why)
    assert found.unsolved == ("constrained", "crashed")
    assert (found.all.inputs, found.all.failed, found.all.percent, found.all.regret) == (1, 1, 0.5, 1)
    lines = found.lines(lambda answer: "xyz"[answer])
    assert "the choice failed at 1 input; the figures are over the other 1 input" in lines
    assert "  solved: y failed: largest difference 0.5, allowed 0.01; the best is z" in lines
    assert "no variant works at 2 inputs: constrained, crashed" in lines
    alone = judge(["solved"], times[:1], [1]).lines()
    assert "the choice failed at 1 input; no figures" in alone
    assert not any("inf" in line or "nan" in line for line in (*lines, *alone))


def test_where_a_constraint_fails_the_next_in_the_order_runs() -> None:
    times = [{0: 4.0, 1: INF, 2: 1.0, 3: 2.0}, {0: 1.0, 1: INF, 2: INF}]
    found = judge(["a", "b"], times, [(1, 3, 2, 0), (2, 1)])
    assert [(verdict.name, verdict.chosen, verdict.taken) for verdict in found.verdicts] == [("a", 1, 3), ("b", 2, 0)]
    assert (found.refused, found.all.percent) == (2, pytest.approx((1 / 2 + 1) / 2))


def test_decisive_inputs_bands_and_reasons() -> None:
    found = judge(
        NAMES, TIMES, [0, 2, 0, 1], tolerance=[0.02, 0.02, 0.02, 0.001], sizes=[10, 1e5, 5e5, 1e7],
        reasons=["chosen", "unsure", "unsure", "chosen"],
    )  # fmt: skip
    assert found.decisive.inputs == 3, "all but b, by the noise of each"
    assert [(label, f.inputs) for label, f in found.bands] == [
        ("under 100000", 1), ("100000 to 1e+06", 2), ("1e+06 or more", 1),
    ]  # fmt: skip
    assert found.bands[1][1].percent == pytest.approx((1 / 1.01 + 1 / 4) / 2)
    assert (found.share("unsure"), found.share("outside")) == (0.5, 0)
    lines = found.lines(lambda answer: "xyz"[answer], worst=1)
    assert "2 wrong choices: 2.005 times the best on average" in lines
    assert "  c: x 4.00 times z" in lines
    assert not any(line.startswith("  d") for line in lines)


def test_nothing_to_judge() -> None:
    found = judge([], [], [])
    assert found.all.inputs == 0
    assert math.isnan(found.all.percent)
    assert found.lines()
    with pytest.raises(ValueError, match="zip"):
        judge(["a"], [{0: 1.0}], [])


def test_calls_that_pay_for_features() -> None:
    assert pays_after(100, 20, 10) == 10
    assert pays_after(1, 20, 10) == 1
    assert pays_after(1, 10, 10) == INF


def test_a_choice_pays_on_average_from_so_many_calls_on() -> None:
    """At one of two inputs a call gains half, once converted: (L - 10) / 2 - 20 - (10 + 10) > 0 from 91 on."""
    default, faster, free = (0.0, 0.0), (0.5, 20.0), (0.25, 0.0)
    assert least_calls([(10, [default, faster]), (10, [default])]) == 91
    assert least_calls([(10, [default]), (10, [default, (-0.5, 0.0)])]) == INF
    assert least_calls([(0, [default])]) == INF  # nothing to gain: not even what costs nothing begins
    assert least_calls([(3, [default, faster, free])]) == 16  # (L - 3) / 4 > 3; the conversion pays later
    assert least_calls([]) == INF


SECONDS = st.one_of(st.floats(1e-6, 1e3), st.just(INF))
TABLE = st.lists(
    st.tuples(st.floats(1e-6, 1e3), SECONDS, SECONDS).map(lambda row: dict(enumerate(row))), min_size=1, max_size=8
)


@settings(max_examples=examples(60), deadline=None)
@given(TABLE, st.data())
def test_bounds(times: list[dict[int, float]], data: st.DataObject) -> None:
    names = [str(i) for i in range(len(times))]
    best = [min(at, key=lambda a: at[a]) for at in times]
    assert judge(names, times, best).all.percent == 1
    chosen = data.draw(st.lists(st.integers(0, 2), min_size=len(times), max_size=len(times)))
    figures = judge(names, times, chosen).all
    assert 0 < figures.percent <= 1
    assert figures.single[1] >= max(figures.default, figures.random) - 1e-12
    for answer, share in figures.singles:
        assert judge(names, times, [answer] * len(times)).all.percent == pytest.approx(share)


def test_the_feature_that_the_choice_depends_on_matters() -> None:
    vectors = [(float(k), float(k % 3)) for k in range(30)]
    times = [{0: 1.0, 1: 2.0} if k < 15 else {0: 2.0, 1: 1.0} for k in range(30)]
    lost = importance(lambda x: int(x[0] >= 15), vectors, times)
    assert 0.15 < lost[0] < 0.35, "half of the inputs get the other answer, which loses a half"
    assert lost[1] == 0
    assert importance(lambda x: 0, vectors, times) == (0, 0)
    assert importance(lambda x: 0, [], []) == ()


def test_penalty_ideal_speed_and_speed_up_over_the_best_single_answer() -> None:
    """As MLCD defines them: PPP is the mean of relative losses; PoIS compares sums, so that long inputs count."""
    times = [{0: 1.0, 1: 2.0}, {0: 40.0, 1: 10.0}, {0: 3.0, 1: 2.0}]
    all_ = judge(["a", "b", "c"], times, [0, 1, 0], 0).all
    assert all_.regret == pytest.approx((0 + 0 + 0.5) / 3)
    assert all_.ideal == pytest.approx((1 + 10 + 2) / (1 + 10 + 3))
    assert all_.faster == pytest.approx((2 + 1 + 2 / 3) / 3), "over always 1, against which it is least"
    assert all_.faster_sum == pytest.approx(14 / 14)
    failed = judge(["a", "b"], [{0: 1.0}, {0: 1.0, 1: 2.0}], [1, 1], 0).all
    assert (failed.ideal, failed.faster_sum) == (0.5, 0.5), "over the input at which the choice works"
    assert math.isnan(judge([], [], [], 0).all.ideal)
    text = "\n".join(judge(["a", "b", "c"], times, [0, 1, 0], 0).lines())
    assert "PPP 16.67 %, PoIS 92.86 %, accuracy 66.67 %" in text
    assert "speed-up over the best single variant: 1.222 (mean of ratios), 1.000 (ratio of sums)" in text


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[dict[int, float]], list[int | list[int]]]:
    """Any pattern of cells that are timed, not allowed, or failed, and any choice."""
    cell = st.one_of(st.floats(1e-9, 1e6), st.just(INF), st.none())
    rows = draw(st.lists(st.lists(cell, min_size=3, max_size=3), max_size=8))
    times = [{n: t for n, t in enumerate(row) if t is not None} for row in rows]
    asked = st.one_of(st.integers(0, 2), st.permutations([0, 1, 2]))
    return times, draw(st.lists(asked, min_size=len(rows), max_size=len(rows)))


@settings(max_examples=examples(200), deadline=None)
@given(tables(), st.integers(0, 2))
def test_any_pattern_of_failures_gives_finite_figures_and_counts_that_add_up(
    drawn: tuple[list[dict[int, float]], list[int | list[int]]], default: int
) -> None:
    times, chosen = drawn
    names = [str(n) for n in range(len(times))]
    found = judge(names, times, chosen, default, sizes=[10.0**n for n in range(len(times))])
    parts = [figures for _, figures in found.bands]
    for f in (found.all, found.decisive, *parts):
        values = [v for v in astuple(f) if isinstance(v, float)] + [share for _, share in f.singles]
        assert not any(map(math.isinf, values))
        if f.inputs:
            most = [v for n, v in asdict(f).items() if isinstance(v, float) and n not in ("faster", "faster_sum")]
            assert all(map(math.isfinite, most))
    assert found.all.inputs + found.all.failed + len(found.unsolved) == len(times)
    assert sum(f.inputs + f.failed for f in parts) == len(found.verdicts)
    assert len(found.failed) == found.all.failed
    assert len(found.wrong) == sum(not verdict.right and not verdict.failed for verdict in found.verdicts)
    text = " ".join(found.lines())
    assert "inf" not in text
    assert "nan" not in text
