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
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.devices import KERNELS, with_later, without
from benchmarks.tune.variants import NOISE, Table, read_table
from dagc.study.judge import Figures, judge
from dagc.study.move import losses_of, ratios_of
from dagc.study.sampling import trained

Row = tuple[Sequence[float], Mapping[int, float]]


def rows_of(table: Table, variants: Sequence[str]) -> dict[str, Row]:
    """By input; times by the place of the variant in `variants`."""
    place = {i: variants.index(v) for i, v in enumerate(table.variants)}
    return {
        name: (x, {place[a]: t for a, t in at.items()})
        for name, x, at in zip(table.inputs, table.vectors, table.times, strict=True)
    }


def judged(table: Table, taught: Mapping[str, Row], test: Mapping[str, Row], method: str) -> Figures:
    vectors, times = [x for x, _ in taught.values()], dict(enumerate(at for _, at in taught.values()))
    selector = trained(table.features, vectors, times, method, 0, NOISE)
    said = [selector.order(x) if selector is not None else 0 for x, _ in test.values()]
    return judge(list(test), [at for _, at in test.values()], said, 0, NOISE).all


def moved(table: Table, theirs: Mapping[str, Row], ours: Mapping[str, Row], method: str, seed: int) -> dict[str, Row]:
    """What is learned from."""
    if not ours:
        return dict(theirs)
    losses = losses_of(method, table.features, ours, theirs, NOISE, seed)
    way = min(range(len(losses)), key=lambda n: losses[n])
    ratios = ratios_of(ours, theirs) if way == 2 else {}
    more = {
        p: (x, {a: t * ratios.get(a, ratios.get(-1, 1.0)) for a, t in at.items()})
        for p, (x, at) in theirs.items()
        if way and p not in ours
    }
    return {**more, **ours}


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
                order = random.Random(f"{seed} few").sample(sorted(every), len(every))
                ours, test = {p: every[p] for p in order[:few]}, {p: every[p] for p in order[few:]}
                found["moved"].append(judged(here, moved(home, theirs, ours, args.method, seed), test, args.method))
                if few:
                    found["alone"].append(judged(here, ours, test, args.method))
            for way, figures in found.items():
                if figures:
                    lost, ideal = (100 * statistics.fmean(getattr(f, k) for f in figures) for k in ("regret", "ideal"))
                    print(f"{name}: {few} known, {way}: PPP {lost:.2f} %, PoIS {ideal:.2f} %", flush=True)


if __name__ == "__main__":
    main()
