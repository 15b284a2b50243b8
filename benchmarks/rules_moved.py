"""Rules for the fast end of one input, followed on another one of the same transport.

    python -m benchmarks.rules_moved [--jobs 2]

For each pair of the committed explorations of one transport (five inputs of the SpMV): the loss of the implementations
of the second that follow the rules of the first, against the best of the second; beside that of all its
implementations, and of those that follow its own rules. Medians of the followers of each pair.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dagc.learn.fast import fast_end
from dagc.learn.features import Samples
from dagc.learn.types import Rule
from dagc.study.loaded import Loaded

RECORDS = ROOT / "benchmarks/results/2026-11-21-4xh200-explore"
TRANSPORTS = ("mpi_cuda", "mpi_host", "mpi_host-ops", "nccl", "peer", "all")
INPUTS = ("150000", "1500000", "15000000", "bcsstk32", "cnr2000")


def losses(to: Loaded, rules: Sequence[Rule]) -> list[float]:
    """Of the implementations that follow the rules, ascending."""
    samples = to.samples()
    best = min(s.value for s in samples)
    return sorted(s.value / best - 1 for s, yes in zip(samples, Samples.of(samples).follow(rules), strict=True) if yes)


def of_transport(transport: str) -> str:
    """One line of the table."""
    files = {name: Loaded(RECORDS / f"spmv-{name}-{transport}.db") for name in INPUTS}
    rules = {name: (found.plain if (found := fast_end(file.samples())) else ()) for name, file in files.items()}
    moved, own, everything, none = [], [], [], 0
    for to, file in files.items():
        everything.append(median(losses(file, ())))
        own.append(median(losses(file, rules[to])))
        for source in INPUTS:
            found = losses(file, rules[source]) if source != to else []
            moved += [median(found)] if found else []
            none += source != to and not found
    worst = max(moved)
    cells = [fmean(moved), median(moved), worst, fmean(everything), fmean(own)]
    return f"| {transport} | {len(moved)} | {none} | " + " | ".join(f"{100 * value:.1f} %" for value in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    print("| transport | pairs | no follower | moved: mean | median | worst | all | own rules |")
    print("|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(args.jobs) as pool:
        for line in pool.map(of_transport, TRANSPORTS):
            print(line, flush=True)


if __name__ == "__main__":
    main()
