"""How often the interval of the least of ten confirmed medians holds the truth, by kind of noise: python coverage.py

Ten truths 1 + |normal(0, spread)|, five measurements of each in turn with the noises of benchmarks.machines.intervals,
1500 draws. `present`: dagc.base.statistics.shrunk. `pooled`: the variance of a median is that of medians drawn from the
residuals of all measurements, not that of normal noise. `split`: the margins are in the ratio of the spreads of
these medians below and above; `half`: half of the way to it.
"""

import math
from functools import cache
from random import Random
from statistics import fmean, median

import numpy as np
from scipy.stats import beta

from benchmarks.machines.intervals import NOISES, _centres
from dagc.base.statistics import noise_floor, shrunk

NUMBER, REPEATS, DRAWS = 10, 5, 1500


@cache
def weights(number):
    """How likely each of so many ordered residuals is the median of REPEATS draws."""
    k = (REPEATS + 1) / 2
    return np.diff(beta.cdf(np.linspace(0, 1, number + 1), k, k))


def intervals(series):
    now = shrunk(series)
    residuals = np.array(sorted(v - median(s) for s in series for v in s))
    weight = weights(len(residuals))
    below, above = (math.sqrt(weight @ side(residuals, 0) ** 2) for side in (np.minimum, np.maximum))
    each = math.sqrt((below**2 + above**2) / 2) or 1.0
    out = {"present": now}
    for name, part in (("half", 0.5), ("split", 1.0)):
        down, up = (1 + part * (side / each - 1) for side in (above, below))
        out[name] = [(e, e - (e - low) * down, e + (high - e) * up) for e, low, high in now]
    centre = weight @ residuals
    variance = float(weight @ (residuals - centre) ** 2) * REPEATS / (REPEATS - 1)
    # As many measurements of normal noise as have that variance: the same formula.
    mean = fmean(median(s) for s in series)
    factor = math.sqrt(variance / (1.5 * (noise_floor(series) * mean) ** 2 / REPEATS))
    out["pooled"] = pooled(series, factor)
    return out


def pooled(series, factor):
    medians = [median(s) for s in series]
    mean, n = fmean(medians), len(medians)
    each = 1.5 * (factor * noise_floor(series) * mean) ** 2 / REPEATS
    kept = 1 - min(1.0, (n - 3) / (n - 1) * each / (sum((m - mean) ** 2 for m in medians) / (n - 1)))
    out = []
    for off in (m - mean for m in medians):
        variance = each * (1 - (1 - kept) * (n - 1) / n) + 2 / (n - 3) * ((1 - kept) * off) ** 2
        out.append((mean + kept * off, *(mean + kept * off + s * 1.96 * math.sqrt(variance) for s in (-1, 1))))
    return out


def main():
    print("% of draws with the truth below, within, above the interval; its width, %")
    for spread in (0, 0.003, 0.01, 0.02):
        for noise, of in NOISES.items():
            found = {}
            for draw in range(DRAWS):
                random = Random(f"{spread} {noise} {draw}")
                factors = of(random)
                truths = [1 + abs(random.gauss(0, spread)) for _ in range(NUMBER)]
                series = [[] for _ in truths]
                for _ in range(REPEATS):
                    for one, truth in zip(series, truths, strict=True):
                        one.append(truth * next(factors))
                best = min(range(NUMBER), key=lambda i: median(series[i]))
                true = truths[best] * _centres(noise)[0]
                for name, all_of in intervals(series).items():
                    _, low, high = all_of[best]
                    found.setdefault(name, []).append((true < low, low <= true <= high, true > high, high - low))
            for name, rows in found.items():
                print(
                    f"{spread:.3f} {noise:10}{name:8}",
                    *(f"{100 * fmean(c):5.1f}" for c in zip(*rows, strict=True)),
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
