"""Whole solves with everything counted: the default variant, a choice before the first run, a choice beside the runs.

    python -m benchmarks.gpu.beside --out FOLDER [--target host] [--kinds grid,box] [--sides 100,1000,2000]
        [--steps 10,100,1000,5000] [--ways default,now,beside] [--times 5]

Tunes benchmarks/gpu/beside.dag over the grids, then compiles it with the default fixed, with `--features now` and with
`--features beside`, and times each solve in turn: features, choice, conversion (`start_seconds`) and all iterations.
Prints medians of the totals in milliseconds, and writes FOLDER/beside.json. Solves of equal programs differ by a tenth
from process to process, so the ways take turns, in rotating order, and the ratio to the default is the median over the
turns, with its quartiles; `again` is the default once more, whose ratio shows what is noise. The aim: beside is nowhere
more than 2 % slower than the default, and as fast as `now` where that pays.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from dagc import api
from dagc.recipes import tune as recipes
from dagc.stages.options import TuneOptions

PROGRAM = Path(__file__).parent / "beside.dag"


def built(out: Path, tuned: Path, target: str | None, names: list[str]) -> dict[str, Path]:
    """The bench of each way to choose."""
    ways: dict[str, dict[str, Any]] = {
        "default": {"defines": {"product.variant": "csr"}},
        "again": {"defines": {"product.variant": "csr"}},
        "now": {"launch": str(tuned), "features": "now"},
        "beside": {"launch": str(tuned), "features": "beside"},
    }
    done = {w: api.compile(PROGRAM, out / w, target=target, force=True, **ways[w]) for w in names}
    return {way: one.directory / "bench" for way, one in done.items()}


def solve(bench: Path, data: Path, record: Path) -> dict[str, Any]:
    words = [str(bench.absolute()), "--data", str(data), "--seconds", "1e-6", "--repeats", "1", "--json", str(record)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(record.read_text())
    return found


def spread(ratios: list[float]) -> str:
    """The median of some ratios, and their quartiles."""
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", choices=("cuda", "host"))
    parser.add_argument("--kinds", default="grid,box", help="stencils of 5 (grid), 25 (box) and 81 (wide) points")
    parser.add_argument("--sides", default="100,1000,2000")
    parser.add_argument("--steps", default="10,100,1000,5000")
    parser.add_argument("--ways", default="default,now,beside", help="default, beside, and any of now, again")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument(
        "--build", action="store_true", help="tune and compile only; the same command without it continues"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    kinds = args.kinds.split(",")
    sides, steps = ([int(word) for word in text.split(",")] for text in (args.sides, args.steps))
    tuned = args.out / "beside.db"
    if not tuned.exists():
        inputs = tuple(f"{kind}(side = {side}, steps = 100)" for kind in kinds for side in sides)
        recipes.tune(PROGRAM, tuned, TuneOptions(target=args.target, inputs=inputs))
    benches = built(args.out, tuned, args.target, args.ways.split(","))
    if args.build:
        return
    rows = []
    for kind, side in product(kinds, sides):
        for step in steps:
            data = args.out / f"data-{kind}-{side}-{step}"
            if not data.exists():
                api.run_setup(PROGRAM, 1, data, defines={"system": f"{kind}(side = {side}, steps = {step})"})
            runs: dict[str, list[dict[str, Any]]] = {way: [] for way in benches}
            ways = list(benches)
            for turn in range(args.times):  # each way is the first of a turn equally often
                for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                    runs[way].append(solve(benches[way], data, args.out / "record.json"))
            totals = {w: [r.get("start_seconds", 0.0) + r["solve_seconds"] for r in of] for w, of in runs.items()}
            total = {w: median(of) for w, of in totals.items()}
            ratios = {
                way: [b / d for b, d in zip(of, totals["default"], strict=True)]
                for way, of in totals.items()
                if way != "default"
            }
            rows.append(
                {
                    "kind": kind,
                    "side": side,
                    "steps": step,
                    "seconds": total,
                    "ratios": ratios,
                    "beside": [r["beside"] for r in runs["beside"]],
                }
            )
            times = "  ".join(f"{way} {1e3 * seconds:9.3f}" for way, seconds in total.items())
            compared = "  ".join(f"{way}/default {spread(of)}" for way, of in ratios.items())
            print(f"{kind} {side:5} {step:6}  ms: {times}  {compared}  {rows[-1]['beside'][0]}", flush=True)
            (args.out / "beside.json").write_text(json.dumps(rows, indent=1) + "\n")
            shutil.rmtree(data)


if __name__ == "__main__":
    main()
