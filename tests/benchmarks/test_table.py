"""The tables of launch configurations: baselines, chance and constants, on a record of two kernels at 15 sizes."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks.tune import table
from benchmarks.tune.baselines import best_constant, best_of_random, error_percent, published

RECORD = Path(__file__).parents[2] / "benchmarks/results/2026-11-21-h200-tune/near.csv.xz"
TIMES = {(("bx", b),): t for b, t in ((32, 3.0), (64, 1.0), (128, 2.0), (256, 5.0), (512, 2.0))}
DEFAULT = (("bx", 128),)


@pytest.mark.parametrize("default", [None, DEFAULT])
@pytest.mark.parametrize("budget", [1, 2, 4, 5, 9])
def test_chance_is_that_of_all_draws(budget: int, default: tuple[tuple[str, int]] | None) -> None:
    drawn = [s for s in TIMES if s != default]
    draws = list(combinations(drawn, min(budget - (default is not None), len(drawn))))
    expected = sum(min(TIMES[s] for s in (*draw, *([default] if default else []))) for draw in draws) / len(draws)
    odds = best_of_random(TIMES, budget, default)
    assert math.isclose(sum(odds.values()), 1)
    assert min(odds.values()) >= 0
    assert sum(p * TIMES[s] for s, p in odds.items()) == pytest.approx(expected)


def test_the_best_constant_has_the_least_mean_ratio() -> None:
    a, b, c = ((("bx", v),) for v in (1, 2, 3))
    assert best_constant([{a: 1.0, b: 1.2, c: 1.0}, {a: 2.0, b: 1.2, c: 9.0}, {a: 1.0, b: 1.0}]) == b


def test_errors_as_published() -> None:
    """KLARAPTOR's own rows: 7.54 over all is 13.97 on two-dimensional default blocks and 3.26 on the others."""
    found = published()
    assert (len(found.wide), len(found.narrow)) == (20, 30)
    assert found.row("x") == "| x | 13.97 / 4.66 | 3.26 / 0.10 | 7.54 / 0.17 |"
    assert error_percent(TIMES, 2.0) == 25


@pytest.fixture(scope="module")
def kernels() -> list[table.Kernel]:
    return table.kernels(RECORD)


def cells(line: str) -> list[str]:
    return [word.strip() for word in line.strip("|").split("|")]


def test_summary_has_baselines_beside_the_model(kernels: list[table.Kernel]) -> None:
    rows = {cells(line)[0]: cells(line)[1:] for line in table.summary(kernels)[2:]}
    assert rows["default block"][:2] == ["1.4697", "2.06"]
    assert rows["the model, nothing measured"][0] == "1.0463"
    (constant,) = [name for name in rows if name.startswith("one block for all, the best in hindsight")]
    assert constant.endswith("(always 16 x 4; always 32)")
    assert rows[constant][3] == "1.0000", "better than the model on one-dimensional blocks"
    chance = rows["as many random ones and the default, at each size"]
    top = rows["model's top 5 measured at each size"]
    assert float(chance[0]) > float(top[0])
    assert chance[1] == "-", "a random choice has no worst case that says anything"
    assert rows["the model, nothing measured"][2] == "-", "nothing is left without SYRK"


def test_chance_has_the_budget_of_the_model(kernels: list[table.Kernel]) -> None:
    kernel = next(k for k in kernels if k.two)
    point = next(iter(kernel.times))
    few = set(table.few(kernel, point, 5))
    drawn = table.chance(kernel, point)
    slowest = sorted(kernel.times[point].values())[-len(few) + 1 :]
    assert all(drawn[s] == 0 for s, t in kernel.times[point].items() if t in slowest[1:]), "so many are drawn"
    assert drawn[kernel.default] < 1


def test_starting_sizes_and_errors(kernels: list[table.Kernel]) -> None:
    rows = {cells(line)[0]: cells(line)[1:] for line in table.by_starting_size(kernels)[2:]}
    assert rows["the middle (next to 1024)"][0] == "1.0322"
    assert float(rows["the smallest square"][0]) > float(rows["the middle (next to 1024)"][0])
    lines = table.errors(kernels)
    assert re.fullmatch(r"\| the model, nothing measured \| 0\.47 / 0\.00 \| 0\.00 / 0\.00 \| 0\.22 / .*\|", lines[4])
    assert lines[-1].startswith("| KLARAPTOR, as published")
    assert table.share_of_unlike(kernels).startswith("Of the model's gain over the default on 2-D blocks")
    assert "have 100%, with 7 of 7 pairs" in table.share_of_unlike(kernels)
