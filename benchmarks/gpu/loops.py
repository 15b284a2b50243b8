"""Repetitions by the host and on the device, on one GPU: bits, numbers of runs, and the time of an iteration.

    python -m benchmarks.gpu.loops OUT [--target host] [--sides 64 250 1000] [--limit SECONDS] [--programs NAME ...]
        [--also WAY:DECISION=VALUE,... ...]

Each program is a library for each way: the host starts each run (launches one by one, or graphs), or the device does
(with full and with early edges, or a test after 4 or 16 runs; or one kernel, but for cg, which sends messages). Whole
solves to the end, in turn, in one process; the same on two ranks that share the GPU, for the bits alone. A chain of ten
kernels has no test: `run(n)`.
Beside them conjugate gradients of the same system by cuSPARSE and cuBLAS (loops.cu), with a test after as many
iterations, and for `cg` and `krylov` as one cooperative kernel. Writes OUT/loops.csv (case, ranks, way, runs, same bits
and runs as by the host, us an iteration: median and least) and OUT/rival.csv, which also has the residual, |b - A x| of
|b|, of the first way and of each rival, and how far their solutions are apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dagc.measure.launch import Finished, launch

ROOT = Path(__file__).parents[2]
DAGC = (sys.executable, "-m", "dagc")
WAYS: dict[str, Mapping[str, str]] = {
    "host": {"loop": "host", "capture": "false"},
    "host_graph": {"loop": "host", "capture": "true"},
    "device": {"loop": "device"},
    "host_graph_early": {"loop": "host", "capture": "true", "graph_edges": "early"},
    "device_early": {"loop": "device", "graph_edges": "early"},
    "device_every4": {"loop": "device", "test_every": "4"},
    "device_every16": {"loop": "device", "test_every": "16"},
    "device_early_fused": {"loop": "device", "graph_edges": "early", "fuse.mv_local_mv_remote": "1"},
    "persistent": {"loop": "persistent"},
}
STREAMS = {"streams": "1"}
PROGRAMS: dict[str, tuple[Path, Mapping[str, str], int]] = {  # text, values, iterations of a run
    "cg": (ROOT / "samples/cg/cg.dag", {**STREAMS, "transport": "peer", "steps": "4000"}, 2),
    "krylov": (ROOT / "benchmarks/gpu/krylov.dag", STREAMS, 2),
    "solvers": (ROOT / "samples/solvers/solvers.dag", {**STREAMS, "tolerance": "1e-8", "steps": "4000"}, 4),
    "ten": (ROOT / "benchmarks/gpu/chain.dag", {**STREAMS, "links": "10"}, 1),
    "one": (ROOT / "benchmarks/gpu/chain.dag", {**STREAMS, "links": "1"}, 1),
}
RUNS = 1000  # of a chain

# Libraries of one program in turn. Arguments: target, case, data, runs (0: to the end), iterations of a run, turns,
# folders.
APPLICATION = """
import statistics, sys, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
import dagc
comm = MPI.COMM_WORLD
target, case, data, n, unroll, turns, *folders = sys.argv[1:]
data, n = Path(data) / f"rank-{comm.rank:04}", int(n)
if target == "cuda":
    import pycuda.autoprimaryctx
    from pycuda import gpuarray
instances, arrays, given = {}, {}, {}
for f in folders:
    library = dagc.load_library(f)
    values = {name: np.load(data / f"{name}.npy").item() for name in library.SIZES}
    for name, (_, place, _) in library.ARRAYS.items():
        given[name] = np.load(data / f"{name}.npy")
        values[name] = gpuarray.to_gpu(given[name]) if place == "device" and target == "cuda" else given[name].copy()
    arrays[f] = {name: values[name] for name in library.ARRAYS}
    instances[f] = library.Instance(comm, **values)
def solve(f):
    for name, array in arrays[f].items():
        array.set(given[name]) if hasattr(array, "set") else np.copyto(array, given[name])
    comm.Barrier()
    start = time.perf_counter()
    if n:
        instances[f].run(n)
        runs, converged = n, True
    else:
        runs = instances[f].solve()
        converged = runs.converged
    took = time.perf_counter() - start
    bits = {name: (a.get() if hasattr(a, "get") else a).tobytes() for name, a in arrays[f].items()}
    return took / (int(runs) * int(unroll)) * 1e6, (int(runs), converged, bits)
