"""The tables of a results file (SQLite), and opening one with a clear error for everything that is not one.

docs/reference/results-files.md describes the tables. Times are in seconds.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from dagc.base.errors import UsageError
from dagc.store.results import Configuration, ImplementationId, Machine, Program, Run

SCHEMA_VERSION = 1
# "dagc" in ASCII: `file results.db` shows it, and it distinguishes results files from other databases.
APPLICATION_ID = 0x64616763

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE source (path TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE run (
  id INTEGER PRIMARY KEY, started TEXT NOT NULL, machine_key TEXT NOT NULL, machine TEXT NOT NULL,
  ranks INTEGER NOT NULL, seed INTEGER NOT NULL, strategy TEXT NOT NULL, seconds REAL NOT NULL, revision TEXT NOT NULL,
  version TEXT NOT NULL, noise REAL, options TEXT NOT NULL
);
CREATE TABLE configuration (id INTEGER PRIMARY KEY, decisions TEXT NOT NULL UNIQUE);
CREATE TABLE implementation (
  id INTEGER PRIMARY KEY, configuration INTEGER NOT NULL REFERENCES configuration, traversal TEXT NOT NULL,
  failure TEXT NOT NULL DEFAULT '', deaths INTEGER NOT NULL DEFAULT 0, UNIQUE (configuration, traversal)
);
CREATE TABLE measurement (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run,
  implementation INTEGER NOT NULL REFERENCES implementation, purpose TEXT NOT NULL, seconds REAL NOT NULL,
  reference REAL, iterations INTEGER NOT NULL
);
CREATE TABLE drift (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run, after INTEGER NOT NULL, seconds REAL NOT NULL
);
CREATE TABLE trace (
  implementation INTEGER NOT NULL REFERENCES implementation, rank INTEGER NOT NULL, position INTEGER NOT NULL,
  "begin" REAL NOT NULL, "end" REAL NOT NULL, gpu_begin REAL, gpu_end REAL,
  PRIMARY KEY (implementation, rank, position)
) WITHOUT ROWID;
CREATE TABLE under_way (one INTEGER PRIMARY KEY CHECK (one = 1), implementation INTEGER REFERENCES implementation);
"""

TUNE_TABLES = """
CREATE TABLE tune_cell (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run, op TEXT NOT NULL, point TEXT NOT NULL,
  settings TEXT NOT NULL, flush INTEGER NOT NULL, times TEXT NOT NULL, failure TEXT NOT NULL,
  UNIQUE (op, point, settings, flush)
);
CREATE TABLE tune_check (
  op TEXT NOT NULL, settings TEXT NOT NULL, point TEXT NOT NULL, failure TEXT NOT NULL, PRIMARY KEY (op, settings)
) WITHOUT ROWID;
CREATE TABLE tune_fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tune_chooser (op TEXT PRIMARY KEY, chooser TEXT NOT NULL) WITHOUT ROWID;
"""


