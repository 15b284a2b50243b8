"""A traversal as a library beside the emitted benchmark of the same traversal, under each transport of the machine.

    python benchmarks/gpu/library.py OUT [--ranks 2] [--seconds 25] [--transports mpi_host,nccl,peer]

For each program, `dagc explore` searches `--seconds` with the transport fixed (or `--found` names a folder with what
was found before); its best is compiled as a program and as
a library. Both are timed in turn, three times: the benchmark's median, and the example application's calls `run(1)` and
`run(N)`. Writes OUT/library.csv as it goes, and prints it as a table.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = (
    ("spmv", "samples/spmv/spmv.dag", ("rows=150000", "bandwidth=18750")),
    ("heat", "samples/heat/heat.dag", ("nx=4096", "rows=2048")),
)
_EXAMPLE = re.compile(
    r"create (?P<create_ms>[\d.]+) ms, run\(0\) (?P<nothing_us>[\d.]+) us, run\(1\) (?P<call_us>[\d.]+) us, "
    r"run\(\d+\) (?P<iteration_us>[\d.]+) us"
)
FIELDS = ("program", "transport", "turn", "bench_us", "create_ms", "nothing_us", "call_us", "iteration_us")


def run(*words: str | Path, limit: float = 300) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))[:200]}\n{(done.stderr + done.stdout)[-1500:]}")
    return done.stdout


def ranks(n: int, *words: str | Path) -> str:
    from dagc.measure.launch import launch

    return launch([str(w) for w in words], n, timeout=120).check().stdout


def measure(
    program: str, path: str, defines: Sequence[str], transport: str, args: argparse.Namespace
) -> list[dict[str, str]]:
    dagc = (sys.executable, "-m", "dagc")
    folder = Path(args.out).absolute() / "work" / f"{program}-{transport}"
    folder.mkdir(parents=True, exist_ok=True)
    defined = [word for d in defines for word in ("-D", d)]
    given = Path(args.found, f"{program}-{transport}.txt") if args.found else None
    if given is not None and given.exists():
        words = [ROOT / path, *defined, *given.read_text().split("\n")[0].lstrip("# ").split(), "--traversal", given]
        run(*dagc, "compile", *words, "-o", folder / "program")
        run(*dagc, "compile", *words, "-o", folder / "library", "--as", "library", "--name", f"my_{program}")
        return timed(program, path, defines, transport, args, folder)
    results = folder / "found.db"
    print(run(*dagc, "explore", ROOT / path, *defined, "--transport", transport, "-n", str(args.ranks), "--time",
              str(args.seconds), "-o", results, *args.more)[-400:], flush=True)  # fmt: skip
    print(run(*dagc, "best", results, "-o", folder / "program"), flush=True)
    run(*dagc, "best", results, "-o", folder / "library", "--as", "library", "--name", f"my_{program}")
    return timed(program, path, defines, transport, args, folder)


def timed(
    program: str, path: str, defines: Sequence[str], transport: str, args: argparse.Namespace, folder: Path
) -> list[dict[str, str]]:
    from dagc.build.toolchain import require_mpi

    mpi = require_mpi()
    dagc = (sys.executable, "-m", "dagc")
    defined = [word for d in defines for word in ("-D", d)]
    run(*dagc, "setup", ROOT / path, *defined, "-n", str(args.ranks), "-o", folder / "data")
    example, library = folder / "example", folder / "library"
    cuda = (library / f"src/my_{program}.cu").exists()
    compiler = ["nvcc", "-x", "cu", "-arch=native", "-Xcompiler=-Wall"] if cuda else ["g++", "-Wall"]
    link = "-Xlinker" if cuda else "-Wl"
    rpath = [f"{link},-rpath,{f}" if not cuda else f"-Xlinker=-rpath={f}" for f in (library / "lib", mpi.library_dir)]
    include = [f"-I{library}/include", f"-I{library}/src/include", *mpi.compile_flags()]
    run(*compiler, "-std=c++17", "-O2", *include, library / "example/main.cpp", "-o", example, f"-L{library}/lib",
        f"-lmy_{program}", *mpi.link_flags(nvcc=cuda), *rpath)  # fmt: skip
    rows = []
    for turn in range(3):
        out = json.loads(ranks(args.ranks, folder / "program/bench", "--data", folder / "data", "--json", "-"))
        times = sorted(out["time"]["seconds"])
        said = ranks(args.ranks, example, folder / "data", str(args.iterations))
        match = _EXAMPLE.search(said)
        assert match is not None, said
        bench = f"{1e6 * times[len(times) // 2]:.3f}"
        rows.append(
            {"program": program, "transport": transport, "turn": str(turn), "bench_us": bench, **match.groupdict()}
        )
    return rows


def main() -> None:
    from dagc.base.errors import DagcError

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--transports", default="mpi_host,nccl,peer")
    parser.add_argument("--programs", default="spmv,heat")
    parser.add_argument(
        "--found", default="", help="folder of PROGRAM-TRANSPORT.txt: a comment with options, a traversal"
    )
    parser.add_argument("--iterations", type=int, default=1000, help="the N of run(N)")
    parser.add_argument("--more", nargs="*", default=[], help="further options of explore, without --")
    args = parser.parse_args()
    args.more = [f"--{word}" for word in args.more]
    Path(args.out).mkdir(parents=True, exist_ok=True)
    with open(Path(args.out, "library.csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for program, path, defines in PROGRAMS:
            for transport in args.transports.split(","):
                if program not in args.programs.split(","):
                    continue
                started = time.monotonic()
                try:
                    rows = measure(program, path, defines, transport, args)
                except (DagcError, RuntimeError, subprocess.TimeoutExpired) as error:
                    print(f"{program} {transport}: failed: {error}", flush=True)
                    continue
                writer.writerows(rows)
                file.flush()
                for row in rows:
                    print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)
                print(f"{time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
