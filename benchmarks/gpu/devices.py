"""Versions on two devices, chosen by features of the input: measured at drawn inputs, then judged.

    python -m benchmarks.gpu.devices measure KERNEL --out "$OUT" --time 60 [--samples 2000] [--most 1e8]
    python -m benchmarks.gpu.devices judge FOLDER [KERNEL...]

KERNEL is gemm, gemm-relu, pagerank, nbody or kmotif. `measure` draws inputs by the `over` of the sample (seeded), and
times every version at each, from host data to host data, for so many seconds: `dagc tune --variants --samples`. What is
measured stays in FOLDER/KERNEL.db; the same command continues it. `--most` limits the work of an input, as the
param `most` of the sample does. `--cell`: seconds for one version at one input, at most. The file itself gets trees,
which take seconds to learn.

`judge` needs no GPU. From the tuned files of FOLDER, by the methods of `--methods`: 90 % of the inputs to learn from
and 10 % to judge at, `--seeds` times, and 10 folds; PPP, PoIS, accuracy, speed over the best single version, as MLCD
has them (Cao et al., section IV-D); which version wins how often; costs of the features; what active learning saves
(benchmarks/tune/active.py). `ranges`: for each feature, the fifth of the inputs where it is largest is judged by what
the others taught; the mean over the features, and the worst. It writes FOLDER/KERNEL.json, and FOLDER/KERNEL.csv.xz, a
table that benchmarks/tune reads; where FOLDER has such tables only, it judges these, with features that a sample has
now and had not then. `--without`: a table whose inputs are left out. `--again`: tables of other measurements of the
same inputs, of which the lowest times count. What the versions that are the fastest in one of the two lose in the other
shows the noise of the labels, and the difference of the machines; a selector that loses less there knows as much as
these labels do. The spread: of each version, by which factor two measurements of it differ.

--target host with --most rehearses `measure` without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.variants import costs, tables
from benchmarks.tune.active import compare
from benchmarks.tune.variants import NOISE, Table, read_table, tuned_tables
from dagc.recipes import tune as recipes
from dagc.stages.options import TuneOptions
from dagc.store.tuned import Tuned, load_tuned
from dagc.study.cases import Sampling
from dagc.study.judge import Figures, judge
from dagc.study.train import trained

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Kernel:
    """`most`: of the work of an input, for the param of that name. `seed`'s figures with an H100: PPP and PoIS, %."""

    sample: str
    most: float
    seed: tuple[float, float]
    defines: tuple[tuple[str, str], ...] = ()
    later: tuple[tuple[str, Callable[[Mapping[str, float]], float]], ...] = ()  # features that older tables lack


def pieces(height: int, width: int) -> Callable[[Mapping[str, float]], float]:
    """Multiplications for one of the pieces of C of this size, of gemm."""
    return lambda f: f["work"] / (math.ceil(f["M"] / height) * math.ceil(f["N"] / width))


GEMM = (("piece", pieces(128, 512)), ("tile", pieces(48, 64)), ("row", lambda f: f["N"] * f["K"]))

KERNELS = {
    "gemm": Kernel("gemm", 1e9, (3.12, 99.85), later=GEMM),
    "gemm-relu": Kernel("gemm", 1e9, (3.12, 99.85), (("relu", "true"),), GEMM),
    "pagerank": Kernel("pagerank", 3e5, (6.04, 97.37)),
    "nbody": Kernel("nbody", 3e8, (3.30, 99.9)),
    "kmotif": Kernel("kmotif", 3e4, (3.26, 98.71)),
}


# ---- measured ---------------------------------------------------------------------------------


