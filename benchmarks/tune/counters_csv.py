"""Counted launches as benchmarks/gpu/counters.py writes them."""

from __future__ import annotations

import csv
import lzma
from collections import defaultdict
from pathlib import Path

from dagc.measure.machine import METRICS
from dagc.perf.mwp_cwp import CountedLaunch


def read_counters(path: Path) -> dict[tuple[str, str], list[CountedLaunch]]:
    """(program, op) -> launches; those that failed are left out. `path` ends in .csv or .csv.xz."""
    out: dict[tuple[str, str], list[CountedLaunch]] = defaultdict(list)
    with lzma.open(path, "rt", newline="") if path.suffix == ".xz" else path.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["failure"]:
                continue
            block = _pairs(row["settings"])
            counts = {name: float(row[name]) for name in METRICS.values() if row[name]}
            launch = CountedLaunch(_pairs(row["scalars"]), (block.get("bx", 1), block.get("by", 1), 1), counts)
            out[row["program"], row["op"]].append(launch)
    return dict(out)


def _pairs(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in (word.split("=") for word in text.split())}
