"""Single launches of each op of a program under all its settings and forms, twice: a line of JSON for each.

Usage: python alone.py OUT SECONDS PROGRAM...     in a checkout, on a GPU; programs of benchmarks/gpu/joint.py
"""

import json
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd()))
from benchmarks.gpu.joint import ROOT, SUBJECTS
from dagc.measure.service import WorkerLink
from dagc.report.display import SILENT
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.study import launch
from dagc.study.domain import checked, ready
from dagc.study.files import SearchFile


def timed(name: str, out: Path, seconds: float, stack: ExitStack) -> int:
    """The number of timings of this program, in a random order of the settings of each op."""
    options = ExploreOptions(ranks=1, transport="all", seconds=0.005, launch="search", quiet=True, trace=False)
    link, file = stack.enter_context(WorkerLink(1)), SearchFile(stack)
    text = read(ROOT / "samples" / SUBJECTS[name].path, SUBJECTS[name].defines, True)
    made = ready(text, Path("/tmp") / f"alone-{name}.db", options, SILENT, stack, link, file)
    file.hosts(lambda: made.machine.hosts(made.request.chosen.target.value, made.request.chosen.arch))
    records, _ = file.open(text.path, made.program, made.request.options, made.fixed, made.domain.folded)
    checked(made, records)
    timing = launch.Timing(seconds=0.002, flush=launch.DEFAULT_FLUSH, watchdog=options.watchdog)
    sites: dict[Any, Any] = {}
    for index, space in enumerate(made.machine.domain.spaces):
        for site in space.sites:
            key, op = launch._timed_as(space, site)
            if key not in sites:
                program = space.graph.program
                repeats = launch.repeats_of(program, launch.read_scalars(program, made.arrays.data, 1))
                tolerance = launch.tolerance_between(program, op)
                order = random.Random(1).sample(range(len(site.choices)), len(site.choices))
                sites[key] = site, made.machine.alone(index, site, repeats, timing, tolerance), order
    turns = [(turn, at) for turn in range(2) for at in range(max(len(order) for *_, order in sites.values()))]
    end, number = time.monotonic() + seconds, 0
    for turn, at in turns:
        for site, measure, order in sites.values():
            if at < len(order) and time.monotonic() < end:
                choice = site.choices[order[at]]
                sample, number = measure(choice), number + 1
                line = {"op": site.name, "choice": choice.text, "prior": site.prior[order[at]] if site.prior else None,
                        "us": None if sample.failure else 1e6 * sample.value, "round": turn}  # fmt: skip
                with out.open("a") as file_out:
                    file_out.write(json.dumps(line) + "\n")
    return number


if __name__ == "__main__":
    for program in sys.argv[3:]:
        with ExitStack() as opened:
            print(program, timed(program, Path(sys.argv[1]) / f"{program}.jsonl", float(sys.argv[2]), opened))
