"""Versions on two devices, chosen by features of the input: measured at drawn inputs, then judged.

    python -m benchmarks.gpu.devices measure KERNEL... --out "$OUT" --time 60 [--cut 8] [--seed 1]
        [--again FOLDER...] [--known FOLDER...]
    python -m benchmarks.gpu.devices judge FOLDER [KERNEL...]
    python -m benchmarks.gpu.devices build KERNEL...                 # side by side, so that `measure` finds them built

KERNEL is gemm, gemm-relu, pagerank, nbody or kmotif; of judge also gemm-steps, which is GEMM*: all inputs of gemm, with
the squares in steps of 100 that `measure gemm` draws too, and that gemm alone leaves out. `measure` draws inputs over
the ranges of MLCD (`benchmarks.gpu.ranges`), in strata by their work, and times the versions at each, from host data to
host data, for so many seconds. `--cut`: as of `dagc tune`. What is measured stays in FOLDER/KERNEL.db; the same command
with another --seed continues it. `--again FOLDER...`: inputs of the tables FOLDER/KERNEL.csv.xz in place of new ones,
for the noise. `--known FOLDER...`: inputs of these tables are not drawn again.
`--cell`: seconds for one version at one input, at most. `--most`: no input has more work. The file has no chooser:
nothing is learned there.

`judge` needs no GPU. From the tuned files of FOLDER, by the methods of `--methods`: 90 % of the inputs to learn from
and 10 % to judge at, `--seeds` times, and 10 folds; PPP, PoIS, accuracy, speed over the best single version, as MLCD
has them (Cao et al., section IV-D), at the inputs as they are and weighted as MLCD's inputs are distributed; every
version alone; which version wins how often; what active learning saves (benchmarks/tune/active.py). A version that was
not measured at an input counts as `--cut` times the fastest there, which is the least that it takes. `ranges`: for each
feature, the fifth of the inputs where it is largest is judged by what the others taught; the mean over the features,
and the worst. It writes FOLDER/KERNEL.json, and FOLDER/KERNEL.csv.xz, a table that benchmarks/tune reads; where FOLDER
has such tables only, it judges these, with features that a sample has now and had not then. `--without`: a table whose
inputs are left out. `--with FOLDER...`: records of other runs, joined with the first: the inputs of all, at each the
lowest time of each version, since disturbances only make it longer; a record that lacks a version at every input adds
no inputs, nor does one without the kernel. `--again`: tables of other measurements of the same inputs, of which the
lowest times count. What the versions that are the fastest in one of the two lose in the other shows the noise of the
labels, and the difference of the machines; a selector that loses less there knows as much as these labels do. The
spread: of each version, by which factor two measurements of it differ.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.ranges import (
    RANGES,
    SQUARES,
    Range,
    allotted,
    is_square,
    params_of,
    pool,
    strata,
    weights,
    weights_with_squares,
)
from benchmarks.gpu.variants import costs, tables
from benchmarks.tune.active import compare
from benchmarks.tune.variants import NOISE, Table, read_table
from dagc.base.errors import DagcError, UsageError
from dagc.base.files import scratch_directory
from dagc.base.signals import Deadline
from dagc.choice.types import Case
from dagc.stages.options import TuneOptions
from dagc.stages.program import read
from dagc.store.tuned import Tuned, load_tuned
from dagc.study.build import build_what_compiles
from dagc.study.cases import Sampling
from dagc.study.choosers import asked_of
from dagc.study.judge import Figures, judge
from dagc.study.task import tuning_task
from dagc.study.train import tabulated, trained
from dagc.study.tuning import WAYS, way_of

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Kernel:
    """`seed`: the source's figures with an H100 (of GEMM with ReLU: with its TITAN Xp), PPP and PoIS, %."""

    sample: str
    seed: tuple[float, float]
    defines: tuple[tuple[str, str], ...] = ()
    later: tuple[tuple[str, Callable[[Mapping[str, float]], float]], ...] = ()  # features that older tables lack