def measure(name: str, args: argparse.Namespace) -> None:
    kernel, tuned = KERNELS[name], args.out / f"{name}.db"
    defines = {**dict(kernel.defines), "most": f"{args.most or kernel.most:.0f}"}
    options = TuneOptions(
        target=args.target, variants=True, method="tree", samples=args.samples, seconds=args.time, seed=args.seed,
        resume=tuned.exists(), cell=args.cell, defines=defines,
    )  # fmt: skip
    began, said = time.monotonic(), [0.0]

    def progress(done: int, total: int, what: str) -> None:
        if time.monotonic() > said[0] + 10:
            said[0] = time.monotonic()
            print(f"  {time.monotonic() - began:.0f} s: {done} of {total} {what}", flush=True)

    done = recipes.tune(ROOT / f"samples/{kernel.sample}/{kernel.sample}.dag", tuned, options, progress)
    took = time.monotonic() - began
    inputs = len(load_tuned(tuned).facts.inputs)
    print(f"{name}: {inputs} inputs in the file, {took:.1f} s, {took / max(1, inputs):.3f} s an input", flush=True)
    for failure in done.failures[:20]:
        print(f"  failed: {failure}")


# ---- judged -----------------------------------------------------------------------------------


def complete(table: Table, tuned: Tuned) -> Table:
    """Without inputs that the end of the time left half measured: where a version is missing that was run, with or
    without success, at 95 % of the inputs."""
    ran: dict[str, set[str]] = {}
    for cell, _ in tuned.samples:
        ran.setdefault(cell.case.text, set()).add(cell.choice.in_words)
    often = Counter(variant for of in ran.values() for variant in of)
    common = {variant for variant, count in often.items() if count >= 0.95 * len(ran)}
    return only(table, [i for i, text in enumerate(table.inputs) if common <= ran.get(text, set())])


def only(table: Table, kept: Sequence[int]) -> Table:
    """These inputs."""

    def of(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[i] for i in kept)

    return replace(
        table, inputs=of(table.inputs), families=of(table.families), sizes=of(table.sizes), vectors=of(table.vectors),
        times=of(table.times),
    )  # fmt: skip


def write_table(table: Table, path: Path) -> None:
    """As benchmarks/tune reads it: a line for each input and version; one that failed or was excluded has none."""
    with lzma.open(path, "wt", newline="") as file:
        out = csv.writer(file)
        out.writerow(["input", "family", "size", *table.features, "variant", "seconds"])
        for i, times in enumerate(table.times):
            for answer, seconds in sorted(times.items()):
                if math.isfinite(seconds):
                    head = [table.inputs[i], "", f"{table.sizes[i]:.0f}", *(f"{x:.9g}" for x in table.vectors[i])]
                    out.writerow([*head, table.variants[answer], f"{seconds:.6g}"])


def figures_of(table: Table, method: str, train: Sequence[int], test: Sequence[int]) -> tuple[Figures, list[int]]:
    selector = trained(table.training(train), method)
    said = [selector.choose(table.vectors[i]) if selector is not None else 0 for i in test]
    names, times = [table.inputs[i] for i in test], [table.times[i] for i in test]
    return judge(names, times, said, 0, NOISE).all, said


def folded(table: Table, method: str, count: int, seed: int) -> tuple[Figures, list[int]]:
    """Each input judged by what the other folds taught, and what is chosen there."""
    order = random.Random(f"{seed} folds").sample(range(len(table.inputs)), len(table.inputs))
    chosen = [0] * len(order)
    for k in range(count):
        test = order[k::count]
        kept = [i for n, i in enumerate(order) if n % count != k]
        for i, answer in zip(test, figures_of(table, method, kept, test)[1], strict=True):
            chosen[i] = answer
    return judge(table.inputs, table.times, chosen, 0, NOISE).all, chosen


def by_name(table: Table) -> dict[str, dict[str, float]]:
    """Of each input the seconds of each version."""
    return {
        text: {table.variants[a]: t for a, t in times.items()}
        for text, times in zip(table.inputs, table.times, strict=True)
    }


def lowest(tables: Sequence[Table]) -> dict[str, dict[str, float]]:
    """At the inputs that all tables have, the lowest time of each version that all have there."""
    every = [by_name(table) for table in tables]
    return {
        text: {v: min(t[text][v] for t in every) for v in times if all(v in t[text] for t in every)}
        for text, times in every[0].items()
        if all(text in t for t in every)
    }