def create(connection: sqlite3.Connection, program: Program) -> None:
    """Make all tables in an empty database, in one transaction: the file is never half a results file."""
    meta = {
        "format": "dagc results",
        "schema_version": str(SCHEMA_VERSION),
        "name": program.name,
        "path": program.path,
        "hash": program.hash,
        "params": json.dumps(dict(program.params)),
    }
    connection.execute("BEGIN IMMEDIATE")
    for statement in statements(TABLES):
        connection.execute(statement)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
    connection.executemany("INSERT INTO source VALUES (?, ?)", program.sources)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def statements(tables: str) -> tuple[str, ...]:
    """One for each table."""
    return tuple(statement.strip() for statement in tables.split(";") if statement.strip())


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open a results file that exists. Raises UsageError naming it where it is no results file of this schema."""
    if not path.is_file():
        why = "not a file" if path.exists() else "no such file"
        raise UsageError(f"{path}: {why}", "give the path of a results file of `dagc explore`")
    # Without a writer, and without a log beside it, a file is read as it is, also where nothing can be written.
    still = not write and not any(Path(f"{path}{end}").exists() for end in ("-wal", "-journal", "-lock"))
    connection = connect_as(path, ("rw" if write else "ro") + ("&immutable=1" if still else ""))
    try:
        check(connection, path)
        if not write:
            limit_time(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_as(path: Path, mode: str) -> sqlite3.Connection:
    """Open with SQLite's URI mode, in autocommit: transactions are begun and ended in words.

    The content is not trusted: no code of the file's schema is run, and no value of more than LONGEST bytes is made.
    """
    for end in ("-wal", "-shm", "-journal"):
        _check_beside(Path(f"{path}{end}"))
    name = path.absolute().as_uri()
    try:
        connection = sqlite3.connect(f"{name}?mode={mode}", uri=True, timeout=10.0, isolation_level=None)
    except sqlite3.Error as error:
        raise UsageError(f"{path}: {error}", "give the path of a results file of `dagc explore`") from None
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise damaged(path, error) from None
    return connection


_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")  # https://sqlite.org/fileformat2.html#the_rollback_journal


def _check_beside(path: Path) -> None:
    """Raises UsageError for a log or a journal that SQLite must not open.

    It would write to what a symbolic link points to, and wait for a pipe. A journal that ends with the name of another
    file belongs to a transaction over several databases, which dagc never makes: SQLite removes the file named there.
    """
    hint = "remove it, or choose another name for the results file"
    try:
        # Not opened where it need not be: closing a file gives up the locks that SQLite holds on it in this process.
        if not stat.S_ISREG(path.lstat().st_mode):
            raise UsageError(f"{path} is not a regular file", hint)
        if not path.name.endswith("-journal"):
            return
        with path.open("rb") as journal:
            journal.seek(max(0, os.fstat(journal.fileno()).st_size - len(_JOURNAL_MAGIC)))
            named = journal.tell() > 0 and journal.read() == _JOURNAL_MAGIC
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from None
    if named:
        raise UsageError(f"{path} is the journal of several databases, which dagc does not make", hint)


LONGEST = 64 << 20  # bytes of a value
MOST_SECONDS = 60.0  # for reading a file


def limit_time(connection: sqlite3.Connection, seconds: float = MOST_SECONDS) -> None:
    """From now on, `seconds` for all that is asked: then SQLite raises OperationalError. 0: no limit."""
    end = time.monotonic() + seconds
    connection.set_progress_handler((lambda: time.monotonic() > end) if seconds else None, 100_000)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raises UsageError where the database is damaged, something else, or of another schema."""
    limit_time(connection)
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise damaged(path, error) from None
    if application != APPLICATION_ID:
        raise UsageError(f"{path}: not a results file of dagc", "give a file that `dagc explore` has written")
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{path}: made by a newer dagc (schema {version}; this one reads up to {SCHEMA_VERSION})", "update dagc"
        )
    with reading(path):
        _check_tables(connection)  # first: what follows may evaluate what the schema says
        (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if sound != "ok":
            raise ValueError(sound)
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise ValueError(f"a row of {broken[0]} points to one of {broken[2]} that is not there")
    limit_time(connection, 0)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What the content of a file makes go wrong is a UsageError that names the file."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise damaged(path, error) from None


def _check_tables(connection: sqlite3.Connection) -> None:
    """Only the tables of this schema, as dagc makes them: no view, trigger or index. Raises ValueError."""
    wanted = {" ".join(text.split()) for text in statements(TABLES + TUNE_TABLES)}
    required = {" ".join(text.split()) for text in statements(TABLES)}
    tables = set()
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_schema"):
        if kind == "index" and text is None and str(name).startswith("sqlite_autoindex_"):
            continue
        # SQLite keeps the text after `CREATE TABLE IF NOT EXISTS` with the first words put right.
        text = " ".join(str(text).split())
        if kind != "table" or text not in wanted:
            raise ValueError(f"{kind} {_shown(name)} is none of a results file")
        tables.add(text)
    if not required <= tables:
        raise ValueError("a table is missing")


def _shown(text: object) -> str:
    """A name of a file, for a message: short, without control characters."""
    return repr(str(text)[:60])


_ELSEWHERE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_BUSY")


def elsewhere(error: object) -> bool:
    """Whether what SQLite raised says nothing about the content of a file: the disk is full, for one."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(_ELSEWHERE)


def damaged(path: Path, why: object) -> UsageError:
    """The error for a file that cannot be used, in one line; `why` is what SQLite raised or said."""
    text = " ".join(str(why).split())
    text = "".join(c if c.isprintable() else "\ufffd" for c in text[:300])
    if elsewhere(why):
        return UsageError(f"{path} cannot be read or written: {text}", "make room, or choose another place")
    return UsageError(f"{path}: truncated, damaged, or not a results file: {text}", "measure again into another file")


# ---- rows <-> values --------------------------------------------------------------------------


Name = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_.,\[\]]*\Z", max_length=1000)]
Word = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z", max_length=200)]
Hash = Annotated[str, Meta(pattern=r"\A[0-9A-Za-z]{1,64}\Z")]
Line = Annotated[str, Meta(pattern=r"\A[^\x00-\x08\x0b-\x1f\x7f\x80-\x9f]*\Z", max_length=1_000_000)]
Text = Annotated[str, Meta(pattern=r"\A[^\x00]*\Z")]
FilePath = Annotated[str, Meta(pattern=r"\A[^\x00]+\Z", max_length=4096)]
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Ranks = Annotated[int, Meta(ge=1, le=1_000_000)]
PositiveReal = Annotated[float, Meta(gt=0, le=1e300)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]
Moment = Annotated[float, Meta(ge=-1e9, le=1e9)]
Share = Annotated[float, Meta(ge=0, le=1e9)]
Whole = int  # of 64 bits, as SQLite and the reader of JSON have them
Number = Annotated[float, Meta(ge=-1e308, le=1e308)]
Decisions = dict[Name, bool | Whole | Number | Line]

_T = TypeVar("_T")


def decoded(text: str, kind: Any) -> Any:
    """JSON as a type. Raises ValueError, naming the place in it."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError, TypeError) as error:
        raise ValueError(str(error)) from None


def row_as(row: Sequence[object], kind: Any) -> Any:
    """A row as a type, each value of exactly that type. Raises ValueError, naming the column by its place."""
    try:
        return msgspec.convert(tuple(row), kind)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


class _Meta(msgspec.Struct, frozen=True):
    name: Word
    path: FilePath
    hash: Hash
    params: str


class _Machine(msgspec.Struct, frozen=True):
    hosts: tuple[Line, ...]
    cpu: Line
    cores: Natural
    gpus: tuple[Line, ...]
    driver: Line
    mpi: Line
    target: Annotated[str, Meta(pattern=r"\A(host|cuda)\Z")]
    arch: Annotated[str, Meta(pattern=r"\A[a-z0-9_]*\Z", max_length=40)]
    facts: dict[Line, Any] = {}


class _Options(msgspec.Struct, frozen=True):
    """The options of a run that dagc acts on. Others are only shown; those of a newer dagc may be among them."""

    data: FilePath | None = None
    mpi_takes_device_pointers: bool = False
    repeats: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    setup: Annotated[str, Meta(pattern=r"\A[0-9a-f]{0,64}\Z")] = ""
    fixed: list[tuple[Name, bool | Whole | Number | Line, Line]] = []


def _read_options(text: str) -> dict[str, Any]:
    """Raises ValueError."""
    options: dict[str, Any] = decoded(text, dict[Line, Any])
    row_as_struct(options, _Options)
    return options


def read_program(connection: sqlite3.Connection) -> Program:
    """Raises ValueError, sqlite3.DatabaseError."""
    meta = row_as_struct(dict(connection.execute("SELECT key, value FROM meta")), _Meta)
    rows = connection.execute("SELECT path, text FROM source ORDER BY path").fetchall()
    sources = tuple(row_as(row, tuple[FilePath, Text]) for row in rows)
    if meta.path not in dict(sources):
        raise ValueError("the text of the program is missing")
    return Program(meta.name, meta.path, meta.hash, sources, tuple(decoded(meta.params, Decisions).items()))


def row_as_struct(row: dict[str, object], kind: type[_T]) -> _T:
    """As `row_as`, by name."""
    try:
        return msgspec.convert(row, kind)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def configuration_text(configuration: Configuration) -> str:
    """As it is stored: a JSON object, names in order."""
    return json.dumps(dict(configuration.decisions))


def read_configuration(text: str) -> Configuration:
    """Raises ValueError."""
    return Configuration(tuple(decoded(text, Decisions).items()))


_RUN = "started, machine, ranks, seed, strategy, seconds, revision, version, noise, options"


def insert_run(connection: sqlite3.Connection, run: Run) -> int:
    """The run's ID in this file."""
    cursor = connection.execute(
        f"INSERT INTO run ({_RUN}, machine_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run.started, json.dumps(asdict(run.machine)), run.ranks, run.seed, run.strategy, run.seconds, run.revision,
            run.version, real(run.noise), json.dumps(run.options), run.machine.key,
        ),
    )  # fmt: skip
    assert cursor.lastrowid is not None
    return cursor.lastrowid


