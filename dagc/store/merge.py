"""Results files of one program put together: `dagc merge`."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from dagc.base.errors import UsageError
from dagc.store.read import load
from dagc.store.results import ImplementationId
from dagc.store.schema import (
    connect,
    connect_as,
    create,
    damaged,
    elsewhere,
    find_implementation,
    insert_implementation,
    read_program,
    read_runs,
)


def merge(paths: Sequence[str | Path], out: str | Path, *, other_machine: bool = False) -> None:
    """Write the runs of all `paths`, in this order, into the new file `out`.

    Implementations that are equal become one. One that was measured in any file has no failure (an MPI that takes no
    device pointers fails what another measures). Times stay as measured, and drift is divided out within each run.
    Raises UsageError where the programs, the ranks or (unless `other_machine`) the machines differ, where a file is no
    results file, where two hold the same run, and where `out` exists or cannot be written.
    """
    out, files = Path(out), [Path(path) for path in paths]
    if out.exists():
        raise UsageError(f"{out} exists", "choose another name with -o")
    for path in files:
        load(path)  # all of it can be read
    _check_equal(files, other_machine)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".dagc-merge-", dir=out.parent) as folder:
            scratch = Path(folder) / out.name  # in a folder of this process: no other can have put a link there
            _merge(files, scratch)
            scratch.replace(out)
    except sqlite3.DatabaseError as error:
        raise damaged(out, error) from None
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror}", "choose a place that can be written to") from None


def _merge(files: Sequence[Path], scratch: Path) -> None:
    with closing(connect_as(scratch, "rwc")) as target:
        target.execute("PRAGMA synchronous = OFF")  # the file appears under its name only when it is whole
        for number, path in enumerate(files):
            with closing(connect(path, write=False)) as source:
                if number == 0:
                    create(target, read_program(source))
                _copy(source, target, path)


def _check_equal(files: Sequence[Path], other_machine: bool) -> None:
    if len(files) < 2:
        raise UsageError("one file cannot be merged", "give two results files or more")
    first = None
    where: dict[tuple[object, ...], int] = {}  # the file of each run, by its place
    for place, path in enumerate(files):
        with closing(connect(path, write=False)) as source:
            program, runs = read_program(source), [run for _, run in read_runs(source)]
        for run in runs:
            # A noise floor that was measured is as good as a serial number.
            key = (run.started, run.strategy, run.noise if not math.isnan(run.noise) else path.resolve(), run.seed)
            if where.setdefault(key, place) != place:
                raise UsageError(
                    f"{path} and {files[where[key]]} hold the same run, begun {run.started}",
                    "its measurements would count twice; leave one of them out",
                )
        for program_and_run in ((program, run) for run in runs):
            first = first or program_and_run
            if program_and_run[0].hash != first[0].hash:
                raise UsageError(
                    f"{path} is of another program ({program.name} {program.hash}) than {files[0]}"
                    f" ({first[0].name} {first[0].hash})",
                    "merge results of one program with the same parameters",
                )
            if program_and_run[1].ranks != first[1].ranks:
                raise UsageError(
                    f"{path} was measured on {program_and_run[1].ranks} ranks, {files[0]} on {first[1].ranks}",
                    "merge results of the same number of ranks",
                )
            if program_and_run[1].machine.key != first[1].machine.key and not other_machine:
                raise UsageError(
                    f"{path} was measured on another machine ({program_and_run[1].machine.key}) than {files[0]}"
                    f" ({first[1].machine.key})",
                    "give --other-machine to merge them all the same",
                )


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, path: Path) -> None:
    """All runs of a file. Its IDs of runs and measurements are moved behind those that are there."""
    try:
        source.execute("BEGIN")
        target.execute("BEGIN")
        runs, measurements, drifts = (_last(target, table) for table in ("run", "measurement", "drift"))
        known = _copy_implementations(source, target)
        for key, *rest in source.execute("SELECT * FROM run ORDER BY id"):
            _insert(target, "run", (key + runs, *rest))
        for key, run, implementation, *rest in source.execute("SELECT * FROM measurement ORDER BY id"):
            _insert(target, "measurement", (key + measurements, run + runs, known[implementation], *rest))
        for key, run, after, seconds in source.execute("SELECT * FROM drift ORDER BY id"):
            _insert(target, "drift", (key + drifts, run + runs, after + measurements, seconds))
        for implementation, *rest in source.execute("SELECT * FROM trace"):
            _insert(target, "trace", (known[implementation], *rest))
        target.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        if elsewhere(error):  # where it is written to
            raise
        raise damaged(path, error) from None


def _copy_implementations(source: sqlite3.Connection, target: sqlite3.Connection) -> dict[int, ImplementationId]:
    """ID in the source -> ID in the target."""
    known = {}
    rows = source.execute(
        "SELECT i.id, c.decisions, i.traversal, i.failure, "
        f" {_GOOD} FROM implementation i JOIN configuration c ON c.id = i.configuration ORDER BY i.id"
    )
    for key, decisions, traversal, failure, good in rows:
        insert_implementation(target, decisions, traversal)
        known[key] = here = find_implementation(target, decisions, traversal)
        if good:
            target.execute("UPDATE implementation SET failure = '' WHERE id = ?", (here,))
        else:
            target.execute(
                f"UPDATE implementation AS i SET failure = ? WHERE id = ? AND failure = '' AND NOT {_GOOD}",
                (failure, here),
            )
    return known


_GOOD = "(i.failure = '' AND EXISTS (SELECT 1 FROM measurement m WHERE m.implementation = i.id))"


def _last(target: sqlite3.Connection, table: str) -> int:
    (last,) = target.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
    return int(last)


def _insert(target: sqlite3.Connection, table: str, row: Sequence[object]) -> None:
    """A trace that is there already is kept."""
    places = ", ".join("?" * len(row))
    target.execute(f"INSERT {'OR IGNORE ' if table == 'trace' else ''}INTO {table} VALUES ({places})", tuple(row))
