"""How well rules from a part of a space classify all of it (Table V of the seed).

The classes of the part have ranges, from their fastest to their slowest sample. The tree classifies every
implementation of the whole space; accuracy is the share whose time lies in the range of the class that it is given.

Few wide classes make that easy. So beside it stand: the number of classes, their widths against the noise, and
`chance`, the accuracy of random labels: as many implementations in each class, but drawn by lot; and `constant`, that
of the same class for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagc.learn.rules.features import Samples
from dagc.learn.rules.learn import LearnedRules

if TYPE_CHECKING:
    from dagc.learn.rules.types import Bools


@dataclass(frozen=True, slots=True)
class ClassAccuracy:
    """One class. `given` implementations of the whole space were classified as it; `inside` of them lie in its range.

    `width` is relative (see PerformanceClass.width), `widths` the same in noise floors (NaN: unknown).
    """

    number: int
    classified: int
    inside: int
    width: float
    widths: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of the `implementations` of the whole space, from 0 to 1; `learned_from` so many that were measured.

    share        within the range of the class given (Table V)
    chance       the same for random labels of the same sizes, on average
    constant     the same for one class given to all, that with which it is highest
    tolerant     within that range widened by the noise on both sides
    by_boundary  on the right side of the boundaries of the class given: as if the ranges met there
    """

    implementations: int
    learned_from: int
    share: float
    chance: float
    constant: float
    tolerant: float
    by_boundary: float
    classes: tuple[ClassAccuracy, ...]


def accuracy(learned: LearnedRules, whole: Samples, seconds: Sequence[float]) -> Accuracy:
    """`whole` are all implementations, `seconds` their times. ValueError without any."""
    import numpy as np

    if not len(whole):
        raise ValueError("nothing to classify")
    times = np.asarray(seconds, dtype=float)
    predicted = np.array([learned.tree.nodes[leaf].number for leaf in learned.leaves(whole)])
    classes = learned.classes
    noise = 0.0 if math.isnan(classes.noise) else classes.noise
    in_range: list[Bools] = [(times >= c.fastest) & (times <= c.slowest) for c in classes.classes]
    near = [(times >= c.fastest * (1 - noise)) & (times <= c.slowest * (1 + noise)) for c in classes.classes]
    limits = [-math.inf, *(b.seconds for b in classes.boundaries), math.inf]
    between = [(times > limits[k]) & (times <= limits[k + 1]) for k in range(len(classes.classes))]
    each = tuple(
        ClassAccuracy(
            c.number,
            int((predicted == k).sum()),
            int((in_range[k] & (predicted == k)).sum()),
            c.width,
            c.width / classes.noise,
        )
        for k, c in enumerate(classes.classes)
    )

    def share(ranges: Sequence[Bools]) -> float:
        return float(sum((ranges[k] & (predicted == k)).sum() for k in range(len(ranges))) / len(times))

    chance = sum(c.classified / len(times) * float(in_range[k].mean()) for k, c in enumerate(each))
    constant = max(float(inside.mean()) for inside in in_range)
    return Accuracy(
        len(times), learned.measured, share(in_range), chance, constant, share(near), share(between), each
    )  # fmt: skip
