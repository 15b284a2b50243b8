"""The results file: SQLite, one row per measurement, written as it comes.

docs/reference/results-files.md describes the tables.

A commit costs well under a millisecond. What was committed survives the death of this process (`kill -9`); when the
machine itself loses power the last measurements may be lost, and the file stays sound (write-ahead log,
synchronous=NORMAL).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from dagc.base.errors import UsageError, counted
from dagc.store.export import export_csv, export_parquet
from dagc.store.lock import WriterLock
from dagc.store.merge import merge
from dagc.store.read import load, read
from dagc.store.results import Configuration, Implementation, ImplementationId, Program, Results, Run, TraceSpan
from dagc.store.schema import (
    check,
    configuration_text,
    connect,
    connect_as,
    create,
    damaged,
    find_implementation,
    insert_implementation,
    insert_run,
    read_configuration,
    read_program,
    read_runs,
    reading,
    real,
)

__all__ = ["PURPOSES", "Records", "check_resumable", "export_csv", "export_parquet", "load", "merge"]

PURPOSES = ("search", "confirm", "explain")
RUN_ENDED_TWICE = "the run ended twice while it was measured"


class Records:
    """The one writer of a results file.

    For each measurement: `begin`, then `add` or `fail`. Each call is a transaction of its own. Where one cannot be
    written (a full disk) they raise UsageError; what was written before stays, and `--resume` goes on with it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: WriterLock, run: Run, fresh: bool) -> None:
        """Use `Records.open`. `fresh`: the file was made by this run."""
        self.path = path
        self._fresh = fresh
        self._connection = connection
        self._lock = lock
        self._known: dict[tuple[str, str], ImplementationId] = {}
        self.under_way = self._take_under_way()
        self._run = insert_run(connection, run)

    @classmethod
    def open(
        cls, path: str | Path, program: Program, run: Run, *, resume: bool = False, other_machine: bool = False
    ) -> Records:
        """A new file at `path`, or with `resume` a new run in an existing one.

        Raises UsageError, naming the file: it exists and `resume` was not asked for; it holds results of another
        program, number of ranks, or machine (unless `other_machine`); a newer dagc made it; it is damaged or no results
        file; another process writes to it; it cannot be written.
        """
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path.parent}: {error.strerror}", "choose a place that can be written to") from None
        lock = WriterLock(path)
        try:
            fresh = not path.exists() or (path.is_file() and path.stat().st_size == 0)
            if not fresh and not resume:
                raise UsageError(
                    f"{path} exists", "add measurements to it with --resume, or choose another name with -o"
                )
            connection = _connection(path, program, run, fresh, other_machine)
            try:
                return cls(path, connection, lock, run, fresh)
            except BaseException:
                connection.close()
                raise
        except sqlite3.DatabaseError as error:
            lock.release()
            raise damaged(path, error) from None
        except BaseException:
            lock.release()
            raise

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, configuration: Configuration, traversal: str) -> ImplementationId:
        """Note that an implementation is about to be measured. Equal ones have one ID."""
        key = self._implementation(configuration, traversal)
        with self._writing():
            self._connection.execute("INSERT OR REPLACE INTO under_way VALUES (1, ?)", (key,))
        return key

    def add(
        self, number: ImplementationId, seconds: float, reference: float, iterations: int, purpose: str = "search"
    ) -> None:
        """One measurement, in seconds per iteration.

        `reference` (NaN: none) counts only in a run that never calls `self.reference`. `purpose` is one of PURPOSES.
        """
        if purpose not in PURPOSES:
            raise ValueError(f"no such purpose: {purpose}")

        def write() -> None:
            self._connection.execute(
                "INSERT INTO measurement (run, implementation, purpose, seconds, reference, iterations)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (self._run, number, purpose, seconds, real(reference), iterations),
            )
            self._done(number)

        self._transaction(write)

    def fail(self, number: ImplementationId, failure: str) -> None:
        """Why an implementation could not be measured, one line."""

        def write() -> None:
            self._connection.execute("UPDATE implementation SET failure = ? WHERE id = ?", (failure, number))
            self._done(number)

        self._transaction(write)

    def reference(self, seconds: float) -> None:
        """One timing of the drift reference, taken now: after all measurements so far, before those to come."""
        with self._writing():
            self._connection.execute(
                "INSERT INTO drift (run, after, seconds) SELECT ?, coalesce(max(id), 0), ? FROM measurement",
                (self._run, seconds),
            )

    def noise(self, value: float) -> None:
        """The noise floor that this run has measured."""
        with self._writing():
            self._connection.execute("UPDATE run SET noise = ? WHERE id = ?", (real(value), self._run))

    def trace(self, number: ImplementationId, spans: Iterable[TraceSpan]) -> None:
        """A traced run of all ranks; an earlier one is replaced."""
        rows = [(number, s.rank, s.position, s.begin, s.end, real(s.gpu_begin), real(s.gpu_end)) for s in spans]

        def write() -> None:
            self._connection.execute("DELETE FROM trace WHERE implementation = ?", (number,))
            self._connection.executemany("INSERT INTO trace VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

        self._transaction(write)

    def results(self) -> Results:
        """Everything in the file, this run included."""
        return read(self._connection)

    def close(self) -> None:
        """End the run. The file is then a single one: its log is taken in. May be called twice.

        A file that this run made, and in which nothing was begun, is removed: it would only be in the next run's way.
        """
        if self._lock.held:
            begun = True
            try:
                # Somebody reads, or the disk is full: the log stays, and the next writer takes it in.
                with suppress(sqlite3.OperationalError):
                    begun = self._connection.execute("SELECT 1 FROM implementation").fetchone() is not None
                    # A run that was asked to end did not die of what it was measuring.
                    self._connection.execute("DELETE FROM under_way")
                    self._connection.execute("PRAGMA journal_mode = DELETE")
                self._connection.close()
                if self._fresh and not begun:
                    self.path.unlink(missing_ok=True)
            finally:
                self._lock.release()

    # ---- within -------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise UsageError(
                f"{self.path} cannot be written: {error}",
                "make room; all that was measured before is in it, and --resume goes on",
            ) from None

    def _transaction(self, write: Callable[[], None]) -> None:
        with self._writing():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                write()
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.OperationalError):  # SQLite has done so itself where the disk is full
                    self._connection.execute("ROLLBACK")
                raise

    def _done(self, number: ImplementationId) -> None:
        self._connection.execute("UPDATE implementation SET deaths = 0 WHERE id = ?", (number,))
        self._connection.execute("DELETE FROM under_way")

    def _implementation(self, configuration: Configuration, traversal: str) -> ImplementationId:
        pair = configuration_text(configuration), traversal
        known = self._known.get(pair)
        if known is None:
            self._transaction(lambda: insert_implementation(self._connection, *pair))
            known = self._known[pair] = find_implementation(self._connection, *pair)
        return known

    def _take_under_way(self) -> Implementation | None:
        """What was being measured when the last run died. The second crash is reported as its failure."""
        row = self._connection.execute("SELECT implementation FROM under_way").fetchone()
        if row is None or row[0] is None:
            return None

        def write() -> None:
            self._connection.execute("UPDATE implementation SET deaths = deaths + 1 WHERE id = ?", row)
            self._connection.execute(
                "UPDATE implementation SET failure = ? WHERE id = ? AND deaths >= 2 AND failure = ''",
                (RUN_ENDED_TWICE, *row),
            )
            self._connection.execute("DELETE FROM under_way")

        self._transaction(write)
        key, decisions, traversal, failure = self._connection.execute(
            "SELECT i.id, c.decisions, i.traversal, i.failure FROM implementation i"
            " JOIN configuration c ON c.id = i.configuration WHERE i.id = ?",
            row,
        ).fetchone()
        return Implementation(ImplementationId(key), read_configuration(decisions), traversal, (), failure)


