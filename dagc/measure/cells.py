"""Cells (settings at sizes, whole programs) measured in a process that is started again when one of them ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from dagc.base.errors import RunFailed
from dagc.base.files import scratch_directory
from dagc.base.resources import IMPORTED_FROM
from dagc.base.signals import named, of_code
from dagc.measure.launch import Started, start
from dagc.measure.watchdog import ended

# ---- the process and its cells ----


MOST_DEATHS_BEFORE_A_CELL = 2


@dataclass(frozen=True, slots=True)
class CellDone:
    """The times of a cell in seconds, or why there are none. Both empty: a check that went well.

    `took`: seconds from its begin to its end, all that is done beside timing included; 0 where the process died.
    """

    number: int
    times: tuple[float, ...] = ()
    failure: str = ""
    took: float = 0.0


def say(**event: Any) -> None:
    """What the process says."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def begin(cell: int) -> float:
    """The process begins a cell; returns when, for `end`."""
    say(begin=cell)
    return time.monotonic()


def end(cell: int, began: float, **result: Any) -> None:
    """The process ends a cell: `times=[...]` or `failure="..."`."""
    say(cell=cell, took=round(time.monotonic() - began, 6), **result)


def run_cells(
    job_without: Callable[[set[int]], dict[str, Any] | None],
    worker: str,
    patience: float,
    profiler: Sequence[str] = (),
    ranks: int = 1,
) -> Iterator[CellDone]:
    """Every cell's result as it comes.

    `job_without`: the job, less the cells that are done; None where nothing is left. `worker`: the module that takes
    its path. `profiler`: a command that it is run by. With several `ranks` it is started on so many by the MPI at hand,
    and its rank 0 speaks for all. A cell at which the process dies is a failure, and so is one that
    takes more than `patience` seconds. Raises RunFailed where it dies outside of any cell, twice at the same place.
    """
    done: set[int] = set()
    deaths = 0
    while (text := job_without(done)) is not None:
        begun: int | None = None
        finished = False
        with scratch_directory("dagc-tune-") as folder:
            job, errors = folder / "job.json", folder / "errors"
            job.write_text(json.dumps(text))
            code = 0
            for event in _events([*profiler, sys.executable, "-m", worker, str(job)], errors, patience, ranks):
                if "begin" in event:
                    begun = event["begin"]
                elif "cell" in event:
                    deaths, begun = 0, None
                    done.add(event["cell"])
                    yield CellDone(
                        event["cell"], tuple(event.get("times", ())), event.get("failure", ""), event.get("took", 0.0)
                    )
                elif "done" in event:
                    finished = True  # what runs the process (a profiler) may still have to write
                elif "code" in event:
                    code = event["code"]
            if finished:
                return
            reason = _reason(errors, code)
        if begun is not None:
            done.add(begun)
            yield CellDone(begun, failure=f"run failed: {reason.removeprefix('dagc: ')}")
        else:
            deaths += 1
            if deaths >= MOST_DEATHS_BEFORE_A_CELL:
                raise RunFailed(f"the program does not run: {reason}")


def _events(command: Sequence[str], errors: Path, patience: float, ranks: int) -> Iterator[dict[str, Any]]:
    """The worker's events, until it ends, and the code with which it does. It is ended when it says nothing for
    `patience` seconds."""
    import threading

    read, write = os.pipe()
    with errors.open("w") as log, os.fdopen(read) as said:
        with os.fdopen(write, "w") as end:
            worker = _begun(command, end, log, ranks)
        hung = threading.Timer(patience, lambda: None)
        try:
            while True:
                hung = threading.Timer(patience, _end_hung, (worker, log, patience))
                hung.daemon = True
                hung.start()
                line = said.readline()
                hung.cancel()
                if not line:
                    break
                if line.startswith("{"):
                    yield json.loads(line)
            yield {"code": worker.wait(patience) or 0}
        finally:
            hung.cancel()
            if worker.wait(0) is None:
                worker.end()


def _begun(command: Sequence[str], stdout: IO[str], stderr: IO[str], ranks: int) -> Started:
    """The worker, alone or on several ranks. Raises MissingTool and RunFailed where it cannot be started."""
    path = {"PYTHONPATH": os.pathsep.join(filter(None, (IMPORTED_FROM, os.environ.get("PYTHONPATH", ""))))}
    if ranks > 1:
        return start(command, ranks, stdout=stdout, stderr=stderr, env=path)
    alone = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True, env={**os.environ, **path},
        start_new_session=True,
    )  # fmt: skip
    return Started(alone, "")


def _end_hung(worker: Started, log: IO[str], patience: float) -> None:
    log.write(f"hang: nothing for {patience:g} s\n")
    log.flush()
    worker.end()


