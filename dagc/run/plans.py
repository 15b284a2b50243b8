"""Runs `dagc.run.plan_worker` over whole programs at one size, and goes on behind one that ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagc.run.cells import CellDone, run_cells
from dagc.run.tuning import Timing


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
        return _job(left, data, timing) if left else None

    yield from run_cells(job, "dagc.run.plan_worker", patience)


def _job(cells: Sequence[ProgramCell], data: Path, timing: Timing) -> dict[str, object]:
    return {
        "data": str(data),
        "timing": {
            "relative": timing.relative, "seconds": timing.seconds, "fewest": timing.fewest, "most": timing.most,
        },
        "cells": [{"number": c.number, "library": str(c.library), "rows": c.rows} for c in cells],
    }  # fmt: skip
