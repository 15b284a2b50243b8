"""Baselines for the choice of launch configurations: chance with the same budget, and one block for all kernels.

All of it is exact: expectations over random choices are sums over the measured times, not samples.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import comb
from pathlib import Path

from dagc.ir.choice import Choice

Times = Mapping[Choice, float]
KLARAPTOR = Path(__file__).parent / "klaraptor.csv"  # its table, as published in 2018


def best_of_random(times: Times, budget: int, default: Choice | None = None) -> dict[Choice, float]:
    """How likely each block is the fastest of `budget` different ones drawn at random; `default` is one of them where
    it is given."""
    order = sorted(times, key=lambda s: times[s])
    drawn = [s for s in order if s != default]
    count = min(budget - (default is not None), len(drawn))
    out = dict.fromkeys(order, 0.0)
    if count > 0:
        for i, setting in enumerate(drawn):
            out[setting] = comb(len(drawn) - 1 - i, count - 1) / comb(len(drawn), count)
    if default is not None:
        slower = [s for s in drawn if times[s] >= times[default]]
        out[default] = 1 - sum(p for s, p in out.items() if s not in slower) if count > 0 else 1.0
        for s in slower:
            out[s] = 0.0
    return out


def best_constant(many: Iterable[Times]) -> Choice:
    """The one block for all with the least geometric mean of t_chosen / t_best, among those that all have."""
    tables = list(many)
    shared = [s for s in tables[0] if all(s in times for times in tables)]
    return min(shared, key=lambda s: statistics.fmean(math.log(times[s] / min(times.values())) for times in tables))


def error_percent(times: Times, chosen: float) -> float:
    """(chosen - best) / (worst - best) in percent, as KLARAPTOR has it; `chosen` is a time."""
    low, high = min(times.values()), max(times.values())
    return 100 * (chosen - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors in percent of kernels with two-dimensional and with one-dimensional default blocks."""

    wide: tuple[float, ...]
    narrow: tuple[float, ...]

    def row(self, name: str) -> str:
        """Mean and median of each kind and of all, as a row of a table."""
        cells = [
            f"{statistics.fmean(e):.2f} / {statistics.median(e):.2f}" if e else "-"
            for e in (self.wide, self.narrow, self.wide + self.narrow)
        ]
        return f"| {name} | {' | '.join(cells)} |"


def published(path: Path = KLARAPTOR) -> Errors:
    """KLARAPTOR's own errors, a row for each kernel and size of its table."""
    with path.open(newline="") as file:
        rows = [(row["default"], float(row["error_percent"])) for row in csv.DictReader(file)]
    return Errors(
        tuple(error for default, error in rows if not default.endswith("x1")),
        tuple(error for default, error in rows if default.endswith("x1")),
    )