def _reason(errors: Path, code: int) -> str:
    """Why the process ended: what dagc said, the signal, or the last line of what it wrote."""
    lines = [line.strip() for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    signalled = ended(lines)
    if signalled:
        return signalled
    said = [line for line in lines if line.startswith(("dagc:", "hang:"))]
    if said:
        return said[-1]
    number = of_code(code)
    if number is not None:
        return f"ended by {named(number)}"
    return lines[-1] if lines else f"ended with exit code {code}, without a word"


# ---- launches of single ops ----


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a cell is timed; see `Runner.time`. Seconds and bytes."""

    relative: float = 0.01
    seconds: float = 0.25
    fewest: int = 5
    most: int = 30
    flush: int = 0


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who runs the program: so many ranks together. `device_pointers`: the user vouches that this MPI takes them."""

    number: int = 1
    device_pointers: bool = False


ALONE = Ranks()


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """`number` is the caller's; `settings` are (decision, value)."""

    number: int
    settings: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """Cells of the op at this place of the graph, in the order in which they are to run."""

    op: int
    cells: tuple[PlannedCell, ...]


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """One size. `library`: the program, with launch parameters open; `data`: what `dagc setup` wrote. `check` runs the
    whole program, `repeats` times, against the reference; `time` times single launches after `iterations` runs of it.
    """

    library: Path
    data: Path
    rows: tuple[tuple[int, int, int], ...]
    ops: tuple[int, ...]
    repeats: int
    iterations: int
    check: tuple[PlannedUnit, ...] = ()
    time: tuple[PlannedUnit, ...] = ()


def measure(
    points: Sequence[PlannedPoint],
    tunables: Sequence[tuple[str, int]],
    timing: Timing,
    rtol: float,
    patience: float = 120.0,
    profiler: Sequence[str] = (),
    ranks: Ranks = ALONE,
) -> Iterator[CellDone]:
    """Every cell's result as it comes. `tunables` are all open ones with their defaults.

    A cell at which the process dies (a fault on the GPU) is a failure, and so is one that takes more than `patience`
    seconds. `profiler`: a command that the worker is run by, for cells that it counts and does not time. The time of a
    cell is that of the slowest of the `ranks`, and it fails where it fails on any. Raises RunFailed where the worker
    dies outside of any cell, twice at the same place.
    """

    def job(done: set[int]) -> dict[str, Any] | None:
        left = [p for p in (_without(point, done) for point in points) if p.check or p.time]
        if not left:
            return None
        job = _job(left, tunables, timing, rtol)
        return {**job, "count": bool(profiler), "device_pointers": ranks.device_pointers}

    yield from run_cells(job, "dagc.measure.tune_worker", patience, profiler, ranks.number)


def _without(point: PlannedPoint, done: set[int]) -> PlannedPoint:
    from dataclasses import replace

    def rest(units: tuple[PlannedUnit, ...]) -> tuple[PlannedUnit, ...]:
        kept = (PlannedUnit(u.op, tuple(c for c in u.cells if c.number not in done)) for u in units)
        return tuple(u for u in kept if u.cells)

    return replace(point, check=rest(point.check), time=rest(point.time))


def _job(
    points: Sequence[PlannedPoint], tunables: Sequence[tuple[str, int]], timing: Timing, rtol: float
) -> dict[str, Any]:
    def units(all_: tuple[PlannedUnit, ...]) -> list[dict[str, Any]]:
        return [{"op": u.op, "cells": [[c.number, c.settings] for c in u.cells]} for u in all_]

    return {
        "rtol": rtol, "tunables": list(tunables), "timing": asdict(timing),
        "points": [
            {
                "number": i, "library": str(p.library), "data": str(p.data), "rows": p.rows, "ops": p.ops,
                "repeats": p.repeats, "iterations": p.iterations, "check": units(p.check), "time": units(p.time),
            }
            for i, p in enumerate(points)
        ],
    }  # fmt: skip


# ---- whole programs ----


@dataclass(frozen=True, slots=True)
class ProgramCell:
    """A runner library and the traversal that it is to run. `number` is the caller's."""

    number: int
    library: Path
    rows: tuple[tuple[int, int, int], ...]


def measure_programs(
    cells: Sequence[ProgramCell], data: Path, timing: Timing, patience: float = 120.0
) -> Iterator[CellDone]:
    """Each cell's result as it comes, in the order given: checked against the reference once, then timed.

    `data`: what `dagc setup` wrote for one rank. A cell at which the process ends is a failure, and so is one that
    takes more than `patience` seconds. Raises RunFailed where the worker ends before any cell, twice.
    """

    def job(done: set[int]) -> dict[str, object] | None:
        left = [cell for cell in cells if cell.number not in done]
        return _program_job(left, data, timing) if left else None

    yield from run_cells(job, "dagc.measure.plan_worker", patience)


def _program_job(cells: Sequence[ProgramCell], data: Path, timing: Timing) -> dict[str, object]:
    return {
        "data": str(data),
        "timing": {
            "relative": timing.relative, "seconds": timing.seconds, "fewest": timing.fewest, "most": timing.most,
        },
        "cells": [{"number": c.number, "library": str(c.library), "rows": c.rows} for c in cells],
    }  # fmt: skip
