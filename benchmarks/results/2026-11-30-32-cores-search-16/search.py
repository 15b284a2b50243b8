"""Searches of synthetic machines with variants of the model, a line of JSON each; searches.csv.xz was made from these.

python search.py OUT JOBS SET SEEDS VARIANT[,VARIANT] FIRST_SEED      (in a checkout of 905be3b4 or later)

Sets: small, halo (with effects of neighbours), plain, haloplain (without); odd...: machines that were not looked at.
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from random import Random
from statistics import median

import benchmarks.machines.evaluate as evaluate
import dagc.lab.model.estimate as estimate
import dagc.lab.strategies.model as model
from dagc.base.sample import Sample

os.environ["OMP_NUM_THREADS"] = "1"
VARIANTS = {"base": {"OWNS": (0.0,), "MOST_TIMES": 4}, "own12": {"MOST_TIMES": 12}}
SETS = {
    "small": ([m for m in range(1000, 1400, 2) if m % 10 != 2], 200),
    "plain": ([m for m in range(0, 200, 2) if m % 10 != 2], 200),
    "halo": (range(1002, 1402, 10), 300), "haloplain": (range(2, 102, 10), 300),
    "oddsmall": ([m for m in range(1405, 1605, 2) if m % 10 != 3], 200),
    "oddplain": ([m for m in range(405, 505, 2) if m % 10 != 3], 200),
    "oddhalo": (range(1403, 1603, 10), 300), "oddhaloplain": (range(403, 503, 10), 300),
}  # fmt: skip
USUAL = {name: getattr(of, name) for of in (estimate, model) for name in ("OWNS", "MOST_TIMES") if hasattr(of, name)}


def search(job):
    variant, seed, number, budget = job
    for name, value in {**USUAL, **VARIANTS[variant]}.items():
        setattr(estimate if hasattr(estimate, name) else model, name, value)
    machine = evaluate.drawn(seed)
    strategy = evaluate.strategy_of("model", machine.domain, number)
    factors = machine.noise.factors(Random(1000 * seed + number))
    exact, choices = {}, []
    for _ in range(budget):
        if (candidate := strategy.propose()) is None:
            break
        exact.setdefault(candidate, machine.truth(candidate))
        strategy.observe(candidate, Sample(exact[candidate] * next(factors)))
        choices.append(exact[strategy.best()])
    short = list(strategy.ranked(10))
    times = {c: [] for c in short}
    for _ in range(5):
        for c in short:
            times[c].append(exact[c] * next(factors))
    confirmed = exact[min(short, key=lambda c: median(times[c]))]
    return {"variant": variant, "machine": seed, "seed": number, "choices": choices, "confirmed": confirmed,
            "shortlist": min(map(exact.get, short)), "measured": min(exact.values())}  # fmt: skip


if __name__ == "__main__":
    out, jobs, machines, seeds, names, first = sys.argv[1:7]
    numbers, budget = SETS[machines]
    runs = [(v, m, n, budget) for m in numbers for n in range(int(first), int(first) + int(seeds))
            for v in names.split(",")]  # fmt: skip
    with ProcessPoolExecutor(int(jobs)) as pool, open(out, "a") as file:
        for one in pool.map(search, runs, chunksize=2):
            file.write(json.dumps(one) + "\n")
