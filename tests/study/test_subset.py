"""Which features a selector needs."""

from __future__ import annotations

import math
import random

from dagc.study.train import select_features


def table(seed: int = 0) -> tuple[list[tuple[float, ...]], list[dict[int, float]]]:
    """Answer 0 is better where x is small; `copy` says the same as x, `noise` says nothing."""
    draw = random.Random(seed)
    xs = [draw.uniform(0, 10) for _ in range(20)]
    rows = [(x, 2 * x + 1, draw.uniform(0, 10)) for x in xs]
    return rows, [{0: 1.0 if x < 5 else 4.0, 1: 2.0, 2: math.inf} for x in xs]


def test_the_cheaper_one_of_two_that_say_the_same_and_no_noise() -> None:
    rows, times = table()
    names = ("x", "copy", "noise")
    found = select_features("knn", names, rows, times, {"x": 1.0, "copy": 0.1, "noise": 0.0})
    assert found.names == ("copy",)
    assert found.loss < 1.15
    assert select_features("knn", names, rows, times, {"x": 0.1, "copy": 1.0}).names == ("x",)


def test_all_where_too_few_can_be_left_out() -> None:
    rows, times = table()
    assert select_features("knn", ("x", "copy", "noise"), rows[:4], times[:4], {}).names == ("x", "copy", "noise")
