"""The tuning tables of a results file: cells, checks, choosers. Times in seconds.

docs/reference/results-files.md describes them.

The file is one of `dagc.store.schema` (program, runs, machine), with these tables beside the others. Each cell is a
transaction of its own: a run that is killed loses at most the cell under way.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from dagc.base.errors import UsageError
from dagc.choice.types import PROGRAM, Cell, Point, Settings
from dagc.store.lock import WriterLock
from dagc.store.results import Machine, Program, Run
from dagc.store.schema import (
    TUNE_TABLES,
    Name,
    check,
    connect,
    connect_as,
    create,
    damaged,
    insert_run,
    read_program,
    read_runs,
    reading,
    row_as,
    statements,
)
from dagc.store.tuned_schema import (
    CellRow,
    CheckRow,
    Facts,
    KernelChooser,
    ProgramChooser,
    read_facts,
    read_kernel_chooser,
    read_point,
    read_program_chooser,
    read_settings,
    read_times,
)


@dataclass(frozen=True, slots=True)
class Tuned:
    """A tuned file, read: cells with the flush of each, checks, facts by name, choosers by op."""

    path: Path
    program: Program
    runs: tuple[Run, ...]
    cells: tuple[Cell, ...]
    flushes: tuple[int, ...]
    checks: dict[tuple[str, Settings], str]
    facts: Facts
    choosers: dict[str, KernelChooser | ProgramChooser]

    @property
    def program_chooser(self) -> ProgramChooser | None:
        """What chooses among whole programs, None where kernels alone were tuned."""
        found = self.choosers.get(PROGRAM)
        return found if isinstance(found, ProgramChooser) else None

    @property
    def kernel_choosers(self) -> dict[str, KernelChooser]:
        """By op."""
        return {op: chooser for op, chooser in self.choosers.items() if isinstance(chooser, KernelChooser)}


class TuneRecords:
    """The one writer of a tuned file."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: WriterLock, run: Run) -> None:
        self.path, self._connection, self._lock = path, connection, lock
        for statement in statements(TUNE_TABLES):
            connection.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
        self._run = insert_run(connection, run)

    @classmethod
    def open(
        cls, path: str | Path, program: Program, run: Run, *, resume: bool = False, other_machine: bool = False
    ) -> TuneRecords:
        """A new file, or with `resume` more cells in an existing one. Raises UsageError as `Records.open`."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path.parent}: {error.strerror}", "choose a place that can be written to") from None
        lock = WriterLock(path)
        try:
            connection = _connection(path, program, run.machine, resume, other_machine)
            return cls(path, connection, lock, run)
        except sqlite3.DatabaseError as error:
            lock.release()
            raise damaged(path, error) from None
        except BaseException:
            lock.release()
            raise

    def __enter__(self) -> TuneRecords:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, cell: Cell, flush: int) -> None:
        """A cell; an earlier one of the same op, point, settings and flush is replaced."""
        self._connection.execute(
            "INSERT OR REPLACE INTO tune_cell (run, op, point, settings, flush, times, failure)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                self._run, cell.op, _point_text(cell.point), _settings_text(cell.settings), flush,
                json.dumps([float(f"{t:.6g}") for t in cell.times]), cell.failure,
            ),
        )  # fmt: skip

    def add_check(self, op: str, settings: Settings, point: Point, failure: str) -> None:
        """Whether the program's results are right under these settings; `failure` is "" or why not."""
        self._connection.execute(
            "INSERT OR REPLACE INTO tune_check VALUES (?, ?, ?, ?)",
            (op, _settings_text(settings), _point_text(point), failure),
        )

    def set_fact(self, key: str, value: Any) -> None:
        self._connection.execute("INSERT OR REPLACE INTO tune_fact VALUES (?, ?)", (key, json.dumps(value)))

    def set_chooser(self, op: str, chooser: dict[str, Any]) -> None:
        self._connection.execute("INSERT OR REPLACE INTO tune_chooser VALUES (?, ?)", (op, json.dumps(chooser)))

    def read(self) -> Tuned:
        """Everything in the file. Raises UsageError where a row of it cannot be read."""
        return _read(self._connection, self.path)

    def close(self) -> None:
        """May be called twice."""
        if self._lock.held:
            self._connection.close()
            self._lock.release()


