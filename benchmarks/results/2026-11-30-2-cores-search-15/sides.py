"""Intervals of the least of ten confirmed medians whose margins follow the repeats: python sides.py SEED DRAWS

Margins below and above a median are between equal ones and those in the ratio of the spreads above and below of medians
drawn from the residuals of all repeats, and STUDENT standard deviations wide in place of 1.96. Prints for each kind of
noise how often the interval holds the truth, % (mean of four spreads of the truths, then each), and its width, %, as it
is and with these margins.
"""

import json
import math
import sys
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean, median

from benchmarks.machines.intervals import NOISES, _centres, share
from dagc.base.statistics import shrunk

STUDENT, NUMBER, REPEATS = 2.06, 10, 5


def sides(series):
    """By what the margins below and above are multiplied."""
    left = sorted(value - median(values) for values in series for value in values)
    rank = NormalDist(0.5, 0.5 / math.sqrt(min(map(len, series)) + 2))  # of the median, as a share of the residuals
    reached = [rank.cdf(i / len(left)) for i in range(len(left) + 1)]
    square = [(after - before) * v * v for (before, after), v in zip(pairwise(reached), left, strict=True)]
    below, above = (math.sqrt(sum(s for s, v in zip(square, left, strict=True) if sign * v > 0)) for sign in (-1, 1))
    both = math.hypot(below, above) / math.sqrt(2)
    return ((1 + above / both) / 2, (1 + below / both) / 2) if both else (1.0, 1.0)


def intervals(series, which):
    """As it is, and with these margins."""
    estimate, low, high = shrunk(series)[which]
    wider, (down, up) = STUDENT / 1.96, sides(series)
    return (low, high), (estimate - wider * down * (estimate - low), estimate + wider * up * (high - estimate))


def drawn(seed, draws):
    for noise, of in NOISES.items():
        rows = []
        for spread in (0, 0.003, 0.01, 0.02):
            found = []
            for draw in range(draws):
                random = Random(f"{seed} {spread} {noise} {draw}")
                factors = of(random)
                truths = [1 + abs(random.gauss(0, spread)) for _ in range(NUMBER)]
                series = [[] for _ in truths]
                for _ in range(REPEATS):
                    for one, truth in zip(series, truths, strict=True):
                        one.append(truth * next(factors))
                best = min(range(NUMBER), key=lambda i: median(series[i]))
                true = truths[best] * _centres(noise)[0]
                found.append([(low <= true <= high, high - low) for low, high in intervals(series, best)])
            rows.append(found)
        for name, one in (("as it is", 0), ("margins by repeats", 1)):
            held = [100 * fmean(f[one][0] for f in found) for found in rows]
            width = 100 * fmean(f[one][1] for found in rows for f in found)
            print(
                f"{noise:10}{name:20}{fmean(held):5.1f}  {' '.join(f'{h:.1f}' for h in held)}  {width:.2f}", flush=True
            )


def searched(path):
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    for noise in (*NOISES, "all"):
        some = [r for r in rows if noise in (r["noise"], "all")]
        for name in ("as it is", "margins by repeats"):
            held = [low <= r["truth"] * _centres(r["noise"])[0] <= high for r in some for low, high in [r[name]]]
            width = 100 * fmean((r[name][1] - r[name][0]) / r["value"] for r in some)
            print(f"{noise:10}{name:20}{len(some)}  {share(held)}  {width:.2f}")


if __name__ == "__main__":
    searched(sys.argv[1]) if sys.argv[1].endswith(".jsonl") else drawn(sys.argv[1], int(sys.argv[2]))
