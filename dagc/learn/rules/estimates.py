"""Times of implementations that were not measured, estimated from those that were.

Rules that are learned from a few single measurements suffer from two things: outliers, which the tree takes for slow
implementations and separates, and gaps, where it must guess. A regression forest over the features of rules and the
simulated time (whose costs are fitted to the measurements) knows more of both than the tree does: it weighs many
neighbours of each implementation. So the tree may learn from its estimates.

A measurement that its neighbours contradict counts less: an observation whose residual is r standard deviations has
the weight (nu + 1) / (nu + r^2) of Student's t distribution, nu = 2, and the forest is grown again. Residuals are those
of trees that were not grown from the observation (out of bag). Their standard deviation is that of a measurement, or
1.48 times the median absolute residual where that is more: where the forest knows little, nothing is improbable.

What was measured keeps its time, unless it is improbable: further than five such standard deviations from what is
expected of it. (Nearer than that, it is more often the forest that is wrong.) Then, as where nothing was measured, the
time is the expected one and `measurements` is 0. A median of three or more is never improbable: two outliers of three
are rarer than something that the forest does not know. Expected times are those of a last forest, without bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.ir.traversal import traversal_text
from dagc.learn.rules.features import Samples
from dagc.learn.rules.labels import FEWEST_OF_ONE, noise_of
from dagc.learn.rules.types import Sample

if TYPE_CHECKING:
    from dagc.learn.rules.types import Floats

# (times of the measured samples, in seconds; their weights) -> simulated times of all samples, the measured ones first.
Simulate: TypeAlias = Callable[["Floats", "Floats"], "Floats"]

FEWEST = 10  # measured: with fewer, hardly anything can be said of the others
TREES = 100
LEAF = 2  # samples at least
SHARE = 0.7  # of the features that are tried for each split
ROUNDS = 2  # of weights, before the last forest
DEGREES = 2  # of freedom of Student's t distribution
IMPROBABLE = 5  # standard deviations


@dataclass(frozen=True, slots=True)
class Estimates:
    """What `estimate` found.

    samples  all: measured ones with their times, those with estimated times with `measurements` 0
    error    median of how far, relative, measured times are from what trees that have not seen them expect
    spread   median of how far they are from the median of them all: the error without any knowledge
    """

    samples: tuple[Sample, ...]
    error: float
    spread: float

    @property
    def weak(self) -> bool:
        """Do they know little?"""
        return self.error > self.spread / 2


def in_order(samples: Sequence[Sample]) -> list[Sample]:
    """In an order that does not depend on times, nor on that in which they come."""
    return sorted(samples, key=lambda s: (s.configuration.text, traversal_text(s.traversal, s.graph)))


def estimate(
    measured: Sequence[Sample], others: Sequence[Sample], simulate: Simulate, noise: float = math.nan
) -> Estimates:
    """All of `measured`, then all of `others`, with times as described above; the times of `others` are not looked at.

    `noise` is the relative standard deviation of a single measurement (NaN: unknown). The same samples in the same
    order give the same times (`in_order`). ValueError with fewer than FEWEST measured samples.
    """
    import numpy as np

    if len(measured) < FEWEST:
        raise ValueError(f"{len(measured)} samples, at least {FEWEST} are needed")
    everything = (*measured, *others)
    _, answers = Samples.of(everything).features()
    times = np.array([s.seconds for s in measured])
    logs = np.log(times)  # residuals are relative then: transports differ by an order of magnitude
    floor = np.array([noise_of(noise, s.measurements) for s in measured])
    known, weights = len(measured), np.ones(len(measured))
    for _ in range(ROUNDS):
        table = _table(answers, simulate(times, weights))
        forest = _forest(bootstrap=True).fit(table[:known], logs, sample_weight=weights)
        residuals = logs - forest.oob_prediction_
        # Not known (NaN): what the residuals say.
        deviation = np.fmax(floor, 1.4826 * np.median(abs(residuals)))
        weights = (DEGREES + 1) / (DEGREES + (residuals / deviation) ** 2)
    often = np.array([s.measurements >= FEWEST_OF_ONE for s in measured])
    kept = often | (abs(residuals) <= IMPROBABLE * deviation)
    table = _table(answers, simulate(times, weights))
    expected = np.exp(_forest(bootstrap=False).fit(table[:known], logs, sample_weight=weights).predict(table))
    samples = tuple(
        sample if place < known and kept[place] else replace(sample, seconds=float(expected[place]), measurements=0)
        for place, sample in enumerate(everything)
    )
    spread = float(np.median(abs(logs - np.median(logs))))
    return Estimates(samples, float(np.median(abs(residuals))), spread)


def _table(answers: Any, simulated: Floats) -> Floats:
    """The features of rules and the logarithm of the simulated time: samples x features."""
    import numpy as np

    # scikit-learn takes values within 1e-7 of each other as equal, so not in seconds.
    table: Floats = np.column_stack([answers.astype(float), np.log(simulated)])
    return table


def _forest(bootstrap: bool) -> Any:
    """Extremely randomised trees: their splits are drawn by lot, so their mean is smooth where they know little."""
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(
        TREES, min_samples_leaf=LEAF, max_features=SHARE, bootstrap=bootstrap, oob_score=bootstrap, random_state=0
    )
