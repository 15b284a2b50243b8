"""How long the tridiagonal sample takes on this GPU for every size, sub-system size and number of chunks.

    python benchmarks/gpu/tridiag.py --build-only
    python benchmarks/gpu/tridiag.py -o tridiag.csv [--largest 1e8] [--time 400]
    python benchmarks/gpu/tridiag.py -o again.csv --largest 1e8 --again tridiag.csv --timings 25,60 --cell 1
    python benchmarks/gpu/tridiag.py -o blocks.csv --again tridiag.csv --near 0.05 --blocks 32,64,128,256,512,1024

There is a program for each type, m, number of chunks (each chunk with a stream of its own) and block: they are known
when kernels are compiled. Every cell is checked against LAPACK once and then timed as a whole solve, with all copies.
The programs of one size are loaded together, as many as fit into `--memory`, and timed in turn, in a new random order
each round, so that whatever drifts meets them all alike. A timing is that of as many solves as fill `BATCH` seconds.

One line a cell: real,size,m,chunks,block,depth,overwrite,median_us,low_us,high_us,repeats,verified; low and high bound
the median with 95 %. `overwrite`: whether the solution takes the place of the right-hand side on the GPU.
What the file holds already is not measured again. `--again` gives more timings, into a file of their own, to those
cells of another file that are near the fastest of their size: only they decide what is best. A cell with wrong results
is written without times. What machine it was stands in a `.json` beside it.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from random import Random
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from dagc import api
from dagc.base.statistics import interval
from dagc.build.builder import Build, build
from dagc.build.mpi import require_mpi
from dagc.build.toolchain import TargetChoice, choose_target
from dagc.emit import rows
from dagc.ir.traversal import Row
from dagc.measure.machine import machine_facts
from dagc.measure.runner import Runner, Table, world
from dagc.space import Space
from dagc.stages.artifacts import compile_traversal
from dagc.stages.options import CompileOptions
from dagc.study.files import revision

TRIDIAG = ROOT / "samples/tridiag/tridiag.dag"
REALS = {"f64": 8, "f32": 4}
SUBSYSTEMS = (4, 8, 16, 20, 32, 64)
CHUNKS = (1, 2, 4, 8, 16, 32)
BLOCK = 256  # threads, where nothing else is asked; records without the column have it
SIZES = tuple(sorted([d * 10**i for i in range(2, 8) for d in (1, 2, 4, 5, 8)]
                     + [4_500, 25_000, 30_000, 60_000, 70_000, 75_000, 10**8]))  # fmt: skip
OPEN = ("real", "size", "m", "chunks", "block", "depth", "overwrite")
COLUMNS = (*OPEN, "median_us", "low_us", "high_us", "repeats", "verified")
BATCH = 0.002  # seconds: long beside what calling the program costs
TIMINGS = (7, 25)  # of a cell, at least and at most
NEAR = 0.15  # of the fastest of a size: what is within it is worth measuring again
SMALL = 10**7  # rows; data up to this size are made beforehand and kept


ProgramKey = tuple[str, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Cell:
    real: str
    size: int
    m: int
    chunks: int
    block: int = BLOCK
    depth: int = 0
    overwrite: int = 0

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Cell:
        """That of a line of a file."""
        return cls(row["real"], **{name: int(row[name]) for name in OPEN[1:] if name in row})

    @property
    def program(self) -> ProgramKey:
        """What the compiler knows."""
        return self.real, self.m, self.chunks, self.block, self.depth, self.overwrite

    @property
    def memory(self) -> int:
        """Bytes of the host, generously: rows and what they are restored from, both solutions, the interface twice."""
        return REALS[self.real] * self.size * (2 * 4 + 2 + 2 * 20 // self.m)


@dataclass(frozen=True, slots=True)
class Built:
    """A program's runner library and the traversal that it is to run."""

    library: Path
    rows: tuple[Row, ...]


Programs = dict[ProgramKey, Built]


# ---- made ready -----------------------------------------------------------------------------


def make(
    real: str, m: int, chunks: int, block: int, depth: int, overwrite: int, chosen: TargetChoice, work: Path
) -> Built:
    """Emit one program and build its library."""
    defines = {
        "real": real, "m": m, "chunks": chunks, "streams": chunks, "block": block, "depth": depth,
        "overwrite": bool(overwrite),
    }  # fmt: skip
    graph = api.load_graph(TRIDIAG, defines)
    first = Space(graph).first()
    folder = work / "programs" / f"{real}-{m}-{chunks}-{block}-{depth}-{overwrite}"
    compile_traversal(graph, first, chosen, folder, CompileOptions(build=False, force=True))
    source = folder / f"runner.{'cu' if chosen.target.value == 'cuda' else 'cpp'}"
    order = Build(
        [source], target=chosen.target.value, arch=chosen.arch, mpi=require_mpi(), shared=True,
        warnings_as_errors=False,
    )  # fmt: skip
    library = build(order, folder / "librunner.so")
    return Built(library, tuple(rows(first)))