def pieces(height: int, width: int) -> Callable[[Mapping[str, float]], float]:
    """Multiplications for one of the pieces of C of this size, of gemm."""
    return lambda f: f["work"] / (math.ceil(f["M"] / height) * math.ceil(f["N"] / width))


GEMM = (("piece", pieces(128, 512)), ("tile", pieces(48, 64)), ("row", lambda f: f["N"] * f["K"]))

TRIED = 10.0  # times the seconds of a kernel: a large input is measured even if it takes a good part of them
MORE = 1.5  # times the inputs that are expected to fit; the time limit leaves out a random part
KERNELS = {
    "gemm": Kernel("gemm", (3.12, 99.85), later=GEMM),
    "gemm-relu": Kernel("gemm", (1.5, 99.0), (("relu", "true"),), GEMM),
    "gemm-steps": Kernel("gemm", (3.14, 99.0), later=GEMM),
    "pagerank": Kernel("pagerank", (6.04, 97.37)),
    "nbody": Kernel("nbody", (3.30, 99.9)),
    "kmotif": Kernel("kmotif", (3.26, 98.71)),
}


# ---- measured ---------------------------------------------------------------------------------


def measure(name: str, args: argparse.Namespace) -> None:
    tuned, end = args.out / f"{name}.db", Deadline.after(args.time)
    known = known_in(tuned)
    parts = parts_of(name, args.most)
    tables = [folder / f"{name}.csv.xz" for folder in (*args.again, *args.known)]
    elsewhere = {text for path in tables if path.exists() for text in read_table(path).inputs}
    found = [case for _, drawn, _ in parts for case in drawn if case.text in elsewhere]
    if args.again:
        cases = sorted({*found} - {*known})
    else:
        cases = [case for part in parts for case in allotted(*part, MORE * args.time, {*known, *found})]
    if not cases:
        raise UsageError("no inputs to measure", "name folders with its table, or a larger --most or --time")
    random.Random(args.seed).shuffle(cases)
    measured_at(name, tuned, cases, replace(options_of(name, args, tuned), deadline=end, seconds=TRIED * args.time))
    if tuned.exists():
        file = load_tuned(tuned)
        write_table(complete(table_of(file), file), args.out / f"{name}.csv.xz")
    inputs = len(known_in(tuned)) - len(known)
    print(f"{name}: {inputs} more inputs, {end.passed:.1f} s, {end.passed / max(1, inputs):.3f} s an input", flush=True)


def parts_of(name: str, most: float) -> list[tuple[Range, list[Case], float]]:
    """The ranges of a kernel, with the inputs that are drawn from each, and its share of the time."""
    ranges = [(RANGES[name], 1.0)] if name != "gemm" else [(RANGES["gemm"], 0.75), (RANGES[SQUARES], 0.25)]
    drawn = ((of, pool(of, program_of(name), defines_of(name, most), 0), share) for of, share in ranges)
    limit = most or math.inf
    return [(of, [c for c in cases if of.work(dict(c.params)) <= limit], share) for of, cases, share in drawn]


def program_of(name: str) -> Path:
    return ROOT / f"samples/{KERNELS[name].sample}/{KERNELS[name].sample}.dag"


def defines_of(name: str, most: float = 0.0) -> dict[str, str]:
    return {**dict(KERNELS[name].defines), "most": f"{most or RANGES[name].most:.0f}"}


def known_in(tuned: Path) -> tuple[Case, ...]:
    return tuple(one.case for one in load_tuned(tuned).facts.inputs) if tuned.exists() else ()


def options_of(name: str, args: argparse.Namespace, tuned: Path) -> TuneOptions:
    return TuneOptions(
        target=args.target, variants=True, method="tree", samples=1, seed=args.seed, resume=tuned.exists(),
        cell=args.cell, cut=args.cut, watchdog=args.watchdog, defines=defines_of(name, args.most),
    )  # fmt: skip


