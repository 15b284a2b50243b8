"""The five benchmarks of Nitro by the records of this repository: percent of exhaustive, with today's selectors.

    python -m benchmarks.tune.nitro [NAME...] [--seeds 3]

Each input of a table is chosen for once: by a selector that was trained on all families but its own (the inputs from
files are one family). Real ones (files, parts of images) stand apart from generated ones. Beside it the best single
variant in hindsight, the default, and Nitro's own figure (Muralidharan et al. 2014, section V-A) with its numbers of
training and test inputs. `test`: trained on the list that the record was trained on, judged at its test inputs.
The last columns: how many of the inputs, with their family left out, have 70 % and 90 % of exhaustive or more.
"""

from __future__ import annotations

import argparse
import lzma
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.tune.variants import Table, each_family, held_out, percent, read_table, tuned_tables, without
from dagc.study.judge import Judged

RESULTS = Path(__file__).resolve().parents[1] / "results"
REAL = ("file(", "window(image", "tiled(", ".mtx", ".npy")  # of inputs that are not generated
BEAMER = ("direction_fused", "direction1_fused", "direction2_fused", "direction3_fused")  # rules that no sample has now


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`record`: below `benchmarks/results`. `nitro`: training and test inputs, percent."""

    name: str
    record: str
    method: str
    nitro: tuple[int, int, float]
    dropped: tuple[str, ...] = ()


BENCHMARKS = (
    Benchmark("SpMV", "2026-11-29-h200-variants-3/spmv.db.xz", "cost", (54, 100, 93.74)),
    Benchmark("SpMV, H100", "2026-11-24-h100-variants-8/spmv.db.xz", "cost", (54, 100, 93.74)),
    Benchmark("solvers", "2026-11-24-h200-solvers/solvers.csv.xz", "forest", (26, 100, 93.23)),
    Benchmark("BFS", "2026-11-29-h200-bfs/bfs.db.xz", "forest", (20, 148, 97.92)),
    Benchmark("BFS, H100", "2026-11-24-h100-bfs-3/bfs.db.xz", "forest", (20, 148, 97.92), BEAMER),
    Benchmark("histogram", "2026-11-29-h200-variants-2/histogram.db.xz", "forest", (200, 1291, 94.16)),
    Benchmark("histogram, H100", "2026-11-22-h100-variants/first-histogram.db.xz", "forest", (200, 1291, 94.16)),
    Benchmark("sort", "2026-11-30-h200-variants/sort.db.xz", "cost", (120, 600, 99.25)),
    Benchmark("sort, H100", "2026-11-24-h100-sort-2/sort.db.xz", "cost", (120, 600, 99.25)),
)


def table_of(benchmark: Benchmark) -> Table:
    path = RESULTS / benchmark.record
    if path.suffixes[0] == ".csv":
        return read_table(path)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / path.stem
        file.write_bytes(lzma.decompress(path.read_bytes()))
        (table,) = tuned_tables(file)
    return without(table, benchmark.dropped) if benchmark.dropped else table


def reaching(found: Sequence[Judged], share: float) -> str:
    """How many of the inputs have this percentage of exhaustive or more, mean over the seeds."""
    return percent(fmean(fmean(not v.failed and 1 / v.ratio >= share for v in one.verdicts) for one in found))


def shares(found: Sequence[Judged], real: bool | None = None) -> str:
    """The mean percent of exhaustive over the seeds; of the real inputs, or of the others. One that fails has none."""
    each = [
        [0.0 if v.failed else 1 / v.ratio for v in one.verdicts if real is None or is_real(v.name) is real]
        for one in found
    ]
    return percent(fmean(map(fmean, each))) if all(each) else "-"


def is_real(name: str) -> bool:
    return any(word in name for word in REAL)


def row(benchmark: Benchmark, seeds: int) -> str:
    table = table_of(benchmark)
    found = [held_out(table, benchmark.method, each_family(table), seed) for seed in range(seeds)]
    tests = [i for i in range(len(table.inputs)) if table.learned and i not in table.learned]
    listed = [held_out(table, benchmark.method, [tests], seed, True) for seed in range(seeds)] if tests else []
    names, every = [v.name for v in found[0].verdicts], found[0].all
    ratios = [v.ratio for one in found for v in one.verdicts if not v.failed]
    train, test, own = benchmark.nitro
    cells = (
        benchmark.name, benchmark.method, len(names), sum(map(is_real, names)), len(set(table.families)),
        shares(found), shares(found, True), shares(found, False), f"{max(ratios):.2f}", percent(every.singles[0][1]),
        percent(every.default), f"{len(table.learned)}, {len(tests)}" if tests else "-",
        shares(listed) if tests else "-", shares(listed, True) if tests else "-", f"{train}, {test}", f"{own:.2f}",
        reaching(found, 0.7), reaching(found, 0.9),
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


HEAD = (
    "", "method", "inputs", "real", "families", "family left out", "real", "generated", "worst", "single", "default",
    "training, test", "test", "real", "Nitro: training, test", "Nitro", "70 % or more",
    "90 % or more",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(b.name for b in BENCHMARKS))
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    if unknown := set(args.names) - {b.name for b in BENCHMARKS}:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for benchmark in BENCHMARKS:
        if not args.names or benchmark.name in args.names:
            print(row(benchmark, args.seeds), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
