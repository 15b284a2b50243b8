"""How often the printed 95 % interval of a search's result holds the true time, on four kinds of noise.

    python -m benchmarks.machines.intervals [--seeds 20]

Uniform searches of 60 measurements on six synthetic SpMV machines, whose best ten are then confirmed, as `dagc explore`
does. The noise is about 2 %: normal; skewed; with two humps (a third of measurements is 5 % slower); bursty
(3 to 10 measurements in a row are 8 % slower). The result is a median, so the truth is the median of what is measured
of the chosen implementation; `mean` is how often the interval holds its mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from random import Random
from statistics import fmean, median

from benchmarks.machines.evaluate import drawn, strategy_of
from dagc.base.sample import Sample
from dagc.lab.candidate import Candidate
from dagc.lab.engine import UNKEPT, SearchOptions, explore

BUDGET, MACHINES, DRAWN = 60, 6, 200_000


def _normal(random: Random) -> Iterator[float]:
    while True:
        yield 1 + random.gauss(0, 0.02)


def _skewed(random: Random) -> Iterator[float]:
    while True:
        yield 1 + random.expovariate(50)


def _humped(random: Random) -> Iterator[float]:
    while True:
        yield (1 if random.random() < 0.7 else 1.05) * (1 + random.gauss(0, 0.005))


def _bursty(random: Random) -> Iterator[float]:
    left = 0
    while True:
        left = left - 1 if left else random.randint(3, 10) if random.random() < 0.03 else 0
        yield (1.08 if left else 1) * (1 + random.gauss(0, 0.01))


NOISES: dict[str, Callable[[Random], Iterator[float]]] = {
    "normal": _normal, "skewed": _skewed, "two humps": _humped, "bursty": _bursty,
}  # fmt: skip


@lru_cache(None)
def _centres(noise: str) -> tuple[float, float]:
    """Median and mean of a factor."""
    factors = list(islice(NOISES[noise](Random(1)), DRAWN))
    return median(factors), fmean(factors)


class _Machine:
    def __init__(self, seed: int, factors: Iterator[float]) -> None:
        self.truth, self.factors = lru_cache(None)(drawn(seed).truth), factors

    def measure(self, candidate: Candidate) -> Sample:
        return Sample(self.truth(candidate) * next(self.factors))


def held(seed: int, noise: str, number: int) -> tuple[bool, bool, float]:
    """Of one search: whether the interval holds the median, and the mean, of its choice; its relative width."""
    machine, domain = _Machine(seed, NOISES[noise](Random(f"{seed} {noise} {number}"))), drawn(seed).domain
    strategy = strategy_of("random", domain, number)
    done = explore(domain, strategy, machine, UNKEPT, SearchOptions(budget=BUDGET, seed=number))
    assert done.best is not None
    truth = machine.truth(done.best)
    at_median, at_mean = (done.low <= truth * centre <= done.high for centre in _centres(noise))
    return at_median, at_mean, (done.high - done.low) / done.value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="searches of each machine and noise (default: 20)")
    args = parser.parse_args()
    machines = [seed for seed in range(1000, 1200, 2) if drawn(seed).program == "spmv"][:MACHINES]
    print("| noise | searches | median held | mean held | width |\n|---|---|---|---|---|")
    for noise in NOISES:
        found = [held(seed, noise, number) for seed in machines for number in range(args.seeds)]
        shares = [100 * fmean(column) for column in zip(*found, strict=True)]
        cells = " | ".join(f"{share:.1f} %" for share in shares)
        print(f"| {noise} | {len(found)} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
