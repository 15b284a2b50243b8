"""The exhaustive oracle: every legal block of every PolyBench kernel at every size, timed on this GPU.

    python benchmarks/gpu/oracle.py -o oracle/ [--only gemm,atax] [--time 500] [--prepare]

One tuned file a program (`oracle/gemm.db`); what is there already is not measured again, so that several runs add up.
Each setting is checked once against NumPy at a small odd size, and its results at every other size against those of the
default setting. The L2 cache is flushed before each launch; for `WARM` programs also not flushed. `--prepare` compiles
and writes the data only. docs/how-to/launch-settings.md says how the figures are made from these files.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dagc import api
from dagc.choice.types import Cell
from dagc.lab.launches import Timing
from dagc.measure.machine import machine_facts
from dagc.recipes import tune_measure, tune_prepare
from dagc.recipes.runs import program_record, revision
from dagc.store.records import Records

SAMPLES = Path(__file__).parents[2] / "samples" / "polybench"
SQUARE = "512,1000,1024,2048,3000,4096,8192"
CUBIC = "256,500,512,1000,1024,2048"

# Program -> (size of the check, sizes). Squares, of which two are no powers of two, then skewed shapes.
PROGRAMS: dict[str, tuple[str, str]] = {
    "2dconv": ("NI=70 NJ=53", f"NI=NJ={SQUARE}; NI=512 NJ=16384; NI=16384 NJ=512"),
    "3dconv": (
        "NI=9 NJ=35 NK=47",
        "NI=NJ=NK=64,128,200,256,384; NI=32 NJ=1024 NK=1024; NI=1024 NJ=32 NK=512; NI=512 NJ=512 NK=32",
    ),
    "atax": ("NX=70 NY=53", f"NX=NY={SQUARE}; NX=512 NY=16384; NX=16384 NY=512"),
    "bicg": ("NX=70 NY=53", f"NX=NY={SQUARE}; NX=512 NY=16384; NX=16384 NY=512"),
    "mvt": ("N=70", f"N={SQUARE}"),
    "gesummv": ("N=70", f"N={SQUARE}"),
    "fdtd-2d": ("NX=70 NY=53 TMAX=3", f"NX=NY={SQUARE} TMAX=20; NX=512 NY=16384 TMAX=20; NX=16384 NY=512 TMAX=20"),
    "gemm": (
        "NI=70 NJ=53 NK=33",
        f"NI=NJ=NK={CUBIC}; NI=4096 NJ=128 NK=512; NI=128 NJ=4096 NK=512; NI=256 NJ=256 NK=8192",
    ),
    "2mm": ("NI=70 NJ=53 NK=33 NL=41", f"NI=NJ=NK=NL={CUBIC}; NI=4096 NJ=128 NK=512 NL=128"),
    "3mm": ("NI=70 NJ=53 NK=33 NL=41 NM=29", f"NI=NJ=NK=NL=NM={CUBIC}; NI=4096 NJ=128 NK=512 NL=128 NM=2048"),
    "syrk": ("NI=70 NJ=53", f"NI=NJ={CUBIC}; NI=256 NJ=8192; NI=2048 NJ=64"),
    "syr2k": ("NI=70 NJ=53", f"NI=NJ={CUBIC}; NI=256 NJ=8192; NI=2048 NJ=64"),
    "corr": ("M=70 N=53", "M=N=256,500,512,1000,1024,2048; M=256 N=8192; M=4096 N=128"),
    "covar": ("M=70 N=53", "M=N=256,500,512,1000,1024,2048; M=256 N=8192; M=4096 N=128"),
    "gramschm": ("NI=70 NJ=53", "NI=NJ=256,500,512,1000,1024,2048; NI=4096 NJ=128"),
}
WARM = ("gemm", "2dconv")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="output", type=Path, required=True, metavar="DIR", help="tuned files")
    parser.add_argument("--work", type=Path, metavar="DIR", help="libraries and data (default: a temporary folder)")
    parser.add_argument("--only", default="", metavar="NAMES", help="programs, comma separated (default: all)")
    parser.add_argument("--time", type=float, default=1e9, metavar="S", help="stop after so many seconds")
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    parser.add_argument(
        "--largest", type=float, default=1e18, metavar="N", help="leave out sizes whose product is larger"
    )
    parser.add_argument("--cell", type=float, default=0.25, metavar="S", help="longest time of a cell (default: 0.25)")
    parser.add_argument("--prepare", action="store_true", help="compile and write the data only")
    parser.add_argument("--warm", action="store_true", help="the subset without flushing")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    end = time.monotonic() + args.time
    names = list(args.only.split(",") if args.only else PROGRAMS)
    if args.warm:
        names = [n for n in names if n in WARM]
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or Path(temporary)
        with ThreadPoolExecutor(max_workers=6) as pool:
            ready = {name: pool.submit(prepare, name, args, work) for name in names}
            for name in names:
                prepared = ready[name].result()
                print(f"{name}: ready", flush=True)
                if not args.prepare and time.monotonic() < end:
                    measure(name, prepared, args, end)
    return 0


def prepare(name: str, args: argparse.Namespace, work: Path) -> tune_prepare.Prepared:
    check, sizes = PROGRAMS[name]
    plan = tune_prepare.tuning_task(
        api.read(SAMPLES / f"{name}.dag"), sizes=sizes, check_at=check, target=args.target, seed=args.seed
    )
    points = tuple(p for p in plan.points if _product(p) <= args.largest)
    from dataclasses import replace

    return tune_prepare.prepare(replace(plan, points=points), work / name, jobs=4)


def _product(point: object) -> float:
    product = 1.0
    for _, value in point.params:  # type: ignore[attr-defined]
        product *= value
    return product


def measure(name: str, ready: tune_prepare.Prepared, args: argparse.Namespace, end: float) -> None:
    from datetime import UTC, datetime

    from dagc import __version__
    from dagc.store.results import Run

    plan, flush = ready.task, 0 if args.warm else tune_prepare.DEFAULT_FLUSH * (args.target == "cuda")
    machine = machine_facts(args.target, plan.chosen.arch)
    run = Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine, ranks=1, seed=args.seed,
        strategy="exhaustive", seconds=args.cell, revision=revision(SAMPLES), version=__version__,
        options={"flush": flush},
    )  # fmt: skip
    with Records.open(
        args.output / f"{name}.db", program_record(plan.program), run, resume=True, other_machine=True, tuning=True
    ) as records:
        before = records.tuned()
        done = {(c.op, c.point, c.settings) for c, f in zip(before.cells, before.flushes, strict=True) if f == flush}
        wanted = [
            tune_measure.Wanted(u.op, p, tuple(s for s in ready.at[p].fits[u.op] if (u.op, p, s) not in done))
            for u in plan.units
            for p in plan.points
        ]
        check = {u.op: [s for s in plan.settings[u.op] if (u.op, s) not in before.checks] for u in plan.units}
        began, cells, failed = time.monotonic(), 0, 0

        def keep(result: Cell | tune_measure.CheckedSettings | tune_measure.Lost) -> None:
            nonlocal cells, failed
            failed += bool(result.failure)
            if isinstance(result, Cell):
                cells += 1
                records.add_cell(result, flush)
            elif isinstance(result, tune_measure.CheckedSettings):
                records.add_check(result.op, result.settings, plan.check_at, result.failure)
            if result.failure:
                print(f"{name}: {result}", flush=True)

        timing = Timing(seconds=args.cell, flush=flush)
        tune_measure.measure(ready, wanted, timing, keep, check=check, seconds=max(0.0, end - began))
    print(f"{name}: {cells} cells, {failed} failures, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
