"""Files of schema 1: read as before, converted when they are written to, and nothing of them is lost."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fuzz_files import write_plans, write_program, write_results, write_schema_1, write_tuned
from dagc.base.errors import UsageError
from dagc.base.sample import Sample
from dagc.store.merge import merge
from dagc.store.records import Records, load
from dagc.store.results import Results
from dagc.store.tuned import Tuned, load_tuned, was_tuned

RECORDS = Path(__file__).parents[1] / "benchmarks" / "results"
# What the reader of schema 1 gave: digest of all times, digest of traces, runs, noise floor, file.
BEFORE = [line.split() for line in (Path(__file__).parent / "data" / "records.txt").read_text().splitlines()]
HEAT = RECORDS / "2026-11-22-2xh200-launch/heat-auto.db"


def _digest(rows: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(repr, rows)).encode()).hexdigest()[:16]


def test_every_committed_results_file_is_read_as_before() -> None:
    orders = [words for words in BEFORE if words[-1].endswith(".db")]
    newer = {str(p.relative_to(RECORDS)) for p in RECORDS.rglob("*.db")} - {words[-1] for words in orders}
    for name in newer:
        assert (load_tuned if was_tuned(RECORDS / name) else load)(RECORDS / name).program.hash
    for *before, name in orders:
        found = load(RECORDS / name)
        rows = (
            (i.configuration.text, i.traversal, i.failure,
             [(m.value, m.order, m.run) for m in i.measurements])
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
        rows: list[object] = [(c.site, c.case.text, c.choice, s.times, s.failure, flush) for (c, s), flush in samples]
        rows += [sorted(found.checks.items()), found.facts.arch, found.facts.gpu]
        for op, c in found.kernel_choosers.items():  # sizes were whole numbers then
            anchors = tuple(replace(a, data=tuple(map(int, a.data))) for a in c.anchors)
            rows.append((op, c.method, c.settings, anchors))
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


def test_both_schemas_say_the_same(folder: Path) -> None:
    assert repr(load(folder / "old-orders.db")) == repr(load(folder / "orders.db"))
    now, before = _tuned(folder / "plans.db"), _tuned(folder / "old-plans.db")
    assert [sample.times for c, sample in now.samples] == [(1e-05, 1.1e-05), (1e-05,)]
    assert replace(now, runs=()) == replace(before, runs=())


def test_what_was_tuned_is_not_merged_nor_lost(folder: Path, tmp_path: Path) -> None:
    for name in ("plans.db", "old-plans.db"):
        with pytest.raises(UsageError, match=f"{name} is of `dagc tune`, .* of `dagc explore`"):
            merge([folder / "orders.db", folder / name], tmp_path / "m.db")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_converted_where_it_is_written_to_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    shutil.copy(HEAT, path)
    before = load(path)
    with Records.open(path, before.program, before.runs[0], resume=True) as records:
        kept = tmp_path / "r.db.schema1"
        assert records.note == f"{path} was converted from schema 1 to 2; the old file is {kept}"
        first = before.implementations[0]
        number = records.begin(first.configuration, first.traversal)
        assert number == first.id
        records.add(number, 1e-3, float("nan"), 1)
    assert kept.read_bytes() == HEAT.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.db", "r.db.schema1"]
    after = load(path)
    assert len(after.runs) == len(before.runs) + 1
    assert repr(after.implementations[1:]) == repr(before.implementations[1:])
    assert after.implementations[0].measurements[:-1] == before.implementations[0].measurements
    with Records.open(path, before.program, before.runs[0], resume=True) as records:
        assert records.note == ""


def test_settings_are_kept_where_a_file_is_converted(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    shutil.copy(folder / "old-plans.db", path)
    before = _tuned(path)
    with Records.open(path, before.program, before.runs[0], resume=True, tuning=True) as records:
        records.add_sample(before.samples[0][0], Sample.of((3e-5,)), before.flushes[0])  # in place of the first
    after = _tuned(path)
    assert [sample.times for _, sample in after.samples] == [(3e-5,), *(one.times for _, one in before.samples[1:])]
    assert replace(after, runs=(), samples=()) == replace(before, runs=(), samples=())


def test_nothing_is_lost_of_a_run_that_was_killed_before(tmp_path: Path) -> None:
    """Its last measurements are in the log beside the file."""
    path, killed = tmp_path / "r.db", tmp_path / "killed.db"
    shutil.copy(HEAT, path)
    number = len(load(path).implementations[0].measurements)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        columns = "run, implementation, purpose, seconds, reference, iterations"
        connection.execute(f"INSERT INTO measurement ({columns}) VALUES (1, 1, 'search', 0.5, NULL, 1)")
        connection.execute("INSERT INTO under_way VALUES (1, 2)")
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{killed}{end}")
    found = load(killed)
    assert found.implementations[0].measurements[number].value == 0.5
    with Records.open(killed, found.program, found.runs[0], resume=True) as records:
        assert records.under_way is not None
        assert records.under_way.id == 2
    for name in (killed, tmp_path / "killed.db.schema1"):
        assert load(name).implementations[0].measurements[number].value == 0.5
    assert not Path(f"{killed}-wal").exists()


def test_a_name_that_is_taken_is_not_written_over(tmp_path: Path) -> None:
    path, taken = tmp_path / "r.db", tmp_path / "r.db.schema1"
    shutil.copy(HEAT, path)
    found = load(path)
    taken.write_text("mine")
    with pytest.raises(UsageError, match=r"r\.db\.schema1 exists") as error:
        Records.open(path, found.program, found.runs[0], resume=True)
    assert error.value.help == "move it away"
    assert (path.read_bytes(), taken.read_text()) == (HEAT.read_bytes(), "mine")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.db", "r.db.schema1"]
    taken.unlink()
    taken.hardlink_to(path)  # as a run leaves it that ended between keeping the old file and replacing it
    Records.open(path, found.program, found.runs[0], resume=True).close()
    assert taken.read_bytes() == HEAT.read_bytes()


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
    tuning = name == "plans"
    reader: Callable[[Path], Results | Tuned] = load_tuned if tuning else load
    found = reader(folder / f"old-{name}.db")
    for attempt in (reader, lambda p: Records.open(p, found.program, found.runs[0], resume=True, tuning=tuning)):
        with pytest.raises(UsageError, match="truncated, damaged, or not a results file"):
            attempt(path)
    assert path.read_bytes() == content
    assert not Path(f"{path}.schema1").exists()
