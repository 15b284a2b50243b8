"""Samples that active learning saves: replays on full tables of measurements.

    python -m benchmarks.tune.active TABLE.csv[.xz]|TUNED.db... [--synthetic 2000] [--method tree] [--seeds 20]

For each seed a tenth of the table is kept for judging. Of the rest, inputs are labelled, from the same random ones on:
in batches by Algorithm 1 of MLCD (`active`: candidates at random, kept where the guide's margin is below `--margin`),
in batches by Best-vs-Second-Best of the method itself (`bvsb`), or at random. After each batch the method is trained on
what is labelled, and judged at the kept inputs: PPP (mean of t_chosen / t_best - 1) and PoIS (sum of t_best over that
of t_chosen). `samples` are those from which on the mean PPP over the seeds stays at the target; `saved` is the whole
training part over that. `--synthetic` makes a table by a formula, of a product of matrices on two devices: it compares
strategies, and says nothing about a machine.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tune.variants import NOISE, Table, read_table, tuned_tables
from dagc.study.cases import Sampling
from dagc.study.judge import Figures, judge
from dagc.study.sampling import guide, uncertain
from dagc.study.train import trained

STRATEGIES = ("active", "bvsb", "random")


@dataclass(frozen=True, slots=True)
class Step:
    """After a batch: labelled inputs, PPP and PoIS at the kept ones."""

    samples: int
    penalty: float
    ideal: float


@dataclass(frozen=True, slots=True)
class Replay:
    """`looked`: candidates whose margin was computed. `steps`: the last one is where the strategy stopped."""

    steps: tuple[Step, ...]
    looked: int


@dataclass(frozen=True, slots=True)
class Split:
    """Numbers of the inputs to learn from, in random order, and of those to judge at."""

    pool: tuple[int, ...]
    test: tuple[int, ...]

    @classmethod
    def of(cls, count: int, seed: int, share: float = 0.1) -> Split:
        order = random.Random(f"{seed} split").sample(range(count), count)
        kept = max(1, round(share * count))
        return cls(tuple(order[kept:]), tuple(order[:kept]))


def judged(table: Table, split: Split, labelled: Sequence[int], method: str) -> Figures:
    selector = trained(table.training(labelled), method)
    said = [selector.choose(table.vectors[i]) if selector is not None else 0 for i in split.test]
    return judge([""] * len(said), [table.times[i] for i in split.test], said, 0, NOISE).all


def next_batch(
    table: Table, pool: Sequence[int], labelled: Sequence[int], strategy: str, size: int, margin: float, method: str,
    draw: random.Random,
) -> tuple[Sequence[int], int]:  # fmt: skip
    """What is labelled next, and how many candidates were looked at."""
    known = set(labelled)
    left = [i for i in pool if i not in known]
    draw.shuffle(left)
    if strategy == "random":
        return left[:size], 0
    if strategy == "active":
        guides = [
            guide([table.vectors[i] for i in labelled], [table.times[i] for i in labelled], draw.randrange(2**31))
        ]
        queue = list(left)

        def next_ones(count: int) -> list[int]:
            out = queue[:count]
            del queue[:count]
            return out

        batch = uncertain(guides, next_ones, lambda i: table.vectors[i], size, margin)
        return batch.inputs, batch.looked
    selector = trained(table.training(labelled), method)
    if selector is None:
        return left[:size], 0
    gap = {}
    for i in left:
        first, second, *_ = sorted((*selector.votes(table.vectors[i]).values(), 0.0, 0.0), reverse=True)
        gap[i] = first - second
    return sorted(left, key=lambda i: gap[i])[:size], len(left)


def replay(table: Table, split: Split, sampling: Sampling, strategy: str, method: str, seed: int, most: int) -> Replay:
    """Label until `most`, or until the strategy finds nothing more."""
    draw = random.Random(f"{seed} {strategy}")
    labelled = list(split.pool[: sampling.initial])
    steps, looked = [], 0
    while True:
        found = judged(table, split, labelled, method)
        steps.append(Step(len(labelled), found.regret, found.ideal))
        if len(labelled) >= most:
            break
        size = min(sampling.batch, most - len(labelled))
        batch, more = next_batch(table, split.pool, labelled, strategy, size, sampling.margin, method, draw)
        looked += more
        if not batch:
            break
        labelled += batch
    return Replay(tuple(steps), looked)


def mean_curve(replays: Sequence[Replay]) -> list[Step]:
    """The mean over the seeds at each number of samples; one that has stopped stays where it is."""
    out = []
    for count in sorted({s.samples for r in replays for s in r.steps}):
        at = [max((s for s in r.steps if s.samples <= count), key=lambda s: s.samples) for r in replays]
        out.append(Step(count, statistics.fmean(s.penalty for s in at), statistics.fmean(s.ideal for s in at)))
    return out


def reaches(curve: Sequence[Step], penalty: float) -> int | None:
    """The samples from which on the mean PPP stays at most so large."""
    high = [n for n, step in enumerate(curve) if step.penalty > penalty]
    first = high[-1] + 1 if high else 0
    return curve[first].samples if first < len(curve) else None


def compare(table: Table, method: str, seeds: int, sampling: Sampling, most: int, goals: Sequence[float]) -> None:
    splits = [Split.of(len(table.inputs), seed) for seed in range(seeds)]
    full = [judged(table, split, split.pool, method) for split in splits]
    penalty, pool = statistics.fmean(f.regret for f in full), len(splits[0].pool)
    print(
        f"\n{table.name}: {len(table.inputs)} inputs, {len(table.variants)} variants, method {method}, {seeds} seeds;"
        f" all {pool}: PPP {100 * penalty:.2f} %, PoIS {100 * statistics.fmean(f.ideal for f in full):.2f} %"
    )
    curves = {}
    for strategy in STRATEGIES:
        done = [
            replay(table, split, sampling, strategy, method, seed, min(most, pool)) for seed, split in enumerate(splits)
        ]
        curves[strategy] = mean_curve(done)
        ends = [r.steps[-1].samples for r in done]
        shown = curves[strategy][:: max(1, len(curves[strategy]) // 8)]
        line = ", ".join(f"{s.samples}: {100 * s.penalty:.2f}" for s in shown)
        print(
            f"{strategy:7} ended at {statistics.median(ends):g},"
            f" looked at {statistics.fmean(r.looked for r in done):.0f} candidates; PPP % by samples {line}",
            flush=True,
        )
    print("| PPP at most | " + " | ".join(f"{s}: samples (saved)" for s in STRATEGIES) + " |\n|---|---|---|---|")
    for goal in sorted({*goals, penalty, 1.1 * penalty, 1.25 * penalty}):
        cells = []
        for strategy in STRATEGIES:
            count = reaches(curves[strategy], goal)
            cells.append("not reached" if count is None else f"{count} ({pool / count:.1f} times)")
        times = f"{goal / penalty:.2f} times that of all" if penalty else "that of all"
        print(f"| {100 * goal:.2f} % ({times}) | " + " | ".join(cells) + " |", flush=True)


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
