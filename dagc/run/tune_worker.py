"""Times launches of single ops: `python -m dagc.run.tune_worker JOB`, one JSON line on standard output for each event.

A process of its own, since a configuration that faults takes the CUDA context with it: `dagc.run.tuning` starts
another one behind the cell that failed.

    JOB: {library, rtol, tunables, timing: {relative, seconds, fewest, most, flush}, count, points: [...]}
    a point: {number, data, rows, iterations, check: [...], time: [...]}
      check: {op, cells: [[number, settings], ...]}    the whole program under these settings, against the reference
      time:  {op, base, cells: [...]}                  ops in the order of the program
    settings: [[decision, value], ...]
    count: each cell is one launch that a profiler sees, and is not timed (dagc.run.profile)

    events: {"point": n}, and those of `dagc.run.cells`
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from dagc.run.cells import begin, end, say


def main() -> int:
    from dagc.run.runner import Runner, world

    job = json.loads(Path(sys.argv[1]).read_text())
    comm = world()
    for point in job["points"]:
        say(point=point["number"])
        with Runner(Path(job["library"]), Path(point["data"]), comm) as runner:
            _point(runner, job, point)
    say(done=True)
    return 0


def _point(runner: Any, job: dict[str, Any], point: dict[str, Any]) -> None:
    defaults = [(name, value) for name, value in job["tunables"]]

    def use(settings: list[list[Any]]) -> None:
        for name, value in (*defaults, *settings):
            runner.set(name, value)

    use([])
    table = runner.prepare(point["rows"])
    for unit in point["check"]:
        for number, settings in unit["cells"]:
            began = begin(number)
            use(settings)
            runner.reset()
            runner.execute(table, point["repeats"])
            end(number, began, failure=_line(runner.verify()))
    if not point["time"]:
        return
    use([])
    runner.reset()
    runner.execute(table, point["iterations"])
    timing, wanted = job["timing"], {unit["op"]: unit for unit in point["time"]}
    for op in point["ops"]:  # the program's own order: each op finds the data that it would find
        if op in wanted:
            use([])
            wrong = runner.keep(op)
            for number, settings in wanted[op]["cells"]:
                began = begin(number)
                use(settings)
                failure = wrong or (_counted(runner, op) if job["count"] else runner.again(op, job["rtol"]))
                if failure:
                    end(number, began, failure=_line(failure))
                elif job["count"]:
                    end(number, began, times=[])
                else:
                    end(number, began, times=[float(t) for t in runner.time(op, **timing)])
            use([])
            runner.again(op, job["rtol"])  # as the program leaves it, for the ops that follow
        else:
            runner.issue(op)


def _counted(runner: Any, op: int) -> str:
    """One launch that a profiler sees, from the data that the op finds in its program. "" or why it does not run."""
    runner.restore(op)
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuProfilerStart()
    try:
        return str(runner.issue(op))
    finally:
        driver.cuProfilerStop()


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