def build(name: str, args: argparse.Namespace) -> str:
    """Fill the build cache with the program of a kernel; returns what did not compile."""
    options = options_of(name, args, Path("none"))
    cases = tuple(parts_of(name, args.most)[0][1][:2])
    task = tuning_task(read(program_of(name), options.defines), options, cases=cases)
    task = replace(task, features={op: one.data for op, one in asked_of(task, options.method, True).items()})
    with scratch_directory("devices-") as folder:
        return "; ".join(build_what_compiles(task, folder)[2])


def measured_at(name: str, tuned: Path, cases: Sequence[Case], options: TuneOptions) -> None:
    """As `dagc tune`, at these inputs, without learning from them."""
    said, began = [time.monotonic()], time.monotonic()

    def progress(done: int, total: int, what: str) -> None:
        if time.monotonic() > said[0] + 10:
            said[0] = time.monotonic()
            print(f"  {said[0] - began:.0f} s: {done} of {total} {what}", flush=True)

    earlier = [cell.case for cell, sample in load_tuned(tuned).samples if sample.times] if options.resume else []
    task = tuning_task(read(program_of(name), options.defines), options, earlier=earlier, cases=tuple(cases))
    way = WAYS[way_of(task, options)]
    with way.opened(task, tuned, options, progress) as visits:
        way.measured(visits)
        for text in (*visits.failures[:20], *(note for note in visits.notes if "expected to take" in note)):
            print(f"  {text}")


# ---- judged -----------------------------------------------------------------------------------


def table_of(tuned: Tuned) -> Table:
    """What was measured at the one op of the file, with all features; also of a file whose run was cut off."""
    (op,) = {cell.site for cell, _ in tuned.samples}
    samples = [(cell, sample) for cell, sample in tuned.samples if cell.site == op]
    choices = sorted({cell.choice for cell, _ in samples}, key=lambda choice: choice.in_words)
    features = tuned.facts.features_of(op)
    names = tuple(dict.fromkeys(name for of in features.values() for name in of))
    rows = tabulated(names, choices, dict.fromkeys(cell.case for cell, _ in samples), samples, features).usable.rows
    elements = {one.case: float(one.elements) for one in tuned.facts.inputs}
    return Table(
        tuned.path.stem, tuple(row.case.text for row in rows), ("",) * len(rows),
        tuple(elements.get(row.case, 0.0) for row in rows), names, tuple(row.features for row in rows),
        tuple(choice.in_words for choice in choices), tuple(dict(row.times) for row in rows),
    )  # fmt: skip


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
    """At each input of the tables the lowest time of each version."""
    out: dict[str, dict[str, float]] = {}
    for table in tables:
        for text, times in by_name(table).items():
            at = out.setdefault(text, {})
            for version, seconds in times.items():
                at[version] = min(seconds, at.get(version, seconds))
    return out


def joined(tables: Sequence[Table]) -> Table:
    """Measurements of one kernel in several runs as one table, see `--with`."""
    versions = tuple(sorted({version for table in tables for version in table.variants}))
    whole = [table for table in tables if len(table.variants) == len(versions)]
    if not whole:
        raise SystemExit(f"{tables[0].name}: no record has all of {', '.join(versions)}")
    vectors = {text: row for table in whole for text, row in zip(table.inputs, table.vectors, strict=True)}
    sizes = {text: size for table in whole for text, size in zip(table.inputs, table.sizes, strict=True)}
    number, times = {version: k for k, version in enumerate(versions)}, lowest(tables)
    return Table(
        whole[0].name, tuple(vectors), ("",) * len(vectors), tuple(sizes.values()), whole[0].features,
        tuple(vectors.values()), versions, tuple({number[v]: t for v, t in times[text].items()} for text in vectors),
    )  # fmt: skip


def spread(first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]]) -> str:
    """Of each version: by which factor its times in the two differ, median and 90th percentile."""
    factors: dict[str, list[float]] = {}
    for at, again in zip(first, second, strict=True):
        for version in at.keys() & again.keys():
            factors.setdefault(version, []).append(max(at[version], again[version]) / min(at[version], again[version]))
    ordered = {version: sorted(of) for version, of in sorted(factors.items())}
    return ", ".join(f"{v} {of[len(of) // 2]:.2f} {of[len(of) * 9 // 10]:.2f}" for v, of in ordered.items())


