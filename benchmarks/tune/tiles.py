"""What tiles in registers and iterations together are worth, and what the model chooses, on a record.

    python -m benchmarks.tune.tiles benchmarks/results/2026-11-29-h200-tiles/tiles.csv.xz [--gpu h200]

For each kernel and size: the time of the best block of the kernel as written, of the best setting of all, of the best
of those that a search compiles, and of the one that the model chooses among these with nothing measured; how many times
as fast each is; and the time of cuBLAS, by the same work, over that of the best.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.residual import launch_terms
from dagc.perf.hardware import load_hardware
from dagc.stages.program import read

SAMPLES = Path(__file__).parents[2] / "samples" / "polybench"


def searched(kernel: str, size: str, gpu: str) -> dict[str, float]:
    """Seconds by the model of each setting that a search compiles."""
    name, op = kernel.split(".")
    graph, hardware = replace(read(SAMPLES / f"{name}.dag"), forms=True).graph(), load_hardware(gpu)
    (site,) = open_sites(graph, (op,))
    site = replace(site, choices=legal_settings(graph, site, {"max_threads_per_block": 1024}))
    at = {word.split("=")[0]: int(word.split("=")[1]) for word in size.split()}
    seconds = launch_terms(graph, site, site.choices, hardware).at(at)[:, 0]
    return {choice.in_words: float(time) for choice, time in zip(site.choices, seconds, strict=True)}


def row(kernel: str, size: str, measured: dict[str, float], gpu: str) -> str:
    blas = [time for setting, time in measured.items() if setting.startswith("cublas")]
    times = {setting: time for setting, time in measured.items() if not setting.startswith(("cublas", "copy"))}
    plain = min(time for setting, time in times.items() if "form." not in setting)
    best = min(times, key=times.__getitem__)
    predicted = {s: t for s, t in searched(kernel, size, gpu).items() if s in times}
    compiled = min(times[s] for s in predicted)
    chosen = times[min(predicted, key=predicted.__getitem__)]
    factors = [f"{time:.0f} ({plain / time:.2f})" for time in (times[best], compiled, chosen)]
    share = f"{min(blas) / times[best]:.1%}" if blas else "-"
    return f"| {kernel} | {size} | {plain:.0f} | {' | '.join(factors)} | {share} | {best} |"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--gpu", default="h200")
    args = parser.parse_args(words)
    found: dict[tuple[str, str], dict[str, float]] = {}
    with lzma.open(args.record, "rt") as file:
        for line in csv.DictReader(file):
            if line["us"] != "nan":
                found.setdefault((line["kernel"], line["size"]), {})[line["setting"]] = float(line["us"])
    print("| kernel | size | as written, us | best (times as fast) | compiled | chosen | of cuBLAS | best setting |")
    print("|---|---|---|---|---|---|---|---|")
    for (kernel, size), measured in found.items():
        print(row(kernel, size, measured, args.gpu), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
