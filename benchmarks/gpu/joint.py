"""Orders and launch settings searched together, beside the two stages one after the other and beside random.

    PYTHONUNBUFFERED=1 python -m benchmarks.gpu.joint --out "$OUT" --limit 345

For each program: `dagc explore` with --launch search (one search over everything open), with --launch auto (blocks
first, then orders, with as many measurements less) and with --strategy random, each with --budget measurements; then,
as long as the time allows, a reference with 20 times as many. Prints a table after each program and appends each run to
joint.jsonl; what was found before it is cut off stays. The best of each run is confirmed by measurements that did not
choose it.
--target host rehearses it without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagc.store.records import load
from dagc.store.results import best_estimate, ranking

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = 20  # times as many measurements
CELLS = 4  # that `--launch auto` measures of each op: the model's best three and the default


@dataclass(frozen=True, slots=True)
class Subject:
    """A program; `ops` with launch settings; `small`: sizes for a rehearsal."""

    path: str
    ops: int
    options: tuple[str, ...] = ()
    small: tuple[str, ...] = ()
    ranked: bool = True


def _small(size: int, *names: str) -> tuple[str, ...]:
    return tuple(word for name in names for word in ("-D", f"{name}={size}"))


SUBJECTS = {
    "heat": Subject("heat/heat.dag", 3, ("--transport", "nccl,peer", "-D", "nx=4096", "-D", "rows=2048"),
                    ("-D", "nx=256", "-D", "rows=32", "-D", "steps=1")),
    "2mm": Subject("polybench/2mm.dag", 2, (), _small(64, "NI", "NJ", "NK", "NL"), ranked=False),
    "spmv": Subject("spmv/spmv.dag", 2, ("--transport", "nccl,peer", "-D", "rows=1500000"), ("-D", "rows=20000")),
    "fdtd-2d": Subject("polybench/fdtd-2d.dag", 3, (), _small(96, "NX", "NY", "TMAX"), ranked=False),
    "halo3d": Subject("halo3d/halo3d.dag", 0, ("--transport", "peer", "-D", "nx=256", "-D", "ny=256", "-D", "nz=256"),
                      ("-D", "nx=32", "-D", "ny=32", "-D", "nz=32")),
    "gramschm": Subject("polybench/gramschm.dag", 3, (), _small(64, "NI", "NJ"), ranked=False),
    "3mm": Subject("polybench/3mm.dag", 3, (), _small(64, "NI", "NJ", "NK", "NL", "NM"), ranked=False),
}  # fmt: skip


def methods(subject: Subject, budget: int) -> dict[str, tuple[str, ...]]:
    orders = max(10, budget - CELLS * subject.ops)
    return {
        "joint": ("--launch", "search", "--budget", str(budget)),
        "staged": ("--launch", "auto", "--budget", str(orders)),
        "random": ("--launch", "search", "--strategy", "random", "--budget", str(budget)),
        "reference": ("--launch", "search", "--budget", str(REFERENCE * budget), "--seed", "1"),
    }


def run(args: argparse.Namespace, name: str, method: str, limit: float) -> dict[str, Any]:
    """One search; what it found, or why not."""
    subject = SUBJECTS[name]
    folder = args.out / name
    folder.mkdir(parents=True, exist_ok=True)
    file, log = folder / "r.db", folder / f"{method}.log"
    file.unlink(missing_ok=True)
    options = subject.small if args.target == "host" else ()
    transports = ("--transport", "mpi_host,peer") if args.target == "host" and "--transport" in subject.options else ()
    command = [
        sys.executable, "-m", "dagc", "explore", str(ROOT / "samples" / subject.path), "-o", str(file), "--quiet",
        "--target", args.target, "-n", str(args.ranks if subject.ranked else 1), "--no-trace", *subject.options,
        *options, *transports, *methods(subject, args.budget)[method],
    ]  # fmt: skip
    if method == "reference":
        command += ["--time", str(max(20, int(limit - 40)))]
    start = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True)
        try:
            code = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            try:
                code = process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
    record: dict[str, Any] = {"program": name, "method": method, "seconds": time.monotonic() - start, "code": code}
    if file.exists():
        record |= found_in(file)
        file.rename(folder / f"{method}.db")
    else:
        record["said"] = log.read_text()[-300:]
    return record


def found_in(file: Path) -> dict[str, Any]:
    """The best of a results file, in microseconds, with its interval."""
    results = load(file)
    ranked = ranking(results)
    if not ranked:
        return {"said": "nothing was measured"}
    best = best_estimate([i.judged(results.reference) for i in ranked], results.noise)
    return {
        "us": 1e6 * best.value, "low": 1e6 * best.low, "high": 1e6 * best.high, "noise": results.noise,
        "measured": sum(len(i.measurements) for i in results.implementations),
        "choices": ranked[0].configuration.text, "traversal": ranked[0].traversal,
    }  # fmt: skip


def table(records: list[dict[str, Any]]) -> str:
    names = [n for n in SUBJECTS if any(r["program"] == n for r in records)]
    shown = ("joint", "staged", "random", "reference")
    out = [f"| program | {' | '.join(shown)} | joint over the best |", f"|---|{'---|' * (len(shown) + 1)}"]
    for name in names:
        times = {r["method"]: r for r in records if r["program"] == name and "us" in r}
        least = min((r["us"] for r in times.values()), default=float("nan"))
        cells = [
            f"{times[m]['us']:.2f} us ({times[m]['low']:.2f} to {times[m]['high']:.2f})" if m in times else "-"
            for m in shown
        ]
        over = f"{times['joint']['us'] / least:.3f}" if "joint" in times else "-"
        out.append(f"| {name} | {' | '.join(cells)} | {over} |")
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, default=Path("build/joint"), help="where results go (default: build/joint)")
    add("--limit", type=float, default=345.0, help="seconds for all (default: 345)")
    add("--budget", type=int, default=150)
    add("--ranks", type=int, default=2, help="of the programs with messages: one a GPU (default: 2)")
    add("--target", choices=("cuda", "host"), default="cuda")
    add("--programs", nargs="+", choices=tuple(SUBJECTS), default=list(SUBJECTS))
    add("--methods", nargs="+", choices=("joint", "staged", "random", "reference"),
        default=["joint", "staged", "random", "reference"])  # fmt: skip
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("DAGC_CACHE", str(args.out / "cache"))
    end = time.monotonic() + args.limit
    todo = [(n, m) for n in args.programs for m in args.methods if m != "reference"]
    todo += [(n, "reference") for n in args.programs if "reference" in args.methods]
    records: list[dict[str, Any]] = []
    for number, (name, method) in enumerate(todo):
        left = end - time.monotonic()
        if left < (60 if method == "reference" else 15):
            break
        record = run(args, name, method, left)
        records.append(record)
        with (args.out / "joint.jsonl").open("a") as out:
            out.write(json.dumps(record) + "\n")
        said = f"{record['us']:.2f} us" if "us" in record else record.get("said", "").strip()
        print(f"{name} {method}: {said} ({record['seconds']:.0f} s)")
        if number + 1 == len(todo) or todo[number + 1][0] != name:
            print(table(records))
            (args.out / "joint.md").write_text(table(records) + "\n")
    print(table(records))
    (args.out / "joint.md").write_text(table(records) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
