"""Cells measured by a process of their own, which is started again behind a cell that ends it.

The process is told by a JSON file what to do. It says on standard output, one JSON line each, what it begins and ends:

    {"begin": cell} {"cell": cell, "took": s, "times": [...]} {"cell": cell, "took": s, "failure": "..."} {"done": true}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import dagc
from dagc.errors import RunFailed
from dagc.files import scratch_directory
from dagc.run.launch import Started, start
from dagc.run.watchdog import ended
from dagc.signals import named, of_code

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
    package = str(Path(dagc.__file__).parents[1])
    path = {"PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))}
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
