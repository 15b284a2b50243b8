"""Runs `dagc.run.plan_worker` over whole programs at one size, and goes on behind one that ends it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagc.errors import RunFailed
from dagc.run.tuning import MOST_DEATHS_BEFORE_A_CELL, CellDone, Timing, _events, _last_line


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
    left, deaths = list(cells), 0
    while left:
        begun, ended = None, False
        done: set[int] = set()
        with tempfile.TemporaryDirectory(prefix="dagc-tune-") as folder:
            job, errors = Path(folder) / "job.json", Path(folder) / "errors"
            job.write_text(json.dumps(_job(left, data, timing)))
            for event in _events([sys.executable, "-m", "dagc.run.plan_worker", str(job)], errors, patience):
                if "begin" in event:
                    begun = event["begin"]
                elif "cell" in event:
                    deaths, begun = 0, None
                    done.add(event["cell"])
                    yield CellDone(event["cell"], tuple(event.get("times", ())), event.get("failure", ""))
                elif "done" in event:
                    ended = True
            if ended:
                return
            reason = _last_line(errors)
        if begun is not None:
            done.add(begun)
            yield CellDone(begun, failure=f"run failed: {reason.removeprefix('dagc: ')}")
        else:
            deaths += 1
            if deaths >= MOST_DEATHS_BEFORE_A_CELL:
                raise RunFailed(f"the program does not run: {reason}")
        left = [cell for cell in left if cell.number not in done]


def _job(cells: Sequence[ProgramCell], data: Path, timing: Timing) -> dict[str, object]:
    return {
        "data": str(data),
        "timing": {
            "relative": timing.relative, "seconds": timing.seconds, "fewest": timing.fewest, "most": timing.most,
        },
        "cells": [{"number": c.number, "library": str(c.library), "rows": c.rows} for c in cells],
    }  # fmt: skip
