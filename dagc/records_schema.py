"""The tables of a results file (SQLite), and opening one with a clear error for everything that is not one.

docs/records.md describes the tables. Times are in seconds.
"""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dagc.errors import UsageError
from dagc.results import Configuration, ImplementationId, Machine, Program, Run

SCHEMA_VERSION = 1
# "dagc" in ASCII: `file results.db` shows it, and other databases are told from results files by it.
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
    for statement in TABLES.split(";"):
        connection.execute(statement)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
    connection.executemany("INSERT INTO source VALUES (?, ?)", program.sources)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


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
    except BaseException:
        connection.close()
        raise
    return connection


def connect_as(path: Path, mode: str) -> sqlite3.Connection:
    """Open with SQLite's URI mode, in autocommit: transactions are begun and ended in words."""
    name = path.absolute().as_uri()
    try:
        return sqlite3.connect(f"{name}?mode={mode}", uri=True, timeout=10.0, isolation_level=None)
    except sqlite3.Error as error:
        raise UsageError(f"{path}: {error}", "give the path of a results file of `dagc explore`") from None


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raises UsageError where the database is damaged, something else, or of another schema."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # what is wrong may be told in bytes of the file
        raise damaged(path, error) from None
    if application != APPLICATION_ID:
        raise UsageError(f"{path}: not a results file of dagc", "give a file that `dagc explore` has written")
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{path}: made by a newer dagc (schema {version}; this one reads up to {SCHEMA_VERSION})", "update dagc"
        )
    if sound != "ok":
        raise damaged(path, sound)


_ELSEWHERE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_BUSY")


def elsewhere(error: object) -> bool:
    """Whether what SQLite raised says nothing about the content of a file: the disk is full, for one."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(_ELSEWHERE)


def damaged(path: Path, why: object) -> UsageError:
    """The error for a file that cannot be used, in one line; `why` is what SQLite raised or said."""
    text = " ".join(str(why).split())
    if elsewhere(why):
        return UsageError(f"{path} cannot be read or written: {text}", "make room, or choose another place")
    return UsageError(f"{path}: truncated, damaged, or not a results file: {text}", "measure again into another file")


# ---- rows <-> values --------------------------------------------------------------------------


def read_program(connection: sqlite3.Connection) -> Program:
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    sources = tuple(connection.execute("SELECT path, text FROM source ORDER BY path").fetchall())
    return Program(meta["name"], meta["path"], meta["hash"], sources, tuple(json.loads(meta["params"]).items()))


def configuration_text(configuration: Configuration) -> str:
    """As it is stored: a JSON object, names in order."""
    return json.dumps(dict(configuration.decisions))


def read_configuration(text: str) -> Configuration:
    return Configuration(tuple(json.loads(text).items()))


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


def read_runs(connection: sqlite3.Connection) -> list[tuple[int, Run]]:
    """(ID, run) in the order in which they were begun."""
    return [(row[0], _run(*row[1:])) for row in connection.execute(f"SELECT id, {_RUN} FROM run ORDER BY id")]


def _run(
    started: str, machine: str, ranks: int, seed: int, strategy: str, seconds: float, revision: str, version: str,
    noise: float | None, options: str,
) -> Run:  # fmt: skip
    return Run(
        started, _machine(json.loads(machine)), ranks, seed, strategy, seconds, revision, version, number(noise),
        json.loads(options),
    )  # fmt: skip


def _machine(record: dict[str, Any]) -> Machine:
    return Machine(**{**record, "hosts": tuple(record["hosts"]), "gpus": tuple(record["gpus"])})


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
