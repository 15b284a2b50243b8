"""Times that SimGrid predicts against times measured with a real MPI, of the same implementations on the host target.

    python -m benchmarks.simulated --out FOLDER [--target host|cuda] [--number 20] [--ranks 2 4] [--measure]
    python -m benchmarks.simulated --out FOLDER --scale RANKS    # how long a simulation of so many ranks takes

For each program: orders drawn at random are measured with each number of ranks (with --measure that is all: the files
can be predicted on another machine, which has SimGrid). Each number of ranks is predicted from the traces of its own
file, and the largest also from those of the smallest. Prints the rank correlation over the implementations, beside it
that of two halves of the measurements with each other, and what follows from it (Spearman and Brown) for all of them
with times without noise, the most that a prediction can have; of the pairs whose measured times differ by
more than twice the noise (the median difference of the two halves of one), how many are predicted in this order, and
how many the halves have in the same; the ratio of the predicted to the measured time (median and extremes), and how
much the implementation that is predicted to be the fastest loses against the fastest measured. The platform has one
host, with latency and bandwidth of a ping-pong. A rank on the host target has a thread for its CPU and two for its
streams, and the simulation gives each a core: the machine needs three for each rank. Second, the implementations that
did not calibrate it are predicted after `--calibrate`.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from statistics import median

from scipy.stats import spearmanr

from dagc.base.signals import ENDLESS
from dagc.build.mpi import require_mpi
from dagc.lab.candidate import Candidate
from dagc.measure.launch import launch
from dagc.space import Space
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.store.records import load
from dagc.store.results import Implementation, Results
from dagc.study.calibrated import calibration
from dagc.study.decisions import SearchRequest
from dagc.study.domain import replayed
from dagc.study.outcome import candidate_of
from dagc.study.simulated import SimulatedMachine, compiled, problem_text, simulated
from dagc.study.traced import EntryTimes

SAMPLES = Path(__file__).parents[1] / "samples"
FIXED = {"transport": "mpi_host", "capture": False}
PROGRAMS: dict[str, dict[str, dict[str, object]]] = {  # sizes by target
    "heat/heat.dag": {"host": {"nx": 256, "rows": 64, "steps": 2}, "cuda": {"nx": 4096, "rows": 1024, "steps": 2}},
    "halo3d/halo3d.dag": {
        "host": {"nx": 32, "ny": 32, "nz": 32, "per_axis": False},
        "cuda": {"nx": 128, "ny": 128, "nz": 128, "per_axis": False},
    },
    "heat/grid.dag": {"host": {"cells": 128, "steps": 2, "px": 0}, "cuda": {"cells": 2048, "steps": 2, "px": 0}},
    "jacobi/jacobi.dag": {"host": {"nx": 512, "rows": 128, "steps": 4}, "cuda": {"nx": 4096, "rows": 2048, "steps": 4}},
    "spmv/spmv.dag": {"host": {"rows": 20000, "staging": "ops"}, "cuda": {"rows": 600000, "staging": "ops"}},
    "cg/cg.dag": {"host": {"side": 100, "streams": 2, "blocks": 2}, "cuda": {"side": 500, "streams": 2}},
}
RANKS = (2, 4)
PING_PONG = """
import time
import numpy as np
from mpi4py import MPI
comm, rounds = MPI.COMM_WORLD, 200
for size in (8, 1 << 20):
    data, best = np.zeros(size, np.uint8), float("inf")
    for _ in range(rounds):
        comm.Barrier()
        begin = time.perf_counter()
        if comm.rank == 0:
            comm.Send(data, 1); comm.Recv(data, 1)
        else:
            comm.Recv(data, 0); comm.Send(data, 0)
        best = min(best, (time.perf_counter() - begin) / 2)
    if comm.rank == 0:
        print(best)
"""
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="here" prefix="node-" suffix="" radical="0-0" speed="1Gf" core="{cores}" bw="1GBps" lat="1us"
           loopback_bw="{bandwidth:.0f}Bps" loopback_lat="{latency:.4g}s"/>
</platform>
"""


MANY = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="many" prefix="node-" suffix="" radical="0-{last}" speed="1Gf" core="4" bw="25GBps" lat="1us"
           bb_bw="10TBps" bb_lat="1us" loopback_bw="100GBps" loopback_lat="1us"/>