_Json = Annotated[str, Meta(max_length=1_000_000)]  # values take up to 30 times the memory of their text
MOST_RUNS = 10_000  # a report has a row for each
_Run = tuple[
    Positive, Line, _Json, Ranks, Whole, Line, Seconds, Line, Line, Share | None, _Json
]  # fmt: skip


def read_runs(connection: sqlite3.Connection) -> list[tuple[int, Run]]:
    """(ID, run) in the order in which they were begun. Raises ValueError, sqlite3.DatabaseError."""
    out: list[tuple[int, Run]] = []
    machines: dict[str, Machine] = {}  # of many runs one text each: decoded once
    options: dict[str, dict[str, Any]] = {}
    for row in connection.execute(f"SELECT id, {_RUN} FROM run ORDER BY id"):
        key, started, machine, ranks, seed, strategy, seconds, revision, version, noise, facts = row_as(row, _Run)
        if machine not in machines:
            machine_record = decoded(machine, _Machine)
            machines[machine] = Machine(
                **{name: getattr(machine_record, name) for name in machine_record.__struct_fields__}
            )
        if facts not in options:
            options[facts] = _read_options(facts)
        of = (started, machines[machine], ranks, seed, strategy, seconds, revision, version, number(noise))
        out.append((key, Run(*of, options[facts])))
        if len(out) > MOST_RUNS:
            raise ValueError(f"more than {MOST_RUNS} runs")
    return out


def insert_implementation(connection: sqlite3.Connection, decisions: str, traversal: str) -> None:
    """Where it is not there yet. `decisions` is a configuration's stored text."""
    connection.execute("INSERT OR IGNORE INTO configuration (decisions) VALUES (?)", (decisions,))
    connection.execute(
        "INSERT OR IGNORE INTO implementation (configuration, traversal)"
        " SELECT id, ? FROM configuration WHERE decisions = ?",
        (traversal, decisions),
    )


def find_implementation(connection: sqlite3.Connection, decisions: str, traversal: str) -> ImplementationId:
    (key,) = connection.execute(
        "SELECT i.id FROM implementation i JOIN configuration c ON c.id = i.configuration"
        " WHERE c.decisions = ? AND i.traversal = ?",
        (decisions, traversal),
    ).fetchone()
    return ImplementationId(key)


def real(value: float) -> float | None:
    """NaN as SQL's NULL."""
    return None if math.isnan(value) else value


def number(value: float | None) -> float:
    return math.nan if value is None else value