times, first = {f: [] for f in folders}, {}
for turn in range(int(turns)):
    for f in folders[turn % len(folders):] + folders[: turn % len(folders)]:
        took, what = solve(f)
        times[f] += [comm.allreduce(took, MPI.MAX)] if turn else []
        first.setdefault(f, []).append(what)
        if f == folders[0] and comm.size == 1 and "x" in arrays[f]:
            x = arrays[f]["x"]
            np.save(data / "solution.npy", x.get() if hasattr(x, "get") else x)
for f in folders:
    same = comm.allreduce(all(what == first[folders[0]][0] for what in first[f]), MPI.LAND)
    if comm.rank == 0:
        runs, converged, _ = first[f][0]
        middle, least = statistics.median(times[f]), min(times[f])
        print(f"{case},{comm.size},{Path(f).name},{runs},{converged},{same},{middle:.3f},{least:.3f}", flush=True)
for instance in instances.values():
    instance.close()
"""


def ways_of(program: str) -> list[str]:
    """One kernel sends no messages of `cg`, whose products with local and remote columns alone may be one launch."""
    return [way for way in WAYS if way != ("persistent" if program == "cg" else "device_early_fused")]


def run(*words: object, limit: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess([str(w) for w in words], 124, "", f"over {limit:.0f} s")


def said(done: subprocess.CompletedProcess[str] | Finished, what: str) -> None:
    if done.returncode:
        print(f"{what}: exit {done.returncode}: {done.stderr[-1200:]}", file=sys.stderr, flush=True)


def text_of(program: str, out: Path) -> Path:
    """A chain, repeated without a test; the others as they are."""
    path, _, _ = PROGRAMS[program]
    if path.name != "chain.dag":
        return path
    to = out / "work" / f"{program}.dag"
    to.write_text(path.read_text().replace("\ndag {", "\ndag repeat 1_000_000 {"))
    (to.parent / "chain.py").write_bytes(path.with_suffix(".py").read_bytes())
    return to


def words_of(values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("-D", f"{name}={value}")]


def build(program: str, way: str, args: argparse.Namespace) -> None:
    values = {**PROGRAMS[program][1], **WAYS[way]}
    name = f"lib_{program}_{way}"
    kind = ["--as", "library", "--name", name, "-o", args.out / "work" / program / way]
    text = text_of(program, args.out)
    done = run(*DAGC, "compile", text, *words_of(values), "--target", args.target, *kind, limit=200)
    said(done, f"building {program}, {way}")


def rival(args: argparse.Namespace) -> None:
    done = run("nvcc", "-O3", "-std=c++17", "-arch=native", ROOT / "benchmarks/gpu/loops.cu", "-lcublas", "-lcusparse",
               "-o", args.out / "work/rival", limit=100)  # fmt: skip
    said(done, "building the rival")


def set_up(program: str, values: Mapping[str, str], ranks: int, to: Path, args: argparse.Namespace) -> None:
    # A chain's arrays do not depend on its length.
    given = {**{k: v for k, v in PROGRAMS[program][1].items() if k not in ("links", "transport")}, **values}
    text = text_of(program, args.out)
    done = run(*DAGC, "setup", text, *words_of(given), "-n", ranks, "-o", to, limit=100)
    said(done, f"set-up of {program}")


def cases(args: argparse.Namespace) -> list[tuple[str, str, Mapping[str, str], int, int, int]]:
    """Name, program, values of the set-up, ranks, runs (0: to the end), turns."""
    out: list[tuple[str, str, Mapping[str, str], int, int, int]] = [
        (one, one, {"n": "64"}, 1, RUNS, 12) for one in ("ten", "one") if one in args.programs
    ]
    for side in args.sides:
        turns = 9 if side < 1000 else 4
        out += [
            (f"{one} {side}", one, {"side": str(side)}, 1, 0, turns) for one in ("krylov", "cg") if one in args.programs
        ]
        if side < 1000 and "solvers" in args.programs:  # of larger systems the set-up takes minutes
            system = {"system": f"poisson(side = {side})"}
            out.append((f"solvers {side}", "solvers", system, 1, 0, turns))
    two = [(f"cg {args.sides[0]}", "cg", {"side": str(args.sides[0])}, 2, 0, 2)]
    return [*out, *(two if "cg" in args.programs else [])]


def measure(case: tuple[str, str, Mapping[str, str], int, int, int], data: Path, args: argparse.Namespace) -> str:
    name, program, _, ranks, runs, turns = case
    folders = [args.out / "work" / program / way for way in ways_of(program) if ranks == 1 or way in ("host", "device")]
    script, folded = args.out / "work/application.py", PROGRAMS[program][2]
    words = [sys.executable, script, args.target, name, data, runs, folded, turns, *folders]
    left = max(1, min(60, args.end - time.monotonic()))
    done = launch([str(w) for w in words], ranks, timeout=left, env={"CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    said(done, f"{name} on {ranks}")
    return done.stdout


def of_system(data: Path) -> tuple[Any, NDArray[np.float64]]:
    """A and b of a set-up."""

    def given(*names: str) -> NDArray[Any]:
        found: NDArray[Any] = np.load(next(p for name in names if (p := data / f"{name}.npy").exists()))
        return found

    ptr = given("row_ptr_l", "row_ptr")
    A = sparse.csr_array((given("val_l", "val"), given("col_l", "col"), ptr), shape=(ptr.size - 1, ptr.size - 1))
    return A, given("b", "r")


def beside(case: tuple[str, str, Mapping[str, str], int, int, int], data: Path, args: argparse.Namespace) -> str:
    """The lines of a system: of the first way of dagc, then of the rivals."""
    name, program, _, _, _, _ = case
    data /= "rank-0000"
    A, b = of_system(data)
    folder = args.out / "work" / f"system-{name.replace(' ', '-')}"
    folder.mkdir(exist_ok=True)
    texts = {"row_ptr": A.indptr.astype(np.int32), "col": A.indices.astype(np.int32), "val": A.data, "b": b}
    if (data / "diagonal.npy").exists():
        texts["diagonal"] = np.load(data / "diagonal.npy")
    for of, array in texts.items():
        array.tofile(folder / f"{of}.bin")
    done = run(args.out / "work/rival", PROGRAMS[program][2], folder, limit=30)
    said(done, f"the rival, {name}")
    ours = np.load(data / "solution.npy")
    lines = [f"{name},dagc,,,,{np.linalg.norm(b - A @ ours) / np.linalg.norm(b):.3e},0"]
    for number, line in enumerate(done.stdout.splitlines()):
        x = np.fromfile(folder / f"x-{number}.bin")
        apart = np.linalg.norm(x - ours) / np.linalg.norm(ours)
        lines.append(f"{name},{line},{np.linalg.norm(b - A @ x) / np.linalg.norm(b):.3e},{apart:.3e}")
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--sides", type=int, nargs="+", default=[64, 250, 1000])
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--limit", type=float, default=110, help="seconds, after which nothing more is started")
    parser.add_argument("--also", nargs="+", default=[], help="further ways of all programs, WAY:DECISION=VALUE,...")
    args = parser.parse_args()
    for way, _, values in (text.partition(":") for text in args.also):
        WAYS[way] = dict(value.split("=", 1) for value in values.split(","))
    args.out, args.end = args.out.resolve(), time.monotonic() + args.limit
    work = args.out / "work"
    work.mkdir(parents=True, exist_ok=True)
    (work / "application.py").write_text(APPLICATION)
    todo = [(case, work / f"data-{number}") for number, case in enumerate(cases(args))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(build, program, way, args) for program in args.programs for way in ways_of(program)]
        jobs += [pool.submit(rival, args)] if args.target == "cuda" else []
        jobs += [pool.submit(set_up, case[1], case[2], case[3], data, args) for case, data in todo]
        for job in jobs:
            job.result()
    print(f"built after {time.monotonic() - args.end + args.limit:.0f} s", file=sys.stderr, flush=True)
    with (args.out / "loops.csv").open("w") as file:
        print("case,ranks,way,runs,converged,same,median_us,least_us", file=file, flush=True)
        for case, data in todo:
            if time.monotonic() < args.end:
                print(measure(case, data, args), end="", file=file, flush=True)
    with (args.out / "rival.csv").open("w") as file:
        print("case,way,iterations,median_us,least_us,residual,apart", file=file, flush=True)
        for case, data in todo:
            if case[3] == 1 and case[4] == 0 and (data / "rank-0000/solution.npy").exists() and args.target == "cuda":
                print(beside(case, data, args), end="", file=file, flush=True)
    print((args.out / "rival.csv").read_text())
    print((args.out / "loops.csv").read_text())


if __name__ == "__main__":
    main()
