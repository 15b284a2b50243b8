"""Whether an order or a stream of two ops explains what `grid` takes longer than predicted: `python residuals.py
FOLDER` at the root of a checkout, FOLDER with grid-cuda-2.db (unpacked), the ping-pong of grid as ping_pong.txt, and
SimGrid.

Rank correlation of measured less predicted (calibrated) times with the place of each op, which of two comes first, and
whether two share a stream; and the largest that 400 permutations of the same residuals have.
"""

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from benchmarks.simulated import SAMPLES, defines, platform, with_options
from dagc.base.signals import ENDLESS
from dagc.ir.traversal import Issue
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.store.records import load
from dagc.study.calibrated import calibration
from dagc.study.domain import replayed
from dagc.study.outcome import candidate_of
from dagc.study.simulated import simulated


def features(traversal):
    """By name: 1 or 0, or a place."""
    issues = [entry for entry in traversal.entries if isinstance(entry, Issue)]
    place = {entry.op: n for n, entry in enumerate(issues)}
    stream = {entry.op: entry.stream for entry in issues if entry.stream is not None}
    out = {f"place {op}": n for op, n in place.items()}
    out |= {f"{a} before {b}": place[a] < place[b] for a, b in combinations(sorted(place), 2)}
    return out | {f"same stream {a} {b}": stream[a] == stream[b] for a, b in combinations(sorted(stream), 2)}


def unit(ranks):
    centred = ranks - ranks.mean()
    return centred / np.linalg.norm(centred)


def main(folder):
    where, file = str(platform(folder)), str(folder / "grid-cuda-2.db")
    text = read(SAMPLES / "heat/grid.dag", defines("heat/grid.dag", "cuda"), True)
    options = ExploreOptions(replay=file, simulate=where, ranks=2, strategy="random", only="orders", quiet=True)
    request, program, domain, results, _ = replayed(text, options, ENDLESS)
    machine = simulated(request, program, domain, load(file), folder / "scratch")
    machine.factors = calibration(
        with_options(request, calibrate=where), program, domain, load(file), folder / "scratch"
    ).factors
    every = [(candidate_of(domain, one), one.value(results.reference)) for one in results.measured()]
    left = unit(rankdata([real - machine.measure(one).value for one, real in every]))
    of = [features(one.traversal) for one, _ in every]
    columns = {name: np.array([one[name] for one in of], float) for name in of[0]}
    columns = {name: unit(rankdata(column)) for name, column in columns.items() if column.std() > 0}
    table, random = np.array(list(columns.values())), np.random.default_rng(1)
    largest = [np.abs(table @ random.permutation(left)).max() for _ in range(400)]
    found = table @ left
    for n in np.argsort(-np.abs(found))[:5]:
        print(f"{found[n]:+.2f} {list(columns)[n]}")
    print(f"{len(columns)} features, largest {np.abs(found).max():.2f}; of permutations {np.median(largest):.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