def measured_again(here: Table, chosen: Sequence[int], again: Mapping[str, Mapping[str, float]], cut: int) -> None:
    """What labels and choices lose at the inputs that another measurement has too, judged by each. A version that one
    of the two left out counts as `cut` times the fastest."""
    own, picked = by_name(here), dict(zip(here.inputs, (here.variants[a] for a in chosen), strict=True))
    both = [text for text in own if text in again]
    first, second, choices = [own[t] for t in both], [again[t] for t in both], [picked[t] for t in both]

    def show(label: str, answers: Sequence[str], times: Sequence[Mapping[str, float]]) -> None:
        least = [min(t.values()) for t in times]
        taken = [t.get(a, cut * best) for a, t, best in zip(answers, times, least, strict=True)]
        lost = sorted(t / best - 1 for t, best in zip(taken, least, strict=True))
        ideal = sum(least) / sum(taken)
        print(
            f"  {label:44} PPP {100 * statistics.fmean(lost):6.2f} %, without the worst 1 %"
            f" {100 * statistics.fmean(lost[: len(lost) - len(lost) // 100]):5.2f} %, PoIS {100 * ideal:6.2f} %"
        )

    print(f"  {len(both)} of the inputs were measured again:")
    if not both:
        return
    show("selector of this table, judged by it", choices, first)
    show("fastest of the other table, judged by this", [min(t, key=t.__getitem__) for t in second], first)
    show("selector of this table, judged by the other", choices, second)
    show("fastest of this table, judged by the other", [min(t, key=t.__getitem__) for t in first], second)
    print(f"  factor between the two, median and 90th percentile: {spread(first, second)}")


@dataclass(frozen=True, slots=True)
class Weighed:
    """Figures of what was chosen at inputs that count by weights: fractions; `faster`: mean of ratios, and of sums, to
    the best single version. `unmeasured`: inputs at which the chosen version was not measured, and counts as `cut`
    times the fastest."""

    regret: float
    ideal: float
    accuracy: float
    faster: float
    faster_sum: float
    unmeasured: int


def weighed(table: Table, chosen: Sequence[int], by: Sequence[float], cut: int) -> Weighed:
    best = [min(at.values()) for at in table.times]
    taken = [at.get(answer, cut * least) for at, answer, least in zip(table.times, chosen, best, strict=True)]
    mean = partial(weighted, by)
    single = [[at.get(a, cut * least) for at, least in zip(table.times, best, strict=True)]
              for a in range(len(table.variants))]  # fmt: skip
    faster = min(mean([s / t for s, t in zip(of, taken, strict=True)]) for of in single)
    return Weighed(
        mean([t / b - 1 for t, b in zip(taken, best, strict=True)]), mean(best) / mean(taken),
        mean([float(t <= (1 + NOISE) * b) for t, b in zip(taken, best, strict=True)]), faster,
        min(mean(of) for of in single) / mean(taken),
        sum(a not in at for a, at in zip(chosen, table.times, strict=True)),
    )  # fmt: skip


def weighted(by: Sequence[float], values: Sequence[float]) -> float:
    return sum(w * v for w, v in zip(by, values, strict=True)) / sum(by)


def weighed_line(label: str, of: Sequence[Weighed]) -> str:
    names = ("regret", "ideal", "accuracy", "faster", "faster_sum", "unmeasured")
    lost, ideal, right, ratio, sums, missing = (statistics.fmean(getattr(one, name) for one in of) for name in names)
    spread = f" +- {100 * statistics.stdev(o.regret for o in of):.2f}" if len(of) > 1 else ""
    more = f", not measured there {missing:g}" if missing else ""
    return (
        f"  {label:34} PPP {100 * lost:6.2f}{spread} %  PoIS {100 * ideal:6.2f} %  accuracy {100 * right:5.1f} %  over"
        f" the best single version {ratio:.2f} (mean of ratios), {sums:.2f} (of sums){more}"
    )


