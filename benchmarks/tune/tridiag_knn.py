"""The sub-system size of the tridiagonal partition method, chosen by nearest neighbours: leave one size out.

    python -m benchmarks.tune.tridiag_knn TRIDIAG.csv.xz [AGAIN.csv.xz] [--tolerance 0.02]
    python -m benchmarks.tune.tridiag_knn FILE.csv.xz... --by depth

A cell that stands in several files is that of the last.
A choice is (m, chunks), with the block, the depth and whether it overwrites, where the files have several. For each
size left out, the tolerance, the labels and the model come from the others only; regret is t_chosen / t_best - 1 on raw
times. Accuracy: the predicted choice, or its m, is the one that the rule gives when all sizes are seen (corrected) or
the fastest (observed), or its time is within the tolerance of the best.
Beside it constant answers, the heuristic that the paper on this method gives for its GPU (m, with the best of the rest
here), and its protocol: shuffled, three quarters of the sizes train. `--by`: the fastest choice of each size for each
value of m, block, depth or overwrite, and what the best of them gains over the first; cells need not be complete.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagc.choice.methods import fit
from dagc.study.train import Interval, observed_labels, simplest_labels, tolerance_of

Pair = tuple[int, ...]  # values of NAMES, without those that are the same in all cells


DRAWS = 100
NAMES = ("m", "chunks", "block", "depth", "overwrite")
DEFAULTS = {"block": "256", "depth": "0", "overwrite": "0"}  # of files without the column
# From so many rows on, m of the heuristic for an RTX 2080 Ti, FP64: the corrected labels of Veneva (2025).
PUBLISHED = {"f64": {0: 4, 5000: 8, 30_000: 16, 60_000: 20, 80_000: 32, 20_000_000: 64}}
Sizes = dict[int, dict[Pair, float]]  # size -> (m, chunks) -> microseconds


@dataclass(frozen=True, slots=True)
class Measured:
    """One type's times, complete sizes only, and the (low, median, high) of each size's cells."""

    names: tuple[str, ...]
    times: Sizes
    intervals: dict[int, tuple[Interval, ...]]

    def tolerance(self, sizes: Iterable[int]) -> float:
        """The noise of a comparison at these sizes."""
        return tolerance_of(i for size in sizes for i in self.intervals[size])

    def labels(self, sizes: Sequence[int], tolerance: float | None, correct: bool) -> tuple[Pair, ...]:
        """One for each of the sizes, which ascend; nothing of other sizes is seen. `tolerance`: None for their own."""
        seen = [self.times[s] for s in sizes]
        if not correct:
            return observed_labels(seen)
        return simplest_labels(seen, self.tolerance(sizes) if tolerance is None else tolerance)

    def predicted(
        self, train: Sequence[int], test: Sequence[int], tolerance: float | None, correct: bool
    ) -> list[Pair]:
        """What is chosen at the sizes of `test` by neighbours that were trained on those of `train`."""
        labels = self.labels(train, tolerance, correct)
        known = sorted(set(labels))
        selector = fit("knn", ["n"], [[s] for s in train], [known.index(label) for label in labels])
        return [known[selector.choose([s])] for s in test]

    def regret(self, size: int, pair: Pair) -> float:
        return self.times[size][pair] / min(self.times[size].values()) - 1


Cells = dict[tuple[str, int, Pair], Interval]  # type, size, values of NAMES


def cells(paths: Sequence[Path]) -> Cells:
    """All verified cells; one that stands in several files is that of the last."""
    rows: Cells = {}
    for path in paths:
        with lzma.open(path, "rt") as file:
            for row in csv.DictReader(file):
                if row["verified"] == "True":
                    low, time, high = (float(row[name]) for name in ("low_us", "median_us", "high_us"))
                    pair = tuple(int((DEFAULTS | row)[name]) for name in NAMES)
                    rows[row["real"], int(row["size"]), pair] = (low, time, high)
    return rows


def varying(rows: Cells) -> list[int]:
    """The positions of NAMES that belong to a choice: not those with a default that have one value in all cells."""
    return [i for i, name in enumerate(NAMES) if name not in DEFAULTS or len({pair[i] for *_, pair in rows}) > 1]


def fastest(rows: Cells, name: str) -> list[str]:
    """A line for each type and size that has several values of a name."""
    at, open_ = NAMES.index(name), varying(rows)
    best: dict[tuple[str, int], dict[int, tuple[float, Pair]]] = {}
    for (real, size, pair), (_, time, _) in rows.items():
        of = best.setdefault((real, size), {})
        of[pair[at]] = min(of.get(pair[at], (time, pair)), (time, pair))
    values = sorted({value for of in best.values() for value in of})
    lines = [f"| | rows | {' | '.join(f'us, {name} {v}' for v in values)} | gain |"]
    lines.append("|" + "---|" * (3 + len(values)))
    for (real, size), of in sorted(best.items()):
        if len(of) > 1:
            own = {v: ", ".join(str(pair[i]) for i in open_) for v, (_, pair) in of.items()}
            words = [f"{of[v][0]:.1f} ({own[v]})" if v in of else "-" for v in values]
            gain = of[min(of)][0] / min(time for time, _ in of.values())
            lines.append(f"| {real} | {size:g} | {' | '.join(words)} | {gain:.2f} |")
    return lines


def read(paths: Sequence[Path]) -> dict[str, Measured]:
    """By type; a cell that stands in several files is that of the last."""
    rows = cells(paths)
    open_ = varying(rows)
    rows = {(real, size, tuple(pair[i] for i in open_)): interval for (real, size, pair), interval in rows.items()}
    found: dict[str, dict[int, dict[Pair, Interval]]] = {}
    for (real, size, pair), interval in rows.items():
        found.setdefault(real, {}).setdefault(size, {})[pair] = interval
    pairs = {real: {p for at in sizes.values() for p in at} for real, sizes in found.items()}
    full = {
        real: {s: at for s, at in sorted(sizes.items()) if len(at) == len(pairs[real])} for real, sizes in found.items()
    }
    return {
        real: Measured(
            tuple(NAMES[i] for i in open_),
            {s: {p: i[1] for p, i in at.items()} for s, at in sizes.items()},
            {s: tuple(at.values()) for s, at in sizes.items()},
        )
        for real, sizes in full.items()
    }


def evaluate(real: str, measured: Measured, tolerance: float | None) -> list[str]:
    """One size left out at a time, and constant answers. Right: within the tolerance of all sizes, which trains
    nothing."""
    times, sizes = measured.times, list(measured.times)
    judge = measured.tolerance(sizes) if tolerance is None else tolerance
    lines = []
    for name, correct in (("observed labels", False), ("corrected labels", True)):
        target = measured.labels(sizes, tolerance, correct)
        chosen = [measured.predicted([s for s in sizes if s != size], [size], tolerance, correct)[0] for size in sizes]
        lines.append(_row(real, f"trained on {name}", measured, chosen, target, judge))
    whole = measured.labels(sizes, tolerance, True)
    common = Counter(whole).most_common(1)[0][0]
    hindsight = best_constant(list(times.values()))
    unseen = [best_constant([times[s] for s in sizes if s != size]) for size in sizes]
    constant = [f"always {', '.join(map(str, pair))}" for pair in (hindsight, common)]
    lines += [
        _row(real, f"{constant[0]}: the best constant, in hindsight", measured, [hindsight] * len(sizes), whole, judge),
        _row(real, "the best constant of the other sizes", measured, unseen, whole, judge),
        _row(real, f"{constant[1]}: the most frequent label", measured, [common] * len(sizes), whole, judge),
    ]
    if real in PUBLISHED:
        wanted = [PUBLISHED[real][max(s for s in PUBLISHED[real] if s <= size)] for size in sizes]
        if all(any(m == p[0] for p in times[size]) for size, m in zip(sizes, wanted, strict=True)):
            best = [
                min((t, p) for p, t in times[s].items() if p[0] == m)[1] for s, m in zip(sizes, wanted, strict=True)
            ]
            lines.append(_row(real, "the published heuristic of an RTX 2080 Ti", measured, best, whole, judge))
    return lines


def _row(real: str, name: str, measured: Measured, chosen: Sequence[Pair], target: Sequence[Pair], judge: float) -> str:
    n = len(chosen)
    regrets = [measured.regret(size, pair) for size, pair in zip(measured.times, chosen, strict=True)]
    hits = sum(c == t for c, t in zip(chosen, target, strict=True))
    m_hits = sum(c[0] == t[0] for c, t in zip(chosen, target, strict=True))
    return (
        f"| {real} | {name} | {m_hits} of {n} | {hits} of {n} | {sum(r <= judge for r in regrets)} of {n} |"
        f" {statistics.fmean(regrets):.2%} | {max(regrets):.2%} |"
    )


def best_constant(many: Sequence[Mapping[Pair, float]]) -> Pair:
    """The one pair for all sizes with the least mean regret."""
    return min(sorted(many[0]), key=lambda p: statistics.fmean(at[p] / min(at.values()) - 1 for at in many))


def splits(real: str, measured: Measured, tolerance: float | None, draws: int = DRAWS) -> list[str]:
    """The protocol of the paper: scikit-learn's train_test_split, shuffled, three quarters train. The share of the rest
    whose m is right, over draws with `random_state` 0, 1, ..."""
    from sklearn.model_selection import train_test_split

    sizes, lines = list(measured.times), []
    for name, correct in (("observed labels", False), ("corrected labels", True)):
        target = dict(zip(sizes, measured.labels(sizes, tolerance, correct), strict=True))
        shares, regrets = [], []
        for draw in range(draws):
            train, held = map(sorted, train_test_split(sizes, test_size=0.25, random_state=draw))
            chosen = measured.predicted(train, held, tolerance, correct)
            shares.append(statistics.fmean(c[0] == target[s][0] for c, s in zip(chosen, held, strict=True)))
            regrets += [measured.regret(s, c) for c, s in zip(chosen, held, strict=True)]
        lines.append(
            f"| {real} | {name} | {statistics.fmean(shares):.2f} | {min(shares):.2f} | {sum(s == 1 for s in shares)} of"
            f" {draws} | {statistics.fmean(regrets):.2%} |"
        )
    return lines


def rule(real: str, measured: Measured, tolerance: float | None) -> list[str]:
    """The corrected labels as ranges of sizes."""
    sizes = list(measured.times)
    labels = measured.labels(sizes, tolerance, True)
    lines, start = [], 0
    for i in range(1, len(sizes) + 1):
        if i == len(sizes) or labels[i] != labels[start]:
            values = " | ".join(map(str, labels[start]))
            lines.append(f"| {real} | {sizes[start]:g} to {sizes[i - 1]:g} | {values} |")
            start = i
    return lines


def gains(measured: Measured) -> str:
    """What the best setting of each size gains over the best with m = 4 (or the least m) and over the best constant."""
    times, constant = measured.times, best_constant(list(measured.times.values()))
    least = min(pair[0] for at in times.values() for pair in at)
    words = []
    of: Callable[[Mapping[Pair, float]], float]
    for name, of in (
        (f"m = {least}", lambda at: min(t for p, t in at.items() if p[0] == least)),
        (f"always {', '.join(map(str, constant))}", lambda at: at[constant]),
    ):
        found = {size: of(at) / min(at.values()) for size, at in times.items()}
        size, mean = max(found, key=lambda s: found[s]), statistics.geometric_mean(found.values())
        words.append(f"{mean:.2f} over {name}, up to {found[size]:.2f} (at {size:g})")
    return f"the best setting gains {'; '.join(words)}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="+")
    parser.add_argument(
        "--tolerance", type=float, help="relative (default: twice the median half width of the intervals that are seen)"
    )
    parser.add_argument("--by", choices=NAMES, help="the fastest for each value, in place of all else")
    args = parser.parse_args()
    if args.by:
        print("\n".join(fastest(cells(args.measured), args.by)))
        return 0
    found = read(args.measured)
    for real, measured in found.items():
        noise = measured.tolerance(measured.times) if args.tolerance is None else args.tolerance
        print(f"{real}: tolerance over all sizes {noise:.2%}; without a size, that of the others.")
    print("\n| | | m right | pair right | within tolerance | mean regret | largest |\n|---|---|---|---|---|---|---|")
    for real, measured in found.items():
        print("\n".join(evaluate(real, measured, args.tolerance)))
    print(
        f"\nThree quarters of the sizes train, {DRAWS} draws:\n\n"
        "| | trained on | m right, mean | least | all right | mean regret |\n|---|---|---|---|---|---|"
    )
    for real, measured in found.items():
        print("\n".join(splits(real, measured, args.tolerance)))
    names = next(iter(found.values())).names
    print(f"\n| | sizes | {' | '.join(names)} |\n|{'---|' * (2 + len(names))}")
    for real, measured in found.items():
        print("\n".join(rule(real, measured, args.tolerance)))
    for real, measured in found.items():
        print(f"\n{real}: {len(measured.times)} sizes; {gains(measured)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
