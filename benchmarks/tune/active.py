"""Samples that active learning saves: replays on tables of measurements that are no tuned files.

    python -m benchmarks.tune.active TABLE.csv[.xz]|TUNED.db... [--synthetic 2000] [--method tree] [--seeds 20] [--join]
        [--published]

As `dagc tune --evaluate --replay` does with a tuned file (`dagc.study.replay`), and which number of samples reaches the
PPP of the publication's selector, one decision tree of the fastest versions, trained on all inputs: that is its
reduction of 1. `--join`: of the tables one, with the inputs of all. `--published`: with that selector (scikit-learn's
tree, unlimited); Algorithm 1 as published, which labels nothing more where no margin is below the threshold, beside
that of `dagc tune --active`, which fills its batches with the smallest margins, and beside random inputs.
`--synthetic` makes a table by a formula, of a product of matrices on two devices: it compares strategies, and says
nothing about a machine.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.tune.variants import Table, read_table, tuned_tables
from dagc.study.cases import Sampling
from dagc.study.replay import WITHIN, HeldOutSplit, replayed
from dagc.study.sampling import guide
from dagc.study.train import TrainingTable

CUT = 8  # times the fastest: what a version counts as that was not measured


def compare(table: Table, method: str, seeds: int, sampling: Sampling, most: int, goals: Sequence[float]) -> None:
    """Prints the quality by labelled inputs, and how many reach `goals`, and the PPP of the publication's selector."""
    rows = table.training(range(len(table.inputs)))
    done = replayed(rows, method, seeds, sampling, most)
    splits = [HeldOutSplit.of(len(rows.rows), seed) for seed in range(seeds)]
    tree = fmean(penalty(rows, one.pool, one.test) for one in splits)
    print(
        f"\n{table.name}: {len(table.inputs)} inputs, {len(table.variants)} variants, method {method}, {seeds} seeds;"
        f" all {done.pool}: PPP {100 * done.full.penalty:.2f} %, PoIS {100 * done.full.ideal:.2f} %;"
        f" one decision tree of all {done.pool}: PPP {100 * tree:.2f} %"
    )
    print("\n".join(done.lines([*goals, tree])), flush=True)


def published(table: Table, seeds: int, sampling: Sampling) -> None:
    """Prints the PPP by labelled inputs, means over the seeds."""
    rows = table.training(range(len(table.inputs)))
    splits = [HeldOutSplit.of(len(rows.rows), seed) for seed in range(seeds)]
    pool, full = len(splits[0].pool), fmean(penalty(rows, one.pool, one.test) for one in splits)
    print(
        f"\n{table.name}: {len(rows.rows)} inputs, one decision tree, {seeds} seeds; all {pool}: PPP {100 * full:.2f} %"
    )
    for strategy in ("published", "filled", "random"):
        curves, ends = [], []
        for seed, split in enumerate(splits):
            labelled, draw = list(split.pool[: sampling.initial]), random.Random(f"{seed} {strategy}")
            curve = [penalty(rows, labelled, split.test)]
            while batch := next_of(strategy, rows, split.pool, labelled, sampling, draw):
                labelled += batch
                curve.append(penalty(rows, labelled, split.test))
            curves.append(curve)
            ends.append(len(labelled))
        longest = max(map(len, curves))
        means = [fmean(curve[min(k, len(curve) - 1)] for curve in curves) for k in range(longest)]
        counts = [min(pool, sampling.initial + k * sampling.batch) for k in range(longest)]
        high = max((k for k, mean in enumerate(means) if mean > WITHIN[1] * full), default=-1)
        reached = f"{counts[high + 1]} ({pool / counts[high + 1]:.1f})" if high + 1 < longest else "never"
        curve = ", ".join(f"{n} {100 * mean:.2f}" for n, mean in zip(counts[::2], means[::2], strict=True))
        print(
            f"  {strategy:9} within 10 % from {reached}; ends at {sorted(ends)[seeds // 2]}; PPP at {curve}", flush=True
        )


def penalty(rows: TrainingTable, labelled: Sequence[int], test: Sequence[int]) -> float:
    """The PPP at the test inputs of a decision tree of the fastest versions at the labelled ones."""
    from sklearn.tree import DecisionTreeClassifier

    best = [min(at, key=at.__getitem__) for at in rows.times]
    tree = DecisionTreeClassifier(random_state=0)
    tree.fit([rows.features[i] for i in labelled], [best[i] for i in labelled])
    said = map(int, tree.predict([rows.features[i] for i in test]))
    return fmean(rows.times[i].get(a, CUT * rows.times[i][best[i]]) / rows.times[i][best[i]] - 1
                 for i, a in zip(test, said, strict=True))  # fmt: skip


def next_of(
    strategy: str, rows: TrainingTable, pool: Sequence[int], labelled: Sequence[int], sampling: Sampling,
    draw: random.Random,
) -> Sequence[int]:  # fmt: skip
    """What is labelled next."""
    left = [i for i in pool if i not in labelled]
    draw.shuffle(left)
    known = rows.only(labelled)
    one = None if strategy == "random" or not left else guide(known.features, known.times, draw.randrange(2**31))
    if one is None:
        return left[: sampling.batch]
    margins = dict(zip(left, one.margins([rows.features[i] for i in left]), strict=True))
    unsure = [i for i in left if margins[i] < sampling.margin]
    rest = sorted((i for i in left if margins[i] >= sampling.margin), key=lambda i: margins[i])
    return [*unsure, *(rest if strategy == "filled" else ())][: sampling.batch]


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
    parser.add_argument("--join", action="store_true")
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--goal", type=float, action="append", default=[], help="PPP in percent")
    args = parser.parse_args()
    tables = [t for p in args.tables for t in (tuned_tables(p) if p.suffix == ".db" else [read_table(p)])]
    if args.join:
        from benchmarks.gpu.devices import joined  # which imports this module

        tables = [joined(tables)]
    for table in (*tables, *([synthetic(args.synthetic)] if args.synthetic else ())):
        most = args.samples or len(table.inputs) // 2
        sampling = Sampling.of(most, args.initial, args.batch, args.margin)
        if args.published:
            published(table, args.seeds, sampling)
            continue
        compare(table, args.method, args.seeds, sampling, most, [g / 100 for g in args.goal])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