def spread(first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]]) -> str:
    """Of each version: by which factor its times in the two differ, median and 90th percentile."""
    factors: dict[str, list[float]] = {}
    for at, again in zip(first, second, strict=True):
        for version in at:
            factors.setdefault(version, []).append(max(at[version], again[version]) / min(at[version], again[version]))
    ordered = {version: sorted(of) for version, of in sorted(factors.items())}
    return ", ".join(f"{v} {of[len(of) // 2]:.2f} {of[len(of) * 9 // 10]:.2f}" for v, of in ordered.items())


def measured_again(here: Table, chosen: Sequence[int], again: Mapping[str, Mapping[str, float]]) -> None:
    """What labels and choices lose at the inputs that another measurement has too, judged by each."""
    own, picked = by_name(here), dict(zip(here.inputs, (here.variants[a] for a in chosen), strict=True))
    both = [text for text in own if text in again and own[text].keys() == again[text].keys()]
    first, second, choices = [own[t] for t in both], [again[t] for t in both], [picked[t] for t in both]

    def show(label: str, answers: Sequence[str], times: Sequence[Mapping[str, float]]) -> None:
        lost = sorted(t[a] / min(t.values()) - 1 for a, t in zip(answers, times, strict=True))
        ideal = sum(min(t.values()) for t in times) / sum(t[a] for a, t in zip(answers, times, strict=True))
        print(
            f"  {label:44} PPP {100 * statistics.fmean(lost):6.2f} %, without the worst 1 %"
            f" {100 * statistics.fmean(lost[: len(lost) - len(lost) // 100]):5.2f} %, PoIS {100 * ideal:6.2f} %"
        )

    print(f"  {len(both)} of the inputs were measured again:")
    show("selector of this table, judged by it", choices, first)
    show("fastest of the other table, judged by this", [min(t, key=t.__getitem__) for t in second], first)
    show("selector of this table, judged by the other", choices, second)
    show("fastest of this table, judged by the other", [min(t, key=t.__getitem__) for t in first], second)
    print(f"  factor between the two, median and 90th percentile: {spread(first, second)}")


def line(label: str, of: Sequence[Figures]) -> str:
    def mean(pick: str) -> float:
        return statistics.fmean(getattr(f, pick) for f in of)

    return (
        f"  {label:22} PPP {100 * mean('regret'):6.2f} %  PoIS {100 * mean('ideal'):6.2f} %  accuracy"
        f" {100 * mean('accuracy'):6.2f} %  over the best single version {mean('faster'):.2f} (mean of ratios),"
        f" {mean('faster_sum'):.2f} (of sums)"
    )


def by_range(table: Table, method: str) -> list[tuple[str, Figures]]:
    """For each feature, the fifth of the inputs where it is largest, judged by what the others taught."""
    out = []
    for k, feature in enumerate(table.features):
        order = sorted(range(len(table.inputs)), key=lambda i: table.vectors[i][k])
        kept = len(order) * 4 // 5
        if table.vectors[order[kept - 1]][k] < table.vectors[order[-1]][k]:
            out.append((feature, figures_of(table, method, order[:kept], order[kept:])[0]))
    return out


def without(table: Table, kernel: str, path: Path) -> Table:
    """Without the inputs that this table names."""
    with lzma.open(path, "rt", newline="") as file:
        named = {row["input"] for row in csv.DictReader(file) if row["kernel"] == kernel}
    return only(table, [i for i, text in enumerate(table.inputs) if text not in named])


def with_later(table: Table, kernel: Kernel) -> Table:
    """With the features that the sample has now."""
    new = [(name, value) for name, value in kernel.later if name not in table.features]
    vectors = ((*v, *(value(dict(zip(table.features, v, strict=True))) for _, value in new)) for v in table.vectors)
    return replace(table, features=(*table.features, *(name for name, _ in new)), vectors=tuple(vectors))


