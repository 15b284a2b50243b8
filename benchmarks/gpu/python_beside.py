"""Python beside C++: the same implementation as an emitted C++ program, as driver.py (PyCUDA, mpi4py), and as a library
that is called from C++ and from Python (CuPy arrays).

    python -m benchmarks.gpu.python_beside OUT [--ranks 2] [--transports mpi_host,nccl,peer] [--jobs 6]

The implementations are those of `--found`; without one, the first of the program. Everything is compiled first, side by
side; then, three times in turn, the four are timed. Writes OUT/python.csv as it goes: microseconds of an iteration of
the program, of the driver, and of `run(1)` and `run(N)` of the library from C++ and from Python. Then prints medians.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.gpu.library import _EXAMPLE, PROGRAMS, ROOT, ranks, run

FIELDS = (
    "program",
    "transport",
    "turn",
    "bench_us",
    "driver_us",
    "cpp_call_us",
    "cpp_us",
    "python_call_us",
    "python_us",
)
DAGC = (sys.executable, "-m", "dagc")

# The application: what the example of the library does, on CuPy arrays.
APPLICATION = """
import json, statistics, sys
from pathlib import Path
import cupy
import numpy as np
from mpi4py import MPI
import dagc

folder, data, n = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
comm = MPI.COMM_WORLD
cupy.cuda.Device(comm.rank % cupy.cuda.runtime.getDeviceCount()).use()
cupy.cuda.set_allocator(None)  # cudaMalloc, not a pool: transport peer shares whole allocations
library, mine = dagc.load_library(folder), data / f"rank-{comm.rank:04d}"
values = {name: np.load(mine / f"{name}.npy").item() for name in library.SIZES}
types = {"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8", "u8": "u1"}
for name, (element, place, _) in library.ARRAYS.items():
    file = mine / f"{name}.npy"
    given = np.load(file if file.exists() else mine / f"expected/{name}.npy")
    values[name] = cupy.asarray(given) if place == "device" else given
    if not file.exists():
        values[name][...] = 0
instance = library.Instance(comm, **values)
instance.run()
for name in library.ARRAYS:
    if (mine / f"expected/{name}.npy").exists():
        want, got = np.load(mine / f"expected/{name}.npy"), cupy.asnumpy(values[name])
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max(), name

def seconds(work):
    times = []
    for _ in range(21):
        comm.Barrier()
        start = MPI.Wtime()
        work()
        times.append(comm.allreduce(MPI.Wtime() - start, op=MPI.MAX))
    return statistics.median(times)

def calls():
    for _ in range(n):
        instance.run()

out = {"python_call_us": 1e6 * seconds(calls) / n, "python_us": 1e6 * seconds(lambda: instance.run(n)) / n}
instance.close()
if comm.rank == 0:
    print(json.dumps(out))
