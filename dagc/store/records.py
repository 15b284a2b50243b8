"""The one writer of results files: SQLite, one row per measurement, written immediately.

docs/reference/results-files.md describes the tables.

A commit costs well under a millisecond. Committed data survives the death of this process (`kill -9`); after a loss of
power the last measurements may be missing, but the file stays consistent (write-ahead log, synchronous=NORMAL).
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from dagc.base.errors import NotWritten, UsageError, counted, not_written
from dagc.base.sample import BESIDE, CONFIRM, EXPLAIN, SEARCH, Sample
from dagc.choice.types import Case, Cell
from dagc.ir.choice import Choice
from dagc.store.read import implementations_in, load, read_program, read_runs, refuse_tuned, results_in, snapshot
from dagc.store.results import (
    SPACE,
    Implementation,
    ImplementationId,
    MachineRecord,
    ProgramRecord,
    Results,
    Run,
    TraceSpan,
)
from dagc.store.schema import (
    candidate_id,
    check,
    connect_as,
    create,
    create_group_tables,
    damaged,
    full,
    has_group_tables,
    insert_sample,
    metric_id,
    reading,
)

if TYPE_CHECKING:
    from dagc.store.tuned import Tuned

# ---- one writer at a time --------------------------------------------------------------------------


# Follow no link, truncate nothing, and do not block on a pipe or terminal.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LENGTH = 20  # bytes of a lock file: a process ID and spaces
_CONTENT = re.compile(rb"([0-9]+ *\n)?")


class WriterLock:
    """Holds `PATH-lock`. The results file itself is not locked: SQLite's own locks there must not be disturbed."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError if another process writes to `path`."""
        self._name = Path(f"{path}-lock")
        self._file: int | None = None
        while self._file is None:
            self._file = self._take(path)

    def _take(self, path: Path) -> int | None:
        """The locked file, or None if its holder removed it just now."""
        try:
            file = os.open(self._name, _FLAGS, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # a symbolic link, a directory, a socket
                raise self._foreign() from None
            raise not_written(self._name, error) from None
        try:
            self._check(file)
            self._lock(file, path)
            if not self._is_there(file):
                os.close(file)
                return None
            # Overwrites an earlier holder's text of the same length; nothing is truncated.
            os.pwrite(file, f"{os.getpid():<{_LENGTH - 1}}\n".encode(), 0)
        except BaseException:
            os.close(file)
            raise
        return file

    def _lock(self, file: int, path: Path) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, _LENGTH).decode(errors="replace").strip()
            raise UsageError(
                f"{path}: another dagc writes to it" + (f" (process {holder})" if holder else ""),
                "wait until it ends, or write to another file",
            ) from None
        except OSError as error:
            # A file system without locks: better no protection than no results.
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise

    def _check(self, file: int) -> None:
        """Write only to an empty file, or one with a process ID: any other content is not dagc's."""
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LENGTH or status.st_nlink > 1:
            raise self._foreign()
        if not _CONTENT.fullmatch(os.pread(file, _LENGTH, 0)):
            raise self._foreign()

    def _is_there(self, file: int) -> bool:
        """Whether the path still names the open file."""
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self._name))
        except FileNotFoundError:
            return False

    def _foreign(self) -> UsageError:
        return UsageError(
            f"{self._name} is not a lock file of dagc", "remove it, or choose another name for the results file"
        )

    @property
    def held(self) -> bool:
        return self._file is not None

    def release(self) -> None:
        """May be called twice."""
        if self._file is None:
            return
        self._name.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None


# ---- the writer ------------------------------------------------------------------------------------


__all__ = ["PURPOSES", "Records", "check_resumable", "is_fresh", "load"]

T = TypeVar("T")
NO_OTHERS: Mapping[str, float] = MappingProxyType({})
PURPOSES = (SEARCH, CONFIRM, EXPLAIN, BESIDE)
RUN_ENDED_TWICE = "the run ended twice while it was measured"