def data(real: str, size: int, seed: int, work: Path) -> Path:
    """The system of one size and its solution, made where they are not there yet."""
    folder = work / f"data-{real}-{size}-{seed}"
    if not folder.exists():
        api.run_setup(TRIDIAG, 1, folder, seed, {"real": real, "size": size})
    return folder


def prepare(args: argparse.Namespace, cells: Sequence[Cell]) -> Programs:
    """Everything that the cells need, side by side: programs, and the data of all but the largest sizes."""
    chosen = choose_target(args.target, args.arch)
    # The programs of many chunks take longest to compile: they begin.
    wanted = sorted({c.program for c in cells}, key=lambda w: (-w[2], -w[1]))
    systems = {(c.real, c.size) for c in cells if c.size <= args.ahead}
    with ThreadPoolExecutor(max_workers=args.jobs) as pool:
        made = {w: pool.submit(make, *w, chosen, args.work) for w in wanted}
        stored = [pool.submit(data, real, size, args.seed, args.work) for real, size in sorted(systems)]
        programs = {w: job.result() for w, job in made.items()}
        for job in stored:
            job.result()
    return programs


# ---- measured -------------------------------------------------------------------------------


@dataclass(slots=True)
class Opened:
    """A cell whose program is loaded, how many solves fill a timing, how many timings it gets, and what they were."""

    cell: Cell
    runner: Runner
    table: Table
    solves: int = 1
    timings: int = 0
    wrong: str = ""
    seconds: list[float] | None = None

    def time(self) -> float:
        """Seconds a solve."""
        if self.solves > 1:
            self.runner.execute(self.table)  # another program ran before
        start = time.perf_counter()
        self.runner.execute(self.table, self.solves)
        return (time.perf_counter() - start) / self.solves

    def begin(self, longest: float, timings: tuple[int, int]) -> None:
        """Check the results; find out how many solves a timing takes."""
        self.runner.reset()
        self.runner.execute(self.table)
        self.wrong, self.seconds = self.runner.verify(), []
        if self.wrong:
            return
        each = self.time()
        while each * self.solves < BATCH / 2:
            self.solves *= 4
            each = self.time()
        self.solves = max(1, math.ceil(BATCH / each))
        fewest, most = timings
        self.timings = min(most, max(fewest, int(longest / (each * self.solves))))

    def record(self) -> tuple[object, ...]:
        """A line of the file."""
        times = self.seconds or [math.nan]
        figures = (median(times), *interval(times))
        return (*astuple(self.cell), *(f"{1e6 * t:.3f}" for t in figures), len(self.seconds or ()), not self.wrong)


def batches(cells: Sequence[Cell], memory: float) -> Iterator[list[Cell]]:
    """Consecutive cells whose programs fit into memory together; one alone may be larger."""
    batch: list[Cell] = []
    for cell in cells:
        if batch and sum(c.memory for c in batch) + cell.memory > memory:
            yield batch
            batch = []
        batch.append(cell)
    if batch:
        yield batch


def measure(
    cells: Sequence[Cell], programs: Programs, folder: Path, longest: float, timings: tuple[int, int], random: Random
) -> list[Opened]:
    """All cells of a batch, in turn."""
    comm = world()
    with ExitStack() as stack:
        found = []
        for cell in cells:
            built = programs[cell.program]
            runner = stack.enter_context(Runner(built.library, folder, comm))
            found.append(Opened(cell, runner, runner.prepare(built.rows)))
            found[-1].begin(longest, timings)
        for turn in range(timings[1]):
            due = [o for o in found if turn < o.timings]
            random.shuffle(due)
            for opened in due:
                assert opened.seconds is not None
                opened.seconds.append(opened.time())
    return found


def known(path: Path) -> set[Cell]:
    """The cells that a file holds. A last line that was cut short is removed."""
    if not path.exists():
        return set()
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    lines = csv.DictReader(whole.splitlines())
    return {Cell.of(line) for line in lines}


def wanted(args: argparse.Namespace) -> list[Cell]:
    sizes = [int(float(s)) for s in args.sizes.split(",")] if args.sizes else [s for s in SIZES if s <= args.largest]
    near = near_best(args.again, args.near) if args.again is not None else None
    return [
        Cell(real, size, m, chunks, block, depth, overwrite)
        for size in sizes
        for real in args.reals.split(",")
        for m in args.subsystems
        for chunks in args.chunks
        for block in args.blocks
        for depth in args.depths
        for overwrite in args.overwrites
        if near is None or (real, size, m, chunks) in near
    ]


