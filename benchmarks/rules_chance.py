"""How often rules find classes where there are none: on implementations that are all equally fast, with made-up noise.

    python benchmarks/rules_chance.py [--trials 400] [--first SEED] [--sizes 60 200 600 2036] [--designs ...] [--jobs N]
                                      [--json F] [--markdown F]

A trial draws implementations of the SpMV's 2036, gives each measurement the time 1 plus noise, in the order in which a
design takes the measurements, and learns as `dagc rules` does. Two or more classes are an error, and so are rules for
the fast end: the table has their shares, with the 95 % interval (Wilson) of the former, and that of the labels without
the test of chance. Noise has a scale of 3 %:

normal   Gaussian
t3       Student's t with three degrees of freedom
skewed   log-normal, of one unit of its logarithm
bursty   normal; some fifteen measurements in a row, once in a hundred, are slower by 10 to 50 %

Designs, by how the measurements follow one another:

drawn       each implementation once, drawn uniformly (`--strategy random`)
in-order    each once, in the order of the enumeration (`--strategy exhaustive`)
passes      drawn, five passes, each shuffled (`--passes 5`)
same-order  five passes, each in the order of the enumeration
in-a-row    drawn, each implementation five times in a row
confirmed   drawn, each once, then the ten best four more times (what `dagc explore` does at its end)
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dagc.base.statistics import noise_floor
from dagc.ir.choice import Choice
from dagc.ir.traversal import Traversal
from dagc.learn.classes import Outliers, Repeats, classify_times
from dagc.learn.fast import fast_end
from dagc.learn.tree import classes_of
from dagc.learn.types import Example
from dagc.space import Space

NOISES = ("normal", "t3", "skewed", "bursty")
DESIGNS = ("drawn", "in-order", "passes", "same-order", "in-a-row", "confirmed")
SCALE = 0.03
PASSES = 5
BEST = 10
STEP = 20  # trials of a job


@cache
def implementations() -> tuple[Traversal, ...]:
    from tests.data.h200 import h200_graph

    return tuple(Space(h200_graph()))


def times_of(noise: str, count: int, random: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
    """So many times of one implementation, in the order in which they are taken."""
    match noise:
        case "t3":
            around = random.standard_t(3, size=count) * SCALE
        case "skewed":
            around = random.lognormal(0, 1, count) * SCALE
        case _:
            around = random.normal(size=count) * SCALE
    at = int(random.exponential(100)) if noise == "bursty" else count
    while at < count:
        end = at + 1 + int(random.exponential(15))
        around[at:end] += random.uniform(0.1, 0.5)
        at = end + 1 + int(random.exponential(100))
    return np.maximum(1 + around, 0.05)


def orders_of(design: str, count: int, random: np.random.Generator) -> list[list[int]]:
    """Of each implementation, the positions of its measurements among all."""
    if design == "in-a-row":
        return [list(range(PASSES * i, PASSES * (i + 1))) for i in range(count)]
    out: list[list[int]] = [[i] for i in range(count)]
    for number in range(1, PASSES if design in ("passes", "same-order") else 1):
        order = random.permutation(count) if design == "passes" else range(count)
        for place, i in enumerate(order):
            out[i].append(number * count + place)
    return out


def samples_of(noise: str, design: str, count: int, random: np.random.Generator) -> list[Example]:
    from tests.data.h200 import h200_graph

    graph, everything = h200_graph(), implementations()
    rows = random.choice(len(everything), count, replace=False)
    if design in ("in-order", "same-order"):
        rows = np.sort(rows)
    orders = orders_of(design, count, random)
    total = sum(map(len, orders))
    times = times_of(noise, total + (PASSES - 1) * BEST, random)
    if design == "confirmed":
        for place, i in enumerate(sorted(range(count), key=lambda i: times[orders[i][0]])[:BEST] * (PASSES - 1)):
            orders[i].append(total + place)
    return [
        Example(
            graph, Choice(()), everything[row], float(median(times[mine])), len(mine),
            tuple(float(t) for t in times[mine]), tuple(mine),
        )
        for row, mine in zip(rows, orders, strict=True)
    ]  # fmt: skip


def trial(noise: str, design: str, count: int, seed: int) -> tuple[bool, bool, bool]:
    """Two or more classes: as learned; and without the test of chance. Rules for the fast end."""
    random = np.random.default_rng([seed, count, NOISES.index(noise), DESIGNS.index(design)])
    samples = samples_of(noise, design, count, random)
    floor = noise_floor(s.times for s in samples)
    floor = SCALE if math.isnan(floor) else floor  # of the drift reference
    outliers = Outliers.of((s.times for s in samples), floor)
    learned = classes_of(samples, floor, outliers)
    repeats = Repeats(tuple(s.measurements for s in sorted(samples, key=lambda s: s.value)), outliers)
    untested = classify_times([s.value for s in samples], learned.noise, repeats=repeats)
    fast = fast_end(samples)
    return len(learned.classes) > 1, len(untested.classes) > 1, fast is not None and bool(fast.rules)


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    z, p = 1.96, hits / trials
    middle, half = p + z * z / (2 * trials), z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    return max(middle - half, 0.0) / (1 + z * z / trials), (middle + half) / (1 + z * z / trials)


def case(job: tuple[str, str, int, range]) -> tuple[int, int, int]:
    """How many trials have what `trial` returns."""
    noise, design, count, seeds = job
    found = [trial(noise, design, count, seed) for seed in seeds]
    tested, untested, ruled = (sum(column) for column in zip(*found, strict=True))
    return tested, untested, ruled


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    cases = [(n, d, s) for s in sorted(args.sizes, reverse=True) for d in args.designs for n in args.noises]
    end = args.first + args.trials
    jobs = [(*c, range(k, min(k + STEP, end))) for c in cases for k in range(args.first, end, STEP)]
    hits: dict[tuple[str, str, int], list[int]] = {c: [0, 0, 0] for c in cases}
    with ProcessPoolExecutor(args.jobs) as pool:
        for job, found in zip(jobs, pool.map(case, jobs), strict=True):
            hits[job[:3]] = [a + b for a, b in zip(hits[job[:3]], found, strict=True)]
    rows = []
    for (noise, design, count), (tested, untested, ruled) in hits.items():
        low, high = wilson(tested, args.trials)
        rows.append({
            "noise": noise, "design": design, "implementations": count, "trials": args.trials,
            "share": tested / args.trials, "low": low, "high": high, "untested": untested / args.trials,
            "fast_end": ruled / args.trials,
        })  # fmt: skip
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    out = [
        "Two or more classes where all implementations are equally fast, in % (95 % interval); the share that the",
        "labels alone would draw; rules for the fast end.\n",
        "| implementations | measured | noise | trials | two or more classes | without the test | fast end |",
        "|---|---|---|---|---|---|---|",
    ]
    out += [
        f"| {r['implementations']} | {r['design']} | {r['noise']} | {r['trials']} | {100 * r['share']:.1f} "
        f"({100 * r['low']:.1f} to {100 * r['high']:.1f}) | {100 * r['untested']:.0f} | {100 * r['fast_end']:.1f} |"
        for r in rows
    ]
    trials = sum(r["trials"] for r in rows)
    hits = sum(round(r["share"] * r["trials"]) for r in rows)
    ruled = sum(round(r["fast_end"] * r["trials"]) for r in rows)
    shares = f"{100 * hits / trials:.1f} % have classes, {ruled} rules for the fast end"
    return "\n".join(out) + f"\n\nOf all {trials} trials: {shares}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trials", type=int, default=400, help="of each row (default: 400)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the trials of each row (default: 0)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[60, 200, 600, 2036])
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=NOISES)
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=DESIGNS)
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--json", metavar="F")
    parser.add_argument("--markdown", metavar="F")
    args = parser.parse_args()
    rows = measure(args)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    text = markdown(rows)
    if args.markdown:
        Path(args.markdown).write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
