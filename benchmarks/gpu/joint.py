"""Orders and launch settings searched together, beside the two stages one after the other and beside random.

    PYTHONUNBUFFERED=1 python -m benchmarks.gpu.joint --out "$OUT" --limit 300

For each program, on the same ranks: each op is timed alone under some settings; then one search over everything open,
the two stages (the settings that were fastest alone, then orders, transports, capture and variants), both in as many
seconds less, and random draws, each with --seeds seeds; then, as long as the time allows, a search with 20 times as
many measurements as reference. As `dagc explore` does, each confirms its best. The choices of all are timed in turn
after that of each method, and --judged times more at the end; these timings judge. The best of all is the choice with
the smallest median of its times over all judgings.

All programs are compiled at once, before anything is timed. Programs without messages run side by side, one on a GPU.
Prints a table and writes joint.jsonl, a line for each program, after each step. --target host rehearses it without
a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from dagc.base.sample import Sample
from dagc.base.statistics import interval
from dagc.ir.choice import Choice
from dagc.ir.traversal import traversal_text
from dagc.lab.candidate import Candidate
from dagc.lab.engine import UNKEPT, SearchOptions, explore
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders
from dagc.lab.strategy import find
from dagc.measure.service import WorkerLink
from dagc.report.display import SILENT
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.study.domain import Ready, checked, ready
from dagc.study.files import SearchFile
from dagc.study.launch import timed_sites

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = 20  # times as many measurements
METHODS = ("joint", "staged", "random")
ROUNDS = 15  # timings of each choice at the end
JUDGING = 0.2  # seconds kept for those of one choice
PAUSE = 10.0  # seconds between two judgings at the end
COMPILING, LATE = 300.0, 45.0  # seconds in which a program must be compiled; by which it may be late


@dataclass(frozen=True, slots=True)
class Subject:
    """A program. `small`: sizes for a rehearsal; `ranked`: it has messages."""

    path: str
    defines: dict[str, int]
    small: dict[str, int]
    ranked: bool = False


SUBJECTS = {
    "heat": Subject("heat/heat.dag", {"nx": 4096, "rows": 2048}, {"nx": 256, "rows": 32, "steps": 1}, True),
    "spmv": Subject("spmv/spmv.dag", {"rows": 1500000}, {"rows": 20000}, True),
    "halo3d": Subject("halo3d/halo3d.dag", dict.fromkeys(("nx", "ny", "nz"), 256),
                      dict.fromkeys(("nx", "ny", "nz"), 32), True),
    "2mm": Subject("polybench/2mm.dag", dict.fromkeys(("NI", "NJ", "NK", "NL"), 512),
                   dict.fromkeys(("NI", "NJ", "NK", "NL"), 48)),
    "3mm": Subject("polybench/3mm.dag", {}, dict.fromkeys(("NI", "NJ", "NK", "NL", "NM"), 48)),
    "corr": Subject("polybench/corr.dag", {"M": 512, "N": 512}, {"M": 48, "N": 48}),
    "syr2k": Subject("polybench/syr2k.dag", {"NI": 512, "NJ": 512}, {"NI": 48, "NJ": 48}),
    "atax": Subject("polybench/atax.dag", {}, {"NX": 96, "NY": 96}),
    "covar": Subject("polybench/covar.dag", {"M": 512, "N": 512}, {"M": 48, "N": 48}),
    "gramschm": Subject("polybench/gramschm.dag", {}, {"NI": 64, "NJ": 64}),
    "gemm": Subject("polybench/gemm.dag", dict.fromkeys(("NI", "NJ", "NK"), 1024),
                    dict.fromkeys(("NI", "NJ", "NK"), 48)),
    "syrk": Subject("polybench/syrk.dag", {"NI": 512, "NJ": 512}, {"NI": 48, "NJ": 48}),
    "mvt": Subject("polybench/mvt.dag", {}, {"N": 96}),
    "bicg": Subject("polybench/bicg.dag", {}, {"NX": 96, "NY": 96}),
    "gesummv": Subject("polybench/gesummv.dag", {}, {"N": 96}),
    "2dconv": Subject("polybench/2dconv.dag", {}, {"NI": 96, "NJ": 96}),
    "3dconv": Subject("polybench/3dconv.dag", {}, dict.fromkeys(("NI", "NJ", "NK"), 32)),
    "fdtd-2d": Subject("polybench/fdtd-2d.dag", {"NX": 1024, "NY": 1024}, dict.fromkeys(("NX", "NY", "TMAX"), 96)),
}  # fmt: skip


# ---- one program ----------------------------------------------------------------------------------


class _Alone:
    """A machine that notes what single launches take: by op, settings and variant, the seconds of each that ran."""

    def __init__(self, machine: LiveMachine) -> None:
        self.machine = machine
        self.found: dict[Any, dict[Choice, float]] = {}

    @property
    def domain(self) -> Orders:
        return self.machine.domain

    @domain.setter
    def domain(self, domain: Orders) -> None:
        self.machine.domain = domain

    def alone(self, index: int, site: Any, *more: Any) -> Callable[[Choice], Sample]:
        measure = self.machine.alone(index, site, *more)
        variant = self.domain.spaces[index].configuration.get(f"{site.name}.variant")
        seconds = self.found.setdefault((site.name, site.choices, variant), {})

        def noted(choice: Choice) -> Sample:
            sample = measure(choice)
            if not sample.failure:
                seconds[choice] = sample.value
            return sample

        return noted


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A machine whose candidates have no launch settings: those of their space are `choices`."""

    machine: LiveMachine
    choices: tuple[tuple[Choice, ...], ...]

    def whole(self, candidate: Candidate) -> Candidate:
        return replace(candidate, choices=self.choices[candidate.space])

    def measure(self, candidate: Candidate) -> Sample:
        return self.machine.measure(self.whole(candidate))


