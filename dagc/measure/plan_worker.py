"""Checks and times whole programs: `python -m dagc.measure.plan_worker JOB`, one JSON line for each event.

A process of its own, since a program that does not fit its data, or faults, ends it: `dagc.measure.cells` starts
another one behind it.

    JOB: {data, timing: {relative, seconds, fewest, most}, cells: [{number, library, rows}, ...]}

    events: those of `dagc.measure.cells`
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from dagc.base.statistics import interval
from dagc.measure.cells import begin, end, say

BATCH = 0.002  # seconds of one measurement: long beside what calling the program costs


def main() -> int:
    from dagc.measure.runner import Runner, world  # loads numpy

    job = json.loads(Path(sys.argv[1]).read_text())
    comm = world()
    for cell in job["cells"]:
        began = begin(cell["number"])
        with Runner(Path(cell["library"]), Path(job["data"]), comm) as runner:
            table = runner.prepare(cell["rows"])
            wrong = runner.audit(table) or runner.check(table) or runner.check(table, poison=1)
            if wrong:
                end(cell["number"], began, failure=" ".join(wrong.split()))
            else:
                end(cell["number"], began, times=_times(runner, table, **job["timing"]))
    say(done=True)
    return 0


def _times(runner: Any, table: Any, *, relative: float, seconds: float, fewest: int, most: int) -> list[float]:
    """Seconds of one run of the program, measurement by measurement; at least `fewest` of them, whatever they take."""
    end = time.monotonic() + seconds
    times: list[float] = []
    each = 0.0
    while len(times) < most:
        each, _ = runner.measure(table, BATCH, each)
        times.append(each)
        if len(times) >= fewest:
            low, high = interval(times)
            middle = sorted(times)[len(times) // 2]
            if time.monotonic() > end or (high - low) / 2 <= relative * middle:
                break
    return times


if __name__ == "__main__":
    sys.exit(main())