</platform>
"""


def platform(out: Path) -> Path:
    (out / "ping_pong.py").write_text(PING_PONG)
    if not (out / "ping_pong.txt").exists():
        done = launch([sys.executable, out / "ping_pong.py"], 2).check()
        (out / "ping_pong.txt").write_text(done.stdout)
    latency, large = map(float, (out / "ping_pong.txt").read_text().split())
    text = PLATFORM.format(cores=64, bandwidth=(1 << 20) / max(large - latency, 1e-9), latency=latency)
    (out / "here.xml").write_text(text)
    print(f"ping-pong: latency {latency * 1e6:.2f} us, bandwidth {(1 << 20) / (large - latency) / 1e9:.2f} GB/s")
    return out / "here.xml"


def defines(program: str, target: str) -> dict[str, object]:
    return {**PROGRAMS[program][target], **FIXED}


def named(program: str, target: str, ranks: int, out: Path) -> Path:
    return out / f"{Path(program).stem}-{target}-{ranks}.db"


def explored(program: str, target: str, ranks: int, file: Path, *options: object) -> list[str]:
    """The command of a search."""
    given = [word for name, value in defines(program, target).items() for word in ("-D", f"{name}={value}".lower())]
    command = ["explore", SAMPLES / program, *given, "--target", target, "-n", ranks, "--strategy", "random",
               "--only", "orders", "--confirm", 0, "--quiet", "-o", file, *options]  # fmt: skip
    return [sys.executable, "-m", "dagc", *map(str, command)]


def built(programs: Sequence[str], target: str, ranks: int, out: Path) -> None:
    """Builds what the searches run, side by side."""
    quick = ("--budget", 1, "--no-trace")
    files = {one: named(one, target, ranks, out).with_suffix(".first") for one in programs}
    commands = [explored(one, target, ranks, file, *quick) for one, file in files.items() if not file.exists()]
    for each in [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]:
        each.wait()


def measured(program: str, ranks: int, given: argparse.Namespace) -> Path:
    file = named(program, given.target, ranks, given.out)
    if not file.exists():
        limits = ("--budget", given.number, "--passes", given.passes, *(("--time", given.time) if given.time else ()))
        subprocess.run(explored(program, given.target, ranks, file, *limits), check=True, stdout=subprocess.DEVNULL)
    return file


def compare(program: str, target: str, traced: Path, file: Path, ranks: int, where: Path, scratch: Path) -> None:
    """Predict the implementations of `file` from the traces of `traced`."""
    text = read(SAMPLES / program, defines(program, target), True)
    options = ExploreOptions(
        replay=str(file), simulate=str(where), ranks=ranks, strategy="random", only="orders", quiet=True
    )
    request, lowered, domain, results, _ = replayed(text, options, ENDLESS)
    scratch.mkdir(exist_ok=True)
    recorded = load(str(traced))
    machine = simulated(request, lowered, domain, recorded, scratch)
    every = {candidate_of(domain, one): one for one in results.measured()}
    measured = {one: found for one, found in every.items() if one is not None and not machine.measure(one).failure}
    say(
        f"{Path(program).stem:8} {ranks} ranks from traces of {traced.stem.rpartition('-')[2]}",
        machine,
        measured,
        results,
    )
    found = calibration(with_options(request, calibrate=str(where)), lowered, domain, recorded, scratch)
    machine.factors = found.factors
    machine.seconds.clear()
    others = {one: which for one, which in measured.items() if one not in found.candidates}
    say(f"{'':8} the others, as {found.text}", machine, others, results)


def with_options(request: SearchRequest, **changed: object) -> SearchRequest:
    return replace(request, options=replace(request.options, **changed))


def say(label: str, machine: SimulatedMachine, measured: Mapping[Candidate, Implementation], results: Results) -> None:
    """How the predicted times of implementations agree with the measured ones."""
    predicted = [machine.measure(one).value for one in measured]
    real = [one.value(results.reference) for one in measured.values()]
    times = [one.times(results.reference) for one in measured.values()]
    ratios = sorted(p / r for p, r in zip(predicted, real, strict=True))
    print(
        f"{label}: {len(real)} implementations, rank correlation {spearmanr(predicted, real).statistic:.2f}, median"
        f" error {median(abs(ratio - 1) for ratio in ratios):.1%}, predicted / measured {median(ratios):.2f}"
        f" ({ratios[0]:.2f} to {ratios[-1]:.2f}), loss of the predicted best {loss(predicted, real):.1%}, measured"
        f" {min(real) * 1e6:.0f} to {max(real) * 1e6:.0f} us"
    )
    if all(len(each) > 1 for each in times):
        say_noise(predicted, real, [(median(each[::2]), median(each[1::2])) for each in times])


def loss(guide: Sequence[float], real: Sequence[float]) -> float:
    """What the first by `guide` takes longer than the fastest."""
    return min(zip(guide, real, strict=True))[1] / min(real) - 1


def say_noise(predicted: Sequence[float], real: Sequence[float], halves: Sequence[tuple[float, float]]) -> None:
    one, other = zip(*halves, strict=True)
    noise = median(abs(a - b) for a, b in halves)
    right, apart = in_order(predicted, real, real, 2 * noise)
    again, _ = in_order(one, other, real, 2 * noise)
    alike = spearmanr(one, other).statistic
    print(
        f"{'':8} two halves of the measurements: rank correlation {alike:.2f} (so"
        f" {max(0.0, 2 * alike / (1 + alike)) ** 0.5:.2f} of all with times without noise), loss of the"
        f" best of one in the other {loss(one, other):.1%} and {loss(other, one):.1%}; noise"
        f" {noise / median(real):.1%}, of {apart} pairs that differ by more than twice that {right} are predicted in"
        f" order, {again} have the same order in both halves"
    )


def in_order(times: Sequence[float], others: Sequence[float], real: Sequence[float], least: float) -> tuple[int, int]:
    """Of the pairs of implementations whose measured times differ by more than `least`: how many have the same order in
    `times` and in `others`, and how many there are."""
    apart = [(a, b) for a, b in combinations(range(len(real)), 2) if abs(real[a] - real[b]) > least]
    return sum((times[a] - times[b]) * (others[a] - others[b]) > 0 for a, b in apart), len(apart)


def scale(ranks: int, out: Path) -> None:
    """Simulate an iteration of halo3d on many ranks, with calls of 1 us and kernels of 20 us, in both orders of the
    ranks."""
    spec = importlib.util.spec_from_file_location("halo", SAMPLES / "halo3d/halo.py")
    assert spec is not None
    assert spec.loader is not None
    halo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(halo)
    given = {**FIXED, "per_axis": False, "rank_order": "neighbours"}
    graph = read(SAMPLES / "halo3d/halo3d.dag", given).graph().unrolled
    names, grid = ["record", "wait", "sync", *(op.name for op in graph.ops)], halo.dims_create(ranks)
    times = EntryTimes(dict.fromkeys(names, 1e-6), dict.fromkeys(names, 2e-5))

    def values(rank: int) -> dict[str, object]:
        out: dict[str, object] = {**graph.program.param_values, "rank": rank, "ranks": ranks}
        for (d, dim), (s, side) in product(enumerate("xyz"), enumerate(("lo", "hi"))):
            at = list(halo.coordinates(rank, grid))
            at[d] = (at[d] + (1 if s else -1)) % grid[d]
            out[f"nbr[{dim},{side}]"] = (at[2] * grid[1] + at[1]) * grid[0] + at[0]
        return out

    scalars = [values(r) for r in range(ranks)]
    (out / "problem").write_text(problem_text([graph], times, [scalars], rounds=1))
    (out / "many.xml").write_text(MANY.format(last=-(-ranks // 4) - 1))
    rows = ";".join(" ".join(map(str, entry.row)) for entry in Space(graph).first().entries)
    command = [compiled(out), out / "many.xml", out / "problem", "--log=root.thres:error"]
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, input=f"0 {rows}\n", capture_output=True, text=True, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"halo3d on {ranks} ranks: an iteration of {float(done.stdout.split()[0]) * 1e3:.1f} ms simulated in"
        f" {time.perf_counter() - begin:.1f} s ({busy:.1f} s of CPU time), at most {used.ru_maxrss / 1e3:.0f} MB"
        " (compiler included)"
    )
    found = subprocess.run(command, input="near 0\n", capture_output=True, text=True, check=True).stdout.split()
    (out / "problem").write_text(problem_text([graph], times, [scalars], 1, orders={0: [*map(int, found)]}))
    done = subprocess.run(command, input=f"0 {rows}\n", capture_output=True, text=True, check=True)
    print(f"with rank_order=neighbours {float(done.stdout.split()[0]) * 1e3:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--passes", type=int, default=4, help="measurements of each implementation")
    parser.add_argument("--time", help="limit of each search, such as 10s")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--target", choices=("host", "cuda"), default="host")
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--scale", type=int, default=0, metavar="RANKS")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.scale:
        scale(given.scale, given.out)
        return
    require_mpi()
    where, least, most = platform(given.out), min(given.ranks), max(given.ranks)
    built(given.programs, given.target, most, given.out)
    for program in given.programs:
        files = {ranks: measured(program, ranks, given) for ranks in given.ranks}
        pairs = sorted({*((r, r) for r in given.ranks), (least, most)})
        for traced, ranks in () if given.measure else pairs:
            compare(program, given.target, files[traced], files[ranks], ranks, where, given.out / "scratch")


if __name__ == "__main__":
    main()
