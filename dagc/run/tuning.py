"""Runs `dagc.run.tune_worker` over many cells, and goes on behind a cell that ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dagc.run.cells import CellDone, run_cells


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

    yield from run_cells(job, "dagc.run.tune_worker", patience, profiler, ranks.number)


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
