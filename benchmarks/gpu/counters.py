"""Hardware counters of every PolyBench kernel at sample points: what `dagc tune --method rational` fits to.

    python -m benchmarks.gpu.counters -o counters.csv [--only gemm,atax] [--sizes 12] [--settings 12] [--time 500]

A line a launch: program, op, parameters of the program, scalars, settings, the GPU's counts (dagc.measure.machine).
Sizes are drawn from the ranges of the oracle's (benchmarks/gpu/oracle.py), settings from the legal ones.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.gpu.oracle import POLYBENCH, SAMPLES
from dagc import api
from dagc.measure.machine import METRICS
from dagc.study.build import build
from dagc.study.gpu import collect, drawn
from dagc.study.prepare import Prepared
from dagc.study.task import tuning_task


def text(pairs: object) -> str:
    return " ".join(f"{n}={v}" for n, v in pairs)  # type: ignore[attr-defined]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    parser.add_argument("--only", default="", metavar="NAMES", help="programs, comma separated (default: all)")
    parser.add_argument("--sizes", type=int, default=12)
    parser.add_argument("--settings", type=int, default=12)
    parser.add_argument("--time", type=float, default=1e9, metavar="S", help="begin no program after so many seconds")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    end = time.monotonic() + args.time
    names = list(args.only.split(",") if args.only else POLYBENCH)
    columns = list(METRICS.values())
    with tempfile.TemporaryDirectory() as work, args.output.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["program", "op", "point", "scalars", "settings", *columns, "failure"])

        def prepare(name: str) -> Prepared:
            check, sizes = POLYBENCH[name]
            made = tuning_task(
                api.read(SAMPLES / f"{name}.dag"), sizes=sizes, check_at=check, target="cuda", seed=args.seed
            )
            folder = Path(work) / name
            return Prepared(made, build(made, folder), {})

        with ThreadPoolExecutor(max_workers=6) as pool:
            ready = {name: pool.submit(prepare, name) for name in names}
            for name in names:
                if time.monotonic() > end:
                    break
                prepared = ready[name].result()
                began, rows = time.monotonic(), 0
                ops = [u.name for u in prepared.task.sites]
                at, samples = collect(prepared, Path(work) / name, drawn(prepared.task, ops, args.sizes, args.settings))
                for cell, s in samples.items():
                    rows += 1
                    scalars = text(sorted(at.at[cell.case].scalars.items()))
                    writer.writerow(
                        [name, cell.site, cell.case.text, scalars, text(cell.choice.own.items())]
                        + [f"{s.metrics[c]:g}" if c in s.metrics else "" for c in columns]
                        + [s.failure]
                    )
                out.flush()
                for note in at.notes:
                    print(f"{name}: {note}", flush=True)
                print(f"{name}: {rows} launches, {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