def load_tuned(path: str | Path) -> Tuned:
    """Raises UsageError where there is no such file, it is damaged, or nothing was tuned in it."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"{path}: no such file", "give the path of a file that `dagc tune` has written")
    connection = connect(path, write=False)
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if "tune_cell" not in tables:
            raise UsageError(f"{path}: nothing was tuned in it", "give a file that `dagc tune` has written")
        return _read(connection, path)
    finally:
        connection.close()


def is_fresh(path: Path, resume: bool) -> bool:
    """Is there nothing at `path` yet? Raises UsageError where it cannot be a tuned file, or is one without `resume`."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory", "name a file with -o")
    fresh = not path.exists() or (path.is_file() and path.stat().st_size == 0)
    if not fresh and not resume:
        raise UsageError(f"{path} exists", "add to it with --resume, or choose another name with -o")
    return fresh


def _connection(path: Path, program: Program, machine: Machine, resume: bool, other: bool) -> sqlite3.Connection:
    fresh = is_fresh(path, resume)
    connection = connect_as(path, "rwc" if fresh else "rw")
    try:
        if fresh:
            create(connection, program)
        else:
            check(connection, path)
            with reading(path):
                tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
                _ = _rows(connection, path) if "tune_cell" in tables else read_runs(connection)  # all of it can be read
            check_same(connection, path, program, machine, other)
    except BaseException:
        connection.close()
        raise
    return connection


def check_same(connection: sqlite3.Connection, path: Path, program: Program, machine: Machine, other: bool) -> None:
    stored = read_program(connection)
    if dict(stored.sources) != dict(program.sources):
        raise UsageError(f"{path}: tuned for another text of {stored.name}", "tune again into another file with -o")
    for _, run in read_runs(connection):
        if _for(run.machine) != _for(machine):
            raise UsageError(
                f"{path}: tuned for {_for(run.machine)}, this is for {_for(machine)}",
                "tune into another file with -o, or choose by --target and --arch what the file is for",
            )
        if run.machine.key != machine.key and not other:
            raise UsageError(
                f"{path}: tuned on another machine ({run.machine.key}; this is {machine.key})",
                "tune again into another file with -o, or give --other-machine",
            )


def _for(machine: Machine) -> str:
    """What was compiled for: times of one say nothing about another, on whichever machine."""
    return "the host target" if machine.target == "host" else machine.arch


def _read(connection: sqlite3.Connection, path: Path) -> Tuned:
    with reading(path):
        return _rows(connection, path)


def _rows(connection: sqlite3.Connection, path: Path) -> Tuned:
    found = connection.execute("SELECT op, point, settings, times, failure, flush FROM tune_cell ORDER BY id")
    cells = [row_as(row, CellRow) for row in found]
    checks = [row_as(row, CheckRow) for row in connection.execute("SELECT op, settings, failure FROM tune_check")]
    facts = dict(row_as(row, tuple[str, str]) for row in connection.execute("SELECT key, value FROM tune_fact"))
    choosers = (row_as(row, tuple[Name, str]) for row in connection.execute("SELECT op, chooser FROM tune_chooser"))
    return Tuned(
        path=path,
        program=read_program(connection),
        runs=tuple(run for _, run in read_runs(connection)),
        cells=tuple(
            Cell(c.op, Point.of(read_point(c.point)), read_settings(c.settings), read_times(c.times), c.failure)
            for c in cells
        ),
        flushes=tuple(c.flush for c in cells),
        checks={(c.op, read_settings(c.settings)): c.failure for c in checks},
        facts=read_facts(facts),
        choosers={op: _chooser(op, text) for op, text in choosers},
    )


def _chooser(op: str, text: str) -> KernelChooser | ProgramChooser:
    try:
        return read_program_chooser(text) if op == PROGRAM else read_kernel_chooser(text)
    except (ValueError, UsageError) as error:
        raise ValueError(f"the chooser of `{op}` is damaged ({error})") from None


def _pairs(items: Iterable[tuple[str, int]]) -> str:
    return json.dumps(dict(items), separators=(",", ":"))


def _point_text(point: Point) -> str:
    return _pairs(point.params)


def _settings_text(settings: Settings) -> str:
    return _pairs(settings)
