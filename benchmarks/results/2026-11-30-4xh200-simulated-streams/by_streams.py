"""Times that SimGrid predicts against recorded ones, for implementations with two ops on one stream, and for others.

PYTHONPATH=. python by_streams.py FILE.db RANKS LATENCY BANDWIDTH SCRATCH OP OP
"""

import json
import shutil
import sqlite3
import sys
from pathlib import Path
from statistics import median

from scipy.stats import spearmanr

from benchmarks.simulated import PLATFORM
from dagc.base.signals import ENDLESS
from dagc.space.loops import unroll
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.study.domain import replayed
from dagc.study.outcome import candidate_of
from dagc.study.simulated import simulated


def main(file: Path, ranks: int, latency: float, bandwidth: float, scratch: Path, ops: tuple[str, str]) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    copy, platform, folder = scratch / file.name, scratch / "here.xml", scratch / "program"
    shutil.copy(file, copy)
    recorded = sqlite3.connect(copy)
    facts = dict(recorded.execute("select * from meta"))
    path, text = recorded.execute("select * from source").fetchone()[:2]
    shutil.copytree(Path("samples") / Path(path).parent.name, folder)
    (folder / Path(path).name).write_text(text)
    platform.write_text(PLATFORM.format(cores=64, bandwidth=bandwidth, latency=latency))
    options = ExploreOptions(replay=str(copy), simulate=str(platform), ranks=ranks, strategy="random", quiet=True)
    program = read(folder / Path(path).name, json.loads(facts["params"]))
    request, lowered, domain, results, _ = replayed(program, options, ENDLESS)
    machine = simulated(request, lowered, domain, results, scratch / "simulated")
    found: dict[bool, list[tuple[float, float, float, float]]] = {True: [], False: []}
    for one in results.measured():
        candidate = candidate_of(domain, one)
        if candidate is None:
            continue
        graph, traversal = unroll(domain.spaces[candidate.space].graph, candidate.traversal)
        streams = {graph.ops[e.op].name: e.stream for e in traversal.entries if e.op is not None}
        times = one.times(results.reference)
        row = (machine.measure(candidate).value, one.value(results.reference), median(times[::2]), median(times[1::2]))
        found[streams[ops[0]] == streams[ops[1]]].append(row)
    for label, rows in (("one stream", found[True]), ("two", found[False]), ("both", found[True] + found[False])):
        predicted, real, *halves = zip(*rows, strict=True)
        error = median(abs(p / r - 1) for p, r in zip(predicted, real, strict=True))
        print(
            f"{ops[0]}, {ops[1]} on {label}: {len(rows)} implementations, measured {median(real) * 1e6:.1f} us,"
            f" predicted {median(predicted) * 1e6:.1f}, rank correlation {spearmanr(predicted, real).statistic:.2f} (of"
            f" two halves {spearmanr(*halves).statistic:.2f}), median error {error:.1%}, loss"
            f" {min(rows)[1] / min(real) - 1:.1%}"
        )


if __name__ == "__main__":
    words = sys.argv[1:]
    main(Path(words[0]), int(words[1]), float(words[2]), float(words[3]), Path(words[4]), (words[5], words[6]))
