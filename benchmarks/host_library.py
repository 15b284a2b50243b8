"""Shared libraries beside emitted programs on the host target: the same implementation as both, one rank, in turns.

    python -m benchmarks.host_library OUT [--turns 9] [--only overlap,sort]

Writes OUT/library.csv: microseconds of an iteration of the program (median of 20 measurements) and of `run(N)` of the
library (median of 21), one row a turn. Prints, for each sample, the least of both over the turns and their ratio: what
else runs on the machine only adds time.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.library import _EXAMPLE, ROOT, ranks, run

DAGC = (sys.executable, "-m", "dagc")
# The program, its sizes, and the N of `run(N)`: some milliseconds.
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
    words = [ROOT / path, *(word for d in defines for word in ("-D", d))]
    run(*DAGC, "setup", *words, "-n", "1", "-o", out / name / "data")
    run(*DAGC, "compile", *words, "-n", "1", "--target", "host", "--force", "-o", out / name / "program")
    library = out / name / "library"
    run(*DAGC, "compile", *words, "-n", "1", "--target", "host", "--force", "--as", "library", "--name", "mine",
        "-o", library)  # fmt: skip
    run("mpicxx", "-std=c++17", "-O2", "-pthread", f"-I{library}/include", f"-I{library}/src/include",
        library / "example/main.cpp", "-o", out / name / "example", f"-L{library}/lib", "-lmine",
        f"-Wl,-rpath,{library}/lib")  # fmt: skip


def measure(name: str, turn: int, out: Path) -> dict[str, str]:
    data, iterations = out / name / "data", SAMPLES[name][2]
    said = json.loads(ranks(1, out / name / "program/bench", "--data", data, "--seconds", "0.004", "--json", "-"))
    found = _EXAMPLE.search(ranks(1, out / name / "example", data, str(iterations)))
    assert found is not None
    bench = statistics.median(said["time"]["seconds"]) * 1e6
    return {"sample": name, "turn": str(turn), "bench_us": f"{bench:.2f}", "library_us": found["iteration_us"]}


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
        bench, library = (min(float(r[f]) for r in rows if r["sample"] == name) for f in FIELDS[2:])
        print(f"{name:10} program {bench:10.2f} us, library {library:10.2f} us, ratio {library / bench:.3f}")


if __name__ == "__main__":
    main()
