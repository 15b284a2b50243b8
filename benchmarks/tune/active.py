"""Samples that active learning saves: replays on tables of measurements that are no tuned files.

    python -m benchmarks.tune.active TABLE.csv[.xz]|TUNED.db... [--synthetic 2000] [--method tree] [--seeds 20]

As `dagc tune --evaluate --replay` does with a tuned file (`dagc.study.replay`). `--synthetic` makes a table by a
formula, of a product of matrices on two devices: it compares strategies, and says nothing about a machine.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.tune.variants import Table, read_table, tuned_tables
from dagc.study.cases import Sampling
from dagc.study.replay import replayed


def compare(table: Table, method: str, seeds: int, sampling: Sampling, most: int, goals: Sequence[float]) -> None:
    done = replayed(table.training(range(len(table.inputs))), method, seeds, sampling, most)
    print(
        f"\n{table.name}: {len(table.inputs)} inputs, {len(table.variants)} variants, method {method}, {seeds} seeds;"
        f" all {done.pool}: PPP {100 * done.full.penalty:.2f} %, PoIS {100 * done.full.ideal:.2f} %"
    )
    print("\n".join(done.lines(goals)), flush=True)


def synthetic(count: int, seed: int = 1, noise: float = 0.02) -> Table:
    """Times of C = A B by a formula: three versions on a CPU, three on a GPU behind a bus."""
    draw = random.Random(seed)
    vectors, times = [], []
    for _ in range(count):
        m, n, k = (round(2 ** draw.uniform(1, hi)) for hi in (13, 14, 14))
        sparsity = draw.uniform(0.6, 0.995)
        work, moved = 2.0 * m * n * k, 4.0 * (m * k + k * n + m * n)
        bus = 20e-6 + moved / 25e9
        at = {
            0: bus + 8e-6 + work / 3e12,
            1: bus + 15e-6 + work / 40e12,
            2: bus + 60e-6 + moved / 1e12 + work * (1 - sparsity) / 4e12,
            3: 1e-7 + work / 2e9,
            4: 4e-6 + work / 600e9,
            5: 1e-6 + 4 * m * k / 8e9 + work * (1 - sparsity) / 8e9,
        }
        vectors.append((float(m), float(n), float(k), sparsity, work, moved))
        times.append({a: t * math.exp(draw.gauss(0, noise)) for a, t in at.items()})
    names = tuple(f"{m} {n} {k} {s:.4f}" for m, n, k, s, *_ in vectors)
    variants = ("gpu.naive", "gpu.blas", "gpu.sparse", "cpu.naive", "cpu.blas", "cpu.sparse")
    features = ("m", "n", "k", "sparsity", "work", "moved")
    return Table("synthetic", names, names, (0.0,) * count, features, tuple(vectors), variants, tuple(times))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="*")
    parser.add_argument("--synthetic", type=int, default=0, metavar="N")
    parser.add_argument("--method", default="tree")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--samples", type=int, default=0, help="labelled at most (default: a half of the table)")
    parser.add_argument("--initial", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--margin", type=float, default=0.5)
    parser.add_argument("--goal", type=float, action="append", default=[], help="PPP in percent")
    args = parser.parse_args()
    tables = [t for p in args.tables for t in (tuned_tables(p) if p.suffix == ".db" else [read_table(p)])]
    for table in (*tables, *([synthetic(args.synthetic)] if args.synthetic else ())):
        most = args.samples or len(table.inputs) // 2
        sampling = Sampling.of(most, args.initial, args.batch, args.margin)
        compare(table, args.method, args.seeds, sampling, most, [g / 100 for g in args.goal])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
