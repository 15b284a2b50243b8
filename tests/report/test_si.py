"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.report import si

THIN = si.THIN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (68.2e-6, f"68.2{THIN}µs"),
        (1.5e-9, f"1.50{THIN}ns"),
        (0.00999999, f"10.0{THIN}ms"),
        (2.0, f"2.00{THIN}s"),
        (0.0, "0"),
        (math.nan, "unknown"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert si.seconds(value) == text


def test_counts_have_thin_spaces_and_powers() -> None:
    assert si.count(2036) == f"2{THIN}036"
    assert si.count(5367658504764649454197598361600000) == "5.37 × 10³³"


def test_percent_and_ratios() -> None:
    assert si.percent(0.0271) == f"2.7{THIN}%"
    assert si.percent(1.0) == f"100{THIN}%"
    assert si.percent(math.nan) == "unknown"
    assert si.times(1.2836) == f"1.28{THIN}×"
    assert si.ordinary(1, "sample") == "1 sample"


@given(st.floats(1e-12, 1e12), st.integers(1, 6))
def test_significant_digits_are_kept(value: float, digits: int) -> None:
    text = si.significant(value, digits)
    assert "e" not in text
    assert math.isclose(float(text), value, rel_tol=0.51 * 10.0 ** (1 - digits))


def test_long_counts_have_their_size_beside_them() -> None:
    assert si.exact(2036) == "2036"
    assert si.exact(5367658504764649454197598361600000) == "5367658504764649454197598361600000 (5.37e33)"
    assert si.about(9_999_999_999_999) == "1.00e13"
    assert si.exact(10**6000) == "1.00e6000"  # more digits than Python prints
