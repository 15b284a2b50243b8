"""Results and tuned files that are damaged end in one message, whatever reads them."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from benchmarks.fuzz_files import ENDLESS, failures, fuzz, read_results, write_program, write_results
from dagc import api
from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.ir.choice import Choice
from tests.tiers import examples


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    return write_results(folder / "good.db", write_program(folder))


@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS,
        "CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM sample; END",
        "CREATE INDEX i ON sample (hex(zeroblob(1000000)))",
        "UPDATE meta SET value = '../../elsewhere' WHERE key = 'name'",
        "UPDATE meta SET value = '/tmp/elsewhere' WHERE key = 'name'",
        "UPDATE meta SET value = '{\"N\": [1]}' WHERE key = 'params'",
        "DELETE FROM source",
        "UPDATE value SET value = 0 WHERE sample = 1",
        "UPDATE drift SET seconds = 1e999 WHERE id = 1",
        "UPDATE sample SET run = 99 WHERE id = 1",
        "UPDATE run SET machine = '{' WHERE id = 1",
        "UPDATE assignment SET choices = '[]' WHERE id = 1",
        "UPDATE candidate SET failure = char(27) || '[2J'",
        "UPDATE candidate SET point = '{\"N\": 1}', flush = 0 WHERE id = 1",
        "UPDATE candidate SET flush = -1 WHERE id = 1",
        "UPDATE candidate SET deaths = 'often' WHERE id = 1",
    ],
)
def test_every_command_refuses_it(
    good: Path, tmp_path: Path, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.db"
    shutil.copy(good, path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for part in statement.split(";;"):
            connection.execute(part)
    for name, command in read_results(path, tmp_path, good):
        why = "has schema 2 already" if name == "convert" else "truncated, damaged, or not a results file"
        with pytest.raises(UsageError, match=why):
            command()
    assert main(["rules", str(path)]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_decision_that_is_a_number_here_and_a_text_there(good: Path, tmp_path: Path) -> None:
    """What must have an order has one, so that the program says what is wrong."""
    path = tmp_path / "r.db"
    for name, value in (("a.bx", "64"), ("capture", "x"), ("m", "1")):
        shutil.copy(good, path)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(
                f"UPDATE assignment SET choices = json_set(choices, '$.\"{name}\"', ?) WHERE id = 1", (value,)
            )
        assert list(failures(read_results(path, tmp_path, good))) == []
    order = [Choice((("a", value),)) for value in ("x", 2.5, True, "", 7)]
    assert [c.decisions[0][1] for c in sorted(order)] == [True, 2.5, 7, "", "x"]


def test_a_good_file_is_read_by_every_command(good: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    write_results(other, good.parent / "small.dag")
    assert list(failures(read_results(good, tmp_path, other))) == []
    assert "best" in api.best(good, only_print=True)


def test_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    """A slice of `benchmarks/fuzz_files.py`, the same each time."""
    assert list(fuzz(examples(4), examples(3), 3, tmp_path)) == []


def test_a_file_does_not_say_how_many_processes_are_started(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.db"
    shutil.copy(good, path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE run SET ranks = 1000000")
    assert main(["explain", str(path)]) == 2
    assert "measured on 1000000 ranks, more than 16 for each of the" in capsys.readouterr().err
