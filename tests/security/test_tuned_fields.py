"""Every field of every kind of tuned file in turn, with values that are not what it should hold: refused, or inert."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz_files import SELECTORS, write_plans, write_program, write_tuned
from dagc import api
from dagc.base.errors import UsageError
from dagc.ir.program import Graph
from dagc.perf.mwp_cwp import FITTED_COUNTS
from dagc.store.tuned import Tuned, load_tuned
from dagc.study.plans import has_plans
from dagc.study.tuned import open_choices
from tests.tiers import representatives

MARK = "INJECTED"
TABLES = ("chooser", "fact", "checked", "assignment", "candidate", "sample", "value", "metric")
VALUES: tuple[Any, ...] = (None, -1, 2**63, 1e308, float("nan"), [], f'*/ int {MARK}; /*\n"""</script>\\\x1b[2J')
FIT = {
    "names": ["n"], "middle": [100.0], "half": [50.0], "above": [[0], [1]], "below": [[0]],
    "above_coefficients": [1.0, 2.0], "below_coefficients": [1.0], "degrees": [1, 0], "ridge": 1e-6,
    "held_out": {"points": 3, "median": 0.01, "largest": 0.1},
}  # fmt: skip


def write_fitted(path: Path, tuned: Path) -> Path:
    """`tuned` with a forest and fitted counts for `a`, a failure and a check."""
    shutil.copy(tuned, path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (text,) = connection.execute("SELECT chooser FROM chooser WHERE domain = 'a'").fetchone()
        chooser = {
            **json.loads(text),
            "method": "rational",
            "selector": SELECTORS[2],
            "fits": dict.fromkeys(FITTED_COUNTS, FIT),
        }
        connection.execute("UPDATE chooser SET chooser = ? WHERE domain = 'a'", (json.dumps(chooser),))
        connection.execute("DELETE FROM chooser WHERE domain = 'b'")
        connection.execute("INSERT INTO checked SELECT 'a', id, '{\"N\":100}', '' FROM assignment LIMIT 1")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tuned")
    tuned = write_tuned(made / "tuned.db", write_program(made))
    write_plans(made / "plans.db", tuned)
    write_fitted(made / "fitted.db", tuned)
    return made


def replaced(value: Any) -> Iterator[Any]:
    """A JSON value with each of VALUES in each place, and without each entry; of equal entries one."""
    if isinstance(value, dict):
        for place, (key, item) in enumerate(value.items()):
            yield {k: v for k, v in value.items() if k != key}
            yield {(MARK if k == key else k): v for k, v in value.items()}
            if item not in list(value.values())[:place]:
                yield from ({**value, key: new} for new in replaced(item))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            if item not in value[:place]:
                yield [*value[:place], *value[place + 1 :]]
                yield from ([*value[:place], new, *value[place + 1 :]] for new in replaced(item))
    yield from VALUES


def damaged_files(good: Path, path: Path) -> Iterator[str]:
    """What was put where, for each change of one field of `good`, which `path` then has."""
    with contextlib.closing(sqlite3.connect(good)) as connection:
        rows = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}
        columns = {table: [c[1] for c in connection.execute(f"PRAGMA table_info({table})")] for table in TABLES}
    for table, row in ((name, row) for name in TABLES for row in rows[name]):
        where = " AND ".join(f"{column} IS ?" for column in columns[table])
        for column, old in zip(columns[table], row, strict=True):
            news: list[Any] = [v for v in VALUES if not isinstance(v, list | dict)]
            if isinstance(old, str) and old[:1] in ("{", "["):
                news += [json.dumps(new) for new in replaced(json.loads(old))]
            for new in news:
                shutil.copy(good, path)
                with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                    connection.execute("PRAGMA synchronous = OFF")
                    try:
                        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (new, *row))
                    except (sqlite3.Error, OverflowError):  # the table takes no such value
                        continue
                yield f"{table}.{column} = {new!r}"


def chosen(graph: Graph, tuned: Tuned) -> str:
    """The C of a file's choosers."""
    chooser = open_choices(graph, tuned, "sm_90").chooser
    assert chooser is not None
    return chooser.source


@pytest.mark.parametrize("name", representatives(["fitted.db", "plans.db"], "plans.db"))
def test_each_field_of_a_tuned_file_is_refused_or_inert(folder: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "changed.db"
    graph = api.load_graph(folder / "small.dag")
    emitted: set[str] = set()
    refused = accepted = 0
    for what in damaged_files(folder / name, path):
        try:
            tuned = load_tuned(path)
            source = "" if has_plans(tuned) else chosen(graph, tuned)
        except UsageError as error:
            refused += 1
            said = error.render()
            assert str(path) in said, what
            assert all(c.isprintable() or c == "\n" for c in said), what
            assert len(said) < 6000, what
        else:
            accepted += 1
            assert MARK not in source, what
            emitted.add(source)
    assert refused > 100
    assert accepted > 10


def test_a_leaf_orders_only_settings_of_the_file(folder: Path, tmp_path: Path) -> None:
    """The code writes this order into an array of as many elements as there are settings."""
    path = Path(shutil.copy(folder / "fitted.db", tmp_path / "changed.db"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (text,) = connection.execute("SELECT chooser FROM chooser WHERE domain = 'a'").fetchone()
        chooser = json.loads(text)
        chooser["selector"] = {
            "method": "tree", "data": chooser["selector"]["data"], "tree": {"label": 0, "sure": 0.5, "then": [1000]},
        }  # fmt: skip
        connection.execute("UPDATE chooser SET chooser = ? WHERE domain = 'a'", (json.dumps(chooser),))
    with pytest.raises(UsageError, match="answers are not settings"):
        load_tuned(path)
