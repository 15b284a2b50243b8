"""Quality against labelled inputs: replays of active learning on full tables, and the order of a file."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dagc.base.errors import UsageError
from dagc.study.cases import Sampling
from dagc.study.replay import HeldOutSplit, Quality, QualityCurve, Replay, in_order, quality, replay, replayed
from dagc.study.train import TrainingTable


def table(count: int, seed: int = 7) -> TrainingTable:
    """Two answers; the second is the faster one where the sum of two features is above a number."""
    draw = random.Random(seed)
    vectors = [(draw.random(), draw.random()) for _ in range(count)]
    times = [{0: 1 + (x + y > 0.9), 1: 1 + (x + y <= 0.9)} for x, y in vectors]
    return TrainingTable.of(("x", "y"), vectors, times, 0.02)


def step(samples: int, penalty: float) -> Quality:
    return Quality(samples, penalty, 1.0, 1.0, 1.0)


def test_all_strategies_begin_with_the_same_inputs() -> None:
    done = replayed(table(60), "tree", 1, Sampling(20, 20), 40)
    curves = {curve.strategy: curve for curve in done.curves}
    assert done.pool == 54
    assert len({curve.steps[0] for curve in curves.values()}) == 1
    assert [s.samples for s in curves["random"].steps] == [20, 40]
    assert curves["active"].looked > 0
    assert curves["random"].looked == 0
    text = "\n".join(done.lines((0.5,)))
    assert "| 20 (2.7) |" in text
    assert "| 50.00 % (" in text


@pytest.mark.thorough
def test_fewer_samples_reach_the_same_penalty() -> None:
    split = HeldOutSplit.of(400, 0, 0.4)
    found = {s: replay(table(400), split, Sampling(20, 20), s, "tree", 0, 80) for s in ("active", "random")}
    active, at_random = found["active"].steps, found["random"].steps
    assert active[0] == at_random[0], "from the same inputs on"
    assert active[-1].penalty < 0.7 * at_random[-1].penalty
    assert active[-1].ideal > at_random[-1].ideal


def test_a_curve_stays_where_its_strategy_stopped_and_counts_from_where_it_stays_low() -> None:
    first = Replay((step(10, 0.5), step(20, 0.1)), 5)
    second = Replay((step(10, 0.3), step(20, 0.5), step(30, 0.1)), 15)
    curve = QualityCurve.of("active", (first, second))
    assert [(s.samples, round(s.penalty, 6)) for s in curve.steps] == [(10, 0.4), (20, 0.3), (30, 0.1)]
    assert (curve.reaches(0.35), curve.reaches(0.1), curve.reaches(0.05)) == (20, 30, None)
    assert curve.at(25).samples == 20
    bumpy = QualityCurve("random", (step(10, 0.1), step(20, 0.4), step(30, 0.1)), 30, 0)
    assert bumpy.reaches(0.2) == 30, "it must stay there"


def test_a_table_of_a_few_inputs_is_refused() -> None:
    with pytest.raises(UsageError, match="9 inputs to replay on, 10 are needed"):
        replayed(table(9), "tree", 1, Sampling(20, 5), 30)


def test_as_measured_beside_a_random_order() -> None:
    """The first inputs of this file are all on one side of the border, so that a random order is better at first."""
    rows = table(100).rows
    apart = sorted(rows, key=lambda row: row.features[0] + row.features[1])
    tested = tuple(replace(row, test=True) for row in table(60, 1).rows)
    curves = in_order(TrainingTable(("x", "y"), (*apart, *tested)), "tree", 5)
    measured, mixed = curves
    assert [s.samples for s in measured.steps] == [3, 27, 52, 76, 100]
    assert measured.steps[1].accuracy < mixed.steps[1].accuracy
    assert measured.steps[-1] == mixed.steps[-1], "the same inputs in the end"
    assert (
        quality(curves, 100)[0]
        == "| samples (times fewer) | "
        + " | ".join(f"{name}: PPP, PoIS, accuracy" for name in ("as measured", "at random"))
        + " |"
    )
    assert in_order(table(3), "tree", 5) == ()