class Records:
    """An open results file, written by one run of `dagc explore`, `explain` or `tune`.

    For each measurement: `begin`, then `add` or `fail`; for tuned settings: `add_sample`. Each call is a transaction.
    If it cannot be written (a full disk), they raise UsageError; earlier data stays, and `--resume` continues from it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: WriterLock, run: Run, fresh: bool) -> None:
        """Use `Records.open`. `fresh`: this run created the file."""
        self.path = path
        self._fresh = fresh
        self._connection = connection
        self._lock = lock
        self._known: dict[tuple[str, str], ImplementationId] = {}
        self.under_way = self._take_under_way()
        self._run = _insert_run(connection, run)
        self._beside = False
        self._metrics: dict[str, int] = {}
        self.metric("time", "s")

    def beside(self, run: Run) -> Records:
        """The same file, for a run of another group of ranks beside this one. It is closed with this one."""
        with self._writing():
            create_group_tables(self._connection)
            other = copy(self)
            other._run, other._beside = _insert_run(self._connection, run), True
        return other

    @classmethod
    def open(
        cls,
        path: str | Path,
        program: ProgramRecord,
        run: Run,
        *,
        resume: bool = False,
        other_machine: bool = False,
        tuning: bool = False,
    ) -> Records:
        """A new file at `path`, or with `resume` a new run in an existing one. `tuning`: the run tunes settings at its
        own sizes, so parameters of the program may differ between runs.

        Raises UsageError, naming the file: it exists without `resume`; it has results of another program, number of
        ranks, or machine (unless `other_machine`); it is from a newer dagc; it is damaged or not a results file;
        another process writes to it; it cannot be written.
        """
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(path.parent, error) from None
        lock = WriterLock(path)
        try:
            fresh = is_fresh(path, resume)
            connection = connect_as(path, "rwc") if fresh else _existing(path, program, run, other_machine, tuning)
            try:
                # Not on every file system (not on network ones, for example): SQLite then keeps its slower journal.
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                if fresh:
                    create(connection, program)
                return cls(path, connection, lock, run, fresh)
            except BaseException:
                connection.close()
                if fresh:
                    path.unlink(missing_ok=True)  # incomplete
                raise
        except sqlite3.DatabaseError as error:
            lock.release()
            raise damaged(path, error) from None
        except BaseException:
            lock.release()
            raise

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metric(self, name: str, unit: str) -> None:
        """Register a metric, so that samples may have values of it."""
        with self._writing():
            self._metrics[name] = metric_id(self._connection, name, unit)

    # ---- orders -------------------------------------------------------------------------------

    def begin(self, configuration: Choice, traversal: str) -> ImplementationId:
        """Record that an implementation is about to be measured. Equal ones have one ID."""
        pair = json.dumps(dict(configuration)), traversal
        key = self._known.get(pair)
        if key is None:

            def write() -> ImplementationId:
                return ImplementationId(candidate_id(self._connection, "", "{}", *pair))

            key = self._known[pair] = self._transaction(write)
        table, row = ("under_way_beside", self._run) if self._beside else ("under_way", 1)
        with self._writing():
            self._connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (row, key))
        return key

    def add(
        self,
        number: ImplementationId,
        seconds: float,
        reference: float,
        iterations: int,
        purpose: str = "search",
        others: Mapping[str, float] = NO_OTHERS,
    ) -> None:
        """One measurement, in seconds per iteration, and the values of other metrics.

        `reference` (NaN: none) is used only in a run that never calls `self.reference`. `purpose` is one of PURPOSES.
        """
        if purpose not in PURPOSES:
            raise ValueError(f"no such purpose: {purpose}")

        def write() -> None:
            values = {self._metrics[name]: value for name, value in {"time": seconds, **others}.items()}
            insert_sample(self._connection, self._run, number, purpose, iterations, _real(reference), values)
            self._done(number)

        self._transaction(write)

    def fail(self, number: ImplementationId, failure: str) -> None:
        """Store the reason why an implementation could not be measured, one line."""

        def write() -> None:
            self._connection.execute("UPDATE candidate SET failure = ? WHERE id = ?", (failure, number))
            self._done(number)

        self._transaction(write)

    def reference(self, seconds: float) -> None:
        """One timing of the drift reference, taken now: after all measurements so far, before later ones."""
        with self._writing():
            self._connection.execute(
                "INSERT INTO drift (run, after, seconds) SELECT ?, coalesce(max(id), 0), ? FROM sample",
                (self._run, seconds),
            )

    def noise(self, value: float) -> None:
        """Store the noise floor measured by this run."""
        with self._writing():
            self._connection.execute("UPDATE run SET noise = ? WHERE id = ?", (_real(value), self._run))

    def restate(self, run: Run) -> None:
        """What is known of this run by now, except when it started and its noise floor."""
        columns = "machine = ?, machine_key = ?, strategy = ?, options = ?"
        values = json.dumps(asdict(run.machine)), run.machine.key, run.strategy, json.dumps(run.options)
        with self._writing():
            self._connection.execute(f"UPDATE run SET {columns} WHERE id = ?", (*values, self._run))

    def searched(self, space: int | None) -> None:
        """Store the number of implementations that this run searches (None: not counted)."""

        def write() -> None:
            (text,) = self._connection.execute("SELECT options FROM run WHERE id = ?", (self._run,)).fetchone()
            options = json.loads(text) | ({} if space is None else {SPACE: str(space)})
            self._connection.execute("UPDATE run SET options = ? WHERE id = ?", (json.dumps(options), self._run))

        self._transaction(write)

    def add_fact(self, name: str, value: Any) -> None:
        """A further fact of the machine of this run (`MachineRecord.facts`)."""

        def write() -> None:
            (text,) = self._connection.execute("SELECT machine FROM run WHERE id = ?", (self._run,)).fetchone()
            machine = json.loads(text)
            machine["facts"][name] = value
            self._connection.execute("UPDATE run SET machine = ? WHERE id = ?", (json.dumps(machine), self._run))

        self._transaction(write)

    def trace(self, number: ImplementationId, spans: Iterable[TraceSpan]) -> None:
        """A traced run of all ranks; an earlier one is replaced."""
        rows = [(number, s.rank, s.position, s.begin, s.end, _real(s.gpu_begin), _real(s.gpu_end)) for s in spans]

        def write() -> None:
            self._connection.execute("DELETE FROM trace WHERE candidate = ?", (number,))
            self._connection.executemany("INSERT INTO trace VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

        self._transaction(write)

    def results(self, objective: str | None = None) -> Results:
        """Every order in the file, including those of this run; `objective` as for `load`."""
        return results_in(self._connection, objective)

    # ---- settings -----------------------------------------------------------------------------

    def add_sample(self, cell: Cell, sample: Sample, flush: int) -> None:
        """The sample of a cell, with a row for each launch; it replaces an earlier one of the same cell and flush.
        `flush`: bytes written before each launch."""

        def write() -> None:
            (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM candidate").fetchone()
            case, choices = _json(cell.case.params), _json(cell.choice.own.items())
            key = candidate_id(self._connection, cell.site, case, choices, flush=flush)
            if key <= last:
                of = "FROM sample WHERE candidate = ?"
                self._connection.execute(f"DELETE FROM value WHERE sample IN (SELECT id {of})", (key,))
                self._connection.execute(f"DELETE {of}", (key,))
            self._connection.execute("UPDATE candidate SET failure = ? WHERE id = ?", (sample.failure, key))
            more = {self._metrics[name]: value for name, value in sample.metrics.items()}  # of the first row
            for seconds in sample.times:
                values = {self._metrics["time"]: seconds} | more
                insert_sample(self._connection, self._run, key, "tune", 1, None, values)
                more = {}

        self._transaction(write)

    def add_check(self, op: str, choice: Choice, case: Case, failure: str) -> None:
        """Store whether the program's results are correct under a choice; `failure` is "" or the reason."""

        def write() -> None:
            choices = _json(choice.own.items())
            self._connection.execute("INSERT OR IGNORE INTO assignment (choices) VALUES (?)", (choices,))
            self._connection.execute(
                "INSERT OR REPLACE INTO checked SELECT ?, id, ?, ? FROM assignment WHERE choices = ?",
                (op, _json(case.params), failure, choices),
            )

        self._transaction(write)

    def set_fact(self, key: str, value: Any) -> None:
        """`value` as JSON; it replaces an earlier one of the same key."""
        with self._writing():
            self._connection.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (key, json.dumps(value)))

    def set_chooser(self, op: str, chooser: dict[str, Any]) -> None:
        """`chooser` as JSON; it replaces an earlier one of the same op."""
        with self._writing():
            self._connection.execute("INSERT OR REPLACE INTO chooser VALUES (?, ?)", (op, json.dumps(chooser)))

    def tuned(self) -> Tuned:
        """All tuned settings in the file."""
        from dagc.store.tuned import tuned_in  # loads numpy

        return tuned_in(self._connection, self.path)

    def close(self, withdrawn: bool = False) -> None:
        """End the run. The log is merged, so that the file is a single one. May be called twice.

        A file that this run created, and in which nothing was begun, is removed: it would only block the next run; as
        one of a run that is `withdrawn`.
        """
        if self._lock.held:
            begun = True
            try:
                # A reader is active, or the disk is full: the log stays, and the next writer merges it.
                with suppress(sqlite3.OperationalError):
                    kept = ("candidate", "checked", "chooser")
                    begun = any(self._connection.execute(f"SELECT 1 FROM {t} LIMIT 1").fetchone() for t in kept)
                    # A run that was terminated on request did not die from its measurement.
                    for table in self._under_way_tables():
                        self._connection.execute(f"DELETE FROM {table}")
                    self._connection.execute("PRAGMA journal_mode = DELETE")
                self._connection.close()
                if self._fresh and (withdrawn or not begun):
                    for end in ("", "-wal", "-shm"):  # the last two stay where the disk was full
                        Path(f"{self.path}{end}").unlink(missing_ok=True)
            finally:
                self._lock.release()

    # ---- internals ----------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise (NotWritten if full(error) else UsageError)(
                f"{self.path} cannot be written: {error}",
                "free some space; earlier measurements are stored, and --resume continues",
            ) from None

    def _transaction(self, write: Callable[[], T]) -> T:
        with self._writing():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                done = write()
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.OperationalError):  # SQLite has already done so if the disk is full
                    self._connection.execute("ROLLBACK")
                raise
        return done

    def _done(self, number: ImplementationId) -> None:
        self._connection.execute("UPDATE candidate SET deaths = 0 WHERE id = ? AND deaths", (number,))
        if self._beside:
            self._connection.execute("DELETE FROM under_way_beside WHERE run = ?", (self._run,))
        else:
            self._connection.execute("DELETE FROM under_way")

    def _under_way_tables(self) -> list[str]:
        return ["under_way", *(["under_way_beside"] if has_group_tables(self._connection) else [])]

    def _take_under_way(self) -> Implementation | None:
        """Handle the implementation that was being measured when the last run died (one for each group of ranks); a
        second death is its failure."""
        tables = self._under_way_tables()
        taken = " UNION ".join(f"SELECT candidate FROM {table}" for table in tables)

        def write() -> Implementation | None:
            which = f"id IN ({taken})"
            self._connection.execute(f"UPDATE candidate SET deaths = deaths + 1 WHERE {which}")
            self._connection.execute(
                f"UPDATE candidate SET failure = ? WHERE {which} AND deaths >= 2 AND failure = ''", (RUN_ENDED_TWICE,)
            )
            interrupted = [Implementation(*i[:3], (), i[3]) for i in implementations_in(self._connection, f"c.{which}")]
            for table in tables:
                self._connection.execute(f"DELETE FROM {table}")
            return interrupted[0] if interrupted else None

        if self._connection.execute(taken).fetchone() is None:
            return None
        return self._transaction(write)


