"""Performance classes: where sorted times rise, and where that is more than noise."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.learn.classes import classify_times, cut_again, noise_of
from dagc.learn.tree import learn
from tests.data.h200 import h200_results
from tests.rules.samples import h200_learned, h200_samples


def _steps(*sizes: tuple[float, int]) -> list[float]:
    """So many times around each value, in any order."""
    random = Random(1)
    times = [value * (1 + 0.001 * random.random()) for value, count in sizes for _ in range(count)]
    random.shuffle(times)
    return times


def test_two_steps_are_three_classes() -> None:
    found = classify_times(_steps((1.0, 300), (1.2, 200), (1.5, 100)), noise=0.02)
    assert [(c.number, c.count) for c in found.classes] == [(0, 300), (1, 200), (2, 100)]
    assert [b.position for b in found.boundaries] == [299, 499]
    assert found.radius == 3
    assert [b.step for b in found.boundaries] == pytest.approx([0.2, 0.25], abs=0.001)
    assert [b.height for b in found.boundaries] == pytest.approx([0.2, 0.3], abs=0.01)
    assert [found.of(t) for t in (0.9, 1.11, 1.3, 9.0)] == [0, 1, 1, 2]


def test_boundaries_below_the_noise_are_dropped_and_kept_apart() -> None:
    times = _steps((1.0, 300), (1.02, 200), (1.5, 100))
    found = classify_times(times, noise=0.05)
    assert [c.count for c in found.classes] == [500, 100]
    assert [b.position for b in found.dropped] == [299]
    assert found.dropped[0].step == pytest.approx(0.02, abs=0.001)
    unfiltered = classify_times(times)
    assert [c.count for c in unfiltered.classes] == [300, 200, 100]
    assert unfiltered.dropped == ()


def test_convolution_by_hand() -> None:
    found = classify_times([5.0, 1.0, 1.0, 2.0])
    assert found.times == (1.0, 1.0, 2.0, 5.0)
    assert found.radius == 1
    assert found.convolution == (0.0, 1.0, 3.0)
    assert found.boundaries == ()  # the largest value is at the end: it has no neighbour to compare with
    found = classify_times([1.0, 1.0, 2.0, 2.5])
    assert [(b.position, b.height, b.value) for b in found.boundaries] == [(1, 1.0, 1.5)]


@pytest.mark.parametrize("times", [[1.0], [1.0, 2.0], [3.0] * 50])
def test_nothing_to_tell_apart(times: list[float]) -> None:
    found = classify_times(times, noise=0.01)
    assert len(found.classes) == 1
    assert found.classes[0].count == len(times)
    assert found.boundaries == found.dropped == ()


def test_no_times() -> None:
    with pytest.raises(ValueError, match="no times"):
        classify_times([])


@given(st.lists(st.floats(1e-6, 1e-3), min_size=1, max_size=60), st.one_of(st.just(math.nan), st.floats(0, 0.5)))
def test_classes_are_the_sorted_times_cut(times: list[float], noise: float) -> None:
    found = classify_times(times, noise)
    assert found.times == tuple(sorted(times))
    assert sum(c.count for c in found.classes) == len(times)
    assert all(c.count and c.fastest <= c.median <= c.slowest for c in found.classes)
    assert len(found.boundaries) == len(found.classes) - 1
    assert all(b.step >= noise for b in found.boundaries if not math.isnan(noise))


@given(st.integers(2, 6), st.data())
def test_equal_steps_are_found_and_nothing_else(count: int, data: st.DataObject) -> None:
    """So many classes with equally high steps between them, and smaller rises inside: every step is a boundary, no rise
    is. In whole numbers, so that the prominences are equal to the last bit."""
    times, sizes = [], []
    for number in range(count):
        inside = data.draw(st.lists(st.integers(1, 19), min_size=1, max_size=10))
        mine = [1000 * number + 1000 + rise for rise in (0, 0, *inside, 20, 20)]
        times += [float(t) for t in mine]
        sizes.append(len(mine))
    found = classify_times(times)
    assert [c.count for c in found.classes] == sizes
    assert len({b.prominence for b in found.boundaries}) == 1


@pytest.mark.parametrize("unit", [1.0, 68e-6])
def test_rounding_errors_are_no_peaks(unit: float) -> None:
    """Three evenly rising classes with two equal steps: the sums' rounding errors once made nine classes of them."""
    times = [unit * (level + 1e-5 * rise) for level in (1.0, 1.5, 2.0) for rise in range(666)]
    assert [c.count for c in classify_times(times).classes] == [666, 666, 666]
    assert [c.count for c in classify_times(times, 0.01).classes] == [666, 666, 666]


