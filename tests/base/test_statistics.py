"""Statistics of repeated measurements against tables and brute force."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.base.statistics import FEWEST_PAIRS, followed, shift_interval, shrunk

# Wilcoxon's table, two-sided 5 %: values of the smaller rank sum that are significant.
CRITICAL = {6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 15: 25, 20: 52, 25: 89, 30: 137}


@pytest.mark.parametrize("n", CRITICAL)
def test_the_interval_leaves_out_what_the_table_says(n: int) -> None:
    random = Random(n)
    values = [random.gauss(0, 1) for _ in range(n)]
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    centre, low, high, confidence = shift_interval(values)
    assert (low, high) == (means[CRITICAL[n]], means[-1 - CRITICAL[n]])
    assert centre == median(means)
    assert 0.95 <= confidence < 0.97


@pytest.mark.parametrize("n", range(1, 6))
def test_few_values_cannot_be_sure(n: int) -> None:
    values = [float(v) for v in range(n)]
    assert shift_interval(values) == ((n - 1) / 2, 0.0, n - 1.0, 1 - 2 / 2**n)


@pytest.mark.parametrize("n", [6, 9])
def test_the_confidence_is_that_of_all_signs(n: int) -> None:
    """Of all choices of signs of given sizes, all equally likely about 0, so many intervals hold 0."""
    random = Random(7)
    sizes = [random.random() for _ in range(n)]
    holds = 0
    for signs in product((-1, 1), repeat=n):
        _, low, high, confidence = shift_interval([s * v for s, v in zip(signs, sizes, strict=True)])
        holds += low <= 0 <= high
    assert holds / 2**n == pytest.approx(confidence)


def test_many_values_leave_out_as_many_as_counting_says() -> None:
    """Up to 100 values are counted, above the normal approximation takes over: no step is to be seen there."""
    random, left_out = Random(1), []
    for n in (99, 100, 101, 102):
        values = [random.random() for _ in range(n)]
        means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
        _, low, high, _ = shift_interval(values)
        left_out.append(means.index(low))
        assert means[-1 - left_out[-1]] == high
    steps = [b - a for a, b in pairwise(left_out)]
    assert all(38 <= step <= 46 for step in steps)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12), st.floats(-100, 100))
def test_a_shift_shifts_all(values: list[float], by: float) -> None:
    before, after = shift_interval(values), shift_interval([v + by for v in values])
    assert after[:3] == pytest.approx([v + by for v in before[:3]], abs=1e-6)
    assert before[1] <= before[0] <= before[2]


def test_nothing_has_no_centre() -> None:
    with pytest.raises(ValueError, match="no values"):
        shift_interval([])


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.05])
def test_the_shrunk_least_is_not_too_low_and_its_interval_covers(spread: float) -> None:
    """Ten that were chosen by a noisy measurement of each, then measured five times. The plain least is too low."""
    random, covered, off, naive, trials = Random(3), 0, [], [], 400
    for _ in range(trials):
        truths = [1 + random.gauss(0, spread) for _ in range(100)]
        chosen = sorted(truths, key=lambda t: t + random.gauss(0, 0.02))[:10]
        series = [[t + random.gauss(0, 0.02) for _ in range(5)] for t in chosen]
        least = min(range(10), key=lambda i: median(series[i]))
        every = shrunk(series)
        assert every is not None
        found = every[least]
        assert found[0] == min(one[0] for one in every)
        covered += found[1] <= chosen[least] <= found[2]
        off.append(found[0] - chosen[least])
        naive.append(median(series[least]) - chosen[least])
    assert covered / trials > 0.92
    assert abs(sum(off) / trials) < max(0.005, 0.5 * abs(sum(naive) / trials))


def test_too_little_is_not_shrunk() -> None:
    assert shrunk([[1.0, 1.1, 1.2]] * 3) is None
    assert shrunk([[1.0]] * 20) is None


def test_a_bound_of_very_noisy_times_is_not_negative() -> None:
    assert shrunk([[0.1, 9.0, 0.2, 8.0, 0.1], [7.0, 0.1, 9.0, 0.3, 6.0]] * 3)[0][1] == 0.0  # type: ignore[index]


@given(part=st.floats(0, 1), seed=st.integers(0, 1000))
def test_the_part_that_is_followed_is_found_among_disturbed_changes(part: float, seed: int) -> None:
    random = Random(seed)
    changes = [(x, part * x) for x in (random.gauss(0, 0.1) for _ in range(40))]
    changes += [(random.gauss(0, 0.01), 3.0) for _ in range(10)]  # disturbed
    assert followed(changes) == pytest.approx(part, abs=1e-6)


def test_what_is_followed_is_a_part() -> None:
    assert followed([(0.1, 0.5)] * FEWEST_PAIRS) == 1.0
    assert followed([(0.1, -0.5)] * FEWEST_PAIRS) == 0.0
    assert followed([(0.1, 0.0)] * (FEWEST_PAIRS - 1)) == 1.0  # too few to tell
    assert followed([(0.0, 0.5)] * 40) == 1.0  # the reference did not change