def judged(name: str, args: argparse.Namespace) -> dict[str, Any]:
    path, kernel = args.folder / f"{name}.db", KERNELS[name]
    record: dict[str, Any] = {"methods": {}}
    if path.exists():
        tuned = load_tuned(path)
        (table,) = (complete(table, tuned) for table in tuned_tables(path))
        write_table(table, args.folder / f"{name}.csv.xz")
        record["machine"], record["gpu"] = tuned.runs[-1].machine.key, tuned.facts.gpu
        record["revision"] = tuned.runs[-1].revision
        record["costs"] = costs(tables(tuned, ROOT / f"samples/{kernel.sample}/{kernel.sample}.dag")[0])
    else:
        table = read_table(args.folder / f"{name}.csv.xz")
    table = with_later(table, kernel)
    if args.without:
        table = without(table, name, args.without)
    count = record["inputs"] = len(table.inputs)
    wins = Counter(table.variants[min(t, key=lambda a: t[a])] for t in table.times if t)
    print(f"\n== {name}: {count} inputs; MLCD with an H100: PPP {kernel.seed[0]} %, PoIS {kernel.seed[1]} %")
    print("  fastest: " + ", ".join(f"{variant} {n}" for variant, n in wins.most_common()))
    total = sum(min(t.values()) for t in table.times if t)
    print(f"  best of every input, summed: {total:.4f} s")
    for method in args.methods.split(","):
        splits = []
        for seed in range(args.seeds):
            order = random.Random(f"{seed} split").sample(range(count), count)
            kept = max(1, count // 10)
            splits.append(figures_of(table, method, order[kept:], order[:kept])[0])
        ten, chosen = folded(table, method, 10, 0)
        print(line(f"{method}, 90/10", splits))
        print(line(f"{method}, 10 folds", [ten]), flush=True)
        if args.again:
            measured_again(table, chosen, lowest([read_table(path) for path in args.again]))
        ranges = by_range(table, method)
        print(line(f"{method}, ranges", [f for _, f in ranges]))
        worst, figures = max(ranges, key=lambda r: r[1].regret)
        print(line(f"{method}, by {worst}", [figures]), flush=True)
        record["methods"][method] = {
            "split": [asdict(f) for f in splits], "folds": asdict(ten), "ranges": {n: asdict(f) for n, f in ranges},
        }  # fmt: skip
    record["wins"], record["variants"], record["features"] = dict(wins), table.variants, table.features
    for text in record["costs"]["lines"] if "costs" in record else ():
        print(f"  {text}")
    if args.curves and count >= 100:
        most = count * 9 // 10
        compare(table, args.methods.split(",")[0], args.seeds, Sampling.of(most, None, None, 0.5), most, [])
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("measure").add_argument
    add("kernels", nargs="+", metavar="KERNEL", choices=KERNELS)
    add("--out", required=True, type=Path, help="folder of the tuned files")
    add("--time", type=float, default=60.0, help="seconds for each kernel")
    add("--samples", type=int, default=2000)
    add("--most", type=float, default=0.0, help="limit of the work of an input (default: of the kernel)")
    add("--cell", type=float, default=0.003)
    add("--seed", type=int, default=0)
    add("--target", choices=("cuda", "host"))
    add = commands.add_parser("judge").add_argument
    add("folder", type=Path)
    add("kernels", nargs="*", metavar="KERNEL")
    add("--methods", default="forest,tree,cost", help="the first also learns actively")
    add("--seeds", type=int, default=20)
    add("--without", type=Path, metavar="TABLE")
    add("--again", type=Path, nargs="+", metavar="TABLE")
    add("--no-curves", dest="curves", action="store_false")
    args = parser.parse_args()
    if args.command == "measure":
        args.out.mkdir(parents=True, exist_ok=True)
        for name in args.kernels:
            measure(name, args)
        return
    for name in args.kernels or [
        n for n in KERNELS if any((args.folder / f"{n}{e}").exists() for e in (".db", ".csv.xz"))
    ]:
        record = judged(name, args)
        if (args.folder / f"{name}.db").exists():
            (args.folder / f"{name}.json").write_text(json.dumps(record, indent=1, default=str))


if __name__ == "__main__":
    main()
