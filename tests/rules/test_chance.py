"""Classes where all implementations are equally fast: in at most 5 % of trials, whatever the noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.rules_chance import NOISES, SCALE, case, samples_of
from dagc.learn.tree import learn
from tests.data.h200 import h200_results
from tests.rules.samples import h200_learned, h200_outliers, h200_samples
from tests.tiers import representatives

DESIGNS = ("drawn", "in-order", "passes", "in-a-row")
NULL = [(noise, design) for noise in NOISES for design in DESIGNS]


@pytest.mark.parametrize(("noise", "design"), representatives(NULL, *zip(NOISES, DESIGNS, strict=True)))
def test_null_data_have_one_class(noise: str, design: str) -> None:
    """30 trials; of a share of 5 %, six or more would be an accident of 0.3 %."""
    assert case((noise, design, 80, range(30)))[0] < 6


def test_the_labels_alone_see_classes_in_skewed_noise_and_in_bursts() -> None:
    """The test does not pass for want of boundaries."""
    assert case(("skewed", "drawn", 80, range(30)))[1] > 9
    assert case(("bursty", "in-a-row", 80, range(30)))[1] > 15


def test_bursts_in_the_order_of_the_enumeration_are_no_rules_where_that_order_is_not_known() -> None:
    several = 0
    for seed in range(30):
        samples = samples_of("bursty", "in-order", 80, np.random.default_rng(seed))
        unknown = [replace(s, times=(), orders=()) for s in samples]
        several += len(learn(unknown, SCALE, judge=False, cost=1.0).classes.classes) > 1
    assert several < 6


def test_recorded_classes_stay_with_less_data() -> None:
    """All of the medians' three classes in a quarter of the implementations; two in single passes of it."""
    assert [c.count for c in h200_learned().classes.classes] == [1124, 802, 110]
    noise = h200_results().noise
    quarter = learn(h200_samples()[::4], noise, outliers=h200_outliers(), judge=False).classes
    assert len(quarter.classes) >= 2
    single = [replace(s, value=s.times[0], measurements=1, times=s.times[:1], orders=s.orders[:1])
              for s in h200_samples()[::4]]  # fmt: skip
    found = learn(single, noise, outliers=h200_outliers(), judge=False).classes
    assert len(found.classes) >= 2
    assert found.p < 0.05


def test_the_order_of_samples_does_not_matter() -> None:
    samples = samples_of("skewed", "confirmed", 200, np.random.default_rng(1))
    assert learn(samples, SCALE) == learn(samples[::-1], SCALE)
