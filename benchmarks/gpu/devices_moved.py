"""Choosers of one machine on another: what they lose there, and what a few samples there recover. Needs no GPU.

    python -m benchmarks.gpu.devices_moved HOME HERE KERNEL... [--few 0,10,20,50] [--without TABLE]

HOME and HERE: folders of tables as benchmarks/gpu/devices.py writes them. All inputs of HOME teach; so many inputs of
HERE, drawn at random (`--seeds` times), are known there, and the others judge. `moved`: as `dagc tune --warm-start`
learns, from both or from one, by cross-validation at the known ones (dagc/study/move.py); `alone`: from the
known ones only.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.devices import KERNELS, with_later, without
from benchmarks.tune.variants import NOISE, Table, read_table
from dagc.choice.types import Case
from dagc.study.judge import Figures, judged_at
from dagc.study.move import losses_of, ratios_of, scaled
from dagc.study.train import TrainingTable, trained


def rows_of(table: Table, variants: Sequence[str]) -> TrainingTable:
    """Times by the place of the variant in `variants`."""
    place = {i: variants.index(v) for i, v in enumerate(table.variants)}
    known = table.training(range(len(table.inputs)))
    rows = (
        replace(row, case=Case.of({"input": name}), times={place[a]: t for a, t in row.times.items()})
        for name, row in zip(table.inputs, known.rows, strict=True)
    )
    return replace(known, rows=tuple(rows))


def judged(taught: TrainingTable, test: TrainingTable, method: str) -> Figures:
    selector = trained(taught, method)
    said = [selector.order(x) if selector is not None else 0 for x in test.features]
    return judged_at(test, said, 0, NOISE).all


def moved(theirs: TrainingTable, ours: TrainingTable, method: str, seed: int) -> TrainingTable:
    """What is learned from."""
    if not ours.rows:
        return theirs
    losses = losses_of(method, ours, theirs, seed)
    way = min(range(len(losses)), key=lambda n: losses[n])
    measured = {row.case for row in ours.rows}
    others = replace(theirs, rows=tuple(row for row in theirs.rows if way and row.case not in measured))
    more = scaled(others, ratios_of(ours, theirs) if way == 2 else {})
    return replace(ours, rows=(*more.rows, *ours.rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("here", type=Path)
    parser.add_argument("kernels", nargs="+", choices=KERNELS)
    parser.add_argument("--few", default="0,10,20,50")
    parser.add_argument("--method", default="cost")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--without", type=Path, metavar="TABLE", help="names inputs of HOME that are left out")
    args = parser.parse_args()
    for name in args.kernels:
        home, here = (with_later(read_table(f / f"{name}.csv.xz"), KERNELS[name]) for f in (args.home, args.here))
        home = without(home, name, args.without) if args.without else home
        theirs, every = (rows_of(t, here.variants) for t in (home, here))
        for few in map(int, args.few.split(",")):
            found: dict[str, list[Figures]] = {"moved": [], "alone": []}
            for seed in range(args.seeds if few else 1):
                by_name = sorted(range(len(every.rows)), key=lambda i: here.inputs[i])
                order = random.Random(f"{seed} few").sample(by_name, len(by_name))
                ours, test = every.only(order[:few]), every.only(order[few:])
                found["moved"].append(judged(moved(theirs, ours, args.method, seed), test, args.method))
                if few:
                    found["alone"].append(judged(ours, test, args.method))
            for way, figures in found.items():
                if figures:
                    lost, ideal = (100 * statistics.fmean(getattr(f, k) for f in figures) for k in ("regret", "ideal"))
                    print(f"{name}: {few} known, {way}: PPP {lost:.2f} %, PoIS {ideal:.2f} %", flush=True)


if __name__ == "__main__":
    main()
