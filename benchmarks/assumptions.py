"""How well the simulation of `model` predicts recorded times, with the usual assumptions and with those it chooses.

    python benchmarks/assumptions.py RESULTS.db... [--measured 21 48] [--seeds 3] [--estimate]

Of each file some implementations are drawn by the seed. Costs are fitted to them under the usual assumptions, and under
those that explain them best (dagc.lab.model.calibrate); both predict 300 others. Printed: the correlation of predicted
with measured times, and the standard deviation of their difference relative to the mean time. With --estimate, the
error of `dagc rules --estimate` instead: one measurement of each of the drawn, all others judged. `tests/data`: the
2036 implementations of the SpMV recorded on four H200s by an independent program.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from random import Random

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.search import load
from dagc.ir.traversal import parse_traversal
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.model.calibrate import MeasuredRows, assumed, scaled
from dagc.lab.model.pool import Pool
from dagc.learn.types import Example
from dagc.space import Space
from dagc.study.loaded import estimated

JUDGED = 300  # implementations


def recorded(path: str) -> tuple[list[ConfiguredSpace], list[tuple[Candidate, float]]]:
    """The spaces of a results file, and its implementations with their medians in seconds."""
    results, graphs = load(path)
    spaces = [ConfiguredSpace(c, Space(g)) for c, g in graphs.items()]
    number = {s.configuration: i for i, s in enumerate(spaces)}
    out = []
    for found in results.measured():
        at = number[found.configuration]
        traversal = parse_traversal(found.traversal, spaces[at].graph, path)
        out.append((Candidate(at, traversal), found.value(results.reference)))
    return spaces, out


def row(path: str, seed: int, measured: int) -> str:
    """One line of the table."""
    spaces, data = recorded(path)
    Random(seed).shuffle(data)
    data = data[: measured + JUDGED]
    pool = Pool(spaces)
    pool.extend(candidate for candidate, _ in data)
    rows, times = np.array([pool.row[c] for c, _ in data]), np.array([t for _, t in data])
    known = MeasuredRows(rows[:measured], times[:measured], float(np.median(times[:measured])))
    others, true = rows[measured:], times[measured:]
    usual, chosen = scaled(pool, known), assumed(pool, known)
    cells = [_off(pool.times(usual.costs, others), true)]
    if chosen.pool.assumptions == pool.assumptions:
        cells += ["the usual", cells[0]]
    else:
        taken = chosen.pool.assumptions
        gpu = "one op at a time" if taken.exclusive else "shared"
        cells += [f"GPU {gpu}, messages {taken.messages.value}{' in parallel' if taken.parallel else ''}",
                  _off(pool.under(taken).times(chosen.costs, others), true)]  # fmt: skip
    return f"| {Path(path).stem} | {seed} | {measured} | {' | '.join(cells)} |"


def _off(predicted: np.ndarray, true: np.ndarray) -> str:
    return f"{np.corrcoef(predicted, true)[0, 1]:.3f}, {100 * np.std(predicted - true) / true.mean():.1f} %"


def estimate_row(path: str, seed: int, measured: int) -> str:
    """One line of the table with --estimate."""
    results, graphs = load(path)
    parsed = [(i, parse_traversal(i.traversal, graphs[i.configuration], path)) for i in results.measured()]
    Random(seed).shuffle(parsed)
    handed = [
        Example(graphs[i.configuration], i.configuration, traversal, i.samples[0].value, 1)
        for i, traversal in parsed[:measured]
    ]
    found = estimated(handed, results.noise)
    times = {(s.configuration, s.traversal): s.value for s in found.samples}
    others = [
        (times[key], i.value(results.reference)) for i, t in parsed[measured:] if (key := (i.configuration, t)) in times
    ]
    off = np.log([expected / true for expected, true in others])
    off -= np.median(off)  # a drift between the first measurements and the medians
    cells = f"{100 * np.median(abs(off)):.2f} % | {100 * np.sqrt(np.mean(off**2)):.2f} %"
    return f"| {Path(path).stem} | {seed} | {measured} | {100 * found.error:.2f} % | {cells} |"


def mean_row(path: str, measured: int, rows: list[str]) -> str:
    """The means over the seeds of the first and the last error of each row."""
    errors = [re.findall(r"([\d.]+) %", one) for one in rows]
    first, last = (np.mean([float(of[place]) for of in errors]) for place in (0, -1))
    return f"| {Path(path).stem} | mean | {measured} | {first:.1f} % | | {last:.1f} % |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("results", nargs="+", metavar="RESULTS")
    add("--measured", type=int, nargs="+", default=[21, 48])
    add("--seeds", type=int, default=3)
    add("--estimate", action="store_true", help="the error of `dagc rules --estimate`")
    args = parser.parse_args()
    columns = "usual assumptions | chosen | with these"
    if args.estimate:
        columns = "error that it states | median error | root mean square"
    print(f"| file | seed | measured | {columns} |\n|---|---|---|---|---|---|")
    for path in args.results:
        for measured in args.measured:
            rows = []
            for seed in range(args.seeds):
                rows.append((estimate_row if args.estimate else row)(path, seed, measured))
                print(rows[-1], flush=True)
            print(mean_row(path, measured, rows), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
