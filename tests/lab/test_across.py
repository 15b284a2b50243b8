"""The search over sizes: what is measured, when it ends, what is chosen; on times that are known beforehand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.sample import Sample
from dagc.choice.residual import UNTRAINED, size_coordinates
from dagc.choice.surface import Rows, TimeSurface
from dagc.choice.types import Case, Cell
from dagc.ir.choice import Choice
from dagc.lab.across import CONFIRMED, RIVALS, AcrossSizes, OpTimes
from dagc.lab.engine import UNKEPT, SearchOptions, explore
from tests.tiers import examples

POINTS = tuple(Case.of({"N": n}) for n in (256, 512, 1024))
BLOCKS = [(32, 8), *((x, y) for x in (8, 16, 32, 64) for y in (1, 4, 8, 16) if (x, y) != (32, 8))]
SETTINGS: tuple[Choice, ...] = tuple(Choice.at("k", [("bx", x), ("by", y)]) for x, y in BLOCKS)
Time = Callable[[Case, Choice], float]


def op_times(
    op: str = "k", prior: Time | None = None, cases: tuple[Case, ...] = POINTS, deviation: float = 0.3
) -> OpTimes:
    cells = [(p, s) for p in cases for s in SETTINGS]
    mean = np.array([math.log(prior(p, s)) if prior else 0.0 for p, s in cells])
    places = np.array([[math.log2(v) for v in s.values()] + [0.0] for _, s in cells])
    size_of = np.repeat(np.arange(len(cases)), len(SETTINGS))
    rows = Rows(
        mean - mean.mean(), np.full(len(cells), deviation), np.zeros((len(cells), 0)), places,
        size_coordinates(cases), size_of,
    )  # fmt: skip
    found = TimeSurface(UNTRAINED.kernel, rows)
    return OpTimes(op, SETTINGS[0], cases, tuple(cells), found)


def run(search: AcrossSizes, time: Time) -> list[tuple[str, Case, Choice]]:
    out = []
    while (cell := search.propose()) is not None:
        out.append((cell.site, cell.case, cell.choice))
        search.observe(cell, Sample.of((time(cell.case, cell.choice),) * 5))
    return out


def drawn(seed: int) -> Time:
    """A smooth preference for some block, the same at all sizes, and an error of each cell."""
    draw = random.Random(seed)
    x, y = draw.uniform(3, 6), draw.uniform(0, 4)
    error = {(p, s): draw.gauss(0, 0.1) for p in POINTS for s in SETTINGS}

    def time(case: Case, choice: Choice) -> float:
        bx, by = choice.values()
        off = 0.1 * (math.log2(bx) - x) ** 2 + 0.05 * (math.log2(by) - y) ** 2
        return 1e-6 * case.sizes["N"] * math.exp(off + error[case, choice])

    return time


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("budget", [6, 9, 20])
def test_it_starts_with_the_default_and_never_ends_worse(seed: int, budget: int) -> None:
    search, time = AcrossSizes([op_times()], budget), drawn(seed)
    measured = run(search, time)
    assert len(measured) == len(set(measured)) <= budget
    for case in POINTS:
        here = [s for _, p, s in measured if p == case]
        assert here[0] == SETTINGS[0]
        chosen = search.choice("k", case)
        assert time(case, chosen) == min(time(case, s) for s in here), "the fastest that was measured"
    assert len(measured) == budget or search.ended == "no further gain is expected"
    assert len(measured) >= 6


@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 1000), wrong=st.sampled_from(["inverted", "random", "narrow"]),
    noise=st.sampled_from([0.0, 0.02]), deviation=st.sampled_from([0.001, 0.3]), budget=st.integers(4, 30),
    until=st.sampled_from([None, 0.05]),
)  # fmt: skip
def test_a_wrong_model_chooses_nothing_slower_than_what_was_measured(
    seed: int, wrong: str, noise: float, deviation: float, budget: int, until: float | None
) -> None:
    """However sure it is: where anything was measured, the fastest of that is chosen, and the default is among it."""
    time, draw = drawn(seed), random.Random(seed)
    priors: dict[str, Time] = {
        "inverted": lambda p, s: 1 / time(p, s),
        "random": lambda p, s: math.exp(draw.gauss(0, 1)),
        "narrow": lambda p, s: time(p, s) * (100 if s == SETTINGS[5] else 1),
    }
    search, seen = AcrossSizes([op_times(prior=priors[wrong], deviation=deviation)], budget, until), dict[Any, float]()

    def measured(case: Case, choice: Choice) -> float:
        seen[case, choice] = time(case, choice) * math.exp(draw.gauss(0, noise))
        return seen[case, choice]

    run(search, measured)
    for case in {p for p, _ in seen}:
        assert (case, SETTINGS[0]) in seen
        assert seen[case, search.choice("k", case)] == min(t for (p, _), t in seen.items() if p == case)


def with_form(gain: float, deviation: float) -> OpTimes:
    """Four blocks, each as written and with a form whose predicted gain is `gain` (a logarithm)."""
    named = [Choice.at("k", [("bx", bx), ("form.wide", v)]) for v in (1, 4) for bx in (32, 64, 128, 256)]
    cells = [(POINTS[0], s) for s in named]
    mean = np.array([-gain * bool(s.formed) - 0.05 * (s["k.bx"] == 128) for s in named])
    places = np.array([[math.log2(s["k.bx"]), 0, 0, math.log2(1 + s["k.form.wide"])] for s in named])  # type: ignore[arg-type, operator]
    rows = Rows(
        mean - mean.mean(), np.full(len(cells), deviation), np.zeros((len(cells), 0)), places,
        size_coordinates(POINTS[:1]), np.zeros(len(cells), int),
    )  # fmt: skip
    return OpTimes("k", named[0], POINTS[:1], tuple(cells), TimeSurface(UNTRAINED.kernel, rows))


@pytest.mark.parametrize(
    ("gain", "deviation", "formed"), [(0.5, 0.1, True), (0.02, 0.3, False), (0.5, 1.5, False), (0.02, 0.005, True)]
)
def test_a_form_is_chosen_unmeasured_where_it_is_unlikely_to_be_slower(
    gain: float, deviation: float, formed: bool
) -> None:
    """However large its gain, if that is as uncertain."""
    chosen = AcrossSizes([with_form(gain, deviation)]).choice("k", POINTS[0])
    assert bool(chosen.formed) == formed


@pytest.mark.parametrize(("gain", "formed"), [(1.002, False), (1.1, True)])
def test_a_form_that_is_faster_by_noise_alone_is_not_chosen(gain: float, formed: bool) -> None:
    search = AcrossSizes([with_form(0.1, 0.3)], 8)
    while (cell := search.propose()) is not None:
        search.learn(cell, 1e-6 / (gain if cell.choice.formed else 1), 0.01)
    assert bool(search.choice("k", POINTS[0]).formed) == formed


@pytest.mark.parametrize("budget", [3, 4, 6])
def test_a_form_is_compared_with_the_best_block_of_the_kernel_as_written(budget: int) -> None:
    """Not only with the default: forms take as long as it here, and one block of the kernel as written half of it."""
    search = AcrossSizes([with_form(0.1, 0.3)], budget)
    run(search, lambda case, s: 1e-6 * (1 if s.formed else 0.5 if s["k.bx"] == 128 else 1.05))
    assert not search.choice("k", POINTS[0]).formed


class Lying:
    """A surface that is sure that the slowest are the fastest, whatever is measured; or, if it hopes, that what was not
    measured takes half as long."""

    def __init__(self, times: OpTimes, true: Time, hopes: bool) -> None:
        logs = np.array([math.log(true(*cell)) for cell in times.rows])
        self.measured: dict[int, int] = {}
        self.logs, self.hopes, self.size_of = logs, hopes, np.array([times.cases.index(p) for p, _ in times.rows])

    @property
    def mean(self) -> Any:
        known = np.isin(np.arange(len(self.logs)), list(self.measured))
        return np.where(known, self.logs, self.logs - 0.7) if self.hopes else -self.logs

    def observe(self, row: int, log_time: float, noise: float) -> None:
        self.measured[row] = 1

    def promising(self, rows: Any, number: int) -> Any:
        return rows[:number]

    def gains(self, rows: Any) -> Any:
        return 1 - self.mean[rows][None, :] / 100

    def against(self, row: int, other: int) -> tuple[float, float]:
        return float(self.mean[row] - self.mean[other]), 0.001

    def doubt(self, chosen: int, rows: Any, share: float) -> float:
        return 1.0


class Measured:
    """Times of cells, each a series of launches; every second series of a setting was disturbed, and took longer."""

    def __init__(self, time: Time, seed: int, disturbed: float) -> None:
        self.time, self.random, self.disturbed = time, random.Random(seed), disturbed
        self.series: dict[Cell, list[float]] = {}

    def measure(self, candidate: Cell) -> Sample:
        slow = 1 + 0.04 * (self.random.random() < self.disturbed)
        seconds = self.time(candidate.case, candidate.choice) * slow * self.random.gauss(1, 0.002)
        self.series.setdefault(candidate, []).append(seconds)
        return Sample.of((seconds,) * 5)


@pytest.mark.parametrize("hopes", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_surface_that_measurements_contradict_is_given_up(seed: int, hopes: bool) -> None:
    """The search goes on without it, and what may be the fastest of a size is timed again."""
    time, times = drawn(seed), op_times()
    times.surface = Lying(times, time, hopes)  # type: ignore[assignment]
    search, machine = AcrossSizes([times], budget=len(times.rows)), Measured(time, seed, 0.3)
    options = SearchOptions(confirm=CONFIRMED, repeats=1, rivals=RIVALS)
    done = explore(None, search, machine, UNKEPT, options, among=lambda cell: cell[:2])
    assert ("slower than predicted" if hopes else "its choice takes") in done.given_up
    assert not search.guided
    for case in POINTS:
        here = {cell.choice: series for cell, series in machine.series.items() if cell.case == case}
        assert set(here) == set(SETTINGS), "everything, though the surface expects nothing of it"
        ranked = sorted(here, key=lambda s: here[s][0])
        rivals = [s for s in ranked if here[s][0] <= RIVALS * here[ranked[0]][0]]
        assert here[search.choice("k", case)][0] == here[ranked[0]][0], "the fastest, before it was timed again"
        assert len(rivals) == 1 or all(len(here[s]) == 2 for s in rivals[:CONFIRMED])


def test_a_surface_that_is_right_is_kept() -> None:
    for seed in range(3):
        time = drawn(seed)
        search, machine = AcrossSizes([op_times(prior=time)], budget=40), Measured(time, seed, 0.1)
        done = explore(None, search, machine, UNKEPT, SearchOptions(confirm=0), among=lambda cell: cell[:2])
        assert not done.given_up


def test_twenty_measurements_over_three_sizes_are_nearly_the_best() -> None:
    losses = []
    for seed in range(8):
        search, time = AcrossSizes([op_times()], 20), drawn(seed)
        run(search, time)
        losses += [time(p, search.choice("k", p)) / min(time(p, s) for s in SETTINGS) for p in POINTS]
    by_chance = []
    draw = random.Random(0)
    for seed in range(8):
        time = drawn(seed)
        for p in POINTS:
            some = [SETTINGS[0], *draw.sample(SETTINGS[1:], 6)]
            by_chance.append(min(time(p, s) for s in some) / min(time(p, s) for s in SETTINGS))
    assert np.log(losses).mean() < np.log(by_chance).mean()


def test_what_is_learned_at_one_size_is_chosen_at_the_others() -> None:
    times = op_times()
    search = AcrossSizes([times], 9)

    def time(case: Case, choice: Choice) -> float:
        return 1e-6 * case.sizes["N"] * (1 + 0.3 * math.log2(choice["k.by"]))

    away = {i for i, (p, _) in enumerate(times.rows) if p != POINTS[1]}
    times.closed |= away
    assert {p for _, p, _ in run(search, time)} == {POINTS[1]}
    times.closed -= away
    for case in (POINTS[0], POINTS[2]):
        assert time(case, search.choice("k", case)) < time(case, SETTINGS[0])


def test_where_nothing_is_measured_the_default_stays_unless_another_is_surely_faster() -> None:
    def prior(case: Case, choice: Choice) -> float:
        return 0.99 if choice == SETTINGS[5] else 0.2 if (choice, case) == (SETTINGS[7], POINTS[1]) else 1.0

    search = AcrossSizes([op_times(prior=prior)])
    assert [search.choice("k", p) for p in POINTS] == [SETTINGS[0], SETTINGS[7], SETTINGS[0]]


def test_it_ends_where_nothing_is_to_be_gained() -> None:
    cells = len(POINTS) * len(SETTINGS)
    flat = AcrossSizes([op_times(deviation=0.02)])
    assert len(run(flat, lambda p, s: 1e-3)) < cells
    assert flat.ended == "the expected gain is below the noise"
    asked = AcrossSizes([op_times(deviation=0.02)], budget=40)
    assert len(run(asked, lambda p, s: 1e-3)) > len(flat.ops["k"].seconds), "a budget is spent, though little is left"
    strict = AcrossSizes([op_times()], until=0.2)
    loose = len(run(strict, drawn(1)))
    assert strict.ended == "none is expected to be faster by more than 0.2"
    assert loose < len(run(AcrossSizes([op_times()], until=0.001), drawn(1))) <= cells


def test_what_fails_or_is_no_number_is_not_proposed_again() -> None:
    """At no size, unless everything fails at a size: that says nothing about a setting."""
    search, bad = AcrossSizes([op_times()]), SETTINGS[4]
    search.exclude("k", SETTINGS[6])
    seen = []
    while (cell := search.propose()) is not None:
        seen.append((cell.case, cell.choice))
        broken = cell.choice == bad or cell.case == POINTS[2]
        search.observe(cell, Sample.of((math.nan if broken else 1e-4 * (1 + 0.1 * len(seen)),)))
    assert len(seen) == len(set(seen))
    assert [s for _, s in seen].count(bad) <= 2, "at one size, and at the one where all fail"
    assert SETTINGS[6] not in {s for _, s in seen}
    assert all(search.choice("k", p) not in (bad, SETTINGS[6]) for p in POINTS[:2])


def test_a_size_at_which_the_program_does_not_run_is_not_proposed_again() -> None:
    search = AcrossSizes([op_times()], 12)
    search.skip(POINTS[0])
    assert {p for _, p, _ in run(search, drawn(0))} == set(POINTS[1:])
    assert search.choice("k", POINTS[0]) == SETTINGS[0]


def test_several_ops_share_a_budget_and_it_goes_where_more_is_to_be_gained() -> None:
    """One kernel is as the model says, the other is not."""
    right, other = drawn(5), drawn(6)
    search = AcrossSizes([op_times("right", right), op_times("wrong")], 30)
    count = {"right": 0, "wrong": 0}
    while (cell := search.propose()) is not None:
        count[cell.site] += 1
        time = right if cell.site == "right" else other
        search.observe(cell, Sample.of((time(cell.case, cell.choice),) * 5))
    assert sum(count.values()) <= 30
    assert count["wrong"] > count["right"] >= 3


def test_without_time_only_what_would_be_chosen_is_measured() -> None:
    search, time = AcrossSizes([op_times()]), drawn(2)
    for _ in range(8):
        cell = search.propose()
        assert cell is not None
        search.observe(cell, Sample.of((time(cell.case, cell.choice),) * 5))
    search.out_of_time, expected = True, search.to_confirm
    assert len(run(search, time)) >= min(1, expected)
    assert search.ended == "the time limit was reached"
    assert search.to_confirm == 0
