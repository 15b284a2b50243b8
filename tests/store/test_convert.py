"""Files of schema 1 are converted by one command, which loses nothing; files that were converted are read as before."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import shutil
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fuzz_files import write_plans, write_program, write_results, write_schema_1, write_tuned
from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.store.convert import convert
from dagc.store.records import Records, load
from dagc.store.tuned import Tuned, load_tuned, was_tuned

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "results"
# What the reader of schema 1 gave: digest of all times, digest of traces, runs, noise floor, file.
BEFORE = [line.split() for line in (ROOT / "tests" / "data" / "records.txt").read_text().splitlines()]


def _digest(rows: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(repr, rows)).encode()).hexdigest()[:16]


def _own(choice: Choice) -> tuple[tuple[str, object], ...]:
    return tuple(choice.own.items())


def test_every_committed_results_file_is_read_as_before() -> None:
    orders = [words for words in BEFORE if words[-1].endswith(".db")]
    newer = {str(p.relative_to(RECORDS)) for p in RECORDS.rglob("*.db")} - {words[-1] for words in orders}
    for name in newer:
        assert (load_tuned if was_tuned(RECORDS / name) else load)(RECORDS / name).program.hash
    for *before, name in orders:
        found = load(RECORDS / name)
        rows = (
            (i.configuration.text, i.traversal, i.failure,
             [(m.value, place.order, place.run) for m, place in zip(i.samples, i.taken, strict=True)])
            for i in found.implementations
        )  # fmt: skip
        assert before == [_digest(rows), _digest(found.traces.items()), str(len(found.runs))], name


def test_every_committed_tuned_file_is_read_as_before(tmp_path: Path) -> None:
    tuned = [words for words in BEFORE if words[-1].endswith(".xz")]
    assert len(tuned) == 8
    for before, name in tuned:
        path = tmp_path / "t.db"
        path.write_bytes(lzma.decompress((RECORDS / name).read_bytes()))
        found = load_tuned(path)
        samples = zip(found.samples, found.flushes, strict=True)
        rows: list[object] = [(c.site, c.case.text, _own(c.choice), s.times, s.failure, f) for (c, s), f in samples]
        checks = [((op, _own(choice)), failure) for (op, choice), failure in found.checks.items()]
        rows += [sorted(checks), found.facts.arch, found.facts.gpu]
        for op, c in found.kernel_choosers.items():  # sizes were whole numbers then
            anchors = tuple(replace(a, data=tuple(map(int, a.data))) for a in c.anchors)
            rows.append((op, c.method, tuple(map(_own, c.choices)), anchors))
        assert before == _digest(rows), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`orders.db` and `plans.db` of today's schema, and the same in schema 1 (`old-...`)."""
    made = tmp_path_factory.mktemp("schema")
    dag = write_program(made)
    write_results(made / "orders.db", dag)
    write_plans(made / "plans.db", write_tuned(made / "tuned.db", dag))
    for name in ("orders.db", "plans.db"):
        write_schema_1(made / f"old-{name}", made / name)
    return made


def _tuned(path: Path) -> Tuned:
    return replace(load_tuned(path), path=Path())


def _tuned(path: Path) -> Tuned:
    return replace(load_tuned(path), path=Path())


def test_both_schemas_say_the_same(folder: Path, tmp_path: Path) -> None:
    old = {path: path.read_bytes() for path in folder.glob("old-*.db")}
    for name in ("orders.db", "plans.db"):
        convert(folder / f"old-{name}", tmp_path / name)
    assert repr(load(tmp_path / "orders.db")) == repr(load(folder / "orders.db"))
    now, before = _tuned(folder / "plans.db"), _tuned(tmp_path / "plans.db")
    assert [sample.times for c, sample in now.samples] == [(1e-05, 1.1e-05), (1e-05,)]
    assert replace(now, runs=()) == replace(before, runs=())
    assert {path: path.read_bytes() for path in old} == old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["orders.db", "plans.db"]


@pytest.mark.parametrize("command", ["best", "rules", "export --csv", "report -o OUT", "merge RESULTS -o OUT"])
def test_other_commands_name_the_command_that_converts(
    command: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = str(folder / "old-orders.db")
    name, *rest = command.replace("OUT", str(tmp_path / "out")).replace("RESULTS", old).split()
    assert main([name, old, *rest]) == 2
    error = capsys.readouterr().err
    assert f"{old}: made by an older dagc (schema 1; this one reads 2)" in error
    assert f"help: convert it with `dagc convert {old} NEW.db`" in error
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_continued_must_be_converted_first(folder: Path) -> None:
    found = load(folder / "orders.db")
    content = (folder / "old-orders.db").read_bytes()
    with pytest.raises(UsageError, match="made by an older dagc"):
        Records.open(folder / "old-orders.db", found.program, found.runs[0], resume=True)
    assert (folder / "old-orders.db").read_bytes() == content


def test_the_command_converts_and_writes_over_no_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = str(folder / "old-orders.db"), str(tmp_path / "new.db")
    assert main(["convert", old, new]) == 0
    assert capsys.readouterr().out == f"{new}: {old} in the present schema\n"
    assert main(["convert", old, new]) == 2
    assert f"{new} exists" in capsys.readouterr().err
    assert main(["convert", new, str(tmp_path / "third.db")]) == 2
    assert f"{new}: has schema 2 already" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["new.db"]


def test_nothing_is_lost_of_a_run_that_was_killed(folder: Path, tmp_path: Path) -> None:
    """Its last measurements are in the log beside the file."""
    path, killed = tmp_path / "r.db", tmp_path / "killed.db"
    shutil.copy(folder / "old-orders.db", path)
    number = len(load(folder / "orders.db").implementations[0].samples)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        columns = "run, implementation, purpose, seconds, reference, iterations"
        connection.execute(f"INSERT INTO measurement ({columns}) VALUES (1, 1, 'search', 0.5, NULL, 1)")
        connection.execute("INSERT INTO under_way VALUES (1, 2)")
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{killed}{end}")
    convert(killed, tmp_path / "new.db")
    found = load(tmp_path / "new.db")
    assert found.implementations[0].samples[number].value == 0.5
    with Records.open(tmp_path / "new.db", found.program, found.runs[0], resume=True) as records:
        assert records.under_way is not None
        assert records.under_way.id == 2


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("orders", "UPDATE measurement SET seconds = 'x'"),
        ("orders", "UPDATE measurement SET run = 99"),
        ("orders", "UPDATE configuration SET decisions = x'7b7d' WHERE id = 1"),
        ("orders", "DROP TABLE drift"),
        ("orders", "CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM run; END"),
        ("orders", "CREATE TABLE candidate (id INTEGER PRIMARY KEY)"),
        ("plans", "UPDATE tune_cell SET times = '[0]'"),
        ("plans", "UPDATE tune_cell SET times = '{}'"),
        ("plans", "UPDATE tune_cell SET times = x'5b5d'"),
        ("plans", "UPDATE tune_cell SET op = ''"),
        ("plans", "UPDATE tune_cell SET op = x'41'"),
        ("plans", "INSERT INTO tune_check VALUES ('', '{}', '{}', '')"),
    ],
)
def test_what_was_refused_in_schema_1_is_refused(folder: Path, tmp_path: Path, name: str, statement: str) -> None:
    path = tmp_path / "t.db"
    shutil.copy(folder / f"old-{name}.db", path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)
    content = path.read_bytes()
    with pytest.raises(UsageError, match="truncated, damaged, or not a results file"):
        convert(path, tmp_path / "new.db")
    assert path.read_bytes() == content
    assert not (tmp_path / "new.db").exists()
