"""Tuned files as two sessions would have written them: a file of a part of the inputs of another one."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path


def part_of(tuned: Path, out: Path, wanted: Callable[[int], bool]) -> Path:
    """A copy of a tuned file with the inputs whose place, in the order of their texts, is `wanted`."""
    shutil.copy(tuned, out)
    with closing(sqlite3.connect(out)) as connection, connection:
        points = connection.execute("SELECT DISTINCT point FROM candidate WHERE domain != '' ORDER BY point").fetchall()
        for number, (point,) in enumerate(points):
            if not wanted(number):
                _without(connection, point)
    return out


def _without(connection: sqlite3.Connection, point: str) -> None:
    cells = "SELECT id FROM candidate WHERE point = :point"
    connection.execute(
        f"DELETE FROM value WHERE sample IN (SELECT id FROM sample WHERE candidate IN ({cells}))", [point]
    )
    connection.execute(f"DELETE FROM sample WHERE candidate IN ({cells})", [point])
    connection.execute("DELETE FROM candidate WHERE point = ?", [point])
    params = json.loads(point)
    for key, text in connection.execute("SELECT key, value FROM fact WHERE key LIKE 'input%'").fetchall():
        facts = json.loads(text)
        if isinstance(facts, list):  # of plans, all at once
            kept = json.dumps([one for one in facts if one["params"] != params])
            connection.execute("UPDATE fact SET value = ? WHERE key = ?", [kept, key])
        elif facts["params"] == params:
            connection.execute("DELETE FROM fact WHERE key = ?", [key])


def set_fact(tuned: Path, key: str, value: object) -> None:
    """Another value of a fact of a tuned file."""
    run_sql(tuned, "INSERT OR REPLACE INTO fact VALUES (?, ?)", key, json.dumps(value))


def run_sql(tuned: Path, statement: str, *values: object) -> None:
    """Change a file."""
    with closing(sqlite3.connect(tuned)) as connection, connection:
        connection.execute(statement, values)
