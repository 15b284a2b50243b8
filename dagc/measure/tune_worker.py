"""Times launches of single ops: `python -m dagc.measure.tune_worker JOB`, a JSON line on stdout for each event.

A process of its own, since a configuration that faults takes the CUDA context with it: `dagc.measure.cells` starts
another one behind the cell that failed. On several ranks all do the same cells, each with its own arrays, and rank 0
speaks.

    JOB: {rtol, tunables, timing: {relative, seconds, fewest, most, flush}, count, device_pointers,
          points: [...]}
    a point: {number, library, data, rows, iterations, check: [...], time: [...]}
      check: {op, cells: [[number, settings], ...]}    the whole program under these settings, against the reference
      time:  {op, base, cells: [...]}                  ops in the order of the program
    settings: [[decision, value], ...]
    count: each cell is one launch that a profiler sees, and is not timed (dagc.measure.profile)

    events: {"point": n}, and those of `dagc.measure.cells`
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dagc.measure.cells import begin, end, say


def main() -> int:
    from dagc.measure.runner import Runner, world  # loads numpy

    job = json.loads(Path(sys.argv[1]).read_text())
    comm = world()
    cells = _Cells(comm)
    for point in job["points"]:
        cells.say(point=point["number"])
        with Runner(
            Path(point["library"]), Path(point["data"]), comm, mpi_takes_device_pointers=job["device_pointers"]
        ) as runner:
            _point(runner, cells, job, point)
    cells.say(done=True)
    return 0


class _Cells:
    """What all ranks say together. No rank begins a cell before all have ended the one before it, so that a rank that
    dies does so in the cell that rank 0 has begun."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._speaks = comm.Get_rank() == 0

    def say(self, **event: Any) -> None:
        if self._speaks:
            say(**event)

    def begin(self, number: int) -> float:
        return begin(number) if self._speaks else 0.0

    def end(self, number: int, began: float, failure: str = "", times: Sequence[float] = ()) -> None:
        """The failure of the first rank that has one, else the times of the slowest rank."""
        every: list[tuple[str, list[float]]] = self._comm.allgather((_line(failure), list(times)))
        if not self._speaks:
            return
        failed = [(rank, text) for rank, (text, _) in enumerate(every) if text]
        if failed:
            rank, text = failed[0]
            alike = len({text for text, _ in every}) == 1  # also where a check is of all ranks together
            end(number, began, failure=text if alike else f"rank {rank}: {text}")
        else:
            end(number, began, times=max((times_of_op for _, times_of_op in every), key=_median))


def _median(times: list[float]) -> float:
    return median(times) if times else 0.0


def _point(runner: Any, cells: _Cells, job: dict[str, Any], point: dict[str, Any]) -> None:
    defaults = [(name, value) for name, value in job["tunables"]]

    def use(settings: list[list[Any]]) -> None:
        for name, value in (*defaults, *settings):
            runner.set(name, value)

    use([])
    table = runner.prepare(point["rows"])
    for unit in point["check"]:
        for number, settings in unit["cells"]:
            began = cells.begin(number)
            use(settings)
            runs = point["repeats"]
            wrong = runner.check(table, 0, runs) or runner.check(table, 1, runs)
            cells.end(number, began, failure=wrong and (runner.audit(table) or wrong))
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
                began = cells.begin(number)
                use(settings)
                failure = wrong or (_counted(runner, op) if job["count"] else runner.again(op, job["rtol"]))
                times = () if failure or job["count"] else runner.time(op, **timing)
                cells.end(number, began, failure, [float(t) for t in times])
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
