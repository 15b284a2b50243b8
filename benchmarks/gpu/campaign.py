"""Runs both samples on the GPUs of this machine and records the results.

For each sample, transport and layout (a GPU a rank, or one GPU for all ranks):
  bench    three traversals, compiled: results checked against NumPy, time per iteration
  tables   200 traversals sampled uniformly, through the runner: every result checked
  compare  the same traversal as table and as straight-line code, in turn: the ratio with its spread
  driver   the same traversal from Python (PyCUDA, mpi4py), where it can: results checked, time per iteration

    python benchmarks/gpu/campaign.py --transports mpi_host:fused,mpi_host:ops --out DIR
    python benchmarks/gpu/campaign.py --transports mpi_cuda --mpi-takes-device-pointers --out DIR
    python benchmarks/gpu/campaign.py --transports nccl,peer --capture --layouts "a GPU a rank" --out DIR

`--target host --small` rehearses everything but the drivers without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import dagc
from dagc.build.builder import Build, build
from dagc.build.mpi import require_mpi
from dagc.build.toolchain import require_nccl
from dagc.emit import table_line, uses_nccl
from dagc.ir.traversal import traversal_text
from dagc.measure.launch import launch
from dagc.space import Space, TooManyStates

SAMPLES: dict[str, tuple[Path, dict[str, Any], dict[str, Any]]] = {
    # name: file, defines on a GPU, defines for a rehearsal
    "spmv": (ROOT / "samples/spmv/spmv.dag", {}, {"rows": 3000}),
    "halo3d": (ROOT / "samples/halo3d/halo3d.dag", {"nx": 128, "ny": 128, "nz": 128}, {"nx": 12, "ny": 12, "nz": 12}),
}


@dataclass(frozen=True)
class Case:
    sample: str
    transport: str
    staging: str
    captured: bool
    directory: Path
    defines: Mapping[str, Any]
    traversals: int

    @property
    def name(self) -> str:
        staging = f" {self.staging}" if self.transport == "mpi_host" else ""
        return f"{self.sample} {self.transport}{staging}{' graph' if self.captured else ''}"


def prepare(sample: str, lowering: str, args: argparse.Namespace) -> Case:
    """Emit and build everything of one sample under one lowering."""
    path, full, small = SAMPLES[sample]
    transport, _, staging = lowering.partition(":")
    defines = {**(small if args.small else full), "transport": transport, "staging": staging or "fused"}
    if args.capture:
        defines["capture"] = "true"
    space, random = Space(dagc.load_graph(path, defines), limit=20_000), Random(args.seed)
    try:
        space.count()
        draw = space.sample
    except TooManyStates:  # a space too large to count: random walks, not uniform
        draw = space.walk
    directory = args.work / f"{sample}-{transport}-{staging or 'fused'}{'-graph' if args.capture else ''}"
    picked = [space.first(), draw(random), draw(random)]
    for i, traversal in enumerate(picked):
        text = directory / f"t{i}.txt"
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(traversal_text(traversal, space.graph) + "\n")
        done = dagc.compile(path, directory / f"t{i}", target=args.target, defines=defines, traversal=str(text))
    end = "cu" if args.target == "cuda" else "cpp"
    first = directory / "t0"
    order = Build(
        [first / f"runner.{end}"], target=args.target, arch=args.arch, mpi=require_mpi(), defines=("DAGC_RUNNER_MAIN",),
        flags=require_nccl().flags() if uses_nccl(done.plan) else (),
    )  # fmt: skip
    build(order, first / "runner")
    lines = [table_line(draw(random), args.capture) for _ in range(args.tables)]
    (first / "tables.txt").write_text("\n".join(lines) + "\n")
    return Case(sample, transport, staging or "fused", args.capture, directory, defines, len(picked))


def run(case: Case, what: str, argv: list[str], args: argparse.Namespace, env: dict[str, str]) -> dict[str, Any]:
    """Start one program on the ranks; its JSON record, or what went wrong."""
    record = case.directory / "record.json"
    record.unlink(missing_ok=True)
    words = [*argv, "--json", str(record)]
    if case.transport == "mpi_cuda" and args.mpi_takes_device_pointers:
        words.append("--mpi-takes-device-pointers")
    start = time.perf_counter()
    done = launch(words, args.ranks, env=env, timeout=150)
    out: dict[str, Any] = {"what": what, "exit_code": done.returncode, "wall_s": round(time.perf_counter() - start, 2)}
    if done.returncode == 0 and record.exists():
        out["record"] = json.loads(record.read_text())
    else:
        out["said"] = (done.stdout + done.stderr)[-3000:]
    return out


def campaign(case: Case, layout: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """All runs of one case under one layout."""
    env = {"CUDA_VISIBLE_DEVICES": "0"} if layout == "one GPU" else {}
    data, first = str(args.work / f"data-{case.sample}"), case.directory / "t0"
    timing = ["--seconds", str(args.seconds), "--repeats", str(args.repeats)]
    out = []
    for i in range(case.traversals):
        bench = str(case.directory / f"t{i}" / "bench")
        out.append({"traversal": i, **run(case, "bench", [bench, "--data", data, *timing], args, env)})
    runner = [str(first / "runner"), "--data", data]
    out.append(run(case, "tables", [*runner, "--tables", str(first / "tables.txt")], args, env))
    out.append(run(case, "compare", [*runner, "--compare", *timing], args, env))
    if (first / "driver.py").exists():
        out.append(run(case, "driver", [sys.executable, str(first / "driver.py"), "--data", data, *timing], args, env))
    for entry in out:
        entry.update(case=case.name, layout=layout, defines={k: str(v) for k, v in case.defines.items()})
    return out


def summary(entry: dict[str, Any]) -> str:
    head = f"{entry['case']:22} {entry['layout']:12} {entry['what']:8}"
    if "record" not in entry:
        return f"{head} FAILED ({entry['exit_code']}): {entry.get('said', '')[-400:]}"
    record = entry["record"]
    if entry["what"] == "tables":
        good = sum(r["good"] for r in record["results"])
        return f"{head} {good} of {len(record['results'])} traversals right"
    if entry["what"] == "compare":
        r = record["ratio"]
        return f"{head} table / straight-line {r['median']:.4f} ({r['median_low']:.4f} to {r['median_high']:.4f})"
    s = record["time"]["statistics"]
    return f"{head} right; {s['median'] * 1e6:.2f} us ({s['median_low'] * 1e6:.2f} to {s['median_high'] * 1e6:.2f})"


def provenance(args: argparse.Namespace) -> dict[str, Any]:
    def said(*command: str) -> str:
        try:
            return subprocess.run(
                command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=60
            ).stdout.strip()
        except OSError:
            return ""

    query = "name,driver_version,clocks.sm,clocks.max.sm,memory.total"
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": args.revision or said("git", "rev-parse", "HEAD"),
        "dagc": dagc.__version__,
        "python": platform.python_version(),
        "mpi": require_mpi().describe(),
        "nvcc": said("nvcc", "--version").splitlines()[-2:],
        "gpus": said("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader").splitlines(),
        "cores": os.cpu_count(),
        "command": " ".join(sys.argv[1:]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="where the record goes")
    add("--work", type=Path, default=Path("build/campaign"), metavar="DIR", help="scratch (default: build/campaign)")
    add("--samples", default="spmv,halo3d")
    add("--transports", default="mpi_host:fused,mpi_host:ops", help="(default: mpi_host:fused,mpi_host:ops)")
    add("--layouts", default="a GPU a rank,one GPU", help="(default: both)")
    add("--target", choices=("cuda", "host"), default="cuda")
    add("--arch", default="sm_90")
    add("--ranks", type=int, default=4)
    add("--tables", type=int, default=200, help="traversals sampled (default: 200)")
    add("--seconds", type=float, default=0.01)
    add("--repeats", type=int, default=30)
    add("--seed", type=int, default=1)
    add("--revision", default="", help="git revision, where this is no checkout")
    add("--name", default="campaign", help="name of the record (default: campaign)")
    add("--capture", action="store_true", help="capture GPU ops in CUDA graphs")
    add("--small", action="store_true", help="sizes of a rehearsal")
    add("--mpi-takes-device-pointers", action="store_true")
    args = parser.parse_args()
    args.work = args.work.absolute()
    args.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"provenance": provenance(args), "runs": []}
    target = args.out / f"{args.name}.json"
    samples, lowerings = args.samples.split(","), args.transports.split(",")
    for sample in samples:
        path, full, small = SAMPLES[sample]
        dagc.run_setup(path, args.ranks, args.work / f"data-{sample}", args.seed, small if args.small else full)
    with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) // 4)) as pool:
        jobs = [pool.submit(prepare, s, x, args) for s in samples for x in lowerings]
    failed = 0
    for job in jobs:
        for layout in args.layouts.split(","):
            try:
                runs = campaign(job.result(), layout, args)
            except Exception:  # one case that fails must not lose the others
                traceback.print_exc()
                failed += 1
                continue
            record["runs"] += runs
            failed += sum("record" not in r for r in runs)
            target.write_text(json.dumps(record, indent=1) + "\n")
            for entry in runs:
                print(summary(entry), flush=True)
    print(f"{len(record['runs'])} runs, {failed} failed; record in {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
