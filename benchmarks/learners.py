"""Which learners earn their place: every learner on every table of choices by features that is committed.

    python -m benchmarks.learners -o OUT.json [--seeds 3] [--tables WORDS]    # trains: 20 minutes of one core
    python -m benchmarks.learners --summary OUT.json[.xz]                     # prints the tables

Whole families of inputs are held out, dealt to at most FOLDS folds; tables whose inputs have no families are dealt at
random. A figure is the percent of exhaustive: the mean of t_best / t_chosen, 0 where the choice failed. Its noise is
the standard error over families (inputs, where there are none) and over seeds of the training. A learner is best
beyond noise if it is better than every other by more than the noise of their difference, input by input.

An existing OUT.json is continued: what it has is not trained again. The times of answers are those of the largest table
of each program, of the C that is emitted (needs gcc) and of Python.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.tune.chooser_speed import compiled_ns, trained_on
from benchmarks.tune.variants import Table, each_family, folds, held_out, read_table, tuned_tables
from dagc.base.resources import resource
from dagc.choice.methods import LEARNED
from dagc.study.train import best_constant

RESULTS = Path(__file__).parent / "results"
FOLDS = 12
TABLES = (  # of each program: the last record of its inputs, and earlier ones with other inputs or features
    "2026-11-22-2-cores-variants/sort.csv.xz", "2026-11-22-2-cores-variants/spmv.csv.xz",
    "2026-11-22-h100-variants/first-histogram.db.xz", "2026-11-22-h100-variants/first-spmv.db.xz",
    "2026-11-22-h100-variants/unseen-spmv.db.xz", "2026-11-23-h100-variants-4/spmv.db.xz",
    "2026-11-24-h100-variants-8/spmv.db.xz",
    "2026-11-23-h100-variants/unseen-sort.db.xz", "2026-11-23-h100-variants-2/sort.db.xz",
    "2026-11-24-h100-sort-2/sort.db.xz", "2026-11-22-h100-variants/unseen-bfs.db.xz", "2026-11-24-h100-bfs-3/bfs.db.xz",
    "2026-11-22-h100-variants/first-solvers-probed.csv.xz", "2026-11-24-h200-solvers/solvers.csv.xz",
    "2026-11-23-h100-devices-2/nbody.csv.xz", "2026-11-23-h100-devices-2/pagerank.csv.xz",
    "2026-11-23-2xh200-devices/gemm.csv.xz",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trained:
    """One learner on one table. `gains`: t_best / t_chosen of each input, for each seed, 0 where the choice failed."""

    gains: tuple[tuple[float, ...], ...]
    train_seconds: float  # of one seed, all folds
    c_ns: float = math.nan
    python_us: float = math.nan
    c_kilobytes: float = math.nan

    @property
    def means(self) -> tuple[float, ...]:
        """Of each input, over the seeds."""
        return tuple(map(fmean, zip(*self.gains, strict=True)))


def read(name: str) -> Table:
    """The table of a record."""
    path = RESULTS / name
    if ".csv" in name:
        return read_table(path)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / path.name.removesuffix(".xz")
        file.write_bytes(lzma.decompress(path.read_bytes()))
        (table,) = tuned_tables(file)
        return table


def parts_of(table: Table) -> list[list[int]]:
    """The folds: whole families, or inputs at random where there are none."""
    if len(set(table.families)) == 1:
        order = random.Random(0).sample(range(len(table.inputs)), len(table.inputs))
        return [order[k::FOLDS] for k in range(FOLDS)]
    alone = each_family(table)
    return alone if len(alone) <= FOLDS else folds(table, FOLDS)


def gains_of(table: Table, chosen: Mapping[str, float]) -> tuple[float, ...]:
    """Of the inputs that some choice solves; `chosen`: t_chosen / t_best by input."""
    return tuple(round(1 / chosen[name], 6) for name in table.inputs if name in chosen)


def trained(table: Table, method: str, seeds: int, speed: bool) -> Trained:
    """A learner on a table, by cross-validation, and how long one that is trained on all of it takes to answer."""
    start = time.process_time()
    parts = parts_of(table)
    gains = tuple(
        gains_of(table, {case.name: case.ratio for case in held_out(table, method, parts, seed).cases})
        for seed in range(seeds)
    )
    seconds = (time.process_time() - start) / seeds
    if not speed:
        return Trained(gains, seconds)
    selector = trained_on(table, method)
    nanoseconds, size = compiled_ns(table, selector)
    vectors = random.Random(1).choices(table.vectors, k=2000)
    start = time.process_time()
    for vector in vectors:
        selector.choose(vector)
    return Trained(gains, seconds, nanoseconds, (time.process_time() - start) / len(vectors) * 1e6, size / 1000)


def constants(table: Table) -> dict[str, float]:
    """Percent of exhaustive of answers that are not learned: the best constant answer of the other folds, the default,
    one at random."""
    best = [min(at.values(), default=math.inf) for at in table.times]
    solved = [i for i, seconds in enumerate(best) if math.isfinite(seconds)]
    constant: dict[int, int] = {}
    for fold in parts_of(table):
        label = best_constant([at for i, at in enumerate(table.times) if i not in set(fold) and i in set(solved)])
        constant.update((i, label) for i in fold)
    shares = {i: [best[i] / table.times[i].get(k, math.inf) for k in range(len(table.variants))] for i in solved}
    return {
        "constant": fmean(shares[i][constant[i]] for i in solved),
        "default": fmean(shares[i][0] for i in solved),
        "chance": fmean(fmean(shares[i]) for i in solved),
    }


def groups_of(table: Table) -> list[str]:
    """What the inputs that some choice solves have in common with others: their family, or nothing."""
    solved = [i for i, at in enumerate(table.times) if math.isfinite(min(at.values(), default=math.inf))]
    alone = len(set(table.families)) == 1
    return [table.inputs[i] if alone else table.families[i] for i in solved]


def noise_of(values: Sequence[float], groups: Sequence[str], by_seed: Sequence[float]) -> float:
    """Standard error of a mean of inputs, over their groups and over seeds."""
    mean, sums = fmean(values), dict.fromkeys(groups, 0.0)
    for value, group in zip(values, groups, strict=True):
        sums[group] += value - mean
    count = len(sums)
    of_groups = math.sqrt(sum(s * s for s in sums.values()) * count / max(count - 1, 1)) / len(values)
    of_seeds = stdev(by_seed) / math.sqrt(len(by_seed)) if len(by_seed) > 1 else 0.0
    return math.hypot(of_groups, of_seeds)


def difference(one: Trained, other: Trained, groups: Sequence[str]) -> tuple[float, float]:
    """The mean of one learner above another, and its noise."""
    apart = [a - b for a, b in zip(one.means, other.means, strict=True)]
    by_seed = [fmean(a) - fmean(b) for a, b in zip(one.gains, other.gains, strict=True)]
    return fmean(apart), noise_of(apart, groups, by_seed)


# ---- what is printed ------------------------------------------------------------------------


def summary(found: Mapping[str, Any]) -> Iterator[str]:
    """Two Markdown tables: a row for each record, and one for each learner."""
    methods = sorted({m for one in found.values() for m in one["learners"]})
    wins, top, alone = (dict.fromkeys(methods, 0.0) for _ in range(3))
    percents: dict[str, list[float]] = {m: [] for m in methods}
    yield f"| record | inputs, families | {' | '.join(methods)} | constant | default | chance |"
    yield f"|---|---|{'---|' * (len(methods) + 3)}"
    for name, one in found.items():
        learners = {m: Trained(**{**v, "gains": tuple(map(tuple, v["gains"]))}) for m, v in one["learners"].items()}
        groups, means = one["groups"], {m: fmean(v.means) for m, v in learners.items()}
        for method, value in learners.items():
            others = [difference(value, other, groups) for m, other in learners.items() if m != method]
            wins[method] += all(apart > noise for apart, noise in others)
            least = min(apart for apart, _ in others)
            top[method] += least > 0
            alone[method] += max(least, 0.0) / len(found)
            percents[method].append(means[method])
        cells = []
        for method in methods:
            value = learners[method]
            noise = noise_of(value.means, groups, [fmean(gains) for gains in value.gains])
            text = f"{100 * means[method]:.2f}"
            cells.append(f"{f'**{text}**' if means[method] == max(means.values()) else text} ± {100 * noise:.1f}")
        rest = [f"{100 * one['constants'][key]:.2f}" for key in ("constant", "default", "chance")]
        families = len(set(groups)) if len(set(groups)) < len(groups) else "-"
        yield f"| `{name.removesuffix('.xz')}` | {len(groups)}, {families} | {' | '.join(cells + rest)} |"
    yield ""
    yield from ranking(found, methods, {m: fmean(v) for m, v in percents.items()}, top, wins, alone)


def ranking(
    found: Mapping[str, Any], methods: Sequence[str], percents: Mapping[str, float], top: Mapping[str, float],
    wins: Mapping[str, float], alone: Mapping[str, float],
) -> Iterator[str]:  # fmt: skip
    """A row for each learner."""
    yield ("| learner | mean % | worst input | best of | beyond noise | lost without it, points | C ns | Python us |"
           " C kB | training s | lines |")  # fmt: skip
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for method in methods:
        every = [one["learners"][method] for one in found.values()]
        gains = [gain for one in every for seed in one["gains"] for gain in seed]
        worst, failed = min(filter(None, gains)), gains.count(0.0) / len(every[0]["gains"])
        timed = [one for one in every if math.isfinite(one["c_ns"])]
        ns, us, kb = (spanned([one[key] for one in timed]) for key in ("c_ns", "python_us", "c_kilobytes"))
        seconds = sum(one["train_seconds"] for one in every)
        shown = f"{1 / worst:.3g} times" + (f"; {failed:.3g} failed" if failed else "")
        yield (
            f"| `{method}` | {100 * percents[method]:.2f} | {shown} | {top[method]:.0f} | {wins[method]:.0f} |"
            f" {100 * alone[method]:.2f} | {ns} | {us} | {kb} | {seconds:.0f} | {lines_of(method)} |"
        )


def spanned(values: Sequence[float]) -> str:
    """`18 to 40`."""
    return f"{min(values):.3g} to {max(values):.3g}" if values else "-"


def lines_of(method: str) -> str:
    """Those of its file and of its template; `-` for one that dagc no longer has."""
    if method not in LEARNED:
        return "-"
    files = [resource(f"dagc/choice/learners/{method}.py"), resource(f"templates/choice/{method}.h.j2")]
    return str(sum(file.read_text(encoding="utf-8").count("\n") for file in files))


# ---- the command ----------------------------------------------------------------------------


def train_all(output: Path, seeds: int, words: str) -> None:
    """Write after each learner."""
    found: dict[str, Any] = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    largest = {"first-histogram", "spmv", "sort", "bfs", "solvers", "kmotif", "gemm", "pagerank", "nbody"}
    for name in (n for n in TABLES if words in n):
        table = read(name)
        one = found.setdefault(name, {"groups": groups_of(table), "constants": constants(table), "learners": {}})
        for method in LEARNED:
            if method not in one["learners"]:
                speed = Path(name).name.partition(".")[0] in largest and "2-cores" not in name
                one["learners"][method] = asdict(trained(table, method, seeds, speed))
                output.write_text(json.dumps(found) + "\n", encoding="utf-8")
                mean = fmean(map(fmean, one["learners"][method]["gains"]))
                seconds = one["learners"][method]["train_seconds"]
                print(f"{name} {method}: {100 * mean:.2f} %, {seconds:.1f} s a seed", flush=True)


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="output", type=Path, metavar="OUT.json")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", default="", metavar="WORDS", help="only records whose names contain these words")
    parser.add_argument("--summary", type=Path, metavar="OUT.json[.xz]")
    args = parser.parse_args()
    if (args.output is None) == (args.summary is None):
        parser.error("-o OUT.json or --summary OUT.json")
    if args.output is not None:
        train_all(args.output, args.seeds, args.tables)
    path: Path = args.summary or args.output
    raw = path.read_bytes()
    for line in summary(json.loads(lzma.decompress(raw) if path.suffix == ".xz" else raw)):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
