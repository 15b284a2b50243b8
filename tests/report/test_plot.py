"""Scales, ticks and shapes."""

from __future__ import annotations

import math
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.report.charts import AxisScale, Plot, dots, linear_ticks, spanning, steps, tag, text, tick_texts

values = st.floats(1e-9, 1e6)


@given(values, st.floats(1e-3, 1e3), st.integers(4, 10))
def test_linear_ticks_are_round_evenly_spaced_and_inside(low: float, ratio: float, most: int) -> None:
    high = low * (1 + ratio)
    ticks = linear_ticks(low, high, most)
    assert 1 <= len(ticks) <= most + 1
    assert all(low * (1 - 1e-6) <= t <= high * (1 + 1e-6) for t in ticks)
    gaps = [b - a for a, b in pairwise(ticks)]
    assert all(math.isclose(a, b, rel_tol=1e-6) for a, b in pairwise(gaps))
    if gaps:
        step = gaps[0] / 10 ** math.floor(math.log10(gaps[0]) + 1e-9)
        assert min(abs(step - round_) for round_ in (1, 2, 5, 10)) < 1e-3


@given(values, st.floats(1.01, 1e3), st.booleans())
def test_scales_are_monotonic_and_end_where_they_should(low: float, ratio: float, log: bool) -> None:
    scale = AxisScale(low, low * ratio, 10, 110, log)
    assert scale(low) == pytest.approx(10)
    assert scale(low * ratio) == pytest.approx(110)
    assert 10 < scale(low * math.sqrt(ratio)) < 110
    assert scale.clamped(low / 2) == pytest.approx(10)
    assert scale.clamped(low * ratio * 2) == pytest.approx(110)


def test_equal_values_still_have_a_scale() -> None:
    for value in (0.0, 3e-5):
        scale = spanning(value, value, 0, 100)
        assert 0 < scale(value) < 100


def test_a_logarithmic_axis_has_ticks_at_1_2_5() -> None:
    assert AxisScale(1, 100, 0, 1, log=True).ticks() == pytest.approx([1, 2, 5, 10, 20, 50, 100])
    assert AxisScale(1, 1e6, 0, 1, log=True).ticks() == pytest.approx([10.0**p for p in range(7)])


def test_tick_texts_are_short_and_differ() -> None:
    assert tick_texts([0.0, 0.5, 1.0]) == ["0.0", "0.5", "1.0"]
    assert tick_texts([70.0, 75.0, 80.0]) == ["70", "75", "80"]


def test_text_and_attributes_are_escaped() -> None:
    shown = text(1, 2, "<b>&", data_tip='"><script>')
    element = ET.fromstring(shown)
    assert element.text == "<b>&"
    assert element.get("data-tip") == '"><script>'


def test_dots_that_cannot_be_told_apart_are_drawn_once() -> None:
    path = ET.fromstring(dots([(1.01, 2), (1.02, 2), (5, 2)], "k0"))
    assert path.get("d") == "M1 2h0M5 2h0"


def test_steps_keep_each_value_until_the_next() -> None:
    assert ET.fromstring(steps([(0, 9), (5, 4)], 10, "line")).get("d") == "M0 9H5V4H10"


def test_a_plot_is_one_picture_with_a_name() -> None:
    plot = Plot(400, 300)
    plot.x_axis(AxisScale(0, 10, *plot.x_range), "things")
    plot.y_axis(AxisScale(0, 10e-6, *plot.y_range), "time [µs]", 1e-6)
    root = ET.fromstring(plot.svg("All things"))
    assert (root.get("role"), root.get("aria-label")) == ("img", "All things")
    texts = [e.text for e in root.iter("text")]
    assert {"things", "time [µs]", "0", "10"} <= set(texts)


def test_an_attribute_of_none_is_left_out() -> None:
    assert tag("g", "x", id=None, class_="a") == '<g class="a">x</g>'
