"""Files of schema 1, which dagc 0.2 wrote, in the present schema: `dagc convert`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from msgspec import Meta

from dagc.base.errors import UsageError, not_written
from dagc.store.read import is_tuned, results_in
from dagc.store.schema import (
    COMMON_TABLES,
    SCHEMA_VERSION,
    candidate_id,
    check_content,
    connect_as,
    create_tables,
    decoded,
    insert_sample,
    limit_time,
    open_to_read,
    reading,
    version_of,
)
from dagc.store.tuned import tuned_in

TABLES_1 = f"""{COMMON_TABLES}
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
CREATE TABLE trace (
  implementation INTEGER NOT NULL REFERENCES implementation, rank INTEGER NOT NULL, position INTEGER NOT NULL,
  "begin" REAL NOT NULL, "end" REAL NOT NULL, gpu_begin REAL, gpu_end REAL,
  PRIMARY KEY (implementation, rank, position)
) WITHOUT ROWID;
CREATE TABLE under_way (one INTEGER PRIMARY KEY CHECK (one = 1), implementation INTEGER REFERENCES implementation);
"""
TUNE_TABLES_1 = """
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

_COPIED = {  # table -> its rows
    "meta": "SELECT key, iif(key = 'schema_version', '2', value) FROM meta",
    "source": "SELECT path, text FROM source",
    "run": "SELECT id, started, machine_key, machine, ranks, seed, strategy, seconds, revision, version, noise, options"
    " FROM run",
    "drift": "SELECT id, run, after, seconds FROM drift",
    "assignment": "SELECT id, decisions FROM configuration",
    "candidate": "SELECT id, '', '{}', configuration, traversal, 0, failure, deaths FROM implementation",
    "sample": "SELECT id, run, implementation, purpose, iterations, reference FROM measurement",
    "value": "SELECT id, 1, seconds FROM measurement",
    "trace": 'SELECT implementation, rank, position, "begin", "end", gpu_begin, gpu_end FROM trace',
    "under_way": "SELECT one, implementation FROM under_way",
}
_COPIED_TUNED = {
    "fact": "SELECT key, value FROM tune_fact",
    "chooser": "SELECT op, chooser FROM tune_chooser",
}
_Times = tuple[Annotated[float, Meta(gt=0, le=1e300)], ...]


def _copy(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Copy a checked file of schema 1 into an empty database, values unchanged: the reader validates them.

    Raises ValueError and sqlite3.Error for content that readers of schema 1 rejected.
    """
    new.execute("BEGIN")
    create_tables(new)
    new.execute("INSERT INTO metric VALUES (1, 'time', 's')")
    tables = {name for (name,) in old.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for table, select in (_COPIED | (_COPIED_TUNED if "tune_cell" in tables else {})).items():
        rows = old.execute(select)
        new.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows.description))})", rows)
    if "tune_cell" in tables:
        _copy_cells(old, new)
    new.execute("COMMIT")


def _copy_cells(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    cells = old.execute("SELECT run, op, point, settings, flush, times, failure FROM tune_cell ORDER BY id")
    for run, op, point, settings, flush, times, failure in cells:
        key = candidate_id(new, _op(op), point, settings, flush=flush)
        new.execute("UPDATE candidate SET failure = ? WHERE id = ?", (failure, key))
        for seconds in decoded(times, _Times):
            insert_sample(new, run, key, "tune", 1, None, {1: seconds})
    for op, settings, point, failure in old.execute("SELECT op, settings, point, failure FROM tune_check"):
        new.execute("INSERT OR IGNORE INTO assignment (choices) VALUES (?)", (settings,))
        new.execute(
            "INSERT INTO checked SELECT ?, id, ?, ? FROM assignment WHERE choices = ?",
            (_op(op), point, failure, settings),
        )


def _op(name: str) -> str:
    if not name:
        raise ValueError("an op without a name")
    return name


def convert(old: str | Path, new: str | Path) -> None:
    """Write a file of schema 1 in the present schema into the new file `new`.

    Raises UsageError if `old` has another schema or is damaged, and if `new` exists or cannot be written.
    """
    old, new = Path(old), Path(new)
    if new.exists():
        raise UsageError(f"{new} exists", "choose another name")
    with closing(open_to_read(old)) as source:
        version = version_of(source, old)
        if version == SCHEMA_VERSION:
            raise UsageError(f"{old}: has schema {version} already", "use it as it is")
        check_content(source, old, TABLES_1, TUNE_TABLES_1)
        try:
            new.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".dagc-convert-", dir=new.parent) as directory:
                scratch = Path(directory) / new.name  # no other process can place a link there
                _write(source, old, scratch)
                scratch.replace(new)
        except OSError as error:
            raise not_written(new, error) from None


def _write(source: sqlite3.Connection, old: Path, scratch: Path) -> None:
    """The copy, once it was read as every command reads it."""
    with closing(connect_as(scratch, "rwc")) as target, reading(old):
        limit_time(source)
        source.execute("BEGIN")  # a consistent snapshot of the file
        _copy(source, target)
        source.execute("COMMIT")
        if is_tuned(target):
            tuned_in(target, old)
        else:
            results_in(target)