def _connection(path: Path, program: Program, run: Run, fresh: bool, other_machine: bool) -> sqlite3.Connection:
    """An open file that this run may write to."""
    connection = connect_as(path, "rwc" if fresh else "rw")
    try:
        if not fresh:
            check(connection, path)
            with reading(path):
                read(connection)  # all of it can be read
            _check_same(connection, path, program, run, other_machine)
        # Not on every file system (a network's, for one): SQLite then keeps its rollback journal, which is slower.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if fresh:
            create(connection, program)
    except BaseException:
        connection.close()
        if fresh:
            path.unlink(missing_ok=True)  # half made
        raise
    return connection


def check_resumable(path: Path, program: Program, ranks: int) -> None:
    """Raises UsageError where `Records.open` with `resume` would, as far as can be said before any rank is started."""
    if path.is_file() and path.stat().st_size == 0:
        return
    load(path)  # all of it can be read
    with closing(connect(path, write=False)) as connection, reading(path):
        _check_program(connection, path, program, ranks)
    WriterLock(path).release()


def _check_program(connection: sqlite3.Connection, path: Path, program: Program, ranks: int) -> None:
    stored = read_program(connection)
    if stored.hash != program.hash:
        raise UsageError(
            f"{path}: holds results of another program ({stored.name} {stored.hash}; this is {program.name}"
            f" {program.hash})",
            "choose another file with -o, or use the text and the parameters that it was made with",
        )
    for _, earlier in read_runs(connection):
        if earlier.ranks != ranks:
            raise UsageError(
                f"{path}: measured on {counted(earlier.ranks, 'rank')}, this run has {ranks}",
                f"use -n {earlier.ranks}, or another file",
            )


def _check_same(connection: sqlite3.Connection, path: Path, program: Program, run: Run, other_machine: bool) -> None:
    _check_program(connection, path, program, run.ranks)
    for _, earlier in read_runs(connection):
        if earlier.machine.key != run.machine.key and not other_machine:
            raise UsageError(
                f"{path}: measured on another machine ({earlier.machine.key}; this is {run.machine.key})",
                "choose another file with -o, or give --other-machine to mix them",
            )
