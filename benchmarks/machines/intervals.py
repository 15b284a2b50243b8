"""How often the printed 95 % interval of a search's result holds the true time, on four kinds of noise.

    python -m benchmarks.machines.intervals [--seeds 20] [--until] [--jobs N]

Uniform searches of 60 measurements on six synthetic SpMV machines, whose best ten are then confirmed, as `dagc explore`
does. The noise is about 2 %: normal; skewed; with two humps (a third of measurements is 5 % slower); bursty
(3 to 10 measurements in a row are 8 % slower). The result is a median, so the truth is the median of what is measured
of the chosen implementation; `mean` is how often the interval holds its mean.

With --until, default searches that end by themselves (at most 200 measurements), on 16 machines that were not looked
at, with effects of what runs next to what, four of each program but the halo exchange; `off`: of those that ended, how
many left something faster by more than UNTIL.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import islice
from random import Random
from statistics import fmean, median
from typing import NamedTuple

from benchmarks.machines.evaluate import drawn, strategy_of, truth
from benchmarks.machines.family import EFFECTS
from benchmarks.rules_chance import wilson
from dagc.base.sample import Sample
from dagc.lab.candidate import Candidate
from dagc.lab.engine import UNKEPT, SearchOptions, explore
from dagc.study.outcome import UNTIL

BUDGET, MACHINES, DRAWN = 60, 6, 200_000
ENDING, UNSEEN = 200, 20  # with --until: measurements at most; machines with the halo exchanges among them


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


class Result(NamedTuple):
    """Of one search: whether the interval holds the median, and the mean, of its choice; its relative width; whether it
    ended by itself; the true loss of its choice (NaN: not known)."""

    at_median: bool
    at_mean: bool
    width: float
    ended: bool
    loss: float


def held(seed: int, noise: str, number: int, best: float | None = None) -> Result:
    """A uniform search; with the smallest exact time of the machine, a default one that ends by itself."""
    machine, domain = _Machine(seed, NOISES[noise](Random(f"{seed} {noise} {number}"))), drawn(seed).domain
    options = SearchOptions(budget=BUDGET, seed=number)
    if best is not None:
        options = SearchOptions(budget=ENDING, until=UNTIL, seed=number)
    strategy = strategy_of("random" if best is None else "default", domain, number)
    done = explore(domain, strategy, machine, UNKEPT, options)
    assert done.best is not None
    true = machine.truth(done.best)
    at_median, at_mean = (done.low <= true * centre <= done.high for centre in _centres(noise))
    loss = math.nan if best is None else true / best - 1
    return Result(at_median, at_mean, (done.high - done.low) / done.value, not math.isnan(done.doubt), loss)


def on_machine(job: tuple[int, int, bool]) -> dict[str, list[Result]]:
    """Of one machine: its searches, by kind of noise."""
    seed, seeds, until = job
    best = truth((seed, 0))[1] if until else None
    return {noise: [held(seed, noise, number, best) for number in range(seeds)] for noise in NOISES}


def share(hits: Sequence[bool]) -> str:
    """In percent, with the 95 % interval of a binomial share."""
    low, high = wilson(sum(hits), len(hits))
    return f"{100 * fmean(hits):.1f} % ({100 * low:.0f} to {100 * high:.0f})"


def row(noise: str, found: Sequence[Result], until: bool) -> str:
    cells = [noise, str(len(found))]
    if until:
        ended = [one for one in found if one.ended]
        off = [one.loss > UNTIL / (1 - UNTIL) for one in ended]
        cells += [str(len(ended)), f"{sum(off)}: {share(off)}" if off else "-"]
        cells += [f"{100 * fmean(one.loss for one in found):.2f} %"]
    cells += [share([one.at_median for one in found]), share([one.at_mean for one in found])]
    return f"| {' | '.join(cells)} | {100 * fmean(one.width for one in found):.1f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="searches of each machine and noise (default: 20)")
    parser.add_argument("--until", action="store_true", help="searches that end by themselves")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    machines = [seed for seed in range(EFFECTS, EFFECTS + 200, 2) if drawn(seed).program == "spmv"][:MACHINES]
    columns = ["noise", "searches", "median held", "mean held", "width"]
    if args.until:
        unseen = range(EFFECTS + 1, EFFECTS + 1 + 2 * UNSEEN, 2)
        machines = [seed for seed in unseen if drawn(seed).program != "halo"]
        columns[2:2] = ["ended", "off", "loss, mean"]
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(args.jobs) as pool:
        found = list(pool.map(on_machine, [(seed, args.seeds, args.until) for seed in machines]))
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for noise in NOISES:
        print(row(noise, [one for each in found for one in each[noise]], args.until), flush=True)


if __name__ == "__main__":
    main()
