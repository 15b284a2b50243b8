"""Selectors of code variants on full tables of measurements, whole families of inputs held out; and incremental tuning.

    python -m benchmarks.tune.variants TABLE.csv[.xz]... [--methods tree,forest] [--each-family] [--seeds 3]
        [--program PROGRAM.dag]
    python -m benchmarks.tune.variants TUNED.db --test LIST [--methods forest] [--seeds 3] [--without VARIANT,...]
    python -m benchmarks.tune.variants TABLE.csv[.xz]... --curve METHOD [--seeds 20]
    python -m benchmarks.tune.variants TUNED.db... --stored

A table is as `benchmarks.tune.variant_tables` writes it, or a tuned file (`.db`) of `dagc tune --inputs`. Families are
dealt to five folds; what is chosen at the inputs of a fold was trained on the others. `--each-family`: each family is
a fold of its own. `--test`: trained on what the file learned from, judged at the inputs of the list; `unknown`: at
those of families that it did not learn from. `--program`: with the features that its `select` names, computed from
those of the table. `--without`: as if these variants had not been there. `--seeds`: of the training; figures are
means, a range stands behind the first. `--curve`: labelled inputs against percent of exhaustive, by strategy; every
third input is kept for judging. `--stored`: the selectors of the files as they are, at the test inputs of their
evaluations, as an emitted program takes their answers: the default where one is unsure or outside of what it was
trained on.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import math
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import get_args

from benchmarks.tune.curve import curve
from dagc.base.errors import UsageError
from dagc.choice.feature import SelectorFeature
from dagc.choice.methods import LEARNED
from dagc.choice.selector import compile_together
from dagc.ir.choice import PROGRAM
from dagc.ir.program import CodeText, Program
from dagc.ir.sym import Var, free
from dagc.stages.program import load
from dagc.store.tuned import ProgramChooser, Tuned, load_tuned
from dagc.study.held_out import LearnedSite, site_of
from dagc.study.judge import Judged, judge, judged_at
from dagc.study.report import AnswersAtInputs, chosen_at
from dagc.study.results import minimised
from dagc.study.sampling import Strategy
from dagc.study.train import TrainingTable, tabulated, train

NOISE = 0.02
AVERAGED = ("accuracy", "balanced")
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
    learned: tuple[int, ...] = ()  # of a tuned file: the inputs that it learned from

    def training(self, numbers: Iterable[int]) -> TrainingTable:
        """Of some of the inputs, to learn from."""
        kept = list(numbers)
        return TrainingTable.of(self.features, [self.vectors[i] for i in kept], [self.times[i] for i in kept], NOISE)


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
        found = site_of(tuned, op).table
        elements = {one.case: float(one.elements) for one in tuned.facts.inputs}
        texts = tuple(row.case.text for row in found.rows)
        families = tuple(t.partition("(")[0] if "(" in t else str(Path(t).parent) for t in texts)
        variants, times = tuple(s.in_words for s in chooser.choices), tuple(map(dict, found.times))
        sizes = tuple(elements.get(row.case, 0.0) for row in found.rows)
        learned = tuple(i for i, row in enumerate(found.rows) if not row.test)
        vectors, name = tuple(found.features), f"{path.stem} {op}"
        out.append(Table(name, texts, families, sizes, tuple(names), vectors, variants, times, learned))
    return out


def with_declared(table: Table, program: Program) -> Table:
    """With the features that the `select` of a kernel names: those of the table, and expressions over them as the
    program has them now. Raises UsageError for one that is neither."""
    rows = [dict(zip(table.features, v, strict=True)) for v in table.vectors]
    for one in (f for kernel in program.kernels for f in kernel.features if not isinstance(f.value, CodeText)):
        if rows and free(one.value) <= rows[0].keys():
            rows = [{**row, one.name: SelectorFeature(one.name, one.value).value(row)} for row in rows]
    named = [a for kernel in program.kernels for select in kernel.selects for a in select.args]
    names = tuple(dict.fromkeys(a.name for a in named if isinstance(a, Var)))
    if rows and (missing := [name for name in names if name not in rows[0]]):
        raise UsageError(
            f"{table.name} has no {', '.join(missing)}", "leave --program out, or name the program of the table"
        )
    return replace(table, features=names, vectors=tuple(tuple(row[name] for name in names) for row in rows))


def without(table: Table, dropped: Collection[str]) -> Table:
    """Without some variants. Raises UsageError for one that the table does not have."""
    if unknown := [name for name in dropped if name not in table.variants]:
        raise UsageError(f"{table.name} has no variant {', '.join(unknown)}", f"one of {', '.join(table.variants)}")
    kept = [i for i, name in enumerate(table.variants) if name not in dropped]
    times = tuple({kept.index(i): seconds for i, seconds in row.items() if i in kept} for row in table.times)
    return replace(table, variants=tuple(table.variants[i] for i in kept), times=times)


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


def each_family(table: Table) -> list[list[int]]:
    """A fold for each family."""
    return [[i for i, family in enumerate(table.families) if family == name] for name in dict.fromkeys(table.families)]


def listed(table: Table, path: str) -> list[int]:
    """The inputs of a list that the file did not learn from; all of unknown families for `unknown`."""
    tests = [i for i in range(len(table.inputs)) if i not in table.learned]
    if path == "unknown":
        known = {table.families[i] for i in table.learned}
        return [i for i in tests if table.families[i] not in known]
    lines = {line.replace(" ", "").strip() for line in Path(path).read_text().splitlines()}
    return [i for i in tests if table.inputs[i].replace(" ", "") in lines]


def held_out(table: Table, method: str, parts: Sequence[Sequence[int]], seed: int = 0, learned: bool = False) -> Judged:
    """`learned`: trained on what the file learned from; otherwise on all but the fold. Judged at the folds alone."""
    chosen: dict[int, int | Sequence[int]] = {}
    selectors = []
    for fold in parts:
        kept = table.learned if learned else [i for i in range(len(table.inputs)) if i not in set(fold)]
        selectors.append(train(method, table.training(kept).merged, seed))
    compile_together(selectors)
    for fold, selector in zip(parts, selectors, strict=True):
        for i in fold:
            chosen[i] = selector.order(table.vectors[i])
    at = sorted(chosen)
    inputs, times, sizes = ([column[i] for i in at] for column in (table.inputs, table.times, table.sizes))
    return judge(inputs, times, [chosen[i] for i in at], 0, NOISE, sizes=sizes)


def stored(path: Path) -> None:
    """A line for each selector of a tuned file that has test inputs."""
    tuned = load_tuned(path)
    if not tuned.facts.tests:
        print(f"{path}: no test inputs; `dagc tune --evaluate` measures some", file=sys.stderr)
        return
    for op, chooser in tuned.kernel_choosers.items():
        if chooser.selector is None:
            continue
        at = chosen_at(site_of(tuned, op), chooser.selector)
        described(f"{path.stem} {op}", chooser.method, at)
    program = tuned.program_chooser
    if program is not None:
        site = LearnedSite(PROGRAM, program.method, program.choices, of_programs(tuned, program), program.selector)
        at = chosen_at(site, program.selector)
        described(path.stem, program.method, at)


def of_programs(tuned: Tuned, program: ProgramChooser) -> TrainingTable:
    """The inputs that a chooser of whole programs was trained and evaluated on, with the objective of each plan."""
    objective = minimised(tuned)
    known = {one.case: one.features[PROGRAM] for one in tuned.facts.inputs}
    every = [(c, s.priced(objective)) for c, s in tuned.samples if c.site == PROGRAM and s.times and c.case in known]
    cases = dict.fromkeys(cell.case for cell, _ in every if cell.choice in program.choices)
    table = tabulated(program.data, program.choices, cases, every, known)
    rows = tuple(replace(row, test=row.case in tuned.facts.tests) for row in table.rows)
    return replace(table, rows=rows).with_noise(NOISE)


def described(name: str, method: str, at: AnswersAtInputs) -> None:
    """A line of the table of `--stored`."""
    found = judged_at(at.inputs, at.answers, 0, NOISE, at.reasons)
    f = found.all
    columns = [percent(v) for v in (f.percent, f.accuracy, f.balanced, f.regret)]
    columns += [percent(found.share("unsure")), percent(found.share("outside"))]
    print(f"| {name} | {method} | {f.inputs} | {' | '.join(columns)} | {len(found.wrong)} | {f.lost:.3f} |", flush=True)


def percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


def compare(
    table: Table, methods: Sequence[str], parts: Sequence[Sequence[int]], seeds: int, learned: bool = False
) -> None:
    judged = f"judged at {len(parts[0])}" if learned else f"{len(parts)} folds of families"
    print(f"\n{table.name}: {len(table.inputs)} inputs, {len(table.variants)} variants, {judged}")
    print("| method | % of exhaustive | where decisive | accuracy | balanced | regret | worst | under 70 % | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for method in methods:
        start = time.process_time()
        found = [held_out(table, method, parts, seed, learned) for seed in range(seeds)]
        took = (time.process_time() - start) / seeds
        f = found[0].all
        shares = [one.all.percent for one in found]
        span = f" ({percent(min(shares))} to {percent(max(shares))})" if seeds > 1 else ""
        rest = (
            [one.decisive.percent for one in found], *([getattr(one.all, name) for one in found] for name in AVERAGED)
        )  # fmt: skip
        ratios = [verdict.ratio for one in found for verdict in one.verdicts if not verdict.failed]
        worst, poor = max(ratios, default=math.nan), fmean(one.all.poor for one in found)
        print(
            f"| {method} | {percent(fmean(shares))}{span} | {' | '.join(percent(fmean(column)) for column in rest)} |"
            f" {fmean(one.all.geometric for one in found):.3f} | {worst:.2f} | {poor:.3g} | {took:.1f} |",
            flush=True,
        )
        for verdict in found[0].failed:
            print(f"{method} failed at {len(found[0].failed)} of {len(found[0].verdicts)} inputs: {verdict.name}")
    print(
        f"best single ({table.variants[f.single[0]]}) {percent(f.single[1])}, default {percent(f.default)},"
        f" random {percent(f.random)}"
    )


def incremental(table: Table, method: str, seeds: int, steps: int) -> None:
    test = [i for i in range(len(table.inputs)) if i % 3 == 0]
    pool = [i for i in range(len(table.inputs)) if i % 3]
    parts = ([table.vectors[i] for i in pool], [table.times[i] for i in pool])
    print(f"\n{table.name}, {method}: % of exhaustive by labelled inputs, {len(pool)} to choose from, {seeds} seeds")
    for strategy in get_args(Strategy):
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
    parser.add_argument("--each-family", action="store_true")
    parser.add_argument("--test", metavar="LIST|unknown")
    parser.add_argument("--program", type=Path)
    parser.add_argument("--without", metavar="VARIANTS", default="")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--seeds", type=int, help="default: 1, or 20 with --curve")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    if args.stored:
        print(
            "| file, op | method | inputs | % of exhaustive | accuracy | balanced | mean regret | unsure | outside |",
            end="",
        )
        print(" wrong | times the best there |\n" + "|---" * 11 + "|")
        for path in args.tables:
            stored(path)
        return 0
    for table in (
        t for path in args.tables for t in (tuned_tables(path) if path.suffix == ".db" else [read_table(path)])
    ):
        if args.without:
            table = without(table, args.without.split(","))
        if args.program:
            table = with_declared(table, load(args.program))
        if args.curve:
            incremental(table, args.curve, args.seeds or 20, args.steps)
        elif args.test:
            if not table.learned:
                parser.error("--test takes a tuned file (.db) with an evaluation")
            compare(table, args.methods.split(","), [listed(table, args.test)], args.seeds or 1, learned=True)
        else:
            parts = each_family(table) if args.each_family else folds(table)
            compare(table, args.methods.split(","), parts, args.seeds or 1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
