"""Runs `dagc.run.tune_worker` over many cells, and goes on behind a cell that ends it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dagc.errors import RunFailed

MOST_DEATHS_BEFORE_A_CELL = 2
_WORKER = (sys.executable, "-m", "dagc.run.tune_worker")


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a cell is timed; see `Runner.time`. Seconds and bytes."""

    relative: float = 0.01
    seconds: float = 0.25
    fewest: int = 5
    most: int = 30
    flush: int = 0


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
    """One size. `data`: what `dagc setup` wrote. `check` runs the whole program, `repeats` times, against the
    reference; `time` times single launches after `iterations` runs of the program."""

    data: Path
    rows: tuple[tuple[int, int, int], ...]
    ops: tuple[int, ...]
    repeats: int
    iterations: int
    check: tuple[PlannedUnit, ...] = ()
    time: tuple[PlannedUnit, ...] = ()


@dataclass(frozen=True, slots=True)
class CellDone:
    """The times of a cell in seconds, or why there are none. Both empty: a check that went well."""

    number: int
    times: tuple[float, ...] = ()
    failure: str = ""


def measure(
    library: Path,
    points: Sequence[PlannedPoint],
    tunables: Sequence[tuple[str, int]],
    timing: Timing,
    rtol: float,
    patience: float = 120.0,
    profiler: Sequence[str] = (),
) -> Iterator[CellDone]:
    """Every cell's result as it comes. `tunables` are all open ones with their defaults.

    A cell at which the process dies (a fault on the GPU) is a failure, and so is one that takes more than `patience`
    seconds. `profiler`: a command that the worker is run by, for cells that it counts and does not time. Raises
    RunFailed where the worker dies outside of any cell, twice at the same place.
    """
    left, deaths = list(points), 0
    while left:
        done: set[int] = set()
        begun: int | None = None
        with tempfile.TemporaryDirectory(prefix="dagc-tune-") as folder:
            job = Path(folder) / "job.json"
            job.write_text(json.dumps({**_job(library, left, tunables, timing, rtol), "count": bool(profiler)}))
            errors = Path(folder) / "errors"
            finished = False
            for event in _events([*profiler, *_WORKER, str(job)], errors, patience):
                if "begin" in event:
                    begun = event["begin"]
                elif "cell" in event:
                    deaths, begun = 0, None
                    done.add(event["cell"])
                    yield CellDone(event["cell"], tuple(event.get("times", ())), event.get("failure", ""))
                elif "done" in event:
                    finished = True
            if finished:
                return
            reason = _last_line(errors)
        if begun is not None:
            done.add(begun)
            yield CellDone(begun, failure=f"run failed: {reason}")
        else:
            deaths += 1
            if deaths >= MOST_DEATHS_BEFORE_A_CELL:
                raise RunFailed(f"the program does not run: {reason}")
        left = [p for p in (_without(point, done) for point in left) if p.check or p.time]


def _without(point: PlannedPoint, done: set[int]) -> PlannedPoint:
    from dataclasses import replace

    def rest(units: tuple[PlannedUnit, ...]) -> tuple[PlannedUnit, ...]:
        kept = (PlannedUnit(u.op, tuple(c for c in u.cells if c.number not in done)) for u in units)
        return tuple(u for u in kept if u.cells)

    return replace(point, check=rest(point.check), time=rest(point.time))


def _job(
    library: Path, points: Sequence[PlannedPoint], tunables: Sequence[tuple[str, int]], timing: Timing, rtol: float
) -> dict[str, Any]:
    def units(all_: tuple[PlannedUnit, ...]) -> list[dict[str, Any]]:
        return [{"op": u.op, "cells": [[c.number, c.settings] for c in u.cells]} for u in all_]

    return {
        "library": str(library), "rtol": rtol, "tunables": list(tunables), "timing": asdict(timing),
        "points": [
            {
                "number": i, "data": str(p.data), "rows": p.rows, "ops": p.ops, "repeats": p.repeats,
                "iterations": p.iterations, "check": units(p.check), "time": units(p.time),
            }
            for i, p in enumerate(points)
        ],
    }  # fmt: skip


def _events(command: Sequence[str], errors: Path, patience: float) -> Iterator[dict[str, Any]]:
    """The worker's events, until it ends. It is killed when it says nothing for `patience` seconds."""
    import threading

    with errors.open("w") as log:
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        hung = threading.Timer(patience, lambda: None)
        try:
            assert worker.stdout is not None
            while True:
                hung = threading.Timer(patience, _kill, (worker, log, patience))
                hung.daemon = True
                hung.start()
                line = worker.stdout.readline()
                hung.cancel()
                if not line:
                    break
                if line.startswith("{"):
                    yield json.loads(line)
            worker.wait()
        finally:
            hung.cancel()
            if worker.poll() is None:
                worker.kill()
                worker.wait()
            if worker.stdout is not None:
                worker.stdout.close()


def _kill(worker: subprocess.Popen[str], log: Any, patience: float) -> None:
    log.write(f"hang: nothing for {patience:g} s\n")
    log.flush()
    worker.kill()


def _last_line(errors: Path) -> str:
    lines = [line.strip() for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(("dagc:", "hang:"))]
    return (said or lines or ["the process ended without a word"])[-1]
