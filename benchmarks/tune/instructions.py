"""Instructions of a warp as nvcc compiled them, and as the kernel's text has them, beside what ncu counted.

    python -m benchmarks.tune.instructions COUNTERS.csv.xz [--markdown FILE]

Needs nvcc, no GPU. For each kernel the geometric mean, the least and the largest of counted / measured over all counted
launches, measured being ncu's instructions over the warps that have work.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.tune.counters_csv import read_counters
from dagc import api
from dagc.choice.legal import op_of, open_sites
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.ir.program import Graph
from dagc.perf.evaluate import evaluate_all
from dagc.perf.hardware import load_hardware
from dagc.perf.mwp_cwp import CountedLaunch
from dagc.perf.volume import calibration_of, volume_program
from dagc.study.build import resources_of
from dagc.study.task import tuning_task

ROOT = Path(__file__).parents[2]
ARCH = "sm_90"


def of_warps(graph: Graph, op: str, taken: Resources, launches: Sequence[CountedLaunch]) -> np.ndarray:
    """The model's instructions of a warp over the measured ones, for each launch; empty for blocks of one thread."""
    (site,) = open_sites(graph, [op])
    program, gpu = volume_program(graph.program, op_of(graph, site), resources=taken), load_hardware("h200")
    values = {**gpu.parameters(), **calibration_of(gpu), "registers": taken.registers, "log2_threads": 8.0}
    for number, axis in enumerate("xyz"):
        values[f"blockDim_{axis}"] = np.array([at.block[number] for at in launches])
    for name in launches[0].scalars:
        values[name] = np.array([at.scalars[name] for at in launches])
    steps = evaluate_all(program, {p.name: values[p.name] for p in program.parameters})
    if "active_warps" not in steps:
        return np.array([])
    measured = np.array([at.counts["instructions"] for at in launches]) / np.asarray(steps["active_warps"], float)
    return np.broadcast_to(np.asarray(steps["instructions"], float), len(launches)) / measured


def _text(ratios: np.ndarray) -> str:
    return f"{math.exp(np.mean(np.log(ratios))):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counters", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    lines = ["| kernel | launches | nvcc / ncu | text / ncu |", "|---|---|---|---|"]
    means: dict[str, list[float]] = {"nvcc": [], "text": []}
    counted = read_counters(args.counters)
    with tempfile.TemporaryDirectory() as folder:
        for program in dict.fromkeys(name for name, _ in counted):
            made = tuning_task(api.read(ROOT / f"samples/polybench/{program}.dag"), target="cuda", arch=ARCH)
            found = resources_of(made, Path(folder) / program)
            for op, launches in ((o, at) for (p, o), at in counted.items() if p == program):
                own, text = (of_warps(made.graph, op, taken, launches) for taken in (found[op], ASSUMED))
                if not own.size:
                    continue
                lines.append(f"| {program} {op} | {len(launches)} | {_text(own)} | {_text(text)} |")
                means["nvcc"].append(float(np.mean(np.log(own))))
                means["text"].append(float(np.mean(np.log(text))))
                print(lines[-1], flush=True)
    for name, logs in means.items():
        away = math.exp(float(np.mean(np.abs(logs))))
        lines.append(f"\n{name}: {len(logs)} kernels, geometric mean {math.exp(np.mean(logs)):.2f}, off by {away:.2f}.")
        print(lines[-1])
    if args.markdown is not None:
        title = ["# Instructions of a warp: nvcc's output and the kernel's text beside ncu", ""]
        head = ["`python -m benchmarks.tune.instructions counters.csv.xz`; counted over measured, geometric mean of a"]
        head += ["kernel's launches, least and largest. Off by: geometric mean of the factor, up or down.", ""]
        args.markdown.write_text("\n".join([*title, *head, *lines]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
