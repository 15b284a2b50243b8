"""Code variants over inputs: trained on a sample's train list, evaluated on its test list, replayed incrementally.

    PYTHONUNBUFFERED=1 python -m benchmarks.gpu.variants --out "$OUT" --limit 540 SAMPLE...
    python -m benchmarks.gpu.variants --out FOLDER --replay FOLDER [SAMPLE...]

SAMPLE is spmv, solvers, bfs, histogram or sort, or the path of a .dag with train.txt and test.txt beside it. For each:
`dagc tune --variants` at the training inputs, `dagc tune --evaluate` at the test inputs; percent of exhaustive by size
and apart for inputs whose best and second differ by more than the noise, each variant alone, accuracy, regret, learning
curves (Fig. 7 of Nitro) with 20 seeds from the full table, costs of features and conversions, times of everything. The
tuned files stay in FOLDER: --replay repeats learning and judging from them, with other methods too, without a GPU.
What was measured when the time limit was reached stays; the same command with the same FOLDER continues it.

--target host with --train and --test (lists of few, small inputs) rehearses it without a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from benchmarks.tune.curve import curve
from dagc.base.errors import DagcError
from dagc.base.sample import Sample as Timed
from dagc.choice.methods import LEARNED
from dagc.choice.types import Case
from dagc.ir.choice import PROGRAM, Choice
from dagc.recipes import tune as recipes
from dagc.stages.options import TuneOptions
from dagc.stages.program import load
from dagc.store.tuned import InputFacts, ProgramChooser, Tuned, load_tuned
from dagc.study.judge import Figures, Judged, Times, judge, pays_after
from dagc.study.sampling import Strategy
from dagc.study.train import TrainingTable, noise_of_best, trained

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = {
    "spmv": "samples/spmv/variants.dag", "solvers": "samples/solvers/solvers.dag", "bfs": "samples/bfs/bfs.dag",
    "histogram": "samples/histogram/histogram.dag", "sort": "samples/sort/sort.dag",
}  # fmt: skip
# Percent of exhaustive, Nitro (Muralidharan et al. 2014, section V-A; Tesla C2050).
NITRO = {"spmv": 93.74, "solvers": 93.23, "bfs": 97.92, "histogram": 94.16, "sort": 99.25}
SEEDS, STEPS = 20, 50


@dataclass(frozen=True, slots=True)
class Sample:
    """`train`, `test`: lists as `--inputs` takes them."""

    name: str
    program: Path
    train: str
    test: str


def sample_of(word: str, train: str, test: str) -> Sample:
    program = ROOT / SAMPLES[word] if word in SAMPLES else Path(word)
    folder = program.parent
    return Sample(
        word if word in SAMPLES else program.stem, program, train or f"@{folder / 'train.txt'}",
        test or f"@{folder / 'test.txt'}",
    )  # fmt: skip


# ---- measured ---------------------------------------------------------------------------------


def measured(sample: Sample, out: Path, args: argparse.Namespace, end: float) -> dict[str, Any]:
    """Train and evaluate; the times that took. What is in the file already is not measured again."""
    tuned, took = out / f"{sample.name}.db", {}
    options = TuneOptions(
        target=args.target, cell=args.cell, variants=True, method=args.method, inputs=(sample.train,),
        resume=tuned.exists(), seed=args.seed, check_at=args.check_at, flush=not args.warm,
    )  # fmt: skip
    began = time.monotonic()
    left = max(1.0, 0.5 * (end - began))
    done = recipes.tune(sample.program, tuned, _replace(options, seconds=left), _progress)
    took["train"] = time.monotonic() - began
    (out / f"{sample.name}-train.txt").write_text(done.render())
    print(done.render(), flush=True)
    began = time.monotonic()
    left = max(1.0, end - began - 20)
    judged = recipes.evaluate(
        sample.program, tuned, _replace(options, inputs=(sample.test,), seconds=left), _progress
    )  # fmt: skip
    took["evaluate"] = time.monotonic() - began
    (out / f"{sample.name}-test.txt").write_text(judged.render())
    print(judged.render(), flush=True)
    return took


def _replace(options: TuneOptions, **changes: Any) -> TuneOptions:
    from dataclasses import replace

    return replace(options, **changes)


_SAID = [0.0]


def _progress(done: int, total: int, what: str) -> None:
    """A line every ten seconds."""
    if time.monotonic() > _SAID[0] + 10:
        _SAID[0] = time.monotonic()
        print(f"  {done} of {total}: {what}", flush=True)


# ---- replayed from the tuned file ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """All that was measured of one site, the training inputs and the test inputs apart. Rows of both are `Row`s."""

    op: str
    answers: tuple[Choice, ...]
    features: tuple[str, ...]
    train: tuple[Row, ...]
    test: tuple[Row, ...]
    tolerance: float


@dataclass(frozen=True, slots=True)
class Row:
    """One input. `times` by number of the answer: infinite where a constraint fails, missing where it failed. `noise`:
    of comparing the two fastest, relative."""

    name: str
    vector: tuple[float, ...]
    times: Times
    facts: InputFacts
    noise: float


def tables(tuned: Tuned, program: Path) -> list[Table]:
    """One for each site that the file chooses at."""
    out = []
    for op, chooser in tuned.choosers.items():
        selector = chooser.selector
        features = selector.data if selector is not None else chooser.data
        cells: dict[Case, dict[Choice, Timed]] = {}
        for cell, sample in tuned.samples:
            if cell.site == op:
                cells.setdefault(cell.case, {})[cell.choice] = sample
        answers = _plans(chooser, cells, program) if isinstance(chooser, ProgramChooser) else chooser.choices
        rows: dict[bool, list[Row]] = {False: [], True: []}
        for facts in tuned.facts.inputs:
            if facts.case in cells:
                rows[facts.test].append(_row(op, facts, cells[facts.case], answers, features))
        every = (*rows[False], *rows[True])
        noise = statistics.median(row.noise for row in every) if every else 0.0
        out.append(Table(op, tuple(answers), tuple(features), tuple(rows[False]), tuple(rows[True]), noise))
    return out


def _plans(chooser: ProgramChooser, cells: Mapping[Case, Mapping[Choice, Timed]], program: Path) -> tuple[Choice, ...]:
    """All that was measured, the program's own setting first."""
    plain = load(program)
    own = Choice(tuple((name, plain.decision(name)) for name in chooser.names))
    return tuple(sorted({s for of in cells.values() for s in of}, key=lambda s: (s != own, repr(s))))


