"""Short steps on two GPUs: reductions, conjugate gradients and stencils, by graphs, while nodes and one kernel.

    python -m benchmarks.gpu.two OUT [--target host] [--limit SECONDS] [--only WORD ...]

All benches are built and all data are set up at once; then each runs alone, the most telling first, until the limit.
Writes OUT/two.csv as it goes: case, way, us an iteration (median, least), runs to the end and seconds of that (where
there is a test), the exit code; and OUT/two.txt, what each bench says. The programs are beside this file, in short/.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from dagc.measure.launch import launch

HERE = Path(__file__).parent / "short"
SAMPLES = Path(__file__).parents[2] / "samples"
DAGC = (sys.executable, "-m", "dagc")
GRAPH, EARLY = {"capture": "true"}, {"capture": "true", "graph_edges": "early"}
# TeaLeaf's kernels with rows of a length that is a number in the text, and vectors; u is updated with p.
LATE = {"apart": "true", "fuse.u_p": "1"}
FORMS = {"w.form.literals": "2", "r.form.literals": "2", "u_p.form.wide": "4", "u_p.form.freedom": "2"}
WHILE = {"loop": "device", "graph_edges": "early"}
WAYS: dict[str, Mapping[str, str]] = {
    "graph": GRAPH, "early": EARLY, "device": {"loop": "device"},
    "device_early": WHILE, "persistent": {"loop": "persistent"},
    "device_every8": {**WHILE, "test_every": "8"},
    "put": {**GRAPH, "transport": "put"}, "reader": {**EARLY, "transport": "put", "put_wait": "reader"},
    "device_apart": {**WHILE, "apart": "true"}, "device_late": {**WHILE, **LATE},
    "device_forms": {**WHILE, **LATE, **FORMS}, "device_1056": {**WHILE, **LATE, **FORMS, "parts": "1056"},
    "device_unrolled": {**WHILE, **LATE, **FORMS, "parts": "1056", "w.form.pragma": "2", "r.form.pragma": "2"},
    "persistent_put": {"loop": "persistent", "transport": "put"},
    "mpi_host": {"transport": "mpi_host"},
    "nccl": {**GRAPH, "transport": "nccl"}, "sums_nccl": {**GRAPH, "collectives": "nccl"},
}  # fmt: skip
TESTED = ("persistent", "device_early", "device_every8", "device", "graph", "early", "nccl", "sums_nccl")
TEA = ("device_forms", "device_late", "device_early", "device_1056", "device_apart", "device_unrolled")
STEPS = ("persistent", "persistent_put", "early", "graph", "nccl")
JOINED = {"fuse.first_last_inner": "2"}
ROWS = {"first.bx": "256", "last.bx": "256", "first.by": "1", "last.by": "1", "inner.bx": "64", "inner.by": "4"}
CUBE, FUSED = {"nx": "64", "ny": "64", "nz": "64"}, {"fuse.pack": "1", "fuse.unpack": "1"}
# Case -> program, values, ways, iterations of a run. `tea` and `jacobi_wide` are as in docs/figures.md.
CASES: dict[str, tuple[str, Mapping[str, str], tuple[str, ...], int]] = {
    "tea 250": ("tea", {"side": "250"}, TESTED, 1),
    "jacobi 2048": ("jacobi", {**ROWS, "steps": "2"}, STEPS, 2),
    "jacobi_wide 2048": ("jacobi", {**ROWS, "steps": "2", "inner.form.wide": "4"}, STEPS[:3], 2),
    "heat 64 split": ("heat", {"steps": "2", "split": "true"}, STEPS[:4], 2),
    "heat 64 joined": (
        "heat",
        {"steps": "10", "split": "true", **JOINED, "first_last_inner.bx": "32", "first_last_inner.form.wide": "2"},
        ("reader", "early"),
        10,
    ),
    "heat 64 plain": ("heat", {"steps": "10", "split": "true", **JOINED}, ("reader", "early"), 10),
    "heat 64": ("heat", {"steps": "2", "split": "false"}, STEPS[:4], 2),
    "reduce 1": ("reduce", {"count": "1"}, ("graph", "nccl"), 100),
    "reduce 1024": ("reduce", {"count": "1024"}, ("graph", "nccl"), 100),
    "reduce 16384": ("reduce", {"count": "16384"}, ("graph", "early", "nccl"), 100),
    "halo 64 fused": (str(SAMPLES / "halo3d/halo3d"), CUBE | FUSED, ("reader", "put", "early", "nccl", "mpi_host"), 1),
    "tea 4000": ("tea", {"side": "4000"}, (*TEA, "device_every8", "graph", "nccl"), 1),
    "halo 64": (str(SAMPLES / "halo3d/halo3d"), CUBE, ("graph", "early", "put", "nccl"), 1),
    "spmv 150000": (str(SAMPLES / "spmv/spmv"), {}, ("graph", "early", "nccl"), 1),
}


def values_of(case: str, way: str) -> dict[str, str]:
    _, values, _, _ = CASES[case]
    return {"streams": "1", "transport": "peer", **values, **WAYS[way]}


def words_of(values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("-D", f"{name}={value}")]


def run(words: list[str | Path], limit: float) -> str:
    """What fails, or ""."""
    try:
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"over {limit:.0f} s"
    return done.stderr[-1500:] if done.returncode else ""


def build(case: str, way: str, args: argparse.Namespace) -> str:
    to, values = args.work / case.replace(" ", "_") / way, values_of(case, way)
    if args.target == "host":
        values["transport"] = "peer"
        values.pop("collectives", None)
    file = HERE / f"{CASES[case][0]}.dag"
    out = ["-o", to, "--force", "--quiet"]
    return run([*DAGC, "compile", file, *words_of(values), "--target", args.target, *out], 150)


def set_up(case: str, args: argparse.Namespace) -> str:
    program, values, ways, _ = CASES[case]
    to = args.work / case.replace(" ", "_") / "data"
    given = words_of({"streams": "1", "transport": "peer", **values, **WAYS[ways[-1]]})
    return run([*DAGC, "setup", HERE / f"{program}.dag", *given, "-n", "2", "-o", to, "--quiet"], 100)


_UNTIL = re.compile(r"^until .*?: (?P<not>not converged, )?(?P<runs>\d+) of .*?, (?P<seconds>[\d.e-]+) s", re.M)


def measured(case: str, way: str, args: argparse.Namespace) -> str:
    folder = args.work / case.replace(" ", "_")
    words = [str(folder / way / "bench"), "--data", str(folder / "data"), "--seconds", "0.02", "--repeats", "11"]
    words += ["--json", str(folder / f"{way}.json")]
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "NCCL_NVLS_ENABLE": "0"}
    done = launch(words, 2, timeout=20, env=env)
    with (args.out / "two.txt").open("a") as file:
        print(f"== {case}, {way}: exit {done.returncode}\n{done.stdout}{done.stderr[-2000:]}", file=file)
    row = [case, way, "", ""]
    if done.returncode == 0:
        times = json.loads((folder / f"{way}.json").read_text())["time"]["seconds"]
        row[2:] = [f"{at(times) / CASES[case][3] * 1e6:.3f}" for at in (median, min)]
    until = _UNTIL.search(done.stdout)
    row += [until["runs"], until["seconds"]] if until else ["", ""]
    return ",".join([*row, str(done.returncode)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--limit", type=float, default=110, help="seconds, after which nothing more is started")
    parser.add_argument("--only", nargs="+", default=[""], help="cases with one of these words")
    args = parser.parse_args()
    args.out, end = args.out.resolve(), time.monotonic() + args.limit
    args.work = args.out / "work"
    args.work.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if any(word in case for word in args.only)]
    each = [(case, way) for case in cases for way in CASES[case][2]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = {one: pool.submit(build, *one, args) for one in each}
        ready = {case: pool.submit(set_up, case, args) for case in cases}
        with (args.out / "two.csv").open("w") as file:
            print("case,way,median_us,least_us,runs,seconds,exit", file=file, flush=True)
            for job in (*built.values(), *ready.values()):
                job.result()
            print(f"built after {time.monotonic() - end + args.limit:.0f} s", flush=True)
            for case, way in each:
                why = built[case, way].result() or ready[case].result()
                if time.monotonic() > end or why:
                    print(f"{case}, {way}: {why or 'no time'}", flush=True)
                    continue
                row = measured(case, way, args)
                print(row, file=file, flush=True)
                print(row, flush=True)


if __name__ == "__main__":
    main()