class Session:
    """The searches of one program on the same ranks."""

    def __init__(self, made: Ready) -> None:
        self.machine = machine = made.machine
        alone, begin = _Alone(machine), time.monotonic()
        timed_sites(alone, made.arrays.data, made.request)  # type: ignore[arg-type]
        self.alone_seconds = time.monotonic() - begin
        self.alone = sum(map(len, alone.found.values()))
        self.domain = machine.domain
        self.tuned = tuple(tuple(self._fastest(space, site, alone.found) for site in space.sites)
                           for space in self.domain.spaces)  # fmt: skip
        machine.noise_floor(self.domain.first(0))
        self.choices: dict[str, Candidate] = {}  # by the name of their search
        self.began = time.monotonic()

    @staticmethod
    def _fastest(space: Any, site: Any, found: dict[Any, dict[Choice, float]]) -> Choice:
        """The setting that was fastest alone; the program's own where none ran."""
        variant = space.configuration.get(f"{site.name}.variant")
        key = next((k for k in found if (k[0], k[2]) == (site.name, variant) and k[1] == site.choices), None)
        seconds = found[key] if key is not None else {}
        return min(seconds, key=seconds.__getitem__, default=site.choices[0])

    def search(self, method: str, seed: int, budget: int, limit: float) -> dict[str, Any]:
        """One search of at most `limit` seconds; what it found."""
        machine: Any = self.machine
        domain, strategy = self.domain, "random" if method == "random" else "model"
        if method == "staged":
            machine = _Fixed(self.machine, self.tuned)
            domain = Orders([replace(space, sites=()) for space in self.domain.spaces])
        if method == "reference":
            budget = REFERENCE * budget
        elif method != "random":
            limit -= self.alone_seconds
        start = time.monotonic()
        done = explore(domain, find(strategy)(domain, seed), machine, UNKEPT, SearchOptions(budget, limit, seed=seed))
        record: dict[str, Any] = {
            "method": method, "seed": seed, "budget": budget, "measured": done.measurements, "failures": done.failures,
            "seconds": round(time.monotonic() - start, 1),
        }  # fmt: skip
        if done.best is None:
            return record
        best = machine.whole(done.best) if method == "staged" else done.best
        self.choices[f"{method} {seed}"] = best
        graph = self.domain.spaces[best.space].graph
        return record | {
            "us": 1e6 * done.value, "low": 1e6 * done.low, "high": 1e6 * done.high,
            "choices": self.domain.configuration(best).text, "traversal": traversal_text(best.traversal, graph),
        }  # fmt: skip

    def judged(self) -> dict[str, Any]:
        """Microseconds of the choice of each search: median and its 95 % interval of timings in turn, and when.

        Each turn has an order of its own: what ran before may change clocks and caches.
        """
        times: dict[str, list[float]] = {search: [] for search in self.choices}
        turn, draw, at = list(self.choices), Random(0), time.monotonic() - self.began
        for _ in range(ROUNDS):
            draw.shuffle(turn)
            for search in turn:
                sample = self.machine.measure(self.choices[search])
                if not sample.failure:
                    times[search].append(1e6 * sample.value)
        out: dict[str, Any] = {"seconds": round(at, 1)}
        for search, each in times.items():
            if each:
                low, high = interval(each)
                out[search] = {"us": median(each), "low": low, "high": high}
        return out


