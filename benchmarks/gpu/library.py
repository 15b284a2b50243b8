"""A traversal as a library beside the emitted benchmark of the same traversal, under each transport of the machine.

    python benchmarks/gpu/library.py OUT [--ranks 2] [--seconds 25] [--transports mpi_host,nccl,peer]

For each program, `dagc explore` searches `--seconds` with the transport fixed (or `--found` names a folder with what
was found before); its best is compiled as a program and as a library, all of them side by side where nothing is
searched. Then all are timed in turn, three times: the benchmark's median, and the example application's calls `run(1)`
and `run(N)`. Writes OUT/library.csv as it goes, and prints it.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from dagc.base.errors import DagcError

ROOT = Path(__file__).parents[2]
FAILURES = (DagcError, RuntimeError, subprocess.TimeoutExpired)
DAGC = (sys.executable, "-m", "dagc")
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


@dataclass(frozen=True)
class Case:
    """A program under a transport, in a folder of its own: `program/`, `library/`, `data/`, `example`."""

    program: str
    path: str
    defines: tuple[str, ...]
    transport: str
    folder: Path

    def prepare(self, args: argparse.Namespace) -> None:
        """Write and build both, and the data."""
        self.folder.mkdir(parents=True, exist_ok=True)
        given = self.found(args)
        if given is not None:
            options = given.read_text().split("\n")[0].lstrip("# ").split()
            words = ["compile", ROOT / self.path, *self._defined(), *options, "--traversal", given]
        else:
            words = ["best", self._search(args)]
        library = ["-o", self.folder / "library", "--as", "library", "--name", f"my_{self.program}"]
        with ThreadPoolExecutor(3) as pool:
            setup = ["setup", ROOT / self.path, *self._defined(), "-n", str(args.ranks), "-o", self.folder / "data"]
            for job in [
                pool.submit(run, *DAGC, *w)
                for w in ([*words, "-o", self.folder / "program"], [*words, *library], setup)
            ]:
                job.result()
        self._build_example()

    def found(self, args: argparse.Namespace) -> Path | None:
        given = Path(args.found, f"{self.program}-{self.transport}.txt") if args.found else None
        return given if given is not None and given.exists() else None

    def _defined(self) -> list[str]:
        return [word for d in self.defines for word in ("-D", d)]

    def _search(self, args: argparse.Namespace) -> Path:
        results = self.folder / "found.db"
        words = ["explore", ROOT / self.path, *self._defined(), "--transport", self.transport, "-n", str(args.ranks)]
        print(run(*DAGC, *words, "--time", str(args.seconds), "-o", results, *args.more)[-400:], flush=True)
        return results

    def _build_example(self) -> None:
        from dagc.build.mpi import require_mpi

        mpi, library, name = require_mpi(), self.folder / "library", f"my_{self.program}"
        cuda = (library / f"src/{name}.cu").exists()
        compiler = ["nvcc", "-x", "cu", "-arch=native", "-Xcompiler=-Wall"] if cuda else ["g++", "-Wall"]
        folders = library / "lib", mpi.library_dir
        rpath = [f"-Xlinker=-rpath={f}" if cuda else f"-Wl,-rpath,{f}" for f in folders]
        include = [f"-I{library}/include", f"-I{library}/src/include", *mpi.compile_flags()]
        run(*compiler, "-std=c++17", "-O2", *include, library / "example/main.cpp", "-o", self.folder / "example",
            f"-L{library}/lib", f"-l{name}", *mpi.link_flags(nvcc=cuda), *rpath)  # fmt: skip

    def timed(self, turn: int, args: argparse.Namespace) -> dict[str, str]:
        data = self.folder / "data"
        out = json.loads(ranks(args.ranks, self.folder / "program/bench", "--data", data, "--json", "-"))
        times = sorted(out["time"]["seconds"])
        said = ranks(args.ranks, self.folder / "example", data, str(args.iterations))
        match = _EXAMPLE.search(said)
        assert match is not None, said
        bench = f"{1e6 * times[len(times) // 2]:.3f}"
        row = {"program": self.program, "transport": self.transport, "turn": str(turn), "bench_us": bench}
        return {**row, **match.groupdict()}


def prepared(cases: list[Case], args: argparse.Namespace) -> list[Case]:
    """Those that are built: side by side where nothing is searched."""
    ready = []
    for alone in (False, True):  # a search needs the GPUs for itself
        group = [case for case in cases if (case.found(args) is None) is alone]
        with ThreadPoolExecutor(1 if alone else max(1, len(group))) as pool:
            jobs = [(case, pool.submit(case.prepare, args)) for case in group]
        for case, job in jobs:
            try:
                job.result()
                ready.append(case)
            except FAILURES as error:
                print(f"{case.program} {case.transport}: failed: {error}", flush=True)
    return ready


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--transports", default="mpi_host,nccl,peer")
    parser.add_argument("--programs", default="spmv,heat")
    parser.add_argument(
        "--found", default="", help="folder of PROGRAM-TRANSPORT.txt: a comment with options, a traversal"
    )
    parser.add_argument("--build-only", action="store_true", help="time nothing; OUT/work keeps what is built")
    parser.add_argument("--iterations", type=int, default=1000, help="the N of run(N)")
    parser.add_argument("--more", nargs="*", default=[], help="further options of explore, without --")
    args = parser.parse_args()
    args.more = [f"--{word}" for word in args.more]
    work, wanted = Path(args.out).absolute() / "work", args.programs.split(",")
    work.mkdir(parents=True, exist_ok=True)
    cases = [
        Case(program, path, defines, transport, work / f"{program}-{transport}")
        for program, path, defines in PROGRAMS
        for transport in args.transports.split(",")
        if program in wanted
    ]
    ready = prepared(cases, args)
    if args.build_only:
        return
    with open(Path(args.out, "library.csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for turn, case in product(range(3), ready):
            try:
                row = case.timed(turn, args)
            except FAILURES as error:
                print(f"{case.program} {case.transport}: failed: {error}", flush=True)
                continue
            writer.writerow(row)
            file.flush()
            print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