@given(st.lists(st.floats(1e-6, 1e-3), min_size=2, max_size=80))
def test_boundaries_are_the_most_prominent_peaks(times: list[float]) -> None:
    """Above the percentile, or as prominent as the most prominent: whatever the times are."""
    found = classify_times(times)
    most = max((b.prominence for b in found.boundaries), default=0.0)
    assert all(b.prominence > found.threshold or b.prominence >= most * (1 - 1e-8) for b in found.boundaries)


def test_noise_of_a_median() -> None:
    assert noise_of(0.03, 1) == 0.03
    assert noise_of(0.03, 2) == pytest.approx(0.03 / math.sqrt(2))
    assert noise_of(0.03, 5) == pytest.approx(0.03 * 0.56, rel=0.01)
    # Of 5 normal values the standard deviation of the median is 0.5356: the formula is an upper bound, 5 % above.
    random = Random(0)
    medians = [sorted(random.gauss(0, 1) for _ in range(5))[2] for _ in range(20_000)]
    deviation = math.sqrt(sum(m * m for m in medians) / len(medians))
    assert deviation <= noise_of(1.0, 5) <= 1.1 * deviation


def test_the_h200_data_have_at_least_three_classes() -> None:
    classes = h200_learned().classes
    assert [c.count for c in classes.classes] == [1124, 802, 110]
    assert classes.noise == noise_of(h200_results().noise, 5)
    assert all(b.step >= classes.noise for b in classes.boundaries)
    assert [b.position for b in classes.dropped] == [1982, 2017]
    assert classes.dropped[0].step < classes.noise
    # 18 are 2.3 % slower than 92 by the medians that chose them, and 1.0 % by passes that did not.
    assert classes.dropped[1].step > classes.noise
    assert classes.dropped[1].p > 0.05
    assert classes.p < 0.01


def test_the_labels_of_the_paper_are_there_as_before() -> None:
    """Every boundary above the percentile, whatever the noise and chance."""
    paper = learn(h200_samples(), h200_results().noise, all_classes=True, judge=False).classes
    assert [c.count for c in paper.classes] == [1124, 802, 57, 35, 18]
    assert paper.dropped == ()
    assert math.isnan(paper.p)


def test_a_fastest_class_of_several_configurations_is_cut_again() -> None:
    """Two transports far apart; the fast one has two blocks, one of them with two speeds, which is left as it is."""
    times = sorted(_steps((1.0, 60), (1.04, 60), (1.3, 80), (9.0, 200)))
    first = classify_times(times, noise=0.01, percentile=99.9)
    assert [c.count for c in first.classes] == [200, 200]
    again = cut_again(first, ["small"] * 120 + ["large"] * 80 + ["slow"] * 200, percentile=99.9)
    assert [c.count for c in again.classes] == [120, 80, 200]
    assert [b.position for b in again.boundaries] == [119, 199]
    assert again.boundaries[0].step == pytest.approx(0.27, abs=0.01)
    assert again.boundaries[1].step == pytest.approx(5.9, abs=0.1)
    assert again.boundaries[0].height == again.convolution[119 - again.radius + 1]
    assert again.convolution == first.convolution
    assert [c.number for c in again.classes] == [0, 1, 2]


def test_one_configuration_is_not_cut_again() -> None:
    found = classify_times(_steps((1.0, 60), (1.04, 60), (9.0, 200)), noise=0.01)
    assert cut_again(found, ["same"] * 320) == found


def test_what_is_noise_is_not_cut_again() -> None:
    found = classify_times(_steps((1.0, 60), (1.04, 60), (9.0, 200)), noise=0.1, percentile=99.9)
    again = cut_again(found, ["a", "b"] * 160, percentile=99.9)
    assert again.classes == found.classes
    assert [b.position for b in again.dropped] == [59]
