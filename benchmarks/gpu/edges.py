"""Edges of CUDA graphs between kernels: full, programmatic, early. On one GPU with one rank.

    python -m benchmarks.gpu.edges OUT [--case NAME ...] [--target host]

Each program is built under each kind of edges, as a benchmark and as a library. The benchmark says whether results
agree with the reference, how many nodes its graphs have, and how many edges are programmatic; the libraries run side
by side in one process, in turn: the bits of all results after 1 and after 7 runs, and the time of a run. Before that,
chains written by hand (edges.cu), and after it, with compute-sanitizer, memcheck of small programs. Writes
OUT/hand.csv, OUT/edges.csv (case, edges, nodes, redundant edges left out, programmatic, verified, same bits as with
full edges, us a run: median and least), OUT/memcheck.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dagc.build.mpi import require_mpi

ROOT = Path(__file__).parents[2]
DAGC = (sys.executable, "-m", "dagc")
EDGES = ("full", "programmatic", "early")
CASES: dict[str, tuple[str, Mapping[str, object], int]] = {  # program, values, runs of one measurement
    "chain": ("benchmarks/gpu/chain.dag", {"n": 64}, 20),
    "chain264": ("benchmarks/gpu/chain.dag", {"n": 33792}, 20),
    "jacobi256": ("samples/jacobi/jacobi.dag", {"rows": 256, "nx": 256, "transport": "peer"}, 20),
    "jacobi2048": ("samples/jacobi/jacobi.dag", {"rows": 2048, "nx": 2048, "transport": "peer"}, 5),
    "cg100": ("samples/cg/cg.dag", {"side": 100, "transport": "peer"}, 20),
    "cg700": ("samples/cg/cg.dag", {"side": 700, "transport": "peer"}, 10),
    "spmv": ("samples/spmv/spmv.dag", {"transport": "peer"}, 100),
}
SANITIZED = ("chain", "jacobi256", "cg100")

# The application: libraries of one program in turn. Arguments: the data, the number of runs, the folders.
APPLICATION = """
import sys, time, statistics
from pathlib import Path
import numpy as np
from mpi4py import MPI
import dagc
data, n, folders = Path(sys.argv[1]) / "rank-0000", int(sys.argv[2]), sys.argv[3:]
libraries = {f: dagc.load_library(f) for f in folders}
on_host = sys.argv[0] == "host"
if not on_host:
    import pycuda.autoprimaryctx
    from pycuda import gpuarray
instances, arrays, given = {}, {}, {}
for f, library in libraries.items():
    values = {name: np.load(data / f"{name}.npy").item() for name in library.SIZES}
    for name, (element, place, _) in library.ARRAYS.items():
        file = data / f"{name}.npy"
        start = np.load(file if file.exists() else data / f"expected/{name}.npy")
        if not file.exists():
            start = np.zeros_like(start)
        given[name] = start
        values[name] = gpuarray.to_gpu(start) if place == "device" and not on_host else start.copy()
    arrays[f] = {name: values[name] for name in library.ARRAYS}
    instances[f] = library.Instance(MPI.COMM_WORLD, **values)
def set_(f):
    for name, array in arrays[f].items():
        array.set(given[name]) if hasattr(array, "set") else np.copyto(array, given[name])
def get(f):
    return {name: (a.get() if hasattr(a, "get") else a).tobytes() for name, a in arrays[f].items()}
same, times = {f: True for f in folders}, {f: [] for f in folders}
for runs in (1, 7, n):
    want = None
    for f in folders:
        set_(f)
        instances[f].run(runs)
        got = get(f)
        want = want or got
        same[f] = same[f] and got == want
for turn in range(21):
    for f in folders[turn % len(folders):] + folders[: turn % len(folders)]:
        set_(f)
        start = time.perf_counter()
        instances[f].run(n)
        times[f].append((time.perf_counter() - start) / n * 1e6)
for f in folders:
    print(f"{same[f]},{statistics.median(times[f]):.3f},{min(times[f]):.3f}", flush=True)
for instance in instances.values():
    instance.close()
