"""Shared libraries beside emitted programs on the host target: the same implementation as both, one rank, in turns.

    python -m benchmarks.host_library OUT [--turns 9] [--only overlap,sort]

Writes OUT/library.csv: microseconds of CPU time (all threads) of an iteration of the program, and of `run` of the
library, one row a turn. That of a process is taken twice, with few and with many iterations, and their difference
counts. Prints, for each sample, the least of both over the turns, their ratio, and the median of the ratios. What is
built in OUT already is not built again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.library import ROOT, run

DAGC = (sys.executable, "-m", "dagc")
# The program, its sizes, and how many iterations take about 20 ms.
SAMPLES = {
    "overlap": ("samples/port/overlap.dag", ("columns=256", "height=128", "steps=4"), 4),
    "port": ("samples/port/port.dag", ("columns=256", "height=128", "steps=4"), 4),
    "heat": ("samples/heat/heat.dag", ("nx=256", "rows=64", "steps=4"), 4),
    "spmv": ("samples/spmv/spmv.dag", ("rows=20000", "bandwidth=2500"), 4),
    "jacobi": ("samples/jacobi/jacobi.dag", ("nx=128", "rows=64", "steps=4"), 4),
    "sort": ("samples/sort/sort.dag", ("input=uniform(n = 20_000, bits = 32, seed = 1)",), 2),
    "histogram": ("samples/histogram/histogram.dag", ("input=uniform(n = 100_000, seed = 1)",), 4),
    "gemm": ("samples/gemm/gemm.dag", ("m=64", "n=64", "k=64"), 4),
}
FIELDS = ("sample", "turn", "bench_us", "library_us")


def build(name: str, out: Path) -> None:
    path, defines, _ = SAMPLES[name]
    if (out / name / "example").exists():
        return
    words = [ROOT / path, *(word for d in defines for word in ("-D", d))]
    run(*DAGC, "setup", *words, "-n", "1", "-o", out / name / "data")
    run(*DAGC, "compile", *words, "--target", "host", "--force", "-o", out / name / "program")
    library = out / name / "library"
    run(*DAGC, "compile", *words, "--target", "host", "--force", "--as", "library", "--name", "mine",
        "-o", library)  # fmt: skip
    run("mpicxx", "-std=c++17", "-O2", "-pthread", f"-I{library}/include", f"-I{library}/src/include",
        library / "example/main.cpp", "-o", out / name / "example", f"-L{library}/lib", "-lmine",
        f"-Wl,-rpath,{library}/lib")  # fmt: skip


def cpu(*words: str | Path) -> tuple[float, str]:
    """CPU seconds of a process, one rank without mpiexec, and what it printed."""
    process = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError(f"{words[0]} failed")
    return usage.ru_utime + usage.ru_stime, out


def measure(name: str, turn: int, out: Path) -> dict[str, str]:
    data, n = out / name / "data", SAMPLES[name][2]
    program, example = (out / name / "program/bench", "--data", data), (out / name / "example", data)
    few, _ = cpu(*program, "--check-only")
    many, said = cpu(*program, "--seconds", "0.02", "--repeats", "40", "--json", "-")
    # The number of iterations of a measurement is found by doubling, which takes about as many again.
    bench = (many - few) / (json.loads(said)["time"]["iterations"] * 41)
    few, _ = cpu(*example, "1")
    many, _ = cpu(*example, str(n + 1))  # 21 times `run(1)` in a loop, and `run(n + 1)`
    library = (many - few) / (42 * n)
    return {"sample": name, "turn": str(turn), "bench_us": f"{bench * 1e6:.2f}", "library_us": f"{library * 1e6:.2f}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=lambda text: Path(text).absolute())
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", default=",".join(SAMPLES))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    names, rows = [], []
    for name in args.only.split(","):
        try:
            build(name, args.out)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", flush=True)
        else:
            names.append(name)
    with open(args.out / "library.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for turn in range(args.turns):
            for name in names:
                rows.append(measure(name, turn, args.out))
                writer.writerow(rows[-1])
                file.flush()
    for name in names:
        bench, library = ([float(r[f]) for r in rows if r["sample"] == name] for f in FIELDS[2:])
        ratio = statistics.median(b / a for a, b in zip(bench, library, strict=True))
        print(
            f"{name:10} program {min(bench):10.2f} us, library {min(library):10.2f} us, "
            f"ratio {min(library) / min(bench):.3f}, median of ratios {ratio:.3f}"
        )


if __name__ == "__main__":
    main()
