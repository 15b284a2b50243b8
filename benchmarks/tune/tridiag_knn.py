"""The sub-system size of the tridiagonal partition method, chosen by nearest neighbours: leave one size out.

    python -m benchmarks.tune.tridiag_knn TRIDIAG.csv.xz [AGAIN.csv.xz] [--tolerance 0.02]

A cell that stands in several files is that of the last.
A choice is a pair (m, chunks). For each size left out, labels are made and the model is trained on the others only;
regret is t_chosen / t_best - 1 on raw times. Accuracy: the predicted pair, or its m, is the one that the rule gives
when all sizes are seen (corrected) or the fastest (observed), or its time is within the tolerance of the best.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dagc.select.knn import fit_knn
from dagc.select.labels import observed_labels, simplest_labels

Pair = tuple[int, int]


def read(paths: Sequence[Path]) -> tuple[dict[str, dict[int, dict[Pair, float]]], float]:
    """real -> size -> (m, chunks) -> microseconds, complete sizes only; and the median half width of the intervals."""
    rows: dict[tuple[str, int, Pair], tuple[float, float]] = {}
    for path in paths:
        with lzma.open(path, "rt") as file:
            for row in csv.DictReader(file):
                if row["verified"] == "True":
                    time, low, high = (float(row[name]) for name in ("median_us", "low_us", "high_us"))
                    key = row["real"], int(row["size"]), (int(row["m"]), int(row["chunks"]))
                    rows[key] = time, (high - low) / 2 / time
    out: dict[str, dict[int, dict[Pair, float]]] = {}
    for (real, size, pair), (time, _) in rows.items():
        out.setdefault(real, {}).setdefault(size, {})[pair] = time
    full = {real: {s: t for s, t in sorted(sizes.items()) if len(t) == 36} for real, sizes in out.items()}
    return full, statistics.median(width for _, width in rows.values())


def evaluate(real: str, times: dict[int, dict[Pair, float]], tolerance: float) -> list[str]:
    sizes = list(times)
    pairs = sorted({p for at in times.values() for p in at})
    number = {p: i for i, p in enumerate(pairs)}
    whole = simplest_labels([times[s] for s in sizes], tolerance)
    fastest = observed_labels([times[s] for s in sizes])
    lines = []
    for name, correct in (("observed labels", False), ("corrected labels", True)):
        regrets, pair_hits, m_hits, near = [], 0, 0, 0
        for i, size in enumerate(sizes):
            train = [s for s in sizes if s != size]
            seen = [times[s] for s in train]
            labels = simplest_labels(seen, tolerance) if correct else observed_labels(seen)
            chosen = pairs[fit_knn(["n"], [[s] for s in train], [number[p] for p in labels]).choose([size])]
            target = whole[i] if correct else fastest[i]
            regret = times[size][chosen] / min(times[size].values()) - 1
            regrets.append(regret)
            pair_hits += chosen == target
            m_hits += chosen[0] == target[0]
            near += regret <= tolerance
        n = len(sizes)
        lines.append(
            f"| {real} | {name} | {m_hits} of {n} | {pair_hits} of {n} | {near} of {n} |"
            f" {statistics.fmean(regrets):.2%} | {max(regrets):.2%} |"
        )
    common = Counter(whole).most_common(1)[0]
    m_common = Counter(p[0] for p in whole).most_common(1)[0]
    worst = [times[s][common[0]] / min(times[s].values()) - 1 for s in sizes]
    lines.append(
        f"| {real} | always {common[0][0]}, {common[0][1]} | {m_common[1]} of {len(sizes)} |"
        f" {common[1]} of {len(sizes)} |"
        f" {sum(r <= tolerance for r in worst)} of {len(sizes)} | {statistics.fmean(worst):.2%} | {max(worst):.2%} |"
    )
    return lines


def rule(real: str, times: dict[int, dict[Pair, float]], tolerance: float) -> list[str]:
    """The corrected labels as ranges of sizes, beside what m = 4 costs."""
    sizes = list(times)
    labels = simplest_labels([times[s] for s in sizes], tolerance)
    lines, start = [], 0
    for i in range(1, len(sizes) + 1):
        if i == len(sizes) or labels[i] != labels[start]:
            m, chunks = labels[start]
            lines.append(f"| {real} | {sizes[start]:g} to {sizes[i - 1]:g} | {m} | {chunks} |")
            start = i
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="+")
    parser.add_argument(
        "--tolerance", type=float, help="relative (default: twice the median half width of an interval)"
    )
    args = parser.parse_args()
    found, noise = read(args.measured)
    tolerance = args.tolerance if args.tolerance is not None else 2 * noise
    print(f"Noise floor (median half width of a 95 % interval) {noise:.2%}; tolerance {tolerance:.2%}.\n")
    print(
        "| | trained on | m right | pair right | within tolerance | mean regret | largest |\n"
        "|---|---|---|---|---|---|---|"
    )
    for real, times in found.items():
        print("\n".join(evaluate(real, times, tolerance)))
    print("\n| | sizes | m | chunks |\n|---|---|---|---|")
    for real, times in found.items():
        print("\n".join(rule(real, times, tolerance)))
    for real, times in found.items():
        gains = {s: min(t for (m, _), t in at.items() if m == 4) / min(at.values()) for s, at in times.items()}
        size = max(gains, key=lambda s: gains[s])
        print(f"\n{real}: {len(times)} sizes; the best m gains up to {gains[size]:.2f} over m = 4 (at {size:g}).")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
