"""The process over settings and sizes: what one measurement says of the other cells."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dagc.choice.residual import UNTRAINED
from dagc.choice.surface import Array, Rows, TimeSurface

SETTINGS, SIZES = 5, 3


def surface(deviation: float = 0.3, responses: Array | None = None) -> TimeSurface:
    """Five settings, a doubling apart in x, at three sizes, a doubling apart; the model says that all are equal."""
    places = np.zeros((SETTINGS * SIZES, 3))
    places[:, 0] = np.tile(np.arange(SETTINGS), SIZES)
    size_of = np.repeat(np.arange(SIZES), SETTINGS)
    rows = np.zeros(SETTINGS * SIZES)
    answers = np.zeros((len(rows), 0)) if responses is None else responses
    sizes = np.arange(SIZES, dtype=float)[:, None]
    return TimeSurface(UNTRAINED.kernel, Rows(rows, rows + deviation, answers, places, sizes, size_of))


def relative(found: TimeSurface, size: int) -> list[float]:
    """Expected logarithms at a size, over the first setting's."""
    mean = found.mean[size * SETTINGS : (size + 1) * SETTINGS]
    return list(mean - mean[0])


def test_what_is_measured_at_one_size_serves_the_others() -> None:
    found = surface()
    found.observe(0, math.log(1e-4))
    found.observe(3, math.log(0.5e-4))
    assert relative(found, 0)[3] == pytest.approx(math.log(0.5), abs=0.02)
    for size in (1, 2):
        assert relative(found, size)[3] < -0.15, "the same setting"
        assert relative(found, size)[3] < relative(found, size)[2] < 0, "its neighbour, less so"
    assert relative(found, 1)[3] < relative(found, 2)[3], "the nearer size, more so"


def test_a_term_that_is_wrong_is_wrong_for_all_settings_that_answer_to_it() -> None:
    """Settings 1 and 4 wait for one term, which takes twice what the model says; they are not neighbours."""
    answers = np.tile([0.0, 1.0, 0.0, 0.0, 1.0], SIZES)[:, None]
    found = surface(deviation=0.05, responses=answers)
    found.observe(0, math.log(1e-4))
    found.observe(1, math.log(2e-4))
    assert relative(found, 0)[4] > 0.4 > 0.1 > abs(relative(found, 0)[3])
    assert relative(found, 2)[4] > 0.4, "at another size, too"


def test_the_level_of_a_size_says_nothing_of_its_settings() -> None:
    found = surface()
    found.observe(0, math.log(1.0))
    found.observe(SETTINGS, math.log(1e-6))  # another size is a million times faster
    assert np.allclose(relative(found, 1), 0, atol=0.01)
    assert found.mean[SETTINGS] == pytest.approx(math.log(1e-6), abs=0.01)


def test_a_time_that_is_no_number_is_ignored() -> None:
    found = surface()
    before = found.mean.copy()
    for value in (math.nan, math.inf, -math.inf):
        found.observe(2, value)
    assert (found.mean == before).all()
    assert not found.measured


def test_a_measured_cell_has_nothing_more_to_gain() -> None:
    found = surface()
    for row, factor in enumerate((1.0, 1.2, 0.9, 1.3, 1.05)):
        found.observe(row, math.log(1e-4 * factor))
    alone = found.gains(np.arange(SETTINGS, 2 * SETTINGS)).sum(axis=0)
    assert np.allclose(alone, 0, atol=1e-4), "the first measurement at a size tells only how fast it is"
    for size in (1, 2):
        found.observe(size * SETTINGS, math.log(2e-4))
    gains = found.gains(np.arange(SETTINGS * SIZES)).sum(axis=0)
    assert gains.min() >= -1e-9
    assert gains[:SETTINGS].max() < 1e-3 < gains[SETTINGS:].max()


def test_the_amplitude_follows_from_the_measurements() -> None:
    """Where the model is far off, more is expected of what was not measured than where it is right."""

    def doubt(factors: tuple[float, float]) -> float:
        found = surface(0.1)
        for row, factor in zip((0, 2), factors, strict=True):
            found.observe(row, math.log(1e-4 * factor))
        return found.against(SETTINGS + 4, SETTINGS)[1]

    assert doubt((1.0, 3.0)) > 1.5 * doubt((1.0, 1.0))


def test_doubt_of_what_is_expected_to_take_as_long() -> None:
    """Each of two is the faster one in half of the draws; of several, one of the others is so more often. Where the
    model has no deviation, the covariance is singular, and no other is faster."""
    found = surface(deviation=0.1)
    assert found.doubt(0, np.array([3]), 0.0) == pytest.approx(0.5, abs=0.07)
    assert found.doubt(0, np.arange(1, SETTINGS), 0.0) > 0.6
    assert surface(deviation=0.0).doubt(0, np.arange(1, SETTINGS), 0.001) == 0
