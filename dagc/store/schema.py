"""The tables of a results file (SQLite), and opening one with a clear error for anything else.

docs/reference/results-files.md describes the tables.
"""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dagc.base.errors import DagcError, NotWritten, UsageError

if TYPE_CHECKING:
    from dagc.store.results import ProgramRecord

SCHEMA_VERSION = 2
# "dagc" in ASCII: `file results.db` shows it, and it distinguishes results files from other databases.
APPLICATION_ID = 0x64616763

COMMON_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE source (path TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE run (
  id INTEGER PRIMARY KEY, started TEXT NOT NULL, machine_key TEXT NOT NULL, machine TEXT NOT NULL,
  ranks INTEGER NOT NULL, seed INTEGER NOT NULL, strategy TEXT NOT NULL, seconds REAL NOT NULL, revision TEXT NOT NULL,
  version TEXT NOT NULL, noise REAL, options TEXT NOT NULL
);
CREATE TABLE drift (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run, after INTEGER NOT NULL, seconds REAL NOT NULL
);
"""

TABLES = f"""{COMMON_TABLES}
CREATE TABLE metric (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, unit TEXT NOT NULL);
CREATE TABLE assignment (id INTEGER PRIMARY KEY, choices TEXT NOT NULL UNIQUE);
CREATE TABLE candidate (
  id INTEGER PRIMARY KEY, domain TEXT NOT NULL, point TEXT NOT NULL,
  assignment INTEGER NOT NULL REFERENCES assignment, traversal TEXT NOT NULL, flush INTEGER NOT NULL,
  failure TEXT NOT NULL DEFAULT '', deaths INTEGER NOT NULL DEFAULT 0,
  UNIQUE (domain, point, assignment, flush, traversal)
);
CREATE TABLE sample (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run, candidate INTEGER NOT NULL REFERENCES candidate,
  purpose TEXT NOT NULL, iterations INTEGER NOT NULL, reference REAL
);
CREATE TABLE value (
  sample INTEGER NOT NULL REFERENCES sample, metric INTEGER NOT NULL REFERENCES metric, value REAL NOT NULL,
  PRIMARY KEY (sample, metric)
) WITHOUT ROWID;
CREATE TABLE trace (
  candidate INTEGER NOT NULL REFERENCES candidate, rank INTEGER NOT NULL, position INTEGER NOT NULL,
  "begin" REAL NOT NULL, "end" REAL NOT NULL, gpu_begin REAL, gpu_end REAL, PRIMARY KEY (candidate, rank, position)
) WITHOUT ROWID;
CREATE TABLE under_way (one INTEGER PRIMARY KEY CHECK (one = 1), candidate INTEGER REFERENCES candidate);
CREATE TABLE checked (
  domain TEXT NOT NULL, assignment INTEGER NOT NULL REFERENCES assignment, point TEXT NOT NULL, failure TEXT NOT NULL,
  PRIMARY KEY (domain, assignment)
) WITHOUT ROWID;
CREATE TABLE fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE chooser (domain TEXT PRIMARY KEY, chooser TEXT NOT NULL) WITHOUT ROWID;
"""
# Of a file that several groups of ranks have measured for.
GROUP_TABLES = """
CREATE TABLE under_way_beside (run INTEGER PRIMARY KEY, candidate INTEGER REFERENCES candidate);
"""


def create(connection: sqlite3.Connection, program: ProgramRecord) -> None:
    """Create all tables in an empty database, in one transaction, so that the file is never incomplete."""
    meta = {
        "format": "dagc results",
        "schema_version": str(SCHEMA_VERSION),
        "name": program.name,
        "path": program.path,
        "hash": program.hash,
        "params": json.dumps(dict(program.params)),
    }
    connection.execute("BEGIN IMMEDIATE")
    create_tables(connection)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
    connection.executemany("INSERT INTO source VALUES (?, ?)", program.sources)
    connection.execute("COMMIT")


def create_tables(connection: sqlite3.Connection) -> None:
    for statement in _statements(TABLES):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def create_group_tables(connection: sqlite3.Connection) -> None:
    """Where they are missing."""
    if not has_group_tables(connection):
        connection.execute(*_statements(GROUP_TABLES))


def has_group_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'under_way_beside'").fetchone() is not None


def _statements(tables: str) -> tuple[str, ...]:
    """One for each table, with single spaces."""
    return tuple(" ".join(statement.split()) for statement in tables.split(";") if statement.strip())


# ---- rows that several writers insert -------------------------------------------------------


def candidate_id(
    connection: sqlite3.Connection, domain: str, point: str, choices: str, traversal: str = "", flush: int = 0
) -> int:
    """The ID of a candidate, which is inserted if missing. `point` and `choices` are JSON."""
    connection.execute("INSERT OR IGNORE INTO assignment (choices) VALUES (?)", (choices,))
    (assignment,) = connection.execute("SELECT id FROM assignment WHERE choices = ?", (choices,)).fetchone()
    key = (domain, point, assignment, flush, traversal)
    connection.execute(
        "INSERT OR IGNORE INTO candidate (domain, point, assignment, flush, traversal) VALUES (?, ?, ?, ?, ?)", key
    )
    (number,) = connection.execute(
        "SELECT id FROM candidate WHERE (domain, point, assignment, flush, traversal) = (?, ?, ?, ?, ?)", key
    ).fetchone()
    return int(number)


def insert_sample(
    connection: sqlite3.Connection,
    run: int,
    candidate: int,
    purpose: str,
    iterations: int,
    reference: float | None,
    values: Mapping[int, float],
) -> None:
    """`values` by the ID of their metric."""
    cursor = connection.execute(
        "INSERT INTO sample (run, candidate, purpose, iterations, reference) VALUES (?, ?, ?, ?, ?)",
        (run, candidate, purpose, iterations, reference),
    )
    connection.executemany(
        "INSERT INTO value VALUES (?, ?, ?)", ((cursor.lastrowid, *value) for value in values.items())
    )


def metric_id(connection: sqlite3.Connection, name: str, unit: str) -> int:
    """The ID of a metric, which is inserted if missing. Raises UsageError if it has another unit."""
    connection.execute("INSERT OR IGNORE INTO metric (name, unit) VALUES (?, ?)", (name, unit))
    number, kept = connection.execute("SELECT id, unit FROM metric WHERE name = ?", (name,)).fetchone()
    if kept != unit:
        raise UsageError(f"{name} was measured in {kept!r}, not in {unit!r}", "use two files")
    return int(number)


# ---- opening --------------------------------------------------------------------------------


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing results file for reading.

    Raises UsageError naming the file if it is not a results file that this dagc can read.
    """
    connection = open_to_read(path)
    try:
        check(connection, path)
        limit_time(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open an existing file, whatever it has. Raises UsageError if there is none."""
    if not path.is_file():
        why = "not a file" if path.exists() else "no such file"
        raise UsageError(f"{path}: {why}", "give the path of a results file of `dagc explore` or `dagc tune`")
    # Without a writer and without a log, the file is read as it is, even on a read-only file system.
    still = not any(Path(f"{path}{end}").exists() for end in ("-wal", "-journal", "-lock"))
    return connect_as(path, "ro" + ("&immutable=1" if still else ""))


def connect_as(path: Path, mode: str) -> sqlite3.Connection:
    """Open with SQLite's URI mode, in autocommit mode: transactions are explicit.

    The content is not trusted: no code in the file's schema is run, and values are limited to LONGEST bytes.
    """
    for end in ("-wal", "-shm", "-journal"):
        _check_neighbour(Path(f"{path}{end}"))
    name = path.absolute().as_uri()
    try:
        connection = sqlite3.connect(f"{name}?mode={mode}", uri=True, timeout=10.0, isolation_level=None)
    except sqlite3.Error as error:
        help = "give the path of a results file of `dagc explore` or `dagc tune`"
        raise UsageError(f"{path}: {error}", help) from None
    try:
        _restrict(connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise damaged(path, error) from None
    return connection


def _restrict(connection: sqlite3.Connection) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")  # https://sqlite.org/fileformat2.html#the_rollback_journal


def _check_neighbour(path: Path) -> None:
    """Raises UsageError for a log or a journal that SQLite must not open.

    It would write through a symbolic link, or block on a pipe. A journal that ends with the name of another file
    belongs to a transaction over several databases, which dagc never creates: SQLite removes the file named there.
    """
    hint = "remove it, or choose another name for the results file"
    try:
        # Opened only if needed: closing a file releases the locks that SQLite holds on it in this process.
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
    """Limit all following queries to `seconds`; then SQLite raises OperationalError. 0: no limit."""
    end = time.monotonic() + seconds
    connection.set_progress_handler((lambda: time.monotonic() > end) if seconds else None, 100_000)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raises UsageError if a file is damaged, something else, or of another schema."""
    version = version_of(connection, path)
    if version < SCHEMA_VERSION:
        raise UsageError(
            f"{path}: made by an older dagc (schema {version}; this one reads {SCHEMA_VERSION})",
            f"convert it with `dagc convert {shlex.quote(str(path))} NEW.db`",
        )
    check_content(connection, path, TABLES, GROUP_TABLES)


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a file. Raises UsageError if it is damaged, something else, or of a newer schema."""
    limit_time(connection)
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise damaged(path, error) from None
    if application != APPLICATION_ID:
        help = "give a file written by `dagc explore` or `dagc tune`"
        raise UsageError(f"{path}: not a results file of dagc", help)
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{path}: made by a newer dagc (schema {version}; this one reads up to {SCHEMA_VERSION})", "update dagc"
        )
    return int(version)


def check_content(connection: sqlite3.Connection, path: Path, required: str, optional: str = "") -> None:
    """Raises UsageError if a file is damaged, or has other tables than those of its schema."""
    limit_time(connection)
    with reading(path):
        # First, since later statements may evaluate expressions in the schema.
        _check_tables(connection, required, optional)
        (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if sound != "ok":
            raise ValueError(sound)
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise ValueError(f"a row of {broken[0]} refers to a missing row of {broken[2]}")
    limit_time(connection, 0)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors in the content of a file become UsageErrors that name it."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise damaged(path, error) from None


def _check_tables(connection: sqlite3.Connection, required: str, optional: str) -> None:
    """Only the tables of the schema, as dagc creates them: no view, trigger or index. Raises ValueError."""
    known = {*_statements(required), *_statements(optional)}
    tables = set()
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_schema"):
        if kind == "index" and text is None and str(name).startswith("sqlite_autoindex_"):
            continue
        text = " ".join(str(text).split())
        if kind != "table" or text not in known:
            raise ValueError(f"{kind} {str(name)[:60]!r} does not belong in a results file")
        tables.add(text)
    if not set(_statements(required)) <= tables:
        raise ValueError("a table is missing")


_ELSEWHERE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_BUSY")


def elsewhere(error: object) -> bool:
    """Whether SQLite's error is unrelated to the content of a file: a full disk, for example."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(_ELSEWHERE)


def full(error: object) -> bool:
    """Whether SQLite's error is that of a disk that is full, or fails."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_FULL", "SQLITE_IOERR"))


def damaged(path: Path, why: object) -> DagcError:
    """The error for an unusable file, in one line; `why` is what SQLite raised or reported."""
    text = " ".join(str(why).split())
    text = "".join(c if c.isprintable() else "\ufffd" for c in text[:300])
    if elsewhere(why):
        kind = NotWritten if full(why) else UsageError
        locked = str(getattr(why, "sqlite_errorname", "")).startswith("SQLITE_BUSY")
        help = "wait for the process that uses it" if locked else "free some space, or choose another place"
        return kind(f"{path} cannot be read or written: {text}", help)
    return UsageError(f"{path}: truncated, damaged, or not a results file: {text}", "measure again into another file")


def decoded(text: object, kind: Any, where: str = "") -> Any:
    """JSON as a type. Raises ValueError, naming the place: `where`, and in it."""
    at = f"{where}: " if where else ""
    if not isinstance(text, str):
        raise ValueError(f"{at}a value that is not text")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError, TypeError) as error:
        raise ValueError(f"{at}{error}") from None
