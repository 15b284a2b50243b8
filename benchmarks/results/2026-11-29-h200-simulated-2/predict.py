"""Times that SimGrid predicts from the traces of a recorded results file, against the times that it has.

PYTHONPATH=. python benchmarks/results/2026-11-29-h200-simulated-2/predict.py FILE.db RANKS LATENCY BANDWIDTH SCRATCH
"""

import json
import shutil
import sqlite3
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from scipy.stats import spearmanr

from benchmarks.simulated import PLATFORM
from dagc.base.signals import ENDLESS
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.study.domain import replayed
from dagc.study.outcome import candidate_of
from dagc.study.simulated import simulated

NAMES = ("transport", "capture", "staging")


def main(file: Path, ranks: int, latency: float, bandwidth: float, scratch: Path) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    copy, platform = scratch / file.name, scratch / "here.xml"
    shutil.copy(file, copy)
    recorded = sqlite3.connect(copy)
    facts = dict(recorded.execute("select * from meta"))
    path, text = recorded.execute("select * from source").fetchone()[:2]
    folder = scratch / "program"  # the text of the file, with the set-up of today
    shutil.copytree(Path("samples") / Path(path).parent.name, folder, dirs_exist_ok=True)
    (folder / Path(path).name).write_text(text)
    platform.write_text(PLATFORM.format(cores=64, bandwidth=bandwidth, latency=latency))
    options = ExploreOptions(replay=str(copy), simulate=str(platform), ranks=ranks, strategy="random", quiet=True)
    program = read(folder / Path(path).name, json.loads(facts["params"]))
    request, lowered, domain, results, _ = replayed(program, options, ENDLESS)
    machine = simulated(request, lowered, domain, results, scratch / "simulated")
    found = defaultdict(list)
    for one in results.measured():
        candidate = candidate_of(domain, one)
        sample = machine.measure(candidate) if candidate is not None else None
        if sample is not None and not sample.failure:
            name = " ".join(f"{n}={v}" for n, v in one.configuration.decisions if n in NAMES)
            found[name].append((sample.value, one.value(results.reference), one.times(results.reference)))
    for name, rows in found.items():
        predicted, real, times = zip(*rows, strict=True)
        halves = [(median(t[::2]), median(t[1::2])) for t in times if len(t) > 1]
        between = spearmanr(*zip(*halves, strict=True)).statistic if len(halves) > 20 else float("nan")
        ratios = sorted(p / r for p, r in zip(predicted, real, strict=True))
        print(
            f"{name}: {len(rows)} implementations, {min(real) * 1e6:.0f} to {max(real) * 1e6:.0f} us,"
            f" rank correlation {spearmanr(predicted, real).statistic:.2f} (of two halves {between:.2f}),"
            f" predicted / measured {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}),"
            f" median error {median(abs(r - 1) for r in ratios):.1%},"
            f" loss {min(rows)[1] / min(real) - 1:.1%}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