def is_fresh(path: Path, resume: bool) -> bool:
    """Whether nothing exists at `path`. Raises UsageError if it cannot be a results file, exists without `resume`, or
    cannot be created: before anything is measured that could not be kept."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory", "choose a file with -o")
    fresh = not path.exists() or (path.is_file() and path.stat().st_size == 0)
    if not fresh and not resume:
        raise UsageError(f"{path} exists", "add to it with --resume, or choose another name with -o")
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    if fresh and not os.access(folder, os.W_OK | os.X_OK):
        why = errno.EACCES if folder.is_dir() else errno.ENOTDIR
        raise not_written(path, OSError(why, os.strerror(why)))
    return fresh


def _existing(path: Path, program: ProgramRecord, run: Run, other_machine: bool, tuning: bool) -> sqlite3.Connection:
    """A file that this run may write to."""
    connection = connect_as(path, "rw")
    try:
        check(connection, path)
        with reading(path):
            _check_readable(connection, path, tuning)
            _check_program(connection, path, program, run.ranks, tuning)
            _check_machine(connection, path, run.machine, other_machine, tuning)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_readable(connection: sqlite3.Connection, path: Path, tuning: bool) -> None:
    """Raises ValueError if something that such a run needs to continue cannot be read."""
    if tuning:
        from dagc.store.tuned import tuned_in  # loads numpy

        tuned_in(connection, path)
    else:
        refuse_tuned(connection, path, ANOTHER_FILE)
        results_in(connection)


ANOTHER_FILE = "choose another file with -o"


def check_resumable(path: Path, program: ProgramRecord, ranks: int) -> Results:
    """The results of a file. Raises UsageError where `Records.open` with `resume` would, as far as that can be checked
    before any rank is started."""
    with snapshot(path) as connection:
        _check_program(connection, path, program, ranks, False)
        refuse_tuned(connection, path, ANOTHER_FILE)
        results = results_in(connection)
    WriterLock(path).release()
    return results


def _check_program(
    connection: sqlite3.Connection, path: Path, program: ProgramRecord, ranks: int, tuning: bool
) -> None:
    stored = read_program(connection)
    if tuning and not stored.has_text_of(program):
        raise UsageError(f"{path}: tuned for another text of {stored.name}", "tune again into another file with -o")
    if not tuning and not stored.is_same(program):
        raise UsageError(
            f"{path}: contains results of another program ({stored.name} {stored.hash}; this is {program.name}"
            f" {program.hash})",
            "choose another file with -o, or use its program text and parameters",
        )
    for _, earlier in read_runs(connection):
        if earlier.ranks != ranks:
            raise UsageError(
                f"{path}: measured on {counted(earlier.ranks, 'rank')}, this run has {ranks}",
                f"use -n {earlier.ranks}, or another file with -o",
            )


def _check_machine(
    connection: sqlite3.Connection, path: Path, machine: MachineRecord, other: bool, tuning: bool
) -> None:
    for _, run in read_runs(connection):
        before = run.machine
        if tuning and _compiled_for(before) != _compiled_for(machine):
            raise UsageError(
                f"{path}: tuned for {_compiled_for(before)}, this is for {_compiled_for(machine)}",
                "choose another file with -o, or its target with --target and --arch",
            )
        if before.key != machine.key and not other:
            raise UsageError(
                f"{path}: measured on another machine ({before.key}; this is {machine.key})",
                "choose another file with -o, or give --other-machine to mix them",
            )


def _compiled_for(machine: MachineRecord) -> str:
    """The target: times for one do not apply to another, on any machine."""
    return "the host target" if machine.target == "host" else machine.arch


def _insert_run(connection: sqlite3.Connection, run: Run) -> int:
    """The run's ID in this file."""
    cursor = connection.execute(
        "INSERT INTO run (started, machine, machine_key, ranks, seed, strategy, seconds, revision, version, noise,"
        " options) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run.started, json.dumps(asdict(run.machine)), run.machine.key, run.ranks, run.seed, run.strategy,
            run.seconds, run.revision, run.version, _real(run.noise), json.dumps(run.options),
        ),
    )  # fmt: skip
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _real(value: float) -> float | None:
    """NaN as SQL's NULL."""
    return None if math.isnan(value) else value


def _json(items: Iterable[tuple[str, Any]]) -> str:
    return json.dumps(dict(items), separators=(",", ":"))
