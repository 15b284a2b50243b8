"""The race of the solvers sample at systems whose solves are on record, by the lengths of its rounds.

    DAGC_MATRICES=FOLDER python -m benchmarks.tune.races TUNED.db OUT.csv [--rounds 20x6 20x6,80x3] [--most NONZEROS]

TUNED.db: a tuned file of samples/solvers. `20x6,80x3`: 20 products with the matrix for each of the six pairs, then 80
in all for the three that are ahead; the last one given is that of OUT.csv, a table for `benchmarks.tune.variants` with
the features that the sample selects by. Printed for each: percent of exhaustive of the pair in front, which nothing was
trained for, and the products that the races take. Systems that no pair solves are left out, as are those that cannot be
read, which are named. No GPU.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.gpu.variants import SAMPLES, tables
from dagc.ir.choice import Choice
from dagc.store.tuned import load_tuned
from dagc.study.judge import judge

ROOT = Path(__file__).resolve().parents[2]
Rounds = tuple[tuple[int, int], ...]


def sample() -> Any:
    spec = importlib.util.spec_from_file_location("solvers", ROOT / "samples/solvers/solvers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rounds_of(text: str) -> Rounds:
    return tuple((int(products), int(pairs)) for products, _, pairs in (one.partition("x") for one in text.split(",")))


def place(answers: Sequence[Choice], solver: str, precond: str) -> int:
    """The number of a pair among the answers on record."""
    return [one.own for one in answers].index({"solver": solver, "precond": precond})


def raced(solvers: Any, system: str, rounds: Sequence[Rounds]) -> tuple[Mapping[str, Any], list[Any]]:
    """The arrays of a system, and a race for each of `rounds`."""
    data = solvers.load(0, 1, 0, system)
    A = solvers.matrix_of(data)
    return data, [solvers.race(A, data, 1e-6, one) for one in rounds]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", nargs="+", default=["20x6", "20x6,80x3"])
    parser.add_argument("--most", type=float, default=math.inf)
    args = parser.parse_args()
    solvers, rounds = sample(), [rounds_of(text) for text in args.rounds]
    table = tables(load_tuned(args.tuned), ROOT / SAMPLES["solvers"])[0]
    rows = [r for r in (*table.train, *table.test) if any(map(math.isfinite, r.times.values()))]
    kept, orders, products = [], [], []
    with args.out.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["input", "family", "size", "n", "leader_solver", "leader_precond", "variant", "seconds"])
        for row in sorted(rows, key=lambda r: r.facts.elements):
            if row.facts.elements > args.most:
                continue
            try:
                data, races = raced(solvers, row.name, rounds)
            except ValueError as error:
                print(f"left out: {row.name}: {error}")
                continue
            kept.append(row)
            orders.append([[place(table.answers, *t.pair) for t in trials] for trials in races])
            products.append([sum(t.done * t.products for t in trials) for trials in races])
            solver, precond = races[-1][0].pair
            first = (data["n"], solvers.SOLVERS.index(solver), solvers.PRECONDITIONERS.index(precond))
            for number, choice in enumerate(table.answers):
                seconds = row.times.get(number, math.inf)
                out.writerow(
                    [row.name, row.name.partition("(")[0], row.facts.elements, *first, choice.in_words,
                     seconds if math.isfinite(seconds) else ""]
                )  # fmt: skip
            file.flush()
    print("| rounds | products | % of exhaustive | under 70 % |\n|---|---|---|---|")
    for k, text in enumerate(args.rounds):
        found = judge([r.name for r in kept], [r.times for r in kept], [o[k] for o in orders], 0, 0.02)
        mean = fmean(p[k] for p in products)
        print(f"| {text} | {mean:.0f} | {100 * found.all.percent:.2f} | {found.all.poor} of {len(kept)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