def serve(name: str, args: argparse.Namespace) -> int:
    """Compile a program, say so, and answer requests: lines {"searches": [[METHOD, SEED], ...], "seconds": S}."""
    subject, folder = SUBJECTS[name], args.out / name
    folder.mkdir(parents=True, exist_ok=True)
    host = args.target == "host"
    transport = ("mpi_host,peer" if host else "nccl,peer") if subject.ranked else "all"
    options = ExploreOptions(
        ranks=args.ranks if subject.ranked else 1, budget=args.budget, transport=transport, seconds=args.seconds,
        target=args.target, launch="search", strategy="model", quiet=True, trace=False,
    )  # fmt: skip
    record: dict[str, Any] = {"program": name}
    with ExitStack() as stack:
        link = stack.enter_context(WorkerLink(options.ranks))
        text = read(ROOT / "samples" / subject.path, subject.small if host else subject.defines, True)
        file = SearchFile(stack)
        made = ready(text, folder / "r.db", options, SILENT, stack, link, file)
        chosen = made.request.chosen
        file.hosts(lambda: made.machine.hosts(chosen.target.value, chosen.arch))
        records, _ = file.open(text.path, made.program, made.request.options, made.fixed, made.domain.folded)
        _answer(record | {"compiled": len(checked(made, records).domain.spaces)})
        session: Session | None = None
        for line in sys.stdin:
            asked = json.loads(line)
            end = time.monotonic() + asked["seconds"]
            session = session or Session(made)
            record |= {"candidates": float(session.domain.size() or 0), "alone": session.alone}
            record["alone_seconds"] = round(session.alone_seconds, 2)
            for number, (method, seed) in enumerate(asked["searches"]):
                end -= JUDGING
                share = (end - time.monotonic()) / (len(asked["searches"]) - number)
                if share > 2:
                    record.setdefault("searches", []).append(session.search(method, seed, args.budget, share))
            record.setdefault("judged", []).append(session.judged())
            _answer(record)
    return 0


def _answer(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


# ---- all programs ---------------------------------------------------------------------------------


class Child:
    """A process that serves one program."""

    def __init__(self, name: str, args: argparse.Namespace, gpu: int | None) -> None:
        self.name = name
        command = [sys.executable, "-m", "benchmarks.gpu.joint", "--serve", name, "--out", str(args.out)]
        command += ["--budget", str(args.budget), "--seconds", str(args.seconds), "--ranks", str(args.ranks)]
        environment = dict(os.environ)
        if gpu is not None and args.target == "cuda":
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        with (args.out / f"{name}.log").open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--target", args.target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, cwd=ROOT, env=environment,
            )  # fmt: skip

    def ask(self, searches: Sequence[tuple[str, int]], seconds: float) -> None:
        assert self.process.stdin is not None
        if self.process.poll() is None:
            self.process.stdin.write(json.dumps({"searches": searches, "seconds": seconds}) + "\n")
            self.process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """The next record; None where the process has ended, or takes longer."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            self.process.kill()
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def steps_of(names: Sequence[str], gpus: int) -> list[list[str]]:
    """Programs in the order in which they run; those in one list side by side."""
    alone = [name for name in names if not SUBJECTS[name].ranked]
    side_by_side = [alone[i : i + gpus] for i in range(0, len(alone), gpus)]
    return [[name] for name in names if SUBJECTS[name].ranked] + side_by_side


def over_the_best(judged: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Of each method: for each of its searches the median over the judgings of its time over that of the best of all.

    The best of all is the choice with the smallest median; a choice that a judging lacks is left out of it.
    """
    us: dict[str, dict[int, float]] = {}
    for number, one in enumerate(judged):
        for search, times in one.items():
            if search != "seconds":
                us.setdefault(search, {})[number] = times["us"]
    if not us:
        return {}
    last = len(judged) - 1  # the reference is judged last only
    level = {n: min(times[n] for times in us.values() if n in times) for n in range(len(judged))}
    rated = {s: median(t / level[n] for n, t in times.items()) for s, times in us.items() if last in times}
    best = us[min(rated, key=rated.__getitem__)] if rated else {}
    out: dict[str, list[float]] = {}
    for search, times in us.items():
        both = [t / best[n] for n, t in times.items() if n in best]
        if both:
            out.setdefault(search.split()[0], []).append(median(both))
    return out


