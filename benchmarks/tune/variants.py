"""Selectors of code variants on full tables of measurements, whole families of inputs held out; and incremental tuning.

    python -m benchmarks.tune.variants TABLE.csv[.xz]... [--methods tree,forest] [--curve METHOD] [--seeds 20]

A table is as `benchmarks.tune.variant_tables` writes it, or a tuned file (`.db`) of `dagc tune --inputs`. Families are
dealt to five folds; what is chosen at the inputs of a fold was trained on the others. `--curve`: labelled inputs
against percent of exhaustive, by strategy; every third input is kept for judging.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dagc.choice.active import STRATEGIES, curve
from dagc.choice.judge import Judged, judge
from dagc.choice.methods import LEARNED
from dagc.choice.train import merged, train
from dagc.choice.types import settings_text
from dagc.recipes.tuned_report import measured
from dagc.store.tuned import load_tuned

NOISE = 0.02
FIXED = ("input", "family", "size", "variant", "seconds")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows are inputs. `times` by number of the variant; 0 is the default."""

    name: str
    inputs: tuple[str, ...]
    families: tuple[str, ...]
    sizes: tuple[float, ...]
    features: tuple[str, ...]
    vectors: tuple[tuple[float, ...], ...]
    variants: tuple[str, ...]
    times: tuple[dict[int, float], ...]


def read_table(path: Path) -> Table:
    raw = path.read_bytes()
    text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()
    rows = list(csv.DictReader(text.splitlines()))
    features = tuple(n for n in rows[0] if n not in FIXED)
    variants = tuple(dict.fromkeys(r["variant"] for r in rows))
    first = {r["input"]: r for r in rows}
    times: dict[str, dict[int, float]] = {name: {} for name in first}
    for r in rows:
        if r["seconds"]:
            times[r["input"]][variants.index(r["variant"])] = float(r["seconds"])
    inputs = list(first.values())
    vectors = tuple(tuple(float(r[n]) for n in features) for r in inputs)
    families, sizes = tuple(r["family"] for r in inputs), tuple(float(r["size"]) for r in inputs)
    return Table(
        path.name.partition(".")[0], tuple(first), families, sizes, features, vectors, variants, tuple(times.values())
    )


def tuned_tables(path: Path) -> list[Table]:
    """A table for each op of a tuned file. The family of an input is the function that generates it, or its folder."""
    tuned, out = load_tuned(path), []
    for op, chooser in tuned.kernel_choosers.items():
        names = chooser.selector.data if chooser.selector is not None else chooser.data
        found = measured(tuned, op, chooser, names)
        elements = {one.point: float(one.elements) for one in tuned.facts.inputs}
        texts = tuple(p.text for p in found.points)
        families = tuple(t.partition("(")[0] if "(" in t else str(Path(t).parent) for t in texts)
        variants, times = tuple(map(settings_text, chooser.settings)), tuple(map(dict, found.times))
        sizes = tuple(elements.get(p, 0.0) for p in found.points)
        out.append(Table(f"{path.stem} {op}", texts, families, sizes, tuple(names), found.vectors, variants, times))
    return out


def folds(table: Table, count: int = 5) -> list[list[int]]:
    """Whole families, the largest first, to the smallest fold; a family of more than a fold is spread."""
    out: list[list[int]] = [[] for _ in range(count)]
    by_family: dict[str, list[int]] = {}
    for i, family in enumerate(table.families):
        by_family.setdefault(family, []).append(i)
    for members in sorted(by_family.values(), key=lambda m: -len(m)):
        if len(members) > len(table.inputs) / count:
            for k, i in enumerate(members):
                out[k % count].append(i)
        else:
            min(out, key=len).extend(members)
    return [fold for fold in out if fold]


def held_out(table: Table, method: str, seed: int = 0) -> Judged:
    chosen: list[int | Sequence[int]] = [0] * len(table.inputs)
    for fold in folds(table):
        kept = [i for i in range(len(table.inputs)) if i not in set(fold)]
        noise = [[(1 - NOISE / 2, 1.0, 1 + NOISE / 2)]] * len(kept)
        known = merged([table.vectors[i] for i in kept], [table.times[i] for i in kept], noise)
        selector = train(method, table.features, known, seed)
        for i in fold:
            chosen[i] = selector.order(table.vectors[i])
    return judge(table.inputs, table.times, chosen, 0, NOISE, sizes=table.sizes)


def percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


def compare(table: Table, methods: Sequence[str]) -> None:
    print(f"\n{table.name}: {len(table.inputs)} inputs, {len(table.variants)} variants, families held out")
    print("| method | % of exhaustive | where decisive | accuracy | balanced | regret | worst | under 70 % | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for method in methods:
        start = time.perf_counter()
        found = held_out(table, method)
        took = time.perf_counter() - start
        f = found.all
        print(
            f"| {method} | {percent(f.percent)} | {percent(found.decisive.percent)} | {percent(f.accuracy)} |"
            f" {percent(f.balanced)} | {f.geometric:.3f} | {found.cases[0].ratio:.2f} | {f.poor} | {took:.1f} |",
            flush=True,
        )
    print(
        f"best single ({table.variants[f.single[0]]}) {percent(f.single[1])}, default {percent(f.default)},"
        f" random {percent(f.random)}"
    )


def incremental(table: Table, method: str, seeds: int, steps: int) -> None:
    test = [i for i in range(len(table.inputs)) if i % 3 == 0]
    pool = [i for i in range(len(table.inputs)) if i % 3]
    parts = ([table.vectors[i] for i in pool], [table.times[i] for i in pool])
    print(f"\n{table.name}, {method}: % of exhaustive by labelled inputs, {len(pool)} to choose from, {seeds} seeds")
    for strategy in STRATEGIES:
        found = curve(
            table.features, *parts, method, strategy,
            test=([table.vectors[i] for i in test], [table.times[i] for i in test]),
            seeds=range(seeds), steps=steps, tolerance=NOISE,
        )  # fmt: skip
        at = {n: percent(found.mean[n - found.first]) for n in (5, 10, 15, 20, 25, 35, 50) if n <= steps}
        print(f"{strategy:7} {at}, full {percent(found.full)}; 99 % of it from {found.reaches(0.99)} on", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--methods", default=",".join(LEARNED))
    parser.add_argument("--curve")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    for table in (
        t for path in args.tables for t in (tuned_tables(path) if path.suffix == ".db" else [read_table(path)])
    ):
        if args.curve:
            incremental(table, args.curve, args.seeds, args.steps)
        else:
            compare(table, args.methods.split(","))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
