"""The exhaustive oracle: every legal setting of every kernel of a set at every size, timed on this GPU.

    python benchmarks/gpu/oracle.py -o oracle/ [--set polybench] [--only gemm,atax] [--time 500] [--prepared]
    python benchmarks/gpu/oracle.py -o oracle/ --set fit --time 540 [--done oracle-fit.csv.xz]

A set is `polybench`, a split of the corpus (`fit`, `validate`, `unseen`, `unseen2` to `unseen7`), or `corpus` for all
of it. One tuned file a program (`oracle/gemm.db`, `oracle/stream.add.db`); what is there already is not measured
again, nor what the CSVs of `--done` have (made by benchmarks/tune/oracle_csv.py, from another machine of the kind),
so that several runs add up.
Each setting is checked once against NumPy at a small odd size, and its results at every other size against those of the
default setting. Sizes and settings come in random order. The L2 cache is flushed before each launch; for `WARM`
programs also not flushed. Programs are compiled, and their data written, by other processes while one is measured.
`--prepare` does this alone. docs/how-to/launch-settings.md says how the figures are made from these files.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing import TimeoutError, get_context
from multiprocessing.pool import AsyncResult, ThreadPool
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.corpus.index import SPLITS, entries
from benchmarks.tune.oracle_csv import read_oracle
from dagc import __version__, api
from dagc.base.errors import DagcError
from dagc.base.signals import Deadline
from dagc.build.mpi import cores
from dagc.choice.occupancy import occupancy_of
from dagc.choice.types import Case, Cell
from dagc.ir.choice import AS_WRITTEN, Choice, names_form
from dagc.lab.launches import Timing
from dagc.measure.machine import machine_facts
from dagc.measure.service import Service, WorkerLink
from dagc.perf.hardware import load_hardware
from dagc.store.records import Records
from dagc.store.results import Run
from dagc.study import measure as tune_measure
from dagc.study.build import settings_compiled
from dagc.study.files import program_record, revision
from dagc.study.prepare import DEFAULT_FLUSH, Prepared, prepare
from dagc.study.results import NOTHING_MEASURED
from dagc.study.task import tuning_task

SAMPLES = ROOT / "samples" / "polybench"
SQUARE = "512,1000,1024,2048,3000,4096,8192"
CUBIC = "256,500,512,1000,1024,2048"

# Program -> (size of the check, sizes). Squares, of which two are not powers of two, then skewed shapes.
POLYBENCH: dict[str, tuple[str, str]] = {
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
AHEAD = 24  # programs whose data are on the disk at a time

Known: TypeAlias = "frozenset[tuple[str, str, Case, Choice]]"  # program, op, size, settings


@dataclass(frozen=True, slots=True)
class Program:
    """A program of a set. `sizes`: as `dagc tune --sizes` takes them; "": the values after `over`."""

    name: str
    path: Path
    check: str
    sizes: str


def programs(which: str) -> list[Program]:
    """Of a set. The families of the corpus take turns, so that a run that ends early has some of each."""
    if which == "polybench":
        return [Program(name, SAMPLES / f"{name}.dag", *both) for name, both in POLYBENCH.items()]
    splits = () if which == "corpus" else (which,)
    turns: Counter[str] = Counter()
    order = []
    for e in entries(*splits):
        order.append((turns[e.family], len(order), e))
        turns[e.family] += 1
    return [Program(f"{e.family}.{e.name}", e.path, e.check, "") for _, _, e in sorted(order, key=lambda o: o[:2])]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="output", type=Path, required=True, metavar="DIR", help="tuned files")
    parser.add_argument("--set", choices=("polybench", "corpus", *SPLITS), default="polybench")
    parser.add_argument("--work", type=Path, metavar="DIR", help="libraries and data (default: a temporary folder)")
    parser.add_argument("--only", default="", metavar="NAMES", help="programs, or families, comma separated")
    parser.add_argument("--done", type=Path, nargs="*", default=[], metavar="CSV", help="cells of earlier runs")
    parser.add_argument("--time", type=float, default=1e6, metavar="S", help="stop after so many seconds")
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    parser.add_argument(
        "--largest", type=float, default=1e18, metavar="N", help="leave out sizes whose product is larger"
    )
    parser.add_argument("--one", action="store_true", help="one size a program: the largest that --largest allows")
    parser.add_argument("--tiny", action="store_true", help="the size of the check alone: a rehearsal")
    parser.add_argument("--settings", type=int, metavar="N", help="so many at each size, at random (default: all)")
    parser.add_argument("--cell", type=float, default=0.1, metavar="S", help="longest time of a cell (default: 0.1)")
    parser.add_argument("--jobs", type=int, default=max(1, cores() - 4), help="programs prepared side by side")
    parser.add_argument("--prepare", action="store_true", help="compile and write the data only")
    parser.add_argument("--warm", action="store_true", help="the subset without flushing")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(words)
    end = time.monotonic() + args.time
    only = {word for word in args.only.split(",") if word}
    chosen = [
        p
        for p in programs(args.set)
        if (not only or {p.name, p.name.split(".")[0]} & only) and (not args.warm or p.name in WARM)
        if not (marker(p, args).exists() and marker(p, args).read_text() == asked(args))
    ]
    known: Known = frozenset((c.program, c.op, c.case, c.choice) for path in args.done for c in read_oracle(path))
    failed = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary, Service(WorkerLink(1)) as service:
        for program, ready in side_by_side(chosen, args, args.work or Path(temporary), end):
            if isinstance(ready, str):
                print(f"{program.name}: {ready}", flush=True)
                failed += 1
            elif not args.prepare and time.monotonic() < end:
                failed += measure(program, ready, args, known, end, service)
            if args.work is None:
                shutil.rmtree(Path(temporary) / program.name, ignore_errors=True)
    return 1 if failed else 0


def marker(program: Program, args: argparse.Namespace) -> Path:
    """Where a run that came to the end of a program says so: a later one that asks for the same skips it."""
    return Path(args.output / f"{program.name}.done")


def asked(args: argparse.Namespace) -> str:
    words = ("tiny", "one", "largest", "settings", "warm", "seed")
    return " ".join(f"{word} {getattr(args, word)}" for word in words)


def side_by_side(
    chosen: Sequence[Program], args: argparse.Namespace, work: Path, end: float
) -> Iterator[tuple[Program, Prepared | str]]:
    """Each program made ready, or why it is not, in their order; the next ones are made ready meanwhile. What is not
    ready at the end of the time is given up."""
    waiting: deque[tuple[Program, AsyncResult[Prepared | str]]] = deque()
    left = iter(chosen)
    # Processes, since set-ups run Python; for one job a thread, which starts at once.
    with get_context("spawn").Pool(args.jobs) if args.jobs > 1 else ThreadPool(1) as pool:  # left: terminated
        while True:
            while len(waiting) < AHEAD and (program := next(left, None)) is not None:
                waiting.append((program, pool.apply_async(prepared, (program, args, work))))
            if not waiting:
                return
            program, ready = waiting.popleft()
            try:
                yield program, ready.get(max(0.0, end - time.monotonic()))
            except TimeoutError:
                return


def prepared(program: Program, args: argparse.Namespace, work: Path) -> Prepared | str:
    """The library and the data of all sizes; or why not."""
    try:
        task = tuning_task(
            api.read(program.path), sizes=program.check if args.tiny else program.sizes, check_at=program.check,
            target=args.target, seed=args.seed,
        )  # fmt: skip
        cases = tuple(p for p in task.cases if _product(p) <= args.largest)
        if args.one:
            cases = (max(cases, key=_product) if cases else min(task.cases, key=_product),)
        return launchable(prepare(replace(task, cases=cases), work / program.name, jobs=2))
    except (DagcError, OSError) as error:
        return " ".join(str(error).split())


def launchable(ready: Prepared) -> Prepared:
    """Without settings whose blocks need more registers or shared memory than a multiprocessor has: a refused launch
    ends the measuring process."""
    task = ready.task
    compiled = settings_compiled(task)
    for site in (site for site in task.sites if site.name in compiled):
        resources = dict(zip(site.choices, compiled[site.name], strict=True))
        hardware = load_hardware(task.chosen.arch)
        for at in ready.at.values():
            held = occupancy_of(task.graph, site, resources, hardware, at.values)
            left = tuple(s for s in at.fits[site.name] if s not in held or held[s].blocks)
            ready = ready.having(replace(at, fits={**at.fits, site.name: left}))
    return ready


def _product(case: Case) -> float:
    product = 1.0
    for _, value in case.params:
        product *= value
    return product


def measure(
    program: Program,
    ready: Prepared,
    args: argparse.Namespace,
    known: Known,
    end: float,
    service: Service,
) -> int:
    """Time what is missing. Returns the number of failures."""
    task, flush = ready.task, 0 if args.warm else DEFAULT_FLUSH * (args.target == "cuda")
    run = Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine_facts(args.target, task.chosen.arch),
        ranks=1, seed=args.seed, strategy="exhaustive", seconds=args.cell, revision=revision(ROOT),
        version=__version__, options={"flush": flush},
    )  # fmt: skip
    args.output.mkdir(parents=True, exist_ok=True)
    with Records.open(
        args.output / f"{program.name}.db", program_record(task.program), run, resume=True, other_machine=True,
        tuning=True,
    ) as records:  # fmt: skip
        before = records.tuned()
        done = {cell for (cell, _), f in zip(before.samples, before.flushes, strict=True) if f == flush}
        done |= {Cell(op, case, s) for name, op, case, s in known if name == program.name}
        wrong = {key for key, failure in before.checks.items() if failure}
        wanted = missing(ready, done, wrong, args)
        check = {
            site.name: [
                s
                for s in site.choices
                if (site.name, s) not in before.checks and any(w.op == site.name and s in w.choices for w in wanted)
            ]
            for site in task.sites
        }
        began = time.monotonic()
        recording = tune_measure.Recording(NOTHING_MEASURED, records, None, flush, task.check_at)
        failures = recording.failures
        failures += ready.failures
        try:
            timing = Timing(seconds=args.cell, flush=flush)
            measuring = tune_measure.Measuring(ready, service, timing, recording, end=Deadline(math.inf, end))
            measuring.time(wanted, measuring.check(check) | wrong)
            for case in ready.at:
                service.close(tune_measure.sized_program(ready, case).library)
        except DagcError as error:  # the program does not run at all: the others go on
            failures.append(str(error))
    for failure in failures:
        print(f"{program.name}: {failure}", flush=True)
    cells = recording.done
    left = sum(len(w.choices) for w in wanted) - cells
    if time.monotonic() < end:
        marker(program, args).write_text(asked(args))
    took = f"{time.monotonic() - began:.1f} s"
    print(f"{program.name}: {cells} cells, {left} left, {len(failures)} failures, {took}", flush=True)
    return len(failures)


def missing(
    ready: Prepared,
    done: set[tuple[str, Case, Choice]],
    wrong: set[tuple[str, Choice]],
    args: argparse.Namespace,
) -> list[tune_measure.Wanted]:
    """What is not measured yet, the settings of each size in an order of its own; `Measuring` orders the sizes.

    `wrong`: what was not right when it was checked."""
    out = []
    for site in ready.task.sites:
        for case in ready.task.cases:
            fits = list(ready.at[case].fits[site.name])
            random.Random(f"{args.seed} {site.name} {case.text}").shuffle(fits)
            fits.sort(key=rewritten)  # `--settings` keeps all that have the kernel as it is written
            left = tuple(
                s for s in fits[: args.settings] if (site.name, case, s) not in done and (site.name, s) not in wrong
            )
            if left:
                out.append(tune_measure.Wanted(site.name, case, left))
    return out


def rewritten(choice: Choice) -> bool:
    """Whether a form of the kernel is not as written."""
    return any(names_form((name,)) and value != AS_WRITTEN for name, value in choice.items())


if __name__ == "__main__":
    sys.exit(main())