def beside(name: str, table: Table, args: argparse.Namespace) -> Iterator[str]:
    """A line for each method, in 10 folds, and for each version alone: at the inputs as they are, and as MLCD's are
    distributed."""
    of = RANGES[name]
    largest = max(of.work(params_of(text)) for text in table.inputs)
    equal = [1.0] * len(table.inputs)
    kinds = {"": equal, ", as MLCD's": weights_of(name, table.inputs)}
    places = {of.stratum(params_of(text)) for text in table.inputs}
    drawn = strata(of, pool(of, program_of(name), defines_of(name), 0))
    covered = sum(len(part) for place, part in enumerate(drawn) if place in places) / sum(map(len, drawn))
    yield (
        f"  strata with inputs have {100 * covered:.1f} % of MLCD's; the largest work: {largest:.3g}; of each version "
        + ", ".join(f"{v} {sum(a in at for at in table.times)}" for a, v in enumerate(table.variants))
    )
    for method in args.methods.split(","):
        chosen = [folded(table, method, 10, seed)[1] for seed in range(args.repeats)]
        for kind, by in kinds.items():
            yield weighed_line(f"{method}, 10 folds{kind}", [weighed(table, one, by, args.cut) for one in chosen])
    draw = random.Random("chance")
    chance = [[draw.choice(sorted(at)) for at in table.times] for _ in range(20)]
    for kind, by in kinds.items():
        yield weighed_line(f"at random{kind}", [weighed(table, one, by, args.cut) for one in chance])
        for answer, version in enumerate(table.variants):
            yield weighed_line(f"always {version}{kind}", [weighed(table, [answer] * len(equal), by, args.cut)])


def weights_of(name: str, texts: Sequence[str]) -> list[float]:
    """For how much of MLCD's inputs each of these stands."""
    drawn = {part: pool(RANGES[part], program_of(part), defines_of(part), 0) for part in {name, "gemm"}}
    if name == SQUARES:
        return weights_with_squares(texts, drawn["gemm"], drawn[SQUARES])
    return weights(RANGES[name], texts, drawn[name])


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