"""


def build(program: str, path: str, defines: tuple[str, ...], transport: str, args: argparse.Namespace) -> str:
    """Compiles the program with its driver, the library and its example. "" or what is wrong."""
    from dagc.build.mpi import require_mpi

    folder = args.out / "work" / f"{program}-{transport}"
    folder.mkdir(parents=True, exist_ok=True)
    given = Path(args.found, f"{program}-{transport}.txt")
    words = [ROOT / path, *(word for d in defines for word in ("-D", d)), "--transport", transport]
    if args.found and given.exists():
        words = [*words[:-2], *given.read_text().split("\n")[0].lstrip("# ").split(), "--traversal", given]
    try:
        run(*DAGC, "compile", *words, "--target", "cuda", "--as", "driver", "-o", folder / "program")
        run(*DAGC, "compile", *words, "--target", "cuda", "--as", "library", "--name", f"my_{program}", "-o",
            folder / "library")  # fmt: skip
        library, mpi = folder / "library", require_mpi()
        rpath = [f"-Xlinker=-rpath={f}" for f in (library / "lib", mpi.library_dir)]
        run("nvcc", "-x", "cu", f"-arch={args.arch}", "-std=c++17", "-O2", f"-I{library}/include",
            f"-I{library}/src/include", *mpi.compile_flags(), library / "example/main.cpp", "-o", folder / "example",
            f"-L{library}/lib", f"-lmy_{program}", *mpi.link_flags(nvcc=True), *rpath)  # fmt: skip
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return f"{program} {transport}: {error}"
    return ""


def bench_us(*words: str | Path, n: int) -> str:
    times = json.loads(ranks(n, *words, "--json", "-"))["time"]["seconds"]
    return f"{1e6 * statistics.median(times):.3f}"


def measure(program: str, transport: str, turn: int, args: argparse.Namespace) -> dict[str, str]:
    folder, data = args.out / "work" / f"{program}-{transport}", args.out / "work" / f"{program}-data"
    row = {"program": program, "transport": transport, "turn": str(turn)}
    row["bench_us"] = bench_us(folder / "program/bench", "--data", data, n=args.ranks)
    row["driver_us"] = bench_us(sys.executable, folder / "program/driver.py", "--data", data, n=args.ranks)
    said = _EXAMPLE.search(ranks(args.ranks, folder / "example", data, str(args.iterations)))
    assert said is not None
    row |= {"cpp_call_us": said["call_us"], "cpp_us": said["iteration_us"]}
    script = args.out / "application.py"
    script.write_text(APPLICATION)
    out = ranks(args.ranks, sys.executable, script, folder / "library", data, str(args.iterations))
    return row | {name: f"{value:.3f}" for name, value in json.loads(out.splitlines()[-1]).items()}


def table(rows: list[dict[str, str]]) -> str:
    """Medians over the turns."""
    lines = ["program transport: C++ us; driver / C++; library from C++: run(1), run(N) us; from Python over C++: both"]
    for key in dict.fromkeys((r["program"], r["transport"]) for r in rows):
        mine = [
            {k: float(v) for k, v in r.items() if k.endswith("_us")}
            for r in rows
            if (r["program"], r["transport"]) == key
        ]

        def median(name: str, over: str = "", mine: list[dict[str, float]] = mine) -> float:
            return statistics.median(r[name] / (r[over] if over else 1) for r in mine)

        name, driver = " ".join(key), median("driver_us", "bench_us")
        library = f"{median('cpp_call_us'):.2f}, {median('cpp_us'):.2f}"
        over = f"{median('python_call_us', 'cpp_call_us'):.3f}, {median('python_us', 'cpp_us'):.3f}"
        lines.append(f"{name}: {median('bench_us'):.2f}; {driver:.3f}; {library}; {over}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=lambda text: Path(text).absolute())
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transports", default="peer,nccl,mpi_host")
    parser.add_argument("--programs", default="spmv,heat")
    parser.add_argument("--found", default=str(ROOT / "benchmarks/results/2026-11-22-2xh200-library/found"))
    parser.add_argument("--iterations", type=int, default=1000, help="the N of run(N)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--jobs", type=int, default=6, help="compilations at a time")
    parser.add_argument("--only-compile", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    programs = [p for p in PROGRAMS if p[0] in args.programs.split(",")]
    cases = [(*p, t) for p in programs for t in args.transports.split(",")]
    start = time.monotonic()
    for program, path, defines in programs:
        words = [ROOT / path, *(word for d in defines for word in ("-D", d)), "-n", str(args.ranks)]
        run(*DAGC, "setup", *words, "-o", args.out / "work" / f"{program}-data")
    with ThreadPoolExecutor(args.jobs) as pool:
        wrong = list(pool.map(lambda case: build(*case, args), cases))
    print("\n".join(text for text in wrong if text), f"compiled in {time.monotonic() - start:.0f} s", flush=True)
    if args.only_compile:
        sys.exit(any(wrong))
    rows = []
    with open(args.out / "python.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for turn in range(args.turns):
            for (program, _, _, transport), text in zip(cases, wrong, strict=True):
                if text:
                    continue
                try:
                    rows.append(measure(program, transport, turn, args))
                except Exception as error:  # the others are still measured
                    print(f"{program} {transport}: {type(error).__name__}: {str(error)[-1500:]}", flush=True)
                    continue
                writer.writerow(rows[-1])
                file.flush()
                print(
                    f"{time.monotonic() - start:.0f} s: " + " ".join(f"{k}={v}" for k, v in rows[-1].items()),
                    flush=True,
                )
    print(table(rows))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