"""


def run(*words: object, limit: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=limit, check=False)


def build(case: str, edges: str, kind: str, args: argparse.Namespace) -> str:
    """ "" or what is wrong."""
    program, values, _ = CASES[case]
    given = {**values, "capture": "true", "graph_edges": edges}
    if args.target == "host":
        given |= {"transport": "mpi_host"}
    words = [word for name, value in given.items() for word in ("-D", f"{name}={value}")]
    folder = args.out / "work" / f"{case}-{edges}-{kind}"
    named = ["--name", f"lib_{case}_{edges}"] if kind == "library" else []
    done = run(*DAGC, "compile", ROOT / program, *words, "--target", args.target, "--as", kind, *named, "-o", folder)
    return done.stderr[-1500:] if done.returncode else ""


def set_up(case: str, args: argparse.Namespace) -> str:
    program, values, _ = CASES[case]
    words = [word for name, value in values.items() for word in ("-D", f"{name}={value}") if name != "transport"]
    done = run(*DAGC, "setup", ROOT / program, *words, "-n", "1", "-o", args.out / "work" / f"{case}-data")
    return done.stderr[-1500:] if done.returncode else ""


def verified(case: str, edges: str, args: argparse.Namespace) -> str:
    """Nodes of its graphs, redundant edges that they leave out, programmatic edges, and whether results are right."""
    work = args.out / "work"
    bench = [work / f"{case}-{edges}-program/bench", "--data", work / f"{case}-data"]
    done = run(*bench, "--seconds", "0.001", "--repeats", "3", "--json", "-", limit=30)
    if done.returncode:
        return f",,,exit {done.returncode}: {' '.join(done.stderr.split())[:200].replace(',', ';')}"
    graphs = json.loads(done.stdout)["graphs"]
    return ",".join(str(sum(g[what] for g in graphs)) for what in ("nodes", "redundant", "programmatic")) + ",right"


def measure(case: str, args: argparse.Namespace) -> None:
    work, script = args.out / "work", args.out / "work/application.py"
    script.write_text(APPLICATION)
    said = [verified(case, edges, args) for edges in EDGES]
    folders = [work / f"{case}-{edges}-library" for edges in EDGES]
    code = f"import sys; sys.argv[0] = {args.target!r}; exec(open({str(script)!r}).read())"
    done = run(sys.executable, "-c", code, work / f"{case}-data", CASES[case][2], *folders, limit=60)
    times = done.stdout.splitlines() if done.returncode == 0 else [f"exit {done.returncode}"] * len(EDGES)
    if done.returncode:
        print(done.stderr[-1500:], file=sys.stderr)
    with (args.out / "edges.csv").open("a") as out:
        for edges, one, time in zip(EDGES, said, times, strict=True):
            print(f"{case},{edges},{one},{time}", file=out)


def by_hand(args: argparse.Namespace) -> None:
    program, mpi = args.out / "work/edges", require_mpi()
    done = run("nvcc", "-O3", "-std=c++17", "-arch=native", "-I", ROOT / "templates/runtime", *mpi.compile_flags(),
               ROOT / "benchmarks/gpu/edges.cu", "-o", program, *mpi.link_flags(nvcc=True))  # fmt: skip
    done = done if done.returncode else run(program, limit=30)
    (args.out / "hand.csv").write_text(done.stdout + done.stderr)


def memcheck(args: argparse.Namespace) -> None:
    work = args.out / "work"
    for case in SANITIZED:
        if case not in args.case:
            continue
        bench = [
            work / f"{case}-early-program/bench",
            "--data",
            work / f"{case}-data",
            "--check-only",
            "--watchdog",
            "0",
        ]
        done = run("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", *bench, limit=60)
        with (args.out / "memcheck.txt").open("a") as out:
            print(f"== {case}: exit {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}", file=out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--case", action="append", choices=list(CASES), help="(default: all)")
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.case = args.case or list(CASES)
    (args.out / "work").mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(set_up, case, args) for case in args.case]
        jobs += [pool.submit(build, c, e, k, args) for c in args.case for k in ("program", "library") for e in EDGES]
        print(*filter(None, (job.result() for job in jobs)), sep="\n", file=sys.stderr)
    if args.target == "cuda":
        by_hand(args)
    columns = "case,edges,nodes,redundant,programmatic,verified,same_bits,median_us,least_us"
    (args.out / "edges.csv").write_text(f"{columns}\n")
    for case in args.case:
        measure(case, args)
    if args.target == "cuda" and shutil.which("compute-sanitizer"):
        memcheck(args)
    print((args.out / "edges.csv").read_text())


if __name__ == "__main__":
    main()