def _row(
    op: str, facts: InputFacts, cells: Mapping[Choice, Timed], answers: Sequence[Choice], names: Sequence[str]
) -> Row:
    known = facts.features.get(op, {})
    times: dict[int, float] = {}
    for number, choice in enumerate(answers):
        cell = cells.get(choice)
        if cell is None and op != PROGRAM:
            times[number] = math.inf  # its constraint failed there
        elif cell is not None and cell.good:
            times[number] = cell.value
    timed = [c for c in cells.values() if c.good]
    noise = noise_of_best((c.interval[0], c.value, c.interval[1]) for c in timed)
    return Row(facts.case.text, tuple(known.get(n, math.nan) for n in names), times, facts, noise)


def judged_by(table: Table, method: str, seed: int) -> tuple[Judged, float]:
    """Judged at the test inputs (at the training inputs where there are none), and the seconds of training."""
    began = time.monotonic()
    vectors, times = [r.vector for r in table.train], [r.times for r in table.train]
    selector = trained(TrainingTable.of(table.features, vectors, times, table.tolerance), method, seed)
    took = time.monotonic() - began
    rows = table.test or table.train
    chosen = [
        selector.order(r.vector) if selector is not None and all(map(math.isfinite, r.vector)) else 0 for r in rows
    ]
    sizes = [float(r.facts.elements) for r in rows]
    return judge([r.name for r in rows], [r.times for r in rows], chosen, 0, [r.noise for r in rows], sizes=sizes), took