def near_best(path: Path, near: float) -> set[tuple[str, int, int, int]]:
    """Type, size, m and chunks of those cells of a file that took at most this share longer than the fastest of their
    size."""
    times: dict[tuple[str, int], dict[Cell, float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["verified"] == "True":
                cell = Cell.of(row)
                times.setdefault((cell.real, cell.size), {})[cell] = float(row["median_us"])
    return {
        (c.real, c.size, c.m, c.chunks)
        for at in times.values()
        for c, time in at.items()
        if time <= (1 + near) * min(at.values())
    }


def campaign(args: argparse.Namespace, programs: Programs, cells: Sequence[Cell], end: float) -> int:
    """Measure, from the smallest size on; returns how many cells were wrong."""
    wrong = 0
    new = not args.out.exists()
    with args.out.open("a", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        if new:
            out.writerow(COLUMNS)
        for real, size in dict.fromkeys((c.real, c.size) for c in cells):
            if time.monotonic() > end:
                break
            start = time.monotonic()
            random = Random(f"{args.seed} {real} {size}")
            mine = [c for c in cells if (c.real, c.size) == (real, size)]
            random.shuffle(mine)
            folder, done = data(real, size, args.seed, args.work), 0
            for batch in batches(mine, args.memory * 1e9):
                if time.monotonic() > end:
                    break
                for opened in measure(batch, programs, folder, args.cell, args.timings, random):
                    out.writerow(opened.record())
                    done += 1
                    if opened.wrong:
                        wrong += 1
                        print(f"{opened.cell}: {opened.wrong}", flush=True)
                file.flush()
            if size > args.ahead:
                shutil.rmtree(folder)
            print(f"{real} {size}: {done} of {len(mine)} cells, {time.monotonic() - start:.1f} s", flush=True)
    return wrong


def numbers(text: str) -> tuple[int, ...]:
    """`4,8,16`."""
    return tuple(map(int, text.split(",")))


def both(text: str) -> tuple[int, int]:
    """`7,25`."""
    fewest, most = (int(part) for part in text.split(","))
    return fewest, most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-o", dest="out", type=Path, default=Path("tridiag.csv"), metavar="FILE", help="(default: tridiag.csv)")
    add("--work", type=Path, default=Path("build/tridiag"), metavar="DIR", help="scratch (default: build/tridiag)")
    add("--build-only", action="store_true", help="compile, and write the data of sizes up to --ahead")
    add("--sizes", default="", metavar="N,N", help="(default: all 37)")
    add("--largest", type=float, default=1e7, metavar="N", help="leave out larger sizes (default: 1e7)")
    add(
        "--ahead", type=float, default=SMALL, metavar="N", help="make and keep the data of sizes up to N (default: 1e7)"
    )
    add("--reals", default="f64,f32")
    add("--subsystems", type=numbers, default=SUBSYSTEMS, metavar="M,M", help="rows of a sub-system")
    add("--chunks", type=numbers, default=CHUNKS, metavar="N,N")
    add("--blocks", type=numbers, default=(BLOCK,), metavar="N,N", help=f"threads of a block (default: {BLOCK})")
    add("--depths", type=numbers, default=(0,), metavar="N,N", help="levels reduced on the GPU again (default: 0)")
    add("--overwrites", type=numbers, default=(0,), metavar="N,N", help="1: over the right-hand side (default: 0)")
    add("--again", type=Path, metavar="FILE", help="only m and chunks that are near the fastest of their size there")
    add("--near", type=float, default=NEAR, metavar="X", help=f"with --again: within this share (default: {NEAR:g})")
    add("--cell", type=float, default=0.15, metavar="S", help="time of a cell, or the fewest timings (default: 0.15)")
    add("--timings", type=both, default=TIMINGS, metavar="N,N", help="of a cell, fewest and most (default: 7,25)")
    add("--time", type=float, default=math.inf, metavar="S", help="stop after so many seconds, builds included")
    add("--memory", type=float, default=16, metavar="GB", help="of the programs loaded together (default: 16)")
    add(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="compilers at a time (default: one a core)",
    )
    add("--target", choices=("cuda", "host"), default="cuda")
    add("--arch", help="(default: that of the GPU)")
    add("--seed", type=int, default=1)
    add("--revision", default="", help="git revision, where this is no checkout")
    args = parser.parse_args()
    end = time.monotonic() + args.time
    args.work = args.work.absolute()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    have = known(args.out)
    cells = [c for c in wanted(args) if c not in have]
    start = time.monotonic()
    programs = prepare(args, cells)
    print(
        f"{len(programs)} programs, {len(cells)} cells to measure: ready in {time.monotonic() - start:.1f} s",
        flush=True,
    )
    if args.build_only:
        return 0
    chosen = choose_target(args.target, args.arch)
    about = {
        "machine": asdict(machine_facts(chosen.target.value, chosen.arch)), "seed": args.seed,
        "revision": args.revision or revision(ROOT), "mpi": require_mpi().describe(), "command": sys.argv[1:],
    }  # fmt: skip
    args.out.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return 1 if campaign(args, programs, cells, end) else 0


if __name__ == "__main__":
    sys.exit(main())