def table(records: Sequence[dict[str, Any]]) -> str:
    """Time over that of the best of all: median of the seeds (least to largest)."""
    shown = (*METHODS, "reference")
    out = [f"| program | candidates | {' | '.join(shown)} | best, us | judgings | measurements of the reference |",
           f"|{'---|' * (len(shown) + 5)}"]  # fmt: skip
    for record in records:
        judged = record.get("judged", [])
        over = over_the_best(judged)
        cells = [
            f"{median(over[m]):.3f} ({min(over[m]):.3f} to {max(over[m]):.3f})" if over.get(m) else "-" for m in shown
        ]
        last = judged[-1] if judged else {}
        least = min((j["us"] for s, j in last.items() if s != "seconds"), default=float("nan"))
        most = next((s["measured"] for s in record.get("searches", ()) if s["method"] == "reference"), "-")
        size = f"{record.get('candidates', 0):.1e}"
        out.append(f"| {record['program']} | {size} | {' | '.join(cells)} | {least:.2f} | {len(judged)} | {most} |")
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, default=Path("build/joint"), help="where results go (default: build/joint)")
    add("--limit", type=float, default=300.0, help="seconds for all, without compiling (default: 300)")
    add("--each", type=float, default=50.0, help="seconds for a program without its reference (default: 50)")
    add("--budget", type=int, default=150)
    add("--seeds", type=int, default=1, help="searches of each method (default: 1)")
    add("--judged", type=int, default=1, help="judgings after the reference, 10 s apart (default: 1)")
    add("--seconds", type=float, default=0.005, help="length of a measurement (default: 0.005)")
    add("--ranks", type=int, default=2, help="of the programs with messages: one a GPU (default: 2)")
    add("--gpus", type=int, default=2, help="programs without messages that run side by side (default: 2)")
    add("--target", choices=("cuda", "host"), default="cuda")
    add("--programs", nargs="+", choices=tuple(SUBJECTS), default=list(SUBJECTS))
    add("--wait", action="store_true", help="time nothing before a line of standard input")
    add("--serve", choices=tuple(SUBJECTS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("DAGC_CACHE", str(args.out / "cache"))
    return serve(args.serve, args) if args.serve else run(args)


def _written(out: Path, records: Iterable[dict[str, Any]]) -> str:
    """The table of the records, which are written too."""
    shown = table(list(records))
    (out / "joint.md").write_text(shown + "\n")
    (out / "joint.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return shown


def run(args: argparse.Namespace) -> int:
    steps = steps_of(args.programs, args.gpus)
    start = time.monotonic()
    gpu_of = {name: step.index(name) for step in steps for name in step if not SUBJECTS[name].ranked}
    children = {name: Child(name, args, gpu_of.get(name)) for name in args.programs}
    records: dict[str, dict[str, Any]] = {}
    for name, child in children.items():
        said = "compiled" if child.answer(COMPILING) else "does not compile"
        print(f"{name}: {said} ({time.monotonic() - start:.0f} s)")
    if args.wait:
        sys.stdin.readline()
    end = time.monotonic() + args.limit
    first = [(method, seed) for seed in range(args.seeds) for method in METHODS]
    for searches in (first, [("reference", args.seeds)], *[[]] * (args.judged - 1)):
        for number, step in enumerate(steps):
            left = end - time.monotonic()
            if searches:
                later = 0.0 if searches is first else PAUSE * (args.judged - 1)
                each = min(left, args.each) if searches is first else (left - later) / (len(steps) - number)
            else:
                each = PAUSE / len(steps)
                time.sleep(each)
            if min(each, left) < (10 if searches else 0):
                continue
            for name in step:
                children[name].ask(searches, each)
            for name in step:
                records[name] = children[name].answer(each + LATE) or records.get(name, {"program": name})
            print(f"{time.monotonic() - start:.0f} s: {', '.join(step)}\n{_written(args.out, records.values())}")
    for child in children.values():
        child.end()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