def report(table: Table, nitro: float | None, methods: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """The record of one site, and its text on standard output."""
    record: dict[str, Any] = {
        "op": table.op, "answers": [s.in_words for s in table.answers], "features": list(table.features),
        "train": len(table.train), "test": len(table.test), "tolerance": table.tolerance, "nitro": nitro,
        "methods": {}, "curves": {}, "costs": costs(table),
    }  # fmt: skip
    print(f"{table.op}: {len(table.answers)} answers, {len(table.train)} training and {len(table.test)} test inputs")
    for method in methods:
        try:
            judged, took = judged_by(table, method, args.seed)
        except DagcError as error:
            print(f"  {method}: {error.message}")
            continue
        record["methods"][method] = {**_judged(judged, table), "train_seconds": took}
        beside = f" (Nitro {nitro:.2f})" if nitro is not None else ""
        print(f"  {method}, trained in {took:.1f} s{beside}:")
        for line in judged.lines(lambda answer: table.answers[answer].in_words, worst=8):
            print(f"    {line}")
    for method in methods[:1] if args.curves else ():
        for strategy in get_args(Strategy):
            record["curves"][strategy] = _curve(table, method, strategy, args)
    for line in record["costs"]["lines"]:
        print(f"  {line}")
    return record


def _curve(table: Table, method: str, strategy: Any, args: argparse.Namespace) -> dict[str, Any]:
    rows = table.test or table.train
    found = curve(
        table.features, [r.vector for r in table.train], [r.times for r in table.train], method, strategy,
        test=([r.vector for r in rows], [r.times for r in rows]), seeds=range(args.seeds),
        steps=min(STEPS, len(table.train)), tolerance=table.tolerance,
    )  # fmt: skip
    marks = ", ".join(f"{k}: {100 * found.mean[k - found.first]:.2f} %" for k in (5, 10, 15, 20, 25, 35, 50)
                      if 0 <= k - found.first < len(found.mean))  # fmt: skip
    print(f"  curve, {method}, {strategy}: {marks}; full {100 * found.full:.2f} %;"
          f" 90 % from {found.reaches(0.9)}, 99 % from {found.reaches(0.99)} labelled inputs", flush=True)  # fmt: skip
    return {"first": found.first, "percent": found.percent, "mean": found.mean, "full": found.full}


def costs(table: Table) -> dict[str, Any]:
    """Of features and conversions: shares of one call of the default, and calls that pay for them."""
    every, lines = (*table.train, *table.test), []
    shares, pays, converted = [], [], {}
    for row in every:
        default = row.times.get(0, math.inf)
        best = min(row.times.values(), default=math.inf)
        own = sum(row.facts.seconds.values())
        if own and default < math.inf:
            shares.append(own / default)
            pays.append(pays_after(own, default, best))
        for variant, seconds in row.facts.conversions.get(table.op, {}).items():
            fast = [t for i, t in row.times.items() if table.answers[i].variant == variant]
            pays_then = pays_after(seconds, default, min(fast, default=math.inf))
            converted.setdefault(variant, []).append((seconds, pays_then))
    if shares:
        lines.append(
            f"features: {statistics.median(shares):.2f} calls of the default (median), {max(shares):.2f} at most"
        )
        lines.append(f"features pay after {_median(pays)}")
        for name, own in _each_feature(every).items():
            lines.append(
                f"feature {name}: {1e6 * statistics.median(own):.1f} us (median), {1e6 * max(own):.1f} (largest)"
            )
    out: dict[str, Any] = {
        "feature_shares": shares, "feature_calls": pays, "conversions": {}, "features": _each_feature(every),
    }  # fmt: skip
    for variant, of in converted.items():
        took = 1e6 * statistics.median(seconds for seconds, _ in of)
        lines.append(f"conversion of {variant}: {took:.0f} us (median), pays after {_median([pays for _, pays in of])}")
        out["conversions"][variant] = of
    return {**out, "lines": lines}


def _each_feature(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Seconds of each code feature at the inputs, the most expensive first."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, seconds in row.facts.seconds.items():
            found.setdefault(name, []).append(seconds)
    return dict(sorted(found.items(), key=lambda item: -statistics.median(item[1])))


def _median(calls: Sequence[float]) -> str:
    paid = [c for c in calls if c < math.inf]
    if not paid:
        return "no number of calls"
    return f"{statistics.median(paid):.0f} calls at {len(paid)} of {len(calls)} inputs"


def _judged(judged: Judged, table: Table) -> dict[str, Any]:
    return {
        "all": _figures(judged.all, table), "decisive": _figures(judged.decisive, table),
        "bands": {name: _figures(figures, table) for name, figures in judged.bands},
        "unsolved": list(judged.unsolved), "refused": judged.refused,
        "cases": [
            {"input": c.name, "chosen": table.answers[c.chosen].in_words, "seconds": c.value,
             "best": table.answers[c.best].in_words, "best_seconds": c.best_value}
            for c in judged.verdicts
        ],
    }  # fmt: skip


def _figures(figures: Figures, table: Table) -> dict[str, Any]:
    singles = {table.answers[answer].in_words: share for answer, share in figures.singles}
    return {
        "inputs": figures.inputs, "percent": figures.percent, "accuracy": figures.accuracy,
        "balanced": figures.balanced, "regret": figures.regret, "geometric": figures.geometric, "lost": figures.lost,
        "poor": figures.poor, "singles": singles, "default": figures.default, "random": figures.random,
    }  # fmt: skip


def matrix(table: Table) -> list[dict[str, Any]]:
    """Every time, for other programs."""
    return [
        {"input": row.name, "test": row.facts.test, "elements": row.facts.elements,
         "features": dict(zip(table.features, row.vector, strict=True)),
         "seconds": {table.answers[i].in_words: t for i, t in row.times.items() if t < math.inf}}
        for row in (*table.train, *table.test)
    ]  # fmt: skip


# ---- the command ------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("samples", nargs="*", metavar="SAMPLE")
    add("--out", required=True, type=Path, help="folder of the tuned files, texts and JSON")
    add("--limit", type=float, default=540.0, help="seconds for everything that is measured")
    add("--replay", type=Path, help="learn and judge again from the tuned files of this folder; nothing is measured")
    add("--target", choices=("cuda", "host"))
    add("--method", default="", help="for the tuned file (default: that of the sample)")
    add("--methods", default="", help="to compare, by commas (default: that of the file, then all others)")
    add("--train", default="", help="list in place of train.txt")
    add("--test", default="", help="list in place of test.txt")
    add("--check-at", default="", help="input at which results are compared with the reference")
    add("--warm", action="store_true", help="do not flush the L2 cache before each launch")
    add("--cell", type=float, default=0.1, help="seconds for one answer at one input, at most")
    add("--seeds", type=int, default=SEEDS)
    add("--seed", type=int, default=0)
    add("--no-curves", dest="curves", action="store_false")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + args.limit
    words = args.samples or ([p.stem for p in sorted(args.replay.glob("*.db"))] if args.replay else list(SAMPLES))
    rows: list[tuple[str, ...]] = []
    for number, word in enumerate(words):
        sample, took = sample_of(word, args.train, args.test), {}
        print(f"== {sample.name}", flush=True)
        try:
            if args.replay is None:
                share = time.monotonic() + (end - time.monotonic()) / (len(words) - number)
                took = measured(sample, args.out, args, share)
        except Exception:  # the other samples go on
            traceback.print_exc()
        try:
            rows += _write(sample, args, took)
        except Exception:  # the other samples go on
            traceback.print_exc()
        if rows:
            (args.out / "summary.txt").write_text(summary(rows))
            print(summary(rows), flush=True)


def _write(sample: Sample, args: argparse.Namespace, took: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Learn, judge and write what the tuned file of a sample holds; its lines of the summary."""
    tuned = load_tuned((args.replay or args.out) / f"{sample.name}.db")
    record = {
        "sample": sample.name, "machine": tuned.runs[-1].machine.key, "version": tuned.runs[-1].version,
        "revision": tuned.runs[-1].revision, "gpu": tuned.facts.gpu, "seconds": dict(took), "sites": [], "times": {},
    }  # fmt: skip
    for one in tables(tuned, sample.program):
        own = tuned.choosers[one.op].method
        methods = args.methods.split(",") if args.methods else [own, *(m for m in LEARNED if m != own)]
        methods = [m for m in methods if m in LEARNED]
        record["sites"].append(report(one, NITRO.get(sample.name), methods, args))
        record["times"][one.op] = matrix(one)
    (args.out / f"{sample.name}.json").write_text(json.dumps(record, indent=1, default=str))
    return [_line(sample.name, site) for site in record["sites"] if site["methods"]]


HEAD = ("sample", "inputs", "answers", "method", "% exhaustive", "Nitro", "decisive", "accuracy", "balanced", "regret",
        "under 70 %", "single", "default")  # fmt: skip


def _line(name: str, site: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the summary: of the first method."""
    method, judged = next(iter(site["methods"].items()))
    every, nitro = judged["all"], site["nitro"]
    single = next(iter(every["singles"].values()), math.nan)
    shares = (every["percent"], judged["decisive"]["percent"], every["accuracy"], every["balanced"], every["regret"])
    percent, decisive, accuracy, balanced, regret = (f"{100 * share:.2f}" for share in shares)
    return (
        f"{name}.{site['op']}", str(every["inputs"]), str(len(site["answers"])), method, percent,
        f"{nitro:.2f}" if nitro is not None else "-", decisive, accuracy, balanced, regret, str(every["poor"]),
        f"{100 * single:.2f}", f"{100 * every['default']:.2f}",
    )  # fmt: skip


def summary(rows: Sequence[tuple[str, ...]]) -> str:
    """All samples, a line each; shares in percent."""
    widths = [max(len(row[i]) for row in (HEAD, *rows)) for i in range(len(HEAD))]
    lines = ("  ".join(word.rjust(w) for word, w in zip(row, widths, strict=True)) for row in (HEAD, *rows))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
