"""Statistics of measurements, as templates/runtime/dagc/measure.hpp has them."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from dagc.run.bench import BenchResult


def median_interval(n: int) -> tuple[int, int]:
    """Ranks (from 0) of the order statistics that hold the median with at least 95% confidence.

    The largest r with P(Binomial(n, 1/2) < r) <= 2.5%; distribution-free. With fewer than 6 values, all of them.
    """
    below, rank = 0.0, 0
    for k in range(n // 2):
        below += comb(n, k) / 2**n
        if below > 0.025:
            break
        rank = k
    return rank, n - 1 - rank


def describe(seconds: Sequence[float], ranks: int) -> BenchResult:
    """Of measurements in seconds per iteration, in the order taken."""
    values = np.sort(np.asarray(seconds, dtype=float))
    low, high = median_interval(len(values))
    spread = float(values.std(ddof=1) / values.mean()) if len(values) > 1 else 0.0
    return BenchResult(
        ranks, float(np.median(values)), float(values[low]), float(values[high]), float(values[0]),
        float(values[-1]), spread, len(values), {"time": {"unit": "s", "seconds": list(seconds)}},
    )  # fmt: skip
