"""Merging results files of one program: `dagc merge`."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, not_written
from dagc.store.read import read_program, results_in, snapshot
from dagc.store.results import ProgramRecord, Results
from dagc.store.schema import candidate_id, connect, connect_as, create, damaged, elsewhere, metric_id

if TYPE_CHECKING:
    from dagc.store.tuned import Tuned


def merge(
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    other_machine: bool = False,
    join: Callable[[Path, Sequence[Tuned]], None] | None = None,
) -> None:
    """Write the runs of all `paths`, in this order, into the new file `out`.

    Equal implementations become one. One that was measured in any file has no failure (an MPI without device pointers
    fails where another measures). Times stay as measured, and drift is divided out within each run. `join` completes
    a file of tuned ones, which has all samples (None: it is continued by `dagc tune --resume`). Raises UsageError if
    the programs, the ranks or (unless `other_machine`) the machines differ, if a file is not a results file, if two
    files contain the same run, and if `out` exists or cannot be written.
    """
    out, files = Path(out), [Path(path) for path in paths]
    if out.exists():
        raise UsageError(f"{out} exists", "choose another name with -o")
    files_read = [_read(path) for path in files]
    tuned = _tuned(files)
    _check_equal(files, files_read, other_machine, bool(tuned))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".dagc-merge-", dir=out.parent) as directory:
            scratch = Path(directory) / out.name  # in a directory of its own: no other process can place a link there
            _merge(files, scratch)
            if tuned and join is not None:
                join(scratch, tuned)
            scratch.replace(out)
    except sqlite3.DatabaseError as error:
        raise damaged(out, error) from None
    except OSError as error:
        raise not_written(out, error) from None


def _read(path: Path) -> Results:
    with snapshot(path) as connection:
        return results_in(connection)


def _tuned(files: Sequence[Path]) -> list[Tuned]:
    """The contents of tuned files; empty for files of orders. Raises UsageError for a mixture."""
    of_settings = []
    for path in files:
        with snapshot(path) as connection:
            query = "SELECT 1 FROM candidate WHERE domain != '' UNION SELECT 1 FROM chooser"
            of_settings.append(connection.execute(query).fetchone() is not None)
    if not any(of_settings):
        return []
    if not all(of_settings):
        orders = files[of_settings.index(False)]
        raise UsageError(
            f"{files[of_settings.index(True)]} is of `dagc tune`, {orders} of `dagc explore`",
            "merge files of one command",
        )
    from dagc.store.tuned import load_tuned  # loads numpy

    return [load_tuned(path) for path in files]


def _merge(files: Sequence[Path], scratch: Path) -> None:
    with closing(connect_as(scratch, "rwc")) as target:
        target.execute("PRAGMA synchronous = OFF")  # the file is renamed only when it is complete
        for number, path in enumerate(files):
            with closing(connect(path)) as source:
                if number == 0:
                    create(target, read_program(source))
                _copy(source, target, path)


def _check_equal(files: Sequence[Path], results: Sequence[Results], other_machine: bool, tuned: bool) -> None:
    if len(files) < 2:
        raise UsageError("one file cannot be merged", "give two results files or more")
    where: dict[tuple[object, ...], Path] = {}  # the file of each run
    program, first = results[0].program, next((run for other in results for run in other.runs), None)
    for path, other in zip(files, results, strict=True):
        if not _same_program(other.program, program, tuned):
            raise UsageError(
                f"{path} belongs to another program ({other.program.name} {other.program.hash}) than {files[0]}"
                f" ({program.name} {program.hash})",
                "merge results of one program with the same parameters",
            )
        if other.runs and results[0].runs and other.folded != results[0].folded:
            raise UsageError(
                f"{path} and {files[0]}: one has an order for each round of a loop, the other one for all rounds",
                "merge results of searches with --unroll, or of searches without it",
            )
        mine: dict[tuple[object, ...], Path] = {}
        for run in other.runs:
            # A measured noise floor identifies a run as well as a serial number.
            mine[run.started, run.strategy, run.noise if not math.isnan(run.noise) else path.resolve(), run.seed] = path
            assert first is not None
            if run.ranks != first.ranks:
                raise UsageError(
                    f"{path} was measured on {run.ranks} ranks, {files[0]} on {first.ranks}",
                    "merge results of the same number of ranks",
                )
            if run.machine.key != first.machine.key and not other_machine:
                raise UsageError(
                    f"{path} was measured on another machine ({run.machine.key}) than {files[0]} ({first.machine.key})",
                    "give --other-machine to merge them anyway",
                )
        for key in mine.keys() & where.keys():
            raise UsageError(
                f"{path} and {where[key]} contain the same run, started {key[0]}",
                "its measurements would count twice; leave one of them out",
            )
        where |= mine


def _same_program(one: ProgramRecord, other: ProgramRecord, tuned: bool) -> bool:
    """For tuned files, only the text must be equal: the files themselves determine which parameters may differ."""
    return one.has_text_of(other) if tuned else one.is_same(other)


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, path: Path) -> None:
    """All runs of a file. Its IDs are shifted beyond the existing ones."""
    try:
        source.execute("BEGIN")
        target.execute("BEGIN")
        run, sample, drift = (_last(target, table) for table in ("run", "sample", "drift"))
        known = _copy_candidates(source, target)
        metrics = {
            key: metric_id(target, name, unit)
            for key, name, unit in source.execute("SELECT id, name, unit FROM metric").fetchall()
        }
        columns = "started, machine_key, machine, ranks, seed, strategy, seconds, revision, version, noise, options"
        rows = source.execute(f"SELECT id + {run}, {columns} FROM run")
        target.executemany(f"INSERT INTO run (id, {columns}) VALUES (?{', ?' * 11})", rows)
        rows = source.execute(
            f"SELECT id + {sample}, run + {run}, candidate, purpose, iterations, reference FROM sample"
        )
        moved = ((*row[:2], known[row[2]], *row[3:]) for row in rows)
        target.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?)", moved)
        rows = source.execute(f"SELECT sample + {sample}, metric, value FROM value")
        target.executemany("INSERT INTO value VALUES (?, ?, ?)", ((s, metrics[m], value) for s, m, value in rows))
        rows = source.execute(f"SELECT id + {drift}, run + {run}, after + {sample}, seconds FROM drift")
        target.executemany("INSERT INTO drift VALUES (?, ?, ?, ?)", rows)
        rows = source.execute('SELECT candidate, rank, position, "begin", "end", gpu_begin, gpu_end FROM trace')
        spans = ((known[row[0]], *row[1:]) for row in rows)
        target.executemany("INSERT OR IGNORE INTO trace VALUES (?, ?, ?, ?, ?, ?, ?)", spans)  # the first is kept
        _copy_checks(source, target)
        facts = source.execute("SELECT key, value FROM fact")
        target.executemany("INSERT OR IGNORE INTO fact VALUES (?, ?)", facts)  # the first is kept
        target.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        if elsewhere(error):  # while writing the target
            raise
        raise damaged(path, error) from None


def _copy_candidates(source: sqlite3.Connection, target: sqlite3.Connection) -> dict[int, int]:
    """ID in the source -> ID in the target. A setting that failed at an input in any file is not trusted there; an
    order that was measured in any file is."""
    known = {}
    rows = source.execute(
        "SELECT c.id, c.domain, c.point, a.choices, c.traversal, c.flush, c.failure,"
        f" {_GOOD} FROM candidate c JOIN assignment a ON a.id = c.assignment ORDER BY c.id"
    )
    for key, domain, point, choices, traversal, flush, failure, good in rows:
        known[key] = here = candidate_id(target, domain, point, choices, traversal, flush)
        if domain:
            target.execute("UPDATE candidate SET failure = ? WHERE id = ? AND failure = ''", (failure, here))
        elif good:
            target.execute("UPDATE candidate SET failure = '' WHERE id = ?", (here,))
        else:
            target.execute(
                f"UPDATE candidate AS c SET failure = ? WHERE id = ? AND failure = '' AND NOT {_GOOD}", (failure, here)
            )
    return known


def _copy_checks(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy the checks: a setting is correct if no file has a wrong result of it."""
    rows = source.execute(
        "SELECT c.domain, a.choices, c.point, c.failure FROM checked c JOIN assignment a ON a.id = c.assignment"
    )
    for domain, choices, point, failure in rows:
        target.execute("INSERT OR IGNORE INTO assignment (choices) VALUES (?)", (choices,))
        (key,) = target.execute("SELECT id FROM assignment WHERE choices = ?", (choices,)).fetchone()
        target.execute(
            "INSERT INTO checked VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET point = excluded.point,"
            " failure = excluded.failure WHERE failure = ''",
            (domain, key, point, failure),
        )


_GOOD = "(c.failure = '' AND EXISTS (SELECT 1 FROM sample s WHERE s.candidate = c.id))"


def _last(target: sqlite3.Connection, table: str) -> int:
    (last,) = target.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
    return int(last)