def judged_by(method: str, table: Table, args: argparse.Namespace) -> dict[str, Any]:
    """The figures of a method, printed too: by splits, folds, and the ranges of features."""
    splits, count = [], len(table.inputs)
    for seed in range(args.seeds):
        order = random.Random(f"{seed} split").sample(range(count), count)
        kept = max(1, count // 10)
        splits.append(figures_of(table, method, order[kept:], order[:kept])[0])
    ten, chosen = folded(table, method, 10, 0)
    print(line(f"{method}, 90/10", splits))
    print(line(f"{method}, 10 folds", [ten]), flush=True)
    if args.again:
        measured_again(table, chosen, lowest([read_table(path) for path in args.again]), args.cut)
    ranges = by_range(table, method)
    print(line(f"{method}, ranges", [f for _, f in ranges]))
    worst, figures = max(ranges, key=lambda r: r[1].regret)
    print(line(f"{method}, by {worst}", [figures]), flush=True)
    return {
        "split": [asdict(f) for f in splits], "folds": asdict(ten), "ranges": {n: asdict(f) for n, f in ranges},
    }  # fmt: skip


def judged(name: str, args: argparse.Namespace) -> dict[str, Any]:
    source, kernel = "gemm" if name == SQUARES else name, KERNELS[name]
    path = args.folder / f"{source}.db"
    record: dict[str, Any] = {}
    if path.exists():
        tuned = load_tuned(path)
        table = complete(table_of(tuned), tuned)
        write_table(table, args.folder / f"{source}.csv.xz")
        record["machine"], record["gpu"] = tuned.runs[-1].machine.key, tuned.facts.gpu
        record["revision"] = tuned.runs[-1].revision
        record["costs"] = costs(tables(tuned, program_of(name))[0]) if tuned.kernel_choosers else {"lines": ()}
    else:
        table = read_table(args.folder / f"{source}.csv.xz")
    if args.others:
        others = (folder / f"{source}.csv.xz" for folder in args.others)
        table = joined([table, *(read_table(path) for path in others if path.exists())])
    if name == "gemm":
        table = only(table, [i for i, text in enumerate(table.inputs) if not is_square(text)])
    table = with_later(table, kernel)
    if args.without:
        table = without(table, name, args.without)
    count = record["inputs"] = len(table.inputs)
    wins = Counter(table.variants[min(t, key=lambda a: t[a])] for t in table.times if t)
    print(f"\n== {name}: {count} inputs; MLCD with an H100: PPP {kernel.seed[0]} %, PoIS {kernel.seed[1]} %")
    print("  fastest: " + ", ".join(f"{variant} {n}" for variant, n in wins.most_common()))
    total = sum(min(t.values()) for t in table.times if t)
    print(f"  best of every input, summed: {total:.4f} s")
    record["methods"] = {method: judged_by(method, table, args) for method in args.methods.split(",")}
    if args.beside:
        print("\n".join(beside(name, table, args)), flush=True)
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
    add("kernels", nargs="+", metavar="KERNEL", choices=[name for name in KERNELS if name != SQUARES])
    add("--out", required=True, type=Path, help="folder of the tuned files")
    add("--time", type=float, default=60.0, help="seconds for each kernel")
    add("--most", type=float, default=0.0, help="limit of the work of an input (default: that of MLCD's)")
    add("--cell", type=float, default=0.003)
    add("--cut", type=int, default=8)
    add("--watchdog", type=float, default=20.0)
    add("--again", type=Path, nargs="+", default=[], metavar="FOLDER")
    add("--known", type=Path, nargs="+", default=[], metavar="FOLDER")
    add("--seed", type=int, default=0)
    add("--target", choices=("cuda", "host"))
    built = commands.add_parser("build")
    built.add_argument("kernels", nargs="+", metavar="KERNEL", choices=[name for name in KERNELS if name != SQUARES])
    built.add_argument("--target", choices=("cuda", "host"))
    built.set_defaults(most=0.0, seed=0, cell=0.003, cut=8, watchdog=20.0)
    add = commands.add_parser("judge").add_argument
    add("folder", type=Path)
    add("kernels", nargs="*", metavar="KERNEL")
    add("--methods", default="forest,tree,cost", help="the first also learns actively")
    add("--seeds", type=int, default=20)
    add("--without", type=Path, metavar="TABLE")
    add("--with", dest="others", type=Path, nargs="+", default=[], metavar="FOLDER")
    add("--again", type=Path, nargs="+", metavar="TABLE")
    add("--beside", action="store_true", help="beside each version alone, and weighted as MLCD's inputs")
    add("--repeats", type=int, default=3, help="of the folds, for --beside")
    add("--cut", type=int, default=8, help="what a version that was not measured takes, times the fastest")
    add("--no-curves", dest="curves", action="store_false")
    args = parser.parse_args()
    if args.command == "build":
        with ProcessPoolExecutor(len(args.kernels)) as processes:
            for name, wrong in zip(args.kernels, processes.map(partial(build, args=args), args.kernels), strict=True):
                print(f"{name}: built {wrong}", flush=True)
        return
    if args.command == "measure":
        args.out.mkdir(parents=True, exist_ok=True)
        for name in args.kernels:
            try:
                measure(name, args)
            except DagcError as error:  # the other kernels go on
                print(f"{name}: {error}", flush=True)
        return
    for name in args.kernels or [
        n for n in KERNELS if any((args.folder / f"{n}{e}").exists() for e in (".db", ".csv.xz"))
    ]:
        record = judged(name, args)
        if (args.folder / f"{name}.db").exists():
            (args.folder / f"{name}.json").write_text(json.dumps(record, indent=1, default=str))


if __name__ == "__main__":
    main()
