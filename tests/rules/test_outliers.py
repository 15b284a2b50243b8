"""Classes that noise and outliers explain are not drawn; classes that were confirmed are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from statistics import median

import numpy as np
import pytest

from dagc.learn.classes import Outliers, Repeats, by_chance, classify_times, most_by_chance
from dagc.learn.features import Samples
from dagc.learn.judging import accuracy
from dagc.learn.text import Findings, render
from dagc.learn.tree import learn
from dagc.learn.types import Example
from tests.data.h200 import h200_results
from tests.graphs import spmv
from tests.rules.samples import h200_outliers, h200_samples, samples_of

NOISE = 0.01


def _times(random: Random, *sizes: tuple[float, int]) -> list[float]:
    return sorted(random.gauss(value, NOISE * value) for value, count in sizes for _ in range(count))


def _repeats(count: int, confirmed: int = 0, deviations: Sequence[float] = ()) -> Repeats:
    """Single measurements, but for the fastest `confirmed`, which were measured five times."""
    return Repeats((5,) * confirmed + (1,) * (count - confirmed), Outliers(tuple(deviations), NOISE))


def _drawn(times: list[float], repeats: Repeats | None, percentile: float = 98) -> list[int]:
    return [c.count for c in classify_times(times, NOISE, percentile, repeats).classes]


def test_a_pair_of_outliers_is_no_class() -> None:
    times = [*_times(Random(0), (1.0, 60), (1.2, 38)), 1.45, 1.47]
    assert _drawn(times, None, 90)[-1] == 2
    found = classify_times(times, NOISE, 90, _repeats(100))
    assert [c.count for c in found.classes] == [60, 40]
    assert found.classes[-1].slowest == 1.47
    dropped = next(b for b in found.dropped if b.position == 97)
    assert dropped.samples == 2
    assert dropped.why_dropped.startswith(
        "a neighbouring class would have 2 implementations, and noise and outliers may"
    )
    assert dropped.chance >= 2
    assert dropped.step > 15 * NOISE


def test_without_a_noise_floor_nothing_is_dropped() -> None:
    times = [*_times(Random(0), (1.0, 60), (1.2, 38)), 1.45, 1.47]
    assert classify_times(times, math.nan, 90, _repeats(100)) == classify_times(times, math.nan, 90)


def test_a_rare_fast_class_is_drawn_once_it_is_confirmed() -> None:
    """Six of 400 are faster by a tenth. `dagc explore` measures the best again at its end: then they count."""
    times = [*_times(Random(1), (0.9, 6)), *_times(Random(2), (1.0, 250), (1.2, 144))]
    assert _drawn(times, _repeats(400)) == [256, 144]
    assert _drawn(times, _repeats(400, confirmed=20)) == [6, 250, 144]
    assert _drawn(times, _repeats(400, confirmed=1)) == [6, 250, 144]


@pytest.mark.thorough
def test_learning_draws_a_rare_fast_class_once_it_is_confirmed() -> None:
    """Through samples: one rule makes 16 of 2036 fast; the best 20 were measured five times, or nothing again."""
    random = Random(3)
    made = samples_of(spmv(), lambda _: random.gauss(1.0, NOISE))
    fast = {id(s) for s in made[500:516]}
    samples = [Example(s.graph, s.configuration, s.traversal, 0.8 * s.value if id(s) in fast else s.value)
               for s in made]  # fmt: skip
    samples = [replace(s, times=(s.value,), orders=(i,)) for i, s in enumerate(random.sample(samples, len(samples)))]
    best = sorted(samples, key=lambda s: s.value)[:20]
    confirmed = [s for s in samples if s not in best]
    for place, s in enumerate(best):
        usual = 0.8 if s.value < 0.9 else 1.0
        times = (s.value, *(usual * random.gauss(1.0, NOISE) for _ in range(4)))
        orders = (*s.orders, *(len(samples) + 20 * k + place for k in range(4)))
        confirmed.append(replace(s, value=median(times), measurements=5, times=times, orders=orders))
    assert learn(samples, NOISE).classes.classes[0].count > 1000
    learned = learn(confirmed, NOISE)
    assert learned.classes.classes[0].count == 16
    assert learn(samples, NOISE, all_classes=True).classes.classes[0].count == 16


def test_outliers_do_not_hide_the_only_boundary() -> None:
    """The most prominent peak is before the outliers, and the percentile keeps no other."""
    times = [*_times(Random(4), (1.0, 60), (1.1, 37)), 1.6, 1.61, 1.62]
    alone = classify_times(times, NOISE, 98)
    assert [c.count for c in alone.classes] == [97, 3]
    found = classify_times(times, NOISE, 98, _repeats(100, deviations=[0.7] * 3 + [0.0] * 150))
    assert [c.count for c in found.classes] == [60, 40]
    assert [b.position for b in found.dropped] == [96]
    assert found.convolution == alone.convolution
    assert found.boundaries[0].height == found.convolution[59 - found.radius + 1]


def test_several_outliers_on_both_sides() -> None:
    times = [0.8, 0.81, *_times(Random(5), (1.0, 60), (1.1, 36)), 1.4, 1.41]
    found = classify_times(times, NOISE, 90, _repeats(100))
    assert [c.count for c in found.classes] == [62, 38]
    assert {b.position for b in found.dropped} >= {1, 97}
    assert not {b.position for b in found.dropped} & {b.position for b in found.boundaries}


def test_a_class_in_between_joins_the_nearer_one() -> None:
    times = [*_times(Random(6), (1.0, 60)), 1.3, 1.301, *_times(Random(7), (1.5, 38))]
    found = classify_times(times, NOISE, 90, _repeats(100))
    assert [c.count for c in found.classes] == [60, 40]


def test_how_many_a_class_needs_by_hand() -> None:
    """One in 100 measurements is slower by half: of 200 samples two, and five in one of 100 times."""
    outliers = Outliers.of([[1.0] * 99 + [1.5]], NOISE)
    assert outliers.deviations == (0.0,) * 99 + (0.5,)
    shares = outliers.shares(np.array([1.2, 1.5, 1.6, 0.9]))
    assert shares == pytest.approx([2 / 102, 2 / 102, 1 / 102, 1 / 102])
    times = [1.0] * 194 + [1.3] * 6
    most = most_by_chance(200 * 2 / 102)
    assert sum(math.exp(-3.92157) * 3.92157**k / math.factorial(k) for k in range(most + 1)) >= 0.99
    assert sum(math.exp(-3.92157) * 3.92157**k / math.factorial(k) for k in range(most)) < 0.99
    assert by_chance(times, 194, 200, Repeats((1,) * 200, outliers)) == most == 9
    assert by_chance([1.0] * 190 + [1.3] * 10, 190, 200, Repeats((1,) * 200, outliers)) == 0
    assert by_chance(times, 0, 194, Repeats((1,) * 200, outliers)) == 0
    assert by_chance(times, 194, 200, Repeats((5,) * 200, outliers)) == 0


def test_assumed_shares() -> None:
    """6 % up to half as much again, 0.1 % beyond; near by what normal noise gives; series of two tell nothing."""
    outliers = Outliers.of([[1.0, 1.4], [2.0]], NOISE)
    assert outliers.deviations == ()
    found = outliers.shares(np.array([1.0, 1.01, 1.1, 0.6, 1.6, 9.0]))
    assert found == pytest.approx([0.5, 0.1587, 0.06, 0.06, 0.001, 0.001], abs=1e-4)


@pytest.mark.parametrize(("measurements", "share"), [(1, 0.05), (2, 0.0975), (3, 0.00725), (5, 0.001158)])
def test_medians_are_rarely_outliers(measurements: int, share: float) -> None:
    outliers = Outliers((0.0,) * 949 + (0.3,) * 49, NOISE)  # (49 + 1) / (998 + 2) = 5 %
    assert outliers.shares_of_medians(np.array([1.2]), measurements)[0] == pytest.approx(share, abs=1e-6)


def test_medians_drawn_from_recorded_passes_follow_the_share_of_medians() -> None:
    """Medians of three passes drawn from all deviations of the H200 data: as many outliers as is said."""
    outliers = h200_outliers()
    random = Random(8)
    drawn = [median(random.choices(outliers.deviations, k=3)) for _ in range(40_000)]
    for deviation in (0.03, 0.05, 0.08):
        said = float(outliers.shares_of_medians(np.array([1 + deviation]), 3)[0])
        assert sum(d >= deviation for d in drawn) / len(drawn) == pytest.approx(said, rel=0.15)


@pytest.mark.thorough
def test_single_passes_of_the_h200_data_have_no_class_of_outliers_only() -> None:
    """Most members of every class belong there, by the medians of their passes and within the noise."""
    results, whole = h200_results(), h200_samples()
    outliers = h200_outliers()
    usual = {s.traversal: s.value for s in whole}
    lost = {True: 0, False: 0}
    for seed in range(6):
        random = Random(seed)
        chosen = random.sample(list(zip(whole, results.implementations, strict=True)), 400)
        part = [Example(s.graph, s.configuration, s.traversal, random.choice(i.times())) for s, i in chosen]
        for all_classes in lost:
            learned = learn(part, results.noise, all_classes=all_classes, outliers=outliers)
            for c in learned.classes.classes:
                low, high = c.fastest * (1 - results.noise), c.slowest * (1 + results.noise)
                members = [s for s, k in zip(learned.samples, learned.labels, strict=True) if k == c.number]
                lost[all_classes] += 2 * sum(low <= usual[s.traversal] <= high for s in members) < len(members)
    assert lost[True] > 0
    assert lost[False] == 0


def test_what_was_dropped_is_told() -> None:
    random = Random(9)
    made = samples_of(spmv(), lambda t: random.gauss(1.0, NOISE))[:200]
    samples = [*made[:-2], *(Example(s.graph, s.configuration, s.traversal, 1.4 + 0.01 * i)
                             for i, s in enumerate(made[-2:]))]  # fmt: skip
    learned = learn(samples, NOISE)
    words = "a neighbouring class would have 2 implementations, and noise and outliers may put up to "
    assert words in render(Findings(learned))
    assert words in render(Findings(learned), "md")
    assert '"samples": 2' in render(Findings(learned), "json")
    assert accuracy(learned, Samples.of(samples), [s.value for s in samples]).share == 1.0
