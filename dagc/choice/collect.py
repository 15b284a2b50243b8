"""Cases at which hardware counters are read: sizes and settings (KLARAPTOR's step 1, data collection).

Sizes form a Latin hypercube over the ranges of the requested sizes, in logarithms, so that most are not powers of two;
no product of sizes exceeds the largest requested one. Different settings are drawn at each size. All numbers of lanes
of a warp along x are equally frequent, since memory instructions depend mostly on that.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np

from dagc.base.errors import UsageError
from dagc.choice.types import Case, Unit
from dagc.ir.choice import Choice
from dagc.perf.fit import sample_points

WARP = 32
SIZES = 12  # sampled, for each program
SETTINGS = 12  # at each size, for each kernel


def sizes_to_count(cases: Sequence[Case], seed: int, n: int = SIZES) -> tuple[Case, ...]:
    """Up to `n` sizes; fewer if the ranges do not contain as many. A parameter with one value varies from half to twice
    that value; one below 2 is kept."""
    values: dict[str, list[int]] = {}
    for case in cases:
        for name, value in case.sizes.items():
            values.setdefault(name, []).append(value)
    ranges = {k: (min(v), max(v)) for k, v in values.items()}
    ranges = {k: (max(1, a // 2), 2 * b) if a == b and a > 1 else (a, b) for k, (a, b) in ranges.items()}
    if not ranges:
        return tuple(cases)
    largest = max(_product(p.sizes) for p in cases)
    names = list(ranges)

    def keep(rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows.astype(float).prod(axis=1) <= largest)

    for wanted in range(n, 0, -1):
        try:
            rows = sample_points(ranges, wanted, seed, keep=keep)
        except UsageError:
            continue
        return tuple(Case.of(dict(zip(names, map(int, row), strict=True))) for row in rows)
    return tuple(cases)


def _product(sizes: Mapping[str, int]) -> float:
    return math.prod(map(float, sizes.values()))


def settings_to_count(
    unit: Unit, settings: Sequence[Choice], draw: random.Random, n: int = SETTINGS
) -> tuple[Choice, ...]:
    """`n` of the settings; the numbers of lanes along x take turns."""
    axis = next((t.name for t in unit.tunables if t.axis == "x"), None)
    groups: dict[int, list[Choice]] = {}
    for s in settings:
        groups.setdefault(min(WARP, int(s.own[axis])) if axis else 0, []).append(s)
    for group in groups.values():
        draw.shuffle(group)
    out: list[Choice] = []
    turns = list(groups.values())
    draw.shuffle(turns)
    while len(out) < n and any(turns):
        for group in turns:
            if group and len(out) < n:
                out.append(group.pop())
    return tuple(out)
